package agent

import (
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// TestReadSwitch changes what the OVSDB says after one goroutine has read it and before it writes:
// another that reads the change does not have it overwritten.
func TestReadSwitch(t *testing.T) {
	tables := newTables(config.Default(), ownName)
	tables.kinds.Loaded()
	tables.loaded()
	state := func(port uint32) bridge.State {
		return bridge.State{
			Bridges: map[string]bridge.Found{tables.config.OVSBridge: {Ports: map[string]bridge.PortState{"p": {OFPort: port}}}}}
	}
	newer := make(chan struct{})
	tables.readSwitch(func() bridge.State {
		go func() {
			defer close(newer)
			tables.readSwitch(func() bridge.State { return state(2) })
		}()
		select {
		case <-newer: // written already: what is returned is old
		case <-time.After(100 * time.Millisecond): // it waits
		}
		return state(1)
	})
	<-newer
	tables.engine.Pass()
	if p, _ := tables.pods.ports.Get("p"); p.OFPort != 2 {
		t.Errorf("port %d was written over a newer one", p.OFPort)
	}
}

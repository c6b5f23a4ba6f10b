package agent

import (
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// TestReadSwitch changes the state of the OVSDB after one goroutine has read it and before it writes. Another goroutine
// reads and writes the change. The older state must not overwrite it.
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
		case <-newer: // the newer state is written, so this one is old
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

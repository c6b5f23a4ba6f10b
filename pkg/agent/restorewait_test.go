package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestUplinkWaits determines whether the Node's own traffic waits for the switch.
func TestUplinkWaits(t *testing.T) {
	taken := map[string]bridge.Found{"br-int": {}, "br-eth1": {}}
	for _, row := range []struct {
		name, datapath, uplink string
		state                  bridge.State
		want                   bool
	}{
		{"uplink in the switch", "netdev", "eth1", bridge.State{FlowRestoreWait: true, Bridges: taken}, true},
		{"the switch does not wait", "netdev", "eth1", bridge.State{Bridges: taken}, false},
		{"uplink not taken over yet", "netdev", "eth1", bridge.State{FlowRestoreWait: true}, false},
		{"no uplink", "netdev", "", bridge.State{FlowRestoreWait: true, Bridges: map[string]bridge.Found{"br-": {}}}, false},
		{"kernel's datapath", "system", "eth1", bridge.State{FlowRestoreWait: true, Bridges: taken}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := config.Default()
			c.OVSDatapathType, c.TransportInterface = row.datapath, row.uplink
			if have := uplinkWaits(c, row.state); have != row.want {
				t.Errorf("%t, want %t", have, row.want)
			}
		})
	}
}

// TestFreeUplink restarts agent and switch together while the API server is behind the switch. The agent ends
// flow-restore-wait long before the start script does.
func TestFreeUplink(t *testing.T) {
	ovs := ovstest.Start(t, ovstest.Dummy)
	ovs.Vsctl("add-br", "br-eth9", "--", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
	c := config.Default()
	c.OVSDatapathType, c.TransportInterface = "netdev", "eth9"
	a, err := newAgent(Options{
		Config: c, NodeName: ownName, Namespace: "kube-system", REST: &rest.Config{Host: "http://127.0.0.1:1"},
		OVSRunDir: ovs.RunDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	// The status has the switch's version, which only ovs-ctl would have noted in the OVSDB.
	answer, err := debugAPI{a}.serveStatus(httptest.NewRequest(http.MethodGet, "/v1/status", nil))
	if s, ok := answer.(api.Status); err != nil || !ok || !strings.Contains(ovs.Appctl("version"), s.OVS) || s.OVS == "" {
		t.Errorf("status: %v, Open vSwitch %q, want that of %s", err, s.OVS, ovs.Appctl("version"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.switchPorts.Run(ctx) })
	running.Go(func() { _ = a.flows.Run(ctx) })
	running.Go(func() { a.restore.freeUplink(ctx) })
	defer running.Wait()
	defer cancel()
	ovs.Eventually("the switch processes packets", func() error {
		if text := ovs.Vsctl("get", "Open_vSwitch", ".", "other_config"); strings.Contains(text, "flow-restore-wait") {
			return errors.New("it waits for its flows")
		}
		return nil
	})
}

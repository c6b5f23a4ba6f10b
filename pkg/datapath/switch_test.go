package datapath

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// dummyBridge is br-int of a dummy switch with the ports of the scenario, or of the kernel's datapath if ovstest.System
// is true.
func dummyBridge(t *testing.T) *openVSwitch {
	t.Helper()
	o := startOVS(t, "")
	datapath, port := "dummy", "type="+portType()
	if ovstest.System() {
		datapath = "system"
	}
	o.vsctl(t, "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type="+datapath, "fail_mode=secure",
		"--", "add-port", "br-int", "pod1", "--", "set", "interface", "pod1", port, "ofport_request=1",
		"--", "add-port", "br-int", "pod2", "--", "set", "interface", "pod2", port, "ofport_request=2",
		"--", "add-port", "br-int", "gw", "--", "set", "interface", "gw", port, "ofport_request=32769",
		"--", "add-port", "br-int", "tun", "--", "set", "interface", "tun", "type=geneve", "options:remote_ip=flow",
		"options:key=flow", "ofport_request=32768")
	return o
}

// portType is the type of a port that needs no device of its own on the bridge of dummyBridge.
func portType() string {
	if ovstest.System() {
		return "internal"
	}
	return "dummy"
}

// TestSwitchAccepts writes complete states into a real switch in one bundle each, and reads them back. The switch has
// exactly the desired state.
func TestSwitchAccepts(t *testing.T) {
	o := dummyBridge(t)
	for _, n := range []int{1, 2} {
		target := filepath.Join(o.dir, "br-int.mgmt")
		o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", target)
		o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", target)
		want := setOf(t, mustPlan(t, onNode(n)))
		o.program(t, "br-int", want)
		have := flow.NewSet()
		dump := o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "--no-names", "dump-flows", target)
		for line := range strings.Lines(dump) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			f, err := flow.ParseFlow(line)
			if err != nil {
				t.Fatalf("%v\n%s", err, line)
			}
			if err := have.Add(f); err != nil {
				t.Fatal(err)
			}
		}
		for g := range want.Groups() {
			if err := have.AddGroup(g); err != nil { // compared as text below
				t.Fatal(err)
			}
		}
		for m := range want.Meters() { // likewise
			if err := have.AddMeter(m); err != nil {
				t.Fatal(err)
			}
			if held := o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "dump-meters",
				target); !strings.Contains(strings.Join(strings.Fields(held), " "), strings.Join(strings.Fields(m.String()), " ")) {
				t.Errorf("node %d: the switch does not hold %s:\n%s", n, m, held)
			}
		}
		if change := flow.Diff(have, want); !change.Empty() {
			t.Errorf("node %d: the switch does not hold the desired state:\n%s", n, change)
		}
		groups := o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "dump-groups", target)
		for g := range want.Groups() {
			if !strings.Contains(groups, g.String()) {
				t.Errorf("node %d: the switch does not hold %s:\n%s", n, g, groups)
			}
		}
	}
}

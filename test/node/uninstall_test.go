package node

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni/install"
)

// testUninstall removes Tombolo's network from a Node whose uplink the switch has taken over, with Pods. Then the Node
// has the links, addresses, routes, rules and nftables tables that it had before, and no bridge. So it has after a
// second run, which finds nothing, and after a run that continues after another one has removed the bridge alone.
func testUninstall(t *testing.T, c *cluster) {
	r := newRig(t, c).withOVS()
	r.edit = func(conf *config.Config) {
		conf.TransportInterface = "uplink"
		conf.AntreaProxy.ProxyAll = true
	}
	uplink, err := netlink.LinkByName("uplink")
	if err != nil {
		t.Fatal(err)
	}
	_, remote, err := net.ParseCIDR("203.0.113.0/24")
	if err != nil {
		t.Fatal(err)
	}
	route := &netlink.Route{Dst: remote, Gw: net.IPv4(192, 168, 78, 1), Priority: 77, LinkIndex: uplink.Attrs().Index}
	if err := netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.RouteDel(route); err != nil {
			t.Error(err)
		}
	})
	before := hostState(t)
	r.ready()
	first, second := r.add("first"), r.add("second")
	first.serve(t, 8080)
	conn, err := second.dial("tcp4", first.ip+":8080")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if during := hostState(t); !strings.Contains(during, "br-uplink") || !strings.Contains(during, "table ip tombolo") {
		t.Fatalf("the agent has not taken over the uplink:\n%s", during)
	}

	o := agent.UninstallOptions{OVSBridge: "br-int", OVSRunDir: r.runDir, RunDir: filepath.Join(r.dir, "run"),
		StateDir: filepath.Join(r.dir, "state"), Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		CNI: install.Options{Plugin: plugin, BinDir: filepath.Join(r.dir, "bin"), ConfDir: filepath.Join(r.dir, "net.d")}}
	if err := os.Mkdir(o.CNI.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := install.Run(o.CNI); err != nil {
		t.Fatal(err)
	}
	if err := agent.Uninstall(t.Context(), o); err == nil || !strings.Contains(err.Error(), "an agent runs on this Node") {
		t.Fatalf("with an agent it ended with %v", err)
	}
	r.stop()
	for _, prepare := range []func(){func() {}, func() {}, func() { interrupted(t, o.StateDir) }} {
		prepare()
		if err := agent.Uninstall(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if after := hostState(t); after != before {
			t.Errorf("before the agent the Node had\n%s\nnow it has\n%s", before, after)
		}
	}
	if bridges := r.ovs.Vsctl("list-br"); strings.TrimSpace(bridges) != "" {
		t.Errorf("Open vSwitch still has bridges:\n%s", bridges)
	}
	for _, dir := range []string{o.StateDir, o.CNI.BinDir, o.CNI.ConfDir} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s still has %v, %v", dir, left, err)
		}
	}
}

// interrupted leaves the Node as a run does that ended when the bridge was gone: the uplink's addresses are in a file.
func interrupted(t *testing.T, stateDir string) {
	t.Helper()
	const record = `{"br-uplink":{"tombolo-uplink-addresses":"[\"192.168.78.101/24\"]","tombolo-uplink-routes":"[` +
		`{\"dst\":\"203.0.113.0/24\",\"gateway\":\"192.168.78.1\",\"link\":\"br-uplink\",\"metric\":77},` +
		`{\"dst\":\"0.0.0.0/0\",\"link\":\"br-uplink\"}]"}}`
	if err := os.WriteFile(filepath.Join(stateDir, "uplinks.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "address", "del", nodeAddress+"/24", "dev", "uplink").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// hostState returns the host's links, addresses, routes, rules and nftables tables, as text.
func hostState(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, args := range [][]string{
		{"ip", "-brief", "address"}, {"ip", "rule"}, {"ip", "-6", "rule"},
		{"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "main"}, {"nft", "list", "tables"},
	} {
		text, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, text)
		}
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			// The kernel may have this device, of the name space in which ovs-vswitchd runs, as long as the program.
			return strings.HasPrefix(line, "ovs-netdev")
		})
		slices.Sort(lines)
		fmt.Fprintf(&out, "%v\n%s\n", args, strings.Join(lines, "\n"))
	}
	return out.String()
}

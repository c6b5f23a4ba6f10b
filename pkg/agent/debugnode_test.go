package agent

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// TestSwitchAnswers reads meters, the OVSDB and connections of a real switch.
func TestSwitchAnswers(t *testing.T) {
	a := newAskedOf(t, family.IPv4)
	var meters api.MeterList
	if e := a.get(api.PathMeters, &meters); e != "" || len(meters.Meters) == 0 ||
		!strings.Contains(meters.Meters[0].Text, "meter=") ||
		meters.Meters[0].Owner == "" {
		t.Errorf("meters: %q, %+v", e, meters)
	}
	var state bridge.State
	if e := a.get(api.PathOVSDB, &state); e != "" ||
		state.Bridges[a.agent.config.OVSBridge].Ports[a.web.PortName].ExternalIDs == nil {
		t.Errorf("OVSDB: %q, %+v", e, state)
	}
	var connections api.ConnectionList
	if e := a.get(api.PathConnections+"?entries=true", &connections); e != "" || connections.Limit == 0 {
		t.Errorf("connections: %q, %+v", e, connections)
	}
	var text api.Text
	if e := a.get(api.PathGoroutines, &text); e != "" || !strings.Contains(text.Text, "serveGoroutines") {
		t.Errorf("goroutines: %q, %s", e, text.Text)
	}
}

// TestListedConnections lists connections of all zones. Lines of other programs are neither listed nor counted.
func TestListedConnections(t *testing.T) {
	const tcp = "tcp,orig=(src=10.50.0.2,dst=10.50.0.3,sport=1,dport=2)," +
		"reply=(src=10.50.0.3,dst=10.50.0.2,sport=2,dport=1)"
	const ping = "icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=9,type=8,code=0)," +
		"reply=(src=10.0.0.2,dst=10.0.0.1,id=9,type=0,code=0)"
	ours := []string{tcp + ",zone=7,mark=0x3,protoinfo=(state=ESTABLISHED)",
		tcp + ",zone=65520,mark=0x3,protoinfo=(state=X)", ping + ",zone=65520\n"}
	var list api.ConnectionList
	for _, line := range slices.Concat([]string{tcp + ",protoinfo=(state=X)", tcp + ",mark=0x3", tcp + ",zone=7",
		ping + ",zone=6552", ping + ",zone=40000,mark=0x3"}, ours, []string{tcp, ours[0]}) {
		addConnection(&list, line, 3)
	}
	if !slices.Equal(list.Entries, ours) || list.LeftOut != 1 {
		t.Errorf("listed %q, left out %d, want %q and 1", list.Entries, list.LeftOut, ours)
	}
}

// TestHostAnswers reads links, routes and our nftables tables of a network namespace.
func TestHostAnswers(t *testing.T) {
	runtime.LockOSThread() // without an unlock: the thread ends with the test
	space, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "canary", MTU: 1234}, PeerName: "peer"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	run("ip", "address", "add", "192.0.2.1/24", "dev", "canary")
	run("ip", "link", "set", "canary", "up")
	run("ip", "link", "set", "peer", "up")
	run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.2", "table", "77")
	run("nft", "add table ip tombolo; add chain ip tombolo mine; add rule ip tombolo mine ip daddr 203.0.113.9 drop; "+
		"add table ip6 tombolo-hostports; add table ip tombolos; add table ip foreign; add chain ip foreign theirs")

	answer, err := serveLinks(httptest.NewRequest(http.MethodGet, api.PathLinks, nil))
	if err != nil {
		t.Fatal(err)
	}
	links := answer.(api.LinkList).Links
	if i := slices.IndexFunc(links, func(l api.Link) bool { return l.Name == "canary" }); i < 0 || links[i].MTU != 1234 ||
		links[i].Type != "veth" || !slices.Contains(links[i].Addresses, "192.0.2.1/24") {
		t.Errorf("links: %+v", links)
	}
	if answer, err = serveRoutes(httptest.NewRequest(http.MethodGet, api.PathRoutes, nil)); err != nil {
		t.Fatal(err)
	}
	routes := answer.(api.RouteList)
	if !strings.Contains(strings.Join(routes.Routes, "\n"),
		"198.51.100.0/24 Src: <nil> Gw: 192.0.2.2 Flags: [] Table: 77") || len(routes.Rules) == 0 {
		t.Errorf("routes: %+v", routes)
	}
	var few api.RouteList
	if addRoutes(&few, make([]netlink.Route, 3), 2); len(few.Routes) != 2 || few.LeftOut != 1 {
		t.Errorf("two of three routes: %+v", few)
	}
	if answer, err = serveNFTables(httptest.NewRequest(http.MethodGet, api.PathNFTables, nil)); err != nil {
		t.Fatal(err)
	}
	text := answer.(api.Text).Text
	if !strings.Contains(text, "203.0.113.9 drop") || !strings.Contains(text, "table ip6 tombolo-hostports") ||
		strings.Contains(text, "foreign") || strings.Contains(text, "tombolos") {
		t.Errorf("tables of nftables:\n%s", text)
	}
}

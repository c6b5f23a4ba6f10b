package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/service"
)

// Rechecks looks at a whole list.
func (k *KnownConnections) Rechecks(dump string) []Recheck {
	l := k.Look(func(f func(uint64)) bool { f(1); return true })
	for line := range strings.Lines(dump) {
		l.Line(line)
	}
	list, _ := l.Rechecks()
	return list
}

// TestLookBetweenPasses reads more connections than are compared at once. Tables are read between passes alone: within
// one, numbers in use would seem to be gone.
func TestLookBetweenPasses(t *testing.T) {
	calls, most := 0, 0
	l := outsideTablesOf(State{}).Policies.Known.Look(func(f func(uint64)) bool {
		calls++
		f(uint64(1 + calls/2)) // there is a pass before the second comparison
		return calls < 3
	})
	for i := range 2*lookShare + 1 {
		if i == lookShare && calls != 1 {
			t.Errorf("%d comparisons after %d connections, want 1", calls, i)
		}
		most = max(most, len(l.lines))
		l.Line(fmt.Sprintf("tcp,orig=(src=10.11.1.2,dst=10.11.1.3,sport=%d,dport=80),"+
			"reply=(src=10.11.1.3,dst=10.11.1.2,sport=80,dport=%d),zone=65520,protoinfo=(state=ESTABLISHED)", i, i))
	}
	if l.passes != 2 {
		t.Errorf("the second comparison has the state of pass %d, want 2", l.passes)
	}
	if _, ok := l.Rechecks(); ok || calls != 3 || most >= lookShare {
		t.Errorf("the end of the engine: %t, %d comparisons, up to %d connections kept; want false, 3, fewer than %d",
			ok, calls, most, lookShare)
	}
	l.Line("tcp,")
	if _, ok := l.Rechecks(); ok || calls != 3 {
		t.Errorf("after the end: %t, %d comparisons", ok, calls)
	}
}

func TestTrackedServiceConnection(t *testing.T) {
	const (
		client = "orig=(src=10.11.1.2,"
		ports  = "sport=40000,dport=53)"
		reply  = ",reply=(src=10.11.1.3,dst=10.11.1.2,sport=5353,dport=40000)"
	)
	lines := []string{
		"udp," + client + "dst=10.97.0.12," + ports + reply + ",zone=65520,mark=19",
		"udp," + client + "dst=10.97.0.13," + ports + reply + ",zone=65520",
		"udp," + client + "dst=10.97.0.14," + ports + reply + ",zone=6552",
		"udp," + client + "dst=10.97.0.15," + ports + reply + ",mark=65520",
		"udp," + client + "dst=10.11.1.9," + ports +
			",reply=(src=10.11.1.9,dst=10.11.1.2,sport=53,dport=40000),zone=65520,mark=3",
		"tcp," + client + "dst=10.97.0.12," + ports + reply + ",zone=65520,mark=19,protoinfo=(state=ESTABLISHED)",
		"udp," + client + "dst=," + ports + ",reply=(src=10.11.1.3,dst=10.11.1.2,sport=5353,dport=99999),zone=65520",
		"udp,orig=(",
	}
	want := map[ServiceConnection]bool{
		{netip.MustParseAddrPort("10.97.0.12:53"), netip.MustParseAddrPort("10.11.1.3:5353")}: true,
		{netip.MustParseAddrPort("10.97.0.13:53"), netip.MustParseAddrPort("10.11.1.3:5353")}: true,
	}
	got := map[ServiceConnection]bool{}
	for _, line := range lines {
		if c, ok := TrackedServiceConnection(line + "\n"); ok {
			got[c] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestTrackedConnection reads connections of the main zone and of zones of networks. On the userspace datapath SCTP has
// a zone for each port.
func TestTrackedConnection(t *testing.T) {
	const ends = "orig=(src=10.50.0.2,dst=10.50.0.3,sport=40000,dport=80),reply=(src=10.50.0.3,dst=10.50.0.2,sport=80," +
		"dport=40000)"
	const icmp = "orig=(src=10.50.0.2,dst=10.50.0.3,id=1,type=8,code=0),reply=(src=10.50.0.3,dst=10.50.0.2,id=1,type=0," +
		"code=0)"
	for _, test := range []struct {
		line       string
		zone       uint16
		ok, inZone bool
	}{
		{"tcp," + ends + ",zone=65520,mark=3", 0, true, false},
		{"tcp," + ends + ",zone=65520", 0, true, false},
		{"sctp," + ends + ",zone=65520,mark=3", 0, true, false},
		{"tcp," + ends + ",zone=1,mark=3,protoinfo=(state=ESTABLISHED)", 1, true, true},
		{"udp," + ends + ",zone=32000,mark=259", 32000, true, true},
		{"udp," + ends + ",zone=32001,mark=3", 0, false, false},
		{"udp," + ends + ",mark=3", 0, false, false},
		{"sctp," + ends + ",zone=80,mark=3", 0, false, false},
		{"tcp," + ends + ",zone=80", 0, false, false}, // of another program
		{"icmp," + icmp + ",zone=80,mark=3", 80, false, true},
		{"tcp,orig=(src=10.50.0.2,zone=1,mark=3", 0, false, false},
	} {
		c, ok := TrackedConnection(test.line)
		if want := (TrackedHeaders{Headers{Src: netip.MustParseAddr("10.50.0.2"), Dst: netip.MustParseAddr("10.50.0.3"),
			Protocol: c.Protocol, SrcPort: 40000, DstPort: 80}, test.zone}); ok != test.ok || ok && c != want {
			t.Errorf("%s is %+v, %v", test.line, c, ok)
		}
		if zone, ok := TrackedZone(test.line); ok != test.inZone || ok && zone != test.zone {
			t.Errorf("%s is in zone %d, %v", test.line, zone, ok)
		}
	}
}

// TestTracked reads connections of IPv6 as the datapath lists them.
func TestTracked(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"tcp,orig=(src=fd11::3,dst=fd97::11,sport=40000,dport=80),reply=(src=fd11::2,dst=fd11::3,sport=8080,dport=40000)," +
			"zone=65520,mark=3,protoinfo=(state=ESTABLISHED)", "fd11::3 40000 fd11::2 8080 TCP true"},
		{"icmpv6,orig=(src=fd11::3,dst=fd11::2,id=7,type=128,code=0),reply=(src=fd11::2,dst=fd11::3,id=7,type=129,code=0)," +
			"zone=65520,mark=3", "fd11::3 0 fd11::2 32768 ICMP false"},
	} {
		c, ok := trackedOf(test.line)
		have := fmt.Sprint(c.From, " ", c.SourcePort, " ", c.To, " ", c.Port, " ", c.Protocol, " ", c.service)
		if have != test.want || !ok {
			t.Errorf("%s is %s, %v, want %s", test.line, have, ok, test.want)
		}
	}
}

func TestServiceConnections(t *testing.T) {
	at := netip.MustParseAddrPort
	frontends := []service.Frontend{
		{Protocol: corev1.ProtocolUDP, VIP: at("10.97.0.12:53"),
			Endpoints: []service.Endpoint{{Addr: at("10.11.1.3:5353")}, {Addr: at("10.11.1.4:5353")}}},
		{Protocol: corev1.ProtocolTCP, VIP: at("10.97.0.12:53"), Endpoints: []service.Endpoint{{Addr: at("10.11.1.3:5353")}}},
	}
	want := []ServiceConnection{{at("10.97.0.12:53"), at("10.11.1.3:5353")}, {at("10.97.0.12:53"), at("10.11.1.4:5353")}}
	c := newSources(outsideNode(1))
	c.engine.Pass()
	if got := c.tables.Services.Connections(frontends); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	nodePort := frontends[0]
	nodePort.Kind, nodePort.VIP, nodePort.Endpoints = service.NodePort, at("0.0.0.0:30053"), nodePort.Endpoints[:1]
	want = nil
	for _, to := range []string{"192.168.78.101:30053", "169.254.0.252:30053", "169.254.0.251:30053"} {
		want = append(want, ServiceConnection{at(to), at("10.11.1.3:5353")})
	}
	if got := c.tables.Services.Connections([]service.Frontend{nodePort}); !slices.Equal(got, want) {
		t.Errorf("of a node port: got %v, want %v", got, want)
	}
}

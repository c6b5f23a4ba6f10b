package datapath

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestSwitchRange6 finds the switch's own IPv6 addresses in the range that nothing else can have addresses of.
func TestSwitchRange6(t *testing.T) {
	for _, e := range Entries {
		if !e.Addr.Is4() && (!EntryRange6.Contains(e.Addr) || !family.SwitchRange6.Contains(e.Addr)) {
			t.Errorf("%s is not in %s and %s", e.Addr, EntryRange6, family.SwitchRange6)
		}
	}
	for _, n := range []Node{{Families: family.IPv6}, {Families: family.IPv6, Tunnels: Tunnels{PeerEnd: eastTwo}}} {
		priority := low
		if n.Tunnels.PeerEnd.IsValid() { // answers to other clusters' Gateways go there
			priority = closed
		}
		drop := flow.Flow{Table: Route, Priority: priority, Match: flow.All(flow.IPDst(family.SwitchRange6))}.String()
		if !slices.ContainsFunc(n.toUnowned(), func(f flow.Flow) bool { return f.String() == drop }) {
			t.Errorf("the host gets packets to %s: there is no flow %s", family.SwitchRange6, drop)
		}
	}
}

// TestRefusalsAreSent has Gateways whose sources of requests are in ranges that nothing owns: with encryption, and with
// tunnels over IPv6. The drop of such a range has a lower priority than each flow to an address of it. Of flows with
// one priority, a switch may choose either.
func TestRefusalsAreSent(t *testing.T) {
	encrypted := dualNode(2)
	encrypted.Peering.Part.End = claims.InsideOf(eastTwo)
	encrypted.Node.Tunnels.PeerEnd = encrypted.Peering.Part.End
	encrypted.Node.Tunnels.PeerSource = encrypted.Peering.Part.End
	for i, peer := range encrypted.Peering.Peers {
		w := peering.Way{Outside: peer.Gateways[0].Outside, Inside: claims.InsideOf(peer.Gateways[0].Outside)}
		encrypted.Peering.Peers[i].Gateways = []peering.Way{w}
		encrypted.Peering.Peers[i].Ends = []peering.End{{Addr: w.Inside}}
	}
	for name, s := range map[string]State{"encrypted": encrypted, "over IPv6": over6(dualNode(2))} {
		drops, sent := map[netip.Prefix]uint16{}, 0
		destination := regexp.MustCompile(`(?:nw|ipv6)_dst=([0-9a-f.:/]+)`)
		route := func(yield func(flow.Flow, netip.Prefix) bool) {
			for f := range setOf(t, mustPlan(t, s)).Flows() {
				if m := destination.FindStringSubmatch(f.String()); f.Table == Route && m != nil {
					if p, err := netip.ParsePrefix(m[1]); err == nil && !yield(f, p) {
						return
					} else if err != nil && !yield(f, netip.PrefixFrom(addrOf(m[1]), addrOf(m[1]).BitLen())) {
						return
					}
				}
			}
		}
		for f, p := range route {
			if len(f.Actions) == 0 && !p.IsSingleIP() {
				drops[p] = f.Priority
			}
		}
		for f, p := range route {
			for drop, priority := range drops {
				if !p.IsSingleIP() || !drop.Contains(p.Addr()) {
					continue
				}
				if sent++; f.Priority <= priority {
					t.Errorf("%s: the drop of %s has priority %d, and the same packets match %s", name, drop, priority, f)
				}
			}
		}
		if sent == 0 {
			t.Errorf("%s: no flow sends to the ranges %v", name, drops)
		}
	}
}

// TestProgram checks the declarations: tables without gaps, and ranges that are inside their register and do not meet.
func TestProgram(t *testing.T) {
	for i, table := range Program.Tables() {
		if table != ofp.Table(i) {
			t.Errorf("table %d is number %d in the list", table, i)
		}
		if Program[table].Name == "" || purposes[table] == "" {
			t.Errorf("table %d needs a name and a purpose", table)
		}
	}
	used := map[string]string{}
	for _, f := range bitFields {
		if f.bits.First < 0 || f.bits.Width < 1 || f.bits.First+f.bits.Width > f.bits.Field.Bits() {
			t.Errorf("%s leaves its register: %+v", f.name, f.bits)
		}
		for bit := f.bits.First; bit < f.bits.First+f.bits.Width; bit++ {
			key := fmt.Sprintf("%s[%d]", f.bits.Field, bit)
			if other, taken := used[key]; taken {
				t.Errorf("%s and %s meet in %s", f.name, other, key)
			}
			used[key] = f.name
		}
	}
	text := Markdown()
	for _, want := range []string{"| 14 | Route |", "reg0[0..3]", "ct_mark[4]", "aa:bb:cc:dd:ee:f0", "65521"} {
		if !strings.Contains(text, want) {
			t.Errorf("the documentation does not mention %q:\n%s", want, text)
		}
	}
}

// TestIDs gives numbers to names: the same for the same names, and never one twice.
func TestIDs(t *testing.T) {
	first, second := ids{}, ids{}
	for i := range 20000 {
		name := fmt.Sprintf("default/web-%d/http/TCP/10.96.%d.%d:80", i, i/250, i%250)
		a, b := first.take(name), second.take(name)
		if a != b || a == 0 || a >= maxBucket {
			t.Fatalf("%s has numbers %d and %d", name, a, b)
		}
	}
	if len(first) != 20000 {
		t.Errorf("%d numbers for 20000 names", len(first))
	}
	same := ids{}
	if a, b := same.take("x"), same.take("x"); a == b {
		t.Errorf("two names with one hash have one number, %d", a)
	}
}

// TestConflicts lets objects claim the same packets. The conflict is reported, and the rest continues.
func TestConflicts(t *testing.T) {
	s := onNode(1)
	s.Pods = append(s.Pods, Pod{Namespace: "default", Name: "thief", Interface: "thief-000000",
		MAC: ofp.MAC{0x0a, 0, 0, 0, 0, 9}, IPs: s.Pods[0].IPs, Port: 9})
	s.RemoteNodes = append(s.RemoteNodes,
		RemoteNode{Name: "node-3", PodCIDRs: s.RemoteNodes[0].PodCIDRs, Address: addrOf("192.168.78.103")})
	out, problems := Plan(s)
	var have []string
	for _, p := range problems {
		have = append(have, p.Object.String()+" "+p.Reason.String())
	}
	want := []string{"Node node-3 Conflict", "Pod default/thief Conflict"}
	if strings.Join(have, ", ") != strings.Join(want, ", ") {
		t.Errorf("problems %q, want %q", have, want)
	}
	if _, ok := out[PodOwner("thief-000000")]; ok {
		t.Error("the Pod with another's address has flows")
	}
	if len(out[PodOwner("pod1-a1b2c3")].Flows) == 0 {
		t.Error("the Pod whose address it is has no flows")
	}
	setOf(t, out)
}

// TestSetUp makes the flows of a Node without a gateway port: there are no flows, and missing parts of the state do no
// harm.
func TestSetUp(t *testing.T) {
	if out, problems := Plan(State{}); len(out)+len(problems) != 0 {
		t.Errorf("an empty state wants %v, %v", out, problems)
	}
	s := onNode(2)
	s.Node.Tunnels.Port = 0
	set := setOf(t, mustPlan(t, s))
	for f := range set.Flows() {
		if strings.Contains(f.String(), "tun_dst") {
			t.Errorf("without a tunnel port: %s", f)
		}
	}
}

// TestRandomWalk steps from state to state as a cluster does. At each step it turns the switch's actual state into the
// desired one by the difference alone.
func TestRandomWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(2026, 11))
	full := []State{onNode(1), onNode(2), outsideNode(1), outsideNode(2)}
	held := flow.NewSet()
	for step := range 300 {
		s := full[r.IntN(4)]
		s.Pods = some(r, s.Pods)
		s.RemoteNodes = some(r, s.RemoteNodes)
		s.Frontends = some(r, s.Frontends)
		for i := range s.Frontends {
			s.Frontends[i].Endpoints = some(r, s.Frontends[i].Endpoints)
		}
		s.Peering.Peers = some(r, s.Peering.Peers)
		if r.IntN(4) == 0 {
			s.Peering = peering.Peering{}
		}
		want := setOf(t, mustPlan(t, s))
		for f := range want.Flows() {
			for _, a := range f.Actions {
				if g, ok := a.(ofp.Group); ok {
					if _, there := want.Group(g.ID); !there {
						t.Fatalf("step %d: %s names a group that is not there", step, f)
					}
				}
			}
		}
		apply(t, held, flow.Diff(held, want))
		if change := flow.Diff(held, want); !change.Empty() {
			t.Fatalf("step %d: the switch does not hold the desired state:\n%s", step, change)
		}
	}
}

func some[T any](r *rand.Rand, in []T) []T {
	var out []T
	for _, i := range r.Perm(len(in)) {
		if r.IntN(3) > 0 {
			out = append(out, in[i])
		}
	}
	return out
}

// apply applies a change to a set, as a switch would.
func apply(t *testing.T, s *flow.Set, c flow.Change) {
	t.Helper()
	for _, f := range c.Del {
		s.Remove(f.Key())
	}
	for _, f := range c.Mod {
		s.Remove(f.Key())
	}
	for _, g := range c.DelGroups {
		s.RemoveGroup(g.ID)
	}
	for _, g := range c.ModGroups {
		s.RemoveGroup(g.ID)
	}
	for _, m := range c.AddMeters {
		if err := s.AddMeter(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.DelMeters {
		s.RemoveMeter(m.ID)
	}
	for _, g := range append(c.AddGroups, c.ModGroups...) {
		if err := s.AddGroup(g); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range append(c.Add, c.Mod...) {
		if err := s.Add(f); err != nil {
			t.Fatal(err)
		}
	}
}

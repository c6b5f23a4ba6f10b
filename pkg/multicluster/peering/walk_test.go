package peering

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 1, "seed of the random walk")
	walkSteps = flag.Int("walk.steps", 1000, "steps of the random walk")
)

// TestWalk changes Gateways, other clusters and the configuration at random. After each step Plan returns the same as
// the oracle, in whatever order its input is. Neither its input nor an earlier result changes.
func TestWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(*walkSeed, 0))
	w := walkWorld{view: View{NodeName: "node-1"}}
	w.view.Own = Own{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd97::/112")},
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.11.0.0/16"), netip.MustParsePrefix("fd11::/48")},
		Nodes:        []netip.Addr{netip.MustParseAddr("192.168.78.101")},
		APIServers:   []netip.Addr{netip.MustParseAddr("192.168.78.9")},
	}
	w.view.Pods = []netip.Prefix{netip.MustParsePrefix("10.11.1.0/24")}
	seen := map[string]int{}
	var before Peering
	beforeText := walkText(before, nil)
	for step := range *walkSteps {
		what := w.step(r)
		input := fmt.Sprintf("%+v", w.objects())
		have, problems := Plan(w.view)
		fail := func(name, diff string) {
			t.Helper()
			t.Fatalf("seed %d, step %d, %s: %s:\n%s", *walkSeed, step, what, name, diff)
		}
		haveText := walkText(have, problems)
		if diff := gocmp.Diff(w.oracle(), haveText); diff != "" {
			fail("(-oracle +have)", diff)
		}
		reversed := w.view
		reversed.Gateways = slices.Clone(w.view.Gateways)
		reversed.ClusterInfoImports = slices.Clone(w.view.ClusterInfoImports)
		slices.Reverse(reversed.Gateways)
		slices.Reverse(reversed.ClusterInfoImports)
		again, problems := Plan(reversed)
		if diff := gocmp.Diff(haveText, walkText(again, problems)); diff != "" {
			fail("in another order", diff)
		}
		moved := walkText(again, nil)
		for i, g := range again.Part.Gateways { // as the agent does where tunnels end elsewhere
			to := netip.AddrFrom4([4]byte{240, 0, 0, byte(i)})
			again.SetInternalIP(g.Name, to)
			for j, line := range moved {
				if strings.HasPrefix(line, "peer ") {
					moved[j] = strings.ReplaceAll(line, g.InternalIP.String(), to.String())
				}
			}
		}
		if diff := gocmp.Diff(moved, walkText(again, nil)); diff != "" {
			fail("with other ends of Gateways (-oracle +have)", diff)
		}
		if diff := gocmp.Diff(beforeText, walkText(before, nil)); diff != "" {
			fail("what was returned before has changed", diff)
		}
		if diff := gocmp.Diff(input, fmt.Sprintf("%+v", w.objects())); diff != "" {
			fail("the input has changed", diff)
		}
		before, beforeText = have, walkText(have, nil)
		w.count(have, problems, seen)
	}
	t.Logf("%v", seen)
	for _, kind := range walkKinds {
		if seen[kind] < *walkSteps/100 {
			t.Errorf("seed %d: %d of %d steps have %s", *walkSeed, seen[kind], *walkSteps, kind)
		}
	}
}

// walkKinds are what a walk has to have met.
var walkKinds = []string{
	"a Gateway", "a regular Node", "no Gateway", "a peer", "several peers", "a relayed peer", "several ways",
	"a way that goes", "Pods", "kept clients", "IPv6", "a peer without ranges", "a way over IPv6",
	"an encrypted way", "several encrypted ways", "one address inside", "a closed cluster", "a problem",
}

func (w *walkWorld) count(p Peering, problems []problem.Problem, seen map[string]int) {
	note := func(kind string, is bool) {
		if is {
			seen[kind]++
		}
	}
	has := func(is func(Peer) bool) bool { return slices.ContainsFunc(p.Peers, is) }
	note("a Gateway", p.Part.Role == Gateway)
	note("a regular Node", p.Part.Role == Regular)
	note("no Gateway", p.Part.Role == None)
	note("a peer", len(p.Peers) > 0)
	note("several peers", len(p.Peers) > 1)
	note("a relayed peer", has(func(o Peer) bool { return o.Relayed }))
	note("several ways", has(func(o Peer) bool { return len(o.Ends) > 1 }))
	note("a way that goes", has(func(o Peer) bool { _, leaving := endAddresses(o.Ends); return len(leaving) > 0 }))
	note("Pods", has(func(o Peer) bool { return len(o.Pods) > 0 }))
	note("kept clients", has(func(o Peer) bool { return len(o.Kept) > 0 }))
	is6 := func(r netip.Prefix) bool { return r.Addr().Is6() }
	note("IPv6", has(func(o Peer) bool { return slices.ContainsFunc(o.CIDRs, is6) }))
	note("a peer without ranges", has(func(o Peer) bool { return len(o.CIDRs) == 0 }))
	note("a way over IPv6", has(func(o Peer) bool { return o.Gateways[0].Outside.Is6() }))
	note("an encrypted way", has(func(o Peer) bool { return o.Encrypted() }))
	note("several encrypted ways", has(func(o Peer) bool { return o.Encrypted() && len(o.Gateways) > 1 }))
	note("one address inside", has(func(o Peer) bool { return o.Base.IsValid() }))
	note("a closed cluster", len(p.Part.Closed) > 0)
	note("a problem", len(problems) > 0)
}

// walkWorld has the view that the walk changes. Each change makes new objects.
type walkWorld struct {
	view View
	born int
	six  bool // new Gateways, here and there, have addresses of IPv6
}

func (w *walkWorld) objects() (out []any) {
	for _, g := range w.view.Gateways {
		out = append(out, *g)
	}
	for _, ci := range w.view.ClusterInfoImports {
		out = append(out, *ci)
	}
	return out
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (w *walkWorld) step(r *rand.Rand) string {
	v := &w.view
	switch n := r.IntN(21); {
	case n < 7:
		return "Gateway " + w.changeGateway(r)
	case n < 17:
		return "cluster " + w.changeCluster(r)
	case n == 17:
		v.Encrypt = !v.Encrypt
		return fmt.Sprintf("encryption %t", v.Encrypt)
	case n == 18:
		v.PodToPod, v.PreserveClientIP = r.IntN(4) > 0, oneOf(r, PreserveAuto, PreserveAuto, PreserveAlways, PreserveNever)
		return fmt.Sprintf("Pods are reached: %t, clients kept: %s", v.PodToPod, v.PreserveClientIP)
	}
	if r.IntN(2) == 0 {
		v.Families, v.Pods = oneOf(r, family.IPv4, family.Dual, family.Dual, family.IPv6), nil
		for _, pods := range []string{"10.11.1.0/24", "fd11:0:0:1::/64"} {
			if pods := netip.MustParsePrefix(pods); v.Families.Serve(pods.Addr()) {
				v.Pods = append(v.Pods, pods)
			}
		}
		w.six = r.IntN(3) == 0
		return fmt.Sprintf("the Node serves %s, new Gateways have addresses of IPv6: %t", v.Families, w.six)
	}
	v.AllowUnencryptedPeers, v.NodeName = r.IntN(3) == 0, fmt.Sprint("node-", 1+r.IntN(4))
	return fmt.Sprintf("keys may be ignored: %t, the Node is %s", v.AllowUnencryptedPeers, v.NodeName)
}

// age is the age of a new object. Some objects are of one second.
func (w *walkWorld) age(r *rand.Rand) time.Duration {
	w.born++
	return time.Duration(oneOf(r, -w.born, w.born, 0)) * time.Second
}

func (w *walkWorld) changeGateway(r *rand.Rand) string {
	name := fmt.Sprint("node-", 1+r.IntN(3))
	w.view.Gateways = slices.DeleteFunc(slices.Clone(w.view.Gateways),
		func(g *mcv1alpha1.Gateway) bool { return g.Name == name })
	if r.IntN(6) == 0 {
		return name + " goes"
	}
	n := name[len("node-"):]
	g := gateway(name, "172.30.1."+n, "192.168.78.10"+n, w.age(r))
	if w.six {
		g.GatewayIP, g.InternalIP = "fd30::"+n, "fd78::10"+n
	}
	if r.IntN(8) == 0 {
		g.GatewayIP = oneOf(r, "", "x", "fd00::1", "172.30.1.2", "fe80::1")
	}
	if r.IntN(12) == 0 {
		g.InternalIP = oneOf(r, "", "224.0.0.1", "192.168.78.103")
	}
	g.ServiceCIDR = oneOf(r, "10.97.0.0/16", "10.97.0.0/16", "10.97.0.0/16", "fd97::/112", "")
	g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{1, byte(n[0])}.String()}
	const pods = "10.11.0.0/16,fd11::/48"
	g.Annotations = map[string]string{multicluster.AnnotationKeptPods: oneOf(r, pods, pods, "10.11.0.0/16",
		"10.11.0.0/16", "10.11.0.0/16", "10.11.0.0/16", "10.11.2.0/24", "")}
	if ip, err := netip.ParseAddr(g.GatewayIP); err == nil && r.IntN(2) > 0 {
		g.Annotations[multicluster.AnnotationInsideIP] = claims.InsideOf(ip).String()
	}
	if phase := oneOf(r, "", "", "", multicluster.PhaseJoining, multicluster.PhaseLeaving); phase != "" {
		g.Annotations[multicluster.AnnotationPhase] = phase
	}
	w.view.Gateways = append(w.view.Gateways, g)
	return fmt.Sprintf("%s is %s %s %v", name, g.GatewayIP, g.InternalIP, g.Annotations)
}

func (w *walkWorld) changeCluster(r *rand.Rand) string {
	n := 1 + r.IntN(4)
	id := fmt.Sprint("c", n)
	name := id + oneOf(r, "", "", "", "", "", "-again")
	w.view.ClusterInfoImports = slices.DeleteFunc(slices.Clone(w.view.ClusterInfoImports),
		func(ci *mcv1alpha1.ClusterInfoImport) bool { return ci.Name == name+"-clusterinfo" })
	if r.IntN(6) == 0 {
		return name + " goes"
	}
	ci := aged(imported(name, fmt.Sprintf("10.%d.0.0/16", 100+n)), w.age(r))
	ci.Spec.ClusterID = id
	services6 := fmt.Sprintf("fd00:%d::/112", 100+n)
	switch r.IntN(8) {
	case 0:
		ci.Spec.ServiceCIDR = oneOf(r, "", "x", "10.97.128.0/17", "10.102.0.0/15", "192.168.78.0/24", "fd97::8000/113")
	case 1:
		ci.Spec.ServiceCIDR = services6
	}
	if r.IntN(2) == 0 {
		ci.Spec.ServiceCIDRs = []string{ci.Spec.ServiceCIDR, oneOf(r, services6, services6, services6, "fd97::/120", "y")}
	}
	if r.IntN(30) == 0 {
		ci.Spec.ClusterID = ""
	}
	for i := range 1 + r.IntN(3) {
		ci.Spec.GatewayInfos = append(ci.Spec.GatewayInfos, w.end(r, n, i))
	}
	if r.IntN(3) == 0 {
		ci.Spec.LeavingGateways = append(ci.Spec.LeavingGateways, w.end(r, n, 3))
	}
	if r.IntN(20) == 0 {
		ci.Spec.GatewayInfos = nil
	}
	ci.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{2, byte(n)}.String()}
	switch r.IntN(8) {
	case 0:
		ci.Spec.WireGuard.PublicKey = oneOf(r, "", "k", publickey.Key{1, '1'}.String(), publickey.Key{2, 1}.String())
	case 1:
		ci.Spec.WireGuard = nil
	case 2, 3: // no Gateway has a key
		ci.Spec.WireGuard = nil
		for _, list := range [][]mcv1alpha1.GatewayInfo{ci.Spec.GatewayInfos, ci.Spec.LeavingGateways} {
			for i := range list {
				list[i].WireGuard = nil
			}
		}
	}
	for range r.IntN(4) {
		one, other := fmt.Sprintf("10.%d.0.0/17", 20+n), fmt.Sprintf("10.%d.128.0/17", 20+n)
		ci.Spec.PodCIDRs = append(ci.Spec.PodCIDRs, oneOf(r, one, other, "10.11.0.0/20", "10.21.0.0/16", "x",
			fmt.Sprintf("fd00:0:%d::/48", n), fmt.Sprintf("fd00:0:%d::/48", n), "fd00:0:1::/64"))
	}
	for _, feature := range []string{
		mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays, mcv1alpha1.FeaturePreserveClientIP,
	} {
		if r.IntN(4) > 0 {
			ci.Spec.Features = append(ci.Spec.Features, feature)
		}
	}
	if r.IntN(12) == 0 {
		ci.Annotations = map[string]string{multicluster.AnnotationWithdrawn: "2026-01-31T12:00:00Z"}
	}
	w.view.ClusterInfoImports = append(w.view.ClusterInfoImports, ci)
	return fmt.Sprintf("%s is %+v", name, ci.Spec)
}

// end is one gateway of a cluster.
func (w *walkWorld) end(r *rand.Rand, cluster, i int) mcv1alpha1.GatewayInfo {
	g := mcv1alpha1.GatewayInfo{GatewayIP: fmt.Sprintf("172.31.%d.%d", cluster, 1+i)}
	if w.six {
		g.GatewayIP = fmt.Sprintf("fd31::%d:%d", cluster, 1+i)
	}
	if r.IntN(10) == 0 {
		g.GatewayIP = oneOf(r, "", "fd00::1", "172.30.1.1", "192.168.78.9", "172.31.1.1", "10.102.0.1", "188.31.1.1")
	}
	if r.IntN(8) == 0 {
		return g
	}
	g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{3, byte(cluster), byte(i)}.String()}
	if r.IntN(12) == 0 {
		g.WireGuard.PublicKey = oneOf(r, "k", publickey.Key{1, '2'}.String(), publickey.Key{3, 1, 0}.String())
	}
	if ip, err := netip.ParseAddr(g.GatewayIP); err == nil && r.IntN(6) > 0 {
		g.WireGuard.InsideIP = claims.InsideOf(ip).String()
	}
	if r.IntN(15) == 0 {
		g.WireGuard.InsideIP = oneOf(r, "x", "10.0.0.1", "240.0.0.1")
	}
	return g
}

const peerLine = "peer %s: ranges %v, Pods %v kept %v, gateways %v without %v, ways %v without %v, " +
	"ends %v, active %t, relayed %t"

// wayAddresses returns where tunnels on ways end, all of them and the leaving ones.
func wayAddresses(ways []Way) (all, leaving []netip.Addr) {
	for _, w := range ways {
		if all = append(all, w.End()); w.Leaving {
			leaving = append(leaving, w.End())
		}
	}
	return all, leaving
}

// endAddresses returns the addresses of ends, all of them and the leaving ones.
func endAddresses(list []End) (all, leaving []netip.Addr) {
	for _, e := range list {
		if all = append(all, e.Addr); e.Leaving {
			leaving = append(leaving, e.Addr)
		}
	}
	return all, leaving
}

// walkText writes a peering down, and the reasons of problems.
func walkText(p Peering, problems []problem.Problem) (out []string) {
	out = append(out, fmt.Sprint("role ", p.Part.Role))
	for _, g := range p.Part.Gateways {
		out = append(out, fmt.Sprintf("Gateway %s %q", g.Name, g.Phase))
	}
	if p.Part.Role != None {
		out = append(out, fmt.Sprintf("the end of peers' ways is %s of %s", p.Part.End, p.Part.Gateway.Name))
	}
	for _, o := range p.Peers {
		gateways, leaving := wayAddresses(o.Gateways)
		own, _ := wayAddresses(p.Part.Ways(o))
		to, going := endAddresses(o.Ends)
		line := fmt.Sprintf(peerLine,
			o.ClusterID, o.CIDRs, o.Pods, o.Kept, gateways, leaving, to, going, own, o.Active, o.Relayed)
		for _, w := range o.Gateways {
			if w.Inside.IsValid() {
				line += fmt.Sprintf(", %s is %s with %s", w.Inside, w.Outside, w.Key)
			}
		}
		if o.Base.IsValid() {
			line += fmt.Sprint(", from ", o.Base)
		}
		out = append(out, line)
	}
	for _, c := range p.Part.Closed {
		out = append(out, fmt.Sprintf("closed %s: %v", c.ClusterID, c.CIDRs))
	}
	var list []string
	for _, p := range problems {
		list = append(list, fmt.Sprintf("problem %s %s %s", p.Object, p.Field, p.Reason))
	}
	slices.Sort(list)
	return append(out, list...)
}

// The oracle makes the same decisions in another way. It has sets of used addresses, ranges and keys. Each object adds
// its own, or is refused.

// taken has addresses, ranges and keys that have an owner.
type taken struct {
	addresses, inside, keys []string
	ranges                  []netip.Prefix
}

func overlapping(list []netip.Prefix, r netip.Prefix) bool {
	return slices.ContainsFunc(list, r.Overlaps)
}

// holds reports whether one of some ranges has an address.
func holds(list []netip.Prefix, ip netip.Addr) bool {
	return overlapping(list, netip.PrefixFrom(ip, ip.BitLen()))
}

// meets reports whether a range has an address, or a part of a range, that is taken.
func (t taken) meets(r netip.Prefix) bool {
	has := func(a string) bool { return r.Contains(netip.MustParseAddr(a)) }
	return overlapping(t.ranges, r) || slices.ContainsFunc(t.addresses, has)
}

// walkAddress and walkRange know which of the walk's texts are usable.
func walkAddress(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	return ip, err == nil && !ip.IsMulticast() && !ip.IsLinkLocalUnicast()
}

func walkRange(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	return p, err == nil
}

// oracleGateway is a Gateway of this cluster that may be used.
type oracleGateway struct {
	*mcv1alpha1.Gateway
	phase string
}

func (g oracleGateway) end() string { return g.Annotations[multicluster.AnnotationInsideIP] }

// oraclePeer is another cluster that may be used.
type oraclePeer struct {
	id                        string
	ranges, pods              []netip.Prefix
	kept                      []netip.Prefix
	active, base              bool
	ends, leaving             []string // as tunnels see them
	outside, keys             []string // of encrypted ways, one for each end
	takenOutside, takenInside []string
}

// oracle decides with the view of a step.
type oracle struct {
	View
	gateways []oracleGateway // usable, in order
	taken    taken
	kept     map[bool]bool // key: of IPv4
	base     string
	inside   bool // Gateways have addresses of their own inside
	out      []string
	problems []string
}

func (o *oracle) bad(kind, name, field, reason string) {
	o.problems = append(o.problems, fmt.Sprintf("problem %s kube-system/%s %s %s", kind, name, field, reason))
}

func (w *walkWorld) oracle() []string {
	o := &oracle{View: w.view}
	o.taken.ranges = slices.Concat(o.Own.ServiceCIDRs, o.Own.PodCIDRs)
	for _, a := range slices.Concat(o.Own.Nodes, o.Own.APIServers) {
		o.taken.addresses = append(o.taken.addresses, a.String())
	}
	for _, g := range o.Gateways {
		o.taken.keys = append(o.taken.keys, g.WireGuard.PublicKey)
	}
	o.ownGateways()
	imports := slices.Clone(o.ClusterInfoImports)
	slices.SortFunc(imports, func(a, b *mcv1alpha1.ClusterInfoImport) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Spec.ClusterID, b.Spec.ClusterID), cmp.Compare(a.Name, b.Name))
	})
	closed := o.closed(imports)
	if self, ok := o.part(); !ok {
		o.out = append([]string{"role none"}, closed...)
	} else {
		var peers []oraclePeer
		for _, ci := range imports {
			if p, ok := o.peer(ci, peers); ok {
				peers = append(peers, p)
			}
		}
		slices.SortFunc(peers, func(a, b oraclePeer) int { return cmp.Compare(a.id, b.id) })
		for _, p := range peers {
			o.out = append(o.out, o.line(p, self))
		}
		o.out = append(o.out, closed...)
	}
	slices.Sort(o.problems)
	return append(o.out, o.problems...)
}

// ownGateways leaves out the unusable ones, and puts others that come or go behind the rest.
func (o *oracle) ownGateways() {
	list := slices.SortedFunc(slices.Values(o.Gateways), func(a, b *mcv1alpha1.Gateway) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	used, version := map[string]bool{}, 0
	for _, phased := range []bool{false, true} { // the first one without a phase, else the first one
		for _, g := range list {
			end, ok1 := walkAddress(g.GatewayIP)
			_, ok2 := walkAddress(g.InternalIP)
			if ok1 && ok2 && version == 0 && phased == (g.Annotations[multicluster.AnnotationPhase] != "") {
				version = end.BitLen()
			}
		}
	}
	var staying, moving []oracleGateway
	for _, g := range list {
		end, ok1 := walkAddress(g.GatewayIP)
		_, ok2 := walkAddress(g.InternalIP)
		switch phase := g.Annotations[multicluster.AnnotationPhase]; {
		case !ok1:
			o.bad("Gateway", g.Name, "gatewayIP", "InvalidGatewayIP")
			continue
		case !ok2:
			o.bad("Gateway", g.Name, "internalIP", "InvalidInternalIP")
			continue
		case version != end.BitLen():
			o.bad("Gateway", g.Name, "gatewayIP", "GatewayFamiliesDiffer")
			continue
		case used["to "+g.GatewayIP] || used["in "+g.InternalIP]:
			o.bad("Gateway", g.Name, "gatewayIP", "DuplicateGatewayIP")
			continue
		case phase == "":
			staying = append(staying, oracleGateway{g, ""})
		default:
			moving = append(moving, oracleGateway{g, phase})
		}
		used["to "+g.GatewayIP], used["in "+g.InternalIP] = true, true
		o.taken.addresses = append(o.taken.addresses, g.GatewayIP)
		if end := g.Annotations[multicluster.AnnotationInsideIP]; end != "" {
			o.taken.inside = append(o.taken.inside, end)
		}
	}
	if o.gateways = append(staying, moving...); len(staying) == 0 {
		for i := range o.gateways {
			o.gateways[i].phase = ""
		}
	}
	on := o.PreserveClientIP == PreserveAuto || o.PreserveClientIP == PreserveAlways
	o.kept = map[bool]bool{true: on && o.Families.Has4(), false: on && o.Families.Has6()}
	for _, g := range o.gateways {
		kept := g.Annotations[multicluster.AnnotationKeptPods]
		o.kept[true] = o.kept[true] && strings.HasPrefix(kept, "10.11.0.0/16")
		o.kept[false] = o.kept[false] && strings.HasSuffix(kept, "fd11::/48")
	}
}

// part decides what this Node does, and with which Gateway; false where it does nothing.
func (o *oracle) part() (self oracleGateway, ok bool) {
	if len(o.gateways) == 0 {
		return self, false
	}
	first := o.gateways[0]
	o.inside = slices.ContainsFunc(o.gateways, func(g oracleGateway) bool { return g.phase == "" && g.end() != "" })
	if o.Encrypt {
		if first.ServiceCIDR == "" {
			o.bad("Gateway", first.Name, "serviceCIDR", "InvalidServiceCIDR")
			return self, false
		}
		with := slices.DeleteFunc(slices.Clone(o.gateways),
			func(g oracleGateway) bool { return g.end() == "" && (o.inside || g.phase != "") })
		if len(with) > 0 {
			o.gateways = with
		}
	}
	self = o.gateways[0]
	role := Regular
	for _, g := range o.gateways {
		if g.Name == o.NodeName {
			self, role = g, Gateway
		}
	}
	o.out = append(o.out, fmt.Sprint("role ", role))
	for _, g := range o.gateways {
		o.out = append(o.out, fmt.Sprintf("Gateway %s %q", g.Name, g.phase))
	}
	end := self.GatewayIP
	if o.Encrypt {
		o.base = oracleBase(first.ServiceCIDR)
		end = cmp.Or(self.end(), o.base)
	}
	o.out = append(o.out, fmt.Sprintf("the end of peers' ways is %s of %s", end, self.Name))
	return self, true
}

// oracleBase is the address inside of a cluster that has one there.
func oracleBase(services string) string {
	first, _, _ := strings.Cut(services, "/")
	if ip := netip.MustParseAddr(first); ip.Is6() {
		return claims.InsideOf(ip).String()
	}
	return first
}

// serves reports whether the Node has a use for a range.
func (o *oracle) serves(p netip.Prefix) bool {
	return p.Addr().Is4() && o.Families != family.IPv6 || p.Addr().Is6() && o.Families != family.IPv4
}

// closed finds the clusters that plain text must not go to, while only this cluster's own ranges are used.
func (o *oracle) closed(imports []*mcv1alpha1.ClusterInfoImport) (out []string) {
	type row struct {
		at   netip.Addr
		text string
	}
	var rows []row
	for _, ci := range imports {
		services, ok := walkRange(ci.Spec.ServiceCIDR)
		if !ok || o.serves(services) && o.taken.meets(services) ||
			!o.Encrypt && (!announcesKey(ci) || o.AllowUnencryptedPeers) {
			continue
		}
		if ci.Annotations != nil {
			o.bad("ClusterInfoImport", ci.Name, "", "ClusterWithdrawn")
		}
		var ranges []netip.Prefix
		texts := append([]string{ci.Spec.ServiceCIDR}, ci.Spec.ServiceCIDRs[min(1, len(ci.Spec.ServiceCIDRs)):]...)
		if o.PodToPod {
			texts = append(texts, ci.Spec.PodCIDRs...)
		}
		for i, text := range texts {
			if p, ok := walkRange(text); ok && o.serves(p) && !o.taken.meets(p) && (i != 1 || text != texts[0]) {
				ranges = append(ranges, p.Masked())
			}
		}
		rows = append(rows, row{netip.MustParseAddr(oracleBase(services.Masked().String())),
			fmt.Sprintf("closed %s: %v", ci.Spec.ClusterID, ranges)})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	for _, r := range rows {
		out = append(out, r.text)
	}
	return out
}

// announcesKey reports whether a cluster or one of its gateways has a key.
func announcesKey(ci *mcv1alpha1.ClusterInfoImport) bool {
	list := []*mcv1alpha1.WireGuardInfo{ci.Spec.WireGuard}
	for _, g := range ci.Spec.GatewayInfos {
		list = append(list, g.WireGuard)
	}
	if len(ci.Spec.GatewayInfos) > 0 {
		for _, g := range ci.Spec.LeavingGateways {
			list = append(list, g.WireGuard)
		}
	}
	return slices.ContainsFunc(list, func(w *mcv1alpha1.WireGuardInfo) bool { return w != nil && w.PublicKey != "" })
}

// peer decides about one cluster, and takes what is its own.
func (o *oracle) peer(ci *mcv1alpha1.ClusterInfoImport, peers []oraclePeer) (p oraclePeer, ok bool) {
	bad := func(field, reason string) { o.bad("ClusterInfoImport", ci.Name, field, reason) }
	spec := ci.Spec
	services, ok := walkRange(spec.ServiceCIDR)
	key := spec.WireGuard != nil && spec.WireGuard.PublicKey != ""
	switch {
	case spec.ClusterID == "":
		bad("spec.clusterID", "NoClusterID")
	case slices.ContainsFunc(peers, func(p oraclePeer) bool { return p.id == spec.ClusterID }):
		bad("spec.clusterID", "DuplicateCluster")
	case ci.Annotations != nil:
	case !ok:
		bad("spec.serviceCIDR", "InvalidServiceCIDR")
	case o.serves(services) && o.taken.meets(services):
		bad("spec.serviceCIDR", "OverlappingServiceCIDR")
	case o.Encrypt && !key:
		bad("spec.wireGuard.publicKey", "PeerWithoutEncryption")
	case !o.Encrypt && announcesKey(ci) && !o.AllowUnencryptedPeers:
		bad("spec.wireGuard", "PeerExpectsEncryption")
	case len(spec.GatewayInfos) == 0:
		bad("spec.gatewayInfos", "NoGateway")
	default:
		p = oraclePeer{id: spec.ClusterID}
		if o.serves(services) {
			p.ranges = []netip.Prefix{services.Masked()}
		}
		p.active = slices.Contains(spec.Features, mcv1alpha1.FeatureActiveGateways)
		if !o.ends(ci, &p, bad) {
			return p, false
		}
		o.services(ci, &p, bad)
		o.pods(ci, &p, bad)
		o.taken.addresses = append(o.taken.addresses, p.takenOutside...)
		o.taken.inside = append(o.taken.inside, p.takenInside...)
		o.taken.keys = append(o.taken.keys, p.keys...)
		o.taken.ranges = append(o.taken.ranges, p.ranges...)
		return p, true
	}
	return p, false
}

// ends finds where tunnels to a cluster end. It returns false where no end stays.
func (o *oracle) ends(ci *mcv1alpha1.ClusterInfoImport, p *oraclePeer, bad func(field, reason string)) bool {
	type announcement struct {
		mcv1alpha1.GatewayInfo
		field   string
		leaving bool
	}
	var all, usable []announcement
	for i, g := range ci.Spec.GatewayInfos {
		all = append(all, announcement{g, fmt.Sprintf("spec.gatewayInfos[%d]", i), false})
	}
	for i, g := range ci.Spec.LeavingGateways {
		all = append(all, announcement{g, fmt.Sprintf("spec.leavingGateways[%d]", i), true})
	}
	leaving := map[string]bool{} // by address
	differs := ""
	for _, g := range all {
		ip, ok := walkAddress(g.GatewayIP)
		_, again := leaving[g.GatewayIP]
		switch {
		case !ok:
			bad(g.field+".gatewayIP", "InvalidGatewayIP")
		case strings.Contains(g.GatewayIP, ":") != strings.Contains(o.gateways[0].GatewayIP, ":"):
			differs = g.field
		case slices.Contains(o.taken.addresses, g.GatewayIP) || holds(o.taken.ranges, ip):
			bad(g.field+".gatewayIP", "DuplicateGatewayIP")
		case !again:
			leaving[g.GatewayIP] = g.leaving
			p.takenOutside = append(p.takenOutside, g.GatewayIP)
			fallthrough
		default:
			usable = append(usable, g)
		}
	}
	stays := func(list []string) bool {
		return slices.ContainsFunc(list, func(a string) bool { return !leaving[a] })
	}
	end := func(outside, inside string) {
		if p.ends = append(p.ends, inside); leaving[outside] {
			p.leaving = append(p.leaving, inside)
		}
	}
	if differs != "" && !stays(p.takenOutside) {
		bad(differs+".gatewayIP", "GatewayFamiliesDiffer")
	}
	if !stays(p.takenOutside) {
		return false
	}
	if !o.Encrypt {
		for _, a := range p.takenOutside {
			end(a, a)
		}
		return true
	}
	takeKey := func(key, field, outside, inside string) bool {
		switch _, err := publickey.Parse(key); {
		case err != nil:
			bad(field, "InvalidWireGuardKey")
		case slices.Contains(o.taken.keys, key) || slices.Contains(p.keys, key):
			bad(field, "DuplicateWireGuardKey")
		default:
			p.keys, p.outside, p.takenInside = append(p.keys, key), append(p.outside, outside), append(p.takenInside, inside)
			end(outside, inside)
			return true
		}
		return false
	}
	if w := ci.Spec.GatewayInfos[0].WireGuard; !o.inside || w == nil || w.InsideIP == "" {
		services, _ := walkRange(ci.Spec.ServiceCIDR)
		if services.Addr().Is6() {
			bad("spec.serviceCIDR", "NoInsideIP")
			return false
		}
		p.active, p.base = false, true
		outside, inside := p.takenOutside[0], oracleBase(services.Masked().String())
		return takeKey(ci.Spec.WireGuard.PublicKey, "spec.wireGuard.publicKey", outside, inside)
	}
	p.takenOutside = nil
	for _, g := range usable {
		if slices.Contains(p.takenOutside, g.GatewayIP) || g.WireGuard == nil || g.WireGuard.InsideIP == "" {
			continue
		}
		switch at := g.WireGuard.InsideIP; {
		case at != claims.InsideOf(netip.MustParseAddr(g.GatewayIP)).String():
			bad(g.field+".wireGuard.insideIP", "InvalidInsideIP")
		case slices.Contains(o.taken.inside, at) || slices.Contains(p.takenInside, at):
			bad(g.field+".wireGuard.insideIP", "DuplicateInsideIP")
		case takeKey(g.WireGuard.PublicKey, g.field+".wireGuard.publicKey", g.GatewayIP, at):
			p.takenOutside = append(p.takenOutside, g.GatewayIP)
		}
	}
	return stays(p.takenOutside)
}

// services adds the further ranges of a cluster's ClusterIPs.
func (o *oracle) services(ci *mcv1alpha1.ClusterInfoImport, p *oraclePeer, bad func(field, reason string)) {
	for i, text := range ci.Spec.ServiceCIDRs[min(1, len(ci.Spec.ServiceCIDRs)):] {
		field := fmt.Sprintf("spec.serviceCIDRs[%d]", i+1)
		switch cidr, ok := walkRange(text); {
		case !ok:
			bad(field, "InvalidServiceCIDR")
		case !o.serves(cidr) || slices.Contains(p.ranges, cidr):
		case o.taken.meets(cidr):
			bad(field, "OverlappingServiceCIDR")
		default:
			p.ranges = append(p.ranges, cidr)
		}
	}
}

// pods adds the ranges of a cluster's Pods.
func (o *oracle) pods(ci *mcv1alpha1.ClusterInfoImport, p *oraclePeer, bad func(field, reason string)) {
	if !o.PodToPod || len(ci.Spec.PodCIDRs) == 0 {
		return
	}
	can := p.active && slices.Contains(ci.Spec.Features, mcv1alpha1.FeaturePreserveClientIP)
	for i, text := range ci.Spec.PodCIDRs {
		field := fmt.Sprintf("spec.podCIDRs[%d]", i)
		switch pods, ok := walkRange(text); {
		case !ok:
			bad(field, "InvalidPodCIDR")
		case !o.serves(pods):
		case (!can || !o.kept[pods.Addr().Is4()]) && o.PreserveClientIP == PreserveAlways:
			bad(field, "ClientAddressNotKept")
		case o.taken.meets(pods) || overlapping(p.ranges, pods):
			bad(field, "OverlappingPodCIDR")
		default:
			if p.ranges, p.pods = append(p.ranges, pods), append(p.pods, pods); can && o.kept[pods.Addr().Is4()] {
				p.kept = append(p.kept, pods)
			}
		}
	}
}

// line writes a peer as walkText does. Tunnels of a Gateway that sends go to the peer's ends, other tunnels to this
// cluster's Gateways.
func (o *oracle) line(p oraclePeer, self oracleGateway) string {
	isGateway := self.Name == o.NodeName
	relayed := isGateway && !p.active && o.gateways[0].Name != self.Name
	var ends, ways, going []string
	if isGateway && !relayed {
		if ends = p.ends; !p.active {
			ends = ends[:1]
		}
	}
	if len(ends) > 0 && self.phase != multicluster.PhaseJoining {
		ways = ends
		going = slices.DeleteFunc(slices.Clone(p.leaving), func(a string) bool { return !slices.Contains(ends, a) })
	} else {
		for _, g := range o.gateways {
			if g.Name == o.NodeName || g.phase == multicluster.PhaseJoining {
				continue
			}
			if ways = append(ways, g.InternalIP); g.phase != "" {
				going = append(going, g.InternalIP)
			}
		}
		if !p.active {
			ways, going = ways[:1], nil
		}
	}
	text := fmt.Sprintf(peerLine,
		p.id, p.ranges, p.pods, p.kept, p.ends, p.leaving, ways, going, ends, p.active, relayed)
	for i, key := range p.keys {
		text += fmt.Sprintf(", %s is %s with %s", p.ends[i], p.outside[i], key)
	}
	if p.base {
		text += ", from " + o.base
	}
	return text
}

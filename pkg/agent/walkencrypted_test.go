package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Walks with encryption between clusters: Gateways and peers have keys and addresses inside, or not yet, Gateways come and go, and ways go up
// and down.

// insideRange has the addresses inside.
var insideRange = netip.MustParsePrefix("240.0.0.0/4")

// insideOf is the address inside of a Gateway in these walks.
func insideOf(outside string) string {
	if ip, err := netip.ParseAddr(outside); err != nil || !ip.Is4() {
		return "nowhere"
	}
	return "249" + outside[3:]
}

// inside reads an address inside.
func inside(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	if err != nil || !insideRange.Contains(ip) {
		return netip.Addr{}, false
	}
	return ip, true
}

// keyNamed is the key of an end.
func keyNamed(name string) string {
	var k publickey.Key
	copy(k[:], name)
	return k.String()
}

// badKey is none.
const badKey = "k"

// encryptGateway gives a Gateway of this cluster a key, an address inside and a phase.
func (w *world) encryptGateway(r *rand.Rand, g *mcv1alpha1.Gateway) string {
	if !w.encrypts {
		return ""
	}
	g.ServiceCIDR = "10.97.0.0/16"
	if r.IntN(24) == 0 {
		g.ServiceCIDR = oneOf(r, "", "x")
	}
	phase := oneOf(r, "", "", "", multicluster.PhaseJoining, multicluster.PhaseLeaving, multicluster.PhaseLeft)
	at := insideOf(g.GatewayIP)
	switch r.IntN(24) {
	case 0:
		at = oneOf(r, "", "here", "10.1.2.3")
	case 1, 2, 3, 4:
		if phase == multicluster.PhaseJoining {
			at = ""
		}
	}
	g.Annotations = map[string]string{}
	if phase != "" {
		g.Annotations[multicluster.AnnotationPhase] = phase
	}
	if at != "" {
		g.Annotations[multicluster.AnnotationInsideIP] = at
		g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed(g.Name), InsideIP: at}
	}
	return fmt.Sprintf(" inside at %q, %q, Services %q", at, phase, g.ServiceCIDR)
}

// encryptImport gives another cluster keys: one for each gateway, one for all, or none. Some of its gateways are about to go.
func (w *world) encryptImport(r *rand.Rand, ci *mcv1alpha1.ClusterInfoImport) string {
	if !w.encrypts {
		return ""
	}
	s := &ci.Spec
	oneKey := r.IntN(4) == 0
	for i := range s.GatewayInfos {
		g := &s.GatewayInfos[i]
		if oneKey || r.IntN(16) == 0 { // its agent is about to announce a key
			continue
		}
		g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed(s.ClusterID + " " + g.GatewayIP), InsideIP: insideOf(g.GatewayIP)}
		switch r.IntN(24) {
		case 0:
			g.WireGuard.InsideIP = oneOf(r, "x", "10.1.2.3", insideOf(selfAddress))
		case 1:
			g.WireGuard.PublicKey = badKey
		}
	}
	if len(s.GatewayInfos) > 0 {
		if first := s.GatewayInfos[0].WireGuard; first != nil {
			s.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: first.PublicKey}
		} else {
			s.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed(s.ClusterID)}
		}
	}
	switch {
	case r.IntN(8) == 0:
		s.WireGuard = nil
	case oneKey && r.IntN(8) == 0:
		s.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: oneOf(r, "", badKey)}
	}
	if r.IntN(8) > 0 && !oneKey {
		s.Features = []string{mcv1alpha1.FeatureActiveGateways}
		if r.IntN(2) == 0 {
			s.Features = append(s.Features, mcv1alpha1.FeatureSingleWays)
		}
	}
	if n := len(s.GatewayInfos); n > 1 && r.IntN(2) == 0 {
		s.GatewayInfos, s.LeavingGateways = s.GatewayInfos[:n-1], s.GatewayInfos[n-1:]
	}
	text := " with " + strings.Join(s.Features, " ")
	for _, g := range slices.Concat(s.GatewayInfos, s.LeavingGateways) {
		if g.WireGuard != nil {
			text += fmt.Sprintf(", %q inside at %q", g.GatewayIP, g.WireGuard.InsideIP)
		}
	}
	if s.WireGuard == nil {
		text += ", no key"
	}
	return fmt.Sprintf("%s, leaving %d", text, len(s.LeavingGateways))
}

// changeWay lets some far ends answer, or not.
func (w *world) changeWay(r *rand.Rand) string {
	text := "answering:"
	for range 4 {
		end := netip.MustParseAddr(fmt.Sprintf("249.168.%d.10%d", 77+2*r.IntN(2), 1+r.IntN(3)))
		if r.IntN(3) == 0 {
			end = netip.MustParseAddr(fmt.Sprint("192.168.78.10", 1+r.IntN(3)))
		}
		w.up[end] = r.IntN(4) > 0
		text += fmt.Sprint(" ", end, " ", w.up[end])
	}
	return text
}

// followPorts is followSwitch but for what has been down for long, which the clock decides.
func (a *Agent) followPorts(ctx context.Context) {
	for {
		a.tables.readSwitch(a.switchPorts.State)
		select {
		case <-ctx.Done():
			return
		case <-a.switchPorts.Changed():
		}
	}
}

// layWays tells the switch which far ends answer, once it has a port for each.
func (w *walk) layWays(ctx context.Context) {
	w.t.Helper()
	ends, _ := w.agent.tables.watched.Get(self)
	for _, end := range ends {
		for {
			number, _ := w.agent.tables.ways.Get(end)
			port := w.agent.switchPorts.State().Bridges[w.config.OVSBridge].Ports[wayPort(end.Addr)]
			err := fmt.Errorf("it has number %d, want %d", port.OFPort, number)
			if port.OFPort == uint32(number) {
				_, err = w.agent.tracer.Run(ctx, "bfd/set-forwarding", wayPort(end.Addr), fmt.Sprint(w.world.up[end.Addr]))
			}
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				w.fail("port %s: %v", wayPort(end.Addr), err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// peersOutside is how flows would name the gateways of other clusters, where their tunnels do not end.
var peersOutside = regexp.MustCompile(`192\.168\.7[79]\.10\d|(?i)0xc0a84[df]6[5-7]`)

// nothingInClear fails the walk when a flow or a group names the address of a peer's gateway outside: there is nothing that could be sent there, or
// that may come from there.
func (w *walk) nothingInClear() {
	w.t.Helper()
	for f := range w.desired.Flows() {
		if text := f.String(); peersOutside.MatchString(text) {
			w.fail("encryption is on, and there is flow %s", text)
		}
	}
	for g := range w.desired.Groups() {
		if text := g.String(); peersOutside.MatchString(text) {
			w.fail("encryption is on, and there is group %s", text)
		}
	}
}

// goInside makes of this cluster's Gateways what they are where traffic is encrypted; false where there can be none.
func (t *traffic) goInside() bool {
	if len(t.gateways) == 0 {
		return false
	}
	all := slices.Clone(t.gateways)
	if used := func(g ownGateway) bool { return g.phase == "" }; !slices.ContainsFunc(all, used) {
		for i := range all {
			all[i].phase = ""
		}
	}
	slices.SortStableFunc(all, func(a, b ownGateway) int { return cmp.Compare(min(1, len(a.phase)), min(1, len(b.phase))) })
	services, err := netip.ParsePrefix(all[0].services)
	t.base, t.inside, t.gateways = services.Addr(), true, nil
	for _, g := range all {
		switch {
		case g.inside.IsValid():
		case g.phase != "":
			continue // like a Node that is no Gateway
		default:
			t.inside, g.inside = false, t.base
		}
		t.gateways = append(t.gateways, g)
	}
	return err == nil
}

// encrypted finds where the tunnels of a cluster end, and which of them are about to go; false where it cannot be reached. The first
// result is what is known of its gateways outside.
func (t *traffic) encrypted(p *peer, spec mcv1alpha1.ClusterInfo, first netip.Addr, used map[netip.Addr]bool) (outside, going []netip.Addr, ok bool) {
	if spec.WireGuard == nil || spec.WireGuard.PublicKey == "" {
		return nil, nil, false
	}
	outside, p.gateways = p.gateways, nil
	if g := spec.GatewayInfos[0].WireGuard; !t.inside || g == nil || g.InsideIP == "" {
		for _, g := range spec.LeavingGateways {
			outside = append(outside, netip.MustParseAddr(g.GatewayIP))
		}
		p.gateways, p.own, p.oneKey = []netip.Addr{first}, t.base, true
		return outside, nil, spec.WireGuard.PublicKey != badKey
	}
	outside = nil
	p.active = slices.Contains(spec.Features, mcv1alpha1.FeatureActiveGateways)
	for i, g := range slices.Concat(spec.GatewayInfos, spec.LeavingGateways) {
		ip, err := netip.ParseAddr(g.GatewayIP)
		if err != nil || !ip.Is4() || used[ip] || slices.Contains(outside, ip) || g.WireGuard == nil {
			continue
		}
		end, ok := inside(g.WireGuard.InsideIP)
		if !ok || used[end] || g.WireGuard.PublicKey == badKey {
			continue
		}
		outside, p.gateways = append(outside, ip), append(p.gateways, end)
		if i >= len(spec.GatewayInfos) {
			going = append(going, end)
		}
	}
	return outside, going, len(p.gateways) > len(going)
}

// Kinds of questions about encryption.
const (
	byOwnWay     = "to a cluster by a way of this Node"
	byGateway    = "to a cluster by another Gateway"
	byLiveWay    = "to a cluster while a way is down"
	byStaying    = "to a cluster one of whose gateways, or of this one's, goes"
	toOneKey     = "to a cluster with one key"
	oneKeyRelay  = "to a cluster with one key by the oldest Gateway"
	answersWay   = "answer to a gateway of a cluster"
	withoutKey   = "to a cluster without a key"
	inClear      = "from a cluster's gateway in clear"
	insideToHere = "from a cluster's gateway inside to the Node's address"
	fromInside   = "from a cluster's gateway inside"
)

// coverage counts the questions of all walks.
type coverage struct {
	mu    sync.Mutex
	kinds map[string]int
}

func (c *coverage) add(kinds map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]int{}
	}
	for kind, n := range kinds {
		c.kinds[kind] += n
	}
}

func (c *coverage) check(t *testing.T) {
	for _, kind := range []string{byOwnWay, byGateway, byLiveWay, byStaying, toOneKey, oneKeyRelay, answersWay, withoutKey, inClear, insideToHere, fromInside} {
		if c.kinds[kind] == 0 {
			t.Errorf("no walk has asked: %s", kind)
		}
	}
}

// askEncrypted asks about one other cluster that is reached, and about one that is not.
func (w *walk) askEncrypted(t *traffic) {
	w.t.Helper()
	r := rand.New(rand.NewPCG(w.seed, uint64(w.number)+1<<32)) // the walk goes where it goes without questions
	ask := func(q question, kinds ...string) {
		w.t.Helper()
		w.put(q, r)
		for _, kind := range kinds {
			w.kinds[kind]++
		}
	}
	host := sender{name: "host", port: gatewayOFPort, mac: w.gatewayMAC, ip: netip.MustParseAddr(selfGateway)}
	here := host
	if pod := anyOf(r, t.pods); pod != "" {
		p := t.pods[pod]
		here = sender{name: "Pod default/" + p.PodName, port: t.numbers[pod], mac: p.MAC, ip: p.IPs[0].Addr()}
	}
	tunnel := func(far, at, ip netip.Addr) sender {
		return sender{name: "tunnel", port: tunnelOFPort, mac: w.gatewayMAC, far: far.String(), at: at.String(), to: CrossClusterMAC, ip: ip}
	}
	to := func(from sender, ip netip.Addr) question {
		q := question{from: from, protocol: corev1.ProtocolTCP, to: netip.AddrPortFrom(ip, 8080)}
		q.want = t.ends(from, q.protocol, q.to)
		return q
	}
	// server is something here that others may want to reach.
	server := netip.MustParseAddr("10.97.0.10")
	if pod := anyOf(r, t.pods); pod != "" {
		server = t.pods[pod].IPs[0].Addr()
	}
	if len(t.peers) > 0 {
		p := oneOf(r, t.peers...)
		for _, from := range []sender{here, host, host, host} { // each has a hash of its own, by which ways are chosen
			q := to(from, oneOf(r, p.ranges...).Addr().Next().Next())
			var kinds []string
			if strings.Contains(q.want[0], "(cross-cluster)") { // no policy of the Pod keeps it
				kinds = p.kinds()
			}
			if p.direct {
				q.source = p.own
			}
			ask(q, kinds...)
		}
		end := oneOf(r, p.gateways...)
		if here.name != "host" {
			q := question{from: here, protocol: corev1.ProtocolTCP, to: netip.AddrPortFrom(end, 40001), reply: true}
			q.want = []string{t.answers(here, q.to)}
			ask(q, answersWay)
		}
		if p.takes {
			if q := to(tunnel(end, p.own, end), server); q.want[0] != "dropped in Classify" {
				ask(q, fromInside)
			}
			ask(dropped(to(tunnel(end, netip.MustParseAddr(selfAddress), end), server)), insideToHere)
		}
	}
	name := anyOf(r, t.imports)
	if name == "" {
		return
	}
	spec := t.imports[name].Spec
	for _, g := range slices.Concat(spec.GatewayInfos, spec.LeavingGateways) {
		far, err := netip.ParseAddr(g.GatewayIP)
		if err != nil || !peersOutside.MatchString(g.GatewayIP) {
			continue
		}
		at := netip.MustParseAddr(selfAddress)
		for _, p := range t.peers {
			if p.takes && r.IntN(2) == 0 {
				at = p.own
			}
		}
		ip := far
		for _, p := range t.peers {
			ip = oneOf(r, ip, p.gateways[0], p.ranges[0].Addr().Next())
		}
		ask(dropped(to(tunnel(far, at, ip), server)), inClear)
	}
	if services, err := netip.ParsePrefix(spec.ServiceCIDR); err == nil && services.Addr().Is4() && services.Bits() > 0 && (spec.WireGuard == nil || spec.WireGuard.PublicKey == "") {
		q := to(here, services.Masked().Addr().Next().Next())
		kinds := []string{withoutKey}
		if slices.ContainsFunc(q.want, func(text string) bool { return strings.Contains(text, "(cross-cluster)") }) {
			kinds = nil // it is another cluster's, too
		}
		ask(q, kinds...)
	}
}

// dropped is a question about a packet that must not come in.
func dropped(q question) question {
	q.want = []string{"dropped in Classify"}
	return q
}

// kinds are those of a question about a packet to a cluster.
func (p peer) kinds() []string {
	var out []string
	switch {
	case p.direct && p.oneKey:
		out = append(out, toOneKey)
	case p.oneKey:
		out = append(out, oneKeyRelay)
	case p.direct:
		out = append(out, byOwnWay)
	default:
		out = append(out, byGateway)
	}
	states := map[way]bool{}
	for _, w := range p.ways {
		states[way{up: w.up, going: w.going}] = true
		if w.going {
			out = append(out, byStaying)
		}
	}
	if states[way{up: true}] && states[way{up: false}] {
		out = append(out, byLiveWay)
	}
	return slices.Compact(out)
}

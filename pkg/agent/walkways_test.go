package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
)

// These are walks between clusters. Gateways of all clusters come and go, ways go up and down, and clusters announce
// keys and withdraw them.

// phase gives a Gateway of this cluster a phase.
func (w *world) phase(r *rand.Rand, g *mcv1alpha1.Gateway) string {
	phase := oneOf(r, "", "", "", multicluster.PhaseJoining, multicluster.PhaseLeaving, multicluster.PhaseLeft)
	g.Annotations = map[string]string{}
	if phase != "" {
		g.Annotations[multicluster.AnnotationPhase] = phase
	}
	return fmt.Sprintf(", %q", phase)
}

// giveFeatures sets the features of another cluster's gateways, unless the cluster supports one key alone. Some of the
// gateways are leaving.
func giveFeatures(r *rand.Rand, ci *mcv1alpha1.ClusterInfoImport, oneKey bool) {
	s := &ci.Spec
	if r.IntN(8) > 0 && !oneKey {
		s.Features = []string{mcv1alpha1.FeatureActiveGateways}
		if r.IntN(2) == 0 {
			s.Features = append(s.Features, mcv1alpha1.FeatureSingleWays)
		}
	}
	if n := len(s.GatewayInfos); n > 1 && r.IntN(2) == 0 {
		s.GatewayInfos, s.LeavingGateways = s.GatewayInfos[:n-1], s.GatewayInfos[n-1:]
	}
}

// giveKeys gives another cluster keys: one for each gateway, or one for all. Some keys are invalid.
func giveKeys(r *rand.Rand, ci *mcv1alpha1.ClusterInfoImport, oneKey bool) {
	s := &ci.Spec
	give := func(infos []mcv1alpha1.GatewayInfo) {
		for i := range infos {
			g := &infos[i]
			if oneKey || r.IntN(16) == 0 { // its agent is about to announce a key
				continue
			}
			g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed(s.ClusterID + " " + g.GatewayIP),
				InsideIP: insideOf(g.GatewayIP)}
			switch r.IntN(24) {
			case 0:
				g.WireGuard.InsideIP = oneOf(r, "x", "10.1.2.3", insideOf(selfAddress))
			case 1:
				g.WireGuard.PublicKey = badKey
			}
		}
	}
	give(s.GatewayInfos)
	give(s.LeavingGateways)
	s.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed(s.ClusterID)}
	if len(s.GatewayInfos) > 0 && s.GatewayInfos[0].WireGuard != nil {
		s.WireGuard.PublicKey = s.GatewayInfos[0].WireGuard.PublicKey
	}
	switch {
	case r.IntN(16) == 0:
		s.WireGuard = nil
	case oneKey && r.IntN(8) == 0:
		s.WireGuard.PublicKey = oneOf(r, "", badKey)
	}
}

// keyed reports whether a cluster announces a key, for the whole cluster or for a gateway.
func keyed(s mcv1alpha1.ClusterInfo) bool {
	has := func(w *mcv1alpha1.WireGuardInfo) bool { return w != nil && w.PublicKey != "" }
	return has(s.WireGuard) || slices.ContainsFunc(slices.Concat(s.GatewayInfos, s.LeavingGateways),
		func(g mcv1alpha1.GatewayInfo) bool { return has(g.WireGuard) })
}

// changeKeys lets a cluster without keys announce them, or one with keys withdraw them.
func (w *world) changeKeys(r *rand.Rand) string {
	name := anyOf(r, w.imports)
	if name == "" {
		return w.changeImport(r)
	}
	ci := w.imports[name].DeepCopy()
	if keyed(ci.Spec) {
		ci.Spec.WireGuard = nil
		for _, infos := range [][]mcv1alpha1.GatewayInfo{ci.Spec.GatewayInfos, ci.Spec.LeavingGateways} {
			for i := range infos {
				infos[i].WireGuard = nil
			}
		}
	} else {
		giveKeys(r, ci, len(ci.Spec.Features) == 0)
	}
	w.imports[name] = ci
	return importText(ci)
}

// importText describes another cluster, for the walk's account.
func importText(ci *mcv1alpha1.ClusterInfoImport) string {
	s := ci.Spec
	text := fmt.Sprintf("ClusterInfoImport %s of %q is %s and %v with %s behind", ci.Name, s.ClusterID, s.ServiceCIDR,
		s.PodCIDRs, s.Features)
	if _, ok := ci.Annotations[multicluster.AnnotationWithdrawn]; ok {
		text += " withdrawn"
	}
	for _, g := range slices.Concat(s.GatewayInfos, s.LeavingGateways) {
		text += fmt.Sprintf(" %q", g.GatewayIP)
		if g.WireGuard != nil {
			text += fmt.Sprintf(" inside at %q", g.WireGuard.InsideIP)
		}
	}
	if s.WireGuard != nil {
		text += ", with a key"
	}
	return fmt.Sprintf("%s, leaving %d", text, len(s.LeavingGateways))
}

// changeWay lets some far ends answer, or not.
func (w *world) changeWay(r *rand.Rand) string {
	text := "answering:"
	for range 4 {
		end := netip.MustParseAddr(fmt.Sprintf("192.168.%d.10%d", 77+2*r.IntN(2), 1+r.IntN(3)))
		if w.encrypts {
			end = netip.MustParseAddr(insideOf(end.String()))
		}
		if r.IntN(3) == 0 {
			end = netip.MustParseAddr(fmt.Sprint("192.168.78.10", 1+r.IntN(3)))
		}
		w.up[end] = r.IntN(4) > 0
		text += fmt.Sprint(" ", end, " ", w.up[end])
	}
	return text
}

// followPorts is followSwitch without lost ways, which depend on the clock.
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

// layWays sets in the switch which far ends answer, once there is a port for each.
func (w *walk) layWays(ctx context.Context) {
	w.t.Helper()
	ends, _ := w.agent.tables.ways.watched.Get(self)
	for _, end := range ends {
		for {
			number, _ := w.agent.tables.ways.numbers.Get(end)
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

// peersOutside matches the names that flows, groups and ports have for the outside addresses of other clusters'
// gateways.
var peersOutside = regexp.MustCompile(`192\.168\.7[79]\.10\d|(?i)(0x|bfd-)c0a84[df]6[5-7]`)

// nothingInClear fails the walk if a flow, a group or a port names a gateway of a cluster that must get no plain text.
// If traffic is encrypted, these are all clusters. If not, these are the clusters with keys, unless plain text is
// allowed.
func (w *walk) nothingInClear() {
	w.t.Helper()
	open := map[string]bool{}
	for _, p := range newTraffic(w.world, w.agent).peers {
		for _, ip := range p.gateways {
			open[ip.String()], open[fmt.Sprintf("0x%x", ip.AsSlice())], open[wayPort(ip)] = true, true, true
		}
	}
	closed := func(text string) bool {
		// Few texts have one of these parts, and the regular expression takes a hundred times as long.
		if !strings.Contains(text, "192.168.7") && !strings.Contains(text, "c0a84") && !strings.Contains(text, "C0A84") {
			return false
		}
		return slices.ContainsFunc(peersOutside.FindAllString(text, -1),
			func(name string) bool { return !open[strings.ToLower(name)] })
	}
	for f := range w.desired.Flows() {
		if text := f.String(); closed(text) {
			w.fail("nothing may be sent there in plain text, and there is flow %s", text)
		}
	}
	for g := range w.desired.Groups() {
		if text := g.String(); closed(text) {
			w.fail("nothing may be sent there in plain text, and there is group %s", text)
		}
	}
	w.ovs.Eventually("no BFD in plain text", func() error {
		for name := range w.agent.switchPorts.State().Bridges[w.config.OVSBridge].Ports {
			if closed(name) {
				return fmt.Errorf("there is port %s", name)
			}
		}
		return nil
	})
}

// settlePhases moves joining and leaving Gateways of this cluster behind the others. If there are no others, it uses
// all.
func (t *traffic) settlePhases() {
	if used := func(g ownGateway) bool { return g.phase == "" }; !slices.ContainsFunc(t.gateways, used) {
		for i := range t.gateways {
			t.gateways[i].phase = ""
		}
	}
	slices.SortStableFunc(t.gateways,
		func(a, b ownGateway) int { return cmp.Compare(min(1, len(a.phase)), min(1, len(b.phase))) })
}

// Kinds of questions about other clusters.
const (
	byOwnWay    = "to a cluster by a way of this Node"
	byGateway   = "to a cluster by another Gateway"
	byLiveWay   = "to a cluster while a way is down"
	byStaying   = "to a cluster one of whose gateways, or of this one's, goes"
	toFirst     = "to a cluster that uses one gateway"
	relayed     = "to a cluster that uses one gateway by the oldest Gateway"
	answersWay  = "answer to a gateway of a cluster"
	fromGateway = "from a cluster's gateway"
	keyComes    = "to a cluster that has announced a key since"
	keyGoes     = "to a cluster that has withdrawn its key"

	// With encryption.
	withoutKey   = "to a cluster without a key"
	inClear      = "from a cluster's gateway in clear"
	insideToHere = "from a cluster's gateway inside to the Node's address"

	// Without.
	withKey     = "to a cluster with a key"
	allowed     = "to a cluster with a key that is sent plain text"
	fromWithKey = "from a gateway of a cluster with a key"
)

// kindsOf are the kinds of a walk.
func kindsOf(encrypts bool) []string {
	both := []string{byOwnWay, byGateway, byLiveWay, byStaying, toFirst, relayed, answersWay, fromGateway, keyComes,
		keyGoes}
	if encrypts {
		return append(both, withoutKey, inClear, insideToHere)
	}
	return append(both, withKey, allowed, fromWithKey)
}

// coverage counts the questions of all walks, of those with encryption apart.
type coverage struct {
	mu    sync.Mutex
	kinds map[bool]map[string]int
}

func (c *coverage) add(w *walk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[bool]map[string]int{true: {}, false: {}}
	}
	for kind, n := range w.kinds {
		c.kinds[w.world.encrypts][kind] += n
	}
}

func (c *coverage) check(t *testing.T) {
	for encrypts, kinds := range c.kinds {
		for _, kind := range kindsOf(encrypts) {
			if kinds[kind] == 0 {
				t.Errorf("no walk (encryption %v) has asked: %s", encrypts, kind)
			}
		}
	}
}

// asking are the questions of one step about other clusters.
type asking struct {
	*walk
	*traffic
	random     *rand.Rand
	host, here sender
	server     netip.Addr // something here that others may want to reach
}

// askPeers asks about one other cluster in use, about one that may not be used, and about clusters whose keys have
// appeared or disappeared.
func (w *walk) askPeers(t *traffic) {
	w.t.Helper()
	// The random numbers are separate, so the walk takes the same steps with and without questions.
	a := asking{walk: w, traffic: t, random: rand.New(rand.NewPCG(w.seed, uint64(w.number)+1<<32)),
		server: netip.MustParseAddr("10.97.0.10")}
	a.host = sender{name: "host", port: gatewayOFPort, mac: w.gatewayMAC, ip: netip.MustParseAddr(selfGateway)}
	a.here = a.host
	if pod := anyOf(a.random, t.pods); pod != "" {
		p := t.pods[pod]
		a.here = sender{name: "Pod default/" + p.PodName, port: t.numbers[pod], mac: p.MAC, ip: p.IPs[0].Addr()}
	}
	if pod := anyOf(a.random, t.pods); pod != "" {
		a.server = t.pods[pod].IPs[0].Addr()
	}
	if len(t.peers) > 0 {
		a.peer(oneOf(a.random, t.peers...))
	}
	if name := anyOf(a.random, t.imports); name != "" {
		a.cluster(t.imports[name].Spec)
	}
	a.keys()
}

// put asks a question of some kinds.
func (a asking) put(q question, kinds ...string) {
	a.t.Helper()
	a.walk.put(q, a.random)
	for _, kind := range kinds {
		a.kinds[kind]++
	}
}

// to is a question about a new connection.
func (a asking) to(from sender, ip netip.Addr) question {
	q := question{from: from, protocol: corev1.ProtocolTCP, to: netip.AddrPortFrom(ip, 8080)}
	q.want = a.ends(from, q.protocol, q.to)
	return q
}

// tunnel is a sender at a gateway of another cluster; at is the near end of its tunnel.
func (a asking) tunnel(far, at, ip netip.Addr) sender {
	s := sender{name: "tunnel", port: tunnelOFPort, mac: a.gatewayMAC, far: far.String(), to: CrossClusterMAC, ip: ip}
	if a.encrypts {
		s.at = at.String()
	}
	return s
}

// peer asks about a cluster that is used.
func (a asking) peer(p peer) {
	a.t.Helper()
	for _, from := range []sender{a.here, a.host, a.host, a.host} { // each hash chooses among the ways
		q := a.to(from, oneOf(a.random, p.ranges...).Addr().Next().Next())
		var kinds []string
		if strings.Contains(q.want[0], "(cross-cluster)") { // no policy of the Pod keeps it
			if kinds = p.kinds(); p.keyed && !a.encrypts {
				kinds = append(kinds, allowed)
			}
		}
		if p.direct && a.encrypts {
			q.source = p.own
		}
		a.put(q, kinds...)
	}
	end := oneOf(a.random, p.gateways...)
	if a.here.name != "host" {
		q := question{from: a.here, protocol: corev1.ProtocolTCP, to: netip.AddrPortFrom(end, 40001), reply: true}
		q.want = []string{a.answers(a.here, q.to)}
		a.put(q, answersWay)
	}
	if !p.takes {
		return
	}
	if q := a.to(a.tunnel(end, p.own, end), a.server); q.want[0] != "dropped in Classify" {
		a.put(q, fromGateway)
	}
	if a.encrypts {
		a.put(dropped(a.to(a.tunnel(end, netip.MustParseAddr(selfAddress), end), a.server)), insideToHere)
	}
}

// cluster asks about a cluster, which may be in use or not. It checks the packets that must not come from it in plain
// text, and the packets that must not go to it.
func (a asking) cluster(spec mcv1alpha1.ClusterInfo) {
	a.t.Helper()
	r := a.random
	for _, g := range slices.Concat(spec.GatewayInfos, spec.LeavingGateways) {
		far, err := netip.ParseAddr(g.GatewayIP)
		if err != nil || !peersOutside.MatchString(g.GatewayIP) {
			continue
		}
		at := netip.MustParseAddr(selfAddress)
		for _, p := range a.peers {
			if p.takes && r.IntN(2) == 0 {
				at = p.own
			}
		}
		ip := far
		for _, p := range a.peers {
			ip = oneOf(r, ip, p.gateways[0], p.ranges[0].Addr().Next())
		}
		q := a.to(a.tunnel(far, at, ip), a.server)
		switch {
		case a.encrypts:
			a.put(dropped(q), inClear)
		case keyed(spec) && q.want[0] == "dropped in Classify": // it is no other cluster's
			a.put(q, fromWithKey)
		}
	}
	kind := withoutKey
	if !a.encrypts {
		kind = withKey
	}
	services, ok := servicesOf(spec)
	if announced := spec.WireGuard != nil && spec.WireGuard.PublicKey != ""; !ok || a.encrypts && announced ||
		!a.encrypts && !keyed(spec) {
		return
	}
	if q := a.to(a.here, services); crosses(q) {
		a.put(q) // it is sent plain text, or is another cluster's, too
	} else {
		a.put(q, kind)
	}
}

// keys asks about the clusters that have announced or withdrawn a key in the last step.
func (a asking) keys() {
	a.t.Helper()
	was := a.keyed
	a.keyed = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(a.imports)) {
		spec := a.imports[name].Spec
		a.keyed[name] = keyed(spec)
		before, known := was[name]
		at, ok := servicesOf(spec)
		if !known || before == a.keyed[name] || !ok {
			continue
		}
		q := a.to(a.host, at)
		switch {
		case crosses(q) != (a.keyed[name] == a.encrypts): // sent plain text, or not for another reason
			a.put(q)
		case a.keyed[name]:
			a.put(q, keyComes)
		default:
			a.put(q, keyGoes)
		}
	}
}

// servicesOf is an address of a cluster's Service range.
func servicesOf(spec mcv1alpha1.ClusterInfo) (netip.Addr, bool) {
	r, err := netip.ParsePrefix(spec.ServiceCIDR)
	return r.Masked().Addr().Next().Next(), err == nil && r.Addr().Is4() && r.Bits() > 0
}

// crosses reports whether a packet may go to another cluster.
func crosses(q question) bool {
	return slices.ContainsFunc(q.want, func(text string) bool { return strings.Contains(text, "(cross-cluster)") })
}

// dropped is a question about a packet that must not come in.
func dropped(q question) question {
	q.want = []string{"dropped in Classify"}
	return q
}

// kinds returns the kinds of questions about packets to a cluster.
func (p peer) kinds() []string {
	var out []string
	switch {
	case p.direct && !p.active:
		out = append(out, toFirst)
	case !p.active:
		out = append(out, relayed)
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

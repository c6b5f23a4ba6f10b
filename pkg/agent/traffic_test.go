package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// The functions below return where packets have to go, from the objects of the cluster and with as little code as
// possible. They share no code with the functions that make the flows.

// sender is the place where a packet comes into the switch, with its source addresses.
type sender struct {
	name string // "Pod default/pod-3", "host", "tunnel"
	port uint32
	mac  string
	ip   netip.Addr

	far string // for a tunnel: the address of its far end
	at  string // and of its near end; selfAddress if empty
	to  string // destination MAC; virtualMAC if empty
}

// question is a packet of a new connection or of a reply, with the ends that it may reach.
type question struct {
	from     sender
	protocol corev1.Protocol
	to       netip.AddrPort
	reply    bool
	mac      string // of the destination, if it is not the switch's
	want     []string

	source netip.Addr // source of the tunnel through which it leaves; any if invalid
}

func (q question) String() string {
	kind := "new connection"
	if q.reply {
		kind = "reply"
	}
	return fmt.Sprintf("%s of %s %s (port %d, %s) to %s/%s", kind, q.from.name, q.from.far, q.from.port, q.from.ip, q.to,
		q.protocol)
}

// traffic answers questions about a world.
type traffic struct {
	*world
	numbers  map[string]uint32 // of the Pods' ports
	podToPod bool
	joined   bool // the agent's configuration takes part in a ClusterSet
	allows   bool // and to send plain text also to clusters with keys
	direct   bool // the hosts route packets between the Pods of two Nodes

	services []serving
	peers    []peer
	gateways []ownGateway   // of this cluster, the oldest first, and joining or leaving ones at the end
	closed   []netip.Prefix // ranges that nothing in plain text may go to

	// Where traffic between clusters is encrypted.
	base   netip.Addr // this cluster's inside address, for clusters that support one
	inside bool       // its Gateways have addresses of their own there
}

// ownGateway is a Gateway of this cluster.
type ownGateway struct {
	name              string
	outside, internal netip.Addr
	since             int64
	phase             string

	// Where traffic is encrypted.
	inside   netip.Addr // invalid while it has no inside address
	services string     // the cluster's Service range
}

// way is a way to a peer, by its far end.
type way struct {
	end       netip.Addr
	up, going bool
}

// serving is a virtual address with its endpoints, from the objects.
type serving struct {
	service   string // namespace/name
	protocol  corev1.Protocol
	vip       netip.AddrPort
	endpoints []netip.AddrPort
	elsewhere bool // with policy Local: on other Nodes alone
}

type peer struct {
	id       string
	ranges   []netip.Prefix
	gateways []netip.Addr   // where its tunnels end
	far      []netip.Prefix // sources of its tunnels

	takes, direct bool           // this Node is a Gateway that accepts the peer's packets, and sends to it itself
	own           netip.Addr     // this Node's address for the peer
	ways          []way          // of this Node
	relays        []netip.Prefix // sources of the tunnels of this cluster's Gateways that may pass its packets on
	active        bool           // all gateways are in use
	oneKey        bool           // with encryption: for all of the cluster
	keyed         bool           // it announces a key
}

// fresh are the ends of the ways that a new connection may take.
func (p peer) fresh() []netip.Addr {
	var out []netip.Addr
	for _, w := range p.ways {
		if w.up && !w.going {
			out = append(out, w.end)
		}
	}
	if len(out) == 0 {
		return []netip.Addr{p.ways[0].end}
	}
	return out
}

// first is the end of the way that a connection takes from before there were several.
func (p peer) first() netip.Addr {
	for i, w := range p.ways {
		if w.up && (i == 0 || !w.going) {
			return w.end
		}
	}
	return p.ways[0].end
}

// watched reports whether each source of the peer's tunnels has a way. Then connections from it have a way.
func (p peer) watched() bool {
	return !slices.ContainsFunc(p.far,
		func(r netip.Prefix) bool { return !r.IsSingleIP() || !slices.Contains(p.gateways, r.Addr()) })
}

func newTraffic(w *world, a *Agent) *traffic {
	t := &traffic{world: w, numbers: map[string]uint32{}, podToPod: a.config.Multicluster.EnablePodToPodConnectivity,
		joined: a.config.MulticlusterGateway(),
		allows: a.config.Multicluster.AllowUnencryptedPeers, direct: a.config.TrafficEncapMode == config.NoEncap}
	for name, p := range a.switchPorts.State().Bridges[a.config.OVSBridge].Ports {
		t.numbers[name] = p.OFPort
	}
	t.readServices()
	if t.joined {
		t.readPeers()
	}
	return t
}

// readServices reads the Services. If several have one address, the first by name gets it.
func (t *traffic) readServices() {
	for _, key := range slices.Sorted(maps.Keys(t.world.services)) {
		s := t.world.services[key]
		if _, mesh := s.Labels[service.LabelProxyName]; mesh {
			continue
		}
		anywhere := s.DeepCopy()
		anywhere.Spec.InternalTrafficPolicy = nil
		ips := s.Spec.ClusterIPs
		if len(ips) == 0 {
			ips = []string{s.Spec.ClusterIP}
		}
		for _, p := range s.Spec.Ports {
			protocol := p.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			for _, text := range ips {
				ip, err := netip.ParseAddr(text)
				if err != nil || !ip.Is4() || s.Spec.Type == corev1.ServiceTypeExternalName {
					continue
				}
				vip := netip.AddrPortFrom(ip, uint16(p.Port))
				if t.serves(protocol, vip) == nil {
					t.services = append(t.services, serving{key, protocol, vip, t.endpoints(s, p.Name, protocol), false})
					last := &t.services[len(t.services)-1]
					last.elsewhere = len(last.endpoints) == 0 && len(t.endpoints(anywhere, p.Name, protocol)) > 0
				}
			}
		}
	}
}

func (t *traffic) serves(protocol corev1.Protocol, at netip.AddrPort) *serving {
	for i, s := range t.services {
		if s.protocol == protocol && s.vip == at {
			return &t.services[i]
		}
	}
	return nil
}

// endpoints returns the ready endpoints of a Service. If hints name this Node or its zone, it returns only those. If no
// endpoint is ready, it returns the endpoints that end but still serve.
func (t *traffic) endpoints(s *corev1.Service, port string, protocol corev1.Protocol) []netip.AddrPort {
	var ready, leaving, forNode, forZone []netip.AddrPort
	local := s.Spec.InternalTrafficPolicy != nil &&
		*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	nodes, zones, zone := !local, !local, "" // whether all ready ones have hints of that kind
	if n := t.nodes[ownName]; n != nil {
		zone = n.Labels[corev1.LabelTopologyZone]
	}
	is := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	for _, slice := range t.slices {
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name ||
			slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, e := range slice.Endpoints {
			if local && (e.NodeName == nil || *e.NodeName != ownName) {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || !ip.Is4() || ip.IsLoopback() {
				continue
			}
			for _, p := range slice.Ports {
				if *p.Name != port || p.Protocol == nil && protocol != corev1.ProtocolTCP || p.Protocol != nil &&
					*p.Protocol != protocol {
					continue
				}
				at := netip.AddrPortFrom(ip, uint16(*p.Port))
				c := e.Conditions
				switch {
				case is(c.Ready, true) || s.Spec.PublishNotReadyAddresses:
					ready = append(ready, at)
					h := e.Hints
					if h == nil {
						h = &discoveryv1.EndpointHints{}
					}
					nodes, zones = nodes && len(h.ForNodes) > 0, zones && len(h.ForZones) > 0
					if slices.Contains(h.ForNodes, discoveryv1.ForNode{Name: ownName}) {
						forNode = append(forNode, at)
					}
					if slices.Contains(h.ForZones, discoveryv1.ForZone{Name: zone}) {
						forZone = append(forZone, at)
					}
				case is(c.Serving, is(c.Ready, true)) && is(c.Terminating, false):
					leaving = append(leaving, at)
				}
			}
		}
	}
	switch {
	case len(ready) == 0:
		return leaving
	case nodes && len(forNode) > 0:
		return forNode
	case zones && len(forZone) > 0:
		return forZone
	}
	return ready
}

// behind returns the addresses that connections to a Service may reach. If an endpoint is a Service of this cluster, it
// is replaced by the endpoints of that Service.
func (t *traffic) behind(s *serving, open ...*serving) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range s.endpoints {
		inner := t.serves(s.protocol, e)
		switch {
		case inner == nil:
			out = append(out, e)
		case inner == s || slices.Contains(open, inner): // in a circle
		default:
			out = append(out, t.behind(inner, append(open, s)...)...)
		}
	}
	return out
}

// readPeers finds the cluster's Gateway, and the other clusters that can be used with it.
func (t *traffic) readPeers() {
	usable := func(text string) (netip.Addr, bool) {
		ip, err := netip.ParseAddr(text)
		return ip, err == nil && !ip.IsLoopback() && !ip.IsMulticast()
	}
	for _, name := range slices.Sorted(maps.Keys(t.world.gateways)) {
		g := t.world.gateways[name]
		outside, ok1 := usable(g.GatewayIP)
		internal, ok2 := usable(g.InternalIP)
		if ok1 && ok2 {
			own := ownGateway{name: name, outside: outside, internal: internal, since: g.CreationTimestamp.Unix(),
				phase: g.Annotations[multicluster.AnnotationPhase], services: g.ServiceCIDR}
			own.inside, _ = inside(g.Annotations[multicluster.AnnotationInsideIP])
			t.gateways = append(t.gateways, own)
		}
	}
	slices.SortStableFunc(t.gateways, func(a, b ownGateway) int { return cmp.Compare(a.since, b.since) })
	over6 := len(t.gateways) > 0 && t.gateways[0].outside.Is6()
	t.gateways = slices.DeleteFunc(t.gateways, func(g ownGateway) bool { return g.outside.Is6() != over6 })
	t.settlePhases()
	used := map[netip.Addr]bool{} // by this cluster or another
	for _, g := range t.gateways {
		used[g.outside], used[g.inside] = true, true
	}
	for _, n := range t.nodes {
		for _, a := range n.Status.Addresses {
			used[netip.MustParseAddr(a.Address)] = true
		}
	}
	var taken []netip.Prefix // ranges that others have
	for _, sc := range t.ranges {
		taken = append(taken, netip.MustParsePrefix(sc.Spec.CIDRs[0]))
	}
	for _, n := range t.nodes {
		taken = append(taken, podRanges(n)...)
	}
	free := func(text string) (netip.Prefix, bool) {
		p, err := netip.ParsePrefix(text)
		ok := err == nil && p.Addr().Is4() && p.Bits() > 0 && !slices.ContainsFunc(taken, p.Overlaps)
		return p.Masked(), ok
	}
	t.close(free)
	if t.encrypts && !t.goInside() || len(t.gateways) == 0 {
		return
	}
	names := slices.SortedFunc(maps.Keys(t.imports), func(a, b string) int {
		return strings.Compare(t.imports[a].Spec.ClusterID+" "+a, t.imports[b].Spec.ClusterID+" "+b)
	})
	for _, name := range names {
		spec := t.imports[name].Spec
		p := peer{id: spec.ClusterID, keyed: keyed(spec),
			active: slices.Contains(spec.Features, mcv1alpha1.FeatureActiveGateways)}
		r, ok := free(spec.ServiceCIDR)
		_, withdrawn := t.imports[name].Annotations[multicluster.AnnotationWithdrawn]
		if !ok || withdrawn || p.id == "" || slices.ContainsFunc(t.peers, func(o peer) bool { return o.id == p.id }) {
			continue
		}
		var going []netip.Addr
		for i, info := range slices.Concat(spec.GatewayInfos, spec.LeavingGateways) {
			if ip, ok := usable(info.GatewayIP); ok && ip.Is6() == over6 && !used[ip] && !slices.Contains(p.gateways, ip) {
				if p.gateways = append(p.gateways, ip); i >= len(spec.GatewayInfos) {
					going = append(going, ip)
				}
			}
		}
		if len(p.gateways) == len(going) || p.keyed && !t.encrypts && !t.allows {
			continue
		}
		outside := p.gateways
		if t.encrypts {
			if outside, going, ok = t.encrypted(&p, spec, r.Addr(), used); !ok {
				continue
			}
		}
		for _, ip := range append(slices.Clone(outside), p.gateways...) {
			used[ip] = true
		}
		p.ranges, taken = []netip.Prefix{r}, append(taken, r)
		for _, text := range spec.PodCIDRs {
			if r, ok := free(text); ok && t.podToPod {
				p.ranges, taken = append(p.ranges, r), append(taken, r)
			}
		}
		for _, ip := range p.gateways {
			p.far = append(p.far, netip.PrefixFrom(ip, 32))
		}
		t.lay(&p, going)
		if cs := t.sets["set"]; cs != nil && !t.encrypts {
			for _, text := range strings.Split(cs.Annotations["tunnel-sources.multicluster.antrea.io/"+p.id], ",") {
				text = strings.TrimSpace(text)
				if ip, err := netip.ParseAddr(text); err == nil {
					p.far = append(p.far, netip.PrefixFrom(ip, 32))
				}
				if r, err := netip.ParsePrefix(text); err == nil && r.Bits() > 0 {
					p.far = append(p.far, r)
				}
			}
		}
		t.peers = append(t.peers, p)
	}
}

// close finds the ranges of clusters that are reached encrypted or not at all.
func (t *traffic) close(free func(string) (netip.Prefix, bool)) {
	for _, ci := range t.imports {
		services, ok := free(ci.Spec.ServiceCIDR)
		if !ok || !t.encrypts && (t.allows || !keyed(ci.Spec)) {
			continue
		}
		t.closed = append(t.closed, services)
		for _, text := range ci.Spec.PodCIDRs {
			if pods, ok := free(text); ok && t.podToPod {
				t.closed = append(t.closed, pods)
			}
		}
	}
}

// isClosed reports whether packets to an address may leave only through a way to its cluster.
func (t *traffic) isClosed(a netip.Addr) bool {
	return insideRange.Contains(a) || slices.ContainsFunc(t.closed, func(r netip.Prefix) bool { return r.Contains(a) })
}

// lay decides which ways this Node has to a peer, of whose gateways some are going.
func (t *traffic) lay(p *peer, going []netip.Addr) {
	me := slices.IndexFunc(t.gateways, func(g ownGateway) bool { return g.name == ownName })
	p.takes = me >= 0 && (p.active || me == 0)
	p.direct = p.takes && (t.gateways[me].phase == "" || t.gateways[me].phase == multicluster.PhaseLeaving)
	if p.takes && !p.own.IsValid() {
		if p.own = t.gateways[me].outside; t.encrypts {
			p.own = t.gateways[me].inside
		}
	}
	if p.direct {
		ends := p.gateways
		if !p.active {
			ends = ends[:1]
		}
		for _, end := range ends {
			p.ways = append(p.ways, way{end: end, up: t.up[end], going: slices.Contains(going, end)})
		}
	}
	for i, g := range t.gateways {
		if i == me || !p.active && (i > 0 || p.direct) {
			continue
		}
		if !p.direct && g.phase != multicluster.PhaseJoining {
			p.ways = append(p.ways, way{end: g.internal, up: t.up[g.internal], going: g.phase != ""})
		}
		p.relays = append(p.relays, netip.PrefixFrom(g.internal, 32))
		if n := t.nodes[g.name]; n != nil && t.usable(g.name) && len(podRanges(n)) > 0 {
			p.relays = append(p.relays, netip.PrefixFrom(netip.MustParseAddr(n.Status.Addresses[0].Address), 32))
		}
	}
}

// usable reports whether packets can be sent to a Node.
func (t *traffic) usable(name string) bool {
	n := t.nodes[name]
	return name == ownName || len(n.Status.Addresses) > 0 && !strings.Contains(n.Status.Addresses[0].Address, ":")
}

// holder returns the Node whose Pod ranges have an address.
func (t *traffic) holder(ip netip.Addr) string {
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if t.usable(name) &&
			slices.ContainsFunc(podRanges(t.nodes[name]), func(r netip.Prefix) bool { return r.Contains(ip) }) {
			return name
		}
	}
	return ""
}

// admitted returns the kind of the sender of a packet from the tunnel: "node", "peer", "gateway" for a Gateway of this
// cluster that passes on a peer's packet, or "" for a packet that must be dropped.
func (t *traffic) admitted(from sender) string {
	far := netip.MustParseAddr(from.far)
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if name == ownName || !t.usable(name) || t.nodes[name].Status.Addresses[0].Address != from.far {
			continue
		}
		held := false
		for _, r := range podRanges(t.nodes[name]) {
			if t.holder(r.Addr()) == name {
				held = true
				if r.Contains(from.ip) {
					return "node"
				}
			}
		}
		if held && from.ip == far {
			return "node"
		}
	}
	for _, p := range t.peers {
		if !slices.Contains(p.gateways, from.ip) &&
			!slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Contains(from.ip) }) {
			continue
		}
		comes := func(ends []netip.Prefix) bool {
			return slices.ContainsFunc(ends, func(r netip.Prefix) bool { return r.Contains(far) })
		}
		switch {
		case p.takes && from.to == CrossClusterMAC && comes(p.far) && (!t.encrypts || from.at == p.own.String()):
			return "peer"
		case comes(p.relays):
			return "gateway"
		}
	}
	return ""
}

// exported reports whether another cluster may open a connection to an address, on the Gateway.
func (t *traffic) exported(protocol corev1.Protocol, to netip.AddrPort) bool {
	for _, s := range t.services {
		if s.protocol != protocol || t.exports[s.service] == nil {
			continue
		}
		if s.vip == to {
			return true
		}
	}
	for _, slice := range t.slices {
		if t.podToPod || t.holder(to.Addr()) == "" ||
			t.exports[slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName]] == nil ||
			slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, p := range slice.Ports {
			if *p.Port == int32(to.Port()) && cmp.Or(value(p.Protocol), corev1.ProtocolTCP) == protocol &&
				slices.ContainsFunc(slice.Endpoints,
					func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == to.Addr().String() }) {
				return true
			}
		}
	}
	holder := t.holder(to.Addr())
	if !t.podToPod || holder == "" {
		return false
	}
	for _, r := range podRanges(t.nodes[holder]) {
		if r.Addr().Next() == to.Addr() {
			return false // the Node's host
		}
	}
	return true
}

// value returns the value of an API pointer, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

const CrossClusterMAC = "aa:bb:cc:dd:ee:f0"

// podRange is an address of a Node's first range.
func podRange(n *corev1.Node) netip.Addr {
	for _, r := range podRanges(n) {
		return r.Addr()
	}
	return netip.Addr{}
}

// podRanges returns the Pod ranges of a Node. If one cannot be read, it returns nil.
func podRanges(n *corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil
		}
		if p.Addr().Is4() {
			out = append(out, p)
		}
	}
	return out
}

var hairpin = netip.MustParseAddr("169.254.0.253")

// ends returns where a new connection may end.
func (t *traffic) ends(from sender, protocol corev1.Protocol, to netip.AddrPort) []string {
	who := ""
	if from.far != "" {
		if who = t.admitted(from); who == "" {
			return []string{"dropped in Classify"}
		}
		if who == "peer" && !t.exported(protocol, to) {
			return []string{"dropped in Exports"}
		}
	}
	s := t.serves(protocol, to)
	if s == nil {
		return t.judged(from, protocol, to, false)
	}
	var out []string
	for _, e := range t.behind(s) {
		out = append(out, t.judged(from, protocol, e, true)...)
	}
	if s.elsewhere {
		return []string{"dropped in Service"}
	}
	if len(out) == 0 {
		return []string{"to the agent from Service"}
	}
	return out
}

// attached is the Pod at an address of this Node.
func (t *traffic) attached(a netip.Addr) (cni.Attachment, bool) {
	for _, p := range t.pods {
		if p.IPs[0].Addr() == a {
			return p, true
		}
	}
	return cni.Attachment{}, false
}

// denies returns the table in which the policies of a Pod of this Node deny a connection, "" if they allow it.
func (t *traffic) denies(p cni.Attachment, egress bool, c policytest.Connection) string {
	stage := "Ingress"
	if egress {
		stage = "Egress"
	}
	cluster := policytest.Cluster{Pods: t.podObjects(), Namespaces: t.spaces, Policies: t.policies}
	pod := cluster.Pods[p.PodNamespace+"/"+p.PodName]
	switch {
	case pod == nil && len(t.policies) > 0:
		return "dropped in " + stage // until its labels are known
	case pod != nil && !cluster.Allows(pod, egress, c):
		return "dropped in " + stage + "Rule"
	}
	return ""
}

// egress returns the table in which the policies of the sending Pod deny a connection.
func (t *traffic) egress(from sender, protocol corev1.Protocol, to netip.AddrPort) string {
	p, ok := t.attached(from.ip)
	if !ok || t.numbers[p.PortName] != from.port || p.IPs[0].Addr() == to.Addr() && t.allowsItself(p) {
		return ""
	}
	return t.denies(p, true, policytest.Connection{From: from.ip, To: to.Addr(), Protocol: protocol, Port: to.Port()})
}

// allowsItself reports whether a Pod is known. A known Pod always reaches itself.
func (t *traffic) allowsItself(p cni.Attachment) bool {
	return t.podObjects()[p.PodNamespace+"/"+p.PodName] != nil
}

// judged returns where a connection to a final destination ends: where policies deny it, else at the end of its route.
func (t *traffic) judged(from sender, protocol corev1.Protocol, to netip.AddrPort, service bool) []string {
	if denied := t.egress(from, protocol, to); denied != "" {
		return []string{denied}
	}
	if p, ok := t.attached(to.Addr()); ok && from.port != gatewayOFPort && t.numbers[p.PortName] != from.port {
		if denied := t.denies(p, false, policytest.Connection{From: from.ip, To: to.Addr(), Protocol: protocol,
			Port: to.Port()}); denied != "" {
			return []string{denied}
		}
	}
	return t.route(from, to, service)
}

// route returns where a packet to a final destination goes.
func (t *traffic) route(from sender, to netip.AddrPort, service bool) []string {
	leaves := func(port uint32, src netip.Addr, tunnel string) []string {
		text := fmt.Sprint("to port ", port)
		if port == from.port {
			text = "back"
		}
		return []string{fmt.Sprintf("%s%s: %s > %s", text, tunnel, src, to)}
	}
	for name, p := range t.pods {
		if p.IPs[0].Addr() == to.Addr() {
			if t.numbers[name] == from.port { // back through the port that it came from
				return leaves(from.port, hairpin, "")
			}
			return leaves(t.numbers[name], from.ip, "")
		}
	}
	if to.Addr() == netip.MustParseAddr(selfGateway) {
		if from.port == gatewayOFPort && service {
			return leaves(gatewayOFPort, hairpin, "")
		}
		return leaves(gatewayOFPort, from.ip, "")
	}
	if slices.ContainsFunc(podRanges(t.nodes[ownName]), func(r netip.Prefix) bool { return r.Contains(to.Addr()) }) {
		return []string{"dropped in Route"}
	}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		if name == ownName || len(n.Status.Addresses) == 0 || strings.Contains(n.Status.Addresses[0].Address, ":") {
			continue
		}
		for _, r := range podRanges(n) {
			switch {
			case !r.Contains(to.Addr()):
			case !t.direct, from.port == tunnelOFPort: // with other clusters always by tunnels
				return leaves(tunnelOFPort, from.ip, " "+n.Status.Addresses[0].Address)
			case from.port == gatewayOFPort && service:
				return leaves(gatewayOFPort, hairpin, "")
			case from.port == gatewayOFPort: // the host routes such packets itself
				return []string{"dropped in Route"}
			default:
				return leaves(gatewayOFPort, from.ip, "")
			}
		}
	}
	for _, p := range t.peers {
		if !slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Contains(to.Addr()) }) {
			continue
		}
		src := from.ip
		if p.direct {
			src = p.own
		}
		var out []string
		for _, end := range p.fresh() {
			out = append(out, leaves(tunnelOFPort, src, fmt.Sprintf(" %s (cross-cluster)", end))...)
		}
		return out
	}
	switch {
	case t.isClosed(to.Addr()):
	case from.port != gatewayOFPort && from.port != tunnelOFPort:
		return leaves(gatewayOFPort, from.ip, "")
	case service && (from.far == "" || t.admitted(from) != "node"):
		return leaves(gatewayOFPort, hairpin, "")
	}
	return []string{"dropped in Route"}
}

// answers returns where a Pod's reply to a gateway of another cluster goes.
func (t *traffic) answers(from sender, to netip.AddrPort) string {
	for _, p := range t.peers {
		if slices.Contains(p.gateways, to.Addr()) {
			via := p.first()
			if p.takes {
				via = to.Addr()
				if t.gateways[0].name != ownName && p.watched() { // from before this Node was a Gateway
					via = t.gateways[0].internal
				}
			}
			return fmt.Sprintf("to port %d %s (cross-cluster): %s > %s", tunnelOFPort, via, from.ip, to)
		}
	}
	for _, p := range t.peers {
		if p.ranges[0].Contains(to.Addr()) && !p.direct { // the Gateway decides
			return fmt.Sprintf("to port %d %s (cross-cluster): %s > %s", tunnelOFPort, p.first(), from.ip, to)
		}
	}
	if t.isClosed(to.Addr()) {
		return "dropped in Route"
	}
	return fmt.Sprintf("to port %d: %s > %s", gatewayOFPort, from.ip, to)
}

// ask makes a random question: from a Pod, the host or the tunnel, to a Service, a Pod here or elsewhere, another
// cluster or the world.
func (t *traffic) ask(r *rand.Rand, gatewayMAC string) question {
	q := question{protocol: oneOf(r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)}
	q.from = sender{name: "host", port: gatewayOFPort, mac: gatewayMAC, ip: netip.MustParseAddr(selfGateway)}
	pod := anyOf(r, t.pods)
	switch p := t.pods[pod]; {
	case pod != "" && r.IntN(4) > 0:
		q.from = sender{name: "Pod default/" + p.PodName, port: t.numbers[pod], mac: p.MAC, ip: p.IPs[0].Addr()}
	case r.IntN(4) > 0:
		q.from = t.fromTunnel(r, gatewayMAC)
	}
	to := ""
	switch n := r.IntN(10); {
	case n < 5 && len(t.services) > 0:
		s := oneOf(r, t.services...)
		q.protocol, q.to = s.protocol, s.vip
	case n == 5:
		q.to = netip.AddrPortFrom(netip.MustParseAddr(clusterIP(r)), uint16(oneOf(r, 53, 80, 443)))
	case n == 6 && q.from.name[0] == 'P':
		q.protocol, q.reply = corev1.ProtocolTCP, true
		to = oneOf(r, "192.168.77.101", "192.168.77.102", "192.168.79.101", "192.168.79.103")
		for _, p := range t.peers {
			to = oneOf(r, to, p.gateways[0].String())
		}
		for _, name := range slices.Sorted(maps.Keys(t.imports)) {
			if base, err := netip.ParsePrefix(t.imports[name].Spec.ServiceCIDR); err == nil && base.Addr().Is4() &&
				base.Bits() > 0 {
				to = oneOf(r, to, to, base.Masked().Addr().String()) // where an end may have been
			}
		}
		q.to = netip.AddrPortFrom(netip.MustParseAddr(to), 40001)
	case n == 7 && q.from.name[0] == 'P':
		end := netip.MustParseAddr(selfAddress) // where a tunnel ends
		for name, n := range t.nodes {
			if name != ownName && t.usable(name) && t.holder(podRange(n)) == name {
				end = netip.MustParseAddr(n.Status.Addresses[0].Address)
			}
		}
		q.protocol, q.to = corev1.ProtocolUDP, netip.AddrPortFrom(end, 6081)
		q.want = []string{cmp.Or(t.egress(q.from, q.protocol, q.to), "dropped in Route")}
		return q
	default:
		to = w4(r, t.endpointAddress(r))
		q.to = netip.AddrPortFrom(netip.MustParseAddr(to), 8080)
	}
	for _, p := range t.pods {
		if q.from.name == "host" && p.IPs[0].Addr() == q.to.Addr() {
			q.mac = p.MAC // the host has asked for it
		}
	}
	if q.reply {
		q.want = []string{t.answers(q.from, q.to)}
	} else {
		q.want = t.ends(q.from, q.protocol, q.to)
	}
	if q.from.name[0] == 'P' && r.IntN(16) == 0 { // with an address that is not its own
		q.from.ip, q.want = netip.MustParseAddr("10.11.1.250"), []string{"dropped in Classify"}
	}
	return q
}

// fromTunnel returns a packet from the tunnel: from a Node, from another cluster, or from a sender that imitates one.
func (t *traffic) fromTunnel(r *rand.Rand, mac string) sender {
	s := sender{name: "tunnel", port: tunnelOFPort, mac: mac,
		far: oneOf(r, "192.0.2.66", "192.168.78.111", "203.0.113.7", selfAddress)}
	inside := oneOf(r, "10.11.5.9", "192.168.77.101", "10.96.0.20", "192.0.2.66", "10.11.1.2", "10.97.0.10",
		"169.254.0.253")
	if name := anyOf(r, t.nodes); name != ownName && t.usable(name) && r.IntN(2) == 0 {
		s.far = t.nodes[name].Status.Addresses[0].Address
		inside = oneOf(r, inside, s.far)
		if ranges := podRanges(t.nodes[name]); len(ranges) > 0 && r.IntN(3) > 0 {
			inside = oneOf(r, ranges...).Addr().Next().Next().String()
		}
	}
	if len(t.peers) > 0 && r.IntN(2) == 0 {
		p, other := oneOf(r, t.peers...), oneOf(r, t.peers...)
		s.far, s.to = oneOf(r, p.far...).Addr().String(),
			oneOf(r, CrossClusterMAC, CrossClusterMAC, CrossClusterMAC, virtualMAC)
		if s.at = p.own.String(); !t.encrypts || !p.takes {
			s.at = ""
		}
		if t.gateways[0].name != ownName && r.IntN(4) > 0 {
			s.far, s.at = t.gateways[0].internal.String(), ""
		}
		inside = oneOf(r, p.gateways[0], p.ranges[0].Addr().Next(), other.gateways[0]).String()
	}
	s.ip = netip.MustParseAddr(inside)
	return s
}

// w4 is an address that packets can be for, instead of one that they cannot.
func w4(r *rand.Rand, address string) string {
	switch ip, err := netip.ParseAddr(address); {
	case err != nil, !ip.Is4(), ip.IsLoopback():
		return oneOf(r, "192.0.2.1", "10.20.130.1", "10.12.3.3", "10.99.0.20")
	}
	return address
}

// put sends the packet with a hash, which chooses among the ways, to the switch. It returns the error in the answer.
func (q question) put(ctx context.Context, a *Agent, hash int) error {
	protocol := strings.ToLower(string(q.protocol))
	text := fmt.Sprintf(
		"dp_hash=%d,in_port=%d,%s,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,%s_src=40000,%s_dst=%d",
		hash, q.from.port, protocol, q.from.mac, cmp.Or(q.mac, q.from.to, virtualMAC), q.from.ip, q.to.Addr(), protocol,
		protocol, q.to.Port())
	if q.from.far != "" {
		text += fmt.Sprintf(",tun_src=%s,tun_dst=%s,tun_id=0", q.from.far, cmp.Or(q.from.at, selfAddress))
	}
	state := "trk,new"
	if q.reply {
		state = "trk,est,rpl"
	}
	var next []string
	for range 4 {
		next = append(next, "--ct-next", state)
	}
	trace, err := a.tracer.Trace(ctx, a.config.OVSBridge, text, next...)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	o, err := appctl.ParseTrace(trace)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	have := ""
	table := datapath.Program.Name(ofp.Table(o.Last().Table))
	switch _, taken := datapath.TakenAs(o.Userdata); {
	case o.Back:
		have = "back"
	case taken:
		have = "to the agent from " + table
	case o.Output != 0:
		have = fmt.Sprint("to port ", o.Output)
	default:
		have = "dropped in " + table
	}
	if o.Back || o.Output != 0 {
		if o.Output == tunnelOFPort || o.Back && q.from.port == tunnelOFPort {
			far := o.Fields["tun_dst"]
			if six := o.Fields["tun_ipv6_dst"]; six != "" && six != "::" {
				far = six
			}
			have += " " + far
		}
		if o.Fields["dl_dst"] == "aa:bb:cc:dd:ee:f0" {
			have += " (cross-cluster)"
		}
		have += fmt.Sprintf(": %s > %s:%s", o.Fields["nw_src"], o.Fields["nw_dst"], o.Fields["tp_dst"])
	}
	if from := o.Fields["tun_src"]; q.source.IsValid() &&
		strings.HasSuffix(strings.SplitN(have, ":", 2)[0], "(cross-cluster)") && from != q.source.String() {
		have += " by a tunnel from " + from
	}
	if !slices.Contains(q.want, have) {
		return fmt.Errorf("%s\nthe switch:  %s\nthe cluster: %s\n%s\n%s", q, have, strings.Join(q.want, "\n          or "),
			text, trace)
	}
	return nil
}

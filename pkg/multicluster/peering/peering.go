// Package peering turns the Gateways of this cluster and the ClusterInfoImports of the others into the facts that a
// Node needs: its role, and for each peer the ranges behind it and the ends of its tunnels. It is pure: no client, no
// clock.
package peering

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Own has the addresses of this cluster. A peer's ranges and gateways must not overlap them, even if the leader sends
// such ranges: traffic to these addresses would go into a tunnel.
type Own struct {
	ServiceCIDRs, PodCIDRs []netip.Prefix
	Nodes                  []netip.Addr   // all addresses of the cluster's Nodes
	APIServers             []netip.Addr   // where the API server listens
	Networks               []netip.Prefix // that this Node is attached to by its underlay
}

// View is everything that the peering of a Node depends on.
type View struct {
	NodeName           string
	Gateways           []*mcv1alpha1.Gateway
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport
	// ClusterSets may list further sources of peers' tunnels (AnnotationTunnelSources).
	ClusterSets []*mcv1alpha2.ClusterSet
	Own         Own
	// Families are the versions of IP that this Node serves.
	Families family.Families
	// PodToPod makes the Pod ranges of peers reachable, not only their Services.
	PodToPod bool
	// PreserveClientIP is the value in the configuration: auto, always or never. Pods are the ranges of this Node's Pods.
	PreserveClientIP string
	Pods             []netip.Prefix
	// Tunnel is the feature that names this cluster's tunnels; empty for Geneve on its own port.
	Tunnel string
	// AllowUnencryptedPeers accepts peers that announce a WireGuard key, in plain text.
	AllowUnencryptedPeers bool
	// Encrypt sends what is for peers through WireGuard, and takes no peer without a key.
	Encrypt bool
}

// Role is what a Node does for traffic between clusters.
type Role uint8

// Roles of a Node.
const (
	None    Role = iota // the cluster has no usable Gateway
	Regular             // sends everything to this cluster's Gateways
	Gateway             // tunnels to the gateways of the peers
)

// String names the role for people.
func (r Role) String() string {
	switch r {
	case Regular:
		return "regular"
	case Gateway:
		return "gateway"
	}
	return "none"
}

// Peer is one other cluster.
type Peer struct {
	ClusterID string
	// CIDRs are the ranges behind the peer, of the versions of IP that this Node serves: its Service ranges, the first one
	// of ServiceCIDR, then its Pod ranges.
	CIDRs []netip.Prefix
	// Pods are the ranges among them that Pods are in.
	Pods []netip.Prefix
	// Kept are the ranges in CIDRs to which new connections of this Node's Pods keep the client's address, since the
	// Gateways of this cluster and of the peer accept that.
	Kept []netip.Prefix
	// Gateways are the ways to the peer's gateways, the oldest first. Leaving gateways come last. Requests from the peer
	// come from the ends of these ways.
	Gateways []Way
	// Active is set if all of the peer's gateways are in use, and it takes requests from all Gateways of this cluster
	// (FeatureActiveGateways). Otherwise the first Gateways of the two clusters have a tunnel to one another.
	Active bool
	// SingleWays is set if the peer watches a single way, too (FeatureSingleWays).
	SingleWays bool
	// Echoes is set if the peer's gateways send probes of ways back (FeatureWayEcho).
	Echoes bool
	// Relayed is set on a Gateway that is not the first one, for a peer that supports only the first. Such a Gateway sends
	// packets for the peer to the first Gateway, like a regular Node.
	Relayed bool
	// Ends are the ends of this Node's tunnels to the peer, the oldest first. On a regular Node these are this cluster's
	// Gateways, on a Gateway they are the peer's gateways.
	Ends []End
	// Sources are further source addresses of the peer's tunnels. They are for gateways behind NAT, and listed by the
	// administrator of the receiving cluster.
	Sources []netip.Prefix
	// Base is this cluster's inside address for a peer that supports only one inside address for each cluster: the first
	// of the Service range. For other peers it is not valid.
	Base netip.Addr
}

// Encrypted reports whether packets for the peer are encrypted.
func (p Peer) Encrypted() bool { return len(p.Gateways) > 0 && p.Gateways[0].Inside.IsValid() }

// Way leads to a gateway of another cluster, or to a Node of this one.
type Way struct {
	// Outside is the address in the network between the Nodes.
	Outside netip.Addr
	// Inside is the address inside WireGuard, where encrypted tunnels end. It is not valid without encryption.
	Inside netip.Addr
	// Key is the WireGuard key, none without encryption.
	Key publickey.Key
	// Next is the other end's next key; it is empty if that end does not change its key. NextPort is the port for sessions
	// during a change, or zero if the other end does not support one.
	Next     publickey.Key
	NextPort uint16
	// Leaving is set if the gateway is leaving. It carries its present connections, and no new ones.
	Leaving bool
}

// End returns the address where tunnels end.
func (w Way) End() netip.Addr {
	if w.Inside.IsValid() {
		return w.Inside
	}
	return w.Outside
}

// leads returns a function that reports whether a way leads to an address outside.
func leads(outside netip.Addr) func(Way) bool {
	return func(w Way) bool { return w.Outside == outside }
}

// End is where a tunnel of this Node ends.
type End struct {
	Addr netip.Addr
	// Leaving is set where the tunnel carries the connections that it has, and no new ones.
	Leaving bool
}

// TunnelSources returns all addresses that the peer's tunnels may come from, as ranges that do not overlap.
func (p Peer) TunnelSources() []netip.Prefix {
	var out []netip.Prefix
	all := slices.Clone(p.Sources)
	for _, w := range p.Gateways {
		all = append(all, netip.PrefixFrom(w.End(), w.End().BitLen()))
	}
	slices.SortStableFunc(all, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() }) // wide ranges first
	for _, s := range all {
		if !slices.ContainsFunc(out, s.Overlaps) {
			out = append(out, s)
		}
	}
	return out
}

// GatewayNode is a Node of this cluster that is a Gateway.
type GatewayNode struct {
	Name string
	// GatewayIP is the end of tunnels of other clusters, InternalIP the end of tunnels of this cluster's Nodes.
	GatewayIP, InternalIP netip.Addr
	// InsideIP is the end of encrypted tunnels of other clusters; not valid if it is not known.
	InsideIP netip.Addr
	// Phase is set while it comes or goes: multicluster.PhaseJoining and so on.
	Phase string
}

// Used reports whether others send through the Gateway.
func (g GatewayNode) Used() bool { return g.Phase == "" }

// sends reports whether it sends its own packets to other clusters itself.
func (g GatewayNode) sends() bool { return g.Used() || g.Phase == multicluster.PhaseLeaving }

// Part is this Node's part in traffic between clusters, without the peers.
type Part struct {
	Role Role
	// Gateways are the Gateways of this cluster, the oldest first. Joining and leaving Gateways come last.
	Gateways []GatewayNode
	// Gateway is this Node, where it is a Gateway, else the first Gateway.
	Gateway GatewayNode
	// End is the address where tunnels of other clusters to that Gateway end. With encryption it is the inside address:
	// InsideIP, or the base of this cluster's Service range if that is not set.
	End netip.Addr
	// Closed are the clusters to which no packet may go in plain text. They need not be peers, and are listed for role
	// None too.
	Closed []Closed
}

// Peering is all that one Node does for traffic between clusters.
type Peering struct {
	Part  Part
	Peers []Peer // ordered by cluster ID
}

// Closed is a cluster to whose ranges nothing may go by another link than WireGuard's.
type Closed struct {
	ClusterID string
	// Base is the end of the cluster's encrypted tunnels if it knows one inside address.
	Base netip.Addr
	// CIDRs are the ranges of a closed cluster that this cluster reaches, or would reach without a fault: the Service
	// ranges, then the Pod ranges.
	CIDRs []netip.Prefix
}

// Others are the Gateways of this cluster but this Node.
func (p Part) Others() []GatewayNode {
	isThis := func(g GatewayNode) bool { return p.Role == Gateway && g.Name == p.Gateway.Name }
	return slices.DeleteFunc(slices.Clone(p.Gateways), isThis)
}

// Carriers returns the other Gateways that may carry this Node's connections: all except joining ones.
func (p Part) Carriers() []GatewayNode {
	return slices.DeleteFunc(p.Others(), func(g GatewayNode) bool { return g.Phase == multicluster.PhaseJoining })
}

// OwnEnds returns where tunnels to the carriers end, the oldest first.
func (p Part) OwnEnds() (ends []End) {
	for _, g := range p.Carriers() {
		ends = append(ends, End{Addr: g.InternalIP, Leaving: !g.Used()})
	}
	return ends
}

// Direct reports whether this Node has tunnels to the peer itself.
func (p Part) Direct(peer Peer) bool { return p.Takes(peer) && p.Gateway.sends() }

// Takes reports whether this Node accepts packets of the peer's gateways.
func (p Part) Takes(peer Peer) bool { return p.Role == Gateway && !peer.Relayed }

// Ways returns the ways to the peer's gateways that this Node has itself, the oldest first.
func (p Part) Ways(peer Peer) []Way {
	switch {
	case !p.Takes(peer):
		return nil
	case !peer.Active:
		return peer.Gateways[:min(1, len(peer.Gateways))]
	}
	return peer.Gateways
}

// SetInternalIP changes where the tunnels of this cluster's Nodes to a Gateway end.
func (p *Peering) SetInternalIP(gateway string, to netip.Addr) {
	p.Part.Gateways = slices.Clone(p.Part.Gateways)
	for i := range p.Part.Gateways {
		if p.Part.Gateways[i].Name == gateway {
			p.Part.Gateways[i].InternalIP = to
		}
	}
	if p.Part.Gateway.Name == gateway {
		p.Part.Gateway.InternalIP = to
	}
	p.ends()
}

// ends fills in where the tunnels to the peers end.
func (p *Peering) ends() {
	for i := range p.Peers {
		peer := &p.Peers[i]
		peer.Relayed = p.Part.Role == Gateway && !peer.Active && p.Part.Gateways[0].Name != p.Part.Gateway.Name
		switch {
		case p.Part.Direct(*peer):
			peer.Ends = nil
			for _, w := range p.Part.Ways(*peer) {
				peer.Ends = append(peer.Ends, End{Addr: w.End(), Leaving: w.Leaving})
			}
		case peer.Active:
			peer.Ends = p.Part.OwnEnds()
		default: // the first, for all connections
			peer.Ends = []End{{Addr: p.Part.OwnEnds()[0].Addr}}
		}
	}
}

// Watched returns the ends of this Node's ways that BFD watches: the ways between the Gateways of this cluster if there
// are several, and a Gateway's ways to the gateways of peers. A single way is watched if the peer watches it too, so
// that the loss of a cluster is found. The second result is true if this Node is one of several Gateways. Then the ways
// to all other Nodes of this cluster are watched as well, since BFD needs both ends.
func (p Part) Watched(peers []Peer) (ends []netip.Addr, nodes bool) {
	add := func(a netip.Addr) {
		if !slices.Contains(ends, a) {
			ends = append(ends, a)
		}
	}
	if several := len(p.Gateways) > 1; several {
		nodes = p.Role == Gateway
		for _, g := range p.Others() {
			add(g.InternalIP)
		}
	}
	for _, peer := range peers {
		if p.Takes(peer) && peer.Active && (peer.SingleWays || len(p.Gateways) > 1 || len(peer.Gateways) > 1) {
			for _, w := range peer.Gateways {
				add(w.End())
			}
		}
	}
	return ends, nodes
}

// Plan decides a Node's peering. It uses all usable Gateways, the oldest first, equally old ones by name. A Problem
// reports a peer that cannot be used, or whose ranges overlap this cluster's or an older ClusterInfoImport's. Only that
// peer is left out.
func Plan(v View) (Peering, []problem.Problem) {
	p := planner{view: v}
	part, ok := p.ownGateways()
	p.own = part.Gateways
	imports := slices.Clone(v.ClusterInfoImports)
	slices.SortFunc(imports, func(a, b *mcv1alpha1.ClusterInfoImport) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c // a newer one takes nothing from an older one
		}
		return strings.Compare(importKey(a), importKey(b))
	})
	closed := p.closed(imports)
	if !ok {
		return Peering{Part: Part{Closed: closed}}, p.problems
	}
	part.Closed, part.End = closed, part.Gateway.GatewayIP
	if p.view.Encrypt {
		if p.base, ok = p.ownBase(part.Gateways[0].Name); !ok {
			return Peering{Part: Part{Closed: closed}}, p.problems
		}
		part, p.inside = part.withoutEnds(), part.knownInside()
		if part.End = p.base; part.Gateway.InsideIP.IsValid() {
			part.End = part.Gateway.InsideIP
		}
	}
	for _, ci := range imports {
		peer, ok := p.peer(ci)
		if !ok {
			continue
		}
		p.peers = append(p.peers, peer)
	}
	if p.view.Encrypt {
		for i := range p.peers {
			p.peers[i].onlyInside()
		}
	} else { // they come from inside otherwise
		p.tunnelSources()
	}
	out := Peering{Part: part, Peers: p.peers}
	slices.SortFunc(out.Peers, func(a, b Peer) int { return strings.Compare(a.ClusterID, b.ClusterID) })
	out.ends()
	return out, p.problems
}

func importKey(ci *mcv1alpha1.ClusterInfoImport) string {
	return ci.Spec.ClusterID + "\x00" + ci.Namespace + "/" + ci.Name
}

type planner struct {
	view     View
	own      []GatewayNode // of this cluster
	base     netip.Addr    // this cluster's address inside WireGuard, for peers that know one a cluster
	inside   bool          // this cluster's Gateways have addresses of their own there
	peers    []Peer        // accepted so far
	problems []problem.Problem
}

func (p *planner) report(object problem.Object, field string, reason reasons.Reason, format string, args ...any) {
	p.problems = append(p.problems,
		problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// byAge compares Gateways by age, equally old ones by name.
func byAge(a, b *mcv1alpha1.Gateway) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
}

// Over6 reports whether this cluster's tunnels to other clusters are over IPv6.
func Over6(gateways []*mcv1alpha1.Gateway) bool {
	return isOver6(decisive(slices.SortedFunc(slices.Values(gateways), byAge)))
}

// decisive returns the Gateway whose address has the version of IP of all tunnels between clusters: the oldest usable
// one that is neither joining nor leaving, else the oldest usable one. The result is nil if no Gateway is usable.
func decisive(sorted []*mcv1alpha1.Gateway) (first *mcv1alpha1.Gateway) {
	for _, g := range sorted {
		_, err := claims.Address(g.GatewayIP)
		_, err2 := claims.Address(g.InternalIP)
		switch used := g.Annotations[multicluster.AnnotationPhase] == ""; {
		case err != nil || err2 != nil:
		case used:
			return g
		case first == nil:
			first = g
		}
	}
	return first
}

// isOver6 reports whether tunnels to a Gateway from other clusters are over IPv6.
func isOver6(g *mcv1alpha1.Gateway) bool {
	if g == nil {
		return false
	}
	ip, err := claims.Address(g.GatewayIP)
	return err == nil && ip.Is6()
}

// ownGateways finds this cluster's usable Gateways; false without any.
func (p *planner) ownGateways() (out Part, ok bool) {
	gateways := slices.SortedFunc(slices.Values(p.view.Gateways), byAge)
	out.Role = Regular
	first := decisive(gateways)
	for _, g := range gateways {
		object := problem.Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}
		gatewayIP, err := claims.Address(g.GatewayIP)
		if err != nil {
			p.report(object, "gatewayIP", reasonInvalidGatewayIP,
				"%v, the Gateway is not used: give Node %s an address that other clusters reach, or set its annotation "+
					"multicluster.antrea.io/gateway-ip", err, g.Name)
			continue
		}
		internalIP, err := claims.Address(g.InternalIP)
		if err != nil {
			p.report(object, "internalIP", reasonInvalidInternalIP,
				"%v, the Gateway is not used: give Node %s an InternalIP", err, g.Name)
			continue
		}
		if isOver6(first) != gatewayIP.Is6() {
			p.report(object, "gatewayIP", reasonGatewayFamiliesDiffer,
				"the Gateway is not used: tunnels between clusters end at %s, and at Gateway %s, which decides the version of "+
					"IP, at %s: give both Nodes addresses of one version of IP, or set their annotation "+
					"multicluster.antrea.io/gateway-ip to such addresses", gatewayIP, first.Name, first.GatewayIP)
			continue
		}
		if i := slices.IndexFunc(out.Gateways,
			func(o GatewayNode) bool { return o.GatewayIP == gatewayIP || o.InternalIP == internalIP }); i >= 0 {
			p.report(object, "gatewayIP", reasonDuplicateGatewayIP,
				"the Gateway is not used: Gateway %s, which is older, has one of its addresses %s and %s: give each Node "+
					"addresses of its own, or correct the annotation multicluster.antrea.io/gateway-ip of Node %s",
				out.Gateways[i].Name, gatewayIP, internalIP, g.Name)
			continue
		}
		insideIP, _ := inside(g.Annotations[multicluster.AnnotationInsideIP]) // of the member controller
		out.Gateways = append(out.Gateways, GatewayNode{Name: g.Name, GatewayIP: gatewayIP, InternalIP: internalIP,
			InsideIP: insideIP, Phase: g.Annotations[multicluster.AnnotationPhase]})
	}
	if len(out.Gateways) == 0 {
		return Part{}, false
	}
	used := slices.ContainsFunc(out.Gateways, GatewayNode.Used)
	for i := range out.Gateways {
		g := &out.Gateways[i]
		if !used { // better through one that comes or goes than through no Gateway
			g.Phase = ""
		}
		if g.Name == p.view.NodeName {
			out.Role, out.Gateway = Gateway, *g
		}
	}
	slices.SortStableFunc(out.Gateways, func(a, b GatewayNode) int {
		switch {
		case a.Used() == b.Used():
			return 0
		case a.Used():
			return -1
		}
		return 1
	})
	if out.Role == Regular {
		out.Gateway = out.Gateways[0]
	}
	return out, true
}

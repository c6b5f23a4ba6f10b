// Package peering turns the Gateways of this cluster and the ClusterInfoImports of the others
// into what a Node has to know: its role, and for each peer what lies behind it and where its
// tunnels go. It is pure: no client, no clock.
package peering

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"

	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// Own are the addresses of this cluster; a peer's ranges and gateways must not meet them,
// whatever the leader says: traffic to them would be drawn into a tunnel.
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
	// ClusterSets may say where tunnels of peers come from (AnnotationTunnelSources).
	ClusterSets []*mcv1alpha2.ClusterSet
	Own         Own
	// PodToPod makes the Pod ranges of peers reachable, not only their Services.
	PodToPod bool
	// PreserveClientIP is the configuration's: auto, always or never. Pods are the ranges of this Node's Pods.
	PreserveClientIP string
	Pods             []netip.Prefix
	// Tunnel is the feature that says what tunnels this cluster has; empty for Geneve on its own port.
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
	// CIDRs are the ranges behind the peer, its Service range first.
	CIDRs []netip.Prefix
	// Pods are those of them that Pods are in.
	Pods []netip.Prefix
	// Preserve says that new connections of this Node's Pods to the peer's Pods keep the client's address: the Gateways of
	// this cluster, and the peer, take them so.
	Preserve bool
	// Gateways are the peer's gateway addresses, the oldest first. Requests from the
	// peer come from one of them.
	Gateways []netip.Addr
	// Leaving are those of them that are about to go, and carry what they carry alone.
	Leaving []netip.Addr
	// Active says that all of the peer's gateways are in use, and that it takes requests from all Gateways of
	// this cluster (FeatureActiveGateways). Else the first of each cluster tunnel to one another.
	Active bool
	// SingleWays says that the peer watches a single way, too (FeatureSingleWays).
	SingleWays bool
	// Relayed is set on a Gateway that is not the first, for a peer that knows the first alone: it sends what
	// is for the peer to the first Gateway, like a regular Node.
	Relayed bool
	// Ways are where this Node's tunnels to the peer end, the oldest first: the internal addresses of this
	// cluster's Gateways on a regular Node, the peer's gateways on a Gateway.
	Ways []netip.Addr
	// Going are those of the ways that new connections do not take.
	Going []netip.Addr
	// Sources are further addresses that the peer's tunnels come from: those of gateways behind
	// NAT, which the receiving cluster's administrator has written down.
	Sources []netip.Prefix
	// WireGuard are the ends of encrypted ways, one for each of Gateways, which are the addresses inside then; empty where what is for
	// the peer is not encrypted.
	WireGuard []WireGuard
	// Base is this cluster's address for a peer that knows one inside a cluster, and takes nothing from another: the first of the
	// Service range. It is not valid for others.
	Base netip.Addr
}

// WireGuard is the other end of an encrypted way.
type WireGuard struct {
	PublicKey publickey.Key
	Endpoint  netip.Addr // the peer's gateway, outside
	Inside    netip.Addr // where tunnels to it end
	// Next is the key that the peer changes to, none while it does not. NextPort is where it takes sessions meanwhile, zero
	// where it cannot do so.
	Next     publickey.Key
	NextPort uint16
}

// TunnelSources are all addresses that the peer's tunnels may come from, as ranges that do not
// overlap.
func (p Peer) TunnelSources() []netip.Prefix {
	var out []netip.Prefix
	all := slices.Clone(p.Sources)
	for _, ip := range p.Gateways {
		all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
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
	// GatewayIP is where tunnels of other clusters end, InternalIP where those of this cluster's Nodes do.
	GatewayIP, InternalIP netip.Addr
	// InsideIP is where encrypted tunnels of other clusters end; not valid where it is not known.
	InsideIP netip.Addr
	// Phase is set while it comes or goes: multicluster.PhaseJoining and so on.
	Phase string
}

// Used says whether others send by the Gateway.
func (g GatewayNode) Used() bool { return g.Phase == "" }

// sends says whether it sends its own to other clusters itself.
func (g GatewayNode) sends() bool { return g.Used() || g.Phase == multicluster.PhaseLeaving }

// Peering is what one Node does for traffic between clusters.
type Peering struct {
	Role Role
	// Gateways are those of this cluster, the oldest first, and those that come and go behind the others.
	Gateways []GatewayNode
	// GatewayNode is this Node, where it is a Gateway, else the first Gateway. Where traffic is encrypted its GatewayIP is
	// the address inside: InsideIP, or else the base of this cluster's Service range.
	GatewayNode
	Peers []Peer // ordered by cluster ID
	// Closed are the clusters that are reached encrypted or not at all, peers or not, also where the role is None.
	Closed []Closed
}

// Closed is a cluster to whose ranges nothing may go by another link than WireGuard's.
type Closed struct {
	ClusterID string
	CIDRs     []netip.Prefix // those of them that this cluster reaches, or would: the Service range, then those of Pods
}

// Base is where the cluster's encrypted tunnels end if it knows one address inside: the first of its Service range.
func (c Closed) Base() netip.Addr { return c.CIDRs[0].Addr() }

// Others are the Gateways of this cluster but this Node.
func (p Peering) Others() []GatewayNode {
	return slices.DeleteFunc(slices.Clone(p.Gateways), func(g GatewayNode) bool { return p.Role == Gateway && g.Name == p.Name })
}

// Carriers are those of the others that this Node's connections may be on: the ones that new connections take, and those that go.
func (p Peering) Carriers() []GatewayNode {
	return slices.DeleteFunc(p.Others(), func(g GatewayNode) bool { return g.Phase == multicluster.PhaseJoining })
}

// OwnWays are the ends of the ways to the carriers, the oldest first, and which of them are going.
func (p Peering) OwnWays() (ends, going []netip.Addr) {
	for _, g := range p.Carriers() {
		if ends = append(ends, g.InternalIP); !g.Used() {
			going = append(going, g.InternalIP)
		}
	}
	return ends, going
}

// Direct says whether this Node tunnels to the peer itself.
func (p Peering) Direct(peer Peer) bool { return p.Takes(peer) && p.sends() }

// Takes says whether this Node takes what the peer's gateways send it.
func (p Peering) Takes(peer Peer) bool { return p.Role == Gateway && !peer.Relayed }

// Ends are the gateways of the peer that this Node's tunnels end at, the oldest first; none on a Node that has none.
func (p Peering) Ends(peer Peer) []netip.Addr {
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
	p.Gateways = slices.Clone(p.Gateways)
	for i := range p.Gateways {
		if p.Gateways[i].Name == gateway {
			p.Gateways[i].InternalIP = to
		}
	}
	if p.Name == gateway {
		p.InternalIP = to
	}
	p.ways()
}

// ways fills in where the tunnels to the peers end.
func (p *Peering) ways() {
	for i := range p.Peers {
		peer := &p.Peers[i]
		peer.Relayed = p.Role == Gateway && !peer.Active && p.Gateways[0].Name != p.Name
		if p.Direct(*peer) {
			peer.Ways, peer.Going = slices.Clone(p.Ends(*peer)), peer.Leaving
			continue
		}
		if peer.Ways, peer.Going = p.OwnWays(); !peer.Active {
			peer.Ways, peer.Going = peer.Ways[:1], nil
		}
	}
}

// Watched are the ways of this Node that are watched by BFD: those between the Gateways of this cluster where there are several, and
// a Gateway's to the gateways of peers, also a single one where the peer does that too, by which it is found that a cluster is gone. The second result says
// whether all other Nodes of this cluster are watched as well: to them it is one of several Gateways, and BFD takes both ends.
func (p Peering) Watched() (ends []netip.Addr, nodes bool) {
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
	for _, peer := range p.Peers {
		if p.Takes(peer) && peer.Active && (peer.SingleWays || len(p.Gateways) > 1 || len(peer.Gateways) > 1) {
			for _, ip := range peer.Gateways {
				add(ip)
			}
		}
	}
	return ends, nodes
}

// Plan decides a Node's peering. All usable Gateways count, the oldest first, of equally old ones the
// first by name. A peer that cannot be used, or whose ranges meet this cluster's or those of
// a peer whose ClusterInfoImport is older, is a Problem and is left out alone.
func Plan(v View) (Peering, []problem.Problem) {
	p := planner{view: v}
	out, ok := p.ownGateways()
	p.own = out.Gateways
	imports := slices.Clone(v.ClusterInfoImports)
	slices.SortFunc(imports, func(a, b *mcv1alpha1.ClusterInfoImport) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c // a newer one takes nothing from an older one
		}
		return strings.Compare(importKey(a), importKey(b))
	})
	closed := p.closed(imports)
	if !ok {
		return Peering{Closed: closed}, p.problems
	}
	out.Closed = closed
	p.kept = p.keeps()
	if p.view.Encrypt {
		if p.base, ok = p.ownBase(out.Gateways[0].Name); !ok {
			return Peering{Closed: closed}, p.problems
		}
		out, p.inside = out.withoutEnds(), out.knownInside()
		if out.GatewayIP = p.base; out.InsideIP.IsValid() {
			out.GatewayIP = out.InsideIP
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
			p.peers[i].goInside()
		}
	} else { // they come from inside otherwise
		p.tunnelSources()
	}
	out.Peers = p.peers
	slices.SortFunc(out.Peers, func(a, b Peer) int { return strings.Compare(a.ClusterID, b.ClusterID) })
	out.ways()
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
	kept     string        // why connections of this Node's Pods do not keep the client's address; empty where they do
	peers    []Peer        // accepted so far
	problems []problem.Problem
}

func (p *planner) report(object problem.Object, field, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// ownGateways finds this cluster's usable Gateways; false when there is none.
func (p *planner) ownGateways() (out Peering, ok bool) {
	gateways := slices.Clone(p.view.Gateways)
	slices.SortFunc(gateways, func(a, b *mcv1alpha1.Gateway) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	out.Role = Regular
	for _, g := range gateways {
		object := problem.Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}
		gatewayIP, err := claims.Address(g.GatewayIP)
		if err != nil {
			p.report(object, "gatewayIP", "InvalidGatewayIP",
				"%v, the Gateway is not used: give Node %s an IPv4 address, or set its annotation multicluster.antrea.io/gateway-ip", err, g.Name)
			continue
		}
		internalIP, err := claims.Address(g.InternalIP)
		if err != nil {
			p.report(object, "internalIP", "InvalidInternalIP",
				"%v, the Gateway is not used: give Node %s an IPv4 InternalIP", err, g.Name)
			continue
		}
		if i := slices.IndexFunc(out.Gateways, func(o GatewayNode) bool { return o.GatewayIP == gatewayIP || o.InternalIP == internalIP }); i >= 0 {
			p.report(object, "gatewayIP", "DuplicateGatewayIP",
				"the Gateway is not used: Gateway %s, which is older, has one of its addresses %s and %s: give each Node addresses of its own, or correct the annotation multicluster.antrea.io/gateway-ip of Node %s",
				out.Gateways[i].Name, gatewayIP, internalIP, g.Name)
			continue
		}
		insideIP, _ := inside(g.Annotations[multicluster.AnnotationInsideIP]) // of the member controller
		out.Gateways = append(out.Gateways, GatewayNode{Name: g.Name, GatewayIP: gatewayIP, InternalIP: internalIP, InsideIP: insideIP, Phase: g.Annotations[multicluster.AnnotationPhase]})
	}
	if len(out.Gateways) == 0 {
		return Peering{}, false
	}
	used := slices.ContainsFunc(out.Gateways, GatewayNode.Used)
	for i := range out.Gateways {
		g := &out.Gateways[i]
		if !used { // better by one that comes or goes than by none
			g.Phase = ""
		}
		if g.Name == p.view.NodeName {
			out.Role, out.GatewayNode = Gateway, *g
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
		out.GatewayNode = out.Gateways[0]
	}
	return out, true
}

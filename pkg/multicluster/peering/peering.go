// Package peering turns the Gateway of this cluster and the ClusterInfoImports of the others
// into what a Node has to know: its role, and for each peer what lies behind it and where its
// tunnel goes. It is pure: no client, no clock.
package peering

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"

	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
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
	// AllowUnencryptedPeers accepts peers that announce a WireGuard key, in plain text.
	AllowUnencryptedPeers bool
}

// Role is what a Node does for traffic between clusters.
type Role uint8

// Roles of a Node.
const (
	None    Role = iota // the cluster has no usable Gateway
	Regular             // sends everything to the Gateway's Node
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
	// Gateways are the peer's gateway addresses, the one in use first. Requests from the
	// peer come from one of them.
	Gateways []netip.Addr
	// Via is where this Node's tunnel to the peer ends: the own Gateway's internal address
	// on a regular Node, the peer's gateway on the Gateway.
	Via netip.Addr
	// Sources are further addresses that the peer's tunnels come from: those of gateways behind
	// NAT, which the receiving cluster's administrator has written down.
	Sources []netip.Prefix
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

// Peering is what one Node does for traffic between clusters.
type Peering struct {
	Role                  Role
	Gateway               string // name of this cluster's Gateway, which is its Node's
	GatewayIP, InternalIP netip.Addr
	Peers                 []Peer // ordered by cluster ID
}

// Plan decides a Node's peering. The oldest usable Gateway counts, of equally old ones the
// first by name. A peer that cannot be used, or whose ranges meet this cluster's or those of
// a peer whose ClusterInfoImport is older, is a Problem and is left out alone.
func Plan(v View) (Peering, []problem.Problem) {
	p := planner{view: v}
	out, ok := p.gateway()
	if !ok {
		return Peering{}, p.problems
	}
	p.self = out.GatewayIP
	imports := slices.Clone(v.ClusterInfoImports)
	slices.SortFunc(imports, func(a, b *mcv1alpha1.ClusterInfoImport) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c // a newer one takes nothing from an older one
		}
		return strings.Compare(importKey(a), importKey(b))
	})
	for _, ci := range imports {
		peer, ok := p.peer(ci)
		if !ok {
			continue
		}
		peer.Via = peer.Gateways[0]
		if out.Role == Regular {
			peer.Via = out.InternalIP
		}
		p.peers = append(p.peers, peer)
	}
	p.tunnelSources()
	out.Peers = p.peers
	slices.SortFunc(out.Peers, func(a, b Peer) int { return strings.Compare(a.ClusterID, b.ClusterID) })
	return out, p.problems
}

func importKey(ci *mcv1alpha1.ClusterInfoImport) string {
	return ci.Spec.ClusterID + "\x00" + ci.Namespace + "/" + ci.Name
}

type planner struct {
	view     View
	self     netip.Addr // own gatewayIP
	peers    []Peer     // accepted so far
	problems []problem.Problem
}

func (p *planner) report(object problem.Object, field, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// gateway chooses this cluster's Gateway.
func (p *planner) gateway() (Peering, bool) {
	gateways := slices.Clone(p.view.Gateways)
	slices.SortFunc(gateways, func(a, b *mcv1alpha1.Gateway) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
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
		out := Peering{Role: Regular, Gateway: g.Name, GatewayIP: gatewayIP, InternalIP: internalIP}
		if g.Name == p.view.NodeName {
			out.Role = Gateway
		}
		return out, true
	}
	return Peering{}, false
}

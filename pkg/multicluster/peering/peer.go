package peering

import (
	"fmt"
	"net/netip"
	"slices"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// peer reads one ClusterInfoImport; false when it cannot be used.
func (p *planner) peer(ci *mcv1alpha1.ClusterInfoImport) (Peer, bool) {
	object := problem.Object{Kind: "ClusterInfoImport", Namespace: ci.Namespace, Name: ci.Name}
	id := ci.Spec.ClusterID
	if id == "" {
		p.report(object, "spec.clusterID", "NoClusterID", "the cluster has no ID and is ignored: set clusterID in that cluster's ClusterSet")
		return Peer{}, false
	}
	if slices.ContainsFunc(p.peers, func(o Peer) bool { return o.ClusterID == id }) {
		p.report(object, "spec.clusterID", "DuplicateCluster", "cluster %s is described by another ClusterInfoImport already, this one is ignored: delete one of them", id)
		return Peer{}, false
	}
	services, err := usableRange(ci.Spec.ServiceCIDR)
	if err != nil {
		p.report(object, "spec.serviceCIDR", "InvalidServiceCIDR", "cluster %s ignored: %v: set serviceCIDR in the configuration of that cluster's member controller", id, err)
		return Peer{}, false
	}
	if other := p.overlaps(services, nil); other != "" {
		p.report(object, "spec.serviceCIDR", "OverlappingServiceCIDR", "cluster %s ignored: its Service range %s overlaps %s: give the clusters of a ClusterSet Service ranges that do not overlap", id, services, other)
		return Peer{}, false
	}
	peer := Peer{ClusterID: id, CIDRs: []netip.Prefix{services}}
	if !p.gateways(object, ci, &peer) {
		return Peer{}, false
	}
	if p.view.PodToPod {
		p.podCIDRs(object, ci, &peer)
	}
	return peer, true
}

// gateways adds the peer's usable gateway addresses; false when there is none.
func (p *planner) gateways(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) bool {
	if len(ci.Spec.GatewayInfos) == 0 {
		p.report(object, "spec.gatewayInfos", "NoGateway", "cluster %s ignored: it has no gateway: annotate one of its Nodes with multicluster.antrea.io/gateway=true", peer.ClusterID)
		return false
	}
	for i, info := range ci.Spec.GatewayInfos {
		field := fmt.Sprintf("spec.gatewayInfos[%d].gatewayIP", i)
		ip, err := usableIP(info.GatewayIP)
		if err != nil {
			p.report(object, field, "InvalidGatewayIP", "gateway of cluster %s ignored: %v: correct the address of that cluster's gateway Node or its annotation multicluster.antrea.io/gateway-ip", peer.ClusterID, err)
			continue
		}
		if owner := p.gatewayOwner(ip); owner != "" {
			p.report(object, field, "DuplicateGatewayIP", "gateway of cluster %s ignored: %s is the gateway of %s too: give each cluster's gateway an address of its own", peer.ClusterID, ip, owner)
			continue
		}
		if !slices.Contains(peer.Gateways, ip) {
			peer.Gateways = append(peer.Gateways, ip)
		}
	}
	return len(peer.Gateways) > 0
}

// gatewayOwner says which cluster has a gateway address already, "" when none.
func (p *planner) gatewayOwner(ip netip.Addr) string {
	if ip == p.self {
		return "this cluster"
	}
	for _, o := range p.peers {
		if slices.Contains(o.Gateways, ip) {
			return "cluster " + o.ClusterID
		}
	}
	return ""
}

// podCIDRs adds the peer's Pod ranges. A bad one is left out alone: the Services of the peer
// do not depend on it.
func (p *planner) podCIDRs(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) {
	for i, text := range ci.Spec.PodCIDRs {
		field := fmt.Sprintf("spec.podCIDRs[%d]", i)
		cidr, err := usableRange(text)
		if err != nil {
			p.report(object, field, "InvalidPodCIDR", "Pod range of cluster %s ignored: %v: correct podCIDRs in the configuration of that cluster's member controller", peer.ClusterID, err)
			continue
		}
		if other := p.overlaps(cidr, peer.CIDRs); other != "" {
			p.report(object, field, "OverlappingPodCIDR", "Pod range %s of cluster %s ignored: it overlaps %s: use Pod ranges that do not overlap, or turn enablePodToPodConnectivity off", cidr, peer.ClusterID, other)
			continue
		}
		peer.CIDRs = append(peer.CIDRs, cidr)
	}
}

// usableRange reads a range of unicast addresses.
func usableRange(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, fmt.Errorf("the range is missing")
	}
	r, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not a range such as 10.96.0.0/16", text)
	case !r.Addr().Is4():
		return netip.Prefix{}, fmt.Errorf("%s is an IPv6 range, which is not routed between clusters yet", r)
	}
	r = r.Masked()
	for _, special := range specialRanges {
		if r.Overlaps(special) {
			return netip.Prefix{}, fmt.Errorf("%s contains addresses that are never routed (%s)", r, special)
		}
	}
	return r, nil
}

// specialRanges are IPv4 addresses that no cluster can have (RFC 6890): "this network",
// loopback, link-local, multicast and reserved. A range of everything contains them too.
var specialRanges = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// overlaps says what a range of a peer meets, "" when nothing: this cluster, a peer that
// was taken before, or the peer's own ranges so far.
func (p *planner) overlaps(r netip.Prefix, own []netip.Prefix) string {
	meets := func(o netip.Prefix) bool { return o.Overlaps(r) }
	if slices.ContainsFunc(p.view.Own.ServiceCIDRs, meets) {
		return "this cluster's Service range"
	}
	if slices.ContainsFunc(p.view.Own.PodCIDRs, meets) {
		return "this cluster's Pod range"
	}
	for _, o := range p.peers {
		if slices.ContainsFunc(o.CIDRs, meets) {
			return "cluster " + o.ClusterID
		}
	}
	if slices.ContainsFunc(own, meets) {
		return "another range of the same cluster"
	}
	return ""
}

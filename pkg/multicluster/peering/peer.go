package peering

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// peer reads one ClusterInfoImport; false when it cannot be used.
func (p *planner) peer(ci *mcv1alpha1.ClusterInfoImport) (Peer, bool) {
	object := problem.Object{Kind: "ClusterInfoImport", Namespace: ci.Namespace, Name: ci.Name}
	id := ci.Spec.ClusterID
	if id == "" {
		p.report(object, "spec.clusterID", reasonNoClusterID,
			"the cluster has no ID and is ignored: set clusterID in that cluster's ClusterSet")
		return Peer{}, false
	}
	if slices.ContainsFunc(p.peers, func(o Peer) bool { return o.ClusterID == id }) {
		p.report(object, "spec.clusterID", reasonDuplicateCluster,
			"cluster %s is described by another ClusterInfoImport already, this one is ignored: delete one of them", id)
		return Peer{}, false
	}
	if _, withdrawn := ci.Annotations[multicluster.AnnotationWithdrawn]; withdrawn {
		return Peer{}, false // closed reports it
	}
	services, err := claims.Range(ci.Spec.ServiceCIDR)
	if err != nil {
		p.report(object, "spec.serviceCIDR", reasonInvalidServiceCIDR,
			"cluster %s ignored: %v: set serviceCIDR in the configuration of that cluster's member controller", id, err)
		return Peer{}, false
	}
	if other := p.overlaps(services, nil); p.serves(services) && other != "" {
		p.report(object, "spec.serviceCIDR", reasonOverlappingServiceCIDR,
			"cluster %s ignored: its Service range %s overlaps %s: give the clusters of a ClusterSet Service ranges that do "+
				"not overlap", id, services, other)
		return Peer{}, false
	}
	if !p.agreed(object, ci) {
		return Peer{}, false
	}
	peer := Peer{ClusterID: id,
		Active:     slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureActiveGateways),
		SingleWays: slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureSingleWays),
		Echoes:     slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureWayEcho)}
	if p.serves(services) {
		peer.CIDRs = []netip.Prefix{services}
	}
	if !p.gateways(object, ci, &peer) || p.view.Encrypt && !p.encryption(object, ci, services, &peer) {
		return Peer{}, false
	}
	p.tunnel(object, ci, peer)
	p.serviceCIDRs(object, ci, &peer)
	if p.view.PodToPod {
		p.podCIDRs(object, ci, &peer)
	}
	return peer, true
}

// tunnel reports a peer whose tunnels have another type or port than this cluster's. The peer is not left out, since
// such a difference is normal while a cluster changes its type. Clusters that announce no tunnels, such as Antrea's,
// are not checked.
func (p *planner) tunnel(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer Peer) {
	theirs := mcv1alpha1.TunnelOf(ci.Spec.Features)
	if !peer.Active || theirs == p.view.Tunnel {
		return
	}
	p.report(object, "spec.features", reasonTunnelTypeMismatch,
		"packets do not pass between this cluster and %s: tunnels there are %s, here %s: set tunnelType and tunnelPort in "+
			"antrea-agent.conf to the same in both clusters",
		peer.ClusterID, mcv1alpha1.TunnelName(theirs), mcv1alpha1.TunnelName(p.view.Tunnel))
}

// gateways adds the peer's usable gateway addresses; false without any.
func (p *planner) gateways(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) bool {
	if len(ci.Spec.GatewayInfos) == 0 {
		p.report(object, "spec.gatewayInfos", reasonNoGateway,
			"cluster %s ignored: it has no gateway: annotate one of its Nodes with multicluster.antrea.io/gateway=true",
			peer.ClusterID)
		return false
	}
	other := "" // the field of a gateway to which no tunnel of this cluster can lead
	for field, info := range announced(ci) {
		leaving := strings.HasPrefix(field, leavingGateways)
		field += ".gatewayIP"
		ip, err := claims.Address(info.GatewayIP)
		if err != nil {
			p.report(object, field, reasonInvalidGatewayIP,
				"gateway of cluster %s ignored: %v: correct the address of that cluster's gateway Node or its annotation "+
					"multicluster.antrea.io/gateway-ip", peer.ClusterID, err)
			continue
		}
		if ip.Is4() != p.own[0].GatewayIP.Is4() {
			other = field
			continue
		}
		if owner := p.gatewayOwner(ip); owner != "" {
			p.report(object, field, reasonDuplicateGatewayIP,
				"gateway of cluster %s ignored: %s is %s too: give each cluster's gateway an address of its own", peer.ClusterID,
				ip, owner)
			continue
		}
		if !slices.ContainsFunc(peer.Gateways, func(w Way) bool { return sameSources(w.Outside, ip) }) {
			peer.Gateways = append(peer.Gateways, Way{Outside: ip, Leaving: leaving})
		}
	}
	staying := slices.ContainsFunc(peer.Gateways, func(w Way) bool { return !w.Leaving })
	if !staying && other != "" {
		here := p.own[0]
		p.report(object, other, reasonGatewayFamiliesDiffer,
			"cluster %s is not reached: no gateway that it keeps has an address of the version of IP that this cluster's "+
				"Gateway %s has, %s: give the gateway Nodes of both clusters addresses of one version, or set their annotation "+
				"multicluster.antrea.io/gateway-ip to such addresses", peer.ClusterID, here.Name, here.GatewayIP)
	}
	return staying
}

// leavingGateways is the field of Gateways that are about to go.
const leavingGateways = "spec.leavingGateways"

// announced returns the gateways of a cluster by the fields that name them. Gateways that are leaving come last.
func announced(ci *mcv1alpha1.ClusterInfoImport) iter.Seq2[string, mcv1alpha1.GatewayInfo] {
	return func(yield func(string, mcv1alpha1.GatewayInfo) bool) {
		for i, info := range ci.Spec.GatewayInfos {
			if !yield(fmt.Sprintf("spec.gatewayInfos[%d]", i), info) {
				return
			}
		}
		if len(ci.Spec.GatewayInfos) == 0 {
			return
		}
		for i, info := range ci.Spec.LeavingGateways {
			if !yield(fmt.Sprintf("%s[%d]", leavingGateways, i), info) {
				return
			}
		}
	}
}

// gatewayOwner returns the peer that already has a gateway address, "" for a free one.
func (p *planner) gatewayOwner(ip netip.Addr) string {
	holds := func(r netip.Prefix) bool { return r.Contains(ip) }
	switch own := p.view.Own; {
	case slices.ContainsFunc(p.own, func(g GatewayNode) bool { return sameSources(g.GatewayIP, ip) }):
		return "the gateway of this cluster"
	case slices.Contains(own.Nodes, ip):
		return "a Node of this cluster"
	case slices.Contains(own.APIServers, ip):
		return "the API server of this cluster"
	case slices.ContainsFunc(own.ServiceCIDRs, holds):
		return "an address of this cluster's Service range"
	case slices.ContainsFunc(own.PodCIDRs, holds):
		return "an address of this cluster's Pod range"
	}
	for _, o := range p.peers {
		if slices.ContainsFunc(o.Gateways, func(w Way) bool { return sameSources(w.Outside, ip) }) {
			return "the gateway of cluster " + o.ClusterID
		}
		if slices.ContainsFunc(o.CIDRs, holds) {
			return "an address of cluster " + o.ClusterID
		}
	}
	return ""
}

// serviceCIDRs adds the peer's other ranges of ClusterIPs. A bad one is left out alone.
func (p *planner) serviceCIDRs(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) {
	for i, text := range ci.Spec.ServiceCIDRs {
		field := fmt.Sprintf("spec.serviceCIDRs[%d]", i)
		if text == ci.Spec.ServiceCIDR {
			continue
		}
		cidr, err := claims.Range(text)
		if err == nil && !p.serves(cidr) || slices.Contains(peer.CIDRs, cidr) {
			continue
		}
		if err != nil {
			p.report(object, field, reasonInvalidServiceCIDR,
				"Service range of cluster %s ignored: %v: correct serviceCIDRs in the configuration of that cluster's member "+
					"controller", peer.ClusterID, err)
			continue
		}
		// A cluster gets more ClusterIPs by a larger range that contains the first one (KEP-1880).
		if other := p.overlaps(cidr, nil); other != "" {
			p.report(object, field, reasonOverlappingServiceCIDR,
				"Service range %s of cluster %s ignored: it overlaps %s: give the clusters of a ClusterSet Service ranges that "+
					"do not overlap", cidr, peer.ClusterID, other)
			continue
		}
		peer.CIDRs = append(peer.CIDRs, cidr)
	}
}

// podCIDRs adds the peer's Pod ranges. It leaves out only the invalid ones: the Services of the peer do not depend on
// them.
func (p *planner) podCIDRs(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) {
	for i, text := range ci.Spec.PodCIDRs {
		field := fmt.Sprintf("spec.podCIDRs[%d]", i)
		cidr, err := claims.Range(text)
		if err != nil {
			p.report(object, field, reasonInvalidPodCIDR,
				"Pod range of cluster %s ignored: %v: correct podCIDRs in the configuration of that cluster's member controller",
				peer.ClusterID, err)
			continue
		}
		if !p.serves(cidr) {
			continue
		}
		why := p.translated(cidr, ci, peer)
		if why != "" && p.view.PreserveClientIP == PreserveAlways {
			p.report(object, field, reasonClientAddressNotKept,
				"Pod range %s of cluster %s is not reached: its clients' addresses would be translated, and "+
					"multicluster.preserveClientIP is always here, but %s; or set it to auto", cidr, peer.ClusterID, why)
			continue
		}
		if other := p.overlaps(cidr, peer.CIDRs); other != "" {
			p.report(object, field, reasonOverlappingPodCIDR,
				"Pod range %s of cluster %s ignored: it overlaps %s: use Pod ranges that do not overlap, or turn "+
					"enablePodToPodConnectivity off", cidr, peer.ClusterID, other)
			continue
		}
		peer.CIDRs = append(peer.CIDRs, cidr)
		peer.Pods = append(peer.Pods, cidr)
		if why == "" {
			peer.Kept = append(peer.Kept, cidr)
		}
	}
}

// overlaps describes a range that a peer's range overlaps: of this cluster, of an accepted peer, or one of the peer's
// ranges so far. It returns "" if the range overlaps no other one.
func (p *planner) overlaps(r netip.Prefix, own []netip.Prefix) string {
	meets := func(o netip.Prefix) bool { return o.Overlaps(r) }
	if slices.ContainsFunc(p.view.Own.ServiceCIDRs, meets) {
		return "this cluster's Service range"
	}
	if slices.ContainsFunc(p.view.Own.PodCIDRs, meets) {
		return "this cluster's Pod range"
	}
	for _, n := range p.view.Own.Nodes {
		if r.Contains(n) {
			return "this cluster's Nodes (" + n.String() + ")"
		}
	}
	for _, g := range p.own {
		if r.Contains(g.GatewayIP) {
			return "this cluster's gateway (" + g.GatewayIP.String() + ")"
		}
	}
	for _, a := range p.view.Own.APIServers {
		if r.Contains(a) {
			return "this cluster's API server (" + a.String() + ")"
		}
	}
	if i := slices.IndexFunc(p.view.Own.Networks, meets); i >= 0 {
		return "the network of this Node (" + p.view.Own.Networks[i].String() + ")"
	}
	for _, o := range p.peers {
		if slices.ContainsFunc(o.CIDRs, meets) {
			return "cluster " + o.ClusterID
		}
		if i := slices.IndexFunc(o.Gateways, func(w Way) bool { return r.Contains(w.Outside) }); i >= 0 {
			return "the gateway of cluster " + o.ClusterID + " (" + o.Gateways[i].Outside.String() + ")"
		}
	}
	if slices.ContainsFunc(own, meets) {
		return "another range of the same cluster"
	}
	return ""
}

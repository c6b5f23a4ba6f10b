package peering

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Values of View.PreserveClientIP.
const (
	PreserveAuto   = "auto"   // where both clusters can
	PreserveAlways = "always" // Pods of clusters with which it is not possible are not reached
	PreserveNever  = "never"
)

// keeps returns the reason why connections of this Node's Pods do not keep the client's address, empty if they do. The
// other clusters must know the ranges of these Pods, and the Gateways of this one must pass on untranslated packets.
// The member controller writes that into the Gateways once all agents can do it and the leader passes it on.
func (p *planner) keeps() string {
	if p.view.PreserveClientIP != PreserveAuto && p.view.PreserveClientIP != PreserveAlways {
		return "multicluster.preserveClientIP is never"
	}
	if len(p.view.Pods) == 0 {
		return "this Node has no range of Pods yet"
	}
	for _, g := range p.view.Gateways {
		if !slices.ContainsFunc(p.own, func(o GatewayNode) bool { return o.Name == g.Name }) {
			continue // it is not used
		}
		announced := announcedPods(g)
		if len(announced) == 0 {
			return "this cluster does not announce that it can: its member controller does so once podCIDRs is set in its " +
				"configuration, and multicluster.enablePodToPodConnectivity and a preserveClientIP other than never in " +
				"antrea-agent.conf of all Nodes"
		}
		for _, pods := range p.view.Pods {
			if !slices.ContainsFunc(announced,
				func(r netip.Prefix) bool { return r.Bits() <= pods.Bits() && r.Contains(pods.Addr()) }) {
				return "this cluster does not announce the range " + pods.String() +
					" of this Node's Pods: add it to podCIDRs in the configuration of its member controller"
			}
		}
	}
	return ""
}

// announcedPods returns the ranges that the other clusters know, as a Gateway lists them. A list that cannot be read is
// empty.
func announcedPods(g *mcv1alpha1.Gateway) (out []netip.Prefix) {
	for text := range strings.SplitSeq(g.Annotations[multicluster.AnnotationKeptPods], ",") {
		if r, err := netip.ParsePrefix(text); err == nil {
			out = append(out, r.Masked())
		}
	}
	return out
}

// preserves decides whether connections to a peer's Pods keep the client's address; false if its Pods are not to be
// reached without.
func (p *planner) preserves(object problem.Object, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) bool {
	if len(ci.Spec.PodCIDRs) == 0 {
		return true
	}
	why := p.kept
	if why == "" && (!peer.Active || !slices.Contains(ci.Spec.Features, mcv1alpha1.FeaturePreserveClientIP)) {
		why = "that cluster does not announce that it can (" + mcv1alpha1.FeaturePreserveClientIP + " in its features)"
	}
	peer.Preserve = why == ""
	if peer.Preserve || p.view.PreserveClientIP != PreserveAlways {
		return true
	}
	p.report(object, "spec.features", "ClientAddressNotKept",
		"Pods of cluster %s are not reached: their clients' addresses would be translated, and "+
			"multicluster.preserveClientIP is always here, but %s; or set it to auto", peer.ClusterID, why)
	return false
}

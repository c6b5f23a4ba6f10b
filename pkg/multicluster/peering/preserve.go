package peering

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// Values of View.PreserveClientIP.
const (
	PreserveAuto   = "auto"   // where both clusters can
	PreserveAlways = "always" // Pods of clusters with which it is not possible are not reached
	PreserveNever  = "never"
)

// keeps returns the reason why connections of this Node's Pods do not keep the client's address, or "" if they do. own
// are the ranges of these Pods of one version of IP. Other clusters must have these ranges, and this cluster's Gateways
// must pass on untranslated packets. The member controller lists such ranges in the Gateways, once all agents support
// it and the leader passes them on.
func (p *planner) keeps(own []netip.Prefix) string {
	if p.view.PreserveClientIP != PreserveAuto && p.view.PreserveClientIP != PreserveAlways {
		return "multicluster.preserveClientIP is never"
	}
	if len(own) == 0 {
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
		for _, pods := range own {
			if !slices.ContainsFunc(announced,
				func(r netip.Prefix) bool { return r.Bits() <= pods.Bits() && r.Contains(pods.Addr()) }) {
				return "this cluster does not announce the range " + pods.String() +
					" of this Node's Pods: add it to podCIDRs in the configuration of its member controller"
			}
		}
	}
	return ""
}

// announcedPods returns the ranges that other clusters have, as a Gateway lists them. It returns no ranges for a list
// that is not valid.
func announcedPods(g *mcv1alpha1.Gateway) (out []netip.Prefix) {
	for text := range strings.SplitSeq(g.Annotations[multicluster.AnnotationKeptPods], ",") {
		if r, err := netip.ParsePrefix(text); err == nil {
			out = append(out, r.Masked())
		}
	}
	return out
}

// translated returns the reason why connections to a range of a peer's Pods do not keep the client's address, or "" if
// they do.
func (p *planner) translated(pods netip.Prefix, ci *mcv1alpha1.ClusterInfoImport, peer *Peer) string {
	other := func(r netip.Prefix) bool { return r.Addr().Is4() != pods.Addr().Is4() }
	why := p.keeps(slices.DeleteFunc(slices.Clone(p.view.Pods), other))
	if why == "" && (!peer.Active || !slices.Contains(ci.Spec.Features, mcv1alpha1.FeaturePreserveClientIP)) {
		why = "that cluster does not announce that it can (" + mcv1alpha1.FeaturePreserveClientIP + " in its features)"
	}
	return why
}

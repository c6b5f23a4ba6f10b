package member

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

const (
	reasonCIDROverlap          = "ServiceCIDROverlap"
	reasonUnreachable          = "EndpointsUnreachable"
	reasonPodCIDRsMissing      = "PodCIDRsMissing"
	reasonStretchedPolicyUnset = "StretchedNetworkPolicyIgnored"
)

// clusterInfoImports plans what the leader's ResourceImports of other clusters' ClusterInfo become
// here. Which cluster has a range is decided here too, since the leader may be another
// implementation: what a ClusterInfoImport has, no other cluster gets. Each Node's agent decides
// for itself what it can still use.
func (p *planner) clusterInfoImports() {
	imports := slices.DeleteFunc(inOrder(p.Leader.ResourceImports), func(ri *mcv1alpha1.ResourceImport) bool {
		return ri.Spec.Kind != multicluster.ClusterInfoKind || !ri.DeletionTimestamp.IsZero() || !p.isFor(ri)
	})
	slices.SortStableFunc(imports, func(a, b *mcv1alpha1.ResourceImport) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	there := byKey(p.ClusterInfoImports)
	var candidates []claims.Candidate
	done := map[string]bool{p.id: true}
	for _, ri := range imports {
		info := ri.Spec.ClusterInfo
		switch {
		case info == nil || info.ClusterID == "":
			p.problem(object("ClusterSet", p.set.Namespace, p.set.Name), "", reasonImportInvalid, fmt.Sprintf(
				"ResourceImport %s/%s of the leader is ignored: it has no cluster ID in spec.clusterinfo", ri.Namespace, ri.Name))
			continue
		case done[info.ClusterID]:
			continue // the oldest wins every time
		}
		done[info.ClusterID] = true
		c := claims.Candidate{ClusterID: info.ClusterID, Wanted: info}
		if have := there[key{Namespace: p.Namespace, Name: info.ClusterID + multicluster.ClusterInfoSuffix}]; have != nil {
			c.Held = &have.Spec
		}
		candidates = append(candidates, c)
	}
	for i, d := range claims.Decide(candidates, nil) {
		id := candidates[i].ClusterID
		cii := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: id + multicluster.ClusterInfoSuffix}}
		about, prefix := object("ClusterInfoImport", cii.Namespace, cii.Name), "spec."
		if d.Info == nil {
			about, prefix = object("ClusterSet", p.set.Namespace, p.set.Name), ""
		}
		for _, f := range d.Faults {
			p.problem(about, prefix+f.Field, reasonImportInvalid, fmt.Sprintf("the ClusterInfo of cluster %s is not imported completely: %s", id, f.Message))
		}
		if d.Info == nil {
			continue
		}
		cii.Spec = *d.Info
		p.desired.ClusterInfoImports = append(p.desired.ClusterInfoImports, cii)
		p.ownRanges(cii)
	}
}

// ownRanges reports ranges of another cluster that this one has, too. The agents ignore them.
func (p *planner) ownRanges(cii *mcv1alpha1.ClusterInfoImport) {
	about, id := object("ClusterInfoImport", cii.Namespace, cii.Name), cii.Spec.ClusterID
	for i, text := range append([]string{cii.Spec.ServiceCIDR}, cii.Spec.PodCIDRs...) {
		r, err := claims.Range(text)
		if err != nil {
			continue
		}
		own := p.own(r)
		switch {
		case own == "":
		case i == 0:
			p.problem(about, "spec.serviceCIDR", reasonCIDROverlap, fmt.Sprintf(
				"cluster %s cannot be reached: its Service range %s overlaps this cluster's %s; one of the clusters needs another range", id, r, own))
		default:
			p.problem(about, fmt.Sprintf("spec.podCIDRs[%d]", i-1), reasonCIDROverlap, fmt.Sprintf(
				"Pods of cluster %s cannot be reached: their range %s overlaps this cluster's %s; one of the clusters needs another range", id, r, own))
		}
	}
}

// own names what of this cluster a range meets; empty for nothing.
func (p *planner) own(r netip.Prefix) string {
	if own, err := netip.ParsePrefix(p.ServiceCIDR); err == nil && own.Overlaps(r) {
		return own.String()
	}
	for _, text := range p.podRanges() {
		if own, err := netip.ParsePrefix(text); err == nil && own.Overlaps(r) {
			return "Pod range " + own.String()
		}
	}
	for _, node := range inOrder(p.Nodes) {
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && r.Contains(ip) {
				return "Node " + node.Name + " (" + a.Address + ")"
			}
		}
	}
	return ""
}

// podRanges are the ranges of this cluster's Pods: the configured ones and those of the Nodes.
func (p *planner) podRanges() []string {
	ranges := slices.Clone(p.Config.PodCIDRs)
	for _, node := range inOrder(p.Nodes) {
		ranges = append(ranges, node.Spec.PodCIDRs...)
	}
	return ranges
}

// unreachable reports an imported Service some of whose endpoints are in no range that a cluster
// announces, so that no gateway forwards to them. Where no cluster announces a range the network
// between the clusters is taken to do that.
func (p *planner) unreachable(service key, endpoints *mcv1alpha1.ResourceImport) {
	if len(p.desired.ClusterInfoImports) == 0 {
		return
	}
	var ranges []netip.Prefix
	add := func(texts ...string) {
		for _, text := range texts {
			if r, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, r)
			}
		}
	}
	add(p.ServiceCIDR)
	add(p.podRanges()...)
	for _, cii := range p.desired.ClusterInfoImports {
		add(cii.Spec.ServiceCIDR)
		add(cii.Spec.PodCIDRs...)
	}
	for _, s := range endpoints.Spec.Endpoints.Subsets {
		for _, a := range s.Addresses {
			ip, err := netip.ParseAddr(a.IP)
			if err == nil && !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(ip) }) {
				p.problem(object("Service", service.Namespace, service.Name), "", reasonUnreachable, fmt.Sprintf(
					"endpoint %s is in no range that a cluster of the ClusterSet announces, so gateways do not forward to it: set podCIDRs in the member controller's configuration of the cluster that exports it", ip))
				return
			}
		}
	}
}

// configured reports what the configuration asks for and cannot have its effect.
func (p *planner) configured() {
	set := object("ClusterSet", p.set.Namespace, p.set.Name)
	if p.Config.EnableStretchedNetworkPolicy {
		p.problem(set, "", reasonStretchedPolicyUnset,
			"enableStretchedNetworkPolicy in the controller's configuration has no effect: network policies across clusters are not enforced by this version; set it to false")
	}
	if p.Config.EndpointIPType == config.EndpointIPTypePodIP && len(p.Config.PodCIDRs) == 0 {
		p.problem(set, "", reasonPodCIDRsMissing,
			"endpointIPType PodIP exports Pods' addresses, which other clusters cannot reach through gateways without a Pod range: set podCIDRs in the controller's configuration, and multicluster.enablePodToPodConnectivity in every cluster's antrea-agent.conf")
	}
}

// clusterInfoVerdict passes on what the leader says against this cluster's ClusterInfo.
func (p *planner) clusterInfoVerdict() {
	for _, re := range p.Leader.ResourceExports {
		if re.Name != p.id+multicluster.ClusterInfoSuffix || re.Spec.Kind != multicluster.ClusterInfoKind || !re.DeletionTimestamp.IsZero() {
			continue
		}
		for _, c := range re.Status.Conditions {
			if c.Type == mcv1alpha1.ResourceExportFailure && c.Status == corev1.ConditionFalse {
				p.problem(object("ClusterSet", p.set.Namespace, p.set.Name), "", cmp.Or(c.Reason, reasonConvergeFailure), fmt.Sprintf(
					"the leader refuses ResourceExport %s/%s, by which other clusters reach this one: %s", re.Namespace, re.Name, c.Message))
			}
		}
	}
}

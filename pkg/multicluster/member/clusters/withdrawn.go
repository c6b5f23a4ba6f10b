package clusters

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// If the leader no longer has the ClusterInfo of a cluster, the cluster may have left, or may come back soon. Antrea's
// clusters withdraw theirs whenever their Gateway is replaced, and for as long as no Node can replace it.
//
// Endpoints of the cluster stay imported. Without the ClusterInfoImport, connections to the cluster and requests to its
// endpoints would leave through the default route in plain text. So if this cluster encrypts traffic between clusters,
// the ClusterInfoImport stays with the ranges. It is marked as withdrawn and has no gateways. No packet is sent to the
// cluster, and agents let no other packet to the ranges leave (peering.Closed). Deleting the object ends that at once.

// withdrawnFor is how long a ClusterInfoImport stays after the withdrawal. It equals the time for which the leader
// keeps the exports of a disconnected cluster.
const withdrawnFor = 24 * time.Hour

// withdrawn returns the ClusterInfoImports that stay although the leader no longer has a ClusterInfo of the cluster.
func (t *Tables) withdrawn(announced []*mcv1alpha1.ClusterInfoImport, m membership.Membership,
	r *derive.Reader) []*mcv1alpha1.ClusterInfoImport {
	var taken []netip.Prefix
	for _, cii := range announced {
		taken = append(taken, claims.Ranges(&cii.Spec)...)
	}
	var out []*mcv1alpha1.ClusterInfoImport
	for _, have := range derive.Values(derive.All(r, t.ClusterInfoImports)) {
		id := have.Spec.ClusterID
		over, _ := derive.Get(r, t.Forgotten, derive.ObjectOf(have))
		switch {
		case have.Namespace != t.base.Namespace, have.Name != id+multicluster.ClusterInfoSuffix, id == m.ID,
			!have.DeletionTimestamp.IsZero():
			continue
		case over,
			slices.ContainsFunc(announced, func(cii *mcv1alpha1.ClusterInfoImport) bool { return cii.Name == have.Name }),
			allWithin(claims.Ranges(&have.Spec), taken):
			continue
		}
		since := "" // until it is written
		if _, err := withdrawnSince(have); err == nil {
			since = have.Annotations[multicluster.AnnotationWithdrawn]
		}
		out = append(out, &mcv1alpha1.ClusterInfoImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: have.Namespace, Name: have.Name,
				Annotations: map[string]string{multicluster.AnnotationWithdrawn: since}},
			Spec: mcv1alpha1.ClusterInfo{ClusterID: id, ServiceCIDR: have.Spec.ServiceCIDR,
				ServiceCIDRs: have.Spec.ServiceCIDRs, PodCIDRs: have.Spec.PodCIDRs},
		})
	}
	// Agents' reports change all the time, so they are read only if they matter.
	if len(out) > 0 && !slices.ContainsFunc(derive.Values(derive.All(r, t.base.Reports)),
		func(report membership.AgentReport) bool { return report.Encrypts }) {
		return nil
	}
	return out
}

// allWithin reports whether each range is part of one of the others.
func allWithin(ranges, others []netip.Prefix) bool {
	return !slices.ContainsFunc(ranges, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
	})
}

// withdrawnSince returns the time of a withdrawal, or an error if the cluster is not withdrawn.
func withdrawnSince(cii *mcv1alpha1.ClusterInfoImport) (time.Time, error) {
	return time.Parse(time.RFC3339, cii.Annotations[multicluster.AnnotationWithdrawn])
}

// StampWithdrawn gives a withdrawal that is new its time.
func StampWithdrawn(cii *mcv1alpha1.ClusterInfoImport, now metav1.Time) {
	if text, ok := cii.Annotations[multicluster.AnnotationWithdrawn]; ok && text == "" {
		cii.Annotations[multicluster.AnnotationWithdrawn] = now.UTC().Format(time.RFC3339)
	}
}

// Forgotten are the withdrawals that are over at a time.
func Forgotten(now time.Time, imports []*mcv1alpha1.ClusterInfoImport) map[derive.Object]bool {
	out := map[derive.Object]bool{}
	for _, cii := range imports {
		if since, err := withdrawnSince(cii); err == nil && now.Sub(since) >= withdrawnFor {
			out[derive.ObjectOf(cii)] = true
		}
	}
	return out
}

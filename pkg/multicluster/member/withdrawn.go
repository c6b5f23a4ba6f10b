package member

import (
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// A cluster whose ClusterInfo the leader has no more may have left, or be about to come back: Antrea's clusters withdraw theirs whenever
// their Gateway is replaced, and for as long as no Node can replace it. Connections to it, and requests to endpoints that are still
// imported, would go by the default route then, in plain text, whatever was agreed before. So where this cluster encrypts what is for others,
// the ClusterInfoImport stays with the ranges, marked as withdrawn and without gateways: nothing is sent to the cluster, and agents let
// nothing to the ranges leave otherwise (peering.Closed). Deleting the object ends that at once.

// withdrawnFor is how long: as long as the leader keeps what a silent cluster exports.
const withdrawnFor = 24 * time.Hour

// withdrawn are the ClusterInfoImports that stay although the leader has none of that cluster.
func (t *clusterTables) withdrawn(announced []*mcv1alpha1.ClusterInfoImport, m membership,
	r *derive.Reader) []*mcv1alpha1.ClusterInfoImport {
	var taken []netip.Prefix
	for _, cii := range announced {
		taken = append(taken, rangesOf(cii)...)
	}
	var out []*mcv1alpha1.ClusterInfoImport
	for _, have := range values(derive.All(r, t.clusterInfoImports)) {
		id := have.Spec.ClusterID
		over, _ := derive.Get(r, t.forgotten, keyOf(have))
		switch {
		case have.Namespace != t.base.namespace, have.Name != id+multicluster.ClusterInfoSuffix, id == m.ID,
			!have.DeletionTimestamp.IsZero():
			continue
		case over, slices.ContainsFunc(announced, func(cii *mcv1alpha1.ClusterInfoImport) bool { return cii.Name == have.Name }), allWithin(rangesOf(have), taken):
			continue
		}
		since := "" // until it is written
		if _, err := withdrawnSince(have); err == nil {
			since = have.Annotations[multicluster.AnnotationWithdrawn]
		}
		out = append(out, &mcv1alpha1.ClusterInfoImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: have.Namespace, Name: have.Name, Annotations: map[string]string{multicluster.AnnotationWithdrawn: since}},
			Spec:       mcv1alpha1.ClusterInfo{ClusterID: id, ServiceCIDR: have.Spec.ServiceCIDR, PodCIDRs: have.Spec.PodCIDRs},
		})
	}
	// Agents' reports change all the time: they are read only where it matters.
	if len(out) > 0 && !slices.ContainsFunc(values(derive.All(r, t.base.reports)),
		func(report agentReport) bool { return report.Encrypts }) {
		return nil
	}
	return out
}

// allWithin says whether each of some ranges is part of one of others.
func allWithin(ranges, others []netip.Prefix) bool {
	return !slices.ContainsFunc(ranges, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
	})
}

// rangesOf are the usable ranges of another cluster.
func rangesOf(cii *mcv1alpha1.ClusterInfoImport) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range append([]string{cii.Spec.ServiceCIDR}, cii.Spec.PodCIDRs...) {
		if p, err := claims.Range(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// withdrawnSince is the time of a withdrawal; an error where there is none.
func withdrawnSince(cii *mcv1alpha1.ClusterInfoImport) (time.Time, error) {
	return time.Parse(time.RFC3339, cii.Annotations[multicluster.AnnotationWithdrawn])
}

// stampWithdrawn gives a withdrawal that is new its time.
func stampWithdrawn(cii *mcv1alpha1.ClusterInfoImport, now metav1.Time) {
	if text, ok := cii.Annotations[multicluster.AnnotationWithdrawn]; ok && text == "" {
		cii.Annotations[multicluster.AnnotationWithdrawn] = now.UTC().Format(time.RFC3339)
	}
}

// forgottenAt are the withdrawals that are over at a time.
func forgottenAt(now time.Time, imports []*mcv1alpha1.ClusterInfoImport) map[derive.Object]bool {
	out := map[derive.Object]bool{}
	for _, cii := range imports {
		if since, err := withdrawnSince(cii); err == nil && now.Sub(since) >= withdrawnFor {
			out[keyOf(cii)] = true
		}
	}
	return out
}

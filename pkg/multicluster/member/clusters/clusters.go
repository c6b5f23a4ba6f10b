// Package clusters has the other clusters of the ClusterSet: their ranges (ClusterInfoImports), which of them this
// cluster reaches, and the status of the ClusterSet.
package clusters

import (
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Tables has the other clusters.
type Tables struct {
	base *membership.Tables

	ClusterInfoImports *derive.Source[derive.Object, *mcv1alpha1.ClusterInfoImport]
	Forgotten          *derive.Source[derive.Object, bool] // of clusters that were withdrawn long ago (forgottenAt)

	Infos  *derive.Table[derive.Name, []*mcv1alpha1.ClusterInfoImport]
	byName *derive.Index[derive.Object, derive.Name, []*mcv1alpha1.ClusterInfoImport]
}

// New adds the tables of other clusters.
func New(k *writes.Kinds, base *membership.Tables) *Tables {
	t := &Tables{base: base}
	t.ClusterInfoImports = writes.NewSource(k, k.Cluster, "ClusterInfoImport", "clusterinfoimports",
		clusterInfoImportFacts, writes.Version, watch.In(base.Namespace))
	t.Forgotten = derive.NewSource[derive.Object, bool](k.Engine, "withdrawals that are over")
	t.Forgotten.Loaded()
	t.Infos = derive.NewTable(k.Engine, "clusterinfos", t.infosOf, derive.KeysOf(base.Environment))
	t.byName = derive.NewIndex(t.Infos, "name", func(_ derive.Name, l []*mcv1alpha1.ClusterInfoImport) []derive.Object {
		return derive.ObjectsOf(l)
	})
	return t
}

func (t *Tables) Writes(k *writes.Kinds) *writes.Table {
	return k.Table("write-clusterinfoimports", t.writeClusterInfoImport,
		derive.KeysOf(t.ClusterInfoImports), derive.KeysOfIndex(t.byName))
}

func clusterInfoImportFacts(o *mcv1alpha1.ClusterInfoImport) *mcv1alpha1.ClusterInfoImport {
	return &mcv1alpha1.ClusterInfoImport{ObjectMeta: writes.MetaFacts(o, multicluster.AnnotationWithdrawn), Spec: o.Spec}
}

// infosOf returns the ClusterInfoImports, made from the leader's ResourceImports of other clusters' ClusterInfos. It
// decides which cluster has a range, since the leader may be another implementation. No two ClusterInfoImports share a
// range. Each Node's agent decides which of them it can use.
func (t *Tables) infosOf(_ derive.Name, r *derive.Reader) ([]*mcv1alpha1.ClusterInfoImport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if !m.Joined {
		return nil, nil
	}
	var ps problem.List
	imports := slices.DeleteFunc(derive.Values(derive.List(r, t.base.ImportsByKind, multicluster.ClusterInfoKind)),
		func(ri *mcv1alpha1.ResourceImport) bool {
			return !ri.DeletionTimestamp.IsZero() || !m.IsFor(ri)
		})
	slices.SortStableFunc(imports, func(a, b *mcv1alpha1.ResourceImport) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var candidates []claims.Candidate
	done := map[string]bool{m.ID: true}
	for _, ri := range imports {
		info := ri.Spec.ClusterInfo
		switch {
		case info == nil || info.ClusterID == "":
			ps.Add(m.ClusterSet(), "", membership.ReasonImportInvalid, fmt.Sprintf(
				"ResourceImport %s/%s of the leader is ignored: it has no cluster ID in spec.clusterinfo: "+
					"correct its ResourceExport", ri.Namespace, ri.Name))
			continue
		case done[info.ClusterID]:
			continue // the oldest wins every time
		}
		done[info.ClusterID] = true
		c := claims.Candidate{ClusterID: info.ClusterID, Wanted: info}
		if have, ok := derive.Get(r, t.ClusterInfoImports,
			derive.Object{Namespace: t.base.Namespace, Name: info.ClusterID + multicluster.ClusterInfoSuffix}); ok {
			c.Held = &have.Spec
		}
		candidates = append(candidates, c)
	}
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	var out []*mcv1alpha1.ClusterInfoImport
	for i, d := range claims.Decide(candidates, t.pinsOf(m, r)) {
		id := candidates[i].ClusterID
		cii := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: t.base.Namespace,
			Name: id + multicluster.ClusterInfoSuffix}}
		about, prefix := problem.About("ClusterInfoImport", cii.Namespace, cii.Name), "spec."
		if d.Info == nil {
			about, prefix = m.ClusterSet(), ""
		}
		for _, f := range d.Faults {
			ps.Add(about, prefix+f.Field, membership.ReasonImportInvalid,
				fmt.Sprintf("the ClusterInfo of cluster %s is not imported completely: %s", id, f.Message))
		}
		if d.Info == nil {
			continue
		}
		cii.Spec = *d.Info
		out = append(out, cii)
		reportOverlaps(own, cii, &ps)
	}
	return append(out, t.withdrawn(out, m, r)...), ps
}

// pinsOf returns the ranges that this cluster's administrator has pinned to other clusters, in annotations of its own
// ClusterSet. A member does not have the leader's pins. Only ranges that are not private need a pin. A fault of an
// annotation is reported with the range that it leaves out.
func (t *Tables) pinsOf(m membership.Membership, r *derive.Reader) claims.Pins {
	cs, _ := derive.Get(r, t.base.ClusterSets, derive.Object{Namespace: t.base.Namespace, Name: m.ClusterSet().Name})
	if cs == nil {
		return nil
	}
	pins, _ := claims.ReadPins(cs.Annotations)
	for id, pin := range pins {
		pins[id] = claims.Pin{Ranges: pin.Ranges, HasRanges: pin.HasRanges}
	}
	return pins
}

// reportOverlaps reports ranges of another cluster that overlap this cluster's ranges. The agents ignore them.
func reportOverlaps(own membership.OwnRanges, cii *mcv1alpha1.ClusterInfoImport, ps *problem.List) {
	about, id := problem.About("ClusterInfoImport", cii.Namespace, cii.Name), cii.Spec.ClusterID
	report := func(text, field, problem string) {
		r, err := claims.Range(text)
		if err != nil {
			return
		}
		if ours := own.Meets(r); ours != "" {
			ps.Add(about, field, reasonCIDROverlap, fmt.Sprintf(problem+" range %s overlaps this cluster's %s; give one of "+
				"the clusters another range", id, r, ours))
		}
	}
	report(cii.Spec.ServiceCIDR, "spec.serviceCIDR", "cluster %s cannot be reached: its Service")
	for i, text := range cii.Spec.ServiceCIDRs {
		if text != cii.Spec.ServiceCIDR {
			report(text, fmt.Sprintf("spec.serviceCIDRs[%d]", i), "some Services of cluster %s cannot be reached: their")
		}
	}
	for i, text := range cii.Spec.PodCIDRs {
		report(text, fmt.Sprintf("spec.podCIDRs[%d]", i), "Pods of cluster %s cannot be reached: their")
	}
}

func (t *Tables) writeClusterInfoImport(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.KeepsImports() {
		return nil
	}
	have, _ := derive.Get(r, t.ClusterInfoImports, k)
	var want *mcv1alpha1.ClusterInfoImport
	for _, row := range derive.List(r, t.byName, k) {
		want = writes.Named(row.Value, k)
	}
	return writes.Diff[*mcv1alpha1.ClusterInfoImport]{Kind: "ClusterInfoImport",
		Merge: mergeClusterInfoImport}.Between(have,
		want, t.base.About(m))
}

func mergeClusterInfoImport(into, want *mcv1alpha1.ClusterInfoImport) {
	writes.MergeAnnotation(into, want, multicluster.AnnotationWithdrawn)
	into.Spec = want.Spec
}

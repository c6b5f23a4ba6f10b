package tenants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// isolated has the facts of an isolated Namespace. Other Namespaces have no row.
type isolated struct {
	exportcheck.IsolatedNamespace
	Created int64
	Cut     bool // it has more labels than the list may have
}

func isolatedFacts(o *corev1.Namespace) *isolated {
	f := tenant.NamespaceFactsOf(o)
	if !f.Isolated || !o.DeletionTimestamp.IsZero() {
		return nil
	}
	n := &isolated{IsolatedNamespace: exportcheck.IsolatedNamespace{Name: o.Name, UID: o.UID}, Created: f.Created}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		if !exportcheck.Copied(key) {
			continue
		}
		bytes := len(key) + len(o.Labels[key]) + len(`"":"",`)
		if len(n.Labels) == exportcheck.MaxNamespaceLabels || size+bytes > exportcheck.MaxLabelBytes {
			n.Cut = true
			continue
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = o.Labels[key]
		size += bytes
	}
	return n
}

// newExport adds the table of the list of isolated Namespaces.
func (t *Tables) newExport(k *writes.Kinds) {
	t.namespaces = watch.NewSource(k.Cluster, "isolated namespaces", isolatedFacts)
	t.export = derive.NewTable(k.Engine, "list of namespaces", t.exportOf, derive.KeysOf(t.base.Environment))
	t.ByName = derive.NewIndex(t.export, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{derive.ObjectOf(re)}
	})
}

// exportOf returns the list of isolated Namespaces for the central cluster, if this cluster has agreed. It may be
// empty. If there are too many Namespaces, it has the oldest ones.
func (t *Tables) exportOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.ID == "" || !m.Central {
		return nil, nil
	}
	list := exportcheck.Namespaces{ClusterID: m.ID, Families: t.families(r),
		Namespaces: []exportcheck.IsolatedNamespace{}}
	all := derive.Values(derive.All(r, t.namespaces))
	slices.SortStableFunc(all, func(a, b *isolated) int { return cmp.Compare(a.Created, b.Created) })
	var cut []string
	for _, n := range all[:min(len(all), exportcheck.MaxNamespaces)] {
		list.Namespaces = append(list.Namespaces, n.IsolatedNamespace)
		if n.Cut {
			cut = append(cut, n.Name)
		}
	}
	var ps problem.List
	if len(cut) > 0 {
		slices.Sort(cut)
		ps.Add(m.ClusterSet(), "", reasonTooManyLabels, fmt.Sprintf("copies in the central cluster are without some labels "+
			"of Namespace %s: it gets at most %d labels and %d bytes of labels of each: shorten or remove labels",
			problem.Few(cut), exportcheck.MaxNamespaceLabels, exportcheck.MaxLabelBytes))
	}
	if left := len(all) - len(list.Namespaces); left > 0 {
		ps.Add(m.ClusterSet(), "", reasonTooManyNamespaces, fmt.Sprintf("%d isolated Namespaces have no copies in the "+
			"central cluster: it gets at most the %d oldest ones: delete Namespaces, or isolate fewer",
			left, exportcheck.MaxNamespaces))
	}
	slices.SortFunc(list.Namespaces, func(a, b exportcheck.IsolatedNamespace) int { return cmp.Compare(a.Name, b.Name) })
	key := derive.Object{Namespace: m.Common, Name: m.ID + multicluster.NamespacesSuffix}
	if have, _ := derive.Get(r, t.base.ResourceExports, key); have != nil {
		for _, c := range have.Status.Conditions {
			if membership.Refuses(c) {
				ps.Add(m.ClusterSet(), "", membership.ReasonOf(c), "the leader refuses the list of isolated Namespaces: "+
					c.Message)
			}
		}
	}
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.NamespacesKind, multicluster.LabelSourceClusterID: m.ID,
		}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: m.ID, Kind: multicluster.NamespacesKind,
			Raw: &mcv1alpha1.RawResource{Data: list.JSON()}},
	}, ps
}

// families returns the versions of IP of this cluster's Pods, as in v6,v4.
func (t *Tables) families(r *derive.Reader) string {
	var v4, v6 bool
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	for _, p := range own.Pods {
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	var out []string
	if v6 {
		out = append(out, "v6")
	}
	if v4 {
		out = append(out, "v4")
	}
	return strings.Join(out, ",")
}

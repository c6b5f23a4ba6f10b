// Package identities exports and imports the labels of Pods and their addresses. With them policies of one cluster
// select Pods of another one.
package identities

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"unique"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// podFacts has the labels of a Pod, and the addresses to publish. Pods in the host's network have no such addresses.
// Pods that have ended have no row.
type podFacts struct {
	Exists bool
	Labels string       // in normal form
	IPs    []netip.Addr // that its status claims, sorted
	// Node and Created decide which Pod has an address. They are set if there are IPs.
	Node    string
	Created int64 // seconds since 1970
}

// podFactsOf has the addresses in some ranges.
func podFactsOf(published []netip.Prefix) func(*corev1.Pod) podFacts {
	return func(o *corev1.Pod) podFacts {
		if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			return podFacts{}
		}
		f := podFacts{Exists: true, Labels: unique.Make(policy.PodLabels(o)).Value()}
		if o.Spec.HostNetwork {
			return f
		}
		for _, ip := range o.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if a = a.Unmap(); err == nil && slices.ContainsFunc(published, func(r netip.Prefix) bool { return r.Contains(a) }) {
				f.IPs = append(f.IPs, a)
			}
		}
		slices.SortFunc(f.IPs, netip.Addr.Compare)
		f.IPs = slices.Compact(f.IPs)
		if len(f.IPs) > 0 {
			f.Node, f.Created = unique.Make(o.Spec.NodeName).Value(), o.CreationTimestamp.Unix()
		}
		return f
	}
}

func labelIdentityFacts(o *mcv1alpha1.LabelIdentity) *mcv1alpha1.LabelIdentity {
	return &mcv1alpha1.LabelIdentity{ObjectMeta: writes.MetaFacts(o), Spec: o.Spec}
}

// labelNumber is the number of a label identity, as the key of an index.
type labelNumber uint32

// Compare makes it a key.
func (n labelNumber) Compare(o labelNumber) int { return cmp.Compare(n, o) }

// Labels has label identities. The identities of this cluster's Pods are exported, and the ClusterSet's are imported.
// Without enableStretchedNetworkPolicy there are neither.
//
//	pods, namespaces ─► identities of Pods ─► identities ─► per Namespace ─► chosen ─► exports
//	resourceimports ─► LabelIdentities
type Labels struct {
	base *membership.Tables
	Most int // label identities that are exported at most

	pods            *derive.Source[derive.Object, podFacts] // empty without enableStretchedNetworkPolicy
	labelIdentities *derive.Source[derive.Object, *mcv1alpha1.LabelIdentity]

	podIdentities    *derive.Table[derive.Object, policy.Identity]
	identitiesIn     *derive.Index[derive.Name, policy.Identity, derive.Name] // by Namespace
	identityCounts   *derive.Table[derive.Name, int]                          // by Namespace
	identityShare    *derive.Table[derive.Name, share]                        // of a Namespace
	chosenIdentities *derive.Table[derive.Name, chosen]                       // by Namespace
	LabelExports     *derive.Table[policy.Identity, *mcv1alpha1.ResourceExport]
	ByName           *derive.Index[derive.Object, policy.Identity, *mcv1alpha1.ResourceExport] // exports

	importsByNumber *derive.Index[labelNumber, derive.Object, *mcv1alpha1.ResourceImport]
	Labels          *derive.Table[derive.Object, *mcv1alpha1.LabelIdentity]
	labelsByNumber  *derive.Index[labelNumber, derive.Object, *mcv1alpha1.LabelIdentity]
}

// NewLabels adds the tables of label identities.
func NewLabels(k *writes.Kinds, base *membership.Tables) *Labels {
	t := &Labels{base: base, Most: exportcheck.MaxLabels}
	t.pods = watch.NewSource(k.Cluster, "pods", podFactsOf(publishedRanges(base.Config)),
		watch.If(base.Config.EnableStretchedNetworkPolicy))
	t.labelIdentities = writes.NewSource(k, k.Cluster, "LabelIdentity", "labelidentities",
		labelIdentityFacts, writes.Version, watch.Optional())
	e := k.Engine
	t.podIdentities = derive.NewTable(e, "identities of Pods", t.podIdentity, derive.KeysOf(t.pods))
	byIdentity := derive.NewIndex(t.podIdentities, "identity",
		func(_ derive.Object, id policy.Identity) []policy.Identity { return []policy.Identity{id} })
	identities := derive.NewTable(e, "identities",
		func(id policy.Identity, _ *derive.Reader) (derive.Name, []problem.Problem) {
			return derive.Name(id.Namespace()), nil
		}, derive.KeysOfIndex(byIdentity))
	t.identitiesIn = derive.NewIndex(identities, "namespace",
		func(_ policy.Identity, namespace derive.Name) []derive.Name { return []derive.Name{namespace} })
	t.identityCounts = derive.NewTable(e, "identities by Namespace",
		func(namespace derive.Name, r *derive.Reader) (int, []problem.Problem) {
			return len(derive.List(r, t.identitiesIn, namespace)), nil
		}, derive.KeysOfIndex(t.identitiesIn))
	t.identityShare = derive.NewTable(e, "identities that a Namespace may have", t.shareOf,
		derive.KeysOf(t.base.Environment))
	t.chosenIdentities = derive.NewTable(e, "chosen identities", t.chosenOf, derive.KeysOf(t.identityCounts))
	t.LabelExports = derive.NewTable(e, "exports of labels", t.labelExportOf, derive.KeysOf(identities))
	t.ByName = derive.NewIndex(t.LabelExports, "name",
		func(_ policy.Identity, re *mcv1alpha1.ResourceExport) []derive.Object {
			return []derive.Object{derive.ObjectOf(re)}
		})

	valid := func(ri *mcv1alpha1.ResourceImport) bool {
		return ri.Spec.Kind == multicluster.LabelIdentityKind && ri.DeletionTimestamp.IsZero() && checkLabel(ri) == nil
	}
	t.importsByNumber = derive.NewIndex(t.base.ResourceImports, "number",
		func(_ derive.Object, ri *mcv1alpha1.ResourceImport) []labelNumber {
			if !valid(ri) {
				return nil
			}
			return []labelNumber{labelNumber(ri.Spec.LabelIdentity.ID)}
		})
	named := derive.NewIndex(t.base.ResourceImports, "LabelIdentity",
		func(k derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
			if ri.Spec.Kind != multicluster.LabelIdentityKind {
				return nil
			}
			return []derive.Object{{Name: k.Name}}
		})
	t.Labels = derive.NewTable(e, "labelidentities of the ClusterSet", t.labelOf, derive.KeysOfIndex(named))
	t.labelsByNumber = derive.NewIndex(t.labelIdentities, "number",
		func(_ derive.Object, l *mcv1alpha1.LabelIdentity) []labelNumber {
			return []labelNumber{labelNumber(l.Spec.ID)}
		})
	return t
}

func (t *Labels) Writes(k *writes.Kinds) *writes.Table {
	return k.Table("write-labelidentities", t.writeLabelIdentity, derive.KeysOf(t.labelIdentities),
		derive.KeysOf(t.Labels))
}

func (t *Labels) podIdentity(pod derive.Object, r *derive.Reader) (policy.Identity, []problem.Problem) {
	facts, ok := derive.Get(r, t.pods, pod)
	namespace, has := derive.Get(r, t.base.Namespaces, derive.Object{Name: pod.Namespace})
	if !ok || !has {
		return "", nil
	}
	return policy.IdentityOf(policy.NamespaceLabels(namespace), facts.Labels), nil
}

// share bounds the identities of one Namespace; zero for no bound.
type share struct{ Most int }

// shareOf returns how many identities each Namespace may export if all together are too many. Labels such as the name
// of a StatefulSet's Pod make every Pod an identity of its own. A Namespace with many identities does not reduce the
// share of one with few.
func (t *Labels) shareOf(_ derive.Name, r *derive.Reader) (share, []problem.Problem) {
	counts := derive.Values(derive.All(r, t.identityCounts))
	slices.Sort(counts)
	left := t.Most
	for i, n := range counts {
		fair := left / (len(counts) - i)
		if n > fair {
			m, _ := derive.Get(r, t.base.Membership, membership.Here)
			var ps problem.List
			ps.Add(m.ClusterSet(), "", reasonLabelLimit, fmt.Sprintf(
				"Pods here have more than %d different sets of labels: of the Namespaces that have most of them not "+
					"all are exported, and policies of other clusters take Pods with the others for unknown; use fewer "+
					"labels that differ from Pod to Pod",
				t.Most))
			return share{max(1, fair)}, ps
		}
		left -= n
	}
	return share{}, nil
}

// chosen are the identities of a Namespace that has too many.
type chosen struct{ Identities map[policy.Identity]bool }

// chosenOf has those first that are exported already.
func (t *Labels) chosenOf(namespace derive.Name, r *derive.Reader) (chosen, []problem.Problem) {
	s, _ := derive.Get(r, t.identityShare, membership.Here)
	n, _ := derive.Get(r, t.identityCounts, namespace)
	if s.Most == 0 || n <= s.Most {
		return chosen{}, nil
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	var have, others []policy.Identity
	for _, row := range derive.List(r, t.identitiesIn, namespace) {
		if _, exported := derive.Get(r, t.base.ResourceExports, labelExportKey(m, row.Key)); exported {
			have = append(have, row.Key)
		} else {
			others = append(others, row.Key)
		}
	}
	c := chosen{map[policy.Identity]bool{}}
	for _, id := range append(have, others...)[:s.Most] {
		c.Identities[id] = true
	}
	return c, nil
}

// labelExportKey is the key of the ResourceExport of an identity.
func labelExportKey(m membership.Membership, id policy.Identity) derive.Object {
	return derive.Object{Namespace: m.Common, Name: m.ID + "-" + multicluster.LabelHash(string(id))}
}

func (t *Labels) labelExportOf(id policy.Identity,
	r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.ID == "" {
		return nil, nil
	}
	var ps problem.List
	if wrong := exportcheck.Label("labels", string(id)); wrong != nil {
		ps.Add(m.ClusterSet(), "", reasonLabelInvalid,
			fmt.Sprintf("the labels of a Pod in Namespace %s and of the Namespace are not exported: %v", id.Namespace(), wrong))
		return nil, ps
	}
	if c, _ := derive.Get(r, t.chosenIdentities, derive.Name(id.Namespace())); c.Identities != nil && !c.Identities[id] {
		return nil, nil
	}
	key := labelExportKey(m, id)
	if have, _ := derive.Get(r, t.base.ResourceExports, key); have != nil {
		for _, c := range have.Status.Conditions {
			if membership.Refuses(c) { // without the name: many Problems with one cause become one
				ps.Add(m.ClusterSet(), "", membership.ReasonOf(c),
					"the leader refuses label identities of this cluster: "+c.Message)
			}
		}
	}
	return LabelExport(m, id), ps
}

// LabelExport is the ResourceExport of an identity.
func LabelExport(m membership.Membership, id policy.Identity) *mcv1alpha1.ResourceExport {
	key := labelExportKey(m, id)
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.LabelIdentityKind, multicluster.LabelSourceClusterID: m.ID,
		}},
		Spec: mcv1alpha1.ResourceExportSpec{
			ClusterID: m.ID, Kind: multicluster.LabelIdentityKind,
			LabelIdentity: &mcv1alpha1.LabelIdentityExport{NormalizedLabel: string(id)},
		},
	}
}

// checkLabel returns the defect of the ResourceImport of a label identity. The leader may be another implementation,
// which passes on any export of a member.
func checkLabel(ri *mcv1alpha1.ResourceImport) error {
	l := ri.Spec.LabelIdentity
	if l == nil {
		return fmt.Errorf("spec.labelIdentity is missing")
	}
	if l.ID < multicluster.FirstLabelID || l.ID > multicluster.LastLabelID {
		return fmt.Errorf("spec.labelIdentity.id: %d is no number of a label identity: expected %d to %d", l.ID,
			multicluster.FirstLabelID, multicluster.LastLabelID)
	}
	if err := exportcheck.Label("spec.labelIdentity.label", l.Label); err != nil {
		return err
	}
	if hash := multicluster.LabelHash(l.Label); hash != ri.Name {
		return fmt.Errorf("metadata.name: its label has the hash %s: expected that as the name", hash)
	}
	return nil
}

// labelOf returns the LabelIdentity for a ResourceImport. A number must belong to only one label. If two labels have
// the same number, the older label keeps it.
func (t *Labels) labelOf(k derive.Object, r *derive.Reader) (*mcv1alpha1.LabelIdentity, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if !m.Joined || !t.base.Config.EnableStretchedNetworkPolicy {
		return nil, nil
	}
	ri, ok := derive.Get(r, t.base.ResourceImports, derive.Object{Namespace: m.Common, Name: k.Name})
	if !ok || !ri.DeletionTimestamp.IsZero() || !m.IsFor(ri) {
		return nil, nil
	}
	wrong := checkLabel(ri)
	if wrong == nil {
		for _, other := range derive.List(r, t.importsByNumber, labelNumber(ri.Spec.LabelIdentity.ID)) {
			if cmp.Or(other.Value.CreationTimestamp.Compare(ri.CreationTimestamp.Time),
				other.Key.Compare(derive.ObjectOf(ri))) < 0 {
				wrong = fmt.Errorf("spec.labelIdentity.id: %d is the number of ResourceImport %s, which is older",
					ri.Spec.LabelIdentity.ID, other.Key)
				break
			}
		}
	}
	if wrong != nil {
		var ps problem.List
		ps.Add(m.ClusterSet(), "", membership.ReasonImportInvalid,
			fmt.Sprintf("ResourceImport %s/%s of the leader is ignored: %v", ri.Namespace, ri.Name, wrong))
		return nil, ps
	}
	return &mcv1alpha1.LabelIdentity{ObjectMeta: metav1.ObjectMeta{Name: k.Name}, Spec: *ri.Spec.LabelIdentity}, nil
}

func (t *Labels) writeLabelIdentity(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.KeepsImports() {
		return nil
	}
	have, _ := derive.Get(r, t.labelIdentities, k)
	want, _ := derive.Get(r, t.Labels, k)
	w := writes.Diff[*mcv1alpha1.LabelIdentity]{Kind: "LabelIdentity",
		Merge: func(into, want *mcv1alpha1.LabelIdentity) { into.Spec = want.Spec }}.Between(have, want, t.base.About(m))
	if w != nil && w.Verb != writes.Delete { // a number leaves one label before it comes to another
		for _, other := range derive.List(r, t.labelsByNumber, labelNumber(want.Spec.ID)) {
			if other.Key != k {
				w.After = writes.Key("LabelIdentity", other.Value)
			}
		}
	}
	return w
}

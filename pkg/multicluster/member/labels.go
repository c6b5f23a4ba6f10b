package member

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"unique"

	"golang.org/x/time/rate"
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

const (
	reasonLabelLimit   = "LabelIdentityLimit"
	reasonLabelInvalid = "LabelIdentityInvalid"
)

// How fast label identities and Pods' addresses are exported and withdrawn, so that a flood of Pods is none for the leader: this many
// at once, then so many a second. What comes and goes while it waits costs nothing.
const (
	labelBurst   = 200
	labelRate    = rate.Limit(50)
	labelWriters = 4
)

func newLabelLimiter() *rate.Limiter { return rate.NewLimiter(labelRate, labelBurst) }

// podFacts are the labels of a Pod, and the addresses that are published. Pods in the Node's network count like others but
// for their addresses, those that have ended do not.
type podFacts struct {
	Exists bool
	Labels string       // in normal form
	IPs    []netip.Addr // that its status claims, sorted
	// Node and Created decide whose an address is; they are given where there are IPs.
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

func podAddressImportFacts(o *mcv1alpha1.PodAddressImport) *mcv1alpha1.PodAddressImport {
	return &mcv1alpha1.PodAddressImport{ObjectMeta: metaFacts(o), Spec: o.Spec}
}

func labelIdentityFacts(o *mcv1alpha1.LabelIdentity) *mcv1alpha1.LabelIdentity {
	return &mcv1alpha1.LabelIdentity{ObjectMeta: metaFacts(o), Spec: o.Spec}
}

// labelNumber is the number of a label identity, as the key of an index.
type labelNumber uint32

// Compare makes it a key.
func (n labelNumber) Compare(o labelNumber) int { return cmp.Compare(n, o) }

// labelTables are label identities: of this cluster's Pods, which are exported, and of the ClusterSet, which are
// imported. Without enableStretchedNetworkPolicy there are neither.
//
//	pods, namespaces ─► identities of Pods ─► identities ─► per Namespace ─► chosen ─► exports
//	resourceimports ─► LabelIdentities
type labelTables struct {
	base      *membershipTables
	maxLabels int // label identities that are exported at most

	pods            *derive.Source[derive.Object, podFacts] // none without enableStretchedNetworkPolicy
	labelIdentities *derive.Source[derive.Object, *mcv1alpha1.LabelIdentity]

	podIdentities    *derive.Table[derive.Object, policy.Identity]
	identitiesIn     *derive.Index[derive.Name, policy.Identity, derive.Name] // by Namespace
	identityCounts   *derive.Table[derive.Name, int]                          // by Namespace
	identityShare    *derive.Table[derive.Name, share]                        // of a Namespace
	chosenIdentities *derive.Table[derive.Name, chosen]                       // by Namespace
	labelExports     *derive.Table[policy.Identity, *mcv1alpha1.ResourceExport]
	byName           *derive.Index[derive.Object, policy.Identity, *mcv1alpha1.ResourceExport] // exports

	importsByNumber *derive.Index[labelNumber, derive.Object, *mcv1alpha1.ResourceImport]
	labels          *derive.Table[derive.Object, *mcv1alpha1.LabelIdentity]
	labelsByNumber  *derive.Index[labelNumber, derive.Object, *mcv1alpha1.LabelIdentity]
}

func newLabelTables(k *kinds, base *membershipTables) *labelTables {
	t := &labelTables{base: base, maxLabels: exportcheck.MaxLabels}
	t.pods = watch.NewSource(k.cluster, "pods", podFactsOf(publishedRanges(base.config)),
		watch.If(base.config.EnableStretchedNetworkPolicy))
	t.labelIdentities = writtenKind(k, k.cluster, "LabelIdentity", "labelidentities",
		labelIdentityFacts, version, watch.Optional())
	e := k.Engine
	t.podIdentities = derive.NewTable(e, "identities of Pods", t.podIdentity, derive.KeysOf(t.pods))
	byIdentity := derive.NewIndex(t.podIdentities, "identity", func(_ derive.Object, id policy.Identity) []policy.Identity { return []policy.Identity{id} })
	identities := derive.NewTable(e, "identities", func(id policy.Identity, _ *derive.Reader) (derive.Name, []problem.Problem) {
		return derive.Name(id.Namespace()), nil
	}, derive.KeysOfIndex(byIdentity))
	t.identitiesIn = derive.NewIndex(identities, "namespace", func(_ policy.Identity, namespace derive.Name) []derive.Name { return []derive.Name{namespace} })
	t.identityCounts = derive.NewTable(e, "identities by Namespace", func(namespace derive.Name, r *derive.Reader) (int, []problem.Problem) {
		return len(derive.List(r, t.identitiesIn, namespace)), nil
	}, derive.KeysOfIndex(t.identitiesIn))
	t.identityShare = derive.NewTable(e, "identities that a Namespace may have", t.shareOf,
		derive.KeysOf(t.base.environment))
	t.chosenIdentities = derive.NewTable(e, "chosen identities", t.chosenOf, derive.KeysOf(t.identityCounts))
	t.labelExports = derive.NewTable(e, "exports of labels", t.labelExportOf, derive.KeysOf(identities))
	t.byName = derive.NewIndex(t.labelExports, "name",
		func(_ policy.Identity, re *mcv1alpha1.ResourceExport) []derive.Object {
			return []derive.Object{keyOf(re)}
		})

	valid := func(ri *mcv1alpha1.ResourceImport) bool {
		return ri.Spec.Kind == multicluster.LabelIdentityKind && ri.DeletionTimestamp.IsZero() && checkLabel(ri) == nil
	}
	t.importsByNumber = derive.NewIndex(t.base.resourceImports, "number",
		func(_ derive.Object, ri *mcv1alpha1.ResourceImport) []labelNumber {
			if !valid(ri) {
				return nil
			}
			return []labelNumber{labelNumber(ri.Spec.LabelIdentity.ID)}
		})
	named := derive.NewIndex(t.base.resourceImports, "LabelIdentity",
		func(k derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
			if ri.Spec.Kind != multicluster.LabelIdentityKind {
				return nil
			}
			return []derive.Object{{Name: k.Name}}
		})
	t.labels = derive.NewTable(e, "labelidentities of the ClusterSet", t.labelOf, derive.KeysOfIndex(named))
	t.labelsByNumber = derive.NewIndex(t.labelIdentities, "number", func(_ derive.Object, l *mcv1alpha1.LabelIdentity) []labelNumber {
		return []labelNumber{labelNumber(l.Spec.ID)}
	})
	return t
}

func (t *labelTables) writes(k *kinds) *writeTable {
	return k.table("write-labelidentities", t.writeLabelIdentity, derive.KeysOf(t.labelIdentities),
		derive.KeysOf(t.labels))
}

func (t *labelTables) podIdentity(pod derive.Object, r *derive.Reader) (policy.Identity, []problem.Problem) {
	facts, ok := derive.Get(r, t.pods, pod)
	namespace, has := derive.Get(r, t.base.namespaces, derive.Object{Name: pod.Namespace})
	if !ok || !has {
		return "", nil
	}
	return policy.IdentityOf(policy.NamespaceLabels(namespace), facts.Labels), nil
}

// share bounds the identities of one Namespace; zero for no bound.
type share struct{ Most int }

// shareOf is how many identities each Namespace may export when all together are too many. Labels such as the name of a
// StatefulSet's Pod make an identity of every Pod; a Namespace that has many takes nothing from one that has few.
func (t *labelTables) shareOf(_ derive.Name, r *derive.Reader) (share, []problem.Problem) {
	counts := values(derive.All(r, t.identityCounts))
	slices.Sort(counts)
	left := t.maxLabels
	for i, n := range counts {
		fair := left / (len(counts) - i)
		if n > fair {
			m, _ := derive.Get(r, t.base.membership, here)
			var ps faults
			ps.add(m.set(), "", reasonLabelLimit, fmt.Sprintf(
				"Pods here have more than %d different sets of labels: of the Namespaces that have most of them not all are exported, and policies of other clusters take Pods with the others for unknown; use fewer labels that differ from Pod to Pod",
				t.maxLabels))
			return share{max(1, fair)}, ps
		}
		left -= n
	}
	return share{}, nil
}

// chosen are the identities of a Namespace that has too many.
type chosen struct{ Identities map[policy.Identity]bool }

// chosenOf has those first that are exported already.
func (t *labelTables) chosenOf(namespace derive.Name, r *derive.Reader) (chosen, []problem.Problem) {
	s, _ := derive.Get(r, t.identityShare, here)
	n, _ := derive.Get(r, t.identityCounts, namespace)
	if s.Most == 0 || n <= s.Most {
		return chosen{}, nil
	}
	m, _ := derive.Get(r, t.base.membership, here)
	var have, others []policy.Identity
	for _, row := range derive.List(r, t.identitiesIn, namespace) {
		if _, exported := derive.Get(r, t.base.resourceExports, m.labelExport(row.Key)); exported {
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

// labelExport is the key of the ResourceExport of an identity.
func (m membership) labelExport(id policy.Identity) derive.Object {
	return derive.Object{Namespace: m.Common, Name: m.ID + "-" + multicluster.LabelHash(string(id))}
}

func (t *labelTables) labelExportOf(id policy.Identity,
	r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	if m.ID == "" {
		return nil, nil
	}
	var ps faults
	if wrong := exportcheck.Label("labels", string(id)); wrong != nil {
		ps.add(m.set(), "", reasonLabelInvalid, fmt.Sprintf("the labels of a Pod in Namespace %s and of the Namespace are not exported: %v", id.Namespace(), wrong))
		return nil, ps
	}
	if c, _ := derive.Get(r, t.chosenIdentities, derive.Name(id.Namespace())); c.Identities != nil && !c.Identities[id] {
		return nil, nil
	}
	key := m.labelExport(id)
	if have, _ := derive.Get(r, t.base.resourceExports, key); have != nil {
		for _, c := range have.Status.Conditions {
			if refuses(c) { // without the name: what holds for many is said once
				ps.add(m.set(), "", cmp.Or(c.Reason, reasonConvergeFailure), "the leader refuses label identities of this cluster: "+c.Message)
			}
		}
	}
	return labelExport(m, id), ps
}

// labelExport is the ResourceExport of an identity.
func labelExport(m membership, id policy.Identity) *mcv1alpha1.ResourceExport {
	key := m.labelExport(id)
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.LabelIdentityKind, multicluster.LabelSourceClusterID: m.ID,
		}},
		Spec: mcv1alpha1.ResourceExportSpec{
			ClusterID: m.ID, Kind: multicluster.LabelIdentityKind, LabelIdentity: &mcv1alpha1.LabelIdentityExport{NormalizedLabel: string(id)},
		},
	}
}

// checkLabel says what is wrong with the ResourceImport of a label identity. The leader may be another implementation,
// which passes on whatever a member exports.
func checkLabel(ri *mcv1alpha1.ResourceImport) error {
	l := ri.Spec.LabelIdentity
	if l == nil {
		return fmt.Errorf("spec.labelIdentity is missing")
	}
	if l.ID < multicluster.FirstLabelID || l.ID > multicluster.LastLabelID {
		return fmt.Errorf("spec.labelIdentity.id: %d is no number of a label identity: expected %d to %d", l.ID, multicluster.FirstLabelID, multicluster.LastLabelID)
	}
	if err := exportcheck.Label("spec.labelIdentity.label", l.Label); err != nil {
		return err
	}
	if hash := multicluster.LabelHash(l.Label); hash != ri.Name {
		return fmt.Errorf("metadata.name: its label has the hash %s: expected that as the name", hash)
	}
	return nil
}

// labelOf is the LabelIdentity that a ResourceImport becomes here. A number stands for one label: of two that have the
// same, the older has it.
func (t *labelTables) labelOf(k derive.Object, r *derive.Reader) (*mcv1alpha1.LabelIdentity, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	if !m.Joined || !t.base.config.EnableStretchedNetworkPolicy {
		return nil, nil
	}
	ri, ok := derive.Get(r, t.base.resourceImports, derive.Object{Namespace: m.Common, Name: k.Name})
	if !ok || !ri.DeletionTimestamp.IsZero() || !m.isFor(ri) {
		return nil, nil
	}
	wrong := checkLabel(ri)
	if wrong == nil {
		for _, other := range derive.List(r, t.importsByNumber, labelNumber(ri.Spec.LabelIdentity.ID)) {
			if cmp.Or(other.Value.CreationTimestamp.Compare(ri.CreationTimestamp.Time), other.Key.Compare(keyOf(ri))) < 0 {
				wrong = fmt.Errorf("spec.labelIdentity.id: %d is the number of ResourceImport %s, which is older", ri.Spec.LabelIdentity.ID, other.Key)
				break
			}
		}
	}
	if wrong != nil {
		var ps faults
		ps.add(m.set(), "", reasonImportInvalid, fmt.Sprintf("ResourceImport %s/%s of the leader is ignored: %v", ri.Namespace, ri.Name, wrong))
		return nil, ps
	}
	return &mcv1alpha1.LabelIdentity{ObjectMeta: metav1.ObjectMeta{Name: k.Name}, Spec: *ri.Spec.LabelIdentity}, nil
}

func (t *labelTables) writeLabelIdentity(k derive.Object, r *derive.Reader) *Write {
	m, _ := derive.Get(r, t.base.membership, here)
	if m.keepsImports() {
		return nil
	}
	have, _ := derive.Get(r, t.labelIdentities, k)
	want, _ := derive.Get(r, t.labels, k)
	w := kindDiff[*mcv1alpha1.LabelIdentity]{kind: "LabelIdentity",
		merge: func(into, want *mcv1alpha1.LabelIdentity) { into.Spec = want.Spec }}.write(have, want, t.base.about(m))
	if w != nil && w.Verb != Delete { // a number leaves one label before it comes to another
		for _, other := range derive.List(r, t.labelsByNumber, labelNumber(want.Spec.ID)) {
			if other.Key != k {
				w.After = jobObject("LabelIdentity", other.Value)
			}
		}
	}
	return w
}

// isPaced says whether a write to the leader is of a kind of which there are many, that come and go with Pods.
func isPaced(w *Write) bool {
	re, ok := w.Object.(*mcv1alpha1.ResourceExport)
	return ok && (re.Spec.Kind == multicluster.LabelIdentityKind || re.Spec.Kind == multicluster.PodAddressesKind)
}

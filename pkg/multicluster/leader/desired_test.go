package leader

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// View is everything the leader's decisions depend on: the Common Area.
type View struct {
	Namespace       string
	Now             time.Time
	ClusterSets     []*mcv1alpha2.ClusterSet
	ClusterClaims   []*mcv1alpha2.ClusterClaim
	Announces       []*mcv1alpha1.MemberClusterAnnounce
	ResourceExports []*mcv1alpha1.ResourceExport
	ResourceImports []*mcv1alpha1.ResourceImport
	Accounts        []*corev1.ServiceAccount
	// Seen has the sightings of this controller, by the name of the MemberClusterAnnounce.
	Seen map[string]Sighting
	// Refused is why ResourceImports could not be written, by name.
	Refused map[string]string
	// Imported are the ClusterInfos of announced members that are imported, or were until a short while ago, by cluster
	// ID. When a Gateway moves, its ClusterInfo is withdrawn and then announced again.
	Imported map[string]*mcv1alpha1.ClusterInfo
}

// Desired is the desired state of the Common Area.
type Desired struct {
	// ClusterSet with its cluster ID and status; nil without one.
	ClusterSet *mcv1alpha2.ClusterSet
	// Imports are all ResourceImports of the kinds that this controller keeps.
	Imports map[string]*mcv1alpha1.ResourceImport
	// Conditions of ResourceExports, by name.
	Conditions map[string]mcv1alpha1.ResourceExportCondition
	// DeleteExports are exports of members that have left, and of clusters that never announced themselves.
	DeleteExports []string
	// ReleaseExports are deleted ones whose finalizer is removed once the imports are written.
	ReleaseExports []string
	// FreeExports are the ReleaseExports whose member is gone. All their finalizers are removed, since no other controller
	// would remove a foreign one.
	FreeExports map[string]bool
	// HoldAnnounces need their finalizer. ReleaseAnnounces lose all finalizers. DeleteAnnounces have expired.
	HoldAnnounces, ReleaseAnnounces, DeleteAnnounces []string
	// Bind has cluster IDs for ServiceAccounts without one, by name.
	Bind map[string]string
}

// Plan returns the desired state of the Common Area: the tables, evaluated from nothing.
func Plan(v View) (Desired, []problem.Problem) {
	t := newDescribed()
	newNumbering(t.tables).watch(func() time.Time { return v.Now })
	t.fill(v)
	t.engine.Pass()
	t.late(v.Now)
	for _, row := range t.claiming.exporters.All() {
		t.facts.uses.Set(row.Key, row.Value)
	}
	t.engine.Pass()
	return t.desired(v.Now), t.engine.Problems()
}

// described has all tables and one more, with the conditions of all exports. The controller derives only the conditions
// that it writes.
type described struct {
	*tables
	conditions *derive.Table[derive.Object, mcv1alpha1.ResourceExportCondition]
}

func newDescribed() described { return describe(newTables()) }

func describe(t *tables) described {
	type condition = mcv1alpha1.ResourceExportCondition
	of := func(key derive.Object, r *derive.Reader) (c condition, _ []problem.Problem) {
		if e, _ := derive.Get(r, t.facts.exports, key); e != nil {
			c, _, _ = t.condition(e, r)
		}
		return c, nil
	}
	return described{t, derive.NewTable(t.engine, "conditions", of, derive.KeysOf(t.facts.exports))}
}

// fill writes a view to the source tables.
func (t *tables) fill(v View) {
	t.kinds.Fill(v.objects()...)
	seen := map[derive.Object]live{}
	for _, a := range v.Announces {
		if s, ok := v.Seen[a.Name]; ok {
			since, known := silencesOf(v.ClusterSets...).of(a)
			if !known {
				since = time.Time{}
			}
			seen[derive.Object{Namespace: v.Namespace, Name: a.Name}] = liveOf(s, announceFacts(a), since, v.Now)
		}
	}
	t.facts.liveness.Replace(seen)
	refused := map[derive.Object]string{}
	for name, why := range v.Refused {
		refused[derive.Object{Namespace: v.Namespace, Name: name}] = why
	}
	t.facts.refused.Replace(refused)
	held := map[derive.Name]*mcv1alpha1.ClusterInfo{}
	for id, info := range v.Imported {
		held[derive.Name(id)] = info
	}
	t.facts.held.Replace(held)
}

// objects returns the objects of the API server, in the Namespace of the view.
func (v View) objects() []client.Object {
	return slices.Concat(objectsIn(v.Namespace, v.ClusterSets), objectsIn(v.Namespace, v.ClusterClaims),
		objectsIn(v.Namespace, v.Accounts), objectsIn(v.Namespace, v.Announces),
		objectsIn(v.Namespace, v.ResourceExports), objectsIn(v.Namespace, v.ResourceImports))
}

func objectsIn[T client.Object](namespace string, list []T) []client.Object {
	out := make([]client.Object, len(list))
	for i, o := range list {
		out[i] = o.DeepCopyObject().(client.Object)
		out[i].SetNamespace(namespace)
	}
	return out
}

// late writes the exports that have had no member for too long.
func (t *tables) late(now time.Time) {
	rows := map[derive.Object]time.Time{}
	for _, row := range t.orphans.All() {
		if now.Sub(row.Value) > orphanAfter {
			rows[row.Key] = row.Value
		}
	}
	t.facts.overdue.Replace(rows)
}

// desired reads the tables.
func (t described) desired(now time.Time) Desired {
	d := Desired{
		Imports: map[string]*mcv1alpha1.ResourceImport{}, Conditions: map[string]mcv1alpha1.ResourceExportCondition{},
		FreeExports: map[string]bool{}, Bind: map[string]string{},
	}
	if row, ok := t.steps.setSteps.Get(one); ok && row.Want != nil {
		d.ClusterSet = row.at(now)
	}
	add := func(ri *mcv1alpha1.ResourceImport) {
		if ri != nil {
			ri = ri.DeepCopy()
			setTimes(&ri.Status, now)
			d.Imports[ri.Name] = ri
		}
	}
	c, _ := t.claiming.claims.Get(one)
	for _, ri := range c.Imports {
		add(ri)
	}
	for _, row := range t.endpoints.All() {
		add(row.Value.Import)
	}
	for _, row := range t.services.All() {
		add(row.Value.Joint.Import)
	}
	for _, row := range t.ofPolicies.policies.All() {
		if ri := row.Value.Import.DeepCopy(); ri != nil {
			s, _ := t.ofPolicies.policyStates.Get(row.Key)
			ri.Status.ClusterStatuses = s.Clusters
			add(ri)
		}
	}
	for _, row := range t.labels.All() {
		n, _ := t.facts.numbers.Get(row.Key)
		add(labelImport(row.Key, row.Value, n))
	}
	for _, row := range t.addresses.All() {
		add(row.Value.Import)
	}
	for _, row := range t.conditions.All() {
		have, _ := t.facts.written.Get(row.Key)
		d.Conditions[row.Key.Name] = conditionAt(row.Value, have.Conditions, now)
	}
	for _, row := range t.steps.exportSteps.All() {
		switch row.Value.Verb {
		case remove:
			d.DeleteExports = append(d.DeleteExports, row.Key.Name)
		case release:
			d.ReleaseExports = append(d.ReleaseExports, row.Key.Name)
			if row.Value.All {
				d.FreeExports[row.Key.Name] = true
			}
		}
	}
	for _, row := range t.steps.announceSteps.All() {
		lists := map[verb]*[]string{hold: &d.HoldAnnounces, remove: &d.DeleteAnnounces, release: &d.ReleaseAnnounces}
		list := lists[row.Value.Verb]
		*list = append(*list, row.Key.Name)
	}
	for _, row := range t.steps.accountSteps.All() {
		d.Bind[row.Key.Name] = row.Value.ID
	}
	return d
}

func keyOf(o client.Object) derive.Object {
	return derive.Object{Namespace: o.GetNamespace(), Name: o.GetName()}
}

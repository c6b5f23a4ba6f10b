// Package leader is the leader's side of a ClusterSet: in the Common Area, one Namespace, it
// turns what the members export into what they import, and says which members are alive.
//
// What should be there is derived from what exists, key by key (tables, package derive), so nothing
// has to be cleaned up apart: an import whose last export is gone has the step "delete". Steps go to
// a queue of writes (package retry), and end when the API server shows that they are done.
//
// A heartbeat of a member is no fact: it is noted by the clock, which alone knows time, and which
// writes rows when a member falls silent, is alive again, or is to be removed.
package leader

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

const (
	// disconnectAfter is how long a member may be silent before it counts as disconnected.
	disconnectAfter = 30 * time.Second
	// expireAfter is how long a member may be silent before it and its exports are removed.
	expireAfter = 24 * time.Hour
	// listenFor is how long a leader that has just started waits for a member to touch its
	// announcement before it believes a time stamp that is long past: the member's clock may be
	// behind.
	listenFor = 5 * time.Minute
	// orphanAfter is how long exports of a cluster that has not announced itself are kept.
	orphanAfter = time.Hour
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
	// Seen is what this controller has seen of each MemberClusterAnnounce, by name.
	Seen map[string]Sighting
	// Refused is why ResourceImports could not be written, by name.
	Refused map[string]string
	// Imported are the ClusterInfos of announced members that are imported, or were until a short
	// while ago, by cluster ID: a Gateway that moves is withdrawn before it is announced again.
	Imported map[string]*mcv1alpha1.ClusterInfo
}

// Sighting is what this controller has seen of a MemberClusterAnnounce since it started, by its
// own clock: members' clocks may be wrong.
type Sighting struct {
	First   time.Time // when it was seen first
	Changed time.Time // when it was last seen to change; First if it has not
	Touched time.Time // when its time stamp was last seen to change; zero if it has not
}

// Desired is what the Common Area should hold.
type Desired struct {
	// ClusterSet with its cluster ID and status; nil if there is none.
	ClusterSet *mcv1alpha2.ClusterSet
	// Imports are all ResourceImports of the kinds that this controller keeps.
	Imports map[string]*mcv1alpha1.ResourceImport
	// Conditions of ResourceExports, by name.
	Conditions map[string]mcv1alpha1.ResourceExportCondition
	// DeleteExports are those of members that have left, and of clusters that never announced
	// themselves.
	DeleteExports []string
	// ReleaseExports are deleted ones whose finalizer is removed once the imports are written.
	ReleaseExports []string
	// FreeExports are those of ReleaseExports whose member is no longer there: all their
	// finalizers are removed, since nobody else would remove a foreign one.
	FreeExports map[string]bool
	// HoldAnnounces need their finalizer, those of ReleaseAnnounces lose all finalizers,
	// DeleteAnnounces have expired.
	HoldAnnounces, ReleaseAnnounces, DeleteAnnounces []string
	// Bind has cluster IDs for ServiceAccounts that have none, by name.
	Bind map[string]string
}

// Plan decides what the Common Area should hold: the tables, evaluated from nothing.
func Plan(v View) (Desired, []problem.Problem) {
	t := newTables()
	t.tellConditions()
	newNumbering(t).watch(func() time.Time { return v.Now })
	t.fill(v)
	t.engine.Pass()
	t.late(v.Now)
	for _, row := range t.exporters.All() {
		t.uses.Set(row.Key, row.Value)
	}
	t.engine.Pass()
	return t.desired(v.Now), t.engine.Problems()
}

// tellConditions adds a table of all exports' conditions, for those who want to see them. The
// controller does without: it needs those that are to be written.
func (t *tables) tellConditions() {
	t.conditions = derive.NewTable(t.engine, "conditions", func(key derive.Object, r *derive.Reader) (c mcv1alpha1.ResourceExportCondition, _ []problem.Problem) {
		if e, _ := derive.Get(r, t.exports, key); e != nil {
			c, _, _ = t.condition(e, r)
		}
		return c, nil
	}, derive.KeysOf(t.exports))
}

// fill writes what a view has.
func (t *tables) fill(v View) {
	key := func(o metav1.Object) derive.Object { return derive.Object{Namespace: v.Namespace, Name: o.GetName()} }
	replace(t.sets, v.ClusterSets, key, func(o *mcv1alpha2.ClusterSet) *mcv1alpha2.ClusterSet { return o })
	replace(t.clusterClaims, v.ClusterClaims, key, func(o *mcv1alpha2.ClusterClaim) *mcv1alpha2.ClusterClaim { return o })
	replace(t.accounts, v.Accounts, key, accountFacts)
	replace(t.heard, v.Announces, key, func(o *mcv1alpha1.MemberClusterAnnounce) announce {
		a := announceFacts(o)
		a.Fact.Namespace = v.Namespace
		return a
	})
	replace(t.exports, v.ResourceExports, key, func(o *mcv1alpha1.ResourceExport) *export {
		e := exportFacts(o)
		e.Key = key(o)
		return e
	})
	replace(t.written, v.ResourceExports, key, writtenFacts)
	replace(t.imports, v.ResourceImports, key, func(o *mcv1alpha1.ResourceImport) *mcv1alpha1.ResourceImport { return o })
	seen := map[derive.Object]live{}
	for _, a := range v.Announces {
		if s, ok := v.Seen[a.Name]; ok {
			since, known := silencesOf(v.ClusterSets...).of(a)
			if !known {
				since = time.Time{}
			}
			seen[key(a)] = liveOf(s, announceFacts(a), since, v.Now)
		}
	}
	t.liveness.Replace(seen)
	refused := map[derive.Object]string{}
	for name, why := range v.Refused {
		refused[derive.Object{Namespace: v.Namespace, Name: name}] = why
	}
	t.refused.Replace(refused)
	held := map[derive.Name]*mcv1alpha1.ClusterInfo{}
	for id, info := range v.Imported {
		held[derive.Name(id)] = info
	}
	t.held.Replace(held)
}

func replace[T metav1.Object, F any](s *derive.Source[derive.Object, F], list []T, key func(metav1.Object) derive.Object, facts func(T) F) {
	rows := map[derive.Object]F{}
	for _, o := range list {
		rows[key(o)] = facts(o)
	}
	s.Replace(rows)
	s.Loaded()
}

// late notes which exports have been nobody's for too long.
func (t *tables) late(now time.Time) {
	rows := map[derive.Object]time.Time{}
	for _, row := range t.orphans.All() {
		if now.Sub(row.Value) > orphanAfter {
			rows[row.Key] = row.Value
		}
	}
	t.overdue.Replace(rows)
}

// desired reads the tables.
func (t *tables) desired(now time.Time) Desired {
	d := Desired{
		Imports: map[string]*mcv1alpha1.ResourceImport{}, Conditions: map[string]mcv1alpha1.ResourceExportCondition{},
		FreeExports: map[string]bool{}, Bind: map[string]string{},
	}
	if row, ok := t.setSteps.Get(one); ok && row.Want != nil {
		d.ClusterSet = row.at(now)
	}
	add := func(ri *mcv1alpha1.ResourceImport) {
		if ri != nil {
			ri = ri.DeepCopy()
			setTimes(&ri.Status, now)
			d.Imports[ri.Name] = ri
		}
	}
	c, _ := t.claims.Get(one)
	for _, ri := range c.Imports {
		add(ri)
	}
	for _, row := range t.endpoints.All() {
		add(row.Value.Import)
	}
	for _, row := range t.services.All() {
		add(row.Value.Joint.Import)
	}
	for _, row := range t.policies.All() {
		if ri := row.Value.Import.DeepCopy(); ri != nil {
			s, _ := t.policyStates.Get(row.Key)
			ri.Status.ClusterStatuses = s.Clusters
			add(ri)
		}
	}
	for _, row := range t.labels.All() {
		n, _ := t.numbers.Get(row.Key)
		add(labelImport(row.Key, row.Value, n))
	}
	for _, row := range t.addresses.All() {
		add(row.Value.Import)
	}
	for _, row := range t.conditions.All() {
		have, _ := t.written.Get(row.Key)
		d.Conditions[row.Key.Name] = conditionAt(row.Value, have.Conditions, now)
	}
	for _, row := range t.exportSteps.All() {
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
	for _, row := range t.announceSteps.All() {
		list := map[verb]*[]string{hold: &d.HoldAnnounces, remove: &d.DeleteAnnounces, release: &d.ReleaseAnnounces}[row.Value.Verb]
		*list = append(*list, row.Key.Name)
	}
	for _, row := range t.accountSteps.All() {
		d.Bind[row.Key.Name] = row.Value.ID
	}
	return d
}

// conditionAt fills in the time of a condition: of one that stays it stays.
func conditionAt(c mcv1alpha1.ResourceExportCondition, have []mcv1alpha1.ResourceExportCondition, now time.Time) mcv1alpha1.ResourceExportCondition {
	c.LastTransitionTime = metav1.NewTime(now)
	for _, old := range have {
		same := old.Type == c.Type && old.Status == c.Status && (c.Reason != reasonNotAnnounced || old.Reason == c.Reason)
		if same && !old.LastTransitionTime.After(now) {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return c
}

// at fills in the times of what is new in a ClusterSet's status.
func (s setStep) at(now time.Time) *mcv1alpha2.ClusterSet {
	set := s.Want.DeepCopy()
	fill := func(t *metav1.Time) {
		if t.IsZero() {
			*t = metav1.NewTime(now)
		}
	}
	for i := range set.Status.Conditions {
		fill(&set.Status.Conditions[i].LastTransitionTime)
	}
	for i := range set.Status.ClusterStatuses {
		for j := range set.Status.ClusterStatuses[i].Conditions {
			fill(&set.Status.ClusterStatuses[i].Conditions[j].LastTransitionTime)
		}
	}
	return set
}

func setTimes(s *mcv1alpha1.ResourceImportStatus, now time.Time) {
	s.ClusterStatuses = slices.Clone(s.ClusterStatuses)
	for i := range s.ClusterStatuses {
		s.ClusterStatuses[i].Conditions = slices.Clone(s.ClusterStatuses[i].Conditions)
		for j := range s.ClusterStatuses[i].Conditions {
			s.ClusterStatuses[i].Conditions[j].LastTransitionTime = metav1.NewTime(now)
		}
	}
}

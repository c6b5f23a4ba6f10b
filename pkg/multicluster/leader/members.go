package leader

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// announce returns an announcement without the parts that heartbeats change.
func (t *tables) announce(key derive.Object, r *derive.Reader) (*mcv1alpha1.MemberClusterAnnounce, []problem.Problem) {
	a, _ := derive.Get(r, t.facts.announcements, key)
	return a.Fact, nil
}

// binding decides which accounts are bound to the cluster ID that they announced. Two members may announce themselves
// at the same time with one account and both pass admission. Then the first one gets the account, and the other one is
// not a member.
func (t *tables) binding(_ derive.Name, r *derive.Reader) (binding.Decision, []problem.Problem) {
	announces := values(derive.All(r, t.announces))
	d := binding.Decide(values(derive.All(r, t.facts.accounts)), announces)
	var problems []problem.Problem
	for _, a := range inOrder(announces) {
		winner := d.Rivals[a.Name]
		if winner == nil || a.DeletionTimestamp != nil {
			continue
		}
		problems = append(problems, problem.Problem{
			Object: problem.Object{Kind: "MemberClusterAnnounce", Namespace: a.Namespace, Name: a.Name},
			Field:  "metadata.annotations", Reason: reasonAccountOfAnotherMember,
			Message: fmt.Sprintf(
				"it was made by ServiceAccount %s, which acts for cluster %s (MemberClusterAnnounce %s): cluster %s is left out "+
					"of the ClusterSet; delete this MemberClusterAnnounce and give cluster %s a ServiceAccount of its own",
				binding.Announcer(a), winner.ClusterID, winner.Name, a.ClusterID, a.ClusterID),
		})
	}
	return d, problems
}

// member is a cluster that has announced itself.
type member struct {
	Announced bool
	Leaving   bool
	Why       string // why its exports are not imported; empty for a member
}

func (t *tables) member(id derive.Name, r *derive.Reader) (member, []problem.Problem) {
	bindings, _ := derive.Get(r, t.bindings, one)
	m := member{Announced: true}
	for _, a := range inOrder(values(derive.List(r, t.announcesOf, id))) {
		switch winner := bindings.Rivals[a.Name]; {
		case a.DeletionTimestamp != nil:
			m.Leaving, m.Why = true, fmt.Sprintf("cluster %s is leaving the ClusterSet", a.ClusterID)
		case winner != nil:
			m.Why = fmt.Sprintf(
				"cluster %s is left out of the ClusterSet: its ServiceAccount %s acts for cluster %s; give it a ServiceAccount "+
					"of its own",
				a.ClusterID, binding.Announcer(a), winner.ClusterID)
		}
	}
	return m, nil
}

// orphan returns the time since when the cluster of an export is known to have no announcement.
func (t *tables) orphan(key derive.Object, r *derive.Reader) (time.Time, []problem.Problem) {
	e, _ := derive.Get(r, t.facts.exports, key)
	if e == nil || !fromMember(e.Kind) {
		return time.Time{}, nil
	}
	if m, _ := derive.Get(r, t.members, derive.Name(e.ClusterID)); m.Announced {
		return time.Time{}, nil
	}
	have, _ := derive.Get(r, t.facts.written, key)
	since, _ := notAnnounced(have)
	return since, nil
}

// notAnnounced returns the time since when an export's conditions report that its cluster has not announced itself.
func notAnnounced(w written) (since time.Time, ok bool) {
	for _, c := range w.Conditions {
		if c.Reason == reasonNotAnnounced.String() {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// standing is whether an export counts. The zero value is for members' exports.
type standing struct {
	Why       string // it is not imported
	Reason    reasons.Reason
	Dismissed bool // it is deleted, and all its finalizers are removed, since its member is gone
}

// standing is no table: most exports come from members.
func (t *tables) standing(r *derive.Reader, e *export) standing {
	m, _ := derive.Get(r, t.members, derive.Name(e.ClusterID))
	switch {
	case m.Leaving:
		return standing{Why: m.Why, Reason: reasonFailed, Dismissed: true}
	case !fromMember(e.Kind):
		return standing{}
	case m.Announced && m.Why == "":
		return standing{}
	case m.Announced:
		return standing{Why: m.Why, Reason: reasonFailed}
	}
	since, orphan := derive.Get(r, t.orphans, e.Key)
	late, _ := derive.Get(r, t.facts.overdue, e.Key)
	return standing{
		Why: fmt.Sprintf(
			"cluster %s is not a member of the ClusterSet: it has no MemberClusterAnnounce; this ResourceExport is deleted "+
				"after %s",
			e.ClusterID, orphanAfter),
		Reason: reasonNotAnnounced, Dismissed: e.Deleted || orphan && since.Equal(late),
	}
}

// fromMember reports whether members make exports of a kind. For example, administrators make policies, and members do
// not.
func fromMember(kind string) bool {
	switch kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind,
		multicluster.LabelIdentityKind, multicluster.PolicyReportKind, multicluster.PodAddressesKind,
		multicluster.NamespacesKind:
		return true
	}
	return false
}

func announceFinalizer(a *mcv1alpha1.MemberClusterAnnounce) string {
	return multicluster.MemberClusterAnnounceFinalizerPrefix + a.ClusterID
}

// silences are the times at which members became disconnected, by cluster ID. They come from a ClusterSet's status.
type silences map[string]time.Time

func silencesOf(sets ...*mcv1alpha2.ClusterSet) silences {
	out := silences{}
	for _, set := range sets {
		for _, s := range set.Status.ClusterStatuses {
			for _, c := range s.Conditions {
				if _, first := out[s.ClusterID]; !first && c.Type == mcv1alpha2.ClusterReady && c.Status == corev1.ConditionFalse {
					out[s.ClusterID] = c.LastTransitionTime.Time
				}
			}
		}
	}
	return out
}

// of returns when a member became disconnected. If the status entry is for an older announcement of the same cluster,
// it does not count.
func (s silences) of(a *mcv1alpha1.MemberClusterAnnounce) (time.Time, bool) {
	since, ok := s[a.ClusterID]
	return since, ok && !a.CreationTimestamp.After(since)
}

// setStep is the desired state of the ClusterSet. It keeps the existing times. If a time is zero, the writer fills
// it in.
type setStep struct {
	Have *mcv1alpha2.ClusterSet
	Want *mcv1alpha2.ClusterSet
}

// idOf returns the ID of the leader's own cluster. It is the ID of the ClusterSet, or of a ClusterClaim. It may be
// empty.
func (t *tables) idOf(set *mcv1alpha2.ClusterSet, r *derive.Reader) string {
	if set.Spec.ClusterID != "" {
		return set.Spec.ClusterID
	}
	for _, claim := range inOrder(values(derive.All(r, t.facts.clusterClaims))) {
		if claim.Name == multicluster.ClusterClaimClusterID || claim.ClaimName == multicluster.ClusterClaimClusterID {
			return claim.Value
		}
	}
	return ""
}

// ownID returns the ID of the leader's own cluster, or an empty one if the oldest ClusterSet has another leader.
func (t *tables) ownID(_ derive.Name, r *derive.Reader) (derive.Name, []problem.Problem) {
	sets := inOrder(values(derive.All(r, t.facts.sets)))
	if len(sets) == 0 {
		return "", nil
	}
	id := t.idOf(sets[0], r)
	if leads := sets[0].Spec.Leaders; len(leads) == 0 || leads[0].ClusterID != id {
		return "", nil
	}
	return derive.Name(id), nil
}

// setStep decides the cluster's ID and the status.
func (t *stepTables) setStep(_ derive.Name, r *derive.Reader) (setStep, []problem.Problem) {
	sets := inOrder(values(derive.All(r, t.all.facts.sets)))
	if len(sets) == 0 {
		return setStep{}, nil
	}
	var problems []problem.Problem
	fault := func(set *mcv1alpha2.ClusterSet, field string, reason reasons.Reason, format string, args ...any) {
		problems = append(problems,
			problem.Problem{Object: problem.Object{Kind: "ClusterSet", Namespace: set.Namespace, Name: set.Name},
				Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	for _, extra := range sets[1:] {
		fault(extra, "metadata.name", reasonMultipleClusterSets,
			"ClusterSet %s is older and in the same Namespace: delete one of them", sets[0].Name)
	}
	set := sets[0].DeepCopy()
	set.Spec.ClusterID = t.all.idOf(set, r)
	switch {
	case set.Spec.ClusterID == "":
		fault(set, "spec.clusterID", reasonClusterIDMissing,
			"'clusterID' is not set in the ClusterSet spec, and there is no ClusterClaim %s in Namespace %s; set "+
				"spec.clusterID to this cluster's ID",
			multicluster.ClusterClaimClusterID, set.Namespace)
		return setStep{}, problems
	case len(set.Spec.Leaders) == 0 || set.Spec.Leaders[0].ClusterID != set.Spec.ClusterID:
		fault(set, "spec.leaders", reasonNotLeader,
			"local cluster %s is not defined as leader in ClusterSet %s: set spec.leaders[0].clusterID to it, or create the "+
				"ClusterSet where the member controller runs",
			set.Spec.ClusterID, set.Name)
		return setStep{}, problems
	}
	set.Status = t.all.status(set, r)
	return setStep{Have: sets[0], Want: set}, problems
}

// status is the members' state.
func (t *tables) status(set *mcv1alpha2.ClusterSet, r *derive.Reader) mcv1alpha2.ClusterSetStatus {
	old := map[string][]mcv1alpha2.ClusterCondition{}
	for _, s := range set.Status.ClusterStatuses {
		old[s.ClusterID] = s.Conditions
	}
	bindings, _ := derive.Get(r, t.bindings, one)
	status := mcv1alpha2.ClusterSetStatus{ObservedGeneration: set.Generation}
	var silent []string
	before := silencesOf(set)
	announces := values(derive.All(r, t.announces))
	slices.SortFunc(announces,
		func(a, b *mcv1alpha1.MemberClusterAnnounce) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	for _, a := range announces {
		if a.DeletionTimestamp != nil || bindings.Rivals[a.Name] != nil {
			continue
		}
		c := mcv1alpha2.ClusterCondition{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionTrue,
			Reason:  reasonConnected.String(),
			Message: "Member Connected"}
		alive, _ := derive.Get(r, t.facts.liveness, derive.Object{Namespace: a.Namespace, Name: a.Name})
		// A member may have been disconnected before this controller started. Then it stays disconnected until it touches its
		// announcement.
		since, disconnected := before.of(a)
		if alive.Silent || disconnected && !alive.Touched {
			c.Status, c.Reason = corev1.ConditionFalse, reasonDisconnected.String()
			if alive.Silent {
				since = alive.Since
			}
			c.Message = "No MemberClusterAnnounce update after " + since.UTC().Format(time.UnixDate)
			silent = append(silent, a.ClusterID)
		} else {
			status.ReadyClusters++
		}
		for _, o := range old[a.ClusterID] {
			if o.Type == c.Type && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
				if c.Status == corev1.ConditionFalse {
					c.Message = o.Message // since when it is silent does not change
				}
			}
		}
		status.TotalClusters++
		status.ClusterStatuses = append(status.ClusterStatuses,
			mcv1alpha2.ClusterStatus{ClusterID: a.ClusterID, Conditions: []mcv1alpha2.ClusterCondition{c}})
	}

	all := mcv1alpha2.ClusterSetCondition{Type: mcv1alpha2.ClusterSetReady}
	switch {
	case status.TotalClusters == 0:
		all.Status, all.Reason, all.Message = corev1.ConditionUnknown, reasonNoReadyCluster.String(),
			"No member cluster has joined"
	case status.ReadyClusters == status.TotalClusters:
		all.Status = corev1.ConditionTrue
	case status.ReadyClusters == 0:
		all.Status, all.Reason, all.Message = corev1.ConditionFalse, reasonNoReadyCluster.String(),
			"No member cluster is connected"
	default:
		all.Status, all.Reason = corev1.ConditionFalse, reasonClustersDisconnected.String()
		all.Message = "Disconnected: " + strings.Join(silent, ", ")
	}
	for _, o := range set.Status.Conditions {
		if o.Type == all.Type && o.Status == all.Status {
			all.LastTransitionTime = o.LastTransitionTime
		}
	}
	status.Conditions = []mcv1alpha2.ClusterSetCondition{all}
	return status
}

// announceStep is the step that an announcement needs.
type announceStep struct {
	Verb verb
	Have announce
}

func (t *stepTables) announceStep(key derive.Object, r *derive.Reader) (announceStep, []problem.Problem) {
	a, _ := derive.Get(r, t.all.announces, key)
	if a == nil {
		return announceStep{}, nil
	}
	alive, _ := derive.Get(r, t.all.facts.liveness, key)
	var do verb
	switch {
	case a.DeletionTimestamp != nil:
		if len(a.Finalizers) > 0 && len(derive.List(r, t.all.index.exportsOf, derive.Name(a.ClusterID))) == 0 {
			do = release
		}
	case alive.Expired:
		do = remove
	case !slices.Contains(a.Finalizers, announceFinalizer(a)):
		do = hold
	}
	if do == "" {
		return announceStep{}, nil
	}
	// The newest version for the write, since a heartbeat may come between.
	have, _ := derive.Get(r, t.all.facts.announcements, key)
	return announceStep{do, have}, nil
}

// accountStep is the cluster ID that an account is to be bound to.
type accountStep struct {
	Have *corev1.ServiceAccount
	ID   string
}

func (t *stepTables) accountStep(key derive.Object, r *derive.Reader) (accountStep, []problem.Problem) {
	bindings, _ := derive.Get(r, t.all.bindings, one)
	a := bindings.Unbound[key.Name]
	account, _ := derive.Get(r, t.all.facts.accounts, key)
	if a == nil || a.DeletionTimestamp != nil || account == nil {
		return accountStep{}, nil
	}
	return accountStep{account, a.ClusterID}, nil
}

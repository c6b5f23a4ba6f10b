// Package leader is the leader's side of a ClusterSet: in the Common Area, one Namespace, it
// turns what the members export into what they import, and says which members are alive.
//
// Plan decides from what exists, so nothing has to be cleaned up apart: an import whose last
// export is gone is not in the next plan.
package leader

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
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

type planner struct {
	View
	desired  Desired
	problems []problem.Problem
	// rivals are announcements that no account acts for; see bindings.
	rivals map[string]*mcv1alpha1.MemberClusterAnnounce
	// outsiders say why the exports of a cluster are not imported, by cluster ID. Clusters that
	// are members have an empty entry, those that have not announced themselves have none.
	outsiders map[string]string
	// announced are the ranges of each member's ClusterInfo, by cluster ID.
	announced map[string][]netip.Prefix
}

// Plan decides what the Common Area should hold.
func Plan(v View) (Desired, []problem.Problem) {
	p := &planner{View: v, desired: Desired{
		Imports:    map[string]*mcv1alpha1.ResourceImport{},
		Conditions: map[string]mcv1alpha1.ResourceExportCondition{},
		Bind:       map[string]string{},

		FreeExports: map[string]bool{},
	}, outsiders: map[string]string{}}
	p.ResourceExports = inOrder(v.ResourceExports)
	p.bindings()
	p.members()
	p.imports()
	p.clusterSet()
	return p.desired, p.problems
}

// inOrder sorts by age, then name: the order in which exports win conflicts.
func inOrder[T metav1.Object](objects []T) []T {
	sorted := slices.Clone(objects)
	slices.SortFunc(sorted, func(a, b T) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
	return sorted
}

func (p *planner) problem(object problem.Object, field, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// members decides about the announcements, and takes the exports of members that leave out
// of what is imported.
func (p *planner) members() {
	exports := map[string][]*mcv1alpha1.ResourceExport{} // by cluster ID
	for _, re := range p.ResourceExports {
		exports[re.Spec.ClusterID] = append(exports[re.Spec.ClusterID], re)
	}
	for _, a := range inOrder(p.Announces) {
		p.outsiders[a.ClusterID] = ""
		switch winner := p.rivals[a.Name]; {
		case a.DeletionTimestamp != nil:
			p.outsiders[a.ClusterID] = fmt.Sprintf("cluster %s is leaving the ClusterSet", a.ClusterID)
			for _, re := range exports[a.ClusterID] {
				p.dismiss(re)
			}
			if len(exports[a.ClusterID]) == 0 && len(a.Finalizers) > 0 {
				p.desired.ReleaseAnnounces = append(p.desired.ReleaseAnnounces, a.Name)
			}
			continue
		case winner != nil:
			p.outsiders[a.ClusterID] = fmt.Sprintf("cluster %s is left out of the ClusterSet: its ServiceAccount %s acts for cluster %s; give it a ServiceAccount of its own",
				a.ClusterID, binding.Announcer(a), winner.ClusterID)
		}
		switch {
		case p.expired(a):
			p.desired.DeleteAnnounces = append(p.desired.DeleteAnnounces, a.Name)
		case !slices.Contains(a.Finalizers, announceFinalizer(a)):
			p.desired.HoldAnnounces = append(p.desired.HoldAnnounces, a.Name)
		}
	}
	for id, list := range exports {
		if _, announced := p.outsiders[id]; announced {
			continue
		}
		for _, re := range list {
			since, orphan := orphanSince(re)
			if fromMember(re) && (re.DeletionTimestamp != nil || orphan && p.Now.Sub(since) > orphanAfter) {
				p.dismiss(re)
			}
		}
	}
	slices.Sort(p.desired.DeleteExports)
}

// fromMember reports whether an export is of a kind that members make. Policies, for one, are an
// administrator's, who is no member.
func fromMember(re *mcv1alpha1.ResourceExport) bool {
	switch re.Spec.Kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind, multicluster.LabelIdentityKind:
		return true
	}
	return false
}

// dismiss deletes an export whose member is no longer there.
func (p *planner) dismiss(re *mcv1alpha1.ResourceExport) {
	if re.DeletionTimestamp == nil {
		p.desired.DeleteExports = append(p.desired.DeleteExports, re.Name)
		return
	}
	p.desired.FreeExports[re.Name] = true
}

func announceFinalizer(a *mcv1alpha1.MemberClusterAnnounce) string {
	return multicluster.MemberClusterAnnounceFinalizerPrefix + a.ClusterID
}

// expired reports whether a member has been silent for too long. This controller believes its own
// eyes first: when the announcement was touched while it watched. Of the time before, it has the
// announcement's time stamp, by the member's clock. One in the future is bounded by when the
// announcement was first seen, and by when a leader found the member disconnected, which the
// ClusterSet's status keeps over restarts. One that is long past may come from a clock that is
// behind, so the member gets some time to touch it again.
func (p *planner) expired(a *mcv1alpha1.MemberClusterAnnounce) bool {
	seen, ok := p.Seen[a.Name]
	if !ok {
		return false
	}
	if !seen.Touched.IsZero() {
		return p.Now.Sub(seen.Touched) > expireAfter
	}
	last := a.CreationTimestamp.Time // without a readable time stamp
	if t, err := time.Parse(time.RFC3339, a.Annotations[multicluster.AnnotationTouchTimestamp]); err == nil {
		last = t
	}
	if last.After(seen.First) {
		last = seen.First
	}
	if since, ok := p.disconnectedSince(a); ok && last.After(since) {
		last = since
	}
	return p.Now.Sub(last) > expireAfter && p.Now.Sub(seen.First) > listenFor
}

// disconnectedSince is when the ClusterSet's status says that a member fell silent. What it says
// of an older announcement of the same cluster does not count.
func (p *planner) disconnectedSince(a *mcv1alpha1.MemberClusterAnnounce) (time.Time, bool) {
	for _, set := range p.ClusterSets {
		for _, s := range set.Status.ClusterStatuses {
			for _, c := range s.Conditions {
				if s.ClusterID == a.ClusterID && c.Type == mcv1alpha2.ClusterReady && c.Status == corev1.ConditionFalse {
					return c.LastTransitionTime.Time, !a.CreationTimestamp.After(c.LastTransitionTime.Time)
				}
			}
		}
	}
	return time.Time{}, false
}

// clusterSet decides the cluster's ID and the status.
func (p *planner) clusterSet() {
	sets := inOrder(p.ClusterSets)
	if len(sets) == 0 {
		return
	}
	for _, extra := range sets[1:] {
		p.problem(problem.Object{Kind: "ClusterSet", Namespace: extra.Namespace, Name: extra.Name}, "metadata.name", "MultipleClusterSets",
			"ClusterSet %s is older and in the same Namespace: delete one of them", sets[0].Name)
	}
	set := sets[0].DeepCopy()
	if set.Spec.ClusterID == "" {
		for _, claim := range inOrder(p.ClusterClaims) {
			if claim.Name == multicluster.ClusterClaimClusterID || claim.ClaimName == multicluster.ClusterClaimClusterID {
				set.Spec.ClusterID = claim.Value
				break
			}
		}
	}
	object := problem.Object{Kind: "ClusterSet", Namespace: set.Namespace, Name: set.Name}
	switch {
	case set.Spec.ClusterID == "":
		p.problem(object, "spec.clusterID", "ClusterIDMissing",
			"'clusterID' is not set in the ClusterSet spec, and there is no ClusterClaim %s in Namespace %s; set spec.clusterID to this cluster's ID",
			multicluster.ClusterClaimClusterID, set.Namespace)
		return
	case len(set.Spec.Leaders) == 0 || set.Spec.Leaders[0].ClusterID != set.Spec.ClusterID:
		p.problem(object, "spec.leaders", "NotLeader",
			"local cluster %s is not defined as leader in ClusterSet %s: set spec.leaders[0].clusterID to it, or create the ClusterSet where the member controller runs",
			set.Spec.ClusterID, set.Name)
		return
	}
	p.status(set)
	p.desired.ClusterSet = set
}

// status writes the members' state into the ClusterSet's status.
func (p *planner) status(set *mcv1alpha2.ClusterSet) {
	old := map[string][]mcv1alpha2.ClusterCondition{}
	for _, s := range set.Status.ClusterStatuses {
		old[s.ClusterID] = s.Conditions
	}
	status := mcv1alpha2.ClusterSetStatus{Conditions: set.Status.Conditions, ObservedGeneration: set.Generation}
	var silent []string
	announces := slices.Clone(p.Announces)
	slices.SortFunc(announces, func(a, b *mcv1alpha1.MemberClusterAnnounce) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	for _, a := range announces {
		if a.DeletionTimestamp != nil || p.rivals[a.Name] != nil {
			continue
		}
		c := mcv1alpha2.ClusterCondition{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionTrue, Reason: "Connected", Message: "Member Connected"}
		seen := p.Seen[a.Name]
		// After a restart of this controller a member that was disconnected stays so until it is
		// seen to touch its announcement.
		_, disconnected := p.disconnectedSince(a)
		if p.Now.Sub(seen.Changed) > disconnectAfter || disconnected && seen.Touched.IsZero() {
			c.Status, c.Reason = corev1.ConditionFalse, "Disconnected"
			c.Message = "No MemberClusterAnnounce update after " + seen.Changed.UTC().Format(time.UnixDate)
			silent = append(silent, a.ClusterID)
		} else {
			status.ReadyClusters++
		}
		c.LastTransitionTime = metav1.NewTime(p.Now)
		for _, o := range old[a.ClusterID] {
			if o.Type == c.Type && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
				if c.Status == corev1.ConditionFalse {
					c.Message = o.Message // since when it is silent does not change
				}
			}
		}
		status.TotalClusters++
		status.ClusterStatuses = append(status.ClusterStatuses, mcv1alpha2.ClusterStatus{ClusterID: a.ClusterID, Conditions: []mcv1alpha2.ClusterCondition{c}})
	}

	all := mcv1alpha2.ClusterSetCondition{Type: mcv1alpha2.ClusterSetReady}
	switch {
	case status.TotalClusters == 0:
		all.Status, all.Reason, all.Message = corev1.ConditionUnknown, "NoReadyCluster", "No member cluster has joined"
	case status.ReadyClusters == status.TotalClusters:
		all.Status = corev1.ConditionTrue
	case status.ReadyClusters == 0:
		all.Status, all.Reason, all.Message = corev1.ConditionFalse, "NoReadyCluster", "No member cluster is connected"
	default:
		all.Status, all.Reason = corev1.ConditionFalse, "ClustersDisconnected"
		all.Message = "Disconnected: " + strings.Join(silent, ", ")
	}
	all.LastTransitionTime = metav1.NewTime(p.Now)
	for _, o := range status.Conditions {
		if o.Type == all.Type && o.Status == all.Status {
			all.LastTransitionTime = o.LastTransitionTime
		}
	}
	status.Conditions = []mcv1alpha2.ClusterSetCondition{all}
	set.Status = status
}

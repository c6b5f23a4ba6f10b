package member

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

const (
	announceEvery = 10 * time.Second // the leader calls a member disconnected after 30 s
	announceRetry = 2 * time.Second  // after a failure, and to see the leader's answer to the first

	reasonDisconnected = "Disconnected"
)

// join decides this cluster's ID, the Common Area to connect to, whether an announcement is
// due, and what the ClusterSet's spec and status say.
func (p *planner) join() {
	set := object("ClusterSet", p.set.Namespace, p.set.Name)
	p.id = p.clusterID()
	if p.id == "" {
		p.problem(set, "spec.clusterID", "ClusterIDMissing",
			"'clusterID' is not set in the ClusterSet spec, and there is no ClusterClaim id.k8s.io in Namespace "+
				p.set.Namespace+"; set spec.clusterID to this cluster's ID")
		return
	}
	wanted := p.set.DeepCopy()
	wanted.Spec.ClusterID = p.id
	p.desired.ClusterSet = wanted

	area, field, message := p.area()
	if message != "" {
		p.problem(set, field, "LeaderNotConfigured", message)
		p.setStatus(wanted, Announcement{Tried: p.Now, Error: message})
		return
	}
	p.desired.Area = &area
	var announcement Announcement
	if p.Leader.Area == area {
		announcement = p.Leader.Announcement
		p.joined = p.Leader.Synced && !announcement.Done.IsZero()
		p.announce(area, announcement)
	}
	p.setStatus(wanted, announcement)
}

// clusterID is this cluster's ID: the ClusterSet's, else that of the ClusterClaim in either
// shape (named id.k8s.io, or with a top-level name id.k8s.io).
func (p *planner) clusterID() string {
	if p.set.Spec.ClusterID != "" {
		return p.set.Spec.ClusterID
	}
	for _, claim := range inOrder(p.ClusterClaims) {
		if claim.Name == multicluster.ClusterClaimClusterID || claim.ClaimName == multicluster.ClusterClaimClusterID {
			return claim.Value
		}
	}
	return ""
}

// area is the Common Area the ClusterSet names. If something is missing for it, area returns
// the field at fault and what to do.
func (p *planner) area() (area Area, field, message string) {
	if len(p.set.Spec.Leaders) == 0 {
		return Area{}, "spec.leaders", "no leader is given; name the leader's clusterID, server and secret"
	}
	leader := p.set.Spec.Leaders[0]
	if leader.ClusterID == "" {
		return Area{}, "spec.leaders[0].clusterID", "the leader's cluster ID is missing"
	}
	if p.set.Spec.Namespace == "" {
		return Area{}, "spec.namespace", "the Namespace in the leader cluster is missing"
	}
	// Over plain HTTP the token would go through the network for everyone to read.
	if u, err := url.Parse(leader.Server); err != nil || u.Host == "" || u.Scheme != "https" {
		return Area{}, "spec.leaders[0].server",
			fmt.Sprintf("%q is not the https URL of the leader's API server, such as https://10.0.0.1:6443", leader.Server)
	}
	where := p.set.Namespace + "/" + leader.Secret
	var secret *corev1.Secret
	for _, s := range p.Secrets {
		if s.Name == leader.Secret && s.Namespace == p.set.Namespace {
			secret = s
		}
	}
	if leader.Secret == "" || secret == nil {
		return Area{}, "spec.leaders[0].secret",
			fmt.Sprintf("Secret %s does not exist; create it with the keys ca.crt and token of a ServiceAccount in the leader", where)
	}
	for _, k := range []string{corev1.ServiceAccountRootCAKey, corev1.ServiceAccountTokenKey} {
		if len(secret.Data[k]) == 0 {
			return Area{}, "spec.leaders[0].secret", fmt.Sprintf("Secret %s has no key %s; copy ca.crt and token from the ServiceAccount's Secret in the leader", where, k)
		}
	}
	return Area{
		ClusterSet: p.set.Name, ClusterID: p.id,
		LeaderID: leader.ClusterID, Server: leader.Server, Namespace: p.set.Spec.Namespace,
		Token: strings.TrimSpace(string(secret.Data[corev1.ServiceAccountTokenKey])),
		CA:    string(secret.Data[corev1.ServiceAccountRootCAKey]),
	}, "", ""
}

// announce plans the next heartbeat: at once when none has been sent, soon after a failure and
// after the first, which only creates the announcement, and every ten seconds otherwise.
func (p *planner) announce(area Area, last Announcement) {
	due := last.Tried.Add(announceEvery)
	if last.Error != "" || !last.Found {
		due = last.Tried.Add(announceRetry)
	}
	if !last.Tried.IsZero() && p.Now.Before(due) {
		p.again(due)
		return
	}
	p.desired.Announce = &mcv1alpha1.MemberClusterAnnounce{
		ObjectMeta:      metav1.ObjectMeta{Namespace: area.Namespace, Name: multicluster.AnnounceName(area.ClusterID)},
		ClusterID:       area.ClusterID,
		ClusterSetID:    area.ClusterSet,
		LeaderClusterID: area.LeaderID,
	}
}

// setStatus writes what the last announcement says into the ClusterSet's status. Before the
// first one after a restart, a status that is there already is left as it is.
func (p *planner) setStatus(cs *mcv1alpha2.ClusterSet, a Announcement) {
	leaderID := ""
	if len(cs.Spec.Leaders) > 0 {
		leaderID = cs.Spec.Leaders[0].ClusterID
	}
	var old []mcv1alpha2.ClusterCondition
	for _, s := range cs.Status.ClusterStatuses {
		if s.ClusterID == leaderID {
			old = s.Conditions
		}
	}
	if a.Tried.IsZero() && len(old) > 0 {
		return
	}
	ready := condition{kind: string(mcv1alpha2.ClusterReady), status: corev1.ConditionTrue}
	isLeader := condition{kind: string(mcv1alpha2.ClusterIsLeader), status: corev1.ConditionFalse}
	overall := condition{kind: string(mcv1alpha2.ClusterSetReady), status: corev1.ConditionTrue}
	cs.Status.TotalClusters, cs.Status.ReadyClusters = 1, 1
	if a.Found {
		isLeader.status, isLeader.message = corev1.ConditionTrue, "This leader cluster is the leader for local cluster"
	}
	switch {
	case a.Tried.IsZero():
		ready.status, ready.message = corev1.ConditionUnknown, "Leader cluster added"
	case a.Error != "":
		ready.status, ready.reason, ready.message = corev1.ConditionFalse, reasonDisconnected, a.Error
	}
	switch {
	case ready.status != corev1.ConditionTrue:
		cs.Status.ReadyClusters = 0
		overall.status, overall.message = corev1.ConditionFalse, "Disconnected from leader"
	case !a.Found:
		overall.status, overall.message = corev1.ConditionUnknown, "Leader not yet connected"
	}
	now := metav1.NewTime(p.Now)
	conditions := setClusterCondition(setClusterCondition(old, ready, now), isLeader, now)
	cs.Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: leaderID, Conditions: conditions}}
	cs.Status.Conditions = setClusterSetCondition(cs.Status.Conditions, overall, now)
	cs.Status.ObservedGeneration = cs.Generation
}

// condition is a condition of a ClusterSet or of a cluster in it.
type condition struct {
	kind            string
	status          corev1.ConditionStatus
	reason, message string
}

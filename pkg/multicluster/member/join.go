package member

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

const (
	announceEvery = 10 * time.Second // the leader calls a member disconnected after 30 s
	announceRetry = 2 * time.Second  // after a failure, and to see the leader's answer to the first

	reasonDisconnected = "Disconnected"
)

// membership is what this cluster is in. It stays the same while announcements go and come.
type membership struct {
	// Leave says that the cluster is in no ClusterSet: nothing is desired, leftovers go.
	Leave bool

	Set    derive.Object // the ClusterSet it is in
	ID     string        // this cluster's ID; empty if it is not known, and nothing is done
	Common string        // the Namespace in the leader
	Area   *Area         // nil while what it takes is not known
	// Joined says that the leader has accepted this cluster and all of the area has been read.
	Joined bool

	// Field and Fault are why there is no Area. Both are empty while the Secret has not been read.
	Field, Fault string
}

func (m membership) set() problem.Object { return object("ClusterSet", m.Set.Namespace, m.Set.Name) }

// membershipOf decides this cluster's ID, and the Common Area to connect to.
func (t *membershipTables) membershipOf(_ derive.Name, r *derive.Reader) (membership, []problem.Problem) {
	set, ps := chooseClusterSet(values(derive.All(r, t.clusterSets)))
	if set == nil {
		return membership{Leave: true}, ps
	}
	m := membership{Set: keyOf(set), Common: set.Spec.Namespace, ID: clusterID(set, values(derive.All(r, t.clusterClaims)))}
	if m.ID == "" {
		ps.add(m.set(), "spec.clusterID", "ClusterIDMissing",
			"'clusterID' is not set in the ClusterSet spec, and there is no ClusterClaim id.k8s.io in Namespace "+
				set.Namespace+"; set spec.clusterID to this cluster's ID")
		return m, ps
	}
	area, field, message := commonAreaOf(set, m.ID, func(k derive.Object) *credentials {
		c, _ := derive.Get(r, t.secrets, k)
		return c
	})
	if message != "" || area == (Area{}) {
		m.Field, m.Fault = field, message
		if message != "" {
			ps.add(m.set(), field, "LeaderNotConfigured", message)
		}
		return m, ps
	}
	m.Area = &area
	where := derive.Object{Namespace: set.Namespace, Name: set.Spec.Leaders[0].Secret}
	if has, ok := derive.Get(r, t.secrets, where); ok && has.Refused != "" {
		ps.add(m.set(), "spec.leaders[0].secret", "SecretNotReadable",
			unreadable(where, has)+"; what was read of it earlier is used")
	}
	c, _ := derive.Get(r, t.connection, here)
	m.Joined = c.Area == area && c.Synced && c.Done
	return m, ps
}

// chooseClusterSet returns the ClusterSet this cluster is in: the oldest, since a Namespace
// may have only one. It returns nil if there is none, or only ones being deleted.
func chooseClusterSet(sets []*mcv1alpha2.ClusterSet) (*mcv1alpha2.ClusterSet, faults) {
	var chosen *mcv1alpha2.ClusterSet
	for _, cs := range sets {
		if cs.DeletionTimestamp.IsZero() && (chosen == nil || cs.CreationTimestamp.Before(&chosen.CreationTimestamp)) {
			chosen = cs
		}
	}
	var ps faults
	for _, cs := range sets {
		if cs != chosen && cs.DeletionTimestamp.IsZero() {
			ps.add(object("ClusterSet", cs.Namespace, cs.Name), "", "MultipleClusterSets",
				"ignored: Namespace "+cs.Namespace+" already has ClusterSet "+chosen.Name+
					" and a cluster can be in only one; delete one of the two")
		}
	}
	return chosen, ps
}

// clusterSetOf is what the spec and the status of the ClusterSet this cluster is in say.
func (t *reachTables) clusterSetOf(k derive.Object, r *derive.Reader) (*mcv1alpha2.ClusterSet, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	set, ok := derive.Get(r, t.base.clusterSets, k)
	if m.Set != k || m.ID == "" || !ok {
		return nil, nil
	}
	wanted := set.DeepCopy()
	wanted.Spec.ClusterID = m.ID
	c, _ := derive.Get(r, t.base.connection, here)
	switch {
	case m.Fault != "":
		setStatus(wanted, connection{Tried: true, Error: m.Fault})
	case m.Area == nil: // not known yet
	case c.Area == *m.Area:
		setStatus(wanted, c)
	default:
		setStatus(wanted, connection{})
	}
	setReachable(wanted, set.Status.ClusterStatuses, t.reached(r))
	return wanted, t.configured(m, r)
}

// clusterID is this cluster's ID: the ClusterSet's, else that of the ClusterClaim in either
// shape (named id.k8s.io, or with a top-level name id.k8s.io).
func clusterID(set *mcv1alpha2.ClusterSet, claims []*mcv1alpha2.ClusterClaim) string {
	if set.Spec.ClusterID != "" {
		return set.Spec.ClusterID
	}
	for _, claim := range claims {
		if claim.Name == multicluster.ClusterClaimClusterID || claim.ClaimName == multicluster.ClusterClaimClusterID {
			return claim.Value
		}
	}
	return ""
}

// commonAreaOf is the Common Area the ClusterSet names. If something is missing for it,
// commonAreaOf returns the field at fault and what to do. While the Secret has not been read it returns nothing.
func commonAreaOf(set *mcv1alpha2.ClusterSet, id string, secret func(derive.Object) *credentials) (area Area, field, message string) {
	if len(set.Spec.Leaders) == 0 {
		return Area{}, "spec.leaders", "no leader is given; name the leader's clusterID, server and secret"
	}
	leader := set.Spec.Leaders[0]
	if leader.ClusterID == "" {
		return Area{}, "spec.leaders[0].clusterID", "the leader's cluster ID is missing"
	}
	if set.Spec.Namespace == "" {
		return Area{}, "spec.namespace", "the Namespace in the leader cluster is missing"
	}
	// Over plain HTTP the token would go through the network for everyone to read.
	if u, err := url.Parse(leader.Server); err != nil || u.Host == "" || u.Scheme != "https" {
		return Area{}, "spec.leaders[0].server",
			fmt.Sprintf("%q is not the https URL of the leader's API server, such as https://10.0.0.1:6443", leader.Server)
	}
	where := derive.Object{Namespace: set.Namespace, Name: leader.Secret}
	has := &credentials{}
	if leader.Secret != "" {
		if has = secret(where); has == nil {
			return Area{}, "", ""
		}
	}
	if !has.Exists && has.Refused != "" {
		return Area{}, "spec.leaders[0].secret", unreadable(where, has)
	}
	if !has.Exists {
		return Area{}, "spec.leaders[0].secret",
			fmt.Sprintf("Secret %s does not exist; create it with the keys ca.crt and token of a ServiceAccount in the leader", where)
	}
	for _, k := range []struct{ key, value string }{{corev1.ServiceAccountRootCAKey, has.CA}, {corev1.ServiceAccountTokenKey, has.Token}} {
		if k.value == "" {
			return Area{}, "spec.leaders[0].secret", fmt.Sprintf("Secret %s has no key %s; copy ca.crt and token from the ServiceAccount's Secret in the leader", where, k.key)
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(has.CA)) {
		return Area{}, "spec.leaders[0].secret", fmt.Sprintf("Secret %s, key %s: it has no certificate in PEM; copy ca.crt and token from the ServiceAccount's Secret in the leader", where, corev1.ServiceAccountRootCAKey)
	}
	return Area{
		ClusterSet: set.Name, ClusterID: id,
		LeaderID: leader.ClusterID, Server: leader.Server, Namespace: set.Spec.Namespace, Secret: where.String(),
		Token: strings.TrimSpace(has.Token), CA: has.CA,
	}, "", ""
}

// unreadable says why a Secret may not be read, and what to do.
func unreadable(where derive.Object, has *credentials) string {
	return fmt.Sprintf("Secret %s may not be read: %s: apply antrea-multicluster-member.yml again, "+
		"or let ServiceAccount antrea-mc-controller get this Secret", where, has.Refused)
}

// next is when the next announcement is due: at once when none has been sent, soon after a failure and
// after the first, which only creates the announcement, and every ten seconds otherwise.
func (a Announcement) next() time.Time {
	switch {
	case a.Tried.IsZero():
		return time.Time{}
	case a.Error != "" || !a.Found:
		return a.Tried.Add(announceRetry)
	}
	return a.Tried.Add(announceEvery)
}

// announcementTo is this cluster's announcement to a leader.
func announcementTo(area Area) *mcv1alpha1.MemberClusterAnnounce {
	return &mcv1alpha1.MemberClusterAnnounce{
		ObjectMeta:      metav1.ObjectMeta{Namespace: area.Namespace, Name: multicluster.AnnounceName(area.ClusterID)},
		ClusterID:       area.ClusterID,
		ClusterSetID:    area.ClusterSet,
		LeaderClusterID: area.LeaderID,
	}
}

// setStatus writes what the last announcement says into the ClusterSet's status. Before the
// first one after a restart, a status that is there already is left as it is. Conditions that change have no
// time: they get it when they are written.
func setStatus(cs *mcv1alpha2.ClusterSet, a connection) {
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
	if !a.Tried && len(old) > 0 {
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
	case !a.Tried:
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
	conditions := setClusterCondition(setClusterCondition(old, ready), isLeader)
	cs.Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: leaderID, Conditions: conditions}}
	cs.Status.Conditions = setClusterSetCondition(cs.Status.Conditions, overall)
	cs.Status.ObservedGeneration = cs.Generation
}

// condition is a condition of a ClusterSet or of a cluster in it.
type condition struct {
	kind            string
	status          corev1.ConditionStatus
	reason, message string
}

package membership

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Membership is the ClusterSet that this cluster is in. It does not change with the results of announcements.
type Membership struct {
	// Leave is set if the cluster is in no ClusterSet: nothing is desired, and leftovers are removed.
	Leave bool

	Set    derive.Object // the ClusterSet it is in
	ID     string        // this cluster's ID; if it is empty, nothing is done
	Common string        // the Namespace in the leader
	Area   *Area         // nil while facts for it are missing
	// Central is set if this cluster lets the central cluster decide about the networks of its isolated Namespaces.
	Central bool
	// Joined is set if the leader has accepted this cluster and all of the area has been read.
	Joined bool

	// Field and Fault have the reason why there is no Area. Both are empty while the Secret has not been read.
	Field, Fault string
}

func (m Membership) ClusterSet() problem.Object {
	return problem.About("ClusterSet", m.Set.Namespace, m.Set.Name)
}

// KeepsImports reports whether imported objects stay as they are, because facts are missing.
func (m Membership) KeepsImports() bool { return !m.Leave && !m.Joined }

// IsFor reports whether a ResourceImport is meant for this cluster. If it names no cluster, it is for all.
func (m Membership) IsFor(ri *mcv1alpha1.ResourceImport) bool {
	return len(ri.Spec.ClusterIDs) == 0 || slices.Contains(ri.Spec.ClusterIDs, m.ID)
}

// Area has all facts for the work in a leader's Namespace, the Common Area of a ClusterSet. A change of any field leads
// to a new connection.
type Area struct {
	ClusterSet string // name of the ClusterSet, which is its ID
	ClusterID  string // this cluster's ID in it
	LeaderID   string // the leader's cluster ID
	Server     string // URL of the leader's API server
	Namespace  string // in the leader
	Secret     string // the source of Token and CA in this cluster: namespace/name
	Token      string // of the ServiceAccount to act as
	CA         string // PEM
}

// String names the area without its credentials.
func (a Area) String() string {
	return fmt.Sprintf("Namespace %s of leader %s at %s", a.Namespace, a.LeaderID, a.Server)
}

// GoString keeps the token out of %#v and of test diffs.
func (a Area) GoString() string { return a.String() }

// membershipOf decides this cluster's ID, and the Common Area to connect to.
func (t *Tables) membershipOf(_ derive.Name, r *derive.Reader) (Membership, []problem.Problem) {
	set, ps := ChooseClusterSet(derive.Values(derive.All(r, t.ClusterSets)))
	if set == nil {
		return Membership{Leave: true}, ps
	}
	m := Membership{Set: derive.ObjectOf(set), Common: set.Spec.Namespace,
		ID:      clusterID(set, derive.Values(derive.All(r, t.clusterClaims))),
		Central: set.Annotations[multicluster.AnnotationCentral] == "true"}
	if m.ID == "" {
		ps.Add(m.ClusterSet(), "spec.clusterID", reasonClusterIDMissing,
			"'clusterID' is not set in the ClusterSet spec, and there is no ClusterClaim id.k8s.io in Namespace "+
				set.Namespace+"; set spec.clusterID to this cluster's ID")
		return m, ps
	}
	area, field, message := commonAreaOf(set, m.ID, func(k derive.Object) *Credentials {
		c, _ := derive.Get(r, t.Secrets, k)
		return c
	})
	if message != "" || area == (Area{}) {
		m.Field, m.Fault = field, message
		if message != "" {
			ps.Add(m.ClusterSet(), field, reasonLeaderNotConfigured, message)
		}
		return m, ps
	}
	m.Area = &area
	where := derive.Object{Namespace: set.Namespace, Name: set.Spec.Leaders[0].Secret}
	if has, ok := derive.Get(r, t.Secrets, where); ok && has.Error != "" {
		ps.Add(m.ClusterSet(), "spec.leaders[0].secret", reasonSecretNotReadable,
			unreadable(where, has)+"; what was read of it earlier is used")
	}
	c, _ := derive.Get(r, t.Connection, Here)
	m.Joined = c.Area == area && c.Synced && c.Done
	return m, ps
}

// ChooseClusterSet returns the ClusterSet that this cluster is in. It is the oldest, since a Namespace may have only
// one. If all are being deleted, or there is no ClusterSet, it returns nil.
func ChooseClusterSet(sets []*mcv1alpha2.ClusterSet) (*mcv1alpha2.ClusterSet, problem.List) {
	var chosen *mcv1alpha2.ClusterSet
	for _, cs := range sets {
		if cs.DeletionTimestamp.IsZero() && (chosen == nil || cs.CreationTimestamp.Before(&chosen.CreationTimestamp)) {
			chosen = cs
		}
	}
	var ps problem.List
	for _, cs := range sets {
		if cs != chosen && cs.DeletionTimestamp.IsZero() {
			ps.Add(problem.About("ClusterSet", cs.Namespace, cs.Name), "", reasonMultipleClusterSets,
				"ignored: Namespace "+cs.Namespace+" already has ClusterSet "+chosen.Name+
					" and a cluster can be in only one; delete one of the two")
		}
	}
	return chosen, ps
}

// clusterID returns this cluster's ID. It is from the ClusterSet, else from the ClusterClaim in either shape (named
// id.k8s.io, or with a top-level name id.k8s.io).
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

// commonAreaOf returns the Common Area that the ClusterSet names. If a fact for it is missing, it returns the field at
// fault and the remedy. While the Secret has not been read, it returns nothing.
func commonAreaOf(set *mcv1alpha2.ClusterSet, id string,
	secret func(derive.Object) *Credentials) (area Area, field, message string) {
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
	has := &Credentials{}
	if leader.Secret != "" {
		if has = secret(where); has == nil {
			return Area{}, "", ""
		}
	}
	if !has.Exists && has.Error != "" {
		return Area{}, "spec.leaders[0].secret", unreadable(where, has)
	}
	if !has.Exists {
		return Area{}, "spec.leaders[0].secret",
			fmt.Sprintf("Secret %s does not exist; create it with the keys ca.crt and token of a ServiceAccount in the leader",
				where)
	}
	for _, k := range []struct{ key, value string }{{corev1.ServiceAccountRootCAKey, has.CA},
		{corev1.ServiceAccountTokenKey, has.Token}} {
		if k.value == "" {
			return Area{}, "spec.leaders[0].secret", fmt.Sprintf(
				"Secret %s has no key %s; copy ca.crt and token from the ServiceAccount's Secret in the leader", where, k.key)
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(has.CA)) {
		return Area{}, "spec.leaders[0].secret", fmt.Sprintf(
			"Secret %s, key %s: it has no certificate in PEM; copy ca.crt and token from the ServiceAccount's Secret "+
				"in the leader", where, corev1.ServiceAccountRootCAKey)
	}
	return Area{
		ClusterSet: set.Name, ClusterID: id,
		LeaderID: leader.ClusterID, Server: leader.Server, Namespace: set.Spec.Namespace, Secret: where.String(),
		Token: strings.TrimSpace(has.Token), CA: has.CA,
	}, "", ""
}

// unreadable returns why a Secret cannot be read, and the remedy.
func unreadable(where derive.Object, has *Credentials) string {
	if !has.Forbidden {
		return fmt.Sprintf("Secret %s cannot be read: %s: check the API server of this cluster and its storage, "+
			"such as the encryption of Secrets; it is read again every few seconds", where, has.Error)
	}
	return fmt.Sprintf("Secret %s may not be read: %s: apply antrea-multicluster-member.yml again, "+
		"or let ServiceAccount antrea-mc-controller get this Secret", where, has.Error)
}

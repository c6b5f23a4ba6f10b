package member

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// View is everything the member's decisions depend on, as objects. Plan treats them as read-only.
type View struct {
	Namespace string        // the controller's own: where ClusterSet, Gateways and ClusterInfoImports live
	Now       time.Time     // for heartbeats and transition times
	Config    config.Config // of this controller

	// ServiceCIDR is this cluster's Service range, from the configuration or discovered.
	// Empty while it is unknown; ServiceCIDRError then says why.
	ServiceCIDR      string
	ServiceCIDRError string

	ClusterSets   []*mcv1alpha2.ClusterSet   // of Namespace
	ClusterClaims []*mcv1alpha2.ClusterClaim // of Namespace; none if the API server has no such kind
	Secrets       []*corev1.Secret           // of Namespace, those that ClusterSets name

	Namespaces         []*corev1.Namespace
	Nodes              []*corev1.Node
	Services           []*corev1.Service
	Endpoints          []*Endpoints
	EndpointSlices     []*discoveryv1.EndpointSlice
	ServiceExports     []*mcsv1alpha1.ServiceExport
	ServiceImports     []*mcsv1alpha1.ServiceImport
	Gateways           []*mcv1alpha1.Gateway           // of Namespace
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport // of Namespace
	Pods               []*corev1.Pod                   // none without enableStretchedNetworkPolicy
	LabelIdentities    []*mcv1alpha1.LabelIdentity
	PodAddressImports  []*mcv1alpha1.PodAddressImport // of Namespace
	ACNPs              []*crdv1beta1.ClusterNetworkPolicy
	CNPs               []*npv1alpha2.ClusterNetworkPolicy
	NetworkPolicies    []*networkingv1.NetworkPolicy
	Tiers              []*crdv1beta1.Tier
	Reports            []*tombolov1alpha1.NodePolicyReport // none without podCIDRs
	PhasesOver         map[derive.Object]string            // of Gateways whose phase has lasted as long as it may

	Leader Leader
}

// Leader is what is known from the leader cluster.
type Leader struct {
	Area         Area // the Common Area all of this was read from; zero if there is none
	Announcement Announcement

	// Synced says that ResourceImports and ResourceExports have been read completely once.
	// It stays true while the leader is away: what was known is still the best knowledge.
	Synced          bool
	ResourceImports []*mcv1alpha1.ResourceImport
	ResourceExports []*mcv1alpha1.ResourceExport // those labelled with this cluster's ID
}

// Area is what it takes to work in a leader's Namespace, the Common Area of a ClusterSet.
// A change in any field means a new connection.
type Area struct {
	ClusterSet string // name of the ClusterSet, which is its ID
	ClusterID  string // this cluster's ID in it
	LeaderID   string // the leader's cluster ID
	Server     string // URL of the leader's API server
	Namespace  string // in the leader
	Secret     string // where Token and CA are from, in this cluster: namespace/name
	Token      string // of the ServiceAccount to act as
	CA         string // PEM
}

// String names the area without its credentials.
func (a Area) String() string {
	return fmt.Sprintf("Namespace %s of leader %s at %s", a.Namespace, a.LeaderID, a.Server)
}

// GoString keeps the token out of %#v and of test diffs.
func (a Area) GoString() string { return a.String() }

// Announcement is how the last announcement of this cluster to the leader went. The zero
// value means that none has been tried since the connection was made.
type Announcement struct {
	Tried time.Time // when the last one was sent
	Done  time.Time // when the last successful one was sent
	Found bool      // the leader had this cluster's MemberClusterAnnounce already
	Error string    // why the last one failed; empty if it did not
}

// Package membership has the facts that all features of the member's controller read. These are the ClusterSet that
// this cluster is in and the Common Area to connect to, this cluster itself, and the objects of the Common Area. It is
// the one package of features that other features import.
//
// The facts of an object are an object of the same kind with only the fields that decisions read. So an event that
// changes only other fields ends in its source. An update is the difference of two such objects.
package membership

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Here is the key of tables with one row about this cluster.
const Here = derive.Name("here")

// Environment has the facts about this cluster that are not from its objects.
type Environment struct {
	Known bool // true in every row
	// ServiceCIDR is the range that is announced first, configured or discovered. If ranges are configured, no others are
	// announced.
	ServiceCIDR      string
	OtherCIDRs       []string // that were discovered with it
	ServiceCIDRError string
	ServiceCIDRs     []string // as configured
}

// Connection is the state of the connection to a Common Area. Repeated equal answers of the leader do not change it.
type Connection struct {
	Number int // of the connection; zero for no connection
	Area   Area
	Synced bool // all of the area was read once
	// The result of announcements: of the last one, and whether one has succeeded.
	Tried, Done, Found bool
	Error              string
}

// Tables has the ClusterSet that this cluster is in, this cluster itself, and the objects of the Common Area.
type Tables struct {
	Namespace string        // the controller's own, with the ClusterSet, Gateways and ClusterInfoImports
	Config    config.Config // of this controller

	// Connection is the first source. A pass that uses a row of it also has all objects that were read from the Common
	// Area before that row was written.
	Connection    *derive.Source[derive.Name, Connection]
	Environment   *derive.Source[derive.Name, Environment]
	Secrets       *derive.Source[derive.Object, *Credentials] // that ClusterSets name, as far as they were read
	ClusterSets   *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	clusterClaims *derive.Source[derive.Object, *mcv1alpha2.ClusterClaim]

	Namespaces *derive.Source[derive.Object, *corev1.Namespace]
	Nodes      *derive.Source[derive.Object, *corev1.Node]
	// serviceCIDRs are the ranges of ServiceCIDR objects; empty if the API server has no such kind.
	serviceCIDRs *derive.Source[derive.Object, []netip.Prefix]
	Reports      *derive.Source[derive.Object, AgentReport] // of NodePolicyReports

	ResourceImports *derive.Source[derive.Object, *mcv1alpha1.ResourceImport]
	ResourceExports *derive.Source[derive.Object, *mcv1alpha1.ResourceExport]
	ImportsByName   *derive.Index[derive.Object, derive.Object, *mcv1alpha1.ResourceImport] // by the Service
	ImportsByKind   *derive.Index[derive.Name, derive.Object, *mcv1alpha1.ResourceImport]

	Membership *derive.Table[derive.Name, Membership]
	Own        *derive.Table[derive.Name, OwnRanges]
}

// New adds the tables of the membership. namespace is the controller's own.
func New(k *writes.Kinds, namespace string, cfg config.Config) *Tables {
	t := &Tables{Namespace: namespace, Config: cfg}
	own := watch.In(namespace)
	t.Connection = derive.NewSource[derive.Name, Connection](k.Engine, "connection")
	t.Environment = derive.NewSource[derive.Name, Environment](k.Engine, "environment")
	t.Secrets = derive.NewSource[derive.Object, *Credentials](k.Engine, "secrets")
	t.ClusterSets = writes.NewSource(k, k.Cluster, "ClusterSet", "clustersets", clusterSetFacts, writes.Version, own)
	t.clusterClaims = watch.NewSource(k.Cluster, "clusterclaims", clusterClaimFacts, own, watch.Believed())
	t.Namespaces = watch.NewSource(k.Cluster, "namespaces", namespaceFacts(cfg.EnableStretchedNetworkPolicy))
	t.Nodes = watch.NewSource(k.Cluster, "nodes", nodeFacts)
	t.serviceCIDRs = watch.NewSource(k.Cluster, "servicecidrs", serviceCIDRFacts, watch.IfAllowed())
	t.Reports = watch.NewSource(k.Cluster, "nodepolicyreports", reportFacts, watch.Optional())
	t.ResourceImports = watch.NewSource(k.Area, "resourceimports", resourceImportFacts)
	t.ResourceExports = writes.NewSource(k, k.OwnExports, "ResourceExport", "resourceexports", resourceExportFacts,
		writes.Version)

	t.ImportsByName = derive.NewIndex(t.ResourceImports, "name", importedName)
	t.ImportsByKind = derive.NewIndex(t.ResourceImports, "kind", importedKind)
	t.Membership = derive.NewTable(k.Engine, "membership", t.membershipOf, derive.KeysOf(t.Environment))
	t.Own = derive.NewTable(k.Engine, "own-ranges", t.ownOf, derive.KeysOf(t.Environment))
	return t
}

// About returns the object to blame for writes without a better one.
func (t *Tables) About(m Membership) problem.Object {
	if m.Leave {
		return problem.Object{Kind: "ClusterSet", Namespace: t.Namespace}
	}
	return m.ClusterSet()
}

package member

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// here is the key of what this cluster has one of.
const here = derive.Name("here")

// environment is what is known of this cluster from elsewhere than its objects.
type environment struct {
	Known            bool // true in every row
	ServiceCIDR      string
	ServiceCIDRError string
}

// connection is how the connection to a Common Area stands. Another answer of the area changes nothing in it.
type connection struct {
	Number int // of the connection; zero for none
	Area   Area
	Synced bool // all of the area was read once
	// The result of announcements: of the last one, and whether one has succeeded.
	Tried, Done, Found bool
	Error              string
}

// membershipTables are what all features read: the ClusterSet that this cluster is in, this cluster itself, and the
// objects of the Common Area.
type membershipTables struct {
	namespace string        // the controller's own: where ClusterSet, Gateways and ClusterInfoImports live
	config    config.Config // of this controller

	// connection is the first source: a pass that takes what was written before a row of it, takes what was read from the
	// Common Area before that row, too.
	connection    *derive.Source[derive.Name, connection]
	environment   *derive.Source[derive.Name, environment]
	secrets       *derive.Source[derive.Object, *credentials] // that ClusterSets name, as far as they were read
	clusterSets   *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	clusterClaims *derive.Source[derive.Object, *mcv1alpha2.ClusterClaim]

	namespaces *derive.Source[derive.Object, *corev1.Namespace]
	nodes      *derive.Source[derive.Object, *corev1.Node]
	reports    *derive.Source[derive.Object, agentReport] // of NodePolicyReports

	resourceImports *derive.Source[derive.Object, *mcv1alpha1.ResourceImport]
	resourceExports *derive.Source[derive.Object, *mcv1alpha1.ResourceExport]
	importsByName   *derive.Index[derive.Object, derive.Object, *mcv1alpha1.ResourceImport] // by the Service
	importsByKind   *derive.Index[derive.Name, derive.Object, *mcv1alpha1.ResourceImport]

	membership *derive.Table[derive.Name, membership]
	own        *derive.Table[derive.Name, ownRanges]
}

func newMembershipTables(k *kinds, namespace string, cfg config.Config) *membershipTables {
	t := &membershipTables{namespace: namespace, config: cfg}
	own := watch.In(namespace)
	t.connection = derive.NewSource[derive.Name, connection](k.Engine, "connection")
	t.environment = derive.NewSource[derive.Name, environment](k.Engine, "environment")
	t.secrets = derive.NewSource[derive.Object, *credentials](k.Engine, "secrets")
	t.clusterSets = writtenKind(k, k.cluster, "ClusterSet", "clustersets", clusterSetFacts, version, own)
	t.clusterClaims = watch.NewSource(k.cluster, "clusterclaims", clusterClaimFacts, own, watch.Believed())
	t.namespaces = watch.NewSource(k.cluster, "namespaces", namespaceFacts(cfg.EnableStretchedNetworkPolicy))
	t.nodes = watch.NewSource(k.cluster, "nodes", nodeFacts)
	t.reports = watch.NewSource(k.cluster, "nodepolicyreports", reportFacts, watch.Optional())
	t.resourceImports = watch.NewSource(k.area, "resourceimports", resourceImportFacts)
	t.resourceExports = writtenKind(k, k.ownExports, "ResourceExport", "resourceexports", resourceExportFacts, version)

	t.importsByName = derive.NewIndex(t.resourceImports, "name", importedName)
	t.importsByKind = derive.NewIndex(t.resourceImports, "kind", importedKind)
	t.membership = derive.NewTable(k.Engine, "membership", t.membershipOf, derive.KeysOf(t.environment))
	t.own = derive.NewTable(k.Engine, "own-ranges", t.ownOf, derive.KeysOf(t.environment))
	return t
}

// importedName indexes ResourceImports of Services by the Service.
func importedName(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
	if ri.Spec.Kind != multicluster.ServiceImportKind && ri.Spec.Kind != multicluster.EndpointsKind {
		return nil
	}
	return []derive.Object{{Namespace: ri.Spec.Namespace, Name: ri.Spec.Name}}
}

// importedKind indexes ResourceImports by their kind, where a list of the kind is read.
func importedKind(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Name {
	if ri.Spec.Kind != multicluster.ClusterInfoKind {
		return nil
	}
	return []derive.Name{multicluster.ClusterInfoKind}
}

// connectionOf is how a connection stands after an announcement. When that was is not in it.
func connectionOf(number int, area Area, synced bool, last Announcement) connection {
	return connection{Number: number, Area: area, Synced: synced,
		Tried: !last.Tried.IsZero(), Done: !last.Done.IsZero(), Found: last.Found, Error: last.Error}
}

// keyOf is an object's key.
func keyOf(o metav1.Object) derive.Object {
	return derive.Object{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func keysOf[T metav1.Object](list []T) []derive.Object {
	keys := make([]derive.Object, len(list))
	for i, o := range list {
		keys[i] = keyOf(o)
	}
	return keys
}

// values returns the values of rows, in the order of their keys.
func values[K derive.Key[K], V any](rows []derive.Row[K, V]) []V {
	out := make([]V, len(rows))
	for i, row := range rows {
		out[i] = row.Value
	}
	return out
}

// faults are the Problems that a function reports.
type faults []problem.Problem

func (p *faults) add(object problem.Object, field, reason, message string) {
	*p = append(*p, problem.Problem{Object: object, Field: field, Reason: reason, Message: message})
}

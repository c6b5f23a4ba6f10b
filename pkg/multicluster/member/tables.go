package member

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// here is the key of what this cluster has one of.
const here = derive.Name("here")

// environment is what is known of this cluster beside its objects.
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
	// What became of announcements: of the last one, and whether one has succeeded.
	Tried, Done, Found bool
	Error              string
}

// tables are the member's state: sources of facts, what is desired, and the writes that are missing. All functions are
// pure; the controller fills the sources and does the writes.
type tables struct {
	*derive.Engine
	namespace string
	config    config.Config
	publish   []netip.Prefix // ranges in which Pods' addresses are published
	// What is exported at most of label identities and of Pods' addresses.
	maxLabels, maxAddresses int

	// Kinds of objects: of this cluster, of the Common Area, and this cluster's exports in it.
	cluster, area, ownExports *watch.Kinds

	// connection is the first source: one that takes what was written before it, takes what was read from the area before.
	connection  *derive.Source[derive.Name, connection]
	environment *derive.Source[derive.Name, environment]
	refused     *derive.Source[derive.Name, string] // why what the configuration file has is not in effect; none for nothing

	clusterSets        *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	clusterClaims      *derive.Source[derive.Object, *mcv1alpha2.ClusterClaim]
	secrets            *derive.Source[derive.Object, *credentials] // that ClusterSets name, as far as they were read
	namespaces         *derive.Source[derive.Object, *corev1.Namespace]
	nodes              *derive.Source[derive.Object, *corev1.Node]
	services           *derive.Source[derive.Object, *corev1.Service]
	endpoints          *derive.Source[derive.Object, *Endpoints]
	slices             *derive.Source[derive.Object, *discoveryv1.EndpointSlice]
	serviceExports     *derive.Source[derive.Object, *mcsv1alpha1.ServiceExport]
	serviceImports     *derive.Source[derive.Object, *mcsv1alpha1.ServiceImport]
	gateways           *derive.Source[derive.Object, *mcv1alpha1.Gateway]
	clusterInfoImports *derive.Source[derive.Object, *mcv1alpha1.ClusterInfoImport]
	pods               *derive.Source[derive.Object, podFacts] // none without enableStretchedNetworkPolicy
	labelIdentities    *derive.Source[derive.Object, *mcv1alpha1.LabelIdentity]
	podAddressImports  *derive.Source[derive.Object, *mcv1alpha1.PodAddressImport]
	acnps              *derive.Source[derive.Object, *crdv1beta1.ClusterNetworkPolicy]
	cnps               *derive.Source[derive.Object, *npv1alpha2.ClusterNetworkPolicy]
	networkPolicies    *derive.Source[derive.Object, *networkingv1.NetworkPolicy]
	tiers              *derive.Source[derive.Object, bool]
	reports            *derive.Source[derive.Object, agentReport] // of NodePolicyReports
	phasesOver         *derive.Source[derive.Object, string]      // of Gateways, as phaseClock has them
	forgotten          *derive.Source[derive.Object, bool]        // ClusterInfoImports of clusters that were withdrawn long ago (forgottenAt)
	refusedWrites      *derive.Source[derive.Name, string]        // why policies could not be written, by policyKey
	writtenPolicies    *derive.Source[derive.Name, writtenPolicy] // those that were, by policyKey
	resourceImports    *derive.Source[derive.Object, *mcv1alpha1.ResourceImport]
	resourceExports    *derive.Source[derive.Object, *mcv1alpha1.ResourceExport]
	versions           map[string]*derive.Source[derive.Object, string] // resourceVersions of what is written, by kind

	slicesByService *derive.Index[derive.Object, derive.Object, *discoveryv1.EndpointSlice]
	servicesByIP    *derive.Index[derive.Name, derive.Object, *corev1.Service]
	importedSlices  *derive.Index[derive.Object, derive.Object, *discoveryv1.EndpointSlice] // those that this controller makes
	importsByName   *derive.Index[derive.Object, derive.Object, *mcv1alpha1.ResourceImport]
	importsByKind   *derive.Index[derive.Name, derive.Object, *mcv1alpha1.ResourceImport]

	membership     *derive.Table[derive.Name, membership]
	clusterSet     *derive.Table[derive.Object, *mcv1alpha2.ClusterSet]
	announced      *derive.Table[derive.Name, *mcv1alpha1.ClusterInfo] // what the leader tells other clusters of this one
	activeGateways *derive.Table[derive.Name, []*mcv1alpha1.Gateway]   // the oldest first
	gatewayStatus  *derive.Table[derive.Object, []mcv1alpha1.WayStatus]
	sights         *derive.Table[derive.Name, map[string]sight] // by cluster ID
	gone           *derive.Table[derive.Name, map[string]bool]  // cluster IDs
	own            *derive.Table[derive.Name, ownRanges]
	infos          *derive.Table[derive.Name, []*mcv1alpha1.ClusterInfoImport]
	reachable      *derive.Table[derive.Name, *reach]
	imports        *derive.Table[derive.Object, *importedService] // by the Service's name in the ClusterSet
	sources        *derive.Table[derive.Name, []sourceRange]
	exportable     *derive.Table[derive.Object, *exportable] // by the Service's name
	holders        *derive.Table[derive.Name, derive.Object] // which Service has a ResourceExport's name
	exports        *derive.Table[derive.Object, *exported]   // by the Service's name
	validity       *derive.Table[derive.Object, []metav1.Condition]
	ownInfo        *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]

	podIdentities    *derive.Table[derive.Object, policy.Identity]
	identityCounts   *derive.Table[derive.Name, int]    // by Namespace
	identityShare    *derive.Table[derive.Name, share]  // of a Namespace
	chosenIdentities *derive.Table[derive.Name, chosen] // by Namespace
	labelExports     *derive.Table[policy.Identity, *mcv1alpha1.ResourceExport]
	labels           *derive.Table[derive.Object, *mcv1alpha1.LabelIdentity]

	blocks         *derive.Table[block, published]
	unpublished    *derive.Table[derive.Name, tooMany]
	addressExports *derive.Table[block, *mcv1alpha1.ResourceExport]
	addresses      *derive.Table[derive.Object, *mcv1alpha1.PodAddressImport]

	podsIn               *derive.Index[block, derive.Object, podFacts]
	addressExportsByName *derive.Index[derive.Object, block, *mcv1alpha1.ResourceExport]

	replicas     *derive.Table[derive.Object, *replica] // by the ResourceImport
	policyReport *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]

	replicasByObject                              *derive.Index[derive.Name, derive.Object, *replica]
	acnpTargets, cnpTargets, networkPolicyTargets *derive.Index[derive.Object, derive.Object, *replica]
	policyReportByName                            *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport]

	identitiesIn       *derive.Index[derive.Name, policy.Identity, derive.Name] // by Namespace
	labelExportsByName *derive.Index[derive.Object, policy.Identity, *mcv1alpha1.ResourceExport]
	importsByNumber    *derive.Index[labelNumber, derive.Object, *mcv1alpha1.ResourceImport]
	labelsByNumber     *derive.Index[labelNumber, derive.Object, *mcv1alpha1.LabelIdentity]

	slicesToImport   *derive.Index[derive.Object, derive.Object, *importedService]
	exportableByName *derive.Index[derive.Name, derive.Object, *exportable]
	infosByName      *derive.Index[derive.Object, derive.Name, []*mcv1alpha1.ClusterInfoImport]
	gatewayByName    *derive.Index[derive.Object, derive.Name, []*mcv1alpha1.Gateway]
	exportsByName    *derive.Index[derive.Object, derive.Object, *exported]
	ownInfoByName    *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport]

	local  []*derive.Table[derive.Object, *Write] // here, in the order of their kinds
	leader *derive.Table[derive.Object, *Write]
}

func newTables(namespace string, cfg config.Config) *tables {
	e := derive.New()
	t := &tables{Engine: e, namespace: namespace, config: cfg, maxLabels: exportcheck.MaxLabels, maxAddresses: exportcheck.MaxAddresses,
		versions: map[string]*derive.Source[derive.Object, string]{}}
	if cfg.PublishPodAddresses {
		t.publish = exportcheck.Prefixes(cfg.PodCIDRs)
	}
	t.connection = derive.NewSource[derive.Name, connection](e, "connection")
	t.environment = derive.NewSource[derive.Name, environment](e, "environment")
	t.refused = derive.NewSource[derive.Name, string](e, "refused configuration")
	t.refused.Loaded()
	t.secrets = derive.NewSource[derive.Object, *credentials](e, "secrets")
	t.phasesOver = derive.NewSource[derive.Object, string](e, "phases that are over")
	t.phasesOver.Loaded()
	t.forgotten = derive.NewSource[derive.Object, bool](e, "withdrawals that are over")
	t.forgotten.Loaded()
	t.refusedWrites = derive.NewSource[derive.Name, string](e, "refused writes")
	t.refusedWrites.Loaded()
	t.writtenPolicies = derive.NewSource[derive.Name, writtenPolicy](e, "written policies")
	t.writtenPolicies.Loaded()
	t.declareKinds()

	t.slicesByService = derive.NewIndex(t.slices, "service", func(k derive.Object, s *discoveryv1.EndpointSlice) []derive.Object {
		return []derive.Object{{Namespace: k.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}}
	})
	t.servicesByIP = derive.NewIndex(t.services, "address", byClusterIP)
	t.importedSlices = derive.NewIndex(t.slices, "imported", func(k derive.Object, s *discoveryv1.EndpointSlice) []derive.Object {
		if !importedSlice(s) {
			return nil
		}
		return []derive.Object{k}
	})
	t.importsByName = derive.NewIndex(t.resourceImports, "name", func(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
		if ri.Spec.Kind != multicluster.ServiceImportKind && ri.Spec.Kind != multicluster.EndpointsKind {
			return nil
		}
		return []derive.Object{{Namespace: ri.Spec.Namespace, Name: ri.Spec.Name}}
	})
	t.importsByKind = derive.NewIndex(t.resourceImports, "kind", func(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Name {
		if ri.Spec.Kind != multicluster.ClusterInfoKind {
			return nil // of the others nobody wants a list
		}
		return []derive.Name{multicluster.ClusterInfoKind}
	})

	once := derive.KeysOf(t.environment)
	t.membership = derive.NewTable(e, "membership", t.membershipOf, once)
	t.gatewayStatus = derive.NewTable(e, "gateway-status", t.waysOf, derive.KeysOf(t.gateways))
	t.announced = derive.NewTable(e, "announced", t.announcedOf, once)
	t.activeGateways = derive.NewTable(e, "active-gateways", t.gatewaysOf, once)
	t.gatewayByName = derive.NewIndex(t.activeGateways, "name", func(_ derive.Name, list []*mcv1alpha1.Gateway) []derive.Object {
		return keysOf(list)
	})
	t.sights = derive.NewTable(e, "sights", t.sightsOf, once)
	t.gone = derive.NewTable(e, "gone", t.goneOf, once)
	t.clusterSet = derive.NewTable(e, "clusterset", t.clusterSetOf, derive.KeysOf(t.clusterSets))
	t.own = derive.NewTable(e, "own-ranges", t.ownOf, once)
	t.infos = derive.NewTable(e, "clusterinfos", t.infosOf, once)
	t.infosByName = derive.NewIndex(t.infos, "name", func(_ derive.Name, list []*mcv1alpha1.ClusterInfoImport) []derive.Object {
		return keysOf(list)
	})
	t.reachable = derive.NewTable(e, "reachable", t.reachableOf, once)
	t.sources = derive.NewTable(e, "sources", t.sourcesOf, once)
	t.exportable = derive.NewTable(e, "exportable", t.exportableOf, derive.KeysOf(t.serviceExports))
	t.exportableByName = derive.NewIndex(t.exportable, "name", func(_ derive.Object, x *exportable) []derive.Name {
		if x.Refusal != "" {
			return nil
		}
		return []derive.Name{derive.Name(x.Name)}
	})
	t.holders = derive.NewTable(e, "export-names", t.holderOf, derive.KeysOfIndex(t.exportableByName))
	t.exports = derive.NewTable(e, "exports", t.exportOf, derive.KeysOf(t.exportable))
	t.exportsByName = derive.NewIndex(t.exports, "name", func(_ derive.Object, x *exported) []derive.Object {
		return keysOf(x.list())
	})
	t.imports = derive.NewTable(e, "imports", t.importOf, derive.KeysOfIndex(t.importsByName))
	t.validity = derive.NewTable(e, "validity", t.validityOf, derive.KeysOf(t.serviceExports))
	t.ownInfo = derive.NewTable(e, "own-clusterinfo", t.ownInfoOf, once)
	t.ownInfoByName = derive.NewIndex(t.ownInfo, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{keyOf(re)}
	})
	t.labelTables()
	t.addressTables()
	t.policyTables()
	t.writes()
	return t
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

// values are those of rows, in the order of their keys.
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

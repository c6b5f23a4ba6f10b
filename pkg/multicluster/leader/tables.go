package leader

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// tables are the leader's decisions, key by key.
//
//	announcements ─► announces ─► bindings ─► members ─┐
//	exports ───────────────────────────────────┼─► services ─► endpoints ─► steps of imports
//	imports, held ─► claims ─► ranges ─────────┤      └─► verdicts ◄┘          ▲
//	                                           ├─► labels ─► (numbering) ─► numbers
//	                                           ├─► addresses of Pods
//	                                           ├─► networks (networks.go)
//	                                           └─► policies, reports ─► states of policies
//	                                                          │
//	written ──────────────────────────────────────────► steps of exports
//
// Steps are the missing writes. An object in its desired state has no step.
type tables struct {
	engine   *derive.Engine
	kinds    *watch.Kinds // of the Common Area
	around   *watch.Kinds // of the whole cluster, if it is the central one
	central  *centralSteps
	networks *networks

	facts      sources
	index      exportIndexes
	claiming   claimTables
	ofPolicies policyTables
	steps      stepTables

	announces *derive.Table[derive.Object, *mcv1alpha1.MemberClusterAnnounce]
	bindings  *derive.Table[derive.Name, binding.Decision]
	members   *derive.Table[derive.Name, member]
	own       *derive.Table[derive.Name, derive.Name]    // the ID of the leader's own cluster, one row
	orphans   *derive.Table[derive.Object, time.Time]    // exports without a member, and since when
	services  *derive.Table[derive.Object, jointService] // by the import's name without suffix
	endpoints *derive.Table[derive.Object, joint]        // the same
	labels    *derive.Table[derive.Object, labelled]     // by the import
	addresses *derive.Table[derive.Object, addressed]    // the same

	serviceVerdicts, endpointsVerdicts *derive.Table[derive.Object, verdict] // by the import's name without suffix

	announcesOf *derive.Index[derive.Name, derive.Object, *mcv1alpha1.MemberClusterAnnounce] // by cluster ID
}

// sources are the facts that the leader derives its tables from.
type sources struct {
	// Objects of the API server.
	sets          *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	clusterClaims *derive.Source[derive.Object, *mcv1alpha2.ClusterClaim]
	accounts      *derive.Source[derive.Object, *corev1.ServiceAccount]
	announcements *derive.Source[derive.Object, announce]
	exports       *derive.Source[derive.Object, *export]
	written       *derive.Source[derive.Object, written] // of exports; both are written together
	imports       *derive.Source[derive.Object, *mcv1alpha1.ResourceImport]
	// Observations of this controller, by its own clock.
	liveness *derive.Source[derive.Object, live] // of announcements
	// exports that have had no member for orphanAfter, and since when
	overdue *derive.Source[derive.Object, time.Time]
	held    *derive.Source[derive.Name, *mcv1alpha1.ClusterInfo] // imported, or until a short while ago, by cluster ID
	uses    *derive.Source[derive.Object, []use]                 // the same of endpoints, by the import
	refused *derive.Source[derive.Object, string]                // why ResourceImports could not be written
	numbers *derive.Source[derive.Object, number]                // of label sets, by the import
}

// exportIndexes find exports.
type exportIndexes struct {
	all         *tables
	exportsOf   *derive.Index[derive.Name, derive.Object, *export]   // by cluster ID
	servicesOf  *derive.Index[derive.Object, derive.Object, *export] // by the import's name without suffix
	endpointsOf *derive.Index[derive.Object, derive.Object, *export] // the same
	labelsOf    *derive.Index[derive.Object, derive.Object, *export] // LabelIdentities by the import
	addressesOf *derive.Index[derive.Object, derive.Object, *export] // PodAddresses by the import
	infos       *derive.Index[derive.Name, derive.Object, *export]   // ClusterInfos, all under one name
	exportsTo   *derive.Index[derive.Object, derive.Object, *export] // by the import's name
	usesIn      *derive.Index[derive.Object, derive.Object, []use]   // by the /8 of the addresses and the cluster ID
}

// claimTables have the ranges of clusters, and who may use them.
type claimTables struct {
	all         *tables
	exporters   *derive.Table[derive.Object, []use] // of imported endpoints, by the import
	pins        *derive.Table[derive.Name, claims.Pins]
	claims      *derive.Table[derive.Name, claimed]
	ranges      *derive.Table[derive.Name, ranges]                                    // by cluster ID
	taken       *derive.Table[derive.Name, []holder]                                  // one row
	infoImports *derive.Index[derive.Name, derive.Object, *mcv1alpha1.ResourceImport] // ClusterInfos, all under one name
}

// policyTables have the policies of the ClusterSet, and what members report about them.
type policyTables struct {
	all          *tables
	policies     *derive.Table[derive.Object, joint]                            // by the import
	reports      *derive.Table[derive.Name, map[string]exportcheck.PolicyState] // by cluster ID, then by the import
	policyStates *derive.Table[derive.Object, policyState]                      // by the import
	policiesOf   *derive.Index[derive.Object, derive.Object, *export]           // by the import
	reportsOf    *derive.Index[derive.Name, derive.Object, *export]             // by cluster ID
}

// stepTables have the writes that are missing.
type stepTables struct {
	all           *tables
	importSteps   *derive.Table[derive.Object, importStep]
	exportSteps   *derive.Table[derive.Object, *exportStep]
	announceSteps *derive.Table[derive.Object, announceStep]
	accountSteps  *derive.Table[derive.Object, accountStep]
	setSteps      *derive.Table[derive.Name, setStep]
}

// one is the key of tables that have one row.
const one = derive.Name("")

func newTables() *tables { return newTablesOf(false) }

// newTablesOf returns the tables. central is set if the leader's cluster is the central one.
func newTablesOf(central bool) *tables {
	e := derive.New()
	t := &tables{
		engine: e,
		kinds:  watch.NewKinds(e),
		around: watch.NewKinds(e),
		facts: sources{
			liveness: derive.NewSource[derive.Object, live](e, "liveness"),
			overdue:  derive.NewSource[derive.Object, time.Time](e, "overdue"),
			held:     derive.NewSource[derive.Name, *mcv1alpha1.ClusterInfo](e, "held claims"),
			uses:     derive.NewSource[derive.Object, []use](e, "held endpoints"),
			refused:  derive.NewSource[derive.Object, string](e, "refused imports"),
			numbers:  derive.NewSource[derive.Object, number](e, "numbers of labels"),
		},
	}
	t.index.all, t.claiming.all, t.ofPolicies.all, t.steps.all = t, t, t, t
	t.facts.sets = watch.NewSource(t.kinds, "ClusterSets", whole[*mcv1alpha2.ClusterSet])
	t.facts.clusterClaims = watch.NewSource(t.kinds, "ClusterClaims", whole[*mcv1alpha2.ClusterClaim], watch.Believed())
	t.facts.announcements = watch.NewSource(t.kinds, "MemberClusterAnnounces", announceFacts)
	t.facts.exports = watch.NewSource(t.kinds, "ResourceExports", exportFacts)
	t.facts.written = watch.NewSource(t.kinds, "status of ResourceExports", writtenFacts)
	t.facts.imports = watch.NewSource(t.kinds, "ResourceImports", whole[*mcv1alpha1.ResourceImport])
	t.facts.accounts = watch.NewSource(t.kinds, "ServiceAccounts", accountFacts)
	t.facts.liveness.Loaded()
	t.facts.overdue.Loaded()
	t.facts.held.Loaded()
	t.facts.uses.Loaded()
	t.facts.refused.Loaded()
	t.facts.numbers.Loaded()

	// The one table that a heartbeat evaluates: its result is as before.
	t.announces = derive.NewTable(e, "announces", t.announce, derive.KeysOf(t.facts.announcements))
	t.announcesOf = derive.NewIndex(t.announces, "cluster",
		func(_ derive.Object, a *mcv1alpha1.MemberClusterAnnounce) []derive.Name {
			return []derive.Name{derive.Name(a.ClusterID)}
		})
	everything := derive.NewIndex(t.facts.sets, "all",
		func(derive.Object, *mcv1alpha2.ClusterSet) []derive.Name { return []derive.Name{one} })
	anyAnnounce := derive.NewIndex(t.announces, "all",
		func(derive.Object, *mcv1alpha1.MemberClusterAnnounce) []derive.Name { return []derive.Name{one} })
	t.bindings = derive.NewTable(e, "bindings", t.binding, derive.KeysOfIndex(anyAnnounce))
	t.members = derive.NewTable(e, "members", t.member, derive.KeysOfIndex(t.announcesOf))
	t.own = derive.NewTable(e, "ID of the leader's cluster", t.ownID, derive.KeysOfIndex(everything))

	t.index.indexExports()
	orphaned := derive.NewIndex(t.facts.written, "not announced", func(k derive.Object, w written) []derive.Object {
		if _, ok := notAnnounced(w); !ok {
			return nil
		}
		return []derive.Object{k}
	})
	t.orphans = derive.NewTable(e, "orphans", t.orphan, derive.KeysOfIndex(orphaned))

	t.claiming.exporters = derive.NewTable(e, "exporters of endpoints", t.claiming.exportersOf,
		derive.KeysOf(t.facts.imports))
	t.claiming.pins = derive.NewTable(e, "pins", t.claiming.pinned, derive.KeysOfIndex(everything))
	t.claiming.infoImports = derive.NewIndex(t.facts.imports, "ClusterInfo",
		func(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Name {
			if ri.Spec.Kind != multicluster.ClusterInfoKind {
				return nil
			}
			return []derive.Name{one}
		})
	t.claiming.claims = derive.NewTable(e, "claims", t.claiming.claim, derive.KeysOfIndex(t.index.infos))
	t.claiming.ranges = derive.NewTable(e, "ranges", t.claiming.ownRanges, derive.KeysOf(t.members))
	t.claiming.taken = derive.NewTable(e, "taken ranges", t.claiming.takenRanges, derive.KeysOf(t.claiming.claims))
	t.services = derive.NewTable(e, "services", t.service, derive.KeysOfIndex(t.index.servicesOf))
	t.endpoints = derive.NewTable(e, "endpoints", t.jointEndpoints, derive.KeysOfIndex(t.index.endpointsOf))

	t.labels = derive.NewTable(e, "labels", t.label, derive.KeysOfIndex(t.index.labelsOf))

	t.addresses = derive.NewTable(e, "addresses of Pods", t.podAddresses, derive.KeysOfIndex(t.index.addressesOf))

	t.ofPolicies.policyTables()

	t.serviceVerdicts = derive.NewTable(e, "verdicts on Services", t.serviceVerdict, derive.KeysOf(t.services))
	t.endpointsVerdicts = derive.NewTable(e, "verdicts on Endpoints", t.endpointsVerdict, derive.KeysOf(t.endpoints))

	t.steps.importSteps = derive.NewTable(e, "steps of imports", t.steps.importStep, derive.KeysOf(t.facts.imports),
		derive.KeysOfIndex(t.index.exportsTo))
	t.steps.exportSteps = derive.NewTable(e, "steps of exports", t.steps.exportStep, derive.KeysOf(t.facts.exports))
	t.steps.announceSteps = derive.NewTable(e, "steps of announces", t.steps.announceStep, derive.KeysOf(t.announces))
	t.steps.accountSteps = derive.NewTable(e, "steps of accounts", t.steps.accountStep, derive.KeysOf(t.facts.accounts))
	t.steps.setSteps = derive.NewTable(e, "steps of the ClusterSet", t.steps.setStep, derive.KeysOfIndex(everything))
	copies := newCentral(t.around, t, central)
	t.networks = newNetworks(t.kinds, e, t.members, copies, &t.claiming)
	t.central = newCentralSteps(e, copies, t.networks)
	return t
}

// indexExports makes the indexes that find exports by their import.
func (t *exportIndexes) indexExports() {
	base := func(kind string) func(derive.Object, *export) []derive.Object {
		return func(_ derive.Object, e *export) []derive.Object {
			if e.Kind != kind {
				return nil
			}
			return []derive.Object{baseOf(e)}
		}
	}
	t.exportsOf = derive.NewIndex(t.all.facts.exports, "cluster",
		func(_ derive.Object, e *export) []derive.Name { return []derive.Name{derive.Name(e.ClusterID)} })
	t.servicesOf = derive.NewIndex(t.all.facts.exports, "Service", base(multicluster.ServiceKind))
	t.endpointsOf = derive.NewIndex(t.all.facts.exports, "Endpoints", base(multicluster.EndpointsKind))
	t.labelsOf = derive.NewIndex(t.all.facts.exports, "LabelIdentity", func(k derive.Object, e *export) []derive.Object {
		if e.Kind != multicluster.LabelIdentityKind {
			return nil
		}
		return []derive.Object{{Namespace: k.Namespace, Name: importName(e)}}
	})
	t.addressesOf = derive.NewIndex(t.all.facts.exports, "PodAddresses", func(k derive.Object, e *export) []derive.Object {
		if e.Kind != multicluster.PodAddressesKind {
			return nil
		}
		return []derive.Object{k}
	})
	t.infos = derive.NewIndex(t.all.facts.exports, "ClusterInfo", func(_ derive.Object, e *export) []derive.Name {
		if e.Kind != multicluster.ClusterInfoKind {
			return nil
		}
		return []derive.Name{one}
	})
	t.exportsTo = derive.NewIndex(t.all.facts.exports, "import", func(k derive.Object, e *export) []derive.Object {
		if !fromMember(e.Kind) && !multicluster.IsPolicy(e.Kind) {
			return nil
		}
		return []derive.Object{{Namespace: k.Namespace, Name: importName(e)}}
	})
	t.usesIn = derive.NewIndex(t.all.facts.uses, "addresses",
		func(_ derive.Object, uses []use) []derive.Object { return blocksOf(uses) })
}

// baseOf is the name of an export's import without the suffix of its kind.
func baseOf(e *export) derive.Object {
	return derive.Object{Namespace: e.Key.Namespace, Name: multicluster.ResourceImportName(e.Of.namespace, e.Of.name, "")}
}

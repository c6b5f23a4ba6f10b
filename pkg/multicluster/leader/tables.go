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
	networks *networks

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

	announces *derive.Table[derive.Object, *mcv1alpha1.MemberClusterAnnounce]
	bindings  *derive.Table[derive.Name, binding.Decision]
	members   *derive.Table[derive.Name, member]
	orphans   *derive.Table[derive.Object, time.Time] // exports without a member, and since when
	exporters *derive.Table[derive.Object, []use]     // of imported endpoints, by the import
	pins      *derive.Table[derive.Name, claims.Pins]
	claims    *derive.Table[derive.Name, claimed]
	ranges    *derive.Table[derive.Name, ranges]                             // by cluster ID
	taken     *derive.Table[derive.Name, []holder]                           // one row
	services  *derive.Table[derive.Object, jointService]                     // by the import's name without suffix
	endpoints *derive.Table[derive.Object, joint]                            // the same
	labels    *derive.Table[derive.Object, labelled]                         // by the import
	addresses *derive.Table[derive.Object, addressed]                        // the same
	policies  *derive.Table[derive.Object, joint]                            // the same
	reports   *derive.Table[derive.Name, map[string]exportcheck.PolicyState] // by cluster ID, then by the import

	policyStates *derive.Table[derive.Object, policyState] // by the import

	serviceVerdicts, endpointsVerdicts *derive.Table[derive.Object, verdict] // by the import's name without suffix

	importSteps   *derive.Table[derive.Object, importStep]
	exportSteps   *derive.Table[derive.Object, *exportStep]
	announceSteps *derive.Table[derive.Object, announceStep]
	accountSteps  *derive.Table[derive.Object, accountStep]
	setSteps      *derive.Table[derive.Name, setStep]

	announcesOf *derive.Index[derive.Name, derive.Object, *mcv1alpha1.MemberClusterAnnounce] // by cluster ID
	exportsOf   *derive.Index[derive.Name, derive.Object, *export]                           // by cluster ID
	// by the import's name without suffix
	servicesOf  *derive.Index[derive.Object, derive.Object, *export]
	endpointsOf *derive.Index[derive.Object, derive.Object, *export]                  // the same
	policiesOf  *derive.Index[derive.Object, derive.Object, *export]                  // by the import
	reportsOf   *derive.Index[derive.Name, derive.Object, *export]                    // by cluster ID
	labelsOf    *derive.Index[derive.Object, derive.Object, *export]                  // LabelIdentities by the import
	addressesOf *derive.Index[derive.Object, derive.Object, *export]                  // PodAddresses by the import
	infos       *derive.Index[derive.Name, derive.Object, *export]                    // ClusterInfos, all under one name
	infoImports *derive.Index[derive.Name, derive.Object, *mcv1alpha1.ResourceImport] // the same
	exportsTo   *derive.Index[derive.Object, derive.Object, *export]                  // by the import's name
	// by the /8 of the addresses and the cluster ID
	usesIn *derive.Index[derive.Object, derive.Object, []use]
}

// one is the key of tables that have one row.
const one = derive.Name("")

func newTables() *tables {
	e := derive.New()
	t := &tables{
		engine:   e,
		kinds:    watch.NewKinds(e),
		liveness: derive.NewSource[derive.Object, live](e, "liveness"),
		overdue:  derive.NewSource[derive.Object, time.Time](e, "overdue"),
		held:     derive.NewSource[derive.Name, *mcv1alpha1.ClusterInfo](e, "held claims"),
		uses:     derive.NewSource[derive.Object, []use](e, "held endpoints"),
		refused:  derive.NewSource[derive.Object, string](e, "refused imports"),
		numbers:  derive.NewSource[derive.Object, number](e, "numbers of labels"),
	}
	t.sets = watch.NewSource(t.kinds, "ClusterSets", whole[*mcv1alpha2.ClusterSet])
	t.clusterClaims = watch.NewSource(t.kinds, "ClusterClaims", whole[*mcv1alpha2.ClusterClaim], watch.Believed())
	t.announcements = watch.NewSource(t.kinds, "MemberClusterAnnounces", announceFacts)
	t.exports = watch.NewSource(t.kinds, "ResourceExports", exportFacts)
	t.written = watch.NewSource(t.kinds, "status of ResourceExports", writtenFacts)
	t.imports = watch.NewSource(t.kinds, "ResourceImports", whole[*mcv1alpha1.ResourceImport])
	t.accounts = watch.NewSource(t.kinds, "ServiceAccounts", accountFacts)
	t.liveness.Loaded()
	t.overdue.Loaded()
	t.held.Loaded()
	t.uses.Loaded()
	t.refused.Loaded()
	t.numbers.Loaded()

	// The one table that a heartbeat evaluates: its result is as before.
	t.announces = derive.NewTable(e, "announces", t.announce, derive.KeysOf(t.announcements))
	t.announcesOf = derive.NewIndex(t.announces, "cluster",
		func(_ derive.Object, a *mcv1alpha1.MemberClusterAnnounce) []derive.Name {
			return []derive.Name{derive.Name(a.ClusterID)}
		})
	everything := derive.NewIndex(t.sets, "all",
		func(derive.Object, *mcv1alpha2.ClusterSet) []derive.Name { return []derive.Name{one} })
	anyAnnounce := derive.NewIndex(t.announces, "all",
		func(derive.Object, *mcv1alpha1.MemberClusterAnnounce) []derive.Name { return []derive.Name{one} })
	t.bindings = derive.NewTable(e, "bindings", t.binding, derive.KeysOfIndex(anyAnnounce))
	t.members = derive.NewTable(e, "members", t.member, derive.KeysOfIndex(t.announcesOf))

	t.indexExports()
	orphaned := derive.NewIndex(t.written, "not announced", func(k derive.Object, w written) []derive.Object {
		if _, ok := notAnnounced(w); !ok {
			return nil
		}
		return []derive.Object{k}
	})
	t.orphans = derive.NewTable(e, "orphans", t.orphan, derive.KeysOfIndex(orphaned))

	t.exporters = derive.NewTable(e, "exporters of endpoints", t.exportersOf, derive.KeysOf(t.imports))
	t.pins = derive.NewTable(e, "pins", t.pinned, derive.KeysOfIndex(everything))
	t.infoImports = derive.NewIndex(t.imports, "ClusterInfo",
		func(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Name {
			if ri.Spec.Kind != multicluster.ClusterInfoKind {
				return nil
			}
			return []derive.Name{one}
		})
	t.claims = derive.NewTable(e, "claims", t.claim, derive.KeysOfIndex(t.infos))
	t.ranges = derive.NewTable(e, "ranges", t.ownRanges, derive.KeysOf(t.members))
	t.taken = derive.NewTable(e, "taken ranges", t.takenRanges, derive.KeysOf(t.claims))
	t.services = derive.NewTable(e, "services", t.service, derive.KeysOfIndex(t.servicesOf))
	t.endpoints = derive.NewTable(e, "endpoints", t.jointEndpoints, derive.KeysOfIndex(t.endpointsOf))

	t.labels = derive.NewTable(e, "labels", t.label, derive.KeysOfIndex(t.labelsOf))

	t.addresses = derive.NewTable(e, "addresses of Pods", t.podAddresses, derive.KeysOfIndex(t.addressesOf))

	t.policyTables()

	t.serviceVerdicts = derive.NewTable(e, "verdicts on Services", t.serviceVerdict, derive.KeysOf(t.services))
	t.endpointsVerdicts = derive.NewTable(e, "verdicts on Endpoints", t.endpointsVerdict, derive.KeysOf(t.endpoints))

	t.importSteps = derive.NewTable(e, "steps of imports", t.importStep, derive.KeysOf(t.imports),
		derive.KeysOfIndex(t.exportsTo))
	t.exportSteps = derive.NewTable(e, "steps of exports", t.exportStep, derive.KeysOf(t.exports))
	t.announceSteps = derive.NewTable(e, "steps of announces", t.announceStep, derive.KeysOf(t.announces))
	t.accountSteps = derive.NewTable(e, "steps of accounts", t.accountStep, derive.KeysOf(t.accounts))
	t.setSteps = derive.NewTable(e, "steps of the ClusterSet", t.setStep, derive.KeysOfIndex(everything))
	t.networks = newNetworks(t.kinds, e, t.members)
	return t
}

// indexExports makes the indexes that find exports by their import.
func (t *tables) indexExports() {
	base := func(kind string) func(derive.Object, *export) []derive.Object {
		return func(_ derive.Object, e *export) []derive.Object {
			if e.Kind != kind {
				return nil
			}
			return []derive.Object{baseOf(e)}
		}
	}
	t.exportsOf = derive.NewIndex(t.exports, "cluster",
		func(_ derive.Object, e *export) []derive.Name { return []derive.Name{derive.Name(e.ClusterID)} })
	t.servicesOf = derive.NewIndex(t.exports, "Service", base(multicluster.ServiceKind))
	t.endpointsOf = derive.NewIndex(t.exports, "Endpoints", base(multicluster.EndpointsKind))
	t.labelsOf = derive.NewIndex(t.exports, "LabelIdentity", func(k derive.Object, e *export) []derive.Object {
		if e.Kind != multicluster.LabelIdentityKind {
			return nil
		}
		return []derive.Object{{Namespace: k.Namespace, Name: importName(e)}}
	})
	t.addressesOf = derive.NewIndex(t.exports, "PodAddresses", func(k derive.Object, e *export) []derive.Object {
		if e.Kind != multicluster.PodAddressesKind {
			return nil
		}
		return []derive.Object{k}
	})
	t.infos = derive.NewIndex(t.exports, "ClusterInfo", func(_ derive.Object, e *export) []derive.Name {
		if e.Kind != multicluster.ClusterInfoKind {
			return nil
		}
		return []derive.Name{one}
	})
	t.exportsTo = derive.NewIndex(t.exports, "import", func(k derive.Object, e *export) []derive.Object {
		if !fromMember(e.Kind) && !multicluster.IsPolicy(e.Kind) {
			return nil
		}
		return []derive.Object{{Namespace: k.Namespace, Name: importName(e)}}
	})
	t.usesIn = derive.NewIndex(t.uses, "addresses",
		func(_ derive.Object, uses []use) []derive.Object { return blocksOf(uses) })
}

// baseOf is the name of an export's import without the suffix of its kind.
func baseOf(e *export) derive.Object {
	return derive.Object{Namespace: e.Key.Namespace, Name: multicluster.ResourceImportName(e.Of.namespace, e.Of.name, "")}
}

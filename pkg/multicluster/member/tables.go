package member

import (
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// tables are the member's state: sources of facts, desired objects, and missing writes. Each feature has its own. All
// functions are pure; the controller fills the sources and does the writes.
type tables struct {
	*kinds
	base      *membershipTables
	clusters  *clusterTables
	gateways  *gatewayTables
	reach     *reachTables
	info      *infoTables
	services  *serviceTables
	exports   *exportTables
	imports   *importTables
	labels    *labelTables
	addresses *addressTables
	policies  *policyTables
	local     []*writeTable // in this cluster, in the order of their kinds
	leader    *writeTable
	namespace string
}

func newTables(namespace string, cfg config.Config) *tables {
	k := newKinds()
	t := &tables{kinds: k, namespace: namespace}
	t.base = newMembershipTables(k, namespace, cfg)
	t.clusters = newClusterTables(k, t.base)
	t.gateways = newGatewayTables(k, t.base, t.clusters.clusterInfoImports)
	t.reach = newReachTables(k, t.clusters, t.gateways.active, t.gateways.status)
	t.info = newInfoTables(k, t.gateways, t.reach.reachedBy)
	t.services = newServiceTables(k, cfg.EndpointIPType)
	t.exports = newExportTables(k, t.base, t.services)
	t.imports = newImportTables(k, t.base, t.services, importInputs{
		exported: t.exports.exported, infos: t.clusters.infos, gone: t.reach.gone, gateways: t.gateways.gateways,
	})
	t.labels = newLabelTables(k, t.base)
	t.addresses = newAddressTables(k, t.base, t.labels, t.clusters.infos)
	t.policies = newPolicyTables(k, t.base)
	t.writes()
	return t
}

// writes adds the tables that compare what is desired with what is there. Objects that already say what is wanted are
// not written, and fields that nobody speaks of keep their values.
func (t *tables) writes() {
	add := func(list ...*writeTable) { t.local = append(t.local, list...) }
	add(t.reach.writes(t.kinds), t.gateways.writes(t.kinds), t.clusters.writes(t.kinds), t.labels.writes(t.kinds),
		t.addresses.writes(t.kinds))
	add(t.policies.writes(t.kinds)...)
	add(t.imports.writes(t.kinds)...)
	add(t.exports.writes(t.kinds))
	t.leader = t.table("write-resourceexports", t.writeResourceExport, derive.KeysOf(t.base.resourceExports),
		derive.KeysOfIndex(t.exports.byName), derive.KeysOfIndex(t.info.byName), derive.KeysOfIndex(t.labels.byName),
		derive.KeysOfIndex(t.addresses.byName), derive.KeysOfIndex(t.policies.reportByName))
}

func (t *tables) writeResourceExport(k derive.Object, r *derive.Reader) *Write {
	m, _ := derive.Get(r, t.base.membership, here)
	if !m.Joined {
		return nil
	}
	have, _ := derive.Get(r, t.base.resourceExports, k)
	var want *mcv1alpha1.ResourceExport
	for _, row := range derive.List(r, t.info.byName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.exports.byName, k) {
		want = row.Value.Service
		if want.Name != k.Name {
			want = row.Value.Endpoints
		}
	}
	for _, row := range derive.List(r, t.labels.byName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.addresses.byName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.policies.reportByName, k) {
		want = row.Value
	}
	about := t.base.about(m)
	for _, re := range []*mcv1alpha1.ResourceExport{have, want} {
		if re != nil && (re.Spec.Kind == multicluster.ServiceKind || re.Spec.Kind == multicluster.EndpointsKind) {
			about = object("ServiceExport", re.Spec.Namespace, re.Spec.Name)
		}
	}
	return kindDiff[*mcv1alpha1.ResourceExport]{kind: "ResourceExport", mine: isOwnExport, same: sameSource,
		merge: mergeResourceExport}.write(have, want, about)
}

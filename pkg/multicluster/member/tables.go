package member

import (
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/clusters"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/exports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/gateways"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/identities"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/imports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/policies"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/tenants"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// tables are the member's state: sources of facts, desired objects, and missing writes. Each feature has its own. All
// functions are pure; the controller fills the sources and does the writes.
type tables struct {
	*writes.Kinds
	base      *membership.Tables
	clusters  *clusters.Tables
	gateways  *gateways.Tables
	reach     *clusters.Reach
	info      *gateways.Info
	services  *services.Tables
	exports   *exports.Tables
	imports   *imports.Tables
	labels    *identities.Labels
	addresses *identities.Addresses
	policies  *policies.Tables
	tenants   *tenants.Tables
	local     []*writes.Table // in this cluster, in the order of their kinds
	leader    *writes.Table
	namespace string
}

func newTables(namespace string, cfg config.Config) *tables {
	k := writes.NewKinds()
	t := &tables{Kinds: k, namespace: namespace}
	t.base = membership.New(k, namespace, cfg)
	t.clusters = clusters.New(k, t.base)
	t.gateways = gateways.New(k, t.base, t.clusters.ClusterInfoImports)
	t.reach = clusters.NewReach(k, t.clusters, t.gateways.Active, t.gateways.Status)
	t.info = gateways.NewInfo(k, t.gateways, t.reach.ReachedBy)
	t.services = services.New(k, cfg.EndpointIPType)
	t.exports = exports.New(k, t.base, t.services, t.gateways.CarriesIPv6)
	t.imports = imports.New(k, t.base, t.services, imports.Inputs{
		Exported: t.exports.Exported, Infos: t.clusters.Infos, Gone: t.reach.Gone, Gateways: t.gateways.Gateways,
		CarriesIPv6: t.gateways.CarriesIPv6,
	})
	t.labels = identities.NewLabels(k, t.base)
	t.addresses = identities.NewAddresses(k, t.base, t.labels, t.clusters.Infos, t.gateways.CarriesIPv6)
	t.policies = policies.New(k, t.base)
	t.tenants = tenants.New(k, t.base)
	t.writes()
	return t
}

// writes adds the tables that compare the desired objects with the existing ones. An object that already has all
// desired fields is not written.
func (t *tables) writes() {
	add := func(list ...*writes.Table) { t.local = append(t.local, list...) }
	add(t.reach.Writes(t.Kinds), t.gateways.Writes(t.Kinds), t.clusters.Writes(t.Kinds), t.labels.Writes(t.Kinds),
		t.addresses.Writes(t.Kinds))
	add(t.tenants.Writes(t.Kinds)...)
	add(t.policies.Writes(t.Kinds)...)
	add(t.imports.Writes(t.Kinds)...)
	add(t.exports.Writes(t.Kinds))
	t.leader = t.Table("write-resourceexports", t.writeResourceExport, derive.KeysOf(t.base.ResourceExports),
		derive.KeysOfIndex(t.exports.ByName), derive.KeysOfIndex(t.info.ByName), derive.KeysOfIndex(t.labels.ByName),
		derive.KeysOfIndex(t.addresses.ByName), derive.KeysOfIndex(t.policies.ReportByName),
		derive.KeysOfIndex(t.tenants.ByName))
}

func (t *tables) writeResourceExport(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if !m.Joined {
		return nil
	}
	have, _ := derive.Get(r, t.base.ResourceExports, k)
	var want *mcv1alpha1.ResourceExport
	for _, row := range derive.List(r, t.info.ByName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.exports.ByName, k) {
		want = row.Value.Service
		if want.Name != k.Name {
			want = row.Value.Endpoints
		}
	}
	for _, row := range derive.List(r, t.labels.ByName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.addresses.ByName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.policies.ReportByName, k) {
		want = row.Value
	}
	for _, row := range derive.List(r, t.tenants.ByName, k) {
		want = row.Value
	}
	about := t.base.About(m)
	for _, re := range []*mcv1alpha1.ResourceExport{have, want} {
		if re != nil && (re.Spec.Kind == multicluster.ServiceKind || re.Spec.Kind == multicluster.EndpointsKind) {
			about = problem.About("ServiceExport", re.Spec.Namespace, re.Spec.Name)
		}
	}
	return writes.Diff[*mcv1alpha1.ResourceExport]{Kind: "ResourceExport", Mine: membership.IsOwnExport,
		Same: membership.SameSource, Merge: membership.MergeResourceExport}.Between(have, want, about)
}

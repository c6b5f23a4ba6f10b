package member

import (
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/clusters"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/exports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Desired is the desired state, and the writes that lead to it.
type Desired struct {
	// Area is the Common Area to connect to. If it is nil, the connection stays as it is, since the facts for it are
	// incomplete.
	Area *membership.Area
	// Leave is set if this cluster is in no ClusterSet. Then its announcement and its exports are deleted in the area that
	// it was connected to.
	Leave bool

	// ClusterSet is the ClusterSet with the spec and status it should have; nil leaves it.
	ClusterSet *mcv1alpha2.ClusterSet
	// ServiceExports are the exports whose conditions are known, with these conditions.
	ServiceExports []*mcsv1alpha1.ServiceExport

	Services           []*corev1.Service
	Endpoints          []*services.Endpoints
	EndpointSlices     []*discoveryv1.EndpointSlice
	ServiceImports     []*mcsv1alpha1.ServiceImport
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport
	Gateways           []*mcv1alpha1.Gateway
	Ways               map[string][]mcv1alpha1.WayStatus // of the status of Gateways that are there, by name
	LabelIdentities    []*mcv1alpha1.LabelIdentity
	PodAddressImports  []*mcv1alpha1.PodAddressImport
	NetworkImports     []*tombolov1alpha1.TenantNetworkImport
	Policies           []client.Object // that are replicated

	// Announce is the announcement to send to the leader now; nil if it is not due.
	Announce        *mcv1alpha1.MemberClusterAnnounce
	ResourceExports []*mcv1alpha1.ResourceExport

	// Change has the writes that turn the View into the desired state. It omits objects for which the View lacks facts.
	Change Change

	// Again is when to plan again even if nothing changes; zero for never.
	Again time.Time
}

// Plan evaluates the tables from nothing for a view. It returns the objects that this cluster should have, in itself
// and in the leader, and the Problems.
func Plan(v View) (Desired, []problem.Problem) {
	t := newTables(v.Namespace, v.Config)
	t.load(v)
	t.Pass()
	now := metav1.NewTime(v.Now)
	m, _ := t.base.Membership.Get(membership.Here)
	d := Desired{Area: m.Area, Leave: m.Leave, Change: t.change()}
	for _, row := range t.reach.ClusterSet.All() {
		d.ClusterSet = row.Value.DeepCopy()
		clusters.StampClusterSet(d.ClusterSet, now)
	}
	for _, row := range t.exports.Validity.All() {
		have, _ := t.exports.ServiceExports.Get(row.Key)
		want := exports.ExportWith(have, row.Value)
		services.Stamp(want.Status.Conditions, now)
		d.ServiceExports = append(d.ServiceExports, want)
	}
	for _, row := range t.imports.Imports.All() {
		d.Services = append(d.Services, row.Value.Service)
		if row.Value.Endpoints != nil {
			d.Endpoints = append(d.Endpoints, row.Value.Endpoints)
		}
		d.EndpointSlices = append(d.EndpointSlices, row.Value.Slices...)
		if row.Value.ServiceImport != nil {
			d.ServiceImports = append(d.ServiceImports, row.Value.ServiceImport)
		}
	}
	infos, _ := t.clusters.Infos.Get(membership.Here)
	for _, cii := range infos {
		cii = cii.DeepCopy()
		clusters.StampWithdrawn(cii, now)
		d.ClusterInfoImports = append(d.ClusterInfoImports, cii)
	}
	d.Gateways, _ = t.gateways.Active.Get(membership.Here)
	d.Ways = map[string][]mcv1alpha1.WayStatus{}
	for _, row := range t.gateways.Status.All() {
		d.Ways[row.Key.Name] = row.Value
	}
	for _, row := range t.exports.Exports.All() {
		d.ResourceExports = append(d.ResourceExports, row.Value.List()...)
	}
	if info, ok := t.info.Exports.Get(membership.Here); ok {
		d.ResourceExports = append(d.ResourceExports, info)
	}
	d.ResourceExports = append(d.ResourceExports, derive.Values(t.labels.LabelExports.All())...)
	d.ResourceExports = append(d.ResourceExports, derive.Values(t.addresses.AddressExports.All())...)
	if l := derive.Values(t.labels.Labels.All()); len(l) > 0 {
		d.LabelIdentities = l
	}
	if a := derive.Values(t.addresses.Addresses.All()); len(a) > 0 {
		d.PodAddressImports = a
	}
	if n := derive.Values(t.tenants.Imports.All()); len(n) > 0 {
		d.NetworkImports = n
	}
	for _, c := range derive.Values(t.policies.Replicas.All()) {
		if c.Object != nil {
			d.Policies = append(d.Policies, c.Object)
		}
	}
	d.ResourceExports = append(d.ResourceExports, derive.Values(t.policies.Report.All())...)
	if m.Area != nil && v.Leader.Area == *m.Area {
		if due := next(v.Leader.Announcement); v.Now.Before(due) {
			d.Again = due
		} else {
			d.Announce = announcementTo(*m.Area)
		}
	}
	return d, t.Problems()
}

// Change has the writes that turn the View into the desired state, in this cluster and in the leader. Within a kind,
// deletions come first, and then the order is the order of the objects.
type Change struct {
	Local  []writes.Write
	Leader []writes.Write
}

// change are the rows of the tables of writes.
func (t *tables) change() Change {
	list := func(table *derive.Table[derive.Object, *writes.Write]) []writes.Write {
		var out []writes.Write
		for _, w := range derive.Values(table.All()) {
			out = append(out, *w)
		}
		slices.SortStableFunc(out, func(a, b writes.Write) int { return deletions(b) - deletions(a) })
		return out
	}
	c := Change{Leader: list(t.leader)}
	for _, table := range t.local {
		c.Local = append(c.Local, list(table)...)
	}
	return c
}

func deletions(w writes.Write) int {
	if w.Verb == writes.Delete {
		return 1
	}
	return 0
}

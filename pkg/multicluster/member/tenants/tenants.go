// Package tenants makes the TenantNetworkImports of this cluster from the TenantNetworks of the leader. It exports this
// cluster's isolated Namespaces to the central cluster, and makes the VirtualNetworks and Subnets that the central
// cluster requests in them.
package tenants

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

const kind = "TenantNetworkImport"

// labelManagedBy marks the TenantNetworkImports, VirtualNetworks and Subnets that the member controller makes and
// deletes.
const labelManagedBy = "app.kubernetes.io/managed-by"

// Tables has the imports of the networks that have members in this cluster.
//
//	tenantnetworks of the leader ─► TenantNetworkImports
//	their requests, isolated Namespaces ─► VirtualNetworks, Subnets
//	isolated Namespaces, VirtualNetworks, SubnetLeases ─► list ─► ResourceExport
type Tables struct {
	base *membership.Tables

	networks *derive.Source[derive.Object, *tombolov1alpha1.TenantNetwork] // of the Common Area
	existing *derive.Source[derive.Object, *tombolov1alpha1.TenantNetworkImport]

	Imports *derive.Table[derive.Object, *tombolov1alpha1.TenantNetworkImport]

	namespaces *derive.Source[derive.Object, *isolated]
	virtual    *derive.Source[derive.Object, *virtualNetwork]
	leases     *derive.Source[derive.Object, lease]
	inSpace    *derive.Index[derive.Name, derive.Object, *virtualNetwork] // by Namespace
	leased     *derive.Index[derive.Object, derive.Object, lease]         // by VirtualNetwork
	export     *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]
	ByName     *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport] // the export

	networkObjects *derive.Source[derive.Object, *contrailv4.VirtualNetwork]
	subnetObjects  *derive.Source[derive.Object, *contrailv4.Subnet]
	// requests are TenantNetworks by the cluster ID and the name of the Namespace.
	requests *derive.Index[derive.Object, derive.Object, *tombolov1alpha1.TenantNetwork]
	// copied are TenantNetworks of Namespaces with a copy, in the same way.
	copied         *derive.Index[derive.Object, derive.Object, *tombolov1alpha1.TenantNetwork]
	Requested      *derive.Table[derive.Object, *Requested] // by Namespace
	wantedNetworks *derive.Index[derive.Object, derive.Object, *Requested]
	wantedSubnets  *derive.Index[derive.Object, derive.Object, *Requested]
}

// New adds the tables of networks of tenants. The kinds are optional: the leader may be an earlier version, or Antrea.
func New(k *writes.Kinds, base *membership.Tables) *Tables {
	t := &Tables{base: base}
	t.networks = watch.NewSource(k.Area, "tenantnetworks", networkFacts, watch.IfAllowed())
	t.existing = writes.NewSource(k, k.Cluster, kind, "tenantnetworkimports", importFacts, writes.Version,
		watch.IfAllowed())
	named := derive.NewIndex(t.networks, "name", func(k derive.Object, _ *tombolov1alpha1.TenantNetwork) []derive.Object {
		return []derive.Object{{Name: k.Name}}
	})
	t.Imports = derive.NewTable(k.Engine, "imports of tenantnetworks", t.importOf, derive.KeysOfIndex(named))
	t.newExport(k)
	t.newRequests(k)
	return t
}

// Writes adds the tables of missing writes, in the order of their kinds.
func (t *Tables) Writes(k *writes.Kinds) []*writes.Table {
	return []*writes.Table{
		k.Table("write-tenantnetworkimports", t.write, derive.KeysOf(t.existing), derive.KeysOf(t.Imports)),
		k.Table("write-subnets", t.writeSubnet, derive.KeysOf(t.subnetObjects), derive.KeysOfIndex(t.wantedSubnets)),
		k.Table("write-virtualnetworks", t.writeNetwork, derive.KeysOf(t.networkObjects),
			derive.KeysOfIndex(t.wantedNetworks)),
	}
}

// networkFacts leaves out the state and the connections: the leader decides about joins.
func networkFacts(o *tombolov1alpha1.TenantNetwork) *tombolov1alpha1.TenantNetwork {
	return &tombolov1alpha1.TenantNetwork{ObjectMeta: writes.MetaFacts(o),
		Spec: tombolov1alpha1.TenantNetworkSpec{Members: o.Spec.Members},
		Status: tombolov1alpha1.TenantNetworkStatus{Number: o.Status.Number, Joined: o.Status.Joined,
			Namespace: o.Status.Namespace, VirtualNetwork: o.Status.VirtualNetwork, Request: o.Status.Request}}
}

func importFacts(o *tombolov1alpha1.TenantNetworkImport) *tombolov1alpha1.TenantNetworkImport {
	return &tombolov1alpha1.TenantNetworkImport{ObjectMeta: ownMeta(o), Spec: o.Spec}
}

// importOf returns the import of a network that has a number and members in this cluster. A selector that is invalid
// selects nothing, and is left out. The leader reports it on the network.
func (t *Tables) importOf(k derive.Object, r *derive.Reader) (*tombolov1alpha1.TenantNetworkImport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	n, _ := derive.Get(r, t.networks, derive.Object{Namespace: m.Common, Name: k.Name})
	if !m.Joined || n == nil || !n.DeletionTimestamp.IsZero() || n.Status.Number == 0 {
		return nil, nil
	}
	if n.Status.Request != nil && n.Status.VirtualNetwork == nil { // else its Namespace would be in the network
		return nil, nil
	}
	spec := tombolov1alpha1.TenantNetworkImportSpec{Number: n.Status.Number, Joined: n.Status.Joined,
		VirtualNetwork: n.Status.VirtualNetwork}
	members := n.Spec.Members
	if spec.VirtualNetwork != nil { // no Namespace is in the network
		members = nil
	}
	for _, member := range members {
		if _, err := metav1.LabelSelectorAsSelector(&member.NamespaceSelector); err != nil {
			continue
		}
		if member.ClusterID == m.ID {
			spec.NamespaceSelectors = append(spec.NamespaceSelectors, member.NamespaceSelector)
		} else {
			spec.ClusterIDs = append(spec.ClusterIDs, member.ClusterID)
		}
	}
	if of := n.Status.Namespace; of != nil && of.ClusterID == m.ID && m.Central {
		spec.Namespace = &of.NamespaceReference
	}
	if len(spec.NamespaceSelectors) == 0 && spec.Namespace == nil {
		return nil, nil
	}
	slices.Sort(spec.ClusterIDs)
	spec.ClusterIDs = slices.Compact(spec.ClusterIDs)
	return &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: k.Name,
		Labels: map[string]string{labelManagedBy: multicluster.ControllerName}}, Spec: spec}, nil
}

func (t *Tables) write(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.KeepsImports() {
		return nil
	}
	have, _ := derive.Get(r, t.existing, k)
	want, _ := derive.Get(r, t.Imports, k)
	return writes.Diff[*tombolov1alpha1.TenantNetworkImport]{Kind: kind,
		Mine: isOwn[*tombolov1alpha1.TenantNetworkImport],
		Merge: func(into, want *tombolov1alpha1.TenantNetworkImport) {
			into.Spec, into.Labels = want.Spec, want.Labels
		}}.Between(have, want, t.base.About(m))
}

package datapath

import (
	"maps"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Self is the key in tables that have one row, about this Node.
const Self derive.Name = "self"

// Inputs is the state that the flows depend on.
type Inputs struct {
	Node        derive.Readable[derive.Name, Node] // under Self
	Pods        derive.Readable[derive.Name, Pod]  // by port
	RemoteNodes derive.Readable[derive.Name, RemoteNode]
	Frontends   derive.Readable[derive.Object, []service.Frontend] // by Service
	Peering     peering.Tables                                     // its part under Self
	// Ways are the ports with BFD to the ends of watched ways; nil if there are no ways.
	Ways derive.Readable[WayEnd, uint32]
	// Lost are the ends of ways that have been down for a while; nil if there are no ways.
	Lost derive.Readable[WayEnd, bool]
	// Slices are the EndpointSlices by Service (service.Tables has them).
	Slices *derive.Index[derive.Object, derive.Object, service.SliceFacts]
	// Exported are the Services that other clusters may use.
	Exported derive.Readable[derive.Object, bool]
	// Policy has the policies of this Node's Pods; nil if there are no policies. Its attachments have the ports of Pods.
	Policy *policy.Tables
	// Resolvers are the DNS servers whose answers are learned, under Self; nil for no server.
	Resolvers derive.Readable[derive.Name, []netip.Prefix]
	// Observed is set under Self while a reader follows records of connections; nil for never.
	Observed derive.Readable[derive.Name, bool]
	// Traced is set under Self while packets are followed; nil for never.
	Traced derive.Readable[derive.Name, Tracing]
	// PodToPod lets other clusters reach every Pod, not only exported Services.
	PodToPod bool
	// Places are the networks of the Namespaces of this cluster (tenant.Tables). If it is nil, there is only the default
	// network.
	Places derive.Readable[derive.Object, tenant.Place]
	// Networks are the networks of further interfaces (tenant.Tables); nil without any.
	Networks derive.Readable[derive.Object, tenant.VirtualNetwork]
	// Remotes are other clusters with parts of networks of tenants (tenant.Tables); nil without Places.
	Remotes derive.Readable[derive.Name, tenant.Remote]
}

// Tables are the flows and groups of a Node, one row for each owner. Each feature has tables of its own.
//
//	Node, RemoteNodes, Pods, peers ──► claims ──► holders    of addresses and ports
//	                       │                         │
//	                       └──────► nodes, pods, peers ◄── role
//	Frontends ──► shards ──► groups ──► services     exports ◄── Frontends, Slices, Exported
type Tables struct {
	// Services has the flows of Services.
	Services *Services
	// ServedPods are the Pods of this Node as they are served, by port.
	ServedPods *derive.Table[derive.Name, ServedPod]
	// Policies has the flows of policies; nil without Inputs.Policy.
	Policies *Policies

	base     *base
	nodes    *derive.Table[derive.Name, flow.Entries]
	clusters *clusterTables
	tenants  *tenantTables
}

// NewTables adds the tables to an engine. A table reads only tables that were added before it.
func NewTables(e *derive.Engine, in Inputs) *Tables {
	b := newBase(e, in)
	t := &Tables{base: b, tenants: newTenantTables(e, b)}
	t.clusters = newClusterTables(e, b, t.tenants)
	t.Services = newServices(e, b, t.tenants, t.clusters)

	named := derive.NewIndex(in.Node, "name",
		func(_ derive.Name, n Node) []derive.Name { return []derive.Name{derive.Name(n.Name)} })
	t.nodes = derive.NewTable(e, "node-flows", b.nodeFlows, derive.KeysOfIndex(named), derive.KeysOf(in.RemoteNodes))
	t.ServedPods = derive.NewTable(e, "pod-flows", podTables{b, t.tenants}.servedPod, derive.KeysOf(in.Pods))
	t.clusters.addFlows(e)
	t.tenants.addFlows(e)
	if in.Policy != nil {
		t.Policies = newPolicies(e, b, t.tenants, t.Services)
	}
	return t
}

// RangesOf returns the ranges of another Node's Pods that packets are routed to. It leaves out a range that has another
// owner.
func (t *Tables) RangesOf(r *derive.Reader, remote RemoteNode) []netip.Prefix {
	return t.base.rangesOf(r, remote)
}

// These are the owners of flows and groups. A row of a table has the desired entries of one owner.

// PodOwner owns the flows of the Pod at a port.
func PodOwner(port string) flow.Owner { return flow.Owner{Kind: KindPod, Name: port} }

// NodeOwner returns the owner of the entries for a Node, this one or another.
func NodeOwner(name string) flow.Owner { return flow.Owner{Kind: KindNode, Name: name} }

// ServiceOwner returns the owner of the flows and groups of a Service. For a large Service it is the owner of the first
// shard.
func ServiceOwner(namespace, name string) flow.Owner {
	return shardOwner(serviceShard{service: derive.Object{Namespace: namespace, Name: name}})
}

func shardOwner(s serviceShard) flow.Owner { return flow.Owner{Kind: KindService, Name: s.String()} }

// GatewayOwner returns the owner of the entries of a Gateway that do not depend on its peers and exports.
func GatewayOwner() flow.Owner { return flow.Owner{Kind: KindMulticluster, Name: "gateway"} }

// PeerOwner owns the flows between this cluster and another.
func PeerOwner(clusterID string) flow.Owner {
	return flow.Owner{Kind: KindMulticluster, Name: "cluster " + clusterID}
}

// ExportOwner owns the flows that let other clusters reach an exported Service.
func ExportOwner(namespace, name string) flow.Owner {
	return flow.Owner{Kind: KindMulticluster, Name: "export " + namespace + "/" + name}
}

// State is everything that the flows depend on, for a plan from nothing.
type State struct {
	Node        Node
	Pods        []Pod
	RemoteNodes []RemoteNode
	Frontends   []service.Frontend
	Peering     peering.Peering
	// Slices are EndpointSlices, of exported Services at least.
	Slices   map[derive.Object]service.SliceFacts
	Exported map[derive.Object]bool
	PodToPod bool
	// Places are the networks of Namespaces; nil for the default network alone.
	Places map[string]tenant.Place
	// Networks are the networks of further interfaces, with Places.
	Networks map[derive.Object]tenant.VirtualNetwork
	// Remotes are other clusters with parts of networks of tenants.
	Remotes map[string]tenant.Remote
	// Ways are the ports with BFD, by the end of the way.
	Ways map[netip.Addr]ofp.Port
	// Lost are the ends of ways that have been down for a while.
	Lost []netip.Addr
}

// Plan returns the desired entries of each owner in the switch: the tables' functions, evaluated for all keys. It
// depends only on the state, and not on the order of its lists. If two objects of the state claim the same packets, one
// of them gets them (see claimant), and the other is a Problem.
func Plan(s State) (map[flow.Owner]flow.Entries, []problem.Problem) {
	if s.Node.GatewayPort == 0 {
		return nil, nil // the Node is still being set up
	}
	e := derive.New()
	in := Inputs{
		Node:        filled(e, "node", []Node{s.Node}, func(Node) derive.Name { return Self }),
		Pods:        filled(e, "pods", s.Pods, func(p Pod) derive.Name { return derive.Name(p.Interface) }),
		RemoteNodes: filled(e, "remote-nodes", s.RemoteNodes, func(n RemoteNode) derive.Name { return derive.Name(n.Name) }),
		PodToPod:    s.PodToPod,
	}
	whole := filled(e, "peering", []peering.Peering{s.Peering}, func(peering.Peering) derive.Name { return Self })
	in.Peering = peering.NewTables(e, whole)
	ways := derive.NewSource[WayEnd, uint32](e, "ways")
	for end, port := range s.Ways {
		ways.Set(WayEnd{end}, uint32(port))
	}
	ways.Loaded()
	lost := derive.NewSource[WayEnd, bool](e, "lost-ways")
	for _, end := range s.Lost {
		lost.Set(WayEnd{end}, true)
	}
	lost.Loaded()
	in.Ways, in.Lost = ways, lost
	byService := map[derive.Object][]service.Frontend{}
	for _, f := range s.Frontends {
		key := derive.Object{Namespace: f.Namespace, Name: f.Service}
		byService[key] = append(byService[key], f)
	}
	frontends, exported := derive.NewSource[derive.Object, []service.Frontend](e, "frontends"),
		derive.NewSource[derive.Object, bool](e, "exported")
	frontends.Replace(byService)
	frontends.Loaded()
	exported.Replace(s.Exported)
	exported.Loaded()
	slices := derive.NewSource[derive.Object, service.SliceFacts](e, "endpointslices")
	slices.Replace(s.Slices)
	slices.Loaded()
	in.Frontends, in.Exported, in.Slices = frontends, exported, service.ByService(slices)
	if s.Places != nil {
		places := derive.NewSource[derive.Object, tenant.Place](e, "places")
		for namespace, p := range s.Places {
			places.Set(derive.Object{Name: namespace}, p)
		}
		places.Loaded()
		remotes := derive.NewSource[derive.Name, tenant.Remote](e, "tenant-clusters")
		for cluster, remote := range s.Remotes {
			remotes.Set(derive.Name(cluster), remote)
		}
		remotes.Loaded()
		networks := derive.NewSource[derive.Object, tenant.VirtualNetwork](e, "virtual-networks")
		networks.Replace(s.Networks)
		networks.Loaded()
		in.Places, in.Remotes, in.Networks = places, remotes, networks
	}
	t := NewTables(e, in)
	e.Pass()
	out := map[flow.Owner]flow.Entries{}
	maps.Insert(out, t.All())
	return out, e.Problems()
}

func filled[V any](e *derive.Engine, name string, list []V, key func(V) derive.Name) *derive.Source[derive.Name, V] {
	s := derive.NewSource[derive.Name, V](e, name)
	for _, v := range list {
		s.Set(key(v), v)
	}
	s.Loaded()
	return s
}

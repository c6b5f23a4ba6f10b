package datapath

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

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
	// Policy has the policies of this Node's Pods; nil for no policies. Its attachments have the ports of Pods.
	Policy *policy.Tables
	// Resolvers are the DNS servers whose answers are learned, under Self; nil for no server.
	Resolvers derive.Readable[derive.Name, []netip.Prefix]
	// PodToPod lets other clusters reach every Pod, not only exported Services.
	PodToPod bool
	// Places are the networks of the Namespaces of this cluster (tenant.Tables); nil for the default network alone.
	Places derive.Readable[derive.Object, tenant.Place]
}

// Tables are the flows and groups of a Node, one row for each owner.
//
//	Node, RemoteNodes, Pods, peers ──► claims ──► holders    of addresses and ports
//	                       │                         │
//	                       └──────► nodes, pods, peers ◄── role
//	Frontends ──► shards ──► groups ──► services     exports ◄── Frontends, Slices, Exported
type Tables struct {
	Inputs

	// Entries are the ports of the entries of external addresses.
	Entries *derive.Numbers[EntryID]
	// ServedPods are the Pods of this Node as they are served, by port.
	ServedPods *derive.Table[derive.Name, ServedPod]

	role     *derive.Table[derive.Name, role]
	rate     *derive.Table[derive.Name, uint32]
	ruleKey  *derive.Table[derive.Name, Secret]
	ranges   *derive.Index[podRange, derive.Name, RemoteNode]
	lengths  *derive.Table[derive.Name, []int]
	claims   *derive.Table[claimant, []claim]
	claimed  *derive.Index[claim, claimant, []claim]
	holders  *derive.Table[claim, claimant]
	entered  *derive.Table[entryNumber, EntryID]
	outside  *derive.Table[derive.Name, outside]
	divided  *derive.Table[derive.Object, []divided]
	groups   *derive.Numbers[groupID]
	services *derive.Table[serviceShard, []balanced]

	wayGroups *derive.Table[derive.Name, []groupID]

	nodes    *derive.Table[derive.Name, flow.Entries]
	clusters *derive.Table[derive.Name, flow.Entries]
	gateway  *derive.Table[derive.Name, flow.Entries]
	exports  *derive.Table[derive.Object, flow.Entries]
	policies *policyFlows
	tenants  tenantTables

	judged          *derive.Numbers[derive.Object] // Services that policies are applied to
	judgedRules     *derive.Table[derive.Object, []JudgedRule]
	servicePolicies *derive.Table[derive.Object, flow.Entries]

	ended      *derive.Source[ServiceConnection, bool]
	endedFlows *derive.Table[ServiceConnection, flow.Entries]
}

// NewTables adds the tables to an engine.
func NewTables(e *derive.Engine, in Inputs) *Tables {
	t := &Tables{Inputs: in}
	self := derive.KeysOf(in.Node)
	t.role = derive.NewTable(e, "role", t.roleOf, self)
	t.rate = derive.NewTable(e, "packet-in-rate", func(_ derive.Name, r *derive.Reader) (uint32, []problem.Problem) {
		return t.self(r).PacketInRate, nil
	}, self)
	t.ruleKey = derive.NewTable(e, "rule-key", func(_ derive.Name, r *derive.Reader) (Secret, []problem.Problem) {
		return t.self(r).RuleKey, nil
	}, self)
	t.outside = derive.NewTable(e, "outside", func(_ derive.Name, r *derive.Reader) (outside, []problem.Problem) {
		return outside{t.self(r).NodePortAddresses, t.self(r).Families}, nil
	}, self)

	t.ranges = derive.NewIndex(in.RemoteNodes, "pod-range",
		func(_ derive.Name, n RemoteNode) []podRange { return podRanges(n.PodCIDRs) })
	t.lengths = derive.NewTable(e, "pod-range-lengths", t.lengthsOf, self)

	t.claims = derive.NewTable(e, "flow-claims", t.claimsOf,
		claimants(in.Node, func(derive.Name) claimant { return thisNode }),
		claimants(in.RemoteNodes, remoteNode), claimants(in.Pods, localPod), claimants(in.Peering.Peers, peerCluster))
	t.claimed = derive.NewIndex(t.claims, "claim", func(_ claimant, list []claim) []claim { return list })
	t.holders = derive.NewTable(e, "flow-holders", func(c claim, r *derive.Reader) (claimant, []problem.Problem) {
		return derive.List(r, t.claimed, c)[0].Key, nil
	}, derive.KeysOfIndex(t.claimed))

	t.outsideTables(e)
	t.tenantTables(e)
	t.divided = derive.NewTable(e, "shards", t.divide, derive.KeysOf(in.Frontends)).EqualBy(sameDivided)
	t.wayGroups = derive.NewTable(e, "way-groups", t.wayGroupsOf, self)
	t.groups = derive.NewNumbers(e, "groups", 1, maxGroup,
		derive.KeysOfIndex(derive.NewIndex(t.divided, "group", groupsOf)),
		derive.KeysOfIndex(
			derive.NewIndex(t.wayGroups, "group", func(_ derive.Name, list []groupID) []groupID { return list })))
	t.services = derive.NewTable(e, "service-flows", t.serviceFlows,
		derive.KeysOfIndex(derive.NewIndex(t.divided, "shard", shardsOf))).EqualBy(sameBalanced)

	named := derive.NewIndex(in.Node, "name",
		func(_ derive.Name, n Node) []derive.Name { return []derive.Name{derive.Name(n.Name)} })
	t.nodes = derive.NewTable(e, "node-flows", t.nodeFlows, derive.KeysOfIndex(named), derive.KeysOf(in.RemoteNodes))
	t.ServedPods = derive.NewTable(e, "pod-flows", t.servedPod, derive.KeysOf(in.Pods))
	t.gateway = derive.NewTable(e, "gateway-flows", t.gatewayFlows, self)
	t.clusters = derive.NewTable(e, "peer-flows", t.peerFlows, derive.KeysOf(in.Peering.Peers))
	t.tenantFlows(e)
	t.exports = derive.NewTable(e, "export-flows", t.exportFlows, derive.KeysOf(in.Exported))
	t.ended = derive.NewSource[ServiceConnection, bool](e, "ended-connections")
	t.ended.Loaded() // it is found out while the agent runs
	t.endedFlows = derive.NewTable(e, "ended-flows", endedTo, derive.KeysOf(t.ended))
	if in.Policy != nil {
		t.policies = newPolicyFlows(e, in.Policy, in.Frontends, t.rate, t.ruleKey, t.outside, in.Resolvers)
		t.policies.locals = derive.NewTable(e, "local-pods", t.localOf, derive.KeysOf(in.Pods))
		t.servicePolicyTables(e)
		t.policies.newcomers = derive.NewTable(e, "newcomer-flows", t.newcomerFlows, derive.KeysOf(in.Policy.Newcomers))
	}
	return t
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

// GatewayOwner returns the owner of the entries that a Gateway needs with any peers and exports.
func GatewayOwner() flow.Owner { return flow.Owner{Kind: KindMulticluster, Name: "gateway"} }

// PeerOwner owns the flows between this cluster and another.
func PeerOwner(clusterID string) flow.Owner {
	return flow.Owner{Kind: KindMulticluster, Name: "cluster " + clusterID}
}

// ExportOwner owns the flows that let other clusters reach an exported Service.
func ExportOwner(namespace, name string) flow.Owner {
	return flow.Owner{Kind: KindMulticluster, Name: "export " + namespace + "/" + name}
}

// self returns this Node, or the zero Node while it is being set up.
func (t *Tables) self(r *derive.Reader) Node {
	n, _ := derive.Get(r, t.Node, Self)
	return n
}

// Owners can conflict. Most flows are for something that only their owner has. Two owners can want the same only of a
// few kinds: an address or a range that packets are routed to, a port, or an address behind a Gateway. So owners claim
// these, and not flows. The first claimant in the order of claimants holds a claim, with or without its other claims.
// The other claimants are left out, and reported. Two frontends cannot conflict, since pkg/service has resolved that.

// claimant is an owner with claims.
type claimant struct {
	rank int
	name string
}

// Ranks of claimants: this Node goes before other Nodes, these before Pods.
const (
	rankSelf = iota + 1
	rankNode
	rankPod
	rankPeer
)

var thisNode = claimant{rank: rankSelf}

func remoteNode(name derive.Name) claimant { return claimant{rankNode, string(name)} }
func localPod(port derive.Name) claimant   { return claimant{rankPod, string(port)} }
func peerCluster(id derive.Name) claimant  { return claimant{rankPeer, string(id)} }

// Compare is the order in which claimants are served.
func (c claimant) Compare(o claimant) int {
	return cmp.Or(cmp.Compare(c.rank, o.rank), cmp.Compare(c.name, o.name))
}

func (c claimant) String() string {
	return [...]string{"nobody", "this Node", "Node ", "the Pod at port ", "cluster "}[c.rank] + c.name
}

// claimants are the keys that the rows of a table have as claimants.
func claimants[V any](of derive.Readable[derive.Name, V], as func(derive.Name) claimant) derive.Keys[claimant] {
	return derive.KeysOfIndex(
		derive.NewIndex(of, "claimant", func(k derive.Name, _ V) []claimant { return []claimant{as(k)} }))
}

// claim is something that only one claimant can have.
type claim struct {
	kind  claimKind
	to    netip.Prefix // but for claimPort
	ports ofp.Port     // for claimPort
}

type claimKind uint8

const (
	claimPort    claimKind = iota // a port of the switch
	claimRoute                    // packets to a range
	claimCluster                  // requests to a range behind a peer, and replies to its gateways
)

// Compare makes a claim the key of a table.
func (c claim) Compare(o claim) int {
	return cmp.Or(cmp.Compare(c.kind, o.kind), cmp.Compare(c.ports, o.ports), c.to.Addr().Compare(o.to.Addr()),
		cmp.Compare(c.to.Bits(), o.to.Bits()))
}

func (c claim) String() string {
	switch c.kind {
	case claimPort:
		return fmt.Sprintf("port %d of the switch", c.ports)
	case claimCluster:
		return fmt.Sprintf("%s behind a Gateway", c.to)
	}
	if c.to.IsSingleIP() {
		return "address " + c.to.Addr().String()
	}
	return "range " + c.to.String()
}

func route(to netip.Prefix) claim { return claim{kind: claimRoute, to: to.Masked()} }

func routes(addresses []netip.Addr) []claim {
	var out []claim
	for _, ip := range addresses {
		out = append(out, route(host(ip)))
	}
	return out
}

// claimsOf returns the claims of a claimant.
func (t *Tables) claimsOf(c claimant, r *derive.Reader) ([]claim, []problem.Problem) {
	switch c.rank {
	case rankSelf:
		return t.self(r).claims(), nil
	case rankNode:
		n, _ := derive.Get(r, t.RemoteNodes, derive.Name(c.name))
		return n.claims(), nil
	case rankPod:
		pod, _ := derive.Get(r, t.Pods, derive.Name(c.name))
		return pod.claims(), nil
	}
	peer, _ := derive.Get(r, t.Peering.Peers, derive.Name(c.name))
	at, _ := derive.Get(r, t.role, Self)
	return at.claims(peer, t.self(r)), nil
}

// refused returns a Problem for the first of these claims that another claimant holds.
func (t *Tables) refused(r *derive.Reader, who claimant, object problem.Object, list []claim) []problem.Problem {
	for _, c := range list {
		if holder, _ := derive.Get(r, t.holders, c); holder != who {
			return []problem.Problem{{Object: object, Reason: "Conflict", Message: fmt.Sprintf(
				"left out: %s belongs to %s already: the two need addresses and ports of their own", c, holder)}}
		}
	}
	return nil
}

// role is this Node's part in traffic between clusters, without the peers.
type role struct {
	part       peering.Role
	own        netip.Addr            // where the tunnels of peers end, on a Gateway
	others     []peering.GatewayNode // Gateways of this cluster but this Node
	ends       []peering.End         // at the others that this Node's connections may be on
	sends      bool                  // a Gateway, and sends its own itself
	later      bool                  // a Gateway, and others[0] is the oldest
	exportsAll bool                  // other clusters may reach every Pod through this Node
}

// roleOf is the function of the table of the role.
func (t *Tables) roleOf(_ derive.Name, r *derive.Reader) (role, []problem.Problem) {
	p, _ := derive.Get(r, t.Peering.Part, Self)
	if p.Role == peering.None || t.self(r).TunnelPort == 0 {
		return role{}, nil
	}
	at := role{part: p.Role, others: p.Others(), ends: p.OwnEnds(), sends: p.Direct(peering.Peer{})}
	if at.isGateway() {
		at.own, at.later, at.exportsAll = p.End, p.Gateways[0].Name != p.Gateway.Name, t.PodToPod
	}
	return at, nil
}

func (at role) isGateway() bool { return at.part == peering.Gateway }

// direct reports whether this Node tunnels to a peer itself.
func (at role) direct(peer peering.Peer) bool { return at.takes(peer) && at.sends }

// takes reports whether this Node accepts packets of a peer's gateways.
func (at role) takes(peer peering.Peer) bool { return at.isGateway() && !peer.Relayed }

// podRange is a range of Pods of another Node, as the key of an index.
type podRange struct{ netip.Prefix }

// Compare orders by address, then length.
func (p podRange) Compare(o podRange) int {
	return cmp.Or(p.Addr().Compare(o.Addr()), cmp.Compare(p.Bits(), o.Bits()))
}

func podRanges(list []netip.Prefix) []podRange {
	var out []podRange
	for _, p := range list {
		out = append(out, podRange{p.Masked()})
	}
	return out
}

// lengthsOf returns how long the Pods' ranges are: seldom more than one length.
func (t *Tables) lengthsOf(_ derive.Name, r *derive.Reader) ([]int, []problem.Problem) {
	var out []int
	for _, n := range derive.All(r, t.RemoteNodes) {
		for _, p := range n.Value.PodCIDRs {
			if !slices.Contains(out, p.Bits()) {
				out = append(out, p.Bits())
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// isPod reports whether an address is in the Pods' ranges of this cluster.
func (t *Tables) isPod(r *derive.Reader, a netip.Addr) bool {
	if slices.ContainsFunc(t.self(r).PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return true
	}
	lengths, _ := derive.Get(r, t.lengths, Self)
	for _, bits := range lengths {
		if p, err := a.Prefix(bits); err == nil && len(derive.List(r, t.ranges, podRange{p})) > 0 {
			return true
		}
	}
	return false
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
	// Ways are the ports with BFD, by the end of the way.
	Ways map[netip.Addr]ofp.Port
	// Lost are the ends of ways that have been down for a while.
	Lost []netip.Addr
}

// Plan returns the desired entries of each owner in the switch: the tables' functions, evaluated for all keys. It
// depends on the state alone, not on the order of its lists. If two objects of the state claim the same packets, one of
// them gets them (see claimant), and the other is a Problem.
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
		in.Places = places
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

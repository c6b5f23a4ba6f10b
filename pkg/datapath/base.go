package datapath

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// base has the tables that several features read: about this Node, and which owner holds an address or a port. A
// feature has its own tables and base.
type base struct {
	Inputs
	role    *derive.Table[derive.Name, role]
	rate    *derive.Table[derive.Name, uint32]
	ruleKey *derive.Table[derive.Name, Secret]
	outside *derive.Table[derive.Name, outside]
	claims  *derive.Table[claimant, []claim]
	holders *derive.Table[claim, claimant]
}

func newBase(e *derive.Engine, in Inputs) *base {
	b, self := &base{Inputs: in}, derive.KeysOf(in.Node)
	b.role = derive.NewTable(e, "role", b.roleOf, self)
	b.rate = derive.NewTable(e, "packet-in-rate", func(_ derive.Name, r *derive.Reader) (uint32, []problem.Problem) {
		return b.self(r).PacketInRate, nil
	}, self)
	b.ruleKey = derive.NewTable(e, "rule-key", func(_ derive.Name, r *derive.Reader) (Secret, []problem.Problem) {
		return b.self(r).RuleKey, nil
	}, self)
	b.outside = derive.NewTable(e, "outside", func(_ derive.Name, r *derive.Reader) (outside, []problem.Problem) {
		return outside{b.self(r).NodePortAddresses, b.self(r).Families}, nil
	}, self)
	b.claims = derive.NewTable(e, "flow-claims", b.claimsOf,
		claimants(in.Node, func(derive.Name) claimant { return thisNode }),
		claimants(in.RemoteNodes, remoteNode), claimants(in.Pods, localPod), claimants(in.Peering.Peers, peerCluster))
	claimed := derive.NewIndex(b.claims, "claim", func(_ claimant, list []claim) []claim { return list })
	b.holders = derive.NewTable(e, "flow-holders", func(c claim, r *derive.Reader) (claimant, []problem.Problem) {
		return derive.List(r, claimed, c)[0].Key, nil
	}, derive.KeysOfIndex(claimed))
	return b
}

// self returns this Node, or the zero Node while it is being set up.
func (b *base) self(r *derive.Reader) Node {
	n, _ := derive.Get(r, b.Node, Self)
	return n
}

// Owners can conflict. Most flows are for something that only their owner has. Owners can compete only for a few kinds
// of things: an address or a range that packets are routed to, a port, or an address behind a Gateway. So owners claim
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
	to    netip.Prefix  // but for claimPort
	ports ofp.Port      // for claimPort
	in    derive.Object // the VirtualNetwork of the further interface that has the address to, or zero
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
		cmp.Compare(c.to.Bits(), o.to.Bits()), c.in.Compare(o.in))
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
func (b *base) claimsOf(c claimant, r *derive.Reader) ([]claim, []problem.Problem) {
	switch c.rank {
	case rankSelf:
		return b.self(r).claims(), nil
	case rankNode:
		n, _ := derive.Get(r, b.RemoteNodes, derive.Name(c.name))
		return n.claims(), nil
	case rankPod:
		pod, _ := derive.Get(r, b.Pods, derive.Name(c.name))
		return pod.claims(), nil
	}
	peer, _ := derive.Get(r, b.Peering.Peers, derive.Name(c.name))
	at, _ := derive.Get(r, b.role, Self)
	return at.claims(peer, b.self(r)), nil
}

// zoneOf returns the zone of connection tracking of a separate network, and 0 for all other networks.
func (b *base) zoneOf(r *derive.Reader, network derive.Object) uint16 {
	if b.Networks == nil || network == (derive.Object{}) {
		return 0
	}
	v, _ := derive.Get(r, b.Networks, network)
	return v.Zone
}

// refused returns a Problem for the first of these claims that another claimant holds.
func (b *base) refused(r *derive.Reader, who claimant, object problem.Object, list []claim) []problem.Problem {
	for _, c := range list {
		if holder, _ := derive.Get(r, b.holders, c); holder != who {
			return []problem.Problem{{Object: object, Reason: reasonConflict, Message: fmt.Sprintf(
				"left out: %s belongs to %s already: give the two addresses and ports of their own", c, holder)}}
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
func (b *base) roleOf(_ derive.Name, r *derive.Reader) (role, []problem.Problem) {
	p, _ := derive.Get(r, b.Peering.Part, Self)
	if p.Role == peering.None || b.self(r).Tunnels.Port == 0 {
		return role{}, nil
	}
	at := role{part: p.Role, others: p.Others(), ends: p.OwnEnds(), sends: p.Direct(peering.Peer{})}
	if at.isGateway() {
		at.own, at.later, at.exportsAll = p.End, p.Gateways[0].Name != p.Gateway.Name, b.PodToPod
	}
	return at, nil
}

func (at role) isGateway() bool { return at.part == peering.Gateway }

// direct reports whether this Node tunnels to a peer itself.
func (at role) direct(peer peering.Peer) bool { return at.takes(peer) && at.sends }

// takes reports whether this Node accepts packets of a peer's gateways.
func (at role) takes(peer peering.Peer) bool { return at.isGateway() && !peer.Relayed }

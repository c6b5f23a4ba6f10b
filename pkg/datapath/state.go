// Package datapath is Tombolo's OpenFlow program: what flows and groups a Node's switch has
// for the state of its cluster. It is pure; flowsync brings the result into the switch.
// There is one file a feature, each a function from state to flows, and docs/pipeline.md is
// generated from the declarations in program.go.
package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Node is this Node.
type Node struct {
	Name string
	// GatewayMAC and GatewayIPs are those of the gateway port, the host's leg in the Pods'
	// network.
	GatewayMAC ofp.MAC
	GatewayIPs []netip.Addr
	// GatewayPort and TunnelPort are OpenFlow port numbers; a Node without tunnels has
	// TunnelPort 0.
	GatewayPort, TunnelPort ofp.Port
	PodCIDRs                []netip.Prefix
	// ServiceVIP is the host's next hop for Services and the source address of connections
	// that leave by the port they came from: 169.254.0.253.
	ServiceVIP netip.Addr
	// Ends are the addresses at which the tunnels of other Nodes may end here. Empty while none is
	// known: packets to any address of the Node are then taken.
	Ends []netip.Addr
	// Tunnel is what the packets of a tunnel look like from outside.
	Tunnel Tunnel
	// PacketInRate is how many packets a second of each kind the switch sends to the agent; the
	// others are dropped in the switch. With 0 it sends none.
	PacketInRate uint32
}

// Tunnel is the protocol of a tunnel: UDP with a port, or an IP protocol that has no ports, with
// Port 0. The zero value means that the tunnels are not known.
type Tunnel struct {
	Protocol uint8
	Port     uint16
}

// Pod is a Pod of this Node whose port has a number.
type Pod struct {
	Namespace, Name string
	Interface       string // the port's name
	MAC             ofp.MAC
	IPs             []netip.Addr
	Port            ofp.Port
}

// RemoteNode is another Node of this cluster.
type RemoteNode struct {
	Name     string
	PodCIDRs []netip.Prefix
	Address  netip.Addr // where the tunnel to it ends
	// Sources are the addresses that its packets come from, outside the tunnel and, where its
	// host uses one of them, inside. Empty means Address alone.
	Sources []netip.Addr
	// GatewayIPs are the addresses of its host in the Pods' network.
	GatewayIPs []netip.Addr
}

// sources returns the Node's own addresses, each once.
func (r RemoteNode) sources() []netip.Addr {
	out := []netip.Addr{r.Address}
	for _, a := range r.Sources {
		if a.Is4() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// State is everything the flows depend on.
type State struct {
	Node        Node
	Pods        []Pod
	RemoteNodes []RemoteNode
	Frontends   []service.Frontend
	Peering     peering.Peering
	// Exported are the Services that other clusters may use.
	Exported map[types.NamespacedName]bool
	// PodToPod lets other clusters reach every Pod, not only exported Services.
	PodToPod bool
}

// PodOwner owns the flows of the Pod at a port.
func PodOwner(port string) flow.Owner { return flow.Owner{Kind: KindPod, Name: port} }

// NodeOwner owns what a Node, this one or another, needs.
func NodeOwner(name string) flow.Owner { return flow.Owner{Kind: KindNode, Name: name} }

// ServiceOwner owns the flows and groups of a Service.
func ServiceOwner(namespace, name string) flow.Owner {
	return flow.Owner{Kind: KindService, Name: namespace + "/" + name}
}

// MulticlusterOwner owns the flows between clusters.
func MulticlusterOwner() flow.Owner { return flow.Owner{Kind: KindMulticluster, Name: "peers"} }

// ExportsOwner owns the flows that let other clusters reach exported Services.
func ExportsOwner() flow.Owner { return flow.Owner{Kind: KindMulticluster, Name: "exports"} }

// Plan returns what each owner wants in the switch. It depends on the state alone, not on
// the order of its lists. Where two things of the state claim the same packets the first by
// name wins, and the other is a Problem.
func Plan(s State) (map[flow.Owner]flow.Entries, []problem.Problem) {
	if s.Node.GatewayPort == 0 {
		return nil, nil // the Node is still being set up
	}
	p := newPlanner(s)
	p.program()
	p.node()
	p.remoteNodes()
	p.pods()
	p.services()
	p.crossCluster()
	p.exports()
	return p.out, p.problems
}

// planner collects what a Plan wants.
type planner struct {
	State
	out      map[flow.Owner]flow.Entries
	owners   map[flow.Key]flow.Owner
	problems []problem.Problem
}

func newPlanner(s State) *planner {
	s.Pods = sorted(s.Pods, func(p Pod) string { return p.Interface })
	s.RemoteNodes = sorted(s.RemoteNodes, func(n RemoteNode) string { return n.Name })
	s.Frontends = sorted(s.Frontends, frontendKey)
	return &planner{State: s, out: map[flow.Owner]flow.Entries{}, owners: map[flow.Key]flow.Owner{}}
}

func sorted[T any](in []T, key func(T) string) []T {
	out := slices.Clone(in)
	slices.SortStableFunc(out, func(a, b T) int {
		ka, kb := key(a), key(b)
		switch {
		case ka < kb:
			return -1
		case ka > kb:
			return 1
		}
		return 0
	})
	return out
}

// add gives flows to an owner. It is false, and nothing of it is added, when one of them has
// the key of a flow that another owner holds.
func (p *planner) add(o flow.Owner, object problem.Object, flows ...flow.Flow) bool {
	for _, f := range flows {
		if holder, taken := p.owners[f.Key()]; taken {
			p.report(object, "", "Conflict", "left out: flow %q is wanted for %s already: the two need addresses and ports of their own", f, holder.Name)
			return false
		}
	}
	e := p.out[o]
	for _, f := range flows {
		p.owners[f.Key()] = o
		e.Flows = append(e.Flows, f)
	}
	p.out[o] = e
	return true
}

// share gives flows to an owner that others may want as well: two tunnels may end at one address.
// The first owner keeps them.
func (p *planner) share(o flow.Owner, flows ...flow.Flow) {
	e := p.out[o]
	for _, f := range flows {
		if _, taken := p.owners[f.Key()]; !taken {
			p.owners[f.Key()] = o
			e.Flows = append(e.Flows, f)
		}
	}
	p.out[o] = e
}

func (p *planner) report(object problem.Object, field, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

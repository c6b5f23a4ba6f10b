package datapath

import (
	"fmt"
	"hash/fnv"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// maxID is the largest number that groups and buckets may have (OFPG_MAX, OFPG15_BUCKET_MAX).
const maxID = 0xffffff00

// maxBuckets is how many endpoints a group can have: a bucket takes 120 bytes, and a message, as
// part of a bundle, at most 65535.
const maxBuckets = 512

// rejectUserdata tells the agent why it gets a packet.
const rejectUserdata = "reject"

// frontendKey names a frontend for good: its group has the same number after a restart.
func frontendKey(f service.Frontend) string {
	return fmt.Sprintf("%s/%s/%s/%s/%s", f.Namespace, f.Service, f.Port, f.Protocol, f.VIP)
}

// services adds what each Service needs: a flow for each address and port, and behind it a
// group with a bucket for each endpoint.
func (p *planner) services() {
	groups := ids{}
	for _, f := range p.Frontends {
		object := problem.Object{Kind: "Service", Namespace: f.Namespace, Name: f.Service}
		owner := ServiceOwner(f.Namespace, f.Service)
		match, ok := frontendMatch(f)
		if !ok {
			p.report(object, "", "InvalidFrontend", "%s is not served: it is not an IPv4 address with TCP, UDP or SCTP", f)
			continue
		}
		if len(f.Endpoints) == 0 {
			p.add(owner, object, p.Node.refuse(match))
			continue
		}
		if n := len(f.Endpoints); n > maxBuckets {
			p.report(object, "", "TooManyEndpoints", "%s has %d endpoints, of which the first %d by address are used: share them among several Services", f, n, maxBuckets)
			f.Endpoints = f.Endpoints[:maxBuckets]
		}
		g := balance(groups.take(frontendKey(f)), f)
		if p.add(owner, object, choose(match, g.ID)) {
			e := p.out[owner]
			e.Groups = append(e.Groups, g)
			p.out[owner] = e
		}
	}
}

// frontendMatch is a new connection to a frontend.
func frontendMatch(f service.Frontend) (flow.Match, bool) {
	proto, port := portMatch(f.Protocol, f.VIP.Port())
	if proto == nil || !f.VIP.Addr().Is4() {
		return flow.Match{}, false
	}
	return flow.All(flow.CTState("+new+trk"), proto, flow.IPDst(host(f.VIP.Addr())), port), true
}

// choose gives a new connection to the group of its frontend.
func choose(match flow.Match, group uint32) flow.Flow {
	return flow.Flow{Table: Service, Priority: normal, Match: match, Actions: flow.Do(flow.ToGroup(group))}
}

// refuse asks the agent to answer a connection to a Service without endpoints, as often in a second
// as the meter allows.
func (n Node) refuse(match flow.Match) flow.Flow {
	f := flow.Flow{Table: Service, Priority: normal, Match: match}
	if n.PacketInRate > 0 {
		f.Actions = flow.Do(ofp.Meter{ID: meterReject}, flow.ToController(ofp.Controller{MaxLen: 0xffff, Reason: ofp.ReasonAction, Userdata: rejectUserdata}))
	}
	return f
}

// balance is the group of a frontend. The datapath's own hash of the connection chooses the
// bucket, so that many connections share one megaflow.
func balance(id uint32, f service.Frontend) flow.Group {
	g := flow.Group{ID: id, Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
	buckets := ids{}
	for _, e := range f.Endpoints {
		g.Buckets = append(g.Buckets, flow.Bucket{
			ID:      buckets.take(e.Addr.String()),
			Weight:  e.Weight,
			Actions: flow.Do(flow.Load(committed, 1), flow.CT(toEndpoint(e))),
		})
	}
	return g
}

// toEndpoint remembers the choice of an endpoint for the connection and goes on to it.
func toEndpoint(e service.Endpoint) ofp.CT {
	return ofp.CT{
		Flags: ofp.CTCommit, Zone: mainZone, Table: Route,
		NAT:  &ofp.NAT{Flags: ofp.NATDst, IPMin: string(e.Addr.Addr().AsSlice()), PortMin: e.Addr.Port()},
		Exec: flow.Do(flow.Load(markService, 1), flow.Move(source, markSource)),
	}
}

// ids gives numbers to names. A number depends on the name alone, except where two names
// have one hash: then the one that is asked for first has it, so ask in a fixed order.
type ids map[uint32]bool

func (t ids) take(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	id := h.Sum32() % maxID
	for id == 0 || t[id] {
		id = (id + 1) % maxID
	}
	t[id] = true
	return id
}

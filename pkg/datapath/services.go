package datapath

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// maxBucket is above the numbers that buckets may have (OFPG15_BUCKET_MAX).
const maxBucket = 0xffffff00

// frontendID names a frontend.
type frontendID struct {
	namespace, service, port string
	protocol                 corev1.Protocol
	vip                      netip.AddrPort
}

func idOf(f service.Frontend) frontendID {
	return frontendID{f.Namespace, f.Service, f.Port, f.Protocol, f.VIP}
}

// Compare makes a frontend the key of a table.
func (f frontendID) Compare(o frontendID) int {
	return cmp.Or(cmp.Compare(f.namespace, o.namespace), cmp.Compare(f.service, o.service), cmp.Compare(f.port, o.port),
		cmp.Compare(f.protocol, o.protocol), f.vip.Compare(o.vip))
}

func (f frontendID) String() string {
	return fmt.Sprintf("%s/%s/%s/%s/%s", f.namespace, f.service, f.port, f.protocol, f.vip)
}

// frontendMatch is a new connection to a frontend that meets more conditions.
func frontendMatch(f service.Frontend, more ...flow.Cond) flow.Match {
	proto, port := portMatch(f.Protocol, f.VIP.Port())
	return flow.All(append(more, flow.CTState("+new+trk"), proto, flow.IPDst(host(f.VIP.Addr())), port)...)
}

// refuse asks the agent to answer a connection to a Service without endpoints, as often in a second
// as the meter allows.
func refuse(match flow.Match, rate uint32) flow.Flow {
	return flow.Flow{Table: Service, Priority: normal, Match: match, Actions: ask(ServiceReject, rate)}
}

// balance is the group of a frontend's endpoints. The datapath's own hash of the connection chooses the
// bucket, so that many connections share one megaflow. With affinity a hash of the client's address and the bucket's number does: each
// client has a megaflow, an endpoint that goes moves its own clients alone, and no endpoint that comes moves any to another old one.
func balance(id uint32, f service.Frontend) flow.Group {
	g := flow.Group{ID: id, Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
	if f.Affinity {
		g.Selection = flow.Selection{Method: "hash", Fields: []ofp.Field{ofp.IPv4Src}}
		if f.VIP.Addr().Is6() {
			g.Selection.Fields[0] = ofp.IPv6Src
		}
	}
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
		Flags: ofp.CTCommit, Zone: mainZone, Table: Egress,
		NAT:  &ofp.NAT{Flags: ofp.NATDst, IPMin: string(e.Addr.Addr().AsSlice()), PortMin: e.Addr.Port()},
		Exec: flow.Do(flow.Load(markService, 1), flow.Load(markPending, 1), flow.Move(source, markSource)),
	}
}

// ids gives numbers from 1 below maxBucket to names. A number depends on the name alone, except where two names
// have one hash: then the one that is asked for first has it, so ask in a fixed order.
type ids map[uint32]bool

func (t ids) take(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	id := h.Sum32() % maxBucket
	for id == 0 || t[id] {
		id = (id + 1) % maxBucket
	}
	t[id] = true
	return id
}

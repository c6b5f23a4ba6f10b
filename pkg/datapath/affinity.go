package datapath

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Session affinity: the switch remembers a client address that has opened a connection to a port of a Service, at any
// of its addresses. It does so with a flow of table Affinity that it learns from the packet. The client's next
// connections go to the same endpoint, also if new endpoints are added. If no new connection has come for the Service's
// timeout, the switch forgets the client. This is an idle timeout, as in kube-proxy. Antrea's flows have a hard
// timeout, so a busy client changes its endpoint in the middle of its requests. As in kube-proxy, packets of known
// connections do not extend the timeout. After the timeout the switch chooses again, and may choose another endpoint.
//
// Learned flows have no owner. Their cookie has no instance, so flowsync leaves them alone, and a restart of the agent
// keeps them. The flow of one endpoint in table Endpoint has learned them. They are deleted with it (delete_learned):
// when the endpoint goes, or when the timeout changes.

// maxClients is the largest number of clients that the switch remembers for an endpoint. For further clients it chooses
// an endpoint for each connection. Clients may also be addresses of another cluster.
const maxClients = 4096

// toGroup sends a new connection to the group of a shard. With affinity it does so only if no endpoint is remembered
// for the client.
func (b balanced) toGroup() flow.Actions {
	if b.affinity == 0 {
		return flow.Do(flow.ToGroup(b.group))
	}
	return flow.Do(
		flow.Load(affinityGroup, uint64(b.group)), flow.Load(affinityPort, uint64(b.port)),
		flow.Resubmit(Affinity), flow.Goto(Endpoint),
	)
}

// remember returns the flows of table Endpoint for a shard: one for each endpoint, and one that chooses an endpoint. A
// client also hits the latter if its endpoint is in another shard now, or no longer in this set.
func (b balanced) remember() []flow.Flow {
	if b.affinity == 0 {
		return nil
	}
	proto, _ := portMatch(b.set.Protocol, 0)
	ports := ofp.TCPSrc
	switch b.set.Protocol {
	case corev1.ProtocolUDP:
		ports = ofp.UDPSrc
	case corev1.ProtocolSCTP:
		ports = ofp.SCTPSrc
	}
	ours := func(more ...flow.Cond) flow.Match {
		if b.set.IPv6 {
			more = append(more, flow.IPv6())
		}
		return flow.All(append(more, proto, affinityGroup.Is(uint64(b.group)))...)
	}
	// For a client without a remembered endpoint, the group chooses for each connection. The hash covers the client's
	// port, so a client gets one choice a connection until its first choice is learned, and the switch looks at each
	// connection. A connection from another cluster may come through any Gateway, so there only the client's address is
	// hashed.
	out := []flow.Flow{
		{Table: Endpoint, Priority: normal, Match: ours(),
			Actions: flow.Do(flow.MoveField(ports, affinitySalt.Field), flow.ToGroup(b.group))},
		{Table: Endpoint, Priority: differ, Match: ours(source.Is(fromPeer)), Actions: flow.Do(flow.ToGroup(b.group))},
	}
	numbers := b.buckets()
	for i, e := range b.endpoints {
		out = append(out,
			flow.Flow{Table: Endpoint, Priority: high, Match: ours(affinityTo.Is(uint64(numbers[i]))), Actions: flow.Do(
				b.learn(e, numbers[i]),
				// Fields that connection tracking sets are the same for all clients.
				flow.Load(affinityGroup, 0), flow.Load(affinityPort, 0), flow.Load(affinityTo, 0), flow.Load(affinitySalt, 0),
				flow.Load(committed, 1), flow.CT(b.toEndpoint(e)),
			)})
	}
	return out
}

// learn returns the action that learns which endpoint a client has.
func (b balanced) learn(e service.Endpoint, bucket uint32) ofp.Action {
	whole := func(f ofp.Field) ofp.Bits { return ofp.Bits{Field: f, Width: f.Bits()} }
	src, ethType := ofp.IPv4Src, uint16(0x0800)
	if b.set.IPv6 {
		src, ethType = ofp.IPv6Src, 0x86dd
	}
	number := func(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
	return ofp.Learn{
		Table: Affinity, Priority: normal, IdleTimeout: uint16(b.affinity / time.Second), Limit: maxClients,
		Cookie: b.learned(e), Flags: ofp.LearnDeleteLearned,
		Specs: []ofp.LearnSpec{
			{Dst: whole(ofp.EthType), Value: string(binary.BigEndian.AppendUint16(nil, ethType))},
			{Dst: whole(src), Src: whole(src)},
			{Dst: ofp.Bits(affinityPort), Value: number(b.port)},
			{Kind: ofp.LearnLoad, Dst: ofp.Bits(affinityTo), Value: number(bucket)},
		},
	}
}

// learned returns the cookie of the flows that an endpoint's flow has learned. The cookie has no instance number. It
// depends on the timeout, since an existing flow keeps its timeout. All endpoint sets of a Service's port that contain
// this endpoint use the same cookie. So the switch forgets a client once no set contains the endpoint.
func (b balanced) learned(e service.Endpoint) uint64 {
	h := fnv.New64a()
	h.Write([]byte(portOf(b.set).String() + " " + e.Addr.String() + " " + b.affinity.String()))
	return max(1, h.Sum64()>>16)
}

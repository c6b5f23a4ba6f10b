package datapath

import (
	"math"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// claims are the Pod's addresses and its port. Several networks may have the address of a further interface.
func (pod Pod) claims() []claim {
	out := routes(pod.IPs)
	for i := range out {
		if !pod.First {
			out[i].in = pod.Network
		}
	}
	return append(out, claim{kind: claimPort, ports: pod.Port})
}

// ServedPod is a Pod of this Node, and how it is served.
type ServedPod struct {
	Pod Pod
	// Served is set if the Pod has flows. It is not set if another Pod holds its address or its port.
	Served bool
	// Closed is set if the Pod is denied everything, because the Pod or its labels are unknown.
	Closed bool
	// Entries are the Pod's flows. The field is exported because fmt and `tombolo explain` print them as text.
	Entries flow.Entries
}

// podTables makes the flows of this Node's Pods.
type podTables struct {
	base    *base
	tenants *tenantTables
}

// servedPod returns the flows of the Pod at a port.
func (t podTables) servedPod(port derive.Name, r *derive.Reader) (ServedPod, []problem.Problem) {
	pod, _ := derive.Get(r, t.base.Pods, port)
	p := nodePod{node: t.base.self(r), pod: pod, zone: t.base.zoneOf(r, pod.Network)}
	object := problem.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	if problems := t.base.refused(r, localPod(port), object, pod.claims()); problems != nil {
		return ServedPod{Pod: pod}, problems
	}
	identity := t.identity(r, port, pod)
	place := t.tenants.placeAt(r, pod)
	p.services, p.taken = t.tenants.own.services(r, pod, place)
	if place.Closed() {
		identity.number = unknownIdentity
	}
	if place.Closed() || place.Isolated() { // a further interface is in either
		return p.tenantPod(place, identity)
	}
	flows := []flow.Flow{back(pod.Port)}
	for _, ip := range pod.IPs {
		flows = append(flows,
			p.sends(ip, identity), p.toPod(ip, identity.number), p.toItself(ip),
		)
		flows = append(flows, p.node.answer(ip, pod.MAC, asHost)...)
		if ip.Is4() {
			flows = append(flows, pod.asks(ip))
		}
	}
	if pod.HostPorts {
		flows = append(flows, p.hostPorts(identity.number)...)
	}
	flows = append(flows, p.solicits()...)
	if identity.egress {
		flows = append(flows, pod.mayReachItself()...)
	}
	closed := identity.number == unknownIdentity
	return ServedPod{Pod: pod, Served: true, Closed: closed,
		Entries: flow.Entries{Flows: flows, Meters: p.meters()}}, nil
}

// nodePod makes the flows of a Pod of this Node.
type nodePod struct {
	node Node
	pod  Pod
	zone uint16 // of the Pod's network, if the network is separate
	// services is set for a first interface in a VirtualNetwork that has Services. If another owner
	// has its address, it has no Services, and taken is the range of that owner.
	services bool
	taken    netip.Prefix
}

// firstPodMeter is above the meters of packets to the agent. The meter of a Pod is firstPodMeter plus the number of the
// Pod's port. Open vSwitch has 200,000 meters or more.
const firstPodMeter = 1 << 16

// meters returns the meters of a Pod.
func (p nodePod) meters() []flow.Meter {
	out := p.pod.limits()
	if p.pod.has6() {
		out = append(out, p.solicitMeter())
	}
	return out
}

// limits returns the meter of what the Pod sends, if it is limited.
func (pod Pod) limits() []flow.Meter {
	if pod.Limit.Bits == 0 {
		return nil
	}
	tenthMore := func(bits uint64) uint32 { return uint32(min(math.MaxUint32, (bits/1000*11+9)/10+1)) }
	return []flow.Meter{{ID: firstPodMeter + uint32(pod.Port), Flags: ofp.MeterKbps | ofp.MeterBurst,
		Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: tenthMore(pod.Limit.Bits),
			Burst: tenthMore(8 * uint64(pod.Limit.Burst))}}}}
}

// sends lets the Pod send from its own addresses and nothing else.
func (p nodePod) sends(ip netip.Addr, identity podIdentity) flow.Flow {
	var actions flow.Actions
	for _, m := range p.pod.limits() {
		actions = flow.Do(ofp.Meter{ID: m.ID})
	}
	actions = append(actions, load(sender, identity.number)...)
	if p.node.Tunnels.Stretched {
		actions = append(actions, flow.Load(clusterSetID, uint64(identity.clusterSet)))
	}
	actions = append(actions, load(senderKey, identity.key)...)
	return flow.Flow{
		Table: Classify, Priority: normal,
		Match:   flow.All(flow.InPort(p.pod.Port), flow.EthSrc(p.pod.MAC), flow.IPSrc(host(ip))),
		Actions: append(actions, flow.Load(source, fromPod), flow.Goto(UnSNAT)),
	}
}

// asks lets the Pod speak ARP for its own addresses and nothing else.
func (pod Pod) asks(ip netip.Addr) flow.Flow {
	return flow.Flow{
		Table: Classify, Priority: normal,
		Match:   flow.All(flow.InPort(pod.Port), flow.EthSrc(pod.MAC), flow.ARP(), flow.ARPSPA(ip), flow.ARPSHA(pod.MAC)),
		Actions: flow.Do(flow.Goto(ARP)),
	}
}

// toPod delivers to the Pod.
func (p nodePod) toPod(ip netip.Addr, identity uint32) flow.Flow {
	return flow.Flow{
		Table: Route, Priority: normal,
		Match:   flow.All(flow.IPDst(host(ip))),
		Actions: p.deliver(append(load(receiver, identity), flow.Goto(Ingress))...),
	}
}

// toItself delivers packets that a Pod sends to itself through a Service. Policies cannot deny these. Replies already
// have their original addresses when they reach this flow.
func (p nodePod) toItself(ip netip.Addr) flow.Flow {
	return flow.Flow{
		Table: Route, Priority: high,
		Match:   flow.All(flow.InPort(p.pod.Port), flow.CTState("-rpl+trk"), flow.IPDst(host(ip))),
		Actions: p.deliver(flow.Load(snat, snatHairpin), flow.Load(ingressRule, alwaysAllowed), flow.Goto(Commit)),
	}
}

// hostPorts returns the flows of a Pod that clients reach through ports of the Node. The host has translated their
// packets, so it gets the replies to every client. If such a Pod reaches itself through the port, the flows change the
// source, since the Pod would see its own address otherwise. Policies judge that packet by its source, since a packet
// from the host may have any source.
func (p nodePod) hostPorts(identity uint32) []flow.Flow {
	flows := p.node.each(func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{
			p.node.toGateway(origin, 0, flow.InPort(p.pod.Port), ip, flow.CTState("+rpl+trk"), markSource.Is(fromGateway)),
		}
	})
	for _, ip := range p.pod.IPs {
		flows = append(flows, flow.Flow{
			Table: Route, Priority: high,
			Match: flow.All(source.Is(fromGateway), flow.CTState("-rpl+trk"), flow.IPSrc(host(ip)), flow.IPDst(host(ip))),
			Actions: p.deliver(append(append(flow.Do(flow.Load(snat, snatHairpin)), load(receiver, identity)...),
				flow.Goto(Ingress))...),
		})
	}
	return flows
}

func (p nodePod) deliver(more ...ofp.Action) flow.Actions {
	actions := flow.Do(
		flow.SetEthSrc(p.node.GatewayMAC),
		flow.SetEthDst(p.pod.MAC),
		flow.Load(outPort, uint64(p.pod.Port)),
	)
	return append(actions, more...)
}

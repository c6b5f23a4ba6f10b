package datapath

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// pods adds what each Pod of this Node needs.
func (p *planner) pods() {
	for _, pod := range p.Pods {
		flows := []flow.Flow{back(pod.Port)}
		for _, ip := range pod.IPs {
			if !ip.Is4() {
				continue
			}
			flows = append(flows,
				pod.sends(ip), pod.asks(ip), answer(ip, pod.MAC),
				p.Node.toPod(pod, ip), p.Node.toItself(pod, ip),
			)
		}
		p.add(PodOwner(pod.Interface), problem.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}, flows...)
	}
}

// sends lets the Pod send from its own addresses and nothing else.
func (pod Pod) sends(ip netip.Addr) flow.Flow {
	return flow.Flow{
		Table: Classify, Priority: normal,
		Match:   flow.All(flow.InPort(pod.Port), flow.EthSrc(pod.MAC), flow.IPSrc(host(ip))),
		Actions: flow.Do(flow.Load(source, fromPod), flow.Goto(UnSNAT)),
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
func (n Node) toPod(pod Pod, ip netip.Addr) flow.Flow {
	return flow.Flow{
		Table: Route, Priority: normal,
		Match:   flow.All(flow.IPDst(host(ip))),
		Actions: n.deliver(pod),
	}
}

// toItself is for a Pod that reached itself through a Service. Its replies are not
// translated but restored, before they get here.
func (n Node) toItself(pod Pod, ip netip.Addr) flow.Flow {
	return flow.Flow{
		Table: Route, Priority: high,
		Match:   flow.All(flow.InPort(pod.Port), flow.CTState("-rpl+trk"), flow.IPDst(host(ip))),
		Actions: n.deliver(pod, flow.Load(snat, snatHairpin)),
	}
}

func (n Node) deliver(pod Pod, more ...ofp.Action) flow.Actions {
	actions := flow.Do(
		flow.SetEthSrc(n.GatewayMAC),
		flow.SetEthDst(pod.MAC),
		flow.Load(outPort, uint64(pod.Port)),
	)
	return append(append(actions, more...), flow.Goto(Commit))
}

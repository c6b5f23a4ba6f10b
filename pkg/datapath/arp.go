package datapath

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// arp answers for the addresses of the host's leg, and for the next hop of its routes.
func arp(n Node) []flow.Flow {
	var flows []flow.Flow
	for _, ip := range n.vips() {
		flows = append(flows, n.answer(ip, InClusterMAC, asRouter)...)
	}
	for _, ip := range n.GatewayIPs {
		flows = append(flows, n.answer(ip, n.GatewayMAC, asRouter)...)
	}
	return flows
}

// answer turns a request for an address into the reply and sends it back. The switch answers for every address in
// requests, so a request never goes to another port. In IPv6 the answer has flags. more has further conditions for the
// request.
func (n Node) answer(ip netip.Addr, mac ofp.MAC, flags uint32, more ...flow.Cond) []flow.Flow {
	switch {
	case ip.Is4():
	case n.NoND:
		return []flow.Flow{advertiseByAgent(ip, mac, flags, more...)}
	default:
		return []flow.Flow{advertise(ip, mac, flags, more...)}
	}
	return []flow.Flow{{
		Table: ARP, Priority: normal,
		Match: flow.All(append(more, flow.ARPOp(1), flow.ARPTPA(ip))...),
		Actions: flow.Do(
			flow.MoveField(ofp.EthSrc, ofp.EthDst),
			flow.SetEthSrc(mac),
			flow.SetARPOp(2),
			flow.MoveField(ofp.ARPSHA, ofp.ARPTHA),
			flow.MoveField(ofp.ARPSPA, ofp.ARPTPA),
			flow.SetARPSHA(mac),
			flow.SetARPSPA(ip),
			flow.ToInPort(),
		),
	}}
}

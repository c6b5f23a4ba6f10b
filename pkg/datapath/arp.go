package datapath

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// arp answers for the addresses of the host's leg, and for the next hop of its routes.
func (n Node) arp() []flow.Flow {
	flows := []flow.Flow{answer(n.ServiceVIP, InClusterMAC)}
	for _, ip := range n.GatewayIPs {
		flows = append(flows, answer(ip, n.GatewayMAC))
	}
	return flows
}

// answer turns a request for an address into the reply and sends it back. The switch answers for every address in
// requests, so a request never goes to another port.
func answer(ip netip.Addr, mac ofp.MAC) flow.Flow {
	return flow.Flow{
		Table: ARP, Priority: normal,
		Match: flow.All(flow.ARPOp(1), flow.ARPTPA(ip)),
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
	}
}

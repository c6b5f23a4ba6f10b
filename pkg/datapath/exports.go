package datapath

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

// exports adds what other clusters may open connections to: on the Gateway exported Services and
// their endpoints, and nothing else. Other Nodes get from their Gateway only what it has let
// through. Packets of known connections do not come to this table: they are answered also when
// the export is gone.
func (p *planner) exports() {
	if !p.isGateway() {
		return
	}
	owner := ExportsOwner()
	e := p.out[owner]
	e.Flows = append(e.Flows,
		flow.Flow{Table: Exports, Priority: last, Match: flow.All(flow.IP(), source.Is(fromPeer))},
		// A request sent again before the first answer: it has its endpoint already.
		export(high, flow.IP(), markService.Is(1)),
	)
	known := map[flow.Key]bool{} // Services may share endpoints
	allow := func(protocol corev1.Protocol, at netip.AddrPort) {
		proto, port := portMatch(protocol, at.Port())
		if proto == nil || !at.Addr().Is4() {
			return
		}
		f := export(normal, proto, flow.IPDst(host(at.Addr())), port)
		if !known[f.Key()] {
			known[f.Key()] = true
			e.Flows = append(e.Flows, f)
		}
	}
	for _, f := range p.Frontends {
		if !p.Exported[types.NamespacedName{Namespace: f.Namespace, Name: f.Service}] {
			continue
		}
		allow(f.Protocol, f.VIP)
		for _, at := range f.Endpoints {
			// A peer with endpointIPType PodIP connects to the Pods themselves.
			if !p.PodToPod && p.isPod(at.Addr.Addr()) {
				allow(f.Protocol, at.Addr)
			}
		}
	}
	p.out[owner] = e
}

// export lets another cluster open connections.
func export(priority uint16, match ...flow.Cond) flow.Flow {
	return flow.Flow{Table: Exports, Priority: priority, Match: flow.All(append(match, source.Is(fromPeer))...), Actions: flow.Do(flow.Goto(Service))}
}

// isPod reports whether an address is in the Pods' ranges of this cluster.
func (p *planner) isPod(a netip.Addr) bool {
	for _, r := range p.Node.PodCIDRs {
		if r.Contains(a) {
			return true
		}
	}
	for _, n := range p.RemoteNodes {
		for _, r := range n.PodCIDRs {
			if r.Contains(a) {
				return true
			}
		}
	}
	return false
}

// exportsPods reports whether other clusters may reach every Pod through this Node.
func (p *planner) exportsPods() bool { return p.PodToPod && p.isGateway() }

// exportPods lets other clusters reach the Pods of a Node, but not its host, whose addresses lie
// in the same ranges.
func (p *planner) exportPods(ranges []netip.Prefix, hosts []netip.Addr) []flow.Flow {
	var flows []flow.Flow
	for _, r := range ranges {
		if !r.Addr().Is4() {
			continue
		}
		flows = append(flows, export(low, flow.IPDst(r.Masked())))
		for _, ip := range hosts {
			if r.Contains(ip) {
				flows = append(flows, flow.Flow{Table: Exports, Priority: normal, Match: flow.All(flow.IPDst(host(ip)), source.Is(fromPeer))})
			}
		}
	}
	return flows
}

// portMatch matches packets to a port of a protocol; nil conditions for a protocol that is not
// served.
func portMatch(protocol corev1.Protocol, number uint16) (proto, port flow.Cond) {
	switch protocol {
	case corev1.ProtocolTCP:
		return flow.TCP(), flow.TCPDst(number)
	case corev1.ProtocolUDP:
		return flow.UDP(), flow.UDPDst(number)
	case corev1.ProtocolSCTP:
		return flow.SCTP(), flow.SCTPDst(number)
	}
	return nil, nil
}

package datapath

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// exportsBase keeps other clusters from opening connections, except to exports. Other Nodes get only packets that their
// Gateway has let through. Packets of known connections do not come to this table, so these continue even if the export
// is gone. ip is a version of IP.
func exportsBase(ip flow.Cond) []flow.Flow {
	return []flow.Flow{
		{Table: Exports, Priority: last, Match: flow.All(ip, source.Is(fromPeer))},
		// A request sent again before the first answer: it has its endpoint already.
		export(high, ip, markService.Is(1)),
	}
}

// exportFlows let other clusters open connections to an exported Service and its endpoints, on the Gateway. Services
// that share endpoints have flows in common.
func (t *clusterTables) exportFlows(key derive.Object, r *derive.Reader) (flow.Entries, []problem.Problem) {
	var e flow.Entries
	if at, _ := derive.Get(r, t.base.role, Self); !at.isGateway() {
		return e, nil
	}
	known := map[flow.Key]bool{}
	allow := func(protocol corev1.Protocol, at netip.AddrPort) {
		proto, port := portMatch(protocol, at.Port())
		f := export(normal, proto, flow.IPDst(host(at.Addr())), port)
		if !known[f.Key()] {
			known[f.Key()] = true
			e.Flows = append(e.Flows, f)
		}
	}
	frontends, _ := derive.Get(r, t.base.Frontends, key)
	for _, f := range frontends {
		if f.Kind == service.ClusterIP {
			allow(f.Protocol, f.VIP)
		}
	}
	if t.base.PodToPod {
		return e, nil
	}
	// A peer with endpointIPType PodIP connects to the Pods themselves, and makes its own choice. It may choose a Pod that
	// this Node would not. Examples are a Pod of another Node with internalTrafficPolicy Local, a terminating Pod while
	// others are ready, or a Pod of a headless Service.
	for _, slice := range derive.List(r, t.base.Slices, key) {
		for _, at := range slice.Value.Endpoints {
			if !t.isPod(r, at.Addr) {
				continue
			}
			for _, port := range slice.Value.Ports {
				allow(port.Protocol, netip.AddrPortFrom(at.Addr, port.Port))
			}
		}
	}
	return e, nil
}

// export lets another cluster open connections.
func export(priority uint16, match ...flow.Cond) flow.Flow {
	return flow.Flow{Table: Exports, Priority: priority, Match: flow.All(append(match, source.Is(fromPeer))...),
		Actions: flow.Do(flow.Goto(Service))}
}

// exportPods lets other clusters reach the Pods of a Node, but not its host, whose addresses lie in the same ranges.
func exportPods(ranges []netip.Prefix, hosts []netip.Addr) []flow.Flow {
	var flows []flow.Flow
	for _, r := range ranges {
		flows = append(flows, export(low, flow.IPDst(r.Masked())))
		for _, ip := range hosts {
			if r.Contains(ip) {
				flows = append(flows,
					flow.Flow{Table: Exports, Priority: normal, Match: flow.All(flow.IPDst(host(ip)), source.Is(fromPeer))})
			}
		}
	}
	return flows
}

// portMatch matches packets to a port of a protocol: TCP, UDP or SCTP, the protocols of pkg/service.
func portMatch(protocol corev1.Protocol, number uint16) (proto, port flow.Cond) {
	switch protocol {
	case corev1.ProtocolUDP:
		return flow.UDP(), flow.UDPDst(number)
	case corev1.ProtocolSCTP:
		return flow.SCTP(), flow.SCTPDst(number)
	}
	return flow.TCP(), flow.TCPDst(number)
}

// podRange is a range of Pods of another Node, as the key of an index.
type podRange struct{ netip.Prefix }

// Compare orders by address, then length.
func (p podRange) Compare(o podRange) int {
	return cmp.Or(p.Addr().Compare(o.Addr()), cmp.Compare(p.Bits(), o.Bits()))
}

func podRanges(list []netip.Prefix) []podRange {
	var out []podRange
	for _, p := range list {
		out = append(out, podRange{p.Masked()})
	}
	return out
}

// lengthsOf returns how long the Pods' ranges are: seldom more than one length.
func (t *clusterTables) lengthsOf(_ derive.Name, r *derive.Reader) ([]int, []problem.Problem) {
	var out []int
	for _, n := range derive.All(r, t.base.RemoteNodes) {
		for _, p := range n.Value.PodCIDRs {
			if !slices.Contains(out, p.Bits()) {
				out = append(out, p.Bits())
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// isPod reports whether an address is in the Pods' ranges of this cluster.
func (t *clusterTables) isPod(r *derive.Reader, a netip.Addr) bool {
	if slices.ContainsFunc(t.base.self(r).PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return true
	}
	lengths, _ := derive.Get(r, t.lengths, Self)
	for _, bits := range lengths {
		if p, err := a.Prefix(bits); err == nil && len(derive.List(r, t.ranges, podRange{p})) > 0 {
			return true
		}
	}
	return false
}

package datapath

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Connection tracking repeats the decision about the first datagram of a UDP connection for each further one. If a
// client always sends from one port, the decision would never change. Its datagrams would go to a deleted endpoint, or
// go without the translation of a Service that was created later. Such connections are stale. The switch sends their
// datagrams to the agent, which flushes the connection by its exact tuple. That costs the switch one look-up. A search
// among all connections would stop the userspace datapath.

// stale leaves datagrams to the agent, which has their connection forgotten.
func stale(table ofp.Table, priority uint16, match ...flow.Cond) flow.Flow {
	return flow.Flow{Table: table, Priority: priority, Match: flow.All(match...), Actions: ask(StaleConnection, staleRate)}
}

// untranslatedTo finds connections to a Service's address that are not translated, because they began before the
// Service existed. Until such a connection has an answer, the kernel reports it as new, although table Service cannot
// translate it any more. A Pod may have the same address (spec.externalIPs), and connections through another Service
// may lead to this Pod. Such connections are translated and must not be found, so the original destination is compared
// as well. Connections in a VirtualNetwork must not be found either, if its Pods may have the address (ofVirtual).
func untranslatedTo(protocol corev1.Protocol, vip netip.AddrPort, ofVirtual bool) []flow.Flow {
	if protocol != corev1.ProtocolUDP {
		return nil
	}
	proto, port := portMatch(protocol, vip.Port())
	match := []flow.Cond{proto, flow.IPDst(host(vip.Addr())), port, trackedTo(vip.Addr())}
	if ofVirtual {
		match = append(match, isVirtual.Is(0), isFirst.Is(0))
	}
	return []flow.Flow{
		stale(ConntrackState, never, append(slices.Clone(match), flow.CTState("-new+est-rel-rpl-inv+trk"))...),
		stale(Egress, never, append(match, flow.CTState("-rpl-inv+trk"))...),
	}
}

// endedTo finds connections through a Service to an endpoint that the Service no longer has, so that they end.
func endedTo(c ServiceConnection, _ *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	if !c.VIP.IsValid() || c.VIP.Addr().Is4() != c.Endpoint.Addr().Is4() {
		return e, nil
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	e.Flows = []flow.Flow{stale(ConntrackState, never, flow.UDPDst(c.Endpoint.Port()), flow.IPDst(host(c.Endpoint.Addr())),
		flow.CTState("-rel-rpl-inv+trk"), markService.Is(1), flow.Field(ofp.CTNwProto, []byte{protocolUDP}, nil),
		trackedTo(c.VIP.Addr()), flow.Field(ofp.CTTpDst, port(c.VIP.Port()), nil))}
	return e, nil
}

// Compare makes a connection the key of a table.
func (c ServiceConnection) Compare(o ServiceConnection) int {
	return cmp.Or(c.VIP.Compare(o.VIP), c.Endpoint.Compare(o.Endpoint))
}

func (c ServiceConnection) String() string { return c.VIP.String() + " " + c.Endpoint.String() }

// endedOwner is of KindService, and no Service.
func endedOwner(c ServiceConnection) flow.Owner {
	return flow.Owner{Kind: KindService, Name: "ended " + c.String()}
}

// SetEnded makes the switch send the datagrams of exactly these connections to the agent. Any goroutine may call it.
func (t *Services) SetEnded(list []ServiceConnection) {
	rows := map[ServiceConnection]bool{}
	for _, c := range list {
		rows[c] = true
	}
	t.ended.Replace(rows)
}

// StaleFlush forgets the connection of a packet of kind StaleConnection.
func StaleFlush(pkt ofp.PacketIn2) (ofp.CTFlush, error) {
	if KindOf(pkt) != StaleConnection {
		return ofp.CTFlush{}, fmt.Errorf("userdata %q is of no stale connection", pkt.Userdata)
	}
	get := func(f ofp.Field) ofp.Value { v, _, _ := pkt.Metadata.Get(f); return v }
	addr := func(v4, v6 ofp.Field) netip.Addr { // which connection tracking has
		if v := get(v6); !v.IsZero() {
			return netip.AddrFrom16([16]byte(v.Append(nil, 16)))
		}
		return netip.AddrFrom4([4]byte(get(v4).Append(nil, 4)))
	}
	out := ofp.CTFlush{
		Proto: uint8(get(ofp.CTNwProto).Lo), HasZone: true, Zone: mainZone,
		Orig: ofp.CTTuple{Src: addr(ofp.CTNwSrc, ofp.CTIPv6Src), Dst: addr(ofp.CTNwDst, ofp.CTIPv6Dst),
			SrcPort: uint16(get(ofp.CTTpSrc).Lo), DstPort: uint16(get(ofp.CTTpDst).Lo)},
	}
	if out.Proto != protocolUDP || out.Orig.Src.IsUnspecified() || out.Orig.Dst.IsUnspecified() ||
		out.Orig.SrcPort == 0 || out.Orig.DstPort == 0 {
		return ofp.CTFlush{}, errors.New("the switch does not say whose connection it is")
	}
	return out, nil
}

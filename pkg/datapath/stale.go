package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Connection tracking repeats for each datagram of a connection what was decided for the first one. A client that
// always sends from one port would go on for ever: without a Service, where there was none when it began. Such
// connections are stale. The switch leaves their datagrams to the agent, which has the connection forgotten, by its
// exact tuple: that costs the switch one look-up, while any search among its connections stops the userspace datapath.

// stale leaves datagrams to the agent, which has their connection forgotten.
func stale(table ofp.Table, priority uint16, match ...flow.Cond) flow.Flow {
	return flow.Flow{Table: table, Priority: priority, Match: flow.All(match...), Actions: ask(StaleConnection, staleRate)}
}

// untranslatedTo finds connections to a frontend that are not translated: they began before the Service was there.
// Unless something has answered them they are new to the kernel, and table Service cannot translate them any more.
func untranslatedTo(f service.Frontend) []flow.Flow {
	if f.Protocol != corev1.ProtocolUDP {
		return nil
	}
	proto, port := portMatch(f.Protocol, f.VIP.Port())
	return []flow.Flow{
		stale(ConntrackState, never, proto, flow.IPDst(host(f.VIP.Addr())), port, flow.CTState("-new+est-rel-rpl-inv+trk")),
		stale(Egress, never, proto, flow.IPDst(host(f.VIP.Addr())), port),
	}
}

// StaleFlush forgets the connection of a packet of kind StaleConnection.
func StaleFlush(pkt ofp.PacketIn2) (ofp.CTFlush, error) {
	if KindOf(pkt) != StaleConnection {
		return ofp.CTFlush{}, fmt.Errorf("userdata %q is of no stale connection", pkt.Userdata)
	}
	get := func(f ofp.Field) ofp.Value { v, _, _ := pkt.Metadata.Get(f); return v }
	addr := func(f ofp.Field) netip.Addr {
		v := uint32(get(f).Lo)
		return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	}
	out := ofp.CTFlush{
		Proto: uint8(get(ofp.CTNwProto).Lo), HasZone: true, Zone: mainZone,
		Orig: ofp.CTTuple{Src: addr(ofp.CTNwSrc), Dst: addr(ofp.CTNwDst), SrcPort: uint16(get(ofp.CTTpSrc).Lo), DstPort: uint16(get(ofp.CTTpDst).Lo)},
	}
	if out.Proto != protocolUDP || out.Orig.Src.IsUnspecified() || out.Orig.Dst.IsUnspecified() || out.Orig.SrcPort == 0 || out.Orig.DstPort == 0 {
		return ofp.CTFlush{}, errors.New("the switch does not say whose connection it is")
	}
	return out, nil
}

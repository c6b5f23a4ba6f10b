package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// ErrNotAnswered is the error of Reject for packets that get no answer. There are two kinds of them. The first kind is
// neither for a Service without endpoints nor rejected by a policy. The second kind must not be answered (RFC 9293
// 3.10.7.1, RFC 1122 3.2.2).
var ErrNotAnswered = errors.New("packet asks for no answer")

// untranslatedWord follows PolicyReject in the userdata of a packet that still has the destination that its client
// used.
const untranslatedWord = "untranslated"

// Reject answers a connection to a Service without endpoints: TCP with a reset, UDP and SCTP with ICMP port
// unreachable. It answers a connection that a policy rejects: TCP with a reset, all others with ICMP host
// administratively prohibited. Over IPv6 these are messages of ICMPv6.
//
// A policy that is applied to a Service rejects before an endpoint is chosen (untranslatedWord). Such an answer has the
// form of a policy's answer, and is sent like a Service's.
//
// A Service's answer comes from the Service's address and is routed like a reply, so it enters the switch in table
// Route. A policy's answer comes from the endpoint, if one was chosen. It enters in table Conntrack, which reverses the
// translation.
func Reject(pkt ofp.PacketIn2, known Frontends) (ofp.PacketOut, error) {
	table, why := Route, noPort
	switch KindOf(pkt) {
	case ServiceReject:
	case PolicyReject:
		table, why = Conntrack, prohibited
		if _, word, _ := strings.Cut(string(pkt.Userdata), " "); word == untranslatedWord {
			table = Route
		}
	default:
		return ofp.PacketOut{}, fmt.Errorf("%w: userdata is %q", ErrNotAnswered, pkt.Userdata)
	}
	in, err := parsePacket(pkt.Data)
	if err != nil {
		return ofp.PacketOut{}, fmt.Errorf("reject: %w", err)
	}
	if KindOf(pkt) == ServiceReject {
		if err := known.refused(in); err != nil {
			return ofp.PacketOut{}, err
		}
	} else if in.isError() || in.dst.IsMulticast() {
		return ofp.PacketOut{}, fmt.Errorf("%w: it is an ICMP error, or for many", ErrNotAnswered)
	}
	var out []byte
	if in.protocol == protoTCP {
		if out, err = in.reset(); err != nil {
			return ofp.PacketOut{}, err
		}
	} else {
		out = in.unreachable(why)
	}
	actions := flow.Do(flow.Load(generated, 1))
	// Between clusters the answer goes back on the way of the request.
	if by, _, _ := pkt.Metadata.Get(way.Field); !by.IsZero() {
		actions = append(actions, flow.Load(way, by.Shr(way.First).And(ofp.Ones(way.Width)).Lo))
	}
	// In a network of tenants it stays there.
	if in, _, _ := pkt.Metadata.Get(inTenant.Field); !in.IsZero() {
		actions = append(actions, flow.Load(inTenant, in.And(ofp.Ones(inTenant.Width)).Lo))
	}
	if zone, _, _ := pkt.Metadata.Get(inZone.Field); !zone.IsZero() {
		actions = append(actions, flow.Load(inZone, zone.And(ofp.Ones(inZone.Width)).Lo))
	}
	// To a Pod of another Node in a VirtualNetwork of its own only answers go back.
	if from, _, _ := pkt.Metadata.Get(source.Field); from.And(ofp.Ones(source.Width)).Lo == fromFirst {
		actions = append(actions, flow.Load(source, fromFirst))
	}
	return ofp.PacketOut{
		BufferID: ofp.NoBuffer,
		InPort:   ofp.PortController,
		Actions:  append(actions, flow.Resubmit(table)),
		Data:     out,
	}, nil
}

// Frontends finds the frontend of an address. An answer costs the same for any number of Services.
type Frontends func(corev1.Protocol, netip.AddrPort) (service.Frontend, bool)

// refused checks that the packet is for a frontend that has no endpoints now.
func (find Frontends) refused(in packet) error {
	vip := netip.AddrPortFrom(in.dst, in.dstPort)
	protocol := protocols[in.protocol]
	f, ok := find(protocol, vip)
	switch {
	case !ok:
		return fmt.Errorf("%w: no Service has address %s, protocol %d", ErrNotAnswered, vip, in.protocol)
	case len(f.Endpoints) > 0:
		return fmt.Errorf("%w: %s has endpoints now", ErrNotAnswered, f)
	}
	return nil
}

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

// ErrNotAnswered is what Reject returns for packets that ask for no answer: those that are
// no request to a Service without endpoints, and those that must not be answered (RFC 9293
// 3.10.7.1, RFC 1122 3.2.2).
var ErrNotAnswered = errors.New("packet asks for no answer")

// Reject answers a connection to a Service without endpoints: TCP with a reset, UDP and SCTP
// with ICMP port unreachable. The answer comes from the Service's address and takes the way
// of a reply: it enters the switch in table Route.
func Reject(pkt ofp.PacketIn2, known Refusals) (ofp.PacketOut, error) {
	if string(pkt.Userdata) != rejectUserdata {
		return ofp.PacketOut{}, fmt.Errorf("%w: userdata is %q", ErrNotAnswered, pkt.Userdata)
	}
	in, err := parsePacket(pkt.Data)
	if err != nil {
		return ofp.PacketOut{}, fmt.Errorf("reject: %w", err)
	}
	if err := known.refused(in); err != nil {
		return ofp.PacketOut{}, err
	}
	var out []byte
	if in.protocol == protoTCP {
		if out, err = in.reset(); err != nil {
			return ofp.PacketOut{}, err
		}
	} else {
		out = in.unreachable()
	}
	return ofp.PacketOut{
		BufferID: ofp.NoBuffer,
		InPort:   ofp.PortController,
		Actions:  flow.Do(flow.Load(generated, 1), flow.Resubmit(Route)),
		Data:     out,
	}, nil
}

// Refusals finds the frontend that a packet is for, so that an answer costs the same however many
// Services there are.
type Refusals map[refusal]service.Frontend

type refusal struct {
	protocol uint8
	vip      netip.AddrPort
}

// Refusals indexes the frontends of a state.
func (s State) Refusals() Refusals {
	out := make(Refusals, len(s.Frontends))
	for _, f := range s.Frontends {
		protocol := map[corev1.Protocol]uint8{corev1.ProtocolTCP: protoTCP, corev1.ProtocolUDP: protoUDP, corev1.ProtocolSCTP: protoSCTP}[f.Protocol]
		key := refusal{protocol, f.VIP}
		if _, taken := out[key]; !taken {
			out[key] = f
		}
	}
	return out
}

// refused checks that the packet is for a frontend that has no endpoints now.
func (r Refusals) refused(in packet) error {
	vip := netip.AddrPortFrom(in.dst, in.dstPort)
	f, ok := r[refusal{in.protocol, vip}]
	switch {
	case !ok:
		return fmt.Errorf("%w: no Service has address %s, protocol %d", ErrNotAnswered, vip, in.protocol)
	case len(f.Endpoints) > 0:
		return fmt.Errorf("%w: %s has endpoints now", ErrNotAnswered, f)
	}
	return nil
}

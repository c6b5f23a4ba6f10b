package capture

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
)

// Ends are the addresses of both ends of packets: a Pod's addresses, or the stated address. An end that is nil matches
// all addresses.
type Ends struct{ Source, Destination []netip.Addr }

// Numbers of protocols.
const (
	icmp, tcp, udp, icmp6 = 1, 6, 17, 58
)

// protocols has the names of protocols, in lower case.
var protocols = map[string]int{"tcp": tcp, "udp": udp, "icmp": icmp, "icmpv6": icmp6}

// messageTypes has the names of ICMP messages, with their types of ICMP and ICMPv6.
var messageTypes = map[string][2]uint8{
	"icmp-echo": {8, 128}, "icmp-echoreply": {0, 129}, "icmp-unreach": {3, 1}, "icmp-timxceed": {11, 3},
}

// FilterOf returns the filter of a PacketCapture, or an error with its fault. ends has the addresses of Pods.
func FilterOf(spec *crdv1alpha1.PacketCaptureSpec, ends Ends) (Filter, error) {
	f := Filter{Protocol: -1}
	switch spec.Direction {
	case crdv1alpha1.SourceToDestination, "":
		f.Forward = true
	case crdv1alpha1.DestinationToSource:
		f.Backward = true
	case crdv1alpha1.Both:
		f.Forward, f.Backward = true, true
	default:
		return Filter{}, fmt.Errorf("spec.direction %q: write SourceToDestination, DestinationToSource or Both",
			spec.Direction)
	}
	var packet crdv1alpha1.Packet
	if spec.Packet != nil {
		packet = *spec.Packet
	}
	if err := f.setEnds(ends, packet.IPFamily); err != nil {
		return Filter{}, err
	}
	if err := f.setProtocol(packet); err != nil {
		return Filter{}, err
	}
	return f, f.setHeader(packet.TransportHeader)
}

// setEnds sets the addresses, and the version of IP. If both versions are possible, it is IPv4.
func (f *Filter) setEnds(ends Ends, stated corev1.IPFamily) error {
	have := func(list []netip.Addr, six bool) (netip.Addr, bool) {
		for _, a := range list {
			if a.Unmap().Is6() == six {
				return a.Unmap(), true
			}
		}
		return netip.Addr{}, list == nil
	}
	versions := []bool{false, true}
	switch stated {
	case corev1.IPv4Protocol:
		versions = versions[:1]
	case corev1.IPv6Protocol:
		versions = versions[1:]
	case "":
	default:
		return fmt.Errorf("spec.packet.ipFamily %q: write IPv4 or IPv6", stated)
	}
	for _, six := range versions {
		source, ok := have(ends.Source, six)
		destination, both := have(ends.Destination, six)
		if ok && both {
			f.Six, f.Source, f.Destination = six, source, destination
			return nil
		}
	}
	if stated != "" {
		return fmt.Errorf("spec.packet.ipFamily %s: source and destination do not both have an address of it: the source "+
			"has %v, the destination %v", stated, ends.Source, ends.Destination)
	}
	return fmt.Errorf("source and destination have no version of IP in common: the source has %v, the destination %v",
		ends.Source, ends.Destination)
}

// setProtocol sets the protocol. A stated header implies its protocol.
func (f *Filter) setProtocol(packet crdv1alpha1.Packet) error {
	h := packet.TransportHeader
	switch p := packet.Protocol; {
	case p != nil && p.Type == intstr.Int:
		if p.IntVal < 0 || p.IntVal > 255 {
			return fmt.Errorf("spec.packet.protocol %d: write a number from 0 to 255", p.IntVal)
		}
		f.Protocol = int(p.IntVal)
	case p != nil:
		number, ok := protocols[strings.ToLower(p.StrVal)]
		if !ok {
			return fmt.Errorf("spec.packet.protocol %q: write TCP, UDP, ICMP or a number", p.StrVal)
		}
		f.Protocol = number
	case h.TCP != nil:
		f.Protocol = tcp
	case h.UDP != nil:
		f.Protocol = udp
	case h.ICMP != nil:
		f.Protocol = icmp
	}
	if f.Six && f.Protocol == icmp {
		f.Protocol = icmp6
	}
	return nil
}

// setHeader sets what the transport header must have.
func (f *Filter) setHeader(h crdv1alpha1.TransportHeader) error {
	const field = "spec.packet.transportHeader"
	for _, row := range []struct {
		name  string
		there bool
		is    bool
	}{
		{"tcp", h.TCP != nil, f.Protocol == tcp}, {"udp", h.UDP != nil, f.Protocol == udp},
		{"icmp", h.ICMP != nil, f.Protocol == icmp || f.Protocol == icmp6},
	} {
		if row.there && !row.is {
			return fmt.Errorf("%s.%s does not go with the protocol: write spec.packet.protocol %s", field, row.name,
				strings.ToUpper(row.name))
		}
	}
	var err error
	port := func(to *uint16, p *int32, name string) {
		if p == nil || err != nil {
			return
		}
		if *p < 1 || *p > 65535 {
			err = fmt.Errorf("%s.%s: %d is no port: write a number from 1 to 65535", field, name, *p)
			return
		}
		*to = uint16(*p)
	}
	switch {
	case h.TCP != nil:
		port(&f.SourcePort, h.TCP.SrcPort, "tcp.srcPort")
		port(&f.DestinationPort, h.TCP.DstPort, "tcp.dstPort")
		for _, m := range h.TCP.Flags {
			flags := Flags{uint8(m.Value), uint8(m.Value)}
			if m.Mask != nil {
				flags.Mask = uint8(*m.Mask)
			}
			if m.Value < 0 || m.Value > 255 || m.Mask != nil && (*m.Mask < 0 || *m.Mask > 255) {
				return fmt.Errorf("%s.tcp.flags: value and mask are numbers from 0 to 255", field)
			}
			f.Flags = append(f.Flags, flags)
		}
	case h.UDP != nil:
		port(&f.SourcePort, h.UDP.SrcPort, "udp.srcPort")
		port(&f.DestinationPort, h.UDP.DstPort, "udp.dstPort")
	case h.ICMP != nil:
		for _, m := range h.ICMP.Messages {
			message, e := f.messageOf(m)
			if e != nil {
				return fmt.Errorf("%s.icmp.messages: %w", field, e)
			}
			f.Messages = append(f.Messages, message)
		}
	}
	if len(f.Flags) > maxAlternatives || len(f.Messages) > maxAlternatives {
		return fmt.Errorf("%s: there are more than %d alternatives", field, maxAlternatives)
	}
	return err
}

// maxAlternatives bounds flags and messages.
const maxAlternatives = 32

func (f *Filter) messageOf(m crdv1alpha1.ICMPMsgMatcher) (Message, error) {
	out := Message{Code: -1}
	if m.Type.Type == intstr.Int {
		if m.Type.IntVal < 0 || m.Type.IntVal > 255 {
			return Message{}, fmt.Errorf("type %d: write a number from 0 to 255", m.Type.IntVal)
		}
		out.Type = uint8(m.Type.IntVal)
	} else {
		types, ok := messageTypes[m.Type.StrVal]
		if !ok {
			return Message{}, fmt.Errorf("type %q: write a number, or icmp-echo, icmp-echoreply, icmp-unreach or icmp-timxceed",
				m.Type.StrVal)
		}
		out.Type = types[0]
		if f.Six {
			out.Type = types[1]
		}
	}
	if m.Code != nil {
		if *m.Code < 0 || *m.Code > 255 {
			return Message{}, fmt.Errorf("code %d: write a number from 0 to 255", *m.Code)
		}
		out.Code = int(*m.Code)
	}
	return out, nil
}

package traceflow

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

// Numbers of protocols (IANA).
const (
	numberICMP   = 1
	numberTCP    = 6
	numberUDP    = 17
	numberICMPv6 = 58
)

const (
	synFlag      = 2 // of TCP
	dontFragment = 2 // of IPv4
)

// QuestionOf returns the question that a spec asks. An error names the field and the remedy.
func QuestionOf(s *crdv1beta1.TraceflowSpec) (q follow.Question, err error) {
	q.Traceflow = true
	if s.DroppedOnly && !s.LiveTraffic {
		return q, fmt.Errorf("spec.droppedOnly: it is for spec.liveTraffic: remove it, or set spec.liveTraffic too")
	}
	src, dst := s.Source, s.Destination
	if !s.LiveTraffic || src.Pod+src.IP != "" {
		if q.From, err = end("spec.source", src.Namespace, [][2]string{{"pod", src.Pod}}, src.IP); err != nil {
			return q, err
		}
	}
	if !s.LiveTraffic || dst.Pod+dst.Service+dst.IP != "" {
		if q.To, err = end("spec.destination", dst.Namespace, [][2]string{{"pod", dst.Pod}, {"service", dst.Service}},
			dst.IP); err != nil {
			return q, err
		}
	}
	if s.LiveTraffic && src.Pod+dst.Pod == "" {
		return q, fmt.Errorf("spec: with liveTraffic one end has to be a Pod: write source.pod or destination.pod")
	}
	if err := packet(&s.Packet, &q); err != nil {
		return q, err
	}
	if s.LiveTraffic && (q.TTL != 0 || q.TCPFlags != 0 || q.Protocol == "icmp" && q.SrcPort != 0) {
		return q, fmt.Errorf("spec.packet: live traffic is not chosen by a TTL, a hop limit, an ICMP identifier, or flags " +
			"other than SYN: remove it")
	}
	return q, nil
}

// end returns an end in the form of follow.Question. The reference has to have a name or an address.
func end(field, namespace string, names [][2]string, ip string) (string, error) {
	text, fields := "", ""
	set := 0
	for _, n := range names {
		fields += "pod, "
		if n[1] != "" {
			text, set = n[0]+"/"+cmp.Or(namespace, "default")+"/"+n[1], set+1
		}
	}
	if ip != "" {
		a, err := netip.ParseAddr(ip)
		if err != nil || a.Zone() != "" {
			return "", fmt.Errorf("%s.ip: %q is no address of IPv4 or IPv6: correct it", field, ip)
		}
		text, set = a.Unmap().String(), set+1
	}
	if set != 1 {
		fields = "pod or ip"
		if len(names) > 1 {
			fields = "pod, service or ip"
		}
		return "", fmt.Errorf("%s: it has %d of %s: write one", field, set, fields)
	}
	return text, nil
}

// packet adds what a packet has to a question.
func packet(p *crdv1beta1.TraceflowPacket, q *follow.Question) error {
	number, field, ttl := int32(0), "spec.packet.ipHeader.protocol", int32(0)
	switch {
	case p.IPHeader != nil && p.IPv6Header != nil:
		return fmt.Errorf("spec.packet: it has ipHeader and ipv6Header: remove one")
	case p.IPHeader != nil:
		if p.IPHeader.Flags != 0 && p.IPHeader.Flags != dontFragment {
			return fmt.Errorf("spec.packet.ipHeader.flags: a fragment cannot be followed: remove it, or write 2 (do not " +
				"fragment), which packets have anyway")
		}
		q.Family, number, ttl = "ipv4", p.IPHeader.Protocol, p.IPHeader.TTL
	case p.IPv6Header != nil:
		field = "spec.packet.ipv6Header.nextHeader"
		q.Family, ttl = "ipv6", p.IPv6Header.HopLimit
		if p.IPv6Header.NextHeader != nil {
			number = *p.IPv6Header.NextHeader
		}
	}
	if ttl < 0 || ttl > 255 {
		return fmt.Errorf("spec.packet: the TTL %d is not from 0 to 255: correct it", ttl)
	}
	q.TTL = uint8(ttl)
	switch number {
	case 0: // the transport header's
	case numberTCP:
		q.Protocol = "tcp"
	case numberUDP:
		q.Protocol = "udp"
	case numberICMP, numberICMPv6:
		q.Protocol = "icmp"
	default:
		return fmt.Errorf("%s: %d: packets of TCP (6), UDP (17) and ICMP (1, 58) can be followed", field, number)
	}
	return transport(&p.TransportHeader, field, q)
}

// transport adds the header after that of IP to a question.
func transport(h *crdv1beta1.TraceflowTransportHeader, field string, q *follow.Question) error {
	protocol, source, port := "", int32(0), int32(0)
	set := 0
	if h.TCP != nil {
		protocol, source, port, set = "tcp", h.TCP.SrcPort, h.TCP.DstPort, set+1
		if f := h.TCP.Flags; f != nil && *f != synFlag {
			if *f < 1 || *f > 255 {
				return fmt.Errorf("spec.packet.transportHeader.tcp.flags: %d is not from 1 to 255: correct it, or remove it for 2 "+
					"(SYN)", *f)
			}
			q.TCPFlags = uint8(*f)
		}
	}
	if h.UDP != nil {
		protocol, source, port, set = "udp", h.UDP.SrcPort, h.UDP.DstPort, set+1
	}
	if h.ICMP != nil {
		protocol, source, set = "icmp", h.ICMP.ID, set+1
	}
	switch {
	case set > 1:
		return fmt.Errorf("spec.packet.transportHeader: it has %d of tcp, udp and icmp: write one", set)
	case set == 1 && q.Protocol != "" && q.Protocol != protocol:
		return fmt.Errorf("spec.packet.transportHeader.%s: %s asks for %s: correct one of them", protocol, field, q.Protocol)
	case source < 0 || source > 65535 || port < 0 || port > 65535:
		return fmt.Errorf("spec.packet.transportHeader.%s: a port is not from 0 to 65535: correct it", protocol)
	}
	q.Protocol, q.SrcPort = cmp.Or(q.Protocol, protocol), uint16(source)
	if port != 0 {
		q.Port = strconv.Itoa(int(port))
	}
	return nil
}

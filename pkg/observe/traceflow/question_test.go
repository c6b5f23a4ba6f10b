package traceflow

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

// TestQuestionOf reads specs: what they ask, and what is wrong with them.
func TestQuestionOf(t *testing.T) {
	from, to := crdv1beta1.TraceflowSource{Namespace: "shop", Pod: "web"},
		crdv1beta1.TraceflowDestination{Namespace: "shop", Pod: "db"}
	sent := func(p crdv1beta1.TraceflowPacket) crdv1beta1.TraceflowSpec {
		return crdv1beta1.TraceflowSpec{Source: from, Destination: to, Packet: p}
	}
	over := func(h crdv1beta1.TraceflowTransportHeader) crdv1beta1.TraceflowSpec {
		return sent(crdv1beta1.TraceflowPacket{TransportHeader: h})
	}
	for _, row := range []struct {
		name string
		spec crdv1beta1.TraceflowSpec
		want follow.Question
		err  string
	}{
		{name: "echo request", spec: crdv1beta1.TraceflowSpec{Source: from, Destination: to},
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db"}},
		{name: "the documented TCP packet", spec: sent(crdv1beta1.TraceflowPacket{
			IPHeader: &crdv1beta1.IPHeader{Protocol: 6}, TransportHeader: crdv1beta1.TraceflowTransportHeader{
				TCP: &crdv1beta1.TCPHeader{SrcPort: 10000, DstPort: 80, Flags: ptr.To[int32](2)}}}),
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db", Family: "ipv4", Protocol: "tcp", Port: "80",
				SrcPort: 10000}},
		{name: "IPv6", spec: sent(crdv1beta1.TraceflowPacket{
			IPv6Header: &crdv1beta1.IPv6Header{NextHeader: ptr.To[int32](58), HopLimit: 7}}),
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db", Family: "ipv6", Protocol: "icmp", TTL: 7}},
		{name: "UDP by its header", spec: over(crdv1beta1.TraceflowTransportHeader{UDP: &crdv1beta1.UDPHeader{DstPort: 53}}),
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db", Protocol: "udp", Port: "53"}},
		{name: "identifier of an echo request", spec: over(crdv1beta1.TraceflowTransportHeader{
			ICMP: &crdv1beta1.ICMPEchoRequestHeader{ID: 99}}),
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db", Protocol: "icmp", SrcPort: 99}},
		{name: "Service, from an address", spec: crdv1beta1.TraceflowSpec{
			Source:      crdv1beta1.TraceflowSource{IP: "10.1.0.5"},
			Destination: crdv1beta1.TraceflowDestination{Service: "db"}},
			want: follow.Question{From: "10.1.0.5", To: "service/default/db"}},
		{name: "address", spec: crdv1beta1.TraceflowSpec{Source: from,
			Destination: crdv1beta1.TraceflowDestination{IP: "::ffff:192.0.2.9"}},
			want: follow.Question{From: "pod/shop/web", To: "192.0.2.9"}},

		{name: "no source", spec: crdv1beta1.TraceflowSpec{Destination: to}, err: "spec.source: it has 0 of pod or ip"},
		{name: "two destinations", spec: crdv1beta1.TraceflowSpec{Source: from,
			Destination: crdv1beta1.TraceflowDestination{Pod: "db", Service: "db"}},
			err: "spec.destination: it has 2 of pod, service or ip: write one"},
		{name: "no address", spec: crdv1beta1.TraceflowSpec{Source: from,
			Destination: crdv1beta1.TraceflowDestination{IP: "db"}}, err: `spec.destination.ip: "db" is no address`},
		{name: "with a zone", spec: crdv1beta1.TraceflowSpec{Source: from,
			Destination: crdv1beta1.TraceflowDestination{IP: "fe80::1%eth0"}}, err: "spec.destination.ip"},
		{name: "live, from anywhere", spec: crdv1beta1.TraceflowSpec{Destination: to, LiveTraffic: true, DroppedOnly: true},
			want: follow.Question{To: "pod/shop/db"}},
		{name: "live, with a TTL", spec: crdv1beta1.TraceflowSpec{Source: from, LiveTraffic: true,
			Packet: crdv1beta1.TraceflowPacket{IPHeader: &crdv1beta1.IPHeader{TTL: 3}}},
			err: "spec.packet: live traffic is not chosen by a TTL"},
		{name: "live, of no Pod", spec: crdv1beta1.TraceflowSpec{LiveTraffic: true,
			Destination: crdv1beta1.TraceflowDestination{Service: "db"}}, err: "spec: with liveTraffic one end has to be a Pod"},
		{name: "live, to two", spec: crdv1beta1.TraceflowSpec{Source: from, LiveTraffic: true,
			Destination: crdv1beta1.TraceflowDestination{Service: "db", IP: "10.0.0.1"}}, err: "spec.destination: it has 2"},
		{name: "dropped", spec: crdv1beta1.TraceflowSpec{Source: from, Destination: to, DroppedOnly: true},
			err: "spec.droppedOnly: it is for spec.liveTraffic"},
		{name: "both versions", spec: sent(crdv1beta1.TraceflowPacket{IPHeader: &crdv1beta1.IPHeader{},
			IPv6Header: &crdv1beta1.IPv6Header{}}), err: "remove one"},
		{name: "do not fragment", spec: sent(crdv1beta1.TraceflowPacket{IPHeader: &crdv1beta1.IPHeader{Flags: 2}}),
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db", Family: "ipv4"}},
		{name: "a fragment", spec: sent(crdv1beta1.TraceflowPacket{IPHeader: &crdv1beta1.IPHeader{Flags: 1}}),
			err: "spec.packet.ipHeader.flags"},
		{name: "SCTP", spec: sent(crdv1beta1.TraceflowPacket{IPHeader: &crdv1beta1.IPHeader{Protocol: 132}}),
			err: "spec.packet.ipHeader.protocol: 132: packets of TCP (6)"},
		{name: "ACK", spec: over(crdv1beta1.TraceflowTransportHeader{TCP: &crdv1beta1.TCPHeader{Flags: ptr.To[int32](16)}}),
			want: follow.Question{From: "pod/shop/web", To: "pod/shop/db", Protocol: "tcp", TCPFlags: 16}},
		{name: "no flags of TCP", spec: over(crdv1beta1.TraceflowTransportHeader{
			TCP: &crdv1beta1.TCPHeader{Flags: ptr.To[int32](0)}}), err: "spec.packet.transportHeader.tcp.flags"},
		{name: "live, with ACK", spec: crdv1beta1.TraceflowSpec{Source: from, LiveTraffic: true,
			Packet: crdv1beta1.TraceflowPacket{TransportHeader: crdv1beta1.TraceflowTransportHeader{
				TCP: &crdv1beta1.TCPHeader{Flags: ptr.To[int32](16)}}}}, err: "flags other than SYN"},
		{name: "two headers", spec: over(crdv1beta1.TraceflowTransportHeader{TCP: &crdv1beta1.TCPHeader{},
			UDP: &crdv1beta1.UDPHeader{}}), err: "it has 2 of tcp, udp and icmp"},
		{name: "headers that differ", spec: sent(crdv1beta1.TraceflowPacket{
			IPHeader:        &crdv1beta1.IPHeader{Protocol: 17},
			TransportHeader: crdv1beta1.TraceflowTransportHeader{TCP: &crdv1beta1.TCPHeader{}}}),
			err: "spec.packet.transportHeader.tcp: spec.packet.ipHeader.protocol asks for udp: correct one of them"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.want.Traceflow = true
			have, err := QuestionOf(&row.spec)
			switch {
			case row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)):
				t.Errorf("have %v, want an error with %q", err, row.err)
			case row.err == "" && (err != nil || have != row.want):
				t.Errorf("have %+v, %v, want %+v", have, err, row.want)
			}
		})
	}
}

package capture

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
)

// TestFilterOf makes filters of specs.
func TestFilterOf(t *testing.T) {
	four, other4 := netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("10.10.0.3")
	six, other6 := netip.MustParseAddr("fd10::2"), netip.MustParseAddr("fd10::3")
	for _, row := range []struct {
		name, spec string
		ends       Ends
		want       Filter
		err        string
	}{
		{name: "nothing but a source", spec: `{}`, ends: Ends{Source: []netip.Addr{four, six}},
			want: Filter{Forward: true, Source: four, Protocol: -1}},
		{name: "the only version in common", spec: `{}`, ends: Ends{[]netip.Addr{four, six}, []netip.Addr{other6}},
			want: Filter{Six: true, Forward: true, Source: six, Destination: other6, Protocol: -1}},
		{name: "stated version", spec: `{packet: {ipFamily: IPv6, protocol: icmp}}`,
			ends: Ends{[]netip.Addr{four, six}, []netip.Addr{other4, other6}},
			want: Filter{Six: true, Forward: true, Source: six, Destination: other6, Protocol: icmp6}},
		{name: "no version in common", spec: `{}`, ends: Ends{[]netip.Addr{four}, []netip.Addr{other6}},
			err: "no version of IP in common"},
		{name: "a version that one lacks", spec: `{packet: {ipFamily: IPv6}}`, ends: Ends{Source: []netip.Addr{four}},
			err: "spec.packet.ipFamily IPv6"},
		{name: "tcp", spec: `{direction: Both, packet: {protocol: TCP, transportHeader: {tcp: {srcPort: 1, dstPort: 80,
			flags: [{value: 2}, {value: 16, mask: 18}]}}}}`, ends: Ends{Destination: []netip.Addr{other4}},
			want: Filter{Forward: true, Backward: true, Destination: other4, Protocol: tcp, SourcePort: 1, DestinationPort: 80,
				Flags: []Flags{{2, 2}, {16, 18}}}},
		{name: "a header says the protocol", spec: `{direction: DestinationToSource,
			packet: {transportHeader: {udp: {dstPort: 53}}}}`, ends: Ends{Source: []netip.Addr{four}},
			want: Filter{Backward: true, Source: four, Protocol: udp, DestinationPort: 53}},
		{name: "icmp messages", spec: `{packet: {transportHeader: {icmp: {messages: [{type: icmp-unreach, code: 1},
			{type: 0}]}}}}`, ends: Ends{Source: []netip.Addr{four}},
			want: Filter{Forward: true, Source: four, Protocol: icmp, Messages: []Message{{3, 1}, {0, -1}}}},
		{name: "icmpv6 messages", spec: `{packet: {protocol: 58, transportHeader: {icmp: {messages: [{type: icmp-echo}]}}}}`,
			ends: Ends{Source: []netip.Addr{six}},
			want: Filter{Six: true, Forward: true, Source: six, Protocol: icmp6, Messages: []Message{{128, -1}}}},
		{name: "a number", spec: `{packet: {protocol: 132}}`, ends: Ends{Source: []netip.Addr{four}},
			want: Filter{Forward: true, Source: four, Protocol: 132}},
		{name: "no protocol", spec: `{packet: {protocol: http}}`, err: `spec.packet.protocol "http"`},
		{name: "no number of a protocol", spec: `{packet: {protocol: 256}}`, err: "spec.packet.protocol 256"},
		{name: "no direction", spec: `{direction: Up}`, err: `spec.direction "Up"`},
		{name: "no version", spec: `{packet: {ipFamily: IPX}}`, err: `spec.packet.ipFamily "IPX"`},
		{name: "another protocol's header", spec: `{packet: {protocol: UDP, transportHeader: {tcp: {dstPort: 80}}}}`,
			err: "transportHeader.tcp does not go with the protocol"},
		{name: "no port", spec: `{packet: {transportHeader: {udp: {dstPort: 70000}}}}`, err: "udp.dstPort: 70000 is no port"},
		{name: "no message", spec: `{packet: {transportHeader: {icmp: {messages: [{type: ping}]}}}}`, err: `type "ping"`},
		{name: "no code", spec: `{packet: {transportHeader: {icmp: {messages: [{type: 3, code: -1}]}}}}`, err: "code -1"},
		{name: "no flags", spec: `{packet: {transportHeader: {tcp: {flags: [{value: 256}]}}}}`, err: "from 0 to 255"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var spec crdv1alpha1.PacketCaptureSpec
			if err := yaml.Unmarshal([]byte(row.spec), &spec); err != nil {
				t.Fatal(err)
			}
			have, err := FilterOf(&spec, row.ends)
			switch {
			case row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)):
				t.Errorf("error %v, want %q", err, row.err)
			case row.err == "" && (err != nil || !reflect.DeepEqual(have, row.want)):
				t.Errorf("%+v, %v; want %+v", have, err, row.want)
			}
		})
	}
}

// FuzzFilterOf makes a program of any packet, or an error.
func FuzzFilterOf(f *testing.F) {
	f.Add("TCP", int32(6), int32(80), int32(2), "icmp-echo", int32(3), "Both", true)
	f.Fuzz(func(t *testing.T, protocol string, number, port, value int32, kind string, code int32, direction string,
		text bool) {
		is := intstr.FromInt32(number)
		if text {
			is = intstr.FromString(protocol)
		}
		spec := &crdv1alpha1.PacketCaptureSpec{Direction: crdv1alpha1.PacketCaptureDirection(direction),
			Packet: &crdv1alpha1.Packet{Protocol: &is}}
		switch number & 3 {
		case 0:
			spec.Packet.TransportHeader.TCP = &crdv1alpha1.TCPHeader{SrcPort: &port,
				Flags: []crdv1alpha1.TCPFlagsMatcher{{Value: value, Mask: &code}}}
		case 1:
			spec.Packet.TransportHeader.UDP = &crdv1alpha1.UDPHeader{DstPort: &port}
		case 2:
			spec.Packet.TransportHeader.ICMP = &crdv1alpha1.ICMPHeader{
				Messages: []crdv1alpha1.ICMPMsgMatcher{{Type: intstr.FromString(kind), Code: &code}}}
		}
		filter, err := FilterOf(spec, Ends{Source: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		if err != nil {
			return
		}
		if _, err := filter.Program(); err != nil {
			t.Errorf("%+v: %v", filter, err)
		}
	})
}

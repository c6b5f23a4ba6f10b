package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// hostile is a packet of a sender that may not send it, or that tries to reach more than it may.
type hostile struct {
	name string
	// at is where the packet comes in: a Node of east, then
	//	pod1, pod2, host
	//	node      from the other Node's Pod through the tunnel
	//	gateway   from the peer west through the tunnel of this cluster's Gateway
	//	peer      from the peer west through its own tunnel
	// The Node "shared" is east2 with Pod-to-Pod connectivity, "second" is east2 with a second gateway address, and
	// "dual1" is east1 with IPv6 too.
	at   string
	to   string // 10.11.0.3:80 where empty
	udp  bool
	edit func(*oftest.Packet)
	// after is a packet of a connection that is known when the hostile one comes.
	after *hostile
	ct    string // state in connection tracking; empty means "new"
	want  string
}

var (
	stranger  = addrOf("192.0.2.66")
	broadcast = ofp.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

func arpOf(p *oftest.Packet, a oftest.ARP) { p.ARP = &a }

// neighbor turns the packet into one of Neighbor Discovery.
func neighbor(p *oftest.Packet, message oftest.Packet) {
	message.InPort = p.InPort
	if message.EthSrc == (ofp.MAC{}) {
		message.EthSrc = p.EthSrc
	}
	*p = message
}

// announce returns a message of Neighbor Discovery to hosts that have not asked for it.
func announce(kind uint8, from, to, target netip.Addr) oftest.Packet {
	p := oftest.Packet{EthDst: allNodesMAC, IPSrc: from, IPDst: to, Proto: oftest.ICMPv6,
		ICMP: oftest.ICMPMessage{Type: kind}, TTL: 255}
	if kind == flow.NeighborAdvertisement {
		p.ND = &oftest.ND{Target: target, Flags: asRouter, Option: flow.NDTargetOption, Link: podMACOne}
	}
	return p
}

// errorAbout turns the packet into an ICMP error to the sender of another one.
func errorAbout(p *oftest.Packet, inner oftest.Packet) {
	p.Proto, p.Inner, p.IPDst = oftest.ICMP, &inner, inner.IPSrc
}

// hostilePackets are packets from places where they must not come from, with their expected end.
var hostilePackets = []hostile{
	// These come from a Pod, and concern its identity.
	{name: "Pod with its own addresses", at: "east1 pod1", want: "to pod2"},
	{name: "Pod with another Pod's address", at: "east1 pod1",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.0.3") }, want: "dropped in Classify"},
	{name: "Pod with another Pod's MAC", at: "east1 pod1", edit: func(p *oftest.Packet) { p.EthSrc = podMACTwo },
		want: "dropped in Classify"},
	{name: "Pod with the host's MAC", at: "east1 pod1", edit: func(p *oftest.Packet) { p.EthSrc = gwMAC },
		want: "dropped in Classify"},
	{name: "Pod with a multicast MAC as its own", at: "east1 pod1", edit: func(p *oftest.Packet) { p.EthSrc = broadcast },
		want: "dropped in Classify"},
	{name: "Pod with the host's address", at: "east1 pod1", edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.0.1") },
		want: "dropped in Classify"},
	{name: "Pod with an address of the Service range", at: "east1 pod1",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.97.0.10") }, want: "dropped in Classify"},
	{name: "Pod with the Service address 169.254.0.253", at: "east1 pod1", edit: func(p *oftest.Packet) { p.IPSrc = vip },
		want: "dropped in Classify"},
	{name: "Pod with a link-local address", at: "east1 pod1",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("169.254.1.1") }, want: "dropped in Classify"},
	{name: "Pod with no address yet", at: "east1 pod1", to: "255.255.255.255:67", udp: true,
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("0.0.0.0") }, want: "dropped in Classify"},
	{name: "Pod with a peer's gateway address", at: "east1 pod1", edit: func(p *oftest.Packet) { p.IPSrc = westGW },
		want: "dropped in Classify"},
	{name: "Pod with the cross-cluster MAC as destination is an ordinary packet", at: "east1 pod1",
		edit: func(p *oftest.Packet) { p.EthDst = CrossClusterMAC }, want: "to pod2"},
	{name: "Pod by IPv6, which it has no address of", at: "east1 pod1", edit: func(p *oftest.Packet) {
		p.IPSrc, p.IPDst = addrOf("fd00::2"), addrOf("fd00::3")
	}, want: "dropped in Classify"},
	{name: "Pod to all IPv6 routers", at: "east1 pod1", edit: func(p *oftest.Packet) {
		p.IPSrc, p.IPDst = addrOf("fe80::2"), addrOf("ff02::2")
	}, want: "dropped in Classify"},
	{name: "Pod with a VLAN tag", at: "east1 pod1", edit: func(p *oftest.Packet) { p.VLAN = 0x1064 },
		want: "dropped in Classify"},
	{name: "Pod with a priority tag of VLAN 0", at: "east1 pod1", edit: func(p *oftest.Packet) { p.VLAN = 0xf000 },
		want: "dropped in Classify"},
	{name: "host with a VLAN tag", at: "east1 host", edit: func(p *oftest.Packet) { p.VLAN = 0x1064 },
		want: "dropped in Classify"},
	{name: "Pod with a VLAN tag around ARP", at: "east1 pod1", edit: func(p *oftest.Packet) {
		p.VLAN = 0x1064
		arpOf(p, oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.1")})
	}, want: "dropped in Classify"},

	// From a Pod: ARP.
	{name: "Pod asks for the host", at: "east1 pod1", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.1")})
	}, want: "back"},
	{name: "Pod asks in another Pod's name", at: "east1 pod1", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("10.11.0.3"), TPA: addrOf("10.11.0.1")})
	}, want: "dropped in Classify"},
	{name: "Pod asks with another Pod's MAC inside", at: "east1 pod1", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 1, SHA: podMACTwo, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.1")})
	}, want: "dropped in Classify"},
	{name: "Pod asks with another Pod's MAC outside", at: "east1 pod1", edit: func(p *oftest.Packet) {
		p.EthSrc = podMACTwo
		arpOf(p, oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.1")})
	}, want: "dropped in Classify"},
	{name: "Pod says that it has the host's address", at: "east1 pod1", edit: func(p *oftest.Packet) {
		p.EthDst = broadcast
		arpOf(p, oftest.ARP{Op: 2, SHA: podMACOne, SPA: addrOf("10.11.0.1"), TPA: addrOf("10.11.0.1")})
	}, want: "dropped in Classify"},
	{name: "Pod announces its own address, which nobody needs", at: "east1 pod1", edit: func(p *oftest.Packet) {
		p.EthDst = broadcast
		arpOf(p, oftest.ARP{Op: 2, SHA: podMACOne, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.2")})
	}, want: "dropped in ARP"},
	{name: "Pod asks for an address that nobody has", at: "east1 pod1", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.99")})
	}, want: "dropped in ARP"},
	{name: "Pod asks whether an address is free (RFC 5227), before it has it", at: "east1 pod1",
		edit: func(p *oftest.Packet) {
			arpOf(p, oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("0.0.0.0"), TPA: addrOf("10.11.0.3")})
		}, want: "dropped in Classify"},
	{name: "host says that it has a Pod's address", at: "east1 host", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 2, SHA: gwMAC, SPA: addrOf("10.11.0.2"), TPA: addrOf("10.11.0.3")})
	}, want: "dropped in ARP"},
	{name: "ARP by the tunnel", at: "east1 node", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 1, SHA: gwMAC, SPA: addrOf("10.11.1.2"), TPA: addrOf("10.11.0.2")})
	}, want: "dropped in Classify"},

	// From a Pod: where to.
	{name: "Pod to itself", at: "east1 pod1", to: "10.11.0.2:80", want: "back"},
	{name: "Pod to loopback of its host", at: "east1 pod1", to: "127.0.0.1:10250", want: "dropped in Route"},
	{name: "Pod to this network", at: "east1 pod1", to: "0.0.0.0:22", want: "dropped in Route"},
	{name: "Pod to everybody", at: "east1 pod1", to: "255.255.255.255:67", udp: true, want: "dropped in Route"},
	{name: "Pod to everybody of its range", at: "east1 pod1", to: "10.11.0.255:67", udp: true, want: "dropped in Route"},
	{name: "Pod to a multicast group", at: "east1 pod1", to: "224.0.0.251:5353", udp: true, want: "dropped in Route"},
	{name: "Pod to the Service address itself", at: "east1 pod1", to: "169.254.0.253:80", want: "dropped in Route"},
	{name: "Pod to a cloud's metadata, by the host", at: "east1 pod1", to: "169.254.169.254:80", want: "to host"},
	{name: "Pod to its Node's tunnel port", at: "east1 pod1", to: "192.168.78.101:6081",
		udp: true, want: "dropped in Route"},
	{name: "Pod to another Node's tunnel port", at: "east1 pod1", to: "192.168.78.102:6081",
		udp: true, want: "dropped in Route"},
	{name: "Pod to the tunnel port of a peer's gateway", at: "east1 pod1", to: "192.168.77.101:6081",
		udp: true, want: "dropped in Route"},
	{name: "Pod to another Node's tunnel port by a Service", at: "east1 pod1", to: "10.97.0.66:53",
		udp: true, want: "dropped in Route"},
	{name: "peer to a Node's tunnel port by an exported Service", at: "east2 peer",
		to: "10.97.0.66:53", udp: true, want: "dropped in Route"},
	{name: "Pod to another Node's tunnel port, first fragment", at: "east1 pod1", to: "192.168.78.102:6081",
		udp: true, edit: func(p *oftest.Packet) { p.Fragment = oftest.First }, want: "dropped in Route"},
	{name: "its later fragment", at: "east1 pod1", to: "192.168.78.102:6081", udp: true,
		edit: func(p *oftest.Packet) { p.Fragment = oftest.Later }, want: "dropped in Route"},
	{name: "fragment of a reply to a Node", at: "east1 pod1", to: "192.168.78.101:40000", udp: true, ct: "est,rpl",
		after: &hostile{at: "east1 host", to: "10.11.0.2:53", udp: true, edit: func(p *oftest.Packet) { p.IPSrc = eastOne }},
		edit: func(p *oftest.Packet) {
			p.Fragment, p.SrcPort = oftest.First, 53
		}, want: "to host"},
	{name: "Pod to the same port with TCP, which is no tunnel", at: "east1 pod1", to: "192.168.78.102:6081",
		want: "to host"},
	{name: "Pod to another port of a Node", at: "east1 pod1", to: "192.168.78.102:53", udp: true, want: "to host"},

	// Fragments, TTL and errors of Pods.
	{name: "first fragment to a Pod", at: "east1 pod1", udp: true,
		edit: func(p *oftest.Packet) { p.Fragment = oftest.First }, want: "to pod2"},
	{name: "later fragment to a Pod", at: "east1 pod1", udp: true,
		edit: func(p *oftest.Packet) { p.Fragment = oftest.Later }, want: "to pod2"},
	{name: "later fragment with another Pod's address", at: "east1 pod1", udp: true, edit: func(p *oftest.Packet) {
		p.Fragment, p.IPSrc = oftest.Later, addrOf("10.11.0.3")
	}, want: "dropped in Classify"},
	{name: "TTL 1 to a Pod of this Node, which is no hop away", at: "east1 pod1",
		edit: func(p *oftest.Packet) { p.TTL = 1 }, want: "to pod2"},
	{name: "TTL 1 to a Pod of another Node", at: "east1 pod1", to: "10.11.1.2:80",
		edit: func(p *oftest.Packet) { p.TTL = 1 }, want: "dropped in Output"},
	{name: "TTL 0 to a Pod of another Node", at: "east1 pod1", to: "10.11.1.2:80",
		edit: func(p *oftest.Packet) { p.Expired = true }, want: "dropped in Output"},
	{name: "TTL 2 to a Pod of another Node", at: "east1 pod1", to: "10.11.1.2:80",
		edit: func(p *oftest.Packet) { p.TTL = 2 }, want: "to tunnel 192.168.78.102"},
	{name: "TTL 1 at the Gateway on its way to another cluster", at: "east2 node", to: "10.96.0.20:80",
		edit: func(p *oftest.Packet) { p.TTL, p.EthDst = 1, CrossClusterMAC }, want: "dropped in Output"},
	{name: "ICMP error about nothing", at: "east1 pod1", ct: "inv", edit: func(p *oftest.Packet) {
		inner := oftest.Packet{IPSrc: addrOf("10.11.0.3"), IPDst: addrOf("10.11.1.2"),
			Proto: oftest.TCP, SrcPort: 1, DstPort: 2}
		errorAbout(p, inner)
	}, want: "dropped in ConntrackState"},
	{name: "ICMP error about a connection, to the one who has it", at: "east1 pod1",
		after: &hostile{at: "east1 pod2", to: "10.11.0.2:80"}, ct: "rel,rpl", edit: func(p *oftest.Packet) {
			inner := oftest.Packet{IPSrc: addrOf("10.11.0.3"), IPDst: addrOf("10.11.0.2"),
				Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
			errorAbout(p, inner)
		}, want: "to pod2"},
	{name: "ICMP error about a connection, to somebody else", at: "east1 pod1",
		after: &hostile{at: "east1 pod2", to: "10.11.0.2:80"}, ct: "inv", edit: func(p *oftest.Packet) {
			inner := oftest.Packet{IPSrc: addrOf("10.11.0.3"), IPDst: addrOf("10.11.0.2"),
				Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
			errorAbout(p, inner)
			p.IPDst = addrOf("10.11.0.1")
		}, want: "dropped in ConntrackState"},
	{name: "ICMP error in another Pod's name", at: "east1 pod1", after: &hostile{at: "east1 pod2", to: "10.11.1.2:80"},
		ct: "rel,rpl", edit: func(p *oftest.Packet) {
			inner := oftest.Packet{IPSrc: addrOf("10.11.0.3"), IPDst: addrOf("10.11.1.2"),
				Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
			errorAbout(p, inner)
			p.IPSrc = addrOf("10.11.1.2")
		}, want: "dropped in Classify"},

	// By the tunnel of a Node.
	{name: "another Node's Pod", at: "east1 node", to: "10.11.0.2:80", want: "to pod1"},
	{name: "another Node's host", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.1.1") }, want: "to pod1"},
	{name: "another Node's host with the Node's own address", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = eastTwo }, want: "to pod1"},
	{name: "tunnel from an unknown address", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.TunSrc = stranger }, want: "dropped in Classify"},
	{name: "tunnel from a Pod's own address", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.TunSrc = addrOf("10.11.0.3") }, want: "dropped in Classify"},
	{name: "tunnel to another address of the Node", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.TunDst = addrOf("172.30.1.21") }, want: "dropped in Classify"},
	{name: "another Node with this Node's Pod", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.0.3") }, want: "dropped in Classify"},
	{name: "another Node with a third Node's Pod", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.7.2") }, want: "dropped in Classify"},
	{name: "another Node with an address of the Service range", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.97.0.10") }, want: "dropped in Classify"},
	{name: "another Node with an address of the world", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = stranger }, want: "dropped in Classify"},
	{name: "another Node with 169.254.0.253", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = vip }, want: "dropped in Classify"},
	{name: "another Node with a MAC that is neither of ours", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.EthDst = podMACOne }, want: "dropped in Classify"},
	{name: "another Node with a broadcast MAC", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.EthDst = broadcast }, want: "dropped in Classify"},
	{name: "another Node with a VLAN tag", at: "east1 node", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.VLAN = 0x1064 }, want: "dropped in Classify"},
	{name: "another Node by IPv6", at: "east1 node", edit: func(p *oftest.Packet) {
		p.IPSrc, p.IPDst = addrOf("fd00::2"),
			addrOf("fd00::3")
	}, want: "dropped in Classify"},
	{name: "another Node to the world", at: "east1 node", to: "192.0.2.1:80", want: "dropped in Route"},
	{name: "another Node to the API server's Service", at: "east1 node", to: "10.97.0.1:443", want: "dropped in Route"},
	{name: "later fragment of another Node's Pod", at: "east1 node", to: "10.11.0.2:80",
		udp: true, edit: func(p *oftest.Packet) { p.Fragment = oftest.Later }, want: "to pod1"},
	{name: "later fragment from an unknown address", at: "east1 node", to: "10.11.0.2:80", udp: true,
		edit: func(p *oftest.Packet) { p.Fragment, p.TunSrc = oftest.Later, stranger }, want: "dropped in Classify"},
	{name: "regular Node with the cross-cluster MAC: its source counts as ever", at: "east1 node",
		to: "10.11.0.2:80", edit: func(p *oftest.Packet) { p.EthDst = CrossClusterMAC }, want: "to pod1"},
	{name: "regular Node with the cross-cluster MAC in a peer's name", at: "east2 node", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.EthDst, p.IPSrc = CrossClusterMAC, westGW }, want: "dropped in Classify"},
	{name: "regular Node in a peer's Service's name", at: "east2 node", to: "10.11.1.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.96.0.20") }, want: "dropped in Classify"},

	// From other clusters, at a regular Node.
	{name: "peer's request by our Gateway", at: "east1 gateway", to: "10.11.0.2:8080", want: "to pod1"},
	{name: "peer's reply by our Gateway", at: "east1 gateway", to: "10.11.0.2:40000",
		edit: func(p *oftest.Packet) { p.IPSrc, p.SrcPort = addrOf("10.96.0.20"), 80 },
		ct:   "est,rpl", after: &hostile{at: "east1 pod1", to: "10.96.0.20:80"}, want: "to pod1"},
	{name: "address of no peer by our Gateway", at: "east1 gateway", to: "10.11.0.2:8080",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.99.0.20") }, want: "dropped in Classify"},
	{name: "peer straight to a regular Node", at: "east1 peer", to: "10.11.0.2:8080",
		edit: func(p *oftest.Packet) { p.TunDst = eastOne }, want: "dropped in Classify"},
	{name: "peer straight to a regular Node with the MAC of Nodes", at: "east1 peer", to: "10.11.0.2:8080",
		edit: func(p *oftest.Packet) { p.TunDst, p.EthDst = eastOne, InClusterMAC }, want: "dropped in Classify"},

	// From other clusters, at the Gateway.
	{name: "peer to an exported Service", at: "east2 peer", to: "10.97.0.11:80", want: "to pod1"},
	{name: "peer to another port of an exported Service", at: "east2 peer", to: "10.97.0.11:22",
		want: "dropped in Exports"},
	{name: "peer to an exported Service with another protocol", at: "east2 peer", to: "10.97.0.11:80",
		udp: true, want: "dropped in Exports"},
	{name: "peer to a Service that is not exported", at: "east2 peer", to: "10.97.0.12:53",
		udp: true, want: "dropped in Exports"},
	{name: "peer to an imported Service", at: "east2 peer", to: "10.97.0.14:80", want: "dropped in Exports"},
	{name: "peer to the endpoint of an exported Service", at: "east2 peer", to: "10.11.1.2:8080", want: "to pod1"},
	{name: "peer to the endpoint of an exported Service on another Node", at: "east2 peer",
		to: "10.11.0.2:8080", want: "to tunnel 192.168.78.101"},
	{name: "peer to an endpoint of an exported Service that this Node would not choose",
		at: "east2 peer", to: "10.11.0.3:9090", want: "to tunnel 192.168.78.101"},
	{name: "peer to another port of that Pod", at: "east2 peer", to: "10.11.1.2:22", want: "dropped in Exports"},
	{name: "peer to a Pod", at: "east2 peer", to: "10.11.1.3:80", want: "dropped in Exports"},
	{name: "peer to the host", at: "east2 peer", to: "10.11.1.1:10250", want: "dropped in Exports"},
	{name: "peer to the Gateway's own address", at: "east2 peer", to: "192.168.78.102:22", want: "dropped in Exports"},
	{name: "peer to the endpoint of an exported Service that is no Pod", at: "east2 peer",
		to: "172.30.1.10:6443", want: "dropped in Exports"},
	{name: "peer to the world", at: "east2 peer", to: "192.0.2.1:80", want: "dropped in Exports"},
	{name: "peer to another peer", at: "east2 peer", to: "10.98.0.20:80", want: "dropped in Exports"},
	{name: "peer to loopback", at: "east2 peer", to: "127.0.0.1:80", want: "dropped in Exports"},
	{name: "later fragment of a peer to a Pod", at: "east2 peer", to: "10.11.1.3:80",
		udp: true, edit: func(p *oftest.Packet) { p.Fragment = oftest.Later }, want: "dropped in Exports"},
	{name: "peer from an address it has not announced", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.TunSrc = stranger }, want: "dropped in Classify"},
	{name: "peer behind NAT, as the ClusterSet says", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.TunSrc = addrOf("203.0.113.9") }, want: "to pod1"},
	{name: "peer to another address of the Gateway", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.TunDst = addrOf("172.30.1.22") }, want: "dropped in Classify"},
	{name: "peer to the address that the Gateway announces", at: "second peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.TunDst = addrOf("198.51.100.2") }, want: "to pod1"},
	{name: "peer behind another's NAT", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.TunSrc, p.IPSrc = addrOf("203.0.113.9"), northGW }, want: "dropped in Classify"},
	{name: "peer with another peer's gateway address", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.IPSrc = northGW }, want: "dropped in Classify"},
	{name: "peer with another peer's Service address", at: "east2 peer", to: "10.11.1.2:8080",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.98.0.20") }, want: "dropped in Classify"},
	{name: "peer with an address of our Pods", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.0.2") }, want: "dropped in Classify"},
	{name: "peer with our Gateway's address", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.IPSrc = eastTwo }, want: "dropped in Classify"},
	{name: "peer with an address of our Service range", at: "east2 peer", to: "10.11.1.2:8080",
		edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.97.0.10") }, want: "dropped in Classify"},
	{name: "peer with the address of its client Pod, which it has to translate", at: "east2 peer",
		to: "10.97.0.11:80", edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.10.0.2") }, want: "dropped in Classify"},
	{name: "peer with the MAC of Nodes", at: "east2 peer", to: "10.97.0.11:80",
		edit: func(p *oftest.Packet) { p.EthDst = InClusterMAC }, want: "dropped in Classify"},
	{name: "peer with a VLAN tag", at: "east2 peer", to: "10.97.0.11:80", edit: func(p *oftest.Packet) { p.VLAN = 0x1064 },
		want: "dropped in Classify"},
	{name: "ARP of a peer", at: "east2 peer", edit: func(p *oftest.Packet) {
		arpOf(p, oftest.ARP{Op: 1, SHA: gwMAC, SPA: westGW, TPA: addrOf("10.11.1.2")})
	}, want: "dropped in Classify"},
	{name: "peer's error about nothing", at: "east2 peer", ct: "inv", edit: func(p *oftest.Packet) {
		inner := oftest.Packet{IPSrc: addrOf("10.11.1.3"), IPDst: addrOf("192.0.2.1"),
			Proto: oftest.TCP, SrcPort: 1, DstPort: 2}
		errorAbout(p, inner)
	}, want: "dropped in ConntrackState"},

	// With Pod-to-Pod connectivity.
	{name: "peer to a Pod that is shared", at: "shared peer", to: "10.11.1.3:80", want: "to pod2"},
	{name: "peer to a Pod of another Node that is shared", at: "shared peer", to: "10.11.0.3:80",
		want: "to tunnel 192.168.78.101"},
	{name: "ping of a peer to a Pod that is shared", at: "shared peer", to: "10.11.1.3:0",
		edit: func(p *oftest.Packet) { p.Proto, p.ICMP = oftest.ICMP, oftest.Echo }, want: "to pod2"},
	{name: "peer to the host where Pods are shared", at: "shared peer", to: "10.11.1.1:10250", want: "dropped in Exports"},
	{name: "peer to another Node's host where Pods are shared", at: "shared peer", to: "10.11.0.1:10250",
		want: "dropped in Exports"},
	{name: "peer to a Service that is not exported where Pods are shared", at: "shared peer",
		to: "10.97.0.12:53", udp: true, want: "dropped in Exports"},
	{name: "peer to the world where Pods are shared", at: "shared peer", to: "192.0.2.1:80", want: "dropped in Exports"},

	// From the host, which speaks for others.
	{name: "host to a Pod", at: "east1 host", to: "10.11.0.2:80", want: "to pod1"},
	{name: "machine outside, by the host", at: "east1 host", to: "10.11.0.2:80",
		edit: func(p *oftest.Packet) { p.IPSrc = stranger }, want: "to pod1"},
	{name: "machine outside to the world, by the host", at: "east1 host", to: "192.0.2.1:80",
		edit: func(p *oftest.Packet) { p.IPSrc = stranger }, want: "dropped in Route"},
	{name: "machine outside to another Node's tunnel port, by the host", at: "east1 host",
		to: "192.168.78.102:6081", udp: true, edit: func(p *oftest.Packet) { p.IPSrc = stranger }, want: "dropped in Route"},
	{name: "host to the Service address", at: "east1 host", to: "169.254.0.253:80", want: "dropped in Route"},
}

// hostilePackets6 are these packets of IPv6.
var hostilePackets6 = func() []hostile {
	one, two, gateway := addrOf("fd11::2"), addrOf("fd11::3"), addrOf("fd11::1")
	link, none := addrOf("fe80::2"), netip.IPv6Unspecified()
	from := func(a netip.Addr) func(*oftest.Packet) { return func(p *oftest.Packet) { p.IPSrc = a } }
	asks := func(mac ofp.MAC, from, target netip.Addr) func(*oftest.Packet) {
		return func(p *oftest.Packet) { neighbor(p, oftest.Solicit(mac, from, target)) }
	}
	sends := func(kind uint8, from, to, target netip.Addr) func(*oftest.Packet) {
		return func(p *oftest.Packet) { neighbor(p, announce(kind, from, to, target)) }
	}
	classify, route := "dropped in Classify", "dropped in Route"
	list := []hostile{
		{name: "Pod with its own address", to: "[fd11::3]:80", want: "to pod2"},
		{name: "Pod with another Pod's address", to: "[fd11::3]:80", edit: from(two), want: classify},
		{name: "Pod with the host's address", to: "[fd11::3]:80", edit: from(gateway), want: classify},
		{name: "Pod with another Pod's MAC", to: "[fd11::3]:80",
			edit: func(p *oftest.Packet) { p.EthSrc = podMACTwo }, want: classify},
		{name: "Pod with the Service address", to: "[fd11::3]:80", edit: from(vip6), want: classify},
		{name: "Pod with an address of its link", to: "[fd11::3]:80", edit: from(link), want: classify},
		{name: "Pod with no address yet", to: "[fd11::3]:80", edit: from(none), want: classify},
		{name: "Pod to an address of its link", to: "[fe80::3]:80", want: route},
		{name: "Pod to the host's own loopback", to: "[::1]:22", want: route},
		{name: "Pod to an IPv4 address in the form of IPv6", to: "[::ffff:10.11.0.3]:80", want: route},
		{name: "Pod to all hosts", to: "[ff02::1]:5353", udp: true, want: route},
		{name: "Pod to the Service address", to: "[fc01::aabb:ccdd:eeff]:80", want: route},
		{name: "Pod to another address of the switch", to: "[fc01::1]:80", want: route},
		{name: "host to the Service address", at: "dual1 host", to: "[fc01::aabb:ccdd:eeff]:80", want: route},
		{name: "machine outside to the world, by the host", at: "dual1 host", to: "[2001:db8::1]:80",
			edit: from(addrOf("2001:db8::66")), want: route},
		{name: "ping of a Pod", to: "[fd11::3]:0",
			edit: func(p *oftest.Packet) { p.Proto, p.ICMP = oftest.ICMPv6, oftest.EchoV6 }, want: "to pod2"},

		{name: "question of a Pod for another Pod", edit: asks(podMACOne, one, two), want: "back"},
		{name: "question of a Pod for its gateway", edit: asks(podMACOne, one, gateway), want: "back"},
		{name: "question of a Pod by its link's address", edit: asks(podMACOne, link, gateway), want: "back"},
		{name: "question of a Pod for another Pod's address, which it wants to have",
			edit: asks(podMACOne, none, two), want: "back"},
		{name: "question of a Pod whether its own address is free", edit: asks(podMACOne, none, one),
			want: "dropped in ARP"},
		{name: "question of a Pod for an address that no Pod has", edit: asks(podMACOne, one, addrOf("fd11::99")),
			want: "dropped in ARP"},
		{name: "question of a Pod with another Pod's address", edit: asks(podMACOne, two, gateway), want: classify},
		{name: "question of a Pod with another Pod's MAC", edit: asks(podMACTwo, one, gateway), want: classify},
		{name: "question that a router has passed on", edit: func(p *oftest.Packet) {
			asks(podMACOne, one, gateway)(p)
			p.TTL = 254
		}, want: classify},
		{name: "question of the host for a Pod", at: "dual1 host", edit: asks(gwMAC, gateway, one), want: "back"},
		{name: "question through the tunnel", at: "dual1 node", edit: func(p *oftest.Packet) {
			tunnel := *p
			asks(gwMAC, addrOf("fd11:0:0:1::2"), two)(p)
			p.TunSrc, p.TunDst, p.EthDst = tunnel.TunSrc, tunnel.TunDst, tunnel.EthDst
		}, want: classify},
	}
	report := func(p *oftest.Packet) { p.Proto, p.ICMP = oftest.ICMPv6, oftest.ICMPMessage{Type: 143} } // RFC 3810
	peer := addrOf("fd11:0:0:1::2")
	list = append(list, []hostile{
		{name: "question of a Pod for its gateway with another Pod's MAC inside, which is not used",
			edit: func(p *oftest.Packet) {
				asks(podMACOne, one, gateway)(p)
				p.ND.Option, p.ND.Link = flow.NDSourceOption, podMACTwo
			}, want: "back"},
		{name: "question with a code that does not exist", edit: func(p *oftest.Packet) {
			asks(podMACOne, one, gateway)(p)
			p.ICMP.Code, p.ND = 1, nil
		}, want: classify},
		{name: "question of a Pod for the next hop of the host", edit: asks(podMACOne, one, vip6), want: "back"},
		{name: "question of a Pod for an address of another Node's Pod", edit: asks(podMACOne, one, peer),
			want: "dropped in ARP"},
		{name: "question of the host for an address that no Pod has", at: "dual1 host",
			edit: asks(gwMAC, gateway, addrOf("fd11::99")), want: "dropped in ARP"},
		{name: "groups that a Pod listens to, from its link's address", to: "[ff02::16]:0",
			edit: func(p *oftest.Packet) {
				report(p)
				p.IPSrc = link
			}, want: classify},
		{name: "groups that a Pod listens to, from its own address", to: "[ff02::16]:0", edit: report,
			ct: "inv", want: "dropped in ConntrackState"},
		{name: "ping of all hosts", to: "[ff02::1]:0",
			edit: func(p *oftest.Packet) { p.Proto, p.ICMP = oftest.ICMPv6, oftest.EchoV6 }, want: route},
		{name: "first fragment to a Pod", to: "[fd11::3]:80", udp: true,
			edit: func(p *oftest.Packet) { p.Fragment = oftest.First }, want: "to pod2"},
		{name: "later fragment to a Pod", to: "[fd11::3]:80", udp: true,
			edit: func(p *oftest.Packet) { p.Fragment = oftest.Later }, want: "to pod2"},
		{name: "later fragment with another Pod's address", to: "[fd11::3]:80", udp: true,
			edit: func(p *oftest.Packet) { p.Fragment, p.IPSrc = oftest.Later, two }, want: classify},
		{name: "hop limit 1 to a Pod of another Node", to: "[fd11:0:0:1::2]:80",
			edit: func(p *oftest.Packet) { p.TTL = 1 }, want: "dropped in Output"},
		{name: "hop limit 2 to a Pod of another Node", to: "[fd11:0:0:1::2]:80",
			edit: func(p *oftest.Packet) { p.TTL = 2 }, want: "to tunnel 192.168.78.102"},

		{name: "another Node's Pod", at: "dual1 node", to: "[fd11::2]:80", edit: from(peer), want: "to pod1"},
		{name: "another Node's host", at: "dual1 node", to: "[fd11::2]:80", edit: from(addrOf("fd11:0:0:1::1")),
			want: "to pod1"},
		{name: "another Node with this Node's Pod", at: "dual1 node", to: "[fd11::2]:80", edit: from(two), want: classify},
		{name: "another Node with this Node's host", at: "dual1 node", to: "[fd11::2]:80", edit: from(gateway),
			want: classify},
		{name: "another Node with a third Node's Pod", at: "dual1 node", to: "[fd11::2]:80",
			edit: from(addrOf("fd11:0:0:7::2")), want: classify},
		{name: "another Node with an address of the Service range", at: "dual1 node", to: "[fd11::2]:80",
			edit: from(addrOf("fd97::10")), want: classify},
		{name: "another Node with the Service address", at: "dual1 node", to: "[fd11::2]:80", edit: from(vip6),
			want: classify},
		{name: "another Node with an address of its link", at: "dual1 node", to: "[fd11::2]:80", edit: from(link),
			want: classify},
		{name: "another Node with no address", at: "dual1 node", to: "[fd11::2]:80", edit: from(none), want: classify},
		{name: "another Node with an address of the world", at: "dual1 node", to: "[fd11::2]:80",
			edit: from(addrOf("2001:db8::66")), want: classify},
		{name: "tunnel from an unknown address", at: "dual1 node", to: "[fd11::2]:80", edit: func(p *oftest.Packet) {
			p.IPSrc, p.TunSrc = peer, stranger
		}, want: classify},
		{name: "another Node's Pod to all hosts", at: "dual1 node", to: "[ff02::1]:5353", udp: true, edit: from(peer),
			want: route},
	}...)
	for _, m := range []struct {
		name string
		kind uint8
	}{{"router", flow.RouterAdvertisement}, {"request for routers", flow.RouterSolicitation},
		{"neighbour", flow.NeighborAdvertisement}, {"better way", flow.Redirect}} {
		for _, a := range []struct {
			name     string
			from, to netip.Addr
		}{{"its own address to all", one, allNodes}, {"its link's address to all", link, allNodes},
			{"its own address to the host", one, gateway}, {"its link's address to a Pod", link, two}} {
			list = append(list, hostile{name: fmt.Sprintf("%s of a Pod, from %s", m.name, a.name),
				edit: sends(m.kind, a.from, a.to, gateway), want: classify})
		}
		list = append(list,
			hostile{name: m.name + " of the host, to a Pod", at: "dual1 host", edit: sends(m.kind, gateway, one, gateway),
				want: classify},
			hostile{name: m.name + " of another Node's Pod", at: "dual1 node", edit: func(p *oftest.Packet) {
				tunnel := *p
				sends(m.kind, peer, one, gateway)(p)
				p.TunSrc, p.TunDst = tunnel.TunSrc, tunnel.TunDst
			}, want: classify})
	}
	for i := range list {
		list[i].name = "IPv6: " + list[i].name
		if list[i].at == "" {
			list[i].at = "dual1 pod1"
		}
	}
	return list
}()

// hostileStates are the Nodes of these questions.
func hostileStates() map[string]State {
	states := map[string]State{"east1": onNode(1), "east2": onNode(2), "shared": onNode(2), "second": onNode(2),
		"dual1": dualNode(1)}
	second := states["second"]
	second.Peering.Part.End = addrOf("198.51.100.2")
	states["second"] = second
	for name, s := range states {
		// A Service whose endpoint is the end of a tunnel.
		s.Frontends = append(s.Frontends, frontend("tunnel", "UDP", "10.97.0.66:53", "192.168.78.102:6081"))
		s.Exported = exported("self", "web", "kubernetes", "tunnel", "headless")
		for i := range s.Peering.Peers {
			if s.Peering.Peers[i].ClusterID == "west" {
				s.Peering.Peers[i].Sources = []netip.Prefix{rangeOf("203.0.113.8/30")}
			}
		}
		s.PodToPod = name == "shared"
		states[name] = s
	}
	return states
}

// packet is the hostile packet as it comes in.
func (h hostile) packet(states map[string]State) oftest.Packet {
	node, place, _ := strings.Cut(h.at, " ")
	s := states[node]
	to := netip.MustParseAddrPort("10.11.0.3:80")
	if h.to != "" {
		to = netip.MustParseAddrPort(h.to)
	}
	p := oftest.Packet{EthSrc: gwMAC, EthDst: InClusterMAC, Proto: oftest.TCP, SrcPort: 40000,
		IPDst: to.Addr(), DstPort: to.Port(), InPort: tunnelPort, TunDst: s.Node.Tunnels.Ends[0]}
	if h.udp {
		p.Proto = oftest.UDP
	}
	switch place {
	case "pod1", "pod2":
		pod := s.Pods[int(place[3]-'1')]
		p.EthSrc, p.EthDst, p.IPSrc = pod.MAC, s.Node.GatewayMAC, ofFamily(pod.IPs, to.Addr())
		p.InPort, p.TunDst = pod.Port, netip.Addr{}
	case "host":
		p.IPSrc, p.InPort, p.TunDst = ofFamily(s.Node.GatewayIPs, to.Addr()), gatewayPort, netip.Addr{}
	case "node":
		p.TunSrc, p.IPSrc = s.RemoteNodes[0].Address, s.RemoteNodes[0].PodCIDRs[0].Addr().Next().Next()
	case "gateway":
		p.TunSrc, p.IPSrc = s.Peering.Part.Gateway.InternalIP, westGW
	case "peer":
		p.TunSrc, p.IPSrc, p.EthDst = westGW, westGW, CrossClusterMAC
	}
	if h.edit != nil {
		h.edit(&p)
	}
	return p
}

// TestHostilePackets asks the switch in memory.
func TestHostilePackets(t *testing.T) {
	for _, h := range slices.Concat(hostilePackets, hostilePackets6) {
		t.Run(h.name, func(t *testing.T) {
			states := hostileStates()
			node, _, _ := strings.Cut(h.at, " ")
			var entries []flow.Entries
			for _, e := range mustPlan(t, states[node]) {
				entries = append(entries, e)
			}
			s, err := oftest.New(Program, entries...)
			if err != nil {
				t.Fatal(err)
			}
			if h.after != nil {
				first := h.after.packet(states)
				r := s.Send(first)
				if r.Err != nil || len(r.Outputs) != 1 {
					t.Fatalf("the honest packet: %s", r)
				}
				if strings.HasPrefix(h.after.at, "east1 pod") && strings.Contains(h.ct, "est") {
					reply := r.Outputs[0].Packet.Reply()
					reply.InPort, reply.EthDst = tunnelPort, InClusterMAC
					reply.TunSrc, reply.TunDst = states[node].Peering.Part.Gateway.InternalIP, states[node].Node.Tunnels.Ends[0]
					s.Send(reply)
				}
			}
			r := s.Send(h.packet(states))
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			have := "dropped in " + r.Dropped
			if len(r.Outputs) == 1 {
				o := r.Outputs[0]
				have = place(o.Port, h.packet(states).InPort, o.Packet.TunDst.String())
			}
			if r.Controller {
				have = "to the agent"
			}
			if have != h.want {
				t.Errorf("%s, want %s", r, h.want)
			}
		})
	}
}

// place names a port through which a packet leaves.
func place(out, in ofp.Port, tunnel string) string {
	name := portName(out)
	switch {
	case out == in && out != tunnelPort:
		return "back"
	case out == tunnelPort:
		return "to tunnel " + tunnel
	case out == gatewayPort:
		return "to host"
	}
	return "to " + name
}

// TestHostilePacketsOnSwitch asks a real switch the same.
func TestHostilePacketsOnSwitch(t *testing.T) {
	o := dummyBridge(t)
	states := hostileStates()
	programmed := ""
	questions := slices.Concat(hostilePackets, hostilePackets6)
	slices.SortStableFunc(questions, func(a, b hostile) int { return strings.Compare(a.at[:5], b.at[:5]) })
	for _, h := range questions {
		t.Run(h.name, func(t *testing.T) {
			node, _, _ := strings.Cut(h.at, " ")
			if programmed != node {
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", o.dir+"/br-int.mgmt")
				o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", o.dir+"/br-int.mgmt")
				o.program(t, "br-int", setOf(t, mustPlan(t, states[node])))
				programmed = node
			}
			p := h.packet(states)
			ct := "trk,new"
			if h.ct != "" {
				ct = "trk," + h.ct
			}
			trace := o.appctl(t, "ofproto/trace", "br-int", traceText(p), "--ct-next", ct, "--ct-next", ct, "--ct-next", ct)
			out, err := appctl.ParseTrace(trace)
			if err != nil {
				t.Fatal(err)
			}
			have := "dropped in " + Program.Name(ofp.Table(out.Last().Table))
			switch _, taken := TakenAs(out.Userdata); {
			case taken:
				have = "to the agent"
			case out.Back:
				have = place(p.InPort, p.InPort, out.Fields["tun_dst"])
			case out.Output != 0:
				have = place(ofp.Port(out.Output), p.InPort, out.Fields["tun_dst"])
			}
			want := h.want
			if p.ND != nil && want == "back" && ovstest.System() {
				want = "to the agent"
			}
			if have != want {
				t.Errorf("%s: %s, want %s\n%s", traceText(p), have, want, trace)
			}
		})
	}
}

// traceText is a packet in ovs-ofctl's words.
func traceText(p oftest.Packet) string {
	fields := []string{"dp_hash=1", fmt.Sprintf("in_port=%d", p.InPort), "dl_src=" + p.EthSrc.String(),
		"dl_dst=" + p.EthDst.String()}
	add := func(format string, args ...any) { fields = append(fields, fmt.Sprintf(format, args...)) }
	if p.TunDst.IsValid() {
		add("tun_src=%s,tun_dst=%s,tun_id=0", p.TunSrc, p.TunDst)
	}
	if p.VLAN != 0 {
		add("vlan_tci=%#x", p.VLAN)
	}
	if a := p.ARP; a != nil {
		add("arp,arp_op=%d,arp_sha=%s,arp_tha=%s,arp_spa=%s,arp_tpa=%s", a.Op, a.SHA, a.THA, a.SPA, a.TPA)
		return strings.Join(fields, ",")
	}
	ttl := p.TTL
	if ttl == 0 && !p.Expired {
		ttl = 64
	}
	protocol := map[uint8]string{oftest.TCP: "tcp", oftest.UDP: "udp", oftest.ICMP: "icmp", oftest.ICMPv6: "icmp"}[p.Proto]
	if p.IPDst.Is6() {
		add("%s6,ipv6_src=%s,ipv6_dst=%s", protocol, p.IPSrc, p.IPDst)
	} else {
		add("%s,nw_src=%s,nw_dst=%s", protocol, p.IPSrc, p.IPDst)
	}
	add("nw_ttl=%d", ttl)
	switch {
	case p.Inner != nil:
		add("icmp_type=3,icmp_code=1")
	case p.Proto == oftest.ICMPv6:
		add("icmpv6_type=%d,icmpv6_code=%d", p.ICMP.Type, p.ICMP.Code)
		if p.ND != nil {
			add("nd_target=%s", p.ND.Target)
		}
		switch {
		case p.ND == nil:
		case p.ND.Option == flow.NDSourceOption:
			add("nd_options_type=1,nd_sll=%s", p.ND.Link)
		case p.ND.Option == flow.NDTargetOption:
			add("nd_options_type=2,nd_tll=%s", p.ND.Link)
		}
	case p.Proto == oftest.ICMP:
		add("icmp_type=8,icmp_code=0")
	case p.Fragment == oftest.Later:
		add("nw_frag=later")
	default:
		add("%s_src=%d,%s_dst=%d", protocol, p.SrcPort, protocol, p.DstPort)
	}
	if p.Fragment == oftest.First {
		add("nw_frag=first")
	}
	return strings.Join(fields, ",")
}

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// In IPv6, hosts find each other with messages of ICMPv6 (Neighbor Discovery, RFC 4861) where IPv4 has ARP. The switch
// answers all Neighbor Solicitations itself, from table ARP. All other messages of Neighbor Discovery are dropped at
// every port. So no Pod can announce a router, another Pod's address or a better way, and no message is flooded.
//
// Such an answer costs ovs-vswitchd an upcall, since no datapath writes these fields by itself. With the kernel's
// datapath ovs-vswitchd does not write them either (Node.NoND), and the agent answers (Neighbor). A Pod has a permanent
// entry for its gateway, and sends no solicitations. A program in the Pod may still send many. So they pass a meter of
// the Pod and then connection tracking. The datapath handles all steps before connection tracking without ovs-vswitchd,
// and the meter is among them.

// solicitRate is how many Neighbor Solicitations of a Pod are answered in a second. A host waits a second before it
// repeats one.
const solicitRate = 50

// If the agent answers, the bound for each Pod is agentSolicitRate instead. neighborRate bounds the solicitations of
// all Pods and of the host together. It suffices for 110 Pods at their bounds, which is the kubelet's default limit of
// Pods. So Pods that flood do not reduce the rate of other Pods.
const (
	agentSolicitRate = 10
	neighborRate     = 110 * agentSolicitRate
)

// firstNeighborMeter is above the meters of Pods' limits. A Pod's meter for solicitations is that plus the number of
// its port. Open vSwitch has 200,000 meters or more, and the highest port is 65,279.
const firstNeighborMeter = 2 * firstPodMeter

// linkLocal are the addresses that a host uses on its link alone.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// unspecified is the source of a solicitation with which a host checks that its address is free.
var unspecified = host(netip.IPv6Unspecified())

// allNodes is the group of all hosts on a link, and its MAC.
var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = ofp.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// Flags of the answers about the two kinds of neighbours.
const (
	asHost   = flow.NDSolicited | flow.NDOverride
	asRouter = asHost | flow.NDRouter
)

// neighbors answers the solicitations of the host's gateway port, finishes all answers, and drops all other messages of
// Neighbor Discovery.
func neighbors(n Node) []flow.Flow {
	if !n.Families.Has6() {
		return nil
	}
	flows := []flow.Flow{
		{Table: Classify, Priority: asks, Match: flow.All(flow.InPort(n.GatewayPort), flow.NDSolicitation()),
			Actions: flow.Do(flow.Goto(ARP))},
		{Table: Advertise}, // for packets that match no other flow of the table
	}
	for _, message := range []uint8{flow.RouterSolicitation, flow.RouterAdvertisement, flow.NeighborSolicitation,
		flow.NeighborAdvertisement, flow.Redirect} {
		flows = append(flows, flow.Flow{Table: Classify, Priority: origin, Match: flow.All(flow.ICMPv6Type(message))})
	}
	if n.NoND {
		return flows
	}
	advertisement := []flow.Cond{flow.ICMPv6(), flow.ICMPv6Type(flow.NeighborAdvertisement), flow.ICMPv6Code(0)}
	setLink := flow.MoveField(ofp.EthSrc, ofp.NDTLL)
	return append(flows, []flow.Flow{
		{Table: Advertise, Priority: normal, Match: flow.All(advertisement...), Actions: flow.Do(setLink, flow.ToInPort())},
		// The answer to a host that has no address yet.
		{Table: Advertise, Priority: high,
			Match: flow.All(append(advertisement, flow.IPDst(unspecified))...),
			Actions: flow.Do(flow.SetEthDst(allNodesMAC), flow.SetIPDst(allNodes), flow.SetNDReserved(flow.NDOverride), setLink,
				flow.ToInPort())},
	}...)
}

// neighborMeters returns the meter of the solicitations that the agent answers.
func neighborMeters(n Node) []flow.Meter {
	if !n.Families.Has6() || !n.NoND {
		return nil
	}
	return []flow.Meter{meter(NeighborSolicit.meter(), neighborRate)}
}

// advertise turns a solicitation for an address into the answer, which table Advertise finishes. Two tables are needed,
// since the switch sets a field of an answer only if the match has an answer's message type.
func advertise(ip netip.Addr, mac ofp.MAC, as uint32, more ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: ARP, Priority: normal,
		Match: flow.All(append(more, flow.NDSolicits(ip))...),
		Actions: flow.Do(
			flow.MoveField(ofp.EthSrc, ofp.EthDst),
			flow.SetEthSrc(mac),
			flow.MoveField(ofp.IPv6Src, ofp.IPv6Dst),
			flow.SetIPSrc(ip),
			flow.SetICMPv6Type(flow.NeighborAdvertisement),
			flow.SetNDReserved(as),
			flow.SetNDOption(flow.NDTargetOption),
			flow.Goto(Advertise),
		),
	}
}

// has6 reports whether the Pod has an IPv6 address.
func (pod Pod) has6() bool {
	for _, ip := range pod.IPs {
		if !ip.Is4() {
			return true
		}
	}
	return false
}

// solicits lets a Pod send Neighbor Solicitations, from its own addresses and from addresses of its link. The switch
// does not answer a solicitation for the Pod's own address, since the Pod checks in this way that no other host has the
// address.
func (p nodePod) solicits() []flow.Flow {
	if !p.pod.has6() {
		return nil
	}
	sources := []netip.Prefix{linkLocal, unspecified}
	var flows []flow.Flow
	for _, ip := range p.pod.IPs {
		if ip.Is4() {
			continue
		}
		sources = append(sources, host(ip))
		flows = append(flows, flow.Flow{Table: ARP, Priority: high, Match: flow.All(flow.InPort(p.pod.Port),
			flow.NDSolicits(ip))})
	}
	for _, from := range sources {
		flows = append(flows, flow.Flow{
			Table: Classify, Priority: asks,
			Match: flow.All(flow.InPort(p.pod.Port), flow.EthSrc(p.pod.MAC), flow.NDSolicitation(), flow.IPSrc(from)),
			Actions: flow.Do(ofp.Meter{ID: p.solicitMeter().ID},
				flow.CT(ofp.CT{Zone: mainZone, Table: ARP})),
		})
	}
	return flows
}

// advertiseByAgent sends a solicitation for an address to the agent, which answers it. The words in the userdata are
// the MAC and the flags of the answer.
func advertiseByAgent(ip netip.Addr, mac ofp.MAC, as uint32, more ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: ARP, Priority: normal, Match: flow.All(append(more, flow.NDSolicits(ip))...),
		Actions: ask(NeighborSolicit, neighborRate, mac.String(), strconv.FormatUint(uint64(as), 16)),
	}
}

// Neighbor answers a Neighbor Solicitation of kind NeighborSolicit, by the port that it came from. It answers as the
// flows of table Advertise do.
func Neighbor(pkt ofp.PacketIn2) (ofp.PacketOut, error) {
	port, _, ok := pkt.Metadata.Get(ofp.InPort)
	if !ok {
		return ofp.PacketOut{}, errors.New("solicitation: the switch does not say its port")
	}
	answer, err := advertisement(pkt)
	if err != nil {
		return ofp.PacketOut{}, fmt.Errorf("solicitation: %w", err)
	}
	return ofp.PacketOut{
		BufferID: ofp.NoBuffer, InPort: ofp.PortController, Data: answer,
		Actions: flow.Do(flow.Output(ofp.Port(port.Lo))),
	}, nil
}

// These are the lengths of a Neighbor Discovery message without options, and of the option with a MAC (RFC 4861
// sections 4.3, 4.4 and 4.6.1).
const (
	solicitationLen = 24
	linkOptionLen   = 8
)

// advertisement returns the frame that answers a solicitation. The flow has checked the type, the code, the hop limit
// and the target.
func advertisement(pkt ofp.PacketIn2) ([]byte, error) {
	text, ok := strings.CutPrefix(string(pkt.Userdata), string(NeighborSolicit)+" ")
	macText, flagText, ok2 := strings.Cut(text, " ")
	mac, err := ofp.ParseMAC(macText)
	n, err2 := strconv.ParseUint(flagText, 16, 32)
	if !ok || !ok2 || err != nil || err2 != nil {
		return nil, fmt.Errorf("userdata %q has no answer", pkt.Userdata)
	}
	flags, frame := uint32(n), pkt.Data
	if len(frame) < ethLen+ipv6Len+solicitationLen {
		return nil, fmt.Errorf("frame has %d bytes, needs %d", len(frame), ethLen+ipv6Len+solicitationLen)
	}
	ip, message := frame[ethLen:ethLen+ipv6Len], frame[ethLen+ipv6Len:]
	if binary.BigEndian.Uint16(frame[12:]) != ipv6Type || ip[6] != protoICMPv6 || message[0] != flow.NeighborSolicitation {
		return nil, errors.New("frame is of another type")
	}
	client, target := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(message[8:24]))
	to := frame[6:12]
	if client.IsUnspecified() {
		client, to, flags = allNodes, allNodesMAC[:], flow.NDOverride
	}
	out := slices.Concat(to, mac[:], make([]byte, 2+ipv6Len+solicitationLen+linkOptionLen))
	binary.BigEndian.PutUint16(out[12:], ipv6Type)
	ip, message = out[ethLen:ethLen+ipv6Len], out[ethLen+ipv6Len:]
	ip[0] = 6 << 4
	binary.BigEndian.PutUint16(ip[4:], uint16(len(message)))
	ip[6], ip[7] = protoICMPv6, 255
	copy(ip[8:], target.AsSlice())
	copy(ip[24:], client.AsSlice())
	message[0] = flow.NeighborAdvertisement
	binary.BigEndian.PutUint32(message[4:], flags)
	copy(message[8:], target.AsSlice())
	message[24], message[25] = flow.NDTargetOption, 1
	copy(message[26:], mac[:])
	binary.BigEndian.PutUint16(message[2:], finish(sum(pseudoHeader(target, client, protoICMPv6, len(message)), message)))
	return out, nil
}

// solicitMeter drops solicitations of a Pod beyond its share.
func (p nodePod) solicitMeter() flow.Meter {
	rate := uint32(solicitRate)
	if p.node.NoND {
		rate = agentSolicitRate
	}
	return meter(firstNeighborMeter+uint32(p.pod.Port), rate)
}

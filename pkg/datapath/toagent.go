package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// PacketKind is the purpose of a packet to the agent. It is the first word of the userdata that the switch sends with
// it.
type PacketKind string

// Kinds of packets to the agent.
const (
	ServiceReject PacketKind = "reject"        // a connection to a Service without endpoints
	PolicyReject  PacketKind = "policy-reject" // a connection that a policy rejects
	PolicyLog     PacketKind = "policy-log"    // a copy of a packet that a rule has decided about, with a LogEntry
	DNSAnswer     PacketKind = "dns"           // an answer to a Pod under rules with names, with the Pod's identity

	// DNSOther is a copy of an answer to such a Pod. The agent does not read its content, since its server is not a
	// resolver.
	DNSOther PacketKind = "dns-other"

	// StaleConnection is a datagram of a connection whose translation differs from the Service's present one. The agent
	// requests its flush. The next datagram then makes a new connection.
	StaleConnection PacketKind = "stale"

	// NeighborSolicit is a Neighbor Solicitation that the switch cannot answer itself, with the answer's MAC and flags.
	NeighborSolicit PacketKind = "neighbor"

	// Dropped is a copy of a packet that a flow has dropped, with the flow's priority.
	Dropped PacketKind = "dropped"

	// Opened is a copy of the packet that opens a connection.
	Opened PacketKind = "opened"

	// WayEcho is a probe of a way that the far end has sent back.
	WayEcho PacketKind = "way-echo"

	// Traced is a copy of a packet that is followed.
	Traced PacketKind = "traced"
)

// PacketKinds lists all kinds of packets to the agent. The place of a kind in the list is the number of its meter.
// PolicyLog has only shares. Some meters exist only if they are needed: NeighborSolicit on Nodes where the agent
// answers such packets, Dropped and Opened where these are observed, WayEcho on Gateways, Traced while packets are
// followed.
var PacketKinds = []PacketKind{ServiceReject, PolicyReject, PolicyLog, DNSAnswer, StaleConnection, DNSOther,
	NeighborSolicit, Dropped, Opened, WayEcho, Traced}

// meter is the number of the kind's meter.
func (k PacketKind) meter() uint32 {
	for i, kind := range PacketKinds {
		if k == kind {
			return uint32(i + 1)
		}
	}
	return 0
}

// A share bounds the packets that the Pods of one identity may send to the agent: answers of DNS and packets for the
// log. So the Pods of one identity cannot use the whole rate. A DNS answer passes the share and then the meter of its
// kind; the share is a quarter of that meter's rate. A packet for the log passes only a share, which limits only the
// copies to the agent. This share is a sixteenth of the rate, with a larger burst. Identities whose numbers differ by a
// multiple of shareCount use the same share.
const (
	firstShare = 64
	shareCount = 1024

	dnsShare, logShare, logBurst = 4, 16, 4 // parts of packetInRate
)

// shareOf is the meter of an identity's share of a kind.
func shareOf(kind PacketKind, identity, rate uint32) flow.Meter {
	id := firstShare + 2*(identity%shareCount)
	if kind == PolicyLog {
		return burstMeter(id+1, max(1, rate/logShare), max(1, rate/logBurst))
	}
	return meter(id, max(1, rate/dnsShare))
}

// MetersLog reports whether a meter drops packets for the log alone.
func MetersLog(id uint32) bool {
	return id >= firstShare && id < firstShare+2*shareCount && (id-firstShare)%2 == 1
}

// copies are the kinds that are no end of a packet: it goes on, or the flow drops it.
var copies = []PacketKind{PolicyLog, DNSOther, Dropped, Opened, Traced}

// TakenAs returns the kind of packet that the agent takes instead of the switch's further processing. userdata are the
// userdata with which the packet and its copies were sent to the agent. If the agent got only copies, ok is false.
func TakenAs(userdata []string) (kind PacketKind, ok bool) {
	for _, user := range userdata {
		if kind = KindOf(ofp.PacketIn2{Userdata: []byte(user)}); !slices.Contains(copies, kind) {
			return kind, true
		}
	}
	return "", false
}

// KindOf returns the purpose of a packet.
func KindOf(pkt ofp.PacketIn2) PacketKind {
	kind, _, _ := strings.Cut(string(pkt.Userdata), " ")
	return PacketKind(kind)
}

// staleRate is how many datagrams of stale connections the switch sends to the agent in a second. It does not depend on
// packetInRate, since such a connection would never end without these datagrams.
const staleRate = 200

// otherRate is how many answers of servers that are not resolvers the agent gets in a second. They suffice to report
// the servers.
const otherRate = 10

// meters returns the meters that drop packets of each kind beyond a rate in packets a second.
func meters(rate uint32) (out []flow.Meter) {
	for _, kind := range PacketKinds {
		switch {
		case kind == StaleConnection:
			out = append(out, meter(kind.meter(), staleRate))
		case kind == DNSOther:
			out = append(out, meter(kind.meter(), otherRate))
		case rate > 0 && !slices.Contains([]PacketKind{PolicyLog, NeighborSolicit, Dropped, Opened, WayEcho, Traced}, kind):
			out = append(out, meter(kind.meter(), rate))
		}
	}
	return out
}

// ask sends a packet to the agent and ends its processing. The meter of the packet's kind bounds the rate, and drops
// packets beyond it. With rate 0 the agent gets no packets. The words follow the kind in the userdata.
func ask(kind PacketKind, rate uint32, words ...string) flow.Actions {
	if rate == 0 {
		return nil
	}
	userdata := strings.Join(append([]string{string(kind)}, words...), " ")
	return flow.Do(flow.ToController(
		ofp.Controller{MaxLen: 0xffff, Reason: ofp.ReasonAction, Userdata: userdata, MeterID: kind.meter()}))
}

// loggedLen is how much of a packet a log needs: its headers.
const loggedLen = 128

// LogEntry is the description of a rule that the switch sends with a logged packet. It is the rule that decided about
// the packet, also if the rule has changed since.
type LogEntry struct {
	Table     string // Antrea's name of the stage
	Policy    string // "AntreaNetworkPolicy:default/web"
	Rule      string // its name, or "ingress[0]"
	Direction policy.Direction
	Action    policy.Action
	Priority  uint16 // of the rule's flows: the higher one decides
	Label     string // empty for no label
}

// logTables are Antrea's names of the stages, by direction.
var logTables = [2][policy.Stages]string{
	policy.Ingress: {"AntreaPolicyIngressRule", "IngressRule", "IngressDefaultRule"},
	policy.Egress:  {"AntreaPolicyEgressRule", "EgressRule", "EgressDefaultRule"},
}

// logPolicies are Antrea's names of the kinds of policies.
var logPolicies = [policy.Kinds]string{"K8sNetworkPolicy", "AntreaClusterNetworkPolicy",
	"AntreaNetworkPolicy", "ClusterNetworkPolicy"}

func logEntry(k policy.RuleKey, rule policy.Rule, priority uint16) LogEntry {
	e := LogEntry{
		Table: logTables[k.Direction][rule.Stage], Policy: logPolicies[k.Policy.Kind] + ":" + k.Policy.Name,
		Rule: rule.Name, Direction: k.Direction, Action: rule.Action, Priority: priority, Label: word(rule.LogLabel),
	}
	if k.Policy.Namespace != "" {
		e.Policy = logPolicies[k.Policy.Kind] + ":" + k.Policy.Namespace + "/" + k.Policy.Name
	}
	if e.Rule = word(e.Rule); e.Rule == "" {
		e.Rule = fmt.Sprintf("%s[%d]", k.Direction, k.Index)
	}
	return e
}

// word makes a text one column of a line. Users choose the text, and must not be able to forge columns and lines.
func word(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return '_'
		}
		return r
	}, text)
}

// String is the entry in userdata. LogEntryOf reads it back.
func (e LogEntry) String() string {
	return strings.TrimSuffix(
		fmt.Sprintf("%s %s %s %d %d %d %s", e.Table, e.Policy, e.Rule, e.Direction, e.Action, e.Priority, e.Label), " ")
}

// LogEntryOf reads the userdata of a packet that is logged.
func LogEntryOf(userdata []byte) (e LogEntry, err error) {
	text, ok := strings.CutPrefix(string(userdata), string(PolicyLog)+" ")
	if !ok {
		return LogEntry{}, fmt.Errorf("userdata %q is no entry of a log", userdata)
	}
	n, err := fmt.Sscanf(text, "%s %s %s %d %d %d %s", &e.Table, &e.Policy, &e.Rule,
		&e.Direction, &e.Action, &e.Priority, &e.Label)
	switch {
	case n < 6: // the last may be empty
		return LogEntry{}, fmt.Errorf("userdata %q is no entry of a log: %w", userdata, err)
	case e.Direction > policy.Egress || e.Action > policy.Allow:
		return LogEntry{},
			fmt.Errorf("userdata %q is no entry of a log: direction %d, action %d", userdata, e.Direction, e.Action)
	}
	return e, nil
}

// log sends the agent a copy of the packet's headers, as often as a meter allows. The packet itself does not wait, and
// no meter drops it.
func log(e LogEntry, meter uint32) flow.Actions { return report(PolicyLog, meter, e.String()) }

// report sends the agent a copy of a packet's headers, as often as a meter allows. The words follow the kind in the
// userdata.
func report(kind PacketKind, meter uint32, words ...string) flow.Actions {
	userdata := strings.Join(append([]string{string(kind)}, words...), " ")
	return flow.Do(flow.ToController(ofp.Controller{
		MaxLen: loggedLen, Reason: ofp.ReasonAction, Userdata: userdata, MeterID: meter,
	}))
}

// Headers are the headers of an IP packet.
type Headers struct {
	Src, Dst         netip.Addr
	Protocol         uint8
	SrcPort, DstPort uint16 // of TCP, UDP and SCTP
	Length           int    // of the IP packet
}

// HasPorts reports whether the protocol has ports that the switch can read.
func (h Headers) HasPorts() bool { return protocols[h.Protocol] != "" }

// ProtocolName is "TCP", "ICMP", or the number of a protocol that has no name here.
func (h Headers) ProtocolName() string {
	switch {
	case h.HasPorts():
		return string(protocols[h.Protocol])
	case h.Protocol == protoICMP:
		return string(corev1.Protocol(protocolICMP))
	case h.Protocol == protoICMPv6:
		return "ICMPv6"
	case h.Protocol == protoIGMP:
		return string(protocolIGMP)
	}
	return fmt.Sprint(h.Protocol)
}

// HeadersOf reads a frame that may be cut after its headers.
func HeadersOf(frame []byte) (h Headers, err error) {
	ip, payload, err := ipHeader(frame)
	if err != nil {
		return Headers{}, err
	}
	h = Headers{Src: ip.src, Dst: ip.dst, Protocol: ip.protocol, Length: ip.length}
	if !h.HasPorts() {
		return h, nil
	}
	if len(payload) < 4 || ip.laterFragment {
		return h, errors.New("the ports are not in the packet")
	}
	h.SrcPort, h.DstPort = portsOf(payload)
	return h, nil
}

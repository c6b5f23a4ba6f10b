package ipfix

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmware/go-ipfix/pkg/entities"
	"github.com/vmware/go-ipfix/pkg/registry"

	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// Flow is a record to be sent.
type Flow struct {
	*record.Record
	EndReason Reason
	// Sent and Received are totals since the beginning, from the client's view. SentDelta and ReceivedDelta are the growth
	// since the last record of the connection.
	Sent, Received           record.Traffic
	SentDelta, ReceivedDelta record.Traffic
	Began                    time.Time
}

// Reason is why a record is sent, as IPFIX's flowEndReason.
type Reason uint8

// Reasons of records.
const (
	Idle   Reason = 1
	Active Reason = 2 // the connection goes on
	Ended  Reason = 3
)

// FlowOf is the record of an event. It returns false for an event that is no record.
func FlowOf(e record.Event) (Flow, bool) {
	r := e.Record()
	if r == nil {
		return Flow{}, false
	}
	f := Flow{Record: r, EndReason: Active, Began: r.Time}
	switch {
	case e.Drop != nil:
		f.EndReason = Ended
		f.Sent.Packets, f.SentDelta.Packets = r.Count, r.Count
	case e.End != nil:
		f.EndReason = Ended
		if l := r.Life; l != nil {
			if !l.Began.IsZero() {
				f.Began = l.Began
			}
			if l.Sent != nil && l.Received != nil {
				f.Sent, f.Received, f.SentDelta, f.ReceivedDelta = *l.Sent, *l.Received, *l.Sent, *l.Received
			}
		}
	}
	return f, true
}

// Values of elements, as the registry of enterprise 56506 has them.
const (
	sameNode, otherNode, toExternal, fromExternal = 1, 2, 3, 4
	actionAllow, actionDrop, actionReject         = 1, 2, 3
)

// policyTypes are the kinds of policies.
var policyTypes = map[string]uint8{"NetworkPolicy": 1, "AntreaNetworkPolicy": 2, "AntreaClusterNetworkPolicy": 3,
	"ClusterNetworkPolicy": 4}

// element is an information element with the function that sets its value.
type element struct {
	name       string
	enterprise uint32
	set        func(v entities.InfoElementWithValue, f *prepared)
}

// prepared is a record with what several elements need of it.
type prepared struct {
	*Flow
	encoder         *Encoder
	from, to, asked net.IP
	askedPort       uint16
	protocol        uint8
	ingress, egress policyOf
}

// policyOf is the policy that decided in a direction.
type policyOf struct {
	name, namespace, rule string
	kind, action          uint8
}

// text returns an element with text. All of them are in the registry of enterprise 56506.
func text(name string, of func(*prepared) string) element {
	return element{name, antrea, func(v entities.InfoElementWithValue, f *prepared) { v.SetStringValue(cut(of(f))) }}
}

func number8(enterprise uint32, name string, of func(*prepared) uint8) element {
	return element{name, enterprise, func(v entities.InfoElementWithValue, f *prepared) { v.SetUnsigned8Value(of(f)) }}
}

func number16(enterprise uint32, name string, of func(*prepared) uint16) element {
	return element{name, enterprise, func(v entities.InfoElementWithValue, f *prepared) { v.SetUnsigned16Value(of(f)) }}
}

func seconds(name string, of func(*prepared) time.Time) element {
	return element{name, 0, func(v entities.InfoElementWithValue, f *prepared) {
		v.SetUnsigned32Value(uint32(of(f).Unix()))
	}}
}

func number64(enterprise uint32, name string, of func(*prepared) uint64) element {
	return element{name, enterprise, func(v entities.InfoElementWithValue, f *prepared) { v.SetUnsigned64Value(of(f)) }}
}

func address(enterprise uint32, name string, of func(*prepared) net.IP) element {
	return element{name, enterprise, func(v entities.InfoElementWithValue, f *prepared) { v.SetIPAddressValue(of(f)) }}
}

// Enterprises of elements. 0 is IANA.
const (
	reverse = registry.IANAReversedEnterpriseID
	antrea  = registry.AntreaEnterpriseID
)

// elementsOf returns the elements of a template. First come the elements of Antrea's flow exporter, in its order. The
// labels, the cluster's ID and the direction follow.
func elementsOf(six bool) []element {
	family := "IPv4"
	if six {
		family = "IPv6"
	}
	out := []element{
		seconds("flowStartSeconds", func(f *prepared) time.Time { return f.Began }),
		seconds("flowEndSeconds", func(f *prepared) time.Time { return f.Time }),
		number8(0, "flowEndReason", func(f *prepared) uint8 { return uint8(f.EndReason) }),
		number16(0, "sourceTransportPort", func(f *prepared) uint16 { return f.From.Port }),
		number16(0, "destinationTransportPort", func(f *prepared) uint16 { return f.To.Port }),
		number8(0, "protocolIdentifier", func(f *prepared) uint8 { return f.protocol }),
		number64(0, "packetTotalCount", func(f *prepared) uint64 { return f.Sent.Packets }),
		number64(0, "octetTotalCount", func(f *prepared) uint64 { return f.Sent.Bytes }),
		number64(0, "packetDeltaCount", func(f *prepared) uint64 { return f.SentDelta.Packets }),
		number64(0, "octetDeltaCount", func(f *prepared) uint64 { return f.SentDelta.Bytes }),
		address(0, "source"+family+"Address", func(f *prepared) net.IP { return f.from }),
		address(0, "destination"+family+"Address", func(f *prepared) net.IP { return f.to }),
		number64(reverse, "reversePacketTotalCount", func(f *prepared) uint64 { return f.Received.Packets }),
		number64(reverse, "reverseOctetTotalCount", func(f *prepared) uint64 { return f.Received.Bytes }),
		number64(reverse, "reversePacketDeltaCount", func(f *prepared) uint64 { return f.ReceivedDelta.Packets }),
		number64(reverse, "reverseOctetDeltaCount", func(f *prepared) uint64 { return f.ReceivedDelta.Bytes }),
		text("sourcePodName", func(f *prepared) string { return f.From.Pod }),
		text("sourcePodNamespace", func(f *prepared) string { return f.From.Namespace }),
		text("sourceNodeName", func(f *prepared) string { return f.From.Node }),
		text("destinationPodName", func(f *prepared) string { return f.To.Pod }),
		text("destinationPodNamespace", func(f *prepared) string { return f.To.Namespace }),
		text("destinationNodeName", func(f *prepared) string { return f.To.Node }),
		number16(antrea, "destinationServicePort", func(f *prepared) uint16 { return f.askedPort }),
		text("destinationServicePortName", func(f *prepared) string { return f.Service }),
	}
	for _, d := range []struct {
		word string
		of   func(*prepared) *policyOf
	}{
		{"ingress", func(f *prepared) *policyOf { return &f.ingress }},
		{"egress", func(f *prepared) *policyOf { return &f.egress }},
	} {
		out = append(out,
			text(d.word+"NetworkPolicyName", func(f *prepared) string { return d.of(f).name }),
			text(d.word+"NetworkPolicyNamespace", func(f *prepared) string { return d.of(f).namespace }),
			number8(antrea, d.word+"NetworkPolicyType", func(f *prepared) uint8 { return d.of(f).kind }),
			text(d.word+"NetworkPolicyRuleName", func(f *prepared) string { return d.of(f).rule }),
			number8(antrea, d.word+"NetworkPolicyRuleAction", func(f *prepared) uint8 { return d.of(f).action }))
	}
	none := func(*prepared) string { return "" }
	return append(out,
		text("tcpState", none),
		number8(antrea, "flowType", (*prepared).flowType),
		text("egressName", none),
		text("egressIP", none),
		text("appProtocolName", none),
		text("httpVals", none),
		text("egressNodeName", none),
		address(antrea, "destinationCluster"+family, func(f *prepared) net.IP { return f.asked }),
		text("sourcePodLabels", func(f *prepared) string { return clusterLabel(f.From) }),
		text("destinationPodLabels", func(f *prepared) string { return clusterLabel(f.To) }),
		text("clusterId", func(f *prepared) string { return f.encoder.cluster }),
		number8(0, "flowDirection", (*prepared).direction),
	)
}

// flowType returns which ends are in this cluster.
func (f *prepared) flowType() uint8 {
	switch {
	case f.From.Pod == "" || f.From.Cluster != "":
		return fromExternal
	case f.To.Pod == "" || f.To.Cluster != "":
		return toExternal
	case f.From.Node == f.To.Node:
		return sameNode
	}
	return otherNode
}

// direction returns 1 if the packets leave a Pod of the exporting Node, and 0 if they go to one.
func (f *prepared) direction() uint8 {
	if f.From.Node == f.Node {
		return 1
	}
	return 0
}

// clusterLabel has the cluster of an end of another cluster as a label.
func clusterLabel(e record.End) string {
	if e.Cluster == "" {
		return ""
	}
	return `{"multicluster.tombolo.io/cluster":` + strconv.Quote(strings.ToValidUTF8(e.Cluster, "")) + `}`
}

// maxText is the longest text in a record. Names of Kubernetes are shorter, but names of rules may come from other
// programs.
const maxText = 1024

// cut makes a text valid and not too long.
func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for !utf8.ValidString(s) && len(s) > maxText-utf8.UTFMax {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// template is an ordered list of elements.
type template struct {
	id       uint16
	elements []element
	values   []entities.InfoElementWithValue
	record   entities.Record
	set      []byte // the template as a set
}

// Encoder makes messages. It is for one goroutine.
type Encoder struct {
	domain    uint32
	cluster   string
	templates [2]template // of IPv4 and IPv6
}

// Numbers of IPFIX (RFC 7011).
const (
	version       = 10
	templateSetID = 2
	firstTemplate = 256
	messageHeader = 16
	setHeader     = 4
)

// NewEncoder returns an Encoder of an observation domain and a cluster.
func NewEncoder(domain uint32, cluster string) (*Encoder, error) {
	loadRegistry()
	e := &Encoder{domain: domain, cluster: cluster}
	for i := range e.templates {
		t := &e.templates[i]
		t.id, t.elements = uint16(firstTemplate+i), elementsOf(i == 1)
		var info []*entities.InfoElement
		for _, el := range t.elements {
			known, err := registry.GetInfoElement(el.name, el.enterprise)
			if err != nil {
				return nil, err
			}
			value, err := entities.DecodeAndCreateInfoElementWithValue(known, nil)
			if err != nil {
				return nil, fmt.Errorf("element %s: %w", el.name, err)
			}
			info, t.values = append(info, known), append(t.values, value)
		}
		t.record = entities.NewDataRecordFromElements(t.id, t.values)
		set, err := entities.MakeTemplateSet(t.id, info)
		if err != nil {
			return nil, err
		}
		set.UpdateLenInHeader()
		t.set = append(t.set, set.GetHeaderBuffer()...)
		for _, r := range set.GetRecords() {
			if t.set, err = r.AppendToBuffer(t.set); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

// Templates returns the messages with the templates. sequence is the number of data records that were sent before them.
func (e *Encoder) Templates(now time.Time, sequence uint32) (out [][]byte) {
	for _, t := range e.templates {
		b := append(make([]byte, messageHeader, messageHeader+len(t.set)), t.set...)
		e.header(b, now, sequence)
		out = append(out, b)
	}
	return out
}

// header writes the header of a message.
func (e *Encoder) header(b []byte, now time.Time, sequence uint32) {
	binary.BigEndian.PutUint16(b, version)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint32(b[4:], uint32(now.Unix()))
	binary.BigEndian.PutUint32(b[8:], sequence)
	binary.BigEndian.PutUint32(b[12:], e.domain)
}

// Message makes a message of the first flows, of at most limit bytes, in the memory of b. It ends before a flow of
// another version of IP. used is the number of flows that it has handled. It leaves out bad ones of these, which cannot
// be sent. If all are bad, the message is nil.
func (e *Encoder) Message(b []byte, flows []Flow, limit int, now time.Time, sequence uint32) (
	out []byte, used, bad int,
) {
	b = append(b[:0], make([]byte, messageHeader+setHeader)...)
	var in *template
	for i := range flows {
		p := prepared{Flow: &flows[i], encoder: e}
		t, err := e.prepare(&p)
		if err != nil {
			used, bad = used+1, bad+1
			continue
		}
		if in != nil && t != in {
			break
		}
		before := len(b)
		for j := range t.elements {
			t.elements[j].set(t.values[j], &p)
		}
		if b, err = t.record.AppendToBuffer(b); err != nil || len(b) > limit {
			if b = b[:before]; err == nil && in != nil {
				break // it is for the next message
			}
			used, bad = used+1, bad+1
			continue
		}
		in = t
		used++
	}
	if in == nil {
		return nil, used, bad
	}
	binary.BigEndian.PutUint16(b[messageHeader:], in.id)
	binary.BigEndian.PutUint16(b[messageHeader+2:], uint16(len(b)-messageHeader))
	e.header(b, now, sequence)
	return b, used, bad
}

// prepare reads a record.
func (e *Encoder) prepare(p *prepared) (*template, error) {
	from, err := netip.ParseAddr(p.From.IP)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddr(p.To.IP)
	if err != nil {
		return nil, err
	}
	if from.Is4() != to.Is4() {
		return nil, fmt.Errorf("%s and %s are of two versions of IP", from, to)
	}
	t := &e.templates[1]
	p.asked = net.IPv6zero
	if from.Is4() {
		t, p.asked = &e.templates[0], net.IPv4zero.To4()
	}
	p.from, p.to = from.AsSlice(), to.AsSlice()
	if at, err := netip.ParseAddrPort(p.Asked); err == nil && p.Service != "" && at.Addr().Is4() == from.Is4() {
		p.asked, p.askedPort = at.Addr().AsSlice(), at.Port()
	}
	p.protocol = numberOf(p.Protocol)
	p.egress, p.ingress = policyText(p.Egress, actionAllow), policyText(p.Ingress, actionAllow)
	if p.Verdict != record.Allowed {
		action := uint8(actionDrop)
		if p.Verdict == record.Rejected {
			action = actionReject
		}
		switch denied := policyText(p.Rule, action); {
		case p.Rule == nil && p.Reason != record.Isolated:
		case strings.HasPrefix(p.Table, "Egress"):
			denied.action = action
			p.egress = denied
		default:
			denied.action = action
			p.ingress = denied
		}
	}
	return t, nil
}

// numberOf is the number of a protocol.
func numberOf(name string) uint8 {
	switch name {
	case "TCP":
		return 6
	case "UDP":
		return 17
	case "SCTP":
		return 132
	case "ICMP":
		return 1
	case "ICMPv6":
		return 58
	}
	n, _ := strconv.ParseUint(name, 10, 8)
	return uint8(n)
}

// policyText is a rule's policy, such as "NetworkPolicy shop/db".
func policyText(r *record.Rule, action uint8) policyOf {
	if r == nil {
		return policyOf{}
	}
	kind, name, _ := strings.Cut(r.Policy, " ")
	out := policyOf{name: name, rule: r.Name, kind: policyTypes[kind], action: action}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		out.namespace, out.name = namespace, name
	}
	return out
}

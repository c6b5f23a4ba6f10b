package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// The switch reports packets to the agent for its records: copies of their headers, within the rate of a meter. A copy
// changes no match. So the switch has the same megaflows with reports as without.

// Rates of reports, in packets a second. Drops repeat, so fewer are enough.
const (
	droppedRate = 200
	openedRate  = 1000
)

// ReportDrops returns the entries of an owner, in which each flow that drops packets also reports them. Two kinds of
// packets are not reported, since they are not lost: Neighbor Discovery messages that the switch handles itself, and
// packets that are followed and held.
func ReportDrops(o flow.Owner, e flow.Entries, node string) flow.Entries {
	out := e
	for i, f := range e.Flows {
		if !endsPackets(f) || isNeighborMessage(f) || goOn[f.Table] || f.Priority == traced {
			continue
		}
		if &out.Flows[0] == &e.Flows[0] {
			out.Flows = slices.Clone(e.Flows)
		}
		out.Flows[i].Actions = slices.Concat(f.Actions,
			report(Dropped, Dropped.meter(), strconv.Itoa(int(f.Priority))))
	}
	if o == NodeOwner(node) {
		out.Meters = append(slices.Clone(e.Meters), meter(Dropped.meter(), droppedRate))
	}
	return out
}

// goOn are the tables in which a packet without a matching flow is not reported as dropped. After a miss in table
// Affinity, a packet continues. Packets in table ARP belong to no connection.
var goOn = map[ofp.Table]bool{Affinity: true, ARP: true}

// MeteredReports returns the kind of reports that a meter limits. For a meter that limits no reports it returns false.
func MeteredReports(id uint32) (PacketKind, bool) {
	for _, kind := range []PacketKind{Dropped, Opened} {
		if kind.meter() == id {
			return kind, true
		}
	}
	return "", false
}

// IsRuleNumber reports whether a connection's number is the number of a rule.
func IsRuleNumber(n uint32) bool { return n&firstRuleNumber != 0 }

// endsPackets reports whether a flow ends its packets, maybe after the log got a copy.
func endsPackets(f flow.Flow) bool {
	return !slices.ContainsFunc(f.Actions, func(a ofp.Action) bool {
		c, ok := a.(ofp.Controller)
		return !ok || KindOf(ofp.PacketIn2{Userdata: []byte(c.Userdata)}) != PolicyLog
	})
}

// isNeighborMessage reports whether a flow that drops packets is for Neighbor Discovery messages. Such a flow is in
// table Classify, ARP or Tenant, and matches a type of ICMPv6.
func isNeighborMessage(f flow.Flow) bool {
	_, _, ok := f.Match.OXM().Get(ofp.ICMPv6Type)
	return ok && (f.Table == Classify || f.Table == ARP || f.Table == Tenant)
}

// reportOpened changes the flows of table Commit that remember a connection, so that they also report its first packet.
func reportOpened(flows []flow.Flow) {
	for i, f := range flows {
		remembers := slices.ContainsFunc(f.Actions, func(a ofp.Action) bool {
			ct, ok := a.(ofp.CT)
			return ok && ct.Flags&ofp.CTCommit != 0
		})
		// Two kinds of flows are left out, since they do not match only first packets. Flows of priority same change the way
		// of a known connection. Flows of priority high are for SCTP on the userspace datapath, which commits each packet.
		if f.Table == Commit && remembers && f.Priority < same {
			flows[i].Actions = slices.Concat(report(Opened, Opened.meter()), f.Actions)
		}
	}
}

// observes reports whether connections are observed.
func (b *base) observes(r *derive.Reader) bool {
	if b.Observed == nil {
		return false
	}
	on, _ := derive.Get(r, b.Observed, Self)
	return on
}

// Report is a packet that the switch reports.
type Report struct {
	Headers
	Kind     PacketKind
	Table    ofp.Table
	Cookie   uint64
	Priority uint16 // of the flow that ended it, with Dropped
	// Asked is the destination of the packet before an endpoint of a Service was chosen. It is zero if the packet was not
	// to a Service.
	Asked netip.AddrPort
	// EgressRule and IngressRule are the numbers of rules that let a connection pass.
	EgressRule, IngressRule uint32
	FromPod                 bool // by the port that it came in
	Way                     uint16
	// Network is the number of the network of tenants that the packet is in, and 0 for the default network. The report of
	// a connection without a copy of its first packet lacks it.
	Network tenant.ID
}

// ReportOfMark makes the report of a connection if there is no copy of its first packet. mark is its ct_mark. asked is
// the destination of its first packet, and h has the headers after the translation to an endpoint. The rules are
// unknown.
func ReportOfMark(mark uint32, h Headers, asked netip.AddrPort) Report {
	bits := func(b flow.Bits) uint32 { return mark >> b.First & (1<<b.Width - 1) }
	out := Report{Headers: h, Kind: Opened, FromPod: bits(markSource) == fromPod, Way: uint16(bits(markWay))}
	if asked != netip.AddrPortFrom(h.Dst, h.DstPort) {
		out.Asked = asked
	}
	return out
}

// ctEstablished is the bit +est of ct_state (ovs-fields(7)).
const ctEstablished = 1 << 1

// errJudgedAgain is the error for a packet of a known connection that policies have allowed once more.
var errJudgedAgain = errors.New("the connection is known")

// ReportOf reads a report. It refuses a packet of a known connection, which opens none.
func ReportOf(in ofp.PacketIn2) (out Report, err error) {
	out = Report{Kind: KindOf(in), Table: in.Table, Cookie: in.Cookie}
	if out.Headers, err = HeadersOf(in.Data); err != nil {
		return out, err
	}
	if state, _, _ := in.Metadata.Get(ofp.CTState); out.Kind == Opened && state.Lo&ctEstablished != 0 {
		return out, errJudgedAgain
	}
	if out.Kind == Dropped {
		_, text, _ := strings.Cut(string(in.Userdata), " ")
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return out, fmt.Errorf("userdata %q has no priority", in.Userdata)
		}
		out.Priority = uint16(n)
	}
	get := func(f ofp.Field) ofp.Value { v, _, _ := in.Metadata.Get(f); return v }
	bits := func(b flow.Bits) uint32 { return uint32(get(b.Field).Lo >> b.First & (1<<b.Width - 1)) }
	out.EgressRule, out.IngressRule = bits(egressRule), bits(ingressRule)
	out.FromPod, out.Way = bits(source) == fromPod, uint16(bits(way))
	out.Network = NetworkOf(in)
	asked, err := askedIn(get)
	if err == nil && asked.Addr() != out.Dst && asked.Addr() != out.Src {
		out.Asked = asked
	}
	return out, nil
}

// NetworkOf returns the number of the network of tenants that a packet is in, and 0 for the default network.
func NetworkOf(in ofp.PacketIn2) tenant.ID {
	v, _, _ := in.Metadata.Get(inTenant.Field)
	return networkIn(v.Lo)
}

// MatchedNetwork returns the network of tenants that a flow matches: its number, and the zone if it is a separate one.
// They are 0 if it matches packets of several networks.
func MatchedNetwork(m flow.Match) (id tenant.ID, zone uint16) {
	get := func(b flow.Bits) uint64 {
		v, mask, _ := m.OXM().Get(b.Field)
		all := uint64(1<<b.Width-1) << b.First
		if !mask.IsZero() && mask.Lo&all != all {
			return 0
		}
		return v.Lo
	}
	if v := get(inZone); v>>isSeparate.First&1 == 1 {
		zone = uint16(v)
	}
	return networkIn(get(inTenant)), zone
}

// NetworkIn returns this number from the text of the register, as ofproto/trace writes it.
func NetworkIn(register string) tenant.ID {
	v, _ := strconv.ParseUint(register, 0, 32)
	return networkIn(v)
}

// NetworkRegister is the name of the register that has the number.
var NetworkRegister = inTenant.Field.String()

func networkIn(register uint64) tenant.ID {
	if register>>isTenant.First&1 == 0 {
		return 0
	}
	return tenant.ID(register & (1<<tenantID.Width - 1))
}

// askedIn returns the destination that connection tracking has from before any translation.
func askedIn(get func(ofp.Field) ofp.Value) (netip.AddrPort, error) {
	ip := netip.AddrFrom4([4]byte(get(ofp.CTNwDst).Append(nil, 4)))
	if v := get(ofp.CTIPv6Dst); !v.IsZero() {
		ip = netip.AddrFrom16([16]byte(v.Append(nil, 16)))
	}
	if ip.IsUnspecified() {
		return netip.AddrPort{}, errors.New("the packet is of no tracked connection")
	}
	return netip.AddrPortFrom(ip, uint16(get(ofp.CTTpDst).Lo)), nil
}

// reasonOf has the reason of drops by table. A rule's own flow comes before it.
var reasonOf = map[ofp.Table]string{
	Classify: record.NotAdmitted, Advertise: record.NotAdmitted,
	Conntrack: record.Invalid, ConntrackState: record.Invalid, Again: record.JudgedAgain, Exports: record.NotExported,
	External: record.NotAllowed, Service: record.NoLocal, Endpoint: record.NoEndpoints,
	Egress: record.Unknown, Ingress: record.Unknown, EgressRule: record.Isolated, IngressRule: record.Isolated,
	EgressAdmin: record.ByPolicy, IngressAdmin: record.ByPolicy,
	EgressBaseline: record.ByPolicy, IngressBaseline: record.ByPolicy,
	Route: record.NoRoute, Tenant: record.OtherTenant, Output: record.NotSent,
}

// Reason returns why a packet was dropped.
func (r Report) Reason() string {
	switch r.Kind {
	case PolicyReject:
		return record.ByPolicy
	case ServiceReject:
		return record.NoEndpoints
	case Opened:
		return ""
	}
	if _, ok := RuleTables[r.Table]; ok && r.Priority == fragments {
		return record.Fragment
	}
	return reasonOf[r.Table]
}

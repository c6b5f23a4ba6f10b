package ofprint

import (
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func (p *printer) hello(m ofp.Hello) {
	p.str("\n version bitmap: ")
	versions := slices.DeleteFunc(slices.Clone(m.Versions), func(v uint8) bool { return v == 0 || v > 31 })
	if len(versions) == 0 { // without a bitmap all up to the header's
		top := m.HeaderVersion
		if top == 0 {
			top = ofp.Version
		}
		for v := uint8(1); v <= top && v < 32; v++ {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	for i, v := range slices.Compact(versions) {
		if i > 0 {
			p.str(", ")
		}
		p.f("0x%02x", v)
	}
	if len(m.Elements)+len(m.Extra) > 0 && p.wire != nil {
		p.str("\n unknown data in hello:\n")
		p.hexDump(p.wire, true)
	}
}

func (p *printer) errorMessage(m ofp.Error) {
	p.f(" %s\n", m.Name())
	if m.ErrType == 0 { // the hello failed: a word to the reader
		for _, c := range m.Data {
			if c < 0x20 || c > 0x7e || c == '\\' || c == '"' {
				p.f("\\%03o", c)
			} else {
				p.b = append(p.b, c)
			}
		}
		return
	}
	p.fragment(m.Data, 1)
}

func (p *printer) echo(data []byte) {
	p.f(" %d bytes of payload\n", len(data))
	if p.verbosity > 1 {
		p.hexDump(data, true)
	}
}

// Names of the capabilities of a switch that OpenFlow 1.5 has (ofp_capabilities).
var capabilityNames = map[uint32]string{
	1 << 0: "FLOW_STATS", 1 << 1: "TABLE_STATS", 1 << 2: "PORT_STATS", 1 << 3: "GROUP_STATS",
	1 << 5: "IP_REASM", 1 << 6: "QUEUE_STATS", 1 << 8: "PORT_BLOCKED", 1 << 9: "BUNDLES",
	1 << 10: "FLOW_MONITORING",
}

func (p *printer) features(m ofp.FeaturesReply) {
	p.f(" dpid:%016x\nn_tables:%d, n_buffers:%d", m.DatapathID, m.Tables, m.Buffers)
	if m.AuxiliaryID != 0 {
		p.f(", auxiliary_id:%d", m.AuxiliaryID)
	}
	p.str("\ncapabilities: ")
	var known uint32
	for bit := range capabilityNames {
		known |= bit
	}
	p.bitNames(m.Capabilities&known, func(bit uint32) string { return capabilityNames[bit] }, " ")
	p.str("\n")
}

func (p *printer) config(flags, missSendLen uint16) {
	p.f(" frags=%s miss_send_len=%d\n", [...]string{"normal", "drop", "reassemble", "nx-match"}[flags&3], missSendLen)
}

var roleNames = []string{"nochange", "equal", "primary", "secondary"}

func (p *printer) role(role uint32, generation uint64) {
	p.str(" role=")
	if role < uint32(len(roleNames)) {
		p.str(roleNames[role])
	} else {
		p.num(uint64(role))
	}
	if generation != ofp.NoGeneration {
		p.f(" generation_id=%d", generation)
	}
}

var roleReasons = []string{"primary_request", "configuration_changed", "experimenter_data_changed"}

func (p *printer) roleStatus(m ofp.RoleStatus) {
	p.role(m.Role, m.GenerationID)
	p.str(" reason=")
	if int(m.Reason) < len(roleReasons) {
		p.str(roleReasons[m.Reason])
	} else {
		p.str("(unknown)")
	}
}

var controllerReasons = []string{"request", "channel_status", "role", "controller_added", "controller_removed",
	"short_id", "experimenter"}

// controllerStatus has no counterpart in Open vSwitch 3.1.
func (p *printer) controllerStatus(s ofp.ControllerStatus) {
	p.f("\n id=%d", s.ShortID)
	p.role(s.Role, ofp.NoGeneration)
	p.str(" reason=")
	if int(s.Reason) < len(controllerReasons) {
		p.str(controllerReasons[s.Reason])
	} else {
		p.num(uint64(s.Reason))
	}
	switch s.Channel {
	case ofp.ChannelUp:
		p.str(" channel=up")
	case ofp.ChannelDown:
		p.str(" channel=down")
	default:
		p.f(" channel=%d", s.Channel)
	}
	for _, uri := range s.URIs {
		p.f(" uri=%q", uri)
	}
}

// asyncKinds are the kinds of asynchronous messages, with the names of their reasons by bit. They are in the order of
// their properties. Each kind has two: for secondary and for primary.
var asyncKinds = []struct {
	name    string
	reasons []string
	allowed uint32
}{
	{"PACKET_IN", []string{"no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"}, 1<<6 - 1},
	{"PORT_STATUS", []string{"add", "delete", "modify"}, 1<<3 - 1},
	{"FLOW_REMOVED", []string{"idle", "hard", "delete", "group_delete", "meter_delete", "eviction"}, 1<<6 - 1},
	{"ROLE_STATUS", []string{"primary_request", "configuration_changed", "experimenter_data_changed"}, 1<<3 - 1},
	{"TABLE_STATUS", []string{3: "vacancy_down", 4: "vacancy_up"}, 1<<3 | 1<<4},
	{"REQUESTFORWARD", []string{"group_mod_request", "meter_mod_request"}, 1<<2 - 1},
}

func (p *printer) async(list []ofp.AsyncProperty) {
	masks := map[uint16]uint32{}
	for _, x := range list {
		masks[x.Kind] = x.Mask
	}
	for i, role := range []string{"primary", "secondary"} {
		p.f("\n %s:\n", role)
		for j, kind := range asyncKinds {
			p.f("%16s:", kind.name)
			mask := masks[uint16(2*j+1-i)] & kind.allowed
			for bit, reason := range kind.reasons {
				if mask&(1<<bit) != 0 {
					p.str(" " + reason)
				}
			}
			if mask == 0 {
				p.str(" (off)")
			}
			p.str("\n")
		}
	}
}

var bundleControls = []string{
	"OPEN_REQUEST", "OPEN_REPLY", "CLOSE_REQUEST", "CLOSE_REPLY", "COMMIT_REQUEST", "COMMIT_REPLY",
	"DISCARD_REQUEST", "DISCARD_REPLY",
}

func (p *printer) bundleFlags(flags uint16) {
	p.str(" flags=")
	p.bitNames(uint32(flags), func(bit uint32) string {
		switch uint16(bit) {
		case ofp.BundleAtomic:
			return "atomic"
		case ofp.BundleOrdered:
			return "ordered"
		}
		return ""
	}, " ")
}

func (p *printer) bundleControl(m ofp.BundleControl) {
	p.str("\n bundle_id=")
	p.hexAlt(uint64(m.ID))
	p.str(" type=")
	if int(m.Ctrl) < len(bundleControls) {
		p.str(bundleControls[m.Ctrl])
	}
	p.bundleFlags(m.Flags)
}

func (p *printer) bundleAdd(m ofp.BundleAdd) {
	p.str("\n bundle_id=")
	p.hexAlt(uint64(m.ID))
	p.bundleFlags(m.Flags)
	p.str("\n")
	if m.Message == nil {
		return
	}
	s := printer{b: p.b, start: len(p.b), verbosity: p.verbosity, names: p.names, deep: p.deep + 1}
	var wire []byte
	if inner := p.wire[min(16, len(p.wire)):]; ofp.MessageLen(inner) >= 8 {
		wire = inner[:min(ofp.MessageLen(inner), len(inner))]
	} else if p.verbosity >= 5 || needsBytes(m.Message) {
		wire, _ = ofp.AppendMessage(nil, p.xid, m.Message)
	}
	s.message(ofp.Version, p.xid, m.Message, wire)
	p.b = s.b
}

// bundleFeaturesRequest and bundleFeatures have no counterpart in Open vSwitch 3.1.
func (p *printer) bundleFeaturesRequest(m ofp.BundleFeaturesRequest) {
	p.str(" flags=")
	p.bitNames(m.Flags, nameByBit([]string{"timestamp", "time_set_sched"}), " ")
	p.bundleSchedule(m.Schedule)
}

func (p *printer) bundleFeatures(m ofp.BundleFeaturesReply) {
	p.str(" capabilities=")
	p.bitNames(uint32(m.Capabilities), nameByBit([]string{"atomic", "ordered", "time"}), " ")
	p.bundleSchedule(m.Schedule)
}

func (p *printer) bundleSchedule(s *ofp.BundleSchedule) {
	if s == nil {
		return
	}
	for _, x := range []struct {
		name string
		t    ofp.Time
	}{{"accuracy", s.Accuracy}, {"max_future", s.MaxFuture}, {"max_past", s.MaxPast}, {"timestamp", s.Timestamp}} {
		p.f("\n %s=%d.%09ds", x.name, x.t.Seconds, x.t.Nanoseconds)
	}
}

func packetInFormat(format uint32) string {
	names := [...]string{"standard", "nxt_packet_in", "nxt_packet_in2"}
	if format < uint32(len(names)) {
		return names[format]
	}
	return "unknown"
}

func (p *printer) desc(m ofp.DescReply) {
	p.f("\nManufacturer: %s\nHardware: %s\nSoftware: %s\nSerial Num: %s\nDP Description: %s\n",
		m.Manufacturer, m.Hardware, m.Software, m.Serial, m.Datapath)
}

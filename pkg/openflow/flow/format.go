package flow

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// printer writes ovs-ofctl's text. ovs-ofctl leaves out some masks, fields and flags, and with asOVS the printer does
// the same. Otherwise it writes everything in a form that can be read back.
type printer struct {
	b     []byte
	asOVS bool
	names *Names // nil, or what ports and tables are called
}

func (p *printer) str(s string)            { p.b = append(p.b, s...) }
func (p *printer) num(v uint64)            { p.b = strconv.AppendUint(p.b, v, 10) }
func (p *printer) f(s string, args ...any) { p.b = fmt.Appendf(p.b, s, args...) }
func (p *printer) chomp() { // a comma at the end
	if n := len(p.b); n > 0 && p.b[n-1] == ',' {
		p.b = p.b[:n-1]
	}
}

var flagNames = []struct {
	bit  uint16
	name string
}{
	{ofp.FlagSendFlowRem, "send_flow_rem"}, {ofp.FlagCheckOverlap, "check_overlap"}, {ofp.FlagResetCounts, "reset_counts"},
	{ofp.FlagNoPktCounts, "no_packet_counts"}, {ofp.FlagNoBytCounts, "no_byte_counts"},
}

// String returns the flow as ovs-ofctl dump-flows --no-stats --no-names prints it, without the space in front.
// ParseFlow and ovs-ofctl add-flows read it. Unlike ovs-ofctl's text, it is always complete: see OVSText.
func (f Flow) String() string {
	var p printer
	p.flow(f)
	return string(p.b)
}

// OVSText is String exactly as ovs-ofctl prints it. It leaves out: masks of tun_gbp_flags, of ERSPAN and GTP-U fields,
// and of tunnel options where they cover the whole value; zero in most ERSPAN and GTP-U fields, of which Open vSwitch
// 3.1 takes the value for the mask; ERSPAN fields with a tun_erspan_ver of other fields; nsh_c1 to nsh_c4 without
// nsh_mdtype=1; that packets are to begin with Ethernet (eth); flags of nat without an address; ct of
// resubmit(PORT,,ct); zeros in front of a TLV in encap(nsh(...)); unknown fields.
func (f Flow) OVSText() string {
	p := printer{asOVS: true}
	p.flow(f)
	return string(p.b)
}

func (p *printer) flow(f Flow) {
	if f.Cookie != 0 {
		p.f("cookie=0x%x, ", f.Cookie)
	}
	if table := p.table(f.Table); table != "0" { // table 0 goes without saying unless it has a name
		p.str("table=" + table + ", ")
	}
	if f.IdleTimeout != 0 {
		p.f("idle_timeout=%d, ", f.IdleTimeout)
	}
	if f.HardTimeout != 0 {
		p.f("hard_timeout=%d, ", f.HardTimeout)
	}
	p.flowFlags(f.Flags)
	if f.Importance != 0 {
		p.f("importance=%d, ", f.Importance)
	}
	start := len(p.b)
	p.priorityAndMatch(f)
	if len(p.b) > start {
		p.str(" ")
	}
	p.str("actions=")
	p.actions(f.Actions.Canonical())
}

func (p *printer) flowFlags(flags uint16) {
	for _, x := range flagNames {
		if flags&x.bit != 0 {
			p.str(x.name + " ")
		}
	}
}

func (p *printer) priorityAndMatch(f Flow) {
	if f.Priority != DefaultPriority {
		p.f("priority=%d,", f.Priority)
	}
	if f.Match.err != "" {
		p.str(f.Match.String())
		return
	}
	p.match(f.Match)
	p.chomp()
}

// String is what the line of a flow file says: the command unless it adds, and its flow.
func (m Mod) String() string {
	var p printer
	if m.Command == ofp.FlowAdd {
		p.flow(m.Flow)
		return string(p.b)
	}
	p.str(commandNames[m.Command] + " ")
	if m.CookieMask != 0 {
		p.f("cookie=0x%x/0x%x, ", m.Cookie, m.CookieMask)
	}
	if !m.AnyTable && m.deletes() && m.Flow.Table == 0 {
		p.str("table=0, ")
	}
	if m.OutPort != ofp.PortAny {
		p.f("out_port=%s, ", p.port(m.OutPort))
	}
	if m.OutGroup != ofp.GroupAny {
		p.f("out_group=%d, ", m.OutGroup)
	}
	f := m.Flow
	if !m.deletes() {
		p.flow(f)
		return string(p.b)
	}
	if f.Table != 0 {
		p.f("table=%s, ", p.table(f.Table))
	}
	if m.Command == ofp.FlowDelete {
		f.Priority = DefaultPriority
	}
	p.priorityAndMatch(f)
	return strings.TrimSuffix(string(p.b), " ") // after a command alone
}

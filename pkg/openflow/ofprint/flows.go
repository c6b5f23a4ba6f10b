package ofprint

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var flowCommands = []string{"ADD", "MOD", "MOD_STRICT", "DEL", "DEL_STRICT"}

func (p *printer) flowMod(m ofp.FlowMod) {
	p.str(" ")
	if int(m.Command) < len(flowCommands) {
		p.str(flowCommands[m.Command])
	} else {
		p.f("cmd:%d", m.Command)
	}
	if table := p.names.Table(m.Table); table != "0" {
		p.str(" table:" + table)
	}
	p.str(" ")
	p.match(m.Match, m.Priority)
	if p.last() != ' ' {
		p.str(" ")
	}
	// To all but additions the cookie is a condition, and importance means nothing.
	if m.Command == ofp.FlowAdd {
		if m.Cookie != 0 && m.Cookie != ^uint64(0) {
			p.f("cookie:0x%x ", m.Cookie)
		}
	} else if m.CookieMask != 0 {
		p.f("cookie:0x%x/0x%x ", m.Cookie, m.CookieMask)
	}
	if m.IdleTimeout != 0 {
		p.f("idle:%d ", m.IdleTimeout)
	}
	if m.HardTimeout != 0 {
		p.f("hard:%d ", m.HardTimeout)
	}
	if m.Importance != 0 && m.Command == ofp.FlowAdd {
		p.f("importance:%d ", m.Importance)
	}
	if m.BufferID != ofp.NoBuffer && m.BufferID != 0 {
		p.f("buf:0x%x ", m.BufferID)
	}
	if port := anyPort(m.OutPort); port != ofp.PortAny {
		p.f("out_port:%s ", p.names.Port(port))
	}
	p.flowFlags(m.Flags)
	p.str("actions=")
	p.actions(m.Actions)
}

var flowFlagNames = []string{"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"}

func (p *printer) flowFlags(flags uint16) {
	for i, name := range flowFlagNames {
		if flags&(1<<i) != 0 {
			p.str(name + " ")
		}
	}
}

var removedReasons = []string{"idle", "hard", "delete", "group_delete", "meter_delete", "eviction"}

func (p *printer) removedReason(reason uint8) {
	if int(reason) < len(removedReasons) {
		p.str(removedReasons[reason])
	} else {
		p.num(uint64(reason))
	}
}

func (p *printer) flowRemoved(m ofp.FlowRemoved) {
	p.str(" ")
	p.match(m.Match, m.Priority)
	p.str(" reason=")
	p.removedReason(m.Reason)
	if m.Table != ofp.TableAll {
		p.str(" table_id=" + p.names.Table(m.Table))
	}
	if m.Cookie != 0 {
		p.f(" cookie:0x%x", m.Cookie)
	}
	p.str(" duration")
	p.duration(m.Stats.DurationSec, m.Stats.DurationNsec)
	p.f(" idle%d", m.IdleTimeout)
	if m.HardTimeout != 0 {
		p.f(" hard%d", m.HardTimeout)
	}
	p.f(" pkts%d bytes%d\n", m.Stats.Packets, m.Stats.Bytes)
}

func (p *printer) flowFilter(f ofp.FlowFilter) {
	if f.Table != ofp.TableAll {
		p.str(" table=" + p.names.Table(f.Table))
	}
	if port := anyPort(f.OutPort); port != ofp.PortAny {
		p.str(" out_port=" + p.names.Port(port))
	}
	p.str(" ")
	p.match(f.Match, flow.DefaultPriority)
}

// flowDesc is a flow with everything that the switch reports of it.
func (p *printer) flowDesc(d ofp.FlowDesc) {
	p.f("\n cookie=0x%x, duration=", d.Cookie)
	p.duration(d.Stats.DurationSec, d.Stats.DurationNsec)
	p.str(", table=" + p.names.Table(d.Table) + ", n_packets=")
	p.counter(d.Stats.Packets)
	p.str(", n_bytes=")
	p.counter(d.Stats.Bytes)
	p.str(", ")
	if d.IdleTimeout != 0 {
		p.f("idle_timeout=%d, ", d.IdleTimeout)
	}
	if d.HardTimeout != 0 {
		p.f("hard_timeout=%d, ", d.HardTimeout)
	}
	p.flowFlags(d.Flags)
	if d.Importance != 0 {
		p.f("importance=%d, ", d.Importance)
	}
	p.idle(d.Stats)
	before := len(p.b)
	p.match(d.Match, d.Priority)
	if len(p.b) > before {
		p.str(" ")
	}
	p.str("actions=")
	p.actions(d.Actions)
}

// idle prints for how long no packet has come; the switch sends a large number for never.
func (p *printer) idle(s ofp.Stats) {
	if int32(s.IdleSec) >= 0 {
		p.f("idle_age=%d, ", s.IdleSec)
	}
}

// flowStats is a flow without its actions.
func (p *printer) flowStats(s ofp.FlowStats) {
	p.str("\n duration=")
	p.duration(s.Stats.DurationSec, s.Stats.DurationNsec)
	p.str(", table=" + p.names.Table(s.Table) + ", n_packets=")
	p.counter(s.Stats.Packets)
	p.str(", n_bytes=")
	p.counter(s.Stats.Bytes)
	p.str(", ")
	p.idle(s.Stats)
	if s.Reason != 0 {
		p.f("reason=%d, ", s.Reason)
	}
	p.match(s.Match, s.Priority)
	p.chomp(' ')
	p.chomp(',')
}

var monitorFlagNames = []string{"initial", "add", "delete", "modify", "actions", "no-abbrev", "own"}

func (p *printer) flowMonitorRequest(m ofp.FlowMonitorRequest) {
	if m.Command == ofp.MonitorCommandDelete {
		p.f("\n id=%d command=delete", m.ID)
		return
	}
	p.f("\n id=%d flags=", m.ID)
	p.bitNames(uint32(m.Flags), nameByBit(monitorFlagNames), ",")
	if port := anyPort(m.OutPort); port != ofp.PortAny {
		p.str(" out_port=" + p.names.Port(port))
	}
	if m.OutGroup != 0 && m.OutGroup != ofp.GroupAny {
		p.f(" out_group=%d", int32(m.OutGroup))
	}
	if m.Table != ofp.TableAll {
		p.str(" table=" + p.names.Table(m.Table))
	}
	p.str(" ")
	p.match(m.Match, flow.DefaultPriority)
	p.chomp(' ')
}

func nameByBit(names []string) func(bit uint32) string {
	return func(bit uint32) string {
		for i, name := range names {
			if bit == 1<<i {
				return name
			}
		}
		return ""
	}
}

// flowUpdate is one report of a flow monitor.
func (p *printer) flowUpdate(u ofp.FlowUpdate) {
	p.str("\n event=")
	switch u.Event {
	case ofp.UpdateInitial:
		p.str("INITIAL")
	case ofp.UpdateAdded:
		p.str("ADDED")
	case ofp.UpdateRemoved:
		p.str("DELETED reason=")
		p.removedReason(u.Reason)
	case ofp.UpdateModified:
		p.str("MODIFIED")
	case ofp.UpdateAbbrev:
		p.f("ABBREV xid=0x%x", u.XID)
		return
	case ofp.UpdatePaused:
		p.str("PAUSED")
		return
	case ofp.UpdateResumed:
		p.str("RESUMED")
		return
	default:
		p.num(uint64(u.Event))
	}
	p.str(" table=" + p.names.Table(u.Table))
	if u.IdleTimeout != 0 {
		p.f(" idle_timeout=%d", u.IdleTimeout)
	}
	if u.HardTimeout != 0 {
		p.f(" hard_timeout=%d", u.HardTimeout)
	}
	p.str(" cookie=")
	p.hexAlt(u.Cookie)
	p.str(" ")
	p.match(u.Match, flow.DefaultPriority) // ovs-ofctl leaves the priority out as well
	if len(u.Actions) > 0 {
		if p.last() != ' ' {
			p.str(" ")
		}
		p.str("actions=")
		p.actions(u.Actions)
	}
}

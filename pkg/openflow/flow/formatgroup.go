package flow

import (
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var groupTypes = []string{"all", "select", "indirect", "ff"}

// String returns the group as ovs-ofctl -O OpenFlow15 dump-groups prints it, without the space in front. ParseGroup and
// ovs-ofctl add-groups read it.
func (g Group) String() string {
	var p printer
	p.group(g)
	return string(p.b)
}

// OVSText is String exactly as ovs-ofctl prints it: see Flow.OVSText.
func (g Group) OVSText() string {
	p := printer{asOVS: true}
	p.group(g)
	return string(p.b)
}

func (p *printer) group(g Group) {
	p.f("group_id=%d,type=", g.ID)
	if int(g.Type) < len(groupTypes) {
		p.str(groupTypes[g.Type])
	} else {
		p.str("unknown")
	}
	if s := g.Selection; s.Method != "" {
		p.str(",selection_method=" + s.Method)
		if s.Param != 0 {
			p.f(",selection_method_param=%d", s.Param)
		}
		list := s.Sorted()
		slices.SortFunc(list, func(a, b ofp.MatchField) int { return metaFlow[a.Field] - metaFlow[b.Field] })
		for i, f := range list {
			switch {
			case i > 0:
				p.str(",")
			case len(list) > 1:
				p.str(",fields(")
			default:
				p.str(",fields=")
			}
			p.str(f.Field.String())
			if full := ofp.Ones(f.Field.Bits()); f.Mask != full {
				p.str("=")
				p.value(f.Field, f.Mask, full)
			}
		}
		if len(list) > 1 {
			p.str(")")
		}
	}
	for _, b := range g.Buckets {
		p.f(",bucket=bucket_id:%d,", b.ID)
		if b.Weight != 1 && g.Type == Select || b.Weight != 0 && g.Type != Select {
			p.f("weight:%d,", b.Weight)
		}
		if b.watchPort() != ofp.PortAny {
			p.str("watch_port:" + p.port(b.WatchPort) + ",")
		}
		if b.watchGroup() != ofp.GroupAny {
			p.f("watch_group:%d,", b.WatchGroup)
		}
		p.str("actions=")
		p.actions(b.Actions.Canonical())
	}
	if len(g.Buckets) == 0 {
		p.chomp()
	}
}

// metaFlow maps each field to its place in Open vSwitch's meta-flow.h. ovs-ofctl sorts a group's fields by that place.
var metaFlow = func() map[ofp.Field]int {
	m := map[ofp.Field]int{}
	for i, f := range ofp.MetaFlow() {
		m[f] = i
	}
	return m
}()

// meterFlags are a meter's flags by name.
var meterFlags = []struct {
	bit  uint16
	name string
}{{ofp.MeterKbps, "kbps"}, {ofp.MeterPktps, "pktps"}, {ofp.MeterBurst, "burst"}, {ofp.MeterStats, "stats"}}

// meterNames are the meters without a number.
var meterNames = map[uint32]string{ofp.MeterSlowPath: "slowpath", ofp.MeterController: "controller",
	ofp.MeterAll: "all"}

// String is the meter as ovs-ofctl prints it. ParseMeter and ovs-ofctl add-meter read it.
func (m Meter) String() string {
	var p printer
	if n := meterNames[m.ID]; n != "" {
		p.str("meter=" + n)
	} else {
		p.f("meter=%d", m.ID)
	}
	for _, x := range meterFlags {
		if m.Flags&x.bit != 0 {
			p.str(" " + x.name)
		}
	}
	p.str(" bands=")
	for _, b := range m.Bands {
		switch b.Kind {
		case ofp.BandDrop:
			p.f("\ntype=drop rate=%d", b.Rate)
		case ofp.BandDSCPRemark:
			p.f("\ntype=dscp_remark rate=%d", b.Rate)
		default:
			p.f("\ntype=%d rate=%d", b.Kind, b.Rate)
		}
		if m.Flags&ofp.MeterBurst != 0 {
			p.f(" burst_size=%d", b.Burst)
		}
		if b.Kind == ofp.BandDSCPRemark {
			p.f(" prec_level=%d", b.PrecLevel)
		}
	}
	return string(p.b)
}

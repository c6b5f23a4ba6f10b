package ofprint

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// meterMax is the largest number of an ordinary meter.
const meterMax uint32 = 0xffff0000

func (p *printer) meterID(id uint32, separator string) {
	p.str("meter" + separator)
	switch {
	case id <= meterMax:
		p.num(uint64(id))
	case id == ofp.MeterSlowPath:
		p.str("slowpath")
	case id == ofp.MeterController:
		p.str("controller")
	case id == ofp.MeterAll:
		p.str("all")
	default:
		p.str("unknown")
	}
}

func (p *printer) meterMod(m ofp.MeterMod) {
	switch m.Command {
	case ofp.MeterAdd:
		p.str(" ADD ")
	case ofp.MeterModify:
		p.str(" MOD ")
	case ofp.MeterDelete:
		p.str(" DEL ")
	default:
		p.f(" cmd:%d ", m.Command)
	}
	p.meter(ofp.MeterDesc{Flags: m.Flags, ID: m.ID, Bands: m.Bands})
}

var meterFlagNames = []string{"kbps", "pktps", "burst", "stats"}

func (p *printer) meter(m ofp.MeterDesc) {
	p.meterID(m.ID, "=")
	p.str(" ")
	for i, name := range meterFlagNames {
		if m.Flags&(1<<i) != 0 {
			p.str(name + " ")
		}
	}
	if rest := m.Flags &^ (1<<len(meterFlagNames) - 1); rest != 0 {
		p.f("flags:0x%x ", rest)
	}
	p.str("bands=")
	for _, b := range m.Bands {
		switch b.Kind {
		case ofp.BandDrop:
			p.str("\ntype=drop")
		case ofp.BandDSCPRemark:
			p.str("\ntype=dscp_remark")
		default:
			p.f("\ntype=%d", b.Kind)
		}
		p.f(" rate=%d", b.Rate)
		if m.Flags&ofp.MeterBurst != 0 {
			p.f(" burst_size=%d", b.Burst)
		}
		if b.Kind == ofp.BandDSCPRemark {
			p.f(" prec_level=%d", b.PrecLevel)
		}
	}
	p.str("\n")
}

// meterRequest prints the number in a request; 0 is sent as MeterAll.
func (p *printer) meterRequest(id uint32) {
	if id == 0 {
		id = ofp.MeterAll
	}
	p.str(" ")
	p.meterID(id, "=")
}

func (p *printer) meterStats(m ofp.MeterStatistics) {
	p.str("\n")
	p.meterID(m.ID, ":")
	p.f(" flow_count:%d packet_in_count:%d byte_in_count:%d duration:", m.Flows, m.Packets, m.Bytes)
	p.duration(m.DurationSec, m.DurationNsec)
	p.str(" bands:\n")
	for i, b := range m.Bands {
		p.f("%d: packet_count:%d byte_count:%d\n", i, b.Packets, b.Bytes)
	}
}

func (p *printer) meterFeatures(m ofp.MeterFeaturesReply) {
	p.f("\nmax_meter:%d max_bands:%d max_color:%d\nband_types: ", m.MaxMeters, m.MaxBands, m.MaxColor)
	p.bitNames(m.BandTypes, nameByBit([]string{ofp.BandDrop: "drop", ofp.BandDSCPRemark: "dscp_remark"}), " ")
	p.str("\ncapabilities: ")
	p.bitNames(m.Capabilities, nameByBit(meterFlagNames), " ")
	p.str("\n")
}

// requestForward prints what another controller has asked for.
func (p *printer) requestForward(m ofp.RequestForward) {
	p.str(" reason=")
	switch r := m.Request.(type) {
	case ofp.GroupMod:
		p.str("group_mod")
		p.groupMod(r)
	case ofp.MeterMod:
		p.str("meter_mod")
		p.meterMod(r)
	}
}

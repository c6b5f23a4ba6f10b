package ofp

// These are features of a port (ofp_port_features): bits of PortDesc.Current, Advertised, Supported, Peer and of
// PortMod.Advertise.
const (
	PortFeature10MbHalf  uint32 = 1 << 0
	PortFeature10MbFull  uint32 = 1 << 1
	PortFeature100MbHalf uint32 = 1 << 2
	PortFeature100MbFull uint32 = 1 << 3
	PortFeature1GbHalf   uint32 = 1 << 4
	PortFeature1GbFull   uint32 = 1 << 5
	PortFeature10GbFull  uint32 = 1 << 6
	PortFeature40GbFull  uint32 = 1 << 7
	PortFeature100GbFull uint32 = 1 << 8
	PortFeature1TbFull   uint32 = 1 << 9
	PortFeatureOther     uint32 = 1 << 10
	PortFeatureCopper    uint32 = 1 << 11
	PortFeatureFiber     uint32 = 1 << 12
	PortFeatureAutoneg   uint32 = 1 << 13
	PortFeaturePause     uint32 = 1 << 14
	PortFeaturePauseAsym uint32 = 1 << 15
)

// OpticalPort has the abilities of an optical port (ofp_port_desc_prop_optical). Frequencies are in MHz. With
// OpticalLambda they are wavelengths in nm times 100. Powers are in dBm times 10.
type OpticalPort struct {
	Supported                        uint32 // OFPOPF_*
	TxMinFreq, TxMaxFreq, TxGridFreq uint32
	RxMinFreq, RxMaxFreq, RxGridFreq uint32
	TxPowerMin, TxPowerMax           uint16
}

// Features of an optical port (ofp_optical_port_features).
const (
	OpticalRxTunable uint32 = 1 << 0
	OpticalTxTunable uint32 = 1 << 1
	OpticalTxPower   uint32 = 1 << 2
	OpticalUseFreq   uint32 = 1 << 3
)

// PortMod changes a port (OFPT_PORT_MOD). It sets the bits of Config that are in Mask and, if Advertise is not 0, the
// advertised features. MAC must be the port's own.
type PortMod struct {
	Port         Port
	MAC          MAC
	Config, Mask uint32 // PortConfig constants
	Advertise    uint32 // PortFeature constants; 0 leaves it as it is
	Optical      *OpticalPortMod
	Properties   []RawProperty
}

// OpticalPortMod tunes an optical port (ofp_port_mod_prop_optical).
type OpticalPortMod struct {
	Configure  uint32 // OFPOPF_*
	Freq       uint32
	FreqOffset int32
	GridSpan   uint32
	TxPower    uint32
}

// PortStatsRequest asks for ports' counters; a zero Port is encoded as PortAny.
type PortStatsRequest struct{ Port Port }

// PortStats are one port's counters. A counter of all ones means that the switch lacks it. Durations are the age of the
// port.
type PortStats struct {
	Port                      Port
	DurationSec, DurationNsec uint32
	RxPackets, TxPackets      uint64
	RxBytes, TxBytes          uint64
	RxDropped, TxDropped      uint64
	RxErrors, TxErrors        uint64
	Ethernet                  *EthernetStats
	Optical                   *OpticalStats
	RMON                      *RMONStats    // Open vSwitch: of DPDK's ports
	Custom                    []CustomStat  // Open vSwitch: named by the port's driver
	Properties                []RawProperty // those not listed above
}

// EthernetStats are the counters of ofp_port_stats_prop_ethernet.
type EthernetStats struct{ FrameErrors, Overruns, CRCErrors, Collisions uint64 }

// OpticalStats are the readings of ofp_port_stats_prop_optical.
type OpticalStats struct {
	Flags                        uint32 // OFPOSF_*
	TxFreq, TxOffset, TxGridSpan uint32
	RxFreq, RxOffset, RxGridSpan uint32
	TxPower, RxPower             uint16
	BiasCurrent, Temperature     uint16
}

// RMONStats are the counters of RFC 2819 that Open vSwitch reports in a property of its own
// (INTEL_PORT_STATS_RFC2819). Sizes are in the order 1–64, 65–127, 128–255, 256–511, 512–1023,
// 1024–1522 and more than 1522 bytes.
type RMONStats struct {
	RxSizes, TxSizes                                  [7]uint64
	TxMulticast, RxBroadcast, TxBroadcast             uint64
	RxUndersized, RxOversized, RxFragmented, RxJabber uint64
}

// CustomStat is one counter that Open vSwitch reports under a name of the port's driver
// (INTEL_PORT_STATS_CUSTOM).
type CustomStat struct {
	Name  string
	Value uint64
}

// PortStatsReply is one part of the answer to PortStatsRequest.
type PortStatsReply struct {
	More  bool
	Ports []PortStats
}

// Type of the messages about ports.
func (PortMod) Type() Type          { return TypePortMod }
func (PortStatsRequest) Type() Type { return TypeMultipartRequest }
func (PortStatsReply) Type() Type   { return TypeMultipartReply }

// MultipartType of the messages about ports.
func (PortStatsRequest) MultipartType() MultipartType { return MultipartPortStats }
func (PortStatsReply) MultipartType() MultipartType   { return MultipartPortStats }

// HasMore of the messages about ports.
func (PortStatsRequest) HasMore() bool { return false }
func (m PortStatsReply) HasMore() bool { return m.More }

// Types of properties of ports, the same in port_mod, port_desc and port_stats.
const (
	portEthernet uint16 = iota
	portOptical
	portPipelineInput
	portPipelineOutput
	portRecirculate
)

func (m PortMod) appendTo(e *encoder) {
	e.checkPort("port", m.Port)
	e.u32(uint32(m.Port))
	e.zero(4)
	e.bytes(m.MAC[:])
	e.zero(2)
	e.u32s(m.Config, m.Mask)
	if m.Config&^m.Mask != 0 {
		e.fail("port %d: config %#x has bits outside of mask %#x", m.Port, m.Config, m.Mask)
	}
	if m.Advertise != 0 {
		p := e.propStart(portEthernet)
		e.u32(m.Advertise)
		e.propEnd(p)
	}
	if o := m.Optical; o != nil {
		p := e.propStart(portOptical)
		e.u32s(o.Configure, o.Freq, uint32(o.FreqOffset), o.GridSpan, o.TxPower)
		e.propEnd(p)
	}
	e.raw(m.Properties)
}
func (d *decoder) portMod() Message {
	m := PortMod{Port: Port(d.u32("port_no"))}
	d.skip(4)
	copy(m.MAC[:], d.take("hw_addr", 6))
	d.skip(2)
	m.Config, m.Mask = d.u32("config"), d.u32("mask")
	for d.left() > 0 {
		switch kind, p := d.prop("port property"); kind {
		case portEthernet:
			m.Advertise = p.u32("advertise")
			p.end("advertise")
		case portOptical:
			m.Optical = &OpticalPortMod{p.u32("configure"), p.u32("freq_lmda"), int32(p.u32("fl_offset")), p.u32("grid_span"),
				p.u32("tx_pwr")}
		default:
			m.Properties = append(m.Properties, p.raw(kind))
		}
	}
	return m
}

// portProperties appends the properties of a PortDesc that follow the Ethernet one.
func (e *encoder) portProperties(p PortDesc) {
	if o := p.Optical; o != nil {
		s := e.propStart(portOptical)
		e.zero(4)
		e.u32s(o.Supported, o.TxMinFreq, o.TxMaxFreq, o.TxGridFreq, o.RxMinFreq, o.RxMaxFreq, o.RxGridFreq)
		e.u16s(o.TxPowerMin, o.TxPowerMax)
		e.propEnd(s)
	}
	e.fieldIDs(portPipelineInput, p.InputFields)
	e.fieldIDs(portPipelineOutput, p.OutputFields)
	if p.Recirculate != nil {
		s := e.propStart(portRecirculate)
		for _, n := range p.Recirculate {
			e.u32(uint32(n))
		}
		e.propEnd(s)
	}
	e.raw(p.Properties)
}
func (d *decoder) portProperty(kind uint16, m *PortDesc) {
	switch kind {
	case portEthernet:
		d.skip(4)
		d.u32s("ethernet", &m.Current, &m.Advertised, &m.Supported, &m.Peer, &m.CurrentSpeed, &m.MaxSpeed)
		d.end("ethernet")
	case portOptical:
		o := &OpticalPort{}
		d.skip(4)
		d.u32s("optical", &o.Supported, &o.TxMinFreq, &o.TxMaxFreq, &o.TxGridFreq, &o.RxMinFreq, &o.RxMaxFreq, &o.RxGridFreq)
		d.u16s("optical power", &o.TxPowerMin, &o.TxPowerMax)
		m.Optical = o
	case portPipelineInput:
		m.InputFields = d.fieldIDs()
	case portPipelineOutput:
		m.OutputFields = d.fieldIDs()
	case portRecirculate:
		m.Recirculate = []Port{}
		for d.left() > 0 {
			m.Recirculate = append(m.Recirculate, Port(d.u32("port_no")))
		}
	default:
		m.Properties = append(m.Properties, d.raw(kind))
	}
}

func (m PortStatsRequest) appendTo(e *encoder) { e.multipart(m); e.id(uint32(m.Port), uint32(PortAny)) }

// Experimenter's properties of port statistics (intel-ext.h).
const (
	intelVendor  uint32 = 0x0000aa01
	intelRMON    uint32 = 1
	intelCustom  uint32 = 2
	rmonSize            = 184
	customNameIn        = 255 // bytes of a counter's name, at most
)

func (m PortStatsReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, s := range m.Ports {
		start := len(e.b)
		e.zero(4)
		e.u32s(uint32(s.Port), s.DurationSec, s.DurationNsec)
		e.u64s(s.RxPackets, s.TxPackets, s.RxBytes, s.TxBytes, s.RxDropped, s.TxDropped, s.RxErrors, s.TxErrors)
		if t := s.Ethernet; t != nil {
			p := e.propStart(portEthernet)
			e.zero(4)
			e.u64s(t.FrameErrors, t.Overruns, t.CRCErrors, t.Collisions)
			e.propEnd(p)
		}
		if o := s.Optical; o != nil {
			p := e.propStart(portOptical)
			e.zero(4)
			e.u32s(o.Flags, o.TxFreq, o.TxOffset, o.TxGridSpan, o.RxFreq, o.RxOffset, o.RxGridSpan)
			e.u16s(o.TxPower, o.RxPower, o.BiasCurrent, o.Temperature)
			e.propEnd(p)
		}
		if r := s.RMON; r != nil {
			p := e.propStart(ExperimenterProperty)
			e.u32s(intelVendor, intelRMON, 0)
			e.u64s(r.RxSizes[:]...)
			e.u64s(r.TxSizes[:]...)
			e.u64s(r.TxMulticast, r.RxBroadcast, r.TxBroadcast, r.RxUndersized, r.RxOversized, r.RxFragmented, r.RxJabber)
			e.propEnd(p)
		}
		if s.Custom != nil {
			p := e.propStart(ExperimenterProperty)
			e.u32s(intelVendor, intelCustom)
			e.u16s(0, uint16(len(s.Custom)))
			for _, c := range s.Custom {
				if len(c.Name) > customNameIn {
					e.fail("port %d: the name of a counter has %d bytes, more than %d", s.Port, len(c.Name), customNameIn)
				}
				e.u8(uint8(len(c.Name)))
				e.str(c.Name)
				e.u64(c.Value)
			}
			e.propEnd(p)
		}
		e.raw(s.Properties)
		e.len16(start, 0)
	}
}
func (d *decoder) portStats() PortStats {
	e := d.entry("port stats", 80)
	e.skip(4)
	s := PortStats{Port: Port(e.u32("port_no")), DurationSec: e.u32("duration_sec"), DurationNsec: e.u32("duration_nsec")}
	e.u64s("counters", &s.RxPackets, &s.TxPackets, &s.RxBytes, &s.TxBytes, &s.RxDropped, &s.TxDropped, &s.RxErrors,
		&s.TxErrors)
	for e.left() > 0 {
		kind, p := e.prop("port stats property")
		switch vendor, sub := p.peekVendor(kind); {
		case kind == portEthernet:
			t := &EthernetStats{}
			p.skip(4)
			p.u64s("ethernet", &t.FrameErrors, &t.Overruns, &t.CRCErrors, &t.Collisions)
			p.end("ethernet")
			s.Ethernet = t
		case kind == portOptical:
			o := &OpticalStats{}
			p.skip(4)
			p.u32s("optical", &o.Flags, &o.TxFreq, &o.TxOffset, &o.TxGridSpan, &o.RxFreq, &o.RxOffset, &o.RxGridSpan)
			p.u16s("optical", &o.TxPower, &o.RxPower, &o.BiasCurrent, &o.Temperature)
			s.Optical = o
		case vendor == intelVendor && sub == intelRMON:
			s.RMON = p.rmon()
		case vendor == intelVendor && sub == intelCustom:
			s.Custom = p.customStats()
		default:
			s.Properties = append(s.Properties, p.raw(kind))
		}
	}
	return s
}

// peekVendor looks at the numbers of an experimenter's property; both are 0 in others.
func (d *decoder) peekVendor(kind uint16) (vendor, sub uint32) {
	if kind != ExperimenterProperty || d.left() < 8 {
		return 0, 0
	}
	return uint32(ToValue(d.buf[:4]).Lo), uint32(ToValue(d.buf[4:8]).Lo)
}

func (d *decoder) rmon() *RMONStats {
	if n := d.left() + 4; n != rmonSize {
		d.fail("RFC 2819 counters", "the property has %d bytes, want %d", n, rmonSize)
		return nil
	}
	r := &RMONStats{}
	d.skip(12)
	for i := range r.RxSizes {
		r.RxSizes[i] = d.u64("rx_packets")
	}
	for i := range r.TxSizes {
		r.TxSizes[i] = d.u64("tx_packets")
	}
	d.u64s("RFC 2819 counters", &r.TxMulticast, &r.RxBroadcast, &r.TxBroadcast, &r.RxUndersized, &r.RxOversized,
		&r.RxFragmented, &r.RxJabber)
	return r
}

func (d *decoder) customStats() []CustomStat {
	d.skip(10)
	n, list := int(d.u16("stats_array_size")), []CustomStat{}
	for range n {
		c := CustomStat{Name: string(d.take("counter name", int(d.u8("counter name length")))), Value: d.u64("counter value")}
		if !d.ok() {
			return nil
		}
		list = append(list, c)
	}
	d.end("custom counters")
	return list
}

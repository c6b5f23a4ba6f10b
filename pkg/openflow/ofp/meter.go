package ofp

// MeterStatsRequest asks for meters' counters; a zero ID is encoded as MeterAll.
type MeterStatsRequest struct{ ID uint32 }

// BandStats are how many packets and bytes a band has dropped or remarked.
type BandStats struct{ Packets, Bytes uint64 }

// MeterStatistics are one meter's counters; Packets and Bytes are those it has seen.
type MeterStatistics struct {
	ID                        uint32
	Flows                     uint32 // how many flows use it
	Packets, Bytes            uint64
	DurationSec, DurationNsec uint32
	Bands                     []BandStats
}

// MeterStatsReply is one part of the answer to MeterStatsRequest.
type MeterStatsReply struct {
	More   bool
	Meters []MeterStatistics
}

// MeterFeaturesRequest asks what meters the switch can have.
type MeterFeaturesRequest struct{}

// MeterFeaturesReply has the switch's abilities with meters. BandTypes has the bit 1<<BandDrop and so on. Capabilities
// has the supported flags of meters. Open vSwitch does not send Features (ofp_meter_feature_flags).
type MeterFeaturesReply struct {
	MaxMeters    uint32
	BandTypes    uint32
	Capabilities uint32
	MaxBands     uint8
	MaxColor     uint8
	Features     uint32
}

// Type of the messages about meters.
func (MeterStatsRequest) Type() Type    { return TypeMultipartRequest }
func (MeterStatsReply) Type() Type      { return TypeMultipartReply }
func (MeterFeaturesRequest) Type() Type { return TypeMultipartRequest }
func (MeterFeaturesReply) Type() Type   { return TypeMultipartReply }

// MultipartType of the messages about meters.
func (MeterStatsRequest) MultipartType() MultipartType    { return MultipartMeter }
func (MeterStatsReply) MultipartType() MultipartType      { return MultipartMeter }
func (MeterFeaturesRequest) MultipartType() MultipartType { return MultipartMeterFeatures }
func (MeterFeaturesReply) MultipartType() MultipartType   { return MultipartMeterFeatures }

// HasMore of the messages about meters.
func (MeterStatsRequest) HasMore() bool    { return false }
func (m MeterStatsReply) HasMore() bool    { return m.More }
func (MeterFeaturesRequest) HasMore() bool { return false }
func (MeterFeaturesReply) HasMore() bool   { return false }

func (m MeterStatsRequest) appendTo(e *encoder)    { e.multipart(m); e.id(m.ID, MeterAll) }
func (m MeterFeaturesRequest) appendTo(e *encoder) { e.multipart(m) }

func (m MeterStatsReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, s := range m.Meters {
		start := len(e.b)
		e.u32(s.ID)
		e.zero(8)
		e.u32(s.Flows)
		e.u64s(s.Packets, s.Bytes)
		e.u32s(s.DurationSec, s.DurationNsec)
		for _, b := range s.Bands {
			e.u64s(b.Packets, b.Bytes)
		}
		e.len16(start, 4)
	}
}
func (d *decoder) meterStats() MeterStatistics {
	at := *d
	m := MeterStatistics{ID: d.u32("meter_id")}
	n := int(d.u16("meter length"))
	if d.ok() && n < 40 {
		at.fail("meter length", "%d is less than 40", n)
	}
	s := d.sub("meter", n-6)
	s.skip(6)
	m.Flows, m.Packets, m.Bytes = s.u32("flow_count"), s.u64("packet_in_count"), s.u64("byte_in_count")
	m.DurationSec, m.DurationNsec = s.u32("duration_sec"), s.u32("duration_nsec")
	for s.left() > 0 {
		m.Bands = append(m.Bands, BandStats{s.u64("packet_band_count"), s.u64("byte_band_count")})
	}
	return m
}

// meterFeaturesLen is the length of a reply without Features, which Open vSwitch sends. Since 1.5 the specification has
// eight bytes more.
const meterFeaturesLen = 16

func (m MeterFeaturesReply) appendTo(e *encoder) {
	e.multipart(m)
	e.u32s(m.MaxMeters, m.BandTypes, m.Capabilities)
	e.u8(m.MaxBands)
	e.u8(m.MaxColor)
	e.zero(2)
	if m.Features != 0 {
		e.u32s(m.Features, 0)
	}
}
func (d *decoder) meterFeatures() Message {
	m := MeterFeaturesReply{}
	long := d.left() > meterFeaturesLen
	d.u32s("meter features", &m.MaxMeters, &m.BandTypes, &m.Capabilities)
	m.MaxBands, m.MaxColor = d.u8("max_bands"), d.u8("max_color")
	d.skip(2)
	if long {
		m.Features = d.u32("features")
		d.skip(4)
	}
	return m
}

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

// MeterFeaturesReply says what meters the switch can have. BandTypes has the bit 1<<BandDrop
// and so on, Capabilities the flags of meters. Open vSwitch does not send Features (ofp_meter_feature_flags).
type MeterFeaturesReply struct {
	MaxMeters    uint32
	BandTypes    uint32
	Capabilities uint32
	MaxBands     uint8
	MaxColor     uint8
	Features     uint32
}

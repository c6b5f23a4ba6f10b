package ofp

// Features of a port (ofp_port_features): bits of PortDesc.Current, Advertised, Supported, Peer
// and of PortMod.Advertise.
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

// OpticalPort is what an optical port can do (ofp_port_desc_prop_optical). Frequencies are in
// MHz or, with OpticalLambda, wavelengths in nm times 100; powers are in dBm times 10.
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

// PortMod changes a port (OFPT_PORT_MOD): the bits of Config that Mask names, and what it
// advertises where Advertise is not 0. MAC must be the port's own.
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

// PortStats are one port's counters. A counter of all ones is one that the switch does not
// have. Durations say how long the port has been there.
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

// RMONStats are the counters of RFC 2819 that Open vSwitch tells in a property of its own
// (INTEL_PORT_STATS_RFC2819). Sizes are in the order 1–64, 65–127, 128–255, 256–511, 512–1023,
// 1024–1522 and more than 1522 bytes.
type RMONStats struct {
	RxSizes, TxSizes                                  [7]uint64
	TxMulticast, RxBroadcast, TxBroadcast             uint64
	RxUndersized, RxOversized, RxFragmented, RxJabber uint64
}

// CustomStat is one counter that Open vSwitch tells by a name of the port's driver
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

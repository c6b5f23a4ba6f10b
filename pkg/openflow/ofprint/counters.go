package ofprint

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func (p *printer) portMod(m ofp.PortMod) {
	p.f(" port: %s: addr:%s\n     config: ", p.names.Port(m.Port), m.MAC)
	p.portConfig(m.Config)
	p.str("     mask:   ")
	p.portConfig(m.Mask)
	p.str("     advertise: ")
	if bits := m.Advertise & 0xffff; bits != 0 {
		p.portFeatures(bits)
	} else {
		p.str("UNCHANGED\n")
	}
}

// named is counters with what stands before each.
type named struct {
	name  string
	value uint64
}

func (p *printer) counters(list ...named) {
	for i, x := range list {
		if i > 0 {
			p.str(", ")
		}
		p.str(x.name + "=")
		p.counter(x.value)
	}
	p.str("\n")
}

// unknownCounter is a counter that the switch does not keep.
const unknownCounter = ^uint64(0)

func (p *printer) portsStats(list []ofp.PortStats) {
	p.f(" %d ports\n", len(list))
	if p.verbosity < 1 {
		return
	}
	for _, s := range list {
		p.portStats(s)
	}
}

func (p *printer) portStats(s ofp.PortStats) {
	e := ofp.EthernetStats{FrameErrors: unknownCounter, Overruns: unknownCounter, CRCErrors: unknownCounter,
		Collisions: unknownCounter}
	if s.Ethernet != nil {
		e = *s.Ethernet
	}
	p.str("  port ")
	if s.Port < 10 {
		p.str(" ")
	}
	p.str(p.names.Port(s.Port) + ": rx ")
	p.counters(named{"pkts", s.RxPackets}, named{"bytes", s.RxBytes}, named{"drop", s.RxDropped},
		named{"errs", s.RxErrors},
		named{"frame", e.FrameErrors}, named{"over", e.Overruns}, named{"crc", e.CRCErrors})
	p.str("           tx ")
	p.counters(named{"pkts", s.TxPackets}, named{"bytes", s.TxBytes}, named{"drop", s.TxDropped},
		named{"errs", s.TxErrors},
		named{"coll", e.Collisions})
	if s.DurationSec != ^uint32(0) {
		p.str("           duration=")
		p.duration(s.DurationSec, s.DurationNsec)
		p.str("\n")
	}
	if r := s.RMON; r != nil {
		p.rmon("rx", append(sizes(r.RxSizes), named{"broadcast_packets", r.RxBroadcast},
			named{"undersized_errors", r.RxUndersized},
			named{"oversize_errors", r.RxOversized}, named{"rx_fragmented_errors", r.RxFragmented},
			named{"rx_jabber_errors", r.RxJabber}))
		p.rmon("tx", append(sizes(r.TxSizes), named{"multicast_packets", r.TxMulticast},
			named{"broadcast_packets", r.TxBroadcast}))
	}
	if len(s.Custom) > 0 {
		p.str("           CUSTOM Statistics")
		for i, c := range s.Custom {
			if c.Name == "" {
				continue
			}
			if i%3 == 0 {
				p.str("\n                      ")
			} else {
				p.str(" ")
			}
			p.f("%s=%d,", c.Name, c.Value)
		}
		p.str("\n")
	}
}

// sizes names the counters of RFC 2819 by size of packets.
func sizes(counts [7]uint64) []named {
	names := [...]string{"1_to_64", "65_to_127", "128_to_255", "256_to_511", "512_to_1023", "1024_to_1522", "1523_to_max"}
	list := make([]named, len(names))
	for i, n := range names {
		list[i] = named{n + "_packets", counts[i]}
	}
	return list
}

// rmon prints those counters of RFC 2819 that the switch keeps.
func (p *printer) rmon(direction string, list []named) {
	kept := slices.DeleteFunc(list, func(x named) bool { return x.value == unknownCounter })
	if len(kept) == 0 {
		return
	}
	p.f("           %s rfc2819 ", direction)
	for _, x := range kept {
		p.f("%s=%d, ", x.name, x.value)
	}
	p.str("\n")
}

func queueText(queue uint32) string {
	if queue == ofp.QueueAll {
		return "ALL"
	}
	return strconv.FormatUint(uint64(queue), 10)
}

func (p *printer) queueStats(list []ofp.QueueStats) {
	p.f(" %d queues\n", len(list))
	if p.verbosity < 1 {
		return
	}
	for _, s := range list {
		p.f("  port %s queue %s: bytes=", p.names.Port(s.Port), queueText(s.Queue))
		p.counter(s.TxBytes)
		p.str(", pkts=")
		p.counter(s.TxPackets)
		p.str(", errors=")
		p.counter(s.TxErrors)
		p.str(", duration=")
		if s.DurationSec != ^uint32(0) {
			p.duration(s.DurationSec, s.DurationNsec)
		} else {
			p.str("?")
		}
		p.str("\n")
	}
}

// queueDescs prints queues by port and number.
func (p *printer) queueDescs(list []ofp.QueueDesc) {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b ofp.QueueDesc) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Queue, b.Queue))
	})
	p.str(" ")
	var port ofp.Port
	for _, q := range sorted {
		if q.Port != port {
			port = q.Port
			p.f("port=%s\n", p.names.Port(port))
		}
		p.f("queue %d:", q.Queue)
		p.queueRate("min_rate", q.MinRate)
		p.queueRate("max_rate", q.MaxRate)
		p.str("\n")
	}
	p.chomp(' ')
}

func (p *printer) queueRate(name string, rate uint16) {
	switch {
	case rate <= 1000:
		p.f(" %s:%d.%d%%", name, rate/10, rate%10)
	case rate != ofp.QueueRateUnknown:
		p.f(" %s:(disabled)", name)
	}
}

// ipfix prints the counters of an exporter, the second line indented.
func (p *printer) ipfix(s ofp.IPFIXStats, indent int) {
	p.counters(named{"flows", s.Flows}, named{"current flows", s.CurrentFlows}, named{"sampled pkts", s.Packets},
		named{"ipv4 ok", s.IPv4Packets}, named{"ipv6 ok", s.IPv6Packets}, named{"tx pkts", s.TxPackets})
	p.f("%*s", indent, "")
	p.counters(named{"pkts errs", s.ErrorPackets}, named{"ipv4 errs", s.IPv4Errors}, named{"ipv6 errs", s.IPv6Errors},
		named{"tx errs", s.TxErrors})
}

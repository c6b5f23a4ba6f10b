package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// A Gateway probes its ways to other clusters. The agent makes its switch send a probe through the port of the way. The
// switch of the far end sends it back through the port that it came from, which leads to its sender. So a probe takes
// the path of the tunnels' packets in both directions, and costs the far agent nothing. A probe is no IP packet, so it
// matches no other flows.

// probeType is the EtherType of probes. IEEE 802 leaves it to local experiments. Only tunnels carry these frames.
const probeType = 0x88b5

const (
	// ProbeEchoes is how many echoes of its own probes a Node takes in a second.
	ProbeEchoes = 100
	// echoRate is how many probes of other Gateways a Node sends back in a second. It suffices for one from each of a
	// thousand far ends.
	echoRate = 1000
	// echoMeter is the number of its meter. It is behind the meters of kinds of packets.
	echoMeter = firstShare - 1
)

// A probe has these bytes after its Ethernet header: a mark, a version, the nonce, the sequence number, and zeros.
const (
	probeMark    = "tmbl"
	probeVersion = 1
	probeHeader  = len(probeMark) + 1 + 8 + 4

	// LeastProbe is the least size of a probe: that of the least frame of Ethernet.
	LeastProbe = 46
)

// Probe is a probe of a way. Its size is what an IP packet would have in its place.
type Probe struct {
	Port  ofp.Port // of the way
	Nonce uint64
	Seq   uint32
	Size  int
}

// PacketOut returns the message that has the switch send the probe.
func (p Probe) PacketOut() ofp.PacketOut {
	frame := make([]byte, ethLen, ethLen+max(p.Size, LeastProbe))
	copy(frame, ProbeMAC[:])
	copy(frame[6:], EchoMAC[:])
	binary.BigEndian.PutUint16(frame[12:], probeType)
	frame = append(frame, probeMark...)
	frame = append(frame, probeVersion)
	frame = binary.BigEndian.AppendUint64(frame, p.Nonce)
	frame = binary.BigEndian.AppendUint32(frame, p.Seq)
	return ofp.PacketOut{BufferID: ofp.NoBuffer, InPort: ofp.PortController, Data: frame[:cap(frame)],
		Actions: flow.Do(flow.Output(p.Port))}
}

// EchoOf reads a probe that the far end has sent back.
func EchoOf(in ofp.PacketIn2) (Probe, error) {
	port, _, ok := in.Metadata.Get(ofp.InPort)
	if !ok {
		return Probe{}, errors.New("echo: the switch does not say its port")
	}
	if len(in.Data) < ethLen+probeHeader {
		return Probe{}, fmt.Errorf("echo: frame has %d bytes, needs %d", len(in.Data), ethLen+probeHeader)
	}
	body := in.Data[ethLen:]
	if text, version := body[:len(probeMark)], body[len(probeMark)]; string(text) != probeMark || version != probeVersion {
		return Probe{}, fmt.Errorf("echo: frame begins with %q, version %d: expected %q, %d", text, version, probeMark,
			probeVersion)
	}
	body = body[len(probeMark)+1:]
	return Probe{Port: ofp.Port(port.Lo), Nonce: binary.BigEndian.Uint64(body), Seq: binary.BigEndian.Uint32(body[8:]),
		Size: max(int(in.FullLen), len(in.Data)) - ethLen}, nil
}

// probes sends back the probes of a peer's gateways, and gives the agent the echoes of this Node's probes. Both arrive
// through the port of the way, which leads to one gateway. So if the outer source of a probe is forged, the echo still
// goes only to a gateway of the peer. The meters protect this gateway from such echoes, and protect this Node from a
// faulty peer.
func (c crossCluster) probes(peer peering.Peer) (flows []flow.Flow) {
	if !c.at.takes(peer) {
		return nil
	}
	for _, w := range peer.Gateways {
		port := c.portOf(w.End())
		if port == 0 {
			continue
		}
		flows = append(flows, probesBy(port)...)
	}
	return flows
}

// probesBy are the flows of the way with a port.
func probesBy(port ofp.Port) []flow.Flow {
	from := func(mac ofp.MAC, actions flow.Actions) flow.Flow {
		return flow.Flow{Table: Classify, Priority: normal,
			Match: flow.All(flow.InPort(port), flow.EthDst(mac), flow.EthType(probeType)), Actions: actions}
	}
	return []flow.Flow{
		from(ProbeMAC, flow.Do(ofp.Meter{ID: echoMeter}, flow.SetEthSrc(ProbeMAC), flow.SetEthDst(EchoMAC),
			flow.ToInPort())),
		from(EchoMAC, report(WayEcho, WayEcho.meter())),
	}
}

// probeMeters returns the meters of probes and of their echoes.
func probeMeters() []flow.Meter {
	return []flow.Meter{meter(WayEcho.meter(), ProbeEchoes), meter(echoMeter, echoRate)}
}

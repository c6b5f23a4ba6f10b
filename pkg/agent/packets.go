package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// packetIns has the parts that take the packets which the switch sends to the agent.
type packetIns struct {
	packets   *packets
	audit     *policyLog
	names     *learnedNames
	strangers *otherServers
	observer  *observer
	probes    *wayProbes
	traces    *packetTraces
}

// packets distributes the packets that the switch sends to the agent, by kind, and sends the answers. A meter in the
// switch bounds the rate of each kind (packetInRate).
type packets struct {
	kinds   map[datapath.PacketKind]func(ofp.PacketIn2) error
	answers *sharedQueue[string, ofp.PacketOut] // by the client
	counts  *prometheus.CounterVec
	log     *slog.Logger
}

// errQueueFull is the error if the queue of a kind of packets is full. The packet is lost, as packets on a network may
// be.
var errQueueFull = errors.New("the queue is full")

func newPackets(kinds map[datapath.PacketKind]func(ofp.PacketIn2) error, log *slog.Logger) *packets {
	return &packets{
		kinds: kinds, log: log, answers: newSharedQueue[string, ofp.PacketOut](64),
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tombolo_packets_to_agent_total", Help: "Packets that the switch has sent to the agent, by kind and by what " +
				"became of them: taken, ignored, or dropped since there were too many.",
		}, []string{"kind", "result"}),
	}
}

// take handles one packet from the switch. It runs in the goroutine that reads the switch's messages, so no kind of
// packet may block it.
func (p *packets) take(in ofp.PacketIn2) {
	kind, result := datapath.KindOf(in), "taken"
	handle, ok := p.kinds[kind]
	err := fmt.Errorf("userdata %q is of no kind", in.Userdata)
	if ok {
		err = handle(in)
	} else {
		kind = "other"
	}
	switch {
	case errors.Is(err, errQueueFull):
		result = "dropped"
	case err != nil:
		result = "ignored"
	}
	p.counts.WithLabelValues(string(kind), result).Inc()
	if err != nil {
		p.log.Debug("packet from the switch left alone", "kind", kind, "error", err)
	}
}

// answer has a packet sent to a client.
func (p *packets) answer(client string, out ofp.PacketOut) error {
	return p.answers.push(client, out)
}

// send sends answers until ctx ends.
func (p *packets) send(ctx context.Context, packetOut func(context.Context, ofp.PacketOut) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.answers.wake:
			out, ok := p.answers.pop()
			if !ok {
				continue
			}
			sending, cancel := context.WithTimeout(ctx, time.Second)
			if err := packetOut(sending, out); err != nil {
				p.log.Debug("packet not sent", "error", err)
			}
			cancel()
		}
	}
}

// reject answers connections to Services without endpoints, and connections that policies reject.
func (p *packetIns) reject(t *tables, in ofp.PacketIn2) error {
	p.traces.end(in)
	_ = p.observer.take(in) // whether or not it can be recorded, it is answered
	out, err := datapath.Reject(in, t.flows.Services.Asked(t.services.Find))
	if err != nil {
		return err
	}
	h, err := datapath.HeadersOf(in.Data)
	if err != nil {
		return err
	}
	return p.packets.answer(h.Src.String(), out)
}

// neighbor answers Neighbor Solicitations that the switch cannot answer itself. It counts clients by port, since one
// client may use many addresses of its link.
func (p *packetIns) neighbor(in ofp.PacketIn2) error {
	out, err := datapath.Neighbor(in)
	if err != nil {
		return err
	}
	port, _, _ := in.Metadata.Get(ofp.InPort)
	return p.packets.answer(fmt.Sprint("port ", port.Lo), out)
}

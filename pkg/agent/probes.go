package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/probe"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

const (
	probeTick = 100 * time.Millisecond // while there are ways to probe
	probeLook = time.Second            // at the ways
	// probeSend is how long the switch may take for a probe. The next probes wait meanwhile.
	probeSend = 100 * time.Millisecond
)

// wayProbes probes the ways to other clusters whose far ends send probes back.
type wayProbes struct {
	*probe.Prober
	ways  func() []probe.Way
	nodes *nodeProbes
	flows *flowsync.Syncer
	log   *slog.Logger
}

func newWayProbes(t *tables, ports *bridge.Manager, flows *flowsync.Syncer, log *slog.Logger) *wayProbes {
	ways := func() []probe.Way {
		now, _ := t.this.now.Get(self)
		return t.ways.toProbe(portsNow(ports, t.config), podMTU(t.config, now.Underlay))
	}
	return &wayProbes{Prober: probe.New(randomNonce), ways: ways, nodes: newNodeProbes(t, log), flows: flows,
		log: log}
}

func randomNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// toProbe returns the ways to probe. It includes ways that are down, so that their results are kept.
func (t *wayTables) toProbe(ports map[string]bridge.PortState, mtu int) (out []probe.Way) {
	p, _ := t.peering.Get(self)
	for _, peer := range p.Peers {
		if !peer.Echoes {
			continue
		}
		for _, w := range p.Part.Ways(peer) {
			port := ports[wayPort(w.End())]
			if port.OFPort == 0 || port.BFD == "" {
				continue
			}
			out = append(out, probe.Way{Peer: peer.ClusterID, To: w.Outside.String(), Port: uint32(port.OFPort), MTU: mtu,
				Up: port.BFD == wayIsUp})
		}
	}
	return out
}

// run probes until ctx ends. While the switch does not answer, it sends nothing.
func (p *wayProbes) run(ctx context.Context) error {
	probeLoop(ctx, func(now time.Time) bool {
		ways := p.ways()
		p.Set(now, ways)
		return len(ways) > 0
	}, func(now time.Time) { p.send(ctx, p.Due(now)) }) // without a connection to the switch they are unsent
	return nil
}

// probeLoop calls look at intervals of probeLook, until ctx ends. While look returns true, it calls send at intervals
// of probeTick.
func probeLoop(ctx context.Context, look func(now time.Time) bool, send func(now time.Time)) {
	looks := time.NewTicker(probeLook)
	defer looks.Stop()
	tick := time.NewTicker(probeTick)
	defer tick.Stop()
	var some <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-looks.C:
			if some = nil; look(now) {
				some = tick.C
			}
		case now := <-some:
			send(now)
		}
	}
}

// send hands probes to the switch.
func (p *wayProbes) send(ctx context.Context, list []probe.Probe) {
	for _, one := range list {
		sending, cancel := context.WithTimeout(ctx, probeSend)
		p.Sending(one, time.Now())
		err := p.flows.PacketOut(sending,
			datapath.Probe{Port: ofp.Port(one.Port), Nonce: one.Nonce, Seq: one.Seq, Size: one.Size}.PacketOut())
		cancel()
		if err != nil {
			p.Unsent(one)
			p.log.Debug("probe of a way not sent", "port", one.Port, "error", err)
		}
	}
}

// take takes an echo from the switch.
func (p *wayProbes) take(in ofp.PacketIn2) error {
	now := time.Now()
	echo, err := datapath.EchoOf(in)
	if err != nil {
		return err
	}
	return p.Take(probe.Probe{Port: uint32(echo.Port), Nonce: echo.Nonce, Seq: echo.Seq, Size: echo.Size}, now)
}

// serve answers with the results of all probes.
func (p *wayProbes) serve(node string) func(*http.Request) (any, error) {
	return func(*http.Request) (any, error) {
		if !p.flows.Stats().Connected {
			return nil, errors.New("no OpenFlow connection to the switch, so nothing is probed: is the tombolo-ovs Pod of " +
				"this Node running?")
		}
		out := api.Probes{Node: node, At: time.Now().UTC()}
		out.Ways, out.Foreign = p.Results()
		nodes, foreign := p.nodes.Results()
		out.Nodes, out.Foreign = nodes, out.Foreign+foreign
		return out, nil
	}
}

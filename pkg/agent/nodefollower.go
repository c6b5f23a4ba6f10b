package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/tombolo-net/tombolo/pkg/desired"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// nodeFollower writes the state of the Node to the tables: the OVSDB, the ways and the host's network.
type nodeFollower struct {
	tables      *tables
	switchPorts *bridge.Manager
	flows       *flowsync.Syncer
	host        *hostnet.Manager
	log         *slog.Logger
	seenWays    seenWays
	reports     func()        // the ways of the report have changed
	moved       chan struct{} // this Node's object has changed
}

func newNodeFollower(a *Agent) *nodeFollower {
	return &nodeFollower{
		tables: a.tables, switchPorts: a.switchPorts, flows: a.flows, host: a.host, log: a.log,
		seenWays: seenWays{down: downWays{}}, moved: make(chan struct{}, 1),
		reports: func() { a.api.reports.changed() },
	}
}

// nodeChanged starts a look at the underlay, since this Node's object has changed.
func (f *nodeFollower) nodeChanged() { desired.Signal(f.moved) }

// observeWays writes the state of the ways to the tables. It returns whether it has to be called again without an
// event.
func (f *nodeFollower) observeWays() bool {
	now, ports := time.Now(), portsNow(f.switchPorts, f.tables.config)
	changed, unsteady := f.seenWays.report.observe(now, f.tables.ways.toReport(ports, f.flows.Stats().Connected))
	if changed {
		f.reports()
	}
	lost, waiting := f.seenWays.down.lost(now, f.tables.ways.endsUp(ports))
	f.tables.ways.lost.Replace(lost)
	return unsteady || waiting
}

// followSwitch writes the state of the OVSDB to the tables whenever it changes. Once the ways are known, it observes
// them too.
func (f *nodeFollower) followSwitch(ctx context.Context) {
	for {
		f.tables.readSwitch(f.switchPorts.State)
		var again <-chan time.Time
		switch {
		case f.tables.engine.Passes() == 0: // no way is known, as on a Node that is no Gateway
			again = time.After(wayFirst)
		case f.observeWays():
			again = time.After(wayLook)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-f.switchPorts.Changed():
		}
	}
}

// Times of followUnderlay.
const (
	underlayEvery = 30 * time.Second
	underlayRetry = 500 * time.Millisecond
)

// followUnderlay writes the Node's underlay to the tables. It does so when the host's network or this Node's object
// changes, and at intervals.
func (f *nodeFollower) followUnderlay(ctx context.Context) {
	reported := ""
	for {
		f.tables.resolvers.node.Set(self, readResolvers(resolverFiles))
		wait, text := underlayEvery, ""
		if u, err := f.tables.this.readUnderlay(); err == nil {
			f.tables.this.underlay.Set(self, u)
		} else {
			wait, text = underlayRetry, err.Error()
		}
		if text != reported && text != "" {
			f.log.Error("look at the Node's network; what the switch has stays", "error", text)
		}
		reported = text
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-f.host.Changed():
		case <-f.moved:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

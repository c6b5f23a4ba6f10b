package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// conntrackFlusher forgets UDP connections to endpoints that are gone. It compares what the
// plan has with what there was: the plan before, and, after a start of the agent or of the
// switch, what the switch tracks.
type conntrackFlusher struct {
	switches flushSwitch
	log      *slog.Logger
	notify   func() // the problem has changed
	wake     chan struct{}

	mu          sync.Mutex
	want        map[datapath.ServiceConnection]bool // nil before the first plan
	draining    map[netip.AddrPort]bool             // endpoints that end but still serve
	gone        map[datapath.ServiceConnection]bool // to be flushed
	unsupported string                              // why the switch cannot flush
}

// flushSwitch is what the flusher needs of the switch.
type flushSwitch interface {
	// session numbers the connections to the switch; 0 while there is none.
	session() uint64
	// tracked lists the connections to Services that the switch knows.
	tracked(context.Context) (map[datapath.ServiceConnection]bool, error)
	// applied returns when the switch has confirmed the flows of the last plan.
	applied(context.Context) error
	flush(context.Context, []ofp.CTFlush) error
	// revalidated returns when no cached decision is older than the flows.
	revalidated(context.Context) error
}

func newConntrackFlusher(s flushSwitch, log *slog.Logger, notify func()) *conntrackFlusher {
	return &conntrackFlusher{switches: s, log: log, notify: notify, wake: make(chan struct{}, 1), gone: map[datapath.ServiceConnection]bool{}}
}

// update is told each plan. An endpoint that ends but still serves keeps its connections.
func (f *conntrackFlusher) update(want map[datapath.ServiceConnection]bool, slices []*discoveryv1.EndpointSlice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draining = drainingEndpoints(slices)
	for c := range f.want {
		switch {
		case want[c]:
		case f.draining[c.Endpoint]:
			want[c] = true
		default:
			f.gone[c] = true
		}
	}
	for c := range want {
		delete(f.gone, c)
	}
	f.want = want
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// problems says what the switch cannot do.
func (f *conntrackFlusher) problems(node string) []problem.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsupported == "" {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Reason: "ConntrackFlushUnsupported",
		Message: "UDP clients that keep their port go on to endpoints of Services that are gone, until they pause: the switch cannot flush connections (" +
			f.unsupported + "); use Open vSwitch 3.1 or later",
	}}
}

// flushRetry is after how long a flush that failed is tried again.
const flushRetry = time.Second

// run flushes until ctx ends.
func (f *conntrackFlusher) run(ctx context.Context) {
	seen := uint64(0) // the session whose tracked connections were compared
	for ctx.Err() == nil {
		wait := 30 * time.Second
		if err := f.pass(ctx, &seen); err != nil && ctx.Err() == nil {
			f.log.Debug("connections to endpoints that are gone not flushed yet", "error", err)
			wait = flushRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// flushTracked flushes those of the connections that there are. Each flush has the switch look
// at its whole table, so that it must not be done for each endpoint that ever was.
func (f *conntrackFlusher) flushTracked(ctx context.Context, gone map[datapath.ServiceConnection]bool) error {
	tracked, err := f.switches.tracked(ctx)
	if err != nil {
		return err
	}
	var flushes []ofp.CTFlush
	for c := range gone {
		if tracked[c] {
			flushes = append(flushes, c.Flush())
		}
	}
	if len(flushes) == 0 {
		return nil
	}
	slices.SortFunc(flushes, func(a, b ofp.CTFlush) int { return a.Reply.Src.Compare(b.Reply.Src) })
	return f.switches.flush(ctx, flushes)
}

// pass compares and flushes once.
func (f *conntrackFlusher) pass(ctx context.Context, seen *uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	f.mu.Lock()
	planned := f.want != nil
	f.mu.Unlock()
	session := f.switches.session()
	if !planned || session == 0 {
		return nil
	}
	if *seen != session {
		tracked, err := f.switches.tracked(ctx)
		if err != nil {
			return err
		}
		f.mu.Lock()
		for c := range tracked {
			if !f.want[c] && !f.draining[c.Endpoint] {
				f.gone[c] = true
			}
		}
		f.mu.Unlock()
		*seen = session
	}
	f.mu.Lock()
	gone := maps.Clone(f.gone)
	f.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	if err := f.switches.applied(ctx); err != nil {
		return err
	}
	// Twice: until the datapath's cached decisions follow the flows, a datagram may still be
	// sent to the old endpoint and be remembered.
	err := f.flushTracked(ctx, gone)
	if err == nil {
		if err = f.switches.revalidated(ctx); err == nil {
			err = f.flushTracked(ctx, gone)
		}
	}
	var refused *ofconn.SwitchError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	f.mu.Lock()
	before := f.unsupported
	f.unsupported = ""
	if refused != nil {
		f.unsupported = refused.Error()
	}
	for c := range gone {
		delete(f.gone, c)
	}
	changed := f.unsupported != before
	f.mu.Unlock()
	if changed {
		f.notify()
	}
	if refused == nil {
		f.log.Info("flushed connections to endpoints that are gone", "endpoints", len(gone))
	}
	return nil
}

// drainingEndpoints are those that end but still serve (KEP-1669).
func drainingEndpoints(list []*discoveryv1.EndpointSlice) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	for _, s := range list {
		for _, e := range s.Endpoints {
			c := e.Conditions
			if c.Terminating == nil || !*c.Terminating || c.Serving == nil || !*c.Serving || len(e.Addresses) == 0 {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			for _, p := range s.Ports {
				if p.Port != nil && *p.Port > 0 && *p.Port < 65536 {
					out[netip.AddrPortFrom(ip, uint16(*p.Port))] = true
				}
			}
		}
	}
	return out
}

// agentSwitch is the agent's switch as the flusher sees it.
type agentSwitch struct{ *Agent }

func (s agentSwitch) session() uint64 {
	stats := s.flows.Stats()
	if !stats.Connected {
		return 0
	}
	return stats.Connections
}

func (s agentSwitch) tracked(ctx context.Context) (map[datapath.ServiceConnection]bool, error) {
	name := "system@ovs-system"
	if s.config.OVSDatapathType == "netdev" {
		name = "netdev@ovs-netdev"
	}
	dump, err := s.tracer.Run(ctx, "dpctl/dump-conntrack", name)
	if err != nil {
		return nil, err
	}
	return datapath.TrackedServiceConnections(dump), nil
}

func (s agentSwitch) applied(ctx context.Context) error { return s.flowsApplied(ctx) }

func (s agentSwitch) flush(ctx context.Context, list []ofp.CTFlush) error {
	return s.flows.FlushConnections(ctx, list)
}

func (s agentSwitch) revalidated(ctx context.Context) error {
	_, err := s.tracer.Run(ctx, "revalidator/wait")
	return err
}

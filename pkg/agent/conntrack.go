package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// conntrackFlusher removes UDP connections to endpoints that are gone. It compares the plan with the previous plan.
// After a start of the agent or of the switch, it compares the plan with the connections that the switch tracks.
type conntrackFlusher struct {
	switches flushSwitch
	log      *slog.Logger
	wake     chan struct{}
	stale    chan ofp.CTFlush // connections that the switch has left a datagram of

	mu          sync.Mutex
	planned     bool // there was a first plan: nothing is flushed before
	want        map[datapath.ServiceConnection]bool
	ended       map[datapath.ServiceConnection]bool   // unwanted, to endpoints that end but still serve
	draining    map[netip.AddrPort]int                // endpoints that end, by the number of slices that list them
	gone        map[datapath.ServiceConnection]uint64 // to be flushed, with the number of the removal
	removals    uint64
	ending      map[datapath.ServiceConnection]time.Time // gone, and found by their datagrams, since when
	unsupported string                                   // why the switch cannot flush
}

// flushSwitch is the part of the switch that the flusher uses.
type flushSwitch interface {
	// session numbers the connections to the switch; 0 without a connection.
	session() uint64
	// tracked lists the connections to Services that the switch tracks.
	tracked(context.Context) (map[datapath.ServiceConnection]bool, error)
	// applied returns when the switch has confirmed the flows of the last plan.
	applied(context.Context) error
	flush(context.Context, []ofp.CTFlush) error
	// stopping returns the number of tracked connections if listing them stops the switch from forwarding, and 0
	// otherwise.
	stopping(context.Context) (int, error)
	// end makes the switch send the datagrams of exactly these connections to the agent.
	end([]datapath.ServiceConnection)
	// revalidated returns when no cached decision is older than the flows.
	revalidated(context.Context) error
}

func newConntrackFlusher(s flushSwitch, log *slog.Logger) *conntrackFlusher {
	return &conntrackFlusher{switches: s, log: log, wake: make(chan struct{}, 1),
		stale: make(chan ofp.CTFlush, staleQueue),
		want:  map[datapath.ServiceConnection]bool{}, ended: map[datapath.ServiceConnection]bool{},
		draining: map[netip.AddrPort]int{}, gone: map[datapath.ServiceConnection]uint64{},
		ending: map[datapath.ServiceConnection]time.Time{}}
}

// connectionChanges are the changes of one pass. An item that is in both lists has not changed.
type connectionChanges struct {
	before, now                 []datapath.ServiceConnection
	drainingBefore, drainingNow []netip.AddrPort // endpoints that end but still serve
}

func (c connectionChanges) any() bool {
	return len(c.before)+len(c.now)+len(c.drainingBefore)+len(c.drainingNow) > 0
}

// change takes over the changes of a pass. An endpoint that terminates but still serves keeps its connections.
func (f *conntrackFlusher) change(c connectionChanges) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range c.drainingNow { // of several slices with one endpoint each counts
		f.draining[e]++
	}
	for _, e := range c.drainingBefore {
		if f.draining[e]--; f.draining[e] == 0 {
			delete(f.draining, e)
		}
	}
	for _, s := range c.before {
		delete(f.want, s)
		f.ended[s] = true
	}
	for _, s := range c.now {
		f.want[s] = true
		delete(f.ended, s)
		delete(f.gone, s)
	}
	for s := range f.ended {
		if f.draining[s.Endpoint] == 0 {
			delete(f.ended, s)
			f.remove(s)
		}
	}
	f.signal()
}

// endLazily ends each connection when its next datagram comes. To flush or list all connections to an endpoint, the
// switch searches its whole table. If there are many connections, the search would stop forwarding for too long.
func (f *conntrackFlusher) endLazily(gone map[datapath.ServiceConnection]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, removal := range gone {
		if f.gone[c] == removal {
			delete(f.gone, c)
			f.ending[c] = time.Now()
		}
	}
	f.endAgain()
}

// endAgain declares which connections are ending. It leaves out connections that have been ending for longer than the
// switch remembers a UDP connection without packets.
func (f *conntrackFlusher) endAgain() {
	list := make([]datapath.ServiceConnection, 0, len(f.ending))
	for c, since := range f.ending {
		if f.want[c] || time.Since(since) > endingKept {
			delete(f.ending, c)
			continue
		}
		list = append(list, c)
	}
	f.switches.end(list)
}

// endingKept is longer than the switch tracks any UDP connection without a datagram: two minutes, unless the host has
// another setting.
const endingKept = 125 * time.Second

// remove requests the flush of a connection. If the connection returns and goes again, remove requests another flush,
// since a flush that is under way does not cover it.
func (f *conntrackFlusher) remove(s datapath.ServiceConnection) {
	f.removals++
	f.gone[s] = f.removals
}

// start allows flushes: the flows of a plan are declared.
func (f *conntrackFlusher) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.planned {
		f.planned = true
		f.signal()
	}
}

func (f *conntrackFlusher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// problems reports functions that the switch lacks.
func (f *conntrackFlusher) problems(node string) []problem.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsupported == "" {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Reason: reasonConntrackFlushUnsupported,
		Message: "UDP clients that keep their port go on to endpoints of Services that are gone, until they pause: the " +
			"switch cannot flush connections (" +
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

// flushTracked flushes the given connections that exist and have not returned. Each flush makes the switch search its
// whole table, so connections that do not exist are left out.
func (f *conntrackFlusher) flushTracked(ctx context.Context, gone map[datapath.ServiceConnection]uint64) error {
	tracked, err := f.switches.tracked(ctx)
	if err != nil {
		return err
	}
	var flushes []ofp.CTFlush
	f.mu.Lock()
	for c, removal := range gone {
		if tracked[c] && f.gone[c] == removal {
			flushes = append(flushes, c.Flush())
		}
	}
	f.mu.Unlock()
	if len(flushes) == 0 {
		return nil
	}
	slices.SortFunc(flushes, func(a, b ofp.CTFlush) int { return a.Reply.Src.Compare(b.Reply.Src) })
	return f.switches.flush(ctx, flushes)
}

// staleQueue is how many stale connections wait for their flush. If the queue is full, the next datagram of a
// connection requests the flush again.
const staleQueue = 1024

// take has the connection forgotten that the switch has left a datagram of.
func (f *conntrackFlusher) take(in ofp.PacketIn2) error {
	flush, err := datapath.StaleFlush(in)
	if err != nil {
		return err
	}
	select {
	case f.stale <- flush:
		return nil
	default:
		return errQueueFull
	}
}

// flushStale flushes stale connections until ctx ends. If a flush fails, the next datagram of the connection requests
// it again.
func (f *conntrackFlusher) flushStale(ctx context.Context) {
	for {
		var list []ofp.CTFlush
		select {
		case <-ctx.Done():
			return
		case one := <-f.stale:
			list = append(list, one)
		}
		for more := true; more; {
			select {
			case one := <-f.stale:
				list = append(list, one)
			default:
				more = false
			}
		}
		flushing, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := f.switches.flush(flushing, list)
		cancel()
		var refused *ofconn.SwitchError
		if err == nil || errors.As(err, &refused) {
			f.supported(refused)
		}
		f.log.Debug("stale connections flushed", "connections", len(list), "error", err)
	}
}

// supported records that the switch has flushed connections, or why it refuses to.
func (f *conntrackFlusher) supported(refused *ofconn.SwitchError) {
	f.mu.Lock()
	before := f.unsupported
	f.unsupported = ""
	if refused != nil {
		f.unsupported = refused.Error()
	}
	changed := f.unsupported != before
	f.mu.Unlock()
	switch {
	case changed && refused != nil:
		f.log.Warn("the switch cannot flush connections", "error", refused)
	case changed:
		f.log.Info("the switch can flush connections again")
	}
}

// pass compares and flushes once.
func (f *conntrackFlusher) pass(ctx context.Context, seen *uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	f.mu.Lock()
	planned := f.planned
	f.mu.Unlock()
	session := f.switches.session()
	if !planned || session == 0 {
		return nil
	}
	if *seen != session {
		// Before the flows are there, datagrams make connections that a look would miss.
		if err := f.switches.applied(ctx); err != nil {
			return err
		}
		tracked, err := f.switches.tracked(ctx)
		if err != nil {
			return err
		}
		f.mu.Lock()
		for c := range tracked {
			if !f.want[c] && f.draining[c.Endpoint] == 0 {
				f.remove(c)
			}
		}
		f.mu.Unlock()
		*seen = session
	}
	f.mu.Lock()
	gone := maps.Clone(f.gone)
	if len(f.ending) > 0 {
		f.endAgain()
	}
	f.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	if err := f.switches.applied(ctx); err != nil {
		return err
	}
	if many, err := f.switches.stopping(ctx); err != nil {
		return err
	} else if many > recheckFew {
		f.endLazily(gone)
		return nil
	}
	// The flush is done twice. Until the datapath's cached decisions follow the flows, a datagram may still go to the old
	// endpoint and create the connection again.
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
	f.supported(refused)
	f.mu.Lock()
	for c, removal := range gone {
		if f.gone[c] == removal {
			delete(f.gone, c)
		}
	}
	f.mu.Unlock()
	if refused == nil {
		f.log.Info("flushed connections to endpoints that are gone", "endpoints", len(gone))
	}
	return nil
}

// agentSwitch is the switch as the flusher and the rechecker use it.
type agentSwitch struct {
	tables *tables
	flows  *flowsync.Syncer
	reader *connectionReader
	tracer appctl.Client
}

func (s agentSwitch) session() uint64 {
	stats := s.flows.Stats()
	if !stats.Connected {
		return 0
	}
	return stats.Connections
}

func (s agentSwitch) tracked(ctx context.Context) (map[datapath.ServiceConnection]bool, error) {
	out := map[datapath.ServiceConnection]bool{}
	err := s.reader.read(ctx, func(line string) {
		if c, ok := datapath.TrackedServiceConnection(line); ok {
			out[c] = true
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s agentSwitch) applied(ctx context.Context) error { return flowsApplied(ctx, s.flows) }

func (s agentSwitch) flush(ctx context.Context, list []ofp.CTFlush) error {
	return s.flows.FlushConnections(ctx, list)
}

func (s agentSwitch) end(list []datapath.ServiceConnection) { s.tables.flows.Services.SetEnded(list) }

func (s agentSwitch) revalidated(ctx context.Context) error {
	_, err := s.tracer.Run(ctx, "revalidator/wait")
	return err
}

// conntrackDump returns the arguments of dpctl/dump-conntrack. They are the datapath and the zone of Services, since
// the kernel also tracks connections of the host. The command has no filter for protocols, or for several zones. So the
// list has all zones if that is requested.
func conntrackDump(c config.Config, allZones bool) []string {
	name := "system@ovs-system"
	if c.OVSDatapathType == "netdev" {
		name = "netdev@ovs-netdev"
	}
	if allZones {
		return []string{name}
	}
	return []string{name, fmt.Sprintf("zone=%d", datapath.ServiceZone)}
}

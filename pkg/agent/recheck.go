package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// rechecker finds the known connections that a change of policies concerns, so that they are judged again.
//
// There are two ways to find them. A look compares all tracked connections with the present policies, and finds exactly
// the right ones. But the userspace datapath forwards nothing while it lists its connections: 600 ms for 100,000 of
// them. If there are many connections, the datapath gets a description of the change instead (datapath.Concern). Then
// the switch finds the connections when their packets come. These rechecks stay until every earlier connection is
// surely gone.
//
// After each connection to the switch there is a look, so that a restarted agent finds the rest of an earlier change.
type rechecker struct {
	switches recheckSwitch
	log      *slog.Logger
	wake     chan struct{}
	planned  chan struct{} // closed when there was a first plan: without it all rules seem to be gone
	started  sync.Once

	mu       sync.Mutex
	known    map[datapath.Recheck]concerned
	seq      uint64 // of the last that was noted
	wantLook bool   // only a look finds the connections of a change
	failed   string // why the last look failed
	looked   time.Time
}

// concerned is the time at which a recheck was noted.
type concerned struct {
	at  time.Time
	seq uint64
	of  string // of its datapath.Cause; empty if a look has found it, or for several causes
}

// recheckSwitch is the part of the switch and of the tables that the rechecker uses.
type recheckSwitch interface {
	// session numbers the connections to the switch; 0 without a connection.
	session() uint64
	// applied returns when the switch has confirmed the flows of the last plan.
	applied(context.Context) error
	// stopping returns the number of tracked connections if listing them stops the switch from forwarding, and 0
	// otherwise.
	stopping(context.Context) (int, error)
	// compared lists the tracked connections, compares them with the policies, and returns the connections to judge again.
	compared(context.Context) ([]datapath.Recheck, error)
	// recheck starts to judge these connections again, and ends all earlier rechecks.
	recheck([]datapath.Recheck)
}

// The time of a look is proportional to the number of connections. So the pause after a look is longer if there are
// many. While some connections wait for their next packet, looks repeat at intervals, to end rechecks that are done.
const (
	recheckPause  = time.Second
	recheckShare  = 10 // a look may take one part in so many of the time
	recheckLonger = 30 * time.Second
	recheckLimit  = 2 * time.Minute // for one look
)

// Where listing connections stops the switch.
const (
	recheckFew = 500 // connections that may be listed at each change: 4 ms
	// recheckKept is how long rechecks stay while looks fail. By then every earlier connection is gone: a connection
	// without a packet for a day is forgotten (nf_conntrack_tcp_timeout_established).
	recheckKept = 25 * time.Hour
	recheckStop = 8 * time.Microsecond // for each connection that the userspace datapath lists
	recheckCalm = 1000                 // a look that can wait may stop the switch for 1/recheckCalm of the time
	// Each recheck causes several flows. If there are more rechecks than this, the next look waits only a tenth of the
	// usual time. A tenant could otherwise cause flows without a bound by writing rules all the time.
	recheckMany = 2048
)

func newRechecker(s recheckSwitch, log *slog.Logger) *rechecker {
	return &rechecker{switches: s, log: log, wake: make(chan struct{}, 1), planned: make(chan struct{}),
		known: map[datapath.Recheck]concerned{}}
}

// start allows looks: the flows of a plan are declared.
func (c *rechecker) start() { c.started.Do(func() { close(c.planned) }) }

// changed records that policies have changed.
func (c *rechecker) changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// concern records which connections a change concerns. The goroutine that evaluates the tables calls it before changed.
func (c *rechecker) concern(x datapath.Concern) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	for _, r := range x.Since {
		of := r.Of
		if before, ok := c.known[r.Recheck]; ok && before.of != of {
			of = ""
		}
		c.known[r.Recheck] = concerned{time.Now(), c.seq, of}
	}
	for _, r := range x.Until {
		if known, ok := c.known[r.Recheck]; ok && (r.Why != datapath.RuleGone || known.of == r.Of) {
			delete(c.known, r.Recheck)
		}
	}
	c.wantLook = c.wantLook || x.Look
}

// problems reports that connections cannot be listed.
func (c *rechecker) problems(node string) []problem.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == "" {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Reason: reasonConnectionsNotRead,
		Message: "connections from before the last start of agent or switch may go on though policies forbid them by now: " +
			"the switch does not list its connections (" +
			c.failed + "), which is tried again; restart ovs-vswitchd if it stays so",
	}}
}

// run looks until ctx ends.
func (c *rechecker) run(ctx context.Context) {
	select {
	case <-c.planned:
	case <-ctx.Done():
		return
	}
	var seen uint64
	waiting, due := 0, true
	for ctx.Err() == nil {
		began := time.Now()
		if session := c.switches.session(); session != 0 && (due || session != seen || waiting > 0) {
			n, err := c.pass(ctx, session != seen)
			if due = err != nil; err != nil {
				c.log.Warn("connections not compared with policies yet", "error", err)
			} else if seen = session; n != waiting {
				c.log.Info("known connections are judged again", "reasons", n, "before", waiting)
				waiting = n
			}
		}
		pause := max(recheckPause, recheckShare*time.Since(began))
		if sleep(ctx, pause) != nil {
			return
		}
		longer := recheckLonger
		if due {
			longer = 0
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
			due = true
		case <-time.After(longer):
		}
	}
}

// pass determines the connections to judge again. A look finds them. If the look is omitted, they are the connections
// that the recorded changes describe.
func (c *rechecker) pass(ctx context.Context, fresh bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, recheckLimit)
	defer cancel()
	// Before the flows are there, packets make connections by the old ones.
	err := c.switches.applied(ctx)
	if err != nil {
		return 0, err
	}
	if !fresh {
		many, err := c.switches.stopping(ctx)
		if err != nil {
			return 0, err
		}
		if many > recheckFew && !c.worthLook(many) {
			return c.declare(), nil
		}
	}
	n, err := c.look(ctx)
	c.mu.Lock()
	c.failed = ""
	if err != nil && !errors.Is(err, errBusy) { // it is no fault of the switch
		c.failed = err.Error()
	}
	c.mu.Unlock()
	if err != nil {
		c.declare()
	}
	return n, err
}

// worthLook reports whether to make a look although it stops the switch's forwarding. A look ends rechecks that no
// connection needs any more.
func (c *rechecker) worthLook(connections int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := recheckCalm * recheckStop * time.Duration(connections)
	if len(c.known) > recheckMany {
		wait /= 10
	}
	return (c.wantLook || len(c.known) > 0) && time.Since(c.looked) > wait
}

// declare has connections judged again that changes name.
func (c *rechecker) declare() int {
	c.mu.Lock()
	list := make([]datapath.Recheck, 0, len(c.known))
	for r, noted := range c.known {
		if time.Since(noted.at) > recheckKept {
			delete(c.known, r)
			continue
		}
		list = append(list, r)
	}
	c.mu.Unlock()
	c.switches.recheck(list)
	return len(list)
}

// look finds exactly the connections that policies concern. Changes during the look stay recorded.
func (c *rechecker) look(ctx context.Context) (int, error) {
	c.mu.Lock()
	before := c.seq
	c.wantLook = false
	c.mu.Unlock()
	list, err := c.switches.compared(ctx)
	if err != nil {
		c.mu.Lock()
		c.wantLook = true
		c.mu.Unlock()
		return 0, err
	}
	c.mu.Lock()
	c.looked = time.Now()
	for r, noted := range c.known {
		if noted.seq <= before {
			delete(c.known, r)
		}
	}
	for _, r := range list {
		if _, ok := c.known[r]; !ok {
			c.known[r] = concerned{at: c.looked, seq: before}
		}
	}
	c.mu.Unlock()
	c.switches.recheck(list)
	return len(list), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// errBusy is the error of a look for which the agent had no time.
var errBusy = errors.New("the agent has not compared its list of connections with the policies in time")

func (s agentSwitch) compared(ctx context.Context) ([]datapath.Recheck, error) {
	look := s.tables.flows.Policies.Known.Look(func(f func(uint64)) bool {
		return s.tables.engine.Do(ctx, func() { f(s.tables.engine.Passes()) })
	})
	if err := s.reader.read(ctx, look.Line); err != nil {
		return nil, err
	}
	list, ok := look.Rechecks()
	if !ok {
		return nil, fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
	return list, nil
}

// stopping returns the number of tracked connections, which the userspace datapath counts itself.
func (s agentSwitch) stopping(ctx context.Context) (int, error) {
	if s.tables.config.OVSDatapathType != "netdev" {
		return 0, nil
	}
	text, err := s.tracer.Run(ctx, "dpctl/ct-get-nconns", conntrackDump(s.tables.config, false)[0])
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("number of connections: %w", err)
	}
	return n, nil
}

func (s agentSwitch) recheck(list []datapath.Recheck) { s.tables.flows.Policies.Known.Recheck(list) }

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// rechecker has known connections judged again that a change of policies concerns. It compares what the switch tracks
// with the policies of now: after a change of policies, and at each connection to the switch, so that a restart of
// the agent finds what a change before it has left.
type rechecker struct {
	switches recheckSwitch
	log      *slog.Logger
	wake     chan struct{}
}

// recheckSwitch is what the rechecker needs of the switch and of the tables.
type recheckSwitch interface {
	// session numbers the connections to the switch; 0 while there is none.
	session() uint64
	// applied returns when the switch has confirmed the flows of the last plan.
	applied(context.Context) error
	// dump lists the connections that the switch knows.
	dump(context.Context) (string, error)
	// rechecks says what of a dump has to be judged again; recheck does it, and ends what was to be before.
	rechecks(dump string) []datapath.Recheck
	recheck([]datapath.Recheck)
}

// A look takes time in proportion to the connections that there are, so there is a pause after each that is longer
// where they are many. While some wait for their next packet, the switch is looked at every now and then, to end the
// rechecks that are done.
const (
	recheckPause  = time.Second
	recheckShare  = 10 // a look may take one part in so many of the time
	recheckLonger = 30 * time.Second
)

func newRechecker(s recheckSwitch, log *slog.Logger) *rechecker {
	return &rechecker{switches: s, log: log, wake: make(chan struct{}, 1)}
}

// changed says that policies have changed.
func (c *rechecker) changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (c *rechecker) run(ctx context.Context) {
	var seen uint64
	waiting, due := 0, true
	for ctx.Err() == nil {
		began := time.Now()
		if session := c.switches.session(); session != 0 && (due || session != seen || waiting > 0) {
			n, err := c.look(ctx)
			if due = err != nil; err != nil {
				c.log.Debug("connections not compared with policies yet", "error", err)
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

func (c *rechecker) look(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// Before the flows are there, packets make connections by the old ones.
	if err := c.switches.applied(ctx); err != nil {
		return 0, err
	}
	dump, err := c.switches.dump(ctx)
	if err != nil {
		return 0, err
	}
	list := c.switches.rechecks(dump)
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

func (s agentSwitch) dump(ctx context.Context) (string, error) {
	return s.tracer.Run(ctx, "dpctl/dump-conntrack", conntrackDump(s.config)...)
}

func (s agentSwitch) rechecks(dump string) []datapath.Recheck { return s.tables.flows.Rechecks(dump) }
func (s agentSwitch) recheck(list []datapath.Recheck)         { s.tables.flows.Recheck(list) }

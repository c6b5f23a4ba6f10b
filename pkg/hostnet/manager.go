package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/desired"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Options of a Manager.
type Options struct {
	// Logger receives changes; nil for silence.
	Logger *slog.Logger
	// Resync is how often everything but nftables is compared although no event asks for it,
	// because sysctls send none; default 30 s.
	Resync time.Duration
	// Namespace is the network namespace to configure; nil for the one of the process.
	Namespace *netns.NsHandle
}

// settle is how long events are gathered before a comparison.
const settle = 5 * time.Millisecond

// Manager brings the kernel's configuration to what was Set, and keeps it there. All
// methods may be called at any time, from any goroutine.
type Manager struct {
	opts Options
	log  *slog.Logger

	want *desired.State[Desired]

	mu       sync.Mutex
	done     uint64 // the round of the last comparison
	pending  []problem.Problem
	failed   []problem.Problem
	stats    Stats
	progress chan struct{} // closed and replaced after each comparison

	deaf    atomic.Bool   // an event socket has ended: compare everything at each resync
	trigger chan struct{} // links, addresses, routes or neighbours have changed
	tables  chan struct{} // our nftables table has changed
	all     chan struct{} // compare everything
	changed chan struct{}
}

// New returns a Manager that does nothing until Run.
func New(opts Options) *Manager {
	if opts.Resync == 0 {
		opts.Resync = 30 * time.Second
	}
	m := &Manager{
		opts: opts, log: opts.Logger,
		want:     desired.New(Desired.clone),
		progress: make(chan struct{}),
		trigger:  make(chan struct{}, 1),
		tables:   make(chan struct{}, 1),
		all:      make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	return m
}

// Set declares what the Node should have and returns at once. Nothing is touched before
// the first Set, and nothing is done when d is what was Set before.
func (m *Manager) Set(d Desired) {
	if m.want.Set(d) {
		signal(m.all)
	}
}

// Synced waits until the kernel has all of what was last Set. What the kernel refuses is
// an error at once; for what is not there yet, such as a link, it waits, and when ctx ends
// the error says what that is.
func (m *Manager) Synced(ctx context.Context) error {
	_, round := m.want.Get()
	for {
		m.mu.Lock()
		done, failed, pending, progress := m.done >= round, m.failed, m.pending, m.progress
		m.mu.Unlock()
		if done && len(failed) > 0 {
			return asError(failed)
		}
		if done && len(pending) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if len(pending) == 0 {
				return fmt.Errorf("configure the Node's network: %w", context.Cause(ctx))
			}
			return fmt.Errorf("configure the Node's network: %w: %w", asError(pending), context.Cause(ctx))
		case <-progress:
		}
	}
}

// Problems returns what could not be applied, and what is not there yet.
func (m *Manager) Problems() []problem.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Concat(m.failed, m.pending)
}

// Changed is signalled when links, addresses or routes of the Node may have changed, by anybody
// it. It has room for one signal and one listener.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

// Stats returns what has been done so far.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// Run compares and mends until ctx ends; it returns nil then, and an error if the kernel
// cannot be asked at all.
func (m *Manager) Run(ctx context.Context) error {
	if m.opts.Namespace != nil {
		// The thread ends with the goroutine since it is never unlocked.
		runtime.LockOSThread()
		if err := netns.Set(*m.opts.Namespace); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer h.Close()
	subscriptions, err := m.subscribe()
	if err != nil {
		return err
	}
	var listening sync.WaitGroup
	for _, s := range subscriptions {
		listening.Go(func() { m.listen(ctx, s) })
	}
	defer func() {
		for _, s := range subscriptions {
			s.socket.Close()
		}
		listening.Wait()
	}()

	a := &applier{handle: h, log: m.log}
	resync := time.NewTicker(m.opts.Resync)
	defer resync.Stop()
	signal(m.all)
	for {
		everything := false
		select {
		case <-ctx.Done():
			return nil
		case <-resync.C:
			everything = true
		case <-m.all:
			everything = true
		case <-m.tables:
			a.nftDirty = true
		case <-m.trigger:
		}
		if !everything {
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				return nil
			}
		}
		m.compare(ctx, a, everything)
	}
}

// compare makes one comparison. What sends no events is left out unless everything.
func (m *Manager) compare(ctx context.Context, a *applier, everything bool) {
	want, round := m.want.Get()
	if round == 0 {
		return
	}
	a.begin(ctx, want)
	a.links()
	a.neighbors()
	a.routes()
	a.tunnels(everything)
	a.sysctls()
	if everything && m.deaf.Load() {
		a.nftDirty = true
	}
	a.nftables()

	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Compares++
	m.stats.Changes += uint64(len(a.changes))
	m.stats.LastError = ""
	if err := asError(slices.Concat(a.failed, a.pending)); err != nil {
		m.stats.LastError = err.Error()
	}
	m.stats.NFTReads = a.nftReads
	if everything || round == m.done {
		m.done = round
	}
	if !slices.Equal(m.failed, a.failed) {
		for _, p := range a.failed {
			m.log.Error("configure the Node's network", "problem", p.String())
		}
	}
	m.failed, m.pending = a.failed, a.pending
	if len(a.changes) > 0 {
		m.log.Info("configured the Node's network", "changes", a.changes)
	}
	close(m.progress)
	m.progress = make(chan struct{})
}

func asError(problems []problem.Problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = errors.New(p.String())
	}
	return errors.Join(errs...)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

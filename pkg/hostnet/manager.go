package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

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
	// Namespace is the network namespace to configure; nil for the process's own.
	Namespace *netns.NsHandle
}

// outcome is the result of the last comparison.
type outcome struct {
	done            uint64 // its round
	pending, failed []problem.Problem
	noted           []problem.Problem // nothing waits for these
}

// tableRetry is how long until nft is tried again.
const tableRetry = time.Second

// settle is how long events are gathered before a comparison.
const settle = 5 * time.Millisecond

// Manager makes the kernel's configuration equal to the state of the last Set, and keeps it so. Any goroutine may call
// its methods at any time.
type Manager struct {
	opts Options
	log  *slog.Logger

	want                *desired.State[Desired]
	services, hostPorts []*translatedTable // one of each version of IP

	mu       sync.Mutex
	stack    outcome // of all but the tables
	table    outcome // of our nftables tables without translations
	egress   uint64  // the round of the last comparison of the one with Egress
	sources  map[knftables.Family]sources
	stats    Stats
	progress chan struct{} // closed and replaced after each comparison

	events *events
	rules  chan struct{} // our nftables tables should be others
}

// New returns a Manager that does nothing until Run.
func New(opts Options) *Manager {
	if opts.Resync == 0 {
		opts.Resync = 30 * time.Second
	}
	m := &Manager{
		opts: opts, log: opts.Logger,
		want: desired.New(Desired.clone),

		services:  bothVersions(newServicesTable),
		hostPorts: bothVersions(newHostPortsTable),

		sources:  map[knftables.Family]sources{},
		progress: make(chan struct{}),
		rules:    make(chan struct{}, 1),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.events = newEvents(m.translatedTables(), m.log)
	return m
}

// Set declares the desired configuration of the Node and returns at once. The Manager changes nothing before the first
// Set. A Set with the same state as before has no effect.
func (m *Manager) Set(d Desired) {
	if m.want.Set(d) {
		desired.Signal(m.events.all)
		desired.Signal(m.rules)
		for _, t := range m.translatedTables() {
			desired.Signal(t.wanted)
		}
	}
}

// translatedTables are the tables of translations.
func (m *Manager) translatedTables() []*translatedTable {
	return slices.Concat(m.services, m.hostPorts)
}

// Synced waits until the kernel has the state of the last Set. If the kernel refuses a part, it returns an error at
// once. If a part is missing, such as a link, it waits; when ctx ends the error names that part.
func (m *Manager) Synced(ctx context.Context) error {
	return m.await(ctx, func(round uint64) (done bool, failed, pending []problem.Problem) {
		return min(m.stack.done, m.table.done) >= round, slices.Concat(m.stack.failed, m.table.failed),
			slices.Concat(m.stack.pending, m.table.pending)
	})
}

// Leads is Synced for the routes to some addresses, and for their translation as sources that Masquerade.Always lists.
// It does not wait for other parts. In particular it does not wait for nft, which takes seconds on a busy Node, if the
// kernel translates the addresses already.
func (m *Manager) Leads(ctx context.Context, to []netip.Addr) error {
	return m.await(ctx, func(round uint64) (done bool, failed, pending []problem.Problem) {
		about := func(list []problem.Problem) []problem.Problem {
			return slices.DeleteFunc(slices.Clone(list), func(p problem.Problem) bool { return !aboutRoute(p, to) })
		}
		done, failed, pending = m.stack.done >= round, about(m.stack.failed), about(m.stack.pending)
		if slices.ContainsFunc(to, func(ip netip.Addr) bool { return !m.sources[familyOf(ip)].have(ip) }) {
			return done && m.table.done >= round, append(failed, m.table.failed...), append(pending, m.table.pending...)
		}
		return done, failed, pending
	})
}

// await waits until a part of the state of the last Set is done, and nothing of it is pending. It returns an error if
// the kernel refuses something of the part. A call of part holds m.mu.
func (m *Manager) await(ctx context.Context, part func(round uint64) (done bool, failed, pending []problem.Problem),
) error {
	_, round := m.want.Get()
	for {
		m.mu.Lock()
		done, failed, pending := part(round)
		progress := m.progress
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

// EgressCompared waits until the kernel has Egress of the last Set, until nft has refused it, or until ctx ends.
func (m *Manager) EgressCompared(ctx context.Context) {
	_, round := m.want.Get()
	for {
		m.mu.Lock()
		done, progress := m.egress >= round, m.progress
		m.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-progress:
		}
	}
}

// Problems returns what could not be applied, and what is not there yet.
func (m *Manager) Problems() []problem.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problems()
}

// problems is Problems for a caller that holds m.mu.
func (m *Manager) problems() []problem.Problem {
	failed, noted := slices.Concat(m.stack.failed, m.table.failed), slices.Clone(m.stack.noted)
	for _, t := range m.translatedTables() {
		failed, noted = append(failed, t.outcome.failed...), append(noted, t.outcome.noted...)
	}
	return slices.Concat(failed, m.stack.pending, m.table.pending, noted)
}

// Changed gets a signal when any program may have changed links, addresses or routes of the Node. It has room for one
// signal, and is for one receiver.
func (m *Manager) Changed() <-chan struct{} { return m.events.changed }

// Stats returns what has been done so far.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// Run compares and repairs until ctx ends, and then returns nil. It returns an error if it cannot read the kernel's
// state at all.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.enter(); err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer h.Close()
	subscriptions, err := m.events.subscribe()
	if err != nil {
		return err
	}
	var listening sync.WaitGroup
	for _, s := range subscriptions {
		listening.Go(func() { m.events.listen(ctx, s) })
	}
	defer func() {
		for _, s := range subscriptions {
			s.socket.Close()
		}
		listening.Wait()
	}()

	keeping, stop := context.WithCancel(ctx)
	kept := make(chan error, 1+len(m.translatedTables()))
	var keepers sync.WaitGroup
	keepers.Go(func() { kept <- m.keepTables(keeping) })
	for _, t := range m.translatedTables() {
		keepers.Go(func() { kept <- m.keepTranslated(keeping, t) })
	}
	defer func() { stop(); keepers.Wait() }()

	a := &applier{handle: h, log: m.log, routers: routerLinks{names: map[string]bool{}}}
	resync := time.NewTicker(m.opts.Resync)
	defer resync.Stop()
	desired.Signal(m.events.all)
	for {
		everything := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-kept:
			return err
		case <-resync.C:
			everything = true
		case <-m.events.all:
			everything = true
		case <-m.events.stack:
		}
		if !everything {
			select {
			case <-time.After(settle):
			case <-m.events.all: // a Set waits for no events
				everything = true
			case <-ctx.Done():
				return nil
			}
		}
		m.compare(ctx, a, everything)
	}
}

// enter brings the goroutine into the namespace to configure. Its thread ends with it, since it is never unlocked.
func (m *Manager) enter() error {
	if m.opts.Namespace == nil {
		return nil
	}
	runtime.LockOSThread()
	if err := netns.Set(*m.opts.Namespace); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// keepTables is Run for our nftables tables. It is a loop of its own because the nft program, which runs several times
// for each change, takes seconds on a busy Node: a change of routes must not wait for that.
func (m *Manager) keepTables(ctx context.Context) error {
	if err := m.enter(); err != nil {
		return err
	}
	a, tables := &applier{log: m.log}, nodeTables{}
	resync := time.NewTicker(m.opts.Resync)
	defer resync.Stop()
	var again <-chan time.Time // after a failure
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.rules:
		case <-again:
		case <-resync.C:
			if m.events.ended.Load() {
				tables.suspect()
			}
		case <-m.events.tables:
			tables.suspect()
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				return nil
			}
		}
		want, round := m.want.Get()
		if round == 0 {
			continue
		}
		a.begin(ctx, want)
		m.mu.Lock()
		for _, family := range families {
			m.sources[family] = sources{m.sources[family].has, want.Masquerade.Always}
		}
		m.mu.Unlock()
		tables.apply(a, func(family knftables.Family, is bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if family == knftables.NetDevFamily {
				m.egress = round
			}
			if is {
				m.sources[family] = sources{want.Masquerade.Always, want.Masquerade.Always}
			}
			m.progressed()
		})
		again = nil
		if len(a.failed) > 0 {
			again = time.After(tableRetry)
		}
		m.compared(a, &m.table, round)
	}
}

// compare makes one comparison of everything except our nftables tables. It leaves out objects without events unless
// everything is set.
func (m *Manager) compare(ctx context.Context, a *applier, everything bool) {
	want, round := m.want.Get()
	if round == 0 {
		return
	}
	a.begin(ctx, want)
	a.links()
	a.neighbors()
	a.routes()
	a.proxies(everything)
	a.hops.ask(a, everything)
	a.sysctls()
	if everything {
		a.forwarding(m.stack.noted)
	} else {
		round = m.stack.done // until everything is compared
		a.noted = m.stack.noted
	}
	m.compared(a, &m.stack, round)
}

// compared takes over what a comparison has found.
func (m *Manager) compared(a *applier, of *outcome, round uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Compares++
	m.stats.Changes += uint64(len(a.changes))
	m.stats.NFTReads += a.reads
	a.reads = 0
	before, now := slices.Concat(of.failed, of.noted), slices.Concat(a.failed, a.noted)
	if !slices.Equal(before, now) {
		for _, p := range now {
			m.log.Error("configure the Node's network", "problem", p.String())
		}
	}
	of.done, of.failed, of.pending, of.noted = round, a.failed, a.pending, a.noted
	m.stats.LastError = ""
	if err := asError(m.problems()); err != nil {
		m.stats.LastError = err.Error()
	}
	if len(a.changes) > 0 {
		m.log.Info("configured the Node's network", "changes", a.changes)
	}
	m.progressed()
}

// progressed wakes who waits for a comparison. mu is held.
func (m *Manager) progressed() {
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

package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
)

// defaultEndpoint is where ovsdb-server listens by default.
const defaultEndpoint = "unix:" + ofconn.DefaultRunDir + "/" + socket

const socket = "db.sock"

// EndpointIn returns the endpoint of an ovsdb-server whose sockets are in a directory (OVS_RUNDIR).
func EndpointIn(runDir string) string { return "unix:" + runDir + "/" + socket }

// Options of a Manager.
type Options struct {
	// Endpoint is the address of ovsdb-server in the form of ovsdb(7), such as "unix:/run/db.sock". If it is empty,
	// defaultEndpoint is used.
	Endpoint string
	// Logger receives changes of state; nil for silence.
	Logger *slog.Logger
}

// Manager makes the switch's configuration equal to the state of the last Set, and keeps it so. Any goroutine may call
// its methods at any time.
type Manager struct {
	endpoint string
	log      *slog.Logger

	mu       sync.Mutex
	want     desired
	round    uint64          // raised by each change of want
	clears   map[uint64]bool // callers that wait for the end of flow-restore-wait, by round
	state    State
	stats    Stats
	outcome  outcome
	progress chan struct{} // closed and replaced after each comparison

	last int // number given to a port; used by the session only

	trigger chan struct{} // something may have to be done
	changed chan struct{} // the state has changed
}

// outcome is what the last comparison came to.
type outcome struct {
	round   uint64           // the want it was made for
	done    bool             // nothing left to send, and ovs-vswitchd has carried out all of it
	refused error            // ovsdb-server refused the transaction
	ports   map[string]error // declared ports: nil is in use, errPending not yet
}

var errPending = errors.New("ovs-vswitchd has not given it an OpenFlow port number yet")

// New returns a Manager that does nothing until Run.
func New(opts Options) *Manager {
	m := &Manager{
		endpoint: opts.Endpoint,
		log:      opts.Logger,
		clears:   map[uint64]bool{},
		progress: make(chan struct{}),
		trigger:  make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
	}
	if m.endpoint == "" {
		m.endpoint = defaultEndpoint
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	return m
}

// Set declares the bridges that should exist and returns at once.
func (m *Manager) Set(bridges []Bridge) {
	copied := make([]Bridge, len(bridges))
	for i, b := range bridges {
		copied[i] = b.clone()
	}
	m.change(func() { m.want.bridges = copied })
}

// Release allows removals from now on. Call it once all sources of ports have been loaded. Until then ports are only
// added and updated, so that a restart never disconnects a Pod that is not known yet.
func (m *Manager) Release() {
	m.change(func() { m.want.removals = true })
}

// ClearFlowRestoreWait removes other_config:flow-restore-wait, with which start scripts
// hold ovs-vswitchd back until its flows are installed, and waits until that is carried
// out. It returns nil when the key is not there.
func (m *Manager) ClearFlowRestoreWait(ctx context.Context) error {
	round := m.change(func() { m.clears[m.round+1] = true })
	if err := m.wait(ctx, func() (bool, error) {
		return !m.clears[round] && m.state.CurCfg >= m.state.NextCfg, nil
	}); err != nil {
		// A later session must not carry it out before its switch has flows.
		m.change(func() { delete(m.clears, round) })
		return fmt.Errorf("clear flow-restore-wait: %w", err)
	}
	return nil
}

// Synced waits until ovs-vswitchd has carried out the last Set and all declared ports, or only the named ones, have an
// OpenFlow port number. If a port cannot be added, or a transaction was refused, it returns an error at once. If ctx
// ends, the error names the missing parts.
func (m *Manager) Synced(ctx context.Context, ports ...string) error {
	m.mu.Lock()
	round := m.round
	m.mu.Unlock()
	return m.wait(ctx, func() (bool, error) {
		o := m.outcome
		if o.round < round || !m.state.Connected {
			return false, nil
		}
		if o.refused != nil || !o.done {
			return false, o.refused
		}
		pending, errs := false, []error(nil)
		check := func(err error) {
			switch {
			case errors.Is(err, errPending):
				pending = true
			case err != nil:
				errs = append(errs, err)
			}
		}
		for _, name := range ports {
			err, declared := o.ports[name]
			if !declared {
				err = fmt.Errorf("port %s is not declared", name)
			}
			check(err)
		}
		if len(ports) == 0 {
			for _, name := range sortedKeys(o.ports) {
				check(o.ports[name])
			}
		}
		return !pending, errors.Join(errs...)
	})
}

// State returns what the database says is there. It must not be changed.
func (m *Manager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Stats returns what has been done so far.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// Changed gets a signal after State has changed. It has room for one signal, and is for one receiver.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

// Run connects, compares and repairs until ctx ends, and then returns nil. It returns no other errors, since it retries
// after each failure.
func (m *Manager) Run(ctx context.Context) error {
	const shortest, longest = 100 * time.Millisecond, 3 * time.Second
	pause := shortest
	for {
		began := time.Now()
		err := m.session(ctx)
		m.disconnected(err)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		m.log.Warn("no connection to ovsdb-server", "endpoint", m.endpoint, "error", err, "retryIn", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// change changes the desired state and starts a comparison. It returns the round of the change.
func (m *Manager) change(f func()) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.round++
	m.want.clearsFlowRestoreWait = len(m.clears) > 0
	signal(m.trigger)
	return m.round
}

// wait returns when met does, which is asked with the lock held after each comparison.
func (m *Manager) wait(ctx context.Context, met func() (bool, error)) error {
	for {
		m.mu.Lock()
		ok, err := met()
		progress, missing := m.progress, m.missing()
		m.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", missing, context.Cause(ctx))
		case <-progress:
		}
	}
}

// missing returns an error with the missing parts, for a waiting caller.
func (m *Manager) missing() error {
	switch {
	case !m.state.Connected && m.stats.LastError != "":
		return fmt.Errorf("no session with ovsdb-server at %s: %s", m.endpoint, m.stats.LastError)
	case !m.state.Connected:
		return fmt.Errorf("no session with ovsdb-server at %s yet", m.endpoint)
	case m.state.CurCfg < m.state.NextCfg:
		return fmt.Errorf("ovs-vswitchd has not carried out configuration %d, it is at %d: is it running?", m.state.NextCfg,
			m.state.CurCfg)
	}
	for _, name := range sortedKeys(m.outcome.ports) {
		if err := m.outcome.ports[name]; err != nil {
			return fmt.Errorf("port %s: %w", name, err)
		}
	}
	return errors.New("the configuration is being compared")
}

// publish makes a comparison's result known.
func (m *Manager) publish(s State, o outcome) {
	m.mu.Lock()
	differs := !reflect.DeepEqual(m.state, s)
	m.state, m.outcome = s, o
	if !s.FlowRestoreWait {
		maps.DeleteFunc(m.clears, func(round uint64, _ bool) bool { return round <= o.round })
		m.want.clearsFlowRestoreWait = len(m.clears) > 0
	}
	m.stats.LastError = ""
	if o.refused != nil {
		m.stats.LastError = o.refused.Error()
	}
	m.announce()
	m.mu.Unlock()
	if differs {
		signal(m.changed)
	}
}

func (m *Manager) disconnected(err error) {
	m.mu.Lock()
	was := m.state.Connected
	m.state.Connected = false
	if err != nil {
		m.stats.LastError = err.Error()
	}
	m.announce()
	m.mu.Unlock()
	if was {
		signal(m.changed)
	}
}

func (m *Manager) announce() {
	close(m.progress)
	m.progress = make(chan struct{})
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

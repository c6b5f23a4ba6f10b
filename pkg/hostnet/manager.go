package hostnet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Options of a Manager.
type Options struct {
	Logger *slog.Logger  // may be nil
	Resync time.Duration // slow compare, default 30 s
}

// Manager brings the kernel's configuration to what was Set, and keeps it there.
type Manager struct {
	opts    Options
	mu      sync.Mutex
	stats   Stats
	changed chan struct{}
}

// New returns a Manager that does nothing until Run.
func New(opts Options) *Manager { return &Manager{opts: opts, changed: make(chan struct{}, 1)} }

// Run compares and mends until ctx ends.
func (m *Manager) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Set declares what the Node should have.
func (m *Manager) Set(d Desired) {}

// Synced waits until the kernel has what was last Set.
func (m *Manager) Synced(ctx context.Context) error { return nil }

// Changed rings when links, addresses or routes of the Node have changed.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

// Problems returns what could not be applied, or not yet.
func (m *Manager) Problems() []problem.Problem { return nil }

// Stats returns counters.
func (m *Manager) Stats() Stats { return m.stats }

package flowsync

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

// RedialWithin makes attempts to connect follow each other faster than in earnest.
func (s *Syncer) RedialWithin(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redial = d
}

// Idle is nil when a round has ended and nothing is left to do.
func (s *Syncer) Idle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.synced == 0 || s.slots.dirty.n > 0 {
		return errors.New("busy")
	}
	return nil
}

// Owners returns the owners with declarations.
func (s *Syncer) Owners() []flow.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(s.owners.all)), maps.Keys(s.meters.owners))
}

package flowsync

import (
	"errors"
	"time"
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
	if s.synced == 0 || s.dirty.n > 0 {
		return errors.New("busy")
	}
	return nil
}

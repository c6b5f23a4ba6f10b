package flowsync

import "time"

// RedialWithin makes attempts to connect follow each other faster than in earnest.
func (s *Syncer) RedialWithin(d time.Duration) { s.redial = d }

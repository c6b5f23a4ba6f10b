package derive

import "sync"

// Source is a table that is written from outside, by any goroutine. A write is pending until the next pass; of several
// writes to a key the last one counts. A write that changes nothing has no further effect.
type Source[K Key[K], V any] struct {
	*rows[K, V]

	mu      sync.Mutex
	pending map[K]V
	replace bool           // what is not in pending goes
	except  map[K]struct{} // but for these

	taken         map[K]V // by the pass, until it has stepped
	takenReplaces bool
	takenExcept   map[K]struct{}
}

// NewSource adds a source. A pass waits until it is declared Loaded.
func NewSource[K Key[K], V any](e *Engine, name string) *Source[K, V] {
	s := &Source[K, V]{rows: newRows[K, V](e, name), pending: map[K]V{}}
	s.step = func() { stepSource(s) }
	e.add(s.head)
	e.waiting[name] = true
	e.sources = append(e.sources, func() { take(s) })
	return s
}

// Set writes a row. A zero value deletes it. An equal value causes no pass.
func (s *Source[K, V]) Set(k K, v V) {
	s.mu.Lock()
	if there(s, k, v) {
		s.mu.Unlock()
		s.ignored.Add(1)
		return
	}
	s.pending[k] = v
	s.mu.Unlock()
	s.engine.signal()
}

// there reports whether a row has the value v already, and no pending or running write changes it. The caller holds
// s.mu.
func there[K Key[K], V any](s *Source[K, V], k K, v V) bool {
	if s.replace || s.takenReplaces { // the pass may be writing to taken
		return false
	}
	_, written := s.pending[k]
	_, taken := s.taken[k]
	if written || taken {
		return false
	}
	now, has := s.Get(k)
	return has == !absent(v) && (!has || s.equal(now, v))
}

// Delete removes a row.
func (s *Source[K, V]) Delete(k K) {
	var none V
	s.Set(k, none)
}

// Replace sets all rows. Rows of the keys in stay are kept. Later writes change the result.
func (s *Source[K, V]) Replace(all map[K]V, stay ...K) {
	s.mu.Lock()
	pending, except := make(map[K]V, len(all)), map[K]struct{}{}
	for _, k := range stay {
		if v, ok := s.pending[k]; ok {
			pending[k] = v
			continue
		}
		if _, stays := s.except[k]; stays || !s.replace {
			except[k] = struct{}{}
		}
	}
	for k, v := range all {
		pending[k] = v
	}
	s.pending, s.except, s.replace = pending, except, true
	s.mu.Unlock()
	s.engine.signal()
}

// Loaded declares that everything there is was written once, or that there is nothing.
func (s *Source[K, V]) Loaded() { s.engine.loaded(s.name) }

// take makes what is pending that of the pass.
func take[K Key[K], V any](s *Source[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.takenReplaces, s.takenExcept = nil, s.replace, s.except
	if len(s.pending) > 0 || s.replace {
		s.taken, s.pending = s.pending, map[K]V{}
	}
	s.replace, s.except = false, nil
}

// stepSource writes what was taken.
func stepSource[K Key[K], V any](s *Source[K, V]) {
	taken := s.taken
	if s.takenReplaces {
		var none V
		for k := range s.m {
			_, kept := taken[k]
			if _, stays := s.takenExcept[k]; !kept && !stays {
				taken[k] = none
			}
		}
	}
	grow(s.head, len(taken)-len(s.m)) // where most are new
	for k, v := range taken {
		if !put(s.rows, k, v) {
			s.ignored.Add(1)
		}
	}
	s.mu.Lock()
	s.taken, s.takenReplaces = nil, false
	s.mu.Unlock()
}

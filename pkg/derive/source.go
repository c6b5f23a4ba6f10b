package derive

import "sync"

// Source is a table that is written from outside, by any goroutine. A write is pending until
// the next pass; of several writes to a key the last one counts. One that changes nothing ends
// there.
type Source[K Key[K], V any] struct {
	*rows[K, V]

	mu      sync.Mutex
	pending map[K]V
	replace bool // what is not in pending goes
}

// NewSource adds a source. A pass waits until it is declared Loaded.
func NewSource[K Key[K], V any](e *Engine, name string) *Source[K, V] {
	s := &Source[K, V]{rows: newRows[K, V](e, name), pending: map[K]V{}}
	s.place = e.add(s, name)
	e.waiting[name] = true
	return s
}

// Set writes a row. A zero value deletes it.
func (s *Source[K, V]) Set(k K, v V) {
	s.mu.Lock()
	s.pending[k] = v
	s.mu.Unlock()
	s.engine.signal()
}

// Delete removes a row.
func (s *Source[K, V]) Delete(k K) {
	var none V
	s.Set(k, none)
}

// Replace makes these the only rows. Later writes come on top of them.
func (s *Source[K, V]) Replace(all map[K]V) {
	s.mu.Lock()
	clear(s.pending)
	for k, v := range all {
		s.pending[k] = v
	}
	s.replace = true
	s.mu.Unlock()
	s.engine.signal()
}

// Loaded declares that everything there is was written once, or that there is nothing.
func (s *Source[K, V]) Loaded() {
	s.engine.mu.Lock()
	delete(s.engine.waiting, s.name)
	s.engine.mu.Unlock()
	s.engine.signal()
}

func (s *Source[K, V]) step() {
	s.mu.Lock()
	pending, replace := s.pending, s.replace
	s.pending, s.replace = map[K]V{}, false
	s.mu.Unlock()
	if replace {
		var none V
		for k := range s.m {
			if _, kept := pending[k]; !kept {
				pending[k] = none
			}
		}
	}
	for k, v := range pending {
		if !s.put(k, v) {
			s.ignored.Add(1)
		}
	}
}

package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// passEvery is the shortest time between two Models.
	passEvery = 500 * time.Millisecond
	// maxWays is the number of ways above which pages ask for the ways of a link.
	maxWays = 400
)

// Update is the message to a page: the sections that changed.
type Update struct {
	Now  time.Time                  `json:"now"`
	Full bool                       `json:"full,omitempty"` // the page forgets all other sections
	Set  map[string]json.RawMessage `json:"set,omitempty"`
	Gone []string                   `json:"gone,omitempty"`
}

// head is the section "head".
type head struct {
	ClusterSets []string  `json:"clusterSets"`
	Started     time.Time `json:"started"`
	Grouped     bool      `json:"grouped,omitempty"` // the links come without their ways
}

// Hub holds the last Model in sections, and wakes the pages that read it.
type Hub struct {
	started time.Time

	mu       sync.Mutex
	timeline timeline
	links    map[string]Link
	waysOf   func(key string) []Way
	sections map[string]json.RawMessage
	version  map[string]uint64 // of each section, also of sections that are gone
	last     uint64
	changed  chan struct{} // closed at the next change
}

// NewHub returns a Hub with an empty Model.
func NewHub() *Hub {
	now := time.Now()
	h := &Hub{started: now, sections: map[string]json.RawMessage{}, version: map[string]uint64{},
		changed: make(chan struct{})}
	h.Set(now, Model{})
	return h
}

// Set replaces the Model.
func (h *Hub) Set(now time.Time, m Model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timeline.add(now, &m)
	sections := h.split(m)
	changed := false
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		if !bytes.Equal(sections[name], h.sections[name]) {
			changed = true
			h.last++
			h.version[name] = h.last
		}
	}
	for name := range h.sections {
		if _, stays := sections[name]; !stays {
			changed = true
			h.last++
			h.version[name] = h.last
		}
	}
	h.sections = sections
	if changed {
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// split encodes the sections of a Model.
func (h *Hub) split(m Model) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	put := func(name string, v any) {
		text, err := json.Marshal(v)
		if err == nil { // a time that JSON lacks: the page goes on without the section
			out[name] = text
		}
	}
	total := 0
	for _, l := range m.Links {
		total += len(l.Ways)
	}
	h.links, h.waysOf = make(map[string]Link, len(m.Links)), m.waysOf
	grouped := total > maxWays || m.waysOf != nil
	for _, l := range m.Links {
		h.links[l.Key] = l
		if grouped {
			l.Ways = nil
		}
		put("link:"+l.Key, l)
	}
	put("head", head{ClusterSets: m.ClusterSets, Started: h.started, Grouped: grouped})
	put("asof", m.AsOf)
	for _, c := range m.Clusters {
		put("cluster:"+c.Key, c)
		if nodes := m.Nodes[c.Key]; len(nodes) > 0 {
			put("nodes:"+c.Key, nodes)
		}
	}
	put("services", m.Services)
	put("timeline", m.Timeline)
	return out
}

// Link returns a link with all its ways.
func (h *Hub) Link(key string) (Link, bool) {
	h.mu.Lock()
	l, ok := h.links[key]
	waysOf := h.waysOf
	h.mu.Unlock()
	if ok && waysOf != nil {
		l.Ways = waysOf(key)
	}
	return l, ok
}

// since returns the sections that changed since a version, the present version, and a channel that closes at the next
// change. Version 0 returns all.
func (h *Hub) since(version uint64) (Update, uint64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := Update{Full: version == 0, Set: map[string]json.RawMessage{}}
	for name, v := range h.version {
		if v <= version {
			continue
		}
		if text, ok := h.sections[name]; ok {
			u.Set[name] = text
		} else if version > 0 {
			u.Gone = append(u.Gone, name)
		}
	}
	slices.Sort(u.Gone)
	return u, h.last, h.changed
}

// Follow builds Models from sources and the faults of a Diagnosis until ctx ends. wake is signalled after changes of
// these. It builds large Models less often, so that building takes at most a fifth of the time.
func (h *Hub) Follow(ctx context.Context, sources []*Source, diagnosis *Diagnosis, wake <-chan struct{}) {
	for {
		start := time.Now()
		var all []Snapshot
		for _, s := range sources {
			all = append(all, s.Snapshot())
		}
		h.Set(start, Build(all, diagnosis.Faults()...))
		pause := time.NewTimer(max(passEvery, 4*time.Since(start)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
	}
}

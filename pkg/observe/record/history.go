package record

import (
	"sync"
	"time"
	"unsafe"
)

// History keeps the newest events up to a number of bytes. Any number of readers follow it, each at its own speed. A
// reader never delays the writer. A slow reader misses events, and gets the number of missed ones.
type History struct {
	mu      sync.Mutex
	limit   int
	size    int
	events  []kept
	first   uint64 // the number of events[0]
	from    time.Time
	changed chan struct{} // closed at the next event
}

type kept struct {
	Event
	size int
}

// NewHistory returns a History of at most limit bytes.
func NewHistory(limit int) *History {
	return &History{limit: limit, from: time.Now(), changed: make(chan struct{})}
}

// Add appends events.
func (h *History) Add(list ...Event) {
	if len(list) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range list {
		k := kept{e, sizeOf(e)}
		h.events = append(h.events, k)
		h.size += k.size
	}
	gone := 0
	for h.size > h.limit && gone < len(h.events) {
		k := &h.events[gone]
		if r := k.Record(); r != nil {
			h.from = r.Time
		}
		h.size -= k.size
		*k = kept{}
		gone++
	}
	h.events = h.events[gone:]
	h.first += uint64(gone)
	if cap(h.events) > 2*len(h.events)+64 { // the array before the slice is freed
		h.events = append(make([]kept, 0, len(h.events)+len(h.events)/4), h.events...)
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// From returns since when the history is complete.
func (h *History) From() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from
}

// Next returns the number that the next event gets.
func (h *History) Next() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first + uint64(len(h.events))
}

// readAtOnce is how many events Read returns at most.
const readAtOnce = 512

// Read returns the events from a number on, the number to continue with, and how many events were dropped before they
// could be read. changed is closed when there are more events.
func (h *History) Read(from uint64) (list []Event, next, lost uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if from < h.first {
		from, lost = h.first, h.first-from
	}
	end := min(from+readAtOnce, h.first+uint64(len(h.events)))
	for i := from; i < end; i++ {
		list = append(list, h.events[i-h.first].Event)
	}
	return list, max(from, end), lost, h.changed
}

// Last returns the number of the oldest event to begin with: the first of the newest n events that a filter accepts and
// that are not older than since. A negative n means no bound.
func (h *History) Last(n int, since time.Time, f Filter) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := uint64(len(h.events))
	for i := len(h.events) - 1; i >= 0 && n != 0; i-- {
		r := h.events[i].Record()
		if r == nil {
			continue
		}
		if r.Time.Before(since) {
			return h.first + uint64(i) + 1
		}
		if f.Takes(r) {
			n--
			from = uint64(i)
		}
	}
	return h.first + from
}

// sizeOf returns the memory of an event. Names of Pods and policies are counted as if each event had its own.
func sizeOf(e Event) int {
	size := int(unsafe.Sizeof(kept{}))
	if r := e.Record(); r != nil {
		size += int(unsafe.Sizeof(*r))
		for _, rule := range []*Rule{r.Rule, r.Egress, r.Ingress} {
			if rule != nil {
				size += int(unsafe.Sizeof(*rule)) + len(rule.Policy) + len(rule.Name)
			}
		}
		if r.Life != nil {
			size += int(unsafe.Sizeof(*r.Life)) + 2*int(unsafe.Sizeof(Traffic{}))
		}
		size += len(r.Message) + len(r.Service) + len(r.Asked) + len(r.Way) + len(r.Network) + len(r.ToNetwork)
		for _, e := range []End{r.From, r.To} {
			size += len(e.IP) + len(e.Namespace) + len(e.Pod)
		}
		for _, p := range r.Policies {
			size += int(unsafe.Sizeof(p)) + len(p)
		}
	}
	if e.Missing != nil {
		size += int(unsafe.Sizeof(*e.Missing))
	}
	return size
}

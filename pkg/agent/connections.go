package agent

import (
	"context"
	"sync"
	"time"
)

// connectionWork has the parts that count and remove tracked connections.
type connectionWork struct {
	flusher  *conntrackFlusher
	rechecks *rechecker
	zones    *zoneFlusher // nil without feature gate TenantNetworks
	count    *connectionCount
}

// connectionReader lists the connections that the switch tracks, for all readers. While the list is made, the userspace
// datapath forwards nothing. So readers that ask within a second share one list, which begins after the last request.
// They get the list line by line, since it can be half a gigabyte.
type connectionReader struct {
	list func(context.Context, func(line string)) error
	// all lists the connections of all zones, even if list leaves some out.
	all func(context.Context, func(line string)) error

	mu    sync.Mutex
	next  *listing // one that has not begun
	began time.Time
}

// listing is one list, once done is closed.
type listing struct {
	done    chan struct{}
	readers []*lineReader
	all     bool // of all zones
	err     error
}

// lineReader is one that asks.
type lineReader struct {
	mu   sync.Mutex
	each func(line string) // nil once it has given up
}

func (r *lineReader) line(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.each != nil {
		r.each(text)
	}
}

// readPause is the least time between the beginnings of two lists.
const readPause = time.Second

// read calls each with every line of a list that begins after the call of read. The calls come one after the other, and
// all of them before read returns. If read fails, each may have got a part of the lines.
func (r *connectionReader) read(ctx context.Context, each func(line string)) error {
	return r.ask(ctx, each, false)
}

// readAll reads the connections of all zones.
func (r *connectionReader) readAll(ctx context.Context, each func(line string)) error {
	return r.ask(ctx, each, true)
}

// ask has a list made. Readers of some zones get a list of all zones, too, if another reader needs it.
func (r *connectionReader) ask(ctx context.Context, each func(line string), all bool) error {
	asks := &lineReader{each: each}
	r.mu.Lock()
	l := r.next
	if l == nil {
		l = &listing{done: make(chan struct{})}
		r.next = l
		go r.run(context.WithoutCancel(ctx), l, r.began.Add(readPause))
	}
	l.readers, l.all = append(l.readers, asks), l.all || all
	r.mu.Unlock()
	select {
	case <-ctx.Done():
		asks.mu.Lock()
		asks.each = nil
		asks.mu.Unlock()
		return ctx.Err()
	case <-l.done:
		return l.err
	}
}

func (r *connectionReader) run(ctx context.Context, l *listing, at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, recheckLimit)
	defer cancel()
	_ = sleep(ctx, time.Until(at))
	r.mu.Lock()
	r.next, r.began = nil, time.Now()
	r.mu.Unlock()
	list := r.list
	if l.all {
		list = r.all
	}
	l.err = list(ctx, func(line string) {
		for _, asks := range l.readers {
			asks.line(line)
		}
	})
	close(l.done)
}

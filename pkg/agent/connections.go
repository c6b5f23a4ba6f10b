package agent

import (
	"context"
	"sync"
	"time"
)

// connectionReader lists the connections that the switch tracks, for all that ask. The userspace datapath forwards
// nothing meanwhile, so those that ask within a second get one list, which begins after the last of them has asked.
type connectionReader struct {
	list func(context.Context) (string, error)

	mu    sync.Mutex
	next  *listing // one that has not begun
	began time.Time
}

// listing is one list, once done is closed.
type listing struct {
	done chan struct{}
	text string
	err  error
}

// readPause is the least time between the beginnings of two lists.
const readPause = time.Second

func (r *connectionReader) read(ctx context.Context) (string, error) {
	r.mu.Lock()
	l := r.next
	if l == nil {
		l = &listing{done: make(chan struct{})}
		r.next = l
		go r.run(context.WithoutCancel(ctx), l, r.began.Add(readPause))
	}
	r.mu.Unlock()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-l.done:
		return l.text, l.err
	}
}

func (r *connectionReader) run(ctx context.Context, l *listing, at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, recheckLimit)
	defer cancel()
	_ = sleep(ctx, time.Until(at))
	r.mu.Lock()
	r.next, r.began = nil, time.Now()
	r.mu.Unlock()
	l.text, l.err = r.list(ctx)
	close(l.done)
}

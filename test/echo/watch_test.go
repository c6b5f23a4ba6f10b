package main

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
)

// printed is what a client prints. The channel begun is closed at the first line.
type printed struct {
	mu    sync.Mutex
	text  strings.Builder
	once  sync.Once
	begun chan struct{}
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once.Do(func() { close(p.begun) })
	return p.text.Write(b)
}

// TestWatchOpen interrupts a client while its request waits for an answer that does not come: the request is counted as
// failed, at the time limit of the whole of it.
func TestWatchOpen(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		t.Run(map[bool]string{true: "fresh", false: "kept"}[fresh], func(t *testing.T) {
			silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts for it
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			ctx, cancel := context.WithCancel(t.Context())
			out := printed{begun: make(chan struct{})}
			const limit = 300 * time.Millisecond
			w := watcher{interval: time.Hour, timeout: limit, fresh: fresh, begun: true, streams: 1, out: &out}
			done := make(chan error, 1)
			go func() { done <- w.run(ctx, "http://"+silent.Addr().String()+"/") }()
			select {
			case <-out.begun:
			case <-time.After(time.Minute):
				t.Fatal("no request has begun")
			}
			cancel()
			<-done
			var ended []watched.Request
			for line := range strings.Lines(out.text.String()) {
				if r, open, err := watched.Parse(line); err != nil {
					t.Fatal(err)
				} else if !open {
					ended = append(ended, r)
				}
			}
			if len(ended) != 1 || ended[0].Failed == "" || ended[0].Took < limit {
				t.Errorf("requests %+v have ended, want the one that was open, failed after %s", ended, limit)
			}
		})
	}
}

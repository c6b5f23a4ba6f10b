package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
)

// TestAskedAgain ends the answers of Nodes. A Node that does not serve the question is not asked again.
func TestAskedAgain(t *testing.T) {
	for _, row := range []struct {
		name   string
		err    error
		follow bool
		again  bool
	}{
		{"the connection is lost", errors.New("EOF"), true, true},
		{"the question is not served", fmt.Errorf("node-1: %w", unserved{errors.New("400")}), true, false},
		{"without follow", errors.New("EOF"), false, false},
		{"its end", nil, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			from := &node{name: "node-1"}
			a := &reading{relay: &Relay{log: slog.New(slog.NewTextHandler(t.Output(), nil))},
				question: record.Question{Follow: row.follow}, of: map[*node]bool{from: true}, again: map[*node]time.Time{},
				tries: map[string]try{}, open: 1, begun: map[string]bool{"node-1": true}}
			a.receive(received{from: from, ended: true, err: row.err})
			if _, have := a.again[from]; have != row.again {
				t.Errorf("it is asked again: %v, want %v", have, row.again)
			}
			if missing := a.merger.Len() > 0; missing != (row.err != nil) || a.open != 0 {
				t.Errorf("the reader gets a line about missing records: %v; %d Nodes are read", missing, a.open)
			}
		})
	}
}

// pipe is a listener with one connection.
type pipe struct {
	net.Conn
	conns chan net.Conn
}

func (p pipe) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipe) Addr() net.Addr { return p.LocalAddr() }

func (p pipe) Close() error { return nil } // the connection stays

// connect returns a Node whose agent answers with a handler, until ctx ends.
func connect(ctx context.Context, t *testing.T, all *sync.WaitGroup, name string, handler http.Handler) *node {
	t.Helper()
	far, own := net.Pipe()
	l := pipe{own, make(chan net.Conn, 1)}
	l.conns <- own
	taken := make(chan *reverse.Conn, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c, err := reverse.Accept(w, q)
		if err != nil {
			t.Error(err)
		}
		taken <- c
	})}
	all.Go(func() { _ = server.Serve(l) })
	all.Go(func() { _ = reverse.Serve(ctx, far, api.RelayHost, "token", handler, func() {}) })
	c := <-taken
	close(l.conns)
	return &node{Conn: c, name: name}
}

// TestBackOff reads a Node whose answers fail. The time between two questions grows up to a bound. An answer that lasts
// ends the back-off.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		start := time.Now()
		var mu sync.Mutex
		var asked []int                                     // seconds since start
		lasts := map[int]time.Duration{6: 90 * time.Second} // the seventh answer
		agent := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			mu.Lock()
			n := len(asked)
			asked = append(asked, int(time.Since(start).Seconds()))
			mu.Unlock()
			_ = json.NewEncoder(w).Encode(record.Event{Begin: &record.Begin{Node: "node-1"}})
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(lasts[n]):
			case <-q.Context().Done():
			}
			fmt.Fprintln(w, "no JSON")
		})
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
		r := &Relay{log: log, nodes: newNodes(log), who: newReviewer(nil, allowing{}, "agents"),
			records: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "records"}, []string{"result"})}
		r.nodes.connected(connect(ctx, t, &all, "node-1", agent))
		a := &reading{relay: r, question: record.Question{Follow: true}, view: record.View{All: true}, query: url.Values{},
			received: make(chan received, queue), of: map[*node]bool{}, again: map[*node]time.Time{}, tries: map[string]try{},
			begun: map[string]bool{}, before: map[string]bool{}, merger: record.Merger{Wait: mergeWait},
			lines: json.NewEncoder(io.Discard), flush: func() error { return nil }}
		reader, end := context.WithCancel(ctx)
		all.Go(func() { a.run(reader) })
		time.Sleep(200 * time.Second) // of the bubble
		end()
		mu.Lock()
		defer mu.Unlock()
		// 2, 4, 8, 15, 15 and 15 s pass; the answer after that lasts 90 s, and 2 s and 4 s pass.
		if want := []int{0, 2, 6, 14, 29, 44, 59, 151, 155, 163, 178, 193}; !slices.Equal(asked, want) {
			t.Errorf("asked after %v s, want %v", asked, want)
		}
		r.nodes.closeAll()
	})
}

// allowing is an API server that allows everything.
type allowing struct {
	authorizationv1.SubjectAccessReviewInterface
}

func (allowing) Create(context.Context, *authorization.SubjectAccessReview, metav1.CreateOptions) (
	*authorization.SubjectAccessReview, error) {
	return &authorization.SubjectAccessReview{Status: authorization.SubjectAccessReviewStatus{Allowed: true}}, nil
}

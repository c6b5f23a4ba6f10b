package relay_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/relay/relaytest"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// cluster is an API server with the relay's objects, and accounts of readers.
type cluster struct {
	*relaytest.Cluster
	t testing.TB
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{relaytest.New(t), t}
	c.Install()
	c.Account("kube-system", "stranger")
	c.Account("kube-system", "developer")
	c.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	c.Bind("shop", "ClusterRole", "tombolo-observe-flows", "developer")
	return c
}

// replica is a replica of the relay in this process.
type replica struct {
	*relaytest.Replica
	t testing.TB
}

// start runs a replica until the test ends or Stop is called.
func (c *cluster) start() *replica {
	c.t.Helper()
	return &replica{c.Start(), c.t}
}

func (r *replica) dial() net.Conn {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.Address, r.TLS())
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// agent serves on a connection of a Node until the returned function is called.
func (r *replica) agent(token string, handler http.Handler) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	done, opened, conn := make(chan error, 1), make(chan struct{}), r.dial()
	go func() {
		done <- reverse.Serve(ctx, conn, api.RelayHost, token, handler, func() { close(opened) })
	}()
	select {
	case <-opened:
	case err := <-done:
		cancel()
		r.t.Fatalf("the relay does not take the agent: %v", err)
	}
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	r.t.Cleanup(stop)
	return stop
}

// fake answers as an agent does, from a history.
func fake(name string, history *record.History) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathObserve, func(w http.ResponseWriter, q *http.Request) {
		question, err := record.ParseQuestion(q.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines := json.NewEncoder(w)
		at := history.Last(question.Last, question.Since, question.Filter)
		_ = lines.Encode(record.Event{Begin: &record.Begin{Node: name}})
		for {
			list, next, _, changed := history.Read(at)
			for _, e := range list {
				if question.Takes(e) && lines.Encode(e) != nil {
					return
				}
			}
			if at = next; !question.Follow {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-q.Context().Done():
				return
			case <-changed:
			}
		}
	})
	mux.HandleFunc("GET "+api.PathStatus, func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(w, "status of %s, headers %d", name, len(q.Header["Authorization"])+len(q.Header["Cookie"]))
	})
	mux.HandleFunc("GET "+api.PathMetrics, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "up{node=%q} 1\n", name)
	})
	return mux
}

func dropOf(node, namespace, pod, to string) record.Event {
	return record.Event{Drop: &record.Record{
		Time: time.Now(), Node: node, Verdict: record.Dropped, Protocol: "TCP", Count: 1, Reason: record.ByPolicy,
		From:    record.End{Namespace: namespace, Pod: pod, IP: "10.10.0.5", Port: 4000, Node: node},
		To:      record.End{Namespace: to, Pod: "db-0", IP: "10.10.1.7", Port: 5432, Node: "node-2"},
		Message: "dropped of NetworkPolicy " + to + "/guard", Rule: &record.Rule{Policy: "NetworkPolicy " + to + "/guard"},
	}}
}

func events(t *testing.T, text string) (list []record.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e record.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		list = append(list, e)
	}
	return list
}

func nodesOf(list []record.Event) (out record.Nodes) {
	for _, e := range list {
		if e.Nodes != nil {
			out = *e.Nodes
		}
	}
	return out
}

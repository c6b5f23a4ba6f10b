package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve runs a server on loopback that counts its connections.
func serve(t *testing.T) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc(StreamPath, Stream)
	limit := Limit(1_000_000)
	mux.HandleFunc("/limited", func(w http.ResponseWriter, r *http.Request) { StreamWithin(limit, w, r) })
	s := httptest.NewUnstartedServer(mux)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, connections
}

// TestLoad sends real requests.
func TestLoad(t *testing.T) {
	const lasts = 300 * time.Millisecond
	for _, row := range []struct {
		name, path  string
		load        Load
		connections func(n int, r Result) bool
		result      func(r Result) bool
	}{
		{"round trips on one connection", "/", Load{Lasts: lasts},
			func(n int, _ Result) bool { return n == 1 },
			func(r Result) bool {
				return r.Requests > 10 && r.Bytes == int64(6*r.Requests) && r.P50 > 0 && r.P50 <= r.P99 && r.P99 <= r.P999
			}},
		{"new connections", "/", Load{Lasts: lasts, Parallel: 4, Fresh: true},
			func(n int, r Result) bool { return n == r.Requests }, func(r Result) bool { return r.Requests > 10 }},
		{"not more new connections than the limit", "/", Load{Lasts: lasts, Parallel: 4, Fresh: true, Most: 100},
			func(n int, r Result) bool { return n == r.Requests },
			func(r Result) bool { return r.Requests >= 4 && float64(r.Requests) <= 10+100*r.Seconds }},
		{"8 streams", StreamPath + "?bytes=1000000000000", Load{Lasts: lasts, Parallel: 8},
			func(n int, _ Result) bool { return n == 8 }, func(r Result) bool { return r.Bytes > 1<<20 && r.Requests == 8 }},
		{"a stream with a rate", StreamPath + "?bytes=1000000000000&rate=1000000", Load{Lasts: time.Second},
			func(n int, _ Result) bool { return n == 1 },
			func(r Result) bool { // less is possible on a busy machine
				return r.Bytes >= 10_000 && float64(r.Bytes) <= 1.1e6*r.Seconds
			}},
		{"a huge rate", StreamPath + "?bytes=1000000000000&rate=9223372036854775807", Load{Lasts: lasts},
			func(n int, _ Result) bool { return n == 1 }, func(r Result) bool { return r.Bytes > 0 }},
		{"4 streams within the server's limit", "/limited?bytes=1000000000000&rate=9223372036854775807",
			Load{Lasts: time.Second, Parallel: 4}, func(n int, _ Result) bool { return n == 4 },
			func(r Result) bool { return r.Bytes > 10_000 && float64(r.Bytes) <= 100_000+1e6*r.Seconds }},
	} {
		t.Run(row.name, func(t *testing.T) {
			url, connections := serve(t)
			row.load.Timeout = time.Second
			r, err := row.load.Run(t.Context(), url+row.path)
			if err != nil || r.Seconds < row.load.Lasts.Seconds() || !row.result(r) {
				t.Errorf("%+v, %v", r, err)
			}
			if n := int(connections.Load()); !row.connections(n, r) {
				t.Errorf("%d connections for %+v", n, r)
			}
		})
	}
}

// TestFaults asks servers that give no answer, or another one.
func TestFaults(t *testing.T) {
	url, _ := serve(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, row := range []struct {
		name, url string
		ctx       context.Context
		want      string
	}{
		{"no server", "http://127.0.0.1:1/", t.Context(), "connection refused"},
		{"no number", url + StreamPath + "?bytes=x", t.Context(), "400 Bad Request"},
		{"interrupted", url, ended, "canceled"},
	} {
		_, err := Load{Lasts: time.Second, Timeout: time.Second}.Run(row.ctx, row.url)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
}

// TestPercentile has the ranks of few and of many times.
func TestPercentile(t *testing.T) {
	for _, row := range []struct{ n, thousandths, want int }{
		{1, 500, 1}, {1, 999, 1}, {2, 500, 1}, {3, 500, 2}, {100, 500, 50}, {100, 990, 99}, {100, 999, 100},
		{1000, 999, 999}, {1001, 999, 1000},
	} {
		var sorted []time.Duration
		for i := range row.n {
			sorted = append(sorted, time.Duration(i+1))
		}
		if have := int(Percentile(sorted, row.thousandths)); have != row.want {
			t.Errorf("%d of %d: %d, want %d", row.thousandths, row.n, have, row.want)
		}
	}
}

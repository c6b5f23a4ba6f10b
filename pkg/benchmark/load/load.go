// Package load sends HTTP requests one after the other, and measures bytes, requests and times. It makes the load of
// `tombolo benchmark` and of the tests' program echo.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Result is the result of a load.
type Result struct {
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"`
	Bytes    int64   `json:"bytes"` // of answers' bodies
	P50      float64 `json:"p50"`   // of one request, in seconds; of a new connection and its request
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
}

// Load asks a URL as fast as it is answered, for some time.
type Load struct {
	Lasts, Timeout time.Duration // Timeout is of connecting
	Parallel       int           // connections at a time
	Fresh          bool          // a new connection for each request
	Most           int           // requests a second; 0 for no limit
}

// Run asks a URL. Each connection has one request at least.
func (l Load) Run(ctx context.Context, target string) (Result, error) {
	u, err := url.Parse(target)
	if err != nil {
		return Result{}, err
	}
	if u.Port() == "" {
		u.Host += ":80"
	}
	var limit *rate.Limiter
	if l.Most > 0 {
		limit = rate.NewLimiter(rate.Limit(l.Most), max(1, l.Most/100))
	}
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	r := Result{}
	start := time.Now()
	var all sync.WaitGroup
	for range max(1, l.Parallel) {
		all.Go(func() {
			mine, bytes, err := l.one(ctx, u, limit, start.Add(l.Lasts))
			mu.Lock()
			defer mu.Unlock()
			took, r.Bytes = append(took, mine...), r.Bytes+bytes
			if failed == nil {
				failed = err
			}
		})
	}
	all.Wait()
	r.Seconds, r.Requests = time.Since(start).Seconds(), len(took)
	if failed != nil {
		return r, fmt.Errorf("after %d requests: %w", r.Requests, failed)
	}
	slices.Sort(took)
	at := func(thousandths int) float64 { return Percentile(took, thousandths).Seconds() }
	r.P50, r.P99, r.P999 = at(500), at(990), at(999)
	return r, nil
}

// Percentile returns a percentile of sorted times, in thousandths: with 990 it is the time that 99 % do not exceed.
func Percentile(sorted []time.Duration, thousandths int) time.Duration {
	return sorted[(len(sorted)*thousandths+999)/1000-1]
}

// one asks on one connection at a time until the end.
func (l Load) one(ctx context.Context, u *url.URL, limit *rate.Limiter, end time.Time) (took []time.Duration,
	bytes int64, err error) {
	var c *connection
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for len(took) == 0 || time.Now().Before(end) {
		if err := ctx.Err(); err != nil {
			return took, bytes, err
		}
		if limit != nil && limit.Wait(ctx) != nil {
			return took, bytes, ctx.Err()
		}
		start := time.Now()
		if c == nil || l.Fresh {
			if c != nil {
				c.Close()
			}
			if c, err = dial(ctx, u.Host, l.Timeout); err != nil {
				return took, bytes, err
			}
		}
		n, err := c.read(ctx, u.RequestURI(), end)
		if err != nil {
			return took, bytes, err
		}
		took, bytes = append(took, time.Since(start)), bytes+n
	}
	return took, bytes, nil
}

// answerLimit is how long an answer may take after the end of the load.
const answerLimit = 10 * time.Second

// connection is one TCP connection with HTTP requests. An http.Client would replace a connection that breaks.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func dial(ctx context.Context, address string, limit time.Duration) (*connection, error) {
	c, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

// read sends a request and counts the bytes of the answer. If the time ends during a long answer, it counts the bytes
// until then.
func (c *connection) read(ctx context.Context, path string, end time.Time) (int64, error) {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if err := c.SetDeadline(end.Add(answerLimit)); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.RemoteAddr().String()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	if err := req.Write(c); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s", resp.Status)
	}
	n := int64(0)
	for b := make([]byte, 64<<10); ; {
		m, err := resp.Body.Read(b)
		n += int64(m)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		case time.Now().After(end):
			return n, c.Close() // else closing the answer would read the rest of it
		}
	}
}

// StreamPath is the path of Stream at servers.
const StreamPath = "/download"

// leastBurst is how many bytes a limit of streams lets through at once, at least.
const leastBurst = 64 << 10

// Limit returns a limit of bytes a second of all streams together.
func Limit(bytes int64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(bytes), int(min(max(bytes/10, leastBurst), math.MaxInt32)))
}

// Stream answers with ?bytes= bytes at ?rate= bytes a second (0: as fast as it goes).
func Stream(w http.ResponseWriter, r *http.Request) { StreamWithin(nil, w, r) }

// StreamWithin is Stream within a limit; nil for none.
func StreamWithin(limit *rate.Limiter, w http.ResponseWriter, r *http.Request) {
	size, err := number(r, "bytes", 1<<20)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	most, err := number(r, "rate", 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	const perSecond = 100
	chunk := int64(64 << 10)
	var tick <-chan time.Time
	if most > 0 {
		chunk = min(max(most/perSecond, 1), 4<<20)
		t := time.NewTicker(max(1, time.Duration(float64(time.Second)*float64(chunk)/float64(most))))
		defer t.Stop()
		tick = t.C
	}
	if limit != nil {
		chunk = min(chunk, int64(limit.Burst()))
	}
	buf := make([]byte, chunk)
	for size > 0 {
		n := min(size, chunk)
		if limit != nil && limit.WaitN(r.Context(), int(n)) != nil {
			return // the client has gone
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return // the client has gone
		}
		size -= n
		if tick == nil {
			continue
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

func number(r *http.Request, key string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%s: want a number of bytes", key, text)
	}
	return n, nil
}

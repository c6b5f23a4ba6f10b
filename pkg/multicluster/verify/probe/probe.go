// Package probe runs in the Pods of a verification and of a benchmark: a server, and a client that sends requests to
// servers of another cluster and reports the results.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
)

// Port is where servers answer, for TCP and UDP.
const Port = 8080

// headers is the size of the headers of IP and UDP before a datagram's contents.
func headers(c net.Conn) int {
	if a, ok := c.RemoteAddr().(*net.UDPAddr); ok && a.IP.To4() == nil {
		return 40 + 8
	}
	return 20 + 8
}

// bulk is how much is sent in each direction of one connection: many full segments.
const bulk = 1 << 20

// Server answers until its Pod ends.
type Server struct {
	Address, Name string
	Rate          int64 // the most bits a second of all streams together; 0 for no limit
	NoUDP         bool
}

// Serve answers under a name until ctx ends.
func Serve(ctx context.Context, address, name string) error {
	return Server{Address: address, Name: name}.Serve(ctx)
}

// Serve answers until ctx ends. Over HTTP it returns its name and the client's address, or as many bytes as the query
// of load.StreamPath requests. It returns each datagram to its sender.
func (s Server) Serve(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return err
	}
	if !s.NoUDP {
		datagrams, err := (&net.ListenConfig{Control: dontFragment}).ListenPacket(ctx, "udp", l.Addr().String())
		if err != nil {
			l.Close()
			return err
		}
		go echo(datagrams)
		defer datagrams.Close()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, bulk))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%s %s\n", s.Name, r.RemoteAddr)
		_, _ = io.CopyN(w, zeros{}, n) // as much as came
	})
	var limit *rate.Limiter
	if s.Rate > 0 {
		limit = load.Limit(s.Rate / 8)
	}
	mux.HandleFunc(load.StreamPath, func(w http.ResponseWriter, r *http.Request) { load.StreamWithin(limit, w, r) })
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: mux}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func echo(c net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(b[:n], from) // too large is an answer too: none
		}
	}
}

// Question is what a client asks.
type Question struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port
	Want    string `json:"want"`    // the server's name
	// Refused requires that no server answers.
	Refused bool `json:"refused,omitempty"`
	// MTU asks for the largest packet as well.
	MTU bool `json:"mtu,omitempty"`
	// Watch makes the client send requests for this time after the first answer, and report the longest time without an
	// answer.
	Watch time.Duration `json:"watch,omitempty"`
}

// Answer is how a question went.
type Answer struct {
	Name string `json:"name"`
	// until the first answer; with Refused, until the start of the first request without one
	First    time.Duration `json:"first"`
	Answered int           `json:"answered"`
	Failed   int           `json:"failed"`
	Slowest  time.Duration `json:"slowest"`
	Client   string        `json:"client,omitempty"` // as the server sees it
	Error    string        `json:"error,omitempty"`

	LinkMTU   int    `json:"linkMTU,omitempty"` // of the Pod's interface
	Largest   int    `json:"largest,omitempty"` // packet that came back, in bytes with the IP header
	BulkError string `json:"bulkError,omitempty"`

	// Away is the longest time in which connections were lost, from the start of the first lost connection to the start of
	// the last one. It needs Watch.
	Away time.Duration `json:"away,omitempty"`
}

const (
	tryLimit  = 2 * time.Second        // until the first answer
	askEvery  = 200 * time.Millisecond // from the end of a try to the next one
	requests  = 20                     // after it
	askLimit  = 4 * time.Second        // of each: TCP sends a lost first packet again after one second, and after two more
	bulkLimit = 10 * time.Second
)

// Ask sends the request of one Question until there is an answer, at most for limit, since flows follow objects with a
// delay. A dropped request is detected only after tryLimit. But the cause existed when the request began, so the begin
// counts.
func Ask(ctx context.Context, q Question, limit time.Duration) Answer {
	a := Answer{Name: q.Name}
	every := askEvery
	if q.Refused {
		every = watchEvery
	}
	begin := time.Now()
	for {
		start := time.Now()
		client, err := get(ctx, q, nil, tryLimit)
		if (err == nil) != q.Refused {
			a.Client, a.First, a.Error = client, time.Since(begin), ""
			if q.Refused {
				a.First = start.Sub(begin)
			}
			break
		}
		if err == nil {
			err = fmt.Errorf("%s answers to %s", q.Want, client)
		}
		a.Error = err.Error()
		if time.Since(begin) > limit || !sleep(ctx, every) {
			return a
		}
	}
	if q.Refused {
		return a
	}
	if q.Watch > 0 {
		a.watch(ctx, q)
		return a
	}
	for range requests {
		start := time.Now()
		if _, err := get(ctx, q, nil, askLimit); err != nil {
			a.Failed, a.Error = a.Failed+1, err.Error()
			continue
		}
		a.Answered++
		a.Slowest = max(a.Slowest, time.Since(start))
	}
	if q.MTU {
		if _, err := get(ctx, q, io.LimitReader(zeros{}, bulk), bulkLimit); err != nil {
			a.BulkError = err.Error()
		}
		a.LinkMTU = linkMTU(q.Address)
		a.Largest = largest(ctx, q.Address, a.LinkMTU)
	}
	return a
}

const (
	watchEvery = 20 * time.Millisecond
	// watchLimit ends a request before TCP repeats its first packet, since that would hide a loss.
	watchLimit = 900 * time.Millisecond
	// calm is as many answers in a row as end an outage.
	calm = 25
)

// watch sends requests on new connections at fixed times. It does not wait for the results of earlier ones.
func (a *Answer) watch(ctx context.Context, q Question) {
	failed := make([]error, q.Watch/watchEvery)
	var all sync.WaitGroup
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for i := range failed {
		all.Go(func() { _, failed[i] = get(ctx, q, nil, watchLimit) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	all.Wait()
	first, good := -1, 0
	for i, err := range failed {
		switch {
		case err != nil:
			if first < 0 || good >= calm {
				first = i
			}
			a.Failed, a.Error, good = a.Failed+1, err.Error(), 0
			a.Away = max(a.Away, time.Duration(i-first+1)*watchEvery)
		default:
			a.Answered++
			good++
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// get sends one request on a connection of its own, and returns the client's address that the server sees. The server
// sends the body back.
func get(ctx context.Context, q Question, body io.Reader, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+q.Address+"/", body)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 2*bulk))
	if err != nil {
		return "", err
	}
	head, rest, _ := strings.Cut(string(text), "\n")
	name, client, _ := strings.Cut(head, " ")
	switch {
	case response.StatusCode != http.StatusOK || name != q.Want:
		return "", fmt.Errorf("%s: %q answers at %s, want %s", response.Status, name, q.Address, q.Want)
	case body != nil && len(rest) != bulk:
		return "", fmt.Errorf("%d of %d bytes came back", len(rest), bulk)
	}
	return client, nil
}

// linkMTU returns the MTU of the interface of the route to an address, or 1500 if it is unknown.
func linkMTU(address string) int {
	c, err := net.Dial("udp", address)
	if err != nil {
		return 1500
	}
	defer c.Close()
	local, _ := c.LocalAddr().(*net.UDPAddr)
	links, _ := net.Interfaces()
	for _, link := range links {
		addresses, _ := link.Addrs()
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && local != nil && n.IP.Equal(local.IP) {
				return link.MTU
			}
		}
	}
	return 1500
}

// largest finds the largest packet that goes to an address and back unfragmented, or 0 if no packet does.
func largest(ctx context.Context, address string, mtu int) int {
	low, high := 0, min(mtu, 1<<16-1) // low passes, or is nothing
	if passes(ctx, address, high) {
		return high
	}
	for low, high = smallest-1, high-1; low < high; {
		if middle := (low + high + 1) / 2; passes(ctx, address, middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	if low < smallest {
		return 0
	}
	return low
}

// smallest is what every host takes over IPv4 (RFC 791); over IPv6 it takes more.
const smallest = 576

// passes reports whether a packet of a size comes back, tried twice.
func passes(ctx context.Context, address string, size int) bool {
	c, err := (&net.Dialer{Control: dontFragment}).DialContext(ctx, "udp", address)
	if err != nil {
		return false
	}
	defer c.Close()
	sent, got := make([]byte, size-headers(c)), make([]byte, size)
	for try := range 2 {
		copy(sent, strconv.Itoa(try))
		if _, err := c.Write(sent); err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
		if n, err := c.Read(got); err == nil && n == len(sent) {
			return true
		}
	}
	return false
}

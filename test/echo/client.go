package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"
)

// client asks again and again, and counts.
type client struct {
	count             int
	interval, timeout time.Duration
	port              int  // of the first request
	clients           bool // count by the address that the server saw
}

// slow is a time that one request through three Nodes only exceeds if a packet was lost: TCP repeats a SYN after a
// second.
const slow = 500 * time.Millisecond

// run prints a line for each request that failed or was slow as it happens, and at the end
// how many answers came from each server and in all:
//
//	14:03:07.120 request 7, after 0.6s: answered after 1.004s: 10.11.1.2:38712 connected after 1.003s
//	12  test-cluster-west/node-1/nginx-5d4f
//	12 answered, 0 failed, slowest 1.004s
func (c *client) run(ctx context.Context, out io.Writer,
	ask func(ctx context.Context, port int) (answer, error)) error {
	by := map[string]int{}
	answered, failed := 0, 0
	var slowest time.Duration
	begin := time.Now()
	for i := range c.count {
		if wait := time.Until(begin.Add(time.Duration(i) * c.interval)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		start := time.Now()
		actx, cancel := context.WithTimeout(ctx, c.timeout)
		port := c.port
		if port > 0 {
			port += i
		}
		a, err := ask(actx, port)
		cancel()
		took := time.Since(start)
		slowest = max(slowest, took)
		if err != nil {
			failed++
			fmt.Fprintf(out, "%s request %d, after %.1fs: %v: %s\n", start.UTC().Format(clock), i+1, start.Sub(begin).Seconds(),
				err, a.way)
			continue
		}
		if took >= slow {
			fmt.Fprintf(out, "%s request %d, after %.1fs: answered after %.3fs: %s\n",
				start.UTC().Format(clock), i+1, start.Sub(begin).Seconds(), took.Seconds(), a.way)
		}
		answered++
		if c.clients {
			a.server += "/" + a.client
		}
		by[a.server]++
	}
	for _, server := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(out, "%4d  %s\n", by[server], server)
	}
	fmt.Fprintf(out, "%d answered, %d failed, slowest %.3fs\n", answered, failed, slowest.Seconds())
	if failed > 0 || answered < c.count {
		return errReported
	}
	return nil
}

// clock is the format of times of day. It is the same as in the agents' logs, so that the two can be compared.
const clock = "15:04:05.000"

// answer is the server's name, how far the request came, and from where.
type answer struct {
	server, way string
	client      string // the address that the server saw, by HTTP
}

// askHTTP sends one request on a connection of its own.
func askHTTP(ctx context.Context, url string, port int) (a answer, err error) {
	start := time.Now()
	way := []string{"no connection"}
	// The dialler may still call back when the request has been given up.
	var mu sync.Mutex
	step := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		way = append(way, fmt.Sprintf(format, args...)+fmt.Sprintf(" after %.3fs", time.Since(start).Seconds()))
	}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		if len(way) > 1 {
			way = way[1:]
		}
		a.way = strings.Join(way, ", ")
	}()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { step("%s connected", i.Conn.LocalAddr()) },
		GotFirstResponseByte: func() { step("first byte") },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	var dialer net.Dialer
	if port > 0 {
		dialer.LocalAddr = &net.TCPAddr{Port: port}
	}
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s", resp.Status)
	}
	return answer{server: firstLine(string(body)), client: resp.Header.Get("X-Client")}, nil
}

func askUDP(ctx context.Context, address string, port int) (a answer, err error) {
	conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{Port: port}}).DialContext(ctx, "udp", address)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	a.way = "from " + conn.LocalAddr().String()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return a, err
		}
	}
	if _, err := conn.Write([]byte("who?\n")); err != nil {
		return a, err
	}
	buf := make([]byte, 2048)
	n, err := conn.Read(buf)
	if err != nil {
		return a, err
	}
	a.server = firstLine(string(buf[:n]))
	return a, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// download reads an answer of known length and fails when bytes are missing.
func download(ctx context.Context, out io.Writer, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	start := time.Now()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return fmt.Errorf("broken after %d of %d bytes and %.1fs: %w", n, resp.ContentLength,
			time.Since(start).Seconds(), err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	fmt.Fprintf(out, "%d bytes in %.1fs from %s\n", n, time.Since(start).Seconds(), resp.Header.Get("X-Server"))
	return nil
}

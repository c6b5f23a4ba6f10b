package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
)

// watcher sends a request every interval and prints one line for each (package watched), until it is interrupted:
//
//	2026-01-02T15:04:05.123456789Z 0.004 ok
//	2026-01-02T15:04:05.323456789Z 10.000 failed: dial tcp 10.96.0.7:80: i/o timeout
//
// The columns are the time of the request, its seconds, and its result. On one kept connection there is no time limit,
// since TCP sends lost packets again, and the first failure ends it: the connection is broken. With fresh set each
// request has a connection of its own and is sent at its time, whatever the state of earlier requests, and the program
// goes on after a failure. The number of such streams is an option. With servers set a fourth column has the server
// that answered. With begun set a line is printed when a request begins, too.
//
// After an interrupt no request begins, and open requests have the time limit to end: each has its line.
type watcher struct {
	interval, timeout     time.Duration
	fresh, servers, begun bool
	streams               int
	out                   io.Writer
}

// run opens all lasting connections before it sends the first request. So a line of output shows that they are open.
func (w *watcher) run(ctx context.Context, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "80")
	}
	failures := make([]error, w.streams)
	each := func(f func(i int) error) error {
		var all sync.WaitGroup
		for i := range failures {
			all.Go(func() { failures[i] = f(i) })
		}
		all.Wait()
		return errors.Join(failures...)
	}
	if w.fresh {
		return each(func(int) error { w.onNewConnections(ctx, address, u.RequestURI()); return nil })
	}
	kept := make([]*connection, w.streams)
	defer func() {
		for _, c := range kept {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err := each(func(i int) (err error) { kept[i], err = dial(ctx, address, w.timeout); return err }); err != nil {
		return err
	}
	return each(func(i int) error { return w.stream(ctx, kept[i], u.RequestURI()) })
}

// stream sends requests on one connection.
func (w *watcher) stream(ctx context.Context, kept *connection, path string) error {
	// The error of a connection that is closed already needs no report.
	stop := context.AfterFunc(ctx, func() { _ = kept.SetDeadline(time.Now().Add(w.timeout)) })
	defer stop()
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		start := w.begins()
		server, err := kept.request(path)
		w.report(start, server, err)
		if err != nil {
			return errReported
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// onNewConnections sends each request on a connection of its own.
func (w *watcher) onNewConnections(ctx context.Context, address, path string) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		start := w.begins()
		all.Go(func() {
			server, err := once(context.WithoutCancel(ctx), address, path, start.Add(w.timeout))
			w.report(start, server, err)
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// begins returns when a request begins, and prints that if it is asked to.
func (w *watcher) begins() time.Time {
	start := time.Now()
	if w.begun {
		_, _ = io.WriteString(w.out, watched.BegunLine(start))
	}
	return start
}

// report prints the line of one request.
func (w *watcher) report(start time.Time, server string, err error) {
	r := watched.Request{Start: start, Took: time.Since(start)}
	switch {
	case err != nil:
		r.Failed = err.Error()
	case w.servers:
		r.Server = server
	}
	_, _ = io.WriteString(w.out, r.Line())
}

// once sends one request on a connection of its own, with a deadline, and returns the server that has answered.
func once(ctx context.Context, address, path string, until time.Time) (server string, err error) {
	c, err := dial(ctx, address, time.Until(until))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(until); err != nil {
		return "", err
	}
	return c.request(path)
}

// connection is one TCP connection for HTTP requests. An http.Client would silently replace a connection that breaks.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func dial(ctx context.Context, address string, limit time.Duration) (*connection, error) {
	conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReader(conn)}, nil
}

// request sends a request and returns which server has answered.
func (c *connection) request(path string) (server string, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+c.RemoteAddr().String()+path, nil)
	if err != nil {
		return "", err
	}
	if err := req.Write(c); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s", resp.Status)
	}
	for { // the whole body, so that the next answer begins where it should
		if _, err := resp.Body.Read(make([]byte, 1024)); err != nil {
			break
		}
	}
	return resp.Header.Get("X-Server"), nil
}

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
)

const (
	// LongOnes is the number of connections that stay open, with a request each 400 ms. On a machine with slow system
	// calls, 100 encrypted requests a second between clusters took a third of two processors.
	LongOnes = 10
	// GiveUp is the longest time for a request on a new connection. It ends before TCP repeats its SYN, which would hide a
	// lost packet.
	GiveUp = 900 * time.Millisecond
	// That many requests in a row without a loss, and an outage is over: two seconds.
	calm = 100
)

// Observed is what clients saw.
type Observed struct {
	Broken int               // connections that should have stayed, of LongOnes
	fresh  []watched.Request // on new connections, in the order of their starts; with the server that has answered
	kept   []watched.Request // on connections that stay
}

// Load starts requests of Pod client of east: 50 a second on new connections, and further ones on LongOnes connections
// that stay open. Each request begins at its time, whatever the state of earlier ones. On a machine with slow system
// calls, 200 a second took both processors. Load returns once all connections that stay are open and the first requests
// have ended. The returned function ends the load: no further request begins, and it waits for open requests, so that
// each is counted.
func (s *Scenario) Load(ctx context.Context, url string) func() (Observed, error) {
	fresh := s.watch(ctx, url, "--fresh", "--servers", "--interval", "20ms", "--timeout", GiveUp.String())
	kept := s.watch(ctx, url, keptArgs...)
	return func() (o Observed, err error) {
		var freshErr, keptErr error
		o.fresh, freshErr = fresh.end(2 * calm)
		o.kept, keptErr = kept.end(LongOnes)
		o.Broken = failed(o.kept)
		return o, errors.Join(freshErr, keptErr)
	}
}

// LongConnections starts requests of Pod client of east only on connections that stay open. The returned function ends
// them, and returns the numbers of broken connections and of requests.
func (s *Scenario) LongConnections(ctx context.Context, url string) func() (broken, requests int, err error) {
	kept := s.watch(ctx, url, keptArgs...)
	return func() (broken, requests int, err error) {
		all, err := kept.end(LongOnes)
		return failed(all), len(all), err
	}
}

var keptArgs = []string{"--streams", strconv.Itoa(LongOnes), "--interval", "400ms"}

const (
	// starts is how often a client that ends without a request is started again. An API server or a kubelet that gets too
	// little processor time refuses some sessions of kubectl exec.
	starts = 3
	// clientLimit is how long it may take until a client's first request has ended. It is also how long a client may take
	// to end.
	clientLimit = time.Minute
)

// A client asks a URL until it is ended.
type client struct {
	err    error // why it did not start
	cmd    *exec.Cmd
	stdin  io.Closer // the client ends when this does
	out    *firstLine
	errors *bytes.Buffer
	exited chan struct{}
	cancel context.CancelFunc
}

// watch lets Pod client of east send requests to a URL. It returns once the first request has ended, or the client
// cannot start.
func (s *Scenario) watch(ctx context.Context, url string, args ...string) *client {
	args = append([]string{"exec", "-i", "-n", "default", "client", "--", "/echo", "watch", url, "--stdin"}, args...)
	var c *client
	for range starts {
		clientContext, cancel := context.WithCancel(ctx)
		c = start(s.Lab.Cluster("east").KubectlCommand(clientContext, args...), cancel)
		if c.err == nil {
			break
		}
		fmt.Println("a client is started again:", c.err)
	}
	return c
}

func start(cmd *exec.Cmd, cancel context.CancelFunc) *client {
	c := &client{cmd: cmd, out: &firstLine{seen: make(chan struct{})}, errors: &bytes.Buffer{},
		exited: make(chan struct{}), cancel: cancel}
	cmd.Stdout, cmd.Stderr = c.out, c.errors
	if c.stdin, c.err = cmd.StdinPipe(); c.err == nil {
		c.err = cmd.Start()
	}
	if c.err != nil {
		cancel()
		return c
	}
	go func() {
		defer close(c.exited)
		_ = cmd.Wait() // a client whose connection broke failed, and is counted
	}()
	select {
	case <-c.out.seen:
		return c
	case <-c.exited:
	case <-time.After(clientLimit):
	}
	cancel()
	<-c.exited
	c.err = fmt.Errorf("no request in %s: %s: %s", clientLimit, cmd.ProcessState, c.errors)
	return c
}

// end ends the client. It returns its requests, and an error if there are fewer than least.
func (c *client) end(least int) ([]watched.Request, error) {
	if c.err != nil {
		return nil, c.err
	}
	defer c.cancel()
	early := false
	select {
	case <-c.exited:
		early = true
	default:
	}
	_ = c.stdin.Close()
	limit := time.AfterFunc(clientLimit, c.cancel)
	<-c.exited
	late := !limit.Stop()
	all := parse(c.out.all.Bytes())
	failed := func(format string, args ...any) ([]watched.Request, error) {
		return all, fmt.Errorf("%s: %s: %s", fmt.Sprintf(format, args...), c.cmd.ProcessState, c.errors)
	}
	switch {
	case late:
		return failed("a client did not end within %s", clientLimit)
	case early && !strings.Contains(c.errors.String(), "command terminated with exit code"): // not by its own failure
		return failed("the session of a client ended too early, after %d requests", len(all))
	case len(all) < least:
		return failed("%d requests of a client, want at least %d", len(all), least)
	}
	return all, nil
}

// firstLine is a buffer that signals when its first line is complete. It has no method ReadFrom, which would be called
// in place of Write.
type firstLine struct {
	all  bytes.Buffer
	once sync.Once
	seen chan struct{}
}

func (f *firstLine) Write(p []byte) (int, error) {
	if bytes.IndexByte(p, '\n') >= 0 {
		defer f.once.Do(func() { close(f.seen) })
	}
	return f.all.Write(p)
}

func failed(all []watched.Request) (n int) {
	for _, r := range all {
		if r.Failed != "" {
			n++
		}
	}
	return n
}

// parse reads what `echo watch` prints. A last line that is cut off is left out.
func parse(out []byte) []watched.Request {
	var all []watched.Request
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, "\n") {
			continue
		}
		r, _, err := watched.Parse(line)
		if err != nil {
			fmt.Println(err)
			continue
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b watched.Request) int { return a.Start.Compare(b.Start) })
	return all
}

// Away returns the time from an event to the start of the last new connection that was lost because of it.
func (o Observed) Away(since time.Time) (last time.Duration) {
	good := 0
	for _, r := range o.fresh {
		switch {
		case r.Start.Before(since.Add(-GiveUp)) || r.Start.Before(since) && r.Failed == "":
		case r.Failed != "":
			last, good = max(last, r.Start.Sub(since)), 0
		default:
			good++
			if good == calm && last > 0 {
				return last
			}
		}
	}
	return last
}

// LastAnswered returns the start of the last answered new connection, among the connections that began in a given time.
// It is zero if no such connection was answered.
func (o Observed) LastAnswered(from, to time.Time) (last time.Time) {
	for _, r := range o.fresh {
		if r.Failed == "" && !r.Start.Before(from) && r.Start.Before(to) {
			last = r.Start
		}
	}
	return last
}

// Longest returns the longest wait of a request on a lasting connection after an event. Waiting time before the event
// does not count.
func (o Observed) Longest(since time.Time) (longest time.Duration) {
	for _, r := range o.kept {
		if r.End().After(since) && r.Failed == "" {
			longest = max(longest, min(r.Took, r.End().Sub(since)))
		}
	}
	return longest
}

// Before returns the number of new connections that an event cannot have affected, and how many of them were lost.
// After returns the same numbers for the others.
func (o Observed) Before(since time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return at.Before(since.Add(-GiveUp)) })
}

func (o Observed) After(since time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return !at.Before(since.Add(-GiveUp)) })
}

// Between returns the number of new connections that began in a given time, and how many of them were lost, even if
// that was later.
func (o Observed) Between(from, to time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return !at.Before(from) && at.Before(to) })
}

// Answers returns two times after an event. first is the time until a server whose name has a prefix answered a new
// connection. share is the time from which such servers answered at least a given number of a hundred connections. ok
// is false if they did not.
func (o Observed) Answers(server string, least int, since time.Time) (first, share time.Duration, ok bool) {
	by := func(r watched.Request) bool { return strings.HasPrefix(r.Server, server) }
	first = -1
	for i, r := range o.fresh {
		if r.Start.Before(since) || !by(r) {
			continue
		}
		if first < 0 {
			first = r.Start.Sub(since)
		}
		n := 0
		for _, next := range o.fresh[i:min(i+calm, len(o.fresh))] {
			if by(next) {
				n++
			}
		}
		if n >= least {
			return first, r.Start.Sub(since), true
		}
	}
	return first, 0, false
}

func (o Observed) count(in func(at time.Time) bool) (lost, of int) {
	for _, r := range o.fresh {
		if in(r.Start) {
			of++
			if r.Failed != "" {
				lost++
			}
		}
	}
	return lost, of
}

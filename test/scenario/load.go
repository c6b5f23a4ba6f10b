package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
)

const (
	// LongOnes are connections that stay, with a request each 200 ms.
	LongOnes = 20
	// GiveUp is how long a request on a new connection lasts at most: it ends before TCP sends its SYN again, which would
	// hide that a packet was lost.
	GiveUp = 900 * time.Millisecond
	// That many requests in a row without a loss, and an outage is over: half a second.
	calm = 100
)

// Observed is what clients saw.
type Observed struct {
	Broken int               // connections that should have stayed, of LongOnes
	fresh  []watched.Request // on new connections, in the order of their starts; with the server that has answered
	kept   []watched.Request // on connections that stay
}

// Load starts requests of Pod client of east: 200 times a second on a new connection, each at its time whatever the
// state of earlier requests, and on 20 connections that stay. The returned function ends it. Then no request begins,
// and open requests end before it returns, so each is counted.
func (s *Scenario) Load(ctx context.Context, url string) func() (Observed, error) {
	ctx, cancel := context.WithCancel(ctx)
	fresh := s.watch(ctx, url, "--fresh", "--servers", "--interval", "5ms", "--timeout", GiveUp.String())
	kept := s.watch(ctx, url, keptArgs...)
	return func() (Observed, error) {
		defer cancel()
		defer time.AfterFunc(20*time.Second, cancel).Stop() // what does not end is ended
		o := Observed{fresh: parse(fresh()), kept: parse(kept())}
		o.Broken = failed(o.kept)
		if len(o.fresh) < 2*calm || len(o.kept) < LongOnes {
			return o, errors.New("the clients did not run")
		}
		return o, nil
	}
}

// LongConnections starts requests of Pod client of east only on the 20 connections that stay. The returned function
// ends it, and returns the numbers of broken connections and of requests.
func (s *Scenario) LongConnections(ctx context.Context, url string) func() (broken, requests int) {
	ctx, cancel := context.WithCancel(ctx)
	kept := s.watch(ctx, url, keptArgs...)
	return func() (broken, requests int) {
		defer cancel()
		defer time.AfterFunc(20*time.Second, cancel).Stop()
		all := parse(kept())
		return failed(all), len(all)
	}
}

var keptArgs = []string{"--streams", strconv.Itoa(LongOnes), "--interval", "200ms"}

// watch lets Pod client of east ask a URL until the returned function is called. That function returns the client's
// output.
func (s *Scenario) watch(ctx context.Context, url string, args ...string) func() []byte {
	var out bytes.Buffer
	cmd := s.Lab.Cluster("east").KubectlCommand(ctx,
		append([]string{"exec", "-i", "-n", "default", "client", "--", "/echo", "watch", url, "--stdin"}, args...)...)
	cmd.Stdout = &out
	stdin, err := cmd.StdinPipe() // the client ends when this does
	if err == nil {
		err = cmd.Start()
	}
	return func() []byte {
		if err != nil {
			return nil
		}
		_ = stdin.Close()
		_ = cmd.Wait() // one whose connection broke failed, and is counted
		return out.Bytes()
	}
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

// Away is the time from an event to the start of the last new connection that was lost to it.
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

// LastAnswered returns the start of the last answered new connection among the connections that began in a time; zero
// for no such connection.
func (o Observed) LastAnswered(from, to time.Time) (last time.Time) {
	for _, r := range o.fresh {
		if r.Failed == "" && !r.Start.Before(from) && r.Start.Before(to) {
			last = r.Start
		}
	}
	return last
}

// Longest returns the longest wait of a request on a connection that stays, after an event. Waiting time before the
// event does not count.
func (o Observed) Longest(since time.Time) (longest time.Duration) {
	for _, r := range o.kept {
		if r.End().After(since) && r.Failed == "" {
			longest = max(longest, min(r.Took, r.End().Sub(since)))
		}
	}
	return longest
}

// Before counts the new connections before an event could have a part in them, and how many of these were lost; After
// counts the others.
func (o Observed) Before(since time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return at.Before(since.Add(-GiveUp)) })
}

func (o Observed) After(since time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return !at.Before(since.Add(-GiveUp)) })
}

// Between counts the new connections that began in a time, and how many of them were lost, also after that time.
func (o Observed) Between(from, to time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return !at.Before(from) && at.Before(to) })
}

// Answers returns how long after an event the first new connection was answered by a server whose name begins so
// (first), and from when on such servers answered at least some of a hundred (share). ok is false if they did not.
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

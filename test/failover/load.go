package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

const (
	longOnes = 20 // connections that stay, with a request each 200 ms
	// A request that has lost a packet ends by this, before TCP sends its SYN again and hides it.
	giveUp = 900 * time.Millisecond
	// That many requests in a row without a loss, and an outage is over: half a second.
	calm = 100
)

// observed is what clients saw.
type observed struct {
	fresh  []request // on new connections, in the order of their starts
	kept   []request // on connections that stay
	broken int       // of these
}

type request struct {
	at     time.Time
	took   time.Duration
	failed bool
}

// startLoad has east's client ask. The function that is returned ends it.
func startLoad(ctx context.Context, s *scenario.Scenario, url string) func() (observed, error) {
	ctx, cancel := context.WithCancel(ctx)
	start := func(args ...string) func() []byte {
		var out bytes.Buffer
		cmd := s.Lab.Cluster("east").KubectlCommand(ctx, append([]string{"exec", "-n", "default", "client", "--", "/echo", "watch", url}, args...)...)
		cmd.Stdout = &out
		done := make(chan bool)
		go func() {
			defer close(done)
			_ = cmd.Run() // it is killed in the end
		}()
		return func() []byte {
			<-done
			return out.Bytes()
		}
	}
	fresh := start("--fresh", "--interval", "5ms", "--timeout", giveUp.String())
	kept := start("--streams", strconv.Itoa(longOnes), "--interval", "200ms")
	return func() (observed, error) {
		time.Sleep(giveUp)
		cancel()
		o := observed{fresh: parse(fresh()), kept: parse(kept())}
		for _, r := range o.kept {
			if r.failed {
				o.broken++
			}
		}
		if len(o.fresh) < 2*calm || len(o.kept) < longOnes {
			return o, errors.New("the clients did not run")
		}
		return o, nil
	}
}

// parse reads what `echo watch` prints. A last line that is cut off is left out.
func parse(out []byte) []request {
	var all []request
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasSuffix(line, "\n") {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, fields[0])
		seconds, err2 := strconv.ParseFloat(fields[1], 64)
		if err != nil || err2 != nil {
			fmt.Printf("not a request: %s", line)
			continue
		}
		all = append(all, request{at, time.Duration(seconds * float64(time.Second)), fields[2] != "ok"})
	}
	slices.SortFunc(all, func(a, b request) int { return a.at.Compare(b.at) })
	return all
}

// away is the time from an event to the start of the last new connection that was lost to it.
func (o observed) away(since time.Time) (last time.Duration) {
	good := 0
	for _, r := range o.fresh {
		switch {
		case r.at.Before(since.Add(-giveUp)) || r.at.Before(since) && !r.failed:
		case r.failed:
			last, good = max(last, r.at.Sub(since)), 0
		default:
			good++
			if good == calm && last > 0 {
				return last
			}
		}
	}
	return last
}

// longest is the longest that a request took on a connection that stays, and that was not over when the event came.
func (o observed) longest(since time.Time) (longest time.Duration) {
	for _, r := range o.kept {
		if r.at.Add(r.took).After(since) && !r.failed {
			longest = max(longest, r.took)
		}
	}
	return longest
}

// before counts the new connections, and those lost of them, before an event could have a part in it; after counts the others.
func (o observed) before(since time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return at.Before(since.Add(-giveUp)) })
}

func (o observed) after(since time.Time) (lost, of int) {
	return o.count(func(at time.Time) bool { return !at.Before(since.Add(-giveUp)) })
}

func (o observed) count(in func(at time.Time) bool) (lost, of int) {
	for _, r := range o.fresh {
		if in(r.at) {
			of++
			if r.failed {
				lost++
			}
		}
	}
	return lost, of
}

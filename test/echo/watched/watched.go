// Package watched reads the output of `echo watch`, a line for each request. It judges each request by the limits of
// the step in which it began.
package watched

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Request is a request that has ended.
type Request struct {
	Start  time.Time
	Took   time.Duration
	Failed string // why it was not answered; "" when it was
	Server string // which server has answered, "cluster/node/pod", if the client was asked for it
}

// End is when the request had its answer, or failed.
func (r Request) End() time.Time { return r.Start.Add(r.Took) }

// Begun is in the third column for a request that has not ended yet. The client prints such lines with --begun.
const Begun = "begun"

// Line is the line of a request that has ended.
func (r Request) Line() string {
	how := "ok"
	switch {
	case r.Failed != "":
		how = "failed: " + r.Failed
	case r.Server != "":
		how += " " + r.Server
	}
	return fmt.Sprintf("%s %.3f %s\n", r.Start.UTC().Format(time.RFC3339Nano), r.Took.Seconds(), how)
}

// BegunLine is the line of a request that begins.
func BegunLine(start time.Time) string {
	return fmt.Sprintf("%s 0 %s\n", start.UTC().Format(time.RFC3339Nano), Begun)
}

// Parse reads one line. It is open if the line is about the begin of a request.
func Parse(line string) (r Request, open bool, err error) {
	fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(fields) < 3 {
		return r, false, fmt.Errorf("not a line of echo watch: %q", line)
	}
	start, err := time.Parse(time.RFC3339Nano, fields[0])
	if err != nil {
		return r, false, fmt.Errorf("not a line of echo watch: %w", err)
	}
	seconds, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return r, false, fmt.Errorf("not a line of echo watch: %w", err)
	}
	r = Request{Start: start, Took: time.Duration(seconds * float64(time.Second))}
	switch how, server, _ := strings.Cut(fields[2], " "); how {
	case Begun:
		return r, true, nil
	case "ok":
		r.Server = server
	default:
		r.Failed = strings.TrimPrefix(fields[2], "failed: ")
	}
	return r, false, nil
}

// Log is what one client has printed so far.
type Log struct {
	mu    sync.Mutex
	open  map[time.Time]int
	ended []Request
	err   error
}

// Add takes a line.
func (l *Log) Add(line string) {
	r, open, err := Parse(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.err = err
	case open:
		if l.open == nil {
			l.open = map[time.Time]int{}
		}
		l.open[r.Start]++
	default:
		if l.open[r.Start]--; l.open[r.Start] <= 0 {
			delete(l.open, r.Start)
		}
		l.ended = append(l.ended, r)
	}
}

// End is called when the client has ended, which it does not by itself.
func (l *Log) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// Settled returns nil once every request that began before a given time has ended, and three requests that began after
// it were answered.
func (l *Log) Settled(moment time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	good := 0
	for _, r := range l.ended {
		if r.Failed == "" && r.Start.After(moment) {
			good++
		}
	}
	if good < 3 {
		return fmt.Errorf("%d requests that began since were answered, want 3; the last: %+v", good,
			l.ended[max(0, len(l.ended)-1):])
	}
	for _, start := range slices.SortedFunc(maps.Keys(l.open), time.Time.Compare) {
		if start.Before(moment) {
			return fmt.Errorf("the request of %s is open, and is %s older", start.Format(clock),
				moment.Sub(start).Round(time.Millisecond))
		}
	}
	return nil
}

// Take removes and returns the requests that began before a given time and have ended, in the order of their starts.
func (l *Log) Take(moment time.Time) []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	var taken, rest []Request
	for _, r := range l.ended {
		if r.Start.Before(moment) {
			taken = append(taken, r)
		} else {
			rest = append(rest, r)
		}
	}
	l.ended = rest
	slices.SortStableFunc(taken, func(a, b Request) int { return a.Start.Compare(b.Start) })
	return taken
}

// clock is how times of day are printed: as in the agents' logs.
const clock = "15:04:05.000"

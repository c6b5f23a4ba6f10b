package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

// reading is the answer to one reader of records.
type reading struct {
	relay    *Relay
	user     user
	question record.Question
	view     record.View
	only     []string   // Nodes to ask; all if empty
	query    url.Values // for agents
	trim     int        // records that are kept of an answer that does not follow; negative for all

	received chan received
	of       map[*node]bool      // that are read or were; true while they answer
	again    map[*node]time.Time // when they are read again, since their answer has failed
	tries    map[string]try      // by Node
	open     int                 // that are read
	begun    map[string]bool     // Nodes that answer
	before   map[string]bool     // Nodes that have answered
	reported string              // about the Nodes
	merger   record.Merger
	lines    *json.Encoder
	flush    func() error
}

// try is when a Node was read last, and how long that waited after an answer that failed.
type try struct {
	began time.Time
	wait  time.Duration
}

// received is an event of a Node, or the end of its answer.
type received struct {
	from  *node
	event record.Event
	ended bool
	err   error
}

// run reads and answers until the Nodes or ctx end.
func (a *reading) run(ctx context.Context) {
	reads, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		stop()
		all.Wait()
	}()
	tick := time.NewTicker(mergeWait / 5)
	defer tick.Stop()
	began, looked := time.Now(), time.Now()
	changed := a.begin(reads, &all)
	for a.question.Follow || a.open > 0 {
		select {
		case <-ctx.Done():
			if a.question.Follow || ctx.Err() != context.DeadlineExceeded {
				return
			}
			a.finish()
			return
		case h := <-a.received:
			a.receive(h)
		case <-changed:
			if a.question.Follow {
				changed = a.begin(reads, &all)
			} else {
				changed = nil
			}
		case now := <-tick.C:
			if now.Sub(looked) > viewKept {
				looked = now
				if !a.lookAgain(ctx) {
					return
				}
			}
			if a.retries(now) {
				changed = a.begin(reads, &all)
			}
			if a.question.Follow && !a.write(a.merger.Due(now)) || !a.report(now.Sub(began)) {
				return
			}
		}
	}
	a.finish()
}

// finish writes what is left of an answer that does not follow.
func (a *reading) finish() {
	list := a.shown(a.merger.All())
	if _, all := a.counts(); a.trim >= 0 {
		list = lastOf(list, a.trim*max(all, 1))
	}
	_ = a.encode(list) && a.report(wholeLimit)
}

// lastOf leaves out all records but the last n.
func lastOf(list []record.Event, n int) []record.Event {
	records := 0
	for _, e := range list {
		if e.Record() != nil {
			records++
		}
	}
	return slices.DeleteFunc(list, func(e record.Event) bool {
		if e.Record() == nil {
			return false
		}
		records--
		return records >= n
	})
}

// lookAgain reports whether the reader still has the rights that it began with.
func (a *reading) lookAgain(ctx context.Context) bool {
	names := make([]string, 0, len(a.view.Namespaces))
	for name := range a.view.Namespaces {
		names = append(names, name)
	}
	now, err := a.relay.who.view(ctx, a.user, names)
	if err == nil && a.view.All && !now.All || err == nil && len(now.Namespaces) < len(names) && !now.All {
		err = denied(a.user, flowsAccess)
	}
	if err != nil {
		_ = a.encode([]record.Event{{Missing: &record.Missing{Time: time.Now(), Why: "the answer ends: " + err.Error()}}})
		return false
	}
	return true
}

// begin begins to read the Nodes that are connected and are not read yet.
func (a *reading) begin(ctx context.Context, all *sync.WaitGroup) (changed <-chan struct{}) {
	open, _, changed := a.relay.nodes.now()
	for name, c := range open {
		if _, read := a.of[c]; read || !a.wants(name) {
			continue
		}
		a.of[c] = true
		a.open++
		a.tries[name] = try{time.Now(), a.tries[name].wait}
		query := a.query
		if a.before[name] { // the reader has the Node's earlier records
			query = maps.Clone(query)
			query.Del("since")
			query.Set("last", "0")
		}
		all.Go(func() {
			err := c.events(ctx, query, func(e record.Event) {
				select {
				case a.received <- received{from: c, event: e}:
				case <-ctx.Done():
				}
			})
			select {
			case a.received <- received{from: c, ended: true, err: err}:
			case <-ctx.Done():
			}
		})
	}
	for c := range a.of { // connections that are over
		if open[c.name] != c && !a.of[c] {
			delete(a.of, c)
		}
	}
	return changed
}

// waits delays the next read of a Node whose answer has failed. Each failure makes the delay longer.
func (a *reading) waits(c *node) {
	t := a.tries[c.name]
	if time.Since(t.began) >= retrySteady {
		t.wait = 0
	}
	t.wait = max(retryAfter, retry.Next(t.wait))
	a.tries[c.name] = t
	a.again[c] = time.Now().Add(t.wait)
}

// retries reports whether it is time to read Nodes again whose answer has failed.
func (a *reading) retries(now time.Time) (some bool) {
	for c, at := range a.again {
		if !now.Before(at) {
			delete(a.again, c)
			delete(a.of, c)
			some = true
		}
	}
	return some
}

func (a *reading) wants(name string) bool { return len(a.only) == 0 || slices.Contains(a.only, name) }

// events calls add with each event of a Node.
func (c *node) events(ctx context.Context, query url.Values, add func(record.Event)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://"+api.RelayHost+api.PathObserve+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := c.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		var wrong api.Error
		_ = json.NewDecoder(io.LimitReader(answer.Body, maxLine)).Decode(&wrong)
		err := fmt.Errorf("%s: %s", answer.Status, wrong.Error)
		if answer.StatusCode == http.StatusBadRequest {
			err = unserved{err}
		}
		return err
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e record.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("understand a line: %w", err)
		}
		c.own(&e)
		add(e)
	}
	return lines.Err()
}

// unserved is the error of a Node that does not support the requested path. The Node is not asked again until it
// connects again.
type unserved struct{ error }

// own has an event come from the Node that has sent it. A Node speaks for itself alone.
func (c *node) own(e *record.Event) {
	e.Nodes = nil
	if r := e.Record(); r != nil {
		r.Node, r.Nodes = c.name, nil
	}
	if e.Begin != nil {
		e.Begin.Node = c.name
	}
	if e.Missing != nil {
		e.Missing.Node = c.name
	}
}

// receive takes an event of a Node.
func (a *reading) receive(h received) {
	switch {
	case h.ended:
		a.of[h.from] = false
		a.open--
		if a.question.Follow || h.err != nil {
			delete(a.begun, h.from.name)
		}
		if h.err != nil && a.question.Follow && !errors.As(h.err, new(unserved)) {
			a.waits(h.from)
		}
		if h.err != nil {
			a.relay.log.Debug("a Node's answer has ended", "node", h.from.name, "error", h.err)
			a.merger.Add(record.Event{Missing: &record.Missing{Node: h.from.name, Time: time.Now(),
				Why: "its answer has ended: " + h.err.Error()}}, time.Now())
		}
		return
	case h.event.Begin != nil:
		a.begun[h.from.name], a.before[h.from.name] = true, true
	}
	if a.merger.Len() >= maxWaiting { // the order is kept within these
		a.write(a.merger.All())
	}
	a.merger.Add(h.event, time.Now())
}

// counts returns how many of the Nodes answer.
func (a *reading) counts() (absent []string, all int) {
	_, names, _ := a.relay.nodes.now()
	for _, name := range names {
		if !a.wants(name) {
			continue
		}
		all++
		if !a.begun[name] {
			absent = append(absent, name)
		}
	}
	for _, name := range a.only {
		if !slices.Contains(names, name) {
			absent = append(absent, name)
			all++
		}
	}
	return absent, all
}

// report writes the number of Nodes that answer, if it has changed. It waits for the first lines of the Nodes.
func (a *reading) report(since time.Duration) bool {
	absent, all := a.counts()
	if a.reported == "" && len(absent) > 0 && since < beginLimit {
		return true
	}
	text := strings.Join(absent, ",") + " of " + strconv.Itoa(all)
	if text == a.reported {
		return true
	}
	a.reported = text
	n := &record.Nodes{Answering: all - len(absent), All: all, Absent: absent[:min(len(absent), record.MaxAbsent)]}
	return a.encode([]record.Event{{Nodes: n}})
}

// write writes the events that the reader has asked for and may see. It reports whether the reader is still connected.
func (a *reading) write(list []record.Event) bool { return a.encode(a.shown(list)) }

// shown returns the events that the reader may see and asks for.
func (a *reading) shown(list []record.Event) []record.Event {
	sent, hidden := 0, 0
	out := list[:0]
	for _, e := range list {
		switch {
		case e.Drop != nil:
			e.Drop = a.view.Show(e.Drop)
		case e.Connection != nil:
			e.Connection = a.view.Show(e.Connection)
		case e.End != nil:
			e.End = a.view.Show(e.End)
		default:
			out = append(out, e)
			continue
		}
		if e.Record() == nil {
			hidden++
			continue
		}
		if a.view.All || a.question.Takes(e) { // agents have applied the filter for who may see everything
			out = append(out, e)
			sent++
		}
	}
	a.relay.records.WithLabelValues("sent").Add(float64(sent))
	a.relay.records.WithLabelValues("hidden").Add(float64(hidden))
	return out
}

func (a *reading) encode(list []record.Event) bool {
	for _, e := range list {
		if a.lines.Encode(e) != nil {
			return false
		}
	}
	return len(list) == 0 || a.flush() == nil
}

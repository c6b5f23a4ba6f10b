package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// seenWays remembers what was observed of ways.
type seenWays struct {
	report wayReport
	down   downWays
}

const (
	// waySteady is how long a way has to have been up before it is reported as up again. It is also how long a report of
	// ways stays as it is after a change, with one exception for lost ways. However often ways go down, a Gateway reports
	// twelve times a minute at most.
	waySteady = 10 * time.Second
	// wayLost is how long a way that was up has to have been down before it is reported as lost: a network that stutters
	// moves no requests to other clusters.
	wayLost = 2 * time.Second
	// wayLook is how often ways are looked at without an event, of which the loss of the switch makes none.
	wayLook = 2 * time.Second
	// maxReportedWays bounds the report, as its definition does.
	maxReportedWays = 1000
)

// The reported states of a way.
const (
	wayIsUp   = "up"
	wayIsDown = "down"
	wayIsLost = "lost" // down, and it was up before: BFD passes there
)

// wayNow is what is observed of a way.
type wayNow struct {
	up  bool
	was bool // up before
}

// toReport returns this Gateway's ways to other clusters that BFD watches, as CLUSTER/ADDRESS, with the state of their
// ports. connected is whether the switch answers: otherwise the state in the OVSDB is old, and the far end is not the
// cause.
func (t *wayTables) toReport(ports map[string]bridge.PortState, connected bool) map[string]wayNow {
	p, _ := t.peering.Get(self)
	if p.Part.Role != peering.Gateway {
		return nil
	}
	out := map[string]wayNow{}
	for _, peer := range p.Peers {
		for _, w := range p.Part.Ways(peer) { // also of one that does not send by them yet
			port := ports[wayPort(w.End())]
			if port.BFD == "" {
				continue
			}
			out[peer.ClusterID+"/"+w.Outside.String()] = wayNow{
				up: connected && port.BFD == wayIsUp, was: connected && port.BFDWasUp,
			}
		}
	}
	return out
}

// wayReport decides what is reported of ways, from what is observed of them.
type wayReport struct {
	mu       sync.Mutex
	began    time.Time // the first observation
	seen     map[string]wayState
	reported map[string]string // nil while nothing is decided: then an earlier report stays
	changed  time.Time         // what is reported, last
	early    bool              // ways were reported as lost since, before it was time
}

// wayState is a way's state and since when it is up or down.
type wayState struct {
	now   wayNow
	since time.Time
}

// lost reports whether a way is lost that was reported otherwise.
func (s wayState) lost(now time.Time) bool {
	return !s.now.up && s.now.was && now.Sub(s.since) >= wayLost
}

// observe takes in the state of all ways at a time. It returns whether what is to be reported has changed, and whether
// to observe again although nothing happens.
func (w *wayReport) observe(now time.Time, ways map[string]wayNow) (changed, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		w.began = now
	}
	seen := make(map[string]wayState, len(ways))
	for k, is := range ways {
		since := now
		if was, known := w.seen[k]; known && was.now.up == is.up {
			since = was.since
		}
		seen[k] = wayState{is, since}
	}
	w.seen = seen
	again = w.reported == nil || len(seen) > 0 || len(w.reported) > 0
	if !w.changed.IsZero() && now.Sub(w.changed) < waySteady {
		return w.loseEarly(now), again
	}
	report := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		steady := now.Sub(seen[k].since) >= waySteady
		switch last := w.reported[k]; {
		case len(report) == maxReportedWays:
		case seen[k].now.up && (last == "" || last == wayIsUp || steady):
			report[k] = wayIsUp
		case last == wayIsLost || seen[k].lost(now): // also after a restart of the switch, which knows of no way that was up
			report[k] = wayIsLost
		case seen[k].now.up || last != "" || steady:
			report[k] = wayIsDown
		} // else its port is new, and BFD begins down
	}
	switch early := now.Sub(w.began) < waySteady && (len(seen) == 0 || len(report) < len(seen)); {
	case w.reported == nil && early, w.reported != nil && maps.Equal(report, w.reported):
		return false, again
	}
	w.reported, w.changed, w.early = report, now, false
	return true, again
}

// loseEarly reports ways as lost that were reported as down a moment ago; once, until it is time for a report.
func (w *wayReport) loseEarly(now time.Time) (changed bool) {
	if w.early {
		return false
	}
	report := maps.Clone(w.reported)
	for k, last := range report {
		if last == wayIsDown && w.seen[k].lost(now) {
			report[k], w.early = wayIsLost, true
		}
	}
	w.reported = report
	return w.early
}

// now is what is to be reported; nil leaves what was.
func (w *wayReport) now() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reported)
}

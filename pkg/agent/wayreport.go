package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// seenWays records the observations of ways.
type seenWays struct {
	report wayReport
	down   downWays
}

const (
	// waySteady is how long a way has to be up before it is reported as up again. It is also how long a report of ways
	// stays unchanged after a change, except for lost ways. So a Gateway reports at most twelve times a minute, however
	// often ways go down.
	waySteady = 10 * time.Second
	// wayLost is how long a way that was up has to be down before it is reported as lost. So a short interruption moves no
	// requests to other clusters.
	wayLost = 2 * time.Second
	// wayLook is the interval at which ways are observed without an event. The loss of the connection to the switch causes
	// no event.
	wayLook = 2 * time.Second
	// wayFirst is how often an agent that starts looks whether its ways are known.
	wayFirst = 100 * time.Millisecond
	// maxReportedWays bounds the report, as its definition does.
	maxReportedWays = 1000
)

// The reported states of a way.
const (
	wayIsUp   = "up"
	wayIsDown = "down"
	wayIsLost = "lost" // down, and it was up before: BFD passes there
)

// wayNow is the observed state of a way.
type wayNow struct {
	up  bool
	was bool // up before
}

// toReport returns this Gateway's ways to other clusters that BFD watches, as CLUSTER/ADDRESS, with the state of their
// ports. If connected is false, the switch does not answer. Then the state in the OVSDB is old, and the far end may be
// well.
func (t *wayTables) toReport(ports map[string]bridge.PortState, connected bool) map[string]wayNow {
	p, _ := t.peering.Get(self)
	if p.Part.Role != peering.Gateway {
		return nil
	}
	out := map[string]wayNow{}
	for _, peer := range p.Peers {
		for _, w := range p.Part.Ways(peer) { // also to a peer that does not send through them yet
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

// wayReport derives the report about ways from the observations.
type wayReport struct {
	mu       sync.Mutex
	began    time.Time // the first observation
	seen     map[string]wayState
	reported map[string]string // nil while nothing is decided: then an earlier report stays
	changed  time.Time         // the last change of the report
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

// observe takes over the state of all ways at a time. It returns whether the report has changed, and whether it has to
// be called again without an event.
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
		case last == wayIsLost || seen[k].lost(now): // also after a restart of the switch, which forgets that a way was up
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

// loseEarly reports ways as lost that were reported as down a moment ago. It may do so once before the next regular
// report.
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

// now returns the report; nil leaves the last report unchanged.
func (w *wayReport) now() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reported)
}

package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
)

const (
	// waySteady is how long a way has to have been up before it is reported as up again, and how long after a change what is
	// reported of ways stays as it is: however often ways go down, a Gateway reports six times a minute at most.
	waySteady = 10 * time.Second
	// wayLook is how often ways are looked at without an event, of which the loss of the switch makes none.
	wayLook = 2 * time.Second
	// maxReportedWays bounds the report, as its definition does.
	maxReportedWays = 1000
)

// What is reported of a way.
const (
	wayIsUp   = "up"
	wayIsDown = "down"
)

// watchedWays are this Gateway's ways to other clusters that BFD watches, as CLUSTER/ADDRESS, and whether they are up. What the
// OVSDB says of a switch that does not answer is old: nothing goes by it.
func (a *Agent) watchedWays() map[string]bool {
	if p, _ := a.tables.peering.Get(self); p.Role != peering.Gateway {
		return nil
	}
	connected := a.flows.Stats().Connected
	out := map[string]bool{}
	for cluster, ways := range a.ways() {
		for _, w := range ways {
			if w.State != "" {
				out[cluster+"/"+w.To] = connected && w.State == wayIsUp
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
}

// wayState is a way's state and since when it is in it.
type wayState struct {
	up    bool
	since time.Time
}

// observe takes in the state of all ways at a time. It returns whether what is to be reported has changed, and whether to observe
// again although nothing happens.
func (w *wayReport) observe(now time.Time, ways map[string]bool) (changed, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		w.began = now
	}
	seen := make(map[string]wayState, len(ways))
	for k, up := range ways {
		was, known := w.seen[k]
		if !known || was.up != up {
			was = wayState{up, now}
		}
		seen[k] = was
	}
	w.seen = seen
	again = w.reported == nil || len(seen) > 0 || len(w.reported) > 0
	if !w.changed.IsZero() && now.Sub(w.changed) < waySteady {
		return false, again
	}
	report := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		steady := now.Sub(seen[k].since) >= waySteady
		switch last := w.reported[k]; {
		case len(report) == maxReportedWays:
		case seen[k].up && (last != wayIsDown || steady):
			report[k] = wayIsUp
		case seen[k].up || last != "" || steady:
			report[k] = wayIsDown
		} // else its port is new, and BFD begins down
	}
	switch early := now.Sub(w.began) < waySteady && (len(seen) == 0 || len(report) < len(seen)); {
	case w.reported == nil && early, w.reported != nil && maps.Equal(report, w.reported):
		return false, again
	}
	w.reported, w.changed = report, now
	return true, again
}

// now is what is to be reported; nil leaves what was.
func (w *wayReport) now() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reported)
}

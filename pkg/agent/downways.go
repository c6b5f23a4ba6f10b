package agent

import (
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// lostAfter is how long a way has to be down until connections of TCP leave it. Only the Gateways on it can translate
// them, so where they go then they are reset; a switch that is short of time, or is started again, has them back
// before.
const lostAfter = 10 * time.Second

// downWays are the ways that are down, and since when. It is used by one goroutine.
type downWays map[datapath.WayEnd]time.Time

// lost returns which of the ways have been down for long at a time, given which are up, and whether others may become
// so without an event.
func (d downWays) lost(now time.Time, up map[datapath.WayEnd]bool) (lost map[datapath.WayEnd]bool, waiting bool) {
	for end := range d {
		if is, watched := up[end]; is || !watched {
			delete(d, end)
		}
	}
	lost = map[datapath.WayEnd]bool{}
	for end, is := range up {
		if is {
			continue
		}
		if _, known := d[end]; !known {
			d[end] = now
		}
		if now.Sub(d[end]) >= lostAfter {
			lost[end] = true
		} else {
			waiting = true
		}
	}
	return lost, waiting
}

package agent

import (
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// lostAfter is how long a way has to be down until its TCP connections are removed. Only the Gateways on a way can
// translate its connections, so on another way they are reset. If a switch is only slow or restarts, the way is up
// again before that.
const lostAfter = 10 * time.Second

// downWays are the ways that are down, and since when. It is used by one goroutine.
type downWays map[datapath.WayEnd]time.Time

// lost returns which ways have been down for lostAfter at a time, given the ways that are up. It also returns whether
// more ways may become lost without an event.
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

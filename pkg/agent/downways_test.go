package agent

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// TestDownWays loses a way once it has been down for long without a break.
func TestDownWays(t *testing.T) {
	one, two := datapath.WayEnd{Addr: netip.MustParseAddr("192.168.77.101")},
		datapath.WayEnd{Addr: netip.MustParseAddr("192.168.77.102")}
	type ends = map[datapath.WayEnd]bool
	d, begin := downWays{}, time.Unix(1000, 0)
	for _, step := range []struct {
		at       time.Duration
		up, lost ends
		waiting  bool
	}{
		{0, ends{one: false, two: true}, ends{}, true},
		{9 * time.Second, ends{one: false, two: false}, ends{}, true},
		{10 * time.Second, ends{one: false, two: true}, ends{one: true}, false},
		{11 * time.Second, ends{one: true, two: false}, ends{}, true},
		{20 * time.Second, ends{one: false, two: false}, ends{}, true},
		{21 * time.Second, ends{one: false, two: false}, ends{two: true}, true},
		{40 * time.Second, ends{one: false}, ends{one: true}, false},
		{41 * time.Second, ends{one: false, two: false}, ends{one: true}, true},
	} {
		lost, waiting := d.lost(begin.Add(step.at), step.up)
		if !maps.Equal(lost, step.lost) || waiting != step.waiting {
			t.Errorf("after %s with %v: lost %v, waiting %v, want %v, %v", step.at, step.up, lost, waiting, step.lost,
				step.waiting)
		}
	}
}

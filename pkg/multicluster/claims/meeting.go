package claims

import "net/netip"

// Meeting returns the first two ranges, one of each list, that have an address in common.
func Meeting(a, b []netip.Prefix) (x, y netip.Prefix, meet bool) {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return x, y, true
			}
		}
	}
	return x, y, false
}

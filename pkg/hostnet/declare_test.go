package hostnet

import (
	"net/netip"
	"testing"
)

// TestManyElementsOfOneOwner declares each element of an owner twice, with few and with many elements. The last value
// counts, and the owner has each element once.
func TestManyElementsOfOneOwner(t *testing.T) {
	for _, n := range []int{1, mostSearched - 1, mostSearched, mostSearched + 1, 10 * mostSearched} {
		tables := bothVersions(newServicesTable)
		key := func(i int) element {
			return element{port: uint16(i), address: netip.MustParseAddr("198.51.100.7").As16()}
		}
		first, last := netip.MustParseAddrPort("169.254.0.251:1"), netip.MustParseAddrPort("169.254.0.252:2")
		declare(tables, "owner", func(yield func(element, netip.AddrPort) bool) {
			for _, to := range []netip.AddrPort{first, last} {
				for i := range n {
					if !yield(key(i), to) {
						return
					}
				}
			}
		})
		for _, table := range tables {
			want := 0
			if table.ip.has(last.Addr()) {
				want = n
			}
			if have := len(table.declared.owners["owner"]); have != want {
				t.Errorf("%d elements: the owner has %d, want %d", n, have, want)
			}
			for i := range want {
				if have := table.declared.values[key(i)].to; have != destinationOf(last) {
					t.Errorf("%d elements: element %d leads to %v, want %v", n, i, have, last)
				}
			}
		}
	}
}

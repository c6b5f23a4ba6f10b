// Package family has the versions of IP that a Node serves.
package family

import (
	"net/netip"
	"slices"
)

// Families are versions of IP. The zero value is IPv4 alone.
type Families uint8

// Values of Families.
const (
	IPv4 Families = iota // IPv4 alone
	IPv6                 // IPv6 alone
	Dual                 // both
)

var names = [...]string{IPv4: "IPv4", IPv6: "IPv6", Dual: "IPv4 and IPv6"}

// String returns the families in words.
func (f Families) String() string { return names[f] }

// Has4 reports whether IPv4 is one of them.
func (f Families) Has4() bool { return f != IPv6 }

// Has6 reports whether IPv6 is one of them.
func (f Families) Has6() bool { return f != IPv4 }

// SwitchRange6 has the IPv6 addresses that the switch of every Node uses for itself, like the link-local addresses for
// IPv4. No other machine can have such an address, since the switch would treat it as its own.
var SwitchRange6 = netip.MustParsePrefix("fc01::/64")

// Serve reports whether an address is of one of the families. An IPv4 address in IPv6 form belongs to neither family.
func (f Families) Serve(a netip.Addr) bool {
	return a.Is4() && f.Has4() || a.Is6() && !a.Is4In6() && f.Has6()
}

// Of returns the families of ranges. Without ranges of IPv6 it is IPv4 alone.
func Of(ranges []netip.Prefix) Families {
	is6 := func(p netip.Prefix) bool { return Dual.Serve(p.Addr()) && !p.Addr().Is4() }
	switch {
	case !slices.ContainsFunc(ranges, is6):
		return IPv4
	case slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is4() }):
		return Dual
	}
	return IPv6
}

// And returns the families that are in both. ok is false if they have no family in common.
func (f Families) And(g Families) (both Families, ok bool) {
	switch {
	case f == g || g == Dual:
		return f, true
	case f == Dual:
		return g, true
	}
	return IPv4, false
}

package family

import (
	"net/netip"
	"testing"
)

func TestServe(t *testing.T) {
	for _, test := range []struct {
		address        string
		v4, v6, either bool
	}{
		{"10.0.0.1", true, false, true},
		{"fd00::1", false, true, true},
		{"fe80::1%eth0", false, true, true},
		{"::ffff:10.0.0.1", false, false, false},
	} {
		a := netip.MustParseAddr(test.address)
		if v4, v6, either := IPv4.Serve(a), IPv6.Serve(a), Dual.Serve(a); v4 != test.v4 || v6 != test.v6 ||
			either != test.either {
			t.Errorf("%s is served by IPv4 %t, IPv6 %t, both %t", a, v4, v6, either)
		}
	}
	if Dual.Serve(netip.Addr{}) {
		t.Error("no address is served")
	}
}

func TestOf(t *testing.T) {
	for _, test := range []struct {
		ranges []string
		want   Families
	}{
		{nil, IPv4}, {[]string{"10.0.0.0/24"}, IPv4}, {[]string{"fd00::/64"}, IPv6},
		{[]string{"fd00::/64", "10.0.0.0/24"}, Dual}, {[]string{"::ffff:10.0.0.0/120"}, IPv4},
	} {
		var list []netip.Prefix
		for _, text := range test.ranges {
			list = append(list, netip.MustParsePrefix(text))
		}
		if have := Of(list); have != test.want {
			t.Errorf("%v: %s, want %s", test.ranges, have, test.want)
		}
	}
}

func TestAnd(t *testing.T) {
	all := []Families{IPv4, IPv6, Dual}
	for _, f := range all {
		for _, g := range all {
			both, ok := f.And(g)
			for _, a := range []string{"10.0.0.1", "fd00::1"} {
				a := netip.MustParseAddr(a)
				if have, want := ok && both.Serve(a), f.Serve(a) && g.Serve(a); have != want {
					t.Errorf("%s and %s: %s is served %t", f, g, a, have)
				}
			}
		}
	}
}

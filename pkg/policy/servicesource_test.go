package policy

import (
	"net/netip"
	"testing"
)

// TestServiceSource has the addresses that a Node uses for clients outside.
func TestServiceSource(t *testing.T) {
	for cidr, want := range map[string]string{
		"10.11.0.0/24": "10.11.0.254", "10.11.0.0/29": "10.11.0.6", "10.11.0.9/29": "10.11.0.14", "10.11.0.0/30": "",
		"10.0.0.0/8": "10.255.255.254", "fd00:1::/64": "fd00:1::ffff:ffff:ffff:fffe", "fd00:1::/126": "", "10.11.0.1/32": "",
	} {
		if ip, ok := ServiceSource(netip.MustParsePrefix(cidr)); ok != (want != "") || ok && ip.String() != want {
			t.Errorf("%s: %s, %v, want %s", cidr, ip, ok, want)
		}
	}
}

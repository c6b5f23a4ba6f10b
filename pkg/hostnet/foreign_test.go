package hostnet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestForwardPolicyDrop finds a chain of another program that drops forwarded packets, as Docker's does.
func TestForwardPolicyDrop(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up")
	m := run(t, ns, 50*time.Millisecond)
	m.Set(node())
	synced(t, m)
	family := "ip"
	reported := func(what string, want bool) {
		t.Helper()
		ovstest.Eventually(t, what, func() error {
			text := fmt.Sprint(m.Problems())
			if strings.Contains(text, "nftables chain "+family+" filter FORWARD") != want {
				return fmt.Errorf("problems %s, want ForwardPolicyDrop: %v", text, want)
			}
			return nil
		})
	}
	sh(t, `nft 'table inet filter { chain other { iifname "other" accept; }; }'`) // another table of the same name
	sh(t, `nft 'table ip filter {
		chain USER { }
		chain FORWARD { type filter hook forward priority filter; policy drop; jump USER; }
		chain INPUT { type filter hook input priority filter; policy drop; iifname "gw0" accept; }
	}'`)
	sh(t, "nft flush chain ip filter INPUT")
	reported("a policy that drops", true)
	synced(t, m) // nothing waits for another program
	sh(t, `nft add rule ip filter USER iifname "gw0" accept`)
	reported("a rule for the gateway port", false)
	sh(t, "nft flush chain ip filter USER")
	reported("the rule has gone", true)
	sh(t, "nft 'chain ip filter FORWARD { policy accept; }'")
	reported("a policy that accepts", false)

	// A chain for IPv6 matters to a Node that has IPv6.
	family = "ip6"
	sh(t, `nft 'table ip6 filter {
		chain FORWARD { type filter hook forward priority filter; policy drop; }
	}'`)
	d := node()
	d.Sysctls["net/ipv4/conf/gw0/arp_announce"] = "1" // so that all is compared
	m.Set(d)
	synced(t, m)
	reported("a Node without IPv6", false)
	d = d.clone()
	d.Links[0].Addresses = append(d.Links[0].Addresses, netip.MustParsePrefix("fd10::1/64"))
	m.Set(d)
	reported("a Node with IPv6", true)
	if text := fmt.Sprint(m.Problems()); !strings.Contains(text, "ip6tables -I FORWARD -i gw0") {
		t.Error(text)
	}
	sh(t, `nft add rule ip6 filter FORWARD iifname "gw0" accept`)
	reported("a rule of IPv6 for the gateway port", false)
}

// TestRouteLocalnet lowers the sysctl that no feature needs, unless another program maps ports of the Node.
func TestRouteLocalnet(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up")
	const file = "/proc/sys/net/ipv4/conf/gw0/route_localnet"
	d := node()
	d.Sysctls["net/ipv4/conf/gw0/route_localnet"] = "1"
	m := run(t, ns, 50*time.Millisecond)
	is := func(want string) {
		t.Helper()
		ovstest.Eventually(t, "route_localnet is "+want, func() error {
			if have := sh(t, "cat "+file); have != want {
				return fmt.Errorf("it is %s", have)
			}
			return nil
		})
	}
	m.Set(d)
	is("1")
	sh(t, "nft 'table ip nat { chain CNI-HOSTPORT-DNAT { }; }'") // the plugin portmap
	d = d.clone()
	d.Sysctls["net/ipv4/conf/gw0/route_localnet"] = "0"
	d.Sysctls["net/ipv4/conf/gw0/arp_announce"] = "1" // shows that the rest was compared
	m.Set(d)
	synced(t, m)
	is("1")
	sh(t, "nft delete table ip nat")
	is("0")
}

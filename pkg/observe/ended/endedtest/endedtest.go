// Package endedtest has the kernel track connections for tests of their ends.
package endedtest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/ti-mo/conntrack"
	"github.com/vishvananda/netns"
)

// Tracking is how a network namespace tracks connections.
type Tracking struct {
	Addresses []netip.Addr // of its interface lo, which always has 127.0.0.1
	// Protocol is tcp or udp. Connections to Ports are in Zone, and connections to OtherPort in another zone.
	Protocol  string
	Ports     []uint16
	Zone      uint16
	OtherPort uint16
	// Service is translated to Endpoint.
	Service, Endpoint netip.AddrPort
}

// Enter puts the test's thread into a new network namespace that tracks connections. It ends with the test.
func Enter(t *testing.T, track Tracking) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	run(t, "ip", "link", "set", "lo", "up")
	for _, ip := range track.Addresses {
		run(t, "ip", "addr", "add", ip.String(), "dev", "lo")
	}
	var rules strings.Builder
	rules.WriteString("add table inet t\n")
	for _, hook := range []string{"output", "prerouting"} {
		fmt.Fprintf(&rules, "add chain inet t %s { type filter hook %s priority raw; }\n", hook, hook)
		for _, end := range []string{"sport", "dport"} {
			rule := fmt.Sprintf("add rule inet t %s %s %s", hook, track.Protocol, end)
			for _, port := range track.Ports {
				fmt.Fprintf(&rules, "%s %d ct zone set %d\n", rule, port, track.Zone)
			}
			if track.OtherPort != 0 {
				fmt.Fprintf(&rules, "%s %d ct zone set 9\n", rule, track.OtherPort)
			}
		}
	}
	rules.WriteString("add chain inet t in { type filter hook input priority 0; }\n" +
		"add rule inet t in ct state new counter\n")
	if track.Service.IsValid() {
		fmt.Fprintf(&rules, "add chain inet t nat { type nat hook output priority -100; }\n"+
			"add rule inet t nat ip daddr %s %s dport %d dnat ip to %s\n", track.Service.Addr(), track.Protocol,
			track.Service.Port(), track.Endpoint)
	}
	run(t, "nft", rules.String())
	if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_acct", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	return ns
}

// Forget ends all connections of the thread's namespace: the kernel tracks them no more.
func Forget(t *testing.T) {
	t.Helper()
	c, err := conntrack.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Flush(); err != nil {
		t.Fatalf("forget all connections: %v", err)
	}
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

package hostnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

func TestLinkComesBack(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, time.Hour)
	m.Set(node())
	sh(t, addGateway)
	synced(t, m)
	want := kernel()

	for range 5 { // long before the next resync
		sh(t, "ip link del gw0")
		sh(t, addGateway)
		ovstest.Eventually(t, "gw0 has its routes again", func() error {
			_, err := try("ip route get 10.96.0.10 | grep -q 'dev gw0'")
			return err
		})
		ovstest.Eventually(t, "gw0 is as before", func() error {
			return difference(want, kernel())
		})
	}
}

// TestForeignChanges changes everything from outside in random order.
func TestForeignChanges(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, 200*time.Millisecond)
	m.Set(node())
	sh(t, addGateway)
	sh(t, "ip link add other type veth peer name otherp && ip addr add 172.16.0.1/24 dev other && ip link set other up "+
		"&& ip link set otherp up")
	sh(t, "ip route add 10.50.0.0/16 via 172.16.0.2 proto static && ip route add 10.51.0.0/16 via 172.16.0.2 proto 0x75")
	sh(t, "nft add table ip theirs && nft add chain ip theirs input '{ type filter hook input priority 0; }'")
	sh(t, "ip neigh add 172.16.0.9 lladdr 02:00:00:00:00:09 dev other")
	sh(t, "ip rule add priority 20000 iif other lookup 116")
	synced(t, m)
	want := kernel()

	vandalism := []string{
		"ip addr del 10.10.0.1/24 dev gw0",
		"ip addr add 10.10.0.77/24 dev gw0",
		"ip addr add 10.99.0.1/16 dev gw0",
		"ip link set gw0 mtu 1300",
		"ip link set gw0 down",
		"ip route del 10.96.0.0/16",
		"ip route change 10.96.0.0/16 via 169.254.0.253 dev gw0 proto 0x74 onlink",
		"ip route add 10.97.0.0/16 dev gw0 proto 0x74",
		"ip rule del priority 29696",
		"ip rule add priority 29696 iif gw0 lookup 116",
		"ip route flush table 116",
		"ip neigh del 169.254.0.253 dev gw0",
		"ip neigh replace 169.254.0.253 lladdr 02:00:00:00:00:01 dev gw0 nud permanent",
		"echo 0 > /proc/sys/net/ipv4/ip_forward",
		"nft flush ruleset ip; nft add table ip theirs && nft add chain ip theirs input '{ type filter hook input priority " +
			"0; }'",
		"nft flush chain ip tombolo postrouting",
		"nft delete element ip tombolo except '{ 10.10.0.0/16 }'",
		"nft add element ip tombolo sources '{ 10.0.7.0/24 }'",
		"nft add rule ip tombolo postrouting accept",
		"ip link del gw0 && " + addGateway,
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	rnd.Shuffle(len(vandalism), func(i, j int) { vandalism[i], vandalism[j] = vandalism[j], vandalism[i] })
	for _, act := range vandalism {
		sh(t, act)
		ovstest.Eventually(t, act+" is mended", func() error { return difference(want, kernel()) })
	}
	for _, theirs := range []string{
		"ip route show 10.50.0.0/16 | grep static", "ip route show 10.51.0.0/16 | grep 172.16.0.2",
		"ip addr show dev other | grep 172.16.0.1/24", "nft list chain ip theirs input",
		"ip neigh show dev other | grep 172.16.0.9", "ip rule show priority 20000 | grep 116",
	} {
		sh(t, theirs)
	}

	// Wanting nothing removes our routes and table, and nothing else.
	m.Set(Desired{})
	synced(t, m)
	ovstest.Eventually(t, "routes and table are gone", func() error {
		out, _ := try("ip route show table all proto 0x74; ip rule show priority 29696; " +
			"nft list table ip tombolo 2>/dev/null")
		if out != "" {
			return fmt.Errorf("left: %s", out)
		}
		return nil
	})
	sh(t, "ip route show 10.50.0.0/16 | grep static")
	sh(t, "nft list chain ip theirs input")
}

// TestQuiet makes changes that do not concern the Manager: the same desired states again, and links, addresses and
// nftables of others. The nft program does not run for them, and an equal Set is not even compared.
func TestQuiet(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, time.Hour)
	sh(t, addGateway)
	m.Set(node())
	synced(t, m)
	// settled returns what was done once nothing has been for a second.
	settled := func() Stats {
		t.Helper()
		var before Stats
		var since time.Time
		ovstest.Eventually(t, "the manager is quiet", func() error {
			if now := m.Stats(); now != before {
				before, since = now, time.Now()
			}
			if time.Since(since) < time.Second {
				return fmt.Errorf("still at work: %+v", before)
			}
			return nil
		})
		return before
	}
	// The table's own change causes its last comparison.
	var before Stats
	ovstest.Eventually(t, "the table was read after it was made", func() error {
		if before = settled(); before.NFTReads < 2*uint64(len(families)) {
			return fmt.Errorf("read %d times", before.NFTReads)
		}
		return nil
	})
	for range 100 {
		m.Set(node())
	}
	synced(t, m)
	_, round := m.want.Get()
	if now := settled(); now.NFTReads != before.NFTReads || round != 1 {
		t.Errorf("setting the same again had %+v done, was %+v, in round %d", now, before, round)
	}
	sh(t, "ip link add other type veth peer name otherp && ip addr add 172.16.0.1/24 dev other && ip link set other up")
	sh(t, "nft add table ip theirs && nft add chain ip theirs input '{ type filter hook input priority 0; }'")
	sh(t, "nft add table arp tombolo && nft add chain arp tombolo input")
	ovstest.Eventually(t, "links were compared", func() error {
		if m.Stats().Compares == before.Compares {
			return errors.New("no comparison after events of links")
		}
		return nil
	})
	if now := settled(); now.NFTReads != before.NFTReads || now.Changes != before.Changes {
		t.Errorf("what others did had %+v done, was %+v", now, before)
	}
	sh(t, "nft flush chain ip tombolo postrouting")
	ovstest.Eventually(t, "the table is mended without a resync", func() error {
		if out := sh(t, "nft list chain ip tombolo postrouting"); !strings.Contains(out, "masquerade") {
			return errors.New(out)
		}
		return nil
	})
}

// TestRoutesDoNotWaitForRules has the nft program take as long as it likes.
func TestRoutesDoNotWaitForRules(t *testing.T) {
	dir := t.TempDir()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nwhile [ ! -e %s/go ]; do sleep 0.05; done\nexec %s \"$@\"\n", dir, nft)
	if err := os.WriteFile(dir+"/nft", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ns := enter(t)
	m := run(t, ns, time.Hour)
	sh(t, addGateway)
	want := node()
	for _, services := range []string{"10.96.0.0/16", "10.97.0.0/16"} {
		want.Routes[0].Dst = netip.MustParsePrefix(services)
		want.Masquerade.Except = append(want.Masquerade.Except, want.Routes[0].Dst)
		m.Set(want)
		ovstest.Eventually(t, "there is a route while nft works", func() error {
			_, err := try("ip route show proto 0x74 | grep " + services)
			return err
		})
	}
	if err := trySync(m, 100*time.Millisecond); err == nil {
		t.Error("all is there, and nft has not ended")
	}
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	synced(t, m)
	if have := sh(t, "nft list table ip tombolo"); !strings.Contains(have, "10.97.0.0/16") ||
		!strings.Contains(have, "masquerade") {
		t.Errorf("the table has %s", have)
	}
}

func TestRefusedAndTaken(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	sh(t, addGateway)
	sh(t, "ip link add other type veth peer name otherp && ip addr add 172.16.0.1/24 dev other && ip link set other up "+
		"&& ip link set otherp up")
	sh(t, "ip route add 10.96.0.0/16 via 172.16.0.2")
	m := run(t, ns, time.Hour)
	d := node()
	d.Neighbors[0].MAC = "nonsense"
	d.Links[0].MTU = 1 << 20
	m.Set(d)
	err := trySync(m, ovstest.Timeout())
	if err == nil {
		t.Fatal("Synced succeeded")
	}
	for _, want := range []string{
		"link gw0: mtu: set MTU 1048576, was 1500: ",
		"route 10.96.0.0/16: another program has a route for it (protocol 3, ",
		`neighbours gw0: mac: set 169.254.0.253 to "nonsense": `,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if out := sh(t, "ip route show 10.10.1.0/24"); !strings.Contains(out, "dev gw0") {
		t.Errorf("the other routes were held up: %q", out)
	}
	if out := sh(t, "ip route show 10.96.0.0/16"); !strings.Contains(out, "172.16.0.2") {
		t.Errorf("their route is %q", out)
	}
	if n := len(m.Problems()); n != 3 {
		t.Errorf("problems: %v", m.Problems())
	}
}

package tenant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(texts string) (out []netip.Prefix) {
	for _, text := range strings.Fields(texts) {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func addresses(texts string) (out []netip.Addr) {
	for _, text := range strings.Fields(texts) {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func grants(list []NodeBlocks) string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprintf("%s/%s %s", n.Node, n.Claim, strings.Trim(fmt.Sprint(n.Blocks), "[]")))
	}
	return strings.Join(out, "; ")
}

func TestGrant(t *testing.T) {
	for _, row := range []struct {
		name, cidr, gateway, pools string
		have                       []NodeBlocks
		claims                     []Claim
		want, short                string
	}{
		{name: "the first Pod of two Nodes", cidr: "10.0.1.0/24",
			claims: []Claim{{Node: "b", Claim: "1", Pods: 1}, {Node: "a", Claim: "7", Pods: 1}},
			want:   "a/7 10.0.1.0/28; b/1 10.0.1.16/28"},
		{name: "more Pods than the first block has addresses", cidr: "10.0.1.0/24",
			claims: []Claim{{Node: "a", Claim: "7", Pods: 15}}, want: "a/7 10.0.1.0/28 10.0.1.16/28"},
		{name: "a block stays with its claim", cidr: "10.0.1.0/24",
			have:   []NodeBlocks{{"b", "1", prefixes("10.0.1.0/28")}, {"c", "1", prefixes("10.0.1.16/28")}},
			claims: []Claim{{Node: "a", Claim: "7", Pods: 1}, {Node: "b", Claim: "1", Pods: 0}},
			want:   "a/7 10.0.1.16/28; b/1 10.0.1.0/28"},
		{name: "another claim begins again", cidr: "10.0.1.0/24",
			have:   []NodeBlocks{{"a", "1", prefixes("10.0.1.32/28")}},
			claims: []Claim{{Node: "a", Claim: "2", Pods: 1}}, want: "a/2 10.0.1.0/28"},
		{name: "a lost claim with addresses in use", cidr: "10.0.1.0/24",
			claims: []Claim{{Node: "a", Claim: "2", Pods: 1, Held: addresses("10.0.1.2")}, {Node: "b", Claim: "1", Pods: 20}},
			want:   "a/2 10.0.1.2/32; b/1 10.0.1.3/32 10.0.1.4/30 10.0.1.8/29 10.0.1.16/28"},
		{name: "a requested address", cidr: "10.0.1.0/24",
			claims: []Claim{{Node: "a", Claim: "1", Pods: 1, Requested: addresses("10.0.1.77")}}, want: "a/1 10.0.1.77/32"},
		{name: "a requested address that another Node has, the gateway, and one of another range", cidr: "10.0.1.0/24",
			have: []NodeBlocks{{"b", "1", prefixes("10.0.1.64/28")}},
			claims: []Claim{{Node: "a", Claim: "1", Requested: addresses("10.0.1.77 10.0.1.1 10.0.2.2")},
				{Node: "b", Claim: "1"}},
			want: "b/1 10.0.1.64/28"},
		{name: "a small Subnet", cidr: "10.0.1.0/28", gateway: "10.0.1.14",
			claims: []Claim{{Node: "a", Claim: "1", Pods: 2}, {Node: "b", Claim: "1", Pods: 1}},
			want:   "a/1 10.0.1.1/32 10.0.1.2/32; b/1 10.0.1.3/32"},
		{name: "a full Subnet", cidr: "10.0.1.0/30",
			claims: []Claim{{Node: "a", Claim: "1", Pods: 1}, {Node: "b", Claim: "1", Pods: 1}},
			want:   "a/1 10.0.1.2/32", short: "b"},
		{name: "pools", cidr: "10.0.1.0/24", pools: "10.0.1.40/29 10.0.1.100/31",
			claims: []Claim{{Node: "a", Claim: "1", Pods: 9}}, want: "a/1 10.0.1.40/29 10.0.1.100/31"},
		{name: "IPv6", cidr: "fd00:1::/64",
			claims: []Claim{{Node: "a", Claim: "1", Pods: 15}}, want: "a/1 fd00:1::/124 fd00:1::10/124"},
		{name: "a range that is no longer in the Subnet", cidr: "10.0.1.0/24",
			have:   []NodeBlocks{{"a", "1", prefixes("10.0.2.0/28")}},
			claims: []Claim{{Node: "a", Claim: "1", Pods: 1}}, want: "a/1 10.0.1.0/28"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := Range{CIDR: netip.MustParsePrefix(row.cidr)}
			g.Gateway = g.CIDR.Addr().Next()
			if row.gateway != "" {
				g.Gateway = netip.MustParseAddr(row.gateway)
			}
			pools := []netip.Prefix{g.CIDR}
			if row.pools != "" {
				pools = prefixes(row.pools)
			}
			have, short := Grant(g, pools, row.have, row.claims)
			if lacking := strings.Join(short, " "); grants(have) != row.want || lacking != row.short {
				t.Errorf("granted %s, short %v; want %s, short %s", grants(have), short, row.want, row.short)
			}
		})
	}
}

// TestGrantBounds has a Node claim more addresses than any Node needs. It gets a bounded part, and other Nodes get
// theirs.
func TestGrantBounds(t *testing.T) {
	g := Range{netip.MustParsePrefix("fd00:1::/64"), netip.MustParseAddr("fd00:1::1")}
	var many []netip.Addr
	for ip := netip.MustParseAddr("fd00:1::1:0"); len(many) < 10_000; ip = ip.Next() {
		many = append(many, ip)
	}
	for name, c := range map[string]Claim{
		"Pods": {Pods: math.MaxInt32}, "addresses": {Held: many}, "requests": {Requested: many},
	} {
		t.Run(name, func(t *testing.T) {
			c.Node, c.Claim = "a", "1"
			have, short := Grant(g, []netip.Prefix{g.CIDR}, nil, []Claim{c, {Node: "b", Claim: "1", Pods: 1}})
			if len(have) != 2 || len(short) > 0 {
				t.Fatalf("%d Nodes have blocks, and %v lack addresses", len(have), short)
			}
			if a, b := len(have[0].Blocks), len(have[1].Blocks); a > maxClaimed || b != 1 {
				t.Errorf("the Nodes have %d and %d blocks", a, b)
			}
		})
	}
}

// TestGrantWalk changes claims at random. No two Nodes have one address, a claim keeps its blocks, and each Node has
// room for its Pods unless it is reported.
func TestGrantWalk(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 24))
	g := Range{netip.MustParsePrefix("10.0.1.0/25"), netip.MustParseAddr("10.0.1.1")}
	pools := between(netip.MustParseAddr("10.0.1.3"), netip.MustParseAddr("10.0.1.90"))
	var have []NodeBlocks
	claims := map[string]Claim{}
	for step := range 3000 {
		node := fmt.Sprint("node-", rnd.IntN(5))
		c := claims[node]
		if rnd.IntN(4) == 0 {
			c = Claim{Node: node, Claim: fmt.Sprint(step)}
		}
		c.Node, c.Pods = node, rnd.IntN(20)
		if rnd.IntN(5) == 0 {
			c.Requested = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(rnd.IntN(256))})}
		}
		claims[node] = c
		if rnd.IntN(6) == 0 {
			delete(claims, node)
		}
		var list []Claim
		for _, c := range claims {
			list = append(list, c)
		}
		now, short := Grant(g, pools, have, list)
		seen := map[netip.Addr]string{}
		for _, n := range now {
			room := 0
			for _, b := range n.Blocks {
				for ip := b.Addr(); b.Contains(ip); ip = ip.Next() {
					if other := seen[ip]; other != "" || !g.CIDR.Contains(ip) {
						t.Fatalf("step %d: %s is of %s and of %s", step, ip, other, n.Node)
					}
					seen[ip] = n.Node
					if g.Usable(ip) {
						room++
					}
				}
			}
			if room < claims[n.Node].Pods && !slices.Contains(short, n.Node) {
				t.Fatalf("step %d: %s has %d addresses for %d Pods", step, n.Node, room, claims[n.Node].Pods)
			}
			for _, old := range have {
				for _, b := range old.Blocks {
					if old.Node == n.Node && old.Claim == n.Claim && !slices.Contains(n.Blocks, b) {
						t.Fatalf("step %d: %s has lost %s", step, n.Node, b)
					}
				}
			}
		}
		again, _ := Grant(g, pools, now, list)
		if grants(again) != grants(now) {
			t.Fatalf("step %d: %s becomes %s without a change", step, grants(now), grants(again))
		}
		have = now
	}
}

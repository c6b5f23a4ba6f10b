package claims

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// info reads "SERVICE-RANGE [POD-RANGE ...] > GATEWAY [GATEWAY ...] | GATEWAY ...", of which the last are about to go.
// A gateway is ADDRESS[@KEY[,NEXT-KEY]]; the cluster has the keys of the first one.
func info(id, text string) *mcv1alpha1.ClusterInfo {
	text, leaving, _ := strings.Cut(text, "|")
	ranges, gateways, _ := strings.Cut(text, ">")
	out := &mcv1alpha1.ClusterInfo{ClusterID: id}
	for i, word := range strings.Fields(ranges) {
		if i == 0 {
			out.ServiceCIDR, _, _ = strings.Cut(word, ",")
			if out.ServiceCIDR != word {
				out.ServiceCIDRs = strings.Split(word, ",")
			}
		} else {
			out.PodCIDRs = append(out.PodCIDRs, word)
		}
	}
	for _, word := range strings.Fields(gateways) {
		out.GatewayInfos = append(out.GatewayInfos, gatewayInfo(word))
	}
	for _, word := range strings.Fields(leaving) {
		out.LeavingGateways = append(out.LeavingGateways, gatewayInfo(word))
	}
	if len(out.GatewayInfos) > 0 {
		out.WireGuard = out.GatewayInfos[0].WireGuard
	}
	return out
}

func gatewayInfo(word string) mcv1alpha1.GatewayInfo {
	ip, keys, encrypted := strings.Cut(word, "@")
	g := mcv1alpha1.GatewayInfo{GatewayIP: ip}
	if encrypted {
		g.WireGuard = &mcv1alpha1.WireGuardInfo{}
		g.WireGuard.PublicKey, g.WireGuard.NextPublicKey, _ = strings.Cut(keys, ",")
	}
	return g
}

// gatewayText is the inverse of gatewayInfo.
func gatewayText(g mcv1alpha1.GatewayInfo) string {
	if g.WireGuard == nil {
		return g.GatewayIP
	}
	return strings.TrimSuffix(g.GatewayIP+"@"+g.WireGuard.PublicKey+","+g.WireGuard.NextPublicKey, ",")
}

// text is the inverse of info; "-" for nothing.
func text(info *mcv1alpha1.ClusterInfo) string {
	if info == nil {
		return "-"
	}
	services := info.ServiceCIDR
	if len(info.ServiceCIDRs) > 0 {
		services = strings.Join(info.ServiceCIDRs, ",")
	}
	words := append([]string{services}, info.PodCIDRs...)
	if len(info.GatewayInfos) > 0 {
		words = append(words, ">")
	}
	for _, g := range info.GatewayInfos {
		words = append(words, gatewayText(g))
	}
	if len(info.LeavingGateways) > 0 {
		words = append(words, "|")
	}
	for _, g := range info.LeavingGateways {
		words = append(words, gatewayText(g))
	}
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	type cluster struct{ id, held, wanted, want, fault string }
	many := strings.Repeat(" 10.200.0.0/24", maxPodRanges+1)
	for _, row := range []struct {
		name     string
		pins     map[string]string
		clusters []cluster // the oldest first; held "" is nothing
	}{
		{name: "no overlap", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 10.10.0.0/16 > 192.0.2.1", want: "10.96.0.0/16 10.10.0.0/16 > 192.0.2.1"},
			{id: "west", wanted: "10.97.0.0/16 > 192.0.2.2", want: "10.97.0.0/16 > 192.0.2.2"}}},
		{name: "the oldest has it, whatever the cluster IDs", clusters: []cluster{
			{id: "west", wanted: "10.96.0.0/16 > 192.0.2.1", want: "10.96.0.0/16 > 192.0.2.1"},
			{id: "an-attacker", wanted: "10.96.0.0/17 > 192.0.2.2", want: "-",
				fault: "serviceCIDR: Service range 10.96.0.0/17 of cluster an-attacker overlaps the Service range 10.96.0.0/16 " +
					"of cluster west"}}},
		{name: "an old member grows over a newer one's", clusters: []cluster{
			{id: "old", held: "10.95.0.0/16 > 192.0.2.1", wanted: "10.0.0.0/8 > 192.0.2.1", want: "10.95.0.0/16 > 192.0.2.1",
				fault: "serviceCIDR: Service range 10.0.0.0/8 of cluster old overlaps the Service range 10.96.0.0/16 of " +
					"cluster new"},
			{id: "new", held: "10.96.0.0/16 > 192.0.2.2", wanted: "10.96.0.0/16 > 192.0.2.2",
				want: "10.96.0.0/16 > 192.0.2.2"}}},
		{name: "an old member moves to another's range", clusters: []cluster{
			{id: "old", held: "10.95.0.0/16 > 192.0.2.1", wanted: "10.96.4.0/24 > 192.0.2.1", want: "10.95.0.0/16 > 192.0.2.1",
				fault: "serviceCIDR: "},
			{id: "new", held: "10.96.0.0/16 > 192.0.2.2", wanted: "10.96.0.0/16 > 192.0.2.2",
				want: "10.96.0.0/16 > 192.0.2.2"}}},
		{name: "an old member takes another's Pod range besides", clusters: []cluster{
			{id: "old", held: "10.95.0.0/16 > 192.0.2.1", wanted: "10.95.0.0/16 10.10.0.0/16 > 192.0.2.1",
				want:  "10.95.0.0/16 > 192.0.2.1",
				fault: "podCIDRs[0]: Pod range 10.10.0.0/16 of cluster old overlaps the Pod range 10.10.128.0/17 of cluster new"},
			{id: "new", held: "10.96.0.0/16 10.10.128.0/17 > 192.0.2.2", wanted: "10.96.0.0/16 10.10.128.0/17 > 192.0.2.2",
				want: "10.96.0.0/16 10.10.128.0/17 > 192.0.2.2"}}},
		{name: "two members with one Pod range", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 10.10.0.0/16 > 192.0.2.1", want: "10.96.0.0/16 10.10.0.0/16 > 192.0.2.1"},
			{id: "west", wanted: "10.97.0.0/16 10.11.0.0/16 10.10.0.0/16 > 192.0.2.2",
				want: "10.97.0.0/16 10.11.0.0/16 > 192.0.2.2",
				fault: "podCIDRs[1]: Pod range 10.10.0.0/16 of cluster west overlaps the Pod range 10.10.0.0/16 of cluster east, " +
					"which has it already: use other addresses, or release it there first"}}},
		{name: "another's gateway address", clusters: []cluster{
			{id: "old", held: "10.95.0.0/16 > 192.0.2.1", wanted: "10.95.0.0/16 > 192.0.2.2", want: "10.95.0.0/16 > 192.0.2.1",
				fault: "gatewayInfos[0].gatewayIP: gateway 192.0.2.2 of cluster old overlaps the gateway 192.0.2.2 of cluster new"},
			{id: "new", held: "10.96.0.0/16 > 192.0.2.2", wanted: "10.96.0.0/16 > 192.0.2.2",
				want: "10.96.0.0/16 > 192.0.2.2"}}},
		{name: "a range around another's gateway", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1", want: "10.96.0.0/16 > 192.0.2.1"},
			{id: "west", wanted: "10.97.0.0/16 192.0.2.0/24 > 198.51.100.1", want: "10.97.0.0/16 > 198.51.100.1",
				fault: "podCIDRs[0]: Pod range 192.0.2.0/24 of cluster west overlaps the gateway 192.0.2.1 of cluster east"}}},
		{name: "another's address inside WireGuard", clusters: []cluster{
			{id: "old", held: "10.95.0.0/16 > fd31::1", wanted: "10.95.0.0/16 > fd31::258:c600", want: "10.95.0.0/16 > fd31::1",
				fault: "gatewayInfos[0].gatewayIP: gateway fd31::258:c600 of cluster old: address inside WireGuard " +
					InsideOf(netip.MustParseAddr("fd31::258:c600")).String() + " of cluster old overlaps the address inside " +
					"WireGuard " + InsideOf(netip.MustParseAddr("fd31::c9:136")).String() + " of cluster new, which has it " +
					"already: use other addresses"},
			{id: "new", held: "10.96.0.0/16 > fd31::c9:136", wanted: "10.96.0.0/16 > fd31::c9:136",
				want: "10.96.0.0/16 > fd31::c9:136"},
			{id: "later", wanted: "10.97.0.0/16 > fd31::258:c600 fd31::2", want: "10.97.0.0/16 > fd31::2",
				fault: "gatewayInfos[0].gatewayIP: gateway fd31::258:c600 of cluster later: address inside"},
			{id: "both", wanted: "10.98.0.0/16 > fd31::2 fd31::3", want: "10.98.0.0/16 > fd31::3",
				fault: "gatewayInfos[0].gatewayIP: gateway fd31::2 of cluster both overlaps"}}},
		{name: "pinned ranges do not concern addresses inside WireGuard",
			pins: map[string]string{"ranges.multicluster.antrea.io/east": "10.96.0.0/16",
				"ranges.multicluster.antrea.io/west": "240.0.0.0/4"},
			clusters: []cluster{{id: "east", wanted: "10.96.0.0/16 > fd31::1", want: "10.96.0.0/16 > fd31::1"}}},
		{name: "a gateway twice", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1 192.0.2.2 192.0.2.1", want: "10.96.0.0/16 > 192.0.2.1 192.0.2.2",
				fault: "gatewayInfos[2].gatewayIP: gateway 192.0.2.1 of cluster east is given twice, at gatewayInfos[0] too: " +
					"give each gateway an address of its own"}}},
		{name: "a second gateway that is another cluster's", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1 192.0.2.2", want: "10.96.0.0/16 > 192.0.2.1 192.0.2.2"},
			{id: "west", wanted: "10.97.0.0/16 > 192.0.2.3 192.0.2.2", want: "10.97.0.0/16 > 192.0.2.3",
				fault: "gatewayInfos[1].gatewayIP: gateway 192.0.2.2 of cluster west overlaps the gateway 192.0.2.2 of " +
					"cluster east"}}},
		{name: "more gateways than a cluster may have", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16 > 192.0.2.1",
				wanted: "10.96.0.0/16 >" + strings.Repeat(" 192.0.2.1", MaxGateways+1), want: "10.96.0.0/16 > 192.0.2.1",
				fault: "gatewayInfos: has 17 gateways: expected at most 16; remove the annotation multicluster.antrea.io/gateway " +
					"from Nodes of the cluster"}}},
		{name: "a gateway that goes", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16 > 192.0.2.1 192.0.2.2", wanted: "10.96.0.0/16 > 192.0.2.1 | 192.0.2.2",
				want: "10.96.0.0/16 > 192.0.2.1 | 192.0.2.2"},
			{id: "west", wanted: "10.97.0.0/16 > 192.0.2.2", want: "-",
				fault: "gatewayInfos[0].gatewayIP: gateway 192.0.2.2 of cluster west overlaps the gateway 192.0.2.2 of " +
					"cluster east"}}},
		{name: "one that goes has another cluster's address", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1", want: "10.96.0.0/16 > 192.0.2.1"},
			{id: "west", wanted: "10.97.0.0/16 > 192.0.2.3 | 192.0.2.1 192.0.2.4", want: "10.97.0.0/16 > 192.0.2.3 | 192.0.2.4",
				fault: "leavingGateways[0].gatewayIP: gateway 192.0.2.1 of cluster west overlaps the gateway 192.0.2.1 of " +
					"cluster east"}}},
		{name: "one that goes and stays", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1 | 192.0.2.1", want: "10.96.0.0/16 > 192.0.2.1",
				fault: "leavingGateways[0].gatewayIP: gateway 192.0.2.1 of cluster east is given twice, at gatewayInfos[0] too"}}},
		{name: "one that goes is held", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16 > 192.0.2.1 | 192.0.2.2", wanted: "10.0.0.0/7",
				want: "10.96.0.0/16 > 192.0.2.1 | 192.0.2.2", fault: "serviceCIDR: "}}},
		{name: "more that go than a cluster may have", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1 |" + strings.Repeat(" 192.0.2.2", MaxGateways+1), want: "-",
				fault: "leavingGateways: has 17 gateways: expected at most 16"}}},
		{name: "one of two gateways at fault", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 127.0.0.1 192.0.2.1", want: "10.96.0.0/16 > 192.0.2.1",
				fault: "gatewayInfos[0].gatewayIP: 127.0.0.1 is not an address that a tunnel can end at"}}},
		{name: "two clusters with one key", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 > 192.0.2.1@E", want: "10.96.0.0/16 > 192.0.2.1@E"},
			{id: "west", wanted: "10.97.0.0/16 > 192.0.2.2@E", want: "-",
				fault: "gatewayInfos[0].wireGuard: cluster east has the WireGuard key E already: remove the files wireguard.key " +
					"and wireguard.key.next below /var/lib/tombolo on the Gateway's Node in cluster west"}}},
		{name: "an old member takes another's key", clusters: []cluster{
			{id: "old", held: "10.95.0.0/16 > 192.0.2.1@O", wanted: "10.95.0.0/16 > 192.0.2.1@N",
				want: "10.95.0.0/16 > 192.0.2.1@O", fault: "gatewayInfos[0].wireGuard: "},
			{id: "new", held: "10.96.0.0/16 > 192.0.2.2@N", wanted: "10.96.0.0/16 > 192.0.2.2@N",
				want: "10.96.0.0/16 > 192.0.2.2@N"}}},
		{name: "an old member takes another's next key, for a second gateway", clusters: []cluster{
			{id: "old", wanted: "10.95.0.0/16 > 192.0.2.1@O 192.0.2.3@M", want: "10.95.0.0/16 > 192.0.2.1@O",
				fault: "gatewayInfos[1].wireGuard: cluster new has the WireGuard key M already"},
			{id: "new", held: "10.96.0.0/16 > 192.0.2.2@N,M", wanted: "10.96.0.0/16 > 192.0.2.2@M",
				want: "10.96.0.0/16 > 192.0.2.2@M"}}},
		{name: "keys change", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16 > 192.0.2.1@E,F 192.0.2.3@G",
				wanted: "10.96.0.0/16 > 192.0.2.1@F 192.0.2.3@G,H | 192.0.2.4@I",
				want:   "10.96.0.0/16 > 192.0.2.1@F 192.0.2.3@G,H | 192.0.2.4@I"}}},
		{name: "two hold one key from before", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16 > 192.0.2.1@E", wanted: "10.96.0.0/16 > 192.0.2.1@E",
				want: "10.96.0.0/16 > 192.0.2.1@E"},
			{id: "west", held: "10.97.0.0/16 > 192.0.2.2@E 192.0.2.3@W", wanted: "10.97.0.0/16 > 192.0.2.2@E 192.0.2.3@W",
				want: "-", fault: "gatewayInfos[0].wireGuard: "}}},
		{name: "keys of what is refused are free", clusters: []cluster{
			{id: "east", wanted: "10.0.0.0/7 > 192.0.2.1@E", want: "-", fault: "serviceCIDR: "},
			{id: "west", wanted: "10.97.0.0/16 > 192.0.2.2@E", want: "10.97.0.0/16 > 192.0.2.2@E"}}},
		{name: "what is held is released when it is wanted no more", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16", wanted: "10.98.0.0/16", want: "10.98.0.0/16"},
			{id: "west", wanted: "10.97.0.0/16", want: "10.97.0.0/16"}}},
		{name: "two hold one range from before", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16", wanted: "10.96.0.0/16", want: "10.96.0.0/16"},
			{id: "west", held: "10.96.0.0/16", wanted: "10.96.0.0/16", want: "-", fault: "serviceCIDR: "}}},
		{name: "ranges that no cluster can have", clusters: []cluster{
			{id: "a", wanted: "8.0.0.0/5", want: "-", fault: "serviceCIDR: 8.0.0.0/5 is too large: expected a /8 or smaller"},
			{id: "b", wanted: "0.0.0.0/0", want: "-", fault: "serviceCIDR: 0.0.0.0/0 contains addresses that are never routed"},
			{id: "c", wanted: "169.254.169.0/24", want: "-", fault: "serviceCIDR: 169.254.169.0/24 contains"},
			{id: "d", wanted: "10.96.0.0", want: "-", fault: "serviceCIDR: \"10.96.0.0\" is not a range such as 10.96.0.0/16"},
			{id: "e", wanted: "", want: "-", fault: "serviceCIDR: the range is missing"},
			{id: "f", wanted: "fd00::/31", want: "-", fault: "serviceCIDR: fd00::/31 is too large: expected a /32 or smaller"},
			{id: "g", wanted: "10.96.0.0/16 ::/0 fe80::/64 ::ffff:10.1.0.0/112 64:ff9b::/96 fc01::/64 ff02::/16 10.10.0.0/16",
				want: "10.96.0.0/16 10.10.0.0/16", fault: "podCIDRs[0]: ::/0 contains addresses that are never routed (::/8)"},
			{id: "i", wanted: "::ffff:10.1.0.0/112", want: "-",
				fault: "serviceCIDR: ::ffff:10.1.0.0/112 is written as an IPv6 range: write the IPv4 range itself"},
			{id: "j", wanted: "10.98.0.0/16 > fe80::1%eth0 fe80::1 ::ffff:192.0.2.1 fd00::1", want: "10.98.0.0/16 > fd00::1",
				fault: "gatewayInfos[0].gatewayIP: fe80::1%eth0 has a zone, which other Nodes do not know"},
			{id: "h", wanted: "10.97.0.0/16" + many, want: "-", fault: "podCIDRs: has 65 ranges: expected at most 64"}}},
		{name: "IPv6 beside IPv4", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 10.10.0.0/16 fd00:10::/48 > 192.0.2.1 fd01::1",
				want: "10.96.0.0/16 10.10.0.0/16 fd00:10::/48 > 192.0.2.1 fd01::1"},
			{id: "west", wanted: "fd00:96::/112 fd00:10:0:1::/64 10.11.0.0/16 > fd01::2",
				want: "fd00:96::/112 10.11.0.0/16 > fd01::2",
				fault: "podCIDRs[0]: Pod range fd00:10:0:1::/64 of cluster west overlaps the Pod range fd00:10::/48 of " +
					"cluster east"},
			{id: "north", wanted: "fd00:97::/112 2001:db8::/48 > fd01::1", want: "-",
				fault: "podCIDRs[0]: Pod range 2001:db8::/48 of cluster north is not private (RFC 1918, RFC 6598, RFC 4193)"},
			// The bits of 10.10.0.0 are in front here.
			{id: "south", wanted: "fd00:98::/112 a0a:1::/32", want: "fd00:98::/112", fault: "podCIDRs[0]: Pod range a0a:1::"}}},
		{name: "several Service ranges", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16,fd00:96::/112,10.97.0.0/16", want: "10.96.0.0/16,fd00:96::/112,10.97.0.0/16"},
			{id: "west", wanted: "10.98.0.0/16,10.97.0.0/24,fd00:98::/112", want: "10.98.0.0/16,fd00:98::/112",
				fault: "serviceCIDRs[1]: Service range 10.97.0.0/24 of cluster west overlaps the Service range 10.97.0.0/16"},
			{id: "north", held: "10.99.0.0/16,fd00:99::/112", wanted: "10.0.0.0/7,fd00:99::/112",
				want:  "10.99.0.0/16,fd00:99::/112",
				fault: "serviceCIDR: 10.0.0.0/7 is too large"},
			{id: "south", wanted: "10.95.0.0/16,fd00:99::/112", want: "10.95.0.0/16",
				fault: "serviceCIDRs[1]: Service range fd00:99::/112 of cluster south overlaps"},
			{id: "many", wanted: "10.94.0.0/16" + strings.Repeat(",10.94.0.0/16", 16), want: "-",
				fault: "serviceCIDRs: has 17 ranges: expected at most 16"}}},
		{name: "host bits do not matter", clusters: []cluster{
			{id: "east", wanted: "10.96.1.2/16", want: "10.96.1.2/16"},
			{id: "west", wanted: "10.96.3.4/16", want: "-",
				fault: "serviceCIDR: Service range 10.96.0.0/16 of cluster west overlaps"}}},
		{name: "pins", pins: map[string]string{
			"ranges.multicluster.antrea.io/east":   "10.96.0.0/12",
			"gateways.multicluster.antrea.io/east": "192.0.2.0/28, 192.0.2.100",
			"ranges.multicluster.antrea.io/later":  "10.128.0.0/16"},
			clusters: []cluster{
				{id: "east", wanted: "10.96.0.0/16 10.10.0.0/16 > 192.0.2.1 192.0.2.100 192.0.2.101",
					want: "10.96.0.0/16 > 192.0.2.1 192.0.2.100",
					fault: "podCIDRs[0]: Pod range 10.10.0.0/16 is not among the addresses that cluster east may announce: correct " +
						"it there, or annotation ranges.multicluster.antrea.io/east of the leader's ClusterSet"},
				{id: "west", wanted: "10.128.5.0/24 > 192.0.2.200", want: "-",
					fault: "serviceCIDR: Service range 10.128.5.0/24 of cluster west is reserved for cluster later by annotation " +
						"ranges.multicluster.antrea.io/later"},
				{id: "north", wanted: "10.150.0.0/16 > 192.0.2.5", want: "-",
					fault: "gatewayInfos[0].gatewayIP: gateway 192.0.2.5 of cluster north is reserved for cluster east"}}},
		{name: "a pin takes away what is held", pins: map[string]string{"ranges.multicluster.antrea.io/west": "10.96.0.0/16"},
			clusters: []cluster{
				{id: "east", held: "10.96.0.0/16 > 192.0.2.1", wanted: "10.96.0.0/16 > 192.0.2.1", want: "-",
					fault: "serviceCIDR: Service range 10.96.0.0/16 of cluster east is reserved for cluster west"},
				{id: "west", wanted: "10.96.0.0/16 > 192.0.2.2", want: "10.96.0.0/16 > 192.0.2.2"}}},
		{name: "a public range", clusters: []cluster{
			{id: "east", wanted: "10.96.0.0/16 8.0.0.0/8 172.15.0.0/16 172.0.0.0/8 > 192.0.2.1",
				want: "10.96.0.0/16 > 192.0.2.1",
				fault: "podCIDRs[0]: Pod range 8.0.0.0/8 of cluster east is not private (RFC 1918, RFC 6598, RFC 4193), and not " +
					"pinned to the cluster: use a private range, or pin this one by annotation ranges.multicluster.antrea.io/" +
					"east of the ClusterSet"},
			{id: "west", wanted: "203.0.113.0/24", want: "-",
				fault: "serviceCIDR: Service range 203.0.113.0/24 of cluster west is not private"}}},
		{name: "a public range that is in effect already", clusters: []cluster{
			{id: "east", held: "10.96.0.0/16 8.0.0.0/8", wanted: "10.96.0.0/16 8.0.0.0/8", want: "10.96.0.0/16",
				fault: "podCIDRs[0]: Pod range 8.0.0.0/8 of cluster east is not private"}}},
		{name: "a public range that is pinned",
			pins: map[string]string{"ranges.multicluster.antrea.io/east": "10.0.0.0/8,8.0.0.0/8"}, clusters: []cluster{
				{id: "east", wanted: "10.96.0.0/16 8.0.0.0/9", want: "10.96.0.0/16 8.0.0.0/9"},
				{id: "west", wanted: "8.128.0.0/16", want: "-",
					fault: "serviceCIDR: Service range 8.128.0.0/16 of cluster west is reserved for cluster east"}}},
		{name: "every private range", clusters: []cluster{
			{id: "east", wanted: "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10",
				want: "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10"}}},
		{name: "an empty pin allows nothing", pins: map[string]string{"ranges.multicluster.antrea.io/east": ""},
			clusters: []cluster{
				{id: "east", wanted: "10.96.0.0/16", want: "-", fault: "serviceCIDR: Service range 10.96.0.0/16 is not among"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var candidates []Candidate
			var want, have []string
			for _, c := range row.clusters {
				candidate := Candidate{ClusterID: c.id, Wanted: info(c.id, c.wanted)}
				if c.held != "" {
					candidate.Held = info(c.id, c.held)
				}
				candidates = append(candidates, candidate)
				want = append(want, c.id+": "+c.want)
			}
			pins, faults := ReadPins(row.pins)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			for i, d := range Decide(candidates, pins) {
				have = append(have, row.clusters[i].id+": "+text(d.Info))
				fault := row.clusters[i].fault
				if (fault == "") != (len(d.Faults) == 0) || fault != "" && !strings.HasPrefix(d.Faults[0].String(), fault) {
					t.Errorf("%s: faults %v, want %q", row.clusters[i].id, d.Faults, fault)
				}
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("want, have:\n%s", diff)
			}
		})
	}
}

func TestReadPins(t *testing.T) {
	pins, faults := ReadPins(map[string]string{
		"ranges.multicluster.antrea.io/east":   "10.96.0.0/16,nonsense 10.10.0.0/16",
		"gateways.multicluster.antrea.io/west": "::ffff:192.0.2.1", "other": "x",
		"ranges.multicluster.antrea.io/six": "fd00:10::1/48 fd00::1",
	})
	if len(faults) != 2 || faults[0].Field != "metadata.annotations[gateways.multicluster.antrea.io/west]" ||
		!strings.Contains(faults[1].Message, `"nonsense" is not a range or an address`) {
		t.Errorf("faults %v", faults)
	}
	if len(pins["east"].Ranges) != 2 || pins["east"].HasGateways || len(pins["west"].Gateways) != 0 ||
		!pins["west"].HasGateways || len(pins) != 3 ||
		fmt.Sprint(pins["six"].Ranges) != "[fd00:10::/48 fd00::1/128]" {
		t.Errorf("pins %+v", pins)
	}
}

// TestRandomAnnouncements lets clusters announce at random, most of them overlapping, and puts the decisions into
// effect. A range that a cluster has and still wants is never taken from it, and no two clusters have one address.
func TestRandomAnnouncements(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		held := map[string]*mcv1alpha1.ClusterInfo{}
		wanted := map[string]string{}
		ids := []string{"a", "b", "c", "d", "e"}
		random := func() string {
			if r.IntN(3) == 0 {
				return fmt.Sprintf("fd00:%x::/%d", r.IntN(64), 32+r.IntN(17))
			}
			return fmt.Sprintf("10.%d.0.0/%d", r.IntN(64), 8+r.IntN(17))
		}
		for step := range 200 {
			moves := ids[r.IntN(len(ids))]
			wanted[moves] = fmt.Sprintf("%s %s > 192.0.2.%d", random(), random(), r.IntN(8))
			var candidates []Candidate
			for _, id := range ids {
				if wanted[id] != "" {
					candidates = append(candidates, Candidate{ClusterID: id, Wanted: info(id, wanted[id]), Held: held[id]})
				}
			}
			next := map[string]*mcv1alpha1.ClusterInfo{}
			for i, d := range Decide(candidates, nil) {
				next[candidates[i].ClusterID] = d.Info
			}
			for _, id := range ids {
				if id != moves && held[id] != nil && text(next[id]) != text(held[id]) && wanted[id] == text(held[id]) {
					t.Fatalf("seed %d, step %d: %s announces %s, and %s has %s instead of %s", seed, step, moves, wanted[moves], id,
						text(next[id]), text(held[id]))
				}
			}
			held = next
			if a, b := overlap(held); a != "" {
				t.Fatalf("seed %d, step %d: %s and %s overlap", seed, step, a, b)
			}
		}
	}
}

// overlap names two clusters that have one address; empty if there are no such clusters.
func overlap(held map[string]*mcv1alpha1.ClusterInfo) (string, string) {
	prefixes := func(info *mcv1alpha1.ClusterInfo) (out []netip.Prefix) {
		if info == nil {
			return nil
		}
		for _, r := range info.Ranges() {
			out = append(out, netip.MustParsePrefix(r))
		}
		for _, g := range slices.Concat(info.GatewayInfos, info.LeavingGateways) {
			out = append(out, single(netip.MustParseAddr(g.GatewayIP)))
		}
		return out
	}
	for a := range held {
		for b := range held {
			for _, p := range prefixes(held[a]) {
				if a != b && slices.ContainsFunc(prefixes(held[b]), p.Overlaps) {
					return a, b
				}
			}
		}
	}
	return "", ""
}

// TestFeatures hands on what other versions can do, known or not, as far as an API server takes it.
func TestFeatures(t *testing.T) {
	many := make([]string, mcv1alpha1.MaxFeatures+2)
	for i := range many {
		many[i] = fmt.Sprintf("F%d", i)
	}
	for _, row := range []struct {
		name         string
		wanted, want []string
		fault        string
	}{
		{name: "none"},
		{name: "known and unknown ones, in their order",
			wanted: []string{"example.com/Thing", mcv1alpha1.FeatureActiveGateways},
			want:   []string{"example.com/Thing", mcv1alpha1.FeatureActiveGateways}},
		{name: "twice", wanted: []string{"A", "A"}, want: []string{"A"}},
		{name: "empty", wanted: []string{"", "A"}, want: []string{"A"},
			fault: "features: the entry at index 0 is not the name of a feature: expected at most 63 letters, digits, '-', " +
				"'_' and '.'"},
		{name: "too long", wanted: []string{"A", strings.Repeat("a", 64)}, want: []string{"A"},
			fault: "features: the entry at index 1 is not the name of a feature: expected at most 63 letters, digits, '-', " +
				"'_' and '.'"},
		{name: "too many", wanted: many, want: many[:mcv1alpha1.MaxFeatures],
			fault: "features: has 34 entries: expected at most 32; the others are left out"},
	} {
		t.Run(row.name, func(t *testing.T) {
			east := info("east", "10.96.0.0/16 > 192.0.2.1")
			east.Features = row.wanted
			d := Decide([]Candidate{{ClusterID: "east", Wanted: east}}, nil)[0]
			if have := text(d.Info); have != "10.96.0.0/16 > 192.0.2.1" {
				t.Errorf("have %s", have)
			}
			if diff := cmp.Diff(row.want, d.Info.Features); diff != "" {
				t.Errorf("want, have:\n%s", diff)
			}
			fault := ""
			for _, f := range d.Faults {
				fault += f.String()
			}
			if fault != row.fault {
				t.Errorf("fault %q, want %q", fault, row.fault)
			}
		})
	}
}

// TestRefuseSubnets has ranges of Subnets that clusters may have, or may not.
func TestRefuseSubnets(t *testing.T) {
	pins := Pins{"west": {Ranges: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10"),
		netip.MustParsePrefix("8.8.8.0/24")}, HasRanges: true}}
	refuse := pins.RefuseSubnets()
	for _, row := range []struct{ cluster, subnet, want string }{
		{"east", "10.50.0.0/24", ""}, {"east", "fd50::/64", ""}, {"west", "10.64.1.0/24", ""}, {"west", "8.8.8.128/25", ""},
		{"east", "10.64.1.0/24", "Subnet range 10.64.1.0/24 of cluster east is reserved for cluster west"},
		{"east", "10.0.0.0/8", "is reserved for cluster west"},
		{"west", "10.50.0.0/24", "is not among the addresses that cluster west may announce"},
		{"east", "8.8.4.0/24", "is not private"}, {"east", "2001:db8::/64", "is not private"},
		{"east", "127.0.0.0/8", "never routed"}, {"east", "fd00::/8", "too large"},
	} {
		err := refuse(row.cluster, netip.MustParsePrefix(row.subnet))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s of cluster %s: %v, want %q", row.subnet, row.cluster, err, row.want)
		}
	}
}

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// modeView is testView in a traffic mode, without multi-cluster. node-2 is in the subnet of this Node, and node-3 is
// not.
func modeView(mode string) View {
	v := testView()
	v.Config.TrafficEncapMode, v.Config.Multicluster.EnableGateway = mode, false
	v.Nodes = append(v.Nodes, testNode("node-3", "192.168.80.103", "10.11.2.0/24"))
	v.Underlay.Link = "eth0"
	v.Underlay.Networks = []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}
	for i, text := range []string{"192.168.78.101/24", "192.168.78.102/24", "192.168.80.103/24"} {
		if mode == config.Hybrid {
			v.Nodes[i].Annotations = map[string]string{transportNetworks: text}
		}
	}
	return v
}

// hostText returns the host's routes to Pods and its masquerading.
func hostText(d Desired) string {
	var out []string
	for _, r := range d.Host.Routes {
		if strings.HasPrefix(r.Dst.String(), "10.11.") {
			out = append(out, fmt.Sprintf("%s by %s on %s", r.Dst, r.Gateway, r.Link))
		}
	}
	m := d.Host.Masquerade
	return strings.Join(out, ", ") + fmt.Sprintf("; %s but to %s, %s", m.Sources, m.Except, m.Always)
}

// directNodes returns the names of the Nodes to which packets go without a tunnel.
func directNodes(d Desired) (out []string) {
	for _, n := range d.RemoteNodes {
		if n.Direct {
			out = append(out, n.Name)
		}
	}
	return out
}

// TestModes plans a Node in each traffic mode.
func TestModes(t *testing.T) {
	const (
		encap = "10.11.1.0/24 by 169.254.0.253 on antrea-gw0, 10.11.2.0/24 by 169.254.0.253 on antrea-gw0"
		all   = "[10.11.0.0/24 10.11.1.0/24 10.11.2.0/24]"
		two   = "[10.11.0.0/24 10.11.1.0/24]"
	)
	for _, row := range []struct {
		name, mode string
		change     func(*View)
		direct     string // Nodes
		host       string
		mtu        int
		problem    string // "" for none
	}{
		{name: "encap", mode: config.Encap, direct: "[]", mtu: 1450,
			host: encap + "; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "noEncap", mode: config.NoEncap, direct: "[node-2 node-3]", mtu: 1500,
			host: "10.11.1.0/24 by 192.168.78.102 on eth0; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "noEncap with noSNAT", mode: config.NoEncap, change: func(v *View) { v.Config.NoSNAT = true },
			direct: "[node-2 node-3]", mtu: 1500,
			host: "10.11.1.0/24 by 192.168.78.102 on eth0; [] but to [], [169.254.0.253/32]"},
		{name: "noEncap with other clusters", mode: config.NoEncap,
			change: func(v *View) { v.Config.Multicluster.EnableGateway = true },
			direct: "[node-2 node-3]", mtu: 1450,
			host: "10.11.1.0/24 by 192.168.78.102 on eth0; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "noEncap on the userspace datapath", mode: config.NoEncap,
			change: func(v *View) { v.Underlay.Link = "br-eth1" },
			direct: "[node-2 node-3]", mtu: 1500,
			host: "10.11.1.0/24 by 192.168.78.102 on br-eth1; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "noEncap, a Node with a key for encryption", mode: config.NoEncap,
			change: func(v *View) {
				v.Nodes[1].Annotations = map[string]string{nodeKey: "uDLqHNnuGk4h4PxVoWvXhfLIuOHSjVXTKGmk7lFWhkI="}
			},
			direct: "[node-3]", mtu: 1500, problem: "node-2",
			host: "10.11.1.0/24 by 169.254.0.253 on antrea-gw0; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "noEncap, two Nodes with one podCIDR", mode: config.NoEncap,
			change: func(v *View) { v.Nodes[2] = testNode("node-3", "192.168.78.103", "10.11.1.0/24") },
			direct: "[node-2 node-3]", mtu: 1500, problem: "belongs to Node node-2 already",
			host: "10.11.1.0/24 by 192.168.78.102 on eth0; [10.11.0.0/24] but to " + two + ", [169.254.0.253/32]"},
		{name: "noEncap, a Node takes the podCIDR of one that is gone", mode: config.NoEncap,
			change: func(v *View) {
				v.Nodes = []*corev1.Node{v.Nodes[0], testNode("node-9", "192.168.78.109", "10.11.1.0/24")}
			},
			direct: "[node-9]", mtu: 1500,
			host: "10.11.1.0/24 by 192.168.78.109 on eth0; [10.11.0.0/24] but to " + two + ", [169.254.0.253/32]"},
		{name: "hybrid", mode: config.Hybrid, direct: "[node-2]", mtu: 1450,
			host: "10.11.2.0/24 by 169.254.0.253 on antrea-gw0, 10.11.1.0/24 by 192.168.78.102 on eth0; " +
				"[10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "hybrid, a Node that announces nothing", mode: config.Hybrid,
			change: func(v *View) { v.Nodes[1].Annotations = nil }, direct: "[]", mtu: 1450,
			host: encap + "; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "hybrid, this Node's announcement is not there yet", mode: config.Hybrid,
			change: func(v *View) { v.Nodes[0].Annotations = nil }, direct: "[]", mtu: 1450,
			host: encap + "; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "hybrid, an announcement about another address", mode: config.Hybrid,
			change: func(v *View) { v.Nodes[1].Annotations[transportNetworks] = "192.168.78.7/24,none" },
			direct: "[]", mtu: 1450,
			host: encap + "; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "hybrid, prefix lengths differ", mode: config.Hybrid,
			change: func(v *View) { v.Nodes[1].Annotations[transportNetworks] = "192.168.78.102/16" },
			direct: "[]", mtu: 1450,
			problem: "give both addresses the same prefix length",
			host:    encap + "; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
		{name: "hybrid, the tunnels' end is of no interface", mode: config.Hybrid,
			change: func(v *View) { v.Underlay.Networks = nil }, direct: "[node-2]", mtu: 1450,
			problem: "does not have the address 192.168.78.101",
			host: "10.11.2.0/24 by 169.254.0.253 on antrea-gw0; [10.11.0.0/24] but to " + all +
				", [169.254.0.253/32]"},
		{name: "a Pod from before, with a larger MTU", mode: config.Encap,
			change: func(v *View) {
				v.Switch.Bridges["br-int"].Ports["web-a1b2c3"] = bridge.PortState{OFPort: 1, MTU: 1500}
			},
			direct: "[]", mtu: 1450, problem: "its interface has MTU 1500, and packets of at most 1450 bytes",
			host: encap + "; [10.11.0.0/24] but to " + all + ", [169.254.0.253/32]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := modeView(row.mode)
			if row.change != nil {
				row.change(&v)
			}
			d, problems := Plan(v)
			if have := fmt.Sprint(directNodes(d)); have != row.direct {
				t.Errorf("packets go without a tunnel to %s, want %s", have, row.direct)
			}
			if have := hostText(d); have != row.host {
				t.Errorf("the host has\n%s, want\n%s", have, row.host)
			}
			if d.Network == nil || d.Network.MTU != row.mtu {
				t.Errorf("new Pods get %+v, want MTU %d", d.Network, row.mtu)
			}
			found := row.problem == "" && len(problems) == 0
			for _, p := range problems {
				found = found || row.problem != "" && strings.Contains(p.String(), row.problem)
			}
			if !found {
				t.Errorf("problems %v, want %q", problems, row.problem)
			}
		})
	}
}

// modeView6 is modeView with both versions of IP, also between the Nodes. node-3 is in another subnet of IPv4, and in
// the subnet of IPv6 if near3 is set.
func modeView6(mode string, near3 bool) View {
	v := modeView(mode)
	v.Services, v.EndpointSlices = nil, nil
	for i, n := range v.Nodes {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, fmt.Sprintf("fd11:0:0:%d::/64", i))
		six := fmt.Sprintf("fd78::10%d", i+1)
		if i == 2 && !near3 {
			six = "fd80::103"
		}
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: six})
		switch mode {
		case config.Hybrid:
			n.Annotations[transportNetworks] += "," + six + "/64"
		case config.NoEncap:
			n.Annotations = map[string]string{transportNetworks: six + "/64"}
		}
	}
	v.Underlay.Networks = append(v.Underlay.Networks, netip.MustParsePrefix("fd78::101/64"))
	v.Attachments[0].IPs = append(v.Attachments[0].IPs, netip.MustParsePrefix("fd11::2/64"))
	return v
}

// TestModesOverIPv6 plans a dual-stack Node in each traffic mode. Each version of IP goes its own way.
func TestModesOverIPv6(t *testing.T) {
	const gw = "fc01::aabb:ccdd:eeff on antrea-gw0"
	for _, row := range []struct {
		name, mode    string
		near3         bool
		change        func(*View)
		direct        string // Nodes with the versions
		host          string // routes of IPv6
		behind        string
		announces     string
		problem       string // "" for none
		noNetworkOf6  bool
		masqueradeNot string
	}{
		{name: "encap", mode: config.Encap, direct: "[]",
			host:   "[fd11:0:0:1::/64 by " + gw + " fd11:0:0:2::/64 by " + gw + "]",
			behind: "[fd11::/64 fd11:0:0:1::/64 fd11:0:0:2::/64]"},
		{name: "noEncap", mode: config.NoEncap, direct: "[node-2 4 node-2 6 node-3 4 node-3 6]",
			host: "[fd11:0:0:1::/64 by fd78::102 on eth0]", behind: "[fd11::/64]", announces: "fd78::101/64"},
		{name: "noEncap, the other Node in one subnet of IPv6 alone", mode: config.NoEncap, near3: true,
			direct: "[node-2 4 node-2 6 node-3 4 node-3 6]", behind: "[fd11::/64]", announces: "fd78::101/64",
			host: "[fd11:0:0:1::/64 by fd78::102 on eth0 fd11:0:0:2::/64 by fd78::103 on eth0]"},
		{name: "noEncap, a Node that has mode encap still", mode: config.NoEncap,
			change: func(v *View) { v.Nodes[1].Annotations = nil },
			direct: "[node-2 4 node-2 6 node-3 4 node-3 6]", behind: "[fd11::/64 fd11:0:0:1::/64]",
			host: "[fd11:0:0:1::/64 by fd78::102 on eth0]", announces: "fd78::101/64"},
		{name: "encap, a Node that has mode noEncap already", mode: config.Encap,
			change: func(v *View) { v.Nodes[1].Annotations = map[string]string{transportNetworks: "fd78::102/64"} },
			direct: "[]", host: "[fd11:0:0:1::/64 by " + gw + " fd11:0:0:2::/64 by " + gw + "]",
			behind: "[fd11::/64 fd11:0:0:2::/64]"},
		{name: "noEncap, a Node that claims the range of another one", mode: config.NoEncap,
			change: func(v *View) {
				n := testNode("node-9", "192.168.78.109", "10.11.9.0/24")
				n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, "fd11:0:0:1::/64")
				v.Nodes = append(v.Nodes, n)
			},
			direct: "[node-2 4 node-2 6 node-3 4 node-3 6 node-9 4]", behind: "[fd11::/64]", announces: "fd78::101/64",
			host:          "[fd11:0:0:1::/64 by fd78::102 on eth0]",
			problem:       "range fd11:0:0:1::/64 belongs to Node node-2 already",
			masqueradeNot: "[10.11.0.0/24 10.11.1.0/24 10.11.2.0/24 10.11.9.0/24 fd11::/64 fd11:0:0:1::/64 fd11:0:0:2::/64]"},
		{name: "noEncap, an address that no interface has with its network", mode: config.NoEncap,
			change: func(v *View) { v.Underlay.Networks = v.Underlay.Networks[:1] },
			direct: "[node-2 4 node-2 6 node-3 4 node-3 6]", host: "[]", behind: "[fd11::/64]", announces: "fd78::101/128"},
		{name: "noEncap, another Node without an InternalIP of IPv6", mode: config.NoEncap,
			change: func(v *View) { v.Nodes[1].Status.Addresses = v.Nodes[1].Status.Addresses[:1] },
			direct: "[node-2 4 node-3 4 node-3 6]", behind: "[fd11::/64]", announces: "fd78::101/64",
			host: "[fd11:0:0:1::/64 by " + gw + "]"},
		{name: "noEncap, this Node without an InternalIP of IPv6", mode: config.NoEncap, noNetworkOf6: true,
			change: func(v *View) { v.Nodes[0].Status.Addresses = v.Nodes[0].Status.Addresses[:1] },
			direct: "[node-2 4 node-3 4]", host: "[]", behind: "[]", masqueradeNot: "[10.11.0.0/24 10.11.1.0/24 10.11.2.0/24]",
			problem: "by an InternalIP of IPv6, which the Node lacks"},
		{name: "noEncap, the annotation names the address", mode: config.NoEncap,
			change: func(v *View) {
				v.Nodes[1].Annotations[transportAddresses] = "192.168.78.112,fd78::112"
			},
			direct: "[node-2 4 node-2 6 node-3 4 node-3 6]", behind: "[fd11::/64]", announces: "fd78::101/64",
			host: "[fd11:0:0:1::/64 by fd78::112 on eth0]"},
		{name: "hybrid", mode: config.Hybrid, direct: "[node-2 4 node-2 6]", behind: "[fd11::/64]",
			host:      "[fd11:0:0:2::/64 by " + gw + " fd11:0:0:1::/64 by fd78::102 on eth0]",
			announces: "192.168.78.101/24,fd78::101/64"},
		{name: "hybrid, another Node in one subnet of IPv6 alone", mode: config.Hybrid, near3: true,
			direct: "[node-2 4 node-2 6 node-3 6]", behind: "[fd11::/64]",
			host:      "[fd11:0:0:1::/64 by fd78::102 on eth0 fd11:0:0:2::/64 by fd78::103 on eth0]",
			announces: "192.168.78.101/24,fd78::101/64"},
		{name: "hybrid, a Node that announces IPv4 alone", mode: config.Hybrid,
			change: func(v *View) { v.Nodes[1].Annotations[transportNetworks] = "192.168.78.102/24" },
			direct: "[node-2 4]", behind: "[fd11::/64 fd11:0:0:1::/64]", announces: "192.168.78.101/24,fd78::101/64",
			host: "[fd11:0:0:1::/64 by " + gw + " fd11:0:0:2::/64 by " + gw + "]"},
		{name: "hybrid, prefix lengths of IPv6 differ", mode: config.Hybrid,
			change: func(v *View) { v.Nodes[1].Annotations[transportNetworks] = "192.168.78.102/24,fd78::102/48" },
			direct: "[node-2 4]", behind: "[fd11::/64]", announces: "192.168.78.101/24,fd78::101/64",
			host:    "[fd11:0:0:1::/64 by " + gw + " fd11:0:0:2::/64 by " + gw + "]",
			problem: "it has fd78::102/48 and this Node node-1 has fd78::101/64"},
		{name: "noEncap, Nodes with IPv6 alone between them, Pods with both", mode: config.NoEncap, noNetworkOf6: true,
			change: func(v *View) {
				for _, n := range v.Nodes {
					n.Status.Addresses = n.Status.Addresses[1:]
				}
				v.Underlay.Of = netip.MustParseAddr("fd78::101")
			},
			direct: "[node-2 6 node-3 6]", host: "[fd11:0:0:1::/64 by fd78::102 on eth0]", behind: "[fd11::/64]",
			masqueradeNot: "[fd11::/64 fd11:0:0:1::/64 fd11:0:0:2::/64]", announces: "fd78::101/64",
			problem: "its Pods have no IPv4"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := modeView6(row.mode, row.near3)
			if row.change != nil {
				row.change(&v)
			}
			d, problems := Plan(v)
			direct, routes := []string{}, []string{}
			for _, n := range d.RemoteNodes {
				for version, is := range map[string]bool{" 4": n.Direct, " 6": n.Direct6} {
					if is {
						direct = append(direct, n.Name+version)
					}
				}
			}
			slices.Sort(direct)
			for _, r := range d.Host.Routes {
				if strings.HasPrefix(r.Dst.String(), "fd11:") {
					routes = append(routes, fmt.Sprintf("%s by %s on %s", r.Dst, r.Gateway, r.Link))
				}
			}
			tables := newTables(v.Config, v.NodeName)
			tables.set(v)
			tables.engine.Pass()
			announces, _ := tables.outputs.announcement.Get(self)
			except := row.masqueradeNot
			if except == "" {
				except = "[10.11.0.0/24 10.11.1.0/24 10.11.2.0/24 fd11::/64 fd11:0:0:1::/64 fd11:0:0:2::/64]"
			}
			for _, pair := range [][3]string{
				{"direct", fmt.Sprint(direct), row.direct}, {"routes", fmt.Sprint(routes), row.host},
				{"behind the switch", fmt.Sprint(d.Host.Behind.Sources), row.behind},
				{"announced", announces.Text, row.announces},
				{"not masqueraded", fmt.Sprint(d.Host.Masquerade.Except), except},
			} {
				if pair[1] != pair[2] {
					t.Errorf("%s: %s, want %s", pair[0], pair[1], pair[2])
				}
			}
			if d.Network == nil || len(d.Network.PodCIDRs) != 2 != row.noNetworkOf6 {
				t.Errorf("network of new Pods: %+v", d.Network)
			}
			found := row.problem == "" && len(problems) == 0
			for _, p := range problems {
				found = found || row.problem != "" && strings.Contains(p.String(), row.problem)
			}
			if !found {
				t.Errorf("problems %v, want %q", problems, row.problem)
			}
		})
	}
}

// TestBothEndsAgree compares what two Nodes of mode hybrid decide about each other, for all pairs of announcements.
func TestBothEndsAgree(t *testing.T) {
	texts := []string{"", "192.0.2.1/24", "192.0.2.1/25", "192.0.2.1/32", "192.0.2.200/24", "192.0.2.200/25",
		"198.51.100.1/24", "192.0.2.1", "x/y"}
	node := func(text string) nodeFacts {
		n := testNode("n", strings.Split(text+"/", "/")[0], "10.0.0.0/24")
		n.Annotations = map[string]string{transportNetworks: text}
		return nodeFactsOf(n)
	}
	direct := 0
	for _, a := range texts {
		for _, b := range texts {
			var here, there problems
			x := sameSubnet("a", node(a), "b", node(b), false, &here)
			y := sameSubnet("b", node(b), "a", node(a), false, &there)
			if x != y || len(here) != len(there) {
				t.Errorf("%q and %q: one end says %t with %v, the other %t with %v", a, b, x, here, y, there)
			}
			if x {
				direct++
			}
		}
	}
	if direct != 8 { // each of the six with itself, and the two of 192.0.2.0/24 in either order
		t.Errorf("%d pairs are direct, want 8", direct)
	}
}

// TestAnnouncement has a Node announce its network in mode hybrid alone, with a write only for a change.
func TestAnnouncement(t *testing.T) {
	for mode, want := range map[string]string{config.Encap: "", config.NoEncap: "", config.Hybrid: "192.168.78.101/24"} {
		v := modeView(mode)
		tables := newTables(v.Config, v.NodeName)
		tables.set(v)
		tables.engine.Pass()
		if row, ok := tables.outputs.announcement.Get(self); !ok || row != (announcement{Known: true, Text: want}) {
			t.Errorf("%s: the Node announces %+v, want %q", mode, row, want)
		}
		n := nodeFactsOf(v.Nodes[0])
		if n.NetworksText != want {
			t.Errorf("%s: the object has %q, want %q", mode, n.NetworksText, want)
		}
	}
	if rest := networksOf("192.0.2.1/24, fd00::1/64,x,192.0.2.1"); fmt.Sprint(rest) != "[192.0.2.1/24 fd00::1/64]" {
		t.Errorf("the annotation is read as %v", rest)
	}
	transport := nodeFactsOf(&corev1.Node{})
	if transport.NetworksText != "" || transport.Networks != nil {
		t.Errorf("a Node without annotations has %+v", transport)
	}
}

// TestTransportAddressWithLength reads an address whose prefix length is given.
func TestTransportAddressWithLength(t *testing.T) {
	v := testView()
	v.Nodes[1].Annotations = map[string]string{transportAddresses: "10.50.0.2/24"}
	d, _ := Plan(v)
	if have := d.RemoteNodes[0].Address.String(); have != "10.50.0.2" {
		t.Errorf("the tunnel to node-2 ends at %s, want 10.50.0.2", have)
	}
}

// TestUnderlayByMode checks that multi-cluster keeps its tunnels, and the switch its tunnel port, in each mode.
func TestUnderlayByMode(t *testing.T) {
	for _, mode := range []string{config.Encap, config.NoEncap, config.Hybrid} {
		v := modeView(mode)
		v.Config.Multicluster.EnableGateway = true
		d, _ := Plan(v)
		if !slices.ContainsFunc(d.Bridges[0].Ports, func(p bridge.Port) bool { return p.Name == TunnelPortName }) {
			t.Errorf("%s: the bridge has no tunnel port", mode)
		}
		var toWest []string
		for _, f := range d.Flows[datapath.PeerOwner("test-cluster-west")].Flows {
			text := f.String()
			if strings.Contains(text, "nw_dst=10.98.0.0/16") && strings.Contains(text, "192.168.78.102->tun_dst") {
				toWest = append(toWest, text)
			}
		}
		if len(toWest) == 0 {
			t.Errorf("%s: no flow sends packets for west to the Gateway's tunnel", mode)
		}
	}
}

package datapath

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// realNode is a Node with a real datapath in a network namespace, which is its host.
type realNode struct {
	host namespace
	pods []namespace // as in State.Pods
	ovs  *openVSwitch
}

// newNode makes a Node, its Pods and its link to the underlay, and programs its state.
func newNode(t testing.TB, underlay namespace, s State, name string, address netip.Addr, serviceCIDR string) *realNode {
	t.Helper()
	n := &realNode{host: newNamespace(t)}
	prefix := address.String() + "/16"
	if address.Is6() {
		prefix = address.String() + "/64 nodad"
	}
	n.ovs = startOVS(t, n.host.path())
	n.host.ip(t, fmt.Sprintf("link add uplink type veth peer name %s netns %d", name, underlay.pid))
	underlay.ip(t, "link set "+name+" master hub up")
	if ovstest.System() { // the kernel's own stack carries the tunnels
		n.host.ip(t, "address add "+prefix+" dev uplink", "link set uplink up")
	} else {
		n.host.mute(t, "uplink")
		n.ovs.vsctl(t, "add-br", "br-phy", "--", "set", "bridge", "br-phy", "datapath_type=netdev",
			"--", "add-port", "br-phy", "uplink")
		n.host.ip(t, "address add "+prefix+" dev br-phy", "link set br-phy up")
	}
	n.ovs.vsctl(t, "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type="+ovstest.Datapath(),
		"fail_mode=secure",
		"--", "add-port", "br-int", "gw0", "--", "set", "interface", "gw0", "type=internal",
		fmt.Sprintf("ofport_request=%d", s.Node.GatewayPort), fmt.Sprintf("mac=%q", s.Node.GatewayMAC),
		"--", "add-port", "br-int", "tun0", "--", "set", "interface", "tun0", "type=geneve", "options:remote_ip=flow",
		"options:local_ip=flow", "options:key=flow", fmt.Sprintf("ofport_request=%d", s.Node.Tunnels.Port))
	gateway := s.Node.GatewayIPs[0]
	commands := []string{
		"link set gw0 up",
		fmt.Sprintf("address add %s/24 dev gw0", gateway),
		fmt.Sprintf("neighbour add %s lladdr %s dev gw0", vip, InClusterMAC),
		fmt.Sprintf("route add %s dev gw0 src %s", vip, gateway),
		fmt.Sprintf("route add %s via %s dev gw0 onlink src %s", serviceCIDR, vip, gateway),
	}
	for _, r := range s.RemoteNodes {
		commands = append(commands, fmt.Sprintf("route add %s via %s dev gw0 onlink src %s", r.PodCIDRs[0], vip, gateway))
	}
	for _, ip := range s.Node.GatewayIPs[1:] { // without permanent neighbours, so that questions are answered
		commands = append(commands, fmt.Sprintf("address add %s/64 dev gw0 nodad", ip),
			fmt.Sprintf("route add %s dev gw0 src %s", vip6, ip),
			fmt.Sprintf("route add fd97::/112 via %s dev gw0 onlink src %s", vip6, ip))
		for _, r := range s.RemoteNodes {
			commands = append(commands, fmt.Sprintf("route add %s via %s dev gw0 onlink src %s", r.PodCIDRs[1], vip6, ip))
		}
	}
	n.host.ip(t, commands...)
	for _, p := range s.Pods {
		ns := newNamespace(t)
		link := fmt.Sprintf("pod%d", p.Port)
		n.host.ip(t, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, ns.pid))
		if ovstest.System() {
			n.host.ip(t, "link set "+link+" up")
		} else {
			n.host.mute(t, link)
		}
		n.ovs.vsctl(t, "add-port", "br-int", link, "--", "set", "interface", link, fmt.Sprintf("ofport_request=%d", p.Port))
		ns.ip(t, "link set eth0 address "+p.MAC.String())
		if p.inVirtual() { // as pkg/cni sets it
			ns.ip(t, "link set eth0 up")
			for i, l := range s.Networks[p.Network].Leases {
				ns.ip(t, fmt.Sprintf("address add %s/%d dev eth0 nodad", p.IPs[i], p.IPs[i].BitLen()),
					fmt.Sprintf("route add %s dev eth0", l.Range.Gateway), fmt.Sprintf("route add default via %s", l.Range.Gateway))
			}
		} else {
			ns.ip(t, fmt.Sprintf("address add %s/24 dev eth0", p.IPs[0]), "link set eth0 up",
				fmt.Sprintf("route add default via %s", gateway))
			for i, ip := range p.IPs[1:] {
				ns.ip(t, fmt.Sprintf("address add %s/64 dev eth0 nodad", ip),
					fmt.Sprintf("route add default via %s dev eth0 onlink", s.Node.GatewayIPs[i+1]))
			}
		}
		if !ovstest.System() {
			ns.wholeChecksums(t, "eth0")
		}
		n.pods = append(n.pods, ns)
	}
	n.ovs.program(t, "br-int", setOf(t, mustPlan(t, s)))
	if s.Node.NoND {
		n.ovs.answerNeighbors(t, "br-int")
	}
	return n
}

// westNode is a Node of cluster west: node-1 is its Gateway. Pod pod1 of each is a server of Service nginx, which the
// other clusters have as 10.96.0.20.
func westNode(n int) State {
	s := onNode(1)
	cidrs := []netip.Prefix{rangeOf("10.10.0.0/24"), rangeOf("10.10.1.0/24")}
	self, other := n-1, 2-n
	s.Node.Name = []string{"node-1", "node-2"}[self]
	s.Node.PodCIDRs = cidrs[self : self+1]
	s.Node.ServiceCIDRs = []netip.Prefix{rangeOf("10.96.0.0/16")}
	s.Node.GatewayIPs = []netip.Addr{addrOf(cidrHost(cidrs[self], 1))}
	s.Pods = s.Pods[:1]
	s.Pods[0].IPs = []netip.Addr{addrOf(cidrHost(cidrs[self], 2))}
	s.RemoteNodes = []RemoteNode{{
		Name: []string{"node-1", "node-2"}[other], PodCIDRs: cidrs[other : other+1],
		Address:    []netip.Addr{westGW, addrOf("192.168.77.102")}[other],
		GatewayIPs: []netip.Addr{addrOf(cidrHost(cidrs[other], 1))},
	}}
	s.Node.Tunnels.Ends = []netip.Addr{[]netip.Addr{westGW, addrOf("192.168.77.102")}[self]}
	s.Node.Tunnels.Source, s.Node.Tunnels.PeerSource = s.Node.Tunnels.Ends[0], s.Node.Tunnels.Ends[0]
	s.Exported = exported("nginx", "node", "sctp")
	s.Frontends = []service.Frontend{
		frontend("nginx", corev1.ProtocolTCP, "10.96.0.20:80", "10.10.0.2:8080", "10.10.1.2:8080"),
		frontend("node", corev1.ProtocolTCP, "10.96.0.21:80", "192.168.77.101:9090"),
		frontend("sctp", corev1.ProtocolSCTP, "10.96.0.22:9", "10.10.1.2:9"),
	}
	s.Peering = peering.Peering{
		Part:  partOf(peering.Gateway, westGateway),
		Peers: []peering.Peer{peerAt("east", rangeOf("10.97.0.0/16"), eastTwo, eastTwo)},
	}
	if n == 2 {
		s.Peering.Part.Role, s.Peering.Peers[0].Ends = peering.Regular, []peering.End{{Addr: westGW}}
	}
	return s
}

// request is a connection of TestTraffic.
type request struct {
	name    string
	from    namespace
	network string
	to      string
	want    []string // every one of these answers, and no other; "server client"
}

// check sends twenty requests.
func (r request) check(t *testing.T) {
	t.Helper()
	// The first packet between two Nodes waits for the tunnel ends to find each other.
	eventually(t, "it is answered", func() error { _, err := r.from.askWithin(silence(), r.network, r.to); return err })
	var have []string
	for range 20 {
		answer, err := r.from.ask(r.network, r.to)
		if err != nil {
			t.Fatalf("after %q: %v", have, err)
		}
		if !slices.Contains(have, answer) {
			have = append(have, answer)
		}
	}
	slices.Sort(have)
	if !slices.Equal(have, r.want) {
		t.Errorf("answers %q, want %q", have, r.want)
	}
}

// TestTraffic sends real connections through real datapaths: two Nodes of east and two of west, joined by an underlay.
// The datapath is the kernel's in test/kernel, else the userspace one.
func TestTraffic(t *testing.T) {
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	east := func(n int) State {
		s := dualNode(n)
		s.Node.NoND = s.Node.NoND || n == 2 // each datapath that can is tried both ways
		s.Frontends = append(s.Frontends,
			frontend("host", corev1.ProtocolTCP, "10.97.0.15:80", "192.168.78.102:9090"),
			frontend("remote-host", corev1.ProtocolTCP, "10.97.0.16:80", "10.96.0.21:80"),
			frontend("sctp", corev1.ProtocolSCTP, "10.97.0.17:9", "10.11.0.3:9"),
			frontend("antrea-mc-nginx", corev1.ProtocolTCP, "[fd97::14]:80", "[fd96::20]:80"))
		s.Peering.Peers[1].CIDRs = append(s.Peering.Peers[1].CIDRs, rangeOf("fd96::/112"))
		return s
	}
	west := func(n int) State {
		s := withRanges6(westNode(n), n, family.Dual, []netip.Prefix{rangeOf("fd10::/64"), rangeOf("fd10:0:0:1::/64")},
			"fd96::/112")
		s.Frontends = append(s.Frontends,
			frontend("nginx", corev1.ProtocolTCP, "[fd96::20]:80", "[fd10::2]:8080", "[fd10:0:0:1::2]:8080"),
			frontend("dns", corev1.ProtocolUDP, "[fd96::24]:53", "[fd10:0:0:1::2]:5353"))
		s.Peering.Peers[0].CIDRs = append(s.Peering.Peers[0].CIDRs, rangeOf("fd97::/112"))
		s.Exported = exported("nginx", "node", "sctp", "dns")
		return s
	}
	east1 := newNode(t, underlay, east(1), "east1", eastOne, "10.97.0.0/16")
	east2 := newNode(t, underlay, east(2), "east2", eastTwo, "10.97.0.0/16")
	west1 := newNode(t, underlay, west(1), "west1", westGW, "10.96.0.0/16")
	west2 := newNode(t, underlay, west(2), "west2", addrOf("192.168.77.102"), "10.96.0.0/16")

	for _, v := range []string{"", "6"} {
		east1.pods[0].serve(t, "tcp"+v, ":8080", "east1/pod1")
		east1.pods[1].serve(t, "udp"+v, ":5353", "east1/pod2")
		east2.pods[0].serve(t, "tcp"+v, ":8080", "east2/pod1")
		east2.pods[1].serve(t, "tcp"+v, ":8080", "east2/pod2")
		west1.pods[0].serve(t, "tcp"+v, ":8080", "west1/pod1")
		west2.pods[0].serve(t, "tcp"+v, ":8080", "west2/pod1")
	}
	east2.host.serve(t, "tcp", "192.168.78.102:9090", "east2")
	west1.host.serve(t, "tcp", "192.168.77.101:9090", "west1")

	requests := []request{
		{"Pod to Pod on one Node", east2.pods[0], "tcp", "10.11.1.3:8080", []string{"east2/pod2 10.11.1.2"}},
		{"Pod to Pod of another Node", east2.pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}},
		{"host to Pod of its Node", east2.host, "tcp", "10.11.1.3:8080", []string{"east2/pod2 10.11.1.1"}},
		{"host to Pod of another Node", east2.host, "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.1"}},
		{"Pod to a Service on both Nodes", east2.pods[0], "tcp", "10.97.0.10:80",
			[]string{"east1/pod1 10.11.1.2", "east2/pod2 10.11.1.2"}},
		{"host to a Service on both Nodes", east1.host, "tcp", "10.97.0.10:80",
			[]string{"east1/pod1 10.11.0.1", "east2/pod2 10.11.0.1"}},
		{"Pod to itself by a Service", east2.pods[0], "tcp", "10.97.0.11:80", []string{"east2/pod1 169.254.0.253"}},
		{"Pod to a Service by UDP", east1.pods[0], "udp", "10.97.0.12:53", []string{"east1/pod2 10.11.0.2"}},
		{"Pod of another Node to a Service by UDP", east2.pods[0], "udp", "10.97.0.12:53", []string{"east1/pod2 10.11.1.2"}},
		{"Pod to a Service that its host serves", east2.pods[0], "tcp", "10.97.0.15:80", []string{"east2 10.11.1.2"}},
		{"host to a Service that it serves itself", east2.host, "tcp", "10.97.0.15:80", []string{"east2 169.254.0.253"}},
		{"Pod of a regular Node to another cluster", east1.pods[0], "tcp", "10.97.0.14:80",
			[]string{"west1/pod1 192.168.78.102", "west2/pod1 192.168.78.102"}},
		{"Pod of the Gateway to another cluster", east2.pods[0], "tcp", "10.97.0.14:80",
			[]string{"west1/pod1 192.168.78.102", "west2/pod1 192.168.78.102"}},
		{"host of a regular Node to another cluster", east1.host, "tcp", "10.97.0.14:80",
			[]string{"west1/pod1 192.168.78.102", "west2/pod1 192.168.78.102"}},
		{"host of the Gateway to another cluster", east2.host, "tcp", "10.97.0.14:80",
			[]string{"west1/pod1 192.168.78.102", "west2/pod1 192.168.78.102"}},
		{"Pod to another cluster's Service that its Gateway's host serves", east1.pods[0],
			"tcp", "10.97.0.16:80", []string{"west1 169.254.0.253"}},

		{"Pod to Pod on one Node by IPv6", east2.pods[0], "tcp6", "[fd11:0:0:1::3]:8080",
			[]string{"east2/pod2 fd11:0:0:1::2"}},
		{"Pod to Pod of another Node by IPv6", east2.pods[0], "tcp6", "[fd11::2]:8080",
			[]string{"east1/pod1 fd11:0:0:1::2"}},
		{"host to Pod of its Node by IPv6", east2.host, "tcp6", "[fd11:0:0:1::3]:8080",
			[]string{"east2/pod2 fd11:0:0:1::1"}},
		{"host to Pod of another Node by IPv6", east2.host, "tcp6", "[fd11::2]:8080",
			[]string{"east1/pod1 fd11:0:0:1::1"}},
		{"Pod to an IPv6 Service on both Nodes", east2.pods[0], "tcp6", "[fd97::10]:80",
			[]string{"east1/pod1 fd11:0:0:1::2", "east2/pod2 fd11:0:0:1::2"}},
		{"host to an IPv6 Service on both Nodes", east1.host, "tcp6", "[fd97::10]:80",
			[]string{"east1/pod1 fd11::1", "east2/pod2 fd11::1"}},
		{"Pod to itself by an IPv6 Service", east2.pods[0], "tcp6", "[fd97::11]:80",
			[]string{"east2/pod1 fc01::aabb:ccdd:eeff"}},
		{"Pod of another Node to an IPv6 Service by UDP", east2.pods[0], "udp6", "[fd97::12]:53",
			[]string{"east1/pod2 fd11:0:0:1::2"}},
		{"Pod of a regular Node to another cluster by IPv6", east1.pods[0], "tcp6", "[fd97::14]:80",
			[]string{"west1/pod1 fc01::1:0:c0a8:4e66", "west2/pod1 fc01::1:0:c0a8:4e66"}},
		{"Pod of the Gateway to another cluster by IPv6", east2.pods[0], "tcp6", "[fd97::14]:80",
			[]string{"west1/pod1 fc01::1:0:c0a8:4e66", "west2/pod1 fc01::1:0:c0a8:4e66"}},
		{"host of a regular Node to another cluster by IPv6", east1.host, "tcp6", "[fd97::14]:80",
			[]string{"west1/pod1 fc01::1:0:c0a8:4e66", "west2/pod1 fc01::1:0:c0a8:4e66"}},
		{"host of the Gateway to another cluster by IPv6", east2.host, "tcp6", "[fd97::14]:80",
			[]string{"west1/pod1 fc01::1:0:c0a8:4e66", "west2/pod1 fc01::1:0:c0a8:4e66"}},
		{"Pod to a ClusterIP of another cluster by IPv6", east1.pods[0], "tcp6", "[fd96::20]:80",
			[]string{"west1/pod1 fc01::1:0:c0a8:4e66", "west2/pod1 fc01::1:0:c0a8:4e66"}},
	}
	if ovstest.System() { // the userspace datapath's connection tracker does not support SCTP
		east1.pods[1].serve(t, "sctp", ":9", "east1/pod2")
		west2.pods[0].serve(t, "sctp", ":9", "west2/pod1")
		requests = append(requests,
			request{"Pod to a Service by SCTP", east1.pods[0], "sctp", "10.97.0.17:9", []string{"east1/pod2 10.11.0.2"}},
			request{"Pod of another Node to a Service by SCTP", east2.pods[0], "sctp", "10.97.0.17:9",
				[]string{"east1/pod2 10.11.1.2"}},
			request{"host to a Service by SCTP", east2.host, "sctp", "10.97.0.17:9", []string{"east1/pod2 10.11.1.1"}},
			request{"Pod to another cluster's Service by SCTP", east1.pods[0], "sctp", "10.96.0.22:9",
				[]string{"west2/pod1 192.168.78.102"}},
		)
	}
	for _, r := range requests {
		t.Run(r.name, r.check)
	}

	t.Run("UDP to another cluster by IPv6", func(t *testing.T) {
		c, err := east1.pods[0].dial("udp6", "[fd96::24]:53")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		exchange := func(size int) error {
			if err := c.SetDeadline(time.Now().Add(silence())); err != nil {
				return err
			}
			if _, err := c.Write(make([]byte, size)); err != nil {
				return err
			}
			n, err := c.Read(make([]byte, 2*large))
			if err == nil && n != size {
				err = fmt.Errorf("%d bytes of %d come back", n, size)
			}
			return err
		}
		eventually(t, "the server's Pod says that nothing listens", func() error {
			if err := exchange(1); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("the error is %w", err)
			}
			return nil
		})
		for _, pod := range []namespace{east1.pods[0], west2.pods[0]} {
			pod.ip(t, "link set eth0 mtu 1400") // tunnels add to a packet
		}
		server := listenUDP(t, west2.pods[0], "[fd10:0:0:1::2]:5353")
		go func() {
			b := make([]byte, 2*large)
			for {
				n, from, err := server.ReadFrom(b)
				if err != nil {
					return
				}
				if _, err := server.WriteTo(b[:n], from); err != nil {
					return
				}
			}
		}()
		for _, size := range []int{1, large} { // the second in fragments, both ways
			if err := exchange(size); err != nil {
				t.Errorf("a datagram of %d bytes: %v", size, err)
			}
		}
	})
	t.Run("a Pod cannot use another address", func(t *testing.T) {
		east2.pods[0].ip(t, "address add 10.11.1.9/32 dev lo")
		before := strings.Count(east2.ovs.appctl(t, "dpctl/dump-conntrack"), "src=10.11.1.9")
		east2.pods[0].run(t, "sh", "-c", "ping -c 1 -W 1 -I 10.11.1.9 10.11.1.3 || true")
		if after := strings.Count(east2.ovs.appctl(t, "dpctl/dump-conntrack"), "src=10.11.1.9"); after != before {
			t.Error("its packet reached connection tracking")
		}
	})
}

// TestTunnelTypes carries connections between two Nodes over each type of tunnel. The ports change their type while
// they are in use.
func TestTunnelTypes(t *testing.T) {
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	one := newNode(t, underlay, onNode(1), "east1", eastOne, "10.97.0.0/16")
	two := newNode(t, underlay, onNode(2), "east2", eastTwo, "10.97.0.0/16")
	one.pods[0].serve(t, "tcp", ":8080", "east1/pod1")
	one.pods[1].serve(t, "udp", ":5353", "east1/pod2")
	two.pods[1].serve(t, "tcp", ":8080", "east2/pod2")
	for _, tunnelType := range []string{"geneve", "vxlan", "gre"} {
		for _, n := range []*realNode{one, two} {
			n.ovs.vsctl(t, "set", "interface", "tun0", "type="+tunnelType)
			if message := n.ovs.vsctl(t, "get", "interface", "tun0", "error"); strings.TrimSpace(message) != "[]" {
				t.Errorf("%s: Open vSwitch refuses the tunnel port: %s", tunnelType, message)
			}
		}
		for _, r := range []request{
			{"Pod to Pod of another Node", two.pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}},
			{"host to Pod of another Node", two.host, "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.1"}},
			{"Pod to a Service on both Nodes", two.pods[0], "tcp", "10.97.0.10:80",
				[]string{"east1/pod1 10.11.1.2", "east2/pod2 10.11.1.2"}},
			{"Pod of another Node to a Service by UDP", two.pods[0], "udp", "10.97.0.12:53", []string{"east1/pod2 10.11.1.2"}},
		} {
			t.Run(tunnelType+"/"+r.name, r.check)
		}
		t.Run(tunnelType+"/newcomers", func(t *testing.T) { newcomersBetween(t, one, two, tunnelType == "geneve") })
	}
}

// TestTunnelsOverIPv6 carries connections between the Nodes of a cluster, and between clusters, over IPv6 and each type
// of tunnel. Inside are both versions of IP. BFD watches the way between the Gateways.
func TestTunnelsOverIPv6(t *testing.T) {
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	east := func(n int) State {
		s := dualNode(n)
		s.Frontends = append(s.Frontends,
			frontend("antrea-mc-nginx", corev1.ProtocolTCP, "[fd97::14]:80", "[fd96::20]:80"))
		s.Peering.Peers[1].CIDRs = append(s.Peering.Peers[1].CIDRs, rangeOf("fd96::/112"))
		return over6(s)
	}
	west := withRanges6(westNode(1), 1, family.Dual, []netip.Prefix{rangeOf("fd10::/64"), rangeOf("fd10:0:0:1::/64")},
		"fd96::/112")
	west.Frontends = []service.Frontend{
		frontend("nginx", corev1.ProtocolTCP, "10.96.0.20:80", "10.10.0.2:8080"),
		frontend("nginx", corev1.ProtocolTCP, "[fd96::20]:80", "[fd10::2]:8080"),
	}
	west.Peering.Peers[0].CIDRs = append(west.Peering.Peers[0].CIDRs, rangeOf("fd97::/112"))
	near, far := outerSix(eastTwo), outerSix(westGW)
	east1 := newNode(t, underlay, east(1), "east1", outerSix(eastOne), "10.97.0.0/16")
	east2 := newNode(t, underlay, east(2), "east2", near, "10.97.0.0/16")
	west1 := newNode(t, underlay, over6(west), "west1", far, "10.96.0.0/16")
	for _, v := range []string{"tcp", "tcp6"} {
		east1.pods[0].serve(t, v, ":8080", "east1/pod1")
		west1.pods[0].serve(t, v, ":8080", "west1/pod1")
	}
	translated := fmt.Sprint("west1/pod1 ", claims.InsideOf(near))
	translated6 := fmt.Sprint("west1/pod1 ", near)
	for _, tunnelType := range []string{"geneve", "vxlan", "gre"} {
		if tunnelType == "gre" && ovstest.System() {
			tunnelType = "ip6gre" // as the agent sets it: the kernel's gre is over IPv4 alone
		}
		for _, n := range []*realNode{east1, east2, west1} {
			n.ovs.vsctl(t, "set", "interface", "tun0", "type="+tunnelType)
			if message := n.ovs.vsctl(t, "get", "interface", "tun0", "error"); strings.TrimSpace(message) != "[]" {
				t.Errorf("%s: Open vSwitch refuses the tunnel port: %s", tunnelType, message)
			}
		}
		for _, r := range []request{
			{"Pod to Pod of another Node", east2.pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}},
			{"Pod to Pod of another Node by IPv6", east2.pods[0], "tcp6", "[fd11::2]:8080",
				[]string{"east1/pod1 fd11:0:0:1::2"}},
			{"Pod of a regular Node to another cluster", east1.pods[0], "tcp", "10.97.0.14:80", []string{translated}},
			{"Pod of the Gateway to another cluster", east2.pods[0], "tcp", "10.97.0.14:80", []string{translated}},
			{"host of a regular Node to another cluster", east1.host, "tcp", "10.97.0.14:80", []string{translated}},
			{"Pod of a regular Node to another cluster by IPv6", east1.pods[0], "tcp6", "[fd97::14]:80",
				[]string{translated6}},
			{"Pod of the Gateway to another cluster by IPv6", east2.pods[0], "tcp6", "[fd97::14]:80", []string{translated6}},
		} {
			t.Run(tunnelType+"/"+r.name, r.check)
		}
		t.Run(tunnelType+"/BFD between the Gateways", func(t *testing.T) {
			ends := map[*realNode][2]netip.Addr{east2: {near, far}, west1: {far, near}}
			for n, at := range ends {
				n.ovs.vsctl(t, "--may-exist", "add-port", "br-int", "bfd0", "--", "set", "interface", "bfd0", "type="+tunnelType,
					fmt.Sprintf("options:local_ip=%q", at[0]), fmt.Sprintf("options:remote_ip=%q", at[1]), "options:key=flow",
					"bfd:enable=true", "bfd:min_tx=100", "bfd:min_rx=100")
			}
			for n := range ends {
				eventually(t, "the way is up", func() error {
					if state := n.ovs.vsctl(t, "get", "interface", "bfd0", "bfd_status:state"); strings.TrimSpace(state) != "up" {
						return fmt.Errorf("its state is %s", state)
					}
					return nil
				})
			}
			for n := range ends {
				n.ovs.vsctl(t, "del-port", "br-int", "bfd0")
			}
		})
	}
}

// newcomersBetween names senders in the tunnel's key, under a rule that denies by label: the Pods of the second Node
// have no known addresses. Afterwards the Nodes have the same flows as earlier.
func newcomersBetween(t *testing.T, one, two *realNode, denied bool) {
	a := newArrival(t)
	sides := []*packetNode{{realNode: one, sources: a.server}, {realNode: two, sources: a.sender}}
	sync := func() {
		for _, n := range sides {
			n.sync(t)
		}
	}
	a.server.judge(policy.Ingress, denyX)
	for i, labels := range []string{"app=a", "zone=x"} {
		f := policy.PodFacts{Labels: labels, Node: "node-2", UID: newcomerUID + types.UID(labels)}
		a.sender.uids.Set(derive.Name(a.sender.Pods[i].Interface), f.UID)
		a.sender.sees(a.sender.Pods[i].Name, &f)
		a.server.sees("newcomer-"+labels, &f)
	}
	sync()
	request{"", two.pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}}.check(t)
	if denied { // it takes a while not to be answered
		if answer, err := two.pods[1].askWithin(silence(), "tcp", "10.11.0.2:8080"); err == nil {
			t.Errorf("a new Pod that a rule denies has the answer %q", answer)
		}
	}
	for _, c := range []*sources{a.sender, a.server} {
		c.policy.Pods.Replace(nil)
		c.policy.Policies[policy.ClusterNetworkPolicy].Replace(nil)
	}
	sync()
}

// TestTunnelSource gives a Node a second address, which its routes prefer. The other Node accepts packets from the
// announced address alone.
func TestTunnelSource(t *testing.T) {
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	one := newNode(t, underlay, onNode(1), "east1", eastOne, "10.97.0.0/16")
	two := newNode(t, underlay, onNode(2), "east2", eastTwo, "10.97.0.0/16")
	link := "br-phy"
	if ovstest.System() {
		link = "uplink"
	}
	two.host.ip(t, fmt.Sprintf("address del %s/16 dev %s", eastTwo, link), "address add 192.168.200.2/16 dev "+link,
		fmt.Sprintf("address add %s/16 dev %s", eastTwo, link))
	one.pods[0].serve(t, "tcp", ":8080", "east1/pod1")
	request{"", two.pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}}.check(t)
}

// TestTunnelsEndAtOneInterface gives two Nodes a second link for tunnels alone. On the kernel's datapath it does the
// same as the agent for a transportInterface (options:local_ip). The userspace datapath sends tunnels through the
// bridge that has taken over the interface. So there the test makes the second link a port of that bridge.
func TestTunnelsEndAtOneInterface(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	states, ends := []State{onNode(1), onNode(2)}, []string{"10.50.0.1", "10.50.0.2"}
	for i := range states {
		states[i].Node.Tunnels.Source = addrOf(ends[i])
		states[i].Node.Tunnels.Ends = append([]netip.Addr{addrOf(ends[i])}, states[i].Node.Tunnels.Ends...)
		remote := &states[i].RemoteNodes[0]
		remote.Sources = []netip.Addr{remote.Address}
		remote.Address = addrOf(ends[1-i])
	}
	nodes := []*realNode{
		newNode(t, underlay, states[0], "east1", eastOne, "10.97.0.0/16"),
		newNode(t, underlay, states[1], "east2", eastTwo, "10.97.0.0/16"),
	}
	nodes[0].host.ip(t, fmt.Sprintf("link add transport type veth peer name transport netns %d", nodes[1].host.pid))
	for i, n := range nodes {
		link := "transport"
		if ovstest.System() {
			n.host.ip(t, "link set transport up")
		} else {
			link = "br-tunnel"
			n.host.mute(t, "transport")
			n.ovs.vsctl(t, "add-br", link, "--", "set", "bridge", link, "datapath_type=netdev",
				"--", "add-port", link, "transport")
		}
		n.host.ip(t, fmt.Sprintf("address add %s/24 dev %s", ends[i], link), "link set "+link+" up")
		n.ovs.vsctl(t, "set", "interface", "tun0", "options:local_ip="+ends[i])
	}
	nodes[0].pods[0].serve(t, "tcp", ":8080", "east1/pod1")
	before := nodes[0].received(t, "transport")
	request{"", nodes[1].pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}}.check(t)
	if after := nodes[0].received(t, "transport"); after < before+40 {
		t.Errorf("%d packets of 20 connections came by the transport interface", after-before)
	}
	// Packets to the Node's other address are not accepted, until tunnels may end there.
	states[1].RemoteNodes[0].Address = eastOne
	nodes[1].ovs.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", nodes[1].ovs.dir+"/br-int.mgmt")
	nodes[1].ovs.program(t, "br-int", setOf(t, mustPlan(t, states[1])))
	nodes[1].ovs.vsctl(t, "set", "interface", "tun0", "options:local_ip=flow")
	nodes[1].pods[0].run(t, "sh", "-c", "! ping -c 2 -W 1 10.11.0.2")
	nodes[0].ovs.vsctl(t, "set", "interface", "tun0", "options:local_ip=flow")
	request{"", nodes[1].pods[0], "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.2"}}.check(t)
}

// received is how many packets an interface of the Node has received.
func (n *realNode) received(t testing.TB, link string) int {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+n.host.path(), "ip", "-j", "-s", "link", "show", "dev", link).Output()
	if err != nil {
		t.Fatal(err)
	}
	var links []struct {
		Stats64 struct{ RX struct{ Packets int } }
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return links[0].Stats64.RX.Packets
}

package agent

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// testView returns the view of Node node-1 of cluster east. It has one Pod, another Node, a Service, and the peer west
// behind the Gateway on node-2.
func testView() View {
	conf := config.Default()
	conf.FeatureGates = map[string]bool{"Multicluster": true}
	conf.Multicluster.EnableGateway = true
	return View{
		Config:   conf,
		NodeName: "node-1",
		settings: settings{GatewayMAC: "02:00:00:00:00:01"},
		Underlay: Underlay{MTU: 1500, Local: []netip.Addr{netip.MustParseAddr("192.168.78.101")}},
		Nodes: []*corev1.Node{testNode("node-1", "192.168.78.101", "10.11.0.0/24"),
			testNode("node-2", "192.168.78.102", "10.11.1.0/24")},
		Services: []*corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.10", ClusterIPs: []string{"10.97.0.10"},
				Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		}},
		EndpointSlices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1",
				Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP),
				Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.11.0.2"}}},
		}},
		ServiceCIDRs: []*networkingv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/16"}}}},
		Gateways: []*mcv1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "node-2"},
			GatewayIP: "192.168.78.102", InternalIP: "192.168.78.102"}},
		ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "test-cluster-west-clusterinfo"},
			Spec: mcv1alpha1.ClusterInfo{ClusterID: "test-cluster-west", ServiceCIDR: "10.98.0.0/16",
				GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.79.101"}}},
		}},
		Attachments: []cni.Attachment{{
			ContainerID: "c1", IfName: "eth0", PodNamespace: "default", PodName: "web", PortName: "web-a1b2c3",
			MAC: "02:00:00:00:00:02", IPs: []netip.Prefix{netip.MustParsePrefix("10.11.0.2/24")},
		}},
		Switch: bridge.State{Connected: true, Bridges: map[string]bridge.Found{
			"br-int": {Ports: map[string]bridge.PortState{"web-a1b2c3": {OFPort: 1}}},
		}},
	}
}

func testNode(name, ip, podCIDR string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*View)
		check   func(t *testing.T, d Desired)
		problem string // a part of one of the problems; "" for no problem
	}{
		{name: "a Node with everything", check: func(t *testing.T, d Desired) {
			if d.Network == nil || d.Network.MTU != 1450 || d.Network.Gateways[0].String() != "10.11.0.1" {
				t.Errorf("network for new Pods: %+v", d.Network)
			}
			if len(d.Pods) != 1 || len(d.RemoteNodes) != 1 || len(d.Frontends) != 1 {
				t.Errorf("state: %d Pods, %d Nodes, %d frontends, want one each", len(d.Pods), len(d.RemoteNodes), len(d.Frontends))
			}
			p := d.Peering
			if p.Part.Role != peering.Regular || len(p.Peers) != 1 ||
				p.Peers[0].Ends[0].Addr.String() != "192.168.78.102" {
				t.Errorf("peering: %+v, want west by the Gateway", p)
			}
			for _, dst := range []string{"10.97.0.0/16", "10.11.1.0/24"} {
				if !slices.ContainsFunc(d.Host.Routes,
					func(r hostnet.Route) bool { return r.Dst.String() == dst && r.Gateway == serviceVIP }) {
					t.Errorf("the host has no route to %s by the switch: %v", dst, d.Host.Routes)
				}
			}
		}},
		{name: "a Pod whose port has no number yet", change: func(v *View) {
			v.Switch.Bridges["br-int"].Ports["web-a1b2c3"] = bridge.PortState{}
		}, check: func(t *testing.T, d Desired) {
			if !d.Waiting["web-a1b2c3"] || d.Flows[datapath.PodOwner("web-a1b2c3")].Flows != nil {
				t.Errorf("waiting for %v; the Pod must have no flows yet", d.Waiting)
			}
		}},
		{name: "a port that Open vSwitch refuses stops nothing else", change: func(v *View) {
			v.Switch.Bridges["br-int"].Ports["web-a1b2c3"] = bridge.PortState{Error: "could not open network device"}
		}, check: func(t *testing.T, d Desired) {
			if len(d.Waiting) != 0 || len(d.Frontends) != 1 {
				t.Errorf("waiting for %v, %d frontends", d.Waiting, len(d.Frontends))
			}
		}, problem: "Pod default/web"},
		{name: "no podCIDR", change: func(v *View) { v.Nodes[0].Spec = corev1.NodeSpec{} },
			check: func(t *testing.T, d Desired) {
				if d.Network != nil {
					t.Errorf("Pods would get %+v", d.Network)
				}
			}, problem: "--allocate-node-cidrs"},
		{name: "the Node was registered again with another podCIDR", change: func(v *View) {
			v.Nodes[0] = testNode(v.NodeName, "192.168.78.101", "10.12.0.0/24")
		}, check: func(t *testing.T, d Desired) {
			if d.Network == nil || fmt.Sprint(d.Network.PodCIDRs, d.Network.Gateways) != "[10.12.0.0/24] [10.12.0.1]" {
				t.Errorf("network for new Pods: %+v", d.Network)
			}
			var have []string
			for _, l := range d.Host.Links {
				for _, a := range l.Addresses {
					have = append(have, a.String())
				}
			}
			if len(d.Pods) != 1 || !slices.Contains(have, "10.12.0.1/24") || !slices.Contains(have, "10.11.0.1/24") {
				t.Errorf("%d Pods; the host has %q", len(d.Pods), have)
			}
		}, problem: "Pod default/web: status.podIPs: 10.11.0.2 is not in the podCIDRs of Node node-1, " +
			"which was registered again with 10.12.0.0/24: this Node and its Pods reach it, and nobody else: delete the Pod"},
		{name: "another Node has the former podCIDR", change: func(v *View) {
			v.Nodes[0] = testNode(v.NodeName, "192.168.78.101", "10.12.0.0/24")
			v.Nodes[1] = testNode(v.Nodes[1].Name, "192.168.78.102", "10.11.0.0/24")
		}, check: func(t *testing.T, d Desired) {
			if len(d.RemoteNodes) != 1 || len(d.Host.Links) == 0 || len(d.Host.Links[0].Addresses) != 1 {
				t.Errorf("Nodes %v, links of the host %+v", d.RemoteNodes, d.Host.Links)
			}
		}, problem: "Pods of this Node reach it, and nobody else, since the cluster uses that range for something else " +
			"now: delete the Pod"},
		{name: "another Node, whose tunnels are over the other version of IP", change: func(v *View) {
			v.Nodes[1].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::2"}}
		}, check: func(t *testing.T, d Desired) {
			if len(d.RemoteNodes) != 0 {
				t.Errorf("Nodes %v", d.RemoteNodes)
			}
		}, problem: "give both Nodes an InternalIP of one family"},
		{name: "an unknown Node", change: func(v *View) { v.NodeName = "other" }, check: func(t *testing.T, d Desired) {
			if d.Bridges != nil || d.Flows != nil {
				t.Error("something would be configured")
			}
		}, problem: "Node other"},
		{name: "overlapping Service ranges",
			change: func(v *View) { v.ClusterInfoImports[0].Spec.ServiceCIDR = "10.97.0.0/20" },
			check: func(t *testing.T, d Desired) {
				if len(d.Peering.Peers) != 0 {
					t.Errorf("peers %v", d.Peering.Peers)
				}
			}, problem: "test-cluster-west"},
		{name: "multi-cluster switched off", change: func(v *View) { v.Config.Multicluster.EnableGateway = false },
			check: func(t *testing.T, d Desired) {
				if len(d.Peering.Peers) != 0 {
					t.Errorf("peers %v", d.Peering.Peers)
				}
			}},
		{name: "the switch takes the uplink over only when the record is kept", change: func(v *View) {
			v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
			v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500,
				Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
		}, check: func(t *testing.T, d Desired) {
			if there, _ := bridgesOf(d); len(there) != 2 || d.Bridges[1].Name != "br-eth1" ||
				d.Bridges[1].ExternalIDs[hostnet.UplinkAddressesKey] == "" {
				t.Fatalf("bridges: %+v", d.Bridges)
			}
			if len(d.Host.Links) != 1 {
				t.Errorf("addresses would move before the OVSDB has the record: %+v", d.Host.Links)
			}
			if !d.Network.DisableTXChecksum {
				t.Error("Pods would leave checksums to hardware that is not there")
			}
			if have := fmt.Sprint(d.Host.Tunnels); have != "[{br-eth1 [192.168.78.102]}]" {
				t.Errorf("tunnels %s, want one to the other Node, where the Gateway is", have)
			}
		}},
		{name: "tunnels of the userspace datapath on the Gateway", change: func(v *View) {
			v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
			v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500,
				Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
			v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", "192.168.78.101", "192.168.78.101"
		}, check: func(t *testing.T, d Desired) {
			if have := fmt.Sprint(d.Host.Tunnels); have != "[{br-eth1 [192.168.78.102 192.168.79.101]}]" {
				t.Errorf("tunnels %s, want one to the other Node and one to west's Gateway", have)
			}
		}},
		{name: "tunnels end at the announced address of transportInterface", change: func(v *View) {
			v.Config.TransportInterface, v.Underlay.Addresses = "eth1", []netip.Prefix{netip.MustParsePrefix("10.50.0.1/24")}
			v.Nodes[0].Annotations = map[string]string{"node.antrea.io/transport-addresses": "fd00::1,10.50.0.1"}
			v.Nodes[1].Annotations = map[string]string{"node.antrea.io/transport-addresses": "10.50.0.2"}
		}, check: func(t *testing.T, d Desired) {
			if have := d.Bridges[0].Ports[1].Options["local_ip"]; have != "10.50.0.1" {
				t.Errorf("the tunnel port's local_ip is %q, want 10.50.0.1", have)
			}
			if have := d.RemoteNodes[0].Address.String(); have != "10.50.0.2" {
				t.Errorf("the tunnel to node-2 ends at %s, want 10.50.0.2", have)
			}
			if have := d.Peering.Peers[0].Ends[0].Addr.String(); have != "10.50.0.2" {
				t.Errorf("the tunnel to the Gateway ends at %s, want node-2's 10.50.0.2", have)
			}
		}},
		{name: "tunnel packets come from the address that other Nodes send to", change: func(v *View) {
			v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr("192.168.78.9"))
		}, check: func(t *testing.T, d Desired) {
			if have := d.Bridges[0].Ports[1].Options["local_ip"]; have != "flow" {
				t.Errorf("the tunnel port's local_ip is %q: flows cannot choose the source", have)
			}
			if n := d.Node; n.Tunnels.Source.String() != "192.168.78.101" || n.Tunnels.PeerSource != n.Tunnels.Source {
				t.Errorf("sources %s and %s, want 192.168.78.101", n.Tunnels.Source, n.Tunnels.PeerSource)
			}
		}},
		{name: "a Gateway with an address of its own for other clusters", change: func(v *View) {
			v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", "198.51.100.1", "192.168.78.101"
			v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr("198.51.100.1"))
		}, check: func(t *testing.T, d Desired) {
			if n := d.Node; n.Tunnels.Source.String() != "192.168.78.101" || n.Tunnels.PeerSource.String() != "198.51.100.1" {
				t.Errorf("sources %s and %s, want 192.168.78.101 for Nodes and 198.51.100.1 for other clusters", n.Tunnels.Source,
					n.Tunnels.PeerSource)
			}
		}},
		{name: "a Gateway behind NAT", change: func(v *View) {
			v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", "198.51.100.1", "192.168.78.101"
		}, check: func(t *testing.T, d Desired) {
			if n := d.Node; n.Tunnels.PeerSource.String() != "192.168.78.101" {
				t.Errorf("source %s for other clusters, want the Node's own 192.168.78.101", n.Tunnels.PeerSource)
			}
		}},
		{name: "the announced tunnel end is no address of the Node", change: func(v *View) {
			v.Nodes[0].Annotations = map[string]string{"node.antrea.io/transport-addresses": "203.0.113.5"}
		}, check: func(t *testing.T, d Desired) {
			if n := d.Node; n.Tunnels.Source.IsValid() {
				t.Errorf("source %s, which the host would refuse", n.Tunnels.Source)
			}
		}, problem: "this Node has no such address"},
		{name: "transportInterface has the InternalIP", change: func(v *View) {
			v.Config.TransportInterface, v.Underlay.Addresses = "eth0",
				[]netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}
		}, check: func(t *testing.T, d Desired) {
			if have := d.Bridges[0].Ports[1].Options["local_ip"]; have != "192.168.78.101" {
				t.Errorf("the tunnel port's local_ip is %q, want 192.168.78.101", have)
			}
		}},
		{name: "transportInterface of a Gateway whose tunnels to other clusters are over IPv6", change: func(v *View) {
			v.Config.TransportInterface, v.Underlay.Addresses = "eth0",
				[]netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}
			v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", "fd78::101", "192.168.78.101"
			v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr("fd78::101"))
			v.ClusterInfoImports[0].Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "fd79::101"}}
		}, check: func(t *testing.T, d Desired) {
			if have := d.Bridges[0].Ports[1].Options["local_ip"]; have != "flow" {
				t.Errorf("the tunnel port's local_ip is %q: it sends nothing over IPv6", have)
			}
			if n := d.Node; n.Tunnels.Source.String() != "192.168.78.101" || n.Tunnels.PeerSource.String() != "fd78::101" {
				t.Errorf("sources %s for Nodes and %s for other clusters", n.Tunnels.Source, n.Tunnels.PeerSource)
			}
		}},
		{name: "transportInterface that no Node sends to", change: func(v *View) {
			v.Config.TransportInterface, v.Underlay.Addresses = "eth1", []netip.Prefix{netip.MustParsePrefix("10.50.0.1/24")}
		}, check: func(t *testing.T, d Desired) {
			if have := d.Bridges[0].Ports[1].Options["local_ip"]; have != "flow" {
				t.Errorf("the tunnel port takes packets for %q only, where none are sent", have)
			}
		}, problem: "kubectl annotate --overwrite node node-1 node.antrea.io/transport-addresses=10.50.0.1"},
		{name: "transportInterface without an address", change: func(v *View) { v.Config.TransportInterface = "eth1" },
			check: func(t *testing.T, d Desired) {
				if have := d.Bridges[0].Ports[1].Options["local_ip"]; have != "flow" {
					t.Errorf("the tunnel port has local_ip %q", have)
				}
			}, problem: "interface eth1 has no address"},
		{name: "a transport address that is none", change: func(v *View) {
			v.Nodes[1].Annotations = map[string]string{"node.antrea.io/transport-addresses": "127.0.0.1,eth1"}
		}, check: func(t *testing.T, d Desired) {
			if have := d.RemoteNodes[0].Address.String(); have != "192.168.78.102" {
				t.Errorf("the tunnel to node-2 ends at %s, want its InternalIP", have)
			}
		}, problem: `"127.0.0.1,eth1" has no IPv4 address`},
		{name: "a Gateway whose tunnels end elsewhere than the other clusters send", change: func(v *View) {
			v.Config.TransportInterface, v.Underlay.Addresses = "eth1", []netip.Prefix{netip.MustParsePrefix("10.50.0.1/24")}
			v.Nodes[0].Annotations = map[string]string{"node.antrea.io/transport-addresses": "10.50.0.1"}
			v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", "192.168.78.101", "192.168.78.101"
		}, check: func(t *testing.T, d Desired) {
			if have := d.Peering.Peers[0].Ends[0].Addr.String(); have != "192.168.79.101" {
				t.Errorf("the tunnel to west ends at %s", have)
			}
		}, problem: "multicluster.antrea.io/gateway-ip=10.50.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView()
			if tc.change != nil {
				tc.change(&v)
			}
			d, problems := Plan(v)
			tc.check(t, d)
			found := tc.problem == "" && len(problems) == 0
			for _, p := range problems {
				found = found || tc.problem != "" && strings.Contains(p.String(), tc.problem)
			}
			if !found {
				t.Errorf("problems %v, want %q", problems, tc.problem)
			}
		})
	}
}

// TestPlanIgnoresOrder plans the same state from caches that list in another order.
func TestPlanIgnoresOrder(t *testing.T) {
	v := testView()
	v.Nodes = append(v.Nodes, testNode("node-3", "192.168.78.103", "10.11.2.0/24"))
	want, _ := Plan(v)
	for range 20 {
		rand.Shuffle(len(v.Nodes), func(i, j int) { v.Nodes[i], v.Nodes[j] = v.Nodes[j], v.Nodes[i] })
		got, _ := Plan(v)
		for owner, e := range want.Flows {
			if diff := cmp.Diff(texts(e.Flows), texts(got.Flows[owner].Flows)); diff != "" {
				t.Fatalf("%s: %s", owner, diff)
			}
		}
		if len(got.Flows) != len(want.Flows) {
			t.Fatalf("%d owners, want %d", len(got.Flows), len(want.Flows))
		}
	}
}

func TestCover(t *testing.T) {
	for _, test := range []struct {
		addresses []string
		want      string
	}{
		{nil, "[]"}, {[]string{"10.96.0.1", "10.96.12.7"}, "[10.96.0.0/20]"}, {[]string{"fd96::1"}, "[fd96::1/128]"},
		{[]string{"fd96::1", "fd96::fffe"}, "[fd96::/112]"},
	} {
		var ips []netip.Addr
		for _, ip := range test.addresses {
			ips = append(ips, netip.MustParseAddr(ip))
		}
		if got := fmt.Sprint(cover(ips)); got != test.want {
			t.Errorf("cover of %v is %s, want %s", test.addresses, got, test.want)
		}
	}
}

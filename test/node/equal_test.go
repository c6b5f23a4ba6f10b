package node

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// testEqualRanges has two networks with one range on one Node. Network red is separate. In each of them a client and a
// server have the same addresses, and connections have the same ports at the same time. They go on while the agent
// starts again. A policy for the server of one network does not concern the other one.
func testEqualRanges(t *testing.T, c *cluster) {
	const zone = 17
	equal := tombolov1alpha1.SubnetLeaseSpec{CIDR: "10.50.0.0/24", Gateway: "10.50.0.1"}
	separate := equal
	separate.Zone = zone
	n := newNetworks(t, c, "equal", map[string]tombolov1alpha1.SubnetLeaseSpec{"blue": equal, "red": separate})
	const client, server = "10.50.0.2", "10.50.0.3:8080"
	clients, servers := map[string]*pod{}, map[string]*pod{}
	for _, network := range []string{"blue", "red"} {
		clients[network] = n.start("client-"+network, further, network)
		servers[network] = n.start("server-"+network, further, network)
		servers[network].serve(t, 8080)
	}

	// talk opens a connection from the client's address and a port.
	talk := func(network, protocol string, port int) net.Conn {
		t.Helper()
		var conn net.Conn
		n.eventually("Pod "+clients[network].name+" connects by "+protocol, func() error {
			return clients[network].within(func() (err error) {
				d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client), Port: port}}
				if protocol == "udp" {
					d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(client), Port: port}
				}
				conn, err = d.Dial(protocol, server)
				return err
			})
		})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	type talks struct {
		network string
		conn    net.Conn
	}
	var open []talks
	for _, protocol := range []string{"tcp", "udp"} {
		for network := range clients {
			open = append(open, talks{network, talk(network, protocol, 31000)})
		}
	}
	answers := func(when string, want map[string]bool) {
		t.Helper()
		for _, c := range open {
			n.eventually(fmt.Sprintf("%s, %s in %s is answered: %t", when, c.conn.RemoteAddr().Network(), c.network,
				want[c.network]), func() error {
				have, err := ask(c.conn, when, 500*time.Millisecond)
				switch answered := strings.HasPrefix(have, "server-"+c.network+" "); {
				case have != "" && !answered:
					t.Fatalf("%s, in %s %q answers", when, c.network, have)
				case answered != want[c.network]:
					return fmt.Errorf("the answer is %q: %w", have, err)
				}
				return nil
			})
		}
	}
	both := map[string]bool{"blue": true, "red": true}
	answers("at first", both)

	inBoth := n.declare("in-both", further, "blue", "red")
	n.eventually("a Pod in both networks is refused", func() error {
		err := n.attach(inBoth)
		if err == nil {
			t.Fatal("a Pod is in two networks with one range")
		}
		for _, want := range []string{"equal/blue", "equal/red", "10.50.0.0/24"} {
			if !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%w, which does not name %s", err, want)
			}
		}
		return nil
	})

	n.stop()
	answers("without an agent", both)
	n.ready()
	answers("after a restart of the agent", both)

	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "deny"},
		Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "server-red"}}}}
	policies := c.client.NetworkingV1().NetworkPolicies(n.namespace)
	if _, err := policies.Create(t.Context(), deny, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answers("with a policy for the server in red", map[string]bool{"blue": true})
	if err := policies.Delete(t.Context(), deny.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	answers("without the policy", both)

	// A Pod that comes later gets no connections of an earlier one with its addresses.
	for _, p := range []*pod{clients["red"], servers["red"]} {
		n.del(p)
	}
	n.eventually("the switch forgets the connections of red", func() error {
		for line := range strings.Lines(n.ovs.Appctl("dpctl/dump-conntrack")) {
			if strings.Contains(line, fmt.Sprintf("zone=%d,", zone)) || strings.HasSuffix(strings.TrimSpace(line),
				fmt.Sprintf("zone=%d", zone)) {
				return fmt.Errorf("it tracks %s", line)
			}
		}
		return nil
	})
	open = open[:0]
	for _, protocol := range []string{"tcp", "udp"} {
		open = append(open, talks{"blue", talk("blue", protocol, 31001)})
	}
	answers("without Pods in red", both)
	n.del(clients["blue"])
	n.del(servers["blue"])
}

package datapath

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

var (
	loadClients     = flag.Int("load.clients", 8, "clients of TestPolicyLoad")
	loadServers     = flag.Int("load.servers", 3, "servers of TestPolicyLoad")
	loadConnections = flag.Int("load.connections", 240,
		"connections of all clients together to all servers, whose megaflows TestPolicyLoad counts")
	loadTime = flag.Duration("load.time", 0,
		"for how long TestPolicyLoad measures connections a second, six times; not at all with 0")
)

const (
	loadRules = 500
	loadPort  = 8081
)

// policyLoad is a Node with clients, servers and a Service of the servers, 10.97.0.80:80.
type policyLoad struct {
	packetNode
	clients, servers []namespace
	addresses        []string // of the servers
}

func newPolicyLoad(t *testing.T) *policyLoad {
	t.Helper()
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	s := onNode(1)
	s.Node.SCTPByPort = !ovstest.System()
	s.Pods = nil
	l := &policyLoad{}
	for i := range *loadServers + *loadClients {
		address := cidrHost(s.Node.PodCIDRs[0], byte(10+i))
		s.Pods = append(s.Pods, Pod{
			Namespace: "default", Name: fmt.Sprint("pod", i), Interface: fmt.Sprint("pod", i),
			MAC: ofp.MAC{0x0a, 0, 0, 1, 0, byte(i)}, IPs: []netip.Addr{addrOf(address)}, Port: ofp.Port(10 + i),
		})
		if i < *loadServers {
			l.addresses = append(l.addresses, address)
		}
	}
	var endpoints []string
	for _, a := range l.addresses {
		endpoints = append(endpoints, fmt.Sprint(a, ":", loadPort))
	}
	s.Frontends = []service.Frontend{frontend("load", corev1.ProtocolTCP, "10.97.0.80:80", endpoints...)}
	s.Exported, s.Slices = nil, nil
	l.packetNode = packetNode{realNode: newNode(t, underlay, s, "one", eastOne, "10.97.0.0/16"), sources: newSources(s)}
	l.ovs.vsctl(t, "set", "Open_vSwitch", ".", "other_config:max-idle=600000") // megaflows stay until they are counted
	l.servers, l.clients = l.realNode.pods[:*loadServers], l.realNode.pods[*loadServers:]
	l.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	for i, p := range s.Pods {
		app := "client"
		if i < *loadServers {
			app = "server"
		}
		l.label(p.Name, app, p.IPs[0].String())
	}
	l.policy.Nodes.Set(derive.Object{Name: "node-2"},
		policy.NodeFacts{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.11.1.0/24")}})
	for i := range 50 { // others that rules name
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("peer", i),
			Labels: map[string]string{"app": fmt.Sprint("peer-", i)}}}
		o.Spec.NodeName, o.Status.PodIPs = "node-2", []corev1.PodIP{{IP: fmt.Sprint("10.11.1.", 10+i)}}
		l.policy.Pods.Set(derive.ObjectOf(o), policy.PodFactsOf(o))
	}
	for _, server := range l.servers {
		for _, port := range []int{loadPort, loadPort + 1} {
			if err := server.do(func() error {
				listener, err := net.Listen("tcp4", fmt.Sprint(":", port))
				if err == nil {
					accept(t, listener, func(net.Conn) {})
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// loadPolicies returns the rules through which clients reach servers, both ways, and unrelated rules.
func loadPolicies() []*networkingv1.NetworkPolicy {
	out := []*networkingv1.NetworkPolicy{loadPolicy("clients", "server", "client", loadPort, false),
		loadPolicy("servers", "client", "server", loadPort, true)}
	for i := range loadRules - 2 {
		app, egress := "server", i%2 == 1
		if egress {
			app = "client"
		}
		out = append(out, loadPolicy(fmt.Sprint("rule-", i), app, fmt.Sprint("peer-", i%50), 1000+i, egress))
	}
	return out
}

// loadPolicy allows connections between the Pods of an app and their peers to a port. Each third rule also has ranges
// of addresses, each second a range of ports.
func loadPolicy(name, app, peer string, port int, egress bool) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	peers := []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": peer}}}}
	if port%3 == 0 {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{
			CIDR:   fmt.Sprintf("172.%d.%d.0/24", 16+port%16, port%256),
			Except: []string{fmt.Sprintf("172.%d.%d.16/28", 16+port%16, port%256)},
		}})
	}
	ports := []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(int32(port)))}}
	if port%2 == 0 {
		ports[0].EndPort = new(int32(port + port%7))
	}
	if egress {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	} else {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
	}
	return p
}

// rules applies all policies or removes them. The servers' second port is in no rule.
func (l *policyLoad) rules(t *testing.T, there bool) {
	t.Helper()
	for _, p := range loadPolicies() {
		if there {
			l.policy.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(p), policy.FactsOf(p))
		} else {
			l.forget(p.Name)
		}
	}
	l.change(t)
	if err := l.clients[0].do(func() error { return touch("10.97.0.80:80", replyTimeout()) }); err != nil {
		t.Fatalf("rules %v: the Service: %v", there, err)
	}
	err := l.clients[0].do(func() error {
		return touch(fmt.Sprint(l.addresses[0], ":", loadPort+1),
			300*time.Millisecond)
	})
	if there == (err == nil) {
		t.Fatalf("rules %v: a port that no rule names: %v", there, err)
	}
}

// touch makes a connection and drops it, which leaves no port behind.
func touch(address string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp4", address, timeout)
	if err != nil {
		return err
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	return c.Close()
}

// rate is how many connections a second four clients make.
func (l *policyLoad) rate(t *testing.T) float64 {
	t.Helper()
	var made atomic.Int64
	var g errgroup.Group
	begin := time.Now()
	for _, client := range l.clients[:4] {
		g.Go(func() error {
			return client.do(func() error {
				for time.Since(begin) < *loadTime {
					if err := touch("10.97.0.80:80", replyTimeout()); err != nil {
						return err
					}
					made.Add(1)
				}
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return float64(made.Load()) / time.Since(begin).Seconds()
}

// megaflows counts the megaflows of IP that connections of all clients to all servers make.
func (l *policyLoad) megaflows(t *testing.T) int {
	t.Helper()
	l.ovs.appctl(t, "revalidator/purge")
	for i, client := range l.clients {
		if err := client.do(func() error {
			for j := range *loadConnections / len(l.clients) {
				if err := touch(fmt.Sprint(l.addresses[(i+j)%len(l.addresses)], ":", loadPort), replyTimeout()); err != nil {
					return err
				}
			}
			return forgetNeighbours()
		}); err != nil {
			t.Fatal(err)
		}
		for _, server := range l.servers {
			if err := server.do(forgetNeighbours); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.Count(l.ovs.appctl(t, "dpctl/dump-flows"), "eth_type(0x0800)")
}

// forgetNeighbours removes the MAC addresses that a Pod has learned. The kernel has room for a thousand in all
// namespaces together. A hundred clients and ten servers learn twice as many.
func forgetNeighbours() error {
	list, err := netlink.NeighList(0, netlink.FAMILY_V4)
	for _, n := range list {
		_ = netlink.NeighDel(&n) // it may have gone
	}
	return err
}

// TestPolicyLoad counts the megaflows of connections under 500 rules: at most three times as many as without. It logs
// how many connections a second there are with rules and without.
func TestPolicyLoad(t *testing.T) {
	l := newPolicyLoad(t)
	var flows [2]int
	var rates [2][]float64
	rounds := 1
	if *loadTime > 0 {
		rounds = 3
	}
	for range rounds {
		for i, there := range []bool{false, true} {
			l.rules(t, there)
			if *loadTime > 0 {
				rates[i] = append(rates[i], l.rate(t))
			}
			flows[i] = l.megaflows(t)
		}
	}
	without, with := flows[0], flows[1]
	t.Logf("megaflows of %d connections of %d clients to %d servers: %d with %d rules, %d without", *loadConnections,
		*loadClients, *loadServers, with, loadRules, without)
	if without == 0 || with > 3*without {
		t.Errorf("%d megaflows with rules, %d without: want at most three times as many", with, without)
	}
	if *loadTime > 0 {
		middle := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
		without, with := middle(rates[0]), middle(rates[1])
		t.Logf("connections a second through a Service: %.0f with rules, %.0f without: %.2f x", with, without, with/without)
	}
}

package node

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	loadClients     = 100
	loadServers     = 10
	loadRules       = 500
	loadConnections = 10_000
	loadPort        = 8081
	loadRounds      = 3 // with rules and without, in turns
	loadTime        = 3 * time.Second
)

// load is a Node with clients, servers, a Service of the servers, and rules for both that are there or not.
type load struct {
	*rig
	clients, servers []*pod
	policies         []*networkingv1.NetworkPolicy
}

// BenchmarkTablePolicyTraffic prints what rules cost connections: how many a second there are, and how many megaflows
// they make.
func BenchmarkTablePolicyTraffic(b *testing.B) {
	fmt.Printf("\n%d rules on %d clients and %d servers of one Node; userspace datapath\n\n", loadRules, loadClients, loadServers)
	l := newLoad(b)
	var rates, flows [2][]float64
	for range loadRounds {
		for i, rules := range []bool{false, true} {
			l.rules(rules)
			rates[i] = append(rates[i], l.rate("10.97.0.80:80"))
			flows[i] = append(flows[i], l.megaflows())
		}
	}
	without, with := middle(rates[0]), middle(rates[1])
	row("connections a second through a Service, to without rules", fmt.Sprintf("%.2f x", with/without), ">= 0.80 x", with >= 0.8*without,
		fmt.Sprintf("%.0f to %.0f", with, without))
	without, with = middle(flows[0]), middle(flows[1])
	row(fmt.Sprintf("megaflows of %d connections, to without rules", loadConnections), fmt.Sprintf("%.2f x", with/without), "<= 3.00 x", with <= 3*without,
		fmt.Sprintf("%.0f to %.0f", with, without))
	fmt.Println()
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

func newLoad(b *testing.B) *load {
	l := &load{rig: newRig(b, newCluster(b)).withOVS()}
	l.ovs.Vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000") // megaflows stay until they are counted
	l.ready()
	for i := range loadServers {
		l.servers = append(l.servers, l.workload(fmt.Sprint("server-", i), "server"))
	}
	for i := range loadClients {
		l.clients = append(l.clients, l.workload(fmt.Sprint("client-", i), "client"))
	}
	for _, s := range l.servers {
		l.accept(s, loadPort)
		l.accept(s, loadPort+1)
	}
	ctx := b.Context()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.97.0.80", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(loadPort))}},
	}
	for _, s := range l.servers {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{s.ip}})
	}
	if _, err := l.cluster.client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := l.cluster.client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	for i := range 50 { // others that rules name
		l.object(fmt.Sprint("peer-", i), fmt.Sprint("peer-", i), "other", fmt.Sprintf("10.11.9.%d", 1+i))
	}
	l.policies = append(l.policies, l.policy("clients", "server", "client", loadPort, false), l.policy("servers", "client", "server", loadPort, true))
	for i := range loadRules - 2 {
		app, egress := "server", i%2 == 1
		if egress {
			app = "client"
		}
		l.policies = append(l.policies, l.policy(fmt.Sprint("rule-", i), app, fmt.Sprint("peer-", i%50), 1000+i, egress))
	}
	l.eventually("a client reaches the Service", func() error { return connect(l.clients[0], "10.97.0.80:80", time.Second) })
	return l
}

// object writes a Pod.
func (l *load) object(name, app, node, ip string) {
	l.t.Helper()
	ctx, pods := l.t.Context(), l.cluster.client.CoreV1().Pods("default")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	p, err := pods.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	if ip == "" {
		return
	}
	l.address(p, ip)
}

func (l *load) address(p *corev1.Pod, ip string) {
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	if _, err := l.cluster.client.CoreV1().Pods("default").UpdateStatus(l.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// workload is a Pod of this Node.
func (l *load) workload(name, app string) *pod {
	l.t.Helper()
	l.object(name, app, nodeName, "")
	p := l.add(name)
	o, err := l.cluster.client.CoreV1().Pods("default").Get(l.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.address(o, p.ip)
	return p
}

// policy allows connections between the Pods of an app and their peers to a port. Each third rule has ranges of
// addresses beside.
func (l *load) policy(name, app, peer string, port int, egress bool) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": peer}}}}
	if port%3 == 0 {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{
			CIDR: fmt.Sprintf("172.%d.%d.0/24", 16+port%16, port%256), Except: []string{fmt.Sprintf("172.%d.%d.16/28", 16+port%16, port%256)},
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

// rules applies all policies or removes them, and waits until they hold: the server's second port is in no rule.
func (l *load) rules(there bool) {
	l.t.Helper()
	policies := l.cluster.client.NetworkingV1().NetworkPolicies("default")
	g, ctx := errgroup.WithContext(l.t.Context())
	g.SetLimit(16)
	for _, p := range l.policies {
		g.Go(func() error {
			if !there {
				_ = policies.Delete(ctx, p.Name, metav1.DeleteOptions{}) // at first there is none
				return nil
			}
			_, err := policies.Create(ctx, p, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		l.t.Fatal(err)
	}
	l.eventually("the rules hold", func() error {
		flows := l.flows()
		for i := 1; i < loadRules-2; i += 2 { // those of one port
			if port := fmt.Sprintf("tp_dst=%d ", 1000+i); there != strings.Contains(flows, port) {
				return fmt.Errorf("flows with %s: %v, want %v", port, !there, there)
			}
		}
		err := connect(l.clients[0], fmt.Sprintf("%s:%d", l.servers[0].ip, loadPort+1), 300*time.Millisecond)
		if there && err == nil {
			return fmt.Errorf("a port that no rule names answers")
		} else if !there {
			return err
		}
		return connect(l.clients[0], "10.97.0.80:80", time.Second)
	})
}

// accept takes connections to a port of a Pod.
func (l *load) accept(p *pod, port int) {
	l.t.Helper()
	var listener net.Listener
	err := p.within(func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

// connect makes a connection and drops it, which leaves no port behind.
func connect(p *pod, address string, timeout time.Duration) error {
	return p.within(func() error { return dial(address, timeout) })
}

func dial(address string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp4", address, timeout)
	if err != nil {
		return err
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	return c.Close()
}

// rate is how many connections a second four clients make.
func (l *load) rate(address string) float64 {
	l.t.Helper()
	var made atomic.Int64
	ctx, cancel := context.WithTimeout(l.t.Context(), loadTime)
	defer cancel()
	var g errgroup.Group
	for _, p := range l.clients[:4] {
		g.Go(func() error {
			return p.within(func() error {
				for ctx.Err() == nil {
					if err := dial(address, 5*time.Second); err != nil {
						return err
					}
					made.Add(1)
				}
				return nil
			})
		})
	}
	begin := time.Now()
	if err := g.Wait(); err != nil {
		l.t.Fatal(err)
	}
	return float64(made.Load()) / time.Since(begin).Seconds()
}

// megaflows counts those of IP that connections of all clients to all servers make.
func (l *load) megaflows() float64 {
	l.t.Helper()
	l.ovs.Appctl("revalidator/purge")
	for i, p := range l.clients {
		err := p.within(func() error {
			for j := range loadConnections / loadClients {
				if err := dial(fmt.Sprintf("%s:%d", l.servers[(i+j)%loadServers].ip, loadPort), 5*time.Second); err != nil {
					return err
				}
			}
			return forget()
		})
		if err != nil {
			l.t.Fatal(err)
		}
		for _, s := range l.servers {
			if err := s.within(forget); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	return float64(strings.Count(l.ovs.Appctl("dpctl/dump-flows"), "eth_type(0x0800)"))
}

// forget removes the MAC addresses that a Pod has learned: the kernel has room for a thousand in all namespaces
// together, half of what these Pods learn.
func forget() error {
	list, err := netlink.NeighList(0, netlink.FAMILY_V4)
	for _, n := range list {
		_ = netlink.NeighDel(&n) // it may have gone
	}
	return err
}

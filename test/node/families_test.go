package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// testFamilies has two Nodes that begin with IPv4 alone. They are converted to both families while Pods run, and then
// to IPv6 alone, also between the Nodes.
func testFamilies(t *testing.T, c *cluster) {
	nodes := newSecureNodes(t, c, "families", [2]string{"10.16.1.0/24", "10.16.2.0/24"}, agentSpec{ProxyAll: true})
	for i, n := range nodes {
		sh := func(line string) {
			if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		sh(fmt.Sprintf("ip address add fd00:200:%d::1/64 dev api%d nodad", i+1, i+1))
		n.in(func() { sh(fmt.Sprintf("ip address add fd00:200:%d::2/64 dev eth0 nodad", i+1)) })
	}
	old, oldServer := nodes[0].pod("old-client"), nodes[1].pod("old-server")
	oldServer.serve(t, familiesPort)
	var open net.Conn
	nodes[0].eventually("Pods with IPv4 talk", func() (err error) {
		open, err = old.dial("tcp4", net.JoinHostPort(oldServer.ip, fmt.Sprint(familiesPort)))
		return err
	})
	defer open.Close()
	neighbor := nodes[0].pod("old-neighbor")
	neighbor.serve(t, familiesPort)
	local := dialled(t, old, "tcp4", neighbor.ip)
	defer local.Close()

	f := families{t, c, nodes}
	f.convert(local, "192.168.77.%d", "10.16.%d.0/24", "fd16:0:0:%d::/64")
	six := f.dual()
	defer six.Close()
	if _, err := ask(open, "still open", 10*time.Second); err != nil {
		t.Errorf("a connection from before the conversion: %v", err)
	}
	f.convert(six, "fd77::%d", "fd16:0:0:%d::/64")
	f.alone()
}

const familiesPort = 8080

// families is the state of testFamilies.
type families struct {
	t     *testing.T
	c     *cluster
	nodes []*secureNode
}

// convert gives the Nodes new objects with other ranges. Kubernetes refuses a change of a Node's ranges. At first the
// objects have no ranges, as while kube-controller-manager is busy. Meanwhile local is asked, a connection between Pods
// of one Node.
func (f families) convert(local net.Conn, internal string, podCIDRs ...string) {
	f.t.Helper()
	objects := f.c.client.CoreV1().Nodes()
	for i, n := range f.nodes {
		if err := objects.Delete(f.t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
			f.t.Fatal(err)
		}
		n.register(fmt.Sprintf(internal, i+1))
	}
	for _, n := range f.nodes {
		n.eventually("the Node has no podCIDR", func() error {
			s, err := n.status()
			if err == nil && !slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Reason == "NoPodCIDR" }) {
				err = fmt.Errorf("problems %v", s.Problems)
			}
			return err
		})
	}
	if _, err := ask(local, "without ranges", 10*time.Second); err != nil {
		f.t.Errorf("a connection while Nodes have no podCIDRs: %v", err)
	}
	for i, n := range f.nodes {
		node, err := objects.Get(f.t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, cidr := range podCIDRs {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, fmt.Sprintf(cidr, i+1))
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		if _, err := objects.Update(f.t.Context(), node, metav1.UpdateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// newPod makes Pods until one has as many addresses as wanted.
func (f families) newPod(n *secureNode, name string, addresses int) *pod {
	f.t.Helper()
	var p *pod
	tried := 0
	n.eventually(fmt.Sprintf("Pod %s has %d addresses", name, addresses), func() error {
		tried++
		p = n.sandboxed(fmt.Sprintf("%s-%d", name, tried), "")
		if err := n.objectOn(n.name, p.name, name); err != nil {
			return err
		}
		if err := n.attach(p); err != nil {
			return err
		}
		if len(p.ips) != addresses {
			_, err := n.call("DEL", p)
			return errors.Join(fmt.Errorf("addresses %q", p.ips), err)
		}
		return n.running(p)
	})
	return p
}

// asks asks a server from a Pod by TCP and UDP, and returns its first answer.
func asks(from *pod, host string, port int, word string) error {
	for _, network := range []string{"tcp", "udp"} {
		conn, err := from.dial(network, net.JoinHostPort(host, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		_, err = ask(conn, word, time.Second)
		conn.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", network, err)
		}
	}
	return nil
}

// dual tests Pods with two addresses. It returns an open connection of IPv6 between Pods of one Node.
func (f families) dual() net.Conn {
	near, far := f.newPod(f.nodes[0], "dual-near", 2), f.newPod(f.nodes[1], "dual-far", 2)
	asker := f.newPod(f.nodes[0], "dual-asker", 2)
	for _, p := range []*pod{near, far} {
		p.serve(f.t, familiesPort)
	}
	for _, server := range []*pod{near, far} {
		for _, ip := range server.ips {
			f.nodes[0].eventually("a Pod reaches "+server.name+" at "+ip, func() error {
				return asks(asker, ip, familiesPort, "hello")
			})
			f.nodes[0].eventually("a host reaches "+server.name+" at "+ip, func() (err error) {
				f.nodes[0].in(func() { err = hostAsks(ip, familiesPort) })
				return err
			})
		}
	}
	f.large(asker, far)
	vip := f.service("dual", near.ips[1], far.ips[1])
	f.nodes[0].eventually("both endpoints of a Service of IPv6 answer", func() error {
		return answers(asker, vip, near, far)
	})
	f.nodes[0].eventually("the host reaches a Service of IPv6", func() (err error) {
		f.nodes[0].in(func() { err = hostAsks(vip, 80) })
		return err
	})
	f.leaves(asker)
	f.outside(near, far)
	f.policy(asker, far)
	f.restart(asker, far)
	return dialled(f.t, asker, "tcp6", near.ips[1])
}

// dialled returns a connection of a Pod to a server.
func dialled(t *testing.T, from *pod, network, host string) net.Conn {
	t.Helper()
	conn, err := from.dial(network, net.JoinHostPort(host, fmt.Sprint(familiesPort)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// alone tests Pods with addresses of IPv6 alone, and tunnels over IPv6.
func (f families) alone() {
	const word = "tunnel-over-six"
	asker, server := f.newPod(f.nodes[0], "alone-asker", 1), f.newPod(f.nodes[1], "alone-server", 1)
	server.serve(f.t, familiesPort)
	var tunnel, other atomic.Int32
	end := f.nodes[0].sniff(func(frame []byte) {
		switch {
		case !bytes.Contains(frame, []byte(word)):
		case frame[12] == 0x86 && frame[13] == 0xdd && isUDP(frame, 6081):
			tunnel.Add(1)
		default:
			other.Add(1)
		}
	})
	f.nodes[0].eventually("Pods with IPv6 alone talk", func() error { return asks(asker, server.ip, familiesPort, word) })
	end()
	if tunnel.Load() == 0 || other.Load() != 0 {
		f.t.Errorf("%d frames through tunnels over IPv6, %d other frames", tunnel.Load(), other.Load())
	}
	f.large(asker, server)
	vip := f.service("alone", server.ip)
	f.nodes[0].eventually("a Service of IPv6 alone answers", func() error { return answers(asker, vip, server) })
	f.nodes[0].eventually("the host reaches it", func() (err error) {
		f.nodes[0].in(func() { err = hostAsks(vip, 80) })
		return err
	})
	f.leaves(asker)
}

// hostAsks asks a server in the namespace of the thread.
func hostAsks(host string, port int) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(port)), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = ask(conn, "from the host", time.Second)
	return err
}

// answers asks a Service until each of some Pods has answered.
func answers(from *pod, vip string, servers ...*pod) error {
	have := map[string]bool{}
	for range 30 {
		conn, err := from.dial("tcp", net.JoinHostPort(vip, "80"))
		if err != nil {
			return err
		}
		text, err := ask(conn, "who", time.Second)
		conn.Close()
		if err != nil {
			return err
		}
		have[strings.Fields(text)[0]] = true
		if len(have) == len(servers) {
			return nil
		}
	}
	return fmt.Errorf("only %v have answered", have)
}

// large sends datagrams that are larger than the MTU, in both directions.
func (f families) large(asker, server *pod) {
	var udp net.PacketConn
	if err := server.within(func() (err error) {
		udp, err = net.ListenPacket("udp", ":9000")
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	defer udp.Close()
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	text := bytes.Repeat([]byte("0123456789"), 500)
	for _, ip := range server.ips {
		f.nodes[0].eventually("fragments reach "+ip, func() error {
			conn, err := asker.dial("udp", net.JoinHostPort(ip, "9000"))
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
				return err
			}
			if _, err := conn.Write(text); err != nil {
				return err
			}
			b := make([]byte, 65536)
			n, err := conn.Read(b)
			if err == nil && !bytes.Equal(b[:n], text) {
				err = fmt.Errorf("%d bytes came back, want %d", n, len(text))
			}
			return err
		})
	}
}

// service makes a Service of IPv6 with endpoints, and returns its address.
func (f families) service(name string, endpoints ...string) string {
	f.t.Helper()
	ctx := f.t.Context()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	s.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP}}
	services, slices := f.c.client.CoreV1().Services("default"), f.c.client.DiscoveryV1().EndpointSlices("default")
	s, err := services.Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Ports: []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(familiesPort)),
			Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, e := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{e}})
	}
	if _, err := slices.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(slices.Delete(ctx, name, metav1.DeleteOptions{}),
			services.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			f.t.Error(err)
		}
	})
	return s.Spec.ClusterIP
}

// outside has the machine outside of the Nodes ask node ports, and a load balancer that accepts its addresses at one
// Node alone.
func (f families) outside(near, far *pod) {
	const (
		nearPort, farPort = 30281, 30282
		balancer          = "2001:db8:14::14"
	)
	near.serveOutside(f.t, 8081)
	far.serveOutside(f.t, 8081)
	objects := f.c.objects(f.t)
	for _, o := range outsideServices(near, far, f.nodes)[:4] {
		o.SetName("six-" + o.GetName())
		switch o := o.(type) {
		case *corev1.Service:
			o.Spec.IPFamilies, o.Spec.ExternalIPs = []corev1.IPFamily{corev1.IPv6Protocol}, nil
			port := int32(nearPort)
			if o.Name == "six-far" {
				port = farPort
			} else {
				o.Spec.Type, o.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"fd00:200:1::/64"}
			}
			for i := range o.Spec.Ports {
				o.Spec.Ports[i].NodePort = port
			}
		case *discoveryv1.EndpointSlice:
			o.Labels, o.AddressType = map[string]string{discoveryv1.LabelServiceName: o.Name}, discoveryv1.AddressTypeIPv6
			for i := range o.Ports {
				o.Ports[i].Port = new(int32(8081))
			}
			o.Endpoints[0].Addresses = []string{map[string]*pod{"six-near": near, "six-far": far}[o.Name].ips[1]}
		}
		if err := objects.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(f.t.Context()), o) })
		if s, ok := o.(*corev1.Service); ok && s.Name == "six-near" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancer}}
			if err := objects.Status().Update(f.t.Context(), s); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	via := func(node int) {
		f.t.Helper()
		if out, err := exec.Command("ip", "-6", "route", "replace", balancer, "via", fmt.Sprintf("fd00:200:%d::2",
			node)).CombinedOutput(); err != nil {
			f.t.Fatalf("%v: %s", err, out)
		}
	}
	via(1)
	check := func(r outsideRow) {
		f.t.Helper()
		r.within = func(f func()) { f() }
		f.nodes[0].eventually(r.network+" from outside to "+r.to, func() error {
			if got := r.answer(time.Second); got != r.want {
				return fmt.Errorf("%s, want %s", got, r.want)
			}
			return nil
		})
	}
	for _, r := range []outsideRow{
		{network: "tcp6", to: fmt.Sprintf("[fd00:200:1::2]:%d", farPort), want: far.name + " fd16::1:ffff:ffff:ffff:fffe"},
		{network: "udp6", to: fmt.Sprintf("[fd00:200:1::2]:%d", farPort), want: far.name + " fd16::1:ffff:ffff:ffff:fffe"},
		{network: "tcp6", to: fmt.Sprintf("[fd00:200:2::2]:%d", farPort), want: far.name + " fd00:200:2::1"},
		{network: "tcp6", to: net.JoinHostPort(balancer, "80"), want: near.name + " fd00:200:1::1"},
		{network: "udp6", to: net.JoinHostPort(balancer, "80"), want: near.name + " fd00:200:1::1"},
		{network: "tcp6", to: fmt.Sprintf("[fd00:200:1::2]:%d", nearPort), want: near.name + " fd00:200:1::1"},
		// The source ranges are about the address of the load balancer alone.
		{network: "tcp6", to: fmt.Sprintf("[fd00:200:2::2]:%d", nearPort), want: near.name + " fd16::2:ffff:ffff:ffff:fffe"},
	} {
		check(r)
	}
	testExternalIP(f.t, f.c, objects, f.nodes, near, 8081, check,
		map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.200.1.77", corev1.IPv6Protocol: "fd00:200:1::77"})
	via(2) // the client has another address there
	r := outsideRow{within: func(f func()) { f() }, network: "tcp6", to: net.JoinHostPort(balancer, "80")}
	if got := r.answer(2 * time.Second); got != "without an answer for 2s" {
		f.t.Errorf("a client out of the source ranges: %s", got)
	}
}

// leaves asks the machine outside of the Nodes, which sees the address of the Node.
func (f families) leaves(from *pod) {
	tcp, err := net.Listen("tcp6", "[fd00:200:1::1]:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { tcp.Close() })
	var client atomic.Value
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			client.Store(conn.RemoteAddr().(*net.TCPAddr).IP.String())
			conn.Close()
		}
	}()
	f.nodes[0].eventually("a Pod leaves the cluster over IPv6 with its Node's address", func() error {
		conn, err := from.dial("tcp6", tcp.Addr().String())
		if err != nil {
			return err
		}
		conn.Close()
		if seen := client.Load(); seen != "fd00:200:1::2" {
			return fmt.Errorf("the client is %v", seen)
		}
		return nil
	})
}

// policy applies a NetworkPolicy of IPv6 addresses.
func (f families) policy(asker, server *pod) {
	np := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dual"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "dual-far"}},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: asker.ips[1] + "/128"}}},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP),
					Port: new(intstr.FromInt32(familiesPort))}},
			}},
		},
	}
	policies := f.c.client.NetworkingV1().NetworkPolicies("default")
	if _, err := policies.Create(f.t.Context(), np, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	other := f.newPod(f.nodes[0], "dual-other", 2)
	at := func(ip string) string { return net.JoinHostPort(ip, fmt.Sprint(familiesPort)) }
	f.nodes[0].eventually("a policy allows one address of IPv6 alone", func() error {
		conn, err := asker.dial("tcp6", at(server.ips[1]))
		if err != nil {
			return err
		}
		conn.Close()
		return errors.Join(silent(asker, "tcp4", at(server.ips[0])), silent(other, "tcp6", at(server.ips[1])))
	})
	if err := policies.Delete(f.t.Context(), np.Name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.nodes[0].eventually("without the policy all are allowed", func() error {
		return errors.Join(asks(asker, server.ips[0], familiesPort, "x"), asks(other, server.ips[1], familiesPort, "x"))
	})
}

// silent is an error if a server answers.
func silent(p *pod, network, address string) error {
	return p.within(func() error {
		conn, err := net.DialTimeout(network, address, 500*time.Millisecond)
		if err == nil {
			conn.Close()
			return fmt.Errorf("%s connects to %s", p.name, address)
		}
		return nil
	})
}

// restart restarts the agents while a connection of IPv6 is open.
func (f families) restart(asker, server *pod) {
	conn := dialled(f.t, asker, "tcp6", server.ips[1])
	defer conn.Close()
	for _, n := range f.nodes {
		n.kill()
		n.start()
	}
	f.newPod(f.nodes[0], "dual-again", 2) // the agent is ready
	if _, err := ask(conn, "after a restart", 10*time.Second); err != nil {
		f.t.Errorf("a connection of IPv6 over a restart of the agents: %v", err)
	}
}

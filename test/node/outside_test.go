package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

// The ports of the Nodes that testOutside asks, and the addresses outside of all networks.
const (
	nearPort, farPort, localPort, emptyPort = 30181, 30182, 30183, 30184
	checkPort                               = 30190 // the load balancer's health checks
	balancer, external                      = "198.51.100.14", "198.51.100.15"
)

// serveOutside answers each TCP line and UDP datagram with the Pod's name and the address that it comes from.
func (p *pod) serveOutside(t *testing.T, port int) {
	t.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	err := p.within(func() (err error) {
		if tcp, err = net.Listen("tcp", fmt.Sprint(":", port)); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	reply := func(from net.Addr, word []byte) []byte {
		client, _, _ := net.SplitHostPort(from.String())
		return fmt.Appendf(nil, "%s %s %s", p.name, client, word)
	}
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if _, err := c.Write(reply(c.RemoteAddr(), b[:n])); err != nil {
						return
					}
				}
			}()
		}
	}()
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			p.received.Store(string(b[:n]), true)
			_, _ = udp.WriteTo(reply(from, b[:n]), from) // a lost answer is asked for again
		}
	}()
}

// dialled returns a connection of the machine outside, which tries until it has one.
func (n *secureNode) dialled(network, to string) (conn net.Conn) {
	n.t.Helper()
	n.eventually("a connection to "+to, func() (err error) {
		conn, err = net.DialTimeout(network, to, 10*time.Second)
		return err
	})
	return conn
}

// outsideServices are the Services of testOutside, with their EndpointSlices.
func outsideServices(near, far *pod, nodes []*secureNode) (out []client.Object) {
	service := func(name string, nodePort int32, server *pod, node string, edit func(*corev1.ServiceSpec)) {
		meta := metav1.ObjectMeta{Namespace: "default", Name: name}
		s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			port := strings.ToLower(string(protocol))
			s.Spec.Ports = append(s.Spec.Ports,
				corev1.ServicePort{Name: port, Protocol: protocol, Port: 80, NodePort: nodePort})
			slice.Ports = append(slice.Ports,
				discoveryv1.EndpointPort{Name: new(port), Protocol: new(protocol), Port: new(int32(8080))})
		}
		if edit != nil {
			edit(&s.Spec)
		}
		if server != nil {
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{server.ip}, NodeName: new(node)}}
		}
		out = append(out, s, slice)
	}
	service("near", nearPort, near, nodes[0].name, nil)
	service("far", farPort, far, nodes[1].name, func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{external} })
	service("local", localPort, near, nodes[0].name, func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.HealthCheckNodePort, s.LoadBalancerSourceRanges = checkPort, []string{"10.200.1.0/24"}
	})
	service("empty", emptyPort, nil, "", nil)
	return out
}

// outsideRow is a client of a Service, and what it gets.
type outsideRow struct {
	name    string
	within  func(func()) // where the client is
	network string
	to      string
	want    string // server and address that it sees, "refused", or of unlike
}

const droppedUnlike = "dropped, unlike "

// unlike is what outsideRow wants of a TCP connection that is dropped. The Node refuses connections to the control's
// address. So a connection is dropped if it has no answer when later ones to the control have theirs, however slow the
// machine is.
func unlike(control string) string { return droppedUnlike + control }

// ask makes a connection, and returns what outsideRow wants.
func (r outsideRow) ask() string {
	if control, ok := strings.CutPrefix(r.want, droppedUnlike); ok {
		return r.stateAfter(control)
	}
	return r.answer(5 * time.Second)
}

// stateAfter opens a connection, and returns its state after the control has refused several later ones.
func (r outsideRow) stateAfter(control string) string {
	to, err := netip.ParseAddrPort(r.to)
	if err != nil {
		return err.Error()
	}
	fd := -1
	r.within(func() {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
		}
	})
	if fd >= 0 {
		defer unix.Close(fd)
	}
	if !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Sprint("connect: ", err)
	}
	for range 3 {
		later := outsideRow{within: r.within, network: r.network, to: control}
		if got := later.answer(30 * time.Second); got != "refused" {
			return fmt.Sprintf("unknown, as the control %s is %s", control, got)
		}
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	switch n, err := unix.Poll(poll, 500); { // milliseconds
	case err != nil:
		return fmt.Sprint("poll: ", err)
	case n == 0:
		return r.want
	}
	if code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return fmt.Sprint(unix.Errno(code), " ", err)
	}
	return "accepted"
}

// answer makes a connection, and returns the server and address that answer, or what else has become of it.
func (r outsideRow) answer(timeout time.Duration) string {
	var conn net.Conn
	var err error
	r.within(func() { conn, err = net.DialTimeout(r.network, r.to, timeout) })
	var answer string
	if err == nil {
		defer conn.Close()
		const word = "hello"
		answer, err = ask(conn, word, timeout)
		answer = strings.TrimSuffix(answer, " "+word)
	}
	var silent net.Error
	switch {
	case err == nil:
		return answer
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &silent) && silent.Timeout():
		return fmt.Sprint("without an answer for ", timeout)
	}
	return err.Error()
}

// testOutside has two Nodes with antreaProxy.proxyAll. Clients outside use Services there: another machine, processes
// of the Nodes, and Pods.
func testOutside(t *testing.T, c *cluster) {
	nodes := newSecureNodes(t, c, "outside", [2]string{"10.14.1.0/24", "10.14.2.0/24"}, agentSpec{ProxyAll: true})
	near, far, asker := nodes[0].pod("near"), nodes[1].pod("far"), nodes[0].pod("asker")
	near.serveOutside(t, 8080)
	far.serveOutside(t, 8080)
	objects := c.objects(t)
	for _, o := range outsideServices(near, far, nodes) {
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
		if s, ok := o.(*corev1.Service); ok && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancer}}
			if err := objects.Status().Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	via := func(node int) { // the way of the machine outside to external addresses
		t.Helper()
		for _, ip := range []string{balancer, external} {
			out, err := exec.Command("ip", "route", "replace", ip, "via", fmt.Sprintf("10.200.%d.2", node)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	outside := func(f func()) { f() }
	pod := func(f func()) {
		if err := asker.within(func() error { f(); return nil }); err != nil {
			t.Error(err)
		}
	}
	at := func(address string, port int) string { return fmt.Sprint(address, ":", port) }
	check := func(r outsideRow) {
		t.Helper()
		got := ""
		for end := time.Now().Add(2 * time.Minute); ; {
			if got = r.ask(); got == r.want {
				return
			}
			if time.Now().After(end) {
				t.Errorf("%s, %s to %s: %s, want %s", r.name, r.network, r.to, got, r.want)
				return
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	first, second := "10.200.1.2", "10.200.2.2"
	via(1)
	for _, r := range []outsideRow{
		{"endpoint on the Node", outside, "tcp4", at(first, nearPort), "near 10.200.1.1"},
		{"endpoint on the other Node", outside, "tcp4", at(first, farPort), "far 10.14.1.254"},
		{"endpoint on the Node", outside, "udp4", at(first, nearPort), "near 10.200.1.1"},
		{"endpoint on the other Node", outside, "udp4", at(first, farPort), "far 10.14.1.254"},
		{"Local, with an endpoint", outside, "tcp4", at(first, localPort), "near 10.200.1.1"},
		{"by the other Node", outside, "tcp4", at(second, nearPort), "near 10.14.2.254"},
		{"Local, without an endpoint", outside, "tcp4", at(second, localPort), unlike(at(second, emptyPort))},
		{"no endpoint at all", outside, "tcp4", at(first, emptyPort), "refused"},
		{"load balancer", outside, "tcp4", at(balancer, 80), "near 10.200.1.1"},
		{"external address", outside, "tcp4", at(external, 80), "far 10.14.1.254"},
		{"external address", outside, "udp4", at(external, 80), "far 10.14.1.254"},

		{"other Node's process", nodes[1].in, "tcp4", at("192.168.77.1", farPort), "far 10.14.1.254"},
		{"other Node's process, Local", nodes[1].in, "tcp4", at("192.168.77.1", localPort), "near 192.168.77.2"},
		{"own process", nodes[0].in, "tcp4", at("192.168.77.1", nearPort), "near 192.168.77.1"},
		{"own process, 127.0.0.1", nodes[0].in, "tcp4", at("127.0.0.1", farPort), "far 10.14.1.1"},
		{"own process, Local, no endpoint here", nodes[1].in, "tcp4", at("127.0.0.1", localPort), "near 10.14.2.1"},

		{"Pod", pod, "tcp4", at("192.168.77.1", farPort), "far " + asker.ip},
		{"Pod to the other Node", pod, "tcp4", at("192.168.77.2", nearPort), "near 10.14.2.254"},
		{"Pod to the other Node, Local", pod, "tcp4", at("192.168.77.2", localPort),
			unlike(at("192.168.77.2", emptyPort))},
		{"Pod to an external address", pod, "tcp4", at(external, 80), "far " + asker.ip},
		{"Pod out of the source ranges", pod, "tcp4", at(balancer, 80), unlike(at("192.168.77.1", emptyPort))},
	} {
		check(r)
	}
	via(2)
	check(outsideRow{"other machine by the other Node", outside, "tcp4", at(external, 80), "far 10.200.2.1"})
	check(outsideRow{"machine out of the source ranges", outside, "tcp4", at(balancer, 80), unlike(at(second, emptyPort))})
	for url, want := range map[string]int{
		fmt.Sprintf("http://%s:%d/", first, checkPort):  http.StatusOK,
		fmt.Sprintf("http://%s:%d/", second, checkPort): http.StatusServiceUnavailable,
		fmt.Sprintf("http://%s:10256/healthz", second):  http.StatusOK,
	} {
		nodes[0].eventually(fmt.Sprintf("%s answers %d", url, want), func() error {
			answer, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); answer.StatusCode != want {
				return fmt.Errorf("%s: %s", answer.Status, text)
			}
			return nil
		})
	}
	testServicePolicy(t, objects, func(r outsideRow) {
		t.Helper()
		if r.within == nil {
			r.within = outside
		}
		check(r)
	}, at(first, nearPort), at(second, nearPort), nodes[1].in)
	ports := newHostPortsTest(t, nodes, asker, far, check)
	ports.works("with proxyAll")
	testExternalIP(t, c, objects, nodes, near, 8080, check,
		map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.200.1.77"})
	testOutsideOff(t, nodes, check)
	ports.works("without proxyAll")
	ports.changeHands()
	testKubeProxy(t, nodes[0], check)
}

// testExternalIP has one of two Nodes hold addresses of a pool, which are in networks of the first one. The server
// listens at a port of all addresses of near.
func testExternalIP(t *testing.T, c *cluster, objects client.Client, nodes []*secureNode, near *pod, port int32,
	check func(outsideRow), addresses map[corev1.IPFamily]string,
) {
	create := func(o client.Object) {
		t.Helper()
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	}
	for _, n := range nodes {
		for subresource, patch := range map[string]string{
			"":       fmt.Sprintf(`{"metadata":{"labels":{"edge":%q}}}`, n.name),
			"status": `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		} {
			var sub []string
			if subresource != "" {
				sub = append(sub, subresource)
			}
			if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), n.name, types.StrategicMergePatchType, []byte(patch),
				metav1.PatchOptions{}, sub...); err != nil {
				t.Fatal(err)
			}
		}
	}
	name := "held-" + near.name
	pool := &crdv1beta1.ExternalIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.NodeSelector.MatchLabels = map[string]string{"edge": nodes[0].name}
	held := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	held.Annotations = map[string]string{crdv1beta1.AnnotationExternalIPPool: name}
	held.Spec.Type, held.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 80}}
	var slicesOf []client.Object
	for _, version := range slices.Sorted(maps.Keys(addresses)) {
		address := addresses[version]
		pool.Spec.IPRanges = append(pool.Spec.IPRanges, crdv1beta1.IPRange{Start: address, End: address})
		held.Spec.IPFamilies = append(held.Spec.IPFamilies, version)
		held.Status.LoadBalancer.Ingress = append(held.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", GenerateName: name, Labels: map[string]string{discoveryv1.LabelServiceName: name},
		}, AddressType: discoveryv1.AddressType(version), Ports: []discoveryv1.EndpointPort{{Port: &port}}}
		i := slices.IndexFunc(near.ips, func(ip string) bool {
			return strings.Contains(ip, ":") == (version == corev1.IPv6Protocol)
		})
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: near.ips[i : i+1], NodeName: &nodes[0].name}}
		slicesOf = append(slicesOf, slice)
	}
	if len(addresses) == 2 {
		held.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	status := held.Status
	create(pool)
	create(held)
	for _, slice := range slicesOf {
		create(slice)
	}
	held.Status = status
	if err := objects.Status().Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	on := func(n *secureNode, want bool) {
		t.Helper()
		for _, address := range addresses {
			n.eventually(fmt.Sprintf("%s is on Node %s: %v", address, n.name, want), func() error {
				var text []byte
				var err error
				n.in(func() { text, err = exec.Command("ip", "-o", "addr", "show", "to", address).CombinedOutput() })
				if err == nil && (len(text) > 0) != want {
					err = fmt.Errorf("addresses: %q", text)
				}
				return err
			})
		}
	}
	on(nodes[0], true)
	clients := map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.200.1.1", corev1.IPv6Protocol: "fd00:200:1::1"}
	for version, address := range addresses {
		check(outsideRow{"address of a pool", func(f func()) { f() }, "tcp", net.JoinHostPort(address, "80"),
			near.name + " " + clients[version]})
	}
	pool.Spec.NodeSelector.MatchLabels["edge"] = nodes[1].name
	if err := objects.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	on(nodes[1], true)
	on(nodes[0], false)
	if err := objects.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	on(nodes[1], false)
}

// testServicePolicy applies a policy to a Service, for clients of one address.
func testServicePolicy(t *testing.T, objects client.Client, check func(outsideRow), first, second string,
	other func(func()),
) {
	p := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
	p.Spec = crdv1beta1.PolicySpec{
		Priority:  5,
		AppliedTo: []crdv1beta1.AppliedTo{{Service: &crdv1beta1.ObjectReference{Namespace: "default", Name: "near"}}},
		Ingress: []crdv1beta1.Rule{
			{
				Action: crdv1beta1.ActionReject,
				From:   []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: "10.200.1.1/32"}}},
			},
			{
				Action: crdv1beta1.ActionDrop,
				From:   []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: "10.200.0.0/16"}}},
			},
		},
	}
	if err := objects.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), p) })
	for _, r := range []outsideRow{
		{name: "client that a policy of the Service rejects", network: "tcp4", to: first, want: "refused"},
		{
			name: "by the other Node, where it has an address that is dropped", network: "tcp4", to: second,
			want: unlike(fmt.Sprint("10.200.2.2:", emptyPort)),
		},
		{
			name: "client that the policy does not name", within: other, network: "tcp4", to: "192.168.77.1" +
				first[strings.LastIndex(first, ":"):], want: "near 192.168.77.2",
		},
	} {
		check(r)
	}
	if err := objects.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check(outsideRow{name: "without the policy", network: "tcp4", to: first, want: "near 10.200.1.1"})
}

// testOutsideOff restarts the first Node's agent with open connections from outside, and then without
// antreaProxy.proxyAll. The connections last until they are closed.
func testOutsideOff(t *testing.T, nodes []*secureNode, check func(outsideRow)) {
	n := nodes[0]
	long := map[int]net.Conn{}
	for _, port := range []int{nearPort, farPort} {
		conn := n.dialled("tcp4", fmt.Sprint("10.200.1.2:", port))
		defer conn.Close()
		long[port] = conn
	}
	talk := func(when string) {
		t.Helper()
		for port, conn := range long {
			if _, err := ask(conn, "still", time.Minute); err != nil {
				t.Errorf("%s: the connection to port %d: %v", when, port, err)
			}
		}
	}
	talk("at first")
	started := func(what string) {
		t.Helper()
		n.eventually(what, func() error {
			s, err := n.status()
			if err == nil && !s.Ready {
				err = fmt.Errorf("it waits for %q; problems: %v", s.Waiting, s.Problems)
			}
			return err
		})
	}
	tables := func() (out string) {
		t.Helper()
		n.in(func() {
			text, err := exec.Command("nft", "list", "tables").CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			out = string(text)
		})
		return out
	}
	n.kill()
	talk("without an agent")
	n.start()
	started("the agent is ready again")
	talk("after a restart of the agent")
	if !strings.Contains(tables(), "inet tombolo-services") || !strings.Contains(n.flows(), "169.254.0.252") {
		t.Errorf("tables %s, flows\n%s", tables(), n.flows())
	}

	n.kill()
	n.spec.ProxyAll = false
	n.start()
	started("the agent is ready without proxyAll")
	n.eventually("the table of Services has gone", func() error {
		if text := tables(); strings.Contains(text, "tombolo-services") {
			return errors.New(text)
		}
		return nil
	})
	talk("without proxyAll")
	check(outsideRow{"node port without proxyAll", func(f func()) { f() }, "tcp4",
		fmt.Sprint("10.200.1.2:", nearPort), "refused"})
	n.kill()
	n.start()
	started("the agent is ready again without proxyAll")
	talk("after a restart without proxyAll")
	for _, conn := range long {
		conn.Close()
	}
	n.eventually("nothing is left for clients outside", func() error {
		for line := range strings.Lines(n.flows()) {
			if strings.Contains(line, "169.254.0.252") || strings.Contains(line, "10.14.1.254") {
				return errors.New(line)
			}
		}
		return nil
	})
}

package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// packetNode is a Node with a real datapath and the tables that program it: server (10.11.0.2 and fd11::2, and behind
// 10.97.0.11:80 and [fd97::11]:80) and the clients a (3) and b (4), each with a label app of that name.
type packetNode struct {
	*realNode
	*sources
	server, a, b namespace
	meters       map[uint32]string // that the switch was given
}

func newPacketNode(t *testing.T) *packetNode {
	t.Helper()
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	s := dualNode(1)
	s.Node.SCTPByPort = !ovstest.System()
	s.Pods = append(s.Pods, Pod{Namespace: "default", Name: "pod3", Interface: "pod3-0a0b0c",
		MAC: ofp.MAC{0x0a, 0, 0, 0, 0, 4}, IPs: []netip.Addr{addrOf("10.11.0.4"), addrOf("fd11::4")}, Port: 3})
	n := &packetNode{realNode: newNode(t, underlay, s, "one", eastOne, "10.97.0.0/16"), sources: newSources(s)}
	n.server, n.a, n.b = n.realNode.pods[0], n.realNode.pods[1], n.realNode.pods[2]
	n.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	for i, app := range []string{"server", "a", "b"} {
		n.label(fmt.Sprint("pod", i+1), app, s.Pods[i].IPs[0].String())
	}
	n.sync(t)
	return n
}

func (n *packetNode) label(pod, app, ip string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod, Labels: map[string]string{"app": app}}}
	p.Spec.NodeName, p.Spec.Containers, p.Status.PodIPs = "node-1", make([]corev1.Container, 1), []corev1.PodIP{{IP: ip}}
	n.policy.Pods.Set(derive.Object{Namespace: "default", Name: pod}, policy.PodFactsOf(p))
}

// allow lets Pods with a label into the server, and isolates it.
func (n *packetNode) allow(name, app string, annotations ...map[string]string) {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, a := range annotations {
		p.Annotations = a
	}
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	n.policy.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(p), policy.FactsOf(p))
}

func (n *packetNode) forget(name string) {
	n.policy.Policies[policy.NetworkPolicy].Delete(derive.Object{Namespace: "default", Name: name})
}

// sync gives the switch the flows of now.
func (n *packetNode) sync(t *testing.T) {
	t.Helper()
	n.engine.Pass()
	var b strings.Builder
	set := setOf(t, n.held)
	if n.meters == nil {
		n.meters = map[uint32]string{}
	}
	for m := range set.Meters() {
		if n.meters[m.ID] == m.String() {
			continue
		}
		command := "mod-meter"
		if n.meters[m.ID] == "" && m.ID >= firstShare && m.ID < firstPodMeter { // newNode has given it the others
			command = "add-meter"
		}
		n.ovs.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", command, n.ovs.dir+"/br-int.mgmt", m.String())
		n.meters[m.ID] = m.String()
	}
	for f := range set.Flows() {
		fmt.Fprintln(&b, f)
	}
	n.ovs.run(t, b.String(), "ovs-ofctl", "-O", "OpenFlow15", "--bundle", "replace-flows", n.ovs.dir+"/br-int.mgmt", "-")
	n.ovs.appctl(t, "revalidator/wait")
}

// change gives the switch the present flows. It also starts to judge the connections again that they concern.
func (n *packetNode) change(t *testing.T) {
	t.Helper()
	n.sync(t)
	n.tables.Policies.Known.Recheck(n.tables.Policies.Known.Rechecks(n.dump(t)))
	n.sync(t)
}

func (n *packetNode) dump(t *testing.T) string {
	t.Helper()
	datapath := "netdev@ovs-netdev"
	if ovstest.System() {
		datapath = "system@ovs-system"
	}
	return n.ovs.appctl(t, "dpctl/dump-conntrack", datapath, fmt.Sprintf("zone=%d", ServiceZone))
}

// restart makes the tables from nothing, as a new process does.
func (n *packetNode) restart() {
	fresh := newSources(n.State)
	fresh.policy.Pods.Replace(rowsOf(n.policy.Pods))
	fresh.policy.Namespaces.Replace(rowsOf(n.policy.Namespaces))
	for kind, s := range n.policy.Policies {
		fresh.policy.Policies[kind].Replace(rowsOf(s))
	}
	n.sources = fresh
}

// talk is a connection that stays open.
type talk struct {
	net.Conn
	r *bufio.Reader
}

func open(t *testing.T, from namespace, address string) talk {
	t.Helper()
	c, err := from.dial("tcp", address)
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	t.Cleanup(func() { c.Close() })
	out := talk{c, bufio.NewReader(c)}
	if err := out.send(replyTimeout()); err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return out
}

// send sends a line and waits for the answer.
func (c talk) send(limit time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := c.r.ReadString('\n')
	return err
}

func (c talk) mustPass(t *testing.T, why string) {
	t.Helper()
	if err := c.send(replyTimeout()); err != nil {
		t.Errorf("%s: a connection that is allowed is cut: %v", why, err)
	}
}

func (c talk) mustNot(t *testing.T, why string) {
	t.Helper()
	if err := c.send(silence()); err == nil {
		t.Errorf("%s: a connection that is forbidden goes on", why)
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %v", why, err)
	}
}

// TestEstablished changes policies and labels under TCP connections of real programs. A connection that a change
// concerns is cut, in both directions, and the other connection goes on.
func TestEstablished(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.server.serve(t, "tcp", "10.11.0.2:8080", "server")
	stream(t, n.server, "10.11.0.2:8081")
	const service, pod = "10.97.0.11:80", "10.11.0.2:8080"

	before := open(t, n.a, pod)
	n.allow("from-b", "b")
	n.change(t)
	before.mustNot(t, "a policy that isolates the server")

	n.allow("from-a", "a")
	n.change(t)
	a, direct, b := open(t, n.a, service), open(t, n.a, pod), open(t, n.b, service)
	download, err := n.a.dial("tcp", "10.11.0.2:8081")
	if err != nil {
		t.Fatal(err)
	}
	defer download.Close()
	mustStream(t, download, true)
	n.allow("from-a-too", "a") // a rule that comes takes nothing
	n.change(t)
	a.mustPass(t, "a policy comes")
	n.forget("from-a")
	n.change(t)
	a.mustPass(t, "another rule allows it")
	b.mustPass(t, "another client's rule is gone")
	mustStream(t, download, true)
	n.forget("from-a-too")
	n.change(t)
	a.mustNot(t, "its rule is gone")
	direct.mustNot(t, "its rule is gone")
	mustStream(t, download, false)
	b.mustPass(t, "another client's rule is gone")

	n.label("pod3", "c", "10.11.0.4")
	n.change(t)
	b.mustNot(t, "the client has other labels")

	n.allow("from-c", "c")
	n.change(t)
	c := open(t, n.b, service)
	n.restart()
	n.change(t)
	c.mustPass(t, "the agent restarts")
	n.restart()
	n.forget("from-c")
	n.change(t)
	c.mustNot(t, "its rule went while the agent was away")
}

// TestProxyOnNode sends connections from outside to a Pod with the host's own address, as kube-proxy may do: policies
// judge them. The host's own connections are the kubelet's probes, which pass.
func TestProxyOnNode(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.server.serve(t, "tcp", "10.11.0.2:8080", "server")
	outside := newNamespace(t)
	n.host.ip(t, fmt.Sprintf("link add outside type veth peer name eth0 netns %d", outside.pid),
		"address add 198.51.100.1/24 dev outside", "link set outside up",
		// This is the host's configuration of agent.hostOf:
		"rule add priority 29696 not iif lo lookup 116",
		fmt.Sprintf("route add 10.11.0.0/24 via %s dev gw0 onlink table 116", vip))
	outside.ip(t, "address add 198.51.100.7/24 dev eth0", "link set eth0 up")
	outside.wholeChecksums(t, "eth0")
	n.host.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	n.host.feed(t, `table ip proxy {
		chain services { type nat hook prerouting priority dstnat; tcp dport 30080 dnat to 10.11.0.2:8080; }
		chain sources { type nat hook postrouting priority srcnat; ct status & dnat == dnat masquerade; }
	}`, "nft", "-f", "-")
	ask := func(from namespace, address string, want bool, why string) {
		t.Helper()
		limit := replyTimeout()
		if !want {
			limit = silence()
		}
		have, err := from.askWithin(limit, "tcp", address)
		if ok := err == nil; ok != want || ok && have != "server 10.11.0.1" {
			t.Errorf("%s: %s answers %q, %v", why, address, have, err)
		}
	}
	const nodePort, pod = "198.51.100.1:30080", "10.11.0.2:8080"
	ask(outside, nodePort, true, "no policy")
	ask(n.host, pod, true, "no policy")
	n.allow("from-b", "b")
	n.sync(t)
	ask(n.host, pod, true, "the Node's own")
	ask(outside, nodePort, false, "forwarded by the Node, with its address")
}

// TestEstablishedKept checks policies that leave known connections alone, when they come and when they go.
func TestEstablishedKept(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.server.serve(t, "tcp", ":8080", "server")
	keep := map[string]string{policy.AnnotationEstablished: "keep"}
	before := open(t, n.a, "10.11.0.2:8080")
	n.allow("from-b", "b", keep)
	n.change(t)
	before.mustPass(t, "a policy that keeps connections isolates the server")
	b := open(t, n.b, "10.97.0.11:80")
	n.allow("from-c", "c", keep)
	n.forget("from-b")
	n.change(t)
	b.mustPass(t, "a policy that keeps connections is gone")
	if c, err := n.b.dialWithin(silence(), "tcp", "10.97.0.11:80"); err == nil {
		c.Close()
		t.Error("a new connection is allowed")
	}
}

// stream sends without end to each client that connects.
func stream(t *testing.T, ns namespace, address string) {
	t.Helper()
	err := ns.do(func() error {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		accept(t, l, func(c net.Conn) {
			for {
				if _, err := c.Write(make([]byte, 1000)); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond) // a stream that never fills the client's window
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustStream reads the bytes that have arrived and fails unless more come, or do not come.
func mustStream(t *testing.T, c net.Conn, want bool) {
	t.Helper()
	buf, idle, pause := make([]byte, 1<<16), 0, silence()/10
	if want {
		pause = replyTimeout()
	}
	for range 50 {
		if err := c.SetReadDeadline(time.Now().Add(pause)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			if idle++; idle == 3 {
				break
			}
		}
	}
	if have := idle < 3; have != want {
		t.Errorf("the download goes on: %v, want %v", have, want)
	}
}

// packetsIn gives take the packets that the switch sends to the agent, and returns a function that sends packets to the
// switch.
func (n *packetNode) packetsIn(t *testing.T, take func(ofp.PacketIn2)) (send func(ofp.PacketOut)) {
	t.Helper()
	c, err := ofconn.Connect(t.Context(), ofconn.UnixDialer(n.ovs.dir+"/br-int.mgmt"), nil, func(_ uint32, m ofp.Message) {
		if in, ok := m.(ofp.PacketIn2); ok {
			take(in)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(ofp.SetPacketInFormat{Format: ofp.PacketInNXM2}, ofp.SetConfig{MissSendLen: 0xffff}); err != nil {
		t.Fatal(err)
	}
	return func(out ofp.PacketOut) { _ = c.SendContext(t.Context(), out) }
}

// answer answers packets as the agent does.
func (n *packetNode) answer(t *testing.T) {
	t.Helper()
	answers := make(chan ofp.PacketOut, 100)
	send := n.packetsIn(t, func(in ofp.PacketIn2) {
		if out, err := Reject(in, frontendsOf(n.State)); err == nil {
			answers <- out
		}
	})
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case out := <-answers:
				send(out)
			}
		}
	}()
}

// TestRejected checks that clients get an answer at once if policies reject their connections, at either end. It comes
// from the address that they have asked for.
func TestRejected(t *testing.T) {
	n := newPacketNode(t)
	n.answer(t)
	n.server.serve(t, "tcp", ":8080", "server")
	n.server.serve(t, "tcp6", ":8080", "server")
	rule := []policy.RuleFacts{{Action: policy.Reject, AnyPeer: true, AnyPort: true}}
	reject := func(app string, f policy.Facts) {
		f.Stage, f.TierPriority, f.Priority, f.AppliedTo = policy.Admin, 250, 5,
			[]policy.Selector{{Namespace: "default", Pods: "app=" + app}}
		n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "reject"}: f})
		n.sync(t)
	}
	for _, test := range []struct {
		name, app string
		facts     policy.Facts
	}{
		{"by the server's policy", "server", policy.Facts{Ingress: &policy.DirectionFacts{Rules: rule}}},
		{"by the client's policy", "a", policy.Facts{Egress: &policy.DirectionFacts{Rules: rule}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			reject(test.app, test.facts)
			for _, address := range []string{"10.11.0.2:8080", "10.97.0.11:80", "[fd11::2]:8080", "[fd97::11]:80"} {
				if c, err := n.a.dial(over("tcp", address), address); err == nil {
					c.Close()
					t.Errorf("%s answers", address)
				} else if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: %v, want connection refused", address, err)
				}
			}
			// Linux's errors for "administratively prohibited" (icmp(7), RFC 4443 3.1)
			for address, want := range map[string]error{"10.11.0.2:53": syscall.EHOSTUNREACH, "[fd11::2]:53": syscall.EACCES} {
				c, err := n.a.dial(over("udp", address), address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if err := c.SetDeadline(time.Now().Add(replyTimeout())); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write([]byte("?")); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 10)); !errors.Is(err, want) {
					t.Errorf("UDP %s: %v, want %v", address, err, want)
				}
			}
		})
	}
	for _, address := range []string{"10.97.0.11:80", "[fd97::11]:80"} {
		if _, err := n.b.ask(over("tcp", address), address); err != nil {
			t.Errorf("a client without policies: %v", err)
		}
	}
}

// over returns the network of an address: of IPv6, or of IPv4.
func over(network, address string) string {
	if strings.HasPrefix(address, "[") {
		return network + "6"
	}
	return network
}

// TestToServices rejects connections to a Service, and not those to its endpoint itself.
func TestToServices(t *testing.T) {
	n := newPacketNode(t)
	n.answer(t)
	n.server.serve(t, "tcp", ":8080", "server")
	n.server.serve(t, "tcp6", ":8080", "server")
	frontend := frontendNamed(t, n.State, "10.97.0.11:80")
	name := derive.Object{Namespace: frontend.Namespace, Name: frontend.Service}
	n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "reject"}: {
		Stage: policy.Admin, TierPriority: 250, Priority: 5,
		AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
		Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{{Action: policy.Reject,
			Services: []policy.ServicePeer{{Object: name}}, AnyPort: true}}},
	}})
	n.sync(t)
	for service, endpoint := range map[string]string{
		"10.97.0.11:80": "10.11.0.2:8080", "[fd97::11]:80": "[fd11::2]:8080",
	} {
		network := over("tcp", service)
		if c, err := n.a.dial(network, service); err == nil {
			c.Close()
			t.Errorf("Service %s answers", service)
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Service %s: %v, want connection refused", service, err)
		}
		if _, err := n.a.ask(network, endpoint); err != nil {
			t.Errorf("its endpoint %s: %v", endpoint, err)
		}
		if _, err := n.b.ask(network, service); err != nil {
			t.Errorf("a client without policies, %s: %v", service, err)
		}
	}
}

func frontendNamed(t *testing.T, s State, address string) service.Frontend {
	t.Helper()
	for _, f := range s.Frontends {
		if f.VIP.String() == address {
			return f
		}
	}
	t.Fatalf("no Service has %s", address)
	return service.Frontend{}
}

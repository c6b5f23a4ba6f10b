package node

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

var starts = flag.Int("starts", 100, "how many Pods are started against standing policies")

// Roles of Pods, and ports of the server. The policies of guard decide who may reach which.
const (
	friend   = "friend"   // may reach all ports but dropped
	stranger = "stranger" // the server takes nothing of it but on port open
	caged    = "caged"    // sends to port open alone
	banned   = "banned"   // sends to port open alone, by a rule that drops
	outcast  = "outcast"  // the server takes nothing of it, by a rule that drops by label
	seeker   = "seeker"   // sends nothing to Pods that are hidden, by a rule that drops by label
	hidden   = "hidden"

	openPort    = 9001
	guardedPort = 9000
	droppedPort = 9002
)

// guard has a server, with its API object, and the policies.
func guard(r *rig) (*pod, *witness) {
	r.t.Helper()
	ctx := r.t.Context()
	only := func(port int) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt(port))},
			{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt(port))}}
	}
	role := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"role": name}}
	}
	server := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "server"}}
	server.Spec.PodSelector = role("server")
	server.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: only(openPort)},
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: new(role(friend))}}}}
	cage := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cage"}}
	cage.Spec.PodSelector, cage.Spec.PolicyTypes = role(caged), []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	cage.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: only(openPort),
		To: []networkingv1.NetworkPolicyPeer{{PodSelector: new(role("server"))}}}}
	drop := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "drop"}}
	selected := func(name string) []crdv1beta1.AppliedTo {
		return []crdv1beta1.AppliedTo{{PodSelector: new(role(name))}}
	}
	number := func(port int) (out []crdv1beta1.Port) {
		for _, p := range only(port) {
			out = append(out, crdv1beta1.Port{Protocol: p.Protocol, Port: p.Port})
		}
		return out
	}
	drop.Spec = crdv1beta1.PolicySpec{
		Priority: 5, Tier: "securityops",
		Ingress: []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop, Ports: number(droppedPort),
			AppliedTo: selected("server")}},
		Egress: []crdv1beta1.Rule{
			{Action: crdv1beta1.ActionPass, Ports: number(openPort), AppliedTo: selected(banned)},
			{Action: crdv1beta1.ActionDrop, AppliedTo: selected(banned)},
			{Action: crdv1beta1.ActionDrop, AppliedTo: selected(seeker),
				To: []crdv1beta1.Peer{{PodSelector: new(role(hidden))}}},
		},
	}
	drop.Spec.Ingress = append(drop.Spec.Ingress, crdv1beta1.Rule{
		Action: crdv1beta1.ActionDrop, AppliedTo: selected("server"),
		From: []crdv1beta1.Peer{{PodSelector: new(role(outcast))}},
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{networkingv1.AddToScheme, crdv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			r.t.Fatal(err)
		}
	}
	objects, err := client.New(r.cluster.server.Config, client.Options{Scheme: scheme})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, o := range []client.Object{server, cage, drop} {
		if err := objects.Create(ctx, o); err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = objects.Delete(context.Background(), o) })
	}
	p := r.startAs("server", "server")
	return p, newWitness(r.t, p)
}

// startAs starts a Pod of a role, with its API object.
func (r *rig) startAs(name, role string) *pod {
	r.t.Helper()
	if err := r.object(name, role); err != nil {
		r.t.Fatal(err)
	}
	p := r.add(name)
	if err := r.running(p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// object creates the API object of a Pod of this Node that is about to start.
func (r *rig) object(name, role string, labels ...string) error {
	return r.objectOn(nodeName, name, role, labels...)
}

// objectOn creates the API object of a Pod of a Node.
func (r *rig) objectOn(node, name, role string, labels ...string) error {
	set := map[string]string{"role": role}
	for _, l := range labels {
		set[l] = ""
	}
	pods := r.cluster.client.CoreV1().Pods("default")
	o, err := pods.Create(r.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: set},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err == nil {
		r.uids.Store(name, o.UID)
	}
	r.t.Cleanup(func() {
		_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	})
	return err
}

// running writes a Pod's address, as the kubelet does.
func (r *rig) running(p *pod) error {
	pods := r.cluster.client.CoreV1().Pods("default")
	o, err := pods.Get(r.t.Context(), p.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	o.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.ip}
	for _, ip := range p.ips {
		o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	_, err = pods.UpdateStatus(r.t.Context(), o, metav1.UpdateOptions{})
	return err
}

// witness answers on the ports of the server, and remembers whose packets have come: clients say "role name".
type witness struct {
	mu   sync.Mutex
	seen map[string]int // "role port"
}

func newWitness(t testing.TB, p *pod) *witness {
	t.Helper()
	w := &witness{seen: map[string]int{}}
	for _, port := range []int{openPort, guardedPort, droppedPort} {
		var tcp net.Listener
		var udp net.PacketConn
		if err := p.within(func() (err error) {
			if tcp, err = net.Listen("tcp4", fmt.Sprint(":", port)); err != nil {
				return err
			}
			udp, err = net.ListenPacket("udp4", fmt.Sprint(":", port))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		answer(t, tcp, udp, func(text string) string {
			w.note(text, port)
			return text
		})
	}
	return w
}

func (w *witness) note(text string, port int) {
	role, _, _ := strings.Cut(text, " ")
	w.mu.Lock()
	w.seen[fmt.Sprint(role, " ", port)]++
	w.mu.Unlock()
}

// forbidden are the ports that a role must not reach.
var forbidden = map[string][]int{friend: {droppedPort}, stranger: {guardedPort, droppedPort},
	caged: {guardedPort, droppedPort}, banned: {guardedPort, droppedPort},
	outcast: {openPort, guardedPort, droppedPort}, seeker: {openPort, guardedPort, droppedPort}}

// check fails the test when something forbidden has come.
func (w *witness) check(t testing.TB, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for role, ports := range forbidden {
		for _, port := range ports {
			if n := w.seen[fmt.Sprint(role, " ", port)]; n > 0 {
				t.Errorf("%s: %d packets of a %s have come to port %d", when, n, role, port)
			}
		}
	}
}

// try sends to the ports that are forbidden to a role, as fast as it can from the moment there is a way, until ctx
// ends, and returns how many datagrams went out.
func try(ctx context.Context, p *pod, role, server string) (sent int, err error) {
	return tryPorts(ctx, p, role, server, forbidden[role])
}

// tryPorts is try for given ports.
func tryPorts(ctx context.Context, p *pod, role, server string, ports []int) (sent int, err error) {
	err = p.within(func() error {
		var conns []net.Conn
		for ctx.Err() == nil {
			if conns == nil {
				for _, port := range ports {
					c, err := net.Dial("udp4", fmt.Sprint(server, ":", port))
					if err != nil {
						break // no address or no route yet
					}
					conns = append(conns, c)
				}
				if len(conns) < len(ports) {
					for _, c := range conns {
						c.Close()
					}
					conns = nil
				}
			}
			for i, c := range conns {
				if _, err := c.Write([]byte(role + " " + p.name)); err == nil {
					sent++
				}
				if sent%16 == 0 { // and a connection
					if err := dial(fmt.Sprint(server, ":", ports[i]), 2*time.Millisecond); err == nil {
						return fmt.Errorf("%s, a %s, has connected to port %d", p.name, role, ports[i])
					}
				}
			}
			time.Sleep(500 * time.Microsecond)
		}
		for _, c := range conns {
			c.Close()
		}
		return nil
	})
	return sent, err
}

// reach asks the server once, on the port that all may reach; friends on the guarded one as well.
func reach(p *pod, role, server string, timeout time.Duration) error {
	ports := []int{openPort}
	if role == friend {
		ports = append(ports, guardedPort)
	}
	for _, port := range ports {
		for _, network := range []string{"udp4", "tcp4"} {
			var c net.Conn
			err := p.within(func() (err error) {
				c, err = net.DialTimeout(network, fmt.Sprint(server, ":", port), timeout)
				return err
			})
			if err == nil {
				_, err = ask(c, role+" "+p.name, timeout)
				c.Close()
			}
			if err != nil {
				return fmt.Errorf("%s, a %s, to port %d by %s: %w", p.name, role, port, network, err)
			}
		}
	}
	return nil
}

// testStarts starts Pods while policies stand. From the moment their interface has an address until they are deleted,
// most send forbidden packets, and no such packet arrives. Allowed connections work when ADD has returned: at once for
// a Pod that was quiet before, and for the others once the switch has revalidated its decisions about their packets,
// which it does in its own time. The agent receives some Pods only later: until then they reach nothing.
func testStarts(t *testing.T, c *cluster) {
	r := newRig(t, c).withOVS()
	r.ready()
	server, seen := guard(r)
	first := r.startAs("first", caged)
	r.eventually("the server and the policies are known",
		func() error { return reach(first, caged, server.ip, time.Second) })
	r.del(first)
	roles := []string{friend, stranger, caged, banned}
	var sent, slow atomic.Int64
	begin := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for i := range *starts {
		role, name := roles[i%len(roles)], fmt.Sprint("start-", i)
		late, quiet := i%20 == 19, i/len(roles)%4 == 3
		var labels []string
		if i%5 == 0 {
			labels = []string{name} // which no Pod had before: the policies for it come with it
		}
		if !late {
			if err := r.object(name, role, labels...); err != nil {
				t.Fatal(err)
			}
		}
		p := r.sandbox(name)
		g.Go(func() error {
			trying, stop := context.WithCancel(ctx)
			defer stop()
			var trier errgroup.Group
			trier.Go(func() error {
				if quiet {
					return nil
				}
				n, err := try(trying, p, role, server.ip)
				if sent.Add(int64(n)); err == nil && n == 0 {
					err = fmt.Errorf("%s sent nothing", name)
				}
				return err
			})
			if err := r.attach(p); err != nil {
				return err
			}
			if late {
				if err := reach(p, role, server.ip, 50*time.Millisecond); err == nil {
					return fmt.Errorf("%s reaches the server before its labels are known", name)
				}
				if err := r.object(name, role); err != nil {
					return err
				}
				if err := r.running(p); err != nil { // ADD had no UID: the address shows that it is this Pod
					return err
				}
			}
			for began, timeout := time.Now(), 300*time.Millisecond; reach(p, role, server.ip, timeout) != nil; slow.Add(1) {
				if time.Since(began) > time.Minute || quiet && !late && time.Since(began) > time.Second {
					break // and say why
				}
			}
			if err := reach(p, role, server.ip, 20*time.Second); err != nil {
				return fmt.Errorf("after ADD, quiet %v, late %v: %w", quiet, late, err)
			}
			stop()
			if err := trier.Wait(); err != nil {
				return err
			}
			if _, err := r.call("DEL", p); err != nil {
				return err
			}
			p.unmount()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	seen.check(t, "Pod starts")
	t.Logf("%d Pods in %v sent %d datagrams to where they must not; %d times a Pod had to ask again", *starts,
		time.Since(begin).Round(time.Second), sent.Load(), slow.Load())
	r.del(server)
}

// dial makes a connection and drops it, which leaves no port behind.
func dial(address string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp4", address, timeout)
	if err != nil {
		return err
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	return c.Close()
}

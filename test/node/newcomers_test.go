package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

var (
	newcomers       = flag.Int("newcomers", 16, "how many Pods TestNode/newcomers starts on each of two Nodes")
	newcomersBench  = flag.Int("newcomers.bench", 1000, "how many Pods BenchmarkTableNewcomers starts for each row")
	newcomersReport = flag.Duration("newcomers.report", time.Second, "when the status has the address, after CNI ADD")
)

// Roles in addition to the roles of guard.
const (
	newcomer = "newcomer"
	searcher = "searcher" // sends to newcomers
)

// denial is a rule that drops by label what a newcomer sends to the server, or what the searcher sends to a newcomer.
// Each has a port of its own, so that one start tries all of them.
type denial struct {
	kind           string
	ingress        bool
	client, server string // roles
	port           int
}

// denials has one for each kind of policy that denies and each direction, with the newcomer at each end.
func denials() (out []denial) {
	for _, kind := range []string{"ACNP", "ANNP", "ClusterNetworkPolicy"} {
		for _, ingress := range []bool{true, false} {
			out = append(out, denial{kind, ingress, newcomer, "server", 9100 + len(out)})
			out = append(out, denial{kind, ingress, searcher, newcomer, 9100 + len(out)})
		}
	}
	return out
}

// portsAt are those to which a role must not send.
func portsAt(role string) (out []int) {
	for _, d := range denials() {
		if d.client == role {
			out = append(out, d.port)
		}
	}
	return out
}

// newcomerPolicies are the policies with all denials. The port that newcomers may reach is denied to other labels.
func newcomerPolicies() (out []client.Object) {
	role := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"role": name}}
	}
	var rules [2]struct{ ingress, egress []crdv1beta1.Rule } // of ACNP, of ANNP
	rule := func(applied, peer string, port int, ingress bool) crdv1beta1.Rule {
		r := crdv1beta1.Rule{Action: crdv1beta1.ActionDrop}
		r.AppliedTo = []crdv1beta1.AppliedTo{{PodSelector: new(role(applied))}}
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			r.Ports = append(r.Ports, crdv1beta1.Port{Protocol: new(protocol), Port: new(intstr.FromInt(port))})
		}
		if peers := []crdv1beta1.Peer{{PodSelector: new(role(peer))}}; ingress {
			r.From = peers
		} else {
			r.To = peers
		}
		return r
	}
	for i, d := range denials() {
		applied, peer := d.client, d.server
		if d.ingress {
			applied, peer = d.server, d.client
		}
		if d.kind == "ClusterNetworkPolicy" {
			pods := func(name string) *npv1alpha2.NamespacedPod { return &npv1alpha2.NamespacedPod{PodSelector: role(name)} }
			at := &npv1alpha2.Port{Number: int32(d.port)}
			protocols := []npv1alpha2.ClusterNetworkPolicyProtocol{
				{TCP: &npv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: at}},
				{UDP: &npv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: at}},
			}
			const deny = npv1alpha2.ClusterNetworkPolicyRuleActionDeny
			p := &npv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("newcomers-", i)}}
			p.Spec.Tier, p.Spec.Priority, p.Spec.Subject.Pods = npv1alpha2.AdminTier, int32(i), pods(applied)
			if d.ingress {
				from := []npv1alpha2.ClusterNetworkPolicyIngressPeer{{Pods: pods(peer)}}
				p.Spec.Ingress = []npv1alpha2.ClusterNetworkPolicyIngressRule{{Action: deny, From: from, Protocols: protocols}}
			} else {
				to := []npv1alpha2.ClusterNetworkPolicyEgressPeer{{Pods: pods(peer)}}
				p.Spec.Egress = []npv1alpha2.ClusterNetworkPolicyEgressRule{{Action: deny, To: to, Protocols: protocols}}
			}
			out = append(out, p)
			continue
		}
		of := &rules[0]
		if d.kind == "ANNP" {
			of = &rules[1]
		}
		if r := rule(applied, peer, d.port, d.ingress); d.ingress {
			of.ingress = append(of.ingress, r)
		} else {
			of.egress = append(of.egress, r)
		}
	}
	rules[0].ingress = append(rules[0].ingress, rule("server", outcast, openPort, true))
	spec := func(i int) crdv1beta1.PolicySpec {
		return crdv1beta1.PolicySpec{
			Priority: 5, Tier: "securityops", Ingress: rules[i].ingress, Egress: rules[i].egress,
		}
	}
	name := metav1.ObjectMeta{Name: "newcomers"}
	out = append(out, &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: name, Spec: spec(0)})
	name.Namespace = "default"
	return append(out, &crdv1beta1.NetworkPolicy{ObjectMeta: name, Spec: spec(1)})
}

// listen counts what arrives at ports of a Pod, and answers on the port that is open.
func (p *pod) listen(ports []int, arrived *atomic.Int64) (end func(), err error) {
	var sockets []interface{ Close() error }
	end = func() {
		for _, s := range sockets {
			s.Close()
		}
	}
	err = p.within(func() error {
		for _, port := range append([]int{openPort}, ports...) {
			udp, err := net.ListenPacket("udp4", fmt.Sprint(":", port))
			if err != nil {
				return err
			}
			sockets = append(sockets, udp)
			go func() {
				b := make([]byte, 100)
				for {
					n, from, err := udp.ReadFrom(b)
					if err != nil {
						return
					}
					if port != openPort {
						arrived.Add(1)
						continue
					}
					_, _ = udp.WriteTo(b[:n], from) // a lost answer is asked for again
				}
			}()
			if port == openPort {
				continue
			}
			tcp, err := net.Listen("tcp4", fmt.Sprint(":", port))
			if err != nil {
				return err
			}
			sockets = append(sockets, tcp)
			go func() {
				for {
					c, err := tcp.Accept()
					if err != nil {
						return
					}
					arrived.Add(1)
					c.Close()
				}
			}()
		}
		return nil
	})
	return end, err
}

// firstAnswer asks the open port of an address every 2 ms, and returns when an answer has come.
func (p *pod) firstAnswer(address string) error {
	c, err := p.dial("udp4", fmt.Sprint(address, ":", openPort))
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 100)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		asked := time.Now()
		_, _ = c.Write([]byte(p.name)) // an answer of ICMP is an error of the next one
		if err := c.SetReadDeadline(asked.Add(2 * time.Millisecond)); err != nil {
			return err
		}
		if _, err := c.Read(b); err == nil {
			return nil
		}
		<-time.After(time.Until(asked.Add(2 * time.Millisecond)))
	}
	return fmt.Errorf("%s has no answer from %s after a minute", p.name, address)
}

// arrivals are two Nodes: a server and a searcher on the first, and newcomers on either.
type arrivals struct {
	t                testing.TB
	nodes            []*secureNode
	server, searcher *pod
	reached          atomic.Int64 // what has come to the server that is forbidden
	started          int
}

func newArrivals(t testing.TB, c *cluster) *arrivals {
	t.Helper()
	a := &arrivals{t: t, nodes: newSecureNodes(t, c, "arrivals", [2]string{"10.13.1.0/24", "10.13.2.0/24"}, agentSpec{})}
	for _, n := range a.nodes {
		n.eventually("the agent is ready", func() error {
			s, err := n.status()
			if err == nil && !s.Ready {
				err = fmt.Errorf("it waits for %q", s.Waiting)
			}
			return err
		})
	}
	for role, p := range map[string]**pod{"server": &a.server, searcher: &a.searcher} {
		n := a.nodes[0]
		if err := n.objectOn(n.name, "arrivals-"+role, role); err != nil {
			t.Fatal(err)
		}
		*p = n.add("arrivals-" + role)
		if err := n.running(*p); err != nil {
			t.Fatal(err)
		}
	}
	end, err := a.server.listen(portsAt(newcomer), &a.reached)
	t.Cleanup(end)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// govern creates the policies, and waits until both Nodes have them.
func (a *arrivals) govern() {
	a.t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{crdv1beta1.AddToScheme, npv1alpha2.Install} {
		if err := add(scheme); err != nil {
			a.t.Fatal(err)
		}
	}
	objects, err := client.New(a.nodes[0].cluster.server.Config, client.Options{Scheme: scheme})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, o := range newcomerPolicies() {
		if err := objects.Create(a.t.Context(), o); err != nil {
			a.t.Fatal(err)
		}
		a.t.Cleanup(func() { _ = objects.Delete(context.Background(), o) })
	}
	// Each denial is in force once what it drops is dropped.
	for _, n := range a.nodes {
		name := "arrivals-first-" + n.name
		if err := n.objectOn(n.name, name, newcomer); err != nil {
			a.t.Fatal(err)
		}
		p := n.add(name)
		if err := n.running(p); err != nil {
			a.t.Fatal(err)
		}
		var arrived atomic.Int64
		end, err := p.listen(portsAt(searcher), &arrived)
		if err != nil {
			a.t.Fatal(err)
		}
		n.eventually("all policies are in force", func() error {
			a.reached.Store(0)
			arrived.Store(0)
			ctx, stop := context.WithTimeout(a.t.Context(), 200*time.Millisecond)
			defer stop()
			var both errgroup.Group
			both.Go(func() error { _, err := tryPorts(ctx, p, newcomer, a.server.ip, portsAt(newcomer)); return err })
			both.Go(func() error { _, err := tryPorts(ctx, a.searcher, searcher, p.ip, portsAt(searcher)); return err })
			err := both.Wait()
			if n := a.reached.Load() + arrived.Load(); n > 0 {
				err = errors.Join(err, fmt.Errorf("%d packets have come through", n))
			}
			return err
		})
		end()
		n.del(p)
	}
	a.reached.Store(0)
}

// starting is what is to be found out of Pods that start.
type starting struct {
	pods  int
	flood bool // try what is forbidden all the time
	delay time.Duration
}

// came is what was found out.
type came struct {
	first            []time.Duration // from the end of ADD until the server has answered
	sent, through    int64           // that is forbidden
	sentBy, searched int64           // of sent: by the newcomers, and by the searcher
}

// start starts Pods on a Node, of which each asks the server as soon as ADD has returned.
func (a *arrivals) start(n *secureNode, what starting) (out came) {
	a.t.Helper()
	var mu sync.Mutex
	var arrived, sent, searched atomic.Int64
	g, ctx := errgroup.WithContext(a.t.Context())
	g.SetLimit(8)
	pods := n.cluster.client.CoreV1().Pods("default")
	for range what.pods {
		if ctx.Err() != nil {
			break
		}
		a.started++
		p := n.sandbox(fmt.Sprint("arrival-", a.started))
		g.Go(func() error {
			if err := n.objectOn(n.name, p.name, newcomer); err != nil {
				return err
			}
			end, err := p.listen(portsAt(searcher), &arrived)
			defer end()
			if err != nil {
				return err
			}
			trying, stop := context.WithCancel(ctx)
			defer stop()
			var triers errgroup.Group
			try := func(from *pod, role, to string, count *atomic.Int64) {
				triers.Go(func() error {
					n, err := tryPorts(trying, from, role, to, portsAt(role))
					if count.Add(int64(n)); err == nil && n == 0 {
						err = fmt.Errorf("%s has sent nothing to %s", from.name, to)
					}
					return err
				})
			}
			if what.flood {
				try(p, newcomer, a.server.ip, &sent)
			}
			if err := n.attach(p); err != nil {
				return err
			}
			began := time.Now()
			if what.flood {
				try(a.searcher, searcher, p.ip, &searched)
			}
			var answer errgroup.Group
			answer.Go(func() error {
				err := p.firstAnswer(a.server.ip)
				mu.Lock()
				out.first = append(out.first, time.Since(began))
				mu.Unlock()
				return err
			})
			<-time.After(what.delay)
			if err := errors.Join(n.running(p), answer.Wait(), a.searcher.firstAnswer(p.ip)); err != nil {
				return err
			}
			// It is deleted by force, and runs on for a moment.
			err = pods.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			if what.flood {
				<-time.After(50 * time.Millisecond)
			}
			stop()
			if err := errors.Join(err, triers.Wait()); err != nil {
				return err
			}
			if _, err := n.call("DEL", p); err != nil {
				return err
			}
			p.unmount()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		a.t.Error(err)
	}
	out.sentBy, out.searched = sent.Load(), searched.Load()
	out.sent, out.through = out.sentBy+out.searched, arrived.Load()+a.reached.Load()
	slices.Sort(out.first)
	return out
}

// testNewcomers starts Pods on two Nodes under rules of each kind that deny by label, in both directions. No forbidden
// packet comes through, from the first to the last, and a port that is not forbidden answers.
func testNewcomers(t *testing.T, c *cluster) {
	a := newArrivals(t, c)
	a.govern()
	for i, n := range a.nodes {
		have := a.start(n, starting{pods: *newcomers, flood: true, delay: min(*newcomersReport, 300*time.Millisecond)})
		if have.through > 0 || have.sentBy < int64(*newcomers) || have.searched < int64(*newcomers) {
			t.Errorf("Node %d: %d forbidden datagrams from new Pods, %d to them, %d have come through",
				i+1, have.sentBy, have.searched, have.through)
		}
		t.Logf("Node %d: %d Pods; %d and %d forbidden datagrams, %d came through; first answer after %s (p50, p99)",
			i+1, len(have.first), have.sentBy, have.searched, have.through, milliseconds(have))
	}
}

// BenchmarkTableNewcomers prints the cost of a new Pod's first connection, with and without rules that deny by label,
// on the server's Node and on another one; and how many packets that these rules forbid come through.
func BenchmarkTableNewcomers(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // of the API server's clients here, which are no part of it
	a := newArrivals(b, newCluster(b))
	fmt.Printf("\na new Pod's first connection: %d starts for each row, with the address %v after CNI ADD\n\n",
		*newcomersBench, *newcomersReport)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")
	where := []string{"to its own Node", "to another Node"}
	var without [2]came
	for i, n := range a.nodes {
		without[i] = a.start(n, starting{pods: *newcomersBench, delay: *newcomersReport})
		row("ADD to first answer, no rules, "+where[i]+", p50, p99", milliseconds(without[i]), "", true, "")
	}
	a.govern()
	for i, n := range a.nodes {
		with := a.start(n, starting{pods: *newcomersBench, delay: *newcomersReport})
		was, is := quantile(without[i].first, 0.5), quantile(with.first, 0.5)
		row("the same, under rules that deny by label, "+where[i], milliseconds(with), "p50 <= 2 x", is <= 2*was,
			fmt.Sprintf("p50 %.1f x, p99 %.1f x", is/was, quantile(with.first, 0.99)/quantile(without[i].first, 0.99)))
	}
	for i, n := range a.nodes {
		with := a.start(n, starting{pods: *newcomersBench, flood: true, delay: *newcomersReport})
		row("forbidden datagrams that come through, "+[]string{"same Node", "other Node"}[i],
			fmt.Sprint(with.through), "0", with.through == 0 && with.sent > 0,
			fmt.Sprintf("of %d from the new Pods and %d to them", with.sentBy, with.searched))
	}
	fmt.Println()
}

func milliseconds(c came) string {
	return fmt.Sprintf("%.1f, %.1f ms", quantile(c.first, 0.5), quantile(c.first, 0.99))
}

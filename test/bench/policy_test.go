package bench

import (
	"context"
	"fmt"
	"net/netip"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

const (
	policyNamespaces = 5000
	policyPods       = 20 // a Namespace: five Deployments of four
	policyPolicies   = 15 // a Namespace
	policyNodes      = 1000
	policyHere       = 7 // the Node
	policyChanges    = 300
)

// policies are the tables of a Node in a large cluster, down to its flows, and the switch that gets them.
type policies struct {
	*policy.Tables
	engine *derive.Engine
	pods   *derive.Source[derive.Name, datapath.Pod] // of the Node
	flows  *datapath.Tables
	ports  map[netip.Addr]ofp.Port
	dirty  map[flow.Owner]func() flow.Entries
	sync   *flowsync.Syncer
}

// noZone is the zone of a Node without one.
func noZone(*derive.Reader) string { return "" }

// newPolicies returns the tables of a Node without a cluster; sync is nil if no switch gets the flows.
func newPolicies(node string, sync *flowsync.Syncer) policies {
	e := derive.New()
	services := service.NewTables(e, node, noZone, false)
	self := derive.NewSource[derive.Name, datapath.Node](e, "node")
	nodes := derive.NewSource[derive.Name, datapath.RemoteNode](e, "remote-nodes")
	peers := derive.NewSource[derive.Name, peering.Peering](e, "peering")
	exported := derive.NewSource[derive.Object, bool](e, "exported")
	pods := derive.NewSource[derive.Name, datapath.Pod](e, "pods")
	attachment := func(port derive.Name, r *derive.Reader) (policy.Attachment, []problem.Problem) {
		pod, _ := derive.Get(r, pods, port)
		return policy.Attachment{
			Pod:     derive.Object{Namespace: pod.Namespace, Name: pod.Name},
			Sandbox: string(port),
			IPs:     pod.IPs,
		}, nil
	}
	attachments := derive.NewTable(e, "attachments", attachment, derive.KeysOf(pods))
	p := policies{
		Tables: policy.NewTables(e, node, attachments),
		engine: e,
		pods:   pods,
		ports:  map[netip.Addr]ofp.Port{},
		dirty:  map[flow.Owner]func() flow.Entries{},
		sync:   sync,
	}
	p.flows = datapath.NewTables(e, datapath.Inputs{
		Node: self, Pods: p.pods, RemoteNodes: nodes, Frontends: services.Frontends, Slices: services.ByService,
		Peering: peering.NewTables(e, peers), Exported: exported, Policy: p.Tables,
	})
	p.flows.Watch(func(o flow.Owner, entries func() flow.Entries) { p.dirty[o] = entries })
	self.Set(datapath.Self, datapath.Node{
		Name: node, GatewayMAC: ofp.MAC{2, 0, 0, 0, 0, 1},
		GatewayIPs:  []netip.Addr{netip.AddrFrom4([4]byte{10, 255, 255, 254})},
		GatewayPort: 2, Tunnels: datapath.Tunnels{Port: 1}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		ServiceVIP: netip.AddrFrom4([4]byte{169, 254, 0, 253}),
	})
	for _, source := range []interface{ Loaded() }{
		services.Services, services.Slices, self, p.pods, nodes, peers, exported,
	} {
		source.Loaded()
	}
	return p
}

// apply brings what has changed to the switch.
func (p policies) apply(ctx context.Context) error {
	p.engine.Pass()
	p.sync.SetSome(func(yield func(flow.Owner, flow.Entries) bool) {
		for o, entries := range p.dirty {
			if !yield(o, entries()) {
				return
			}
		}
	})
	clear(p.dirty)
	return p.sync.Synced(ctx)
}

// attach gives a Pod of this Node a port.
func (p policies) attach(namespace, name string, ip netip.Addr) {
	if p.ports[ip] != 0 {
		return
	}
	p.ports[ip] = ofp.Port(10 + len(p.ports))
	a, port := ip.As4(), "pod-"+ip.String()
	p.pods.Set(derive.Name(port), datapath.Pod{
		Namespace: namespace, Name: name, Interface: port, MAC: ofp.MAC{2, 1, a[0], a[1], a[2], a[3]},
		IPs: []netip.Addr{ip}, Port: p.ports[ip],
	})
}

// count returns how many flows policies have, and how many of them are for addresses.
func (p policies) count() (all, addresses int) {
	for o, e := range p.flows.All() {
		if o.Kind == datapath.KindPolicy {
			n := len(e.Flows)
			if all += n; strings.HasPrefix(o.Name, "address ") {
				addresses += n
			}
		}
	}
	return all, addresses
}

func policyNode(n int) string { return fmt.Sprint("node-", n%policyNodes) }

// policyAddress is the address of Pod n of all, in the podCIDR of its Node, a /20.
func policyAddress(n int) netip.Addr {
	in, i := n%policyNodes, 2+n/policyNodes
	return netip.AddrFrom4([4]byte{10, byte(in >> 4), byte(in<<4) | byte(i>>8), byte(i)})
}

func (p policies) podCIDR(node string, first netip.Addr, bits int) {
	cidrs := []netip.Prefix{netip.PrefixFrom(first, bits).Masked()}
	p.Nodes.Set(derive.Object{Name: node}, policy.NodeFacts{PodCIDRs: cidrs})
}

func policyNamespace(i int) string { return fmt.Sprint("ns-", i) }

func (p policies) namespace(i, team int) {
	name := policyNamespace(i)
	labels := map[string]string{"team": fmt.Sprint("t", team)}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	p.Namespaces.Set(derive.ObjectOf(n), policy.NamespaceLabels(n))
}

func (p policies) pod(namespace, j, app int) {
	n := namespace*policyPods + j
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace(namespace), Name: fmt.Sprint("pod-", j),
		Labels: map[string]string{"app": fmt.Sprint("app-", app), "pod-template-hash": fmt.Sprint("h", app)}}}
	pod.Spec.NodeName = policyNode(n)
	ip := policyAddress(n)
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip.String()}}
	p.Pods.Set(derive.ObjectOf(pod), policy.PodFactsOf(pod))
	if pod.Spec.NodeName == policyNode(policyHere) {
		p.attach(pod.Namespace, pod.Name, ip)
	}
}

// policy j of a Namespace admits one of its Deployments, or one of another Namespace, to another.
func (p policies) policy(namespace, j, port int) {
	label := func(key, prefix string, n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{key: fmt.Sprint(prefix, n)}}
	}
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: policyNamespace(namespace), Name: fmt.Sprint("policy-", j),
	}}
	n.Spec.PodSelector = label("app", "app-", j%5)
	peer := networkingv1.NetworkPolicyPeer{PodSelector: new(label("app", "app-", (j+1)%5))}
	if j%3 == 0 {
		peer.NamespaceSelector = new(label("team", "t", (namespace+j)%policyNamespaces))
	}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}}
	if port != 0 {
		n.Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{
			{EndPort: new(int32(port)), Port: new(intstr.FromInt32(1))},
		}
	}
	p.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(n), policy.FactsOf(n))
}

// policyRow is the process of the rows of policies.
func policyRow(ctx context.Context, socket string) error {
	debug.SetGCPercent(40) // as the agent
	p := newPolicies(policyNode(policyHere), start(ctx, socket))
	for i := range policyNamespaces {
		p.namespace(i, i)
		for j := range policyPods {
			p.pod(i, j, j%5)
		}
		for j := range policyPolicies {
			p.policy(i, j, 0)
		}
	}
	p.Loaded()
	before, start := processorTime(), time.Now()
	if err := p.apply(ctx); err != nil {
		return err
	}
	fmt.Println("cpu", (processorTime() - before).Seconds())
	fmt.Println("wall", time.Since(start).Seconds())
	fmt.Println("rules", len(p.Rules.All()))
	fmt.Println("identities", len(p.Applied.All()))
	fmt.Println("flows", p.sync.Stats().FlowMods)
	fmt.Println("peak", peak())

	removed := func(ns, _ int) { p.Pods.Delete(derive.Object{Namespace: policyNamespace(ns), Name: "pod-8"}) }
	// Pod 7 of Namespace 0 is here, and so on, a Pod of every fiftieth Namespace. Pod 8 is a peer of its policies.
	for _, kind := range []struct {
		name         string
		before, then func(namespace, i int)
	}{
		{"pod", removed, func(ns, _ int) { p.pod(ns, 8, 3) }},
		{"gone", func(ns, _ int) { p.pod(ns, 8, 3) }, removed},
		{"label", func(ns, _ int) { p.pod(ns, 8, 3) }, func(ns, i int) { p.pod(ns, 8, i%5) }},
		{"namespace", nil, func(ns, i int) { p.namespace(ns, policyNamespaces+i) }},
		{"policy", nil, func(ns, i int) { p.policy(ns, 2+i/100*5, i+1) }},
		{"added", func(ns, i int) {
			added := derive.Object{Namespace: policyNamespace(ns), Name: fmt.Sprint("policy-", 2+i/100*5)}
			p.Policies[policy.NetworkPolicy].Delete(added)
		}, func(ns, i int) { p.policy(ns, 2+i/100*5, 0) }},
	} {
		var took []time.Duration
		var most, mods uint64
		for i := range policyChanges {
			namespace := 50 * i % policyNamespaces
			if kind.before != nil {
				kind.before(namespace, i)
				if err := p.apply(ctx); err != nil {
					return err
				}
			}
			sent := p.sync.Stats().FlowMods
			d, err := timed(func() error { kind.then(namespace, i); return p.apply(ctx) })
			if err != nil {
				return err
			}
			sent = p.sync.Stats().FlowMods - sent
			took, most, mods = append(took, d), max(most, sent), mods+sent
		}
		fmt.Println(kind.name, percentile(took, 99))
		fmt.Println(kind.name+".p50", percentile(took, 50))
		fmt.Println(kind.name+".most", most)
		fmt.Println(kind.name+".mods", float64(mods)/policyChanges)
	}
	fmt.Println("later", peak())
	return nil
}

// policyCountRow counts the flows of rules with the same 10,000 peers of 10 label sets, applied to 50 Pods that all
// have other labels.
func policyCountRow() error {
	p := newPolicies("here", nil)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	p.Namespaces.Set(derive.ObjectOf(namespace), policy.NamespaceLabels(namespace))
	pod := func(node string, n int, labels map[string]string) {
		ip := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", n), Labels: labels}}
		o.Spec.NodeName, o.Status.PodIPs = node, []corev1.PodIP{{IP: ip.String()}}
		p.Pods.Set(derive.ObjectOf(o), policy.PodFactsOf(o))
		if node == "here" {
			p.attach(o.Namespace, o.Name, ip)
		}
	}
	p.podCIDR("there", netip.AddrFrom4([4]byte{10, 1, 0, 0}), 16)
	for i := range 10_000 {
		pod("there", i, map[string]string{"peer": "yes", "app": fmt.Sprint("app-", i%10)})
	}
	for i := range 50 {
		pod("here", 20_000+i, map[string]string{"subject": "yes", "app": fmt.Sprint("app-", i)})
	}
	apply := func(name string, rules ...networkingv1.NetworkPolicyIngressRule) {
		n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		n.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"subject": "yes"}}
		n.Spec.PolicyTypes, n.Spec.Ingress = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, rules
		p.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(n), policy.FactsOf(n))
	}
	peers := metav1.LabelSelector{MatchLabels: map[string]string{"peer": "yes"}}
	rule := func(i int) {
		apply(fmt.Sprint("policy-", i), networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &peers}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(int32(1 + i)))}},
		})
	}
	apply("isolated")
	p.Loaded()
	p.engine.Pass()
	none, _ := p.count()
	rule(0)
	p.engine.Pass()
	one, addresses := p.count()
	fmt.Println("isolation", none)
	fmt.Println("addresses", addresses)
	fmt.Println("one", one-none-addresses)
	for i := range 1000 {
		rule(i)
	}
	p.engine.Pass()
	all, addresses := p.count()
	fmt.Println("addresses1000", addresses)
	fmt.Println("all", all-none-addresses)
	return nil
}

// BenchmarkTablePolicy prints the cost of compiling the policies of a large cluster for one Node, and the cost of
// changes until the switch has confirmed the flows.
func BenchmarkTablePolicy(b *testing.B) {
	t, br := table{b}, newBridge(b)
	br.clear()
	s := br.ours("policy")
	fmt.Printf("\n%d policies, %d Pods in %d Namespaces, 100 Pods here; one Open vSwitch\n\n",
		policyNamespaces*policyPolicies, policyNamespaces*policyPods, policyNamespaces)
	t.row("compiled from nothing and confirmed, of one core",
		fmt.Sprintf("%.2f s", s.of("cpu")), "<= 2 s", s.of("cpu") <= 2,
		fmt.Sprintf("%.2f s by the clock, %.0f rules of %.0f identities, %.0f flows",
			s.of("wall"), s.of("rules"), s.of("identities"), s.of("flows")))
	t.row("the same: memory at most",
		fmt.Sprintf("%.0f MB", s.of("peak")/1e6), "<= 500 MB", s.of("peak") > 0 && s.of("peak") <= 5e8,
		fmt.Sprintf("after the changes below %.0f MB", s.of("later")/1e6))
	for _, r := range []struct {
		name, what string
		limit      float64
	}{
		{"pod", "a Pod elsewhere comes, to confirmed, p99", 5},
		{"gone", "a Pod elsewhere goes, to confirmed, p99", 5},
		{"label", "a Pod's label changes, to confirmed, p99", 10},
		{"namespace", "a Namespace's label changes, to confirmed, p99", 30},
		{"added", "a policy applied here is added, to confirmed, p99", 20},
		{"policy", "a policy applied here changes, to confirmed, p99", 20},
	} {
		t.row(r.what, fmt.Sprintf("%.2f ms", s.of(r.name)), fmt.Sprintf("<= %.0f ms", r.limit), s.of(r.name) <= r.limit,
			fmt.Sprintf("p50 %.2f ms; flow-mods %.1f, at most %.0f",
				s.of(r.name+".p50"), s.of(r.name+".mods"), s.of(r.name+".most")))
	}
	most := max(s.of("pod.most"), s.of("gone.most"))
	t.row("a Pod elsewhere comes or goes: flow-mods", fmt.Sprintf("%.0f", most), "<= 2", most > 0 && most <= 2, "")

	br.clear()
	s = br.ours("policy-count")
	t.row("flows of a rule: 10,000 peers of 10 label sets, 50 Pods",
		fmt.Sprintf("%.0f", s.of("one")), "<= 100", s.of("one") > 0 && s.of("one") <= 100,
		fmt.Sprintf("the 50 Pods have different labels; in addition to %.0f flows of addresses, %.0f of isolation",
			s.of("addresses"), s.of("isolation")))
	t.row("1,000 such rules: flows of addresses",
		fmt.Sprintf("%.0f", s.of("addresses1000")), "the same",
		s.of("addresses") > 0 && s.of("addresses1000") == s.of("addresses"),
		fmt.Sprintf("%.0f others", s.of("all")))
	fmt.Println()
}

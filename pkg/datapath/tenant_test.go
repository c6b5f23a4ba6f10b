package datapath

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

var (
	hostileSeed  = flag.Uint64("hostile.seed", 1, "seed of the hostile tenant's steps")
	hostileSteps = flag.Int("hostile.steps", 16, "how many steps the hostile tenant takes")
)

const (
	// tenantLook is after how many steps a real switch gets all flows and is asked as well.
	tenantLook = 8
	// tenantGrowth is how much memory may be held when all that the tenant wrote is gone again: maps keep the room that
	// they had at most, which bounds limit. 60 steps need 136 MiB.
	tenantGrowth = 256 << 20
	// tenantFlows is how many flows its rules may have on the Node: by docs/policy.md what they cost, and what they select.
	tenantFlows = 32768 + 131072
)

// tenancy is a Node with an honest tenant, Namespace z, and a hostile one, Namespace x.
type tenancy struct {
	*policed
	*rand.Rand
	questions []question
	made      int
}

// TestHostileTenant lets a tenant write what it may in its Namespace, in absurd sizes: policies of both kinds, groups, Pods
// with labels and names of ports, Services. After each step the answers about the other tenant's Pods are as before, and a
// change of the other tenant's evaluates no more than twice what it did before; the switch takes all flows. When the
// hostile objects are gone flows and memory are as before.
//
// By hand: go test ./pkg/datapath -run TestHostileTenant -v -hostile.seed 7 -hostile.steps 500 -timeout 1h
func TestHostileTenant(t *testing.T) {
	c := &tenancy{policed: newPoliced(t, 1), Rand: rand.New(rand.NewPCG(*hostileSeed, 1))}
	for _, name := range []string{"x", "z"} {
		c.Namespaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Watch.Namespace(name, c.Namespaces[name])
	}
	c.honest()
	c.settle(t)
	before, base := inOrder(c.held), heldMemory()
	o := newTracer(t)
	evaluated, idle := c.change(t)
	c.check(t, "before the first step", &o)

	var taken []string
	var slowest time.Duration
	steps := []func() string{
		c.manyRules, c.scattered, c.manyPolicies, c.denies, c.selectors, c.ports, c.podLabels, c.manyPods, c.services, c.groups, c.garbage, c.remove,
	}
	for step := range *hostileSteps {
		what := steps[c.Rand.IntN(len(steps))]()
		taken = append(taken, fmt.Sprintf("%d %s", step, what))
		c.settle(t)
		when := fmt.Sprintf("seed %d, steps:\n%s\n", *hostileSeed, strings.Join(taken, "\n"))
		var switched *tracer
		if step%tenantLook == tenantLook-1 {
			switched = &o
		}
		c.check(t, when, switched)
		now, took := c.change(t)
		if slowest = max(slowest, took); now > 2*evaluated {
			t.Fatalf("%san honest change evaluates %d keys, before the first step %d", when, now, evaluated)
		}
		if n := c.tables.PolicyFlows()["x"]; n > tenantFlows {
			t.Fatalf("%sthe tenant has %d flows", when, n)
		}
	}
	flows := c.tables.PolicyFlows()["x"]
	c.everythingGoes()
	c.settle(t)
	c.check(t, "after the last step", &o)
	if diff := cmp.Diff(before, inOrder(c.held)); diff != "" {
		t.Errorf("flows (-before the first step +when all is gone):\n%s", diff)
	}
	after := heldMemory()
	runtime.KeepAlive(c) // its tables are what is measured
	if after > base+tenantGrowth {
		t.Errorf("the heap has grown from %d to %d MiB", base>>20, after>>20)
	}
	t.Logf("%d steps; at the end %d flows of the tenant; an honest change took %s before and at most %s (median of 5); heap %d to %d MiB",
		len(taken), flows, idle, slowest, base>>20, after>>20)
	if testing.Verbose() {
		t.Log("the steps:\n" + strings.Join(taken, "\n"))
	}
}

// honest are the Pods and policies of the other tenant, and what has to become of its connections.
func (c *tenancy) honest() {
	for _, pod := range []struct{ namespace, name, app, node, ip string }{
		{"z", "server", "server", "node-1", "10.10.0.2"}, {"z", "client", "client", "node-1", "10.10.0.3"}, {"z", "far", "client", "node-2", "10.10.0.10"},
		{"x", "evil", "evil", "node-1", "10.10.0.4"}, {"x", "worse", "client", "node-1", "10.10.0.5"},
	} {
		c.podOf(pod.namespace, pod.name, pod.node, pod.ip, map[string]string{"app": pod.app}, nil)
	}
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "web"}}
	n.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}}, {IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"}},
		},
		Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}},
	}}
	c.Watch.Policy("z", "web", n)
	deny := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "deny"}}
	deny.Spec.Priority, deny.Spec.AppliedTo = 5, []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}
	deny.Spec.Ingress = []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop, From: []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: "198.51.100.8/32"}}}}}
	c.Watch.Other("z", "deny", deny)
	for _, row := range []struct {
		from, to string
		port     uint16
		want     string
	}{
		{"10.10.0.3", "10.10.0.2", 80, allowed}, {"10.10.0.3", "10.10.0.2", 81, dropped}, {"10.10.0.10", "10.10.0.2", 80, allowed},
		{"10.10.0.10", "10.10.0.2", 53, dropped}, {"198.51.100.7", "10.10.0.2", 80, allowed}, {"198.51.100.8", "10.10.0.2", 80, dropped},
		{"203.0.113.1", "10.10.0.2", 80, dropped}, {"203.0.113.1", "10.10.0.3", 80, allowed}, {"198.51.100.8", "10.10.0.3", 80, dropped},
		{"10.10.0.2", "198.51.100.7", 80, allowed},
	} {
		k := policytest.Connection{From: addrOf(row.from), To: addrOf(row.to), Protocol: corev1.ProtocolTCP, Port: row.port, SourcePort: 40000}
		c.questions = append(c.questions, question{connection: k, want: row.want})
	}
}

// podOf makes a Pod with an address.
func (c *tenancy) podOf(namespace, name, node, ip string, labels map[string]string, ports []corev1.ContainerPort) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	p.Spec.NodeName, p.Status.Phase, p.Status.PodIPs = node, corev1.PodRunning, []corev1.PodIP{{IP: ip}}
	p.Spec.Containers = []corev1.Container{{Ports: ports}}
	c.Cluster.Pods[namespace+"/"+name] = p
	if node == "node-1" {
		c.Attached[namespace+"-"+name] = policytest.Attached{Pod: namespace + "/" + name, IPs: []netip.Addr{addrOf(ip)}}
	}
	c.Watch.Pod(namespace, name, p)
}

// settle has the flows follow.
func (c *tenancy) settle(t *testing.T) {
	t.Helper()
	c.State.Pods = nil
	for _, pod := range c.Here("node-1") {
		s := Pod{Namespace: pod.Namespace, Name: pod.Name, Interface: pod.Namespace + "-" + pod.Name}
		s.IPs = append(s.IPs, addrOf(pod.Status.PodIPs[0].IP))
		last := s.IPs[0].As4()[3]
		s.Port, s.MAC = ofp.Port(last), ofp.MAC{0x0a, 0, 0, 0, 0, last}
		c.State.Pods = append(c.State.Pods, s)
	}
	c.fill()
	c.engine.Pass()
}

// check asks about the honest tenant's connections, and with a switch that one as well.
func (c *tenancy) check(t *testing.T, when string, o *tracer) {
	t.Helper()
	if o != nil {
		o.replace(t, setOf(t, c.held))
	}
	for _, q := range c.questions {
		have := allowed
		for d, pod := range [...]*corev1.Pod{policy.Ingress: c.At(q.connection.To), policy.Egress: c.At(q.connection.From)} {
			if pod == nil || pod.Spec.NodeName != "node-1" {
				continue
			}
			if v := c.policy.Decide(derive.ObjectOf(pod), policy.Direction(d), policy.Connection(q.connection)); !v.Allowed {
				have = v.Action.String()
			}
		}
		if have != q.want {
			t.Fatalf("%s\n%+v: %s, want %s", when, q.connection, have, q.want)
		}
		if o == nil {
			continue
		}
		var ok bool
		if q.packet, ok = c.packetOf(q.connection, q.connection.SourcePort); !ok {
			t.Fatalf("%s: %+v has no way", when, q.connection)
		}
		if have, account := o.ask(t, q); have != q.want {
			t.Fatalf("%s\n%s: the switch says %s\n%s", when, q, have, account)
		}
	}
	for _, p := range c.engine.Problems() {
		if p.Namespace == "z" {
			t.Fatalf("%s\nthe honest tenant has a problem: %v", when, p)
		}
	}
}

// change has the honest tenant add a policy and remove it again. It returns how many keys that evaluates at most, and
// how long it takes.
func (c *tenancy) change(t *testing.T) (evaluated int, took time.Duration) {
	t.Helper()
	var all []time.Duration
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "more"}}
	n.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}},
		Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}},
	}}
	asked := policy.Connection{From: addrOf("192.0.2.7"), To: addrOf("10.10.0.2"), Protocol: corev1.ProtocolTCP, Port: 80}
	for i := range 10 {
		start := time.Now()
		if i%2 == 0 {
			c.Watch.Policy("z", "more", n)
		} else {
			c.Watch.Policy("z", "more", nil)
		}
		c.engine.Pass()
		last, _, _ := c.engine.Stats()
		evaluated = max(evaluated, last.Evaluated)
		if all = append(all, time.Since(start)); c.policy.Decide(derive.Object{Namespace: "z", Name: "server"}, policy.Ingress, asked).Allowed != (i%2 == 0) {
			t.Fatal("an honest policy is not in force after a pass")
		}
	}
	slices.Sort(all)
	return evaluated, all[len(all)/2]
}

func heldMemory() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What the hostile tenant does. Each returns what it did.

func (c *tenancy) write(name string, p *networkingv1.NetworkPolicy) {
	p.Namespace, p.Name = "x", name
	if p.Spec.PolicyTypes == nil {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	}
	c.Policies["x/"+name] = p
	c.Watch.Policy("x", name, p)
}

func (c *tenancy) fresh(kind string) string {
	c.made++
	return fmt.Sprint(kind, c.made%50)
}

func (c *tenancy) from(cidr string, except ...string) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}}
}

func (c *tenancy) host() string {
	return fmt.Sprintf("%d.%d.%d.%d/32", 11+c.Rand.IntN(200), c.Rand.IntN(256), c.Rand.IntN(256), c.Rand.IntN(256))
}

func port80() []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}}
}

func (c *tenancy) manyRules() string {
	p, n := &networkingv1.NetworkPolicy{}, 1+c.Rand.IntN(4500)
	for i := range n {
		ports := port80()
		if c.Rand.IntN(3) == 0 {
			ports[0].EndPort = new(int32(81 + i%1000))
		}
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: c.from(c.host()), Ports: ports})
	}
	c.write(c.fresh("rules"), p)
	return fmt.Sprint(n, " rules in one policy")
}

func (c *tenancy) scattered() string {
	n := 1 + c.Rand.IntN(8000)
	var except []string
	for range n {
		except = append(except, c.host())
	}
	p := &networkingv1.NetworkPolicy{}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: c.from("0.0.0.0/0", except...)}}
	c.write(c.fresh("except"), p)
	return fmt.Sprint(n, " scattered exceptions")
}

func (c *tenancy) manyPolicies() string {
	n := 1 + c.Rand.IntN(1500)
	for i := range n {
		p := &networkingv1.NetworkPolicy{}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: c.from(c.host()), Ports: port80()}}
		c.write(fmt.Sprint("many", i), p)
	}
	return fmt.Sprint(n, " policies")
}

func (c *tenancy) denies() string {
	n := 1 + c.Rand.IntN(300)
	for i := range n {
		p := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("deny", i)}}
		p.Spec.Priority, p.Spec.AppliedTo = policyPriority(c.Rand), []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}
		for range 1 + c.Rand.IntN(20) {
			rule := crdv1beta1.Rule{Action: []crdv1beta1.Action{"Drop", "Allow", "Reject", "Pass"}[c.Rand.IntN(4)]}
			rule.From = []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: c.host()}}, {Group: "huge"}, {NamespaceSelector: &metav1.LabelSelector{}}}[:1+c.Rand.IntN(3)]
			p.Spec.Ingress = append(p.Spec.Ingress, rule)
		}
		c.Others.Antrea["x/"+p.Name] = p
		c.Watch.Other("x", p.Name, p)
	}
	return fmt.Sprint(n, " policies of Antrea")
}

// policyPriority is often that of the honest tenant's policy.
func policyPriority(r *rand.Rand) float64 {
	if r.IntN(2) == 0 {
		return 5
	}
	return float64(1 + r.IntN(100))
}

func (c *tenancy) selectors() string {
	n := 1 + c.Rand.IntN(9000)
	e := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpNotIn}
	for i := range n {
		e.Values = append(e.Values, fmt.Sprint("v", i))
	}
	p := &networkingv1.NetworkPolicy{}
	all := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}}
	if c.Rand.IntN(2) == 0 {
		p.Spec.PodSelector = all
	}
	for i := range 1 + c.Rand.IntN(2000) {
		peer := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpDoesNotExist}}}}
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}})
	}
	p.Spec.Egress, p.Spec.PolicyTypes = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &all}}}}, []networkingv1.PolicyType{"Ingress", "Egress"}
	c.write(c.fresh("selectors"), p)
	return fmt.Sprint(n, " values, ", len(p.Spec.Ingress), " selectors")
}

func (c *tenancy) ports() string {
	p, n := &networkingv1.NetworkPolicy{}, 1+c.Rand.IntN(3000)
	var rule networkingv1.NetworkPolicyIngressRule
	for i := range n {
		port := networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(int32(1 + c.Rand.IntN(30000)))), EndPort: new(int32(30000 + c.Rand.IntN(30000)))}
		if i%3 == 0 {
			port = networkingv1.NetworkPolicyPort{Port: new(intstr.FromString(fmt.Sprint("p", i)))}
		}
		rule.Ports = append(rule.Ports, port)
	}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{rule}
	c.write(c.fresh("ports"), p)
	return fmt.Sprint(n, " ports")
}

func (c *tenancy) podLabels() string {
	n, labels := 1+c.Rand.IntN(5000), map[string]string{}
	var ports []corev1.ContainerPort
	for i := range n {
		labels[fmt.Sprint("k", i)] = fmt.Sprint("v", c.Rand.IntN(10))
		ports = append(ports, corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(1 + i), Protocol: corev1.ProtocolTCP})
	}
	c.podOf("x", "evil", "node-1", "10.10.0.4", labels, ports)
	return fmt.Sprint(n, " labels and names of ports of a Pod")
}

func (c *tenancy) manyPods() string {
	n := 1 + c.Rand.IntN(1000)
	for i := range n {
		ports := []corev1.ContainerPort{{Name: "p0", ContainerPort: int32(1 + i), Protocol: corev1.ProtocolTCP}}
		c.podOf("x", fmt.Sprint("far", i), "node-2", fmt.Sprintf("10.10.%d.%d", 1+i/250, i%250), map[string]string{"app": fmt.Sprint("a", i, c.Rand.IntN(9))}, ports)
	}
	return fmt.Sprint(n, " Pods elsewhere")
}

func (c *tenancy) services() string {
	n := 1 + c.Rand.IntN(300)
	var endpoints []string
	for i := range 1 + c.Rand.IntN(100) {
		endpoints = append(endpoints, fmt.Sprintf("10.10.0.%d:%d", 4+i%2, 1+i))
	}
	c.Frontends = nil
	for i := range n {
		f := frontend(fmt.Sprint("svc", i), corev1.ProtocolTCP, fmt.Sprintf("10.97.%d.%d:80", 1+i/250, 1+i%250), endpoints...)
		f.Namespace = "x"
		c.Frontends = append(c.Frontends, f)
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "svc0"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "evil"}}}
	c.Watch.Other("x", "svc0", s)
	return fmt.Sprint(n, " Services of ", len(endpoints), " endpoints")
}

func (c *tenancy) groups() string {
	g, n := &crdv1beta1.Group{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "huge"}}, 1+c.Rand.IntN(1000)
	for range n {
		b := crdv1beta1.IPBlock{CIDR: "0.0.0.0/0"}
		for range c.Rand.IntN(17) {
			b.Except = append(b.Except, c.host())
		}
		g.Spec.IPBlocks = append(g.Spec.IPBlocks, b)
	}
	c.Watch.Other("x", "huge", g)
	return fmt.Sprint("a Group of ", n, " ranges")
}

func (c *tenancy) garbage() string {
	p, n := &networkingv1.NetworkPolicy{}, 1+c.Rand.IntN(2000)
	var peers []networkingv1.NetworkPolicyPeer
	for i := range n {
		peers = append(peers, []networkingv1.NetworkPolicyPeer{
			{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/99"}}, {}, {IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"x"}}},
			{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "\x00", Operator: "Near"}}}},
		}[i%4])
	}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}, {Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(-7))}}}}
	c.write(c.fresh("garbage"), p)
	return fmt.Sprint(n, " peers that mean nothing")
}

// remove takes every second policy of the tenant away.
func (c *tenancy) remove() string {
	n := 0
	for key := range c.Policies {
		if name, ok := strings.CutPrefix(key, "x/"); ok && c.Rand.IntN(2) == 0 {
			delete(c.Policies, key)
			c.Watch.Policy("x", name, nil)
			n++
		}
	}
	return fmt.Sprint(n, " policies are removed")
}

func (c *tenancy) everythingGoes() {
	for key := range c.Policies {
		if name, ok := strings.CutPrefix(key, "x/"); ok {
			delete(c.Policies, key)
			c.Watch.Policy("x", name, nil)
		}
	}
	for key := range c.Others.Antrea {
		name := strings.TrimPrefix(key, "x/")
		delete(c.Others.Antrea, key)
		c.Watch.Other("x", name, (*crdv1beta1.NetworkPolicy)(nil))
	}
	for key := range c.Cluster.Pods {
		if name, ok := strings.CutPrefix(key, "x/far"); ok {
			delete(c.Cluster.Pods, key)
			c.Watch.Pod("x", "far"+name, nil)
		}
	}
	c.Watch.Other("x", "huge", (*crdv1beta1.Group)(nil))
	c.Watch.Other("x", "svc0", (*corev1.Service)(nil))
	c.Frontends = nil
	c.podOf("x", "evil", "node-1", "10.10.0.4", map[string]string{"app": "evil"}, nil)
}

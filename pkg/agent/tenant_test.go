package agent

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

var (
	hostileSeed  = flag.Uint64("hostile.seed", 1, "seed of the hostile tenant's steps")
	hostileSteps = flag.Int("hostile.steps", 7, "how many steps the hostile tenant takes")
)

const (
	// tenantGrowth is how much more memory may be in use after all hostile objects are gone.
	tenantGrowth = 8 << 20
	// tenantMost is how much more memory the agent may hold than before.
	tenantMost = 256 << 20
	// tenantFlows is how many flows the policies of its Namespace may have: the bounds, a verdict for each rule, and a few
	// for each of its Pods on the Node.
	tenantFlows = 16384 + 65536 + 2*1024 + 64
)

// tenantFloors are times that a change of each kind may take in any case. A Pod with new labels is compared with all
// peers of the hostile tenant's rules, as many as the bounds allow. Without these rules there was no comparison. A
// router is compared with the hostile tenant's imports.
var tenantFloors = [...]time.Duration{
	25 * time.Millisecond, 100 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
}

// tenantSlow is how long the honest tenant's first change of a policy takes on a machine without other work. The floors
// grow with the time that the present machine needs for it.
const tenantSlow = 500 * time.Microsecond

// TestHostileTenant lets a tenant write every object that it may write in its Namespace, in absurd sizes. These are
// policies of both kinds, groups, Pods with labels, annotations and names of ports, Services, EndpointSlices, and
// VirtualNetworkRouters. A whole agent, except for its watches, gets the objects and gives a switch their flows.
//
// After each step the answers of agent and switch about another tenant's Pods and Service are the same. Above a floor,
// changes of the other tenant take no more than twice as long. Memory and flows are bounded. When the hostile objects
// are gone, their memory is free again.
//
// By hand: go test ./pkg/agent -run TestHostileTenant -v -hostile.seed 7 -hostile.steps 500 -timeout 1h
//
//tombolo:alone
func TestHostileTenant(t *testing.T) {
	w := newWalkOf(t, 1, family.IPv4, func(c *config.Config) { c.FeatureGates["TenantNetworks"] = true })
	c := &tenancy{walk: w, r: rand.New(rand.NewPCG(*hostileSeed, 1)), written: map[string]client.Object{}}
	c.honest()
	base := heldMemory()
	c.check("before the first step")
	before := c.changes()
	slow := max(1, float64(before[0])/float64(tenantSlow))

	steps := []func() string{
		c.manyRules, c.routers, c.scattered, c.manyPolicies, c.denies, c.selectors, c.ports,
		c.podLabels, c.manyPods, c.services, c.groups, c.garbage, c.remove,
	}
	var most uint64
	var slowest [len(changeKinds)]time.Duration
	flows := 0
	for step := range *hostileSteps {
		n := c.r.IntN(len(steps))
		if step < len(steps) && *hostileSteps < len(steps) {
			n = (step + int(*hostileSeed)) % len(steps) // a short run takes different ones
		}
		c.taken = append(c.taken, fmt.Sprintf("%d %s", step, steps[n]()))
		c.settled()
		c.check(fmt.Sprint("step ", step))
		for i, took := range c.changes() {
			floor := time.Duration(slow * float64(tenantFloors[i]))
			if slowest[i] = max(slowest[i], took); took > max(floor, 2*before[i]) {
				c.failed("an honest change of a %s takes %s, before the first step %s", changeKinds[i], took, before[i])
			}
		}
		n = c.agent.tables.flows.Policies.Flows()["x"]
		if flows = max(flows, n); n > tenantFlows {
			c.failed("the tenant has %d flows", n)
		}
		if most = max(most, heldMemory()-base); most > tenantMost {
			c.failed("the agent holds %d MiB more than before", most>>20)
		}
	}
	c.everythingGoes()
	c.settled()
	c.check("when everything is gone")
	gone := c.changes()
	c.taken = nil
	after := heldMemory()
	runtime.KeepAlive(c)
	t.Logf("%d steps; at most %d flows, %d MiB more; heap %d KiB before, %d KiB after; honest changes took %v before, "+
		"at most %v, and %v after",
		*hostileSteps, flows, most>>20, base>>10, after>>10, before, slowest, gone)
	if after > base+tenantGrowth {
		t.Errorf("the heap has grown from %d to %d KiB", base>>10, after>>10)
	}
	if n := c.agent.tables.flows.Policies.Flows()["x"]; n != 0 {
		t.Errorf("%d flows of the tenant's policies are left", n)
	}
}

// tenancy is a Node with an honest tenant, Namespace z, and a hostile one, Namespace x.
type tenancy struct {
	*walk
	r         *rand.Rand
	written   map[string]client.Object // of the hostile tenant, by kind and name
	questions []question
	servers   []policyQuestion
	made      int
	taken     []string
}

// policyQuestion is one to the agent's tables.
type policyQuestion struct {
	pod       derive.Object
	direction policy.Direction
	policy.Connection
	allowed bool
}

// failed ends the test with the steps.
func (c *tenancy) failed(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\nrepeat with -hostile.seed %d -hostile.steps %d; the steps:\n%s\nlast lines of the agent:\n%.4000s",
		fmt.Sprintf(format, args...), *hostileSeed, len(c.taken), strings.Join(c.taken, "\n"), c.log)
}

// put writes objects as the watches do.
func (c *tenancy) put(objects ...client.Object) {
	for _, o := range objects {
		if o.GetNamespace() == "x" {
			c.written[fmt.Sprintf("%T %s", o, o.GetName())] = o
		}
	}
	c.agent.tables.kinds.Set(objects...)
}

// del takes objects away.
func (c *tenancy) del(objects ...client.Object) {
	for _, o := range objects {
		delete(c.written, fmt.Sprintf("%T %s", o, o.GetName()))
	}
	c.agent.tables.kinds.Delete(objects...)
}

// settled waits until the switch has confirmed the flows of the written objects.
func (c *tenancy) settled() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*ovstest.Timeout())
	defer cancel()
	c.world.version++
	c.version.Set(self, c.world.version)
	for c.seen.Load() != int64(c.world.version) {
		select {
		case <-ctx.Done():
			c.failed("the agent has not looked at the cluster")
		case <-c.passed:
		}
	}
	if err := c.agent.flows.Synced(ctx); err != nil {
		c.failed("%v", err)
	}
}

// honest checks the Pods, the Service and the policies of the other tenant, and the results of its connections.
func (c *tenancy) honest() {
	c.world.nodes["node-2"] = testNode("node-2", "192.168.78.102", "10.11.2.0/24")
	c.settle()
	for _, ns := range []string{"x", "z"} {
		c.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	for i := range 400 {
		ns := fmt.Sprint("joined", i)
		c.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, routerIn(ns, "r"))
	}
	local := map[string]cni.Attachment{}
	for _, pod := range []struct{ namespace, name, app string }{
		{"z", "server", "server"}, {"z", "client", "client"}, {"x", "evil", "evil"}, {"x", "worse", "client"},
	} {
		a := c.world.newPod()
		a.PodNamespace, a.PodName = pod.namespace, pod.name
		c.world.pods[a.PortName] = a
		c.ovs.Device(a.PortName)
		c.put(podIn(pod.namespace, pod.name, ownName, a.IPs[0].Addr().String(), map[string]string{"app": pod.app}))
		c.must(c.agent.cniNode().Attach(c.t.Context(), a))
		local[pod.name] = a
	}
	c.put(podIn("z", "far", "node-2", "10.11.2.10", map[string]string{"app": "client"}))
	server, peer := local["server"].IPs[0].Addr(), local["client"].IPs[0].Addr()
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "web"}}
	n.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}},
			{IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"}},
		},
		Ports: port80(),
	}}
	deny := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "deny"}}
	deny.Spec.Priority, deny.Spec.AppliedTo = 5, []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}
	stranger := crdv1beta1.Peer{IPBlock: &crdv1beta1.IPBlock{CIDR: "198.51.100.8/32"}}
	deny.Spec.Ingress = []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop, From: []crdv1beta1.Peer{stranger}}}
	svc, slice := serviceIn("z", "web", "10.97.7.7", []string{server.String()}, 80)
	c.put(n, deny, svc, slice)
	c.settled()

	truth := newTraffic(c.world, c.agent)
	senders := map[string]sender{
		"client": {name: "Pod z/client", port: truth.numbers[local["client"].PortName], mac: local["client"].MAC, ip: peer},
		"server": {name: "Pod z/server", port: truth.numbers[local["server"].PortName], mac: local["server"].MAC, ip: server},
		"far":    {name: "Pod z/far", port: tunnelOFPort, mac: c.gatewayMAC, ip: netip.MustParseAddr("10.11.2.10")},
	}
	far := senders["far"]
	far.far = "192.168.78.102"
	senders["far"] = far
	outside := func(ip string) sender {
		return sender{name: ip, port: gatewayOFPort, mac: c.gatewayMAC, ip: netip.MustParseAddr(ip)}
	}
	for _, row := range []struct {
		from    sender
		to      string
		port    uint16
		dropped string // in a table, else it arrives
	}{
		{senders["client"], server.String(), 80, ""}, {senders["client"], server.String(), 81, "IngressRule"},
		{senders["far"], server.String(), 80, ""}, {senders["far"], server.String(), 53, "IngressRule"},
		{outside("198.51.100.7"), server.String(), 80, ""}, {outside("198.51.100.8"), server.String(), 80, "IngressAdmin"},
		{outside("203.0.113.1"), server.String(), 80, "IngressRule"}, {outside("203.0.113.1"), peer.String(), 80, ""},
		{outside("198.51.100.8"), peer.String(), 80, "IngressAdmin"}, {senders["client"], "10.97.7.7", 80, ""},
	} {
		to := netip.MustParseAddr(row.to)
		q := question{from: row.from, protocol: corev1.ProtocolTCP, to: netip.AddrPortFrom(to, row.port)}
		end, name := to, "client"
		if to != peer {
			end, name = server, "server"
		}
		number := truth.numbers[local[name].PortName]
		q.want = []string{fmt.Sprintf("to port %d: %s > %s:%d", number, row.from.ip, end, row.port)}
		if row.dropped != "" {
			q.want = []string{"dropped in " + row.dropped}
		}
		c.questions = append(c.questions, q)
		connection := policy.Connection{From: row.from.ip, To: end, Protocol: q.protocol, Port: row.port, SourcePort: 40000}
		c.servers = append(c.servers,
			policyQuestion{derive.Object{Namespace: "z", Name: name}, policy.Ingress, connection, row.dropped == ""})
	}
}

// check asks the agent and the switch about the honest tenant's connections.
func (c *tenancy) check(when string) {
	c.t.Helper()
	c.must(ask(c.t.Context(), c.agent.tables.engine, func() {
		for _, q := range c.servers {
			if have := c.agent.tables.policies.Decide(q.pod, q.direction, q.Connection); have.Allowed != q.allowed {
				c.t.Errorf("%s: %+v: %v, want allowed %v", when, q, have, q.allowed)
			}
		}
		for _, p := range c.agent.tables.engine.Problems() {
			if p.Namespace == "z" {
				c.t.Errorf("%s: the honest tenant has a problem: %v", when, p)
			}
		}
	}))
	for _, q := range c.questions {
		if err := q.put(c.t.Context(), c.agent, 1); err != nil {
			c.t.Errorf("%s: %v", when, err)
		}
	}
	if refused := c.agent.flows.Stats().Refused; len(refused) > 0 {
		c.t.Errorf("%s: the switch refuses %d entries, the first is %.1000s", when, len(refused), refused[0])
	}
	if c.t.Failed() {
		c.failed("the answers are wrong")
	}
}

var changeKinds = [...]string{"policy", "Pod", "Service", "router"}

// changes changes an object of each kind of the honest tenant, again and again. It returns the shortest time until the
// switch has confirmed a change. A slower agent is slower each time, but a busy machine is not.
func (c *tenancy) changes() (took [len(changeKinds)]time.Duration) {
	c.t.Helper()
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "more"}}
	n.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from("192.0.2.0/24"), Ports: port80()}}
	pod := podIn("z", "new", "node-2", "10.11.2.11", map[string]string{"app": "new"})
	svc, slice := serviceIn("z", "more", "10.97.7.8", []string{"10.11.2.10"}, 80)
	for kind, objects := range [...][]client.Object{{n}, {pod}, {svc, slice}, {routerIn("joined7", "more")}} {
		for range 4 {
			for _, write := range []func(...client.Object){c.put, c.del} {
				start := time.Now()
				write(objects...)
				c.settled()
				if d := time.Since(start); took[kind] == 0 || d < took[kind] {
					took[kind] = d
				}
			}
		}
	}
	return took
}

func heldMemory() uint64 {
	runtime.GC()
	runtime.GC() // for memory that finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func podIn(namespace, name, node, ip string, labels map[string]string, ports ...corev1.ContainerPort) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	p.Spec.NodeName, p.Status.Phase, p.Status.PodIPs = node, corev1.PodRunning, []corev1.PodIP{{IP: ip}}
	p.Spec.Containers = []corev1.Container{{Ports: ports}}
	return p
}

func serviceIn(
	namespace, name, vip string, endpoints []string, ports ...int32,
) (*corev1.Service, *discoveryv1.EndpointSlice) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, vip, []string{vip}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	for i, port := range ports {
		name, protocol := fmt.Sprint("p", i), corev1.ProtocolTCP
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: port, Protocol: protocol})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol})
	}
	for _, ip := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s, slice
}

// The hostile tenant's steps. Each returns a text for the account.

func (c *tenancy) write(name string, p *networkingv1.NetworkPolicy) {
	p.Namespace, p.Name = "x", name
	if p.Spec.PolicyTypes == nil {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	}
	c.put(p)
}

func (c *tenancy) fresh(kind string) string {
	c.made++
	return fmt.Sprint(kind, c.made%50)
}

func from(cidr string, except ...string) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}}
}

func (c *tenancy) host() string {
	return fmt.Sprintf("%d.%d.%d.%d/32", 11+c.r.IntN(200), c.r.IntN(256), c.r.IntN(256), c.r.IntN(256))
}

func port80() []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}}
}

func (c *tenancy) manyRules() string {
	p, n := &networkingv1.NetworkPolicy{}, 1+c.r.IntN(4500)
	for i := range n {
		ports := port80()
		if c.r.IntN(3) == 0 {
			ports[0].EndPort = new(int32(81 + i%1000))
		}
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: from(c.host()), Ports: ports})
	}
	c.write(c.fresh("rules"), p)
	return fmt.Sprint(n, " rules in one policy")
}

func (c *tenancy) scattered() string {
	n := 1 + c.r.IntN(8000)
	var except []string
	for range n {
		except = append(except, c.host())
	}
	p := &networkingv1.NetworkPolicy{}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from("0.0.0.0/0", except...)}}
	c.write(c.fresh("except"), p)
	return fmt.Sprint(n, " scattered exceptions")
}

func (c *tenancy) manyPolicies() string {
	n := 1 + c.r.IntN(1500)
	for i := range n {
		p := &networkingv1.NetworkPolicy{}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from(c.host()), Ports: port80()}}
		c.write(fmt.Sprint("many", i), p)
	}
	return fmt.Sprint(n, " policies")
}

func (c *tenancy) denies() string {
	n := 1 + c.r.IntN(300)
	for i := range n {
		p := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("deny", i)}}
		p.Spec.AppliedTo = []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}
		p.Spec.Priority = float64(1 + c.r.IntN(100))
		if c.r.IntN(2) == 0 {
			p.Spec.Priority = 5 // as the honest tenant's policy
		}
		for range 1 + c.r.IntN(20) {
			rule := crdv1beta1.Rule{Action: oneOf[crdv1beta1.Action](c.r, "Drop", "Allow", "Reject", "Pass")}
			rule.From = []crdv1beta1.Peer{
				{IPBlock: &crdv1beta1.IPBlock{CIDR: c.host()}}, {Group: "huge"}, {NamespaceSelector: &metav1.LabelSelector{}},
			}[:1+c.r.IntN(3)]
			p.Spec.Ingress = append(p.Spec.Ingress, rule)
		}
		c.put(p)
	}
	return fmt.Sprint(n, " policies of Antrea")
}

func (c *tenancy) selectors() string {
	n := 1 + c.r.IntN(9000)
	e := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpNotIn}
	for i := range n {
		e.Values = append(e.Values, fmt.Sprint("v", i))
	}
	p := &networkingv1.NetworkPolicy{}
	all := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}}
	if c.r.IntN(2) == 0 {
		p.Spec.PodSelector = all
	}
	for i := range 1 + c.r.IntN(2000) {
		without := metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpDoesNotExist}
		peer := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{without}}}
		rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}, Ports: port80()}
		rule.Ports[0].Port.IntVal += int32(i)
		p.Spec.Ingress = append(p.Spec.Ingress, rule)
	}
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &all}}}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	c.write(c.fresh("selectors"), p)
	return fmt.Sprint(n, " values, ", len(p.Spec.Ingress), " selectors")
}

func (c *tenancy) ports() string {
	p, n := &networkingv1.NetworkPolicy{}, 1+c.r.IntN(3000)
	var rule networkingv1.NetworkPolicyIngressRule
	for i := range n {
		port := networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(int32(1 + c.r.IntN(30000))))}
		port.EndPort = new(int32(30000 + c.r.IntN(30000)))
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
	n, labels := 1+c.r.IntN(5000), map[string]string{}
	var ports []corev1.ContainerPort
	for i := range n {
		labels[fmt.Sprint("k", i)] = fmt.Sprint("v", c.r.IntN(10))
		ports = append(ports, corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(1 + i)})
	}
	evil := podIn("x", "evil", ownName, c.addressOf("evil"), labels, ports...)
	evil.Annotations = map[string]string{
		"kubernetes.io/ingress-bandwidth": strings.Repeat("9", n), "tombolo.io/established": strings.Repeat("keep", n),
	}
	c.put(evil)
	return fmt.Sprint(n, " labels and names of ports of a Pod")
}

func (c *tenancy) addressOf(pod string) string {
	for _, a := range c.world.pods {
		if a.PodName == pod {
			return a.IPs[0].Addr().String()
		}
	}
	return ""
}

func (c *tenancy) manyPods() string {
	n := 1 + c.r.IntN(1000)
	for i := range n {
		labels := map[string]string{"app": fmt.Sprint("a", i, c.r.IntN(9))}
		port := corev1.ContainerPort{Name: "p0", ContainerPort: int32(1 + i), Protocol: corev1.ProtocolTCP}
		c.put(podIn("x", fmt.Sprint("far", i), "node-2", fmt.Sprintf("10.11.2.%d", 20+i%200), labels, port))
	}
	return fmt.Sprint(n, " Pods elsewhere")
}

func (c *tenancy) services() string {
	n := 1 + c.r.IntN(300)
	var endpoints []string
	for range 1 + c.r.IntN(100) {
		host := strings.TrimSuffix(c.host(), "/32")
		own, honest := c.addressOf("evil"), c.addressOf("server")
		endpoints = append(endpoints, oneOf(c.r, own, c.addressOf("worse"), honest, host, "127.0.0.1", "nowhere"))
	}
	for i := range n {
		var ports []int32
		for p := range 1 + c.r.IntN(10) {
			ports = append(ports, int32(80+p))
		}
		svc, slice := serviceIn("x", fmt.Sprint("svc", i), fmt.Sprintf("10.97.%d.%d", 1+i/250, 1+i%250), endpoints, ports...)
		svc.Spec.Selector = map[string]string{"app": "evil"}
		c.put(svc, slice)
	}
	return fmt.Sprint(n, " Services of ", len(endpoints), " endpoints")
}

func (c *tenancy) groups() string {
	g, n := &crdv1beta1.Group{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "huge"}}, 1+c.r.IntN(1000)
	for range n {
		b := crdv1beta1.IPBlock{CIDR: "0.0.0.0/0"}
		for range c.r.IntN(17) {
			b.Except = append(b.Except, c.host())
		}
		g.Spec.IPBlocks = append(g.Spec.IPBlocks, b)
	}
	c.put(g)
	return fmt.Sprint("a Group of ", n, " ranges")
}

func (c *tenancy) garbage() string {
	p, n := &networkingv1.NetworkPolicy{}, 1+c.r.IntN(2000)
	var peers []networkingv1.NetworkPolicyPeer
	for i := range n {
		peers = append(peers, []networkingv1.NetworkPolicyPeer{
			{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/99"}}, {},
			{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"x"}}},
			{PodSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "\x00", Operator: "Near"}}}},
		}[i%4])
	}
	below := []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(-7))}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}, {Ports: below}}
	c.write(c.fresh("garbage"), p)
	return fmt.Sprint(n, " peers that mean nothing")
}

// routerIn returns a router that joins nothing.
func routerIn(
	namespace, name string, imports ...contrailv4.VirtualNetworkRouterEntry,
) *contrailv4.VirtualNetworkRouter {
	v := &contrailv4.VirtualNetworkRouter{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	v.Labels = map[string]string{"vnr": name}
	v.Spec.Type, v.Spec.VirtualNetworkSelector = contrailv4.TypeMesh, &metav1.LabelSelector{}
	v.Spec.Import.VirtualNetworkRouters = imports
	return v
}

func (c *tenancy) routers() string {
	n := 20 + c.r.IntN(20)
	for i := range n {
		keys := 5 + i%2*c.r.IntN(50)
		var imports []contrailv4.VirtualNetworkRouterEntry
		for e := range 100 {
			s := &metav1.LabelSelector{}
			for k := range keys {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: fmt.Sprintf("k%d-%d", e, k), Operator: metav1.LabelSelectorOpDoesNotExist})
			}
			if c.r.IntN(4) == 0 {
				s.MatchLabels = map[string]string{"vnr": "r"} // as all routers of the other Namespaces
			}
			imports = append(imports, contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: s,
				NamespaceSelector: &metav1.LabelSelector{}})
		}
		v := routerIn("x", fmt.Sprint("r", i), imports...)
		for l := range i % 3 * c.r.IntN(5000) {
			v.Labels[fmt.Sprint("l", l)] = ""
		}
		c.put(v)
	}
	return fmt.Sprint(n, " routers with many imports")
}

// remove takes every second object of the tenant away.
func (c *tenancy) remove() string {
	var gone []client.Object
	for _, key := range slices.Sorted(maps.Keys(c.written)) {
		if o := c.written[key]; c.r.IntN(2) == 0 && o.GetName() != "evil" && o.GetName() != "worse" {
			gone = append(gone, o)
		}
	}
	c.del(gone...)
	return fmt.Sprint(len(gone), " objects are removed")
}

// everythingGoes leaves the tenant's two Pods with the labels that they had.
func (c *tenancy) everythingGoes() {
	var all []client.Object
	for _, o := range c.written {
		if o.GetName() != "evil" && o.GetName() != "worse" {
			all = append(all, o)
		}
	}
	c.del(all...)
	c.put(podIn("x", "evil", ownName, c.addressOf("evil"), map[string]string{"app": "evil"}))
}

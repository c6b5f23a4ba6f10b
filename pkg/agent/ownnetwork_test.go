package agent

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// ownPod adds a Pod with annotations about its first interface.
func (r *networkRig) ownPod(name string, hostNetwork bool, annotations map[string]string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name),
		Annotations: annotations}}
	p.Spec.NodeName, p.Spec.HostNetwork = "node-1", hostNetwork
	r.view.Pods = append(r.view.Pods, p)
	r.settle()
}

// TestOwnNetworkOfPods follows Pods whose first interface is in a VirtualNetwork, from the annotation to the address.
func TestOwnNetworkOfPods(t *testing.T) {
	r := newNetworkRig(t)
	expect := func(have, want string) {
		t.Helper()
		if !strings.HasPrefix(have, want) || want == "" && have != "" {
			t.Errorf("%s, want %s", have, want)
		}
	}
	why := func(name string) string {
		t.Helper()
		_, why := r.extras(name)
		return why
	}
	const annotation = "annotation net.juniper.contrail.podnetwork: "
	blue := map[string]string{tenant.AnnotationPodNetwork: "a/blue"}
	r.ownPod("web", false, blue)
	expect(why("web"), annotation+"VirtualNetwork a/blue is no network of first interfaces: set spec.podNetwork to true")
	network := r.view.Others[0].(*contrailv4.VirtualNetwork).DeepCopy()
	network.Spec.PodNetwork = true
	r.view.Others[0] = network
	r.settle()
	expect(why("web"), annotation+"VirtualNetwork a/blue is no network of first interfaces: operators have not listed "+
		"range 10.50.0.0/24 of Subnet a/v4: have them add it to tenantNetworks.subnetCIDRs")
	expect(r.report(), "none")
	r.p.tables.config.TenantNetworks.SubnetCIDRs = []string{"fc00::/7", "10.50.0.0/16"}
	r.settle()
	expect(why("web"), annotation+"VirtualNetwork a/blue has no addresses on this Node yet: look at the observation of")
	expect(r.report(), "a/blue 1 []")
	r.grant()
	expect(r.add("web"), "[10.50.0.2/24]")
	r.settle()
	expect(r.report(), "a/blue 1 [] 10.50.0.2 web uid-web")

	asking := func(ip string) map[string]string {
		return map[string]string{tenant.AnnotationPodNetwork: "blue", tenant.AnnotationPodNetworkIP: ip}
	}
	r.ownPod("pinned", false, asking("10.50.0.9"))
	expect(r.add("pinned"), "[10.50.0.9/24]")
	r.ownPod("outside", false, asking("10.9.0.9"))
	expect(why("outside"), annotation+"VirtualNetwork a/blue has no Subnet with 10.9.0.9: correct ips in the annotation")
	r.ownPod("lost", false, map[string]string{tenant.AnnotationPodNetwork: "a/green"})
	expect(why("lost"), annotation+"VirtualNetwork a/green is not there, or has no Subnet")
	r.ownPod("foreign", false, map[string]string{tenant.AnnotationPodNetwork: "b/blue"})
	expect(why("foreign"), annotation+"VirtualNetwork b/blue is of another Namespace")
	r.ownPod("twice", false, map[string]string{tenant.AnnotationPodNetwork: "a/blue",
		tenant.AnnotationNetworks: "blue"})
	expect(why("twice"), "annotation k8s.v1.cni.cncf.io/networks: VirtualNetwork a/blue is the network of the Pod's "+
		"first interface already")
	r.ownPod("host", true, blue)
	if !slices.ContainsFunc(podProblems(r.p.tables), func(text string) bool {
		return strings.Contains(text, "a/host") && strings.Contains(text, "has spec.hostNetwork")
	}) {
		t.Errorf("no problem about hostNetwork: %q", podProblems(r.p.tables))
	}

	// Pods that started before an annotation are in the default network, and are reported. Others are not.
	late := func(port, pod, uid string) (reported bool) {
		t.Helper()
		key := derive.Name(port)
		r.p.tables.pods.attachments.Set(key, cni.Attachment{ContainerID: "c-" + pod, IfName: "eth0", PodNamespace: "a",
			PodName: pod, PodUID: types.UID(uid), PortName: port, MAC: "0a:00:00:00:00:09",
			IPs: []netip.Prefix{netip.MustParsePrefix("10.10.0.9/24")}})
		r.p.tables.engine.Pass()
		reported = slices.ContainsFunc(podProblems(r.p.tables), func(text string) bool {
			return strings.Contains(text, "a/"+pod) && strings.Contains(text, "names VirtualNetwork a/blue: delete the Pod")
		})
		r.p.tables.pods.attachments.Delete(key)
		r.p.tables.engine.Pass()
		return reported
	}
	r.ownPod("late", false, blue)
	if !late("late-1", "late", "uid-late") || late("late-1", "late", "uid-of-an-earlier-one") {
		t.Errorf("the Pod in the default network: problems %q", podProblems(r.p.tables))
	}
	r.ownPod("plainly", false, nil)
	if late("plainly-1", "plainly", "uid-plainly") {
		t.Errorf("a Pod without the annotation is reported: %q", podProblems(r.p.tables))
	}

	// The Namespace's annotation holds for its Pods without one, and an isolated Namespace has another network.
	space := r.view.Namespaces[0].DeepCopy()
	space.Annotations = blue
	r.view.Namespaces = []*corev1.Namespace{space}
	r.pod("plain", "")
	expect(r.add("plain"), "[10.50.0.3/24]")
	space = space.DeepCopy()
	space.Labels = map[string]string{tenant.LabelIsolated: "true"}
	r.view.Namespaces = []*corev1.Namespace{space}
	r.pod("isolated", "")
	expect(why("isolated"), "annotation net.juniper.contrail.podnetwork of Namespace a: Namespace a is isolated")
	r.view.Namespaces = nil
	r.pod("early", "")
	expect(why("early"), "the agent has not read Namespace a yet")
}

// TestSeparateOwnNetworkOfPods has a Pod whose own network is a separate one. Its first interface is inside the network
// with addresses of the Node, and a further interface has the requested address. No operator has listed the range.
func TestSeparateOwnNetworkOfPods(t *testing.T) {
	r := newNetworkRig(t)
	network := r.view.Others[0].(*contrailv4.VirtualNetwork).DeepCopy()
	network.Spec.PodNetwork = true
	r.view.Others[0] = network
	r.lease.Spec.Zone = 17
	r.ownPod("web", false, map[string]string{tenant.AnnotationPodNetwork: "a/blue",
		tenant.AnnotationPodNetworkIP: "10.50.0.9"})
	if have := r.report(); have != "a/blue 1 [10.50.0.9]" {
		t.Fatalf("the Node claims %s", have)
	}
	r.grant()
	list, why := r.extras("web")
	if len(list) != 2 || list[0].IfName != "eth0" || list[0].Inside != "a/blue" || list[0].VirtualNetwork != "" ||
		list[1].IfName != tenant.OwnInterface || list[1].VirtualNetwork != "a/blue" {
		t.Fatalf("the interfaces are %+v: %s", list, why)
	}
	err := r.p.Allocate(t.Context(), list[1], func(ranges []ipam.Range) error {
		_, err := r.store.Allocate(ipam.Key{ContainerID: "c-web", IfName: list[1].IfName}, "a/web",
			ipam.Interface{VirtualNetwork: list[1].VirtualNetwork, PodUID: "uid-web"}, ranges)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.settle()
	have, _ := r.stored.stored()
	if n := have.Spec.Networks; len(n) != 1 || n[0].Pods != 1 || len(n[0].Addresses) != 1 ||
		n[0].Addresses[0].Address != "10.50.0.9" || !n[0].Addresses[0].Own {
		t.Errorf("the report has %+v", n)
	}

	// The Pod is in the network: nothing is reported about it, and its packets have the network's number.
	r.p.tables.pods.attachments.Set("web-1", cni.Attachment{ContainerID: "c-web", IfName: "eth0", PodNamespace: "a",
		PodName: "web", PodUID: "uid-web", PortName: "web-1", MAC: "0a:00:00:00:00:09", Inside: "a/blue",
		IPs: []netip.Prefix{netip.MustParsePrefix("10.11.0.9/24")}})
	r.p.tables.pods.numbers.Set("web-1", 9)
	r.p.tables.engine.Pass()
	if list := podProblems(r.p.tables); len(list) > 0 {
		t.Errorf("problems %q", list)
	}
	pod, _ := r.p.tables.pods.rows.Get("web-1")
	if want := (derive.Object{Namespace: "a", Name: "blue"}); pod.Inside != want || pod.Network != (derive.Object{}) {
		t.Errorf("the Pod's port is %+v, want it inside %s", pod, want)
	}

	r.ownPod("taken", false, map[string]string{tenant.AnnotationNetworks: "[{\"name\": \"blue\", " +
		"\"interface\": \"vn0\"}]"})
	if _, why := r.extras("taken"); !strings.Contains(why, "interface \"vn0\" is taken") {
		t.Errorf("a further interface vn0: %q", why)
	}
}

// podProblems returns the problems of Pods.
func podProblems(t *tables) (out []string) {
	for _, p := range t.engine.Problems() {
		if p.Kind == "Pod" {
			out = append(out, p.String())
		}
	}
	return out
}

// TestOwnNetworkPort has a Pod's first interface in a VirtualNetwork on the switch. The host has routes to its
// addresses, which are no ranges of the Node.
func TestOwnNetworkPort(t *testing.T) {
	r := newNetworkRig(t)
	v := r.view
	before := newTables(v.Config, v.NodeName)
	before.set(v)
	before.engine.Pass()
	v.Attachments = append(v.Attachments, cni.Attachment{ContainerID: "c1", IfName: "eth0", PodNamespace: "a",
		PodName: "web", PortName: "web-first", MAC: "0a:00:00:00:00:07", VirtualNetwork: "a/blue",
		IPs: []netip.Prefix{netip.MustParsePrefix("10.50.0.2/24"), netip.MustParsePrefix("fd50::2/64")}})
	v.Switch = bridge.State{Connected: true, Bridges: map[string]bridge.Found{"br-int": {
		Ports: map[string]bridge.PortState{"web-a1b2c3": {OFPort: 1}, "web-first": {OFPort: 77}}}}}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	served, _ := tables.flows.ServedPods.Get("web-first")
	if want := (derive.Object{Namespace: "a", Name: "blue"}); served.Pod.Network != want || !served.Pod.First ||
		!served.Served {
		t.Errorf("the port is served as %+v", served.Pod)
	}
	if ps := podProblems(tables); len(ps) > 0 {
		t.Errorf("problems %q", ps)
	}
	was, _ := before.node.Get(self)
	now, _ := tables.node.Get(self)
	if now.Families != was.Families || len(now.PodCIDRs) != len(was.PodCIDRs) {
		t.Errorf("the Node is %+v, was %+v", now, was)
	}
	host, _ := tables.outputs.host.Get(self)
	to := func(list []hostnet.Route) (out []hostnet.Route) {
		for _, route := range list {
			if route.Dst == netip.MustParsePrefix("10.50.0.2/32") {
				out = append(out, route)
			}
		}
		return out
	}
	gateway := now.GatewayIPs[0]
	if have := to(host.Routes); len(have) != 1 || have[0].Source != gateway || have[0].Gateway.IsValid() {
		t.Errorf("the host has the routes %+v, want one from %s", have, gateway)
	}
	if have := to(host.Forwarded); len(have) != 1 || !have[0].Gateway.IsValid() {
		t.Errorf("the host forwards by %+v", have)
	}
	without, _ := before.outputs.host.Get(self)
	if len(host.Routes) != len(without.Routes)+1 {
		t.Errorf("the host has %d routes, had %d", len(host.Routes), len(without.Routes))
	}
	// Servers outside, such as the API server of another Node, see the Node.
	if have, want := host.Masquerade.Always, append(slices.Clone(without.Masquerade.Always),
		netip.MustParsePrefix("10.50.0.2/32")); !slices.Equal(have, want) {
		t.Errorf("the host translates %v, want %v", have, want)
	}
}

// TestTranslatedBlocks has the host translate the blocks that this Node has of networks of first interfaces. A further
// Pod changes no rule of the host.
func TestTranslatedBlocks(t *testing.T) {
	r := newNetworkRig(t)
	r.p.tables.config.TenantNetworks.SubnetCIDRs = []string{"10.50.0.0/16"}
	attached := map[string]bridge.PortState{}
	r.view.Switch = bridge.State{Connected: true, Bridges: map[string]bridge.Found{"br-int": {Ports: attached}}}
	attach := func(port, ip string) {
		attached[port] = bridge.PortState{OFPort: 70 + uint32(len(attached))}
		r.view.Attachments = append(r.view.Attachments, cni.Attachment{ContainerID: "c-" + port, IfName: "eth0",
			PodNamespace: "a", PodName: port, PortName: port, MAC: "0a:00:00:00:00:07", VirtualNetwork: "a/blue",
			IPs: []netip.Prefix{netip.MustParsePrefix(ip)}})
		r.settle()
	}
	own := func(set bool) {
		n := r.view.Others[0].(*contrailv4.VirtualNetwork).DeepCopy()
		n.Spec.PodNetwork = set
		r.view.Others[0] = n
		r.settle()
	}
	host := func() hostnet.Masquerade {
		host, _ := r.p.tables.outputs.host.Get(self)
		return host.Masquerade
	}
	always := func(when, want string) {
		t.Helper()
		r.p.tables.engine.Pass()
		var have []netip.Prefix
		for _, p := range host().Always {
			if p.Addr() != serviceVIP {
				have = append(have, p)
			}
		}
		if fmt.Sprint(have) != want {
			t.Errorf("%s, the host translates %v, want %s", when, have, want)
		}
	}
	r.pod("web", "a/blue") // by a further interface
	r.grant()
	r.lease.Spec.Nodes = append(r.lease.Spec.Nodes, tombolov1alpha1.NodeBlocks{Node: "node-2", Claim: "c",
		CIDRs: []string{"10.50.0.16/28"}})
	r.settle()
	always("without podNetwork", "[]")
	own(true)
	always("with podNetwork", "[10.50.0.0/28]")
	before := host()
	attach("one", "10.50.0.3/24")
	attach("two", "10.50.0.4/24")
	always("with Pods", "[10.50.0.0/28]")
	if !reflect.DeepEqual(host(), before) {
		t.Errorf("Pods change the rules to %v, were %v", host(), before)
	}
	if r.p.tables.pods.firsts.Len() != 2 {
		t.Errorf("%d first interfaces", r.p.tables.pods.firsts.Len())
	}
	r.lease.Spec.Zone = 7
	r.settle()
	always("in a separate network", "[10.50.0.3/32 10.50.0.4/32]")
	r.lease.Spec.Zone = 0
	own(false)
	always("without podNetwork again", "[10.50.0.3/32 10.50.0.4/32]")
	own(true)
	r.view.Attachments = r.view.Attachments[:len(r.view.Attachments)-1]
	r.lease.Spec.Nodes = r.lease.Spec.Nodes[1:]
	r.settle()
	always("without a block", "[10.50.0.3/32]")
}

// TestWhyOwnNetwork asks about Pods whose first interface is in a VirtualNetwork. A real switch proves the answers of
// its Node.
func TestWhyOwnNetwork(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) { c.FeatureGates["TenantNetworks"] = true })
	a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid of default"}}
	delete(a.world.policies, "db") // it is about other clients
	a.addFurther()
	// Pod own of this Node, and Pod far of another one, whose status has its address in red.
	far := a.world.objects["default/far"].DeepCopy()
	far.Status.PodIPs = []corev1.PodIP{{IP: "10.50.1.18"}}
	a.world.objects["default/far"] = far
	own := podIn("default", "own", ownName, "10.50.1.2", map[string]string{"app": "own"})
	a.world.objects["default/own"] = own
	for _, o := range a.world.others {
		if v, ok := o.(*contrailv4.VirtualNetwork); ok {
			v.Spec.PodNetwork = v.Name == "red"
		}
	}
	a.world.spaces["b"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid of b"}}
	db := a.db.IPs[0].Addr().String()
	a.publish("b", "shared", "10.97.0.52", 30052, db)
	a.publish("b", "remote", "10.97.0.53", 30053, "10.11.2.77")
	a.publish("b", "virtual", "10.97.0.54", 30054, "10.50.1.2")
	a.publish("default", "wrong", "10.97.0.55", 30055, db)
	a.publish("default", "inside", "10.97.0.56", 30056, "10.50.1.18")
	a.publish("default", "kubernetes", "10.97.0.1", 30057, "192.0.2.10")
	p := a.world.newPod()
	delete(a.world.pods, p.PortName)
	p.PodNamespace, p.PodName, p.PortName, p.VirtualNetwork = "default", "own", "own-a1b2c3", "default/red"
	p.IPs = []netip.Prefix{netip.MustParsePrefix("10.50.1.2/24")}
	a.world.pods[p.PortName] = p
	a.settle()
	a.ovs.Device(p.PortName)
	ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
	defer cancel()
	attaches := a.agent.cniNode()
	attaches.host = hostnet.New(hostnet.Options{}) // no host is configured here
	a.must(attaches.Attach(ctx, p))
	a.settle()
	for query, want := range map[string]string{
		"from=default/own&to=default/far&port=80":         "allowed at node-2",
		"from=default/own&to=10.50.1.18&port=80":          "allowed at node-2",
		"from=default/own@eth0&to=default/far@red&port=8": "allowed at node-2",
		"from=default/far&to=default/own&port=80":         "allowed, traced",
		"from=node/node-1&to=default/own&port=80":         "allowed, traced",
		"from=node/node-1&to=10.50.1.2&port=80":           "allowed, traced",
		"from=node/node-2&to=default/own&port=80":         "denied at ",
		"from=default/db&to=default/own&port=80":          "denied, traced",
		"from=default/db&to=default/far&port=80":          "denied at ",
		"from=default/db@blue&to=default/own&port=80":     "denied, traced",
		"from=default/own&to=default/db&port=80":          "denied, traced",
		"from=default/own&to=192.0.2.1&port=80":           "denied, traced",
		"from=default/own&to=b/shared":                    "allowed, traced",
		"from=default/far&to=b/shared":                    "allowed, traced",
		"from=default/far@red&to=b/shared":                "allowed, traced",
		"from=default/own&to=b/virtual":                   "denied, traced",
		"from=default/own&to=default/wrong":               "denied, traced",
		"from=default/far&to=default/wrong":               "denied at node-2",
		"from=default/own&to=default/inside":              "allowed at node-2",
		"from=default/own&to=default/kubernetes":          "allowed, traced",
		"from=default/db@blue&to=b/shared":                "denied, traced",
	} {
		if have := a.network(query + "&family=ipv4"); have != want {
			t.Errorf("%s: %q, want %q", query, have, want)
		}
	}
	// Another Node gets the Pod's address. The Pod has no Services then, and the switch answers the same.
	a.world.nodes["node-9"] = testNode("node-9", "192.168.78.109", "10.50.1.0/24")
	a.settle()
	for query, want := range map[string]string{
		"from=default/own&to=b/shared":            "denied, traced",
		"from=default/own&to=default/far&port=80": "allowed at node-2",
	} {
		if have := a.network(query + "&family=ipv4"); have != want {
			t.Errorf("with an address of another Node, %s: %q, want %q", query, have, want)
		}
	}
}

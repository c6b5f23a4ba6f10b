package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// serve adds a Service with endpoints to the world.
func (a *asked) serve(name string, endpoints ...string) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.97.0.10", []string{"10.97.0.10"}
	s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-a",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(5432)), Protocol: new(corev1.ProtocolTCP)}},
	}
	six := slice.DeepCopy()
	six.Name, six.AddressType = name+"-6", discoveryv1.AddressTypeIPv6
	for _, ip := range endpoints {
		to := slice
		if strings.Contains(ip, ":") {
			to = six
		}
		to.Endpoints = append(to.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	a.world.services["default/"+name], a.world.slices["default/"+name+"-a"] = s, slice
	if len(six.Endpoints) > 0 {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd97::10")
		a.world.slices["default/"+name+"-6"] = six
	}
	a.settle()
}

// stages has a word for each stage: egress of the client, ingress of the server.
func stages(c api.WhyConnection) string {
	var out []string
	for _, s := range c.Stages {
		text := map[bool]string{true: "allowed", false: "denied"}[s.Allowed]
		switch {
		case s.Pod+s.Service == "":
			text = "nothing"
		case !s.Here:
			text += " at " + s.Node
		case s.Trace != nil && s.Trace.Agrees:
			text += ", traced"
		case s.Trace != nil && s.Trace.Error != "":
			text += ", " + s.Trace.Error
		case s.Trace != nil:
			text += ", the switch says otherwise"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// TestWhy asks about connections, and has a real switch prove the answers.
func TestWhy(t *testing.T) {
	a := newAsked(t)
	a.serve("store", a.db.IPs[0].Addr().String(), "10.11.2.9", "198.51.100.9")
	for _, row := range []whyRow{
		{
			name: "allowed by two rules", query: "from=default/web&to=default/db&port=5432",
			want: []string{"allowed, traced; allowed, traced"},
			reasons: []string{
				"Allow of NetworkPolicy default/web egress[0]: to Pods with app=db in Namespace default, every port",
				"Allow of NetworkPolicy default/db ingress[0]: from Pods with app=web in Namespace default or 198.51.100.0/24, " +
					"TCP/5432",
			},
		},
		{name: "port by name", query: "from=default/web&to=default/db&port=main",
			want: []string{"allowed, traced; allowed, traced"}},
		{
			name: "denied where it comes to", query: "from=default/web&to=default/db&port=80",
			want:    []string{"allowed, traced; denied, traced"},
			reasons: []string{"NetworkPolicies isolate the Pod for ingress, and none of their rules allows it"},
		},
		{name: "another protocol", query: "from=default/web&to=default/db&port=5432&protocol=udp",
			want: []string{"allowed, traced; denied, traced"}},
		{name: "without ports", query: "from=default/web&to=default/db&protocol=icmp",
			want: []string{"allowed, traced; denied, traced"}},
		{
			name: "denied where it comes from", query: "from=default/web&to=198.51.100.9&port=443",
			want:    []string{"denied, traced; nothing"},
			reasons: []string{"isolate the Pod for egress", "198.51.100.9 is no Pod of this cluster"},
		},
		{
			name: "nothing isolates", query: "from=default/db&to=default/web&port=80",
			want:    []string{"allowed, traced; allowed, traced"},
			reasons: []string{"no policy applies to the Pod for egress", "from everybody, every port"},
		},
		{name: "to itself", query: "from=default/web&to=default/web&port=80",
			want: []string{"allowed, traced; allowed, traced"}, reasons: []string{"a Pod always reaches itself"}},
		{name: "from another Node", query: "from=default/far&to=default/db&port=5432",
			want: []string{"allowed at node-2; allowed, traced"}, reasons: []string{"default/web egress[0]"}},
		{name: "from another Node, denied", query: "from=default/far&to=default/db&port=81",
			want: []string{"allowed at node-2; denied, traced"}},
		{name: "to another Node", query: "from=default/db&to=default/far&port=80",
			want: []string{"allowed, traced; allowed at node-2"}},
		{name: "by address",
			query: "from=" + a.web.IPs[0].Addr().String() + "&to=" + a.db.IPs[0].Addr().String() + "&port=5432",
			want:  []string{"allowed, traced; allowed, traced"}},
		{name: "from the world", query: "from=198.51.100.7&to=default/db&port=5432",
			want: []string{"nothing; allowed, traced"}},
		{name: "from a range", query: "from=203.0.113.0/24&to=default/db&port=5432",
			want: []string{"nothing; denied, traced"}},
		{
			name: "from an unknown Pod", query: "from=10.11.2.77&to=default/db&port=5432",
			want:    []string{"nothing; denied, traced"},
			reasons: []string{"10.11.2.77 is in a podCIDR of Node node-2, and no Pod with it is known"},
		},
		{name: "from the Node", query: "from=" + selfGateway + "&to=default/db&port=1",
			want: []string{"nothing; allowed, traced"}, reasons: []string{"for the kubelet's probes"}},
		{
			name: "by a Service", query: "from=default/web&to=default/store",
			want: []string{"allowed, traced; allowed, traced", "denied, traced; allowed at node-2", "denied, traced; nothing"},
		},
	} {
		t.Run(row.name, func(t *testing.T) { a.why(t, row) })
	}
}

// whyRow is a question with its answer.
type whyRow struct {
	name, query string
	want        []string // the stages of each connection
	reasons     []string // somewhere in the reasons of the first
}

// why asks, and has the switch prove the answer. Endpoints are in the order of their addresses, IPv4 first.
func (a *asked) why(t *testing.T, row whyRow) api.Why {
	t.Helper()
	var w api.Why
	if e := a.get(api.PathWhy+"?trace=true&"+row.query, &w); e != "" {
		t.Fatal(e)
	}
	var have []string
	reasons := ""
	for i, c := range w.Connections {
		have = append(have, stages(c))
		for _, s := range c.Stages {
			if i == 0 {
				reasons += s.Reason + "\n"
			}
		}
		if allowed := !strings.Contains(stages(c), "denied"); c.Allowed != allowed {
			t.Errorf("connection allowed %v, its stages say %s", c.Allowed, stages(c))
		}
	}
	if !slices.Equal(have, row.want) {
		t.Errorf("have %q\nwant %q\n%+v", have, row.want, w)
	}
	for _, text := range row.reasons {
		if !strings.Contains(reasons, text) {
			t.Errorf("no %q in the reasons:\n%s", text, reasons)
		}
	}
	return w
}

// TestWhyIPv6 asks about connections of Pods that have both versions of IP.
func TestWhyIPv6(t *testing.T) {
	const (
		allowed = "allowed, traced; allowed, traced"
		denied  = "allowed, traced; denied, traced"
	)
	a := newAskedOf(t, family.Dual)
	db, web := a.db.IPs[1].Addr().String(), a.web.IPs[1].Addr().String()
	echo := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo"}}
	echo.Spec.Priority, echo.Spec.AppliedTo = 1,
		[]crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}
	echo.Spec.Ingress = []crdv1beta1.Rule{{Action: crdv1beta1.ActionAllow,
		Protocols: []crdv1beta1.Protocol{{ICMP: &crdv1beta1.ICMP{ICMPType: new(int32(128))}}}}}
	names := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "names"}}
	names.Spec.Priority, names.Spec.AppliedTo = 1,
		[]crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	names.Spec.Egress = []crdv1beta1.Rule{
		{Action: crdv1beta1.ActionAllow, To: []crdv1beta1.Peer{{FQDN: "api.example.com"}}},
		{Action: crdv1beta1.ActionAllow, ToServices: []crdv1beta1.ServiceReference{{Name: "outside"}}},
	}
	a.world.others = []client.Object{echo, names}
	a.serve("store", a.db.IPs[0].Addr().String(), db, "10.11.2.9", "fd11:0:0:2::9", "2001:db8:9::9")
	ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
	defer cancel()
	if !a.agent.tables.engine.Do(ctx, func() {
		a.agent.tables.policies.Learned.Set("api.example.com",
			[]netip.Addr{netip.MustParseAddr("198.51.100.80"), netip.MustParseAddr("2001:db8:7::80")})
	}) {
		t.Fatal("the agent does not look at its tables")
	}
	a.settle()
	for _, row := range []whyRow{
		{
			name: "both versions", query: "from=default/web&to=default/db&port=5432", want: []string{allowed, allowed},
			reasons: []string{"Allow of NetworkPolicy default/web egress[0]: to Pods with app=db"},
		},
		{name: "the one that is chosen", query: "from=default/web&to=default/db&port=5432&family=ipv6",
			want: []string{allowed}},
		{name: "by address", query: "from=" + web + "&to=default/db&port=5432", want: []string{allowed}},
		{name: "by two addresses, UDP", query: "from=" + web + "&to=" + db + "&port=5432&protocol=udp",
			want: []string{denied}},
		{name: "SCTP", query: "from=" + web + "&to=" + db + "&port=5432&protocol=sctp", want: []string{denied}},
		{name: "denied where it comes to", query: "from=default/web&to=default/db&port=80", want: []string{denied, denied}},
		{name: "echo by the number of ICMPv6", query: "from=default/web&to=default/db&protocol=icmp",
			want: []string{denied, allowed}},
		{
			name: "denied where it comes from", query: "from=default/web&to=2001:db8:9::9&port=443",
			want:    []string{"denied, traced; nothing"},
			reasons: []string{"isolate the Pod for egress", "2001:db8:9::9 is no Pod of this cluster"},
		},
		{name: "to itself", query: "from=default/web&to=default/web&port=80&family=IPv6", want: []string{allowed},
			reasons: []string{"a Pod always reaches itself"}},
		{name: "from another Node", query: "from=default/far&to=default/db&port=5432",
			want: []string{"allowed at node-2; allowed, traced", "allowed at node-2; allowed, traced"}},
		{name: "to another Node", query: "from=default/db&to=default/far&port=80&family=ipv6",
			want: []string{"allowed, traced; allowed at node-2"}},
		{name: "from the world", query: "from=2001:db8:5::7&to=default/db&port=5432",
			want: []string{"nothing; allowed, traced"}},
		{name: "from a range", query: "from=2001:db8:6::/64&to=default/db&port=5432",
			want: []string{"nothing; denied, traced"}},
		{name: "IPv4 in IPv6 form", query: "from=::ffff:198.51.100.7&to=default/db&port=5432",
			want: []string{"nothing; allowed, traced"}},
		{
			name: "from an unknown Pod", query: "from=fd11:0:0:2::77&to=default/db&port=5432",
			want:    []string{"nothing; denied, traced"},
			reasons: []string{"fd11:0:0:2::77 is in a podCIDR of Node node-2, and no Pod with it is known"},
		},
		{name: "from the Node's address", query: "from=fd11:0:0:1::1&to=default/db&port=1",
			want: []string{"nothing; allowed, traced"}, reasons: []string{"for the kubelet's probes"}},
		{name: "from the Node", query: "from=node/node-1&to=default/db&port=1",
			want: []string{"nothing; allowed, traced", "nothing; allowed, traced"}},
		{name: "from another Node's host", query: "from=node/node-2&to=default/db&port=1",
			want: []string{"nothing; denied, traced", "nothing; denied, traced"}},
		{name: "to a Node, which has IPv4 alone", query: "from=default/db&to=node/node-2&port=1",
			want: []string{"allowed, traced; nothing"}},
		{name: "by a name of DNS", query: "from=default/web&to=2001:db8:7::80&port=443",
			want: []string{"allowed, traced; nothing"}, reasons: []string{"to name api.example.com"}},
		{
			name: "by a Service", query: "from=default/web&to=default/store",
			want: []string{allowed, "denied, traced; allowed at node-2", "denied, traced; nothing", allowed,
				"denied, traced; allowed at node-2"},
		},
		{
			name: "by a Service, over one version", query: "from=default/web&to=default/store&family=ipv4",
			want: []string{allowed, "denied, traced; allowed at node-2"},
		},
	} {
		t.Run(row.name, func(t *testing.T) { a.why(t, row) })
	}
	clear(a.world.services) // it has the same ClusterIPs
	clear(a.world.slices)
	a.serve("outside", "198.51.100.9", "2001:db8:9::9")
	for _, row := range []whyRow{
		{
			name: "a Service that a rule names", query: "from=default/web&to=default/outside",
			want:    []string{"allowed, traced; nothing", "allowed, traced; nothing"},
			reasons: []string{"to Service default/outside"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := a.why(t, row)
			six := w.Connections[1]
			have := fmt.Sprintf("%v %v %s %s", w.From.Addresses, w.To.Addresses, six.From, six.Asked)
			want := fmt.Sprintf("[%s %s] [10.97.0.10 fd97::10] %s [fd97::10]:80", a.web.IPs[0].Addr(), web, web)
			if have != want {
				t.Errorf("addresses: %s, want %s", have, want)
			}
		})
	}
	for query, want := range map[string]string{
		"from=" + web + "&to=198.51.100.9&port=1": "no version of IP is common to them",
		"from=" + web + "&to=10.11.2.9&port=1&family=ipv6": "family: not both ends have an address of IPv6: from is " +
			"Pod default/web " + web + ", to is Pod default/far 10.11.2.9",
		"from=default/web&to=default/db&port=1&family=6": `family "6" is not one of IPv4 and IPv6`,
		"from=node/node-9&to=default/db&port=1":          "is called node/node-9",
	} {
		if e := a.get(api.PathWhy+"?"+query, &api.Why{}); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	for name, ip := range map[string]string{ownName: "fd78::101", "node-2": "fd78::102"} {
		n := a.world.nodes[name].DeepCopy()
		n.Status.Addresses[0].Address = ip
		a.world.nodes[name] = n
	}
	a.settle()
	a.why(t, whyRow{name: "by a tunnel over IPv6", query: "from=default/far&to=default/db&port=5432",
		want: []string{"allowed at node-2; allowed, traced", "allowed at node-2; allowed, traced"}})
}

// TestWhyOfService asks about clients of a Service's addresses for clients outside, and has a real switch prove the
// decisions of the policies that are applied to the Service.
func TestWhyOfService(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) {
		c.AntreaProxy.ProxyAll = true
	})
	for name, ip := range map[string]string{ownName: "fd78::101", "node-2": "fd78::102"} {
		n := a.world.nodes[name].DeepCopy()
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		a.world.nodes[name] = n
	}
	p := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}
	p.Spec = crdv1beta1.PolicySpec{Priority: 5,
		AppliedTo: []crdv1beta1.AppliedTo{{Service: &crdv1beta1.ObjectReference{Namespace: "default", Name: "edge"}}},
		Ingress: []crdv1beta1.Rule{
			{Action: crdv1beta1.ActionAllow, From: []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: "203.0.113.0/24"}},
				{IPBlock: &crdv1beta1.IPBlock{CIDR: "192.168.78.102/32"}}}},
			{Action: crdv1beta1.ActionReject, Ports: []crdv1beta1.Port{{Port: new(intstr.FromInt32(30080))}}},
			{Action: crdv1beta1.ActionDrop},
		},
	}
	a.world.others = []client.Object{p}
	a.serve("edge", a.db.IPs[0].Addr().String(), "10.11.2.9", a.db.IPs[1].Addr().String(), "fd11:0:0:2::9")
	edge := a.world.services["default/edge"].DeepCopy()
	edge.Spec.Type, edge.Spec.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, 30080
	edge.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/25"}
	edge.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.10"}}
	a.world.services["default/edge"] = edge
	six := edge.DeepCopy()
	six.Name, six.Spec.ClusterIP, six.Spec.ClusterIPs = "six", "fd97::11", []string{"fd97::11"}
	six.Spec.Ports[0].NodePort, six.Status = 30086, corev1.ServiceStatus{}
	a.world.services["default/six"] = six
	ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
	defer cancel()
	change := func(f func(t *tables)) {
		t.Helper()
		if !a.agent.tables.engine.Do(ctx, func() { f(a.agent.tables) }) {
			t.Fatal("the agent does not look at its tables")
		}
	}
	a.settle()
	const toDB, toFar = "; nothing; denied, traced", "; nothing; allowed at node-2"
	for _, row := range []whyRow{
		{
			name: "an allowed client of the load balancer", query: "from=203.0.113.7&to=198.51.100.10&port=80",
			want:    []string{"allowed, traced" + toDB, "allowed, traced" + toFar},
			reasons: []string{"Allow of AntreaClusterNetworkPolicy edge ingress[0]"},
		},
		{
			name: "a denied client of the load balancer", query: "from=192.0.2.9&to=198.51.100.10&port=80",
			want:    []string{"denied, traced" + toDB, "denied, traced" + toFar},
			reasons: []string{"Drop of AntreaClusterNetworkPolicy edge ingress[2]"},
		},
		{
			name: "a client that the Service's ranges leave out", query: "from=203.0.113.200&to=198.51.100.10&port=80",
			want:    []string{"denied, traced" + toDB, "denied, traced" + toFar},
			reasons: []string{"loadBalancerSourceRanges of the Service do not have 203.0.113.200"},
		},
		{name: "the same at the node port", query: "from=203.0.113.200&to=" + selfAddress + "&port=30080",
			want: []string{"allowed, traced" + toDB, "allowed, traced" + toFar}},
		{
			name: "a denied client of the node port", query: "from=192.0.2.9&to=" + selfAddress + "&port=30080",
			want:    []string{"denied, traced" + toDB, "denied, traced" + toFar},
			reasons: []string{"Reject of AntreaClusterNetworkPolicy edge ingress[1]"},
		},
		{name: "a Pod of another Node at the node port, by that Node's address",
			query: "from=default/far&to=" + selfAddress + "&port=30080",
			want: []string{"allowed, traced; denied at node-2; denied, traced",
				"allowed, traced; denied at node-2; allowed at node-2"},
			reasons: []string{"Allow of AntreaClusterNetworkPolicy edge ingress[0]"},
		},
		{name: "another Node at the node port", query: "from=node/node-2&to=" + selfAddress + "&port=30080",
			want: []string{"allowed, traced" + toDB, "allowed, traced" + toFar}},
		{name: "the Node's own processes", query: "from=node/node-1&to=198.51.100.10&port=80",
			want: []string{"denied, traced" + toDB, "denied, traced" + toFar}},
		{
			name: "a Pod of this Node", query: "from=default/web&to=198.51.100.10&port=80",
			want: []string{"denied, traced; allowed, traced; allowed, traced",
				"denied, traced; denied, traced; allowed at node-2"},
		},
		{name: "a Pod of another Node, which judges", query: "from=default/far&to=198.51.100.10&port=80",
			want: []string{"denied at node-2; allowed at node-2; allowed, traced",
				"denied at node-2; allowed at node-2; allowed at node-2"}},
		{name: "the host of another Node, which judges", query: "from=node/node-2&to=198.51.100.10&port=80",
			want: []string{"denied at node-2" + toDB, "denied at node-2" + toFar}},
		{name: "a client outside at the node port over IPv6", query: "from=2001:db8:5::7&to=node/node-1&port=30080",
			want: []string{"denied, traced; nothing; allowed, traced", "denied, traced" + toFar}},
		{
			name: "a Pod of this Node at the node port over both versions", query: "from=default/web&to=node/node-1&port=30080",
			want: []string{"denied, traced; allowed, traced; allowed, traced",
				"denied, traced; denied, traced; allowed at node-2",
				"denied, traced; allowed, traced; allowed, traced", "denied, traced; denied, traced; allowed at node-2"},
		},
		{name: "the ClusterIP, of which no policy of the Service judges", query: "from=203.0.113.7&to=10.97.0.10&port=80",
			want: []string{"nothing; denied, traced", "nothing; allowed at node-2"}},
	} {
		t.Run(row.name, func(t *testing.T) { a.why(t, row) })
	}
	for query, want := range map[string][]string{
		"from=default/far&port=30080&to=" + selfAddress: {"Node node-1 sees 192.168.78.102, which is of Node node-2, " +
			"instead of the client's address", "servers on other Nodes see 10.11.1.254 instead of the client's address"},
		"from=node/node-2&port=80&to=198.51.100.10": {
			"servers on other Nodes than node-2 see 10.11.2.254 instead of the client's address"},
	} {
		var w api.Why
		if e := a.get(api.PathWhy+"?"+query, &w); e != "" || !slices.Equal(w.Notes, want) {
			t.Errorf("%s: %s notes %q, want %q", query, e, w.Notes, want)
		}
	}
	for query, want := range map[string]string{
		"to=192.168.78.102&port=30080": "192.168.78.102:30080 is the node port of Service default/edge at Node node-2, " +
			"which judges",
		"to=node/node-2&port=30086": "[fd78::102]:30086 is the node port of Service default/six at Node node-2, which judges",
	} {
		if e := a.get(api.PathWhy+"?from=default/web&"+query, &api.Why{}); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	change(func(t *tables) { t.config.NoSNAT = true })
	a.why(t, whyRow{name: "a Pod of another Node at the node port, by its own address",
		query: "from=default/far&to=" + selfAddress + "&port=30080",
		want: []string{"denied, traced; denied at node-2; allowed, traced",
			"denied, traced; denied at node-2; allowed at node-2"}})
	change(func(t *tables) { t.config.NoSNAT = false })
	var w api.Why
	const seen = "servers on other Nodes see 10.11.1.254 instead of the client's address"
	if e := a.get(api.PathWhy+"?from=203.0.113.7&to=198.51.100.10&port=80", &w); e != "" || !slices.Equal(w.Notes,
		[]string{seen}) || w.To.Kind != "Service" || w.To.Address != "198.51.100.10" {
		t.Errorf("%s: %+v", e, w)
	}
	local := edge.DeepCopy()
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	a.world.services["default/edge"] = local
	slice := a.world.slices["default/edge-a"].DeepCopy()
	slice.Endpoints[0].NodeName, slice.Endpoints[1].NodeName = new(ownName), new("node-2")
	a.world.slices["default/edge-a"] = slice
	a.settle()
	for _, row := range []whyRow{
		{name: "a client outside, with externalTrafficPolicy Local", query: "from=203.0.113.7&to=198.51.100.10&port=80",
			want: []string{"allowed, traced" + toDB}},
		{
			name:  "a Pod of another Node, which judges and has all endpoints",
			query: "from=default/far&to=198.51.100.10&port=80",
			want: []string{"denied at node-2; allowed at node-2; allowed, traced",
				"denied at node-2; allowed at node-2; allowed at node-2"},
		},
		{name: "an unknown Pod of another Node", query: "from=10.11.2.77&to=198.51.100.10&port=80",
			want: []string{"denied at node-2" + toDB, "denied at node-2" + toFar}},
		{name: "the host of another Node", query: "from=node/node-2&to=198.51.100.10&port=80",
			want: []string{"denied at node-2" + toDB, "denied at node-2" + toFar}},
		{name: "the same by its address", query: "from=192.168.78.102&to=198.51.100.10&port=80",
			want: []string{"denied at node-2" + toDB, "denied at node-2" + toFar}},
		{name: "a Pod of another Node at the node port", query: "from=default/far&to=" + selfAddress + "&port=30080",
			want: []string{"allowed, traced; denied at node-2; denied, traced"}},
	} {
		t.Run(row.name, func(t *testing.T) { a.why(t, row) })
	}
}

// join joins the cluster to the cluster west, with a Gateway.
func (a *asked) join(gateway string) {
	ip := map[string]string{ownName: selfAddress, "node-2": "192.168.78.102"}[gateway]
	a.world.gateways[gateway] = &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: gateway}, GatewayIP: ip, InternalIP: ip}
	a.world.imports["west"] = &mcv1alpha1.ClusterInfoImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "west-clusterinfo"},
		Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.96.0.0/16",
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.77.101"}}},
	}
}

// TestWhyAcrossClusters asks about a client that connects to another cluster, and about clients in other clusters.
func TestWhyAcrossClusters(t *testing.T) {
	for _, gateway := range []string{"node-2", ownName} {
		t.Run("the Gateway is "+gateway, func(t *testing.T) {
			a := newAsked(t)
			a.join(gateway)
			for app, id := range map[string]uint32{"web": 12, "guest": 13} {
				a.world.labels[app] = labelIdentity("app="+app, id)
			}
			p := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
			p.Spec.Priority, p.Spec.AppliedTo = 1,
				[]crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}
			p.Spec.Ingress = []crdv1beta1.Rule{{Action: crdv1beta1.ActionAllow, From: []crdv1beta1.Peer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					Scope: crdv1beta1.ScopeClusterSet},
			}}}
			a.world.others = []client.Object{p}
			a.settle()
			// A packet that no policy judges is not traced to its end. On the Gateway other clusters reach only exported
			// Services.
			a.world.exports["default/store"] = &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "store"}}
			a.serve("store", a.db.IPs[0].Addr().String())
			for _, row := range []struct{ query, want, reason string }{
				{"from=identity/12&cluster=west&to=default/db&port=5432", "nothing; allowed, traced",
					"Allow of AntreaNetworkPolicy default/db ingress[0]"},
				{"from=identity/13&to=default/db&port=5432", "nothing; denied, traced",
					"NetworkPolicies isolate the Pod for ingress"},
				{"from=identity/unknown&to=default/db&port=5432", "nothing; denied, traced",
					"have no number in the ClusterSet yet"},
				{"from=192.168.77.101&to=default/db&port=5432", "nothing; denied, traced",
					"NetworkPolicies isolate the Pod for ingress"},
				{"from=default/web&to=10.96.0.20&port=80&cluster=west", "denied, traced; nothing", "with --from identity/12"},
				{"from=default/db&to=10.96.0.20&port=80&cluster=west", "allowed, traced; nothing", "with --from identity/unknown"},
			} {
				var w api.Why
				if e := a.get(api.PathWhy+"?trace=true&"+row.query, &w); e != "" {
					t.Errorf("%s: %s", row.query, e)
					continue
				}
				reasons := ""
				for _, s := range w.Connections[0].Stages {
					reasons += s.Reason + "\n"
				}
				if have := stages(w.Connections[0]); have != row.want || !strings.Contains(reasons, row.reason) {
					t.Errorf("%s: %s, want %s\n%swant %q", row.query, have, row.want, reasons, row.reason)
				}
			}
			for query, want := range map[string]string{
				"from=identity/99&to=default/db&port=1": "identity/99 is no number of a set of labels in the " +
					"ClusterSet",
				"from=identity/x&to=default/db&port=1":              "identity/x is no number",
				"from=identity/12&to=default/db&port=1&cluster=far": `this Node knows no cluster "far"; it knows west`,
			} {
				if e := a.get(api.PathWhy+"?"+query, &api.Why{}); !strings.Contains(e, want) {
					t.Errorf("%s: %q, want %q", query, e, want)
				}
			}
			var list api.IdentityList
			if e := a.get(api.PathIdentities, &list); e != "" {
				t.Fatal(e)
			}
			if i := slices.IndexFunc(list.Identities,
				func(i api.Identity) bool { return strings.HasSuffix(i.Labels, "app=web") }); i < 0 ||
				list.Identities[i].ClusterSet != 12 {
				t.Errorf("identities %+v, want number 12 in the ClusterSet for app=web", list.Identities)
			}

			keyed := a.world.imports["west"].DeepCopy()
			keyed.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: keyNamed("west")}
			a.world.imports["west"] = keyed
			a.serve("far", "10.96.0.20")
			for _, to := range []string{"10.96.0.20", "service/default/far"} {
				var w api.Why
				e := a.get(api.PathWhy+"?from=default/web&port=80&to="+to, &w)
				if want := "packets to 10.96.0.20 are dropped in table Route: it is of cluster west, which is reached " +
					"encrypted"; e != "" || !slices.ContainsFunc(w.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
					t.Errorf("to %s without encryption here: %s notes %q, want %q", to, e, w.Notes, want)
				}
			}
		})
	}
}

// TestWhyBadInput asks questions without an answer. The errors name the parameter and the remedy.
func TestWhyBadInput(t *testing.T) {
	a := newAsked(t)
	a.serve("db", a.db.IPs[0].Addr().String())
	a.world.objects["default/new"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"},
		Spec: corev1.PodSpec{NodeName: "node-2"}}
	lying := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lying"},
		Spec: corev1.PodSpec{NodeName: "node-2"}}
	lying.Status.PodIPs = []corev1.PodIP{{IP: a.db.IPs[0].Addr().String()}}
	a.world.objects["default/lying"] = lying
	a.settle()
	for query, want := range map[string]string{
		"from=default/lying&to=default/web&port=1": "Node node-2 cannot have (podCIDRs)",
		"to=default/db&port=1": "from is missing: give a Pod or Service as " +
			"namespace/name, a further interface as namespace/name@network, a Node as node/name, or an address",
		"from=default/web":                   "to is missing",
		"from=web&to=default/web&port=1":     `from: "web" is neither`,
		"from=default/web&to=a/b/c/d&port=1": `to: "a/b/c/d" is neither`,
		"from=default/nobody&to=default/web&port=1": "from: no Pod with a network of its own and no Service " +
			"is called default/nobody",
		"from=default/new&to=default/web&port=1": "from: Pod default/new has no address yet: wait until " +
			"it runs",
		"from=default/web&to=default/db&port=1": "there is a Pod and a Service default/db: give " +
			"pod/default/db or service/default/db",
		"from=service/default/db&to=default/web&port=1":       "is a Service, and connections come from its Pods",
		"from=default/web&to=service/default/db&port=81":      "Service default/db has no such port; it has 80/TCP",
		"from=default/web&to=service/default/db&protocol=udp": "has no such port",
		"from=default/web&to=pod/default/db":                  "port is missing",
		"from=default/web&to=pod/default/db&port=0": `port "0" is neither a number from 1 to 65535 ` +
			`nor the name`,
		"from=default/web&to=pod/default/db&port=wap":             `port "wap" is neither`,
		"from=default/web&to=pod/default/db&port=1&protocol=x":    `protocol "x" is not one of TCP, UDP, SCTP and ICMP`,
		"from=default/web&to=pod/default/db&port=1&protocol=icmp": "ICMP has no ports",
		"from=default/web&to=10.1.2.3&port=1&cluster=west":        `this Node knows no cluster "west"; it knows no other`,
		"from=default/web&to=10.1.2.3&port=1&trace=perhaps":       "give true or false",
	} {
		if e := a.get(api.PathWhy+"?"+query, &api.Why{}); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
	var w api.Why
	if e := a.get(api.PathWhy+"?from=default/web&to=service/default/db", &w); e != "" ||
		fmt.Sprint(w.To) != "{Service default/db 10.97.0.10    0 []}" {
		t.Errorf("service/default/db: %q, %+v", e, w.To)
	}
}

// hasAddress reports whether an address of a Pod's status counts. On this Node an interface must have it. On another
// Node the Node must be able to have it.
func (w *world) hasAddress(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool {
		if p.Spec.NodeName == ownName {
			return slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), func(a cni.Attachment) bool {
				return a.PodName == p.Name &&
					slices.ContainsFunc(a.IPs, func(own netip.Prefix) bool { return own.Addr().String() == ip.IP })
			})
		}
		n := w.nodes[p.Spec.NodeName]
		return n != nil && slices.ContainsFunc(n.Spec.PodCIDRs, func(text string) bool {
			r, err := netip.ParsePrefix(text)
			return err == nil && r.Contains(netip.MustParseAddr(ip.IP))
		})
	})
}

// askWhy asks about connections of Pods of this Node. If the switch can trace them, it has to agree.
func (w *walk) askWhy() {
	w.t.Helper()
	r := rand.New(rand.NewPCG(w.seed, uint64(w.number))) // separate, so that questions do not change the walk
	pods := w.world.podObjects()
	maps.DeleteFunc(pods, func(_ string, p *corev1.Pod) bool { return !w.world.hasAddress(p) })
	here := maps.Clone(pods)
	maps.DeleteFunc(here, func(_ string, p *corev1.Pod) bool { return p.Spec.NodeName != ownName })
	if len(here) == 0 {
		return
	}
	for range 3 {
		from, to := anyOf(r, here), anyOf(r, pods)
		if r.IntN(2) == 0 {
			from, to = to, from
		}
		query := fmt.Sprintf("?trace=true&from=pod/%s&to=pod/%s&port=%d&protocol=%s", from, to, oneOf(r, 53, 80, 8080),
			oneOf(r, "tcp", "udp"))
		var y api.Why
		a := asked{walk: w}
		if e := a.get(api.PathWhy+query, &y); e != "" {
			w.fail("why %s: %s", query, e)
		}
		for _, c := range y.Connections { // of each version of IP
			for _, s := range c.Stages {
				if s.Trace == nil || !s.Trace.Judged {
					continue
				}
				if strings.Contains(c.From, ":") {
					w.proved6++
				}
				if w.proved++; !s.Trace.Agrees {
					w.fail("why %s: %s from %s says allowed %v since %s; the switch says %v: %s", query, s.Direction, c.From,
						s.Allowed, s.Reason, s.Trace.Allowed, s.Trace.Tables)
				}
			}
		}
	}
}

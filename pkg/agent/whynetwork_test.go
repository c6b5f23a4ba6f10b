package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// isolate adds an isolated Namespace with two Pods: NAME-here on this Node, and NAME-far on node-2.
func (a *asked) isolate(name, far string, annotations map[string]string) {
	a.t.Helper()
	a.isolateFar(name, far, annotations)
	a.settle() // a Pod is attached after its Namespace is known
	a.addIn(name, name+"-here")
}

// isolateFar adds such a Namespace without the Pod on this Node.
func (a *asked) isolateFar(name, far string, annotations map[string]string) {
	a.world.spaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name),
		Labels: map[string]string{tenant.LabelIsolated: "true"}, Annotations: annotations}}
	pod := podIn(name, name+"-far", "node-2", far, nil)
	pod.Status.PodIPs = a.world.podIPs(far)
	a.world.objects[name+"/"+name+"-far"] = pod
}

// addFurther adds VirtualNetworks blue and red. Pod db of this Node has a further interface in blue, and Pod far of
// another Node is in both.
func (a *asked) addFurther() {
	a.t.Helper()
	report := &tombolov1alpha1.NodeNetworkReport{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}
	for i, name := range []string{"blue", "red"} {
		v := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			UID: types.UID("uid of " + name)}}
		v.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: name}
		lease := &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: "lease-" + name}}
		lease.Spec = tombolov1alpha1.SubnetLeaseSpec{
			Subnet:         tombolov1alpha1.ObjectName{Namespace: "default", Name: name},
			VirtualNetwork: tombolov1alpha1.ObjectName{Namespace: "default", Name: name},
			CIDR:           fmt.Sprintf("10.50.%d.0/24", i), Gateway: fmt.Sprintf("10.50.%d.1", i),
			Nodes: []tombolov1alpha1.NodeBlocks{
				{Node: ownName, Claim: "x", CIDRs: []string{fmt.Sprintf("10.50.%d.0/28", i)}},
				{Node: "node-2", Claim: "x", CIDRs: []string{fmt.Sprintf("10.50.%d.16/28", i)}}}}
		report.Spec.Networks = append(report.Spec.Networks, tombolov1alpha1.NodeNetwork{Namespace: "default", Name: name,
			Addresses: []tombolov1alpha1.PodNetworkAddress{{Address: fmt.Sprintf("10.50.%d.18", i), Pod: "far"}}})
		a.world.others = append(a.world.others, v, lease)
	}
	a.world.others = append(a.world.others, report)
	a.settle()
	p := a.db
	p.IfName, p.PortName, p.MAC, p.VirtualNetwork = "eth1", "db-eth1-a1b2c3", "0a:58:0a:32:00:02", "default/blue"
	p.IPs = []netip.Prefix{netip.MustParsePrefix("10.50.0.2/24")}
	a.world.pods[p.PortName] = p
	a.ovs.Device(p.PortName)
	ctx, cancel := context.WithTimeout(a.t.Context(), ovstest.Timeout())
	defer cancel()
	a.must(a.agent.cniNode().Attach(ctx, p))
}

// publish adds a Service with a port of the Nodes and an endpoint.
func (a *asked) publish(namespace, name, vip string, port int32, endpoint string) {
	s, slice := serviceIn(namespace, name, vip, []string{endpoint}, 80)
	s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, port
	a.world.services[namespace+"/"+name], a.world.slices[namespace+"/"+name] = s, slice
}

// TestWhyNetworks asks about connections of isolated Namespaces, and has a real switch prove the answers of its Node.
// Each row has the word for the networks, with its reason, and the end of the traced packet.
func TestWhyNetworks(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) {
		c.FeatureGates["TenantNetworks"], c.AntreaProxy.ProxyAll = true, true
	})
	a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid of default"}}
	a.isolate("a", "10.11.2.30", nil)
	a.isolate("b", "10.11.2.40", map[string]string{tenant.AnnotationForwardingMode: "fabric-snat"})
	here := a.world.pods["a-here-a1b2c3"].IPs[0].Addr().String()
	db := a.db.IPs[0].Addr().String()
	a.publish("a", "own", "10.97.0.50", 30050, here)
	a.publish("a", "wrong", "10.97.0.51", 30051, db)
	a.publish("default", "shared", "10.97.0.52", 30052, db)
	a.publish("default", "wrong", "10.97.0.53", 30053, here)
	a.publish("default", "kubernetes", "10.97.0.1", 30054, "192.0.2.10")
	delete(a.world.policies, "db") // it is about other clients
	a.addFurther()
	a.settle()
	const inBlue = "Pod default/db is in VirtualNetwork default/blue"
	const inA, inB = "is in the isolated Namespace a: ", "is in the isolated Namespace b: "
	for _, row := range []struct{ name, query, want, ends string }{
		{"default network to a Pod", "from=default/db&to=a/a-here&port=80",
			"denied, traced: Pod a/a-here " + inA + "Pods of other Namespaces do not reach it unless", "dropped in Route"},
		{"to one on another Node", "from=default/db&to=a/a-far&port=80",
			"denied at node-2: Pod a/a-far " + inA + "Pods of other Namespaces do not reach it unless",
			"to tombolo-tun0 192.168.78.102"},
		{"from another Node", "from=default/far&to=a/a-here&port=80",
			"denied, traced: Pod a/a-here " + inA + "Pods of other Namespaces do not reach it unless", "dropped in Route"},
		{"two isolated Namespaces", "from=b/b-here&to=a/a-here&port=80",
			"denied, traced: Pod a/a-here " + inA + "Pods of other Namespaces do not reach it unless", "dropped in Tenant"},
		{"from another Node", "from=b/b-far&to=a/a-here&port=80",
			"denied, traced: Pod a/a-here " + inA, "dropped in Tenant"},
		{"in one Namespace from another Node", "from=a/a-far&to=a/a-here&port=80",
			"allowed, traced: both Pods are in the isolated Namespace a", "to a/a-here"},
		{"in one Namespace to another Node", "from=a/a-here&to=a/a-far&port=80",
			"allowed at node-2: both Pods are in the isolated Namespace a", "to tombolo-tun0 192.168.78.102"},
		{"to the default network by address", "from=a/a-here&to=default/db&port=80",
			"denied, traced: Pod a/a-here " + inA + "it reaches Pods of other Namespaces through Services alone",
			"dropped in Tenant"},
		{"from another Node by address", "from=a/a-far&to=default/db&port=80",
			"denied, traced: Pod a/a-far " + inA + "it reaches Pods of other Namespaces through Services alone",
			"dropped in Tenant"},
		{"to the default network by a Service", "from=a/a-here&to=default/shared",
			"allowed, traced: Pod a/a-here is in the isolated Namespace a, and the Service is in no isolated Namespace: all " +
				"Pods reach it", "to default/db"},
		{"to a port of this Node", "from=a/a-here&to=" + selfAddress + "&port=30052",
			"allowed, traced: Pod a/a-here is in the isolated Namespace a, and the Service", "to default/db"},
		{"to the API server", "from=a/a-here&to=default/kubernetes",
			"allowed, traced: Pod a/a-here is in the isolated Namespace a, and the Service", "to antrea-gw0"},
		{"to a Service of the Namespace", "from=a/a-here&to=a/own",
			"allowed, traced: both Pods are in the isolated Namespace a", "back"},
		{"to one that leads elsewhere", "from=a/a-here&to=a/wrong",
			"denied, traced: Pod a/a-here is in the isolated Namespace a, and the Service in the isolated Namespace a: it " +
				"leads isolated Pods to isolated Pods alone", "dropped in Tenant"},
		{"to one of another Namespace that leads elsewhere", "from=b/b-here&to=a/wrong",
			"denied, traced: Pod b/b-here is in the isolated Namespace b, and the Service in the isolated Namespace a: it",
			"dropped in Tenant"},
		{"default network to a Service", "from=default/db&to=a/own",
			"denied, traced: the Service " + inA + "Pods of other Namespaces do not reach it", "dropped in Route"},
		{"to one of an isolated Namespace", "from=b/b-here&to=a/own",
			"denied, traced: Pod a/a-here " + inA + "Pods of other Namespaces do not reach it unless", "dropped in Tenant"},
		{"Service of the default network into a Namespace", "from=default/db&to=default/wrong",
			"denied, traced: Pod a/a-here " + inA, "dropped in Route"},
		{"outside without an annotation", "from=a/a-here&to=192.0.2.1&port=443",
			"denied, traced: Pod a/a-here " + inA + "it reaches destinations outside of the cluster only if the Namespace " +
				"has the annotation core.juniper.net/forwarding-mode=fabric-snat", "dropped in Tenant"},
		{"outside with the annotation", "from=b/b-here&to=192.0.2.1&port=443",
			"allowed, traced: Pod b/b-here is in the isolated Namespace b, which has core.juniper.net/forwarding-mode=" +
				"fabric-snat", "to antrea-gw0"},
		{"to the host of another Node", "from=b/b-here&to=node/node-2&port=22",
			"allowed, traced: Pod b/b-here is in the isolated Namespace b, which has", "to antrea-gw0"},
		{"to the gateway port", "from=b/b-here&to=" + selfGateway + "&port=22",
			"denied, traced: Pod b/b-here " + inB + "it reaches no address of the clusters' ranges but Pods of its Namespace",
			"dropped in Tenant"},
		{"to a ClusterIP without a Service", "from=b/b-here&to=10.97.0.99&port=80",
			"denied, traced: Pod b/b-here " + inB + "it reaches no address of the clusters' ranges", "dropped in Tenant"},
		{"to an address of this Node without a Pod", "from=a/a-here&to=10.11.1.77&port=80",
			"denied, traced: Pod a/a-here " + inA + "it reaches no address of the clusters' ranges", "dropped in Tenant"},
		{"to one of another Node", "from=a/a-here&to=10.11.2.77&port=80",
			"denied at node-2: Pod a/a-here " + inA + "it reaches no address of the clusters' ranges",
			"to tombolo-tun0 192.168.78.102"},
		{"to the gateway port of another Node", "from=a/a-here&to=10.11.2.1&port=80",
			"denied at node-2: Pod a/a-here " + inA + "it reaches no address of the clusters' ranges",
			"to tombolo-tun0 192.168.78.102"},
		{"to an address that is not routed", "from=b/b-here&to=240.0.0.1&port=80",
			"denied, traced: Pod b/b-here " + inB + "it reaches no address of the clusters' ranges", "dropped in Tenant"},
		{"to the Service address", "from=b/b-here&to=169.254.0.253&port=80",
			"denied, traced: Pod b/b-here " + inB + "it reaches no address of the clusters' ranges", "dropped in Tenant"},
		{"to an entry", "from=b/b-here&to=169.254.0.252&port=80",
			"denied, traced: Pod b/b-here " + inB + "it reaches no address of the clusters' ranges", "dropped in Tenant"},
		{"processes of the Node", "from=node/node-1&to=a/a-here&port=80",
			"allowed, traced: Pod a/a-here " + inA + "processes of its Node reach it", "to a/a-here"},
		{"processes of another Node", "from=node/node-2&to=a/a-here&port=80",
			"denied, traced: Pod a/a-here " + inA + "clients outside reach it through Services of its Namespace",
			"dropped in Route"},
		{"a client outside by address", "from=203.0.113.7&to=a/a-here&port=80",
			"denied, traced: Pod a/a-here " + inA + "clients outside reach it through", "dropped in Route"},
		{"a client outside by a port of this Node", "from=203.0.113.7&to=" + selfAddress + "&port=30050",
			"allowed, traced: clients outside reach Pods of the isolated Namespace a on Node node-1 through its Services",
			"to a/a-here"},
		{"by one that leads elsewhere", "from=203.0.113.7&to=" + selfAddress + "&port=30051",
			"denied, traced: the Service " + inA + "it leads clients outside to Pods of that Namespace alone",
			"dropped in Tenant"},
		{"by one of the default network", "from=203.0.113.7&to=" + selfAddress + "&port=30053",
			"denied, traced: Pod a/a-here " + inA + "clients outside reach it through", "dropped in Route"},
		{"a Pod of another Node by a port of this Node", "from=default/far&to=" + selfAddress + "&port=30050",
			"allowed, traced: clients outside reach Pods of the isolated Namespace a", "to a/a-here"},
		{"one that does not leave its network", "from=a/a-far&to=" + selfAddress + "&port=30050",
			"denied at node-2: Pod a/a-far " + inA + "it reaches destinations outside of the cluster only if", "to a/a-here"},
		{"further interfaces, to another Node", "from=default/db@blue&to=default/far@blue&port=80",
			"allowed at node-2: both Pods are in VirtualNetwork default/blue", "to tombolo-tun0 192.168.78.102"},
		{"by their addresses", "from=10.50.0.2&to=10.50.0.18&port=80",
			"allowed at node-2: both Pods are in VirtualNetwork default/blue", "to tombolo-tun0 192.168.78.102"},
		{"from another Node", "from=default/far@blue&to=default/db@eth1&port=80",
			"allowed, traced: both Pods are in VirtualNetwork default/blue", "to default/db"},
		{"to an address without a known Pod", "from=default/db@eth1&to=10.50.0.20&port=80",
			"allowed at node-2: both Pods are in VirtualNetwork default/blue", "to tombolo-tun0 192.168.78.102"},
		{"to a network that is not joined", "from=default/db@blue&to=default/far@red&port=80",
			"denied, traced: VirtualNetwork default/blue and VirtualNetwork default/red are not joined", "dropped in Tenant"},
		{"from a further interface to a first one", "from=default/db@blue&to=default/web&port=80",
			"denied, traced: " + inBlue + ": it reaches Pods of that network, and of", "dropped in Tenant"},
		{"from a further interface to the world", "from=10.50.0.2&to=192.0.2.1&port=443",
			"denied, traced: " + inBlue + ": it reaches Pods of that network, and of", "dropped in Tenant"},
		{"from a further interface to a Service", "from=default/db@blue&to=default/kubernetes",
			"denied, traced: " + inBlue + ", where no Service answers", "dropped in Tenant"},
		{"from an isolated Namespace that is not joined", "from=a/a-here&to=default/db@blue&port=80",
			"denied, traced: the isolated Namespace a and VirtualNetwork default/blue are not joined", "dropped in Tenant"},
		{"from a first interface to a further one", "from=default/db&to=10.50.0.18&port=80",
			"denied at : Pod default/far is in VirtualNetwork default/blue: first interfaces of Namespaces that",
			"to antrea-gw0"},
		{"the default network alone", "from=default/db&to=default/far&port=80", "nothing", "to tombolo-tun0 192.168.78.102"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var w api.Why
			if e := a.get(api.PathWhy+"?trace=true&family=ipv4&"+row.query, &w); e != "" {
				t.Fatal(e)
			}
			have, verdict := "nothing", ""
			for _, c := range w.Connections {
				allowed := true
				for _, s := range c.Stages {
					allowed = allowed && s.Allowed
					if s.Direction == api.DirectionNetwork {
						s.Pod, verdict = "x", outcome[s.Allowed]
						have = stages(api.WhyConnection{Stages: []api.WhyStage{s}}) + ": " + s.Reason
					} else if s.Trace != nil && s.Trace.Judged && !s.Trace.Agrees {
						t.Errorf("the switch disagrees: %+v", *s.Trace)
					}
				}
				if allowed != c.Allowed {
					t.Errorf("allowed %t: %+v", c.Allowed, c)
				}
			}
			if !strings.HasPrefix(have, row.want) || len(w.Connections) != 1 ||
				verdict == "denied" && !strings.HasSuffix(have, " (docs/tenants.md)") &&
					!strings.HasSuffix(have, " (docs/virtual-networks.md)") {
				t.Errorf("have %s\nwant %s\n%+v", have, row.want, w)
			}
			var list api.TraceList
			if e := a.get(api.PathTraces+"?family=ipv4&"+row.query, &list); e != "" {
				t.Fatal(e)
			}
			_, reason, _ := strings.Cut(row.want, ": ")
			if ends := a.ends(t, list.Traces); len(ends) != 1 || !strings.HasSuffix(ends[0], ": "+row.ends) {
				t.Errorf("the packet goes %q, want %s\n%s", ends, row.ends, list.Traces[0].Output)
			}
			want := fmt.Sprintf("to %s %s: %s", w.Connections[0].To.Address, verdict, reason)
			if row.want == "nothing" && list.Networks != nil || row.want != "nothing" &&
				!slices.ContainsFunc(list.Networks, func(have string) bool { return strings.HasPrefix(have, want) }) {
				t.Errorf("the trace names %q, want %q", list.Networks, want)
			}
		})
	}
	// Over IPv6, and for clients in a Node's range that no known Pod has, whose packets cannot be made.
	for query, want := range map[string]string{
		"from=default/db&to=a/a-here&port=80":                "denied, traced",
		"from=a/a-far&to=a/a-here&port=80":                   "allowed, traced",
		"from=b/b-far&to=a/a-here&port=80":                   "denied, traced",
		"from=b/b-here&to=2001:db8:9::9&port=443":            "allowed, traced",
		"from=a/a-here&to=2001:db8:9::9&protocol=icmp":       "denied, traced",
		"from=node/node-1&to=a/a-here&port=80&family=ipv6":   "allowed, traced",
		"from=a/a-here&to=fd11:0:0:2::77&port=80":            "denied at node-2",
		"from=b/b-here&to=fe80::1&port=80":                   "denied, traced",
		"from=b/b-here&to=fc01::aabb:ccdd:eefe&port=80":      "denied, traced",
		"from=10.11.2.77&to=a/own":                           "denied at node-2",
		"from=10.11.2.77&to=a/wrong":                         "denied at node-2",
		"from=10.11.2.77&to=a/a-here&port=80":                "denied, traced",
		"from=10.11.2.77&to=default/shared":                  "",
		"from=10.11.2.77&to=" + selfAddress + "&port=30050":  "allowed, traced",
		"from=10.11.1.77&to=" + selfAddress + "&port=30050":  "denied, there is no port of Pod  in the switch yet",
		"from=10.11.1.77&to=" + selfAddress + "&port=30052":  "",
		"from=default/db&to=" + selfAddress + "&port=30050":  "denied, traced",
		"from=203.0.113.7&to=" + selfAddress + "&port=30050": "allowed, traced",
	} {
		if !strings.Contains(query, ".") && !strings.Contains(query, "family") {
			query += "&family=ipv6"
		}
		if have := a.network(query); have != want {
			t.Errorf("%s: %q, want %q", query, have, want)
		}
	}
}

// network returns the word for the networks about a connection, "" if they have no part in it.
func (a *asked) network(query string) (out string) {
	a.t.Helper()
	var w api.Why
	if e := a.get(api.PathWhy+"?trace=true&"+query, &w); e != "" || len(w.Connections) != 1 {
		a.t.Errorf("%s: %s %+v", query, e, w)
		return ""
	}
	for _, s := range w.Connections[0].Stages {
		if s.Direction == api.DirectionNetwork {
			s.Pod = "x"
			out = stages(api.WhyConnection{Stages: []api.WhyStage{s}})
		}
	}
	return out
}

// TestWhyNetworksWithoutPods asks a Node without isolated Pods about isolated Pods of another Node. It drops their
// packets in its first table.
func TestWhyNetworksWithoutPods(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) { c.FeatureGates["TenantNetworks"] = true })
	a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid of default"}}
	a.isolateFar("a", "10.11.2.30", nil)
	db := a.db.IPs[0].Addr().String()
	a.publish("default", "shared", "10.97.0.52", 30052, db)
	a.settle()
	for query, want := range map[string]string{
		"from=a/a-far&to=default/db&port=80&family=ipv4": "denied, traced",
		"from=a/a-far&to=default/db&port=80&family=ipv6": "denied, traced",
		"from=a/a-far&to=default/shared":                 "allowed, traced",
	} {
		if have := a.network(query); have != want {
			t.Errorf("%s: %q, want %q", query, have, want)
		}
	}
}

// TestWhyNetworksOfClusters asks about other clusters, on the Gateway and on another Node. Addresses of their Gateways
// are outside, but for packets that come from there by the tunnel.
func TestWhyNetworksOfClusters(t *testing.T) {
	const peer = "192.168.77.101"
	for gateway, ip := range map[string]string{ownName: selfAddress, "node-2": "192.168.78.102"} {
		t.Run(gateway, func(t *testing.T) {
			a := newAskedOf(t, family.IPv4, func(c *config.Config) {
				c.FeatureGates["TenantNetworks"], c.AntreaProxy.ProxyAll = true, true
			})
			a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default",
				UID: "uid of default"}}
			a.isolate("a", "10.11.2.30", nil)
			a.isolate("b", "10.11.2.40", map[string]string{tenant.AnnotationForwardingMode: "fabric-snat"})
			a.world.gateways[gateway] = &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
				Name: gateway}, GatewayIP: ip, InternalIP: ip}
			a.world.imports["west"] = &mcv1alpha1.ClusterInfoImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "west-clusterinfo"},
				Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.96.0.0/16",
					GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: peer}}},
			}
			here := a.world.pods["a-here-a1b2c3"].IPs[0].Addr().String()
			a.publish("a", "own", "10.97.0.50", 30050, here)
			a.publish("default", "wrong", "10.97.0.53", 30053, here)
			a.world.exports["a/own"] = &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "own"}}
			a.publish("default", "west", "10.97.0.60", 30060, "10.96.0.20")
			a.settle()
			for query, want := range map[string]string{
				"from=b/b-here&to=" + peer + "&port=443":              "allowed, traced",
				"from=a/a-here&to=" + peer + "&port=443":              "denied, traced",
				"from=b/b-here&to=10.96.0.20&port=80":                 "denied, traced",
				"from=a/a-here&to=default/west":                       "allowed, traced",
				"from=" + peer + "&to=a/a-here&port=80":               "denied, traced",
				"from=" + peer + "&to=" + selfAddress + "&port=30050": "allowed, traced",
				"from=" + peer + "&to=" + selfAddress + "&port=30053": "denied, traced",
			} {
				if have := a.network(query); have != want {
					t.Errorf("%s: %q, want %q", query, have, want)
				}
			}
		})
	}
}

// TestWhyFarNetworks asks about connections of VirtualNetwork blue, which is joined with one of cluster west and with a
// Namespace there. This Node is a Gateway, or another Node is.
func TestWhyFarNetworks(t *testing.T) {
	for gateway, ip := range map[string]string{ownName: selfAddress, "node-2": "192.168.78.102"} {
		t.Run(gateway, func(t *testing.T) {
			a := newAskedOf(t, family.IPv4, func(c *config.Config) {
				c.FeatureGates["TenantNetworks"], c.Multicluster.EnablePodToPodConnectivity = true, true
			})
			a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default",
				UID: "uid of default"}}
			a.isolate("a", "10.11.2.30", nil)
			delete(a.world.policies, "db") // it is about other clients
			a.world.gateways[gateway] = &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
				Name: gateway}, GatewayIP: ip, InternalIP: ip}
			west := mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.96.0.0/16", PodCIDRs: []string{"10.10.0.0/16"},
				GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.77.101"}},
				Features:     []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}}
			a.world.imports["west"] = &mcv1alpha1.ClusterInfoImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "west-clusterinfo"}, Spec: west}
			joined := []tombolov1alpha1.JoinedNetwork{
				{Name: "green", Number: 8, ClusterIDs: []string{"west"}, CIDRs: []string{"10.60.0.0/24"}}}
			for name, more := range map[string][]tombolov1alpha1.JoinedNetwork{
				"blue": {{Name: "d", Number: 9, ClusterIDs: []string{"west"}}}, "a": nil} {
				i := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: name}}
				i.Spec.Number, i.Spec.Joined = int32(len(name)), append(slices.Clone(joined), more...)
				i.Spec.Namespace = &tombolov1alpha1.NamespaceReference{Name: "a", UID: "uid of a"}
				if name == "blue" {
					i.Spec.Namespace.Name, i.Spec.Namespace.UID = "default", "uid of default"
					i.Spec.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: name, UID: "uid of blue"}
				}
				a.world.others = append(a.world.others, i)
			}
			a.addFurther()
			a.settle()
			for query, want := range map[string]string{
				"from=default/db@blue&to=10.60.0.7&port=80":  "allowed, traced",
				"from=default/far@blue&to=10.60.0.7&port=80": "allowed at node-2",
				"from=10.60.0.7&to=default/far@blue&port=80": "allowed at node-2",
				"from=default/db@blue&to=10.61.0.7&port=80":  "denied, traced",
				"from=default/far@red&to=10.60.0.7&port=80":  "denied at node-2",
				"from=10.60.0.7&to=default/far@red&port=80":  "denied at ",
				"from=default/db@blue&to=10.10.0.7&port=80":  "allowed, traced",
				"from=a/a-here&to=10.60.0.7&port=80":         "allowed, traced",
				"from=a/a-here&to=10.10.0.7&port=80":         "denied, traced",
			} {
				if strings.Contains(query, "to=10.10.0.7") && gateway != ownName && strings.HasPrefix(want, "denied") {
					continue // the Gateway drops the packet
				}
				if have := a.network(query); have != want {
					t.Errorf("%s: %q, want %q", query, have, want)
				}
			}
		})
	}
}

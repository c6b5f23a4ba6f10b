package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/unserved"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// subnetRig is a real API server with the controller, which has the rights of its manifest.
type subnetRig struct {
	t      *testing.T
	server *apiserver.Server
	scheme *runtime.Scheme
	client client.Client
}

// crds is the folder with the definitions of all kinds.
const crds = "../../../deploy/crds"

func newSubnetRig(t *testing.T, folder string) *subnetRig {
	t.Helper()
	g := &subnetRig{t: t, server: apiserver.New(t, apiserver.Options{CRDs: []string{folder}}),
		scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, contrailv4.AddToScheme,
		tombolov1alpha1.AddToScheme, mcv1alpha1.AddToScheme} {
		if err := add(g.scheme); err != nil {
			t.Fatal(err)
		}
	}
	plain, err := client.New(g.server.Config, client.Options{Scheme: g.scheme})
	if err != nil {
		t.Fatal(err)
	}
	g.client = client.WithFieldValidation(plain, metav1.FieldValidationStrict)
	return g
}

// start starts a replica of the controller.
func (g *subnetRig) start() (stop func()) {
	g.t.Helper()
	mgr, err := ctrl.NewManager(apiserver.Access(g.t, g.server.Config, manifest(g.t)), ctrl.Options{
		Scheme: g.scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := SetupWithManager(mgr, metav1.NamespaceSystem); err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			g.t.Errorf("the manager ended: %v", err)
		}
	}
}

func (g *subnetRig) create(o client.Object) {
	g.t.Helper()
	if err := g.client.Create(g.t.Context(), o); err != nil {
		g.t.Fatal(err)
	}
}

func (g *subnetRig) delete(o client.Object) {
	g.t.Helper()
	if err := g.client.Delete(g.t.Context(), o); err != nil {
		g.t.Fatal(err)
	}
}

// laterThan waits until new objects are younger than an object. The time of creation has whole seconds.
func (g *subnetRig) laterThan(o client.Object) {
	g.t.Helper()
	if err := wait.PollUntilContextTimeout(g.t.Context(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return time.Now().Unix() > o.GetCreationTimestamp().Unix(), nil }); err != nil {
		g.t.Fatal(err)
	}
}

// readState reads a part of an object as text.
type readState func(context.Context) (string, error)

// expect waits until a text begins with another one.
func (g *subnetRig) expect(want string, have readState) {
	g.t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(g.t.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (ok bool, err error) {
			last, err = have(ctx)
			return strings.HasPrefix(last, want), err
		})
	if err != nil {
		g.t.Fatalf("have %s, want %s: %v", last, want, err)
	}
}

func at(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func subnet(namespace, name, cidr string) *contrailv4.Subnet {
	return &contrailv4.Subnet{ObjectMeta: at(namespace, name), Spec: contrailv4.SubnetSpec{CIDR: cidr}}
}

func network(namespace, name, v4, v6 string) *contrailv4.VirtualNetwork {
	n := &contrailv4.VirtualNetwork{ObjectMeta: at(namespace, name)}
	for _, ref := range []struct {
		name string
		to   **contrailv4.ResourceReference
	}{{v4, &n.Spec.V4SubnetReference}, {v6, &n.Spec.V6SubnetReference}} {
		if ref.name != "" {
			*ref.to = &contrailv4.ResourceReference{APIVersion: "core.contrail.juniper.net/v1alpha1", Kind: "Subnet",
				Namespace: namespace, Name: ref.name}
		}
	}
	return n
}

func (g *subnetRig) subnetState(s *contrailv4.Subnet) readState {
	return func(ctx context.Context) (string, error) {
		err := g.client.Get(ctx, client.ObjectKeyFromObject(s), s)
		return fmt.Sprintf("%d %s %s: %s", s.Status.IPCount, s.Status.AllocationUsage, s.Status.State,
			s.Status.Observation), err
	}
}

func (g *subnetRig) networkState(n *contrailv4.VirtualNetwork) readState {
	return func(ctx context.Context) (string, error) {
		err := g.client.Get(ctx, client.ObjectKeyFromObject(n), n)
		return fmt.Sprintf("%t %q %s: %s", n.Status.VirtualNetworkNetworkID != 0, n.Status.IPFamilies, n.Status.State,
			n.Status.Observation), err
	}
}

func (g *subnetRig) leaseOf(s *contrailv4.Subnet) readState {
	return func(ctx context.Context) (string, error) {
		l := &tombolov1alpha1.SubnetLease{}
		if err := g.client.Get(ctx, client.ObjectKey{Name: string(s.UID)}, l); err != nil {
			return "none", client.IgnoreNotFound(err)
		}
		text := fmt.Sprintf("%s/%s %s %s %t", l.Spec.VirtualNetwork.Namespace, l.Spec.VirtualNetwork.Name, l.Spec.CIDR,
			l.Spec.Gateway, l.Spec.Ending)
		if l.Spec.Zone != 0 {
			text += fmt.Sprint(" zone ", l.Spec.Zone)
		}
		for _, n := range l.Spec.Nodes {
			text += fmt.Sprintf("; %s %s %s", n.Node, n.Claim, strings.Join(n.CIDRs, " "))
		}
		return text, nil
	}
}

// claim writes the report of a Node with a claim on one network. Without an ID the report has no claim.
func (g *subnetRig) claim(node, network, id string, pods int32, held ...string) {
	g.t.Helper()
	report := &tombolov1alpha1.NodeNetworkReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
	n := tombolov1alpha1.NodeNetwork{Namespace: "a", Name: network, Claim: id, Pods: pods}
	for i, ip := range held {
		n.Addresses = append(n.Addresses, tombolov1alpha1.PodNetworkAddress{Address: ip, Pod: fmt.Sprint("web-", i)})
	}
	err := g.client.Get(g.t.Context(), client.ObjectKeyFromObject(report), report)
	if report.Spec.Networks = nil; id != "" {
		report.Spec.Networks = []tombolov1alpha1.NodeNetwork{n}
	}
	if apierrors.IsNotFound(err) {
		err = g.client.Create(g.t.Context(), report)
	} else if err == nil {
		err = g.client.Update(g.t.Context(), report)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// gate turns the feature gate on.
func (g *subnetRig) gate(more string) {
	g.t.Helper()
	g.create(gateOn(more))
}

// gateOn returns the agents' configuration with the feature gate and more settings.
func gateOn(more string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: at(metav1.NamespaceSystem, unserved.AgentsConfig), Data: map[string]string{
		"antrea-agent.conf": "featureGates: {TenantNetworks: true}\n" + more}}
}

// TestSubnets has the controller write states and leases in a real API server.
func TestSubnets(t *testing.T) {
	g := newSubnetRig(t, crds)
	c, server, create, expect := g.client, g.server, g.create, g.expect
	subnetState, networkState, leaseOf := g.subnetState, g.networkState, g.leaseOf
	stop := g.start()
	defer func() { stop() }()
	claim := func(node, id string, pods int32, held ...string) {
		t.Helper()
		g.claim(node, "blue", id, pods, held...)
	}

	g.gate("serviceCIDR: 10.97.0.0/16\npodCIDRs: 10.11.0.0/16,fd11::/48\n")
	create(&corev1.ConfigMap{ObjectMeta: at(metav1.NamespaceSystem, memberConfig), Data: map[string]string{
		"controller_manager_config.yaml": "serviceCIDR: 10.99.0.0/16\npodCIDRs: [10.12.0.0/16]\n"}})
	cluster := func(name, pods string) *mcv1alpha1.ClusterInfoImport {
		i := &mcv1alpha1.ClusterInfoImport{ObjectMeta: at("a", name)}
		i.Spec = mcv1alpha1.ClusterInfo{ClusterID: name, ServiceCIDR: "10.120.0.0/16", PodCIDRs: []string{pods},
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.7.7"}}}
		return i
	}
	for _, name := range []string{"a", "b"} {
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i, name := range []string{"node-1", "node-2"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Spec.PodCIDRs = []string{fmt.Sprintf("10.11.%d.0/24", i)}
		node.Annotations = map[string]string{"multicluster.antrea.io/gateway-ip": fmt.Sprint("192.168.9.", i)}
		create(node)
	}
	create(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.98.0.0/16"}}})

	// Another cluster serves the objects of a copy, and the leader writes their states.
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "copy", Labels: map[string]string{
		tenant.LabelCopy: "west"}}})
	far, farNetwork := subnet("copy", "v4", "10.0.1.0/24"), network("copy", "blue", "v4", "")
	create(far)
	create(farNetwork)

	// The VirtualNetwork is before its Subnets.
	blue := network("a", "blue", "v4", "v6")
	create(blue)
	expect(`true "" Failure: spec.v4SubnetReference: Subnet a/v4 is not there, so no Pod gets an address: create it; `+
		`spec.v6SubnetReference: Subnet a/v6 is not there`, networkState(blue))
	v4, v6 := subnet("a", "v4", "10.0.1.0/24"), subnet("a", "v6", "fd00:1::/64")
	create(v4)
	create(v6)
	expect(`true "v6,v4" Success: `, networkState(blue))
	expect("0 1.17% Success: ", subnetState(v4))
	expect("0 0.00% Success: ", subnetState(v6))
	expect("a/blue 10.0.1.0/24 10.0.1.1 false", leaseOf(v4))
	expect("a/blue fd00:1::/64 fd00:1::1 false", leaseOf(v6))
	if v4.Status.Observation+blue.Status.Observation != "" {
		t.Errorf("healthy objects have the observations %q and %q", v4.Status.Observation, blue.Status.Observation)
	}
	for resource, want := range map[string]string{"subnets": "Name CIDR Usage State Age v4 10.0.1.0/24 1.17% Success",
		"virtualnetworks": fmt.Sprint("Name VNI IP Families State Age blue ", blue.Status.VirtualNetworkNetworkID,
			" v6,v4 Success")} {
		for _, version := range []string{"v1alpha1", "v3", "v4"} {
			have := columns(t, server.Config, "/apis/core.contrail.juniper.net/"+version+"/namespaces/a/"+resource)
			if !strings.HasPrefix(have, want) {
				t.Errorf("%s of %s: %q, want %q", resource, version, have, want)
			}
		}
	}

	create(cluster("west", "10.121.0.0/16"))
	for _, bad := range []struct{ name, cidr, want string }{
		{"pods", "10.11.1.0/25", "overlaps the Pods of "}, // of the Node, or of the configuration
		{"later-pods", "10.11.9.0/24", "overlaps the Pods of the agents' configuration (podCIDRs)"},
		{"announced-pods", "10.12.9.0/24", "overlaps the Pods of the member controller's configuration"},
		{"announced-services", "10.99.9.0/24", "overlaps the Services of the member controller's configuration"},
		{"gateway", "192.168.9.0/24", "overlaps the Gateway of Node node-1"},
		{"west", "10.121.3.0/24", "overlaps the Pods of cluster west (ClusterInfoImport a/west)"},
		{"west-services", "10.120.3.0/24", "overlaps the Services of cluster west (ClusterInfoImport a/west)"},
		{"west-gateway", "192.168.7.0/24", "overlaps a Gateway of cluster west (ClusterInfoImport a/west)"},
		{"world", "198.51.100.0/24", "is in no range that Subnets may be in"},
		{"services", "10.97.4.0/24", "overlaps the Services of the agents' configuration"},
		{"more-services", "10.98.0.0/24", "overlaps the Services of ServiceCIDR more"},
		{"word", "ten", `"ten" is not a range of addresses`},
	} {
		s := subnet("b", bad.name, bad.cidr)
		create(s)
		expect("", subnetState(s))
		expect("Failure", func(ctx context.Context) (string, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(s), s)
			return s.Status.State, err
		})
		if !strings.Contains(s.Status.Observation, bad.want) {
			t.Errorf("%s: %q, want %q", bad.cidr, s.Status.Observation, bad.want)
		}
		if err := c.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	g.laterThan(blue)
	pod := network("a", "pods", "v4", "")
	pod.Spec.PodNetwork = true
	create(pod)
	expect(`true "" Failure: spec.v4SubnetReference: Subnet a/v4 is the Subnet of VirtualNetwork a/blue`,
		networkState(pod))

	// Nodes claim addresses. A Node that is not there gets none.
	claim("node-1", "x1", 1)
	claim("node-3", "x3", 1)
	expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28", leaseOf(v4))
	claim("node-2", "x2", 20)
	expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28; node-2 x2 10.0.1.16/28 10.0.1.32/28", leaseOf(v4))
	claim("node-1", "x1", 1, "10.0.1.2", "fd00:1::2")
	expect("1 1.56% Success: ", subnetState(v4))
	claim("node-2", "x2", 300)
	expect("1 1.56% Warning: spec.cidr: it is full: Pods on node-2 get no address", subnetState(v4))
	claim("node-2", "", 0)
	expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28", leaseOf(v4))
	expect("1 1.56% Success: ", subnetState(v4))

	// A cluster joins whose Pods have the range. No Pod gets an address, until the cluster leaves.
	north := cluster("north", "10.0.0.0/16")
	create(north)
	expect("1 1.56% Failure: spec.cidr: 10.0.1.0/24 overlaps the Pods of cluster north (ClusterInfoImport a/north), so "+
		"no Pod gets an address of it: create another Subnet", subnetState(v4))
	expect("a/blue 10.0.1.0/24 10.0.1.1 true; node-1 x1 10.0.1.0/28", leaseOf(v4))
	if err := c.Delete(t.Context(), north); err != nil {
		t.Fatal(err)
	}
	expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28", leaseOf(v4))
	expect("1 1.56% Success: ", subnetState(v4))

	// Another replica continues with the blocks that there are.
	stop()
	claim("node-2", "y2", 1)
	stop = g.start()
	expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28; node-2 y2 10.0.1.16/28", leaseOf(v4))
	if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}); err != nil {
		t.Fatal(err)
	}
	expect("a/blue 10.0.1.0/24 10.0.1.1 false; node-1 x1 10.0.1.0/28", leaseOf(v4))

	// The Subnet is deleted while a Pod has an address.
	if err := c.Delete(t.Context(), v4); err != nil {
		t.Fatal(err)
	}
	expect("a/blue 10.0.1.0/24 10.0.1.1 true; node-1 x1 10.0.1.0/28", leaseOf(v4))
	expect(`true "v6" Failure: spec.v4SubnetReference: Subnet a/v4 is not there`, networkState(blue))
	second := subnet("a", "v4", "10.0.1.0/24")
	create(second)
	expect("1 1.56% Failure: spec.cidr: 10.0.1.0/24 overlaps Pods of VirtualNetwork a/blue, whose Subnet was deleted",
		subnetState(second))
	claim("node-1", "", 0)
	expect("none", leaseOf(v4))
	expect("0 1.17% Success: ", subnetState(second))
	expect("a/blue 10.0.1.0/24 10.0.1.1 false", leaseOf(second))
	expect(`true "v6,v4" Success: `, networkState(blue))

	// The guide's manifest has no problem.
	for _, o := range guide(t, "virtual-networks.md") {
		create(o)
	}
	expect(`true "v4" Success: `, networkState(network("shop", "blue", "", "")))
	expect("0 1.17% Success: ", subnetState(subnet("shop", "blue-v4", "")))

	expect("0  : ", subnetState(far))
	expect("none", leaseOf(far))
	expect(`false "" : `, networkState(farNetwork))

	// The definitions refuse these.
	second.Spec.CIDR = "10.0.2.0/24"
	if err := c.Update(t.Context(), second); err == nil || !strings.Contains(err.Error(), "create another Subnet") {
		t.Errorf("the range of a Subnet is changed: %v", err)
	}
	blue.Spec.V4SubnetReference.Name = "other"
	if err := c.Update(t.Context(), blue); err == nil || !strings.Contains(err.Error(), "create another VirtualNetwork") {
		t.Errorf("the Subnet of a VirtualNetwork is changed: %v", err)
	}
}

// columns returns the columns and the rows at a path as kubectl gets them.
func columns(t *testing.T, c *rest.Config, path string) string {
	t.Helper()
	transport, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	host := c.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := transport.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	table := &metav1.Table{}
	if err := json.NewDecoder(answer.Body).Decode(table); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, column := range table.ColumnDefinitions {
		out = append(out, column.Name)
	}
	for _, row := range table.Rows {
		for _, cell := range row.Cells {
			if number, ok := cell.(float64); ok {
				cell = int64(number)
			}
			out = append(out, fmt.Sprint(cell))
		}
	}
	return strings.Join(out, " ")
}

package tenants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/unserved"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// manifest is the part of the agents' manifest that is about the controller.
func manifest(t testing.TB) []byte {
	t.Helper()
	all, err := os.ReadFile("../../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	var own [][]byte
	for _, document := range bytes.Split(all, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("name: tombolo-controller\n")) {
			own = append(own, document)
		}
	}
	return bytes.Join(own, []byte("\n---\n"))
}

// guide returns the objects in the guide's first manifest, whose lines may be indented.
func guide(t testing.TB, page string) (out []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	before, text, _ := bytes.Cut(text, []byte("```yaml\n"))
	indent := before[bytes.LastIndexByte(before, '\n')+1:]
	text = bytes.ReplaceAll(append([]byte("\n"), text...), append([]byte("\n"), indent...), []byte("\n"))
	text, _, _ = bytes.Cut(text, []byte("```\n"))
	for document := range bytes.SplitSeq(text, []byte("---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// TestStatus has the controller write states in a real API server, with the rights of its manifest, and applies the
// guide's manifests there, in each version.
func TestStatus(t *testing.T) {
	server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, contrailv4.AddToScheme,
		plumbingv1.AddToScheme, tombolov1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	plain, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c := client.WithFieldValidation(plain, metav1.FieldValidationStrict)
	mgr, err := ctrl.NewManager(apiserver.Access(t, server.Config, manifest(t)), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := SetupWithManager(mgr, metav1.NamespaceSystem); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}()
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	update := func(o client.Object, change func()) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		change()
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	stateOf := func(o client.Object) string {
		switch o := o.(type) {
		case *contrailv4.VirtualNetwork:
			return fmt.Sprintf("%t %q %s: %s", o.Status.VirtualNetworkNetworkID != 0, o.Status.IPFamilies, o.Status.State,
				o.Status.Observation)
		case *contrailv4.VirtualNetworkRouter:
			return o.Status.State + ": " + o.Status.Observation
		}
		return ""
	}
	expect := func(o client.Object, want string) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
				return strings.HasPrefix(stateOf(o), want), err
			})
		if err != nil {
			t.Fatalf("%s/%s: %s, want %s: %v", o.GetNamespace(), o.GetName(), stateOf(o), want, err)
		}
	}
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	isolated := map[string]string{tenant.LabelIsolated: "true"}
	spaces := map[string]*corev1.Namespace{}
	for _, name := range []string{"a", "b"} {
		spaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: isolated}}
		create(spaces[name])
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	node.Spec.PodCIDRs = []string{"10.11.0.0/24", "fd11::/64"}
	create(node)
	for i, o := range guide(t, "tenants.md") {
		o.SetAPIVersion(contrailv4.GroupVersion.Group + "/" + []string{"v1alpha1", "v3", "v4"}[i%3])
		create(o)
	}
	network := &contrailv4.VirtualNetwork{ObjectMeta: at("a", contrailv4.DefaultPodNetwork)}
	toB, toA := &contrailv4.VirtualNetworkRouter{ObjectMeta: at("a", "to-b")},
		&contrailv4.VirtualNetworkRouter{ObjectMeta: at("b", "to-a")}

	const off = "without the agents' feature gate TenantNetworks nothing of it is acted on: turn the gate on"
	expect(network, `false "" Warning: `+off)
	expect(toB, "Warning: "+off)
	create(&corev1.ConfigMap{ObjectMeta: at(metav1.NamespaceSystem, unserved.AgentsConfig), Data: map[string]string{
		"antrea-agent.conf": "featureGates: {TenantNetworks: true}\n"}})
	expect(network, `true "v6,v4" Success: `)
	if network.Status.Observation != "" {
		t.Errorf("a healthy VirtualNetwork has the observation %q", network.Status.Observation)
	}
	expect(toB, "Success: ")
	expect(toA, "Success: ")

	// The leader's controller writes states in the copy of a Namespace of another cluster, and no router here joins it.
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "copy", Labels: map[string]string{
		tenant.LabelIsolated: "true", tenant.LabelCopy: "west"}}})
	importing := func(namespace, name, from, imported string) *contrailv4.VirtualNetworkRouter {
		v := &contrailv4.VirtualNetworkRouter{ObjectMeta: at(namespace, name), Spec: contrailv4.VirtualNetworkRouterSpec{
			Type: contrailv4.TypeMesh, VirtualNetworkSelector: &metav1.LabelSelector{}}}
		v.Labels = map[string]string{"vnr": name}
		v.Spec.Import.VirtualNetworkRouters = []contrailv4.VirtualNetworkRouterEntry{{
			VirtualNetworkRouterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"vnr": imported}},
			NamespaceSelector:            &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: from}}}}
		return v
	}
	inCopy, toCopy := importing("copy", "from-copy", "a", "to-copy"), importing("a", "to-copy", "copy", "from-copy")
	create(inCopy)
	create(toCopy)
	expect(toCopy, "Warning: spec.import.virtualNetworkRouters[0]: it selects routers in copies of Namespaces alone, and "+
		"Namespace a has no copy here, so nothing is joined")
	expect(inCopy, "")
	if have := stateOf(inCopy); have != ": " {
		t.Errorf("the router in the copy has state %q, which the leader's controller writes", have)
	}
	// The Namespace has a copy, too: the leader joins both, if they import each other.
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: map[string]string{
		tenant.LabelCopy: "central"}}})
	ofCopy := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: "own"},
		Spec: tombolov1alpha1.TenantNetworkImportSpec{Number: 7, Namespace: &tombolov1alpha1.NamespaceReference{Name: "a",
			UID: spaces["a"].UID}}}
	create(ofCopy)
	expect(toCopy, "Success: ")
	expect(toB, "Warning: spec.import: Namespace a has a copy here, and Namespace b has no copy, so the first "+
		"interfaces of their Pods are not joined")
	update(inCopy, func() { inCopy.Spec.Import = contrailv4.ImportVirtualNetworkRouter{} })
	expect(toCopy, "Warning: spec.import: the networks of VirtualNetworkRouter copy/from-copy are not joined before it "+
		"imports this router")
	if err := c.Delete(t.Context(), ofCopy); err != nil {
		t.Fatal(err)
	}
	expect(toB, "Success: ")

	imports := toA.Spec.Import
	update(toA, func() { toA.Spec.Import = contrailv4.ImportVirtualNetworkRouter{} })
	expect(toB, "Warning: spec.import: the networks of VirtualNetworkRouter b/to-a are not joined before it imports this "+
		"router: add the import there")
	expect(toA, "Success: ")
	update(toA, func() { toA.Spec.Import, toA.Spec.Type = imports, contrailv4.TypeHub })
	expect(toA, "Warning: spec.import: the networks of VirtualNetworkRouter a/to-b are not joined: only two routers of "+
		"type mesh are, and a hub with a spoke")
	update(toA, func() { toA.Spec.Type, toA.Spec.RouteTarget = contrailv4.TypeMesh, "target:64512:1" })
	expect(toA, "Warning: spec.routeTarget: it is stored and has no effect: remove it")
	expect(toB, "Success: ")
	update(network, func() { network.Labels = nil })
	expect(toB, "Warning: spec.virtualNetworkSelector: it selects no network that is served: give VirtualNetwork "+
		"default-podnetwork")
	other := &contrailv4.VirtualNetwork{ObjectMeta: at("a", "blue")}
	create(other)
	expect(other, `false "" Failure: spec.v4SubnetReference: it has no Subnet, so no Pod is in it: create a Subnet`)
	update(spaces["b"], func() { delete(spaces["b"].Labels, tenant.LabelIsolated) })
	expect(toA, "Warning: spec.routeTarget: it is stored and has no effect: remove it; metadata.namespace: the Pods of "+
		"Namespace b are in the default network, which no router joins: label the Namespace")

	testDefinitions(t, c)

	// The definitions refuse these.
	for name, bad := range map[string]map[string]any{
		"no type":       {"virtualNetworkSelector": map[string]any{}},
		"no selector":   {"type": "mesh"},
		"unknown type":  {"type": "ring", "virtualNetworkSelector": map[string]any{}},
		"unknown field": {"type": "mesh", "virtualNetworkSelector": map[string]any{}, "speed": "high"},
		"selector": {"type": "mesh", "virtualNetworkSelector": map[string]any{
			"matchLabels": map[string]any{"vn": "no label!"}}},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": bad}}
		o.SetAPIVersion(contrailv4.GroupVersion.String())
		o.SetKind("VirtualNetworkRouter")
		o.SetNamespace("a")
		o.SetName("bad")
		if err := c.Create(t.Context(), o); err == nil {
			t.Errorf("%s: the definition admits it", name)
		}
	}
}

// TestStatusBeforeNamespace has objects that arrive before their Namespace. Their status is written once it is known,
// since another controller writes the status of objects in copies.
func TestStatusBeforeNamespace(t *testing.T) {
	for _, copied := range []bool{false, true} {
		tables := newTables(metav1.NamespaceSystem)
		tables.member.Loaded()
		n := network("a", "red", "v4", "")
		router := &contrailv4.VirtualNetworkRouter{ObjectMeta: at("a", "mesh"),
			Spec: contrailv4.VirtualNetworkRouterSpec{Type: contrailv4.TypeMesh}}
		four := subnet("a", "v4", "10.0.1.0/24")
		n.UID, router.UID, four.UID = "red", "mesh", "four"
		tables.kinds.Fill(gateOn(""), n, router, four)
		due := func() [3]bool {
			tables.engine.Pass()
			key := func(name string) derive.Object { return derive.Object{Namespace: "a", Name: name} }
			network, _ := tables.networkSteps.Get(key("red"))
			mesh, _ := tables.routerSteps.Get(key("mesh"))
			v4, _ := tables.subnets.steps.Get(key("v4"))
			return [3]bool{network.Due, mesh.Due, v4.Due}
		}
		if have := due(); have != [3]bool{} {
			t.Errorf("before the Namespace: writes are due: %v", have)
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
		if copied {
			namespace.Labels = map[string]string{tenant.LabelCopy: "east"}
		}
		tables.kinds.Set(namespace)
		if have, want := due(), !copied; have != [3]bool{want, want, want} {
			t.Errorf("in a copy %t: writes are due: %v, want %t", copied, have, want)
		}
	}
}

package warnings

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/unserved"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// manifest is the part of the agents' manifest that is about the controller.
func manifest(t *testing.T) []byte {
	t.Helper()
	all, err := os.ReadFile("../../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	var own [][]byte
	for _, document := range bytes.Split(all, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("name: "+controllerName)) {
			own = append(own, document)
		}
	}
	return bytes.Join(own, []byte("\n---\n"))
}

// start runs the controllers with the rights of their manifest. The returned function stops them.
func start(t *testing.T, own *rest.Config) (stop func()) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(own, ctrl.Options{
		Scheme: scheme, Cache: CacheOptions(metav1.NamespaceSystem), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := SetupWithManager(mgr, "test"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}
	return stop
}

func ptr[T any](v T) *T { return &v }

// TestEvents asks a real API server for the Events on its Services and its ConfigMap.
func TestEvents(t *testing.T) {
	admin := apiserver.Start(t, "../../../deploy/crds/crd.antrea.io_nodelatencymonitors.yaml",
		"../../../deploy/crds/crd.antrea.io_traceflows.yaml",
		"../../../deploy/crds/k8s.cni.cncf.io_network-attachment-definitions.yaml")
	scheme, err := Scheme()
	if err := errors.Join(err, apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	own := apiserver.RefuseEvents(apiserver.Access(t, admin, manifest(t)))
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	port := []corev1.ServicePort{{Port: 80}}
	create(&corev1.Service{ObjectMeta: meta("default", "plain"), Spec: corev1.ServiceSpec{Ports: port}})
	create(&corev1.Service{ObjectMeta: meta("default", "open"),
		Spec: corev1.ServiceSpec{Ports: port, Type: corev1.ServiceTypeNodePort}})
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant",
		Labels: map[string]string{"core.juniper.net/isolated-namespace": "true"}}})
	create(definition("egresses", "Egress"))
	monitor := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	monitor.SetGroupVersionKind(monitors().GroupVersionKind())
	monitor.SetName("default")
	create(monitor)
	trace := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"source": map[string]any{"ip": "10.0.0.1"}, "destination": map[string]any{"ip": "10.0.0.2"}}}}
	trace.SetGroupVersionKind(traceflows().GroupVersionKind())
	trace.SetName("lost")
	create(trace)
	for name, annotation := range map[string]string{"good": `{"ipamV4Subnet": "10.0.1.0/24"}`, "bad": "10.0.1.0/24"} {
		nad := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		nad.SetGroupVersionKind(attachmentDefinitions().GroupVersionKind())
		nad.SetNamespace("default")
		nad.SetName(name)
		nad.SetAnnotations(map[string]string{tenant.AnnotationDefinition: annotation})
		create(nad)
	}
	create(&networkingv1.NetworkPolicy{ObjectMeta: meta("default", "small")})
	large := &networkingv1.NetworkPolicy{ObjectMeta: meta("default", "large")}
	large.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	for i := range policy.DefaultBounds.Policy + 1 {
		block := &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/24", i/128, i%128*2)}
		large.Spec.Ingress[0].From = append(large.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	create(large)
	create(&corev1.ConfigMap{ObjectMeta: meta("kube-system", "other"),
		Data: map[string]string{"antrea-controller.conf": "apiPort: 1"}})
	create(&corev1.ConfigMap{ObjectMeta: meta("kube-system", unserved.AgentsConfig),
		Data: map[string]string{"antrea-controller.conf": "apiPort: 1"}})

	stop := start(t, own)
	first := []string{
		"ConfigMap kube-system/antrea-config ConfigurationIgnored", "Service default/open NodePortNotSupported",
		"Namespace /tenant IsolationNotSupported",
		"CustomResourceDefinition /egresses.crd.antrea.io KindNotSupported", "NetworkPolicy default/large TooLarge",
		"NodeLatencyMonitor /default ProbesNotSupported", "Traceflow /lost RelayMissing",
		"NetworkAttachmentDefinition default/bad Invalid",
	}
	expect(t, c, first...)
	before := written(t, c)

	// A restart writes nothing again, and a change is reported in addition.
	stop()
	stop = start(t, own)
	defer stop()
	external := func(ips ...string) {
		t.Helper()
		var s corev1.Service
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "plain"}, &s); err != nil {
			t.Fatal(err)
		}
		s.Spec.ExternalIPs = ips
		if err := c.Update(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	external("192.0.2.1")
	const event = "Service default/plain ExternalIPsNotSupported"
	expect(t, c, append(first, event)...)
	for key, e := range before {
		if now := written(t, c)[key]; now.UID != e.UID || now.ResourceVersion != e.ResourceVersion {
			t.Errorf("%s was written again after a restart", key)
		}
	}

	// The same defect again is one more observation. An Event that the API server has removed is created again.
	old := written(t, c)[event]
	if err := c.Delete(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	again := func() {
		t.Helper()
		external()
		external("192.0.2.1")
	}
	again()
	expect(t, c, append(first, event)...)
	created := written(t, c)[event]
	again()
	eventually(t, "one more observation", func() bool {
		e := written(t, c)[event]
		return e.UID == created.UID && e.Series != nil && e.Series.Count >= 2 &&
			!e.Series.LastObservedTime.Before(&e.EventTime)
	})

	// Nodes serve Services for clients outside for a while. Services of that time are looked at again after it.
	conf := func(text string) {
		t.Helper()
		var m corev1.ConfigMap
		key := client.ObjectKey{Namespace: "kube-system", Name: unserved.AgentsConfig}
		if err := c.Get(t.Context(), key, &m); err != nil {
			t.Fatal(err)
		}
		m.Data["antrea-agent.conf"] = text
		if err := c.Update(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	conf("antreaProxy: {proxyAll: true}")
	all := append(slices.Clone(first), event)
	for i := range 20 {
		name := fmt.Sprint("served-", i)
		create(&corev1.Service{ObjectMeta: meta("default", name),
			Spec: corev1.ServiceSpec{Ports: port, Type: corev1.ServiceTypeNodePort}})
		all = append(all, "Service default/"+name+" NodePortNotSupported")
	}
	wide := &corev1.Service{ObjectMeta: meta("default", "wide"),
		Spec: corev1.ServiceSpec{Ports: port, Type: corev1.ServiceTypeLoadBalancer}}
	for i := range service.MaxSources + 1 {
		wide.Spec.LoadBalancerSourceRanges = append(wide.Spec.LoadBalancerSourceRanges,
			fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff))
	}
	create(wide)
	wide.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if err := c.Status().Update(t.Context(), wide); err != nil {
		t.Fatal(err)
	}
	all = append(all, "Service default/wide TooManySourceRanges")
	eventually(t, "too many ranges", func() bool { return written(t, c)[all[len(all)-1]].UID != "" })
	all = append(all, "Service default/wide NodePortNotSupported", "Service default/wide LoadBalancerNotSupported",
		"Service default/wide LoadBalancerSourceRangesNotSupported")
	conf("antreaProxy: {proxyAll: false}")
	expect(t, c, all...)

	// With networks of tenants the label is served, and its defects are reported. Without them again it is not served.
	namespace := func(name, label, mode string) {
		t.Helper()
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if label != "" {
			n.Labels[tenant.LabelIsolated] = label
		}
		if mode != "" {
			n.Annotations = map[string]string{tenant.AnnotationForwardingMode: mode}
		}
		create(n)
	}
	namespace("early", "", "fabric-snat")
	conf("featureGates: {TenantNetworks: true}")
	namespace("good", "true", "fabric-snat")
	namespace("label", "yes", "")
	namespace("mode", "true", "snat")
	namespace("fabric", "true", "ip-fabric")
	all = append(all, "Namespace /early NotIsolated", "Namespace /label InvalidLabel",
		"Namespace /mode InvalidForwardingMode", "Namespace /fabric NotServed")
	expect(t, c, all...)
	conf("")
	for _, name := range []string{"good", "label", "mode", "fabric"} {
		all = append(all, "Namespace /"+name+" IsolationNotSupported")
	}
	expect(t, c, all...)
	if e := written(t, c)["Namespace /label InvalidLabel"]; e.Series != nil || e.Namespace != metav1.NamespaceDefault {
		t.Errorf("the Event is written more than once, or in Namespace %s: %+v", e.Namespace, e.Series)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) { return is(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// definition is a CustomResourceDefinition of Antrea that this version does not install.
func definition(resource, kind string) *apiextensionsv1.CustomResourceDefinition {
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: resource + ".crd.antrea.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "crd.antrea.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: resource, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
			}},
		},
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// written returns the Events of this controller, by object and reason.
func written(t *testing.T, c client.Client) map[string]eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]eventsv1.Event{}
	for _, e := range list.Items {
		if e.ReportingController == controllerName {
			out[e.Regarding.Kind+" "+e.Regarding.Namespace+"/"+e.Regarding.Name+" "+e.Reason] = e
		}
	}
	return out
}

// expect waits until there are exactly these Events.
func expect(t *testing.T, c client.Client, want ...string) {
	t.Helper()
	slices.Sort(want)
	var have []string
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			have = nil
			for key := range written(t, c) {
				have = append(have, key)
			}
			slices.Sort(have)
			return slices.Equal(have, want), nil
		})
	if err != nil {
		t.Fatalf("Events (-want +have):\n%s", cmp.Diff(want, have))
	}
}

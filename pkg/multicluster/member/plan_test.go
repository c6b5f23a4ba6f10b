package member

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func meta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

func marked(ns, name string) metav1.ObjectMeta {
	m := meta(ns, name)
	m.Annotations = map[string]string{"multicluster.antrea.io/imported-service": "true"}
	return m
}

// testCA is the certificate of an API server that does not exist.
const testCA = `-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUd6/k5gi22rZPeTstdWAczXdRHiUwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbGVhZGVyMCAXDTI2MTEyNDA1NTYxOFoYDzIxMjYxMDMxMDU1
NjE4WjARMQ8wDQYDVQQDDAZsZWFkZXIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAS8lBH4hKqSsg4bTqCd822EOIRSyqVN9XOrohuu7kh6MWJPamn71WOkZ69GIyU/
KQO8uwHLxxpgd6t2fBlmg7v2o1MwUTAdBgNVHQ4EFgQUXBrOFeC3gAhuO2hcYyqH
CskeJ2AwHwYDVR0jBBgwFoAUXBrOFeC3gAhuO2hcYyqHCskeJ2AwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEA0o04h2hdZ0HZYyG6lOxqss1kkiHf
EaqXgHoGHHEViNkCIEdIEcFbh/EzpxHaQQdANePv1lCb8Ok68qM/RKdgLD1Q
-----END CERTIFICATE-----
`

// joinedView is the view of cluster east, which has joined and has nothing else.
func joinedView() View {
	v := View{
		Namespace:   "kube-system",
		Now:         now,
		Config:      config.Config{EndpointIPType: config.EndpointIPTypeClusterIP},
		ServiceCIDR: "10.97.0.0/16",
		ClusterSets: []*mcv1alpha2.ClusterSet{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "set", Generation: 3},
			Spec: mcv1alpha2.ClusterSetSpec{
				ClusterID: "east",
				Leaders:   []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north", Server: "https://172.30.0.10:6443", Secret: "token"}},
				Namespace: "antrea-multicluster",
			},
		}},
		Secrets: []*corev1.Secret{{
			ObjectMeta: meta("kube-system", "token"),
			Data:       map[string][]byte{"ca.crt": []byte(testCA), "token": []byte("abc\n")},
		}},
		Namespaces: []*corev1.Namespace{{ObjectMeta: meta("", "default")}},
	}
	v.Leader = Leader{
		Area: Area{
			ClusterSet: "set", ClusterID: "east", LeaderID: "north", Server: "https://172.30.0.10:6443",
			Namespace: "antrea-multicluster", Secret: "kube-system/token", Token: "abc", CA: testCA,
		},
		Announcement: Announcement{Tried: now.Add(-time.Second), Done: now.Add(-time.Second), Found: true},
		Synced:       true,
	}
	return v
}

func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta("default", "web"),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.10", ClusterIPs: []string{"10.97.0.10", "fd00::10"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func webSlice(readiness ...bool) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for i, r := range readiness {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.11.0.%d", i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(r)},
		})
	}
	return s
}

// exportingView is joinedView with Service default/web, one ready endpoint and its ServiceExport.
func exportingView() View {
	v := joinedView()
	v.Services = []*corev1.Service{webService()}
	v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(true)}
	v.ServiceExports = []*mcsv1alpha1.ServiceExport{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 2}}}
	return v
}

func problems(ps []problem.Problem) []string {
	var s []string
	for _, p := range ps {
		s = append(s, p.Object.String()+": "+p.Reason)
	}
	return s
}

func expect(t *testing.T, what string, have, want any) {
	t.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +have):\n%s", what, diff)
	}
}

func exportNames(d Desired) []string {
	var names []string
	for _, re := range d.ResourceExports {
		names = append(names, re.Name)
	}
	slices.Sort(names)
	return names
}

func TestPlanServiceExportConditions(t *testing.T) {
	both := []string{"east-default-web-endpoints", "east-default-web-service"}
	for _, row := range []struct {
		name    string
		change  func(*View)
		reason  string // of condition Valid; empty if it is not written yet
		exports []string
	}{
		{name: "exported, the leader has it", change: withOwnExports, reason: "Succeed", exports: both},
		{name: "the leader does not have it yet", exports: both},
		{name: "Service missing", change: func(v *View) { v.Services = nil }, reason: "ServiceNotFound"},
		{name: "Service being deleted", change: func(v *View) { v.Services[0].DeletionTimestamp = &metav1.Time{Time: now} }, reason: "ServiceNotFound"},
		{name: "ExternalName", change: func(v *View) { v.Services[0].Spec.Type = corev1.ServiceTypeExternalName }, reason: "ServiceTypeNotSupported"},
		{name: "ExternalName after it was exported", change: func(v *View) {
			withOwnExports(v)
			v.Services[0].Spec.Type = corev1.ServiceTypeExternalName
		}, reason: "ServiceTypeNotSupported"},
		{name: "imported", change: func(v *View) { v.Services[0].ObjectMeta = marked("default", "web") }, reason: "ImportedService"},
		{name: "no ready endpoint", change: func(v *View) { v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(false, false)} }, reason: "ServiceWithoutEndpoints"},
		{name: "no endpoint at all", change: func(v *View) { v.EndpointSlices = nil }, reason: "ServiceWithoutEndpoints"},
		{name: "endpoints of another Service", change: func(v *View) { v.EndpointSlices[0].Namespace = "other" }, reason: "ServiceWithoutEndpoints"},
		{name: "readiness unknown counts as ready", change: func(v *View) { v.EndpointSlices[0].Endpoints[0].Conditions.Ready = nil }, exports: both},
		{name: "headless", change: func(v *View) {
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ServiceNoClusterIP"},
		{name: "headless after it was exported", change: func(v *View) {
			withOwnExports(v)
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ServiceNoClusterIP"},
		{name: "headless without endpoints: endpoints are checked first", change: func(v *View) {
			v.EndpointSlices = nil
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ServiceWithoutEndpoints"},
		{name: "only an IPv6 ClusterIP", change: func(v *View) {
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "fd00::10", []string{"fd00::10"}
		}, reason: "ServiceNoClusterIP"},
		{name: "headless in PodIP mode", change: func(v *View) {
			v.Config.EndpointIPType = config.EndpointIPTypePodIP
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, exports: both},
		{name: "no ready endpoint in PodIP mode", change: func(v *View) {
			v.Config.EndpointIPType = config.EndpointIPTypePodIP
			v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(false)}
		}, reason: "ServiceWithoutEndpoints"},
		{name: "refused also while the leader is away", change: func(v *View) {
			v.Leader.Synced = false
			v.Services = nil
		}, reason: "ServiceNotFound"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			if row.change != nil {
				row.change(&v)
			}
			d, _ := Plan(v)
			reason := ""
			for _, se := range d.ServiceExports {
				c := se.Status.Conditions[0]
				reason = c.Reason
				expect(t, "type", c.Type, "Valid")
				expect(t, "observedGeneration", c.ObservedGeneration, int64(2))
				expect(t, "status", c.Status == metav1.ConditionTrue, reason == "Succeed")
			}
			expect(t, "reason", reason, row.reason)
			expect(t, "ResourceExports", exportNames(d), row.exports)
		})
	}
}

// withOwnExports gives the leader the ResourceExports that the view's plan wants.
func withOwnExports(v *View) {
	d, _ := Plan(*v)
	v.Leader.ResourceExports = d.ResourceExports
}

func TestPlanResourceExports(t *testing.T) {
	v := exportingView()
	v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(true, false, true), webSlice(true)}
	v.EndpointSlices[1].Name = "web-2"
	ports := v.Services[0].Spec.Ports

	d, _ := Plan(v)
	service, endpoints := d.ResourceExports[0], d.ResourceExports[1]
	expect(t, "labels", service.Labels, map[string]string{
		"sourceKind": "Service", "sourceClusterID": "east", "sourceNamespace": "default", "sourceName": "web"})
	expect(t, "finalizers", service.Finalizers, []string{"resourceexport.antrea.io/finalizer"})
	expect(t, "Namespace", service.Namespace, "antrea-multicluster")
	expect(t, "Service", service.Spec.Service.ServiceSpec, corev1.ServiceSpec{Ports: ports})
	expect(t, "kinds", service.Spec.Kind+" "+endpoints.Spec.Kind, "Service Endpoints")
	expect(t, "subsets by ClusterIP", endpoints.Spec.Endpoints.Subsets, []subset{{
		Addresses: []address{{IP: "10.97.0.10"}}, Ports: []port{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}})

	v.Config.EndpointIPType = config.EndpointIPTypePodIP
	d, _ = Plan(v)
	expect(t, "subsets by Pod address, each once", d.ResourceExports[1].Spec.Endpoints.Subsets, []subset{{
		Addresses: []address{{IP: "10.11.0.1"}, {IP: "10.11.0.3"}}, Ports: []port{{Name: "http", Port: 8080, Protocol: corev1.ProtocolTCP}}}})
}

func TestPlanServicesWithTheSameDerivedName(t *testing.T) {
	v := exportingView()
	add := func(ns, name string) {
		s, e := webService(), webSlice(true)
		s.Namespace, s.Name = ns, name
		e.Namespace, e.Labels = ns, map[string]string{discoveryv1.LabelServiceName: name}
		v.Services, v.EndpointSlices = append(v.Services, s), append(v.EndpointSlices, e)
		v.ServiceExports = append(v.ServiceExports, &mcsv1alpha1.ServiceExport{ObjectMeta: meta(ns, name)})
	}
	v.ServiceExports = nil
	add("a-b", "c")
	withOwnExports(&v) // a-b/c is exported
	add("a", "b-c")    // sorts first, but comes second
	d, _ := Plan(v)
	expect(t, "ResourceExports", exportNames(d), []string{"east-a-b-c-endpoints", "east-a-b-c-service"})
	expect(t, "holder", d.ResourceExports[0].Spec.Namespace, "a-b")
	for _, se := range d.ServiceExports {
		if se.Namespace == "a" {
			expect(t, "reason", se.Status.Conditions[0].Reason, "ExportNameConflict")
		}
	}

	// The first is not exported any more: its ResourceExports go, then the second has the name.
	v.ServiceExports = v.ServiceExports[1:]
	v.ServiceExports[0].Status = d.ServiceExports[0].Status
	const serviceExport, endpointsExport = "ResourceExport antrea-multicluster/east-a-b-c-service", "ResourceExport antrea-multicluster/east-a-b-c-endpoints"
	d, _ = Plan(v)
	expect(t, "hand over", writes(d.Change.Leader), []string{"delete " + endpointsExport, "delete " + serviceExport})
	expect(t, "reason", d.ServiceExports[0].Status.Conditions[0].Message, "ResourceExport name east-a-b-c-service is still taken by Service a-b/c, "+
		"which is not exported any more; this Service is exported as soon as the leader has removed that ResourceExport")
	for _, re := range v.Leader.ResourceExports {
		re.DeletionTimestamp = &metav1.Time{Time: now}
	}
	d, _ = Plan(v)
	expect(t, "while the leader holds them", writes(d.Change.Leader), []string(nil))
	v.Leader.ResourceExports = nil
	d, _ = Plan(v)
	expect(t, "when they are gone", writes(d.Change.Leader), []string{"create " + endpointsExport, "create " + serviceExport})
	withOwnExports(&v)
	d, _ = Plan(v)
	expect(t, "in the end", writes(d.Change.Leader), []string(nil))
	expect(t, "reason", d.ServiceExports[0].Status.Conditions[0].Reason, "Succeed")
}

func TestPlanReportsWhatTheLeaderRefuses(t *testing.T) {
	v := exportingView()
	withOwnExports(&v)
	v.Leader.ResourceExports[0].Status.Conditions = []mcv1alpha1.ResourceExportCondition{{
		Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, Reason: "ConvergeFailure", Message: "ports differ"}}
	_, ps := Plan(v)
	expect(t, "problems", problems(ps), []string{"ServiceExport default/web: ConvergeFailure"})
}

func TestPlanIsDoneWhenApplied(t *testing.T) {
	v := exportingView()
	v.Nodes = []*corev1.Node{node("node-1", "192.168.78.101")}
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"), endpointsOf("default", "db", "10.98.0.7")}
	d, _ := Plan(v)
	if c := d.Change; len(c.Local) == 0 || len(c.Leader) != 3 {
		t.Fatalf("first change: %v", c)
	}
	// What the API servers would hold after the writes.
	v.ClusterSets = []*mcv1alpha2.ClusterSet{d.ClusterSet}
	v.Gateways, v.Leader.ResourceExports = d.Gateways, d.ResourceExports
	v.Services, v.Endpoints = append(v.Services, d.Services...), d.Endpoints
	v.Services[1].Spec.ClusterIP = "10.97.0.99"
	v.Services[1].Spec.Ports[0].TargetPort.IntVal = 80 // defaulted
	d, _ = Plan(v)
	v.ServiceImports, v.ServiceExports, v.EndpointSlices = d.ServiceImports, d.ServiceExports, append(v.EndpointSlices, d.EndpointSlices...)
	expect(t, "ServiceImport", d.ServiceImports[0].Spec.IPs, []string{"10.97.0.99"})
	v.Now = v.Now.Add(time.Second)
	d, ps := Plan(v)
	expect(t, "problems", problems(ps), []string(nil))
	if c := d.Change; len(c.Local)+len(c.Leader) != 0 {
		t.Errorf("there is still a change: %v", c)
	}
}

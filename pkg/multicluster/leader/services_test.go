package leader

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
)

// everyConflict are the reasons of exports that differ in everything.
const everyConflict = "TypeConflict,PortConflict,SessionAffinityConflict,SessionAffinityConfigConflict," +
	"InternalTrafficPolicyConflict,TrafficDistributionConflict,IPFamilyConflict,RequestsConflict," +
	"LabelsConflict,AnnotationsConflict"

// TestConflicts has the rows of the Multi-Cluster Services API: the result of the exports of a Service, and the reports
// to their exporters.
func TestConflicts(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	type facts = exportcheck.ServiceFacts
	ports := func(list ...any) []corev1.ServicePort {
		var out []corev1.ServicePort
		for i := 0; i < len(list); i += 2 {
			out = append(out, corev1.ServicePort{Name: list[i].(string), Port: int32(list[i+1].(int)),
				Protocol: corev1.ProtocolTCP})
		}
		return out
	}
	export := func(cluster string, f *facts, list []corev1.ServicePort) *mcv1alpha1.ResourceExport {
		re := service(cluster, "default", "web", time.Hour, 80)
		re.Spec.Service.ServiceSpec.Ports = list
		if f != nil {
			re.Annotations = map[string]string{multicluster.AnnotationService: f.String()}
			re.CreationTimestamp = metav1.Unix(f.Created, 0)
		}
		return re
	}
	addresses := func(cluster, address string, list ...any) *mcv1alpha1.ResourceExport {
		re := endpoints(cluster, "default", "web", address)
		for _, p := range ports(list...) {
			re.Spec.Endpoints.Subsets[0].Ports = append(re.Spec.Endpoints.Subsets[0].Ports,
				corev1.EndpointPort{Name: p.Name, Port: p.Port})
		}
		return re
	}
	http := ports("http", 80)
	since := func(created int64, change func(*facts)) *facts {
		f := &facts{Created: created}
		if change != nil {
			change(f)
		}
		return f
	}
	all := func(reason string, clusters ...string) []string {
		var out []string
		for _, c := range clusters {
			out = append(out, c+"-default-web-service "+reason)
		}
		return out
	}
	seen := func(seconds int64, re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
		re.CreationTimestamp = metav1.Unix(seconds, 0)
		return re
	}
	for _, row := range []struct {
		name string
		now  exports
		want []string
	}{
		{"who claims to be older than any export that takes long to arrive stays behind", exports{
			seen(1000, export("east", since(999, nil), ports("tcp", 42))),
			seen(2000, export("west", since(1, nil), ports("tcp", 43)))}, append([]string{
			"default-web-service of default/web [tcp:TCP/42] +east +west"}, all("PortConflict", "east", "west")...)},
		{"an older export that took long to arrive goes first", exports{
			seen(1000, export("east", since(999, nil), ports("tcp", 42))),
			seen(1003, export("west", since(998, nil), ports("tcp", 43)))}, append([]string{
			"default-web-service of default/web [tcp:TCP/43] +east +west"}, all("PortConflict", "east", "west")...)},
		{"two that arrived in one second, long after they were made: the older goes first, whatever its cluster is called",
			exports{
				seen(300, export("east", since(200, nil), ports("tcp", 42))),
				seen(300, export("west", since(100, nil), ports("tcp", 43)))}, append([]string{
				"default-web-service of default/web [tcp:TCP/43] +east +west"}, all("PortConflict", "east", "west")...)},
		{"three agree", exports{export("east", since(3, nil), http), export("west", since(2, nil), http),
			export("south", since(1, nil), http)}, []string{
			"default-web-service of default/web [http:TCP/80] +east +south +west"}},
		{"the order of ports is no conflict",
			exports{export("east", since(1, nil), ports("a", 1, "b", 2)), export("west", since(2, nil), ports("b", 2, "a", 1))},
			[]string{
				"default-web-service of default/web [a:TCP/1 b:TCP/2] +east +west"}},
		{"row 11: different ports are joined, and traffic goes to the cluster that has them (row 21)", exports{
			export("east", since(2, nil), ports("b", 43)), export("west", since(1, nil), ports("a", 42)),
			addresses("east", "10.96.0.1", "b", 43), addresses("west", "10.97.0.1", "a", 42)}, append([]string{
			"default-web-endpoints of default/web 10.96.0.1:b:43 10.97.0.1:a:42 +east +west",
			"default-web-service of default/web [a:TCP/42 b:TCP/43] +east +west"}, all("PortConflict", "east", "west")...)},
		{"row 12: one name, two numbers: the older export's, and traffic to its cluster alone (row 20)", exports{
			export("east", since(2, nil), ports("tcp", 42)), export("west", since(1, nil), ports("tcp", 43)),
			export("south", since(3, nil), ports("tcp", 43)),
			addresses("east", "10.96.0.1", "tcp", 42), addresses("west", "10.97.0.1", "tcp", 43),
			addresses("south", "10.98.0.1", "tcp", 43)}, append([]string{
			"default-web-endpoints of default/web 10.98.0.1:tcp:43 10.97.0.1:tcp:43 +east +south +west",
			"default-web-service of default/web [tcp:TCP/43] +east +south +west"},
			all("PortConflict", "east", "south", "west")...)},
		{"row 25: of headless Services all Pods are found by DNS, each with its own port numbers", exports{
			export("east", since(2, func(f *facts) { f.Headless = true }), ports("tcp", 42)),
			export("west", since(1, func(f *facts) { f.Headless = true }), ports("tcp", 43)),
			addresses("east", "10.10.0.1", "tcp", 42), addresses("west", "10.11.0.1", "tcp", 43)}, append([]string{
			"default-web-endpoints of default/web 10.10.0.1:tcp:42 10.11.0.1:tcp:43 +east +west",
			"default-web-service of default/web [tcp:TCP/43] Headless +east +west"}, all("PortConflict", "east", "west")...)},
		{"one number, two names",
			exports{export("east", since(1, nil), ports("a", 80)), export("west", since(2, nil), ports("b", 80))},
			append([]string{
				"default-web-service of default/web [a:TCP/80] +east +west"}, all("PortConflict", "east", "west")...)},
		{"a port without a name goes with no other",
			exports{export("east", since(1, nil), ports("", 80)), export("west", since(2, nil), ports("b", 81))},
			append([]string{
				"default-web-service of default/web [TCP/80] +east +west"}, all("PortConflict", "east", "west")...)},
		{"row 13: one is headless", exports{
			export("east", since(2, nil), http), export("west", since(1, func(f *facts) { f.Headless = true }), http),
			addresses("east", "10.96.0.1", "http", 80), addresses("west", "10.11.0.1", "http", 8080)}, append([]string{
			"default-web-endpoints of default/web 10.11.0.1:http:8080 +west",
			"default-web-service of default/web [http:TCP/80] Headless +west",
			"east-default-web-endpoints fails: the endpoints of cluster east are left out: type: imported is Headless of " +
				"cluster west, whose export is the oldest; cluster east has not that, and its endpoints are left out",
		}, all("TypeConflict", "east", "west")...)},
		{"affinity and its timeout", exports{
			export("east", since(1, func(f *facts) {
				f.SessionAffinity, f.AffinityTimeout = corev1.ServiceAffinityClientIP, ptr.To(int32(60))
			}), http),
			export("west", since(2, func(f *facts) { f.SessionAffinity = corev1.ServiceAffinityNone }), http)}, append([]string{
			"default-web-service of default/web [http:TCP/80] ClientIP 60s +east +west"},
			all("SessionAffinityConflict,SessionAffinityConfigConflict", "east", "west")...)},
		{"the timeout alone", exports{
			export("east", since(2, func(f *facts) {
				f.SessionAffinity, f.AffinityTimeout = corev1.ServiceAffinityClientIP, ptr.To(int32(60))
			}), http),
			export("west", since(1, func(f *facts) {
				f.SessionAffinity, f.AffinityTimeout = corev1.ServiceAffinityClientIP, ptr.To(int32(61))
			}), http)}, append([]string{
			"default-web-service of default/web [http:TCP/80] ClientIP 61s +east +west"},
			all("SessionAffinityConfigConflict", "east", "west")...)},
		{"internal traffic policy", exports{
			export("east", since(2,
				func(f *facts) { f.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyCluster }), http),
			export("west", since(1, func(f *facts) { f.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyLocal }),
				http)}, append([]string{
			"default-web-service of default/web [http:TCP/80] Local +east +west"},
			all("InternalTrafficPolicyConflict", "east", "west")...)},
		{"traffic distribution", exports{
			export("east", since(1, func(f *facts) { f.TrafficDistribution = "PreferClose" }), http),
			export("west", since(2, nil), http)}, append([]string{
			"default-web-service of default/web [http:TCP/80] PreferClose +east +west"},
			all("TrafficDistributionConflict", "east", "west")...)},
		{"families", exports{
			export("east", since(1, func(f *facts) { f.IPFamilies = []corev1.IPFamily{"IPv4"} }), http),
			export("west", since(2, func(f *facts) { f.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"} }), http)},
			append([]string{
				"default-web-service of default/web [http:TCP/80] [IPv4 IPv6] +east +west"},
				all("IPFamilyConflict", "east", "west")...)},
		{"no family in common", exports{
			export("east", since(2, func(f *facts) { f.IPFamilies = []corev1.IPFamily{"IPv4"} }), http),
			export("west", since(1, func(f *facts) { f.IPFamilies = []corev1.IPFamily{"IPv6"} }), http)},
			append([]string{
				"default-web-service of default/web [http:TCP/80] [IPv6 IPv4] +east +west"},
				all("IPFamilyConflict", "east", "west")...)},
		{"the order of families is no conflict", exports{
			export("east", since(1, func(f *facts) { f.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} }), http),
			export("west", since(2, func(f *facts) { f.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"} }), http)},
			[]string{"default-web-service of default/web [http:TCP/80] [IPv6 IPv4] +east +west"}},
		{"row 15: labels", exports{
			export("east", since(1, func(f *facts) { f.Labels = map[string]string{"a": "b"} }), http),
			export("west", since(2, func(f *facts) { f.Labels = map[string]string{"a": "c"} }), http)}, append([]string{
			`default-web-service of default/web [http:TCP/80]{"labels":{"a":"b"}} +east +west`},
			all("LabelsConflict", "east", "west")...)},
		{"row 15: annotations, of three", exports{
			export("east", since(2, func(f *facts) { f.Annotations = map[string]string{"a": "b"} }), http),
			export("south", since(3, func(f *facts) { f.Annotations = map[string]string{"a": "c"} }), http),
			export("west", since(1, func(f *facts) { f.Annotations = map[string]string{"a": "c"} }), http)}, append([]string{
			`default-web-service of default/web [http:TCP/80]{"annotations":{"a":"c"}} +east +south +west`},
			all("AnnotationsConflict", "east", "south", "west")...)},
		{"everything differs: all reasons, in one order", exports{
			export("east", since(1, func(f *facts) {
				f.SessionAffinity, f.AffinityTimeout = corev1.ServiceAffinityClientIP, ptr.To(int32(60))
				f.InternalTrafficPolicy, f.TrafficDistribution = corev1.ServiceInternalTrafficPolicyLocal, "PreferClose"
				f.IPFamilies, f.Requests = []corev1.IPFamily{"IPv4"}, &requests.Rule{To: requests.Spread}
				f.Labels, f.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
			}), http),
			export("south", since(3, func(f *facts) { f.Headless = true }), http),
			export("west", since(2, func(f *facts) { f.Requests = &requests.Rule{To: requests.Local, Minimum: 1} }),
				ports("tcp", 42))}, append([]string{
			`default-web-service of default/web [http:TCP/80 tcp:TCP/42] ClientIP 60s Local PreferClose [IPv4] goes ` +
				`spread{"labels":{"a":"b"},"annotations":{"a":"b"}} +east +west`},
			all(everyConflict, "east", "south", "west")...)},
		{"a member of another implementation says nothing but ports", exports{
			export("east", nil, http),
			export("west", since(1, func(f *facts) { f.SessionAffinity = corev1.ServiceAffinityClientIP }), http)}, []string{
			"default-web-service of default/web [http:TCP/80] ClientIP +east +west"}},
		{"facts that are none are refused, the others go on", exports{
			export("east", since(1, func(f *facts) { f.SessionAffinity = "Sticky" }), http),
			export("west", since(2, nil), http)}, []string{
			"default-web-service of default/web [http:TCP/80] +west",
			`east-default-web-service fails: metadata.annotations[multicluster.tombolo.io/service]: sessionAffinity: "Sticky" ` +
				`is not one of ClientIP and None`}},
		{"where requests go: as the oldest says that says anything", exports{
			export("east", since(1, nil), http), export("south", nil, http),
			export("west", since(2, func(f *facts) { f.Requests = &requests.Rule{To: requests.Local, Minimum: 2} }), http)},
			[]string{
				"default-web-service of default/web [http:TCP/80] goes local 2 +east +south +west"}},
		{"where requests go: they differ", exports{
			export("east", since(1, func(f *facts) {
				f.Requests = &requests.Rule{To: requests.ClusterOrder, Order: []string{"west", "east"}}
			}), http),
			export("west", since(2, func(f *facts) { f.Requests = &requests.Rule{To: requests.Spread} }), http)},
			append([]string{
				"default-web-service of default/web [http:TCP/80] goes cluster-order west,east +east +west"},
				all("RequestsConflict", "east", "west")...)},
		{"where requests go: no such mode", exports{
			export("east", since(1, func(f *facts) { f.Requests = &requests.Rule{To: "nearest"} }), http),
			export("west", since(2, nil), http)}, []string{
			"default-web-service of default/web [http:TCP/80] +west",
			`east-default-web-service fails: metadata.annotations[multicluster.tombolo.io/service]: requests: ` +
				`metadata.annotations[multicluster.tombolo.io/requests]: "nearest" is not one of spread, local and cluster-order`}},
		{"a label that would speak to controllers", exports{
			export("east", since(1,
				func(f *facts) { f.Annotations = map[string]string{multicluster.AnnotationImportedService: "true"} }), http)},
			[]string{
				`east-default-web-service fails: metadata.annotations[multicluster.tombolo.io/service]: annotations: ` +
					`"multicluster.antrea.io/imported-service" is the ClusterSet's own: export another one`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := View{Namespace: "area", Now: noon, Announces: announced("east", "west", "south"), ResourceExports: row.now}
			have, problems := Plan(v)
			if diff := cmp.Diff(row.want, reported(have)); diff != "" || len(problems) > 0 {
				t.Errorf("problems %v; want, have:\n%s", problems, diff)
			}
			slices.Reverse(v.ResourceExports)
			v.ResourceImports = slices.Collect(maps.Values(have.Imports))
			if again, _ := Plan(v); !slices.Equal(reported(again), reported(have)) {
				t.Errorf("once it is written something else is desired: %v, was %v", reported(again), reported(have))
			}
		})
	}
}

// TestLongNames refuses a Service that no cluster could import. antrea-mc- and its name would have more than 63
// characters.
func TestLongNames(t *testing.T) {
	for _, row := range []struct {
		length int
		failed string
	}{
		{53, ""},
		{54, `spec.name: "` + strings.Repeat("n", 54) +
			`" has 54 characters: expected at most 53, since clusters import it as antrea-mc- and the name; give the Service ` +
			`a shorter name`},
	} {
		name := strings.Repeat("n", row.length)
		have, problems := Plan(View{Namespace: "area", Now: noon, Announces: announced("east"),
			ResourceExports: []*mcv1alpha1.ResourceExport{
				service("east", "default", name, time.Hour, 80), endpoints("east", "default", name, "10.96.0.1")}})
		condition := have.Conditions["east-default-"+name+"-service"]
		failed, _ := strings.CutPrefix(condition.Message, "the ResourceExport cannot be converged to a ResourceImport: ")
		if failed != row.failed || len(problems) > 0 {
			t.Errorf("%d characters: the exporter is told %q, want %q; problems %v", row.length, failed, row.failed, problems)
		}
		if imported := len(have.Imports) == 2; imported != (row.failed == "") {
			t.Errorf("%d characters: imported: %t (%d objects)", row.length, imported, len(have.Imports))
		}
	}
}

// TestReadyEndpoints passes on the number of endpoints behind a cluster's address, if the cluster has one.
func TestReadyEndpoints(t *testing.T) {
	exports := func(cluster, ready string, addresses ...string) []*mcv1alpha1.ResourceExport {
		e := endpoints(cluster, "default", "web", addresses[0])
		for _, ip := range addresses[1:] {
			e.Spec.Endpoints.Subsets[0].Addresses = append(e.Spec.Endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: ip})
		}
		if ready != "" {
			e.Annotations = map[string]string{multicluster.AnnotationReady: ready}
		}
		return []*mcv1alpha1.ResourceExport{service(cluster, "default", "web", time.Hour, 80), e}
	}
	for _, row := range []struct {
		name   string
		now    [][]*mcv1alpha1.ResourceExport
		want   string
		failed []string
	}{
		{"one has a number, one does not", [][]*mcv1alpha1.ResourceExport{exports("east", "3", "10.96.0.1"),
			exports("west", "", "10.97.0.1")},
			`[{"cluster":"east","subsets":1,"ready":3},{"cluster":"west","subsets":1}]`, nil},
		{"Pods' own addresses count one each, whatever the annotation has",
			[][]*mcv1alpha1.ResourceExport{exports("east", "900", "10.96.0.1", "10.96.0.2")},
			`[{"cluster":"east","subsets":1}]`, nil},
		{"the addresses of both versions of IP stand for the same endpoints",
			[][]*mcv1alpha1.ResourceExport{exports("east", "3", "10.96.0.1", "fd00:96::1")},
			`[{"cluster":"east","subsets":1,"ready":3}]`, nil},
		{"a number out of range is refused, the others go on",
			[][]*mcv1alpha1.ResourceExport{exports("east", "65536", "10.96.0.1"), exports("west", "2", "10.97.0.1")},
			`[{"cluster":"west","subsets":1,"ready":2}]`,
			[]string{
				`east-default-web-endpoints fails: metadata.annotations[multicluster.tombolo.io/ready-endpoints]: "65536" is not ` +
					`a number of ready endpoints: expected 1 to 1000`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			have, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east", "west"),
				ResourceExports: slices.Concat(row.now...)})
			if diff := cmp.Diff(row.want,
				have.Imports["default-web-endpoints"].Annotations[multicluster.AnnotationSources]); diff != "" {
				t.Errorf("want, have:\n%s", diff)
			}
			var failed []string
			for _, line := range reported(have) {
				if strings.Contains(line, " fails: ") {
					failed = append(failed, line)
				}
			}
			if diff := cmp.Diff(row.failed, failed); diff != "" {
				t.Errorf("failed, want, have:\n%s", diff)
			}
		})
	}
}

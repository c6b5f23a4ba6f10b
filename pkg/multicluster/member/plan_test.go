package member

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
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
				Leaders: []mcv1alpha2.LeaderClusterInfo{
					{ClusterID: "north", Server: "https://172.30.0.10:6443", Secret: "token"}},
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
		Area: membership.Area{
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
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for i, r := range readiness {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.11.0.%d", i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(r)},
		})
	}
	return s
}

// ending has the endpoints of a slice that are not ready end, and still answer.
func ending(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	for i := range s.Endpoints {
		if c := &s.Endpoints[i].Conditions; !*c.Ready {
			c.Serving, c.Terminating = ptr.To(true), ptr.To(true)
		}
	}
	return s
}

// exportingView returns joinedView with Service default/web, one ready endpoint, and its ServiceExport.
func exportingView() View {
	v := joinedView()
	v.Services = []*corev1.Service{webService()}
	v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(true)}
	v.ServiceExports = []*mcsv1alpha1.ServiceExport{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 2}}}
	return v
}

func problems(ps []problem.Problem) []string {
	var s []string
	for _, p := range ps {
		s = append(s, p.Object.String()+": "+p.Reason.String())
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
	alone := both[1:] // the import lives as long as the ServiceExport does
	for _, row := range []struct {
		name    string
		change  func(*View)
		reason  string // of condition Valid; empty if it is not written
		exports []string
	}{
		{name: "exported, the leader has it", change: withOwnExports, reason: "Succeed", exports: both},
		{name: "the leader does not have it yet", reason: "ExportPending", exports: both},
		{name: "the leader does not have it any more", change: saying("Valid/Succeed", "Ready"),
			reason: "ExportPending", exports: both},
		{name: "the leader does not have it yet, and its Service was missing",
			change: saying("Valid False/ServiceNotFound", "Ready False"), reason: "ExportPending", exports: both},
		{name: "the leader has an older state", change: func(v *View) {
			withOwnExports(v)
			saying("Valid/Succeed", "Ready")(v)
			v.Services[0].Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 81}}
		}, exports: both},
		{name: "the leader is away and was not read", change: func(v *View) { v.Leader.Synced = false },
			reason: "ExportPending", exports: both},
		{name: "the leader is away and was not read, and had it", change: func(v *View) {
			v.Leader.Synced = false
			saying("Valid/Succeed", "Ready")(v)
		}, exports: both},
		{name: "a name of 53 characters", change: func(v *View) { rename(v, 53) }, reason: "ExportPending", exports: []string{
			"east-default-" + strings.Repeat("n", 53) + "-endpoints", "east-default-" + strings.Repeat("n", 53) + "-service"}},
		{name: "a name of 54 characters", change: func(v *View) { rename(v, 54) }, reason: "ExportNameTooLong"},
		{name: "Service missing", change: func(v *View) { v.Services = nil }, reason: "ServiceNotFound"},
		{name: "Service being deleted", change: func(v *View) { v.Services[0].DeletionTimestamp = &metav1.Time{Time: now} },
			reason: "ServiceNotFound"},
		{name: "ExternalName", change: func(v *View) { v.Services[0].Spec.Type = corev1.ServiceTypeExternalName },
			reason: "ServiceTypeNotSupported"},
		{name: "ExternalName after it was exported", change: func(v *View) {
			withOwnExports(v)
			v.Services[0].Spec.Type = corev1.ServiceTypeExternalName
		}, reason: "ServiceTypeNotSupported"},
		{name: "imported", change: func(v *View) { v.Services[0].ObjectMeta = marked("default", "web") },
			reason: "ImportedService"},
		{name: "no ready endpoint", change: func(v *View) {
			v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(false, false)}
		}, reason: "ExportPending", exports: alone},
		{name: "no ready endpoint, the leader has the Service", change: func(v *View) {
			withOwnExports(v)
			v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(false)}
		}, reason: "Succeed", exports: alone},
		{name: "no ready endpoint, one that ends still serves", change: func(v *View) {
			v.EndpointSlices = []*discoveryv1.EndpointSlice{ending(webSlice(false, false))}
		}, reason: "ExportPending", exports: both},
		{name: "no endpoint at all", change: func(v *View) { v.EndpointSlices = nil },
			reason: "ExportPending", exports: alone},
		{name: "endpoints of another Service", change: func(v *View) { v.EndpointSlices[0].Namespace = "other" },
			reason: "ExportPending", exports: alone},
		{name: "readiness unknown counts as ready", change: func(v *View) {
			v.EndpointSlices[0].Endpoints[0].Conditions.Ready = nil
		}, reason: "ExportPending", exports: both},
		{name: "headless", change: func(v *View) {
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ServiceNoClusterIP"},
		{name: "headless after it was exported", change: func(v *View) {
			withOwnExports(v)
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ServiceNoClusterIP"},
		{name: "headless without endpoints", change: func(v *View) {
			v.EndpointSlices = nil
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ServiceNoClusterIP"},
		{name: "headless without endpoints, with podCIDRs", change: func(v *View) {
			v.Config.PodCIDRs = []string{"10.11.0.0/16"}
			v.EndpointSlices = nil
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ExportPending", exports: alone},
		{name: "only an IPv6 ClusterIP", change: func(v *View) {
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "fd00::10", []string{"fd00::10"}
		}, reason: "ServiceNoClusterIP"},
		{name: "an address of a second ServiceCIDR", change: func(v *View) {
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "10.200.0.10", []string{"10.200.0.10"}
		}, reason: "ServiceNoClusterIP"},
		{name: "an address of a second ServiceCIDR that is announced", change: func(v *View) {
			v.ServiceCIDRs = serviceCIDRs("10.97.0.0/16,fd00:97::/112", "10.200.0.0/24")
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "10.200.0.10", []string{"10.200.0.10"}
		}, reason: "ExportPending", exports: both},
		{name: "an address of a second ServiceCIDR in PodIP mode", change: func(v *View) {
			v.Config.EndpointIPType = config.EndpointIPTypePodIP
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "10.200.0.10", []string{"10.200.0.10"}
		}, reason: "ExportPending", exports: both},
		{name: "headless in PodIP mode", change: func(v *View) {
			v.Config.EndpointIPType = config.EndpointIPTypePodIP
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, reason: "ExportPending", exports: both},
		{name: "no ready endpoint in PodIP mode", change: func(v *View) {
			v.Config.EndpointIPType = config.EndpointIPTypePodIP
			v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice(false)}
		}, reason: "ExportPending", exports: alone},
		{name: "only IPv6 endpoints in PodIP mode, and podCIDRs of IPv4", change: func(v *View) {
			v.Config.EndpointIPType, v.Config.PodCIDRs = config.EndpointIPTypePodIP, []string{"10.11.0.0/16"}
			v.EndpointSlices = []*discoveryv1.EndpointSlice{webSlice6()}
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
				expect(t, "status", c.Status == metav1.ConditionTrue, reason == "Succeed" || reason == "ExportPending")
				ready, ok := map[string]string{"Succeed": "True Exported", "ExportPending": "False Pending"}[reason]
				if !ok {
					ready = "False Failed"
				}
				expect(t, "Ready", conditionText(se, "Ready"), ready)
			}
			expect(t, "reason", reason, row.reason)
			expect(t, "ResourceExports", exportNames(d), row.exports)
		})
	}
}

// webSlice6 is a slice of one ready endpoint of IPv6.
func webSlice6() *discoveryv1.EndpointSlice {
	s := webSlice(true)
	s.Name, s.AddressType, s.Endpoints[0].Addresses = "web-2", discoveryv1.AddressTypeIPv6, []string{"fd00:11::1"}
	return s
}

// TestPlanExportFamilies exports the addresses of both versions of IP that other clusters reach. Of the others the
// ServiceExport has a message.
func TestPlanExportFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, row := range []struct {
		name     string
		change   func(*View)
		want     string
		families []corev1.IPFamily
		left     string
	}{
		{name: "Pods without podCIDRs", change: func(v *View) { v.Config.EndpointIPType = config.EndpointIPTypePodIP },
			want: "10.11.0.1 fd00:11::1", families: []corev1.IPFamily{v4, v6}},
		{name: "Pods with podCIDRs of both", change: func(v *View) {
			v.Config.EndpointIPType, v.Config.PodCIDRs = config.EndpointIPTypePodIP, []string{"10.11.0.0/16", "fd00:11::/56"}
		}, want: "10.11.0.1 fd00:11::1", families: []corev1.IPFamily{v4, v6}},
		{name: "Pods with podCIDRs of IPv4", change: func(v *View) {
			v.Config.EndpointIPType, v.Config.PodCIDRs = config.EndpointIPTypePodIP, []string{"10.11.0.0/16"}
		}, want: "10.11.0.1", families: []corev1.IPFamily{v4}, left: "; IPv6 addresses " +
			"of its Pods are left out, since podCIDRs in the member controller's configuration has no range of IPv6: add " +
			"the range there"},
		{name: "a headless Service, with podCIDRs of IPv6", change: func(v *View) {
			v.Config.PodCIDRs = []string{"fd00:11::/56"}
			for _, s := range v.EndpointSlices {
				s.Labels[corev1.IsHeadlessService] = ""
			}
			v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "None", []string{"None"}
		}, want: "fd00:11::1", families: []corev1.IPFamily{v6}, left: "; IPv4 addresses " +
			"of its Pods are left out, since podCIDRs in the member controller's configuration has no range of IPv4: add " +
			"the range there"},
		{name: "ClusterIPs", change: func(*View) {}, want: "10.97.0.10 fd00:97::10", families: []corev1.IPFamily{v4, v6}},
		{name: "ClusterIPs, and no endpoint of IPv6 is ready", change: func(v *View) {
			v.EndpointSlices[1].Endpoints[0].Conditions.Ready = ptr.To(false)
		}, want: "10.97.0.10", families: []corev1.IPFamily{v4, v6}},
		{name: "ClusterIPs, and an agent does not carry IPv6", change: func(v *View) {
			v.Reports = []*tombolov1alpha1.NodePolicyReport{{ObjectMeta: meta("", "node-1")}}
		}, want: "10.97.0.10", families: []corev1.IPFamily{v4}, left: "; ClusterIP fd00:97::10 is left out, since not all " +
			"agents of this cluster report that they carry IPv6 between clusters: see the Event IPv6NotCarried of a Node"},
		{name: "Pods, and an agent does not carry IPv6", change: func(v *View) {
			v.Config.EndpointIPType = config.EndpointIPTypePodIP
			v.Reports = []*tombolov1alpha1.NodePolicyReport{{ObjectMeta: meta("", "node-1")}}
		}, want: "10.11.0.1", families: []corev1.IPFamily{v4}, left: "; IPv6 addresses of its Pods are left out, since not " +
			"all agents of this cluster report that they carry IPv6 between clusters: see the Event IPv6NotCarried of a Node"},
		{name: "ClusterIPs, of which one range is configured", change: func(v *View) {
			v.ConfiguredCIDRs = "10.97.0.0/16"
		}, want: "10.97.0.10", families: []corev1.IPFamily{v4}, left: "; ClusterIP " +
			"fd00:97::10 is outside of the Service ranges that this cluster announces, [10.97.0.0/16], so other clusters do " +
			"not reach it: make the Service again with a clusterIP of these, add its range to the cluster by a ServiceCIDR, " +
			"or add it to serviceCIDR in the member controller's configuration"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			v.ServiceCIDRs = serviceCIDRs("10.97.0.0/16,fd00:97::/112")
			v.Services[0].Spec.ClusterIPs = []string{"10.97.0.10", "fd00:97::10"}
			v.Services[0].Spec.IPFamilies = []corev1.IPFamily{v4, v6}
			v.EndpointSlices = append(v.EndpointSlices, webSlice6())
			row.change(&v)
			withOwnExports(&v)
			d, _ := Plan(v)
			var have []string
			var facts *exportcheck.ServiceFacts
			for _, re := range d.ResourceExports {
				switch {
				case re.Spec.Endpoints != nil:
					for _, s := range re.Spec.Endpoints.Subsets {
						for _, a := range s.Addresses {
							have = append(have, a.IP)
						}
					}
				case re.Spec.Service != nil:
					var err error
					if facts, err = exportcheck.ReadServiceFacts(re.Annotations[multicluster.AnnotationService]); err != nil {
						t.Fatal(err)
					}
				}
			}
			expect(t, "endpoints", strings.Join(have, " "), row.want)
			expect(t, "ipFamilies", facts.IPFamilies, row.families)
			message := d.ServiceExports[0].Status.Conditions[0].Message
			expect(t, "message", message, "The Service is exported successfully"+row.left)
		})
	}
}

// saying gives the export these conditions, such as "Valid False/ServiceNotFound". The text omits True and a reason
// that equals the type.
func saying(list ...string) func(*View) {
	return func(v *View) {
		for _, text := range list {
			text, reason, _ := strings.Cut(text, "/")
			kind, status, ok := strings.Cut(text, " ")
			if !ok {
				status = "True"
			}
			v.ServiceExports[0].Status.Conditions = append(v.ServiceExports[0].Status.Conditions,
				metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason})
		}
	}
}

// serviceCIDRs are objects with these ranges. A text has the ranges of an object, separated by commas.
func serviceCIDRs(texts ...string) (out []*networkingv1.ServiceCIDR) {
	for i, text := range texts {
		out = append(out, &networkingv1.ServiceCIDR{ObjectMeta: meta("", fmt.Sprint("range-", i)),
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: strings.Split(text, ",")}})
	}
	return out
}

// conditionText is a condition's status and reason.
func conditionText(se *mcsv1alpha1.ServiceExport, kind string) string {
	c := apimeta.FindStatusCondition(se.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// rename gives the Service a name of some length.
func rename(v *View, length int) {
	name := strings.Repeat("n", length)
	v.Services[0].Name, v.ServiceExports[0].Name = name, name
	v.EndpointSlices[0].Labels[discoveryv1.LabelServiceName] = name
}

// TestPlanLeft lets a cluster leave its ClusterSet. Its exports do not stay ready. An export without conditions of this
// controller is left alone.
func TestPlanLeft(t *testing.T) {
	for _, row := range []struct {
		name string
		has  []string
		want string
	}{
		{"exported, with a conflict", []string{"Valid/Succeed", "Ready/Exported", "Conflict/PortConflict"},
			"Unknown NoClusterSet, False Failed, False NoConflicts"},
		{"of an earlier version, without the newer conditions", []string{"Valid/Succeed"},
			"Unknown NoClusterSet, False Failed, False NoConflicts"},
		{"not exported", []string{"Valid False/ServiceNotFound", "Ready False/Failed", "Conflict False/NoConflicts"},
			"Unknown NoClusterSet, False Failed, False NoConflicts"},
		{"never spoken of", nil, ""},
		{"another implementation's", []string{"Valid/Valid", "Ready/Exported", "Conflict/PortConflict"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			v.ClusterSets, v.Leader = nil, Leader{}
			saying(row.has...)(&v)
			d, _ := Plan(v)
			have := ""
			for _, se := range d.ServiceExports {
				have = strings.Join([]string{conditionText(se, "Valid"), conditionText(se, "Ready"), conditionText(se, "Conflict")},
					", ")
			}
			expect(t, "conditions", have, row.want)
			if row.want == "" {
				expect(t, "writes", writeTexts(d.Change.Local), []string(nil))
				return
			}
			expect(t, "writes", writeTexts(d.Change.Local), []string{"update the status of ServiceExport default/web"})
			v.ServiceExports = d.ServiceExports
			d, _ = Plan(v)
			expect(t, "writes once they are written", writeTexts(d.Change.Local), []string(nil))
		})
	}
}

// TestPlanConflictOfAnotherLeader lets a leader refuse an export while other ports are imported. Antrea's leader gives
// no reason, so that is a conflict. If a leader gives a reason, the reason counts.
func TestPlanConflictOfAnotherLeader(t *testing.T) {
	for _, row := range []struct {
		name, reason, message string
		port                  int32 // that is imported
		want                  string
	}{
		{"Antrea's, other ports", "ConvergeFailure", "ResourceExport can't be converged to ResourceImport",
			81, "True PortConflict"},
		{"Antrea's, the same ports", "ConvergeFailure", "ResourceExport can't be converged to ResourceImport",
			80, "False NoConflicts"},
		{"ours, of a cluster that is not announced", "MemberNotAnnounced",
			exportcheck.Refused + "cluster east is not a member", 81, "False NoConflicts"},
		{"ours, of an export that is wrong", "ConvergeFailure", exportcheck.Refused + "spec.service is missing",
			81, "False NoConflicts"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			withOwnExports(&v)
			ri := importOf("default", "web")
			ri.Spec.ServiceImport.Spec.Ports = []mcsv1alpha1.ServicePort{
				{Name: "http", Protocol: corev1.ProtocolTCP, Port: row.port}}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{ri}
			for _, re := range v.Leader.ResourceExports {
				if re.Spec.Kind == "Service" {
					re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{
						Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, Reason: row.reason, Message: row.message}}
				}
			}
			d, _ := Plan(v)
			expect(t, "Conflict", conditionText(d.ServiceExports[0], "Conflict"), row.want)
			expect(t, "Ready", conditionText(d.ServiceExports[0], "Ready"), "False Failed")
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
	expect(t, "subsets by ClusterIP", endpoints.Spec.Endpoints.Subsets, []services.Subset{{
		Addresses: []services.Address{{IP: "10.97.0.10"}},
		Ports:     []services.Port{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}})

	v.Config.EndpointIPType = config.EndpointIPTypePodIP
	d, _ = Plan(v)
	expect(t, "subsets by Pod address, each once", d.ResourceExports[1].Spec.Endpoints.Subsets, []services.Subset{{
		Addresses: []services.Address{{IP: "10.11.0.1"}, {IP: "10.11.0.3"}},
		Ports:     []services.Port{{Name: "http", Port: 8080, Protocol: corev1.ProtocolTCP}}}})

	// If no other endpoint is ready, endpoints that end but still answer count.
	v.EndpointSlices = []*discoveryv1.EndpointSlice{ending(webSlice(true, false))}
	d, _ = Plan(v)
	expect(t, "one is ready", d.ResourceExports[1].Spec.Endpoints.Subsets[0].Addresses,
		[]services.Address{{IP: "10.11.0.1"}})
	v.EndpointSlices = []*discoveryv1.EndpointSlice{ending(webSlice(false, false))}
	d, _ = Plan(v)
	expect(t, "all end", d.ResourceExports[1].Spec.Endpoints.Subsets[0].Addresses,
		[]services.Address{{IP: "10.11.0.1"}, {IP: "10.11.0.2"}})
	v.Config.EndpointIPType = config.EndpointIPTypeClusterIP
	for _, row := range []struct {
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		{[]*discoveryv1.EndpointSlice{ending(webSlice(true, false, true, false))}, "2"},
		{[]*discoveryv1.EndpointSlice{ending(webSlice(false, false, false))}, "3"},
	} {
		v.EndpointSlices = row.slices
		d, _ = Plan(v)
		expect(t, "endpoints behind the ClusterIP",
			d.ResourceExports[1].Annotations["multicluster.tombolo.io/ready-endpoints"], row.want)
	}
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
	const serviceExport, endpointsExport = "ResourceExport antrea-multicluster/east-a-b-c-service",
		"ResourceExport antrea-multicluster/east-a-b-c-endpoints"
	d, _ = Plan(v)
	expect(t, "hand over", writeTexts(d.Change.Leader), []string{"delete " + endpointsExport, "delete " + serviceExport})
	expect(t, "reason", d.ServiceExports[0].Status.Conditions[0].Message,
		"ResourceExport name east-a-b-c-service is still taken by Service a-b/c, "+
			"which is not exported any more: wait until the leader has removed that ResourceExport")
	for _, re := range v.Leader.ResourceExports {
		re.DeletionTimestamp = &metav1.Time{Time: now}
	}
	d, _ = Plan(v)
	expect(t, "while the leader holds them", writeTexts(d.Change.Leader), []string(nil))
	v.Leader.ResourceExports = nil
	d, _ = Plan(v)
	expect(t, "when they are gone", writeTexts(d.Change.Leader),
		[]string{"create " + endpointsExport, "create " + serviceExport})
	withOwnExports(&v)
	d, _ = Plan(v)
	expect(t, "in the end", writeTexts(d.Change.Leader), []string(nil))
	expect(t, "reason", d.ServiceExports[0].Status.Conditions[0].Reason, "Succeed")
}

func TestPlanReportsWhatTheLeaderRefuses(t *testing.T) {
	v := exportingView()
	withOwnExports(&v)
	v.Leader.ResourceExports[0].Status.Conditions = []mcv1alpha1.ResourceExportCondition{{
		Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, Reason: "ConvergeFailure",
		Message: "ports differ"}}
	_, ps := Plan(v)
	expect(t, "problems", problems(ps), []string{"ServiceExport default/web: ConvergeFailure"})
}

// TestPlanReportsWhatTheLeaderLeavesOut has a leader that imports only some of a Service's endpoints. The Service
// counts as exported.
func TestPlanReportsWhatTheLeaderLeavesOut(t *testing.T) {
	v := exportingView()
	withOwnExports(&v)
	for _, re := range v.Leader.ResourceExports {
		if re.Spec.Kind == "Endpoints" {
			re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportSucceeded,
				Status: corev1.ConditionTrue, Reason: mcv1alpha1.ReasonEndpointsLeftOut, Message: "fd00:96::10 is in another"}}
		}
	}
	d, ps := Plan(v)
	expect(t, "problems", problems(ps), []string{"ServiceExport default/web: EndpointsLeftOut"})
	expect(t, "Ready", conditionText(d.ServiceExports[0], "Ready"), "True Exported")
	expect(t, "Conflict", conditionText(d.ServiceExports[0], "Conflict"), "False NoConflicts")
	if m := d.ServiceExports[0].Status.Conditions[0].Message; !strings.HasSuffix(m, "; fd00:96::10 is in another") {
		t.Errorf("the message is %q, without the leader's", m)
	}
}

func TestPlanIsDoneWhenApplied(t *testing.T) {
	v := exportingView()
	v.Nodes = []*corev1.Node{node("node-1", "192.168.78.101")}
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
		endpointsOf("default", "db", "10.98.0.7")}
	d, _ := Plan(v)
	if c := d.Change; len(c.Local) == 0 || len(c.Leader) != 3 {
		t.Fatalf("first change: %v", c)
	}
	// The view now has the state of the API servers after the writes.
	v.ClusterSets = []*mcv1alpha2.ClusterSet{d.ClusterSet}
	v.Gateways, v.Leader.ResourceExports = d.Gateways, d.ResourceExports
	v.Services, v.Endpoints = append(v.Services, d.Services...), d.Endpoints
	v.Services[1].Spec.ClusterIP = "10.97.0.99"
	v.Services[1].Spec.Ports[0].TargetPort.IntVal = 80 // defaulted
	d, _ = Plan(v)
	v.ServiceImports, v.ServiceExports, v.EndpointSlices = d.ServiceImports, d.ServiceExports,
		append(v.EndpointSlices, d.EndpointSlices...)
	expect(t, "ServiceImport", d.ServiceImports[0].Spec.IPs, []string{"10.97.0.99"})
	v.Now = v.Now.Add(time.Second)
	d, ps := Plan(v)
	expect(t, "problems", problems(ps), []string(nil))
	if c := d.Change; len(c.Local)+len(c.Leader) != 0 {
		t.Errorf("there is still a change: %v", c)
	}
}

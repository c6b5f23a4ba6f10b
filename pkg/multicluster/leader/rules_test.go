package leader

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
)

// endpoints returns the export of Endpoints with one address, next to the cluster's export of the Service.
func endpoints(cluster, namespace, name, address string) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster, Namespace: namespace,
		Name: name, Kind: multicluster.EndpointsKind,
		Endpoints: &mcv1alpha1.EndpointsExport{
			Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address}}}}}}}
	re.Name = multicluster.ResourceExportName(cluster, namespace, name, multicluster.EndpointsSuffix)
	re.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	re.Finalizers = []string{multicluster.ResourceExportFinalizer}
	return re
}

func clusterInfo(cluster, cidr string) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster,
		Kind:        multicluster.ClusterInfoKind,
		ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: cluster, ServiceCIDR: cidr}}}
	re.Name = cluster + multicluster.ClusterInfoSuffix
	re.Finalizers = []string{multicluster.ResourceExportFinalizer}
	return re
}

func without(change func(*mcv1alpha1.ResourceExport), re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
	change(re)
	return re
}

// announced are the announcements of members.
func announced(ids ...string) []*mcv1alpha1.MemberClusterAnnounce {
	var out []*mcv1alpha1.MemberClusterAnnounce
	for _, id := range ids {
		a := announcedBy("", id, 48*time.Hour)
		a.Annotations = nil
		a.Finalizers = []string{announceFinalizer(a)}
		out = append(out, a)
	}
	return out
}

// reported returns a plan's imports and conditions, one on each line, as a reader of the Common Area sees them.
func reported(d Desired) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(d.Imports)) {
		ri := d.Imports[name]
		line := fmt.Sprintf("%s of %s/%s", name, ri.Spec.Namespace, ri.Spec.Name)
		switch {
		case ri.Spec.ServiceImport != nil:
			line += " " + specText(ri)
		case ri.Spec.Endpoints != nil:
			for _, s := range ri.Spec.Endpoints.Subsets {
				line += " " + s.Addresses[0].IP
				for _, p := range s.Ports {
					line += fmt.Sprintf(":%s:%d", p.Name, p.Port)
				}
			}
		case ri.Spec.ClusterInfo != nil:
			line += " " + ri.Spec.ClusterInfo.ServiceCIDR
		}
		for _, s := range ri.Status.ClusterStatuses {
			line += " +" + s.ClusterID
		}
		lines = append(lines, line)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Conditions)) {
		switch c := d.Conditions[name]; {
		case c.Type == mcv1alpha1.ResourceExportFailure:
			lines = append(lines,
				name+" fails: "+strings.TrimPrefix(c.Message, "the ResourceExport cannot be converged to a ResourceImport: "))
		case c.Reason != "":
			lines = append(lines, name+" "+c.Reason)
		}
	}
	for _, name := range d.ReleaseExports {
		lines = append(lines, name+" is released")
	}
	return lines
}

// specText returns an import's spec of its Service as text, without defaults.
func specText(ri *mcv1alpha1.ResourceImport) string {
	s := ri.Spec.ServiceImport.Spec
	text := portsText(s.Ports)
	if s.Type != mcsv1alpha1.ClusterSetIP {
		text += " " + string(s.Type)
	}
	if s.SessionAffinity == corev1.ServiceAffinityClientIP {
		text += " ClientIP"
	}
	if s.SessionAffinityConfig != nil {
		text += fmt.Sprintf(" %ds", *s.SessionAffinityConfig.ClientIP.TimeoutSeconds)
	}
	if s.InternalTrafficPolicy != nil {
		text += " " + string(*s.InternalTrafficPolicy)
	}
	if s.TrafficDistribution != nil {
		text += " " + *s.TrafficDistribution
	}
	if len(s.IPFamilies) > 0 {
		text += fmt.Sprint(" ", s.IPFamilies)
	}
	for i, key := range requests.Keys {
		if value, ok := ri.Annotations[key]; ok {
			text += []string{" goes ", " ", " "}[i] + value
		}
	}
	return text + ri.Annotations[multicluster.AnnotationExported]
}

// TestRules has rows of earlier imports and present exports. Each row has the content of the Common Area that follows.
func TestRules(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	east80, west81 := service("east", "default", "web", time.Hour, 80), service("west", "default", "web", time.Minute, 81)
	for _, row := range []struct {
		name        string
		before, now exports
		want        []string
	}{
		{name: "nothing"},
		{name: "one cluster", now: exports{east80, endpoints("east", "default", "web", "10.96.0.1")}, want: []string{
			"default-web-endpoints of default/web 10.96.0.1 +east",
			"default-web-service of default/web [TCP/80] +east"}},
		{name: "two clusters' addresses, in the order of their IDs", now: exports{
			service("west", "default", "web", time.Hour, 80), endpoints("west", "default", "web", "10.97.0.1"),
			service("east", "default", "web", time.Minute, 80), endpoints("east", "default", "web", "10.96.0.1")},
			want: []string{
				"default-web-endpoints of default/web 10.96.0.1 10.97.0.1 +east +west",
				"default-web-service of default/web [TCP/80] +east +west"}},
		{name: "a port that another one has the name of is not imported", now: exports{
			east80, endpoints("east", "default", "web", "10.96.0.1"), west81, endpoints("west", "default", "web", "10.97.0.1")},
			want: []string{
				"default-web-endpoints of default/web 10.96.0.1 +east +west",
				"default-web-service of default/web [TCP/80] +east +west",
				"east-default-web-service PortConflict", "west-default-web-service PortConflict"}},
		{name: "an older export came back", before: exports{west81}, now: exports{east80, west81}, want: []string{
			"default-web-service of default/web [TCP/80] +east +west",
			"east-default-web-service PortConflict", "west-default-web-service PortConflict"}},
		{name: "the sole exporter changes ports", before: exports{service("east", "default", "web", time.Hour, 8080)},
			now: exports{east80}, want: []string{
				"default-web-service of default/web [TCP/80] +east"}},
		{name: "the older of two changes ports", before: exports{service("east", "default", "web", time.Hour, 81), west81},
			now: exports{east80, west81}, want: []string{
				"default-web-service of default/web [TCP/80] +east +west",
				"east-default-web-service PortConflict", "west-default-web-service PortConflict"}},
		{name: "the winner leaves, the loser takes over", before: exports{east80, west81},
			now: exports{leaving(service("east", "default", "web", time.Hour, 80)), west81}, want: []string{
				"default-web-service of default/web [TCP/81] +west",
				"east-default-web-service is released"}},
		{name: "two Services whose names run together",
			now: exports{service("east", "a-b", "c", time.Hour, 80), service("west", "a", "b-c", time.Minute, 80),
				endpoints("west", "a", "b-c", "10.97.0.1")}, want: []string{
				"a-b-c-service of a-b/c [TCP/80] +east",
				"west-a-b-c-endpoints fails: the Service export of cluster west has not been converged",
				"west-a-b-c-service fails: Service a/b-c has the derived name of Service a-b/c, which is imported already; " +
					"rename one of the two Services"}},
		{name: "the imported one of two such stays", before: exports{service("west", "a", "b-c", time.Minute, 80)},
			now: exports{service("east", "a-b", "c", time.Hour, 80), service("west", "a", "b-c", time.Minute, 80)},
			want: []string{
				"a-b-c-service of a/b-c [TCP/80] +west",
				"east-a-b-c-service fails: Service a-b/c has the derived name of Service a/b-c, which is imported already; " +
					"rename one of the two Services"}},
		{name: "addresses without a Service", now: exports{endpoints("east", "default", "web", "10.96.0.1")}, want: []string{
			"east-default-web-endpoints fails: its Service is not exported by cluster east"}},
		{name: "addresses of a cluster whose Service is another's",
			now: exports{east80, endpoints("west", "default", "web", "10.97.0.1")}, want: []string{
				"default-web-service of default/web [TCP/80] +east",
				"west-default-web-endpoints fails: the Service export of cluster west has not been converged"}},
		{name: "no payload", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Service = nil },
				service("east", "default", "web", time.Hour, 80)),
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterInfo = nil }, clusterInfo("east", ""))}, want: []string{
			"east-clusterinfo fails: spec.clusterInfo is missing",
			"east-default-web-service fails: spec.service is missing"}},
		{name: "no ports, which no import can have", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Service.ServiceSpec.Ports = nil },
				service("east", "default", "web", time.Hour, 80)), west81}, want: []string{
			"default-web-service of default/web [TCP/81] +west",
			"east-default-web-service fails: spec.service.serviceSpec.ports is empty; export a Service that has ports"}},
		{name: "a protocol left out is TCP", now: exports{east80,
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Service.ServiceSpec.Ports[0].Protocol = "" },
				service("west", "default", "web", time.Minute, 80))}, want: []string{
			"default-web-service of default/web [TCP/80] +east +west"}},
		{name: "addresses go before the Service", before: exports{east80, endpoints("east", "default", "web", "10.96.0.1")},
			now: exports{east80, leaving(endpoints("east", "default", "web", "10.96.0.1"))}, want: []string{
				"default-web-service of default/web [TCP/80] +east",
				"east-default-web-endpoints is released"}},
		{name: "an endpoint that no API server accepts stays out, the others' go on", now: exports{
			east80, endpoints("east", "default", "web", "127.0.0.1"),
			service("west", "default", "web", time.Minute, 80), endpoints("west", "default", "web", "10.97.0.1")},
			want: []string{
				"default-web-endpoints of default/web 10.97.0.1 +west",
				"default-web-service of default/web [TCP/80] +east +west",
				"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 127.0.0.1 is a loopback address: " +
					"expected the unicast address of a Service or a Pod"}},
		{name: "a port that no API server accepts", now: exports{
			service("east", "default", "web", time.Hour, 0), endpoints("east", "default", "web", "10.96.0.1"),
			service("west", "default", "web", time.Minute, 80), endpoints("west", "default", "web", "10.97.0.1")},
			want: []string{
				"default-web-endpoints of default/web 10.97.0.1 +west",
				"default-web-service of default/web [TCP/80] +west",
				"east-default-web-endpoints fails: the Service export of cluster east has not been converged",
				"east-default-web-service fails: spec.service.serviceSpec.ports[0].port: 0 is not a port number: expected 1 to " +
					"65535"}},
		{name: "an endpoint outside of the announced ranges",
			now: exports{withPods(clusterInfo("east", "10.96.0.0/16"), "10.10.0.0/16"),
				east80, endpoints("east", "default", "web", "10.97.0.1")}, want: []string{
				"default-web-service of default/web [TCP/80] +east",
				"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
				"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.97.0.1 is outside of the ranges " +
					"that its cluster announces: expected an address of 10.96.0.0/16 or 10.10.0.0/16"}},
		{name: "a Pod's address of a cluster that announces no Pod ranges",
			now: exports{clusterInfo("east", "10.96.0.0/16"), clusterInfo("west", "10.97.0.0/16"),
				east80, endpoints("east", "default", "web", "10.10.3.4")}, want: []string{ // TestEndpointsOutside
				"default-web-service of default/web [TCP/80] +east",
				"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
				"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
				"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.10.3.4 is outside of all ranges " +
					"that clusters announce (if it is in a network that all clusters reach, list that in annotation " +
					"endpoints.multicluster.antrea.io/east of the leader's ClusterSet; else set podCIDRs in the member controller's " +
					"configuration of cluster east): expected an address of the exporting cluster"}},
		{name: "another cluster's address, of a cluster that announces no Pod ranges",
			now: exports{clusterInfo("east", "10.96.0.0/16"), clusterInfo("west", "10.97.0.0/16"),
				east80, endpoints("east", "default", "web", "10.97.0.1")}, want: []string{
				"default-web-service of default/web [TCP/80] +east",
				"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
				"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
				"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.97.0.1 is in a range of cluster " +
					"west: expected an address of the exporting cluster"}},
		{name: "another cluster's address of IPv6", now: exports{clusterInfo("east", "10.96.0.0/16"),
			without(func(re *mcv1alpha1.ResourceExport) {
				re.Spec.ClusterInfo.ServiceCIDRs = []string{"10.97.0.0/16", "fd00:97::/112"}
			}, clusterInfo("west", "10.97.0.0/16")),
			east80, endpoints("east", "default", "web", "fd00:97::1")}, want: []string{
			"default-web-service of default/web [TCP/80] +east",
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
			"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
			"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: fd00:97::1 is in a range of cluster " +
				"west: expected an address of the exporting cluster"}},
		{name: "an address of IPv6 outside of the announced ranges", now: exports{
			withPods(clusterInfo("east", "10.96.0.0/16"), "fd00:10::/56"),
			east80, endpoints("east", "default", "web", "fd00:11::1")}, want: []string{
			"default-web-service of default/web [TCP/80] +east",
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
			"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: fd00:11::1 is outside of the ranges " +
				"that its cluster announces: expected an address of 10.96.0.0/16 or fd00:10::/56"}},
		{name: "a Pod range that is another's does not open others", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) { re.CreationTimestamp = metav1.NewTime(noon) },
				withPods(clusterInfo("east", "10.96.0.0/16"), "10.97.0.0/16")),
			clusterInfo("west", "10.97.0.0/16"),
			east80, endpoints("east", "default", "web", "10.10.3.4")}, want: []string{
			"default-web-service of default/web [TCP/80] +east",
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
			"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
			"east-clusterinfo fails: spec.clusterInfo.podCIDRs[0]: Pod range 10.97.0.0/16 of cluster east overlaps the " +
				"Service range 10.97.0.0/16 of cluster west, which has it already: use other addresses, or release it there first",
			"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.10.3.4 is outside of the ranges " +
				"that its cluster announces: expected an address of 10.96.0.0/16"}},
		{name: "a Pod's address in PodIP mode", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterInfo.PodCIDRs = []string{"10.10.0.0/16"} },
				clusterInfo("east", "10.96.0.0/16")),
			east80, endpoints("east", "default", "web", "10.10.3.4")}, want: []string{
			"default-web-endpoints of default/web 10.10.3.4 +east",
			"default-web-service of default/web [TCP/80] +east",
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east"}},
		{name: "a Pod's address of a cluster that encrypts and has no Pod ranges", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) {
				re.Spec.ClusterInfo.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "key"}
			}, clusterInfo("east", "10.96.0.0/16")),
			east80, endpoints("east", "default", "web", "10.10.3.4")}, want: []string{
			"default-web-service of default/web [TCP/80] +east",
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
			"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.10.3.4 is outside of the ranges " +
				"that its cluster announces: expected an address of 10.96.0.0/16"}},
		{name: "another cluster's address, of a cluster that announces no ranges",
			now: exports{clusterInfo("west", "10.97.0.0/16"),
				east80, endpoints("east", "default", "web", "10.97.0.1")}, want: []string{
				"default-web-service of default/web [TCP/80] +east",
				"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
				"east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.97.0.1 is in a range of cluster " +
					"west: expected an address of the exporting cluster"}},
		{name: "a name that is none", now: exports{service("east", "default", "we.b", time.Hour, 80)}, want: []string{
			"east-default-we.b-service fails: spec.name: \"we.b\": must not contain dots"}},
		{name: "a cluster's network", now: exports{clusterInfo("east", "10.96.0.0/16")}, want: []string{
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east"}},
		{name: "a Gateway is gone", before: exports{clusterInfo("east", "10.96.0.0/16")},
			now: exports{leaving(clusterInfo("east", "10.96.0.0/16"))}, want: []string{
				"east-clusterinfo is released"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			members := announced("east", "west")
			old, _ := Plan(View{Namespace: "area", Now: noon, Announces: members, ResourceExports: row.before})
			now := View{Namespace: "area", Now: noon, Announces: members, ResourceExports: row.now,
				ResourceImports: slices.Collect(maps.Values(old.Imports))}
			have, problems := Plan(now)
			if diff := cmp.Diff(row.want, reported(have)); diff != "" || len(problems) > 0 {
				t.Errorf("problems %v; want, have:\n%s", problems, diff)
			}
			now.ResourceImports = slices.Collect(maps.Values(have.Imports))
			if again, _ := Plan(now); !slices.Equal(reported(again), reported(have)) {
				t.Errorf("planned again with the imports written:\n%s", cmp.Diff(reported(have), reported(again)))
			}
		})
	}
}

// TestJointEndpoints keeps the joint Endpoints of many exporters small enough for an API server. The older exporters
// stay in them.
func TestJointEndpoints(t *testing.T) {
	v := View{Namespace: "area", Now: noon}
	for c := range 12 {
		id := fmt.Sprintf("c%02d", c)
		v.Announces = append(v.Announces, announced(id)...)
		re := endpoints(id, "default", "web", "")
		re.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(c) * time.Second))
		addresses := make([]corev1.EndpointAddress, exportcheck.MaxImportEndpoints/10)
		for i := range addresses {
			addresses[i].IP = fmt.Sprintf("10.%d.%d.%d", c+1, i/250, i%250+1)
		}
		re.Spec.Endpoints.Subsets[0].Addresses = addresses
		v.ResourceExports = append(v.ResourceExports, service(id, "default", "web", time.Hour, 80), re)
	}
	d, _ := Plan(v)
	joint := d.Imports["default-web-endpoints"].Spec.Endpoints.Subsets
	if n := exportcheck.Count(joint); n != exportcheck.MaxImportEndpoints {
		t.Errorf("%d joint endpoints, want %d", n, exportcheck.MaxImportEndpoints)
	}
	for c := range 12 {
		name := fmt.Sprintf("c%02d-default-web-endpoints", c)
		if have := d.Conditions[name].Type == mcv1alpha1.ResourceExportSucceeded; have != (c < 10) {
			t.Errorf("%s: %+v", name, d.Conditions[name])
		}
	}
}

// TestRefusedImports reports the reason of a refusal on the exports of the refused import, and on no others.
func TestRefusedImports(t *testing.T) {
	v := View{Namespace: "area", Now: noon, Announces: announced("east"),
		Refused: map[string]string{"default-web-endpoints": "too many", "east-clusterinfo": "not here"},
		ResourceExports: []*mcv1alpha1.ResourceExport{
			service("east", "default", "web", time.Hour, 80), endpoints("east", "default", "web", "10.96.0.1"),
			clusterInfo("east", "10.96.0.0/16")}}
	d, _ := Plan(v)
	if diff := cmp.Diff([]string{
		"default-web-endpoints of default/web 10.96.0.1 +east",
		"default-web-service of default/web [TCP/80] +east",
		"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
		"east-clusterinfo fails: not here",
		"east-default-web-endpoints fails: too many",
	}, reported(d)); diff != "" {
		t.Error(diff)
	}
	for _, re := range v.ResourceExports {
		if c, ok := d.Conditions[re.Name]; ok {
			re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{c}
		}
	}
	v.Refused = nil
	d, _ = Plan(v)
	for _, re := range v.ResourceExports {
		if c := d.Conditions[re.Name]; c.Type != mcv1alpha1.ResourceExportSucceeded {
			t.Errorf("%s when its import is written: %+v, want Succeeded", re.Name, c)
		}
	}
}

// TestSilentExports writes no condition to an export of a Tombolo member that is imported as a whole. All other exports
// have one: exports with a fault or a contradiction, exports that have a condition, and exports of Antrea's members.
func TestSilentExports(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	facts := func(re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
		re.Annotations = map[string]string{multicluster.AnnotationService: (&exportcheck.ServiceFacts{Created: 1}).String()}
		return re
	}
	failed := func(re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
		re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{failure(reasonFailed, "a fault that has ended")}
		return re
	}
	web := func(id string, port int32) *mcv1alpha1.ResourceExport {
		return service(id, "default", "web", time.Hour, port)
	}
	addresses := func(id, ip string) *mcv1alpha1.ResourceExport { return endpoints(id, "default", "web", ip) }
	for _, row := range []struct {
		name string
		now  exports
		want []string
	}{
		{name: "a Tombolo member's", now: exports{facts(web("east", 80)), addresses("east", "10.96.0.1")}},
		{name: "of two Tombolo members", now: exports{facts(web("east", 80)), addresses("east", "10.96.0.1"),
			facts(web("west", 80)), addresses("west", "10.97.0.1")}},
		{name: "Antrea's member's", now: exports{web("east", 80), addresses("east", "10.96.0.1")}, want: []string{
			"east-default-web-endpoints Succeeded", "east-default-web-service Succeeded"}},
		{name: "of both", now: exports{web("east", 80), addresses("east", "10.96.0.1"), facts(web("west", 80)),
			addresses("west", "10.97.0.1")}, want: []string{
			"east-default-web-endpoints Succeeded", "east-default-web-service Succeeded"}},
		{name: "after a fault", now: exports{failed(facts(web("east", 80))), failed(addresses("east", "10.96.0.1"))},
			want: []string{"east-default-web-endpoints Succeeded", "east-default-web-service Succeeded"}},
		{name: "a contradiction", now: exports{facts(web("east", 80)), addresses("east", "10.96.0.1"),
			facts(web("west", 81)), addresses("west", "10.97.0.1")}, want: []string{
			"east-default-web-service Succeeded PortConflict", "west-default-web-service Succeeded PortConflict"}},
		{name: "some endpoints", now: exports{facts(web("east", 80)), clusterInfo("east", "10.96.0.0/16"),
			withAddress(addresses("east", "10.96.0.1"), "10.99.0.1")}, want: []string{
			"east-default-web-endpoints Succeeded EndpointsLeftOut"}},
		{name: "Endpoints alone", now: exports{addresses("east", "10.96.0.1")}, want: []string{
			"east-default-web-endpoints Failure ConvergeFailure"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east", "west"), ResourceExports: row.now})
			var have []string
			for _, name := range slices.Sorted(maps.Keys(d.Conditions)) {
				c := d.Conditions[name]
				have = append(have, strings.TrimSpace(fmt.Sprintf("%s %s %s", name, c.Type, c.Reason)))
			}
			if diff := cmp.Diff(row.want, have); diff != "" {
				t.Errorf("conditions (-want +have):\n%s", diff)
			}
		})
	}
}

// TestConditionTimes keeps the time of a condition that stays. It also reports when a cluster's network is valid again.
func TestConditionTimes(t *testing.T) {
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	stays, turns, info := service("east", "default", "web", time.Hour, 80),
		service("west", "default", "web", time.Minute, 80), clusterInfo("east", "10.96.0.0/16")
	stays.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportSucceeded,
		Status: corev1.ConditionTrue, LastTransitionTime: earlier}}
	turns.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportFailure,
		Status: corev1.ConditionFalse, LastTransitionTime: earlier}}
	info.Status.Conditions = turns.Status.Conditions
	d, _ := Plan(View{Now: noon, Announces: announced("east", "west"),
		ResourceExports: []*mcv1alpha1.ResourceExport{stays, turns, info}})
	for name, want := range map[string]time.Time{stays.Name: earlier.Time, turns.Name: noon, info.Name: noon} {
		if c := d.Conditions[name]; c.Type != mcv1alpha1.ResourceExportSucceeded || !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s: %+v, want Succeeded since %s", name, c, want)
		}
	}
}

func set(name, clusterID string, leaders ...string) *mcv1alpha2.ClusterSet {
	s := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: clusterID}}
	for _, id := range leaders {
		s.Spec.Leaders = append(s.Spec.Leaders, mcv1alpha2.LeaderClusterInfo{ClusterID: id})
	}
	return s
}

// TestClusterSetStatus has members by when they were last seen.
func TestClusterSetStatus(t *testing.T) {
	for _, row := range []struct {
		name string
		seen map[string]time.Duration // ago
		want string
	}{
		{"nobody has joined", nil, "0/0 Unknown NoReadyCluster No member cluster has joined"},
		{"all are there", map[string]time.Duration{"east": time.Second, "west": 29 * time.Second},
			"2/2 True  ; east True Connected; west True Connected"},
		{"one is silent", map[string]time.Duration{"east": time.Second, "west": 31 * time.Second},
			"1/2 False ClustersDisconnected Disconnected: west; east True Connected; west False Disconnected"},
		{"all are silent", map[string]time.Duration{"east": time.Hour},
			"0/1 False NoReadyCluster No member cluster is connected; east False Disconnected"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := View{Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{set("set", "north", "north")},
				Seen: map[string]Sighting{}}
			for id, ago := range row.seen {
				a := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)},
					ClusterID: id}
				v.Announces, v.Seen[a.Name] = append(v.Announces, a),
					Sighting{First: noon.Add(-2 * time.Hour), Changed: noon.Add(-ago), Touched: noon.Add(-ago)}
			}
			d, problems := Plan(v)
			if len(problems) > 0 || d.ClusterSet == nil {
				t.Fatalf("problems %v, ClusterSet %v", problems, d.ClusterSet)
			}
			status := func(s mcv1alpha2.ClusterSetStatus) string {
				c := s.Conditions[0]
				text := fmt.Sprintf("%d/%d %s %s %s", s.ReadyClusters, s.TotalClusters, c.Status, c.Reason, c.Message)
				for _, m := range s.ClusterStatuses {
					text += fmt.Sprintf("; %s %s %s", m.ClusterID, m.Conditions[0].Status, m.Conditions[0].Reason)
				}
				return text
			}
			if have := status(d.ClusterSet.Status); have != row.want {
				t.Errorf("have %q\nwant %q", have, row.want)
			}
			// Later, with nothing new, nothing changes: neither times nor messages.
			v.ClusterSets, v.Now = []*mcv1alpha2.ClusterSet{d.ClusterSet}, noon.Add(time.Nanosecond)
			later, _ := Plan(v)
			if diff := cmp.Diff(d.ClusterSet.Status, later.ClusterSet.Status); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestClusterSetID reads the cluster's ID from a claim of either version if the ClusterSet has no ID.
func TestClusterSetID(t *testing.T) {
	claim := func(name, claimName string) []*mcv1alpha2.ClusterClaim {
		return []*mcv1alpha2.ClusterClaim{{ObjectMeta: metav1.ObjectMeta{Name: name}, ClaimName: claimName, Value: "north"}}
	}
	for _, row := range []struct {
		name    string
		sets    []*mcv1alpha2.ClusterSet
		claims  []*mcv1alpha2.ClusterClaim
		id      string // empty: nothing is written
		problem string
	}{
		{"its own", []*mcv1alpha2.ClusterSet{set("set", "north", "north")}, nil, "north", ""},
		{"of a claim", []*mcv1alpha2.ClusterSet{set("set", "", "north")}, claim("id.k8s.io", ""), "north", ""},
		{"of a claim of v1alpha1", []*mcv1alpha2.ClusterSet{set("set", "", "north")}, claim("north-id", "id.k8s.io"),
			"north", ""},
		{"of no claim", []*mcv1alpha2.ClusterSet{set("set", "", "north")}, claim("clusterset.k8s.io", ""), "",
			"ClusterIDMissing"},
		{"of a member", []*mcv1alpha2.ClusterSet{set("set", "east", "north")}, nil, "", "NotLeader"},
		{"no leader", []*mcv1alpha2.ClusterSet{set("set", "east")}, nil, "", "NotLeader"},
		{"two sets", []*mcv1alpha2.ClusterSet{set("a", "north", "north"), set("b", "north", "north")}, nil, "north",
			"MultipleClusterSets"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, problems := Plan(View{Now: noon, ClusterSets: row.sets, ClusterClaims: row.claims})
			id, reason := "", ""
			if d.ClusterSet != nil {
				id = d.ClusterSet.Spec.ClusterID
			}
			if len(problems) > 0 {
				reason = problems[0].Reason.String()
			}
			if id != row.id || reason != row.problem || len(problems) > 1 {
				t.Errorf("ID %q, problems %v; want %q, %q", id, problems, row.id, row.problem)
			}
		})
	}
}

// TestExpiry removes members after a day without a heartbeat, with any clock of the members, and with any number of
// restarts of the leader.
func TestExpiry(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for _, row := range []struct {
		name         string
		touched      time.Duration // by its own clock, ago; never if it is 0
		seen         Sighting
		disconnected time.Duration // how long ago by the ClusterSet's status; 0 if the member is connected
		want         bool
	}{
		{name: "touched", touched: time.Second, seen: Sighting{First: ago(time.Hour), Touched: ago(time.Second)}},
		{name: "silent for a day", touched: 25 * time.Hour,
			seen: Sighting{First: ago(48 * time.Hour), Touched: ago(25 * time.Hour)}, want: true},
		{name: "clock behind by two days, alive", touched: 48 * time.Hour,
			seen: Sighting{First: ago(time.Hour), Touched: ago(time.Second)}},
		{name: "clock behind by two days, the leader has just started", touched: 48 * time.Hour,
			seen: Sighting{First: ago(time.Minute)}},
		{name: "silent for a day, the leader has just started", touched: 25 * time.Hour,
			seen: Sighting{First: ago(time.Minute)}},
		{name: "silent for a day, the leader started ten minutes ago", touched: 25 * time.Hour,
			seen: Sighting{First: ago(10 * time.Minute)}, want: true},
		{name: "silent for a day, not disconnected for as long", touched: 25 * time.Hour,
			seen: Sighting{First: ago(10 * time.Minute)}, disconnected: time.Minute, want: true},
		{name: "silent for an hour", touched: time.Hour, seen: Sighting{First: ago(10 * time.Minute)},
			disconnected: time.Hour},
		{name: "clock ahead by two days, silent for a day", touched: -24 * time.Hour,
			seen: Sighting{First: ago(48 * time.Hour), Touched: ago(25 * time.Hour)}, want: true},
		{name: "clock ahead by two days, silent since before the leader started", touched: -24 * time.Hour,
			seen: Sighting{First: ago(25 * time.Hour)}, want: true},
		{name: "clock ahead by two days, disconnected for a day, the leader started ten minutes ago",
			touched: -24 * time.Hour,
			seen:    Sighting{First: ago(10 * time.Minute)}, disconnected: 25 * time.Hour, want: true},
		{name: "clock ahead by two days, alive", touched: -48 * time.Hour,
			seen: Sighting{First: ago(10 * time.Minute), Touched: ago(time.Second)}},
		{name: "never touched", seen: Sighting{First: ago(time.Hour)}, want: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := announced("east")[0]
			if row.touched != 0 {
				a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: ago(row.touched).Format(time.RFC3339)}
			}
			cs := set("set", "north", "north")
			if row.disconnected != 0 {
				cs.Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: "east",
					Conditions: []mcv1alpha2.ClusterCondition{{
						Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionFalse,
						LastTransitionTime: metav1.NewTime(ago(row.disconnected))}}}}
			}
			row.seen.Changed = row.seen.First
			d, _ := Plan(View{Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{cs},
				Announces: []*mcv1alpha1.MemberClusterAnnounce{a}, Seen: map[string]Sighting{a.Name: row.seen}})
			if have := len(d.DeleteAnnounces) == 1; have != row.want {
				t.Errorf("removed %v, want %v", have, row.want)
			}
			// Over a restart of the leader a member stays disconnected until it is seen alive.
			if row.disconnected != 0 {
				if c := d.ClusterSet.Status.ClusterStatuses[0].Conditions[0]; c.Status != corev1.ConditionFalse ||
					!c.LastTransitionTime.Time.Equal(ago(row.disconnected)) {
					t.Errorf("condition %+v, want it disconnected as before", c)
				}
			}
		})
	}
}

// TestSighting reads announcements one after the other.
func TestSighting(t *testing.T) {
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	var s sighting
	for _, step := range []struct {
		name                    string
		minute                  int
		uid, version, touched   string
		first, changed, touches int // minute; -1 for never
	}{
		{"first seen", 0, "1", "1", "once", 0, 0, -1},
		{"unchanged", 1, "1", "1", "once", 0, 0, -1},
		{"the leader adds its finalizer", 2, "1", "2", "once", 0, 2, -1},
		{"touched", 3, "1", "3", "twice", 0, 3, 3},
		{"unchanged again", 4, "1", "3", "twice", 0, 3, 3},
		{"deleted and announced again between two looks", 5, "2", "9", "twice", 5, 5, -1},
	} {
		s.see(announce{UID: types.UID(step.uid), Version: step.version, Touched: step.touched}, at(step.minute))
		want := Sighting{First: at(step.first), Changed: at(step.changed)}
		if step.touches >= 0 {
			want.Touched = at(step.touches)
		}
		if s.Sighting != want {
			t.Errorf("%s: %+v, want %+v", step.name, s.Sighting, want)
		}
	}
}

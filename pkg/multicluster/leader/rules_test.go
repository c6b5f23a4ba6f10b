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

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// endpoints is what a cluster exports next to its Service, with one address.
func endpoints(cluster, namespace, name, address string) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster, Namespace: namespace, Name: name, Kind: multicluster.EndpointsKind,
		Endpoints: &mcv1alpha1.EndpointsExport{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address}}}}}}}
	re.Name = multicluster.ResourceExportName(cluster, namespace, name, multicluster.EndpointsSuffix)
	re.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	re.Finalizers = []string{multicluster.ResourceExportFinalizer}
	return re
}

func clusterInfo(cluster, cidr string) *mcv1alpha1.ResourceExport {
	re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: cluster, Kind: multicluster.ClusterInfoKind,
		ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: cluster, ServiceCIDR: cidr}}}
	re.Name = cluster + multicluster.ClusterInfoSuffix
	re.Finalizers = []string{multicluster.ResourceExportFinalizer}
	return re
}

func without(change func(*mcv1alpha1.ResourceExport), re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
	change(re)
	return re
}

// told is a plan's imports and conditions, a line each: what a reader of the Common Area sees.
func reported(d Desired) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(d.Imports)) {
		ri := d.Imports[name]
		line := fmt.Sprintf("%s of %s/%s", name, ri.Spec.Namespace, ri.Spec.Name)
		switch {
		case ri.Spec.ServiceImport != nil:
			line += " " + portsText(ri.Spec.ServiceImport.Spec.Ports)
		case ri.Spec.Endpoints != nil:
			for _, s := range ri.Spec.Endpoints.Subsets {
				line += " " + s.Addresses[0].IP
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
		if c := d.Conditions[name]; c.Type == mcv1alpha1.ResourceExportFailure {
			lines = append(lines, name+" fails: "+strings.TrimPrefix(c.Message, "the ResourceExport cannot be converged to a ResourceImport: "))
		}
	}
	for _, name := range d.ReleaseExports {
		lines = append(lines, name+" is let go")
	}
	return lines
}

// TestRules reads: with what was imported before, and what is exported now, the Common Area
// tells this.
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
			service("east", "default", "web", time.Minute, 80), endpoints("east", "default", "web", "10.96.0.1")}, want: []string{
			"default-web-endpoints of default/web 10.96.0.1 10.97.0.1 +east +west",
			"default-web-service of default/web [TCP/80] +east +west"}},
		{name: "who disagrees about ports stays out with its addresses", now: exports{
			east80, endpoints("east", "default", "web", "10.96.0.1"), west81, endpoints("west", "default", "web", "10.97.0.1")}, want: []string{
			"default-web-endpoints of default/web 10.96.0.1 +east",
			"default-web-service of default/web [TCP/80] +east",
			"west-default-web-endpoints fails: the Service export of cluster west has not been converged",
			"west-default-web-service fails: ports [TCP/81] differ from [TCP/80] as exported by cluster east; make the Services' ports equal (name, protocol, number, order)"}},
		{name: "who is imported stays, although an older export came back", before: exports{west81}, now: exports{east80, west81}, want: []string{
			"default-web-service of default/web [TCP/81] +west",
			"east-default-web-service fails: ports [TCP/80] differ from [TCP/81] as exported by cluster west; make the Services' ports equal (name, protocol, number, order)"}},
		{name: "the sole exporter changes ports", before: exports{service("east", "default", "web", time.Hour, 8080)}, now: exports{east80}, want: []string{
			"default-web-service of default/web [TCP/80] +east"}},
		{name: "one of two changes ports and drops out", before: exports{service("east", "default", "web", time.Hour, 81), west81},
			now: exports{east80, west81}, want: []string{
				"default-web-service of default/web [TCP/81] +west",
				"east-default-web-service fails: ports [TCP/80] differ from [TCP/81] as exported by cluster west; make the Services' ports equal (name, protocol, number, order)"}},
		{name: "the winner leaves, the loser takes over", before: exports{east80, west81}, now: exports{leaving(service("east", "default", "web", time.Hour, 80)), west81}, want: []string{
			"default-web-service of default/web [TCP/81] +west",
			"east-default-web-service is let go"}},
		{name: "two Services whose names run together", now: exports{service("east", "a-b", "c", time.Hour, 80), service("west", "a", "b-c", time.Minute, 80), endpoints("west", "a", "b-c", "10.97.0.1")}, want: []string{
			"a-b-c-service of a-b/c [TCP/80] +east",
			"west-a-b-c-endpoints fails: the Service export of cluster west has not been converged",
			"west-a-b-c-service fails: Service a/b-c has the derived name of Service a-b/c, which is imported already; rename one of the two Services"}},
		{name: "the imported one of two such stays", before: exports{service("west", "a", "b-c", time.Minute, 80)},
			now: exports{service("east", "a-b", "c", time.Hour, 80), service("west", "a", "b-c", time.Minute, 80)}, want: []string{
				"a-b-c-service of a/b-c [TCP/80] +west",
				"east-a-b-c-service fails: Service a-b/c has the derived name of Service a/b-c, which is imported already; rename one of the two Services"}},
		{name: "addresses without a Service", now: exports{endpoints("east", "default", "web", "10.96.0.1")}, want: []string{
			"east-default-web-endpoints fails: its Service is not exported by cluster east"}},
		{name: "addresses of a cluster whose Service is another's", now: exports{east80, endpoints("west", "default", "web", "10.97.0.1")}, want: []string{
			"default-web-service of default/web [TCP/80] +east",
			"west-default-web-endpoints fails: the Service export of cluster west has not been converged"}},
		{name: "no payload", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Service = nil }, service("east", "default", "web", time.Hour, 80)),
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterInfo = nil }, clusterInfo("east", ""))}, want: []string{
			"east-clusterinfo fails: spec.clusterInfo is missing",
			"east-default-web-service fails: spec.service is missing"}},
		{name: "no ports, which no import can have", now: exports{
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Service.ServiceSpec.Ports = nil }, service("east", "default", "web", time.Hour, 80)), west81}, want: []string{
			"default-web-service of default/web [TCP/81] +west",
			"east-default-web-service fails: spec.service.serviceSpec.ports is empty; export a Service that has ports"}},
		{name: "a protocol left out is TCP", now: exports{east80,
			without(func(re *mcv1alpha1.ResourceExport) { re.Spec.Service.ServiceSpec.Ports[0].Protocol = "" }, service("west", "default", "web", time.Minute, 80))}, want: []string{
			"default-web-service of default/web [TCP/80] +east +west"}},
		{name: "addresses go before the Service", before: exports{east80, endpoints("east", "default", "web", "10.96.0.1")},
			now: exports{east80, leaving(endpoints("east", "default", "web", "10.96.0.1"))}, want: []string{
				"default-web-service of default/web [TCP/80] +east",
				"east-default-web-endpoints is let go"}},
		{name: "a cluster's network", now: exports{clusterInfo("east", "10.96.0.0/16")}, want: []string{
			"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east"}},
		{name: "a Gateway is gone", before: exports{clusterInfo("east", "10.96.0.0/16")}, now: exports{leaving(clusterInfo("east", "10.96.0.0/16"))}, want: []string{
			"east-clusterinfo is let go"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			old, _ := Plan(View{Namespace: "area", Now: noon, ResourceExports: row.before})
			now := View{Namespace: "area", Now: noon, ResourceExports: row.now, ResourceImports: slices.Collect(maps.Values(old.Imports))}
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

// TestRefusedImports tells why on the exports of an import that cannot be written, and on no
// others.
func TestRefusedImports(t *testing.T) {
	v := View{Namespace: "area", Now: noon, Refused: map[string]string{"default-web-endpoints": "too many", "east-clusterinfo": "not here"},
		ResourceExports: []*mcv1alpha1.ResourceExport{
			service("east", "default", "web", time.Hour, 80), endpoints("east", "default", "web", "10.96.0.1"), clusterInfo("east", "10.96.0.0/16")}}
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

// TestConditionTimes keeps the time of a condition that stays, and tells a cluster's network
// that is well again so.
func TestConditionTimes(t *testing.T) {
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	stays, turns, info := service("east", "default", "web", time.Hour, 80), service("west", "default", "web", time.Minute, 80), clusterInfo("east", "10.96.0.0/16")
	stays.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportSucceeded, Status: corev1.ConditionTrue, LastTransitionTime: earlier}}
	turns.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, LastTransitionTime: earlier}}
	info.Status.Conditions = turns.Status.Conditions
	d, _ := Plan(View{Now: noon, ResourceExports: []*mcv1alpha1.ResourceExport{stays, turns, info}})
	for name, want := range map[string]time.Time{stays.Name: earlier.Time, turns.Name: noon, info.Name: noon} {
		if c := d.Conditions[name]; c.Type != mcv1alpha1.ResourceExportSucceeded || !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s: %+v, want Succeeded since %s", name, c, want)
		}
	}
}

func set(name, clusterID string, leaders ...string) *mcv1alpha2.ClusterSet {
	s := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name}, Spec: mcv1alpha2.ClusterSetSpec{ClusterID: clusterID}}
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
		{"all are there", map[string]time.Duration{"east": time.Second, "west": 29 * time.Second}, "2/2 True  ; east True Connected; west True Connected"},
		{"one is silent", map[string]time.Duration{"east": time.Second, "west": 31 * time.Second}, "1/2 False ClustersDisconnected Disconnected: west; east True Connected; west False Disconnected"},
		{"all are silent", map[string]time.Duration{"east": time.Hour}, "0/1 False NoReadyCluster No member cluster is connected; east False Disconnected"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := View{Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{set("set", "north", "north")}, Seen: map[string]time.Time{}}
			for id, ago := range row.seen {
				a := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)}, ClusterID: id}
				v.Announces, v.Seen[a.Name] = append(v.Announces, a), noon.Add(-ago)
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

// TestClusterSetID reads the cluster's ID from a claim of either version where the set has none.
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
		{"of a claim of v1alpha1", []*mcv1alpha2.ClusterSet{set("set", "", "north")}, claim("north-id", "id.k8s.io"), "north", ""},
		{"of no claim", []*mcv1alpha2.ClusterSet{set("set", "", "north")}, claim("clusterset.k8s.io", ""), "", "ClusterIDMissing"},
		{"of a member", []*mcv1alpha2.ClusterSet{set("set", "east", "north")}, nil, "", "NotLeader"},
		{"no leader", []*mcv1alpha2.ClusterSet{set("set", "east")}, nil, "", "NotLeader"},
		{"two sets", []*mcv1alpha2.ClusterSet{set("a", "north", "north"), set("b", "north", "north")}, nil, "north", "MultipleClusterSets"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, problems := Plan(View{Now: noon, ClusterSets: row.sets, ClusterClaims: row.claims})
			id, reason := "", ""
			if d.ClusterSet != nil {
				id = d.ClusterSet.Spec.ClusterID
			}
			if len(problems) > 0 {
				reason = problems[0].Reason
			}
			if id != row.id || reason != row.problem || len(problems) > 1 {
				t.Errorf("ID %q, problems %v; want %q, %q", id, problems, row.id, row.problem)
			}
		})
	}
}

// TestExpiry removes members after a day of silence, whatever their clocks say.
func TestExpiry(t *testing.T) {
	for _, row := range []struct {
		name                   string
		created, touched, seen time.Duration // ago
		want                   bool
	}{
		{"touched", 48 * time.Hour, time.Second, time.Second, false},
		{"silent for a day", 48 * time.Hour, 25 * time.Hour, 25 * time.Hour, true},
		{"alive with a clock that is two days late", 72 * time.Hour, 48 * time.Hour, time.Second, false},
		{"silent, its clock was two days early", 48 * time.Hour, -24 * time.Hour, 25 * time.Hour, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := &mcv1alpha1.MemberClusterAnnounce{ClusterID: "east"}
			a.Name, a.CreationTimestamp = multicluster.AnnounceName("east"), metav1.NewTime(noon.Add(-row.created))
			a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: noon.Add(-row.touched).Format(time.RFC3339)}
			d, _ := Plan(View{Now: noon, Announces: []*mcv1alpha1.MemberClusterAnnounce{a}, Seen: map[string]time.Time{a.Name: noon.Add(-row.seen)}})
			if have := len(d.DeleteAnnounces) == 1; have != row.want {
				t.Errorf("removed %v, want %v", have, row.want)
			}
		})
	}
}

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
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// TestClaims lets members announce ranges and gateways of other members.
func TestClaims(t *testing.T) {
	network := func(cluster, cidr, gateway string, age time.Duration) *mcv1alpha1.ResourceExport {
		re := clusterInfo(cluster, cidr)
		re.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		re.Spec.ClusterInfo.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: gateway}}
		return re
	}
	also := func(re *mcv1alpha1.ResourceExport, services, pods []string) *mcv1alpha1.ResourceExport {
		re = re.DeepCopy()
		info := re.Spec.ClusterInfo
		info.ServiceCIDRs, info.PodCIDRs = append([]string{info.ServiceCIDR}, services...), pods
		return re
	}
	type exports = []*mcv1alpha1.ResourceExport
	east, west := network("east", "10.96.0.0/16", "192.0.2.1", time.Hour),
		network("west", "10.97.0.0/16", "192.0.2.2", time.Minute)
	const both = "east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east"
	for _, row := range []struct {
		name        string
		pins        map[string]string
		before, now exports
		want        []string
	}{
		{name: "the older export has the range, whatever the IDs",
			now: exports{west, network("attacker", "10.97.0.0/24", "192.0.2.9", 0)}, want: []string{
				"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
				"attacker-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.97.0.0/24 of cluster attacker " +
					"overlaps the Service range 10.97.0.0/16 of cluster west, which has it already: use other addresses, or release " +
					"it there first"}},
		{name: "an old member's update takes nothing from a newer one", before: exports{east, west},
			now: exports{network("east", "10.96.0.0/15", "192.0.2.1", time.Hour), west}, want: []string{
				both, "west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
				"east-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.96.0.0/15 of cluster east overlaps the " +
					"Service range 10.97.0.0/16 of cluster west, which has it already: use other " +
					"addresses, or release it there first"}},
		{name: "another's gateway", now: exports{east, network("west", "10.97.0.0/16", "192.0.2.1", 0)}, want: []string{both,
			"west-clusterinfo fails: spec.clusterInfo.gatewayInfos[0].gatewayIP: gateway 192.0.2.1 of cluster west overlaps " +
				"the gateway 192.0.2.1 of cluster east, which has it already: use other addresses, or release it there first"}},
		{name: "another's range and Pods in IPv6, of clusters that have both", now: exports{
			also(east, []string{"fd00:96::/112"}, []string{"fd00:10::/56"}),
			also(network("west", "10.97.0.0/16", "192.0.2.2", time.Minute), []string{"fd00:96::/116"},
				[]string{"fd00:10:0:1::/64", "fd00:11::/56"})}, want: []string{both,
			"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
			"west-clusterinfo fails: spec.clusterInfo.serviceCIDRs[1]: Service range fd00:96::/116 of cluster west overlaps " +
				"the Service range fd00:96::/112 of cluster east, which has it already: use other addresses, or release it " +
				"there first; spec.clusterInfo.podCIDRs[0]: Pod range fd00:10:0:1::/64 of cluster west overlaps the Pod range " +
				"fd00:10::/56 of cluster east, which has it already: use other addresses, or release it there first"}},
		{name: "a member that leaves releases its range", before: exports{east},
			now: exports{leaving(network("east", "10.96.0.0/16", "192.0.2.1", time.Hour)),
				network("west", "10.96.0.0/16", "192.0.2.2", 0)}, want: []string{
				"west-clusterinfo of area/west-clusterinfo 10.96.0.0/16 +west", "east-clusterinfo is released"}},
		{name: "another cluster's ID",
			now: exports{east, without(func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterInfo.ClusterID = "east" },
				network("west", "10.97.0.0/16", "192.0.2.2", 0))}, want: []string{both,
				`west-clusterinfo fails: spec.clusterInfo.clusterID is "east": expected "west", as in spec.clusterID`}},
		{name: "a second description",
			now: exports{east, without(func(re *mcv1alpha1.ResourceExport) { re.Name = "another" },
				network("east", "10.98.0.0/16", "192.0.2.3", 0))}, want: []string{both,
				"another fails: another ResourceExport describes cluster east already; delete one of them"}},
		{name: "pinned", pins: map[string]string{multicluster.AnnotationRangesPrefix + "west": "10.97.0.0/16"},
			now: exports{east, network("west", "10.99.0.0/16", "192.0.2.2", 0)}, want: []string{both,
				"west-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.99.0.0/16 is not among the addresses " +
					"that cluster west may announce: correct it there, or annotation ranges.multicluster.antrea.io/west of the " +
					"leader's ClusterSet"}},
		{name: "a kind that nobody processes",
			now: exports{without(func(re *mcv1alpha1.ResourceExport) { re.Name, re.Spec.Kind = "entity", "ExternalEntity" },
				network("east", "", "", 0))}, want: []string{
				`entity fails: spec.kind: "ExternalEntity" is not processed by this version: delete the ResourceExport, or turn ` +
					`off in cluster east what makes it`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := set("set", "north", "north")
			s.Annotations = row.pins
			view := func(re exports) View {
				return View{Namespace: "area", Now: noon, Announces: announced("attacker", "east", "west"), ResourceExports: re,
					ClusterSets: []*mcv1alpha2.ClusterSet{s}}
			}
			old, _ := Plan(view(row.before))
			now := view(row.now)
			now.ResourceImports = slices.Collect(maps.Values(old.Imports))
			have, _ := Plan(now)
			if diff := cmp.Diff(row.want, reported(have)); diff != "" {
				t.Errorf("want, have:\n%s", diff)
			}
			now.ResourceImports = slices.Collect(maps.Values(have.Imports))
			if again, _ := Plan(now); !slices.Equal(reported(again), reported(have)) {
				t.Errorf("planned again with the imports written:\n%s", cmp.Diff(reported(have), reported(again)))
			}
		})
	}
}

// TestFeatures passes on the features that a member announces, including features that this version does not have. It
// reports the features that are left out.
func TestFeatures(t *testing.T) {
	re := clusterInfo("east", "10.96.0.0/16")
	re.Spec.ClusterInfo.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "192.0.2.1"}, {GatewayIP: "192.0.2.2"}}
	re.Spec.ClusterInfo.Features = []string{mcv1alpha1.FeatureActiveGateways, "Tomorrow", "not one"}
	re.Annotations = map[string]string{multicluster.AnnotationReached: "west,south", "other": "x"}
	have, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east"),
		ResourceExports: []*mcv1alpha1.ResourceExport{re},
		ClusterSets:     []*mcv1alpha2.ClusterSet{set("set", "north", "north")}})
	want := []string{"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
		"east-clusterinfo fails: spec.clusterInfo.features: the entry at index 2 is not the name of a feature: expected at " +
			"most 63 letters, digits, '-', '_' and '.'"}
	if diff := cmp.Diff(want, reported(have)); diff != "" {
		t.Errorf("want, have:\n%s", diff)
	}
	for _, ri := range have.Imports {
		info := ri.Spec.ClusterInfo
		if !slices.Equal(info.Features, []string{mcv1alpha1.FeatureActiveGateways, "Tomorrow"}) ||
			len(info.GatewayInfos) != 2 {
			t.Errorf("have %v with gateways %v", info.Features, info.GatewayInfos)
		}
		if diff := cmp.Diff(map[string]string{multicluster.AnnotationReached: "west,south"}, ri.Annotations); diff != "" {
			t.Errorf("annotations, want, have:\n%s", diff)
		}
	}
}

// TestReached leaves out a list of clusters that is too long, and nothing else.
func TestReached(t *testing.T) {
	re := clusterInfo("east", "10.96.0.0/16")
	re.Annotations = map[string]string{multicluster.AnnotationReached: strings.Repeat("west,", 4000)}
	have, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east"),
		ResourceExports: []*mcv1alpha1.ResourceExport{re},
		ClusterSets:     []*mcv1alpha2.ClusterSet{set("set", "north", "north")}})
	want := []string{"east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east",
		"east-clusterinfo fails: metadata.annotations[multicluster.tombolo.io/reached]: has 20000 bytes: expected at most " +
			"16384"}
	if diff := cmp.Diff(want, reported(have)); diff != "" {
		t.Errorf("want, have:\n%s", diff)
	}
	for _, ri := range have.Imports {
		if len(ri.Annotations) > 0 {
			t.Errorf("handed on are %d bytes", len(ri.Annotations[multicluster.AnnotationReached]))
		}
	}
}

// TestWithdrawnClaim lets a member withdraw its ClusterInfo while a rival waits for its range.
func TestWithdrawnClaim(t *testing.T) {
	info := func(re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceImport {
		ri := &mcv1alpha1.ResourceImport{}
		ri.Name, ri.Spec = re.Name, mcv1alpha1.ResourceImportSpec{Kind: multicluster.ClusterInfoKind,
			ClusterInfo: re.Spec.ClusterInfo}
		return ri
	}
	west, rival := clusterInfo("west", "10.97.0.0/16"), clusterInfo("rival", "10.97.0.0/24")
	area := newArea()
	for _, step := range []struct {
		name    string
		at      time.Duration
		members []string
		exports []*mcv1alpha1.ResourceExport
		imports []*mcv1alpha1.ResourceImport
		want    string // the import that has the range
	}{
		{"west has it", 0, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{west, rival},
			[]*mcv1alpha1.ResourceImport{info(west)}, "west-clusterinfo"},
		{"withdrawn, and still imported", time.Second, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival},
			[]*mcv1alpha1.ResourceImport{info(west)}, ""},
		{"withdrawn", time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, nil, ""},
		{"announced again", 2 * time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival, west}, nil,
			"west-clusterinfo"},
		{"imported again", 2 * time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival, west},
			[]*mcv1alpha1.ResourceImport{info(west)}, "west-clusterinfo"},
		{"withdrawn again", 3 * time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, nil, ""},
		{"withdrawn for long", time.Hour, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, nil,
			"rival-clusterinfo"},
		{"imported once more", time.Hour, []string{"west"}, []*mcv1alpha1.ResourceExport{west},
			[]*mcv1alpha1.ResourceImport{info(west)}, "west-clusterinfo"},
		{"a member that leaves gives it up at once", time.Hour, []string{"rival"}, []*mcv1alpha1.ResourceExport{rival}, nil,
			"rival-clusterinfo"},
	} {
		d := area.is(View{Namespace: "area", Now: noon.Add(step.at), Announces: announced(step.members...),
			ResourceExports: step.exports, ResourceImports: step.imports})
		var have string
		for name, ri := range d.Imports {
			if ri.Spec.Kind == multicluster.ClusterInfoKind {
				have += name
			}
		}
		if have != step.want {
			t.Errorf("%s: %q has the range, want %q", step.name, have, step.want)
		}
	}
}

// TestFlatMember lets a new member announce a range that contains endpoints of a member without a ClusterInfo. Imported
// endpoints stay.
func TestFlatMember(t *testing.T) {
	type exports = []*mcv1alpha1.ResourceExport
	web := func(condition mcv1alpha1.ResourceExportConditionType) *mcv1alpha1.ResourceExport {
		re := endpoints("flat", "default", "web", "10.20.0.5")
		if condition != "" {
			re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: condition,
				LastTransitionTime: metav1.NewTime(noon)}}
		}
		return re
	}
	there := []*mcv1alpha1.ResourceImport{importedEndpoints("10.20.0.5", "flat")}
	network := func(cidr string, pods ...string) *mcv1alpha1.ResourceExport {
		re := clusterInfo("attacker", cidr)
		re.Spec.ClusterInfo.PodCIDRs = pods
		return re
	}
	held, services := importedInfo(network("10.20.0.0/16")), clusterInfo("flat", "10.98.0.0/16")
	const (
		imported = "default-web-endpoints of default/web 10.20.0.5 +flat"
		joint    = "default-web-service of default/web [TCP/80] +flat"
		thrown   = "flat-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.20.0.5 is in a range " +
			"of cluster attacker: expected an address of the exporting cluster"
		remedy = " of cluster attacker contains 10.20.0.5, which cluster flat exports as an endpoint already: use other " +
			"addresses, or pin the range to cluster attacker by annotation ranges.multicluster.antrea.io/attacker of the " +
			"leader's ClusterSet"
	)
	for _, row := range []struct {
		name    string
		pin     string
		imports []*mcv1alpha1.ResourceImport
		now     exports
		want    []string
	}{
		{name: "its endpoint is imported", imports: there,
			now: exports{web(mcv1alpha1.ResourceExportSucceeded), network("10.20.0.0/16")}, want: []string{imported, joint,
				"attacker-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.20.0.0/16" + remedy}},
		{name: "its endpoint is imported, and its export says that a write failed", imports: there,
			now: exports{web(mcv1alpha1.ResourceExportFailure), network("10.20.0.0/16")}, want: []string{imported, joint,
				"attacker-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.20.0.0/16" + remedy}},
		{name: "another's endpoint is imported",
			imports: []*mcv1alpha1.ResourceImport{importedEndpoints("10.20.0.5", "attacker")},
			now:     exports{web(""), network("10.20.0.0/16")}, want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.20.0.0/16 +attacker", joint, thrown}},
		{name: "a Pod range alone", imports: there,
			now: exports{web(mcv1alpha1.ResourceExportSucceeded), network("10.99.0.0/16", "10.0.0.0/8")}, want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.99.0.0/16 +attacker", imported, joint,
				"attacker-clusterinfo fails: spec.clusterInfo.podCIDRs[0]: Pod range 10.0.0.0/8" + remedy}},
		{name: "its endpoint is imported, and it announces a Service range alone",
			imports: append(there, importedInfo(services)),
			now:     exports{web(mcv1alpha1.ResourceExportSucceeded), services, network("10.20.0.0/16")},
			want: []string{imported, joint, "flat-clusterinfo of area/flat-clusterinfo 10.98.0.0/16 +flat",
				"attacker-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.20.0.0/16" + remedy}},
		{name: "its endpoint is new, and it announces a Service range alone",
			imports: []*mcv1alpha1.ResourceImport{importedInfo(services)},
			now:     exports{web(""), services, network("10.20.0.0/16")}, want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.20.0.0/16 +attacker", joint,
				"flat-clusterinfo of area/flat-clusterinfo 10.98.0.0/16 +flat", thrown}},
		{name: "another range", imports: there,
			now: exports{web(mcv1alpha1.ResourceExportSucceeded), network("10.21.0.0/16")}, want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.21.0.0/16 +attacker", imported, joint}},
		{name: "its endpoint is new", now: exports{web(""), network("10.20.0.0/16")}, want: []string{
			"attacker-clusterinfo of area/attacker-clusterinfo 10.20.0.0/16 +attacker", joint, thrown}},
		{name: "its endpoint has failed before", now: exports{web(mcv1alpha1.ResourceExportFailure), network("10.20.0.0/16")},
			want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.20.0.0/16 +attacker", joint, thrown}},
		{name: "the range is older", imports: []*mcv1alpha1.ResourceImport{held},
			now: exports{web(mcv1alpha1.ResourceExportSucceeded), network("10.20.0.0/16")}, want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.20.0.0/16 +attacker", joint, thrown}},
		{name: "the range is pinned", pin: "10.20.0.0/16", imports: there,
			now: exports{web(mcv1alpha1.ResourceExportSucceeded), network("10.20.0.0/16")}, want: []string{
				"attacker-clusterinfo of area/attacker-clusterinfo 10.20.0.0/16 +attacker", joint, thrown}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := set("set", "north", "north")
			if row.pin != "" {
				s.Annotations = map[string]string{multicluster.AnnotationRangesPrefix + "attacker": row.pin}
			}
			d, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("attacker", "flat"),
				ClusterSets:     []*mcv1alpha2.ClusterSet{s},
				ResourceExports: append(row.now, service("flat", "default", "web", time.Hour, 80)), ResourceImports: row.imports})
			if diff := cmp.Diff(row.want, reported(d)); diff != "" {
				t.Errorf("want, have:\n%s", diff)
			}
		})
	}
}

// TestEndpointsOutside lets a member export addresses outside of all clusters' ranges.
func TestEndpointsOutside(t *testing.T) {
	west := clusterInfo("west", "10.97.0.0/16")
	west.Spec.ClusterInfo.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "192.0.2.2"}}
	const (
		failed  = "flat-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: "
		outside = " is outside of all ranges that clusters announce (if it is in a network that all clusters reach, list " +
			"that in annotation endpoints.multicluster.antrea.io/flat of the leader's ClusterSet; else set podCIDRs in the " +
			"member controller's configuration of cluster flat): expected an address of the exporting cluster"
		gateway = "192.0.2.2 is a gateway of cluster west: expected an address of the exporting cluster"
	)
	grant := map[string]string{multicluster.AnnotationEndpointsPrefix + "flat": "172.16.0.0/12, 192.0.2.0/24"}
	services := clusterInfo("flat", "10.98.0.0/16")
	for _, row := range []struct {
		name, ip    string
		annotations map[string]string
		infos       []*mcv1alpha1.ResourceExport
		imported    bool // is it in the import?
		want        string
	}{
		{name: "nobody announces anything", ip: "172.30.0.10"},
		{name: "of a cluster without a ClusterInfo", ip: "172.30.0.10", infos: []*mcv1alpha1.ResourceExport{west},
			want: failed + "172.30.0.10" + outside},
		{name: "of a cluster with a Service range", ip: "172.30.0.10", infos: []*mcv1alpha1.ResourceExport{west, services},
			want: failed + "172.30.0.10" + outside},
		{name: "in its Service range", ip: "10.98.0.9", infos: []*mcv1alpha1.ResourceExport{west, services}},
		{name: "where the ClusterSet says so", ip: "172.30.0.10", annotations: grant,
			infos: []*mcv1alpha1.ResourceExport{west, services}},
		{name: "where it says so of another cluster", ip: "172.30.0.10",
			annotations: map[string]string{multicluster.AnnotationEndpointsPrefix + "west": "172.16.0.0/12"},
			infos:       []*mcv1alpha1.ResourceExport{west, services}, want: failed + "172.30.0.10" + outside},
		{name: "it was imported before", ip: "172.30.0.10", imported: true,
			infos: []*mcv1alpha1.ResourceExport{west, services}},
		{name: "a gateway", ip: "192.0.2.2", infos: []*mcv1alpha1.ResourceExport{west}, want: failed + gateway},
		{name: "a gateway, where the ClusterSet says so", ip: "192.0.2.2", annotations: grant,
			infos: []*mcv1alpha1.ResourceExport{west}, want: failed + gateway},
		{name: "it is imported, and another cluster announces a gateway there", ip: "192.0.2.2", imported: true,
			infos: []*mcv1alpha1.ResourceExport{west}},
		{name: "it is imported, and the gateway there is pinned", ip: "192.0.2.2", imported: true,
			annotations: map[string]string{multicluster.AnnotationGatewaysPrefix + "west": "192.0.2.2"},
			infos:       []*mcv1alpha1.ResourceExport{west}, want: failed + gateway},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := set("set", "north", "north")
			s.Annotations = row.annotations
			v := View{Namespace: "area", Now: noon, Announces: announced("flat", "west"),
				ClusterSets: []*mcv1alpha2.ClusterSet{s},
				ResourceExports: append(row.infos, service("flat", "default", "web", time.Hour, 80),
					endpoints("flat", "default", "web", row.ip))}
			if row.imported {
				v.ResourceImports = []*mcv1alpha1.ResourceImport{importedEndpoints(row.ip, "flat")}
			}
			d, _ := Plan(v)
			have := reported(d)
			if row.want != "" && !slices.Contains(have, row.want) {
				t.Errorf("have %q\nwant %q among them", have, row.want)
			}
			if imported := d.Imports["default-web-endpoints"] != nil; imported != (row.want == "") {
				t.Errorf("imported %v, want %v: %q", imported, row.want == "", have)
			}
		})
	}
}

// withAddress adds another address to exported Endpoints.
func withAddress(re *mcv1alpha1.ResourceExport, ip string) *mcv1alpha1.ResourceExport {
	list := &re.Spec.Endpoints.Subsets[0].Addresses
	*list = append(*list, corev1.EndpointAddress{IP: ip})
	return re
}

// TestEndpointsLeftOut exports addresses of both versions of IP. The address of IPv6 is not the cluster's, and the
// address of IPv4 is imported.
func TestEndpointsLeftOut(t *testing.T) {
	both := func(id, cidr, cidr6 string) *mcv1alpha1.ResourceExport {
		re := clusterInfo(id, cidr)
		re.Spec.ClusterInfo.ServiceCIDRs = []string{cidr, cidr6}
		return re
	}
	for _, row := range []struct {
		name        string
		annotations map[string]string
		infos       []*mcv1alpha1.ResourceExport
		ip, ip6     string
		why         string
	}{
		{name: "another cluster has its range", ip: "10.97.0.10", ip6: "fd00:96::10",
			infos: []*mcv1alpha1.ResourceExport{both("east", "10.96.0.0/16", "fd00:96::/112"),
				both("west", "10.97.0.0/16", "fd00:96::/112")},
			why: "fd00:96::10 is in a range of cluster east: expected an address of the exporting cluster"},
		{name: "the ClusterSet grants the network of IPv4", ip: "172.30.0.10", ip6: "fd30::10",
			annotations: map[string]string{multicluster.AnnotationEndpointsPrefix + "west": "172.16.0.0/12"},
			infos: []*mcv1alpha1.ResourceExport{clusterInfo("east", "10.96.0.0/16"),
				clusterInfo("west", "10.97.0.0/16")},
			why: "fd30::10 is outside of all ranges that clusters announce (if it is in a network that all clusters reach, " +
				"list that in annotation endpoints.multicluster.antrea.io/west of the leader's ClusterSet; else set podCIDRs in " +
				"the member controller's configuration of cluster west): expected an address of the exporting cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := set("set", "north", "north")
			s.Annotations = row.annotations
			export := withAddress(endpoints("west", "default", "web", row.ip), row.ip6)
			d, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east", "west"),
				ClusterSets:     []*mcv1alpha2.ClusterSet{s},
				ResourceExports: append(row.infos, service("west", "default", "web", time.Hour, 80), export),
				ResourceImports: []*mcv1alpha1.ResourceImport{importedEndpoints(row.ip, "west")}})
			ri := d.Imports["default-web-endpoints"]
			left := endpoints("west", "default", "web", row.ip).Spec.Endpoints.Subsets
			if ri == nil || fmt.Sprint(ri.Spec.Endpoints.Subsets) != fmt.Sprint(left) {
				t.Errorf("have %+v, want the endpoint %s", ri, row.ip)
			}
			want := "Succeeded EndpointsLeftOut only the other endpoints are imported: " +
				"spec.endpoints.subsets[0].addresses[1].ip: " + row.why
			if c := d.Conditions[export.Name]; fmt.Sprint(c.Type, " ", c.Reason, " ", c.Message) != want {
				t.Errorf("have condition %+v\nwant %s", c, want)
			}
		})
	}
}

// importedInfo is the import of a ClusterInfo.
func importedInfo(re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceImport {
	return newImport(derive.Object{Namespace: "area", Name: re.Name}, map[string]bool{re.Spec.ClusterID: true},
		mcv1alpha1.ResourceImportSpec{
			Namespace: "area", Name: re.Name, Kind: multicluster.ClusterInfoKind, ClusterInfo: re.Spec.ClusterInfo})
}

// importedEndpoints returns the import default/web with one address of some clusters. It has no status, as the leader
// creates it.
func importedEndpoints(ip string, from ...string) *mcv1alpha1.ResourceImport {
	ri := newImport(derive.Object{Namespace: "area", Name: "default-web-endpoints"}, nil, mcv1alpha1.ResourceImportSpec{
		Namespace: "default", Name: "web", Kind: multicluster.EndpointsKind,
		Endpoints: &mcv1alpha1.EndpointsImport{Subsets: endpoints("x", "default", "web", ip).Spec.Endpoints.Subsets},
	})
	var sources []exportcheck.Source
	for i, id := range from {
		sources = append(sources, exportcheck.Source{Cluster: id, Subsets: max(0, 1-i)})
	}
	ri.Annotations = map[string]string{multicluster.AnnotationSources: exportcheck.SourcesText(sources)}
	return ri
}

// withStatus returns an import that has the clusters in its status, as another implementation writes it.
func withStatus(ri *mcv1alpha1.ResourceImport) *mcv1alpha1.ResourceImport {
	from := clustersOf(ri)
	ri.Annotations = nil
	ri.Status = newImport(derive.Object{}, from, ri.Spec).Status
	return ri
}

// TestWithdrawnRange exports an address from a member whose Pods may be anywhere. The address is of a cluster that has
// withdrawn its ClusterInfo for a moment, as Antrea's members do when their Gateway moves.
func TestWithdrawnRange(t *testing.T) {
	const want = "east-default-web-endpoints fails: spec.endpoints.subsets[0].addresses[0].ip: 10.97.0.1 is in a range " +
		"of cluster west: expected an address of the exporting cluster"
	d, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east", "west"),
		Imported: map[string]*mcv1alpha1.ClusterInfo{"west": clusterInfo("west", "10.97.0.0/16").Spec.ClusterInfo},
		ResourceExports: []*mcv1alpha1.ResourceExport{clusterInfo("east", "10.96.0.0/16"),
			service("east", "default", "web", time.Hour, 80), endpoints("east", "default", "web", "10.97.0.1")}})
	if have := reported(d); !slices.Contains(have, want) {
		t.Errorf("have %q, want %q among them", have, want)
	}
}

// TestFlatMemberKeepsItsAddress has a member without Pod ranges. Its import is missing for a moment, or a write of the
// import is refused. Meanwhile a new member announces a range with its endpoint.
func TestFlatMemberKeepsItsAddress(t *testing.T) {
	there := importedEndpoints("10.20.0.5", "flat")
	t.Run("without a ClusterInfo", func(t *testing.T) { keepsItsAddress(t, there) })
	t.Run("with a Service range", func(t *testing.T) { keepsItsAddress(t, there, clusterInfo("flat", "10.99.0.0/16")) })
	t.Run("imported by another leader", func(t *testing.T) { keepsItsAddress(t, withStatus(there.DeepCopy())) })
}

// keepsItsAddress tests the member with these exports in addition to its Service. Its Endpoints are imported.
func keepsItsAddress(t *testing.T, there *mcv1alpha1.ResourceImport, infos ...*mcv1alpha1.ResourceExport) {
	type exports = []*mcv1alpha1.ResourceExport
	type imports = []*mcv1alpha1.ResourceImport
	rival, joint := clusterInfo("east", "10.20.0.0/16"), service("flat", "default", "web", time.Hour, 80)
	web, moved := endpoints("flat", "default", "web", "10.20.0.5"), endpoints("flat", "default", "web", "10.21.0.6")
	failed := web.DeepCopy()
	failed.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportFailure}}
	both := []string{"east", "flat"}
	area := newArea()
	for _, step := range []struct {
		name    string
		at      time.Duration
		members []string
		exports exports
		imports imports
		refused bool // is the newcomer's range?
	}{
		{"imported", 0, both, exports{joint, web, rival}, imports{there}, true},
		{"a write of its import has failed", time.Minute, both, exports{joint, failed, rival}, imports{there}, true},
		{"a write of its import fails for long", time.Hour, both, exports{joint, moved, rival}, imports{there}, true},
		{"imported again", 2 * time.Hour, both, exports{joint, web, rival}, imports{there}, true},
		{"without ready endpoints", 3 * time.Hour, both, exports{rival}, nil, true},
		{"for some minutes", 3*time.Hour + 9*time.Minute, both, exports{rival}, nil, true},
		{"ready again", 3*time.Hour + 9*time.Minute, both, exports{joint, web, rival}, imports{there}, true},
		{"without ready endpoints again", 4 * time.Hour, both, exports{rival}, nil, true},
		{"for long", 5 * time.Hour, both, exports{rival}, nil, false},
		{"imported once more", 6 * time.Hour, both, exports{joint, web, rival}, imports{there}, true},
		{"a member that leaves gives it up at once", 6 * time.Hour, []string{"east"}, exports{rival}, nil, false},
	} {
		if slices.Contains(step.members, "flat") {
			for _, info := range infos {
				step.exports, step.imports = append(step.exports, info), append(step.imports, importedInfo(info))
			}
		}
		d := area.is(View{Namespace: "area", Now: noon.Add(step.at), Announces: announced(step.members...),
			ResourceExports: step.exports, ResourceImports: step.imports})
		if accepted := d.Imports["east-clusterinfo"] != nil; accepted == step.refused {
			t.Errorf("%s: the newcomer's range is refused: %v, want %v", step.name, !accepted, step.refused)
		}
	}
	if n := len(area.clock.used) + len(area.clock.ending); n > 0 {
		t.Errorf("the clock keeps %d imports of which nothing is used", n)
	}
}

// TestUnreadablePin reports an annotation on the ClusterSet.
func TestUnreadablePin(t *testing.T) {
	s := set("set", "north", "north")
	s.Annotations = map[string]string{multicluster.AnnotationGatewaysPrefix + "east": "the gateway"}
	_, problems := Plan(View{Namespace: "area", Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{s}})
	if len(problems) == 0 || problems[0].Field != "metadata.annotations[gateways.multicluster.antrea.io/east]" ||
		problems[0].Kind != "ClusterSet" {
		t.Errorf("problems %v", problems)
	}
}

package leader

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// TestClaims has members announce ranges and gateways of others.
func TestClaims(t *testing.T) {
	network := func(cluster, cidr, gateway string, age time.Duration) *mcv1alpha1.ResourceExport {
		re := clusterInfo(cluster, cidr)
		re.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		re.Spec.ClusterInfo.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: gateway}}
		return re
	}
	type exports = []*mcv1alpha1.ResourceExport
	east, west := network("east", "10.96.0.0/16", "192.0.2.1", time.Hour), network("west", "10.97.0.0/16", "192.0.2.2", time.Minute)
	const both = "east-clusterinfo of area/east-clusterinfo 10.96.0.0/16 +east"
	for _, row := range []struct {
		name        string
		pins        map[string]string
		before, now exports
		want        []string
	}{
		{name: "the older export has the range, whatever the IDs", now: exports{west, network("attacker", "10.97.0.0/24", "192.0.2.9", 0)}, want: []string{
			"west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
			"attacker-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.97.0.0/24 of cluster attacker overlaps the Service range 10.97.0.0/16 of cluster west, which has it already: use other addresses, or release it there first"}},
		{name: "an old member's update takes nothing from a newer one", before: exports{east, west}, now: exports{network("east", "10.96.0.0/15", "192.0.2.1", time.Hour), west}, want: []string{
			both, "west-clusterinfo of area/west-clusterinfo 10.97.0.0/16 +west",
			"east-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.96.0.0/15 of cluster east overlaps the Service range 10.97.0.0/16 of cluster west, which has it already: use other addresses, or release it there first"}},
		{name: "another's gateway", now: exports{east, network("west", "10.97.0.0/16", "192.0.2.1", 0)}, want: []string{both,
			"west-clusterinfo fails: spec.clusterInfo.gatewayInfos[0].gatewayIP: gateway 192.0.2.1 of cluster west overlaps the gateway 192.0.2.1 of cluster east, which has it already: use other addresses, or release it there first"}},
		{name: "a member that leaves releases its range", before: exports{east}, now: exports{leaving(network("east", "10.96.0.0/16", "192.0.2.1", time.Hour)), network("west", "10.96.0.0/16", "192.0.2.2", 0)}, want: []string{
			"west-clusterinfo of area/west-clusterinfo 10.96.0.0/16 +west", "east-clusterinfo is released"}},
		{name: "another cluster's ID", now: exports{east, without(func(re *mcv1alpha1.ResourceExport) { re.Spec.ClusterInfo.ClusterID = "east" }, network("west", "10.97.0.0/16", "192.0.2.2", 0))}, want: []string{both,
			`west-clusterinfo fails: spec.clusterInfo.clusterID is "east": expected "west", as in spec.clusterID`}},
		{name: "a second description", now: exports{east, without(func(re *mcv1alpha1.ResourceExport) { re.Name = "another" }, network("east", "10.98.0.0/16", "192.0.2.3", 0))}, want: []string{both,
			"another fails: another ResourceExport describes cluster east already; delete one of them"}},
		{name: "pinned", pins: map[string]string{multicluster.AnnotationRangesPrefix + "west": "10.97.0.0/16"}, now: exports{east, network("west", "10.99.0.0/16", "192.0.2.2", 0)}, want: []string{both,
			"west-clusterinfo fails: spec.clusterInfo.serviceCIDR: Service range 10.99.0.0/16 is not among the addresses that cluster west may announce: correct it there, or annotation ranges.multicluster.antrea.io/west of the leader's ClusterSet"}},
		{name: "a kind that nobody processes", now: exports{without(func(re *mcv1alpha1.ResourceExport) { re.Name, re.Spec.Kind = "policy", "AntreaClusterNetworkPolicy" }, network("east", "", "", 0))}, want: []string{
			`policy fails: spec.kind: "AntreaClusterNetworkPolicy" is not processed by this version: delete the ResourceExport, or turn off in cluster east what makes it`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := set("set", "north", "north")
			s.Annotations = row.pins
			view := func(re exports) View {
				return View{Namespace: "area", Now: noon, Announces: announced("attacker", "east", "west"), ResourceExports: re, ClusterSets: []*mcv1alpha2.ClusterSet{s}}
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

// TestWithdrawnClaim has a member withdraw its ClusterInfo while a rival waits for its range.
func TestWithdrawnClaim(t *testing.T) {
	info := func(re *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceImport {
		ri := &mcv1alpha1.ResourceImport{}
		ri.Name, ri.Spec = re.Name, mcv1alpha1.ResourceImportSpec{Kind: multicluster.ClusterInfoKind, ClusterInfo: re.Spec.ClusterInfo}
		return ri
	}
	west, rival := clusterInfo("west", "10.97.0.0/16"), clusterInfo("rival", "10.97.0.0/24")
	c := &controller{claims: map[string]claim{}}
	for _, step := range []struct {
		name    string
		at      time.Duration
		members []string
		exports []*mcv1alpha1.ResourceExport
		imports []*mcv1alpha1.ResourceImport
		want    string // the import that has the range
	}{
		{"west has it", 0, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{west, rival}, []*mcv1alpha1.ResourceImport{info(west)}, "west-clusterinfo"},
		{"withdrawn, and still imported", time.Second, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, []*mcv1alpha1.ResourceImport{info(west)}, ""},
		{"withdrawn", time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, nil, ""},
		{"announced again", 2 * time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival, west}, nil, "west-clusterinfo"},
		{"withdrawn again", 3 * time.Minute, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, nil, ""},
		{"withdrawn for long", time.Hour, []string{"west", "rival"}, []*mcv1alpha1.ResourceExport{rival}, nil, "rival-clusterinfo"},
	} {
		v := View{Namespace: "area", Now: noon.Add(step.at), Announces: announced(step.members...), ResourceExports: step.exports, ResourceImports: step.imports}
		v.Imported = c.imported(v)
		d, _ := Plan(v)
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
	// A member that leaves gives it up at once.
	v := View{Namespace: "area", Now: noon, Announces: announced("west", "rival"), ResourceExports: []*mcv1alpha1.ResourceExport{west}, ResourceImports: []*mcv1alpha1.ResourceImport{info(west)}}
	c.imported(v)
	v.Announces, v.ResourceExports, v.ResourceImports = announced("rival"), []*mcv1alpha1.ResourceExport{rival}, nil
	v.Imported = c.imported(v)
	if d, _ := Plan(v); d.Imports["rival-clusterinfo"] == nil {
		t.Error("the range of a member that has left is not free")
	}
}

// TestUnreadablePin reports an annotation on the ClusterSet.
func TestUnreadablePin(t *testing.T) {
	s := set("set", "north", "north")
	s.Annotations = map[string]string{multicluster.AnnotationGatewaysPrefix + "east": "the gateway"}
	_, problems := Plan(View{Namespace: "area", Now: noon, ClusterSets: []*mcv1alpha2.ClusterSet{s}})
	if len(problems) == 0 || problems[0].Field != "metadata.annotations[gateways.multicluster.antrea.io/east]" || problems[0].Kind != "ClusterSet" {
		t.Errorf("problems %v", problems)
	}
}

package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// lostView returns the view of cluster east. Its one Gateway has lost west and reaches south. All three clusters export
// db. The annotations of the members' ClusterInfos list the clusters that each reaches.
func lostView(reached map[string]string) View {
	v := joinedView()
	v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1")}
	v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1"), GatewayIP: "10.0.0.1",
		InternalIP: "10.0.0.1", ServiceCIDR: "10.97.0.0/16"}}
	for i, id := range []string{"west", "south", "north"} {
		ri := clusterInfoOf(id, fmt.Sprintf("10.%d.0.0/16", 98+i), fmt.Sprintf("192.0.2.%d", 1+i))
		ri.Spec.ClusterInfo.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
		if text, ok := reached[id]; ok {
			ri.Annotations = map[string]string{multicluster.AnnotationReached: text}
		}
		v.Leader.ResourceImports = append(v.Leader.ResourceImports, ri)
		v.ClusterInfoImports = append(v.ClusterInfoImports,
			&mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", id+"-clusterinfo"), Spec: *ri.Spec.ClusterInfo})
	}
	v.Reports = []*tombolov1alpha1.NodePolicyReport{
		{ObjectMeta: meta("", "node-1"), Ways: map[string]string{"west/192.0.2.1": "lost", "south/192.0.2.2": "up"}}}
	from(&v, map[string][]string{"west": {"db"}, "south": {"db"}, "east": {"db"}})
	local := webSlice(true)
	local.Name, local.Labels[discoveryv1.LabelServiceName] = "db-1", "db"
	v.EndpointSlices = append(v.EndpointSlices, local)
	return v
}

// from gives db the endpoints of clusters, each on the ports of some names.
func from(v *View, ports map[string][]string) {
	var sources []exportcheck.Source
	ri := endpointsOf("default", "db")
	ri.Spec.Endpoints.Subsets = nil
	for _, id := range slices.Sorted(maps.Keys(ports)) {
		s := services.Subset{Addresses: []services.Address{
			{IP: map[string]string{"east": "10.97.0.7", "west": "10.98.0.7", "south": "10.99.0.7", "north": "10.100.0.7"}[id]}}}
		for i, name := range ports[id] {
			s.Ports = append(s.Ports, services.Port{Name: name, Port: int32(5432 + i)})
		}
		ri.Spec.Endpoints.Subsets = append(ri.Spec.Endpoints.Subsets, s)
		sources = append(sources, exportcheck.Source{Cluster: id, Subsets: 1})
	}
	ri.Annotations = map[string]string{multicluster.AnnotationSources: exportcheck.SourcesText(sources)}
	v.Leader.ResourceImports = slices.DeleteFunc(v.Leader.ResourceImports,
		func(ri *mcv1alpha1.ResourceImport) bool { return ri.Spec.Name == "db" })
	v.Leader.ResourceImports = append(v.Leader.ResourceImports, importOf("default", "db"), ri)
}

// readyIn returns the clusters of EndpointSlices: "west" if its endpoints are ready, "-west" if they are not.
func readyIn(list []*discoveryv1.EndpointSlice) string {
	var out []string
	for _, s := range list {
		for _, e := range s.Endpoints {
			text := s.Labels[mcsv1beta1.LabelSourceCluster]
			if !*e.Conditions.Ready {
				text = "-" + text
			}
			if *e.Conditions.Serving != *e.Conditions.Ready || *e.Conditions.Terminating {
				text += " half"
			}
			out = append(out, text)
		}
	}
	slices.SortFunc(out,
		func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "-"), strings.TrimPrefix(b, "-")) })
	return strings.Join(out, " ")
}

// readyAddresses are the same of an Endpoints object.
func readyAddresses(list []*services.Endpoints) string {
	clusters := map[string]string{"10.97.0.7": "east", "10.98.0.7": "west", "10.99.0.7": "south", "10.100.0.7": "north"}
	var out []string
	for _, e := range list {
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				out = append(out, clusters[a.IP])
			}
			for _, a := range s.NotReadyAddresses {
				out = append(out, "-"+clusters[a.IP])
			}
		}
	}
	slices.SortFunc(out,
		func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "-"), strings.TrimPrefix(b, "-")) })
	return strings.Join(out, " ")
}

// TestPlanGone takes requests from clusters that are gone, and from no others.
func TestPlanGone(t *testing.T) {
	was := func(v *View) {
		v.ClusterSets[0].Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{
			{ClusterID: "west", Conditions: []mcv1alpha2.ClusterCondition{
				{Type: mcv1alpha2.ClusterReachable, Status: corev1.ConditionFalse, Reason: "ClusterGone"}}}}
	}
	ways := func(ways map[string]string) func(*View) { return func(v *View) { v.Reports[0].Ways = ways } }
	ports := func(ports map[string][]string) func(*View) { return func(v *View) { from(v, ports) } }
	idle := func(v *View) { v.EndpointSlices = nil }
	type changes = []func(*View)
	for _, row := range []struct {
		name    string
		reached map[string]string // the clusters that the members report to reach
		changes changes
		want    string // "-": endpoints are not ready; "(gone)": west is gone and keeps its share
	}{
		{"lost, and others say nothing", nil, nil, "east south -west"},
		{"others have lost it, too", map[string]string{"south": "east,north"}, nil, "east south -west"},
		{"another reaches it", map[string]string{"south": "east,west"}, nil, "east south west"},
		{"another reaches it that this cluster does not", map[string]string{"north": "west", "south": "east"},
			nil, "east south -west"},
		{"it was never up", nil, changes{ways(map[string]string{"west/192.0.2.1": "down", "south/192.0.2.2": "up"})},
			"east south west"},
		{"down, and it was gone", nil,
			changes{was, ways(map[string]string{"west/192.0.2.1": "down", "south/192.0.2.2": "up"})}, "east south -west"},
		{"no Gateway has reported, and it was gone", nil, changes{was, ways(nil)}, "east south -west"},
		{"it is not watched any more, and was gone", nil,
			changes{was, ways(nil), func(v *View) { v.ClusterInfoImports[0].Spec.Features = nil }}, "east south west"},
		{"it is encrypted, and was gone", nil, changes{was, ways(nil), func(v *View) {
			v.ClusterInfoImports[0].Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "k"}
		}}, "east south west"},
		{"it is encrypted, each Gateway for itself, and was gone", nil, changes{was, ways(nil), func(v *View) {
			info := &v.ClusterInfoImports[0].Spec
			info.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "k"}
			info.GatewayInfos = []mcv1alpha1.GatewayInfo{
				{GatewayIP: "192.0.2.1", WireGuard: &mcv1alpha1.WireGuardInfo{PublicKey: "k", InsideIP: "240.0.0.1"}}}
		}}, "east south -west"},
		{"it is back", nil, changes{was, ways(map[string]string{"west/192.0.2.1": "up", "south/192.0.2.2": "up"})},
			"east south west"},
		{"one of two ways is up", nil,
			changes{was, ways(map[string]string{"west/192.0.2.1": "lost", "west/192.0.2.9": "up", "south/192.0.2.2": "up"})},
			"east south west"},
		{"it was gone, and another reaches it", map[string]string{"south": "west"}, changes{was}, "east south west"},
		{"the Gateway's Node is not Ready", nil, changes{func(v *View) { notReady(v.Nodes[0]) }}, "east south west"},
		{"the Gateway's Node is not Ready, and it was gone", nil, changes{was, func(v *View) { notReady(v.Nodes[0]) }},
			"east south -west"},
		{"two are gone", nil, changes{ways(map[string]string{"west/192.0.2.1": "lost", "south/192.0.2.2": "lost"})},
			"east -south -west"},
		{"all are gone, and nothing is ready here", nil, changes{idle,
			ways(map[string]string{"west/192.0.2.1": "lost", "south/192.0.2.2": "lost"})}, "east south west (gone)"},
		{"one is gone, and nothing is ready here", nil, changes{idle}, "east south -west"},
		{"nobody else has it", nil, changes{ports(map[string][]string{"west": {"db"}})}, "west (gone)"},
		{"nobody else has one of its ports", nil,
			changes{ports(map[string][]string{"west": {"db", "admin"}, "south": {"db"}})}, "south west (gone)"},
		{"others have its ports together", nil, changes{
			ports(map[string][]string{"west": {"db", "admin"}, "south": {"db"}, "north": {"admin"}})}, "north south -west"},
		{"the leader is away", nil, changes{func(v *View) { v.Leader.Announcement.Error = "refused" }}, "east south -west"},
		{"the leader is away, and its last word was that another reaches it", map[string]string{"south": "west"},
			changes{func(v *View) { v.Leader.Announcement.Error = "refused" }}, "east south west"},
		{"the leader is away, and nothing is lost", nil,
			changes{ways(map[string]string{"west/192.0.2.1": "up", "south/192.0.2.2": "up"}),
				func(v *View) { v.Leader.Announcement.Error = "refused" }}, "east south west"},
		{"the leader is away with the cluster it is in", map[string]string{"south": "north"},
			changes{ways(map[string]string{"north/192.0.2.3": "lost", "south/192.0.2.2": "up"}),
				ports(map[string][]string{"north": {"db"}, "south": {"db"}}),
				func(v *View) { v.Leader.Announcement.Error = "refused" }}, "-north south"},
		{"the leader answers from the cluster it is in", map[string]string{"south": "north"},
			changes{ways(map[string]string{"north/192.0.2.3": "lost", "south/192.0.2.2": "up"}),
				ports(map[string][]string{"north": {"db"}, "south": {"db"}})}, "north south"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := lostView(row.reached)
			for _, change := range row.changes {
				change(&v)
			}
			d, _ := Plan(v)
			want, kept := strings.CutSuffix(row.want, " (gone)")
			expect(t, "endpoints", readyIn(d.EndpointSlices), want)
			expect(t, "Endpoints", readyAddresses(d.Endpoints), want)
			expect(t, "condition", strings.HasPrefix(reachableIn(d.ClusterSet)["west"], "False "+"ClusterGone"),
				kept || strings.Contains(want, "-west"))

			// A second evaluation of the written state gives the same result.
			v.ClusterSets = []*mcv1alpha2.ClusterSet{d.ClusterSet}
			again, _ := Plan(v)
			expect(t, "endpoints again", readyIn(again.EndpointSlices), want)
		})
	}
}

// TestPlanReached announces which clusters this one reaches.
func TestPlanReached(t *testing.T) {
	for want, ways := range map[string]map[string]string{
		"":            {"west/192.0.2.1": "lost", "south/192.0.2.2": "down"},
		"south":       {"west/192.0.2.1": "lost", "south/192.0.2.2": "up"},
		"north,south": {"south/192.0.2.2": "up", "south/192.0.2.5": "lost", "north/192.0.2.3": "up"},
	} {
		v := lostView(nil)
		v.Reports[0].Ways = ways
		d, _ := Plan(v)
		i := slices.IndexFunc(d.ResourceExports,
			func(re *mcv1alpha1.ResourceExport) bool { return re.Spec.Kind == multicluster.ClusterInfoKind })
		if i < 0 {
			t.Fatal("no ClusterInfo is announced")
		}
		if have, there := d.ResourceExports[i].Annotations[multicluster.AnnotationReached]; have != want ||
			there != (want != "") {
			t.Errorf("announced as reached are %q, want %q", have, want)
		}
	}
}

// TestGone runs three members on real API servers. If two members have lost the third, its endpoints are not ready in
// them. They are ready again once one way is up. While one of the two still reaches it, nothing changes.
func TestGone(t *testing.T) {
	s := newServices(t, "east", "west", "south")
	const in = "gone"
	addresses := map[string]string{"east": "192.168.78.101", "south": "192.168.79.101", "west": "192.168.80.101"}
	scheme := Scheme()
	if err := tombolov1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	agents := map[string]client.Client{}
	for id, m := range s.members {
		var err error
		if agents[id], err = client.New(m.memberConfig, client.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
		m.gatewayNode("node-1", addresses[id])
		s.create(agents[id], &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", "node-1"),
			Features: map[string]string{mcv1alpha1.FeatureSingleWays: ""}})
	}
	report := func(id string, ways map[string]string) {
		t.Helper()
		r := &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", "node-1")}
		s.members[id].update(agents[id], r, func() {
			r.Ways = map[string]string{}
			for to, state := range ways {
				r.Ways[to+"/"+addresses[to]] = state
			}
		})
	}
	are := func(what string, want, reachable map[string]string) {
		t.Helper()
		for _, id := range slices.Sorted(maps.Keys(want)) {
			s.eventually(what+" in "+id, func(ctx context.Context) error {
				l := &discoveryv1.EndpointSliceList{}
				if err := s.members[id].member.List(ctx, l, client.InNamespace(in),
					client.HasLabels{mcsv1beta1.LabelServiceName}); err != nil {
					return err
				}
				var list []*discoveryv1.EndpointSlice
				for i := range l.Items {
					list = append(list, &l.Items[i])
				}
				cs := &mcv1alpha2.ClusterSet{}
				if err := s.members[id].member.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "set"}, cs); err != nil {
					return err
				}
				west := strings.Join(strings.Fields(reachableIn(cs)["west"] + " . .")[:2], " ")
				if have := readyIn(list); have != want[id] || west != reachable[id] {
					return fmt.Errorf("endpoints are %s, and west is %s: want %s, %s", have, west, want[id], reachable[id])
				}
				return nil
			})
		}
	}
	for _, id := range []string{"east", "south", "west"} {
		s.hello(id, in, nil)
		s.export(id, in, nil, nil)
	}
	const up, down, gone = "True AllWaysUp", "False AllWaysDown", "False ClusterGone"
	all, without := "east south west", "east south -west"
	report("east", map[string]string{"south": "up", "west": "up"})
	report("south", map[string]string{"east": "up", "west": "up"})
	report("west", map[string]string{"east": "up", "south": "up"})
	are("all are there", map[string]string{"east": all, "south": all}, map[string]string{"east": up, "south": up})
	s.eventually("the leader says what south can, and whom it reaches", func(ctx context.Context) error {
		ri := &mcv1alpha1.ResourceImport{}
		if err := s.leader.Get(ctx, client.ObjectKey{Namespace: area, Name: "south-clusterinfo"}, ri); err != nil {
			return err
		}
		if have := ri.Spec.ClusterInfo.Features; !slices.Contains(have, mcv1alpha1.FeatureSingleWays) {
			return fmt.Errorf("features are %v", have)
		}
		if have := ri.Annotations[multicluster.AnnotationReached]; have != "east,west" {
			return fmt.Errorf("have %q", have)
		}
		return nil
	})

	report("east", map[string]string{"south": "up", "west": "lost"})
	are("east alone has lost west", map[string]string{"east": all, "south": all},
		map[string]string{"east": down, "south": up})
	report("south", map[string]string{"east": "up", "west": "lost"})
	are("west is gone", map[string]string{"east": without, "south": without},
		map[string]string{"east": gone, "south": gone})
	before := s.writesBy()
	s.members["east"].stop()
	s.members["east"].startMember()
	report("east", map[string]string{"south": "up", "west": "down"})
	are("what is gone stays so", map[string]string{"east": without, "south": without},
		map[string]string{"east": gone, "south": gone})
	s.wrote(before, map[string]int{"east nodepolicyreports": 1}) // the test's
	report("east", map[string]string{"south": "up", "west": "up"})
	report("south", map[string]string{"east": "up", "west": "up"})
	are("west is back", map[string]string{"east": all, "south": all}, map[string]string{"east": up, "south": up})
}

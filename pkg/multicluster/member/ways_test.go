package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/clusters"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// TestPlanWays sets the status of Gateways, and of other clusters in the ClusterSet's status, from agents' reports.
func TestPlanWays(t *testing.T) {
	type ways = map[string]string
	const remedy = "Check that these are addresses at which the other cluster's Gateways " +
		"are reached, that their Nodes run, and that firewalls let tunnels through both ways " +
		"(by default UDP port 6081 for geneve, 4789 for vxlan, 51821 and 51822 for WireGuard; " +
		"GRE is IP protocol 47); `tombolo get peers` on the Gateways' Nodes shows each way"
	for _, row := range []struct {
		name      string
		reports   map[string]ways // by Node
		change    func(*View)
		gateways  map[string]string // their ways: CLUSTER ADDRESS STATE, ...
		reachable map[string]string // by cluster: STATUS REASON MESSAGE
	}{
		{name: "nothing is watched"},
		{name: "no agent reports ways", reports: map[string]ways{"node-1": nil}},
		{name: "all are up", reports: map[string]ways{"node-1": {"west/192.0.2.1": "up", "west/192.0.2.2": "up"},
			"node-2": {"west/192.0.2.1": "up"}},
			gateways:  map[string]string{"node-1": "west 192.0.2.1 Up, west 192.0.2.2 Up", "node-2": "west 192.0.2.1 Up"},
			reachable: map[string]string{"west": "True AllWaysUp 3 of 3 ways are up"}},
		{name: "one is down", reports: map[string]ways{"node-1": {"west/192.0.2.2": "down", "west/192.0.2.1": "up"}},
			gateways: map[string]string{"node-1": "west 192.0.2.1 Up, west 192.0.2.2 Down"},
			reachable: map[string]string{
				"west": "True SomeWaysDown 1 of 2 ways are up; down: from Gateway node-1 to 192.0.2.2. " + remedy}},
		{name: "a cluster is lost", reports: map[string]ways{"node-1": {"west/192.0.2.1": "down", "south/192.0.2.3": "up"},
			"node-2": {"west/192.0.2.1": "down", "south/192.0.2.3": "up"}},
			gateways: map[string]string{"node-1": "south 192.0.2.3 Up, west 192.0.2.1 Down",
				"node-2": "south 192.0.2.3 Up, west 192.0.2.1 Down"},
			reachable: map[string]string{"south": "True AllWaysUp 2 of 2 ways are up",
				"west": "False AllWaysDown 0 of 2 ways are up; down: from Gateway node-1 to " +
					"192.0.2.1, from Gateway node-2 to 192.0.2.1. " + remedy}},
		{name: "a cluster is gone",
			reports:  map[string]ways{"node-1": {"west/192.0.2.1": "lost"}, "node-2": {"west/192.0.2.1": "down"}},
			gateways: map[string]string{"node-1": "west 192.0.2.1 Down", "node-2": "west 192.0.2.1 Down"},
			reachable: map[string]string{"west": "False ClusterGone 0 of 2 ways are up; requests to Services go to other " +
				"clusters that have them; down: from Gateway node-1 to 192.0.2.1, from Gateway node-2 to 192.0.2.1. " + remedy}},
		{name: "no Node is Ready",
			reports: map[string]ways{"node-1": {"west/192.0.2.1": "up"}, "node-2": {"west/192.0.2.1": "down"}},
			change: func(v *View) {
				for _, n := range v.Nodes {
					notReady(n)
				}
			},
			gateways: map[string]string{"node-1": "west 192.0.2.1 Unknown", "node-2": "west 192.0.2.1 Unknown"},
			reachable: map[string]string{"west": "Unknown WaysUnknown 0 of 2 ways are up; " +
				"unknown, since the Node is not Ready: from Gateway node-1 to 192.0.2.1, from Gateway node-2 to 192.0.2.1"}},
		{name: "some of each Gateway's are down",
			reports: map[string]ways{"node-1": {"west/192.0.2.1": "up", "west/192.0.2.2": "down", "west/192.0.2.3": "lost"},
				"node-2": {"west/192.0.2.1": "down", "west/192.0.2.2": "down", "west/192.0.2.3": "up"}},
			gateways: map[string]string{"node-1": "west 192.0.2.1 Up, west 192.0.2.2 Down, west 192.0.2.3 Down",
				"node-2": "west 192.0.2.1 Down, west 192.0.2.2 Down, west 192.0.2.3 Up"},
			reachable: map[string]string{"west": "True SomeWaysDown 2 of 6 ways are up; " +
				"down: from Gateway node-1 to 192.0.2.2, from Gateway node-1 to 192.0.2.3, " +
				"from Gateway node-2 to 192.0.2.1, from Gateway node-2 to 192.0.2.2. " + remedy}},
		{name: "what is no way",
			reports: map[string]ways{"node-1": {"west": "up", "west/x": "up", "nobody/192.0.2.1": "up", "": "up"}}},
		{name: "a Node that is no Gateway", reports: map[string]ways{"node-9": {"west/192.0.2.1": "up"}}},
		{name: "the leader is a member, too",
			reports:  map[string]ways{"node-1": {"north/192.0.2.5": "down"}, "node-2": {"north/192.0.2.5": "up"}},
			gateways: map[string]string{"node-1": "north 192.0.2.5 Down", "node-2": "north 192.0.2.5 Up"},
			reachable: map[string]string{
				"north": "True SomeWaysDown 1 of 2 ways are up; down: from Gateway node-1 to 192.0.2.5. " + remedy}},
		{name: "the leader is away", reports: map[string]ways{"node-1": {"west/192.0.2.1": "up"}},
			change:    func(v *View) { v.Leader.Announcement.Error = "refused" },
			gateways:  map[string]string{"node-1": "west 192.0.2.1 Up"},
			reachable: map[string]string{"west": "True AllWaysUp 1 of 1 ways are up"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Leader.Announcement.Found = true
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
			v.Config.ActiveGateways = 2
			for i, name := range []string{"node-1", "node-2"} {
				ip := "10.0.0." + string(rune('1'+i))
				v.Gateways = append(v.Gateways, &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", name),
					GatewayIP: ip, InternalIP: ip, ServiceCIDR: "10.97.0.0/16"})
			}
			for _, id := range []string{"west", "south", "north"} {
				v.ClusterInfoImports = append(v.ClusterInfoImports,
					&mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", id), Spec: mcv1alpha1.ClusterInfo{ClusterID: id}})
			}
			for name, w := range row.reports {
				v.Reports = append(v.Reports, &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", name), Ways: w})
			}
			if row.change != nil {
				row.change(&v)
			}
			d, _ := Plan(v)
			have := map[string]string{}
			for name, list := range d.Ways {
				var texts []string
				for _, w := range list {
					texts = append(texts, w.ClusterID+" "+w.To+" "+string(w.State))
				}
				have[name] = strings.Join(texts, ", ")
			}
			if row.gateways == nil {
				row.gateways = map[string]string{}
			}
			expect(t, "Gateways", have, row.gateways)
			written := map[string]string{}
			for _, w := range d.Change.Local {
				if w.Kind == "Gateway" && w.Verb == writes.UpdateStatus {
					written[w.Object.GetName()] = have[w.Object.GetName()]
				}
			}
			expect(t, "written", written, row.gateways)
			if row.reachable == nil {
				row.reachable = map[string]string{}
			}
			expect(t, "clusters", reachableIn(d.ClusterSet), row.reachable)
			leader := d.ClusterSet.Status.ClusterStatuses[0]
			if kinds := []mcv1alpha2.ClusterConditionType{leader.Conditions[0].Type,
				leader.Conditions[1].Type}; leader.ClusterID != "north" ||
				!slices.Equal(kinds, []mcv1alpha2.ClusterConditionType{"Ready", "IsLeader"}) {
				t.Errorf("the leader's status is %+v", leader)
			}

			// A written status is not written again. An hour later the times of unchanged conditions are the same.
			for _, w := range d.Change.Local {
				if w.Verb == writes.UpdateStatus {
					v = apply(v, w)
				}
			}
			v.ClusterSets, v.Now = []*mcv1alpha2.ClusterSet{d.ClusterSet}, now.Add(time.Hour)
			again, _ := Plan(v)
			for _, w := range again.Change.Local {
				if w.Verb == writes.UpdateStatus {
					t.Errorf("again: %s", w)
				}
			}
			expect(t, "status later", again.ClusterSet.Status, d.ClusterSet.Status)
			v.Reports = nil
			none, _ := Plan(v)
			expect(t, "clusters without reports", reachableIn(none.ClusterSet), map[string]string{})
		})
	}
}

// TestPlanTunnel announces tunnel types other than Geneve, and reports clusters with another tunnel type.
func TestPlanTunnel(t *testing.T) {
	const active, single = mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays
	here, there := "Node node-2: TunnelTypeMismatch", "ClusterInfoImport kube-system/west: TunnelTypeMismatch"
	for _, row := range []struct {
		name     string
		agents   []string // the tunnel types that the Gateways' agents report; "-" for no agent
		west     []string // its features
		features []string // announced
		problems []string
	}{
		{name: "Geneve on both sides", agents: []string{"", ""}, west: []string{active}, features: []string{active}},
		{name: "VXLAN on both sides", agents: []string{"Tunnel-vxlan", "Tunnel-vxlan"},
			west: []string{active, "Tunnel-vxlan"}, features: []string{active, "Tunnel-vxlan"}},
		{name: "VXLAN there", agents: []string{"", ""}, west: []string{active, "Tunnel-vxlan"},
			features: []string{active}, problems: []string{there}},
		{name: "GRE here", agents: []string{"Tunnel-gre", "Tunnel-gre"}, west: []string{active},
			features: []string{active, "Tunnel-gre"}, problems: []string{there}},
		{name: "another port", agents: []string{"Tunnel-vxlan-8472", "Tunnel-vxlan-8472"},
			west: []string{"Tunnel-vxlan", active}, features: []string{active, "Tunnel-vxlan-8472"}, problems: []string{there}},
		{name: "a cluster of Antrea's", agents: []string{"Tunnel-gre", "Tunnel-gre"},
			features: []string{active, "Tunnel-gre"}},
		{name: "Gateways that differ", agents: []string{"Tunnel-vxlan", ""}, west: []string{active, "Tunnel-vxlan"},
			features: []string{active, "Tunnel-vxlan"}, problems: []string{here}},
		{name: "agents that watch single ways", agents: []string{single, single}, west: []string{active},
			features: []string{active, single}},
		{name: "one agent that watches single ways", agents: []string{single, ""}, west: []string{active},
			features: []string{active}},
		{name: "an agent that watches single ways and one that has not reported", agents: []string{"-", single},
			west: []string{active}, features: []string{active, single}},
		{name: "agents that have not reported", agents: []string{"-", "-"}, west: []string{active, "Tunnel-vxlan"},
			features: []string{active}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config.ActiveGateways = 2
			for i, name := range []string{"node-1", "node-2"} {
				ip := "10.0.0." + string(rune('1'+i))
				v.Nodes = append(v.Nodes, node(name, ip))
				v.Gateways = append(v.Gateways, &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", name),
					GatewayIP: ip, InternalIP: ip, ServiceCIDR: "10.97.0.0/16"})
				if row.agents[i] != "-" {
					v.Reports = append(v.Reports, &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", name),
						Features: map[string]string{row.agents[i]: "", "Other": ""}})
				}
			}
			v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{
				{ObjectMeta: meta("kube-system", "west"), Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", Features: row.west}}}
			d, problems := Plan(v)
			var have []string
			for _, p := range problems {
				have = append(have, p.Object.String()+": "+p.Reason.String())
			}
			expect(t, "problems", have, row.problems)
			for _, re := range d.ResourceExports {
				if info := re.Spec.ClusterInfo; info != nil {
					expect(t, "features", info.Features, row.features)
				}
			}
		})
	}
}

// reachableIn are the conditions Reachable of a ClusterSet, by cluster.
func reachableIn(cs *mcv1alpha2.ClusterSet) map[string]string {
	out := map[string]string{}
	for _, s := range cs.Status.ClusterStatuses {
		for _, c := range s.Conditions {
			if c.Type == mcv1alpha2.ClusterReachable && c.LastTransitionTime != (metav1.Time{}) {
				out[s.ClusterID] = string(c.Status) + " " + c.Reason + " " + c.Message
			}
		}
	}
	return out
}

// waysAreReported lets the agents of two Gateways report their ways to west, and then one agent loses a way. The status
// of the Gateways and of the ClusterSet shows that. In the end no way is watched any more.
func (w *world) waysAreReported() {
	w.t.Helper()
	scheme := Scheme()
	if err := tombolov1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	agents, err := client.New(w.memberConfig, client.Options{Scheme: scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	report := func(node string, ways map[string]string) {
		w.t.Helper()
		r := &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", node)}
		if err := client.IgnoreAlreadyExists(agents.Create(w.t.Context(), r)); err != nil {
			w.t.Fatal(err)
		}
		w.update(agents, r, func() { r.Ways = ways })
	}
	const one, other = "192.168.79.101", "192.168.79.102"
	are := func(reachable map[string]string, ways map[string][]mcv1alpha1.WayStatus) {
		w.t.Helper()
		w.eventually(fmt.Sprint("ways are ", reachable), func(ctx context.Context) error {
			for _, name := range []string{"node-1", "node-2"} {
				g := &mcv1alpha1.Gateway{}
				if err := w.member.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: name}, g); err != nil {
					return err
				}
				if !equality.Semantic.DeepEqual(g.Status.Ways, ways[name]) {
					return fmt.Errorf("Gateway %s has %v", name, g.Status.Ways)
				}
			}
			cs := &mcv1alpha2.ClusterSet{}
			if err := w.member.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "set"}, cs); err != nil {
				return err
			}
			if have := reachableIn(cs); !maps.Equal(have, reachable) {
				return fmt.Errorf("the ClusterSet has %v", have)
			}
			return nil
		})
	}
	way := func(to string, state mcv1alpha1.WayState) mcv1alpha1.WayStatus {
		return mcv1alpha1.WayStatus{ClusterID: "west", To: to, State: state}
	}
	for _, node := range []string{"node-1", "node-2"} {
		report(node, map[string]string{"west/" + one: "up", "west/" + other: "up"})
	}
	both := []mcv1alpha1.WayStatus{way(one, mcv1alpha1.WayUp), way(other, mcv1alpha1.WayUp)}
	are(map[string]string{"west": "True AllWaysUp 4 of 4 ways are up"},
		map[string][]mcv1alpha1.WayStatus{"node-1": both, "node-2": both})
	report("node-2", map[string]string{"west/" + one: "down", "west/" + other: "up"})
	are(map[string]string{
		"west": "True SomeWaysDown 3 of 4 ways are up; down: from Gateway node-2 to " + one + ". " + clusters.RemedyOfDown},
		map[string][]mcv1alpha1.WayStatus{"node-1": both,
			"node-2": {way(one, mcv1alpha1.WayDown), way(other, mcv1alpha1.WayUp)}})
	report("node-1", nil)
	report("node-2", nil)
	are(map[string]string{}, nil)
}

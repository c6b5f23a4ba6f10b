package member

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestPlanPhases adds and removes Gateways. A new Gateway is used once other clusters accept its packets. A Gateway
// that leaves stays until no cluster sends through it.
func TestPlanPhases(t *testing.T) {
	const up, down = "up", "down"
	inside := func(list ...*mcv1alpha1.Gateway) {
		for _, g := range list {
			g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "key of " + g.Name, InsideIP: "245.255.255.254"}
		}
	}
	for _, row := range []struct {
		name      string
		present   string // "node-1, node-2 joining": Gateways with their phases
		annotated string // Nodes that are to be Gateways
		change    func(*View)
		way       string // of node-2 to west, if it reports one
		over      string // Gateways whose phase is over
		want      string
		// announced is the number of gateways that are announced to other clusters to send through. Gateways that have left
		// are announced as leaving, and do not count.
		announced int
	}{
		{"the first ones are used at once", "", "node-1 node-2", nil, "", "", "node-1, node-2", 2},
		{"the second joins", "node-1", "node-1 node-2", nil, "", "", "node-1, node-2 joining", 2},
		{"no way is up", "node-1, node-2 joining", "node-1 node-2", nil, down, "", "node-1, node-2 joining", 2},
		{"one is up", "node-1, node-2 joining", "node-1 node-2", nil, up, "", "node-1, node-2", 2},
		{"none comes up in its time", "node-1, node-2 joining", "node-1 node-2", nil, down, "node-2", "node-1, node-2", 2},
		{"there is no other cluster", "node-1, node-2 joining", "node-1 node-2", func(v *View) { v.ClusterInfoImports = nil },
			"", "", "node-1, node-2", 2},
		{"others know one Gateway alone", "node-1, node-2 joining", "node-1 node-2",
			func(v *View) { v.ClusterInfoImports[0].Spec.Features = nil }, "", "", "node-1, node-2", 2},
		{"the other is gone meanwhile", "node-1, node-2 joining", "node-2", func(v *View) { notReady(v.Nodes[0]) },
			down, "", "node-2", 1},
		{"one that is used stays so", "node-1, node-2", "node-1 node-2", nil, down, "", "node-1, node-2", 2},

		{"it goes", "node-1, node-2", "node-1", nil, up, "", "node-1, node-2 leaving", 2},
		{"it is leaving", "node-1, node-2 leaving", "node-1", nil, up, "", "node-1, node-2 leaving", 2},
		{"others in the cluster know", "node-1, node-2 leaving", "node-1", nil, up, "node-2", "node-1, node-2 left", 1},
		{"it has left", "node-1, node-2 left", "node-1", nil, up, "", "node-1, node-2 left", 1},
		{"other clusters know", "node-1, node-2 left", "node-1", nil, up, "node-2", "node-1", 1},
		{"it changes its mind while leaving", "node-1, node-2 leaving", "node-1 node-2", nil, up, "", "node-1, node-2", 2},
		{"it changes its mind after", "node-1, node-2 left", "node-1 node-2", nil, up, "", "node-1, node-2 joining", 2},
		{"it goes before it was used", "node-1, node-2 joining", "node-1", nil, up, "", "node-1, node-2 left", 1},
		{"its Node fails", "node-1, node-2 leaving", "node-1", func(v *View) { notReady(v.Nodes[1]) }, up, "", "node-1", 1},
		{"its Node fails while it is wanted", "node-1, node-2", "node-1 node-2", func(v *View) { notReady(v.Nodes[1]) },
			up, "", "node-1", 1},
		{"there may be one alone from now on", "node-1, node-2", "node-1 node-2",
			func(v *View) { v.Config.ActiveGateways = 1 }, up, "", "node-1, node-2 leaving", 2},
		{"the oldest goes", "node-1, node-2", "node-2", nil, up, "", "node-2, node-1 leaving", 2},
		{"one takes over: the other waits", "node-1", "node-2", nil, "", "", "node-1, node-2 joining", 2},
		{"one takes over: it is used", "node-1, node-2 joining", "node-2", nil, up, "", "node-2, node-1 leaving", 2},
		{"all go", "node-1, node-2", "", nil, up, "", "", 0},
		{"encrypted traffic has several", "node-1, node-2", "node-1", func(v *View) { inside(v.Gateways...) },
			up, "", "node-1, node-2 leaving", 2},
		{"an encrypted one comes, without a key yet", "node-1, node-2 joining", "node-1 node-2",
			func(v *View) { inside(v.Gateways[0]) }, up, "node-2", "node-1, node-2 joining", 1},
		{"and gets none", "node-1, node-2 joining", "node-1 node-2", func(v *View) { inside(v.Gateways[0]) },
			up, "node-2 unannounced", "node-1, node-2 joining", 1},
		{"and has one", "node-1, node-2 joining", "node-1 node-2", func(v *View) { inside(v.Gateways...) },
			up, "", "node-1, node-2", 2},
		{"encrypted traffic has one Gateway", "node-1, node-2", "node-2",
			func(v *View) { v.Gateways[0].WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "x"} }, up, "", "node-2", 1},
		{"a used one has no key", "node-1, node-2", "node-1 node-2", func(v *View) { inside(v.Gateways[0]) },
			up, "", "node-1, node-2 joining", 1},
		{"the first one has no key", "node-1, node-2", "node-1 node-2", func(v *View) { inside(v.Gateways[1]) },
			up, "", "node-2, node-1 joining", 1},
		{"one without a key is better than none", "node-1, node-2 joining", "node-1 node-2",
			func(v *View) { inside(v.Gateways[0]); notReady(v.Nodes[0]) }, up, "", "node-2", 1},
		{"the leader does not tell others", "node-1, node-2 joining", "node-1 node-2",
			func(v *View) { v.Leader.ResourceImports = nil }, up, "node-2", "node-1, node-2 joining", 2},
		{"the leader has not been heard", "node-1, node-2 joining", "node-1 node-2",
			func(v *View) { v.Leader.Synced = false }, up, "node-2", "node-1, node-2 joining", 2},
		{"it has another address", "node-1, node-2", "node-1 node-2", func(v *View) { v.Gateways[1].GatewayIP = "10.0.0.9" },
			up, "", "node-1, node-2 joining", 2},
		{"all have other addresses", "node-1, node-2", "node-1 node-2", func(v *View) {
			v.Gateways[0].GatewayIP, v.Gateways[1].GatewayIP = "10.0.0.8", "10.0.0.9"
		}, up, "", "node-1, node-2", 2},
		{"what is to take over is not Ready", "node-1", "node-2", func(v *View) { notReady(v.Nodes[1]) },
			"", "", "node-1", 1},
		{"what has taken over is not Ready", "node-1 leaving, node-2", "node-2", func(v *View) { notReady(v.Nodes[1]) },
			up, "", "node-2, node-1", 2},
		{"a phase that nobody knows", "node-1, node-2 resting", "node-1 node-2", nil, "", "", "node-1, node-2 joining", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config.ActiveGateways = 3
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
			for _, n := range v.Nodes {
				if !strings.Contains(row.annotated, n.Name) {
					n.Annotations = nil
				}
			}
			for i, text := range strings.Split(row.present, ", ") {
				name, phase, _ := strings.Cut(text, " ")
				if name == "" {
					continue
				}
				ip := "10.0.0." + strings.TrimPrefix(name, "node-")
				g := &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", name), GatewayIP: ip,
					InternalIP: ip, ServiceCIDR: "10.97.0.0/16"}
				g.CreationTimestamp = metav1.NewTime(now.Add(time.Duration(i-10) * time.Minute))
				if phase != "" {
					g.Annotations = map[string]string{multicluster.AnnotationPhase: phase}
				}
				v.Gateways = append(v.Gateways, g)
				if strings.Contains(row.over, name) {
					if strings.Contains(row.over, "unannounced") {
						phase = "unannounced"
					}
					v.PhasesOver = map[derive.Object]string{derive.ObjectOf(g): phase}
				}
			}
			v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{{ObjectMeta: meta("kube-system", "west"),
				Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", Features: []string{mcv1alpha1.FeatureActiveGateways}}}}
			own := &mcv1alpha1.ResourceImport{ObjectMeta: meta("antrea-multicluster", "east-clusterinfo"),
				Spec: mcv1alpha1.ResourceImportSpec{Kind: multicluster.ClusterInfoKind,
					ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: "east"}}}
			for _, g := range v.Gateways {
				own.Spec.ClusterInfo.GatewayInfos = append(own.Spec.ClusterInfo.GatewayInfos,
					mcv1alpha1.GatewayInfo{GatewayIP: g.GatewayIP})
			}
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, own)
			if row.way != "" {
				v.Reports = []*tombolov1alpha1.NodePolicyReport{
					{ObjectMeta: meta("", "node-2"), Ways: map[string]string{"west/192.0.2.1": row.way}}}
			}
			if row.change != nil {
				row.change(&v)
			}
			d, ps := Plan(v)
			if have, want := strings.Contains(strings.Join(problems(ps), "\n"), "GatewayWithoutKey"),
				strings.Contains(row.over, "unannounced"); have != want {
				t.Errorf("a Gateway without a key is reported: %v, want %v: %s", have, want, problems(ps))
			}
			var have []string
			for _, g := range d.Gateways {
				have = append(have, strings.TrimSpace(g.Name+" "+g.Annotations[multicluster.AnnotationPhase]))
			}
			if text := strings.Join(have, ", "); text != row.want {
				t.Errorf("Gateways: %s, want %s", text, row.want)
			}
			announced := 0
			for _, re := range d.ResourceExports {
				if re != nil && re.Spec.ClusterInfo != nil {
					announced = len(re.Spec.ClusterInfo.GatewayInfos)
					if have, want := len(re.Spec.ClusterInfo.LeavingGateways), strings.Count(row.want, " left"); have != want {
						t.Errorf("%d gateways are announced as ones that go, want %d", have, want)
					}
				}
			}
			if announced != row.announced {
				t.Errorf("%d gateways are announced, want %d", announced, row.announced)
			}
		})
	}
}

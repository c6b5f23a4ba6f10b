package ui_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
	"github.com/tombolo-net/tombolo/test/page"
)

// probed gives the first Gateway of east results of a way to west.
func probed(s []ui.Snapshot, change func(*api.ProbedWay)) []ui.Snapshot {
	w := api.ProbedWay{Peer: "west", To: "10.3.0.1", Size: 1450, MTU: 1450,
		ProbeResult: api.ProbeResult{Samples: 300, P50Seconds: .01, P99Seconds: .02}}
	change(&w)
	a := s[0].Agents["node-1"]
	a.Ways = []api.ProbedWay{w}
	s[0].Agents["node-1"] = a
	return s
}

// lines renders a Model, one state a line.
func lines(m ui.Model) (out []string) {
	ids := map[string]string{}
	for _, c := range m.Clusters {
		ids[c.Key] = c.ID
	}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, c := range m.Clusters {
		role := ""
		if c.Leader {
			role = " (leader)"
		}
		add("cluster %s%s: %s, %s", c.ID, role, c.State, c.Word)
		for _, g := range c.Gateways {
			add("gateway %s/%s: %s, %s %s", c.ID, cmp.Or(g.Name, g.Address), g.State, g.Word, g.Phase)
		}
		for _, p := range c.Problems {
			add("problem %s: %s %s: %s", c.ID, p.Object, p.Reason, p.Message)
		}
		for _, n := range m.Nodes[c.Key] {
			add("node %s/%s: %s, %s", c.ID, n.Name, n.State, n.Word)
		}
	}
	for _, l := range m.Links {
		add("link %s-%s: %s, %s", ids[l.A], ids[l.B], l.State, l.Word)
		for _, w := range l.Ways {
			a, b := ids[l.A]+"/"+cmp.Or(w.A.Name, w.A.Address), ids[l.B]+"/"+cmp.Or(w.B.Name, w.B.Address)
			add("way %s > %s: %s, %s", a, b, w.AB.State, w.AB.Word)
			add("way %s > %s: %s, %s", b, a, w.BA.State, w.BA.Word)
		}
	}
	for _, s := range m.Services {
		for _, e := range s.Exports {
			add("export %s/%s of %s: %s, %s", s.Namespace, s.Name, ids[e.Cluster], e.State, e.Word)
		}
		for _, e := range s.Imports {
			add("import %s/%s in %s: %s, from %s", s.Namespace, s.Name, ids[e.Cluster], e.State, strings.Join(e.From, " "))
		}
	}
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// TestBuild changes one thing in three clusters, east, north and west, in which all is well. The Model differs in these
// lines only.
func TestBuild(t *testing.T) {
	three := page.Size{Clusters: 3, Gateways: 1, Nodes: 1}
	before := lines(ui.Build(page.New(three)))
	for _, row := range []struct {
		name   string
		change func(s []ui.Snapshot) []ui.Snapshot
		gone   []string // lines by their beginnings
		want   []string
	}{
		{name: "one direction down", change: func(s []ui.Snapshot) []ui.Snapshot {
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			return s
		}, want: []string{
			"gateway east/node-1: warn, 1 of 2 ways down",
			"link east-west: warn, 1 of 2 ways down",
			"way east/node-1 > west/node-1: bad, down",
		}},
		{name: "a small link between Gateways", change: func(s []ui.Snapshot) []ui.Snapshot {
			return probed(s, func(w *api.ProbedWay) { w.Size = 1350 })
		}, want: []string{
			"link east-west: warn, 2 ways up, 1 between Gateways poor",
			"way east/node-1 > west/node-1: warn, loses large packets",
		}},
		{name: "a way that loses packets", change: func(s []ui.Snapshot) []ui.Snapshot {
			return probed(s, func(w *api.ProbedWay) { w.Loss60, w.Loss300 = .1, .02 })
		}, want: []string{
			"link east-west: warn, 2 ways up, 1 between Gateways poor",
			"way east/node-1 > west/node-1: warn, loses packets",
		}},
		{name: "a slow way", change: func(s []ui.Snapshot) []ui.Snapshot {
			return probed(s, func(w *api.ProbedWay) { w.P50Seconds = .4 })
		}, want: []string{
			"link east-west: warn, 2 ways up, 1 between Gateways poor",
			"way east/node-1 > west/node-1: warn, slow",
		}},
		{name: "a good way", change: func(s []ui.Snapshot) []ui.Snapshot {
			return probed(s, func(*api.ProbedWay) {})
		}},
		{name: "old results of a way that is down", change: func(s []ui.Snapshot) []ui.Snapshot {
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			return probed(s, func(w *api.ProbedWay) { w.Size = 1350 })
		}, want: []string{
			"gateway east/node-1: warn, 1 of 2 ways down",
			"link east-west: warn, 1 of 2 ways down",
			"way east/node-1 > west/node-1: bad, down",
		}},
		{name: "both directions down", change: func(s []ui.Snapshot) []ui.Snapshot {
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			page.SetWay(&s[2], "node-1", "10.1.0.1", mcv1alpha1.WayDown)
			return s
		}, want: []string{
			"gateway east/node-1: warn, 1 of 2 ways down",
			"gateway west/node-1: warn, 1 of 2 ways down",
			"link east-west: bad, 2 ways down",
			"way east/node-1 > west/node-1: bad, down",
			"way west/node-1 > east/node-1: bad, down",
		}},
		{name: "the Gateway's Node is not Ready", change: func(s []ui.Snapshot) []ui.Snapshot {
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayUnknown)
			s[0].Nodes[0].Ready = "Unknown"
			return s
		}, want: []string{
			"gateway east/node-1: unknown, 1 of 2 ways up, others unknown",
			"node east/node-1: unknown, readiness unknown",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > west/node-1: unknown, unknown",
		}},
		{name: "an API server does not answer", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[2].Reach, s[2].Why = ui.Silent, "i/o timeout"
			return s
		}, want: []string{
			"cluster west: unknown, no answer",
			"gateway west/node-1: unknown, 2 ways unknown",
			"node west/node-1: unknown, no answer",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way west/node-1 > east/node-1: unknown, unknown",
			"link north-west: unknown, 1 of 2 ways up, others unknown",
			"way west/node-1 > north/node-1: unknown, unknown",
			"export shop/cart of west: unknown, exported",
			"import pay/ledger in west: unknown, from east north",
			"import shop/cart in west: unknown, from north west",
			"export shop/web of west: unknown, exported",
			"import shop/web in west: unknown, from east west",
		}},
		{name: "a cluster without a context, which the leader has lost", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[1].Sets[0].Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: "west",
				Conditions: []mcv1alpha2.ClusterCondition{{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionFalse,
					Reason: "Disconnected", Message: "The member is silent."}}}}
			return s[:2]
		}, gone: []string{"gateway west/node-1", "way west/node-1", "way east/node-1 > west/node-1",
			"way north/node-1 > west/node-1", "node west", "export shop/cart of west", "export shop/web of west",
			"import pay/ledger in west", "import shop/cart in west", "import shop/web in west"}, want: []string{
			"cluster west: warn, Ready is False by north",
			"gateway west/10.3.0.1: unknown, seen by east",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > west/10.3.0.1: ok, up",
			"way west/10.3.0.1 > east/node-1: unknown, unknown",
			"link north-west: unknown, 1 of 2 ways up, others unknown",
			"way north/node-1 > west/10.3.0.1: ok, up",
			"way west/10.3.0.1 > north/node-1: unknown, unknown",
		}},
		{name: "a member that the leader has lost", change: func(s []ui.Snapshot) []ui.Snapshot {
			for i := range 2 { // two report it, and one of them is enough
				s[i].Sets[0].Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: "west",
					Conditions: []mcv1alpha2.ClusterCondition{{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionFalse,
						Reason: "Disconnected", Message: "The member is silent."}}}}
			}
			return s
		}, want: []string{
			"cluster west: warn, Ready is False by east",
			"problem west: cluster west Disconnected: Ready is False by east: The member is silent.",
		}},
		{name: "a user who may not ask agents", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Refusal, s[0].Agents = "pods is forbidden", nil
			return s
		}, want: []string{
			"cluster east: warn, Ready, with problems",
			"problem east: agents AgentsNotAsked: This user may not ask the agents, so Nodes are without problems and " +
				"versions. It needs list for pods, and get and create for pods/exec. pods is forbidden",
		}},
		{name: "two contexts of one cluster", change: func(s []ui.Snapshot) []ui.Snapshot {
			again := s[0]
			again.Name = "admin@east"
			return append(s, again)
		}, want: []string{
			"cluster east: warn, Ready, with problems",
			"problem east: context admin@east SameCluster: Contexts east and admin@east show the same cluster ID. The map " +
				"shows east.",
		}},
		{name: "a ClusterSet that is not Ready", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Sets[0].Status.Conditions[0].Status = corev1.ConditionFalse
			return s
		}, want: []string{"cluster east: bad, not Ready"}},
		{name: "a controller without a status", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Sets[0].Status.Conditions = nil
			return s
		}, want: []string{"cluster east: unknown, no status"}},
		{name: "a Gateway that leaves", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Gateways[0].Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseLeaving}
			return s
		}, want: []string{"gateway east/node-1: ok, 2 ways up leaving"}},
		{name: "a Gateway that leaves, with a way down", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Gateways[0].Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseLeaving}
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			return s
		}, want: []string{
			"gateway east/node-1: unknown, 1 of 2 ways up, others unknown leaving",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > west/node-1: unknown, down",
		}},
		{name: "a way to a Gateway that leaves", change: func(s []ui.Snapshot) []ui.Snapshot {
			spec := &s[0].Infos[1].Spec
			spec.LeavingGateways, spec.GatewayInfos = spec.GatewayInfos, nil
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			return s
		}, want: []string{
			"gateway east/node-1: unknown, 1 of 2 ways up, others unknown",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > west/node-1: unknown, down",
		}},
		{name: "tunnels from other addresses than are announced", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[2].Sets[0].Annotations = map[string]string{multicluster.AnnotationTunnelSources + "east": "192.0.2.1"}
			page.SetWay(&s[0], "node-1", "10.3.0.1", mcv1alpha1.WayDown)
			return s
		}, want: []string{
			"gateway east/node-1: unknown, 1 of 2 ways up, others unknown",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > west/node-1: unknown, down",
		}},
		{name: "ways inside WireGuard", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[2].Gateways[0].Annotations = map[string]string{multicluster.AnnotationInsideIP: "240.0.0.3"}
			for i := range s[:2] {
				info := s[i].Infos[1]
				info.Spec.GatewayInfos[0].WireGuard = &mcv1alpha1.WireGuardInfo{InsideIP: "240.0.0.3"}
				s[i].Gateways[0].Status.Ways[1].To = "240.0.0.3"
			}
			return s
		}},
		{name: "an import without BFD", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Gateways[0].Status.Ways = nil
			return s
		}, want: []string{
			"gateway east/node-1: unknown, 2 ways unknown",
			"link east-north: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > north/node-1: unknown, unknown",
			"link east-west: unknown, 1 of 2 ways up, others unknown",
			"way east/node-1 > west/node-1: unknown, unknown",
		}},
		{name: "an export with a conflict", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Exports[0].Status.Conditions = []metav1.Condition{
				{Type: "Valid", Status: metav1.ConditionTrue},
				{Type: "Conflict", Status: metav1.ConditionTrue, Reason: "PortsConflict", Message: "The ports differ."}}
			return s
		}, want: []string{
			"cluster east: warn, Ready, with problems",
			"problem east: ServiceExport shop/web PortsConflict: The ports differ.",
			"export shop/web of east: warn, conflict",
		}},
		{name: "an agent that does not answer", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Agents["node-1"] = ui.Agent{Err: "the Node has no Pod of tombolo-agent"}
			return s
		}, want: []string{
			"cluster east: warn, Ready, with problems",
			"problem east: Node node-1 AgentNotAnswering: Node node-1: the Node has no Pod of tombolo-agent",
			"node east/node-1: unknown, agent does not answer",
		}},
		{name: "an agent with a problem", change: func(s []ui.Snapshot) []ui.Snapshot {
			a := s[0].Agents["node-1"]
			a.Status.Problems = []api.Problem{{Object: "Service a/b", Reason: "NoPort", Message: "It has no port."}}
			s[0].Agents["node-1"] = a
			return s
		}, want: []string{
			"cluster east: warn, Ready, with problems",
			"problem east: Service a/b NoPort: Node node-1: It has no port.",
			"node east/node-1: warn, problems",
		}},
		{name: "a kind that the user may not list", change: func(s []ui.Snapshot) []ui.Snapshot {
			s[0].Missing = []ui.Problem{{Object: "nodes", Reason: "NotListed", Message: "nodes is forbidden"}}
			s[0].Nodes = nil
			return s
		}, gone: []string{"node east"}, want: []string{
			"cluster east: warn, Ready, with problems",
			"problem east: nodes NotListed: nodes is forbidden",
		}},
		{name: "a cluster that the leader withdrew", change: func(s []ui.Snapshot) []ui.Snapshot {
			for i := range s[:2] {
				s[i].Infos[1].Annotations = map[string]string{multicluster.AnnotationWithdrawn: "2026-03-14T15:09:26Z"}
				s[i].Gateways[0].Status.Ways = s[i].Gateways[0].Status.Ways[:1]
			}
			return s[:2]
		}, gone: []string{"link east-west", "link north-west", "way east/node-1 > west", "way west",
			"way north/node-1 > west", "gateway west/node-1", "node west", "export shop/cart of west",
			"export shop/web of west", "import pay/ledger in west", "import shop/cart in west",
			"import shop/web in west"}, want: []string{
			"cluster west: unknown, left",
			"gateway east/node-1: ok, 1 way up", "gateway north/node-1: ok, 1 way up",
			"gateway west/10.3.0.1: unknown, seen by east",
		}},
		{name: "a cluster in no ClusterSet", change: func(s []ui.Snapshot) []ui.Snapshot {
			return append(s, ui.Snapshot{Access: ui.Access{Name: "alone"}, Reach: ui.Live, Listed: true})
		}, want: []string{"cluster alone: unknown, in no ClusterSet"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			after := lines(ui.Build(row.change(page.New(three))))
			var changed []string
			for _, l := range after {
				if !slices.Contains(before, l) {
					changed = append(changed, l)
				}
			}
			slices.Sort(changed)
			want := slices.Sorted(slices.Values(row.want))
			if !slices.Equal(changed, want) {
				t.Errorf("changed lines:\n%s\nwant:\n%s", strings.Join(changed, "\n"), strings.Join(want, "\n"))
			}
			subjects := map[string]bool{}
			for _, l := range after {
				subjects[strings.SplitN(l, ": ", 2)[0]] = true
			}
			for _, l := range before {
				subject := strings.SplitN(l, ": ", 2)[0]
				expected := slices.ContainsFunc(row.gone, func(g string) bool { return strings.HasPrefix(l, g) })
				if gone := !subjects[subject]; gone != expected {
					t.Errorf("%s: gone %v, want %v", subject, gone, expected)
				}
			}
		})
	}
}

// TestBuildCommands checks the commands that the page offers: words with odd characters are quoted.
func TestBuildCommands(t *testing.T) {
	s := page.New(page.Size{Clusters: 3, Gateways: 1, Nodes: 1})
	s[0].Kubectl, s[0].Arg = []string{"--kubeconfig", "/a b/it's"}, "/a b/it's"
	m := ui.Build(s)
	if have, want := m.Clusters[0].Gateways[0].Commands[0],
		`kubectl --kubeconfig '/a b/it'\''s' get gateway -n kube-system node-1 -o yaml`; have != want {
		t.Errorf("command %s\nwant    %s", have, want)
	}
	if have, want := m.Links[0].Commands[0], `tombolo mc verify '/a b/it'\''s' north`; have != want {
		t.Errorf("command %s\nwant    %s", have, want)
	}
	s[1].Tombolo, s[1].Refusal = []string{"--kubeconfig", "k"}, `cannot create resource "pods/exec"`
	m = ui.Build(s)
	for _, pair := range [][2]string{
		{m.Links[0].Commands[0], `tombolo mc verify --kubeconfig k '/a b/it'\''s' north`},
		{m.Clusters[1].Observe, "tombolo observe --kubeconfig k --context north"},
		{m.Clusters[1].Problems[0].Command, "kubectl --context north auth can-i create pods/exec -n kube-system"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("command %s\nwant    %s", pair[0], pair[1])
		}
	}
}

// TestOddTimes shows a condition of the year 10000, which JSON has no text for, and then a Model with such a time.
func TestOddTimes(t *testing.T) {
	s := page.New(page.Size{Clusters: 1, Gateways: 1, Nodes: 1})
	var odd metav1.Time
	if err := odd.UnmarshalJSON([]byte(`"9999-12-31T23:59:59-23:00"`)); err != nil {
		t.Fatal(err)
	}
	s[0].Sets[0].Status.Conditions[0].LastTransitionTime = odd
	s[0].Exports[0].Status.Conditions[0].LastTransitionTime = odd
	hub := ui.NewHub()
	hub.Set(time.Now(), ui.Build(s))
	host, token := serve(t, hub)
	r := open(t, host, token)
	r.next()
	have := string(r.has["cluster:shop/east"])
	if !strings.Contains(have, `"type":"Ready"`) || strings.Contains(have, "since") {
		t.Errorf("the cluster is %s, want it with a condition without a time", have)
	}
	m := ui.Build(s)
	m.Clusters[0].Seen[0].Condition.Since = odd.Time
	hub.Set(time.Now(), m)
	if have := r.next(); !slices.Contains(have, "-cluster:shop/east") || len(r.has["services"]) == 0 {
		t.Errorf("sections %v, want that of the cluster gone and the others there", have)
	}
}

// TestBuildMany compares the counts of a large ClusterSet with its ways, which are built link by link.
func TestBuildMany(t *testing.T) {
	s := page.New(page.Size{Clusters: 40, Gateways: 4, Nodes: 8})
	page.SetWay(&s[7], "node-2", "10.10.0.3", mcv1alpha1.WayDown)
	s[11].Reach = ui.Silent
	s = s[:39] // no context shows the last one
	m := ui.Build(s)
	if n := 40 * 39 / 2; len(m.Links) != n {
		t.Fatalf("%d links, want %d", len(m.Links), n)
	}
	hub := ui.NewHub()
	hub.Set(time.Now(), m)
	for i, l := range m.Links {
		if len(l.Ways) > 0 {
			t.Fatalf("link %s has its ways in the Model", l.Key)
		}
		if faulty := l.State != ui.OK && l.State != ui.Unknown; !faulty && i%20 > 0 {
			continue // each link costs some milliseconds
		}
		full, ok := hub.Link(l.Key)
		var ab, ba ui.Count
		for _, w := range full.Ways {
			for _, d := range []struct {
				to *ui.Count
				ui.Direction
			}{{&ab, w.AB}, {&ba, w.BA}} {
				switch d.State {
				case ui.OK:
					d.to.Up++
				case ui.Bad:
					d.to.Down++
				default:
					d.to.Unknown++
				}
			}
		}
		if !ok || len(full.Ways) != 16 || ab != l.AB || ba != l.BA {
			t.Errorf("link %s: %v %v, and its %d ways are %v %v", l.Key, l.AB, l.BA, len(full.Ways), ab, ba)
		}
	}
}

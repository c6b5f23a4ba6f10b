package diagnose

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// TestSummarize changes one fact of a healthy ClusterSet each time, and wants the fault in the summary of its cluster.
func TestSummarize(t *testing.T) {
	const own = "v0.1.0"
	start := func() Facts {
		f := healthy()
		for i := range f.Clusters {
			for j := range f.Clusters[i].Agents {
				f.Clusters[i].Agents[j].Status.Version = own
			}
		}
		return f
	}
	for _, s := range Summarize(start(), own) {
		if !s.OK || s.Nodes != (Ready{3, 3}) || s.Controllers.Ready != s.Controllers.All || s.Controllers.All < 3 ||
			s.ClusterSet != "set" || s.ID != s.Cluster || s.Ways.All == 0 || s.Ways.Ready != s.Ways.All ||
			(len(s.Leads) == 1) != (s.Cluster == "north") || s.Agents[own] != 3 {
			t.Errorf("healthy: %+v", s)
		}
	}
	east := func(f *Facts) *Cluster { return &f.Clusters[1] }
	for _, row := range []struct {
		name   string
		change func(*Facts)
		want   string
	}{
		{"API server", func(f *Facts) { east(f).Fault = "refused" }, "the API server does not answer: refused"},
		{"agent", func(f *Facts) { east(f).Agents[2].Status, east(f).Agents[2].Fault = nil, "no Pod" },
			"Node node-3: no Pod"},
		{"no agent", func(f *Facts) { east(f).Agents[2].Status = nil }, "Node node-3: it has no agent"},
		{"not ready", func(f *Facts) {
			s := east(f).Agents[0].Status
			s.Ready, s.Waiting = false, []string{"no connection to the OVSDB"}
		}, "Node node-1: its network is not ready: no connection to the OVSDB"},
		{"Problem", func(f *Facts) {
			east(f).Agents[1].Status.Problems = []api.Problem{{Object: "Pod a/b", Field: "spec", Reason: "Bad", Message: "x"}}
		}, "Node node-2: Pod a/b spec: Bad: x"},
		{"many Problems", func(f *Facts) { east(f).Agents[1].Status.Problems = make([]api.Problem, 9) },
			"Node node-2: 6 Problems more"},
		{"version", func(f *Facts) { east(f).Agents[1].Status.Version = "v0.2.0" }, "agents have 2 versions: v0.1.0, v0.2.0"},
		{"another version", func(f *Facts) {
			for _, a := range east(f).Agents {
				a.Status.Version = "v0.2.0"
			}
		}, "agents have version v0.2.0, and this command has v0.1.0"},
		{"controller", func(f *Facts) { east(f).Deployments[0].Status.ReadyReplicas = 0 },
			"Deployment kube-system/tombolo-controller has no ready Pod"},
		{"ClusterSet", func(f *Facts) {
			c := &east(f).set().Status.Conditions[0]
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Disconnected", "no answer"
		}, "ClusterSet kube-system/set is not ready: Disconnected: no answer"},
		{"no status", func(f *Facts) { east(f).set().Status = mcv1alpha2.ClusterSetStatus{} },
			"ClusterSet kube-system/set has no status"},
		{"rights", func(f *Facts) { east(f).Unread[ClusterSets] = "forbidden" }, "ClusterSets cannot be listed: forbidden"},
		{"agents' rights", func(f *Facts) { east(f).AgentsFault = "forbidden" }, "the agents cannot be listed: forbidden"},
		{"way", func(f *Facts) {
			for i, p := range east(f).Agents[0].Peers {
				if p.Kind == "Cluster" && len(p.Ways) > 0 {
					east(f).Agents[0].Peers[i].Ways[0].State = "down"
					return
				}
			}
		}, "Node node-1: the way to cluster "},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := start()
			row.change(&f)
			list := Summarize(f, own)
			if list[1].OK || len(list[1].Faults) == 0 || !strings.Contains(strings.Join(list[1].Faults, "\n"), row.want) {
				t.Errorf("%+v, want %q", list[1], row.want)
			}
			if !list[0].OK || !list[2].OK {
				t.Errorf("the other clusters: %+v, %+v", list[0], list[2])
			}
		})
	}
	f := start()
	f.Clusters[0].areas()[0].Status.ClusterStatuses[1].Conditions[0].Status = corev1.ConditionFalse
	if s := Summarize(f, own)[0]; s.OK || !strings.Contains(s.Faults[0], "member east of Common Area area is not ready") {
		t.Errorf("a member that is away: %+v", s)
	}
}

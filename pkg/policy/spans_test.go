package policy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// nodes are the names of the Nodes with Pods that each policy applies to.
func (s *Spans) nodes() map[Key][]string {
	name := map[uint32]string{}
	for _, row := range s.NodeNumbers.All() {
		name[row.Value] = string(row.Key)
	}
	out := map[Key][]string{}
	for _, row := range s.Judgements.All() {
		for _, n := range row.Value.Nodes {
			out[row.Key] = append(out[row.Key], name[n])
		}
		slices.Sort(out[row.Key])
	}
	return out
}

// TestSpans changes a cluster of two Nodes at random. After each step the Nodes of each policy are the Nodes whose own
// tables have it, the problems are both Nodes' problems, and all equals a result from nothing.
func TestSpans(t *testing.T) {
	var all []netip.Addr
	for i := range 12 {
		all = append(all, netip.AddrFrom4([4]byte{10, 10, 0, byte(1 + i)}))
	}
	engines := map[string]*derive.Engine{"node-1": derive.New(), "node-2": derive.New()}
	nodes := map[string]*Tables{}
	for name, e := range engines {
		nodes[name] = NewTables(e, name, nil).Stretched()
		nodes[name].Loaded()
	}
	engine := derive.New()
	spans := NewSpans(engine)
	spans.Loaded()
	callbacks := func(s *Spans) policytest.Watch {
		w := s.callbacks()
		w.Pod = func(namespace, name string, p *corev1.Pod) {
			observe(s.Pods, derive.Object{Namespace: namespace, Name: name}, p, SpanFactsOf)
		}
		return w
	}
	watches := []policytest.Watch{nodes["node-1"].callbacks(), nodes["node-2"].callbacks(), callbacks(spans)}
	both := watches[0]
	both.Pod = func(namespace, name string, p *corev1.Pod) {
		for _, w := range watches {
			w.Pod(namespace, name, p)
		}
	}
	both.Namespace = func(name string, n *corev1.Namespace) {
		for _, w := range watches {
			w.Namespace(name, n)
		}
	}
	both.Other = func(namespace, name string, o any) {
		for _, w := range watches {
			w.Other(namespace, name, o)
		}
	}
	walk := policytest.NewWalk(3, map[string][]netip.Addr{"node-1": all, "node-2": all}, both)
	spread := map[int]int{}
	for step := range 1000 {
		what := walk.Step()
		want := map[Key][]string{}
		wrong := map[Key]bool{}
		for _, name := range []string{"node-1", "node-2"} {
			engines[name].Pass()
			for _, row := range nodes[name].actives.active.All() {
				if row.Key.HasStatus() {
					want[row.Key] = append(want[row.Key], name)
					wrong[row.Key] = len(row.Value.Problems) > 0 || wrong[row.Key]
				}
			}
		}
		engine.Pass()
		if diff := cmp.Diff(want, spans.nodes()); diff != "" {
			t.Fatalf("step %d, %s: Nodes of policies (-theirs +spans):\n%s", step, what, diff)
		}
		for k, is := range wrong {
			if j, _ := spans.Judgements.Get(k); is && len(j.Problems) == 0 {
				t.Fatalf("step %d, %s: a Node has problems with %s that spans have not", step, what, k)
			}
		}
		for _, list := range want {
			spread[len(list)]++
		}
		if step%10 != 0 {
			continue
		}
		e := derive.New()
		fresh := NewSpans(e)
		w := callbacks(fresh)
		for _, p := range walk.Pods {
			w.Pod(p.Namespace, p.Name, p)
		}
		fill(fresh.Tables, policytest.Cluster{Namespaces: walk.Namespaces, Others: walk.Others})
		e.Pass()
		if diff := cmp.Diff(fresh.nodes(), spans.nodes()); diff != "" {
			t.Fatalf("step %d, %s: (-from nothing +incremental):\n%s", step, what, diff)
		}
		problems := func(s *Spans) map[any][]problem.Problem {
			out := map[any][]problem.Problem{}
			for _, row := range s.Judgements.All() {
				out[row.Key] = row.Value.Problems
			}
			for _, row := range s.Grouped.All() {
				out[row.Key] = row.Value.Problems
			}
			return out
		}
		if diff := cmp.Diff(problems(fresh), problems(spans)); diff != "" {
			t.Fatalf("step %d, %s: problems (-from nothing +incremental):\n%s", step, what, diff)
		}
	}
	if spread[1] < 100 || spread[2] < 100 {
		t.Errorf("policies on so many Nodes: %v: the walk is too tame", spread)
	}
}

func TestShort(t *testing.T) {
	for _, k := range []Key{{AntreaClusterNetworkPolicy, "", "web"}, {AntreaNetworkPolicy, "default", "web"},
		{ClusterNetworkPolicy, "", "a.b"}} {
		if have, ok := KeyOfShort(k.Short()); !ok || have != k {
			t.Errorf("%s is read as %v, %v", k.Short(), have, ok)
		}
	}
	for _, text := range []string{"", "/", "/web", "acnp", "acnp/", "acnp/a/b", "annp/web", "annp/a/b/c", "knp/a"} {
		if have, ok := KeyOfShort(text); ok {
			t.Errorf("%q is read as %v", text, have)
		}
	}
}

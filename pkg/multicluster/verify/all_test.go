package verify

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// members are clusters of one ClusterSet, of which each has what the others announce. The settings of their agents are
// read from an empty text.
func members(t *testing.T, names ...string) (all []Cluster) {
	t.Helper()
	for _, name := range names {
		set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "set"}}
		set.Spec.ClusterID, set.Spec.Namespace = name, "area"
		set.Status.Conditions = []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
			Status: corev1.ConditionTrue}}
		objects := []client.Object{set, &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
			Name: "node"}, GatewayIP: addressOf(names, name)}}
		for _, other := range names {
			if other == name {
				continue
			}
			objects = append(objects, &mcv1alpha1.ClusterInfoImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: other},
				Spec: mcv1alpha1.ClusterInfo{ClusterID: other,
					GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: addressOf(names, other)}}}})
		}
		all = append(all, Cluster{Name: name,
			Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()})
	}
	return all
}

func addressOf(names []string, name string) string {
	return "10.0.0." + string(rune('1'+slices.Index(names, name)))
}

// TestRunAll checks all pairs of three clusters, of which one is no member, and reports what is asked for, and what
// fails before it.
func TestRunAll(t *testing.T) {
	clusters := members(t, "east", "west", "north")
	clusters = append(clusters, Cluster{Name: "lost", Client: fake.NewClientBuilder().WithScheme(Scheme()).Build()})
	for _, row := range []struct {
		only []string
		want []string
	}{
		{[]string{kindImport}, []string{
			"east west: pass import east, pass import west",
			"east north: pass import east, pass import north",
			"east lost: fail member lost, fail gateways lost",
			"west north: pass import west, pass import north",
			"west lost: fail member lost, fail gateways lost",
			"north lost: fail member lost, fail gateways lost"}},
		{[]string{kindAPI, kindWays}, []string{
			"east west: pass API server east, pass API server west, pass ways east to west, pass ways west to east",
			"east north: pass API server east, pass API server north, pass ways east to north, pass ways north to east",
			"east lost: pass API server east, pass API server lost, fail member lost, fail gateways lost",
			"west north: pass API server west, pass API server north, pass ways west to north, pass ways north to west",
			"west lost: pass API server west, pass API server lost, fail member lost, fail gateways lost",
			"north lost: pass API server north, pass API server lost, fail member lost, fail gateways lost",
		}},
	} {
		t.Run(strings.Join(row.only, ","), func(t *testing.T) {
			reported := map[string]int{}
			o := Options{Namespace: "kube-system", Only: row.only,
				Agent: func([]byte) (Agent, error) { return Agent{Gateways: true}, nil }}
			pairs := RunAll(t.Context(), clusters, o, func(p Pair, _ Result) { reported[p.A+" "+p.B]++ })
			var have []string
			for _, p := range pairs {
				var results []string
				for _, r := range p.Results {
					results = append(results, r.Status+" "+r.Check)
				}
				have = append(have, p.A+" "+p.B+": "+strings.Join(results, ", "))
				if n := reported[p.A+" "+p.B]; n != len(p.Results) || p.Left != nil {
					t.Errorf("%s, %s: %d of %d results were reported; %v", p.A, p.B, n, len(p.Results), p.Left)
				}
			}
			if diff := cmp.Diff(row.want, have); diff != "" {
				t.Errorf("results (-want +have):\n%s", diff)
			}
		})
	}
}

// TestRunAllInterrupted leaves out pairs after an interrupt.
func TestRunAllInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range RunAll(ctx, members(t, "east", "west", "north"), Options{}, nil) {
		if p.Count(Skip) != 1 || len(p.Results) != 1 || p.Results[0].Detail != "interrupted" {
			t.Errorf("%s, %s: %+v", p.A, p.B, p.Results)
		}
	}
}

// TestKinds has the name of each check of a run.
func TestKinds(t *testing.T) {
	for check, want := range map[string]string{"API server east": kindAPI, "member east": kindMember,
		"ClusterSet": kindClusterSet, "MTU over IPv6 east to west": kindMTU, "failover east to west": kindFailover} {
		if have := kindOf(check); have != want {
			t.Errorf("%s: have %s, want %s", check, have, want)
		}
	}
	for _, row := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{Only: Kinds(), Disruptive: true}, ""},
		{Options{Only: []string{kindFailover}}, "the check failover interrupts the Pods of a Node: it needs --disruptive"},
		{Options{Only: []string{"ping"}}, `"ping" is not the name of a check; the names are api, member, `},
	} {
		have := ""
		if err := row.o.CheckOnly(); err != nil {
			have = err.Error()
		}
		if !strings.HasPrefix(have, row.want) || (row.want == "") != (have == "") {
			t.Errorf("have %q, want %q", have, row.want)
		}
	}
}

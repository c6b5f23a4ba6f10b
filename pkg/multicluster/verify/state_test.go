package verify

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

// pair is two members that know each other.
func pair(t *testing.T) (a, b state) {
	t.Helper()
	make := func(name, gateway string, other mcv1alpha1.ClusterInfo) state {
		set := mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "set"}}
		set.Spec.ClusterID, set.Spec.Namespace = name, "area"
		set.Status.Conditions = []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
			Status: corev1.ConditionTrue}}
		return state{
			Name: name, Agent: &Agent{Gateways: true, PodToPod: true, StretchedPolicies: true},
			Sets:     []mcv1alpha2.ClusterSet{set},
			Gateways: []mcv1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: name + "-1"}, GatewayIP: gateway}},
			Imports: []mcv1alpha1.ClusterInfoImport{{ObjectMeta: metav1.ObjectMeta{Name: other.ClusterID + "-clusterinfo"},
				Spec: other}},
		}
	}
	info := func(id, services, pods, gateway string) mcv1alpha1.ClusterInfo {
		return mcv1alpha1.ClusterInfo{ClusterID: id, ServiceCIDR: services, PodCIDRs: []string{pods},
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: gateway}}}
	}
	return make("east", "10.0.0.1", info("west", "10.98.0.0/16", "10.12.0.0/16", "10.0.0.2")),
		make("west", "10.0.0.2", info("east", "10.97.0.0/16", "10.11.0.0/16", "10.0.0.1"))
}

// all runs the checks of two members and returns what fails, with its remedy, or is left out.
func all(a, b state) string {
	var out []string
	check := func(_ string, err error) {
		if err != nil {
			out = append(out, err.Error()+" => "+remedyOf(err))
		}
	}
	for _, s := range []state{a, b} {
		check(s.member())
		check(s.gateways())
	}
	check(together(a, b))
	check(a.knows(b))
	check(b.knows(a))
	return strings.Join(append(out, podToPod(a, b), stretched(a, b)), "\n")
}

func TestObjects(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(a, b *state)
		want   string
	}{
		{"all well", func(a, b *state) {}, ""},
		{"no ClusterSet", func(a, b *state) { b.Sets = nil }, "west is in no ClusterSet => join it: tombolo mc join"},
		{"not Ready", func(a, b *state) {
			b.Sets[0].Status.Conditions[0] = mcv1alpha2.ClusterSetCondition{Type: mcv1alpha2.ClusterSetReady,
				Status: corev1.ConditionFalse, Message: "Disconnected from leader"}
			b.Sets[0].Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{
				{Conditions: []mcv1alpha2.ClusterCondition{{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionFalse,
					Reason: "Disconnected", Message: "Unauthorized"}}}}
		}, "ClusterSet set of west is not Ready: Disconnected from leader; leader: Disconnected Unauthorized"},
		{"nobody looked", func(a, b *state) { b.Sets[0].Status.Conditions = nil },
			"is not Ready: its controller has not looked at it"},
		{"one ID twice", func(a, b *state) { b.Sets[0].Spec.ClusterID = "east" },
			"east and west have the same cluster ID, east"},
		{"two ClusterSets", func(a, b *state) { b.Sets[0].Name = "other" },
			"east is in ClusterSet set (area), west in other (area)"},
		{"no gateway", func(a, b *state) { b.Gateways = nil }, "west has no Gateway => annotate a Ready Node"},
		{"gateways elsewhere", func(a, b *state) { b.Sets[0].Namespace = "multi" },
			"the agents of west look for Gateways in Namespace kube-system, and its controller is in multi => set " +
				"multicluster.namespace: multi in antrea-agent.conf"},
		{"a controller elsewhere, which its agents know",
			func(a, b *state) { b.Sets[0].Namespace, b.Agent.GatewayNamespace = "multi", "multi" }, ""},
		{"gateways off", func(a, b *state) { b.Agent.Gateways = false },
			"the agents of west have featureGates.Multicluster or multicluster.enableGateway off"},
		{"not imported", func(a, b *state) { a.Imports = nil }, "east has no ClusterInfoImport of west"},
		{"another gateway", func(a, b *state) { b.Gateways[0].GatewayIP = "10.0.0.9" },
			"east knows gateways 10.0.0.2 of west, which has 10.0.0.9"},
		{"one of two gateways known",
			func(a, b *state) { b.Gateways = append(b.Gateways, mcv1alpha1.Gateway{GatewayIP: "10.0.0.9"}) }, ""},
		{"ranges meet", func(a, b *state) { a.Imports[0].Spec.PodCIDRs = []string{"10.11.128.0/17"} },
			"range 10.11.128.0/17 of west meets 10.11.0.0/16 of east"},
		{"refused", func(a, b *state) {
			a.Imports[0].Status.Conditions = []mcv1alpha1.ClusterInfoImportCondition{{Type: mcv1alpha1.ClusterInfoReady,
				Status: corev1.ConditionFalse, Reason: "Overlap", Message: "x"}}
		}, "ClusterInfoImport west-clusterinfo of east: Overlap x"},
		{"Pods off", func(a, b *state) { b.Agent.PodToPod = false },
			"multicluster.enablePodToPodConnectivity is off in west"},
		{"no Pod ranges", func(a, b *state) { a.Imports[0].Spec.PodCIDRs = nil }, "west announces no Pod ranges"},
		{"policies off", func(a, b *state) { a.Agent.StretchedPolicies = false },
			"multicluster.enableStretchedNetworkPolicy is off in east"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b := pair(t)
			row.change(&a, &b)
			have := all(a, b)
			if row.want == "" && strings.TrimSpace(have) != "" || !strings.Contains(have, row.want) {
				t.Errorf("have %q, want %q", have, row.want)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	a, b := pair(t)
	r := &run{states: [2]state{a, b}}
	good := probe.Answer{Answered: 20, Client: "10.0.0.1:7", LinkMTU: 1450, Largest: 1450}
	with := func(change func(*probe.Answer)) probe.Answer { x := good; change(&x); return x }
	for _, row := range []struct {
		name   string
		answer probe.Answer
		want   string
	}{
		{"all well", good, ""},
		{"none", with(func(a *probe.Answer) { a.Answered, a.Error = 0, "timeout" }),
			"no answer: timeout => let tunnels through between the Gateways 10.0.0.1 and 10.0.0.2"},
		{"some", with(func(a *probe.Answer) { a.Failed, a.Error = 5, "timeout" }),
			"5 of 25 requests failed, the last: timeout => let"},
		{"a path with a smaller MTU", with(func(a *probe.Answer) { a.Largest = 1400 }),
			"the largest packet that passes has 1400 bytes, Pods send up to 1450 => set defaultMTU"},
		{"and nothing says so", with(func(a *probe.Answer) { a.Largest, a.BulkError = 1400, "timeout" }),
			"small requests pass and a large one does not: timeout; the largest packet that passes has 1400 of 1450 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			have := ""
			for _, judge := range []func(probe.Answer) (string,
				error){func(a probe.Answer) (string, error) { return r.judge(0, a) }, size} {
				if _, err := judge(row.answer); err != nil {
					have += err.Error() + " => " + remedyOf(err) + "\n"
				}
			}
			if row.want == "" && have != "" || !strings.Contains(have, row.want) {
				t.Errorf("have %q, want %q", have, row.want)
			}
		})
	}
}

// TestRead reads a member whose controller is not where the agents are.
func TestRead(t *testing.T) {
	info := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: "multi", Name: "west-clusterinfo"}}
	elsewhere := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "old"}}
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "antrea-config"},
		Data:       map[string]string{"antrea-agent.conf": "multi"},
	}
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "tombolo-agent"}}
	agents.Spec.Template.Spec.Containers = []corev1.Container{{Image: "tombolo/tombolo-agent:dev"}}
	c := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(
		&mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "multi", Name: "set"}},
		&mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "multi", Name: "node-1"}},
		info, elsewhere, settings, agents).Build()
	options := Options{Namespace: "multi",
		Agent: func(text []byte) (Agent, error) { return Agent{GatewayNamespace: string(text)}, nil }}
	s, err := read(t.Context(), Cluster{Name: "east", Client: c}, options)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Sets) != 1 || len(s.Gateways) != 1 || s.Gateways[0].Name != "node-1" || len(s.Imports) != 1 ||
		s.Agent == nil || s.Agent.GatewayNamespace != "multi" ||
		s.Image != "tombolo/tombolo-agent:dev" {
		t.Errorf("have %+v", s)
	}
}

// TestSettled has members that become Ready while a verification looks, and some that need an action.
func TestSettled(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(a *state) // before the first look
		ready  time.Duration  // when the ClusterSet becomes Ready; 0: never
		takes  time.Duration
		fails  string // names of the checks that fail
	}{
		{name: "all is well", change: func(*state) {}},
		{name: "Ready in time", ready: 4500 * time.Millisecond, takes: 5 * time.Second,
			change: func(a *state) { a.Sets[0].Status.Conditions[0].Status = corev1.ConditionFalse }},
		{name: "never Ready", takes: 20 * time.Second, fails: "member east",
			change: func(a *state) { a.Sets[0].Status.Conditions[0].Status = corev1.ConditionFalse }},
		{name: "no import", takes: 20 * time.Second, fails: "import east", change: func(a *state) { a.Imports = nil }},
		{name: "no Gateway, and not Ready", fails: "member east,gateways east",
			change: func(a *state) {
				a.Sets[0].Status.Conditions[0].Status, a.Gateways = corev1.ConditionFalse, nil
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := pair(t)
				row.change(&a)
				r := &run{clusters: [2]Cluster{served(t, a), served(t, b)}, Options: Options{Namespace: "kube-system",
					Limit: 20 * time.Second, Agent: func([]byte) (Agent, error) { return Agent{Gateways: true}, nil }}}
				start := time.Now()
				if row.ready > 0 {
					time.AfterFunc(row.ready, func() {
						var set mcv1alpha2.ClusterSet
						c := r.clusters[0].Client
						err := c.Get(t.Context(), client.ObjectKeyFromObject(&a.Sets[0]), &set)
						if err == nil {
							set.Status.Conditions[0].Status = corev1.ConditionTrue
							err = c.Update(t.Context(), &set)
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				var fails []string
				for _, c := range r.settled(t.Context()) {
					if c.err != nil {
						fails = append(fails, c.name)
					}
				}
				if took := time.Since(start); took != row.takes || strings.Join(fails, ",") != row.fails {
					t.Errorf("fails %q after %s, want %q after %s", fails, took, row.fails, row.takes)
				}
			})
		})
	}
}

// served returns a cluster whose API server has the objects of a member.
func served(t *testing.T, s state) Cluster {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(Scheme())
	for i := range s.Sets {
		c.WithObjects(&s.Sets[i])
	}
	for i := range s.Gateways {
		s.Gateways[i].Namespace = "kube-system"
		c.WithObjects(&s.Gateways[i])
	}
	for i := range s.Imports {
		s.Imports[i].Namespace = "kube-system"
		c.WithObjects(&s.Imports[i])
	}
	return Cluster{Name: s.Name, Client: c.Build()}
}

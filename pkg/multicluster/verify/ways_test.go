package verify

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

// TestWays has what the ways from east to west are found to be.
func TestWays(t *testing.T) {
	const up, down, unknown = mcv1alpha1.WayUp, mcv1alpha1.WayDown, mcv1alpha1.WayUnknown
	ways := func(states ...mcv1alpha1.WayState) (out []mcv1alpha1.WayStatus) {
		for i, state := range states {
			out = append(out, mcv1alpha1.WayStatus{ClusterID: "west", To: "10.0.0." + string(rune('2'+i)), State: state})
		}
		return out
	}
	reachable := func(s *state, cluster string, status corev1.ConditionStatus, reason string) {
		s.Sets[0].Status.ClusterStatuses = append(s.Sets[0].Status.ClusterStatuses,
			mcv1alpha2.ClusterStatus{ClusterID: cluster, Conditions: []mcv1alpha2.ClusterCondition{
				{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionTrue},
				{Type: mcv1alpha2.ClusterReachable, Status: status, Reason: reason, Message: "as said"}}})
	}
	const remedy = " => check that the Nodes of these Gateways run, that 10.0.0.2 are addresses at which west is " +
		"reached, and that firewalls let tunnels through both ways (UDP 6081 for geneve, 4789 for vxlan, 51821 and 51822 " +
		"for WireGuard; GRE is IP protocol 47); `tombolo get peers` on the Nodes shows each way"
	for _, row := range []struct {
		name   string
		change func(a, b *state)
		want   string // how it is, or what is wrong => the remedy
	}{
		{"all are up", func(a, _ *state) {
			a.Gateways[0].Status.Ways = append(ways(up, up),
				mcv1alpha1.WayStatus{ClusterID: "south", To: "10.0.0.9", State: down})
			reachable(a, "west", corev1.ConditionTrue, "AllWaysUp")
			reachable(a, "south", corev1.ConditionFalse, "AllWaysDown")
		}, "2 of 2 ways from east to west are up"},
		{"one is down", func(a, _ *state) { a.Gateways[0].Status.Ways = ways(up, down) },
			"1 of 2 ways from east to west are up; down: from Gateway east-1 (10.0.0.1) to 10.0.0.3" + remedy},
		{"all are down", func(a, _ *state) {
			a.Gateways[0].Status.Ways = ways(down)
			reachable(a, "west", corev1.ConditionFalse, "AllWaysDown")
		}, "0 of 1 ways from east to west are up; down: from Gateway east-1 (10.0.0.1) to 10.0.0.2" + remedy},
		{"the Node is not Ready", func(a, _ *state) {
			a.Gateways[0].Status.Ways = ways(unknown)
			reachable(a, "west", corev1.ConditionUnknown, "WaysUnknown")
		}, "0 of 1 ways from east to west are up; unknown, since the Node is not Ready: from Gateway east-1 (10.0.0.1) to " +
			"10.0.0.2 => see `kubectl describe node` of these Gateways' Nodes, and the Pods of tombolo-agent on them"},
		{"a Gateway that comes does not count", func(a, _ *state) {
			joining := mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "east-2",
				Annotations: map[string]string{multicluster.AnnotationPhase: multicluster.PhaseJoining}}}
			joining.Status.Ways, a.Gateways[0].Status.Ways = ways(down), ways(up)
			a.Gateways = append(a.Gateways, joining)
		}, "1 of 1 ways from east to west are up"},
		{"a way to a gateway that goes does not count", func(a, _ *state) {
			a.Gateways[0].Status.Ways = ways(up, down)
			a.Imports[0].Spec.LeavingGateways = []mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.3"}}
		}, "1 of 1 ways from east to west are up"},
		{"the ClusterSet says that west is gone", func(a, _ *state) {
			a.Gateways[0].Status.Ways = ways(up)
			reachable(a, "west", corev1.ConditionFalse, "ClusterGone")
		}, "1 of 1 ways from east to west are up, and yet ClusterSet set of east has Reachable=False of west: ClusterGone " +
			"as said => see `kubectl get clusterset -n kube-system set -o yaml` in that cluster, and the log of " +
			"antrea-mc-controller"},
		{"a peer without BFD", func(_, _ *state) {},
			"east does not watch its ways to west, which does not announce the feature ActiveGateways: a lost one is found by " +
				"requests that fail"},
		{"a peer that does not watch single ways", func(a, _ *state) {
			a.Imports[0].Spec.Features = []string{mcv1alpha1.FeatureActiveGateways}
		}, "east does not watch its ways to west, which does not announce the feature SingleWays and has one gateway, as " +
			"this cluster has: a lost one is found by requests that fail"},
		{"nothing is reported", func(a, _ *state) {
			a.Imports[0].Spec.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
		}, "east does not watch its ways to west: a lost one is found by requests that fail"},
		{"west is behind NAT", func(a, _ *state) {
			a.Gateways[0].Status.Ways = ways(down)
			a.Sets[0].Annotations = map[string]string{multicluster.AnnotationTunnelSources + "west": "203.0.113.7"}
		}, "0 of 1 ways from east to west are up; tunnels come from other addresses than are announced (annotation " +
			"tunnel-sources.multicluster.antrea.io/CLUSTER-ID), so BFD may not find ways that work"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b := pair(t)
			row.change(&a, &b)
			have, err := a.ways(b)
			if err != nil {
				have = err.Error() + " => " + remedyOf(err)
			}
			if diff := cmp.Diff(row.want, have); diff != "" {
				t.Errorf("want -, have +:\n%s", diff)
			}
		})
	}
}

// serverOn is an API server that has the server's Pod, on a Node.
type serverOn struct {
	client.Client
	node string // "" for no Pod
}

func (s serverOn) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	pod, ok := o.(*corev1.Pod)
	if !ok || s.node == "" {
		return errors.New("not found")
	}
	pod.Spec.NodeName = s.node
	return nil
}

// disrupted is a run about two members, of which west has Gateways on some Nodes, and its server on one.
func disrupted(t *testing.T, server string, gateways ...mcv1alpha1.Gateway) *run {
	t.Helper()
	a, b := pair(t)
	b.Gateways = gateways
	return &run{name: "tombolo-verify-x", states: [2]state{a, b},
		clusters: [2]Cluster{{Name: "east", Client: serverOn{node: "east-1"}},
			{Name: "west", Client: serverOn{node: server}}}}
}

func on(node, phase string) mcv1alpha1.Gateway {
	g := mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if phase != "" {
		g.Annotations = map[string]string{multicluster.AnnotationPhase: phase}
	}
	return g
}

// TestToLose chooses a Gateway that another carries on for, and that the server is not on.
func TestToLose(t *testing.T) {
	const second = "west has no second Gateway: annotate another Ready Node with multicluster.antrea.io/gateway=true"
	for _, row := range []struct {
		name     string
		server   string
		gateways []mcv1alpha1.Gateway
		node     string
		why      string
	}{
		{"the server is on the first", "node-1", []mcv1alpha1.Gateway{on("node-1", ""), on("node-2", "")}, "node-2", ""},
		{"the server is on the second", "node-2", []mcv1alpha1.Gateway{on("node-1", ""), on("node-2", "")}, "node-1", ""},
		{"the server is on no Gateway", "node-9", []mcv1alpha1.Gateway{on("node-1", ""), on("node-2", "")}, "node-2", ""},
		{"one Gateway", "node-9", []mcv1alpha1.Gateway{on("node-1", "")}, "", second},
		{"no Gateway", "node-9", nil, "", second},
		{"the second comes", "node-9", []mcv1alpha1.Gateway{on("node-1", ""), on("node-2", multicluster.PhaseJoining)}, "",
			second},
		{"of three one goes", "node-1",
			[]mcv1alpha1.Gateway{on("node-1", ""), on("node-2", ""), on("node-3", multicluster.PhaseLeaving)}, "node-2", ""},
		{"the server is gone", "", []mcv1alpha1.Gateway{on("node-1", ""), on("node-2", "")}, "",
			"Pod tombolo-verify-x/server in west: not found"},
	} {
		t.Run(row.name, func(t *testing.T) {
			node, why := disrupted(t, row.server, row.gateways...).toLose(t.Context(), 1)
			if node != row.node || why != row.why {
				t.Errorf("have %q, %q, want %q, %q", node, why, row.node, row.why)
			}
		})
	}
}

// TestFailoverIsSkipped says why there is no failover where there is one Gateway, or no Service.
func TestFailoverIsSkipped(t *testing.T) {
	for _, row := range []struct {
		services [2][]netip.Addr
		want     []Result
	}{
		{[2][]netip.Addr{{netip.MustParseAddr("10.97.0.1")}, {netip.MustParseAddr("10.98.0.1")}}, []Result{
			{Check: "failover west to east", Status: Skip,
				Detail: "east has no second Gateway: annotate another Ready Node with multicluster.antrea.io/gateway=true"},
			{Check: "failover east to west", Status: Skip,
				Detail: "west has no second Gateway: annotate another Ready Node with multicluster.antrea.io/gateway=true"}}},
		{[2][]netip.Addr{}, []Result{
			{Check: "failover west to east", Status: Skip, Detail: "not tried: mend the above first"},
			{Check: "failover east to west", Status: Skip, Detail: "not tried: mend the above first"}}},
	} {
		r := disrupted(t, "node-2", on("node-1", ""))
		r.failovers(t.Context(), row.services)
		if diff := cmp.Diff(row.want, r.results.list); diff != "" {
			t.Errorf("results (-want +have):\n%s", diff)
		}
	}
}

// TestLost holds what a failover may cost to what BFD takes.
func TestLost(t *testing.T) {
	answer := func(away time.Duration) probe.Answer {
		return probe.Answer{Answered: 90, Failed: 10, Away: away, Error: "timeout"}
	}
	const remedy = " => see `tombolo get peers` on the Gateways' Nodes"
	for _, row := range []struct {
		name       string
		interval   time.Duration // of BFD in west; zero where its configuration cannot be read
		multiplier int
		answer     probe.Answer
		most       time.Duration
		want       string
	}{
		{"within BFD's time", 100 * time.Millisecond, 3, answer(280 * time.Millisecond), 3 * time.Second,
			"Open vSwitch of Gateway node-2 did not run: new connections failed for 280ms, 10 of 100"},
		{"as long as it may be", 100 * time.Millisecond, 3, answer(3 * time.Second), 3 * time.Second,
			"Open vSwitch of Gateway node-2 did not run: new connections failed for 3s, 10 of 100"},
		{"longer", 100 * time.Millisecond, 3, answer(3001 * time.Millisecond), 3 * time.Second,
			"while Open vSwitch of Gateway node-2 did not run, new connections failed for 3.001s, 10 of 100, expected at most " +
				"3s; the last: timeout" + remedy},
		{"with a slow BFD", time.Second, 3, answer(5 * time.Second), 6 * time.Second,
			"Open vSwitch of Gateway node-2 did not run: new connections failed for 5s, 10 of 100"},
		{"with an unknown configuration", 0, 0, answer(4 * time.Second), 3 * time.Second,
			"while Open vSwitch of Gateway node-2 did not run, new connections failed for 4s"},
		{"no answer", 100 * time.Millisecond, 3, probe.Answer{Failed: 10, Error: "refused"}, 3 * time.Second,
			"no answer: refused" + remedy},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := disrupted(t, "node-1")
			if row.interval == 0 {
				r.states[1].Agent = nil
			} else {
				r.states[1].Agent.WayDownAfter = time.Duration(row.multiplier) * row.interval
			}
			if have := r.awayMost(); have != row.most {
				t.Errorf("connections may be lost for %s, want %s", have, row.most)
			}
			have, err := r.lost("node-2", row.answer)
			if err != nil {
				have = err.Error() + " => " + remedyOf(err)
			}
			if !strings.HasPrefix(have, row.want) {
				t.Errorf("have %q, want %q", have, row.want)
			}
		})
	}
}

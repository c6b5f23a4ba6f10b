// Package page has ClusterSets for tests of the map, and tests the page in Chromium.
package page

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
)

// namespace has the member's objects.
const namespace = "kube-system"

// at is the time of the fixtures.
var at = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// Size is how large a ClusterSet is.
type Size struct{ Clusters, Gateways, Nodes int }

// name returns the ID of a cluster: three have names.
func (s Size) name(i int) string {
	if s.Clusters <= 3 {
		return []string{"east", "north", "west"}[i]
	}
	return fmt.Sprintf("cluster-%03d", i+1)
}

func address(cluster, gateway int) string { return fmt.Sprintf("10.%d.0.%d", cluster+1, gateway+1) }

// New returns a ClusterSet in which all is well. Its second cluster leads.
func New(s Size) []ui.Snapshot {
	var all []ui.Snapshot
	for i := range s.Clusters {
		all = append(all, s.cluster(i))
	}
	return all
}

func (s Size) cluster(i int) ui.Snapshot {
	id := s.name(i)
	leader := mcv1alpha2.LeaderClusterInfo{ClusterID: s.name(1), Server: "https://10.2.0.100:6443"}
	set := &mcv1alpha2.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: id, Leaders: []mcv1alpha2.LeaderClusterInfo{leader},
			Namespace: "shop-area"},
		Status: mcv1alpha2.ClusterSetStatus{Conditions: []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
			Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Add(-time.Hour))}}},
	}
	out := ui.Snapshot{Access: ui.Access{Name: id, Arg: id, Kubectl: []string{"--context", id}}, Reach: ui.Live,
		Listed: true, AsOf: at, Version: "v1.37.1", Sets: []*mcv1alpha2.ClusterSet{set}, Agents: map[string]ui.Agent{},
		Policies: map[string]int{"NetworkPolicy": 12, "Antrea ClusterNetworkPolicy": 3}}
	for n := range s.Nodes {
		node := fmt.Sprintf("node-%d", n+1)
		out.Nodes = append(out.Nodes, ui.NodeFacts{Name: node, Ready: "True", Kubelet: "v1.37.1",
			Addresses: fmt.Sprintf("10.%d.%d.%d", i+1, n/250, n%250+1)})
		out.Agents[node] = ui.Agent{AsOf: at, Status: api.Status{Node: node, Version: "v0.1.0", Ready: true}}
	}
	for g := range s.Gateways {
		gateway := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("node-%d", g+1)},
			GatewayIP: address(i, g), InternalIP: address(i, g)}
		for j := range s.Clusters {
			for h := range s.Gateways {
				if j != i {
					gateway.Status.Ways = append(gateway.Status.Ways, mcv1alpha1.WayStatus{ClusterID: s.name(j), To: address(j, h),
						State: mcv1alpha1.WayUp})
				}
			}
		}
		out.Gateways = append(out.Gateways, gateway)
	}
	for j := range s.Clusters {
		if j == i {
			continue
		}
		object := metav1.ObjectMeta{Namespace: namespace, Name: s.name(j) + "-clusterinfo"}
		info := &mcv1alpha1.ClusterInfoImport{ObjectMeta: object, Spec: mcv1alpha1.ClusterInfo{ClusterID: s.name(j),
			ServiceCIDR: fmt.Sprintf("10.96.%d.0/24", j), PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", 100+j)}}}
		for h := range s.Gateways {
			info.Spec.GatewayInfos = append(info.Spec.GatewayInfos, mcv1alpha1.GatewayInfo{GatewayIP: address(j, h)})
		}
		out.Infos = append(out.Infos, info)
	}
	web := []string{"shop/web", "shop/cart", "pay/ledger"}
	for n, name := range web {
		space, short, _ := strings.Cut(name, "/")
		object := metav1.ObjectMeta{Namespace: space, Name: short}
		if (i+n)%3 != 1 {
			export := &mcsv1alpha1.ServiceExport{ObjectMeta: object}
			export.Status.Conditions = []metav1.Condition{condition("Valid", metav1.ConditionTrue, "Succeed", ""),
				condition("Ready", metav1.ConditionTrue, "Exported", ""),
				condition("Conflict", metav1.ConditionFalse, "NoConflicts", "")}
			out.Exports = append(out.Exports, export)
		}
		imported := &mcsv1alpha1.ServiceImport{ObjectMeta: object}
		imported.Spec.Ports = []mcsv1alpha1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
		imported.Spec.IPs = []string{fmt.Sprintf("10.96.%d.%d", i, 20+n)}
		for j := range min(s.Clusters, 4) {
			if (j+n)%3 != 1 {
				imported.Status.Clusters = append(imported.Status.Clusters, mcsv1alpha1.ClusterStatus{Cluster: s.name(j)})
			}
		}
		out.Imports = append(out.Imports, imported)
	}
	return out
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(at.Add(-time.Hour))}
}

// SetWay changes the state of the way from a Gateway to an address.
func SetWay(from *ui.Snapshot, gateway, to string, state mcv1alpha1.WayState) {
	for _, g := range from.Gateways {
		for i := range g.Status.Ways {
			if w := &g.Status.Ways[i]; g.Name == gateway && w.To == to {
				w.State = state
			}
		}
	}
}

// Three returns three clusters with faults: a way that is down in one direction, a way that is down in both, an export
// with a conflict, a Gateway that leaves, and a Node with a problem.
func Three() []ui.Snapshot {
	all := New(Size{Clusters: 3, Gateways: 2, Nodes: 4})
	east, north, west := &all[0], &all[1], &all[2]
	SetWay(east, "node-1", address(2, 1), mcv1alpha1.WayDown)
	SetWay(east, "node-2", address(1, 0), mcv1alpha1.WayDown)
	SetWay(north, "node-1", address(0, 1), mcv1alpha1.WayDown)
	west.Gateways[1].Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseLeaving}
	west.Exports[0].Status.Conditions = []metav1.Condition{condition("Valid", metav1.ConditionTrue, "Succeed", ""),
		condition("Conflict", metav1.ConditionTrue, "PortsConflict",
			"Ports of shop/web differ in clusters east and west. The ports of east, which exported first, are used.")}
	agent := west.Agents["node-3"]
	agent.Status.Problems = []api.Problem{{Object: "ClusterNetworkPolicy strict", Field: "spec.ingress[0].from[0]",
		Reason:  "UnknownGroup",
		Message: "The rule names ClusterGroup web, which does not exist. Create it, or change the rule."}}
	west.Agents["node-3"] = agent
	return all
}

// Cut returns the clusters of Three with further faults: one whose API server no longer answers, one that refuses
// access, and one for which there is no context.
func Cut() []ui.Snapshot {
	all := Three()
	all[2].Reach, all[2].Why = ui.Silent, "Get \"https://10.3.0.100:6443/version\": dial tcp 10.3.0.100:6443: i/o timeout"
	all[2].AsOf = at.Add(-3 * time.Minute)
	refused := ui.Snapshot{Access: ui.Access{Name: "south", Arg: "south", Kubectl: []string{"--context", "south"}},
		Reach: ui.Refused, Why: "the server has asked for the client to provide credentials"}
	return append([]ui.Snapshot{all[0], all[2]}, refused)
}

// bad is a text with markup.
const bad = `<img src=x onerror="document.title='owned'"><script>document.title="owned"</script>`

// Hostile returns three clusters in which all texts that others choose have markup.
func Hostile() []ui.Snapshot {
	all := Three()
	for i := range all {
		s := &all[i]
		s.Version = bad
		for _, set := range s.Sets {
			for c := range set.Status.Conditions {
				set.Status.Conditions[c].Message, set.Status.Conditions[c].Reason = bad, bad
			}
			set.Name = bad
		}
		for _, g := range s.Gateways {
			g.Name += bad
			g.Annotations = map[string]string{multicluster.AnnotationPhase: bad}
		}
		for _, info := range s.Infos {
			info.Spec.ServiceCIDR = bad
			info.Status.Conditions = []mcv1alpha1.ClusterInfoImportCondition{{Type: mcv1alpha1.ClusterInfoReady, Status: "False",
				Reason: bad, Message: bad}}
		}
		for _, e := range s.Exports {
			e.Name += bad
			e.Status.Conditions = []metav1.Condition{condition(bad, metav1.ConditionFalse, bad, bad)}
		}
		for n := range s.Nodes {
			s.Nodes[n].Kubelet = bad
		}
		s.Agents["node-1"] = ui.Agent{AsOf: at, Status: api.Status{Version: bad, Ready: true,
			Problems: []api.Problem{{Object: bad, Reason: bad, Message: bad}}}}
	}
	all[0].Sets[0].Spec.ClusterID = bad
	return all
}

// Answers are those to questions about the connections of recorded packets. All texts have Name in them.
type Answers struct{ Name string }

// Why is for ui.Questions.
func (a Answers) Why(_ context.Context, _, node string, query url.Values) (api.Why, error) {
	ledger := api.WhyEnd{Kind: "Pod", Name: query.Get("to"), Address: "10.101.3.9", Node: "node-3"}
	return api.Why{From: api.WhyEnd{Kind: "Pod", Name: query.Get("from"), Address: "10.101.2.7", Node: "node-2"},
		To: ledger, Connections: []api.WhyConnection{{To: ledger, Protocol: "tcp", Port: 5432, Stages: []api.WhyStage{
			{Direction: "egress", Node: "node-2", Allowed: true, Reason: "no policy applies", Pod: "shop/" + a.Name},
			{Direction: "ingress", Node: node, Reason: "isolated by NetworkPolicy pay/" + a.Name, Pod: "pay/" + a.Name,
				Policies: []string{"NetworkPolicy pay/" + a.Name}, Trace: &api.WhyTrace{Judged: true, Agrees: true}},
		}}}}, nil
}

// Trace is for ui.Questions.
func (a Answers) Trace(context.Context, follow.Question) (follow.Answer, error) {
	hop := func(cluster, node string, end api.HopEnd, tables ...string) hops.Hop {
		h := hops.Hop{Cluster: cluster, Hop: api.Hop{Node: node, End: end}}
		for _, table := range tables {
			h.Steps = append(h.Steps, api.HopStep{Table: table})
		}
		return h
	}
	first := hop("east", "node-2", api.HopEnd{Verdict: api.HopForwarded, Next: &api.HopNext{Node: "node-1"}}, "Classifier",
		"EgressRule", "Output")
	first.Steps[1].Rule = "NetworkPolicy shop/" + a.Name + " egress[0]"
	first.Choices = []api.HopChoice{{Buckets: []api.HopBucket{{To: "10.102.0.9", Name: a.Name}, {To: "10.102.0.8"}}}}
	return follow.Answer{Paths: []hops.Path{{Hops: []hops.Hop{first,
		hop("east", "node-1", api.HopEnd{Verdict: api.HopForwarded, Next: &api.HopNext{Cluster: "west", Gateway: "10.3.0.1"}},
			"Classifier", "Route"),
		hop("west", "node-1", api.HopEnd{Verdict: api.HopDropped, Table: "IngressRule", Reason: "isolated", Message: a.Name},
			"Classifier", "IngressRule"),
	}, End: hops.End{Verdict: api.HopDropped, Cluster: "west", Node: "node-1",
		Text: "dropped at Node west/node-1, in table IngressRule (isolated): " + a.Name}}}}, nil
}

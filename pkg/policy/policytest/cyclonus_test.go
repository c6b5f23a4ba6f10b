package policytest_test

import (
	"flag"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

var (
	seed  = flag.Uint64("cyclonus.seed", 1, "seed of the random clusters that cyclonus judges")
	steps = flag.Int("cyclonus.steps", 1000, "steps of the random walk that cyclonus judges")
)

// TestCyclonusNotIn is the one deviation of cyclonus that the walk meets: there NotIn does not match an object without
// the label. In Kubernetes it does. alternatives is the answer to it; it goes when this test fails.
func TestCyclonusNotIn(t *testing.T) {
	s := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
		Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}}
	kubernetes, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		t.Fatal(err)
	}
	if have, want := kube.IsLabelsMatchLabelSelector(nil, s), false; have != want {
		t.Errorf("app notin (a) matches an object without labels: cyclonus says %v, which it did not", have)
	}
	if !kubernetes.Matches(labels.Set{}) {
		t.Error("app notin (a) does not match an object without labels: Kubernetes has changed")
	}
	matches := func(s metav1.LabelSelector) bool { return kube.IsLabelsMatchLabelSelector(nil, s) }
	if !slices.ContainsFunc(alternatives(s), matches) {
		t.Error("none of the alternatives matches an object without labels")
	}
}

// alternatives returns selectors for cyclonus. One of them matches there if s matches in Kubernetes: each NotIn is one
// of NotIn and DoesNotExist.
func alternatives(s metav1.LabelSelector) []metav1.LabelSelector {
	out := []metav1.LabelSelector{{MatchLabels: s.MatchLabels}}
	for _, e := range s.MatchExpressions {
		either := []metav1.LabelSelectorRequirement{e}
		if e.Operator == metav1.LabelSelectorOpNotIn {
			either = append(either, metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		var next []metav1.LabelSelector
		for _, have := range out {
			for _, e := range either {
				next = append(next,
					metav1.LabelSelector{MatchLabels: have.MatchLabels,
						MatchExpressions: append(slices.Clone(have.MatchExpressions), e)})
			}
		}
		out = next
	}
	return out
}

// judge gives cyclonus the policies of a cluster.
func judge(c policytest.Cluster) *matcher.Policy {
	peers := func(list []networkingv1.NetworkPolicyPeer) (out []networkingv1.NetworkPolicyPeer) {
		for _, p := range list {
			// nil is another selector than an empty one.
			pods, namespaces := []*metav1.LabelSelector{nil}, []*metav1.LabelSelector{nil}
			if p.PodSelector != nil {
				pods = pointers(alternatives(*p.PodSelector))
			}
			if p.NamespaceSelector != nil {
				namespaces = pointers(alternatives(*p.NamespaceSelector))
			}
			for _, pod := range pods {
				for _, namespace := range namespaces {
					out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: p.IPBlock, PodSelector: pod,
						NamespaceSelector: namespace})
				}
			}
		}
		return out
	}
	var all []*networkingv1.NetworkPolicy
	for _, key := range slices.Sorted(maps.Keys(c.Policies)) {
		for _, pods := range alternatives(c.Policies[key].Spec.PodSelector) {
			p := c.Policies[key].DeepCopy()
			p.Spec.PodSelector = pods
			for i := range p.Spec.Ingress {
				p.Spec.Ingress[i].From = peers(p.Spec.Ingress[i].From)
			}
			for i := range p.Spec.Egress {
				p.Spec.Egress[i].To = peers(p.Spec.Egress[i].To)
			}
			all = append(all, p)
		}
	}
	return matcher.BuildNetworkPolicies(false, all)
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// cyclonus reports whether a connection may enter a Pod or, with egress, leave it. Its traffic has one name for the
// port, and a Pod may give a port several names. Rules only allow, so one allowed name is enough.
func cyclonus(p *matcher.Policy, c policytest.Cluster, egress bool, conn policytest.Connection) bool {
	peer := func(a netip.Addr) *matcher.TrafficPeer {
		out := &matcher.TrafficPeer{IP: a.String()}
		if pod := c.At(a); pod != nil && c.Namespaces[pod.Namespace] != nil {
			out.Internal = &matcher.InternalPeer{PodLabels: pod.Labels, Namespace: pod.Namespace,
				NamespaceLabels: c.Namespaces[pod.Namespace].Labels}
		}
		return out
	}
	names := []string{""}
	if pod := c.At(conn.To); pod != nil {
		for _, name := range policytest.PortNames {
			if n, ok := policytest.Called(pod, name, conn.Protocol); ok && n == int32(conn.Port) {
				names = append(names, name)
			}
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return p.IsIngressOrEgressAllowed(&matcher.Traffic{
			Source: peer(conn.From), Destination: peer(conn.To),
			ResolvedPort: int(conn.Port), ResolvedPortName: name, Protocol: conn.Protocol,
		}, !egress).IsAllowed()
	})
}

// TestCyclonus asks three about random connections in random clusters: cyclonus's matcher, Cluster.Allows and the
// engine.
func TestCyclonus(t *testing.T) {
	e := derive.New()
	attachments := derive.NewSource[derive.Name, policy.Attachment](e, "attachments")
	attachments.Loaded()
	tables := policy.NewTables(e, "node-1", attachments)
	tables.Loaded()
	here, far := policytest.TwoRanges()
	addresses := slices.Concat(here, far)
	w := policytest.NewWalk(*seed, map[string][]netip.Addr{"node-1": here, "node-2": far}, policytest.Watch{
		Attached: func(port string, a policytest.Attached) {
			namespace, name, _ := strings.Cut(a.Pod, "/")
			attachments.Set(derive.Name(port), policy.Attachment{Pod: derive.Object{Namespace: namespace, Name: name},
				UID: a.UID, IPs: a.IPs})
		},
		Node: func(name string, n *corev1.Node) { tables.Nodes.Set(derive.Object{Name: name}, policy.NodeFactsOf(n)) },
		Pod: func(namespace, name string, p *corev1.Pod) {
			var f policy.PodFacts
			if p != nil {
				f = policy.PodFactsOf(p)
			}
			tables.Pods.Set(derive.Object{Namespace: namespace, Name: name}, f)
		},
		Namespace: func(name string, n *corev1.Namespace) {
			if n == nil {
				tables.Namespaces.Delete(derive.Object{Name: name})
				return
			}
			tables.Namespaces.Set(derive.Object{Name: name}, policy.NamespaceLabels(n))
		},
		Policy: func(namespace, name string, p *networkingv1.NetworkPolicy) {
			if p == nil {
				tables.Policies[policy.NetworkPolicy].Delete(derive.Object{Namespace: namespace, Name: name})
				return
			}
			tables.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(p), policy.FactsOf(p))
		},
	})
	w.Faithful = true
	outside := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8"),
		netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("fd00::1")}
	asked, denied := 0, 0
	for step := range *steps {
		w.Step()
		e.Pass()
		here := w.Here("node-1")
		if len(here) == 0 {
			continue
		}
		second := judge(w.Cluster)
		for range 20 {
			pod := policytest.Pick(w, here...)
			own := policytest.Pick(w, w.Own(pod)...)
			other := policytest.Pick(w, append(outside, addresses...)...)
			c := policytest.Connection{From: other, To: own, Protocol: policytest.Pick(w, corev1.ProtocolTCP, corev1.ProtocolUDP,
				corev1.ProtocolSCTP), Port: policytest.Pick[uint16](w, 53, 80, 81, 85, 8080)}
			d := policytest.Pick(w, policy.Ingress, policy.Egress)
			if d == policy.Egress {
				c.From, c.To = c.To, c.From
			}
			engine := tables.Decide(derive.ObjectOf(pod), d, policy.Connection(c)).Allowed
			plain := w.Allows(pod, d == policy.Egress, c)
			if allowed := cyclonus(second, w.Cluster, d == policy.Egress, c); allowed != plain || allowed != engine {
				t.Fatalf("seed %d, step %d, %s of Pod %s, %+v: allowed by cyclonus %v, by the plain evaluator %v, by the engine %v",
					*seed, step, d, derive.ObjectOf(pod), c, allowed, plain, engine)
			}
			if asked++; !plain {
				denied++
			}
		}
	}
	if denied < asked/10 || denied > asked*9/10 {
		t.Errorf("%d of %d connections were denied: the walk is too tame", denied, asked)
	}
	t.Logf("%d questions, %d denied", asked, denied)
}

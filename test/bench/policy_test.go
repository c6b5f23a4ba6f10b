package bench

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

const (
	policyNamespaces = 5000
	policyPods       = 20 // a Namespace: five Deployments of four
	policyPolicies   = 15 // a Namespace
	policyNodes      = 1000
	policyChanges    = 300
)

// policies are the tables of a Node in a large cluster.
type policies struct {
	*policy.Tables
	engine *derive.Engine
}

func policyNode(n int) string      { return fmt.Sprint("node-", n%policyNodes) }
func policyNamespace(i int) string { return fmt.Sprint("ns-", i) }

func (p policies) namespace(i, team int) {
	name := policyNamespace(i)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": fmt.Sprint("t", team)}}}
	p.Namespaces.Set(derive.ObjectOf(n), policy.NamespaceLabels(n))
}

func (p policies) pod(namespace, j, app int) {
	n := namespace*policyPods + j
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace(namespace), Name: fmt.Sprint("pod-", j),
		Labels: map[string]string{"app": fmt.Sprint("app-", app), "pod-template-hash": fmt.Sprint("h", app)}}}
	pod.Spec.NodeName = policyNode(n)
	pod.Status.PodIPs = []corev1.PodIP{{IP: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()}}
	p.Pods.Set(derive.ObjectOf(pod), policy.PodFactsOf(pod))
}

// policy j of a Namespace admits one of its Deployments, or one of another Namespace, to another.
func (p policies) policy(namespace, j, port int) {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace(namespace), Name: fmt.Sprint("policy-", j)}}
	n.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", j%5)}}
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", (j+1)%5)}}}
	if j%3 == 0 {
		peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint("t", (namespace+j)%policyNamespaces)}}
	}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}}
	if port != 0 {
		n.Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{{EndPort: new(int32(port)), Port: new(intstr.FromInt32(1))}}
	}
	p.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(n), policy.FactsOf(n))
}

// policyRow is the process of the rows of policies.
func policyRow() error {
	p := policies{engine: derive.New()}
	p.Tables = policy.NewTables(p.engine, policyNode(7))
	for i := range policyNamespaces {
		p.namespace(i, i)
		for j := range policyPods {
			p.pod(i, j, j%5)
		}
		for j := range policyPolicies {
			p.policy(i, j, 0)
		}
	}
	p.Loaded()
	before, start := processorTime(), time.Now()
	p.engine.Pass()
	fmt.Println("cpu", (processorTime() - before).Seconds())
	fmt.Println("wall", time.Since(start).Seconds())
	fmt.Println("rules", len(p.Rules.All()))
	fmt.Println("identities", len(p.Applied.All()))

	// What this Node has: Pod 7 of Namespace 0, and so on, a Pod of every fiftieth Namespace.
	for _, kind := range []struct {
		name   string
		change func(i int)
	}{
		{"pod", func(i int) { p.pod(50*i%policyNamespaces, 8, 3) }},
		{"label", func(i int) { p.pod(50*i%policyNamespaces, 8, i%5) }},
		{"namespace", func(i int) { p.namespace(50*i%policyNamespaces, i) }},
		{"policy", func(i int) { p.policy(50*i%policyNamespaces, 1+i%5, i+1) }},
	} {
		var took []time.Duration
		for i := range policyChanges {
			if kind.name == "pod" {
				p.Pods.Delete(derive.Object{Namespace: policyNamespace(50 * i % policyNamespaces), Name: "pod-8"})
				p.engine.Pass()
			}
			start := time.Now()
			kind.change(i)
			p.engine.Pass()
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		fmt.Println(kind.name, took[len(took)*99/100].Seconds()*1000)
	}
	fmt.Println("peak", peak())
	return nil
}

// BenchmarkTablePolicy prints what compiling the policies of a large cluster for one Node costs.
func BenchmarkTablePolicy(b *testing.B) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), rowVariable+"=policy")
	s, t := run(b, c), table{b}
	fmt.Printf("\n%d policies, %d Pods in %d Namespaces, 100 Pods here; rules, not their flows\n\n", policyNamespaces*policyPolicies, policyNamespaces*policyPods, policyNamespaces)
	t.row("compiled from nothing, of one core", fmt.Sprintf("%.2f s", s.of("cpu")), "<= 2 s", s.of("cpu") <= 2,
		fmt.Sprintf("%.2f s by the clock, %.0f rules of %.0f identities", s.of("wall"), s.of("rules"), s.of("identities")))
	t.row("the same: memory at most", fmt.Sprintf("%.0f MB", s.of("peak")/1e6), "<= 500 MB", s.of("peak") > 0 && s.of("peak") <= 5e8, "")
	for _, r := range []struct {
		name, what string
		limit      float64
	}{
		{"pod", "a Pod elsewhere comes, p99", 5},
		{"label", "a Pod's label changes, p99", 10},
		{"namespace", "a Namespace's label changes, p99", 30},
		{"policy", "a policy applied here changes, p99", 20},
	} {
		t.row(r.what, fmt.Sprintf("%.2f ms", s.of(r.name)), fmt.Sprintf("<= %.0f ms", r.limit), s.of(r.name) <= r.limit, "")
	}
}

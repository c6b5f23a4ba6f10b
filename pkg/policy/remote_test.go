package policy

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestServersOfOtherClusters checks the meaning of an egress rule with scope ClusterSet, and the reports about it, as
// addresses are published and as policies are stretched or not.
func TestServersOfOtherClusters(t *testing.T) {
	c := newClosed()
	n := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	n.Spec = crdv1beta1.PolicySpec{Priority: 5, AppliedTo: []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}},
		Egress: []crdv1beta1.Rule{
			{Action: crdv1beta1.ActionReject,
				To: []crdv1beta1.Peer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
					Scope: crdv1beta1.ScopeClusterSet}}}}}
	c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(n), AntreaClusterFactsOf(n))
	server := netip.MustParseAddr("10.20.0.5")
	is := func(step string, want Action, problem string) {
		t.Helper()
		c.engine.Pass()
		half := c.Why(c.pod, Egress,
			Connection{From: netip.MustParseAddr("10.10.0.2"), To: server, Protocol: corev1.ProtocolTCP, Port: 80})
		var problems []string
		for _, p := range c.engine.Problems() {
			problems = append(problems, p.String())
		}
		text := strings.Join(problems, "; ")
		if half.Action != want || !strings.Contains(text, problem) || problem == "" && text != "" {
			t.Errorf("%s: %s, want %s; problems %q, want %q", step, half.Action, want, text, problem)
		}
		if label := Identity("ns:kubernetes.io/metadata.name=x&pod:app=db"); want == Reject &&
			(half.Peer != label || half.Text == nil ||
				strings.Join(half.Text.Peers,
					", ") != "Pods with app=db in all Namespaces, Pods with app=db in all Namespaces in other clusters") {
			t.Errorf("%s: the server is %q and the rule %+v", step, half.Peer, half.Text)
		}
	}
	const none = "ClusterNetworkPolicy p: spec.egress[0].to: no other cluster publishes the addresses of its Pods"
	is("nothing is published", Allow, none)
	block := &mcv1alpha1.PodAddressImport{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "west-podaddresses-10.20.0.0"}}
	block.Spec.Pods = []mcv1alpha1.PodAddresses{{LabelIdentity: "db", Addresses: []string{"x", server.String()}}}
	c.PodAddresses.Set(derive.ObjectOf(block), RemotePodsOf(block))
	is("its labels are not known", Allow, "")
	c.LabelIdentities.Set(derive.Object{Name: "db"},
		LabelIdentity{Label: "ns:kubernetes.io/metadata.name=x&pod:app=db", ID: 7})
	is("published", Reject, "")
	if n := c.PeerAt(Ingress, server, derive.Object{}); n != 0 {
		t.Errorf("as a client it is %d, want nobody: its packets say who it is", n)
	}
	toServer := Connection{To: server, Protocol: corev1.ProtocolTCP, Port: 80}
	if half := c.Elsewhere(c.pod).Why(c.pod, Egress, toServer); half.Action != Reject {
		t.Errorf("another Node says %s, want Reject", half.Action)
	}
	c.LabelIdentities.Set(derive.Object{Name: "db"},
		LabelIdentity{Label: "ns:kubernetes.io/metadata.name=x&pod:app=web", ID: 7})
	is("other labels", Allow, "")
	c.PodAddresses.Delete(derive.ObjectOf(block))
	is("withdrawn", Allow, none)
	c.stretched = false
	c.Sources.Policies[AntreaClusterNetworkPolicy].Delete(derive.ObjectOf(n))
	c.engine.Pass()
	c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(n), AntreaClusterFactsOf(n))
	is("not stretched", Allow, "spec.egress[0].to: policies are not stretched over the ClusterSet")
}

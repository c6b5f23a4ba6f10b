package policy

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestUnknownPods: which rules unknown Pods match, by the form of the peer.
func TestUnknownPods(t *testing.T) {
	var pod, unknown, gateway = netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("10.10.1.7"),
		netip.MustParseAddr("10.10.1.1")
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "quarantine"}}
	named := crdv1beta1.Port{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString("web"))}
	rows := []struct {
		name    string
		peer    *crdv1beta1.Peer
		ports   []crdv1beta1.Port
		ingress bool // it matches unknown Pods that send
		egress  bool // and connections to them
	}{
		{name: "podSelector", peer: &crdv1beta1.Peer{PodSelector: labels}, ingress: true, egress: true},
		{name: "namespaceSelector", peer: &crdv1beta1.Peer{NamespaceSelector: labels}, ingress: true, egress: true},
		{name: "serviceAccount",
			peer: &crdv1beta1.Peer{ServiceAccount: &crdv1beta1.ObjectReference{Namespace: "x", Name: "builder"}}, ingress: true,
			egress: true},
		{name: "the Pod's own Namespace",
			peer: &crdv1beta1.Peer{Namespaces: &crdv1beta1.PeerNamespaces{Match: crdv1beta1.MatchSelf}}, ingress: true,
			egress: true},
		{name: "labels that the Pod's own Namespace does not have",
			peer: &crdv1beta1.Peer{Namespaces: &crdv1beta1.PeerNamespaces{SameLabels: []string{"team"}}}},
		{name: "a group of labels", peer: &crdv1beta1.Peer{Group: "labels"}, ingress: true, egress: true},
		{name: "a group of ranges", peer: &crdv1beta1.Peer{Group: "ranges"}},
		{name: "another range", peer: &crdv1beta1.Peer{IPBlock: &crdv1beta1.IPBlock{CIDR: "192.0.2.0/24"}}},
		{name: "its range", peer: &crdv1beta1.Peer{IPBlock: &crdv1beta1.IPBlock{CIDR: "10.10.1.0/28"}}, ingress: true,
			egress: true},
		{name: "Nodes", peer: &crdv1beta1.Peer{NodeSelector: &metav1.LabelSelector{}}},
		{name: "its range, to a port by its name", peer: &crdv1beta1.Peer{IPBlock: &crdv1beta1.IPBlock{CIDR: "10.10.1.0/28"}},
			ports: []crdv1beta1.Port{named}, egress: true},
		{name: "everybody, to a port by its name", ports: []crdv1beta1.Port{named}, egress: true},
		{name: "labels, to another port", peer: &crdv1beta1.Peer{PodSelector: labels},
			ports: []crdv1beta1.Port{{Port: new(intstr.FromInt32(443))}}},
	}
	for _, row := range rows {
		for _, action := range []crdv1beta1.Action{crdv1beta1.ActionDrop, crdv1beta1.ActionReject, crdv1beta1.ActionAllow} {
			t.Run(row.name+", "+string(action), func(t *testing.T) {
				c := newClosed()
				for name, cidr := range map[string]string{"node-1": "10.10.0.0/24", "node-2": "10.10.1.0/24"} {
					n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}}
					c.Nodes.Set(derive.ObjectOf(n), NodeFactsOf(n))
				}
				group := &crdv1beta1.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Name: "labels"},
					Spec: crdv1beta1.GroupSpec{PodSelector: labels}}
				c.ClusterGroups.Set(derive.ObjectOf(group), ClusterGroupFactsOf(group))
				group = &crdv1beta1.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Name: "ranges"},
					Spec: crdv1beta1.GroupSpec{IPBlocks: []crdv1beta1.IPBlock{{CIDR: "192.0.2.0/24"}}}}
				c.ClusterGroups.Set(derive.ObjectOf(group), ClusterGroupFactsOf(group))
				rule := crdv1beta1.Rule{Action: action, Ports: row.ports}
				n := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: crdv1beta1.PolicySpec{
					Priority: 5, AppliedTo: []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}},
					Ingress: []crdv1beta1.Rule{rule}, Egress: []crdv1beta1.Rule{rule}}}
				if row.peer != nil {
					n.Spec.Ingress[0].From, n.Spec.Egress[0].To = []crdv1beta1.Peer{*row.peer}, []crdv1beta1.Peer{*row.peer}
				}
				c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(n), AntreaClusterFactsOf(n))
				c.engine.Pass()
				for d, want := range [...]bool{Ingress: row.ingress, Egress: row.egress} {
					if action == crdv1beta1.ActionAllow { // no fact about an unknown Pod opens anything
						want = row.name == "its range"
					}
					ends := Connection{From: unknown, To: pod, Protocol: corev1.ProtocolTCP, Port: 80}
					if Direction(d) == Egress {
						ends.From, ends.To = ends.To, ends.From
					}
					half := c.Why(c.pod, Direction(d), ends)
					if have := half.Rule != nil; have != want || !half.UnknownPeer {
						t.Errorf("%s: matches %v, want %v; unknown Pod %v", Direction(d), have, want, half.UnknownPeer)
					}
				}
				if c.IsUnknownPod(gateway) || c.PeerAt(Ingress, gateway, derive.Object{}) != 0 {
					t.Error("the Node's own address is that of an unknown Pod")
				}
			})
		}
	}
}

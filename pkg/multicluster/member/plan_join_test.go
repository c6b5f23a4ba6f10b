package member

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// node is a Ready Node with the gateway annotation and an InternalIP.
func node(name, internalIP string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"multicluster.antrea.io/gateway": "true"}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: internalIP}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

// zones are Gateways zone-00 and so on, as TestPlanGateway writes them.
func zones(count int) (text string) {
	for i := range count {
		text += fmt.Sprintf(", zone-%02d 10.0.1.%d 10.0.1.%d 10.97.0.0/16", i, i, i)
	}
	return text
}

func TestPlanGateway(t *testing.T) {
	for _, row := range []struct {
		name     string
		change   func(v *View)
		want     string // "Node gatewayIP internalIP serviceCIDR", the oldest first; empty for no Gateway
		problems []string
	}{
		{name: "all candidates, new ones by name",
			want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "one candidate", change: func(v *View) { v.Nodes[0].Annotations = nil },
			want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "the present one is the oldest", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-2")}}
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16, node-1 10.0.0.1 10.0.0.1 10.97.0.0/16"},
		{name: "of two present ones the older comes first", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")},
				{ObjectMeta: meta("kube-system", "node-2")}}
			v.Gateways[0].CreationTimestamp = metav1.Time{Time: now}
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16, node-1 10.0.0.1 10.0.0.1 10.97.0.0/16"},
		{name: "of two of one age the first by name", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-2")},
				{ObjectMeta: meta("kube-system", "node-1")}}
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "one that is being deleted is made anew, as the youngest", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")},
				{ObjectMeta: meta("kube-system", "node-2")}}
			v.Gateways[0].DeletionTimestamp, v.Gateways[1].CreationTimestamp = &metav1.Time{Time: now}, metav1.Time{Time: now}
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16, node-1 10.0.0.1 10.0.0.1 10.97.0.0/16"},
		{name: "two with one address: the older is one", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-2")}}
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "10.0.0.2"
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-1: GatewayIPUnusable"}},
		{name: "more candidates than a cluster may have", change: func(v *View) {
			v.Nodes = v.Nodes[:1]
			for i := range claims.MaxGateways {
				v.Nodes = append(v.Nodes, node(fmt.Sprintf("zone-%02d", i), fmt.Sprintf("10.0.1.%d", i)))
			}
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16" + zones(claims.MaxGateways-1),
			problems: []string{"Node zone-15: TooManyGateways"}},
		{name: "the present one is NotReady while another is Ready", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")}}
			notReady(v.Nodes[0])
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "the present one lost its annotation", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")}}
			v.Nodes[0].Annotations = nil
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "its Node is gone", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-0")}}
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "all NotReady, none present", change: func(v *View) { notReady(v.Nodes[0]); notReady(v.Nodes[1]) }},
		{name: "all NotReady: the present one stays", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-2")}}
			notReady(v.Nodes[0])
			notReady(v.Nodes[1])
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-2: GatewayNodeNotReady"}},
		{name: "all NotReady: all present ones stay", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-2")},
				{ObjectMeta: meta("kube-system", "node-1")}}
			notReady(v.Nodes[0])
			notReady(v.Nodes[1])
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16",
			problems: []string{"Node node-1: GatewayNodeNotReady", "Node node-2: GatewayNodeNotReady"}},
		{name: "the only candidate is NotReady", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")}}
			v.Nodes = v.Nodes[:1]
			notReady(v.Nodes[0])
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16", problems: []string{"Node node-1: GatewayNodeNotReady"}},
		{name: "the present one is NotReady and being deleted", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")}}
			v.Nodes = v.Nodes[:1]
			v.Nodes[0].DeletionTimestamp = &metav1.Time{Time: now}
			notReady(v.Nodes[0])
		}},
		{name: "the present one is NotReady and lost its annotation", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")}}
			v.Nodes = v.Nodes[:1]
			v.Nodes[0].Annotations = nil
			notReady(v.Nodes[0])
		}},
		{name: "no annotation anywhere", change: func(v *View) { v.Nodes[0].Annotations, v.Nodes[1].Annotations = nil, nil }},
		{name: "the annotation's value does not matter", change: func(v *View) {
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway"] = ""
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "annotated address", change: func(v *View) {
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "203.0.113.5"
		}, want: "node-1 203.0.113.5 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "unusable annotated address: the others", change: func(v *View) {
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "gw.example"
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-1: GatewayIPUnusable"}},
		{name: "annotated address where nothing can be", change: func(v *View) {
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "127.0.0.1"
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-1: GatewayIPUnusable"}},
		{name: "annotated addresses of IPv6", change: func(v *View) {
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00:0::1"
			v.Nodes[1].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::2"
		}, want: "node-1 fd00::1 10.0.0.1 10.97.0.0/16, node-2 fd00::2 10.0.0.2 10.97.0.0/16"},
		{name: "an annotated address of another version of IP", change: func(v *View) {
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::1"
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-1: GatewayFamiliesDiffer"}},
		{name: "the present one has IPv6, a new one IPv4", change: func(v *View) {
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1"), GatewayIP: "fd00::1"}}
			v.Nodes[0].Status.Addresses[0].Address = "fd00::1"
		}, want: "node-1 fd00::1 fd00::1 10.97.0.0/16", problems: []string{"Node node-2: GatewayFamiliesDiffer"}},
		{name: "the oldest of two turns to IPv6, and leaves with its former address", change: func(v *View) {
			v.Gateways = presentGateways("10.0.0.1", "10.0.0.2")
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::1"
		}, want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16, node-1 10.0.0.1 10.0.0.1 10.97.0.0/16",
			problems: []string{"Node node-1: GatewayFamiliesDiffer"}},
		{name: "the only one turns to IPv6", change: func(v *View) {
			v.Gateways, v.Nodes = presentGateways("10.0.0.1"), v.Nodes[:1]
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::1"
		}, want: "node-1 fd00::1 10.0.0.1 10.97.0.0/16"},
		{name: "both turn to IPv6", change: func(v *View) {
			v.Gateways = presentGateways("10.0.0.1", "10.0.0.2")
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::1"
			v.Nodes[1].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::2"
		}, want: "node-1 fd00::1 10.0.0.1 10.97.0.0/16, node-2 fd00::2 10.0.0.2 10.97.0.0/16"},
		{name: "the only one turns to IPv6 while a new one has IPv4", change: func(v *View) {
			v.Gateways = presentGateways("10.0.0.1")
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::1"
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16",
			problems: []string{"Node node-1: GatewayFamiliesDiffer"}},
		{name: "the present one is NotReady, and the Ready one has another version of IP", change: func(v *View) {
			v.Gateways = presentGateways("10.0.0.1")
			v.Nodes[1].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::2"
			notReady(v.Nodes[0])
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16", problems: []string{
			"Node node-1: GatewayNodeNotReady", "Node node-2: GatewayFamiliesDiffer"}},
		{name: "the present one goes, and the Ready one has another version of IP", change: func(v *View) {
			v.Gateways = presentGateways("10.0.0.1")
			v.Nodes[1].Annotations["multicluster.antrea.io/gateway-ip"] = "fd00::2"
			v.Nodes = v.Nodes[1:]
		}, want: "node-2 fd00::2 10.0.0.2 10.97.0.0/16"},
		{name: "addresses of IPv6 alone", change: func(v *View) {
			v.Nodes[0].Status.Addresses[0].Address = "fd00::1"
			v.Nodes[1].Status.Addresses[0].Address = "fd00::2"
		}, want: "node-1 fd00::1 fd00::1 10.97.0.0/16, node-2 fd00::2 fd00::2 10.97.0.0/16"},
		{name: "the first address is of IPv6", change: func(v *View) {
			v.Nodes[0].Status.Addresses = append([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}},
				v.Nodes[0].Status.Addresses...)
		}, want: "node-1 10.0.0.1 10.0.0.1 10.97.0.0/16, node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "a link-local address alone", change: func(v *View) { v.Nodes[0].Status.Addresses[0].Address = "fe80::1" },
			want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-1: GatewayIPUnusable"}},
		{name: "public", change: func(v *View) {
			v.Config.GatewayIPPrecedence = config.PrecedencePublic
			v.Nodes[1].Status.Addresses = append(v.Nodes[1].Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.2"})
		}, want: "node-2 203.0.113.2 10.0.0.2 10.97.0.0/16", problems: []string{"Node node-1: GatewayIPUnusable"}},
		{name: "public, annotated", change: func(v *View) {
			v.Config.GatewayIPPrecedence = config.PrecedenceExternal
			v.Nodes[0].Annotations["multicluster.antrea.io/gateway-ip"] = "203.0.113.1"
			v.Nodes = v.Nodes[:1]
		}, want: "node-1 203.0.113.1 10.0.0.1 10.97.0.0/16"},
		{name: "while the leader is away", change: func(v *View) { v.Leader = Leader{}; notReady(v.Nodes[0]) },
			want: "node-2 10.0.0.2 10.0.0.2 10.97.0.0/16"},
		{name: "Service range unknown", change: func(v *View) { v.ServiceCIDR = "" },
			want:     "node-1 10.0.0.1 10.0.0.1 , node-2 10.0.0.2 10.0.0.2 ",
			problems: []string{"ClusterSet kube-system/set: ServiceCIDRUnknown"}},
		{name: "no ClusterSet", change: func(v *View) { v.ClusterSets = nil }},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Nodes = []*corev1.Node{node("node-2", "10.0.0.2"), node("node-1", "10.0.0.1")}
			v.Nodes[0], v.Nodes[1] = v.Nodes[1], v.Nodes[0]
			if row.change != nil {
				row.change(&v)
			}
			d, ps := Plan(v)
			var have, addresses []string
			for _, g := range d.Gateways {
				have = append(have, strings.Join([]string{g.Name, g.GatewayIP, g.InternalIP, g.ServiceCIDR}, " "))
				addresses = append(addresses, g.GatewayIP)
			}
			expect(t, "Gateways", strings.Join(have, ", "), row.want)
			expect(t, "problems", problems(ps), row.problems)
			info := ""
			for _, re := range d.ResourceExports {
				info = re.Name + " " + re.Spec.ClusterInfo.ServiceCIDR
				for _, g := range re.Spec.ClusterInfo.GatewayInfos {
					info += " " + g.GatewayIP
				}
			}
			if strings.Contains(row.want, "10.97.0.0/16") {
				expect(t, "ClusterInfo", info, "east-clusterinfo 10.97.0.0/16 "+strings.Join(addresses, " "))
			} else {
				expect(t, "ClusterInfo", info, "")
			}
		})
	}
}

// presentGateways returns the Gateways node-1, node-2 and so on with addresses, the oldest first.
func presentGateways(addresses ...string) (out []*mcv1alpha1.Gateway) {
	for i, ip := range addresses {
		g := &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", fmt.Sprintf("node-%d", i+1)), GatewayIP: ip, InternalIP: ip}
		g.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(i) * time.Minute)}
		out = append(out, g)
	}
	return out
}

// TestPlanServiceRanges announces all ranges of ClusterIPs, the first one in its old field too.
func TestPlanServiceRanges(t *testing.T) {
	for _, row := range []struct {
		name, first, configured string
		objects, want           []string
	}{
		{name: "one", objects: []string{"10.97.0.0/16"}},
		{name: "one of each family", objects: []string{"fd00:97::/112,10.97.0.0/16"},
			want: []string{"10.97.0.0/16", "fd00:97::/112"}},
		{name: "IPv6 alone", first: "fd00:97::/112", objects: []string{"fd00:97::/112"}},
		{name: "within the first", objects: []string{"10.97.0.0/16", "10.97.8.0/24"}},
		{name: "more", objects: []string{"10.200.0.0/24", "10.97.0.0/16", "10.200.0.0/16", "nonsense", "10.99.0.0/24"},
			want: []string{"10.97.0.0/16", "10.99.0.0/24", "10.200.0.0/16"}},
		{name: "configured", configured: "10.97.0.0/16", objects: []string{"10.200.0.0/24"}},
		{name: "more that are configured", configured: "10.97.0.0/16,10.98.0.0/16,fd00:97::/112",
			objects: []string{"10.200.0.0/24"}, want: []string{"10.97.0.0/16", "10.98.0.0/16", "fd00:97::/112"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1")}
			v.Reports = []*tombolov1alpha1.NodePolicyReport{
				{ObjectMeta: meta("", "node-1"), Features: map[string]string{mcv1alpha1.FeatureIPv6: ""}}}
			v.ConfiguredCIDRs, v.ServiceCIDRs = row.configured, serviceCIDRs(row.objects...)
			v.ServiceCIDR = cmp.Or(row.first, v.ServiceCIDR)
			d, ps := Plan(v)
			expect(t, "problems", len(ps), 0)
			info := d.ResourceExports[0].Spec.ClusterInfo
			expect(t, "serviceCIDR", info.ServiceCIDR, v.ServiceCIDR)
			expect(t, "serviceCIDRs", info.ServiceCIDRs, row.want)
		})
	}
}

// TestPlanClusterInfoCarriesTheAgentsWireGuardKey announces the key of the oldest Gateway. Clusters that support one
// Gateway use this key.
func TestPlanClusterInfoCarriesTheAgentsWireGuardKey(t *testing.T) {
	v := joinedView()
	v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
	v.Config.PodCIDRs = []string{"10.11.0.0/16"}
	v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1"), GatewayIP: "10.0.0.1",
		WireGuard: &mcv1alpha1.WireGuardInfo{PublicKey: "k"}},
		{ObjectMeta: meta("kube-system", "node-2"), GatewayIP: "10.0.0.2", InternalIP: "10.0.0.2",
			WireGuard: &mcv1alpha1.WireGuardInfo{PublicKey: "other"}}}
	v.Gateways[1].CreationTimestamp = metav1.Time{Time: now}
	d, _ := Plan(v)
	expect(t, "ClusterInfo", d.ResourceExports[0].Spec.ClusterInfo, &mcv1alpha1.ClusterInfo{
		ClusterID: "east", ServiceCIDR: "10.97.0.0/16", PodCIDRs: []string{"10.11.0.0/16"},
		Features:     []string{mcv1alpha1.FeatureActiveGateways},
		GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.1"}, {GatewayIP: "10.0.0.2"}},
		WireGuard:    &mcv1alpha1.WireGuardInfo{PublicKey: "k"}})
	for _, w := range d.Change.Local {
		if g, ok := w.Object.(*mcv1alpha1.Gateway); ok {
			want := map[string]string{"node-1": "k", "node-2": "other"}[g.Name]
			expect(t, "the Gateway keeps its key", g.WireGuard, &mcv1alpha1.WireGuardInfo{PublicKey: want})
		}
	}
}

// TestPlanGatewaysInside assigns an address inside WireGuard to a Gateway whose agent has a key. A ClusterInfo has the
// addresses of the Gateways that announce one.
func TestPlanGatewaysInside(t *testing.T) {
	info := func(key, inside string) *mcv1alpha1.WireGuardInfo {
		return &mcv1alpha1.WireGuardInfo{PublicKey: key, NextPort: 51822, InsideIP: inside}
	}
	first, second := "245.255.255.254", "245.255.255.253"
	one := &mcv1alpha1.WireGuardInfo{PublicKey: "k", NextPort: 51822}
	for _, row := range []struct {
		name     string
		have     [2]*mcv1alpha1.WireGuardInfo
		assigned string
		infos    []mcv1alpha1.GatewayInfo
		cluster  *mcv1alpha1.WireGuardInfo
	}{
		{"nothing is encrypted", [2]*mcv1alpha1.WireGuardInfo{}, " ",
			[]mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.1"}, {GatewayIP: "10.0.0.2"}}, nil},
		{"they have keys", [2]*mcv1alpha1.WireGuardInfo{info("k", ""), info("other", "")},
			first + " " + second, []mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.1"}, {GatewayIP: "10.0.0.2"}}, nil},
		{"they have keys, and agents that announce nothing else",
			[2]*mcv1alpha1.WireGuardInfo{{PublicKey: "k"}, {PublicKey: "other"}}, first + " " + second,
			[]mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.1"}, {GatewayIP: "10.0.0.2"}},
			&mcv1alpha1.WireGuardInfo{PublicKey: "k"}},
		{"and announce addresses", [2]*mcv1alpha1.WireGuardInfo{info("k", first), info("other", second)},
			first + " " + second,
			[]mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.1", WireGuard: info("k", first)},
				{GatewayIP: "10.0.0.2", WireGuard: info("other", second)}}, one},
		{"the second does not yet", [2]*mcv1alpha1.WireGuardInfo{info("k", first), nil},
			first + " ", []mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.1", WireGuard: info("k", first)}}, one},
		{"the second alone: it is used alone", [2]*mcv1alpha1.WireGuardInfo{info("k", ""), info("other", second)},
			second + " " + first,
			[]mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.2", WireGuard: info("other", second)}},
			&mcv1alpha1.WireGuardInfo{PublicKey: "other", NextPort: 51822}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
			for i, w := range row.have {
				ip := fmt.Sprintf("10.0.0.%d", i+1)
				g := &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", fmt.Sprintf("node-%d", i+1)),
					GatewayIP: ip, InternalIP: ip, ServiceCIDR: "10.97.0.0/16", WireGuard: w}
				g.CreationTimestamp = metav1.Time{Time: now.Add(time.Duration(i) * time.Minute)}
				v.Gateways = append(v.Gateways, g)
			}
			d, _ := Plan(v)
			got := d.ResourceExports[0].Spec.ClusterInfo
			expect(t, "gateways", got.GatewayInfos, row.infos)
			expect(t, "key of the cluster", got.WireGuard, row.cluster)
			var assigned []string
			for _, g := range d.Gateways {
				assigned = append(assigned, g.Annotations[multicluster.AnnotationInsideIP])
			}
			expect(t, "addresses", strings.Join(assigned, " "), row.assigned)
		})
	}
}

func TestPlanClusterSetStatus(t *testing.T) {
	const copySecret = "copy ca.crt and token from the ServiceAccount's Secret in the leader"
	for _, row := range []struct {
		name         string
		announcement Announcement
		change       func(*View)
		ready        int32
		leader       string // Ready, IsLeader, overall: "status/reason/message", one on each line
	}{
		{name: "just connected", leader: `
Ready Unknown//Leader cluster added
IsLeader False//
overall False//Disconnected from leader`},
		{name: "announced, not seen by the leader yet", announcement: Announcement{Tried: now, Done: now}, ready: 1, leader: `
Ready True//
IsLeader False//
overall Unknown//Leader not yet connected`},
		{name: "joined", announcement: Announcement{Tried: now, Done: now, Found: true}, ready: 1, leader: `
Ready True//
IsLeader True//This leader cluster is the leader for local cluster
overall True//`},
		{name: "the leader is lost",
			announcement: Announcement{Tried: now, Done: now.Add(-time.Hour), Found: true, Error: "refused"}, leader: `
Ready False/Disconnected/refused
IsLeader True//This leader cluster is the leader for local cluster
overall False//Disconnected from leader`},
		{name: "never reached", announcement: Announcement{Tried: now, Error: "Unauthorized"}, leader: `
Ready False/Disconnected/Unauthorized
IsLeader False//
overall False//Disconnected from leader`},
		{name: "the Secret has no token", change: func(v *View) { delete(v.Secrets[0].Data, "token") }, leader: `
Ready False/Disconnected/Secret kube-system/token has no key token; ` + copySecret + `
IsLeader False//
overall False//Disconnected from leader`},
		{name: "the Secret's CA is none",
			change: func(v *View) { v.Secrets[0].Data["ca.crt"] = []byte("-----BEGIN CERTIFICATE-----\n") }, leader: `
Ready False/Disconnected/Secret kube-system/token, key ca.crt: it has no certificate in PEM; ` + copySecret + `
IsLeader False//
overall False//Disconnected from leader`},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Leader.Announcement = row.announcement
			if row.change != nil {
				row.change(&v)
			}
			d, _ := Plan(v)
			s := d.ClusterSet.Status
			have := ""
			for _, c := range s.ClusterStatuses[0].Conditions {
				have += "\n" + string(c.Type) + " " + string(c.Status) + "/" + c.Reason + "/" + c.Message
			}
			for _, c := range s.Conditions {
				have += "\noverall " + string(c.Status) + "/" + c.Reason + "/" + c.Message
			}
			expect(t, "conditions", have, row.leader)
			expect(t, "cluster", s.ClusterStatuses[0].ClusterID, "north")
			expect(t, "counts", []int32{s.TotalClusters, s.ReadyClusters}, []int32{1, row.ready})
			expect(t, "observedGeneration", s.ObservedGeneration, int64(3))

			// An hour later nothing has changed, and the transition times stay. A restarted controller leaves the status alone
			// until it has read the leader.
			v.ClusterSets = []*mcv1alpha2.ClusterSet{d.ClusterSet}
			v.Now = now.Add(time.Hour)
			again, _ := Plan(v)
			expect(t, "status later", again.ClusterSet.Status, s)
			if row.change == nil {
				v.Leader = Leader{}
				again, _ = Plan(v)
				expect(t, "status after a restart", again.ClusterSet.Status, s)
			}
		})
	}
}

func TestPlanClusterID(t *testing.T) {
	for _, row := range []struct {
		name     string
		change   func(*View)
		want     string
		problems []string
	}{
		{name: "from the ClusterSet", want: "east"},
		{name: "from a claim named id.k8s.io", change: func(v *View) {
			v.ClusterSets[0].Spec.ClusterID = ""
			v.ClusterClaims = []*mcv1alpha2.ClusterClaim{{ObjectMeta: meta("kube-system", "clusterset.k8s.io"), Value: "set"},
				{ObjectMeta: meta("kube-system", "id.k8s.io"), Value: "east"}}
		}, want: "east"},
		{name: "from a claim of the old shape", change: func(v *View) {
			v.ClusterSets[0].Spec.ClusterID = ""
			v.ClusterClaims = []*mcv1alpha2.ClusterClaim{
				{ObjectMeta: meta("kube-system", "clusterset-id"), ClaimName: "clusterSet.k8s.io", Value: "set"},
				{ObjectMeta: meta("kube-system", "east-membercluster-id"), ClaimName: "id.k8s.io", Value: "east"}}
		}, want: "east"},
		{name: "from nowhere", change: func(v *View) { v.ClusterSets[0].Spec.ClusterID = "" },
			problems: []string{"ClusterSet kube-system/set: ClusterIDMissing"}},
		{name: "a second ClusterSet", change: func(v *View) {
			second := v.ClusterSets[0].DeepCopy()
			second.Name, second.Spec.ClusterID, second.CreationTimestamp = "another", "x", metav1.Time{Time: now}
			v.ClusterSets = append(v.ClusterSets, second)
		}, want: "east", problems: []string{"ClusterSet kube-system/another: MultipleClusterSets"}},
		{name: "no leader", change: func(v *View) { v.ClusterSets[0].Spec.Leaders = nil }, want: "east",
			problems: []string{"ClusterSet kube-system/set: LeaderNotConfigured"}},
		{name: "no server", change: func(v *View) { v.ClusterSets[0].Spec.Leaders[0].Server = "" }, want: "east",
			problems: []string{"ClusterSet kube-system/set: LeaderNotConfigured"}},
		{name: "a server that would read the token in the clear",
			change: func(v *View) { v.ClusterSets[0].Spec.Leaders[0].Server = "http://10.0.0.1:8080" }, want: "east",
			problems: []string{"ClusterSet kube-system/set: LeaderNotConfigured"}},
		{name: "a Secret whose CA is none", change: func(v *View) { v.Secrets[0].Data["ca.crt"] = []byte("x") }, want: "east",
			problems: []string{"ClusterSet kube-system/set: LeaderNotConfigured"}},
		{name: "no Secret", change: func(v *View) { v.Secrets = nil }, want: "east",
			problems: []string{"ClusterSet kube-system/set: LeaderNotConfigured"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			if row.change != nil {
				row.change(&v)
			}
			d, ps := Plan(v)
			have := ""
			if d.ClusterSet != nil {
				have = d.ClusterSet.Spec.ClusterID
			}
			expect(t, "cluster ID", have, row.want)
			expect(t, "problems", problems(ps), row.problems)
			if d.Leave {
				t.Error("a ClusterSet with an error is no reason to leave")
			}
			change := d.Change.Local
			written := len(change) > 0 && change[0].Verb == writes.Update
			if written != (v.ClusterSets[0].Spec.ClusterID != row.want) {
				t.Errorf("cluster ID written back: %v", written)
			}
		})
	}
}

func TestPlanHeartbeat(t *testing.T) {
	for _, row := range []struct {
		name string
		last Announcement
		in   time.Duration // until the next; zero for now
	}{
		{name: "the first, at once"},
		{name: "after the first, to see the leader's answer", last: Announcement{Tried: now, Done: now}, in: 2 * time.Second},
		{name: "every ten seconds", last: Announcement{Tried: now.Add(-4 * time.Second), Done: now, Found: true},
			in: 6 * time.Second},
		{name: "due", last: Announcement{Tried: now.Add(-10 * time.Second), Done: now, Found: true}},
		{name: "soon after a failure", last: Announcement{Tried: now.Add(-time.Second), Done: now, Found: true, Error: "x"},
			in: time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Leader.Announcement = row.last
			d, _ := Plan(v)
			if row.in == 0 {
				expect(t, "announcement", d.Announce, &mcv1alpha1.MemberClusterAnnounce{
					ObjectMeta: meta("antrea-multicluster", "member-announce-from-east"),
					ClusterID:  "east", ClusterSetID: "set", LeaderClusterID: "north",
				})
				return
			}
			if d.Announce != nil || !d.Again.Equal(now.Add(row.in)) {
				t.Errorf("announce %v, again %v, want in %v", d.Announce, d.Again, row.in)
			}
		})
	}
}

// TestServiceCIDRsFromErrors discovers the ranges from the refusals of API servers without ServiceCIDR objects.
func TestServiceCIDRsFromErrors(t *testing.T) {
	const refusal = `Service "invalid-svc" is invalid: spec.clusterIPs: Invalid value: []string{"%s"}: failed to ` +
		`allocate IP: the provided IP is not in the valid range. The range of valid IPs is %s`
	const other = `Service "invalid-svc" is invalid: spec.ipFamilies[0]: Invalid value: "%s": not configured on this ` +
		`cluster`
	for _, row := range []struct {
		name, of4, of6 string
		want           []string
	}{
		{"IPv4 alone", fmt.Sprintf(refusal, "0.0.0.0", "10.96.0.0/12"), fmt.Sprintf(other, "IPv6"), []string{"10.96.0.0/12"}},
		{"IPv6 alone", fmt.Sprintf(other, "IPv4"), fmt.Sprintf(refusal, "::", "fd00:96::/112"), []string{"fd00:96::/112"}},
		{"both", fmt.Sprintf(refusal, "0.0.0.0", "10.96.0.0/12"), fmt.Sprintf(refusal, "::", "fd00:96::/112"),
			[]string{"10.96.0.0/12", "fd00:96::/112"}},
		{"neither is named", fmt.Sprintf(other, "IPv4"), fmt.Sprintf(other, "IPv6"), nil},
		{"the request about IPv4 fails", "", fmt.Sprintf(refusal, "::", "fd00:96::/112"), nil},
		{"the request about IPv6 fails", fmt.Sprintf(refusal, "0.0.0.0", "10.96.0.0/12"), "", nil},
	} {
		have, err := discoverServiceCIDRs(t.Context(), oldServer{}, oldServer{refusals: map[string]string{
			"0.0.0.0": row.of4, "::": row.of6}}, "kube-system")
		if !slices.Equal(have, row.want) || (err == nil) != (row.want != nil) {
			t.Errorf("%s: have %q, %v, want %q", row.name, have, err, row.want)
		}
	}
}

// oldServer answers as an API server before 1.33: it has no ServiceCIDR objects.
type oldServer struct {
	client.Client
	refusals map[string]string // by the ClusterIP that is asked for; the request fails if it is empty
}

func (oldServer) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(
		schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs"}, "kubernetes")
}

func (s oldServer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	refusal := s.refusals[o.(*corev1.Service).Spec.ClusterIP]
	if refusal == "" {
		return apierrors.NewTimeoutError("etcdserver: request timed out", 1)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 422,
		Reason: metav1.StatusReasonInvalid, Message: refusal}}
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	if s := joinedView().Leader.Area.String(); strings.Contains(s, "abc") {
		t.Errorf("%s contains the token", s)
	}
}

package member

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

const (
	reasonGatewayIP          = "GatewayIPUnusable"
	reasonGatewayNotReady    = "GatewayNodeNotReady"
	reasonServiceCIDRUnknown = "ServiceCIDRUnknown"
)

// gatewayOf chooses the Gateway Node: a Ready one with the gateway annotation and usable
// addresses. The present one stays as long as it is that; otherwise the first by name follows.
// While no candidate is Ready the present one stays: that the control plane does not hear from
// a Node says nothing about its traffic, and without a Gateway there would be none.
func (t *tables) gatewayOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.Gateway, []problem.Problem) {
	m, _ := derive.Get(r, t.membership, here)
	if m.ID == "" {
		return nil, nil
	}
	env, _ := derive.Get(r, t.environment, here)
	present := values(derive.All(r, t.gateways))
	nodes := values(derive.All(r, t.nodes))
	var ps faults
	slices.SortFunc(present, func(a, b *mcv1alpha1.Gateway) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	candidates := t.candidates(nodes, &ps, nodeReady)
	if len(candidates) == 0 {
		candidates = t.candidates(nodes, &ps, func(node *corev1.Node) bool {
			return slices.ContainsFunc(present, func(g *mcv1alpha1.Gateway) bool { return g.Name == node.Name })
		})
		for _, g := range candidates {
			ps.add(object("Node", "", g.Name), "status.conditions", reasonGatewayNotReady,
				"the Node is not Ready and stays the Gateway, since no other Node with the annotation "+multicluster.AnnotationGateway+" is Ready: annotate another Node to have it take over")
		}
	}
	if len(candidates) == 0 {
		return nil, ps
	}
	chosen := candidates[0]
	for _, have := range present {
		i := slices.IndexFunc(candidates, func(c *mcv1alpha1.Gateway) bool { return c.Name == have.Name })
		if i >= 0 && have.DeletionTimestamp.IsZero() {
			chosen = candidates[i]
			break
		}
	}
	chosen.ServiceCIDR = env.ServiceCIDR
	if env.ServiceCIDR == "" {
		ps.add(m.set(), "", reasonServiceCIDRUnknown,
			"this cluster's Service range could not be discovered; set serviceCIDR in the controller's configuration: "+env.ServiceCIDRError)
		if i := slices.IndexFunc(present, func(g *mcv1alpha1.Gateway) bool { return g.Name == chosen.Name }); i >= 0 {
			chosen.ServiceCIDR = present[i].ServiceCIDR
		}
	}
	return chosen, ps
}

// candidates are the Gateways that the Nodes of a selection would be, in the order of their names.
func (t *tables) candidates(nodes []*corev1.Node, ps *faults, selected func(*corev1.Node) bool) []*mcv1alpha1.Gateway {
	var out []*mcv1alpha1.Gateway
	for _, node := range nodes {
		if _, ok := node.Annotations[multicluster.AnnotationGateway]; !ok || !node.DeletionTimestamp.IsZero() || !selected(node) {
			continue
		}
		if g := t.candidate(node, ps); g != nil {
			out = append(out, g)
		}
	}
	return out
}

// candidate is the Gateway a Node would be, or nil if it has no usable address for it.
func (t *tables) candidate(node *corev1.Node, ps *faults) *mcv1alpha1.Gateway {
	name := object("Node", "", node.Name)
	internal := nodeAddress(node, corev1.NodeInternalIP)
	if internal == "" {
		ps.add(name, "status.addresses", reasonGatewayIP, "the Node cannot be a Gateway: it has no IPv4 InternalIP")
		return nil
	}
	gateway := internal
	if t.config.GatewayIPPrecedence == config.PrecedencePublic || t.config.GatewayIPPrecedence == config.PrecedenceExternal {
		gateway = nodeAddress(node, corev1.NodeExternalIP)
	}
	if ip, ok := node.Annotations[multicluster.AnnotationGatewayIP]; ok {
		if !isTunnelEnd(ip) {
			ps.add(name, "metadata.annotations["+multicluster.AnnotationGatewayIP+"]", reasonGatewayIP, fmt.Sprintf(
				"the Node cannot be a Gateway: %q is not an IPv4 address that other clusters can reach; correct or remove the annotation", ip))
			return nil
		}
		gateway = ip
	}
	if gateway == "" {
		ps.add(name, "status.addresses", reasonGatewayIP, fmt.Sprintf(
			"the Node cannot be a Gateway: gatewayIPPrecedence is %s but it has no IPv4 ExternalIP; set the annotation %s to the address other clusters reach it by",
			t.config.GatewayIPPrecedence, multicluster.AnnotationGatewayIP))
		return nil
	}
	return &mcv1alpha1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: node.Name},
		GatewayIP:  gateway,
		InternalIP: internal,
	}
}

// ownInfoOf is the ResourceExport by which other clusters reach this one. There
// is none without a Gateway.
func (t *tables) ownInfoOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.membership, here)
	if m.ID == "" {
		return nil, nil
	}
	name := m.ID + multicluster.ClusterInfoSuffix
	ps := t.ownInfoVerdict(m, derive.Object{Namespace: m.Common, Name: name}, r)
	gateway, ok := derive.Get(r, t.gateway, here)
	if !ok || gateway.ServiceCIDR == "" {
		return nil, ps
	}
	info := &mcv1alpha1.ClusterInfo{
		ClusterID:    m.ID,
		ServiceCIDR:  gateway.ServiceCIDR,
		PodCIDRs:     t.config.PodCIDRs,
		GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: gateway.GatewayIP}},
	}
	if g, ok := derive.Get(r, t.gateways, keyOf(gateway)); ok && g.WireGuard != nil {
		info.WireGuard = g.WireGuard.DeepCopy() // the agent on the Gateway Node writes its key there
	}
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Common,
			Name:      name,
			Labels: map[string]string{
				multicluster.LabelSourceKind:      multicluster.ClusterInfoKind,
				multicluster.LabelSourceClusterID: m.ID,
			},
			Finalizers: []string{multicluster.ResourceExportFinalizer},
		},
		Spec: mcv1alpha1.ResourceExportSpec{
			ClusterID: m.ID, Kind: multicluster.ClusterInfoKind, Namespace: t.namespace, Name: m.ID, ClusterInfo: info,
		},
	}, ps
}

// isTunnelEnd says whether an address may be announced as a tunnel end. Their agents refuse
// those of which it is certain that nothing is there.
func isTunnelEnd(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4() && ip.IsGlobalUnicast()
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeAddress is the first IPv4 address of a kind; empty if there is none.
func nodeAddress(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == kind && isIPv4(a.Address) {
			return a.Address
		}
	}
	return ""
}

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
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

const (
	reasonGatewayIP          = "GatewayIPUnusable"
	reasonGatewayNotReady    = "GatewayNodeNotReady"
	reasonServiceCIDRUnknown = "ServiceCIDRUnknown"
)

// gateways chooses the Gateway Node: a Ready one with the gateway annotation and usable
// addresses. The present one stays as long as it is that; otherwise the first by name follows.
// While no candidate is Ready the present one stays: that the control plane does not hear from
// a Node says nothing about its traffic, and without a Gateway there would be none.
func (p *planner) gateways() {
	present := slices.Clone(p.Gateways)
	slices.SortFunc(present, func(a, b *mcv1alpha1.Gateway) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	candidates := p.candidates(nodeReady)
	if len(candidates) == 0 {
		candidates = p.candidates(func(node *corev1.Node) bool {
			return slices.ContainsFunc(present, func(g *mcv1alpha1.Gateway) bool { return g.Name == node.Name })
		})
		for _, g := range candidates {
			p.problem(object("Node", "", g.Name), "status.conditions", reasonGatewayNotReady,
				"the Node is not Ready and stays the Gateway, since no other Node with the annotation "+multicluster.AnnotationGateway+" is Ready: annotate another Node to have it take over")
		}
	}
	if len(candidates) == 0 {
		return
	}
	chosen := candidates[0]
	for _, have := range present {
		i := slices.IndexFunc(candidates, func(c *mcv1alpha1.Gateway) bool { return c.Name == have.Name })
		if i >= 0 && have.DeletionTimestamp.IsZero() {
			chosen = candidates[i]
			break
		}
	}
	chosen.ServiceCIDR = p.ServiceCIDR
	if p.ServiceCIDR == "" {
		p.problem(object("ClusterSet", p.set.Namespace, p.set.Name), "", reasonServiceCIDRUnknown,
			"this cluster's Service range could not be discovered; set serviceCIDR in the controller's configuration: "+p.ServiceCIDRError)
		if i := slices.IndexFunc(present, func(g *mcv1alpha1.Gateway) bool { return g.Name == chosen.Name }); i >= 0 {
			chosen.ServiceCIDR = present[i].ServiceCIDR
		}
	}
	p.gateway = chosen
	p.desired.Gateways = []*mcv1alpha1.Gateway{chosen}
}

// candidates are the Gateways that the Nodes of a selection would be, in the order of their names.
func (p *planner) candidates(selected func(*corev1.Node) bool) []*mcv1alpha1.Gateway {
	var out []*mcv1alpha1.Gateway
	for _, node := range inOrder(p.Nodes) {
		if _, ok := node.Annotations[multicluster.AnnotationGateway]; !ok || !node.DeletionTimestamp.IsZero() || !selected(node) {
			continue
		}
		if g := p.candidate(node); g != nil {
			out = append(out, g)
		}
	}
	return out
}

// candidate is the Gateway a Node would be, or nil if it has no usable address for it.
func (p *planner) candidate(node *corev1.Node) *mcv1alpha1.Gateway {
	name := object("Node", "", node.Name)
	internal := nodeAddress(node, corev1.NodeInternalIP)
	if internal == "" {
		p.problem(name, "status.addresses", reasonGatewayIP, "the Node cannot be a Gateway: it has no IPv4 InternalIP")
		return nil
	}
	gateway := internal
	if p.Config.GatewayIPPrecedence == config.PrecedencePublic || p.Config.GatewayIPPrecedence == config.PrecedenceExternal {
		gateway = nodeAddress(node, corev1.NodeExternalIP)
	}
	if ip, ok := node.Annotations[multicluster.AnnotationGatewayIP]; ok {
		if !isTunnelEnd(ip) {
			p.problem(name, "metadata.annotations["+multicluster.AnnotationGatewayIP+"]", reasonGatewayIP, fmt.Sprintf(
				"the Node cannot be a Gateway: %q is not an IPv4 address that other clusters can reach; correct or remove the annotation", ip))
			return nil
		}
		gateway = ip
	}
	if gateway == "" {
		p.problem(name, "status.addresses", reasonGatewayIP, fmt.Sprintf(
			"the Node cannot be a Gateway: gatewayIPPrecedence is %s but it has no IPv4 ExternalIP; set the annotation %s to the address other clusters reach it by",
			p.Config.GatewayIPPrecedence, multicluster.AnnotationGatewayIP))
		return nil
	}
	return &mcv1alpha1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: node.Name},
		GatewayIP:  gateway,
		InternalIP: internal,
	}
}

// clusterInfo plans the ResourceExport that tells other clusters how to reach this one. There
// is none without a Gateway.
func (p *planner) clusterInfo() {
	if p.gateway == nil || p.gateway.ServiceCIDR == "" {
		return
	}
	info := &mcv1alpha1.ClusterInfo{
		ClusterID:    p.id,
		ServiceCIDR:  p.gateway.ServiceCIDR,
		PodCIDRs:     p.Config.PodCIDRs,
		GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: p.gateway.GatewayIP}},
	}
	for _, g := range p.Gateways {
		if g.Name == p.gateway.Name && g.WireGuard != nil {
			info.WireGuard = g.WireGuard.DeepCopy() // the agent on the Gateway Node writes its key there
		}
	}
	p.desired.ResourceExports = append(p.desired.ResourceExports, &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.set.Spec.Namespace,
			Name:      p.id + multicluster.ClusterInfoSuffix,
			Labels: map[string]string{
				multicluster.LabelSourceKind:      multicluster.ClusterInfoKind,
				multicluster.LabelSourceClusterID: p.id,
			},
			Finalizers: []string{multicluster.ResourceExportFinalizer},
		},
		Spec: mcv1alpha1.ResourceExportSpec{
			ClusterID: p.id, Kind: multicluster.ClusterInfoKind, Namespace: p.Namespace, Name: p.id, ClusterInfo: info,
		},
	})
}

// isTunnelEnd says whether other clusters may be told to tunnel to an address. Their agents refuse
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

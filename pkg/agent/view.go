package agent

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// View is everything a decision of the agent may depend on, copied out of the caches and
// read from the Node.
type View struct {
	Config   config.Config
	NodeName string

	// From the API server.
	Nodes              []*corev1.Node
	Services           []*corev1.Service
	EndpointSlices     []*discoveryv1.EndpointSlice
	ServiceCIDRs       []*networkingv1.ServiceCIDR
	Gateways           []*mcv1alpha1.Gateway
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport
	ClusterSets        []*mcv1alpha2.ClusterSet
	ServiceExports     []*mcsv1alpha1.ServiceExport

	// Balanced is what Services and EndpointSlices lead to, where that is known already; nil has
	// Plan derive it from nothing.
	Balanced *Balanced

	// From the Node.
	Attachments []cni.Attachment
	Switch      bridge.State
	// Underlay is the interface that carries the Node's InternalIP.
	Underlay Underlay
	// GatewayMAC is the MAC of the host's gateway port; it is chosen once and then kept in
	// the OVSDB.
	GatewayMAC string
}

// Underlay is what the Node says about its way to the other Nodes.
type Underlay struct {
	// Uplink is the interface that the switch takes over (userspace datapath with a
	// transportInterface); nil when the kernel keeps it.
	Uplink *hostnet.Transport
	// MTU of the interface that carries the tunnels: the transportInterface, else the one with
	// the Node's InternalIP; 0 when it is not known yet.
	MTU int
	// Addresses of the transportInterface where the kernel keeps it.
	Addresses []netip.Prefix
	// Networks are those that the interface is attached to.
	Networks []netip.Prefix
}

// self returns this Node's object, or nil while it is not known.
func (v View) self() *corev1.Node {
	for _, n := range v.Nodes {
		if n.Name == v.NodeName {
			return n
		}
	}
	return nil
}

// internalIP returns the first IPv4 InternalIP of a Node, where tunnels to it end.
func internalIP(n *corev1.Node) (netip.Addr, bool) {
	for _, ip := range internalIPs(n) {
		return ip, true
	}
	return netip.Addr{}, false
}

// internalIPs returns the IPv4 InternalIPs of a Node.
func internalIPs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() {
			out = append(out, ip)
		}
	}
	return out
}

// transportAddresses is the annotation of a Node that says where tunnels to it end, where that
// is not its InternalIP: addresses with commas between them, of which the first IPv4 one counts.
const transportAddresses = "node.antrea.io/transport-addresses"

// tunnelEnd returns where tunnels to a Node end: the announced transport address, else the
// InternalIP. An annotation that names no usable address is an error and does not count.
func tunnelEnd(n *corev1.Node) (ip netip.Addr, ok bool, err error) {
	text := n.Annotations[transportAddresses]
	for one := range strings.SplitSeq(text, ",") {
		if ip, err := netip.ParseAddr(strings.TrimSpace(one)); err == nil && ip.Is4() && ip.IsGlobalUnicast() {
			return ip, true, nil
		}
	}
	if text != "" {
		err = fmt.Errorf("annotation %s: %q has no IPv4 address that a tunnel can end at", transportAddresses, text)
	}
	ip, ok = internalIP(n)
	return ip, ok, err
}

// tunnelEnds returns all addresses that the tunnels of a Node may end at and come from: the one
// that other Nodes send to, and its InternalIPs, which its switch uses until it has seen the
// annotation.
func tunnelEnds(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	if end, ok, _ := tunnelEnd(n); ok {
		out = append(out, end)
	}
	for _, ip := range internalIPs(n) {
		if !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// own returns the addresses that no other cluster can have.
func (v View) own(serviceCIDRs []netip.Prefix) peering.Own {
	own := peering.Own{ServiceCIDRs: serviceCIDRs, PodCIDRs: v.allPodCIDRs(), APIServers: v.apiServers()}
	for _, n := range v.Nodes {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() {
				own.Nodes = append(own.Nodes, ip)
			}
		}
		if ip, ok, _ := tunnelEnd(n); ok && !slices.Contains(own.Nodes, ip) {
			own.Nodes = append(own.Nodes, ip)
		}
	}
	for _, p := range v.Underlay.Networks {
		if p.Addr().Is4() {
			own.Networks = append(own.Networks, p.Masked())
		}
	}
	return own
}

// apiServers returns the IPv4 addresses of the API servers: those that the API server itself
// writes as endpoints of the Service "kubernetes", and the one that the configuration names.
func (v View) apiServers() []netip.Addr {
	var out []netip.Addr
	add := func(text string) {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	if u, err := url.Parse(v.Config.KubeAPIServerOverride); err == nil {
		add(u.Hostname())
	}
	for _, s := range v.EndpointSlices {
		if s.Namespace != "default" || s.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				add(a)
			}
		}
	}
	return out
}

// podCIDRs returns a Node's IPv4 podCIDRs in their normal form.
func podCIDRs(n *corev1.Node) ([]netip.Prefix, error) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			return nil, err
		}
		if p.Addr().Is4() {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}

// gatewayOf returns the gateway address of a podCIDR: its first usable address.
func gatewayOf(p netip.Prefix) netip.Addr {
	return p.Masked().Addr().Next()
}

// serviceCIDRs returns the IPv4 ranges that ClusterIPs come from: what the configuration
// says, else the cluster's ServiceCIDR objects (KEP-1880), else the smallest range that
// covers the ClusterIPs in use, for API servers that have no such objects.
func (v View) serviceCIDRs() []netip.Prefix {
	if p, err := netip.ParsePrefix(v.Config.ServiceCIDR); err == nil {
		return []netip.Prefix{p.Masked()}
	}
	var out []netip.Prefix
	for _, sc := range v.ServiceCIDRs {
		for _, text := range sc.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
				out = append(out, p.Masked())
			}
		}
	}
	if len(out) == 0 {
		out = coverClusterIPs(v.Services)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// coverClusterIPs returns the smallest IPv4 prefix that holds every ClusterIP.
func coverClusterIPs(services []*corev1.Service) []netip.Prefix {
	var cover netip.Prefix
	for _, s := range services {
		ip, err := netip.ParseAddr(s.Spec.ClusterIP)
		if err != nil || !ip.Is4() {
			continue
		}
		if !cover.IsValid() {
			cover = netip.PrefixFrom(ip, 32)
			continue
		}
		for !cover.Contains(ip) {
			cover = netip.PrefixFrom(cover.Addr(), cover.Bits()-1).Masked()
		}
	}
	if !cover.IsValid() {
		return nil
	}
	return []netip.Prefix{cover}
}

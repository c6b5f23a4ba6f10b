package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// These are the parts of objects that decisions read. An event that changes no fact, such as the heartbeat of a Node,
// ends at the source.

// nodeFacts is the part of a Node that decisions read.
type nodeFacts struct {
	PodCIDRs  []netip.Prefix // of both families, in their normal form
	Addresses []netip.Addr   // of both families
	Internal  []netip.Addr   // the InternalIPs among them
	Transport []netip.Addr   // of the annotation transportAddresses
	Networks  []netip.Prefix // of the annotation transportNetworks: each is an address with its length
	Zone      string         // service.ZoneOf
	// WireGuardKey is the value of the annotation nodeKey. With a key, no packet is sent to the Node in plain text.
	WireGuardKey string
	// NextKey and NextPort are the values of the annotations nextNodeKey and nextNodePort.
	NextKey, NextPort string
	// KeyNotBefore is the value of annotation multicluster.AnnotationKeyNotBefore. NodeKeyNotBefore is the value of
	// annotation nodeKeyNotBefore.
	KeyNotBefore, NodeKeyNotBefore string
	// UID and Created are another's when the Node was deleted and registered again.
	UID     types.UID
	Created time.Time
	// Leaving is set if load balancers should send it no new connections.
	Leaving      bool
	NetworksText string // of the annotation transportNetworks
	// Texts that could not be read.
	InvalidPodCIDR, InvalidTransport string
}

// transportAddresses is the annotation of a Node with the addresses where tunnels to it end, if that is not its
// InternalIP. Commas separate the addresses. A prefix length has no effect. The first address that tunnels can end at
// counts.
const transportAddresses = "node.antrea.io/transport-addresses"

func nodeFactsOf(n *corev1.Node) nodeFacts {
	// Every Node has a row, even if no fact about it is known yet, since it may be this Node.
	f := nodeFacts{
		Addresses: []netip.Addr{}, Zone: service.ZoneOf(n), WireGuardKey: n.Annotations[nodeKey],
		NextKey: n.Annotations[nextNodeKey], NextPort: n.Annotations[nextNodePort],
		KeyNotBefore: n.Annotations[multicluster.AnnotationKeyNotBefore], NodeKeyNotBefore: n.Annotations[nodeKeyNotBefore],
		UID: n.UID, Created: n.CreationTimestamp.UTC(), Leaving: isLeaving(n),
		NetworksText: n.Annotations[transportNetworks], Networks: networksOf(n.Annotations[transportNetworks]),
	}
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			f.PodCIDRs, f.InvalidPodCIDR = nil, err.Error()
			break
		}
		f.PodCIDRs = append(f.PodCIDRs, p.Masked())
	}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue
		}
		f.Addresses = append(f.Addresses, ip)
		if a.Type == corev1.NodeInternalIP {
			f.Internal = append(f.Internal, ip)
		}
	}
	text := n.Annotations[transportAddresses]
	for one := range strings.SplitSeq(text, ",") {
		address, _, _ := strings.Cut(strings.TrimSpace(one), "/")
		if ip, err := netip.ParseAddr(address); err == nil && ip.IsGlobalUnicast() {
			f.Transport = append(f.Transport, ip)
		}
	}
	kind, usable := "address", carriesTunnels
	if slices.ContainsFunc(f.Internal, netip.Addr.Is4) {
		kind, usable = "IPv4 address", netip.Addr.Is4 // as for Nodes without the annotation
	}
	if text != "" && !slices.ContainsFunc(f.Transport, usable) {
		f.Transport = nil
		f.InvalidTransport = fmt.Sprintf("annotation %s: %q has no %s that a tunnel can end at",
			transportAddresses, text, kind)
	}
	return f
}

// firstEnd returns the first address that tunnels can end at. Addresses of IPv4 go before addresses of IPv6: all Nodes
// of a cluster have to use one version, and each agent chooses without asking the others.
func firstEnd(list []netip.Addr) (netip.Addr, bool) {
	i := slices.IndexFunc(list, netip.Addr.Is4)
	if i < 0 {
		i = slices.IndexFunc(list, carriesTunnels)
	}
	if i < 0 {
		return netip.Addr{}, false
	}
	return list[i], true
}

// podCIDRs returns the ranges of the Node's Pods that are of some families, in the order of the Node's object.
func (n nodeFacts) podCIDRs(f family.Families) ([]netip.Prefix, error) {
	if n.InvalidPodCIDR != "" {
		return nil, errors.New(n.InvalidPodCIDR)
	}
	var out []netip.Prefix
	for _, p := range n.PodCIDRs {
		if f.Serve(p.Addr()) {
			out = append(out, p)
		}
	}
	return out, nil
}

// internalIP returns the first InternalIP. Tunnels to the Node end there unless it announces another address.
func (n nodeFacts) internalIP() (netip.Addr, bool) { return firstEnd(n.Internal) }

// tunnelEnd returns where tunnels to a Node end: the announced transport address, else the InternalIP. An annotation
// without a usable address has no effect, and the result has an error.
func (n nodeFacts) tunnelEnd() (ip netip.Addr, ok bool, err error) {
	if n.InvalidTransport != "" {
		err = errors.New(n.InvalidTransport)
	}
	if ip, ok = firstEnd(n.Transport); !ok {
		ip, ok = n.internalIP()
	}
	return ip, ok, err
}

// endOf returns the address at which other Nodes reach a Node, of one version of IP. It is the address where tunnels
// end, if that is of the version. Otherwise it is the first announced transport address of the version, or the first
// InternalIP.
func (n nodeFacts) endOf(six bool) (netip.Addr, bool) {
	end, _, _ := n.tunnelEnd()
	for _, ip := range slices.Concat([]netip.Addr{end}, n.Transport, n.Internal) {
		if carriesTunnels(ip) && ip.Is6() == six {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// tunnelEnds returns all addresses where tunnels of a Node may end or begin. These are the address that other Nodes
// send to, and its InternalIPs of the same version of IP. Its switch uses an InternalIP until it has seen the
// annotation.
func (n nodeFacts) tunnelEnds() []netip.Addr {
	end, ok, _ := n.tunnelEnd()
	if !ok {
		return nil
	}
	out := []netip.Addr{end}
	for _, ip := range n.Internal {
		if carriesTunnels(ip) && ip.Is4() == end.Is4() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// serviceCIDRsOf are the ranges of a ServiceCIDR, of both families.
func serviceCIDRsOf(sc *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range sc.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// identity returns the metadata that decisions read: name and age.
func identity(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, CreationTimestamp: m.CreationTimestamp}
}

func gatewayFactsOf(g *mcv1alpha1.Gateway) *mcv1alpha1.Gateway {
	out := &mcv1alpha1.Gateway{ObjectMeta: identity(g.ObjectMeta), GatewayIP: g.GatewayIP, InternalIP: g.InternalIP,
		ServiceCIDR: g.ServiceCIDR, WireGuard: g.WireGuard}
	for _, key := range []string{multicluster.AnnotationKeptPods, multicluster.AnnotationPhase,
		multicluster.AnnotationInsideIP} {
		if value, ok := g.Annotations[key]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	return out
}

func importFactsOf(ci *mcv1alpha1.ClusterInfoImport) *mcv1alpha1.ClusterInfoImport {
	out := &mcv1alpha1.ClusterInfoImport{ObjectMeta: identity(ci.ObjectMeta), Spec: ci.Spec}
	if since, ok := ci.Annotations[multicluster.AnnotationWithdrawn]; ok {
		out.Annotations = map[string]string{multicluster.AnnotationWithdrawn: since}
	}
	return out
}

// clusterSetFactsOf keeps the annotations with further sources of other clusters' tunnels.
func clusterSetFactsOf(cs *mcv1alpha2.ClusterSet) *mcv1alpha2.ClusterSet {
	out := &mcv1alpha2.ClusterSet{ObjectMeta: identity(cs.ObjectMeta)}
	for key, value := range cs.Annotations {
		if !strings.HasPrefix(key, multicluster.AnnotationTunnelSources) {
			continue
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[key] = value
	}
	if len(cs.Spec.Leaders) > 0 && cs.Spec.Leaders[0].Server != "" { // a leader has a second one in its Common Area
		out.Spec.ClusterID = cs.Spec.ClusterID
	}
	if out.Annotations == nil && out.Spec.ClusterID == "" {
		return nil
	}
	return out
}

func exportFactsOf(*mcsv1alpha1.ServiceExport) bool { return true }

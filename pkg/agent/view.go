package agent

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// View is everything a decision of the agent may depend on, for a plan from nothing.
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
	Pods               []*corev1.Pod // of the cluster
	Namespaces         []*corev1.Namespace
	NetworkPolicies    []*networkingv1.NetworkPolicy
	LabelIdentities    []*mcv1alpha1.LabelIdentity // none where policies do not span clusters
	PodAddressImports  []*mcv1alpha1.PodAddressImport

	// From the Node.
	Attachments []cni.Attachment
	Switch      bridge.State
	// Underlay is the interface that carries the Node's InternalIP.
	Underlay Underlay
	// GatewayMAC is the MAC of the host's gateway port; it is chosen once and then kept in
	// the OVSDB.
	GatewayMAC string
	// RuleKey is the key of the numbers of rules (datapath.Node).
	RuleKey datapath.Secret
	// InsideMAC is the MAC at which a userspace switch takes what WireGuard has decrypted.
	InsideMAC string
	// BesideMAC is the same for the device that is beside while a cluster changes its key, NodesMAC and NodesBesideMAC for those
	// between the Nodes of the cluster.
	BesideMAC, NodesMAC, NodesBesideMAC string
	// Sessions are those of WireGuard with other clusters, NodeSessions those with other Nodes.
	Sessions, NodeSessions sessions
}

// Underlay is what the Node says about its way to the other Nodes.
type Underlay struct {
	Read bool       // there is always a row once it was read
	Of   netip.Addr // the InternalIP whose interface it is; none with a transportInterface
	// Uplink is the interface that the switch takes over (userspace datapath with a
	// transportInterface); nil when the kernel keeps it.
	Uplink *hostnet.Transport
	// MTU of the interface that carries the tunnels: the transportInterface, else the one with
	// the Node's InternalIP; 0 when it is not known yet.
	MTU int
	// Addresses of the transportInterface where the kernel keeps it.
	Addresses []netip.Prefix
	// Local are all IPv4 addresses of the Node.
	Local []netip.Addr
	// Networks are those that the interface is attached to.
	Networks []netip.Prefix
}

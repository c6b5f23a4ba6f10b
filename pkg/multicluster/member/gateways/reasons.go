package gateways

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonFamiliesDiffer = reasons.New(reasons.Row{
		Name: "GatewayFamiliesDiffer", Objects: "Node",
		Shown: reasons.Event, Level: reasons.Error,
		Cause:  "Gateways have addresses of different versions of IP. One is not used.",
		Remedy: "Give the gateway Nodes addresses of one version, or set multicluster.antrea.io/gateway-ip.",
	})

	reasonGatewayIP = reasons.New(reasons.Row{
		Name: "GatewayIPUnusable", Objects: "Node", Shown: reasons.Event, Level: reasons.Error,
		Cause: "The Node has no usable address, or another Gateway has it. It is no Gateway.",
		Remedy: "Give the Node an address that gatewayIPPrecedence selects, or annotation " +
			"multicluster.antrea.io/gateway-ip with one.",
	})

	reasonGatewayNotReady = reasons.New(reasons.Row{
		Name: "GatewayNodeNotReady", Objects: "Node", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "A Gateway's Node is not Ready or no longer annotated, and no other Node can take its place.",
		Remedy: "Annotate another Node, or repair this one.",
	})

	reasonGatewayWithoutKey = reasons.New(reasons.Row{
		Name: "GatewayWithoutKey", Objects: "Node", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The Gateway's agent announces no WireGuard key, and others encrypt. The Node is no Gateway yet.",
		Remedy: "Set multicluster.trafficEncryptionMode to wireGuard for it, too.",
	})

	reasonIPv6NotCarried = reasons.New(reasons.Row{
		Name: "IPv6NotCarried", Objects: "Node", Shown: reasons.Event, Level: reasons.Warning,
		Cause: "The agent of the Node does not carry IPv6 between clusters. The cluster announces, exports and " +
			"imports no IPv6.",
		Remedy: "Upgrade the agent, and give the Node a range of IPv6 in spec.podCIDRs.",
	})

	reasonServiceCIDRUnknown = reasons.New(reasons.Row{
		Name: "ServiceCIDRUnknown", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The Service range could not be found out.",
		Remedy: "Set serviceCIDR in the member controller.",
	})

	reasonTooManyGateways = reasons.New(reasons.Row{
		Name: "TooManyGateways", Objects: "Node", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The cluster has as many Gateways as it may have. The Node is no Gateway.",
		Remedy: "Remove the annotation from a Node.",
	})

	reasonTunnelMismatch = reasons.New(reasons.Row{
		Name: "TunnelTypeMismatch", Objects: "Node", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "Tunnels of two clusters or Nodes differ. No packet passes between them.",
		Remedy: "Set tunnelType and tunnelPort to the same everywhere, and restart the agents.",
	})
)

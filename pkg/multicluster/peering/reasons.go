package peering

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonClientAddressNotKept = reasons.New(reasons.Row{
		Name: "ClientAddressNotKept", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "A Pod range is not reached, since preserveClientIP is always and the other cluster cannot keep " +
			"addresses.",
		Remedy: "Follow the message, or set multicluster.preserveClientIP to auto.",
	})

	reasonClusterWithdrawn = reasons.New(reasons.Row{
		Name: "ClusterWithdrawn", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The leader has no announcement of the cluster any more. Nothing is sent to it.",
		Remedy: "See that its Gateway is Ready and its member controller runs. If it has left, delete the object.",
	})

	reasonDuplicateCluster = reasons.New(reasons.Row{
		Name: "DuplicateCluster", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Two objects describe one cluster. One is ignored.",
		Remedy: "Delete one of them.",
	})

	reasonDuplicateGatewayIP = reasons.New(reasons.Row{
		Name: "DuplicateGatewayIP", Objects: "Gateway, ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Two Gateways have one address. One is ignored.",
		Remedy: "Give each Gateway an address of its own. The annotation multicluster.antrea.io/gateway-ip of its " +
			"Node may have a wrong one.",
	})

	reasonDuplicateInsideIP = reasons.New(reasons.Row{
		Name: "DuplicateInsideIP", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Two Gateways have one address inside WireGuard. One is ignored.",
		Remedy: "Give one of the Gateways another address.",
	})

	reasonDuplicateWireGuardKey = reasons.New(reasons.Row{
		Name: "DuplicateWireGuardKey", Objects: "ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Gateways of two clusters have one WireGuard key. One of them is not reached.",
		Remedy: "Remove the file of the key below /var/lib/tombolo on the Node that has a copy, and restart its " +
			"agent.",
	})

	reasonGatewayFamiliesDiffer = reasons.New(reasons.Row{
		Name: "GatewayFamiliesDiffer", Objects: "Gateway, ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Gateways have addresses of different versions of IP. One is not used.",
		Remedy: "Give the gateway Nodes addresses of one version, or set multicluster.antrea.io/gateway-ip.",
	})

	reasonInvalidGatewayIP = reasons.New(reasons.Row{
		Name: "InvalidGatewayIP", Objects: "Gateway, ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The address of a Gateway is not usable. The Gateway is ignored.",
		Remedy: "Correct the address of its Node, or the annotation multicluster.antrea.io/gateway-ip there.",
	})

	reasonInvalidInsideIP = reasons.New(reasons.Row{
		Name: "InvalidInsideIP", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The address of a Gateway inside WireGuard is not valid. The Gateway is ignored.",
		Remedy: "Apply the manifests of this release in that cluster and in the leader's.",
	})

	reasonInvalidInternalIP = reasons.New(reasons.Row{
		Name: "InvalidInternalIP", Objects: "Gateway", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Gateway has no usable internal address. It is not used.",
		Remedy: "Give its Node an InternalIP.",
	})

	reasonInvalidPodCIDR = reasons.New(reasons.Row{
		Name: "InvalidPodCIDR", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A Pod range of another cluster is not valid. It is ignored.",
		Remedy: "Correct podCIDRs of the member controller there.",
	})

	reasonInvalidServiceCIDR = reasons.New(reasons.Row{
		Name: "InvalidServiceCIDR", Objects: "Gateway, ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A Service range is not valid. The cluster is ignored.",
		Remedy: "Set serviceCIDR in its member controller.",
	})

	reasonInvalidTunnelSource = reasons.New(reasons.Row{
		Name: "InvalidTunnelSource", Objects: "ClusterInfoImport, ClusterSet",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "An address in the annotation about tunnel sources is not valid.",
		Remedy: "Correct the annotation.",
	})

	reasonInvalidWireGuardKey = reasons.New(reasons.Row{
		Name: "InvalidWireGuardKey", Objects: "ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An announced WireGuard key is not valid. The Gateway is not reached.",
		Remedy: "Apply the manifests of this release in that cluster.",
	})

	reasonInvalidWireGuardPort = reasons.New(reasons.Row{
		Name: "InvalidWireGuardPort", Objects: "ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The announced port for a change of keys is not valid. Packets will be lost when the key changes.",
		Remedy: "Apply the manifests of this release in that cluster.",
	})

	reasonNoClusterID = reasons.New(reasons.Row{
		Name: "NoClusterID", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The cluster has no ID. It is ignored.",
		Remedy: "Set clusterID in its ClusterSet.",
	})

	reasonNoGateway = reasons.New(reasons.Row{
		Name: "NoGateway", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The cluster has no Gateway. It is not reached.",
		Remedy: "Annotate one of its Nodes with multicluster.antrea.io/gateway=true.",
	})

	reasonNoInsideIP = reasons.New(reasons.Row{
		Name: "NoInsideIP", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A Gateway announces no address inside WireGuard. It is ignored.",
		Remedy: "Apply the manifests of this release in both clusters and in the leader's.",
	})

	reasonOverlappingPodCIDR = reasons.New(reasons.Row{
		Name: "OverlappingPodCIDR", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A Pod range of another cluster overlaps another range. It is ignored.",
		Remedy: "Use Pod ranges that do not overlap, or turn enablePodToPodConnectivity off.",
	})

	reasonOverlappingServiceCIDR = reasons.New(reasons.Row{
		Name: "OverlappingServiceCIDR", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A Service range of another cluster overlaps another range. The cluster or range is ignored.",
		Remedy: "Give the clusters Service ranges that do not overlap.",
	})

	reasonPeerExpectsEncryption = reasons.New(reasons.Row{
		Name: "PeerExpectsEncryption", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The other cluster announces a WireGuard key, and this one does not encrypt. It is ignored.",
		Remedy: "Set multicluster.trafficEncryptionMode to the same in both clusters.",
	})

	reasonPeerWithoutEncryption = reasons.New(reasons.Row{
		Name: "PeerWithoutEncryption", Objects: "ClusterInfoImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The other cluster announces no WireGuard key, and this one encrypts. It is ignored.",
		Remedy: "Set multicluster.trafficEncryptionMode to wireGuard in that cluster.",
	})

	reasonTunnelTypeMismatch = reasons.New(reasons.Row{
		Name: "TunnelTypeMismatch", Objects: "ClusterInfoImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Tunnels of two clusters or Nodes differ. No packet passes between them.",
		Remedy: "Set tunnelType and tunnelPort to the same everywhere, and restart the agents.",
	})

	reasonUnknownCluster = reasons.New(reasons.Row{
		Name: "UnknownCluster", Objects: "ClusterSet", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "An annotation about tunnel sources names a cluster that is not connected.",
		Remedy: "Correct the ID after the slash, or remove the annotation.",
	})
)

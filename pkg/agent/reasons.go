package agent

import (
	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// The reasons of this package.
var (
	reasonAddressOfNoNetwork = reasons.New(reasons.Row{
		Name: "AddressOfNoNetwork", Objects: "Service", Shown: reasons.Problem, Level: reasons.Warning,
		Cause: "An address of an ExternalIPPool is on a Node and in no network of that Node. Other machines need " +
			"a route to it.",
		Remedy: "Add a route through the Node, or use addresses of the Nodes' network.",
	})

	reasonAttachmentLost = reasons.New(reasons.Row{
		Name: "AttachmentLost", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The agent lost the records of a Pod's interface and cannot rebuild them.",
		Remedy: "Delete the Pod. If it is gone already, remove its interface on the Node.",
	})

	reasonClusterIPsNotServed = reasons.New(reasons.Row{
		Name: "ClusterIPsNotServed", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "The Node has no Pod range of the version of IP of a Service range. ClusterIPs of that range lead " +
			"nowhere there.",
		Remedy: "Give kube-controller-manager a cluster CIDR of both versions and register the Node again, or " +
			"remove the Service range.",
	})

	reasonConfigurationChanged = reasons.New(reasons.Row{
		Name: "ConfigurationChanged", Objects: "ConfigMap of the agents", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The configuration file has changed since the agent started.",
		Remedy: "Restart the agent of the Node.",
	})

	reasonConfigurationIgnored = reasons.New(reasons.Row{
		Name: "ConfigurationIgnored", Objects: "ConfigMap of the agents", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "A key of a configuration has no effect.",
		Remedy: "The message has the remedy for the key. Keys of antrea-controller can be removed.",
	})

	reasonConfigurationInvalid = reasons.New(reasons.Row{
		Name: "ConfigurationInvalid", Objects: "ConfigMap of the agents",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The changed configuration has faults. The agent goes on with the earlier configuration.",
		Remedy: "Correct the ConfigMap antrea-config.",
	})

	reasonConnectionEndsNotSeen = reasons.New(reasons.Row{
		Name: "ConnectionEndsNotSeen", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "Records of connections have no end and no bytes.",
		Remedy: "Give the agent the capability NET_ADMIN, and the kernel the module nf_conntrack_netlink.",
	})

	reasonConnectionsNearLimit = reasons.New(reasons.Row{
		Name: "ConnectionsNearLimit", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The datapath tracks nearly as many connections as it can. At the limit it drops new ones.",
		Remedy: "Find the Pod that opens them, or raise the limit.",
	})

	reasonConnectionsNotRead = reasons.New(reasons.Row{
		Name: "ConnectionsNotRead", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause: "The switch does not list its connections. Connections from before the last start of agent or " +
			"switch may go on although policies forbid them.",
		Remedy: "The agent tries again. If it stays so, restart ovs-vswitchd.",
	})

	reasonConntrackFlushUnsupported = reasons.New(reasons.Row{
		Name: "ConntrackFlushUnsupported", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause: "The switch cannot end connections. UDP clients go on to endpoints that are gone, until they " +
			"pause.",
		Remedy: "Use Open vSwitch 3.1 or later.",
	})

	reasonDuplicateInsideAddress = reasons.New(reasons.Row{
		Name: "DuplicateInsideAddress", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Two Nodes have addresses that look the same inside WireGuard. The Pods of one are not reached.",
		Remedy: "Give one of them another address, or annotate it with node.antrea.io/transport-addresses.",
	})

	reasonDuplicateWireGuardKey = reasons.New(reasons.Row{
		Name: "DuplicateWireGuardKey", Objects: "Node",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Two Nodes have one WireGuard key. One of them is not reached.",
		Remedy: "Remove the file of the key below /var/lib/tombolo on the Node that has a copy, and restart its " +
			"agent.",
	})

	reasonFamiliesDiffer = reasons.New(reasons.Row{
		Name: "FamiliesDiffer", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Tunnels to a Node end at an address of one version of IP, and this Node has the other. Its Pods are " +
			"not reached.",
		Remedy: "Give both Nodes an InternalIP of one version.",
	})

	reasonFlowCollectorUnreachable = reasons.New(reasons.Row{
		Name: "FlowCollectorUnreachable", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "Flow records do not reach the collector.",
		Remedy: "Check flowExporter.flowCollectorAddr, and that the collector runs.",
	})

	reasonGatewayAddressNotServed = reasons.New(reasons.Row{
		Name: "GatewayAddressNotServed", Objects: "Gateway", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Other clusters send to an address at which no tunnel of the Node ends.",
		Remedy: "Annotate the Node with multicluster.antrea.io/gateway-ip, as the message shows.",
	})

	reasonHostIPNotOnNode = reasons.New(reasons.Row{
		Name: "HostIPNotOnNode", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The hostIP of a port is no address of the Node.",
		Remedy: "Correct hostIP, or remove it.",
	})

	reasonHostIPNotServed = reasons.New(reasons.Row{
		Name: "HostIPNotServed", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A port is not opened at its hostIP.",
		Remedy: "Give the port another address of the Node, or no hostIP.",
	})

	reasonHostPortIsNodePort = reasons.New(reasons.Row{
		Name: "HostPortIsNodePort", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "A hostPort has the number of a Service's NodePort, and comes first on this Node.",
		Remedy: "Give one of the two another port.",
	})

	reasonHostPortTaken = reasons.New(reasons.Row{
		Name: "HostPortTaken", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Another Pod of the Node has the hostPort.",
		Remedy: "Give the Pod another port, or let it run on another Node.",
	})

	reasonIPv6Off = reasons.New(reasons.Row{
		Name: "IPv6Off", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "The kernel's IPv6 is off, and the Node has a Pod range of IPv6.",
		Remedy: "Start the kernel without ipv6.disable=1 and set net.ipv6.conf.all.disable_ipv6 to 0, or use " +
			"ranges of IPv4 alone.",
	})

	reasonInvalidAddress = reasons.New(reasons.Row{
		Name: "InvalidAddress", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Encryption cannot use the Node's address.",
		Remedy: "The message has the fault. Give the Node another address.",
	})

	reasonInvalidAttachment = reasons.New(reasons.Row{
		Name: "InvalidAttachment", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The record of a Pod's port is not valid.",
		Remedy: "Delete the Pod, and it is attached again.",
	})

	reasonInvalidPodCIDR = reasons.New(reasons.Row{
		Name: "InvalidPodCIDR", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A range in spec.podCIDRs is not valid.",
		Remedy: "Register the Node again with a valid range.",
	})

	reasonInvalidTime = reasons.New(reasons.Row{
		Name: "InvalidTime", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The annotation with the time for a change of keys is not a time.",
		Remedy: "Write a time in the format of RFC 3339, such as 2026-01-31T12:00:00Z.",
	})

	reasonInvalidTransportAddress = reasons.New(reasons.Row{
		Name: "InvalidTransportAddress", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The annotation node.antrea.io/transport-addresses is not valid. The InternalIP is used.",
		Remedy: "Correct or remove the annotation.",
	})

	reasonInvalidWireGuardKey = reasons.New(reasons.Row{
		Name: "InvalidWireGuardKey", Objects: "Node",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An announced WireGuard key is not valid. The Node is not reached.",
		Remedy: "Remove the annotation of the Node, and its agent writes it again.",
	})

	reasonInvalidWireGuardPort = reasons.New(reasons.Row{
		Name: "InvalidWireGuardPort", Objects: "Node",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The announced port for a change of keys is not valid. Packets will be lost when the key changes.",
		Remedy: "Remove the annotation of the Node, and its agent writes it again.",
	})

	reasonMTUTooLarge = reasons.New(reasons.Row{
		Name: "MTUTooLarge", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The Pod's interface has a larger MTU than the packets that reach all Pods now.",
		Remedy: "Delete the Pod, and it is made again.",
	})

	reasonMTUTooSmall = reasons.New(reasons.Row{
		Name: "MTUTooSmall", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The MTU of Pods is too small for IPv6.",
		Remedy: "Raise defaultMTU, or the MTU of the interface between the Nodes.",
	})

	reasonNetworkNotReady = reasons.New(reasons.Row{
		Name: "NetworkNotReady", Objects: "AntreaAgentInfo", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The network of the Node is not set up. The message names the parts that the agent waits for.",
		Remedy: "See `tombolo get status` on the Node.",
	})

	reasonNoInternalIP = reasons.New(reasons.Row{
		Name: "NoInternalIP", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Node has no InternalIP of a version of IP. Its Pods do not have that version.",
		Remedy: "Give the Node an InternalIP of that version.",
	})

	reasonNoPodCIDR = reasons.New(reasons.Row{
		Name: "NoPodCIDR", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Node has no spec.podCIDRs. Pods get no addresses.",
		Remedy: "Start kube-controller-manager with --allocate-node-cidrs and --cluster-cidr.",
	})

	reasonNoTransportAddress = reasons.New(reasons.Row{
		Name: "NoTransportAddress", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "transportInterface has no address at which tunnels can end. They use the InternalIP.",
		Remedy: "Give it an address, or name another interface.",
	})

	reasonNoWireGuardKey = reasons.New(reasons.Row{
		Name: "NoWireGuardKey", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The agent cannot read or write its WireGuard key. Encrypted peers are not reached.",
		Remedy: "Mend the cause that the message names, and restart the agent.",
	})

	reasonNodeExpectsEncryption = reasons.New(reasons.Row{
		Name: "NodeExpectsEncryption", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Node announces a WireGuard key, and this Node does not encrypt. Its Pods are not reached.",
		Remedy: "Set trafficEncryptionMode to the same for all Nodes, and restart their agents.",
	})

	reasonNodeNotFound = reasons.New(reasons.Row{
		Name: "NodeNotFound", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "There is no Node with the agent's name. No Pod can be added.",
		Remedy: "Check NODE_NAME of the agent.",
	})

	reasonNodeWithoutEncryption = reasons.New(reasons.Row{
		Name: "NodeWithoutEncryption", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Node announces no WireGuard key, and this Node encrypts. Its Pods are not reached.",
		Remedy: "Set trafficEncryptionMode to wireGuard, and restart the agent of that Node.",
	})

	reasonNotConnected = reasons.New(reasons.Row{
		Name: "NotConnected", Objects: "AntreaAgentInfo", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The agent has no connection to the OVSDB or to the switch.",
		Remedy: "See the Pod tombolo-ovs of the Node.",
	})

	reasonNotWatched = reasons.New(reasons.Row{
		Name: "NotWatched", Objects: "AntreaAgentInfo",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The program cannot read a kind from the API server.",
		Remedy: "The message has the kind and the error. Check the rights.",
	})

	reasonNoOwnNetwork = reasons.New(reasons.Row{
		Name: "NoOwnNetwork", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Warning,
		Cause: "A VirtualNetwork is named as a Pod's own network, and the Pod is in another one. It has hostNetwork, or " +
			"has started before the annotation.",
		Remedy: "With hostNetwork, remove that or the annotation net.juniper.contrail.podnetwork. Else delete the Pod.",
	})

	reasonPodCIDRChanged = reasons.New(reasons.Row{
		Name: "PodCIDRChanged", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The Pod has an address from an earlier registration of the Node.",
		Remedy: "Delete the Pod, and it is made again with an address of the Node.",
	})

	reasonPodEndpointsUnreachable = reasons.New(reasons.Row{
		Name: "PodEndpointsUnreachable", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An endpoint is a Pod of another cluster, which is not reached.",
		Remedy: "Set multicluster.enablePodToPodConnectivity in both clusters.",
	})

	reasonPortRefused = reasons.New(reasons.Row{
		Name: "PortRefused", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Open vSwitch refused the port of a Pod.",
		Remedy: "The message has its error. Delete the Pod, and it is attached again.",
	})

	reasonPrefixLengthsDiffer = reasons.New(reasons.Row{
		Name: "PrefixLengthsDiffer", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "Two Nodes of one subnet have different prefix lengths. Packets between them go through tunnels.",
		Remedy: "Give both addresses the same prefix length.",
	})

	reasonServiceSourceTaken = reasons.New(reasons.Row{
		Name: "ServiceSourceTaken", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Pod has the address from which clients outside reach Pods of other Nodes.",
		Remedy: "Delete the Pod, and it is made again with another address.",
	})

	reasonTransportAddressNotAnnounced = reasons.New(reasons.Row{
		Name: "TransportAddressNotAnnounced", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Other Nodes send to an address that transportInterface does not have.",
		Remedy: "Annotate the Node with node.antrea.io/transport-addresses, as the message shows, or remove " +
			"transportInterface.",
	})

	reasonTransportNetworkUnknown = reasons.New(reasons.Row{
		Name: "TransportNetworkUnknown", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause: "The transport interface does not have the Node's address. Packets to all Nodes go through " +
			"tunnels.",
		Remedy: "Set transportInterface to the interface that has it.",
	})

	reasonTunnelEndNotLocal = reasons.New(reasons.Row{
		Name: "TunnelEndNotLocal", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Other Nodes send to an address that the Node does not have.",
		Remedy: "Annotate the Node with node.antrea.io/transport-addresses and an address of the Node.",
	})

	reasonTunnelFamiliesDiffer = reasons.New(reasons.Row{
		Name: "TunnelFamiliesDiffer", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Tunnels of GRE on the kernel's datapath have one version of IP, and another cluster's end has " +
			"the other.",
		Remedy: "The message has the remedy. With tunnelType geneve or vxlan both versions work.",
	})

	reasonUnknownResolver = reasons.New(reasons.Row{
		Name: "UnknownResolver", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "Pods under rules with names ask DNS servers that the agent does not learn from.",
		Remedy: "Let the Pods ask the cluster's DNS, or list the servers in dnsServerOverride.",
	})

	reasonUplinkNotTakenOver = reasons.New(reasons.Row{
		Name: "UplinkNotTakenOver", Objects: "Node", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The userspace datapath cannot use transportInterface.",
		Remedy: "Give the interface an address, or name another one.",
	})

	reasonWayNotWatched = reasons.New(reasons.Row{
		Name: "WayNotWatched", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The loss of a way is not detected, since its port has the name of another way's port.",
		Remedy: "Give one of the two Nodes another address.",
	})

	reasonWireGuardKeyRotation = reasons.New(reasons.Row{
		Name: "WireGuardKeyRotation", Objects: "Node", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The change of a WireGuard key waits.",
		Remedy: "The message names the sessions that are missing. Let the UDP port of the new key pass.",
	})

	reasonCaptureFailed = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonFailed, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Nothing could be captured, or not all.",
		Remedy: "The message has the fault.",
	})

	reasonCaptureNotServed = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonNotServed, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "A field of the PacketCapture has no effect.",
		Remedy: "Remove the field, or follow the message.",
	})

	reasonCapturePending = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonPending, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "The capture waits for the agent.",
		Remedy: "The message has the cause. It goes on by itself.",
	})

	reasonCaptureStarted = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonStarted, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "An agent captures, or has captured. Nothing is wrong.",
	})

	reasonCaptureSucceed = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonSucceed, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "All packets are captured. Nothing is wrong.",
	})

	reasonCaptureTimeout = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonTimeout, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "The time was over before all packets were captured.",
		Remedy: "Give it a longer spec.timeout, or fewer packets.",
	})

	reasonCaptureWaiting = reasons.New(reasons.Row{
		Name: crdv1alpha1.ReasonWaiting, Objects: "PacketCapture", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "The Pod is not there or not attached yet.",
		Remedy: "Wait, or correct the name of the Pod.",
	})
)

package tenant

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonAlreadyMember = reasons.New(reasons.Row{
		Name: "AlreadyMember", Objects: "VirtualNetworkRouter, TenantNetworkImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A Namespace is in another network already. It is left out of this one.",
		Remedy: "Remove it from one of the two.",
	})

	reasonInTenantNetwork = reasons.New(reasons.Row{
		Name: "InTenantNetwork", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Pods of the Namespace are in a TenantNetwork, which no router joins.",
		Remedy: "Use a NetworkConnection in the leader, or remove the annotation tombolo.io/tenant-network.",
	})

	reasonInvalidForwardingMode = reasons.New(reasons.Row{
		Name: "InvalidForwardingMode", Objects: "Namespace", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The forwarding mode is not known. It is ignored.",
		Remedy: "Set it to fabric-snat, or remove it.",
	})

	reasonInvalidLabel = reasons.New(reasons.Row{
		Name: "InvalidLabel", Objects: "Namespace", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The label that isolates has another value than true. The Namespace is isolated.",
		Remedy: "Write true, or remove the label.",
	})

	reasonInvalidSelector = reasons.New(reasons.Row{
		Name: "InvalidSelector", Objects: "VirtualNetworkRouter, TenantNetworkImport",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A selector is not valid. It selects nothing.",
		Remedy: "Correct the selector.",
	})

	reasonInvalidType = reasons.New(reasons.Row{
		Name: "InvalidType", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The type is not known. It joins nothing.",
		Remedy: "Write mesh, hub or spoke.",
	})

	reasonNetworkNotFound = reasons.New(reasons.Row{
		Name: "NetworkNotFound", Objects: "Namespace",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "There is no TenantNetwork of this name. The Namespace is in a network of its own.",
		Remedy: "Create it, or correct the name.",
	})

	reasonNoCopy = reasons.New(reasons.Row{
		Name: "NoCopy", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "In the central cluster, the Namespace of the router has no copy, and an import selects routers in copies " +
			"alone. Or one of two Namespaces has no copy, and the other one has a copy. They are not joined.",
		Remedy: "Let the central cluster be a member with the clusterID of the leader, and create a Kubemanager for it.",
	})

	reasonNotAllowed = reasons.New(reasons.Row{
		Name: "NotAllowed", Objects: "Subnet", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Operators do not allow the range. No Pod gets an address of it.",
		Remedy: "Create another Subnet in an allowed range, or add the range to tenantNetworks.subnetCIDRs.",
	})

	reasonNotImportedBack = reasons.New(reasons.Row{
		Name: "NotImportedBack", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Only one of two routers imports the other. Their networks are not joined.",
		Remedy: "Import the router in the other one, too.",
	})

	reasonNotIsolated = reasons.New(reasons.Row{
		Name: "NotIsolated", Objects: "Namespace, VirtualNetwork, VirtualNetworkRouter",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The Namespace is not isolated, so the object or annotation has no effect.",
		Remedy: "Set the label core.juniper.net/isolated-namespace to true, or remove the other one.",
	})

	reasonNotJoinable = reasons.New(reasons.Row{
		Name: "NotJoinable", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The types of two routers do not go together.",
		Remedy: "Use two of type mesh, or a hub with a spoke.",
	})

	reasonNotSelected = reasons.New(reasons.Row{
		Name: "NotSelected", Objects: "Namespace", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The TenantNetwork does not select the Namespace. It is in a network of its own.",
		Remedy: "Change its labels, or the selector of the TenantNetwork.",
	})

	reasonNotServed = reasons.New(reasons.Row{
		Name: "NotServed", Objects: "VirtualNetwork, VirtualNetworkRouter, Namespace",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "A field has no effect in this version.",
		Remedy: "Remove the field, or follow the message.",
	})

	reasonNumberTaken = reasons.New(reasons.Row{
		Name: "NumberTaken", Objects: "VirtualNetworkRouter, Namespace",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An older object has the same number of a network. The Pods have no traffic.",
		Remedy: "Delete the object and create it again, and it gets another number.",
	})

	reasonPodNetworkRefused = reasons.New(reasons.Row{
		Name: "PodNetworkRefused", Objects: "Namespace", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The annotation that names the network of first interfaces is wrong. Pods of the Namespace do not start.",
		Remedy: "Correct the annotation, or remove it.",
	})

	reasonRouterNotFound = reasons.New(reasons.Row{
		Name: "RouterNotFound", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "There is no router that the import names.",
		Remedy: "Create it, or remove the import.",
	})

	reasonSelectsNothing = reasons.New(reasons.Row{
		Name: "SelectsNothing", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A selector selects no network or router.",
		Remedy: "Correct the selector or the labels.",
	})

	reasonSeparateNetwork = reasons.New(reasons.Row{
		Name: "SeparateNetwork", Objects: "VirtualNetwork, VirtualNetworkRouter",
		Shown: reasons.Problem, Level: reasons.Warning,
		Cause: "The addresses of the VirtualNetwork may also exist in other networks. It is joined only with networks of " +
			"its zone (column ZONE of SubnetLeases).",
		Remedy: "Delete the Pods in one of two networks that a router should join, or create the network again with a " +
			"Subnet whose range no other Subnet overlaps.",
	})

	reasonSystemNamespace = reasons.New(reasons.Row{
		Name: "SystemNamespace", Objects: "Namespace", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "default or kube-system is isolated. Other Namespaces do not reach DNS and other Services there.",
		Remedy: "Remove the label core.juniper.net/isolated-namespace.",
	})

	reasonTooManyLabels = reasons.New(reasons.Row{
		Name: "TooManyLabels", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The router has too many labels. It joins nothing.",
		Remedy: "Leave fewer labels.",
	})

	reasonTooManyRouters = reasons.New(reasons.Row{
		Name: "TooManyRouters", Objects: "VirtualNetworkRouter", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "There are too many routers. Later ones do not count.",
		Remedy: "Delete routers, or select fewer.",
	})

	reasonInvalid = reasons.New(reasons.Row{
		Name: "Invalid", Objects: "Subnet, VirtualNetwork, NetworkAttachmentDefinition",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An address, a range or a reference is wrong. No Pod gets an address by it.",
		Remedy: "Correct it. The range of a Subnet stays the same: create another one.",
	})

	reasonNoSubnet = reasons.New(reasons.Row{
		Name: "NoSubnet", Objects: "VirtualNetwork", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The VirtualNetwork has no Subnet. No Pod is in it.",
		Remedy: "Create a Subnet, and name it in v4SubnetReference or v6SubnetReference.",
	})

	reasonJoinLeftOut = reasons.New(reasons.Row{
		Name: "JoinLeftOut", Objects: "VirtualNetwork or TenantNetworkImport", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "The central cluster joins it with a VirtualNetwork of another cluster, whose range overlaps a Subnet here " +
			"that it reaches, or a range of a third network. They do not reach each other.",
		Remedy: "Give one of the two a Subnet with another range.",
	})

	reasonOverlap = reasons.New(reasons.Row{
		Name: "Overlap", Objects: "Subnet", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "The range meets a range of Nodes, Pods, Services or another cluster. Or it meets another Subnet, and its " +
			"VirtualNetwork cannot be a separate network. No Pod gets an address of it.",
		Remedy: "Create another Subnet with a range of its own, or follow the message.",
	})

	reasonSubnetNotFound = reasons.New(reasons.Row{
		Name: "SubnetNotFound", Objects: "VirtualNetwork", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Subnet is not there. No Pod gets an address.",
		Remedy: "Create it.",
	})

	reasonSubnetNotServed = reasons.New(reasons.Row{
		Name: "SubnetNotServed", Objects: "VirtualNetwork", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Subnet gives no addresses to this VirtualNetwork.",
		Remedy: "Look at the observation of the Subnet, or use another one.",
	})

	reasonTooManyNetworks = reasons.New(reasons.Row{
		Name: "TooManyNetworks", Objects: "VirtualNetwork", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Its Namespace has too many VirtualNetworks. No Pod is in this one.",
		Remedy: "Delete a VirtualNetwork of the Namespace.",
	})
)

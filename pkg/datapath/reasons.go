package datapath

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonConflict = reasons.New(reasons.Row{
		Name: "Conflict", Objects: "any object with flows", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Its addresses or ports belong to another object already. It is left out.",
		Remedy: "Give the two objects addresses and ports of their own.",
	})

	reasonHostPortNotServed = reasons.New(reasons.Row{
		Name: "HostPortNotServed", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Namespace is isolated, and only processes of its Node reach the Pod by a hostPort.",
		Remedy: "Use a Service of type NodePort with externalTrafficPolicy Local.",
	})

	reasonInvalidGatewayIP = reasons.New(reasons.Row{
		Name: "InvalidGatewayIP", Objects: "cluster", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The address of a Gateway is not usable. The Gateway is ignored.",
		Remedy: "Correct the address of its Node, or the annotation multicluster.antrea.io/gateway-ip there.",
	})

	reasonNoServices = reasons.New(reasons.Row{
		Name: "NoServices", Objects: "Pod", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "The Pod's own network is a VirtualNetwork, and its address is in a range that Nodes, Services or another " +
			"cluster have got since. Services do not answer it.",
		Remedy: "Change that range, or run the Pod in a VirtualNetwork with another Subnet.",
	})

	reasonRangeTaken = reasons.New(reasons.Row{
		Name: "RangeTaken", Objects: "cluster", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "A VirtualNetwork of another cluster, which is joined with one of this cluster, has a range that a Node, " +
			"Services or a third cluster has, too. Its Pods are not reached.",
		Remedy: "Create a Subnet with another range there, and a VirtualNetwork with it.",
	})
)

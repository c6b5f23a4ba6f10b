package externalip

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonAddressInUse = reasons.New(reasons.Row{
		Name: "AddressInUse", Objects: "Service, ExternalIPPool",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause: "An address belongs to another object.",
		Remedy: "Choose another address. With the annotation service.antrea.io/allow-shared-load-balancer-ip " +
			"Services share one.",
	})

	reasonAddressNotInPool = reasons.New(reasons.Row{
		Name: "AddressNotInPool", Objects: "Service",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "spec.loadBalancerIP is not an address that the pool can give.",
		Remedy: "Choose another address or another pool.",
	})

	reasonAssigned = reasons.New(reasons.Row{
		Name: "Assigned", Objects: "Service", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The Service has an address of the pool. Nothing is wrong.",
	})

	reasonInvalidAddress = reasons.New(reasons.Row{
		Name: "InvalidAddress", Objects: "Service", Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "spec.loadBalancerIP is not a usable address.",
		Remedy: "Correct or remove it.",
	})

	reasonInvalidRange = reasons.New(reasons.Row{
		Name: "InvalidRange", Objects: "ExternalIPPool",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A range or the gateway is not valid. It is left out.",
		Remedy: "Correct the range.",
	})

	reasonInvalidSelector = reasons.New(reasons.Row{
		Name: "InvalidSelector", Objects: "ExternalIPPool",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "nodeSelector is not valid. No Node holds the addresses.",
		Remedy: "Correct the selector.",
	})

	reasonNoNode = reasons.New(reasons.Row{
		Name: "NoNode", Objects: "Service, ExternalIPPool",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause: "No Node that the pool selects has a Pod range of the address's version of IP. No Node holds the " +
			"address.",
		Remedy: "Change nodeSelector of the pool, or the labels of Nodes.",
	})

	reasonNoSuchRange = reasons.New(reasons.Row{
		Name: "NoSuchRange", Objects: "Service", Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The pool has no range of the Service's version of IP.",
		Remedy: "Add a range to the pool, or name another pool.",
	})

	reasonPoolExhausted = reasons.New(reasons.Row{
		Name: "PoolExhausted", Objects: "Service", Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The pool has no free address.",
		Remedy: "Add a range to the pool, or delete a Service that has an address.",
	})

	reasonUnderstood = reasons.New(reasons.Row{
		Name: "Understood", Objects: "ExternalIPPool",
		Shown: reasons.Condition, Level: reasons.Info,
		Cause: "All of the object is understood. Nothing is wrong.",
	})

	reasonUnknownPool = reasons.New(reasons.Row{
		Name: "UnknownPool", Objects: "Service", Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "There is no ExternalIPPool with the name in the annotation.",
		Remedy: "Create it, or name another one.",
	})

	reasonVersionNotServed = reasons.New(reasons.Row{
		Name: "VersionNotServed", Objects: "ExternalIPPool",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The cluster has no ClusterIPs of the range's version of IP.",
		Remedy: "Remove the range, or convert the cluster to dual stack.",
	})
)

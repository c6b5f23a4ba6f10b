package tenants

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonTooManyNamespaces = reasons.New(reasons.Row{
		Name: "TooManyNamespaces", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The cluster has too many isolated Namespaces for the central cluster. The youngest ones have no copies.",
		Remedy: "Isolate fewer Namespaces.",
	})

	reasonTooManyVirtualNetworks = reasons.New(reasons.Row{
		Name: "TooManyVirtualNetworks", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The list for the central cluster has no room for all VirtualNetworks. The youngest ones have no copies.",
		Remedy: "Delete VirtualNetworks, or shorten labels.",
	})

	reasonTooManyLabels = reasons.New(reasons.Row{
		Name: "TooManyLabels", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "Isolated Namespaces or their VirtualNetworks have too many or too long labels. Copies lack some of them.",
		Remedy: "Shorten or remove labels.",
	})

	reasonNameTaken = reasons.New(reasons.Row{
		Name: "NameTaken", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause: "The central cluster requests a VirtualNetwork or Subnet whose name another object of the Namespace has. " +
			"Nothing is created for this request.",
		Remedy: "Delete the other object, or rename one in the central cluster.",
	})

	reasonRequestRefused = reasons.New(reasons.Row{
		Name: "RequestRefused", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause: "A VirtualNetwork that the central cluster requests is not valid, or its Namespace has too many of them. " +
			"It is not created.",
		Remedy: "Correct it, or delete some, in the central cluster.",
	})
)

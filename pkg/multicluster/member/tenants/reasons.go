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
)

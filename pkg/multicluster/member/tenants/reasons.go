package tenants

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonTooManyNamespaces = reasons.New(reasons.Row{
		Name: "TooManyNamespaces", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The cluster has too many isolated Namespaces for the central cluster. The youngest ones have no copies.",
		Remedy: "Isolate fewer Namespaces.",
	})

	reasonTooManyLabels = reasons.New(reasons.Row{
		Name: "TooManyLabels", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "Isolated Namespaces have too many or too long labels. Their copies lack some of them.",
		Remedy: "Shorten or remove labels of the Namespaces.",
	})
)

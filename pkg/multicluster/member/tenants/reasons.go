package tenants

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var reasonTooManyNamespaces = reasons.New(reasons.Row{
	Name: "TooManyNamespaces", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
	Cause:  "The cluster has too many isolated Namespaces for the central cluster. The youngest ones have no copies.",
	Remedy: "Isolate fewer Namespaces, or remove labels of them.",
})

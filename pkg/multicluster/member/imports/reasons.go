package imports

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonUnreachable = reasons.New(reasons.Row{
		Name: "EndpointsUnreachable", Objects: "Service", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "An endpoint is in no range that a cluster announces.",
		Remedy: "Set podCIDRs in the member controller of the exporting cluster.",
	})

	reasonNamespaceMissing = reasons.New(reasons.Row{
		Name: "NamespaceNotFound", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "A Service is not imported, since its Namespace does not exist.",
		Remedy: "Create the Namespace.",
	})

	reasonNotImported = reasons.New(reasons.Row{
		Name: "NotImported", Objects: "Service, Endpoints, EndpointSlice, ServiceImport",
		Shown: reasons.Event, Level: reasons.Error,
		Cause:  "An object of this name exists and is not an imported one. It is left as it is.",
		Remedy: "Rename or delete the object.",
	})
)

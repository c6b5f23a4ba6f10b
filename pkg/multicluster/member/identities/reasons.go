package identities

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonLabelInvalid = reasons.New(reasons.Row{
		Name: "LabelIdentityInvalid", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "Labels of a Pod are not valid for other clusters. They are not exported.",
		Remedy: "Correct the labels of the Pod or the Namespace.",
	})

	reasonLabelLimit = reasons.New(reasons.Row{
		Name: "LabelIdentityLimit", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The Pods have too many different sets of labels. Not all are exported.",
		Remedy: "Use fewer labels that differ from Pod to Pod.",
	})

	reasonAddressLimit = reasons.New(reasons.Row{
		Name: "PodAddressLimit", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The Pods have too many addresses to publish. Policies of other clusters do not match the rest.",
		Remedy: "Run fewer Pods in podCIDRs.",
	})
)

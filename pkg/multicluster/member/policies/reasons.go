package policies

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonACNPFailed = reasons.New(reasons.Row{
		Name: "ACNPImportFailed", Objects: "AntreaClusterNetworkPolicy of the ClusterSet",
		Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The policy is not imported.",
		Remedy: "The message has the fault.",
	})

	reasonPolicyFailed = reasons.New(reasons.Row{
		Name: "PolicyImportFailed", Objects: "ClusterSet, policies", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "A policy of the ClusterSet is not imported, or the report about it is too large.",
		Remedy: "The message has the fault.",
	})
)

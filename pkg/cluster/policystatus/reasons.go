package policystatus

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonAllNodes = reasons.New(reasons.Row{
		Name: "AllNodes", Objects: "ClusterNetworkPolicy", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The policy is in force on all Nodes that have Pods of it. Nothing is wrong.",
	})

	reasonFlowsRefused = reasons.New(reasons.Row{
		Name: "FlowsRefused", Objects: "policies", Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The switches of some Nodes refuse flows of the policy.",
		Remedy: "The message has the Nodes and the error. See `tombolo get status` there.",
	})

	reasonLeftOut = reasons.New(reasons.Row{
		Name: "LeftOutByNodes", Objects: "policies", Shown: reasons.Condition | reasons.Event, Level: reasons.Warning,
		Cause:  "Some Nodes leave out a part of the policy.",
		Remedy: "The message has the part, the Nodes and the remedy.",
	})

	reasonComputed = reasons.New(reasons.Row{
		Name: "MembersComputed", Objects: "Group, ClusterGroup", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "All members are known. Nothing is wrong.",
	})

	reasonNoFailure = reasons.New(reasons.Row{
		Name: "NoFailure", Objects: "policies", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "No Node fails to enforce the policy. Nothing is wrong.",
	})

	reasonNotAllNodes = reasons.New(reasons.Row{
		Name: "NotAllNodes", Objects: "ClusterNetworkPolicy", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Some Nodes do not enforce the policy yet.",
		Remedy: "Wait, or see `tombolo get status` on these Nodes.",
	})

	reasonNotWatched = reasons.New(reasons.Row{
		Name: "NotWatched", Objects: "AntreaControllerInfo",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The program cannot read a kind from the API server.",
		Remedy: "The message has the kind and the error. Check the rights.",
	})

	reasonUnderstood = reasons.New(reasons.Row{
		Name: "Understood", Objects: "policies", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "All of the object is understood. Nothing is wrong.",
	})
)

package policy

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonGroupCycle = reasons.New(reasons.Row{
		Name: "GroupCycle", Objects: "Group, ClusterGroup",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The group contains itself.",
		Remedy: "Remove one of the groups from another.",
	})

	reasonGroupNotComputed = reasons.New(reasons.Row{
		Name: "GroupNotComputed", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "Not all members of a group are known.",
		Remedy: "The condition GroupMembersComputed of the group has the remedy.",
	})

	reasonInvalidAction = reasons.New(reasons.Row{
		Name: "InvalidAction", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The action is not known. The rule drops.",
		Remedy: "Correct the action.",
	})

	reasonInvalidAppliedTo = reasons.New(reasons.Row{
		Name: "InvalidAppliedTo", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "An entry of appliedTo has fields that do not go together. It selects nothing.",
		Remedy: "Correct the entry.",
	})

	reasonInvalidCIDR = reasons.New(reasons.Row{
		Name: "InvalidCIDR", Objects: "policies, groups",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A range is not valid.",
		Remedy: "Correct the range.",
	})

	reasonInvalidGroup = reasons.New(reasons.Row{
		Name: "InvalidGroup", Objects: "Group, ClusterGroup",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The group has fields that do not go together. Nothing is in it.",
		Remedy: "Leave one kind of members.",
	})

	reasonInvalidPeer = reasons.New(reasons.Row{
		Name: "InvalidPeer", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A peer has fields that do not go together, or no meaning in this direction.",
		Remedy: "Correct the peer.",
	})

	reasonInvalidPolicyType = reasons.New(reasons.Row{
		Name: "InvalidPolicyType", Objects: "NetworkPolicy",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A policy type is neither Ingress nor Egress.",
		Remedy: "Correct it.",
	})

	reasonInvalidPort = reasons.New(reasons.Row{
		Name: "InvalidPort", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A port is not valid.",
		Remedy: "Write a number or a range within 1 to 65535.",
	})

	reasonInvalidPriority = reasons.New(reasons.Row{
		Name: "InvalidPriority", Objects: "policies of crd.antrea.io",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The priority is not within 1 to 10000.",
		Remedy: "Correct it.",
	})

	reasonInvalidProtocol = reasons.New(reasons.Row{
		Name: "InvalidProtocol", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A protocol is not known, or its fields do not go together.",
		Remedy: "Correct it.",
	})

	reasonInvalidSelector = reasons.New(reasons.Row{
		Name: "InvalidSelector", Objects: "policies, groups",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "A selector is not valid. It selects nothing.",
		Remedy: "Correct the selector.",
	})

	reasonMoreProblems = reasons.New(reasons.Row{
		Name: "MoreProblems", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Warning,
		Cause:  "The policy has more Problems than are listed.",
		Remedy: "Correct the listed ones first.",
	})

	reasonNoPodAddresses = reasons.New(reasons.Row{
		Name: "NoPodAddresses", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Warning,
		Cause:  "No other cluster publishes the addresses of its Pods. scope ClusterSet means this cluster alone.",
		Remedy: "Set publishPodAddresses in the member controllers of the other clusters.",
	})

	reasonNotServed = reasons.New(reasons.Row{
		Name: "NotServed", Objects: "policies, groups",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Warning,
		Cause:  "A field has no effect in this version.",
		Remedy: "Remove the field, or follow the message.",
	})

	reasonNotStretched = reasons.New(reasons.Row{
		Name: "NotStretched", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Warning,
		Cause: "A rule with scope ClusterSet has only this cluster's Pods.",
		Remedy: "Set multicluster.enableStretchedNetworkPolicy of the agents, and enableStretchedNetworkPolicy of " +
			"the members.",
	})

	// ReasonTooLarge is the reason of an object of which a part is beyond a bound.
	ReasonTooLarge = reasons.New(reasons.Row{
		Name: "TooLarge", Objects: "policies, groups",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause: "A rule or group needs more flows or ranges than are allowed. A rule that allows does nothing, " +
			"and another one denies everything.",
		Remedy: "Write fewer or larger ranges, or fewer ports.",
	})

	// ReasonUnknownGroup is the reason of a policy whose group does not exist.
	ReasonUnknownGroup = reasons.New(reasons.Row{
		Name: "UnknownGroup", Objects: "policies, groups",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "There is no group of this name.",
		Remedy: "Create the group, or correct the name.",
	})

	reasonUnknownService = reasons.New(reasons.Row{
		Name: "UnknownService", Objects: "Group, ClusterGroup",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "There is no Service of this name with a selector.",
		Remedy: "Create the Service, or correct the name.",
	})

	reasonUnknownTier = reasons.New(reasons.Row{
		Name: "UnknownTier", Objects: "policies",
		Shown: reasons.Problem | reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "There is no Tier of this name. Rules that deny count as of another Tier, and others do nothing.",
		Remedy: "Create the Tier, or correct the name.",
	})
)

package clusters

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonAllWaysDown = reasons.New(reasons.Row{
		Name: "AllWaysDown", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "No way to the cluster is up.",
		Remedy: "Check addresses, Nodes and firewalls, with `tombolo diagnose --context A,B`.",
	})

	reasonAllWaysUp = reasons.New(reasons.Row{
		Name: "AllWaysUp", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "All ways to the cluster are up. Nothing is wrong.",
	})

	reasonGone = reasons.New(reasons.Row{
		Name: "ClusterGone", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "No way to the cluster is up, for other clusters neither. Requests go to other clusters.",
		Remedy: "See the Nodes and Gateways of that cluster.",
	})

	reasonConfigInvalid = reasons.New(reasons.Row{
		Name: "ConfigurationInvalid", Objects: "ClusterSet",
		Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The changed configuration has faults. The controller goes on with the earlier configuration.",
		Remedy: "Correct the ConfigMap antrea-mc-controller-config.",
	})

	reasonDisconnected = reasons.New(reasons.Row{
		Name: "Disconnected", Objects: "ClusterSet of a member", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The leader does not answer.",
		Remedy: "See the log of the member controller, its token, and the route to the leader's API server.",
	})

	reasonPodCIDRsMissing = reasons.New(reasons.Row{
		Name: "PodCIDRsMissing", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause: "endpointIPType PodIP needs Pod ranges.",
		Remedy: "Set podCIDRs in the member controller, and multicluster.enablePodToPodConnectivity of the " +
			"agents.",
	})

	reasonCIDROverlap = reasons.New(reasons.Row{
		Name: "ServiceCIDROverlap", Objects: "ClusterInfoImport", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "A range of another cluster overlaps one of this cluster.",
		Remedy: "Give one of the clusters another range.",
	})

	reasonSomeWaysDown = reasons.New(reasons.Row{
		Name: "SomeWaysDown", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "At least one way to the cluster is up, and another is down.",
		Remedy: "The message names the ways. Check addresses, Nodes and firewalls.",
	})

	reasonWaysUnknown = reasons.New(reasons.Row{
		Name: "WaysUnknown", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "No Node that could report the ways is Ready.",
		Remedy: "See the gateway Nodes of this cluster.",
	})
)

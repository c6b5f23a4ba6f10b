package membership

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonClusterIDMissing = reasons.New(reasons.Row{
		Name: "ClusterIDMissing", Objects: "ClusterSet of a member", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The ClusterSet has no cluster ID.",
		Remedy: "Set spec.clusterID.",
	})

	// ReasonConvergeFailure is the leader's word for exports that contradict each other.
	ReasonConvergeFailure = reasons.New(reasons.Row{
		Name: "ConvergeFailure", Objects: "ClusterSet, ServiceExport", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The leader refuses an export.",
		Remedy: "The message has the fault.",
	})

	reasonLeaderNotConfigured = reasons.New(reasons.Row{
		Name: "LeaderNotConfigured", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The ClusterSet has no usable leader.",
		Remedy: "Correct spec.leaders. The message names the field.",
	})

	reasonMultipleClusterSets = reasons.New(reasons.Row{
		Name: "MultipleClusterSets", Objects: "ClusterSet of a member", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The Namespace has an older ClusterSet. This one is ignored.",
		Remedy: "Delete one of the two.",
	})

	reasonNotAnnounced = reasons.New(reasons.Row{
		Name: "MemberNotAnnounced", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The leader has no announcement of this cluster. It imports nothing from it.",
		Remedy: "See the condition Ready of the ClusterSet. A new announcement is sent once the leader is connected.",
	})

	// ReasonImportInvalid is the reason of a ResourceImport that is ignored, or imported in part.
	ReasonImportInvalid = reasons.New(reasons.Row{
		Name: "ResourceImportInvalid", Objects: "ClusterSet, ClusterInfoImport",
		Shown: reasons.Event, Level: reasons.Error,
		Cause:  "An import of the leader is not valid. It is ignored, or a part of it.",
		Remedy: "Correct the export in the cluster that the message names.",
	})

	reasonSecretNotReadable = reasons.New(reasons.Row{
		Name: "SecretNotReadable", Objects: "ClusterSet", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The Secret with the member's token cannot be read.",
		Remedy: "Create the Secret that spec.leaders names, or give the controller the right.",
	})
)

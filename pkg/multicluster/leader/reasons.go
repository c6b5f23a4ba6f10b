package leader

import (
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// The reasons of this package.
var (
	reasonAccountOfAnotherMember = reasons.New(reasons.Row{
		Name: "AccountOfAnotherMember", Objects: "MemberClusterAnnounce",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Two members announce themselves with one ServiceAccount. One is left out.",
		Remedy: "Delete the MemberClusterAnnounce, and give the cluster a ServiceAccount of its own.",
	})

	reasonClusterIDMissing = reasons.New(reasons.Row{
		Name: "ClusterIDMissing", Objects: "ClusterSet of the leader", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The ClusterSet has no cluster ID.",
		Remedy: "Set spec.clusterID.",
	})

	reasonClustersDisconnected = reasons.New(reasons.Row{
		Name: "ClustersDisconnected", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Some members do not announce themselves any more.",
		Remedy: "See the member controllers of the clusters in the message.",
	})

	reasonConnected = reasons.New(reasons.Row{
		Name: "Connected", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The member announces itself. Nothing is wrong.",
	})

	reasonConnectionNotFound = reasons.New(reasons.Row{
		Name: "ConnectionNotFound", Objects: "TenantNetwork", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "There is no NetworkConnection of this name.",
		Remedy: "Create it, or remove the name.",
	})

	reasonFailed = reasons.New(reasons.Row{
		Name: "ConvergeFailure", Objects: "ResourceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The export is not imported.",
		Remedy: "The message has the fault.",
	})

	reasonManagedTwice = reasons.New(reasons.Row{
		Name: "ManagedTwice", Objects: "Kubemanager", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "An older Kubemanager names the same cluster.",
		Remedy: "Delete one of the two.",
	})

	reasonManagerNotServed = reasons.New(reasons.Row{
		Name: "NotServed", Objects: "Kubemanager, VirtualNetwork and TenantNetwork of a copy", Shown: reasons.Condition,
		Level:  reasons.Warning,
		Cause:  "A field or an object has no effect in this version.",
		Remedy: "Remove it, or follow the message.",
	})

	reasonNameTaken = reasons.New(reasons.Row{
		Name: "NameTaken", Objects: "Kubemanager, VirtualNetwork of a copy", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "An object that is no copy has the name of a copy and stays as it is, or copies of two would have one name.",
		Remedy: "Delete it, or create the Kubemanager with another name.",
	})

	reasonNotCentral = reasons.New(reasons.Row{
		Name: "NotCentral", Objects: "Kubemanager and objects in its copies", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The cluster has not agreed that the central cluster decides, or its list of Namespaces is not valid.",
		Remedy: "Annotate its ClusterSet with tombolo.io/central=true.",
	})

	reasonOtherRange = reasons.New(reasons.Row{
		Name: "OtherRange", Objects: "Kubemanager", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "The cluster announces other ranges than the Kubemanager has.",
		Remedy: "Correct the range, or remove it.",
	})

	reasonDisconnected = reasons.New(reasons.Row{
		Name: "Disconnected", Objects: "ClusterSet of the leader", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The member does not announce itself.",
		Remedy: "See the log of its member controller, its token, and the route to the leader's API server.",
	})

	reasonImportFailed = reasons.New(reasons.Row{
		Name: "ImportFailed", Objects: "ResourceImport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "A member could not write the import.",
		Remedy: "The message has the fault.",
	})

	reasonInvalidAnnotation = reasons.New(reasons.Row{
		Name: "InvalidAnnotation", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "An annotation that reserves ranges, gateways or endpoints is not valid.",
		Remedy: "Correct the annotation.",
	})

	reasonInvalidSelector = reasons.New(reasons.Row{
		Name: "InvalidSelector", Objects: "TenantNetwork",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "A selector is not valid. It selects nothing.",
		Remedy: "Correct the selector.",
	})

	reasonNotAnnounced = reasons.New(reasons.Row{
		Name: "MemberNotAnnounced", Objects: "ResourceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The exporting cluster has no announcement. The export is not imported.",
		Remedy: "See that its member controller runs. If it has left, the export goes by itself.",
	})

	reasonMultipleClusterSets = reasons.New(reasons.Row{
		Name: "MultipleClusterSets", Objects: "ClusterSet of the leader", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The Namespace has an older ClusterSet. This one is ignored.",
		Remedy: "Delete one of the two.",
	})

	reasonNetworkNotFound = reasons.New(reasons.Row{
		Name: "NetworkNotFound", Objects: "NetworkConnection",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "There is no TenantNetwork of this name.",
		Remedy: "Create it, or correct the name.",
	})

	reasonNoReadyCluster = reasons.New(reasons.Row{
		Name: "NoReadyCluster", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "No member has joined, or no member is connected.",
		Remedy: "Let a member join, or see the member controllers.",
	})

	reasonNotAMember = reasons.New(reasons.Row{
		Name: "NotAMember", Objects: "TenantNetwork, Kubemanager and objects in its copies", Shown: reasons.Condition,
		Level:  reasons.Error,
		Cause:  "A cluster is not in the ClusterSet.",
		Remedy: "Let it join, or correct the ID.",
	})

	reasonNotAgreed = reasons.New(reasons.Row{
		Name: "NotAgreed", Objects: "NetworkConnection", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The owner of a TenantNetwork has not agreed to the connection.",
		Remedy: "Add the connection to spec.connections of the TenantNetwork, or remove its name.",
	})

	reasonNotConnected = reasons.New(reasons.Row{
		Name: "NotConnected", Objects: "TenantNetwork", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The NetworkConnection does not name this TenantNetwork.",
		Remedy: "Add it to the NetworkConnection, or remove the name of the connection here.",
	})

	reasonNotLeader = reasons.New(reasons.Row{
		Name: "NotLeader", Objects: "ClusterSet", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The leader's ClusterSet does not name this cluster as the leader.",
		Remedy: "Set spec.leaders[0].clusterID, or create the ClusterSet where the member controller runs.",
	})

	reasonNumberTaken = reasons.New(reasons.Row{
		Name: "NumberTaken", Objects: "TenantNetwork, VirtualNetwork of a copy",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "An older TenantNetwork has the same number. The Namespaces stay in networks of their own.",
		Remedy: "Delete the object and create it again, and it gets another number.",
	})

	reasonNoSubnet = reasons.New(reasons.Row{
		Name: "NoSubnet", Objects: "VirtualNetwork of a copy", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "It was created in the copy, and a Subnet that it names is missing, or gives no addresses.",
		Remedy: "Create the Subnet in the copy, or correct the name.",
	})

	reasonNotCreated = reasons.New(reasons.Row{
		Name: "NotCreated", Objects: "VirtualNetwork and Subnet of a copy", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "It was created in the copy, and its cluster has not created it, or gives no addresses of it.",
		Remedy: "Follow the message. Look at the object of this name in the cluster, and at the Events of its ClusterSet.",
	})

	reasonOverlappingRange = reasons.New(reasons.Row{
		Name: "OverlappingRange", Objects: "VirtualNetwork of a copy", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "A cluster or another VirtualNetwork has addresses of its range. It is joined with nothing.",
		Remedy: "Give it a Subnet with another range.",
	})

	reasonRangeNotAllowed = reasons.New(reasons.Row{
		Name: "RangeNotAllowed", Objects: "VirtualNetwork of a copy", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Its cluster may not have its range. It is joined with nothing.",
		Remedy: "Give it a Subnet with another range, or add the range to the cluster's pins, next to all of its others.",
	})

	reasonRequestsConflict = reasons.New(reasons.Row{
		Name: "RequestsConflict", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different annotations about requests. The oldest counts.",
		Remedy: "Give all exports the same annotations.",
	})

	reasonTooManyCopies = reasons.New(reasons.Row{
		Name: "TooManyCopies", Objects: "Kubemanager", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The cluster has too many copies, with these that are being deleted. There are no new ones.",
		Remedy: "Wait until they are gone. See in the cluster who creates so many isolated Namespaces.",
	})

	reasonTooManyNetworks = reasons.New(reasons.Row{
		Name: "TooManyNetworks", Objects: "TenantNetwork", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The network would be joined with too many others.",
		Remedy: "Agree to fewer connections.",
	})

	reasonAnnotationsConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonAnnotationsConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different annotations. The oldest counts.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonInternalTrafficPolicyConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different values of internalTrafficPolicy. The oldest counts.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonIPFamilyConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonIPFamilyConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different versions of IP. A connection reaches only clusters with its version.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonLabelsConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonLabelsConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different labels. The oldest counts.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonPortConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonPortConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different ports. The import has the ports of all clusters.",
		Remedy: "Give the Service the same ports in all clusters.",
	})

	reasonSessionAffinityConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonSessionAffinityConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different values of sessionAffinity. The oldest counts.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonSessionAffinityConfigConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different values of sessionAffinityConfig. The oldest counts.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonTrafficDistributionConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonTrafficDistributionConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Exports have different values of trafficDistribution. The oldest counts.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonTypeConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonTypeConflict), Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Only some of the exported Services are headless. The endpoints of the others are left out.",
		Remedy: "Give all exports of the Service the same value.",
	})

	reasonEndpointsLeftOut = reasons.New(reasons.Row{
		Name: mcv1alpha1.ReasonEndpointsLeftOut, Objects: "ResourceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "Some endpoints are not imported.",
		Remedy: "The message has their fault.",
	})
)

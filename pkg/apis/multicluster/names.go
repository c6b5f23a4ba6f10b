// Package multicluster has the names of the Antrea Multi-cluster API: annotations, labels and finalizers. It also makes
// the names of derived objects.
package multicluster

import (
	"crypto/sha1"
	"encoding/hex"
	"net/netip"
	"strings"
)

// Annotations. Their comments are the meanings in the reference.
const (
	// AnnotationGateway on a Node makes it a candidate for the Multi-cluster Gateway. Its value has no effect.
	AnnotationGateway = "multicluster.antrea.io/gateway"
	// AnnotationGatewayIP on a Node is the address at which other clusters reach it.
	AnnotationGatewayIP = "multicluster.antrea.io/gateway-ip"
	// AnnotationImportedService marks Services, Endpoints and ServiceImports of an import. Such a Service is not exported
	// again.
	AnnotationImportedService = "multicluster.antrea.io/imported-service"
	// AnnotationImportedACNP marks ClusterNetworkPolicies that were replicated.
	AnnotationImportedACNP = "multicluster.antrea.io/imported-acnp"
	// AnnotationImportedPolicy marks replicated policies of other kinds.
	AnnotationImportedPolicy = "multicluster.antrea.io/imported-policy"
	// AnnotationClusterID on a ServiceAccount of the Common Area binds it to one member.
	AnnotationClusterID = "multicluster.antrea.io/cluster-id"
	// AnnotationAnnouncedBy on a MemberClusterAnnounce names the ServiceAccount that created it. Admission overwrites the
	// value that a member sends.
	AnnotationAnnouncedBy = "multicluster.antrea.io/announced-by"
	// AnnotationTunnelSources is the prefix of an annotation of a member's ClusterSet. The ID of another cluster follows
	// it. The value lists further source addresses and ranges of the tunnels of that cluster's gateways, separated by
	// commas. They are for gateways behind NAT.
	AnnotationTunnelSources = "tunnel-sources.multicluster.antrea.io/"
	// AnnotationCreatedByAntctl marks the objects that the command line tool created and may remove.
	AnnotationCreatedByAntctl = "multicluster.antrea.io/created-by-antctl"
	// AnnotationRangesPrefix is the prefix of an annotation of the leader's ClusterSet. A cluster ID follows it. The value
	// lists ranges of Services and Pods that only this member may announce.
	AnnotationRangesPrefix = "ranges.multicluster.antrea.io/"
	// AnnotationGatewaysPrefix is the prefix of an annotation of the leader's ClusterSet. A cluster ID follows it. The
	// value lists addresses that only this member's gateways may have.
	AnnotationGatewaysPrefix = "gateways.multicluster.antrea.io/"
	// AnnotationEndpointsPrefix is the prefix of an annotation of the leader's ClusterSet. A cluster ID follows it. The
	// value lists ranges in which that cluster may have endpoints although no cluster announces them. They are for a
	// network that all clusters reach.
	AnnotationEndpointsPrefix = "endpoints.multicluster.antrea.io/"
	// AnnotationCentral on a member's ClusterSet, with the value true, lets the central cluster decide about networks of
	// this cluster's isolated Namespaces. The central cluster is the leader. The member controller exports the names and
	// labels of these Namespaces.
	AnnotationCentral = "tombolo.io/central"
	// AnnotationService on a ResourceExport of kind Service has the exported fields other than ports as JSON.
	AnnotationService = "multicluster.tombolo.io/service"
	// AnnotationExported on a ResourceImport of kind ServiceImport has the labels and annotations of its ServiceImports as
	// JSON.
	AnnotationExported = "multicluster.tombolo.io/exported"
	// AnnotationSources on a ResourceImport of kind Endpoints lists the clusters of the subsets as JSON.
	AnnotationSources = "multicluster.tombolo.io/sources"
	// AnnotationReady on a ResourceExport of kind Endpoints is the number of ready endpoints behind a Service's address.
	// EndpointSlices of imported Services have the same annotation for their endpoints.
	AnnotationReady = "multicluster.tombolo.io/ready-endpoints"
	// AnnotationRequests on a ServiceExport or a ServiceImport sets where requests go: all, local or cluster-order. The
	// leader copies the value of the exports to the ResourceImport of kind ServiceImport.
	AnnotationRequests = "multicluster.tombolo.io/requests"
	// AnnotationClusterOrder on a ServiceExport or a ServiceImport lists clusters for requests with cluster-order. Commas
	// separate them. On the Service of an import the member controller writes the result: the clusters that come first, as
	// in the label of the EndpointSlices.
	AnnotationClusterOrder = "multicluster.tombolo.io/cluster-order"
	// AnnotationMinimumReady on a ServiceExport or a ServiceImport is the number of ready endpoints that is enough for
	// local and cluster-order.
	AnnotationMinimumReady = "multicluster.tombolo.io/minimum-ready"
	// AnnotationReached on a ResourceExport of kind ClusterInfo lists the clusters that the exporter's Gateways reach,
	// separated by commas. It has only clusters whose ways BFD watches. The leader copies it to the ResourceImport.
	AnnotationReached = "multicluster.tombolo.io/reached"
	// AnnotationKeptPods on a Gateway lists the ranges of this cluster's Pods that the leader passes on together with the
	// feature PreserveClientIP, separated by commas. The member controller writes it.
	AnnotationKeptPods = "multicluster.tombolo.io/kept-pod-ranges"
	// AnnotationKeyNotBefore on a Gateway's Node is a time in the format of RFC 3339. The agent replaces a WireGuard key
	// that is older than this time.
	AnnotationKeyNotBefore = "multicluster.tombolo.io/wireguard-key-not-before"
	// AnnotationPhase on a Gateway is joining, leaving or left while the Gateway joins or leaves. The member controller
	// writes it.
	AnnotationPhase = "multicluster.tombolo.io/phase"
	// AnnotationInsideIP on a Gateway is the address inside WireGuard at which its agent may receive traffic of other
	// clusters. The member controller writes it and announces it to them.
	AnnotationInsideIP = "multicluster.tombolo.io/inside-ip"
	// AnnotationWithdrawn on a ClusterInfoImport is the time at which the leader withdrew the cluster, in the format of
	// RFC 3339. The member controller writes it. Nothing is sent to the cluster's gateways. If this cluster encrypts,
	// nothing is sent to the cluster's ranges in plain text.
	AnnotationWithdrawn = "multicluster.tombolo.io/withdrawn"
	// AnnotationTouchTimestamp on a MemberClusterAnnounce is the time of its last heartbeat, in the format of RFC 3339.
	AnnotationTouchTimestamp = "touch-ts"
)

// Labels of a ResourceExport.
const (
	// LabelSourceName on a ResourceExport is the name of the exported object.
	LabelSourceName = "sourceName"
	// LabelSourceNamespace on a ResourceExport is the Namespace of the exported object.
	LabelSourceNamespace = "sourceNamespace"
	// LabelSourceClusterID on a ResourceExport is the ID of the member that exports it.
	LabelSourceClusterID = "sourceClusterID"
	// LabelSourceKind on a ResourceExport is the kind of the exported object.
	LabelSourceKind = "sourceKind"
)

// Finalizers.
const (
	// ResourceExportFinalizer is on ResourceExports, except for kinds with many objects. The leader removes it once the
	// ResourceImport no longer contains the export.
	ResourceExportFinalizer = "resourceexport.antrea.io/finalizer"
	// ResourceExportFinalizerOld was used before v2.2 and is still honoured.
	ResourceExportFinalizerOld = "resourceexport.finalizers.antrea.io"
	// MemberClusterAnnounceFinalizerPrefix is the beginning of a finalizer of a MemberClusterAnnounce. The member's
	// cluster ID follows.
	MemberClusterAnnounceFinalizerPrefix = "memberclusterannounce.finalizer.antrea.io/"
)

// Kinds of ResourceExports and ResourceImports (spec.kind).
const (
	ServiceKind                    = "Service"
	ServiceImportKind              = "ServiceImport"
	EndpointsKind                  = "Endpoints"
	ClusterInfoKind                = "ClusterInfo"
	LabelIdentityKind              = "LabelIdentity"
	AntreaClusterNetworkPolicyKind = "AntreaClusterNetworkPolicy"
	// The following are Tombolo's own: other members ignore imports of these kinds.
	NetworkPolicyKind        = "NetworkPolicy"        // of networking.k8s.io
	ClusterNetworkPolicyKind = "ClusterNetworkPolicy" // of policy.networking.k8s.io
	PolicyReportKind         = "PolicyReport"         // a member's report about the policies that it imports
	PodAddressesKind         = "PodAddresses"         // the label identities of Pods by their addresses
	NamespacesKind           = "Namespaces"           // a member's isolated Namespaces
)

// IsPolicy reports whether objects of a kind are policies, which are replicated to all members.
func IsPolicy(kind string) bool {
	switch kind {
	case AntreaClusterNetworkPolicyKind, NetworkPolicyKind, ClusterNetworkPolicyKind:
		return true
	}
	return false
}

// HaveFinalizer reports whether members put the finalizer on ResourceExports of a kind. Kinds with many objects, and
// kinds that become no ResourceImport, have no finalizer.
func HaveFinalizer(kind string) bool {
	switch kind {
	case LabelIdentityKind, PolicyReportKind, PodAddressesKind, NamespacesKind:
		return false
	}
	return true
}

// PolicyImportName returns the name of the ResourceImport of a policy, such as "strict-antreaclusternetworkpolicy" or
// "default-web-networkpolicy".
func PolicyImportName(kind, namespace, name string) string {
	suffix := "-" + strings.ToLower(kind)
	if kind == NetworkPolicyKind {
		return ResourceImportName(namespace, name, suffix)
	}
	return name + suffix
}

// Parts of derived names.
const (
	ImportedPrefix              = "antrea-mc-"
	MemberClusterAnnouncePrefix = "member-announce-from-"
	ServiceSuffix               = "-service"
	EndpointsSuffix             = "-endpoints"
	ClusterInfoSuffix           = "-clusterinfo"
	PolicyReportSuffix          = "-policyreport"
	NamespacesSuffix            = "-namespaces"
	podAddressesInfix           = "-podaddresses-"
)

// Well-known ClusterClaims. In v1alpha1 the name is a top-level field, and the ClusterSet's claim has a capital S.
const (
	ClusterClaimClusterID  = "id.k8s.io"
	ClusterClaimClusterSet = "clusterset.k8s.io"
)

// Numbers of label identities. Tunnel packets carry them in 24 bits. 0 means no number. UnknownLabelID means that the
// sender's number is unknown.
const (
	FirstLabelID   = 1
	LastLabelID    = UnknownLabelID - 1
	UnknownLabelID = 0xFFFFFF
)

// EndpointSliceManager is the value of label endpointslice.kubernetes.io/managed-by on the EndpointSlices of imported
// Services.
const EndpointSliceManager = "antrea-mc-controller.multicluster.tombolo.io"

// ControllerName is the ServiceAccount and the Deployment of the multi-cluster controller.
const ControllerName = "antrea-mc-controller"

// AgentNamespace and AgentName name the agents' ServiceAccount. The agents' manifest and chart use only this Namespace.
// The multi-cluster controller may be in another one.
const (
	AgentNamespace = "kube-system"
	AgentName      = "antrea-agent"
)

// MemberRole is the Role in the Common Area that every member is bound to.
const MemberRole = "antrea-mc-member-cluster-role"

// ResourceExportName returns the name of a cluster's ResourceExport for a namespaced object, such as
// "test-cluster-west-default-nginx-service" for suffix ServiceSuffix.
func ResourceExportName(clusterID, namespace, name, suffix string) string {
	return clusterID + "-" + namespace + "-" + name + suffix
}

// ResourceImportName returns the name of the ResourceImport of all exports of one object, such as
// "default-nginx-service".
func ResourceImportName(namespace, name, suffix string) string {
	return namespace + "-" + name + suffix
}

// PodAddressesName returns the name of the ResourceExport for the addresses of a cluster's Pods in a block, such as
// "west-podaddresses-10.11.3.0". Its ResourceImport has the same name.
func PodAddressesName(clusterID string, block netip.Prefix) string {
	return clusterID + podAddressesInfix + strings.ReplaceAll(block.Addr().StringExpanded(), ":", "-")
}

// AnnounceName returns the name of a member's MemberClusterAnnounce.
func AnnounceName(clusterID string) string { return MemberClusterAnnouncePrefix + clusterID }

// IDsConflict reports whether two cluster IDs make ambiguous names. That is so if one continues the other after a dash:
// ("east", "1-web") and ("east-1", "web") are exported under one name.
func IDsConflict(a, b string) bool {
	return a != b && (strings.HasPrefix(a, b+"-") || strings.HasPrefix(b, a+"-"))
}

// LabelHash returns 16 hex digits for a normalised label, for use in names.
func LabelHash(normalized string) string {
	sum := sha1.Sum([]byte(normalized))
	return hex.EncodeToString(sum[:8])
}

// Phases of a Gateway that joins or leaves. A Gateway without a phase carries all traffic that it can. A Gateway in any
// phase accepts traffic from every sender, since others learn of a change earlier or later than the Gateway itself.
const (
	// PhaseJoining: other Nodes send nothing through the Gateway. It sends its own traffic through other Gateways, until
	// other clusters accept its traffic.
	PhaseJoining = "joining"
	// PhaseLeaving: other Nodes send nothing through the Gateway.
	PhaseLeaving = "leaving"
	// PhaseLeft: the Gateway also sends its own traffic through other Gateways. It is announced to other clusters as
	// leaving.
	PhaseLeft = "left"
)

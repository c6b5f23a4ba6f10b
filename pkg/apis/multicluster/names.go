// Package multicluster has the names that the Antrea Multi-cluster API gives to things:
// annotations, labels, finalizers, and how the names of derived objects are made.
package multicluster

import (
	"crypto/sha1"
	"encoding/hex"
	"net/netip"
	"strings"
)

// Annotations.
const (
	// AnnotationGateway on a Node makes it a candidate for the Multi-cluster Gateway. Its
	// presence counts, not its value.
	AnnotationGateway = "multicluster.antrea.io/gateway"
	// AnnotationGatewayIP on a Node is the address that other clusters reach it by.
	AnnotationGatewayIP = "multicluster.antrea.io/gateway-ip"
	// AnnotationImportedService marks Services, Endpoints and ServiceImports that were made
	// for an import; such a Service is not exported again.
	AnnotationImportedService = "multicluster.antrea.io/imported-service"
	// AnnotationImportedACNP marks ClusterNetworkPolicies that were replicated.
	AnnotationImportedACNP = "multicluster.antrea.io/imported-acnp"
	// AnnotationImportedPolicy marks replicated policies of other kinds.
	AnnotationImportedPolicy = "multicluster.antrea.io/imported-policy"
	// AnnotationClusterID on a ServiceAccount of the Common Area binds it to one member.
	AnnotationClusterID = "multicluster.antrea.io/cluster-id"
	// AnnotationAnnouncedBy on a MemberClusterAnnounce names the ServiceAccount that made it.
	// Admission writes it, whatever the member sends.
	AnnotationAnnouncedBy = "multicluster.antrea.io/announced-by"
	// AnnotationTunnelSources, followed by the ID of another cluster, is an annotation of a
	// member's ClusterSet: addresses and ranges, separated by commas, that the tunnels of that
	// cluster's gateways come from beside their own addresses, where they are behind NAT.
	AnnotationTunnelSources = "tunnel-sources.multicluster.antrea.io/"
	// AnnotationCreatedByAntctl marks what the command line tool made and may remove.
	AnnotationCreatedByAntctl = "multicluster.antrea.io/created-by-antctl"
	// AnnotationRangesPrefix, followed by a cluster ID, on the leader's ClusterSet lists the ranges
	// that this member may announce as its Services' and Pods', and that no other may.
	AnnotationRangesPrefix = "ranges.multicluster.antrea.io/"
	// AnnotationGatewaysPrefix is the same for addresses of gateways.
	AnnotationGatewaysPrefix = "gateways.multicluster.antrea.io/"
	// AnnotationEndpointsPrefix, followed by a cluster ID, on the leader's ClusterSet lists the ranges outside of all announced ones
	// in which that cluster may have endpoints: those of a network that all clusters reach.
	AnnotationEndpointsPrefix = "endpoints.multicluster.antrea.io/"
	// AnnotationService on a ResourceExport of kind Service is what is exported beside the ports: exportcheck.ServiceFacts.
	AnnotationService = "multicluster.tombolo.io/service"
	// AnnotationExported on a ResourceImport of kind ServiceImport has the labels and annotations of its ServiceImports:
	// exportcheck.Metadata.
	AnnotationExported = "multicluster.tombolo.io/exported"
	// AnnotationSources on a ResourceImport of kind Endpoints says which subsets are of which cluster: a list of exportcheck.Source.
	AnnotationSources = "multicluster.tombolo.io/sources"
	// AnnotationReady on a ResourceExport of kind Endpoints that has a Service's address says how many ready endpoints are behind it
	// (requests.ReadReady). On the EndpointSlices of imported Services it says the same of their endpoints.
	AnnotationReady = "multicluster.tombolo.io/ready-endpoints"
	// AnnotationRequests on a ServiceExport or a ServiceImport says where requests go (requests.Mode); the leader writes what exports
	// say on the ResourceImport of kind ServiceImport.
	AnnotationRequests = "multicluster.tombolo.io/requests"
	// AnnotationClusterOrder lists clusters for that, separated by commas. On the Service of an import it is what the member controller made of
	// all: the clusters that come first, by the values of the EndpointSlices' label.
	AnnotationClusterOrder = "multicluster.tombolo.io/cluster-order"
	// AnnotationMinimumReady is how many ready endpoints are enough for that.
	AnnotationMinimumReady = "multicluster.tombolo.io/minimum-ready"
	// AnnotationReached on a ResourceExport of kind ClusterInfo lists the clusters that the exporter's Gateways reach, as far as BFD
	// watches the ways, separated by commas (requests.ReadReached). The leader writes it on the ResourceImport.
	AnnotationReached = "multicluster.tombolo.io/reached"
	// AnnotationKeptPods on a Gateway, by the member controller, are the ranges of this cluster's Pods, separated by commas, that
	// the leader hands on together with v1alpha1.FeaturePreserveClientIP.
	AnnotationKeptPods = "multicluster.tombolo.io/kept-pod-ranges"
	// AnnotationKeyNotBefore on a Gateway's Node is a time, RFC 3339: a WireGuard key that was made before it is replaced.
	AnnotationKeyNotBefore = "multicluster.tombolo.io/wireguard-key-not-before"
	// AnnotationPhase on a Gateway, by the member controller, is PhaseJoining, PhaseLeaving or PhaseLeft while it comes or goes.
	AnnotationPhase = "multicluster.tombolo.io/phase"
	// AnnotationInsideIP on a Gateway, by the member controller, is the address inside WireGuard at which its agent may take what
	// other clusters send: they are told of it.
	AnnotationInsideIP = "multicluster.tombolo.io/inside-ip"
	// AnnotationWithdrawn on a ClusterInfoImport, by the member controller, is a time, RFC 3339: since then the leader tells nothing of
	// the cluster. Nothing is sent to its gateways, and nothing in plain text to its ranges where this cluster encrypts.
	AnnotationWithdrawn = "multicluster.tombolo.io/withdrawn"
	// AnnotationTouchTimestamp on a MemberClusterAnnounce is its last sign of life, RFC 3339.
	AnnotationTouchTimestamp = "touch-ts"
)

// Labels of a ResourceExport.
const (
	LabelSourceName      = "sourceName"
	LabelSourceNamespace = "sourceNamespace"
	LabelSourceClusterID = "sourceClusterID"
	LabelSourceKind      = "sourceKind"
)

// Finalizers.
const (
	// ResourceExportFinalizer is on every ResourceExport but those that HaveFinalizer excepts; the
	// leader takes it off when the ResourceImport no longer holds it.
	ResourceExportFinalizer = "resourceexport.antrea.io/finalizer"
	// ResourceExportFinalizerOld was used before v2.2 and is still honoured.
	ResourceExportFinalizerOld = "resourceexport.finalizers.antrea.io"
	// MemberClusterAnnounceFinalizerPrefix is followed by the member's cluster ID.
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
	PolicyReportKind         = "PolicyReport"         // what a member says of the policies that it imports
	PodAddressesKind         = "PodAddresses"         // the label identities of Pods by their addresses
)

// IsPolicy reports whether a kind is that of a policy which is replicated to all members.
func IsPolicy(kind string) bool {
	switch kind {
	case AntreaClusterNetworkPolicyKind, NetworkPolicyKind, ClusterNetworkPolicyKind:
		return true
	}
	return false
}

// HaveFinalizer reports whether members put the finalizer on ResourceExports of a kind. Those of which there are many, or
// that become no ResourceImport, go without.
func HaveFinalizer(kind string) bool {
	switch kind {
	case LabelIdentityKind, PolicyReportKind, PodAddressesKind:
		return false
	}
	return true
}

// PolicyImportName is the name of the ResourceImport of a policy, such as
// "strict-antreaclusternetworkpolicy", or "default-web-networkpolicy".
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
	podAddressesInfix           = "-podaddresses-"
)

// Well-known ClusterClaims. In v1alpha1 the name is a top-level field, and the ClusterSet's
// claim has a capital S.
const (
	ClusterClaimClusterID  = "id.k8s.io"
	ClusterClaimClusterSet = "clusterset.k8s.io"
)

// Numbers of label identities. They travel in 24 bits of tunnel packets, in which 0 says nothing and
// UnknownLabelID that the sender's number is not known.
const (
	FirstLabelID   = 1
	LastLabelID    = UnknownLabelID - 1
	UnknownLabelID = 0xFFFFFF
)

// EndpointSliceManager is the value of the label endpointslice.kubernetes.io/managed-by of the EndpointSlices of imported Services.
const EndpointSliceManager = "antrea-mc-controller.multicluster.tombolo.io"

// ControllerName is the ServiceAccount and the Deployment of the multi-cluster controller.
const ControllerName = "antrea-mc-controller"

// AgentNamespace and AgentName are those of the agents' ServiceAccount. Their manifest and chart are for that Namespace alone, whatever
// Namespace the multi-cluster controller is in.
const (
	AgentNamespace = "kube-system"
	AgentName      = "antrea-agent"
)

// MemberRole is the Role in the Common Area that every member is bound to.
const MemberRole = "antrea-mc-member-cluster-role"

// ResourceExportName returns the name of what a cluster exports for a namespaced object, such
// as "test-cluster-west-default-nginx-service" for suffix ServiceSuffix.
func ResourceExportName(clusterID, namespace, name, suffix string) string {
	return clusterID + "-" + namespace + "-" + name + suffix
}

// ResourceImportName returns the name of what all exports of one object become, such as
// "default-nginx-service".
func ResourceImportName(namespace, name, suffix string) string {
	return namespace + "-" + name + suffix
}

// PodAddressesName returns the name of the ResourceExport of the addresses of a cluster's Pods in a block, and of what it
// becomes, such as "west-podaddresses-10.11.3.0".
func PodAddressesName(clusterID string, block netip.Prefix) string {
	return clusterID + podAddressesInfix + strings.ReplaceAll(block.Addr().StringExpanded(), ":", "-")
}

// AnnounceName returns the name of a member's MemberClusterAnnounce.
func AnnounceName(clusterID string) string { return MemberClusterAnnouncePrefix + clusterID }

// IDsConflict reports whether two cluster IDs make ambiguous names: one continues the other
// after a dash, so that ("east", "1-web") and ("east-1", "web") are exported under one name.
func IDsConflict(a, b string) bool {
	return a != b && (strings.HasPrefix(a, b+"-") || strings.HasPrefix(b, a+"-"))
}

// LabelHash returns the 16 hex digits that stand for a normalised label in names.
func LabelHash(normalized string) string {
	sum := sha1.Sum([]byte(normalized))
	return hex.EncodeToString(sum[:8])
}

// Phases of a Gateway that comes or goes. One without a phase carries all traffic that it can. All three take what comes, whoever sends it
// by them: others hear of a change sooner or later than it does itself.
const (
	PhaseJoining = "joining" // others send nothing by it, and it sends its own by others, until other clusters take what it sends
	PhaseLeaving = "leaving" // others send nothing by it
	PhaseLeft    = "left"    // it sends its own by others, too; other clusters are told that it goes
)

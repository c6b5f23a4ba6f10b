package member

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// declareKinds declares every kind of object that is watched. A kind that is written as well has a second source, for
// the versions (writtenKind).
func (t *tables) declareKinds() {
	c, stretched := watch.NewKinds(t.Engine), t.config.EnableStretchedNetworkPolicy
	own, optional := watch.In(t.namespace), watch.Optional()
	t.clusterSets = writtenKind(t, c, "ClusterSet", "clustersets", clusterSetFacts, version, own)
	t.clusterClaims = watch.NewSource(c, "clusterclaims", clusterClaimFacts, own, watch.Believed())
	t.gateways = writtenKind(t, c, "Gateway", "gateways", gatewayFacts, version, own)
	t.clusterInfoImports = writtenKind(t, c, "ClusterInfoImport", "clusterinfoimports",
		clusterInfoImportFacts, version, own)
	t.namespaces = watch.NewSource(c, "namespaces", namespaceFacts(stretched))
	t.nodes = watch.NewSource(c, "nodes", nodeFacts)
	t.services = writtenKind(t, c, "Service", "services", serviceFacts, importedVersion)
	t.endpoints = writtenKind(t, c, "Endpoints", "endpoints", endpointsFacts, importedVersion)
	t.slices = writtenKind(t, c, "EndpointSlice", "endpointslices",
		sliceFacts(t.config.EndpointIPType), importedSliceVersion)
	t.serviceExports = writtenKind(t, c, "ServiceExport", "serviceexports", serviceExportFacts, version)
	t.serviceImports = writtenKind(t, c, "ServiceImport", "serviceimports", serviceImportFacts, importedVersion)
	t.labelIdentities = writtenKind(t, c, "LabelIdentity", "labelidentities", labelIdentityFacts, version, optional)
	t.podAddressImports = writtenKind(t, c, "PodAddressImport", "podaddressimports",
		podAddressImportFacts, version, own, optional)
	t.acnps = writtenKind(t, c, kindACNP, "clusternetworkpolicies of crd.antrea.io", acnpFacts, policyVersion, optional)
	t.cnps = writtenKind(t, c, kindCNP, "clusternetworkpolicies of policy.networking.k8s.io",
		cnpFacts, policyVersion, optional)
	t.networkPolicies = writtenKind(t, c, kindNetworkPolicy, "networkpolicies", networkPolicyFacts, policyVersion)
	t.tiers = watch.NewSource(c, "tiers", tierFacts, optional)
	t.reports = watch.NewSource(c, "nodepolicyreports", reportFacts, optional)
	t.pods = watch.NewSource(c, "pods", podFactsOf(t.publish), watch.If(stretched))
	t.cluster = c

	t.area, t.ownExports = watch.NewKinds(t.Engine), watch.NewKinds(t.Engine)
	t.resourceImports = watch.NewSource(t.area, "resourceimports", resourceImportFacts)
	t.resourceExports = writtenKind(t, t.ownExports, "ResourceExport", "resourceexports", resourceExportFacts, version)
}

// writtenKind declares a kind that this controller writes as well.
func writtenKind[T client.Object, F any](t *tables, kinds *watch.Kinds, kind, name string, facts func(T) F,
	version func(T) string, options ...watch.Option) *derive.Source[derive.Object, F] {
	source := watch.NewSource(kinds, name, facts, options...)
	t.versions[kind] = watch.NewSource(kinds, "versions of "+kind, version)
	return source
}

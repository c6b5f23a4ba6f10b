package agent

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// clusterObjects are the sources of kinds that only the agent reads.
type clusterObjects struct {
	serviceCIDRs *derive.Source[derive.Object, []netip.Prefix]
	gateways     *derive.Source[derive.Object, *mcv1alpha1.Gateway]
	imports      *derive.Source[derive.Object, *mcv1alpha1.ClusterInfoImport]
	sets         *derive.Source[derive.Object, *mcv1alpha2.ClusterSet]
	exports      *derive.Source[derive.Object, bool]
	monitors     *derive.Source[derive.Object, time.Duration]     // the time between two probes, by NodeLatencyMonitor
	asked        *derive.Source[derive.Object, []problem.Problem] // by Pods of this Node, and not served
	networks     networkObjects
}

// declareKinds declares every kind of object that is watched.
func (t *tables) declareKinds() {
	k, p, optional := watch.NewKinds(t.engine), t.policies, watch.Optional()
	own := watch.In(t.config.Multicluster.Namespace)
	gateways, stretched := watch.If(t.config.MulticlusterGateway()), watch.If(t.config.StretchedPolicies())
	watch.Into(k, t.nodes, nodeFactsOf)
	watch.Into(k, p.Nodes, policy.NodeFactsOf)
	watch.Into(k, t.services.Services, service.FactsOf)
	watch.Into(k, p.ServiceSelectors, policy.ServiceSelectorOf)
	watch.Into(k, t.services.Slices, service.SliceFactsOf)
	t.objects.serviceCIDRs = watch.NewSource(k, "servicecidrs", serviceCIDRsOf, optional)
	watch.Into(k, p.Pods, policy.PodFactsOf)
	t.objects.asked = watch.NewSource(k, "asked-by-pods", t.askedBy)
	watch.Into(k, p.Namespaces, policy.NamespaceLabels)
	watch.Into(k, p.Policies[policy.NetworkPolicy], policy.FactsOf)
	withVersion(k, p, policy.AntreaClusterNetworkPolicy, policy.AntreaClusterFactsOf)
	withVersion(k, p, policy.AntreaNetworkPolicy, policy.AntreaFactsOf)
	withVersion(k, p, policy.ClusterNetworkPolicy, policy.ClusterFactsOf)
	watch.Into(k, p.Tiers, policy.TierFactsOf, optional)
	watch.Into(k, p.ClusterGroups, policy.ClusterGroupFactsOf, optional)
	watch.Into(k, p.Groups, policy.GroupFactsOf, optional)
	watch.Into(k, p.LabelIdentities, policy.LabelIdentityOf, stretched, optional)
	watch.Into(k, p.PodAddresses, policy.RemotePodsOf, stretched, own, optional)
	watch.Into(k, t.objects.gateways, gatewayFactsOf, gateways, own, optional)
	t.objects.imports = watch.NewSource(k, "clusterinfoimports", importFactsOf, gateways, own, optional)
	t.objects.sets = watch.NewSource(k, "clustersets", clusterSetFactsOf, gateways, own, optional)
	t.objects.exports = watch.NewSource(k, "serviceexports", exportFactsOf, gateways, optional)
	// watch.If leaves a kind out for all features, but other features read Nodes and Namespaces too.
	external := t.config.Enabled("ServiceExternalIP")
	t.external.pools = watch.NewSource(k, "externalippools", poolSelectorOf, watch.If(external), optional)
	t.external.nodes = watch.NewSource(k, "holder-nodes", func(n *corev1.Node) holderNode {
		if !external {
			return holderNode{}
		}
		return holderNodeOf(n)
	})
	if t.config.Enabled("TenantNetworks") {
		namespaces := watch.NewSource(k, "tenant-namespaces", tenant.NamespaceFactsOf)
		imports := watch.NewSource(k, "tenantnetworkimports", tenant.ClusterSetFactsOf, gateways, optional, watch.IfAllowed())
		t.tenants = tenant.NewCluster(t.engine, tenant.Objects{
			Namespaces: namespaces,
			Labels:     watch.NewSource(k, "tenant-namespace-labels", tenant.NamespaceLabels),
			Networks:   watch.NewSource(k, "virtualnetworks", tenant.VirtualNetworkFactsOf, watch.IfAllowed()),
			Routers:    watch.NewSource(k, "virtualnetworkrouters", tenant.RouterFactsOf, watch.IfAllowed()),
			Imports:    imports,
			Leases:     watch.NewSource(k, "subnetleases", tenant.LeaseFactsOf, watch.IfAllowed()),
		})
		t.objects.networks.separate = newSeparateNetworks(t.tenants.VirtualNetworks)
		watch.Into(k, p.Blocks, policy.BlocksOf, watch.IfAllowed())
		watch.Into(k, p.Further, policy.FurtherOf, watch.IfAllowed())
		t.objects.networks.others = watch.NewSource(k, "network-attachment-definitions", tenant.OtherPlugin,
			watch.IfAllowed())
		t.objects.networks.requests = watch.NewSource(k, "pod-networks", requestOf(t.nodeName))
		t.objects.networks.copies = namespaceCopies{namespaces, imports, t.config.MulticlusterGateway()}
		t.objects.networks.addInterfaces(t.engine, t.pods.attachments)
		t.objects.networks.report = watch.NewSource(k, "own-nodenetworkreport", ownReportOf(t.nodeName), watch.IfAllowed())
		t.objects.networks.shown = watch.NewSource(k, "network-statuses", shownStatusOf(t.nodeName))
	}
	if t.tenants == nil {
		p.Blocks.Loaded()
		p.Further.Loaded()
	}
	t.captures.objects = watch.NewSource(k, "packetcaptures", captureFactsOf, watch.If(t.config.Enabled("PacketCapture")),
		watch.IfAllowed())
	t.objects.monitors = watch.NewSource(k, "nodelatencymonitors", pingIntervalOf,
		watch.If(t.config.Enabled("NodeLatencyMonitor")), watch.IfAllowed())
	t.kinds = k
}

// withVersion declares a kind of policies with a status. The version of each policy is a row of a separate source.
func withVersion[T client.Object](k *watch.Kinds, p *policy.Tables, kind policy.Kind, facts func(T) policy.Facts) {
	watch.Into(k, p.Policies[kind], facts, watch.Optional())
	watch.Into(k, p.Versions[kind], func(o T) policy.Version { return policy.VersionOf(o) })
}

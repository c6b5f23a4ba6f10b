package unserved

import "github.com/tombolo-net/tombolo/pkg/gates"

// withoutProxyAll ends requests that agents serve if their configuration has this key.
const withoutProxyAll = ", without `antreaProxy.proxyAll` of the agents"

const (
	status    = "`tombolo get status`"
	startFail = "error of the agent's start"
)

// rows is the list of requests that are not served. It has the order of the document, and of the Problems of one
// object.
var rows = []Row{
	{
		Asked: "NodePort" + withoutProxyAll, Reason: reasonNodePortNotSupported,
		Happens: "the ClusterIP is served, the NodePort is not; kube-proxy may serve it in the same cluster",
		find:    finders{outside: nodePorts},
	},
	{
		Asked: "LoadBalancer" + withoutProxyAll, Reason: reasonLoadBalancerNotSupported,
		Happens: "the ClusterIP is served, the load balancer's address is not; kube-proxy may serve it in the same cluster",
		find:    finders{outside: loadBalancer},
	},
	{
		Asked: "`spec.loadBalancerClass` and a pool of external addresses", Reason: reasonLoadBalancerClassNotSupported,
		Happens: "the pool is not used: the controller of the class assigns the address, which the agents serve",
		find:    finders{service: loadBalancerClass},
	},
	{
		Asked: "`spec.loadBalancerSourceRanges`" + withoutProxyAll, Reason: reasonLoadBalancerSourceRangesNotSupported,
		Happens: "not applied; kube-proxy applies them to addresses that it serves",
		find:    finders{outside: sourceRanges},
	},
	{
		Asked: "externalIPs" + withoutProxyAll, Reason: reasonExternalIPsNotSupported,
		Happens: "the ClusterIP is served, the external addresses are not; kube-proxy may serve them in the same cluster",
		find:    finders{outside: externalIPs},
	},
	{
		Asked: "externalTrafficPolicy Local" + withoutProxyAll, Reason: reasonExternalTrafficPolicyNotSupported,
		Happens: "no effect, as there are no external addresses",
		find:    finders{outside: externalLocal},
	},
	{
		Asked:   "annotations `service.antrea.io/*` (load-balancer-mode, bgp-med, ...) but those of external addresses",
		Reason:  reasonServiceAnnotationNotSupported,
		Happens: "no effect: load balancers have no DSR, and Nodes speak no BGP",
		find:    finders{service: serviceAnnotations},
	},
	{
		Asked: "annotations `nodeportlocal.antrea.io/*`", Reason: reasonNodePortLocalNotSupported,
		Happens: "no port of a Node is opened for the Pods",
		find:    finders{service: nodePortLocal},
	},
	{
		Asked: "`sessionAffinityConfig.clientIP.timeoutSeconds` above 65535", Reason: reasonAffinityTimeoutShortened,
		Happens: "a client is remembered for 65535 seconds",
		find:    finders{service: longAffinity},
	},
	{
		Asked: "annotations `ipam.antrea.io/*` (ippools, pod-ips) of a Pod or Namespace", Reason: reasonIPPoolNotSupported,
		Happens: "Pods get addresses of their Node's podCIDR",
		find:    finders{pod: podPools, namespace: namespacePools},
	},
	{
		Asked:   "annotation `networkpolicy.antrea.io/enable-logging` of a Namespace",
		Reason:  reasonNamespaceLoggingNotSupported,
		Happens: "what its NetworkPolicies decide is not logged",
		find:    finders{namespace: namespaceLogging},
	},
	{
		Asked:  "label or annotation `core.juniper.net/isolated-namespace` of a Namespace",
		Reason: reasonIsolationNotSupported,
		Happens: "without the agents' feature gate `TenantNetworks` ([tenants](tenants.md)) the Namespace is **not** " +
			"isolated; the annotation never isolates it",
		find: finders{namespace: isolatingAnnotation, tenants: isolatingLabel},
	},
	{
		Asked:   "objects of Antrea's kinds that are not in this version " + listed(antreaKinds),
		Reason:  reasonKindNotSupported,
		Happens: "the definition is not installed; where it is left of Antrea, objects have no effect",
		find:    finders{definition: definitions(antreaKinds, ".crd.antrea.io")},
	},
	{
		Asked:  "AdminNetworkPolicy and BaselineAdminNetworkPolicy (`policy.networking.k8s.io/v1alpha1`)",
		Reason: reasonPolicyKindNotSupported, Happens: "**not** enforced: ClusterNetworkPolicy is what took their place",
		find: finders{definition: adminPolicies},
	},
	{
		Asked: "kinds of CN2 (`core.contrail.juniper.net`) but VirtualNetwork, Subnet and VirtualNetworkRouter " +
			"([tenants](tenants.md))",
		Reason: reasonVirtualNetworkNotSupported, Happens: "the definition is not installed; objects have no effect",
		find: finders{definition: virtualNetworks},
	},
	{
		Asked:  "a Traceflow, without the [relay](relay.md)",
		Reason: reasonRelayMissing, Happens: "it waits, and no packet is sent", find: finders{relay: withoutRelay},
	},
	{
		Asked:  "a NodeLatencyMonitor, without the agents' feature gate `NodeLatencyMonitor` ([probes](probes.md))",
		Reason: reasonProbesNotSupported, Happens: "Nodes do not probe each other", find: finders{latency: latencyMonitor},
	},
	{
		Asked: "feature gates that are not in this version: on by default in Antrea " + listed(gates.Missing(true)) +
			", off by default there " + listed(gates.Missing(false)),
		Happens:  "nothing of them is done",
		Test:     "pkg/agent/config.TestMissing",
		Reported: status + " where `antrea-agent.conf` sets them to true; else the agent's log at its start",
	},
	{
		Asked:   "a second interface of a Pod in Tombolo's network (Multus)",
		Happens: "refused: it would take the Pod's default route",
		Test:    "pkg/cni.TestSecondInterface", Reported: "error of CNI ADD: Event on the Pod",
	},
	{
		Asked:   "`ipam` of a network configuration: `type: antrea`, `ippools`, `ranges`, ...",
		Happens: "refused: addresses come from the Node's podCIDR",
		Test:    "pkg/cni.TestBadRequests", Reported: "error of CNI ADD: Event on the Pod",
	},
	{
		Asked:   "SCTP Services on the userspace datapath",
		Happens: "not served; the kernel datapath serves them",
		Test:    "pkg/service.TestPlan", Reported: status,
	},
	{
		Asked:   "parts of policies that [policy.md](policy.md#not-enforced-yet) lists",
		Happens: "a rule of them allows nothing",
		Test:    "pkg/policy.TestNotUnderstood", Reported: status,
	},
	{
		Asked: "`scope: ClusterSet` in policies, without `multicluster.enableStretchedNetworkPolicy` of the agents",
		Happens: "rules mean this cluster alone " +
			"([policies across clusters](multicluster-policies.md#rules-about-all-clusters))",
		Test: "pkg/policy.TestServersOfOtherClusters", Reported: status,
	},
	{
		Asked: "a cluster that is gone and that [BFD does not watch](multicluster-services.md#a-cluster-that-is-gone): " +
			"Antrea's, older ones, behind NAT",
		Happens: "it keeps its share of requests until its exports go; if it is disconnected, after 24 hours",
		Test:    "pkg/agent.TestWayMetrics", Reported: "`tombolo get peers`, `tombolo_multicluster_way_up`",
	},
	{
		Asked:   "ResourceExports of kinds that are not processed (`ExternalEntity`)",
		Happens: "not imported",
		Test:    "pkg/multicluster/leader.TestClaims", Reported: "condition `Failure` on the ResourceExport",
	},
	{
		Asked:   "`leaderElection.leaderElect: false` of the multi-cluster controllers",
		Happens: "one replica is elected all the same",
		Test:    "cmd/tombolo-controller.TestReplicas", Reported: "warning in the controllers' log",
	},
	{
		Asked:   "`spec.members` of a ClusterSet",
		Happens: "no effect: members announce themselves",
		Test:    "pkg/multicluster/webhook.TestClusterSetWarnings", Reported: "warning at admission",
	},
	{
		Asked: "a cluster that announces a WireGuard key, without encryption here",
		Happens: "refused as a peer, since traffic would go in plain text; " +
			"`multicluster.allowUnencryptedPeers: true` accepts it",
		Test: "pkg/multicluster/peering.TestPlanEncrypted", Reported: status,
	},
	{
		Asked:    "Gateways of one cluster whose addresses are of different versions of IP",
		Happens:  "tunnels of the oldest Gateway's version alone",
		Test:     "pkg/multicluster/member.TestPlanGateway",
		Reported: "Event `GatewayFamiliesDiffer` on the Node",
	},
	{
		Asked:   "clusters whose Gateways' addresses are of different versions of IP",
		Happens: "they do not reach one another",
		Test:    "pkg/multicluster/peering.TestPlan", Reported: status,
	},
	{
		Asked: "`tunnelType: gre` on the kernel's datapath, if a Gateway's tunnels to other Nodes and to other clusters " +
			"are of different versions of IP",
		Happens: "packets do not pass to other clusters; use geneve or vxlan",
		Test:    "pkg/agent.TestTunnelTypes", Reported: status,
	},
	{
		Asked:    "two podCIDRs on a Node with one InternalIP, in `trafficEncapMode` noEncap",
		Happens:  "its Pods have the InternalIP's version of IP alone",
		Test:     "pkg/agent.TestNoRoomForIPv6",
		Reported: status,
	},
	{
		Asked:    "`endpointIPType: PodIP` without `podCIDRs`",
		Happens:  "other clusters cannot reach the endpoints through gateways, but in a network that all clusters reach",
		Test:     "pkg/multicluster/member.TestPlanConfigured",
		Reported: "Event `PodCIDRsMissing` on the exporter's ClusterSet, `EndpointsUnreachable` on the imported Service",
	},
	{
		Asked:   "endpoints that are Pods of another cluster, without `enablePodToPodConnectivity`",
		Happens: "not reached",
		Test:    "pkg/agent.TestPodEndpoints", Reported: status,
	},
	{
		Asked:   "IPsec between Nodes",
		Happens: "refused: the agent does not start",
		Test:    "pkg/agent/config.TestErrors", Reported: startFail + "; the chart refuses it",
	},
	{
		Asked: "`trafficEncapMode` networkPolicyOnly; encryption between Nodes with noEncap or hybrid; bridging mode; " +
			"`antreaProxy` turned off or limited",
		Happens: "refused: the agent does not start",
		Test:    "pkg/agent/config.TestErrors", Reported: startFail + "; the chart refuses it",
	},
	{
		Asked:    "other keys of `antrea-agent.conf` without effect, unknown keys, unknown feature gates",
		Happens:  "the agent goes on without",
		Test:     "pkg/agent/config.TestWarnings",
		Reported: "warning in its log with the line, " + status,
	},
	{
		Asked: "`antrea-controller.conf` in ConfigMap `antrea-config`",
		Happens: "no program reads it. Some guides put `multicluster.enablePodToPodConnectivity` or " +
			"`enableStretchedNetworkPolicy` there: they belong into `antrea-agent.conf`",
		Test: "pkg/cluster/warnings.TestEvents", Reported: "Event on the ConfigMap",
	},
	{
		Asked:    "`hostNetworkMode: iptables`",
		Happens:  "the host's rules are made with nftables",
		Test:     "pkg/agent/config.TestWarnings",
		Reported: "warning in the agent's log, " + status,
	},
}

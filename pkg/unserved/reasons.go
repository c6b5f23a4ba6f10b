package unserved

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of requests that no Node serves.
var (
	reasonNodePortNotSupported = reasons.New(reasons.Row{
		Name: "NodePortNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The agents do not serve NodePorts without antreaProxy.proxyAll.",
		Remedy: "Set antreaProxy.proxyAll in antrea-agent.conf, run kube-proxy, or use the ClusterIP.",
	})

	reasonLoadBalancerNotSupported = reasons.New(reasons.Row{
		Name: "LoadBalancerNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The agents do not serve addresses of load balancers without antreaProxy.proxyAll.",
		Remedy: "Set antreaProxy.proxyAll in antrea-agent.conf, run kube-proxy, or use the ClusterIP.",
	})

	reasonLoadBalancerClassNotSupported = reasons.New(reasons.Row{
		Name: "LoadBalancerClassNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "A Service with a load balancer class gets no address of an ExternalIPPool.",
		Remedy: "Create the Service without the class, or remove the annotation.",
	})

	reasonLoadBalancerSourceRangesNotSupported = reasons.New(reasons.Row{
		Name: "LoadBalancerSourceRangesNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The agents do not limit clients of a Service without antreaProxy.proxyAll.",
		Remedy: "Set antreaProxy.proxyAll in antrea-agent.conf, run kube-proxy, or use the ClusterIP.",
	})

	reasonExternalIPsNotSupported = reasons.New(reasons.Row{
		Name: "ExternalIPsNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "The agents do not serve external addresses without antreaProxy.proxyAll.",
		Remedy: "Set antreaProxy.proxyAll in antrea-agent.conf, run kube-proxy, or use the ClusterIP.",
	})

	reasonExternalTrafficPolicyNotSupported = reasons.New(reasons.Row{
		Name: "ExternalTrafficPolicyNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "externalTrafficPolicy Local has no effect without antreaProxy.proxyAll.",
		Remedy: "Set antreaProxy.proxyAll in antrea-agent.conf, run kube-proxy, or use the ClusterIP.",
	})

	reasonServiceAnnotationNotSupported = reasons.New(reasons.Row{
		Name: "ServiceAnnotationNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "An annotation service.antrea.io/* has no effect.",
		Remedy: "Remove the annotation.",
	})

	reasonNodePortLocalNotSupported = reasons.New(reasons.Row{
		Name: "NodePortLocalNotSupported", Objects: "Service", Shown: reasons.Event, Level: reasons.Error,
		Cause:  "No port of a Node is opened for the Pods of the Service.",
		Remedy: "Use the ClusterIP, or hostPort.",
	})

	reasonAffinityTimeoutShortened = reasons.New(reasons.Row{
		Name: "AffinityTimeoutShortened", Objects: "Service", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "Clients are remembered for a shorter time than the Service asks for.",
		Remedy: "Set sessionAffinityConfig.clientIP.timeoutSeconds to at most 65535.",
	})

	reasonIPPoolNotSupported = reasons.New(reasons.Row{
		Name: "IPPoolNotSupported", Objects: "Pod, Namespace",
		Shown: reasons.Problem | reasons.Event, Level: reasons.Error,
		Cause:  "There are no pools of Pod addresses. Pods get addresses of their Node's podCIDR.",
		Remedy: "Remove the annotation.",
	})

	reasonNamespaceLoggingNotSupported = reasons.New(reasons.Row{
		Name: "NamespaceLoggingNotSupported", Objects: "Namespace", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "Decisions of the Namespace's NetworkPolicies are not logged.",
		Remedy: "Use enableLogging in a rule of an Antrea-native policy.",
	})

	reasonIsolationNotSupported = reasons.New(reasons.Row{
		Name: "IsolationNotSupported", Objects: "Namespace", Shown: reasons.Event, Level: reasons.Error,
		Cause: "The Namespace is not isolated.",
		Remedy: "Set the label core.juniper.net/isolated-namespace and the agents' feature gate TenantNetworks, " +
			"or write a NetworkPolicy.",
	})

	reasonKindNotSupported = reasons.New(reasons.Row{
		Name: "KindNotSupported", Objects: "CustomResourceDefinition", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "Objects of the kind have no effect.",
		Remedy: "Remove the definition, unless another program reads it.",
	})

	reasonRelayMissing = reasons.New(reasons.Row{
		Name: "RelayMissing", Objects: "Traceflow", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The Traceflow waits: the relay tombolo-observe is not installed.",
		Remedy: "Set observe.enabled=true in the chart, or apply tombolo-observe.yml.",
	})

	reasonProbesNotSupported = reasons.New(reasons.Row{
		Name: "ProbesNotSupported", Objects: "NodeLatencyMonitor", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "Nodes do not probe each other: the agents' feature gate NodeLatencyMonitor is off.",
		Remedy: "Set featureGates: {NodeLatencyMonitor: true} in antrea-agent.conf, and restart the agents.",
	})

	reasonPolicyKindNotSupported = reasons.New(reasons.Row{
		Name: "PolicyKindNotSupported", Objects: "CustomResourceDefinition",
		Shown: reasons.Event, Level: reasons.Error,
		Cause:  "Policies of the kind are not enforced.",
		Remedy: "Write a ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2.",
	})

	reasonVirtualNetworkNotSupported = reasons.New(reasons.Row{
		Name: "VirtualNetworkNotSupported", Objects: "CustomResourceDefinition",
		Shown: reasons.Event, Level: reasons.Warning,
		Cause: "Objects of the kind have no effect.",
		Remedy: "Isolate Namespaces, and join them by VirtualNetworkRouters. Remove the definition, unless " +
			"another program reads it.",
	})
)

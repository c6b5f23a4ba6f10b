package unserved

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// AgentsConfig is the ConfigMap of the agents' configuration, in the Namespace of agents and tombolo-controller.
const AgentsConfig = "antrea-config"

// Cluster is what the agents of a cluster serve, and agents of other clusters may not.
type Cluster struct {
	// Outside is set if agents serve Services for clients outside of the Pods' network: antreaProxy.proxyAll.
	Outside bool
	// Tenants is set if they serve isolated Namespaces: feature gate TenantNetworks.
	Tenants bool
	// Latency is set if Nodes probe each other for a NodeLatencyMonitor: feature gate NodeLatencyMonitor.
	Latency bool
}

// ServedBy reads some keys of the agents' configuration, which package config of the agent declares. An invalid
// configuration serves nothing, since no agent starts with it.
func ServedBy(m *corev1.ConfigMap) Cluster {
	var c struct {
		AntreaProxy struct {
			ProxyAll bool `json:"proxyAll"`
		} `json:"antreaProxy"`
		FeatureGates struct {
			TenantNetworks     bool `json:"TenantNetworks"`
			NodeLatencyMonitor bool `json:"NodeLatencyMonitor"`
		} `json:"featureGates"`
	}
	if err := yaml.Unmarshal([]byte(m.Data["antrea-agent.conf"]), &c); err != nil {
		return Cluster{}
	}
	return Cluster{Outside: c.AntreaProxy.ProxyAll, Tenants: c.FeatureGates.TenantNetworks,
		Latency: c.FeatureGates.NodeLatencyMonitor}
}

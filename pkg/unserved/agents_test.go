package unserved

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestServedBy reads the keys that the agent reads.
func TestServedBy(t *testing.T) {
	servedBy := func(conf string) Cluster {
		return ServedBy(&corev1.ConfigMap{Data: map[string]string{"antrea-agent.conf": conf}})
	}
	for _, conf := range []string{
		"", "antreaProxy: {}\n", "antreaProxy: {proxyAll: false}\n", "antreaProxy: {proxyAll: true}\n",
		"featureGates: {}\n", "featureGates: {NodeLatencyMonitor: true}\n",
		"featureGates: {TenantNetworks: true}\n", "featureGates: {TenantNetworks: false}\n",
	} {
		c, _, err := config.Parse([]byte(conf))
		if err != nil {
			t.Fatal(err)
		}
		want := Cluster{Outside: c.AntreaProxy.ProxyAll, Tenants: c.Enabled("TenantNetworks"),
			Latency: c.Enabled("NodeLatencyMonitor")}
		if have := servedBy(conf); have != want {
			t.Errorf("%q: %v, the agent reads %v", conf, have, want)
		}
	}
	for _, conf := range []string{"antreaProxy: 7", "featureGates: 7", "\t"} {
		if have := servedBy(conf); have != (Cluster{}) {
			t.Errorf("%q: no agent starts with it, and it serves %v", conf, have)
		}
	}
}

package warnings

import (
	"testing"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/unserved"
)

// TestServedBy reads the keys that the agent reads.
func TestServedBy(t *testing.T) {
	for _, conf := range []string{
		"", "antreaProxy: {}\n", "antreaProxy: {proxyAll: false}\n", "antreaProxy: {proxyAll: true}\n",
		"featureGates: {}\n", "featureGates: {TenantNetworks: true}\n", "featureGates: {TenantNetworks: false}\n",
	} {
		c, _, err := config.Parse([]byte(conf))
		if err != nil {
			t.Fatal(err)
		}
		want := unserved.Cluster{Outside: c.AntreaProxy.ProxyAll, Tenants: c.Enabled("TenantNetworks")}
		if have := servedBy(conf); have != want {
			t.Errorf("%q: %v, the agent reads %v", conf, have, want)
		}
	}
	if servedBy("antreaProxy: 7").Outside || servedBy("\t").Outside {
		t.Error("a configuration that no agent starts with serves Services from outside")
	}
}

package warnings

import (
	"testing"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestServedBy reads the key that the agent reads.
func TestServedBy(t *testing.T) {
	for _, conf := range []string{
		"", "antreaProxy: {}\n", "antreaProxy: {proxyAll: false}\n", "antreaProxy: {proxyAll: true}\n",
	} {
		c, _, err := config.Parse([]byte(conf))
		if err != nil {
			t.Fatal(err)
		}
		if have := servedBy(conf).Outside; have != c.AntreaProxy.ProxyAll {
			t.Errorf("%q: %v, the agent reads %v", conf, have, c.AntreaProxy.ProxyAll)
		}
	}
	if servedBy("antreaProxy: 7").Outside || servedBy("\t").Outside {
		t.Error("a configuration that no agent starts with serves Services from outside")
	}
}

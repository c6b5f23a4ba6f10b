package keys

import (
	"slices"
	"testing"
)

const root = "../.."

// TestKeys looks up keys of each form.
func TestKeys(t *testing.T) {
	agent, err := Agent(root)
	if err != nil {
		t.Fatal(err)
	}
	controller, err := Controller(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		list []Key
		want Key // its Meaning is not compared
	}{
		{agent, Key{Path: "multicluster.bfd.interval", Type: "time", Default: "100ms"}},
		{agent, Key{Path: "multicluster.enableGateway", Type: "boolean", Default: "false", Alias: "multicluster.enable"}},
		{agent, Key{Path: "defaultMTU", Type: "number", Values: "0 to 65535, but not 1 to 575", Default: "0"}},
		{agent, Key{Path: "tunnelType", Type: "text", Values: "`geneve`, `vxlan`, `gre`", Default: "geneve"}},
		{agent, Key{Path: "secondaryNetwork.ovsBridges[].bridgeName", Type: "text"}},
		{controller, Key{Path: "leaderElection.leaseDuration", Type: "time", Default: "15s"}},
		{controller, Key{Path: "health.healthProbeBindAddress", Type: "text", Default: ":8080"}},
		{controller, Key{Path: "podCIDRs", Type: "list of text"}},
	} {
		t.Run(row.want.Path, func(t *testing.T) {
			i := slices.IndexFunc(row.list, func(k Key) bool { return k.Path == row.want.Path })
			if i < 0 {
				t.Fatal("the key is not listed")
			}
			have := row.list[i]
			if have.Meaning == "" {
				t.Error("the key has no meaning")
			}
			have.Meaning = ""
			if have != row.want {
				t.Errorf("%+v, want %+v", have, row.want)
			}
		})
	}
}

package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestNoClusterSetCostsNothing turns on multi-cluster features in a cluster that is in no ClusterSet. Bridges, ports,
// flows, groups and the host's configuration are the same as without the features, also after the cluster has left one.
// Two features take effect by themselves. Encryption takes its share of the MTU, which Pods keep when the cluster
// joins. With policies over clusters, packets carry identities.
func TestNoClusterSetCostsNothing(t *testing.T) {
	without := testView()
	without.Gateways, without.ClusterInfoImports = nil, nil
	without.Config.Multicluster = config.Default().Multicluster
	without.Config.FeatureGates = nil
	want, problems := Plan(without)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	comparable := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	for _, tc := range []struct {
		name   string
		change func(*config.Config)
	}{
		{"gateways", func(c *config.Config) {}},
		{"Pods of other clusters", func(c *config.Config) { c.Multicluster.EnablePodToPodConnectivity = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView()
			tc.change(&v.Config)
			joined := newTables(v.Config, v.NodeName)
			joined.set(v)
			joined.engine.Pass()
			v.Gateways, v.ClusterInfoImports = nil, nil
			have, problems := Plan(v)
			if len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
			joined.set(v)
			joined.engine.Pass()
			left := joined.desired()
			for _, d := range []struct {
				name string
				Desired
			}{{"in none", have}, {"after it has left", left}} {
				if diff := cmp.Diff(want.Bridges, d.Bridges, comparable); diff != "" {
					t.Errorf("%s, bridges (-want +have):\n%s", d.name, diff)
				}
				if diff := cmp.Diff(want.Host, d.Host, comparable); diff != "" {
					t.Errorf("%s, host (-want +have):\n%s", d.name, diff)
				}
				if diff := cmp.Diff(flowTexts(want.Flows), flowTexts(d.Flows)); diff != "" {
					t.Errorf("%s, flows, groups and meters (-want +have):\n%s", d.name, diff)
				}
			}
		})
	}
}

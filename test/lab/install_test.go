package lab

import (
	"strings"
	"testing"
)

// TestSettings edits the shipped manifests: each setting has exactly one line there.
func TestSettings(t *testing.T) {
	repo, err := Repo()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(record{Config: Config{Name: "x", Clusters: []string{"north", "east"}, Nodes: 1, BFD: DefaultBFD,
		Tenants: true},
		Binaries: binaries{Repo: repo}}, nil)
	for path, lines := range map[string][]string{
		agentManifest: {
			"\n    kubeAPIServerOverride: https://172.30.1.10:6443\n",
			"\n    transportInterface: eth1\n",
			"\n    ovsDatapathType: netdev\n",
			"\n      Multicluster: true\n      TenantNetworks: true\n",
			"\n    tenantNetworks: {subnetCIDRs: [10.0.0.0/8, \"fc00::/7\"]}\n",
			"\n      enableStretchedNetworkPolicy: true\n",
			"\n      enablePodToPodConnectivity: true\n",
			"\n      bfd: {interval: 500ms, multiplier: 6}\n",
		},
		memberManifest: {"\n    enableStretchedNetworkPolicy: true\n", "\n    publishPodAddresses: true\n",
			"\n    podCIDRs: [\"10.11.0.0/16\"]\n"},
		crdsManifest: nil,
	} {
		shipped, err := l.manifest(path)
		if err != nil {
			t.Fatal(err)
		}
		edited, err := l.Cluster("east").settings(path, shipped)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range lines {
			if !strings.Contains(edited, want) {
				t.Errorf("the edited %s lacks %q", path, want)
			}
		}
		// podCIDRs, a list, gets on one line, and another gate and the ranges of tenants are there
		fewer := map[string]int{memberManifest: 1, agentManifest: -2}[path]
		if a, b := strings.Count(shipped, "\n"), strings.Count(edited, "\n"); a-fewer != b {
			t.Errorf("%s had %d lines and has %d, want %d fewer", path, a, b, fewer)
		}
	}
}

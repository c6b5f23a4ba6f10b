package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
)

// TestFamilies holds what Kubernetes' programs get in clusters of each choice, in one lab.
func TestFamilies(t *testing.T) {
	l := newLab(record{Config: Config{Name: "x", Clusters: []string{"four", "both", "six"}, Nodes: 1,
		Families: []family.Families{family.IPv4, family.Dual, family.IPv6}}}, nil)
	for name, want := range map[string]struct {
		apiServer, manager []string
		ips, dns, server   string
	}{
		"four": {
			apiServer: []string{"--advertise-address=172.30.0.10", "--service-cluster-ip-range=10.96.0.0/16"},
			manager:   []string{"--cluster-cidr=10.10.0.0/16", "--node-cidr-mask-size=24"},
			ips:       "192.168.77.101", dns: "10.96.0.10", server: "https://172.30.0.10:6443",
		},
		"both": {
			apiServer: []string{"--advertise-address=172.30.1.10", "--bind-address=::",
				"--service-cluster-ip-range=10.97.0.0/16,fd00:10:97::/112"},
			manager: []string{"--cluster-cidr=10.11.0.0/16,fd00:10:11::/48",
				"--service-cluster-ip-range=10.97.0.0/16,fd00:10:97::/112",
				"--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64"},
			ips: "192.168.78.101,fd00:192:168:78::65", dns: "10.97.0.10,fd00:10:97::a", server: "https://172.30.1.10:6443",
		},
		"six": {
			apiServer: []string{"--advertise-address=fd00:172:30:2::a", "--bind-address=::",
				"--service-cluster-ip-range=fd00:10:98::/112"},
			manager: []string{"--cluster-cidr=fd00:10:12::/48", "--node-cidr-mask-size=64"},
			ips:     "fd00:192:168:79::65", dns: "fd00:10:98::a", server: "https://[fd00:172:30:2::a]:6443",
		},
	} {
		c := l.Cluster(name)
		for _, flags := range [][2][]string{{c.apiServerFlags(), want.apiServer},
			{c.controllerManagerFlags(), want.manager}} {
			for _, flag := range flags[1] {
				if !slices.Contains(flags[0], flag) {
					t.Errorf("%s: %s is missing in %v", name, flag, flags[0])
				}
			}
		}
		for _, pair := range [][2]string{{joined(c.Node("node-1").InternalIPs()), want.ips}, {joined(c.DNS()), want.dns},
			{c.nodeServer(), want.server}} {
			if pair[0] != pair[1] {
				t.Errorf("%s: have %s, want %s", name, pair[0], pair[1])
			}
		}
	}
	if flags := l.Cluster("four").apiServerFlags(); slices.Contains(flags, "--bind-address=::") {
		t.Error("the API server of a cluster of IPv4 alone listens on IPv6")
	}
}

func TestParseFamilies(t *testing.T) {
	for text, want := range map[string][]family.Families{
		"4": {family.IPv4}, "46": {family.Dual}, "46,6": {family.Dual, family.IPv6}, "": nil, "64": nil, "4,": nil,
	} {
		have, err := ParseFamilies(text)
		if !slices.Equal(have, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v, want %v", text, have, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "want 4, 46 or 6") {
			t.Errorf("%q: the error names no remedy: %v", text, err)
		}
	}
	c := Config{Clusters: []string{"a", "b", "c"}, Nodes: 1, Families: []family.Families{family.Dual, family.IPv6}}
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "IP families of 2 clusters") {
		t.Errorf("families of two clusters of three: %v", err)
	}
}

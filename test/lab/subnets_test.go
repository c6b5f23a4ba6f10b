package lab

import (
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
)

// TestSubnets holds the addresses of Nodes of a cluster with two subnets. Load balancers are in the first one.
func TestSubnets(t *testing.T) {
	l := newLab(record{Config: Config{Name: "x", Clusters: []string{"north", "east"}, Nodes: 3, Subnets: 2,
		Families: []family.Families{family.Dual}}}, nil)
	for node, want := range map[string]string{
		"node-1": "192.168.78.101,fd00:192:168:78::65 t1-1",
		"node-2": "192.168.178.102,fd00:192:168:178::66 u1-2",
		"node-3": "192.168.78.103,fd00:192:168:78::67 t1-3",
	} {
		n := l.Cluster("east").Node(node)
		if have := joined(n.InternalIPs()) + " " + n.port(Transport); have != want {
			t.Errorf("%s: have %s, want %s", node, have, want)
		}
	}
	for i, want := range []string{"192.168.78.200", "fd00:192:168:78::c8"} {
		if have := l.Cluster("east").LoadBalancers()[i][0].String(); have != want {
			t.Errorf("the first address of a load balancer is %s, want %s", have, want)
		}
	}
	c := Config{Clusters: []string{"a"}, Nodes: 1, Subnets: 3}
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "3 subnets") {
		t.Errorf("three subnets: %v", err)
	}
}

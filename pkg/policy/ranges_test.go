package policy

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

func TestNodeAt(t *testing.T) {
	e := derive.New()
	tables := NewTables(e, "node-5", nil)
	for name, ranges := range map[string][]string{
		"node-1": {"10.10.1.0/24", "fd00:1::/64"},
		"node-2": {"10.10.2.0/24"},
		"node-3": {"10.10.2.128/25"},
		"node-4": {"10.10.5.0/24", "nonsense"},
		"node-5": {"10.10.5.0/24"},
		"node-6": {"10.10.1.0/24", "0.0.0.0/1"},
		"node-7": nil,
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
		tables.Nodes.Set(derive.ObjectOf(n), NodeFactsOf(n))
	}
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-8"}, Spec: corev1.NodeSpec{PodCIDR: "192.168.8.0/24"}}
	tables.Nodes.Set(derive.ObjectOf(old), NodeFactsOf(old))
	tables.Loaded()
	e.Pass()
	rows := []struct{ name, address, want string }{
		{"first by name of two Nodes with the range", "10.10.1.7", "node-1"},
		{"IPv6", "fd00:1::7", "node-1"},
		{"IPv6 outside", "fd00:2::7", ""},
		{"a shorter range", "10.10.2.7", "node-2"},
		{"the longer of two ranges", "10.10.2.129", "node-3"},
		{"this Node before others", "10.10.5.7", "node-5"},
		{"the shortest range", "11.0.0.1", "node-6"},
		{"podCIDR alone", "192.168.8.1", "node-8"},
		{"no range", "192.168.9.1", ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if have := tables.NodeAt(netip.MustParseAddr(row.address)); have != row.want {
				t.Errorf("%s is of Node %q, want %q", row.address, have, row.want)
			}
		})
	}
	tables.Nodes.Delete(derive.Object{Name: "node-3"})
	e.Pass()
	if have := tables.NodeAt(netip.MustParseAddr("10.10.2.129")); have != "node-2" {
		t.Errorf("without node-3, 10.10.2.129 is of Node %q, want node-2", have)
	}
}

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestFurtherAddresses finds Pods at further addresses that their Nodes report. A Node can report addresses of its own
// blocks and Pods alone.
func TestFurtherAddresses(t *testing.T) {
	e := derive.New()
	tables := NewTables(e, "node-1", nil)
	tables.Namespaces.Set(derive.Object{Name: "a"},
		NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	for i, node := range []string{"node-2", "node-3"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "on-" + node, UID: "1"}}
		p.Spec.NodeName = node
		tables.Pods.Set(derive.Object{Namespace: "a", Name: p.Name}, PodFactsOf(p))
		tables.Nodes.Set(derive.Object{Name: node}, NodeFacts{PodCIDRs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 11, byte(i), 0}), 24)}})
	}
	blue := tombolov1alpha1.ObjectName{Namespace: "a", Name: "blue"}
	lease := &tombolov1alpha1.SubnetLease{Spec: tombolov1alpha1.SubnetLeaseSpec{VirtualNetwork: blue}}
	lease.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: "node-2", CIDRs: []string{"10.50.0.0/28", "10.50.0.77/32"}},
		{Node: "node-3", CIDRs: []string{"10.50.0.16/28"}}}
	tables.Blocks.Set(derive.Object{Name: "uid"}, BlocksOf(lease))
	ended := &tombolov1alpha1.SubnetLease{} // of a Subnet that had the range before node-3
	ended.Spec.VirtualNetwork = blue
	ended.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: "node-2", CIDRs: []string{"10.11.1.16/28"}}}
	tables.Blocks.Set(derive.Object{Name: "ended"}, BlocksOf(ended))
	red := &tombolov1alpha1.SubnetLease{}
	red.Spec.VirtualNetwork = tombolov1alpha1.ObjectName{Namespace: "b", Name: "red"}
	red.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: "node-2", CIDRs: []string{"10.60.0.0/28"}}}
	tables.Blocks.Set(derive.Object{Name: "red"}, BlocksOf(red))
	report := &tombolov1alpha1.NodeNetworkReport{}
	report.Spec.Networks = []tombolov1alpha1.NodeNetwork{{Namespace: "a", Name: "blue",
		Addresses: []tombolov1alpha1.PodNetworkAddress{
			{Address: "10.50.0.1", Pod: "on-node-2", UID: "1"}, {Address: "10.50.0.77", Pod: "on-node-2"},
			{Address: "10.50.0.17", Pod: "on-node-2", UID: "1"}, {Address: "10.50.0.3", Pod: "on-node-3", UID: "1"},
			{Address: "10.50.0.4", Pod: "on-node-2", UID: "earlier"}, {Address: "10.11.0.9", Pod: "on-node-2", UID: "1"},
			{Address: "10.50.0.99", Pod: "on-node-2", UID: "1"}, {Address: "10.11.1.17", Pod: "on-node-2", UID: "1"},
			{Address: "10.60.0.1", Pod: "on-node-2", UID: "1"},
		}}}
	tables.Further.Set(derive.Object{Name: "node-2"}, FurtherOf(report))
	tables.Loaded()
	e.Pass()
	for ip, want := range map[string]string{
		"10.50.0.1": "a/on-node-2", "10.50.0.77": "a/on-node-2",
		"10.50.0.17": "",            // of another Node's block
		"10.50.0.3":  "",            // another Node's Pod
		"10.50.0.4":  "",            // an earlier Pod of the name
		"10.50.0.99": "",            // of no block
		"10.11.1.17": "a/on-node-2", // of a block in the podCIDR of another Node: it hides nothing there
		"10.50.0.5":  "",            // not reported
		"10.60.0.1":  "",            // of a block of another network
	} {
		who, ok := tables.Virtual.PodAt(netip.MustParseAddr(ip))
		have := ""
		if ok {
			have = who.Pod.String()
		}
		if have != want {
			t.Errorf("%s is of Pod %q, want %q", ip, have, want)
		}
		if who, ok := tables.OccupantAt(netip.MustParseAddr(ip)); ok {
			t.Errorf("%s is of the first interface of Pod %s", ip, who.Pod)
		}
	}
	pod := derive.Object{Namespace: "a", Name: "on-node-2"}
	if further, first := tables.Virtual.Of(pod), tables.AddressesOf(pod); len(further) != 3 || len(first) > 0 {
		t.Errorf("the Pod has the addresses %v, and %v on its first interface", further, first)
	}
	at := netip.MustParseAddr("10.50.0.20")
	if block, node := tables.Virtual.BlockAt(at), tables.NodeAt(at); block.Node != "node-3" || node != "" {
		t.Errorf("the block is of Node %q, and first interfaces with its addresses are of %q", block.Node, node)
	}
}

// TestManyFurther has a report with more addresses than any Node has, and an address twice. Some count.
func TestManyFurther(t *testing.T) {
	network, ip := tombolov1alpha1.NodeNetwork{Namespace: "a", Name: "blue"}, netip.MustParseAddr("fd00::f:0")
	for i := range 40_000 {
		network.Addresses = append(network.Addresses, tombolov1alpha1.PodNetworkAddress{Address: ip.String(),
			Pod: fmt.Sprint("p", i)})
		if i > 0 {
			ip = ip.Prev()
		}
	}
	report := &tombolov1alpha1.NodeNetworkReport{}
	report.Spec.Networks = []tombolov1alpha1.NodeNetwork{network}
	have := FurtherOf(report)
	if n := len(have); n != maxFurther-1 || have[n-1].Pod.Name != "p0" ||
		!slices.IsSortedFunc(have, func(a, b FurtherAddress) int { return a.IP.Compare(b.IP) }) {
		t.Errorf("%d addresses count, the last one of Pod %s", n, have[n-1].Pod)
	}
}

package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// waysView has Gateways node-1 and node-2, and two clusters. West has three gateways. South supports one.
func waysView(node string) View {
	v := testView()
	v.NodeName, v.Gateways, v.ClusterInfoImports = node, nil, nil
	for i, ip := range []string{"192.168.78.101", "192.168.78.102"} {
		g := &mcv1alpha1.Gateway{GatewayIP: ip, InternalIP: ip}
		g.Namespace, g.Name, g.CreationTimestamp = "kube-system", v.Nodes[i].Name, metav1.Unix(int64(i), 0)
		v.Gateways = append(v.Gateways, g)
	}
	v.Nodes = append(v.Nodes, testNode("node-3", "192.168.78.103", "10.11.2.0/24"))
	for _, c := range []mcv1alpha1.ClusterInfo{
		{
			ClusterID: "west", ServiceCIDR: "10.98.0.0/16", Features: []string{mcv1alpha1.FeatureActiveGateways},
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.79.101"}, {GatewayIP: "192.168.79.102"},
				{GatewayIP: "192.168.79.103"}},
		},
		{ClusterID: "south", ServiceCIDR: "10.99.0.0/16",
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.80.101"}, {GatewayIP: "192.168.80.102"}}},
	} {
		ci := &mcv1alpha1.ClusterInfoImport{Spec: c}
		ci.Namespace, ci.Name = "kube-system", c.ClusterID+"-clusterinfo"
		v.ClusterInfoImports = append(v.ClusterInfoImports, ci)
	}
	return v
}

// waysInside is waysView with encryption. The gateways of west have the same addresses inside.
func waysInside(node string) View {
	v := waysView(node)
	v.Config.Multicluster.TrafficEncryptionMode = "wireGuard"
	for i, g := range v.Gateways {
		at := insideOf(g.GatewayIP)
		g.ServiceCIDR, g.Annotations = "10.97.0.0/16", map[string]string{multicluster.AnnotationInsideIP: at}
		g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{byte(i + 1)}.String(), InsideIP: at}
	}
	for c, ci := range v.ClusterInfoImports {
		ci.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{byte(10 * (c + 1))}.String()}
		for i := range ci.Spec.GatewayInfos {
			if g := &ci.Spec.GatewayInfos[i]; c == 0 {
				g.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{byte(10 + i)}.String(),
					InsideIP: insideOf(g.GatewayIP)}
			}
		}
	}
	return v
}

// TestWays reads the ways of a Node from its tables and the ports of its switch. They go to status and metrics, to the
// detection of lost ways, and to the report.
func TestWays(t *testing.T) {
	ports := map[string]bridge.PortState{}
	for end, state := range map[string]bridge.PortState{
		"192.168.79.101": {BFD: "up", BFDWasUp: true}, "192.168.79.102": {BFD: "down", BFDWasUp: true},
		"192.168.79.103": {BFD: "init", OFPort: 7, BFDStatus: map[string]string{"state": "init", "forwarding": "false",
			"diagnostic": "Neighbor Signaled Session Down", "remote_state": "down",
			"remote_diagnostic": "Control Detection Time Expired", "flap_count": "12"}},
		"192.168.78.101": {BFD: "up", BFDWasUp: true}, "192.168.78.102": {BFD: "down"},
		"192.168.80.101": {}, // is not watched
	} {
		ports[wayPort(netip.MustParseAddr(end))] = state
		ports[wayPort(netip.MustParseAddr(insideOf(end)))] = state
	}
	type ends = map[datapath.WayEnd]bool
	at := func(text string) datapath.WayEnd { return datapath.WayEnd{Addr: netip.MustParseAddr(text)} }
	counters := map[ofp.Port]ofp.PortStats{0: {RxPackets: 1}, 7: {RxPackets: 90, TxPackets: 120}}
	west := []api.Way{{To: "192.168.79.101", State: "up"}, {To: "192.168.79.102", State: "down"},
		{To: "192.168.79.103", State: "init", Diagnostic: "Neighbor Signaled Session Down", RemoteState: "down",
			RemoteDiagnostic: "Control Detection Time Expired", Flaps: 12, RxPackets: 90, TxPackets: 120}}
	watched := map[string]wayNow{"west/192.168.79.101": {up: true, was: true}, "west/192.168.79.102": {was: true},
		"west/192.168.79.103": {}}
	for _, row := range []struct {
		name   string
		view   View
		ways   map[string][]api.Way
		ends   ends
		report map[string]wayNow
	}{
		{"the oldest Gateway", waysView("node-1"), map[string][]api.Way{"west": west, "south": {{To: "192.168.80.101"}}},
			ends{at("192.168.79.101"): true, at("192.168.79.102"): false, at("192.168.79.103"): false,
				at("192.168.78.102"): false}, watched},
		{"another Gateway, which relays what is for a cluster that knows one", waysView("node-2"),
			map[string][]api.Way{"west": west, "south": {{To: "192.168.78.101", State: "up"}}},
			ends{at("192.168.79.101"): true, at("192.168.79.102"): false, at("192.168.79.103"): false,
				at("192.168.78.101"): true}, watched},
		{"a regular Node", waysView("node-3"),
			map[string][]api.Way{"west": {{To: "192.168.78.101", State: "up"}, {To: "192.168.78.102", State: "down"}},
				"south": {{To: "192.168.78.101", State: "up"}}},
			ends{at("192.168.78.101"): true, at("192.168.78.102"): false}, nil},
		{"ways inside are named by addresses outside", waysInside("node-1"),
			map[string][]api.Way{"west": west, "south": {{To: "192.168.80.101"}}},
			ends{at(insideOf("192.168.79.101")): true, at(insideOf("192.168.79.102")): false,
				at(insideOf("192.168.79.103")): false, at("192.168.78.102"): false}, watched},
		{"no Gateway", func() View { v := waysView("node-1"); v.Gateways = nil; return v }(), map[string][]api.Way{},
			ends{}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			tables := newTables(row.view.Config, row.view.NodeName)
			tables.set(row.view)
			tables.engine.Pass()
			if diff := cmp.Diff(row.ways, tables.ways.byCluster(ports, counters)); diff != "" {
				t.Errorf("ways (-want +have):\n%s", diff)
			}
			if diff := cmp.Diff(row.ends, tables.ways.endsUp(ports),
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("ends (-want +have):\n%s", diff)
			}
			unexported := cmp.AllowUnexported(wayNow{})
			if diff := cmp.Diff(row.report, tables.ways.toReport(ports, true), unexported, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("to report (-want +have):\n%s", diff)
			}
			for way, now := range tables.ways.toReport(ports, false) {
				if now != (wayNow{}) {
					t.Errorf("way %s is %+v by a switch that does not answer", way, now)
				}
			}
		})
	}
}

func TestWayMetrics(t *testing.T) {
	v := waysView("node-1")
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	m := wayMetrics{func() map[string][]api.Way {
		return tables.ways.byCluster(map[string]bridge.PortState{"bfd-c0a84f65": {BFD: "up"}, "bfd-c0a84f66": {BFD: "down"},
			"bfd-c0a84f67": {BFD: "init"}}, nil)
	}}
	want := `
# HELP tombolo_multicluster_way_up Whether BFD finds a way from this Node to another cluster up: 1 or 0.
# TYPE tombolo_multicluster_way_up gauge
tombolo_multicluster_way_up{cluster="west",to="192.168.79.101"} 1
tombolo_multicluster_way_up{cluster="west",to="192.168.79.102"} 0
tombolo_multicluster_way_up{cluster="west",to="192.168.79.103"} 0
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

package agent

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/probe"
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

// TestWaysToProbe probes the ways of a Gateway whose far ends send probes back.
func TestWaysToProbe(t *testing.T) {
	ports := map[string]bridge.PortState{"bfd-c0a84f65": {BFD: "up", OFPort: 5}, "bfd-c0a84f66": {BFD: "down", OFPort: 6},
		"bfd-c0a84f67": {BFD: "up"}, "bfd-c0a85065": {BFD: "up", OFPort: 8}, "bfd-c0a84e65": {BFD: "up", OFPort: 9}}
	want := []probe.Way{{Peer: "west", To: "192.168.79.101", Port: 5, MTU: 1450, Up: true},
		{Peer: "west", To: "192.168.79.102", Port: 6, MTU: 1450}}
	for _, row := range []struct {
		name, node string
		features   []string
		want       []probe.Way
	}{
		{"a Gateway", "node-1", []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureWayEcho}, want},
		{"a regular Node", "node-3", []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureWayEcho}, nil},
		{"a peer that does not announce it", "node-1", []string{mcv1alpha1.FeatureActiveGateways}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := waysView(row.node)
			v.ClusterInfoImports[0].Spec.Features = row.features
			tables := newTables(v.Config, v.NodeName)
			tables.set(v)
			tables.engine.Pass()
			if diff := cmp.Diff(row.want, tables.ways.toProbe(ports, 1450)); diff != "" {
				t.Errorf("ways (-want +have):\n%s", diff)
			}
		})
	}
}

func TestWayMetrics(t *testing.T) {
	v := waysView("node-1")
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	prober, now := probe.New(func() uint64 { return 1 }), time.Unix(1000, 0)
	prober.Set(now, []probe.Way{{Peer: "west", To: "192.168.79.101", Port: 5, MTU: 1450, Up: true}})
	for range 2 {
		for _, p := range prober.Due(now) {
			if err := prober.Take(p, now.Add(20*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
	}
	prober.Due(now.Add(time.Second)) // is not answered
	prober.Due(now.Add(2 * time.Second))
	m := wayMetrics{ways: func() map[string][]api.Way {
		return tables.ways.byCluster(map[string]bridge.PortState{"bfd-c0a84f65": {BFD: "up"}, "bfd-c0a84f66": {BFD: "down"},
			"bfd-c0a84f67": {BFD: "init", BFDStatus: map[string]string{"flap_count": "3"}}}, nil)
	}, probes: prober}
	want := `
# HELP tombolo_multicluster_way_flaps_total How often the state of a way has changed, by BFD.
# TYPE tombolo_multicluster_way_flaps_total counter
tombolo_multicluster_way_flaps_total{peer="west",to="192.168.79.101"} 0
tombolo_multicluster_way_flaps_total{peer="west",to="192.168.79.102"} 0
tombolo_multicluster_way_flaps_total{peer="west",to="192.168.79.103"} 3
# HELP tombolo_multicluster_way_packet_size_bytes The largest packet that passes a way, up to the MTU.
# TYPE tombolo_multicluster_way_packet_size_bytes gauge
tombolo_multicluster_way_packet_size_bytes{peer="west",to="192.168.79.101"} 1450
# HELP tombolo_multicluster_way_probes_lost_total Probes of a way that did not come back in a second.
# TYPE tombolo_multicluster_way_probes_lost_total counter
tombolo_multicluster_way_probes_lost_total{peer="west",to="192.168.79.101"} 1
# HELP tombolo_multicluster_way_rtt_seconds Round-trip times of probes of a way.
# TYPE tombolo_multicluster_way_rtt_seconds histogram
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.0001"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.00025"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.0005"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.001"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.0025"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.005"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.01"} 0
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.025"} 1
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.05"} 1
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.1"} 1
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.25"} 1
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="0.5"} 1
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="1"} 1
tombolo_multicluster_way_rtt_seconds_bucket{peer="west",to="192.168.79.101",le="+Inf"} 1
tombolo_multicluster_way_rtt_seconds_sum{peer="west",to="192.168.79.101"} 0.02
tombolo_multicluster_way_rtt_seconds_count{peer="west",to="192.168.79.101"} 1
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

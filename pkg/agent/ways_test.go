package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// TestBFD makes the interval grow with the number of far ends, in steps. It is never shorter than the configured one.
func TestBFD(t *testing.T) {
	for _, row := range []struct {
		interval   time.Duration // of the configuration; zero for its default
		multiplier int
		ports      int
		want       string // min_tx and min_rx, mult
	}{
		{ports: 1, want: "100 3"},
		{ports: 100, want: "100 3"},
		{ports: 101, want: "150 3"},
		{ports: 150, want: "150 3"},
		{ports: 1000, want: "1000 3"},
		{interval: 10 * time.Millisecond, multiplier: 50, ports: 1, want: "10 50"},
		{interval: 10 * time.Millisecond, multiplier: 50, ports: 11, want: "50 50"},
		{interval: time.Second, multiplier: 2, ports: 101, want: "1000 2"},
		{interval: 10 * time.Second, multiplier: 2, ports: 1000, want: "10000 2"},
	} {
		t.Run(fmt.Sprint(row.interval, " to ", row.ports), func(t *testing.T) {
			v := testView()
			if row.interval != 0 {
				v.Config.Multicluster.BFD.Interval, v.Config.Multicluster.BFD.Multiplier = row.interval, row.multiplier
			}
			have := newTables(v.Config, v.NodeName).ways.bfd(row.ports)
			if diff := cmp.Diff(bfdOptions(row.want), have); diff != "" {
				t.Errorf("options (-want +have):\n%s", diff)
			}
		})
	}
}

// bfdOptions returns the options of a port, from its interval and multiplier.
func bfdOptions(text string) map[string]string {
	var interval, multiplier string
	if _, err := fmt.Sscan(text, &interval, &multiplier); err != nil {
		panic(err)
	}
	return map[string]string{"enable": "true", "min_tx": interval, "min_rx": interval, "mult": multiplier,
		"bfd_local_dst_mac": "aa:bb:cc:dd:ee:0f", "bfd_remote_dst_mac": "aa:bb:cc:dd:ee:0f"}
}

// TestPlanBFD gives each port to a watched far end the interval and the multiplier of the configuration. If there are
// many ends, the interval is longer.
func TestPlanBFD(t *testing.T) {
	for _, row := range []struct {
		name       string
		interval   time.Duration
		multiplier int
		gateways   int // of the other cluster
		want       string
	}{
		{"by default", 0, 0, 2, "100 3"},
		{"configured", 20 * time.Millisecond, 5, 2, "20 5"},
		{"more ends than the interval is for", 10 * time.Millisecond, 5, 12, "50 5"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := testView()
			v.NodeName, v.Underlay.Local = "node-2", []netip.Addr{netip.MustParseAddr("192.168.78.102")} // the Gateway
			v.Attachments = nil                                                                          // of node-1
			if row.interval != 0 {
				v.Config.Multicluster.BFD.Interval, v.Config.Multicluster.BFD.Multiplier = row.interval, row.multiplier
			}
			peer := &v.ClusterInfoImports[0].Spec
			peer.Features, peer.GatewayInfos = []string{mcv1alpha1.FeatureActiveGateways}, nil
			var want []string
			for i := range row.gateways {
				at := fmt.Sprintf("192.168.79.%d", 101+i)
				peer.GatewayInfos = append(peer.GatewayInfos, mcv1alpha1.GatewayInfo{GatewayIP: at})
				want = append(want, at)
			}
			d, problems := Plan(v)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			var have []string
			for _, p := range d.Bridges[0].Ports {
				if len(p.BFD) == 0 {
					continue
				}
				have = append(have, p.Options["remote_ip"])
				if diff := cmp.Diff(bfdOptions(row.want), p.BFD); diff != "" {
					t.Errorf("port %s (-want +have):\n%s", p.Name, diff)
				}
			}
			slices.Sort(have)
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("far ends with BFD (-want +have):\n%s", diff)
			}
		})
	}
}

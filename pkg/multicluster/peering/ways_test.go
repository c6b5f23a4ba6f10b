package peering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

func activePeer(ci *mcv1alpha1.ClusterInfoImport) *mcv1alpha1.ClusterInfoImport {
	ci.Spec.Features = []string{"Other", mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
	return ci
}

// older is a peer that does not watch a single way.
func older(ci *mcv1alpha1.ClusterInfoImport) *mcv1alpha1.ClusterInfoImport {
	ci.Spec.Features = ci.Spec.Features[:2]
	return ci
}

// TestWays: who tunnels where with several Gateways, and what is watched by BFD.
func TestWays(t *testing.T) {
	two := []*mcv1alpha1.Gateway{gateway("a", "198.51.100.1", "192.168.78.1", 2*time.Hour),
		gateway("b", "198.51.100.2", "192.168.78.2", time.Hour)}
	for _, test := range []struct {
		name, node string
		gateways   []*mcv1alpha1.Gateway
		peer       *mcv1alpha1.ClusterInfoImport
		want       string // ways; what is watched; "nodes" where all Nodes are
	}{
		{"one on each side, regular", "c", two[:1], activePeer(imported("west", "10.96.0.0/16", "192.168.77.1")),
			"[192.168.78.1] []"},
		{"one on each side, Gateway", "a", two[:1], activePeer(imported("west", "10.96.0.0/16", "192.168.77.1")),
			"[192.168.77.1] [192.168.77.1]"},
		{"one on each side, of which the other does not watch", "a", two[:1],
			older(activePeer(imported("west", "10.96.0.0/16", "192.168.77.1"))), "[192.168.77.1] []"},
		{"two here, regular", "c", two, activePeer(imported("west", "10.96.0.0/16", "192.168.77.1")),
			"[192.168.78.1 192.168.78.2] [192.168.78.1 192.168.78.2]"},
		{"two here, Gateway", "b", two, activePeer(imported("west", "10.96.0.0/16", "192.168.77.1")),
			"[192.168.77.1] [192.168.78.1 192.168.77.1] nodes"},
		{"two there, regular", "c", two[:1], activePeer(imported("west", "10.96.0.0/16", "192.168.77.1", "192.168.77.2")),
			"[192.168.78.1] []"},
		{"two there, Gateway", "a", two[:1], activePeer(imported("west", "10.96.0.0/16", "192.168.77.1", "192.168.77.2")),
			"[192.168.77.1 192.168.77.2] [192.168.77.1 192.168.77.2]"},
		{"a peer that knows one, regular", "c", two, imported("west", "10.96.0.0/16", "192.168.77.1", "192.168.77.2"),
			"[192.168.78.1] [192.168.78.1 192.168.78.2]"},
		{"a peer that knows one, first Gateway", "a", two, imported("west", "10.96.0.0/16", "192.168.77.1", "192.168.77.2"),
			"[192.168.77.1] [192.168.78.2] nodes"},
		{"a peer that knows one, second Gateway", "b", two, imported("west", "10.96.0.0/16", "192.168.77.1", "192.168.77.2"),
			"[192.168.78.1] [192.168.78.1] nodes relayed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, problems := Plan(View{NodeName: test.node, Gateways: test.gateways,
				ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{test.peer}})
			if len(problems) > 0 || len(p.Peers) != 1 {
				t.Fatalf("%+v, %v", p, problems)
			}
			watched, nodes := p.Part.Watched(p.Peers)
			to, _ := endAddresses(p.Peers[0].Ends)
			have := fmt.Sprint(to, watched)
			if have = strings.ReplaceAll(have, "][", "] ["); nodes {
				have += " nodes"
			}
			if p.Peers[0].Relayed {
				have += " relayed"
			}
			if have != test.want {
				t.Errorf("%s, want %s", have, test.want)
			}
		})
	}
}

// TestDuplicateGateway checks two Gateways with one address: the older counts, and the other is reported.
func TestDuplicateGateway(t *testing.T) {
	p, problems := Plan(View{NodeName: "b", Gateways: []*mcv1alpha1.Gateway{
		gateway("a", "198.51.100.1", "192.168.78.1", 2*time.Hour), gateway("b", "198.51.100.1", "192.168.78.2", time.Hour),
	}})
	if len(p.Part.Gateways) != 1 || p.Part.Role != Regular || len(problems) != 1 ||
		problems[0].Reason.String() != "DuplicateGatewayIP" || problems[0].Name != "b" {
		t.Errorf("%+v, %v", p, problems)
	}
}

// TestTunnel reports a peer that announces other tunnels than this cluster's, and keeps it.
func TestTunnel(t *testing.T) {
	const active = mcv1alpha1.FeatureActiveGateways
	for _, test := range []struct {
		name     string
		own      string
		features []string
		problem  string // in its message
	}{
		{name: "Geneve", features: []string{active}},
		{name: "VXLAN", own: mcv1alpha1.FeatureTunnel("vxlan", 0), features: []string{active, "Tunnel-vxlan"}},
		{name: "VXLAN on its own port", own: mcv1alpha1.FeatureTunnel("vxlan", 4789),
			features: []string{active, "Tunnel-vxlan"}},
		{name: "the peer has VXLAN", own: mcv1alpha1.FeatureTunnel("geneve", 0), features: []string{active, "Tunnel-vxlan"},
			problem: "between this cluster and west: tunnels there are vxlan, here geneve: set tunnelType"},
		{name: "this cluster has GRE", own: mcv1alpha1.FeatureTunnel("gre", 0), features: []string{active},
			problem: "tunnels there are geneve, here gre:"},
		{name: "another port", own: mcv1alpha1.FeatureTunnel("geneve", 6082), features: []string{active},
			problem: "tunnels there are geneve, here geneve on port 6082:"},
		{name: "something new", features: []string{active, "Tunnel-"}, problem: "tunnels there are "},
		{name: "a cluster of Antrea's", own: "Tunnel-gre"},
	} {
		t.Run(test.name, func(t *testing.T) {
			west := imported("west", "10.96.0.0/16", "192.168.77.1")
			west.Spec.Features = test.features
			p, problems := Plan(View{NodeName: "a",
				Gateways:           []*mcv1alpha1.Gateway{gateway("a", "198.51.100.1", "192.168.78.1", time.Hour)},
				ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{west}, Tunnel: test.own})
			if len(p.Peers) != 1 {
				t.Errorf("peers %v", p.Peers)
			}
			switch {
			case test.problem == "" && len(problems) > 0:
				t.Errorf("problems %v", problems)
			case test.problem != "" &&
				(len(problems) != 1 || problems[0].Field != "spec.features" ||
					problems[0].Reason.String() != "TunnelTypeMismatch" ||
					!strings.Contains(problems[0].Message, test.problem)):
				t.Errorf("problems %v, want one with %q", problems, test.problem)
			}
		})
	}
}

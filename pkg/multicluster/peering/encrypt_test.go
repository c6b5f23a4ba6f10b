package peering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// TestPlanEncrypted: tunnels end inside, between one gateway of each cluster, and peers that cannot be reached so are not reached.
func TestPlanEncrypted(t *testing.T) {
	key := func(n byte) string { return publickey.Key{n}.String() }
	with := func(ci *mcv1alpha1.ClusterInfoImport, key string) *mcv1alpha1.ClusterInfoImport {
		ci.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key}
		ci.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways}
		return ci
	}
	own := func() []*mcv1alpha1.Gateway {
		first, second := gateway("node-1", "172.30.1.11", "192.168.78.101", 2*time.Hour), gateway("node-2", "172.30.1.12", "192.168.78.102", time.Hour)
		for i, g := range []*mcv1alpha1.Gateway{first, second} {
			g.ServiceCIDR, g.WireGuard = "10.97.0.0/16", &mcv1alpha1.WireGuardInfo{PublicKey: key(byte(1 + i))}
		}
		return []*mcv1alpha1.Gateway{first, second}
	}
	changing := func(ci *mcv1alpha1.ClusterInfoImport, key, next string, port int32) *mcv1alpha1.ClusterInfoImport {
		with(ci, key).Spec.WireGuard.NextPublicKey, ci.Spec.WireGuard.NextPort = next, port
		return ci
	}
	north := func(next string, port int32) []*mcv1alpha1.ClusterInfoImport {
		return []*mcv1alpha1.ClusterInfoImport{aged(changing(imported("north", "10.98.0.0/16", "192.168.79.101"), key(7), next, port), time.Hour),
			changing(imported("west", "10.96.0.0/16", "192.168.77.101"), key(9), key(10), 51822)}
	}
	both := func(north string) []string {
		return []string{"gateway of node-1 10.97.0.0 192.168.78.101", "north [10.98.0.0/16] [10.98.0.0] via 10.98.0.0", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0",
			"north is at 192.168.79.101 with " + key(7) + north, "west is at 192.168.77.101 with " + key(9) + ", next " + key(10) + " at 51822"}
	}
	west := with(imported("west", "10.96.0.0/16", "192.168.77.101", "192.168.77.102"), key(9))
	for _, test := range []struct {
		name     string
		node     string
		gateways []*mcv1alpha1.Gateway
		imports  []*mcv1alpha1.ClusterInfoImport
		want     []string
		problems []string
	}{
		{"the first Gateway", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{west},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0", "west is at 192.168.77.101 with " + key(9)}, nil},
		{"another Gateway goes by the first", "node-2", own(), []*mcv1alpha1.ClusterInfoImport{west},
			[]string{"gateway of node-2 10.97.0.0 192.168.78.102", "west [10.96.0.0/16] [10.96.0.0] via 192.168.78.101", "west is at 192.168.77.101 with " + key(9)}, nil},
		{"a regular Node goes by the first", "node-3", own(), []*mcv1alpha1.ClusterInfoImport{west},
			[]string{"regular of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 192.168.78.101", "west is at 192.168.77.101 with " + key(9)}, nil},
		{"a peer without a key", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{imported("north", "10.98.0.0/16", "192.168.79.101"), west},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0", "west is at 192.168.77.101 with " + key(9)},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: cluster north ignored: it announces no WireGuard key"}},
		{"what is no key", "node-3", own(), []*mcv1alpha1.ClusterInfoImport{with(imported("north", "10.98.0.0/16", "192.168.79.101"), "k")},
			[]string{"regular of node-1 10.97.0.0 192.168.78.101"},
			[]string{`ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: cluster north ignored: "k" is not a WireGuard key`}},
		{"another cluster's key", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{aged(with(imported("north", "10.98.0.0/16", "192.168.79.101"), key(9)), time.Hour), west},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0", "west is at 192.168.77.101 with " + key(9)},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: cluster north ignored: cluster west has the same WireGuard key"}},
		{"this cluster's key", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{with(imported("north", "10.98.0.0/16", "192.168.79.101"), key(2))},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101"},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: cluster north ignored: Gateway node-2 of this cluster has the same WireGuard key"}},
		{"keys that change", "node-1", own(), north(key(8), 51823), both(", next " + key(8) + " at 51823"), nil},
		{"a key that has changed", "node-1", own(), north(key(7), 51823), both(", next " + key(7) + " at 51823"), nil},
		{"a next key that is none", "node-1", own(), north("k", 51823), both(", next  at 51823"),
			[]string{`ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPublicKey: packets of cluster north will be lost when it changes its WireGuard key: "k" is not a WireGuard key`}},
		{"a next key that is another's next", "node-1", own(), north(key(10), 51823), both(", next  at 51823"),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPublicKey: cluster north cannot change to its next WireGuard key: cluster west has the same"}},
		{"a next key that is this cluster's", "node-1", own(), north(key(1), 51823), both(", next  at 51823"),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPublicKey: cluster north cannot change to its next WireGuard key: Gateway node-1 of this cluster has the same"}},
		{"a next port that is none", "node-1", own(), north(key(8), 70000), both(""),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPort: packets of cluster north will be lost when it changes its WireGuard key: 70000 is not a port"}},
		{"no next port", "node-1", own(), north(key(8), 0), both(""),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPort: packets of cluster north will be lost when it changes its WireGuard key: 0 is not a port"}},
		{"no Service range", "node-1", []*mcv1alpha1.Gateway{gateway("node-1", "172.30.1.11", "192.168.78.101", time.Hour)}, []*mcv1alpha1.ClusterInfoImport{west},
			[]string{"none"}, []string{"Gateway kube-system/node-1 serviceCIDR: no cluster is reached"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, problems := Plan(View{NodeName: test.node, Gateways: test.gateways, ClusterInfoImports: test.imports, Encrypt: true, AllowUnencryptedPeers: true})
			have := text(p)
			for _, peer := range p.Peers {
				line := fmt.Sprintf("%s is at %s with %s", peer.ClusterID, peer.WireGuard.Endpoint, peer.WireGuard.PublicKey)
				if w := peer.WireGuard; w.NextPort != 0 {
					next := ""
					if w.Next != (publickey.Key{}) {
						next = w.Next.String()
					}
					line += fmt.Sprintf(", next %s at %d", next, w.NextPort)
				}
				have = append(have, line)
			}
			if diff := cmp.Diff(test.want, have); diff != "" {
				t.Errorf("peering (-want +have):\n%s", diff)
			}
			if len(problems) != len(test.problems) {
				t.Fatalf("problems %v, want %v", problems, test.problems)
			}
			for i, p := range problems {
				if line := p.Object.String() + " " + p.Field + ": " + p.Message; !strings.HasPrefix(line, test.problems[i]) {
					t.Errorf("problem %q, want %q", line, test.problems[i])
				}
			}
			if ends, _ := p.Watched(); test.node == "node-1" && len(ends) > 1 {
				t.Errorf("watched are %v, want the other Gateway at most", ends)
			}
		})
	}
}

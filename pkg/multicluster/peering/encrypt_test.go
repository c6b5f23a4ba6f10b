package peering

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// TestPlanEncrypted checks that tunnels end inside, between one gateway of each cluster. A peer that cannot be reached
// so is not reached.
func TestPlanEncrypted(t *testing.T) {
	key := func(n byte) string { return publickey.Key{n}.String() }
	with := func(ci *mcv1alpha1.ClusterInfoImport, key string) *mcv1alpha1.ClusterInfoImport {
		ci.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key}
		ci.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways}
		return ci
	}
	own := func() []*mcv1alpha1.Gateway {
		first, second := gateway("node-1", "172.30.1.11", "192.168.78.101", 2*time.Hour),
			gateway("node-2", "172.30.1.12", "192.168.78.102", time.Hour)
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
		return []*mcv1alpha1.ClusterInfoImport{aged(changing(imported("north", "10.98.0.0/16", "192.168.79.101"), key(7),
			next, port), time.Hour),
			changing(imported("west", "10.96.0.0/16", "192.168.77.101"), key(9), key(10), 51822)}
	}
	both := func(north string) []string {
		return []string{"gateway of node-1 10.97.0.0 192.168.78.101", "north [10.98.0.0/16] [10.98.0.0] via 10.98.0.0",
			"west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0",
			"cluster north is at 192.168.79.101 with " + key(7) + north, "cluster west is at 192.168.77.101 with " +
				key(9) + ", next " + key(10) + " at 51822"}
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
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0",
				"cluster west is at 192.168.77.101 with " + key(9)}, nil},
		{"another Gateway goes by the first", "node-2", own(), []*mcv1alpha1.ClusterInfoImport{west},
			[]string{"gateway of node-2 10.97.0.0 192.168.78.102", "west [10.96.0.0/16] [10.96.0.0] via 192.168.78.101",
				"cluster west is at 192.168.77.101 with " + key(9)}, nil},
		{"a regular Node goes by the first", "node-3", own(), []*mcv1alpha1.ClusterInfoImport{west},
			[]string{"regular of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 192.168.78.101",
				"cluster west is at 192.168.77.101 with " + key(9)}, nil},
		{"a peer without a key", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{imported("north", "10.98.0.0/16", "192.168.79.101"), west},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0",
				"cluster west is at 192.168.77.101 with " + key(9)},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: PeerWithoutEncryption cluster " +
				"north ignored: it announces no WireGuard key, and nothing is sent to it in plain text: set " +
				"multicluster.trafficEncryptionMode to wireGuard in antrea-agent.conf of that cluster; its Gateway's agent " +
				"announces the key then"}},
		{"what is no key", "node-3", own(),
			[]*mcv1alpha1.ClusterInfoImport{with(imported("north", "10.98.0.0/16", "192.168.79.101"), "k")},
			[]string{"regular of node-1 10.97.0.0 192.168.78.101"},
			[]string{`ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: InvalidWireGuardKey cluster ` +
				`north ignored: "k" is not a WireGuard key: want 32 bytes in base64: delete that cluster's Gateway object: it is ` +
				`made again, and its agent writes its key again`}},
		{"another cluster's key", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{aged(with(imported("north", "10.98.0.0/16", "192.168.79.101"), key(9)),
				time.Hour), west},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101", "west [10.96.0.0/16] [10.96.0.0] via 10.96.0.0",
				"cluster west is at 192.168.77.101 with " + key(9)},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: DuplicateWireGuardKey cluster " +
				"north ignored: cluster west has the same WireGuard key: remove the file wireguard.key below /var/lib/tombolo on " +
				"that cluster's Gateway Nodes, if they are copies of others, and restart their agents"}},
		{"this cluster's key", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{with(imported("north", "10.98.0.0/16", "192.168.79.101"), key(2))},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101"},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.publicKey: DuplicateWireGuardKey cluster " +
				"north ignored: Gateway node-2 of this cluster has the same WireGuard key: remove the file wireguard.key below " +
				"/var/lib/tombolo on that cluster's Gateway Nodes, if they are copies of others, and restart their agents"}},
		{"keys that change", "node-1", own(), north(key(8), 51823), both(", next " + key(8) + " at 51823"), nil},
		{"a key that has changed", "node-1", own(), north(key(7), 51823), both(", next " + key(7) + " at 51823"), nil},
		{"a next key that is none", "node-1", own(), north("k", 51823), both(", next  at 51823"),
			[]string{`ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPublicKey: InvalidWireGuardKey ` +
				`packets of cluster north will be lost when it changes its WireGuard key: ` +
				`"k" is not a WireGuard key: want 32 bytes in base64: ` +
				"delete that cluster's Gateway object: it is made again, and its agent writes its keys again"}},
		{"a next key that is another's next", "node-1", own(), north(key(10), 51823), both(", next  at 51823"),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPublicKey: DuplicateWireGuardKey " +
				"cluster north cannot change to its next WireGuard key: cluster west has the same: remove the file " +
				"wireguard.key.next below /var/lib/tombolo on that cluster's Gateway Node, and restart its agent"}},
		{"a next key that is this cluster's", "node-1", own(), north(key(1), 51823), both(", next  at 51823"),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPublicKey: DuplicateWireGuardKey " +
				"cluster north cannot change to its next WireGuard key: Gateway node-1 of this cluster has the same: remove the " +
				"file wireguard.key.next below /var/lib/tombolo on that cluster's Gateway Node, and restart its agent"}},
		{"a next port that is none", "node-1", own(), north(key(8), 70000), both(""),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPort: InvalidWireGuardPort packets " +
				"of cluster north will be lost when it changes its WireGuard key: 70000 is not a port: apply the manifests of " +
				"this release in that cluster and in the leader's"}},
		{"no next port", "node-1", own(), north(key(8), 0), both(""),
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.wireGuard.nextPort: InvalidWireGuardPort packets " +
				"of cluster north will be lost when it changes its WireGuard key: 0 is not a port: apply the manifests of this " +
				"release in that cluster and in the leader's"}},
		{"no Service range", "node-1", []*mcv1alpha1.Gateway{gateway("node-1", "172.30.1.11", "192.168.78.101", time.Hour)},
			[]*mcv1alpha1.ClusterInfoImport{west},
			[]string{"none"},
			[]string{"Gateway kube-system/node-1 serviceCIDR: InvalidServiceCIDR no cluster is reached, since encrypted " +
				"tunnels end at the first address of the Service range: the range is missing: set serviceCIDR in the " +
				"configuration of the member controller"}},
		{"a peer whose first range is of IPv6", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{with(imported("north", "fd98::/112", "192.168.79.101"), key(8))},
			[]string{"gateway of node-1 10.97.0.0 192.168.78.101"},
			[]string{"ClusterInfoImport kube-system/north-clusterinfo spec.serviceCIDR: NoInsideIP cluster north ignored: its " +
				"first Service range fd98::/112 is of IPv6, and that cluster or this one announces no wireGuard.insideIP of its " +
				"gateways: agents announce it soon after their start; if they do not, apply the manifests of this release in " +
				"both clusters and in the leader's"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, problems := Plan(View{NodeName: test.node, Gateways: test.gateways, ClusterInfoImports: test.imports,
				Encrypt: true, AllowUnencryptedPeers: true})
			have := text(p)
			have = append(have, encryptedText(p)...)
			if diff := cmp.Diff(test.want, have); diff != "" {
				t.Errorf("peering (-want +have):\n%s", diff)
			}
			if len(problems) != len(test.problems) {
				t.Fatalf("problems %v, want %v", problems, test.problems)
			}
			for i, p := range problems {
				if diff := cmp.Diff(test.problems[i],
					p.Object.String()+" "+p.Field+": "+p.Reason.String()+" "+p.Message); diff != "" {
					t.Errorf("problem (-want +have):\n%s", diff)
				}
			}
			if ends, _ := p.Part.Watched(p.Peers); test.node == "node-1" && len(ends) > 1 {
				t.Errorf("watched are %v, want the other Gateway at most", ends)
			}
		})
	}
}

// TestClosed checks that no packet goes in plain text to clusters that are reached encrypted, peers or not, with or
// without a Gateway here.
func TestClosed(t *testing.T) {
	own := gateway("node-1", "192.168.78.101", "192.168.78.101", time.Hour)
	own.ServiceCIDR = "10.97.0.0/16"
	cluster := func(name, services string, key bool, pods ...string) *mcv1alpha1.ClusterInfoImport {
		ci := imported(name, services, "192.168.79.101")
		if ci.Spec.PodCIDRs = pods; key {
			ci.Spec.GatewayInfos[0].WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{9}.String()}
		}
		return ci
	}
	north, west := cluster("north", "10.98.0.0/16", false, "10.20.0.0/16", "10.20.0.0/17"),
		cluster("west", "10.96.0.9/16", true, "10.10.0.0/16", "fd00:10::/64")
	away := imported("away", "10.95.0.0/16")
	away.Annotations = map[string]string{multicluster.AnnotationWithdrawn: "2026-01-31T12:00:00Z"}
	for _, test := range []struct {
		name string
		view View
		want string
	}{
		{"both encrypt, or should", View{Encrypt: true},
			"[{away 10.95.0.0 [10.95.0.0/16]} {west 10.96.0.0 [10.96.0.0/16]} {north 10.98.0.0 [10.98.0.0/16]}]"},
		{"their Pods are reached", View{Encrypt: true, PodToPod: true, AllowUnencryptedPeers: true},
			"[{away 10.95.0.0 [10.95.0.0/16]} {west 10.96.0.0 [10.96.0.0/16 10.10.0.0/16]} " +
				"{north 10.98.0.0 [10.98.0.0/16 10.20.0.0/16 10.20.0.0/17]}]"},
		{"Nodes with IPv6 alone", View{Encrypt: true, PodToPod: true, AllowUnencryptedPeers: true, Families: family.IPv6},
			"[{away 10.95.0.0 []} {west 10.96.0.0 [fd00:10::/64]} {north 10.98.0.0 []}]"},
		{"a peer encrypts", View{}, "[{west 10.96.0.0 [10.96.0.0/16]}]"},
		{"a peer encrypts, and need not", View{AllowUnencryptedPeers: true}, "[]"},
		{"ranges that this cluster has",
			View{Encrypt: true, PodToPod: true, Own: Own{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/15")},
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.20.200.0/24")}}},
			"[{away 10.95.0.0 [10.95.0.0/16]} {north 10.98.0.0 [10.98.0.0/16 10.20.0.0/17]}]"},
	} {
		for _, gateways := range [][]*mcv1alpha1.Gateway{{own}, nil} {
			test.view.NodeName, test.view.Gateways, test.view.ClusterInfoImports = "node-1", gateways,
				[]*mcv1alpha1.ClusterInfoImport{north, west, away, cluster("south", "no range", true)}
			p, problems := Plan(test.view)
			if fmt.Sprint(p.Part.Closed) != test.want {
				t.Errorf("%s, with %d Gateways: closed are %v, want %s",
					test.name, len(gateways), p.Part.Closed, test.want)
			}
			reported := slices.ContainsFunc(problems, func(p problem.Problem) bool {
				return p.Reason.String() == "ClusterWithdrawn" &&
					p.Name == away.Name
			})
			if reached := slices.ContainsFunc(p.Peers, func(p Peer) bool { return p.ClusterID == "away" }); reached ||
				reported != test.view.Encrypt {
				t.Errorf("%s, with %d Gateways: the withdrawn cluster is a peer: %t, and problems are %v", test.name, len(gateways),
					reached, problems)
			}
		}
	}
}

// encryptedText has a line for each end of an encrypted way.
func encryptedText(p Peering) (out []string) {
	for _, peer := range p.Peers {
		for _, w := range peer.Gateways {
			if !w.Inside.IsValid() {
				continue
			}
			line := fmt.Sprintf("%s is at %s with %s", peer.Name(w), w.Outside, w.Key)
			if w.NextPort != 0 {
				next := ""
				if w.Next != (publickey.Key{}) {
					next = w.Next.String()
				}
				line += fmt.Sprintf(", next %s at %d", next, w.NextPort)
			}
			out = append(out, line)
		}
	}
	return out
}

// TestPlanEncryptedGateways checks that each Gateway has encrypted ways to each of a peer's. To a peer that announces
// one key, only the first has a way, to the peer's first.
func TestPlanEncryptedGateways(t *testing.T) {
	key := func(n byte) string { return publickey.Key{n}.String() }
	own := func(change ...func(first, second *mcv1alpha1.Gateway)) []*mcv1alpha1.Gateway {
		out := []*mcv1alpha1.Gateway{gateway("node-1", "192.168.78.101", "192.168.78.101", 2*time.Hour),
			gateway("node-2", "192.168.78.102", "192.168.78.102", time.Hour)}
		for i, g := range out {
			g.ServiceCIDR, g.WireGuard = "10.97.0.0/16", &mcv1alpha1.WireGuardInfo{PublicKey: key(byte(1 + i))}
			g.Annotations = map[string]string{multicluster.AnnotationInsideIP: []string{"255.87.177.154", "255.87.177.153"}[i]}
		}
		for _, f := range change {
			f(out[0], out[1])
		}
		return out
	}
	west := func(change ...func(info *mcv1alpha1.ClusterInfo)) *mcv1alpha1.ClusterInfoImport {
		ci := aged(imported("west", "10.96.0.0/16", "192.168.77.101", "192.168.77.102"), time.Hour)
		ci.Spec.Features, ci.Spec.WireGuard = []string{mcv1alpha1.FeatureActiveGateways},
			&mcv1alpha1.WireGuardInfo{PublicKey: key(9)}
		for i, inside := range []string{"255.87.178.154", "255.87.178.153"} {
			ci.Spec.GatewayInfos[i].WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key(byte(9 + i)), InsideIP: inside}
		}
		for _, f := range change {
			f(&ci.Spec)
		}
		return ci
	}
	north := imported("north", "10.98.0.0/16", "192.168.79.101")
	north.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key(7)}
	taker := aged(imported("taker", "fd66::17b3:64c7:0/112", "192.168.79.102"), 2*time.Hour)
	taker.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key(8)}
	if have := claims.InsideOf(netip.MustParseAddr("fd66::17b3:64c7:0")).String(); have != "255.87.178.154" {
		t.Fatalf("the taker's range gives %s, want the address of west's first gateway", have)
	}
	leaves := func(info *mcv1alpha1.ClusterInfo) {
		info.GatewayInfos, info.LeavingGateways = info.GatewayInfos[:1], info.GatewayInfos[1:]
	}
	gatewayOf := func(node, inside, address string) string { return "gateway of " + node + " " + inside + " " + address }
	direct := "west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 255.87.178.154 255.87.178.153"
	ends := []string{"gateway 192.168.77.101 of cluster west is at 192.168.77.101 with " + key(9),
		"gateway 192.168.77.102 of cluster west is at 192.168.77.102 with " + key(10)}
	oneWay := func(via string) []string {
		return []string{"west [10.96.0.0/16] [10.96.0.0] via " + via, "cluster west is at 192.168.77.101 with " + key(9)}
	}
	for _, test := range []struct {
		name     string
		node     string
		gateways []*mcv1alpha1.Gateway
		imports  []*mcv1alpha1.ClusterInfoImport
		want     []string
		watched  string
		problem  string
	}{
		{"the first Gateway", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"), direct}, ends...),
			"[192.168.78.102 255.87.178.154 255.87.178.153]", ""},
		{"another Gateway", "node-2", own(), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{gatewayOf("node-2", "255.87.177.153", "192.168.78.102"), direct}, ends...),
			"[192.168.78.101 255.87.178.154 255.87.178.153]", ""},
		{"a regular Node", "node-3", own(), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{"regular of node-1 255.87.177.154 192.168.78.101",
				"west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 192.168.78.101 192.168.78.102"}, ends...),
			"[192.168.78.101 192.168.78.102]", ""},
		{"a peer with one key", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{north, west()},
			append([]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"north [10.98.0.0/16] [10.98.0.0] via 10.98.0.0", direct,
				"cluster north is at 192.168.79.101 with " + key(7)}, ends...),
			"[192.168.78.102 255.87.178.154 255.87.178.153]", ""},
		{"a peer of IPv6 whose range gives the address of another's gateway", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{taker, west()},
			append([]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"), direct}, ends...),
			"[192.168.78.102 255.87.178.154 255.87.178.153]", "spec.serviceCIDR: cluster taker ignored: its first Service " +
				"range fd66::17b3:64c7:0/112 is of IPv6, and that cluster or this one announces no wireGuard.insideIP"},
		{"a peer with one key, from another Gateway", "node-2", own(), []*mcv1alpha1.ClusterInfoImport{north},
			[]string{gatewayOf("node-2", "255.87.177.153", "192.168.78.102"),
				"north [10.98.0.0/16] [10.98.0.0] via 192.168.78.101", "cluster north is at 192.168.79.101 with " + key(7)},
			"[192.168.78.101]", ""},
		{"this cluster has one address", "node-1",
			own(func(first, second *mcv1alpha1.Gateway) { first.Annotations, second.Annotations = nil, nil }),
			[]*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{gatewayOf("node-1", "10.97.0.0", "192.168.78.101")}, oneWay("10.96.0.0")...),
			"[192.168.78.102]", ""},
		{"a Gateway has none", "node-1", own(func(_, second *mcv1alpha1.Gateway) { second.Annotations = nil }),
			[]*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"), direct}, ends...),
			"[255.87.178.154 255.87.178.153]", ""},
		{"the first Gateway has none", "node-1", own(func(first, _ *mcv1alpha1.Gateway) { first.Annotations = nil }),
			[]*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{"regular of node-2 255.87.177.153 192.168.78.102",
				"west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 192.168.78.102"}, ends...), "[]", ""},
		{"and a regular Node uses the other", "node-3", own(func(first, _ *mcv1alpha1.Gateway) { first.Annotations = nil }),
			[]*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{"regular of node-2 255.87.177.153 192.168.78.102",
				"west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 192.168.78.102"}, ends...), "[]", ""},
		{"a Gateway that comes has none yet", "node-1", own(func(_, second *mcv1alpha1.Gateway) {
			second.Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseJoining}
		}), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"), direct}, ends...),
			"[255.87.178.154 255.87.178.153]", ""},
		{"and it is like a Node that is none", "node-2", own(func(_, second *mcv1alpha1.Gateway) {
			second.Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseJoining}
		}), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{"regular of node-1 255.87.177.154 192.168.78.101",
				"west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 192.168.78.101"}, ends...), "[]", ""},
		{"a gateway of the peer goes", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{west(leaves)},
			append([]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"), direct + " going 255.87.178.153"}, ends...),
			"[192.168.78.102 255.87.178.154 255.87.178.153]", ""},
		{"and the other is none", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{west(leaves,
				func(info *mcv1alpha1.ClusterInfo) { info.GatewayInfos[0].WireGuard.PublicKey = "none" })},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101")}, "[192.168.78.102]",
			`spec.gatewayInfos[0].wireGuard.publicKey: gateway 192.168.77.101 of cluster west ignored: `},
		{"one that goes has the address of another", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{west(leaves,
				func(info *mcv1alpha1.ClusterInfo) { info.LeavingGateways[0].GatewayIP = "192.168.78.102" })},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"west [10.96.0.0/16] [255.87.178.154] via 255.87.178.154", "cluster west is at 192.168.77.101 with " + key(9)},
			"[192.168.78.102 255.87.178.154]",
			`spec.leavingGateways[0].gatewayIP: gateway of cluster west ignored: 192.168.78.102 is the gateway of this ` +
				`cluster too`},
		{"this Gateway goes", "node-2", own(func(_, second *mcv1alpha1.Gateway) {
			second.Annotations[multicluster.AnnotationPhase] = multicluster.PhaseLeft
		}), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{gatewayOf("node-2", "255.87.177.153", "192.168.78.102"),
				"west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 192.168.78.101"}, ends...),
			"[192.168.78.101 255.87.178.154 255.87.178.153]", ""},
		{"a Gateway goes, and connections on it stay", "node-3", own(func(_, second *mcv1alpha1.Gateway) {
			second.Annotations[multicluster.AnnotationPhase] = multicluster.PhaseLeaving
		}), []*mcv1alpha1.ClusterInfoImport{west()},
			append([]string{"regular of node-1 255.87.177.154 192.168.78.101",
				"west [10.96.0.0/16] [255.87.178.154 255.87.178.153] via 192.168.78.101 192.168.78.102 going 192.168.78.102"},
				ends...), "[192.168.78.101 192.168.78.102]", ""},
		{"a gateway of the peer has none yet", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{west(func(info *mcv1alpha1.ClusterInfo) { info.GatewayInfos[1].WireGuard = nil })},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"west [10.96.0.0/16] [255.87.178.154] via 255.87.178.154", "cluster west is at 192.168.77.101 with " + key(9)},
			"[192.168.78.102 255.87.178.154]", ""},
		{"an address that is none", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{
				west(func(info *mcv1alpha1.ClusterInfo) { info.GatewayInfos[1].WireGuard.InsideIP = "10.0.0.1" })},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"west [10.96.0.0/16] [255.87.178.154] via 255.87.178.154", "cluster west is at 192.168.77.101 with " + key(9)},
			"[192.168.78.102 255.87.178.154]",
			`spec.gatewayInfos[1].wireGuard.insideIP: gateway 192.168.77.102 of cluster west ignored: "10.0.0.1" is not an ` +
				`address of 240.0.0.0/4`},
		{"an address of another gateway", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{
				west(func(info *mcv1alpha1.ClusterInfo) { info.GatewayInfos[1].WireGuard.InsideIP = "255.87.176.153" })},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"west [10.96.0.0/16] [255.87.178.154] via 255.87.178.154", "cluster west is at 192.168.77.101 with " + key(9)},
			"[192.168.78.102 255.87.178.154]",
			`spec.gatewayInfos[1].wireGuard.insideIP: gateway 192.168.77.102 of cluster west ignored: its address inside ` +
				`WireGuard is 255.87.176.153: expected 255.87.178.153`},
		{"this cluster's address", "node-1", own(), []*mcv1alpha1.ClusterInfoImport{west(func(info *mcv1alpha1.ClusterInfo) {
			info.GatewayInfos[1].GatewayIP, info.GatewayInfos[1].WireGuard.InsideIP = "208.168.78.102", "255.87.177.153"
		})},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"west [10.96.0.0/16] [255.87.178.154] via 255.87.178.154", "cluster west is at 192.168.77.101 with " + key(9)},
			"[192.168.78.102 255.87.178.154]",
			`spec.gatewayInfos[1].wireGuard.insideIP: gateway 208.168.78.102 of cluster west ignored: its address inside ` +
				`WireGuard, 255.87.177.153, belongs to Gateway node-2 of this cluster`},
		{"the key of the peer's other gateway", "node-1", own(),
			[]*mcv1alpha1.ClusterInfoImport{
				west(func(info *mcv1alpha1.ClusterInfo) { info.GatewayInfos[1].WireGuard.PublicKey = key(9) })},
			[]string{gatewayOf("node-1", "255.87.177.154", "192.168.78.101"),
				"west [10.96.0.0/16] [255.87.178.154] via 255.87.178.154", "cluster west is at 192.168.77.101 with " + key(9)},
			"[192.168.78.102 255.87.178.154]",
			`spec.gatewayInfos[1].wireGuard.publicKey: gateway 192.168.77.102 of cluster west ignored: gateway 192.168.77.101 ` +
				`of cluster west has the same WireGuard key`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, problems := Plan(View{NodeName: test.node, Gateways: test.gateways, ClusterInfoImports: test.imports,
				Encrypt: true})
			if diff := cmp.Diff(test.want, append(text(p), encryptedText(p)...)); diff != "" {
				t.Errorf("peering (-want +have):\n%s", diff)
			}
			ends, _ := p.Part.Watched(p.Peers)
			if have := fmt.Sprint(ends); have != test.watched {
				t.Errorf("watched are %s, want %s", have, test.watched)
			}
			for _, peer := range p.Peers {
				want := ""
				if len(peer.Gateways) == 1 && peer.Gateways[0].Inside == peer.CIDRs[0].Addr() {
					want = "10.97.0.0"
				}
				if peer.Base.IsValid() != (want != "") || want != "" && peer.Base.String() != want {
					t.Errorf("cluster %s knows this one by %s, want %q", peer.ClusterID, peer.Base, want)
				}
			}
			switch {
			case test.problem == "" && len(problems) > 0, test.problem != "" && len(problems) != 1:
				t.Errorf("problems %v", problems)
			case test.problem != "":
				if line := problems[0].Field + ": " + problems[0].Message; !strings.HasPrefix(line, test.problem) {
					t.Errorf("problem %q, want %q", line, test.problem)
				}
			}
		})
	}
}

// TestInsideOf checks that the inside addresses of Gateways differ from those for Nodes with private addresses.
func TestInsideOf(t *testing.T) {
	for outside, want := range map[string]string{
		"10.0.0.1": "245.255.255.254", "172.16.3.4": "243.239.252.251", "192.168.78.101": "255.87.177.154",
		"203.0.113.7": "244.255.142.248", "fd00::1": "251.253.163.52", "fd00::2": "250.253.161.161",
	} {
		if have := claims.InsideOf(netip.MustParseAddr(outside)).String(); have != want {
			t.Errorf("%s is %s inside, want %s", outside, have, want)
		}
	}
	for outside, want := range map[string]string{"10.0.0.1": "250.0.0.1", "192.168.78.101": "240.168.78.101",
		"fd00::1": "248.70.95.43"} {
		if have := InsideOfNode(netip.MustParseAddr(outside)).String(); have != want {
			t.Errorf("Node %s is %s inside, want %s", outside, have, want)
		}
	}
}

package peering

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/family"
)

// TestPreserve checks that connections to a peer's Pods keep the client's address if both clusters can, and only then.
func TestPreserve(t *testing.T) {
	own := func(kept string) *mcv1alpha1.Gateway {
		g := gateway("a", "198.51.100.1", "192.168.78.1", time.Hour)
		if kept != "" {
			g.Annotations = map[string]string{multicluster.AnnotationKeptPods: kept}
		}
		return g
	}
	peer := func(features ...string) *mcv1alpha1.ClusterInfoImport {
		ci := imported("west", "10.96.0.0/16", "192.168.77.1")
		ci.Spec.PodCIDRs, ci.Spec.Features = []string{"10.10.0.0/16"}, features
		return ci
	}
	const active, feature = mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeaturePreserveClientIP
	both := peer(active, feature)
	both.Spec.PodCIDRs = append(both.Spec.PodCIDRs, "fd10::/48")
	second := own("10.11.0.0/16")
	second.Name, second.GatewayIP, second.InternalIP = "b", "198.51.100.2", "192.168.78.2"
	bad := own("")
	bad.Name, bad.GatewayIP = "c", "x"
	for _, test := range []struct {
		name     string
		mode     string
		pods     string // of this Node
		gateways []*mcv1alpha1.Gateway
		peer     *mcv1alpha1.ClusterInfoImport
		off      bool // enablePodToPodConnectivity
		want     bool
		// translated is a range of Pods, the only one, that is reached with another address.
		translated string
		unserved   bool   // the Pods are not reached
		problem    string // in its message
	}{
		{name: "both can", mode: "auto", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")}, peer: peer(active, feature),
			want: true},
		{name: "both can, always", mode: "always", gateways: []*mcv1alpha1.Gateway{own("10.20.0.0/16,10.11.0.0/16"), second},
			peer: peer(feature, active), want: true},
		{name: "never", mode: "never", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")}, peer: peer(active, feature)},
		{name: "a configuration of an earlier version", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")},
			peer: peer(active, feature)},
		{name: "an older peer", mode: "auto", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")}, peer: peer(active)},
		{name: "an older peer, always", mode: "always", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")},
			peer: peer(active), unserved: true, problem: "that cluster does not announce that it can"},
		{name: "a peer with one tunnel", mode: "auto", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")},
			peer: peer(feature)},
		{name: "not announced here", mode: "auto", gateways: []*mcv1alpha1.Gateway{own("")}, peer: peer(active, feature)},
		{name: "not announced here, always", mode: "always", gateways: []*mcv1alpha1.Gateway{own("")},
			peer: peer(active, feature), unserved: true, problem: "this cluster does not announce that it can"},
		{name: "a new Gateway does not say it yet", mode: "auto", gateways: []*mcv1alpha1.Gateway{second, own("")},
			peer: peer(active, feature)},
		{name: "one that is not used", mode: "auto", gateways: []*mcv1alpha1.Gateway{second, bad},
			peer: peer(active, feature), want: true, problem: "the Gateway is not used"},
		{name: "the range of this Node's Pods is not announced", mode: "auto", pods: "10.12.1.0/24",
			gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")}, peer: peer(active, feature)},
		{name: "a part of it is", mode: "always", pods: "10.8.0.0/13", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")},
			peer: peer(active, feature), unserved: true, problem: "does not announce the range 10.8.0.0/13"},
		{name: "one version of IP is announced here", mode: "auto", pods: "10.11.3.0/24,fd11:0:0:3::/64",
			gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")}, peer: both, want: true, translated: "fd10::/48"},
		{name: "one version of IP is announced here, always", mode: "always", pods: "10.11.3.0/24,fd11:0:0:3::/64",
			gateways: []*mcv1alpha1.Gateway{own("fd11::/48")}, peer: both, want: true,
			problem: "Pod range 10.10.0.0/16 of cluster west is not reached"},
		{name: "both are", mode: "always", pods: "10.11.3.0/24,fd11:0:0:3::/64",
			gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16,fd11::/48")}, peer: both, want: true},
		{name: "not a range", mode: "auto", gateways: []*mcv1alpha1.Gateway{own("10.11.0.0,x,")},
			peer: peer(active, feature)},
		{name: "Pods are not reached", mode: "always", off: true, gateways: []*mcv1alpha1.Gateway{own("10.11.0.0/16")},
			peer: peer(active, feature), unserved: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.pods == "" {
				test.pods = "10.11.3.0/24"
			}
			var own []netip.Prefix
			for text := range strings.SplitSeq(test.pods, ",") {
				own = append(own, netip.MustParsePrefix(text))
			}
			p, problems := Plan(View{Families: family.Of(own), NodeName: "a", Gateways: test.gateways,
				ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{test.peer}, PodToPod: !test.off,
				PreserveClientIP: test.mode, Pods: own})
			if len(p.Peers) != 1 {
				t.Fatalf("%+v, %v", p, problems)
			}
			if have := p.Peers[0]; (len(have.Kept) > 0) != test.want || (len(have.Pods) == 0) != test.unserved ||
				len(have.CIDRs) != 1+len(have.Pods) {
				t.Errorf("%+v, want to keep addresses %v, Pods reached %v", have, test.want, !test.unserved)
			}
			var translated []string
			for _, r := range p.Peers[0].Pods {
				if test.want && !slices.Contains(p.Peers[0].Kept, r) {
					translated = append(translated, r.String())
				}
			}
			if have := strings.Join(translated, " "); have != test.translated {
				t.Errorf("addresses are not kept to %q, want %q", have, test.translated)
			}
			switch {
			case test.problem == "" && len(problems) > 0, test.problem != "" && len(problems) != 1:
				t.Errorf("problems %v, want %q", problems, test.problem)
			case test.problem != "" && !strings.Contains(problems[0].Message, test.problem):
				t.Errorf("problem %q, want %q", problems[0], test.problem)
			}
		})
	}
}

package datapath

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// The addresses of west's servers in these tests, whose endpoints stand for Pods of west: 10.96.0.20 is near,
// 10.96.0.23 far.
var nearPod, farPod = addrOf("10.96.0.20"), addrOf("10.96.0.23")

// publish has west publish the addresses of Pods with these labels.
func (c *sources) publish(pods map[netip.Addr]string) {
	var list policy.RemotePods
	for _, ip := range []netip.Addr{nearPod, farPod} {
		if label := pods[ip]; label != "" {
			list = append(list, policy.RemotePod{IP: ip, Label: label})
		}
	}
	c.policy.PodAddresses.Set(derive.Object{Namespace: "kube-system", Name: "west-podaddresses-10.96.0.0"}, list)
}

// toServers are egress rules of a client with the label app=a.
func (c *sources) toServers(list ...policy.RuleFacts) {
	c.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "servers"}: {
		Stage: policy.Admin, Tier: "application", Priority: 5,
		AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
		Egress:    &policy.DirectionFacts{Rules: list},
	}})
}

// TestServersOfOtherClusters checks that egress rules distinguish servers in other clusters by the labels that these
// publish.
func TestServersOfOtherClusters(t *testing.T) {
	both := map[netip.Addr]string{nearPod: "app=server", farPod: "app=b"}
	local := policy.RuleFacts{Action: policy.Allow, AnyPort: true, Peers: about(0, "app=server").Peers}
	for _, test := range []struct {
		name      string
		rules     []policy.RuleFacts
		published map[netip.Addr]string
		edit      func(*sources)
		near, far bool // a connection passes
	}{
		{name: "a server that a rule allows",
			rules: []policy.RuleFacts{about(policy.Allow, "app=server"), everybody(policy.Drop)}, published: both, near: true},
		{name: "a server that a rule drops", rules: []policy.RuleFacts{about(policy.Drop, "app=server")}, published: both,
			far: true},
		{name: "labels of both", rules: []policy.RuleFacts{about(policy.Drop, "app in (b,server)")}, published: both},
		{name: "nothing is published", rules: []policy.RuleFacts{about(policy.Drop, "app=server")}, near: true, far: true},
		{name: "labels without a number",
			rules: []policy.RuleFacts{about(policy.Allow, "app=server"), everybody(policy.Drop)}, published: both,
			edit: func(s *sources) { s.number("app=server", 0) }},
		{name: "scope Cluster, and Pods here that have the labels", rules: []policy.RuleFacts{local, everybody(policy.Drop)},
			published: both,
			edit:      func(s *sources) { s.relabel("pod2", "app=server") }},
		{name: "scope Cluster, and a number that this Node gives its own",
			rules: []policy.RuleFacts{local, about(policy.Pass, "app=server"), everybody(policy.Drop)}, published: both,
			near: true,
			edit: func(s *sources) {
				s.relabel("pod2", "app=server")
				s.engine.Pass()
				own, _ := s.policy.Numbers.Get(defaultIdentity("app=server"))
				s.number("app=server", own)
			}},
		{name: "two clusters claim an address",
			rules: []policy.RuleFacts{about(policy.Allow, "app=server"), everybody(policy.Drop)}, published: both,
			edit: func(s *sources) {
				s.policy.PodAddresses.Set(derive.Object{Namespace: "kube-system", Name: "south"},
					policy.RemotePods{{IP: nearPod, Label: "app=b"}})
			}},
		{name: "an address of this cluster", rules: []policy.RuleFacts{about(policy.Drop, "app=server")}, published: both,
			near: true, far: true,
			edit: func(s *sources) {
				s.policy.Nodes.Set(derive.Object{Name: "other"}, policy.NodeFacts{PodCIDRs: []netip.Prefix{host(nearPod)}})
				s.policy.Pods.Set(derive.Object{Namespace: "default", Name: "own"},
					policy.PodFacts{Labels: "app=x", Node: "other", IPs: []netip.Addr{nearPod}})
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, all := stretchedCable(t)
			for _, name := range []string{"east1", "east2"} {
				all[name].publish(test.published)
				all[name].toServers(test.rules...)
				if test.edit != nil {
					test.edit(all[name])
				}
			}
			c.load(all)
			for _, from := range []struct{ pod, way string }{{"east1 pod1", "east1 east2 west1"},
				{"east2 pod1", "east2 west1"}} {
				node, _, _ := strings.Cut(from.pod, " ")
				for _, to := range []struct {
					at, end string
					passes  bool
				}{{nearServer, "pod1", test.near}, {farServer, "west2 pod1", test.far}} {
					want := node + " dropped in EgressAdmin"
					if to.passes {
						want = from.way + " " + to.end
					}
					if w := c.send(from.pod, c.request(from.pod, to.at, oftest.TCP)); strings.Join(w.places, " ") != want {
						t.Errorf("%s to %s: %s, want %s", from.pod, to.at, w, want)
					}
				}
				if other := c.send(node+" pod2",
					c.request(node+" pod2", nearServer, oftest.TCP)); strings.Contains(strings.Join(other.places, " "), "dropped") {
					t.Errorf("%s pod2, to which no policy is applied: %s", node, other)
				}
			}
		})
	}
}

// TestServerComesAndGoes counts flows of a Pod of another cluster: one if rules name its labels, otherwise no flow.
func TestServerComesAndGoes(t *testing.T) {
	s := stretchedSources("east", 1)
	s.toServers(about(policy.Allow, "app=server"), about(policy.Drop, "app=server"))
	s.publish(map[netip.Addr]string{farPod: "app=server"})
	s.engine.Pass()
	var changed []flow.Owner
	s.tables.Watch(func(o flow.Owner, entries func() flow.Entries) {
		changed = append(changed, o)
		if n := len(entries().Flows); n > 1 {
			t.Errorf("%v has %d flows, want one", o, n)
		}
	})
	is := func(step string, want int, pods map[netip.Addr]string) {
		t.Helper()
		changed = nil
		s.publish(pods)
		s.engine.Pass()
		if len(changed) != want {
			t.Errorf("%s: %v have changed, want %d", step, changed, want)
		}
	}
	is("comes", 1, map[netip.Addr]string{nearPod: "app=server", farPod: "app=server"})
	is("gets labels that no rule names", 1, map[netip.Addr]string{nearPod: "app=b", farPod: "app=server"})
	is("gets others", 0, map[netip.Addr]string{nearPod: "app=c", farPod: "app=server"})
	is("goes", 0, map[netip.Addr]string{farPod: "app=server"})
}

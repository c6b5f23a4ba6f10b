package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// Addresses in the podCIDRs of unknownSources: one of a known Pod of node-2, and one of an unknown Pod.
var (
	knownFar, unknownFar = addrOf("10.11.1.2"), addrOf("10.11.1.9")
	gatewayFar           = addrOf("10.11.1.1")
	unknownNear          = addrOf("10.11.0.9")
)

// unknownSources are node-1 with pod1 (app=server) and pod2 (app=b), and node-2 with one Pod that is known (app=c).
func unknownSources() *sources {
	c := newSources(onNode(1))
	c.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	for i, name := range []string{"node-1", "node-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.11.%d.0/24", i)}}}
		c.policy.Nodes.Set(derive.ObjectOf(n), policy.NodeFactsOf(n))
	}
	c.relabel("pod1", "app=server")
	c.relabel("pod2", "app=b")
	c.policy.Pods.Set(derive.Object{Namespace: "default", Name: "far"},
		policy.PodFacts{Labels: "app=c", Node: "node-2", IPs: []netip.Addr{knownFar}})
	c.engine.Pass()
	return c
}

// judge applies one policy of an admin tier to pod1.
func (c *sources) judge(d policy.Direction, list ...policy.RuleFacts) {
	f := policy.Facts{Stage: policy.Admin, TierPriority: 100, Priority: 5,
		AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}}}
	if d == policy.Ingress {
		f.Ingress = &policy.DirectionFacts{Rules: list}
	} else {
		f.Egress = &policy.DirectionFacts{Rules: list}
	}
	c.policy.Policies[policy.ClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "judge"}: f})
}

// TestUnknownPods checks connections with addresses in podCIDRs at which no Pod is known.
func TestUnknownPods(t *testing.T) {
	const world = "198.51.100.7"
	quarantine := []policy.Selector{{Pods: "zone=quarantine"}}
	deny := func(action policy.Action) policy.RuleFacts {
		return policy.RuleFacts{Action: action, Peers: quarantine, AnyPort: true}
	}
	block := func(action policy.Action, cidr string) policy.RuleFacts {
		return policy.RuleFacts{Action: action, Ranges: []policy.Range{{CIDR: rangeOf(cidr)}}, AnyPort: true}
	}
	rows := []struct {
		name  string
		rules []policy.RuleFacts
		want  map[netip.Addr]string // of ingress and egress alike; of the others Allow
	}{
		{name: "a rule drops by label", rules: []policy.RuleFacts{deny(policy.Drop)},
			want: map[netip.Addr]string{unknownFar: dropped, unknownNear: dropped}},
		{name: "a rule rejects by label", rules: []policy.RuleFacts{deny(policy.Reject)},
			want: map[netip.Addr]string{unknownFar: rejected, unknownNear: rejected}},
		{name: "a range is allowed before", rules: []policy.RuleFacts{block(policy.Allow, "10.11.1.0/28"), deny(policy.Drop)},
			want: map[netip.Addr]string{unknownNear: dropped}},
		{name: "a range is allowed behind", rules: []policy.RuleFacts{deny(policy.Drop), block(policy.Allow, "10.11.0.0/16")},
			want: map[netip.Addr]string{unknownFar: dropped, unknownNear: dropped}},
		{name: "a rule passes by label", rules: []policy.RuleFacts{deny(policy.Pass), deny(policy.Drop)},
			want: map[netip.Addr]string{unknownFar: dropped, unknownNear: dropped}},
		{name: "a rule allows by label before one denies everybody",
			rules: []policy.RuleFacts{{Action: policy.Allow, Peers: []policy.Selector{{}}, AnyPort: true},
				block(policy.Drop, "10.11.0.0/16")},
			want: map[netip.Addr]string{unknownFar: dropped, unknownNear: dropped, gatewayFar: dropped}},
		{name: "no rule denies by label", rules: []policy.RuleFacts{block(policy.Drop, "192.0.2.0/24")}},
		{name: "a rule denies by label to another port",
			rules: []policy.RuleFacts{{Action: policy.Drop, Peers: quarantine,
				Ports: []policy.PortRange{{Protocol: "TCP", From: 443, To: 443}}}}},
	}
	for _, row := range rows {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			t.Run(row.name+", "+d.String(), func(t *testing.T) {
				c := unknownSources()
				c.judge(d, row.rules...)
				c.engine.Pass()
				sw, err := oftest.New(Program)
				if err != nil {
					t.Fatal(err)
				}
				if err := sw.Replace(slices.Collect(maps.Values(c.held))...); err != nil {
					t.Fatal(err)
				}
				for _, other := range []netip.Addr{knownFar, unknownFar, gatewayFar, unknownNear, addrOf(world), c.Pods[1].IPs[0]} {
					if d == policy.Egress && other == unknownNear {
						continue // no port has it: packets to it end in table Route
					}
					want := allowed
					if w, ok := row.want[other]; ok {
						want = w
					}
					askUnknown(t, c, sw, d, other, want)
				}
			})
		}
	}
}

func askUnknown(t *testing.T, c *sources, sw *oftest.Switch, d policy.Direction, other netip.Addr, want string) {
	t.Helper()
	pod := c.Pods[0]
	conn := policy.Connection{From: other, To: pod.IPs[0], Protocol: corev1.ProtocolTCP, Port: 80, SourcePort: 1024}
	if d == policy.Egress {
		conn.From, conn.To = conn.To, conn.From
	}
	k := oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: conn.From, IPDst: conn.To,
		Proto: oftest.TCP, SrcPort: 1024, DstPort: 80}
	if d == policy.Ingress {
		switch {
		case other == c.Pods[1].IPs[0]:
			k.InPort, k.EthSrc = c.Pods[1].Port, c.Pods[1].MAC
		case rangeOf("10.11.1.0/24").Contains(other):
			k.InPort, k.EthSrc, k.EthDst, k.TunSrc, k.TunDst = tunnelPort, gwMAC, InClusterMAC, eastTwo, eastOne
		default: // by the host
			k.InPort, k.EthSrc, k.EthDst = gatewayPort, gwMAC, InClusterMAC
		}
	}
	sw.Forget()
	if have := met(sw.Send(k)); have != want {
		t.Errorf("%s: %s, want %s", k, have, want)
	}
	if v := c.policy.Decide(derive.Object{Namespace: pod.Namespace, Name: pod.Name}, d, conn); v.Action.String() != want {
		t.Errorf("%s of %s with %s: the tables say %s, want %s", d, pod.Name, other, v.Action, want)
	}
}

// TestUnknownPodIsKnown checks that a Pod is judged by its labels as soon as they and its address are known. Once its
// object is deleted it is an unknown Pod again, with or without processes: its known connections end.
func TestUnknownPodIsKnown(t *testing.T) {
	c := unknownSources()
	c.judge(policy.Ingress, policy.RuleFacts{Action: policy.Drop, Peers: []policy.Selector{{Pods: "zone=quarantine"}},
		AnyPort: true})
	sw, err := oftest.New(Program)
	if err != nil {
		t.Fatal(err)
	}
	is := func(step, want string) {
		t.Helper()
		c.engine.Pass()
		c.tables.Policies.Known.Recheck(c.tables.Policies.Known.Rechecks(sw.DumpConntrack()))
		c.engine.Pass()
		if err := sw.Replace(slices.Collect(maps.Values(c.held))...); err != nil {
			t.Fatal(err)
		}
		k := oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: InClusterMAC, TunSrc: eastTwo, TunDst: eastOne,
			IPSrc: unknownFar, IPDst: c.Pods[0].IPs[0], Proto: oftest.TCP, SrcPort: 1024, DstPort: 80}
		if have := met(sw.Send(k)); have != want {
			t.Errorf("%s: %s, want %s", step, have, want)
		}
		if want == allowed {
			sw.Send(oftest.Packet{InPort: c.Pods[0].Port, EthSrc: c.Pods[0].MAC, EthDst: gwMAC, IPSrc: k.IPDst, IPDst: k.IPSrc,
				Proto: oftest.TCP, SrcPort: 80, DstPort: 1024})
		}
	}
	name := derive.Object{Namespace: "default", Name: "late"}
	is("no Pod is known", dropped)
	c.policy.Pods.Set(name, policy.PodFacts{Labels: "app=c", Node: "node-2"})
	is("a Pod without an address", dropped)
	c.policy.Pods.Set(name, policy.PodFacts{Labels: "app=c", Node: "node-2", IPs: []netip.Addr{unknownFar}})
	is("known", allowed)
	is("known, again", allowed)
	c.policy.Pods.Delete(name)
	is("deleted by force", dropped)
	c.policy.Pods.Set(name, policy.PodFacts{Labels: "zone=quarantine", Node: "node-2", IPs: []netip.Addr{unknownFar}})
	is("with other labels", dropped)
}

package datapath

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestIsolatedIPv6 isolates a Pod in both directions, except for one port that it connects to. Neighbor Discovery, the
// Node's probes and errors about its connection go on. Policies judge everything else over IPv6.
func TestIsolatedIPv6(t *testing.T) {
	s := dualNode(1)
	s.Node.NoND = false
	c := newSources(s)
	c.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	c.relabel("pod1", "app=server")
	c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "default", Name: "closed"}, policy.Facts{
		Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
		Ingress: &policy.DirectionFacts{},
		Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{{Action: policy.Allow,
			Ranges: []policy.Range{{CIDR: rangeOf("::/0")}},
			Ports:  []policy.PortRange{{Protocol: corev1.ProtocolTCP, From: 443, To: 443}}}}},
	})
	c.engine.Pass()
	sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
	if err != nil {
		t.Fatal(err)
	}
	pod, world, router := s.Pods[0], addrOf("2001:db8::7"), addrOf("2001:db8:1::1")
	own, gateway := ofFamily(pod.IPs, world), ofFamily(s.Node.GatewayIPs, world)
	sends := func(k oftest.Packet) oftest.Packet {
		k.InPort, k.EthSrc, k.EthDst, k.IPSrc = pod.Port, pod.MAC, gwMAC, ofFamily(pod.IPs, k.IPDst)
		return k
	}
	fromHost := func(k oftest.Packet) oftest.Packet {
		k.InPort, k.EthSrc, k.EthDst, k.IPDst = gatewayPort, gwMAC, InClusterMAC, ofFamily(pod.IPs, k.IPSrc)
		return k
	}
	syn := sends(oftest.Packet{IPDst: world, Proto: oftest.TCP, SrcPort: 40000, DstPort: 443})
	tooBig := func(about oftest.Packet) oftest.Packet {
		about.InPort = 0
		return fromHost(oftest.Packet{IPSrc: router, Proto: oftest.ICMPv6, Inner: &about})
	}
	solicit := oftest.Solicit(pod.MAC, own, gateway)
	solicit.InPort = pod.Port
	back := fromHost(oftest.Packet{IPSrc: world, Proto: oftest.TCP, SrcPort: 443, DstPort: 40000})
	probe := fromHost(oftest.Packet{IPSrc: gateway, Proto: oftest.TCP, SrcPort: 40000, DstPort: 8080})
	probe.EthDst = pod.MAC
	forwarded := probe
	forwarded.EthDst, forwarded.SrcPort = InClusterMAC, 40001
	unknown := syn
	unknown.SrcPort = 40002
	for _, step := range []struct {
		name   string
		packet oftest.Packet
		to     ofp.Port // 0 for none
	}{
		{"a solicitation for the gateway is answered", solicit, pod.Port},
		{"a connection that a rule allows", syn, gatewayPort},
		{"its answer", back, pod.Port},
		{"an error about it", tooBig(syn), pod.Port},
		{"an error about no connection", tooBig(unknown), 0},
		{"the Node's probe", probe, pod.Port},
		{"a packet that the Node forwards with its own address", forwarded, 0},
		{"another port", sends(oftest.Packet{IPDst: world, Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}), 0},
		{"the same port over IPv4, which ::/0 is not about",
			sends(oftest.Packet{IPDst: addrOf("198.51.100.7"), Proto: oftest.TCP, SrcPort: 40000, DstPort: 443}), 0},
		{"Echo to the world", sends(oftest.Packet{IPDst: world, Proto: oftest.ICMPv6, ICMP: oftest.EchoV6}), 0},
		{"Echo from the world", fromHost(oftest.Packet{IPSrc: world, Proto: oftest.ICMPv6, ICMP: oftest.EchoV6}), 0},
		{"a connection from the world",
			fromHost(oftest.Packet{IPSrc: world, Proto: oftest.TCP, SrcPort: 40001, DstPort: 443}), 0},
		{"fragments from the world", fromHost(oftest.Packet{IPSrc: world, Proto: oftest.UDP, SrcPort: 40001, DstPort: 443,
			Fragment: oftest.Later}), 0},
		{"a solicitation still is", solicit, pod.Port},
	} {
		r := sw.Send(step.packet)
		have := ofp.Port(0)
		if len(r.Outputs) == 1 {
			if have = r.Outputs[0].Port; have == ofp.PortInPort {
				have = step.packet.InPort
			}
		}
		if r.Err != nil || have != step.to {
			t.Errorf("%s: %s goes %s, want port %d", step.name, step.packet, r, step.to)
		}
	}
	// The connection ends with its rule.
	c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "default", Name: "closed"}, policy.Facts{
		Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
		Egress: &policy.DirectionFacts{},
	})
	c.engine.Pass()
	c.tables.Policies.Known.Recheck(c.tables.Policies.Known.Rechecks(sw.DumpConntrack()))
	c.engine.Pass()
	if err := sw.Replace(slices.Collect(maps.Values(c.held))...); err != nil {
		t.Fatal(err)
	}
	for _, k := range []oftest.Packet{syn, back} {
		if r := sw.Send(k); r.Err != nil || len(r.Outputs) > 0 {
			t.Errorf("once its rule is gone, %s goes %s", k, r)
		}
	}
}

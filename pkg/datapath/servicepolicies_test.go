package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// servicePolicySources are the tables of a Node with policies that are applied to Services of outsideNode.
func servicePolicySources(t *testing.T) *sources {
	t.Helper()
	c := newSources(outsideNode(1))
	for _, text := range []string{
		`{metadata: {name: here}, spec: {priority: 5, appliedTo: [{service: {name: here, namespace: default}}], ingress: [
			{action: Allow, from: [{ipBlock: {cidr: 203.0.113.0/24}}]},
			{action: Reject, from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 30081}]},
			{action: Drop, enableLogging: true, logLabel: web}]}}`,
		`{metadata: {name: also}, spec: {tier: emergency, priority: 5, ingress: [{action: Drop, from: [
			{ipBlock: {cidr: 203.0.113.66/32}}], appliedTo: [{service: {name: here, namespace: default}}]}]}}`,
		`{metadata: {name: pass}, spec: {priority: 7, appliedTo: [{service: {name: local, namespace: default}}], ingress: [
			{action: Pass, from: [{ipBlock: {cidr: 203.0.113.0/24}}]}, {action: Drop}]}}`,
		`{metadata: {name: base}, spec: {tier: baseline, priority: 1,
			appliedTo: [{service: {name: local, namespace: default}}],
			ingress: [{action: Drop, from: [{ipBlock: {cidr: 203.0.113.66/32}}]}]}}`,
		`{metadata: {name: pods}, spec: {priority: 9, appliedTo: [{service: {name: there, namespace: default}}], ingress: [
			{action: Allow, from: [{podSelector: {}}]}, {action: Drop, from: [{podSelector: {}}]}]}}`,
		`{metadata: {name: vip}, spec: {priority: 9, appliedTo: [{service: {name: vip, namespace: default}}], ingress: [
			{action: Allow}]}}`,
		`{metadata: {name: rival}, spec: {priority: 8, appliedTo: [{service: {name: rival, namespace: default}}], ingress: [
			{action: Drop}]}}`,
		`{metadata: {name: gone}, spec: {priority: 9, appliedTo: [{service: {name: nothing, namespace: default}}], ingress: [
			{action: Drop}]}}`,
	} {
		var p crdv1beta1.ClusterNetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		c.policy.Policies[policy.AntreaClusterNetworkPolicy].Set(derive.ObjectOf(&p), policy.AntreaClusterFactsOf(&p))
	}
	c.engine.Pass()
	return c
}

// logged reports whether a packet was dropped with a line for the log.
func logged(r oftest.Result) bool { return strings.HasPrefix(r.Userdata, string(PolicyLog)+" ") }

// TestServicePolicies asks Services whose policies judge clients outside: the model of a switch, and a real one.
func TestServicePolicies(t *testing.T) {
	c := servicePolicySources(t)
	entries := slices.Collect(maps.Values(c.held))
	model, err := oftest.New(Program, entries...)
	if err != nil {
		t.Fatal(err)
	}
	o := dummyBridge(t)
	o.program(t, "br-int", setOf(t, c.held))
	const denied = "192.0.2.9"
	for _, row := range []struct {
		name, in, from, to string
		own                bool
		want               string
	}{
		{"allowed client", "gateway", world, ":30081", false, "to pod1: 203.0.113.7 > 10.11.0.2:8080"},
		{"the same by the load balancer", "gateway", world, "198.51.100.10:80", false,
			"to pod1: 203.0.113.7 > 10.11.0.2:8080"},
		{"denied in an earlier tier", "gateway", "203.0.113.66", ":30081", false, "dropped in External"},
		{"rejected at the node port", "gateway", denied, ":30081", false, "to the agent from External"},
		{"dropped at the load balancer, as the ports are others", "gateway", denied, "198.51.100.10:80", false,
			"dropped in External"},
		{"dropped at the external address", "gateway", "10.9.9.9", "198.51.100.11:80", false, "dropped in External"},
		{"own process", "gateway", "192.168.78.101", ":30081", true, "dropped in External"},
		{"Pod to the node port", "pod2", "10.11.0.3", "192.168.78.101:30081", false, "dropped in External"},
		{"Pod to the load balancer", "pod2", "10.11.0.3", "198.51.100.10:80", false, "dropped in External"},
		{"passed to the baseline", "gateway", world, ":30083", false, "to pod1: 203.0.113.7 > 10.11.0.2:8080"},
		{"passed, and denied there", "gateway", "203.0.113.66", ":30083", false, "dropped in External"},
		{"not passed", "gateway", denied, ":30083", false, "dropped in External"},
		{"a peer that is no address denies all", "gateway", world, ":30082", false, "dropped in External"},
		{"an external address of the Node, with the node port of a Service whose policy denies",
			"pod2", "10.11.0.3", "192.168.78.101:30089", false, "to pod1: 10.11.0.3 > 10.11.0.2:8080"},
		{"that node port", "gateway", world, ":30089", false, "dropped in External"},
		{"a Service without policies", "gateway", denied, ":30086", false,
			"back to gateway: 169.254.0.253 > 192.168.78.101:9090"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := walk{node: 1, in: row.in, from: row.from, to: row.to}
			k := oftest.Packet{
				EthSrc: gwMAC, EthDst: InClusterMAC, InPort: gatewayPort, Proto: oftest.TCP,
				IPSrc: addrOf(row.from), SrcPort: 40000,
			}
			if row.in == "gateway" {
				w.to = entryOf(t, c.tables, row.to, row.own)
			} else {
				k.InPort, k.EthSrc, k.EthDst = c.Pods[1].Port, c.Pods[1].MAC, gwMAC
			}
			to := netip.MustParseAddrPort(w.to)
			k.IPDst, k.DstPort = to.Addr(), to.Port()
			model.Forget()
			r := model.Send(k)
			switch {
			case row.want == "dropped in External" && len(r.Outputs) == 0 && (r.Dropped == "External" || logged(r)):
			case row.want == "to the agent from External" && r.Userdata == "policy-reject untranslated":
			case strings.Contains(row.want, " > ") && len(r.Outputs) == 1:
			default:
				t.Errorf("the model: %s, want %s", r, row.want)
			}
			trace := o.appctl(t, "ofproto/trace", "br-int", w.text(),
				"--ct-next", "trk,new", "--ct-next", "trk,new", "--ct-next", "trk,new")
			if have := w.outcome(t, trace); have != row.want {
				t.Errorf("%s: %s, want %s\n%s", w.text(), have, row.want, trace)
			}
			name, port := serviceAt(t, c.State, row.to)
			j, ok := c.tables.Policies.OfServices.Judge(name, addrOf(row.from), corev1.ProtocolTCP, port)
			if denied := ok && j.Action != policy.Allow; denied != strings.HasSuffix(row.want, "External") {
				t.Errorf("JudgeService of %s: %+v, %v; the switch: %s", name, j, ok, row.want)
			}
		})
	}
	var problems []string
	for _, p := range c.engine.Problems() {
		problems = append(problems, fmt.Sprint(p.Object, " ", p.Field, " ", p.Reason))
	}
	want := []string{"AntreaClusterNetworkPolicy pods spec.ingress[0].from[0] InvalidPeer",
		"AntreaClusterNetworkPolicy pods spec.ingress[1].from[0] InvalidPeer"}
	if !slices.Equal(problems, want) {
		t.Errorf("problems %q, want %q", problems, want)
	}
}

// serviceAt returns the Service that has an address, with the port that clients ask.
func serviceAt(t *testing.T, s State, to string) (derive.Object, uint16) {
	t.Helper()
	if strings.HasPrefix(to, ":") {
		to = "0.0.0.0" + to
	}
	at := netip.MustParseAddrPort(to)
	for _, vip := range []netip.AddrPort{at, netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())} {
		for _, f := range s.Frontends {
			if f.VIP == vip && f.Protocol == corev1.ProtocolTCP {
				return derive.Object{Namespace: f.Namespace, Name: f.Service}, at.Port()
			}
		}
	}
	t.Fatalf("no Service has %s", to)
	return derive.Object{}, 0
}

// TestServicePolicyRefusal has the agent answer a connection that a policy of a Service rejects. The answer comes from
// the address that the client asked.
func TestServicePolicyRefusal(t *testing.T) {
	c := servicePolicySources(t)
	model, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
	if err != nil {
		t.Fatal(err)
	}
	answer := oftest.Packet{
		IPSrc: Entries[0].Addr, SrcPort: 30081, IPDst: addrOf("192.0.2.9"), DstPort: 40000, Proto: oftest.TCP,
	}
	const syn = 2
	out, err := Reject(
		ofp.PacketIn2{Data: segment(syn, 7, 0, ""), Userdata: []byte("policy-reject untranslated")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := model.PacketOut(answer, out.Actions)
	if len(r.Outputs) != 1 || r.Outputs[0].Port != gatewayPort {
		t.Errorf("the answer goes %s", r)
	}
	// A Pod of another Node asks with its own address, without masquerading (noSNAT). The host restores the address that
	// it asked, so the answer does not go through the tunnel.
	answer.IPDst = c.RemoteNodes[0].PodCIDRs[0].Addr().Next().Next()
	if r := model.PacketOut(answer, out.Actions); len(r.Outputs) != 1 || r.Outputs[0].Port != gatewayPort {
		t.Errorf("the answer to a Pod of another Node goes %s", r)
	}
}

// TestServicePolicyFamilies has rules match clients of the version of IP of the address that they ask.
func TestServicePolicyFamilies(t *testing.T) {
	at := func(ip string) askedMatch {
		return askedMatch{addrOf(ip), []flow.Cond{flow.TCP(), flow.IPDst(host(addrOf(ip))), flow.TCPDst(80)}}
	}
	addresses := []askedAddress{{corev1.ProtocolTCP, 80, []askedMatch{at("198.51.100.10"), at("2001:db8::10")}}}
	ports := []policy.PortRange{{Protocol: corev1.ProtocolTCP, From: 80, To: 80}}
	blocks := []netip.Prefix{rangeOf("203.0.113.0/24"), rangeOf("0.0.0.0/0"), rangeOf("2001:db8:1::/48"), rangeOf("::/0")}
	const to4, to6 = "tcp,nw_dst=198.51.100.10,tp_dst=80", "tcp6,ipv6_dst=2001:db8::10,tp_dst=80"
	for _, test := range []struct {
		rule     policy.ServiceRule
		families family.Families
		want     []string
	}{
		{policy.ServiceRule{AnyPeer: true, Ports: ports}, family.Dual, []string{to4, to6}},
		{policy.ServiceRule{Blocks: blocks, Ports: ports}, family.Dual, []string{
			"tcp,nw_src=203.0.113.0/24,nw_dst=198.51.100.10,tp_dst=80", to4,
			"tcp6,ipv6_src=2001:db8:1::/48,ipv6_dst=2001:db8::10,tp_dst=80", to6}},
		{policy.ServiceRule{Blocks: blocks, AnyPort: true}, family.Dual, []string{
			"ip,nw_src=203.0.113.0/24", "ip", "ipv6,ipv6_src=2001:db8:1::/48", "ipv6"}},
		{policy.ServiceRule{Blocks: blocks, AnyPort: true}, family.IPv4, []string{"ip,nw_src=203.0.113.0/24", ""}},
		{policy.ServiceRule{AnyPeer: true, AnyPort: true}, family.Dual, []string{""}},
	} {
		matches, ok := matchesOf(test.rule, addresses, test.families, nil, len(test.want))
		var have []string
		for _, m := range matches {
			have = append(have, m.String())
		}
		if !ok || !slices.Equal(have, test.want) {
			t.Errorf("%+v with %s: %q, %v, want %q", test.rule, test.families, have, ok, test.want)
		}
		if _, ok := matchesOf(test.rule, addresses, test.families, nil, len(test.want)-1); ok {
			t.Errorf("%+v with %s has room in fewer flows", test.rule, test.families)
		}
	}
}

// TestServicePolicyBounds gives a Service more ranges than a Node has flows for.
func TestServicePolicyBounds(t *testing.T) {
	c := servicePolicySources(t)
	var ranges []policy.Range
	for i := range maxServiceRuleFlows {
		ranges = append(ranges, policy.Range{CIDR: rangeOf(fmt.Sprintf("10.%d.%d.0/32", 100+i>>8, i&0xff))})
	}
	facts := policy.Facts{Tier: "application", Priority: 1}
	none := []derive.Object{{Namespace: "default", Name: "none"}}
	large := func(rules ...policy.RuleFacts) (flows, closed int) {
		t.Helper()
		facts.Ingress = &policy.DirectionFacts{Rules: rules}
		c.policy.Policies[policy.AntreaClusterNetworkPolicy].Set(derive.Object{Name: "large"}, facts)
		c.engine.Pass()
		e := c.held[servicePolicyOwner(none[0])]
		for _, f := range e.Flows {
			if len(f.Actions) == 0 {
				closed++
			}
		}
		return len(e.Flows), closed
	}
	// The ports of the Service count: a range of clients has a flow for each of its addresses. All rules count together.
	ports := []policy.PortRange{{Protocol: "TCP", To: 65535}}
	rule := func(n int) policy.RuleFacts {
		return policy.RuleFacts{Action: policy.Allow, Ranges: ranges[:n], Ports: ports, AppliedServices: none}
	}
	one, _ := large(rule(10))
	two, _ := large(rule(20))
	each := (two - one) / 10 // flows of a range
	if each < 2 {
		t.Fatalf("%d and %d flows", one, two)
	}
	half := maxServiceRuleFlows/each/2 + 1
	first, _ := large(rule(half))
	drop := rule(half)
	drop.Action = policy.Drop
	if n, closed := large(rule(half), drop); n > maxServiceRuleFlows || n != first+1 || closed != 1 {
		t.Errorf("%d flows, of which %d drop, want %d and 1: the second rule is beyond the bound", n, closed, first+1)
	}
	// Its clients are others, and it is closed.
	judges := c.tables.Policies.OfServices
	if j, ok := judges.Judge(none[0], addrOf(world), corev1.ProtocolTCP, 30085); !ok || !j.Beyond ||
		j.Action != policy.Drop || j.Key.Index != 1 {
		t.Errorf("another client is judged by %+v, %v, want the second rule", j, ok)
	}
	if j, ok := judges.Judge(none[0], ranges[0].CIDR.Addr(), corev1.ProtocolTCP, 30085); !ok || j.Beyond ||
		j.Action != policy.Allow {
		t.Errorf("a client of the first rule is judged by %+v, %v", j, ok)
	}
	for _, action := range []policy.Action{policy.Allow, policy.Pass} {
		facts.Ingress = &policy.DirectionFacts{Rules: []policy.RuleFacts{{
			Action: action, Ranges: ranges, AnyPort: true,
			AppliedServices: []derive.Object{{Namespace: "default", Name: "none"}},
		}}}
		c.policy.Policies[policy.AntreaClusterNetworkPolicy].Set(derive.Object{Name: "large"}, facts)
		c.engine.Pass()
		e := c.held[servicePolicyOwner(derive.Object{Namespace: "default", Name: "none"})]
		closed := 0 // flows that drop
		for _, f := range e.Flows {
			if len(f.Actions) == 0 {
				closed++
			}
		}
		j, ok := judges.Judge(none[0], ranges[0].CIDR.Addr(), corev1.ProtocolTCP, 30085)
		if ok != (action == policy.Pass) || ok && j.Action != policy.Drop {
			t.Errorf("%s beyond the bound: judged by %+v, %v", action, j, ok)
		}
		if want := map[policy.Action]int{policy.Allow: 0, policy.Pass: 1}[action]; closed != want || len(e.Flows) > 10 {
			t.Errorf("%s: %d flows, of which %d drop, want %d", action, len(e.Flows), closed, want)
		}
		if !slices.ContainsFunc(c.engine.Problems(),
			func(p problem.Problem) bool { return p.Name == "large" && p.Reason == policy.ReasonTooLarge }) {
			t.Errorf("%s: problems %v", action, c.engine.Problems())
		}
	}
}

package datapath

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

var update = flag.Bool("update", false, "write testdata/*.flows anew")

// TestGolden compares the flows of each kind of owner with testdata/*.flows, which reviewers read. Open vSwitch's own
// parser reads them too.
func TestGolden(t *testing.T) {
	regular, gateway := mustPlan(t, onNode(1)), mustPlan(t, onNode(2))
	slow := onNode(1)
	slow.Pods[0].Limit = Limit{Bits: 20_000_000, Burst: 512 << 10}
	limited := mustPlan(t, slow)
	portly := onNode(1)
	portly.Pods[0].HostPorts = true
	mapped := mustPlan(t, portly)
	direct := mustPlan(t, directNode(1, false))
	ruled, ruledDual := namesAndLogs(onNode(1)), namesAndLogs(dualNode(1))
	stretched := stretchedSources("west", 1)
	stretched.rules(about(policy.Drop, "app=a"))
	stretched.engine.Pass()
	servers := stretchedSources("east", 1)
	servers.toServers(about(policy.Reject, "app=server"))
	servers.publish(map[netip.Addr]string{nearPod: "app=server", farPod: "app=c"})
	servers.engine.Pass()
	unknown := unknownSources()
	unknown.judge(policy.Ingress,
		policy.RuleFacts{Action: policy.Drop, Peers: []policy.Selector{{Pods: "zone=quarantine"}}, AnyPort: true})
	unknown.engine.Pass()
	kept := reaching()
	transit := map[string]map[flow.Owner]flow.Entries{"east1": mustPlan(t, kept.state(t, "east", 1)),
		"east3": mustPlan(t, kept.state(t, "east", 3))}
	fromOutside := mustPlan(t, outsideNode(1))
	fromOutside[NodeOwner("outside")] = flow.Entries{Flows: outsideBase(outsideNode(1).Node)}
	fromOutside6 := mustPlan(t, outsideNode6(1, family.Dual))
	fromOutside6[NodeOwner("outside")] = flow.Entries{Flows: outsideBase(outsideNode6(1, family.Dual).Node)}
	portlyDual := dualNode(1)
	portlyDual.Pods[0].HostPorts = true
	mappedDual := mustPlan(t, portlyDual)
	dual, six := mustPlan(t, dualNode(1)), mustPlan(t, sixNode(1))
	gatewayDual := mustPlan(t, onNode(2).inSix(family.Dual))
	outsideOwners := []flow.Owner{NodeOwner("outside")}
	for _, name := range []string{"here", "there", "local", "elsewhere", "none", "limited", "nobody", "query"} {
		outsideOwners = append(outsideOwners, ServiceOwner("default", name))
	}
	servicePolicies := servicePolicySources(t)
	tenantStates := tenantNodes(placesOfTwo())
	serviceOf(tenantStates, "a", "own", "10.97.0.52:80", "10.11.1.4:8080")
	tenants := mustPlan(t, tenantStates["east1"])
	policiesOf := func(held map[flow.Owner]flow.Entries) []flow.Owner {
		return slices.DeleteFunc(slices.Collect(maps.Keys(held)), func(o flow.Owner) bool { return o.Kind != KindPolicy })
	}
	policies := func(s *sources) []flow.Owner { return policiesOf(s.held) }
	for _, test := range []struct {
		name    string
		entries map[flow.Owner]flow.Entries
		owners  []flow.Owner
	}{
		{"node", regular, []flow.Owner{NodeOwner("node-1")}},
		{"node-sctp", map[flow.Owner]flow.Entries{{}: {Flows: sctpByPort(Node{SCTPByPort: true})}}, []flow.Owner{{}}},
		{"remote-node", regular, []flow.Owner{NodeOwner("node-2")}},
		{"remote-node-direct", direct, []flow.Owner{NodeOwner("node-2")}},
		{"pod", regular, []flow.Owner{PodOwner("pod1-a1b2c3")}},
		{"pod-limited", limited, []flow.Owner{PodOwner("pod1-a1b2c3")}},
		{"pod-hostports", mapped, []flow.Owner{PodOwner("pod1-a1b2c3")}},
		{"service", regular, []flow.Owner{ServiceOwner("default", "web")}},
		{"service-empty", regular, []flow.Owner{ServiceOwner("default", "empty")}},
		{"service-udp", regular, []flow.Owner{ServiceOwner("default", "dns")}},
		{"multicluster-regular", regular, []flow.Owner{PeerOwner("north"), PeerOwner("west")}},
		{"export", gateway, []flow.Owner{ExportOwner("default", "web")}},
		{"policy-names-logs", ruled, policiesOf(ruled)},
		{"policy-dual", ruledDual, policiesOf(ruledDual)},
		{"multicluster-gateway", gateway, []flow.Owner{GatewayOwner(), PeerOwner("north"), PeerOwner("west")}},
		{"multicluster-gateway-dual", gatewayDual,
			[]flow.Owner{GatewayOwner(), PeerOwner("west"), ExportOwner("default", "web")}},
		{"transit-regular", transit["east1"], []flow.Owner{PeerOwner("west"), NodeOwner("node-2")}},
		{"transit-gateway", transit["east3"], []flow.Owner{PeerOwner("west"), NodeOwner("node-2")}},
		{"stretched", stretched.held, append(policies(stretched), PodOwner("pod1-a1b2c3"), PeerOwner("east"))},
		{"servers", servers.held, policies(servers)},
		{"unknown-pods", unknown.held, policies(unknown)},
		{"outside", fromOutside, outsideOwners},
		{"outside-dual", fromOutside6, outsideOwners},
		{"pod-hostports-dual", mappedDual, []flow.Owner{PodOwner("pod1-a1b2c3")}},
		{"service-policies", servicePolicies.held, policies(servicePolicies)},
		{"node-ipv6", six, []flow.Owner{NodeOwner("node-1")}},
		{"remote-node-dual", dual, []flow.Owner{NodeOwner("node-2")}},
		{"pod-dual", dual, []flow.Owner{PodOwner("pod1-a1b2c3")}},
		{"tenants", tenants, []flow.Owner{{Kind: KindTenant, Name: "base"}, {Kind: KindTenant, Name: "node node-2"},
			PodOwner("pod3"), ServiceOwner("a", "own")}},
		{"service-dual", dual, []flow.Owner{ServiceOwner("default", "web")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var e flow.Entries
			for _, o := range test.owners {
				e.Flows = append(e.Flows, test.entries[o].Flows...)
				e.Groups = append(e.Groups, test.entries[o].Groups...)
				e.Meters = append(e.Meters, test.entries[o].Meters...)
			}
			have := text(t, e)
			file := filepath.Join("testdata", test.name+".flows")
			if *update {
				if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; run go test ./pkg/datapath -run TestGolden -update", err)
			}
			if diff := cmp.Diff(string(want), have); diff != "" {
				t.Errorf("%s (-want +have):\n%s", file, diff)
			}
			parse(t, have)
		})
	}
}

// TestFamilies compares a Node with both versions of IP with Nodes that have one of them. Each flow of IPv4 alone is a
// flow of both, and each flow of IPv6 alone, and there are no others. So a Node without IPv6 pays nothing for it.
func TestFamilies(t *testing.T) {
	single := func(s State) *flow.Set { // with the IPv4 peers and exports out of both
		s.Peering, s.Exported, s.Frontends = onNode(1).Peering, onNode(1).Exported, nil
		return setOf(t, mustPlan(t, s))
	}
	four, six := single(outsideNode(1)), single(outsideNode6(1, family.IPv6))
	s := outsideNode6(1, family.Dual)
	s.Frontends = nil
	want := flow.NewSet()
	add := func(set *flow.Set) {
		for f := range set.Flows() {
			if err := want.Add(f); err != nil {
				t.Fatal(err)
			}
		}
		for m := range set.Meters() {
			if err := want.AddMeter(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(four)
	add(six)
	if change := flow.Diff(setOf(t, mustPlan(t, s)), want); !change.Empty() {
		t.Errorf("a Node with both versions does not have the flows of Nodes with one:\n%s", change)
	}
	for f := range four.Flows() {
		if strings.Contains(f.String(), "ipv6") || strings.Contains(f.String(), "icmp6") {
			t.Errorf("a Node without IPv6 has %s", f)
		}
	}
}

// namesAndLogs are the flows of a Node whose Pod has rules that log, and one with names.
func namesAndLogs(s State) map[flow.Owner]flow.Entries {
	c := newSources(s)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod1", Labels: map[string]string{"app": "a"}}}
	pod.Spec.NodeName, pod.Spec.Containers, pod.Status.PodIPs = "node-1", make([]corev1.Container, 1),
		[]corev1.PodIP{{IP: "10.11.0.2"}}
	c.policy.Pods.Set(derive.ObjectOf(pod), policy.PodFactsOf(pod))
	c.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	c.policy.Tiers.Set(derive.Object{Name: "application"}, 251)
	c.policy.Learned.Set("www.example.com",
		[]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")})
	c.policy.Policies[policy.AntreaClusterNetworkPolicy].Set(derive.Object{Name: "names"}, policy.Facts{
		Tier: "application", Priority: 5, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
		Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{
			{Action: policy.Allow, Names: []string{"*.example.com"},
				Ports: []policy.PortRange{{Protocol: "TCP", From: 443, To: 443}}, Log: true, Name: "web", LogLabel: "out"},
			{Action: policy.Reject, AnyPeer: true, Ports: []policy.PortRange{{Protocol: "TCP", To: 65535}}, Log: true},
			{Action: policy.Drop, AnyPeer: true, AnyPort: true, Log: true},
		}},
	})
	if s.Node.Families.Has6() {
		c.resolvers.Set(Self, []netip.Prefix{rangeOf("10.11.0.2/32"), rangeOf("fd11::2/128")})
		c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "default", Name: "ranges"}, policy.Facts{
			Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
			Ingress: &policy.DirectionFacts{Rules: []policy.RuleFacts{
				{Action: policy.Allow, Ranges: []policy.Range{{CIDR: rangeOf("0.0.0.0/0")}}, AnyPort: true},
				{Action: policy.Allow, Ranges: []policy.Range{{CIDR: rangeOf("fd00::/8"),
					Except: []netip.Prefix{rangeOf("fd80::/9")}}}, ICMP: []policy.ICMP{{Type: 128, Code: policy.Any}},
					Ports: []policy.PortRange{{Protocol: "UDP", To: 65535}}},
			}},
		})
		c.tables.Policies.Known.Recheck([]Recheck{{Why: RuleGone, Rule: 77}, {Why: NotJudged, Addr: addrOf("fd11::2")}})
	}
	c.engine.Pass()
	return c.held
}

// text lists entries, table by table with its name, then groups and meters as comments. Meters of shares are left out.
func text(t *testing.T, e flow.Entries) string {
	t.Helper()
	set := setOf(t, map[flow.Owner]flow.Entries{{}: e})
	var b strings.Builder
	table := ""
	for f := range set.Flows() {
		if name := Program.Name(f.Table); name != table {
			table = name
			fmt.Fprintf(&b, "# %s\n", table)
		}
		fmt.Fprintln(&b, f)
	}
	for g := range set.Groups() {
		fmt.Fprintf(&b, "# group\n# %s\n", g)
	}
	for _, m := range e.Meters {
		if m.ID >= firstPodMeter {
			fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(m.String(), "\n", " "))
		}
	}
	return b.String()
}

// parse has ovs-ofctl read flows; it must agree about each of them.
func parse(t *testing.T, flows string) {
	t.Helper()
	cmd := exec.Command("ovs-ofctl", "-O", "OpenFlow15", "parse-flows", "-")
	cmd.Stdin = strings.NewReader(flows)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ovs-ofctl parse-flows: %v\n%s", err, out)
	}
}

// TestGroups has ovs-ofctl's parser and the switch's rules read every group.
func TestGroups(t *testing.T) {
	for g := range setOf(t, mustPlan(t, onNode(1))).Groups() {
		if err := g.Err(); err != nil {
			t.Error(err)
		}
	}
}

// TestOrder plans the same state in many orders: the result depends on the state alone.
func TestOrder(t *testing.T) {
	want := setOf(t, mustPlan(t, onNode(2)))
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := onNode(2)
		r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
		r.Shuffle(len(s.Frontends), func(i, j int) { s.Frontends[i], s.Frontends[j] = s.Frontends[j], s.Frontends[i] })
		r.Shuffle(len(s.RemoteNodes),
			func(i, j int) { s.RemoteNodes[i], s.RemoteNodes[j] = s.RemoteNodes[j], s.RemoteNodes[i] })
		peers := s.Peering.Peers
		r.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
		if change := flow.Diff(want, setOf(t, mustPlan(t, s))); !change.Empty() {
			t.Fatalf("seed %d: another order gives other flows:\n%s", seed, change)
		}
	}
}

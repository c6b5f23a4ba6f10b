package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// This is the ClusterSet of these tests. Clients are pod1 (app=a) and pod2 (app=b) of the Nodes of east. Servers are
// pod1 (app=server) of the Nodes of west. Server near is behind its Gateway's 10.96.0.20. Server far is on the other
// Node, behind 10.96.0.23. East has them as 10.97.0.14 and 10.97.0.18.
const (
	nearServer = "10.97.0.14:80"
	farServer  = "10.97.0.18:80"
)

// numbers that the cluster set gives labels.
var numbers = map[string]uint32{"app=a": 11, "app=b": 12, "app=server": 13, "app=c": 14}

func stretchedState(cluster string, n int) State {
	var s State
	if cluster == "east" {
		s = onNode(n)
		s.Frontends = append(s.Frontends, frontend("antrea-mc-far", corev1.ProtocolTCP, farServer, "10.96.0.23:80"))
	} else {
		s = westNode(n)
		s.Frontends = append(s.Frontends, frontend("far", corev1.ProtocolTCP, "10.96.0.23:80", "10.10.1.2:8080"),
			frontend("near-udp", corev1.ProtocolUDP, "10.96.0.24:53", "10.10.0.2:53"),
			frontend("far-udp", corev1.ProtocolUDP, "10.96.0.25:53", "10.10.1.2:53"))
		s.Exported[derive.Object{Namespace: "default", Name: "near-udp"}],
			s.Exported[derive.Object{Namespace: "default", Name: "far-udp"}] = true, true
		s.Frontends[0].Endpoints = s.Frontends[0].Endpoints[:1]
		s.Exported[derive.Object{Namespace: "default", Name: "far"}] = true
		s.Pods = append(s.Pods, onNode(1).Pods[1])
		s.Pods[1].IPs = []netip.Addr{s.Pods[0].IPs[0].Next()}
	}
	s.Node.Tunnels.Stretched = true
	return s
}

func stretchedSources(cluster string, n int) *sources {
	s := newSources(stretchedState(cluster, n))
	s.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	for label, id := range numbers {
		s.number(label, id)
	}
	apps := []string{"a", "b"}
	if cluster == "west" {
		apps = []string{"server", "a"} // its pod2 has the labels of east's clients
	}
	for i, app := range apps {
		s.relabel(fmt.Sprint("pod", i+1), "app="+app)
	}
	s.engine.Pass()
	return s
}

// number gives a label's identity its number in the ClusterSet; with 0 it has no number.
func (c *sources) number(label string, id uint32) {
	key := derive.Object{Name: label}
	if id == 0 {
		c.policy.LabelIdentities.Delete(key)
		return
	}
	c.policy.LabelIdentities.Set(key, policy.LabelIdentity{Label: defaultIdentity(label), ID: id})
}

func defaultIdentity(label string) policy.Identity {
	return policy.IdentityOf(corev1.LabelMetadataName+"=default", label)
}

// relabel gives a Pod of the Node its labels.
func (c *sources) relabel(name, label string) {
	for _, pod := range c.Pods {
		if pod.Name == name {
			c.policy.Pods.Set(derive.Object{Namespace: "default", Name: name},
				policy.PodFacts{Labels: label, Node: c.Node.Name, IPs: pod.IPs})
		}
	}
}

// rules are applied to the servers: all of them one policy of an admin tier.
func (c *sources) rules(list ...policy.RuleFacts) {
	c.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "stretched"}: {
		Stage: policy.Admin, Tier: "application", Priority: 5,
		AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
		Ingress:   &policy.DirectionFacts{Rules: list},
	}})
}

// about is a rule about Pods of a label in all clusters.
func about(action policy.Action, label string) policy.RuleFacts {
	s := []policy.Selector{{Namespace: "default", Pods: label}}
	return policy.RuleFacts{Action: action, AnyPort: true, Peers: s, ClusterSet: s}
}

func everybody(action policy.Action) policy.RuleFacts {
	return policy.RuleFacts{Action: action, AnyPort: true, AnyPeer: true}
}

// stretchedCable joins four Nodes in memory.
func stretchedCable(t *testing.T) (*cable, map[string]*sources) {
	c := &cable{t: t, nodes: map[string]*oftest.Switch{}, states: map[string]State{}, ends: ends}
	all := map[string]*sources{}
	for _, cluster := range []string{"east", "west"} {
		for n := range 2 {
			name := fmt.Sprint(cluster, n+1)
			all[name] = stretchedSources(cluster, n+1)
			c.states[name] = all[name].State
			node, err := oftest.New(Program)
			if err != nil {
				t.Fatal(err)
			}
			c.nodes[name] = node
		}
	}
	return c, all
}

// load gives the switches the flows of now.
func (c *cable) load(all map[string]*sources) {
	c.t.Helper()
	for name, s := range all {
		s.engine.Pass()
		var list []flow.Entries
		for _, e := range s.held {
			list = append(list, e)
		}
		if err := c.nodes[name].Replace(list...); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestStretched checks that rules of a server's cluster distinguish clients of another cluster by their labels, on the
// Gateway and behind it.
func TestStretched(t *testing.T) {
	const a1, b1, a2 = "east1 pod1", "east1 pod2", "east2 pod1"
	near, far := "west1 pod1", "west1 west2 pod1"
	for _, test := range []struct {
		name  string
		rules []policy.RuleFacts
		edit  func(all map[string]*sources)
		from  string
		want  string // near; then "far, " where that differs
	}{
		{name: "a client that a rule allows", rules: []policy.RuleFacts{about(policy.Allow, "app=a"), everybody(policy.Drop)},
			from: a1, want: "east1 east2 ok"},
		{name: "one on the Gateway", rules: []policy.RuleFacts{about(policy.Allow, "app=a"), everybody(policy.Drop)},
			from: a2, want: "east2 ok"},
		{name: "a client of other labels", rules: []policy.RuleFacts{about(policy.Allow, "app=a"), everybody(policy.Drop)},
			from: b1, want: "east1 east2 IngressAdmin"},
		{name: "a client that a rule drops", rules: []policy.RuleFacts{about(policy.Drop, "app=a")}, from: a1,
			want: "east1 east2 IngressAdmin"},
		{name: "one beside it", rules: []policy.RuleFacts{about(policy.Drop, "app=a")}, from: b1, want: "east1 east2 ok"},
		{name: "scope Cluster",
			rules: []policy.RuleFacts{{Action: policy.Drop, AnyPort: true, Peers: about(0, "app=a").Peers}}, from: a1,
			want: "east1 east2 ok"},
		{name: "a host", rules: []policy.RuleFacts{about(policy.Allow, "app=a"), everybody(policy.Drop)}, from: "east1 host",
			want: "east1 east2 IngressAdmin"},
		{name: "a host that no rule denies", rules: []policy.RuleFacts{about(policy.Drop, "app=a")}, from: "east1 host",
			want: "east1 east2 ok"},
		{name: "a number that this Node gives a peer of its own",
			rules: []policy.RuleFacts{{Action: policy.Allow, AnyPort: true, Peers: about(0, "app=a").Peers},
				everybody(policy.Drop)},
			edit: func(all map[string]*sources) {
				own, _ := all["west1"].policy.Numbers.Get(defaultIdentity("app=a"))
				for _, s := range all {
					s.number("app=a", own)
				}
			}, from: a1, want: "east1 east2 IngressAdmin"},
		{name: "no number yet, a rule that denies others", rules: []policy.RuleFacts{about(policy.Drop, "app=b")},
			edit: func(all map[string]*sources) { all["east1"].number("app=a", 0) }, from: a1, want: "east1 east2 Ingress"},
		{name: "no number yet, a rule that allows all",
			rules: []policy.RuleFacts{everybody(policy.Allow), about(policy.Drop, "app=b")},
			edit:  func(all map[string]*sources) { all["east1"].number("app=a", 0) }, from: a1, want: "east1 east2 Ingress"},
		{name: "no number yet, no rule about other clusters",
			rules: []policy.RuleFacts{{Action: policy.Drop, AnyPort: true, Peers: about(0, "app=b").Peers}},
			edit:  func(all map[string]*sources) { all["east1"].number("app=a", 0) }, from: a1, want: "east1 east2 ok"},
		{name: "labels not known yet", rules: []policy.RuleFacts{about(policy.Allow, "app=a")},
			edit: func(all map[string]*sources) {
				all["east1"].policy.Pods.Delete(derive.Object{Namespace: "default", Name: "pod1"})
			}, from: a1, want: "east1 east2 Ingress"},
		{name: "other labels than before", rules: []policy.RuleFacts{about(policy.Allow, "app=c"), everybody(policy.Drop)},
			edit: func(all map[string]*sources) { all["east1"].relabel("pod1", "app=c") }, from: a1, want: "east1 east2 ok"},
		{name: "a client's cluster that does not take part", rules: []policy.RuleFacts{about(policy.Drop, "app=a")},
			edit: func(all map[string]*sources) {
				for _, name := range []string{"east1", "east2"} {
					n := all[name].Node
					n.Tunnels.Stretched = false
					all[name].node.Set(Self, n)
				}
			}, from: a1, want: "east1 east2 ok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, all := stretchedCable(t)
			for _, name := range []string{"west1", "west2"} {
				all[name].rules(test.rules...)
			}
			if test.edit != nil {
				test.edit(all)
			}
			c.load(all)
			for to, end := range map[string]string{nearServer: near, farServer: far} {
				way, last, _ := cutLast(test.want)
				want := way + " " + end
				if last != "ok" {
					node, _, _ := cutLast(end)
					want = way + " " + node + " dropped in " + last
				}
				request := c.request(test.from, to, oftest.TCP)
				for range 2 {
					if w := c.send(test.from, request); strings.Join(w.places, " ") != want {
						t.Errorf("to %s: %s, want %s", to, w, want)
					} else if last == "ok" {
						node := "west1"
						if end == far {
							node = "west2"
						}
						client, port, _ := strings.Cut(test.from, " ")
						if back := c.send(node+" pod1", w.packet.Reply()); !strings.HasSuffix(strings.Join(back.places, " "),
							client+" "+port) {
							t.Errorf("the reply goes %s", back)
						}
					}
				}
			}
		})
	}
}

// TestStretchedKeyLost lets the client's Node send no number for a moment, as a Node of Antrea does when its agent
// starts again. Open connections continue, both ways, and are unchanged when the number is back. No connection opens
// until then.
func TestStretchedKeyLost(t *testing.T) {
	c, all := stretchedCable(t)
	for _, name := range []string{"west1", "west2"} {
		all[name].rules(about(policy.Allow, "app=a"), everybody(policy.Drop))
	}
	c.load(all)
	const client = "east1 pod1"
	ends := map[string]string{nearServer: "west1 pod1", farServer: "west2 pod1"}
	requests := map[string]oftest.Packet{}
	exchange := func(when string) {
		t.Helper()
		for to, end := range ends {
			w := c.send(client, requests[to])
			if !strings.HasSuffix(strings.Join(w.places, " "), end) {
				t.Errorf("%s, to %s: %s, want it at %s", when, to, w, end)
				continue
			}
			if back := c.send(end, w.packet.Reply()); !strings.HasSuffix(strings.Join(back.places, " "), client) {
				t.Errorf("%s, from %s: the reply goes %s", when, to, back)
			}
		}
	}
	for to := range ends {
		requests[to] = c.request(client, to, oftest.TCP)
	}
	exchange("the client has its number")
	number := func(sent bool) {
		for _, name := range []string{"east1", "east2"} {
			n := all[name].Node
			n.Tunnels.Stretched = sent
			all[name].node.Set(Self, n)
		}
		c.load(all)
	}
	number(false)
	exchange("the number is lost")
	for to := range ends {
		p := c.request(client, to, oftest.TCP)
		p.SrcPort++
		if w := c.send(client, p); !strings.HasSuffix(strings.Join(w.places, " "), "dropped in IngressAdmin") {
			t.Errorf("a new connection without a number, to %s: %s", to, w)
		}
	}
	number(true)
	exchange("the number is back")
}

func cutLast(text string) (before, last string, ok bool) {
	i := strings.LastIndex(text, " ")
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+1:], true
}

// TestStretchedKeys checks that the tunnel's key is the client's number on the way to another cluster, and that no
// other packet has a key. Packets between Nodes of a cluster, and replies, share their megaflows as without.
func TestStretchedKeys(t *testing.T) {
	c, all := stretchedCable(t)
	c.load(all)
	for _, test := range []struct {
		from, to string
		want     []uint64 // of each tunnel
	}{
		{"east1 pod1", farServer, []uint64{11, 11, 11}},
		{"east2 pod2", nearServer, []uint64{12}},
		{"east1 host", nearServer, []uint64{0, 0}},
		{"east1 pod1", "10.11.1.3:80", []uint64{0}},
	} {
		there, w := c.keys(test.from, c.request(test.from, test.to, oftest.TCP))
		if fmt.Sprint(there) != fmt.Sprint(test.want) {
			t.Errorf("%s to %s: keys %v, want %v", test.from, test.to, there, test.want)
		}
		n := len(w.places)
		back, _ := c.keys(w.places[n-2]+" "+w.places[n-1], w.packet.Reply())
		for _, key := range back {
			if key != 0 {
				t.Errorf("%s to %s: the reply has keys %v", test.from, test.to, back)
			}
		}
	}
	all["east1"].relabel("pod1", "app=new")
	c.load(all)
	if there, _ := c.keys("east1 pod1", c.request("east1 pod1", farServer, oftest.TCP)); fmt.Sprint(
		there) != fmt.Sprint([]uint64{policy.UnknownClusterSet, policy.UnknownClusterSet, policy.UnknownClusterSet}) {
		t.Errorf("a Pod whose labels have no number sends keys %v", there)
	}
}

// keys sends a packet and returns the key of each tunnel on its way.
func (c *cable) keys(from string, p oftest.Packet) (keys []uint64, w travel) {
	c.t.Helper()
	c.tunnels = nil
	w = c.send(from, p)
	for _, p := range c.tunnels {
		keys = append(keys, p.TunID)
	}
	return keys, w
}

// TestStretchedRestart moves the flows of a Pod from one number to the next at once. A restart makes the same flows.
func TestStretchedRestart(t *testing.T) {
	s := stretchedSources("east", 1)
	owner := PodOwner("pod1-a1b2c3")
	text := func() string { return fmt.Sprint(s.held[owner].Flows[1]) }
	var seen []string
	s.tables.Watch(func(o flow.Owner, entries func() flow.Entries) {
		if o == owner {
			seen = append(seen, fmt.Sprint(entries().Flows[1]))
		}
	})
	before := text()
	if !strings.Contains(before, "set_field:0xb/0xffffff->reg6") {
		t.Errorf("the Pod sends with %s", before)
	}
	for _, f := range []func(){
		func() { s.number("app=c", 99) }, // a number of other Pods
		func() { s.relabel("pod2", "app=c") },
		func() { s.number("app=b", 0) },
	} {
		f()
		s.engine.Pass()
	}
	if len(seen) > 0 {
		t.Errorf("the Pod's flows became %v, and nothing of it has changed", seen)
	}
	s.relabel("pod1", "app=c")
	s.engine.Pass()
	if len(seen) != 1 || !strings.Contains(seen[0], "set_field:0x63/0xffffff->reg6") {
		t.Errorf("with other labels the Pod's flows became %v", seen)
	}
	fresh := newSources(s.State)
	fresh.policy.Pods.Replace(rowsOf(s.policy.Pods))
	fresh.policy.Namespaces.Replace(rowsOf(s.policy.Namespaces))
	fresh.policy.LabelIdentities.Replace(rowsOf(s.policy.LabelIdentities))
	var made []string
	fresh.tables.Watch(func(o flow.Owner, entries func() flow.Entries) {
		if o == owner {
			made = append(made, fmt.Sprint(entries().Flows[1]))
		}
	})
	fresh.engine.Pass()
	if len(made) != 1 || made[0] != seen[0] {
		t.Errorf("a restart makes %v, want %v", made, seen)
	}
}

// TestStretchedTraffic sends real connections from two Nodes of east to two of west. It covers Drop, Reject, a client
// that gets other labels under an open connection, a deleted rule, and a client without a number.
func TestStretchedTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	node := func(cluster string, n int, address, services string) *packetNode {
		s := stretchedSources(cluster, n)
		return &packetNode{realNode: newNode(t, underlay, s.State, fmt.Sprint(cluster, n), addrOf(address), services),
			sources: s}
	}
	east1, east2 := node("east", 1, eastOne.String(), "10.97.0.0/16"), node("east", 2, eastTwo.String(), "10.97.0.0/16")
	west1, west2 := node("west", 1, westGW.String(), "10.96.0.0/16"), node("west", 2, "192.168.77.102", "10.96.0.0/16")
	all := []*packetNode{east1, east2, west1, west2}
	change := func() {
		var done sync.WaitGroup
		for _, n := range all {
			done.Go(func() { n.change(t) })
		}
		done.Wait()
	}
	rules := func(list ...policy.RuleFacts) {
		west1.rules(list...)
		west2.rules(list...)
		change()
	}
	for _, n := range all {
		n.answer(t)
	}
	change()
	west1.realNode.pods[0].serve(t, "tcp", ":8080", "near")
	west2.realNode.pods[0].serve(t, "tcp", ":8080", "far")
	clients := map[string]namespace{"a": east1.realNode.pods[0], "b": east1.realNode.pods[1],
		"a on the Gateway": east2.realNode.pods[0], "b on the Gateway": east2.realNode.pods[1]}
	servers := []string{nearServer, farServer}
	for name, from := range clients {
		for _, to := range servers {
			eventually(t, name+" is answered", func() error { _, err := from.askWithin(silence(), "tcp", to); return err })
		}
	}
	for _, action := range []policy.Action{policy.Drop, policy.Reject} {
		rules(about(action, "app=a"))
		var all sync.WaitGroup
		for name, from := range clients {
			for _, to := range servers {
				all.Go(func() {
					limit := replyTimeout()
					if action == policy.Drop && !strings.HasPrefix(name, "b") {
						limit = silence()
					}
					_, err := from.askWithin(limit, "tcp", to)
					switch {
					case strings.HasPrefix(name, "b"):
						if err != nil {
							t.Errorf("%s: %s to %s: %v", action, name, to, err)
						}
					case err == nil:
						t.Errorf("%s: %s to %s is answered", action, name, to)
					case action == policy.Reject && !errors.Is(err, syscall.ECONNREFUSED):
						t.Errorf("%s: %s to %s: %v, want connection refused", action, name, to, err)
					}
				})
			}
		}
		all.Wait()
	}
	for _, to := range []string{"10.96.0.24:53", "10.96.0.25:53"} { // rejected by ICMP, and not answered
		for name, want := range map[string]error{"a": syscall.EHOSTUNREACH, "a on the Gateway": syscall.EHOSTUNREACH,
			"b": syscall.ECONNREFUSED} {
			if _, err := clients[name].ask("udp", to); !errors.Is(err, want) {
				t.Errorf("Reject: %s to %s by UDP: %v, want %v", name, to, err, want)
			}
		}
	}

	// Connections that are open while the client gets other labels, and the rules change.
	rules(about(policy.Allow, "app=a"), about(policy.Allow, "app=c"), everybody(policy.Drop))
	var talks []talk
	for _, to := range servers {
		talks = append(talks, open(t, east1.realNode.pods[0], to), open(t, east2.realNode.pods[0], to))
	}
	expect := func(why string, allowed ...bool) {
		t.Helper()
		var all sync.WaitGroup
		for i, c := range talks {
			check := c.mustNot
			if allowed[i%2] {
				check = c.mustPass
			}
			all.Go(func() { check(t, fmt.Sprint(why, ", connection ", i)) })
		}
		all.Wait()
	}
	east1.relabel("pod1", "app=c")
	change()
	expect("the client has labels that a rule allows, too", true, true)
	east1.relabel("pod1", "app=new")
	change()
	expect("the client's new labels have no number yet", true, true)
	if _, err := east1.realNode.pods[0].askWithin(silence(), "tcp", nearServer); err == nil {
		t.Error("a client without a number opens a connection")
	}
	for _, n := range all {
		n.number("app=new", 77)
	}
	change()
	expect("its new labels are allowed by no rule", false, true)
	rules(about(policy.Allow, "app=c"), everybody(policy.Drop))
	expect("its rule is gone", false, false)
}

// TestStretchedToServices applies an egress rule about a Service of the ClusterSet.
func TestStretchedToServices(t *testing.T) {
	c, all := stretchedCable(t)
	for _, name := range []string{"east1", "east2"} {
		all[name].policy.Policies[policy.AntreaNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Namespace: "default",
			Name: "no-nginx"}: {
			Stage: policy.Admin, Tier: "application", Priority: 5,
			AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
			Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{{
				Action: policy.Drop, AnyPort: true,
				Services: []policy.ServicePeer{{Object: derive.Object{Namespace: "default", Name: "nginx"}, ClusterSet: true}},
			}}},
		}})
	}
	c.load(all)
	for _, test := range []struct{ from, to, want string }{
		{"east1 pod1", nearServer, "east1 dropped in EgressAdmin"},
		{"east2 pod1", nearServer, "east2 dropped in EgressAdmin"},
		{"east1 pod1", farServer, "east1 east2 west1 west2 pod1"},
		{"east1 pod2", nearServer, "east1 east2 west1 pod1"},
	} {
		if w := c.send(test.from, c.request(test.from, test.to, oftest.TCP)); strings.Join(w.places, " ") != test.want {
			t.Errorf("%s to %s: %s, want %s", test.from, test.to, w, test.want)
		}
	}
}

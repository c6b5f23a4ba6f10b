package datapath

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// arrival is two Nodes: the first one has the server (app=server), the second one the new Pods. Each has its own view
// of the cluster's Pods.
type arrival struct {
	t              *testing.T
	sender, server *sources
	from, to       *oftest.Switch
	port           uint16 // of the last client
}

func newArrival(t *testing.T) *arrival {
	t.Helper()
	a := &arrival{t: t, port: 1024}
	for n, side := range []**sources{&a.server, &a.sender} {
		c := newSources(onNode(n + 1))
		c.policy.Namespaces.Set(derive.Object{Name: "default"}, corev1.LabelMetadataName+"=default")
		for i, name := range []string{"node-1", "node-2"} {
			o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			o.Spec.PodCIDRs = []string{fmt.Sprintf("10.11.%d.0/24", i)}
			c.policy.Nodes.Set(derive.ObjectOf(o), policy.NodeFactsOf(o))
		}
		*side = c
	}
	a.server.relabel("pod1", "app=server")
	for _, sw := range []**oftest.Switch{&a.from, &a.to} {
		var err error
		if *sw, err = oftest.New(Program); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// pass brings the state of the views into the switches.
func (a *arrival) pass() {
	a.t.Helper()
	for c, sw := range map[*sources]*oftest.Switch{a.sender: a.from, a.server: a.to} {
		c.engine.Pass()
		if err := sw.Replace(slices.Collect(maps.Values(c.held))...); err != nil {
			a.t.Fatal(err)
		}
	}
}

// sees sets a Pod in a Node's view; nil removes it.
func (c *sources) sees(name string, f *policy.PodFacts) {
	if key := (derive.Object{Namespace: "default", Name: name}); f == nil {
		c.policy.Pods.Delete(key)
	} else {
		c.policy.Pods.Set(key, *f)
	}
}

// packet is the first one of a new connection from a Pod of the second Node.
func (a *arrival) packet(pod Pod) oftest.Packet {
	a.port++
	return oftest.Packet{
		InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: pod.IPs[0], IPDst: a.server.Pods[0].IPs[0],
		Proto: oftest.TCP, SrcPort: a.port, DstPort: 80,
	}
}

// arrives takes a packet that has left the second Node to the first one.
func (a *arrival) arrives(k oftest.Packet) string {
	k.InPort, k.TunSrc = tunnelPort, eastTwo
	return met(a.to.Send(k))
}

// connect opens a connection from a Pod of the second Node to the server; edit changes the packet on its way.
func (a *arrival) connect(pod Pod, edit func(*oftest.Packet)) string {
	a.t.Helper()
	r := a.from.Send(a.packet(pod))
	if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
		return "not sent: " + met(r)
	}
	k := r.Outputs[0].Packet
	if edit != nil {
		edit(&k)
	}
	return a.arrives(k)
}

const newcomerUID types.UID = "5c0f4ad1-6a3e-4a41-9d52-9b8d4b1c7a10"

// sameKey are two UIDs that one key stands for.
func sameKey(t *testing.T) (types.UID, types.UID) {
	t.Helper()
	seen := map[uint32]types.UID{}
	for i := range 1_000_000 {
		uid := types.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i))
		if other, ok := seen[policy.SenderKeyOf(uid)]; ok {
			return other, uid
		}
		seen[policy.SenderKeyOf(uid)] = uid
	}
	t.Fatal("no two UIDs have one key")
	return "", ""
}

// TestNewcomers opens connections from a Pod whose address the server's Node does not know. The server is under a rule
// that denies zone=x, or under a NetworkPolicy that allows app=a.
func TestNewcomers(t *testing.T) {
	type view = map[string]*policy.PodFacts
	one, another := sameKey(t)
	facts := func(labels string, uid types.UID, ips ...netip.Addr) *policy.PodFacts {
		return &policy.PodFacts{Labels: labels, Node: "node-2", UID: uid, IPs: ips}
	}
	mirror := func(labels string) *policy.PodFacts {
		return &policy.PodFacts{Labels: labels, Node: "node-2", UID: newcomerUID, Mirror: true}
	}
	pod := onNode(2).Pods[0]
	addressed := func(name, ip string) view { return view{name: facts("app=a", newcomerUID, addrOf(ip))} }
	a := view{"pod1": facts("app=a", newcomerUID)}
	x := view{"pod1": facts("zone=x", newcomerUID)}
	bx := view{"pod1": facts("app=b,zone=x", newcomerUID)}
	with := func(v view, name string, f *policy.PodFacts) view {
		v = maps.Clone(v)
		v[name] = f
		return v
	}
	const nowhere = "dropped in Classify"
	rows := []struct {
		name            string
		uid             types.UID // of the Pod; newcomerUID
		here, there     view      // of the Pod's Node and of the server's Node
		edit            func(*oftest.Packet)
		denied, allowed string // under the rule and under the NetworkPolicy
	}{
		{name: "a newcomer", here: a, there: a, denied: allowed, allowed: allowed},
		{name: "denied labels", here: x, there: x, denied: dropped, allowed: dropped},
		{name: "not known there", here: a, denied: dropped, allowed: dropped},
		{name: "not known here", there: a, denied: dropped, allowed: dropped},
		{name: "old labels there", here: x, there: a, denied: allowed, allowed: allowed},
		{name: "another Pod with its name", here: a, there: view{"pod1": facts("app=a", one)},
			denied: dropped, allowed: dropped},
		{name: "a Pod of another Node", here: a, denied: dropped, allowed: dropped,
			there: view{"pod1": {Labels: "app=a", Node: "node-3", UID: newcomerUID}}},
		{name: "another object claims the UID", here: with(a, "mirror", mirror("zone=x")),
			there: with(a, "mirror", mirror("zone=x")), denied: allowed, allowed: allowed},
		{name: "only another object has the UID", here: a, there: view{"mirror": mirror("app=a")},
			denied: dropped, allowed: dropped},
		{name: "a static Pod", here: view{"pod1": mirror("app=a")}, there: view{"pod1": mirror("app=a")},
			denied: dropped, allowed: dropped},
		{name: "two newcomers have the key", uid: one, here: view{"pod1": facts("app=b", one)},
			there:  view{"pod1": facts("app=b", one), "other": facts("app=a", another)},
			denied: dropped, allowed: dropped},
		{name: "its Node has another Pod with the key", uid: one, there: view{"other": facts("app=a", another)},
			here:   view{"pod1": facts("app=b", one), "other": facts("app=a", another)},
			denied: dropped, allowed: dropped},
		{name: "a denied Pod had the address, and is known still", here: a,
			there:  with(a, "before", facts("zone=x", another, pod.IPs[0])),
			denied: allowed, allowed: allowed},
		{name: "an allowed Pod had the address, and is known still", here: bx,
			there:  with(bx, "before", facts("app=a", another, pod.IPs[0])),
			denied: dropped, allowed: dropped},
		{name: "its status has the address", here: addressed("pod1", "10.11.1.2"),
			there: addressed("pod1", "10.11.1.2"), denied: allowed, allowed: allowed},
		{name: "its status has another address", here: addressed("pod1", "10.11.1.77"),
			there: addressed("pod1", "10.11.1.77"), denied: dropped, allowed: dropped},
		{name: "to another tunnel end", here: a, there: a, denied: nowhere, allowed: nowhere,
			edit: func(k *oftest.Packet) { k.TunDst = eastTwo }},
		{name: "an address of another Node", here: a, there: a, denied: nowhere, allowed: nowhere,
			edit: func(k *oftest.Packet) { k.IPSrc = addrOf("10.11.7.2") }},
		{name: "the MAC of other clusters", here: a, there: a, denied: dropped, allowed: dropped,
			edit: func(k *oftest.Packet) { k.EthDst = CrossClusterMAC }},
	}
	for _, row := range rows {
		for kind, want := range map[string]string{"a rule": row.denied, "a NetworkPolicy": row.allowed} {
			t.Run(row.name+", "+kind, func(t *testing.T) {
				nodes := newArrival(t)
				if kind == "a rule" {
					nodes.server.judge(policy.Ingress, denyX)
				} else {
					nodes.server.isolate(policy.RuleFacts{
						Action: policy.Allow, AnyPort: true,
						Peers: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
					})
				}
				uid := newcomerUID
				if row.uid != "" {
					uid = row.uid
				}
				nodes.sender.uids.Set(derive.Name(pod.Interface), uid)
				for name, f := range row.here {
					nodes.sender.sees(name, f)
				}
				for name, f := range row.there {
					nodes.server.sees("far-"+name, f) // the server has one of the names
				}
				nodes.pass()
				if have := nodes.connect(pod, row.edit); have != want && !strings.HasPrefix(have, want+" (") {
					t.Errorf("%s, want %s", have, want)
				}
			})
		}
	}
}

// denyX denies zone=x.
var denyX = policy.RuleFacts{Action: policy.Drop, Peers: []policy.Selector{{Pods: "zone=x"}}, AnyPort: true}

// isolate isolates app=server by a NetworkPolicy, but for these rules.
func (c *sources) isolate(list ...policy.RuleFacts) {
	c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "default", Name: "isolate"}, policy.Facts{
		Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
		Ingress: &policy.DirectionFacts{Rules: list},
	})
}

// TestNewcomerIsKnown keeps a connection that a tunnel's key has opened when the address becomes known. It ends if the
// Pod gets denied labels, or goes, before that.
func TestNewcomerIsKnown(t *testing.T) {
	pod := onNode(2).Pods[0]
	pending := policy.PodFacts{Labels: "app=a", Node: "node-2", UID: newcomerUID}
	with := func(labels string, ips ...netip.Addr) *policy.PodFacts {
		f := pending
		f.Labels, f.IPs = labels, ips
		return &f
	}
	for _, row := range []struct {
		name  string
		next  *policy.PodFacts
		want  string
		looks bool // the change itself does not name the connections
	}{
		{"its address is known", with("app=a", pod.IPs...), allowed, false},
		{"its address and other labels are known at once", with("zone=x", pod.IPs...), dropped, false},
		{"it has other labels that are allowed, too", with("app=b"), allowed, true},
		{"it has labels that are denied", with("zone=x"), dropped, true},
		{"it is deleted", nil, dropped, true},
	} {
		for _, by := range []string{"a look", "the change"} {
			if by == "the change" && row.looks {
				continue
			}
			t.Run(row.name+", found by "+by, func(t *testing.T) {
				a := newArrival(t)
				a.server.judge(policy.Ingress, denyX)
				a.sender.uids.Set(derive.Name(pod.Interface), newcomerUID)
				a.sender.sees("pod1", &pending)
				a.server.sees("newcomer", &pending)
				a.pass()
				var c Concern
				woken := 0
				a.server.tables.Policies.Known.WatchConcerns(func(x Concern) {
					c.Since, c.Look = append(c.Since, x.Since...), c.Look || x.Look
				})
				a.server.tables.Policies.Known.Watch(func() { woken++ })
				r := a.from.Send(a.packet(pod))
				if len(r.Outputs) != 1 {
					t.Fatalf("not sent: %s", met(r))
				}
				k := r.Outputs[0].Packet
				if have := a.arrives(k); have != allowed {
					t.Fatalf("the first packet is %s", have)
				}
				server := a.server.Pods[0]
				a.to.Send(oftest.Packet{
					InPort: server.Port, EthSrc: server.MAC, EthDst: gwMAC, IPSrc: k.IPDst, IPDst: k.IPSrc,
					Proto: oftest.TCP, SrcPort: 80, DstPort: k.SrcPort,
				})
				if again := a.server.tables.Policies.Known.Rechecks(a.to.DumpConntrack()); len(again) > 0 {
					t.Errorf("while it is a newcomer its connection is judged again: %v", again)
				}
				a.server.sees("newcomer", row.next)
				a.pass()
				if c.Look != row.looks || woken == 0 {
					t.Errorf("the change wants a look: %v, want %v; it was noted %d times", c.Look, row.looks, woken)
				}
				var again []Recheck
				for _, x := range c.Since {
					again = append(again, x.Recheck)
				}
				if by == "a look" {
					again = a.server.tables.Policies.Known.Rechecks(a.to.DumpConntrack())
				}
				a.server.tables.Policies.Known.Recheck(again)
				a.pass()
				if have := a.arrives(k); have != row.want {
					t.Errorf("a packet of the connection is %s, want %s; judged again: %v", have, row.want, again)
				}
				numbered := slices.ContainsFunc(again, func(r Recheck) bool {
					return r.Identity != 0 && r.Identity != policy.UnknownPod
				})
				if row.want == allowed && !row.looks && numbered {
					t.Errorf("an allowed connection is judged again: %v", again)
				}
			})
		}
	}
}

// TestWalkNewcomers changes Pods of one Node at random. That Node and the server's Node see the changes in their order,
// each with a random delay. If both have a Pod without an address, the labels decide that the server's Node has for
// that very Pod. They decide in the same way once the address is known. In all other cases the key opens nothing.
func TestWalkNewcomers(t *testing.T) {
	type change struct {
		name string
		to   *policy.PodFacts
	}
	random := rand.New(rand.NewPCG(*walkSeed, 7))
	labels := []string{"app=a", "app=b", "zone=x", "app=a,zone=x"}
	a := newArrival(t)
	oracle := newArrival(t).server
	rules := func(c *sources, n int) {
		c.judge(policy.Ingress, []policy.RuleFacts{
			denyX, {Action: policy.Allow, Peers: []policy.Selector{{Pods: "app=a"}}, AnyPort: true},
		}[n])
		c.policy.Policies[policy.NetworkPolicy].Replace(nil)
		if n == 1 {
			c.isolate()
		}
	}
	truth, uids := map[string]*policy.PodFacts{}, map[string]types.UID{}
	views := map[*sources]map[string]*policy.PodFacts{a.sender: {}, a.server: {}}
	var history []change
	var later []string
	seen := map[*sources]int{}
	byKey, byAddress, closed := 0, 0, 0
	for step := range *walkSteps / 4 {
		if step%50 == 0 {
			for _, c := range []*sources{a.server, oracle} {
				rules(c, step/50%2)
			}
		}
		// A container outlives its object now and then, and the next one has its address.
		at := random.IntN(len(a.sender.Pods))
		pod := &a.sender.Pods[at]
		f := truth[pod.Name]
		set := func(name string, f *policy.PodFacts) {
			truth[name] = f
			history = append(history, change{name, f})
		}
		now := policy.PodFacts{Labels: labels[random.IntN(len(labels))], Node: "node-2", Created: int64(step)}
		switch next := random.IntN(7); {
		case f == nil || next == 0: // it ends, and its object goes now or later
			if old := pod.Name; f != nil && random.IntN(2) == 0 {
				set(old, nil)
			} else if f != nil {
				later = append(later, old)
			}
			now.UID = types.UID(fmt.Sprintf("%08x-%04x-4000-8000-000000000000", random.Uint32(), step))
			pod.Name, uids[pod.Interface] = fmt.Sprint("pod-", step), now.UID
			set(pod.Name, &now)
		case next == 1:
			set(pod.Name, nil)
		case next == 2:
			now.UID, now.Created, now.IPs = f.UID, f.Created, f.IPs
			set(pod.Name, &now)
		case next == 3:
			changed := *f
			changed.IPs = pod.IPs
			set(pod.Name, &changed)
		case next == 4 && len(later) > 0:
			set(later[0], nil)
			later = later[1:]
		case next == 5: // another object claims to be that Pod's mirror
			now.UID, now.Mirror = f.UID, true
			set("mirror", &now)
		default:
			set("mirror", nil)
		}
		a.sender.pods.Set(derive.Name(pod.Interface), *pod)
		for port, uid := range uids {
			a.sender.uids.Set(derive.Name(port), uid)
		}
		for _, c := range []*sources{a.sender, a.server} {
			for until := seen[c] + random.IntN(len(history)-seen[c]+1); seen[c] < until; seen[c]++ {
				x := history[seen[c]]
				as := x.name
				if c == a.server {
					as = "far-" + as // its own Pods have these names
				}
				views[c][x.name] = x.to
				c.sees(as, x.to)
			}
		}
		a.pass()
		for _, pod := range a.sender.Pods {
			a.from.Forget()
			a.to.Forget()
			uid := uids[pod.Interface]
			have := a.connect(pod, nil)
			var named []string
			for name, f := range views[a.server] {
				if f != nil && f.UID == uid && !f.Mirror && len(f.IPs) == 0 {
					named = append(named, name)
				}
			}
			decide := func(known string) string {
				server := derive.Object{Namespace: "default", Name: "pod1"}
				rows := map[derive.Object]policy.PodFacts{
					server: {Labels: "app=server", Node: "node-1", IPs: a.server.Pods[0].IPs},
				}
				for name, f := range views[a.server] {
					if f == nil {
						continue
					}
					row := *f
					if name == known {
						row.IPs, row.Created = pod.IPs, 1<<40
					}
					rows[derive.Object{Namespace: "default", Name: "far-" + name}] = row
				}
				oracle.policy.Pods.Replace(rows)
				oracle.engine.Pass()
				return oracle.policy.Decide(server, policy.Ingress, policy.Connection{
					From: pod.IPs[0], To: a.server.Pods[0].IPs[0],
					Protocol: corev1.ProtocolTCP, Port: 80, SourcePort: a.port,
				}).Action.String()
			}
			plain := decide("")
			want := plain
			mine := views[a.sender][pod.Name]
			isKnown := mine != nil && mine.UID == uid
			switch _, known := a.server.policy.OccupantAt(pod.IPs[0]); {
			case isKnown && len(named) == 1:
				want = decide(named[0])
				byKey++
			case known:
				byAddress++
			default:
				closed++
			}
			if have != want && (isKnown || have == allowed) {
				t.Fatalf("step %d: a packet of %s (UID %s) is %s, want %s, by its address %s; its Node knows %v, the server's %v",
					step, pod.Name, uid, have, want, plain, views[a.sender], views[a.server])
			}
		}
	}
	if byKey == 0 || byAddress == 0 || closed == 0 {
		t.Errorf("%d packets were judged by the key, %d by the address, %d as unknown Pods'", byKey, byAddress, closed)
	}
	t.Logf("judged by the key: %d, by the address: %d, as unknown Pods or not sent: %d", byKey, byAddress, closed)
}

package policy

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 1, "seed of the random walk")
	walkSteps = flag.Int("walk.steps", 1000, "steps of the random walk")
)

// world is a cluster that changes, and the tables of node-1 that receive it.
type world struct {
	*policytest.Walk
	*Tables
	engine      *derive.Engine
	attachments *derive.Source[derive.Name, Attachment]
}

// walkLimits are bounds that walks meet often, which the evaluator keeps to as well.
var (
	walkLimits = policytest.Limits{Policy: 40, Wide: 48, Namespace: 50, Rules: 7}
	walkBounds = func() Bounds {
		b := DefaultBounds
		b.Policy, b.Wide, b.Namespace, b.Rules = walkLimits.Policy, walkLimits.Wide, walkLimits.Namespace, walkLimits.Rules
		return b
	}()
)

func newWorld(seed uint64) *world {
	w := &world{engine: derive.New()}
	w.attachments = derive.NewSource[derive.Name, Attachment](w.engine, "attachments")
	w.attachments.Loaded()
	w.Tables = NewTables(w.engine, "node-1", w.attachments).Stretched().Bounded(walkBounds)
	w.Loaded()
	here, far := policytest.TwoRanges()
	here6, far6 := policytest.TwoRanges6()
	here, far = append(here, here6...), append(far, far6...)
	watch := w.callbacks()
	watch.Attached = func(port string, a policytest.Attached) { w.attachments.Set(derive.Name(port), attachmentOf(a)) }
	w.Walk = policytest.NewWalk(seed, map[string][]netip.Addr{"node-1": here, "node-2": far}, watch)
	w.Limits = walkLimits
	return w
}

// attachmentOf returns the zero value for an interface without addresses.
func attachmentOf(a policytest.Attached) Attachment {
	if len(a.IPs) == 0 {
		return Attachment{}
	}
	namespace, name, _ := strings.Cut(a.Pod, "/")
	return Attachment{Pod: derive.Object{Namespace: namespace, Name: name}, UID: a.UID, Sandbox: a.IPs[0].String(),
		IPs: a.IPs}
}

// attachmentsOf are the interfaces of a cluster, for other tables.
func attachmentsOf(e *derive.Engine, c policytest.Cluster) Attachments {
	s := derive.NewSource[derive.Name, Attachment](e, "attachments")
	for port, a := range c.Attached {
		s.Set(derive.Name(port), attachmentOf(a))
	}
	s.Loaded()
	return s
}

// callbacks returns the functions that fill the tables.
func (t *Tables) callbacks() policytest.Watch {
	return policytest.Watch{
		Pod: func(namespace, name string, p *corev1.Pod) {
			var f PodFacts
			if p != nil {
				f = PodFactsOf(p)
			}
			t.Pods.Set(derive.Object{Namespace: namespace, Name: name}, f)
		},
		Namespace: func(name string, n *corev1.Namespace) {
			if n == nil {
				t.Namespaces.Delete(derive.Object{Name: name})
				return
			}
			t.Namespaces.Set(derive.Object{Name: name}, NamespaceLabels(n))
		},
		Policy: func(namespace, name string, p *networkingv1.NetworkPolicy) {
			if p == nil {
				t.Policies[NetworkPolicy].Delete(derive.Object{Namespace: namespace, Name: name})
				return
			}
			t.Policies[NetworkPolicy].Set(derive.ObjectOf(p), FactsOf(p))
		},
		Other: func(namespace, name string, o any) {
			k := derive.Object{Namespace: namespace, Name: name}
			switch o := o.(type) {
			case *crdv1beta1.ClusterNetworkPolicy:
				observe(t.Policies[AntreaClusterNetworkPolicy], k, o, AntreaClusterFactsOf)
			case *crdv1beta1.NetworkPolicy:
				observe(t.Policies[AntreaNetworkPolicy], k, o, AntreaFactsOf)
			case *npv1alpha2.ClusterNetworkPolicy:
				observe(t.Policies[ClusterNetworkPolicy], k, o, ClusterFactsOf)
			case *crdv1beta1.Tier:
				observe(t.Tiers, k, o, TierFactsOf)
			case *crdv1beta1.ClusterGroup:
				observe(t.ClusterGroups, k, o, ClusterGroupFactsOf)
			case *crdv1beta1.Group:
				observe(t.Groups, k, o, GroupFactsOf)
			case *corev1.Node:
				observe(t.Nodes, k, o, NodeFactsOf)
			case *corev1.Service:
				observe(t.ServiceSelectors, k, o, ServiceSelectorOf)
			case *mcv1alpha1.LabelIdentity:
				observe(t.LabelIdentities, k, o, LabelIdentityOf)
			case *mcv1alpha1.PodAddressImport:
				observe(t.PodAddresses, k, o, RemotePodsOf)
			}
		},
	}
}

func observe[T, F any](s *derive.Source[derive.Object, F], k derive.Object, o *T, facts func(*T) F) {
	if o == nil {
		s.Delete(k)
		return
	}
	s.Set(k, facts(o))
}

// each gives all objects of a kind.
func each[T any](w policytest.Watch, m map[string]*T) {
	for key, o := range m {
		namespace, name, ok := strings.Cut(key, "/")
		if !ok {
			namespace, name = "", key
		}
		w.Other(namespace, name, o)
	}
}

// fill gives tables everything.
func fill(t *Tables, c policytest.Cluster) {
	watch := t.callbacks()
	for _, p := range c.Pods {
		watch.Pod(p.Namespace, p.Name, p)
	}
	for _, n := range c.Namespaces {
		watch.Namespace(n.Name, n)
	}
	for _, p := range c.Policies {
		watch.Policy(p.Namespace, p.Name, p)
	}
	each(watch, c.AntreaCluster)
	each(watch, c.Antrea)
	each(watch, c.Cluster)
	each(watch, c.Tiers)
	each(watch, c.ClusterGroups)
	each(watch, c.Groups)
	each(watch, c.Nodes)
	each(watch, c.Services)
	each(watch, c.LabelIdentities)
	each(watch, c.PodAddresses)
	t.Loaded()
}

// address returns an address that a Pod may have, of the version of IP of another one.
func (w *world) address(like netip.Addr) netip.Addr {
	return policytest.Pick(w.Walk, policytest.Like(like, w.Walk.Addresses[policytest.Pick(w.Walk, "node-1", "node-2")])...)
}

// strangers are addresses without Pods of this cluster.
var strangers = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8"),
	netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8:1::1")}

// ask compares answers about random connections of this Node's Pods with the specification's.
func (w *world) ask(t *testing.T, questions int, answers map[string]int) (asked, denied int) {
	t.Helper()
	here := w.Here("node-1")
	if len(here) == 0 {
		return 0, 0
	}
	for range questions {
		pod := policytest.Pick(w.Walk, here...)
		own := policytest.Pick(w.Walk, w.Own(pod)...)
		other := w.address(own)
		if w.IntN(4) == 0 {
			other = policytest.Pick(w.Walk, policytest.Like(own, strangers)...)
		}
		c := Connection{From: other, To: own, Protocol: policytest.Pick(w.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP,
			corev1.ProtocolSCTP), Port: policytest.Pick[uint16](w.Walk, 53, 80, 81, 85, 8080),
			SourcePort: policytest.Pick[uint16](w.Walk, 1024, 2000, 2500, 4000)}
		switch w.IntN(10) {
		case 0:
			c.Protocol, c.Port, c.SourcePort = ProtocolICMP, policytest.Pick[uint16](w.Walk, 0, 8<<8, 8<<8+1, 3<<8, 128<<8,
				128<<8+1), 0
		case 1:
			c.Protocol, c.Port, c.SourcePort = ProtocolIGMP, policytest.UnknownType, 0
		}
		d := policytest.Pick(w.Walk, Ingress, Egress)
		if d == Egress {
			c.From, c.To = c.To, c.From
			if w.IntN(3) == 0 {
				c.Service = derive.Object{Namespace: policytest.Pick(w.Walk, "x", "y", "z"),
					Name: policytest.Pick(w.Walk, "svc", "antrea-mc-svc")}
			}
		} else if w.IntN(4) == 0 {
			c.From, c.ClusterSet = netip.MustParseAddr("10.99.0.1"),
				policytest.Pick[uint32](w.Walk, 1, 2, 3, 4, 5, UnknownClusterSet)
		}
		have, want := w.Decide(derive.ObjectOf(pod), d, c), w.Judge(pod, d == Egress, policytest.Connection(c))
		if have.Action.String() != want || have.Allowed != (want == "Allow") {
			t.Fatalf("%s of Pod %s, %+v: %+v, the specification says %v", d, derive.ObjectOf(pod), c, have, want)
		}
		answers[want]++
		if !own.Is4() {
			answers["IPv6 "+want]++
		}
		if d == Egress && w.PeerAt(d, c.To, derive.Object{})&Remote != 0 {
			answers["to another cluster"]++
		}
		if have.Rule != nil && w.PeerAt(d, c.peer(d), derive.Object{}) == UnknownPod {
			answers["of an unknown Pod, "+want]++
		}
		if asked++; want != "Allow" {
			denied++
		}
	}
	return asked, denied
}

// checkAttached compares whose the interfaces are with the specification.
func (w *world) checkAttached(t *testing.T, what string, answers map[string]int) {
	t.Helper()
	for port, a := range w.Cluster.Attached {
		have, _ := w.Attached.Get(derive.Name(port))
		pod := w.Of(a)
		if have.Known != (pod != nil) || pod != nil && have.UID != pod.UID || pod == nil &&
			(have.Identity != "" || have.UID != a.UID) {
			t.Fatalf("%s: interface %s of %+v: %+v, the specification says %+v", what, port, a, have, pod)
		}
		answers[map[bool]string{true: "known", false: "nothing known"}[have.Known]]++
	}
}

// costs returns what each rule costs, as Cluster.Costs does.
func (t *Tables) costs() map[string]int {
	out := map[string]int{}
	for kind := range Kinds {
		for _, row := range t.Policies[kind].All() {
			key := Key{kind, row.Key.Namespace, row.Key.Name}
			for d, facts := range [...]*DirectionFacts{row.Value.Ingress, row.Value.Egress} {
				for i, r := range facts.rules() {
					out[RuleKey{Policy: key, Direction: Direction(d), Index: i}.String()] = r.Cost
				}
			}
		}
	}
	return out
}

// TestWalk changes Pods, Namespaces and policies at random. After each step the tables answer as the specification
// does, and equal tables that are made from nothing.
func TestWalk(t *testing.T) {
	w := newWorld(*walkSeed)
	asked, denied, answers := 0, 0, map[string]int{}
	left, widened, shared := 0, 0, 0
	for step := range *walkSteps {
		what := w.Step()
		w.engine.Pass()
		for _, row := range w.actives.active.All() {
			for _, r := range slices.Concat(row.Value.Ingress.rules(), row.Value.Egress.rules()) {
				if r.Over && r.Void {
					left++
				} else if r.Over {
					widened++
				}
			}
		}
		shared += len(w.limits.budgets.All())
		if diff := cmp.Diff(w.Costs(), w.costs()); diff != "" {
			t.Fatalf("seed %d, step %d, %s: costs (-specification +tables):\n%s", *walkSeed, step, what, diff)
		}
		w.checkAttached(t, what, answers)
		a, d := w.ask(t, 20, answers)
		asked, denied = asked+a, denied+d
		e := derive.New()
		fresh := NewTables(e, "node-1", attachmentsOf(e, w.Cluster)).Stretched().Bounded(walkBounds)
		fill(fresh, w.Cluster)
		e.Pass()
		if diff := cmp.Diff(text(fresh), text(w.Tables)); diff != "" {
			t.Fatalf("seed %d, step %d, %s: rules (-from nothing +incremental):\n%s", *walkSeed, step, what, diff)
		}
		if diff := cmp.Diff(e.Problems(), w.engine.Problems()); diff != "" {
			t.Fatalf("seed %d, step %d, %s: problems (-from nothing +incremental):\n%s", *walkSeed, step, what, diff)
		}
	}
	if denied < asked/10 || denied > asked*9/10 {
		t.Errorf("%d of %d connections were denied: the walk is too tame", denied, asked)
	}
	if answers["to another cluster"] == 0 {
		t.Error("no connection went to a Pod of another cluster that a rule names: the walk is too tame")
	}
	if answers["nothing known"] < 100 || answers["known"] < 100 {
		t.Error("interfaces were all of known Pods, or none was: the walk is too tame")
	}
	if left == 0 || widened == 0 || shared == 0 {
		t.Errorf("beyond bounds %d rules were left out and %d widened, %d Namespaces had too many: the walk is too tame",
			left, widened, shared)
	}
	if answers["of an unknown Pod, Drop"] == 0 || answers["of an unknown Pod, Reject"] == 0 ||
		answers["of an unknown Pod, Allow"] == 0 {
		t.Error("no rule decided about an unknown Pod in each way: the walk is too tame")
	}
	if answers["IPv6 Allow"] < asked/50 || answers["IPv6 Drop"] < asked/50 || answers["IPv6 Reject"] == 0 {
		t.Error("few connections were of IPv6, or all had the same end: the walk is too tame")
	}
	if answers["Reject"] == 0 {
		t.Error("no connection was rejected: the walk is too tame")
	}
	t.Logf("%d questions, %v; beyond bounds %d rules left out, %d widened, %d Namespaces",
		asked, answers, left, widened, shared)
}

// text returns the tables with names instead of numbers of identities. Numbers need not be the same in both tables if
// two identities want one.
func text(t *Tables) []string {
	name := map[uint32]Identity{UnknownPod: "unknown"}
	for _, row := range t.Numbers.All() {
		name[row.Value] = row.Key
	}
	of := func(list []uint32) (out []Identity) {
		for _, n := range list {
			out = append(out, name[n])
		}
		slices.Sort(out)
		return out
	}
	var out []string
	for _, row := range t.Rules.All() {
		r := row.Value
		out = append(out, fmt.Sprint(row.Key, r.Rank, " applied ", of(r.Applied), " peers ", r.AnyPeer, of(r.Peers),
			r.ClusterSet, r.Stretched, r.Blocks, r.Services, r.Names,
			" ports ", r.AnyPort, r.Ports, r.ICMP, r.IGMP, r.Targets, r.UnknownPorts))
		if _, ok := t.Priorities.Get(r.Rank); !ok {
			out = append(out, fmt.Sprint(row.Key, " has no priority"))
		}
	}
	for _, row := range t.Applied.All() {
		out = append(out, fmt.Sprint(row.Key, " has ", row.Value))
	}
	for _, row := range t.PodRanges.All() {
		out = append(out, fmt.Sprint(row.Key, " ", row.Value))
	}
	for _, row := range t.Addresses.All() {
		n := row.Value.Number
		out = append(out, fmt.Sprint(row.Key.Addr, " is ", name[n], n&Remote, n&^Remote*(n/Remote), row.Value.Asked))
	}
	return out
}

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// MaxIdentity is the highest number of an identity: it has to fit a tunnel's key, whose highest value means
// unknown.
const MaxIdentity = 1<<24 - 2

// Direction is seen from the Pod that a policy is applied to.
type Direction uint8

// The directions of a connection's first packet.
const (
	Ingress Direction = iota
	Egress
)

// String returns "ingress" or "egress".
func (d Direction) String() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

// RuleKey names a rule: spec.ingress[Index] or spec.egress[Index] of a NetworkPolicy.
type RuleKey struct {
	Policy    derive.Object
	Direction Direction
	Index     int
}

// Compare orders by policy, direction, index.
func (k RuleKey) Compare(o RuleKey) int {
	return cmp.Or(k.Policy.Compare(o.Policy), cmp.Compare(k.Direction, o.Direction), cmp.Compare(k.Index, o.Index))
}

// String returns "default/web ingress[0]".
func (k RuleKey) String() string { return fmt.Sprintf("%s %s[%d]", k.Policy, k.Direction, k.Index) }

// RuleKeyOf reads the String of a RuleKey back; the zero RuleKey for anything else.
func RuleKeyOf(text string) (k RuleKey) {
	name, rest, ok1 := strings.Cut(text, " ")
	direction, index, ok2 := strings.Cut(rest, "[")
	namespace, name, ok3 := strings.Cut(name, "/")
	n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
	if !ok1 || !ok2 || !ok3 || err != nil {
		return RuleKey{}
	}
	k = RuleKey{derive.Object{Namespace: namespace, Name: name}, Ingress, n}
	if direction == Egress.String() {
		k.Direction = Egress
	}
	return k
}

// Rule allows new connections of Pods of this Node, in numbers of identities. All its lists are sorted.
type Rule struct {
	// Applied are the identities of Pods of this Node that the rule is for.
	Applied []uint32
	// AnyPeer allows every other end; else one of Peers, or an address in Blocks.
	AnyPeer bool
	Peers   []uint32
	Blocks  []netip.Prefix
	// AnyPort allows every protocol and port; else one of Ports, or an end of Targets.
	AnyPort bool
	Ports   []PortRange
	// Targets are what the names of ports mean: each Pod that can be the destination gives a name its own number.
	Targets []Target
}

// Target is a destination port of certain Pods.
type Target struct {
	PortRange
	IPs []netip.Addr // of both families
}

// Applied are the policies that isolate an identity of this Node; nil in a direction means that it is not isolated.
type Applied struct{ Ingress, Egress []derive.Object }

func (a Applied) in(d Direction) []derive.Object {
	if d == Egress {
		return a.Egress
	}
	return a.Ingress
}

// Addr is an address as a key.
type Addr struct{ netip.Addr }

// Compare orders addresses by family, then value.
func (a Addr) Compare(b Addr) int { return a.Addr.Compare(b.Addr) }

// Tables are the policies of a Node.
type Tables struct {
	// Pods, Namespaces and Policies are to be filled: of the whole cluster, each object under its own key, a
	// Namespace with its labels in normal form (NamespaceLabels).
	Pods       *derive.Source[derive.Object, PodFacts]
	Namespaces *derive.Source[derive.Object, string]
	Policies   *derive.Source[derive.Object, Facts]
	// Identities are those of Pods, zero while a Pod's Namespace is not known.
	Identities *derive.Table[derive.Object, Identity]
	// Numbers are those of identities, from 1 to MaxIdentity, the same on this Node as long as a Pod has the labels.
	Numbers *derive.Numbers[Identity]
	// ByNamespace finds the policies of a Namespace.
	ByNamespace *derive.Index[derive.Name, derive.Object, Facts]
	// Applied are the policies of each identity that Pods of this Node have.
	Applied *derive.Table[Identity, Applied]
	// Rules are those of Pods of this Node.
	Rules *derive.Table[RuleKey, Rule]
	// Addresses are numbers of identities by the addresses of Pods, of those alone that a rule names.
	Addresses *derive.Table[Addr, uint32]

	node     string
	pods     *derive.Index[Identity, derive.Object, Identity]
	sets     *derive.Table[Identity, *labelSets]
	byLabel  *derive.Index[label, Identity, *labelSets]
	byPort   *derive.Index[portName, derive.Object, PodFacts]
	byIP     *derive.Index[Addr, derive.Object, PodFacts]
	here     *derive.Table[derive.Object, Identity]
	byHere   *derive.Index[Identity, derive.Object, Identity]
	byPolicy *derive.Index[derive.Object, Identity, Applied]
	active   *derive.Table[derive.Object, Facts]
	peers    *derive.Table[Selector, []Identity]

	byNamespaceLabel *derive.Index[label, derive.Object, string]
	inNamespaces     *derive.Table[derive.Name, []string]
	named            *derive.Index[Identity, Selector, []Identity]
}

// NewTables adds the tables of the Node of this name to an engine.
func NewTables(e *derive.Engine, node string) *Tables {
	t := &Tables{node: node}
	t.Pods = derive.NewSource[derive.Object, PodFacts](e, "cluster-pods")
	t.Namespaces = derive.NewSource[derive.Object, string](e, "namespaces")
	t.Policies = derive.NewSource[derive.Object, Facts](e, "networkpolicies")
	t.ByNamespace = derive.NewIndex(t.Policies, "namespace", func(k derive.Object, _ Facts) []derive.Name { return []derive.Name{derive.Name(k.Namespace)} })
	t.byPort = derive.NewIndex(t.Pods, "port", func(_ derive.Object, f PodFacts) []portName {
		var out []portName
		for _, p := range f.Ports {
			out = append(out, p.portName)
		}
		return slices.Compact(out)
	})
	t.byIP = derive.NewIndex(t.Pods, "address", func(_ derive.Object, f PodFacts) []Addr {
		out := make([]Addr, len(f.IPs))
		for i, ip := range f.IPs {
			out[i] = Addr{ip}
		}
		return out
	})

	t.Identities = derive.NewTable(e, "pod-identities", t.identity, derive.KeysOf(t.Pods))
	t.pods = derive.NewIndex(t.Identities, "identity", func(_ derive.Object, i Identity) []Identity { return []Identity{i} })
	t.sets = derive.NewTable(e, "identities", func(i Identity, _ *derive.Reader) (*labelSets, []problem.Problem) { return i.labels(), nil }, derive.KeysOfIndex(t.pods))
	t.Numbers = derive.NewNumbers(e, "identity-numbers", 1, MaxIdentity, derive.KeysOfIndex(t.pods))
	t.byLabel = derive.NewIndex(t.sets, "label", labelsOf)

	ofNode := derive.NewIndex(t.Pods, "here", func(k derive.Object, f PodFacts) []derive.Object {
		if f.Node != node {
			return nil
		}
		return []derive.Object{k}
	})
	t.here = derive.NewTable(e, "local-identities", func(k derive.Object, r *derive.Reader) (Identity, []problem.Problem) {
		i, _ := derive.Get(r, t.Identities, k)
		return i, nil
	}, derive.KeysOfIndex(ofNode))
	t.byHere = derive.NewIndex(t.here, "identity", func(_ derive.Object, i Identity) []Identity { return []Identity{i} })
	t.Applied = derive.NewTable(e, "applied-policies", t.applied, derive.KeysOfIndex(t.byHere))
	t.byPolicy = derive.NewIndex(t.Applied, "policy", func(_ Identity, a Applied) []derive.Object {
		out := slices.Concat(a.Ingress, a.Egress)
		slices.SortFunc(out, derive.Object.Compare)
		return slices.Compact(out)
	})
	t.active = derive.NewTable(e, "active-policies", t.activePolicy, derive.KeysOfIndex(t.byPolicy))
	selectors := derive.NewIndex(t.active, "selector", func(_ derive.Object, f Facts) []Selector { return f.selectors() })
	t.byNamespaceLabel = derive.NewIndex(t.Namespaces, "label", func(_ derive.Object, text string) []label {
		out := []label{{}}
		for k, v := range setOf(text) {
			out = append(out, label{key: k, value: v})
		}
		return out
	})
	t.inNamespaces = derive.NewTable(e, "selected-namespaces", t.selectedNamespaces, derive.KeysOfIndex(derive.NewIndex(t.active, "namespace-selector", func(_ derive.Object, f Facts) []derive.Name {
		var out []derive.Name
		for _, s := range f.selectors() {
			if s.Namespaces != "" {
				out = append(out, derive.Name(s.Namespaces))
			}
		}
		return out
	})))
	t.peers = derive.NewTable(e, "selected-identities", t.selected, derive.KeysOfIndex(selectors))
	t.named = derive.NewIndex(t.peers, "identity", func(_ Selector, list []Identity) []Identity { return list })
	keys := derive.NewIndex(t.active, "rule", ruleKeys)
	t.Rules = derive.NewTable(e, "policy-rules", t.rule, derive.KeysOfIndex(keys))
	t.Addresses = derive.NewTable(e, "identity-addresses", t.address, derive.KeysOfIndex(t.byIP))
	return t
}

func (t *Tables) identity(k derive.Object, r *derive.Reader) (Identity, []problem.Problem) {
	pod, _ := derive.Get(r, t.Pods, k)
	namespace, known := derive.Get(r, t.Namespaces, derive.Object{Name: k.Namespace})
	if !known {
		return "", nil // until the watch of Namespaces has brought it: nothing that selects can be decided
	}
	return identityOf(namespace, pod.Labels), nil
}

func (t *Tables) applied(i Identity, r *derive.Reader) (a Applied, _ []problem.Problem) {
	set, _ := derive.Get(r, t.sets, i)
	for _, row := range derive.List(r, t.ByNamespace, derive.Name(set.namespaceName())) {
		if row.Value.Ingress == nil && row.Value.Egress == nil {
			continue // not understood
		}
		s, err := Selector{Pods: row.Value.Pods}.parse()
		if err != nil || !s.pods.Matches(set.pod) {
			continue
		}
		if row.Value.Ingress != nil {
			a.Ingress = append(a.Ingress, row.Key)
		}
		if row.Value.Egress != nil {
			a.Egress = append(a.Egress, row.Key)
		}
	}
	return a, nil
}

func (t *Tables) activePolicy(k derive.Object, r *derive.Reader) (Facts, []problem.Problem) {
	f, _ := derive.Get(r, t.Policies, k)
	return f, f.Problems
}

// selectors are those of all peers.
func (f Facts) selectors() []Selector {
	var out []Selector
	for _, d := range []*DirectionFacts{f.Ingress, f.Egress} {
		if d != nil {
			for _, r := range d.Rules {
				out = append(out, r.Peers...)
			}
		}
	}
	slices.SortFunc(out, Selector.Compare)
	return slices.Compact(out)
}

func ruleKeys(k derive.Object, f Facts) []RuleKey {
	var out []RuleKey
	for d, facts := range map[Direction]*DirectionFacts{Ingress: f.Ingress, Egress: f.Egress} {
		if facts != nil {
			for i := range facts.Rules {
				out = append(out, RuleKey{k, d, i})
			}
		}
	}
	return out
}

// selectedNamespaces are the names of the Namespaces that a label selector in text form selects.
func (t *Tables) selectedNamespaces(text derive.Name, r *derive.Reader) ([]string, []problem.Problem) {
	p, err := Selector{Namespaces: string(text)}.parse()
	if err != nil {
		return nil, invalid(Selector{Namespaces: string(text)}, err)
	}
	candidates := oneOf(p.namespaces)
	if candidates == nil {
		candidates = []label{{}}
	}
	var out []string
	for _, l := range candidates {
		for _, row := range derive.List(r, t.byNamespaceLabel, l) {
			if p.namespaces.Matches(setOf(row.Value)) {
				out = append(out, row.Key.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (t *Tables) selected(s Selector, r *derive.Reader) ([]Identity, []problem.Problem) {
	p, err := s.parse()
	if err != nil {
		return nil, invalid(s, err)
	}
	namespaces := []string{s.Namespace}
	if s.Namespaces != "" {
		namespaces, _ = derive.Get(r, t.inNamespaces, derive.Name(s.Namespaces))
	}
	var out []Identity
	for _, namespace := range namespaces {
		for _, l := range p.narrowest(namespace) {
			for _, row := range derive.List(r, t.byLabel, l) {
				if p.matches(row.Value) {
					out = append(out, row.Key)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// invalid cannot happen with selectors that facts were made with.
func invalid(s Selector, err error) []problem.Problem {
	return []problem.Problem{{Object: problem.Object{Kind: "Selector", Name: s.String()}, Reason: "InvalidSelector", Message: err.Error()}}
}

func (t *Tables) rule(k RuleKey, r *derive.Reader) (rule Rule, _ []problem.Problem) {
	policy, _ := derive.Get(r, t.active, k.Policy)
	facts := policy.Ingress
	if k.Direction == Egress {
		facts = policy.Egress
	}
	if facts == nil || k.Index >= len(facts.Rules) {
		return Rule{}, nil
	}
	f := facts.Rules[k.Index]
	var applied, peers []Identity
	for _, row := range derive.List(r, t.byPolicy, k.Policy) {
		if slices.Contains(row.Value.in(k.Direction), k.Policy) {
			applied = append(applied, row.Key)
		}
	}
	for _, s := range f.Peers {
		list, _ := derive.Get(r, t.peers, s)
		peers = append(peers, list...)
	}
	slices.Sort(peers)
	peers = slices.Compact(peers)
	rule = Rule{Applied: t.numbersOf(r, applied), AnyPeer: f.AnyPeer, Peers: t.numbersOf(r, peers), Blocks: f.Blocks, AnyPort: f.AnyPort, Ports: f.Ports}
	targets := map[PortRange][]netip.Addr{}
	for _, name := range f.Named {
		for _, row := range derive.List(r, t.byPort, name) {
			i, _ := derive.Get(r, t.Identities, row.Key)
			switch {
			case k.Direction == Ingress && (row.Value.Node != t.node || !slices.Contains(applied, i)),
				k.Direction == Egress && !f.AnyPeer && !slices.Contains(peers, i) && !slices.ContainsFunc(row.Value.IPs, f.inBlock):
				continue
			}
			for _, p := range row.Value.Ports {
				if p.portName == name {
					port := PortRange{name.Protocol, p.Port, p.Port}
					targets[port] = append(targets[port], row.Value.IPs...)
				}
			}
		}
	}
	for port, ips := range targets {
		slices.SortFunc(ips, netip.Addr.Compare)
		rule.Targets = append(rule.Targets, Target{port, slices.Compact(ips)})
	}
	slices.SortFunc(rule.Targets, func(a, b Target) int { return a.Compare(b.PortRange) })
	return rule, nil
}

func (f RuleFacts) inBlock(a netip.Addr) bool {
	return slices.ContainsFunc(f.Blocks, func(b netip.Prefix) bool { return b.Contains(a) })
}

func (t *Tables) numbersOf(r *derive.Reader, list []Identity) []uint32 {
	var out []uint32
	for _, i := range list {
		if n, ok := derive.Get(r, t.Numbers, i); ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// address is the number of the Pod that has an address, where a rule asks for it. Of several Pods that claim one
// address none has it: who sends from there is not known.
func (t *Tables) address(a Addr, r *derive.Reader) (uint32, []problem.Problem) {
	var holder Identity
	for _, row := range derive.List(r, t.byIP, a) {
		i, _ := derive.Get(r, t.Identities, row.Key)
		if i == "" || holder != "" && i != holder {
			return 0, nil
		}
		holder = i
	}
	if len(derive.List(r, t.named, holder)) == 0 {
		return 0, nil
	}
	n, _ := derive.Get(r, t.Numbers, holder)
	return n, nil
}

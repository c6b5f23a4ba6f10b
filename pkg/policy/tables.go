package policy

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// MaxIdentity is the highest number of an identity: it has to fit a tunnel's key, whose highest value means
// unknown.
const MaxIdentity = 1<<24 - 2

// Rule decides about new connections of Pods of this Node, in numbers of identities. All its lists are sorted.
type Rule struct {
	// Rank says which rule decides where several match, and what it does.
	Rank
	// Meaning is a hash of what the rule selects and does: it differs where the policy has changed, and not where Pods
	// come and go.
	Meaning uint64
	// Keep has known connections go on whatever becomes of the rule.
	Keep bool
	// Applied are the identities of Pods of this Node that the rule is for.
	Applied []uint32
	// AnyPeer matches every other end; else one of Peers or ClusterSet, an address in Blocks, or a connection that
	// was made to one of Services.
	AnyPeer bool
	Peers   []uint32
	// ClusterSet are numbers that the cluster set gives identities: of peers in other clusters, in tunnel keys.
	ClusterSet []uint32
	Blocks     []netip.Prefix
	Services   []derive.Object
	// AnyPort matches every protocol and port; else one of Ports, ICMP or IGMP, or an end of Targets.
	AnyPort bool
	Ports   []PortRange
	ICMP    []ICMP
	IGMP    []IGMP
	// Targets are what the names of ports mean: each Pod that can be the destination gives a name its own number.
	Targets []Target
	// Log says that connections that the rule decides are logged, with LogLabel; Name is that of the rule.
	Log            bool
	Name, LogLabel string
}

// Target is a destination port of certain Pods.
type Target struct {
	PortRange
	IPs []netip.Addr // of both families
}

// Applied are the policies that apply to an identity of this Node, by direction and stage, each sorted.
type Applied [2][Stages][]Key

// Any says whether policies of any stage apply in a direction.
func (a Applied) Any(d Direction) bool {
	return slices.ContainsFunc(a[d][:], func(list []Key) bool { return len(list) > 0 })
}

// Isolated says whether NetworkPolicies isolate the Pods in a direction: what none of their rules allows is denied.
func (a Applied) Isolated(d Direction) bool { return len(a[d][NetworkPolicies]) > 0 }

// policies are those of both directions and all stages.
func (a Applied) policies() []Key {
	var out []Key
	for _, stages := range a {
		out = append(out, slices.Concat(stages[:]...)...)
	}
	slices.SortFunc(out, Key.Compare)
	return slices.Compact(out)
}

// Addr is an address as a key.
type Addr struct{ netip.Addr }

// Compare orders addresses by family, then value.
func (a Addr) Compare(b Addr) int { return a.Addr.Compare(b.Addr) }

// Tables are the policies of a Node.
type Tables struct {
	// Pods, Namespaces and Policies (by kind) are to be filled: of the whole cluster, each object under its own key,
	// a Namespace with its labels in normal form (NamespaceLabels).
	Pods       *derive.Source[derive.Object, PodFacts]
	Namespaces *derive.Source[derive.Object, string]
	Policies   [Kinds]*derive.Source[derive.Object, Facts]
	// Identities are those of Pods, zero while a Pod's Namespace is not known.
	Identities *derive.Table[derive.Object, Identity]
	// Numbers are those of identities, from 1 to MaxIdentity, the same on this Node as long as a Pod has the labels.
	Numbers *derive.Numbers[Identity]
	// Applied are the policies of each identity that Pods of this Node have.
	Applied *derive.Table[Identity, Applied]
	// Rules are those of Pods of this Node.
	Rules *derive.Table[RuleKey, Rule]
	// Priorities give each rank of Rules a number, the higher one to the rank that decides before the other. Both
	// directions share them.
	Priorities *derive.Order[Rank]
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
	subjects [Kinds]*derive.Index[derive.Name, derive.Object, Facts] // by Namespace of the Pods, "" for any
	byPolicy *derive.Index[Key, Identity, Applied]
	active   *derive.Table[Key, Facts]
	peers    *derive.Table[Selector, []Identity]

	byNamespaceLabel *derive.Index[label, derive.Object, string]
	inNamespaces     *derive.Table[derive.Name, []string]
	named            *derive.Index[Identity, Selector, []Identity]
}

// Priorities are from FirstPriority to LastPriority: above and below there is room for flows of other purposes.
const (
	FirstPriority = 1000
	LastPriority  = 64000
)

var sourceNames = [Kinds]string{"networkpolicies", "antrea-clusternetworkpolicies", "antrea-networkpolicies", "clusternetworkpolicies"}

// Loaded declares that the sources have their content.
func (t *Tables) Loaded() {
	t.Pods.Loaded()
	t.Namespaces.Loaded()
	for _, s := range t.Policies {
		s.Loaded()
	}
}

// NewTables adds the tables of the Node of this name to an engine.
func NewTables(e *derive.Engine, node string) *Tables {
	t := &Tables{node: node}
	t.Pods = derive.NewSource[derive.Object, PodFacts](e, "cluster-pods")
	t.Namespaces = derive.NewSource[derive.Object, string](e, "namespaces")
	for kind := range Kinds {
		t.Policies[kind] = derive.NewSource[derive.Object, Facts](e, sourceNames[kind])
		t.subjects[kind] = derive.NewIndex(t.Policies[kind], "namespace", func(_ derive.Object, f Facts) []derive.Name { return f.namespaces() })
	}
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
	t.byPolicy = derive.NewIndex(t.Applied, "policy", func(_ Identity, a Applied) []Key { return a.policies() })
	t.active = derive.NewTable(e, "active-policies", t.activePolicy, derive.KeysOfIndex(t.byPolicy))
	selectors := derive.NewIndex(t.active, "selector", func(_ Key, f Facts) []Selector { return f.selectors() })
	t.byNamespaceLabel = derive.NewIndex(t.Namespaces, "label", func(_ derive.Object, text string) []label {
		out := []label{{}}
		for k, v := range setOf(text) {
			out = append(out, label{key: k, value: v})
		}
		return out
	})
	t.inNamespaces = derive.NewTable(e, "selected-namespaces", t.selectedNamespaces, derive.KeysOfIndex(derive.NewIndex(t.active, "namespace-selector", func(_ Key, f Facts) []derive.Name {
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
	t.Priorities = derive.NewOrder(e, "policy-priorities", FirstPriority, LastPriority,
		derive.KeysOfIndex(derive.NewIndex(t.Rules, "rank", func(_ RuleKey, r Rule) []Rank { return []Rank{r.Rank} })))
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

// MaySelect says whether any policy may apply to a Pod of a Namespace, whatever its labels are.
func (t *Tables) MaySelect(r *derive.Reader, namespace string) bool {
	for kind := range Kinds {
		if len(derive.List(r, t.subjects[kind], derive.Name(namespace))) > 0 || len(derive.List(r, t.subjects[kind], "")) > 0 {
			return true
		}
	}
	return false
}

func (t *Tables) applied(i Identity, r *derive.Reader) (a Applied, _ []problem.Problem) {
	set, _ := derive.Get(r, t.sets, i)
	for kind := range Kinds {
		for _, namespace := range []derive.Name{derive.Name(set.namespaceName()), ""} {
			for _, row := range derive.List(r, t.subjects[kind], namespace) {
				key, f := Key{kind, row.Key.Namespace, row.Key.Name}, row.Value
				for d, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
					if facts != nil && f.appliesTo(facts, set) {
						a[d][f.Stage] = append(a[d][f.Stage], key)
					}
				}
			}
		}
	}
	for d := range a {
		for _, list := range a[d] {
			slices.SortFunc(list, Key.Compare)
		}
	}
	return a, nil
}

// appliesTo says whether a policy, or any of its rules in a direction, is applied to Pods of an identity.
func (f Facts) appliesTo(facts *DirectionFacts, set *labelSets) bool {
	return selectAny(f.AppliedTo, set) ||
		slices.ContainsFunc(facts.Rules, func(r RuleFacts) bool { return selectAny(r.AppliedTo, set) })
}

func selectAny(list []Selector, set *labelSets) bool {
	return slices.ContainsFunc(list, func(s Selector) bool {
		p, err := s.parse()
		return err == nil && p.matches(set)
	})
}

// namespaces are the Namespaces of Pods that the policy may be applied to, "" for any.
func (f Facts) namespaces() []derive.Name {
	var out []derive.Name
	for _, s := range f.AppliedTo {
		out = append(out, derive.Name(s.Namespace))
	}
	for _, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
		if facts != nil {
			for _, r := range facts.Rules {
				for _, s := range r.AppliedTo {
					out = append(out, derive.Name(s.Namespace))
				}
			}
		}
	}
	slices.Sort(out)
	if slices.Contains(out, "") {
		return []derive.Name{""}
	}
	return slices.Compact(out)
}

// Keeps says whether known connections are to go on whatever becomes of a policy that is applied to Pods of this Node.
func (t *Tables) Keeps(r *derive.Reader, k Key) bool {
	f, _ := derive.Get(r, t.active, k)
	return f.Keep
}

func (t *Tables) activePolicy(k Key, r *derive.Reader) (Facts, []problem.Problem) {
	f, _ := derive.Get(r, t.Policies[k.Kind], k.object())
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

func ruleKeys(k Key, f Facts) []RuleKey {
	var out []RuleKey
	for d, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
		if facts != nil {
			for i := range facts.Rules {
				out = append(out, RuleKey{Policy: k, Direction: Direction(d), Index: i})
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
		if !slices.Contains(row.Value[k.Direction][policy.Stage], k.Policy) {
			continue
		}
		set, _ := derive.Get(r, t.sets, row.Key)
		if selectAny(policy.AppliedTo, set) || selectAny(f.AppliedTo, set) {
			applied = append(applied, row.Key)
		}
	}
	for _, s := range f.Peers {
		list, _ := derive.Get(r, t.peers, s)
		peers = append(peers, list...)
	}
	slices.Sort(peers)
	peers = slices.Compact(peers)
	rule = Rule{
		Rank: policy.rank(k.Index, f.Action), Meaning: policy.meaning(f), Keep: policy.Keep, Applied: t.numbersOf(r, applied),
		AnyPeer: f.AnyPeer, Peers: t.numbersOf(r, peers), Blocks: f.Blocks,
		AnyPort: f.AnyPort, Ports: f.Ports, ICMP: f.ICMP, IGMP: f.IGMP,
		Log: f.Log, Name: f.Name, LogLabel: f.LogLabel,
	}
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
					port := PortRange{Protocol: name.Protocol, From: p.Port, To: p.Port}
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

// rank is that of a rule of a policy.
func (f Facts) rank(index int, a Action) Rank {
	if f.Stage == NetworkPolicies {
		return NetworkPolicyRank
	}
	return Rank{f.Stage, f.TierPriority, f.Priority, index, a}
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

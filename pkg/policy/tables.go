package policy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// MaxIdentity is the highest number of an identity. It has to fit into a tunnel's key, whose highest value means
// unknown.
const MaxIdentity = 1<<24 - 2

// UnknownClusterSet is the number in a tunnel's key for a Pod whose identity has no number of the ClusterSet yet.
const UnknownClusterSet = 1<<24 - 1

// Remote is a bit in numbers of the ClusterSet. It distinguishes them from this Node's own numbers, which come from the
// same range. It is used where both can name the other end of a connection.
const Remote = 1 << 24

// Rule decides about new connections of Pods of this Node. It names Pods by numbers of identities. All its lists are
// sorted.
type Rule struct {
	// Rank decides which of several matching rules counts, and its action.
	Rank
	// Meaning is a hash of the rule's selection and action. It changes with the policy, but not when Pods come and go.
	Meaning uint64
	// Keep has known connections go on whatever becomes of the rule.
	Keep bool
	// Applied are the identities of Pods of this Node that the rule is for.
	Applied []uint32
	// AnyPeer matches every other end. Otherwise a peer matches if it is in Peers or ClusterSet, if its address is in
	// Blocks, or if the connection was made to one of Services.
	AnyPeer bool
	Peers   []uint32
	// ClusterSet has the numbers of the identities of peers in other clusters, which the leader assigns. For clients these
	// numbers are in tunnel keys, and for servers in Addresses. Stretched is set if the rule selects such peers, even if
	// they have no numbers yet. A packet whose key is UnknownClusterSet may come from such a peer, so it must not reach
	// Pods that the rule applies to.
	ClusterSet []uint32
	Stretched  bool
	Blocks     []netip.Prefix
	Services   []derive.Object
	// Names are DNS names in normal form, and may contain *. Blocks has their known addresses. Asked has the same
	// addresses. A connection to a Service with an address of Asked matches, too, regardless of the chosen endpoint.
	Names []string
	Asked []netip.Addr
	// AnyPort matches every protocol and port. Otherwise a port matches if it is in Ports, ICMP or IGMP, if the
	// destination is in Targets, or if it is a port of an unknown Pod with a protocol in UnknownPorts.
	AnyPort bool
	Ports   []PortRange
	ICMP    []ICMP
	IGMP    []IGMP
	// Targets are the numbers of named ports, since each possible destination Pod may have another number for a name.
	Targets      []Target
	UnknownPorts []corev1.Protocol
	// Log is set if connections that the rule decides are logged, with LogLabel. Name is the rule's name.
	Log            bool
	Name, LogLabel string
}

// Target is a destination port of certain Pods.
type Target struct {
	PortRange
	// Ends are the addresses of both families, each in its VirtualNetwork or, without one, in the network of the Pod's
	// Namespace.
	Ends []FurtherAddr
}

// Holder is the Pod that has an address.
type Holder struct {
	Number uint32  // of its identity
	Asked  [2]bool // by direction: a rule asks for the address
	// Network is the VirtualNetwork of the address. In other networks another machine may have the same address.
	Network derive.Object
}

// Applied are the policies that apply to an identity, by direction and stage, each list sorted.
type Applied [2][Stages][]Key

// Any reports whether policies of any stage apply in a direction.
func (a Applied) Any(d Direction) bool {
	return slices.ContainsFunc(a[d][:], func(list []Key) bool { return len(list) > 0 })
}

// Isolated reports whether NetworkPolicies isolate the Pods in a direction: everything is denied that no rule of theirs
// allows.
func (a Applied) Isolated(d Direction) bool { return len(a[d][NetworkPolicies]) > 0 }

// policies returns the policies of both directions and all stages.
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
	Sources
	// Outside is set if Nodes serve clients outside of the Pods' network. Set it before the first pass.
	Outside bool
	// Attached says whose the interfaces on this Node's switch are, by port.
	Attached *derive.Table[derive.Name, Attached]
	// Identities are the identities of Pods, zero while a Pod's Namespace is not known.
	Identities *derive.Table[derive.Object, Identity]
	// Numbers are the numbers of identities, from 1 to MaxIdentity except UnknownPod. On this Node an identity keeps its
	// number as long as a Pod has its labels.
	Numbers *derive.Numbers[Identity]
	// ClusterSetNumbers are the numbers that the ClusterSet gives the identities of Pods of this Node.
	ClusterSetNumbers *derive.Table[Identity, uint32]
	// Applied are the policies of each identity that Pods of this Node have.
	Applied *derive.Table[Identity, Applied]
	// Rules are the rules of Pods of this Node.
	Rules *derive.Table[RuleKey, Rule]
	// Priorities assign each rank of Rules a number. The rank that decides first has the highest number. Both directions
	// use the same numbers.
	Priorities *derive.Order[Rank]
	// Addresses are the Pods that rules match by their addresses: Pods that a rule names and, if a rule denies unknown
	// Pods, all Pods of this cluster. Egress rules also name Pods of other clusters. They have the number of the
	// ClusterSet, with the bit Remote; see PeerAt.
	Addresses *derive.Table[Addr, Holder]
	// Virtual are the same for VirtualNetworks.
	Virtual VirtualAddresses
	// PodRanges are the podCIDRs of this cluster. An address in one of them without a row in Addresses belongs to an
	// unknown Pod.
	PodRanges *derive.Table[PodRange, RangeOfPods]
	// Newcomers are Pods of other Nodes whose addresses are not known yet. The key is the number by which tunnel keys of
	// their Node name them.
	Newcomers *derive.Table[SenderKey, Newcomer]
	// ServiceRules are the rules of Services for connections from outside.
	ServiceRules *derive.Table[derive.Object, []ServiceRule]
	// LocalVersions are the Versions of the policies that apply to Pods of this Node, or to Services.
	LocalVersions *derive.Table[Key, Version]

	settings

	// These are the tables that derive from the sources, by feature. A feature reads tables of other features through its
	// field all.
	places    attachmentTables
	ids       identityTables
	selectors selectorTables
	actives   activeTables
	rules     ruleTables
	limits    boundTables
	others    remoteTables
	unknown   unknownTables
	arrivals  newcomerTables
}

// settings are the same as long as the tables live.
type settings struct {
	node      string
	stretched bool
}

// Sources are facts about the whole cluster, each object under its own key: a Namespace with its labels in normal form
// (NamespaceLabels), a Service with its selector (ServiceSelectorOf). The others have functions of the same name.
type Sources struct {
	Pods             *derive.Source[derive.Object, PodFacts]
	Namespaces       *derive.Source[derive.Object, string]
	Nodes            *derive.Source[derive.Object, NodeFacts]
	ServiceSelectors *derive.Source[derive.Object, string]
	Policies         [Kinds]*derive.Source[derive.Object, Facts]
	Versions         [Kinds]*derive.Source[derive.Object, Version] // of the kinds that have a status; nil of the others
	Tiers            *derive.Source[derive.Object, TierFacts]
	ClusterGroups    *derive.Source[derive.Object, GroupFacts]
	Groups           *derive.Source[derive.Object, GroupFacts]
	LabelIdentities  *derive.Source[derive.Object, LabelIdentity]
	PodAddresses     *derive.Source[derive.Object, RemotePods]
	Blocks           *derive.Source[derive.Object, []NodeBlock]      // by SubnetLease
	Further          *derive.Source[derive.Object, []FurtherAddress] // by Node
	// Learned are addresses of DNS names (NameOf), sorted, from answers to Pods of this Node.
	Learned *derive.Source[derive.Name, []netip.Addr]
}

// identityTables find Pods and their identities.
type identityTables struct {
	all        *Tables
	pods       *derive.Index[Identity, derive.Object, Identity]
	sets       *derive.Table[Identity, *labelSets]
	byLabel    *derive.Index[label, Identity, *labelSets]
	byPort     *derive.Index[portName, derive.Object, PodFacts]
	byPortHere *derive.Index[portName, derive.Object, PodFacts] // of this Node
	byIP       *derive.Index[Addr, derive.Object, PodFacts]
	here       *derive.Table[derive.Object, Identity]
	byHere     *derive.Index[Identity, derive.Object, Identity]
	accounts   *derive.Table[derive.Object, bool] // that policies name
}

// selectorTables find the Pods, Namespaces and names that selectors of rules mean.
type selectorTables struct {
	all              *Tables
	texts            map[Selector]parsed // of the evaluating goroutine
	peers            *derive.Table[Selector, []Identity]
	numbered         *derive.Table[Selector, []uint32] // the numbers of peers, which all rules with a selector share
	candidates       *derive.Table[Selector, candidates]
	named            *derive.Index[Identity, Selector, []Identity]
	groups           *derive.Table[derive.Object, members]
	addressesOf      *derive.Table[derive.Name, []netip.Addr] // by pattern
	byNamespaceLabel *derive.Index[label, derive.Object, string]
	inNamespaces     *derive.Table[derive.Name, []string]
}

// activeTables have the policies that apply to Pods of this Node, or to Services.
type activeTables struct {
	all      *Tables
	subjects [Kinds]*derive.Index[derive.Name, derive.Object, Facts] // by Namespace of the Pods, "" for any
	byPolicy *derive.Index[Key, Identity, Applied]
	active   *derive.Table[Key, Facts]
	activeIn *derive.Index[derive.Name, Key, Facts] // by Namespace
}

// Priorities are in the range from FirstPriority to LastPriority. Above and below it there is room for flows of other
// purposes.
const (
	FirstPriority = 1000
	LastPriority  = 64000
)

var sourceNames = [Kinds]string{"networkpolicies", "antrea-clusternetworkpolicies", "antrea-networkpolicies",
	"clusternetworkpolicies"}

// Loaded declares that the sources have their content.
func (t *Tables) Loaded() {
	for _, s := range []interface{ Loaded() }{t.Pods, t.Namespaces, t.Nodes, t.ServiceSelectors, t.Tiers, t.ClusterGroups,
		t.Groups, t.LabelIdentities, t.PodAddresses, t.Blocks, t.Further, t.Learned} {
		s.Loaded()
	}
	for kind := range Kinds {
		t.Policies[kind].Loaded()
		if t.Versions[kind] != nil {
			t.Versions[kind].Loaded()
		}
	}
}

// Stretched makes peers of scope ClusterSet select the Pods of other clusters as well, and returns the tables. Call it
// before the first pass.
func (t *Tables) Stretched() *Tables {
	t.stretched = true
	return t
}

// NewTables adds the tables of the Node with a name to an engine. attachments are the interfaces of the Node's Pods;
// nil means that it has no interfaces.
func NewTables(e *derive.Engine, node string, attachments Attachments) *Tables {
	t := withSources(e, node)
	t.ids.add(e)
	t.places.add(e, attachments)
	t.addPolicies(e)
	return t
}

// withSources returns tables that have only their sources.
func withSources(e *derive.Engine, node string) *Tables {
	t := &Tables{Sources: newSources(e), settings: settings{node: node}}
	t.places.all, t.ids.all, t.actives.all, t.rules.all = t, t, t, t
	t.selectors = selectorTables{all: t, texts: map[Selector]parsed{}}
	t.limits = boundTables{all: t, bounds: DefaultBounds}
	t.others.all, t.unknown.all, t.arrivals.all, t.Virtual.all = t, t, t, t
	for kind := range Kinds {
		t.actives.subjects[kind] = derive.NewIndex(t.Policies[kind], "namespace",
			func(_ derive.Object, f Facts) []derive.Name { return f.namespaces() })
	}
	return t
}

func newSources(e *derive.Engine) (t Sources) {
	t.Pods = derive.NewSource[derive.Object, PodFacts](e, "cluster-pods")
	t.Namespaces = derive.NewSource[derive.Object, string](e, "namespaces")
	t.Nodes = derive.NewSource[derive.Object, NodeFacts](e, "policy-nodes")
	t.ServiceSelectors = derive.NewSource[derive.Object, string](e, "service-selectors")
	for kind := range Kinds {
		t.Policies[kind] = derive.NewSource[derive.Object, Facts](e, sourceNames[kind])
		if kind.HasStatus() {
			t.Versions[kind] = derive.NewSource[derive.Object, Version](e, sourceNames[kind]+"-versions")
		}
	}
	t.Tiers = derive.NewSource[derive.Object, TierFacts](e, "tiers")
	t.ClusterGroups = derive.NewSource[derive.Object, GroupFacts](e, "clustergroups")
	t.Groups = derive.NewSource[derive.Object, GroupFacts](e, "antrea-groups")
	t.LabelIdentities = derive.NewSource[derive.Object, LabelIdentity](e, "labelidentities")
	t.Learned = derive.NewSource[derive.Name, []netip.Addr](e, "learned-names")
	t.PodAddresses = derive.NewSource[derive.Object, RemotePods](e, "podaddressimports")
	t.Blocks = derive.NewSource[derive.Object, []NodeBlock](e, "policy-blocks")
	t.Further = derive.NewSource[derive.Object, []FurtherAddress](e, "further-addresses")
	return t
}

func (t *identityTables) add(e *derive.Engine) {
	t.all.unknown.podRanges(e)
	t.byPort = derive.NewIndex(t.all.Pods, "port", func(_ derive.Object, f PodFacts) []portName { return f.portNames() })
	t.byPortHere = derive.NewIndex(t.all.Pods, "port-here", func(_ derive.Object, f PodFacts) []portName {
		if f.Node != t.all.node {
			return nil
		}
		return f.portNames()
	})
	t.byIP = derive.NewIndex(t.all.Pods, "address", func(_ derive.Object, f PodFacts) []Addr {
		out := make([]Addr, len(f.IPs))
		for i, ip := range f.IPs {
			out[i] = Addr{ip}
		}
		return out
	})
	accounts := func(_ derive.Object, f Facts) []derive.Object { return f.accounts() }
	t.accounts = derive.NewTable(e, "named-accounts",
		func(derive.Object, *derive.Reader) (bool, []problem.Problem) { return true, nil },
		derive.KeysOfIndex(derive.NewIndex(t.all.Policies[AntreaClusterNetworkPolicy], "account", accounts)),
		derive.KeysOfIndex(derive.NewIndex(t.all.Policies[AntreaNetworkPolicy], "account", accounts)))

	t.all.Identities = derive.NewTable(e, "pod-identities", t.identity, derive.KeysOf(t.all.Pods))
	t.pods = derive.NewIndex(t.all.Identities, "identity",
		func(_ derive.Object, i Identity) []Identity { return []Identity{i} })
	t.sets = derive.NewTable(e, "identities", setsOf, derive.KeysOfIndex(t.pods))
	t.all.Numbers = derive.NewNumbers(e, "identity-numbers", 1, MaxIdentity, derive.KeysOfIndex(t.pods)).Except(UnknownPod)
	t.byLabel = derive.NewIndex(t.sets, "label", labelsOf)

	ofNode := derive.NewIndex(t.all.Pods, "here", func(k derive.Object, f PodFacts) []derive.Object {
		if f.Node != t.all.node {
			return nil
		}
		return []derive.Object{k}
	})
	t.here = derive.NewTable(e, "local-identities", func(k derive.Object, r *derive.Reader) (Identity, []problem.Problem) {
		i, _ := derive.Get(r, t.all.Identities, k)
		return i, nil
	}, derive.KeysOfIndex(ofNode))
	t.byHere = derive.NewIndex(t.here, "identity", func(_ derive.Object, i Identity) []Identity { return []Identity{i} })

	t.all.others.byExchanged = derive.NewIndex(t.all.LabelIdentities, "label",
		func(_ derive.Object, l LabelIdentity) []Identity { return []Identity{l.Label} })
	t.all.ClusterSetNumbers = derive.NewTable(e, "clusterset-numbers",
		func(i Identity, r *derive.Reader) (uint32, []problem.Problem) {
			for _, row := range derive.List(r, t.all.others.byExchanged, i.Exchanged()) {
				return row.Value.ID, nil
			}
			return 0, nil
		}, derive.KeysOfIndex(t.byHere))
	t.all.others.remote = derive.NewTable(e, "clusterset-identities", setsOf, derive.KeysOfIndex(t.all.others.byExchanged))
	t.all.others.byRemoteLabel = derive.NewIndex(t.all.others.remote, "label", labelsOf)
	t.all.others.remoteAt = derive.NewIndex(t.all.PodAddresses, "address", func(_ derive.Object, pods RemotePods) []Addr {
		out := make([]Addr, len(pods))
		for i, p := range pods {
			out[i] = Addr{p.IP}
		}
		return slices.Compact(out)
	})
	t.all.others.publishing = derive.NewTable(e, "published-addresses",
		func(derive.Name, *derive.Reader) (bool, []problem.Problem) { return true, nil },
		derive.KeysOfIndex(derive.NewIndex(t.all.PodAddresses, "any",
			func(derive.Object, RemotePods) []derive.Name { return []derive.Name{""} })))
}

func setsOf(i Identity, _ *derive.Reader) (*labelSets, []problem.Problem) { return i.labels(), nil }

// addPolicies adds the tables of policies and their rules, in the order in which they read each other.
func (t *Tables) addPolicies(e *derive.Engine) {
	selectors, actives, rules := &t.selectors, &t.actives, &t.rules
	limits, others := &t.limits, &t.others
	selectors.addGroups(e)
	t.Applied = derive.NewTable(e, "applied-policies", actives.applied, derive.KeysOfIndex(t.ids.byHere))
	actives.byPolicy = derive.NewIndex(t.Applied, "policy", func(_ Identity, a Applied) []Key { return a.policies() })
	active := []derive.Keys[Key]{derive.KeysOfIndex(actives.byPolicy)}
	for _, kind := range []Kind{AntreaClusterNetworkPolicy, AntreaNetworkPolicy} {
		active = append(active, derive.KeysOfIndex(derive.NewIndex(t.Policies[kind], "of-services",
			func(o derive.Object, f Facts) []Key {
				if !f.ofServices() {
					return nil
				}
				return []Key{{kind, o.Namespace, o.Name}}
			})))
	}
	actives.active = derive.NewTable(e, "active-policies", actives.activePolicy, active...)
	t.LocalVersions = derive.NewTable(e, "policy-versions", actives.versionOf, derive.KeysOf(actives.active))
	rules.instances = derive.NewTable(e, "rule-instances", rules.ruleKeys, derive.KeysOf(actives.active))
	keys := derive.KeysOfIndex(
		derive.NewIndex(rules.instances, "rule", func(_ Key, list []RuleKey) []RuleKey { return list }))
	actives.activeIn = derive.NewIndex(actives.active, "namespace",
		func(k Key, _ Facts) []derive.Name { return inNamespace(k) })
	limits.budgets = derive.NewTable(e, "policy-budgets", limits.budget, derive.KeysOfIndex(actives.activeIn))
	rules.resolved = derive.NewTable(e, "rule-facts", rules.resolve, keys).EqualBy(sameFacts)
	rules.ruledServices = derive.NewIndex(rules.resolved, "applied-service",
		func(_ RuleKey, f ruleFacts) []derive.Object { return f.AppliedServices })
	t.ServiceRules = derive.NewTable(e, "service-rules", rules.serviceRules, derive.KeysOfIndex(rules.ruledServices))
	selectors.byNamespaceLabel = derive.NewIndex(t.Namespaces, "label", labelsOfNamespace)
	selectors.inNamespaces = derive.NewTable(e, "selected-namespaces", selectors.selectedNamespaces, derive.KeysOfIndex(
		derive.NewIndex(rules.resolved, "namespace-selector", func(_ RuleKey, f ruleFacts) []derive.Name {
			return namespaceSelectors(f.Peers)
		})))
	selectors.candidates = derive.NewTable(e, "selector-candidates", selectors.candidatesOf, derive.KeysOfIndex(
		derive.NewIndex(rules.resolved, "peer", func(_ RuleKey, f ruleFacts) []Selector {
			return slices.Concat(f.Peers, f.ClusterSet)
		})))
	limits.sizes = derive.NewTable(e, "rule-sizes", limits.sizeOf, derive.KeysOf(rules.resolved))
	limits.sizesIn = derive.NewIndex(limits.sizes, "namespace",
		func(k RuleKey, _ size) []derive.Name { return inNamespace(k.Policy) })
	limits.shares = derive.NewTable(e, "policy-shares", limits.share, derive.KeysOfIndex(limits.sizesIn))
	rules.standing = derive.NewTable(e, "standing-rules", limits.stands, derive.KeysOf(rules.resolved)).EqualBy(sameFacts)
	standing := derive.NewIndex(rules.standing, "selector", func(_ RuleKey, f ruleFacts) []Selector { return f.Peers })
	selectors.peers = derive.NewTable(e, "selected-identities", selectors.selected,
		derive.KeysOfIndex(standing)).EqualBy(slices.Equal[[]Identity])
	selectors.numbered = derive.NewTable(e, "selected-numbers",
		func(s Selector, r *derive.Reader) ([]uint32, []problem.Problem) {
			list, _ := derive.Get(r, selectors.peers, s)
			return t.ids.numbersOf(r, list), nil
		}, derive.KeysOf(selectors.peers)).EqualBy(slices.Equal[[]uint32])
	selectors.named = derive.NewIndex(selectors.peers, "identity",
		func(_ Selector, list []Identity) []Identity { return list }).SameBy(
		func(_, _ []Identity) bool { return true }) // it is only asked whether there are rows
	others.remotePeers = derive.NewTable(e, "selected-clusterset-identities", others.selectedRemote,
		derive.KeysOfIndex(derive.NewIndex(rules.standing, "clusterset-selector",
			func(_ RuleKey, f ruleFacts) []Selector { return f.ClusterSet })))
	selectors.addressesOf = derive.NewTable(e, "name-addresses", selectors.learned,
		derive.KeysOfIndex(derive.NewIndex(rules.standing, "name", namesOf)))
	others.remoteServers = derive.NewTable(e, "selected-servers",
		func(s Selector, r *derive.Reader) ([]uint32, []problem.Problem) {
			list, _ := derive.Get(r, others.remotePeers, s)
			return list, nil
		}, derive.KeysOfIndex(derive.NewIndex(rules.standing, "server-selector", func(k RuleKey, f ruleFacts) []Selector {
			if k.Direction == Ingress {
				return nil
			}
			return f.ClusterSet
		})))
	others.namedServers = derive.NewIndex(others.remoteServers, "number",
		func(_ Selector, list []uint32) []clusterSetNumber {
			out := make([]clusterSetNumber, len(list))
			for i, n := range list {
				out[i] = clusterSetNumber(n)
			}
			return out
		})
	t.unknown.unknownPods(e)
	t.arrivals.add(e)
	rules.drafts = derive.NewTable(e, "rule-drafts", rules.draft, derive.KeysOf(rules.standing)).EqualBy(sameRule)
	limits.crowds = derive.NewIndex(limits.sizes, "crowd", func(_ RuleKey, s size) []crowd { return []crowd{s.crowd()} })
	limits.crowded = derive.NewTable(e, "crowded-rules", limits.crowding, derive.KeysOfIndex(limits.crowds))
	t.Rules = derive.NewTable(e, "policy-rules", rules.rule, derive.KeysOf(rules.drafts)).EqualBy(sameRule)
	t.Priorities = derive.NewOrder(e, "policy-priorities", FirstPriority, LastPriority,
		derive.KeysOfIndex(derive.NewIndex(t.Rules, "rank", func(_ RuleKey, r Rule) []Rank { return []Rank{r.Rank} })))
	t.Addresses = derive.NewTable(e, "identity-addresses", t.ids.address,
		derive.KeysOfIndex(t.ids.byIP), derive.KeysOfIndex(t.places.attachmentsAt), derive.KeysOfIndex(others.remoteAt))
	t.Virtual.Addresses = derive.NewTable(e, "further-identity-addresses", t.ids.furtherAddress,
		derive.KeysOfIndex(t.places.furtherHere), derive.KeysOfIndex(t.unknown.furtherAt))
}

// inNamespace is the Namespace of a policy that has one.
func inNamespace(k Key) []derive.Name {
	if k.Namespace == "" {
		return nil
	}
	return []derive.Name{derive.Name(k.Namespace)}
}

func labelsOfNamespace(_ derive.Object, text string) []label {
	out := []label{{}}
	for k, v := range setOf(text) {
		out = append(out, label{key: k, value: v})
	}
	return out
}

// namespaceSelectors are those in a list of selectors.
func namespaceSelectors(list []Selector) (out []derive.Name) {
	for _, s := range list {
		if s.Namespaces != "" {
			out = append(out, derive.Name(s.Namespaces))
		}
	}
	return out
}

// addGroups adds the table of the members of groups.
func (t *selectorTables) addGroups(e *derive.Engine) {
	t.groups = derive.NewTable(e, "group-members", t.group,
		derive.KeysOf(t.all.ClusterGroups), derive.KeysOf(t.all.Groups))
}

// parse returns the parsed Selector. It caches the result for each text, since many identities are compared with it.
func (t *selectorTables) parse(s Selector) (parsed, error) {
	if p, ok := t.texts[s]; ok {
		return p, nil
	}
	p, err := s.parse()
	if err == nil {
		if len(t.texts) >= 10000 {
			clear(t.texts)
		}
		t.texts[s] = p
	}
	return p, err
}

func (t *identityTables) identity(k derive.Object, r *derive.Reader) (Identity, []problem.Problem) {
	pod, _ := derive.Get(r, t.all.Pods, k)
	namespace, known := derive.Get(r, t.all.Namespaces, derive.Object{Name: k.Namespace})
	if !known {
		return "", nil // until the watch of Namespaces has brought it: nothing that selects can be decided
	}
	if pod.Labels == tooManyLabels {
		return "", manyLabels(k)
	}
	if pod.Account != "" {
		if named, _ := derive.Get(r, t.accounts, derive.Object{Namespace: k.Namespace, Name: pod.Account}); named {
			return identityOf(namespace, pod.Labels, pod.Account), nil
		}
	}
	return identityOf(namespace, pod.Labels, ""), nil
}

// MaySelect reports whether any policy could apply to a Pod of a Namespace if the Pod had suitable labels. If the
// Namespace is not known (""), every policy could apply. r is nil between two passes.
func (t *Tables) MaySelect(r *derive.Reader, namespace string) bool {
	if namespace == "" {
		return true
	}
	for kind := range Kinds {
		of := t.Policies[kind]
		subjects := t.actives.subjects[kind]
		if len(list(r, of, subjects, derive.Name(namespace))) > 0 || len(list(r, of, subjects, "")) > 0 {
			return true
		}
	}
	return false
}

func (t *activeTables) applied(i Identity, r *derive.Reader) (a Applied, _ []problem.Problem) {
	set, _ := derive.Get(r, t.all.ids.sets, i)
	for kind := range Kinds {
		for _, namespace := range []derive.Name{derive.Name(set.namespaceName()), ""} {
			for _, row := range derive.List(r, t.subjects[kind], namespace) {
				key, f := Key{kind, row.Key.Namespace, row.Key.Name}, row.Value
				for d, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
					if facts != nil && t.appliesTo(r, key, f, facts, set) {
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

// appliesTo reports whether a policy, or any of its rules in a direction, is applied to Pods of an identity.
func (t *activeTables) appliesTo(r *derive.Reader, k Key, f Facts, facts *DirectionFacts, set *labelSets) bool {
	if t.all.selectors.selects(r, k, f.AppliedTo, set) {
		return true
	}
	selectors := &t.all.selectors
	return slices.ContainsFunc(facts.Rules,
		func(rule RuleFacts) bool { return selectors.selects(r, k, rule.AppliedTo, set) })
}

// selects reports whether an appliedTo of a policy selects Pods of an identity. A policy with a Namespace does not
// apply outside of it, whatever its groups contain.
func (t *selectorTables) selects(r *derive.Reader, k Key, list []Selector, set *labelSets) bool {
	if k.Namespace != "" && set.namespaceName() != k.Namespace {
		return false
	}
	for _, s := range list {
		of := []Selector{s}
		if s.Group != "" {
			m, _ := derive.Get(r, t.groups, derive.Object{Namespace: s.Namespace, Name: s.Group})
			of = m.Selectors
		}
		for _, s := range of {
			if p, err := t.parse(s); err == nil && p.matches(set) {
				return true
			}
		}
	}
	return false
}

// namespaces are the Namespaces of Pods that the policy may be applied to, "" for any.
func (f Facts) namespaces() []derive.Name {
	var out []derive.Name
	for _, s := range f.allAppliedTo() {
		out = append(out, derive.Name(s.Namespace))
	}
	out = sorted(out, derive.Name.Compare)
	if slices.Contains(out, "") {
		return []derive.Name{""}
	}
	return out
}

// Keeps reports whether known connections continue after any change of a policy that is applied to Pods of this Node.
func (t *Tables) Keeps(r *derive.Reader, k Key) bool {
	f, _ := derive.Get(r, t.actives.active, k)
	return f.Keep
}

// allAppliedTo returns the appliedTo of the policy and its rules.
func (f Facts) allAppliedTo() []Selector {
	out := slices.Clone(f.AppliedTo)
	for _, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
		if facts != nil {
			for _, r := range facts.Rules {
				out = append(out, r.AppliedTo...)
			}
		}
	}
	return out
}

// accounts are the ServiceAccounts that the policy names.
func (f Facts) accounts() []derive.Object {
	list := f.allAppliedTo()
	for _, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
		if facts != nil {
			for _, r := range facts.Rules {
				list = append(list, r.Peers...)
			}
		}
	}
	var out []derive.Object
	for _, s := range list {
		if s.Account != "" {
			out = append(out, derive.Object{Namespace: s.Namespace, Name: s.Account})
		}
	}
	return sorted(out, derive.Object.Compare)
}

func (t *activeTables) activePolicy(k Key, r *derive.Reader) (Facts, []problem.Problem) {
	f, _ := derive.Get(r, t.all.Policies[k.Kind], k.object())
	if k.Kind == AntreaClusterNetworkPolicy || k.Kind == AntreaNetworkPolicy {
		f = t.tier(f, k, r)
	}
	if t.all.limits.bounds != DefaultBounds { // to those facts keep already
		f = f.bounded(k.problem(), t.all.limits.bounds.of(k.Namespace))
	}
	return f, f.Problems
}

// selectedNamespaces returns the names of the Namespaces that a label selector in text form selects.
func (t *selectorTables) selectedNamespaces(text derive.Name, r *derive.Reader) ([]string, []problem.Problem) {
	p, err := t.parse(Selector{Namespaces: string(text)})
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

func (t *selectorTables) selected(s Selector, r *derive.Reader) ([]Identity, []problem.Problem) {
	p, err := t.parse(s)
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
			for _, row := range derive.List(r, t.all.ids.byLabel, l) {
				if p.matches(row.Value) {
					out = append(out, row.Key)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// selectedRemote are the numbers of identities of the ClusterSet that a Selector selects.
func (t *remoteTables) selectedRemote(s Selector, r *derive.Reader) ([]uint32, []problem.Problem) {
	p, err := t.all.selectors.parse(s)
	if err != nil {
		return nil, invalid(s, err)
	}
	var out []uint32
	for _, l := range p.narrowest(s.Namespace) {
		for _, row := range derive.List(r, t.byRemoteLabel, l) {
			if p.matches(row.Value) {
				for _, named := range derive.List(r, t.byExchanged, row.Key) {
					out = append(out, named.Value.ID)
				}
			}
		}
	}
	return sorted(out, cmp.Compare[uint32]), nil
}

// invalid cannot happen with selectors that facts were made with.
func invalid(s Selector, err error) []problem.Problem {
	return []problem.Problem{{Object: problem.Object{Kind: "Selector", Name: s.String()}, Reason: reasonInvalidSelector,
		Message: err.Error()}}
}

// LabelIdentity is an identity of the ClusterSet, and its number.
type LabelIdentity struct {
	Label Identity
	ID    uint32
}

// LabelIdentityOf parses a LabelIdentity.
func LabelIdentityOf(l *mcv1alpha1.LabelIdentity) LabelIdentity {
	if l.Spec.ID == 0 || l.Spec.ID > MaxIdentity {
		return LabelIdentity{}
	}
	return LabelIdentity{Identity(l.Spec.Label), l.Spec.ID}
}

// address is the Pod that has an address, where a rule asks for it.
func (t *identityTables) address(a Addr, r *derive.Reader) (Holder, []problem.Problem) {
	who, ok := t.all.places.occupant(r, a)
	if !ok {
		return t.all.others.remoteAddress(a, r), nil
	}
	return t.holderOf(who, r), nil
}

// holderOf returns what rules know about a Pod that has an address.
func (t *identityTables) holderOf(who Occupant, r *derive.Reader) (h Holder) {
	if who.Identity == "" {
		return Holder{}
	}
	named := derive.Count(r, t.all.selectors.named, who.Identity) > 0
	for d := range h.Asked {
		denying, _ := derive.Get(r, t.all.unknown.denying, Direction(d))
		h.Asked[d] = named || denying
	}
	if h == (Holder{}) {
		return h
	}
	if h.Number, _ = derive.Get(r, t.all.Numbers, who.Identity); h.Number == 0 {
		return Holder{}
	}
	h.Network = who.Network
	return h
}

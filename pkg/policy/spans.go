package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Version names one state of a policy's spec: the generation and the beginning of its UID, as in "3/1f2e3d4c". A
// recreated policy has another UID.
type Version string

// VersionOf is the Version of an object.
func VersionOf(o metav1.Object) Version {
	uid := string(o.GetUID())
	return Version(fmt.Sprintf("%d/%s", o.GetGeneration(), uid[:min(8, len(uid))]))
}

// shortNames of the kinds that have a status, in reports.
var shortNames = [Kinds]string{AntreaClusterNetworkPolicy: "acnp", AntreaNetworkPolicy: "annp",
	ClusterNetworkPolicy: "cnp"}

// HasStatus reports whether policies of the kind have a status. NetworkPolicies of networking.k8s.io have no status.
func (k Kind) HasStatus() bool { return shortNames[k] != "" }

// Short is the policy's name in reports: "acnp/web", "annp/default/web", "cnp/web".
func (k Key) Short() string {
	if k.Namespace == "" {
		return shortNames[k.Kind] + "/" + k.Name
	}
	return shortNames[k.Kind] + "/" + k.Namespace + "/" + k.Name
}

// KeyOfShort reads the Short of a Key back.
func KeyOfShort(text string) (k Key, ok bool) {
	words := strings.Split(text, "/")
	at := slices.Index(shortNames[:], words[0])
	if at < 0 || words[0] == "" {
		return Key{}, false
	}
	k.Kind = Kind(at)
	namespaced := k.Kind == AntreaNetworkPolicy
	switch {
	case namespaced && len(words) == 3:
		k.Namespace, k.Name = words[1], words[2]
	case !namespaced && len(words) == 2:
		k.Name = words[1]
	}
	return k, k.Name != ""
}

func (t *activeTables) versionOf(k Key, r *derive.Reader) (Version, []problem.Problem) {
	if !k.HasStatus() {
		return "", nil
	}
	v, _ := derive.Get(r, t.all.Versions[k.Kind], k.object())
	return v, nil
}

// Spans derive for a whole cluster on which Nodes policies apply to Pods, and the faults of policies and groups that do
// not depend on a Node. It is for the kinds that have a status.
type Spans struct {
	// Tables has the sources to fill, except sources that only make rules: Nodes, LabelIdentities, Versions. For Pods the
	// facts of SpanFactsOf suffice.
	*Tables
	// Judgements of policies and of groups; a ClusterGroup has no Namespace.
	Judgements *derive.Table[Key, Judgement]
	Grouped    *derive.Table[derive.Object, Judgement]
	// NodeNumbers are the numbers with which Judgements name Nodes.
	NodeNumbers *derive.Numbers[derive.Name]

	places        *derive.Index[Identity, place, bool]
	identityNodes *derive.Table[Identity, []uint32]
	subjects      *derive.Table[Key, []Selector]
	selectorNodes *derive.Table[Selector, []uint32]
}

// Judgement is what is known of a policy or a group without any Node.
type Judgement struct {
	Known bool // the zero Judgement is no row
	// Nodes are the numbers of those with Pods that a policy applies to, sorted.
	Nodes []uint32
	// Everywhere is set if every Node with an agent enforces the policy. The policy is applied to Services, and clients
	// may connect to them at any Node.
	Everywhere bool
	Problems   []problem.Problem
}

// place is a Node that has Pods of an identity.
type place struct {
	Identity Identity
	Node     derive.Name
}

// Compare orders by identity, then Node.
func (p place) Compare(o place) int {
	if c := p.Identity.Compare(o.Identity); c != 0 {
		return c
	}
	return p.Node.Compare(o.Node)
}

// maxNodes is more than Kubernetes has in a cluster.
const maxNodes = 1 << 16

// SpanFactsOf returns the part of a Pod's facts that Spans read. It changes less often than the other facts.
func SpanFactsOf(p *corev1.Pod) PodFacts {
	f := PodFactsOf(p)
	if f.Node == "" {
		return PodFacts{}
	}
	f.IPs, f.Ports, f.UID, f.Created = nil, nil, "", 0
	return f
}

// NewSpans adds the tables to an engine.
func NewSpans(e *derive.Engine) *Spans {
	t := withSources(e, "")
	s := &Spans{Tables: t}
	for _, unused := range []interface{ Loaded() }{t.Nodes, t.LabelIdentities, t.PodAddresses, t.Blocks, t.Further,
		t.Learned, t.Policies[NetworkPolicy]} {
		unused.Loaded()
	}
	var policies []derive.Keys[Key]
	for kind := range Kinds {
		if kind.HasStatus() {
			t.Versions[kind].Loaded()
			policies = append(policies, derive.KeysOfIndex(derive.NewIndex(t.Policies[kind], "key",
				func(o derive.Object, _ Facts) []Key { return []Key{{kind, o.Namespace, o.Name}} })))
		}
	}
	t.ids.add(e)
	t.selectors.addGroups(e)
	s.Grouped = derive.NewTable(e, "group-judgements",
		func(k derive.Object, r *derive.Reader) (Judgement, []problem.Problem) {
			_, problems := t.selectors.group(k, r)
			return Judgement{Known: true, Problems: problems}, nil
		}, derive.KeysOf(t.ClusterGroups), derive.KeysOf(t.Groups))

	// places has the Nodes with Pods of an identity. If a further Pod starts on one of these Nodes, tables that read
	// places do not change.
	pods := derive.NewTable(e, "pod-places", s.placeOf, derive.KeysOf(t.Identities))
	present := derive.NewTable(e, "places", func(place, *derive.Reader) (bool, []problem.Problem) { return true, nil },
		derive.KeysOfIndex(derive.NewIndex(pods, "place", func(_ derive.Object, p place) []place { return []place{p} })))
	s.places = derive.NewIndex(present, "identity", func(p place, _ bool) []Identity { return []Identity{p.Identity} })
	s.NodeNumbers = derive.NewNumbers(e, "node-numbers", 1, maxNodes,
		derive.KeysOfIndex(derive.NewIndex(present, "node",
			func(p place, _ bool) []derive.Name { return []derive.Name{p.Node} })))
	s.identityNodes = derive.NewTable(e, "identity-nodes", s.nodesOfIdentity, derive.KeysOfIndex(s.places))

	s.subjects = derive.NewTable(e, "policy-subjects", s.subjectsOf, policies...)
	t.selectors.byNamespaceLabel = derive.NewIndex(t.Namespaces, "label", labelsOfNamespace)
	t.selectors.inNamespaces = derive.NewTable(e, "selected-namespaces", t.selectors.selectedNamespaces,
		derive.KeysOfIndex(derive.NewIndex(s.subjects, "namespace-selector",
			func(_ Key, list []Selector) []derive.Name { return namespaceSelectors(list) })))
	selectors := derive.KeysOfIndex(derive.NewIndex(s.subjects, "selector",
		func(_ Key, list []Selector) []Selector { return list }))
	t.selectors.peers = derive.NewTable(e, "selected-identities", t.selectors.selected, selectors)
	s.selectorNodes = derive.NewTable(e, "selected-nodes", s.nodesOfSelector, selectors)
	s.Judgements = derive.NewTable(e, "policy-judgements", s.judge, policies...)
	return s
}

func (s *Spans) placeOf(k derive.Object, r *derive.Reader) (place, []problem.Problem) {
	pod, _ := derive.Get(r, s.Pods, k)
	i, _ := derive.Get(r, s.Identities, k)
	return place{i, derive.Name(pod.Node)}, nil
}

func (s *Spans) nodesOfIdentity(i Identity, r *derive.Reader) ([]uint32, []problem.Problem) {
	var out []uint32
	for _, row := range derive.List(r, s.places, i) {
		n, _ := derive.Get(r, s.NodeNumbers, row.Key.Node)
		out = append(out, n)
	}
	return sorted(out, cmp.Compare[uint32]), nil
}

func (s *Spans) nodesOfSelector(selector Selector, r *derive.Reader) ([]uint32, []problem.Problem) {
	identities, _ := derive.Get(r, s.selectors.peers, selector)
	var u union
	for _, i := range identities {
		list, _ := derive.Get(r, s.identityNodes, i)
		u.add(list)
	}
	return u.sorted(), nil
}

// union of sorted lists of Nodes: most of the lists of one have the same.
type union struct{ has []bool }

func (u *union) add(list []uint32) {
	if len(list) > 0 {
		u.has = append(u.has, make([]bool, max(0, int(list[len(list)-1])+1-len(u.has)))...)
	}
	for _, n := range list {
		u.has[n] = true
	}
}

func (u *union) sorted() (out []uint32) {
	for n, has := range u.has {
		if has {
			out = append(out, uint32(n))
		}
	}
	return out
}

// subjectsOf returns the selectors of a policy's appliedTo. Selectors of groups replace the groups.
func (s *Spans) subjectsOf(k Key, r *derive.Reader) (out []Selector, _ []problem.Problem) {
	f, _ := derive.Get(r, s.Policies[k.Kind], k.object())
	if f.Ingress == nil && f.Egress == nil {
		return nil, nil
	}
	for _, one := range f.allAppliedTo() {
		of := []Selector{one}
		if one.Group != "" {
			m, _ := derive.Get(r, s.selectors.groups, derive.Object{Namespace: one.Namespace, Name: one.Group})
			of = m.Selectors
		}
		for _, selector := range of {
			if k.Namespace != "" { // whatever its groups are
				selector.Namespace = k.Namespace
			}
			out = append(out, selector)
		}
	}
	return sorted(out, Selector.Compare), nil
}

func (s *Spans) judge(k Key, r *derive.Reader) (Judgement, []problem.Problem) {
	f, problems := s.actives.activePolicy(k, r)
	j := Judgement{Known: true, Problems: slices.Clip(problems)}
	of := func(field string, list []Selector) {
		for _, one := range list {
			if one.Group == "" {
				continue
			}
			group := derive.Object{Namespace: one.Namespace, Name: one.Group}
			m, _ := derive.Get(r, s.selectors.groups, group)
			switch {
			case !m.Known:
				j.Problems = append(j.Problems, unknownGroup(k, field, one))
			case m.Broken:
				j.Problems = append(j.Problems, problem.Problem{Object: k.problem(), Field: field, Reason: reasonGroupNotComputed,
					Message: fmt.Sprintf("not all members of %s are known: see its condition %s", one,
						crdv1beta1.ConditionGroupMembersComputed)})
			}
		}
	}
	of("spec.appliedTo", f.AppliedTo)
	for d, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
		for i := range facts.rules() {
			field := fmt.Sprintf("spec.%s[%d]", Direction(d), i)
			of(field+".appliedTo", facts.Rules[i].AppliedTo)
			of(field, facts.Rules[i].Peers)
		}
	}
	var u union
	list, _ := derive.Get(r, s.subjects, k)
	for _, selector := range list {
		nodes, _ := derive.Get(r, s.selectorNodes, selector)
		u.add(nodes)
	}
	j.Nodes, j.Everywhere = u.sorted(), f.ofServices()
	return j, nil
}

func (d *DirectionFacts) rules() []RuleFacts {
	if d == nil {
		return nil
	}
	return d.Rules
}

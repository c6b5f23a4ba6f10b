package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Identity is the normal form of the labels of a Pod and of its Namespace: "ns:k=v,k=v&pod:k=v", each sorted. Clusters
// exchange it in this form (LabelIdentity, spec.label). Labels do not contain the separators of this form. If a policy
// names the ServiceAccount of the Pod, "&serviceaccount:NAME" follows.
type Identity string

// Compare orders by the text, which makes an Identity the key of a table.
func (i Identity) Compare(o Identity) int { return cmp.Compare(i, o) }

const (
	namespacePart = "ns:"
	podPart       = "&pod:"
	accountPart   = "&serviceaccount:" // not exchanged
)

// IdentityOf returns the Identity of a Pod, from the normal forms of its Namespace's labels (NamespaceLabels) and of
// its own (PodLabels).
func IdentityOf(namespace, pod string) Identity { return identityOf(namespace, pod, "") }

// identityOf joins two label sets in normal form. Pods with the same identity share its memory. account is set if a
// policy names it.
func identityOf(namespace, pod, account string) Identity {
	text := namespacePart + namespace + podPart + pod
	if account != "" {
		text += accountPart + account
	}
	return unique.Make(Identity(text)).Value()
}

// Exchanged returns the identity in the form that clusters exchange: without the ServiceAccount, which has a meaning
// only in its own cluster.
func (i Identity) Exchanged() Identity {
	labels, _, _ := strings.Cut(string(i), accountPart)
	return Identity(labels)
}

// normalForm writes labels as sorted pairs, joined with commas. Antrea's members do the same, so that one set has one
// number in the ClusterSet.
func normalForm(set map[string]string) string {
	pairs := make([]string, 0, len(set))
	for key, value := range set {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// PodLabels is the normal form of a Pod's labels.
func PodLabels(p *corev1.Pod) string { return normalForm(p.Labels) }

// NamespaceLabels returns the normal form of a Namespace's labels. It always contains the label with the Namespace's
// name, which API servers set since Kubernetes 1.21. So policies that select only Pods select Pods of one Namespace.
func NamespaceLabels(n *corev1.Namespace) string {
	set := n.Labels
	if set[corev1.LabelMetadataName] != n.Name {
		set = maps.Clone(set)
		if set == nil {
			set = map[string]string{}
		}
		set[corev1.LabelMetadataName] = n.Name
	}
	return normalForm(set)
}

// Namespace returns the name of the Pods' Namespace, or "" if the identity has no name.
func (i Identity) Namespace() string { return i.labels().namespaceName() }

// labelSets is an Identity taken apart.
type labelSets struct {
	namespace, pod labels.Set
	account        string
}

func (i Identity) labels() *labelSets {
	text, account, _ := strings.Cut(strings.TrimPrefix(string(i), namespacePart), accountPart)
	namespace, pod, _ := strings.Cut(text, podPart)
	return &labelSets{setOf(namespace), setOf(pod), account}
}

func setOf(normal string) labels.Set {
	set := labels.Set{}
	if normal == "" {
		return set
	}
	for pair := range strings.SplitSeq(normal, ",") {
		key, value, _ := strings.Cut(pair, "=")
		set[key] = value
	}
	return set
}

// label is a key of the index of identities: a label of a Pod, in one Namespace or in any. Without a label it finds all
// identities.
type label struct{ namespace, key, value string }

// Compare makes a label the key of an index.
func (l label) Compare(o label) int {
	return cmp.Or(cmp.Compare(l.namespace, o.namespace), cmp.Compare(l.key, o.key), cmp.Compare(l.value, o.value))
}

// labelsOf are all that an identity is found by.
func labelsOf(_ Identity, s *labelSets) []label {
	namespace := s.namespaceName()
	out := []label{{}, {namespace: namespace}}
	for k, v := range s.pod {
		out = append(out, label{key: k, value: v}, label{namespace, k, v})
	}
	return out
}

// Selector selects identities. It is the key of the table of what it selects.
type Selector struct {
	// Namespace is the name of the only Namespace. It is empty if labels select the Namespaces.
	Namespace string
	// Namespaces and Pods are label selectors in text form (labels.Selector.String). An empty text selects all.
	Namespaces, Pods string
	// Account is the name of the ServiceAccount that Pods of Namespace run with.
	Account string
	// Group is the name of a Group in Namespace, or of a ClusterGroup if Namespace is empty. It stands for the selectors
	// of the group's members.
	Group string
}

// Compare makes a Selector the key of a table.
func (s Selector) Compare(o Selector) int {
	return cmp.Or(cmp.Compare(s.Namespace, o.Namespace), cmp.Compare(s.Namespaces, o.Namespaces),
		cmp.Compare(s.Pods, o.Pods),
		cmp.Compare(s.Account, o.Account), cmp.Compare(s.Group, o.Group))
}

// String says for people what is selected.
func (s Selector) String() string {
	switch {
	case s.Group != "" && s.Namespace != "":
		return "Group " + s.Namespace + "/" + s.Group
	case s.Group != "":
		return "ClusterGroup " + s.Group
	case s.Account != "":
		return "Pods with ServiceAccount " + s.Namespace + "/" + s.Account
	}
	pods := "Pods"
	if s.Pods != "" {
		pods += " with " + s.Pods
	}
	switch {
	case s.Namespace != "":
		return pods + " in Namespace " + s.Namespace
	case s.Namespaces != "":
		return pods + " in Namespaces with " + s.Namespaces
	}
	return pods + " in all Namespaces"
}

// parsed is a Selector that can be asked.
type parsed struct {
	Selector
	namespaces, pods labels.Selector
}

// parse parses the Selector. It cannot fail for a Selector in facts, since labels.Selector has made its texts.
func (s Selector) parse() (parsed, error) {
	namespaces, err := labels.Parse(s.Namespaces)
	if err != nil {
		return parsed{}, err
	}
	pods, err := labels.Parse(s.Pods)
	return parsed{s, namespaces, pods}, err
}

func (p parsed) matches(s *labelSets) bool {
	if p.Namespace != "" && s.namespaceName() != p.Namespace || p.Account != "" && s.account != p.Account {
		return false
	}
	return p.namespaces.Matches(s.namespace) && p.pods.Matches(s.pod)
}

// narrowest returns labels such that every selected Pod has at least one of them. namespace restricts the Pods to one
// Namespace; "" means any.
func (p parsed) narrowest(namespace string) []label {
	out := oneOf(p.pods)
	if out == nil {
		return []label{{namespace: namespace}}
	}
	for i := range out {
		out[i].namespace = namespace
	}
	return out
}

// oneOf returns the labels of the first requirement that lists values, or nil if there is no such requirement.
func oneOf(s labels.Selector) []label {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
		default:
			continue
		}
		var out []label
		for _, value := range r.ValuesUnsorted() {
			out = append(out, label{key: r.Key(), value: value})
		}
		slices.SortFunc(out, label.Compare)
		return out
	}
	return nil
}

// namespaceName is the name of the Pods' Namespace.
func (s *labelSets) namespaceName() string { return s.namespace[corev1.LabelMetadataName] }

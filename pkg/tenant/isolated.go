package tenant

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Labels and annotations of Namespaces, as of Contrail CN2.
const (
	// LabelIsolated on a Namespace isolates it, with the value true: its Pods are in a network of their own. It needs the
	// agents' feature gate TenantNetworks.
	LabelIsolated = "core.juniper.net/isolated-namespace"
	// AnnotationForwardingMode on an isolated Namespace lets its Pods reach destinations outside of the Pods' network,
	// with the value fabric-snat. There they have the address of their Node.
	AnnotationForwardingMode = "core.juniper.net/forwarding-mode"
)

// LabelCopy on a Namespace of the central cluster marks the copy of an isolated Namespace of a member. The leader's
// controller writes it. Routers and VirtualNetworks in the copy are about networks of the member. So agents and
// controllers of the central cluster itself ignore them. Its value is the cluster ID, or true if the ID is too long for
// a label.
const LabelCopy = "tombolo.io/copy"

// Annotations of copies.
const (
	// AnnotationCopyOf on a copy has the cluster ID and the name of the original Namespace, as in west/shop. On the copy
	// of a VirtualNetwork the name of the VirtualNetwork follows, as in west/shop/blue.
	AnnotationCopyOf = "tombolo.io/copy-of"
	// AnnotationCopiedLabels on a copy lists the labels that come from the original Namespace. The leader's controller
	// does not change other labels.
	AnnotationCopiedLabels = "tombolo.io/copied-labels"
)

// Forwarding modes of an isolated Namespace.
const (
	modeFabricSNAT = "fabric-snat" // its Pods reach destinations outside, with the address of their Node
	modeIPFabric   = "ip-fabric"   // the same without translation, which is not served
)

// doorIsolated is the front door of isolated Namespaces.
const doorIsolated = "isolated"

// NamespaceFacts is the part of a Namespace that networks of tenants depend on.
type NamespaceFacts struct {
	UID      types.UID
	Isolated bool
	Created  int64 // seconds
	// These are facts of an isolated Namespace. Label is the value of the label, Mode the forwarding mode, and Network the
	// TenantNetwork that the Namespace joins.
	Label, Mode, Network string
	// PodNetwork is the annotation that names the network of its Pods' first interfaces.
	PodNetwork string
	// Copy is set for the copy of a Namespace of another cluster. It is not isolated here.
	Copy bool
}

// NamespaceFactsOf returns the facts about a Namespace. For a Namespace that is not isolated, these are the UID, the
// time of creation and the network of first interfaces.
func NamespaceFactsOf(n *corev1.Namespace) NamespaceFacts {
	f := NamespaceFacts{UID: n.UID, Created: n.CreationTimestamp.Unix()}
	if _, f.Copy = n.Labels[LabelCopy]; f.Copy {
		return f
	}
	f.PodNetwork = n.Annotations[AnnotationPodNetwork]
	if label, ok := n.Labels[LabelIsolated]; ok && label != "false" {
		f.Isolated, f.Label, f.Mode = true, label, n.Annotations[AnnotationForwardingMode]
		f.Network = n.Annotations[AnnotationNetwork]
	}
	return f
}

// Isolated returns the tables of the networks of isolated Namespaces of this cluster.
func Isolated(
	e *derive.Engine, namespaces derive.Readable[derive.Object, NamespaceFacts],
) *derive.Table[Name, Network] {
	byName := derive.NewIndex(namespaces, "isolated", func(k derive.Object, f NamespaceFacts) []Name {
		if !f.Isolated {
			return nil
		}
		return []Name{{Door: doorIsolated, Name: k.Name}}
	})
	return derive.NewTable(e, "isolated-namespaces", func(k Name, r *derive.Reader) (Network, []problem.Problem) {
		f, _ := derive.Get(r, namespaces, derive.Object{Name: k.Name})
		return Network{Object: problem.About("Namespace", "", k.Name), UID: f.UID, Created: f.Created,
			Members: []Member{{Namespace: k.Name}}, Field: labelField}, f.problems(k.Name)
	}, derive.KeysOfIndex(byName))
}

// NamespaceProblems returns the defects of the label and the annotation of a Namespace, in a cluster whose agents have
// networks of tenants. They depend only on the Namespace.
func NamespaceProblems(n *corev1.Namespace) []problem.Problem {
	f := NamespaceFactsOf(n)
	if f.Isolated {
		return append(f.problems(n.Name), ownProblems(n)...)
	}
	ps := ownProblems(n)
	for _, annotation := range []struct{ name, field string }{
		{AnnotationForwardingMode, annotationField}, {AnnotationNetwork, networkField},
	} {
		if value := n.Annotations[annotation.name]; value != "" {
			ps.Add(problem.About("Namespace", "", n.Name), annotation.field, reasonNotIsolated, "the annotation has "+
				problem.Quoted(value)+", and no effect, since the Namespace is not isolated: set the label "+LabelIsolated+
				" to \"true\", or remove the annotation")
		}
	}
	return ps
}

// Fields of a Namespace.
const (
	labelField      = "metadata.labels[" + LabelIsolated + "]"
	annotationField = "metadata.annotations[" + AnnotationForwardingMode + "]"
	networkField    = "metadata.annotations[" + AnnotationNetwork + "]"
	podNetworkField = "metadata.annotations[" + AnnotationPodNetwork + "]"
)

// problems returns the defects of an isolated Namespace.
func (f NamespaceFacts) problems(name string) []problem.Problem {
	object := problem.About("Namespace", "", name)
	var ps problem.List
	if f.Label != "true" {
		ps.Add(object, labelField, reasonInvalidLabel, "it is isolated, although the label "+LabelIsolated+
			" has "+problem.Quoted(f.Label)+": write \"true\", or remove the label")
	}
	switch name {
	case metav1.NamespaceDefault:
		ps.Add(object, labelField, reasonSystemNamespace, "it is isolated, and of its Services other Namespaces reach "+
			"kubernetes alone: remove the label "+LabelIsolated)
	case metav1.NamespaceSystem:
		ps.Add(object, labelField, reasonSystemNamespace, "it is isolated, so Pods of other Namespaces do not reach "+
			"DNS and other Services there: remove the label "+LabelIsolated)
	}
	switch f.Mode {
	case "", modeFabricSNAT:
	case modeIPFabric:
		ps.Add(object, annotationField, reasonNotServed, "the Pods of an isolated Namespace do not reach the network "+
			"of the Nodes without translation: set "+AnnotationForwardingMode+" to "+modeFabricSNAT+", or remove it")
	default:
		ps.Add(object, annotationField, reasonInvalidForwardingMode, AnnotationForwardingMode+" has "+
			problem.Quoted(f.Mode)+", which is ignored: set it to "+modeFabricSNAT+", or remove it")
	}
	return ps
}

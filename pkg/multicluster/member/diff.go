package member

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Verb is what a Write does.
type Verb string

// The verbs of Writes.
const (
	Create       Verb = "create"
	Update       Verb = "update"
	UpdateStatus Verb = "update the status of"
	Delete       Verb = "delete"
)

// Write is one write to an API server.
type Write struct {
	Verb   Verb
	Kind   string
	Object client.Object  // complete for Create and Update; what was seen for Delete
	About  problem.Object // the object to blame when it fails
}

// String reads "create Service default/antrea-mc-web".
func (w Write) String() string {
	return fmt.Sprintf("%s %s", w.Verb, object(w.Kind, w.Object.GetNamespace(), w.Object.GetName()))
}

// Change is what turns the View into what is desired: in this cluster and in the leader, each
// in the order to do it.
type Change struct {
	Local  []Write
	Leader []Write
}

// Diff compares what a plan wants with the view it was made for. Objects that already say what
// is wanted are not written, and fields that the plan does not speak of keep their values.
func Diff(v View, d Desired) Change {
	var c Change
	set := problem.Object{Kind: "ClusterSet", Namespace: v.Namespace}
	if d.ClusterSet != nil {
		set = object("ClusterSet", d.ClusterSet.Namespace, d.ClusterSet.Name)
		c.Local = append(c.Local, diffClusterSet(v.ClusterSets, d.ClusterSet)...)
	}
	c.Local = append(c.Local, kindDiff[*mcv1alpha1.Gateway]{
		kind: "Gateway", about: set, keep: d.KeepGateways, merge: mergeGateway,
	}.writes(v.Gateways, d.Gateways)...)
	c.Local = append(c.Local, kindDiff[*mcv1alpha1.ClusterInfoImport]{
		kind: "ClusterInfoImport", about: set, keep: d.KeepImports, merge: mergeClusterInfoImport,
	}.writes(v.ClusterInfoImports, d.ClusterInfoImports)...)
	c.Local = append(c.Local, kindDiff[*corev1.Service]{
		kind: "Service", about: set, keep: d.KeepImports, mine: isImported[*corev1.Service], merge: mergeService,
	}.writes(v.Services, d.Services)...)
	c.Local = append(c.Local, kindDiff[*Endpoints]{
		kind: "Endpoints", about: set, keep: d.KeepImports, mine: isImported[*Endpoints], merge: mergeEndpoints,
	}.writes(v.Endpoints, d.Endpoints)...)
	c.Local = append(c.Local, kindDiff[*mcsv1alpha1.ServiceImport]{
		kind: "ServiceImport", about: set, keep: d.KeepImports, mine: isImported[*mcsv1alpha1.ServiceImport], merge: mergeServiceImport,
	}.writes(v.ServiceImports, d.ServiceImports)...)
	there := byKey(v.ServiceExports)
	for _, want := range d.ServiceExports {
		have := there[key{Namespace: want.Namespace, Name: want.Name}]
		if have != nil && !equality.Semantic.DeepEqual(have.Status, want.Status) {
			about := object("ServiceExport", want.Namespace, want.Name)
			c.Local = append(c.Local, Write{Verb: UpdateStatus, Kind: "ServiceExport", Object: want, About: about})
		}
	}
	c.Leader = kindDiff[*mcv1alpha1.ResourceExport]{
		kind: "ResourceExport", about: set, keep: d.KeepExports, mine: isOwnExport, same: sameSource, merge: mergeResourceExport,
	}.writes(v.Leader.ResourceExports, d.ResourceExports)
	for i := range c.Leader {
		re := c.Leader[i].Object.(*mcv1alpha1.ResourceExport)
		if re.Spec.Kind != multicluster.ClusterInfoKind {
			c.Leader[i].About = object("ServiceExport", re.Spec.Namespace, re.Spec.Name)
		}
	}
	return c
}

// diffClusterSet writes the spec first; the status follows when the spec has been seen.
func diffClusterSet(have []*mcv1alpha2.ClusterSet, want *mcv1alpha2.ClusterSet) []Write {
	about := object("ClusterSet", want.Namespace, want.Name)
	for _, h := range have {
		switch {
		case h.Name != want.Name || h.Namespace != want.Namespace:
		case !equality.Semantic.DeepEqual(h.Spec, want.Spec):
			return []Write{{Verb: Update, Kind: "ClusterSet", Object: want, About: about}}
		case !equality.Semantic.DeepEqual(h.Status, want.Status):
			return []Write{{Verb: UpdateStatus, Kind: "ClusterSet", Object: want, About: about}}
		}
	}
	return nil
}

// kindDiff compares the objects of one kind.
type kindDiff[T client.Object] struct {
	kind  string
	about problem.Object
	keep  bool         // leave the kind alone altogether
	mine  func(T) bool // may we delete it? nil: always
	// same says whether an object is the desired one and not another's of that name, which is
	// deleted first; nil: always.
	same  func(have, want T) bool
	merge func(into, want T)
}

// writes lists removals first: a Gateway goes before its successor comes.
func (k kindDiff[T]) writes(have, want []T) []Write {
	if k.keep {
		return nil
	}
	there, wanted := byKey(have), byKey(want)
	var writes []Write
	for _, h := range inOrder(have) {
		want, keep := wanted[client.ObjectKeyFromObject(h)]
		keep = keep && (k.same == nil || k.same(h, want))
		if keep || h.GetDeletionTimestamp() != nil || (k.mine != nil && !k.mine(h)) {
			continue
		}
		writes = append(writes, Write{Verb: Delete, Kind: k.kind, Object: h, About: k.about})
	}
	for _, w := range inOrder(want) {
		h, ok := there[client.ObjectKeyFromObject(w)]
		if !ok {
			writes = append(writes, Write{Verb: Create, Kind: k.kind, Object: w, About: k.about})
			continue
		}
		if h.GetDeletionTimestamp() != nil || k.same != nil && !k.same(h, w) {
			continue // made anew when it is gone
		}
		merged := h.DeepCopyObject().(T)
		k.merge(merged, w)
		if !equality.Semantic.DeepEqual(h, merged) {
			writes = append(writes, Write{Verb: Update, Kind: k.kind, Object: merged, About: k.about})
		}
	}
	return writes
}

func isImported[T metav1.Object](o T) bool { return imported(o) }

// isOwnExport says whether this controller makes and removes ResourceExports of that kind.
func isOwnExport(re *mcv1alpha1.ResourceExport) bool {
	switch re.Spec.Kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind:
		return true
	}
	return false
}

func mergeGateway(into, want *mcv1alpha1.Gateway) {
	into.GatewayIP, into.InternalIP, into.ServiceCIDR = want.GatewayIP, want.InternalIP, want.ServiceCIDR
}

func mergeClusterInfoImport(into, want *mcv1alpha1.ClusterInfoImport) {
	into.Spec = want.Spec
}

func mergeService(into, want *corev1.Service) {
	mergeAnnotations(into, want)
	into.Spec.Type, into.Spec.Selector = want.Spec.Type, want.Spec.Selector
	same := slices.EqualFunc(into.Spec.Ports, want.Spec.Ports, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Port == b.Port &&
			cmp.Or(a.Protocol, corev1.ProtocolTCP) == cmp.Or(b.Protocol, corev1.ProtocolTCP)
	})
	if !same { // the API server fills in targetPort and protocol
		into.Spec.Ports = want.Spec.Ports
	}
}

func mergeEndpoints(into, want *Endpoints) {
	mergeAnnotations(into, want)
	if !sameSubsets(into.Subsets, want.Subsets) {
		into.Subsets = want.Subsets
	}
}

func mergeServiceImport(into, want *mcsv1alpha1.ServiceImport) {
	mergeAnnotations(into, want)
	into.Spec.Type, into.Spec.IPs, into.Spec.Ports = want.Spec.Type, want.Spec.IPs, want.Spec.Ports
}

// sameSource says whether a ResourceExport is of the same object as another one of its name. Two
// Services may derive one name; what an export is of cannot be changed.
func sameSource(a, b *mcv1alpha1.ResourceExport) bool {
	return a.Spec.Kind == b.Spec.Kind && a.Spec.Namespace == b.Spec.Namespace && a.Spec.Name == b.Spec.Name
}

func mergeResourceExport(into, want *mcv1alpha1.ResourceExport) {
	into.Spec = want.Spec
	if into.Labels == nil {
		into.Labels = map[string]string{}
	}
	maps.Copy(into.Labels, want.Labels)
	for _, f := range want.Finalizers {
		if !slices.Contains(into.Finalizers, f) {
			into.Finalizers = append(into.Finalizers, f)
		}
	}
}

func mergeAnnotations(into, want metav1.Object) {
	annotations := into.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, want.GetAnnotations())
	into.SetAnnotations(annotations)
}

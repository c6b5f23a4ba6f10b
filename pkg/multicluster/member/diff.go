package member

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
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
	Object client.Object  // as it should be; for Delete as it is
	Have   client.Object  // for Update and UpdateStatus: as it is
	About  problem.Object // the object to blame when it fails
	After  string         // an object, as jobObject names it, whose write comes first; empty for none
	// Version is the resourceVersion of what is there: what has changed since is judged again. Empty for Create, and where
	// it is not known.
	Version string
}

// String reads "create Service default/antrea-mc-web".
func (w Write) String() string {
	return fmt.Sprintf("%s %s", w.Verb, object(w.Kind, w.Object.GetNamespace(), w.Object.GetName()))
}

// object names an object for Problems; ns is empty for cluster-scoped kinds.
func object(kind, ns, name string) problem.Object {
	return problem.Object{Kind: kind, Namespace: ns, Name: name}
}

// jobObject names an object to a retry.Queue.
func jobObject(kind string, o metav1.Object) string {
	return object(kind, o.GetNamespace(), o.GetName()).String()
}

// writeClusterSet writes the spec first; the status follows when the spec has been seen.
func (t *reachTables) writeClusterSet(k derive.Object, r *derive.Reader) *Write {
	want, _ := derive.Get(r, t.clusterSet, k)
	have, ok := derive.Get(r, t.base.clusterSets, k)
	w := &Write{Kind: "ClusterSet", Have: have, Object: want, About: object("ClusterSet", k.Namespace, k.Name)}
	switch {
	case !ok:
	case !equality.Semantic.DeepEqual(have.Spec, want.Spec):
		w.Verb = Update
		return w
	case !equality.Semantic.DeepEqual(have.Status, want.Status):
		w.Verb = UpdateStatus
		return w
	}
	return nil
}

func (t *gatewayTables) writeGateway(k derive.Object, r *derive.Reader) *Write {
	m, _ := derive.Get(r, t.base.membership, here)
	if !m.Leave && m.ID == "" {
		return nil
	}
	have, _ := derive.Get(r, t.gateways, k)
	var want *mcv1alpha1.Gateway
	for _, row := range derive.List(r, t.byName, k) {
		want = one(row.Value, k)
	}
	w := kindDiff[*mcv1alpha1.Gateway]{kind: "Gateway", merge: mergeGateway}.write(have, want, t.base.about(m))
	if w != nil || have == nil || want == nil || !have.DeletionTimestamp.IsZero() {
		return w
	}
	ways, _ := derive.Get(r, t.status, k)
	if slices.Equal(have.Status.Ways, ways) {
		return nil
	}
	merged := have.DeepCopy()
	merged.Status.Ways = ways
	return &Write{Verb: UpdateStatus, Kind: "Gateway", Have: have, Object: merged, About: object("Gateway", k.Namespace, k.Name)}
}

func (t *clusterTables) writeClusterInfoImport(k derive.Object, r *derive.Reader) *Write {
	m, _ := derive.Get(r, t.base.membership, here)
	if m.keepsImports() {
		return nil
	}
	have, _ := derive.Get(r, t.clusterInfoImports, k)
	var want *mcv1alpha1.ClusterInfoImport
	for _, row := range derive.List(r, t.byName, k) {
		want = one(row.Value, k)
	}
	return kindDiff[*mcv1alpha1.ClusterInfoImport]{kind: "ClusterInfoImport", merge: mergeClusterInfoImport}.write(have,
		want, t.base.about(m))
}

// one is the object of a list with a key; the zero value if there is none.
func one[T metav1.Object](list []T, k derive.Object) (found T) {
	for _, o := range list {
		if keyOf(o) == k {
			found = o
		}
	}
	return found
}

// importOfService is what is imported as the Service of this key.
func (t *importTables) importOfService(k derive.Object, r *derive.Reader) *importedService {
	name, ok := strings.CutPrefix(k.Name, multicluster.ImportedPrefix)
	if !ok {
		return nil
	}
	i, _ := derive.Get(r, t.imports, derive.Object{Namespace: k.Namespace, Name: name})
	return i
}

func (t *importTables) writeService(k derive.Object, r *derive.Reader) *Write {
	have, _ := derive.Get(r, t.services.services, k)
	var want *corev1.Service
	if i := t.importOfService(k, r); i != nil {
		want = i.Service
	}
	w := writeImported(t, r, kindDiff[*corev1.Service]{kind: "Service", mine: isImported[*corev1.Service], same: sameAddressing, merge: mergeService}, have, want)
	if w != nil && w.Verb == Delete {
		si, _ := derive.Get(r, t.serviceImports, derive.Object{Namespace: k.Namespace, Name: strings.TrimPrefix(k.Name, multicluster.ImportedPrefix)})
		if byAntrea(si, have) && !imported(si) {
			w.After = jobObject("ServiceImport", si) // it is known by the Service's address
		}
	}
	return w
}

func (t *importTables) writeEndpoints(k derive.Object, r *derive.Reader) *Write {
	have, _ := derive.Get(r, t.endpoints, k)
	var want *Endpoints
	if i := t.importOfService(k, r); i != nil {
		want = i.Endpoints
		if have != nil && want != nil && have.Labels[discoveryv1.LabelSkipMirror] == "" && !t.slicesThere(i, r) {
			// Of an earlier version: Kubernetes' copies stay until ours are there.
			want = want.DeepCopy()
			want.Labels = nil
		}
	}
	return writeImported(t, r, kindDiff[*Endpoints]{kind: "Endpoints", mine: isImported[*Endpoints], merge: mergeEndpoints}, have, want)
}

// slicesThere says whether all EndpointSlices of an imported Service are there.
func (t *importTables) slicesThere(i *importedService, r *derive.Reader) bool {
	for _, s := range i.Slices {
		if have, ok := derive.Get(r, t.services.slices, keyOf(s)); !ok ||
			!equality.Semantic.DeepEqual(have.Endpoints, s.Endpoints) {
			return false
		}
	}
	return true
}

func (t *importTables) writeSlice(k derive.Object, r *derive.Reader) *Write {
	have, _ := derive.Get(r, t.services.slices, k)
	var want *discoveryv1.EndpointSlice
	for _, row := range derive.List(r, t.slicesToImport, k) {
		if i := slices.IndexFunc(row.Value.Slices, func(s *discoveryv1.EndpointSlice) bool { return keyOf(s) == k }); i >= 0 {
			want = row.Value.Slices[i]
		}
	}
	if have != nil && !importedSlice(have) {
		return nil // somebody's of the same name: the import says so
	}
	d := kindDiff[*discoveryv1.EndpointSlice]{kind: "EndpointSlice", mine: importedSlice, merge: mergeSlice,
		same: func(have, want *discoveryv1.EndpointSlice) bool { return have.AddressType == want.AddressType }}
	return writeImported(t, r, d, have, want)
}

// writeServiceImport writes the spec first; the status follows when the spec has been seen.
func (t *importTables) writeServiceImport(k derive.Object, r *derive.Reader) *Write {
	have, _ := derive.Get(r, t.serviceImports, k)
	var want *mcsv1alpha1.ServiceImport
	if i, ok := derive.Get(r, t.imports, k); ok {
		want = i.ServiceImport
	}
	mine := func(si *mcsv1alpha1.ServiceImport) bool {
		if imported(si) {
			return true
		}
		service, _ := derive.Get(r, t.services.services,
			derive.Object{Namespace: k.Namespace, Name: multicluster.ImportedPrefix + k.Name})
		return byAntrea(si, service)
	}
	w := writeImported(t, r, kindDiff[*mcsv1alpha1.ServiceImport]{kind: "ServiceImport", mine: mine, merge: mergeServiceImport}, have, want)
	if w != nil || have == nil || want == nil || !have.DeletionTimestamp.IsZero() {
		return w
	}
	m, _ := derive.Get(r, t.base.membership, here)
	merged := have.DeepCopy()
	merged.Status.Clusters, merged.Status.EndpointSliceObjects = want.Status.Clusters, want.Status.EndpointSliceObjects
	merged.Status.Conditions = withConditions(withoutRequests(have.Status.Conditions, have.Annotations), want.Status.Conditions)
	if m.keepsImports() || equality.Semantic.DeepEqual(have.Status, merged.Status) {
		return nil
	}
	return &Write{Verb: UpdateStatus, Kind: "ServiceImport", Have: have, Object: merged, About: t.base.about(m)}
}

// writeImported is for the kinds that imports are made of. Of the many objects that are users' own nothing more is read.
func writeImported[T interface {
	comparable
	client.Object
}](t *importTables, r *derive.Reader, d kindDiff[T], have, want T) *Write {
	var none T
	if want == none && (have == none || !d.mine(have)) {
		return nil
	}
	m, _ := derive.Get(r, t.base.membership, here)
	if m.keepsImports() {
		return nil
	}
	return d.write(have, want, t.base.about(m))
}

func (t *exportTables) writeServiceExport(k derive.Object, r *derive.Reader) *Write {
	have, ok := derive.Get(r, t.serviceExports, k)
	conditions, _ := derive.Get(r, t.validity, k)
	if !ok {
		return nil
	}
	service, _ := derive.Get(r, t.services.services, k)
	_, wrong := requestsOf(have, service != nil && headless(service))
	conditions = append(slices.Clone(conditions), requestsCondition(have, wrong)...)
	want := exportWith(have, conditions)
	want.Status.Conditions = withoutRequests(want.Status.Conditions, have.Annotations)
	if equality.Semantic.DeepEqual(have.Status, want.Status) {
		return nil
	}
	return &Write{Verb: UpdateStatus, Kind: "ServiceExport", Have: have, Object: want, About: object("ServiceExport", k.Namespace, k.Name)}
}

// about is the object to blame for writes of which there is no better one.
func (t *membershipTables) about(m membership) problem.Object {
	if m.Leave {
		return problem.Object{Kind: "ClusterSet", Namespace: t.namespace}
	}
	return m.set()
}

// keepsImports says that not enough is known to decide about what is imported.
func (m membership) keepsImports() bool { return !m.Leave && !m.Joined }

// kindDiff compares objects of one kind.
type kindDiff[T interface {
	comparable
	client.Object
}] struct {
	kind string
	mine func(T) bool // may we delete it? nil: always
	// same says whether an object is the desired one and not another's of that name, which is
	// deleted first; nil: always.
	same  func(have, want T) bool
	merge func(into, want T)
}

// write is what turns have into want, either of which may be nil; nil for nothing.
func (d kindDiff[T]) write(have, want T, about problem.Object) *Write {
	var none T
	keep := want != none && (have == none || d.same == nil || d.same(have, want))
	switch {
	case have == none && want == none:
		return nil
	case have == none:
		return &Write{Verb: Create, Kind: d.kind, Object: want, About: about}
	case have.GetDeletionTimestamp() != nil: // made anew when it is gone
		return nil
	case !keep:
		if d.mine != nil && !d.mine(have) {
			return nil
		}
		return &Write{Verb: Delete, Kind: d.kind, Object: have, About: about}
	}
	merged := have.DeepCopyObject().(T)
	d.merge(merged, want)
	if equality.Semantic.DeepEqual(have, merged) {
		return nil
	}
	return &Write{Verb: Update, Kind: d.kind, Have: have, Object: merged, About: about}
}

func isImported[T metav1.Object](o T) bool { return imported(o) }

// isOwnExport says whether this controller makes and removes ResourceExports of that kind.
func isOwnExport(re *mcv1alpha1.ResourceExport) bool {
	switch re.Spec.Kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind, multicluster.LabelIdentityKind, multicluster.PolicyReportKind, multicluster.PodAddressesKind:
		return true
	}
	return false
}

func mergeGateway(into, want *mcv1alpha1.Gateway) {
	into.GatewayIP, into.InternalIP, into.ServiceCIDR = want.GatewayIP, want.InternalIP, want.ServiceCIDR
	mergeAnnotation(into, want, multicluster.AnnotationKeptPods)
	mergeAnnotation(into, want, multicluster.AnnotationPhase)
	mergeAnnotation(into, want, multicluster.AnnotationInsideIP)
}

func mergeClusterInfoImport(into, want *mcv1alpha1.ClusterInfoImport) {
	mergeAnnotation(into, want, multicluster.AnnotationWithdrawn)
	into.Spec = want.Spec
}

// sameAddressing says whether a Service can be turned into another one: whether it has a ClusterIP cannot be changed.
func sameAddressing(have, want *corev1.Service) bool {
	return have.Spec.Type == want.Spec.Type && headless(have) == headless(want)
}

func mergeService(into, want *corev1.Service) {
	mergeAnnotations(into, want)
	mergeAnnotation(into, want, multicluster.AnnotationClusterOrder)
	mergeAnnotation(into, want, multicluster.AnnotationMinimumReady)
	into.Spec.Type, into.Spec.Selector = want.Spec.Type, want.Spec.Selector
	same := slices.EqualFunc(into.Spec.Ports, want.Spec.Ports, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Port == b.Port &&
			cmp.Or(a.Protocol, corev1.ProtocolTCP) == cmp.Or(b.Protocol, corev1.ProtocolTCP)
	})
	if !same { // the API server fills in targetPort and protocol
		into.Spec.Ports = want.Spec.Ports
	}
	if cmp.Or(into.Spec.SessionAffinity, corev1.ServiceAffinityNone) != cmp.Or(want.Spec.SessionAffinity, corev1.ServiceAffinityNone) {
		into.Spec.SessionAffinity = cmp.Or(want.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	}
	if want.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || want.Spec.SessionAffinityConfig != nil { // else the API server's default
		into.Spec.SessionAffinityConfig = want.Spec.SessionAffinityConfig
	}
	const everywhere = corev1.ServiceInternalTrafficPolicyCluster
	if ptr.Deref(into.Spec.InternalTrafficPolicy, everywhere) != ptr.Deref(want.Spec.InternalTrafficPolicy, everywhere) {
		into.Spec.InternalTrafficPolicy = ptr.To(ptr.Deref(want.Spec.InternalTrafficPolicy, everywhere))
	}
}

func mergeEndpoints(into, want *Endpoints) {
	mergeAnnotations(into, want)
	if value, ok := want.Labels[discoveryv1.LabelSkipMirror]; ok {
		metav1.SetMetaDataLabel(&into.ObjectMeta, discoveryv1.LabelSkipMirror, value)
	}
	if !sameSubsets(into.Subsets, want.Subsets) {
		into.Subsets = want.Subsets
	}
}

func mergeSlice(into, want *discoveryv1.EndpointSlice) {
	if into.Labels == nil {
		into.Labels = map[string]string{}
	}
	maps.Copy(into.Labels, want.Labels)
	mergeAnnotation(into, want, multicluster.AnnotationReady)
	into.Ports, into.Endpoints = want.Ports, want.Endpoints
}

// mergeServiceImport leaves nothing of what is there: what an export does not ask for any more has to go.
func mergeServiceImport(into, want *mcsv1alpha1.ServiceImport) {
	into.Labels, into.Annotations, into.Spec = want.Labels, want.Annotations, want.Spec
}

// sameSource says whether a ResourceExport is of the same object as another one of its name. Two
// Services may derive one name; what an export is of cannot be changed.
func sameSource(a, b *mcv1alpha1.ResourceExport) bool {
	return a.Spec.Kind == b.Spec.Kind && a.Spec.Namespace == b.Spec.Namespace && a.Spec.Name == b.Spec.Name
}

func mergeResourceExport(into, want *mcv1alpha1.ResourceExport) {
	into.Spec = want.Spec
	if _, ok := want.Annotations[multicluster.AnnotationService]; ok {
		mergeAnnotation(into, want, multicluster.AnnotationService)
	}
	mergeAnnotation(into, want, multicluster.AnnotationReady)
	mergeAnnotation(into, want, multicluster.AnnotationReached)
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

// mergeAnnotation has one annotation be as it should, which may be none.
func mergeAnnotation(into, want metav1.Object, key string) {
	annotations := into.GetAnnotations()
	value, ok := want.GetAnnotations()[key]
	switch {
	case !ok:
		delete(annotations, key)
	case annotations == nil:
		into.SetAnnotations(map[string]string{key: value})
	default:
		annotations[key] = value
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

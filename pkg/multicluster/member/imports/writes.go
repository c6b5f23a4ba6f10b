package imports

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// importOfService returns the import whose derived Service has this key.
func (t *Tables) importOfService(k derive.Object, r *derive.Reader) *importedService {
	name, ok := strings.CutPrefix(k.Name, multicluster.ImportedPrefix)
	if !ok {
		return nil
	}
	i, _ := derive.Get(r, t.Imports, derive.Object{Namespace: k.Namespace, Name: name})
	return i
}

func (t *Tables) writeService(k derive.Object, r *derive.Reader) *writes.Write {
	have, _ := derive.Get(r, t.services.Services, k)
	var want *corev1.Service
	if i := t.importOfService(k, r); i != nil {
		want = i.Service
	}
	w := writeImported(t, r, writes.Diff[*corev1.Service]{Kind: "Service", Mine: isImported[*corev1.Service],
		Same: sameAddressing, Merge: mergeService}, have, want)
	if w != nil && w.Verb == writes.Delete {
		si, _ := derive.Get(r, t.ServiceImports, derive.Object{Namespace: k.Namespace,
			Name: strings.TrimPrefix(k.Name, multicluster.ImportedPrefix)})
		if byAntrea(si, have) && !services.Imported(si) {
			w.After = writes.Key("ServiceImport", si) // the ServiceImport is recognized through the Service's address
		}
	}
	return w
}

func (t *Tables) writeEndpoints(k derive.Object, r *derive.Reader) *writes.Write {
	have, _ := derive.Get(r, t.Endpoints, k)
	var want *services.Endpoints
	if i := t.importOfService(k, r); i != nil {
		want = i.Endpoints
		if have != nil && want != nil && have.Labels[discoveryv1.LabelSkipMirror] == "" && !t.slicesThere(i, r) {
			// Of an earlier version: Kubernetes' copies stay until ours are there.
			want = want.DeepCopy()
			want.Labels = nil
		}
	}
	return writeImported(t, r, writes.Diff[*services.Endpoints]{Kind: "Endpoints", Mine: isImported[*services.Endpoints],
		Merge: mergeEndpoints}, have, want)
}

// slicesThere reports whether all EndpointSlices of an imported Service exist.
func (t *Tables) slicesThere(i *importedService, r *derive.Reader) bool {
	for _, s := range i.Slices {
		if have, ok := derive.Get(r, t.services.Slices, derive.ObjectOf(s)); !ok ||
			!equality.Semantic.DeepEqual(have.Endpoints, s.Endpoints) {
			return false
		}
	}
	return true
}

func (t *Tables) writeSlice(k derive.Object, r *derive.Reader) *writes.Write {
	have, _ := derive.Get(r, t.services.Slices, k)
	var want *discoveryv1.EndpointSlice
	for _, row := range derive.List(r, t.slicesToImport, k) {
		if i := slices.IndexFunc(row.Value.Slices, func(
			s *discoveryv1.EndpointSlice) bool {
			return derive.ObjectOf(s) == k
		}); i >= 0 {
			want = row.Value.Slices[i]
		}
	}
	if have != nil && !services.ImportedSlice(have) {
		return nil // a user's object of the same name, which the import reports
	}
	d := writes.Diff[*discoveryv1.EndpointSlice]{Kind: "EndpointSlice", Mine: services.ImportedSlice, Merge: mergeSlice,
		Same: func(have, want *discoveryv1.EndpointSlice) bool { return have.AddressType == want.AddressType }}
	return writeImported(t, r, d, have, want)
}

// writeServiceImport writes the spec first; the status follows when the spec has been seen.
func (t *Tables) writeServiceImport(k derive.Object, r *derive.Reader) *writes.Write {
	have, _ := derive.Get(r, t.ServiceImports, k)
	var want *mcsv1alpha1.ServiceImport
	if i, ok := derive.Get(r, t.Imports, k); ok {
		want = i.ServiceImport
	}
	mine := func(si *mcsv1alpha1.ServiceImport) bool {
		if services.Imported(si) {
			return true
		}
		service, _ := derive.Get(r, t.services.Services,
			derive.Object{Namespace: k.Namespace, Name: multicluster.ImportedPrefix + k.Name})
		return byAntrea(si, service)
	}
	w := writeImported(t, r, writes.Diff[*mcsv1alpha1.ServiceImport]{Kind: "ServiceImport", Mine: mine,
		Merge: mergeServiceImport}, have, want)
	if w != nil || have == nil || want == nil || !have.DeletionTimestamp.IsZero() {
		return w
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	merged := have.DeepCopy()
	merged.Status.Clusters, merged.Status.EndpointSliceObjects = want.Status.Clusters, want.Status.EndpointSliceObjects
	merged.Status.Conditions = services.WithConditions(services.WithoutRequests(have.Status.Conditions, have.Annotations),
		want.Status.Conditions)
	if m.KeepsImports() || equality.Semantic.DeepEqual(have.Status, merged.Status) {
		return nil
	}
	return &writes.Write{Verb: writes.UpdateStatus, Kind: "ServiceImport", Have: have, Object: merged,
		About: t.base.About(m)}
}

// writeImported returns the missing write for a kind of which imports make objects. Most objects of these kinds belong
// to users. For these it reads nothing more.
func writeImported[T interface {
	comparable
	client.Object
}](t *Tables, r *derive.Reader, d writes.Diff[T], have, want T) *writes.Write {
	var none T
	if want == none && (have == none || !d.Mine(have)) {
		return nil
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.KeepsImports() {
		return nil
	}
	return d.Between(have, want, t.base.About(m))
}

func isImported[T metav1.Object](o T) bool { return services.Imported(o) }

// sameAddressing reports whether an update can turn one Service into the other. An update can only add or remove the
// second ClusterIP.
func sameAddressing(have, want *corev1.Service) bool {
	return have.Spec.Type == want.Spec.Type && services.Headless(have) == services.Headless(want) &&
		(len(have.Spec.IPFamilies) == 0 || len(want.Spec.IPFamilies) == 0 ||
			len(common(have.Spec.IPFamilies, want.Spec.IPFamilies)) > 0)
}

func mergeService(into, want *corev1.Service) {
	writes.MergeAnnotations(into, want)
	writes.MergeAnnotation(into, want, multicluster.AnnotationClusterOrder)
	writes.MergeAnnotation(into, want, multicluster.AnnotationMinimumReady)
	into.Spec.Type, into.Spec.Selector = want.Spec.Type, want.Spec.Selector
	mergeFamilies(&into.Spec, &want.Spec)
	same := slices.EqualFunc(into.Spec.Ports, want.Spec.Ports, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Port == b.Port &&
			cmp.Or(a.Protocol, corev1.ProtocolTCP) == cmp.Or(b.Protocol, corev1.ProtocolTCP)
	})
	if !same { // the API server fills in targetPort and protocol
		into.Spec.Ports = want.Spec.Ports
	}
	if cmp.Or(into.Spec.SessionAffinity, corev1.ServiceAffinityNone) != cmp.Or(want.Spec.SessionAffinity,
		corev1.ServiceAffinityNone) {
		into.Spec.SessionAffinity = cmp.Or(want.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	}
	// else the API server's default
	if want.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || want.Spec.SessionAffinityConfig != nil {
		into.Spec.SessionAffinityConfig = want.Spec.SessionAffinityConfig
	}
	const everywhere = corev1.ServiceInternalTrafficPolicyCluster
	if ptr.Deref(into.Spec.InternalTrafficPolicy, everywhere) != ptr.Deref(want.Spec.InternalTrafficPolicy, everywhere) {
		into.Spec.InternalTrafficPolicy = ptr.To(ptr.Deref(want.Spec.InternalTrafficPolicy, everywhere))
	}
}

func mergeEndpoints(into, want *services.Endpoints) {
	writes.MergeAnnotations(into, want)
	if value, ok := want.Labels[discoveryv1.LabelSkipMirror]; ok {
		metav1.SetMetaDataLabel(&into.ObjectMeta, discoveryv1.LabelSkipMirror, value)
	}
	if !SameSubsets(into.Subsets, want.Subsets) {
		into.Subsets = want.Subsets
	}
}

// SameSubsets reports whether two lists of subsets have the same endpoints. API servers may group and sort subsets. So
// the addresses with their ports are compared.
func SameSubsets(a, b []services.Subset) bool {
	return maps.Equal(flatten(a), flatten(b))
}

func flatten(subsets []services.Subset) map[string]bool {
	m := map[string]bool{}
	for _, s := range subsets {
		texts := make([]string, len(s.Ports))
		for i, p := range s.Ports {
			texts[i] = services.PortText(p)
		}
		if len(texts) == 0 {
			texts = []string{"none"}
		}
		for _, t := range texts {
			for _, a := range s.Addresses {
				m["ready "+a.IP+" "+a.Hostname+" "+t] = true
			}
			for _, a := range s.NotReadyAddresses {
				m["not ready "+a.IP+" "+t] = true
			}
		}
	}
	return m
}

func mergeSlice(into, want *discoveryv1.EndpointSlice) {
	if into.Labels == nil {
		into.Labels = map[string]string{}
	}
	maps.Copy(into.Labels, want.Labels)
	writes.MergeAnnotation(into, want, multicluster.AnnotationReady)
	into.Ports, into.Endpoints = want.Ports, want.Endpoints
}

// mergeServiceImport replaces all labels, all annotations and the spec, so that a field that no export has any more
// disappears.
func mergeServiceImport(into, want *mcsv1alpha1.ServiceImport) {
	into.Labels, into.Annotations, into.Spec = want.Labels, want.Annotations, want.Spec
}

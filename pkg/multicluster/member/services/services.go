// Package services has the facts of this cluster's Services and EndpointSlices. It also has the common parts of exports
// and imports: subsets of endpoints, conditions, and annotations about requests.
package services

import (
	"net/netip"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// Tables has the Services of this cluster with their EndpointSlices.
type Tables struct {
	Services  *derive.Source[derive.Object, *corev1.Service]
	Slices    *derive.Source[derive.Object, *discoveryv1.EndpointSlice]
	ByService *derive.Index[derive.Object, derive.Object, *discoveryv1.EndpointSlice]
}

// New adds the tables of Services and EndpointSlices.
func New(k *writes.Kinds, endpointIPType string) *Tables {
	t := &Tables{}
	t.Services = writes.NewSource(k, k.Cluster, "Service", "services", serviceFacts, ImportedVersion)
	t.Slices = writes.NewSource(k, k.Cluster, "EndpointSlice", "endpointslices",
		sliceFacts(endpointIPType), importedSliceVersion)
	t.ByService = derive.NewIndex(t.Slices, "service",
		func(k derive.Object, s *discoveryv1.EndpointSlice) []derive.Object {
			return []derive.Object{{Namespace: k.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}}
		})
	return t
}

// ImportedVersion returns the version of an imported object, and "" for other objects. It is for kinds of which only
// imported objects are written.
func ImportedVersion[T metav1.Object](o T) string {
	if !Imported(o) {
		return ""
	}
	return o.GetResourceVersion()
}

func serviceFacts(o *corev1.Service) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: writes.MetaFacts(o, multicluster.AnnotationImportedService, multicluster.AnnotationClusterOrder,
			multicluster.AnnotationMinimumReady),
		Spec: corev1.ServiceSpec{
			Type: o.Spec.Type, Selector: o.Spec.Selector, Ports: o.Spec.Ports, ClusterIP: o.Spec.ClusterIP,
			ClusterIPs:      o.Spec.ClusterIPs,
			SessionAffinity: o.Spec.SessionAffinity, SessionAffinityConfig: o.Spec.SessionAffinityConfig,
			IPFamilies: o.Spec.IPFamilies, IPFamilyPolicy: o.Spec.IPFamilyPolicy,
			InternalTrafficPolicy: o.Spec.InternalTrafficPolicy, TrafficDistribution: o.Spec.TrafficDistribution,
		},
	}
}

// Headless reports whether a Service has no virtual address. Its clients find its Pods through DNS.
func Headless(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.ClusterIP == corev1.ClusterIPNone
}

// ClusterIPs returns the ClusterIPs of a Service, in their order.
func ClusterIPs(service *corev1.Service) (out []netip.Addr) {
	ips := service.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{service.Spec.ClusterIP}
	}
	for _, text := range ips {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// Imported reports whether an object carries our mark of an imported one.
func Imported(o metav1.Object) bool {
	_, ok := o.GetAnnotations()[multicluster.AnnotationImportedService]
	return ok
}

// ImportedSlice reports whether an EndpointSlice belongs to an imported Service.
func ImportedSlice(o *discoveryv1.EndpointSlice) bool {
	return o.Labels[discoveryv1.LabelManagedBy] == multicluster.EndpointSliceManager
}

// importedSliceVersion is importedVersion for EndpointSlices.
func importedSliceVersion(o *discoveryv1.EndpointSlice) string {
	if !ImportedSlice(o) {
		return ""
	}
	return o.ResourceVersion
}

// byController reports whether Kubernetes made an EndpointSlice for a Service with a ClusterIP.
func byController(o *discoveryv1.EndpointSlice) bool {
	if _, headless := o.Labels[corev1.IsHeadlessService]; headless {
		return false
	}
	switch o.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return true
	}
	return false
}

// factDraining is an annotation in the facts of an EndpointSlice. It has the number of endpoints that terminate but
// still answer. Objects in the API server do not have it.
const factDraining = "draining"

// sliceFacts returns the facts of EndpointSlices. If Services are exported with their ClusterIP, it keeps only two
// counts, as annotations: ready endpoints, and terminating ones that still answer. For Services that are or may be
// headless it keeps these endpoints. EndpointSlices of imported Services stay complete, since they are compared with
// the desired ones.
func sliceFacts(types string) func(*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	return func(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: writes.MetaFacts(o), AddressType: o.AddressType}
		if ImportedSlice(o) {
			s.ObjectMeta = writes.MetaFacts(o, multicluster.AnnotationReady)
			s.Labels, s.Ports, s.Endpoints = o.Labels, o.Ports, o.Endpoints
			return s
		}
		s.UID = ""
		s.Labels = map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]}
		pods := types == config.EndpointIPTypePodIP || !byController(o)
		if pods {
			s.Ports = o.Ports
		}
		count := map[string]int{}
		for _, e := range o.Endpoints {
			fact := discoveryv1.Endpoint{}
			switch {
			case Ready(e):
				count[multicluster.AnnotationReady]++
			case Draining(e):
				count[factDraining]++
				fact.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true),
					Terminating: ptr.To(true)}
			default:
				continue
			}
			if pods {
				fact.Addresses, fact.Hostname = e.Addresses, e.Hostname
				s.Endpoints = append(s.Endpoints, fact)
			}
		}
		if !pods {
			s.Annotations = map[string]string{multicluster.AnnotationReady: strconv.Itoa(count[multicluster.AnnotationReady]),
				factDraining: strconv.Itoa(count[factDraining])}
		}
		return s
	}
}

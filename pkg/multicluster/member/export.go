package member

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// Reasons of a ServiceExport's condition Valid.
const (
	reasonSucceed              = "Succeed"
	reasonServiceNotFound      = "ServiceNotFound"
	reasonTypeNotSupported     = "ServiceTypeNotSupported"
	reasonImportedService      = "ImportedService"
	reasonWithoutEndpoints     = "ServiceWithoutEndpoints"
	reasonNoClusterIP          = "ServiceNoClusterIP"
	reasonNameConflict         = "ExportNameConflict" // two Services derive the same ResourceExport name
	reasonNameTooLong          = "ExportNameTooLong"
	reasonConvergeFailure      = "ConvergeFailure" // the leader's word for exports that contradict each other
	reasonResourceExportFailed = "ResourceExportFailed"
)

// exports plans a Service and an Endpoints ResourceExport for every ServiceExport whose
// Service can be exported, and the condition that tells how it stands. A Service that cannot
// be exported any more, whatever the reason, has no ResourceExports.
func (p *planner) exports() {
	services := byKey(p.Services)
	slicesOf := p.slicesOf(p.ServiceExports)
	there := byKey(p.Leader.ResourceExports)
	p.desired.KeepExports = !p.joined
	taken := map[string]key{}

	// Those that hold their ResourceExports already come first, so that a newcomer with the
	// same derived name does not take them over.
	exports := inOrder(p.ServiceExports)
	slices.SortStableFunc(exports, func(a, b *mcsv1alpha1.ServiceExport) int {
		return p.holds(b, there) - p.holds(a, there)
	})
	for _, export := range exports {
		if !export.DeletionTimestamp.IsZero() {
			continue
		}
		k := key{Namespace: export.Namespace, Name: export.Name}
		service := services[k]
		subsets, refusal := p.exportable(service, slicesOf[k])
		name := p.exportName(k, multicluster.ServiceKind)
		if refusal.Reason == "" {
			if other, ok := taken[name]; ok {
				refusal = metav1.Condition{Reason: reasonNameConflict, Message: fmt.Sprintf(
					"ResourceExport name %s is taken by Service %s; rename one of the two Services", name, other)}
			} else if errs := validation.IsDNS1123Subdomain(p.exportName(k, multicluster.EndpointsKind)); len(errs) > 0 {
				refusal = metav1.Condition{Reason: reasonNameTooLong, Message: fmt.Sprintf(
					"ResourceExport name %s is not valid: %s; rename the Service", name, errs[0])}
			}
		}
		if refusal.Reason != "" {
			p.validity(export, metav1.ConditionFalse, refusal.Reason, refusal.Message)
			continue
		}
		taken[name] = k
		serviceExport := p.resourceExport(k, multicluster.ServiceKind)
		serviceExport.Spec.Service = &mcv1alpha1.ServiceExport{ServiceSpec: corev1.ServiceSpec{Ports: service.Spec.Ports}}
		endpointsExport := p.resourceExport(k, multicluster.EndpointsKind)
		endpointsExport.Spec.Endpoints = &mcv1alpha1.EndpointsExport{Subsets: subsets}
		p.desired.ResourceExports = append(p.desired.ResourceExports, serviceExport, endpointsExport)

		// Succeed is said once the leader has it; until then the condition stays as it is.
		have := there[key{Namespace: serviceExport.Namespace, Name: serviceExport.Name}]
		if have != nil && !sameSource(have, serviceExport) {
			p.validity(export, metav1.ConditionFalse, reasonNameConflict, fmt.Sprintf(
				"ResourceExport name %s is still taken by Service %s/%s, which is not exported any more; this Service is exported as soon as the leader has removed that ResourceExport",
				name, have.Spec.Namespace, have.Spec.Name))
		} else if have != nil && have.DeletionTimestamp.IsZero() && equality.Semantic.DeepEqual(have.Spec, serviceExport.Spec) {
			p.validity(export, metav1.ConditionTrue, reasonSucceed, "The Service is exported successfully")
		}
		for _, want := range []*mcv1alpha1.ResourceExport{serviceExport, endpointsExport} {
			if have := there[key{Namespace: want.Namespace, Name: want.Name}]; have != nil && sameSource(have, want) {
				p.leaderVerdict(export, have)
			}
		}
	}
}

// holds is 1 if the ServiceExport's Service ResourceExport is in the leader already, else 0.
func (p *planner) holds(export *mcsv1alpha1.ServiceExport, there map[key]*mcv1alpha1.ResourceExport) int {
	name := p.exportName(key{Namespace: export.Namespace, Name: export.Name}, multicluster.ServiceKind)
	re := there[key{Namespace: p.set.Spec.Namespace, Name: name}]
	if re != nil && re.Spec.Namespace == export.Namespace && re.Spec.Name == export.Name {
		return 1
	}
	return 0
}

// exportable returns the endpoints to export for a Service, or the reason and message why it
// cannot be exported. The order of the checks is part of the contract.
func (p *planner) exportable(service *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice) ([]subset, metav1.Condition) {
	switch {
	case service == nil || !service.DeletionTimestamp.IsZero():
		return nil, metav1.Condition{Reason: reasonServiceNotFound, Message: "The Service does not exist"}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, metav1.Condition{Reason: reasonTypeNotSupported, Message: "Services of type ExternalName are not supported"}
	case imported(service):
		return nil, metav1.Condition{Reason: reasonImportedService, Message: "The Service is imported from other clusters and may not be exported again"}
	}
	pods := podSubsets(endpointSlices)
	if p.Config.EndpointIPType == config.EndpointIPTypePodIP {
		if len(pods) == 0 {
			return nil, metav1.Condition{Reason: reasonWithoutEndpoints, Message: "The Service has no ready IPv4 Endpoints"}
		}
		return pods, metav1.Condition{}
	}
	if !hasReady(endpointSlices) {
		return nil, metav1.Condition{Reason: reasonWithoutEndpoints, Message: "The Service has no ready Endpoints"}
	}
	one := subset{}
	for _, ip := range clusterIPs(service) {
		one.Addresses = append(one.Addresses, address{IP: ip})
	}
	for _, p := range service.Spec.Ports {
		one.Ports = append(one.Ports, port{Name: p.Name, Port: p.Port, Protocol: p.Protocol})
	}
	if len(one.Addresses) == 0 {
		return nil, metav1.Condition{Reason: reasonNoClusterIP, Message: "The Service has no valid IPv4 ClusterIP; headless Services can only be exported with endpointIPType PodIP"}
	}
	return []subset{one}, metav1.Condition{}
}

// resourceExport begins the ResourceExport of one kind for a Service.
func (p *planner) resourceExport(service key, kind string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.set.Spec.Namespace,
			Name:      p.exportName(service, kind),
			Labels: map[string]string{
				multicluster.LabelSourceKind:      kind,
				multicluster.LabelSourceClusterID: p.id,
				multicluster.LabelSourceNamespace: service.Namespace,
				multicluster.LabelSourceName:      service.Name,
			},
			Finalizers: []string{multicluster.ResourceExportFinalizer},
		},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: p.id, Kind: kind, Namespace: service.Namespace, Name: service.Name},
	}
}

// exportName is the derived name of a Service's ResourceExport of one kind.
func (p *planner) exportName(service key, kind string) string {
	suffix := multicluster.ServiceSuffix
	if kind == multicluster.EndpointsKind {
		suffix = multicluster.EndpointsSuffix
	}
	return multicluster.ResourceExportName(p.id, service.Namespace, service.Name, suffix)
}

// validity desires the condition Valid of a ServiceExport.
func (p *planner) validity(export *mcsv1alpha1.ServiceExport, status metav1.ConditionStatus, reason, message string) {
	want := export.DeepCopy()
	apimeta.SetStatusCondition(&want.Status.Conditions, metav1.Condition{
		Type: string(mcsv1alpha1.ServiceExportConditionValid), Status: status, Reason: reason, Message: message,
		ObservedGeneration: export.Generation, LastTransitionTime: metav1.NewTime(p.Now),
	})
	p.desired.ServiceExports = append(p.desired.ServiceExports, want)
}

// leaderVerdict reports why the leader does not import a ResourceExport.
func (p *planner) leaderVerdict(export *mcsv1alpha1.ServiceExport, have *mcv1alpha1.ResourceExport) {
	for _, c := range have.Status.Conditions {
		if c.Type == mcv1alpha1.ResourceExportFailure && c.Status == corev1.ConditionFalse {
			p.problem(object("ServiceExport", export.Namespace, export.Name), "", reasonConvergeFailure, fmt.Sprintf(
				"the leader refuses ResourceExport %s/%s: %s", have.Namespace, have.Name, c.Message))
		}
	}
}

// slicesOf returns the EndpointSlices of the exported Services only.
func (p *planner) slicesOf(exports []*mcsv1alpha1.ServiceExport) map[key][]*discoveryv1.EndpointSlice {
	m := make(map[key][]*discoveryv1.EndpointSlice, len(exports))
	for _, e := range exports {
		m[key{Namespace: e.Namespace, Name: e.Name}] = nil
	}
	for _, s := range inOrder(p.EndpointSlices) {
		k := key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		if _, ok := m[k]; ok && s.DeletionTimestamp.IsZero() {
			m[k] = append(m[k], s)
		}
	}
	return m
}

// ready says whether an endpoint takes traffic; unknown counts as ready, as the API defines.
func ready(e discoveryv1.Endpoint) bool {
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

func hasReady(endpointSlices []*discoveryv1.EndpointSlice) bool {
	for _, s := range endpointSlices {
		if slices.ContainsFunc(s.Endpoints, ready) {
			return true
		}
	}
	return false
}

// clusterIPs are the IPv4 ClusterIPs of a Service.
func clusterIPs(service *corev1.Service) []string {
	ips := service.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{service.Spec.ClusterIP}
	}
	var v4 []string
	for _, ip := range ips {
		if isIPv4(ip) {
			v4 = append(v4, ip)
		}
	}
	return v4
}

// imported says whether an object carries our mark of an imported one.
func imported(o metav1.Object) bool {
	_, ok := o.GetAnnotations()[multicluster.AnnotationImportedService]
	return ok
}

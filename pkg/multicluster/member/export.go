package member

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// exportTables are the Services that this cluster exports. Their keys are the Services' names.
type exportTables struct {
	base     *membershipTables
	services *serviceTables

	serviceExports *derive.Source[derive.Object, *mcsv1alpha1.ServiceExport]

	exportable       *derive.Table[derive.Object, *exportable]
	exportableByName *derive.Index[derive.Name, derive.Object, *exportable]
	holders          *derive.Table[derive.Name, derive.Object] // which Service has a ResourceExport's name
	exports          *derive.Table[derive.Object, *exported]
	byName           *derive.Index[derive.Object, derive.Object, *exported]
	validity         *derive.Table[derive.Object, []metav1.Condition]
}

func newExportTables(k *kinds, base *membershipTables, services *serviceTables) *exportTables {
	t := &exportTables{base: base, services: services}
	t.serviceExports = writtenKind(k, k.cluster, "ServiceExport", "serviceexports", serviceExportFacts, version)
	t.exportable = derive.NewTable(k.Engine, "exportable", t.exportableOf, derive.KeysOf(t.serviceExports))
	t.exportableByName = derive.NewIndex(t.exportable, "name", func(_ derive.Object, x *exportable) []derive.Name {
		if x.Refusal != "" {
			return nil
		}
		return []derive.Name{derive.Name(x.Name)}
	})
	t.holders = derive.NewTable(k.Engine, "export-names", t.holderOf, derive.KeysOfIndex(t.exportableByName))
	t.exports = derive.NewTable(k.Engine, "exports", t.exportOf, derive.KeysOf(t.exportable))
	t.byName = derive.NewIndex(t.exports, "name", func(_ derive.Object, x *exported) []derive.Object {
		return keysOf(x.list())
	})
	t.validity = derive.NewTable(k.Engine, "validity", t.validityOf, derive.KeysOf(t.serviceExports))
	return t
}

func (t *exportTables) writes(k *kinds) *writeTable {
	return k.table("write-serviceexports", t.writeServiceExport, derive.KeysOf(t.validity))
}

// exported returns the endpoints that this cluster exports for a Service, and whether it exports the Service.
func (t *exportTables) exported(service derive.Object, r *derive.Reader) ([]subset, bool) {
	x, ok := derive.Get(r, t.exports, service)
	if !ok || x.Endpoints == nil {
		return nil, ok
	}
	return x.Endpoints.Spec.Endpoints.Subsets, true
}

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
	reasonMetadataInvalid      = "ExportedMetadataInvalid" // labels or annotations that no import may have
	reasonExportPending        = "ExportPending"           // it is not with the leader yet; Succeed says that it is
	reasonNoClusterSet         = "NoClusterSet"            // the cluster has left
)

// reasonsOfValid are those by which it is known that a ServiceExport has the conditions of this controller and not another implementation's.
var reasonsOfValid = []string{reasonSucceed, reasonServiceNotFound, reasonTypeNotSupported, reasonImportedService, reasonWithoutEndpoints,
	reasonNoClusterIP, reasonNameConflict, reasonNameTooLong, reasonMetadataInvalid, reasonExportPending, reasonNoClusterSet}

// exportable is what a ServiceExport asks for, or why that cannot be.
type exportable struct {
	Name     string // of the Service's ResourceExport
	Ports    []corev1.ServicePort
	Facts    exportcheck.ServiceFacts
	Subsets  []subset
	Ready    int    // endpoints behind the Service's address; 0 where the subsets are the endpoints
	Empty    bool   // no endpoint takes connections now: the Service is exported without endpoints
	Refusal  string // the reason; empty for none
	Message  string
	Observed int64 // generation of the ServiceExport
}

func (t *exportTables) exportableOf(k derive.Object, r *derive.Reader) (*exportable, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	export, ok := derive.Get(r, t.serviceExports, k)
	if m.ID == "" || !ok || !export.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var ps faults
	service, _ := derive.Get(r, t.services.services, k)
	endpointSlices := slices.DeleteFunc(values(derive.List(r, t.services.slicesByService, k)),
		func(s *discoveryv1.EndpointSlice) bool {
			return !s.DeletionTimestamp.IsZero()
		})
	x := &exportable{Name: exportName(m.ID, k, multicluster.ServiceKind), Observed: export.Generation}
	subsets, refusal := t.endpointsOf(service, endpointSlices)
	if refusal.Reason == "" {
		if errs := validation.IsDNS1123Subdomain(exportName(m.ID, k, multicluster.EndpointsKind)); len(errs) > 0 {
			refusal = metav1.Condition{Reason: reasonNameTooLong, Message: fmt.Sprintf(
				"ResourceExport name %s is not valid: %s; rename the Service", x.Name, errs[0])}
		}
	}
	if refusal.Reason == "" {
		if err := exportcheck.ServiceName("metadata.name", k.Name); err != nil {
			refusal = metav1.Condition{Reason: reasonNameTooLong, Message: fmt.Sprintf("Service %s: %v", k, err)}
		}
	}
	if refusal.Reason == "" {
		if err := exportcheck.CheckMetadata(export.Spec.ExportedLabels, export.Spec.ExportedAnnotations); err != nil {
			refusal = metav1.Condition{Reason: reasonMetadataInvalid, Message: "spec of the ServiceExport: exported " + err.Error()}
		}
	}
	if env, _ := derive.Get(r, t.base.environment, here); refusal.Reason == "" && !headless(service) &&
		t.base.config.EndpointIPType != config.EndpointIPTypePodIP {
		if ip := outsideOf(env.ServiceCIDR, clusterIPs(service)); ip != "" {
			refusal = metav1.Condition{Reason: reasonNoClusterIP, Message: fmt.Sprintf(
				"ClusterIP %s is outside of the Service range %s, the one that this cluster announces, so other clusters do not reach it: make the Service again with a clusterIP of that range, or set serviceCIDR in the member controller's configuration to a range that has both",
				ip, env.ServiceCIDR)}
		}
	}
	if x.Refusal, x.Message = refusal.Reason, refusal.Message; x.Refusal == "" {
		x.Ports, x.Subsets, x.Facts = service.Spec.Ports, subsets, factsToExport(service, export)
		if rule, err := requestsOf(export, headless(service)); err != nil {
			ps.wrongRequests("ServiceExport", k, err, "requests go as if it said nothing")
		} else if rule.To != "" {
			x.Facts.Requests = &rule
		}
		if !headless(service) && t.base.config.EndpointIPType != config.EndpointIPTypePodIP {
			x.Ready = requests.RoundReady(countServing(endpointSlices))
		}
		x.Empty = len(subsets) == 0
	}
	return x, ps
}

// factsToExport are what leaves the cluster of a Service beside its ports and endpoints.
func factsToExport(service *corev1.Service, export *mcsv1alpha1.ServiceExport) exportcheck.ServiceFacts {
	f := exportcheck.ServiceFacts{
		Created: max(0, export.CreationTimestamp.Unix()), Headless: headless(service),
		SessionAffinity: service.Spec.SessionAffinity, InternalTrafficPolicy: ptr.Deref(service.Spec.InternalTrafficPolicy, ""),
		TrafficDistribution: ptr.Deref(service.Spec.TrafficDistribution, ""), IPFamilies: service.Spec.IPFamilies,
		Metadata: exportcheck.Metadata{Labels: export.Spec.ExportedLabels, Annotations: export.Spec.ExportedAnnotations},
	}
	if c := service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && f.SessionAffinity == corev1.ServiceAffinityClientIP {
		f.AffinityTimeout = c.ClientIP.TimeoutSeconds
	}
	return f
}

// headless says that a Service has no virtual address: its clients find its Pods by DNS.
func headless(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.ClusterIP == corev1.ClusterIPNone
}

// holderOf decides which Service has the derived name of a ResourceExport: the one whose it is
// already, so that a newcomer does not take it over, else the first by Namespace and name.
func (t *exportTables) holderOf(name derive.Name, r *derive.Reader) (derive.Object, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	rows := derive.List(r, t.exportableByName, name)
	if re, ok := derive.Get(r, t.base.resourceExports, derive.Object{Namespace: m.Common, Name: string(name)}); ok {
		of := derive.Object{Namespace: re.Spec.Namespace, Name: re.Spec.Name}
		if slices.ContainsFunc(rows, func(row derive.Row[derive.Object, *exportable]) bool { return row.Key == of }) {
			return of, nil
		}
	}
	return rows[0].Key, nil
}

// exported holds the two ResourceExports of a Service. A Service that cannot be exported any more, whatever the reason, has none.
// Endpoints is nil while no endpoint takes connections: the ServiceImports live as long as the ServiceExport does (KEP-1645), and
// leaders of Antrea import the Service alone, too.
type exported struct{ Service, Endpoints *mcv1alpha1.ResourceExport }

// list returns the ResourceExports that there are.
func (x *exported) list() []*mcv1alpha1.ResourceExport {
	if x.Endpoints == nil {
		return []*mcv1alpha1.ResourceExport{x.Service}
	}
	return []*mcv1alpha1.ResourceExport{x.Service, x.Endpoints}
}

func (t *exportTables) exportOf(k derive.Object, r *derive.Reader) (*exported, []problem.Problem) {
	x, ok := derive.Get(r, t.exportable, k)
	if !ok || x.Refusal != "" {
		return nil, nil
	}
	if holder, _ := derive.Get(r, t.holders, derive.Name(x.Name)); holder != k {
		return nil, nil
	}
	m, _ := derive.Get(r, t.base.membership, here)
	out := &exported{Service: resourceExport(m, k, multicluster.ServiceKind)}
	out.Service.Annotations = map[string]string{multicluster.AnnotationService: x.Facts.String()}
	out.Service.Spec.Service = &mcv1alpha1.ServiceExport{ServiceSpec: corev1.ServiceSpec{Ports: x.Ports}}
	if x.Empty {
		return out, nil
	}
	out.Endpoints = resourceExport(m, k, multicluster.EndpointsKind)
	if x.Ready > 0 {
		out.Endpoints.Annotations = map[string]string{multicluster.AnnotationReady: strconv.Itoa(x.Ready)}
	}
	out.Endpoints.Spec.Endpoints = &mcv1alpha1.EndpointsExport{Subsets: x.Subsets}
	return out, nil
}

// exportCondition makes conditions of a ServiceExport of a generation.
func exportCondition(generation int64) func(kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return func(kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: string(kind), Status: status, Reason: reason, Message: message, ObservedGeneration: generation}
	}
}

// validityOf are the conditions of a ServiceExport: Valid with the reasons of Antrea, Ready and Conflict with those of the Multi-Cluster
// Services API. That it is exported is said once the leader has it, and stays while it gets a newer state.
func (t *exportTables) validityOf(k derive.Object, r *derive.Reader) ([]metav1.Condition, []problem.Problem) {
	x, ok := derive.Get(r, t.exportable, k)
	if !ok {
		return t.leftOf(k, r), nil
	}
	is := exportCondition(x.Observed)
	none := is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonNoConflicts), "")
	invalid := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{
			is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, reason, message),
			is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonFailed), message), none,
		}
	}
	if x.Refusal != "" {
		return invalid(x.Refusal, x.Message), nil
	}
	if holder, _ := derive.Get(r, t.holders, derive.Name(x.Name)); holder != k {
		return invalid(reasonNameConflict, fmt.Sprintf(
			"ResourceExport name %s is taken by Service %s; rename one of the two Services", x.Name, holder)), nil
	}
	want, _ := derive.Get(r, t.exports, k)
	var ps faults
	refused := ""
	for _, re := range want.list() {
		if have, ok := derive.Get(r, t.base.resourceExports, keyOf(re)); ok && sameSource(have, re) {
			refused = cmp.Or(refused, leaderVerdict(k, have, &ps))
		}
	}
	have, ok := derive.Get(r, t.base.resourceExports, keyOf(want.Service))
	switch {
	case ok && !sameSource(have, want.Service):
		return invalid(reasonNameConflict, fmt.Sprintf(
			"ResourceExport name %s is still taken by Service %s/%s, which is not exported any more; this Service is exported as soon as the leader has removed that ResourceExport",
			x.Name, have.Spec.Namespace, have.Spec.Name)), ps
	case !ok || !have.DeletionTimestamp.IsZero() || !sameExport(have, want.Service):
		m, _ := derive.Get(r, t.base.membership, here)
		export, _ := derive.Get(r, t.serviceExports, k)
		if (ok && have.DeletionTimestamp.IsZero() || !m.Joined) && apimeta.IsStatusConditionTrue(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady)) {
			return nil, ps // the leader has an older state, or has not been read
		}
		message := "the leader does not have the export yet"
		if !m.Joined {
			message = fmt.Sprintf("this cluster is not connected to a leader, see the status of %s", m.set())
		}
		return []metav1.Condition{
			is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, reasonExportPending, "The Service can be exported"),
			is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonPending), message), none,
		}, ps
	}
	message := "The Service is exported successfully"
	if x.Empty {
		message = "The Service is exported, without endpoints: none of them is ready, so other clusters' connections to this one's are refused until one is"
	}
	out := []metav1.Condition{
		is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, reasonSucceed, message),
		is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, string(mcsv1beta1.ServiceExportReasonExported), ""), none,
	}
	if refused != "" {
		out[1] = is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonFailed), refusedExport+refused)
	}
	for _, c := range have.Status.Conditions {
		switch {
		case contradicts(c):
			out[2] = is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, c.Reason, c.Message)
		case refuses(c) && !strings.HasPrefix(c.Message, exportcheck.Refused) && t.otherPorts(k, want.Service, r):
			out[2] = is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, string(mcsv1beta1.ServiceExportReasonPortConflict),
				"ports: this ClusterSet's leader imports no Service whose ports differ from those of the cluster that exported it first, and leaves this export out: "+c.Message)
		}
	}
	return out, ps
}

// leftOf are the conditions of a ServiceExport in a cluster that is in no ClusterSet: nil if none of them is this controller's, whose
// cluster may never have been in one.
func (t *exportTables) leftOf(k derive.Object, r *derive.Reader) []metav1.Condition {
	m, _ := derive.Get(r, t.base.membership, here)
	export, ok := derive.Get(r, t.serviceExports, k)
	if !m.Leave || !ok || !export.DeletionTimestamp.IsZero() {
		return nil
	}
	valid := apimeta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	if valid == nil || !slices.Contains(reasonsOfValid, valid.Reason) {
		return nil
	}
	const message = "this cluster is in no ClusterSet; create a ClusterSet to export the Service"
	is := exportCondition(export.Generation)
	return []metav1.Condition{
		is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionUnknown, reasonNoClusterSet, message),
		is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonFailed), message),
		is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonNoConflicts), ""),
	}
}

// otherPorts says whether a Service is imported with other ports than it is exported with. It is asked where a leader of another
// implementation refuses an export without saying why.
func (t *exportTables) otherPorts(k derive.Object, want *mcv1alpha1.ResourceExport, r *derive.Reader) bool {
	for _, ri := range values(derive.List(r, t.base.importsByName, k)) {
		if ri.Spec.Kind != multicluster.ServiceImportKind || ri.Spec.ServiceImport == nil {
			continue
		}
		ours, _ := exportcheck.ServicePorts("", want.Spec.Service.ServiceSpec.Ports)
		theirs, _ := exportcheck.ImportPorts("", ri.Spec.ServiceImport.Spec.Ports)
		if !slices.EqualFunc(ours, theirs, func(a, b mcsv1alpha1.ServicePort) bool {
			return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port
		}) {
			return true
		}
	}
	return false
}

// sameExport says whether the leader has what is exported.
func sameExport(have, want *mcv1alpha1.ResourceExport) bool {
	return equality.Semantic.DeepEqual(have.Spec, want.Spec) && have.Annotations[multicluster.AnnotationService] == want.Annotations[multicluster.AnnotationService]
}

// endpointsOf returns the endpoints to export for a Service, or the reason and message why it
// cannot be exported. The order of the checks is part of the contract. A Service none of whose endpoints takes
// connections is exported without endpoints.
func (t *exportTables) endpointsOf(service *corev1.Service,
	endpointSlices []*discoveryv1.EndpointSlice) ([]subset, metav1.Condition) {
	switch {
	case service == nil || !service.DeletionTimestamp.IsZero():
		return nil, metav1.Condition{Reason: reasonServiceNotFound, Message: "The Service does not exist"}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, metav1.Condition{Reason: reasonTypeNotSupported, Message: "Services of type ExternalName are not supported"}
	case imported(service):
		return nil, metav1.Condition{Reason: reasonImportedService, Message: "The Service is imported from other clusters and may not be exported again"}
	case headless(service) && t.base.config.EndpointIPType != config.EndpointIPTypePodIP &&
		len(t.base.config.PodCIDRs) == 0:
		return nil, metav1.Condition{Reason: reasonNoClusterIP, Message: "The Service has no valid IPv4 ClusterIP; headless Services are exported by the addresses of their Pods, " +
			"which other clusters reach once podCIDRs is set in the member controller's configuration and multicluster.enablePodToPodConnectivity in antrea-agent.conf of every cluster"}
	case headless(service) || t.base.config.EndpointIPType == config.EndpointIPTypePodIP:
		pods := podSubsets(endpointSlices, ready)
		if len(pods) == 0 && !headless(service) && !hasReady(endpointSlices) {
			pods = podSubsets(endpointSlices, draining) // as the Nodes of this cluster choose; DNS, of headless Services, has ready Pods alone
		}
		if len(pods) == 0 && hasReady(endpointSlices) {
			return nil, metav1.Condition{Reason: reasonWithoutEndpoints, Message: "The Service has no ready IPv4 Endpoints"}
		}
		return pods, metav1.Condition{}
	}
	one := subset{}
	for _, ip := range clusterIPs(service) {
		one.Addresses = append(one.Addresses, address{IP: ip})
	}
	for _, p := range service.Spec.Ports {
		one.Ports = append(one.Ports, port{Name: p.Name, Port: p.Port, Protocol: p.Protocol})
	}
	switch {
	case len(one.Addresses) == 0:
		return nil, metav1.Condition{Reason: reasonNoClusterIP, Message: "The Service has no valid IPv4 ClusterIP"}
	case countServing(endpointSlices) == 0:
		return nil, metav1.Condition{}
	}
	return []subset{one}, metav1.Condition{}
}

// resourceExport begins the ResourceExport of one kind for a Service.
func resourceExport(m membership, service derive.Object, kind string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Common,
			Name:      exportName(m.ID, service, kind),
			Labels: map[string]string{
				multicluster.LabelSourceKind:      kind,
				multicluster.LabelSourceClusterID: m.ID,
				multicluster.LabelSourceNamespace: service.Namespace,
				multicluster.LabelSourceName:      service.Name,
			},
			Finalizers: []string{multicluster.ResourceExportFinalizer},
		},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: m.ID, Kind: kind, Namespace: service.Namespace, Name: service.Name},
	}
}

// exportName is the derived name of a Service's ResourceExport of one kind.
func exportName(id string, service derive.Object, kind string) string {
	suffix := multicluster.ServiceSuffix
	if kind == multicluster.EndpointsKind {
		suffix = multicluster.EndpointsSuffix
	}
	return multicluster.ResourceExportName(id, service.Namespace, service.Name, suffix)
}

// refusedExport begins the message of a ServiceExport that the leader refuses.
const refusedExport = "the leader refuses the export: "

// leaderVerdict reports and returns why the leader does not import a ResourceExport.
func leaderVerdict(export derive.Object, have *mcv1alpha1.ResourceExport, ps *faults) (refused string) {
	for _, c := range have.Status.Conditions {
		if refuses(c) {
			ps.add(object("ServiceExport", export.Namespace, export.Name), "", reasonConvergeFailure, fmt.Sprintf(
				"the leader refuses ResourceExport %s/%s: %s", have.Namespace, have.Name, c.Message))
			refused = c.Message
		}
	}
	return refused
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

// draining reports whether an endpoint ends and still answers. Where no endpoint of a Service is ready, connections go to such ones (KEP-1669).
func draining(e discoveryv1.Endpoint) bool {
	return !ready(e) && ptr.Deref(e.Conditions.Serving, false) && ptr.Deref(e.Conditions.Terminating, false)
}

// countServing returns how many endpoints take connections: the ready ones, or, if none is ready, those that end and still answer. It counts
// the family that has more: a Pod with two addresses is one endpoint.
func countServing(endpointSlices []*discoveryv1.EndpointSlice) int {
	for _, takes := range []struct {
		is  func(discoveryv1.Endpoint) bool
		key string
	}{{ready, multicluster.AnnotationReady}, {draining, factDraining}} {
		count := map[discoveryv1.AddressType]int{}
		for _, s := range endpointSlices {
			if n, err := strconv.Atoi(s.Annotations[takes.key]); err == nil { // see sliceFacts
				count[s.AddressType] += n
				continue
			}
			for _, e := range s.Endpoints {
				if takes.is(e) {
					count[s.AddressType]++
				}
			}
		}
		if n := max(count[discoveryv1.AddressTypeIPv4], count[discoveryv1.AddressTypeIPv6], count[discoveryv1.AddressTypeFQDN]); n > 0 {
			return n
		}
	}
	return 0
}

// outsideOf returns the first address that is outside of a range; empty for none, or without a range.
func outsideOf(cidr string, ips []string) string {
	r, err := netip.ParsePrefix(cidr)
	for _, text := range ips {
		if ip, wrong := netip.ParseAddr(text); err == nil && wrong == nil && !r.Contains(ip) {
			return text
		}
	}
	return ""
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

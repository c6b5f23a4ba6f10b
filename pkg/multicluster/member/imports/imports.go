// Package imports makes the objects of this cluster for the Services of other clusters: Services, Endpoints,
// EndpointSlices and ServiceImports.
package imports

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Inputs are the results of other features that imports read.
type Inputs struct {
	// exported returns the endpoints that this cluster exports for a Service, and whether it exports the Service.
	Exported func(service derive.Object, r *derive.Reader) ([]services.Subset, bool)
	Infos    derive.Readable[derive.Name, []*mcv1alpha1.ClusterInfoImport]
	Gone     derive.Readable[derive.Name, map[string]bool] // cluster IDs
	Gateways derive.Readable[derive.Object, *mcv1alpha1.Gateway]
	// CarriesIPv6 reports whether this cluster has IPv6 between clusters.
	CarriesIPv6 func(*derive.Reader) bool
}

// Tables has the Services that this cluster imports. Its keys are the Services' names in the ClusterSet.
type Tables struct {
	base     *membership.Tables
	services *services.Tables
	in       Inputs

	Endpoints      *derive.Source[derive.Object, *services.Endpoints]
	ServiceImports *derive.Source[derive.Object, *mcsv1alpha1.ServiceImport]

	servicesByIP   *derive.Index[derive.Name, derive.Object, *corev1.Service]
	importedSlices *derive.Index[derive.Object, derive.Object, *discoveryv1.EndpointSlice] // that this controller makes

	reachable *derive.Table[derive.Name, *reach]
	sources   *derive.Table[derive.Name, []sourceRange]
	Imports   *derive.Table[derive.Object, *importedService]

	slicesToImport *derive.Index[derive.Object, derive.Object, *importedService]
}

// New adds the tables of imports.
func New(k *writes.Kinds, base *membership.Tables, local *services.Tables, in Inputs) *Tables {
	t := &Tables{base: base, services: local, in: in}
	t.Endpoints = writes.NewSource(k, k.Cluster, "Endpoints", "endpoints", endpointsFacts, services.ImportedVersion)
	t.ServiceImports = writes.NewSource(k, k.Cluster, "ServiceImport", "serviceimports", serviceImportFacts,
		services.ImportedVersion)
	t.servicesByIP = derive.NewIndex(local.Services, "address", byClusterIP)
	t.importedSlices = derive.NewIndex(local.Slices, "imported",
		func(k derive.Object, s *discoveryv1.EndpointSlice) []derive.Object {
			if !services.ImportedSlice(s) {
				return nil
			}
			return []derive.Object{k}
		})
	once := derive.KeysOf(base.Environment)
	t.reachable = derive.NewTable(k.Engine, "reachable", t.reachableOf, once)
	t.sources = derive.NewTable(k.Engine, "sources", t.sourcesOf, once)
	t.Imports = derive.NewTable(k.Engine, "imports", t.importOf, derive.KeysOfIndex(base.ImportsByName))
	return t
}

// Writes adds the tables of missing writes, in the order of their kinds.
func (t *Tables) Writes(k *writes.Kinds) []*writes.Table {
	service := derive.NewIndex(t.Imports, "service", func(_ derive.Object, i *importedService) []derive.Object {
		return []derive.Object{derive.ObjectOf(i.Service)}
	})
	t.slicesToImport = derive.NewIndex(t.Imports, "slice", func(_ derive.Object, i *importedService) []derive.Object {
		return derive.ObjectsOf(i.Slices)
	})
	return []*writes.Table{
		k.Table("write-services", t.writeService, derive.KeysOf(t.services.Services), derive.KeysOfIndex(service)),
		k.Table("write-endpoints", t.writeEndpoints, derive.KeysOf(t.Endpoints), derive.KeysOfIndex(service)),
		k.Table("write-endpointslices", t.writeSlice,
			derive.KeysOfIndex(t.importedSlices), derive.KeysOfIndex(t.slicesToImport)),
		k.Table("write-serviceimports", t.writeServiceImport, derive.KeysOf(t.ServiceImports), derive.KeysOf(t.Imports)),
	}
}

// endpointsFacts returns the facts of Endpoints. For Endpoints that are not imported, it only keeps that they exist.
func endpointsFacts(o *services.Endpoints) *services.Endpoints {
	e := &services.Endpoints{ObjectMeta: writes.MetaFacts(o, multicluster.AnnotationImportedService)}
	if services.Imported(o) {
		e.Subsets = o.Subsets
		if value, ok := o.Labels[discoveryv1.LabelSkipMirror]; ok {
			e.Labels = map[string]string{discoveryv1.LabelSkipMirror: value}
		}
	}
	return e
}

func serviceImportFacts(o *mcsv1alpha1.ServiceImport) *mcsv1alpha1.ServiceImport {
	si := &mcsv1alpha1.ServiceImport{ObjectMeta: writes.MetaFacts(o)}
	si.Spec.IPs = o.Spec.IPs  // with which byAntrea recognizes a ServiceImport of Antrea
	if services.Imported(o) { // all of it is written
		si.Labels, si.Annotations, si.Spec, si.Status = o.Labels, o.Annotations, o.Spec, o.Status
	}
	return si
}

// importedService has the objects of this cluster for a Service that other clusters export: the Service
// antrea-mc-<name>, its Endpoints and EndpointSlices, and the ServiceImport with its ClusterIP. Endpoints and
// ServiceImport may be nil.
type importedService struct {
	Service       *corev1.Service
	Endpoints     *services.Endpoints
	Slices        []*discoveryv1.EndpointSlice
	ServiceImport *mcsv1alpha1.ServiceImport
}

// importOf decides about the ResourceImports of one Service. It leaves other kinds alone. An existing object without
// this controller's mark belongs to a user and stays as it is.
func (t *Tables) importOf(of derive.Object, r *derive.Reader) (*importedService, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if !m.Joined {
		return nil, nil
	}
	in := importer{m: m, of: of}
	var ri, endpoints *mcv1alpha1.ResourceImport
	for _, candidate := range derive.Values(derive.List(r, t.base.ImportsByName, of)) {
		switch {
		case !candidate.DeletionTimestamp.IsZero():
		case candidate.Spec.Kind == multicluster.EndpointsKind && candidate.Spec.Endpoints != nil:
			endpoints = candidate
		case candidate.Spec.Kind != multicluster.ServiceImportKind || !m.IsFor(candidate):
		case candidate.Spec.ServiceImport == nil || of.Namespace == "" || of.Name == "":
			in.Add(m.ClusterSet(), "", membership.ReasonImportInvalid, fmt.Sprintf(
				"ResourceImport %s/%s of the leader is ignored: it names no Service or has no "+
					"spec.serviceImport: correct its ResourceExport",
				candidate.Namespace, candidate.Name))
		case ri == nil:
			ri = candidate
		}
	}
	if ri == nil {
		return nil, in.List
	}
	// An API server would refuse each try to make the Service.
	if err := exportcheck.ServiceName("spec.name", of.Name); err != nil {
		in.Add(m.ClusterSet(), "", membership.ReasonImportInvalid,
			fmt.Sprintf("ResourceImport %s/%s of the leader is ignored: %v", ri.Namespace, ri.Name, err))
		return nil, in.List
	}
	k := derive.Object{Namespace: of.Namespace, Name: multicluster.ImportedPrefix + of.Name}
	if ns, ok := derive.Get(r, t.base.Namespaces, derive.Object{Name: k.Namespace}); !ok ||
		!ns.DeletionTimestamp.IsZero() {
		in.Add(m.ClusterSet(), "", reasonNamespaceMissing, fmt.Sprintf(
			"Service %s is not imported: Namespace %s does not exist here; create it to import the Service", of, k.Namespace))
		return nil, in.List
	}
	// The leader may be another implementation, which passes on any export of a member.
	ports, wrong := exportcheck.ImportPorts("spec.serviceImport.spec.ports", ri.Spec.ServiceImport.Spec.Ports)
	in.leftOut(ri, wrong)
	given := ri.Spec.ServiceImport.Spec
	isHeadless := given.Type == mcsv1alpha1.Headless
	if len(ports) == 0 && (!isHeadless || len(given.Ports) > 0) {
		in.Add(m.ClusterSet(), "", membership.ReasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is ignored: it has no port that can be imported: correct the "+
				"ports of the exported Service", ri.Namespace, ri.Name))
		return nil, in.List
	}
	annotations := map[string]string{multicluster.AnnotationImportedService: "true"}
	have, _ := derive.Get(r, t.services.Services, k)
	filled, _ := derive.Get(r, t.Endpoints, k)
	if have != nil && !services.Imported(have) {
		in.inTheWay("Service", k)
		return nil, in.List
	}
	if filled != nil && !services.Imported(filled) {
		in.inTheWay("Endpoints", k)
		if have == nil {
			return nil, in.List // a Service now would send traffic to the user's Endpoints
		}
		endpoints = nil
	}
	here, _ := derive.Get(r, t.base.Own, membership.Here)
	served := here.Families(t.in.CarriesIPv6(r))
	out := &importedService{Service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Annotations: maps.Clone(annotations)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}}
	for _, p := range ports {
		out.Service.Spec.Ports = append(out.Service.Spec.Ports,
			corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	if isHeadless {
		out.Service.Spec.ClusterIP = corev1.ClusterIPNone
	} else {
		if given.SessionAffinity == corev1.ServiceAffinityClientIP {
			out.Service.Spec.SessionAffinity, out.Service.Spec.SessionAffinityConfig = given.SessionAffinity,
				affinityConfig(given.SessionAffinityConfig)
		}
		if p := given.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal {
			out.Service.Spec.InternalTrafficPolicy = p
		}
	}
	si, _ := derive.Get(r, t.ServiceImports, of)
	requested := in.requests(out.Service, ri, si, isHeadless)
	partly := "" // the parts that are not imported, for the ServiceImport's condition
	left, exporters := []string(nil), 0
	var imported []services.Subset
	if endpoints != nil {
		own := t.ownEndpoints(of, endpoints, r)
		subsets, _ := exportcheck.Subsets("spec.endpoints.subsets", endpoints.Spec.Endpoints.Subsets,
			exportcheck.Allowed{Foreign: own.foreign}, exportcheck.MaxImportEndpoints)
		_, wrong := exportcheck.Subsets("spec.endpoints.subsets", endpoints.Spec.Endpoints.Subsets,
			exportcheck.Allowed{Foreign: own.reported}, exportcheck.MaxImportEndpoints)
		in.leftOut(endpoints, wrong)
		if err := exportcheck.First(wrong); err != nil {
			partly = "some endpoints are left out: " + err.Error()
		}
		imported = ofFamilies(subsets, served)
		out.Endpoints = &services.Endpoints{
			// Kubernetes makes no EndpointSlices for these Endpoints, since endpointSlices makes them with the cluster of each
			// endpoint.
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Annotations: annotations,
				Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		}
		sources := t.bySource(endpoints, own.foreign, r)
		left, exporters = keepFamilies(sources, served), len(sources)
		away := t.away(of, sources, r)
		out.Endpoints.Subsets = withoutAway(imported, sources, away)
		out.Slices = endpointSlices(of, k, sources, away)
		out.Slices = slices.DeleteFunc(out.Slices, func(s *discoveryv1.EndpointSlice) bool {
			other, _ := derive.Get(r, t.services.Slices, derive.ObjectOf(s))
			if other == nil || services.ImportedSlice(other) {
				return false
			}
			in.inTheWay("EndpointSlice", derive.ObjectOf(s))
			return true
		})
	}
	if !isHeadless {
		setFamilies(&out.Service.Spec, served, given.IPFamilies, have, imported)
	}
	to, _ := derive.Get(r, t.reachable, membership.Here)
	to.report(k, ofFamilies(imported, out.Service.Spec.IPFamilies), &in.List)

	if si != nil && !services.Imported(si) && !byAntrea(si, have) {
		in.inTheWay("ServiceImport", of)
		return out, in.List
	}
	metadata, err := exportcheck.ReadMetadata(ri.Annotations[multicluster.AnnotationExported])
	if err != nil {
		in.Add(m.ClusterSet(), "", membership.ReasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is imported without labels and annotations: %v", ri.Namespace, ri.Name, err))
	}
	want := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, Labels: metadata.Labels,
			Annotations: maps.Clone(annotations)},
		Spec: serviceImportSpec(given, ports, isHeadless),
	}
	if isHeadless && len(served) > 0 {
		want.Spec.IPFamilies = common(given.IPFamilies, served)
	}
	maps.Copy(want.Annotations, metadata.Annotations) // they are no annotations of controllers
	want.Status = serviceImportStatus(out.Slices)
	ready := &want.Status.Conditions[0]
	unserved := unserved(left, served, given.IPFamilies)
	if ready.Message = cmp.Or(unserved, partly); unserved != "" && len(left) == exporters {
		ready.Status, ready.Reason = metav1.ConditionFalse, string(mcsv1beta1.ServiceImportReasonIPFamilyNotSupported)
	}
	want.Status.Conditions = append(want.Status.Conditions, requested...)
	for _, key := range requests.Keys { // this cluster's own
		if si == nil {
			break
		}
		if value, ok := si.Annotations[key]; ok {
			want.Annotations[key] = value
		}
	}
	var addresses []string
	if have != nil && !services.Headless(have) {
		if addresses = have.Spec.ClusterIPs; len(addresses) == 0 && have.Spec.ClusterIP != "" {
			addresses = []string{have.Spec.ClusterIP}
		}
	}
	switch {
	case isHeadless:
	case len(addresses) > 0:
		want.Spec.IPs = addresses
	case si != nil && si.Spec.Type == mcsv1alpha1.ClusterSetIP:
		want.Spec.IPs = si.Spec.IPs
	default:
		return out, in.List // made when the Service has its address
	}
	if !isHeadless {
		want.Spec.IPFamilies = familiesOf(want.Spec.IPs)
	}
	out.ServiceImport = want
	return out, in.List
}

// importer reports the faults of an import.
type importer struct {
	m  membership.Membership
	of derive.Object
	problem.List
}

// leftOut reports the parts of a ResourceImport that are not imported, once for each import. The rest is imported.
func (in *importer) leftOut(ri *mcv1alpha1.ResourceImport, wrong []exportcheck.Problem) {
	if err := exportcheck.First(wrong); err != nil {
		in.Add(in.m.ClusterSet(), "", membership.ReasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is imported in part: %v", ri.Namespace, ri.Name, err))
	}
}

// inTheWay reports a user's object that has the name of an imported one.
func (in *importer) inTheWay(kind string, k derive.Object) {
	in.Add(problem.About(kind, k.Namespace, k.Name), "metadata.annotations", reasonNotImported, fmt.Sprintf(
		"Service %s of the ClusterSet is not imported completely: %s %s exists already and is not an imported "+
			"one (no annotation %s), so it is left as it is; rename or delete it",
		in.of, kind, k, multicluster.AnnotationImportedService))
}

// requests writes on the Service of an import which clusters get requests first. The annotations of this cluster's
// ServiceImport decide, or else the exports' annotations. It returns the conditions for the ServiceImport.
func (in *importer) requests(service *corev1.Service, ri *mcv1alpha1.ResourceImport, si *mcsv1alpha1.ServiceImport,
	headless bool) (conditions []metav1.Condition) {
	rule, err := requests.Read(ri.Annotations)
	if err != nil {
		in.Add(in.m.ClusterSet(), "", membership.ReasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is imported without where its requests go: %v", ri.Namespace, ri.Name, err))
	}
	if si != nil && services.Imported(si) {
		own, err := services.RequestsOf(si, headless)
		if conditions = services.RequestsCondition(si, err); err != nil {
			services.WrongRequests(&in.List, "ServiceImport", in.of, err, "requests go as the exports say")
		} else if own.To != "" {
			rule = own
		}
	}
	order := rule.In(in.m.ID)
	if len(order) == 0 || headless {
		return conditions
	}
	labels := make([]string, len(order))
	for i, id := range order {
		labels[i] = sourceLabel(id)
	}
	service.Annotations[multicluster.AnnotationClusterOrder] = strings.Join(labels, ",")
	service.Annotations[multicluster.AnnotationMinimumReady] = strconv.Itoa(max(rule.Minimum, 1))
	return conditions
}

// byAntrea reports whether Antrea's member has made a ServiceImport. Antrea's member does not mark its own ones. But
// only these have exactly the address of the imported Service.
func byAntrea(si *mcsv1alpha1.ServiceImport, service *corev1.Service) bool {
	return si != nil && service != nil && services.Imported(service) && service.Spec.ClusterIP != "" &&
		!services.Headless(service) &&
		slices.Equal(si.Spec.IPs, []string{service.Spec.ClusterIP})
}

// serviceImportSpec returns the fields of an import that clients read, without its addresses. It omits fields that this
// version does not have, since the leader may be another implementation.
func serviceImportSpec(given mcsv1alpha1.ServiceImportSpec, ports []mcsv1alpha1.ServicePort,
	isHeadless bool) mcsv1alpha1.ServiceImportSpec {
	if ports == nil {
		ports = []mcsv1alpha1.ServicePort{}
	}
	if isHeadless {
		return mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.Headless, Ports: ports, IPFamilies: given.IPFamilies}
	}
	return mcsv1alpha1.ServiceImportSpec{
		Type: mcsv1alpha1.ClusterSetIP, Ports: ports, SessionAffinity: given.SessionAffinity,
		SessionAffinityConfig: given.SessionAffinityConfig,
		InternalTrafficPolicy: given.InternalTrafficPolicy, TrafficDistribution: given.TrafficDistribution,
	}
}

// affinityConfig returns a configuration of session affinity that an API server accepts; nil for its default.
func affinityConfig(c *corev1.SessionAffinityConfig) *corev1.SessionAffinityConfig {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil || *c.ClientIP.TimeoutSeconds < 1 ||
		*c.ClientIP.TimeoutSeconds > 86400 {
		return nil
	}
	return c
}

func familiesOf(ips []string) (out []corev1.IPFamily) {
	for _, text := range ips {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, services.FamilyOf(ip))
		}
	}
	return out
}

// serviceImportStatus lists the clusters whose endpoints are imported.
func serviceImportStatus(list []*discoveryv1.EndpointSlice) mcsv1alpha1.ServiceImportStatus {
	s := mcsv1alpha1.ServiceImportStatus{EndpointSliceObjects: mcsv1alpha1.EndpointSliceObjectsPresent,
		Conditions: []metav1.Condition{{
			Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue,
			Reason: string(mcsv1beta1.ServiceImportReasonReady),
		}}}
	for _, slice := range list { // in the order of their clusters
		id := slice.Labels[mcsv1beta1.LabelSourceCluster]
		if !slices.ContainsFunc(s.Clusters, func(c mcsv1alpha1.ClusterStatus) bool { return c.Cluster == id }) {
			s.Clusters = append(s.Clusters, mcsv1alpha1.ClusterStatus{Cluster: id})
		}
	}
	return s
}

// Package exports decides which Services this cluster exports, with which endpoints. It also decides the conditions of
// its ServiceExports.
package exports

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Tables has the Services that this cluster exports. Its keys are the Services' names.
type Tables struct {
	base        *membership.Tables
	services    *services.Tables
	carriesIPv6 func(*derive.Reader) bool // reports whether other clusters reach addresses of IPv6

	ServiceExports *derive.Source[derive.Object, *mcsv1alpha1.ServiceExport]

	Exportable       *derive.Table[derive.Object, *exportable]
	exportableByName *derive.Index[derive.Name, derive.Object, *exportable]
	Holders          *derive.Table[derive.Name, derive.Object] // which Service has a ResourceExport's name
	Exports          *derive.Table[derive.Object, *exported]
	ByName           *derive.Index[derive.Object, derive.Object, *exported]
	Validity         *derive.Table[derive.Object, []metav1.Condition]
}

// New adds the tables of exports.
func New(k *writes.Kinds, base *membership.Tables, local *services.Tables,
	carriesIPv6 func(*derive.Reader) bool) *Tables {
	t := &Tables{base: base, services: local, carriesIPv6: carriesIPv6}
	t.ServiceExports = writes.NewSource(k, k.Cluster, "ServiceExport", "serviceexports", serviceExportFacts,
		writes.Version)
	t.Exportable = derive.NewTable(k.Engine, "exportable", t.exportableOf, derive.KeysOf(t.ServiceExports))
	t.exportableByName = derive.NewIndex(t.Exportable, "name", func(_ derive.Object, x *exportable) []derive.Name {
		if x.Refusal != nil {
			return nil
		}
		return []derive.Name{derive.Name(x.Name)}
	})
	t.Holders = derive.NewTable(k.Engine, "export-names", t.holderOf, derive.KeysOfIndex(t.exportableByName))
	t.Exports = derive.NewTable(k.Engine, "exports", t.exportOf, derive.KeysOf(t.Exportable))
	t.ByName = derive.NewIndex(t.Exports, "name", func(_ derive.Object, x *exported) []derive.Object {
		return derive.ObjectsOf(x.List())
	})
	t.Validity = derive.NewTable(k.Engine, "validity", t.validityOf, derive.KeysOf(t.ServiceExports))
	return t
}

func (t *Tables) Writes(k *writes.Kinds) *writes.Table {
	return k.Table("write-serviceexports", t.writeServiceExport, derive.KeysOf(t.Validity))
}

// Exported returns the endpoints that this cluster exports for a Service, and whether it exports the Service.
func (t *Tables) Exported(service derive.Object, r *derive.Reader) ([]services.Subset, bool) {
	x, ok := derive.Get(r, t.Exports, service)
	if !ok || x.Endpoints == nil {
		return nil, ok
	}
	return x.Endpoints.Spec.Endpoints.Subsets, true
}

func serviceExportFacts(o *mcsv1alpha1.ServiceExport) *mcsv1alpha1.ServiceExport {
	m := writes.MetaFacts(o, requests.Keys...)
	m.Generation, m.CreationTimestamp = o.Generation, o.CreationTimestamp
	return &mcsv1alpha1.ServiceExport{ObjectMeta: m, Spec: o.Spec, Status: o.Status}
}

// reasonsOfValid are the reasons of condition Valid that this controller writes. With them it distinguishes its own
// conditions from another implementation's.
var reasonsOfValid = []reasons.Reason{reasonSucceed, reasonServiceNotFound, reasonTypeNotSupported,
	reasonImportedService, reasonWithoutEndpoints, reasonNoClusterIP, reasonNameConflict, reasonNameTooLong,
	reasonMetadataInvalid, reasonExportPending, reasonNoClusterSet}

// exportable is the desired export of a ServiceExport, or the reason why it cannot be exported.
type exportable struct {
	Name     string // of the Service's ResourceExport
	Ports    []corev1.ServicePort
	Facts    exportcheck.ServiceFacts
	Subsets  []services.Subset
	Ready    int            // endpoints behind the Service's address; 0 if the subsets are the endpoints
	Empty    bool           // no endpoint accepts connections now; then there is no export of endpoints
	Left     string         // which addresses are left out, and why; empty for all exported
	Refusal  reasons.Reason // the zero value for no refusal
	Message  string
	Observed int64 // generation of the ServiceExport
}

// refusal is the reason why a Service is not exported. The zero value is no refusal.
type refusal struct {
	Reason  reasons.Reason
	Message string
}

func (t *Tables) exportableOf(k derive.Object, r *derive.Reader) (*exportable, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	export, ok := derive.Get(r, t.ServiceExports, k)
	if m.ID == "" || !ok || !export.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var ps problem.List
	service, _ := derive.Get(r, t.services.Services, k)
	endpointSlices := slices.DeleteFunc(derive.Values(derive.List(r, t.services.ByService, k)),
		func(s *discoveryv1.EndpointSlice) bool {
			return !s.DeletionTimestamp.IsZero()
		})
	x := &exportable{Name: services.ExportName(m.ID, k, multicluster.ServiceKind), Observed: export.Generation}
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	out, no := t.endpointsOf(service, endpointSlices, own, t.carriesIPv6(r))
	if no.Reason == nil {
		if errs := validation.IsDNS1123Subdomain(services.ExportName(m.ID, k, multicluster.EndpointsKind)); len(errs) > 0 {
			no = refusal{Reason: reasonNameTooLong, Message: fmt.Sprintf(
				"ResourceExport name %s is not valid: %s; rename the Service", x.Name, errs[0])}
		}
	}
	if no.Reason == nil {
		if err := exportcheck.ServiceName("metadata.name", k.Name); err != nil {
			no = refusal{Reason: reasonNameTooLong, Message: fmt.Sprintf("Service %s: %v", k, err)}
		}
	}
	if no.Reason == nil {
		if err := exportcheck.CheckMetadata(export.Spec.ExportedLabels, export.Spec.ExportedAnnotations); err != nil {
			no = refusal{Reason: reasonMetadataInvalid, Message: "spec of the ServiceExport: exported " +
				err.Error()}
		}
	}
	if x.Refusal, x.Message = no.Reason, no.Message; x.Refusal == nil {
		x.Ports, x.Subsets, x.Left, x.Facts = service.Spec.Ports, out.Subsets, out.Left, factsToExport(service, export)
		x.Facts.IPFamilies = slices.DeleteFunc(slices.Clone(x.Facts.IPFamilies),
			func(f corev1.IPFamily) bool { return out.LeftFamilies[f] })
		if rule, err := services.RequestsOf(export, services.Headless(service)); err != nil {
			services.WrongRequests(&ps, "ServiceExport", k, err, "requests go as if it said nothing")
		} else if rule.To != "" {
			x.Facts.Requests = &rule
		}
		if !services.Headless(service) && t.base.Config.EndpointIPType != config.EndpointIPTypePodIP {
			x.Ready = requests.RoundReady(services.CountServing(endpointSlices))
		}
		x.Empty = len(out.Subsets) == 0
	}
	return x, ps
}

// factsToExport returns the facts of a Service that are exported in addition to its ports and endpoints.
func factsToExport(service *corev1.Service, export *mcsv1alpha1.ServiceExport) exportcheck.ServiceFacts {
	f := exportcheck.ServiceFacts{
		Created: max(0, export.CreationTimestamp.Unix()), Headless: services.Headless(service),
		SessionAffinity:       service.Spec.SessionAffinity,
		InternalTrafficPolicy: ptr.Deref(service.Spec.InternalTrafficPolicy, ""),
		TrafficDistribution:   ptr.Deref(service.Spec.TrafficDistribution, ""), IPFamilies: service.Spec.IPFamilies,
		Metadata: exportcheck.Metadata{Labels: export.Spec.ExportedLabels, Annotations: export.Spec.ExportedAnnotations},
	}
	if c := service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil &&
		f.SessionAffinity == corev1.ServiceAffinityClientIP {
		f.AffinityTimeout = c.ClientIP.TimeoutSeconds
	}
	return f
}

// endpoints are the endpoints to export for a Service.
type endpoints struct {
	Subsets []services.Subset // empty if no endpoint accepts connections
	// Left has a text about the first addresses that are left out because other clusters would not reach them.
	// LeftFamilies are the versions of IP of such addresses.
	Left         string
	LeftFamilies map[corev1.IPFamily]bool
}

func (e *endpoints) leave(of corev1.IPFamily, format string, args ...any) {
	if e.LeftFamilies == nil {
		e.LeftFamilies = map[corev1.IPFamily]bool{}
	}
	e.LeftFamilies[of] = true
	e.Left = cmp.Or(e.Left, fmt.Sprintf(format, args...))
}

// endpointsOf returns the endpoints to export for a Service, or the reason and message of its refusal. The order of the
// checks is part of the contract. If no endpoint of a Service accepts connections, it is exported without endpoints.
func (t *Tables) endpointsOf(service *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice,
	own membership.OwnRanges, ipv6 bool) (endpoints, refusal) {
	switch {
	case service == nil || !service.DeletionTimestamp.IsZero():
		return endpoints{}, refusal{Reason: reasonServiceNotFound,
			Message: "The Service does not exist: create it, or delete the ServiceExport"}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return endpoints{}, refusal{Reason: reasonTypeNotSupported,
			Message: "Services of type ExternalName are not supported: delete the ServiceExport"}
	case services.Imported(service):
		return endpoints{}, refusal{Reason: reasonImportedService,
			Message: "The Service is imported from other clusters and may not be exported again: delete the " +
				"ServiceExport"}
	case services.Headless(service) && t.base.Config.EndpointIPType != config.EndpointIPTypePodIP &&
		len(t.base.Config.PodCIDRs) == 0:
		return endpoints{}, refusal{Reason: reasonNoClusterIP,
			Message: "The Service has no valid ClusterIP. To export a headless Service by the addresses of its Pods, " +
				"set podCIDRs in the member controller's configuration and " +
				"multicluster.enablePodToPodConnectivity in antrea-agent.conf of every cluster"}
	case services.Headless(service) || t.base.Config.EndpointIPType == config.EndpointIPTypePodIP:
		return t.podsOf(service, endpointSlices, ipv6)
	}
	return clusterIPsOf(service, endpointSlices, own.Announced(ipv6), ipv6)
}

// notCarried is why addresses of IPv6 are left out.
const notCarried = "since not all agents of this cluster report that they carry IPv6 between clusters: see the Event " +
	"IPv6NotCarried of a Node"

// podsOf returns the addresses of a Service's Pods, of the versions of IP of podCIDRs. Without podCIDRs the Pods are in
// a network that other clusters reach.
func (t *Tables) podsOf(service *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice,
	ipv6 bool) (out endpoints, _ refusal) {
	routed := family.Dual
	if ranges := exportcheck.Prefixes(t.base.Config.PodCIDRs); len(ranges) > 0 {
		routed = family.Of(ranges)
	}
	var carried []*discoveryv1.EndpointSlice
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		there := ofFamily(endpointSlices, f)
		inRange := f == corev1.IPv4Protocol && routed.Has4() || f == corev1.IPv6Protocol && routed.Has6()
		switch has := slices.Contains(service.Spec.IPFamilies, f) || services.HasReady(there); {
		case inRange && (ipv6 || f == corev1.IPv4Protocol):
			carried = append(carried, there...)
		case has && inRange:
			out.leave(f, "%s addresses of its Pods are left out, %s", f, notCarried)
		case has:
			out.leave(f, "%s addresses of its Pods are left out, since podCIDRs in the member controller's configuration "+
				"has no range of %s: add the range there", f, f)
		}
	}
	out.Subsets = podSubsets(carried, services.Ready)
	if len(out.Subsets) == 0 && !services.Headless(service) && !services.HasReady(endpointSlices) {
		// If no endpoint is ready, terminating ones that still serve are used, as on the Nodes of this cluster. For a
		// headless Service only ready endpoints count, since its DNS has only ready Pods.
		out.Subsets = podSubsets(carried, services.Draining)
	}
	if len(out.Subsets) == 0 && services.HasReady(endpointSlices) {
		return out, refusal{Reason: reasonWithoutEndpoints,
			Message: cmp.Or(out.Left, "The Service has no ready Endpoints with an IP address")}
	}
	return out, refusal{}
}

// ofFamily returns the EndpointSlices of a version of IP.
func ofFamily(endpointSlices []*discoveryv1.EndpointSlice, f corev1.IPFamily) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(endpointSlices),
		func(s *discoveryv1.EndpointSlice) bool { return string(s.AddressType) != string(f) })
}

// clusterIPsOf returns the ClusterIPs of a Service that are in announced ranges. If no range is known, it returns all
// ClusterIPs. If no endpoint of a ClusterIP's version of IP accepts connections, it leaves out this ClusterIP, since
// the other one may have endpoints.
func clusterIPsOf(service *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice,
	announced []netip.Prefix, ipv6 bool) (out endpoints, _ refusal) {
	one, reached := services.Subset{}, false
	for _, ip := range services.ClusterIPs(service) {
		f := services.FamilyOf(ip)
		if f == corev1.IPv6Protocol && !ipv6 {
			out.leave(f, "ClusterIP %s is left out, %s", ip, notCarried)
			continue
		}
		if len(announced) > 0 &&
			!slices.ContainsFunc(announced, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			out.leave(f,
				"ClusterIP %s is outside of the Service ranges that this cluster announces, %v, so other clusters do not "+
					"reach it: make the Service again with a clusterIP of these, add its range to the cluster by a ServiceCIDR, "+
					"or add it to serviceCIDR in the member controller's configuration", ip, announced)
			continue
		}
		reached = true
		if services.CountServing(ofFamily(endpointSlices, f)) > 0 {
			one.Addresses = append(one.Addresses, services.Address{IP: ip.String()})
		}
	}
	for _, p := range service.Spec.Ports {
		one.Ports = append(one.Ports, services.Port{Name: p.Name, Port: p.Port, Protocol: p.Protocol})
	}
	switch {
	case !reached:
		return out, refusal{Reason: reasonNoClusterIP,
			Message: cmp.Or(out.Left, "The Service has no valid ClusterIP")}
	case len(one.Addresses) > 0:
		out.Subsets = []services.Subset{one}
	}
	return out, refusal{}
}

// podSubsets returns the addresses and ports of some endpoints of EndpointSlices. There is one subset for each set of
// ports. Each address occurs once, and the order is fixed.
func podSubsets(endpointSlices []*discoveryv1.EndpointSlice,
	takes func(discoveryv1.Endpoint) bool) []services.Subset {
	ports := map[string][]services.Port{}
	addresses := map[string]map[string]string{} // host names, by port set and address
	for _, s := range endpointSlices {
		var ps []services.Port
		for _, p := range s.Ports {
			if p.Port == nil {
				continue // "all ports" has no form in a subset
			}
			one := services.Port{Port: *p.Port, Protocol: corev1.ProtocolTCP}
			if p.Name != nil {
				one.Name = *p.Name
			}
			if p.Protocol != nil {
				one.Protocol = *p.Protocol
			}
			ps = append(ps, one)
		}
		slices.SortFunc(ps, func(a, b services.Port) int { return cmp.Compare(services.PortText(a), services.PortText(b)) })
		id := services.PortsText(ps)
		for _, e := range s.Endpoints {
			if !takes(e) {
				continue
			}
			for _, a := range e.Addresses {
				ip, err := netip.ParseAddr(a)
				if err != nil || string(services.FamilyOf(ip)) != string(s.AddressType) {
					continue
				}
				if addresses[id] == nil {
					ports[id], addresses[id] = ps, map[string]string{}
				}
				addresses[id][a] = max(addresses[id][a], ptr.Deref(e.Hostname, ""))
			}
		}
	}
	var subsets []services.Subset
	for _, id := range slices.Sorted(maps.Keys(addresses)) {
		one := services.Subset{Ports: ports[id]}
		for _, a := range slices.Sorted(maps.Keys(addresses[id])) {
			one.Addresses = append(one.Addresses, services.Address{IP: a, Hostname: addresses[id][a]})
		}
		subsets = append(subsets, one)
	}
	return subsets
}

// holderOf decides which of several Services gets the derived name of a ResourceExport. The Service that has it keeps
// it, so that a new one does not take it over. Otherwise the first by Namespace and name gets it.
func (t *Tables) holderOf(name derive.Name, r *derive.Reader) (derive.Object, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	rows := derive.List(r, t.exportableByName, name)
	if re, ok := derive.Get(r, t.base.ResourceExports, derive.Object{Namespace: m.Common, Name: string(name)}); ok {
		of := derive.Object{Namespace: re.Spec.Namespace, Name: re.Spec.Name}
		if slices.ContainsFunc(rows, func(row derive.Row[derive.Object, *exportable]) bool { return row.Key == of }) {
			return of, nil
		}
	}
	return rows[0].Key, nil
}

// exported has the two ResourceExports of a Service that can be exported. Endpoints is nil while no endpoint accepts
// connections. The ServiceImports live as long as the ServiceExport (KEP-1645), and Antrea's leaders import a Service
// without endpoints, too.
type exported struct{ Service, Endpoints *mcv1alpha1.ResourceExport }

// List returns the ResourceExports that there are.
func (x *exported) List() []*mcv1alpha1.ResourceExport {
	if x.Endpoints == nil {
		return []*mcv1alpha1.ResourceExport{x.Service}
	}
	return []*mcv1alpha1.ResourceExport{x.Service, x.Endpoints}
}

func (t *Tables) exportOf(k derive.Object, r *derive.Reader) (*exported, []problem.Problem) {
	x, ok := derive.Get(r, t.Exportable, k)
	if !ok || x.Refusal != nil {
		return nil, nil
	}
	if holder, _ := derive.Get(r, t.Holders, derive.Name(x.Name)); holder != k {
		return nil, nil
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	out := &exported{Service: ResourceExport(m, k, multicluster.ServiceKind)}
	out.Service.Annotations = map[string]string{multicluster.AnnotationService: x.Facts.String()}
	out.Service.Spec.Service = &mcv1alpha1.ServiceExport{ServiceSpec: corev1.ServiceSpec{Ports: x.Ports}}
	if x.Empty {
		return out, nil
	}
	out.Endpoints = ResourceExport(m, k, multicluster.EndpointsKind)
	if x.Ready > 0 {
		out.Endpoints.Annotations = map[string]string{multicluster.AnnotationReady: strconv.Itoa(x.Ready)}
	}
	out.Endpoints.Spec.Endpoints = &mcv1alpha1.EndpointsExport{Subsets: x.Subsets}
	return out, nil
}

// ResourceExport begins the ResourceExport of one kind for a Service.
func ResourceExport(m membership.Membership, service derive.Object, kind string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Common,
			Name:      services.ExportName(m.ID, service, kind),
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

package leader

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// object names the object of an export.
type object struct{ namespace, name string }

// joint is the result of the exports of one Service, of its Endpoints, or of one policy.
type joint struct {
	There     bool   // a member exports it, valid or not
	Of        object // the Service that is imported
	Converged map[string]bool
	Failed    map[string]string // why an export is not in the import, by its name
	Part      map[string]string // why only a part of an export is in the import, by its name
	Early     map[string]bool   // the exports that are likely to be in the import soon, or as a whole
	Import    *mcv1alpha1.ResourceImport
}

// jointService is the result of the exports of one Service.
type jointService struct {
	Joint    joint
	Conflict *conflict
	Lost     map[string]map[string]bool // names of ports that count for nothing, by cluster ID
}

func (j *joint) fail(e *export, format string, args ...any) {
	j.Failed[e.Key.Name] = fmt.Sprintf(format, args...)
}

// counting returns the exports that an import may be made from, in the order in which they win conflicts. It omits
// deleted exports, and exports of clusters that are not members.
func (t *tables) counting(r *derive.Reader, rows []derive.Row[derive.Object, *export]) []*export {
	var out []*export
	for _, row := range rows {
		if !row.Value.Deleted && t.standing(r, row.Value).Why == "" {
			out = append(out, row.Value)
		}
	}
	oldest(out)
	return out
}

// jointEndpoints joins the addresses of all clusters whose Service has converged, in the order of their IDs. An address
// that other clusters could not import is left out. It changes nothing for the other addresses.
func (t *tables) jointEndpoints(base derive.Object, r *derive.Reader) (joint, []problem.Problem) {
	exports := t.counting(r, derive.List(r, t.index.endpointsOf, base))
	if len(exports) == 0 {
		return joint{}, nil
	}
	service, _ := derive.Get(r, t.services, base)
	j := joint{There: true, Of: service.Joint.Of, Converged: map[string]bool{}, Failed: map[string]string{},
		Part: map[string]string{}, Early: map[string]bool{}}
	importKey := derive.Object{Namespace: base.Namespace, Name: base.Name + multicluster.EndpointsSuffix}
	clean := map[string]exportcheck.Part{} // by cluster ID
	count, bytes := 0, 0
	for _, e := range exports { // the oldest first: a newcomer does not push others out
		switch {
		case !service.Joint.There:
			j.fail(e, "its Service is not exported by cluster %s", e.ClusterID)
			j.Early[e.Key.Name] = true // a member writes both at the same time
			continue
		case e.Missing:
			j.fail(e, "spec.endpoints is missing")
			continue
		case e.Wrong != "":
			j.fail(e, "%s", e.Wrong)
			continue
		case e.Of == service.Joint.Of && service.Conflict != nil && !service.Joint.Converged[e.ClusterID] &&
			t.exportsService(r, base, e.ClusterID):
			j.fail(e, "the endpoints of cluster %s are left out: %s", e.ClusterID, service.Conflict.Message)
			continue
		case e.Of != service.Joint.Of || !service.Joint.Converged[e.ClusterID]:
			j.fail(e, "the Service export of cluster %s has not been converged", e.ClusterID)
			continue
		case j.Converged[e.ClusterID]:
			j.fail(e, "cluster %s exports these Endpoints twice", e.ClusterID)
			continue
		}
		subsets, wrong := exportcheck.Subsets("spec.endpoints.subsets", e.Subsets, t.allowed(r, e.ClusterID, importKey),
			exportcheck.MaxEndpoints)
		leftOut := exportcheck.First(wrong)
		if leftOut != nil && len(subsets) == 0 {
			j.fail(e, "%v", leftOut)
			continue
		}
		subsets = withoutPorts(subsets, service.Lost[e.ClusterID])
		n, b := count+exportcheck.Count(subsets), bytes+exportcheck.Bytes(subsets)
		if n > exportcheck.MaxImportEndpoints || b > exportcheck.MaxImportBytes {
			j.fail(e, "with it the joint Endpoints would have %d endpoints in about %d bytes: expected at most %d and %d; "+
				"export fewer endpoints",
				n, b, exportcheck.MaxImportEndpoints, exportcheck.MaxImportBytes)
			continue
		}
		if leftOut != nil { // a member writes its ranges at the same time
			j.Part[e.Key.Name], j.Early[e.Key.Name] = "only the other endpoints are imported: "+leftOut.Error(), true
		}
		count, bytes = n, b
		part := exportcheck.Part{Subsets: subsets}
		if exportcheck.OneAddress(subsets) {
			part.Ready = e.Ready
		}
		j.Converged[e.ClusterID], clean[e.ClusterID] = true, part
	}
	if len(j.Converged) == 0 {
		return j, nil
	}
	var subsets []corev1.EndpointSubset
	var sources []exportcheck.Source
	for _, id := range slices.Sorted(maps.Keys(j.Converged)) {
		part := clean[id]
		subsets = append(subsets, part.Subsets...)
		sources = append(sources, exportcheck.Source{Cluster: id, Subsets: len(part.Subsets), Ready: part.Ready})
	}
	j.Import = newImport(importKey, j.Converged, mcv1alpha1.ResourceImportSpec{
		Namespace: j.Of.namespace, Name: j.Of.name, Kind: multicluster.EndpointsKind,
		Endpoints: &mcv1alpha1.EndpointsImport{Subsets: subsets},
	})
	j.Import.Annotations = map[string]string{multicluster.AnnotationSources: exportcheck.SourcesText(sources)}
	return j, nil
}

// exportsService reports whether a cluster exports a Service that could be imported if no other cluster exported it.
func (t *tables) exportsService(r *derive.Reader, base derive.Object, id string) bool {
	service, _ := derive.Get(r, t.services, base)
	for _, e := range values(derive.List(r, t.index.servicesOf, base)) {
		if e.ClusterID == id && e.Of == service.Joint.Of && service.Joint.Failed[e.Key.Name] == "" && !e.Deleted {
			return true
		}
	}
	return false
}

// allowed returns where a cluster's endpoints may be: in its ranges. If a cluster announces no range for its Pods, it
// may have others that the annotations of the ClusterSet list. If no cluster of the ClusterSet has a ClusterInfo, there
// are no gateways, and endpoints may be anywhere. They are never in another cluster's ranges or at its gateways.
//
// An imported endpoint stays, so that no announcement can remove it. But pinned gateways have precedence over it. The
// addresses of other clusters are read only for endpoints outside of the cluster's own ranges.
func (t *tables) allowed(r *derive.Reader, id string, imported derive.Object) exportcheck.Allowed {
	own, _ := derive.Get(r, t.claiming.ranges, derive.Name(id))
	if info, held := derive.Get(r, t.facts.held, derive.Name(id)); held && len(own.Prefixes) == 0 {
		own = ranges{Prefixes: rangesOf(info).Prefixes} // withdrawn for a moment
	}
	if own.All {
		return exportcheck.Allowed{Own: own.Prefixes}
	}
	return exportcheck.Allowed{Own: own.Prefixes, Foreign: func(ip netip.Addr) string {
		contains := func(p netip.Prefix) bool { return p.Contains(ip) }
		taken, _ := derive.Get(r, t.claiming.taken, one)
		pins, _ := derive.Get(r, t.claiming.pins, one)
		gateway := ""
		for _, other := range taken {
			switch {
			case other.ClusterID == id:
			case slices.ContainsFunc(other.Has.Prefixes, contains):
				return "in a range of cluster " + other.ClusterID
			case slices.Contains(other.Gateways, ip):
				if gateway = "a gateway of cluster " + other.ClusterID; pins[other.ClusterID].HasGateways {
					return gateway
				}
			}
		}
		if len(taken) == 0 {
			return ""
		}
		if uses, _ := derive.Get(r, t.claiming.exporters, imported); slices.Contains(uses, use{ip, id}) {
			return ""
		}
		if gateway == "" && !slices.ContainsFunc(pins[id].Endpoints, contains) {
			return fmt.Sprintf(
				"outside of all ranges that clusters announce (if it is in a network that all clusters reach, list that in "+
					"annotation %s of the leader's ClusterSet; else set podCIDRs in the member controller's configuration of cluster "+
					"%s)",
				multicluster.AnnotationEndpointsPrefix+id, id)
		}
		return gateway
	}}
}

// newImport is a ResourceImport with its exporters' status, without times.
func newImport(key derive.Object, from map[string]bool, spec mcv1alpha1.ResourceImportSpec) *mcv1alpha1.ResourceImport {
	ri := &mcv1alpha1.ResourceImport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec}
	for _, id := range slices.Sorted(maps.Keys(from)) {
		ri.Status.ClusterStatuses = append(ri.Status.ClusterStatuses, mcv1alpha1.ResourceImportClusterStatus{
			ClusterID: id,
			Conditions: []mcv1alpha1.ResourceImportCondition{{
				Type: mcv1alpha1.ResourceImportSucceeded, Status: corev1.ConditionTrue, Message: "update is successful",
			}},
		})
	}
	return ri
}

// wanted returns the desired ResourceImport of a name; nil if there should be no import. decided is false while a label
// identity has no number yet.
func (t *tables) wanted(key derive.Object, r *derive.Reader) (_ *mcv1alpha1.ResourceImport, decided bool) {
	if base, ok := strings.CutSuffix(key.Name, multicluster.ServiceSuffix); ok {
		if s, _ := derive.Get(r, t.services, derive.Object{Namespace: key.Namespace, Name: base}); s.Joint.Import != nil {
			return s.Joint.Import, true
		}
	}
	if base, ok := strings.CutSuffix(key.Name, multicluster.EndpointsSuffix); ok {
		if j, _ := derive.Get(r, t.endpoints, derive.Object{Namespace: key.Namespace, Name: base}); j.Import != nil {
			return j.Import, true
		}
	}
	if l, _ := derive.Get(r, t.labels, key); l.Label != "" {
		n, decided := derive.Get(r, t.facts.numbers, key)
		return labelImport(key, l, n), decided
	}
	if a, _ := derive.Get(r, t.addresses, key); a.Import != nil {
		return a.Import, true
	}
	if j, _ := derive.Get(r, t.ofPolicies.policies, key); j.Import != nil {
		s, _ := derive.Get(r, t.ofPolicies.policyStates, key)
		ri := j.Import.DeepCopy()
		ri.Status.ClusterStatuses = s.Clusters
		return ri, true
	}
	c, _ := derive.Get(r, t.claiming.claims, one)
	return c.Imports[key.Name], true
}

// importStep is the step that a ResourceImport needs.
type importStep struct {
	Verb       verb
	Have, Want *mcv1alpha1.ResourceImport
}

func (t *stepTables) importStep(key derive.Object, r *derive.Reader) (importStep, []problem.Problem) {
	want, decided := t.all.wanted(key, r)
	have, _ := derive.Get(r, t.all.facts.imports, key)
	switch {
	case !decided:
		return importStep{}, nil
	case want == nil && have != nil && kept(have.Spec.Kind):
		return importStep{Verb: remove, Have: have}, nil
	case want == nil:
		return importStep{}, nil
	case have == nil:
		return importStep{Verb: create, Want: want}, nil
	case have.Spec.Namespace != want.Spec.Namespace || have.Spec.Name != want.Spec.Name ||
		have.Spec.Kind != want.Spec.Kind:
		// The existing import is of another Service with the same derived name. Its deletion makes members delete their
		// objects for that Service. Then the new import is created.
		return importStep{Verb: handOver, Have: have}, nil
	case !sameSpec(have.Spec, want.Spec) || !sameAnnotations(have, want):
		return importStep{update, have, want}, nil
	case statusNeeded(have) && !sameStatus(have.Status, want.Status):
		return importStep{updateStatus, have, want}, nil
	}
	return importStep{}, nil
}

// statusNeeded reports whether the status of a ResourceImport is written. Only a policy's status has facts that no
// other object has. All other imports are created without a status, as Antrea's leader does it. That saves a write each
// time. If an import has a status, it is kept up to date.
func statusNeeded(have *mcv1alpha1.ResourceImport) bool {
	return multicluster.IsPolicy(have.Spec.Kind) || len(have.Status.ClusterStatuses) > 0
}

// importAnnotations are the annotations that this controller writes on ResourceImports.
var importAnnotations = append([]string{multicluster.AnnotationExported, multicluster.AnnotationSources,
	multicluster.AnnotationReached}, requests.Keys...)

func sameAnnotations(have, want *mcv1alpha1.ResourceImport) bool {
	return !slices.ContainsFunc(importAnnotations,
		func(key string) bool { return have.Annotations[key] != want.Annotations[key] })
}

// annotate sets the leader's own annotations on an import. It leaves all others as they are.
func annotate(ri, want *mcv1alpha1.ResourceImport) {
	for _, key := range importAnnotations {
		if value, ok := want.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&ri.ObjectMeta, key, value)
		} else {
			delete(ri.Annotations, key)
		}
	}
}

// verdict is the report about faulty exports of one Service, or of its Endpoints. It depends on the exports, so a
// change of only the import leaves it as it is.
type verdict struct {
	Failed  map[string]string // why an export is not in the import, by its name
	Part    map[string]string // why only a part of an export is in the import, by its name
	Early   map[string]bool   // the exports that are likely to be in the import soon, or as a whole
	Refused string            // why the import could not be written

	Conflict *conflict // reported to all exporters
}

// serviceVerdict judges the exports of one Service.
func (t *tables) serviceVerdict(base derive.Object, r *derive.Reader) (verdict, []problem.Problem) {
	service, _ := derive.Get(r, t.services, base)
	v := t.verdict(r, service.Joint, base, multicluster.ServiceSuffix)
	v.Conflict = service.Conflict
	return v, nil
}

// endpointsVerdict judges the exports of the Endpoints of one Service.
func (t *tables) endpointsVerdict(base derive.Object, r *derive.Reader) (verdict, []problem.Problem) {
	endpoints, _ := derive.Get(r, t.endpoints, base)
	return t.verdict(r, endpoints, base, multicluster.EndpointsSuffix), nil
}

func (t *tables) verdict(r *derive.Reader, j joint, base derive.Object, suffix string) (v verdict) {
	if len(j.Failed)+len(j.Part) > 0 {
		v.Failed, v.Part, v.Early = j.Failed, j.Part, j.Early
	}
	v.Refused, _ = derive.Get(r, t.facts.refused, derive.Object{Namespace: base.Namespace, Name: base.Name + suffix})
	return v
}

// condition returns the condition of an export, without its time. An export that is being deleted has no condition.
// early is set if the condition is likely to change soon.
func (t *tables) condition(e *export, r *derive.Reader) (c mcv1alpha1.ResourceExportCondition, due, early bool) {
	if e.Deleted {
		return c, false, false
	}
	s := t.standing(r, e)
	switch {
	case s.Dismissed:
		return c, false, false
	case s.Why != "":
		return failure(s.Reason, s.Why), true, false
	}
	var v verdict
	switch e.Kind {
	case multicluster.ServiceKind:
		v, _ = derive.Get(r, t.serviceVerdicts, baseOf(e))
	case multicluster.EndpointsKind:
		v, _ = derive.Get(r, t.endpointsVerdicts, baseOf(e))
	case multicluster.ClusterInfoKind:
		claimed, _ := derive.Get(r, t.claiming.claims, one)
		v.Failed = claimed.Failed
		v.Refused, _ = derive.Get(r, t.facts.refused, e.Key)
	case multicluster.LabelIdentityKind:
		v = t.labelVerdict(e, r)
	case multicluster.PolicyReportKind, multicluster.NamespacesKind:
		v.Refused = e.Wrong
	case multicluster.PodAddressesKind:
		a, _ := derive.Get(r, t.addresses, e.Key)
		refused, _ := derive.Get(r, t.facts.refused, e.Key)
		// a member writes its ClusterInfo at the same time
		v.Refused, v.Early = cmp.Or(a.Failed, refused), map[string]bool{e.Key.Name: a.Early}
	case multicluster.AntreaClusterNetworkPolicyKind, multicluster.NetworkPolicyKind,
		multicluster.ClusterNetworkPolicyKind:
		key := derive.Object{Namespace: e.Key.Namespace, Name: importName(e)}
		j, _ := derive.Get(r, t.ofPolicies.policies, key)
		v.Failed = j.Failed
		v.Refused, _ = derive.Get(r, t.facts.refused, key)
	default:
		return failure(reasonFailed,
			fmt.Sprintf("spec.kind: %q is not processed by this version: delete the ResourceExport, or turn off in cluster %s "+
				"what makes it", e.Kind, e.ClusterID)), true, false
	}
	if why := cmp.Or(v.Failed[e.Key.Name], v.Refused); why != "" {
		return failure(reasonFailed, why), true, v.Early[e.Key.Name]
	}
	switch e.Kind {
	case multicluster.ClusterInfoKind, multicluster.LabelIdentityKind, multicluster.PolicyReportKind,
		multicluster.PodAddressesKind, multicluster.NamespacesKind:
		// Such exports have a condition only if they failed before.
		if have, _ := derive.Get(r, t.facts.written, e.Key); len(have.Conditions) == 0 {
			return c, false, false
		}
	}
	c = mcv1alpha1.ResourceExportCondition{Type: mcv1alpha1.ResourceExportSucceeded, Status: corev1.ConditionTrue}
	if v.Conflict != nil {
		c.Reason, c.Message = v.Conflict.Reason, v.Conflict.Message
	}
	if why := v.Part[e.Key.Name]; why != "" {
		c.Reason, c.Message = reasonEndpointsLeftOut.String(), why
	}
	if multicluster.IsPolicy(e.Kind) {
		s, _ := derive.Get(r, t.ofPolicies.policyStates, derive.Object{Namespace: e.Key.Namespace, Name: importName(e)})
		c.Message = s.Summary
	}
	if c.Reason == "" && c.Message == "" && t.silent(e, r) {
		return mcv1alpha1.ResourceExportCondition{}, false, false
	}
	return c, true, v.Early[e.Key.Name]
}

// silent reports whether an export has no condition while it is imported as a whole. These are the exports of Services
// and Endpoints by Tombolo's members, which do not read that condition. That saves two writes for each ServiceExport.
// Exports of Antrea's members get the condition, as Antrea's leader writes it. If Antrea's leader takes over, it adds
// the condition to the others: first to Services. Until then it refuses their Endpoints, and it may keep that condition
// (docs/multicluster-conformance.md). An export that has a condition keeps one, so that the end of a fault is visible.
func (t *tables) silent(e *export, r *derive.Reader) bool {
	if e.Kind != multicluster.ServiceKind && e.Kind != multicluster.EndpointsKind {
		return false
	}
	if have, _ := derive.Get(r, t.facts.written, e.Key); len(have.Conditions) > 0 {
		return false
	}
	service := e
	if e.Kind == multicluster.EndpointsKind {
		service, _ = derive.Get(r, t.facts.exports, derive.Object{Namespace: e.Key.Namespace,
			Name: multicluster.ResourceExportName(e.ClusterID, e.Of.namespace, e.Of.name, multicluster.ServiceSuffix)})
	}
	return service != nil && service.Facts != nil // Antrea's members list no facts
}

func failure(reason reasons.Reason, why string) mcv1alpha1.ResourceExportCondition {
	return mcv1alpha1.ResourceExportCondition{
		Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, Reason: reason.String(),
		Message: exportcheck.Refused + why,
	}
}

// exportStep is the step that an export needs.
type exportStep struct {
	Verb      verb
	Export    *export
	Have      written
	Condition mcv1alpha1.ResourceExportCondition // to write; its time is filled in
	All       bool                               // all finalizers: no other controller would remove a foreign one
	Waits     bool                               // for the import
	Early     bool                               // the condition is likely to be another one in a moment
}

func (t *stepTables) exportStep(key derive.Object, r *derive.Reader) (*exportStep, []problem.Problem) {
	e, _ := derive.Get(r, t.all.facts.exports, key)
	if e == nil {
		return nil, nil
	}
	have, _ := derive.Get(r, t.all.facts.written, key)
	if e.Deleted {
		s := t.all.standing(r, e)
		own := slices.Contains(e.Finalizers, multicluster.ResourceExportFinalizer) ||
			slices.Contains(e.Finalizers, multicluster.ResourceExportFinalizerOld)
		if !own && (!s.Dismissed || len(e.Finalizers) == 0) {
			return nil, nil
		}
		// The import is written first. Until then it may still have the content of this export.
		waits, _ := derive.Get(r, t.importSteps, derive.Object{Namespace: key.Namespace, Name: importName(e)})
		return &exportStep{Verb: release, Export: e, Have: have, All: s.Dismissed, Waits: waits.Verb != "" &&
			waits.Verb != updateStatus}, nil
	}
	want, due, early := t.all.condition(e, r)
	switch {
	case !due && t.all.standing(r, e).Dismissed:
		return &exportStep{Verb: remove, Export: e, Have: have}, nil
	case !due || sameConditions(have.Conditions, want):
		return nil, nil
	}
	return &exportStep{Verb: updateStatus, Export: e, Have: have, Condition: want, Early: early}, nil
}

// importName is the name of the ResourceImport that an export is part of.
func importName(e *export) string {
	switch e.Kind {
	case multicluster.ServiceKind:
		return multicluster.ResourceImportName(e.Of.namespace, e.Of.name, multicluster.ServiceSuffix)
	case multicluster.EndpointsKind:
		return multicluster.ResourceImportName(e.Of.namespace, e.Of.name, multicluster.EndpointsSuffix)
	case multicluster.LabelIdentityKind:
		return multicluster.LabelHash(e.Label)
	}
	if multicluster.IsPolicy(e.Kind) {
		return multicluster.PolicyImportName(e.Kind, e.Of.namespace, e.Of.name)
	}
	return e.Key.Name
}

// kept reports whether this controller keeps ResourceImports of a kind.
func kept(kind string) bool {
	switch kind {
	case multicluster.ServiceImportKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind,
		multicluster.LabelIdentityKind, multicluster.PodAddressesKind:
		return true
	}
	return multicluster.IsPolicy(kind)
}

package leader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// conflict is a contradiction between the exports of one Service. All their exporters get the same report.
type conflict struct{ Reason, Message string }

// service merges the exports of one Service by the rules of KEP-1645. The ports are the union, and the oldest export
// wins contradictions. If two Services have the same derived name, the imported one keeps it.
func (t *tables) service(base derive.Object, r *derive.Reader) (jointService, []problem.Problem) {
	exports := t.counting(r, derive.List(r, t.index.servicesOf, base))
	if len(exports) == 0 {
		return jointService{}, nil
	}
	j := joint{There: true, Converged: map[string]bool{}, Failed: map[string]string{}}
	var candidates []*export
	for _, e := range exports {
		if e.Missing {
			j.fail(e, "spec.service is missing")
			continue
		}
		if e.Wrong != "" {
			j.fail(e, "%s", e.Wrong)
			continue
		}
		if len(e.Ports) == 0 && !e.headless() {
			j.fail(e, "spec.service.serviceSpec.ports is empty; export a Service that has ports")
			continue
		}
		if wrong := checkService(e); wrong != nil {
			j.fail(e, "%v", wrong)
			continue
		}
		candidates = append(candidates, e)
	}
	if len(candidates) == 0 {
		return jointService{Joint: j}, nil
	}
	slices.SortStableFunc(candidates, older)
	current, _ := derive.Get(r, t.facts.imports,
		derive.Object{Namespace: base.Namespace, Name: base.Name + multicluster.ServiceSuffix})
	of := candidates[0].Of
	if current != nil {
		for _, e := range candidates {
			if e.Of == (object{current.Spec.Namespace, current.Spec.Name}) {
				of = e.Of
				break
			}
		}
	}
	var same []*export
	for _, e := range candidates {
		if e.Of != of {
			j.fail(e, "Service %s/%s has the derived name of Service %s/%s, which is imported already; rename one of the two "+
				"Services",
				e.Of.namespace, e.Of.name, of.namespace, of.name)
			continue
		}
		same = append(same, e)
	}
	j.Of = of
	m := merge(same)
	for _, e := range same {
		if e.headless() == m.headless {
			j.Converged[e.ClusterID] = true
		}
	}
	j.Import = newImport(derive.Object{Namespace: base.Namespace, Name: base.Name + multicluster.ServiceSuffix},
		j.Converged, mcv1alpha1.ResourceImportSpec{
			Namespace: of.namespace, Name: of.name, Kind: multicluster.ServiceImportKind,
			// The ServiceImport has no metadata. The API server drops metadata in an embedded object, so the stored import would
			// never equal the desired one.
			ServiceImport: &mcsv1alpha1.ServiceImport{Spec: m.spec},
		})
	if len(m.metadata.Labels)+len(m.metadata.Annotations) > 0 {
		j.Import.Annotations = map[string]string{multicluster.AnnotationExported: m.metadata.String()}
	}
	for key, value := range m.requests.Annotations() {
		metav1.SetMetaDataAnnotation(&j.Import.ObjectMeta, key, value)
	}
	return jointService{Joint: j, Conflict: m.conflict(), Lost: m.lost}, nil
}

// merged is the result of the exports of a Service.
type merged struct {
	spec     mcsv1alpha1.ServiceImportSpec
	metadata exportcheck.Metadata
	requests requests.Rule
	headless bool
	// lost has the names of the ports that a cluster loses, by cluster ID. In the import another cluster's port with the
	// same name or number replaces such a port.
	lost      map[string]map[string]bool
	conflicts []conflict
}

// merge merges exports, which are in their order, the oldest first.
func merge(exports []*export) *merged {
	oldest := exports[0]
	m := &merged{headless: oldest.headless(), spec: mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP},
		lost: map[string]map[string]bool{}}
	if m.headless {
		m.spec.Type = mcsv1alpha1.Headless
	}
	if e := first(exports[1:], func(e *export) bool { return e.headless() != m.headless }); e != nil {
		m.add(reasonTypeConflict, "type", string(m.spec.Type), oldest, e,
			"not that, and its endpoints are left out")
	}
	exports = slices.DeleteFunc(slices.Clone(exports), func(e *export) bool { return e.headless() != m.headless })
	m.ports(exports)

	exports = slices.DeleteFunc(exports, func(e *export) bool { return e.Facts == nil }) // the others have no facts
	if len(exports) == 0 {
		return m
	}
	oldest = exports[0]
	f := oldest.Facts
	differs := func(reason reasons.Reason, field, value string,
		of func(*exportcheck.ServiceFacts) any) {
		if e := first(exports[1:],
			func(e *export) bool { return !equality.Semantic.DeepEqual(of(e.Facts), of(f)) }); e != nil {
			m.add(reason, field, value, oldest, e, "another value")
		}
	}
	if !m.headless { // clients of a headless Service choose themselves
		affinity := func(f *exportcheck.ServiceFacts) corev1.ServiceAffinity {
			return cmp.Or(f.SessionAffinity, corev1.ServiceAffinityNone)
		}
		m.spec.SessionAffinity = affinity(f)
		differs(reasonSessionAffinityConflict, "sessionAffinity", string(affinity(f)),
			func(f *exportcheck.ServiceFacts) any { return affinity(f) })
		if f.AffinityTimeout != nil {
			m.spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: f.AffinityTimeout}}
		}
		differs(reasonSessionAffinityConfigConflict, "sessionAffinityConfig", timeoutText(f),
			func(f *exportcheck.ServiceFacts) any { return timeoutText(f) })
		if f.InternalTrafficPolicy != "" {
			m.spec.InternalTrafficPolicy = &f.InternalTrafficPolicy
		}
		differs(reasonInternalTrafficPolicyConflict, "internalTrafficPolicy",
			string(f.InternalTrafficPolicy), func(f *exportcheck.ServiceFacts) any { return f.InternalTrafficPolicy })
		if f.TrafficDistribution != "" {
			m.spec.TrafficDistribution = &f.TrafficDistribution
		}
		differs(reasonTrafficDistributionConflict, "trafficDistribution", f.TrafficDistribution,
			func(f *exportcheck.ServiceFacts) any { return f.TrafficDistribution })
	}
	m.families(exports)
	m.where(exports)
	m.metadata = f.Metadata
	differs(reasonLabelsConflict, "exportedLabels", quoted(f.Labels),
		func(f *exportcheck.ServiceFacts) any { return f.Labels })
	differs(reasonAnnotationsConflict, "exportedAnnotations", quoted(f.Annotations),
		func(f *exportcheck.ServiceFacts) any { return f.Annotations })
	return m
}

// families sets the union of the exports' versions of IP, in the order of the oldest. If they differ, connections over
// one of them reach only some of the clusters.
func (m *merged) families(exports []*export) {
	oldest := exports[0]
	for _, e := range exports {
		for _, f := range e.Facts.IPFamilies {
			if !slices.Contains(m.spec.IPFamilies, f) {
				m.spec.IPFamilies = append(m.spec.IPFamilies, f)
			}
		}
	}
	if e := first(exports[1:], func(e *export) bool {
		return !sets.New(e.Facts.IPFamilies...).Equal(sets.New(oldest.Facts.IPFamilies...))
	}); e != nil {
		m.conflicts = append(m.conflicts, conflict{reasonIPFamilyConflict.String(), fmt.Sprintf(
			"ipFamilies: cluster %s, whose export is the oldest, has %v, cluster %s has %v; imported is %v, and a connection "+
				"reaches only clusters with its version of IP",
			oldest.ClusterID, oldest.Facts.IPFamilies, e.ClusterID, e.Facts.IPFamilies, m.spec.IPFamilies)})
	}
}

// where sets where requests go: as in the oldest export that has a setting.
func (m *merged) where(exports []*export) {
	exports = slices.DeleteFunc(slices.Clone(exports), func(e *export) bool { return e.Facts.Requests == nil })
	if m.headless || len(exports) == 0 {
		return
	}
	m.requests = *exports[0].Facts.Requests
	if e := first(exports[1:],
		func(e *export) bool { return !equality.Semantic.DeepEqual(*e.Facts.Requests, m.requests) }); e != nil {
		m.add(reasonRequestsConflict, "annotation "+multicluster.AnnotationRequests, string(m.requests.To), exports[0], e,
			"another value, list or minimum")
	}
}

// ports sets the union of the exports' ports. If an older export has another port with the same name, or with the same
// protocol and number, a port is lost. Then its cluster's endpoints get no requests for the other port. A headless
// Service loses no port. Its clients choose a Pod themselves through DNS, which has all Pods of all exporters and the
// numbers of their ports.
func (m *merged) ports(exports []*export) {
	oldest := exports[0]
	var union []mcsv1alpha1.ServicePort
	var from *export // that differs
	for _, e := range exports {
		ports := servicePorts(e)
		if e != oldest && from == nil && !samePorts(sorted(ports), sorted(servicePorts(oldest))) {
			from = e
		}
		for _, p := range ports {
			i := slices.IndexFunc(union, func(u mcsv1alpha1.ServicePort) bool {
				return u.Name == p.Name || u.Name == "" || p.Name == "" || u.Protocol == p.Protocol && u.Port == p.Port
			})
			switch {
			case e == oldest || i < 0 && len(union) < exportcheck.MaxPorts:
				union = append(union, p)
			case i >= 0 && union[i].Name == p.Name && union[i].Protocol == p.Protocol && union[i].Port == p.Port:
			case m.headless:
			default:
				if m.lost[e.ClusterID] == nil {
					m.lost[e.ClusterID] = map[string]bool{}
				}
				m.lost[e.ClusterID][p.Name] = true
			}
		}
	}
	m.spec.Ports = union
	if m.spec.Ports == nil {
		m.spec.Ports = []mcsv1alpha1.ServicePort{} // the API wants a list
	}
	if from != nil {
		m.conflicts = append(m.conflicts, conflict{reasonPortConflict.String(), fmt.Sprintf(
			"ports: cluster %s, whose export is the oldest, has %s, cluster %s has %s; imported is %s",
			oldest.ClusterID, portsText(servicePorts(oldest)), from.ClusterID, portsText(servicePorts(from)), portsText(union))})
	}
}

func (m *merged) add(reason reasons.Reason, field, value string, oldest, other *export,
	has string) {
	m.conflicts = append(m.conflicts,
		conflict{reason.String(),
			fmt.Sprintf("%s: imported is %s of cluster %s, whose export is the oldest; cluster %s has %s",
				field, cmp.Or(value, "that"), oldest.ClusterID, other.ClusterID, has)})
}

// conflict joins the reasons and messages of all conflicts, in the order in which they were found. The reasons are
// separated by commas, which a condition's reason may contain. Together they are far below its limit of 1024
// characters.
func (m *merged) conflict() *conflict {
	if len(m.conflicts) == 0 {
		return nil
	}
	names, texts := make([]string, len(m.conflicts)), make([]string, len(m.conflicts))
	for i, c := range m.conflicts {
		names[i], texts[i] = c.Reason, c.Message
	}
	return &conflict{strings.Join(names, ","), strings.Join(texts, "; ")}
}

func first(exports []*export, is func(*export) bool) *export {
	if i := slices.IndexFunc(exports, is); i >= 0 {
		return exports[i]
	}
	return nil
}

func timeoutText(f *exportcheck.ServiceFacts) string {
	if f.AffinityTimeout == nil {
		return "without a timeout"
	}
	return fmt.Sprintf("timeout %ds", *f.AffinityTimeout)
}

// quoted returns a list as text, and bounds its length. So members cannot fill conditions with it.
func quoted(list map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(list)) {
		out = append(out, k+"="+list[k])
	}
	if text := strings.Join(out, ","); len(text) <= 256 {
		return "[" + text + "]"
	}
	return fmt.Sprintf("a list of %d", len(list))
}

// arrival is how many seconds an export may take from its cluster to the leader.
const arrival = 5

// older compares exports by their age. The older of two exports counts. A member may report any creation time for its
// export. So if the leader already had an export for longer than exports need to arrive, this export has precedence,
// regardless of reported times. If clusters join at the same time, exports of one Service arrive in the same second,
// and may all be older than their arrival. Then their reported times decide, and not the names of their clusters.
func older(a, b *export) int {
	return cmp.Or(cmp.Compare(max(a.exportedAt(), a.Created-arrival), max(b.exportedAt(), b.Created-arrival)),
		cmp.Compare(a.exportedAt(), b.exportedAt()))
}

// exportedAt returns when an export was made, according to its own record.
func (e *export) exportedAt() int64 {
	if e.Facts != nil && e.Facts.Created > 0 {
		return e.Facts.Created
	}
	return e.Created
}

func (e *export) headless() bool { return e.Facts != nil && e.Facts.Headless }

// checkService returns the fault in the name of a Service and its ports.
func checkService(e *export) error {
	if wrong := validation.IsDNS1123Label(e.Of.namespace); len(wrong) > 0 {
		return fmt.Errorf("spec.namespace: %q: %s", e.Of.namespace, wrong[0])
	}
	if wrong := validation.IsDNS1123Label(e.Of.name); len(wrong) > 0 {
		return fmt.Errorf("spec.name: %q: %s", e.Of.name, wrong[0])
	}
	if err := exportcheck.ServiceName("spec.name", e.Of.name); err != nil {
		return err
	}
	_, wrong := exportcheck.ServicePorts("spec.service.serviceSpec.ports", e.Ports)
	return exportcheck.First(wrong)
}

func servicePorts(e *export) []mcsv1alpha1.ServicePort {
	var out []mcsv1alpha1.ServicePort
	for _, p := range e.Ports {
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, mcsv1alpha1.ServicePort{Name: p.Name, Protocol: protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return out
}

// sorted returns the ports in an order that does not depend on their input.
func sorted(ports []mcsv1alpha1.ServicePort) []mcsv1alpha1.ServicePort {
	out := slices.Clone(ports)
	slices.SortFunc(out, func(a, b mcsv1alpha1.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return out
}

func samePorts(a, b []mcsv1alpha1.ServicePort) bool {
	return len(a) == len(b) && equality.Semantic.DeepEqual(a, b)
}

func portsText(ports []mcsv1alpha1.ServicePort) string {
	var out []string
	for i, p := range ports {
		if i == 8 {
			out = append(out, fmt.Sprintf("and %d more", len(ports)-i))
			break
		}
		text := strings.TrimPrefix(fmt.Sprintf("%s:%s/%d", p.Name, p.Protocol, p.Port), ":")
		if p.AppProtocol != nil {
			text += "(" + *p.AppProtocol + ")"
		}
		out = append(out, text)
	}
	return "[" + strings.Join(out, " ") + "]"
}

// withoutPorts returns subsets without some ports. If no port of a subset is left, the subset is removed, because
// endpoints without ports would have another meaning.
func withoutPorts(subsets []corev1.EndpointSubset, lost map[string]bool) []corev1.EndpointSubset {
	if len(lost) == 0 {
		return subsets
	}
	var out []corev1.EndpointSubset
	for _, s := range subsets {
		s.Ports = slices.DeleteFunc(slices.Clone(s.Ports), func(p corev1.EndpointPort) bool { return lost[p.Name] })
		if len(s.Ports) > 0 {
			out = append(out, s)
		}
	}
	return out
}

package leader

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// object is what an export is of.
type object struct{ namespace, name string }

// imports decides what the members import. Deleted exports do not count any more.
func (p *planner) imports() {
	existing := map[string]*mcv1alpha1.ResourceImport{}
	for _, ri := range p.ResourceImports {
		existing[ri.Name] = ri
	}
	leaving := map[string]bool{}
	for _, name := range p.desired.DeleteExports {
		leaving[name] = true
	}
	services, endpoints := map[string][]*mcv1alpha1.ResourceExport{}, map[string][]*mcv1alpha1.ResourceExport{}
	var infos []*mcv1alpha1.ResourceExport
	var names []string
	for _, re := range p.ResourceExports {
		if re.DeletionTimestamp != nil {
			own := slices.Contains(re.Finalizers, multicluster.ResourceExportFinalizer) || slices.Contains(re.Finalizers, multicluster.ResourceExportFinalizerOld)
			if own || p.desired.FreeExports[re.Name] && len(re.Finalizers) > 0 {
				p.desired.ReleaseExports = append(p.desired.ReleaseExports, re.Name)
			}
			continue
		}
		if leaving[re.Name] || fromMember(re) && !p.fromInsider(re) {
			continue
		}
		switch re.Spec.Kind {
		case multicluster.ServiceKind:
			name := multicluster.ResourceImportName(re.Spec.Namespace, re.Spec.Name, "")
			if services[name] == nil {
				names = append(names, name)
			}
			services[name] = append(services[name], re)
		case multicluster.EndpointsKind:
			name := multicluster.ResourceImportName(re.Spec.Namespace, re.Spec.Name, "")
			endpoints[name] = append(endpoints[name], re)
		case multicluster.ClusterInfoKind:
			infos = append(infos, re)
		default:
			p.fail(re, "spec.kind: %q is not processed by this version: delete the ResourceExport, or turn off in cluster %s what makes it", re.Spec.Kind, re.Spec.ClusterID)
		}
	}
	p.ranges(p.clusterInfos(infos))
	slices.Sort(names)
	for _, name := range names {
		of, converged := p.service(existing[name+multicluster.ServiceSuffix], services[name])
		p.endpoints(of, converged, endpoints[name])
		delete(endpoints, name)
	}
	for _, orphans := range endpoints {
		for _, re := range orphans {
			p.fail(re, "its Service is not exported by cluster %s", re.Spec.ClusterID)
		}
	}
}

// reasonNotAnnounced is why exports of a cluster that has not announced itself are not imported.
// The transition time of that condition is when it was found.
const reasonNotAnnounced = "MemberNotAnnounced"

// fromInsider reports whether an export is of a member of the ClusterSet, and says on it if not.
func (p *planner) fromInsider(re *mcv1alpha1.ResourceExport) bool {
	switch why, announced := p.outsiders[re.Spec.ClusterID]; {
	case !announced:
		p.failFor(re, reasonNotAnnounced, "cluster %s is not a member of the ClusterSet: it has no MemberClusterAnnounce; this ResourceExport is deleted after %s",
			re.Spec.ClusterID, orphanAfter)
		return false
	case why != "":
		p.fail(re, "%s", why)
		return false
	}
	return true
}

// orphanSince is when an export was found to be of a cluster that has not announced itself.
func orphanSince(re *mcv1alpha1.ResourceExport) (time.Time, bool) {
	for _, c := range re.Status.Conditions {
		if c.Reason == reasonNotAnnounced {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// ranges notes which ranges the endpoints of each cluster may be in.
func (p *planner) ranges(infos map[string]*mcv1alpha1.ClusterInfo) {
	p.announced = map[string][]netip.Prefix{}
	for id, info := range infos {
		for _, text := range append([]string{info.ServiceCIDR}, info.PodCIDRs...) {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				p.announced[id] = append(p.announced[id], prefix.Masked())
			}
		}
	}
}

// allowed is where a cluster's endpoints may be.
func (p *planner) allowed(id string) exportcheck.Allowed {
	return exportcheck.Allowed{Own: p.announced[id], Others: p.announced}
}

// succeed says that an export is in its import, unless that one cannot be written.
func (p *planner) succeed(re *mcv1alpha1.ResourceExport) {
	if why := p.Refused[importName(re)]; why != "" {
		p.fail(re, "%s", why)
		return
	}
	p.condition(re, mcv1alpha1.ResourceExportCondition{Type: mcv1alpha1.ResourceExportSucceeded, Status: corev1.ConditionTrue})
}

// fail keeps an export out of its import, and says why.
func (p *planner) fail(re *mcv1alpha1.ResourceExport, format string, args ...any) {
	p.failFor(re, "ConvergeFailure", format, args...)
}

func (p *planner) failFor(re *mcv1alpha1.ResourceExport, reason, format string, args ...any) {
	p.condition(re, mcv1alpha1.ResourceExportCondition{
		Type: mcv1alpha1.ResourceExportFailure, Status: corev1.ConditionFalse, Reason: reason,
		Message: "the ResourceExport cannot be converged to a ResourceImport: " + fmt.Sprintf(format, args...),
	})
}

func (p *planner) condition(re *mcv1alpha1.ResourceExport, c mcv1alpha1.ResourceExportCondition) {
	c.LastTransitionTime = metav1.NewTime(p.Now)
	for _, old := range re.Status.Conditions {
		same := old.Type == c.Type && old.Status == c.Status && (c.Reason != reasonNotAnnounced || old.Reason == c.Reason)
		if same && !old.LastTransitionTime.After(p.Now) {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	p.desired.Conditions[re.Name] = c
}

// service merges the exports of one Service. Who is imported already stays as long as
// somebody exports it so; else the oldest export decides. The others have to agree.
func (p *planner) service(current *mcv1alpha1.ResourceImport, exports []*mcv1alpha1.ResourceExport) (object, map[string]bool) {
	var candidates []*mcv1alpha1.ResourceExport
	for _, re := range exports {
		if re.Spec.Service == nil {
			p.fail(re, "spec.service is missing")
			continue
		}
		if len(re.Spec.Service.ServiceSpec.Ports) == 0 {
			p.fail(re, "spec.service.serviceSpec.ports is empty; export a Service that has ports")
			continue
		}
		if wrong := checkService(re); wrong != nil {
			p.fail(re, "%v", wrong)
			continue
		}
		candidates = append(candidates, re)
	}
	if len(candidates) == 0 {
		return object{}, nil
	}
	first := candidates[0]
	of := object{first.Spec.Namespace, first.Spec.Name}
	if current != nil {
		for _, re := range candidates {
			if re.Spec.Namespace == current.Spec.Namespace && re.Spec.Name == current.Spec.Name {
				of = object{re.Spec.Namespace, re.Spec.Name}
				break
			}
		}
	}
	var ports []mcsv1alpha1.ServicePort
	decided, decidedBy := false, ""
	if current != nil && current.Spec.ServiceImport != nil {
		for _, re := range candidates {
			if (object{re.Spec.Namespace, re.Spec.Name}) == of && samePorts(servicePorts(re), current.Spec.ServiceImport.Spec.Ports) {
				ports, decided, decidedBy = servicePorts(re), true, re.Spec.ClusterID
				break
			}
		}
	}
	converged := map[string]bool{}
	for _, re := range candidates {
		switch {
		case (object{re.Spec.Namespace, re.Spec.Name}) != of:
			p.fail(re, "Service %s/%s has the derived name of Service %s/%s, which is imported already; rename one of the two Services",
				re.Spec.Namespace, re.Spec.Name, of.namespace, of.name)
			continue
		case !decided:
			ports, decided, decidedBy = servicePorts(re), true, re.Spec.ClusterID
		case !samePorts(servicePorts(re), ports):
			p.fail(re, "ports %s differ from %s as exported by cluster %s; make the Services' ports equal (name, protocol, number, order)",
				portsText(servicePorts(re)), portsText(ports), decidedBy)
			continue
		}
		converged[re.Spec.ClusterID] = true
		p.succeed(re)
	}
	p.want(multicluster.ResourceImportName(of.namespace, of.name, multicluster.ServiceSuffix), converged, mcv1alpha1.ResourceImportSpec{
		Namespace: of.namespace, Name: of.name, Kind: multicluster.ServiceImportKind,
		// Without metadata: the API server drops it in an embedded object, and what comes
		// back would never equal what is wanted.
		ServiceImport: &mcsv1alpha1.ServiceImport{
			Spec: mcsv1alpha1.ServiceImportSpec{Ports: ports, Type: mcsv1alpha1.ClusterSetIP},
		},
	})
	return of, converged
}

// checkService says what is wrong with what names a Service and its ports.
func checkService(re *mcv1alpha1.ResourceExport) error {
	if e := validation.IsDNS1123Label(re.Spec.Namespace); len(e) > 0 {
		return fmt.Errorf("spec.namespace: %q: %s", re.Spec.Namespace, e[0])
	}
	if e := validation.IsDNS1123Label(re.Spec.Name); len(e) > 0 {
		return fmt.Errorf("spec.name: %q: %s", re.Spec.Name, e[0])
	}
	_, wrong := exportcheck.ServicePorts("spec.service.serviceSpec.ports", re.Spec.Service.ServiceSpec.Ports)
	return exportcheck.First(wrong)
}

// endpoints puts the addresses of all clusters whose Service has converged together, in the
// order of their IDs. One that others could not import stays out, and changes nothing for them.
func (p *planner) endpoints(of object, converged map[string]bool, exports []*mcv1alpha1.ResourceExport) {
	from := map[string]bool{}
	clean := map[string][]corev1.EndpointSubset{} // by cluster ID
	count, bytes := 0, 0
	for _, re := range exports { // the oldest first: a newcomer does not push others out
		switch {
		case re.Spec.Endpoints == nil:
			p.fail(re, "spec.endpoints is missing")
			continue
		case (object{re.Spec.Namespace, re.Spec.Name}) != of || !converged[re.Spec.ClusterID]:
			p.fail(re, "the Service export of cluster %s has not been converged", re.Spec.ClusterID)
			continue
		case from[re.Spec.ClusterID]:
			p.fail(re, "cluster %s exports these Endpoints twice", re.Spec.ClusterID)
			continue
		}
		subsets, wrong := exportcheck.Subsets("spec.endpoints.subsets", re.Spec.Endpoints.Subsets, p.allowed(re.Spec.ClusterID), exportcheck.MaxEndpoints)
		if err := exportcheck.First(wrong); err != nil {
			p.fail(re, "%v", err)
			continue
		}
		if n, b := count+exportcheck.Count(subsets), bytes+exportcheck.Bytes(subsets); n > exportcheck.MaxImportEndpoints || b > exportcheck.MaxImportBytes {
			p.fail(re, "with it the joint Endpoints would have %d endpoints in about %d bytes: expected at most %d and %d; export fewer endpoints",
				n, b, exportcheck.MaxImportEndpoints, exportcheck.MaxImportBytes)
			continue
		} else {
			count, bytes = n, b
		}
		from[re.Spec.ClusterID], clean[re.Spec.ClusterID] = true, subsets
		p.succeed(re)
	}
	if len(from) == 0 {
		return
	}
	var subsets []corev1.EndpointSubset
	for _, id := range slices.Sorted(maps.Keys(from)) {
		subsets = append(subsets, clean[id]...)
	}
	p.want(multicluster.ResourceImportName(of.namespace, of.name, multicluster.EndpointsSuffix), from, mcv1alpha1.ResourceImportSpec{
		Namespace: of.namespace, Name: of.name, Kind: multicluster.EndpointsKind,
		Endpoints: &mcv1alpha1.EndpointsImport{Subsets: subsets},
	})
}

// want adds a ResourceImport with its exporters' status.
func (p *planner) want(name string, from map[string]bool, spec mcv1alpha1.ResourceImportSpec) {
	ri := &mcv1alpha1.ResourceImport{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}, Spec: spec}
	var clusters []string
	for id := range from {
		clusters = append(clusters, id)
	}
	slices.Sort(clusters)
	for _, id := range clusters {
		ri.Status.ClusterStatuses = append(ri.Status.ClusterStatuses, mcv1alpha1.ResourceImportClusterStatus{
			ClusterID: id,
			Conditions: []mcv1alpha1.ResourceImportCondition{{
				Type: mcv1alpha1.ResourceImportSucceeded, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(p.Now),
				Message: "update is successful",
			}},
		})
	}
	p.desired.Imports[name] = ri
}

// importName is the name of the ResourceImport that an export is part of.
func importName(re *mcv1alpha1.ResourceExport) string {
	switch re.Spec.Kind {
	case multicluster.ServiceKind:
		return multicluster.ResourceImportName(re.Spec.Namespace, re.Spec.Name, multicluster.ServiceSuffix)
	case multicluster.EndpointsKind:
		return multicluster.ResourceImportName(re.Spec.Namespace, re.Spec.Name, multicluster.EndpointsSuffix)
	}
	return re.Name
}

// kept reports whether this controller keeps ResourceImports of a kind.
func kept(kind string) bool {
	switch kind {
	case multicluster.ServiceImportKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind:
		return true
	}
	return false
}

func servicePorts(re *mcv1alpha1.ResourceExport) []mcsv1alpha1.ServicePort {
	var out []mcsv1alpha1.ServicePort
	for _, p := range re.Spec.Service.ServiceSpec.Ports {
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, mcsv1alpha1.ServicePort{Name: p.Name, Protocol: protocol, Port: p.Port})
	}
	return out
}

func samePorts(a, b []mcsv1alpha1.ServicePort) bool {
	return len(a) == len(b) && equality.Semantic.DeepEqual(a, b)
}

func portsText(ports []mcsv1alpha1.ServicePort) string {
	var out []string
	for _, p := range ports {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%s:%s/%d", p.Name, p.Protocol, p.Port), ":"))
	}
	return "[" + strings.Join(out, " ") + "]"
}

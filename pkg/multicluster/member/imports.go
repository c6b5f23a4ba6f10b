package member

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

const (
	reasonNamespaceMissing = "NamespaceNotFound"
	reasonNotImported      = "NotImported" // an object that is not ours is in the way
	reasonImportInvalid    = "ResourceImportInvalid"
)

// imports plans what the leader's ResourceImports of Services and of other clusters' ClusterInfo
// become here. Other kinds are left alone.
func (p *planner) imports() {
	if !p.joined {
		p.desired.KeepImports = true
		return
	}
	endpoints := map[key]*mcv1alpha1.ResourceImport{}
	for _, ri := range p.Leader.ResourceImports {
		if ri.Spec.Kind == multicluster.EndpointsKind && ri.DeletionTimestamp.IsZero() && ri.Spec.Endpoints != nil {
			endpoints[key{Namespace: ri.Spec.Namespace, Name: ri.Spec.Name}] = ri
		}
	}
	namespaces := map[string]*corev1.Namespace{}
	for _, ns := range p.Namespaces {
		namespaces[ns.Name] = ns
	}
	in := importer{
		planner: p, namespaces: namespaces, services: byKey(p.Services), endpoints: byKey(p.Endpoints),
		serviceImports: byKey(p.ServiceImports), done: map[key]bool{},
	}
	p.clusterInfoImports()
	for _, ri := range inOrder(p.Leader.ResourceImports) {
		if ri.Spec.Kind == multicluster.ServiceImportKind && ri.DeletionTimestamp.IsZero() && p.isFor(ri) {
			in.service(ri, endpoints[key{Namespace: ri.Spec.Namespace, Name: ri.Spec.Name}])
		}
	}
}

// isFor says whether a ResourceImport is meant for this cluster: for all if it names none.
func (p *planner) isFor(ri *mcv1alpha1.ResourceImport) bool {
	return len(ri.Spec.ClusterIDs) == 0 || slices.Contains(ri.Spec.ClusterIDs, p.id)
}

// importer has the local objects an imported Service may meet.
type importer struct {
	*planner
	namespaces     map[string]*corev1.Namespace
	services       map[key]*corev1.Service
	endpoints      map[key]*Endpoints
	serviceImports map[key]*mcsv1alpha1.ServiceImport
	done           map[key]bool
}

// service plans the Service antrea-mc-<name>, its Endpoints, and the ServiceImport that carries
// its ClusterIP. Whatever of these exists without our mark is a user's and stays as it is.
func (in *importer) service(ri, endpoints *mcv1alpha1.ResourceImport) {
	set := object("ClusterSet", in.set.Namespace, in.set.Name)
	k := key{Namespace: ri.Spec.Namespace, Name: multicluster.ImportedPrefix + ri.Spec.Name}
	if ri.Spec.ServiceImport == nil || ri.Spec.Namespace == "" || ri.Spec.Name == "" {
		in.problem(set, "", reasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is ignored: it names no Service or has no spec.serviceImport", ri.Namespace, ri.Name))
		return
	}
	if in.done[k] {
		return
	}
	in.done[k] = true
	if ns := in.namespaces[k.Namespace]; ns == nil || !ns.DeletionTimestamp.IsZero() {
		in.problem(set, "", reasonNamespaceMissing, fmt.Sprintf(
			"Service %s/%s is not imported: Namespace %s does not exist here; create it to import the Service", ri.Spec.Namespace, ri.Spec.Name, k.Namespace))
		return
	}
	// The leader may be another implementation, which passes on whatever a member exports.
	ports, wrong := exportcheck.ImportPorts("spec.serviceImport.spec.ports", ri.Spec.ServiceImport.Spec.Ports)
	in.leftOut(ri, wrong)
	if len(ports) == 0 {
		in.problem(set, "", reasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is ignored: it has no port that can be imported", ri.Namespace, ri.Name))
		return
	}
	annotations := map[string]string{multicluster.AnnotationImportedService: "true"}
	have, filled := in.services[k], in.endpoints[k]
	if have != nil && !imported(have) {
		in.inTheWay("Service", k, ri)
		return
	}
	if filled != nil && !imported(filled) {
		in.inTheWay("Endpoints", k, ri)
		if have == nil {
			return // a Service now would send traffic to the user's Endpoints
		}
		endpoints = nil
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Annotations: annotations},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}
	for _, p := range ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	in.desired.Services = append(in.desired.Services, service)
	if endpoints != nil {
		subsets, wrong := exportcheck.Subsets("spec.endpoints.subsets", endpoints.Spec.Endpoints.Subsets, exportcheck.Allowed{}, exportcheck.MaxImportEndpoints)
		in.leftOut(endpoints, wrong)
		in.unreachable(k, endpoints)
		in.desired.Endpoints = append(in.desired.Endpoints, &Endpoints{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Annotations: annotations},
			Subsets:    subsets,
		})
	}

	at := key{Namespace: k.Namespace, Name: ri.Spec.Name}
	if si := in.serviceImports[at]; si != nil && !imported(si) {
		in.inTheWay("ServiceImport", at, ri)
		return
	}
	want := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Annotations: annotations},
		Spec:       mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP, Ports: ports},
	}
	if have != nil && have.Spec.ClusterIP != "" && have.Spec.ClusterIP != corev1.ClusterIPNone {
		want.Spec.IPs = []string{have.Spec.ClusterIP}
	} else if si := in.serviceImports[at]; si == nil {
		return // made when the Service has its address
	} else {
		want.Spec.IPs = si.Spec.IPs
	}
	in.desired.ServiceImports = append(in.desired.ServiceImports, want)
}

// leftOut reports what of a ResourceImport is not imported, once for each import. The rest is.
func (in *importer) leftOut(ri *mcv1alpha1.ResourceImport, wrong []exportcheck.Problem) {
	if err := exportcheck.First(wrong); err != nil {
		in.problem(object("ClusterSet", in.set.Namespace, in.set.Name), "", reasonImportInvalid, fmt.Sprintf(
			"ResourceImport %s/%s of the leader is imported in part: %v", ri.Namespace, ri.Name, err))
	}
}

// inTheWay reports a user's object that has the name of an imported one.
func (in *importer) inTheWay(kind string, k key, ri *mcv1alpha1.ResourceImport) {
	in.problem(object(kind, k.Namespace, k.Name), "metadata.annotations", reasonNotImported, fmt.Sprintf(
		"Service %s/%s of the ClusterSet is not imported completely: %s %s exists already and is not an imported one (no annotation %s), so it is left as it is; rename or delete it",
		ri.Spec.Namespace, ri.Spec.Name, kind, k, multicluster.AnnotationImportedService))
}

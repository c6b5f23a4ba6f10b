package member

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
)

// serviceTables are the Services of this cluster with their EndpointSlices.
type serviceTables struct {
	services        *derive.Source[derive.Object, *corev1.Service]
	slices          *derive.Source[derive.Object, *discoveryv1.EndpointSlice]
	slicesByService *derive.Index[derive.Object, derive.Object, *discoveryv1.EndpointSlice]
}

func newServiceTables(k *kinds, endpointIPType string) *serviceTables {
	t := &serviceTables{}
	t.services = writtenKind(k, k.cluster, "Service", "services", serviceFacts, importedVersion)
	t.slices = writtenKind(k, k.cluster, "EndpointSlice", "endpointslices",
		sliceFacts(endpointIPType), importedSliceVersion)
	t.slicesByService = derive.NewIndex(t.slices, "service",
		func(k derive.Object, s *discoveryv1.EndpointSlice) []derive.Object {
			return []derive.Object{{Namespace: k.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}}
		})
	return t
}

// What decisions read of an object is an object of the same kind with only that in it, so that
// an event that changes nothing else ends in its source. An update is the difference of two such
// objects, and leaves what they do not have as it is.

// metaFacts are those of any object. The UID is for Events, and so that a write meets no other object of the name.
func metaFacts(o metav1.Object, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), DeletionTimestamp: o.GetDeletionTimestamp()}
	for _, key := range annotations {
		if value, ok := o.GetAnnotations()[key]; ok {
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			m.Annotations[key] = value
		}
	}
	return m
}

// version of an object is kept beside its facts: it is read for what is to be written alone, so that an event without a
// fact evaluates nothing else.
func version[T metav1.Object](o T) string { return o.GetResourceVersion() }

// importedVersion is for kinds of which only what is imported is written.
func importedVersion[T metav1.Object](o T) string {
	if !imported(o) {
		return ""
	}
	return o.GetResourceVersion()
}

func clusterSetFacts(o *mcv1alpha2.ClusterSet) *mcv1alpha2.ClusterSet {
	m := metaFacts(o)
	m.CreationTimestamp, m.Generation = o.CreationTimestamp, o.Generation
	for key, value := range o.Annotations {
		if strings.HasPrefix(key, multicluster.AnnotationRangesPrefix) {
			metav1.SetMetaDataAnnotation(&m, key, value)
		}
	}
	return &mcv1alpha2.ClusterSet{ObjectMeta: m, Spec: o.Spec, Status: o.Status}
}

func clusterClaimFacts(o *mcv1alpha2.ClusterClaim) *mcv1alpha2.ClusterClaim {
	return &mcv1alpha2.ClusterClaim{ObjectMeta: metaFacts(o), ClaimName: o.ClaimName, Value: o.Value}
}

// namespaceFacts have the labels where label identities are exported.
func namespaceFacts(labels bool) func(*corev1.Namespace) *corev1.Namespace {
	return func(o *corev1.Namespace) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metaFacts(o)}
		if labels {
			n.Labels = o.Labels
		}
		return n
	}
}

// nodeFacts leave out the time of the last heartbeat, by which a Node's status changes every few seconds.
func nodeFacts(o *corev1.Node) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metaFacts(o, multicluster.AnnotationGateway, multicluster.AnnotationGatewayIP),
		Spec:       corev1.NodeSpec{PodCIDRs: o.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: o.Status.Addresses},
	}
	if nodeReady(o) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return n
}

func serviceFacts(o *corev1.Service) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metaFacts(o, multicluster.AnnotationImportedService, multicluster.AnnotationClusterOrder, multicluster.AnnotationMinimumReady),
		Spec: corev1.ServiceSpec{
			Type: o.Spec.Type, Selector: o.Spec.Selector, Ports: o.Spec.Ports, ClusterIP: o.Spec.ClusterIP, ClusterIPs: o.Spec.ClusterIPs,
			SessionAffinity: o.Spec.SessionAffinity, SessionAffinityConfig: o.Spec.SessionAffinityConfig, IPFamilies: o.Spec.IPFamilies,
			InternalTrafficPolicy: o.Spec.InternalTrafficPolicy, TrafficDistribution: o.Spec.TrafficDistribution,
		},
	}
}

// endpointsFacts of Endpoints that are not imported say only that they exist.
func endpointsFacts(o *Endpoints) *Endpoints {
	e := &Endpoints{ObjectMeta: metaFacts(o, multicluster.AnnotationImportedService)}
	if imported(o) {
		e.Subsets = o.Subsets
		if value, ok := o.Labels[discoveryv1.LabelSkipMirror]; ok {
			e.Labels = map[string]string{discoveryv1.LabelSkipMirror: value}
		}
	}
	return e
}

// importedSlice says whether an EndpointSlice is one of an imported Service.
func importedSlice(o *discoveryv1.EndpointSlice) bool {
	return o.Labels[discoveryv1.LabelManagedBy] == multicluster.EndpointSliceManager
}

// importedSliceVersion is importedVersion for EndpointSlices.
func importedSliceVersion(o *discoveryv1.EndpointSlice) string {
	if !importedSlice(o) {
		return ""
	}
	return o.ResourceVersion
}

// byController says whether Kubernetes made an EndpointSlice of a Service that has a ClusterIP.
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

// factDraining is the annotation of an EndpointSlice's facts that counts the endpoints that end and still answer. No object has it.
const factDraining = "draining"

// sliceFacts reduces EndpointSlices. Where Services are exported by their ClusterIP, it keeps how many endpoints are ready and how many end and
// still answer, as annotations. Of headless Services, and of those that may be, it keeps these endpoints. Those of imported Services are
// whole: they are compared with what they should be.
func sliceFacts(types string) func(*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	return func(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metaFacts(o), AddressType: o.AddressType}
		if importedSlice(o) {
			s.ObjectMeta = metaFacts(o, multicluster.AnnotationReady)
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
			case ready(e):
				count[multicluster.AnnotationReady]++
			case draining(e):
				count[factDraining]++
				fact.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
			default:
				continue
			}
			if pods {
				fact.Addresses, fact.Hostname = e.Addresses, e.Hostname
				s.Endpoints = append(s.Endpoints, fact)
			}
		}
		if !pods {
			s.Annotations = map[string]string{multicluster.AnnotationReady: strconv.Itoa(count[multicluster.AnnotationReady]), factDraining: strconv.Itoa(count[factDraining])}
		}
		return s
	}
}

func serviceExportFacts(o *mcsv1alpha1.ServiceExport) *mcsv1alpha1.ServiceExport {
	m := metaFacts(o, requests.Keys...)
	m.Generation, m.CreationTimestamp = o.Generation, o.CreationTimestamp
	return &mcsv1alpha1.ServiceExport{ObjectMeta: m, Spec: o.Spec, Status: o.Status}
}

func serviceImportFacts(o *mcsv1alpha1.ServiceImport) *mcsv1alpha1.ServiceImport {
	si := &mcsv1alpha1.ServiceImport{ObjectMeta: metaFacts(o)}
	si.Spec.IPs = o.Spec.IPs // by which byAntrea knows one
	if imported(o) {         // all of it is written
		si.Labels, si.Annotations, si.Spec, si.Status = o.Labels, o.Annotations, o.Spec, o.Status
	}
	return si
}

// agentReport is what a Node's agent says of itself.
type agentReport struct {
	Known        bool   // true in every row
	KeepsClients bool   // it keeps clients' addresses between Pods of clusters
	SingleWays   bool   // it watches a single way to another cluster
	Encrypts     bool   // it sends nothing to other clusters in plain text
	Tunnel       string // the feature that says what tunnels it has
	Ways         map[string]string
}

func reportFacts(o *tombolov1alpha1.NodePolicyReport) agentReport {
	_, can := o.Features[mcv1alpha1.FeaturePreserveClientIP]
	_, single := o.Features[mcv1alpha1.FeatureSingleWays]
	_, encrypts := o.Features[mcv1alpha1.FeatureEncryptsPeers]
	return agentReport{Known: true, KeepsClients: can, SingleWays: single, Encrypts: encrypts, Tunnel: mcv1alpha1.TunnelOf(slices.Sorted(maps.Keys(o.Features))), Ways: o.Ways}
}

func gatewayFacts(o *mcv1alpha1.Gateway) *mcv1alpha1.Gateway {
	m := metaFacts(o, multicluster.AnnotationKeptPods, multicluster.AnnotationPhase, multicluster.AnnotationInsideIP)
	m.CreationTimestamp = o.CreationTimestamp
	return &mcv1alpha1.Gateway{ObjectMeta: m, GatewayIP: o.GatewayIP, InternalIP: o.InternalIP, ServiceCIDR: o.ServiceCIDR, WireGuard: o.WireGuard, Status: o.Status}
}

func clusterInfoImportFacts(o *mcv1alpha1.ClusterInfoImport) *mcv1alpha1.ClusterInfoImport {
	return &mcv1alpha1.ClusterInfoImport{ObjectMeta: metaFacts(o, multicluster.AnnotationWithdrawn), Spec: o.Spec}
}

func resourceImportFacts(o *mcv1alpha1.ResourceImport) *mcv1alpha1.ResourceImport {
	m := metaFacts(o, append([]string{multicluster.AnnotationExported, multicluster.AnnotationSources, multicluster.AnnotationReached}, requests.Keys...)...)
	m.CreationTimestamp = o.CreationTimestamp
	return &mcv1alpha1.ResourceImport{ObjectMeta: m, Spec: o.Spec}
}

func resourceExportFacts(o *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
	m := metaFacts(o, multicluster.AnnotationService, multicluster.AnnotationReady, multicluster.AnnotationReached)
	m.Labels, m.Finalizers = o.Labels, o.Finalizers
	re := &mcv1alpha1.ResourceExport{ObjectMeta: m, Spec: o.Spec}
	for _, c := range o.Status.Conditions {
		if refuses(c) || contradicts(c) { // that it was accepted, and when, nobody reads
			re.Status.Conditions = append(re.Status.Conditions, mcv1alpha1.ResourceExportCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	return re
}

// refuses says whether a condition is the leader's word against an export.
func refuses(c mcv1alpha1.ResourceExportCondition) bool {
	return c.Type == mcv1alpha1.ResourceExportFailure && c.Status == corev1.ConditionFalse
}

// contradicts says whether a condition tells of other clusters' exports that an export contradicts, and that it was imported with.
func contradicts(c mcv1alpha1.ResourceExportCondition) bool {
	return c.Type == mcv1alpha1.ResourceExportSucceeded && c.Status == corev1.ConditionTrue && strings.HasSuffix(c.Reason, "Conflict")
}

// credentials are what a Secret has that a ClusterSet names.
type credentials struct {
	Exists    bool
	CA, Token string
	Refused   string // why it may not be read; the rest is what was read of it earlier
}

func secretFacts(o *corev1.Secret) *credentials {
	if o == nil {
		return &credentials{}
	}
	return &credentials{Exists: true, CA: string(o.Data[corev1.ServiceAccountRootCAKey]), Token: string(o.Data[corev1.ServiceAccountTokenKey])}
}

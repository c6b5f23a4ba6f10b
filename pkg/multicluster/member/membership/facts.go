package membership

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

func clusterSetFacts(o *mcv1alpha2.ClusterSet) *mcv1alpha2.ClusterSet {
	m := writes.MetaFacts(o)
	m.CreationTimestamp, m.Generation = o.CreationTimestamp, o.Generation
	for key, value := range o.Annotations {
		if strings.HasPrefix(key, multicluster.AnnotationRangesPrefix) || key == multicluster.AnnotationCentral {
			metav1.SetMetaDataAnnotation(&m, key, value)
		}
	}
	return &mcv1alpha2.ClusterSet{ObjectMeta: m, Spec: o.Spec, Status: o.Status}
}

func clusterClaimFacts(o *mcv1alpha2.ClusterClaim) *mcv1alpha2.ClusterClaim {
	return &mcv1alpha2.ClusterClaim{ObjectMeta: writes.MetaFacts(o), ClaimName: o.ClaimName, Value: o.Value}
}

// Credentials are the content of a Secret that a ClusterSet names.
type Credentials struct {
	Exists    bool
	CA, Token string
	Error     string // of the last reading; the other fields are from an earlier one
	Forbidden bool   // the error is that the controller may not read it
}

// SecretFacts returns the credentials in a Secret. The Secret is nil if it does not exist.
func SecretFacts(o *corev1.Secret) *Credentials {
	if o == nil {
		return &Credentials{}
	}
	return &Credentials{Exists: true, CA: string(o.Data[corev1.ServiceAccountRootCAKey]),
		Token: string(o.Data[corev1.ServiceAccountTokenKey])}
}

// namespaceFacts have the labels where label identities are exported.
func namespaceFacts(labels bool) func(*corev1.Namespace) *corev1.Namespace {
	return func(o *corev1.Namespace) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: writes.MetaFacts(o)}
		if labels {
			n.Labels = o.Labels
		}
		return n
	}
}

// nodeFacts omits the time of the last heartbeat, which changes a Node's status every few seconds.
func nodeFacts(o *corev1.Node) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: writes.MetaFacts(o, multicluster.AnnotationGateway, multicluster.AnnotationGatewayIP),
		Spec:       corev1.NodeSpec{PodCIDRs: o.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: o.Status.Addresses},
	}
	if NodeReady(o) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return n
}

// serviceCIDRFacts returns the ranges of a ServiceCIDR.
func serviceCIDRFacts(o *networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, text := range o.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// NodeReady reports whether a Node is Ready.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// AgentReport has the facts that a Node's agent reports.
type AgentReport struct {
	Known        bool   // true in every row
	KeepsClients bool   // it keeps clients' addresses between Pods of clusters
	SingleWays   bool   // it watches a single way to another cluster
	Echoes       bool   // its switch sends probes of ways back
	Encrypts     bool   // it sends nothing to other clusters in plain text
	CarriesIPv6  bool   // its Node serves IPv6, also between clusters
	Tunnel       string // the feature that names its tunnels
	Ways         map[string]string
}

func reportFacts(o *tombolov1alpha1.NodePolicyReport) AgentReport {
	_, can := o.Features[mcv1alpha1.FeaturePreserveClientIP]
	_, single := o.Features[mcv1alpha1.FeatureSingleWays]
	_, echoes := o.Features[mcv1alpha1.FeatureWayEcho]
	_, encrypts := o.Features[mcv1alpha1.FeatureEncryptsPeers]
	_, ipv6 := o.Features[mcv1alpha1.FeatureIPv6]
	return AgentReport{Known: true, KeepsClients: can, SingleWays: single, Echoes: echoes, Encrypts: encrypts,
		CarriesIPv6: ipv6, Tunnel: mcv1alpha1.TunnelOf(slices.Sorted(maps.Keys(o.Features))), Ways: o.Ways}
}

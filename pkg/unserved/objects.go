package unserved

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

// annotated are the annotations that begin with a prefix, in order.
func annotated(o metav1.Object, prefix, message string) (out []Finding) {
	annotations := o.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, Finding{annotation(key), message})
		}
	}
	return out
}

func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// serviceAnnotations returns annotations of a Service that are not served. Annotations about addresses of
// ExternalIPPools are served.
func serviceAnnotations(s *corev1.Service) []Finding {
	return slices.DeleteFunc(
		annotated(s, "service.antrea.io/", "load balancers have no DSR, and Nodes speak no BGP: remove the annotation"),
		func(f Finding) bool {
			return f.Field == annotation(crdv1beta1.AnnotationExternalIPPool) ||
				f.Field == annotation(crdv1beta1.AnnotationSharedIP)
		})
}

func nodePortLocal(s *corev1.Service) []Finding {
	return annotated(s, "nodeportlocal.antrea.io/",
		"NodePortLocal is not in this version, so no port of a Node is opened for the Pods: use the ClusterIP, or hostPort")
}

const poolPrefix, poolRemedy = "ipam.antrea.io/",
	"there are no pools of addresses: Pods get addresses of their Node's podCIDR; remove the annotation"

func podPools(p *corev1.Pod) []Finding             { return annotated(p, poolPrefix, poolRemedy) }
func namespacePools(n *corev1.Namespace) []Finding { return annotated(n, poolPrefix, poolRemedy) }
func namespaceLogging(n *corev1.Namespace) []Finding {
	const key = "networkpolicy.antrea.io/enable-logging"
	return when(n.Annotations[key] == "true", annotation(key),
		"decisions of NetworkPolicies are not logged: use enableLogging in a rule of an Antrea-native policy")
}

const isolates, writePolicies = "core.juniper.net/isolated-namespace",
	"write a NetworkPolicy that allows what its Pods may reach, and who may reach them"

func isolatingLabel(n *corev1.Namespace) []Finding {
	label, ok := n.Labels[isolates]
	_, isCopy := n.Labels["tombolo.io/copy"] // of a Namespace of another cluster
	return when(ok && !isCopy && label != "false", "metadata.labels["+isolates+"]", "without the agents' feature gate "+
		"TenantNetworks the Namespace is NOT isolated: turn the gate on, or "+writePolicies)
}

func isolatingAnnotation(n *corev1.Namespace) []Finding {
	return when(n.Annotations[isolates] == "true", annotation(isolates), "an annotation does NOT isolate the Namespace: "+
		"set the label "+isolates+" and the agents' feature gate TenantNetworks, or "+writePolicies)
}

// antreaKinds are the resources of crd.antrea.io that this version does not have.
var antreaKinds = []string{
	"antreanodeconfigs", "bgppolicies", "egresses", "externalentities", "externalnodes",
	"flowexporterdestinations", "ippools", "supportbundlecollections", "trafficcontrols",
}

func listed(names []string) string { return "(`" + strings.Join(names, "`, `") + "`)" }

// definitions finds the definitions of resources.
func definitions(resources []string, group string) func(*metav1.PartialObjectMetadata) []Finding {
	return func(d *metav1.PartialObjectMetadata) []Finding {
		resource, ok := strings.CutSuffix(d.Name, group)
		return when(ok && slices.Contains(resources, resource), "",
			"objects of this kind have no effect in a cluster with Tombolo: do not rely on them; remove the definition when "+
				"no other program reads it")
	}
}

func adminPolicies(d *metav1.PartialObjectMetadata) []Finding {
	resource, ok := strings.CutSuffix(d.Name, ".policy.networking.k8s.io")
	return when(ok && (resource == "adminnetworkpolicies" || resource == "baselineadminnetworkpolicies"), "",
		"policies of this kind are NOT enforced: write a ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2 instead")
}

func withoutRelay(*metav1.PartialObjectMetadata) []Finding {
	return when(true, "", "the relay tombolo-observe is not installed, so no packet is sent or followed: set "+
		"observe.enabled=true in the chart, or apply tombolo-observe.yml; the object waits until then")
}

func latencyMonitor(*metav1.PartialObjectMetadata) []Finding {
	return when(true, "", "the agents' feature gate NodeLatencyMonitor is off, so no Node probes another: set "+
		"featureGates: {NodeLatencyMonitor: true} in antrea-agent.conf and restart the agents, or delete the object")
}

// virtualNetworks leaves out the kinds of CN2 that are served.
func virtualNetworks(d *metav1.PartialObjectMetadata) []Finding {
	resource, ok := strings.CutSuffix(d.Name, "."+contrailv4.GroupVersion.Group)
	served := []string{"subnets", "virtualnetworkrouters", "virtualnetworks"}
	return when(ok && !slices.Contains(served, resource), "",
		"objects of this kind have no effect: isolate Namespaces, and join them by VirtualNetworkRouters; remove the "+
			"definition when no other program reads it")
}

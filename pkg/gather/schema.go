package gather

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	statsv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/stats/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// kind is a kind of objects that a bundle has, with the fields that are written. A field that is not listed is never
// written, even if a later version of Kubernetes or a user adds it.
type kind struct {
	schema.GroupVersionResource
	// like is a pointer to a Go type of Tombolo or Kubernetes. The type's fields are written, except fields without a
	// schema.
	like any
	// fields are paths, for kinds with fields that no reader of a bundle needs. A path goes through lists. It ends at a
	// value or a list of values; ".*" at the end stands for a map of values.
	fields string
	// own are further paths for Pods of Tombolo.
	own string
	// inOwn lists only the Namespaces of Tombolo.
	inOwn bool
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// Fields of a Pod, a Deployment's template and their like.
const (
	conditions = " status.conditions.type status.conditions.status status.conditions.reason " +
		"status.conditions.message status.conditions.lastTransitionTime"
	containers = " status.%[1]s.name status.%[1]s.ready status.%[1]s.restartCount status.%[1]s.containerID " +
		"status.%[1]s.state.running.startedAt" + ends
	ends = " status.%[1]s.state.waiting.reason status.%[1]s.state.terminated.reason " +
		"status.%[1]s.state.terminated.exitCode status.%[1]s.lastState.terminated.reason " +
		"status.%[1]s.lastState.terminated.exitCode status.%[1]s.lastState.terminated.finishedAt"
	ownContainer = " %[1]s.name %[1]s.image %[1]s.args %[1]s.command %[1]s.resources.limits.* %[1]s.resources.requests.*"
	ownStatus    = " status.%[1]s.state.waiting.message status.%[1]s.state.terminated.message " +
		"status.%[1]s.lastState.terminated.message status.%[1]s.imageID"
	replicas = "spec.replicas spec.selector.matchLabels.* status.replicas status.readyReplicas " +
		"status.updatedReplicas status.availableReplicas status.unavailableReplicas status.observedGeneration" + conditions
	daemons = "status.currentNumberScheduled status.desiredNumberScheduled status.numberReady " +
		"status.numberAvailable status.numberUnavailable status.numberMisscheduled status.updatedNumberScheduled " +
		"status.observedGeneration spec.updateStrategy.type"
)

// kinds are all kinds of objects in a bundle. There are no Secrets. The ClusterRole tombolo-gather allows these kinds
// and no more.
var kinds = []kind{
	{GroupVersionResource: gvr("", "v1", "nodes"),
		fields: "spec.podCIDR spec.podCIDRs spec.unschedulable spec.providerID " +
			"spec.taints.key spec.taints.value spec.taints.effect status.addresses.type status.addresses.address " +
			"status.allocatable.* status.capacity.* status.nodeInfo.kernelVersion status.nodeInfo.osImage " +
			"status.nodeInfo.containerRuntimeVersion status.nodeInfo.kubeletVersion status.nodeInfo.kubeProxyVersion " +
			"status.nodeInfo.operatingSystem status.nodeInfo.architecture" + conditions},
	{GroupVersionResource: gvr("", "v1", "namespaces"), fields: "status.phase"},
	{GroupVersionResource: gvr("", "v1", "pods"),
		fields: "spec.nodeName spec.hostNetwork spec.serviceAccountName spec.restartPolicy spec.priorityClassName " +
			"spec.containers.name spec.containers.ports.name spec.containers.ports.containerPort " +
			"spec.containers.ports.hostPort " +
			"spec.containers.ports.protocol spec.initContainers.name spec.initContainers.restartPolicy " +
			"spec.initContainers.ports.name spec.initContainers.ports.containerPort spec.initContainers.ports.protocol " +
			"spec.readinessGates.conditionType status.phase status.reason status.podIP status.podIPs.ip status.hostIP " +
			"status.hostIPs.ip status.startTime" + conditions + fmt.Sprintf(containers, "containerStatuses") +
			fmt.Sprintf(containers, "initContainerStatuses"),
		own: "status.message" + fmt.Sprintf(ownContainer, "spec.containers") + fmt.Sprintf(ownContainer,
			"spec.initContainers") +
			fmt.Sprintf(ownStatus, "containerStatuses") + fmt.Sprintf(ownStatus, "initContainerStatuses")},
	{GroupVersionResource: gvr("", "v1", "services"),
		fields: "spec.type spec.clusterIP spec.clusterIPs spec.externalIPs " +
			"spec.externalName spec.externalTrafficPolicy spec.internalTrafficPolicy spec.ipFamilies spec.ipFamilyPolicy " +
			"spec.healthCheckNodePort spec.loadBalancerClass spec.loadBalancerIP spec.loadBalancerSourceRanges " +
			"spec.allocateLoadBalancerNodePorts spec.publishNotReadyAddresses spec.selector.* spec.sessionAffinity " +
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds spec.trafficDistribution spec.ports.name spec.ports.port " +
			"spec.ports.protocol spec.ports.nodePort spec.ports.targetPort spec.ports.appProtocol " +
			"status.loadBalancer.ingress.ip status.loadBalancer.ingress.hostname status.loadBalancer.ingress.ipMode" +
			conditions},
	{GroupVersionResource: gvr("", "v1", "events"),
		fields: "involvedObject.kind involvedObject.namespace involvedObject.name " +
			"involvedObject.fieldPath reason message type count firstTimestamp lastTimestamp eventTime source.component " +
			"source.host " +
			"reportingComponent reportingInstance action series.count series.lastObservedTime"},
	{GroupVersionResource: gvr("apps", "v1", "daemonsets"), fields: daemons + conditions, inOwn: true},
	{GroupVersionResource: gvr("apps", "v1", "deployments"), fields: replicas, inOwn: true},
	{GroupVersionResource: gvr("coordination.k8s.io", "v1", "leases"), like: &coordinationv1.Lease{}, inOwn: true},
	{GroupVersionResource: gvr("discovery.k8s.io", "v1", "endpointslices"), like: &discoveryv1.EndpointSlice{}},
	{GroupVersionResource: gvr("networking.k8s.io", "v1", "networkpolicies"), like: &networkingv1.NetworkPolicy{}},
	{GroupVersionResource: gvr("networking.k8s.io", "v1", "servicecidrs"), like: &networkingv1.ServiceCIDR{}},
	{GroupVersionResource: gvr("policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies"),
		like: &npv1alpha2.ClusterNetworkPolicy{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "clusternetworkpolicies"),
		like: &v1beta1.ClusterNetworkPolicy{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "networkpolicies"), like: &v1beta1.NetworkPolicy{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "clustergroups"), like: &v1beta1.ClusterGroup{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "groups"), like: &v1beta1.Group{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "tiers"), like: &v1beta1.Tier{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "externalippools"), like: &v1beta1.ExternalIPPool{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "antreaagentinfos"), like: &v1beta1.AntreaAgentInfo{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1beta1", "antreacontrollerinfos"),
		like: &v1beta1.AntreaControllerInfo{}},
	{GroupVersionResource: gvr("crd.antrea.io", "v1alpha1", "nodelatencymonitors"),
		like: &crdv1alpha1.NodeLatencyMonitor{}},
	{GroupVersionResource: gvr("stats.antrea.io", "v1alpha1", "nodelatencystats"),
		like: &statsv1alpha1.NodeLatencyStats{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha2", "clustersets"), like: &v1alpha2.ClusterSet{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha2", "clusterclaims"),
		like: &v1alpha2.ClusterClaim{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "gateways"), like: &v1alpha1.Gateway{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "clusterinfoimports"),
		like: &v1alpha1.ClusterInfoImport{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "labelidentities"),
		like: &v1alpha1.LabelIdentity{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "memberclusterannounces"),
		like: &v1alpha1.MemberClusterAnnounce{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "podaddressimports"),
		like: &v1alpha1.PodAddressImport{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "resourceexports"),
		like: &v1alpha1.ResourceExport{}},
	{GroupVersionResource: gvr("multicluster.crd.antrea.io", "v1alpha1", "resourceimports"),
		like: &v1alpha1.ResourceImport{}},
	{GroupVersionResource: gvr("multicluster.x-k8s.io", "v1alpha1", "serviceexports"),
		like: &mcsv1alpha1.ServiceExport{}},
	{GroupVersionResource: gvr("multicluster.x-k8s.io", "v1alpha1", "serviceimports"),
		like: &mcsv1alpha1.ServiceImport{}},
	{GroupVersionResource: gvr("tombolo.io", "v1alpha1", "nodepolicyreports"), like: &tombolov1alpha1.NodePolicyReport{}},
	{GroupVersionResource: gvr("tombolo.io", "v1alpha1", "tenantnetworks"), like: &tombolov1alpha1.TenantNetwork{}},
	{GroupVersionResource: gvr("tombolo.io", "v1alpha1", "networkconnections"),
		like: &tombolov1alpha1.NetworkConnection{}},
	{GroupVersionResource: gvr("tombolo.io", "v1alpha1", "tenantnetworkimports"),
		like: &tombolov1alpha1.TenantNetworkImport{}},
	{GroupVersionResource: gvr("configplane.juniper.net", "v1alpha1", "kubemanagers"),
		like: &configplanev1alpha1.Kubemanager{}},
	{GroupVersionResource: gvr("core.contrail.juniper.net", "v4", "virtualnetworks"), like: &contrailv4.VirtualNetwork{}},
	{GroupVersionResource: gvr("core.contrail.juniper.net", "v4", "virtualnetworkrouters"),
		like: &contrailv4.VirtualNetworkRouter{}},
	{GroupVersionResource: gvr("core.contrail.juniper.net", "v4", "subnets"), like: &contrailv4.Subnet{}},
	{GroupVersionResource: gvr("tombolo.io", "v1alpha1", "subnetleases"), like: &tombolov1alpha1.SubnetLease{}},
	{GroupVersionResource: gvr("tombolo.io", "v1alpha1", "nodenetworkreports"),
		like: &tombolov1alpha1.NodeNetworkReport{}},
}

// file is the name of the file that has the objects of a kind.
func (k kind) file() string { return "objects/" + k.GroupResource().String() + ".json" }

// configurations are the ConfigMaps in Namespaces of Tombolo that are read, with the keys that are written.
var configurations = map[string][]string{
	"antrea-config":               {"antrea-agent.conf"},
	"antrea-mc-controller-config": {"controller_manager_config.yaml"},
}

// metadata are the fields of all objects.
const metadata = "apiVersion kind metadata.name metadata.namespace metadata.uid metadata.resourceVersion " +
	"metadata.generation " +
	"metadata.creationTimestamp metadata.deletionTimestamp metadata.finalizers metadata.labels.* " +
	"metadata.ownerReferences.kind metadata.ownerReferences.name metadata.ownerReferences.controller"

// annotations are keys, and prefixes of keys, of annotations that are written. AnnotationService and AnnotationExported
// are not among them, since they contain annotations of users.
var annotations = []string{
	multicluster.AnnotationGateway, multicluster.AnnotationGatewayIP, multicluster.AnnotationImportedService,
	multicluster.AnnotationImportedACNP, multicluster.AnnotationImportedPolicy, multicluster.AnnotationClusterID,
	multicluster.AnnotationAnnouncedBy, multicluster.AnnotationCreatedByAntctl,
	multicluster.AnnotationSources, multicluster.AnnotationReady,
	multicluster.AnnotationRequests, multicluster.AnnotationClusterOrder, multicluster.AnnotationMinimumReady,
	multicluster.AnnotationReached, multicluster.AnnotationKeptPods, multicluster.AnnotationKeyNotBefore,
	multicluster.AnnotationPhase, multicluster.AnnotationInsideIP, multicluster.AnnotationWithdrawn,
	multicluster.AnnotationTunnelSources, multicluster.AnnotationRangesPrefix, multicluster.AnnotationGatewaysPrefix,
	multicluster.AnnotationEndpointsPrefix, v1beta1.AnnotationExternalIPPool, v1beta1.AnnotationSharedIP,
	"node.antrea.io/transport-addresses", "networkpolicy.antrea.io/enable-logging", "tombolo.io/tenant-network",
	"tombolo.io/established", "tombolo.io/external-ip", "tombolo.io/transport-networks",
	"tombolo.io/wireguard-key-not-before", "tombolo.io/wireguard-next-port", "node.kubernetes.io/out-of-service",
	"service.kubernetes.io/topology-mode", "policy.networking.k8s.io/scope",
}

// filter returns the fields of an object that its kind lists, masked.
func (k kind) filter(o *unstructured.Unstructured, own bool) (map[string]any, error) {
	out := map[string]any{}
	if k.like != nil {
		typed := reflect.New(reflect.TypeOf(k.like).Elem())
		text, err := json.Marshal(o.Object)
		if err == nil {
			err = json.Unmarshal(text, typed.Interface())
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s is not as its kind says: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
		clearRaw(typed)
		if text, err = json.Marshal(typed.Interface()); err == nil {
			err = json.Unmarshal(text, &out)
		}
		if err != nil {
			return nil, err
		}
		delete(out, "metadata")
		withoutAnnotations(out)
	}
	paths := metadata + " " + k.fields
	if own {
		paths += " " + k.own
	}
	for path := range strings.FieldsSeq(paths) {
		take(o.Object, out, strings.Split(path, "."))
	}
	kept := map[string]any{}
	for key, value := range o.GetAnnotations() {
		if slices.ContainsFunc(annotations, func(a string) bool {
			return key == a || strings.HasSuffix(a, "/") && strings.HasPrefix(key, a)
		}) {
			kept[key] = value
		}
	}
	if len(kept) > 0 {
		out["metadata"].(map[string]any)["annotations"] = kept
	}
	return maskObject(out), nil
}

// withoutAnnotations removes annotations of users from the fields of an object: annotations that a ServiceExport
// exports, and annotations of objects in exports and imports.
func withoutAnnotations(v any) {
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			withoutAnnotations(part)
		}
	case map[string]any:
		delete(v, "exportedAnnotations")
		if metadata, ok := v["metadata"].(map[string]any); ok {
			delete(metadata, "annotations")
			delete(metadata, "managedFields")
		}
		for _, part := range v {
			withoutAnnotations(part)
		}
	}
}

// maskObject masks the strings of an object. The name of a Secret is no secret.
func maskObject(o map[string]any) map[string]any {
	var leaders []any
	if spec, ok := o["spec"].(map[string]any); ok {
		leaders, _ = spec["leaders"].([]any)
	}
	var names []string
	for _, l := range leaders {
		name, _ := l.(map[string]any)["secret"].(string)
		names = append(names, MaskText(name))
	}
	maskValue(o)
	for i, name := range names {
		if name != "" {
			leaders[i].(map[string]any)["secret"] = name
		}
	}
	return o
}

// take copies the value at a path from one object into another, through lists. At the end of a path it copies only a
// value or a list of values; at a "*" it copies only the values of a map.
func take(from, to map[string]any, path []string) {
	value, ok := from[path[0]]
	if !ok || value == nil {
		return
	}
	if len(path) == 1 {
		if plain(value) {
			to[path[0]] = runtime.DeepCopyJSONValue(value)
		}
		return
	}
	if path[1] == "*" {
		if all, ok := value.(map[string]any); ok {
			all = maps.Clone(all)
			maps.DeleteFunc(all, func(_ string, v any) bool { return !scalar(v) })
			to[path[0]] = all
		}
		return
	}
	switch value := value.(type) {
	case map[string]any:
		inside, ok := to[path[0]].(map[string]any)
		if !ok {
			inside = map[string]any{}
			to[path[0]] = inside
		}
		take(value, inside, path[1:])
	case []any:
		list, ok := to[path[0]].([]any)
		if !ok {
			list = make([]any, len(value))
			to[path[0]] = list
		}
		for i, v := range value {
			if list[i] == nil {
				list[i] = map[string]any{}
			}
			if v, ok := v.(map[string]any); ok {
				take(v, list[i].(map[string]any), path[1:])
			}
		}
	}
}

func scalar(v any) bool {
	switch v.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}

func plain(v any) bool {
	if list, ok := v.([]any); ok {
		return !slices.ContainsFunc(list, func(v any) bool { return !scalar(v) })
	}
	return scalar(v)
}

// clearRaw removes the fields of a typed object that have no schema: embedded objects and bytes.
func clearRaw(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			clearRaw(v.Elem())
		}
	case reflect.Struct:
		if _, raw := v.Interface().(runtime.RawExtension); raw {
			v.SetZero()
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				clearRaw(field)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetZero()
			return
		}
		for i := range v.Len() {
			clearRaw(v.Index(i))
		}
	case reflect.Map: // values of a map cannot be set
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			clearRaw(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Interface:
		v.SetZero()
	}
}

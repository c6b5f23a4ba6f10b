package watch

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// resource is the name of a kind in an API server. It is fixed here and not discovered, since programs also start while
// their API server is unavailable, and before a definition is installed.
type resource struct {
	schema.GroupVersionResource
	object client.Object
	list   client.ObjectList
}

// resources is the only list of the kinds that Tombolo's programs watch. A new kind needs one more line.
var resources = byType(
	resource{corev1.SchemeGroupVersion.WithResource("nodes"), &corev1.Node{}, &corev1.NodeList{}},
	resource{corev1.SchemeGroupVersion.WithResource("namespaces"), &corev1.Namespace{}, &corev1.NamespaceList{}},
	resource{corev1.SchemeGroupVersion.WithResource("pods"), &corev1.Pod{}, &corev1.PodList{}},
	resource{corev1.SchemeGroupVersion.WithResource("serviceaccounts"), &corev1.ServiceAccount{},
		&corev1.ServiceAccountList{}},
	resource{corev1.SchemeGroupVersion.WithResource("configmaps"), &corev1.ConfigMap{}, &corev1.ConfigMapList{}},
	resource{corev1.SchemeGroupVersion.WithResource("services"), &corev1.Service{}, &corev1.ServiceList{}},
	resource{corev1.SchemeGroupVersion.WithResource("endpoints"),
		&corev1.Endpoints{}, &corev1.EndpointsList{}}, //nolint:staticcheck // the documented API is made of them
	resource{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), &discoveryv1.EndpointSlice{},
		&discoveryv1.EndpointSliceList{}},
	resource{networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), &networkingv1.NetworkPolicy{},
		&networkingv1.NetworkPolicyList{}},
	resource{networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), &networkingv1.ServiceCIDR{},
		&networkingv1.ServiceCIDRList{}},
	resource{mcsGroup.WithResource("serviceexports"), &mcsv1alpha1.ServiceExport{}, &mcsv1alpha1.ServiceExportList{}},
	resource{mcsGroup.WithResource("serviceimports"), &mcsv1alpha1.ServiceImport{}, &mcsv1alpha1.ServiceImportList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("gateways"), &mcv1alpha1.Gateway{}, &mcv1alpha1.GatewayList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("clusterinfoimports"), &mcv1alpha1.ClusterInfoImport{},
		&mcv1alpha1.ClusterInfoImportList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("labelidentities"), &mcv1alpha1.LabelIdentity{},
		&mcv1alpha1.LabelIdentityList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("podaddressimports"), &mcv1alpha1.PodAddressImport{},
		&mcv1alpha1.PodAddressImportList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("memberclusterannounces"), &mcv1alpha1.MemberClusterAnnounce{},
		&mcv1alpha1.MemberClusterAnnounceList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("resourceexports"), &mcv1alpha1.ResourceExport{},
		&mcv1alpha1.ResourceExportList{}},
	resource{mcv1alpha1.GroupVersion.WithResource("resourceimports"), &mcv1alpha1.ResourceImport{},
		&mcv1alpha1.ResourceImportList{}},
	resource{mcv1alpha2.GroupVersion.WithResource("clustersets"), &mcv1alpha2.ClusterSet{}, &mcv1alpha2.ClusterSetList{}},
	resource{mcv1alpha2.GroupVersion.WithResource("clusterclaims"), &mcv1alpha2.ClusterClaim{},
		&mcv1alpha2.ClusterClaimList{}},
	resource{crdv1beta1.GroupVersion.WithResource("clusternetworkpolicies"), &crdv1beta1.ClusterNetworkPolicy{},
		&crdv1beta1.ClusterNetworkPolicyList{}},
	resource{crdv1beta1.GroupVersion.WithResource("networkpolicies"), &crdv1beta1.NetworkPolicy{},
		&crdv1beta1.NetworkPolicyList{}},
	resource{crdv1beta1.GroupVersion.WithResource("tiers"), &crdv1beta1.Tier{}, &crdv1beta1.TierList{}},
	resource{crdv1beta1.GroupVersion.WithResource("clustergroups"), &crdv1beta1.ClusterGroup{},
		&crdv1beta1.ClusterGroupList{}},
	resource{crdv1beta1.GroupVersion.WithResource("groups"), &crdv1beta1.Group{}, &crdv1beta1.GroupList{}},
	resource{crdv1beta1.GroupVersion.WithResource("externalippools"), &crdv1beta1.ExternalIPPool{},
		&crdv1beta1.ExternalIPPoolList{}},
	resource{crdv1alpha1.GroupVersion.WithResource("packetcaptures"), &crdv1alpha1.PacketCapture{},
		&crdv1alpha1.PacketCaptureList{}},
	resource{crdv1alpha1.GroupVersion.WithResource("nodelatencymonitors"), &crdv1alpha1.NodeLatencyMonitor{},
		&crdv1alpha1.NodeLatencyMonitorList{}},
	resource{contrailv4.GroupVersion.WithResource("virtualnetworks"), &contrailv4.VirtualNetwork{},
		&contrailv4.VirtualNetworkList{}},
	resource{contrailv4.GroupVersion.WithResource("virtualnetworkrouters"), &contrailv4.VirtualNetworkRouter{},
		&contrailv4.VirtualNetworkRouterList{}},
	resource{contrailv4.GroupVersion.WithResource("subnets"), &contrailv4.Subnet{}, &contrailv4.SubnetList{}},
	resource{plumbingv1.GroupVersion.WithResource("network-attachment-definitions"),
		&plumbingv1.NetworkAttachmentDefinition{}, &plumbingv1.NetworkAttachmentDefinitionList{}},
	resource{configplanev1alpha1.GroupVersion.WithResource("kubemanagers"), &configplanev1alpha1.Kubemanager{},
		&configplanev1alpha1.KubemanagerList{}},
	resource{tombolov1alpha1.GroupVersion.WithResource("nodepolicyreports"), &tombolov1alpha1.NodePolicyReport{},
		&tombolov1alpha1.NodePolicyReportList{}},
	resource{tombolov1alpha1.GroupVersion.WithResource("nodenetworkreports"), &tombolov1alpha1.NodeNetworkReport{},
		&tombolov1alpha1.NodeNetworkReportList{}},
	resource{tombolov1alpha1.GroupVersion.WithResource("subnetleases"), &tombolov1alpha1.SubnetLease{},
		&tombolov1alpha1.SubnetLeaseList{}},
	resource{tombolov1alpha1.GroupVersion.WithResource("tenantnetworks"), &tombolov1alpha1.TenantNetwork{},
		&tombolov1alpha1.TenantNetworkList{}},
	resource{tombolov1alpha1.GroupVersion.WithResource("networkconnections"), &tombolov1alpha1.NetworkConnection{},
		&tombolov1alpha1.NetworkConnectionList{}},
	resource{tombolov1alpha1.GroupVersion.WithResource("tenantnetworkimports"), &tombolov1alpha1.TenantNetworkImport{},
		&tombolov1alpha1.TenantNetworkImportList{}},
	resource{schema.GroupVersion(npv1alpha2.GroupVersion).WithResource("clusternetworkpolicies"),
		&npv1alpha2.ClusterNetworkPolicy{}, &npv1alpha2.ClusterNetworkPolicyList{}},
)

var mcsGroup = schema.GroupVersion(mcsv1alpha1.GroupVersion)

func byType(list ...resource) map[reflect.Type]resource {
	m := make(map[reflect.Type]resource, len(list))
	for _, r := range list {
		m[reflect.TypeOf(r.object)] = r
	}
	return m
}

// resourceOf returns the entry for a type of object. If the type is not in the list, it panics: the program has a
// mistake that every start shows.
func resourceOf[T client.Object]() resource {
	t := reflect.TypeFor[T]()
	r, ok := resources[t]
	if !ok {
		panic(fmt.Sprintf("watch: %s is not in the list of watched kinds", t))
	}
	return r
}

// kind is the resource's kind, as in "Service".
func (r resource) kind() string { return reflect.TypeOf(r.object).Elem().Name() }

// empty returns a new list for the API server's answer.
func (r resource) empty() runtime.Object {
	return reflect.New(reflect.TypeOf(r.list).Elem()).Interface().(runtime.Object)
}

// scheme has all kinds of the list.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mcv1alpha1.AddToScheme, mcv1alpha2.AddToScheme, mcsv1alpha1.Install,
		crdv1alpha1.AddToScheme, crdv1beta1.AddToScheme, contrailv4.AddToScheme, configplanev1alpha1.AddToScheme,
		tombolov1alpha1.AddToScheme, plumbingv1.AddToScheme,
		npv1alpha2.Install,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

package agent

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// View is all input of the agent's decisions, as objects. Tests fill the source tables from it.
type View struct {
	Config   config.Config
	NodeName string

	// From the API server.
	Nodes              []*corev1.Node
	Services           []*corev1.Service
	EndpointSlices     []*discoveryv1.EndpointSlice
	ServiceCIDRs       []*networkingv1.ServiceCIDR
	Gateways           []*mcv1alpha1.Gateway
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport
	ClusterSets        []*mcv1alpha2.ClusterSet
	ServiceExports     []*mcsv1alpha1.ServiceExport
	Pods               []*corev1.Pod // of the cluster
	Namespaces         []*corev1.Namespace
	NetworkPolicies    []*networkingv1.NetworkPolicy
	LabelIdentities    []*mcv1alpha1.LabelIdentity
	Others             []client.Object // of all kinds

	// From the Node.
	settings
	Attachments            []cni.Attachment
	Switch                 bridge.State
	Underlay               Underlay // set fills Read and Of
	Sessions, NodeSessions sessions // of WireGuard with other clusters, and with other Nodes
}

// objects returns the objects of all lists that watches fill.
func (v View) objects() []client.Object {
	var out []client.Object
	fields := reflect.ValueOf(v)
	for i := range fields.NumField() {
		list := fields.Field(i)
		if list.Kind() != reflect.Slice || !list.Type().Elem().Implements(reflect.TypeFor[client.Object]()) {
			continue
		}
		for j := range list.Len() {
			out = append(out, list.Index(j).Interface().(client.Object))
		}
	}
	return out
}

// set makes a view the content of all sources.
func (t *tables) set(v View) {
	v.Known, v.Underlay.Read = true, true
	for _, n := range v.Nodes {
		if n.Name == v.NodeName {
			v.Underlay.Of, _ = nodeFactsOf(n).internalIP()
		}
	}
	attachments := map[derive.Name]cni.Attachment{}
	for _, a := range v.Attachments {
		attachments[derive.Name(a.PortName)] = a
	}
	t.pods.attachments.Replace(attachments)
	t.this.settings.Set(self, v.settings)
	t.this.underlay.Set(self, v.Underlay)
	t.inside.sessions.Set(derive.Name(betweenClusters.name), v.Sessions)
	t.inside.sessions.Set(derive.Name(betweenNodes.name), v.NodeSessions)
	t.readSwitch(func() bridge.State { return v.Switch })
	t.kinds.Fill(v.objects()...)
	t.loaded()
}

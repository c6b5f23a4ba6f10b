package member

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/clusters"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// View is all input of the member's decisions, as objects. Tests fill the source tables from it.
type View struct {
	Namespace string        // the controller's own, with the ClusterSet, Gateways and ClusterInfoImports
	Now       time.Time     // for heartbeats and transition times
	Config    config.Config // of this controller

	// ServiceCIDR is this cluster's Service range, from the configuration or discovered. If it is unknown, ServiceCIDR is
	// empty, and ServiceCIDRError has the reason.
	ServiceCIDR      string
	ServiceCIDRError string
	ConfiguredCIDRs  string // separated by commas

	ClusterSets   []*mcv1alpha2.ClusterSet   // of Namespace
	ClusterClaims []*mcv1alpha2.ClusterClaim // of Namespace; empty if the API server has no such kind
	Secrets       []*corev1.Secret           // of Namespace, as ClusterSets name them

	Namespaces         []*corev1.Namespace
	Nodes              []*corev1.Node
	Services           []*corev1.Service
	Endpoints          []*services.Endpoints
	EndpointSlices     []*discoveryv1.EndpointSlice
	ServiceExports     []*mcsv1alpha1.ServiceExport
	ServiceImports     []*mcsv1alpha1.ServiceImport
	Gateways           []*mcv1alpha1.Gateway           // of Namespace
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport // of Namespace
	Pods               []*corev1.Pod                   // empty without enableStretchedNetworkPolicy
	LabelIdentities    []*mcv1alpha1.LabelIdentity
	PodAddressImports  []*mcv1alpha1.PodAddressImport // of Namespace
	NetworkImports     []*tombolov1alpha1.TenantNetworkImport
	VirtualNetworks    []*contrailv4.VirtualNetwork // empty if the API server has no such kind
	Subnets            []*contrailv4.Subnet         // the same
	SubnetLeases       []*tombolov1alpha1.SubnetLease
	ACNPs              []*crdv1beta1.ClusterNetworkPolicy
	CNPs               []*npv1alpha2.ClusterNetworkPolicy
	NetworkPolicies    []*networkingv1.NetworkPolicy
	Tiers              []*crdv1beta1.Tier
	ServiceCIDRs       []*networkingv1.ServiceCIDR         // empty if the API server has no such kind
	Reports            []*tombolov1alpha1.NodePolicyReport // empty without podCIDRs
	PhasesOver         map[derive.Object]string            // of Gateways whose phase has lasted as long as it may

	Leader Leader
}

// Leader is the state that was read from the leader cluster.
type Leader struct {
	Area         membership.Area // the Common Area all of this was read from; zero without one
	Announcement Announcement

	// Synced is set once all ResourceImports and ResourceExports have been read. It stays true while the leader is
	// unavailable, since the last state is still the best one.
	Synced          bool
	ResourceImports []*mcv1alpha1.ResourceImport
	ResourceExports []*mcv1alpha1.ResourceExport // those labelled with this cluster's ID
	TenantNetworks  []*tombolov1alpha1.TenantNetwork
}

// area returns the objects of the Common Area that all members read.
func (l Leader) area() []client.Object {
	return slices.Concat(objects(l.ResourceImports), objects(l.TenantNetworks))
}

// load fills the sources with a view, as lists of API servers do.
func (t *tables) load(v View) {
	t.other(v)
	t.gateways.PhasesOver.Replace(v.PhasesOver)
	t.clusters.Forgotten.Replace(clusters.Forgotten(v.Now, v.ClusterInfoImports))
	t.Cluster.Fill(objects(v)...)
	t.Area.Fill(v.Leader.area()...)
	t.OwnExports.Fill(objects(v.Leader.ResourceExports)...)
	for _, source := range []interface{ Loaded() }{t.base.Connection, t.base.Environment, t.base.Secrets} {
		source.Loaded()
	}
}

// update changes the sources from one view to another one by one, as events of watches do.
func (t *tables) update(from, to View) {
	t.other(to)
	change(t.Cluster, objects(from), objects(to))
	change(t.Area, from.Leader.area(), to.Leader.area())
	change(t.OwnExports, objects(from.Leader.ResourceExports), objects(to.Leader.ResourceExports))
}

func change(kinds *watch.Kinds, from, to []client.Object) {
	type key struct {
		kind reflect.Type
		name derive.Object
	}
	gone := map[key]client.Object{}
	for _, o := range from {
		gone[key{reflect.TypeOf(o), derive.ObjectOf(o)}] = o
	}
	for _, o := range to {
		delete(gone, key{reflect.TypeOf(o), derive.ObjectOf(o)})
		kinds.Set(o)
	}
	for o := range maps.Values(gone) {
		kinds.Delete(o)
	}
}

// other fills the sources that no watch fills.
func (t *tables) other(v View) {
	t.base.Environment.Set(membership.Here, membership.Environment{Known: true, ServiceCIDR: v.ServiceCIDR,
		ServiceCIDRError: v.ServiceCIDRError,
		ServiceCIDRs:     strings.FieldsFunc(v.ConfiguredCIDRs, func(r rune) bool { return r == ',' })})
	t.base.Connection.Set(membership.Here, connectionOf(1, v.Leader.Area, v.Leader.Synced, v.Leader.Announcement))
	secrets := map[derive.Object]*membership.Credentials{}
	for _, cs := range v.ClusterSets {
		for _, leader := range cs.Spec.Leaders {
			secrets[derive.Object{Namespace: cs.Namespace, Name: leader.Secret}] = membership.SecretFacts(nil)
		}
	}
	for _, s := range v.Secrets {
		secrets[derive.ObjectOf(s)] = membership.SecretFacts(s)
	}
	t.base.Secrets.Replace(secrets)
}

// objects returns the objects of a list, or of all lists of a view that watches fill.
func objects(of any) []client.Object {
	var out []client.Object
	v := reflect.ValueOf(of)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.Kind() == reflect.Slice && field.Type() != reflect.TypeFor[[]*corev1.Secret]() {
				out = append(out, objects(field.Interface())...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, v.Index(i).Interface().(client.Object))
		}
	}
	return out
}

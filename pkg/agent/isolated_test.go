package agent

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// flowsOfPod returns the flows of the Pod of testView, and whether the Pod is closed.
func flowsOfPod(v View) (string, bool, []string) {
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	served, _ := tables.flows.ServedPods.Get(derive.Name("web-a1b2c3"))
	var lines, problems []string
	for _, f := range served.Entries.Flows {
		lines = append(lines, f.String())
	}
	for _, p := range tables.engine.Problems() {
		if p.Kind == "Namespace" || p.Kind == "Pod" {
			problems = append(problems, p.String())
		}
	}
	return strings.Join(lines, "\n"), served.Closed, problems
}

// TestIsolatedNamespace changes the Namespace of a Pod. The label counts with the feature gate alone, and a Pod is
// closed until its Namespace is known.
func TestIsolatedNamespace(t *testing.T) {
	namespace := func(labels, annotations map[string]string) []*corev1.Namespace {
		return []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "5e2d", Labels: labels,
			Annotations: annotations}}}
	}
	label := map[string]string{tenant.LabelIsolated: "true"}
	view := func(gate bool, namespaces []*corev1.Namespace) View {
		v := testView()
		v.Config.FeatureGates["TenantNetworks"], v.Namespaces = gate, namespaces
		return v
	}
	plain, closed, _ := flowsOfPod(view(false, namespace(label, nil)))
	if closed || strings.Contains(plain, "reg14") {
		t.Errorf("without the gate, closed %t:\n%s", closed, plain)
	}
	if have, closed, _ := flowsOfPod(view(true, namespace(nil, nil))); have != plain || closed {
		t.Errorf("a Namespace without the label, closed %t:\n%s", closed, have)
	}
	have, closed, problems := flowsOfPod(view(true, namespace(label, nil)))
	const system = "of its Services other Namespaces reach kubernetes alone" // the Pod's Namespace is default
	if closed || len(problems) != 1 || !strings.Contains(problems[0], system) || !strings.Contains(have, "reg14") {
		t.Errorf("an isolated Namespace, closed %t, problems %v:\n%s", closed, problems, have)
	}
	outside, _, _ := flowsOfPod(view(true, namespace(label, map[string]string{
		tenant.AnnotationForwardingMode: "fabric-snat"})))
	if outside == have {
		t.Error("the forwarding mode changes nothing")
	}
	if have, closed, _ := flowsOfPod(view(true, nil)); !closed || strings.Contains(have, "reg1,") {
		t.Errorf("a Namespace that is not known, closed %t:\n%s", closed, have)
	}
	bad := view(true, namespace(map[string]string{tenant.LabelIsolated: "sure"}, nil))
	_, _, problems = flowsOfPod(bad)
	if len(problems) != 2 || !strings.Contains(problems[0], `has "sure": write "true"`) {
		t.Errorf("a label with another value: problems %q", problems)
	}
}

// TestJoinedNamespaces joins the Namespace of a Pod with another one. Routers count with the feature gate alone, and
// their problems are the agent's.
func TestJoinedNamespaces(t *testing.T) {
	label := map[string]string{tenant.LabelIsolated: "true"}
	v := testView()
	for _, name := range []string{"default", "other"} {
		v.Namespaces = append(v.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			UID: types.UID("uid of " + name), Labels: label}})
	}
	router := func(namespace, other string) *contrailv4.VirtualNetworkRouter {
		r := &contrailv4.VirtualNetworkRouter{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "router"}}
		r.Spec.Type, r.Spec.VirtualNetworkSelector = contrailv4.TypeMesh, &metav1.LabelSelector{}
		r.Spec.Import.VirtualNetworkRouters = []contrailv4.VirtualNetworkRouterEntry{{
			VirtualNetworkRouterSelector: &metav1.LabelSelector{},
			NamespaceSelector:            &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: other}},
		}}
		return r
	}
	network := func(namespace string) *contrailv4.VirtualNetwork {
		return &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: "1",
			Name: contrailv4.DefaultPodNetwork}}
	}
	flows := func(gate bool, others ...client.Object) (string, []problem.Problem) {
		v.Config.FeatureGates["TenantNetworks"], v.Others = gate, nil
		if gate { // without it the kinds are not watched
			v.Others = others
		}
		tables := newTables(v.Config, v.NodeName)
		tables.set(v)
		tables.engine.Pass()
		served, _ := tables.flows.ServedPods.Get(derive.Name("web-a1b2c3"))
		var lines []string
		for _, f := range served.Entries.Flows {
			lines = append(lines, f.String())
		}
		return strings.Join(lines, "\n"), slices.DeleteFunc(tables.engine.Problems(), func(p problem.Problem) bool {
			return !strings.HasPrefix(p.Kind, "VirtualNetwork")
		})
	}
	apart, _ := flows(true)
	oneSided, problems := flows(true, network("default"), network("other"), router("default", "other"))
	if oneSided != apart || len(problems) != 1 || problems[0].Reason.String() != "SelectsNothing" {
		t.Errorf("an import of no router, problems %v:\n%s", problems, oneSided)
	}
	joined, problems := flows(true, network("default"), network("other"), router("default", "other"),
		router("other", "default"))
	if len(problems) > 0 || strings.Count(joined, "\n") <= strings.Count(apart, "\n") {
		t.Errorf("joined, problems %v:\n%s", problems, joined)
	}
	if have, _ := flows(false); strings.Contains(have, "reg14") {
		t.Errorf("without the gate:\n%s", have)
	}
}

// TestKindsOfGates turns feature gates off one by one. Kinds that other features read are watched nevertheless.
func TestKindsOfGates(t *testing.T) {
	for _, gate := range []string{"ServiceExternalIP", "TenantNetworks", "Multicluster"} {
		v := testView()
		v.Config.FeatureGates = map[string]bool{gate: false}
		var have []string
		for _, k := range newTables(v.Config, v.NodeName).kinds.All() {
			have = append(have, k.Resource().Resource)
		}
		for _, want := range []string{"nodes", "namespaces", "pods", "services", "endpointslices"} {
			if !slices.Contains(have, want) {
				t.Errorf("without %s no %s are watched: %v", gate, want, have)
			}
		}
	}
}

// TestIsolatedLater gives a Namespace the label while its Pod runs. Flows of other owners stay, except for owners of
// the feature.
func TestIsolatedLater(t *testing.T) {
	v := testView()
	v.Config.FeatureGates["TenantNetworks"] = true
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "5e2d"}}
	v.Namespaces = []*corev1.Namespace{n}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.engine.Pass()
	changed := map[string]bool{}
	tables.flows.Watch(func(o flow.Owner, _ func() flow.Entries) { changed[o.String()] = true })
	n = n.DeepCopy()
	n.Labels = map[string]string{tenant.LabelIsolated: "true"}
	v.Namespaces = []*corev1.Namespace{n}
	tables.set(v)
	tables.engine.Pass()
	for _, want := range []flow.Owner{datapath.PodOwner("web-a1b2c3"), datapath.ServiceOwner("default", "web"),
		{Kind: datapath.KindTenant, Name: "base"}, {Kind: datapath.KindTenant, Name: "node node-2"}} {
		if !changed[want.String()] {
			t.Errorf("%s did not change: %v", want, changed)
		}
		delete(changed, want.String())
	}
	for owner := range changed {
		if !strings.Contains(owner, "Policy") { // the labels of a Namespace are part of identities
			t.Errorf("%s changed as well", owner)
		}
	}
}

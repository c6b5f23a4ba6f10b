package agent

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
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

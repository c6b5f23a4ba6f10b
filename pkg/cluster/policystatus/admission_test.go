package policystatus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// install creates the objects of some kinds in a file of manifests.
func (a *api) install(text string, kinds string) {
	a.t.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			a.t.Fatal(err)
		}
		if o.GetKind() != "" && strings.Contains(kinds, o.GetKind()) {
			a.create(o)
		}
	}
}

// parse reads an object of crd.antrea.io.
func parse(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: crd.antrea.io/v1beta1, kind: %s, metadata: {name: %s}, spec: %s}", kind, name, spec)
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	if kind == "NetworkPolicy" || kind == "Group" {
		o.SetNamespace("default")
	}
	return o
}

// TestAdmission lets a real API server call the webhooks, which run as the manifest's ServiceAccount.
func TestAdmission(t *testing.T) {
	// ClusterIPs that this process can listen at, in place of a Service proxy.
	a := newAPIAt(t, apiserver.Options{ServiceCIDR: fmt.Sprintf("127.%d.%d.0/24", 16+rand.IntN(200), rand.IntN(256))})
	own := apiserver.Access(t, a.config, manifest(t))
	a.install(string(manifest(t)), "Service Secret ValidatingWebhookConfiguration")
	rules, err := os.ReadFile("../../../deploy/agent/tombolo-crds.yml")
	if err != nil {
		t.Fatal(err)
	}
	a.install(string(rules), "ValidatingAdmissionPolicyBinding")
	for name, priority := range crdv1beta1.DefaultTiers {
		a.create(parse(t, "Tier", name, fmt.Sprintf("{priority: %d}", priority)))
	}
	service := &corev1.Service{}
	if err := a.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: CertificateNames().Service},
		service); err != nil {
		t.Fatal(err)
	}
	stop := serve(t, own, service.Spec.ClusterIP, 443)
	defer func() { stop() }()

	const rest = "priority: 5, appliedTo: [{podSelector: {}}], ingress: [{action: Drop}]"
	refused := func(o *unstructured.Unstructured, do func(context.Context, *unstructured.Unstructured) error,
		want string) {
		t.Helper()
		// Admission takes effect some time after its configuration exists. Its facts come from watches.
		var have error
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, waitLimit, true,
			func(ctx context.Context) (bool, error) {
				have = do(ctx, o.DeepCopy())
				return have != nil && strings.Contains(have.Error(), want), nil
			})
		if err != nil {
			t.Errorf("%s %s: %v, want %q", o.GetKind(), o.GetName(), have, want)
		}
	}
	dry := func(ctx context.Context, o *unstructured.Unstructured) error {
		return a.Create(ctx, o, client.DryRunAll)
	}
	remove := func(ctx context.Context, o *unstructured.Unstructured) error {
		return a.Delete(ctx, o, client.DryRunAll)
	}
	change := func(spec string) func(context.Context, *unstructured.Unstructured) error {
		return func(ctx context.Context, o *unstructured.Unstructured) error {
			return a.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(spec)), client.DryRunAll)
		}
	}
	web := parse(t, "ClusterNetworkPolicy", "web", "{tier: mine, "+rest+"}")
	refused(web, dry,
		"ClusterNetworkPolicy web: spec.tier: there is no Tier mine: create it before, or write one of emergency, "+
			"securityops, networkops, platform, application, baseline")
	refused(parse(t, "NetworkPolicy", "web", "{tier: mine, "+rest+"}"), dry,
		"NetworkPolicy default/web: spec.tier: there is no Tier mine")
	for _, name := range []string{"Application", "SecurityOps", "baseline", `""`} {
		if err := a.Create(t.Context(), parse(t, "ClusterNetworkPolicy", "web", "{tier: "+name+", "+rest+"}"),
			client.DryRunAll); err != nil {
			t.Errorf("Tier %s: %v", name, err)
		}
	}
	mine := parse(t, "Tier", "mine", "{priority: 7}")
	a.create(mine.DeepCopy())
	a.create(web.DeepCopy())
	refused(web, change(`{"spec":{"tier":"other"}}`), "ClusterNetworkPolicy web: spec.tier: there is no Tier other")
	refused(mine, remove,
		"Tier mine: 1 of the policies are in it, such as AntreaClusterNetworkPolicy web: give them another Tier, or delete "+
			"them, before")
	refused(parse(t, "Tier", "second", "{priority: 7}"), dry,
		"Tier second: spec.priority: 7 is that of Tier mine: use another one")
	refused(parse(t, "Tier", "second", "{priority: 250}"), dry, "default Tier")
	for i := range crdv1beta1.MaxTiers - 7 {
		a.create(parse(t, "Tier", fmt.Sprintf("more-%d", i), fmt.Sprintf("{priority: %d}", 10+i)))
	}
	refused(parse(t, "Tier", "second", "{priority: 8}"), dry,
		"Tier second: there are 20 Tiers, and there can be 20: delete one that has no policies")
	if err := a.Delete(t.Context(), parse(t, "Tier", "more-0", "{}")); err != nil {
		t.Errorf("a Tier without policies cannot be deleted: %v", err)
	}

	for _, kind := range []string{"ClusterGroup", "Group"} {
		name := map[string]string{"ClusterGroup": "ClusterGroup ", "Group": "Group default/"}[kind]
		a.create(parse(t, kind, "one", "{childGroups: [two]}")) // which may come later
		a.create(parse(t, kind, "two", "{childGroups: [three]}"))
		refused(parse(t, kind, "three", "{childGroups: [other, one]}"), dry,
			name+"three: spec.childGroups: the group would contain itself, by one, two, three: remove one of them from another")
		a.create(parse(t, kind, "three", "{podSelector: {}}"))
		refused(parse(t, kind, "three", "{}"), change(`{"spec":{"podSelector":null,"childGroups":["one"]}}`), name+
			"three: spec.childGroups: the group would contain itself")
	}

	t.Run("without the webhooks it becomes a condition", func(t *testing.T) {
		stop()
		stop = func() {}
		late := parse(t, "ClusterNetworkPolicy", "late", "{tier: later, "+rest+"}")
		a.create(late)
		three := parse(t, "ClusterGroup", "three", "{}")
		if err := a.Patch(t.Context(), three,
			client.RawPatch("application/merge-patch+json",
				[]byte(`{"spec":{"podSelector":null,"childGroups":["one"]}}`))); err != nil {
			t.Fatal(err)
		}
		stop = serve(t, own, service.Spec.ClusterIP, 443)
		of := &crdv1beta1.ClusterNetworkPolicy{}
		of.Name = "late"
		a.expect(of, "Failed 0/0 of 1, Realizable False UnknownTier, RealizationFailure False NoFailure")
		group := &crdv1beta1.ClusterGroup{}
		group.Name = "three"
		a.expect(group, "GroupMembersComputed False GroupCycle")
		// A change that keeps the missing Tier is still allowed.
		if err := change(`{"spec":{"priority":6}}`)(t.Context(), late); err != nil {
			t.Errorf("a policy whose Tier is missing cannot be changed: %v", err)
		}
	})
}

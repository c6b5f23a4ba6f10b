package policystatus

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// manifest is the part of the agents' manifest that is about the controller.
func manifest(t testing.TB) []byte {
	t.Helper()
	all, err := os.ReadFile("../../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	var own [][]byte
	for _, document := range bytes.Split(all, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("name: "+LeaseName)) || bytes.Contains(document, []byte("name: tombolo-polic")) {
			own = append(own, document)
		}
	}
	return bytes.Join(own, []byte("\n---\n"))
}

// start runs the controller with the rights of its manifest. The returned function stops it.
func start(t testing.TB, own *rest.Config) (stop func()) {
	t.Helper()
	return serve(t, apiserver.RefuseEvents(own), "127.0.0.1", 0)
}

// serve runs it with its webhooks at an address.
func serve(t testing.TB, own *rest.Config, host string, port int) (stop func()) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	certificate := &certs.Certificate{Client: live, Namespace: metav1.NamespaceSystem, Names: CertificateNames()}
	named := true
	mgr, err := ctrl.NewManager(own, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: &named},
		LeaderElection: true, LeaderElectionID: LeaseName, LeaderElectionNamespace: metav1.NamespaceSystem,
		LeaderElectionReleaseOnCancel: true,
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port,
			TLSOpts: []func(*tls.Config){certificate.TLS}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := SetupWithManager(mgr, Process{Namespace: "kube-system", Pod: "test", Node: "node-1"}); err != nil {
		t.Fatal(err)
	}
	if port != 0 {
		if err := mgr.Add(certificate); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}
}

// api is a real API server, as its administrator sees it.
type api struct {
	client.Client
	config *rest.Config
	t      testing.TB
}

func newAPI(t testing.TB) *api {
	t.Helper()
	return newAPIAt(t, apiserver.Options{})
}

func newAPIAt(t testing.TB, o apiserver.Options) *api {
	t.Helper()
	o.CRDs = []string{"../../../deploy/crds"}
	a := &api{t: t, config: apiserver.New(t, o).Config}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if a.Client, err = client.New(a.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) create(o client.Object) {
	a.t.Helper()
	if err := a.Create(a.t.Context(), o); err != nil {
		a.t.Fatal(err)
	}
}

// change patches an object. Unlike an update, it cannot conflict with the controller's write of a status.
func (a *api) change(o client.Object, patch string) {
	a.t.Helper()
	if err := a.Patch(a.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		a.t.Fatal(err)
	}
}

// apply makes an object of YAML.
func apply[T client.Object](a *api, o T, text string) T {
	a.t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		a.t.Fatalf("%v in\n%s", err, text)
	}
	a.create(o)
	return o
}

func (a *api) pod(name, node string, labels map[string]string) {
	a.t.Helper()
	a.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
}

// report writes a Node's report that it enforces these objects in their present form.
func (a *api) report(node string, objects ...client.Object) {
	a.t.Helper()
	policies := map[string]string{}
	for _, o := range objects {
		if err := a.Get(a.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			a.t.Fatal(err)
		}
		policies[short(o)] = string(policy.VersionOf(o))
	}
	// At once: a status without the report could be written between two writes.
	r := &tombolov1alpha1.NodePolicyReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if _, err := controllerutil.CreateOrUpdate(a.t.Context(), a.Client, r, func() error {
		r.Policies, r.Failures = policies, nil
		return nil
	}); err != nil {
		a.t.Fatal(err)
	}
}

func short(o client.Object) string {
	switch o.(type) {
	case *crdv1beta1.ClusterNetworkPolicy:
		return "acnp/" + o.GetName()
	case *crdv1beta1.NetworkPolicy:
		return "annp/" + o.GetNamespace() + "/" + o.GetName()
	}
	return "cnp/" + o.GetName()
}

// waitLimit is how long a test waits for the controller. A busy machine takes half a minute for a step.
const waitLimit = 2 * time.Minute

// expect waits until an object has this status.
func (a *api) expect(o client.Object, want string) {
	a.t.Helper()
	have := ""
	err := wait.PollUntilContextTimeout(a.t.Context(), 50*time.Millisecond, waitLimit, true,
		func(ctx context.Context) (bool, error) {
			if err := a.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return false, err
			}
			have = statusOf(o)
			return have == want, nil
		})
	if err != nil {
		a.t.Fatalf("%T %s: status\n%s, want\n%s (%v)", o, o.GetName(), have, want, err)
	}
}

// statusOf returns a status in one line: phase, nodes, generation, then the conditions with their messages.
func statusOf(o client.Object) string {
	var conditions []metav1.Condition
	out := ""
	of := func(s crdv1beta1.PolicyStatus) {
		out = fmt.Sprintf("%s %d/%d of %d, ", s.Phase, s.CurrentNodesRealized, s.DesiredNodesRealized, s.ObservedGeneration)
		conditions = s.Conditions
	}
	switch o := o.(type) {
	case *crdv1beta1.ClusterNetworkPolicy:
		of(o.Status)
	case *crdv1beta1.NetworkPolicy:
		of(o.Status)
	case *npv1alpha2.ClusterNetworkPolicy:
		conditions = o.Status.Conditions
	case *crdv1beta1.ClusterGroup:
		conditions = o.Status.Conditions
	case *crdv1beta1.Group:
		conditions = o.Status.Conditions
	}
	var texts []string
	for _, c := range conditions {
		texts = append(texts, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		if c.ObservedGeneration != o.GetGeneration() || c.LastTransitionTime.IsZero() {
			texts = append(texts, "of another generation, or without time")
		}
	}
	return out + strings.Join(texts, ", ")
}

const (
	well   = "Realizable True Understood, RealizationFailure False NoFailure"
	refuse = "Realizable True Understood, RealizationFailure True FlowsRefused"
)

// TestStatus runs a real API server with three Nodes, two of which have Pods of a policy. It follows the status of
// policies and groups while Nodes report.
func TestStatus(t *testing.T) {
	a := newAPI(t)
	stop := start(t, apiserver.Access(t, a.config, manifest(t)))
	defer func() { stop() }()
	a.pod("web-1", "node-1", map[string]string{"app": "web"})
	a.pod("web-2", "node-2", map[string]string{"app": "web"})
	a.pod("db-3", "node-3", map[string]string{"app": "db"})

	web := apply(a, &crdv1beta1.ClusterNetworkPolicy{},
		`{metadata: {name: web}, spec: {priority: 5, appliedTo: [{podSelector: {matchLabels: {app: web}}}],
			ingress: [{action: Drop}]}}`)
	a.expect(web, "Pending 0/2 of 1, "+well)
	a.report("node-1", web)
	a.expect(web, "Realizing 1/2 of 1, "+well)
	a.report("node-3", web) // has no Pods of it
	a.report("node-2", web)
	a.expect(web, "Realized 2/2 of 1, "+well)

	t.Run("the state of the controller", func(t *testing.T) {
		info := &crdv1beta1.AntreaControllerInfo{}
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				err := a.Get(ctx, client.ObjectKey{Name: infoName}, info)
				return err == nil && info.ControllerConditions[0].Status == corev1.ConditionTrue, client.IgnoreNotFound(err)
			})
		if err != nil {
			t.Fatalf("%v: %+v", err, info)
		}
		if info.PodRef.Name != "test" || info.NodeRef.Name != "node-1" || info.Version == "" {
			t.Errorf("the object is %+v", info)
		}
	})
	t.Run("a new generation is another policy", func(*testing.T) {
		a.change(web, `{"spec":{"priority":6}}`)
		a.expect(web, "Pending 0/2 of 2, "+well)
		a.report("node-1", web)
		a.report("node-2", web)
		a.expect(web, "Realized 2/2 of 2, "+well)
	})
	t.Run("and so is one that is made again", func(*testing.T) {
		again := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: *web.Spec.DeepCopy()}
		web.Spec.Priority = 5
		if err := a.Delete(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		a.create(again)
		a.change(again, `{"spec":{"priority":7}}`) // of generation 2, too
		a.expect(again, "Pending 0/2 of 2, "+well)
		web = again
		a.report("node-1", web)
		a.report("node-2", web)
		a.expect(web, "Realized 2/2 of 2, "+well)
	})
	t.Run("a Pod more, on another Node", func(*testing.T) {
		a.pod("web-3", "node-3", map[string]string{"app": "web"})
		a.expect(web, "Realizing 2/3 of 2, "+well)
		a.report("node-3", web)
		a.expect(web, "Realized 3/3 of 2, "+well)
	})
	t.Run("a switch refuses flows", func(*testing.T) {
		failing := func(failures map[string]string) {
			r := &tombolov1alpha1.NodePolicyReport{}
			if err := a.Get(t.Context(), client.ObjectKey{Name: "node-3"}, r); err != nil {
				t.Fatal(err)
			}
			if r.Failures = failures; failures != nil {
				r.Policies = nil
			}
			if err := a.Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		failing(map[string]string{"acnp/web": string(policy.VersionOf(web)) + " table 30 is full"})
		a.expect(web, "Failed 2/3 of 2, "+refuse)
		if c := meta.FindStatusCondition(web.Status.Conditions,
			crdv1beta1.ConditionRealizationFailure); c.Message != "Node node-3: table 30 is full" {
			t.Errorf("the condition says %q", c.Message)
		}
		a.event("ClusterNetworkPolicy", "web", "FlowsRefused", "Node node-3: table 30 is full")
		a.report("node-3", web)
		a.expect(web, "Realized 3/3 of 2, "+well)
	})
	t.Run("selects no Pod", func(*testing.T) {
		a.expect(apply(a, &crdv1beta1.NetworkPolicy{},
			`{metadata: {name: none, namespace: default}, spec: {priority: 5,
				appliedTo: [{podSelector: {matchLabels: {app: none}}}], ingress: [{action: Drop}]}}`),
			"Realized 0/0 of 1, "+well)
	})
	t.Run("an appliedTo that is not served", func(*testing.T) {
		nodes := apply(a, &crdv1beta1.ClusterNetworkPolicy{},
			`{metadata: {name: nodes}, spec: {priority: 5, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}}`)
		a.expect(nodes, "Failed 0/0 of 1, Realizable False NotServed, RealizationFailure False NoFailure")
		if c := nodes.Status.Conditions[0]; c.Message != "spec.appliedTo[0].nodeSelector: "+
			"policies for Nodes are not served yet, so it selects nothing: remove it" {
			t.Errorf("the condition says %q", c.Message)
		}
		a.event("ClusterNetworkPolicy", "nodes", "NotServed", nodes.Status.Conditions[0].Message)
	})
	t.Run("an unknown Tier, which comes", func(*testing.T) {
		mine := apply(a, &crdv1beta1.NetworkPolicy{},
			`{metadata: {name: mine, namespace: default}, spec: {tier: mine, priority: 5,
				appliedTo: [{podSelector: {matchLabels: {app: db}}}], ingress: [{action: Drop}]}}`)
		a.expect(mine, "Failed 0/1 of 1, Realizable False UnknownTier, RealizationFailure False NoFailure")
		a.event("NetworkPolicy", "mine", "UnknownTier", "spec.tier: there is no Tier mine")
		apply(a, &crdv1beta1.Tier{}, `{metadata: {name: mine}, spec: {priority: 7}}`)
		a.expect(mine, "Pending 0/1 of 1, "+well)
	})
	t.Run("groups", func(*testing.T) {
		leaf := apply(a, &crdv1beta1.ClusterGroup{},
			`{metadata: {name: leaf}, spec: {podSelector: {matchLabels: {app: db}}}}`)
		a.expect(leaf, "GroupMembersComputed True MembersComputed")
		tree := apply(a, &crdv1beta1.ClusterGroup{}, `{metadata: {name: tree}, spec: {childGroups: [leaf, later]}}`)
		a.expect(tree, "GroupMembersComputed False UnknownGroup")
		a.event("ClusterGroup", "tree", "UnknownGroup", "")
		grouped := apply(a, &crdv1beta1.ClusterNetworkPolicy{},
			`{metadata: {name: grouped}, spec: {priority: 5, appliedTo: [{group: tree}], ingress: [{action: Drop}]}}`)
		a.expect(grouped, "Failed 0/1 of 1, Realizable False GroupNotComputed, RealizationFailure False NoFailure")
		a.event("ClusterNetworkPolicy", "grouped", "GroupNotComputed", "")
		apply(a, &crdv1beta1.ClusterGroup{}, `{metadata: {name: later}, spec: {podSelector: {matchLabels: {app: none}}}}`)
		a.expect(tree, "GroupMembersComputed True MembersComputed")
		a.report("node-3", web, grouped)
		a.expect(grouped, "Realized 1/1 of 1, "+well)
		group := apply(a, &crdv1beta1.Group{},
			`{metadata: {name: own, namespace: default}, spec: {serviceReference: {name: nowhere}}}`)
		a.expect(group, "GroupMembersComputed False UnknownService")
		a.event("Group", "own", "UnknownService", "spec.serviceReference: there is no Service default/nowhere")
	})
	t.Run("SIG Network's", func(*testing.T) {
		cnp := apply(a, &npv1alpha2.ClusterNetworkPolicy{},
			`{metadata: {name: sig}, spec: {tier: Admin, priority: 5, subject: {namespaces: {}},
				ingress: [{action: Deny, from: [{namespaces: {}}]}]}}`)
		a.expect(cnp, "Realizable True Understood, Realized False NotAllNodes")
		a.report("node-1", web, cnp)
		a.report("node-2", web, cnp)
		a.report("node-3", web, cnp)
		a.expect(cnp, "Realizable True Understood, Realized True AllNodes")
	})
	t.Run("a restart writes nothing", func(*testing.T) {
		versions := func() (out []string) {
			var policies crdv1beta1.ClusterNetworkPolicyList
			var events eventsv1.EventList
			for _, list := range []client.ObjectList{&policies, &events} {
				if err := a.List(t.Context(), list); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range policies.Items {
				out = append(out, p.Name+" "+p.ResourceVersion)
			}
			for _, e := range events.Items {
				if e.Regarding.Kind != "Lease" { // a new leader writes an Event each time
					out = append(out, e.Name+" "+e.ResourceVersion)
				}
			}
			return out
		}
		// Of the last reports of the Nodes. The Events are written by now.
		grouped := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "grouped"}}
		a.expect(grouped, "Pending 0/1 of 1, "+well)
		a.expect(web, "Realized 3/3 of 2, "+well)
		before := versions()
		stop()
		stop = start(t, apiserver.Access(t, a.config, manifest(t)))
		last := apply(a, &crdv1beta1.ClusterNetworkPolicy{},
			`{metadata: {name: zz-last}, spec: {priority: 5, appliedTo: [{podSelector: {matchLabels: {app: none}}}],
				ingress: [{action: Drop}]}}`)
		a.expect(last, "Realized 0/0 of 1, "+well)
		time.Sleep(2 * settle)
		after := slices.DeleteFunc(versions(), func(text string) bool { return strings.HasPrefix(text, "zz-last") })
		if !slices.Equal(before, after) {
			t.Errorf("before %v, after %v", before, after)
		}
	})
}

// event waits for an Event about an object.
func (a *api) event(kind, name, reason, note string) {
	a.t.Helper()
	var list eventsv1.EventList
	err := wait.PollUntilContextTimeout(a.t.Context(), 50*time.Millisecond, waitLimit, true,
		func(ctx context.Context) (bool, error) {
			if err := a.List(ctx, &list); err != nil {
				return false, err
			}
			return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
				return e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason &&
					strings.HasPrefix(e.Note, note) && e.Type == corev1.EventTypeWarning
			}), nil
		})
	if err != nil {
		var have []string
		for _, e := range list.Items {
			have = append(have, fmt.Sprintf("%s %s: %s %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note))
		}
		a.t.Fatalf("no Event %s of %s %s that says %q: %v; there are:\n%s", reason, kind, name, note, err,
			strings.Join(have, "\n"))
	}
}

package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
	multiclusterconfig "github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/ports"
)

const (
	area     = "antrea-multicluster"
	manifest = "../../../deploy/multicluster/antrea-multicluster-leader-namespaced.yml"
)

// install creates the manifest's objects, but for the webhooks, which envtest points here.
func install(t *testing.T, admin client.Client) {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), o); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "" || strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			continue
		}
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if o.GetKind() != "ResourceQuota" {
			continue
		}
		// As kube-controller-manager does, which does not run here: without it nothing is admitted.
		hard := o.Object["spec"].(map[string]any)["hard"].(map[string]any)
		used := map[string]any{}
		for resource := range hard {
			used[resource] = "0"
		}
		o.Object["status"] = map[string]any{"hard": hard, "used": used}
		if err := admin.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// member is a new ServiceAccount with the member role and a client with its token.
func member(t *testing.T, admin client.Client, config *rest.Config, name string) client.Client {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: name}}
	if err := admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"namespace": area, "name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": multicluster.MemberRole},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": area}},
	}}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	token := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(config)
	own.BearerToken = token.Status.Token
	c, err := client.New(own, client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" has no role", func() bool { // the API server reads it some time after it is created
		return c.List(t.Context(), &mcv1alpha1.MemberClusterAnnounceList{}, client.InNamespace(area)) == nil
	})
	return c
}

func announcement(id string) *mcv1alpha1.MemberClusterAnnounce {
	return &mcv1alpha1.MemberClusterAnnounce{
		ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: multicluster.AnnounceName(id)},
		ClusterID:  id, ClusterSetID: "set", LeaderClusterID: "north",
	}
}

func export(id string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: area, Name: id + multicluster.ClusterInfoSuffix,
			Finalizers: []string{multicluster.ResourceExportFinalizer},
			Labels: map[string]string{multicluster.LabelSourceClusterID: id,
				multicluster.LabelSourceKind: multicluster.ClusterInfoKind},
		},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: id, Kind: multicluster.ClusterInfoKind,
			ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: id}},
	}
}

// endpoints is what a member exports with one address.
func endpoints(id, ip string) *mcv1alpha1.ResourceExport {
	re := export(id)
	re.Name = multicluster.ResourceExportName(id, "default", "web", multicluster.EndpointsSuffix)
	re.Labels = map[string]string{multicluster.LabelSourceClusterID: id,
		multicluster.LabelSourceKind:      multicluster.EndpointsKind,
		multicluster.LabelSourceNamespace: "default", multicluster.LabelSourceName: "web"}
	re.Spec = mcv1alpha1.ResourceExportSpec{ClusterID: id, Kind: multicluster.EndpointsKind, Namespace: "default",
		Name: "web",
		Endpoints: &mcv1alpha1.EndpointsExport{
			Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}}}}}}
	return re
}

// stored is a member's export as it is, with 1 MiB of status.
func stored(t *testing.T, admin client.Client, id string) *mcv1alpha1.ResourceExport {
	t.Helper()
	re := export(id)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(re), re); err != nil {
		t.Fatal(err)
	}
	re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Message: strings.Repeat("x", 1<<20)}}
	return re
}

// event returns an Event that claims to be of a member, with so many bytes of annotations.
func event(name, id string, size int) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: name,
			Labels:      map[string]string{multicluster.AnnotationClusterID: id},
			Annotations: map[string]string{"x": strings.Repeat("x", size)}},
		InvolvedObject: corev1.ObjectReference{Namespace: area, Kind: "ResourceImport", Name: "x"},
		Reason:         "ACNPImportFailed", Type: corev1.EventTypeWarning,
	}
}

func labelled(ctx context.Context, admin client.Client, name, want string) error {
	e := &corev1.Event{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: area, Name: name}, e); err != nil {
		return err
	}
	if have := e.Labels[multicluster.AnnotationClusterID]; have != want {
		return fmt.Errorf("the Event is labelled %q, want %q", have, want)
	}
	return nil
}

func setFinalizers(ctx context.Context, c client.Client, id string, list ...string) error {
	a := announcement(id)
	a.Finalizers = list
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": list}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, a, client.RawPatch(types.MergePatchType, raw))
}

// leaderSide is an API server with the leader's manifest, whose webhooks this process serves.
type leaderSide struct {
	config *rest.Config // an administrator's
	admin  client.Client
	own    *rest.Config // as the manifest's ServiceAccount
	hooks  envtest.WebhookInstallOptions
}

func start(t *testing.T) leaderSide {
	t.Helper()
	s := installed(t)
	mgr := s.manager(t, ctrl.Options{WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: s.hooks.LocalServingHost, Port: s.hooks.LocalServingPort, CertDir: s.hooks.LocalServingCertDir})})
	if err := webhook.SetupWithManager(mgr, s.admin.Scheme(), webhook.Leader, area); err != nil {
		t.Fatal(err)
	}
	run(t, mgr)
	eventually(t, "the webhook server has not started",
		func() bool { return mgr.GetWebhookServer().StartedChecker()(nil) == nil })
	// The API server reads the two configurations some time after they are created.
	const path = "multicluster-crd-antrea-io-v1alpha1-memberclusterannounce"
	before := requests(t, "/mutate-"+path)
	eventually(t, "the API server does not call the webhooks", func() bool {
		err := s.admin.Create(t.Context(), announcement("probe"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "is not a ServiceAccount") &&
			requests(t, "/mutate-"+path) > before
	})
	return s
}

// requests is how often a webhook of this process was called.
func requests(t *testing.T, path string) (n float64) {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "controller_runtime_webhook_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "webhook" && l.GetValue() == path {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// installed is the same while no process serves the webhooks.
func installed(t *testing.T) leaderSide {
	t.Helper()
	config := apiserver.Start(t, "../../../deploy/crds")
	s := leaderSide{config: config, hooks: envtest.WebhookInstallOptions{Paths: []string{manifest},
		LocalServingHost: "127.0.0.1", LocalServingPort: ports.Free(t)}}
	if err := s.hooks.Install(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.hooks.LocalServingCertDir) })
	scheme, err := leader.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if s.admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: area}}); err != nil {
		t.Fatal(err)
	}
	install(t, s.admin)
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	s.own = apiserver.Access(t, config, text)
	return s
}

// manager acts as the manifest's ServiceAccount.
func (s leaderSide) manager(t *testing.T, o ctrl.Options) ctrl.Manager {
	t.Helper()
	o.Scheme, o.Metrics = s.admin.Scheme(), metricsserver.Options{BindAddress: "0"}
	mgr, err := ctrl.NewManager(s.own, o)
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

func run(t *testing.T, mgr ctrl.Manager) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func eventually(t *testing.T, otherwise string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// step is an action of a client, and a part of its refusal; empty when it is allowed.
type step struct {
	name string
	do   func() error
	want string
}

func walk(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		err := s.do()
		if s.want == "" && err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if s.want != "" && (err == nil || !strings.Contains(err.Error(), s.want)) {
			t.Errorf("%s: %v, want a refusal with %q", s.name, err, s.want)
		}
	}
}

func clusterSet(name string) *mcv1alpha2.ClusterSet {
	return &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: name},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}},
			Namespace: area}}
}

// TestMembersActAsThemselves plays members with real tokens against the rendered role and
// webhooks, without a controller: what is not bound stays so.
func TestMembersActAsThemselves(t *testing.T) {
	s := start(t)
	ctx, admin := t.Context(), s.admin
	east, west := member(t, admin, s.config, "member-east"), member(t, admin, s.config, "member-west")
	wrong := announcement("east")
	wrong.ClusterSetID = "other"
	forged := announcement("east")
	forged.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: "member-west"}
	walk(t, []step{
		{"announce before there is a ClusterSet", func() error { return east.Create(ctx, announcement("east")) },
			"no ClusterSet found"},
		{"the ClusterSet", func() error { return admin.Create(ctx, clusterSet("set")) }, ""},
		{"members of the ClusterSet, as the guide of v1.5 adds them", func() error {
			old := &mcv1alpha1.ClusterSet{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(clusterSet("set")), old); err != nil {
				return err
			}
			before := old.DeepCopy()
			old.Spec.Members = []mcv1alpha1.MemberCluster{{ClusterID: "east", ServiceAccount: "member-east"}}
			return admin.Patch(ctx, old, client.MergeFrom(before))
		}, ""},
		{"a second ClusterSet", func() error { return admin.Create(ctx, clusterSet("more")) }, "multiple ClusterSets"},
		{"export before announcing", func() error { return east.Create(ctx, export("east")) }, "announce the member first"},
		{"announce to another ClusterSet", func() error { return east.Create(ctx, wrong) }, "Unknown ClusterSet ID"},
		{"an administrator announces", func() error { return admin.Create(ctx, announcement("east")) },
			"not a ServiceAccount"},
		{"dry run", func() error { return west.Create(ctx, announcement("east"), client.DryRunAll) }, ""},
		{"after it all is as before", func() error { return unchanged(ctx, admin, 0) }, ""},
		{"announce, in another's name", func() error { return east.Create(ctx, forged) }, ""},
		{"it is recorded as its own", func() error { return recorded(ctx, admin, "east", "member-east") }, ""},
		{"nothing is bound by admission", func() error { return unchanged(ctx, admin, 1) }, ""},
		{"the same account as another member", func() error { return east.Create(ctx, announcement("south")) },
			`has announced cluster ID "east"`},
		{"an ID that is recorded as another's", func() error { return west.Update(ctx, touched(t, admin, "east")) },
			"was made by ServiceAccount member-east"},
		{"an ambiguous ID", func() error { return west.Create(ctx, announcement("east-1")) },
			"conflicts with an existing member"},
		{"the second member", func() error { return west.Create(ctx, announcement("west")) }, ""},
		{"touch", func() error { return east.Update(ctx, touched(t, admin, "east")) }, ""},
		{"the record stays", func() error { return recorded(ctx, admin, "east", "member-east") }, ""},
		{"touch another's", func() error { return west.Update(ctx, touched(t, admin, "east")) },
			"was made by ServiceAccount member-east"},
		{"remove another's", func() error { return west.Delete(ctx, announcement("east")) }, "may not delete"},
		{"export", func() error { return east.Create(ctx, export("east")) }, ""},
		{"export as another", func() error { return west.Create(ctx, export("east")) }, "want \"west\""},
		{"delete another's export", func() error { return west.Delete(ctx, export("east")) }, "not authorized"},
		{"export a loopback endpoint", func() error { return east.Create(ctx, endpoints("east", "127.0.0.1")) },
			"127.0.0.1 is a loopback address"},
		{"export an endpoint", func() error { return east.Create(ctx, endpoints("east", "10.96.0.1")) }, ""},
		{"change it into a link-local one", func() error {
			re := endpoints("east", "169.254.169.254")
			return east.Patch(ctx, re, client.Merge)
		}, "169.254.169.254 is a link-local address"},
		{"give it a foreign finalizer", func() error {
			re := endpoints("east", "10.96.0.1")
			re.Finalizers = append(re.Finalizers, "example.org/mine")
			return east.Patch(ctx, re, client.Merge)
		}, "members may not add"},
		{"give it an owner", func() error {
			re := endpoints("east", "10.96.0.1")
			re.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "1"}}
			return east.Patch(ctx, re, client.Merge)
		}, "members may not add one"},
		{"write the status of an own export", func() error { return east.Status().Update(ctx, stored(t, admin, "east")) },
			"cannot update resource \"resourceexports/status\""},
		{"write the status of another's export", func() error { return west.Status().Update(ctx, stored(t, admin, "east")) },
			"cannot update resource \"resourceexports/status\""},
		{"patch the status of an import", func() error {
			return west.Status().Patch(ctx,
				&mcv1alpha1.ResourceImport{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: "x"}},
				client.RawPatch(types.MergePatchType, []byte("{}")))
		}, "cannot patch resource \"resourceimports/status\""},
		{"an Event in another's name", func() error { return east.Create(ctx, event("one", "west", 0)) }, ""},
		{"it is labelled with its own", func() error { return labelled(ctx, admin, "one", "east") }, ""},
		{"an Event that is too long", func() error { return east.Create(ctx, event("long", "east", 9000)) },
			"expected at most 8192"},
		{"more Events than a member may have", func() error {
			for i := range webhook.MaxEvents - 1 { // as if they were its own: an administrator's are not counted by maker
				if err := admin.Create(ctx, event(fmt.Sprint("more-", i), "east", 0)); err != nil {
					return err
				}
			}
			return east.Create(ctx, event("last", "east", 0))
		}, "cluster east has 500 Events: expected at most 500"},
		{"an Event of another member", func() error { return west.Create(ctx, event("other", "west", 0)) }, ""},
		{"the leader's finalizer", func() error {
			return setFinalizers(ctx, admin, "east", multicluster.MemberClusterAnnounceFinalizerPrefix+"east")
		}, "is not a ServiceAccount"},
		{"an own finalizer on its announcement", func() error { return setFinalizers(ctx, east, "east", "example.org/mine") },
			"members may not add"},
		{"delete the ClusterSet with members", func() error { return admin.Delete(ctx, clusterSet("set")) },
			"still member clusters"},
	})
	priorityLevels(t, s.config, admin)
}

// TestEventsWithoutWebhook writes Events while no process serves the webhooks. A member's are refused, or it could fill
// etcd; Events of others do not wait.
func TestEventsWithoutWebhook(t *testing.T) {
	s := installed(t)
	ctx := t.Context()
	east := member(t, s.admin, s.config, "member-east")
	as := func(user string) client.Client {
		config := rest.CopyConfig(s.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		c, err := client.New(config, client.Options{Scheme: s.admin.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	walk(t, []step{
		{"an administrator", func() error { return s.admin.Create(ctx, event("admin", "east", 0)) }, ""},
		{"another component", func() error {
			return as("system:serviceaccount:kube-system:deployment-controller").Create(ctx, event("component", "east", 0))
		}, ""},
		{"the leader's controller", func() error {
			return as("system:serviceaccount:"+area+":antrea-mc-controller").Create(ctx, event("leader", "east", 0))
		}, ""},
	})
	// The API server has the configurations a moment after they are made.
	names := 0
	eventually(t, "a member's Event is stored that nobody has judged", func() bool {
		names++
		err := east.Create(ctx, event(fmt.Sprint("member-", names), "east", 0))
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	})
}

// unchanged reports whether there are other announcements than so many, or bound accounts.
func unchanged(ctx context.Context, admin client.Client, announcements int) error {
	var announces mcv1alpha1.MemberClusterAnnounceList
	var accounts corev1.ServiceAccountList
	if err := errors.Join(admin.List(ctx, &announces), admin.List(ctx, &accounts)); err != nil {
		return err
	}
	if len(announces.Items) != announcements {
		return fmt.Errorf("there are %d announcements, want %d", len(announces.Items), announcements)
	}
	for _, a := range accounts.Items {
		if id, bound := binding.Bound(&a); bound {
			return fmt.Errorf("ServiceAccount %s is bound to %q", a.Name, id)
		}
	}
	return nil
}

func recorded(ctx context.Context, admin client.Client, id, want string) error {
	a := announcement(id)
	if err := admin.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
		return err
	}
	if have := binding.Announcer(a); have != want {
		return fmt.Errorf("the announcement records %q, want %q", have, want)
	}
	return nil
}

// bound is the cluster ID that an account's annotation has.
func bound(t *testing.T, admin client.Client, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: area, Name: name}, account); err != nil {
		t.Fatal(err)
	}
	id, _ := binding.Bound(account)
	return id
}

// TestJoin lets an account that is not bound join, while a client without any right has forged its announcement at the
// webhooks' port.
func TestJoin(t *testing.T) {
	s := start(t)
	ctx, admin := t.Context(), s.admin
	east, west := member(t, admin, s.config, "member-east"), member(t, admin, s.config, "member-west")
	if err := admin.Create(ctx, clusterSet("set")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/mutate", "/validate"} {
		s.forge(t, path+"-multicluster-crd-antrea-io-v1alpha1-memberclusterannounce", "member-east", "evil")
	}
	west2 := export("west")
	west2.Spec.ClusterInfo.ServiceCIDR = "10.97.0.0/16"
	walk(t, []step{
		{"the forged announcements changed nothing", func() error { return unchanged(ctx, admin, 0) }, ""},
		{"announce", func() error { return east.Create(ctx, announcement("east")) }, ""},
		{"export before it is bound", func() error { return east.Create(ctx, export("east")) }, ""},
		{"export another's before that is bound", func() error { return west.Create(ctx, export("east")) },
			"announce the member first"},
		{"announce the same ID before it is bound", func() error { return west.Create(ctx, announcement("east")) },
			"already exists"},
		{"touch it before it is bound", func() error { return west.Update(ctx, touched(t, admin, "east")) },
			"was made by ServiceAccount member-east"},
		{"nothing is bound", func() error { return unchanged(ctx, admin, 1) }, ""},
	})

	mgr := s.manager(t, ctrl.Options{})
	if err := leader.SetupWithManager(mgr, multiclusterconfig.Default(), area); err != nil {
		t.Fatal(err)
	}
	run(t, mgr)
	eventually(t, "member-east is not bound", func() bool { return bound(t, admin, "member-east") == "east" })
	walk(t, []step{
		{"touch", func() error {
			return retry.RetryOnConflict(retry.DefaultRetry, func() error { return east.Update(ctx, touched(t, admin, "east")) })
		}, ""},
		{"delete an export", func() error { return east.Delete(ctx, export("east")) }, ""},
		{"announce another ID", func() error { return east.Create(ctx, announcement("south")) },
			`bound to cluster ID "east"`},
		{"announce an ID that is held", func() error { return west.Create(ctx, announcement("east"), client.DryRunAll) },
			"held by ServiceAccount member-east"},
		{"dry run of a second member", func() error { return west.Create(ctx, announcement("west"), client.DryRunAll) }, ""},
		{"announce a second member", func() error { return west.Create(ctx, announcement("west")) }, ""},
		{"export, bound or not yet", func() error { return west.Create(ctx, west2) }, ""},
	})
	eventually(t, "member-west is not bound", func() bool { return bound(t, admin, "member-west") == "west" })
	walk(t, []step{{"export when it is bound", func() error { return west.Delete(ctx, west2) }, ""}})
	if id := bound(t, admin, multicluster.ControllerName); id != "" {
		t.Errorf("the leader's own account is bound to %q", id)
	}
}

// forge posts an announcement in an account's name straight to the webhooks' port, and finds
// it admitted: that must be worth nothing.
func (s leaderSide) forge(t *testing.T, path, account, id string) {
	t.Helper()
	a := announcement(id)
	a.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: account}
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "forged", Operation: admissionv1.Create, Namespace: area, Name: a.Name,
			Kind: metav1.GroupVersionKind{Group: "multicluster.crd.antrea.io", Version: "v1alpha1",
				Kind: "MemberClusterAnnounce"},
			UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:" + area + ":" + account},
			Object:   runtime.RawExtension{Raw: raw}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout: time.Minute}
	defer stranger.CloseIdleConnections()
	url := "https://" + net.JoinHostPort(s.hooks.LocalServingHost, strconv.Itoa(s.hooks.LocalServingPort)) + path
	answer, err := stranger.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(answer.Body).Decode(&review); err != nil || review.Response == nil ||
		!review.Response.Allowed {
		t.Errorf("POST %s: %s, %v, %+v; want it admitted", path, answer.Status, err, review.Response)
	}
}

// touched is a member's announcement as it is, with a new sign of life.
func touched(t *testing.T, admin client.Client, id string) *mcv1alpha1.MemberClusterAnnounce {
	t.Helper()
	a := announcement(id)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
		t.Fatal(err)
	}
	a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: time.Now().Format(time.RFC3339Nano)}
	return a
}

// TestOneMemberAgainstAnother has one member write useless exports, and leave with finalizers that no controller
// removes. The other member's imports go on, and the first is gone in the end.
func TestOneMemberAgainstAnother(t *testing.T) {
	s := start(t)
	ctx, admin := t.Context(), s.admin
	east, west := member(t, admin, s.config, "member-east"), member(t, admin, s.config, "member-west")
	mgr := s.manager(t, ctrl.Options{})
	if err := leader.SetupWithManager(mgr, multiclusterconfig.Default(), area); err != nil {
		t.Fatal(err)
	}
	run(t, mgr)
	web := func(id string) *mcv1alpha1.ResourceExport {
		re := endpoints(id, "")
		re.Name, re.Labels[multicluster.LabelSourceKind] = multicluster.ResourceExportName(id, "default", "web",
			multicluster.ServiceSuffix), multicluster.ServiceKind
		re.Spec.Kind, re.Spec.Endpoints = multicluster.ServiceKind, nil
		re.Spec.Service = &mcv1alpha1.ServiceExport{ServiceSpec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		return re
	}
	network := func(id, cidr, gateway string) *mcv1alpha1.ResourceExport {
		re := export(id)
		re.Spec.ClusterInfo.ServiceCIDR, re.Spec.ClusterInfo.PodCIDRs = cidr, []string{"10.10.0.0/16"}
		re.Spec.ClusterInfo.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: gateway}}
		return re
	}
	change := func(c client.Client, re *mcv1alpha1.ResourceExport) error {
		have := &mcv1alpha1.ResourceExport{}
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(re), have); err != nil {
				return err
			}
			have.Spec, have.Finalizers = re.Spec, re.Finalizers
			return c.Update(ctx, have)
		})
	}
	// imported waits until the joint Endpoints have these addresses, and makes Endpoints of them.
	imported := func(what string, want ...string) {
		t.Helper()
		ri := &mcv1alpha1.ResourceImport{}
		have := func() (ips []string) {
			if err := admin.Get(ctx, client.ObjectKey{Namespace: area, Name: "default-web-endpoints"}, ri); err != nil {
				return nil
			}
			for _, subset := range ri.Spec.Endpoints.Subsets {
				for _, a := range subset.Addresses {
					ips = append(ips, a.IP)
				}
			}
			return ips
		}
		eventually(t, what+": the joint Endpoints are not "+strings.Join(want, " "),
			func() bool { return slices.Equal(have(), want) })
		e := &corev1.Endpoints{ //nolint:staticcheck // the documented kind
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "antrea-mc-web"},
			Subsets:    ri.Spec.Endpoints.Subsets,
		}
		if err := admin.Create(ctx, e, client.DryRunAll); err != nil {
			t.Errorf("%s: the API server refuses the joint Endpoints: %v", what, err)
		}
	}
	condition := func(name, want string) {
		t.Helper()
		re := &mcv1alpha1.ResourceExport{}
		eventually(t, fmt.Sprintf("%s has no condition with %q", name, want), func() bool {
			err := admin.Get(ctx, client.ObjectKey{Namespace: area, Name: name}, re)
			return err == nil && len(re.Status.Conditions) == 1 &&
				strings.Contains(string(re.Status.Conditions[0].Type)+" "+re.Status.Conditions[0].Message, want)
		})
	}

	set := clusterSet("set") // west announces no ranges, as a cluster without a Gateway
	set.Annotations = map[string]string{multicluster.AnnotationEndpointsPrefix + "west": "10.97.0.0/16"}
	walk(t, []step{
		{"the ClusterSet", func() error { return admin.Create(ctx, set) }, ""},
		{"east", func() error { return east.Create(ctx, announcement("east")) }, ""},
		{"west", func() error { return west.Create(ctx, announcement("west")) }, ""},
		{"east's network", func() error { return east.Create(ctx, network("east", "10.96.0.0/16", "192.0.2.1")) }, ""},
		{"east's Service", func() error { return east.Create(ctx, web("east")) }, ""},
		{"east's endpoint", func() error { return east.Create(ctx, endpoints("east", "10.96.0.1")) }, ""},
		{"west's Service", func() error { return west.Create(ctx, web("west")) }, ""},
		{"west's endpoint", func() error { return west.Create(ctx, endpoints("west", "10.97.0.1")) }, ""},
	})
	imported("both", "10.96.0.1", "10.97.0.1")

	// Admission does not know ranges, and was away when the loopback address came.
	walk(t, []step{{"an endpoint in west's network",
		func() error { return change(east, endpoints("east", "10.97.0.9")) }, ""}})
	condition("east-default-web-endpoints",
		"Failure the ResourceExport cannot be converged to a ResourceImport: spec.endpoints.subsets[0].addresses[0].ip: "+
			"10.97.0.9 is outside of the ranges")
	imported("east's is outside of its ranges", "10.97.0.1")
	bad := endpoints("east", "127.0.0.1")
	bad.Finalizers = append(bad.Finalizers, "example.org/never")
	walk(t, []step{{"a loopback endpoint", func() error { return change(admin, bad) }, ""}})
	condition("east-default-web-endpoints", "127.0.0.1 is a loopback address")
	walk(t, []step{{"west's change", func() error { return change(west, endpoints("west", "10.97.0.2")) }, ""}})
	imported("west's change arrives", "10.97.0.2")

	// Exports without an announced member are not imported.
	walk(t, []step{
		{"a Service of nobody", func() error { return admin.Create(ctx, web("ghost")) }, ""},
		{"an endpoint of nobody", func() error { return admin.Create(ctx, endpoints("ghost", "10.98.0.1")) }, ""},
	})
	condition("ghost-default-web-endpoints", "cluster ghost is not a member of the ClusterSet")
	imported("a ghost's is not", "10.97.0.2")

	// East leaves, although one of its exports has a finalizer that no controller removes.
	walk(t, []step{{"expel east", func() error { return admin.Delete(ctx, announcement("east")) }, ""}})
	eventually(t, "east is not gone", func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(announcement("east")), announcement("east"))) &&
			apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(bad), bad))
	})
	imported("without east", "10.97.0.2")
}

// priorityLevels has members' requests wait at a priority level of their own, and the leader's
// controller at another.
func priorityLevels(t *testing.T, config *rest.Config, admin client.Client) {
	t.Helper()
	uid := func(name string) string {
		schema := &unstructured.Unstructured{}
		schema.SetAPIVersion("flowcontrol.apiserver.k8s.io/v1")
		schema.SetKind("FlowSchema")
		if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, schema); err != nil {
			t.Fatal(err)
		}
		return string(schema.GetUID())
	}
	for account, schema := range map[string]string{"member-east": area + "-antrea-mc-members",
		multicluster.ControllerName: area + "-antrea-mc-controller"} {
		as := rest.CopyConfig(config)
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + area + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + area, "system:authenticated"}}
		c, err := rest.HTTPClientFor(as)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseIdleConnections()
		want, have := uid(schema), ""
		eventually(t, account+" does not get FlowSchema "+schema, func() bool {
			answer, err := c.Get(config.Host + "/apis/multicluster.crd.antrea.io/v1alpha1/namespaces/" +
				area + "/resourceexports")
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			have = answer.Header.Get("X-Kubernetes-PF-FlowSchema-UID")
			return have == want
		})
	}
}

package webhook_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/test/apiserver"
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
			Namespace: area, Name: id + multicluster.ClusterInfoSuffix, Finalizers: []string{multicluster.ResourceExportFinalizer},
			Labels: map[string]string{multicluster.LabelSourceClusterID: id, multicluster.LabelSourceKind: multicluster.ClusterInfoKind},
		},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: id, Kind: multicluster.ClusterInfoKind, ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: id}},
	}
}

// TestMembersActAsThemselves plays members with real tokens against the rendered role and webhooks.
func TestMembersActAsThemselves(t *testing.T) {
	config := apiserver.Start(t, "../../../deploy/crds")
	o := envtest.WebhookInstallOptions{Paths: []string{manifest}}
	if err := o.Install(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(o.LocalServingCertDir) })
	scheme, err := leader.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: area}}); err != nil {
		t.Fatal(err)
	}
	install(t, admin)
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(apiserver.Access(t, config, text), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: o.LocalServingHost, Port: o.LocalServingPort, CertDir: o.LocalServingCertDir}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.SetupWithManager(mgr, scheme, webhook.Leader, area); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() { stop(); <-done }()
	deadline := time.Now().Add(20 * time.Second)
	for mgr.GetWebhookServer().StartedChecker()(nil) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the webhook server has not started")
		}
		<-time.After(20 * time.Millisecond)
	}

	set := func(name string) *mcv1alpha2.ClusterSet {
		return &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: name},
			Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}, Namespace: area}}
	}
	east, west := member(t, admin, config, "member-east"), member(t, admin, config, "member-west")
	wrong := announcement("east")
	wrong.ClusterSetID = "other"
	for _, step := range []struct {
		name string
		do   func() error
		want string // part of the refusal; empty when it is allowed
	}{
		{"announce before there is a ClusterSet", func() error { return east.Create(ctx, announcement("east")) }, "no ClusterSet found"},
		{"the ClusterSet", func() error { return admin.Create(ctx, set("set")) }, ""},
		{"members of the ClusterSet, as the guide of v1.5 adds them", func() error {
			old := &mcv1alpha1.ClusterSet{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(set("set")), old); err != nil {
				return err
			}
			before := old.DeepCopy()
			old.Spec.Members = []mcv1alpha1.MemberCluster{{ClusterID: "east", ServiceAccount: "member-east"}}
			return admin.Patch(ctx, old, client.MergeFrom(before))
		}, ""},
		{"a second ClusterSet", func() error { return admin.Create(ctx, set("more")) }, "multiple ClusterSets"},
		{"export before announcing", func() error { return east.Create(ctx, export("east")) }, "announce the member first"},
		{"announce to another ClusterSet", func() error { return east.Create(ctx, wrong) }, "Unknown ClusterSet ID"},
		{"an administrator announces", func() error { return admin.Create(ctx, announcement("east")) }, "not a ServiceAccount"},
		{"dry run does not bind", func() error { return west.Create(ctx, announcement("east"), client.DryRunAll) }, ""},
		{"announce, which binds", func() error { return east.Create(ctx, announcement("east")) }, ""},
		{"the same account as another member", func() error { return east.Create(ctx, announcement("south")) }, "bound to cluster ID"},
		{"an ID that is held", func() error { return west.Update(ctx, touched(t, admin, "east")) }, "is held by ServiceAccount member-east"},
		{"an ambiguous ID", func() error { return west.Create(ctx, announcement("east-1")) }, "conflicts with an existing member"},
		{"the second member", func() error { return west.Create(ctx, announcement("west")) }, ""},
		{"touch", func() error { return east.Update(ctx, touched(t, admin, "east")) }, ""},
		{"touch another's", func() error { return west.Update(ctx, touched(t, admin, "east")) }, "bound to cluster ID"},
		{"remove another's", func() error { return west.Delete(ctx, announcement("east")) }, "may not delete"},
		{"export", func() error { return east.Create(ctx, export("east")) }, ""},
		{"export as another", func() error { return west.Create(ctx, export("east")) }, "want \"west\""},
		{"delete another's export", func() error { return west.Delete(ctx, export("east")) }, "not authorized"},
		{"delete the ClusterSet with members", func() error { return admin.Delete(ctx, set("set")) }, "still member clusters"},
	} {
		err := step.do()
		if step.want == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s: %v, want a refusal with %q", step.name, err, step.want)
		}
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

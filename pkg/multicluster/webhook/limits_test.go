package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// TestLimitsWatch counts from a real API server what members store there.
func TestLimitsWatch(t *testing.T) {
	ctx := t.Context()
	config := apiserver.Start(t, "../../../deploy/crds")
	known := scheme(t)
	admin, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	before := exported(multicluster.ServiceKind, func(r *mcv1alpha1.ResourceExport) { r.Finalizers = nil })
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "area"}}, before} {
		if err := admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	// An informer lists what the API server has cached, which may be older than the last write.
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			var cached mcv1alpha1.ResourceExportList
			err := admin.List(ctx, &cached, client.InNamespace("area"),
				&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
			return len(cached.Items) == 1, err
		}); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: known, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l := newLimits(func() time.Time { return began }) // what is counted does not become less on a slow machine
	if err := l.watch(mgr, "area"); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(run) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	is := func(what string, want func(usage) bool) {
		t.Helper()
		var have usage
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true,
			func(context.Context) (bool, error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				have = usage{}
				if u := l.members["east"]; u != nil {
					have = *u
				}
				return want(have), nil
			})
		if err != nil {
			t.Fatalf("%s: have %+v: %v", what, have, err)
		}
	}
	is("what was there before counts, but not as written",
		func(u usage) bool { return u.exports[""] == 1 && u.bytes > 300 && u.written.level == 0 })

	const long = 100_000
	second := exported(multicluster.EndpointsKind, func(r *mcv1alpha1.ResourceExport) { r.Finalizers = nil })
	if err := admin.Create(ctx, second); err != nil {
		t.Fatal(err)
	}
	is("created", func(u usage) bool { return u.exports[""] == 2 && u.bytes < long })
	second.Annotations = map[string]string{"x": strings.Repeat("x", long)}
	if err := admin.Update(ctx, second); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(second)
	if err != nil {
		t.Fatal(err)
	}
	is("updated", func(u usage) bool {
		return u.exports[""] == 2 && u.bytes > len(raw) && u.bytes < len(raw)+2000 && u.written.level > 0
	})
	for _, o := range []client.Object{before, second} {
		if err := admin.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	is("deleted", func(u usage) bool { return u.exports[""] == 0 && u.bytes == 0 })

	a := announcement("east")
	if err := admin.Create(ctx, a); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
	touched := 0
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			touched++
			a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: fmt.Sprint(touched)}
			if err := admin.Update(ctx, a); err != nil {
				return false, err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.announces[key] != nil && l.announces[key].level > 3, nil
		})
	if err != nil {
		t.Fatalf("the writes of an announcement are not counted: %v", err)
	}
}

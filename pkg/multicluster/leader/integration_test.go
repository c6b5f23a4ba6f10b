package leader

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	poll "k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// waitLimit is how long a test waits for the leader. A busy machine takes half a minute for a step.
const waitLimit = 2 * time.Minute

// startLeader runs the leader for Namespace area until the test ends, with the rights of its manifest. It returns an
// administrator's client.
func startLeader(t *testing.T) client.Client {
	t.Helper()
	c, _ := startLeaders(t)
	return c
}

// startLeaders is startLeader with a restart. The returned function ends the leader, calls meanwhile, and starts
// another leader.
func startLeaders(t *testing.T) (_ client.Client, restart func(meanwhile func())) {
	t.Helper()
	c, _, restart := startWith(t, config.Default())
	return c, restart
}

// startCentral is startLeader in the central cluster. It also returns a client with the leader's own rights.
func startCentral(t *testing.T) (admin, own client.Client) {
	t.Helper()
	cfg := config.Default()
	cfg.Central = true
	admin, own, _ = startWith(t, cfg, centralManifest(t))
	return admin, own
}

// startWith starts leaders with a configuration, and the rights of further manifests.
func startWith(t *testing.T, cfg config.Config, more ...[]byte) (_, _ client.Client,
	restart func(meanwhile func())) {
	t.Helper()
	access := apiserver.Start(t, "../../../deploy/crds")
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(access, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "area"}}); err != nil {
		t.Fatal(err)
	}
	inArea(t, c, set("set", "north", "north"))
	manifest, err := os.ReadFile("../../../deploy/multicluster/v1.5/antrea-multicluster-leader-namespaced.yml")
	if err != nil {
		t.Fatal(err)
	}
	own := apiserver.Access(t, access, bytes.Join(append([][]byte{bytes.ReplaceAll(manifest, []byte("changeme"),
		[]byte("area"))}, more...), []byte("\n---\n")))
	for _, text := range more {
		admission(t, c, text)
	}
	asLeader, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	skip := true
	start := func() (stop func()) {
		t.Helper()
		mgr, err := ctrl.NewManager(own, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
			Controller: ctrlconfig.Controller{SkipNameValidation: &skip}})
		if err != nil {
			t.Fatal(err)
		}
		if err := SetupWithManager(mgr, cfg, "area"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- mgr.Start(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stop := start()
	t.Cleanup(func() { stop() })
	return c, asLeader, func(meanwhile func()) {
		stop()
		meanwhile()
		stop = start()
	}
}

// inArea creates an object in the Common Area.
func inArea(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	o.SetCreationTimestamp(metav1.Time{})
	o.SetNamespace("area")
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestLeaderWithRealAPIServer lets two members export one Service with other ports, and lets the winner leave. Each
// step builds on the one before.
func TestLeaderWithRealAPIServer(t *testing.T) {
	ctx := t.Context()
	c := startLeader(t)
	create := func(o client.Object) {
		t.Helper()
		inArea(t, c, o)
	}
	// is waits until the area holds these imports, "name ports", and these failed exports.
	is := func(step string, want ...string) {
		t.Helper()
		var have []string
		err := poll.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, waitLimit, true,
			func(ctx context.Context) (bool, error) {
				var imports mcv1alpha1.ResourceImportList
				var exports mcv1alpha1.ResourceExportList
				if err := c.List(ctx, &imports); err != nil {
					return false, err
				}
				if err := c.List(ctx, &exports); err != nil {
					return false, err
				}
				have = nil
				for _, ri := range imports.Items {
					line := ri.Name
					if ri.Spec.ServiceImport != nil {
						line += " " + portsText(ri.Spec.ServiceImport.Spec.Ports)
					}
					have = append(have, line)
				}
				for _, re := range exports.Items {
					line := re.Name + " waits"
					for _, condition := range re.Status.Conditions {
						line = re.Name + " " + string(condition.Type)
					}
					have = append(have, line)
				}
				slices.Sort(have)
				return slices.Equal(have, want), nil
			})
		if err != nil {
			t.Fatalf("%s: %v; have\n\t%s\nwant\n\t%s", step, err, strings.Join(have, "\n\t"), strings.Join(want, "\n\t"))
		}
	}

	for _, id := range []string{"east", "west"} {
		create(&mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)},
			ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"})
	}
	east, west := service("east", "default", "web", 0, 80), service("west", "default", "web", 0, 81)
	create(east)
	create(endpoints("east", "default", "web", "10.96.0.1"))
	is("east exports", "default-web-endpoints", "default-web-service [TCP/80]", "east-default-web-endpoints Succeeded",
		"east-default-web-service Succeeded")
	create(west)
	create(endpoints("west", "default", "web", "10.97.0.1"))
	is("west's ports differ", "default-web-endpoints", "default-web-service [TCP/80]",
		"east-default-web-endpoints Succeeded", "east-default-web-service Succeeded",
		"west-default-web-endpoints Succeeded", "west-default-web-service Succeeded")

	// The stored import equals the desired one, so it is not written repeatedly.
	ri := &mcv1alpha1.ResourceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "default-web-service"}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(ri), ri); err != nil {
		t.Fatal(err)
	}
	generation := ri.Generation
	status := func() (text string) {
		s := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "set"}}
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d of %d", s.Status.ReadyClusters, s.Status.TotalClusters)
	}
	err := poll.PollUntilContextTimeout(ctx, 50*time.Millisecond, waitLimit, true,
		func(context.Context) (bool, error) { return status() == "2 of 2", nil })
	if err != nil {
		t.Errorf("ready members: %s, want 2 of 2: %v", status(), err)
	}

	// An import that the API server would refuse does not delay other imports.
	empty := service("west", "default", "empty", 0, 80)
	empty.Spec.Service.ServiceSpec.Ports = nil
	create(empty)
	announcement := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Namespace: "area",
		Name: multicluster.AnnounceName("east")}}
	if err := c.Delete(ctx, announcement); err != nil {
		t.Fatal(err)
	}
	is("east leaves, west takes over", "default-web-endpoints", "default-web-service [TCP/81]",
		"west-default-empty-service Failure", "west-default-web-endpoints Succeeded", "west-default-web-service Succeeded")
	if err := c.Get(ctx, client.ObjectKeyFromObject(ri), ri); err != nil || ri.Generation != generation+1 {
		t.Errorf("the import was written %d times, want once; %v", ri.Generation-generation, err)
	}
	err = poll.PollUntilContextTimeout(ctx, 50*time.Millisecond, waitLimit, true,
		func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(announcement), announcement)) &&
				status() == "1 of 1", nil
		})
	if err != nil {
		t.Errorf("east's announcement is still there, or ready members are not 1 of 1 but %s: %v", status(), err)
	}
	for _, o := range []client.Object{west, empty, endpoints("west", "default", "web", "")} {
		o.SetNamespace("area")
		if err := c.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	is("the last export is gone")
}

package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	statsv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/stats/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// TestReportAccess writes reports to a real API server as the agent's ServiceAccount on node-1. It may write its own
// report and no other.
func TestReportAccess(t *testing.T) {
	admin := apiserver.Start(t, "../../deploy/crds")
	c, err := client.New(admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../deploy/agent/tombolo-crds.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(o.GetKind(), "ValidatingAdmission") {
			continue // the file's head, and definitions that the server has
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	as := agentAccess(t, admin)
	on := func(node string) reportAPI {
		config := rest.CopyConfig(as)
		config.Impersonate.Extra = map[string][]string{}
		if node != "" {
			config.Impersonate.Extra["authentication.kubernetes.io/node-name"] = []string{node}
		}
		api, err := newReportClient(config)
		if err != nil {
			t.Fatal(err)
		}
		return api
	}
	report := func(node string) *tombolov1alpha1.NodePolicyReport {
		return &tombolov1alpha1.NodePolicyReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
	}
	// refused waits until an admission policy takes effect, which takes some time after its creation. Its attempts change
	// nothing.
	refused := func(what, text string, try func(ctx context.Context) error) {
		t.Helper()
		var last error
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				last = try(ctx)
				return last != nil && strings.Contains(last.Error(), text), nil
			})
		if err != nil {
			t.Fatalf("%s are not refused: %v", what, last)
		}
	}
	refused("reports of other Nodes", `is not the Node of the agent that writes, which is "node-1"`,
		func(ctx context.Context) error {
			err := on("node-1").create(ctx, report("probe"))
			if err == nil {
				return c.Delete(ctx, asUnstructured("probe"))
			}
			return err
		})

	networkReports(t, c, on)
	podStatuses(t, c, on, refused)
	latencyReports(t, c, as, node)
	now := reported{Policies: map[string]string{"acnp/a": "1/x", "annp/default/b": "2/y"}}
	own := newReporter("node-1", on("node-1"), func(context.Context) (reported, error) { return now, nil },
		func() int { return 1 }, func() types.UID { return node.UID }, slog.New(slog.DiscardHandler))
	known, wrote, err := own.write(t.Context(), nil, now)
	if err != nil || !wrote {
		t.Fatalf("wrote %v, %v", wrote, err)
	}
	have, err := own.api.get(t.Context(), "node-1")
	if err != nil || !maps.Equal(have.Policies, now.Policies) || len(have.OwnerReferences) != 1 ||
		have.OwnerReferences[0].UID != node.UID {
		t.Fatalf("the API server has %+v, %v", have, err)
	}
	if _, wrote, err = own.write(t.Context(), known, now); wrote || err != nil {
		t.Errorf("nothing has changed, wrote %v, %v", wrote, err)
	}
	now = reported{Policies: map[string]string{"acnp/a": "2/x"}, Failures: map[string]string{"cnp/c": "1/z full"},
		Features: map[string]string{"PreserveClientIP": ""},
		Ways:     map[string]string{"west/192.168.79.101": "up", "west/192.168.79.102": "down"}}
	if _, _, err = own.write(t.Context(), known, now); err != nil {
		t.Fatal(err)
	}
	if have, err = own.api.get(t.Context(), "node-1"); err != nil || !maps.Equal(have.Policies, now.Policies) ||
		!maps.Equal(have.Failures, now.Failures) || !maps.Equal(have.Features, now.Features) {
		t.Errorf("the API server has %+v, %v", have, err)
	}
	if !maps.Equal(have.Ways, now.Ways) {
		t.Errorf("the API server has ways %v", have.Ways)
	}
	if _, wrote, err = own.write(t.Context(), nil, now); wrote || err != nil { // after a restart
		t.Errorf("a restart wrote %v, %v", wrote, err)
	}
	undecided := now
	undecided.Ways = nil
	if known, wrote, err = own.write(t.Context(), nil, undecided); wrote || err != nil ||
		!maps.Equal(known.Ways, now.Ways) {
		t.Errorf("a restart that knows nothing of ways yet wrote %v, %v: %v", wrote, err, known)
	}
	away := reported{OnlyWays: true, Ways: map[string]string{"west/192.168.79.101": "down"}}
	if known, wrote, err = own.write(t.Context(), nil, away); !wrote || err != nil ||
		!maps.Equal(known.Policies, now.Policies) {
		t.Errorf("a switch that is away: wrote %v, %v: %v", wrote, err, known)
	}
	if have, err = own.api.get(t.Context(), "node-1"); err != nil || !maps.Equal(have.Ways, away.Ways) ||
		!maps.Equal(have.Policies, now.Policies) || !maps.Equal(have.Features, now.Features) {
		t.Errorf("the API server has %+v, %v", have, err)
	}
	if err := c.Delete(t.Context(), asUnstructured("node-1")); err != nil {
		t.Fatal(err)
	}
	if _, _, err = own.write(t.Context(), &reported{}, now); !apierrors.IsNotFound(err) && err == nil {
		t.Error("a report that was deleted is patched")
	}
	if _, _, err = own.write(t.Context(), nil, now); err != nil {
		t.Errorf("and is not made again: %v", err)
	}

	for name, node := range map[string]string{"of another Node": "node-2", "without a Node": ""} {
		if err := on(node).patch(t.Context(), "node-1", []byte(`{"policies":{"acnp/a":"9/x"}}`)); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "agents write about their own Node alone") {
			t.Errorf("an agent %s writes the report of node-1: %v", name, err)
		}
	}
	if err := own.api.patch(t.Context(), "node-1", []byte(`{"metadata":{"finalizers":["a.b/c"]}}`)); err == nil {
		t.Error("an agent adds a finalizer")
	}
	deletion := on("node-1").(*reportClient).reports.Delete().Resource(reportsResource).Name("node-1").Do(
		t.Context()).Error()
	if !apierrors.IsForbidden(deletion) {
		t.Errorf("an agent deletes a report: %v", deletion)
	}

	testLeaseAccess(t, as, refused)
	testInfoAccess(t, c, as, node.UID)

	// The key of WireGuard goes into the Gateway of the agent's own Node, and nothing else.
	for _, node := range []string{"node-1", "node-2"} {
		g := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "multicluster.crd.antrea.io/v1alpha1", "kind": "Gateway",
			"metadata":  map[string]any{"namespace": "kube-system", "name": node},
			"gatewayIP": "192.0.2.1", "internalIP": "192.0.2.1", "serviceCIDR": "10.96.0.0/16",
		}}
		if err := c.Create(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	gatewaysOf := func(node string) rest.Interface {
		config := rest.CopyConfig(as)
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
		api, err := newGatewayClient(config)
		if err != nil {
			t.Fatal(err)
		}
		return api
	}
	refused("keys of other Nodes' Gateways", "agents write about their own Node alone", func(ctx context.Context) error {
		return gatewaysOf("node-1").Patch(types.MergePatchType).Namespace("kube-system").Resource("gateways").Name(
			"node-2").Param("dryRun", metav1.DryRunAll).
			Body([]byte(`{"wireGuard":{"publicKey":"k"}}`)).Do(ctx).Error()
	})
	read := func() (g mcv1alpha1.Gateway) {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("multicluster.crd.antrea.io/v1alpha1")
		o.SetKind("Gateway")
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "node-1"}, o)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &g)
		}
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	for _, key := range []string{publickey.Key{1}.String(), publickey.Key{2}.String(), ""} {
		want := mcv1alpha1.WireGuardInfo{PublicKey: key}
		if key == (publickey.Key{2}).String() {
			want.NextPublicKey, want.NextPort = publickey.Key{3}.String(), 51822
		}
		p := &publisher[mcv1alpha1.WireGuardInfo]{
			text:  keyText,
			want:  func() (mcv1alpha1.WireGuardInfo, bool) { return want, true },
			patch: patchGateway(gatewaysOf("node-1")), log: slog.New(slog.DiscardHandler),
			get: func() (problem.Object, mcv1alpha1.WireGuardInfo, bool) {
				g := read()
				return gatewayKey(&g)
			}}
		if p.write(t.Context()) {
			t.Errorf("key %q is not written", key)
		}
		g := read()
		if have := g.WireGuard; (have == nil) != (key == "") || have != nil && *have != want || g.GatewayIP != "192.0.2.1" {
			t.Errorf("key %q is written, and the Gateway is %+v with %+v", key, g, have)
		}
	}
	for what, patch := range map[string]string{
		"address": `{"gatewayIP":"192.0.2.9"}`, "range": `{"serviceCIDR":"10.99.0.0/16"}`,
		"finalizer": `{"metadata":{"finalizers":["a.b/c"]}}`,
	} {
		err := gatewaysOf("node-1").Patch(types.MergePatchType).Namespace("kube-system").Resource("gateways").Name(
			"node-1").Body([]byte(patch)).Do(t.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), "agents write wireGuard alone") {
			t.Errorf("an agent writes the %s of its Gateway: %v", what, err)
		}
	}
	// The key between Nodes goes into the agent's own Node, and nothing else.
	for _, name := range []string{"key-1", "key-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"},
			Annotations: map[string]string{"kept": "yes"}}, Spec: corev1.NodeSpec{PodCIDR: "10.11.9.0/24"}}
		if err := c.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	nodesOf := func(node string) rest.Interface {
		config := rest.CopyConfig(as)
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
		api, err := newNodeClient(config)
		if err != nil {
			t.Fatal(err)
		}
		return api
	}
	refused("keys of other Nodes", "agents write about their own Node alone", func(ctx context.Context) error {
		return nodesOf("key-1").Patch(types.MergePatchType).Resource("nodes").Name("key-2").Param("dryRun", metav1.DryRunAll).
			Body([]byte(`{"metadata":{"annotations":{"` + nextNodeKey + `":"k"}}}`)).Do(ctx).Error()
	})
	for _, want := range []mcv1alpha1.WireGuardInfo{
		{PublicKey: publickey.Key{1}.String(), NextPort: 51823},
		{PublicKey: publickey.Key{1}.String(), NextPort: 51823, NextPublicKey: publickey.Key{2}.String()},
		{PublicKey: publickey.Key{2}.String(), NextPort: 51824}, {},
	} {
		var n corev1.Node
		read := func() mcv1alpha1.WireGuardInfo {
			n = corev1.Node{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "key-1"}, &n); err != nil {
				t.Fatal(err)
			}
			return nodeFactsOf(&n).announced()
		}
		p := &publisher[mcv1alpha1.WireGuardInfo]{
			text:  keyText,
			patch: patchNode(nodesOf("key-1")), log: slog.New(slog.DiscardHandler),
			want: func() (mcv1alpha1.WireGuardInfo, bool) { return want, true },
			get: func() (problem.Object, mcv1alpha1.WireGuardInfo, bool) {
				return problem.Object{Kind: "Node", Name: "key-1"}, read(), true
			}}
		if p.write(t.Context()) {
			t.Errorf("%+v is not written", want)
		}
		if have := read(); have != want || n.Annotations["kept"] != "yes" || want.PublicKey == "" && len(n.Annotations) != 1 {
			t.Errorf("%+v is written, and the Node has %v", want, n.Annotations)
		}
	}
	refused("networks of other Nodes", "agents write about their own Node alone", func(ctx context.Context) error {
		return patchNetworks(nodesOf("key-1"))(ctx, problem.Object{Kind: "Node", Name: "key-2"}, "192.0.2.1/24")
	})
	for _, want := range []string{"192.0.2.1/24", ""} {
		write := patchNetworks(nodesOf("key-1"))
		if err := write(t.Context(), problem.Object{Kind: "Node", Name: "key-1"}, want); err != nil {
			t.Fatal(err)
		}
		var n corev1.Node
		if err := c.Get(t.Context(), client.ObjectKey{Name: "key-1"}, &n); err != nil {
			t.Fatal(err)
		}
		if have := nodeFactsOf(&n).NetworksText; have != want || n.Annotations["kept"] != "yes" {
			t.Errorf("network %q is written, and the Node has %v", want, n.Annotations)
		}
	}
	for what, patch := range map[string]string{
		"label": `{"metadata":{"labels":{"zone":"b"}}}`, "spec": `{"spec":{"unschedulable":true}}`,
		"finalizer":        `{"metadata":{"finalizers":["a.b/c"]}}`,
		"other annotation": `{"metadata":{"annotations":{"kept":"no"}}}`,
		"new annotation":   `{"metadata":{"annotations":{"new":"x"}}}`,
		"lost annotation":  `{"metadata":{"annotations":{"kept":null}}}`,
		"wish for a key":   `{"metadata":{"annotations":{"` + nodeKeyNotBefore + `":"2026-01-31T12:00:00Z"}}}`,
	} {
		err := nodesOf("key-1").Patch(types.MergePatchType).Resource("nodes").Name("key-1").Body([]byte(patch)).Do(
			t.Context()).Error()
		if err == nil ||
			!strings.Contains(err.Error(), "agents write the annotations "+
				nodeKey+", "+nextNodeKey+", "+nextNodePort+" and "+transportNetworks+" alone") {
			t.Errorf("an agent writes a %s of its Node: %v", what, err)
		}
	}
	kubelets(t, admin, c, refused)
}

// agentAccess returns the agents' access to an API server: what the manifest allows.
func agentAccess(t *testing.T, admin *rest.Config) *rest.Config {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	var access [][]byte
	for _, document := range bytes.Split(manifest, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("  name: antrea-agent\n")) &&
			!bytes.Contains(document, []byte("kind: DaemonSet")) {
			access = append(access, document)
		}
	}
	return apiserver.Access(t, admin, bytes.Join(access, []byte("\n---\n")))
}

// kubelets lets kubelets write their Nodes. They may write everything except the annotation that makes a Node a
// Gateway.
func kubelets(t *testing.T, admin *rest.Config, c client.Client,
	refused func(what, text string, try func(ctx context.Context) error)) {
	t.Helper()
	if err := c.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubelets"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}}}); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:key-2",
		Groups: []string{"system:nodes", "system:authenticated"}}
	kubelet, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const denied = "a kubelet may not make its Node a Gateway"
	patch := func(ctx context.Context, by client.Client, annotations string) error {
		return by.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "key-2"}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`)))
	}
	refused("kubelets that make their Nodes Gateways", denied, func(ctx context.Context) error {
		err := patch(ctx, kubelet, `{"multicluster.antrea.io/gateway":"true"}`)
		if err == nil {
			return patch(ctx, c, `{"multicluster.antrea.io/gateway":null}`)
		}
		return err
	})
	if err := patch(t.Context(), c,
		`{"multicluster.antrea.io/gateway":"true","multicluster.antrea.io/gateway-ip":"192.0.2.1"}`); err != nil {
		t.Errorf("an administrator makes a Gateway: %v", err)
	}
	for _, annotations := range []string{`{"multicluster.antrea.io/gateway":null}`,
		`{"multicluster.antrea.io/gateway-ip":"192.0.2.9"}`, `{"multicluster.tombolo.io/wireguard-key-not-before":"x"}`,
		`null`} {
		if err := patch(t.Context(), kubelet, annotations); err == nil || !strings.Contains(err.Error(), denied) {
			t.Errorf("a kubelet writes the annotations %s: %v", annotations, err)
		}
		status := kubelet.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "key-2"}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`)))
		if status == nil || !strings.Contains(status.Error(), denied) {
			t.Errorf("a kubelet writes the annotations %s with its status: %v", annotations, status)
		}
	}
	if err := patch(t.Context(), kubelet, `{"node.alpha.kubernetes.io/ttl":"0"}`); err != nil {
		t.Errorf("a kubelet writes another annotation: %v", err)
	}
	if err := kubelet.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "key-2"}},
		client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))); err != nil {
		t.Errorf("a kubelet writes its status: %v", err)
	}
	fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "key-3",
		Annotations: map[string]string{"multicluster.antrea.io/gateway": "true"}}}
	if err := kubelet.Create(t.Context(), fresh); err == nil || !strings.Contains(err.Error(), denied) {
		t.Errorf("a kubelet registers a Gateway: %v", err)
	}
	if err := kubelet.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "key-3"}}); err != nil {
		t.Errorf("a kubelet registers: %v", err)
	}
}

func asUnstructured(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(tombolov1alpha1.GroupVersion.WithKind("NodePolicyReport"))
	o.SetName(name)
	return o
}

// reportsAt counts writes; while it is away it fails.
type reportsAt struct {
	mu      sync.Mutex
	have    *tombolov1alpha1.NodePolicyReport
	creates []time.Time
	patches []string
	gets    int
	away    bool
	uid     types.UID // of the Node
}

func (r *reportsAt) answer(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return apierrors.NewServiceUnavailable("away")
	}
	return f()
}

func (r *reportsAt) get(context.Context, string) (out *tombolov1alpha1.NodePolicyReport, _ error) {
	err := r.answer(func() error {
		r.gets++
		if r.have == nil {
			return apierrors.NewNotFound(schema.GroupResource{}, "node-1")
		}
		out = r.have.DeepCopy()
		return nil
	})
	return out, err
}

// sent returns the requests so far.
func (r *reportsAt) sent() (creates int, patches []string, gets int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.creates), slices.Clone(r.patches), r.gets
}

func (r *reportsAt) create(_ context.Context, n *tombolov1alpha1.NodePolicyReport) error {
	return r.answer(func() error {
		r.have, r.creates = n.DeepCopy(), append(r.creates, time.Now())
		return nil
	})
}

func (r *reportsAt) patch(_ context.Context, _ string, text []byte) error {
	return r.answer(func() error {
		r.patches = append(r.patches, string(text))
		return nil
	})
}

func (r *reportsAt) nodeUID(context.Context, string) (types.UID, error) { return r.nodeOf(), nil }

func (r *reportsAt) nodeOf() types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid
}

// set changes the state of the API server.
func (r *reportsAt) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// TestReportOfNewNode deletes the Node and registers it again. Its report is made again as soon as the old one has been
// collected.
func TestReportOfNewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reportsAt{uid: "1"}
		look := func(context.Context) (reported, error) {
			return reported{Policies: map[string]string{"acnp/a": "1/x"}}, nil
		}
		r := newReporter("node-1", api, look, func() int { return 1 }, api.nodeOf, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.run(ctx)
		for i, collected := range []bool{true, false} { // before the agent looks, or later
			time.Sleep(time.Minute)
			api.set(func() {
				api.uid += "1"
				if collected {
					api.have = nil
				}
			})
			r.changed()
			time.Sleep(5 * time.Second)
			api.set(func() {
				if !collected {
					api.have = nil
				}
			})
			time.Sleep(10 * time.Second)
			synctest.Wait()
			api.set(func() {
				if len(api.creates) != i+2 || api.have == nil || len(api.have.OwnerReferences) != 1 ||
					api.have.OwnerReferences[0].UID != api.uid {
					t.Errorf("report %+v after %d creations", api.have, len(api.creates))
				}
			})
		}
		_, _, before := api.sent()
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, patches, gets := api.sent(); gets-before > 6 || len(patches) > 0 {
			t.Errorf("a quiet hour: %d reads, patches %v", gets-before, patches)
		}
	})
}

// TestNewNodeWakesReporter replaces the Node's object. The agent compares its report then.
func TestNewNodeWakesReporter(t *testing.T) {
	a, err := newAgent(Options{
		Config: config.Default(), NodeName: "node-1", REST: &rest.Config{Host: "https://192.0.2.1"}, Namespace: "kube-system",
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.tables.kinds.Loaded()
	a.tables.loaded()
	n := testNode("node-1", "192.168.78.101", "10.11.0.0/24")
	for _, uid := range []types.UID{"1", "2"} {
		select {
		case <-a.api.reports.wake:
		default:
		}
		n.UID = uid
		a.tables.kinds.Set(n)
		a.tables.engine.Pass()
		if len(a.api.reports.wake) != 1 || a.uid() != uid {
			t.Errorf("UID %s: it looks %d times, and knows %s", uid, len(a.api.reports.wake), a.uid())
		}
	}
}

// TestReportRate changes policies all the time in a cluster of 1,000 Nodes. A Node writes at most every ten seconds,
// and sends only the difference. Without a change it writes nothing. If a write fails, it is repeated later.
func TestReportRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reportsAt{}
		var mu sync.Mutex
		now := map[string]string{}
		look := func(context.Context) (reported, error) {
			mu.Lock()
			defer mu.Unlock()
			return reported{Policies: maps.Clone(now)}, nil
		}
		r := newReporter("node-1", api, look, func() int { return 1000 }, api.nodeOf, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.run(ctx)
		}()
		set := func(key, value string) {
			mu.Lock()
			now[key] = value
			mu.Unlock()
			r.changed()
		}
		set("acnp/a", "1/x")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if creates, _, _ := api.sent(); creates != 1 {
			t.Fatalf("%d reports were made", creates)
		}
		for i := range 1000 {
			set("acnp/a", string(rune('a'+i%26)))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		_, patches, _ := api.sent()
		if n := len(patches); n < 3 || n > 10 {
			t.Errorf("%d writes in 100 seconds", n)
		}
		time.Sleep(time.Minute)
		_, patches, _ = api.sent()
		written := len(patches)
		set("acnp/b", "7/y")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		_, patches, before := api.sent()
		if text := patches[len(patches)-1]; len(patches) != written+1 || text != `{"policies":{"acnp/b":"7/y"}}` {
			t.Errorf("%d writes for one change, the last %s", len(patches)-written, text)
		}
		written = len(patches)
		api.mu.Lock()
		api.have = &tombolov1alpha1.NodePolicyReport{Policies: maps.Clone(now)}
		api.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		_, patches, gets := api.sent()
		if len(patches) != written || gets-before > 6 {
			t.Errorf("a quiet hour: %d writes, %d reads", len(patches)-written, gets-before)
		}
		api.mu.Lock()
		api.away = true
		api.mu.Unlock()
		set("acnp/c", "1/z")
		time.Sleep(5 * time.Minute)
		api.mu.Lock()
		api.away = false
		api.mu.Unlock()
		time.Sleep(reportMost + 20*time.Second)
		synctest.Wait()
		_, patches, _ = api.sent()
		if text := patches[len(patches)-1]; len(patches) != written+1 || text != `{"policies":{"acnp/c":"1/z"}}` {
			t.Errorf("after the API server was away: %d writes, the last %s", len(patches)-written, text)
		}
		stop()
		<-ended
	})
}

// networkReports has agents write NodeNetworkReports: the report of their own Node, with claims that stay over a
// restart, and no other one.
func networkReports(t *testing.T, admin client.Client, on func(node string) reportAPI) {
	t.Helper()
	r := newNetworkRig(t)
	node := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, node); err != nil {
		t.Fatal(err)
	}
	api := func(of string) nodeNetworkClient { return nodeNetworkClient{on("node-1").(*reportClient), of} }
	r.p.api, r.p.uid = api("node-1"), func() types.UID { return node.UID }
	read := func() string {
		t.Helper()
		have, err := r.p.api.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.stored.have = have
		return r.report()
	}
	r.pod("web", "a/blue")
	if have := read(); have != "a/blue 1 []" {
		t.Errorf("the API server has the report %s", have)
	}
	r.grant()
	if have := r.add("web"); have != "[10.50.0.2/24]" {
		t.Errorf("the Pod gets %s", have)
	}
	r.settle()
	if have := read(); have != "a/blue 1 [] 10.50.0.2 web uid-web" {
		t.Errorf("the API server has the report %s", have)
	}
	claim := r.claim()
	r.p.claims, r.p.written = nil, nil // as another process
	r.settle()
	if r.claim() != claim || claim == "" {
		t.Errorf("another process has the claim %q, want %q", r.claim(), claim)
	}
	for name, err := range map[string]error{
		"create": api("node-2").create(t.Context(),
			&tombolov1alpha1.NodeNetworkReport{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}),
		"no Node": nodeNetworkClient{on("").(*reportClient), "node-1"}.patch(t.Context(), []byte(`{"spec":{}}`)),
	} {
		if err == nil || !strings.Contains(err.Error(), "is not the Node of the agent that writes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// podStatuses writes the annotation of Pods as the agent of node-1. Nothing else of a Pod is written, and no Pod of
// another Node.
func podStatuses(t *testing.T, admin client.Client, on func(node string) reportAPI,
	refused func(what, text string, try func(context.Context) error),
) {
	t.Helper()
	for name, node := range map[string]string{"own": "node-1", "other": "node-2", "unscheduled": ""} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{"kept": "yes"}}}
		p.Spec.NodeName, p.Spec.Containers = node, []corev1.Container{{Name: "c", Image: "i"}}
		p.Spec.AutomountServiceAccountToken = new(false)
		if err := admin.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = admin.Delete(context.WithoutCancel(t.Context()), p, client.GracePeriodSeconds(0))
		})
	}
	write := func(ctx context.Context, node, pod, merge string) error {
		return on(node).(*reportClient).patchPodStatus(ctx, derive.Object{Namespace: "default", Name: pod}, []byte(merge))
	}
	annotation := func(key, value string) string {
		return fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, key, value)
	}
	status := annotation(annotationStatus, `"[]"`)
	refused("the status of Pods of other Nodes", "agents write about Pods of their own Node alone",
		func(ctx context.Context) error { return write(ctx, "node-1", "other", status) })
	for what, try := range map[string]error{
		"without a Node":            write(t.Context(), "", "own", status),
		"of a Pod without a Node":   write(t.Context(), "node-1", "unscheduled", status),
		"without both":              write(t.Context(), "", "unscheduled", status),
		"with another annotation":   write(t.Context(), "node-1", "own", annotation("other", `"x"`)),
		"without the annotation":    write(t.Context(), "node-1", "own", annotation("kept", "null")),
		"with another value":        write(t.Context(), "node-1", "own", annotation("kept", `"no"`)),
		"with a label":              write(t.Context(), "node-1", "own", `{"metadata": {"labels": {"a": "c"}}}`),
		"with an address":           write(t.Context(), "node-1", "own", `{"status": {"podIP": "10.9.9.9"}}`),
		"with a finalizer":          write(t.Context(), "node-1", "own", `{"metadata": {"finalizers": ["a.b/c"]}}`),
		"of another Pod of the UID": write(t.Context(), "node-1", "own", `{"metadata": {"uid": "x"}}`),
	} {
		if try == nil {
			t.Errorf("an agent writes the status of a Pod %s", what)
		}
	}
	for _, value := range []string{`"[]"`, "null"} {
		if err := write(t.Context(), "node-1", "own", annotation(annotationStatus, value)); err != nil {
			t.Errorf("the agent of the Node may not write %s: %v", value, err)
		}
		p := &corev1.Pod{}
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "own"}, p)
		if have, there := p.Annotations[annotationStatus]; err != nil || there != (value != "null") ||
			there && strconv.Quote(have) != value || p.Annotations["kept"] != "yes" || p.Labels["a"] != "b" {
			t.Errorf("with %s the Pod has %v: %v", value, p.Annotations, err)
		}
	}
}

// latencyReports writes the results of probes as the agent of node-1.
func latencyReports(t *testing.T, admin client.Client, as *rest.Config, node *corev1.Node) {
	t.Helper()
	config := rest.CopyConfig(as)
	config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}}
	var results []api.ProbedNode
	w, err := newLatencies(Options{NodeName: "node-1", REST: config}, func() []api.ProbedNode { return results },
		func() types.UID { return node.UID }, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Unix(1_790_000_000, 0)
	results = []api.ProbedNode{
		{Node: "node-2", To: "10.10.1.1", LastSent: sent, LastReceived: sent, ProbeResult: api.ProbeResult{Samples: 1,
			LastSeconds: .002}},
		{Node: "node-2", To: "fd10::1", LastSent: sent},
		{Node: "node-3", To: "10.10.2.1"},
	}
	read := func(want int) statsv1alpha1.NodeLatencyStats {
		t.Helper()
		var have statsv1alpha1.NodeLatencyStats
		ovstest.Eventually(t, "the results are written", func() error {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(statsv1alpha1.GroupVersion.WithKind("NodeLatencyStats"))
			if err := admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, o); err != nil {
				return err
			}
			have = statsv1alpha1.NodeLatencyStats{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &have); err != nil {
				return err
			}
			if n := len(have.PeerNodeLatencyStats); n != want {
				return fmt.Errorf("%d Nodes, want %d", n, want)
			}
			return nil
		})
		return have
	}
	write := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		w.Run(ctx)
	}
	write()
	first := read(2).PeerNodeLatencyStats[0]
	if to := first.TargetIPLatencyStats; first.NodeName != "node-2" || len(to) != 2 || to[0].TargetIP != "10.10.1.1" ||
		to[0].LastMeasuredRTTNanoseconds != 2_000_000 || !to[0].LastRecvTime.Time.Equal(sent) ||
		to[1].LastRecvTime != nil || !to[1].LastSendTime.Time.Equal(sent) {
		t.Errorf("the API server has %+v", first)
	}
	results = nil
	write()
	if have := read(0); len(have.OwnerReferences) != 1 {
		t.Errorf("the object has no owner: %+v", have.ObjectMeta)
	}
}

package hostile

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/test/apiserver"
	testports "github.com/tombolo-net/tombolo/test/ports"
)

const (
	area       = "antrea-multicluster"
	clusterSet = "set"
	leaderID   = "north"
	manifests  = "../../deploy/multicluster/antrea-multicluster-"

	// arrival is how long an honest change may take from one member's cluster to the other's. It takes about a
	// second on an idle machine.
	arrival = time.Minute
)

// world is a leader and two honest members, each with its own API server, honest members without clusters, and the
// accounts of hostile members.
type world struct {
	t       *testing.T
	leader  cluster
	honest  []*honest
	plain   []*plain
	hostile []*account
	slowest time.Duration // of the honest changes
}

// cluster is an API server and an administrator's clients to it.
type cluster struct {
	name    string
	config  *rest.Config
	client  client.Client
	dynamic dynamic.Interface
}

// honest is a member that keeps to the rules. Its controller runs.
type honest struct {
	cluster
	id          string
	serviceCIDR string
	podCIDR     string
	nodeIPs     []string // the Gateway's address alternates between them
}

// account is what a hostile member acts with.
type account struct {
	name string // of the ServiceAccount
	id   string // its cluster ID
	api  dynamic.Interface
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := leader.Scheme()
	if err := errors.Join(err, mcsv1alpha1.Install(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func newCluster(t *testing.T, name, serviceCIDR string) cluster {
	t.Helper()
	c := cluster{name: name,
		config: apiserver.New(t, apiserver.Options{CRDs: []string{"../../deploy/crds"}, ServiceCIDR: serviceCIDR}).Config}
	var errs [2]error
	c.client, errs[0] = client.New(c.config, client.Options{Scheme: scheme(t)})
	c.dynamic, errs[1] = dynamic.NewForConfig(c.config)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return c
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	slog.SetDefault(slog.New(slog.DiscardHandler))
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	w := &world{t: t, leader: newCluster(t, "leader", "10.96.0.0/16")}
	w.startLeader()
	for _, h := range []*honest{
		{id: "east", serviceCIDR: "10.97.0.0/16", podCIDR: "10.20.0.0/16",
			nodeIPs: []string{"192.168.77.101", "192.168.77.102"}},
		{id: "west", serviceCIDR: "10.98.0.0/16", podCIDR: "10.30.0.0/16",
			nodeIPs: []string{"192.168.78.101", "192.168.78.102"}},
	} {
		h.cluster = newCluster(t, h.id, h.serviceCIDR)
		w.honest = append(w.honest, h)
		w.startHonest(h)
	}
	w.startPlain()
	// One account is bound by the administrator to an ID that sorts before all others, the other by its announcement.
	w.hostile = []*account{w.account("member-aaa", "aaa", true), w.account("member-mallory", "mallory", false)}
	return w
}

func (w *world) create(c cluster, objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := c.client.Create(w.t.Context(), o); err != nil {
			w.t.Fatalf("create %T %s in %s: %v", o, o.GetName(), c.name, err)
		}
	}
}

// update reads an object, changes and writes it, again after a conflict.
func (w *world) update(c cluster, o client.Object, change func()) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("update %T %s in %s", o, o.GetName(), c.name), 30*time.Second,
		func(ctx context.Context) error {
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			change()
			return c.client.Update(ctx, o)
		})
}

func (w *world) eventually(what string, limit time.Duration, check func(context.Context) error) {
	w.t.Helper()
	if err := eventually(w.t.Context(), limit, check); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func eventually(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		if err := check(ctx); err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("after %s still: %w", limit, errors.Join(last, ctx.Err()))
	}
	return nil
}

// run starts a manager until the test ends.
func (w *world) run(mgr ctrl.Manager) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// startLeader installs the leader's manifest, and runs controller and webhooks as its ServiceAccount.
func (w *world) startLeader() {
	t := w.t
	t.Helper()
	path := manifests + "leader-namespaced.yml"
	hooks := envtest.WebhookInstallOptions{Paths: []string{path},
		LocalServingHost: "127.0.0.1", LocalServingPort: testports.Free(t)}
	if err := hooks.Install(w.leader.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(hooks.LocalServingCertDir) })
	w.create(w.leader, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: area}})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), o); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "" && !strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			w.create(w.leader, o)
		}
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(hooks.LocalServingCertDir, "tls.crt"),
		filepath.Join(hooks.LocalServingCertDir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(apiserver.Access(t, w.leader.config, text), ctrl.Options{
		Scheme: scheme(t), Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort,
			TLSOpts: []func(*tls.Config){
				func(c *tls.Config) { // without a watch of the file, of which a machine has few
					c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
				},
			}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(webhook.SetupWithManager(mgr, scheme(t), webhook.Leader, area),
		leader.SetupWithManager(mgr, config.Default(), area)); err != nil {
		t.Fatal(err)
	}
	w.run(mgr)
	w.eventually("the webhooks are served", 30*time.Second,
		func(context.Context) error { return mgr.GetWebhookServer().StartedChecker()(nil) })
	meta := metav1.ObjectMeta{Namespace: area, Name: clusterSet, Annotations: pins()}
	w.create(w.leader, &mcv1alpha2.ClusterSet{ObjectMeta: meta, Spec: mcv1alpha2.ClusterSetSpec{
		ClusterID: leaderID, Namespace: area, Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: leaderID}}}})
}

// granted lets the honest member that announces no ranges have its endpoints all the same.
func granted() map[string]string {
	return map[string]string{multicluster.AnnotationEndpointsPrefix + south: "10.95.0.0/16"}
}

// pins reserve the honest members' gateways for them. Without, a member that moves its Gateway to an address it had
// before may find that another member has it: the first to announce it has it.
func pins() map[string]string {
	out := granted()
	out[multicluster.AnnotationGatewaysPrefix+"east"],
		out[multicluster.AnnotationGatewaysPrefix+"west"] = "192.168.77.0/24", "192.168.78.0/24"
	return out
}

// pin reserves the honest members' gateways, or not.
func (w *world) pin(r *rules, on bool) {
	w.t.Helper()
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: clusterSet}}
	w.update(w.leader, set, func() {
		set.Annotations = granted()
		if on {
			set.Annotations = pins()
		}
	})
	expected := r.before.objects["leader clustersets "+area+"/"+clusterSet]
	annotations := granted()
	if on {
		annotations = pins()
	}
	_ = unstructured.SetNestedStringMap(expected, annotations, "metadata", "annotations")
}

// account makes a ServiceAccount with the members' Role.
func (w *world) account(name, id string, bound bool) *account {
	t := w.t
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: name}}
	if bound {
		sa.Annotations = map[string]string{multicluster.AnnotationClusterID: id}
	}
	w.create(w.leader, sa, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"namespace": area, "name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": multicluster.MemberRole},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": area}},
	}})
	own := rest.AnonymousClientConfig(w.leader.config)
	own.BearerToken, own.QPS = w.token(sa), -1
	api, err := dynamic.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	return &account{name: name, id: id, api: api}
}

func (w *world) token(sa *corev1.ServiceAccount) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if err := w.leader.client.SubResource("token").Create(w.t.Context(), sa, request); err != nil {
		w.t.Fatal(err)
	}
	return request.Status.Token
}

// startHonest lets a member join that has a Gateway and exports Services.
func (w *world) startHonest(h *honest) {
	t := w.t
	t.Helper()
	a := w.account("member-"+h.id, h.id, h.id == "east")
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: a.name}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{
		multicluster.AnnotationGateway: "true", multicluster.AnnotationGatewayIP: h.nodeIPs[0]}}}
	w.create(h.cluster, node)
	w.eventually("status of the Node", 30*time.Second, func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.nodeIPs[0]}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return h.client.Status().Update(ctx, node)
	})
	w.create(h.cluster,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "token"}, Data: map[string][]byte{
			"ca.crt": w.leader.config.CAData, "token": []byte(w.token(sa))}},
		&mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: clusterSet},
			Spec: mcv1alpha2.ClusterSetSpec{
				ClusterID: h.id, Namespace: area,
				Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: leaderID, Server: w.leader.config.Host, Secret: "token"}}}},
		// Users' objects with the names of imports.
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: multicluster.ImportedPrefix + "mine"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		&mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mine"},
			Spec: mcsv1alpha1.ServiceImportSpec{
				Type: mcsv1alpha1.ClusterSetIP, IPs: []string{"10.0.0.1"},
				Ports: []mcsv1alpha1.ServicePort{{Port: 1, Protocol: corev1.ProtocolTCP}}}},
	)
	for _, name := range []string{"web", "only-" + h.id, "quiet-" + h.id, "marker-" + h.id} {
		w.export(h, name, 80)
	}
	text, err := os.ReadFile(manifests + "member.yml")
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(apiserver.Access(t, h.config, text), ctrl.Options{
		Scheme: member.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.PodCIDRs = []string{h.podCIDR}
	cfg.EnableStretchedNetworkPolicy = true
	if err := member.SetupWithManager(mgr, cfg, "kube-system"); err != nil {
		t.Fatal(err)
	}
	w.run(mgr)
}

// export makes a Service with one endpoint, and exports it.
func (w *world) export(h *honest, name string, port int32) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	ready, number, protocol, portName := true, port, corev1.ProtocolTCP, "http"
	w.create(h.cluster,
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: port}}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-1",
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{strings.Replace(h.podCIDR, "0.0/16", "1.2", 1)},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &number, Protocol: &protocol}},
		},
		&mcsv1alpha1.ServiceExport{ObjectMeta: meta})
}

// unexport deletes a Service, its endpoints and its export.
func (w *world) unexport(h *honest, name string) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	for _, o := range []client.Object{&mcsv1alpha1.ServiceExport{ObjectMeta: meta}, &corev1.Service{ObjectMeta: meta},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-1"}}} {
		if err := h.client.Delete(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// imported names the fault with a member's import of Service default/<name>, which is to have this port and one address
// of a range.
func imported(ctx context.Context, h *honest, name string, port int32, within string) error {
	key := client.ObjectKey{Namespace: "default", Name: multicluster.ImportedPrefix + name}
	service, si := &corev1.Service{}, &mcsv1alpha1.ServiceImport{}
	endpoints := &corev1.Endpoints{} //nolint:staticcheck // what imports are made of
	if err := errors.Join(h.client.Get(ctx, key, service), h.client.Get(ctx, key, endpoints),
		h.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, si)); err != nil {
		return fmt.Errorf("%s imports %s: %w", h.id, name, err)
	}
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != port || len(si.Spec.Ports) != 1 ||
		si.Spec.Ports[0].Port != port {
		return fmt.Errorf("%s imports %s with ports %v, want %d", h.id, name, service.Spec.Ports, port)
	}
	prefix := strings.TrimSuffix(within, "0.0/16")
	for _, s := range endpoints.Subsets {
		for _, a := range s.Addresses {
			if strings.HasPrefix(a.IP, prefix) && len(s.Ports) == 1 && s.Ports[0].Port == port {
				return nil
			}
		}
	}
	text, _ := json.Marshal(endpoints.Subsets)
	return fmt.Errorf("%s imports %s with endpoints %s, want one of %s with port %d", h.id, name, text, within, port)
}

// beat makes honest changes in both members and waits until they have arrived in the other. By then the leader has
// seen everything that was written before them. It is the n-th.
func (w *world) beat(n int) error {
	w.t.Helper()
	port := int32(8000 + n)
	for _, h := range w.honest {
		marker := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "marker-" + h.id}}
		w.update(h.cluster, marker, func() { marker.Spec.Ports[0].Port = port })
		w.export(h, fmt.Sprintf("beat-%s-%d", h.id, n), 80)
		if n > 0 {
			w.unexport(h, fmt.Sprintf("beat-%s-%d", h.id, n-1))
		}
		if n%3 == 0 {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
			w.update(h.cluster, node, func() { node.Annotations[multicluster.AnnotationGatewayIP] = h.gatewayIP(n) })
		}
	}
	if n%3 == 1 {
		w.announceAgain(n)
	}
	started := time.Now()
	err := eventually(w.t.Context(), arrival, func(ctx context.Context) error {
		for i, h := range w.honest {
			other := w.honest[1-i]
			if err := errors.Join(
				imported(ctx, h, "marker-"+other.id, port, other.serviceCIDR),
				imported(ctx, h, fmt.Sprintf("beat-%s-%d", other.id, n), 80, other.serviceCIDR)); err != nil {
				return err
			}
			info := &mcv1alpha1.ClusterInfoImport{}
			if err := h.client.Get(ctx,
				client.ObjectKey{Namespace: "kube-system", Name: other.id + multicluster.ClusterInfoSuffix}, info); err != nil {
				return err
			}
			if want := other.gatewayIP(n); len(info.Spec.GatewayInfos) != 1 || info.Spec.GatewayInfos[0].GatewayIP != want {
				return fmt.Errorf("%s has gateways %v of %s, want %s", h.id, info.Spec.GatewayInfos, other.id, want)
			}
			if err := w.plainArrived(ctx, h, n); err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			gone := fmt.Sprintf("beat-%s-%d", other.id, n-1)
			err := h.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: gone}, &mcsv1alpha1.ServiceImport{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s still imports %s, which is no longer exported: %w", h.id, gone, err)
			}
		}
		return nil
	})
	w.slowest = max(w.slowest, time.Since(started))
	if err != nil {
		return fmt.Errorf("an honest change does not arrive: %w", err)
	}
	return nil
}

// gatewayIP is what a member announces since the n-th beat.
func (h *honest) gatewayIP(n int) string { return h.nodeIPs[n/3%2] }

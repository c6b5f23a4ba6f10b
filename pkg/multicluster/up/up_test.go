package up

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// definitions is the folder of the kinds that a set-up makes.
const definitions = "../../../deploy/crds"

// world is two clusters: real API servers, without Nodes that run anything.
type world struct {
	t        *testing.T
	clusters []Cluster
	clients  []client.Client

	mu    sync.Mutex
	lines []string
}

// newWorld starts the clusters, with definitions from these folders.
func newWorld(t *testing.T, crds ...string) *world {
	w := &world{t: t}
	scheme := Scheme()
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	for _, c := range []struct{ id, services string }{{"north", "10.0.0.0/24"}, {"east", "10.96.0.0/24"}} {
		config := apiserver.New(t, apiserver.Options{ServiceCIDR: c.services, CRDs: crds}).Config
		k, err := client.New(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		w.clusters = append(w.clusters, Cluster{ID: c.id, Config: config})
		w.clients = append(w.clients, k)
	}
	return w
}

func (w *world) options() Options {
	return Options{ClusterSet: "set", LeaderServer: "https://192.0.2.1:6443", Limit: 3 * time.Second, Version: "v1",
		SkipRegistryCheck: true, Registry: "registry.example/net",
		Report: w.report}
}

func (w *world) report(cluster, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, cluster+": "+line)
}

func (w *world) node(at int, n corev1.Node) {
	w.t.Helper()
	status := n.Status
	if err := w.clients[at].Create(w.t.Context(), &n); err != nil {
		w.t.Fatal(err)
	}
	n.Status = status
	if err := w.clients[at].Status().Update(w.t.Context(), &n); err != nil {
		w.t.Fatal(err)
	}
}

// create creates an object, as soon as the API server serves its kind: a new definition takes a moment.
func (w *world) create(at int, o client.Object) {
	w.t.Helper()
	err := w.clients[at].Create(w.t.Context(), o)
	for deadline := time.Now().Add(time.Minute); meta.IsNoMatchError(err) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		err = w.clients[at].Create(w.t.Context(), o)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(at int, o client.Object) {
	w.t.Helper()
	if err := w.clients[at].Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// refused fails unless a plan is refused with all texts, and nothing was made in the clusters.
func (w *world) refused(name string, clusters []Cluster, o Options, texts ...string) {
	w.t.Helper()
	err := Run(w.t.Context(), clusters, o)
	if err == nil {
		w.t.Fatalf("%s: it was not refused", name)
	}
	for _, text := range append(texts, "nothing was changed") {
		if !strings.Contains(err.Error(), text) {
			w.t.Errorf("%s: error %q, want %q in it", name, err, text)
		}
	}
	w.nothing(name)
}

// nothing fails if a set-up has left an object of any kind in a cluster.
func (w *world) nothing(name string) {
	w.t.Helper()
	r, err := open(w.clusters, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range r.sites {
		all, err := s.installed(w.t.Context(), true)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, i := range all {
			if i.object.GetDeletionTimestamp() == nil { // Namespaces have no controller that lets them go
				w.t.Errorf("%s: cluster %s has %s %s left", name, s.ID, i.object.GetKind(), i.object.GetName())
			}
		}
	}
}

func node(name string, ranges ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR = ranges[0]
	}
	return n
}

func daemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}}}
}

// TestRun: faults of all clusters are reported at once, before any object is made. A set-up that fails later removes
// what it made. A plan changes nothing.
func TestRun(t *testing.T) {
	w := newWorld(t)
	o := w.options()

	if err := Down(t.Context(), w.clusters, DownOptions{ClusterSet: "set"}); err != nil {
		t.Errorf("clusters without definitions: %v", err)
	}
	gone := w.clusters[1]
	gone.Config = &rest.Config{Host: "https://127.0.0.1:1"}
	w.refused("faults of two clusters", []Cluster{w.clusters[0], gone}, o, "cluster north: it has no Nodes",
		"cluster east: its API server https://127.0.0.1:1 does not answer", "correct the context")

	w.node(0, node("north-1", "10.10.0.0/24"))
	w.node(1, node("east-1"))
	w.refused("no Pod range", w.clusters, o, "cluster east: spec.podCIDRs of Node east-1 is empty")
	w.remove(1, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "east-1"}})

	isReady := node("east-1", "10.10.0.0/24")
	isReady.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.node(1, isReady)
	w.refused("Ready without agents", w.clusters, o, "Node east-1 is Ready without Tombolo, so it has another CNI plugin")
	w.remove(1, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "east-1"}})
	w.node(1, node("east-1", "10.10.0.0/24"))
	w.node(1, node("east-2", "10.20.0.0/24"))

	w.create(1, daemonSet("cilium"))
	w.refused("another plugin", w.clusters, o, "cluster east: it has another CNI plugin, DaemonSet kube-system/cilium")
	w.remove(1, daemonSet("cilium"))

	local := o
	local.LeaderServer = "https://localhost:6443"
	w.refused("a leader at loopback", w.clusters, local, "which is this machine's own address", "--leader-apiserver")

	second := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/25"}}}
	w.create(1, second)
	w.refused("Service ranges that meet", w.clusters, o,
		"the Service ranges 10.0.0.0/24 of north and 10.0.0.0/25 of east meet")
	w.remove(1, second)

	same := []Cluster{w.clusters[0], w.clusters[1]}
	same[1].ID = "north"
	w.refused("one ID twice", same, o, "two clusters have the ID north")
	same[1].ID = "north-1"
	w.refused("IDs that conflict", same, o, "the cluster IDs north and north-1 conflict")
	same[1] = Cluster{ID: "west", Config: w.clusters[0].Config}
	w.refused("one cluster twice", same, o, "north and west are one cluster")
	same[1].Config = rest.CopyConfig(same[1].Config)
	same[1].Config.Host = strings.Replace(same[1].Config.Host, "127.0.0.1", "localhost", 1)
	same[1].Config.ServerName = "kubernetes"
	w.refused("one cluster by two URLs", same, o, "north and west are one cluster", same[0].Config.Host+" and "+
		same[1].Config.Host)

	wrong := []Cluster{w.clusters[0], w.clusters[1]}
	wrong[1].AgentValues = map[string]any{"tunnelTyp": "geneve"}
	wrong[1].Gateways = []string{"east-9"}
	w.refused("an unknown Node", wrong, o, "there is no Node east-9 to be a Gateway")
	wrong[1].Gateways = nil
	w.refused("an unknown value", wrong, o, "cluster east: values of chart tombolo", "tunnelTyp", "correct --values")
	wrong[1].AgentValues = map[string]any{"multicluster": map[string]any{"enablePodToPodConnectivity": true}}
	wrong[0].AgentValues = wrong[1].AgentValues
	w.refused("Pod ranges that meet", wrong, o, "the Pod ranges 10.10.0.0/24 of north and 10.10.0.0/24 of east meet")

	nameless := o
	nameless.Registry = ""
	w.refused("no registry", w.clusters, nameless, "images.registry", "give --image-registry")

	port, tcp := int32(6443), corev1.ProtocolTCP
	w.create(0, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes",
		Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Port: &port, Protocol: &tcp}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}})
	plan, err := Plan(t.Context(), w.clusters, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"north: leader of ClusterSet set in Namespace antrea-multicluster",
		"east: join ClusterSet set at https://192.0.2.1:6443", "east: Gateway on Node east-1", "east: Gateway on Node east-2",
		"north: Gateway on Node north-1"} {
		if !slices.Contains(plan, line) {
			t.Errorf("the plan lacks %q:\n%s", line, strings.Join(plan, "\n"))
		}
	}
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "no kube-proxy: kubeAPIServerOverride is https://192.0.2.1:6443") {
		t.Errorf("the plan says nothing about kube-proxy:\n%s", text)
	}
	w.nothing("a plan")

	// Another set-up of a leader that is the central cluster keeps it so.
	w.create(0, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "antrea-multicluster"}})
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "antrea-multicluster",
		Name: "antrea-mc-controller-config"}, Data: map[string]string{"controller_manager_config.yaml": "central: true"}}
	for _, central := range []bool{false, true} {
		if central {
			w.create(0, config)
		}
		plan, err := Plan(t.Context(), w.clusters, o)
		if have := strings.Contains(strings.Join(plan, "\n"), "it stays the central cluster"); err != nil || have != central {
			t.Errorf("central is %t, and the plan of another set-up is %q: %v", central, plan, err)
		}
	}
	w.remove(0, config)

	// An object of another installation is left as it is: here a DaemonSet that no controller runs.
	w.create(0, daemonSet("tombolo-agent"))
	err = Run(t.Context(), w.clusters, o)
	waits := regexp.MustCompile(`cluster (east: after 3s it still waits for: .*tombolo-agent on 0 of 0 Nodes` +
		`|north: after 3s it still waits for: .*kube-system/antrea-mc-controller)`)
	if err == nil || !waits.MatchString(err.Error()) {
		t.Errorf("no controller runs anything, and the set-up fails with %v", err)
	}
	w.nothing("a set-up that failed")
	var other appsv1.DaemonSet
	if err := w.clients[0].Get(t.Context(), client.ObjectKeyFromObject(daemonSet("tombolo-agent")), &other); err != nil ||
		other.Spec.Template.Spec.Containers[0].Image != "image" {
		t.Errorf("the DaemonSet of another installation is %v: %v", other.Spec.Template.Spec.Containers, err)
	}
	if text := strings.Join(w.lines, "\n"); !strings.Contains(text, "north: agent: installed already by other means") ||
		!strings.Contains(text, "objects deleted again") {
		t.Errorf("it reports:\n%s", text)
	}

	// The definitions that stay do not stand in the way of another attempt, and other ClusterSets do.
	w.create(1, &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "older"},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "east", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "x"}}}})
	w.refused("another ClusterSet", w.clusters, o, "cluster east: it is in ClusterSet kube-system/older already",
		"`tombolo mc leave` first, or give --clusterset older")
}

// TestLacks: a DaemonSet runs when all of its Pods are ready and of its newest version, unless Pods are replaced on
// deletion.
func TestLacks(t *testing.T) {
	for _, row := range []struct {
		name     string
		onDelete bool
		seen     int64 // of generation 2
		status   appsv1.DaemonSetStatus
		want     string
	}{
		{"all", false, 2, appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3, UpdatedNumberScheduled: 3}, ""},
		{"not seen yet", false, 1, appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3,
			UpdatedNumberScheduled: 3}, "x on 3 of 3 Nodes"},
		{"no Nodes", false, 2, appsv1.DaemonSetStatus{}, "x on 0 of 0 Nodes"},
		{"earlier Pods", false, 2, appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3,
			UpdatedNumberScheduled: 1}, "x on 1 of 3 Nodes"},
		{"earlier Pods that stay", true, 2, appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3,
			UpdatedNumberScheduled: 1}, ""},
		{"a Pod that is not ready", true, 2, appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 2,
			UpdatedNumberScheduled: 3}, "x on 2 of 3 Nodes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := daemonSet("x")
			d.Generation, d.Status = 2, row.status
			d.Status.ObservedGeneration = row.seen
			if row.onDelete {
				d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			}
			if have := lacks(d); have != row.want {
				t.Errorf("have %q, want %q", have, row.want)
			}
		})
	}
}

// TestRegistry: a registry has to answer to the API of registries.
func TestRegistry(t *testing.T) {
	answers := http.StatusUnauthorized
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(answers)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	check := func(registry string) error {
		return (&run{Options: Options{Registry: registry}, client: server.Client()}).checkRegistry(t.Context())
	}
	if err := check(host + "/net"); err != nil {
		t.Error(err)
	}
	answers = http.StatusNotFound
	if err := check(host + "/net"); err == nil || !strings.Contains(err.Error(), "so it is no registry") {
		t.Errorf("a server of something else: %v", err)
	}
	if err := check("127.0.0.1:1/net"); err == nil || !strings.Contains(err.Error(), "does not answer") ||
		!strings.Contains(err.Error(), "--skip-registry-check") {
		t.Errorf("no server: %v", err)
	}
}

// TestIDOf: names of contexts and files become cluster IDs.
func TestIDOf(t *testing.T) {
	for name, want := range map[string]string{"west": "west", "kind-West": "kind-west", "-x-": "x",
		"admin@east.example":                 "admin-east.example",
		"arn:aws:eks:eu-1:1234:cluster/shop": "arn-aws-eks-eu-1-1234-cluster-shop",
		"east.kubeconfig":                    "east", "north.yaml": "north"} {
		if id := IDOf(name); id != want {
			t.Errorf("%s becomes %q, want %q", name, id, want)
		}
	}
}

package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/kubelet"
)

// canary is a secret that must not be in a bundle. Each place has one with its own number.
func canary(n int) string { return fmt.Sprintf("hunter2canary%02d", n) }

// jwtOf returns a token with a canary inside.
func jwtOf(n int) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256","kid":"k"}`) + "." + part(`{"sub":"`+canary(n)+`"}`) + "." + part(canary(n))
}

// pemOf returns a private key with a canary inside.
func pemOf(n int) string {
	return "-----BEGIN EC PRIVATE KEY-----\n" + b64(canary(n)+strings.Repeat("x", 30)) +
		"\n-----END EC PRIVATE KEY-----\n"
}

// kubeconfigOf returns a kubeconfig with canaries.
func kubeconfigOf(n int) string {
	return "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    token: " + canary(n) +
		"\n    client-key-data: " + b64(pemOf(n)) + "\n    password: " + canary(n) + "\n"
}

// places has a text for each place of a canary in logs, answers and other free texts.
var places = map[int]string{
	1:  "Authorization: Bearer " + canary(1),
	2:  "dial https://joe:" + canary(2) + "@registry.example/v2/",
	3:  "token=" + canary(3) + " refused",
	4:  `{"level":"info","password":"` + canary(4) + `"}`,
	5:  "read " + jwtOf(5),
	6:  pemOf(6),
	7:  "payload " + b64("Authorization: Bearer "+canary(7)),
	8:  "payload " + b64(gz(canary(8))),
	9:  "payload " + b64(b64("password: "+canary(9))),
	10: strings.ReplaceAll(kubeconfigOf(10), "\n", `\n`),
	11: "run --db-password " + canary(11) + " --next",
	12: "run --token=" + canary(12) + " --next",
	13: "GET /x?access_token=" + canary(13) + "&a=b",
	14: "private_key=" + canary(14),
}

// kit is a cluster with what a bundle has, and with canaries.
type kit struct {
	config *rest.Config
	client client.Client
}

func newKit(t *testing.T, k *kubelet.Kubelet) *kit {
	t.Helper()
	var definitions []string
	if k != nil {
		definitions = []string{"../../deploy/crds"}
	}
	x := &kit{config: apiserver.Start(t, definitions...)}
	var err error
	if x.client, err = client.New(x.config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	if k != nil {
		k.Start(t, x.config, "node-1", "node-2")
	}
	return x
}

func (x *kit) create(t *testing.T, o client.Object) {
	t.Helper()
	status := o.DeepCopyObject().(client.Object)
	if err := x.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	status.SetResourceVersion(o.GetResourceVersion())
	if _, pod := o.(*corev1.Pod); pod {
		if err := x.client.Status().Update(t.Context(), status); err != nil {
			t.Fatal(err)
		}
	}
}

// pod returns a Pod of Tombolo, or another one.
func pod(namespace, name, component, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app": name}}}
	p.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "example/" + name +
		":1"}}}
	if component != "" {
		p.Labels = map[string]string{"app": "tombolo", "component": component}
		p.Spec.Containers[0].Name = component
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: component, UID: "u",
			Controller: new(true)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: component, RestartCount: 1}}
	}
	p.Status.Phase = corev1.PodRunning
	return p
}

// options are options of a bundle of clusters.
func options(t *testing.T, configs map[string]*rest.Config) Options {
	o := Options{Since: time.Hour, File: filepath.Join(t.TempDir(), "bundle.tar.gz")}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		c := remote.New(name, configs[name])
		c.Timeout = time.Minute
		o.Clusters = append(o.Clusters, c)
	}
	return o
}

// agentAnswers is what an agent answers, by path.
func agentAnswers(node string) map[string]any {
	return map[string]any{
		api.PathStatus: api.Status{Node: node, Version: "v0.1.0", Ready: true, Problems: []api.Problem{{Reason: "x",
			Message: places[5]}}},
		api.PathPorts: api.PortList{Ports: []api.Port{{Name: "checkout-a9993e", Pod: "shopping/checkout-5d8f9c7b6-x7k2p",
			OFPort: 3}}},
		api.PathOVSDB: bridge.State{Bridges: map[string]bridge.Found{"br-int": {Ports: map[string]bridge.PortState{
			"checkout-a9993e": {}}}}},
		api.PathFlows: api.FlowList{Flows: []api.Flow{{Table: "Classify", Match: "in_port=3",
			Owner: "Service shopping/cart"}}},
		api.PathObserve: `{"begin":{"node":"` + node + `"}}` + "\n" + `{"drop":{"reason":"` + places[3] + `",` +
			`"from":{"namespace":"shopping"}}}` + "\n",
		PathMetrics: "tombolo_multicluster_way_up{to=\"192.168.78.101\"} 1\n# " + places[3] + "\n",
	}
}

// answering is a kubelet whose agents answer, and whose containers log.
func answering(logs map[string]string) *kubelet.Kubelet {
	return &kubelet.Kubelet{
		Log: func(namespace, pod, container string, previous bool, w io.Writer) error {
			key := pod
			if previous {
				key += " previous"
			}
			if _, ok := logs[key]; !ok {
				return errors.New("the log is gone")
			}
			for line := range strings.Lines(logs[key]) {
				fmt.Fprint(w, "2026-11-27T15:32:27.123456789Z ", line) // as the kubelet does
			}
			return nil
		},
		Exec: func(namespace, pod, container string, command []string, stdout, stderr io.Writer) int {
			node := strings.TrimPrefix(pod, "agent-of-")
			path, _, _ := strings.Cut(command[len(command)-1], "?")
			answer, ok := agentAnswers(node)[path]
			if pod == "agent-of-node-2" || !ok || container != "tombolo-agent" {
				fmt.Fprintf(stderr, "tombolo: no answer for %s: %s", path, places[12])
				return 1
			}
			if text, ok := answer.(string); ok {
				fmt.Fprint(stdout, text)
				return 0
			}
			_ = json.NewEncoder(stdout).Encode(answer)
			return 0
		},
	}
}

// fill creates objects with canaries, and returns their number.
func (x *kit) fill(t *testing.T) int {
	t.Helper()
	annotated := func(o client.Object, n int) client.Object {
		o.SetAnnotations(map[string]string{"example.com/" + canary(n): canary(n), "example.com/password": canary(n),
			corev1.LastAppliedConfigAnnotation: `{"data":{"password":"` + canary(n) + `"}}`})
		return o
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	x.create(t, annotated(namespace("shopping"), 15))
	x.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "member-token"},
		StringData: map[string]string{"token": canary(16)}})
	foreign := annotated(pod("shopping", "checkout-5d8f9c7b6-x7k2p", "", "node-1"), 17).(*corev1.Pod)
	foreign.Labels["token"] = canary(18)
	foreign.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
		Name: "checkout-5d8f9c7b6", UID: "u"}}
	foreign.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: canary(19)}}
	foreign.Spec.Containers[0].Args = []string{canary(20)}
	foreign.Spec.Containers[0].Command = []string{"sh", "-c", canary(21)}
	foreign.Status.Message = canary(22)
	x.create(t, foreign)
	for _, node := range []string{"node-1", "node-2"} {
		agent := annotated(pod("kube-system", "agent-of-"+node, "tombolo-agent", node), 23).(*corev1.Pod)
		agent.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: canary(24)}}
		agent.Spec.Containers[0].Args = []string{"--config", "/etc/tombolo/antrea-agent.conf", "--token", canary(25)}
		agent.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 2, Message: "panic: password=" + canary(26)}
		x.create(t, agent)
	}
	x.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "antrea-config"},
		Data: map[string]string{
			"antrea-agent.conf": "ovsDatapathType: netdev\n" + kubeconfigOf(27), "more": canary(28)}})
	x.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "others"},
		Data: map[string]string{"config": kubeconfigOf(29)}})
	for i, text := range places {
		x.create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shopping", Name: fmt.Sprintf("e%d", i)},
			Reason:         "Canary",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shopping", Name: "checkout-5d8f9c7b6-x7k2p"},
			Message:        text, LastTimestamp: metav1.Now()})
	}
	x.create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shopping", Name: "gone.1"}, Reason: "Killing",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shopping", Name: "billing-5d8f9c7b6-x7k2p"},
		LastTimestamp:  metav1.Now()})
	x.create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shopping", Name: "old"}, Reason: "LongAgo",
		InvolvedObject: corev1.ObjectReference{Namespace: "shopping"},
		LastTimestamp:  metav1.NewTime(time.Now().Add(-3 * time.Hour))})
	x.create(t, annotated(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shopping", Name: "cart"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, 30))
	x.create(t, annotated(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shopping", Name: "cart-1"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.7"}}}},
		31))
	x.create(t, annotated(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "tombolo-agent"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x",
					Env: []corev1.EnvVar{{Name: "X", Value: canary(32)}}}}}}}}, 33))
	for _, o := range []string{
		`{"apiVersion":"multicluster.crd.antrea.io/v1alpha2","kind":"ClusterSet","metadata":{"namespace":"kube-system",` +
			`"name":"set","annotations":{"ranges.multicluster.antrea.io/west":"token=` + canary(34) + `"}},"spec":{` +
			`"clusterID":"east","leaders":[{"clusterID":"west","secret":"member-token","server":"https://joe:` +
			canary(35) + `@192.0.2.1"}],"namespace":"n"}}`,
		`{"apiVersion":"multicluster.x-k8s.io/v1alpha1","kind":"ServiceExport","metadata":{"namespace":"shopping",` +
			`"name":"cart"},"spec":{"exportedAnnotations":{"example.com/x":"` + canary(38) + `"}}}`,
		`{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExport","metadata":{` +
			`"namespace":"kube-system","name":"east-orders-depot-service","annotations":{` +
			`"multicluster.tombolo.io/service":"{\"annotations\":{\"example.com/x\":\"` + canary(39) + `\"}}"}},` +
			`"spec":{"clusterID":"east","kind":"Service","namespace":"orders","name":"depot"}}`,
		`{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceImport","metadata":{` +
			`"namespace":"kube-system","name":"orders-depot-service","annotations":{` +
			`"multicluster.tombolo.io/exported":"{\"annotations\":{\"example.com/x\":\"` + canary(40) + `\"}}"}},` +
			`"spec":{"kind":"ServiceImport","namespace":"orders","name":"depot","serviceImport":{"metadata":{` +
			`"name":"depot","annotations":{"example.com/x":"` + canary(41) + `"}},` +
			`"spec":{"type":"ClusterSetIP","ports":[{"port":80}]}}}}`,
		`{"apiVersion":"tombolo.io/v1alpha1","kind":"NodePolicyReport","metadata":{"name":"node-1"},` +
			`"policies":{"annp/shopping/deny":"3/1f2e3d4c"}}`,
		`{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExport","metadata":{` +
			`"namespace":"kube-system","name":"x"},"spec":{"kind":"Raw","raw":{"data":"` + b64(canary(36)) +
			`"},"clusterNetworkPolicy":{"x":"` + canary(37) + `"}}}`,
	} {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(o)); err != nil {
			t.Fatal(err)
		}
		x.create(t, u)
	}
	return 41
}

// person binds the roles of the manifest to a user, and returns the user's configuration.
func (x *kit) person(t *testing.T) *rest.Config {
	t.Helper()
	text, err := os.ReadFile("../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if u.GetKind() == "ClusterRole" && strings.HasPrefix(u.GetName(), "tombolo-gather") {
			x.create(t, u)
			found++
		}
	}
	if found != 2 {
		t.Fatalf("the manifest has %d roles, want 2", found)
	}
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "person"}}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	x.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "person"}, Subjects: subjects,
		RoleRef: role("tombolo-gather")})
	x.create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "person"},
		Subjects: subjects, RoleRef: role("tombolo-gather-pods")})
	as := rest.CopyConfig(x.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "person", Groups: []string{"system:authenticated"}}
	return as
}

var (
	found   = regexp.MustCompile(`hunter2canary(\d\d)`)
	encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{12,}`)
	// replaced are the words that stand for names. A random one may contain a name by chance.
	replaced = regexp.MustCompile(`anon-[a-z0-9]{8}`)
)

// canaries finds the canaries in a text, also in encodings of them.
func canaries(text []byte, depth int, numbers map[string]bool) {
	for _, m := range found.FindAllSubmatch(text, -1) {
		numbers[string(m[1])] = true
	}
	if depth == 0 {
		return
	}
	for i := range text {
		if bytes.HasPrefix(text[i:], []byte("\x1f\x8b")) {
			if z, err := gzip.NewReader(bytes.NewReader(text[i:])); err == nil {
				inside, _ := io.ReadAll(z)
				canaries(inside, depth-1, numbers)
			}
		}
	}
	for _, r := range encoded.FindAll(bytes.ReplaceAll(text, []byte(`\n`), []byte(" ")), -1) {
		bare := standard.Replace(string(r))
		for shift := range 4 {
			part := bare[shift:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			if inside, err := base64.RawStdEncoding.DecodeString(part); err == nil {
				canaries(inside, depth-1, numbers)
			}
		}
	}
}

// logs are the logs of the moment: the tests of one cluster change them.
type logs = atomic.Pointer[func(namespace, pod, container string, previous bool, w io.Writer) error]

// TestBundles makes bundles of one cluster.
func TestBundles(t *testing.T) {
	k, current := answering(nil), &logs{}
	k.Log = func(namespace, pod, container string, previous bool, w io.Writer) error {
		return (*current.Load())(namespace, pod, container, previous, w)
	}
	exec := k.Exec
	var busy atomic.Int32
	k.Exec = func(namespace, pod, container string, command []string, stdout, stderr io.Writer) int {
		switch path := command[len(command)-1]; path { // tombolo diagnose does not ask these
		case api.PathOVSDB, api.PathLinks, api.PathRoutes, api.PathNFTables, api.PathGoroutines:
			if busy.Add(1) > 1 {
				t.Errorf("the agent is asked for %s and more at the same time", path)
			}
			defer busy.Add(-1)
		}
		return exec(namespace, pod, container, command, stdout, stderr)
	}
	x := newKit(t, k)
	last, person := x.fill(t), x.person(t)
	t.Run("bundle", func(t *testing.T) { x.testBundle(t, current, person, last) })
	t.Run("anonymize", func(t *testing.T) { x.testAnonymize(t, current) })
	t.Run("interrupt", func(t *testing.T) { x.testInterrupt(t, current) })
	t.Run("unknown Nodes", func(t *testing.T) { x.testUnknownNodes(t, current, person) })
}

// logRequests notes the queries of requests for logs, by Pod and previous.
type logRequests struct {
	to    http.RoundTripper
	asked *sync.Map
}

func (l *logRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	if pod, ok := strings.CutSuffix(r.URL.Path, "/log"); ok {
		l.asked.Store(pod[strings.LastIndexByte(pod, '/')+1:]+r.URL.Query().Get("previous"), r.URL.Query())
	}
	return l.to.RoundTrip(r)
}

// testBundle makes a bundle with the rights of the role alone, of a cluster with canaries in many places, one agent
// that does not answer, and of one whose API server is away.
func (x *kit) testBundle(t *testing.T, current *logs, person *rest.Config, last int) {
	texts := map[string]string{"agent-of-node-1": "", "agent-of-node-2": "line of node-2\n",
		"agent-of-node-1 previous": "panic: x\n"}
	numbers := map[string]bool{}
	for _, text := range places {
		texts["agent-of-node-1"] += "before " + text + " after\n"
		canaries([]byte(text), 3, numbers)
	}
	if len(numbers) != len(places) {
		t.Fatalf("the test finds %d canaries of %d in texts that are not masked", len(numbers), len(places))
	}
	current.Store(&answering(texts).Log)
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close() // accepts, and never answers
	person = rest.CopyConfig(person)
	asked := sync.Map{}
	person.Wrap(func(to http.RoundTripper) http.RoundTripper { return &logRequests{to, &asked} })
	o := options(t, map[string]*rest.Config{"east": person, "west": {Host: "https://" + away.Addr().String()}})
	o.Clusters[1].Timeout = 3 * time.Second
	begin := time.Now()
	m, err := Run(t.Context(), o)
	if err != nil || !m.Complete {
		t.Fatalf("complete %t: %v", m.Complete, err)
	}
	t.Logf("%d files in %s", len(m.Files), time.Since(begin))
	b, err := Open(o.File)
	if err != nil {
		t.Fatal(err)
	}

	// Logs are asked for in part, also those before a restart.
	for _, previous := range []string{"", "true"} {
		query, _ := asked.Load("agent-of-node-1" + previous)
		if q, ok := query.(url.Values); !ok || q.Get("tailLines") != "100000" || q.Get("sinceSeconds") != "3600" {
			t.Errorf("the request for the log, previous %q: %v", previous, query)
		}
	}

	// No canary is there.
	for name, content := range b.files {
		numbers := map[string]bool{}
		canaries(content, 3, numbers)
		canaries([]byte(name), 3, numbers)
		for n := range numbers {
			t.Errorf("%s has canary %s of %d", name, n, last)
		}
	}

	// A bundle reads no Secrets. The role reads no webhooks, and Deployments, DaemonSets and Leases in one Namespace alone
	// (docs/gather.md).
	var results []diagnose.Result
	if err := json.Unmarshal(b.files[diagnosisName], &results); err != nil {
		t.Fatal(err)
	}
	var unread []string
	for _, r := range results {
		if r.Cluster == "east" && r.Status == diagnose.Unknown && (strings.Contains(r.Detail, "is forbidden") ||
			strings.Contains(r.Detail, "no Secrets")) {
			unread = append(unread, r.Code)
		}
	}
	if want := []string{"TD015", "TD016", "TD017", "TD020", "TD060"}; !slices.Equal(unread, want) {
		t.Errorf("the role makes the checks %v unknown, want %v: %s", unread, want, b.files[diagnosisName])
	}

	// The rest is there, and what is missing is named.
	const east = "clusters/east/"
	for name, want := range map[string]string{
		diagnosisName:                                                        `"code": "TD`,
		east + "nodes/node-1/status.json":                                    `"ready":true`,
		east + "nodes/node-1/observe.jsonl":                                  `{"drop":{"reason":"token=[masked] refused",`,
		east + "nodes/node-1/flows.json":                                     `"match":"in_port=3"`,
		east + "nodes/node-1/metrics.txt":                                    "tombolo_multicluster_way_up",
		east + "logs/kube-system_agent-of-node-1/tombolo-agent.log":          "before token=[masked] refused after",
		east + "logs/kube-system_agent-of-node-1/tombolo-agent.previous.log": "panic: x",
		east + "logs/kube-system_agent-of-node-2/tombolo-agent.log":          "line of node-2",
		east + "objects/pods.json":                                           `"name":"checkout-5d8f9c7b6-x7k2p"`,
		east + "objects/clustersets.multicluster.crd.antrea.io.json":         `"secret":"member-token"`,
		east + "objects/events.json":                                         `"reason":"Canary"`,
		east + "objects/serviceexports.multicluster.x-k8s.io.json":           `"name":"cart"`,
		east + "objects/resourceexports.multicluster.crd.antrea.io.json":     `"name":"depot"`,
		east + "objects/resourceimports.multicluster.crd.antrea.io.json":     `"type":"ClusterSetIP"`,
		east + "objects/endpointslices.discovery.k8s.io.json":                `"10.0.0.7"`,
		east + "objects/daemonsets.apps.json":                                `"name":"tombolo-agent"`,
		east + "configuration/kube-system_antrea-config/antrea-agent.conf":   "ovsDatapathType: netdev",
		indexName: "ask the API server",
	} {
		content, err := b.ReadFile(name)
		if err != nil || !bytes.Contains(content, []byte(want)) {
			t.Errorf("%s: %v, want %s in %.2000s", name, err, want, content)
		}
	}
	if text := string(b.files[east+"objects/events.json"]); strings.Contains(text, "LongAgo") {
		t.Error("an old Event is in the bundle")
	}
	for _, name := range []string{"objects/secrets.json", "configuration/kube-system_others/config"} {
		if _, ok := b.files[east+name]; ok {
			t.Errorf("%s is in the bundle", name)
		}
	}
	if strings.Contains(string(b.files[indexName]), "<script") {
		t.Error("the page has a script")
	}
	failures := map[string]string{}
	for _, f := range m.Failures {
		failures[f.Part] = f.Error
	}
	for part, want := range map[string]string{
		"clusters/west":                   "ask the API server",
		east + "nodes/node-2":             "cluster east: Node node-2: ask the agent for /v1/status",
		east + "nodes/node-1/groups.json": "no answer for /v1/groups",
		east + "logs/kube-system_agent-of-node-2/tombolo-agent.previous.log": "read the log of Pod " +
			"kube-system/agent-of-node-2",
	} {
		if !strings.Contains(failures[part], want) {
			t.Errorf("failure of %s: %q, want %q", part, failures[part], want)
		}
		delete(failures, part)
	}
	for part, text := range failures {
		if !strings.HasPrefix(part, east+"nodes/node-1/") { // the others that this agent does not answer
			t.Errorf("%s: %s", part, text)
		}
	}
	if _, err := b.ReadFile(east + "nodes/node-2/flows.json"); err == nil || !strings.Contains(err.Error(),
		"ask the agent for /v1/status") {
		t.Errorf("a file of an agent without an answer: %v", err)
	}
	if _, err := b.ReadFile(east + "nodes/node-3/flows.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that nothing is known of: %v", err)
	}
	if _, err := b.ReadFile("clusters/west/objects/pods.json"); err == nil || !strings.Contains(err.Error(),
		"ask the API server") {
		t.Errorf("a file of the cluster that is away: %v", err)
	}
}

// testAnonymize replaces names everywhere by the same words.
func (x *kit) testAnonymize(t *testing.T, current *logs) {
	current.Store(&answering(map[string]string{
		"agent-of-node-1": "attached shopping/checkout-5d8f9c7b6-x7k2p as checkout-a9993e; Service shopping/cart\n" +
			"removed billing; imported orders/depot\n",
		"agent-of-node-2": "x"}).Log)
	o := options(t, map[string]*rest.Config{"east": x.config})
	o.Anonymize = true
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	b, err := Open(o.File)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range b.files {
		name, content = replaced.ReplaceAllString(name, ""), replaced.ReplaceAll(content, nil)
		for _, word := range []string{"shopping", "checkout", "cart", "billing", "orders", "depot"} {
			if strings.Contains(name, word) {
				t.Errorf("the name of %s has %s", name, word)
			}
			if i := bytes.Index(content, []byte(word)); i >= 0 {
				t.Errorf("%s has %s: %s", name, word, content[max(0, i-100):min(len(content), i+100)])
			}
		}
	}
	// This user may read Secrets, and the diagnosis asks for the member's.
	if text := string(b.files[diagnosisName]); !strings.Contains(text, "a bundle has no Secrets") {
		t.Errorf("the diagnosis has read a Secret: %s", text)
	}
	var ports api.PortList
	if err := json.Unmarshal(b.files["clusters/east/nodes/node-1/ports.json"], &ports); err != nil {
		t.Fatal(err)
	}
	log := string(b.files["clusters/east/logs/kube-system_agent-of-node-1/tombolo-agent.log"])
	if p := ports.Ports[0]; !strings.Contains(log, "attached "+p.Pod+" as "+p.Name+";") || !strings.HasPrefix(p.Pod,
		"anon-") ||
		!strings.HasSuffix(p.Name, "-a9993e") {
		t.Errorf("the log %q has other words than the answer %+v", log, p)
	}
	if !bytes.Contains(b.files["clusters/east/objects/pods.json"], []byte(`"name":"agent-of-node-1"`)) ||
		!bytes.Contains(b.files["clusters/east/objects/pods.json"], []byte(`"namespace":"kube-system"`)) {
		t.Error("names of Tombolo are replaced")
	}
}

// testInterrupt interrupts a bundle while logs come in. The file is an archive of what there was.
func (x *kit) testInterrupt(t *testing.T, current *logs) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	asked := make(chan bool, 16)
	log := func(namespace, pod, container string, previous bool, w io.Writer) error {
		select {
		case asked <- true:
		default:
		}
		fmt.Fprintln(w, "a line before the interrupt")
		_ = http2Flush(w)
		<-ctx.Done()
		return nil
	}
	current.Store(&log)
	o := options(t, map[string]*rest.Config{"east": x.config})
	written := writes(t, filepath.Dir(o.File))
	go func() {
		defer interrupt()
		// Files come in meanwhile: objects do not wait for logs.
		for _, happened := range []<-chan bool{asked, written} {
			select {
			case <-happened:
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Error("no log was asked for, or no file was written")
			}
		}
	}()
	m, err := Run(ctx, o)
	if !errors.Is(err, ErrCut) || m.Complete || len(m.Files) == 0 {
		t.Fatalf("%d files, complete %t: %v", len(m.Files), m.Complete, err)
	}
	if b, err := Open(o.File); err != nil || b.Manifest.Complete || !bytes.Contains(b.files[indexName],
		[]byte("ended early")) {
		t.Errorf("the archive: %v", err)
	}
	if _, err := os.Stat(o.File + ".part"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file is still there: %v", err)
	}
}

// writes returns a channel with a value once something was written to a file in a folder.
func writes(t *testing.T, folder string) <-chan bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { _ = changes.Close() })
	if _, err := unix.InotifyAddWatch(fd, folder, unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	happened := make(chan bool, 1)
	go func() {
		if n, err := changes.Read(make([]byte, 4096)); err == nil && n > 0 {
			happened <- true
		}
	}()
	return happened
}

// http2Flush sends what was written.
func http2Flush(w io.Writer) error {
	if f, ok := w.(interface{ Flush() }); ok {
		f.Flush()
	}
	return nil
}

// TestFullDisk fills a file system. The file is an archive of the parts that found room.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=200k"); err != nil {
		t.Fatalf("mount a small file system (as root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, 0) })
	f, err := os.Create(filepath.Join(folder, "bundle.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := &archive{now: time.Now, to: f}
	noise := make([]byte, 30<<10)
	for i := range 20 {
		for j := range noise {
			noise[j] = byte(i*j*j>>3 ^ j*2654435761>>13)
		}
		a.add(fmt.Sprintf("files/%02d", i), noise)
	}
	m, err := a.close(true)
	if !errors.Is(err, syscall.ENOSPC) || m.Complete {
		t.Fatalf("complete %t: %v", m.Complete, err)
	}
	b, err := Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.Manifest.Files); n < 3 || n > 19 || len(b.Manifest.Failures) != 20-n {
		t.Errorf("%d files and %d failures of 20", n, len(b.Manifest.Failures))
	}
	file, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(z)
	if end := make([]byte, 1024); err != nil || !bytes.HasSuffix(rest, end) {
		t.Errorf("the archive has no end: %v", err)
	}
	if _, err := tar.NewReader(bytes.NewReader(rest)).Next(); err != nil {
		t.Error(err)
	}
}

// TestNodes asks for names of Nodes if there are many, and refuses unknown ones.
func TestNodes(t *testing.T) {
	x := newKit(t, nil)
	for i := range MaxNodes + 1 {
		x.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i),
			Labels: map[string]string{"few": fmt.Sprint(i < 2)}}})
	}
	o := options(t, map[string]*rest.Config{"east": x.config})
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(),
		"201 Nodes; a bundle has at most 200: name some of them with --nodes") {
		t.Errorf("all Nodes: %v", err)
	}
	o.Nodes = []string{"node-3", "node-x"}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no cluster has a Node node-x") {
		t.Errorf("an unknown Node: %v", err)
	}
	if _, err := os.Stat(o.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused command wrote a file: %v", err)
	}
	o.Nodes = []string{"node-3"}
	if m, err := Run(t.Context(), o); err != nil || !slices.Equal(m.Clusters[0].Nodes, o.Nodes) {
		t.Errorf("one Node: %v, %v", m.Clusters, err)
	}
	o.Nodes, o.NodeLabels = nil, "few=true"
	if m, err := Run(t.Context(), o); err != nil || !slices.Equal(m.Clusters[0].Nodes, []string{"node-0", "node-1"}) {
		t.Errorf("Nodes by labels: %v, %v", m.Clusters, err)
	}
}

// testUnknownNodes makes bundles of a cluster that does not list its Nodes. Logs come by the Pods' Nodes.
func (x *kit) testUnknownNodes(t *testing.T, current *logs, person *rest.Config) {
	current.Store(&answering(map[string]string{"agent-of-node-1": "line of node-1\n",
		"agent-of-node-2": "line of node-2\n"}).Log)
	var role rbacv1.ClusterRole
	if err := x.client.Get(t.Context(), client.ObjectKey{Name: "tombolo-gather"}, &role); err != nil {
		t.Fatal(err)
	}
	for i := range role.Rules {
		role.Rules[i].Resources = slices.DeleteFunc(role.Rules[i].Resources, func(r string) bool { return r == "nodes" })
	}
	if err := x.client.Update(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
	denied := dynamic.NewForConfigOrDie(person).Resource(gvr("", "v1", "nodes"))
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) { // the API server reads roles by a watch
			_, err := denied.List(ctx, metav1.ListOptions{})
			return apierrors.IsForbidden(err), nil
		})
	if err != nil {
		t.Fatalf("the role still lists Nodes: %v", err)
	}
	names := func(o Options) (names []string) {
		t.Helper()
		m, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(m.Failures, func(f Failure) bool {
			return f.Part == "clusters/east/nodes" && strings.Contains(f.Error, "list Nodes")
		}) {
			t.Errorf("the failures do not name the Nodes: %v", m.Failures)
		}
		for _, f := range m.Files {
			if strings.HasSuffix(f.Name, "/tombolo-agent.log") {
				names = append(names, f.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	const first, second = "clusters/east/logs/kube-system_agent-of-node-1/tombolo-agent.log",
		"clusters/east/logs/kube-system_agent-of-node-2/tombolo-agent.log"
	o := options(t, map[string]*rest.Config{"east": person})
	if have := names(o); !slices.Equal(have, []string{first, second}) {
		t.Errorf("logs of all Nodes: %q", have)
	}
	o.Nodes = []string{"node-2"}
	if have := names(o); !slices.Equal(have, []string{second}) {
		t.Errorf("logs of one Node: %q", have)
	}
	b := &bundle{}
	if err := b.choose([]*cluster{{nodesUnknown: true, daemons: MaxNodes + 1}}); err == nil ||
		!strings.Contains(err.Error(), "201 Nodes") {
		t.Errorf("logs of many Nodes: %v", err)
	}
}

// TestHangingAgent asks an agent that hangs after its first answer. The time limit passes only a few times.
func TestHangingAgent(t *testing.T) {
	c := &cluster{bundle: &bundle{archive: &archive{now: time.Now}}, folder: "east"}
	asked := 0
	c.askAll(t.Context(), "nodes/node-1", func(q question) error {
		if asked++; asked == 1 {
			return nil
		}
		return fmt.Errorf("ask for %s: %w", q.path, context.DeadlineExceeded)
	})
	if asked != 1+mostLate || len(c.manifest.Failures) != len(questions)-1 {
		t.Errorf("%d questions and %d failures", asked, len(c.manifest.Failures))
	}
	if last := c.manifest.Failures[len(questions)-2]; last.Part != "east/nodes/node-1/metrics.txt" ||
		!strings.HasPrefix(last.Error, "not asked: ") {
		t.Errorf("the last failure is %+v", last)
	}
}

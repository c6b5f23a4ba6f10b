package node

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// front stands between the agent and the API server, and answers some requests itself.
type front struct {
	*httptest.Server
	mu       sync.Mutex
	override func(path string) int // status instead of the API server's answer, 0 for none
	answered int                   // requests that override answered
}

func newFront(t *testing.T, server *apiserver.Server) *front {
	t.Helper()
	target, err := url.Parse(server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f := &front{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		status := 0
		if f.override != nil {
			if status = f.override(r.URL.Path); status != 0 {
				f.answered++
			}
		}
		f.mu.Unlock()
		if status == 0 {
			proxy.ServeHTTP(w, r)
			return
		}
		http.Error(w, http.StatusText(status), status)
	}))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// answer replaces the API server's answers from now on, also to watches.
func (f *front) answer(override func(path string) int) {
	f.mu.Lock()
	f.override, f.answered = override, 0
	f.mu.Unlock()
	f.CloseClientConnections()
}

func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered
}

// sources are the kinds that the agent watches.
var sources = []struct{ resource, group string }{
	{"nodes", ""},
	{"services", ""},
	{"endpointslices", ""},
	{"servicecidrs", "/apis/networking.k8s.io/v1"},
	{"pods", ""},
	{"namespaces", ""},
	{"networkpolicies", "/apis/networking.k8s.io/v1"},
	{"gateways", "/apis/multicluster.crd.antrea.io/v1alpha1"},
	{"clusterinfoimports", "/apis/multicluster.crd.antrea.io/v1alpha1"},
	{"clustersets", "/apis/multicluster.crd.antrea.io/v1alpha2"},
	{"serviceexports", "/apis/multicluster.x-k8s.io/v1alpha1"},
}

// testSources has a cluster with something in every source that the agent plans from, and lets
// each source be not answered, or answered with 404, while the agent starts and while it runs.
// The switch keeps every flow, and gets none.
func testSources(t *testing.T, c *cluster) {
	populate(t, c)
	f := newFront(t, c.server)
	r := newRig(t, c).withOVS()
	r.rest = &rest.Config{Host: f.URL, QPS: -1}
	r.ready()
	r.add("web")
	whole := ""
	r.eventually("the flows are complete", func() error {
		whole = r.flows()
		for _, want := range []string{"10.11.2.0/24", "10.97.0.80", "10.98.0.0/16", "192.168.79.101", "203.0.113.7",
			"reg0=0x4/0xf,nw_dst=10.97.0.80"} {
			if !strings.Contains(whole, want) {
				return fmt.Errorf("no flow has %s:\n%s", want, whole)
			}
		}
		return nil
	})
	// same holds the switch and what was sent to it since the agent's start against the flows
	// that were there before.
	same := func(t *testing.T) {
		t.Helper()
		if have := r.flows(); have != whole {
			t.Errorf("flows before:\n%s\nand now:\n%s", whole, have)
		}
		if s, err := r.status(); err != nil || s.OpenFlow.FlowMods+s.OpenFlow.GroupMods > 0 {
			t.Errorf("%d flow-mods and %d group-mods were sent (%v)", s.OpenFlow.FlowMods, s.OpenFlow.GroupMods, err)
		}
	}
	for _, source := range sources {
		t.Run("start without "+source.resource, func(t *testing.T) {
			r.stop()
			f.answer(func(path string) int {
				switch {
				case path == "/readyz":
					return http.StatusServiceUnavailable
				case strings.HasSuffix(path, "/"+source.resource), path == source.group:
					return http.StatusNotFound
				}
				return 0
			})
			r.start()
			r.eventually("the agent has asked several times", func() error {
				if n := f.count(); n < 3 {
					return fmt.Errorf("%d times", n)
				}
				return nil
			})
			if s, err := r.status(); err != nil || s.Ready {
				t.Errorf("the agent is ready: %t (%v)", s.Ready, err)
			}
			same(t)
			f.answer(nil)
			r.eventually("the agent is ready", func() error {
				s, err := r.status()
				if err == nil && !s.Ready {
					err = fmt.Errorf("it waits for %q", s.Waiting)
				}
				return err
			})
			same(t)
		})
	}
	t.Run("start, one 404 of a server that is ready", func(t *testing.T) {
		r.stop()
		once := map[string]bool{}
		f.answer(func(path string) int {
			for _, s := range sources[3:] {
				if path == s.group && !once[s.group] {
					once[s.group] = true
					return http.StatusNotFound
				}
			}
			return 0
		})
		r.ready()
		same(t)
	})
	t.Run("404 to an agent that runs", func(t *testing.T) {
		f.answer(func(path string) int {
			switch {
			case path == "/readyz":
				return http.StatusInternalServerError
			case strings.Contains(path, "multicluster.crd.antrea.io"):
				return http.StatusNotFound
			}
			return 0
		})
		r.eventually("the agent has asked several times", func() error {
			if n := f.count(); n < 6 {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
		same(t)
		f.answer(nil)
		same(t)
	})
	t.Run("definitions deleted unseen", func(t *testing.T) {
		f.answer(func(string) int { return http.StatusServiceUnavailable })
		definitions := deleteDefinitions(t, c)
		same(t)
		f.answer(nil)
		r.eventually("the flows of other clusters are removed", func() error {
			if strings.Contains(r.flows(), "10.98.0.0/16") {
				return fmt.Errorf("they are there")
			}
			return nil
		})
		options := envtest.CRDInstallOptions{CRDs: definitions, MaxTime: time.Minute}
		if _, err := envtest.InstallCRDs(c.server.Config, options); err != nil {
			t.Fatal(err)
		}
		populateMulticluster(t, c)
		r.eventually("they are back", func() error {
			if have := r.flows(); have != whole {
				return fmt.Errorf("flows before:\n%s\nand now:\n%s", whole, have)
			}
			return nil
		})
	})
}

// flows is what the switch holds, without counters.
func (r *rig) flows() string {
	r.t.Helper()
	var all []string
	for _, args := range [][]string{{"dump-flows", "br-int", "--no-stats"}, {"dump-groups", "br-int"}} {
		cmd := exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow15"}, args...)...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+r.runDir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			r.t.Fatalf("ovs-ofctl %q: %v: %s", args, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "OFPST_GROUP_DESC reply") { // which has an xid
				all = append(all, line)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// objects returns a client for all kinds.
func (c *cluster) objects(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, mcv1alpha1.AddToScheme,
		mcv1alpha2.AddToScheme, mcsv1alpha1.Install, apiextensions.AddToScheme, crdv1beta1.AddToScheme,
		contrailv4.AddToScheme, tombolov1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := client.New(c.server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// populate makes another Node, a Service and another cluster.
func populate(t *testing.T, c *cluster) {
	t.Helper()
	objects := c.objects(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"},
		Spec: corev1.NodeSpec{PodCIDR: "10.11.2.0/24", PodCIDRs: []string{"10.11.2.0/24"}}}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.97.0.80", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.11.2.8"}}, {Addresses: []string{"10.11.2.9"}}},
	}
	for _, o := range []client.Object{node, service, slice} {
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.78.102"}}
	if err := objects.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	populateMulticluster(t, c)
}

// populateMulticluster makes node-1 the Gateway to another cluster.
func populateMulticluster(t *testing.T, c *cluster) {
	t.Helper()
	objects := c.objects(t)
	info := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "west"}}
	info.Spec.ClusterID, info.Spec.ServiceCIDR = "west", "10.98.0.0/16"
	info.Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.79.101"}}
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "set",
		Annotations: map[string]string{multicluster.AnnotationTunnelSources + "west": "203.0.113.7"},
	}}
	set.Spec.ClusterID, set.Spec.Leaders = "east", []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	for _, o := range []client.Object{
		set, export,
		&mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodeName}, GatewayIP: nodeAddress,
			InternalIP: nodeAddress},
		info,
	} {
		for end := time.Now().Add(30 * time.Second); ; {
			err := objects.Create(t.Context(), o)
			if err == nil || apierrors.IsAlreadyExists(err) { // its definition was not deleted
				break
			}
			if !apierrors.IsNotFound(err) || time.Now().After(end) { // a definition takes a moment to be served
				t.Fatal(err)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
}

// deleteDefinitions deletes the definitions of Gateways and ClusterInfoImports, waits until they
// are gone, and returns them as they have to be created again.
func deleteDefinitions(t *testing.T, c *cluster) []*apiextensions.CustomResourceDefinition {
	t.Helper()
	objects := c.objects(t)
	var out []*apiextensions.CustomResourceDefinition
	for _, resource := range []string{"gateways", "clusterinfoimports"} {
		crd := &apiextensions.CustomResourceDefinition{}
		key := client.ObjectKey{Name: resource + ".multicluster.crd.antrea.io"}
		if err := objects.Get(t.Context(), key, crd); err != nil {
			t.Fatal(err)
		}
		out = append(out, &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name},
			Spec: crd.Spec})
	}
	apiserver.Uninstall(t, c.server.Config, out)
	return out
}

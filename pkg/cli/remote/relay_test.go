package remote

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/relay/relaytest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/kubelet"
)

// relayCluster is an API server whose kubelet knows the relay's Pods.
type relayCluster struct {
	*relaytest.Cluster
	t    *testing.T
	pods map[string]string // addresses by Pod
}

func newRelayCluster(t *testing.T) *relayCluster {
	t.Helper()
	c := &relayCluster{relaytest.New(t), t, map[string]string{}}
	(&kubelet.Kubelet{Dial: func(_, pod, _ string) (net.Conn, error) {
		return net.Dial("tcp", c.pods[pod])
	}}).Start(t, c.Admin, "node-1")
	return c
}

// pod makes a Pod of the relay.
func (c *relayCluster) pod(name, address string, ready corev1.ConditionStatus) {
	c.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: api.RelayNamespace,
		Labels: map[string]string{"app": "tombolo", "component": api.RelayService}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "i",
			SecurityContext: &corev1.SecurityContext{
				RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}}}}
	c.Create(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if err := c.Writer.Status().Update(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	c.pods[name] = address
}

// TestRelay asks the relay of a cluster through a forwarded port: where it is not installed, down, as an administrator,
// and as a developer.
func TestRelay(t *testing.T) {
	c := newRelayCluster(t)
	east := New("east", c.Admin)
	if r, err := east.Relay(t.Context()); r != nil || err != nil {
		t.Errorf("without a relay: %v, %v", r, err)
	}
	c.Account("kube-system", "developer")
	c.Install()
	r := c.Start()
	r.Relay.Nodes().Add("node-1")
	down := func(c *Cluster, want string) {
		t.Helper()
		var d *RelayDown
		r, err := c.Relay(t.Context())
		if err == nil {
			err = r.Stream(t.Context(), api.PathObserve, nil, io.Discard)
		}
		if !errors.As(err, &d) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c.pod("starting", "127.0.0.1:1", corev1.ConditionFalse)
	down(east, "no Pod of the relay is ready, of 1")
	as := rest.CopyConfig(c.Admin)
	as.BearerToken = c.Token("kube-system", "developer", "", "")
	developer := New("east", as)
	down(developer, "ask for the Role tombolo-observe-users")
	c.pod("dead", "127.0.0.1:1", corev1.ConditionTrue)
	down(east, "connection refused")
	if err := c.Writer.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: api.RelayNamespace,
		Name: "dead"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.pod("good", r.Address, corev1.ConditionTrue)

	ask := func(c *Cluster, query url.Values) (string, error) {
		t.Helper()
		r, err := c.Relay(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = r.Stream(t.Context(), api.PathObserve, query, &out)
		return out.String(), err
	}
	if text, err := ask(east, nil); err != nil || !strings.Contains(text, `"absent":["node-1"]`) {
		t.Errorf("an administrator: %v, %s", err, text)
	}
	c.Bind(api.RelayNamespace, "Role", "tombolo-observe-users", "developer")
	namespace := url.Values{"namespace": {"default"}}
	const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: tombolo-observe-flows
  namespace: default
rules:
- apiGroups:
  - observe.tombolo.io
  resources:
  - flows
  verbs:
  - list`
	ovstest.Eventually(t, "the developer is refused", func() error {
		r, err := developer.Relay(t.Context())
		if err != nil {
			return err
		}
		err = r.Stream(t.Context(), api.PathObserve, namespace, io.Discard)
		if err == nil || !strings.HasSuffix(err.Error(), role) {
			t.Fatalf("%v\nwant the Role\n%s", err, role)
		}
		return nil
	})
	c.Bind("default", "ClusterRole", "tombolo-observe-flows", "developer")
	ovstest.Eventually(t, "the developer may see the Namespace", func() error {
		_, err := ask(developer, namespace)
		return err
	})
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://relay", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (needsToken{}).RoundTrip(q); err == nil || !strings.Contains(err.Error(), "has no bearer token") {
		t.Errorf("a user without a token: %v", err)
	}
}

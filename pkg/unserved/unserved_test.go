package unserved

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// same compares fields and reasons of Problems. Each has to name its object and a remedy.
func same(t *testing.T, object string, want []string, problems []problem.Problem) {
	t.Helper()
	var have []string
	for _, p := range problems {
		have = append(have, strings.TrimSpace(p.Field+" "+p.Reason.String()))
		shown[p.Reason.String()] = true
		if p.Object.String() != object || !strings.Contains(p.Message, ":") && !strings.Contains(p.Message, ";") {
			t.Errorf("names no object or no remedy: %s", p)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s: problems (-want +have):\n%s", object, diff)
	}
}

// shown are the reasons that a test of a finder has had.
var shown = map[string]bool{}

func meta(name string, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		m.Annotations[key] = value
	}
	return m
}

func TestPod(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta("web", "ipam.antrea.io/ippools=pool")}
		change(p)
		return p
	}
	pool := []string{"metadata.annotations[ipam.antrea.io/ippools] IPPoolNotSupported"}
	for _, row := range []struct {
		name   string
		change func(*corev1.Pod)
		want   []string
	}{
		{"pool", func(*corev1.Pod) {}, pool},
		{"hostPort", func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
		}, pool},
		{"the Node's network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, nil},
		{"finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, nil},
	} {
		t.Run(row.name, func(t *testing.T) { same(t, "Pod web", row.want, Pod(pod(row.change))) })
	}
}

func TestObjects(t *testing.T) {
	same(t, "Namespace plain", nil, Namespace(&corev1.Namespace{ObjectMeta: meta("plain", "example.org/a=b")}, Cluster{}))
	n := &corev1.Namespace{ObjectMeta: meta("ns", "ipam.antrea.io/ippools=pool",
		"networkpolicy.antrea.io/enable-logging=true", "core.juniper.net/isolated-namespace=true")}
	n.Labels = map[string]string{"core.juniper.net/isolated-namespace": "true"}
	same(t, "Namespace ns", []string{
		"metadata.annotations[ipam.antrea.io/ippools] IPPoolNotSupported",
		"metadata.annotations[networkpolicy.antrea.io/enable-logging] NamespaceLoggingNotSupported",
		"metadata.labels[core.juniper.net/isolated-namespace] IsolationNotSupported",
		"metadata.annotations[core.juniper.net/isolated-namespace] IsolationNotSupported",
	}, Namespace(n, Cluster{}))
	same(t, "Namespace ns", []string{
		"metadata.annotations[ipam.antrea.io/ippools] IPPoolNotSupported",
		"metadata.annotations[networkpolicy.antrea.io/enable-logging] NamespaceLoggingNotSupported",
		"metadata.annotations[core.juniper.net/isolated-namespace] IsolationNotSupported",
	}, Namespace(n, Cluster{Tenants: true}))
	monitor := &metav1.PartialObjectMetadata{ObjectMeta: meta("default")}
	same(t, "NodeLatencyMonitor default", []string{"ProbesNotSupported"}, NodeLatencyMonitor(monitor, Cluster{}))
	same(t, "Traceflow default", []string{"RelayMissing"}, Traceflow(monitor))
	same(t, "NodeLatencyMonitor default", nil, NodeLatencyMonitor(monitor, Cluster{Latency: true}))
	for name, want := range map[string][]string{
		"egresses.crd.antrea.io":                          {"KindNotSupported"},
		"adminnetworkpolicies.policy.networking.k8s.io":   {"PolicyKindNotSupported"},
		"globalsystemconfigs.core.contrail.juniper.net":   {"VirtualNetworkNotSupported"},
		"subnets.core.contrail.juniper.net":               nil,
		"virtualnetworks.core.contrail.juniper.net":       nil,
		"tiers.crd.antrea.io":                             nil,
		"clusternetworkpolicies.policy.networking.k8s.io": nil,
		"egresses.example.org":                            nil,
	} {
		same(t, "CustomResourceDefinition "+name, want, Definition(&metav1.PartialObjectMetadata{ObjectMeta: meta(name)}))
	}
}

// TestRows holds that each row is whole, in the document, and shown by a test: by one of its finder here, else by the
// one that it names.
func TestRows(t *testing.T) {
	t.Run("Pod", TestPod)
	t.Run("Objects", TestObjects)
	t.Run("Service", TestService)
	text, err := os.ReadFile("../../docs/not-supported.md")
	if err != nil || string(text) != Document() {
		t.Errorf("docs/not-supported.md is stale: run go generate ./pkg/unserved (%v)", err)
	}
	with := map[string]bool{}
	for _, r := range Rows() {
		if r.Asked == "" || r.Happens == "" || r.Where() == "" || strings.ContainsAny(r.Asked+r.Happens+r.Where(), "|\n") {
			t.Errorf("%+v is not whole, or no row of a table", r)
		}
		if r.Test == "" {
			if !shown[r.Reason.String()] {
				t.Errorf("no test has shown %s (%s)", r.Reason, r.Asked)
			}
			if with[r.Reason.String()] {
				t.Errorf("two rows have the reason %s", r.Reason)
			}
			with[r.Reason.String()] = true
			continue
		}
		i := strings.LastIndex(r.Test, ".")
		files, _ := filepath.Glob(filepath.Join("../..", r.Test[:i], "*_test.go"))
		if !declares(t, files, r.Test[i+1:]) {
			t.Errorf("%s: there is no test %s", r.Asked, r.Test)
		}
	}
}

// declares reports whether one of the files has a test function.
func declares(t *testing.T, files []string, name string) bool {
	t.Helper()
	pattern := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if pattern.Match(b) {
			return true
		}
	}
	return false
}

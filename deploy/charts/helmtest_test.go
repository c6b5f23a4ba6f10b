package charts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/test/apiserver"
)

// helmTest returns the manifest of the objects that `helm test` makes for a release of a chart.
func helmTest(t *testing.T, chart, namespace string, values map[string]any) string {
	t.Helper()
	text, err := Tests(".", chart, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// helmTests are releases, with the name of the objects of their tests.
var helmTests = []struct {
	chart, namespace, values, name, image, pullPolicy string
}{
	{Agent, "kube-system", "images: {pullPolicy: Never}", "tombolo-test", "tombolo/tombolo-agent:dev", "Never"},
	{Agent, "kube-system", "images: {registry: r.example/net, tag: v9, pullSecrets: [{name: s}]}", "tombolo-test",
		"r.example/net/tombolo-agent:v9", "IfNotPresent"},
	{Multicluster, "kube-system", "images: {registry: r.example/net, digests: {tombolo-agent: 'sha256:" +
		strings.Repeat("0a", 32) + "'}}", "tombolo-multicluster-test-kube-system",
		"r.example/net/tombolo-agent@sha256:" + strings.Repeat("0a", 32), "IfNotPresent"},
	{Multicluster, "area", "role: leader\nimages: {registry: r.example/net}", "tombolo-multicluster-test-area",
		"r.example/net/tombolo-agent:dev", "IfNotPresent"},
}

// TestHelmTests: the test runs `tombolo status` with the image and the account of its release. Its objects exist while
// it runs, and no manifest has them.
func TestHelmTests(t *testing.T) {
	for _, row := range helmTests {
		values := readValues(t, row.values)
		text := helmTest(t, row.chart, row.namespace, values)
		files, err := Render(".", row.chart, row.namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		tests, installed := objects(t, text), objects(t, Manifest(files, all))
		kinds := map[string]int{}
		for key, o := range tests {
			u := unstructured.Unstructured{Object: o.(map[string]any)}
			kinds[u.GetKind()]++
			deletions := "before-hook-creation,hook-succeeded,hook-failed"
			if u.GetKind() == "Pod" { // its log is for the user
				deletions = "before-hook-creation,hook-succeeded"
			}
			if a := u.GetAnnotations(); a["helm.sh/hook"] != "test" || a["helm.sh/hook-delete-policy"] != deletions {
				t.Errorf("%s, %s: annotations %v", row.name, key, a)
			}
			if u.GetName() != row.name || installed[key] != nil {
				t.Errorf("%s has another name than %s, or is in the manifest", key, row.name)
			}
		}
		if diff := cmp.Diff(map[string]int{"ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "Role": 1,
			"RoleBinding": 1, "ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1, "Pod": 1},
			kinds); diff != "" {
			t.Errorf("%s: -want +have:\n%s", row.name, diff)
		}
		account := map[string]any{"kind": "ServiceAccount", "name": row.name, "namespace": row.namespace}
		spec := at(t, found(t, text, "Pod", row.name), "spec")
		container := at(t, spec, "containers", 0)
		checks := []struct{ have, want any }{
			{at(t, found(t, text, "Pod", row.name), "metadata", "namespace"), row.namespace},
			{at(t, found(t, text, "ServiceAccount", row.name), "metadata", "namespace"), row.namespace},
			{at(t, found(t, text, "ServiceAccount", row.name), "automountServiceAccountToken"), false},
			{at(t, spec, "serviceAccountName"), row.name},
			{at(t, spec, "automountServiceAccountToken"), true},
			{at(t, spec, "restartPolicy"), "Never"},
			{at(t, spec, "imagePullSecrets"), at(t, values, "images", "pullSecrets")},
			{at(t, spec, "securityContext", "runAsNonRoot"), true},
			{at(t, container, "command"), []any{"tombolo", "status", "--wait", "2m"}},
			{at(t, container, "image"), row.image},
			{at(t, container, "imagePullPolicy"), row.pullPolicy},
			{at(t, found(t, text, "Role", row.name), "metadata", "namespace"), "kube-system"}, // of the agents' Pods
			{at(t, found(t, text, "RoleBinding", row.name), "metadata", "namespace"), "kube-system"},
			{at(t, found(t, text, "ValidatingAdmissionPolicyBinding", row.name), "spec", "policyName"), row.name},
		}
		for _, kind := range []string{"ClusterRole", "Role"} {
			binding := found(t, text, kind+"Binding", row.name)
			checks = append(checks, []struct{ have, want any }{{at(t, binding, "subjects"), []any{account}},
				{at(t, binding, "roleRef", "name"), row.name}, {at(t, binding, "roleRef", "kind"), kind}}...)
		}
		for i, check := range checks {
			if diff := cmp.Diff(check.want, check.have); diff != "" {
				t.Errorf("%s, check %d: -want +have:\n%s", row.name, i, diff)
			}
		}
	}
}

// TestHelmTestAccount: the account of a test may run `tombolo ask` in agents, and nothing else.
func TestHelmTestAccount(t *testing.T) {
	config := apiserver.Start(t)
	run := runs(t, config)
	run("", "create", "namespace", "area")
	for _, pod := range []string{"tombolo-agent", "etcd"} {
		run(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+pod+`","namespace":"kube-system"},"spec":{`+
			`"automountServiceAccountToken":false,"containers":[{"name":"`+pod+`","image":"x"}]}}`, "apply", "-f", "-")
	}
	for _, row := range helmTests {
		text := helmTest(t, row.chart, row.namespace, readValues(t, row.values))
		run(text, "apply", "-f", "-")
		as := rest.CopyConfig(config)
		as.Impersonate.UserName = "system:serviceaccount:" + row.namespace + ":" + row.name
		c, err := kubernetes.NewForConfig(as)
		if err != nil {
			t.Fatal(err)
		}
		exec := func(pod string, command ...string) error {
			return c.CoreV1().RESTClient().Post().Resource("pods").Namespace("kube-system").Name(pod).SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{Container: pod, Command: command, Stdout: true}, scheme.ParameterCodec).
				Do(t.Context()).Error()
		}
		denied := func(err error) bool {
			return apierrors.IsForbidden(err) || err != nil && strings.Contains(err.Error(), "account of helm test may run")
		}
		// Policies hold a while after they are made.
		if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return denied(exec("etcd", "sh")), nil }); err != nil {
			t.Fatalf("%s may run sh in etcd: %v", row.name, err)
		}
		for _, command := range [][]string{{"sh"}, {"tombolo"}, {"tombolo", "get", "status"}, {"sh", "-c", "tombolo ask"}} {
			if err := exec("tombolo-agent", command...); !denied(err) {
				t.Errorf("%s, %s: %v", row.name, command, err)
			}
		}
		if err := exec("etcd", "tombolo", "ask", "/status"); !denied(err) {
			t.Errorf("%s, in etcd: %v", row.name, err)
		}
		// The Pods are on no Node.
		if err := exec("tombolo-agent", "tombolo", "ask", "/status"); err == nil || denied(err) ||
			!strings.Contains(err.Error(), "does not have a host assigned") {
			t.Errorf("%s asks an agent: %v", row.name, err)
		}
		err = c.CoreV1().Pods("kube-system").Delete(t.Context(), "etcd", metav1.DeleteOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s deletes a Pod: %v", row.name, err)
		}
		run(text, "delete", "--force", "-f", "-") // as Helm does after a test
	}
}

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy/charts"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/ports"
)

// TestMetricsAt guards each address that other machines can reach.
func TestMetricsAt(t *testing.T) {
	for address, want := range map[string]bool{"0": false, ":8081": true, "0.0.0.0:8081": true, "[::]:8081": true,
		"10.0.0.1:8081": true, "127.0.0.1:8081": false, "127.1.2.3:8081": false, "localhost:8081": false,
		"[::1]:8081": false, "[::ffff:127.0.0.1]:8081": false, "127.0.0.1.example:8081": true, "": false, "8081": true} {
		if o := metricsAt(address); o.SecureServing != want || (o.FilterProvider != nil) != want {
			t.Errorf("%q: TLS %t, reviews %t, want %t", address, o.SecureServing, o.FilterProvider != nil, want)
		}
	}
}

// TestMetricsAuthentication reads the metrics of two replicas of the leader, which run as the chart's ServiceAccount.
func TestMetricsAuthentication(t *testing.T) {
	ctx := t.Context()
	cidr := fmt.Sprintf("127.%d.%d.0/24", 16+rand.IntN(200), rand.IntN(256))
	server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../deploy/crds"}, ServiceCIDR: cidr})
	scheme, err := leader.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	install(t, admin)
	service := &corev1.Service{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "area", Name: "antrea-mc-webhook-service"}, service); err != nil {
		t.Fatal(err)
	}
	var proxy balancer
	proxy.listen(t, net.JoinHostPort(service.Spec.ClusterIP, "443"))
	member := memberEast(t, admin, server.Config)

	token := func(name string, audiences ...string) string {
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name}}
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, account)); err != nil {
			t.Fatal(err)
		}
		answer, err := typed.CoreV1().ServiceAccounts("area").CreateToken(ctx, name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Token
	}
	// A role of /metrics, as Prometheus' own manifests have it.
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
			Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "prometheus"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "area", Name: "prometheus"}}},
	} {
		if err := admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	good, foreign, other := token("prometheus"), token("prometheus", "elsewhere"), token("other")

	var metrics []string
	for range 2 {
		address := fmt.Sprintf("0.0.0.0:%d", ports.Free(t))
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		metrics = append(metrics, net.JoinHostPort("127.0.0.1", port))
		r := startReplica(t, server.Config, &proxy, fmt.Sprintf("metrics: {bindAddress: %q}", address))
		eventually(t, "the replica is ready", func() error { return ready(ctx, r) }) // so the first is elected
	}
	// Without the right to ask, no reader gets an answer.
	eventually(t, "the controller may not review tokens", func() error {
		return expectMetrics(ctx, metrics[0], good, http.StatusServiceUnavailable, "cannot create resource \"tokenreviews\"")
	})
	if err := admin.Create(ctx, reviewsOfChart(t)); err != nil {
		t.Fatal(err)
	}
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "set"},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}}
	eventually(t, "the ClusterSet is admitted", func() error { return client.IgnoreAlreadyExists(admin.Create(ctx, set)) })
	eventually(t, "the member announces itself", func() error {
		return client.IgnoreAlreadyExists(member.Create(ctx, &mcv1alpha1.MemberClusterAnnounce{
			ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "member-announce-from-east"},
			ClusterID:  "east", ClusterSetID: "set", LeaderClusterID: "north"}))
	})
	eventually(t, "the elected replica has the member", func() error {
		return expectMetrics(ctx, metrics[0], good, http.StatusOK,
			`tombolo_multicluster_member_info{peer="east",state="connected"} 1`)
	})
	for _, row := range []struct {
		name, token string
		status      int
		text        string
	}{
		{"no token", "", http.StatusUnauthorized, "a bearer token"},
		{"a wrong token", "x", http.StatusUnauthorized, "does not accept the token"},
		{"a token for another audience", foreign, http.StatusUnauthorized, "does not accept the token"},
		{"a token without the right", other, http.StatusForbidden,
			"system:serviceaccount:area:other may not get /metrics: give it a ClusterRole"},
		{"a token with the right", good, http.StatusOK, "tombolo_multicluster_leader_exports"},
	} {
		if err := expectMetrics(ctx, metrics[0], row.token, row.status, row.text); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	eventually(t, "the other replica answers, without state of the ClusterSet", func() error {
		text, status, err := getMetrics(ctx, "https://"+metrics[1], good)
		switch {
		case err != nil || status != http.StatusOK || !strings.Contains(text, "go_goroutines"):
			return fmt.Errorf("%d, %w: %.200s", status, err, text)
		case strings.Contains(text, "tombolo_multicluster_"):
			return errors.New("it has state")
		}
		return nil
	})
	if text, status, err := getMetrics(ctx, "http://"+metrics[0], good); err == nil && status == http.StatusOK {
		t.Errorf("without TLS: %.200s", text)
	}
}

// reviewsOfChart returns the binding with which the chart lets the controller review tokens.
func reviewsOfChart(t *testing.T) *rbacv1.ClusterRoleBinding {
	t.Helper()
	files, err := charts.Render("../../deploy/charts", charts.Multicluster, "area", map[string]any{"role": "leader",
		"images": map[string]any{"pullPolicy": "Never"}, "metrics": map[string]any{"bindAddress": ":8081"}})
	if err != nil {
		t.Fatal(err)
	}
	manifest := charts.Manifest(files, func(string) bool { return true })
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096); ; {
		b := &rbacv1.ClusterRoleBinding{}
		if err := documents.Decode(b); errors.Is(err, io.EOF) {
			t.Fatal("the chart has no such binding")
		} else if err == nil && b.Kind == "ClusterRoleBinding" && b.Name == "area-antrea-mc-controller-reviews" {
			return b
		}
	}
}

// expectMetrics reads metrics, and returns an error for another answer.
func expectMetrics(ctx context.Context, address, token string, status int, want string) error {
	text, have, err := getMetrics(ctx, "https://"+address, token)
	if err == nil && (have != status || !strings.Contains(text, want)) {
		err = fmt.Errorf("status %d, want %d and %s: %.300s", have, status, want, text)
	}
	return err
}

func getMetrics(ctx context.Context, server, token string) (text string, status int, _ error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/metrics", nil)
	if err != nil {
		return "", 0, err
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(q)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), answer.StatusCode, err
}

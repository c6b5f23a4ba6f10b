package setup

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// jwt is a token of a ServiceAccount as far as one reads it without verifying it.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".e30"
}

// TestJoinChecks refuses what cannot work before anything is made. The leader is an API server without controllers.
func TestJoinChecks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.create(&corev1.Namespace{ObjectMeta: named("", area)})
	other := apiserver.Start(t) // a cluster that is no leader
	otherCA, _, err := certutil.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	good := JoinConfig{
		ClusterSetID: "set", ClusterID: "east", Namespace: "kube-system", LeaderClusterID: "leader", LeaderNamespace: area, LeaderAPIServer: w.config.Host,
		Secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "east-token"}, Data: map[string][]byte{"ca.crt": w.config.CAData, "token": []byte(w.config.BearerToken)}},
	}
	with := func(change func(*JoinConfig)) *JoinConfig {
		j := good
		j.Secret = good.Secret.DeepCopy()
		change(&j)
		return &j
	}
	token := func(text string) *JoinConfig {
		return with(func(j *JoinConfig) { j.Secret.Data["token"] = []byte(text) })
	}
	past := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		name string
		join *JoinConfig
		want string
	}{
		{"a CA that is none", with(func(j *JoinConfig) { j.Secret.Data["ca.crt"] = []byte("x") }), "Secret kube-system/east-token, key ca.crt: data does not contain any valid"},
		{"another CA", with(func(j *JoinConfig) { j.Secret.Data["ca.crt"] = otherCA }), "Secret kube-system/east-token, key ca.crt: it is not the CA of " + w.config.Host},
		{"garbage", token("garbage"), "Secret kube-system/east-token, key token: the leader at " + w.config.Host + " does not know it"},
		{"another cluster's token", token(jwt(`{"kubernetes.io/serviceaccount/namespace":"antrea-multicluster"}`)), "it is of another cluster, was deleted or has expired"},
		{"another Namespace's token", token(jwt(`{"kubernetes.io":{"namespace":"default"}}`)), "it is of a ServiceAccount in Namespace default, but leaderNamespace is antrea-multicluster"},
		{"expired", token(jwt(fmt.Sprintf(`{"exp":%d}`, past.Unix()))), "key token: it has expired on 2020-01-02T03:04:05Z; make one with"},
		{"no https", with(func(j *JoinConfig) { j.LeaderAPIServer = "10.0.0.1:6443" }), `leaderAPIServer: "10.0.0.1:6443" is not the https URL`},
		{"nobody there", with(func(j *JoinConfig) { j.LeaderAPIServer = "https://127.0.0.1:1" }), "leaderAPIServer https://127.0.0.1:1: it cannot be reached from here"},
		{"a name that its certificate is not for", with(func(j *JoinConfig) {
			j.LeaderAPIServer = strings.Replace(j.LeaderAPIServer, "127.0.0.1", "127.0.0.2", 1)
		}), "leaderAPIServer https://127.0.0.2:"},
		{"no leader", with(func(j *JoinConfig) {
			j.LeaderAPIServer, j.Secret.Data["ca.crt"], j.Secret.Data["token"] = other.Host, other.CAData, []byte(other.BearerToken)
		}), "does not serve memberclusterannounces of multicluster.crd.antrea.io/v1alpha1 (it has no version of that group)"},
		{"another Namespace", with(func(j *JoinConfig) { j.LeaderNamespace = "elsewhere" }), "leaderNamespace elsewhere: "},
		{"no such Secret", with(func(j *JoinConfig) { j.TokenSecretName = "none" }), "tokenSecretName: there is no Secret none in Namespace kube-system of the member"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w.t = t
			w.wants(w.Join(ctx, row.join), row.want)
			if w.has(&mcv1alpha2.ClusterSet{}, "kube-system", "set") || w.has(&corev1.Secret{}, "kube-system", "east-token") {
				t.Error("something was made")
			}
		})
	}
	w.t = t
	if err := w.checkLeader(ctx, &good); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
	w.create(&corev1.Secret{ObjectMeta: named("kube-system", "half"), Data: map[string][]byte{"ca.crt": w.config.CAData}})
	w.wants(w.Join(ctx, with(func(j *JoinConfig) { j.TokenSecretName = "half" })), "Secret half has no key token")
}

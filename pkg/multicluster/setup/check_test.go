package setup

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// jwt is a token of a ServiceAccount as far as one reads it without verifying it.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".e30"
}

// tokenFor is a token of a ServiceAccount that it makes, as the API server signs it.
func (w *world) tokenFor(namespace, name string) string {
	w.t.Helper()
	account, request := &corev1.ServiceAccount{ObjectMeta: named(namespace, name)}, &authenticationv1.TokenRequest{}
	w.create(account)
	if err := w.Client.SubResource("token").Create(w.t.Context(), account, request); err != nil {
		w.t.Fatal(err)
	}
	return request.Status.Token
}

// TestJoinChecks refuses joins that cannot work, before it makes any object. The leader is an API server without
// controllers.
func TestJoinChecks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.create(&corev1.Namespace{ObjectMeta: named("", area)})
	other := apiserver.Start(t) // a cluster that is no leader
	otherCA, otherKey, err := certutil.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	otherPair, err := tls.X509KeyPair(otherCA, otherKey)
	if err != nil {
		t.Fatal(err)
	}
	misnamed := httptest.NewUnstartedServer(http.NotFoundHandler())
	misnamed.TLS = &tls.Config{Certificates: []tls.Certificate{otherPair}, MinVersion: tls.VersionTLS12}
	misnamed.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that refuse its name
	misnamed.StartTLS()
	defer misnamed.Close()
	good := JoinConfig{
		ClusterSetID: "set", ClusterID: "east", Namespace: "kube-system", LeaderClusterID: "leader", LeaderNamespace: area,
		LeaderAPIServer: w.config.Host,
		Secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "east-token"},
			Data: map[string][]byte{"ca.crt": w.config.CAData, "token": []byte(w.config.BearerToken)}},
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
	elsewhere := with(func(j *JoinConfig) {
		j.LeaderAPIServer, j.Secret.Data["ca.crt"], j.Secret.Data["token"] = other.Host, other.CAData,
			[]byte(other.BearerToken)
	})
	powerless := token(w.tokenFor(area, "powerless"))
	w.create(&corev1.Secret{ObjectMeta: named("kube-system", "half"), Data: map[string][]byte{"ca.crt": w.config.CAData}})
	// serves has the other cluster serve kinds in v1beta1, and in another version.
	serves := func(version string, kinds ...string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			var all []*apiextensionsv1.CustomResourceDefinition
			for _, kind := range kinds {
				text, err := os.ReadFile("../../../deploy/crds/multicluster.crd.antrea.io_" + kind + ".yaml")
				if err != nil {
					t.Fatal(err)
				}
				d := &apiextensionsv1.CustomResourceDefinition{}
				if err := yaml.Unmarshal(text, d); err != nil {
					t.Fatal(err)
				}
				stored := *d.Spec.Versions[0].DeepCopy()
				stored.Name, stored.Storage = "v1beta1", true
				d.Spec.Versions[0].Name, d.Spec.Versions[0].Storage = version, false
				d.Spec.Versions = append(slices.DeleteFunc(d.Spec.Versions,
					func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == stored.Name }), stored)
				all = append(all, d)
			}
			if _, err := envtest.InstallCRDs(other, envtest.CRDInstallOptions{CRDs: all, MaxTime: 3 * time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const leaders = ": is it the leader, with the leader's manifest of a version that members of this one understand? " +
		"(mc deploy leadercluster)"
	past := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	const renewed = "make one with `mc create membertoken` in the leader cluster"
	for _, row := range []struct {
		name    string
		prepare func(*testing.T) // the leader
		join    *JoinConfig
		want    string
		remedy  string // how the error ends
	}{
		{"a CA that is none", nil, with(func(j *JoinConfig) { j.Secret.Data["ca.crt"] = []byte("x") }),
			"Secret kube-system/east-token, key ca.crt: data does not contain any valid",
			"; make the token again with `mc create membertoken`"},
		{"another CA", nil, with(func(j *JoinConfig) { j.Secret.Data["ca.crt"] = otherCA }),
			"Secret kube-system/east-token, key ca.crt: it is not the CA of " + w.config.Host,
			"; the token is of another cluster, or leaderAPIServer is another one; " + renewed},
		{"garbage", nil, token("garbage"), "Secret kube-system/east-token, key token: the leader at " +
			w.config.Host + " does not know it", ": it is of another cluster, was deleted or has expired; " + renewed},
		{"another cluster's token", nil, token(jwt(`{"kubernetes.io/serviceaccount/namespace":"antrea-multicluster"}`)),
			"Secret kube-system/east-token, key token: the leader at " + w.config.Host + " does not know it",
			": it is of another cluster, was deleted or has expired; " + renewed},
		{"another Namespace's token", nil, token(jwt(`{"kubernetes.io":{"namespace":"default"}}`)),
			"Secret kube-system/east-token, key token: it is of a ServiceAccount in Namespace default, but leaderNamespace is " +
				"antrea-multicluster", "; correct leaderNamespace, or " + renewed},
		{"expired", nil, token(jwt(fmt.Sprintf(`{"exp":%d}`, past.Unix()))),
			"Secret kube-system/east-token, key token: it has expired on 2020-01-02T03:04:05Z", "; " + renewed},
		{"no https", nil, with(func(j *JoinConfig) { j.LeaderAPIServer = "10.0.0.1:6443" }),
			`leaderAPIServer: "10.0.0.1:6443" is not the https URL`, "such as https://10.0.0.1:6443"},
		{"nobody there", nil, with(func(j *JoinConfig) { j.LeaderAPIServer = "https://127.0.0.1:1" }),
			"leaderAPIServer https://127.0.0.1:1: it cannot be reached from here",
			"; correct it, or open the way, or join with --skip-leader-check if only the member cluster reaches the leader"},
		{"a name that its certificate is not for", nil, with(func(j *JoinConfig) {
			j.LeaderAPIServer, j.Secret.Data["ca.crt"] = misnamed.URL, otherCA
		}), "leaderAPIServer " + misnamed.URL + ": ", "; use a name or address that its certificate is for"},
		{"no leader", nil, elsewhere,
			"does not serve memberclusterannounces of multicluster.crd.antrea.io/v1alpha1 (it has no version of that group)",
			leaders},
		{"a leader of another version", serves("v1beta1", "memberclusterannounces", "resourceexports", "resourceimports"),
			elsewhere,
			"leaderAPIServer " + other.Host +
				": this cluster does not serve memberclusterannounces of multicluster.crd.antrea.io/v1alpha1 (it has v1beta1)",
			leaders},
		{"a leader that lacks a kind", serves("v1alpha1", "memberclusterannounces", "resourceexports"), elsewhere,
			"leaderAPIServer " + other.Host +
				": this cluster does not serve resourceimports of multicluster.crd.antrea.io/v1alpha1 (it has that version " +
				"without this kind)", leaders},
		{"another Namespace", nil, with(func(j *JoinConfig) { j.LeaderNamespace = "elsewhere" }),
			"leaderNamespace elsewhere: ", " in the leader at " + w.config.Host +
				"; correct it: it is the Namespace of the leader's ClusterSet"},
		{"a token that may do nothing", nil, powerless,
			"Secret kube-system/east-token, key token: it may not be used in leaderNamespace antrea-multicluster: ",
			"; correct leaderNamespace, or " + renewed},
		{"no such Secret", nil, with(func(j *JoinConfig) { j.TokenSecretName = "none" }),
			"tokenSecretName: there is no Secret none in Namespace kube-system of the member",
			"; create it with the keys ca.crt and token, or give its manifest with --token-secret-file"},
		{"half a Secret", nil, with(func(j *JoinConfig) { j.TokenSecretName = "half" }), "Secret half has no key token",
			"; make it again with `mc create membertoken`"},
		{"an ID that is none", nil, with(func(j *JoinConfig) { j.ClusterID = "a/b" }), `invalid ClusterID "a/b": `, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w.t = t
			if row.prepare != nil {
				row.prepare(t)
			}
			err := w.Join(ctx, row.join)
			w.wants(err, row.want)
			if !strings.HasSuffix(fmt.Sprint(err), row.remedy) {
				t.Errorf("have error %v\nwant it to end with %q", err, row.remedy)
			}
			if w.has(&mcv1alpha2.ClusterSet{}, "kube-system", "set") || w.has(&corev1.Secret{}, "kube-system", "east-token") {
				t.Error("something was made")
			}
		})
	}
	w.t = t
	asked := 0
	w.WrapLeader = func(next http.RoundTripper) http.RoundTripper { asked++; return next }
	if err := w.checkLeader(ctx, &good); err != nil || asked == 0 {
		t.Errorf("what is right is refused: %v, or asked by %d transports that are not wrapped", err, asked)
	}
}

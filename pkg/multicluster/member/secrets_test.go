package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// secretsTransport answers reads of Secrets for an API server that cannot decrypt them, while broken is set.
type secretsTransport struct {
	to     http.RoundTripper
	broken *atomic.Bool
}

func (s *secretsTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if s.broken.Load() && q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/secrets/") {
		return apiserver.Refusal(q, http.StatusInternalServerError, "InternalError", "unable to transform key"), nil
	}
	return s.to.RoundTrip(q)
}

// TestSecretFailures reads a Secret of an API server that is overloaded, and one that is away.
func TestSecretFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := derive.Object{Namespace: "kube-system", Name: "east-token"}
		busy, away := apierrors.NewTooManyRequests("busy", 1), &url.Error{Op: "Get", Err: io.EOF}
		f := secretFailures{}
		begun, reads := time.Now(), 0
		for lasting := false; !lasting; reads++ {
			var wait time.Duration
			if wait, lasting = f.took(k, busy); !lasting {
				time.Sleep(wait)
			}
		}
		if took := time.Since(begun); took < secretPoll || took > 2*secretPoll || reads > 7 {
			t.Errorf("%d reads in %s", reads, took)
		}
		// After an outage it is another failure.
		if wait, lasting := f.took(k, away); wait != secretPoll || lasting {
			t.Errorf("an API server that is away: read again in %s, a fault of the ClusterSet: %v", wait, lasting)
		}
		if wait, lasting := f.took(k, busy); wait != retry.Least || lasting {
			t.Errorf("after that: read again in %s, a fault of the ClusterSet: %v", wait, lasting)
		}
		if wait, lasting := f.took(k, nil); wait != secretPoll || lasting || len(f) != 0 {
			t.Errorf("a read: again in %s, a fault of the ClusterSet: %v, %v", wait, lasting, f)
		}
	})
}

// admission creates the admission policies of the member's manifest.
func (w *world) admission(manifest []byte) {
	w.t.Helper()
	policies := 0
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			w.t.Fatal(err)
		}
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			policies++
			w.create(w.member, o)
		}
	}
	if policies != 8 {
		w.t.Fatalf("the manifest has %d objects for admission", policies)
	}
}

// TestSecretAccess restricts the member controller to the Secret that its ClusterSet names. RBAC and the admission
// policies of its manifest refuse every other Secret, whatever rules the controller writes.
func TestSecretAccess(t *testing.T) {
	t.Parallel()
	admin := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}}).Config
	w := &world{t: t, leaderConfig: admin, memberConfig: admin, config: config.Default()}
	text, err := os.ReadFile("../../../deploy/multicluster/antrea-multicluster-member.yml")
	if err != nil {
		t.Fatal(err)
	}
	if w.member, err = client.New(admin, client.Options{Scheme: Scheme()}); err != nil {
		t.Fatal(err)
	}
	own, err := client.New(apiserver.Access(t, admin, text), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w.admission(text)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: meta("kube-system", name),
			Data: map[string][]byte{"ca.crt": admin.CAData, "token": []byte("token")}}
	}
	set := clusterSet(admin.Host)
	w.create(w.member, set, secret("east-token"), secret("other"), secret("third"))
	var broken atomic.Bool
	w.transport = func(to http.RoundTripper) http.RoundTripper { return &secretsTransport{to, &broken} }
	w.startMember()

	// reads reads a Secret with the controller's account.
	reads := func(name string) error {
		return own.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: name}, &corev1.Secret{})
	}
	denied := func(name string) {
		t.Helper()
		if err := reads(name); !apierrors.IsForbidden(err) {
			t.Errorf("read Secret %s: %v", name, err)
		}
	}
	named := func(name string) {
		t.Helper()
		w.eventually("the controller may read "+name, func(context.Context) error { return reads(name) })
	}
	// refused expects admission to refuse a write of the controller's account.
	refused := func(what, want string, write func() error) {
		t.Helper()
		w.eventually(what+" is refused", func(context.Context) error {
			if err := write(); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("want %q: %w", want, err)
			}
			return nil
		})
	}
	named("east-token")
	denied("other")
	denied("absent")
	if err := own.List(t.Context(), &corev1.SecretList{}, client.InNamespace("kube-system")); !apierrors.IsForbidden(err) {
		t.Errorf("list Secrets: %v", err)
	}
	role := &rbacv1.Role{}
	write := func(rule rbacv1.PolicyRule) error {
		if err := own.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: secretsRole}, role); err != nil {
			return err
		}
		role.Rules = []rbacv1.PolicyRule{rule}
		return own.Update(t.Context(), role)
	}
	rule := func(names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: names,
		}
	}
	more, others := rule("east-token"), rule("east-token")
	more.Verbs, others.Resources = []string{"get", "update"}, []string{"pods/exec"}
	const byName = "may only let itself get Secrets by name"
	refused("another Secret", "may only let itself get the Secrets in spec.leaders of ClusterSet set",
		func() error { return write(rule("east-token", "other")) })
	refused("all Secrets", byName, func() error { return write(rule()) })
	refused("another verb", byName, func() error { return write(more) })
	refused("another kind", byName, func() error { return write(others) })
	const notLeaders = "ClusterSet set: spec.leaders: the multi-cluster controller may not change it"
	refused("another leader's Secret", notLeaders, func() error {
		have := &mcv1alpha2.ClusterSet{}
		if err := own.Get(t.Context(), client.ObjectKeyFromObject(set), have); err != nil {
			return err
		}
		have.Spec.Leaders[0].Secret = "other"
		return own.Update(t.Context(), have)
	})

	binding := &rbacv1.RoleBinding{}
	err = w.member.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: secretsRole}, binding)
	if err != nil {
		t.Fatal(err)
	}
	w.clusterSetNotReady("the member has read its Secret", "key token: the leader does not know it")
	w.delete(w.member, binding)
	w.eventIs("set", "SecretNotReadable") // the member stays joined with the content that it has read
	w.update(w.member, set, func() { set.Spec.Leaders[0].Secret = "other" })
	w.clusterSetNotReady("a Secret that may not be read", "Secret kube-system/other may not be read: ", "forbidden",
		": apply antrea-multicluster-member.yml again",
		"or let ServiceAccount antrea-mc-controller get this Secret")
	binding.ResourceVersion, binding.UID = "", ""
	w.create(w.member, binding)
	named("other")
	denied("east-token")
	broken.Store(true)
	w.update(w.member, set, func() { set.Spec.Leaders[0].Secret = "third" })
	w.clusterSetNotReady("a Secret whose reading fails", "Secret kube-system/third cannot be read: ",
		"unable to transform key", ": check the API server of this cluster and its storage")
	broken.Store(false)
	w.clusterSetNotReady("a Secret that can be read again",
		"Secret kube-system/third, key token: the leader does not know it")
	w.delete(w.member, set)
	w.eventually("without a ClusterSet the controller reads none", func(context.Context) error {
		if err := reads("other"); !apierrors.IsForbidden(err) {
			return fmt.Errorf("read Secret other: %w", err)
		}
		return nil
	})
	refused("all Secrets without a ClusterSet", byName, func() error { return write(rule()) })
}

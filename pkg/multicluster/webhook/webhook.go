// Package webhook decides what may be written to the multi-cluster API: one ClusterSet in a Namespace, members that
// write only as themselves, and derived names that fit.
//
// A member is known by the ServiceAccount whose token it uses. The annotation multicluster.antrea.io/cluster-id binds
// that account to one cluster ID. An account without it may make one announcement, of an ID that no other account is
// bound to, and acts for that member from then on. Admission records the account in the announcement, and the leader's
// controller writes the binding (package binding).
//
// The webhooks write nothing. Any client that reaches their port can send them forged requests. So an answer must have
// no effect unless the API server acts on it.
package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/certs"
)

// Role names the controller that serves the webhooks: leader or member.
type Role string

// Roles, as the label "role" of the webhook configurations has them.
const (
	Leader Role = "leader"
	Member Role = "member"
)

// CertificateNames returns the names of the objects that a role's controller in a Namespace keeps its certificate with.
func CertificateNames(role Role, namespace string) certs.Names {
	return certs.Names{
		Service: "antrea-mc-webhook-service", Secret: "antrea-mc-webhook-tls", ConfigMap: "antrea-mc-ca",
		Configurations: map[string]string{"app": "antrea", "served-by": "antrea-mc-controller", "role": string(role),
			"served-in": namespace},
		Manifest: "the manifest of the " + string(role),
	}
}

const pathSuffix = "-multicluster-crd-antrea-io-"

// SetupWithManager serves the webhooks of one role for a Namespace. The scheme must have the kinds of the multi-cluster
// API and of core/v1. The manager's webhook server must use the certificate of a Certificate.
func SetupWithManager(mgr ctrl.Manager, scheme *runtime.Scheme, role Role, namespace string) error {
	live, err := client.New(mgr.GetConfig(),
		client.Options{Scheme: scheme, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("set up the webhooks' client: %w", err)
	}
	h := &handlers{client: live, decoder: admission.NewDecoder(scheme), namespace: namespace, role: role,
		limits: newLimits(time.Now)}
	if role == Leader {
		if err := h.limits.watch(mgr, namespace); err != nil {
			return err
		}
	}
	for path, f := range h.paths() {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: f})
	}
	return nil
}

// paths returns the webhooks that a role serves.
func (h *handlers) paths() map[string]admission.HandlerFunc {
	const validate, mutate = "/validate" + pathSuffix, "/mutate" + pathSuffix
	paths := map[string]admission.HandlerFunc{
		validate + "v1alpha2-clusterset":   h.clusterSet,
		validate + "v1alpha2-clusterclaim": h.clusterClaim,
	}
	if h.role == Member {
		paths[validate+"v1alpha1-gateway"] = h.gateway
		return paths
	}
	paths[validate+"v1alpha1-memberclusterannounce"] = h.announce
	paths[mutate+"v1alpha1-memberclusterannounce"] = h.markAnnounce
	paths[validate+"v1alpha1-resourceexport"] = h.resourceExport
	paths[mutate+"v1alpha1-resourceexport"] = h.markResourceExport
	paths["/validate--v1-event"] = h.event
	paths["/mutate--v1-event"] = h.markEvent
	return paths
}

// handlers answer the API server. They read directly from the API server and not from a cache: a decision on an old
// state could give one ID to two members.
type handlers struct {
	client    client.Reader
	decoder   admission.Decoder
	namespace string
	role      Role
	limits    *limits
}

// caller splits the name of a ServiceAccount's user. ok is false for other users.
func caller(user string) (namespace, name string, ok bool) {
	rest, found := strings.CutPrefix(user, "system:serviceaccount:")
	if !found {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != ""
}

// account reads the ServiceAccount of a caller. A nil answer is no refusal.
func (h *handlers) account(ctx context.Context, name string) (*corev1.ServiceAccount, *admission.Response) {
	account := &corev1.ServiceAccount{}
	err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, account)
	switch {
	case apierrors.IsNotFound(err):
		r := admission.Errored(http.StatusPreconditionFailed, fmt.Errorf("ServiceAccount %s/%s not found", h.namespace, name))
		return nil, &r
	case err != nil:
		r := admission.Errored(http.StatusInternalServerError,
			fmt.Errorf("get ServiceAccount %s/%s: %w", h.namespace, name, err))
		return nil, &r
	}
	return account, nil
}

// area reads all accounts and announcements of the Namespace. A nil answer is no refusal.
func (h *handlers) area(ctx context.Context) ([]*corev1.ServiceAccount, []*mcv1alpha1.MemberClusterAnnounce,
	*admission.Response) {
	var accounts corev1.ServiceAccountList
	var announces mcv1alpha1.MemberClusterAnnounceList
	for _, list := range []struct {
		kinds string
		into  client.ObjectList
	}{{"ServiceAccounts", &accounts}, {"MemberClusterAnnounces", &announces}} {
		if err := h.client.List(ctx, list.into, client.InNamespace(h.namespace)); err != nil {
			r := admission.Errored(http.StatusInternalServerError,
				fmt.Errorf("list %s of Namespace %s: %w", list.kinds, h.namespace, err))
			return nil, nil, &r
		}
	}
	return pointers(accounts.Items), pointers(announces.Items), nil
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func denied(format string, args ...any) admission.Response {
	return admission.Denied(fmt.Sprintf(format, args...))
}

func badRequest(err error) admission.Response {
	return admission.Errored(http.StatusBadRequest, err)
}

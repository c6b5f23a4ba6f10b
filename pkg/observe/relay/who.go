package relay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Bounds of reviews. A right that is taken away ends within the times.
const (
	reviewLimit = 5 * time.Second
	reviewsMost = 64 // at a time
	cached      = 4096
	userKept    = time.Minute
	allowedKept = time.Minute
	deniedKept  = 5 * time.Second
	maxToken    = 16 << 10
)

// nodeName is the key of a token's claim with the Node of the Pod for which the token was issued. API servers since
// 1.30 set it.
const nodeName = "authentication.kubernetes.io/node-name"

// user is who asks.
type user struct {
	authentication.UserInfo
	key string // of caches
}

// reviewer asks the API server about tokens and rights.
type reviewer struct {
	tokens  authenticationv1.TokenReviewInterface
	access  authorizationv1.SubjectAccessReviewInterface
	agents  string
	known   *cache.LRUExpireCache // user by the hash of a token; nil for a token that is not good
	rights  *cache.LRUExpireCache // bool by user and right
	slots   chan struct{}
	reviews *prometheus.CounterVec
}

func newReviewer(t authenticationv1.TokenReviewInterface, a authorizationv1.SubjectAccessReviewInterface,
	agents string) *reviewer {
	return &reviewer{
		tokens: t, access: a, agents: agents, known: cache.NewLRUExpireCache(cached),
		rights: cache.NewLRUExpireCache(cached), slots: make(chan struct{}, reviewsMost),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tombolo_observe_relay_reviews_total",
			Help: "Questions to the API server about tokens and rights, by kind and result."}, []string{"kind", "result"}),
	}
}

// node returns the Node that a token of an agent was issued for.
func (r *reviewer) node(ctx context.Context, q *http.Request) (string, error) {
	token, err := bearer(q)
	if err != nil {
		return "", err
	}
	u, err := r.review(ctx, token, []string{api.RelayAudience})
	switch {
	case err != nil:
		return "", err
	case u == nil:
		return "", failed(http.StatusUnauthorized, "the token is not good for the audience %s", api.RelayAudience)
	case u.Username != r.agents:
		return "", failed(http.StatusForbidden, "%s is not the ServiceAccount of agents, which is %s", u.Username, r.agents)
	case len(u.Extra[nodeName]) != 1 || u.Extra[nodeName][0] == "":
		return "", failed(http.StatusForbidden, "the token names no Node: use the token that the kubelet projects into the "+
			"agent's Pod; Kubernetes 1.31 is needed")
	}
	return u.Extra[nodeName][0], nil
}

// user returns who asks.
func (r *reviewer) user(ctx context.Context, q *http.Request) (user, error) {
	token, err := bearer(q)
	if err != nil {
		return user{}, err
	}
	key := sha256.Sum256([]byte(token))
	known, ok := r.known.Get(key)
	if !ok {
		u, err := r.review(ctx, token, []string{api.RelayAudience})
		if err == nil && u == nil {
			u, err = r.review(ctx, token, nil) // a token for the API server
		}
		if err != nil {
			return user{}, err
		}
		known = u
		kept := userKept
		if u == nil {
			kept = deniedKept
		}
		r.known.Add(key, known, kept)
	}
	u := known.(*authentication.UserInfo)
	if u == nil {
		return user{}, failed(http.StatusUnauthorized, "the API server does not know the token: it has ended, or it is for "+
			"another audience than %s", api.RelayAudience)
	}
	text, err := json.Marshal(u)
	if err != nil {
		return user{}, err
	}
	return user{*u, string(text)}, nil
}

// bearer returns the token of a request.
func bearer(q *http.Request) (string, error) {
	token, ok := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > maxToken {
		return "", failed(http.StatusUnauthorized, "a bearer token is needed: kubectl create token -n %s %s --audience %s",
			api.RelayNamespace, api.ObserverAccount, api.RelayAudience)
	}
	return token, nil
}

// slot waits until a review may be made.
func (r *reviewer) slot(ctx context.Context) (free func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, failed(http.StatusServiceUnavailable, "too many tokens wait for their review; try again")
	}
}

// review returns whose a token is, or nil if it is not good for any of the audiences.
func (r *reviewer) review(ctx context.Context, token string, audiences []string) (*authentication.UserInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewLimit)
	defer cancel()
	free, err := r.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	answer, err := r.tokens.Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		r.reviews.WithLabelValues("token", "failed").Inc()
		return nil, failed(http.StatusServiceUnavailable, "the API server cannot review the token: %s", err)
	}
	// An API server that knows no audiences returns none.
	if !answer.Status.Authenticated || len(audiences) > 0 && len(answer.Status.Audiences) == 0 {
		r.reviews.WithLabelValues("token", "denied").Inc()
		return nil, nil
	}
	r.reviews.WithLabelValues("token", "allowed").Inc()
	return &answer.Status.User, nil
}

// may reports whether a user has a right.
func (r *reviewer) may(ctx context.Context, u user, a api.Access, name string) (bool, error) {
	key := u.key + "\x00" + a.Resource + "\x00" + a.Verb + "\x00" + a.Namespace + "\x00" + name
	if known, ok := r.rights.Get(key); ok {
		return known.(bool), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewLimit)
	defer cancel()
	free, err := r.slot(ctx)
	if err != nil {
		return false, err
	}
	defer free()
	extra := map[string]authorization.ExtraValue{}
	for k, v := range u.Extra {
		extra[k] = authorization.ExtraValue(v)
	}
	resource, sub, _ := strings.Cut(a.Resource, "/")
	answer, err := r.access.Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User: u.Username, Groups: u.Groups, UID: u.UID, Extra: extra,
		ResourceAttributes: &authorization.ResourceAttributes{Group: a.Group, Resource: resource, Subresource: sub,
			Verb: a.Verb, Namespace: a.Namespace, Name: name},
	}}, metav1.CreateOptions{})
	if err != nil {
		r.reviews.WithLabelValues("access", "failed").Inc()
		return false, failed(http.StatusServiceUnavailable, "the API server cannot review the access of %s: %s", u.Username,
			err)
	}
	kept, result := deniedKept, "denied"
	if answer.Status.Allowed {
		kept, result = allowedKept, "allowed"
	}
	r.reviews.WithLabelValues("access", result).Inc()
	r.rights.Add(key, answer.Status.Allowed, kept)
	return answer.Status.Allowed, nil
}

// denied returns the answer to a user who lacks a right.
func denied(u user, a api.Access) *failure {
	f := &failure{status: http.StatusForbidden, need: &a}
	f.text = u.Username + " may not " + a.Verb + " " + a.Resource + " of " + a.Group
	if a.Namespace != "" {
		f.text += " in Namespace " + a.Namespace
	}
	f.text += ": ask an administrator for a role with this right"
	return f
}

// need requires a right of a user.
func (r *reviewer) need(ctx context.Context, u user, a api.Access, name string) error {
	if ok, err := r.may(ctx, u, a, name); err != nil || !ok {
		if err == nil {
			err = denied(u, a)
		}
		return err
	}
	return nil
}

// Rights that readers need.
var (
	flowsAccess   = api.Access{Group: api.AccessGroup, Resource: "flows", Verb: "list"}
	nodesAccess   = api.Access{Group: api.AccessGroup, Resource: "nodes", Verb: "list"}
	proxyAccess   = api.Access{Group: api.AccessGroup, Resource: "nodes/proxy", Verb: "get"}
	metricsAccess = api.Access{Group: api.AccessGroup, Resource: "metrics", Verb: "get"}
)

// allow requires a right of who has sent a request.
func (r *Relay) allow(q *http.Request, a api.Access) error {
	u, err := r.who.user(q.Context(), q)
	if err != nil {
		return err
	}
	return r.who.need(q.Context(), u, a, q.PathValue("node"))
}

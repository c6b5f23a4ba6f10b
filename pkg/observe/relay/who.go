package relay

import (
	"context"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	authorization "k8s.io/api/authorization/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/reviews"
)

// nodeName is the key of a token's claim with the Node of the Pod for which the token was issued. API servers since
// 1.30 set it.
const nodeName = "authentication.kubernetes.io/node-name"

// user is who asks.
type user = reviews.User

// reviewer asks the API server about tokens and rights.
type reviewer struct {
	*reviews.Reviewer
	agents  string
	reviews *prometheus.CounterVec
}

func newReviewer(t authenticationv1.TokenReviewInterface, a authorizationv1.SubjectAccessReviewInterface,
	agents string) *reviewer {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tombolo_observe_relay_reviews_total",
		Help: "Questions to the API server about tokens and rights, by kind and result."}, []string{"kind", "result"})
	return &reviewer{agents: agents, reviews: count,
		Reviewer: reviews.New(t, a, func(kind, result string) { count.WithLabelValues(kind, result).Inc() })}
}

// node returns the Node that a token of an agent was issued for.
func (r *reviewer) node(ctx context.Context, q *http.Request) (string, error) {
	token, err := bearer(q)
	if err != nil {
		return "", err
	}
	u, err := r.Token(ctx, token, []string{api.RelayAudience})
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
	u, err := r.User(ctx, token, []string{api.RelayAudience}, nil) // or a token for the API server
	if err != nil {
		return user{}, err
	}
	if u == nil {
		return user{}, failed(http.StatusUnauthorized, "the API server does not know the token: it has ended, or it is for "+
			"another audience than %s", api.RelayAudience)
	}
	return *u, nil
}

// bearer returns the token of a request.
func bearer(q *http.Request) (string, error) {
	token, ok := reviews.Bearer(q)
	if !ok {
		return "", failed(http.StatusUnauthorized, "a bearer token is needed: kubectl create token -n %s %s --audience %s",
			api.RelayNamespace, api.ObserverAccount, api.RelayAudience)
	}
	return token, nil
}

// may reports whether a user has a right.
func (r *reviewer) may(ctx context.Context, u user, a api.Access, name string) (bool, error) {
	resource, sub, _ := strings.Cut(a.Resource, "/")
	return r.May(ctx, u, reviews.Right{Resource: authorization.ResourceAttributes{Group: a.Group, Resource: resource,
		Subresource: sub, Verb: a.Verb, Namespace: a.Namespace, Name: name}})
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

// Package reviews asks an API server whose a bearer token is, and what its user may do. Programs that serve more than
// this machine use it. Answers are remembered for a short time, and few questions are open at a time, so that senders
// of bad tokens cannot flood the API server.
package reviews

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Bounds of reviews. A right that is taken away ends within the times.
const (
	limit       = 5 * time.Second
	most        = 64 // at a time
	cached      = 4096
	userKept    = time.Minute
	allowedKept = time.Minute
	deniedKept  = 5 * time.Second
	maxToken    = 16 << 10
)

// User is the sender of a request.
type User struct {
	authentication.UserInfo
	key string // of caches
}

// Right is a right that a user may have: to a resource, or to a path.
type Right struct {
	Resource authorization.ResourceAttributes
	Path     authorization.NonResourceAttributes // counts if it has a path
}

// Reviewer asks an API server.
type Reviewer struct {
	tokens authenticationv1.TokenReviewInterface
	access authorizationv1.SubjectAccessReviewInterface
	count  func(kind, result string)
	known  *cache.LRUExpireCache // *authentication.UserInfo by the hash of a token; nil for a token that is not good
	rights *cache.LRUExpireCache // bool by user and right
	slots  chan struct{}
}

// Clients returns the clients with which a Reviewer asks the API server. If http is nil, the clients open their own
// connections.
func Clients(config *rest.Config, http *http.Client) (authenticationv1.TokenReviewInterface,
	authorizationv1.SubjectAccessReviewInterface, error) {
	if http == nil {
		var err error
		if http, err = rest.HTTPClientFor(config); err != nil {
			return nil, nil, fmt.Errorf("make the client for reviews: %w", err)
		}
	}
	tokens, err := authenticationv1.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for reviews of tokens: %w", err)
	}
	access, err := authorizationv1.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for reviews of access: %w", err)
	}
	return tokens.TokenReviews(), access.SubjectAccessReviews(), nil
}

// New returns a Reviewer. It calls count after each question to the API server, with the kind "token" or "access", and
// the result "allowed", "denied" or "failed".
func New(tokens authenticationv1.TokenReviewInterface, access authorizationv1.SubjectAccessReviewInterface,
	count func(kind, result string)) *Reviewer {
	return &Reviewer{tokens: tokens, access: access, count: count, known: cache.NewLRUExpireCache(cached),
		rights: cache.NewLRUExpireCache(cached), slots: make(chan struct{}, most)}
}

// Bearer returns the token of a request; false without a token that could be good.
func Bearer(q *http.Request) (string, bool) {
	token, ok := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	return token, ok && token != "" && len(token) <= maxToken
}

// User returns whose a token is. The token is good for one of the lists of audiences; an empty list is for the API
// server. It returns nil if the API server does not accept the token.
func (r *Reviewer) User(ctx context.Context, token string, audiences ...[]string) (*User, error) {
	key := sha256.Sum256([]byte(token))
	known, ok := r.known.Get(key)
	if !ok {
		var u *authentication.UserInfo
		for _, list := range audiences {
			var err error
			if u, err = r.Token(ctx, token, list); err != nil {
				return nil, err
			}
			if u != nil {
				break
			}
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
		return nil, nil
	}
	text, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	return &User{*u, string(text)}, nil
}

// slot waits until a review may be made.
func (r *Reviewer) slot(ctx context.Context) (free func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, errors.New("too many tokens wait for their review; try again")
	}
}

// Token asks whose a token is, and remembers nothing. It returns nil if the token is not good for any of the audiences.
func (r *Reviewer) Token(ctx context.Context, token string, audiences []string) (*authentication.UserInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	free, err := r.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	answer, err := r.tokens.Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		r.count("token", "failed")
		return nil, fmt.Errorf("the API server cannot review the token: %w", err)
	}
	// An API server that knows no audiences returns none.
	if !answer.Status.Authenticated || len(audiences) > 0 && len(answer.Status.Audiences) == 0 {
		r.count("token", "denied")
		return nil, nil
	}
	r.count("token", "allowed")
	return &answer.Status.User, nil
}

// May reports whether a user has a right.
func (r *Reviewer) May(ctx context.Context, u User, right Right) (bool, error) {
	key := strings.Join([]string{u.key, right.Resource.String(), right.Path.String()}, "\x00")
	if known, ok := r.rights.Get(key); ok {
		return known.(bool), nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
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
	spec := authorization.SubjectAccessReviewSpec{User: u.Username, Groups: u.Groups, UID: u.UID, Extra: extra}
	if right.Path.Path != "" {
		spec.NonResourceAttributes = &right.Path
	} else {
		spec.ResourceAttributes = &right.Resource
	}
	answer, err := r.access.Create(ctx, &authorization.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		r.count("access", "failed")
		return false, fmt.Errorf("the API server cannot review the access of %s: %w", u.Username, err)
	}
	kept, result := deniedKept, "denied"
	if answer.Status.Allowed {
		kept, result = allowedKept, "allowed"
	}
	r.count("access", result)
	r.rights.Add(key, answer.Status.Allowed, kept)
	return answer.Status.Allowed, nil
}

// Guard lets requests to next whose user may use their path, as for the API server's own paths: a role with
// nonResourceURLs and the method as verb.
func (r *Reviewer) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		token, ok := Bearer(q)
		if !ok {
			http.Error(w, "a bearer token of a ServiceAccount of this cluster is needed", http.StatusUnauthorized)
			return
		}
		u, err := r.User(q.Context(), token, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if u == nil {
			http.Error(w, "the API server does not accept the token: it has ended, or it is for another audience",
				http.StatusUnauthorized)
			return
		}
		right := authorization.NonResourceAttributes{Path: q.URL.Path, Verb: strings.ToLower(q.Method)}
		switch ok, err := r.May(q.Context(), *u, Right{Path: right}); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !ok:
			http.Error(w, fmt.Sprintf("%s may not %s %s: give it a ClusterRole with nonResourceURLs: [%s] and verbs: [%s]",
				u.Username, right.Verb, right.Path, right.Path, right.Verb), http.StatusForbidden)
		default:
			next.ServeHTTP(w, q)
		}
	})
}

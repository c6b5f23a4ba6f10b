package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// RelayLabels select the Pods of the relay.
const RelayLabels = "app=tombolo,component=" + api.RelayService

// maxError is the largest text of an error that is read.
const maxError = 64 << 10

// Relay is a cluster's relay, reached by a port that the API server forwards.
type Relay struct {
	cluster *Cluster
	pods    []string // that are ready
	web     *http.Client
}

// RelayDown is the error about a relay that is installed and that does not answer.
type RelayDown struct{ err error }

func (e *RelayDown) Error() string { return e.err.Error() }
func (e *RelayDown) Unwrap() error { return e.err }

// Relay returns the cluster's relay, or nil if it is not installed. The error is a RelayDown if no Pod of it is ready,
// or if the user may not look for its Pods.
func (c *Cluster) Relay(ctx context.Context) (*Relay, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	doing := "look for the relay"
	core, err := c.core()
	if err != nil {
		return nil, c.failed(doing, err)
	}
	pods, err := core.Pods(api.RelayNamespace).List(ctx, metav1.ListOptions{LabelSelector: RelayLabels})
	if apierrors.IsForbidden(err) {
		return nil, &RelayDown{fmt.Errorf("cluster %s: %s: %w; to use it, ask for the Role tombolo-observe-users in "+
			"Namespace %s", c.Name, doing, err, api.RelayNamespace)}
	}
	if err != nil {
		return nil, c.failed(doing, err)
	}
	if len(pods.Items) == 0 {
		return nil, nil
	}
	r := &Relay{cluster: c}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil && podReady(p) {
			r.pods = append(r.pods, p.Name)
		}
	}
	if len(r.pods) == 0 {
		return nil, &RelayDown{fmt.Errorf("cluster %s: no Pod of the relay is ready, of %d: look at `kubectl describe "+
			"pods -n %s -l %s`", c.Name, len(pods.Items), api.RelayNamespace, RelayLabels)}
	}
	if err := r.open(ctx, core); err != nil {
		return nil, &RelayDown{fmt.Errorf("cluster %s: reach the relay: %w", c.Name, err)}
	}
	return r, nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// open prepares the client: the relay's CA, and the token of its requests.
func (r *Relay) open(ctx context.Context, core corev1client.CoreV1Interface) error {
	m, err := core.ConfigMaps(api.RelayNamespace).Get(ctx, api.RelayCA, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read its CA: %w; ask for the Role tombolo-observe-users in Namespace %s", err, api.RelayNamespace)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(m.Data[api.RelayCAKey])) {
		return fmt.Errorf("ConfigMap %s/%s has no certificate: look at the log of the relay", api.RelayNamespace, api.RelayCA)
	}
	var next http.RoundTripper = &http.Transport{DisableKeepAlives: true,
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: api.RelayHost, MinVersion: tls.VersionTLS13},
	}
	next, err = r.authenticated(ctx, core, next)
	r.web = &http.Client{Transport: next}
	return err
}

// authenticated adds a token to requests to the relay. If the user may get one, it is a token of the ServiceAccount
// tombolo-observer, so that no token for the API server leaves this machine. Otherwise it is the user's own token.
func (r *Relay) authenticated(ctx context.Context, core corev1client.CoreV1Interface,
	next http.RoundTripper) (http.RoundTripper, error) {
	answer, err := core.ServiceAccounts(api.RelayNamespace).CreateToken(ctx, api.ObserverAccount,
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: []string{api.RelayAudience}}},
		metav1.CreateOptions{})
	if err == nil {
		return withToken{answer.Status.Token, next}, nil
	}
	config := rest.CopyConfig(r.cluster.Config)
	if config.Impersonate.UserName != "" || !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("make a token of ServiceAccount %s: %w", api.ObserverAccount, err)
	}
	own, wrapped := rest.HTTPWrappersForConfig(config, needsToken{next})
	return own, wrapped
}

// withToken adds a token to requests.
type withToken struct {
	token string
	next  http.RoundTripper
}

func (t withToken) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Header.Set("Authorization", "Bearer "+t.token)
	return t.next.RoundTrip(q)
}

// needsToken refuses requests of users without a token, such as users whom the API server authenticates by
// certificates.
type needsToken struct{ next http.RoundTripper }

func (t needsToken) RoundTrip(q *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(q.Header.Get("Authorization"), "Bearer ") {
		return nil, fmt.Errorf("this user has no bearer token, which the relay needs: ask for the right to create "+
			"serviceaccounts/token of %s in Namespace %s, or use a kubeconfig with a token", api.ObserverAccount,
			api.RelayNamespace)
	}
	return t.next.RoundTrip(q)
}

// dial forwards a port to one of the relay's Pods: the next one, if one does not answer.
func (r *Relay) dial(ctx context.Context) (net.Conn, error) {
	var failed []error
	for _, pod := range r.pods {
		conn, err := r.cluster.forward(ctx, api.RelayNamespace, pod, api.RelayPort)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, fmt.Errorf("Pod %s/%s: %w", api.RelayNamespace, pod, err)) //nolint:staticcheck // a kind
	}
	return nil, fmt.Errorf("%w; the user needs the verbs get and create for pods/portforward in Namespace %s",
		errors.Join(failed...), api.RelayNamespace)
}

// Stream copies the relay's answer to w, until the answer or ctx ends.
func (r *Relay) Stream(ctx context.Context, path string, query url.Values, w io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+api.RelayHost+target(path, query),
		http.NoBody)
	if err != nil {
		return err
	}
	answer, err := r.web.Do(request)
	if err != nil {
		return &RelayDown{fmt.Errorf("cluster %s: ask the relay for %s: %w", r.cluster.Name, path, errors.Unwrap(err))}
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return r.refused(path, answer)
	}
	if _, err = io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("cluster %s: read the relay's answer for %s: %w; ask again: another replica may answer",
			r.cluster.Name, path, err)
	}
	return nil
}

// refused is the error of an answer that is not 200, with the role that the user needs.
func (r *Relay) refused(path string, answer *http.Response) error {
	var body api.Error
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxError))
	if json.Unmarshal(text, &body) != nil || body.Error == "" {
		body.Error = answer.Status
	}
	err := fmt.Errorf("cluster %s: ask the relay for %s: %s", r.cluster.Name, path, body.Error)
	if body.Need != nil {
		return fmt.Errorf("%w\n# An administrator can give the right with this, bound to the user:\n%s", err,
			roleFor(*body.Need))
	}
	return err
}

// roleFor is the role with a right, as YAML.
func roleFor(a api.Access) string {
	name := "tombolo-observe-" + strings.ReplaceAll(a.Resource, "/", "-")
	rules := []rbacv1.PolicyRule{{APIGroups: []string{a.Group}, Resources: []string{a.Resource}, Verbs: []string{a.Verb}}}
	var role any = rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(),
		Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if a.Namespace != "" {
		role = rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name}, Rules: rules}
	}
	text, err := yaml.Marshal(role)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

package setup

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

const (
	// reachLimit is how long one request to the leader may take.
	reachLimit = 10 * time.Second
	// hookLimit is how long the leader's controller may take to answer, since it may have just been installed.
	hookLimit = 20 * time.Second
)

// checkLeader compares a join configuration with the leader before any object is made. The leader's API server has to
// be reachable with the CA and the token, has to serve the kinds that members write, and has to accept a trial of this
// member's announcement.
func (c Cluster) checkLeader(ctx context.Context, j *JoinConfig) error {
	secret, err := c.tokenSecret(ctx, j)
	if err != nil {
		return err
	}
	u, err := url.Parse(j.LeaderAPIServer)
	if err != nil || u.Host == "" || u.Scheme != "https" {
		return fmt.Errorf(
			"leaderAPIServer: %q is not the https URL of the leader's API server, such as https://10.0.0.1:6443",
			j.LeaderAPIServer)
	}
	l := leader{join: j, secret: "Secret " + j.Namespace + "/" + secret.Name,
		token: strings.TrimSpace(string(secret.Data[corev1.ServiceAccountTokenKey]))}
	ca := secret.Data[corev1.ServiceAccountRootCAKey]
	if _, err := cert.ParseCertsPEM(ca); err != nil {
		return fmt.Errorf(
			"%s, key ca.crt: %w: want the certificates of the leader's CA, in PEM; make the token again with `mc create "+
				"membertoken`", l.secret, err)
	}
	if err := l.checkToken(time.Now()); err != nil {
		return err
	}
	config := &rest.Config{Host: j.LeaderAPIServer, BearerToken: l.token, Timeout: reachLimit, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}, WrapTransport: c.WrapLeader}
	if err := l.checkServer(config); err != nil {
		return err
	}
	return l.checkAnnouncement(ctx, config)
}

// tokenSecret is the Secret that joining uses: one that the member has, or that is given.
func (c Cluster) tokenSecret(ctx context.Context, j *JoinConfig) (*corev1.Secret, error) {
	if j.TokenSecretName == "" {
		return j.Secret, nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.TokenSecretName}}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf(
			"tokenSecretName: there is no Secret %s in Namespace %s of the member; create it with the keys ca.crt and token, "+
				"or give its manifest with --token-secret-file", j.TokenSecretName, j.Namespace)
	}
	if err != nil {
		return nil, explain("read", "Secret", secret, err)
	}
	return secret, hasToken(secret)
}

// leader is the other side of a join.
type leader struct {
	join   *JoinConfig
	secret string // its name, for errors
	token  string
}

// claims are the contents of a ServiceAccount's token.
type claims struct {
	Expires    int64 `json:"exp"`
	Kubernetes struct {
		Namespace string `json:"namespace"`
	} `json:"kubernetes.io"`
	Namespace string `json:"kubernetes.io/serviceaccount/namespace"` // of tokens in Secrets
}

// readClaims reads a token without verifying it, since the leader does that. Tokens of other forms have no claims.
func readClaims(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c
	}
	if text, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
		_ = json.Unmarshal(text, &c)
	}
	return c
}

const renew = "make one with `mc create membertoken` in the leader cluster"

// checkToken finds faults in the token itself.
func (l leader) checkToken(now time.Time) error {
	c := readClaims(l.token)
	if expires := time.Unix(c.Expires, 0); c.Expires > 0 && now.After(expires) {
		return fmt.Errorf("%s, key token: it has expired on %s; %s", l.secret, expires.UTC().Format(time.RFC3339), renew)
	}
	namespace := c.Namespace
	if namespace == "" {
		namespace = c.Kubernetes.Namespace
	}
	if namespace != "" && namespace != l.join.LeaderNamespace {
		return fmt.Errorf(
			"%s, key token: it is of a ServiceAccount in Namespace %s, but leaderNamespace is %s; correct leaderNamespace, "+
				"or %s", l.secret, namespace, l.join.LeaderNamespace, renew)
	}
	return nil
}

// checkServer reaches the leader's API server, and looks for the kinds that members write.
func (l leader) checkServer(config *rest.Config) error {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("leaderAPIServer %s: %w", l.join.LeaderAPIServer, err)
	}
	if _, err := d.ServerVersion(); err != nil {
		return l.explain(err)
	}
	version := mcv1alpha1.GroupVersion
	list, err := d.ServerResourcesForGroupVersion(version.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return l.explain(err)
	}
	served := map[string]bool{}
	if err == nil {
		for _, r := range list.APIResources {
			served[r.Name] = true
		}
	}
	for _, kind := range []string{"memberclusterannounces", "resourceexports", "resourceimports"} {
		if served[kind] {
			continue
		}
		has := "no version of that group"
		if len(served) > 0 {
			has = "that version without this kind"
		} else if groups, err := d.ServerGroups(); err == nil {
			for _, g := range groups.Groups {
				if g.Name == version.Group {
					var versions []string
					for _, v := range g.Versions {
						versions = append(versions, v.Version)
					}
					has = strings.Join(versions, ", ")
				}
			}
		}
		return fmt.Errorf(
			"leaderAPIServer %s: this cluster does not serve %s of %s (it has %s): is it the leader, with the leader's "+
				"manifest of a version that members of this one understand? (mc deploy leadercluster)", l.join.LeaderAPIServer,
			kind, version, has)
	}
	return nil
}

// checkAnnouncement asks the leader whether it would accept this member, without making any object there.
func (l leader) checkAnnouncement(ctx context.Context, config *rest.Config) error {
	to, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return l.explain(err)
	}
	waited := wait.PollUntilContextTimeout(ctx, time.Second, hookLimit, true, func(ctx context.Context) (bool, error) {
		err = to.Create(ctx, &mcv1alpha1.MemberClusterAnnounce{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.join.LeaderNamespace,
				Name: multicluster.AnnounceName(l.join.ClusterID)},
			ClusterID:       l.join.ClusterID,
			ClusterSetID:    l.join.ClusterSetID,
			LeaderClusterID: l.join.LeaderClusterID,
		}, client.DryRunAll)
		return !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) &&
			!apierrors.IsTooManyRequests(err), nil
	})
	switch {
	case err == nil && waited != nil:
		return fmt.Errorf("ask the leader at %s: %w", l.join.LeaderAPIServer, waited)
	case err == nil, apierrors.IsAlreadyExists(err): // it has been a member before
		return nil
	}
	return l.explain(err)
}

// explain names the fault and its field, as far as an error has them.
func (l leader) explain(err error) error {
	at := "leaderAPIServer " + l.join.LeaderAPIServer
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unreachable *url.Error
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf(
			"%s, key ca.crt: it is not the CA of %s (%w); the token is of another cluster, or leaderAPIServer is another "+
				"one; %s", l.secret, l.join.LeaderAPIServer, err, renew)
	case errors.As(err, &host), errors.As(err, &invalid):
		return fmt.Errorf("%s: %w; use a name or address that its certificate is for", at, err)
	case errors.As(err, &unreachable):
		return fmt.Errorf(
			"%s: it cannot be reached from here: %w; correct it, or open the way, or join with --skip-leader-check if only "+
				"the member cluster reaches the leader", at, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf(
			"%s, key token: the leader at %s does not know it (%w): it is of another cluster, was deleted or has expired; %s",
			l.secret, l.join.LeaderAPIServer, err, renew)
	case strings.Contains(err.Error(), "admission webhook"), apierrors.IsInvalid(err):
		return fmt.Errorf("the leader would not take this member: clusterID %s, clusterSetID %s, leaderClusterID %s: %w",
			l.join.ClusterID, l.join.ClusterSetID, l.join.LeaderClusterID, err)
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err):
		return fmt.Errorf(
			"the leader's controller does not answer: does Deployment antrea-mc-controller run in Namespace %s of the "+
				"leader? %w", l.join.LeaderNamespace, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf(
			"leaderNamespace %s: %w in the leader at %s; correct it: it is the Namespace of the leader's ClusterSet",
			l.join.LeaderNamespace, err, l.join.LeaderAPIServer)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s, key token: it may not be used in leaderNamespace %s: %w; correct leaderNamespace, or %s",
			l.secret, l.join.LeaderNamespace, err, renew)
	}
	return fmt.Errorf("ask the leader at %s: %w", l.join.LeaderAPIServer, err)
}

// hasToken returns an error that names the missing key of a token's Secret.
func hasToken(secret *corev1.Secret) error {
	for _, key := range []string{corev1.ServiceAccountRootCAKey, corev1.ServiceAccountTokenKey} {
		if len(bytes.TrimSpace(secret.Data[key])) == 0 {
			return fmt.Errorf("Secret %s has no key %s; "+ //nolint:staticcheck // a kind's name
				"make it again with `mc create membertoken`", secret.Name, key)
		}
	}
	return nil
}

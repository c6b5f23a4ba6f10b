// Package certs keeps the certificate of a controller's TLS server: it makes, renews and publishes it.
package certs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	caKey = "ca.crt" // of the ConfigMap

	// Keys of the Secret: the certificate in use, its successor, and its predecessors.
	nextCertKey, nextKeyKey = "next.crt", "next.key"
	previousKey             = "previous.crt"

	validFor    = 365 * 24 * time.Hour
	renewBefore = 90 * 24 * time.Hour
	backdate    = time.Hour // NotBefore of a new certificate, for clocks that are behind
	// settleFor is how long a new CA is published before its certificate is served. API servers need that time, since they
	// learn of changes of webhook configurations by a watch.
	settleFor  = 2 * time.Minute
	checkEvery = 10 * time.Second
)

// Certificate is the self-signed certificate of the webhook server. All replicas use the same one, which is in a
// Secret. The first replica that finds none makes it. It is renewed in steps that leave no gap: a successor is first
// stored and published as a CA, and served later. The CA of its predecessor stays published until it expires, since
// another replica may still serve that certificate. Every replica tries every step, and skips a step that is stored
// already.
type Certificate struct {
	Client    client.Client // reads are live
	Namespace string
	Names     Names

	mu        sync.Mutex
	serving   *tls.Certificate // nil until its CA is published
	published []byte           // the CAs, as this replica last published them
}

// Names are the names in a controller's manifest that concern its Certificate.
type Names struct {
	Service string // that the API server reaches the webhooks by
	// Secret is the Secret with the certificate of all replicas. The manifest creates it empty. RBAC cannot restrict the
	// creation of Secrets to one name, and an account that may create Secrets can get tokens of every ServiceAccount in
	// the Namespace.
	Secret string
	// ConfigMap publishes the CAs under the key ca.crt; empty for none.
	ConfigMap string
	// Configurations are labels that select the webhook configurations. ValidatingOnly is set if there are no mutating
	// ones. A server without webhooks has no labels, and publishes its CAs only in the ConfigMap.
	Configurations map[string]string
	ValidatingOnly bool
	// Manifest is what it is called, for people.
	Manifest string
}

// NeedLeaderElection returns false: every replica serves the webhooks.
func (c *Certificate) NeedLeaderElection() bool { return false }

// Ready is a readiness check: the webhooks can be called when their CA is published.
func (c *Certificate) Ready(*http.Request) error {
	_, err := c.current(nil)
	return err
}

// TLS is an option of the webhook server.
func (c *Certificate) TLS(config *tls.Config) { config.GetCertificate = c.current }

func (c *Certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving == nil {
		return nil, fmt.Errorf("the server's certificate of Secret %s/%s is not published yet", c.Namespace, c.Names.Secret)
	}
	return c.serving, nil
}

// Start keeps the certificate until ctx ends. The manager calls it.
func (c *Certificate) Start(ctx context.Context) error {
	var reported string
	for {
		pause := checkEvery
		configurations, err := c.round(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			pause = time.Second
			if err.Error() != reported && !apierrors.IsConflict(err) { // another replica was faster
				reported = err.Error()
				slog.Error("keep the server's certificate; trying again", "error", err)
			}
		default:
			reported = ""
			if configurations == 0 && len(c.Names.Configurations) > 0 {
				pause = time.Second // the manifest is still being applied
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// round reads the Secret, takes the next step, publishes the CAs, and only then serves the
// certificate. It returns how many webhook configurations have the CAs.
func (c *Certificate) round(ctx context.Context, now time.Time) (int, error) {
	secret := &corev1.Secret{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Names.Secret}, secret)
	if apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("the Secret %s/%s is not there: apply %s again, which has it", c.Namespace, c.Names.Secret,
			c.Names.Manifest)
	} else if err != nil {
		return 0, fmt.Errorf("get Secret %s/%s: %w", c.Namespace, c.Names.Secret, err)
	}
	c.mu.Lock()
	serving, published := c.serving, c.published
	c.mu.Unlock()
	host := c.Names.Service + "." + c.Namespace + ".svc"
	stored, changed, err := readStore(secret.Data).step(host, now, serving, published)
	if err != nil {
		return 0, err
	}
	if changed {
		if secret.Data, err = stored.data(); err != nil {
			return 0, err
		}
		if err := c.Client.Update(ctx, secret); err != nil { // refused when another replica was faster
			return 0, fmt.Errorf("store the server's certificate in Secret %s/%s: %w", c.Namespace, c.Names.Secret, err)
		}
		slog.Info("stored the server's certificates", "secret", c.Names.Secret, "expires", stored.now.Leaf.NotAfter,
			"successor", stored.next != nil)
	}
	cas := stored.cas()
	configurations, err := c.publishBundles(ctx, cas)
	if err := errors.Join(err, c.publishConfigMap(ctx, cas)); err != nil {
		return configurations, err
	}
	c.mu.Lock()
	c.serving, c.published = stored.now, cas
	c.mu.Unlock()
	return configurations, nil
}

// store is what the Secret holds.
type store struct {
	now, next *tls.Certificate
	previous  []*x509.Certificate
}

// readStore reads what can be read; the rest is made again.
func readStore(data map[string][]byte) store {
	pair := func(cert, key string) *tls.Certificate {
		p, err := tls.X509KeyPair(data[cert], data[key])
		if err != nil || p.Leaf == nil {
			return nil
		}
		return &p
	}
	return store{now: pair(corev1.TLSCertKey, corev1.TLSPrivateKeyKey), next: pair(nextCertKey, nextKeyKey),
		previous: certificates(data[previousKey])}
}

// certificates reads what can be read of a PEM text.
func certificates(text []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}

// step takes the next step of a certificate's life. serving is the certificate that this replica serves now, and
// published are the CAs that are published.
func (s store) step(host string, now time.Time, serving *tls.Certificate, published []byte) (_ store, changed bool,
	err error) {
	valid := func(p *tls.Certificate) bool {
		return p != nil && p.Leaf.VerifyHostname(host) == nil && now.Before(p.Leaf.NotAfter)
	}
	left := len(s.previous)
	s.previous = slices.DeleteFunc(slices.Clone(s.previous),
		func(cert *x509.Certificate) bool { return !now.Before(cert.NotAfter) })
	changed = left != len(s.previous)
	switch {
	case !valid(s.now) && valid(serving):
		// The Secret was emptied or lost. API servers still trust the certificates that this replica and other replicas
		// serve. So these certificates stay in use. API servers would refuse a new certificate until they have its CA.
		s.now, s.next, changed = serving, nil, true
		for _, cert := range certificates(published) {
			if !cert.Equal(serving.Leaf) && now.Before(cert.NotAfter) {
				s.previous = append(s.previous, cert)
			}
		}
	case !valid(s.now):
		if s.now, err = issue(host, now); err != nil {
			return s, false, fmt.Errorf("make the server's certificate: %w", err)
		}
		s.next, changed = nil, true
	case now.Add(renewBefore).Before(s.now.Leaf.NotAfter):
	case !valid(s.next):
		if s.next, err = issue(host, now); err != nil {
			return s, false, fmt.Errorf("make the successor of the server's certificate: %w", err)
		}
		changed = true
	case bytes.Contains(published, certPEM(s.next.Leaf)) && now.Sub(s.next.Leaf.NotBefore.Add(backdate)) >= settleFor:
		s.previous = append(s.previous, s.now.Leaf)
		s.now, s.next, changed = s.next, nil, true
	}
	return s, changed, nil
}

// cas are the certificates that API servers are to trust, in PEM.
func (s store) cas() []byte {
	out := certPEM(s.now.Leaf)
	if s.next != nil {
		out = append(out, certPEM(s.next.Leaf)...)
	}
	for _, cert := range s.previous {
		out = append(out, certPEM(cert)...)
	}
	return out
}

func (s store) data() (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, one := range []struct {
		pair      *tls.Certificate
		cert, key string
	}{{s.now, corev1.TLSCertKey, corev1.TLSPrivateKeyKey}, {s.next, nextCertKey, nextKeyKey}} {
		if one.pair == nil {
			continue
		}
		key, err := x509.MarshalPKCS8PrivateKey(one.pair.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("encode the key of the server's certificate: %w", err)
		}
		data[one.cert] = certPEM(one.pair.Leaf)
		data[one.key] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	}
	for _, cert := range s.previous {
		data[previousKey] = append(data[previousKey], certPEM(cert)...)
	}
	return data, nil
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// issue makes a certificate that is its own authority.
func issue(host string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// Each has a name of its own: of several CAs with one name a verifier would try only some.
		SerialNumber: serial, Subject: pkix.Name{CommonName: host, SerialNumber: serial.Text(16)}, DNSNames: []string{host},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(validFor),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func (c *Certificate) publishConfigMap(ctx context.Context, cas []byte) error {
	if c.Names.ConfigMap == "" {
		return nil
	}
	want := map[string]string{caKey: string(cas)}
	have := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Names.ConfigMap}, have)
	switch {
	case apierrors.IsNotFound(err):
		err = c.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Names.ConfigMap,
				Labels: map[string]string{"app": "antrea"}},
			Data: want,
		})
	case err == nil && !maps.Equal(have.Data, want):
		have.Data = want
		err = c.Client.Update(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("publish the CA in ConfigMap %s/%s: %w", c.Namespace, c.Names.ConfigMap, err)
	}
	return nil
}

// publishBundles writes the CAs into the webhook configurations that carry this controller's
// labels, and returns how many these are.
func (c *Certificate) publishBundles(ctx context.Context, cas []byte) (int, error) {
	if len(c.Names.Configurations) == 0 {
		return 0, nil // the selector would take the webhooks of all programs
	}
	selector := client.MatchingLabels(c.Names.Configurations)
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	err := c.Client.List(ctx, &validating, selector)
	if !c.Names.ValidatingOnly {
		err = errors.Join(err, c.Client.List(ctx, &mutating, selector))
	}
	if err != nil {
		return 0, fmt.Errorf("list webhook configurations: %w", err)
	}
	var errs []error
	for i := range validating.Items {
		o, changed := &validating.Items[i], false
		for j := range o.Webhooks {
			changed = put(&o.Webhooks[j].ClientConfig, cas) || changed
		}
		if changed {
			errs = append(errs, c.Client.Update(ctx, o))
		}
	}
	for i := range mutating.Items {
		o, changed := &mutating.Items[i], false
		for j := range o.Webhooks {
			changed = put(&o.Webhooks[j].ClientConfig, cas) || changed
		}
		if changed {
			errs = append(errs, c.Client.Update(ctx, o))
		}
	}
	configurations := len(validating.Items) + len(mutating.Items)
	for _, err := range errs {
		if err != nil {
			return configurations, fmt.Errorf("update webhook configurations: %w", err) // the others next time
		}
	}
	return configurations, nil
}

func put(config *admissionregistrationv1.WebhookClientConfig, cas []byte) bool {
	if bytes.Equal(config.CABundle, cas) {
		return false
	}
	config.CABundle = cas
	return true
}

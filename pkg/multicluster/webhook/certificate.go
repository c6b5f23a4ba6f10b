package webhook

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
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ServiceName is the Service that the API server reaches the webhooks by.
	ServiceName = "antrea-mc-webhook-service"

	// CAName is the ConfigMap that publishes the webhooks' CA, under the key ca.crt.
	CAName = "antrea-mc-ca"
	caKey  = "ca.crt"

	validFor    = 365 * 24 * time.Hour
	renewBefore = 90 * 24 * time.Hour
	checkEvery  = time.Minute
)

// Certificate is the self-signed certificate of the webhook server. It lives in memory only: a
// restart makes a new one and publishes it, so no key is ever at rest.
type Certificate struct {
	Client    client.Client
	Namespace string
	Role      Role

	mu  sync.Mutex
	now *tls.Certificate
	pem []byte
}

// TLS is an option of the webhook server.
func (c *Certificate) TLS(config *tls.Config) {
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, _, err := c.current()
		return cert, err
	}
}

func (c *Certificate) current() (*tls.Certificate, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil && time.Until(c.now.Leaf.NotAfter) > renewBefore {
		return c.now, c.pem, nil
	}
	cert, text, err := issue(ServiceName + "." + c.Namespace + ".svc")
	if err != nil {
		return nil, nil, fmt.Errorf("make the webhooks' certificate: %w", err)
	}
	c.now, c.pem = cert, text
	return cert, text, nil
}

// issue makes a certificate that is its own authority.
func issue(host string) (*tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validFor),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, text, nil
}

// Start keeps the certificate in the webhook configurations until ctx ends. The manager calls it.
func (c *Certificate) Start(ctx context.Context) error {
	var reported string
	for {
		pause := checkEvery
		if err := c.publish(ctx); err != nil && ctx.Err() == nil {
			pause = time.Second
			if err.Error() != reported {
				reported = err.Error()
				slog.Error("publish the webhooks' certificate; trying again", "error", err)
			}
		} else {
			reported = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// publish writes the CA where it is looked for: into the webhook configurations that carry
// this controller's labels, and into the ConfigMap antrea-mc-ca.
func (c *Certificate) publish(ctx context.Context) error {
	_, ca, err := c.current()
	if err != nil {
		return err
	}
	return errors.Join(c.publishBundles(ctx, ca), c.publishConfigMap(ctx, ca))
}

func (c *Certificate) publishConfigMap(ctx context.Context, ca []byte) error {
	want := map[string]string{caKey: string(ca)}
	have := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: CAName}, have)
	switch {
	case apierrors.IsNotFound(err):
		err = c.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: CAName, Labels: map[string]string{"app": "antrea"}},
			Data:       want,
		})
	case err == nil && !maps.Equal(have.Data, want):
		have.Data = want
		err = c.Client.Update(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("publish the CA in ConfigMap %s/%s: %w", c.Namespace, CAName, err)
	}
	return nil
}

func (c *Certificate) publishBundles(ctx context.Context, ca []byte) error {
	selector := client.MatchingLabels{"app": "antrea", "served-by": "antrea-mc-controller", "role": string(c.Role), "served-in": c.Namespace}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := errors.Join(c.Client.List(ctx, &validating, selector), c.Client.List(ctx, &mutating, selector)); err != nil {
		return fmt.Errorf("list webhook configurations: %w", err)
	}
	var errs []error
	for i := range validating.Items {
		o, changed := &validating.Items[i], false
		for j := range o.Webhooks {
			changed = put(&o.Webhooks[j].ClientConfig, ca) || changed
		}
		if changed {
			errs = append(errs, c.Client.Update(ctx, o))
		}
	}
	for i := range mutating.Items {
		o, changed := &mutating.Items[i], false
		for j := range o.Webhooks {
			changed = put(&o.Webhooks[j].ClientConfig, ca) || changed
		}
		if changed {
			errs = append(errs, c.Client.Update(ctx, o))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("update webhook configurations: %w", err)
	}
	return nil
}

func put(config *admissionregistrationv1.WebhookClientConfig, ca []byte) bool {
	if bytes.Equal(config.CABundle, ca) {
		return false
	}
	config.CABundle = ca
	return true
}

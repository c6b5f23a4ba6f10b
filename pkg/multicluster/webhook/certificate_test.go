package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestCertificate has the API server's side of a TLS connection trust the published CA, and a
// new one when the certificate is about to expire.
func TestCertificate(t *testing.T) {
	labels := map[string]string{"app": "antrea", "served-by": "antrea-mc-controller", "role": "leader", "served-in": "area"}
	others := map[string]string{"app": "antrea", "served-by": "antrea-mc-controller", "role": "leader", "served-in": "elsewhere"}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: labels},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "a"}, {Name: "b"}}}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: labels},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "c"}}}
	other := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "o", Labels: others},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "d"}}}
	scheme := runtime.NewScheme()
	if err := errors.Join(admissionregistrationv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := &Certificate{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(validating, mutating, other).Build(), Namespace: "area", Role: Leader}
	published := func() []byte {
		t.Helper()
		if err := c.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, o := range []client.Object{validating, mutating, other} {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
		}
		ca := validating.Webhooks[0].ClientConfig.CABundle
		if len(ca) == 0 || string(ca) != string(validating.Webhooks[1].ClientConfig.CABundle) || string(ca) != string(mutating.Webhooks[0].ClientConfig.CABundle) {
			t.Fatal("the CA is not in all webhooks")
		}
		if len(other.Webhooks[0].ClientConfig.CABundle) > 0 {
			t.Fatal("the CA is in the webhooks of another Namespace")
		}
		configMap := &corev1.ConfigMap{}
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: "area", Name: CAName}, configMap); err != nil {
			t.Fatal(err)
		}
		if configMap.Data["ca.crt"] != string(ca) {
			t.Fatalf("the ConfigMap has %v, the webhooks have %s", configMap.Data, ca)
		}
		if err := connect(t, c, ca); err != nil {
			t.Fatal(err)
		}
		return ca
	}
	first := published()
	version := validating.ResourceVersion
	if string(published()) != string(first) || validating.ResourceVersion != version {
		t.Error("publishing again changes something")
	}
	validating.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Client.Update(t.Context(), validating); err != nil {
		t.Fatal(err)
	}
	if string(published()) != string(first) {
		t.Error("a lost CA came back as another")
	}
	c.now.Leaf.NotAfter = time.Now().Add(renewBefore - time.Hour)
	if string(published()) == string(first) {
		t.Error("a certificate about to expire was kept")
	}
	if err := connect(t, c, first); err == nil {
		t.Error("the old CA still holds")
	}
}

// connect makes a TLS connection as the API server does.
func connect(t *testing.T, c *Certificate, ca []byte) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the CA is not in PEM")
	}
	config := &tls.Config{}
	c.TLS(config)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake() // the client tells what is wrong
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "antrea-mc-webhook-service.area.svc"})
	if err != nil {
		return err
	}
	return conn.Close()
}

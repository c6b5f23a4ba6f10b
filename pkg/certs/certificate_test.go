package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// names returns the names of a controller whose webhook configurations have these labels.
func names(labels map[string]string) Names {
	return Names{
		Service: "antrea-mc-webhook-service", Secret: "antrea-mc-webhook-tls", ConfigMap: "antrea-mc-ca",
		Configurations: labels, Manifest: "the manifest of the leader",
	}
}

// replicas are two replicas that share a Secret, and the webhook configurations.
type replicas struct {
	t                 *testing.T
	client            client.Client
	one, two          *Certificate
	secret            *corev1.Secret
	validating        *admissionregistrationv1.ValidatingWebhookConfiguration
	mutating, foreign *admissionregistrationv1.MutatingWebhookConfiguration
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	labels := map[string]string{"app": "antrea", "served-by": "antrea-mc-controller", "role": "leader",
		"served-in": "area"}
	others := map[string]string{"app": "antrea", "served-by": "antrea-mc-controller", "role": "leader",
		"served-in": "elsewhere"}
	r := &replicas{t: t,
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: names(nil).Secret}},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v",
			Labels: labels},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "a"}, {Name: "b"}}},
		mutating: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m",
			Labels: labels},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "c"}}},
		foreign: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "o",
			Labels: others},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "d"}}},
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(admissionregistrationv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(r.secret, r.validating, r.mutating,
		r.foreign).Build()
	r.one = &Certificate{Client: r.client, Namespace: "area", Names: names(labels)}
	r.two = &Certificate{Client: r.client, Namespace: "area", Names: names(labels)}
	return r
}

// round has a replica do a round at a time, and returns the CAs that are published then.
func (r *replicas) round(c *Certificate, now time.Time) string {
	r.t.Helper()
	configurations, err := c.round(r.t.Context(), now)
	if err != nil || configurations != 2 {
		r.t.Fatalf("%d configurations, %v", configurations, err)
	}
	for _, o := range []client.Object{r.secret, r.validating, r.mutating, r.foreign} {
		if err := r.client.Get(r.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			r.t.Fatal(err)
		}
	}
	cas := string(r.validating.Webhooks[0].ClientConfig.CABundle)
	if cas == "" || cas != string(r.validating.Webhooks[1].ClientConfig.CABundle) ||
		cas != string(r.mutating.Webhooks[0].ClientConfig.CABundle) {
		r.t.Fatal("the CAs are not in all webhooks")
	}
	if len(r.foreign.Webhooks[0].ClientConfig.CABundle) > 0 {
		r.t.Fatal("the CAs are in the webhooks of another Namespace")
	}
	configMap := &corev1.ConfigMap{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: "area", Name: names(nil).ConfigMap},
		configMap); err != nil {
		r.t.Fatal(err)
	}
	if configMap.Data["ca.crt"] != cas {
		r.t.Fatalf("the ConfigMap has %v, the webhooks have %s", configMap.Data, cas)
	}
	for name, c := range map[string]*Certificate{"one": r.one, "two": r.two} {
		if c.Ready(nil) == nil {
			if err := connect(r.t, c, cas, now); err != nil {
				r.t.Fatalf("replica %s is not trusted: %v", name, err)
			}
		}
	}
	return cas
}

func (r *replicas) serial(c *Certificate) string {
	r.t.Helper()
	cert, err := c.current(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return cert.Leaf.SerialNumber.Text(16)
}

// TestCertificate has the API server's side of TLS connections trust what two replicas serve, at
// every moment of a renewal.
func TestCertificate(t *testing.T) {
	r := newReplicas(t)
	now := time.Now()
	if r.one.Ready(nil) == nil {
		t.Error("ready without a certificate")
	}
	first := r.round(r.one, now)
	old := r.serial(r.one)
	if r.round(r.two, now) != first || r.serial(r.two) != old {
		t.Error("the second replica has another certificate")
	}
	version := r.validating.ResourceVersion
	if r.round(r.one, now.Add(time.Hour)) != first || r.validating.ResourceVersion != version {
		t.Error("another round changes something")
	}
	r.validating.Webhooks[0].ClientConfig.CABundle = nil
	if err := r.client.Update(t.Context(), r.validating); err != nil {
		t.Fatal(err)
	}
	if r.round(r.two, now) != first {
		t.Error("a lost CA came back as another")
	}

	due := now.Add(validFor - renewBefore + time.Minute)
	both := r.round(r.one, due)
	if strings.Count(both, "BEGIN CERTIFICATE") != 2 || r.serial(r.one) != old {
		t.Errorf("a renewal begins with %d CAs, serving the old certificate: %v", strings.Count(both, "BEGIN CERTIFICATE"),
			r.serial(r.one) == old)
	}
	if r.round(r.two, due) != both || r.round(r.one, due.Add(settleFor-time.Second)) != both || r.serial(r.one) != old {
		t.Error("the successor is served before API servers have had time to see its CA")
	}
	r.round(r.one, due.Add(settleFor))
	if r.serial(r.one) == old || r.serial(r.two) != old {
		t.Error("the replica that takes the step serves the successor, the other not yet")
	}
	r.round(r.two, due.Add(settleFor+time.Second))
	if r.serial(r.one) != r.serial(r.two) {
		t.Error("the other replica does not follow")
	}
	last := r.round(r.two, now.Add(validFor+time.Minute))
	if strings.Count(last, "BEGIN CERTIFICATE") != 1 {
		t.Errorf("%d CAs after the old certificate has expired, want 1", strings.Count(last, "BEGIN CERTIFICATE"))
	}
}

// TestCertificateOfTheFirst has two replicas find an empty Secret at the same time.
func TestCertificateOfTheFirst(t *testing.T) {
	r := newReplicas(t)
	done := make(chan error, 2)
	for _, c := range []*Certificate{r.one, r.two} {
		go func() {
			_, err := c.round(t.Context(), time.Now())
			done <- err
		}()
	}
	<-done
	<-done // one of them may have been refused
	r.round(r.one, time.Now())
	r.round(r.two, time.Now())
	if r.serial(r.one) != r.serial(r.two) {
		t.Error("two replicas have two certificates")
	}
}

// TestCertificateLost empties and deletes the Secret under running replicas.
func TestCertificateLost(t *testing.T) {
	r := newReplicas(t)
	r.round(r.one, time.Now())
	cas := r.round(r.two, time.Now())
	old := r.serial(r.one)
	r.secret.Data = map[string][]byte{corev1.TLSCertKey: []byte("garbage")}
	if err := r.client.Update(t.Context(), r.secret); err != nil {
		t.Fatal(err)
	}
	// The certificate in use stays: API servers would refuse a new one until they have seen its CA.
	if again := r.round(r.one, time.Now()); again != cas || r.serial(r.one) != old {
		t.Error("the replica replaces the certificate that it serves by another")
	}
	if cert := readStore(r.secret.Data).now; cert == nil || cert.Leaf.SerialNumber.Text(16) != old {
		t.Error("the certificate that is served is not in the Secret again")
	}
	third := &Certificate{Client: r.client, Namespace: "area", Names: r.one.Names}
	if r.round(third, time.Now()) != cas || r.serial(third) != old {
		t.Error("a replica that starts afterwards has another certificate")
	}
	if err := r.client.Delete(t.Context(), r.secret); err != nil {
		t.Fatal(err)
	}
	if _, err := r.one.round(t.Context(), time.Now()); err == nil ||
		!strings.Contains(err.Error(),
			"Secret area/antrea-mc-webhook-tls is not there: apply the manifest of the leader again") {
		t.Errorf("without the Secret: error %v", err)
	}
	if r.one.Ready(nil) != nil {
		t.Error("without the Secret the replica does not serve any more")
	}
}

// TestCertificateLostInRenewal empties the Secret while one replica serves the successor and the
// other the predecessor: both stay trusted.
func TestCertificateLostInRenewal(t *testing.T) {
	r := newReplicas(t)
	now := time.Now()
	r.round(r.one, now)
	r.round(r.two, now)
	due := now.Add(validFor - renewBefore + time.Minute)
	r.round(r.one, due)
	r.round(r.one, due.Add(settleFor))
	if r.serial(r.one) == r.serial(r.two) {
		t.Fatal("both replicas serve one certificate in the middle of a renewal")
	}
	r.secret.Data = nil
	if err := r.client.Update(t.Context(), r.secret); err != nil {
		t.Fatal(err)
	}
	successor := r.serial(r.one)
	r.round(r.one, due.Add(settleFor+time.Second)) // checks that the API server trusts both
	r.round(r.two, due.Add(settleFor+2*time.Second))
	if r.serial(r.one) != successor || r.serial(r.two) != successor {
		t.Error("the replicas do not agree on the successor")
	}
}

// connect makes a TLS connection as the API server does, at a time.
func connect(t *testing.T, c *Certificate, cas string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(cas)) {
		t.Fatal("the CAs are not in PEM")
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
			_ = conn.(*tls.Conn).Handshake() // the client reports the fault
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{
		RootCAs: roots, ServerName: "antrea-mc-webhook-service.area.svc", Time: func() time.Time { return now }})
	if err != nil {
		return err
	}
	return conn.Close()
}

// TestWithoutWebhooks has a server without webhooks keep a certificate. It writes into no webhook configuration, and
// publishes its CA in the ConfigMap.
func TestWithoutWebhooks(t *testing.T) {
	r := newReplicas(t)
	c := &Certificate{Client: r.client, Namespace: "area", Names: names(nil)}
	if n, err := c.round(t.Context(), time.Now()); n != 0 || err != nil {
		t.Fatalf("%d configurations, %v; want none and no error", n, err)
	}
	for _, o := range []client.Object{r.validating, r.mutating, r.foreign} {
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.validating.Webhooks[0].ClientConfig.CABundle)+len(r.foreign.Webhooks[0].ClientConfig.CABundle) > 0 {
		t.Error("the CA is in the webhooks of other programs")
	}
	published := &corev1.ConfigMap{}
	if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "area", Name: "antrea-mc-ca"}, published); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, c, published.Data["ca.crt"], time.Now()); err != nil {
		t.Error(err)
	}
}

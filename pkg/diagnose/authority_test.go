package diagnose

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// authority is the certificate of a webhook, as a bundle, and its end.
var authority, authorityEnds = newAuthority()

func newAuthority() ([]byte, time.Time) {
	ends := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.AddDate(-1, 0, 0), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), ends
}

// TestToken reads Secrets of members. No fact has anything of the token's secret parts.
func TestToken(t *testing.T) {
	jwt := func(claims string) string {
		return "head." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
	}
	for _, row := range []struct{ name, token, subject, malformed string }{
		{"of a Secret", jwt(`{"sub": "system:serviceaccount:area:east"}`), "system:serviceaccount:area:east", ""},
		{"random", "secret-secret", "", "three parts"},
		{"no base64", "a.!secret!.c", "", "not base64"},
		{"no account", jwt(`{"secret": 1}`), "", "does not name an account"},
	} {
		have := tokenOf(&corev1.Secret{Data: map[string][]byte{"token": []byte(row.token), "ca.crt": authority}})
		if have.Subject != row.subject || !strings.Contains(have.Malformed, row.malformed) ||
			(have.Malformed == "") != (row.malformed == "") || !have.CAEnds.Equal(authorityEnds) {
			t.Errorf("%s: %+v", row.name, have)
		}
		if strings.Contains(have.Malformed, "secret") || strings.Contains(have.Malformed, "signature") {
			t.Errorf("%s: the fault has the token: %s", row.name, have.Malformed)
		}
	}
	ends := tokenOf(&corev1.Secret{Data: map[string][]byte{"token": []byte(jwt(`{"sub": "x", "exp": 1772600000}`))}})
	if ends.Expires.Unix() != 1772600000 || !ends.CAEnds.IsZero() {
		t.Errorf("%+v", ends)
	}
}

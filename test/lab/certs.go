package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs the certificates of one cluster.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  crypto.Signer
}

// identity is a certificate and its key, in PEM.
type identity struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := date(template); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: key}, nil
}

// date fills in serial number and validity. A lab that outlives a year is not a lab.
func date(c *x509.Certificate) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	c.SerialNumber = serial
	c.NotBefore = time.Now().Add(-time.Hour)
	c.NotAfter = time.Now().AddDate(1, 0, 0)
	return nil
}

// issue makes a certificate for a user and its groups. If there are names or addresses, it is also a server's
// certificate.
func (a *authority) issue(user string, groups []string, names []string, addrs ...netip.Addr) (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		DNSNames:    names,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, addr := range addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	if err := date(template); err != nil {
		return identity{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return identity{}, fmt.Errorf("make certificate for %s: %w", user, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return identity{}, err
	}
	return identity{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// kubeconfig writes a kubeconfig with one context.
func (a *authority) kubeconfig(path, cluster, user, server string, id identity) error {
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: id.cert, ClientKeyData: id.key}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// pki makes the keys and certificates of all components of the cluster: files in the cluster's directory, with the
// names that the flags of control plane and kubelet use.
func (c *Cluster) pki() error {
	ca, err := newAuthority(c.name)
	if err != nil {
		return err
	}
	front, err := newAuthority(c.name + "-front-proxy")
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": ca.pem, "front-proxy-ca.crt": front.pem}
	pair := func(name string, a *authority, user string, groups, names []string, addrs ...netip.Addr) error {
		id, err := a.issue(user, groups, names, addrs...)
		files[name+".crt"], files[name+".key"] = id.cert, id.key
		return err
	}
	own := append(c.addresses(), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	err = pair("apiserver", ca, "kube-apiserver", nil,
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost"},
		append(own, hosts(c.services(), 1)...)...)
	if err != nil {
		return err
	}
	if err := pair("apiserver-kubelet-client", ca, "kube-apiserver-kubelet-client", []string{"system:masters"},
		nil); err != nil {
		return err
	}
	if err := pair("front-proxy-client", front, "front-proxy-client", nil, nil); err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if files["sa.key"], err = encodeKey(accounts); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return err
	}
	files["sa.pub"] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(c.dir(), name), data, 0o600); err != nil {
			return err
		}
	}

	type account struct {
		file, user string
		groups     []string
		server     string
	}
	users := []account{
		{"kubeconfig", "admin@" + c.name, []string{"system:masters"}, c.Server()},
		{"controller-manager.kubeconfig", "system:kube-controller-manager", nil, c.Server()},
		{"scheduler.kubeconfig", "system:kube-scheduler", nil, c.Server()},
	}
	for _, n := range c.nodes {
		users = append(users, account{n.name + ".kubeconfig", "system:node:" + n.name, []string{"system:nodes"},
			c.nodeServer()})
	}
	for _, u := range users {
		id, err := ca.issue(u.user, u.groups, nil)
		if err != nil {
			return err
		}
		if err := ca.kubeconfig(filepath.Join(c.dir(), u.file), c.name, u.user, u.server, id); err != nil {
			return err
		}
	}
	return nil
}

package ofconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// DefaultPort is OpenFlow's own port, where a target names none.
const DefaultPort = "6653"

// TLS are the files of a target ssl:HOST:PORT, all in PEM.
type TLS struct {
	PrivateKey, Certificate string // ours
	// CA is the file of the CA that has signed the switch's certificate. Open vSwitch's certificates name no host, so no
	// host is checked. With "none" every switch is trusted.
	CA string
}

// DefaultRunDir is where Open vSwitch has its sockets and pidfiles unless it is started with another directory.
const DefaultRunDir = "/var/run/openvswitch"

// RunDir is where Open vSwitch has its sockets: $OVS_RUNDIR, or /var/run/openvswitch.
func RunDir() string {
	if dir := os.Getenv("OVS_RUNDIR"); dir != "" {
		return dir
	}
	return DefaultRunDir
}

// IsTarget reports whether text names a switch by its transport, as unix:, tcp: or ssl: do.
func IsTarget(text string) bool {
	scheme, _, ok := strings.Cut(text, ":")
	return ok && (scheme == "unix" || scheme == "tcp" || scheme == "ssl")
}

// TargetDialer dials a switch by the text that ovs-ofctl takes:
//
//	unix:PATH        a management socket
//	tcp:HOST[:PORT]  a passive listener (ptcp: on the bridge's side); port 6653
//	ssl:HOST[:PORT]  the same with TLS (pssl:)
//	br-int           the management socket of a bridge in RunDir
func TargetDialer(target string, files TLS) (Dialer, error) {
	scheme, rest, ok := strings.Cut(target, ":")
	switch {
	case target == "":
		return nil, errors.New("the target is empty: name a bridge, unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")
	case !ok && strings.Contains(target, "/"):
		return unixTarget(target, ""), nil
	case !ok:
		return unixTarget(filepath.Join(RunDir(), target+".mgmt"), target), nil
	case scheme == "unix":
		if rest == "" {
			return nil, fmt.Errorf("target %q: a path is missing, as in unix:%s/br-int.mgmt", target, RunDir())
		}
		if !filepath.IsAbs(rest) { // as ovs-ofctl does
			rest = filepath.Join(RunDir(), rest)
		}
		return unixTarget(rest, ""), nil
	case scheme == "tcp" || scheme == "ssl":
		address, err := hostPort(rest)
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", target, err)
		}
		if scheme == "tcp" {
			return explained(target, TCPDialer(address)), nil
		}
		config, err := files.config()
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", target, err)
		}
		return explained(target, TLSDialer(address, config)), nil
	}
	return nil, fmt.Errorf("target %q: %q is no transport: name a bridge, unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT",
		target, scheme)
}

// hostPort adds the default port.
func hostPort(text string) (string, error) {
	if text == "" {
		return "", errors.New("a host is missing")
	}
	if host, port, err := net.SplitHostPort(text); err == nil {
		if host == "" || port == "" {
			return "", fmt.Errorf("%q is not HOST:PORT", text)
		}
		return text, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if strings.Contains(host, ":") && !strings.HasPrefix(text, "[") {
		return "", fmt.Errorf("%q is not HOST:PORT: an IPv6 address stands in brackets", text)
	}
	return net.JoinHostPort(host, DefaultPort), nil
}

// unixTarget dials a socket and names possible reasons if it does not answer. bridge is empty if the socket was named.
func unixTarget(path, bridge string) Dialer {
	dial := UnixDialer(path)
	return func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("the socket %s may only be opened by its owner: run this as root: %w", path, err)
		case errors.Is(err, fs.ErrNotExist) && bridge != "":
			return nil, fmt.Errorf(
				"bridge %s has no socket %s: see `ovs-vsctl list-br` for the bridges, and set OVS_RUNDIR where ovs-vswitchd's "+
					"run directory is another: %w", bridge, path, err)
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("there is no socket %s: a bridge's socket is RUNDIR/BRIDGE.mgmt, here %s: %w", path,
				filepath.Join(RunDir(), "BRIDGE.mgmt"), err)
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("no program listens on the socket %s: is ovs-vswitchd running? %w", path, err)
		}
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
}

// explained names possible reasons if no program listens.
func explained(target string, dial Dialer) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		scheme, _, _ := strings.Cut(target, ":")
		var unknown x509.UnknownAuthorityError
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf(
				"no program listens at %s: the bridge has to, as after `ovs-vsctl set-controller BRIDGE p%s:PORT`: %w", target,
				scheme, err)
		case errors.As(err, new(tls.RecordHeaderError)):
			return nil, fmt.Errorf("%s: what listens there does not speak TLS: use tcp: where the bridge listens with ptcp: %w",
				target, err)
		case errors.As(err, &unknown):
			return nil, fmt.Errorf("%s: the switch's certificate is not signed by the CA: name the CA that signed it: %w",
				target, err)
		}
		return nil, fmt.Errorf("%s: %w", target, err)
	}
}

// TLSDialer dials host:port and shakes hands.
func TLSDialer(address string, config *tls.Config) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		d := tls.Dialer{Config: config}
		return d.DialContext(ctx, "tcp", address)
	}
}

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	if t.PrivateKey == "" || t.Certificate == "" {
		return nil, errors.New("ssl needs a private key and a certificate of our own, which the switch's CA has signed")
	}
	if t.CA == "" {
		return nil, errors.New("ssl needs the certificate of the CA that signed the switch's, or the word none")
	}
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("read our certificate and key: %w", err)
	}
	// Certificates of Open vSwitch name no host (ovs-pki). Go's own check would compare the host, so it is replaced by a
	// check of only the chain.
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	if t.CA == "none" {
		return config, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the CA's certificate: %s holds no PEM certificate", t.CA)
	}
	config.VerifyConnection = func(s tls.ConnectionState) error {
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		return err
	}
	return config, nil
}

// VersionError is a switch that does not speak OpenFlow 1.5.
type VersionError struct {
	Speaks string // what it speaks, in words
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it speaks OpenFlow wire %s, and not %d: add OpenFlow15 to the bridge's protocols", e.Speaks,
		version)
}

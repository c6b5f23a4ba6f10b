// Package apiserver runs real kube-apiservers for tests, each with its own etcd.
package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tombolo-net/tombolo/test/child"
	"github.com/tombolo-net/tombolo/test/ports"
)

// Options of a Server.
type Options struct {
	// CRDs are files or folders with custom resource definitions, which the server then has.
	CRDs []string
	// ServiceCIDR is where ClusterIPs come from; "10.0.0.0/24" when empty.
	ServiceCIDR string
	// NodePorts is the range of node ports, such as "10000-32767". If it is empty, the server uses its default.
	NodePorts string
}

// Server is a kube-apiserver that can be stopped and started again. It has no controllers, and clients need no token of
// a ServiceAccount.
type Server struct {
	// Config is an administrator's access.
	Config *rest.Config

	loan     *loan        // of the lender; nil for a server of this program
	access   *rest.Config // which no test changes
	dir      string
	port     int
	etcdURL  string
	options  Options
	stop     func() // kills the API server; nil while it is stopped
	stopEtcd func()
	remove   func()   // removes the files
	release  []func() // give reserved ports back

	first  map[string]stored // what it had before its first test
	mapper meta.RESTMapper   // nil until it is needed
}

// Start runs an API server with the definitions in some files or folders until the test ends. It returns an
// administrator's access to the server.
func Start(t testing.TB, crds ...string) *rest.Config {
	t.Helper()
	return New(t, Options{CRDs: crds}).Config
}

// Uninstall deletes definitions and waits until they are gone. The server deletes the objects of such kinds first, and
// until then accepts an update of the definition without effect.
func Uninstall(t testing.TB, config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	api, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	all := api.CustomResourceDefinitions()
	for _, d := range definitions {
		if err := all.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range definitions {
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				_, err := all.Get(ctx, d.Name, metav1.GetOptions{})
				return apierrors.IsNotFound(err), nil
			})
		if err != nil {
			t.Fatalf("%s is still there: %v", d.Name, err)
		}
	}
}

// admin is the administrator's token: only this machine reaches the server.
const admin = "administrator"

// New runs an API server without objects of other tests, until the test ends. Its processes end with the program that
// has started them, however that ends: the test's program or the lender.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = "10.0.0.0/24"
	}
	o.CRDs = slices.Clone(o.CRDs)
	for i, path := range o.CRDs {
		var err error
		if o.CRDs[i], err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
	}
	var s *Server
	var err error
	if socket := os.Getenv(EnvLender); socket != "" {
		s, err = borrow(t.Context(), socket, o)
	} else {
		s, err = take(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Config = rest.CopyConfig(s.access)
	t.Cleanup(func() { s.giveBack(t.Failed()) })
	return s
}

// begin starts a server with its definitions.
func begin(ctx context.Context, o Options) (s *Server, err error) {
	dir, remove, err := temporary()
	if err != nil {
		return nil, err
	}
	s = &Server{dir: dir, remove: remove, options: o, stopEtcd: func() {}}
	begun := s // an error is returned with nil
	defer func() {
		if err != nil {
			begun.end()
		}
	}()
	if s.port, err = s.reserve(); err != nil {
		return nil, err
	}
	if err := s.startEtcd(); err != nil {
		return nil, err
	}
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signing)})
	if err := errors.Join(os.WriteFile(s.file("sa.key"), key, 0o600),
		os.WriteFile(s.file("tokens"), []byte(admin+",admin,admin,system:masters\n"), 0o600)); err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(s.file("apiserver.crt")) // self-signed, made by the API server at its first start
	if err != nil {
		return nil, err
	}
	s.access = access(s.url(), ca)
	if len(o.CRDs) > 0 {
		if _, err := envtest.InstallCRDs(s.access, envtest.CRDInstallOptions{Paths: o.CRDs, ErrorIfPathMissing: true,
			MaxTime: startLimit}); err != nil {
			return nil, fmt.Errorf("install the resource definitions in %v (make generate): %w", o.CRDs, err)
		}
	}
	return s, s.remember(ctx)
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }
func (s *Server) url() string             { return fmt.Sprintf("https://127.0.0.1:%d", s.port) }

// reserve reserves a port for as long as the server lives.
func (s *Server) reserve() (int, error) {
	port, release, err := ports.Reserve()
	if err == nil {
		s.release = append(s.release, release)
	}
	return port, err
}

func (s *Server) startEtcd() error {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return fmt.Errorf("find etcd: %w; install the package etcd-server", err)
	}
	clients, err := s.reserve()
	if err != nil {
		return err
	}
	peers, err := s.reserve()
	if err != nil {
		return err
	}
	s.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", clients)
	etcd := exec.Command(path, "--data-dir="+s.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+s.etcdURL, "--advertise-client-urls="+s.etcdURL,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", peers))
	stop, err := start(etcd, s.file("etcd.log"))
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	s.stopEtcd = stop
	return nil
}

// Start starts the API server after a Stop, with all it had, and waits until it is ready.
func (s *Server) Start(ctx context.Context) error {
	if s.loan != nil {
		_, err := s.loan.ask(ctx, request{Do: "start"})
		return err
	}
	path, err := Kubernetes()
	if err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	process := exec.Command(path,
		"--etcd-servers="+s.etcdURL, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port), "--cert-dir="+s.dir,
		"--token-auth-file="+s.file("tokens"), "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+s.file("sa.key"),
		"--service-account-signing-key-file="+s.file("sa.key"), "--service-cluster-ip-range="+s.options.ServiceCIDR,
		"--endpoint-reconciler-type=none")
	if s.options.NodePorts != "" {
		process.Args = append(process.Args, "--service-node-port-range="+s.options.NodePorts)
	}
	process.Args[0] = "kube-apiserver"             // the binary is all of Kubernetes and goes by its name
	process.Env = append(os.Environ(), "GOGC=300") // memory for CPU: many are started, and most of them end soon
	if s.stop, err = start(process, s.file("log")); err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		text, _ := os.ReadFile(s.file("log"))
		return fmt.Errorf("kube-apiserver is not ready: %w; its log ends:\n%s", err, text[max(0, len(text)-2000):])
	}
	return nil
}

// startLimit is long: on a machine at a load of 60, a start that costs five seconds of processor time has taken more
// than three minutes.
const startLimit = 10 * time.Minute

// ready waits until the server reports that it is ready.
func (s *Server) ready(ctx context.Context) error {
	// its certificate may not exist yet
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer insecure.CloseIdleConnections()
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startLimit, true,
		func(ctx context.Context) (bool, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/readyz", nil)
			if err != nil {
				return false, err
			}
			request.Header.Set("Authorization", "Bearer "+admin)
			answer, err := insecure.Do(request)
			if err != nil {
				return false, nil //nolint:nilerr // not listening yet
			}
			_ = answer.Body.Close()
			return answer.StatusCode == http.StatusOK, nil
		})
}

// Stop kills the API server. Its stored objects stay.
func (s *Server) Stop() {
	if s.loan != nil {
		_, _ = s.loan.ask(context.Background(), request{Do: "stop"}) // without a lender there is no server
		return
	}
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// start starts a process whose output goes to a file, and which ends with this program. It returns a function that
// kills it.
func start(c *exec.Cmd, log string) (stop func(), err error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c.Stdout, c.Stderr = f, f
	if err := child.Start(c); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}), nil
}

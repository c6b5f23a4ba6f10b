package member

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/test/apiserver"
)

// apiServer is a real kube-apiserver that can be stopped and started again.
type apiServer struct {
	dir     string // its name is the prefix in etcd
	port    int
	etcd    string
	cidr    string
	process *exec.Cmd
}

const adminToken = "administrator"

// newWorld starts etcd and two API servers with the project's resource definitions, and
// returns the leader's so that it can be stopped.
func newWorld(t *testing.T) (*world, *apiServer) {
	t.Helper()
	dir := t.TempDir()
	url := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	etcd := command(t, filepath.Join(dir, "etcd.log"), "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+url, "--advertise-client-urls="+url, fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", freePort(t)))
	if err := etcd.Start(); err != nil {
		t.Fatalf("start etcd (Debian package etcd-server): %v", err)
	}
	t.Cleanup(func() { kill(etcd) })
	leader := &apiServer{dir: filepath.Join(dir, "leader"), port: freePort(t), etcd: url, cidr: "10.96.0.0/16"}
	member := &apiServer{dir: filepath.Join(dir, "member"), port: freePort(t), etcd: url, cidr: "10.97.0.0/16"}
	w := &world{t: t}
	w.leader, w.leaderConfig = leader.setUp(t)
	w.member, w.memberConfig = member.setUp(t)
	return w, leader
}

func (s *apiServer) setUp(t *testing.T) (client.Client, *rest.Config) {
	t.Helper()
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(signing)})
	err = errors.Join(os.MkdirAll(s.dir, 0o700), os.WriteFile(s.file("sa.key"), key, 0o600),
		os.WriteFile(s.file("tokens"), []byte(adminToken+",admin,admin,system:masters\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(s.file("apiserver.crt")) // self-signed, made by the API server
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: s.url(), BearerToken: adminToken, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../deploy/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no resource definitions in deploy/crds (make generate): %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		crd := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.Unmarshal(text, &crd.Object), c.Create(t.Context(), crd)); err != nil {
			t.Fatalf("create %s: %v", f, err)
		}
		(&world{t: t}).eventually(f+" is established", func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
				return err
			}
			conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
			for _, one := range conditions {
				if m, ok := one.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("have %v", conditions))
		})
	}
	return c, config
}

func (s *apiServer) file(name string) string { return filepath.Join(s.dir, name) }
func (s *apiServer) url() string             { return fmt.Sprintf("https://127.0.0.1:%d", s.port) }

// Start starts the API server and waits until it is ready.
func (s *apiServer) Start(ctx context.Context) error {
	path, err := apiserver.Kubernetes()
	if err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	s.process = exec.Command(path,
		"--etcd-servers="+s.etcd, "--etcd-prefix=/"+filepath.Base(s.dir),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port), "--cert-dir="+s.dir,
		"--token-auth-file="+s.file("tokens"), "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+s.file("sa.key"),
		"--service-account-signing-key-file="+s.file("sa.key"), "--service-cluster-ip-range="+s.cidr, "--endpoint-reconciler-type=none")
	s.process.Args[0] = "kube-apiserver" // the binary is all of Kubernetes and goes by its name
	if err := logTo(s.process, s.file("log")); err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its certificate may not exist yet
	defer insecure.CloseIdleConnections()
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/readyz", nil)
		if err != nil {
			return false, err
		}
		request.Header.Set("Authorization", "Bearer "+adminToken)
		answer, err := insecure.Do(request)
		if err != nil {
			return false, nil // not listening yet
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		text, _ := os.ReadFile(s.file("log"))
		return fmt.Errorf("kube-apiserver is not ready: %w; its log ends:\n%s", err, text[max(0, len(text)-2000):])
	}
	return nil
}

// Stop kills the API server.
func (s *apiServer) Stop() { kill(s.process) }

func command(t *testing.T, log, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(name, args...)
	if err := logTo(c, log); err != nil {
		t.Fatal(err)
	}
	return c
}

// logTo sends a process's output to a file, and ends the process with the test.
func logTo(c *exec.Cmd, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	c.Stdout, c.Stderr = f, f
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return err
}

func kill(c *exec.Cmd) {
	if c != nil && c.Process != nil && c.ProcessState == nil {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

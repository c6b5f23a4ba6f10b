// Package apiserver starts a real kube-apiserver with its own etcd for a test.
package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Start runs an API server that serves the custom resource definitions of these files or
// folders until the test ends, and returns an administrator's access to it.
func Start(t testing.TB, crdPaths ...string) *rest.Config {
	t.Helper()
	return StartEnvironment(t, &envtest.Environment{CRDDirectoryPaths: crdPaths, ErrorIfCRDPathMissing: true})
}

// StartEnvironment is Start for an environment with more settings, such as webhooks.
func StartEnvironment(t testing.TB, env *envtest.Environment) *rest.Config {
	t.Helper()
	env.BinaryAssetsDirectory = assets(t)
	// Stopping is also right when the start failed half way.
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	env.ControlPlane.GetAPIServer().Configure().Set("disable-admission-plugins", "ServiceAccount")
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start an API server: %v", err)
	}
	return config
}

// Kubernetes is the binary that is kube-apiserver and kubectl when it is called by those
// names. TOMBOLO_KUBERNETES names it, or the folder of the lab's binaries; without it, it is
// the one compiled last in ~/.cache/tombolo.
func Kubernetes() (string, error) {
	const remedy = "run `make lab-binaries`, or set TOMBOLO_KUBERNETES to the binary or its folder"
	path := os.Getenv("TOMBOLO_KUBERNETES")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the kubernetes binary: %w; %s", err, remedy)
		}
		if path, err = newest(filepath.Join(home, ".cache", "tombolo", "bin", "*", "kubernetes")); err != nil {
			return "", fmt.Errorf("find the kubernetes binary: %w; %s", err, remedy)
		}
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, "kubernetes")
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("find the kubernetes binary: %w; %s", err, remedy)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("find the kubernetes binary: %s is not a program; %s", path, remedy)
	}
	return filepath.Abs(path)
}

// newest is the file that was changed last of those that match.
func newest(pattern string) (string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	var last os.FileInfo
	var found string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && (last == nil || info.ModTime().After(last.ModTime())) {
			found, last = path, info
		}
	}
	if found == "" {
		return "", fmt.Errorf("no file %s", pattern)
	}
	return found, nil
}

// assets is a folder with the names that envtest looks for.
func assets(t testing.TB) string {
	t.Helper()
	kubernetes, err := Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatalf("find etcd: %v; install the package etcd-server", err)
	}
	dir := t.TempDir()
	for name, path := range map[string]string{"kube-apiserver": kubernetes, "kubectl": kubernetes, "etcd": etcd} {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

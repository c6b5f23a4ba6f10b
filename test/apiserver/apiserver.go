// Package apiserver starts a real kube-apiserver with its own etcd for a test.
package apiserver

import (
	"os"
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

// assets is a folder with the names that envtest looks for. kube-apiserver and kubectl are one
// binary, which TOMBOLO_KUBERNETES names, that goes by the name it is called by.
func assets(t testing.TB) string {
	t.Helper()
	kubernetes := os.Getenv("TOMBOLO_KUBERNETES")
	if kubernetes == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatalf("find the kubernetes binary: %v", err)
		}
		kubernetes = filepath.Join(home, ".cache", "tombolo", "bin", "kubernetes")
	}
	if _, err := os.Stat(kubernetes); err != nil {
		t.Fatalf("find the kubernetes binary: %v; compile the lab's binaries, or set TOMBOLO_KUBERNETES", err)
	}
	dir := t.TempDir()
	for name, path := range map[string]string{"kube-apiserver": kubernetes, "kubectl": kubernetes, "etcd": "/usr/bin/etcd"} {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// These are environment variables with the paths of the lab's binaries and images, for programs that run outside of the
// repository.
const (
	EnvRepo     = "TOMBOLO_REPO"       // the repository; found from the working directory
	EnvBinaries = "TOMBOLO_KUBERNETES" // directory of kube-apiserver, kubelet, containerd, ...
)

// Repo returns the repository that this program is of: above the working directory.
func Repo() (string, error) {
	if dir := os.Getenv(EnvRepo); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test/lab/kubernetes/go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the working directory is not in Tombolo's repository: go there, or set %s", EnvRepo)
		}
	}
}

// binaries has the places of programs and manifests. The lab's record keeps it, so that commands about a lab work from
// any directory.
type binaries struct {
	Repo       string // the repository, for the manifests in deploy/
	Kubernetes string // directory of Kubernetes, containerd and CNI plugins: what others made
	Own        string // directory of ours
}

func findBinaries() (binaries, error) {
	repo, err := Repo()
	if err != nil {
		return binaries{}, err
	}
	b := binaries{Repo: repo, Kubernetes: os.Getenv(EnvBinaries), Own: filepath.Join(repo, "bin")}
	if b.Kubernetes == "" {
		// `make lab-binaries` leaves a link to the cache.
		b.Kubernetes = filepath.Join(b.Own, "kubernetes")
	}
	if b.Kubernetes, err = filepath.EvalSymlinks(b.Kubernetes); err != nil {
		return b, fmt.Errorf("the lab's binaries are missing, run `make lab-binaries`: %w", err)
	}
	for _, path := range []string{b.Kubernetes + "/kube-apiserver", b.Kubernetes + "/kubelet",
		b.Kubernetes + "/containerd",
		b.Kubernetes + "/loopback", b.Own + "/nodeinit", b.Own + "/echo", b.Own + "/pause"} {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return b, fmt.Errorf("the lab's binary %s is missing, run `make lab-binaries`", path)
		}
	}
	return b, nil
}

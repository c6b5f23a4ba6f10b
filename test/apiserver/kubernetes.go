package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// Kubernetes returns the path of the binary that acts as kube-apiserver or kubectl, depending on the name by which it
// is called. TOMBOLO_KUBERNETES names it, or the folder of the lab's binaries. Without that variable it is the newest
// one in ~/.cache/tombolo.
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

// newest returns the matching file that was changed last.
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

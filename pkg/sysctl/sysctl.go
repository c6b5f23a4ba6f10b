// Package sysctl reads and writes kernel parameters below /proc/sys/net of the calling thread's network namespace,
// whichever mount they are reached through.
package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// hostRoot is where the agent's container has the Node's /proc/sys/net. Its own is read-only, as in
// every container that is not privileged, and a runtime mounts nothing over it.
const hostRoot = "/host/proc/sys"

var root = sync.OnceValue(func() string {
	if _, err := os.Stat(filepath.Join(hostRoot, "net")); err == nil {
		return hostRoot
	}
	return "/proc/sys"
})

func path(key string) string { return filepath.Join(root(), filepath.Clean("/"+key)) }

// Get reads a parameter, such as "net/ipv4/ip_forward". The error is fs.ErrNotExist where the kernel does
// not have it.
func Get(key string) (string, error) {
	b, err := os.ReadFile(path(key))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", key, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Set writes a parameter.
func Set(key, value string) error {
	if err := os.WriteFile(path(key), []byte(value), 0); err != nil {
		return fmt.Errorf("write sysctl %s: %w", key, err)
	}
	return nil
}

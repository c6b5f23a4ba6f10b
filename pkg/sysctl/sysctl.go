// Package sysctl reads and writes kernel parameters below /proc/sys/net, in the network namespace of the calling
// thread. The mount through which it reaches them does not matter.
package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// hostRoot is where the agent's container has the Node's /proc/sys/net. The container's own /proc/sys is read-only, as
// in every unprivileged container, and a runtime mounts nothing over it.
const hostRoot = "/host/proc/sys"

var root = sync.OnceValue(func() string {
	if _, err := os.Stat(filepath.Join(hostRoot, "net")); err == nil {
		return hostRoot
	}
	return "/proc/sys"
})

func path(key string) string { return filepath.Join(root(), filepath.Clean("/"+key)) }

// Get reads a parameter, such as "net/ipv4/ip_forward". If the kernel does not have it, the error is fs.ErrNotExist.
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

// Package ports reserves TCP ports for servers that tests start.
package ports

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// first and last are the bounds of the ports of Free. They are outside of the range from which the kernel chooses ports
// for connections (net.ipv4.ip_local_port_range). Otherwise a connection could get the port before the server has it,
// or while the server is stopped.
const first, last = 10000, 29999

// Free reserves a free port of 127.0.0.1 until the test ends. Until then no other call returns the port, not even in
// another process.
func Free(t testing.TB) int {
	t.Helper()
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// Reserve reserves a free port for longer than a test. The port is reserved until release is called, or until the
// process ends.
func Reserve() (port int, release func(), err error) {
	locks, err := open()
	if err != nil {
		return 0, nil, fmt.Errorf("reserve a port: %w", err)
	}
	for range 100 {
		port := first + rand.IntN(last-first+1)
		if err = lock(locks, port); err != nil {
			continue // another test has it
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port, func() { _ = locks.Close() }, nil // removes the lock
		}
	}
	return 0, nil, fmt.Errorf("reserve a port: %w", errors.Join(err, locks.Close()))
}

// open opens the file with the locks. Each open file has its own locks, which end when it is closed, or with its
// process.
func open() (*os.File, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("tombolo-test-ports-%d", os.Getuid()))
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// lock locks the byte at the port's number. It fails if another open file has the lock.
func lock(locks *os.File, port int) error {
	one := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(port), Len: 1}
	return unix.FcntlFlock(locks.Fd(), unix.F_OFD_SETLK, &one)
}

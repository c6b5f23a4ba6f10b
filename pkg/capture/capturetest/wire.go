// Package capturetest has a wire for tests of captures.
package capturetest

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/test/child"
)

// Wire is a veth pair in a network namespace of a test. Packets that are sent at one end come out of the other.
type Wire struct {
	Node, Pod string // the ends: at a Node, and in a Pod
	path      string
}

// New makes a veth pair. Its end at the Node has this name.
func New(t testing.TB, node string) Wire {
	t.Helper()
	w := Wire{node, "pod0", fmt.Sprintf("/proc/%d/ns/net", child.Namespace(t))}
	w.IP(t, "link add "+w.Node+" type veth peer name "+w.Pod, "link set "+w.Node+" up", "link set "+w.Pod+" up")
	if err := w.Do(w.awaitUp); err != nil {
		t.Fatal(err)
	}
	return w
}

// awaitUp waits until both ends send. The first end has no carrier until the second one is up. Then the kernel gives it
// a queue a moment later, at the same time as the operational state. Until then it drops packets without an error.
func (w Wire) awaitUp() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		up := 0
		for _, end := range []string{w.Node, w.Pod} {
			link, err := netlink.LinkByName(end)
			if err != nil {
				return err
			}
			if link.Attrs().OperState == netlink.OperUp {
				up++
			}
		}
		switch {
		case up == 2:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of 2 ends of the veth pair are up after a minute", up)
		}
	}
}

// IP runs commands of ip(8) in the namespace.
func (w Wire) IP(t testing.TB, commands ...string) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+w.path, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v\n%s", err, out)
	}
}

// Do calls f in the namespace.
func (w Wire) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	to, err := netns.GetFromPath(w.path)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := netns.Set(to); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, netns.Set(home))
}

// Send sends frames at an end.
func (w Wire) Send(t testing.TB, end string, frames ...[]byte) {
	t.Helper()
	err := w.Do(func() error {
		link, err := net.InterfaceByName(end)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

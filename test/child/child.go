// Package child starts processes for a test. They end with the test's program, however it ends.
//
// Linux kills such a process when the thread ends that started it (PR_SET_PDEATHSIG). Go ends a thread if a goroutine
// that was locked to it ends, as happens in tests that enter network namespaces. So one thread, which never ends,
// starts them all.
package child

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"
)

type request struct {
	command   *exec.Cmd
	namespace netns.NsHandle
	done      chan<- error
}

var requests = sync.OnceValue(func() chan<- request {
	c := make(chan request)
	go serve(c)
	return c
})

// serve keeps its goroutine locked to one thread. The thread is in another network namespace only while it starts a
// process. If it stayed there, the namespace would outlive its test.
func serve(requests <-chan request) {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		panic(fmt.Sprintf("find this thread's network namespace: %v", err))
	}
	for r := range requests {
		r.done <- startIn(r.namespace, own, r.command)
	}
}

// startIn starts a command in a network namespace, and then returns to the thread's own one. That needs root only if
// the two differ.
func startIn(namespace, own netns.NsHandle, c *exec.Cmd) error {
	if namespace.Equal(own) {
		return c.Start()
	}
	if err := netns.Set(namespace); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err := c.Start()
	if back := netns.Set(own); back != nil {
		panic(fmt.Sprintf("return to the network namespace of the program: %v", back))
	}
	return err
}

// Start starts a command in the network namespace of the calling thread. Linux kills it when this program ends.
func Start(c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	here, err := netns.Get()
	if err != nil {
		return fmt.Errorf("find this thread's network namespace: %w", err)
	}
	defer here.Close()
	done := make(chan error)
	requests() <- request{c, here, done}
	return <-done
}

// Run is Start, and waits until the command ends.
func Run(c *exec.Cmd) error {
	if err := Start(c); err != nil {
		return err
	}
	return c.Wait()
}

// Namespace makes a network namespace that lives until the test ends, and returns the ID of the process that holds it.
// The namespace is not determined by comparing threads, since other threads of this program may be in other namespaces
// as well.
func Namespace(t testing.TB) (pid int) {
	t.Helper()
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := Start(holder); err != nil {
		if errors.Is(err, syscall.EPERM) {
			err = fmt.Errorf("%w: this test needs root", err)
		}
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	return holder.Process.Pid
}

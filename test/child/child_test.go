package child_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/tombolo-net/tombolo/test/child"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestThreadEnds ends many threads while processes run. Processes that these threads had started would be killed.
func TestThreadEnds(t *testing.T) {
	var commands []*exec.Cmd
	for range 20 {
		started := make(chan error)
		c := exec.Command("sleep", "infinity")
		go func() {
			runtime.LockOSThread() // and ends locked, which ends the thread
			started <- child.Start(c)
		}()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		commands = append(commands, c)
	}
	ended := make(chan *exec.Cmd, len(commands))
	for _, c := range commands {
		go func() { _ = c.Wait(); ended <- c }()
	}
	select {
	case c := <-ended:
		t.Errorf("the process has ended: %v", c.ProcessState)
		ended <- c
	case <-time.After(300 * time.Millisecond): // the kernel kills at once
	}
	for _, c := range commands {
		_ = c.Process.Kill()
	}
	for range commands {
		<-ended
	}
}

// TestNamespace starts a process from a thread that is in another network namespace. No thread stays there, or the
// namespace would outlive its test.
func TestNamespace(t *testing.T) {
	path := fmt.Sprintf("/proc/%d/ns/net", child.Namespace(t))
	c := exec.Command("sleep", "infinity")
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread may be left in that namespace
		there, err := netns.GetFromPath(path)
		here, failed := netns.Get()
		if err = errors.Join(err, failed); err == nil {
			if err = netns.Set(there); err == nil {
				err = errors.Join(child.Start(c), netns.Set(here))
			}
		}
		there.Close()
		here.Close()
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	link := func(path string) string {
		target, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	want, own := link(path), link("/proc/self/ns/net")
	if have := link(fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid)); have != want || have == own {
		t.Errorf("the process is in %s, want %s; the test is in %s", have, want, own)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, thread := range threads {
		if have, err := os.Readlink(thread); err == nil && have == want { // another thread may have ended
			t.Errorf("%s is still in the namespace of the process", thread)
		}
	}
}

// TestWithoutRoot starts processes as a user who may enter no network namespace.
func TestWithoutRoot(t *testing.T) {
	c := exec.Command("/proc/self/exe", "-test.run=^TestThreadEnds$")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

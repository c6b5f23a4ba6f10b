package ovstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// newNamespace makes a network namespace that lives as long as a process of the test, and returns its path.
func newNamespace(t testing.TB) string {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	path := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the namespace is made", func() error {
		link, err := os.Readlink(path)
		if err == nil && link == own {
			err = errors.New("it is still the test's own")
		}
		return err
	})
	return path
}

// Device makes a network device for a port that is added under this name. Only the kernel's
// datapath needs it: the dummy one has a device for every port.
func (s *Switch) Device(name string) {
	s.t.Helper()
	if s.netns != "" {
		s.run("nsenter", "--net="+s.netns, "ip", "link", "add", name, "type", "dummy")
	}
}

// Package ovs tests the start script of the Open vSwitch container.
package ovs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/child"
)

// TestDatabaseHangs stops ovsdb-server while a restarted ovs-vswitchd waits for its flows, for longer than one request
// of the script. The wait ends when the server goes on.
func TestDatabaseHangs(t *testing.T) {
	s := ovstest.Start(t, ovstest.Dummy)
	s.Vsctl("add-br", "br0")
	s.StopDaemon()
	waits := func() bool {
		return strings.Contains(s.Vsctl("get", "Open_vSwitch", ".", "other_config"), "flow-restore-wait")
	}
	bin := t.TempDir()
	// The script is tested, not the daemon that it becomes.
	if err := errors.Join(
		os.WriteFile(filepath.Join(bin, "ovs-vswitchd"), []byte("#!/bin/sh\nexec sleep 300\n"), 0o755),
		os.WriteFile(filepath.Join(s.RunDir(), "ovs-vswitchd.started"), nil, 0o644),
	); err != nil {
		t.Fatal(err)
	}
	script := exec.Command("./tombolo-ovs", "ovs-vswitchd")
	script.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "OVS_RUNDIR="+s.RunDir(), "OVS_DBDIR="+s.RunDir(),
		"OVS_LOGDIR="+s.RunDir(), "FLOW_RESTORE_WAIT=2")
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(script); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-script.Process.Pid, syscall.SIGKILL) // with the timer, if that is left
		_ = script.Wait()
	})
	s.Eventually("the daemon waits for its flows", func() error {
		if !waits() {
			return errors.New("it does not")
		}
		return nil
	})
	text, err := os.ReadFile(filepath.Join(s.RunDir(), "ovsdb-server.pid"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 1)
	// two questions and an attempt take 17 s
	time.AfterFunc(19*time.Second, func() { resumed <- syscall.Kill(server, syscall.SIGCONT) })
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	s.Eventually("the wait ends", func() error {
		if waits() {
			return errors.New("it has not")
		}
		return nil
	})
}

// Package ovstest runs a real Open vSwitch for a test: ovsdb-server and ovs-vswitchd in a temporary run directory, in
// the network namespace of the calling thread. Several of them can run at the same time.
package ovstest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/child"
)

// Switch is one Open vSwitch.
type Switch struct {
	t        testing.TB
	dir      string
	args     []string
	netns    string // path of the network namespace of ovs-vswitchd, "" for the test's own
	database *exec.Cmd
	daemon   *exec.Cmd
}

// EnvDatapath is the environment variable with the datapath_type of tests that carry packets: netdev, which runs
// everywhere, or system, which needs the kernel's openvswitch module. test/kernel sets it in its guest.
const EnvDatapath = "TOMBOLO_TEST_DATAPATH"

// Datapath is the datapath_type of bridges that carry a test's packets.
func Datapath() string { return cmp.Or(os.Getenv(EnvDatapath), "netdev") }

// System reports whether tests use the kernel's datapath. If it is true, even tests that otherwise use the dummy
// datapath do.
func System() bool { return Datapath() == "system" }

// Timeout is how long tests wait for a condition. The kernel's datapath is tested in a virtual
// machine that is several times slower than its host.
func Timeout() time.Duration {
	if System() {
		return 2 * time.Minute
	}
	return time.Minute
}

// Dummy makes ovs-vswitchd replace the system datapath and network devices by ones that exist only in its memory, so
// that ports need no devices. If System is true, Start uses the kernel's datapath instead, in a network namespace of
// its own.
const Dummy = "--enable-dummy=system"

// Userspace makes ovs-vswitchd use no kernel datapath. If System is true, Start ignores it. Then the switch uses the
// kernel's datapath in the network namespace of the calling thread.
const Userspace = "--disable-system"

// Start starts an empty switch, with args as arguments of ovs-vswitchd. The daemons end with the test. If they are not
// installed, the test fails.
func Start(t testing.TB, args ...string) *Switch {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs") // t.TempDir's names are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	s := &Switch{t: t, dir: dir, args: args}
	if System() {
		s.args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == Dummy || arg == Userspace })
		if slices.Contains(args, Dummy) {
			s.netns = fmt.Sprintf("/proc/%d/ns/net", child.Namespace(t))
		}
	}
	t.Cleanup(func() {
		s.StopDaemon()
		s.StopDatabase()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "ovs-vswitchd.log"))
			t.Logf("ovs-vswitchd.log:\n%s", tail(log))
		}
		os.RemoveAll(dir)
	})
	s.create()
	return s
}

// LoseDatabase kills both daemons, deletes the database, and starts again with an empty one.
func (s *Switch) LoseDatabase() {
	s.t.Helper()
	s.StopDaemon()
	s.StopDatabase()
	if err := os.Remove(filepath.Join(s.dir, "conf.db")); err != nil {
		s.t.Fatal(err)
	}
	s.create()
}

// Schema returns the file with the definition of the switch's database. As for Open vSwitch's programs, OVS_PKGDATADIR
// names its directory.
func Schema() string {
	return filepath.Join(cmp.Or(os.Getenv("OVS_PKGDATADIR"), "/usr/share/openvswitch"), "vswitch.ovsschema")
}

// create makes an empty database and starts both daemons.
func (s *Switch) create() {
	s.t.Helper()
	s.run("ovsdb-tool", "create", filepath.Join(s.dir, "conf.db"), Schema())
	s.StartDatabase()
	s.Vsctl("--no-wait", "init")
	s.StartDaemon()
}

// RunDir is the switch's OVS_RUNDIR.
func (s *Switch) RunDir() string { return s.dir }

// Endpoint is where its ovsdb-server listens.
func (s *Switch) Endpoint() string { return "unix:" + filepath.Join(s.dir, "db.sock") }

// StartDatabase starts ovsdb-server and waits until it answers.
func (s *Switch) StartDatabase() {
	s.t.Helper()
	s.database = s.start("ovsdb-server", filepath.Join(s.dir, "conf.db"),
		"--remote=punix:"+filepath.Join(s.dir, "db.sock"))
	s.Eventually("ovsdb-server answers", func() error {
		return child.Run(s.command("ovsdb-client", "list-dbs", s.Endpoint()))
	})
}

// StopDatabase kills ovsdb-server as a crash would.
func (s *Switch) StopDatabase() { stop(&s.database, syscall.SIGKILL) }

// SuspendDatabase stops ovsdb-server from answering, without closing connections, until ResumeDatabase.
func (s *Switch) SuspendDatabase() { s.signalDatabase(syscall.SIGSTOP) }

// ResumeDatabase lets ovsdb-server answer again.
func (s *Switch) ResumeDatabase() { s.signalDatabase(syscall.SIGCONT) }

func (s *Switch) signalDatabase(signal os.Signal) {
	s.t.Helper()
	if err := s.database.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// StartDaemon starts ovs-vswitchd and waits until it has read the database.
func (s *Switch) StartDaemon() {
	s.t.Helper()
	name, args := "ovs-vswitchd", append([]string{s.Endpoint()}, s.args...)
	if s.netns != "" {
		name, args = "nsenter", append([]string{"--net=" + s.netns, name}, args...)
	}
	s.daemon = s.start(name, args...)
	s.Eventually("ovs-vswitchd answers", func() error {
		return child.Run(s.command("ovs-appctl", "version"))
	})
	s.Vsctl("--timeout=60", "set", "Open_vSwitch", ".", "external_ids:started="+fmt.Sprint(s.daemon.Process.Pid))
}

// StopDaemon kills ovs-vswitchd as a crash would.
func (s *Switch) StopDaemon() { stop(&s.daemon, syscall.SIGKILL) }

// Vsctl runs ovs-vsctl, which has to succeed, and returns its output without the last
// newline.
func (s *Switch) Vsctl(args ...string) string {
	s.t.Helper()
	return s.run("ovs-vsctl", append([]string{"--db=" + s.Endpoint()}, args...)...)
}

// Appctl runs ovs-appctl, which has to succeed, and returns its output.
func (s *Switch) Appctl(args ...string) string {
	s.t.Helper()
	return s.run("ovs-appctl", args...)
}

// Device makes a network device for a port that is added under this name. Only the kernel's
// datapath needs it: the dummy one has a device for every port.
func (s *Switch) Device(name string) {
	s.t.Helper()
	if s.netns != "" {
		s.run("nsenter", "--net="+s.netns, "ip", "link", "add", name, "type", "dummy")
	}
}

// Eventually fails the test when f still returns an error after Timeout.
func (s *Switch) Eventually(what string, f func() error) {
	s.t.Helper()
	Eventually(s.t, what, f)
}

// Eventually fails the test when f still returns an error after Timeout.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(Timeout())
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Timeout(), err)
		}
		<-tick.C
	}
}

func (s *Switch) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_DBDIR="+s.dir, "OVS_LOGDIR="+s.dir)
	return c
}

// run runs a command that has to succeed.
func (s *Switch) run(name string, args ...string) string {
	s.t.Helper()
	var out, complaints bytes.Buffer
	c := s.command(name, args...)
	c.Stdout, c.Stderr = &out, &complaints
	if err := child.Run(c); err != nil {
		s.t.Fatalf("%s %q: %v: %s%s", name, args, err, &out, &complaints)
	}
	return strings.TrimRight(out.String(), "\n")
}

// start starts a daemon as a child.
func (s *Switch) start(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	c := s.command(name, append(args, "--no-chdir", "--pidfile", "--log-file", "--verbose=console:off")...)
	if err := child.Start(c); err != nil {
		s.t.Fatalf("start %s: %v", name, err)
	}
	return c
}

func stop(c **exec.Cmd, signal os.Signal) {
	if *c == nil {
		return
	}
	// It may have ended by itself; a killed process returns an error, which is expected.
	_ = (*c).Process.Signal(signal)
	_ = (*c).Wait()
	*c = nil
}

func tail(log []byte) []byte {
	lines := bytes.Split(log, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-40):], []byte("\n"))
}

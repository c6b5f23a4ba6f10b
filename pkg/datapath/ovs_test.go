package datapath

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/child"
)

// openVSwitch is a real Open vSwitch of one test, with a directory of its own.
type openVSwitch struct {
	dir   string
	netns string // path of the network namespace that vswitchd runs in, "" for the test's
}

// startOVS starts ovsdb-server and ovs-vswitchd and stops them when the test ends. Without a network namespace the
// datapath is the dummy one, which needs no rights and no interfaces. If ovstest.System is true, it is the kernel's in
// a namespace of its own.
func startOVS(t testing.TB, netns string) *openVSwitch {
	t.Helper()
	dir, err := os.MkdirTemp("", "tombolo-ovs-") // short: a unix socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if netns == "" && ovstest.System() {
		netns = newNamespace(t).path()
	}
	o := &openVSwitch{dir: dir, netns: netns}
	db := filepath.Join(dir, "conf.db")
	o.run(t, "", "ovsdb-tool", "create", db, ovstest.Schema())
	o.daemon(t, "", "ovsdb-server", db, "--remote=punix:"+filepath.Join(dir, "db.sock"))
	o.vsctl(t, "--no-wait", "init")
	switch {
	case ovstest.System():
		o.daemon(t, netns, "ovs-vswitchd", "unix:"+filepath.Join(dir, "db.sock"))
	case netns == "":
		o.daemon(t, "", "ovs-vswitchd", "--enable-dummy", "--disable-system", "--disable-system-route",
			"unix:"+filepath.Join(dir, "db.sock"))
	default:
		o.daemon(t, netns, "ovs-vswitchd", "--disable-system", "unix:"+filepath.Join(dir, "db.sock"))
	}
	return o
}

// daemon starts a process and waits until its control socket answers.
func (o *openVSwitch) daemon(t testing.TB, netns, name string, args ...string) {
	t.Helper()
	args = append(args, "--no-chdir", "--pidfile", "-vconsole:off", "-vsyslog:off", "-vfile:warn",
		"--log-file="+filepath.Join(o.dir, name+".log"))
	cmd := o.command(netns, name, args...)
	if err := child.Start(cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(o.dir, name+".log")); err == nil {
				t.Logf("%s:\n%s", name, tail(string(log), 30))
			}
		}
	})
	eventually(t, name+" answers", func() error {
		out, err := o.command("", "ovs-appctl", "-t", name, "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func tail(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	ovstest.Eventually(t, what, check)
}

func (o *openVSwitch) command(netns, name string, args ...string) *exec.Cmd {
	if netns != "" {
		args = append([]string{"--net=" + netns, name}, args...)
		name = "nsenter"
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_DBDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_SYSCONFDIR="+o.dir)
	return cmd
}

// run runs a tool with input and returns its output. If the tool fails, the test ends.
func (o *openVSwitch) run(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	cmd := o.command("", name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

func (o *openVSwitch) vsctl(t testing.TB, args ...string) string {
	t.Helper()
	return o.run(t, "", "ovs-vsctl", append([]string{"--db=unix:" + filepath.Join(o.dir, "db.sock"), "--timeout=60"},
		args...)...)
}

func (o *openVSwitch) appctl(t testing.TB, args ...string) string {
	t.Helper()
	return o.run(t, "", "ovs-appctl", append([]string{"-t", "ovs-vswitchd"}, args...)...)
}

// program writes a set into a bridge as flowsync does: the meters, then the rest in one bundle.
func (o *openVSwitch) program(t testing.TB, bridge string, set *flow.Set) {
	t.Helper()
	for m := range set.Meters() {
		// it is there
		if err := o.command("", "ovs-ofctl", "-O", "OpenFlow15", "add-meter", filepath.Join(o.dir, bridge+".mgmt"),
			m.String()).Run(); err != nil {
			o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "mod-meter", filepath.Join(o.dir, bridge+".mgmt"), m.String())
		}
	}
	var b strings.Builder
	for g := range set.Groups() {
		fmt.Fprintf(&b, "group %s\n", g)
	}
	for f := range set.Flows() {
		fmt.Fprintf(&b, "flow %s\n", f)
	}
	o.run(t, b.String(), "ovs-ofctl", "-O", "OpenFlow15", "bundle", filepath.Join(o.dir, bridge+".mgmt"), "-")
}

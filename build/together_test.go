package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTogether runs two commands at the same time. Both end, and the second one's output follows the first one's.
func TestTogether(t *testing.T) {
	// Each waits for the other one, so that they end only if they run together.
	const one = `: >first; until [ -e second ]; do sleep 0.05; done; echo "the first"`
	const other = `: >second; until [ -e first ]; do sleep 0.05; done; echo "the second"`
	for _, c := range []struct {
		name, one, other string
		status           int
		want             string
	}{
		{name: "both pass", one: "echo one", other: "echo other", want: "one\nother\n"},
		{name: "together", one: one, other: other, want: "the first\nthe second\n"},
		{name: "the first fails", one: "echo one; exit 3", other: "echo other", status: 3, want: "one\nother\n"},
		{name: "the other one fails", one: "echo one", other: "echo other; exit 4", status: 4, want: "one\nother\n"},
		{name: "failed tests come at once", one: `until [ -e told ]; do sleep 0.05; done; echo one`,
			other: `echo other; echo "--- FAIL: TestX"; ` +
				`for i in {1..200}; do ! grep -q FAIL shown || break; sleep 0.05; done; : >told; exit 1`,
			status: 1, want: "meanwhile: --- FAIL: TestX\none\nother\n--- FAIL: TestX\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := together(t, c.one, c.other)
			err := cmd.Run()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			out := shown(t, cmd)
			if status := cmd.ProcessState.ExitCode(); status != c.status || !strings.HasPrefix(out, c.want) {
				t.Errorf("status %d, output %q, want %d and %q", status, out, c.status, c.want)
			}
		})
	}
}

// TestSpare asks whether labs leave processor time: the environment decides, or else a measurement.
func TestSpare(t *testing.T) {
	for _, c := range []struct{ mode, want string }{{"0", "^0\n$"}, {"1", "^1\n$"}, {"", "^[01]\n$"}} {
		cmd := exec.Command("./together", "spare")
		cmd.Env = append(os.Environ(), "TOMBOLO_TOGETHER="+c.mode)
		if out, err := cmd.Output(); err != nil || !regexp.MustCompile(c.want).Match(out) {
			t.Errorf("TOMBOLO_TOGETHER=%s: %q, %v: want %s", c.mode, out, err, c.want)
		}
	}
}

// TestTogetherWeight reads what the second command has of the processors: less than other programs.
func TestTogetherWeight(t *testing.T) {
	const read = `nice; grep . /sys/fs/cgroup/tombolo-spare-*/cpu.weight ` +
		`/sys/fs/cgroup/cpu/tombolo-spare-*/cpu.shares 2>/dev/null || true`
	cmd := together(t, "true", read)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	out := shown(t, cmd)
	words := strings.Fields(out)
	if len(words) == 0 || words[0] != "19" && !strings.Contains(out, ":512\n") && !strings.Contains(out, ":50\n") {
		t.Errorf("niceness and weight: %q, want 19, or a weight of 512 or 50", out)
	}
	cmd = together(t, "true", read)
	// Nothing may enter a cgroup: the shell's echo fails for a process ID.
	cmd.Env = append(cmd.Env, `BASH_FUNC_echo%%=() { [ "$1" != "$BASHPID" ] && builtin echo "$@"; }`)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if out := shown(t, cmd); !strings.HasPrefix(out, "19\n") {
		t.Errorf("without a cgroup: %q, want niceness 19", out)
	}
}

// TestTogetherStops ends both commands, and all they have started, with the script, which prints the second one's
// output.
func TestTogetherStops(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		group  bool // as a terminal does, and not to the script alone
	}{
		{"Ctrl-C", syscall.SIGINT, true},
		{"the group is ended", syscall.SIGTERM, true},
		{"the script is ended", syscall.SIGTERM, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			const starts = `sleep 100 & echo $! >%s; echo "so far"; wait`
			cmd := together(t, fmt.Sprintf(starts, "child-1"), fmt.Sprintf(starts, "child-2"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
			children := map[string]string{"child-1": "", "child-2": ""}
			for file := range children {
				within(t, "command to begin", func() bool {
					text, _ := os.ReadFile(filepath.Join(cmd.Dir, file))
					children[file] = strings.TrimSpace(string(text))
					return children[file] != ""
				})
			}
			within(t, "the second command to write", func() bool {
				text, _ := os.ReadFile(filepath.Join(cmd.Dir, "log"))
				return len(text) > 0
			})
			to := cmd.Process.Pid
			if c.group {
				to = -to
			}
			if err := syscall.Kill(to, c.signal); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := cmd.Wait(); err == nil {
				t.Error("a script that was stopped succeeds")
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it stops after %v", took)
			}
			state := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if c.signal == syscall.SIGINT && state.Signal() != syscall.SIGINT {
				t.Errorf("it ends with %v, want by SIGINT", cmd.ProcessState)
			}
			if out := shown(t, cmd); out != "so far\nso far\n" {
				t.Errorf("output %q, want that of both commands", out)
			}
			for file, child := range children {
				within(t, "process "+child+" of "+file+" to end", func() bool {
					state, err := os.ReadFile("/proc/" + child + "/stat")
					return err != nil || strings.Contains(string(state), ") Z ")
				})
			}
			for _, in := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // of version 2, and of version 1
				left, _ := filepath.Glob(in + "/tombolo-spare-" + strconv.Itoa(cmd.Process.Pid))
				if len(left) > 0 {
					t.Errorf("cgroups are left: %v", left)
				}
			}
		})
	}
}

// within waits up to a minute.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// shown returns what a script has written to file "shown" of its directory.
func shown(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cmd.Dir, "shown"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// together is the script with two commands, in a directory that has only what it writes to stdout: file "shown".
func together(t *testing.T, one, other string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs("together")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, one, other, "log")
	cmd.Dir = t.TempDir()
	// A pipe would stay open until all processes have ended.
	out, err := os.Create(filepath.Join(cmd.Dir, "shown"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	cmd.Stdout = out
	return cmd
}

package build

import (
	"os"
	"os/exec"
	"path/filepath"
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
		name, one, other, mode string
		status                 int
		want                   string
	}{
		{name: "both pass", one: "echo one", other: "echo other", want: "one\nother\n"},
		{name: "together", one: one, other: other, want: "the first\nthe second\n"},
		{name: "the first fails", one: "echo one; exit 3", other: "echo other", status: 3, want: "one\nother\n"},
		{name: "the other one fails", one: "echo one", other: "echo other; exit 4", status: 4, want: "one\nother\n"},
		{name: "one after the other", one: "sleep 0.2; : >done", other: "[ -e done ] && echo other", mode: "0",
			want: "other\n"},
		{name: "one after the other, the first fails", one: "exit 3", other: "echo other", mode: "0", status: 3,
			want: "other\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := together(t, c.one, c.other)
			if c.mode != "" {
				cmd.Env = append(os.Environ(), "TOMBOLO_TOGETHER="+c.mode)
			}
			out, err := cmd.Output()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if status := cmd.ProcessState.ExitCode(); status != c.status || !strings.HasPrefix(string(out), c.want) {
				t.Errorf("status %d, output %q, want %d and %q", status, out, c.status, c.want)
			}
		})
	}
}

// TestTogetherWeight reads what the second command has of the processors: less than other programs.
func TestTogetherWeight(t *testing.T) {
	out, err := together(t, "true", `nice; grep . /sys/fs/cgroup/tombolo-spare-*/cpu.weight `+
		`/sys/fs/cgroup/cpu/tombolo-spare-*/cpu.shares 2>/dev/null || true`).Output()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(out))
	if len(words) == 0 || words[0] != "19" && !strings.Contains(string(out), ":512\n") &&
		!strings.Contains(string(out), ":50\n") {
		t.Errorf("niceness and weight: %q, want 19, or a weight of 512 or 50", out)
	}
}

// TestTogetherStops ends the second command, and all it has started, with the script.
func TestTogetherStops(t *testing.T) {
	cmd := together(t, "echo >begun; sleep 100", `sleep 100 & echo $! >child; wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var child string
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(cmd.Dir, "child"))
		child = strings.TrimSpace(string(text))
		if _, err := os.Stat(filepath.Join(cmd.Dir, "begun")); err == nil && child != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the commands have not begun")
		}
	}
	// As a terminal does with Ctrl-C.
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a script that was stopped succeeds")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("process %s of the second command still runs", child)
		}
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/tombolo-spare-" + strconv.Itoa(cmd.Process.Pid)); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

// together is the script with two commands, in an empty directory.
func together(t *testing.T, one, other string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs("together")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, one, other)
	cmd.Dir = t.TempDir()
	return cmd
}

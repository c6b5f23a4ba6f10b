package build

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// output runs a script that has sourced stage.sh; on a terminal when tty is set.
func output(t *testing.T, tty bool, script string) (string, int) {
	t.Helper()
	script = "set -euo pipefail; . ./stage.sh; " + script
	cmd := exec.Command("bash", "-c", script)
	if tty {
		cmd = exec.Command("script", "-qec", "bash -c '"+script+"'", "/dev/null") // util-linux
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// noise is what a build that downloads and compiles prints.
const noise = `
noise() {
	for m in a b c; do echo "go: downloading example.com/$m v1.0.0" >&2; done
	echo example.com/a/pkg >&2
	echo fmt >&2
	sleep 1
}
`

func TestStage(t *testing.T) {
	const counts = `compiling things: modules downloaded 3, packages compiled 2`
	t.Run("no terminal", func(t *testing.T) {
		out, status := output(t, false, noise+`stage "compiling things" noise; echo next`)
		if want := regexp.MustCompile(`^ +\d+\.\ds  ` + counts + "\nnext\n$"); status != 0 || !want.MatchString(out) {
			t.Errorf("status %d, output %q, want %s", status, out, want)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		out, status := output(t, true, noise+`stage "compiling things" noise; echo next`)
		if status != 0 || strings.Contains(out, "go: downloading") {
			t.Errorf("status %d, output %q", status, out)
		}
		if n := strings.Count(out, "\r"); n < 3 {
			t.Errorf("the line was painted %d times, want it repainted while the command runs: %q", n, out)
		}
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(out, "\r\n", "\n")), "\n")
		if len(lines) != 2 || !strings.HasSuffix(lines[0], counts) || lines[1] != "next" {
			t.Errorf("lines %q, want the stage and the next", lines)
		}
	})
	t.Run("failure", func(t *testing.T) {
		out, status := output(t, false, `
broken() {
	echo "go: downloading example.com/a v1.0.0"
	echo "x.go:7: undefined: y"
	return 3
}
stage "compiling things" broken
echo next`)
		if status != 3 || strings.Contains(out, "next") {
			t.Errorf("status %d, want the command's 3, and nothing after it: %q", status, out)
		}
		for _, want := range []string{"compiling things: FAILED", "go: downloading example.com/a v1.0.0\n",
			"x.go:7: undefined: y\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("output %q, want %q in it", out, want)
			}
		}
	})
	t.Run("time of an earlier start", func(t *testing.T) {
		out, status := output(t, false, `TOMBOLO_START=$((EPOCHSECONDS - 100)); stage "nothing to do" true`)
		if want := regexp.MustCompile(`^ +10\d\.\ds  nothing to do\n$`); status != 0 || !want.MatchString(out) {
			t.Errorf("status %d, output %q, want %s", status, out, want)
		}
	})
}

package build

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUnstable runs a tier of tests that fail once or each time. Only a test that passes the second time is forgiven,
// and the report names it.
func TestUnstable(t *testing.T) {
	const once = "build/testdata/unstable.TestOnce: 2 runs, 1 failures"
	for _, c := range []struct {
		name, always, start string
		passes              bool
		runs                int
		report              string
		latest, tier        string
	}{
		{name: "once", passes: true, runs: 2, report: once},
		{name: "once and each time", always: "a", runs: 2, report: once},
		{name: "four", always: "abc", runs: 2, report: once},
		{name: "more than four", always: "abcd", runs: 1},
		{name: "late", start: "1", runs: 1},
		{name: "too late", start: "1", latest: "60", passes: true,
			report: "NOT RUN, since the time was over: tier\n"},
		{name: "in time", latest: "60", passes: true, runs: 2, report: once},
		{name: "in time for a short one", start: ago(50 * time.Minute), latest: "60", passes: true, runs: 2, report: once},
		{name: "too late for a long one", start: ago(50 * time.Minute), latest: "60", tier: "raced", passes: true,
			report: "NOT RUN, since the time was over: raced\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := func(args ...string) (string, error) {
				cmd := exec.Command("./tests", args...)
				cmd.Env = append(os.Environ(), "UNSTABLE_FILE="+filepath.Join(dir, "seen"),
					"UNSTABLE_ALWAYS="+c.always, "TOMBOLO_UNSTABLE="+filepath.Join(dir, "reports"), "TOMBOLO_START="+c.start,
					"TOMBOLO_LATEST="+c.latest)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			out, err := run(cmp.Or(c.tier, "tier"), "./build/testdata/unstable")
			if (err == nil) != c.passes {
				t.Fatalf("the tier: %v, want success %v:\n%s", err, c.passes, out)
			}
			first := strings.Contains(out, "the first time")
			if n := strings.Count(out, "DONE "); n != c.runs || first != (n > 0) {
				t.Errorf("%d runs, want %d, and the output of the first failure:\n%s", n, c.runs, out)
			}
			report, err := run("unstable")
			if err != nil || !strings.Contains(report, c.report) || (report != "") != (c.report != "") ||
				strings.Contains(report, "TestA") {
				t.Errorf("the report: %v, want %q:\n%s", err, c.report, report)
			}
		})
	}
}

// ago returns a time as the seconds of the clock.
func ago(d time.Duration) string { return fmt.Sprint(time.Now().Add(-d).Unix()) }

package kernel

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/lab"
)

var (
	only = flag.String("kernel.run", "",
		"run only these tests of the packages in the guest: a regular expression, as of -test.run")
	all     = flag.Bool("kernel.all", false, "run the tests too that `make test` has no time for in the guest")
	suite   = flag.String("kernel.suite", "", "run only this package in the guest")
	more    = flag.String("kernel.args", "", "further arguments of the package of -kernel.suite")
	timeout = flag.Duration("kernel.timeout", 22*time.Minute,
		"how long all tests in the guests may take together; TCG is slow where others use the machine")
	together = flag.Bool("kernel.together", true, "run the guests at the same time")
	verbose  = flag.Bool("kernel.v", false, "print what the tests in the guest print, also where they pass")
)

// packageTests are tests of a package.
type packageTests struct {
	pkg  string
	run  string // as of -test.run
	more string // more of them, with -kernel.all
	args []string
}

// names returns the tests to run, as of -test.run.
func (s packageTests) names() string {
	switch {
	case *only != "":
		return *only
	case *all && s.more != "":
		return s.run + "|" + s.more
	}
	return s.run
}

// guestTests are the tests of a guest.
type guestTests struct {
	cpus, nice int
	tests      []packageTests
}

// suites are the tests that meet the kernel: its datapath, its connection tracker, its tunnels,
// its netlink, its WireGuard. The same code runs on the userspace or the dummy datapath in its own package.
//
// Each has a guest of its own, and the guests run at the same time. A guest runs its tests one after the other.
var suites = []guestTests{
	// A guest of one CPU needs two thirds of the processor time: CPUs of an interpreted guest wait for each other. These
	// tests pass with half a processor.
	{cpus: 1, nice: 5, tests: []packageTests{
		{pkg: "pkg/datapath",
			run: "^(TestTraffic|TestTrafficFromOutside|TestTunnelTypes|TestTunnelsOverIPv6|TestTunnelSource|" +
				"TestTunnelsEndAtOneInterface|TestHostilePacketsOnSwitch|TestRejectionsReturn|TestSwitchAccepts|TestFragments)$",
			more: "^(TestVirtualTraffic|TestSeparateTraffic|TestRouterTraffic|TestTenantTraffic|TestWalks|TestPolicyLoad|" +
				"TestFailover|" +
				"TestFailoverUntranslated|TestRejected|TestNeighborFlood)$"},
	}},
	// TestEncryptedPods counts lost packets, and loses too many of them with half a processor.
	{cpus: 2, tests: []packageTests{
		{pkg: "pkg/hostnet",
			run:  "^(TestNode|TestRefusedAndTaken|TestGatewayPort|TestTranslations|TestStaleDatagrams|TestTrafficModes)$",
			more: "^(TestTranslations6|TestHostPorts6)$"},
		{pkg: "pkg/openflow/flowsync",
			run: "^(TestSyncTwiceSendsNothing|TestMend|TestNothingIsRemovedBeforeRelease|TestSwitchRestarts|" +
				"TestRefusedFlowsAreHeldBack|TestMeters|TestMendMeters|TestChangedActionsKeepCounters)$"},
		{pkg: "pkg/agent", run: "^(TestWalk|TestRotation|TestEncryptedPods)$",
			more: "^(TestRotationOfNodes|TestSwitchUpgraded)$",
			args: []string{"-walk.seed=1", "-walk.steps=30", "-rotation.steps='^(both change|a Node joins while .*)$'"}},
		{pkg: "pkg/cni", run: "."},
		{pkg: "pkg/wireguard", run: "^(TestTunnel|TestOneSided|TestTakenName)$"},
	}},
}

// chosen are the suites that this run is for.
func chosen() []guestTests {
	var guests []guestTests
	for _, of := range suites {
		of.tests = slices.DeleteFunc(slices.Clone(of.tests),
			func(s packageTests) bool { return *suite != "" && s.pkg != *suite })
		if len(of.tests) > 0 {
			guests = append(guests, of)
		}
	}
	return guests
}

// TestKernelDatapath runs the suites in guests whose kernel has the openvswitch module, on
// datapath_type=system.
func TestKernelDatapath(t *testing.T) {
	t.Parallel()
	repository, err := lab.Repo()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	k, err := Fetch(t.Context(), filepath.Join(home, ".cache", "tombolo"))
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(*timeout)
	if end, ok := t.Deadline(); ok && end.Add(-time.Minute).Before(limit) {
		limit = end.Add(-time.Minute) // to report how far the guests got before go test stops everything
	}
	atOnce := *together && !secondTime(t, repository)
	var up sync.WaitGroup
	defer up.Wait()
	ctx, cancel := context.WithDeadline(t.Context(), limit)
	defer cancel()
	programs := t.TempDir()
	compile(t, repository, "build", filepath.Join(programs, "tombolo-cni"), "./plugins/tombolo-cni")
	type boot struct {
		share string
		ended chan error
	}
	began := time.Now()
	var boots []boot
	for _, of := range chosen() {
		b := boot{t.TempDir(), make(chan error, 1)}
		boots = append(boots, b)
		must(t, copyFile(filepath.Join(programs, "tombolo-cni"), filepath.Join(b.share, "tombolo-cni"), 0o755))
		for _, s := range of.tests {
			compile(t, repository, "test", filepath.Join(b.share, name(s.pkg)+".test"), "./"+s.pkg)
		}
		must(t, os.WriteFile(filepath.Join(b.share, "run"), []byte(script(of.tests)), 0o644))
		guest := Guest{Kernel: k, Share: b.share, Repository: repository, MemoryMiB: 3072, CPUs: of.cpus, Nice: of.nice}
		up.Go(func() { b.ended <- guest.runTwice(ctx, t.Logf) })
		if !atOnce {
			up.Wait()
		}
	}
	for i, of := range chosen() {
		failure := <-boots[i].ended
		t.Logf("Linux %s in QEMU, guest %d: %v", k.Release, i+1, time.Since(began).Round(time.Second))
		for _, s := range of.tests {
			t.Run(s.pkg, func(t *testing.T) { s.report(t, boots[i].share) })
		}
		if failure != nil {
			t.Error(failure)
		}
	}
}

// secondTime reports whether this tier of `make test` has failed before. Then each guest has the machine for itself:
// some failures come from guests that wait for each other. build/tests removes the file when the tier begins.
func secondTime(t *testing.T, repository string) bool {
	t.Helper()
	if os.Getenv("TOMBOLO_START") == "" { // not in `make test`
		return false
	}
	file := filepath.Join(repository, "bin", "times", "kernel.failed")
	_, err := os.Stat(file)
	t.Cleanup(func() {
		if t.Failed() {
			must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must(t, os.WriteFile(file, nil, 0o644))
		}
	})
	return err == nil
}

// script runs suites in a guest. If the guest died, it leaves out the suites that have ended.
func script(of []packageTests) string {
	var script strings.Builder
	fmt.Fprintf(&script, "export %s=system TOMBOLO_CNI_TEST_PLUGIN=/run/share/tombolo-cni TOMBOLO_REPO=/run/repository\n",
		ovstest.EnvDatapath)
	for _, s := range of {
		// The binary is copied to the guest's memory: it is read in pages otherwise, over 9p.
		fmt.Fprintf(&script,
			"if [ ! -e /run/share/%[1]s.status ]; then cp /run/share/%[1]s.test /tmp/%[1]s.test && cd /run/repository/%[2]s "+
				"&& /tmp/%[1]s.test -test.v -test.count=1 -test.timeout=%[5]s -test.run '%[3]s' %[4]s >/run/share/%[1]s.log 2>&1\n"+
				"echo $? >/run/share/%[1]s.status; rm /tmp/%[1]s.test; cut -d. -f1 /proc/uptime >/run/share/%[1]s.uptime; fi\n",
			name(s.pkg), s.pkg, s.names(), strings.Join(append(slices.Clone(s.args), *more), " "), timeout)
	}
	return script.String()
}

// report fails a test for what failed in the guest.
func (s packageTests) report(t *testing.T, share string) {
	log := read(t, filepath.Join(share, name(s.pkg)+".log"))
	status := strings.TrimSpace(read(t, filepath.Join(share, name(s.pkg)+".status")))
	t.Logf("%d tests passed; the guest was up for %s s then", len(passed.FindAllString(log, -1)),
		strings.TrimSpace(read(t, filepath.Join(share, name(s.pkg)+".uptime"))))
	switch {
	case status != "0":
		t.Errorf("exit status %q in the guest:\n%s", status, failing(log))
	case *only == "" && !passed.MatchString(log):
		t.Errorf("no test ran:\n%s", log)
	case *verbose:
		t.Log(log)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTwice runs a guest again that dies, once.
func TestTwice(t *testing.T) {
	for _, deaths := range []int{0, 1, 2} {
		ran, reports := 0, 0
		err := twice(t.Context(), func(context.Context) error {
			if ran++; ran <= deaths {
				return errors.New("dead")
			}
			return nil
		}, func(string, ...any) { reports++ })
		if ran != min(deaths, 1)+1 || reports != min(deaths, 1) || (err != nil) != (deaths == 2) {
			t.Errorf("%d deaths: it ran %d times, wrote %d lines, and returned %v", deaths, ran, reports, err)
		}
	}
}

// TestDyingGuest starts a guest again whose kernel panics. The second time it does not end by itself, and is stopped.
func TestDyingGuest(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	k, err := Fetch(t.Context(), filepath.Join(home, ".cache", "tombolo"))
	if err != nil {
		t.Fatal(err)
	}
	share := t.TempDir()
	script := "if [ ! -e /run/share/died ]; then : >/run/share/died; echo c >/proc/sysrq-trigger; fi\n" +
		"echo 'last words of the guest'; : >/run/share/hangs; sleep infinity\n"
	if err := os.WriteFile(filepath.Join(share, "run"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	reported := ""
	go func() {
		guest := Guest{Kernel: k, Share: share, Repository: share, MemoryMiB: 512, CPUs: 1, Nice: 19}
		ended <- guest.runTwice(ctx, func(format string, args ...any) { reported += fmt.Sprintf(format, args...) })
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(share, "hangs")); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the guest ended before its script began: %v", err)
		case <-tick.C:
		}
	}
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "still running") ||
		!strings.Contains(err.Error(), "last words of the guest") {
		t.Errorf("error %v, want one with the console's last lines", err)
	}
	if !strings.Contains(reported, "sysrq triggered crash") {
		t.Errorf("it reported %q, want why the first guest died", reported)
	}
}

var passed = regexp.MustCompile(`(?m)^--- PASS: `)

// failing leaves out of the output of -test.v what passed: CI shows only so many lines of a failure. A test that
// did not end, because of a panic or the time limit, has failed.
func failing(log string) string {
	var out, current []string
	for line := range strings.Lines(log) {
		switch {
		case strings.HasPrefix(line, "=== RUN") && !strings.Contains(line, "/"):
			out = append(out, current...)
			current = []string{line}
		case strings.HasPrefix(line, "--- PASS: "), strings.HasPrefix(line, "--- SKIP: "):
			current = nil
		case strings.HasPrefix(line, "--- FAIL: "):
			out = append(append(out, current...), line)
			current = nil
		case strings.HasPrefix(line, "=== "), strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS: "):
		case current != nil:
			current = append(current, line)
		case strings.HasPrefix(line, " "): // of subtests, after their test's last line
			if len(out) > 0 {
				out = append(out, line)
			}
		default:
			out = append(out, line)
		}
	}
	return strings.Join(append(out, current...), "")
}

// TestFailing holds failing against what go test prints.
func TestFailing(t *testing.T) {
	const log = `=== RUN   TestA
    a_test.go:1: fine
=== RUN   TestA/sub
--- PASS: TestA (0.01s)
    --- PASS: TestA/sub (0.00s)
=== RUN   TestB
    b_test.go:7: before
=== RUN   TestB/good
=== RUN   TestB/bad
    b_test.go:9: broken
--- FAIL: TestB (0.02s)
    --- PASS: TestB/good (0.01s)
    --- FAIL: TestB/bad (0.01s)
=== RUN   TestC
panic: test timed out
FAIL
`
	const want = `=== RUN   TestB
    b_test.go:7: before
    b_test.go:9: broken
--- FAIL: TestB (0.02s)
    --- FAIL: TestB/bad (0.01s)
=== RUN   TestC
panic: test timed out
FAIL
`
	if got := failing(log); got != want {
		t.Errorf("failing returned\n%s\nwant\n%s", got, want)
	}
}

func name(pkg string) string { return strings.ReplaceAll(pkg, "/", "-") }

// read returns a file's text, "" where the guest did not get so far.
func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// compile builds a program or a test binary that needs no library of the guest.
func compile(t *testing.T, repository, what, out, pkg string) {
	t.Helper()
	args := []string{"build", "-o", out, pkg}
	if what == "test" {
		args = []string{"test", "-c", "-o", out, pkg}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
}

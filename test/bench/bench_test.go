// Package bench measures the OpenFlow library and ovs-ofctl on the same Open vSwitch. `make bench` prints its table; no
// test depends on a time.
package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

const (
	flows  = 100_000
	rounds = 5 // of each figure the median counts
)

// TestMain runs the table's rows as processes of their own, so that the kernel counts their time and memory.
func TestMain(m *testing.M) {
	if row := os.Getenv(rowVariable); row != "" {
		if err := profiled(func() error { return inProcess(row, os.Getenv(socketVariable)) }); err != nil {
			fmt.Fprintln(os.Stderr, row+":", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// profiled writes a CPU profile of a row's process, named by row and process, into the directory TOMBOLO_BENCH_PROFILE.
func profiled(f func() error) error {
	dir := os.Getenv("TOMBOLO_BENCH_PROFILE")
	if dir == "" {
		return f()
	}
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", os.Getenv(rowVariable), os.Getpid())))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// table is what gets printed.
type table struct{ b *testing.B }

func (t table) row(what, figure, limit string, met bool, note string) {
	verdict := "met"
	if !met {
		verdict = "NOT MET"
	}
	fmt.Printf("%-58s %14s  %-16s %-8s %s\n", what, figure, limit, verdict, note)
}

func (t table) ratio(what string, ours, theirs, limit float64, unit string) {
	t.row(what, fmt.Sprintf("%.2f", ours/theirs), fmt.Sprintf("<= %.2f", limit), ours/theirs <= limit,
		fmt.Sprintf("ours %.3g %s, ovs-ofctl %.3g %s", ours, unit, theirs, unit))
}

// sample is one run of a process.
type sample struct {
	wall, cpu time.Duration
	out       map[string]float64
}

func (s sample) of(name string) float64 { return s.out[name] }

func run(b *testing.B, c *exec.Cmd) sample {
	b.Helper()
	var out strings.Builder
	c.Stdout, c.Stderr = &out, os.Stderr
	start := time.Now()
	if err := c.Run(); err != nil {
		b.Fatalf("%s: %v", strings.Join(c.Args, " "), err)
	}
	s := sample{wall: time.Since(start), out: map[string]float64{}}
	s.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	for line := range strings.Lines(out.String()) {
		var name string
		var value float64
		if n, _ := fmt.Sscanf(line, "%s %g", &name, &value); n == 2 {
			s.out[name] = value
		}
	}
	return s
}

// median of one figure of some samples.
func median(list []sample, f func(sample) float64) float64 {
	var v []float64
	for _, s := range list {
		v = append(v, f(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func wall(s sample) float64   { return s.wall.Seconds() }
func cpu(s sample) float64    { return s.cpu.Seconds() }
func inside(s sample) float64 { return s.of("wall") }

// bridge is a bridge on the userspace datapath.
type bridge struct {
	b      *testing.B
	s      *ovstest.Switch
	socket string
	file   string // flows as text
}

func newBridge(b *testing.B) bridge {
	// The userspace datapath makes a network device with a fixed name. So it gets a network namespace of its own, which
	// ends with the benchmark's thread.
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		b.Fatalf("make a network namespace for the switch: %v: run this as root", err)
	}
	s := ovstest.Start(b, ovstest.Dummy)
	s.Vsctl("--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure",
		"protocols=OpenFlow15")
	file := filepath.Join(b.TempDir(), "flows")
	var text strings.Builder
	for _, f := range manyFlows(flows, 0) {
		fmt.Fprintln(&text, f)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	return bridge{b, s, filepath.Join(s.RunDir(), "br0.mgmt"), file}
}

func (br bridge) ofctl(args ...string) sample {
	return run(br.b, exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow15", "--verbose=off"}, args...)...))
}

func (br bridge) clear() { br.ofctl("del-flows", br.socket) }

// ours runs a row of the library in a process of its own.
func (br bridge) ours(row string) sample {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), rowVariable+"="+row, socketVariable+"="+br.socket)
	return run(br.b, c)
}

// BenchmarkTable prints the table.
func BenchmarkTable(b *testing.B) {
	t, br := table{b}, newBridge(b)
	fmt.Printf("\n%d flows, median of %d, one Open vSwitch on its userspace datapath\n\n", flows, rounds)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")

	var ours, theirs, dumps, restarts []sample
	for range rounds {
		br.clear()
		theirs = append(theirs, br.ofctl("--bundle", "add-flows", br.socket, br.file))
		br.clear()
		ours = append(ours, br.ours("add"))
		dumps = append(dumps, br.ofctl("dump-flows", br.socket))
		restarts = append(restarts, br.ours("restart"))
	}
	add := median(theirs, wall)
	t.ratio("declare new flows until confirmed, wall", median(ours, inside), add, 0.9, "s")
	t.ratio("the same, CPU of the process", median(ours, cpu), median(theirs, cpu), 0.8, "s")
	rss := median(ours, func(s sample) float64 { return s.of("peak") / 1e6 })
	t.row("the same, memory at most", fmt.Sprintf("%.0f MB", rss), "<= 120 MB", rss > 0 && rss <= 120, "")
	heap := median(ours, func(s sample) float64 { return s.of("heap") })
	t.row("heap that stays, a flow", fmt.Sprintf("%.0f bytes", heap), "<= 400 bytes", heap <= 400, "")
	allocs := allocations(b)
	t.row("allocations per flow encoded", fmt.Sprintf("%.0f", allocs), "0", allocs == 0, "")

	small, large := oneOf(b, 100_000), oneOf(b, 1_000_000)
	t.row("one flow changed among 1,000,000, set to bytes", fmt.Sprintf("%.1f us", large), "<= 50 us", large <= 50,
		fmt.Sprintf("among 100,000: %.1f us", small))

	t.ratio("restart: read, compare, done", median(restarts, inside), median(dumps, wall), 1, "s")
	mods := median(restarts, func(s sample) float64 { return s.of("flowmods") })
	t.row("restart: flow-mods sent", fmt.Sprintf("%.0f", mods), "0", mods == 0, "")

	var replace, pods []sample
	for range rounds {
		replace = append(replace, br.ours("replace"))
	}
	for range rounds {
		pods = append(pods, br.ours("pod"))
	}
	t.ratio("replace 10 %, wall, to ovs-ofctl's adding all", median(replace, inside), add, 0.3, "s")
	mods = median(replace, func(s sample) float64 { return s.of("flowmods") })
	t.row("replace 10 %: flow-mods sent", fmt.Sprintf("%.0f", mods), "10000", mods == flows/10, "")
	late := median(pods, func(s sample) float64 { return s.of("p99") - s.of("barrier") })
	t.row("a Pod's 10 flows to confirmed, p99 beyond a barrier's", fmt.Sprintf("%.2f ms", late), "<= 2 ms", late <= 2,
		fmt.Sprintf("p99 %.2f ms, barrier's %.2f ms", median(pods, func(s sample) float64 { return s.of("p99") }),
			median(pods, func(s sample) float64 { return s.of("barrier") })))
	var packets []sample
	for range rounds {
		packets = append(packets, packetIns(b))
	}
	rate := median(packets, func(s sample) float64 { return s.of("rate") })
	echo := median(packets, func(s sample) float64 { return s.of("echo") })
	t.row("packet-ins decoded on one core, a second", fmt.Sprintf("%.0f", rate), ">= 100000", rate >= 100_000 &&
		echo < 1000, fmt.Sprintf("slowest echo answer %.0f ms", echo))
	fmt.Println()
}

// oneOf runs flowsync's own benchmark of a change among many flows, which needs no switch, and returns microseconds.
func oneOf(b *testing.B, many int) float64 {
	out, err := exec.Command("go", "test", "-run", "^$", "-bench", fmt.Sprintf("OneOfMany/%d$", many), "-benchtime",
		"2000x", "../../pkg/openflow/flowsync").CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) >= 4 && fields[3] == "ns/op" {
			var ns float64
			if _, err := fmt.Sscan(fields[2], &ns); err == nil {
				return ns / 1e3
			}
		}
	}
	b.Fatalf("no figure in %s", out)
	return 0
}

func allocations(b *testing.B) float64 {
	var mods []ofp.Message
	for _, f := range manyFlows(1000, 0) {
		mods = append(mods, ofp.BundleAdd{ID: 1, Flags: 3, Message: f.Mod(ofp.FlowAdd)})
	}
	buf := make([]byte, 0, 1<<16)
	i := 0
	return testing.AllocsPerRun(1000, func() {
		if _, err := ofp.AppendMessage(buf[:0], 1, mods[i%len(mods)]); err != nil {
			b.Fatal(err)
		}
		i++
	})
}

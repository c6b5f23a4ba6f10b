package datapath

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/observe/probe"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// cpuOf returns the CPU time that a process has used.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	total := 0
	for _, f := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return time.Duration(total) * 10 * time.Millisecond
}

// cpuOfTest returns the CPU time of this process.
func cpuOfTest(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProbeCost measures the CPU that probes of 16 ways cost: in the switches of both ends, and in the part of the
// agent that sends probes and keeps results. Figures are of one core.
//
//	go test ./pkg/datapath -run '^$' -bench ProbeCost -benchtime 1x
func BenchmarkProbeCost(t *testing.B) {
	const ways, span = 16, 20 * time.Second
	pair := newGatewayPair(t, false)
	pair.tunnel(t, "geneve")
	near, far := pair.nodes[0], pair.nodes[1]
	p := newProber(t, near)
	eventually(t, "an echo comes", func() error { return p.ask(t, Probe{Port: probedPort, Seq: 1, Size: 64}) })
	list := []probe.Way{{Peer: "west", To: pair.ends[1].String(), Port: uint32(probedPort), MTU: 1450, Up: true}}
	for i := 1; i < ways; i++ {
		end := netip.AddrFrom4([4]byte{192, 168, 77, byte(150 + i)})
		far.host.ip(t, fmt.Sprintf("address add %s/16 dev br-phy", end))
		port := probedPort + ofp.Port(i)
		near.addWay(t, fmt.Sprint("way", i), "geneve", pair.ends[0], end, port)
		far.addWay(t, fmt.Sprint("way", i), "geneve", end, pair.ends[0], port)
		for _, n := range pair.nodes {
			var text []string
			for _, f := range probesBy(port) {
				text = append(text, "flow "+f.String())
			}
			n.ovs.run(t, strings.Join(text, "\n"), "ovs-ofctl", "-O", "OpenFlow15", "bundle",
				n.ovs.dir+"/br-int.mgmt", "-")
		}
		list = append(list, probe.Way{Peer: "west", To: end.String(), Port: uint32(port), MTU: 1450, Up: true})
	}
	type cost struct{ near, far, agent time.Duration }
	measure := func(f func()) cost {
		pids := [2]int{near.vswitchd(t).Pid, far.vswitchd(t).Pid}
		before := cost{cpuOf(t, pids[0]), cpuOf(t, pids[1]), cpuOfTest(t)}
		f()
		return cost{cpuOf(t, pids[0]) - before.near, cpuOf(t, pids[1]) - before.far, cpuOfTest(t) - before.agent}
	}
	m := probe.New(func() uint64 { return 7 })
	p.measureAll(t, m, list, 15*time.Second) // until sizes are known
	ways16, _ := m.Results()
	for _, w := range ways16 {
		if w.Sent == 0 || w.Lost > w.Sent/5 || w.Size != 1450 {
			t.Errorf("a way is not probed: %+v", w)
		}
	}
	without := measure(func() { time.Sleep(span) })
	with := measure(func() { p.measureAll(t, m, list, span) })
	part := func(a, b time.Duration) float64 { return 100 * float64(a-b) / float64(span) }
	t.ReportMetric(part(with.near, without.near), "%switch")
	t.ReportMetric(part(with.far, without.far), "%far-switch")
	t.ReportMetric(part(with.agent, without.agent), "%agent")
	t.ReportMetric(part(without.near, 0), "%switch-without")
}

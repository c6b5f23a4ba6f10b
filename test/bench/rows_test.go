package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

const (
	rowVariable    = "TOMBOLO_BENCH_ROW"
	socketVariable = "TOMBOLO_BENCH_SOCKET"

	instance = 7
)

var owner = flow.Owner{Kind: 1, Name: "bench"}

// manyFlows returns n flows to different addresses; flows of another variant have other actions.
func manyFlows(n, variant int) []flow.Flow {
	list := make([]flow.Flow, n)
	for i := range list {
		list[i] = oneFlow(i, variant)
	}
	return list
}

func oneFlow(i, variant int) flow.Flow {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(i))
	to := netip.AddrFrom4(a)
	return flow.Flow{
		Table: 10, Priority: 200, Match: flow.All(flow.IPDst(netip.PrefixFrom(to, 32))),
		Cookie: instance << 48,
		Actions: flow.Do(
			flow.SetEthDst(ofp.MAC{2, 0, a[0], a[1], a[2], a[3]}),
			flow.SetTunnelDst(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})),
			flow.Load(flow.Reg(1).Bits(0, 32), uint64(i+variant)),
			flow.Resubmit(20),
		),
	}
}

// inProcess is one row's process; it prints figures by name.
func inProcess(row, socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	switch row {
	case "add":
		return addRow(ctx, socket, false)
	case "restart":
		return addRow(ctx, socket, true)
	case "replace":
		return replaceRow(ctx, socket)
	case "pod":
		return podRow(ctx, socket)
	case "packets":
		return packetRow(ctx, socket)
	case "controller":
		return controllerRow(ctx, socket)
	case "leader":
		return leaderRow(ctx)
	case "policy":
		return policyRow(ctx, socket)
	case "policy-count":
		return policyCountRow()
	}
	return scaleChild(ctx, row, socket)
}

func start(ctx context.Context, socket string) *flowsync.Syncer {
	s := flowsync.New(flowsync.Options{Dial: ofconn.UnixDialer(socket), Instance: instance})
	s.Release()
	go func() { _ = s.Run(ctx) }()
	return s
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// peak returns how many bytes of memory this process had at most. The kernel's number for a child (getrusage) begins
// with the parent's own size.
func peak() int {
	status, _ := os.ReadFile("/proc/self/status")
	var kilobytes int
	if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, _ = fmt.Sscan(after, &kilobytes)
	}
	return kilobytes << 10
}

// addRow declares all flows to an empty switch or, at a restart, to one that has all flows. The clock starts when they
// are declared.
func addRow(ctx context.Context, socket string, restart bool) error {
	before := heap()
	began := time.Now()
	s := flowsync.New(flowsync.Options{Dial: ofconn.UnixDialer(socket), Instance: instance})
	s.Release()
	declare(s)
	if restart {
		began = time.Now()
	}
	go func() { _ = s.Run(ctx) }()
	if err := s.Synced(ctx); err != nil {
		return err
	}
	fmt.Println("wall", time.Since(began).Seconds())
	fmt.Println("flowmods", s.Stats().FlowMods)
	fmt.Println("peak", peak())
	fmt.Println("heap", float64(heap()-before)/flows)
	runtime.KeepAlive(s)
	return nil
}

// declare declares all flows by a thousand owners, as features do: no owner has all of them as values at once.
func declare(s *flowsync.Syncer) {
	const each = flows / 1000
	list := make([]flow.Flow, each)
	for i := range 1000 {
		for j := range list {
			list[j] = oneFlow(i*each+j, 0)
		}
		s.Set(flow.Owner{Kind: 1, Name: fmt.Sprintf("bench-%d", i)}, flow.Entries{Flows: list})
	}
}

// replaceRow changes every tenth flow.
func replaceRow(ctx context.Context, socket string) error {
	s := start(ctx, socket)
	s.Set(owner, flow.Entries{Flows: manyFlows(flows, 0)})
	if err := s.Synced(ctx); err != nil {
		return err
	}
	next := manyFlows(flows, 0)
	for i := 0; i < flows; i += 10 {
		next[i] = oneFlow(i, 1)
	}
	before := s.Stats().FlowMods
	began := time.Now()
	s.Set(owner, flow.Entries{Flows: next})
	if err := s.Synced(ctx); err != nil {
		return err
	}
	fmt.Println("wall", time.Since(began).Seconds())
	fmt.Println("flowmods", s.Stats().FlowMods-before)
	s.Set(owner, flow.Entries{Flows: manyFlows(flows, 0)})
	return s.Synced(ctx)
}

// podRow attaches Pods of ten flows each while the switch holds all others, and times a barrier in turn.
func podRow(ctx context.Context, socket string) error {
	s := start(ctx, socket)
	s.Set(owner, flow.Entries{Flows: manyFlows(flows, 0)})
	if err := s.Synced(ctx); err != nil {
		return err
	}
	conn, err := ofconn.Connect(ctx, ofconn.UnixDialer(socket), nil, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	var took, barrier []time.Duration
	pods := map[int]bool{}
	for i := range 400 {
		pod := flow.Owner{Kind: 2, Name: fmt.Sprintf("pod-%d", i)}
		var e flow.Entries
		for j := range 10 {
			e.Flows = append(e.Flows, oneFlow(flows+10*i+j, 0))
		}
		began := time.Now()
		s.Set(pod, e)
		if err := s.Synced(ctx, pod); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		pods[i] = true
		began = time.Now()
		if err := conn.Barrier(ctx); err != nil {
			return err
		}
		barrier = append(barrier, time.Since(began))
	}
	for i := range pods {
		s.Set(flow.Owner{Kind: 2, Name: fmt.Sprintf("pod-%d", i)}, flow.Entries{})
	}
	fmt.Println("p99", percentile(took, 99))
	fmt.Println("barrier", percentile(barrier, 99))
	return s.Synced(ctx)
}

// percentile is in milliseconds.
func percentile(list []time.Duration, p int) float64 {
	slices.Sort(list)
	return float64(list[len(list)*p/100]) / 1e6
}

const packets = 400_000

// packetIns is the switch's side of packetRow. It sends packet-ins as fast as they are read, and an echo request every
// 50 ms, and waits for its answer.
func packetIns(b *testing.B) sample {
	socket := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	slowest := make(chan time.Duration, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		slowest <- flood(c)
	}()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rowVariable+"=packets", socketVariable+"="+socket, "GOMAXPROCS=1")
	s := run(b, cmd)
	s.out["echo"] = float64(<-slowest) / 1e6
	return s
}

func flood(c net.Conn) (slowest time.Duration) {
	hello, _ := ofp.AppendMessage(nil, 1, ofp.Hello{Versions: []uint8{6}})
	if _, err := c.Write(hello); err != nil {
		return time.Hour
	}
	r := bufio.NewReader(c)
	var asked atomic.Int64
	answered := make(chan time.Duration, 1000)
	go func() {
		defer close(answered)
		for {
			head := make([]byte, 8)
			if _, err := io.ReadFull(r, head); err != nil {
				return
			}
			if _, err := r.Discard(ofp.MessageLen(head) - 8); err != nil {
				return
			}
			if ofp.Type(head[1]) == ofp.TypeEchoReply {
				answered <- time.Duration(time.Now().UnixNano() - asked.Load())
			}
		}
	}()
	match := flow.All(flow.InPort(3))
	packet, err := ofp.AppendMessage(nil, 0,
		ofp.PacketIn2{Data: make([]byte, 74), Reason: 1, Table: 7, Metadata: match.OXM()})
	if err != nil {
		return time.Hour
	}
	batch := slices.Repeat(packet, 200)
	echo, _ := ofp.AppendMessage(nil, 9, ofp.EchoRequest{})
	var last time.Time
	waiting := false
	for sent := 0; sent < packets; sent += 200 {
		if _, err := c.Write(batch); err != nil {
			return time.Hour
		}
		select {
		case d := <-answered:
			slowest, waiting = max(slowest, d), false
		default:
		}
		if !waiting && time.Since(last) > 50*time.Millisecond {
			last, waiting = time.Now(), true
			asked.Store(last.UnixNano())
			if _, err := c.Write(echo); err != nil {
				return time.Hour
			}
		}
	}
	if waiting {
		slowest = max(slowest, <-answered)
	}
	for range answered { // until the other side has closed
	}
	return slowest
}

// packetRow takes packet-ins on one core and prints how many a second of its CPU time.
func packetRow(ctx context.Context, socket string) error {
	var n atomic.Int64
	done := make(chan struct{})
	conn, err := ofconn.Connect(ctx, ofconn.UnixDialer(socket), nil, func(_ uint32, m ofp.Message) {
		if p, ok := m.(ofp.PacketIn2); ok && len(p.Data) == 74 && n.Add(1) == packets {
			close(done)
		}
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return err
	}
	fmt.Println("rate", packets/(float64(u.Utime.Nano()+u.Stime.Nano())/1e9))
	return nil
}

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// The size at which a change's cost is measured.
const (
	scaleServices  = 10_000
	scaleEndpoints = 10
	scaleNodes     = 1_000
	scalePods      = 100
	changes        = 400 // of each kind, of which the 99th percentile counts
)

// BenchmarkScaleTable prints what a change costs flowsync among many flows and groups.
func BenchmarkScaleTable(b *testing.B) {
	t, br := table{b}, newBridge(b)
	fmt.Printf("\n%d Services with %d endpoints, %d Nodes, %d Pods; flowsync alone, one Open vSwitch\n\n",
		scaleServices, scaleEndpoints, scaleNodes, scalePods)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")
	clear := func() {
		br.clear()
		br.ofctl("del-groups", br.socket)
	}
	most := func(what string, value, limit float64, format, note string) {
		t.row(what, fmt.Sprintf(format, value), "<= "+fmt.Sprintf(format, limit), value <= limit, note)
	}

	clear()
	large := br.ours("shards")
	most("one of 5,000 endpoints goes, facts to confirmed, p99", large.of("p99"), 5, "%.2f ms",
		fmt.Sprintf("p50 %.2f ms, %.0f keys evaluated", large.of("p50"), large.of("evaluated")))
	most("the same: group messages, at most", large.of("groupmods"), 2, "%.0f", "")

	clear()
	scale := br.ours("scale")
	most("one endpoint of 10,000 x 10, set to confirmed, p99", scale.of("p99"), 5, "%.2f ms",
		fmt.Sprintf("p50 %.2f ms", scale.of("p50")))
	most("the same: allocated", scale.of("kB"), 100, "%.1f kB", "")
	most("a Pod's 10 flows while 50 endpoints a second change, p99", scale.of("podp99"), 10, "%.2f ms",
		fmt.Sprintf("p50 %.2f ms", scale.of("podp50")))
	again := br.ours("scale-restart")
	most("start against a switch that holds everything", again.of("wall"), 3, "%.2f s",
		fmt.Sprintf("RSS at most %.0f MB", again.of("peak")/1e6))
	most("the same: flow-mods and group-mods sent", again.of("mods"), 0, "%.0f", "")

	clear()
	compare := br.ours("compare")
	most("comparing 100,000 flows, 10,000 x 10 buckets: longest wait", compare.of("longest"), 5, "%.2f ms",
		fmt.Sprintf("of %.0f during %.0f requests for groups, meters or flows", compare.of("waits"), compare.of("requests")))
	most("comparing the groups: CPU of a core, every 30 s", compare.of("groupcpu"), 2, "%.2f %%", "")
	fmt.Println()
}

func scaleChild(ctx context.Context, row, socket string) error {
	switch row {
	case "shards":
		return shardsRow(ctx, socket)
	case "scale":
		return scaleRow(ctx, socket)
	case "scale-restart":
		return scaleRestartRow(ctx, socket)
	case "compare":
		return compareRow(ctx, socket)
	}
	return fmt.Errorf("there is no such row")
}

func serviceOwner(i int) flow.Owner {
	return flow.Owner{Kind: 3, Name: fmt.Sprintf("default/web-%d", i)}
}

// oneService returns the flow of a Service with endpoints, and its group as pkg/datapath makes it.
func oneService(i int, endpoints ...int) flow.Entries {
	vip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
	g := flow.Group{ID: uint32(i + 1), Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
	for _, e := range endpoints {
		addr := netip.AddrFrom4([4]byte{10, byte(10 + e>>16), byte(e >> 8), byte(e)})
		g.Buckets = append(g.Buckets, flow.Bucket{ID: uint32(e + 1), Weight: 1, Actions: flow.Do(
			flow.Load(flow.Reg(0).Bits(7, 1), 1),
			flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: 65520, Table: 7,
				NAT:  &ofp.NAT{Flags: ofp.NATDst, IPMin: string(addr.AsSlice()), PortMin: 8080},
				Exec: flow.Do(flow.Load(flow.CTMarkBits(4, 1), 1), flow.Move(flow.Reg(0).Bits(0, 4), flow.CTMarkBits(0, 4)))}),
		)})
	}
	return flow.Entries{
		Flows: []flow.Flow{{Table: 6, Priority: 200, Cookie: instance << 48,
			Match:   flow.All(flow.CTState("+new+trk"), flow.IPDst(netip.PrefixFrom(vip, 32)), flow.TCPDst(80)),
			Actions: flow.Do(flow.ToGroup(g.ID))}},
		Groups: []flow.Group{g},
	}
}

func scaleService(i, variant int) flow.Entries {
	list := make([]int, scaleEndpoints)
	for n := range list {
		list[n] = i*scaleEndpoints + n
	}
	if variant > 0 {
		list[variant%scaleEndpoints] += scaleServices * scaleEndpoints * (1 + variant%2)
	}
	return oneService(i, list...)
}

func flowsOf(first, n int) flow.Entries {
	var e flow.Entries
	for i := range n {
		e.Flows = append(e.Flows, oneFlow(first+i, 0))
	}
	return e
}

func declareScale(s *flowsync.Syncer) {
	for i := range scaleServices {
		s.Set(serviceOwner(i), scaleService(i, 0))
	}
	for i := range scaleNodes {
		s.Set(flow.Owner{Kind: 9, Name: fmt.Sprintf("node-%d", i)}, flowsOf(4*i, 4))
	}
	for i := range scalePods {
		s.Set(flow.Owner{Kind: 1, Name: fmt.Sprintf("pod-%d", i)}, flowsOf(4*scaleNodes+10*i, 10))
	}
}

// timed returns how long f took.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// shardsRow takes endpoints from a Service with 5,000 of them, in EndpointSlices of 100, and gives them back: from the
// changed slice over the agent's tables to the switch.
func shardsRow(ctx context.Context, socket string) error {
	s := start(ctx, socket)
	e := derive.New()
	services := service.NewTables(e, "node", noZone, false)
	node := derive.NewSource[derive.Name, datapath.Node](e, "node")
	pods := derive.NewSource[derive.Name, datapath.Pod](e, "pods")
	nodes := derive.NewSource[derive.Name, datapath.RemoteNode](e, "remote-nodes")
	peers := derive.NewSource[derive.Name, peering.Peering](e, "peering")
	exported := derive.NewSource[derive.Object, bool](e, "exported")
	tables := datapath.NewTables(e, datapath.Inputs{
		Node: node, Pods: pods, RemoteNodes: nodes, Frontends: services.Frontends, Slices: services.ByService,
		Peering: peering.NewTables(e, peers), Exported: exported,
	})
	dirty := map[flow.Owner]func() flow.Entries{}
	tables.Watch(func(o flow.Owner, entries func() flow.Entries) { dirty[o] = entries })

	large := derive.Object{Namespace: "default", Name: "large"}
	slice := func(i, without int) {
		f := service.SliceFacts{Service: large, Ports: []service.SlicePort{{Protocol: corev1.ProtocolTCP, Port: 8080}}}
		for n := i * 100; n < (i+1)*100; n++ {
			if n != without {
				addr := netip.AddrFrom4([4]byte{10, 10, byte(n >> 8), byte(n)})
				f.Endpoints = append(f.Endpoints, service.EndpointFacts{Addr: addr, Ready: true})
			}
		}
		services.Slices.Set(derive.Object{Namespace: "default", Name: fmt.Sprint("large-", i)}, f)
	}
	services.Services.Set(large, service.Facts{
		VIPs:  []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, 10})},
		Ports: []service.Port{{Protocol: corev1.ProtocolTCP, Port: 80}},
	})
	for i := range 50 {
		slice(i, -1)
	}
	for _, source := range []interface{ Loaded() }{
		services.Services, services.Slices, node, pods, nodes, peers, exported,
	} {
		source.Loaded()
	}
	evaluated := 0
	apply := func() error {
		e.Pass()
		last, _, _ := e.Stats()
		evaluated = last.Evaluated
		s.SetSome(func(yield func(flow.Owner, flow.Entries) bool) {
			for o, entries := range dirty {
				if !yield(o, entries()) {
					return
				}
			}
		})
		clear(dirty)
		return s.Synced(ctx)
	}
	if err := apply(); err != nil {
		return err
	}
	var took []time.Duration
	var most uint64
	r := rand.New(rand.NewPCG(1, 2))
	for range changes {
		n := r.IntN(5000)
		before := s.Stats().GroupMods
		d, err := timed(func() error { slice(n/100, n); return apply() })
		if err != nil {
			return err
		}
		took = append(took, d)
		most = max(most, s.Stats().GroupMods-before)
		slice(n/100, -1)
		if err := apply(); err != nil {
			return err
		}
	}
	fmt.Println("p50", percentile(took, 50))
	fmt.Println("p99", percentile(took, 99))
	fmt.Println("groupmods", most)
	fmt.Println("evaluated", evaluated)
	return nil
}

func scaleRow(ctx context.Context, socket string) error {
	s := start(ctx, socket)
	declareScale(s)
	if err := s.Synced(ctx); err != nil {
		return err
	}
	var took []time.Duration
	var allocated uint64
	for i := range changes {
		n := i * 7919 % scaleServices
		e := scaleService(n, i+1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, err := timed(func() error { s.Set(serviceOwner(n), e); return s.Synced(ctx) })
		if err != nil {
			return err
		}
		runtime.ReadMemStats(&after)
		allocated += after.TotalAlloc - before.TotalAlloc
		took = append(took, d)
		time.Sleep(time.Millisecond)
	}
	fmt.Println("p50", percentile(took, 50))
	fmt.Println("p99", percentile(took, 99))
	fmt.Println("kB", float64(allocated)/changes/1e3)

	churn, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second / 50)
		defer tick.Stop()
		for i := 0; churn.Err() == nil; i++ {
			<-tick.C
			s.Set(serviceOwner(i%scaleServices), scaleService(i%scaleServices, i+1))
		}
	}()
	var pods []time.Duration
	for i := range changes {
		pod := flow.Owner{Kind: 2, Name: fmt.Sprintf("new-%d", i)}
		e := flowsOf(flows+10*i, 10)
		d, err := timed(func() error { s.Set(pod, e); return s.Synced(ctx, pod) })
		if err != nil {
			return err
		}
		pods = append(pods, d)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
	stop()
	<-stopped
	fmt.Println("podp50", percentile(pods, 50))
	fmt.Println("podp99", percentile(pods, 99))
	for i := range changes {
		s.Set(flow.Owner{Kind: 2, Name: fmt.Sprintf("new-%d", i)}, flow.Entries{})
	}
	declareScale(s)
	return s.Synced(ctx)
}

// scaleRestartRow declares flows that the switch holds already. The clock starts with the first declaration.
func scaleRestartRow(ctx context.Context, socket string) error {
	s := flowsync.New(flowsync.Options{Dial: ofconn.UnixDialer(socket), Instance: instance})
	began := time.Now()
	go func() { _ = s.Run(ctx) }()
	declareScale(s)
	s.Release()
	if err := s.Synced(ctx); err != nil {
		return err
	}
	fmt.Println("wall", time.Since(began).Seconds())
	fmt.Println("mods", s.Stats().FlowMods+s.Stats().GroupMods)
	fmt.Println("peak", peak())
	return nil
}

// compareRow makes comparisons one after the other, and meanwhile calls a function that needs the same lock as they and
// the connection's reader. The time of that call is the time for which they hold the lock.
func compareRow(ctx context.Context, socket string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	session := func(ctx context.Context, o flowsync.Options) (*flowsync.Syncer, <-chan struct{}) {
		o.Dial, o.Instance = ofconn.UnixDialer(socket), instance
		s := flowsync.New(o)
		s.Release()
		for i := range scaleServices {
			s.Set(serviceOwner(i), scaleService(i, 0))
		}
		for i := range 900 {
			s.Set(flow.Owner{Kind: 9, Name: fmt.Sprint(i)}, flowsOf(100*i, 100))
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		return s, done
	}
	first, stop := context.WithCancel(ctx)
	defer stop()
	s, ended := session(first, flowsync.Options{Compare: 300 * time.Millisecond, GroupCompare: 50 * time.Millisecond})
	if err := s.Synced(ctx); err != nil {
		return err
	}
	over, done := context.WithCancel(ctx)
	done()
	var waits []time.Duration
	began := time.Now()
	before := s.Stats().Sent[ofp.TypeMultipartRequest.String()]
	for time.Since(began) < 5*time.Second {
		d, _ := timed(func() error { return s.Synced(over) })
		waits = append(waits, d)
		time.Sleep(100 * time.Microsecond)
	}
	fmt.Println("longest", float64(slices.Max(waits))/1e6)
	fmt.Println("waits", len(waits))
	fmt.Println("requests", s.Stats().Sent[ofp.TypeMultipartRequest.String()]-before)
	stop()
	<-ended

	// The cost of the comparison of groups every 30 s.
	s, _ = session(ctx, flowsync.Options{Compare: time.Hour, GroupCompare: 100 * time.Millisecond})
	if err := s.Synced(ctx); err != nil {
		return err
	}
	requests := func() uint64 { return s.Stats().Sent[ofp.TypeMultipartRequest.String()] }
	asked, used := requests(), cpuTime()
	for requests()-asked < 40 { // of groups and of meters
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("groupcpu", (cpuTime()-used).Seconds()/20/30*100)
	return nil
}

// cpuTime is how long this process has computed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

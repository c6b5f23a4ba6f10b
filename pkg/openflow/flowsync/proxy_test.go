package flowsync_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// proxy stands between a Syncer and its switch. It cuts connections after a number of bytes, and can stop reading from
// one side.
type proxy struct {
	socket, upstream string

	mu     sync.Mutex
	budget []limits // of the next connections; then no limit
	cuts   int
	onCut  func()
	conns  map[net.Conn]struct{}
	paused [2]chan struct{} // closed to go on; nil while not paused
	passed [2]int           // bytes, over all connections
	at     int              // once so many have gone to the switch, then is called before more does
	then   func()
}

// direction is which way bytes go through a proxy.
type direction int

const (
	toSwitch direction = iota
	fromSwitch
)

// limits are the numbers of bytes after which a connection is cut: in both directions together and in each; 0 means no
// limit.
type limits struct {
	both int
	each [2]int
}

func newProxy(t testing.TB, o *ovs) *proxy {
	p := &proxy{socket: filepath.Join(o.RunDir(), "proxy"), upstream: o.socket(), conns: map[net.Conn]struct{}{}}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); p.resume(toSwitch, fromSwitch); p.cutAll() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	var limit limits
	if len(p.budget) > 0 {
		limit, p.budget = p.budget[0], p.budget[1:]
	}
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	var mu sync.Mutex
	var sent [2]int
	spent := false
	take := func(d direction, n int) int {
		mu.Lock()
		defer mu.Unlock()
		if limit.both > 0 {
			n = min(n, limit.both-sent[0]-sent[1])
		}
		if limit.each[d] > 0 {
			n = min(n, limit.each[d]-sent[d])
		}
		sent[d] += n
		spent = spent || limit.both > 0 && sent[0]+sent[1] == limit.both || limit.each[d] > 0 && sent[d] == limit.each[d]
		return n
	}
	pipe := func(d direction, to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			p.wait(d)
			allowed := take(d, n)
			p.mu.Lock()
			p.passed[d] += allowed
			var then func()
			if d == toSwitch && p.then != nil && p.passed[d] >= p.at {
				then, p.then = p.then, nil
			}
			p.mu.Unlock()
			if then != nil {
				then()
			}
			_, e := to.Write(b[:allowed])
			if err != nil || e != nil && d == toSwitch || allowed < n {
				return // the switch learns from the other direction that the client is gone, after its own data
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { pipe(toSwitch, server, client) })
	wg.Go(func() { pipe(fromSwitch, client, server) })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	hook := p.onCut
	if spent {
		p.cuts++
	}
	p.mu.Unlock()
	if spent && hook != nil {
		hook()
	}
}

// pause stops reading what goes in some directions.
func (p *proxy) pause(directions ...direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range directions {
		if p.paused[d] == nil {
			p.paused[d] = make(chan struct{})
		}
	}
}

func (p *proxy) resume(directions ...direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range directions {
		if p.paused[d] != nil {
			close(p.paused[d])
			p.paused[d] = nil
		}
	}
}

func (p *proxy) wait(d direction) {
	for {
		p.mu.Lock()
		paused := p.paused[d]
		p.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

// after calls f once n more bytes have come for the switch, before it passes on the last of them.
func (p *proxy) after(n int, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.then = p.passed[toSwitch]+n, f
}

// bytes is what has passed so far, in each direction.
func (p *proxy) bytes() [2]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed
}

// cutNext limits the next connections and ends the present ones.
func (p *proxy) cutNext(budget ...int) {
	var l []limits
	for _, b := range budget {
		l = append(l, limits{both: b})
	}
	p.limitNext(l...)
}

func (p *proxy) limitNext(l ...limits) {
	p.mu.Lock()
	p.budget = l
	p.mu.Unlock()
	p.cutAll()
}

func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// world is a random desired state of three owners, whose flows sometimes collide and use their owner's
// groups.
func world(r *rand.Rand) map[flow.Owner]flow.Entries {
	out := map[flow.Owner]flow.Entries{}
	for n, name := range []string{"alice", "bob", "carol"} {
		var e flow.Entries
		groups := r.IntN(4)
		for g := range groups {
			group := flow.Group{ID: uint32(100*(n+1) + g), Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
			buckets := 1 + r.IntN(3)
			if r.IntN(2) == 0 {
				buckets = 60 // of which few change from one state to the next, by messages of their own
			}
			for b := range buckets {
				if buckets > 3 {
					if r.IntN(40) > 0 {
						group.Buckets = append(group.Buckets,
							flow.Bucket{ID: uint32(2 * b), Weight: 1, Actions: flow.Do(flow.Resubmit(4))})
					}
					continue
				}
				group.Buckets = append(group.Buckets,
					flow.Bucket{ID: uint32(b), Weight: uint16(1 + r.IntN(3)),
						Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 8), r.Uint64N(200)), flow.Resubmit(4))})
			}
			e.Groups = append(e.Groups, group)
		}
		seen := map[flow.Key]bool{}
		for range r.IntN(30) {
			f := flow.Flow{
				Table: 1, Priority: uint16(r.IntN(12)), Match: flow.All(flow.IP()),
				Actions: flow.Do(flow.Load(flow.Reg(2).Bits(0, 4), r.Uint64N(16)), flow.Resubmit(3)),
			}
			if r.IntN(2) == 0 { // a key that no other owner has
				f.Table, f.Match = 2, flow.All(flow.Reg(3).Bits(0, 4).Is(uint64(n)))
			}
			if groups > 0 && r.IntN(3) == 0 {
				f.Actions = flow.Do(flow.ToGroup(uint32(100*(n+1) + r.IntN(groups))))
			}
			if !seen[f.Key()] {
				seen[f.Key()] = true
				e.Flows = append(e.Flows, f)
			}
		}
		if len(e.Flows)+len(e.Groups) > 0 {
			out[flow.Owner{Kind: 1, Name: name}] = e
		}
	}
	return out
}

// settle gives every key to the first owner who wants it.
func settle(w map[flow.Owner]flow.Entries) map[flow.Owner]flow.Entries {
	taken, out := map[flow.Key]bool{}, map[flow.Owner]flow.Entries{}
	for _, name := range []string{"alice", "bob", "carol"} {
		owner := flow.Owner{Kind: 1, Name: name}
		e := flow.Entries{Groups: w[owner].Groups}
		for _, f := range w[owner].Flows {
			if !taken[f.Key()] {
				taken[f.Key()] = true
				e.Flows = append(e.Flows, f)
			}
		}
		out[owner] = e
	}
	return out
}

// TestRandomWalk goes from one desired state to the next. At times another program changes the switch, or the
// connection is cut. After each step the switch equals the desired state.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	const seed = 101
	r := rand.New(rand.NewPCG(seed, 0))
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket), GroupCompare: 100 * time.Millisecond})
	s.RedialWithin(20 * time.Millisecond)
	s.Release()
	for step := range 150 {
		w := world(r)
		if r.IntN(2) == 0 {
			setAll(s, w)
		} else {
			for _, name := range []string{"carol", "alice", "bob"} {
				owner := flow.Owner{Kind: 1, Name: name}
				s.Set(owner, w[owner])
			}
		}
		meddled := true
		switch r.IntN(12) {
		case 0:
			o.ofctl("del-flows")
		case 1:
			o.ofctl("del-groups")
		case 2:
			o.ofctl("del-flows", fmt.Sprintf("table=1,ip,reg2=%d/1", r.IntN(2)))
		case 3:
			o.ofctl("mod-flows", "table=2,actions=drop")
		case 4:
			p.cutAll()
		default:
			meddled = false
		}
		want := settle(w)
		if !meddled {
			var owners []flow.Owner
			for owner := range w {
				owners = append(owners, owner)
			}
			_ = trySync(s, ovstest.Timeout(), owners...) // names the collisions
			if err := o.differs(want); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		o.becomes(want)
	}
	// A group that is deleted behind its back between a look and a change is refused once.
	ovstest.Eventually(t, "nothing is refused", func() error {
		if last := s.Stats().LastError; last != "" {
			return errors.New(last)
		}
		return nil
	})
}

// TestCutAnywhere cuts the connection after any number of bytes while desired states change.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	const seed = 102
	r := rand.New(rand.NewPCG(seed, 0))
	o, full := startOVS(t), gateway(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	s.RedialWithin(time.Millisecond)
	s.Release()
	for range 25 {
		before, cuts := p.cut(), 1+r.IntN(4)
		var budget []int
		for range cuts {
			budget = append(budget, 1+r.IntN(1<<(4+r.IntN(12)))) // early as often as late
		}
		want := full
		if r.IntN(2) == 0 {
			want = settle(world(r))
		}
		p.cutNext(budget...)
		setAll(s, want)
		o.becomes(want)
		// Connections that had more bytes than they needed are still there.
		p.cutNext()
		synced(t, s)
		if err := o.differs(want); err != nil {
			t.Fatalf("budgets %v, %d cuts: %v", budget, p.cut()-before, err)
		}
	}
	if p.cut() < 20 {
		t.Errorf("only %d connections were cut", p.cut())
	}
}

// TestSwitchRestartsInABundle kills the switch while it is being filled.
func TestSwitchRestartsInABundle(t *testing.T) {
	t.Parallel()
	o, want := startOVS(t), gateway(t)
	p := newProxy(t, o)
	killed := make(chan struct{})
	p.onCut = func() { o.StopDaemon(); close(killed) }
	p.cutNext(6000) // within the bundle: the empty switch has less to say, the bundle has more
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	setAll(s, want)
	s.Release()
	select {
	case <-killed:
	case <-time.After(ovstest.Timeout()):
		t.Fatal("the connection was not cut")
	}
	if st := s.Stats(); st.Bundles != 0 || st.FlowMods == 0 {
		t.Errorf("the cut was not within a bundle: %+v", st)
	}
	p.mu.Lock()
	p.onCut = nil
	p.mu.Unlock()
	o.StartDaemon()
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Error(err)
	}
}

// TestTableFull has a switch that takes only some of the flows. The others are named; they
// come in when there is room.
func TestTableFull(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	o.Vsctl("--", "--id=@t", "create", "Flow_Table", "flow_limit=5", "overflow_policy=refuse", "--", "set", "bridge",
		"br0", "flow_tables:1=@t")
	s, _ := o.start(flowsync.Options{})
	s.Release()
	var texts []string
	for i := range 8 {
		texts = append(texts, fmt.Sprintf("table=1,priority=%d,ip,actions=drop", i))
	}
	want := entries(t, texts...)
	s.Set(alice, want)
	other := entries(t, "table=2,ip,actions=drop")
	s.Set(bob, other)
	synced(t, s, bob)
	err := trySync(s, ovstest.Timeout(), alice)
	if err == nil || len(s.Stats().Refused) != 3 {
		t.Errorf("three of eight do not fit: %v, %q", err, s.Stats().Refused)
	}
	o.Vsctl("clear", "bridge", "br0", "flow_tables")
	o.becomes(map[flow.Owner]flow.Entries{alice: want, bob: other})
	// The switch has it a moment before its answer.
	o.Eventually("nothing is refused", func() error { return trySync(s, time.Second) })
}

// TestSilentSwitch has a switch that accepts the connection and never sends a message.
func TestSilentSwitch(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	o := &ovs{t: t}
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(l.Addr().String())})
	s.Set(alice, entries(t, "table=1,ip,actions=drop"))
	start := time.Now()
	if err := trySync(s, 200*time.Millisecond); err == nil || time.Since(start) > ovstest.Timeout() {
		t.Errorf("Synced: %v after %s", err, time.Since(start))
	}
	if _, err := s.Dump(t.Context()); err == nil {
		t.Error(errors.New("Dump says something"))
	}
}

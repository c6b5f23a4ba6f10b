package flowsync_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestSwitchIsKilledInABundle kills the switch with SIGKILL while a bundle of thousands of
// flows is on its way: after its first bytes, at several places in it, and just before the
// commit is read.
func TestSwitchIsKilledInABundle(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	s.RedialWithin(time.Millisecond)
	s.Release()
	e := drops(t, 1, 3000)
	e.Groups = []flow.Group{{ID: 5, Type: flow.AllBuckets, Buckets: []flow.Bucket{{Actions: flow.Do(flow.Output(1))}}}}
	e.Meters = []flow.Meter{meter(1, 1)}
	e.Flows = append(e.Flows,
		entries(t, "table=2,priority=1,ip,actions=group:5", "table=2,priority=2,ip,actions=meter:1,output:1").Flows...)
	change := func(n int) {
		for i := range e.Flows { // all flows change
			e.Flows[i].IdleTimeout = uint16(10_000 + n)
		}
		s.Set(alice, e)
	}
	change(0)
	synced(t, s)
	before := p.bytes()[toSwitch]
	change(1)
	synced(t, s)
	total := p.bytes()[toSwitch] - before
	if total < 100_000 {
		t.Fatalf("a bundle has only %d bytes", total)
	}
	for i, n := range []int{1, total / 4, total / 2, total * 3 / 4, total - 8} {
		connections, bundles := s.Stats().Connections, s.Stats().Bundles
		killed, from := make(chan struct{}), p.bytes()[toSwitch]
		p.after(n, func() { o.StopDaemon(); close(killed) })
		change(2 + i)
		select {
		case <-killed:
		case <-time.After(ovstest.Timeout()):
			t.Fatalf("killed after %d bytes: only %d come of %d: %+v", n, p.bytes()[toSwitch]-from, total, s.Stats())
		}
		if err := trySync(s, 20*time.Millisecond); err == nil {
			t.Errorf("killed after %d bytes: confirmed by a dead switch", n)
		}
		if now := s.Stats().Bundles; now != bundles {
			t.Errorf("killed after %d bytes: a dead switch has committed %d bundles", n, now-bundles)
		}
		o.StartDaemon()
		synced(t, s)
		if err := o.differs(map[flow.Owner]flow.Entries{alice: e}); err != nil {
			t.Fatalf("killed after %d bytes: %v", n, err)
		}
		if st := s.Stats(); st.Connections != connections+1 || st.Mended != 0 {
			t.Errorf("killed after %d bytes: %+v", n, st)
		}
	}
}

// TestOtherTools has an administrator's tools replace, merge and change what is there.
func TestOtherTools(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{GroupCompare: time.Hour, Compare: time.Hour})
	want := gateway(t)
	want[alice] = metered(t, []flow.Meter{meter(1, 5)}, "table=50,priority=1,ip,actions=meter:1,output:1")
	setAll(s, want)
	s.Release()
	synced(t, s)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "flows")
		o.must(os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	var group uint32
	for _, e := range want {
		for _, g := range e.Groups {
			group = g.ID
		}
	}
	few := "cookie=0x007b000000000001,table=0,priority=1,actions=drop\n" +
		"cookie=0x007b000000000001,table=3,priority=200,ip,actions=drop\n"
	for _, test := range []struct {
		name string
		do   func()
	}{
		{"replace-flows", func() { o.ofctl("replace-flows", file(few)) }},
		{"replace-flows in a bundle", func() { o.ofctl("--bundle replace-flows", file(few)) }},
		{"replace-flows with nothing", func() { o.ofctl("replace-flows", file("")) }},
		{"add-flows in a bundle", func() { o.ofctl("--bundle add-flows", file(few)) }},
		{"mod-group", func() { o.ofctl("mod-group", fmt.Sprintf("group_id=%d,type=all,bucket=output:1", group)) }},
		{"a group deleted, and another one added in its place", func() {
			o.ofctl("del-groups", fmt.Sprintf("group_id=%d", group))
			o.ofctl("--may-create mod-group", fmt.Sprintf("group_id=%d,type=all,bucket=output:1", group))
		}},
		{"everything deleted", func() { o.ofctl("del-flows"); o.ofctl("del-groups"); o.ofctl("del-meters") }},
		{"everything deleted in another order",
			func() { o.ofctl("del-meters"); o.ofctl("del-groups"); o.ofctl("del-flows") }},
		{"all actions changed", func() { o.ofctl("mod-flows", "actions=drop") }},
		{"one table emptied many times", func() {
			for range 10 {
				o.ofctl("del-flows", "table=0")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &ovs{o.Switch, t}
			mended := s.Stats().Mended
			test.do()
			o.becomes(want)
			o.Eventually("nothing is refused", func() error { return trySync(s, time.Second) })
			if s.Stats().Mended == mended {
				t.Error("it was not counted")
			}
		})
	}
	if n := s.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestForeignFlowsAreLeftAlone has flows of others between ours: without a cookie, under another instance's, and under
// a cookie that differs from ours in its last bit. They stay as they are, with their counters, while ours come and go,
// over reconnects and after foreign changes.
func TestForeignFlowsAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 8))
	o := startOVS(t)
	p := newProxy(t, o)
	for _, f := range []string{
		"table=1,priority=1000,ip,actions=resubmit(,2)",
		"cookie=0x007a010000000001,table=1,priority=1001,ip,actions=drop",
		"cookie=0x007c010000000001,table=2,priority=3,arp,actions=drop",
		"cookie=0xffff000000000000,table=2,priority=4,idle_timeout=9999,udp,actions=output:3",
		"cookie=0x007b,table=90,actions=NORMAL",
	} {
		o.ofctl("add-flow", f)
	}
	for range 3 {
		o.ofctl("packet-out",
			"in_port=controller,packet=ffffffffffff0a00000000010800450000140000000040110000010101010a0a0a0a,"+
				"actions=resubmit(,1),resubmit(,90)")
	}
	age := regexp.MustCompile(`(duration|idle_age|hard_age)=[0-9.]+s?, ?`)
	theirs := func() string {
		var out []string
		for _, l := range lines(o.ofctl("dump-flows")) {
			if strings.Contains(l, "cookie=") && !strings.Contains(l, "cookie=0x7b0") {
				out = append(out, age.ReplaceAllString(l, ""))
			}
		}
		return strings.Join(out, "\n")
	}
	before := theirs()
	if strings.Count(before, "\n") != 4 || strings.Count(before, "n_packets=3") < 2 {
		t.Fatalf("they are:\n%s", before)
	}
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket), GroupCompare: 50 * time.Millisecond,
		Compare: 50 * time.Millisecond})
	s.RedialWithin(time.Millisecond)
	s.Release()
	for step := range 25 {
		w := world(r)
		switch step % 5 {
		case 1:
			p.cutAll()
		case 3:
			o.ofctl("del-flows", "cookie=0x007b000000000000/0xffff000000000000")
		}
		setAll(s, w)
		o.Eventually("ours are there", func() error {
			_ = trySync(s, ovstest.Timeout())
			have := map[flow.Key]bool{}
			for f := range o.holds().Flows() {
				have[f.Key()] = f.Cookie>>48 == instance
			}
			for _, e := range settle(w) {
				for _, f := range e.Flows {
					if !have[f.Key()] {
						return fmt.Errorf("%s is not there", f)
					}
				}
			}
			return nil
		})
		if now := theirs(); now != before {
			t.Fatalf("step %d: theirs were\n%s\nand are\n%s", step, before, now)
		}
	}
	setAll(s, nil)
	synced(t, s)
	if now := theirs(); now != before {
		t.Errorf("at the end theirs were\n%s\nand are\n%s", before, now)
	}
	for f := range o.holds().Flows() {
		if f.Cookie>>48 == instance {
			t.Errorf("of ours %s is left", f)
		}
	}
}

// TestOldBundleComesLate has the last connection's commit reach the switch after the next connection has written its
// state. Its changes are reverted soon, not only at the next comparison of groups.
func TestOldBundleComesLate(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket), GroupCompare: time.Hour, Compare: time.Hour})
	s.RedialWithin(time.Millisecond)
	s.Release()
	desired := func(n int) map[flow.Owner]flow.Entries {
		e := entries(t, "table=1,priority=1,ip,actions=group:5")
		e.Groups = []flow.Group{{ID: 5, Type: flow.AllBuckets,
			Buckets: []flow.Bucket{{Actions: flow.Do(flow.Output(ofp.Port(n)))}}}}
		return map[flow.Owner]flow.Entries{alice: e}
	}
	setAll(s, desired(1))
	synced(t, s)
	before := p.bytes()[toSwitch]
	setAll(s, desired(2))
	synced(t, s)
	held, release := make(chan struct{}), make(chan struct{})
	p.after(p.bytes()[toSwitch]-before-8, func() { p.cutAll(); close(held); <-release })
	setAll(s, desired(3))
	select {
	case <-held:
	case <-time.After(ovstest.Timeout()):
		close(release)
		t.Fatal("the commit does not come")
	}
	setAll(s, desired(4))
	err := trySync(s, ovstest.Timeout())
	differs := o.differs(desired(4))
	close(release)
	if err != nil || differs != nil {
		t.Fatalf("over the new connection: %v, %v", err, differs)
	}
	o.Eventually("the old bundle takes effect, and is mended", func() error {
		if s.Stats().Mended == 0 {
			return fmt.Errorf("nothing is mended: %+v", s.Stats())
		}
		return o.differs(desired(4))
	})
}

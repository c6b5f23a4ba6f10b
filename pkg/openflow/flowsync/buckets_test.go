package flowsync_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// spread is a group with a bucket for each endpoint, and a flow that uses it.
func spread(id uint32, endpoints ...int) flow.Entries {
	g := flow.Group{ID: id, Type: flow.AllBuckets}
	for _, e := range endpoints {
		g.Buckets = append(g.Buckets,
			flow.Bucket{ID: uint32(e), Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 32), uint64(e)), flow.Resubmit(4))})
	}
	return flow.Entries{
		Groups: []flow.Group{g},
		Flows:  []flow.Flow{{Table: 1, Priority: uint16(id), Match: flow.All(flow.IP()), Actions: flow.Do(flow.ToGroup(id))}},
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 3*i + 1
	}
	return out
}

// mostBuckets is how many of spread's buckets, of 40 bytes, a message has room for.
const mostBuckets = 1637

// nextEndpoints changes a list of endpoints: a few come and go, or hundreds.
func nextEndpoints(r *rand.Rand, list []int) []int {
	list = slices.Clone(list)
	n := r.IntN(3)
	if r.IntN(6) == 0 {
		n = r.IntN(300)
	}
	for range n {
		if len(list) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(list))
			list = slices.Delete(list, i, i+1)
		}
		if e := r.IntN(3 * mostBuckets); len(list) < mostBuckets && r.IntN(2) == 0 && !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestGroupsGrowAndShrink has the buckets of groups come and go, few and many, up to the limit of a message and back.
// Another program changes the groups and the connection is cut in between. After each step the switch has the desired
// state.
//
//tombolo:unraced
func TestGroupsGrowAndShrink(t *testing.T) {
	t.Parallel()
	const seed = 107
	r := rand.New(rand.NewPCG(seed, 0))
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket), GroupCompare: 50 * time.Millisecond})
	s.RedialWithin(time.Millisecond)
	s.Release()
	lists := map[uint32][]int{1: upTo(3), 2: upTo(60), 3: upTo(mostBuckets - 20)}
	first := map[flow.Owner]flow.Entries{}
	for id, list := range lists {
		first[flow.Owner{Kind: 1, Name: fmt.Sprint(id)}] = spread(id, list...)
	}
	setAll(s, first)
	synced(t, s)
	for step := range 200 {
		want := map[flow.Owner]flow.Entries{}
		for id, list := range lists {
			lists[id] = nextEndpoints(r, list)
			want[flow.Owner{Kind: 1, Name: fmt.Sprint(id)}] = spread(id, lists[id]...)
		}
		meddled := true
		switch id := 1 + r.IntN(3); r.IntN(8) {
		case 0:
			o.ofctl("remove-buckets", fmt.Sprintf("group_id=%d,command_bucket_id=first", id))
		case 1:
			o.ofctl("insert-buckets", fmt.Sprintf("group_id=%d,command_bucket_id=last,bucket=bucket_id:%d,actions=drop", id,
				5000+step))
		case 2:
			o.ofctl("remove-buckets", fmt.Sprintf("group_id=%d,command_bucket_id=all", id))
		case 3:
			p.cutNext(60_000 + r.IntN(3000))
			p.cutAll()
		default:
			meddled = false
		}
		setAll(s, want)
		if !meddled {
			synced(t, s)
			if err := o.differs(want); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		o.becomes(want)
	}
	if st := s.Stats(); st.Mended == 0 || st.Connections < 5 {
		t.Errorf("too tame: %+v", st)
	}
}

// TestGroupIsOneMessage has buckets of a large group come and go: one message each time, and no message if only their
// order differs.
func TestGroupIsOneMessage(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{Compare: time.Hour, GroupCompare: time.Hour})
	s.Release()
	all := upTo(250)
	s.Set(alice, spread(1, all...))
	synced(t, s)
	for _, test := range []struct {
		name string
		list []int
		mods uint64
	}{
		{"the first goes", all[1:], 1},
		{"it is back, another goes", slices.Delete(slices.Clone(all), 100, 101), 1},
		{"in another order", append(slices.Clone(all[101:]), all[:100]...), 0},
		{"none is left", nil, 1},
		{"all come", all, 1},
	} {
		before := s.Stats().GroupMods
		want := map[flow.Owner]flow.Entries{alice: spread(1, test.list...)}
		setAll(s, want)
		synced(t, s)
		if n := s.Stats().GroupMods - before; n != test.mods {
			t.Errorf("%s: %d group-mods, want %d", test.name, n, test.mods)
		}
		if err := o.differs(want); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
	}
}

// TestSelectGroupsAreSentWhole lets an endpoint come and go: the switch shares its hash values among all present
// buckets. With bucket messages it would use only the new ones, or no bucket.
func TestSelectGroupsAreSentWhole(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	o.Appctl("vlog/set", "ofproto_dpif:file:dbg")
	s, _ := o.start(flowsync.Options{})
	s.Release()
	for _, endpoints := range [][]int{{1}, {1, 2}, {1, 2, 3, 4}, {2, 3, 4}, {3}} {
		e := spread(1, endpoints...)
		g := &e.Groups[0]
		g.Type, g.Selection = flow.Select, flow.Selection{Method: "dp_hash"}
		for i := range g.Buckets {
			g.Buckets[i].Weight = 1
		}
		s.Set(alice, e)
		synced(t, s)
		// ovs-vswitchd writes its log from a thread of its own.
		var last string
		var n int
		for deadline := time.Now().Add(ovstest.Timeout()); n != len(endpoints) &&
			time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			log, err := os.ReadFile(filepath.Join(o.RunDir(), "ovs-vswitchd.log"))
			if err != nil {
				t.Fatal(err)
			}
			// Open vSwitch 4.0 logs the hash values a second time, as of a changed group.
			last = string(log[max(0, bytes.LastIndex(log, []byte("ing select group 1"))):])
			n = strings.Count(last, " hits=")
		}
		if n != len(endpoints) || strings.Contains(last, " hits=0") || strings.Contains(last, "Falling back") {
			t.Errorf("with endpoints %v the switch chooses among %d:\n%s", endpoints, n, last)
		}
	}
}

// TestGroupTooLarge declares a group that a switch could hold but not report. It is refused before anything is sent,
// and its owner gets the remedy.
func TestGroupTooLarge(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	s.Set(bob, spread(2, upTo(100)...))
	for _, n := range []int{mostBuckets + 1, mostBuckets + 10} {
		s.Set(alice, spread(1, upTo(n)...))
		if err := trySync(s, ovstest.Timeout(), alice); err == nil || !strings.Contains(err.Error(), "divide it") ||
			len(err.Error()) > 2000 {
			t.Errorf("alice is told of %d buckets: %v", n, err)
		}
		synced(t, s, bob)
	}
	s.Set(alice, spread(1, upTo(mostBuckets)...))
	synced(t, s)
	for range 3 { // with other groups behind it the switch is asked again and again
		if err := o.differs(map[flow.Owner]flow.Entries{alice: spread(1, upTo(mostBuckets)...),
			bob: spread(2, upTo(100)...)}); err != nil {
			t.Error(err)
		}
	}
}

// TestScriptedGroups walks at random against a switch that answers with one group a message, and refuses some
// messages for no reason.
//
//tombolo:unraced
func TestScriptedGroups(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			w := newScripted(t)
			w.refuse = func(m ofp.Message) *ofp.Error {
				if m.Type() == ofp.TypeGroupMod && r.IntN(20) == 0 {
					return &ofp.Error{ErrType: 6, Code: 4}
				}
				return nil
			}
			s, stop := w.start()
			defer stop()
			s.Release()
			lists := map[uint32][]int{1: upTo(3), 2: upTo(50), 3: upTo(400), 4: upTo(200)}
			for step := range 60 {
				want := map[flow.Owner]flow.Entries{}
				for id, list := range lists {
					lists[id] = nextEndpoints(r, list)
					if r.IntN(10) > 0 {
						want[flow.Owner{Kind: 1, Name: fmt.Sprint(id)}] = spread(id, lists[id]...)
					}
				}
				setAll(s, want)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_ = s.Synced(ctx) // some are refused, and tried again
				cancel()
				timer := time.NewTimer(2 * time.Minute)
				<-timer.C
				if d := w.differs(want); d != "" {
					t.Fatalf("seed %d, step %d: the switch differs:\n%s", seed, step, d)
				}
			}
		})
	}
}

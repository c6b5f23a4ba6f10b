package probe

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPings pings two Nodes with a clock of its own. There are replies, losses, and late and foreign replies. Nodes
// come and go.
func TestPings(t *testing.T) {
	nonces := uint64(100)
	p := NewPings(func() uint64 { nonces++; return nonces })
	one, two := Target{"n1", netip.MustParseAddr("10.1.1.1")}, Target{"n2", netip.MustParseAddr("10.1.2.1")}
	now := time.Unix(1000, 0)
	p.Set(now, []Target{two, one}, 10*time.Second)
	due := func(at time.Duration) (out []Ping) { return p.Due(now.Add(at)) }
	take := func(reply Ping, at time.Duration, want error) {
		t.Helper()
		if err := p.Take(reply, now.Add(at)); !errors.Is(err, want) {
			t.Errorf("reply %+v after %s: %v, want %v", reply, at, err, want)
		}
	}
	first := Ping{two.Addr, 101, 1}
	if diff := cmp.Diff([]Ping{first}, due(0), cmp.Comparer(func(a, b Ping) bool { return a == b })); diff != "" {
		t.Fatal(diff)
	}
	second := Ping{one.Addr, 102, 1}
	if have := due(500 * time.Millisecond); len(have) != 1 || have[0] != second {
		t.Fatalf("%+v", have) // spread over the first second
	}
	p.Sending(second, now.Add(550*time.Millisecond))
	take(first, 20*time.Millisecond, nil)
	take(first, 30*time.Millisecond, ErrOld)
	take(Ping{two.Addr, 7, 1}, time.Second, ErrForeign)
	take(Ping{two.Addr, 101, 9}, time.Second, ErrForeign)
	take(Ping{netip.MustParseAddr("10.9.9.9"), 101, 1}, time.Second, ErrForeign)
	if have := due(1600 * time.Millisecond); len(have) != 0 {
		t.Fatalf("before its time: %+v", have)
	}
	take(second, 1700*time.Millisecond, ErrLate)
	take(second, 1800*time.Millisecond, ErrOld)
	again := due(10 * time.Second)
	if len(again) != 1 || again[0] != (Ping{two.Addr, 101, 2}) {
		t.Fatalf("%+v", again)
	}
	p.Unsent(again[0])
	take(again[0], 10100*time.Millisecond, ErrOld)
	results, foreign := p.Results()
	if foreign != 3 || len(results) != 2 || results[0].Node != "n1" || results[0].Sent != 1 || results[0].Lost != 1 ||
		results[0].Late != 1 || results[1].Sent != 1 || results[1].Lost != 0 || results[1].P50Seconds != .02 ||
		results[1].Old != 2 {
		t.Errorf("%d foreign, %+v", foreign, results)
	}

	p.Set(now.Add(11*time.Second), []Target{two}, time.Second) // shorter
	if have := due(12 * time.Second); len(have) != 1 || have[0] != (Ping{two.Addr, 101, 3}) {
		t.Errorf("after a shorter time: %+v", have)
	}
	p.Set(now.Add(12*time.Second), []Target{{"n3", two.Addr}}, time.Second)
	if results, _ := p.Results(); len(results) != 1 || results[0].Sent != 0 || results[0].Node != "n3" {
		t.Errorf("another Node with the address keeps results: %+v", results)
	}
	p.Set(now, nil, 0)
	if have := due(time.Hour); len(have) != 0 {
		t.Errorf("without targets: %+v", have)
	}
}

// TestPingsOfMany pings so many Nodes that they take turns.
func TestPingsOfMany(t *testing.T) {
	p := NewPings(func() uint64 { return 1 })
	var targets []Target
	for i := range 500 {
		targets = append(targets, Target{"n", netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})})
	}
	now := time.Unix(1000, 0)
	p.Set(now, targets, time.Second)
	sent := map[netip.Addr]int{}
	for at := time.Duration(0); at <= 20*time.Second; at += 100 * time.Millisecond {
		if at == 8*time.Second { // longer, and shorter again: they stay spread
			p.Set(now.Add(at), targets, time.Minute)
			p.Set(now.Add(at), targets, time.Second)
		}
		due := p.Due(now.Add(at))
		if len(due) > pingsPerSecond/10+1 {
			t.Errorf("%d requests at %s", len(due), at)
		}
		for _, one := range due {
			sent[one.Addr]++
			if err := p.Take(one, now.Add(at+time.Millisecond)); err != nil {
				t.Error(err)
			}
		}
	}
	for _, to := range targets {
		if n := sent[to.Addr]; n < 4 || n > 5 {
			t.Errorf("%d requests to %s in 20 s, want one each 5 s", n, to.Addr)
		}
	}
}

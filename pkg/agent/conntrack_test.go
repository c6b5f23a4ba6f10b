package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// scriptedSwitch records the connections that are flushed.
type scriptedSwitch struct {
	number  uint64
	knows   map[datapath.ServiceConnection]bool
	answer  error
	flushed []string
	calls   int // of flush

	unconfirmed error  // the flows are not there yet
	confirmed   uint64 // session whose flows are there
	early       int    // looks at connections before they were
	meanwhile   func() // between the two flushes of a pass

	many   int // connections, where listing them stops the switch
	looks  int
	ending []datapath.ServiceConnection
}

func (s *scriptedSwitch) stopping(context.Context) (int, error) { return s.many, nil }
func (s *scriptedSwitch) end(list []datapath.ServiceConnection) { s.ending = list }

func (s *scriptedSwitch) session() uint64 { return s.number }
func (s *scriptedSwitch) tracked(context.Context) (map[datapath.ServiceConnection]bool, error) {
	if s.confirmed != s.number {
		s.early++
	}
	s.looks++
	return s.knows, nil
}
func (s *scriptedSwitch) applied(context.Context) error {
	s.confirmed = s.number
	return s.unconfirmed
}
func (s *scriptedSwitch) revalidated(context.Context) error {
	if s.meanwhile != nil {
		s.meanwhile()
		s.meanwhile = nil
	}
	return nil
}
func (s *scriptedSwitch) flush(_ context.Context, list []ofp.CTFlush) error {
	if s.answer != nil {
		return s.answer
	}
	s.calls++
	for _, f := range list {
		text := f.Orig.Dst.String() + " " + f.Reply.Src.String()
		if !slices.Contains(s.flushed, text) { // each is flushed twice
			s.flushed = append(s.flushed, text)
		}
	}
	return nil
}

// TestConntrackFlusher changes the endpoints of Services.
func TestConntrackFlusher(t *testing.T) {
	set := func(texts ...string) map[datapath.ServiceConnection]bool {
		out := map[datapath.ServiceConnection]bool{}
		for _, text := range texts {
			vip, endpoint, _ := strings.Cut(text, " ")
			out[datapath.ServiceConnection{VIP: netip.MustParseAddrPort(vip + ":53"),
				Endpoint: netip.MustParseAddrPort(endpoint + ":5353")}] = true
		}
		return out
	}
	s := &scriptedSwitch{}
	f := newConntrackFlusher(s, slog.New(slog.DiscardHandler))
	var before map[datapath.ServiceConnection]bool
	var drained []netip.AddrPort
	update := func(want map[datapath.ServiceConnection]bool, draining ...netip.AddrPort) {
		f.change(connectionChanges{slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(want)), drained, draining})
		before, drained = want, draining
	}
	seen := uint64(0)
	step := func(name string, want ...string) {
		t.Helper()
		s.flushed = nil
		if err := f.pass(t.Context(), &seen); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		slices.Sort(s.flushed)
		if !slices.Equal(s.flushed, want) {
			t.Errorf("%s: flushed %q, want %q", name, s.flushed, want)
		}
	}
	s.number, s.knows = 1, set("10.97.0.1 10.0.0.9", "10.97.0.1 10.0.0.1", "10.97.0.2 10.0.0.1")
	step("before the first plan")
	update(set("10.97.0.1 10.0.0.1", "10.97.0.1 10.0.0.2", "10.97.0.2 10.0.0.1"))
	step("changes before the first plan")
	f.start()
	s.unconfirmed = errors.New("not yet")
	if err := f.pass(t.Context(), &seen); err == nil || len(s.flushed) > 0 {
		t.Errorf("before the flows are confirmed: %v, flushed %q", err, s.flushed)
	}
	s.unconfirmed = nil
	step("after a start, tracked to an endpoint that is gone", "10.97.0.1 10.0.0.9")
	step("again")
	update(set("10.97.0.1 10.0.0.1", "10.97.0.1 10.0.0.2", "10.97.0.1 10.0.0.7", "10.97.0.2 10.0.0.1"))
	update(set("10.97.0.1 10.0.0.1", "10.97.0.1 10.0.0.2", "10.97.0.2 10.0.0.1"))
	step("endpoint without connections gone")
	update(set("10.97.0.1 10.0.0.2", "10.97.0.2 10.0.0.1"))
	step("endpoint of one of two Services gone", "10.97.0.1 10.0.0.1")
	update(set("10.97.0.1 10.0.0.2"), netip.MustParseAddrPort("10.0.0.1:5353"))
	step("endpoint ends but serves")
	update(set("10.97.0.1 10.0.0.2"))
	step("endpoint has ended", "10.97.0.2 10.0.0.1")
	s.number = 0
	update(set())
	step("no connection to the switch")
	update(set("10.97.0.1 10.0.0.2"))
	s.number, s.knows = 2, set("10.97.0.1 10.0.0.2", "10.97.0.3 10.0.0.2")
	step("the endpoint came back before the switch did, another is tracked", "10.97.0.3 10.0.0.2")

	s.answer = &ofconn.SwitchError{Refusal: ofp.Error{}}
	update(set())
	step("the switch cannot flush")
	if p := f.problems("node-1"); len(p) != 1 || p[0].Reason.String() != "ConntrackFlushUnsupported" ||
		!strings.Contains(p[0].Message, "Open vSwitch 3.1") {
		t.Errorf("problems: %v", p)
	}
	s.answer = errors.New("broken pipe")
	update(set("10.97.0.1 10.0.0.2"))
	update(set())
	if err := f.pass(t.Context(), &seen); err == nil {
		t.Error("a flush that failed is taken for done")
	}
	s.answer = nil
	step("retry", "10.97.0.1 10.0.0.2")
	if p := f.problems("node-1"); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}

	update(set("10.97.0.1 10.0.0.2"))
	update(set())
	s.meanwhile = func() {
		update(set("10.97.0.1 10.0.0.2"))
		update(set())
	}
	step("back and gone again during a flush", "10.97.0.1 10.0.0.2")
	step("the second removal", "10.97.0.1 10.0.0.2")
	step("nothing is left")
	update(set("10.97.0.1 10.0.0.2"))
	update(set())
	s.calls, s.meanwhile = 0, func() { update(set("10.97.0.1 10.0.0.2")) }
	step("back during a flush", "10.97.0.1 10.0.0.2")
	if s.calls != 1 {
		t.Errorf("flushed %d times, the second time after the endpoint came back", s.calls)
	}
	s.many, s.looks = recheckFew+1, 0
	update(set())
	step("gone among many connections")
	if want := (datapath.ServiceConnection{VIP: netip.MustParseAddrPort("10.97.0.1:53"),
		Endpoint: netip.MustParseAddrPort("10.0.0.2:5353")}); s.looks > 0 ||
		!slices.Equal(s.ending, []datapath.ServiceConnection{want}) {
		t.Errorf("gone among many connections: %d looks, ending %v", s.looks, s.ending)
	}
	update(set("10.97.0.1 10.0.0.2"))
	step("back among many connections")
	if s.looks > 0 || len(s.ending) > 0 {
		t.Errorf("back among many connections: %d looks, ending %v", s.looks, s.ending)
	}
	if s.early > 0 {
		t.Errorf("looked %d times at connections before the switch had its flows", s.early)
	}
}

// TestConntrackDump reads a list with connections that are not of Services. They are left out.
func TestConntrackDump(t *testing.T) {
	c := config.Default()
	if have := conntrackDump(c, false); !slices.Equal(have, []string{"system@ovs-system", "zone=65520"}) {
		t.Errorf("arguments %q", have)
	}
	c.OVSDatapathType = "netdev"
	if have := conntrackDump(c, false); !slices.Equal(have, []string{"netdev@ovs-netdev", "zone=65520"}) {
		t.Errorf("arguments %q", have)
	}
}

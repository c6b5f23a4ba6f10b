package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// scriptedSwitch notes what is flushed.
type scriptedSwitch struct {
	number  uint64
	knows   map[datapath.ServiceConnection]bool
	answer  error
	flushed []string
}

func (s *scriptedSwitch) session() uint64 { return s.number }
func (s *scriptedSwitch) tracked(context.Context) (map[datapath.ServiceConnection]bool, error) {
	return s.knows, nil
}
func (s *scriptedSwitch) applied(context.Context) error     { return nil }
func (s *scriptedSwitch) revalidated(context.Context) error { return nil }
func (s *scriptedSwitch) flush(_ context.Context, list []ofp.CTFlush) error {
	if s.answer != nil {
		return s.answer
	}
	for _, f := range list {
		text := f.Orig.Dst.String() + " " + f.Reply.Src.String()
		if !slices.Contains(s.flushed, text) { // each is flushed twice
			s.flushed = append(s.flushed, text)
		}
	}
	return nil
}

// TestConntrackFlusher changes what endpoints Services have.
func TestConntrackFlusher(t *testing.T) {
	set := func(texts ...string) map[datapath.ServiceConnection]bool {
		out := map[datapath.ServiceConnection]bool{}
		for _, text := range texts {
			vip, endpoint, _ := strings.Cut(text, " ")
			out[datapath.ServiceConnection{VIP: netip.MustParseAddrPort(vip + ":53"), Endpoint: netip.MustParseAddrPort(endpoint + ":5353")}] = true
		}
		return out
	}
	draining := []*discoveryv1.EndpointSlice{{
		Ports: []discoveryv1.EndpointPort{{Port: new(int32(5353))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{"10.0.0.1"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
		}},
	}}
	s := &scriptedSwitch{}
	f := newConntrackFlusher(s, slog.New(slog.DiscardHandler), func() {})
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
	f.update(set("10.97.0.1 10.0.0.1", "10.97.0.1 10.0.0.2", "10.97.0.2 10.0.0.1"), nil)
	step("after a start, tracked to an endpoint that is gone", "10.97.0.1 10.0.0.9")
	step("again")
	f.update(set("10.97.0.1 10.0.0.1", "10.97.0.1 10.0.0.2", "10.97.0.1 10.0.0.7", "10.97.0.2 10.0.0.1"), nil)
	f.update(set("10.97.0.1 10.0.0.1", "10.97.0.1 10.0.0.2", "10.97.0.2 10.0.0.1"), nil)
	step("endpoint without connections gone")
	f.update(set("10.97.0.1 10.0.0.2", "10.97.0.2 10.0.0.1"), nil)
	step("endpoint of one of two Services gone", "10.97.0.1 10.0.0.1")
	f.update(set("10.97.0.1 10.0.0.2"), draining)
	step("endpoint ends but serves")
	f.update(set("10.97.0.1 10.0.0.2"), nil)
	step("endpoint has ended", "10.97.0.2 10.0.0.1")
	s.number = 0
	f.update(set(), nil)
	step("no connection to the switch")
	f.update(set("10.97.0.1 10.0.0.2"), nil)
	s.number, s.knows = 2, set("10.97.0.1 10.0.0.2", "10.97.0.3 10.0.0.2")
	step("the endpoint came back before the switch did, another is tracked", "10.97.0.3 10.0.0.2")

	s.answer = &ofconn.SwitchError{Refusal: ofp.Error{}}
	f.update(set(), nil)
	step("the switch cannot flush")
	if p := f.problems("node-1"); len(p) != 1 || p[0].Reason != "ConntrackFlushUnsupported" || !strings.Contains(p[0].Message, "Open vSwitch 3.1") {
		t.Errorf("problems: %v", p)
	}
	s.answer = errors.New("broken pipe")
	f.update(set("10.97.0.1 10.0.0.2"), nil)
	f.update(set(), nil)
	if err := f.pass(t.Context(), &seen); err == nil {
		t.Error("a flush that failed is taken for done")
	}
	s.answer = nil
	step("retry", "10.97.0.1 10.0.0.2")
	if p := f.problems("node-1"); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
}

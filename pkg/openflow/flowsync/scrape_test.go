package flowsync

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestScrapeDuringRefusals refuses entries for new reasons while more series are gathered than a registry buffers
// (1,000): neither may wait for the other's lock.
func TestScrapeDuringRefusals(t *testing.T) {
	const reasons, rounds = 3000, 20
	registry := prometheus.NewRegistry()
	s := New(Options{Instance: 7, Registerer: registry})
	se := newSession(s, nil)
	next := uint16(0)
	refuse := func() { // s.mu is held
		next++
		se.keepBack(s.slots.make([]byte(groupIdent(uint32(next)))), "", "an entry",
			&ofconn.SwitchError{Refusal: ofp.Error{ErrType: 0xfff0, Code: next}})
	}
	s.mu.Lock()
	for range reasons {
		refuse()
	}
	s.mu.Unlock()

	for round := range rounds {
		gathered := make(chan error, 1)
		s.mu.Lock()
		go func() {
			_, err := registry.Gather()
			gathered <- err
		}()
		time.Sleep(5 * time.Millisecond) // lets the scrape fill its buffer; the test holds without it, but finds less
		refused := make(chan struct{})
		go func() {
			refuse()
			s.mu.Unlock()
			close(refused)
		}()
		deadline := time.After(ovstest.Timeout())
		select {
		case <-refused:
		case <-deadline:
			t.Fatalf("round %d: a refusal waits for a scrape that waits for it", round)
		}
		select {
		case err := <-gathered:
			if err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("round %d: the scrape does not end", round)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if want := reasons + rounds; f.GetName() == "tombolo_flowsync_refusals_total" && len(f.Metric) != want {
			t.Errorf("%d reasons were gathered, want %d", len(f.Metric), want)
		}
	}
}

package ofconn

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// startOVS starts a real switch without a datapath, with bridge br0.
func startOVS(t *testing.T, protocols string) *ovstest.Switch {
	t.Helper()
	o := ovstest.Start(t, ovstest.Dummy)
	o.Vsctl("--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=system", "fail_mode=secure",
		"protocols="+protocols)
	return o
}

func connect(t *testing.T, o *ovstest.Switch, counts *Counters, h Handler) *Conn {
	t.Helper()
	c, err := Connect(t.Context(), UnixDialer(filepath.Join(o.RunDir(), "br0.mgmt")), counts, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// drop is flow number n.
func drop(n int) ofp.Message {
	return flow.Flow{Table: 1, Priority: uint16(n), Match: flow.All(flow.IP())}.Mod(ofp.FlowAdd)
}

func flows(t *testing.T, c *Conn) (n, parts int) {
	t.Helper()
	answers, err := c.Request(t.Context(), ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		n += len(a.(ofp.FlowDescReply).Flows)
	}
	return n, len(answers)
}

func TestOtherVersions(t *testing.T) {
	t.Parallel()
	for _, protocols := range []string{"OpenFlow10", "[OpenFlow10,OpenFlow13,OpenFlow14]"} {
		o := startOVS(t, protocols)
		_, err := Connect(t.Context(), UnixDialer(filepath.Join(o.RunDir(), "br0.mgmt")), nil, nil)
		if err == nil || !strings.Contains(err.Error(), "add OpenFlow15 to the bridge's protocols") {
			t.Errorf("%s: %v", protocols, err)
		}
	}
}

func TestNoSwitch(t *testing.T) {
	t.Parallel()
	_, err := Connect(t.Context(), UnixDialer(filepath.Join(t.TempDir(), "none.mgmt")), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "connect to the switch: dial unix") {
		t.Error(err)
	}
}

func TestBundles(t *testing.T) {
	t.Parallel()
	var counts Counters
	c := connect(t, startOVS(t, "OpenFlow15"), &counts, nil)
	badGroup := flow.Flow{Table: 1, Priority: 3000, Actions: flow.Do(flow.ToGroup(9))}.Mod(ofp.FlowAdd)
	badTable := ofp.GroupMod{Command: ofp.GroupModify, ID: 8, GroupType: ofp.GroupTypeAll}
	for _, test := range []struct {
		name     string
		messages []ofp.Message
		index    int
		want     string
	}{
		{"group that is not there", []ofp.Message{drop(1), drop(2), badGroup, drop(3)}, 2, "OFPBAC_BAD_OUT_GROUP"},
		{"the first", []ofp.Message{badGroup, drop(1)}, 0, "OFPBAC_BAD_OUT_GROUP"},
		{"the last", []ofp.Message{drop(1), badTable}, 1, "OFPGMFC_UNKNOWN_GROUP"},
		{"two of them: the earlier one", []ofp.Message{drop(1), badTable, badGroup}, 1, "OFPGMFC_UNKNOWN_GROUP"},
		{"meters are not taken in bundles",
			[]ofp.Message{drop(1),
				ofp.MeterMod{ID: 1, Flags: ofp.MeterPktps, Bands: []ofp.MeterBand{{Kind: ofp.BandDrop, Rate: 1}}}}, 1,
			"OFPBFC_MSG_UNSUP"},
		{"what cannot be encoded", []ofp.Message{drop(1), ofp.FlowMod{Actions: []ofp.Action{nil}}}, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.Bundle(t.Context(), test.messages)
			var bad *BundleError
			if !errors.As(err, &bad) || bad.Index != test.index || !strings.Contains(bad.Error(), test.want) {
				t.Errorf("%v, want index %d and %q", err, test.index, test.want)
			}
			if n, _ := flows(t, c); n != 0 {
				t.Errorf("%d flows of a refused bundle have taken effect", n)
			}
		})
	}
	var many []ofp.Message
	for n := range 5000 {
		many = append(many, drop(n))
	}
	before := counts.Sent(ofp.TypeFlowMod)
	if err := c.Bundle(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	if n := counts.Sent(ofp.TypeFlowMod) - before; n != 5000 {
		t.Errorf("%d flow-mods counted", n)
	}
	if n, parts := flows(t, c); n != 5000 || parts < 2 {
		t.Errorf("%d flows come back in %d parts, want 5000 in several", n, parts)
	}
	if err := c.Bundle(t.Context(), nil); err != nil {
		t.Errorf("empty bundle: %v", err)
	}
}

func TestRefusedRequest(t *testing.T) {
	t.Parallel()
	unasked := make(chan ofp.Message, 10)
	c := connect(t, startOVS(t, "OpenFlow15"), nil, func(_ uint32, m ofp.Message) { unasked <- m })
	_, err := c.Request(t.Context(), ofp.FlowStatsRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}})
	var refusal *SwitchError
	if !errors.As(err, &refusal) || refusal.Refusal.Name() != "OFPBRC_BAD_STAT" {
		t.Errorf("%v, want OFPBRC_BAD_STAT", err)
	}
	// A message for which no caller waits goes to the handler.
	if err := c.Send(flow.Flow{Actions: flow.Do(flow.ToGroup(9))}.Mod(ofp.FlowAdd)); err != nil {
		t.Fatal(err)
	}
	if err := c.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, ok := (<-unasked).(ofp.Error); !ok || m.Name() != "OFPBAC_BAD_OUT_GROUP" {
		t.Errorf("the handler got %v", m)
	}
}

func TestSwitchGoes(t *testing.T) {
	t.Parallel()
	o := startOVS(t, "OpenFlow15")
	c := connect(t, o, nil, nil)
	o.StopDaemon()
	<-c.Done()
	if _, err := c.Request(context.Background(), ofp.BarrierRequest{}); err == nil || c.Err() == nil {
		t.Errorf("request: %v, connection: %v", err, c.Err())
	}
	if err := c.Bundle(context.Background(), []ofp.Message{drop(1)}); err == nil {
		t.Error("a bundle without a connection is no error")
	}
}

// TestBundlesAtOnce sends bundles from several goroutines over one connection. Each goroutine gets the fault of its own
// messages.
func TestBundlesAtOnce(t *testing.T) {
	t.Parallel()
	c := connect(t, startOVS(t, "OpenFlow15"), nil, nil)
	badGroup := flow.Flow{Table: 1, Priority: 3000, Actions: flow.Do(flow.ToGroup(9))}.Mod(ofp.FlowAdd)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for range 50 {
				var messages []ofp.Message
				for n := range worker {
					messages = append(messages, drop(n))
				}
				err := c.Bundle(t.Context(), append(messages, badGroup))
				var bad *BundleError
				if !errors.As(err, &bad) || bad.Index != worker || !strings.Contains(bad.Error(), "OFPBAC_BAD_OUT_GROUP") {
					t.Errorf("%v, want the fault at index %d", err, worker)
					return
				}
			}
		})
	}
	wg.Wait()
}

package ofconn

import (
	"bufio"
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestBlockedSwitch has a switch that stops reading but goes on sending. A writer returns at the end of its context,
// and the connection ends after a while. Bundles are another case: half of one is the end of the connection.
func TestBlockedSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		packetIn, err := ofp.AppendMessage(nil, 0, ofp.PacketIn2{Data: []byte("packet")})
		if err != nil {
			t.Fatal(err)
		}
		c := play(t, func(p *peer) {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for t.Context().Err() == nil {
				if _, err := p.Write(packetIn); err != nil {
					return
				}
				select {
				case <-tick.C:
				case <-t.Context().Done():
				}
			}
		})
		for name, try := range map[string]func(context.Context) error{
			"send":    func(ctx context.Context) error { return c.SendContext(ctx, ofp.BarrierRequest{}) },
			"request": c.Barrier,
			"each": func(ctx context.Context) error {
				_, err := c.Each(ctx, []ofp.Message{drop(1)})
				return err
			},
		} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := try(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
		if err := c.Err(); err != nil {
			t.Errorf("giving up has ended the connection: %v", err)
		}
		<-c.Done()
		if d := time.Since(start); d > silence+time.Second || !strings.Contains(c.Err().Error(), "timeout") {
			t.Errorf("%v after %s, want a timeout after %s", c.Err(), d, silence)
		}
		c.requests.mu.Lock()
		defer c.requests.mu.Unlock()
		if len(c.requests.pending) != 0 {
			t.Errorf("%d requests are still waited for", len(c.requests.pending))
		}
	})
}

// TestBundleAborted ends the context while a bundle's bytes are not taken.
func TestBundleAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := play(t, func(p *peer) {
			xid, _ := p.receive()
			p.send(xid, ofp.BundleControl{ID: 1, Ctrl: ofp.BundleOpenReply})
			<-t.Context().Done() // reads nothing more
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := c.Bundle(ctx, slices.Repeat([]ofp.Message{drop(1)}, 1000)) // more than is read with the opening
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if c.Err() == nil {
			t.Error("half a message is written and the connection goes on")
		}
	})
}

// TestEchoesPileUp has a switch that asks for echoes and does not read them.
func TestEchoesPileUp(t *testing.T) {
	t.Parallel()
	before := runtime.NumGoroutine()
	var sent atomic.Int64
	c := play(t, func(p *peer) {
		for range 100_000 {
			b, err := ofp.AppendMessage(nil, 7, ofp.EchoRequest{})
			if err != nil {
				t.Error(err)
			}
			if _, err := p.Write(b); err != nil {
				return
			}
			sent.Add(1)
		}
	})
	<-c.Done()
	if !strings.Contains(c.Err().Error(), "does not read the answers") || sent.Load() > 2*echoesMax {
		t.Errorf("%v after %d echo requests", c.Err(), sent.Load())
	}
	if n := runtime.NumGoroutine(); n > before+200 {
		t.Errorf("%d goroutines, before %d", n, before)
	}
}

// TestDialIsBounded has a transport that never comes up.
func TestDialIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Connect(t.Context(), func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != handshakeTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// TestHandshakeStalls has a switch that stops in the middle of its hello.
func TestHandshakeStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Connect(t.Context(), func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			p := &peer{t, far, bufio.NewReader(far)}
			go func() { p.receive(); _, _ = p.Write([]byte{6, 0, 0, 16, 0}) }()
			return near, nil
		}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "shake hands") || time.Since(began) != handshakeTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// TestEach has refused and accepted messages side by side on a real switch.
func TestEach(t *testing.T) {
	t.Parallel()
	var counts Counters
	c := connect(t, startOVS(t, "OpenFlow15"), &counts, nil)
	badGroup := flow.Flow{Table: 1, Priority: 3000, Actions: flow.Do(flow.ToGroup(9))}.Mod(ofp.FlowAdd)
	refused, err := c.Each(t.Context(), []ofp.Message{
		drop(1), badGroup, ofp.FlowMod{Actions: []ofp.Action{nil}}, drop(2),
		ofp.MeterMod{Command: ofp.MeterModify, ID: 9, Flags: ofp.MeterPktps,
			Bands: []ofp.MeterBand{{Kind: ofp.BandDrop, Rate: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "OFPBAC_BAD_OUT_GROUP", "action", "", "OFPMMFC_UNKNOWN_METER"} {
		if (refused[i] == nil) != (want == "") || want != "" && !strings.Contains(refused[i].Error(), want) {
			t.Errorf("message %d: %v, want %q", i, refused[i], want)
		}
	}
	if n, _ := flows(t, c); n != 2 || counts.FlowMods(ofp.FlowAdd) != 3 || counts.Sent(ofp.TypeMeterMod) != 1 {
		t.Errorf("%d flows, %d adds, %v", n, counts.FlowMods(ofp.FlowAdd), counts.SentByName())
	}
	if _, err := c.Each(t.Context(), nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// TestBundleExpired has a switch that gives a bundle up while its messages are under way, and takes the others for a
// new one. No part may be committed.
func TestBundleExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []uint16
		done := make(chan struct{})
		c := play(t, func(p *peer) {
			defer close(done)
			var opened uint32
			for {
				xid, m := p.receive()
				control, ok := m.(ofp.BundleControl)
				if !ok {
					continue // an addition
				}
				asked = append(asked, control.Ctrl)
				p.send(xid, ofp.BundleControl{ID: control.ID, Ctrl: control.Ctrl + 1})
				switch control.Ctrl {
				case ofp.BundleOpenRequest:
					opened = xid
					p.send(opened, ofp.Error{ErrType: 17, Code: 14}) // OFPBFC_TIMEOUT
				case ofp.BundleDiscardRequest:
					return
				}
			}
		})
		err := c.Bundle(t.Context(), []ofp.Message{drop(1), drop(2)})
		var refused *BundleError
		if err == nil || errors.As(err, &refused) { // what is at fault is no message
			t.Errorf("an expired bundle: %v", err)
		}
		<-done
		if slices.Contains(asked, ofp.BundleCommitRequest) {
			t.Error("half of the bundle is committed")
		}
	})
}

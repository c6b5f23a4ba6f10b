package flowsync

import (
	"context"
	"fmt"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Run connects and keeps the switch as wanted, for ever, until ctx ends.
func (s *Syncer) Run(ctx context.Context) error {
	delay := redialMin
	for ctx.Err() == nil {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > 5*time.Second {
			delay = redialMin
		}
		s.mu.Lock()
		news := s.stats.LastError != err.Error()
		s.stats.LastError = err.Error()
		delay = min(delay, s.redial)
		s.mu.Unlock()
		if news {
			s.log.Warn("no OpenFlow connection; trying again", "error", err)
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		delay *= 2
	}
	return nil
}

// session is the life of one connection. It returns why it ended.
func (s *Syncer) session(ctx context.Context) error {
	conn, err := ofconn.Connect(ctx, s.options.Dial, &s.counts, s.handle)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.begin(ctx, conn); err != nil {
		return err
	}
	s.mu.Lock()
	s.conn = conn
	s.stats.Connections++
	s.stats.LastError = ""
	s.synced = 0
	s.wake()
	s.mu.Unlock()
	s.log.Info("connected to the switch")
	defer func() {
		s.mu.Lock()
		s.conn = nil
		s.synced = 0
		s.wake()
		s.mu.Unlock()
	}()

	compare, groups := time.NewTicker(s.options.Compare), time.NewTicker(s.options.GroupCompare)
	defer compare.Stop()
	defer groups.Stop()
	// A bundle of the last connection may still be on its way to the switch. The monitor reports flows; groups and
	// meters are read, less and less often.
	settle := time.NewTimer(settleMin)
	defer settle.Stop()
	wait := settleMin
	if !s.torn {
		settle.Stop()
	}
	s.torn = false
	for {
		again, err := s.round(ctx, conn)
		if err != nil {
			s.torn = true
			return err
		}
		retry := time.NewTimer(again)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-conn.Done():
			err = conn.Err()
		case <-s.trigger:
		case <-retry.C:
		case <-compare.C:
			err = s.read(ctx, conn, true)
		case <-groups.C:
			err = s.read(ctx, conn, false)
		case <-settle.C:
			err = s.read(ctx, conn, false)
			if wait *= 2; wait <= settleMax {
				settle.Reset(wait)
			}
		}
		retry.Stop()
		if err != nil {
			return err
		}
	}
}

// Reasons of requests that are forwarded (ofp_requestforward_reason).
const (
	forwardGroups = 1 << 0
	forwardMeters = 1 << 1
)

// begin asks for packet-ins and for reports of others' changes, then reads the switch. The monitor comes first: a
// change between the two is reported or read, or both.
func (s *Syncer) begin(ctx context.Context, conn *ofconn.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	if err := conn.Send(
		ofp.SetPacketInFormat{Format: ofp.PacketInNXM2},
		ofp.SetConfig{MissSendLen: 0xffff}, // a connection by the management socket gets no packets before
		// No flow monitor reports groups and meters: have others' requests repeated to us.
		ofp.SetAsync{Properties: []ofp.AsyncProperty{{Kind: ofp.AsyncRequestForward, Mask: forwardGroups | forwardMeters}}},
	); err != nil {
		return err
	}
	if err := conn.Barrier(ctx); err != nil {
		return fmt.Errorf("ask for packet-ins and others' requests: %w", err)
	}
	if _, err := conn.Request(ctx, ofp.FlowMonitorRequest{
		ID:       1,
		Flags:    ofp.MonitorAdd | ofp.MonitorRemoved | ofp.MonitorModify | ofp.MonitorActions,
		Table:    ofp.TableAll,
		OutPort:  ofp.PortAny,
		OutGroup: ofp.GroupAny,
	}); err != nil {
		return fmt.Errorf("monitor the flows: %w", err)
	}
	return s.read(ctx, conn, true)
}

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
		err := s.connect(ctx)
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

// session is the life of one connection: what is read and sent over it.
type session struct {
	syncer *Syncer
	slots  *slots // of syncer
	conn   *ofconn.Conn
	follow bool // what was done makes more to do; the mutex of syncer guards it
}

func newSession(s *Syncer, conn *ofconn.Conn) *session {
	return &session{syncer: s, slots: s.slots, conn: conn}
}

// connect begins a session, and runs it until the connection ends. It returns why it ended.
func (s *Syncer) connect(ctx context.Context) error {
	conn, err := ofconn.Connect(ctx, s.options.Dial, &s.counts, s.handle)
	if err != nil {
		return err
	}
	defer conn.Close()
	return newSession(s, conn).run(ctx)
}

// run keeps the switch as wanted until the connection ends. It returns why it ended.
func (se *session) run(ctx context.Context) error {
	if err := se.begin(ctx); err != nil {
		return err
	}
	se.syncer.mu.Lock()
	se.syncer.session = se
	se.syncer.stats.Connections++
	se.syncer.stats.LastError = ""
	se.syncer.progress.synced = 0
	se.syncer.progress.wake()
	se.syncer.mu.Unlock()
	se.syncer.log.Info("connected to the switch")
	defer func() {
		se.syncer.mu.Lock()
		se.syncer.session = nil
		se.syncer.progress.synced = 0
		se.syncer.progress.wake()
		se.syncer.mu.Unlock()
	}()

	compare, groups := time.NewTicker(se.syncer.options.Compare), time.NewTicker(se.syncer.options.GroupCompare)
	defer compare.Stop()
	defer groups.Stop()
	// A bundle of the last connection may still be on its way to the switch. The monitor would report its flows. Groups
	// and meters are read again, at growing intervals.
	settle := time.NewTimer(settleMin)
	defer settle.Stop()
	wait := settleMin
	if !se.syncer.torn {
		settle.Stop()
	}
	se.syncer.torn = false
	for {
		again, err := se.round(ctx)
		if err != nil {
			se.syncer.torn = true
			return err
		}
		retry := time.NewTimer(again)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-se.conn.Done():
			err = se.conn.Err()
		case <-se.syncer.trigger:
		case <-retry.C:
		case <-compare.C:
			err = se.read(ctx, true)
		case <-groups.C:
			err = se.read(ctx, false)
		case <-settle.C:
			err = se.read(ctx, false)
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

// begin requests packet-ins and reports of others' changes, and then reads the switch. The monitor starts first, so
// that a change between the two is in a report or in the read, or in both.
func (se *session) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	if err := se.conn.Send(
		ofp.SetPacketInFormat{Format: ofp.PacketInNXM2},
		ofp.SetConfig{MissSendLen: 0xffff}, // a connection by the management socket gets no packets before
		// No flow monitor reports groups and meters: have others' requests repeated to us.
		ofp.SetAsync{Properties: []ofp.AsyncProperty{{Kind: ofp.AsyncRequestForward, Mask: forwardGroups | forwardMeters}}},
	); err != nil {
		return err
	}
	if err := se.conn.Barrier(ctx); err != nil {
		return fmt.Errorf("ask for packet-ins and others' requests: %w", err)
	}
	if _, err := se.conn.Request(ctx, ofp.FlowMonitorRequest{
		ID:       1,
		Flags:    ofp.MonitorAdd | ofp.MonitorRemoved | ofp.MonitorModify | ofp.MonitorActions,
		Table:    ofp.TableAll,
		OutPort:  ofp.PortAny,
		OutGroup: ofp.GroupAny,
	}); err != nil {
		return fmt.Errorf("monitor the flows: %w", err)
	}
	return se.read(ctx, true)
}

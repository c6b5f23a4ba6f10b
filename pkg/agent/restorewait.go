package agent

import (
	"context"
	"net"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
)

// restoreTimeout bounds one attempt to end flow-restore-wait.
const restoreTimeout = 30 * time.Second

// flowsApplied returns when the switch has confirmed all flows of the last plan that it takes,
// on a connection that is alive. One that was refused does not hold up the others.
func (a *Agent) flowsApplied(ctx context.Context) error {
	err := a.flows.Synced(ctx)
	if ctx.Err() != nil {
		return err
	}
	// The connection may be that of an ovs-vswitchd that has just ended: ask for an answer.
	return a.flows.FlushConnections(ctx, nil)
}

// endRestoreWait lets a restarted ovs-vswitchd process packets once it has its flows. The start
// script of the OVS container sets flow-restore-wait, so that no packet meets an empty table. It
// returns at once; one attempt runs at a time.
func (a *Agent) endRestoreWait(ctx context.Context) {
	if !a.restoring.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer a.runner.Trigger() // look whether it has worked
		defer a.restoring.Store(false)
		ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
		defer cancel()
		err := a.flowsApplied(ctx)
		if err == nil {
			err = a.switchPorts.ClearFlowRestoreWait(ctx)
		}
		if err != nil {
			a.log.Debug("flow-restore-wait not ended yet", "error", err)
			return
		}
		a.log.Info("the restarted switch has its flows and processes packets (flow-restore-wait cleared)")
	}()
}

// Times of prompt.
const (
	redialEvery = 20 * time.Millisecond
	redialFor   = time.Second
)

// prompt makes a dialer that finds a switch which comes back within some milliseconds: Pods'
// traffic waits for the agent then. It tries for a second before it returns an error.
func prompt(dial ofconn.Dialer) ofconn.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		end := time.Now().Add(redialFor)
		for {
			conn, err := dial(ctx)
			if err == nil || time.Now().After(end) {
				return conn, err
			}
			timer := time.NewTimer(redialEvery)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil, err
			case <-timer.C:
			}
		}
	}
}

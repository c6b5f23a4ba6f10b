package agent

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// restoreTimeout bounds one attempt to end flow-restore-wait.
const restoreTimeout = 30 * time.Second

// restoreRetry is after how long it is tried again.
const restoreRetry = 20 * time.Millisecond

// restoreWait ends flow-restore-wait of the switch.
type restoreWait struct {
	tables      *tables
	switchPorts *bridge.Manager
	flows       *flowsync.Syncer
	progress    *progress
	log         *slog.Logger
	declared    chan struct{} // the switch has flow-restore-wait, and its flows are declared
}

// flowsApplied returns when the switch has confirmed all flows of the last plan on a live connection. Flows that the
// switch refuses do not delay it.
func flowsApplied(ctx context.Context, flows *flowsync.Syncer) error {
	err := flows.Synced(ctx)
	if ctx.Err() != nil {
		return err
	}
	// The connection may be to an ovs-vswitchd that has just ended. So flowsApplied waits for an answer.
	return flows.FlushConnections(ctx, nil)
}

// end clears flow-restore-wait of a restarted ovs-vswitchd once the switch has its flows, until ctx ends. The start
// script of the OVS container sets flow-restore-wait, so that no packet meets an empty table.
func (w *restoreWait) end(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.declared:
		}
		attempt, cancel := context.WithTimeout(ctx, restoreTimeout)
		err := flowsApplied(attempt, w.flows)
		if err == nil {
			err = w.switchPorts.ClearFlowRestoreWait(attempt)
		}
		cancel()
		if err == nil {
			w.log.Info("the restarted switch has its flows and processes packets (flow-restore-wait cleared)")
			continue
		}
		w.log.Debug("flow-restore-wait not ended yet", "error", err)
		time.AfterFunc(restoreRetry, func() { w.tables.readSwitch(w.switchPorts.State) }) // looks again
	}
}

// Times of freeUplink.
const (
	uplinkWait  = 3 * time.Second        // usually enough to load the cluster's state
	uplinkFlows = time.Second            // for the flows to be confirmed
	uplinkLook  = 250 * time.Millisecond // between looks
)

// uplinkWaits reports whether the Node's own traffic waits for the end of flow-restore-wait. It does if the Node's
// uplink is a port of the switch.
func uplinkWaits(c config.Config, s bridge.State) bool {
	_, taken := s.Bridges[uplinkBridge(c.TransportInterface)]
	return s.FlowRestoreWait && c.TransportInterface != "" && c.OVSDatapathType == "netdev" && taken
}

// freeUplink ends flow-restore-wait if agent and ovs-vswitchd have been restarted together and the switch carries the
// packets to the API server. Then the agent cannot get the desired flows before the switch forwards.
//
// The agent keeps no flows over its own restart. So the only risk is that packets miss flows of a plan that was applied
// in part. freeUplink returns once a plan has been applied completely. From then on the agent can give a restarted
// switch its flows without an API server.
func (w *restoreWait) freeUplink(ctx context.Context) {
	var since time.Time
	for ctx.Err() == nil && !w.progress.ready() {
		switch waits := uplinkWaits(w.tables.config, w.switchPorts.State()); {
		case !waits:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= uplinkWait:
			applying, cancel := context.WithTimeout(ctx, uplinkFlows)
			applied := flowsApplied(applying, w.flows)
			cancel()
			ending, cancel := context.WithTimeout(ctx, restoreTimeout)
			err := w.switchPorts.ClearFlowRestoreWait(ending)
			cancel()
			if err == nil {
				w.log.Warn("the switch processes packets before all its flows are known (flow-restore-wait cleared): the uplink "+
					"is one of its ports and the API server is reached by that", "confirmed", applied == nil)
			}
			since = time.Time{}
		}
		select {
		case <-ctx.Done():
		case <-time.After(uplinkLook):
		}
	}
}

// Times of prompt.
const (
	redialEvery = 20 * time.Millisecond
	redialFor   = time.Second
)

// prompt returns a dialer that finds a restarted switch within some milliseconds, since Pods' traffic waits for the
// agent then. It tries for a second before it returns an error.
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

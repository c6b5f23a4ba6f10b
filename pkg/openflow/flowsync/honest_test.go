package flowsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
)

// TestSyncedWaitsForTheFirstDeclaration declares something for the first time on a connection
// that is idle since it had nothing to do.
func TestSyncedWaitsForTheFirstDeclaration(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	synced(t, s)
	o.Eventually("the first round is over", func() error { return s.Idle() })
	p.pause(toSwitch)
	s.Set(alice, entries(t, "table=1,ip,actions=drop"))
	if err := trySync(s, 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the switch has not heard of it, and Synced says %v", err)
	}
	p.resume(toSwitch)
	synced(t, s)
}

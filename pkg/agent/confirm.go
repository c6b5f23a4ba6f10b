package agent

import (
	"context"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

// confirmations measures how long changes of Services take. The time is from the pass that sees a change until the
// switch has confirmed its flows. It measures one change at a time, and skips the changes of later passes meanwhile.
type confirmations struct {
	synced func(context.Context, ...flow.Owner) error
	took   func(time.Duration)
	next   chan confirmation
}

type confirmation struct {
	seen  time.Time
	owner flow.Owner
}

func newConfirmations(synced func(context.Context, ...flow.Owner) error, took func(time.Duration)) *confirmations {
	return &confirmations{synced, took, make(chan confirmation)}
}

// declared records an owner whose flows were declared in the pass that began at a time.
func (c *confirmations) declared(seen time.Time, owner flow.Owner) {
	select {
	case c.next <- confirmation{seen, owner}:
	default:
	}
}

func (c *confirmations) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-c.next:
			if c.synced(ctx, n.owner) == nil { // refused flows never arrive
				c.took(time.Since(n.seen))
			}
		}
	}
}

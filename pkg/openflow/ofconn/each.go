package ofconn

import (
	"context"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Each sends messages outside of bundles, since bundles cannot contain meter-mods, and waits until all are handled. The
// switch answers such a message only if it refuses it. The first result has an error for each message: nil, a
// *SwitchError, or the reason why it cannot be encoded. The second result is an error of the connection or of ctx.
// After it the switch's state is unknown.
func (c *Conn) Each(ctx context.Context, messages []ofp.Message) ([]error, error) {
	refused := make([]error, len(messages))
	var send []ofp.Message
	var index []int
	var scratch []byte
	for i, m := range messages {
		var err error
		if scratch, err = ofp.AppendMessage(scratch[:0], 0, m); err != nil {
			refused[i] = err
			continue
		}
		send, index = append(send, m), append(index, i)
	}
	if len(send) == 0 {
		return refused, nil
	}
	send = append(send, ofp.BarrierRequest{})
	requests := make([]*request, len(send))
	if err := c.out.acquire(ctx); err != nil {
		return nil, err
	}
	first := c.xids(len(send))
	for i := range requests {
		requests[i] = &request{}
		if err := c.requests.expect(first+uint32(i), requests[i]); err != nil {
			c.out.release()
			return nil, err
		}
		defer c.requests.forget(first + uint32(i))
	}
	if err := c.out.write(ctx, first, send); err != nil {
		return nil, err
	}
	barrier := requests[len(requests)-1]
	if _, err := c.await(ctx, barrier); err != nil {
		return nil, err
	}
	// The reader has dispatched the refusals before the barrier's answer.
	for n, i := range index {
		refused[i] = requests[n].err
	}
	return refused, nil
}

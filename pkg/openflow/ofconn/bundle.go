package ofconn

import (
	"context"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// BundleError is a bundle that the switch refused: no message of it has taken effect.
type BundleError struct {
	Index   int         // of the message at fault; -1 when the switch did not say
	Message ofp.Message // nil when Index is -1, and of a message that cannot be encoded
	Err     error       // a *SwitchError, or why the message cannot be encoded
}

func (e *BundleError) Error() string {
	switch {
	case e.Index < 0:
		return fmt.Sprintf("bundle refused: %v", e.Err)
	case e.Message == nil:
		return fmt.Sprintf("bundle refused for its message %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("bundle refused for its message %d (%s): %v", e.Index, e.Message.Type(), e.Err)
}

func (e *BundleError) Unwrap() error { return e.Err }

// bundle is the bundle that is being sent: errors name its messages by transaction id.
type bundle struct {
	open     uint32 // the request that opened it
	first, n uint32
	index    int
	err      *ofp.Error
}

// note takes an error that belongs to one of the bundle's messages.
func (b *bundle) note(xid uint32, e ofp.Error) bool {
	i := xid - b.first
	if i >= b.n {
		return false
	}
	if b.err == nil {
		b.err, b.index = &e, int(i)
	}
	return true
}

// end handles an error for the request that opened the bundle, long after its answer. It means that the switch has
// discarded the bundle, which was idle for too long (OVS 3.1, ofproto.c, bundle_timeout). Later additions open another
// bundle, which lacks the earlier ones.
func (b *bundle) end(xid uint32, e ofp.Error) bool {
	if xid != b.open {
		return false
	}
	if b.err == nil {
		b.err, b.index = &e, -1
	}
	return true
}

// Bundle sends messages as one atomic, ordered bundle (OpenFlow 1.5 section 6.9): all take effect, or the error is a
// *BundleError and no message takes effect. Only one bundle is written at a time. If ctx ends while it is being
// written, the connection ends too.
func (c *Conn) Bundle(ctx context.Context, messages []ofp.Message) error {
	return c.BundleBytes(ctx, len(messages), func(b []byte, xid uint32, i int) ([]byte, error) {
		return ofp.AppendMessage(b, xid, messages[i])
	})
}

// BundleBytes sends a bundle of n messages that are encoded while they are sent. message appends the message with an
// index. It is called in order, and may be called again for an index.
func (c *Conn) BundleBytes(ctx context.Context, n int,
	message func(b []byte, xid uint32, i int) ([]byte, error)) error {
	const flags = ofp.BundleAtomic | ofp.BundleOrdered
	id := c.xid.Add(1)
	control := func(kind uint16) ofp.Message { return ofp.BundleControl{ID: id, Ctrl: kind, Flags: flags} }
	discard := func() { // the switch forgets it with the connection at the latest
		_, _ = c.Request(ctx, control(ofp.BundleDiscardRequest))
	}
	if err := c.out.acquire(ctx); err != nil {
		return fmt.Errorf("open a bundle: %w", err)
	}
	// All of it goes out in one, so that the switch is waited for once.
	var opened, closed request
	first := c.xids(n + 2)
	last := first + uint32(n) + 1
	for xid, req := range map[uint32]*request{first: &opened, last: &closed} {
		if err := c.requests.expect(xid, req); err != nil {
			c.out.release()
			return fmt.Errorf("open a bundle: %w", err)
		}
		defer c.requests.forget(xid)
	}
	b := &bundle{open: first, first: first + 1, n: uint32(n), index: -1}
	c.requests.begin(b)
	defer c.requests.end(b)
	bad, err := c.out.stream(ctx, n+2, func(i int) error {
		switch i {
		case 0:
			return c.out.encode(first, control(ofp.BundleOpenRequest))
		case n + 1:
			return c.out.encode(last, control(ofp.BundleCloseRequest))
		}
		xid := first + uint32(i)
		return c.out.append(func(b []byte) ([]byte, error) {
			return ofp.AppendBundleAdd(b, xid, id, flags, func(b []byte) ([]byte, error) { return message(b, xid, i-1) })
		})
	})
	if bad < 0 && err != nil {
		return err
	}
	if _, err := c.await(ctx, &opened); err != nil {
		return fmt.Errorf("open a bundle: %w", err)
	}
	if bad >= 0 {
		discard()
		return &BundleError{Index: bad - 1, Err: err}
	}
	// The answer to close comes after the errors of all additions.
	_, closeErr := c.await(ctx, &closed)
	if refused := c.requests.refused(b, message); refused != nil {
		discard()
		return refused
	}
	if closeErr != nil {
		return fmt.Errorf("close a bundle: %w", closeErr)
	}
	if _, err := c.Request(ctx, control(ofp.BundleCommitRequest)); err != nil {
		if refused := c.requests.refused(b, message); refused != nil {
			return refused
		}
		if c.Err() != nil || ctx.Err() != nil {
			return fmt.Errorf("commit a bundle: %w", err)
		}
		return &BundleError{Index: -1, Err: err}
	}
	return nil
}

// refused returns why the switch has refused a bundle; nil if it has not.
func (r *requests) refused(b *bundle, message func([]byte, uint32, int) ([]byte, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.err == nil {
		return nil
	}
	refused := &BundleError{Index: b.index, Err: &SwitchError{*b.err}}
	if b.index < 0 {
		return fmt.Errorf("the switch has given the bundle up: %w", refused.Err)
	}
	if bytes, err := message(nil, 0, b.index); err == nil {
		_, refused.Message, _ = ofp.DecodeMessage(bytes) // without it the index says enough
	}
	return refused
}

package ofconn

import (
	"context"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// BundleError is a bundle that the switch refused: none of its messages has taken effect.
type BundleError struct {
	Index   int         // of the message at fault; -1 when the switch did not say
	Message ofp.Message // nil when Index is -1
	Err     error       // a *SwitchError, or why the message cannot be encoded
}

func (e *BundleError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("bundle refused: %v", e.Err)
	}
	return fmt.Sprintf("bundle refused for its message %d (%s): %v", e.Index, e.Message.Type(), e.Err)
}

func (e *BundleError) Unwrap() error { return e.Err }

// bundle is the bundle that is being sent: errors name its messages by transaction id.
type bundle struct {
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

// Bundle sends messages as one atomic, ordered bundle (OpenFlow 1.5 section 6.9): all take
// effect, or none and the error is a *BundleError. One bundle is sent at a time. When ctx ends
// while it is being written the connection ends too.
func (c *Conn) Bundle(ctx context.Context, messages []ofp.Message) error {
	const flags = ofp.BundleAtomic | ofp.BundleOrdered
	id := c.xid.Add(1)
	control := func(kind uint16) error {
		_, err := c.Request(ctx, ofp.BundleControl{ID: id, Ctrl: kind, Flags: flags})
		return err
	}
	if err := control(ofp.BundleOpenRequest); err != nil {
		return fmt.Errorf("open a bundle: %w", err)
	}
	n := uint32(len(messages))
	if err := c.acquire(ctx); err != nil {
		return err
	}
	b := &bundle{first: c.xids(len(messages)), n: n, index: -1}
	c.mu.Lock()
	c.bundle = b
	c.mu.Unlock()
	bad, err := c.stream(ctx, len(messages), func(i int) error {
		return c.encodeAdd(b.first+uint32(i), id, flags, messages[i])
	})
	defer func() {
		c.mu.Lock()
		c.bundle = nil
		c.mu.Unlock()
	}()
	if bad >= 0 {
		_ = control(ofp.BundleDiscardRequest) // the switch forgets it with the connection at the latest
		return &BundleError{Index: bad, Message: messages[bad], Err: err}
	}
	if err != nil {
		return err
	}
	// The answer to close comes after the errors of all additions.
	closeErr := control(ofp.BundleCloseRequest)
	if refused := c.refused(b, messages); refused != nil {
		_ = control(ofp.BundleDiscardRequest)
		return refused
	}
	if closeErr != nil {
		return fmt.Errorf("close a bundle: %w", closeErr)
	}
	if err := control(ofp.BundleCommitRequest); err != nil {
		if refused := c.refused(b, messages); refused != nil {
			return refused
		}
		if c.Err() != nil || ctx.Err() != nil {
			return fmt.Errorf("commit a bundle: %w", err)
		}
		return &BundleError{Index: -1, Err: err}
	}
	return nil
}

func (c *Conn) refused(b *bundle, messages []ofp.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.err == nil {
		return nil
	}
	return &BundleError{Index: b.index, Message: messages[b.index], Err: &SwitchError{*b.err}}
}

package ofconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// writer writes messages to a connection, for one goroutine at a time.
type writer struct {
	raw    net.Conn
	counts *Counters
	life   *life
	turn   chan struct{} // holds one token while a goroutine writes: a mutex that can be given up
	buf    []byte        // of the writing goroutine
}

// acquire waits for the turn to write.
func (w *writer) acquire(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-w.life.done:
		return w.life.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) release() { <-w.turn }

// write encodes all messages, writes them, and then releases the turn to write, which the caller has acquired. It
// returns early if ctx ends. Transaction ids count up from first.
func (w *writer) write(ctx context.Context, first uint32, messages []ofp.Message) error {
	w.buf = w.buf[:0]
	for i, m := range messages {
		if err := w.encode(first+uint32(i), m); err != nil {
			w.release()
			return err
		}
	}
	if ctx.Done() == nil {
		defer w.release()
		return w.flush()
	}
	done := make(chan error, 1)
	go func() {
		err := w.flush()
		w.release()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write to the switch, which does not read: %w", ctx.Err())
	}
}

// stream is like write, for messages that are too large to be kept as bytes at once. encode encodes the n messages one
// by one. If ctx ends before all are written, the connection ends. If a message cannot be encoded, stream returns its
// index and writes no later message. Otherwise the index is -1.
func (w *writer) stream(ctx context.Context, n int, encode func(int) error) (bad int, err error) {
	stop := context.AfterFunc(ctx,
		func() { w.life.fail(fmt.Errorf("write to the switch, which does not read: %w", ctx.Err())) })
	defer stop()
	defer w.release()
	w.buf = w.buf[:0]
	for i := range n {
		if err := encode(i); err != nil {
			return i, cmp.Or(w.flush(), err)
		}
		if len(w.buf) >= 64<<10 {
			if err := w.flush(); err != nil {
				return -1, err
			}
		}
	}
	return -1, w.flush()
}

// encode appends a message to the bytes to be written.
func (w *writer) encode(xid uint32, m ofp.Message) error {
	return w.append(func(b []byte) ([]byte, error) { return ofp.AppendMessage(b, xid, m) })
}

// append appends the message that add appends to the bytes to be written.
func (w *writer) append(add func([]byte) ([]byte, error)) error {
	b, err := add(w.buf)
	if err != nil {
		return err
	}
	w.counts.count(b[len(w.buf):])
	w.buf = b
	return nil
}

// flush writes the encoded bytes. If the switch reads no byte for the longest time that it may be silent, the
// connection ends.
func (w *writer) flush() error {
	err := w.raw.SetWriteDeadline(time.Now().Add(silence))
	if err == nil {
		_, err = w.raw.Write(w.buf)
	}
	w.buf = w.buf[:0]
	if err != nil {
		err = fmt.Errorf("write to the switch: %w", err)
		w.life.fail(err)
		if ended := w.life.ended(); !errors.Is(ended, net.ErrClosed) {
			return ended // says why, where this says only that it has ended
		}
	}
	return err
}

// Package ofconn is one OpenFlow 1.5 connection to a switch: handshake, transaction ids,
// requests with their answers, bundles, and a handler for what the switch says by itself.
package ofconn

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

const (
	version          = 6 // OpenFlow 1.5
	handshakeTimeout = 5 * time.Second
	idle             = 5 * time.Second  // without a word from the switch an echo is sent
	silence          = 15 * time.Second // without a word for so long the connection is given up
)

// Dialer opens the transport to a switch.
type Dialer func(ctx context.Context) (net.Conn, error)

// UnixDialer dials a bridge's management socket, such as
// "/var/run/openvswitch/br-int.mgmt".
func UnixDialer(path string) Dialer { return dialer("unix", path) }

// TCPDialer dials host:port.
func TCPDialer(address string) Dialer { return dialer("tcp", address) }

func dialer(network, address string) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
}

// SwitchError is a request that the switch refused.
type SwitchError struct{ Refusal ofp.Error }

func (e *SwitchError) Error() string { return e.Refusal.Error() }

// Handler gets unsolicited messages of the switch. It runs on the connection's reader: it must not wait for the
// connection.
type Handler func(xid uint32, m ofp.Message)

// Conn is an established connection.
type Conn struct {
	raw     net.Conn
	handler Handler
	counts  *Counters

	writing chan struct{} // holds one token while a goroutine writes: a mutex that can be given up
	buf     []byte        // of the writing goroutine
	echoes  chan echo     // to be answered

	xid      atomic.Uint32
	began    time.Time
	lastRead atomic.Int64 // nanoseconds since began: the wall clock may be set

	mu      sync.Mutex
	pending map[uint32]*request
	bundles []*bundle // that are under way
	err     error
	done    chan struct{}
}

// echo is the payload that the switch wants back.
type echo struct {
	xid     uint32
	request ofp.EchoRequest
}

// echoesMax is how many echo requests may wait for their answer. A switch sends one in some
// seconds; one with so many outstanding does not read what it asked for.
const echoesMax = 64

type request struct {
	part    func([]byte) error // takes the answers' bytes instead, if there is one
	answers []ofp.Message
	err     error
	done    chan struct{}
}

// Counters count messages by OpenFlow type over the life of several connections. A message
// inside a bundle counts as itself, and the bundle-add around it too.
type Counters struct {
	sent, received [256]atomic.Uint64
	flowMods       [ofp.FlowDeleteStrict + 1]atomic.Uint64
}

// Offsets of a message's type, of a flow-mod's command, and of the message in a bundle-add (OpenFlow 1.5 sections
// 7.1.1, 7.3.4.2 and 7.3.9.6).
const (
	typeAt    = 1
	commandAt = 25
	addedAt   = 16
)

// count counts a message that is being sent, of which b is the bytes.
func (c *Counters) count(b []byte) {
	c.sent[b[typeAt]].Add(1)
	switch ofp.Type(b[typeAt]) {
	case ofp.TypeBundleAdd:
		if len(b) > addedAt+typeAt {
			c.count(b[addedAt:])
		}
	case ofp.TypeFlowMod:
		if len(b) > commandAt && int(b[commandAt]) < len(c.flowMods) {
			c.flowMods[b[commandAt]].Add(1)
		}
	}
}

// FlowMods is how many flow-mods with a command were sent.
func (c *Counters) FlowMods(command ofp.FlowCommand) uint64 { return c.flowMods[command].Load() }

// Sent is how many messages of a type were sent.
func (c *Counters) Sent(t ofp.Type) uint64 { return c.sent[t].Load() }

// Received is how many messages of a type were received.
func (c *Counters) Received(t ofp.Type) uint64 { return c.received[t].Load() }

// SentByName is how many messages were sent, by the type's name, without zeros.
func (c *Counters) SentByName() map[string]uint64 {
	out := map[string]uint64{}
	for t := range c.sent {
		if n := c.sent[t].Load(); n > 0 {
			out[ofp.Type(t).String()] = n
		}
	}
	return out
}

// Connect dials and shakes hands. counts may be nil.
func Connect(ctx context.Context, dial Dialer, counts *Counters, handler Handler) (*Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, handshakeTimeout)
	raw, err := dial(dialing)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("connect to the switch: %w", err)
	}
	if counts == nil {
		counts = &Counters{}
	}
	c := &Conn{
		raw: raw, handler: handler, counts: counts, pending: map[uint32]*request{}, done: make(chan struct{}),
		writing: make(chan struct{}, 1), echoes: make(chan echo, echoesMax),
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	reader := bufio.NewReaderSize(raw, 64<<10)
	err = c.handshake(reader)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("shake hands with the switch: %w", err)
	}
	c.began = time.Now()
	go c.read(reader)
	go c.answer()
	go c.keepAlive()
	return c, nil
}

// handshake exchanges hellos (OpenFlow 1.5 section 6.3.1).
func (c *Conn) handshake(r *bufio.Reader) error {
	if err := c.raw.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := c.Send(ofp.Hello{Versions: []uint8{version}}); err != nil {
		return err
	}
	b, err := readMessage(r, nil)
	if err != nil {
		return err
	}
	_, m, err := ofp.DecodeMessage(b)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case ofp.Hello:
		speaks, ok := fmt.Sprintf("up to version %d", m.HeaderVersion), m.HeaderVersion >= version
		if len(m.Versions) > 0 {
			speaks, ok = fmt.Sprintf("versions %v", m.Versions), slices.Contains(m.Versions, version)
		}
		if !ok {
			return &VersionError{speaks}
		}
	case ofp.Error:
		return &SwitchError{m}
	default:
		return fmt.Errorf("it begins with %s instead of HELLO", m.Type())
	}
	return c.raw.SetDeadline(time.Time{})
}

// readMessage reads the bytes of one message, into buf where it has room.
func readMessage(r *bufio.Reader, buf []byte) ([]byte, error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, err
	}
	n := ofp.MessageLen(head)
	if n < 8 {
		return nil, fmt.Errorf("a message says it has %d bytes", n)
	}
	buf = slices.Grow(buf[:0], n)[:n]
	_, err = io.ReadFull(r, buf)
	return buf, err
}

// Send sends messages without waiting for answers. Each gets a transaction id of its own. It
// waits while the switch does not read; SendContext has a limit for that.
func (c *Conn) Send(messages ...ofp.Message) error {
	return c.SendContext(context.Background(), messages...)
}

// SendContext is Send that returns when ctx ends. The messages may be sent after that, if the writing had begun: half a
// message would end the connection.
func (c *Conn) SendContext(ctx context.Context, messages ...ofp.Message) error {
	if err := c.acquire(ctx); err != nil {
		return fmt.Errorf("write to the switch: %w", err)
	}
	return c.write(ctx, c.xids(len(messages)), messages)
}

// acquire waits for the turn to write.
func (c *Conn) acquire(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Conn) release() { <-c.writing }

// xids takes n transaction ids that count up from the one returned.
func (c *Conn) xids(n int) uint32 { return c.xid.Add(uint32(n)) - uint32(n) + 1 }

// write encodes all messages, then writes them and gives the turn to write back, which the
// caller has acquired; it returns early when ctx ends. xids count up from first.
func (c *Conn) write(ctx context.Context, first uint32, messages []ofp.Message) error {
	c.buf = c.buf[:0]
	for i, m := range messages {
		if err := c.encode(first+uint32(i), m); err != nil {
			c.release()
			return err
		}
	}
	if ctx.Done() == nil {
		defer c.release()
		return c.flush()
	}
	done := make(chan error, 1)
	go func() {
		err := c.flush()
		c.release()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write to the switch, which does not read: %w", ctx.Err())
	}
}

// stream is write for messages that are too large to be kept as bytes at once: encode encodes the n messages one by
// one. If ctx ends before all is written, the connection ends. If a message cannot be encoded, stream returns its index
// and writes no later message; else the index is -1.
func (c *Conn) stream(ctx context.Context, n int, encode func(int) error) (bad int, err error) {
	stop := context.AfterFunc(ctx,
		func() { c.fail(fmt.Errorf("write to the switch, which does not read: %w", ctx.Err())) })
	defer stop()
	defer c.release()
	c.buf = c.buf[:0]
	for i := range n {
		if err := encode(i); err != nil {
			return i, cmp.Or(c.flush(), err)
		}
		if len(c.buf) >= 64<<10 {
			if err := c.flush(); err != nil {
				return -1, err
			}
		}
	}
	return -1, c.flush()
}

func (c *Conn) encode(xid uint32, m ofp.Message) error {
	b, err := ofp.AppendMessage(c.buf, xid, m)
	if err != nil {
		return err
	}
	c.counts.count(b[len(c.buf):])
	c.buf = b
	return nil
}

// flush writes what is encoded. A switch that takes nothing of it for as long as it may be
// silent is given up.
func (c *Conn) flush() error {
	err := c.raw.SetWriteDeadline(time.Now().Add(silence))
	if err == nil {
		_, err = c.raw.Write(c.buf)
	}
	c.buf = c.buf[:0]
	if err != nil {
		err = fmt.Errorf("write to the switch: %w", err)
		c.fail(err)
		if ended := c.Err(); !errors.Is(ended, net.ErrClosed) {
			return ended // says why, where this says only that it has ended
		}
	}
	return err
}

// Request sends a message and returns the answers: one, or all parts of a multipart reply. A
// refusal is a *SwitchError.
func (c *Conn) Request(ctx context.Context, m ofp.Message) ([]ofp.Message, error) {
	return c.request(ctx, m, &request{})
}

// RequestParts is Request for answers too large to be kept. part gets them one by one, on the connection's reader, and
// not after RequestParts has returned.
func (c *Conn) RequestParts(ctx context.Context, m ofp.Message, part func(ofp.Message)) error {
	return c.requestParts(ctx, m, func(b []byte) error {
		_, m, err := ofp.DecodeMessage(b)
		if err == nil {
			part(m)
		}
		return err
	})
}

// RequestBytes is RequestParts without decoding. part gets whole messages, which it must not keep. An error of part
// means that the answer cannot be read, and ends the connection.
func (c *Conn) RequestBytes(ctx context.Context, m ofp.Message, part func([]byte) error) error {
	return c.requestParts(ctx, m, part)
}

func (c *Conn) requestParts(ctx context.Context, m ofp.Message, part func([]byte) error) error {
	var mu sync.Mutex
	over := false
	_, err := c.request(ctx, m, &request{part: func(b []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return nil
		}
		return part(b)
	}})
	mu.Lock()
	defer mu.Unlock()
	over = true
	return err
}

func (c *Conn) request(ctx context.Context, m ofp.Message, req *request) ([]ofp.Message, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	xid := c.xids(1)
	if err := c.expect(xid, req); err != nil {
		c.release()
		return nil, err
	}
	defer c.forget(xid)
	if err := c.write(ctx, xid, []ofp.Message{m}); err != nil {
		return nil, err
	}
	return c.await(ctx, req)
}

// expect announces a request that is about to be sent.
func (c *Conn) expect(xid uint32, req *request) error {
	req.done = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.pending[xid] = req
	return nil
}

// forget ends what expect began.
func (c *Conn) forget(xid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, xid)
}

// await waits for the answers to a request that has been sent.
func (c *Conn) await(ctx context.Context, req *request) ([]ofp.Message, error) {
	select {
	case <-req.done:
		return req.answers, req.err
	case <-c.done:
		return nil, c.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Barrier returns when the switch has handled everything sent before.
func (c *Conn) Barrier(ctx context.Context) error {
	_, err := c.Request(ctx, ofp.BarrierRequest{})
	return err
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection has ended; nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection.
func (c *Conn) Close() { c.fail(net.ErrClosed) }

func (c *Conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first {
		c.raw.Close()
		close(c.done)
	}
}

func (c *Conn) read(r *bufio.Reader) {
	var buf []byte // of each message in turn: what is decoded keeps nothing of it
	for {
		b, err := readMessage(r, buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the switch closed the connection")
			}
			c.fail(err)
			return
		}
		buf = b
		c.lastRead.Store(int64(time.Since(c.began)))
		c.counts.received[b[typeAt]].Add(1)
		if err := c.dispatch(b); err != nil {
			// A message that cannot be read may be the answer that a caller waits for. A new connection is better than
			// half of the answers.
			c.fail(fmt.Errorf("read from the switch: xid %#x: %w", binary.BigEndian.Uint32(b[4:]), err))
			return
		}
	}
}

// dispatch hands a message to whom it is for.
func (c *Conn) dispatch(b []byte) error {
	if ofp.Type(b[typeAt]) == ofp.TypeMultipartReply && len(b) >= 16 {
		xid := binary.BigEndian.Uint32(b[4:])
		c.mu.Lock()
		req := c.pending[xid]
		c.mu.Unlock()
		if req != nil && req.part != nil {
			err := req.part(b) // it may take its time: others write meanwhile
			if more := b[11]&1 != 0; err == nil && !more {
				c.finish(xid, req)
			}
			return err
		}
	}
	xid, m, err := ofp.DecodeMessage(b)
	if err != nil {
		return err
	}
	c.take(xid, m)
	return nil
}

// finish ends a request whose last answer has come.
func (c *Conn) finish(xid uint32, req *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[xid] == req {
		delete(c.pending, xid)
		close(req.done)
	}
}

func (c *Conn) take(xid uint32, m ofp.Message) {
	if request, ok := m.(ofp.EchoRequest); ok {
		// Not here: a switch that waits for us to read must not wait for us to write.
		select {
		case c.echoes <- echo{xid, request}:
		default:
			c.fail(fmt.Errorf("the switch has sent %d echo requests and does not read the answers", echoesMax))
		}
		return
	}
	c.mu.Lock()
	if refusal, ok := m.(ofp.Error); ok &&
		slices.ContainsFunc(c.bundles, func(b *bundle) bool { return b.note(xid, refusal) }) {
		c.mu.Unlock()
		return
	}
	req, ok := c.pending[xid]
	if refusal, bad := m.(ofp.Error); !ok && bad &&
		slices.ContainsFunc(c.bundles, func(b *bundle) bool { return b.end(xid, refusal) }) {
		c.mu.Unlock()
		return
	}
	if !ok {
		c.mu.Unlock()
		if c.handler != nil {
			c.handler(xid, m)
		}
		return
	}
	defer c.mu.Unlock()
	if refusal, ok := m.(ofp.Error); ok {
		req.err = &SwitchError{refusal}
	} else {
		req.answers = append(req.answers, m)
		if part, ok := m.(ofp.Multipart); ok && part.HasMore() {
			return
		}
	}
	delete(c.pending, xid)
	close(req.done)
}

// answer answers echo requests in their order.
func (c *Conn) answer() {
	for {
		select {
		case <-c.done:
			return
		case e := <-c.echoes:
			if c.acquire(context.Background()) != nil {
				return
			}
			// a failure has ended the connection
			_ = c.write(context.Background(), e.xid, []ofp.Message{ofp.EchoReply(e.request)})
		}
	}
}

// keepAlive sends an echo to a silent switch, and gives up a switch that does not answer.
func (c *Conn) keepAlive() {
	ticker := time.NewTicker(idle)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
		}
		quiet := time.Since(c.began) - time.Duration(c.lastRead.Load())
		switch {
		case quiet > silence:
			c.fail(fmt.Errorf("the switch has been silent for %s", quiet.Round(time.Second)))
			return
		case quiet > idle:
			go func() { _ = c.Send(ofp.EchoRequest{}) }() // a failure has ended the connection
		}
	}
}

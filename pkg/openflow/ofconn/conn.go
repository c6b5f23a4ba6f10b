// Package ofconn is one OpenFlow 1.5 connection to a switch: handshake, transaction ids, requests with their answers,
// bundles, and a handler for unsolicited messages of the switch.
package ofconn

import (
	"bufio"
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

// Handler gets unsolicited messages of the switch. It runs in the goroutine that reads the connection, so it must not
// wait for the connection.
type Handler func(xid uint32, m ofp.Message)

// Conn is an established connection.
type Conn struct {
	raw      net.Conn
	handler  Handler
	counts   *Counters
	life     *life
	out      *writer
	requests *requests
	echoes   chan echo // to be answered

	xid      atomic.Uint32
	began    time.Time
	lastRead atomic.Int64 // nanoseconds since began: the wall clock may be set
}

// life is whether a connection has ended, and the reason.
type life struct {
	raw  net.Conn
	done chan struct{} // closed at the end

	mu  sync.Mutex
	err error
}

// fail ends the connection with a reason, if it has not ended yet.
func (l *life) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
	}
	l.mu.Unlock()
	if first {
		l.raw.Close()
		close(l.done)
	}
}

// ended returns the reason for the end; nil before it.
func (l *life) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// echo is the payload that the switch wants back.
type echo struct {
	xid     uint32
	request ofp.EchoRequest
}

// echoesMax is how many echo requests of the switch may wait for their answer. A switch sends one every few seconds. A
// switch with so many open requests does not read its answers.
const echoesMax = 64

// Counters count messages by OpenFlow type over the life of several connections. A message inside a bundle counts, and
// the bundle-add around it counts too.
type Counters struct {
	sent, received [256]atomic.Uint64
	flowMods       [ofp.FlowDeleteStrict + 1]atomic.Uint64
}

// These are the offsets of a message's type, of a flow-mod's command, and of the message in a bundle-add (OpenFlow 1.5
// sections 7.1.1, 7.3.4.2 and 7.3.9.6).
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
	life := &life{raw: raw, done: make(chan struct{})}
	c := &Conn{
		raw: raw, handler: handler, counts: counts, life: life, echoes: make(chan echo, echoesMax),
		out:      &writer{raw: raw, counts: counts, life: life, turn: make(chan struct{}, 1)},
		requests: &requests{life: life, pending: map[uint32]*request{}},
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

// Send sends messages without waiting for answers. Each gets a transaction id of its own. If the switch does not read,
// Send waits; SendContext has a limit for that.
func (c *Conn) Send(messages ...ofp.Message) error {
	return c.SendContext(context.Background(), messages...)
}

// SendContext is like Send, but returns when ctx ends. If the writing has begun by then, the messages are still sent,
// since half a message would end the connection.
func (c *Conn) SendContext(ctx context.Context, messages ...ofp.Message) error {
	if err := c.out.acquire(ctx); err != nil {
		return fmt.Errorf("write to the switch: %w", err)
	}
	return c.out.write(ctx, c.xids(len(messages)), messages)
}

// xids takes n transaction ids that count up from the one returned.
func (c *Conn) xids(n int) uint32 { return c.xid.Add(uint32(n)) - uint32(n) + 1 }

// Request sends a message and returns the answers: one message, or all parts of a multipart reply. If the switch
// refuses the request, the error is a *SwitchError.
func (c *Conn) Request(ctx context.Context, m ofp.Message) ([]ofp.Message, error) {
	return c.request(ctx, m, &request{})
}

// RequestParts is like Request, for answers that are too large to be kept. It calls part with each answer, in the
// goroutine that reads the connection, and never after it has returned.
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
	if err := c.out.acquire(ctx); err != nil {
		return nil, err
	}
	xid := c.xids(1)
	if err := c.requests.expect(xid, req); err != nil {
		c.out.release()
		return nil, err
	}
	defer c.requests.forget(xid)
	if err := c.out.write(ctx, xid, []ofp.Message{m}); err != nil {
		return nil, err
	}
	return c.await(ctx, req)
}

// await waits for the answers to a request that has been sent.
func (c *Conn) await(ctx context.Context, req *request) ([]ofp.Message, error) {
	select {
	case <-req.done:
		return req.answers, req.err
	case <-c.life.done:
		return nil, c.life.ended()
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
func (c *Conn) Done() <-chan struct{} { return c.life.done }

// Err says why the connection has ended; nil while it has not.
func (c *Conn) Err() error { return c.life.ended() }

// Close ends the connection.
func (c *Conn) Close() { c.life.fail(net.ErrClosed) }

func (c *Conn) read(r *bufio.Reader) {
	var buf []byte // of each message in turn: what is decoded keeps nothing of it
	for {
		b, err := readMessage(r, buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the switch closed the connection")
			}
			c.life.fail(err)
			return
		}
		buf = b
		c.lastRead.Store(int64(time.Since(c.began)))
		c.counts.received[b[typeAt]].Add(1)
		if err := c.dispatch(b); err != nil {
			// A message that cannot be decoded may be the answer that a caller waits for. A new connection is better than an
			// incomplete answer.
			c.life.fail(fmt.Errorf("read from the switch: xid %#x: %w", binary.BigEndian.Uint32(b[4:]), err))
			return
		}
	}
}

// dispatch hands a message to whom it is for.
func (c *Conn) dispatch(b []byte) error {
	if ofp.Type(b[typeAt]) == ofp.TypeMultipartReply && len(b) >= 16 {
		xid := binary.BigEndian.Uint32(b[4:])
		if req := c.requests.of(xid); req != nil && req.part != nil {
			err := req.part(b) // it may take its time: others write meanwhile
			if more := b[11]&1 != 0; err == nil && !more {
				c.requests.finish(xid, req)
			}
			return err
		}
	}
	xid, m, err := ofp.DecodeMessage(b)
	if err != nil {
		return err
	}
	if request, ok := m.(ofp.EchoRequest); ok {
		// Not here: a switch that waits for us to read must not wait for us to write.
		select {
		case c.echoes <- echo{xid, request}:
		default:
			c.life.fail(fmt.Errorf("the switch has sent %d echo requests and does not read the answers", echoesMax))
		}
		return nil
	}
	if !c.requests.take(xid, m) && c.handler != nil {
		c.handler(xid, m)
	}
	return nil
}

// answer answers echo requests in their order.
func (c *Conn) answer() {
	for {
		select {
		case <-c.life.done:
			return
		case e := <-c.echoes:
			if c.out.acquire(context.Background()) != nil {
				return
			}
			// a failure has ended the connection
			_ = c.out.write(context.Background(), e.xid, []ofp.Message{ofp.EchoReply(e.request)})
		}
	}
}

// keepAlive sends an echo to a silent switch, and gives up a switch that does not answer.
func (c *Conn) keepAlive() {
	ticker := time.NewTicker(idle)
	defer ticker.Stop()
	for {
		select {
		case <-c.life.done:
			return
		case <-ticker.C:
		}
		quiet := time.Since(c.began) - time.Duration(c.lastRead.Load())
		switch {
		case quiet > silence:
			c.life.fail(fmt.Errorf("the switch has been silent for %s", quiet.Round(time.Second)))
			return
		case quiet > idle:
			go func() { _ = c.Send(ofp.EchoRequest{}) }() // a failure has ended the connection
		}
	}
}

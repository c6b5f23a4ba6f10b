package wireguard

import (
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	wgdevice "golang.zx2c4.com/wireguard/device"
)

// crossingTime limits the device's time for one message of a handshake, on a busy Node.
const crossingTime = 500 * time.Millisecond

// crossing separates the messages of two handshakes that both ends of a path begin at the same time.
//
// Each end may have sent its initiation before it receives the other's. If both answer, both drop their own handshake
// and refuse the answer to it. Then there is no session, and both begin again at the same time, 5 s later. In addition,
// the library's workers each take one message. If one takes the peer's initiation while another takes the peer's
// response, the device may mix them up: both ends have a session then, with different keys, and nothing passes until
// they begin again, 15 s later. So
//
//   - of two initiations that cross, both ends use the one with the larger number and drop the other. They never drop
//     two in succession, since the peer may not get the packets of this end;
//   - a response waits until the initiation before it is answered: then the device refuses it, and there is one
//     session;
//   - an initiation after a response is dropped: the response has made a session.
//
// The number is the sender's random index of its handshake (WireGuard protocol, section 5.4.2, "sender"). It does not
// matter which end begins. Messages from senders that are not peers are not touched.
//
// The library watches routes only for its own binds. Here the source of packets is chosen again with each handshake.
type crossing struct {
	conn.Bind
	limit time.Duration // of the device's time for one message

	mu     sync.Mutex
	ways   map[string]*crossingWay // by the other end
	late   chan lateMessage
	closed chan struct{}
}

// crossingWay is a way on which this end has begun a handshake.
type crossingWay struct {
	begun     uint32        // the number of this end's initiation
	sent      time.Time     // when it was sent
	received  time.Time     // when an initiation came
	answered  chan struct{} // closed when it is answered
	responded time.Time     // when a response came
	dropped   bool          // an initiation was, for this end's, and no response has come since
}

type lateMessage struct {
	packet []byte
	from   conn.Endpoint
}

func newCrossing(b conn.Bind) *crossing { return &crossing{Bind: b, limit: crossingTime} }

// Open implements conn.Bind.
func (c *crossing) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, port, err := c.Bind.Open(port)
	if err != nil {
		return nil, port, err
	}
	late, closed := make(chan lateMessage), make(chan struct{})
	c.mu.Lock()
	c.ways, c.late, c.closed = map[string]*crossingWay{}, late, closed
	c.mu.Unlock()
	out := []conn.ReceiveFunc{func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		select {
		case <-closed:
			return 0, net.ErrClosed
		case m := <-late:
			sizes[0], eps[0] = copy(packets[0], m.packet), m.from
			return 1, nil
		}
	}}
	for _, fn := range fns {
		out = append(out, func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
			n, err := fn(packets, sizes, eps)
			for i := range n {
				if !c.pass(packets[i][:sizes[i]], eps[i]) {
					sizes[i] = 0
				}
			}
			return n, err
		})
	}
	return out, port, nil
}

// Close implements conn.Bind.
func (c *crossing) Close() error {
	c.mu.Lock()
	if c.closed != nil {
		close(c.closed)
		c.closed = nil
	}
	c.mu.Unlock()
	return c.Bind.Close()
}

// Send implements conn.Bind.
func (c *crossing) Send(packets [][]byte, to conn.Endpoint) error {
	for _, p := range packets {
		switch messageType(p) {
		case wgdevice.MessageInitiationType:
			to.ClearSrc()
			c.mu.Lock()
			w := c.ways[to.DstToString()]
			if w == nil && c.ways != nil {
				// A peer behind NAT may come from one port after the other.
				maps.DeleteFunc(c.ways,
					func(_ string, w *crossingWay) bool { return time.Since(w.sent) > wgdevice.RekeyAttemptTime })
				w = &crossingWay{}
				c.ways[to.DstToString()] = w
			}
			if w != nil {
				w.begun, w.sent = binary.LittleEndian.Uint32(p[4:]), time.Now()
			}
			c.mu.Unlock()
		case wgdevice.MessageResponseType:
			c.mu.Lock()
			if w := c.ways[to.DstToString()]; w != nil && w.answered != nil {
				close(w.answered)
				w.answered = nil
			}
			c.mu.Unlock()
		}
	}
	return c.Bind.Send(packets, to)
}

// pass reports whether the device may take a message now.
func (c *crossing) pass(p []byte, from conn.Endpoint) bool {
	kind := messageType(p)
	if kind == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.ways[from.DstToString()]
	if w == nil {
		return true
	}
	now := time.Now()
	if kind == wgdevice.MessageInitiationType {
		crosses := now.Sub(w.sent) < c.limit && w.sent.After(w.responded)
		switch {
		case now.Sub(w.responded) < c.limit:
			return false
		case crosses && !w.dropped && binary.LittleEndian.Uint32(p[4:]) < w.begun:
			w.dropped = true
			return false
		}
		w.received, w.dropped = now, false
		if w.answered == nil {
			w.answered = make(chan struct{})
		}
		return true
	}
	if binary.LittleEndian.Uint32(p[8:]) != w.begun {
		return true // an answer to nothing
	}
	w.responded, w.dropped = now, false
	wait := c.limit - now.Sub(w.received)
	if w.answered == nil || wait <= 0 {
		return true
	}
	m, answered, late, closed := lateMessage{slices.Clone(p), from}, w.answered, c.late, c.closed
	go func() {
		select {
		case <-answered:
		case <-time.After(wait):
		case <-closed:
			return
		}
		select {
		case late <- m:
		case <-closed:
		}
	}()
	return false
}

// messageType returns the type of a handshake's message, or 0 for other messages (WireGuard protocol, section 5.4).
func messageType(p []byte) uint32 {
	if len(p) != wgdevice.MessageInitiationSize && len(p) != wgdevice.MessageResponseSize {
		return 0
	}
	switch kind := binary.LittleEndian.Uint32(p); {
	case kind == wgdevice.MessageInitiationType && len(p) == wgdevice.MessageInitiationSize,
		kind == wgdevice.MessageResponseType && len(p) == wgdevice.MessageResponseSize:
		return kind
	}
	return 0
}

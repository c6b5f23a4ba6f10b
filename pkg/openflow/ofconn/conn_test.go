package ofconn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// peer is the switch's end of a connection, played by a test.
type peer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (p *peer) send(xid uint32, m ofp.Message) {
	b, err := ofp.AppendMessage(nil, xid, m)
	if err != nil {
		p.t.Error(err)
	}
	_, _ = p.Write(b)
}

// receive returns the next message, or nil when the connection has ended.
func (p *peer) receive() (uint32, ofp.Message) {
	b, err := readMessage(p.r, nil)
	if err != nil {
		return 0, nil
	}
	xid, m, err := ofp.DecodeMessage(b)
	if err != nil {
		p.t.Error(err)
	}
	return xid, m
}

// play connects to a script that speaks for the switch after the hellos.
func play(t *testing.T, script func(*peer)) *Conn {
	t.Helper()
	c, err := Connect(t.Context(), func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		p := &peer{t, far, bufio.NewReader(far)}
		go func() {
			defer far.Close()
			if _, m := p.receive(); m == nil || m.Type() != ofp.TypeHello {
				t.Errorf("the first message is %v", m)
			}
			p.send(1, ofp.Hello{Versions: []uint8{1, 4, 6}})
			script(p)
		}()
		return near, nil
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// absorb reads until the connection ends.
func (p *peer) absorb() {
	for {
		if _, m := p.receive(); m == nil {
			return
		}
	}
}

func TestEchoIsAnswered(t *testing.T) {
	t.Parallel()
	answer := make(chan error, 1)
	play(t, func(p *peer) {
		p.send(77, ofp.EchoRequest{Data: []byte("are you there")})
		xid, m := p.receive()
		if e, ok := m.(ofp.EchoReply); !ok || xid != 77 || !bytes.Equal(e.Data, []byte("are you there")) {
			answer <- errors.New("wrong answer")
		}
		answer <- nil
	})
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

func TestSilentSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var echoes atomic.Int64
		c := play(t, func(p *peer) {
			for {
				xid, m := p.receive()
				if m == nil {
					return
				}
				if m.Type() != ofp.TypeEchoRequest {
					continue
				}
				echoes.Add(1)
				if time.Since(start) < time.Minute {
					p.send(xid, ofp.EchoReply{})
				}
			}
		})
		<-c.Done()
		if d := time.Since(start); d < time.Minute+10*time.Second || d > time.Minute+30*time.Second {
			t.Errorf("given up after %s", d)
		}
		if !strings.Contains(c.Err().Error(), "silent") || echoes.Load() < 5 {
			t.Errorf("%v after %d echoes", c.Err(), echoes.Load())
		}
	})
}

func TestRequestCancelled(t *testing.T) {
	t.Parallel()
	c := play(t, (*peer).absorb)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	c.requests.mu.Lock()
	defer c.requests.mu.Unlock()
	if len(c.requests.pending) != 0 {
		t.Errorf("%d requests still wait", len(c.requests.pending))
	}
}

func TestMultipartReply(t *testing.T) {
	t.Parallel()
	c := play(t, func(p *peer) {
		xid, _ := p.receive()
		p.send(xid, ofp.GroupDescReply{More: true, Groups: []ofp.GroupDesc{{ID: 1}}})
		p.send(xid+1000, ofp.GroupDescReply{Groups: []ofp.GroupDesc{{ID: 9}}}) // not for us
		p.send(xid, ofp.GroupDescReply{More: true})
		p.send(xid, ofp.GroupDescReply{Groups: []ofp.GroupDesc{{ID: 2}}})
		p.absorb()
	})
	answers, err := c.Request(t.Context(), ofp.GroupDescRequest{})
	var ids []uint32
	for _, a := range answers {
		for _, g := range a.(ofp.GroupDescReply).Groups {
			ids = append(ids, g.ID)
		}
	}
	if err != nil || len(answers) != 3 || len(ids) != 2 || ids[0] != 1 || ids[1] != 2 {
		t.Errorf("%v, %v", answers, err)
	}
}

// TestNonsense has switches that violate the protocol. Each waiting caller gets an error in words.
func TestNonsense(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		bytes      []byte
	}{
		{"a message shorter than its header", "says it has 3 bytes", []byte{6, 10, 0, 3, 0, 0, 0, 1}},
		{"the connection ends in a message", "unexpected EOF", []byte{6, 10, 0, 200, 0, 0, 0, 1, 9}},
		{"the connection ends", "closed the connection", nil},
		{"a reply that cannot be read", "xid 0x2", []byte{6, 19, 0, 12, 0, 0, 0, 2, 0, 7, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := play(t, func(p *peer) {
				p.receive()
				_, _ = p.Write(test.bytes)
			})
			if err := c.Barrier(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestHandshakeRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		first      ofp.Message
	}{
		{"an error", "OFPHFC_INCOMPATIBLE", ofp.Error{ErrType: 0, Code: 0}},
		{"something else", "begins with", ofp.BarrierReply{}},
		{"another version", "versions [1 4]", ofp.Hello{Versions: []uint8{1, 4}}},
	} {
		_, err := Connect(t.Context(), func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			p := &peer{t, far, bufio.NewReader(far)}
			go func() { p.receive(); p.send(1, test.first) }()
			return near, nil
		}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

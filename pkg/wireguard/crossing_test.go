package wireguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	wgdevice "golang.zx2c4.com/wireguard/device"
)

// wire is a bind on which a test receives and sends.
type wire struct {
	conn.Bind
	in chan lateMessage
}

func (w *wire) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	return []conn.ReceiveFunc{func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		m, ok := <-w.in
		if !ok {
			return 0, net.ErrClosed
		}
		sizes[0], eps[0] = copy(packets[0], m.packet), m.from
		return 1, nil
	}}, 51821, nil
}
func (w *wire) Close() error                       { close(w.in); return nil }
func (w *wire) Send([][]byte, conn.Endpoint) error { return nil }

func handshakeMessage(kind uint32, number uint32) []byte {
	size, at := wgdevice.MessageInitiationSize, 4
	if kind == wgdevice.MessageResponseType {
		size, at = wgdevice.MessageResponseSize, 8 // of what it answers
	}
	p := make([]byte, size)
	binary.LittleEndian.PutUint32(p, kind)
	binary.LittleEndian.PutUint32(p[at:], number)
	return p
}

// TestCrossingForgets: an end that nothing was begun with for a while is not kept.
func TestCrossingForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossing(&wire{in: make(chan lateMessage)})
		if _, _, err := c.Open(0); err != nil {
			t.Fatal(err)
		}
		for port := range 10 {
			end, err := conn.NewStdNetBind().ParseEndpoint(fmt.Sprintf("192.0.2.1:%d", 40000+port))
			if err == nil {
				err = c.Send([][]byte{handshakeMessage(wgdevice.MessageInitiationType, uint32(port))}, end)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := len(c.ways); n != 2 {
			t.Errorf("%d ends are known, want the last two", n)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCrossing: the device gets one message of crossing handshakes with a peer at a time, and messages of other peers
// do not wait.
func TestCrossing(t *testing.T) {
	const initiation, response = wgdevice.MessageInitiationType, wgdevice.MessageResponseType
	for _, test := range []struct {
		name string
		run  func(send, receive func(kind, number uint32, end string), sleep func(time.Duration))
		want string // what the device has received, and after how many ms
	}{
		{"alone", func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
			send(initiation, 7, "a")
			receive(response, 7, "a")
		}, "[response 7 at 0]"},
		{"crossing", func(send, receive func(uint32, uint32, string), sleep func(time.Duration)) {
			send(initiation, 7, "a")
			receive(initiation, 9, "a")
			receive(response, 7, "a")
			sleep(30 * time.Millisecond)
			send(response, 9, "a")
		}, "[initiation 9 at 0 response 7 at 30]"},
		{"crossing, and this end's number is the larger one",
			func(send, receive func(uint32, uint32, string), sleep func(time.Duration)) {
				send(initiation, 7, "a")
				receive(initiation, 5, "a")
				sleep(30 * time.Millisecond)
				receive(response, 7, "a")
			}, "[response 7 at 30]"},
		{"crossing, and the peer gets nothing", func(send, receive func(uint32, uint32, string), sleep func(time.Duration)) {
			send(initiation, 7, "a")
			receive(initiation, 5, "a")
			sleep(5 * time.Second)
			send(initiation, 8, "a")
			receive(initiation, 6, "a")
		}, "[initiation 6 at 5000]"},
		{"the peer begins later", func(send, receive func(uint32, uint32, string), sleep func(time.Duration)) {
			send(initiation, 7, "a")
			sleep(time.Second)
			receive(initiation, 5, "a")
		}, "[initiation 5 at 1000]"},
		{"crossing, and the initiation is not one", func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
			send(initiation, 7, "a")
			receive(initiation, 9, "a")
			receive(response, 7, "a")
		}, "[initiation 9 at 0 response 7 at 500]"},
		{"the initiation is answered before the response comes",
			func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
				send(initiation, 7, "a")
				receive(initiation, 9, "a")
				send(response, 9, "a")
				receive(response, 7, "a")
			}, "[initiation 9 at 0 response 7 at 0]"},
		{"the response first", func(send, receive func(uint32, uint32, string), sleep func(time.Duration)) {
			send(initiation, 7, "a")
			receive(response, 7, "a")
			receive(initiation, 9, "a")
			sleep(time.Second)
			receive(initiation, 10, "a")
		}, "[response 7 at 0 initiation 10 at 1000]"},
		{"a response to nothing", func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
			send(initiation, 7, "a")
			receive(initiation, 9, "a")
			receive(response, 8, "a")
		}, "[initiation 9 at 0 response 8 at 0]"},
		{"another's", func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
			send(initiation, 7, "a")
			receive(initiation, 9, "b")
			receive(response, 7, "a")
		}, "[initiation 9 at 0 response 7 at 0]"},
		{"this end begins nothing", func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
			receive(initiation, 9, "a")
			receive(initiation, 10, "a")
		}, "[initiation 9 at 0 initiation 10 at 0]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{in: make(chan lateMessage)}
				c := newCrossing(w)
				fns, _, err := c.Open(0)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				got := make(chan string, 100)
				ends := map[string]conn.Endpoint{}
				for i, name := range []string{"a", "b"} {
					if ends[name], err = conn.NewStdNetBind().ParseEndpoint(fmt.Sprintf("192.0.2.%d:51821", i+1)); err != nil {
						t.Fatal(err)
					}
				}
				for _, fn := range fns {
					go func() {
						packets, sizes, eps := [][]byte{make([]byte, 2000)}, make([]int, 1), make([]conn.Endpoint, 1)
						for {
							if _, err := fn(packets, sizes, eps); errors.Is(err, net.ErrClosed) {
								return
							}
							name, at := "initiation", 4
							if sizes[0] == wgdevice.MessageResponseSize {
								name, at = "response", 8
							}
							if sizes[0] > 0 {
								got <- fmt.Sprintf("%s %d at %d", name, binary.LittleEndian.Uint32(packets[0][at:]),
									time.Since(begun).Milliseconds())
							}
						}
					}()
				}
				test.run(func(kind, number uint32, end string) {
					if err := c.Send([][]byte{handshakeMessage(kind, number)}, ends[end]); err != nil {
						t.Fatal(err)
					}
				}, func(kind, number uint32, end string) {
					w.in <- lateMessage{handshakeMessage(kind, number), ends[end]}
					synctest.Wait()
				}, time.Sleep)
				time.Sleep(time.Minute)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				close(got)
				var all []string
				for text := range got {
					all = append(all, text)
				}
				if have := fmt.Sprint(all); have != test.want {
					t.Errorf("the device has received %s, want %s", have, test.want)
				}
			})
		})
	}
}

// pair is a bind whose packets come to another one's device after a while.
type pair struct {
	conn.Bind
	in    chan lateMessage
	other *pair
	end   conn.Endpoint // this one's, for the other
	delay func() time.Duration
}

func (p *pair) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	return (&wire{in: p.in}).Open(port)
}
func (p *pair) Close() error { close(p.in); return nil }
func (p *pair) Send(packets [][]byte, _ conn.Endpoint) error {
	for _, b := range packets {
		m, after := lateMessage{slices.Clone(b), p.end}, p.delay()
		go func() {
			time.Sleep(after)
			p.other.in <- m
		}()
	}
	return nil
}

// handshakes models a device's reaction to messages of handshakes (WireGuard protocol, section 5.4). It answers an
// initiation, and then forgets its own. An answer to its own initiation makes a session.
type handshakes struct {
	one      chan bool // at a time; of the bubble, which a Mutex is not
	takes    func() time.Duration
	send     func(kind, number uint32)
	begun    uint32
	sessions []uint32
}

func (h *handshakes) begin(number uint32) {
	h.one <- true
	defer func() { <-h.one }()
	h.begun = number
	h.send(wgdevice.MessageInitiationType, number)
}

// have returns the numbers of the sessions that there have been.
func (h *handshakes) have() []uint32 {
	h.one <- true
	defer func() { <-h.one }()
	return slices.Clone(h.sessions)
}

func (h *handshakes) take(packet []byte) {
	h.one <- true
	defer func() { <-h.one }()
	time.Sleep(h.takes())
	switch messageType(packet) {
	case wgdevice.MessageInitiationType:
		number := binary.LittleEndian.Uint32(packet[4:])
		h.begun, h.sessions = 0, append(h.sessions, number)
		h.send(wgdevice.MessageResponseType, number)
	case wgdevice.MessageResponseType:
		if number := binary.LittleEndian.Uint32(packet[8:]); number == h.begun {
			h.begun, h.sessions = 0, append(h.sessions, number)
		}
	}
}

// TestCrossingEnds: whenever both ends begin, and however long messages take, both have the same last session.
func TestCrossingEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 21))
	for round := range 200 {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			upTo := func(most time.Duration) func() time.Duration {
				return func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(random.Int64N(int64(most)))
				}
			}
			way := []time.Duration{time.Millisecond, 100 * time.Millisecond}[round%2]
			var binds [2]*pair
			var ends [2]handshakes
			var all [2]*crossing
			for i := range binds {
				end, err := conn.NewStdNetBind().ParseEndpoint(fmt.Sprintf("192.0.2.%d:51821", i+1))
				if err != nil {
					t.Fatal(err)
				}
				binds[i] = &pair{in: make(chan lateMessage), end: end, delay: upTo(way)}
				all[i] = newCrossing(binds[i])
				ends[i].one = make(chan bool, 1)
				ends[i].takes = upTo(5 * time.Millisecond)
			}
			for i := range binds {
				binds[i].other = binds[1-i]
				ends[i].send = func(kind, number uint32) {
					if err := all[i].Send([][]byte{handshakeMessage(kind, number)}, binds[1-i].end); err != nil {
						t.Error(err)
					}
				}
				fns, _, err := all[i].Open(0)
				if err != nil {
					t.Fatal(err)
				}
				for _, fn := range fns {
					go func() {
						packets, sizes, eps := [][]byte{make([]byte, 2000)}, make([]int, 1), make([]conn.Endpoint, 1)
						for {
							if _, err := fn(packets, sizes, eps); errors.Is(err, net.ErrClosed) {
								return
							}
							if sizes[0] > 0 {
								ends[i].take(slices.Clone(packets[0][:sizes[0]]))
							}
						}
					}()
				}
			}
			apart, first, second := upTo(2*way)(), 1+random.Uint32N(1000), 1001-random.Uint32N(1000)
			if first == second {
				second = 2000
			}
			go ends[0].begin(first)
			time.Sleep(apart)
			if len(ends[1].have()) == 0 { // else there is no need to begin
				ends[1].begin(second)
			}
			time.Sleep(4 * time.Second)
			one, other := ends[0].have(), ends[1].have()
			if len(one) == 0 || len(other) == 0 || one[len(one)-1] != other[len(other)-1] {
				t.Errorf("round %d: begun %v apart, by a way of up to %v: sessions %v and %v", round, apart, way, one, other)
			}
			for _, c := range all {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

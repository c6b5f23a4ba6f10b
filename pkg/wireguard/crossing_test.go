package wireguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
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

// TestCrossing: the device has one message of crossing handshakes with a peer at a time, and nobody else's waits.
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
		{"crossing, and this end's number is the larger one", func(send, receive func(uint32, uint32, string), sleep func(time.Duration)) {
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
		{"the initiation is answered before the response comes", func(send, receive func(uint32, uint32, string), _ func(time.Duration)) {
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
								got <- fmt.Sprintf("%s %d at %d", name, binary.LittleEndian.Uint32(packets[0][at:]), time.Since(begun).Milliseconds())
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

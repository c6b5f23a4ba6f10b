package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestProbe asks a server on this machine.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, address, "from-east") }()
	a := Ask(ctx, Question{Name: "service", Address: address, Want: "from-east", MTU: true}, 10*time.Second)
	if a.Error != "" || a.BulkError != "" || a.Answered != requests || a.Failed != 0 ||
		!strings.HasPrefix(a.Client, "127.0.0.1:") {
		t.Errorf("have %+v", a)
	}
	if a.LinkMTU < 65535 || a.Largest != 65535 {
		t.Errorf("largest packet %d of %d, want 65535 on the loopback link", a.Largest, a.LinkMTU)
	}
	if a := Ask(ctx, Question{Name: "service", Address: address, Want: "from-west"}, 0); !strings.Contains(a.Error,
		`"from-east" answers at `+address+`, want from-west`) {
		t.Errorf("another server: %+v", a)
	}
	if a := Ask(ctx, Question{Name: "policy", Address: address, Want: "from-east", Refused: true},
		0); !strings.Contains(a.Error, "from-east answers to 127.0.0.1") {
		t.Errorf("a server that should not answer: %+v", a)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if a := Ask(t.Context(), Question{Name: "policy", Address: address, Want: "from-east", Refused: true},
		0); a.Error != "" {
		t.Errorf("a server that is gone: %+v", a)
	}
	if a := Ask(t.Context(), Question{Name: "service", Address: address, Want: "from-east"}, 0); !strings.Contains(a.Error,
		"refused") || a.Answered != 0 {
		t.Errorf("a server that is gone: %+v", a)
	}
}

// TestDropped has a server that answers nothing, as behind a policy that drops: the time that it takes to notice is not
// the policy's.
func TestDropped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := Ask(t.Context(), Question{Name: "policy", Address: l.Addr().String(), Want: "from-east", Refused: true},
		10*time.Second)
	if a.Error != "" || a.First >= tryLimit {
		t.Errorf("have %+v, want a first request at once that is dropped", a)
	}
}

// TestWatch counts the lost connections to a server that closes 25 connections in a row, and the time of the loss. The
// number of connections decides, so the result does not depend on the machine's speed.
func TestWatch(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "from-east %s\n", r.RemoteAddr)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(&lossy{Listener: l, from: 50, to: 75}) }()
	a := Ask(t.Context(), Question{Name: "failover", Address: l.Addr().String(), Want: "from-east",
		Watch: 3 * time.Second}, time.Minute)
	if a.Answered+a.Failed != 150 || a.Failed < 25 || a.Answered < 50 || a.Away < 500*time.Millisecond ||
		a.Away > 2*time.Second {
		t.Errorf("have %+v, want a loss of half a second", a)
	}
	if err := errors.Join(s.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// lossy closes the connections after number from, up to number to.
type lossy struct {
	net.Listener
	accepted, from, to int
}

func (l *lossy) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if l.accepted++; err != nil || l.accepted <= l.from || l.accepted > l.to {
			return c, err
		}
		_ = c.Close()
	}
}

// TestLargest finds the size that a server takes, as a path with a smaller MTU would.
func TestLargest(t *testing.T) {
	for _, host := range []struct {
		address string
		headers int
	}{{"127.0.0.1:0", 20 + 8}, {"[::1]:0", 40 + 8}} {
		for limit, mtu := range map[int]int{1450: 1460, 1000: 1000, smallest: smallest + 9, smallest - 1: smallest + 9} {
			t.Run(fmt.Sprint(host.address, " ", limit), func(t *testing.T) {
				t.Parallel()
				c, err := net.ListenPacket("udp", host.address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				go func() {
					b := make([]byte, 1<<16)
					for {
						n, from, err := c.ReadFrom(b)
						if err != nil {
							return
						}
						if n+host.headers <= limit {
							_, _ = c.WriteTo(b[:n], from)
						}
					}
				}()
				want := limit
				if limit < smallest {
					want = 0
				}
				if n := largest(t.Context(), c.LocalAddr().String(), mtu); n != want {
					t.Errorf("largest is %d, want %d", n, want)
				}
			})
		}
	}
}

// TestServer asks a server without UDP, whose streams have a limit.
func TestServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Server{Address: address, Name: "far", Rate: 8_000_000, NoUDP: true}.Serve(ctx) }()
	if a := Ask(ctx, Question{Address: address, Want: "far"}, 10*time.Second); a.Answered != requests {
		t.Errorf("%+v", a)
	}
	if passes(ctx, address, smallest) {
		t.Error("it answers over UDP")
	}
	r, err := load.Load{Lasts: time.Second, Timeout: time.Second, Parallel: 2}.Run(ctx,
		"http://"+address+load.StreamPath+"?bytes=1000000000")
	if err != nil || r.Bytes < 10_000 || float64(r.Bytes) > 100_000+1e6*r.Seconds {
		t.Errorf("%+v, %v", r, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

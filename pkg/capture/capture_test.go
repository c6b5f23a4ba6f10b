package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/tombolo-net/tombolo/pkg/capture/capturetest"
)

const node, pod = "node0", "pod0" // ends of a wire

// run is a capture that runs.
type run struct {
	captured chan int
	stop     context.CancelFunc
	done     chan error
	stream   *locked
}

// locked is a buffer that is read while it is written.
type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *locked) copy() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.Bytes())
}

// start begins a capture at the Node's end, and returns when it receives.
func start(t *testing.T, w capturetest.Wire, o Options) *run {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	r := &run{captured: make(chan int, 10000), stop: stop, done: make(chan error, 1), stream: &locked{}}
	t.Cleanup(stop)
	started := make(chan struct{})
	o.Interface, o.Started, o.Captured = node, func() { close(started) }, func(n int) { r.captured <- n }
	if o.To == nil {
		o.To = r.stream
	}
	go func() {
		r.done <- w.Do(func() error {
			_, err := Run(ctx, o)
			return err
		})
	}()
	select {
	case <-started:
	case err := <-r.done:
		t.Fatal(err)
	}
	return r
}

// await waits until so many packets are captured.
func (r *run) await(t *testing.T, n int) {
	t.Helper()
	for have := 0; have < n; {
		select {
		case have = <-r.captured:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d packets are captured, want %d", have, n)
		}
	}
}

// captures reads a stream: the lengths of its packets, and the times.
func captures(t *testing.T, stream []byte) (packets [][]byte, lengths []int) {
	t.Helper()
	reader, err := pcapgo.NewNgReader(bytes.NewReader(stream), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, err := reader.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return packets, lengths
		}
		if err != nil {
			t.Fatalf("packet %d: %v", len(packets), err)
		}
		if since := time.Since(info.Timestamp); since < 0 || since > time.Minute {
			t.Errorf("packet %d was captured %s ago", len(packets), since)
		}
		packets, lengths = append(packets, data), append(lengths, info.Length)
	}
}

// Addresses of the Pod, of another, and of a third.
var ip1, ip2, ip3 = netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("10.10.0.3"), netip.MustParseAddr("10.10.0.4")

func tcpPacket(from, to netip.Addr, fromPort, toPort uint16, flags uint8) packet {
	return packet{from: from, to: to, protocol: layers.IPProtocolTCP, fromPort: fromPort, toPort: toPort, flags: flags}
}

// TestCapture sends packets in both directions over a veth pair: the matching packets are captured, and no others.
func TestCapture(t *testing.T) {
	const syn, ack = 2, 16
	request, answer := tcpPacket(ip1, ip2, 40000, 80, syn), tcpPacket(ip2, ip1, 80, 40000, syn|ack)
	otherPort, otherPod := tcpPacket(ip1, ip2, 40000, 81, syn), tcpPacket(ip1, ip3, 40000, 80, syn)
	dns := packet{from: ip1, to: ip2, protocol: layers.IPProtocolUDP, fromPort: 40000, toPort: 80}
	web := Filter{Source: ip1, Destination: ip2, Protocol: tcp, DestinationPort: 80}
	for _, row := range []struct {
		name   string
		filter Filter
		want   []packet
	}{
		{"requests", with(web, true, false), []packet{request}},
		{"answers", with(web, false, true), []packet{answer}},
		{"both", with(web, true, true), []packet{request, answer}},
		{"all of the Pod", with(Filter{Source: ip1, Protocol: -1}, true, false), []packet{request, otherPort, otherPod, dns}},
		{"UDP", with(Filter{Source: ip1, Protocol: udp}, true, true), []packet{dns}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := capturetest.New(t, node)
			r := start(t, w, Options{Filter: row.filter})
			for _, p := range []packet{otherPort, otherPod, dns, request} {
				w.Send(t, pod, p.frame(t))
			}
			w.Send(t, node, answer.frame(t))
			r.await(t, len(row.want))
			r.stop()
			if err := <-r.done; !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
			have, _ := captures(t, r.stream.Bytes())
			if len(have) != len(row.want) {
				t.Fatalf("%d packets, want %d", len(have), len(row.want))
			}
			for _, p := range row.want {
				found := false
				for _, h := range have {
					found = found || bytes.Equal(h, p.frame(t))
				}
				if !found {
					t.Errorf("%+v is not captured", p)
				}
			}
		})
	}
}

func with(f Filter, forward, backward bool) Filter {
	f.Forward, f.Backward = forward, backward
	return f
}

// TestCaptureEnds ends captures: after a number of packets, for lack of room, when a writer fails, when the interface
// is deleted, and not while it is only down.
func TestCaptureEnds(t *testing.T) {
	w := capturetest.New(t, node)
	p := tcpPacket(ip1, ip2, 40000, 80, 2)
	all := with(Filter{Source: ip1, Protocol: -1}, true, false)
	t.Run("number", func(t *testing.T) {
		r := start(t, w, Options{Filter: all, Most: 3})
		for range 10 {
			w.Send(t, pod, p.frame(t))
		}
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		if have, _ := captures(t, r.stream.Bytes()); len(have) != 3 {
			t.Errorf("%d packets", len(have))
		}
	})
	t.Run("room", func(t *testing.T) {
		large := p
		large.length = 1400
		room, took := 5*blockSize(len(large.frame(t)))+3, 0
		r := start(t, w, Options{Filter: all, Most: 1 << 30, Room: func(n int) bool {
			if took+n > room {
				return false
			}
			took += n
			return true
		}})
		head := len(r.stream.copy())
		for range 10 {
			w.Send(t, pod, large.frame(t))
		}
		if err := <-r.done; !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		if have, _ := captures(t, r.stream.Bytes()); len(have) != 5 || r.stream.Len()-head != took {
			t.Errorf("%d packets, %d bytes, want %d", len(have), r.stream.Len()-head, took)
		}
	})
	t.Run("writer", func(t *testing.T) {
		full := errors.New("no space left on device")
		to := &failing{left: 4096, err: full}
		r := start(t, w, Options{Filter: all, To: to, Live: true})
		for range 100 {
			w.Send(t, pod, p.frame(t))
		}
		if err := <-r.done; !errors.Is(err, full) {
			t.Fatal(err)
		}
	})
	t.Run("interface", func(t *testing.T) {
		r := start(t, w, Options{Filter: all})
		w.Send(t, pod, p.frame(t))
		r.await(t, 1)
		w.IP(t, "link set "+node+" down", "link set "+node+" up")
		// A link that has come up again sends nothing for a moment.
		for until := time.Now().Add(20 * time.Second); len(r.captured) == 0; time.Sleep(10 * time.Millisecond) {
			w.Send(t, pod, p.frame(t))
			if time.Now().After(until) {
				t.Fatal("a link that was down ends the capture")
			}
		}
		w.IP(t, "link del "+pod)
		if err := <-r.done; err == nil || !strings.Contains(err.Error(), "interface "+node+" is gone") {
			t.Errorf("it ends with %v", err)
		}
		if have, _ := captures(t, r.stream.Bytes()); len(have) < 2 {
			t.Errorf("%d packets", len(have))
		}
	})
	t.Run("no interface", func(t *testing.T) {
		err := w.Do(func() error {
			_, err := Run(t.Context(), Options{Interface: "none0", Filter: all, To: io.Discard})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "find interface none0") {
			t.Errorf("it ends with %v", err)
		}
	})
}

// failing is a writer that takes some bytes.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, f.err
	}
	f.left -= len(p)
	return len(p), nil
}

// TestCaptureLive reads a stream while packets come. Each is there before the next one.
func TestCaptureLive(t *testing.T) {
	w := capturetest.New(t, node)
	r := start(t, w, Options{Filter: with(Filter{Source: ip1, Protocol: -1}, true, true), Live: true})
	for n := 1; n <= 5; n++ {
		w.Send(t, pod, tcpPacket(ip1, ip2, 40000, 80, 2).frame(t))
		r.await(t, n)
		if have, _ := captures(t, r.stream.copy()); len(have) != n {
			t.Errorf("after %d packets the stream has %d", n, len(have))
		}
	}
}

// TestCaptureSizes sends the smallest and the largest packets of a veth pair with a large MTU.
func TestCaptureSizes(t *testing.T) {
	w := capturetest.New(t, node)
	w.IP(t, "link set "+node+" mtu 65535", "link set "+pod+" mtu 65535")
	r := start(t, w, Options{Filter: with(Filter{Source: ip1, Protocol: -1}, true, true), Most: 3})
	want := []int{}
	for _, n := range []int{0, 1, 65400} {
		p := tcpPacket(ip1, ip2, 40000, 80, 2)
		p.length = n
		frame := p.frame(t)
		want = append(want, len(frame))
		w.Send(t, pod, frame)
	}
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	have, lengths := captures(t, r.stream.Bytes())
	for i, n := range want {
		if len(have[i]) != n || lengths[i] != n {
			t.Errorf("packet %d: %d of %d bytes, want %d", i, len(have[i]), lengths[i], n)
		}
	}
}

// TestCapturesAtOnce runs captures with different filters at one interface. Each has its own packets.
func TestCapturesAtOnce(t *testing.T) {
	w := capturetest.New(t, node)
	var runs []*run
	for i := range 16 {
		runs = append(runs, start(t, w, Options{Most: 50,
			Filter: with(Filter{Source: ip1, Protocol: tcp, DestinationPort: uint16(1000 + i)}, true, false)}))
	}
	for range 50 {
		for i := range runs {
			w.Send(t, pod, tcpPacket(ip1, ip2, 40000, uint16(1000+i), 2).frame(t))
		}
	}
	for i, r := range runs {
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		have, _ := captures(t, r.stream.Bytes())
		for _, p := range have {
			if port := int(p[36])<<8 | int(p[37]); port != 1000+i {
				t.Errorf("capture %d has a packet to port %d", i, port)
			}
		}
		if len(have) != 50 {
			t.Errorf("capture %d has %d packets", i, len(have))
		}
	}
}

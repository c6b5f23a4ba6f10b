package datapath

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/probe"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// gatewayPair is a Gateway of east and one of west, with a real datapath each, and the way between them.
type gatewayPair struct {
	underlay namespace
	nodes    []*realNode
	ends     []netip.Addr
}

const probedPort = ofp.Port(40000)

// newGatewayPair makes the two Gateways. The way's ports come with tunnelType.
func newGatewayPair(t testing.TB, six bool) gatewayPair {
	t.Helper()
	p := gatewayPair{underlay: newNamespace(t)}
	p.underlay.ip(t, "link add hub type bridge", "link set hub up")
	a := activeClusters{gateways: map[string][]int{"east": {1}, "west": {1}}}
	for _, cluster := range []string{"east", "west"} {
		s := a.state(t, cluster, 1)
		if six {
			s = over6(s)
		}
		s.Ways = map[netip.Addr]ofp.Port{s.Peering.Peers[0].Gateways[0].End(): probedPort}
		p.ends = append(p.ends, s.Node.Tunnels.Ends[0])
		p.nodes = append(p.nodes, newNode(t, p.underlay, s, cluster+"1", p.ends[len(p.ends)-1],
			activeServices(cluster).String()))
	}
	return p
}

// tunnel changes the type of the tunnels, and waits until BFD is up.
func (p gatewayPair) tunnel(t testing.TB, tunnelType string) {
	t.Helper()
	for i, n := range p.nodes {
		n.ovs.vsctl(t, "--if-exists", "del-port", "br-int", "way0")
		n.ovs.vsctl(t, "set", "interface", "tun0", "type="+tunnelType)
		n.addWay(t, "way0", tunnelType, p.ends[i], p.ends[1-i], probedPort)
	}
	for _, n := range p.nodes {
		eventually(t, "the way is up", func() error {
			if state := n.ovs.vsctl(t, "get", "interface", "way0", "bfd_status:state"); strings.TrimSpace(state) != "up" {
				return fmt.Errorf("its state is %s", state)
			}
			return nil
		})
	}
}

// prober sends probes through a Node's switch as the agent does.
type prober struct {
	conn   *ofconn.Conn
	echoes chan Probe
}

func (n *realNode) prober(t testing.TB, took func(ofp.PacketIn2)) *ofconn.Conn {
	t.Helper()
	c, err := ofconn.Connect(t.Context(), ofconn.UnixDialer(n.ovs.dir+"/br-int.mgmt"), nil, func(_ uint32, m ofp.Message) {
		if in, ok := m.(ofp.PacketIn2); ok {
			took(in)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Send(ofp.SetPacketInFormat{Format: ofp.PacketInNXM2}, ofp.SetConfig{MissSendLen: 0xffff})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newProber(t testing.TB, n *realNode) prober {
	t.Helper()
	p := prober{echoes: make(chan Probe, 1000)}
	p.conn = n.prober(t, func(in ofp.PacketIn2) {
		if KindOf(in) != WayEcho {
			return
		}
		if echo, err := EchoOf(in); err != nil {
			t.Error(err)
		} else {
			p.echoes <- echo
		}
	})
	return p
}

// ask sends a probe and waits for its echo.
func (p prober) ask(t testing.TB, sent Probe) error {
	t.Helper()
	if err := p.conn.SendContext(t.Context(), sent.PacketOut()); err != nil {
		return err
	}
	limit := time.After(time.Second)
	for {
		select {
		case echo := <-p.echoes:
			switch {
			case echo == sent:
				return nil
			case echo.Seq >= sent.Seq: // else it is late
				return fmt.Errorf("the echo of %+v is %+v", sent, echo)
			}
		case <-limit:
			return errors.New("no echo")
		}
	}
}

// TestWayEcho sends probes over each type of tunnel and each version of IP. The switch of the far end sends them back,
// whole, without a packet to its agent. Larger probes than the underlay carries are lost.
func TestWayEcho(t *testing.T) {
	withOthers(t)
	for _, six := range []bool{false, true} {
		pair := newGatewayPair(t, six)
		near := newProber(t, pair.nodes[0])
		far := newProber(t, pair.nodes[1])
		for _, tunnelType := range []string{"geneve", "vxlan", "gre"} {
			name := tunnelType + " over IPv4"
			if six {
				name = tunnelType + " over IPv6"
			}
			if tunnelType == "gre" && six && ovstest.System() {
				tunnelType = "ip6gre"
			}
			t.Run(name, func(t *testing.T) {
				pair.tunnel(t, tunnelType)
				seq := uint32(0)
				next := func(size int) Probe {
					seq++
					return Probe{Port: probedPort, Nonce: 0xfedcba9876543210, Seq: seq, Size: size}
				}
				for _, size := range []int{LeastProbe, 64, 1000, 1400} { // a busy switch may lose one
					eventually(t, fmt.Sprintf("an echo of %d bytes comes", size), func() error { return near.ask(t, next(size)) })
				}
				eventually(t, "an echo comes from the other end", func() error { return far.ask(t, next(100)) })
				if err := near.ask(t, next(1500)); err == nil {
					t.Error("a probe of 1500 bytes in a tunnel came back over a link with an MTU of 1500")
				}
				if len(far.echoes) > 0 {
					t.Errorf("the far agent got %d packets", len(far.echoes))
				}
			})
		}
	}
}

// TestEchoOf refuses frames that are no probes.
func TestEchoOf(t *testing.T) {
	sent := Probe{Port: 7, Nonce: 1 << 63, Seq: 9, Size: 1000}
	whole := sent.PacketOut().Data
	in := func(data []byte) ofp.PacketIn2 {
		return ofp.PacketIn2{Data: data, FullLen: uint32(len(whole)), Metadata: flow.All(flow.InPort(7)).OXM()}
	}
	have, err := EchoOf(in(whole[:128]))
	if err != nil || have != sent {
		t.Errorf("have %+v, %v, want %+v", have, err, sent)
	}
	if size := len(Probe{}.PacketOut().Data); size != 60 {
		t.Errorf("the least frame has %d bytes, want 60", size)
	}
	for i := range ethLen + probeHeader {
		if _, err := EchoOf(in(whole[:i])); err == nil {
			t.Errorf("a frame of %d bytes is taken", i)
		}
	}
	for i := range len(probeMark) + 1 {
		other := slices.Clone(whole)
		other[ethLen+i] ^= 1
		if _, err := EchoOf(in(other)); err == nil {
			t.Errorf("a frame with another byte %d is taken", i)
		}
	}
	if _, err := EchoOf(ofp.PacketIn2{Data: whole}); err == nil {
		t.Error("an echo without its port is taken")
	}
}

// measure probes the way for a time, as the agent does.
func (p prober) measure(t testing.TB, m *probe.Prober, way probe.Way, d time.Duration) api.ProbedWay {
	t.Helper()
	p.measureAll(t, m, []probe.Way{way}, d)
	ways, _ := m.Results()
	return ways[0]
}

func (p prober) measureAll(t testing.TB, m *probe.Prober, ways []probe.Way, d time.Duration) {
	t.Helper()
	m.Set(time.Now(), ways)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case echo := <-p.echoes:
			_ = m.Take(probe.Probe{Port: uint32(echo.Port), Nonce: echo.Nonce, Seq: echo.Seq, Size: echo.Size}, time.Now())
		case now := <-tick.C:
			for _, one := range m.Due(now) {
				m.Sending(one, time.Now())
				out := Probe{Port: ofp.Port(one.Port), Nonce: one.Nonce, Seq: one.Seq, Size: one.Size}
				if err := p.conn.SendContext(t.Context(), out.PacketOut()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// badLink carries the frames between two links of a namespace, in place of a bridge.
type badLink struct {
	sockets [2]int

	mu    sync.Mutex
	delay time.Duration // of each direction
	loss  float64       // of each direction
	mtu   int
	rnd   *rand.Rand
	took  []time.Duration // of each frame that has passed since the last call of set
}

// newBadLink takes the links out of their bridge.
func newBadLink(t testing.TB, in namespace, links ...string) *badLink {
	t.Helper()
	b := &badLink{mtu: 1500, rnd: rand.New(rand.NewPCG(1, 2))}
	for i, link := range links {
		in.ip(t, "link set "+link+" nomaster")
		err := in.do(func() error {
			at, err := net.InterfaceByName(link)
			if err != nil {
				return err
			}
			all := int(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8)
			if b.sockets[i], err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			short := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
			return errors.Join(
				unix.SetsockoptInt(b.sockets[i], unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
				unix.SetsockoptTimeval(b.sockets[i], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &short),
				unix.Bind(b.sockets[i], &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: at.Index}))
		})
		if err != nil {
			t.Fatalf("read frames of %s: %v", link, err)
		}
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for i := range b.sockets {
		running.Go(func() { b.carry(ctx, b.sockets[i], b.sockets[1-i]) })
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
		time.Sleep(100 * time.Millisecond) // frames that are delayed
		for _, fd := range b.sockets {
			_ = unix.Close(fd)
		}
	})
	return b
}

func (b *badLink) carry(ctx context.Context, from, to int) {
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, err := unix.Read(from, buf)
		if err != nil {
			continue
		}
		read := time.Now()
		b.mu.Lock()
		delay, lost := b.delay, b.rnd.Float64() < b.loss || n > b.mtu+ethLen
		b.mu.Unlock()
		if lost {
			continue
		}
		frame := slices.Clone(buf[:n])
		time.AfterFunc(delay, func() {
			_, _ = unix.Write(to, frame)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.took = append(b.took, time.Since(read))
		})
	}
}

func (b *badLink) set(delay time.Duration, loss float64, mtu int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay, b.loss, b.mtu, b.took = delay, loss, mtu, nil
}

// median returns the time that half of the frames took since the last call of set. Timers of a busy machine are late.
func (b *badLink) median() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.took) == 0 {
		return 0
	}
	slices.Sort(b.took)
	return b.took[len(b.took)/2]
}

// TestProbedWay gives the underlay a delay, a loss and a smaller MTU. The results of probes are these, and BFD does not
// flap.
//
//tombolo:alone
func TestProbedWay(t *testing.T) {
	pair := newGatewayPair(t, false)
	link := newBadLink(t, pair.underlay, "east1", "west1")
	pair.tunnel(t, "geneve")
	p := newProber(t, pair.nodes[0])
	way := probe.Way{Peer: "west", To: pair.ends[1].String(), Port: uint32(probedPort), MTU: 1450, Up: true}
	eventually(t, "an echo comes", func() error { return p.ask(t, Probe{Port: probedPort, Seq: 1, Size: 64}) })
	fresh := func() *probe.Prober { return probe.New(func() uint64 { return 7 }) }
	flaps := func() (out [2]string) {
		for i, n := range pair.nodes {
			out[i] = n.ovs.vsctl(t, "get", "interface", "way0", "bfd_status:flap_count")
		}
		return out
	}
	before := flaps()
	t.Run("time", func(t *testing.T) {
		// The switches and this process take time, too. The same way without a delay shows how much.
		rest := func(delay time.Duration) (w api.ProbedWay, own float64) {
			link.set(delay, 0, 1500)
			w = p.measure(t, fresh(), way, 8*time.Second)
			t.Logf("%+v; a frame takes %v on the link", w, link.median())
			if w.Lost != 0 || w.Size != 1450 {
				t.Errorf("with a delay of %v each way: %+v", delay, w)
			}
			return w, w.P50Seconds - 2*link.median().Seconds()
		}
		_, reference := rest(0)
		w, own := rest(25 * time.Millisecond)
		if w.P50Seconds < .050 || own > 4*max(reference, .001) {
			t.Errorf("with a delay of 50 ms: %+v, which is %.4f s more than the link's, %.4f s without a delay",
				w, own, reference)
		}
	})
	t.Run("size", func(t *testing.T) {
		for _, mtu := range []int{1399, 1280} { // between the two ends, which do not see it
			link.set(0, 0, mtu)
			w := p.measure(t, fresh(), way, 20*time.Second)
			t.Logf("%+v", w)
			if want := mtu - 50; w.Size != want || w.Lost != 0 {
				t.Errorf("with an MTU of %d: %+v, want size %d", mtu, w, want)
			}
		}
	})
	if after := flaps(); after != before {
		t.Errorf("BFD has flapped beside probes: %q before, %q after", before, after)
	}
	t.Run("loss", func(t *testing.T) {
		const count, want = 800, .0975 // of 5 % in each direction
		link.set(0, .05, 1500)
		had := len(p.echoes)
		for i := range count {
			out := Probe{Port: probedPort, Seq: uint32(i), Size: 64}.PacketOut()
			if err := p.conn.SendContext(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second / (ProbeEchoes * 8 / 10))
		}
		time.Sleep(time.Second)
		loss := 1 - float64(len(p.echoes)-had)/count
		t.Logf("the loss is %.4f", loss)
		if loss < want-.04 || loss > want+.04 {
			t.Errorf("the loss is %.4f, want %.4f", loss, want)
		}
	})
}

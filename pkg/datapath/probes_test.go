package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
func newGatewayPair(t *testing.T, six bool) gatewayPair {
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
func (p gatewayPair) tunnel(t *testing.T, tunnelType string) {
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

func (n *realNode) prober(t *testing.T, took func(ofp.PacketIn2)) *ofconn.Conn {
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

func newProber(t *testing.T, n *realNode) prober {
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
func (p prober) ask(t *testing.T, sent Probe) error {
	t.Helper()
	if err := p.conn.SendContext(t.Context(), sent.PacketOut()); err != nil {
		return err
	}
	select {
	case echo := <-p.echoes:
		if echo != sent {
			return fmt.Errorf("the echo of %+v is %+v", sent, echo)
		}
		return nil
	case <-time.After(time.Second):
		return errors.New("no echo")
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
				eventually(t, "an echo comes", func() error { return near.ask(t, next(LeastProbe)) })
				for _, size := range []int{64, 1000, 1400} {
					if err := near.ask(t, next(size)); err != nil {
						t.Errorf("size %d: %v", size, err)
					}
				}
				if err := far.ask(t, next(100)); err != nil {
					t.Errorf("from the other end: %v", err)
				}
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
func (p prober) measure(t *testing.T, m *probe.Prober, way probe.Way, d time.Duration) api.ProbedWay {
	t.Helper()
	m.Set(time.Now(), []probe.Way{way})
	tick := time.NewTicker(20 * time.Millisecond)
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
	ways, _ := m.Results()
	return ways[0]
}

// TestProbedWay gives the underlay a delay, a loss and a smaller MTU. The results of probes are these, and BFD does not
// flap.
//
//tombolo:alone
func TestProbedWay(t *testing.T) {
	pair := newGatewayPair(t, false)
	pair.tunnel(t, "geneve")
	p := newProber(t, pair.nodes[0])
	way := probe.Way{Peer: "west", To: pair.ends[1].String(), Port: uint32(probedPort), MTU: 1450, Up: true}
	eventually(t, "an echo comes", func() error { return p.ask(t, Probe{Port: probedPort, Seq: 1, Size: 64}) })
	both := func(command string) {
		for _, link := range []string{"east1", "west1"} {
			pair.underlay.run(t, append([]string{"tc", "qdisc", "replace", "dev", link, "root", "netem"},
				strings.Fields(command)...)...)
		}
	}
	t.Run("time and size", func(t *testing.T) {
		both("delay 25ms")
		w := p.measure(t, probe.New(func() uint64 { return 7 }), way, 15*time.Second)
		if w.P50Seconds < .050 || w.P50Seconds > .055 || w.Loss300 != 0 || w.Size != 1450 {
			t.Errorf("with a delay of 50 ms: %+v", w)
		}
	})
	t.Run("smaller MTU", func(t *testing.T) {
		both("delay 0ms")
		for _, mtu := range []int{1399, 1280} {
			pair.underlay.ip(t, fmt.Sprintf("link set west1 mtu %d", mtu)) // in the middle: neither end sees it
			w := p.measure(t, probe.New(func() uint64 { return 7 }), way, 20*time.Second)
			if want := mtu - 50; w.Size != want || w.Loss300 != 0 {
				t.Errorf("MTU %d in the underlay: %+v, want size %d", mtu, w, want)
			}
		}
		pair.underlay.ip(t, "link set west1 mtu 1500")
	})
	t.Run("loss", func(t *testing.T) {
		const count, want = 800, .0975 // of 5 % in each direction
		both("loss 5%")
		before := len(p.echoes)
		for i := range count {
			if err := p.conn.SendContext(t.Context(), Probe{Port: probedPort, Seq: uint32(i), Size: 64}.PacketOut()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second / (ProbeEchoes * 8 / 10))
		}
		time.Sleep(time.Second)
		if loss := 1 - float64(len(p.echoes)-before)/count; loss < want-.03 || loss > want+.03 {
			t.Errorf("the loss is %.3f, want %.3f", loss, want)
		}
	})
	for _, n := range pair.nodes {
		if text := n.ovs.vsctl(t, "get", "interface", "way0", "bfd_status:flap_count"); strings.TrimSpace(text) != `"1"` {
			t.Errorf("BFD flaps beside probes: %s", text)
		}
	}
}

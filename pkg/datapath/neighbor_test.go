package datapath

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
)

// frameOf is the frame of a Neighbor Solicitation.
func frameOf(p oftest.Packet) []byte {
	message := make([]byte, solicitationLen)
	message[0] = p.ICMP.Type
	copy(message[8:], p.ND.Target.AsSlice())
	if p.ND.Option != 0 {
		message = append(append(message, p.ND.Option, 1), p.ND.Link[:]...)
	}
	ip := make([]byte, ipv6Len)
	ip[0], ip[5], ip[6], ip[7] = 6<<4, byte(len(message)), protoICMPv6, 255
	copy(ip[8:], p.IPSrc.AsSlice())
	copy(ip[24:], p.IPDst.AsSlice())
	return slices.Concat(p.EthDst[:], p.EthSrc[:], []byte{0x86, 0xdd}, ip, message)
}

// advertised reads the frame of a Neighbor Advertisement.
func advertised(t *testing.T, frame []byte) oftest.Packet {
	t.Helper()
	ip, message := frame[ethLen:ethLen+ipv6Len], frame[ethLen+ipv6Len:]
	p := oftest.Packet{
		EthDst: ofp.MAC(frame[:6]), EthSrc: ofp.MAC(frame[6:12]), TTL: ip[7], Proto: ip[6],
		IPSrc: netip.AddrFrom16([16]byte(ip[8:24])), IPDst: netip.AddrFrom16([16]byte(ip[24:40])),
		ICMP: oftest.ICMPMessage{Type: message[0], Code: message[1]},
		ND: &oftest.ND{Target: netip.AddrFrom16([16]byte(message[8:24])), Flags: binary.BigEndian.Uint32(message[4:]),
			Option: message[24], Link: ofp.MAC(message[26:32])},
	}
	covered := slices.Concat(ip[8:40], []byte{0, 0, 0, byte(len(message)), 0, 0, 0, protoICMPv6}, message)
	if s := finish(sum(0, covered)); s != 0 || int(binary.BigEndian.Uint16(ip[4:])) != len(message) || message[25] != 1 ||
		ip[0] != 6<<4 || binary.BigEndian.Uint16(frame[12:]) != ipv6Type {
		t.Errorf("checksum and lengths are wrong: %x", frame)
	}
	return p
}

// TestNeighbor asks a switch that answers Neighbor Solicitations itself, and one that leaves them to the agent. Both
// answers are the same, but for the MAC that the agent adds to an answer about a free address.
func TestNeighbor(t *testing.T) {
	switchOf := func(byAgent bool) *oftest.Switch {
		s := dualNode(1)
		s.Node.NoND = byAgent
		var entries []flow.Entries
		for _, e := range mustPlan(t, s) {
			entries = append(entries, e)
		}
		sw, err := oftest.New(Program, entries...)
		if err != nil {
			t.Fatal(err)
		}
		return sw
	}
	itself, byAgent := switchOf(false), switchOf(true)
	one, gateway := addrOf("fd11::2"), addrOf("fd11::1")
	for _, test := range []struct {
		name   string
		mac    ofp.MAC
		from   netip.Addr
		target netip.Addr
		port   ofp.Port
		want   string
	}{
		{"Pod for a Pod", podMACOne, one, addrOf("fd11::3"), 1,
			"fd11::3 is at " + podMACTwo.String() + ", flags 0x60000000, to fd11::2"},
		{"Pod for its gateway, by its link's address", podMACOne, addrOf("fe80::2"), gateway, 1,
			"fd11::1 is at " + gwMAC.String() + ", flags 0xe0000000, to fe80::2"},
		{"Pod without an address", podMACOne, netip.IPv6Unspecified(), addrOf("fd11::3"), 1,
			"fd11::3 is at 00:00:00:00:00:00, flags 0x20000000, to ff02::1"},
		{"host for its next hop", gwMAC, gateway, vip6, gatewayPort,
			"fc01::aabb:ccdd:eeff is at " + InClusterMAC.String() + ", flags 0xe0000000, to fd11::1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			question := oftest.Solicit(test.mac, test.from, test.target)
			question.InPort = test.port
			answer := itself.Send(question)
			if answer.Err != nil || len(answer.Outputs) != 1 || answer.Outputs[0].Port != test.port {
				t.Fatalf("the switch itself: %s", answer)
			}
			asked := byAgent.Send(question)
			if asked.Err != nil || len(asked.Outputs) > 0 || !asked.Controller {
				t.Fatalf("the other switch: %s", asked)
			}
			pkt := ofp.PacketIn2{Data: frameOf(question), Userdata: []byte(asked.Userdata)}
			var b ofp.MatchBuilder
			b.Exact(ofp.InPort, ofp.Value{Lo: uint64(test.port)})
			var err error
			if pkt.Metadata, err = b.Match(); err != nil {
				t.Fatal(err)
			}
			out, err := Neighbor(pkt)
			if err != nil {
				t.Fatal(err)
			}
			if want := flow.Do(flow.Output(test.port)); !slices.Equal(out.Actions, want) || out.InPort != ofp.PortController {
				t.Errorf("the agent's answer goes %v from %d, want %v", out.Actions, out.InPort, want)
			}
			have, want := advertised(t, out.Data), answer.Outputs[0].Packet
			if test.from.IsUnspecified() {
				if have.ND.Option != flow.NDTargetOption || have.ND.Link != podMACTwo {
					t.Errorf("the agent's answer has no MAC: %+v", have.ND)
				}
				have.ND.Option, have.ND.Link = 0, ofp.MAC{}
			}
			if have.String() != test.want || want.String() != test.want {
				t.Errorf("agent: %s\nswitch: %s\nwant: %s", have, want, test.want)
			}
			if have.EthDst != want.EthDst || have.EthSrc != want.EthSrc || have.IPSrc != want.IPSrc || *have.ND != *want.ND ||
				have.TTL != 255 || want.TTL != 255 || have.ICMP != want.ICMP {
				t.Errorf("agent: %+v %+v\nswitch: %+v %+v", have, have.ND, want, want.ND)
			}
		})
	}
}

// FuzzNeighbor reads frames and userdata that are damaged.
func FuzzNeighbor(f *testing.F) {
	question := frameOf(oftest.Solicit(podMACOne, addrOf("fd11::2"), addrOf("fd11::1")))
	f.Add(question, "neighbor 0a:00:00:00:00:01 e0000000")
	f.Add(question[:ethLen+ipv6Len+solicitationLen-1], "neighbor 0a:00:00:00:00:01 e0000000")
	f.Add(question, "neighbor 0a:00:00:00:00:01")
	f.Add(question, "reject")
	var b ofp.MatchBuilder
	b.Exact(ofp.InPort, ofp.Value{Lo: 1})
	port, err := b.Match()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, frame []byte, userdata string) {
		pkt := ofp.PacketIn2{Data: frame, Userdata: []byte(userdata), Metadata: port}
		out, err := Neighbor(pkt)
		if (err == nil) != (out.Data != nil) || err == nil && !strings.HasPrefix(userdata, "neighbor ") {
			t.Errorf("%x %q is answered with %x: %v", frame, userdata, out.Data, err)
		}
		if _, err := Neighbor(ofp.PacketIn2{Data: frame, Userdata: []byte(userdata)}); err == nil {
			t.Error("a question from no port is answered")
		}
	})
}

// TestNeighborFlood has nine Pods flood the agent with solicitations. Another Pod is answered each time, and no Pod of
// the nine has more answers than its share.
func TestNeighborFlood(t *testing.T) {
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	s := dualNode(1)
	s.Node.NoND = true
	for i := byte(3); i <= 10; i++ {
		name := fmt.Sprint("pod", i)
		s.Pods = append(s.Pods, Pod{Namespace: "default", Name: name, Interface: name + "-0a0b0c",
			MAC: ofp.MAC{0x0a, 0, 0, 0, 0, i + 1}, Port: ofp.Port(i),
			IPs: []netip.Addr{addrOf(fmt.Sprint("10.11.0.", i+1)), addrOf(fmt.Sprintf("fd11::%x", i+1))}})
	}
	n := newNode(t, underlay, s, "one", eastOne, "10.97.0.0/16")
	ask := func(c *ipv6.PacketConn, link string) {
		message := frameOf(oftest.Solicit(ofp.MAC{}, unspecified.Addr(), addrOf("fd11::1")))[ethLen+ipv6Len:]
		// The write fails while the queue of the socket is full.
		_, _ = c.WriteTo(message, nil, &net.IPAddr{IP: net.ParseIP("ff02::1:ff00:1"), Zone: link})
	}
	// answers reads answers, and sends true for each one.
	answers := func(c *ipv6.PacketConn, to chan<- bool) {
		for buf := make([]byte, 1500); ; {
			if length, _, _, err := c.ReadFrom(buf); err != nil {
				return
			} else if length > 24 && buf[0] == flow.NeighborAdvertisement {
				to <- true
			}
		}
	}
	var (
		sockets []*ipv6.PacketConn
		links   []string // numbers of eth0
	)
	for i, pod := range n.pods {
		var raw net.PacketConn
		err := pod.do(func() (err error) {
			link, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			links = append(links, strconv.Itoa(link.Index))
			raw, err = net.ListenPacket("ip6:ipv6-icmp", s.Pods[i].IPs[1].String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		c := ipv6.NewPacketConn(raw)
		if err := c.SetMulticastHopLimit(255); err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, c)
	}
	honest := make(chan bool, 1000)
	go answers(sockets[0], honest)
	began := time.Now()
	var (
		flooding sync.WaitGroup
		stop     = make(chan struct{})
		floods   []chan bool
	)
	for i, c := range sockets[1:] {
		got := make(chan bool, 1000)
		floods = append(floods, got)
		go answers(c, got)
		flooding.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					for range 5 {
						ask(c, links[i+1])
					}
				}
			}
		})
	}
	for _, got := range floods {
		select {
		case <-got:
		case <-time.After(replyTimeout()):
			t.Fatal("a Pod that floods has no answer at all")
		}
	}
	for i := range 10 {
		ask(sockets[0], links[0])
		select {
		case <-honest:
		case <-time.After(silence()):
			t.Errorf("question %d of a Pod that does not flood has no answer", i)
		}
		time.Sleep(time.Second / agentSolicitRate)
	}
	close(stop)
	flooding.Wait()
	most := agentSolicitRate * int(time.Since(began).Seconds()+3)
	for i, got := range floods {
		if len(got) > most {
			t.Errorf("Pod %d has %d answers, want at most %d", i+2, len(got), most)
		}
	}
}

// answerNeighbors answers Neighbor Solicitations as the agent does. It connects again if the connection ends, as it may
// on a busy machine.
func (o *openVSwitch) answerNeighbors(t testing.TB, bridge string) {
	t.Helper()
	answers := make(chan ofp.PacketOut, 100)
	connect := func() (*ofconn.Conn, error) {
		dial := ofconn.UnixDialer(o.dir + "/" + bridge + ".mgmt")
		c, err := ofconn.Connect(t.Context(), dial, nil, func(_ uint32, m ofp.Message) {
			if in, ok := m.(ofp.PacketIn2); ok {
				if out, err := Neighbor(in); err == nil {
					select {
					case answers <- out:
					default: // the queue of the agent also loses answers if it is full
					}
				}
			}
		})
		if err != nil {
			return nil, err
		}
		return c, c.Send(ofp.SetPacketInFormat{Format: ofp.PacketInNXM2}, ofp.SetConfig{MissSendLen: 0xffff})
	}
	c, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case out := <-answers:
				_ = c.SendContext(t.Context(), out)
			case <-c.Done():
				if again, err := connect(); err == nil {
					c = again
				} else {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}
	}()
}

package datapath

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// flushing has stale connections forgotten, as the agent does, and counts them.
func (n *packetNode) flushing(t *testing.T) (flushed func() int) {
	t.Helper()
	list := make(chan ofp.CTFlush, 100)
	n.packetsIn(t, func(in ofp.PacketIn2) {
		if KindOf(in) == StaleConnection {
			f, err := StaleFlush(in)
			if err != nil {
				t.Errorf("%v: %v", err, in.Metadata)
			}
			list <- f
		}
	})
	c, err := ofconn.Connect(t.Context(), ofconn.UnixDialer(n.ovs.dir+"/br-int.mgmt"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() (count int) {
		for {
			select {
			case f := <-list:
				count++
				if refused, err := c.Each(t.Context(), []ofp.Message{f}); err != nil || len(refused) > 0 && refused[0] != nil {
					t.Errorf("flush %v: %v %v", f, refused, err)
				}
			default:
				return count
			}
		}
	}
}

// client is a socket that keeps its port.
type client struct {
	t    *testing.T
	conn net.PacketConn
}

func datagrams(t *testing.T, from namespace) client {
	t.Helper()
	c := client{t: t}
	if err := from.do(func() (err error) { c.conn, err = net.ListenPacket("udp4", ":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() })
	return c
}

// ask sends a datagram and returns the answer, "" for no answer.
func (c client) ask(to string, wait time.Duration) string {
	c.t.Helper()
	if _, err := c.conn.WriteTo([]byte("who are you?"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
		c.t.Fatal(err)
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		c.t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, _, err := c.conn.ReadFrom(buf)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(buf[:n]), " ")
	return name
}

// silent waits until no answer comes any more.
func (c client) silent() {
	buf := make([]byte, 100)
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(silence() / 10))
		if _, _, err := c.conn.ReadFrom(buf); err != nil {
			return
		}
	}
}

// TestUDPBeforeService sends datagrams from one port to an address of Services before a Service has it, and while the
// Service is made again. They are answered once the Service is there, also if the switch still tracks earlier
// connections.
func TestUDPBeforeService(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.server.serve(t, "udp", ":5353", "server")
	flushed := n.flushing(t)
	const vip = "10.97.0.222:514"
	key := derive.Object{Namespace: "default", Name: "late"}
	there := []service.Frontend{frontend("late", corev1.ProtocolUDP, vip, "10.11.0.2:5353")}
	there[0].Service = "late"
	set := func(list []service.Frontend) {
		t.Helper()
		if list == nil {
			n.frontends.Delete(key)
		} else {
			n.frontends.Set(key, list)
		}
		n.engine.Pass()
		n.ovs.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", n.ovs.dir+"/br-int.mgmt")
		n.ovs.program(t, "br-int", setOf(t, n.held))
		n.ovs.appctl(t, "revalidator/wait")
	}
	for _, test := range []struct {
		name    string
		ranges  []netip.Prefix
		tracked bool
	}{
		{"the range of Services is known", n.Node.ServiceCIDRs, false},
		{"it is not known", nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := n.Node
			node.ServiceCIDRs = test.ranges
			n.node.Set(Self, node)
			set(nil)
			c := datagrams(t, n.a)
			for range 3 {
				if got := c.ask(vip, 50*time.Millisecond); got != "" {
					t.Errorf("without a Service %q answers", got)
				}
			}
			eventually(t, "the datagrams without a Service have been judged", func() error {
				if is := strings.Contains(n.dump(t), "dst=10.97.0.222,"); is != test.tracked {
					return fmt.Errorf("tracked: %v, want %v\n%s", is, test.tracked, n.dump(t))
				}
				return nil
			})
			set(there)
			answered := func(why string) {
				t.Helper()
				for _, limit := range []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, replyTimeout()} {
					if c.ask(vip, limit) == "server" {
						return
					}
					flushed()
				}
				t.Errorf("%s: three datagrams are not answered\n%s", why, n.dump(t))
			}
			answered("the Service comes")
			if test.tracked {
				return // earlier copies may come late, and cause another flush of this connection
			}
			ended := ServiceConnection{netip.MustParseAddrPort(vip), netip.MustParseAddrPort("10.11.0.2:5353")}
			n.tables.Services.SetEnded([]ServiceConnection{ended})
			n.sync(t)
			c.silent()
			flushed()
			if got := c.ask(vip, 100*time.Millisecond); got != "" {
				t.Errorf("a datagram to an endpoint that is gone is answered by %q", got)
			}
			eventually(t, "one datagram to an endpoint that is gone is left to the agent", func() error {
				if got := flushed(); got != 1 {
					return fmt.Errorf("%d are left", got)
				}
				return nil
			})
			if own := fmt.Sprintf("dst=10.97.0.222,sport=%d,",
				c.conn.LocalAddr().(*net.UDPAddr).Port); strings.Contains(n.dump(t), own) {
				t.Errorf("the connection is not forgotten\n%s", n.dump(t))
			}
			n.tables.Services.SetEnded(nil)
			n.sync(t)
			answered("the endpoint is back")
		})
	}
}

// TestAddressOfAPod gives a UDP Service the address and port of a Pod's server (spec.externalIPs). Another Service
// still leads clients of the same Node to the server, also with their further datagrams.
func TestAddressOfAPod(t *testing.T) {
	for _, row := range []struct{ vip, endpoint string }{
		{"10.97.0.66:53", "10.11.0.3:5353"}, {"[fd97::66]:53", "[fd11::3]:5353"},
	} {
		s := outsideNode6(1, family.Dual)
		claims := frontend("claims", corev1.ProtocolUDP, row.endpoint, strings.Replace(row.endpoint, "5353", "53", 1))
		claims.Kind = service.ExternalIP
		s.Frontends = append(s.Frontends, claims, frontend("leads", corev1.ProtocolUDP, row.vip, row.endpoint))
		c := cableOf(t, map[string]State{"east1": s})
		p := c.request("east1 pod1", row.vip, oftest.UDP)
		for range 2 {
			there := fmt.Sprintf("east1 pod2: %s > %s", netip.AddrPortFrom(p.IPSrc, p.SrcPort), row.endpoint)
			w := c.send("east1 pod1", p)
			if w.String() != there {
				t.Fatalf("%s, want %s", w, there)
			}
			if back := c.send("east1 pod2", w.packet.Reply()); !strings.HasPrefix(back.String(), "east1 pod1: "+row.vip) {
				t.Fatalf("the answer: %s", back)
			}
		}
	}
}

// TestStaleFlush reads the stale datagrams that the switch sends to the agent.
func TestStaleFlush(t *testing.T) {
	in := ofp.PacketIn2{Userdata: []byte(StaleConnection)}
	if f, err := StaleFlush(in); err == nil {
		t.Errorf("without a tuple: %v", f)
	}
	port := func(f ofp.Field, n byte) flow.Cond { return flow.Field(f, []byte{0, n}, nil) }
	for _, ends := range [][2]string{{"10.11.0.3", "10.97.0.12"}, {"fd11::3", "fd97::12"}} {
		src, dst := addrOf(ends[0]), addrOf(ends[1])
		from := flow.Field(ofp.CTNwSrc, src.AsSlice(), nil)
		if !src.Is4() {
			from = flow.Field(ofp.CTIPv6Src, src.AsSlice(), nil)
		}
		in.Metadata = flow.All(versionOf(src), flow.CTState("-inv+trk"), flow.Field(ofp.CTNwProto, []byte{protocolUDP}, nil),
			from, trackedTo(dst), port(ofp.CTTpSrc, 40), port(ofp.CTTpDst, 53)).OXM()
		f, err := StaleFlush(in)
		if want := (ofp.CTTuple{Src: src, Dst: dst, SrcPort: 40, DstPort: 53}); err != nil || f.Orig != want {
			t.Errorf("flushes %+v, %v, want %+v", f.Orig, err, want)
		}
		vip, endpoint := netip.AddrPortFrom(dst, 53), netip.AddrPortFrom(src, 5353)
		if e, _ := endedTo(ServiceConnection{vip, endpoint}, nil); len(e.Flows) != 1 || e.Flows[0].Err() != nil {
			t.Errorf("connections through %s to %s have flows %v", vip, endpoint, e.Flows)
		}
	}
	in.Userdata = []byte(PolicyLog)
	if f, err := StaleFlush(in); err == nil {
		t.Errorf("another kind: %v", f)
	}
}

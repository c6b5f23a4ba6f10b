package ended

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"

	"github.com/tombolo-net/tombolo/pkg/observe/ended/endedtest"
)

// zone is the zone of connections in these tests; another one has connections that must not be seen.
const zone = 65520

// namespace tracks connections to port 7000 in zone. Port 7100 is a Service, which is translated to port 7000.
func namespace(t *testing.T) netns.NsHandle {
	t.Helper()
	return endedtest.Enter(t, endedtest.Tracking{Protocol: "udp", Ports: []uint16{7000, 7100}, Zone: zone, OtherPort: 8000,
		Service: at(7100), Endpoint: at(7000)})
}

// at is a port of 127.0.0.1.
func at(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// exchange sends datagrams to a port, and gets an answer to each.
func exchange(t *testing.T, local, port, count, size int) {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: local},
		&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for range count {
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 2048)); err != nil {
			t.Fatal(err)
		}
	}
}

// echo answers datagrams at a port with 10 bytes.
func echo(t *testing.T, port int) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			_, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:10], from)
		}
	}()
}

// TestEvents has the kernel track real datagrams, and reads the ends with their bytes.
func TestEvents(t *testing.T) {
	ns := namespace(t)
	events, err := Listen(Zones{Main: zone}, int(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	echo(t, 7000)
	echo(t, 8000)
	exchange(t, 5001, 8000, 1, 100) // of another zone
	exchange(t, 5002, 7100, 3, 100) // through the Service
	const header = 28               // of IP and UDP
	want := Connection{Protocol: 17, Client: at(5002), Server: at(7000), Asked: at(7100), Counted: true,
		Sent: Counter{3, 3 * (100 + header)}, Received: Counter{3, 3 * (10 + header)}}

	now, err := Tracked(Zones{Main: zone}, int(ns))
	if err != nil {
		t.Fatal(err)
	}
	if len(now) != 1 || now[0] != want {
		t.Errorf("tracked are %+v, want %+v", now, want)
	}
	endedtest.Forget(t)
	list, lost, err := events.Read()
	if err != nil || lost != 0 || len(list) != 1 {
		t.Fatalf("%d ends, %d lost, %v; want one", len(list), lost, err)
	}
	if list[0] != want {
		t.Errorf("the end is\n%+v, want\n%+v", list[0], want)
	}
}

// TestZones reads connections of several zones. The other zone of the namespace has number 9.
func TestZones(t *testing.T) {
	for _, row := range []struct {
		zones Zones
		want  map[uint16]int // the number of connections, by Zone
	}{
		{Zones{Main: zone}, map[uint16]int{0: 1}},
		{Zones{Main: zone, Last: 9}, map[uint16]int{0: 1, 9: 1}},
		{Zones{Main: zone, Last: 8}, map[uint16]int{0: 1}},
		{Zones{Main: 9}, map[uint16]int{0: 1}},
		{Zones{Main: 8, Last: 32000}, map[uint16]int{9: 1}},
	} {
		t.Run(fmt.Sprint(row.zones), func(t *testing.T) {
			ns := namespace(t)
			events, err := Listen(row.zones, int(ns))
			if err != nil {
				t.Fatal(err)
			}
			defer events.Close()
			echo(t, 7000)
			echo(t, 8000)
			exchange(t, 5001, 8000, 1, 100)
			exchange(t, 5002, 7000, 1, 100)
			now, err := Tracked(row.zones, int(ns))
			if err != nil {
				t.Fatal(err)
			}
			if have := byZone(now); !maps.Equal(have, row.want) {
				t.Errorf("%v are tracked, want %v", have, row.want)
			}
			endedtest.Forget(t)
			var ends []Connection
			for len(ends) < len(row.want) {
				list, lost, err := events.Read()
				if err != nil || lost != 0 {
					t.Fatal(lost, err)
				}
				ends = append(ends, list...)
			}
			if have := byZone(ends); !maps.Equal(have, row.want) {
				t.Errorf("%v have ended, want %v", have, row.want)
			}
		})
	}
}

// byZone counts connections.
func byZone(list []Connection) map[uint16]int {
	out := map[uint16]int{}
	for _, c := range list {
		out[c.Zone]++
	}
	return out
}

// TestLost ends more connections than the socket has room for. The number of the lost ones is exact.
func TestLost(t *testing.T) {
	ns := namespace(t)
	events, err := Listen(Zones{Main: zone}, int(ns))
	if err != nil {
		t.Fatal(err)
	}
	if err := events.conn.SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	echo(t, 7000)
	const all = 400
	for i := range all {
		exchange(t, 6000+i, 7000, 1, 10)
	}
	endedtest.Forget(t)
	seen, lost := 0, uint64(0)
	for seen+int(lost) < all {
		list, more, err := events.Read()
		if err != nil {
			t.Fatal(err)
		}
		seen, lost = seen+len(list), lost+more
	}
	if seen == 0 || lost == 0 || seen+int(lost) != all {
		t.Errorf("%d ends are seen and %d lost, want both and %d together", seen, lost, all)
	}
	closed := make(chan error, 1)
	go func() {
		_, _, err := events.Read()
		closed <- err
	}()
	events.Close()
	if err := <-closed; err == nil {
		t.Error("Read goes on after Close")
	}
}

// FuzzParse reads messages of any form. They are refused or read, and nothing panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 1, 0, 1, 2, 3, 4})
	f.Add(event())
	f.Fuzz(func(t *testing.T, data []byte) {
		m := netlink.Message{Header: netlink.Header{Type: 1<<8 | 2}, Data: data}
		c, err := (Zones{Main: zone}).parse(m)
		if err == nil && (!c.Client.Addr().IsValid() || !c.Server.Addr().IsValid()) {
			t.Errorf("%x is read as %+v", data, c)
		}
	})
}

// event is the event of a connection with counters.
func event() []byte {
	attribute := func(kind uint16, data []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	const nested = 1 << 15
	join := func(list ...[]byte) (out []byte) {
		for _, b := range list {
			out = append(out, b...)
		}
		return out
	}
	tuple := func(kind uint16, src, dst byte, from, to byte) []byte {
		return attribute(kind|nested, join(
			attribute(1|nested, join(attribute(1, []byte{10, 0, 0, src}), attribute(2, []byte{10, 0, 0, dst}))),
			attribute(2|nested, join(attribute(1, []byte{6}), attribute(2, []byte{0, from}), attribute(3, []byte{0, to})))))
	}
	counters := func(kind uint16, packets, bytes byte) []byte {
		return attribute(kind|nested, join(attribute(1, []byte{0, 0, 0, 0, 0, 0, 0, packets}),
			attribute(2, []byte{0, 0, 0, 0, 0, 0, 0, bytes})))
	}
	return join([]byte{2, 0, 0, 0}, tuple(1, 1, 9, 40, 80), tuple(2, 2, 1, 81, 40), counters(9, 3, 99),
		counters(10, 2, 88), attribute(ctaZone, []byte{0xff, 0xf0}), attribute(8, []byte{0, 0, 7, 3}))
}

// BenchmarkParse reads an event.
func BenchmarkParse(b *testing.B) {
	m := netlink.Message{Header: netlink.Header{Type: 1<<8 | 2}, Data: event()}
	b.ReportAllocs()
	zones := Zones{Main: zone}
	for b.Loop() {
		if c, err := zones.parse(m); err != nil || c.Sent.Bytes != 99 || c.Server.Port() != 81 || c.Mark != 0x703 {
			b.Fatal(c, err)
		}
	}
}

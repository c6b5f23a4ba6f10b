package datapath

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// tcpEnd sends and receives segments of TCP as they are. The kernel of its namespace takes no part.
type tcpEnd struct {
	*net.IPConn
	ip string
}

func newTCPEnd(t *testing.T, ns namespace, ip string) tcpEnd {
	t.Helper()
	ns.run(t, "nft",
		"add table ip silent; add chain ip silent out { type filter hook output priority 0; }; add rule ip silent out tcp "+
			"flags & rst == rst drop")
	e := tcpEnd{ip: ip}
	err := ns.do(func() (err error) {
		e.IPConn, err = net.ListenIP("ip4:6", &net.IPAddr{IP: net.ParseIP(ip)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// send sends a segment between ports 40000 of the client and 8080 of the server.
func (e tcpEnd) send(t *testing.T, to tcpEnd, from, port uint16, flags byte, seq, ack uint32, payload string) {
	t.Helper()
	p := make([]byte, tcpLen+len(payload))
	binary.BigEndian.PutUint16(p, from)
	binary.BigEndian.PutUint16(p[2:], port)
	binary.BigEndian.PutUint32(p[4:], seq)
	binary.BigEndian.PutUint32(p[8:], ack)
	p[12], p[13] = 5<<4, flags
	binary.BigEndian.PutUint16(p[14:], 60000)
	copy(p[tcpLen:], payload)
	pseudo := append(net.ParseIP(e.ip).To4(), net.ParseIP(to.ip).To4()...)
	pseudo = append(pseudo, 0, protoTCP, 0, byte(len(p)))
	binary.BigEndian.PutUint16(p[16:], finish(sum(sum(0, pseudo), p)))
	if _, err := e.WriteTo(p, &net.IPAddr{IP: net.ParseIP(to.ip)}); err != nil {
		t.Fatal(err)
	}
}

// arrived counts the segments that arrive, until there is a pause.
func (e tcpEnd) arrived(t *testing.T) (n int) {
	t.Helper()
	buf := make([]byte, 200)
	for {
		if err := e.SetReadDeadline(time.Now().Add(silence() / 8)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.ReadFrom(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// TestSilentClient revokes a connection whose client sends nothing more: the server's packets end too. If the client
// sends again and a policy allows it, the connection goes on.
//
//tombolo:alone
func TestSilentClient(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.allow("from-a", "a")
	n.change(t)
	server, client := newTCPEnd(t, n.server, "10.11.0.2"), newTCPEnd(t, n.a, "10.11.0.3")
	const ack = 0x10
	asks := func(flags byte, seq, acks uint32) { client.send(t, server, 40000, 8080, flags, seq, acks, "") }
	sends := func(times int) int {
		for range times {
			server.send(t, client, 8080, 40000, ack, 2001, 1001, "data")
		}
		return client.arrived(t)
	}
	asks(tcpSYN, 1000, 0)
	if server.arrived(t) != 1 {
		t.Fatal("no SYN arrives")
	}
	server.send(t, client, 8080, 40000, tcpSYN|ack, 2000, 1001, "")
	if client.arrived(t) != 1 {
		t.Fatal("no SYN is answered")
	}
	asks(ack, 1001, 2001)
	server.arrived(t)
	if got := sends(100); got != 100 {
		t.Errorf("%d of 100 segments pass that are allowed", got)
	}
	n.forget("from-a")
	n.allow("from-b", "b")
	n.change(t)
	passed := 0
	for range maxUnanswered + 3 {
		passed += sends(1)
	}
	if passed != maxUnanswered {
		t.Errorf("%d of %d segments pass to a silent client, want %d", passed, maxUnanswered+3, maxUnanswered)
	}
	if got := sends(1000); got != 0 {
		t.Errorf("%d of 1,000 further segments pass to a silent client", got)
	}
	n.change(t)
	if got := sends(100); got != 0 {
		t.Errorf("%d of 100 segments pass after the second look", got)
	}
	n.allow("from-a", "a")
	n.change(t)
	asks(ack, 1001, 2001)
	if got := server.arrived(t); got != 1 {
		t.Error("what the client sends is dropped though it is allowed again")
	}
	if got := sends(100); got != 100 {
		t.Errorf("%d of 100 segments pass that are allowed again", got)
	}
}

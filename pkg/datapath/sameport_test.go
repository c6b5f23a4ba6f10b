package datapath

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSamePort opens two connections from one port of a client: to a Service, and to the endpoint that it chose. What
// the endpoint answers to is the same for both, unless one of them gets another port.
func TestSamePort(t *testing.T) {
	for _, order := range [][2]string{{"10.97.0.11:80", "10.11.0.2:8080"}, {"10.11.0.2:8080", "10.97.0.11:80"}} {
		n := newPacketNode(t)
		n.server.serve(t, "tcp", ":8080", "server")
		var from *net.TCPAddr
		for i, to := range order {
			var c net.Conn
			if err := n.a.do(func() error {
				d := net.Dialer{Timeout: replyTimeout(), LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 11, 0, 3), Port: 45678}, Control: reuse}
				var err error
				c, err = d.Dial("tcp4", to)
				return err
			}); err != nil {
				t.Fatalf("connection %d of %v: %v", i, order, err)
			}
			defer c.Close()
			from = c.LocalAddr().(*net.TCPAddr)
			t.Log(from)
		}
	}
}

// reuse lets a port be that of several connections.
func reuse(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); e != nil {
		return e
	}
	return err
}

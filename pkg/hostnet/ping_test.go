package hostnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// ping sends ICMP echo requests from the network namespace of the calling thread. Each has
// to be answered within a second, and only once.
func ping(targets ...string) error {
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return err
	}
	defer conn.Close()
	for seq, target := range targets {
		if err := pingOnce(conn, target, seq+1); err != nil {
			return fmt.Errorf("ping %s: %w", target, err)
		}
	}
	return nil
}

func pingOnce(conn *icmp.PacketConn, target string, seq int) error {
	request := icmp.Message{Type: ipv4.ICMPTypeEcho,
		Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: seq, Data: []byte("tombolo")}}
	b, err := request.Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(b, &net.IPAddr{IP: net.ParseIP(target)}); err != nil {
		return err
	}
	answers := 0
	conn.SetReadDeadline(time.Now().Add(time.Second))
	for buf := make([]byte, 1500); ; {
		n, _, err := conn.ReadFrom(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && answers == 1:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%d answers, want 1", answers)
		case err != nil:
			return err
		}
		reply, err := icmp.ParseMessage(1, buf[:n])
		if err != nil {
			return err
		}
		if echo, ok := reply.Body.(*icmp.Echo); ok && reply.Type == ipv4.ICMPTypeEchoReply && echo.Seq == seq {
			if answers++; answers == 1 {
				conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // for a second one
			}
		}
	}
}

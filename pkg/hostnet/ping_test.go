package hostnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// ping sends ICMP echo requests from the network namespace of the calling thread. Each has
// to be answered within a second, and only once.
func ping(targets ...string) error {
	for seq, target := range targets {
		if err := pingOnce(target, seq+1); err != nil {
			return fmt.Errorf("ping %s: %w", target, err)
		}
	}
	return nil
}

func pingOnce(target string, seq int) error {
	network, own, protocol := "ip4:icmp", "0.0.0.0", 1
	var ask, answer icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if strings.Contains(target, ":") {
		network, own, protocol = "ip6:ipv6-icmp", "::", 58
		ask, answer = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := icmp.ListenPacket(network, own)
	if err != nil {
		return err
	}
	defer conn.Close()
	request := icmp.Message{Type: ask,
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
		reply, err := icmp.ParseMessage(protocol, buf[:n])
		if err != nil {
			return err
		}
		if echo, ok := reply.Body.(*icmp.Echo); ok && reply.Type == answer && echo.Seq == seq {
			if answers++; answers == 1 {
				conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // for a second one
			}
		}
	}
}

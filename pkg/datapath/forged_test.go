package datapath

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"
)

// forged is a Geneve packet with a datagram of UDP inside, as another Node's switch sends it.
func forged(src, dst netip.Addr, text string) []byte {
	p := packet{ethSrc: InClusterMAC, ethDst: gwMAC, src: dst, dst: src} // of the reply: it goes the other way
	frame := p.reply(protoUDP, 8+len(text))
	udp := frame[ethLen+ipv4Len:]
	binary.BigEndian.PutUint16(udp[0:], 40000)
	binary.BigEndian.PutUint16(udp[2:], 9999)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(text)))
	copy(udp[8:], text)
	return append([]byte{0, 0, 0x65, 0x58, 0, 0, 0, 0}, frame...) // no options, Ethernet inside
}

// TestForgedTunnel sends a Node packets that look like another Node's, from places where they must not come from. The
// last packet is an honest Node's: only that one reaches the Pod.
func TestForgedTunnel(t *testing.T) {
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up", "address add 192.168.0.66/16 dev hub")
	east1 := newNode(t, underlay, onNode(1), "east1", eastOne, "10.97.0.0/16")
	east2 := newNode(t, underlay, onNode(2), "east2", eastTwo, "10.97.0.0/16")
	// Through this rule the Pod's packet would leave as the Node's own.
	east1.host.run(t, "nft",
		"add table ip pods; add chain ip pods c { type nat hook postrouting priority 100 ; }; add rule ip pods c ip saddr "+
			"10.11.0.0/24 oifname != gw0 masquerade")
	east1.host.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

	var server net.PacketConn
	if err := east2.pods[0].do(
		func() (err error) { server, err = net.ListenPacket("udp4", ":9999"); return err }); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	send := func(from namespace, src netip.Addr, text string) {
		t.Helper()
		c, err := from.dial("udp", "192.168.78.102:6081")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 3 { // the first may wait for ARP
			if _, err := c.Write(forged(src, addrOf("10.11.1.2"), text)); err != nil {
				t.Logf("%s: %v", text, err) // an ICMP error of the packet before
			}
		}
	}
	eventually(t, "the Node's Pod is reached", func() error {
		send(underlay, addrOf("10.11.0.2"), "a stranger as a Pod of a Node")
		send(underlay, addrOf("192.168.0.66"), "a stranger as himself")
		send(east1.pods[0], addrOf("10.11.0.2"), "a Pod, masqueraded as its Node")
		send(east1.host, addrOf("10.11.1.3"), "a Node as a Pod of the receiver")
		send(east1.host, addrOf("10.97.0.10"), "a Node as a Service")
		send(east1.host, addrOf("10.11.0.2"), "a Node as its Pod")
		if err := server.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		buf := make([]byte, 100)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return err
			}
			if text := string(buf[:n]); text != "a Node as its Pod" {
				t.Errorf("the Pod got a packet of %s, from %s", text, from)
				continue
			}
			return nil
		}
	})
}

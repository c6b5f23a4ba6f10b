package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// large is a datagram's payload that takes three fragments.
const large = 3000

// TestFragments sends large datagrams, and a SYN in fragments, to ports that a policy denies, on a real datapath. They
// do not arrive, and open no connection for the small packets after them. Under rules without ports they arrive, and so
// do fragments of open connections. It does so with both versions of IP.
func TestFragments(t *testing.T) {
	n := newPacketNode(t)
	t.Run("IPv4", func(t *testing.T) { testFragments(t, n, addrOf("10.11.0.2"), addrOf("10.11.0.3")) })
	t.Run("IPv6", func(t *testing.T) { testFragments(t, n, addrOf("fd11::2"), addrOf("fd11::3")) })
}

func testFragments(t *testing.T, n *packetNode, server, from netip.Addr) {
	at := func(ip netip.Addr, port uint16) string { return netip.AddrPortFrom(ip, port).String() }
	allowed, denied := listenUDP(t, n.server, at(server, 9000)), listenUDP(t, n.server, at(server, 9001))
	client := listenUDP(t, n.a, at(from, 5000))
	send := func(size int, to *net.UDPConn) {
		t.Helper()
		if _, err := client.WriteTo(make([]byte, size), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(at *net.UDPConn, want int, why string) {
		t.Helper()
		wait := replyTimeout()
		if want == 0 { // earlier packets would have arrived before later ones
			wait = 50 * time.Millisecond
		}
		if err := at.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		have, _, err := at.ReadFrom(make([]byte, 2*large))
		if have != want || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a datagram of %d bytes arrives, want %d: %v", why, have, want, err)
		}
	}
	send(large, denied)
	arrives(denied, large, "no policy")

	drop := func(ports bool, protocols ...corev1.Protocol) {
		acnp := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "ports"}}
		acnp.Spec.Priority, acnp.Spec.AppliedTo = 1,
			[]crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}}}}
		rule := crdv1beta1.Rule{Action: crdv1beta1.ActionDrop}
		for _, protocol := range protocols {
			p := crdv1beta1.Port{Protocol: new(protocol)}
			if ports {
				p.Port = new(intstr.FromInt32(9001))
			}
			rule.Ports = append(rule.Ports, p)
		}
		if len(rule.Ports) == 0 {
			rule.From = []crdv1beta1.Peer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "b"}}}}
		}
		acnp.Spec.Ingress = []crdv1beta1.Rule{rule}
		n.policy.Policies[policy.AntreaClusterNetworkPolicy].Set(derive.ObjectOf(acnp), policy.AntreaClusterFactsOf(acnp))
		n.sync(t)
		n.ovs.appctl(t, "dpctl/flush-conntrack", "zone="+fmt.Sprint(mainZone))
	}
	drop(true, corev1.ProtocolUDP, corev1.ProtocolTCP)
	send(large, denied)
	send(100, denied)
	send(100, allowed)
	arrives(allowed, 100, "a small one to a port that is allowed")
	arrives(denied, 0, "to a port that is not allowed")
	unanswered := 0 // of the userspace datapath only whole packets are judged
	if ovstest.System() {
		unanswered = large
	}
	send(large, allowed)
	arrives(allowed, unanswered, "to a port that is allowed, before the first answer")

	if _, err := allowed.WriteTo([]byte("answer"), client.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	arrives(client, len("answer"), "an answer")
	send(large, allowed)
	arrives(allowed, large, "by a connection that is open")

	syn(t, n.a, at(from, 5001), at(server, 9001))
	send(100, allowed)
	arrives(allowed, 100, "after a SYN in fragments")
	if lines := slices.DeleteFunc(strings.Split(n.dump(t), "\n"),
		func(l string) bool { return !strings.HasPrefix(l, "tcp") }); len(lines) > 0 {
		t.Errorf("a SYN in fragments makes %q", lines)
	}

	// The userspace datapath does not see the protocol of a later fragment of IPv6.
	drop(false, corev1.ProtocolUDP)
	send(large, denied)
	arrives(denied, 0, "to a protocol that is not allowed")
	drop(false, corev1.ProtocolTCP)
	send(large, denied)
	unseen := large
	if !server.Is4() && !ovstest.System() {
		unseen = 0
	}
	arrives(denied, unseen, "by another protocol than a rule's")

	drop(false)
	send(large, denied)
	arrives(denied, large, "rules without ports")
	n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(nil)
	n.sync(t)
}

func listenUDP(t *testing.T, at namespace, address string) (c *net.UDPConn) {
	t.Helper()
	err := at.do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// syn sends a SYN with more payload than a packet takes.
func syn(t *testing.T, at namespace, from, to string) {
	t.Helper()
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	p := make([]byte, tcpLen+large)
	binary.BigEndian.PutUint16(p, src.Port())
	binary.BigEndian.PutUint16(p[2:], dst.Port())
	p[12], p[13] = tcpLen/4<<4, tcpSYN
	binary.BigEndian.PutUint16(p[16:], finish(sum(pseudoHeader(src.Addr(), dst.Addr(), protoTCP, len(p)), p)))
	err := at.do(func() error {
		network := "ip4:tcp"
		if !src.Addr().Is4() {
			network = "ip6:tcp"
		}
		c, err := net.ListenIP(network, &net.IPAddr{IP: src.Addr().AsSlice()})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo(p, &net.IPAddr{IP: dst.Addr().AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

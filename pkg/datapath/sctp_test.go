package datapath

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// sctpEnd sends and receives packets of SCTP as they are: a kernel without SCTP carries them as well.
type sctpEnd struct {
	*net.IPConn
	ip string
}

func newSCTPEnd(t *testing.T, ns namespace, ip string) sctpEnd {
	t.Helper()
	e := sctpEnd{ip: ip}
	err := ns.do(func() (err error) {
		e.IPConn, err = net.ListenIP("ip4:132", &net.IPAddr{IP: net.ParseIP(ip)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// send sends an INIT.
func (e sctpEnd) send(t *testing.T, from uint16, to sctpEnd, port uint16) {
	t.Helper()
	p := make([]byte, 32)
	binary.BigEndian.PutUint16(p, from)
	binary.BigEndian.PutUint16(p[2:], port)
	p[12], p[15] = 1, 20
	binary.BigEndian.PutUint32(p[16:], 1)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := e.WriteTo(p, &net.IPAddr{IP: net.ParseIP(to.ip)}); err != nil {
		t.Fatal(err)
	}
}

// next is the packet that comes next.
func (e sctpEnd) next(t *testing.T) string {
	t.Helper()
	if err := e.SetReadDeadline(time.Now().Add(replyTimeout())); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	n, from, err := e.ReadFrom(p)
	if err != nil || n < 4 {
		return fmt.Sprint("nothing: ", err)
	}
	return fmt.Sprintf("%s:%d > %d", from, binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]))
}

// TestSCTP checks that an allowed association opens no other port between the same Pods, in neither direction. A packet
// is denied if the packet sent after it arrives first.
func TestSCTP(t *testing.T) {
	n := newPacketNode(t)
	port, sctp := intstr.FromInt32(9003), corev1.ProtocolSCTP
	isolate := func(app string, rules ...networkingv1.NetworkPolicyIngressRule) {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
		p.Spec.Ingress = rules
		n.policy.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(p), policy.FactsOf(p))
	}
	isolate("a")
	isolate("server",
		networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &sctp, Port: &port}}})
	n.sync(t)
	server, a := newSCTPEnd(t, n.server, "10.11.0.2"), newSCTPEnd(t, n.a, "10.11.0.3")
	expect := func(at sctpEnd, want, why string) {
		t.Helper()
		if have := at.next(t); have != want {
			t.Errorf("%s: %s arrives, want %s", why, have, want)
		}
	}
	asks := func() {
		t.Helper()
		a.send(t, 40000, server, 9003)
		expect(server, "10.11.0.3:40000 > 9003", "an association to a port that is allowed")
	}
	answers := func() {
		t.Helper()
		server.send(t, 9003, a, 40000)
		expect(a, "10.11.0.2:9003 > 40000", "an answer")
	}
	asks()
	answers()
	n.tables.Policies.Known.Recheck([]Recheck{{Why: NotJudged, Direction: policy.Ingress, Addr: addrOf("10.11.0.2")}})
	n.sync(t) // connections of the server are judged again
	asks()
	answers()
	n.tables.Policies.Known.Recheck(nil)
	n.sync(t)
	a.send(t, 40000, server, 9005)
	asks() // the expected packet, and not the one for port 9005
	a.send(t, 9003, server, 9003)
	expect(server, "10.11.0.3:9003 > 9003", "from the same port")
	a.send(t, 9003, server, 9005)
	asks()
	server.send(t, 40001, a, 7000)
	answers() // and not the association in the other direction

	isolate("server")
	n.change(t)
	a.send(t, 40000, server, 9003)
	n.forget("server")
	n.change(t)
	a.send(t, 40002, server, 9005)
	expect(server, "10.11.0.3:40002 > 9005", "once a policy denies everything and is gone")
}

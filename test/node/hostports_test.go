package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The ports of the Node that lead to a Pod of hostPortsTest.
const (
	anyHostPort   = 8443 // at every address
	localHostPort = 8444 // at 127.0.0.1
)

// askForPorts asks for both, each for TCP and UDP, as a runtime does.
var askForPorts = fmt.Sprintf(`{"portMappings":[{"hostPort":%d,"containerPort":8080,"protocol":"tcp"},`+
	`{"hostPort":%[1]d,"containerPort":8080,"protocol":"udp","hostIP":"0.0.0.0"},`+
	`{"hostPort":%d,"containerPort":8080,"protocol":"tcp","hostIP":"127.0.0.1"},`+
	`{"hostPort":%[2]d,"containerPort":8080,"protocol":"udp","hostIP":"127.0.0.1"}]}`, anyHostPort, localHostPort)

// hostPortsTest has a Pod of the first Node to which ports of the Node lead.
type hostPortsTest struct {
	t           *testing.T
	nodes       []*secureNode
	web         *pod
	asker, far  *pod // of the first and the second Node
	tcp, client net.Conn
	check       func(outsideRow)
}

func newHostPortsTest(t *testing.T, nodes []*secureNode, asker, far *pod, check func(outsideRow)) *hostPortsTest {
	t.Helper()
	h := &hostPortsTest{t: t, nodes: nodes, asker: asker, far: far, check: check}
	h.web = nodes[0].podWith("web", askForPorts)
	h.web.serveOutside(t, 8080)
	var err error
	// It is not dialled again: the port is open when ADD has answered.
	if h.tcp, err = net.DialTimeout("tcp4", fmt.Sprint("10.200.1.2:", anyHostPort), time.Minute); err != nil {
		t.Fatal(err)
	}
	if h.client, err = net.Dial("udp4", fmt.Sprint("10.200.1.2:", anyHostPort)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.tcp.Close(); h.client.Close() })
	return h
}

// works asks the Pod from everywhere. Connections that were open stay open.
func (h *hostPortsTest) works(when string) {
	h.t.Helper()
	if _, err := ask(h.tcp, "still", time.Minute); err != nil {
		h.t.Errorf("%s: the connection from outside: %v", when, err)
	}
	h.answers(when, h.web)
	inside := func(p *pod) func(func()) {
		return func(f func()) {
			if err := p.within(func() error { f(); return nil }); err != nil {
				h.t.Error(err)
			}
		}
	}
	outside := func(f func()) { f() }
	atNode := fmt.Sprint("192.168.77.1:", anyHostPort)
	for _, r := range []outsideRow{
		{"outside", outside, "tcp4", fmt.Sprint("10.200.1.2:", anyHostPort), "web 10.200.1.1"},
		{"outside", outside, "udp4", fmt.Sprint("10.200.1.2:", anyHostPort), "web 10.200.1.1"},
		{"outside, a port of 127.0.0.1 alone", outside, "tcp4", fmt.Sprint("10.200.1.2:", localHostPort), "refused"},
		{"own process", h.nodes[0].in, "tcp4", atNode, "web 192.168.77.1"},
		{"own process", h.nodes[0].in, "udp4", atNode, "web 192.168.77.1"},
		{"own process, 127.0.0.1", h.nodes[0].in, "tcp4", fmt.Sprint("127.0.0.1:", anyHostPort), "web 10.14.1.1"},
		{"own process, 127.0.0.1 alone", h.nodes[0].in, "tcp4", fmt.Sprint("127.0.0.1:", localHostPort), "web 10.14.1.1"},
		{"other Node's process", h.nodes[1].in, "tcp4", atNode, "web 192.168.77.2"},
		{"Pod of the Node", inside(h.asker), "tcp4", atNode, "web " + h.asker.ip},
		{"Pod of the Node", inside(h.asker), "udp4", atNode, "web " + h.asker.ip},
		{"Pod of the other Node", inside(h.far), "tcp4", atNode, "web 192.168.77.2"},
		{"the Pod itself", inside(h.web), "tcp4", atNode, "web 169.254.0.253"},
	} {
		r.name = when + ": " + r.name
		h.check(r)
	}
	h.staysInside(when)
}

// staysInside has the machine outside send frames to 127.0.0.1 with the Node's MAC address, which no socket sends. The
// Pod gets later frames to the Node's address, but not these.
func (h *hostPortsTest) staysInside(when string) {
	h.t.Helper()
	var node *net.Interface
	var err error
	h.nodes[0].in(func() { node, err = net.InterfaceByName("eth0") })
	if err != nil {
		h.t.Fatal(err)
	}
	own, err := net.InterfaceByName("api1")
	if err != nil {
		h.t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer unix.Close(fd)
	send := func(to string, port uint16, word string) error {
		frame := slices.Concat(node.HardwareAddr, own.HardwareAddr, []byte{0x08, 0x00},
			datagram(netip.MustParseAddr("10.200.1.1"), netip.MustParseAddr(to), port, word))
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: own.Index})
	}
	for i := range 3 {
		later := fmt.Sprint(when, ": later ", i)
		h.nodes[0].eventually("the Pod gets a frame to the Node's address", func() error {
			err := errors.Join(send("127.0.0.1", localHostPort, "intruder"), send("127.0.0.1", anyHostPort, "intruder"),
				send("10.200.1.2", anyHostPort, later))
			if _, ok := h.web.received.Load(later); err == nil && !ok {
				err = errors.New("not yet")
			}
			return err
		})
	}
	if _, ok := h.web.received.Load("intruder"); ok {
		h.t.Errorf("%s: a frame of another machine to 127.0.0.1 has come to the Pod", when)
	}
}

// datagram is an IPv4 packet with a UDP datagram, which has no checksum.
func datagram(from, to netip.Addr, port uint16, word string) []byte {
	const header, client, ttl = 20, 40000, 64
	size := uint16(8 + len(word))
	b := make([]byte, 0, header+int(size))
	b = binary.BigEndian.AppendUint16(append(b, 0x45, 0), header+size)
	b = append(b, 0, 0, 0, 0, ttl, unix.IPPROTO_UDP, 0, 0)
	b = slices.Concat(b, from.AsSlice(), to.AsSlice())
	sum := uint32(0)
	for i := 0; i < header; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	for _, field := range []uint16{client, port, size, 0} {
		b = binary.BigEndian.AppendUint16(b, field)
	}
	return append(b, word...)
}

// answers waits until the UDP client outside, which keeps its port, gets answers of a Pod.
func (h *hostPortsTest) answers(when string, from *pod) {
	h.t.Helper()
	h.nodes[0].eventually(when+": "+from.name+" answers a client that keeps its port", func() error {
		answer, err := ask(h.client, "hello", time.Second)
		if err == nil && answer != from.name+" 10.200.1.1 hello" {
			err = fmt.Errorf("answer %q", answer)
		}
		return err
	})
}

// changeHands gives the ports to another Pod. Meanwhile the agent has lost the table.
func (h *hostPortsTest) changeHands() {
	n := h.nodes[0]
	next := n.sandboxed("next", askForPorts)
	err := n.attach(next)
	if err == nil || !strings.Contains(err.Error(), "Pod default/web has port 8443/tcp of this Node") ||
		!strings.Contains(err.Error(), `"code": 11`) {
		h.t.Errorf("ADD of a second Pod: %v", err)
	}
	n.in(func() {
		if out, err := exec.Command("nft", "delete", "table", "inet", "tombolo-hostports").CombinedOutput(); err != nil {
			h.t.Errorf("%v: %s", err, out)
		}
	})
	h.works("after the table was deleted")
	if _, err := n.call("DEL", h.web); err != nil {
		h.t.Fatal(err)
	}
	n.eventually("the table has gone", func() (err error) {
		n.in(func() {
			out, failed := exec.Command("nft", "list", "tables").CombinedOutput()
			if err = failed; err == nil && strings.Contains(string(out), "tombolo-hostports") {
				err = errors.New(string(out))
			}
		})
		return err
	})
	h.check(outsideRow{"without a Pod", func(f func()) { f() }, "tcp4", fmt.Sprint("10.200.1.2:", anyHostPort), "refused"})
	n.eventually("the second Pod is attached", func() error { return n.attach(next) })
	next.serveOutside(h.t, 8080)
	h.answers("after the second Pod has the port", next)
}

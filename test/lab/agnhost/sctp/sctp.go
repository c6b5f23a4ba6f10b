// Package sctp replaces the package of this name that agnhost uses. That package needs SCTP in the kernel. This one
// implements the protocol over raw sockets. The packets are the same, so a network's handling of SCTP can be tested on
// any machine. A process needs CAP_NET_RAW, which containers have.
package sctp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/logging"
	"github.com/pion/sctp"
)

// SCTPAddr is an address and a port.
type SCTPAddr struct {
	IPAddrs []net.IPAddr
	Port    int
}

// Network is part of net.Addr.
func (a *SCTPAddr) Network() string { return "sctp" }

func (a *SCTPAddr) String() string {
	return net.JoinHostPort(a.ip().String(), fmt.Sprint(a.Port))
}

func (a *SCTPAddr) ip() net.IP {
	if a == nil || len(a.IPAddrs) == 0 {
		return net.IPv6unspecified
	}
	return a.IPAddrs[0].IP
}

// ResolveSCTPAddr parses "address:port".
func ResolveSCTPAddr(_, address string) (*SCTPAddr, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	out := &SCTPAddr{Port: a.Port}
	if a.IP != nil {
		out.IPAddrs = []net.IPAddr{{IP: a.IP}}
	}
	return out, nil
}

const (
	headerSize = 12
	chunkInit  = 1
	// inside is the port that the protocol's implementation gives all packets, in both fields.
	inside = 5000
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal writes the ports of a packet and the checksum over it.
func seal(packet []byte, from, to uint16) {
	binary.BigEndian.PutUint16(packet, from)
	binary.BigEndian.PutUint16(packet[2:], to)
	binary.LittleEndian.PutUint32(packet[8:], 0)
	binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, castagnoli))
}

// valid reports whether the checksum of a packet is right.
func valid(packet []byte) bool {
	if len(packet) <= headerSize {
		return false
	}
	have := binary.LittleEndian.Uint32(packet[8:])
	copied := append([]byte(nil), packet...)
	binary.LittleEndian.PutUint32(copied[8:], 0)
	return have == crc32.Checksum(copied, castagnoli)
}

// Raw sockets of the versions of IP. A socket of IPv6 gets no packets of IPv4.
const ipv4, ipv6 = "ip4:132", "ip6:132"

// peer is the far end of an association.
type peer struct {
	ip   netip.Addr
	port uint16
}

// link carries the packets of one association between a raw socket and the protocol's implementation.
type link struct {
	socket *net.IPConn
	local  uint16
	remote peer
	in     chan []byte
	closed chan struct{}
	close  func()
}

func newLink(socket *net.IPConn, local uint16, remote peer, closed func()) *link {
	l := &link{socket: socket, local: local, remote: remote, in: make(chan []byte, 64), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		close(l.closed)
		closed()
	})
	return l
}

func (l *link) Read(p []byte) (int, error) {
	select {
	case packet := <-l.in:
		return copy(p, packet), nil
	case <-l.closed:
		return 0, io.EOF
	}
}

func (l *link) Write(p []byte) (int, error) {
	packet := append([]byte(nil), p...)
	seal(packet, l.local, l.remote.port)
	if _, err := l.socket.WriteToIP(packet, &net.IPAddr{IP: l.remote.ip.AsSlice()}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (l *link) Close() error {
	l.close()
	return nil
}

func (l *link) LocalAddr() net.Addr { return &SCTPAddr{Port: int(l.local)} }

func (l *link) RemoteAddr() net.Addr {
	return &SCTPAddr{IPAddrs: []net.IPAddr{{IP: l.remote.ip.AsSlice()}}, Port: int(l.remote.port)}
}

func (l *link) SetDeadline(time.Time) error      { return nil }
func (l *link) SetReadDeadline(time.Time) error  { return nil }
func (l *link) SetWriteDeadline(time.Time) error { return nil }

// receive hands the packets for a port to get, until the socket is closed.
func receive(socket *net.IPConn, port uint16, get func(from peer, packet []byte)) error {
	buffer := make([]byte, 65536)
	for {
		n, from, err := socket.ReadFromIP(buffer)
		if err != nil {
			return err
		}
		packet := append([]byte(nil), buffer[:n]...)
		ip, ok := netip.AddrFromSlice(from.IP)
		if !ok || !valid(packet) || binary.BigEndian.Uint16(packet[2:]) != port {
			continue
		}
		remote := peer{ip.Unmap(), binary.BigEndian.Uint16(packet)}
		seal(packet, inside, inside)
		get(remote, packet)
	}
}

func (l *link) config() sctp.Config {
	return sctp.Config{NetConn: l, LoggerFactory: logging.NewDefaultLoggerFactory()}
}

// SCTPConn is an association, of which one stream is used.
type SCTPConn struct {
	*sctp.Stream
	association *sctp.Association
	link        *link
	accepted    bool
}

func newConn(a *sctp.Association, l *link, accepted bool) (*SCTPConn, error) {
	stream, err := a.OpenStream(0, sctp.PayloadTypeWebRTCBinary)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return &SCTPConn{Stream: stream, association: a, link: l, accepted: accepted}, nil
}

// DialSCTP waits for the far end as long as the protocol tries.
func DialSCTP(_ string, _, to *SCTPAddr) (*SCTPConn, error) {
	ip, _ := netip.AddrFromSlice(to.ip())
	version := ipv4
	if ip = ip.Unmap(); ip.Is6() {
		version = ipv6
	}
	socket, err := net.ListenIP(version, nil)
	if err != nil {
		return nil, err
	}
	l := newLink(socket, uint16(32768+rand.IntN(28000)), peer{ip, uint16(to.Port)}, func() { socket.Close() })
	go receive(socket, l.local, func(from peer, packet []byte) {
		if from == l.remote {
			l.in <- packet
		}
	})
	a, err := sctp.Client(l.config())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return newConn(a, l, false)
}

// SCTPRemoteAddr is the far end.
func (c *SCTPConn) SCTPRemoteAddr(int) (*SCTPAddr, error) {
	return c.link.RemoteAddr().(*SCTPAddr), nil
}

// Close ends the association in order. On a server it waits up to a second until the client ends first, since the
// client may not have written yet.
func (c *SCTPConn) Close() error {
	shutdown := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if c.association.Shutdown(ctx) != nil { // the far end was first
			c.association.Close()
		}
	}
	if !c.accepted {
		shutdown()
		return nil
	}
	go func() {
		c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.Copy(io.Discard, c.Stream); err != nil {
			shutdown()
		}
		c.association.Close()
	}()
	return nil
}

// SCTPListener waits for associations to one port.
type SCTPListener struct {
	sockets  []*net.IPConn // of each version of IP that the Pod has
	accepted chan *SCTPConn
	failed   chan error
}

// ListenSCTP listens at all addresses.
func ListenSCTP(_ string, at *SCTPAddr) (*SCTPListener, error) {
	l := &SCTPListener{accepted: make(chan *SCTPConn), failed: make(chan error, 2)}
	var failed error
	for _, version := range []string{ipv4, ipv6} {
		socket, err := net.ListenIP(version, nil)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		l.sockets = append(l.sockets, socket)
		go l.serve(socket, uint16(at.Port))
	}
	if len(l.sockets) == 0 {
		return nil, failed
	}
	return l, nil
}

func (l *SCTPListener) serve(socket *net.IPConn, port uint16) {
	var mu sync.Mutex
	links := map[peer]*link{}
	l.failed <- receive(socket, port, func(from peer, packet []byte) {
		mu.Lock()
		defer mu.Unlock()
		to, ok := links[from]
		if !ok {
			if packet[headerSize] != chunkInit {
				return
			}
			to = newLink(socket, port, from, func() {
				mu.Lock()
				defer mu.Unlock()
				delete(links, from)
			})
			links[from] = to
			go func() {
				a, err := sctp.Server(to.config())
				if err != nil {
					to.Close()
					return
				}
				if c, err := newConn(a, to, true); err == nil {
					l.accepted <- c
				}
			}()
		}
		select {
		case to.in <- packet:
		default: // as a network would; the far end repeats it
		}
	})
}

// AcceptSCTP returns the next association.
func (l *SCTPListener) AcceptSCTP() (*SCTPConn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case err := <-l.failed:
		return nil, err
	}
}

// Close ends listening.
func (l *SCTPListener) Close() (err error) {
	for _, socket := range l.sockets {
		err = errors.Join(err, socket.Close())
	}
	return err
}

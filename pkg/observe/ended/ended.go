// Package ended reads connections when the kernel's connection tracking forgets them, with their numbers of packets and
// bytes.
package ended

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/ti-mo/netfilter"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Connection is a connection as the kernel tracks it, or has tracked it until now.
type Connection struct {
	Protocol uint8
	// Client and Server are the ends of the connection in packets to the server. If the connection was to a Service,
	// Server is the endpoint. The ports are 0 for protocols without ports.
	Client, Server netip.AddrPort
	// Asked is the destination of the client's first packet.
	Asked netip.AddrPort
	Mark  uint32
	// Sent and Received are counted from the client's view. Counted is false for a connection that began while
	// net.netfilter.nf_conntrack_acct was 0.
	Sent, Received Counter
	Counted        bool
	Began          time.Time // zero, unless net.netfilter.nf_conntrack_timestamp is 1
}

// Counter counts the packets of one direction.
type Counter struct{ Packets, Bytes uint64 }

// Events reads the ends of the connections of one zone.
type Events struct {
	conn  *netlink.Conn
	drops uint32
}

// Numbers of the kernel's netlink messages (linux/netfilter/nfnetlink_conntrack.h).
const (
	attributesAt = unix.SizeofNlMsghdr + 4 // behind nfgenmsg
	ctaZone      = 18
	readBuffer   = 4 << 20 // some 5,000 events
)

// Listen begins to read the ends of connections of a zone. The kernel filters by the zone, so the host's connections
// cost the reader nothing. namespace is an open network namespace, or 0 for the thread's own one.
func Listen(zone uint16, namespace int) (*Events, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: namespace})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for connections: %w", err)
	}
	e := &Events{conn: conn}
	filter, err := ofZone(zone)
	if err == nil {
		err = conn.SetBPF(filter)
	}
	if err == nil {
		err = conn.SetReadBuffer(readBuffer)
	}
	if err == nil {
		err = conn.JoinGroup(uint32(netfilter.GroupCTDestroy))
	}
	if err == nil {
		e.drops, err = e.dropped()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen to the ends of connections: %w", err)
	}
	return e, nil
}

// ofZone is a filter for messages about connections of a zone.
func ofZone(zone uint16) ([]bpf.RawInstruction, error) {
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadConstant{Dst: bpf.RegA, Val: attributesAt},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ctaZone},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttr}, // A: where the attribute begins, or 0
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		bpf.TAX{},
		bpf.LoadIndirect{Off: unix.SizeofNlAttr, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(zone), SkipTrue: 1},
		bpf.RetConstant{Val: 1<<32 - 1},
		bpf.RetConstant{Val: 0},
	})
}

// Read waits for connections that end. lost is how many earlier ends are missing: the kernel has dropped them because
// the reader was too slow, or their form is unknown. After an error, the reader has to be closed.
func (e *Events) Read() (list []Connection, lost uint64, err error) {
	messages, err := e.conn.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		drops, err := e.dropped()
		lost = uint64(drops - e.drops) // also if the number has begun again
		e.drops = drops
		return nil, max(lost, 1), err
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read ends of connections: %w", err)
	}
	for _, m := range messages {
		c, err := parse(m)
		if err != nil {
			lost++
			continue
		}
		list = append(list, c)
	}
	return list, lost, nil
}

// Close ends Read.
func (e *Events) Close() error { return e.conn.Close() }

// dropped is the number of messages that the kernel had no room for in the socket.
func (e *Events) dropped() (uint32, error) {
	raw, err := e.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info [9]uint32 // SK_MEMINFO_VARS of linux/sock_diag.h; the last is SK_MEMINFO_DROPS
	size := uint32(unsafe.Sizeof(info))
	var failed unix.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err == nil && failed != 0 {
		err = fmt.Errorf("read the memory of the socket: %w", failed)
	}
	return info[8], err
}

// parse reads an event.
func parse(m netlink.Message) (Connection, error) {
	var event conntrack.Event
	if err := event.Unmarshal(m); err != nil {
		return Connection{}, err
	}
	if event.Type != conntrack.EventDestroy || event.Flow == nil {
		return Connection{}, errors.New("it is not about the end of a connection")
	}
	return of(event.Flow)
}

// of is a connection in the library's form.
func of(f *conntrack.Flow) (Connection, error) {
	orig, reply := f.TupleOrig, f.TupleReply
	for _, ip := range []netip.Addr{orig.IP.SourceAddress, orig.IP.DestinationAddress, reply.IP.SourceAddress,
		reply.IP.DestinationAddress} {
		if !ip.IsValid() {
			return Connection{}, errors.New("an address is missing")
		}
	}
	return Connection{
		Protocol: orig.Proto.Protocol, Mark: f.Mark, Began: f.Timestamp.Start,
		Client:   netip.AddrPortFrom(reply.IP.DestinationAddress, reply.Proto.DestinationPort),
		Server:   netip.AddrPortFrom(reply.IP.SourceAddress, reply.Proto.SourcePort),
		Asked:    netip.AddrPortFrom(orig.IP.DestinationAddress, orig.Proto.DestinationPort),
		Sent:     Counter{f.CountersOrig.Packets, f.CountersOrig.Bytes},
		Received: Counter{f.CountersReply.Packets, f.CountersReply.Bytes},
		Counted:  f.CountersOrig.Packets+f.CountersReply.Packets > 0,
	}, nil
}

// Tracked lists the connections of a zone that the kernel tracks now. The kernel filters by the zone from Linux 6.8 on;
// with an older kernel the list of all zones is read.
func Tracked(zone uint16, namespace int) ([]Connection, error) {
	conn, err := conntrack.Dial(&netlink.Config{NetNS: namespace})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for connections: %w", err)
	}
	defer func() { _ = conn.Close() }()
	flows, err := conn.DumpFilter(conntrack.NewFilter().Zone(zone), nil)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	var out []Connection
	for i := range flows {
		if flows[i].Zone != zone {
			continue
		}
		if c, err := of(&flows[i]); err == nil {
			out = append(out, c)
		}
	}
	return out, nil
}

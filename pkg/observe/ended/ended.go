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
	// Zone is 0 for connections of the main zone.
	Zone uint16
	// Sent and Received are counted from the client's view. Counted is false for a connection that began while
	// net.netfilter.nf_conntrack_acct was 0.
	Sent, Received Counter
	Counted        bool
	Began          time.Time // zero, unless net.netfilter.nf_conntrack_timestamp is 1
}

// Counter counts the packets of one direction.
type Counter struct{ Packets, Bytes uint64 }

// Zones are zones of connection tracking: Main, and from 1 to Last.
type Zones struct{ Main, Last uint16 }

func (z Zones) has(zone uint16) bool { return zone == z.Main || zone > 0 && zone <= z.Last }

// of returns the zone of a connection, 0 for the main one.
func (z Zones) of(zone uint16) uint16 {
	if zone == z.Main {
		return 0
	}
	return zone
}

// Events reads the ends of the connections of some zones.
type Events struct {
	conn  *netlink.Conn
	zones Zones
	drops uint32
}

// Numbers of the kernel's netlink messages (linux/netfilter/nfnetlink_conntrack.h).
const (
	attributesAt = unix.SizeofNlMsghdr + 4 // behind nfgenmsg
	ctaZone      = 18
	readBuffer   = 4 << 20 // some 5,000 events
)

// Listen begins to read the ends of connections of zones. The kernel filters by the zone, so the host's connections
// cost the reader nothing. namespace is an open network namespace, or 0 for the thread's own one.
func Listen(zones Zones, namespace int) (*Events, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: namespace})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for connections: %w", err)
	}
	e := &Events{conn: conn, zones: zones}
	filter, err := ofZones(zones)
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

// ofZones is a filter for messages about connections of zones.
func ofZones(zones Zones) ([]bpf.RawInstruction, error) {
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadConstant{Dst: bpf.RegA, Val: attributesAt},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ctaZone},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttr}, // A: where the attribute begins, or 0
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 6},
		bpf.TAX{},
		bpf.LoadIndirect{Off: unix.SizeofNlAttr, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(zones.Main), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(zones.Last), SkipTrue: 1},
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
		c, err := e.zones.parse(m)
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
func (z Zones) parse(m netlink.Message) (Connection, error) {
	var event conntrack.Event
	if err := event.Unmarshal(m); err != nil {
		return Connection{}, err
	}
	if event.Type != conntrack.EventDestroy || event.Flow == nil {
		return Connection{}, errors.New("it is not about the end of a connection")
	}
	return z.connection(event.Flow)
}

// connection reads a connection in the library's form.
func (z Zones) connection(f *conntrack.Flow) (Connection, error) {
	orig, reply := f.TupleOrig, f.TupleReply
	for _, ip := range []netip.Addr{orig.IP.SourceAddress, orig.IP.DestinationAddress, reply.IP.SourceAddress,
		reply.IP.DestinationAddress} {
		if !ip.IsValid() {
			return Connection{}, errors.New("an address is missing")
		}
	}
	return Connection{
		Protocol: orig.Proto.Protocol, Mark: f.Mark, Zone: z.of(f.Zone), Began: f.Timestamp.Start,
		Client:   netip.AddrPortFrom(reply.IP.DestinationAddress, reply.Proto.DestinationPort),
		Server:   netip.AddrPortFrom(reply.IP.SourceAddress, reply.Proto.SourcePort),
		Asked:    netip.AddrPortFrom(orig.IP.DestinationAddress, orig.Proto.DestinationPort),
		Sent:     Counter{f.CountersOrig.Packets, f.CountersOrig.Bytes},
		Received: Counter{f.CountersReply.Packets, f.CountersReply.Bytes},
		Counted:  f.CountersOrig.Packets+f.CountersReply.Packets > 0,
	}, nil
}

// Tracked lists the connections of zones that the kernel tracks now. The kernel filters by one zone from Linux 6.8 on.
// With an older kernel, and with several zones, the list of all zones is read.
func Tracked(zones Zones, namespace int) ([]Connection, error) {
	conn, err := conntrack.Dial(&netlink.Config{NetNS: namespace})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for connections: %w", err)
	}
	defer func() { _ = conn.Close() }()
	filter := conntrack.NewFilter()
	if zones.Last == 0 {
		filter = filter.Zone(zones.Main)
	}
	flows, err := conn.DumpFilter(filter, nil)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	var out []Connection
	for i := range flows {
		if !zones.has(flows[i].Zone) {
			continue
		}
		if c, err := zones.connection(&flows[i]); err == nil {
			out = append(out, c)
		}
	}
	return out, nil
}

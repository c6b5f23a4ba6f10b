package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These functions read connections that the host's kernel tracks. There may be a million, so connections are read one
// after the other, and no list is kept. The kernel selects them by a filter (Linux 5.8 for protocols, 5.13 for
// translations). An older kernel ignores the filter, so each connection is checked here as well.

// connection is a connection that the kernel tracks.
type connection struct {
	protocol byte
	zone     uint16         // 0 is the host's, others are the switch's
	to       netip.AddrPort // the destination of its first packet
	answers  netip.AddrPort // the source of its replies; another one than to if the destination was translated
	tcp      uint8          // the state of a TCP connection
}

// connectionFilter selects connections in the kernel.
type connectionFilter int

const (
	translatedConnections connectionFilter = iota // the host has translated their destination
	datagramConnections                           // UDP
)

// These are constants of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h that the libraries lack.
const (
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	ctaStatusMask      = 26
	filterProtocol     = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	statusDestination  = 1 << 5 // IPS_DST_NAT
)

// attributes ask the kernel for the filter.
func (f connectionFilter) attributes() []nl.NetlinkRequestData {
	if f == translatedConnections {
		return []nl.NetlinkRequestData{
			nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(statusDestination)),
			nl.NewRtAttr(ctaStatusMask, nl.BEUint32Attr(statusDestination)),
		}
	}
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil).AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP})
	flags := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	flags.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(filterProtocol))
	return []nl.NetlinkRequestData{tuple, flags}
}

// socketFamily returns the family of sockets of an address.
func socketFamily(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// listConnections calls each for every connection of a family that matches a filter. key identifies the connection to
// the kernel. It is valid only during the call.
func listConnections(family uint8, filter connectionFilter, each func(c connection, key []byte)) error {
	req := connectionRequest(family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	for _, a := range filter.attributes() {
		req.AddData(a)
	}
	return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if c, ok := parseConnection(msg); ok {
			each(c, msg)
		}
		return true
	})
}

// connectionRequest begins a request about connections of a family. The kernel filters by protocol only if the request
// names a family.
func connectionRequest(family uint8, operation, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

// parseConnection reads a connection as the kernel lists it. It returns false for a message of another form.
func parseConnection(msg []byte) (c connection, ok bool) {
	if len(msg) < nl.SizeofNfgenmsg {
		return c, false
	}
	msg = msg[nl.SizeofNfgenmsg:]
	first, back := nested(msg, nl.CTA_TUPLE_ORIG), nested(msg, nl.CTA_TUPLE_REPLY)
	c.to = endOf(first, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
	c.answers = endOf(back, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
	if number := nested(first, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM); len(number) > 0 {
		c.protocol = number[0]
	}
	if zone := nested(msg, nl.CTA_ZONE); len(zone) >= 2 {
		c.zone = binary.BigEndian.Uint16(zone)
	}
	if state := nested(msg, nl.CTA_PROTOINFO, nl.CTA_PROTOINFO_TCP, nl.CTA_PROTOINFO_TCP_STATE); len(state) > 0 {
		c.tcp = state[0]
	}
	return c, c.to.Addr().IsValid() && c.answers.Addr().IsValid()
}

// endOf reads one end of a tuple. A protocol without ports has the port 0.
func endOf(tuple []byte, v4, v6, port uint16) netip.AddrPort {
	ip, ok := netip.AddrFromSlice(nested(tuple, nl.CTA_TUPLE_IP, v4))
	if !ok {
		ip, _ = netip.AddrFromSlice(nested(tuple, nl.CTA_TUPLE_IP, v6))
	}
	var number uint16
	if text := nested(tuple, nl.CTA_TUPLE_PROTO, port); len(text) >= 2 {
		number = binary.BigEndian.Uint16(text)
	}
	return netip.AddrPortFrom(ip, number)
}

// nested returns the value of an attribute that is nested in others, or nil without such an attribute. It allocates no
// memory.
func nested(value []byte, path ...uint16) []byte {
	for _, kind := range path {
		value = attribute(value, kind)
	}
	return value
}

// attribute returns the value of the first attribute of a kind; nil without such an attribute.
func attribute(list []byte, kind uint16) []byte {
	for len(list) >= nl.SizeofNfattr {
		length := int(nl.NativeEndian().Uint16(list))
		if length < nl.SizeofNfattr || length > len(list) {
			return nil
		}
		if nl.NativeEndian().Uint16(list[2:])&nl.NLA_TYPE_MASK == kind {
			return list[nl.SizeofNfattr:length]
		}
		list = list[min((length+3)&^3, len(list)):]
	}
	return nil
}

// endConnections ends the connections of a family that match, and returns how many.
func endConnections(family uint8, filter connectionFilter, match func(connection) bool) (ended int, err error) {
	var keys [][]byte
	listed := listConnections(family, filter, func(c connection, key []byte) {
		if match(c) {
			keys = append(keys, slices.Clone(key))
		}
	})
	if listed != nil && !errors.Is(listed, netlink.ErrDumpInterrupted) {
		return 0, fmt.Errorf("list connections of the host: %w", listed)
	}
	failed := listed
	for _, key := range keys {
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
		req.AddRawData(key)
		if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
			continue
		}
		ended++
	}
	if failed != nil {
		return ended, fmt.Errorf("end %d of %d connections of the host: %w", len(keys)-ended, len(keys), failed)
	}
	return ended, nil
}

// endDatagrams ends UDP connections of the host. A failure concerns only these connections: it is reported, and the
// caller tries again.
func (t *translatedTable) endDatagrams(a *applier, filter connectionFilter, which func(connection) bool) (done bool) {
	object := problem.Object{Kind: "connections", Name: "udp"}
	ended, err := t.end(socketFamily(t.ip.example), filter, func(c connection) bool {
		return c.protocol == unix.IPPROTO_UDP && c.zone == 0 && which(c)
	})
	if ended > 0 {
		a.change(nil, object, "", "end %d that go past the translation", ended)
	}
	if err != nil {
		a.report(object,
			"clients of UDP that keep their port may go on to where they went before: %v; it is tried again", err)
	}
	return err == nil
}

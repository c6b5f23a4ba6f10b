package hostnet

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// element is an entry of a map with translations, or of a set with addresses. There may be forty thousand elements, so
// they contain numbers in place of names and pointers.
type element struct {
	in       uint8 // place of the map's or set's name in places
	protocol uint8 // 0 in a set
	port     uint16
	address  address // the zero value in a map without addresses
}

// address is an address of either version as in IPv6.
type address [16]byte

// destination is an address and port. The zero value stands for no destination.
type destination struct {
	address address
	port    uint16
}

// valued is an element with its value.
type valued struct {
	element
	to destination
}

// places are the names of the maps and sets with elements of translations.
var places = []string{nodePortIn, nodePortOut, externalIn, externalOut, externalSet, hostPortAny, hostPortAt}

// protocolNames are the names of protocols by number.
var protocolNames = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}

// protocolOf returns the number of a protocol by its name, or by its number as text, which nft prints where there is no
// /etc/protocols. For an unknown protocol it returns 0.
func protocolOf(text string) uint8 {
	switch text {
	case "tcp", "6":
		return unix.IPPROTO_TCP
	case "udp", "17":
		return unix.IPPROTO_UDP
	case "sctp", "132":
		return unix.IPPROTO_SCTP
	}
	return 0
}

func addressOf(ip netip.Addr) address {
	if !ip.IsValid() {
		return address{}
	}
	return ip.As16()
}

func (a address) ip() netip.Addr {
	if a == (address{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a).Unmap()
}

func destinationOf(to netip.AddrPort) destination {
	return destination{addressOf(to.Addr()), to.Port()}
}

func (d destination) valid() bool { return d.address != address{} }

// elementOf returns the element of a map for an address, which may be none, a protocol and a port.
func elementOf(in string, ip netip.Addr, protocol string, port uint16) element {
	return element{uint8(slices.Index(places, in)), protocolOf(protocol), port, addressOf(ip)}
}

func (e element) name() string { return places[e.in] }

func (e element) key() []string {
	var out []string
	if ip := e.address.ip(); ip.IsValid() {
		out = append(out, ip.String())
	}
	if e.protocol != 0 {
		out = append(out, protocolNames[e.protocol], strconv.Itoa(int(e.port)))
	}
	return out
}

// parseElement reads an element as nft lists it.
func parseElement(in string, byAddress bool, one *knftables.Element) (e element, to destination, ok bool) {
	key := one.Key
	var ip netip.Addr
	if byAddress {
		var err error
		if ip, err = netip.ParseAddr(key[0]); err != nil {
			return e, to, false
		}
		key = key[1:]
	}
	if len(key) != 2 || len(one.Value) != 2 {
		return e, to, false
	}
	port, err := strconv.ParseUint(key[1], 10, 16)
	if err != nil {
		return e, to, false
	}
	e = elementOf(in, ip, key[0], uint16(port))
	at, err := netip.ParseAddrPort(net.JoinHostPort(one.Value[0], one.Value[1]))
	return e, destinationOf(at), err == nil && e.protocol != 0
}

package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

// Announce announces an address of the Node to the neighbours on its links. Neighbours that know another MAC take the
// new one. It sends a gratuitous ARP request and an answer, or an unsolicited Neighbor Advertisement, on each link
// whose network has the address. An address that no network of the Node has is announced nowhere.
func Announce(ip netip.Addr) error {
	version, announce := netlink.FAMILY_V4, announceOn
	if ip.Is6() {
		version, announce = netlink.FAMILY_V6, advertiseOn
	}
	list, err := rtnetlink.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, version) })
	if err != nil {
		return fmt.Errorf("announce %s: read the Node's addresses: %w", ip, err)
	}
	var failed error
	for _, index := range linksOf(list, ip) {
		link, err := net.InterfaceByIndex(index)
		if err != nil || len(link.HardwareAddr) != macLen {
			continue // it is gone, or has no MAC
		}
		if err := announce(link, ip); err != nil {
			failed = errors.Join(failed, fmt.Errorf("announce %s on %s: %w", ip, link.Name, err))
		}
	}
	return failed
}

const (
	macLen = 6
	arpLen = 28
)

// Operations of ARP (RFC 826).
const (
	arpRequest = 1
	arpAnswer  = 2
)

func announceOn(link *net.Interface, ip netip.Addr) error {
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index, Halen: macLen}
	for i := range macLen {
		to.Addr[i] = 0xff
	}
	for _, operation := range []uint16{arpRequest, arpAnswer} { // some systems take the one, some the other
		if err := unix.Sendto(fd, arpOf(operation, link.HardwareAddr, ip), 0, to); err != nil {
			return err
		}
	}
	return nil
}

// arpOf is a gratuitous ARP packet without its Ethernet header: sender and target have one address.
func arpOf(operation uint16, mac net.HardwareAddr, ip netip.Addr) []byte {
	out := make([]byte, 0, arpLen)
	out = binary.BigEndian.AppendUint16(out, 1) // Ethernet
	out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IP)
	out = append(out, macLen, 4)
	out = binary.BigEndian.AppendUint16(out, operation)
	out = append(append(out, mac...), ip.AsSlice()...)
	if operation == arpRequest {
		return append(append(out, make([]byte, macLen)...), ip.AsSlice()...)
	}
	return append(append(out, mac...), ip.AsSlice()...)
}

// advertiseOn sends an unsolicited Neighbor Advertisement (RFC 4861, 7.2.6) to all neighbours of a link. Linux computes
// the checksum.
func advertiseOn(link *net.Interface, ip netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	const advertisement, override, targetMAC = 136, 1 << 5, 2
	out := append([]byte{advertisement, 0, 0, 0, override, 0, 0, 0}, ip.AsSlice()...)
	out = append(append(out, targetMAC, 1), link.HardwareAddr...)
	to := &unix.SockaddrInet6{ZoneId: uint32(link.Index), Addr: netip.IPv6LinkLocalAllNodes().As16()}
	return unix.Sendto(fd, out, 0, to)
}

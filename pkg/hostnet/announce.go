package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Announce announces an address of the Node to the neighbours on its links. It sends a gratuitous ARP request and an
// answer on each link whose network has the address. An address that no network of the Node has is announced nowhere.
func Announce(ip netip.Addr) error {
	if !ip.Is4() {
		return nil
	}
	list, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("announce %s: read the Node's addresses: %w", ip, err)
	}
	var failed error
	done := map[int]bool{}
	for _, a := range list {
		p, ok := prefixOf(a.IPNet)
		if !ok || p.IsSingleIP() || !p.Contains(ip) || done[a.LinkIndex] {
			continue
		}
		done[a.LinkIndex] = true
		link, err := net.InterfaceByIndex(a.LinkIndex)
		if err != nil || len(link.HardwareAddr) != macLen {
			continue // it is gone, or has no ARP
		}
		if err := announceOn(link, ip); err != nil {
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

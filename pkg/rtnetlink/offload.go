package rtnetlink

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is work that a link may leave to the receiver of its packets: a command of linux/ethtool.h.
type Offload uint32

// Offloads.
const (
	// ChecksumOffload is of packets that are sent. Segmentation offload, which the kernel allows only together with it,
	// goes with it.
	ChecksumOffload Offload = 0x17 // ETHTOOL_STXCSUM
	// TCPSegmentationOffload and SegmentationOffload have the link cut packets that are sent.
	TCPSegmentationOffload Offload = 0x1f // ETHTOOL_STSO
	SegmentationOffload    Offload = 0x24 // ETHTOOL_SGSO
	// ReceiveOffload puts packets that are received together (GRO).
	ReceiveOffload Offload = 0x2c // ETHTOOL_SGRO
)

// SwitchOff switches an offload of a link off. It is one request, where reading and setting features by name is five.
// The library for these also keeps addresses in numbers, by which a stack that grows meanwhile loses the answer.
func SwitchOff(link string, what Offload) error {
	value := struct{ command, on uint32 }{command: uint32(what)}
	request := struct { // struct ifreq
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		_     [16]byte
	}{value: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], link)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if _, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); err != 0 {
		return fmt.Errorf("switch offload %#x of %s off: %w", uint32(what), link, err)
	}
	return nil
}

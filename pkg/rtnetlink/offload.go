package rtnetlink

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is work on packets that a link may leave to their receiver. Its value is a command of linux/ethtool.h.
type Offload uint32

// Offloads.
const (
	// ChecksumOffload is about packets that are sent. Switching it off also ends segmentation offload, which the kernel
	// allows only together with it.
	ChecksumOffload Offload = 0x17 // ETHTOOL_STXCSUM
	// TCPSegmentationOffload and SegmentationOffload have the link cut packets that are sent.
	TCPSegmentationOffload Offload = 0x1f // ETHTOOL_STSO
	SegmentationOffload    Offload = 0x24 // ETHTOOL_SGSO
	// ReceiveOffload puts packets that are received together (GRO).
	ReceiveOffload Offload = 0x2c // ETHTOOL_SGRO
)

// SwitchOff switches an offload of a link off with one request. Reading and setting features by name would take five.
// The library for that also stores addresses as integers, so the answer is lost if the goroutine's stack moves
// meanwhile.
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
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("switch offload %#x of %s off: %w", uint32(what), link, errno)
	}
	return nil
}

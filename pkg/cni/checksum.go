package cni

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// checksumInSoftware switches transmit checksum offload off, and with it segmentation offload, which the
// kernel allows only together with it. It is one request, where reading and setting the features by
// name is five.
func checksumInSoftware(link string) error {
	const setTXChecksum = 0x17 // ETHTOOL_STXCSUM, linux/ethtool.h
	value := struct{ command, on uint32 }{command: setTXChecksum}
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
		return fmt.Errorf("switch checksum offload of %s off: %w", link, err)
	}
	return nil
}

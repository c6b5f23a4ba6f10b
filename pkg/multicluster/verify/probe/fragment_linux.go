package probe

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dontFragment makes the kernel fragment no packets, and ignore learned path MTUs, since the probe measures the path
// itself. A socket of IPv6 may serve both versions of IP, so it gets both options.
func dontFragment(network, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		if failed == nil && network == "udp6" {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		}
	}); err != nil {
		return err
	}
	return failed
}

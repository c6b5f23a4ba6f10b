package probe

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dontFragment sets DF and leaves what the kernel has learned about paths aside: the probe asks the path itself.
func dontFragment(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}); err != nil {
		return err
	}
	return failed
}

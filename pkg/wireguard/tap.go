package wireguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// A userspace switch sends Ethernet frames through devices, and WireGuard carries IP packets: tap converts between
// them. All peers are behind one address of the link, which answers all ARP requests.

const (
	ethernet  = 14 // bytes of the header
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeARP   = 0x0806
	arpLength = 28
	maxFrame  = ethernet + 65535
)

// tap is a TAP device as one of IP packets.
type tap struct {
	file    *os.File
	name    string
	events  chan tun.Event
	closing sync.Once
	frame   []byte // of Read

	mu   sync.Mutex
	near net.HardwareAddr // of the switch's port
	out  []byte           // of Write
}

// farAddr is the peers' address on the link of a switch's port.
func farAddr(near net.HardwareAddr) net.HardwareAddr {
	far := append(net.HardwareAddr(nil), near...)
	far[len(far)-1] ^= 1
	return far
}

func openTAP(name string, near net.HardwareAddr) (*tap, error) {
	if len(near) != 6 {
		return nil, fmt.Errorf("its address %q is not one of Ethernet", near)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	t := &tap{
		file: os.NewFile(uintptr(fd), "/dev/net/tun"), name: name, near: near,
		events: make(chan tun.Event, 1), frame: make([]byte, maxFrame), out: make([]byte, maxFrame),
	}
	t.events <- tun.EventUp
	return t, nil
}

// setNear sets the MAC of the switch's port.
func (t *tap) setNear(near net.HardwareAddr) {
	if len(near) != 6 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.near = near
}

func (t *tap) far() net.HardwareAddr {
	t.mu.Lock()
	defer t.mu.Unlock()
	return farAddr(t.near)
}

func (t *tap) File() *os.File           { return t.file }
func (t *tap) Name() (string, error)    { return t.name, nil }
func (t *tap) Events() <-chan tun.Event { return t.events }
func (t *tap) BatchSize() int           { return 1 }

// MTU is the link's, as it is now.
func (t *tap) MTU() (int, error) {
	link, err := netlink.LinkByName(t.name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().MTU, nil
}

func (t *tap) Close() error {
	var err error
	t.closing.Do(func() {
		err = t.file.Close()
		close(t.events)
	})
	return err
}

// Read returns the next IP packet that the switch sends, and answers ARP requests.
func (t *tap) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		n, err := t.file.Read(t.frame)
		if err != nil {
			// The library closes the device after any error except ErrTooManySegments or closed. A link that is only down must
			// not cause that.
			if errors.Is(err, unix.EBADFD) {
				return 0, os.ErrClosed
			}
			return 0, err
		}
		frame := t.frame[:n]
		if isARP(frame) {
			answer := arpAnswer(frame, t.far())
			if answer == nil {
				continue
			}
			if _, err := t.file.Write(answer); err != nil && !errors.Is(err, unix.EIO) {
				return 0, err
			}
			continue
		}
		packet, ok := ipOf(frame)
		if !ok || len(packet) > len(bufs[0])-offset {
			continue
		}
		sizes[0] = copy(bufs[0][offset:], packet)
		return 1, nil
	}
}

// Write hands packets of peers to the switch.
func (t *tap) Write(bufs [][]byte, offset int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	far := farAddr(t.near)
	for i, b := range bufs {
		packet := b[offset:]
		if len(packet) == 0 || len(packet) > maxFrame-ethernet {
			continue
		}
		kind := uint16(typeIPv4)
		if packet[0]>>4 == 6 {
			kind = typeIPv6
		}
		frame := header(t.out, t.near, far, kind)
		frame = append(frame, packet...)
		if _, err := t.file.Write(frame); err != nil && !errors.Is(err, unix.EIO) { // EIO: the link is down
			if errors.Is(err, unix.EBADFD) {
				err = io.ErrClosedPipe
			}
			return i, err
		}
	}
	return len(bufs), nil
}

// header begins a frame in a buffer.
func header(buf []byte, dst, src net.HardwareAddr, kind uint16) []byte {
	frame := append(buf[:0], dst...)
	frame = append(frame, src...)
	return binary.BigEndian.AppendUint16(frame, kind)
}

// ipOf is the IP packet in a frame.
func ipOf(frame []byte) ([]byte, bool) {
	if len(frame) <= ethernet {
		return nil, false
	}
	packet := frame[ethernet:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeIPv4:
		if len(packet) < 20 || packet[0]>>4 != 4 {
			return nil, false
		}
		// Short frames are padded.
		if total := int(binary.BigEndian.Uint16(packet[2:])); total >= 20 && total <= len(packet) {
			return packet[:total], true
		}
		return nil, false
	case typeIPv6:
		return packet, len(packet) >= 40 && packet[0]>>4 == 6
	}
	return nil, false
}

func isARP(frame []byte) bool {
	return len(frame) >= ethernet && binary.BigEndian.Uint16(frame[12:]) == typeARP
}

// arpAnswer answers a request for an address (RFC 826). It returns nil for other frames. A host that asks for its own
// address only looks for duplicates (RFC 5227), and gets no answer.
func arpAnswer(frame []byte, far net.HardwareAddr) []byte {
	if !isARP(frame) || len(frame) < ethernet+arpLength {
		return nil
	}
	request := frame[ethernet : ethernet+arpLength]
	const asked = "\x00\x01\x08\x00\x06\x04\x00\x01" // Ethernet, IPv4, lengths, request
	if string(request[:8]) != asked {
		return nil
	}
	senderMAC, sender, target := request[8:14], request[14:18], request[24:28]
	if string(sender) == string(target) || string(sender) == "\x00\x00\x00\x00" {
		return nil
	}
	answer := header(nil, senderMAC, far, typeARP)
	answer = append(answer, asked[:7]...)
	answer = append(answer, 2)
	answer = append(answer, far...)
	answer = append(answer, target...)
	answer = append(answer, senderMAC...)
	return append(answer, sender...)
}

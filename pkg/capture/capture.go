package capture

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// Options are the parameters of a capture.
type Options struct {
	Interface string
	Filter    Filter
	// Most is the number of packets after which the capture ends; 0 for no such end.
	Most int
	// To takes the stream.
	To io.Writer
	// Live hands each packet to To at once.
	Live bool
	// Room reports whether To may grow by a number of bytes. It may be nil. It is called for each packet.
	Room func(bytes int) bool
	// Started is called when the capture receives packets, and Captured with the number of packets so far. Both may be
	// nil.
	Started  func()
	Captured func(int)
}

// ErrFull is the error of a capture that has no room for a packet.
var ErrFull = errors.New("there is no room for more packets")

// receiveBuffer is how many bytes of packets may wait in the kernel. If it is full, the kernel drops packets.
const receiveBuffer = 4 << 20

// blockSize returns the size of the block of a packet of n bytes: the header, the bytes with padding, and the length.
func blockSize(n int) int { return 28 + (n+3)&^3 + 4 }

// Run captures until ctx ends, the number of packets is reached, there is no room left, or the interface disappears. It
// returns the number of packets in To. Without an error that is the requested number. To has a valid stream unless a
// write to it has failed.
func Run(ctx context.Context, o Options) (captured int, err error) {
	conn, err := open(o.Interface, o.Filter)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	of := pcapgo.NgInterface{Name: o.Interface, OS: "linux", LinkType: layers.LinkTypeEthernet, SnapLength: SnapLength,
		TimestampResolution: 9}
	out, err := pcapgo.NewNgWriterInterface(bufio.NewWriterSize(o.To, 1<<16), of, pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{OS: "linux", Application: "tombolo"}})
	if err != nil {
		return 0, fmt.Errorf("begin the capture: %w", err)
	}
	if err := out.Flush(); err != nil { // a reader has the head before the first packet
		return 0, fmt.Errorf("begin the capture: %w", err)
	}
	defer func() {
		if e := out.Flush(); err == nil && e != nil {
			err = fmt.Errorf("write packets: %w", e)
		}
	}()
	if o.Started != nil {
		o.Started()
	}
	data, control := make([]byte, SnapLength), make([]byte, 512)
	for o.Most == 0 || captured < o.Most {
		n, oobn, _, _, err := conn.Recvmsg(context.Background(), data, control, 0)
		switch {
		case ctx.Err() != nil:
			return captured, ctx.Err()
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENETDOWN):
			if _, err := net.InterfaceByName(o.Interface); err != nil {
				return captured, fmt.Errorf("interface %s is gone", o.Interface)
			}
			continue // it may come up again
		case err != nil:
			return captured, fmt.Errorf("read from interface %s: %w", o.Interface, err)
		}
		if o.Room != nil && !o.Room(blockSize(n)) {
			return captured, ErrFull
		}
		at, length := metadata(control[:oobn])
		info := gopacket.CaptureInfo{Timestamp: at, CaptureLength: n, Length: max(n, length)}
		err = out.WritePacket(info, data[:n])
		if err == nil && o.Live {
			err = out.Flush()
		}
		if err != nil {
			return captured, fmt.Errorf("write packets: %w", err)
		}
		captured++
		if o.Captured != nil {
			o.Captured(captured)
		}
	}
	return captured, nil
}

// open returns a socket that receives the packets of an interface that match.
func open(name string, f Filter) (_ *socket.Conn, err error) {
	program, err := f.Program()
	if err != nil {
		return nil, err
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", name, err)
	}
	// Without a protocol the socket receives nothing until it is bound. So it receives no packet before the filter is set.
	conn, err := socket.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0, "packet", nil)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	_ = conn.SetReadBuffer(receiveBuffer) // without it, a burst loses packets earlier
	for option, level := range map[int]int{unix.SO_TIMESTAMPNS: unix.SOL_SOCKET, unix.PACKET_AUXDATA: unix.SOL_PACKET} {
		if err := conn.SetsockoptInt(level, option, 1); err != nil {
			return nil, fmt.Errorf("set up a packet socket: %w", err)
		}
	}
	if err := conn.SetBPF(program); err != nil {
		return nil, fmt.Errorf("filter packets: %w", err)
	}
	to := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff}),
		Ifindex: link.Index}
	if err := conn.Bind(to); err != nil {
		return nil, fmt.Errorf("receive from interface %s: %w", name, err)
	}
	return conn, nil
}

// metadata returns when the kernel received a packet, and the length that it had there.
func metadata(control []byte) (at time.Time, length int) {
	at = time.Now()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return at, 0
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16:
			at = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 8:
			length = int(binary.NativeEndian.Uint32(m.Data[4:])) // struct tpacket_auxdata: status, len
		}
	}
	return at, length
}

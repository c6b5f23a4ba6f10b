package wireguard

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/conn"
	wgdevice "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl"
)

// Serve runs WireGuard in userspace for the device with the given name, whenever this device exists and is not a device
// of the kernel. It returns when ctx ends. It only executes commands: a Manager sends keys, port and peers to its
// socket. It should run in a separate process, which continues while the Manager's process is replaced.
func Serve(ctx context.Context, name string, log *slog.Logger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	updates := make(chan netlink.LinkUpdate, 64)
	stop := make(chan struct{})
	if err := netlink.LinkSubscribe(updates, stop); err != nil {
		log.Warn("changes of links are seen a second later", "error", err)
		close(updates)
	}
	defer func() {
		close(stop)
		for range updates { // until its goroutine has ended
		}
	}()
	links := updates // nil once it has ended
	reported := ""
	for {
		s, err := attach(name, log)
		if text := fmt.Sprint(err); err != nil && text != reported {
			log.Error("serve the device; trying again", "device", name, "error", err)
			reported = text
		}
		if s != nil {
			reported = ""
			log.Info("serving", "device", name)
			ended := false
			for !ended {
				select {
				case <-ctx.Done():
					s.close()
					return
				case <-s.device.Wait():
					ended = true
				case <-tick.C:
				case _, ok := <-links:
					if !ok {
						links = nil
					}
				}
				s.follow(name)
			}
			s.close()
			log.Info("the device is gone", "device", name)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case _, ok := <-links:
			if !ok {
				links = nil
			}
		}
	}
}

// Check returns an error where there is a device that Serve should serve and does not.
func Check(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil || kindOf(link) != Userspace {
		return nil //nolint:nilerr // nothing is to be served
	}
	client, err := wgctrl.New()
	if err != nil {
		return fmt.Errorf("ask for WireGuard: %w", err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Device(name); err != nil {
		return fmt.Errorf("device %s is not served: %w", name, err)
	}
	return nil
}

// served is a device that is served.
type served struct {
	device   *wgdevice.Device
	tap      *tap // nil where it is a TUN device
	listener net.Listener
	accepted chan struct{} // closed when no more requests are taken
}

// attach begins to serve the device. It returns nil if there is no device.
func attach(name string, log *slog.Logger) (*served, error) {
	link, err := netlink.LinkByName(name)
	if err != nil || kindOf(link) != Userspace {
		return nil, nil //nolint:nilerr // there may be one later
	}
	var t tun.Device
	var ether *tap
	if isTAP(link) {
		ether, err = openTAP(name, link.Attrs().HardwareAddr)
		t = ether
	} else {
		t, err = tun.CreateTUN(name, link.Attrs().MTU)
	}
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	// At other levels the library logs about single packets.
	logger := &wgdevice.Logger{Verbosef: wgdevice.DiscardLogf, Errorf: func(format string, args ...any) {
		log.Debug("wireguard: " + fmt.Sprintf(format, args...))
	}}
	s := &served{device: wgdevice.NewDevice(t, newCrossing(conn.NewDefaultBind()), logger), tap: ether,
		accepted: make(chan struct{})}
	socket, err := ipc.UAPIOpen(name)
	if err == nil {
		s.listener, err = net.FileListener(socket)
		socket.Close()
	}
	if err != nil {
		s.device.Close()
		return nil, fmt.Errorf("open its socket: %w", err)
	}
	if l, ok := s.listener.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(true)
	}
	if err := s.device.Up(); err != nil {
		log.Warn("bring the device up", "device", name, "error", err) // again when it gets its port
	}
	go func() {
		defer close(s.accepted)
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			go s.device.IpcHandle(c)
		}
	}()
	return s, nil
}

// follow takes over what the Manager has changed of the link.
func (s *served) follow(name string) {
	if s.tap == nil {
		return
	}
	if link, err := netlink.LinkByName(name); err == nil {
		s.tap.setNear(link.Attrs().HardwareAddr)
	}
}

func (s *served) close() {
	s.listener.Close()
	<-s.accepted
	s.device.Close()
}

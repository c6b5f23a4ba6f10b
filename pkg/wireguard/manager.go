package wireguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-net/tombolo/pkg/desired"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Options of a Manager.
type Options struct {
	// Name is the device's name. It belongs to the Manager: a link of this name that is not a WireGuard device is a
	// problem.
	Name string
	// HardwareAddr makes the device usable for a userspace switch. The device is then a TAP device with this MAC, behind
	// which all peers are. Packets from peers go to this MAC, which is also the address of the switch's own port.
	HardwareAddr net.HardwareAddr
	// Keep keeps a device that is no longer desired, without key and peers. A userspace switch that has it as a port would
	// not notice if it were removed and another one of its name were made.
	Keep bool
	// Logger receives changes; nil for silence.
	Logger *slog.Logger
	// Resync is the interval of comparisons without an event; default 10 s. They are needed since changes of keys and
	// peers, and ends of sessions, cause no events.
	Resync time.Duration
	// Namespace is the network namespace of the device; nil for the process's own.
	Namespace *netns.NsHandle
}

// retryAfter is how long until something is tried again that failed or is not there.
const retryAfter = 500 * time.Millisecond

// Manager makes a device equal to the state of the last Set, and keeps it so. Any goroutine may call its methods at any
// time.
type Manager struct {
	opts Options
	log  *slog.Logger

	want *desired.State[*Desired] // of nil: no device

	mu       sync.Mutex
	state    State
	problems []problem.Problem

	wake    chan struct{}
	changed chan struct{}
}

// New returns a Manager that does nothing until Run.
func New(opts Options) *Manager {
	if opts.Resync == 0 {
		opts.Resync = 10 * time.Second
	}
	m := &Manager{opts: opts, log: opts.Logger, want: desired.New((*Desired).clone), wake: make(chan struct{}, 1),
		changed: make(chan struct{}, 1)}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	return m
}

// Set declares the desired state of the device; nil removes it. It returns at once.
func (m *Manager) Set(d *Desired) {
	if m.want.Set(d) {
		desired.Signal(m.wake)
	}
}

// State returns what the device was found to be and have.
func (m *Manager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Peers = slices.Clone(s.Peers)
	return s
}

// Problems returns why the device does not have what it should have.
func (m *Manager) Problems() []problem.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// Changed gets a signal when the device becomes ready or stops being ready, or when its problems change. It has room
// for one signal, and is for one receiver.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

// Run compares and repairs until ctx ends. Then the device stays. It returns an error if it cannot query the kernel at
// all.
func (m *Manager) Run(ctx context.Context) error {
	if m.opts.Namespace != nil {
		// The thread ends with the goroutine since it is never unlocked.
		runtime.LockOSThread()
		if err := netns.Set(*m.opts.Namespace); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer h.Close()
	links := make(chan netlink.LinkUpdate, 64)
	stop := make(chan struct{})
	subscribe := netlink.LinkSubscribeOptions{Namespace: m.opts.Namespace}
	if err := netlink.LinkSubscribeWithOptions(links, stop, subscribe); err != nil {
		return fmt.Errorf("subscribe to changes of links: %w", err)
	}
	defer func() {
		close(stop)
		for range links { // until its goroutine has ended
		}
	}()
	d := device{handle: h, opts: m.opts, endpoints: map[PublicKey]announced{}}
	for {
		wait := m.opts.Resync
		if !m.compare(&d) {
			wait = retryAfter
		}
		if !m.sleep(ctx, wait, links) {
			return nil
		}
	}
}

// sleep waits for a reason to compare; false when ctx has ended.
func (m *Manager) sleep(ctx context.Context, wait time.Duration, links chan netlink.LinkUpdate) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-m.wake:
			return true
		case <-timer.C:
			return true
		case u, ok := <-links:
			if !ok {
				links = nil // the timer is left
			} else if u.Attrs().Name == m.opts.Name && u.Header.Type == unix.RTM_DELLINK {
				return true
			}
		}
	}
}

// compare makes one comparison; false when it has to be made again soon.
func (m *Manager) compare(d *device) bool {
	want, round := m.want.Get()
	if round == 0 {
		return true // nothing is touched
	}
	state, changes, err := d.bring(want)
	if len(changes) > 0 {
		m.log.Info("configured WireGuard", "device", m.opts.Name, "changes", changes)
	}
	var problems []problem.Problem
	if err != nil {
		problems = []problem.Problem{{Object: problem.Object{Kind: "link", Name: m.opts.Name}, Reason: reasonWireGuard,
			Message: err.Error()}}
	}
	m.mu.Lock()
	news := m.state.Ready != state.Ready || !slices.Equal(m.problems, problems)
	m.state, m.problems = state, problems
	m.mu.Unlock()
	if news {
		if err != nil {
			m.log.Error("configure WireGuard", "device", m.opts.Name, "error", err)
		}
		desired.Signal(m.changed)
	}
	return err == nil
}

// device is one link with its WireGuard configuration.
type device struct {
	handle    *netlink.Handle
	opts      Options
	endpoints map[PublicKey]announced
}

// bring brings the device to what is wanted.
func (d *device) bring(want *Desired) (state State, changes []string, err error) {
	link, err := d.handle.LinkByName(d.opts.Name)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		link = nil
	case err != nil:
		return state, nil, fmt.Errorf("read the device: %w", err)
	}
	if link != nil && kindOf(link) == "" {
		if want == nil {
			return state, nil, nil // not ours
		}
		return state, nil, fmt.Errorf("there is a link of this name, of type %s: remove it, or give it another name",
			link.Type())
	}
	if want == nil {
		clear(d.endpoints)
		if link == nil {
			return state, nil, nil
		}
		if d.opts.Keep && isTAP(link) {
			changes, err := d.empty()
			return state, changes, err
		}
		if err := d.handle.LinkDel(link); err != nil {
			return state, nil, fmt.Errorf("remove the device: %w", err)
		}
		return state, []string{"removed"}, nil
	}
	// from before the switch was one in userspace, or after
	if link != nil && len(d.opts.HardwareAddr) > 0 && !isTAP(link) {
		if err := d.handle.LinkDel(link); err != nil {
			return state, nil, fmt.Errorf("remove the device of another kind: %w", err)
		}
		link = nil
	}
	if link != nil && len(d.opts.HardwareAddr) == 0 && isTAP(link) {
		if err := d.handle.LinkDel(link); err != nil {
			return state, nil, fmt.Errorf("remove the device of another kind: %w", err)
		}
		link = nil
	}
	if link == nil {
		clear(d.endpoints)
		if err := d.add(); err != nil {
			return state, nil, fmt.Errorf("make the device: %w", err)
		}
		changes = append(changes, "added")
		if link, err = d.handle.LinkByName(d.opts.Name); err != nil {
			return state, changes, fmt.Errorf("read the new device: %w", err)
		}
	}
	if mac := d.opts.HardwareAddr; len(mac) > 0 && link.Attrs().HardwareAddr.String() != mac.String() {
		if err := d.handle.LinkSetHardwareAddr(link, mac); err != nil {
			return state, changes, fmt.Errorf("set the device's address: %w", err)
		}
		changes = append(changes, "set address "+mac.String())
	}
	state.Kind = kindOf(link)
	// A new client each time: the kernel's module may have been loaded since.
	client, err := wgctrl.New()
	if err != nil {
		return state, changes, fmt.Errorf("ask for WireGuard: %w", err)
	}
	defer func() { _ = client.Close() }()
	have, err := client.Device(d.opts.Name)
	if state.Kind == Userspace && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)) {
		return state, changes,
			errors.New("nothing serves the device yet: `tombolo-agent wireguard` has to run on this Node (DaemonSet " +
				"tombolo-wireguard)")
	}
	if err != nil {
		return state, changes, fmt.Errorf("read the device's configuration: %w", err)
	}
	config, sent, endpoints := diff(*have, *want, d.endpoints, time.Now())
	if len(sent) > 0 {
		if err := client.ConfigureDevice(d.opts.Name, config); err != nil {
			return state, changes, fmt.Errorf("configure the device (%v): %w", sent, err)
		}
		changes = append(changes, sent...)
	}
	d.endpoints = endpoints
	state.Ready = true
	state.Peers = peersOf(have)
	return state, changes, nil
}

// empty takes key, port and peers from a device that is served.
func (d *device) empty() ([]string, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("ask for WireGuard: %w", err)
	}
	defer func() { _ = client.Close() }()
	have, err := client.Device(d.opts.Name)
	if err != nil || have.PrivateKey == (wgtypes.Key{}) && len(have.Peers) == 0 {
		return nil, nil //nolint:nilerr // what is not served has nothing
	}
	none := 0
	if err := client.ConfigureDevice(d.opts.Name,
		wgtypes.Config{PrivateKey: new(wgtypes.Key), ListenPort: &none, ReplacePeers: true}); err != nil {
		return nil, fmt.Errorf("empty the device: %w", err)
	}
	return []string{"emptied"}, nil
}

// add makes the device. It is the kernel's if the kernel has WireGuard. A TUN or TAP device persists when the process
// that serves it ends.
func (d *device) add() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = d.opts.Name
	mode := netlink.TuntapMode(netlink.TUNTAP_MODE_TAP)
	if len(d.opts.HardwareAddr) == 0 {
		err := d.handle.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
		mode = netlink.TUNTAP_MODE_TUN
	}
	return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: mode,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_TUN_EXCL})
}

// Delete removes a device of this name, in the network namespace of the calling thread. It leaves links of other types
// alone.
func Delete(name string) error {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) || err == nil && kindOf(link) == "" {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove device %s: %w", name, err)
	}
	return nil
}

// kindOf is the kind of a link that can be ours, "" of others.
func kindOf(link netlink.Link) string {
	switch link.(type) {
	case *netlink.Wireguard:
		return Kernel
	case *netlink.Tuntap:
		return Userspace
	}
	return ""
}

func isTAP(link netlink.Link) bool {
	t, ok := link.(*netlink.Tuntap)
	return ok && t.Mode == netlink.TUNTAP_MODE_TAP
}

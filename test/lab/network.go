package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

const netnsDir = "/run/netns"

// place is a network namespace of the lab, under its name in /run/netns.
type place struct{ name string }

func (p place) path() string { return filepath.Join(netnsDir, p.name) }

// inode identifies the namespace; processes in it show the same number.
func (p place) inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(p.path(), &st); err != nil {
		return 0, fmt.Errorf("network namespace %s: %w", p.name, err)
	}
	return st.Ino, nil
}

// create makes the namespace. It records the namespace as the lab's before the namespace gets its name, so that the lab
// can be removed at any moment.
func (p place) create() error {
	return onThread(func() error {
		if err := p.unshare(); err != nil {
			return fmt.Errorf("make network namespace %s: %w", p.name, err)
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		// The machine's own defaults are inherited and may be anything.
		for _, conf := range []string{"all", "default"} {
			if err := sysctl("net/ipv4/conf/"+conf+"/rp_filter", "0"); err != nil {
				return err
			}
			if err := sysctl("net/ipv6/conf/"+conf+"/disable_ipv6", "1"); err != nil {
				return err
			}
		}
		return nil
	})
}

// enableIPv6 lets interfaces have IPv6 addresses. They are valid at once, without a check for duplicates, which the lab
// never assigns. No interface configures itself.
func (p place) enableIPv6() error {
	return p.do(func() error {
		for _, conf := range []string{"all", "default"} {
			for key, value := range map[string]string{"accept_dad": "0", "accept_ra": "0", "autoconf": "0"} {
				if err := sysctl("net/ipv6/conf/"+conf+"/"+key, value); err != nil {
					return err
				}
			}
			if err := sysctl("net/ipv6/conf/"+conf+"/disable_ipv6", "0"); err != nil {
				return err
			}
		}
		return nil
	})
}

// unshare moves the current thread to a new namespace and gives that the place's name.
func (p place) unshare() error {
	if _, err := os.Lstat(p.path()); err == nil {
		return fmt.Errorf("%s exists: remove it, or choose another name for the lab", p.path())
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	id, err := currentNamespace()
	if err != nil {
		return err
	}
	if err := p.remember(id); err != nil {
		return err
	}
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(p.path(), os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	file.Close()
	if err := unix.Mount("/proc/thread-self/ns/net", p.path(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", p.path(), err)
	}
	return nil
}

// remove deletes the namespace's name; the namespace ends with its last process. If the namespace is not the lab's,
// that is an error. If there is no such namespace, that is no error.
func (p place) remove() error {
	err := p.own()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return removeMounted(p.path())
}

// do runs f inside the namespace.
func (p place) do(f func() error) error {
	return onThread(func() error {
		ns, err := netns.GetFromPath(p.path())
		if err != nil {
			return fmt.Errorf("network namespace %s: %w", p.name, err)
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", p.name, err)
		}
		return f()
	})
}

// onThread runs f on a separate thread, which ends afterwards. So no other goroutine runs in a namespace that f has
// entered. It does not use the process's first thread, which cannot end, and whose namespaces appear as the process's.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThread(f) // elsewhere, since this thread is taken meanwhile
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- f()
		// Locked still, so the thread dies with the goroutine.
	}()
	return <-done
}

func sysctl(path, value string) error {
	path = filepath.Join("/proc/sys", path)
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// bridge makes a subnet of the router: a bridge with the router's addresses, of which one is IPv4. Its MAC is made from
// the IPv4 address. A bridge without a configured MAC uses the lowest MAC of its ports, which would change when a Node
// is switched off.
func (p place) bridge(name string, addresses ...netip.Prefix) error {
	return p.do(func() error {
		v4 := slices.IndexFunc(addresses, func(a netip.Prefix) bool { return a.Addr().Is4() })
		mac := append(net.HardwareAddr{0x02, 0x00}, addresses[v4].Addr().AsSlice()...)
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac}}
		if err := netlink.LinkAdd(br); err != nil {
			return fmt.Errorf("add bridge %s: %w", name, err)
		}
		if err := addAddresses(br, addresses); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
}

// cable is a link between a port of a bridge in the router and an interface elsewhere.
type cable struct {
	bridge, port string         // in the router
	to           place          // where the other end is
	name         string         // its interface there
	addresses    []netip.Prefix // and its addresses
	routes       []route
}

type route struct {
	to  netip.Prefix
	via netip.Addr
}

var (
	everywhere  = netip.MustParsePrefix("0.0.0.0/0")
	everywhere6 = netip.MustParsePrefix("::/0")
)

// plug lays the cable.
func (p place) plug(c cable) error {
	err := p.do(func() error {
		far, err := netns.GetFromPath(c.to.path())
		if err != nil {
			return fmt.Errorf("network namespace %s: %w", c.to.name, err)
		}
		defer far.Close()
		veth := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: c.port},
			PeerName:      c.name,
			PeerNamespace: netlink.NsFd(int(far)),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add link %s to %s of %s: %w", c.port, c.name, c.to.name, err)
		}
		br, err := netlink.LinkByName(c.bridge)
		if err != nil {
			return fmt.Errorf("bridge %s: %w", c.bridge, err)
		}
		if err := netlink.LinkSetMaster(veth, br); err != nil {
			return err
		}
		if err := likeAWire(c.port); err != nil {
			return err
		}
		return netlink.LinkSetUp(veth)
	})
	if err != nil {
		return err
	}
	return c.to.do(func() error { return configure(c.name, c.addresses, c.routes) })
}

// configure sets addresses and routes of an interface of the current namespace.
func configure(name string, addresses []netip.Prefix, routes []route) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := addAddresses(link, addresses); err != nil {
		return err
	}
	if err := likeAWire(name); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, r := range routes {
		if err := addRoute(name, r); err != nil {
			return err
		}
	}
	return nil
}

// addRoute sets a route on an interface of the current namespace.
func addRoute(name string, r route) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.to), Gw: r.via.AsSlice()}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s via %s on %s: %w", r.to, r.via, name, err)
	}
	return nil
}

// removeRoute removes a route that addRoute has set.
func removeRoute(name string, r route) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	err = netlink.RouteDel(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.to), Gw: r.via.AsSlice()})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("route %s via %s on %s: %w", r.to, r.via, name, err)
	}
	return nil
}

// RoutePods has the router between the clusters route the Pods of all Nodes, or ends that. With these routes, Pods of
// two clusters reach each other without Gateways.
func (l *Lab) RoutePods(ctx context.Context, on bool) error {
	change := removeRoute
	if on {
		change = addRoute
	}
	for _, c := range l.clusters {
		ranges, err := c.podRanges(ctx)
		if err != nil {
			return err
		}
		for _, n := range c.nodes {
			for _, to := range ranges[n.name] {
				for _, via := range hosts(n.transport(), firstTransport+n.number) {
					if via.Is4() != to.Addr().Is4() {
						continue
					}
					err := l.router().do(func() error {
						return change(transportBridge(c.index, n.Subnet()), route{to, via})
					})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// likeAWire makes a veth carry whole packets with complete checksums, as a cable does. Otherwise the kernel leaves
// segmentation and checksums to the receiver, and a userspace switch at one end does neither.
func likeAWire(name string) error {
	for _, what := range []rtnetlink.Offload{rtnetlink.ChecksumOffload, rtnetlink.TCPSegmentationOffload,
		rtnetlink.SegmentationOffload, rtnetlink.ReceiveOffload} {
		if err := rtnetlink.SwitchOff(name, what); err != nil {
			return err
		}
	}
	return nil
}

func addAddresses(link netlink.Link, addresses []netip.Prefix) error {
	for _, p := range addresses {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
			return fmt.Errorf("add address %s to %s: %w", p, link.Attrs().Name, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// carrier raises or drops a router's port, as if its cable was plugged or pulled.
func (p place) carrier(port string, up bool) error {
	return p.do(func() error {
		link, err := netlink.LinkByName(port)
		if err != nil {
			return fmt.Errorf("port %s of the router: %w", port, err)
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
}

// unplug removes a router's port and with it the interface at the other end.
func (p place) unplug(port string) error {
	return p.do(func() error {
		link, err := netlink.LinkByName(port)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
}

// hostLink is the name of the lab's link in the machine's own network namespace.
func (p plan) hostLink() string { return fmt.Sprintf("tombolo%d", p.index) }

// connectHost lets the machine itself reach the control planes, for kubectl.
func (p plan) connectHost(lab string, router place) error {
	far, err := netns.GetFromPath(router.path())
	if err != nil {
		return err
	}
	defer far.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: p.hostLink()}, PeerName: "host",
		PeerNamespace: netlink.NsFd(int(far))}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", p.hostLink(), err)
	}
	if err := netlink.LinkSetAlias(veth, hostLinkAlias(lab)); err != nil {
		return fmt.Errorf("set the alias of link %s: %w", p.hostLink(), err)
	}
	subnets := []netip.Prefix{p.hostNet()}
	if err := router.do(func() error { return configure("host", hostsOn(subnets, 1), nil) }); err != nil {
		return err
	}
	return configure(p.hostLink(), hostsOn(subnets, 2), []route{{p.all(), host(p.hostNet(), 1)}})
}

// disconnectHost removes the lab's link to the host. A link that has lost its alias need not be removed, since it ends
// with the router's namespace.
func (p plan) disconnectHost(lab string) error {
	link, err := netlink.LinkByName(p.hostLink())
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	if link.Attrs().Alias != hostLinkAlias(lab) {
		return nil
	}
	return netlink.LinkDel(link)
}

// hostLinkAlias marks the link as the lab's.
func hostLinkAlias(lab string) string { return "tombolo-lab " + lab }

// routedIndexes returns the indexes of labs to whose ranges this machine has a route, other than the default route.
func routedIndexes() (map[int]bool, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	used := map[int]bool{}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		if !ok || bits == 0 {
			continue
		}
		for index := range maxLabs {
			if (plan{index}).all().Overlaps(netip.PrefixFrom(addr, bits)) {
				used[index] = true
			}
		}
	}
	return used, nil
}

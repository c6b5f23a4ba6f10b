package cni

import (
	"crypto/sha1" //nolint:gosec // names only, as documented
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
	"github.com/tombolo-net/tombolo/pkg/sysctl"
)

// PortName returns the name of the host's end of a Pod's veth pair, which is also the port's name on the bridge. It has
// at most eight characters of the Pod's name, a dash, and six of a hash. That is at most 15 characters (IFNAMSIZ less
// its zero byte).
func PortName(podName, containerID, ifName string) string {
	head := strings.TrimLeft(podName[:min(8, len(podName))], "-")
	key := containerID
	if ifName != defaultIfName {
		key += ifName
	}
	sum := sha1.Sum([]byte(key)) //nolint:gosec // as above
	return head + "-" + hex.EncodeToString(sum[:])[:6]
}

// aliasPrefix begins the ifalias of the host's end of each veth pair that this program makes. It identifies pairs that
// remain after a crash.
const aliasPrefix = "tombolo "

// maxAlias is the longest ifalias (IFALIASZ less its zero byte).
const maxAlias = 255

// alias returns the alias of a veth pair: container, interface and, if there is room, Pod. It is the record that
// remains if the OVSDB and the address record are lost.
func alias(containerID, ifName, pod string) string {
	short := aliasPrefix + containerID + " " + ifName
	if long := short + " " + pod; pod != "" && len(long) <= maxAlias {
		return long
	}
	return short
}

// parseAlias reads an alias. ok is false for interfaces that are not ours. Aliases of earlier versions name no Pod.
func parseAlias(text string) (k ipam.Key, pod string, ok bool) {
	rest, ours := strings.CutPrefix(text, aliasPrefix)
	words := strings.Split(rest, " ")
	if !ours || len(words) < 2 || len(words) > 3 || words[0] == "" || words[1] == "" {
		return ipam.Key{}, "", false
	}
	if len(words) == 3 {
		if pod = words[2]; !strings.Contains(pod, "/") {
			return ipam.Key{}, "", false
		}
	}
	return ipam.Key{ContainerID: words[0], IfName: words[1]}, pod, true
}

// sandbox is the wanted state of one Pod's interface.
type sandbox struct {
	netns       string
	containerID string
	ifName      string
	pod         string // "namespace/name"
	podUID      string // as recorded
	portName    string
	network     string // as recorded
	ips         []netip.Prefix
	gateways    []netip.Addr // by position of ips
	gatewayMAC  string       // of all gateways
	mtu         int          // 0: the kernel's default
	txChecksum  bool         // leave checksum offload on
	bandwidth   Bandwidth
	hostPorts   HostPorts
	virtual     *Extra // of an interface in a VirtualNetwork
	within      string // Attachment.Inside
}

// openNetns opens a Pod's network namespace. The error names CNI_NETNS's value.
func openNetns(path string) (ns.NetNS, error) {
	n, err := ns.GetNS(path)
	if err != nil {
		return nil, fmt.Errorf("open the Pod's network namespace %q: %w", path, err)
	}
	own, err := ns.GetCurrentNS()
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	defer own.Close()
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(int(n.Fd()), &a), unix.Fstat(int(own.Fd()), &b)); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if a.Dev == b.Dev && a.Ino == b.Ino {
		return nil, errors.Join(fmt.Errorf("%q is the Node's own network namespace; Pods with hostNetwork get no interface",
			path), n.Close())
	}
	return n, nil
}

// described returns the address record's description of the interface before it exists. A pair that an earlier version
// made has another MAC.
func (s sandbox) described() ipam.Interface {
	return ipam.Interface{
		Netns: s.netns, PortName: s.portName, MAC: s.mac().String(), PodUID: s.podUID, Network: s.network,
		Bandwidth: s.bandwidth.String(), HostPorts: s.hostPorts.String(), VirtualNetwork: s.virtualNetwork(),
		Inside: s.within,
	}
}

// mac returns the MAC of the Pod's end.
func (s sandbox) mac() net.HardwareAddr {
	if s.virtual != nil && s.virtual.MAC != "" {
		if mac, err := net.ParseMAC(s.virtual.MAC); err == nil {
			return mac
		}
	}
	return macOf(s.containerID + " " + s.ifName)
}

// ofNodeSuffix follows the VirtualNetwork in the alias of a first interface with addresses of the Node.
const ofNodeSuffix = "@node"

// owner returns the Pod as the alias has it: "namespace/name", and with the VirtualNetwork "namespace/name@network".
func (s sandbox) owner() string {
	if _, network := splitNetwork(s.virtualNetwork()); network != "" {
		return s.pod + "@" + network
	}
	if _, network := splitNetwork(s.within); network != "" {
		return s.pod + "@" + network + ofNodeSuffix
	}
	return s.pod
}

// pair is the veth pair of one Pod's interface.
type pair struct {
	host netlink.Link
	pod  ns.NetNS
	mac  string // of the Pod's end
}

// make returns the veth pair, and makes it if it does not exist. The host's end is up. The caller closes the pair's
// namespace afterwards.
func (s sandbox) make() (*pair, error) {
	pod, err := openNetns(s.netns)
	if err != nil {
		return nil, err
	}
	host, mac, err := s.veth(pod)
	if err != nil {
		return nil, errors.Join(err, pod.Close())
	}
	return &pair{host, pod, mac}, nil
}

// configure brings both ends to the desired state, whatever their state is. The host's end comes first, so that it
// sends nothing of its own when the Pod's end comes up.
func (s sandbox) configure(p *pair) error {
	if err := s.outside(p.host); err != nil {
		return err
	}
	return p.pod.Do(func(ns.NetNS) error {
		if err := s.inside(); err != nil {
			return fmt.Errorf("configure %s in the Pod: %w", s.ifName, err)
		}
		return nil
	})
}

// macOf derives a MAC from a name: locally administered, and not a group's.
func macOf(name string) net.HardwareAddr {
	sum := sha1.Sum([]byte(name)) //nolint:gosec // as above
	return append(net.HardwareAddr{0x0a}, sum[:5]...)
}

// veth makes the pair, or finds the pair of an earlier attempt.
func (s sandbox) veth(pod ns.NetNS) (host netlink.Link, mac string, err error) {
	if host, mac, err = s.newVeth(pod); !errors.Is(err, unix.EEXIST) {
		return host, mac, err
	}
	peer, mac, err := s.podEnd(pod)
	if err != nil {
		return nil, "", err
	}
	host, err = netlink.LinkByName(s.portName)
	var holder ipam.Key
	if err == nil {
		holder, _, _ = parseAlias(host.Attrs().Alias)
	}
	switch {
	case err != nil && !isNotFound(err):
		return nil, "", fmt.Errorf("look for %s: %w", s.portName, err)
	case err == nil && peer == host.Attrs().Index:
		return host, mac, s.outside(host)
	case peer != 0:
		return nil, "", fmt.Errorf(
			"the Pod has an interface %s already that is not a veth pair with %s; another plugin made it: remove one of the "+
				"two from /etc/cni/net.d", s.ifName, s.portName)
	case err == nil && holder == ipam.Key{}:
		return nil, "", fmt.Errorf(
			"the Node has an interface %s already that tombolo did not make; remove it: ip link del %s", s.portName, s.portName)
	case err == nil && holder != ipam.Key{ContainerID: s.containerID, IfName: s.ifName}:
		return nil, "", fmt.Errorf(
			"the name %s is taken by interface %s of container %s; the next sandbox of this Pod gets another name", s.portName,
			holder.IfName, holder.ContainerID)
	case err == nil:
		// The pair is this program's, but its other end is in another namespace. So the Pod's namespace has been recreated.
		if err := netlink.LinkDel(host); err != nil && !isNotFound(err) {
			return nil, "", fmt.Errorf("remove the old %s: %w", s.portName, err)
		}
	}
	return s.newVeth(pod)
}

// podEnd returns the index of the other end of the Pod's interface. It is 0 without an interface, and -1 if the
// interface is not a veth.
func (s sandbox) podEnd(pod ns.NetNS) (peer int, mac string, err error) {
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(s.ifName)
		if isNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for %s in the Pod: %w", s.ifName, err)
		}
		peer, mac = link.Attrs().ParentIndex, link.Attrs().HardwareAddr.String()
		if link.Type() != "veth" {
			peer = -1
		}
		return nil
	})
	return peer, mac, err
}

// whole reports whether the veth pair is there, with its other end in the Pod's namespace.
func (s sandbox) whole() (bool, error) {
	pod, err := openNetns(s.netns)
	if err != nil {
		return false, err
	}
	defer pod.Close()
	host, err := netlink.LinkByName(s.portName)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", s.portName, err)
	}
	peer, _, err := s.podEnd(pod)
	return err == nil && peer == host.Attrs().Index, err
}

// newVeth makes both ends of the pair in one request, so half a pair never exists. The host's end is up but has no
// carrier, so nothing happens there before the Pod's end is up too.
func (s sandbox) newVeth(pod ns.NetNS) (host netlink.Link, mac string, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Flags = s.portName, s.mtu, macOf("host "+s.containerID+" "+s.ifName),
		net.FlagUp
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerNamespace, pair.PeerMTU = s.ifName, netlink.NsFd(pod.Fd()), uint32(s.mtu)
	pair.PeerHardwareAddr = s.mac()
	if err := netlink.LinkAdd(pair); err != nil {
		return nil, "", fmt.Errorf("make the veth pair %s - %s: %w", s.portName, s.ifName, err)
	}
	// At once: a veth without an alias has no owner.
	name := alias(s.containerID, s.ifName, s.owner())
	if err := netlink.LinkSetAlias(pair, name); err != nil {
		return nil, "", errors.Join(fmt.Errorf("set the alias of %s: %w", s.portName, err), netlink.LinkDel(pair))
	}
	pair.Alias = name
	return pair, pair.PeerHardwareAddr.String(), nil
}

// inside brings the Pod's end to the desired state. It runs in the Pod's namespace.
func (s sandbox) inside() error {
	link, err := netlink.LinkByName(s.ifName)
	if err != nil {
		return err
	}
	if s.mtu > 0 && link.Attrs().MTU != s.mtu {
		if err := netlink.LinkSetMTU(link, s.mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", s.mtu, err)
		}
	}
	if !s.txChecksum {
		if err := rtnetlink.SwitchOff(s.ifName, rtnetlink.ChecksumOffload); err != nil {
			return err
		}
	}
	if err := s.bandwidth.FromPod.limit(link); err != nil {
		return err
	}
	if err := s.allowIPv6(); err != nil {
		return err
	}
	for _, p := range s.ips {
		addr := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE // no other interface can have it
		} else if s.virtual != nil {
			addr.Flags = unix.IFA_F_NOPREFIXROUTE
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if s.isFurther() {
		return s.virtualRoutes(link)
	}
	for i, gw := range s.gateways {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice(), Dst: ipNet(anywhere(gw))}
		// If the gateway is outside the range of the address, it needs a route on the link. In IPv6 and in a VirtualNetwork
		// that is always so, since addresses have no route to their range.
		if gw.Is6() || s.virtual != nil || i < len(s.ips) && !s.ips[i].Contains(gw) {
			route.SetFlag(netlink.FLAG_ONLINK)
		}
		if err := s.neighbor(link, gw); err != nil {
			return err
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("add the default route via %s: %w", gw, err)
		}
	}
	return nil
}

// has6 reports whether the Pod gets an IPv6 address.
func (s sandbox) has6() bool {
	return slices.ContainsFunc(s.ips, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// allowIPv6 lets the interface have IPv6 addresses. A runtime may have turned IPv6 off. The interface ignores router
// advertisements, so no machine can give it addresses and routes.
func (s sandbox) allowIPv6() error {
	if !s.has6() {
		return nil
	}
	for _, c := range []struct{ key, value string }{{"accept_ra", "0"}, {"disable_ipv6", "0"}} {
		if err := setSysctl("net/ipv6/conf/"+s.ifName+"/"+c.key, c.value); err != nil {
			return err
		}
	}
	return nil
}

// neighbor makes an IPv6 gateway a permanent neighbour. All packets of the Pod go to a gateway, even packets to Pods of
// the same range, since the address has no route to its range. So the Pod sends no Neighbor Solicitations. An answer to
// one would cost the switch more than a packet.
func (s sandbox) neighbor(link netlink.Link, gateway netip.Addr) error {
	if !gateway.Is6() || s.gatewayMAC == "" {
		return nil
	}
	mac, err := net.ParseMAC(s.gatewayMAC)
	if err != nil {
		return fmt.Errorf("the gateway's MAC: %w", err)
	}
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: gateway.AsSlice(), HardwareAddr: mac}); err != nil {
		return fmt.Errorf("add the neighbour %s: %w", gateway, err)
	}
	return nil
}

// outside prepares the host's end, which becomes the switch's port. With the userspace datapath the host's own network
// stack gets the packets too. So the host must not react there: it answers no ARP, forwards nothing, and accepts no
// packet for the Pod's address as its own.
func (s sandbox) outside(host netlink.Link) error {
	if err := s.hostEnd(host); err != nil {
		return fmt.Errorf("configure %s, the host's end of the Pod's %s: %w", s.portName, s.ifName, err)
	}
	return nil
}

func (s sandbox) hostEnd(host netlink.Link) error {
	if want := alias(s.containerID, s.ifName, s.owner()); host.Attrs().Alias != want {
		if err := netlink.LinkSetAlias(host, want); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	if s.mtu > 0 && host.Attrs().MTU != s.mtu {
		if err := netlink.LinkSetMTU(host, s.mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", s.mtu, err)
		}
	}
	for _, c := range []struct{ key, value string }{
		{"ipv6/conf/" + s.portName + "/disable_ipv6", "1"},
		{"ipv4/conf/" + s.portName + "/arp_ignore", "8"}, // ip-sysctl: "do not reply for all local addresses"
		{"ipv4/conf/" + s.portName + "/forwarding", "0"},
		{"ipv4/conf/" + s.portName + "/rp_filter", "1"},
	} {
		if err := setSysctl("net/"+c.key, c.value); err != nil {
			return err
		}
	}
	if !s.txChecksum {
		if err := rtnetlink.SwitchOff(s.portName, rtnetlink.ChecksumOffload); err != nil {
			return err
		}
	}
	if err := s.bandwidth.ToPod.limit(host); err != nil {
		return err
	}
	if host.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := netlink.LinkSetUp(host); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// setSysctl sets a kernel parameter. It ignores a key that the kernel lacks, since IPv6 may be compiled out.
func setSysctl(key, value string) error {
	if have, err := sysctl.Get(key); err == nil && have == value {
		return nil
	}
	if err := sysctl.Set(key, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// anywhere is the default route's destination in the family of an address.
func anywhere(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func isNotFound(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none) || errors.Is(err, unix.ENODEV)
}

// removeLink removes the host's end of a veth pair, and with it the Pod's end. A link of this name could belong to
// another Pod or another program, since the name is made from a Pod's name and a hash. So removeLink removes only a
// veth whose alias is the key's, or a veth without an alias whose other end is in another namespace: the agent was
// killed when it had just made it.
func removeLink(name string, k ipam.Key) error {
	link, err := netlink.LinkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for %s: %w", name, err)
	}
	if link.Type() != "veth" {
		return fmt.Errorf("remove %s: it is a %s, not a Pod's veth; it was left alone", name, link.Type())
	}
	holder, _, ours := parseAlias(link.Attrs().Alias)
	justMade := link.Attrs().Alias == "" && link.Attrs().NetNsID >= 0
	if ours && holder != k || !ours && !justMade {
		return nil
	}
	if err := netlink.LinkDel(link); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// ownLink is the host's end of a veth pair that we made.
type ownLink struct {
	ipam.Key        // of the container's interface, from the alias
	pod      string // "namespace/name", "" if the alias lacks it
	link     netlink.Link
}

// ownLinks returns the host's ends of all veth pairs that we made, by name.
func ownLinks() (map[string]ownLink, error) {
	links, err := rtnetlink.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	own := map[string]ownLink{}
	for _, l := range links {
		if k, pod, ok := parseAlias(l.Attrs().Alias); ok && l.Type() == "veth" {
			own[l.Attrs().Name] = ownLink{k, pod, l}
		}
	}
	return own, nil
}

// RemoveLinks removes all veth pairs that we made. Their Pods have no network then.
func RemoveLinks() error {
	own, err := ownLinks()
	if err != nil {
		return err
	}
	for name, l := range own {
		if err := netlink.LinkDel(l.link); err != nil && !isNotFound(err) {
			return fmt.Errorf("remove %s, the interface of a Pod: %w", name, err)
		}
	}
	return nil
}

// netnsGone reports whether a Pod's namespace no longer exists. An invisible path is no proof, since only a mount may
// be missing. The kernel removes the veth pair together with the namespace.
func netnsGone(a Attachment) bool {
	if a.Netns == "" {
		return false
	}
	err := ns.IsNSorErr(a.Netns)
	if err == nil {
		return false
	}
	_, err = netlink.LinkByName(a.PortName)
	return isNotFound(err)
}

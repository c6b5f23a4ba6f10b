// Package hostnet is the only writer of the Node's own network configuration: addresses, MTU and state of links, routes
// and a rule for them, permanent neighbours and neighbour proxies, sysctls, and the nftables tables "ip tombolo", "ip6
// tombolo", "netdev tombolo", "inet tombolo-services" and "inet tombolo-hostports", with "ip6 tombolo-services" and
// "ip6 tombolo-hostports" for IPv6. It gets the desired state, compares it with the kernel's, and sends the difference.
// Kernel events and a slow resync make it compare again. It leaves the configuration of other programs alone.
package hostnet

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// RouteProtocol marks this package's routes (rtm_protocol, rtnetlink(7)). It removes only routes with this number.
const RouteProtocol netlink.RouteProtocol = 0x74

// forwardTable is the routing table of Forwarded. forwardPriority is the priority of the rule that leads to it, before
// the main table's rule.
const (
	forwardTable    = int(RouteProtocol)
	forwardPriority = 0x7400
)

// tableName is the name of our nftables tables, in the families ip, ip6 and netdev.
const tableName = "tombolo"

// Desired is everything the Node should have.
type Desired struct {
	Links  []Link
	Routes []Route
	// Forwarded are routes for packets that the host forwards. The host's own packets take the routes of the main table.
	Forwarded []Route
	Neighbors []Neighbor
	// Sysctls by path below /proc/sys, such as "net/ipv4/conf/antrea-gw0/rp_filter".
	Sysctls map[string]string
	// RouterLink is a link through which routers may advertise the Node's routes of IPv6 later.
	RouterLink string
	Masquerade Masquerade
	Behind     Behind
	Tunnels    []Tunnels
	Egress     []Egress
	// Services are about the translations that Manager.Translate declares.
	Services Services
	// HostPorts are about the ports that Manager.MapPorts declares.
	HostPorts HostPorts
}

// Link is the configuration of a network device that another program creates (usually ovs-vswitchd). It is applied
// whenever the device exists.
type Link struct {
	Name string
	MTU  int  // 0 leaves it as it is
	Up   bool // false leaves it as it is
	// Addresses are the desired addresses, with their prefix lengths. If there are any, other addresses of the same family
	// are removed. Addresses of both families with a host prefix (/32, /128) are removed too, since the Node may have held
	// them for Services. A Shared link keeps all other addresses.
	Addresses []netip.Prefix
	// Held are further addresses that the host has for some time. The host answers for them on the links whose networks
	// contain them. The host's own IPv6 packets have other sources.
	Held []netip.Addr
	// Shared leaves addresses that others have put there.
	Shared bool
	// NoAddresses is set if the link is a port of a userspace switch. Such a link should have no address. The host's own
	// network stack must not handle the packets that arrive on it, since the switch handles them and passes packets for
	// the host on. Desired routes replace routes through this link, which Linux keeps in IPv6.
	NoAddresses bool
	// Guards are the names of the links, this one among them, through which packets to the link's addresses are accepted;
	// empty for any link. Packets through another link were not processed by the link, for example not decrypted. A link
	// that will have the same address later is listed from the beginning, since its packets must not wait for nft, which
	// may take seconds.
	Guards []string
}

// Route is a unicast route of the main table.
type Route struct {
	Dst     netip.Prefix `json:"dst"`              // 0.0.0.0/0 for the default route
	Gateway netip.Addr   `json:"gateway,omitzero"` // zero for a directly connected destination
	Link    string       `json:"link,omitempty"`   // name of the outgoing link
	Source  netip.Addr   `json:"source,omitzero"`  // preferred source address; may be zero
	OnLink  bool         `json:"onlink,omitempty"` // the gateway is on the link although no address shows it
	Metric  int          `json:"metric,omitempty"` // lower wins; part of the route's identity
	MTU     int          `json:"mtu,omitempty"`    // path MTU, 0 for the link's
	// Yields is set if another program, such as a routing daemon, may have a route to the destination instead.
	Yields bool `json:"-"`
}

// Neighbor is a permanent entry of the ARP or neighbour table.
type Neighbor struct {
	Link    string
	Address netip.Addr
	MAC     string
}

// Masquerade makes connections from Sources to anywhere but Except leave with the address of the link that they leave
// through. The zero value desires nothing.
type Masquerade struct {
	Sources []netip.Prefix // of both families
	Always  []netip.Prefix // further sources, to which Except does not apply
	Except  []netip.Prefix // destinations that keep the source
	// ExceptLink is the outgoing link that is exempt: the gateway port.
	ExceptLink string
}

// Behind lists sources whose packets may come to the host only through one link. Linux has no rp_filter for IPv6. The
// zero value means no such rule.
type Behind struct {
	Sources []netip.Prefix
	// Link is that link: the gateway port. Packets from Sources through another link are dropped, unless they belong to a
	// connection that the host knows. Answers to the host's own requests may take another path than the requests.
	Link string
	// To limits the packets to some destinations, if the sources are also used outside.
	To []netip.Prefix
}

// Egress names packets that must not leave through a link, whether the host or a userspace switch sends them. The
// netfilter hook for egress (Linux 5.16) is the only one that packets of a userspace switch pass.
type Egress struct {
	Link string
	Drop []netip.Prefix // IPv4 destinations
}

// Tunnels are the tunnels of a userspace switch, which sends their packets through a link of its own. The switch learns
// the MAC of a next hop from the ARP answers that it carries for the host. If it does not know the MAC, it sends a
// request and drops the packet, which is the first one of the tunnel. So the host asks for the MAC before there are
// packets, and again before the switch's entry expires (tnl/neigh/aging in ovs-vswitchd(8), 15 minutes).
type Tunnels struct {
	Link  string       // the local port of the switch's underlay bridge, such as "br-eth1"
	Peers []netip.Addr // where the tunnels end
}

// Stats counts what a Manager has done.
type Stats struct {
	Compares  uint64 // times that the kernel was compared with what is desired
	Changes   uint64 // changes sent to the kernel
	NFTReads  uint64 // times that an nftables table was read, by the nft program
	LastError string // of the last compare, "" when all is as wanted
}

// Package datapath is Tombolo's OpenFlow program. It returns the flows and groups of a Node's switch for the state of
// its cluster. It is pure, and flowsync writes the result into the switch. Each feature has one file, a function from
// state to flows. docs/pipeline.md is generated from the declarations in program.go.
//
// All addresses and ranges are of families that the Node serves (Node.Families). If an object has other addresses, its
// reader leaves them out and reports them.
package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Node is this Node.
type Node struct {
	Name string
	// GatewayMAC and GatewayIPs belong to the gateway port, the host's interface in the Pods' network.
	GatewayMAC ofp.MAC
	GatewayIPs []netip.Addr
	// GatewayPort is an OpenFlow port number.
	GatewayPort ofp.Port
	PodCIDRs    []netip.Prefix
	// ServiceCIDRs are the ranges of ClusterIPs, from the configuration or the API server; empty if neither has them. A
	// packet to such an address that no Service has translated makes no connection.
	ServiceCIDRs []netip.Prefix
	// Families are the versions of IP that the Node serves to its Pods. Without IPv6, no flow matches IPv6 packets, and
	// they are dropped.
	Families family.Families
	// NoND is set if the datapath cannot write the fields of Neighbor Discovery. The kernel's datapath cannot. Then the
	// agent answers solicitations. Pods and hosts with permanent neighbours send none.
	NoND bool
	// ServiceVIP is the host's next hop for Services and the source address of connections that leave through the port
	// they came from: 169.254.0.253. ServiceVIP6 is the same for IPv6: fc01::aabb:ccdd:eeff.
	ServiceVIP, ServiceVIP6 netip.Addr
	// Outside serves clients outside of the Pods' network (docs/services.md).
	Outside bool
	// NodePortAddresses are the addresses of the Node at which its Pods reach node ports.
	NodePortAddresses []netip.Addr
	// ServiceSource and ServiceSource6 are the source addresses of connections that clients outside make to endpoints on
	// other Nodes. With the zero address the source stays the client's.
	ServiceSource, ServiceSource6 netip.Addr
	// PacketInRate is how many packets a second of each kind the switch sends to the agent. It drops further packets. With
	// 0 it sends no packets.
	PacketInRate uint32
	// SCTPByPort is set if connection tracking cannot read the ports of SCTP, as in the userspace datapath.
	SCTPByPort bool
	// RuleKey is a secret of this Node that goes into the hash from which numbers of rules come. It stays the same as long
	// as there are connections with such numbers. Without a key, the numbers are the same as in earlier versions.
	RuleKey Secret
	Tunnels Tunnels
}

// Tunnels are this Node's ends of tunnels.
type Tunnels struct {
	// Port is an OpenFlow port number, 0 on a Node without tunnels.
	Port ofp.Port
	// Ends are the addresses at which the tunnels of other Nodes may end here. While they are unknown it is empty, and
	// packets to any address of the Node are accepted.
	Ends []netip.Addr
	// Encrypted is set if the tunnels of other Nodes end inside WireGuard. They are accepted only at Ends. On a Gateway,
	// tunnels of other clusters end elsewhere.
	Encrypted bool
	// Source and PeerSource are this Node's source addresses of tunnel packets to other Nodes and, on the Gateway, to
	// other clusters. The receivers accept no other source. With the zero address the host's routes decide.
	Source, PeerSource netip.Addr
	// PeerEnd is the address where tunnels of other clusters end. On a Gateway it is an address of this Node, and on other
	// Nodes an address of a Gateway. If the cluster has no Gateway, it is not valid.
	PeerEnd netip.Addr
	// Outer is the protocol and port of a tunnel's outer packets.
	Outer Tunnel
	// Stretched is set if the key of tunnels between clusters names the sender, by the ClusterSet's number of its
	// identity.
	Stretched bool
}

// vips returns ServiceVIP and ServiceVIP6 of the families that the Node serves.
func (n Node) vips() []netip.Addr {
	var out []netip.Addr
	for _, ip := range []netip.Addr{n.ServiceVIP, n.ServiceVIP6} {
		if n.Families.Serve(ip) {
			out = append(out, ip)
		}
	}
	return out
}

// each returns the flows for each version of IP that the Node serves. make makes the flows for one version, with its
// condition. Connection tracking and dec_ttl need the version in the match. A condition such as flow.TCP applies to the
// version that it is combined with.
func (n Node) each(make func(ip flow.Cond) []flow.Flow) []flow.Flow { return each(n.Families, make) }

// each is Node.each for the versions of a Node.
func each(families family.Families, make func(ip flow.Cond) []flow.Flow) []flow.Flow {
	var flows []flow.Flow
	for _, ip := range versions(families) {
		flows = append(flows, make(ip)...)
	}
	return flows
}

// versions returns the conditions for versions of IP.
func versions(families family.Families) (out []flow.Cond) {
	if families.Has4() {
		out = append(out, flow.IP())
	}
	if families.Has6() {
		out = append(out, flow.IPv6())
	}
	return out
}

// versionOf returns the condition for the version of IP of an address.
func versionOf(a netip.Addr) flow.Cond {
	if a.Is4() {
		return flow.IP()
	}
	return flow.IPv6()
}

// Secret is a text that is not printed.
type Secret string

// String hides the text. So no log and no `tombolo explain` shows it.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// Tunnel is the protocol of a tunnel: UDP with a port, or an IP protocol without ports, with Port 0. The zero value
// means that the tunnels are unknown.
type Tunnel struct {
	Protocol uint8
	Port     uint16
}

// Pod is a Pod of this Node whose port has a number.
type Pod struct {
	Namespace, Name string
	Interface       string // the port's name
	MAC             ofp.MAC
	IPs             []netip.Addr
	Port            ofp.Port
	Limit           Limit // of what the Pod sends
	// HostPorts is set if ports of the Node lead to the Pod. The host translates their packets.
	HostPorts bool
	// Network is the VirtualNetwork that the port is in. The zero value means a first interface in the network of its
	// Namespace.
	Network derive.Object
	// First is set for the Pod's first interface in a VirtualNetwork.
	First bool
	// Inside is the VirtualNetwork that the Pod's packets are in, if its addresses are of the Node. Then Network is the
	// zero value. Its own network is a separate one, in which another port of the Pod has an address.
	Inside derive.Object
}

// Limit is a rate of a Pod's traffic. The filter of the Pod's interface enforces the rate, and the switch enforces a
// rate that is a tenth higher. So a Pod that removes the filter is limited too.
type Limit struct {
	Bits  uint64 // a second; 0 means no limit
	Burst uint32 // bytes that may pass at once after a pause
}

// RemoteNode is another Node of this cluster.
type RemoteNode struct {
	Name     string
	PodCIDRs []netip.Prefix
	Address  netip.Addr // where the tunnel to it ends
	// Sources are the outer source addresses of its packets. They are also the inner source addresses of packets of its
	// host, unless Hosts has others. If the list is empty, the only source is Address.
	Sources []netip.Addr
	// Hosts are the addresses that its host uses inside the tunnel, if they differ from Sources. They differ if Sources
	// are addresses inside WireGuard.
	Hosts []netip.Addr
	// GatewayIPs are the addresses of its host in the Pods' network.
	GatewayIPs []netip.Addr
	// Direct is set if the hosts route packets of IPv4 between the Pods of this Node and of that one, without a tunnel.
	// Direct6 is the same for IPv6. Packets between clusters still use the tunnel.
	Direct, Direct6 bool
}

// DirectTo reports whether the hosts route packets to the Node's Pods that are of the version of IP of an address.
func (r RemoteNode) DirectTo(ip netip.Addr) bool {
	return ip.Is4() && r.Direct || ip.Is6() && r.Direct6
}

// hosts returns the addresses that the Node's host uses, each once.
func (r RemoteNode) hosts() []netip.Addr {
	if len(r.Hosts) > 0 {
		return r.Hosts
	}
	return r.sources()
}

// sources returns the addresses that the Node's tunnels come from, each once.
func (r RemoteNode) sources() []netip.Addr {
	out := []netip.Addr{r.Address}
	for _, a := range r.Sources {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

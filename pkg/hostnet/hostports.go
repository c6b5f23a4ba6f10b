package hostnet

import (
	"context"
	"net/netip"
	"strconv"

	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/family"
)

// This file opens ports of the Node that lead to its Pods (hostPort). The host translates the destination of a packet
// to the Pod's address, and the packet enters the switch through the gateway port with its real source. Only packets to
// an address of the Node are translated. The chains come before the chains of Services: a hostPort wins over a node
// port.

// hostPortsTable is the name of the tables, of the family inet for IPv4 and of ip6 for IPv6.
const hostPortsTable = "tombolo-hostports"

// Names of its maps.
const (
	hostPortAny = "hostport-any" // protocol and port -> Pod
	hostPortAt  = "hostport"     // address, protocol and port -> Pod
)

// hostPortMaps are the types of the maps for IPv4.
var hostPortMaps = map[string]string{
	hostPortAny: "inet_proto . inet_service : ipv4_addr . inet_service",
	hostPortAt:  "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service",
}

// HostPorts are the conditions under which packets are translated.
type HostPorts struct {
	// Link is the gateway port, through which translated packets leave. Without it there is no table.
	Link string
	// Families are the versions of IP that have a table.
	Families family.Families
	// Addresses are all addresses of the Node.
	Addresses []netip.Addr
}

// HostPort is a port of the Node that leads to a Pod.
type HostPort struct {
	// Address is an address of the Node. The zero address stands for every address, including loopback addresses. At ::1
	// only processes with another source address can use the port.
	Address  netip.Addr
	Protocol string // tcp, udp or sctp
	Port     uint16
	To       netip.AddrPort
}

// newHostPortsTable returns the table of ports of a version of IP.
func newHostPortsTable(ip version) *translatedTable {
	return &translatedTable{
		family: tableOf[ip.family], ip: ip,
		name: hostPortsTable, maps: typesOf(hostPortMaps, ip), what: "map ports of the Node to Pods",
		contents: func(d Desired) contents { return hostPortsOf(d.HostPorts, ip) },
		local:    func(d Desired) []netip.Addr { return d.HostPorts.Addresses },
		removed:  func(*translatedTable, *applier) bool { return true }, // its elements have named the connections
		end:      endConnections,
		declared: newTranslations(), changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
	}
}

// hostPortsOf returns the contents of the table of a version of IP but for the maps.
func hostPortsOf(h HostPorts, ip version) contents {
	out := contents{map[string]nftChain{}, map[string]nftSet{}}
	if h.Link == "" || !h.Families.Serve(ip.example) {
		return out
	}
	for name, hook := range map[string]knftables.BaseChainHook{
		"prerouting": knftables.PreroutingHook, "output": knftables.OutputHook,
	} {
		local := "meta nfproto ipv4 fib daddr type local "
		switch {
		case ip.family == knftables.IPv6Family && hook == knftables.OutputHook:
			// Replies to ::1 and fe80::/10 would not come back to the process. So these rules do not translate packets from ::1
			// or to fe80::/10. A process that connects to ::1 from another source can use the port.
			local = "ip6 saddr != ::1 ip6 daddr != fe80::/10 fib daddr type local "
		case ip.family == knftables.IPv6Family:
			local = "ip6 daddr != { ::1, fe80::/10 } fib daddr type local "
		case hook == knftables.PreroutingHook: // the kernel refuses 127/8 from other machines only after the translation
			local = "meta nfproto ipv4 ip daddr != 127.0.0.0/8 fib daddr type local "
		}
		out.chains[name] = nftChain{typ: knftables.NATType, hook: hook, priority: "-111", rules: []string{
			local + "dnat " + ip.header + " to " + ip.header + " daddr . meta l4proto . th dport map @" + hostPortAt,
			local + "dnat " + ip.header + " to meta l4proto . th dport map @" + hostPortAny,
		}}
	}
	out.masqueradeLoopback(ip, strconv.Quote(h.Link))
	return out
}

// MapPorts declares the ports of an owner, such as a Pod's interface, and returns at once. The tables are written only
// after PortsLoaded.
func (m *Manager) MapPorts(owner string, list []HostPort) {
	declare(m.hostPorts, owner, func(yield func(element, netip.AddrPort) bool) {
		for _, p := range list {
			in := hostPortAny
			if p.Address.IsValid() {
				in = hostPortAt
			}
			if !yield(elementOf(in, p.Address, p.Protocol, p.Port), p.To) {
				return
			}
		}
	})
}

// PortsLoaded reports that every owner has been declared once. From then on ports without an owner may be removed.
func (m *Manager) PortsLoaded() {
	for _, t := range m.hostPorts {
		t.declared.setLoaded()
	}
}

// PortsSynced waits until the host has the ports that were declared, or refuses some.
func (m *Manager) PortsSynced(ctx context.Context) error { return m.allTranslated(ctx, m.hostPorts) }

package hostnet

import (
	"context"
	"net/netip"
	"strconv"

	"sigs.k8s.io/knftables"
)

// Ports of the Node that lead to its Pods (hostPort). The host translates the destination of a packet to the Pod's
// address, and the packet enters the switch by the gateway port with its real source. Only packets to an address of the
// Node are translated. The chains come before the chains of Services: a hostPort wins over a node port.

// hostPortsTable is the name of the table, of the family inet.
const hostPortsTable = "tombolo-hostports"

// Names of its maps.
const (
	hostPortAny = "hostport-any" // protocol and port -> Pod
	hostPortAt  = "hostport"     // address, protocol and port -> Pod
)

// hostPortMaps are the types of the maps.
var hostPortMaps = map[string]string{
	hostPortAny: "inet_proto . inet_service : ipv4_addr . inet_service",
	hostPortAt:  "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service",
}

// HostPorts are the conditions under which packets are translated.
type HostPorts struct {
	// Link is the gateway port, by which translated packets leave. Without it no table is wanted.
	Link string
	// Addresses are all addresses of the Node.
	Addresses []netip.Addr
}

// HostPort is a port of the Node that leads to a Pod.
type HostPort struct {
	Address  netip.Addr // the zero address stands for every address of the Node, loopback's too
	Protocol string     // tcp, udp or sctp
	Port     uint16
	To       netip.AddrPort
}

// newHostPortsTable returns the table of ports.
func newHostPortsTable() *translatedTable {
	return &translatedTable{
		name: hostPortsTable, maps: hostPortMaps, what: "map ports of the Node to Pods",
		contents: func(d Desired) contents { return hostPortsOf(d.HostPorts) },
		local:    func(d Desired) []netip.Addr { return d.HostPorts.Addresses },
		removed:  func(*translatedTable, *applier) bool { return true }, // its elements have named the connections
		end:      endConnections,
		declared: newTranslations(), changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
	}
}

// hostPortsOf returns the contents of the table but for the maps.
func hostPortsOf(h HostPorts) contents {
	out := contents{map[string]nftChain{}, map[string]nftSet{}}
	if h.Link == "" {
		return out
	}
	for name, hook := range map[string]knftables.BaseChainHook{
		"prerouting": knftables.PreroutingHook, "output": knftables.OutputHook,
	} {
		local := "meta nfproto ipv4 fib daddr type local "
		if hook == knftables.PreroutingHook { // the kernel refuses 127/8 from other machines only after the translation
			local = "meta nfproto ipv4 ip daddr != 127.0.0.0/8 fib daddr type local "
		}
		out.chains[name] = nftChain{typ: knftables.NATType, hook: hook, priority: "-111", rules: []string{
			local + "dnat ip to ip daddr . meta l4proto . th dport map @" + hostPortAt,
			local + "dnat ip to meta l4proto . th dport map @" + hostPortAny,
		}}
	}
	out.chains["postrouting"] = nftChain{typ: knftables.NATType, hook: knftables.PostroutingHook,
		priority: knftables.SNATPriority,
		rules:    []string{"ip saddr 127.0.0.0/8 oifname " + strconv.Quote(h.Link) + " masquerade"}}
	return out
}

// MapPorts declares the ports of an owner, such as a Pod's interface, and returns at once. Nothing is written before
// PortsLoaded.
func (m *Manager) MapPorts(owner string, list []HostPort) {
	now := map[element]netip.AddrPort{}
	for _, p := range list {
		in := hostPortAny
		if p.Address.IsValid() {
			in = hostPortAt
		}
		now[element{in, p.Address, p.Protocol, p.Port}] = p.To
	}
	m.hostPorts.declared.set(owner, now)
}

// PortsLoaded declares that every owner was declared once: what no owner has may be removed from now on.
func (m *Manager) PortsLoaded() { m.hostPorts.declared.setLoaded() }

// PortsSynced waits until the host has the ports that were declared, or refuses some.
func (m *Manager) PortsSynced(ctx context.Context) error { return m.translated(ctx, m.hostPorts) }

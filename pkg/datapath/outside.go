package datapath

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Clients outside of the Pods' network reach a Service at a port of the Node or at an external address. Their packets
// come through the host, on both datapaths. The host translates the destination to an address and port that are called
// the entry, and sends the packet through the gateway port. The entry's address encodes the kind of frontend and the
// kind of client, since a packet on a tap device has no mark. The port is the node port, or the number of the external
// address and port.
//
// The switch chooses the endpoint. A local endpoint gets the client's own address. For an endpoint behind a tunnel the
// switch translates the source to the Node's service source, so that replies come back here. Replies leave through the
// gateway port, and the host restores the destination that the client used.

// Entry is an address to which the host translates packets to Services from outside.
type Entry struct {
	Addr netip.Addr
	// External is set for external addresses. Then the port is the number that EntryOf returns. Otherwise it is the node
	// port.
	External bool
	// Own is set for processes of this Node.
	Own bool
}

// Entries are all entries, of both versions of IP. They lie in EntryRange and EntryRange6, like the Service addresses.
var Entries = []Entry{
	{Addr: netip.MustParseAddr("169.254.0.252")},
	{Addr: netip.MustParseAddr("169.254.0.251"), Own: true},
	{Addr: netip.MustParseAddr("169.254.0.250"), External: true},
	{Addr: netip.MustParseAddr("169.254.0.249"), External: true, Own: true},
	{Addr: netip.MustParseAddr("fc01::aabb:ccdd:eefe")},
	{Addr: netip.MustParseAddr("fc01::aabb:ccdd:eefd"), Own: true},
	{Addr: netip.MustParseAddr("fc01::aabb:ccdd:eefc"), External: true},
	{Addr: netip.MustParseAddr("fc01::aabb:ccdd:eefb"), External: true, Own: true},
}

// EntryRange and EntryRange6 contain the addresses of Entries. The switch accepts packets to them only if the host has
// translated these packets.
var (
	EntryRange  = netip.MustParsePrefix("169.254.0.248/29")
	EntryRange6 = netip.MustParsePrefix("fc01::aabb:ccdd:eef8/125")
)

// EntryRanges are the ranges of entries of some versions of IP.
func EntryRanges(families family.Families) (out []netip.Prefix) {
	for _, p := range []netip.Prefix{EntryRange, EntryRange6} {
		if families.Serve(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// outside is what Services and policies read of this Node.
type outside struct {
	NodePorts []netip.Addr
	Families  family.Families
}

// outsideBase identifies new connections from outside. A Pod's connection to a port of its Node stays in the switch, if
// a Service has the port.
func outsideBase(n Node) []flow.Flow {
	if !n.Outside {
		return nil
	}
	var flows []flow.Flow
	enter := func(from uint64, to netip.Addr, as flow.Bits, own bool) {
		actions := flow.Do(flow.Load(as, 1))
		if own {
			actions = append(actions, flow.Load(ownClient, 1))
		}
		flows = append(flows, flow.Flow{
			Table: External, Priority: normal,
			Match:   flow.All(source.Is(from), flow.IPDst(host(to))),
			Actions: append(actions, flow.Goto(Service)),
		})
	}
	for _, e := range Entries {
		if !n.Families.Serve(e.Addr) {
			continue
		}
		as := entryPort
		if e.External {
			as = entryExternal
		}
		enter(fromGateway, e.Addr, as, e.Own)
	}
	for _, ip := range n.NodePortAddresses {
		enter(fromPod, ip, entryPort, true)
	}
	flows = append(flows, n.each(func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{n.toGateway(origin, 0, ip, flow.CTState("+rpl+trk"), markSource.Is(fromGateway))}
	})...)
	// This flow is for the agent's rejection of a connection, whose source is the entry. The host reverses the
	// translation, even if the client is a Pod of another Node.
	for _, entries := range EntryRanges(n.Families) {
		flows = append(flows, n.toGateway(origin, 0, generated.Is(1), flow.IPSrc(entries)))
	}
	for _, from := range serviceSources(n) {
		flows = append(flows, throughServiceSource(n, from)...)
	}
	return flows
}

// serviceSources returns ServiceSource and ServiceSource6 of a Node that has tunnels, if they are set.
func serviceSources(n Node) []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{n.ServiceSource, n.ServiceSource6}, func(ip netip.Addr) bool {
		return n.Tunnels.Port == 0 || !n.Families.Serve(ip)
	})
}

// throughServiceSource changes the source of some connections, so that their replies come back to this Node. These are
// connections to Services that come from the host and leave through a tunnel. If their source is the gateway port's
// address, it stays, since replies to it come back too. The decision is made before table Commit, since later tables do
// not see the connection's state.
func throughServiceSource(n Node, from netip.Addr) []flow.Flow {
	ip := versionOf(from)
	flows := []flow.Flow{
		{
			Table: Commit, Priority: high,
			Match: flow.All(ip, snat.Is(0), source.Is(fromGateway), flow.CTState("-rpl+trk"), markService.Is(1),
				outPort.Is(uint64(n.Tunnels.Port))),
			Actions: flow.Do(flow.Load(snat, snatSource), flow.Resubmit(Commit)),
		},
		{
			Table: SNAT, Priority: normal, Match: flow.All(ip, snat.Is(snatSource)),
			Actions: flow.Do(translateSource(from)),
		},
		{
			Table: UnSNAT, Priority: normal,
			Match:   flow.All(flow.IPDst(host(from))),
			Actions: flow.Do(restoreSource()),
		},
	}
	for _, ip := range n.GatewayIPs {
		if ip.Is4() == from.Is4() {
			flows = append(flows, flow.Flow{
				Table: SNAT, Priority: high, Match: flow.All(snat.Is(snatSource), flow.IPSrc(host(ip))),
				Actions: flow.Do(flow.Goto(Output)),
			})
		}
	}
	return flows
}

// address is an address and port at which clients reach an endpoint set.
type address struct {
	vip     netip.AddrPort
	kind    service.Kind
	clients service.Clients
	limited bool
	sources []netip.Prefix // if limited
	entry   uint32         // the port of its entries, for an external address
	nodes   []netip.Addr   // at which Pods reach a node port, for UDP
}

func addressOf(f service.Frontend) address {
	return address{vip: f.VIP, kind: f.Kind, clients: f.Clients, limited: f.Limited, sources: f.Sources}
}

func (a address) isExternal() bool {
	return a.kind == service.LoadBalancer || a.kind == service.ExternalIP
}

func sameAddress(a, b address) bool {
	return a.vip == b.vip && a.kind == b.kind && a.clients == b.clients && a.entry == b.entry && a.limited == b.limited &&
		slices.Equal(a.sources, b.sources) && slices.Equal(a.nodes, b.nodes)
}

func derived(r *derive.Reader, of *derive.Table[derive.Name, outside]) outside {
	o, _ := derive.Get(r, of, Self)
	return o
}

// EntryID names an external address and port, for the number of its entries.
type EntryID struct {
	Protocol corev1.Protocol
	VIP      netip.AddrPort
}

// Compare makes an entry the key of a table.
func (e EntryID) Compare(o EntryID) int {
	return cmp.Or(cmp.Compare(e.Protocol, o.Protocol), e.VIP.Compare(o.VIP))
}

// String is the text that the number comes from.
func (e EntryID) String() string { return fmt.Sprintf("%s/%s", e.VIP, e.Protocol) }

// entryNumber is the port of an entry of an external address.
type entryNumber uint32

// Compare makes a number the key of a table.
func (n entryNumber) Compare(o entryNumber) int { return cmp.Compare(n, o) }

// addEntries numbers external addresses.
func (t *Services) addEntries(e *derive.Engine) {
	t.Entries = derive.NewNumbers(e, "entries", 1, 65535, derive.KeysOfIndex(derive.NewIndex(t.base.Frontends, "entry",
		func(_ derive.Object, list []service.Frontend) (out []EntryID) {
			for _, f := range list {
				if addressOf(f).isExternal() && f.Clients != service.OtherClients { // of each address one
					out = append(out, EntryID{f.Protocol, f.VIP})
				}
			}
			return out
		})))
	byNumber := derive.NewIndex(t.Entries, "number", func(_ EntryID, n uint32) []entryNumber {
		return []entryNumber{entryNumber(n)}
	})
	t.entered = derive.NewTable(e, "entered", func(n entryNumber, r *derive.Reader) (EntryID, []problem.Problem) {
		return derive.List(r, byNumber, n)[0].Key, nil
	}, derive.KeysOfIndex(byNumber))
}

// enter completes the addresses of an endpoint set. It leaves out an external address that has got no number. The table
// of numbers reports that.
func (t *Services) enter(protocol corev1.Protocol, list []address, r *derive.Reader) []address {
	if !slices.ContainsFunc(list, func(a address) bool { return a.kind != service.ClusterIP }) {
		return list
	}
	var out []address
	for _, a := range list {
		switch {
		case a.isExternal():
			var ok bool
			if a.entry, ok = derive.Get(r, t.Entries, EntryID{protocol, a.vip}); !ok {
				continue
			}
			// As with kube-proxy, a Node whose address is in the allowed ranges may use the Service from that address, too.
			if a.limited && slices.ContainsFunc(derived(r, t.base.outside).NodePorts, a.lets) {
				a.sources = append(slices.Clone(a.sources), host(a.vip.Addr()))
			}
		case a.kind == service.NodePort && protocol == corev1.ProtocolUDP:
			a.nodes = derived(r, t.base.outside).NodePorts
		}
		out = append(out, a)
	}
	return out
}

func (a address) lets(client netip.Addr) bool {
	return slices.ContainsFunc(a.sources, func(p netip.Prefix) bool { return p.Contains(client) })
}

// matches are the new connections to an address that meet more conditions.
func (s shared) matches(at address, more ...flow.Cond) []flow.Match {
	to := func(number uint16, conds ...flow.Cond) flow.Match {
		proto, port := portMatch(s.set.Protocol, number)
		return flow.All(append(append(append(slices.Clone(more), flow.CTState("+new+trk"), proto), conds...), port)...)
	}
	var client []flow.Cond
	switch at.clients {
	case service.OwnClients:
		client = append(client, ownClient.Is(1))
	case service.OtherClients:
		client = append(client, ownClient.Is(0))
	}
	client = append(client, versionOf(at.vip.Addr()))
	vip := to(at.vip.Port(), flow.IPDst(host(at.vip.Addr())))
	switch {
	case at.kind == service.NodePort:
		return []flow.Match{to(at.vip.Port(), append(client, entryPort.Is(1))...)}
	case !at.isExternal():
		return []flow.Match{vip}
	}
	entered := to(uint16(at.entry), append(client, entryExternal.Is(1))...)
	if at.clients == service.OtherClients {
		return []flow.Match{entered}
	}
	return []flow.Match{vip, entered} // a Pod of this Node comes by the address itself
}

// priority returns the priority of an address's flows. An external address may be one of the Node's own addresses. Then
// its ports have precedence over node ports.
func (a address) priority(special bool) uint16 {
	switch {
	case a.kind == service.NodePort && special:
		return low
	case a.kind == service.NodePort:
		return last
	case special:
		return high
	}
	return normal
}

// limit drops the clients that may not use a load balancer's address, before an endpoint is chosen.
func (s shared) limit(at address) []flow.Flow {
	if !at.limited || at.clients == service.OtherClients { // the own clients' row of the address has them all
		return nil
	}
	var flows []flow.Flow
	check := func(to netip.Addr, number uint16, enter flow.Actions, more ...flow.Cond) {
		proto, port := portMatch(s.set.Protocol, number)
		conds := append(more, proto, flow.IPDst(host(to)), port)
		flows = append(flows, flow.Flow{Table: External, Priority: differ, Match: flow.All(conds...)})
		for _, from := range at.sources {
			flows = append(flows, flow.Flow{
				Table: External, Priority: high, Match: flow.All(append(slices.Clone(conds), flow.IPSrc(from))...),
				Actions: append(slices.Clone(enter), flow.Goto(Service)),
			})
		}
	}
	check(at.vip.Addr(), at.vip.Port(), nil)
	for _, e := range Entries {
		if e.External && e.Addr.Is4() == at.vip.Addr().Is4() {
			enter := flow.Do(flow.Load(entryExternal, 1))
			if e.Own {
				enter = append(enter, flow.Load(ownClient, 1))
			}
			check(e.Addr, uint16(at.entry), enter, source.Is(fromGateway))
		}
	}
	return flows
}

// untranslated finds UDP connections to an address that began before its Service existed. An external address may also
// be an address of a Pod in a VirtualNetwork.
func (s shared) untranslated(at address, networks bool) (out []flow.Flow) {
	if at.kind != service.NodePort {
		return untranslatedTo(s.set.Protocol, at.vip, networks && at.isExternal())
	}
	for _, ip := range at.nodes {
		if at.clients != service.OtherClients && ip.Is4() == at.vip.Addr().Is4() {
			out = append(out, untranslatedTo(s.set.Protocol, netip.AddrPortFrom(ip, at.vip.Port()), false)...)
		}
	}
	return out
}

// Destinations returns the destination addresses that packets to a frontend may have in the switch. They identify its
// connections in connection tracking.
func (t *Services) Destinations(f service.Frontend) []netip.AddrPort {
	at := addressOf(f)
	if at.kind == service.ClusterIP {
		return []netip.AddrPort{f.VIP}
	}
	here, _ := t.base.outside.Get(Self)
	port, out := f.VIP.Port(), []netip.AddrPort(nil)
	if at.isExternal() {
		number, ok := t.Entries.Get(EntryID{f.Protocol, f.VIP})
		if !ok {
			return []netip.AddrPort{f.VIP} // the host has ended connections of others with their entry
		}
		port, out = uint16(number), []netip.AddrPort{f.VIP}
	} else {
		for _, ip := range here.NodePorts {
			if ip.Is4() == f.VIP.Addr().Is4() {
				out = append(out, netip.AddrPortFrom(ip, port))
			}
		}
	}
	for _, e := range Entries {
		if e.External == at.isExternal() && e.Addr.Is4() == f.VIP.Addr().Is4() {
			out = append(out, netip.AddrPortFrom(e.Addr, port))
		}
	}
	return out
}

// Asked finds the frontend that a packet in the switch is for, by its destination.
func (t *Services) Asked(find Frontends) Frontends {
	return func(protocol corev1.Protocol, to netip.AddrPort) (service.Frontend, bool) {
		nodePort := func() (service.Frontend, bool) {
			any := netip.IPv4Unspecified()
			if to.Addr().Is6() {
				any = netip.IPv6Unspecified()
			}
			return find(protocol, netip.AddrPortFrom(any, to.Port()))
		}
		for _, e := range Entries {
			if e.Addr != to.Addr() {
				continue
			}
			if !e.External {
				return nodePort()
			}
			id, ok := t.entered.Get(entryNumber(to.Port()))
			if !ok || id.Protocol != protocol {
				return service.Frontend{}, false
			}
			return find(protocol, id.VIP)
		}
		f, ok := find(protocol, to)
		if here, _ := t.base.outside.Get(Self); !ok && slices.Contains(here.NodePorts, to.Addr()) {
			return nodePort()
		}
		return f, ok
	}
}

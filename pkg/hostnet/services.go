package hostnet

import (
	"context"
	"net/netip"
	"slices"
	"strconv"

	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/family"
)

// Services for clients outside of the Pods' network. The host translates the destination of a packet to an entry of the
// switch, before kube-proxy or Antrea would translate it (their chains have priorities -100 and -101). So two programs
// can serve the same Services at the same time. Connection tracking keeps a connection with the program that translated
// it.
//
// The table has an element for each port in each of its maps, of which there may be ten thousand. It is a table of its
// own that is written by differences: what was written is remembered, and it is read at the start, and again when
// another program has changed a chain, rule, set or the table. Elements that another program changes are found at a
// slow interval, since the kernel reports our own elements as well.
//
// Each version of IP has a table of its own: of the family inet for IPv4, and of ip6 for IPv6. So a Node without IPv6
// has nothing of it.

// servicesTable is the name of the tables.
const servicesTable = "tombolo-services"

// Names inside the table.
const (
	nodePortIn  = "nodeport-in"  // protocol and port -> entry, from other machines
	nodePortOut = "nodeport-out" // the same of own processes
	externalIn  = "external-in"  // address, protocol and port -> entry
	externalOut = "external-out"
	nodeSet     = "node-addresses"
	ownSet      = "own-addresses"      // and loopback's of IPv4
	externalSet = "external-addresses" // of all Services
)

// serviceMaps are the types of the maps for IPv4.
var serviceMaps = map[string]string{
	nodePortIn:  "inet_proto . inet_service : ipv4_addr . inet_service",
	nodePortOut: "inet_proto . inet_service : ipv4_addr . inet_service",
	externalIn:  "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service",
	externalOut: "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service",
}

// serviceSets are the types of the sets that translations have elements in, for IPv4.
var serviceSets = map[string]string{externalSet: "ipv4_addr"}

// Services are the conditions under which packets are translated.
type Services struct {
	// Link is the gateway port. Packets that come through it are not translated, and translated packets leave through it.
	// Without it there is no table.
	Link string
	// Families are the versions of IP that have a table.
	Families family.Families
	// NodeAddresses are the Node's addresses that serve node ports.
	NodeAddresses []netip.Addr
	// Entries are the ranges of the entries, one for each version of IP. Packets to them that another machine sends are
	// dropped. If a table is removed, connections of UDP to entries end.
	Entries []netip.Prefix
}

// entries returns the range of the entries of a version of IP.
func (s Services) entries(ip version) (netip.Prefix, bool) {
	i := slices.IndexFunc(s.Entries, func(p netip.Prefix) bool { return ip.has(p.Addr()) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return s.Entries[i], true
}

// Translation is a port at which clients outside reach a Service.
type Translation struct {
	Address  netip.Addr // an external address; the zero address stands for NodeAddresses
	Protocol string     // tcp, udp or sctp
	Port     uint16
	// To is the destination for packets from other machines, and ToOwn the destination for packets of the Node's own
	// processes. With the zero value packets stay as they are.
	To, ToOwn netip.AddrPort
}

// elements are the elements of a translation with their values.
func (t Translation) elements(yield func(element, netip.AddrPort) bool) bool {
	in, out := nodePortIn, nodePortOut
	if t.Address.IsValid() {
		in, out = externalIn, externalOut
	}
	if t.To.IsValid() && !yield(elementOf(in, t.Address, t.Protocol, t.Port), t.To) ||
		t.ToOwn.IsValid() && !yield(elementOf(out, t.Address, t.Protocol, t.Port), t.ToOwn) {
		return false
	}
	return !t.Address.IsValid() || !t.To.IsValid() && !t.ToOwn.IsValid() ||
		yield(elementOf(externalSet, t.Address, "", 0), netip.AddrPortFrom(t.Address, 0)) // in the set
}

// newServicesTable returns the table of Services of a version of IP.
func newServicesTable(ip version) *translatedTable {
	return &translatedTable{
		family: tableOf[ip.family], ip: ip,
		name: servicesTable, maps: typesOf(serviceMaps, ip), sets: typesOf(serviceSets, ip),
		what:     "translate Services from outside",
		contents: func(d Desired) contents { return servicesOf(d.Services, ip) },
		local:    func(d Desired) []netip.Addr { return d.Services.NodeAddresses },
		removed:  endDatagramsThrough,
		end:      endConnections,
		declared: newTranslations(), changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
	}
}

// Translate declares the translations of an owner, such as a Service, and returns at once. The tables are written only
// after TranslationsLoaded.
func (m *Manager) Translate(owner string, list []Translation) {
	declare(m.services, owner, func(yield func(element, netip.AddrPort) bool) {
		for _, one := range list {
			if !one.elements(yield) {
				return
			}
		}
	})
}

// TranslationsLoaded reports that every owner has been declared once. From then on translations without an owner may be
// removed.
func (m *Manager) TranslationsLoaded() {
	for _, t := range m.services {
		t.declared.setLoaded()
	}
}

// servicesOf returns the contents of the table of a version of IP but for the maps.
func servicesOf(s Services, ip version) contents {
	out := contents{map[string]nftChain{}, map[string]nftSet{}}
	if s.Link == "" || !s.Families.Serve(ip.example) {
		return out
	}
	link := strconv.Quote(s.Link)
	var nodes []string
	for _, a := range s.NodeAddresses {
		if ip.has(a) {
			nodes = append(nodes, a.String())
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	local := hostsOf(s.NodeAddresses)
	// Packets to 127.0.0.0/8 may leave through a link with route_localnet. There is no such setting for ::1.
	local = append(local, netip.MustParsePrefix("127.0.0.0/8"))
	out.sets[nodeSet] = nftSet{ip.addresses, nil, nodes}
	out.sets[ownSet] = nftSet{ip.addresses, []knftables.SetFlag{knftables.IntervalFlag}, elements(local, ip.has)}
	translate := func(hook knftables.BaseChainHook, addresses, external, nodePorts string, before ...string) nftChain {
		return nftChain{typ: knftables.NATType, hook: hook, priority: "-110", rules: append(before,
			"dnat "+ip.header+" to "+ip.header+" daddr . meta l4proto . th dport map @"+external,
			ip.header+" daddr @"+addresses+" dnat "+ip.header+" to meta l4proto . th dport map @"+nodePorts,
		)}
	}
	// Packets that come through the gateway port have been translated by the switch, if they are to a Service.
	out.chains["prerouting"] = translate(knftables.PreroutingHook, nodeSet, externalIn, nodePortIn,
		"iifname "+link+" accept")
	out.chains["output"] = translate(knftables.OutputHook, ownSet, externalOut, nodePortOut)
	out.masqueradeLoopback(ip, link)
	// A packet to a port without a Service would go back to the router that sent it, until its TTL ends. A Pod may connect
	// to another machine that has the address, and gets its answers.
	out.chains["forward"] = nftChain{typ: knftables.FilterType, hook: knftables.ForwardHook,
		priority: knftables.FilterPriority,
		rules: []string{
			"iifname != " + link + " " + ip.header + " daddr @" + externalSet + " ct state new,invalid,untracked drop",
		}}
	if entries, ok := s.entries(ip); ok {
		out.chains["guard"] = nftChain{typ: knftables.FilterType, hook: knftables.PreroutingHook,
			priority: knftables.RawPriority,
			rules:    []string{"iifname != " + link + " " + ip.header + " daddr " + entries.String() + " drop"}}
	}
	return out
}

// masqueradeLoopback changes the source of translated packets that the host's processes send to 127.0.0.1, since the
// switch could not answer to a loopback address.
func (c contents) masqueradeLoopback(ip version, link string) {
	if ip.family == knftables.IPv4Family {
		c.chains["postrouting"] = nftChain{typ: knftables.NATType, hook: knftables.PostroutingHook,
			priority: knftables.SNATPriority, rules: []string{"ip saddr 127.0.0.0/8 oifname " + link + " masquerade"}}
	}
}

func hostsOf(list []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, ip := range list {
		out[i] = netip.PrefixFrom(ip, ip.BitLen())
	}
	return out
}

// TranslationsSynced waits until the host has the translations that were declared, or refuses some.
func (m *Manager) TranslationsSynced(ctx context.Context) error {
	return m.allTranslated(ctx, m.services)
}

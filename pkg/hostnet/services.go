package hostnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/desired"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Services for clients outside of the Pods' network. The host translates the destination of a packet to an entry of the
// switch, before kube-proxy or Antrea would translate it (their chains have priorities -100 and -101). So two programs
// can serve the same Services at one time. Connection tracking keeps a connection with the program that translated it.
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

// elementsResync is how often the elements are compared although no event asks for it.
const elementsResync = 10 * time.Minute

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

// typesOf returns types of maps or sets for a version of IP.
func typesOf(types map[string]string, ip version) map[string]string {
	out := map[string]string{}
	for name, text := range types {
		out[name] = strings.ReplaceAll(text, versions[knftables.IPv4Family].addresses, ip.addresses)
	}
	return out
}

// Services are the conditions under which packets are translated.
type Services struct {
	// Link is the gateway port. Packets that come by it are not translated, and translated packets leave by it. Without it
	// no table is wanted.
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
	// To is the destination of packets from other machines, ToOwn of packets of the Node's own processes. The zero value
	// leaves packets as they are.
	To, ToOwn netip.AddrPort
}

// element is the place of a translation in a map, or an address in a set. There may be forty thousand, so it has
// numbers instead of names and pointers.
type element struct {
	in       uint8 // place of the map's or set's name in places
	protocol uint8 // 0 in a set
	port     uint16
	address  address // the zero value in a map without addresses
}

// address is an address of either version as in IPv6.
type address [16]byte

// destination is an address and port. The zero value stands for no destination.
type destination struct {
	address address
	port    uint16
}

// valued is an element with its value.
type valued struct {
	element
	to destination
}

// places are the names of the maps and sets with elements of translations.
var places = []string{nodePortIn, nodePortOut, externalIn, externalOut, externalSet, hostPortAny, hostPortAt}

// protocolNames are the names of protocols by number.
var protocolNames = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}

// protocolOf returns the number of a protocol by its name, or by its number as text, which nft prints where there is no
// /etc/protocols. Of another protocol it is 0.
func protocolOf(text string) uint8 {
	switch text {
	case "tcp", "6":
		return unix.IPPROTO_TCP
	case "udp", "17":
		return unix.IPPROTO_UDP
	case "sctp", "132":
		return unix.IPPROTO_SCTP
	}
	return 0
}

func addressOf(ip netip.Addr) address {
	if !ip.IsValid() {
		return address{}
	}
	return ip.As16()
}

func (a address) ip() netip.Addr {
	if a == (address{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a).Unmap()
}

func destinationOf(to netip.AddrPort) destination {
	return destination{addressOf(to.Addr()), to.Port()}
}

func (d destination) valid() bool { return d.address != address{} }

// elementOf returns the element of a map for an address, which may be none, a protocol and a port.
func elementOf(in string, ip netip.Addr, protocol string, port uint16) element {
	return element{uint8(slices.Index(places, in)), protocolOf(protocol), port, addressOf(ip)}
}

func (e element) name() string { return places[e.in] }

func (e element) key() []string {
	var out []string
	if ip := e.address.ip(); ip.IsValid() {
		out = append(out, ip.String())
	}
	if e.protocol != 0 {
		out = append(out, protocolNames[e.protocol], strconv.Itoa(int(e.port)))
	}
	return out
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

// translatedTable is a table with an element for each translation, which is written by differences.
type translatedTable struct {
	family   knftables.Family
	ip       version
	name     string
	maps     map[string]string          // types by name
	sets     map[string]string          // the same of sets with elements, which have addresses
	contents func(Desired) contents     // all but the maps
	local    func(Desired) []netip.Addr // the addresses of elements without an address
	// removed follows the removal of the table, and is repeated until it reports that it is done. It is called once if an
	// earlier agent may have removed the table.
	removed func(*translatedTable, *applier) (done bool)
	// end ends connections of the host, of a family of sockets, that match.
	end      func(family uint8, filter connectionFilter, match func(connection) bool) (ended int, err error)
	what     string // the translations, in words
	declared *translations
	changed  chan struct{} // another program has changed the table, but for its elements
	wanted   chan struct{} // it should be another one
	outcome  outcome       // of the last comparison, in rounds of translations; Manager.mu guards it
}

// tableOf is the families of the tables of a version of IP.
var tableOf = map[knftables.Family]knftables.Family{
	knftables.IPv4Family: knftables.InetFamily, knftables.IPv6Family: knftables.IPv6Family,
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

// bothVersions returns a table for each version of IP.
func bothVersions(make func(version) *translatedTable) []*translatedTable {
	return []*translatedTable{make(versions[knftables.IPv4Family]), make(versions[knftables.IPv6Family])}
}

// mostSearched is how many elements of an owner are searched one by one. A map takes longer for so few.
const mostSearched = 32

// declare declares the elements of an owner in the table of each version of IP.
func declare(tables []*translatedTable, owner string, elements func(yield func(element, netip.AddrPort) bool)) {
	var few [8]valued
	for _, t := range tables {
		now := few[:0]
		var at map[element]int // of many elements
		for e, to := range elements {
			if !t.ip.has(to.Addr()) {
				continue
			}
			one := valued{e, destinationOf(to)}
			i, known := at[e]
			if at == nil {
				i = slices.IndexFunc(now, func(v valued) bool { return v.element == e })
				known = i >= 0
			}
			if known {
				now[i] = one
				continue
			}
			if now = append(now, one); at != nil {
				at[e] = len(now) - 1
			} else if len(now) == mostSearched {
				at = map[element]int{}
				for i, v := range now {
					at[v.element] = i
				}
			}
		}
		t.declared.set(owner, now)
	}
}

// endDatagramsThrough ends connections of UDP to entries. Without the table the switch does not serve entries any more.
// A client that keeps its port would send there for ever.
func endDatagramsThrough(t *translatedTable, a *applier) (done bool) {
	entries, ok := a.want.Services.entries(t.ip)
	return ok &&
		t.endDatagrams(a, translatedConnections, func(c connection) bool { return c.isThrough(entries) })
}

// byAddress reports whether the elements of a map have an address.
func (t *translatedTable) byAddress(name string) bool {
	return strings.HasPrefix(t.maps[name], t.ip.addresses)
}

// translations are what owners have declared. There may be ten thousand owners with four elements each, so an owner has
// no map of its own, and neither has an element.
type translations struct {
	mu     sync.Mutex
	owners map[string][]element
	values map[element]owned
	others map[element][]owned // for a moment an element may have several owners
	dirty  map[element]bool    // since take
	loaded bool
	round  uint64
	wake   chan struct{}
}

// owned is the value that an owner gives an element.
type owned struct {
	owner string
	to    destination
}

func newTranslations() *translations {
	return &translations{
		owners: map[string][]element{}, values: map[element]owned{}, others: map[element][]owned{},
		dirty: map[element]bool{}, wake: make(chan struct{}, 1),
	}
}

// Translate declares the translations of an owner, such as a Service, and returns at once. Nothing is written before
// TranslationsLoaded.
func (m *Manager) Translate(owner string, list []Translation) {
	declare(m.services, owner, func(yield func(element, netip.AddrPort) bool) {
		for _, one := range list {
			if !one.elements(yield) {
				return
			}
		}
	})
}

// set declares the elements of an owner, each once.
func (t *translations) set(owner string, now []valued) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.owners[owner]
	differs := func(v valued) bool { return !t.has(v.element, owned{owner, v.to}) }
	if len(before) == len(now) && !slices.ContainsFunc(now, differs) {
		return
	}
	for _, e := range before {
		t.dirty[e] = true
		t.drop(e, owner)
	}
	list := make([]element, 0, len(now))
	for _, v := range now {
		list = append(list, v.element)
		t.dirty[v.element] = true
		if _, taken := t.values[v.element]; taken {
			t.others[v.element] = append(t.others[v.element], owned{owner, v.to})
		} else {
			t.values[v.element] = owned{owner, v.to}
		}
	}
	if t.owners[owner] = list; len(now) == 0 {
		delete(t.owners, owner)
	}
	t.round++
	desired.Signal(t.wake)
}

func (t *translations) has(e element, o owned) bool {
	return t.values[e] == o || slices.Contains(t.others[e], o)
}

// drop removes the value that an owner gives an element.
func (t *translations) drop(e element, owner string) {
	others := t.others[e]
	switch {
	case t.values[e].owner != owner:
		others = slices.DeleteFunc(others, func(o owned) bool { return o.owner == owner })
	case len(others) > 0:
		t.values[e], others = others[0], others[1:]
	default:
		delete(t.values, e)
	}
	if t.others[e] = others; len(others) == 0 {
		delete(t.others, e)
	}
}

// TranslationsLoaded declares that every owner was declared once: what no owner has may be removed from now on.
func (m *Manager) TranslationsLoaded() {
	for _, t := range m.services {
		t.declared.setLoaded()
	}
}

// setLoaded declares that every owner was declared once.
func (t *translations) setLoaded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		t.loaded = true
		t.round++
		desired.Signal(t.wake)
	}
}

// take returns the elements that have changed since the last call, with the value that each should have. The value of
// an element that should not exist is the zero value.
func (t *translations) take() (changed map[element]destination, round uint64, loaded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		return nil, t.round, false
	}
	changed = map[element]destination{}
	for e := range t.dirty {
		changed[e] = t.value(e)
	}
	t.dirty = map[element]bool{}
	return changed, t.round, true
}

// all returns all elements that should exist.
func (t *translations) all() map[element]destination {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[element]destination, len(t.values))
	for e := range t.values {
		out[e] = t.value(e)
	}
	return out
}

// value returns the value of the first owner.
func (t *translations) value(e element) destination {
	first := t.values[e]
	for _, o := range t.others[e] {
		if o.owner < first.owner {
			first = o
		}
	}
	return first.to
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
	// Packets to 127.0.0.0/8 may leave by a link with route_localnet. There is nothing like it for ::1.
	local = append(local, netip.MustParsePrefix("127.0.0.0/8"))
	out.sets[nodeSet] = nftSet{ip.addresses, nil, nodes}
	out.sets[ownSet] = nftSet{ip.addresses, []knftables.SetFlag{knftables.IntervalFlag}, elements(local, ip.has)}
	translate := func(hook knftables.BaseChainHook, addresses, external, nodePorts string, before ...string) nftChain {
		return nftChain{typ: knftables.NATType, hook: hook, priority: "-110", rules: append(before,
			"dnat "+ip.header+" to "+ip.header+" daddr . meta l4proto . th dport map @"+external,
			ip.header+" daddr @"+addresses+" dnat "+ip.header+" to meta l4proto . th dport map @"+nodePorts,
		)}
	}
	// The switch has translated the packets that come by the gateway port, if a Service has their destination.
	out.chains["prerouting"] = translate(knftables.PreroutingHook, nodeSet, externalIn, nodePortIn,
		"iifname "+link+" accept")
	out.chains["output"] = translate(knftables.OutputHook, ownSet, externalOut, nodePortOut)
	out.masqueradeLoopback(ip, link)
	// A packet to a port that no Service has would go back to the router that has sent it, until its TTL ends. A Pod may
	// ask another machine that has the address, and gets its answers.
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

// masqueradeLoopback gives translated packets of own processes to 127.0.0.1 a source that the switch can answer.
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

// translator writes the table.
type translator struct {
	table   *translatedTable
	rules   *ruleset
	base    string // text of the contents that were written
	known   bool   // written is what the kernel has, as far as events report
	written map[element]destination
	// due are the addresses and ports of UDP whose connections may go past the translation that is written. They stay
	// until the connections have been looked at.
	due map[datagrams]bool
	// cleared is set if nothing of the removed table is left, until the table is written again.
	cleared bool
}

// datagrams are an address and port of UDP. The zero address stands for the addresses of the Node.
type datagrams struct {
	address netip.Addr
	port    uint16
}

// keepTranslated is Run for a table of translations.
func (m *Manager) keepTranslated(ctx context.Context, t *translatedTable) error {
	if err := m.enter(); err != nil {
		return err
	}
	a, s := &applier{log: m.log}, &translator{table: t, due: map[datagrams]bool{}}
	var again <-chan time.Time // after a failure
	resync, often := time.NewTicker(elementsResync), time.NewTicker(m.opts.Resync)
	defer resync.Stop()
	defer often.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.declared.wake:
		case <-t.wanted:
		case <-again:
		case <-resync.C:
			s.known = false
		case <-often.C:
			if !m.events.ended.Load() {
				continue
			}
			s.known = false
		case <-t.changed:
			s.known = false
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				return nil
			}
		}
		changed, round, loaded := t.declared.take()
		want, stack := m.want.Get() // what was set before these translations were declared
		if !loaded || stack == 0 {
			continue
		}
		a.begin(ctx, want)
		s.apply(a, changed, t.declared.all)
		s.endStale(a)
		again = nil
		if len(a.failed)+len(a.noted) > 0 {
			again = time.After(tableRetry)
		}
		m.compared(a, &t.outcome, round)
	}
}

// apply brings the table to what it should be: changed are the elements that differ from what was wanted before, and
// all returns all elements.
func (s *translator) apply(a *applier, changed map[element]destination, all func() map[element]destination) {
	object := problem.Object{Kind: "nftables table", Name: string(s.table.family) + " " + s.table.name}
	base := s.table.contents(a.want)
	if s.rules == nil {
		nft, err := knftables.New(s.table.family, s.table.name)
		if err != nil {
			if len(base.chains) > 0 {
				a.change(err, object, "", "ask for nftables; the nft program has to be installed")
			}
			return
		}
		s.rules = &ruleset{nft: nft}
	}
	if text := fmt.Sprint(base); text != s.base {
		s.known, s.base = false, text
	}
	if !s.known {
		s.rewrite(a, object, base, all())
		return
	}
	if len(base.chains) == 0 {
		return // what is declared is written with the table
	}
	tx := s.rules.nft.NewTransaction()
	n := s.difference(tx, changed)
	if n == 0 {
		return
	}
	if err := s.rules.nft.Run(a.ctx, tx); err != nil {
		s.known = false // and read, at the next attempt
		a.change(err, object, "", "change %d elements", n)
		return
	}
	a.change(nil, object, "", "change %d elements", n)
	s.wrote(changed)
}

// rewrite reads the table and brings it to what it should be, as a whole if it has other chains, rules or sets.
func (s *translator) rewrite(a *applier, object problem.Object, base contents, want map[element]destination) {
	a.reads++
	have, same, there, err := s.read(a.ctx, base)
	switch {
	case err != nil:
		a.change(err, object, "", "read it")
		return
	case len(base.chains) == 0:
		if there && !s.remove(a, object) {
			return
		}
		s.known = true
		s.has(nil)
		return
	}
	s.cleared = false
	tx := s.rules.nft.NewTransaction()
	changed := maps.Clone(want)
	if same {
		s.has(have)
		for e := range have {
			if _, ok := want[e]; !ok {
				changed[e] = destination{}
			}
		}
	} else {
		s.has(map[element]destination{})
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		tx.Add(&knftables.Table{Comment: knftables.PtrTo("made by tombolo-agent, which mends changes")})
		addSets(tx, base.sets)
		for _, name := range slices.Sorted(maps.Keys(s.table.maps)) {
			tx.Add(&knftables.Map{Name: name, Type: s.table.maps[name]})
		}
		for _, name := range slices.Sorted(maps.Keys(s.table.sets)) {
			tx.Add(&knftables.Set{Name: name, Type: s.table.sets[name]})
		}
		addChains(tx, base.chains)
	}
	n := s.difference(tx, changed)
	if same && n == 0 {
		s.known = true
		return
	}
	if err := s.rules.nft.Run(a.ctx, tx); err != nil {
		a.change(err, object, "", "write its chains and %d elements", n)
		return
	}
	s.known = true
	a.change(nil, object, "", "change %d elements", n)
	s.wrote(changed)
}

// remove removes the table. It notes the elements of a table that an earlier agent has written, since their connections
// are due.
func (s *translator) remove(a *applier, object problem.Object) (done bool) {
	if s.written == nil { // an earlier agent wrote it; an error does not matter, since the table goes
		have, _, _ := s.elements(a.ctx, slices.Sorted(maps.Keys(s.table.maps)))
		s.has(have)
	}
	tx := s.rules.nft.NewTransaction()
	tx.Add(&knftables.Table{}) // so that the removal cannot fail
	tx.Delete(&knftables.Table{})
	err := s.rules.nft.Run(a.ctx, tx)
	a.change(err, object, "", "remove it")
	s.cleared = false
	return err == nil
}

// difference adds what brings the elements to their values, and returns how many differ.
func (s *translator) difference(tx *knftables.Transaction, changed map[element]destination) (n int) {
	for e, to := range changed {
		have, there := s.written[e]
		if have == to && there == to.valid() {
			continue
		}
		n++
		if e.protocol == 0 {
			if in := (&knftables.Element{Set: e.name(), Key: e.key()}); to.valid() {
				tx.Add(in)
			} else {
				tx.Delete(in)
			}
			continue
		}
		if there {
			tx.Delete(&knftables.Element{Map: e.name(), Key: e.key()})
		}
		if to.valid() {
			tx.Add(&knftables.Element{
				Map: e.name(), Key: e.key(), Value: []string{to.address.ip().String(), strconv.Itoa(int(to.port))},
			})
		}
	}
	return n
}

// wrote notes a change that the kernel has taken over.
func (s *translator) wrote(changed map[element]destination) {
	for e, to := range changed {
		have, there := s.written[e]
		if have == to && there == to.valid() {
			continue
		}
		if s.note(e); to.valid() {
			s.written[e] = to
		} else {
			delete(s.written, e)
		}
	}
}

// has notes all that the kernel has; nil without a table.
func (s *translator) has(now map[element]destination) {
	for e, to := range now {
		if s.written[e] != to {
			s.note(e)
		}
	}
	for e := range s.written {
		if _, still := now[e]; !still {
			s.note(e)
		}
	}
	s.written = now
}

// note makes connections of UDP due, since their translation may be another one than before.
func (s *translator) note(e element) {
	if e.protocol == unix.IPPROTO_UDP {
		s.due[datagrams{e.address.ip(), e.port}] = true
	}
}

// endStale ends connections of UDP that go past the translation. Connection tracking repeats the translation of the
// first packet for as long as the client sends.
func (s *translator) endStale(a *applier) {
	if !s.known {
		return // what is written is not known
	}
	if len(s.table.contents(a.want).chains) == 0 && !s.cleared {
		s.cleared = s.table.removed(s.table, a)
	}
	if len(s.due) == 0 {
		return
	}
	stale := staleDatagrams{own: s.table.local(a.want), ports: map[uint16][]datagramsTo{}}
	for d := range s.due {
		to := s.valuesOf(d)
		stale.ports[d.port] = append(stale.ports[d.port], datagramsTo{d.address, to})
	}
	if s.table.endDatagrams(a, datagramConnections, stale.match) {
		clear(s.due)
	}
}

// LeadsTo reports whether a route to the entries leads to the link. Without it no packet to them can pass.
func LeadsTo(link string, entries netip.Prefix) (bool, error) {
	gw, err := netlink.LinkByName(link)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("link %s: %w", link, err)
	}
	dst := &net.IPNet{IP: entries.Addr().AsSlice(), Mask: net.CIDRMask(entries.Bits(), entries.Addr().BitLen())}
	routes, err := netlink.RouteListFiltered(int(socketFamily(entries.Addr())),
		&netlink.Route{LinkIndex: gw.Attrs().Index, Dst: dst}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST)
	if errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("routes to %s: %w", entries, err)
	}
	return len(routes) > 0, nil
}

// OpenThrough counts the connections of the host that were translated to entries and have not ended, without UDP, which
// has no end.
func OpenThrough(entries netip.Prefix) (int, error) {
	n := 0
	err := listConnections(socketFamily(entries.Addr()), translatedConnections, func(c connection, _ []byte) {
		if c.isThrough(entries) && c.protocol != unix.IPPROTO_UDP && !c.hasEnded() {
			n++
		}
	})
	if err != nil {
		return 0, fmt.Errorf("list connections of the host: %w", err)
	}
	return n, nil
}

// isThrough reports whether the host has translated a connection to an entry.
func (c connection) isThrough(entries netip.Prefix) bool {
	return c.zone == 0 && entries.Contains(c.answers.Addr()) && !entries.Contains(c.to.Addr())
}

// hasEnded reports whether both sides of a TCP connection have closed it, or one has never answered.
func (c connection) hasEnded() bool {
	return c.protocol == unix.IPPROTO_TCP && slices.Contains(
		[]uint8{nl.TCP_CONNTRACK_SYN_SENT, nl.TCP_CONNTRACK_TIME_WAIT, nl.TCP_CONNTRACK_CLOSE}, c.tcp)
}

// valuesOf returns the destinations of an address and port, from other machines and of own processes.
func (s *translator) valuesOf(d datagrams) (out []netip.AddrPort) {
	for name := range s.table.maps {
		if s.table.byAddress(name) != d.address.IsValid() {
			continue
		}
		if to, ok := s.written[elementOf(name, d.address, "udp", d.port)]; ok {
			out = append(out, netip.AddrPortFrom(to.address.ip(), to.port))
		}
	}
	return out
}

// datagramsTo are the destinations that datagrams to an address are translated to, none if they are not.
type datagramsTo struct {
	address netip.Addr // the zero address: one of the Node's
	to      []netip.AddrPort
}

// staleDatagrams finds connections of UDP of the host whose translation is not the present one: connection tracking
// repeats the first one for as long as the client sends.
type staleDatagrams struct {
	own   []netip.Addr
	ports map[uint16][]datagramsTo
}

// match reports whether a connection is stale.
func (s staleDatagrams) match(c connection) bool {
	to := c.to.Addr()
	return slices.ContainsFunc(s.ports[c.to.Port()], func(d datagramsTo) bool {
		if d.address.IsValid() && d.address != to {
			return false
		}
		if !d.address.IsValid() && (!to.IsLoopback() || !to.Is4()) && !slices.Contains(s.own, to) {
			return false
		}
		return !slices.Contains(d.to, c.answers)
	})
}

// read returns the elements of the table, and whether chains, rules and sets are as they should be. Otherwise the
// elements are not read.
func (s *translator) read(ctx context.Context, base contents) (have map[element]destination, same, there bool,
	err error) {
	chains, err := s.rules.list(ctx, "chains")
	if err != nil {
		return nil, false, false, err
	}
	sets, err := s.rules.list(ctx, "sets")
	if err != nil {
		return nil, false, false, err
	}
	named, err := s.rules.list(ctx, "maps")
	if err != nil {
		return nil, false, false, err
	}
	there = len(chains)+len(sets)+len(named) > 0
	dynamic := slices.Sorted(maps.Keys(s.table.sets))
	fixed := slices.DeleteFunc(slices.Clone(sets), func(name string) bool { return slices.Contains(dynamic, name) })
	if !there || !slices.Equal(named, slices.Sorted(maps.Keys(s.table.maps))) ||
		len(sets)-len(fixed) != len(dynamic) {
		return nil, false, there, nil
	}
	if same, err = s.rules.matches(ctx, chains, fixed, base); err != nil || !same {
		return nil, false, there, err
	}
	if have, same, err = s.elements(ctx, named); err != nil || !same {
		return nil, false, there, err
	}
	for _, name := range dynamic {
		list, err := s.rules.nft.ListElements(ctx, "set", name)
		if err != nil {
			return nil, false, there, err
		}
		for _, one := range list {
			ip, err := netip.ParseAddr(one.Key[0])
			if err != nil {
				return nil, false, there, nil
			}
			have[elementOf(name, ip, "", 0)] = destination{address: addressOf(ip)}
		}
	}
	return have, true, there, nil
}

// elements returns the elements of some maps of the table. If one is not ours, it returns false, and everything is to
// be written again.
func (s *translator) elements(ctx context.Context, named []string) (have map[element]destination, ours bool,
	err error) {
	have = map[element]destination{}
	for _, name := range named {
		list, err := s.rules.nft.ListElements(ctx, "map", name)
		if err != nil {
			return nil, false, err
		}
		for _, one := range list {
			e, to, ok := parseElement(name, s.table.byAddress(name), one)
			if !ok {
				return nil, false, nil
			}
			have[e] = to
		}
	}
	return have, true, nil
}

// parseElement reads an element as nft lists it.
func parseElement(in string, byAddress bool, one *knftables.Element) (e element, to destination, ok bool) {
	key := one.Key
	var ip netip.Addr
	if byAddress {
		var err error
		if ip, err = netip.ParseAddr(key[0]); err != nil {
			return e, to, false
		}
		key = key[1:]
	}
	if len(key) != 2 || len(one.Value) != 2 {
		return e, to, false
	}
	port, err := strconv.ParseUint(key[1], 10, 16)
	if err != nil {
		return e, to, false
	}
	e = elementOf(in, ip, key[0], uint16(port))
	at, err := netip.ParseAddrPort(net.JoinHostPort(one.Value[0], one.Value[1]))
	return e, destinationOf(at), err == nil && e.protocol != 0
}

// TranslationsSynced waits until the host has the translations that were declared, or refuses some.
func (m *Manager) TranslationsSynced(ctx context.Context) error {
	return m.allTranslated(ctx, m.services)
}

// allTranslated waits until the host has the translations that were declared for some tables, or refuses some.
func (m *Manager) allTranslated(ctx context.Context, tables []*translatedTable) error {
	var failed error
	for _, t := range tables {
		failed = errors.Join(failed, m.translated(ctx, t))
	}
	return failed
}

// translated is allTranslated for one table.
func (m *Manager) translated(ctx context.Context, t *translatedTable) error {
	t.declared.mu.Lock()
	round := t.declared.round
	t.declared.mu.Unlock()
	for {
		m.mu.Lock()
		done, progress, failed := t.outcome.done, m.progress, t.outcome.failed
		m.mu.Unlock()
		if done >= round {
			return asError(failed)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", t.what, context.Cause(ctx))
		case <-progress:
		}
	}
}

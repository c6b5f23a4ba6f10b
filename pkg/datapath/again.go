package datapath

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// If a change of policies concerns known connections, they are judged again. The connections are found among the
// connections that the switch tracks (Look), so a restart finds the same. While there are such connections, each
// Recheck has a flow in table ConntrackState. Only then does the switch have to read the connection's label for each
// packet.
//
// Table Again makes such a connection pending, like a connection to a Service that no policy has judged yet. Its
// packets are judged like the first one. If a rule allows them, the connection continues under that rule's number.
// Otherwise it stays pending for as long as it is tracked, and no packet of it passes in either direction. It is not
// flushed. After a flush the next packet of the server would make it a new connection in the other direction, which
// other policies judge.
//
// A reply cannot be judged, because the packet that it answers is unknown. The first replies of TCP and SCTP pass
// (maxUnanswered). They make the client answer, and its answer is judged, so that a download ends within a round trip.
// The connection counts the replies in its mark. If the client sends nothing, the connection then becomes pending in
// both directions. Otherwise two cooperating ends could continue for ever. All other replies wait for the client's next
// packet.

// maxUnanswered is how many replies of TCP and SCTP pass before the client's next packet is judged. They are enough for
// a server that repeats a lost segment several times. The rest of a larger window is lost once, and sent again. If the
// datapath processes packets in a batch, up to 32 in userspace, the batch counts as one.
const maxUnanswered = 7

// Recheck selects known connections to judge again.
type Recheck struct {
	Why       Why
	Direction policy.Direction
	Rule      uint32     // of RuleGone and RuleOfOthers
	Addr      netip.Addr // of all but RuleGone
	Zone      uint16     // of the separate network that Addr is in, or 0
	Identity  uint32     // of Relabelled
}

// Why connections are judged again.
type Why uint8

// Reasons for a Recheck.
const (
	RuleGone     Why = iota + 1 // they have the number of a rule that no longer exists
	NotJudged                   // no policy has judged them, and now policies are applied to the Pod at Addr
	Relabelled                  // the Pod at Addr, sender (Egress) or receiver (Ingress), had another Identity
	RuleOfOthers                // they have a number that only rules of other Pods have, not of the Pod at Addr
)

// Compare makes a Recheck the key of a table.
func (c Recheck) Compare(o Recheck) int {
	return cmp.Or(cmp.Compare(c.Why, o.Why), cmp.Compare(c.Direction, o.Direction),
		cmp.Compare(c.Rule, o.Rule), c.Addr.Compare(o.Addr), cmp.Compare(c.Identity, o.Identity),
		cmp.Compare(c.Zone, o.Zone))
}

var whys = [...]string{
	RuleGone: "rule-gone", NotJudged: "not-judged", Relabelled: "relabelled", RuleOfOthers: "rule-of-others",
}

// String returns text such as "egress rule-gone 77", "ingress not-judged 10.0.0.7", "egress relabelled 10.0.0.7 was 5",
// "ingress rule-of-others 10.0.0.7 has 77", "ingress not-judged 10.50.0.7 in zone 17".
func (c Recheck) String() string {
	text := fmt.Sprintf("%s %s ", c.Direction, whys[c.Why])
	if c.Why == RuleGone {
		return text + fmt.Sprint(c.Rule)
	}
	text += c.Addr.String()
	if c.Zone != 0 {
		text += fmt.Sprintf(" in zone %d", c.Zone)
	}
	switch c.Why {
	case Relabelled:
		text += fmt.Sprintf(" was %d", c.Identity)
	case RuleOfOthers:
		text += fmt.Sprintf(" has %d", c.Rule)
	}
	return text
}

// KnownConnections has the tables that judge known connections again.
type KnownConnections struct {
	policies *Policies
	locals   *derive.Table[derive.Name, local]
	rechecks *derive.Source[Recheck, bool]
	flows    *derive.Table[Recheck, flow.Entries]
	places   *derive.Table[derive.Object, networkPlace] // of VirtualNetworks and Namespaces; nil without any
}

// networkPlace is the network of a VirtualNetwork, or of a Namespace.
type networkPlace struct {
	tenant.Place
	Zone uint16 // of a separate network
}

func newKnownConnections(e *derive.Engine, p *Policies) *KnownConnections {
	k := &KnownConnections{policies: p, rechecks: derive.NewSource[Recheck, bool](e, "rechecks")}
	k.rechecks.Loaded() // it is found out from the switch, once the flows are there
	k.flows = derive.NewTable(e, "recheck-flows", k.recheckFlows, derive.KeysOf(k.rechecks))
	k.locals = derive.NewTable(e, "local-pods", k.localOf, derive.KeysOf(p.base.Pods))
	if networks := p.base.Networks; networks != nil {
		k.places = derive.NewTable(e, "places-of-connections",
			func(name derive.Object, r *derive.Reader) (networkPlace, []problem.Problem) {
				if name.Namespace == "" {
					return networkPlace{Place: p.tenants.placeOf(r, name.Name)}, nil
				}
				n, _ := derive.Get(r, networks, name)
				return networkPlace{n.Place, n.Zone}, nil
			}, derive.KeysOf(networks), derive.KeysOf(p.base.Places))
	}
	return k
}

// zoneOf returns the zone of a separate network, and 0 for all other networks. Call it between two passes.
func (k *KnownConnections) zoneOf(network derive.Object) uint16 {
	if k.places == nil || network == (derive.Object{}) {
		return 0
	}
	place, _ := k.places.Get(network)
	return place.Zone
}

// recheckFlows send packets of known connections to table Again.
func (k *KnownConnections) recheckFlows(c Recheck, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	add := func(state string, conds ...flow.Cond) {
		e.Flows = append(e.Flows, flow.Flow{
			Table: ConntrackState, Priority: high,
			Match:   flow.All(append(conds, flow.CTState(state), markPending.Is(0))...),
			Actions: flow.Do(flow.Goto(Again)),
		})
	}
	d := directions[c.Direction]
	both := func(label ...flow.Cond) { // of the connections from (Egress) or to the address
		there, back := flow.IPSrc(host(c.Addr)), flow.IPDst(host(c.Addr))
		switch {
		case c.Zone != 0:
			label = append(label, inZone.Is(separate(c.Zone)))
		case k.policies.tenants.entersSeparate(r):
			label = append(label, isSeparate.Is(0))
		}
		if c.Direction == policy.Ingress {
			there, back = back, there
		}
		add("-new+est-rel-rpl-inv+trk", append(slices.Clone(label), there)...)
		add("-new+est-rel+rpl-inv+trk", append(slices.Clone(label), back)...)
	}
	switch c.Why {
	case RuleGone:
		for _, ip := range versions(derived(r, k.policies.base.outside).Families) {
			add("-new+est-rel-inv+trk", ip, d.label.Is(uint64(c.Rule)))
		}
	case NotJudged:
		both(d.label.Is(0))
	case RuleOfOthers:
		both(d.label.Is(uint64(c.Rule)))
	case Relabelled:
		// This is only needed if a rule has let the connection pass. Then it is judged again, and its label gets the new
		// identity.
		for _, judged := range directions {
			byRule := flow.Bits{Field: judged.label.Field, First: judged.label.First + ruleNumberBit, Width: 1}
			both(d.labelOwn.Is(uint64(c.Identity)), byRule.Is(1))
		}
	}
	return e, nil
}

// again returns the flows of table Again, for a version of IP.
func (t tracking) again(ip flow.Cond) []flow.Flow {
	pend := func(table ofp.Table) ofp.Action {
		return t.ct(ofp.CT{Flags: ofp.CTCommit, Table: table, Exec: flow.Do(
			flow.Load(markPending, 1), flow.Load(labelIngress, 0), flow.Load(labelEgress, 0),
			flow.Load(labelSender, 0), flow.Load(labelReceiver, 0), flow.Load(markUnanswered, 0))})
	}
	reply := flow.CTState("+rpl+trk")
	var flows []flow.Flow
	for n := range uint64(maxUnanswered) {
		count := flow.Do(
			t.ct(ofp.CT{Flags: ofp.CTCommit, Table: Route, Exec: flow.Do(flow.Load(markUnanswered, n+1))}))
		for _, protocol := range []flow.Cond{flow.TCP(), flow.SCTP()} {
			flows = append(flows, t.flow(Again, high, count, ip, protocol, reply, markUnanswered.Is(n)))
		}
	}
	return append(flows,
		t.flow(Again, normal, flow.Do(pend(ofp.CTNoTable)), ip, reply),
		t.flow(Again, normal, flow.Do(flow.Load(committed, 1), pend(Egress)), ip, flow.CTState("-rpl+trk")))
}

// Recheck starts to judge these known connections again, and stops for all others. Any goroutine may call it.
func (k *KnownConnections) Recheck(list []Recheck) {
	rows := map[Recheck]bool{}
	for _, c := range list {
		rows[c] = true
	}
	k.rechecks.Replace(rows)
}

// Watch sets a function that the evaluating goroutine calls if known connections may have to be judged again.
func (k *KnownConnections) Watch(changed func()) {
	p := k.policies
	p.numbers.rules.Watch(func([]derive.Change[policy.RuleKey, uint32]) { changed() })
	p.judged.Watch(func([]derive.Change[policy.Identity, flow.Entries]) { changed() })
	p.addresses.Watch(func([]derive.Change[policy.Addr, flow.Entries]) { changed() })
	p.further.Watch(func([]derive.Change[policy.FurtherAddr, flow.Entries]) { changed() })
	p.unknown.Watch(func([]derive.Change[policy.PodRange, flow.Entries]) { changed() })
	p.blocks.Watch(func([]derive.Change[policy.Block, flow.Entries]) { changed() })
	k.locals.Watch(func([]derive.Change[derive.Name, local]) { changed() })
	p.followed.Watch(func([]derive.Change[remoteNumber, flow.Entries]) { changed() })
	p.in.Newcomers.Watch(func(list []derive.Change[policy.SenderKey, policy.Newcomer]) {
		var c Concern
		for _, x := range list {
			c.newcomer(p.in, x.Old, x.New)
		}
		if c.Look || len(c.Since) > 0 {
			changed()
		}
	})
}

// Look compares the connections that a datapath tracks with the policies. One goroutine uses it.
type Look struct {
	known    *KnownConnections
	between  func(func(passes uint64)) bool
	snapshot policySnapshot
	passes   uint64    // of the snapshot; 0 for none
	lines    []tracked // not compared yet
	found    map[Recheck]bool
	ended    bool // between has called nothing
}

// lookShare is how many connections a Look compares between two passes, which wait for it: a few milliseconds.
const lookShare = 4096

// Look begins a look. Any goroutine may call it. The function between calls another one between two passes, with the
// number of passes so far. It returns false if it did not call it. During a pass, only some tables have the new state.
// So a Look at that time could miss numbers that are in use.
func (k *KnownConnections) Look(between func(func(passes uint64)) bool) *Look {
	return &Look{known: k, between: between, found: map[Recheck]bool{}}
}

// Line reads a line of dpctl/dump-conntrack. The switch writes the first line when its list is complete, so the list is
// not newer than the policies.
func (l *Look) Line(line string) {
	if l.ended {
		return
	}
	if c, ok := trackedOf(line); ok {
		if l.lines = append(l.lines, c); len(l.lines) == lookShare {
			l.compare()
		}
	}
}

// compare compares the connections that were read since it was called last.
func (l *Look) compare() {
	l.ended = l.ended || !l.between(func(passes uint64) {
		if passes != l.passes { // with many rules it takes longer than the connections
			l.snapshot, l.passes = l.known.snapshot(), passes
		}
		for _, c := range l.lines {
			l.snapshot.recheck(c, func(r Recheck) { l.found[r] = true })
		}
	})
	l.lines = l.lines[:0]
}

// Rechecks returns the connections that have to be judged again, sorted. It returns false if the engine has ended.
func (l *Look) Rechecks() ([]Recheck, bool) {
	if len(l.lines) > 0 {
		l.compare()
	}
	return slices.SortedFunc(maps.Keys(l.found), Recheck.Compare), !l.ended
}

// tracked is a connection that was established, or may be, and is not pending.
type tracked struct {
	policy.Connection        // to the endpoint
	zone              uint16 // of a separate network, or 0
	service           bool   // it was made to another address
	// first is set if the client is a Pod of another Node whose own network is a VirtualNetwork. left is set if the client
	// is such a Pod of this Node, and the connection would leave the network.
	first, left bool
	rules       [2]uint32
	ends        [2]uint32 // identities, the receiver's under Ingress and the sender's under Egress
}

// trackedOf reads a line of dpctl/dump-conntrack.
func trackedOf(line string) (c tracked, ok bool) {
	protocol, _, _ := strings.Cut(line, ",")
	orig, rest, ok1 := tuple(line, "orig=(")
	reply, rest, ok2 := tuple(rest, "reply=(")
	if !ok1 || !ok2 {
		return c, false
	}
	var zone, mark uint64
	var label [16]byte
	for word := range strings.SplitSeq(strings.TrimSpace(rest), ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "zone":
			zone, _ = strconv.ParseUint(value, 10, 16)
		case "mark":
			mark, _ = strconv.ParseUint(value, 0, 32)
		case "labels":
			digits := strings.TrimPrefix(value, "0x")
			if b, err := hex.DecodeString(strings.Repeat("0", max(0, 32-len(digits))) + digits); err == nil && len(b) == 16 {
				label = [16]byte(b)
			}
		}
	}
	switch {
	case mark>>markPending.First&1 == 1:
		return c, false
	case zone == uint64(mainZone):
	case zone == 0 || zone > tenant.MaxZone || !HasSource(uint32(mark)):
		return c, false
	default:
		c.zone = uint16(zone)
	}
	has := func(b flow.Bits) bool { return mark>>b.First&1 == 1 }
	c.first = mark>>markSource.First&(1<<markSource.Width-1) == fromFirst
	c.left = has(markService) && !has(markTenant) && !has(markInside)
	from, _ := addrPort(orig, "src", "sport")
	to, _ := addrPort(reply, "src", "sport")
	made, _ := addrPort(orig, "dst", "dport")
	c.service = made.Addr() != to.Addr()
	c.From, c.To, c.SourcePort, c.Port = from.Addr(), to.Addr(), from.Port(), to.Port()
	switch c.Protocol = corev1.Protocol(strings.ToUpper(protocol)); c.Protocol {
	case policy.ProtocolICMP, "ICMPV6":
		c.Protocol, c.Port = policy.ProtocolICMP, messageOf(orig) // rules mean both by ICMP
	}
	bits := func(b flow.Bits) uint32 {
		high, low := binary.BigEndian.Uint64(label[:8]), binary.BigEndian.Uint64(label[8:])
		v := low >> b.First
		if b.First >= 64 {
			v = high >> (b.First - 64)
		} else if b.First > 0 {
			v |= high << (64 - b.First)
		}
		return uint32(v & (1<<b.Width - 1))
	}
	for d, s := range directions {
		c.rules[d], c.ends[d] = bits(s.label), bits(s.labelOwn)
	}
	if c.zone != 0 && c.Protocol == corev1.ProtocolSCTP && c.Port == 0 {
		return c, false // the zone is for a port (sctpByPort)
	}
	return c, c.From.IsValid() && c.To.IsValid()
}

// messageOf is the type and the code of an ICMP message in a tuple.
func messageOf(tuple string) uint16 {
	var out [2]uint64
	for word := range strings.SplitSeq(tuple, ",") {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "type":
			out[0], _ = strconv.ParseUint(value, 10, 8)
		case "code":
			out[1], _ = strconv.ParseUint(value, 10, 8)
		}
	}
	return uint16(out[0]<<8 | out[1])
}

// local is a Pod of this Node.
type local struct {
	pod      derive.Object
	network  derive.Object // the VirtualNetwork of the port, or zero
	zone     uint16        // of the network, if it is separate
	first    bool          // it is the Pod's own network
	place    tenant.Place  // of the port
	ips      []netip.Addr
	identity uint32
	applied  [2]bool // policies for which known connections have to be judged, by direction
	defaults [2]uint32
}

// localOf returns the facts about the Pod at a port that known connections are compared with.
func (k *KnownConnections) localOf(port derive.Name, r *derive.Reader) (l local, _ []problem.Problem) {
	p := k.policies
	pod, _ := derive.Get(r, p.base.Pods, port)
	l = local{pod: derive.Object{Namespace: pod.Namespace, Name: pod.Name}, ips: pod.IPs, network: pod.Network,
		zone: p.base.zoneOf(r, pod.Network), first: pod.First, place: p.tenants.placeAt(r, pod)}
	attached, _ := derive.Get(r, p.in.Attached, port)
	i := attached.Identity
	if i == "" {
		return local{}, nil // the Pod is unknown; if policies may select it, its new packets are dropped
	}
	l.identity, _ = derive.Get(r, p.in.Numbers, i)
	l.defaults, _ = derive.Get(r, p.numbers.defaults, i)
	applied, _ := derive.Get(r, p.in.Applied, i)
	for d, stages := range applied {
		l.applied[d] = slices.ContainsFunc(slices.Concat(stages[:]...),
			func(k policy.Key) bool { return !p.in.Keeps(r, k) })
	}
	return l, nil
}

// policySnapshot is the state that known connections are compared with.
type policySnapshot struct {
	in    *policy.Tables
	rules map[uint32]bool            // numbers of rules, and the number for connections without a rule
	of    map[applicable]bool        // numbers of rules that are applied to these Pods
	pods  [2]map[zoneAddr]local      // by their addresses on first interfaces, and on further ones
	zones map[uint16][]derive.Object // separate networks by zone, where this Node has Pods
	// placeOf returns the network of a VirtualNetwork, or of a Namespace.
	placeOf func(derive.Object) tenant.Place
}

// zoneAddr is an address in a separate network with a zone, or in all other networks, which have zone 0 here.
type zoneAddr struct {
	zone uint16
	netip.Addr
}

// applicable is a number of a rule with Pods that the rule is applied to.
type applicable struct {
	subject
	number uint32
}

func (k *KnownConnections) snapshot() policySnapshot {
	p := k.policies
	s := policySnapshot{in: p.in, rules: map[uint32]bool{}, of: map[applicable]bool{},
		pods: [2]map[zoneAddr]local{{}, {}}, zones: map[uint16][]derive.Object{}}
	s.placeOf = func(network derive.Object) tenant.Place {
		if k.places == nil {
			return tenant.Place{}
		}
		out, _ := k.places.Get(network)
		return out.Place
	}
	for _, row := range p.numbers.rules.All() {
		if row.Value == 0 {
			continue
		}
		s.rules[row.Value] = true
		rule, _ := p.in.Rules.Get(row.Key)
		for _, pods := range subjects(row.Key, rule) {
			s.of[applicable{pods, row.Value}] = true
		}
	}
	for _, row := range k.locals.All() {
		l := row.Value
		for _, ip := range l.ips {
			s.pods[furtherIf(l.network)][zoneAddr{l.zone, ip}] = l
		}
		if l.zone != 0 {
			s.zones[l.zone] = nil
		}
		for d, n := range l.defaults {
			s.rules[n] = true
			s.of[applicable{subject{l.identity, policy.Direction(d)}, n}] = true
		}
	}
	if k.places == nil || len(s.zones) == 0 {
		return s
	}
	for _, row := range k.places.All() {
		if list, here := s.zones[row.Value.Zone]; here {
			s.zones[row.Value.Zone] = append(list, row.Key)
		}
	}
	return s
}

// furtherIf is the index of the addresses in a VirtualNetwork, or of all others.
func furtherIf(network derive.Object) int {
	if network != (derive.Object{}) {
		return 1
	}
	return 0
}

// networks returns the VirtualNetworks that the ends of a connection are in. Connection tracking has only addresses,
// and the same addresses may exist elsewhere. A connection is in VirtualNetworks if one end is a Pod of this Node and
// the other end is an address that it reaches there. If the client's own network is a VirtualNetwork, a connection to a
// Service may leave this network.
func (s policySnapshot) networks(c tracked, ends [2]netip.Addr) (out [2]derive.Object) {
	if c.zone != 0 {
		for d, ip := range ends {
			out[d] = s.inZone(c.zone, ip)
		}
		for d := range ends { // an address without a block is no address of the common networks
			if out[d] == (derive.Object{}) {
				out[d] = out[1-d]
			}
		}
		return out
	}
	if c.first { // a client of another Node
		out[policy.Egress] = s.in.Virtual.BlockAt(c.From).Network
		return out
	}
	// The Node of this Pod may not have read the block yet, or any more.
	if pod, ok := s.pods[1][zoneAddr{0, c.From}]; ok && pod.first && c.left {
		out[policy.Egress] = pod.network
		return out
	}
	for d, own := range ends {
		other := ends[1-d]
		block := s.in.Virtual.BlockAt(other).Network
		if pod, ok := s.pods[1][zoneAddr{0, own}]; ok {
			if block != (derive.Object{}) && pod.place.Meets(s.placeOf(block)) {
				out[d], out[1-d] = pod.network, block
				return out
			}
			far, _ := s.in.OccupantAt(other)
			if place := s.placeOf(derive.Object{Name: far.Pod.Namespace}); place.Isolated() && pod.place.Meets(place) {
				out[d] = pod.network
				return out
			}
		}
		if pod, ok := s.pods[0][zoneAddr{0, own}]; ok && block != (derive.Object{}) && pod.place.Isolated() &&
			pod.place.Meets(s.placeOf(block)) {
			out[1-d] = block
			return out
		}
	}
	return out
}

// inZone returns the separate network that has an address, of these in a zone.
func (s policySnapshot) inZone(zone uint16, ip netip.Addr) derive.Object {
	if pod, ok := s.pods[1][zoneAddr{zone, ip}]; ok {
		return pod.network
	}
	for _, network := range s.zones[zone] {
		if s.in.Virtual.BlockIn(network, ip).Node != "" {
			return network
		}
	}
	return derive.Object{}
}

// recheck determines whether and why a connection has to be judged again.
func (s policySnapshot) recheck(c tracked, found func(Recheck)) {
	ends := [2]netip.Addr{policy.Ingress: c.To, policy.Egress: c.From}
	if _, known := s.zones[c.zone]; c.zone != 0 && !known {
		return // of a network that has no Pods here
	}
	c.Networks = s.networks(c, ends)
	var at [2]local // Pods of this Node
	for d, ip := range ends {
		at[d] = s.pods[furtherIf(c.Networks[d])][zoneAddr{c.zone, ip}]
	}
	if at[0].pod == at[1].pod && at[0].identity != 0 {
		return // a Pod may reach itself
	}
	for d, own := range ends {
		d, other := policy.Direction(d), policy.Direction(1-d)
		pod, ok := at[d], at[d].pod != derive.Object{}
		if !ok || !pod.applied[d] {
			continue
		}
		switch rule := c.rules[d]; {
		case rule == 0:
			found(Recheck{Why: NotJudged, Direction: d, Addr: own, Zone: c.zone})
		case rule == alwaysAllowed || rule&keepRule != 0:
		case !s.rules[rule]:
			found(Recheck{Why: RuleGone, Direction: d, Rule: rule})
		case c.ends[d] == pod.identity && !s.of[applicable{subject{pod.identity, d}, rule}]:
			found(Recheck{Why: RuleOfOthers, Direction: d, Addr: own, Rule: rule, Zone: c.zone})
		default:
			peer := s.in.PeerAt(d, ends[other], c.Networks[other])
			if n := c.ends[other]; d == policy.Ingress && n&remote != 0 {
				peer, c.ClusterSet = n, n&^remote // rules may name this number, and may not have named the earlier one
			} else if peer == 0 || peer == policy.UnknownPod && d == policy.Ingress && at[other].identity != 0 {
				peer = at[other].identity // the port identifies a sender that is a Pod of this Node
			}
			unknown := d == policy.Ingress && (peer == 0 || peer == policy.UnknownPod)
			if unknown && s.in.IsNewcomer(ends[other], c.ends[other]) {
				peer = c.ends[other] // the tunnel's key names it, also in the next packets
			}
			if c.ends[d] == pod.identity && c.ends[other] == peer && c.ClusterSet == 0 {
				continue
			}
			if (d == policy.Ingress || !c.service) && s.in.Decide(pod.pod, d, c.Connection).Allowed {
				continue // the Service of the connection is unknown, and rules of egress may name it
			}
			if c.ends[d] != pod.identity {
				found(Recheck{Why: Relabelled, Direction: d, Addr: own, Identity: c.ends[d], Zone: c.zone})
			}
			if c.ends[other] != peer || c.ClusterSet != 0 {
				found(Recheck{Why: Relabelled, Direction: other, Addr: ends[other], Identity: c.ends[other], Zone: c.zone})
			}
		}
	}
}

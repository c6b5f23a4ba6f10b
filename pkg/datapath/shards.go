package datapath

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Open vSwitch cannot choose well from very many endpoints. A Service with more is divided into shards. Each shard has
// a group with some of the endpoints. Bits of the client's port, or of its address with affinity, choose the shard of a
// connection. docs/design/0002-service-buckets.md has the reasons against one large group.

// maxSlots is how many values of the datapath's hash Open vSwitch divides among the buckets of a group
// (MAX_SELECT_GROUP_HASH_VALUES). The bucket with the smallest weight gets one value. If a group needs more, Open
// vSwitch uses another method. Then every connection costs an upcall, and the largest product of weight and hash wins,
// so that buckets of small weight get nothing.
const maxSlots = 256

// shardMean is the largest average number of endpoints in a shard. With it, chance does not bring a shard above
// maxSlots.
const shardMean = maxSlots / 2

// maxGroup is the largest number that a group may have (OFPG_MAX).
const maxGroup = 0xffffff00

// maxShards is how many shards the bits of the client's port can distinguish.
const maxShards = 1 << 10

// shared is an endpoint set without its endpoints, with the addresses that share it.
type shared struct {
	set       service.Set
	affinity  time.Duration
	elsewhere bool
	tenant    bool // in a network of tenants
	// network is the number of that network, for connections from outside. 0 lets none in.
	network tenant.ID
	inside  bool // it leads Pods in VirtualNetworks of their own to Pods there alone
	at      []address
}

func (s shared) same(o shared) bool {
	return s.set == o.set && s.affinity == o.affinity && s.elsewhere == o.elsewhere && s.tenant == o.tenant &&
		s.network == o.network && s.inside == o.inside && slices.EqualFunc(s.at, o.at, sameAddress)
}

// divided is an endpoint set with the shards into which its endpoints are divided. Without endpoints it has no shards.
type divided struct {
	shared
	shards [][]service.Endpoint
}

// Services has the tables of the flows and groups of Services.
type Services struct {
	// Entries are the ports of the entries of external addresses.
	Entries *derive.Numbers[EntryID]

	base       *base
	tenants    *tenantTables
	entered    *derive.Table[entryNumber, EntryID]
	divided    *derive.Table[derive.Object, []divided]
	groups     *derive.Numbers[groupID]
	flows      *derive.Table[serviceShard, []balanced]
	ended      *derive.Source[ServiceConnection, bool]
	endedFlows *derive.Table[ServiceConnection, flow.Entries]
}

// newServices adds the tables of Services. Groups of ways between clusters take their numbers from the same table as
// groups of Services.
func newServices(e *derive.Engine, b *base, tenants *tenantTables, clusters *clusterTables) *Services {
	t := &Services{base: b, tenants: tenants}
	t.addEntries(e)
	t.divided = derive.NewTable(e, "shards", t.divide, derive.KeysOf(b.Frontends)).EqualBy(sameDivided)
	t.groups = derive.NewNumbers(e, "groups", 1, maxGroup,
		derive.KeysOfIndex(derive.NewIndex(t.divided, "group", groupsOf)),
		derive.KeysOfIndex(
			derive.NewIndex(clusters.wayGroups, "group", func(_ derive.Name, list []groupID) []groupID { return list })))
	clusters.groups = t.groups
	t.flows = derive.NewTable(e, "service-flows", t.serviceFlows,
		derive.KeysOfIndex(derive.NewIndex(t.divided, "shard", shardsOf))).EqualBy(sameBalanced)
	t.ended = derive.NewSource[ServiceConnection, bool](e, "ended-connections")
	t.ended.Loaded() // it is found out while the agent runs
	t.endedFlows = derive.NewTable(e, "ended-flows", endedTo, derive.KeysOf(t.ended))
	return t
}

// owned lists the tables of flows and groups.
func (t *Services) owned() []owned {
	return []owned{
		ownedTable[serviceShard, []balanced]{t.flows, shardOwner, t.balance},
		entriesOf(t.endedFlows, endedOwner),
	}
}

// divide divides the endpoint sets of a Service.
func (t *Services) divide(key derive.Object, r *derive.Reader) ([]divided, []problem.Problem) {
	list, _ := derive.Get(r, t.base.Frontends, key)
	isolated, network := t.tenants.serviceNetwork(r, key)
	inside := !isolated && t.tenants.own.confines(r, key)
	var out []divided
	for _, f := range list {
		at := addressOf(f)
		if i := slices.IndexFunc(out, func(d divided) bool { return d.set == f.Set() }); i >= 0 {
			out[i].at = append(out[i].at, at)
			continue
		}
		d := divided{shared: shared{
			set: f.Set(), affinity: f.Affinity, elsewhere: f.Elsewhere, tenant: isolated, network: network, inside: inside,
			at: []address{at},
		}}
		if len(f.Endpoints) > 0 {
			d.shards = shards(f.Endpoints)
		}
		out = append(out, d)
	}
	return out, nil
}

func sameDivided(a, b []divided) bool {
	return slices.EqualFunc(a, b, func(x, y divided) bool {
		return x.same(y.shared) && slices.EqualFunc(x.shards, y.shards, slices.Equal)
	})
}

// serviceShard is the key for one shard of all endpoint sets of a Service. Shard 0, which is the only one of most
// Services, also stands for sets without endpoints.
type serviceShard struct {
	service derive.Object
	shard   int
}

// shardsOf are the shards of a Service.
func shardsOf(key derive.Object, list []divided) []serviceShard {
	out := []serviceShard{{service: key}}
	for _, d := range list {
		for len(out) < len(d.shards) {
			out = append(out, serviceShard{key, len(out)})
		}
	}
	return out
}

// Compare makes a shard the key of a table.
func (s serviceShard) Compare(o serviceShard) int {
	return cmp.Or(s.service.Compare(o.service), cmp.Compare(s.shard, o.shard))
}

// String returns "namespace/name", followed by "#3" for shard 3.
func (s serviceShard) String() string { return s.service.String() + shardText(s.shard) }

func shardText(shard int) string {
	if shard == 0 {
		return ""
	}
	return "#" + strconv.Itoa(shard)
}

// groupID names the group of a shard for good: it has the same number after a restart.
type groupID struct {
	service.Set
	shard int
}

// rememberedAs is a shard number that no group has. With it, a groupID stands for the number by which the switch
// remembers clients of a Service's port. Their endpoints may be in any set and shard.
const rememberedAs = -1

func portOf(set service.Set) groupID {
	set.Scope = service.Cluster
	return groupID{set, rememberedAs}
}

// groupsOf are the groups of a Service.
func groupsOf(_ derive.Object, list []divided) []groupID {
	var out []groupID
	for _, d := range list {
		for shard := range d.shards {
			out = append(out, groupID{d.set, shard})
		}
		if port := portOf(d.set); d.affinity > 0 && !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out
}

// Compare makes a group the key of a table.
func (g groupID) Compare(o groupID) int {
	return cmp.Or(g.Set.Compare(o.Set), cmp.Compare(g.shard, o.shard))
}

// String returns the text from which the group's number is made.
func (g groupID) String() string {
	if g.Namespace == "" { // groups of ways keep the numbers that they have always had
		return g.Set.String() + "/invalid AddrPort"
	}
	return g.Set.String() + shardText(g.shard)
}

// shards divides endpoints into shards, whose number is a power of two. An endpoint's address decides about its shard,
// so that an endpoint that comes or goes changes one shard. An endpoint with a large part of all connections is in
// every shard.
func shards(endpoints []service.Endpoint) [][]service.Endpoint {
	total, slots := weigh(endpoints)
	n := 1
	for slots > maxSlots && len(endpoints) > shardMean*n && n < maxShards {
		n *= 2
	}
	if n == 1 {
		parts := make([]uint64, len(endpoints))
		for i, e := range endpoints {
			parts[i] = uint64(e.Weight)
		}
		return [][]service.Endpoint{fit(endpoints, parts)}
	}
	var large []service.Endpoint
	rest := make([]service.Endpoint, 0, len(endpoints))
	for _, e := range endpoints {
		if uint64(e.Weight)*uint64(2*n) < total || len(large) == maxSlots/4 {
			rest = append(rest, e)
		} else {
			large = append(large, e)
		}
	}
	out := make([][]service.Endpoint, n)
	members := make([]int, n)
	for _, e := range rest {
		members[shardOf(e.Addr, n)]++
	}
	for shard, n := range members {
		out[shard] = append(make([]service.Endpoint, 0, len(large)+n), large...)
	}
	for _, e := range rest {
		shard := shardOf(e.Addr, n)
		out[shard] = append(out[shard], e)
	}
	if slices.ContainsFunc(out,
		func(list []service.Endpoint) bool { return len(list) == len(large) || len(list) > maxSlots }) {
		// A user has chosen the addresses such that all of them are in one shard. So they are distributed one by one, which
		// fits. The disadvantage is that the removal of an endpoint changes all shards.
		for shard := range out {
			out[shard] = slices.Clone(large)
		}
		for i, e := range rest {
			out[i%n] = append(out[i%n], e)
		}
	}
	for shard, list := range out {
		parts := make([]uint64, len(list))
		for i, e := range list {
			if parts[i] = uint64(e.Weight); i >= len(large) {
				parts[i] *= uint64(n)
			}
		}
		out[shard] = fit(list, parts)
	}
	return out
}

// weigh returns the sum of the endpoints' weights and how many slots a group of them needs.
func weigh(endpoints []service.Endpoint) (total, slots uint64) {
	smallest := uint64(1 << 16)
	for _, e := range endpoints {
		total += uint64(e.Weight)
		smallest = min(smallest, max(uint64(e.Weight), 1))
	}
	return total, (total + smallest - 1) / smallest
}

// fit returns endpoints with weights in proportion to parts, as exactly as maxSlots allows. No weight becomes 0.
func fit(endpoints []service.Endpoint, parts []uint64) []service.Endpoint {
	var total, divisor uint64
	for _, p := range parts {
		total += p
		divisor = gcd(divisor, p)
	}
	if total == 0 {
		return endpoints
	}
	exact := total <= maxSlots*slices.Min(parts) && slices.Max(parts)/divisor <= 0xffff
	room := uint64(max(maxSlots-len(parts), 0))
	out, copied := endpoints, false
	for i, p := range parts {
		weight := uint16(1 + p*room/total)
		if exact {
			weight = uint16(p / divisor)
		}
		if weight == out[i].Weight {
			continue
		}
		if !copied { // most have weight 1, and are kept once
			out, copied = slices.Clone(endpoints), true
		}
		out[i].Weight = weight
	}
	return out
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// shardOf returns the shard of n that an address belongs to. It is the same for all ports of an endpoint.
func shardOf(a netip.AddrPort, n int) int {
	h := uint64(14695981039346656037) // FNV-1a; hash/fnv would allocate
	for _, b := range a.Addr().As16() {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h *= 0x9e3779b97f4a7c15 // the lower bits of FNV depend little on the address
	return int(h >> 40 % uint64(n))
}

// balanced is one shard of an endpoint set with the number of its group, which is 0 without endpoints. Tables store
// this row instead of its flows and group, which are ten times as large.
type balanced struct {
	shared
	endpoints     []service.Endpoint
	shard, shards int
	group         uint32
	port          uint32 // the number by which clients are remembered, with session affinity
}

// serviceFlows are the parts of a Service's endpoint sets in one shard.
func (t *Services) serviceFlows(key serviceShard, r *derive.Reader) ([]balanced, []problem.Problem) {
	var out []balanced
	list, _ := derive.Get(r, t.divided, key.service)
	for _, d := range list {
		b := balanced{shared: d.shared, shard: key.shard, shards: len(d.shards)}
		b.at = t.enter(d.set.Protocol, d.at, r)
		if b.shards > key.shard {
			group, ok := derive.Get(r, t.groups, groupID{d.set, key.shard})
			if ok && d.affinity > 0 {
				b.port, ok = derive.Get(r, t.groups, portOf(d.set))
			}
			if !ok {
				continue // the table of numbers reports it
			}
			b.group, b.endpoints = group, d.shards[key.shard]
		} else if key.shard > 0 {
			continue
		}
		out = append(out, b)
	}
	return out, nil
}

func sameBalanced(a, b []balanced) bool {
	return slices.EqualFunc(a, b, func(x, y balanced) bool {
		return x.same(y.shared) && x.shards == y.shards && x.group == y.group && x.port == y.port &&
			slices.Equal(x.endpoints, y.endpoints)
	})
}

// balance returns a flow for each address and port of a Service. Addresses with one endpoint set share a group, which
// has a bucket for each endpoint, or for each endpoint of a shard.
func (t *Services) balance(list []balanced) flow.Entries {
	var e flow.Entries
	rate, _ := t.base.rate.Get(Self)
	for _, b := range list {
		for _, at := range b.at {
			if b.shard == 0 {
				e.Flows = slices.Concat(e.Flows, b.untranslated(at, t.base.Networks != nil), b.limit(at), b.enters(at))
			}
			e.Flows = append(e.Flows, b.choose(at, rate)...)
		}
		if b.group != 0 {
			e.Flows = append(e.Flows, b.remember()...)
			e.Groups = append(e.Groups, b.balance())
		}
	}
	return e
}

// choose sends new connections to an address to its group, if their client port has the bits of the shard. The first
// shard has a flow for the address without the bits, which matches all other ports. The last bit of the port is not
// used, since Linux assigns even numbers first.
func (b balanced) choose(at address, rate uint32) []flow.Flow {
	switch {
	case b.group == 0 && b.elsewhere: // as kube-proxy does: the client asks again
		return b.flows(at, false, nil)
	case b.group == 0:
		return b.flows(at, false, ask(ServiceReject, rate))
	case b.shard == 0:
		return b.flows(at, false, b.toGroup())
	}
	field := ofp.TCPSrc
	switch {
	case b.affinity > 0: // a client's connections are all of one shard
		field = ofp.IPv4Src
		bits := func(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
		if b.set.IPv6 {
			field = ofp.IPv6Src
			bits = func(v int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(v)) }
		}
		return b.flows(at, true, b.toGroup(), flow.Field(field, bits(b.shard), bits(b.shards-1)))
	case b.set.Protocol == corev1.ProtocolUDP:
		field = ofp.UDPSrc
	case b.set.Protocol == corev1.ProtocolSCTP:
		field = ofp.SCTPSrc
	}
	bits := func(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v<<1)) }
	return b.flows(at, true, b.toGroup(), flow.Field(field, bits(b.shard), bits(b.shards-1)))
}

// flows returns the flows for new connections to an address, one for each match. special is set if further conditions
// make it a special case, which has a higher priority.
func (b balanced) flows(at address, special bool, do flow.Actions, more ...flow.Cond) (out []flow.Flow) {
	for _, match := range b.matches(at, more...) {
		out = append(out, flow.Flow{Table: Service, Priority: at.priority(special), Match: match, Actions: do})
	}
	return out
}

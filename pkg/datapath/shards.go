package datapath

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
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

// divided is a frontend without endpoints, and the shards of its endpoints; no shards if it has no endpoints.
type divided struct {
	service.Frontend
	shards [][]service.Endpoint
}

// divide divides the endpoints of the frontends of a Service.
func (t *Tables) divide(key derive.Object, r *derive.Reader) ([]divided, []problem.Problem) {
	list, _ := derive.Get(r, t.Frontends, key)
	var out []divided
	for _, f := range list {
		d := divided{Frontend: f}
		if len(f.Endpoints) > 0 {
			d.shards = shards(f.Endpoints)
		}
		d.Endpoints = nil
		out = append(out, d)
	}
	return out, nil
}

func sameDivided(a, b []divided) bool {
	return slices.EqualFunc(a, b, func(x, y divided) bool {
		return idOf(x.Frontend) == idOf(y.Frontend) && x.Affinity == y.Affinity && x.Elsewhere == y.Elsewhere &&
			slices.EqualFunc(x.shards, y.shards, slices.Equal)
	})
}

// serviceShard is the key of a Service's flows and groups for one shard of its frontends' endpoints. Shard 0, the only
// one of most Services, also has the flows of frontends without endpoints.
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
	frontendID
	shard int
}

// groupsOf are the groups of a Service.
func groupsOf(_ derive.Object, list []divided) []groupID {
	var out []groupID
	for _, d := range list {
		for shard := range d.shards {
			out = append(out, groupID{idOf(d.Frontend), shard})
		}
	}
	return out
}

// Compare makes a group the key of a table.
func (g groupID) Compare(o groupID) int {
	return cmp.Or(g.frontendID.Compare(o.frontendID), cmp.Compare(g.shard, o.shard))
}

// String returns the text from which the group's number is made.
func (g groupID) String() string { return g.frontendID.String() + shardText(g.shard) }

// shards divides the endpoints of a frontend; their number is a power of two. An endpoint's address decides its shard,
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
		// The addresses were chosen to share a shard. If they are distributed one by one, they fit. But then an endpoint that
		// goes changes all shards.
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

// balanced is one shard of a frontend with the number of its group, 0 without endpoints. Tables keep it instead of its
// flow and group, which are ten times as large.
type balanced struct {
	service.Frontend
	shard, shards int
	group         uint32
}

// serviceFlows are the parts of a Service's frontends in one shard.
func (t *Tables) serviceFlows(key serviceShard, r *derive.Reader) ([]balanced, []problem.Problem) {
	var out []balanced
	list, _ := derive.Get(r, t.divided, key.service)
	for _, d := range list {
		b := balanced{Frontend: d.Frontend, shard: key.shard, shards: len(d.shards)}
		if b.shards > key.shard {
			group, ok := derive.Get(r, t.groups, groupID{idOf(d.Frontend), key.shard})
			if !ok {
				continue // the table of numbers reports it
			}
			b.group, b.Endpoints = group, d.shards[key.shard]
		} else if key.shard > 0 {
			continue
		}
		out = append(out, b)
	}
	return out, nil
}

func sameBalanced(a, b []balanced) bool {
	return slices.EqualFunc(a, b, func(x, y balanced) bool {
		return idOf(x.Frontend) == idOf(y.Frontend) && x.Affinity == y.Affinity && x.Elsewhere == y.Elsewhere &&
			x.shards == y.shards && x.group == y.group && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

// balance returns a flow for each address and port of a Service. Behind each it returns a group with a bucket for each
// endpoint, or for each endpoint of a shard.
func (t *Tables) balance(list []balanced) flow.Entries {
	var e flow.Entries
	rate, _ := t.rate.Get(Self)
	for _, b := range list {
		if b.shard == 0 {
			e.Flows = append(e.Flows, untranslatedTo(b.Frontend)...)
		}
		if b.group == 0 && b.Elsewhere { // as kube-proxy does: the client asks again
			e.Flows = append(e.Flows, flow.Flow{Table: Service, Priority: normal, Match: frontendMatch(b.Frontend)})
			continue
		}
		if b.group == 0 {
			e.Flows = append(e.Flows, refuse(frontendMatch(b.Frontend), rate))
			continue
		}
		e.Flows = append(append(e.Flows, b.choose()), b.affinity()...)
		e.Groups = append(e.Groups, balance(b.group, b.Frontend))
	}
	return e
}

// choose sends new connections to a frontend to the group of a shard, if bits of the client's port select it. The first
// shard has the frontend's own flow, which is for all other ports. The last bit of the port is not used, since Linux
// takes even numbers first.
func (b balanced) choose() flow.Flow {
	if b.shard == 0 {
		return flow.Flow{Table: Service, Priority: normal, Match: frontendMatch(b.Frontend), Actions: b.toGroup()}
	}
	field := ofp.TCPSrc
	switch {
	case b.Affinity > 0: // a client's connections are all of one shard
		field = ofp.IPv4Src
		bits := func(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
		if b.VIP.Addr().Is6() {
			field = ofp.IPv6Src
			bits = func(v int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(v)) }
		}
		return flow.Flow{Table: Service, Priority: high,
			Match:   frontendMatch(b.Frontend, flow.Field(field, bits(b.shard), bits(b.shards-1))),
			Actions: b.toGroup()}
	case b.Protocol == corev1.ProtocolUDP:
		field = ofp.UDPSrc
	case b.Protocol == corev1.ProtocolSCTP:
		field = ofp.SCTPSrc
	}
	bits := func(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v<<1)) }
	match := frontendMatch(b.Frontend, flow.Field(field, bits(b.shard), bits(b.shards-1)))
	return flow.Flow{Table: Service, Priority: high, Match: match, Actions: b.toGroup()}
}

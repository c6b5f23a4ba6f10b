package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// maxScale bounds the weights, so that the switch's selection table stays small. The table has one slot for the
// smallest weight, and at most 256 slots in all.
const maxScale = 1 << 10

// These are the bounds of nesting. The cluster's own export within an imported Service is one level. A hand-made
// Service in front of it is a second. A user who may write EndpointSlices could make endless chains and nets of
// Services. The bounds keep the work for one frontend small, and the parts of its fractions below 2^maxParts.
const (
	maxNesting = 4
	maxShares  = 1 << 13
	maxParts   = 32
)

// fraction is a share of a frontend's connections: count/parts of the share of an endpoint with weight 1.
type fraction struct {
	addr         netip.AddrPort
	count, parts uint64
}

// fractionOf is one in its lowest terms, or near it where these are large.
func fractionOf(addr netip.AddrPort, count, parts uint64) fraction {
	d := cmp.Or(gcd(count, parts), 1)
	count, parts = count/d, parts/d
	for parts >= 1<<maxParts {
		count, parts = count/2, parts/2
	}
	return fraction{addr, max(count, 1), parts}
}

// nesting replaces each endpoint of a frontend that is another Service's virtual address by that Service's endpoints.
// An imported Service lists the ClusterIP of each exporting cluster, including this one. Without the replacement the
// switch would have to choose twice. The weight of a replaced endpoint is divided among its replacements, so that each
// cluster gets as much as before. If there are no replacements, its share goes to the others.
type nesting struct {
	tables   *Tables
	reader   *derive.Reader
	open     map[address]bool // the frontends being resolved, so that a circle ends
	left     int              // how many more endpoints may be looked at
	problems []problem.Problem
}

// at returns the frontend of a ClusterIP, before nesting.
func (n *nesting) at(a address) (Frontend, bool) {
	holder, ok := n.tables.holder(a, n.reader)
	if !ok {
		return Frontend{}, false
	}
	list, _ := derive.Get(n.reader, n.tables.direct, holder)
	i := slices.IndexFunc(list, func(f Frontend) bool { return f.address() == a && f.Kind == ClusterIP })
	if i < 0 {
		return Frontend{}, false // an address outside: packets go there
	}
	return list[i], true
}

// nested reports whether a frontend has another Service's address among its endpoints.
func (n *nesting) nested(f Frontend) bool {
	found, known := false, map[block]bool{}
	for _, e := range f.Endpoints { // all of them: each is something that the result depends on
		b := blockOf(e.Addr.Addr())
		virtual, ok := known[b]
		if !ok {
			virtual, _ = derive.Get(n.reader, n.tables.blocks, b)
			known[b] = virtual
		}
		if !virtual {
			continue
		}
		_, ok = n.at(addressOf(f.Protocol, e.Addr))
		found = found || ok
	}
	return found
}

// shares resolves a frontend into fractions of destinations. A direct endpoint counts with its weight. A nested
// endpoint is split into its Service's endpoints. total is the sum of all weights.
func (n *nesting) shares(f Frontend) (out []fraction, total uint64) {
	n.open[f.address()] = true
	defer delete(n.open, f.address())
	for _, e := range f.Endpoints {
		if n.left == 0 {
			n.report(f, reasonEndpointNesting, "endpoint %s and those after it are left out: "+
				"nested Services lead to more than %d endpoints; name the endpoints themselves", e.Addr, maxShares)
			break
		}
		n.left--
		a := addressOf(f.Protocol, e.Addr)
		inner, ok := n.at(a)
		switch {
		case !ok:
			out = append(out, fraction{e.Addr, uint64(e.Weight), 1})
			total += uint64(e.Weight)
			continue
		case n.open[a]:
			n.report(f, reasonEndpointLoop, "endpoint %s leads back to the Service itself and is left out: remove it", e.Addr)
			continue
		case len(n.open) > maxNesting:
			n.report(f, reasonEndpointNesting,
				"endpoint %s is left out: it is a Service behind %d others; name the endpoints themselves", e.Addr, maxNesting)
			continue
		}
		shares, of := n.shares(inner)
		if len(shares) == 0 {
			continue
		}
		for _, s := range shares {
			out = append(out, fractionOf(s.addr, s.count*uint64(e.Weight), s.parts*of))
		}
		total += uint64(e.Weight)
	}
	return out, total
}

// first returns the endpoints that requests to an imported Service go to. These are the endpoints of the first clusters
// of the order that have enough ready endpoints together, else all. For a Service of this cluster all its present
// endpoints count, even if hints exclude them on this Node. So all Nodes decide alike. For other clusters their
// reported numbers count.
func (n *nesting) first(key derive.Object, f Frontend, facts Facts) []Endpoint {
	rank := map[netip.Addr]int{}
	for _, s := range derive.List(n.reader, n.tables.ByService, key) {
		if at := slices.Index(facts.First, s.Value.Cluster); at >= 0 {
			for _, e := range s.Value.Endpoints {
				if had, ok := rank[e.Addr]; !ok || at < had {
					rank[e.Addr] = at
				}
			}
		}
	}
	ranks := make([]int, len(f.Endpoints))
	ready := make([]int, len(facts.First)+1)
	for i, e := range f.Endpoints {
		at, ok := rank[e.Addr.Addr()]
		if !ok {
			at = len(facts.First)
		}
		count := int(e.Weight)
		if inner, ok := n.at(addressOf(f.Protocol, e.Addr)); ok {
			count = len(inner.Endpoints) + inner.hidden
		}
		ranks[i], ready[at] = at, ready[at]+count
	}
	enough := requests.Enough(ready, facts.Minimum)
	var out []Endpoint
	for i, e := range f.Endpoints {
		if ranks[i] < enough {
			out = append(out, e)
		}
	}
	return out
}

func (n *nesting) report(f Frontend, reason reasons.Reason, format string, args ...any) {
	p := problem.Problem{
		Object: problem.Object{Kind: "Service", Namespace: f.Namespace, Name: f.Service},
		Reason: reason, Message: fmt.Sprintf(format, args...),
	}
	if !slices.Contains(n.problems, p) { // a Service may be met on several ways
		n.problems = append(n.problems, p)
	}
}

// weigh turns fractions into the smallest whole weights in the same proportions. If those would be too large, it
// returns the nearest weights. If an address occurs twice, it gets both shares.
func weigh(fs []fraction) []Endpoint {
	scale := uint64(1)
	for _, f := range fs {
		scale = lcm(scale, f.parts)
		if scale > maxScale {
			scale = maxScale
			break
		}
	}
	weights := map[netip.AddrPort]uint64{}
	for _, f := range fs {
		weights[f.addr] += max(1, (scale*f.count+f.parts/2)/f.parts)
	}
	var divisor, largest uint64
	for _, w := range weights {
		divisor, largest = gcd(divisor, w), max(largest, w)
	}
	out := make([]Endpoint, 0, len(weights))
	for addr, w := range weights {
		if w /= divisor; largest/divisor > 0xffff {
			w = max(1, w*0xffff/(largest/divisor))
		}
		out = append(out, Endpoint{Addr: addr, Weight: uint16(w)})
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return out
}

// reduce divides the weights by their greatest common divisor.
func reduce(es []Endpoint) {
	var d uint64
	for _, e := range es {
		d = gcd(d, uint64(e.Weight))
	}
	for i := range es {
		es[i].Weight = uint16(uint64(es[i].Weight) / cmp.Or(d, 1))
	}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func lcm(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a / gcd(a, b) * b
}

package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// maxScale bounds the weights, so that the switch's selection table stays small: it has one
// slot for the smallest weight and at most 256 slots.
const maxScale = 1 << 10

// Bounds of nesting. An own export among the imported is one level, a hand-made Service in
// front of that a second. Whoever may write EndpointSlices can make chains and nets of Services
// without end; these bounds keep the work for one frontend small, and the parts of its
// fractions below maxShares^maxNesting = 2^52.
const (
	maxNesting = 4
	maxShares  = 1 << 13
)

// flatten replaces every endpoint that is another Service's virtual address by that Service's
// own endpoints. An imported Service lists the ClusterIP of each exporting cluster, this one
// included: without this the switch would have to choose twice. The replaced endpoint's share
// is divided among those that take its place, so that each cluster gets as much as before;
// when there are none its share goes to the others.
func (p *planner) flatten() {
	direct := make([][]Endpoint, len(p.out))
	for i, f := range p.out {
		direct[i] = f.Endpoints
	}
	for i := range p.out {
		f := &p.out[i]
		if !p.nested(f.Protocol, direct[i]) {
			continue
		}
		n := nesting{planner: p, direct: direct, open: map[int]bool{}, left: maxShares}
		f.Endpoints = weigh(n.shares(i))
	}
}

func (p *planner) nested(protocol corev1.Protocol, endpoints []Endpoint) bool {
	return slices.ContainsFunc(endpoints, func(e Endpoint) bool {
		_, ok := p.frontends[address{protocol, e.Addr}]
		return ok
	})
}

// fraction is a share of a frontend's connections: one in parts.
type fraction struct {
	addr  netip.AddrPort
	parts uint64
}

// nesting resolves one frontend.
type nesting struct {
	*planner
	direct [][]Endpoint
	open   map[int]bool // the frontends being resolved, so that a circle ends
	left   int          // how many more endpoints may be looked at
}

// shares resolves frontend i: each of its direct endpoints that leads anywhere counts once, a
// nested one is split.
func (n *nesting) shares(i int) []fraction {
	f := n.out[i]
	object := problem.Object{Kind: "Service", Namespace: f.Namespace, Name: f.Service}
	n.open[i] = true
	defer delete(n.open, i)
	var out []fraction
	for _, e := range n.direct[i] {
		if n.left == 0 {
			n.tell(object, "EndpointNesting", "endpoint %s and those after it are left out: nested Services lead to more than %d endpoints; name the endpoints themselves", e.Addr, maxShares)
			break
		}
		n.left--
		j, ok := n.frontends[address{f.Protocol, e.Addr}]
		switch {
		case !ok:
			out = append(out, fraction{e.Addr, 1})
			continue
		case n.open[j]:
			n.tell(object, "EndpointLoop", "endpoint %s leads back to the Service itself and is left out: remove it", e.Addr)
			continue
		case len(n.open) > maxNesting:
			n.tell(object, "EndpointNesting", "endpoint %s is left out: it is a Service behind %d others; name the endpoints themselves", e.Addr, maxNesting)
			continue
		}
		inner := n.shares(j)
		total := sum(inner)
		for _, s := range inner {
			// s.parts of 1/total each; kept as the reciprocal, see weigh.
			out = append(out, fraction{s.addr, s.parts * total})
		}
	}
	return out
}

// tell reports once what is met on several ways.
func (n *nesting) tell(object problem.Object, reason, format string, args ...any) {
	p := problem.Problem{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)}
	if !n.reported[p] {
		n.reported[p] = true
		n.problems = append(n.problems, p)
	}
}

// sum is the number of direct endpoints that fractions come from: the sum of 1/parts.
func sum(fs []fraction) uint64 {
	var total float64
	for _, f := range fs {
		total += 1 / float64(f.parts)
	}
	return uint64(total + 0.5)
}

// weigh turns fractions into the smallest whole weights that keep their proportions, or into
// the nearest ones where those would be too large. One address named twice gets both shares.
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
		weights[f.addr] += max(1, (scale+f.parts/2)/f.parts)
	}
	out := make([]Endpoint, 0, len(weights))
	for addr, w := range weights {
		out = append(out, Endpoint{Addr: addr, Weight: uint16(min(w, 65535))})
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	reduce(out)
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

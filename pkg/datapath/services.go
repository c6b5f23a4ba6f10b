package datapath

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// maxBucket is above the numbers that buckets may have (OFPG15_BUCKET_MAX).
const maxBucket = 0xffffff00

// balance returns the group of a shard of an endpoint set, which all addresses of the Service's port share. The
// datapath's own hash of the connection chooses the bucket, so that many connections share one megaflow. With affinity
// a hash of the client's address and affinitySalt chooses, and the bucket only loads its number; see remember.
func (b balanced) balance() flow.Group {
	g := flow.Group{ID: b.group, Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
	if b.affinity > 0 {
		g.Selection = flow.Selection{Method: "hash", Fields: []ofp.Field{ofp.IPv4Src, affinitySalt.Field}}
		if b.set.IPv6 {
			g.Selection.Fields[0] = ofp.IPv6Src
		}
	}
	weights, numbers := b.weights(), b.buckets()
	for i, e := range b.endpoints {
		bucket := flow.Bucket{ID: numbers[i], Weight: weights[i]}
		if b.affinity > 0 {
			bucket.Actions = flow.Do(flow.Load(affinityTo, uint64(numbers[i])), flow.Resubmit(Endpoint))
		} else {
			bucket.Actions = flow.Do(flow.Load(committed, 1), flow.CT(b.toEndpoint(e)))
		}
		g.Buckets = append(g.Buckets, bucket)
	}
	return g
}

// buckets are the numbers of the buckets of the endpoints.
func (b balanced) buckets() []uint32 {
	taken, out := ids{}, make([]uint32, len(b.endpoints))
	for i, e := range b.endpoints {
		out[i] = taken.take(e.Addr.String())
	}
	return out
}

// weights are the weights of the buckets of the endpoints.
func (b balanced) weights() []uint16 {
	out := make([]uint16, len(b.endpoints))
	for i, e := range b.endpoints {
		out[i] = e.Weight
	}
	if b.affinity > 0 {
		return factors(out)
	}
	return out
}

// factors returns the weights of buckets that give each bucket its desired share of connections. Open vSwitch chooses
// the bucket with the largest product of hash and weight. So with plain weights of 1 and 3, the first bucket would get
// a sixth of the connections instead of a quarter.
//
// The formula is taken from CARP's load factors (draft-vinod-carp-v1-03, 3.4). n is the number of buckets, p are the
// shares in ascending order, and x are the factors:
//
//	x[k] = ((n-k) (p[k]-p[k-1]) / (x[0] ... x[k-1]) + x[k-1]^(n-k)) ^ (1/(n-k))
//
// If all factors are multiplied by the same number, the choices stay the same. So clients move no more than the shares
// do.
func factors(weights []uint16) []uint16 {
	n := len(weights)
	order := make([]int, n)
	var total float64
	for i, w := range weights {
		order[i] = i
		total += float64(w)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[a], weights[b]) })
	if n == 0 || weights[order[0]] == weights[order[n-1]] {
		return weights
	}
	x := make([]float64, n)
	before, last, product := 0., 0., 1.
	for k, at := range order {
		p, left := float64(weights[at])/total, float64(n-k)
		x[at] = math.Pow(left*(p-before)/product+math.Pow(last, left), 1/left)
		before, last, product = p, x[at], product*x[at]
	}
	out := make([]uint16, n)
	for i := range out {
		out[i] = uint16(max(1, math.Round(maxFactor*x[i]/last)))
	}
	return out
}

// maxFactor is the factor of the bucket with the largest share. Its product with a hash of 16 bits fits in 32 bits.
const maxFactor = 0xffff

// toEndpoint remembers the choice of an endpoint for the connection and continues with it.
func (s shared) toEndpoint(e service.Endpoint) ofp.CT {
	ct := ofp.CT{
		Flags: ofp.CTCommit, Zone: mainZone, Table: Egress,
		NAT:  &ofp.NAT{Flags: ofp.NATDst, IPMin: string(e.Addr.Addr().AsSlice()), PortMin: e.Addr.Port()},
		Exec: flow.Do(flow.Load(markService, 1), flow.Load(markPending, 1), flow.Move(source, markSource)),
	}
	if s.tenant {
		ct.Exec = append(ct.Exec, flow.Load(markTenant, 1))
	}
	if s.inside {
		ct.Exec = append(ct.Exec, flow.Load(markInside, 1))
	}
	return ct
}

// ids assigns each name a number from 1 to maxBucket-1. A number depends only on the name, unless two names have one
// hash. Then the first name gets it, so callers use a fixed order.
type ids map[uint32]bool

func (t ids) take(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	id := h.Sum32() % maxBucket
	for id == 0 || t[id] {
		id = (id + 1) % maxBucket
	}
	t[id] = true
	return id
}

package probe

import (
	"math"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

const (
	newest = 300 // probes whose results are kept
	recent = 60  // the newest of them
)

// notAnswered is the result of a probe that was lost.
const notAnswered = math.MaxUint32

// Buckets are the upper bounds of the histogram of round-trip times, in seconds.
var Buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Histogram counts round-trip times since the beginning.
type Histogram struct {
	Count uint64
	Sum   float64            // in seconds
	Below map[float64]uint64 // by upper bound, with all lower ones
}

// results keep what became of the probes of one destination.
type results struct {
	ring                  [newest]uint32 // microseconds, or notAnswered
	sent, lost, late, old uint64
	counts                []uint64 // by bucket; the last is for slower ones
	sum                   time.Duration
	last                  time.Duration
}

// answered adds a round-trip time.
func (r *results) answered(took time.Duration) {
	r.add(uint32(min(max(took.Microseconds(), 0), notAnswered-1)))
	if r.counts == nil {
		r.counts = make([]uint64, len(Buckets)+1)
	}
	i, _ := slices.BinarySearch(Buckets, took.Seconds())
	r.counts[i]++
	r.sum += took
	r.last = took
}

// missed adds a probe that was lost.
func (r *results) missed() {
	r.add(notAnswered)
	r.lost++
}

func (r *results) add(result uint32) {
	r.ring[r.sent%newest] = result
	r.sent++
}

// latest returns the newest results, at most n of them, the newest last.
func (r *results) latest(n uint64) []uint32 {
	n = min(n, r.sent, newest)
	out := make([]uint32, 0, n)
	for i := r.sent - n; i < r.sent; i++ {
		out = append(out, r.ring[i%newest])
	}
	return out
}

// passes reports whether one of the newest three probes was answered.
func (r *results) passes() bool {
	return slices.ContainsFunc(r.latest(3), func(v uint32) bool { return v != notAnswered })
}

// result returns the results for readers.
func (r *results) result() api.ProbeResult {
	all := r.latest(newest)
	out := api.ProbeResult{Sent: r.sent, Lost: r.lost, Late: r.late, Old: r.old, Samples: len(all),
		Loss60: lossOf(r.latest(recent)), Loss300: lossOf(all), LastSeconds: r.last.Seconds()}
	for i := len(all) - 1; i >= 0 && all[i] == notAnswered; i-- {
		out.LostInRow++
	}
	times := slices.DeleteFunc(all, func(v uint32) bool { return v == notAnswered })
	slices.Sort(times)
	out.P50Seconds, out.P99Seconds = quantile(times, .5), quantile(times, .99)
	return out
}

// histogram returns the counts since the beginning.
func (r *results) histogram() Histogram {
	out := Histogram{Sum: r.sum.Seconds(), Below: map[float64]uint64{}}
	counts := append(slices.Clone(r.counts), make([]uint64, len(Buckets)+1-len(r.counts))...)
	for i, limit := range Buckets {
		out.Count += counts[i]
		out.Below[limit] = out.Count
	}
	out.Count += counts[len(Buckets)]
	return out
}

func lossOf(list []uint32) float64 {
	lost := 0
	for _, v := range list {
		if v == notAnswered {
			lost++
		}
	}
	return float64(lost) / float64(max(1, len(list)))
}

// quantile returns the value, in seconds, that a share q of the ordered values does not exceed.
func quantile(ordered []uint32, q float64) float64 {
	if len(ordered) == 0 {
		return 0
	}
	i := max(1, int(math.Ceil(q*float64(len(ordered)))))
	return (time.Duration(ordered[i-1]) * time.Microsecond).Seconds()
}

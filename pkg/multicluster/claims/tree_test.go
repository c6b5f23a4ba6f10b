package claims

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// TestTree adds and removes ranges at random, and finds what looking at all of them finds.
func TestTree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	pick := func() netip.Prefix {
		ip := [4]byte{10, byte(random.IntN(4)), byte(random.IntN(4)) << 6, byte(random.IntN(4))}
		if random.IntN(2) == 0 { // the same bits in front
			p, _ := netip.AddrFrom16([16]byte{ip[0], ip[1], ip[2], ip[3], 15: byte(random.IntN(4))}).Prefix(random.IntN(129))
			return p
		}
		p, _ := netip.AddrFrom4(ip).Prefix(random.IntN(33))
		return p
	}
	var have tree
	var all []netip.Prefix
	for step := range 20_000 {
		if len(all) > 50 || len(all) > 0 && random.IntN(3) == 0 {
			have.remove(all[len(all)-1])
			all = all[:len(all)-1]
		} else {
			all = append(all, pick())
			have.add(all[len(all)-1], len(all)-1)
		}
		p := pick()
		var overlap, contain, wantOverlap, wantContain []int
		have.overlapping(p, func(i int) { overlap = append(overlap, i) })
		have.containing(p, func(i int) { contain = append(contain, i) })
		for i, other := range all {
			if other.Overlaps(p) {
				wantOverlap = append(wantOverlap, i)
			}
			if contains(other, p) {
				wantContain = append(wantContain, i)
			}
		}
		slices.Sort(overlap)
		slices.Sort(contain)
		if !slices.Equal(overlap, wantOverlap) || !slices.Equal(contain, wantContain) {
			t.Fatalf("step %d: %s overlaps %v, want %v; is in %v, want %v", step, p, overlap, wantOverlap, contain, wantContain)
		}
	}
}

// TestManyClusters decides about many clusters: the processor time grows as their number does, not as its square. Time
// of the clock would count what other programs do meanwhile.
func TestManyClusters(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	processor := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	decide := func(n int) time.Duration {
		pins := Pins{}
		var candidates []Candidate
		for i := range n {
			info := &mcv1alpha1.ClusterInfo{ClusterID: fmt.Sprint("c", i),
				ServiceCIDR:  fmt.Sprintf("10.%d.%d.0/24", i/256, i%256),
				PodCIDRs:     []string{fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256)},
				GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: fmt.Sprintf("192.0.%d.%d", i/256, i%256)}}}
			candidates = append(candidates, Candidate{ClusterID: info.ClusterID, Wanted: info, Held: info})
			if i%2 == 0 {
				range1, _ := netip.ParsePrefix(info.ServiceCIDR)
				range2, _ := netip.ParsePrefix(info.PodCIDRs[0])
				pins[info.ClusterID] = Pin{Ranges: []netip.Prefix{range1, range2}, HasRanges: true}
			}
		}
		best := time.Hour
		for range 5 {
			start := processor()
			for i, d := range Decide(candidates, pins) {
				if len(d.Faults) > 0 {
					t.Fatalf("cluster %d: %v", i, d.Faults)
				}
			}
			best = min(best, processor()-start)
		}
		return best
	}
	small, large := decide(500), decide(8000)
	if large > 128*small { // 16 times as many; 256 times as long if it were the square
		t.Errorf("500 clusters take %s, 8000 take %s: %.0f times as long, want about 16", small, large,
			float64(large)/float64(small))
	}
	t.Logf("500 clusters take %s, 8000 take %s", small, large)
}

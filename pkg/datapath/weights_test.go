package datapath

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestFactors holds the factors against their definition: with random hashes each bucket has the largest product as often as its weight says.
func TestFactors(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1}, {1, 3}, {3, 1}, {1, 2, 3, 4}, {1, 1, 1, 5}, {1, 1000}, {7, 1, 1, 1, 1, 1, 1}} {
		x := factors(weights)
		var total float64
		for _, w := range weights {
			total += float64(w)
		}
		const draws = 200_000
		won := make([]int, len(weights))
		seed := uint64(1)
		for range draws {
			best, at := uint64(0), 0
			for i := range weights {
				seed = seed*6364136223846793005 + 1442695040888963407
				if v := (seed >> 48) * uint64(x[i]); v > best {
					best, at = v, i
				}
			}
			won[at]++
		}
		for i, w := range weights {
			want := float64(w) / total
			if have := float64(won[i]) / draws; math.Abs(have-want) > 0.005 {
				t.Errorf("weights %v, factors %v: bucket %d wins %.4f of all, want %.4f", weights, x, i, have, want)
			}
		}
	}
	if x := factors([]uint16{4, 4}); x[0] != 4 || x[1] != 4 {
		t.Errorf("equal weights become %v, want them to stay", x)
	}
}

var bucketPackets = regexp.MustCompile(`bucket\d+:packet_count=(\d+)`)

// TestConnectionsLandByWeight sends new connections of many clients through a real switch and counts where they land: endpoints that stand for
// several, as another cluster's Service, get as many shares; with session affinity too, where a client stays with its endpoint.
func TestConnectionsLandByWeight(t *testing.T) {
	o := dummyBridge(t)
	target := filepath.Join(o.dir, "br-int.mgmt")
	for _, test := range []struct {
		name     string
		affinity bool
		weights  []uint16
	}{
		{"three and one", false, []uint16{3, 1}},
		{"two own Pods and a cluster of six", false, []uint16{1, 1, 6}},
		{"affinity, equal", true, []uint16{1, 1}},
		{"affinity, three and one", true, []uint16{3, 1}},
		{"affinity, two own Pods and a cluster of six", true, []uint16{1, 1, 6}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := withEndpoints(test.weights...)
			f.Affinity = test.affinity
			set := flow.NewSet()
			if err := set.AddEntries(flow.Entries{Flows: []flow.Flow{{Table: Classify, Match: flow.All(flow.IPDst(host(f.VIP.Addr()))), Actions: flow.Do(flow.CT(ofp.CT{Zone: mainZone, Table: Service}))}}}); err != nil {
				t.Fatal(err)
			}

			for _, e := range declared(t, f) {
				if err := set.AddEntries(e); err != nil {
					t.Fatal(err)
				}
			}
			o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", target)
			o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", target)
			o.appctl(t, "dpctl/flush-conntrack")
			o.program(t, "br-int", set)
			const clients, each = 400, 2
			for client := range clients {
				args := []string{"netdev-dummy/receive", "pod1"}
				for connection := range each {
					args = append(args, fmt.Sprintf("in_port(1),eth(src=0a:00:00:00:00:01,dst=0a:00:00:00:00:02),eth_type(0x0800),"+
						"ipv4(src=10.20.%d.%d,dst=10.96.0.10,proto=6,tos=0,ttl=64,frag=no),tcp(src=%d,dst=80),tcp_flags(syn)",
						client>>8, client&255, 20000+client*each+connection))
				}
				o.appctl(t, args...)
			}
			var landed []int
			total := 0
			for end := time.Now().Add(20 * time.Second); total < clients*each && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				landed, total = nil, 0
				for _, m := range bucketPackets.FindAllStringSubmatch(o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "dump-group-stats", target), -1) {
					n, _ := strconv.Atoi(m[1])
					landed, total = append(landed, n), total+n
				}
			}
			t.Logf("of %d connections landed %v, with weights %v", total, landed, test.weights)
			if total != clients*each || len(landed) != len(test.weights) {
				t.Fatalf("%d connections in %d buckets, want %d in %d", total, len(landed), clients*each, len(test.weights))
			}
			sum := 0
			for _, w := range test.weights {
				sum += int(w)
			}
			for i, w := range test.weights {
				want := float64(w) / float64(sum)
				draws := float64(clients) // that many clients choose
				if !test.affinity {
					draws *= each
				} else if landed[i]%each != 0 {
					t.Errorf("endpoint %d has %d connections: a client's two went to different endpoints", i, landed[i])
				}
				off := 4*math.Sqrt(want*(1-want)/draws) + 0.02 // chance, and slots of the hash
				if have := float64(landed[i]) / float64(total); math.Abs(have-want) > off {
					t.Errorf("endpoint %d with weight %d gets %.3f of the connections, want %.3f within %.3f", i, w, have, want, off)
				}
			}
		})
	}
}

package datapath

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// withEndpoints is a frontend with endpoints of some weights.
func withEndpoints(weights ...uint16) service.Frontend {
	f := service.Frontend{Namespace: "default", Service: "web", Protocol: corev1.ProtocolTCP,
		VIP: netip.MustParseAddrPort("10.96.0.10:80")}
	for i, w := range weights {
		f.Endpoints = append(f.Endpoints,
			service.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, byte(i >> 8), byte(i)}), 8080), Weight: w})
	}
	return f
}

// declared are the entries of the frontends' Services, by owner.
func declared(t testing.TB, frontends ...service.Frontend) map[flow.Owner]flow.Entries {
	t.Helper()
	s := onNode(1)
	s.Frontends = frontends
	plan, problems := Plan(s)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	maps.DeleteFunc(plan, func(o flow.Owner, _ flow.Entries) bool { return o.Kind != KindService })
	return plan
}

func ones(n int) []uint16 { return slices.Repeat([]uint16{1}, n) }

// TestShards divides endpoints. All of them serve, and each gets about its weight's part of all connections. A switch
// can report every group and choose from it well.
func TestShards(t *testing.T) {
	for _, test := range []struct {
		name    string
		weights []uint16
		groups  int
		within  float64 // how much more or less than its part an endpoint may get
	}{
		{"one", ones(1), 1, 0},
		{"equal weights that a group has room for", slices.Repeat([]uint16{3}, 256), 1, 0},
		{"one more", ones(257), 4, 0.5},
		{"a thousand", ones(1000), 8, 0.5},
		{"5,000", ones(5000), 64, 0.5},
		{"50,000", ones(50_000), 512, 0.5},
		{"weights as they are", []uint16{1, 2, 85}, 1, 0},
		{"weights that need more slots than there are", []uint16{1, 1000, 1000}, 1, 7},
		{"one light one and heavy ones", append(ones(1), slices.Repeat([]uint16{3}, 100)...), 1, 0.6},
		{"a cluster's own Pods and two other clusters", append(ones(200), 200, 200), 2, 0.5},
		{"many Pods and two other clusters", append(ones(5000), 5000, 5000), 64, 0.5},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := withEndpoints(test.weights...)
			total, _ := weigh(f.Endpoints)
			got := map[netip.AddrPort]float64{}
			parts := shards(f.Endpoints)
			if len(parts) != test.groups {
				t.Errorf("%d shards, want %d", len(parts), test.groups)
			}
			for i, shard := range parts {
				sum, slots := weigh(shard)
				if slots > maxSlots || len(shard) == 0 {
					t.Errorf("shard %d with %d endpoints needs %d slots", i, len(shard), slots)
				}
				for _, e := range shard {
					got[e.Addr] += float64(e.Weight) / float64(sum) / float64(len(parts))
				}
			}
			for _, e := range f.Endpoints {
				part := float64(e.Weight) / float64(total)
				if off := math.Abs(got[e.Addr]-part) / part; off > test.within+1e-9 || got[e.Addr] == 0 {
					t.Fatalf("%s with weight %d of %d gets %.6f of the connections, want %.6f",
						e.Addr, e.Weight, total, got[e.Addr], part)
				}
			}
			for _, e := range declared(t, f) {
				g := e.Groups[0]
				add, err := ofp.AppendMessage(nil, 1, ofp.BundleAdd{ID: 1, Message: g.Mod(ofp.GroupAdd)})
				if err != nil || g.Err() != nil || len(add) > 65535 {
					t.Errorf("group %d as part of a bundle: %d bytes, %v, %v", g.ID, len(add), err, g.Err())
				}
			}
		})
	}
}

// TestAffinity checks that only a client's address chooses: the group, if there are several, and the bucket.
func TestAffinity(t *testing.T) {
	f := withEndpoints(ones(1000)...)
	f.Affinity = time.Hour
	entries := declared(t, f)
	if len(entries) != 8 {
		t.Errorf("%d groups, want 8", len(entries))
	}
	for o, e := range entries {
		if s := e.Groups[0].Selection; s.Method != "hash" ||
			!slices.Equal(s.Fields, []ofp.Field{ofp.IPv4Src, affinitySalt.Field}) {
			t.Errorf("%s: chosen by %v", o, s)
		}
		if text := e.Flows[0].String(); strings.Contains(text, "tp_src") ||
			strings.Contains(o.Name, "#") != strings.Contains(text, "nw_src") {
			t.Errorf("%s: %s", o, text)
		}
	}
}

// TestSharedSet has a Service's port with several addresses: they share its groups, and each has a flow for a shard.
func TestSharedSet(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		f := withEndpoints(ones(300)...)
		f.Affinity = affinity
		other := f
		other.VIP = netip.MustParseAddrPort("10.97.0.99:8000")
		one, both := declared(t, f), declared(t, f, other)
		for o, e := range one {
			has := both[o]
			if len(has.Groups) != 1 || !reflect.DeepEqual(e.Groups, has.Groups) || len(has.Flows) != len(e.Flows)+1 {
				t.Errorf("%s, affinity %s: %d groups, %d flows with two addresses, %d with one",
					o, affinity, len(has.Groups), len(has.Flows), len(e.Flows))
			}
		}
		local := other
		local.Scope, local.Endpoints = service.Local, f.Endpoints[:3]
		both = declared(t, f, local)
		first := both[ServiceOwner("default", "web")]
		if len(both) != len(one) || len(first.Groups) != 2 || len(first.Groups[1].Buckets) != 3 {
			t.Errorf("affinity %s: a set of the Node's own endpoints: %v", affinity, first.Groups)
		}
	}
}

// TestShardsOfOneHash has addresses that were chosen to belong to one shard. No shard grows beyond the size that a
// switch accepts, and no shard is empty.
func TestShardsOfOneHash(t *testing.T) {
	for _, only := range []int{1, 7} { // of 8 shards
		var f service.Frontend
		for i := 0; len(f.Endpoints) < 1000; i++ {
			e := service.Endpoint{
				Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80), Weight: 1}
			if shardOf(e.Addr, 8) < only {
				f.Endpoints = append(f.Endpoints, e)
			}
		}
		n := 0
		for i, shard := range shards(f.Endpoints) {
			n += len(shard)
			if len(shard) > maxSlots || len(shard) == 0 {
				t.Errorf("%d of 8: shard %d has %d endpoints", only, i, len(shard))
			}
		}
		if n != 1000 {
			t.Errorf("%d of 8: %d endpoints serve", only, n)
		}
	}
}

// TestOneEndpointOfMany removes one of 5,000 endpoints. One owner changes, by one bucket of its group. Every other
// bucket keeps its number and weight.
func TestOneEndpointOfMany(t *testing.T) {
	f := withEndpoints(ones(5000)...)
	before := declared(t, f)
	for _, i := range []int{0, 1234, 4999} {
		without := f
		without.Endpoints = slices.Delete(slices.Clone(f.Endpoints), i, i+1)
		after := declared(t, without)
		changed := 0
		for owner, had := range before {
			has := after[owner]
			if reflect.DeepEqual(had, has) {
				continue
			}
			changed++
			if !slices.EqualFunc(had.Flows, has.Flows, flow.Flow.Equal) {
				t.Errorf("%s: flows have changed", owner)
			}
			if n := len(had.Groups[0].Buckets) - len(has.Groups[0].Buckets); n != 1 {
				t.Errorf("%s: %d buckets less", owner, n)
			}
			for _, b := range has.Groups[0].Buckets {
				if !slices.ContainsFunc(had.Groups[0].Buckets,
					func(o flow.Bucket) bool { return o.ID == b.ID && o.Weight == b.Weight && o.Actions.Equal(b.Actions) }) {
					t.Errorf("%s has another bucket %d", owner, b.ID)
				}
			}
		}
		if changed != 1 || len(before) != 64 || len(after) != 64 {
			t.Errorf("%d owners of %d, then %d, have changed", changed, len(before), len(after))
		}
	}
}

// TestSwitchChoosesFromShards lets a real switch choose. It reports every group, chooses by the datapath's hash in
// each, for any client port, and gives every endpoint a part of the hash's values.
func TestSwitchChoosesFromShards(t *testing.T) {
	o := dummyBridge(t)
	o.appctl(t, "vlog/set", "ofproto_dpif:file:dbg")
	target := filepath.Join(o.dir, "br-int.mgmt")
	for _, test := range []struct {
		name    string
		weights []uint16
	}{
		{"1,000 endpoints", ones(1000)},
		{"weights 1 and 3", append(ones(100), slices.Repeat([]uint16{3}, 100)...)},
		{"own Pods and two other clusters", append(ones(90), 90, 90)},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := withEndpoints(test.weights...)
			set := flow.NewSet()
			if err := set.AddEntries(
				flow.Entries{Flows: []flow.Flow{{Table: Classify, Actions: flow.Do(flow.Goto(Service))}}}); err != nil {
				t.Fatal(err)
			}
			groups := make([]flow.Group, len(declared(t, f)))
			for owner, e := range declared(t, f) {
				if err := set.AddEntries(e); err != nil {
					t.Fatal(err)
				}
				_, number, _ := strings.Cut(owner.Name, "#")
				shard, _ := strconv.Atoi(number) // "" is the first
				groups[shard] = e.Groups[0]
			}
			o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", target)
			o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", target)
			if err := os.Truncate(filepath.Join(o.dir, "ovs-vswitchd.log"), 0); err != nil {
				t.Fatal(err)
			}
			o.program(t, "br-int", set)
			want := 0
			for _, g := range groups {
				want += len(g.Buckets)
			}
			dump := o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "dump-groups", target)
			if n := strings.Count(dump, "bucket_id:"); n != want {
				t.Errorf("the switch reports %d buckets, want %d", n, want)
			}
			log, err := os.ReadFile(filepath.Join(o.dir, "ovs-vswitchd.log"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(log), "Falling back") {
				t.Error("the switch does not choose by the datapath's hash")
			}
			if n, none := strings.Count(string(log), " hits="), strings.Count(string(log), " hits=0"); n != want || none > 0 {
				t.Errorf("%d of %d buckets get none of the hash's values", none, n)
			}
			for port := range 4 * len(groups) {
				id := groups[port>>1%len(groups)].ID
				trace := o.appctl(t, "ofproto/trace", "br-int",
					fmt.Sprintf("in_port=1,tcp,ct_state=new|trk,nw_src=10.10.0.2,nw_dst=10.96.0.10,tp_src=%d,tp_dst=80", port+1024))
				if !strings.Contains(trace, fmt.Sprintf("group:%d\n", id)) || !strings.Contains(trace, "hash(l4(0))") {
					t.Errorf("from port %d, want group %d and the datapath's hash:\n%s", port+1024, id, trace)
				}
			}
		})
	}
}

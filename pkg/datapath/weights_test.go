package datapath

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// TestFactors compares the factors with their definition. With random hashes each bucket has the largest product as
// often as its weight demands.
func TestFactors(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1, 1}, {1, 3}, {3, 1}, {1, 2, 3, 4}, {1, 1, 1, 5}, {1, 1000},
		{7, 1, 1, 1, 1, 1, 1}} {
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

// TestConnectionsLandByWeight sends new connections of many clients through a real switch and counts them for each
// endpoint. Endpoints that stand for several, as another cluster's Service does, get as many shares. This holds with
// session affinity too, where a client stays with its endpoint.
func TestConnectionsLandByWeight(t *testing.T) {
	withOthers(t)
	o := dummyBridge(t)
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
			if test.affinity {
				f.Affinity = time.Hour
			}
			const clients, each = 400, 2
			landed, total := land(t, o, f, clients, each)
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

var (
	bucketPackets   = regexp.MustCompile(`bucket\d+:packet_count=(\d+)`)
	endpointPackets = regexp.MustCompile(`n_packets=(\d+),.*nat\(dst=([0-9.]+):`)
)

// landed returns how many connections went to each endpoint, and together. With affinity a group counts choices alone;
// the flows of table Endpoint count all.
func (o *openVSwitch) landed(t testing.TB, f service.Frontend) (each []int, total int) {
	t.Helper()
	count := func(text string) {
		n, _ := strconv.Atoi(text)
		each, total = append(each, n), total+n
	}
	target := filepath.Join(o.dir, "br-int.mgmt")
	if f.Affinity == 0 {
		for _, m := range bucketPackets.FindAllStringSubmatch(o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15",
			"dump-group-stats", target), -1) {
			count(m[1])
		}
		return each, total
	}
	flows := endpointPackets.FindAllStringSubmatch(o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", target,
		fmt.Sprintf("table=%d", Endpoint)), -1)
	for _, e := range f.Endpoints {
		for _, m := range flows {
			if m[2] == e.Addr.Addr().String() {
				count(m[1])
			}
		}
	}
	return each, total
}

// receivedAtOnce is about how many packets a port gets with one command. It has room for 100.
const receivedAtOnce = 40

var portReceived = regexp.MustCompile(`rx pkts=(\d+)`)

// received returns how many packets a port of br-int has received.
func (o *openVSwitch) received(t testing.TB, port string) int {
	t.Helper()
	text := o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "dump-ports", filepath.Join(o.dir, "br-int.mgmt"), port)
	m := portReceived.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("dump-ports says nothing of what port %s has received:\n%s", port, text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// land sends new connections of many clients, as many of each, to a frontend on a switch without others. It returns how
// many landed at each endpoint, and together.
func land(t *testing.T, o *openVSwitch, f service.Frontend, clients, each int) (landed []int, total int) {
	t.Helper()
	target := filepath.Join(o.dir, "br-int.mgmt")
	set := flow.NewSet()
	if err := set.AddEntries(
		flow.Entries{Flows: []flow.Flow{{Table: Classify, Match: flow.All(flow.IPDst(host(f.VIP.Addr()))),
			Actions: flow.Do(flow.CT(ofp.CT{Zone: mainZone, Table: Service}))}}}); err != nil {
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
	o.appctl(t, "revalidator/wait") // megaflows of earlier connections
	args := []string{"netdev-dummy/receive", "pod1"}
	for client := range clients {
		for connection := range each {
			args = append(args, fmt.Sprintf("in_port(1),eth(src=0a:00:00:00:00:01,dst=0a:00:00:00:00:02),eth_type(0x0800),"+
				"ipv4(src=10.20.%d.%d,dst=%s,proto=6,tos=0,ttl=64,frag=no),tcp(src=%d,dst=80),tcp_flags(syn)",
				client>>8, client&255, f.VIP.Addr(), 20000+client*each+connection))
		}
		if len(args) >= receivedAtOnce || client == clients-1 {
			want := o.received(t, "1") + len(args) - 2
			o.appctl(t, args...)
			for end := time.Now().Add(ovstest.Timeout()); o.received(t, "1") < want; {
				if time.Now().After(end) {
					t.Fatalf("the port has received %d packets, want %d", o.received(t, "1"), want)
				}
			}
			args = args[:2]
		}
	}
	for end := time.Now().Add(ovstest.Timeout()); total < clients*each &&
		time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		landed, total = o.landed(t, f)
	}
	return landed, total
}

// frontendOf returns the frontend of a Service with one port, for a Node in a zone.
func frontendOf(t *testing.T, s *corev1.Service, zone string, list ...*discoveryv1.EndpointSlice) service.Frontend {
	t.Helper()
	e := derive.New()
	tables := service.NewTables(e, "node-1", func(*derive.Reader) string { return zone }, false)
	tables.Services.Set(derive.ObjectOf(s), service.FactsOf(s))
	for _, slice := range list {
		tables.Slices.Set(derive.ObjectOf(slice), service.SliceFactsOf(slice))
	}
	tables.Services.Loaded()
	tables.Slices.Loaded()
	e.Pass()
	frontends, _ := tables.Frontends.Get(derive.ObjectOf(s))
	if problems := e.Problems(); len(frontends) != 1 || len(problems) > 0 {
		t.Fatal(frontends, problems)
	}
	return frontends[0]
}

// TestGoneClusterGetsNoConnections has a cluster with three of four shares of an imported Service that is there, gone,
// and there again. While its endpoint is not ready all connections land at the other cluster's, with session affinity
// too.
func TestGoneClusterGetsNoConnections(t *testing.T) {
	withOthers(t)
	o := dummyBridge(t)
	of := func(cluster, ip, stands string, ready bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "antrea-mc-web-" + cluster,
				Annotations: map[string]string{multicluster.AnnotationReady: stands},
				Labels: map[string]string{discoveryv1.LabelServiceName: "antrea-mc-web",
					discoveryv1.LabelManagedBy: multicluster.EndpointSliceManager, mcsv1beta1.LabelSourceCluster: cluster}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP),
				Port: ptr.To[int32](80)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: ptr.To(false)}}},
		}
	}
	for _, affinity := range []corev1.ServiceAffinity{corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP} {
		for i, there := range []bool{true, false, true} {
			t.Run(fmt.Sprintf("affinity %s, %d: %v", affinity, i, there), func(t *testing.T) {
				web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "antrea-mc-web"}}
				web.Annotations = map[string]string{multicluster.AnnotationImportedService: "true"}
				web.Spec = corev1.ServiceSpec{ClusterIP: "10.96.0.11", SessionAffinity: affinity,
					ClusterIPs: []string{"10.96.0.11"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}
				f := frontendOf(t, web, "", of("south", "10.99.0.20", "1", true), of("west", "10.98.0.20", "3", there))
				const clients, each = 100, 2
				landed, total := land(t, o, f, clients, each)
				if total != clients*each {
					t.Fatalf("%d connections landed, want %d", total, clients*each)
				}
				switch {
				case !there && (len(landed) != 1 || f.Endpoints[0].Addr.Addr().String() != "10.99.0.20"):
					t.Errorf("while west is gone %v land at %v", landed, f.Endpoints)
				case there && (len(landed) != 2 || landed[0] < 2*landed[1] || landed[1] == 0): // west's address is the lower one
					t.Errorf("%v land at %v, want three quarters of them at the first", landed, f.Endpoints)
				}
			})
		}
	}
}

// TestHintsKeepConnections has endpoints with hints, which come and go, and a Node that changes its zone. On a switch,
// connections land where the hints send them.
func TestHintsKeepConnections(t *testing.T) {
	withOthers(t)
	o := dummyBridge(t)
	for _, test := range []struct {
		name, zone string
		zones      []string // of the endpoints' hints, "" without a hint
		want       []int    // the endpoints that get connections
	}{
		{"zone a", "a", []string{"a", "b", "a"}, []int{1, 3}},
		{"the Node is in zone b now", "b", []string{"a", "b", "a"}, []int{2}},
		{"that of zone b has gone", "b", []string{"a", "a"}, []int{1, 2}},
		{"one comes without a hint", "a", []string{"a", "b", "b", ""}, []int{1, 2, 3, 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1",
					Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP),
					Port: ptr.To[int32](80)}},
			}
			for i, zone := range test.zones {
				e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.10.1.%d", 1+i)}}
				if zone != "" {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
				}
				slice.Endpoints = append(slice.Endpoints, e)
			}
			web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			web.Spec = corev1.ServiceSpec{ClusterIP: "10.96.0.11", Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
				TrafficDistribution: ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)}
			f := frontendOf(t, web, test.zone, slice)
			const clients, each = 50, 4
			landed, total := land(t, o, f, clients, each)
			if total != clients*each {
				t.Fatalf("%d connections landed, want %d", total, clients*each)
			}
			var have []int
			for i, e := range f.Endpoints {
				if landed[i] > 0 {
					have = append(have, int(e.Addr.Addr().As4()[3]))
				}
			}
			if !slices.Equal(have, test.want) {
				t.Errorf("endpoints %v get connections, want %v", have, test.want)
			}
		})
	}
}

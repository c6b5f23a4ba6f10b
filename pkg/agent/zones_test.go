package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// zoneRig is a switch that tracks connections in zones, with the Pods of a Node.
type zoneRig struct {
	t       *testing.T
	f       *zoneFlusher
	number  uint64          // of the session
	tracked map[uint16]bool // zones with connections
	flushed []uint16
	refuse  error
	lists   int
	ready   bool
	known   map[string]uint16       // zones of networks
	ranges  map[string]netip.Prefix // of networks
	pods    map[string]string       // networks by container
	seen    uint64
	hang    chan struct{} // flushes wait until it is closed; nil if they do not wait
	log     bytes.Buffer
}

func (r *zoneRig) session() uint64 { return r.number }

func (r *zoneRig) zones(context.Context) (map[uint16]bool, error) {
	r.lists++
	return maps.Clone(r.tracked), r.refuse
}

func (r *zoneRig) flushZones(ctx context.Context, zones []uint16) error {
	if r.hang != nil {
		r.hang <- struct{}{}
		select {
		case <-r.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.refuse != nil {
		return r.refuse
	}
	for _, zone := range zones {
		delete(r.tracked, zone)
	}
	r.flushed = append(r.flushed, zones...)
	return nil
}

func newZoneRig(t *testing.T) *zoneRig {
	r := &zoneRig{t: t, number: 1, ready: true, tracked: map[uint16]bool{}, pods: map[string]string{},
		known:  map[string]uint16{"a/blue": 1, "a/red": 2, "b/blue": 1, "b/gold": 1},
		ranges: map[string]netip.Prefix{}}
	for network, cidr := range map[string]string{"a/blue": "10.50.0.0/24", "a/red": "10.50.0.0/24",
		"b/blue": "10.50.0.0/25", "b/gold": "10.50.1.0/24"} {
		r.ranges[network] = netip.MustParsePrefix(cidr)
	}
	r.start()
	return r
}

// start starts the agent again.
func (r *zoneRig) start() {
	r.seen = 0
	r.f = &zoneFlusher{switches: r, log: slog.New(slog.NewTextHandler(&r.log, nil)), wake: make(chan struct{}, 1),
		lock: make(chan struct{}, 1), arriving: map[string]int{}, left: map[uint16]bool{},
		ready: func() bool { return r.ready }, of: func(network string) (uint16, []netip.Prefix) {
			return r.known[network], []netip.Prefix{r.ranges[network]}
		},
		inUse: func() map[uint16][]string {
			return r.f.byZone(slices.Compact(slices.Sorted(maps.Values(r.pods))))
		}}
}

// expect passes, and compares the zones that were flushed since the last call.
func (r *zoneRig) expect(step string, want ...uint16) {
	r.t.Helper()
	_ = r.f.pass(r.t.Context(), &r.seen)
	r.expectNow(step, want...)
}

func (r *zoneRig) expectNow(step string, want ...uint16) {
	r.t.Helper()
	if !slices.Equal(r.flushed, want) {
		r.t.Errorf("%s: flushed %v, want %v", step, r.flushed, want)
	}
	r.flushed = nil
}

// add attaches a Pod. Its connections are tracked from then on.
func (r *zoneRig) add(container, network string) error {
	done, err := r.f.arrive(r.t.Context(), cni.Attachment{ContainerID: container, IfName: "eth1", VirtualNetwork: network})
	if err != nil {
		return err
	}
	r.pods[container] = network
	done()
	r.tracked[r.known[network]] = true
	return nil
}

func (r *zoneRig) must(container, network string) {
	r.t.Helper()
	if err := r.add(container, network); err != nil {
		r.t.Fatal(err)
	}
}

// TestZoneFlusher follows the zones of networks whose Pods come and go.
func TestZoneFlusher(t *testing.T) {
	r := newZoneRig(t)
	r.expect("no Pods")
	r.must("c1", "a/blue")
	r.expectNow("the first Pod", 1)
	r.must("c2", "a/blue")
	r.must("c0", "a/shared")
	r.must("c0", "")
	r.expect("further Pods")
	delete(r.pods, "c1")
	r.expect("one of two Pods goes")
	r.must("c2", "a/blue")
	r.expect("an ADD is repeated")
	delete(r.pods, "c2")
	r.expect("the last Pod goes", 1)
	r.expect("later")
	r.must("c3", "b/blue")
	r.expectNow("another network has the zone", 1)

	// The agent does not look between the last Pod of a network and the first one of another.
	delete(r.pods, "c3")
	r.must("c4", "a/blue")
	r.expectNow("without a look", 1)
	r.expect("later")

	// The zone is not known when the Pod arrives.
	delete(r.known, "a/red")
	r.must("c5", "a/red")
	r.expect("not known")
	r.known["a/red"] = 2
	r.expect("known now", 2)
	r.expect("later")
}

// TestZonesAfterStart starts the agent and the switch again. Pods that are there keep their connections.
func TestZonesAfterStart(t *testing.T) {
	r := newZoneRig(t)
	r.pods["c1"], r.tracked = "a/blue", map[uint16]bool{1: true, 2: true, 7: true}
	r.ready = false
	r.expect("the networks are not known yet")
	r.ready, r.number = true, 0
	r.expect("no connection to the switch")
	r.number = 5
	r.expect("after a start", 2, 7)
	r.expect("later")
	r.must("c2", "a/blue")
	r.expectNow("another Pod of a network that is there")
	r.tracked[9], r.number = true, 6
	r.expect("the switch starts again", 9)
	if r.lists != 2 {
		t.Errorf("%d lists of all connections, want one for each session", r.lists)
	}
	r.start()
	r.must("c3", "a/red")
	r.expectNow("a Pod before the first look", 2)
	r.expect("the first look")
	if !r.tracked[1] {
		t.Error("the connections of a Pod that was there are gone")
	}
}

// TestZonesRefused has flushes fail. They are repeated, and no Pod is served before.
func TestZonesRefused(t *testing.T) {
	r := newZoneRig(t)
	r.must("c1", "a/blue")
	r.expect("the first Pod", 1)
	delete(r.pods, "c1")
	r.refuse = errors.New("broken")
	r.expect("refused")
	if err := r.add("c2", "a/blue"); err == nil || !strings.Contains(err.Error(), "VirtualNetwork a/blue: broken") {
		t.Errorf("a Pod is served with old connections in its zone: %v", err)
	}
	if n := len(r.f.arriving); n != 0 {
		t.Errorf("%d zones with Pods that arrive", n)
	}
	r.refuse = nil
	r.expect("again", 1)
	r.must("c2", "a/blue")
	r.expectNow("the Pod's ADD is repeated", 1)
}

// TestZoneArrives compares while the ADD of a network's first Pod is under way. Nothing is flushed after the ADD began.
func TestZoneArrives(t *testing.T) {
	r := newZoneRig(t)
	r.expect("no Pods")
	at := cni.Attachment{ContainerID: "c1", IfName: "eth1", VirtualNetwork: "a/blue"}
	done, err := r.f.arrive(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	r.expect("the Pod arrives", 1)
	r.expect("the Pod is not recorded yet")
	done()
	r.expect("ADD has failed", 1)
	var none *zoneFlusher
	if done, err := none.arrive(t.Context(), at); err != nil || done == nil || none.any() {
		t.Error("without the feature gate an ADD fails")
	}
}

// TestConnectionReaderOfAll has one reader of some zones and one of all. Both get a list of all zones.
func TestConnectionReaderOfAll(t *testing.T) {
	list := func(lines ...string) func(context.Context, func(string)) error {
		return func(_ context.Context, each func(string)) error {
			for _, line := range lines {
				each(line)
			}
			return nil
		}
	}
	r := &connectionReader{list: list("main"), all: list("main", "other"), began: time.Now()}
	var some, all []string
	done := make(chan error, 2)
	go func() { done <- r.read(t.Context(), func(line string) { some = append(some, line) }) }()
	go func() { done <- r.readAll(t.Context(), func(line string) { all = append(all, line) }) }()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(all) != "[main other]" || fmt.Sprint(some) != "[main other]" {
		t.Errorf("the readers get %v and %v", some, all)
	}
	some = nil
	if err := r.read(t.Context(), func(line string) { some = append(some, line) }); err != nil || len(some) != 1 {
		t.Errorf("a later reader gets %v, error %v", some, err)
	}
}

// TestZoneOfNetworks has networks with different addresses in one zone. Pods of one keep their connections while these
// of the other come and go, unless a later network has addresses of an earlier one.
func TestZoneOfNetworks(t *testing.T) {
	r := newZoneRig(t)
	r.must("c1", "a/blue")
	r.expectNow("the first Pod", 1)
	r.must("c2", "b/gold")
	r.expect("a Pod of another network")
	delete(r.pods, "c2")
	r.expect("it goes")
	r.must("c2", "b/gold")
	delete(r.pods, "c1")
	r.expect("the first network goes")
	r.must("c1", "a/blue")
	r.expect("it comes back")
	delete(r.pods, "c1")
	r.expect("it goes again")
	r.must("c3", "b/blue")
	r.expectNow("another network has its addresses", 1)
	r.expect("later")
	delete(r.pods, "c3")
	delete(r.pods, "c2")
	r.expect("the last Pods go", 1)

	// Both are there before the agent starts, and the lease of one is read later.
	r.pods, r.tracked = map[string]string{"c1": "a/blue", "c2": "b/gold"}, map[uint16]bool{1: true}
	delete(r.known, "b/gold")
	r.start()
	r.expect("one is known")
	r.known["b/gold"] = 1
	r.expect("both are known")
	delete(r.pods, "c1")
	r.pods["c3"] = "b/blue" // without an arrival, since its zone was not known
	r.expect("a network with the addresses of one of them", 1)
	if log := r.log.String(); strings.Contains(log, "WARN") {
		t.Errorf("the log is\n%s", log)
	}

	// A network goes, and is created again with another range. Then a third one has its first range.
	r.pods = map[string]string{"c1": "a/blue", "c2": "b/gold"}
	r.start()
	r.expect("after a start")
	delete(r.pods, "c1")
	r.expect("one goes")
	r.ranges["a/blue"] = netip.MustParsePrefix("10.50.2.0/24")
	r.must("c1", "a/blue")
	r.expect("it has another range")
	delete(r.pods, "c1")
	r.must("c3", "b/blue")
	r.expectNow("another network has the first range", 1)
}

// TestZoneOfTwoNetworks has two networks with common addresses in one zone. Only one of them is served.
func TestZoneOfTwoNetworks(t *testing.T) {
	const refused = "VirtualNetworks %s and %s have common addresses and one zone of connection tracking, 1: delete " +
		"the Pods in the one whose Subnet has the state Failure, then it gets another zone"
	r := newZoneRig(t)
	r.must("c1", "a/blue")
	r.expectNow("the first Pod", 1)
	if err := r.add("c2", "b/blue"); err == nil || err.Error() != fmt.Sprintf(refused, "b/blue", "a/blue") {
		t.Errorf("the second network: %v", err)
	}
	r.must("c3", "a/blue")
	r.expect("the second network is refused")
	delete(r.pods, "c1")
	delete(r.pods, "c3")
	done, err := r.f.arrive(t.Context(), cni.Attachment{ContainerID: "c2", IfName: "eth1", VirtualNetwork: "b/blue"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.add("c1", "a/blue"); err == nil || err.Error() != fmt.Sprintf(refused, "a/blue", "b/blue") {
		t.Errorf("while a Pod of the other network arrives: %v", err)
	}
	done()
	r.expectNow("the second network alone", 1)

	// Both have Pods before the agent starts.
	r.pods, r.tracked = map[string]string{"c2": "b/blue", "c1": "a/blue", "c3": "a/red"}, map[uint16]bool{1: true}
	r.start()
	for range 3 {
		r.expect("both are there")
	}
	if log := r.log.String(); strings.Count(log, "level=WARN") != 1 ||
		!strings.Contains(log, `zone=1 networks="[a/blue b/blue]"`) {
		t.Errorf("the log is\n%s", log)
	}
	if r.add("c4", "b/blue") == nil || r.add("c4", "a/blue") == nil {
		t.Error("a further Pod is served in a shared zone")
	}
	delete(r.pods, "c1")
	r.expect("one of the two goes", 1)
	r.must("c4", "b/blue")
	r.expect("a further Pod of the other")
}

// TestZonesOfHangingSwitch has ADDs while the switch answers no flush. The ADDs end when their contexts do.
func TestZonesOfHangingSwitch(t *testing.T) {
	r := newZoneRig(t)
	r.expect("no Pods")
	first, err := r.f.arrive(t.Context(), cni.Attachment{ContainerID: "c1", IfName: "eth1", VirtualNetwork: "a/blue"})
	if err != nil {
		t.Fatal(err)
	}
	r.hang = make(chan struct{})
	hung := make(chan error, 1)
	go func() {
		_, err := r.f.arrive(t.Context(), cni.Attachment{ContainerID: "c2", IfName: "eth1", VirtualNetwork: "a/red"})
		hung <- err
	}()
	<-r.hang // the flush has begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.f.arrive(ctx, cni.Attachment{ContainerID: "c3", IfName: "eth1", VirtualNetwork: "a/red"})
		first()
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "VirtualNetwork a/red: wait for the flush") {
			t.Errorf("the second ADD ends with %v", err)
		}
	case <-time.After(zonesTimeout / 2):
		t.Error("the second ADD waits for the flush of the first one")
	}
	r.hang <- struct{}{}
	if err := <-hung; err != nil {
		t.Errorf("the first ADD: %v", err)
	}
}

// TestZonesBeforeLoad looks for separate networks before, and while, the agent reads the OVSDB's record.
func TestZonesBeforeLoad(t *testing.T) {
	ovs := ovstest.Start(t, ovstest.Dummy)
	c := config.Default()
	c.FeatureGates = map[string]bool{"TenantNetworks": true}
	a, err := newAgent(Options{
		Config: c, NodeName: ownName, Namespace: "kube-system", REST: &rest.Config{Host: "http://127.0.0.1:1"},
		OVSRunDir: ovs.RunDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if a.connections.zones.any() {
		t.Error("an agent without a record has Pods")
	}
	ctx, stop := context.WithTimeout(t.Context(), ovstest.Timeout())
	ran, loaded := make(chan error, 1), make(chan error, 1)
	go func() { ran <- a.switchPorts.Run(ctx) }()
	go func() { loaded <- a.load(ctx) }()
	for reading := true; reading; {
		select {
		case err = <-loaded:
			reading = false
		default:
			a.connections.zones.any()
		}
	}
	if err != nil || a.attachments.Load() == nil {
		t.Errorf("read the record: %v", err)
	}
	stop()
	<-ran
}

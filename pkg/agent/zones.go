package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// zoneFlusher flushes zones of connection tracking that no separate network with a Pod on this Node has. Later another
// network may have the zone, and its Pods may have the same addresses. Then the switch would take its packets for
// packets of the earlier connections.
//
// Before the first Pod in a zone is served, the zone is flushed, too. Networks in one zone have different addresses. So
// the Pods of one keep their connections when Pods of another come and go. If a network had Pods before, and another
// one has its addresses now, the zone is flushed. Pods from before a start of the agent keep their connections.
//
// On the userspace datapath zone N also has the SCTP associations with port N (package datapath). After a flush,
// policies judge the next packet of such an association again. If they allow it, the association goes on.
type zoneFlusher struct {
	switches zoneSwitch
	ready    func() bool                // the networks are known
	inUse    func() map[uint16][]string // the zones of this Node's Pods, with their networks in order
	// of returns the zone of a network, and its ranges. The zone is 0 if the network is not separate.
	of   func(virtualNetwork string) (uint16, []netip.Prefix)
	log  *slog.Logger
	wake chan struct{}

	// lock has a value while a goroutine compares or flushes, so that the others stop waiting when their contexts end. It
	// guards the three maps.
	lock   chan struct{}
	served map[uint16]zoneHistory // nil before the first comparison
	left   map[uint16]bool        // to be flushed
	shared map[uint16]bool        // zones of networks with common addresses that were logged

	mu       sync.Mutex
	arriving map[string]int // the number of ADDs that are under way, by network; it grows only under lock
}

// zoneHistory are the networks that have had Pods in a zone since it was flushed, with their ranges.
type zoneHistory map[string][]netip.Prefix

// zoneSwitch is the part of the switch that the flusher of zones uses.
type zoneSwitch interface {
	// session numbers the connections to the switch; 0 without a connection.
	session() uint64
	// zones lists the zones of separate networks that have tracked connections.
	zones(context.Context) (map[uint16]bool, error)
	flushZones(context.Context, []uint16) error
}

// zonesTimeout bounds a flush.
const zonesTimeout = 10 * time.Second

// newZoneFlusher returns the flusher of zones; nil without feature gate TenantNetworks.
func newZoneFlusher(s agentSwitch, of func() *attachments, ready func() bool, log *slog.Logger) *zoneFlusher {
	if s.tables.tenants == nil {
		return nil
	}
	f := &zoneFlusher{switches: s, ready: ready, log: log, wake: make(chan struct{}, 1), lock: make(chan struct{}, 1),
		arriving: map[string]int{}, left: map[uint16]bool{}}
	f.of = func(text string) (uint16, []netip.Prefix) {
		namespace, name, _ := (cni.Attachment{VirtualNetwork: text}).VirtualKey()
		return s.tables.objects.networks.separate.spaceOf(derive.Object{Namespace: namespace, Name: name})
	}
	f.inUse = func() map[uint16][]string { return f.byZone(of().networks()) }
	s.tables.tenants.VirtualNetworks.Watch(func([]derive.Change[derive.Object, tenant.VirtualNetwork]) { f.changed() })
	return f
}

// byZone returns the separate ones of some networks, in their order.
func (f *zoneFlusher) byZone(networks []string) map[uint16][]string {
	out := map[uint16][]string{}
	for _, network := range networks {
		if zone, _ := f.of(network); zone != 0 {
			out[zone] = append(out[zone], network)
		}
	}
	return out
}

// changed starts a comparison.
func (f *zoneFlusher) changed() {
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run flushes until ctx ends.
func (f *zoneFlusher) run(ctx context.Context) {
	if f == nil {
		return
	}
	seen := uint64(0) // the session whose tracked connections were compared
	for ctx.Err() == nil {
		wait := 30 * time.Second
		if err := f.pass(ctx, &seen); err != nil && ctx.Err() == nil {
			f.log.Debug("zones of networks without Pods not flushed yet", "error", err)
			wait = flushRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass compares and flushes once.
func (f *zoneFlusher) pass(ctx context.Context, seen *uint64) error {
	session := f.switches.session()
	if !f.ready() || session == 0 {
		return nil
	}
	var tracked map[uint16]bool
	if *seen != session {
		listing, cancel := context.WithTimeout(ctx, recheckLimit)
		defer cancel()
		var err error
		if tracked, err = f.switches.zones(listing); err != nil {
			return err
		}
	}
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	*seen = session
	f.inherit()
	used := f.users()
	f.warn(used)
	for zone := range tracked {
		if len(used[zone]) == 0 {
			f.left[zone] = true
		}
	}
	for zone := range f.served {
		if len(used[zone]) == 0 {
			delete(f.served, zone)
			f.left[zone] = true
		}
	}
	for zone, networks := range used { // the zone may not have been known when the Pod arrived
		if f.stale(zone, networks) {
			f.left[zone] = true
			continue
		}
		f.serve(zone, networks)
	}
	if len(f.left) == 0 {
		return nil
	}
	if err := f.flush(ctx, slices.Sorted(maps.Keys(f.left))); err != nil {
		return err
	}
	for zone := range f.left {
		if networks := used[zone]; len(networks) > 0 {
			delete(f.served, zone)
			f.serve(zone, networks)
		}
	}
	clear(f.left)
	return nil
}

// users returns the networks of Pods and of ADDs that are under way, by zone.
func (f *zoneFlusher) users() map[uint16][]string {
	f.mu.Lock()
	arriving := slices.Collect(maps.Keys(f.arriving)) // before the Pods: an ADD is in one of the two
	f.mu.Unlock()
	used := f.inUse()
	for zone, networks := range f.byZone(arriving) {
		used[zone] = slices.Compact(slices.Sorted(slices.Values(append(used[zone], networks...))))
	}
	return used
}

// stale reports whether a zone has to be flushed before some networks are served, which are all that have Pods in it.
// That is if no Pod was in one of them since the last flush, or if an earlier network had an address of one of them.
// The caller holds the lock.
func (f *zoneFlusher) stale(zone uint16, networks []string) bool {
	history := f.served[zone]
	for earlier, ranges := range history {
		if !slices.Contains(networks, earlier) && slices.ContainsFunc(networks, func(network string) bool {
			_, own := f.of(network)
			return meet(ranges, own)
		}) {
			return true
		}
	}
	return !slices.ContainsFunc(networks, func(network string) bool {
		_, ok := history[network]
		return ok
	})
}

// serve records the networks that have Pods in a zone. The caller holds the lock.
func (f *zoneFlusher) serve(zone uint16, networks []string) {
	if f.served[zone] == nil {
		f.served[zone] = zoneHistory{}
	}
	for _, network := range networks {
		_, ranges := f.of(network)
		for _, p := range ranges { // a network that was created again may have other ones
			if have := f.served[zone][network]; !slices.Contains(have, p) {
				f.served[zone][network] = append(have, p)
			}
		}
		if _, ok := f.served[zone][network]; !ok {
			f.served[zone][network] = nil
		}
	}
}

// meet reports whether ranges of two lists have common addresses.
func meet(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return slices.ContainsFunc(b, p.Overlaps) })
}

// any reports whether this Node has Pods in separate networks.
func (f *zoneFlusher) any() bool { return f != nil && len(f.inUse()) > 0 }

// acquire takes the lock. It fails if ctx ends first.
func (f *zoneFlusher) acquire(ctx context.Context) error {
	select {
	case f.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the flush of other zones: %w", ctx.Err())
	}
}

func (f *zoneFlusher) release() { <-f.lock }

// inherit takes over the zones of Pods that are there at the first comparison. The caller holds the lock.
func (f *zoneFlusher) inherit() {
	if f.served != nil {
		return
	}
	f.served = map[uint16]zoneHistory{}
	for zone, networks := range f.inUse() {
		f.serve(zone, networks)
	}
}

// among returns the networks of a list that have common addresses with another one of it.
func (f *zoneFlusher) among(networks []string) (out []string) {
	for _, network := range networks {
		if f.meets(network, networks) != "" {
			out = append(out, network)
		}
	}
	return out
}

// meets returns a network of a list that has common addresses with another network, or "".
func (f *zoneFlusher) meets(network string, others []string) string {
	_, own := f.of(network)
	for _, other := range others {
		if _, ranges := f.of(other); other != network && meet(own, ranges) {
			return other
		}
	}
	return ""
}

// warn logs zones of networks with common addresses, once for each. The caller holds the lock.
func (f *zoneFlusher) warn(used map[uint16][]string) {
	shared := map[uint16]bool{}
	for zone, networks := range used {
		networks = f.among(networks)
		if len(networks) == 0 {
			continue
		}
		if shared[zone] = true; !f.shared[zone] {
			f.log.Warn("policies may judge connections of VirtualNetworks with common addresses in one zone by each other's "+
				"connections; delete the Pods in these whose Subnets have the state Failure, then they get other zones",
				"zone", zone, "networks", networks)
		}
	}
	f.shared = shared
}

// free refuses a network if another one uses its zone on this Node, and has common addresses. Such leases exist if a
// write of one has overtaken the event of the other. The controller serves one of the two.
func (f *zoneFlusher) free(zone uint16, network string, used []string) error {
	if other := f.meets(network, used); other != "" {
		return fmt.Errorf("VirtualNetworks %s and %s have common addresses and one zone of connection tracking, %d: "+
			"delete the Pods in the one whose Subnet has the state Failure, then it gets another zone", network, other, zone)
	}
	return nil
}

// arrive flushes a zone if the first Pod in it on this Node arrives, or if the Pod's network has addresses of an
// earlier one. The caller calls done when the attachment is recorded, or has failed. A Pod whose attachment is rebuilt
// late counts as a first one.
func (f *zoneFlusher) arrive(ctx context.Context, at cni.Attachment) (done func(), err error) {
	if f == nil || at.VirtualNetwork == "" {
		return func() {}, nil
	}
	zone, _ := f.of(at.VirtualNetwork)
	if zone == 0 {
		return func() {}, nil
	}
	forget := func(err error) error {
		return fmt.Errorf("forget earlier connections in the zone of VirtualNetwork %s: %w", at.VirtualNetwork, err)
	}
	if err := f.acquire(ctx); err != nil {
		return nil, forget(err)
	}
	defer f.release()
	f.inherit()
	used := f.users()[zone]
	if err := f.free(zone, at.VirtualNetwork, used); err != nil {
		return nil, err
	}
	if used = append(used, at.VirtualNetwork); f.left[zone] || f.stale(zone, used) {
		if err := f.flush(ctx, []uint16{zone}); err != nil {
			return nil, forget(err)
		}
		delete(f.served, zone)
		delete(f.left, zone)
	}
	f.serve(zone, used)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arriving[at.VirtualNetwork]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.arriving[at.VirtualNetwork]--; f.arriving[at.VirtualNetwork] == 0 {
			delete(f.arriving, at.VirtualNetwork)
		}
		f.changed()
	}, nil
}

// flush flushes zones. The caller holds the lock, so no Pod arrives meanwhile.
func (f *zoneFlusher) flush(ctx context.Context, zones []uint16) error {
	ctx, cancel := context.WithTimeout(ctx, zonesTimeout)
	defer cancel()
	if err := f.switches.flushZones(ctx, zones); err != nil {
		return err
	}
	f.log.Info("flushed zones of connection tracking", "zones", zones)
	return nil
}

func (s agentSwitch) zones(ctx context.Context) (map[uint16]bool, error) {
	out := map[uint16]bool{}
	err := s.reader.readAll(ctx, func(line string) {
		if zone, ok := datapath.TrackedZone(line); ok {
			out[zone] = true
		}
	})
	return out, err
}

func (s agentSwitch) flushZones(ctx context.Context, zones []uint16) error {
	return flowsync.FlushZones(ctx, s.flows, zones)
}

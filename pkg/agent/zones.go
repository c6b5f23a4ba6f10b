package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
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
// Before the first Pod of a network is served, its zone is flushed, too. Pods from before a start of the agent keep
// their connections.
//
// On the userspace datapath zone N also has the SCTP associations with port N (package datapath). After a flush,
// policies judge the next packet of such an association again. If they allow it, the association goes on.
type zoneFlusher struct {
	switches zoneSwitch
	ready    func() bool                        // the networks are known
	inUse    func() map[uint16][]string         // the zones of this Node's Pods, with their networks in order
	zoneOf   func(virtualNetwork string) uint16 // 0 if the network is not separate
	log      *slog.Logger
	wake     chan struct{}

	// lock has a value while a goroutine compares or flushes, so that the others stop waiting when their contexts end. It
	// guards the three maps.
	lock   chan struct{}
	served map[uint16]string // zones without earlier connections, with their networks; nil before the first comparison
	left   map[uint16]bool   // to be flushed
	shared map[uint16]bool   // zones of several networks that were logged

	mu       sync.Mutex
	arriving map[uint16]int // the number of ADDs that are under way; it grows only under lock
}

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
		arriving: map[uint16]int{}, left: map[uint16]bool{}}
	f.zoneOf = func(text string) uint16 {
		namespace, name, _ := (cni.Attachment{VirtualNetwork: text}).VirtualKey()
		return s.tables.objects.networks.separate.zoneOf(derive.Object{Namespace: namespace, Name: name})
	}
	f.inUse = func() map[uint16][]string { return f.byZone(of().networks()) }
	s.tables.tenants.VirtualNetworks.Watch(func([]derive.Change[derive.Object, tenant.VirtualNetwork]) { f.changed() })
	return f
}

// byZone returns the separate ones of some networks, in their order. Usually a zone has one network. It has several
// networks if a write of a SubnetLease has overtaken the event of another one.
func (f *zoneFlusher) byZone(networks []string) map[uint16][]string {
	out := map[uint16][]string{}
	for _, network := range networks {
		if zone := f.zoneOf(network); zone != 0 {
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
	arriving := f.arrivals() // before the Pods: an ADD is in one of the two
	used := f.inUse()
	f.warn(used)
	for zone := range arriving {
		used[zone] = append(used[zone], f.served[zone])
	}
	for zone := range tracked {
		if len(used[zone]) == 0 {
			f.left[zone] = true
		}
	}
	for zone, network := range f.served {
		if !slices.Contains(used[zone], network) {
			delete(f.served, zone)
			f.left[zone] = true
		}
	}
	for zone := range used { // the zone was not known when the Pod arrived
		if f.served[zone] == "" {
			f.left[zone] = true
		}
	}
	if len(f.left) == 0 {
		return nil
	}
	if err := f.flush(ctx, slices.Sorted(maps.Keys(f.left))); err != nil {
		return err
	}
	for zone := range f.left {
		if networks := used[zone]; len(networks) > 0 {
			f.served[zone] = networks[0]
		}
	}
	clear(f.left)
	return nil
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

// arrivals returns the zones of ADDs that are under way.
func (f *zoneFlusher) arrivals() map[uint16]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.arriving)
}

// inherit takes over the zones of Pods that are there at the first comparison. The caller holds the lock.
func (f *zoneFlusher) inherit() {
	if f.served != nil {
		return
	}
	f.served = map[uint16]string{}
	for zone, networks := range f.inUse() {
		f.served[zone] = networks[0]
	}
}

// warn logs zones of several networks, once for each. The caller holds the lock.
func (f *zoneFlusher) warn(used map[uint16][]string) {
	shared := map[uint16]bool{}
	for zone, networks := range used {
		if len(networks) < 2 {
			continue
		}
		if shared[zone] = true; !f.shared[zone] {
			f.log.Warn("policies may judge connections of VirtualNetworks with one zone by each other's connections; delete "+
				"the Pods in all of them except the first one, then the others get zones of their own",
				"zone", zone, "networks", networks)
		}
	}
	f.shared = shared
}

// free refuses a network whose zone another network uses on this Node. The controller serves the first one by name. The
// caller holds the lock.
func (f *zoneFlusher) free(zone uint16, network string) error {
	arriving := f.arrivals()[zone] > 0 // before the Pods, as in pass
	others := f.inUse()[zone]
	if arriving {
		others = append(others, f.served[zone])
	}
	for _, other := range others {
		if other != network {
			return fmt.Errorf("VirtualNetworks %s and %s have the same zone of connection tracking, %d: delete the Pods in %s, "+
				"then it gets another zone", network, other, zone, max(network, other))
		}
	}
	return nil
}

// arrive flushes the zone of a network whose first Pod on this Node arrives. The caller calls done when the attachment
// is recorded, or has failed. A Pod whose attachment is rebuilt late counts as a first one.
func (f *zoneFlusher) arrive(ctx context.Context, at cni.Attachment) (done func(), err error) {
	if f == nil || at.VirtualNetwork == "" {
		return func() {}, nil
	}
	zone := f.zoneOf(at.VirtualNetwork)
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
	if err := f.free(zone, at.VirtualNetwork); err != nil {
		return nil, err
	}
	if f.served[zone] != at.VirtualNetwork {
		if err := f.flush(ctx, []uint16{zone}); err != nil {
			return nil, forget(err)
		}
		f.served[zone] = at.VirtualNetwork
		delete(f.left, zone)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arriving[zone]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.arriving[zone]--; f.arriving[zone] == 0 {
			delete(f.arriving, zone)
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

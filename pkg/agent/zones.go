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
	inUse    func() map[uint16]string           // the zones of this Node's Pods, with their networks
	zoneOf   func(virtualNetwork string) uint16 // 0 if the network is not separate
	log      *slog.Logger
	wake     chan struct{}

	mu       sync.Mutex
	served   map[uint16]string // zones without earlier connections, with their networks; nil before the first comparison
	arriving map[uint16]int    // the number of ADDs that are under way
	left     map[uint16]bool   // to be flushed
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
	f := &zoneFlusher{switches: s, ready: ready, log: log, wake: make(chan struct{}, 1), arriving: map[uint16]int{},
		left: map[uint16]bool{}}
	f.zoneOf = func(text string) uint16 {
		namespace, name, _ := (cni.Attachment{VirtualNetwork: text}).VirtualKey()
		return s.tables.objects.networks.separate.zoneOf(derive.Object{Namespace: namespace, Name: name})
	}
	f.inUse = func() map[uint16]string {
		out := map[uint16]string{}
		for _, network := range of().networks() {
			if zone := f.zoneOf(network); zone != 0 {
				out[zone] = network
			}
		}
		return out
	}
	s.tables.tenants.VirtualNetworks.Watch(func([]derive.Change[derive.Object, tenant.VirtualNetwork]) { f.changed() })
	return f
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
	f.mu.Lock()
	defer f.mu.Unlock()
	*seen = session
	f.inherit()
	used := f.inUse()
	for zone := range f.arriving {
		used[zone] = f.served[zone]
	}
	for zone := range tracked {
		if used[zone] == "" {
			f.left[zone] = true
		}
	}
	for zone, network := range f.served {
		if used[zone] != network {
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
		if network := used[zone]; network != "" {
			f.served[zone] = network
		}
	}
	clear(f.left)
	return nil
}

// any reports whether this Node has Pods in separate networks.
func (f *zoneFlusher) any() bool { return f != nil && len(f.inUse()) > 0 }

// inherit takes over the zones of Pods that are there at the first comparison. The caller holds f.mu.
func (f *zoneFlusher) inherit() {
	if f.served == nil {
		f.served = f.inUse()
	}
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
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inherit()
	if f.served[zone] != at.VirtualNetwork {
		if err := f.flush(ctx, []uint16{zone}); err != nil {
			return nil, fmt.Errorf("forget earlier connections in the zone of VirtualNetwork %s: %w", at.VirtualNetwork, err)
		}
		f.served[zone] = at.VirtualNetwork
		delete(f.left, zone)
	}
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

// flush flushes zones. The caller holds f.mu, so no Pod arrives meanwhile.
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

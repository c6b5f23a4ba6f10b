package agent

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// separateNetworks are the VirtualNetworks whose addresses other networks may have, too. Each has a zone of connection
// tracking. In one zone, an address belongs to one network. A network that was deleted keeps its zone while Pods are in
// it, and has no number. Any goroutine may call the methods. It is nil without feature gate TenantNetworks.
type separateNetworks struct {
	mu       sync.Mutex
	networks map[derive.Object]separateNetwork
	byZone   map[uint16][]derive.Object // in order
	byNumber map[tenant.ID]derive.Object
}

// separateNetwork is a VirtualNetwork with a zone.
type separateNetwork struct {
	zone   uint16
	number tenant.ID // 0 if it is closed
	ranges []netip.Prefix
}

// newSeparateNetworks returns the networks that have a zone, now and after later passes.
func newSeparateNetworks(networks *derive.Table[derive.Object, tenant.VirtualNetwork]) *separateNetworks {
	s := &separateNetworks{networks: map[derive.Object]separateNetwork{}, byZone: map[uint16][]derive.Object{},
		byNumber: map[tenant.ID]derive.Object{}}
	networks.Watch(func(list []derive.Change[derive.Object, tenant.VirtualNetwork]) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range list {
			delete(s.networks, c.Key)
			if n, ok := separateOf(c.New); ok {
				s.networks[c.Key] = n
			}
		}
		clear(s.byZone)
		clear(s.byNumber)
		for _, k := range slices.SortedFunc(maps.Keys(s.networks), derive.Object.Compare) {
			n := s.networks[k]
			s.byZone[n.zone] = append(s.byZone[n.zone], k)
			if n.number != 0 {
				s.byNumber[n.number] = k
			}
		}
	})
	return s
}

// separateOf returns the facts about a separate network; false for other networks.
func separateOf(v tenant.VirtualNetwork) (n separateNetwork, ok bool) {
	if v.Zone == 0 {
		return n, false
	}
	n.zone, n.ranges = v.Zone, v.Ranges
	if !v.Place.Closed() {
		n.number = v.Place.ID
	}
	return n, true
}

// zoneOf returns the zone of a separate network, and 0 for all other networks.
func (s *separateNetworks) zoneOf(network derive.Object) uint16 {
	if s == nil || network == (derive.Object{}) {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.networks[network].zone
}

// spaceOf returns the zone and the ranges of a separate network, and zero values for all other networks.
func (s *separateNetworks) spaceOf(network derive.Object) (zone uint16, ranges []netip.Prefix) {
	if s == nil {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.networks[network]
	return n.zone, n.ranges
}

// numbered returns the separate network with a number, or the zero value.
func (s *separateNetworks) numbered(id tenant.ID) derive.Object {
	if s == nil || id == 0 {
		return derive.Object{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byNumber[id]
}

// holder returns the separate network in a zone that has an address, or the zero value.
func (s *separateNetworks) holder(zone uint16, ip netip.Addr) derive.Object {
	if s == nil || zone == 0 {
		return derive.Object{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.byZone[zone] {
		if slices.ContainsFunc(s.networks[k].ranges, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return k
		}
	}
	return derive.Object{}
}

// knows reports whether the network of a client with connections in a zone has a number. Without the number the Pods
// would have the names of others with their addresses. Zone 0 stands for the main zone.
func (s *separateNetworks) knows(zone uint16, client netip.Addr) bool {
	if s == nil || zone == 0 {
		return zone == 0
	}
	network := s.holder(zone, client)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.networks[network].number != 0
}

// with returns the Pod of this Node that has an address in the zone of a packet's network, given the network's number.
// All networks that are not separate have zone 0.
func (s *separateNetworks) with(p *progress, ip netip.Addr, id tenant.ID) (datapath.Pod, bool) {
	zone := s.zoneOf(s.numbered(id))
	return p.podWith(ip, func(network derive.Object) bool { return s.zoneOf(network) == zone })
}

// all returns the separate networks.
func (s *separateNetworks) all() (out []derive.Object) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.networks {
		out = append(out, k)
	}
	return out
}

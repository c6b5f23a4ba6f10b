package agent

import (
	"net/netip"
	"sync"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// separateNetworks are the VirtualNetworks whose addresses other networks may have, too. Each has a zone of connection
// tracking. A network that was deleted keeps its zone while Pods are in it, and has no number. Any goroutine may call
// the methods. It is nil without feature gate TenantNetworks.
type separateNetworks struct {
	mu       sync.Mutex
	zones    map[derive.Object]uint16
	byZone   map[uint16]derive.Object // if several networks have a zone, the first one by name
	numbers  map[derive.Object]tenant.ID
	byNumber map[tenant.ID]derive.Object
}

// newSeparateNetworks returns the networks that have a zone, now and after later passes.
func newSeparateNetworks(networks *derive.Table[derive.Object, tenant.VirtualNetwork]) *separateNetworks {
	s := &separateNetworks{zones: map[derive.Object]uint16{}, byZone: map[uint16]derive.Object{},
		numbers: map[derive.Object]tenant.ID{}, byNumber: map[tenant.ID]derive.Object{}}
	networks.Watch(func(list []derive.Change[derive.Object, tenant.VirtualNetwork]) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range list {
			s.remove(c.Key, c.Old)
		}
		for _, c := range list {
			s.add(c.Key, c.New)
		}
		clear(s.byZone)
		for k, zone := range s.zones {
			if other, ok := s.byZone[zone]; !ok || k.Compare(other) < 0 {
				s.byZone[zone] = k
			}
		}
	})
	return s
}

func (s *separateNetworks) remove(k derive.Object, v tenant.VirtualNetwork) {
	delete(s.zones, k)
	delete(s.numbers, k)
	if s.byNumber[v.Place.ID] == k {
		delete(s.byNumber, v.Place.ID)
	}
}

func (s *separateNetworks) add(k derive.Object, v tenant.VirtualNetwork) {
	if v.Zone == 0 {
		return
	}
	s.zones[k] = v.Zone
	if !v.Place.Closed() {
		s.numbers[k], s.byNumber[v.Place.ID] = v.Place.ID, k
	}
}

// zoneOf returns the zone of a separate network, and 0 for all other networks.
func (s *separateNetworks) zoneOf(network derive.Object) uint16 {
	if s == nil || network == (derive.Object{}) {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.zones[network]
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

// inZone returns the separate network with a zone, or the zero value.
func (s *separateNetworks) inZone(zone uint16) derive.Object {
	if s == nil || zone == 0 {
		return derive.Object{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byZone[zone]
}

// knows reports whether the network of connections in a zone has a number. Without the number the Pods would have the
// names of others with their addresses. Zone 0 stands for the main zone.
func (s *separateNetworks) knows(zone uint16) bool {
	if s == nil || zone == 0 {
		return zone == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers[s.byZone[zone]] != 0
}

// with returns the Pod of this Node that has an address in the network of a packet, given the network's number. All
// networks that are not separate count as one.
func (s *separateNetworks) with(p *progress, ip netip.Addr, id tenant.ID) (datapath.Pod, bool) {
	separate := s.numbered(id)
	return p.podWith(ip, func(network derive.Object) bool {
		return network == separate || separate == derive.Object{} && s.zoneOf(network) == 0
	})
}

// all returns the separate networks.
func (s *separateNetworks) all() (out []derive.Object) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.zones {
		out = append(out, k)
	}
	return out
}

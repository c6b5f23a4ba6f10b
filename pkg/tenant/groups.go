package tenant

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// group is a network with all that routers join it with, and the networks that these are joined with, and so on.
type group struct {
	members []member // sorted
	// why a member has to stay among the networks with unique addresses, and the remedy, or "".
	why, remedy string
}

// member is a VirtualNetwork of a group.
type member struct {
	derive.Object
	zone   uint16 // of its leases
	pinned bool   // it has Pods
}

// groupOf returns the group of a VirtualNetwork. If a member has to stay, some others may be missing.
func (j *judge) groupOf(network derive.Object) *group {
	first := VirtualName(network)
	if g, ok := j.groups[first]; ok {
		return g
	}
	g, names := &group{}, []Name{first}
	j.groups[first] = g
	for at := 0; at < len(names); at++ {
		name := names[at]
		m := member{Object: derive.Object{Namespace: name.Namespace, Name: name.Name}}
		if name.Door == doorVirtual {
			m.zone, m.pinned = j.home(m.Object)
		}
		g.members = append(g.members, m)
		if g.why, g.remedy = j.stays(name, m); g.why != "" {
			break
		}
		for _, other := range j.tables.wanted(name, j.r) {
			switch known := j.groups[other]; {
			case known == nil:
				j.groups[other] = g
				names = append(names, other)
			case known != g: // its search has ended at a member that stays
				g.why, g.remedy = known.why, known.remedy
				return g
			}
		}
	}
	slices.SortFunc(g.members, func(a, b member) int { return a.Compare(b.Object) })
	return g
}

// stays returns why a member of a group stays among the networks with unique addresses, and the remedy, or "".
func (j *judge) stays(name Name, m member) (why, remedy string) {
	if name.Door != doorVirtual {
		return "routers join it with " + Place{Network: name}.words(), "remove it from these VirtualNetworkRouters, or " +
			anotherSubnet
	}
	object := "VirtualNetwork " + m.Object.String()
	n, _ := derive.Get(j.r, j.tables.Networks, name)
	switch {
	case m.zone != 0:
	case m.pinned:
		return podsWords(m.Object, 0), "delete these Pods, or " + anotherSubnet
	case len(n.Joins)+len(n.Clusters) > 0:
		return object + " is joined with other networks in the central cluster",
			"remove it from the VirtualNetworkRouters there, or " + anotherSubnet
	}
	return "", ""
}

// place gives zones to groups with a separate network, or with one that has to become separate.
func (j *judge) place() {
	seeds := slices.Collect(maps.Keys(j.homeless))
	space := map[uint16]string{}
	j.others, j.given = map[uint16]bool{}, map[string][]uint16{}
	for _, row := range derive.All(j.r, j.tables.virtual.zones) {
		if row.Value == 0 {
			continue
		}
		seeds = append(seeds, row.Key)
		if first, ok := space[row.Value]; ok && first != row.Key.Namespace {
			j.others[row.Value] = true
		}
		space[row.Value] = row.Key.Namespace
	}
	slices.SortFunc(seeds, derive.Object.Compare)
	placed := map[*group]bool{}
	for _, k := range seeds {
		if g := j.groupOf(k); !placed[g] && g.why == "" {
			j.placeGroup(g)
			placed[g] = true
		}
	}
}

// placeGroup moves members of a group to one zone. If a member that needs no zone has to stay, the other members in its
// zone stay, too: otherwise a move would end a join.
func (j *judge) placeGroup(g *group) {
	members := slices.Clone(g.members)
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(j.order(a), j.order(b)) })
	members, stay := j.distinct(members)
	if !slices.ContainsFunc(members, func(m member) bool { return m.zone != 0 || j.order(m) >= 0 }) {
		return
	}
	movers := slices.DeleteFunc(slices.Clone(members), func(m member) bool { return m.pinned || stay[m.Object] })
	zone, found := j.zoneFor(members, movers)
	left := map[uint16]bool{zone: true} // zones of members that stay
	for _, m := range members {
		_, meets := j.meetsIn(zone, m)
		if j.order(m) < 0 && (m.pinned || stay[m.Object] || meets) {
			left[m.zone] = true
		}
	}
	for _, m := range movers {
		switch other, meets := j.meetsIn(zone, m); {
		case !found:
			j.refuse(m.Object, fmt.Sprintf("all %d zones are taken", MaxZone), anotherSubnet)
		case j.order(m) < 0 && left[m.zone]:
		case meets:
			j.refuse(m.Object, fmt.Sprintf("VirtualNetwork %s is joined with networks in zone %d, where its range overlaps %s",
				m.Object, zone, other), "remove it from the VirtualNetworkRouters, or "+anotherSubnet)
		default:
			j.move(m, zone)
		}
	}
}

// move gives a zone to a network without Pods.
func (j *judge) move(m member, zone uint16) {
	j.out.Zones[m.Object] = zone
	j.given[m.Namespace] = append(j.given[m.Namespace], zone)
	for _, row := range j.of[m.Object] {
		j.add(zone, Reserved{row.Value.Range.CIDR, subnetWords(row.Key)})
	}
}

// order is the place of a member among these that need a zone, or -1 if it needs none.
func (j *judge) order(m member) int {
	if at, ok := j.homeless[m.Object]; ok {
		return at
	}
	return -1
}

// distinct leaves out the networks without a zone that have an address which an earlier member has, too: no zone has
// room for both. stay has the other members with such addresses.
func (j *judge) distinct(members []member) (out []member, stay map[derive.Object]bool) {
	var all Ranges
	stay = map[derive.Object]bool{}
	owners := map[string]derive.Object{}
	for _, m := range members {
		what := "VirtualNetwork " + m.String()
		owners[what] = m.Object
		other := ""
		for _, row := range j.of[m.Object] {
			if found, meets := all.MeetsOther(row.Value.Range.CIDR, what); meets {
				other = found
			}
		}
		if other != "" && j.order(m) >= 0 {
			j.refuse(m.Object, "routers join VirtualNetwork "+m.String()+", directly or over others, with "+other+
				", which has a range of it", "remove one of them from the VirtualNetworkRouters, or "+anotherSubnet)
			continue
		}
		if other != "" {
			stay[m.Object], stay[owners[other]] = true, true
		}
		for _, row := range j.of[m.Object] {
			all.Add(Reserved{row.Value.Range.CIDR, what})
		}
		out = append(out, m)
	}
	return out, stay
}

// refuse refuses the Subnets of a network that need another zone. Its other Subnets keep their zone if there is room.
func (j *judge) refuse(network derive.Object, why, remedy string) {
	if _, ok := j.homeless[network]; !ok {
		return
	}
	zone, _ := j.home(network)
	for _, row := range j.of[network] {
		own := Reserved{row.Value.Range.CIDR, subnetWords(row.Key)}
		other, meets := j.meets[row.Key]
		if !meets { // a later network may have taken the range meanwhile
			other, meets = j.spaces[zone].MeetsOther(own.CIDR, own.What)
		}
		if meets {
			j.overlap(row, other, ", since "+why, remedy)
			continue
		}
		j.add(zone, own)
	}
}

// zoneFor returns the zone of a group, for the members that may move there. If members have Pods, it is a zone of
// these. Otherwise it is a zone that a member has, or one of its Namespace alone, or a zone without networks.
func (j *judge) zoneFor(members, movers []member) (zone uint16, ok bool) {
	var pinned, zones []uint16
	for _, m := range members {
		switch {
		case m.zone == 0:
		case m.pinned:
			pinned = append(pinned, m.zone)
		default:
			zones = append(zones, m.zone)
		}
	}
	namespace := slices.MinFunc(members, func(a, b member) int { return a.Compare(b.Object) }).Namespace
	if len(pinned) > 0 {
		zones = pinned
	} else {
		for _, row := range derive.List(j.r, j.tables.virtual.separate, derive.Name(namespace)) {
			if !j.others[row.Value] { // a former partner must not fill the zone of others
				zones = append(zones, row.Value)
			}
		}
		zones = append(zones, j.given[namespace]...)
	}
	tried := map[uint16]bool{}
	for _, zone := range zones {
		if !tried[zone] && j.holds(zone, movers) {
			return zone, true
		}
		tried[zone] = true
	}
	if len(pinned) > 0 {
		return pinned[0], true
	}
	zone = firstZone(namespace)
	for range MaxZone {
		if _, used := j.spaces[zone]; !used {
			return zone, true
		}
		zone = zone%MaxZone + 1
	}
	return 0, false
}

// holds reports whether a zone has room for networks.
func (j *judge) holds(zone uint16, movers []member) bool {
	return !slices.ContainsFunc(movers, func(m member) bool {
		_, meets := j.meetsIn(zone, m)
		return meets
	})
}

// meetsIn returns what a member without Pods meets in a zone.
func (j *judge) meetsIn(zone uint16, m member) (string, bool) {
	for _, row := range j.of[m.Object] {
		if other, meets := j.spaces[zone].MeetsOther(row.Value.Range.CIDR, subnetWords(row.Key)); meets {
			return other, true
		}
	}
	return "", false
}

// firstZone returns the zone that the networks of a Namespace request. It seldom depends on other Namespaces.
func firstZone(namespace string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace))
	return uint16(h.Sum32()%MaxZone) + 1
}

// apartByZone reports networks that a router would join, and that are in different zones of connection tracking.
func (t *Tables) apartByZone(name Name, router Router, r *derive.Reader, ps *problem.List) {
	var others []Name // of imported routers
	for _, k := range router.Imports {
		if o, _ := derive.Get(r, t.routers, k); router.Kind.meets(o.Kind) && slices.Contains(o.Imports, name) {
			others = append(others, o.Networks...)
		}
	}
	report := func(field string, pairs []string) {
		if len(pairs) > 0 {
			ps.Add(router.Object, field, reasonSeparateNetwork, "it does not join "+problem.Few(pairs)+", since one of two "+
				"such networks may have addresses of others: create it again with a Subnet whose range no other Subnet overlaps, "+
				"or, if both are VirtualNetworks without common addresses, delete the Pods in one of the two")
		}
	}
	if router.Kind == Mesh {
		report("spec.virtualNetworkSelector", t.pairsApart(router.Networks, router.Networks, r))
	}
	report("spec.import", t.pairsApart(router.Networks, others, r))
}

// pairsApart returns the pairs of two lists of networks that have different zones.
func (t *Tables) pairsApart(own, others []Name, r *derive.Reader) (out []string) {
	zones, differ := map[Name]uint16{}, false
	known := func(list []Name) (out []Name) {
		for _, name := range list {
			k := derive.Object{Namespace: name.Namespace, Name: name.Name}
			if t.virtual != nil && name.Door == doorVirtual && len(t.virtual.leasesOf(k, r)) == 0 {
				continue // it has no addresses yet
			}
			zones[name] = t.zoneOf(name, r)
			differ = differ || zones[name] != 0
			out = append(out, name)
		}
		return out
	}
	if own, others = known(own), known(others); !differ {
		return nil
	}
	for _, a := range own {
		for _, b := range others {
			if zones[a] == zones[b] {
				continue
			}
			first, second := a, b
			if a.Compare(b) > 0 {
				first, second = b, a
			}
			out = append(out, fmt.Sprintf("%s (zone %d) with %s (zone %d)", Place{Network: first}.words(), zones[first],
				Place{Network: second}.words(), zones[second]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

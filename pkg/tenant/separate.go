package tenant

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Addresses of most networks are unique in the cluster, and share one zone of connection tracking. A VirtualNetwork
// whose Subnet overlaps an earlier one is a separate network: it has another zone. Networks share a zone only if they
// have no common address. Only networks of one zone are joined. The leases of a network have its zone, so it stays
// separate until its last Pod is gone.
//
// Networks that routers join need one zone. So they are a group, which is placed as a whole (groups.go).

// separateWords explains why a network with a zone does not have something.
func separateWords(zone uint16) string {
	return fmt.Sprintf("its addresses may also exist in other networks (its SubnetLease has zone %d)", zone)
}

// conflicts are the decisions about Subnets whose ranges meet others.
type conflicts struct {
	// Refused are the Subnets that give no addresses.
	Refused map[derive.Object]refusal
	// Zones are new zones of VirtualNetworks without Pods. Their leases have no zone or another one.
	Zones map[derive.Object]uint16
}

// refusal is why a Subnet gives no addresses.
type refusal struct {
	reason reasons.Reason
	words  string // after its range
}

type subnetRow = derive.Row[derive.Object, SubnetFacts]

// judge makes the decisions about Subnets.
type judge struct {
	*subnetTables
	r       *derive.Reader
	out     conflicts
	allowed []netip.Prefix
	// there are the UIDs of Subnets.
	there map[types.UID]bool
	// reserved are ranges that no Subnet may meet.
	reserved Ranges
	// spaces are the ranges of the networks in each zone.
	spaces map[uint16]Ranges
	// of has the Subnets of VirtualNetworks that give addresses, or would in another zone.
	of map[derive.Object][]subnetRow
	// meets has the owners of ranges that a Subnet meets in the zone of its network. The network needs another zone.
	meets map[derive.Object]string
	// homeless are the networks with such Subnets, with their places in the order of their claims.
	homeless map[derive.Object]int
	groups   map[Name]*group
	// others are zones with networks of several Namespaces.
	others map[uint16]bool
	// given are the zones that networks of a Namespace move to.
	given map[string][]uint16
}

// claimant is a VirtualNetwork with Subnets that have no leases.
type claimant struct {
	network derive.Object
	subnets []subnetRow
}

// conflictsOf decides which Subnets give addresses, and which VirtualNetworks become separate. It refuses Subnets that
// overlap reserved ranges, or that are not in an allowed one. If two Subnets overlap, one with a lease has precedence,
// since Pods may have its addresses; otherwise the older one has. A lease whose Subnet was deleted has precedence, too,
// until the last Pod with such an address is gone. The VirtualNetwork of the other Subnet becomes separate, unless both
// are of one network. Subnets without a network and a lease take no range from others.
func (t *subnetTables) conflictsOf(_ derive.Name, r *derive.Reader) (conflicts, []problem.Problem) {
	j := &judge{subnetTables: t, r: r, allowed: t.allowed(r), there: map[types.UID]bool{}, spaces: map[uint16]Ranges{},
		of: map[derive.Object][]subnetRow{}, meets: map[derive.Object]string{}, groups: map[Name]*group{},
		homeless: map[derive.Object]int{}, out: conflicts{map[derive.Object]refusal{}, map[derive.Object]uint16{}}}
	var reserved []Reserved
	for _, table := range t.Reserved {
		for _, row := range derive.All(r, table) {
			reserved = append(reserved, row.Value...)
		}
	}
	j.reserved = NewRanges(reserved)
	rows := slices.DeleteFunc(slices.Clone(derive.All(r, t.Subnets)), func(s subnetRow) bool {
		return t.inCopy(s.Key.Namespace, r)
	})
	for _, row := range rows {
		j.there[row.Value.UID] = true
	}
	leases := map[types.UID]LeaseFacts{}
	for _, row := range derive.All(r, t.Leases) {
		uid, l := types.UID(row.Key.Name), row.Value
		leases[uid] = l
		if !j.there[uid] {
			j.add(l.Zone, Reserved{l.Range.CIDR, deletedWords(l)})
		}
	}
	slices.SortStableFunc(rows, func(a, b subnetRow) int {
		return cmp.Or(cmp.Compare(a.Value.Created, b.Value.Created), cmp.Compare(a.Value.UID, b.Value.UID))
	})
	var fresh []subnetRow
	for _, row := range rows {
		if l, ok := leases[row.Value.UID]; ok {
			j.leased(row, l)
		} else {
			fresh = append(fresh, row)
		}
	}
	for _, c := range j.claimants(fresh) {
		j.claim(c)
	}
	j.place()
	return j.out, nil
}

func deletedWords(l LeaseFacts) string {
	return "Pods of VirtualNetwork " + l.Network.String() + ", whose Subnet was deleted"
}

func subnetWords(k derive.Object) string { return "Subnet " + k.String() }

// add adds a range to a zone.
func (j *judge) add(zone uint16, one Reserved) {
	g := j.spaces[zone]
	g.Add(one)
	j.spaces[zone] = g
}

// refuses refuses a Subnet that meets a reserved range, or that is in no allowed one.
func (j *judge) refuses(row subnetRow) bool {
	own := row.Value.Range
	if other, ok := j.reserved.Meets(own.CIDR); ok {
		j.overlap(row, other, "", anotherSubnet)
		return true
	}
	if slices.ContainsFunc(j.allowed, own.within) {
		return false
	}
	j.out.Refused[row.Key] = refusal{reasonNotAllowed, " is in no range that Subnets may be in (" +
		rangesText(j.allowed, own.CIDR) + "), so no Pod gets an address of it: create another Subnet in one of " +
		"them, or have an operator add the range to tenantNetworks.subnetCIDRs in antrea-agent.conf"}
	return true
}

const anotherSubnet = "create another Subnet with a range of its own"

// overlap refuses a Subnet that overlaps another range. cause is why its network does not become separate.
func (j *judge) overlap(row subnetRow, other, cause, remedy string) {
	j.out.Refused[row.Key] = refusal{reasonOverlap,
		" overlaps " + other + ", so no Pod gets an address of it" + cause + ": " + remedy}
}

// leased decides about a Subnet with a lease, which has the zone of the network. Leases in one zone overlap if a write
// has overtaken the event of another one.
func (j *judge) leased(row subnetRow, l LeaseFacts) {
	own := row.Value.Range.CIDR
	if !own.IsValid() {
		return
	}
	switch other, meets := j.spaces[l.Zone].Meets(own); {
	case j.refuses(row):
	case !meets:
		j.of[l.Network] = append(j.of[l.Network], row)
	case l.Zone == 0:
		j.overlap(row, other, "", anotherSubnet)
	default:
		j.overlap(row, fmt.Sprintf("%s (both have zone %d)", other, l.Zone), "",
			"delete the Pods in its VirtualNetwork, and it gets another zone")
	}
	j.add(l.Zone, Reserved{own, subnetWords(row.Key)})
}

// claimants groups Subnets by their VirtualNetworks. Each VirtualNetwork is at the place of its first Subnet. It leaves
// out Subnets without a network that counts: they give no addresses, so their ranges are free.
func (j *judge) claimants(rows []subnetRow) (out []claimant) {
	at := map[derive.Object]int{}
	for _, row := range rows {
		if !row.Value.Range.CIDR.IsValid() || j.refuses(row) {
			continue
		}
		network, _ := j.networkOf(row.Key, row.Value, j.r)
		if _, counts := derive.Get(j.r, j.tables.Networks, VirtualName(network)); !counts {
			continue
		}
		i, known := at[network]
		if !known {
			i = len(out)
			at[network] = i
			out = append(out, claimant{network: network})
		}
		out[i].subnets = append(out[i].subnets, row)
	}
	return out
}

// claim decides about the Subnets of a VirtualNetwork that have no leases. Pods do not have addresses of them. A range
// of an earlier Subnet of the network does not make it separate.
func (j *judge) claim(c claimant) {
	zone, pinned := j.home(c.network)
	needs := false
	for _, row := range c.subnets {
		if j.meetsOwn(c.network, row) {
			continue
		}
		other, meets := j.spaces[zone].Meets(row.Value.Range.CIDR)
		if meets && pinned {
			j.overlap(row, other, ", since "+podsWords(c.network, zone), anotherSubnet)
			continue
		}
		if j.of[c.network] = append(j.of[c.network], row); meets {
			j.meets[row.Key], needs = other, true
		}
	}
	if needs { // its other Subnets move with it, or stay if it is refused
		j.homeless[c.network] = len(j.homeless)
		if g := j.groupOf(c.network); g.why != "" {
			j.refuse(c.network, g.why, g.remedy)
		}
		return
	}
	for _, row := range c.subnets {
		if _, refused := j.out.Refused[row.Key]; !refused {
			j.add(zone, Reserved{row.Value.Range.CIDR, subnetWords(row.Key)})
		}
	}
}

// podsWords explains why a network with Pods stays in its zone.
func podsWords(network derive.Object, zone uint16) string {
	if zone == 0 {
		return "Pods of VirtualNetwork " + network.String() + " may have addresses that are unique in the cluster"
	}
	return fmt.Sprintf("Pods of VirtualNetwork %s have connections in zone %d", network, zone)
}

// meetsOwn refuses a Subnet that overlaps a lease of an earlier Subnet of its network. Two Pods of one network have no
// common address.
func (j *judge) meetsOwn(network derive.Object, row subnetRow) bool {
	for _, lease := range derive.List(j.r, j.tables.virtual.leased, network) {
		l := lease.Value
		if !l.Range.CIDR.Overlaps(row.Value.Range.CIDR) {
			continue
		}
		other := deletedWords(l)
		if j.there[types.UID(lease.Key.Name)] {
			other = "Subnet " + l.Subnet.String() + ", which VirtualNetwork " + network.String() + " had before"
		}
		j.overlap(row, other, " while Pods have addresses of the earlier Subnet",
			"delete these Pods, or "+anotherSubnet)
		return true
	}
	return false
}

// home returns the zone of a network's leases. It is pinned there if it may have Pods, and connections in the zone.
func (j *judge) home(network derive.Object) (zone uint16, pinned bool) {
	return zoneOfLeases(j.tables.virtual.leasesOf(network, j.r))
}

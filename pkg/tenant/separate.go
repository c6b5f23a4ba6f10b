package tenant

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Addresses of most networks are unique in the cluster, and share one zone of connection tracking. A VirtualNetwork
// whose Subnet overlaps an earlier one is a separate network: it has a zone that no other network has. It is joined
// with no network, since the other networks may have its addresses, too. The leases of a network have its zone, so it
// stays separate until its last Pod is gone.

// separateWords explains why a network with a zone is not joined.
func separateWords(zone uint16) string {
	return fmt.Sprintf("its addresses may also exist in other networks (its SubnetLease has zone %d)", zone)
}

// conflicts are the decisions about Subnets whose ranges meet others.
type conflicts struct {
	// Refused are the Subnets that give no addresses.
	Refused map[derive.Object]refusal
	// Zones are the zones of VirtualNetworks that become separate. They have no leases yet.
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
	// taken are ranges of networks that are not separate.
	taken Ranges
	// owners are networks by zone.
	owners map[uint16]derive.Object
	// separate are the networks that become separate.
	separate []claimant
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
// are of one network. Separate networks, and Subnets without a network and a lease, take no range from others.
func (t *subnetTables) conflictsOf(_ derive.Name, r *derive.Reader) (conflicts, []problem.Problem) {
	j := &judge{subnetTables: t, r: r, allowed: t.allowed(r), there: map[types.UID]bool{},
		owners: map[uint16]derive.Object{}, out: conflicts{map[derive.Object]refusal{}, map[derive.Object]uint16{}}}
	var reserved, gone []Reserved
	for _, table := range t.Reserved {
		for _, row := range derive.All(r, table) {
			reserved = append(reserved, row.Value...)
		}
	}
	j.reserved = NewRanges(reserved)
	rows := slices.DeleteFunc(slices.Clone(derive.All(r, t.Subnets)), func(s subnetRow) bool {
		return t.inCopy(s.Key.Namespace, r)
	})
	leases := map[types.UID]LeaseFacts{}
	for _, row := range rows {
		j.there[row.Value.UID] = true
	}
	for _, row := range derive.All(r, t.Leases) {
		uid, l := types.UID(row.Key.Name), row.Value
		leases[uid] = l
		if l.Zone != 0 {
			if owner, ok := j.owners[l.Zone]; !ok || l.Network.Compare(owner) < 0 {
				j.owners[l.Zone] = l.Network
			}
		} else if !j.there[uid] {
			gone = append(gone, Reserved{l.Range.CIDR, deletedWords(l)})
		}
	}
	j.taken = NewRanges(gone)
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
	j.assign()
	return j.out, nil
}

func deletedWords(l LeaseFacts) string {
	return "Pods of VirtualNetwork " + l.Network.String() + ", whose Subnet was deleted"
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

// leased decides about a Subnet with a lease, which has the zone of the network. If the leases of two networks have one
// zone, only one of the two networks is served. Such leases exist if a write has overtaken the event of another one.
func (j *judge) leased(row subnetRow, l LeaseFacts) {
	if !row.Value.Range.CIDR.IsValid() {
		return
	}
	owner := j.owners[l.Zone]
	switch refused := j.refuses(row); {
	case refused:
	case l.Zone == 0:
		if other, ok := j.taken.Meets(row.Value.Range.CIDR); ok {
			j.overlap(row, other, "", anotherSubnet)
		}
	case owner != l.Network:
		j.sameZone(row, l.Zone, owner)
	}
	if l.Zone == 0 {
		j.taken.Add(Reserved{row.Value.Range.CIDR, "Subnet " + row.Key.String()})
	}
}

// sameZone refuses a Subnet of a network whose zone another network has.
func (j *judge) sameZone(row subnetRow, zone uint16, owner derive.Object) {
	j.out.Refused[row.Key] = refusal{reasonOverlap, fmt.Sprintf(" has zone %d in its lease, which VirtualNetwork %s has, "+
		"too, so no Pod gets an address of it: delete the Pods in its VirtualNetwork, and it gets another zone", zone, owner)}
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
	zone := j.tables.virtual.zoneOf(c.network, j.r)
	if owner := j.owners[zone]; zone != 0 && owner != c.network {
		for _, row := range c.subnets {
			j.sameZone(row, zone, owner)
		}
		return
	}
	c.subnets = slices.DeleteFunc(c.subnets, func(row subnetRow) bool { return j.meetsOwn(c.network, row) })
	if zone != 0 {
		return
	}
	var meets []subnetRow
	others := map[derive.Object]string{}
	for _, row := range c.subnets {
		if other, ok := j.taken.Meets(row.Value.Range.CIDR); ok {
			meets = append(meets, row)
			others[row.Key] = other
		}
	}
	if len(meets) > 0 {
		cause, remedy := j.shares(c.network)
		if cause == "" {
			j.separate = append(j.separate, c)
			return
		}
		for _, row := range meets {
			j.overlap(row, others[row.Key], cause, remedy)
		}
	}
	for _, row := range c.subnets {
		if _, ok := others[row.Key]; !ok {
			j.taken.Add(Reserved{row.Value.Range.CIDR, "Subnet " + row.Key.String()})
		}
	}
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

// shares returns the cause why a VirtualNetwork cannot become separate, and the remedy. The cause is empty if it can. A
// lease without blocks is no cause, since no Pod has an address of it: it is replaced by one with the zone.
func (j *judge) shares(network derive.Object) (cause, remedy string) {
	name := VirtualName(network)
	object := "VirtualNetwork " + network.String()
	n, _ := derive.Get(j.r, j.tables.Networks, name)
	f, _ := derive.Get(j.r, j.Networks, network)
	joined, _ := derive.Get(j.r, j.tables.Joined, name)
	leases := j.tables.virtual.leasesOf(network, j.r)
	switch {
	case slices.ContainsFunc(leases, func(l LeaseFacts) bool { return l.Zone == 0 && len(l.Nodes) > 0 }):
		return ", since Pods of " + object + " may have addresses that are unique in the cluster", anotherSubnet
	case len(joined)+len(n.Joins)+len(n.Clusters) > 0:
		return ", since " + object + " is joined with other networks", "remove it from the VirtualNetworkRouters, or " +
			anotherSubnet
	case f.Own:
		return ", since " + object + " has spec.podNetwork", "set spec.podNetwork to false, or " + anotherSubnet
	}
	return "", ""
}

// assign gives zones to the networks that become separate. A network starts with a hash of its name, so it seldom
// depends on other networks. Zones in leases stay.
func (j *judge) assign() {
	slices.SortFunc(j.separate, func(a, b claimant) int { return a.network.Compare(b.network) })
	for _, c := range j.separate {
		zone := firstZone(c.network)
		for range MaxZone {
			if _, used := j.owners[zone]; !used {
				break
			}
			zone = zone%MaxZone + 1
		}
		if _, used := j.owners[zone]; !used {
			j.owners[zone], j.out.Zones[c.network] = c.network, zone
			continue
		}
		for _, row := range c.subnets {
			j.out.Refused[row.Key] = refusal{reasonOverlap, fmt.Sprintf(" is in a network whose ranges overlap others, and all "+
				"%d zones are taken, so no Pod gets an address of it: %s", MaxZone, anotherSubnet)}
		}
	}
}

// firstZone returns the zone that a network requests.
func firstZone(network derive.Object) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(network.String()))
	return uint16(h.Sum32()%MaxZone) + 1
}

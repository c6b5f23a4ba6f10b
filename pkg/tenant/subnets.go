package tenant

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Range is a range of addresses of a VirtualNetwork.
type Range struct {
	CIDR    netip.Prefix
	Gateway netip.Addr
}

// Usable reports whether a Pod may have an address of the range. It may not have the gateway's address, the range's own
// address, or IPv4's broadcast address.
func (g Range) Usable(ip netip.Addr) bool {
	return g.CIDR.Contains(ip) && ip != g.Gateway && ip != g.CIDR.Addr() && (!ip.Is4() || ip != lastOf(g.CIDR))
}

// within reports whether the range is part of another one.
func (g Range) within(p netip.Prefix) bool {
	return p.Contains(g.CIDR.Addr()) && p.Bits() <= g.CIDR.Bits()
}

// SubnetFacts is the part of a Subnet that networks depend on.
type SubnetFacts struct {
	UID     types.UID
	Created int64
	Range   Range // not valid if the object has a wrong address
	// Pools are the parts of the range from which Pods get addresses, sorted. They do not overlap.
	Pools []netip.Prefix
	// Problems are about its own fields.
	Problems []problem.Problem
}

// SubnetFactsOf returns the facts about a Subnet.
func SubnetFactsOf(s *contrailv4.Subnet) SubnetFacts {
	f := SubnetFacts{UID: s.UID, Created: s.CreationTimestamp.Unix()}
	ps, object := problem.List{}, problem.About("Subnet", s.Namespace, s.Name)
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"dnsNameservers", len(s.Spec.DNSNameservers) > 0}, {"bgpaasPrimaryIP", s.Spec.BGPaaSPrimaryIP != ""},
		{"bgpaasSecondaryIP", s.Spec.BGPaaSSecondaryIP != ""},
		{"disableBGPaaSIPAutoAllocation", s.Spec.DisableBGPaaSIPAutoAllocation}, {"enableDHCP", s.Spec.EnableDHCP},
		{"fqName", len(s.Spec.FQName) > 0}, {"ranges.key", slices.ContainsFunc(s.Spec.Ranges,
			func(r contrailv4.SubnetRange) bool { return r.Key != "" })},
	} {
		if field.set {
			ps.Add(object, "spec."+field.name, reasonNotServed, notServed)
		}
	}
	f.Range, f.Pools = rangeOf(s.Spec, object, &ps)
	f.Problems = ps
	return f
}

// maxParts is the largest number of prefixes into which the pools of a Subnet are split. With more, Subnets could
// exhaust the memory of the controller: one range of IPv6 addresses may need 200 prefixes.
const maxParts = 2000

// special are ranges with addresses that no Pod may have. A larger range that contains one of them is refused as well.
// Hosts and agents use link-local addresses, for example for a DNS cache.
var special = prefixesOf("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
	"::/8", "fe80::/10", "ff00::/8")

func prefixesOf(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// rangeOf returns the range of a Subnet and its pools. If an address is not valid, it returns no range.
func rangeOf(s contrailv4.SubnetSpec, object problem.Object, ps *problem.List) (Range, []netip.Prefix) {
	invalid := func(field, message string) (Range, []netip.Prefix) {
		ps.Add(object, "spec."+field, reasonInvalid, message)
		return Range{}, nil
	}
	cidr, err := netip.ParsePrefix(s.CIDR)
	at := slices.IndexFunc(special, cidr.Overlaps)
	switch {
	case err != nil || cidr.Addr().Is4In6():
		return invalid("cidr", problem.Quoted(s.CIDR)+" is not a range of addresses: create another Subnet with one, as in "+
			"10.0.1.0/24")
	case cidr != cidr.Masked():
		return invalid("cidr", fmt.Sprintf("%s is an address in a range: create another Subnet with the range %s", cidr,
			cidr.Masked()))
	case at >= 0:
		return invalid("cidr", fmt.Sprintf("%s has addresses of %s, which no Pod may have: create another Subnet", cidr,
			special[at]))
	case cidr.Bits() < 8 || cidr.Addr().BitLen()-cidr.Bits() < 2:
		return invalid("cidr", fmt.Sprintf("%s has too many addresses or too few: create another Subnet with a length from "+
			"8 to %d", cidr, cidr.Addr().BitLen()-2))
	}
	out := Range{CIDR: cidr, Gateway: cidr.Addr().Next()}
	if s.DefaultGateway != "" {
		gateway, err := netip.ParseAddr(s.DefaultGateway)
		if out.Gateway = netip.IPv6Unspecified(); err != nil || !out.Usable(gateway) {
			return invalid("defaultGateway", fmt.Sprintf("%s is not an address of a host in %s: create another Subnet with "+
				"one, or without it", problem.Quoted(s.DefaultGateway), cidr))
		}
		out.Gateway = gateway
	}
	if len(s.Ranges) == 0 {
		return out, []netip.Prefix{cidr}
	}
	var pools []netip.Prefix
	for i, group := range s.Ranges {
		for j, r := range group.IPRanges {
			from, err := netip.ParseAddr(r.From)
			to, err2 := netip.ParseAddr(r.To)
			if err != nil || err2 != nil || !cidr.Contains(from) || !cidr.Contains(to) || to.Less(from) {
				ps.Add(object, fmt.Sprintf("spec.ranges[%d].ipRanges[%d]", i, j), reasonInvalid,
					fmt.Sprintf("from %s to %s is not "+
						"a range in %s, and is left out: correct it", problem.Quoted(r.From), problem.Quoted(r.To), cidr))
				continue
			}
			parts := between(from, to)
			if len(pools)+len(parts) > maxParts {
				ps.Add(object, fmt.Sprintf("spec.ranges[%d].ipRanges[%d]", i, j), reasonInvalid,
					fmt.Sprintf("the ranges are more than %d prefixes together, so this one is left out: write fewer ranges, or "+
						"ranges that are prefixes", maxParts))
				continue
			}
			pools = append(pools, parts...)
		}
	}
	return out, disjoint(pools)
}

// between returns the shortest list of prefixes that contain exactly the addresses from one address to another.
func between(from, to netip.Addr) (out []netip.Prefix) {
	for {
		bits := from.BitLen()
		for bits > 0 {
			larger := netip.PrefixFrom(from, bits-1)
			if larger.Masked().Addr() != from || to.Less(lastOf(larger)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(from, bits)
		out = append(out, p)
		if from = lastOf(p).Next(); !from.IsValid() || to.Less(from) {
			return out
		}
	}
}

// disjoint sorts prefixes, and leaves out these that are part of another one.
func disjoint(list []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range list {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// lastOf returns the last address of a range.
func lastOf(p netip.Prefix) netip.Addr {
	last := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	ip, _ := netip.AddrFromSlice(last)
	return ip
}

// Reserved is a range that no Subnet may meet.
type Reserved struct {
	CIDR netip.Prefix
	What string // as in "the Pods of Node node-1"
}

// Allowed are the ranges that Subnets may be in, as operators configure them.
type Allowed struct {
	Given bool
	CIDRs []netip.Prefix
}

// private are the ranges in which Subnets may be if operators configure none. So tenants cannot use public addresses.
var private = prefixesOf("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")

// subnetTables decide which Subnets give addresses.
type subnetTables struct {
	Objects
	tables      *Tables
	byReference *derive.Index[derive.Object, derive.Object, VirtualNetworkFacts] // VirtualNetworks by Subnet
	conflicts   *derive.Table[derive.Name, conflicts]
}

// all is the key of a table with one row.
const all derive.Name = "all"

// Subnet is a Subnet that gives addresses to the Pods of a VirtualNetwork.
type Subnet struct {
	// Served is set if it gives addresses.
	Served  bool
	Network derive.Object // its VirtualNetwork, also if it is not served
	Range   Range
	Pools   []netip.Prefix
	// Zone is the zone of connection tracking of a separate network, or 0. A new lease gets it. A lease without blocks is
	// replaced if it has another zone.
	Zone uint16
	// Problems are about the Subnet.
	Problems []problem.Problem
}

// subnets adds the table of Subnets, if there are any objects.
func (t *Tables) subnets(e *derive.Engine, o Objects) {
	if o.Subnets == nil {
		return
	}
	s := &subnetTables{Objects: o, tables: t}
	s.byReference = derive.NewIndex(o.Networks, "subnet",
		func(k derive.Object, f VirtualNetworkFacts) (out []derive.Object) {
			for _, name := range f.Subnets {
				if name != "" {
					out = append(out, derive.Object{Namespace: k.Namespace, Name: name})
				}
			}
			return out
		})
	one := derive.NewSource[derive.Name, bool](e, "subnets-together")
	one.Set(all, true)
	one.Loaded()
	s.conflicts = derive.NewTable(e, "subnet-conflicts", s.conflictsOf, derive.KeysOf(one))
	t.Subnets = derive.NewTable(e, "subnets-of-networks", s.subnet, derive.KeysOf(o.Subnets))
}

// allowed returns the ranges that Subnets may be in. Each configuration with ranges counts.
func (t *subnetTables) allowed(r *derive.Reader) []netip.Prefix {
	var out []netip.Prefix
	given := false
	for _, row := range derive.All(r, t.Allowed) {
		given = given || row.Value.Given
		out = append(out, row.Value.CIDRs...)
	}
	if !given {
		return private
	}
	return out
}

// rangesText returns the ranges of the version of IP of another one, for a message.
func rangesText(list []netip.Prefix, of netip.Prefix) string {
	var out []string
	for _, p := range list {
		if versionOf(p) == versionOf(of) {
			out = append(out, p.String())
		}
	}
	return cmp.Or(problem.Few(out), "none of its version of IP")
}

// Ranges is a list of ranges in the order of their addresses. No two overlap: the larger of two overlapping ranges
// stays.
type Ranges []Reserved

// NewRanges returns these ranges. Of equal ones the first one stays.
func NewRanges(list []Reserved) (out Ranges) {
	slices.SortStableFunc(list, func(a, b Reserved) int { return a.CIDR.Compare(b.CIDR) })
	for _, one := range list {
		if n := len(out); n == 0 || !out[n-1].CIDR.Overlaps(one.CIDR) {
			out = append(out, one)
		}
	}
	return out
}

// around returns which of the ranges overlap another one.
func (g Ranges) around(p netip.Prefix) (from, to int) {
	from, _ = slices.BinarySearchFunc(g, p, func(a Reserved, b netip.Prefix) int {
		return a.CIDR.Addr().Compare(b.Addr())
	})
	if from > 0 && g[from-1].CIDR.Overlaps(p) {
		from--
	}
	for to = from; to < len(g) && g[to].CIDR.Overlaps(p); to++ {
	}
	return from, to
}

// Add adds a range, unless it is part of one of the others.
func (g *Ranges) Add(one Reserved) {
	from, to := g.around(one.CIDR)
	if from == to || one.CIDR.Bits() < (*g)[from].CIDR.Bits() {
		*g = slices.Replace(*g, from, to, one)
	}
}

// Meets returns what has a range that overlaps this one.
func (g Ranges) Meets(p netip.Prefix) (string, bool) { return g.MeetsOther(p, "") }

// MeetsOther is Meets without the ranges of one owner.
func (g Ranges) MeetsOther(p netip.Prefix, owner string) (string, bool) {
	from, to := g.around(p)
	for _, one := range g[from:to] {
		if one.What != owner {
			return one.What, true
		}
	}
	return "", false
}

// subnet returns a Subnet with its VirtualNetwork. A Subnet in the copy of a Namespace is served in another cluster.
func (t *subnetTables) subnet(k derive.Object, r *derive.Reader) (Subnet, []problem.Problem) {
	if t.inCopy(k.Namespace, r) {
		return Subnet{}, nil
	}
	f, _ := derive.Get(r, t.Subnets, k)
	object := problem.About("Subnet", k.Namespace, k.Name)
	out, ps := Subnet{Range: f.Range, Pools: f.Pools}, problem.List(slices.Clone(f.Problems))
	out.Served = f.Range.CIDR.IsValid()
	found, _ := derive.Get(r, t.conflicts, all)
	if refused, ok := found.Refused[k]; ok {
		out.Served = false
		ps.Add(object, "spec.cidr", refused.reason, f.Range.CIDR.String()+refused.words)
	}
	if network, ok := t.networkOf(k, f, r); ok {
		out.Network = network
		out.Zone = cmp.Or(found.Zones[network], t.tables.virtual.zoneOf(network, r))
	}
	out.Problems = ps
	return out, ps
}

// networkOf returns the VirtualNetwork of a Subnet: the oldest one that names it.
func (t *subnetTables) networkOf(k derive.Object, f SubnetFacts, r *derive.Reader) (derive.Object, bool) {
	var networks []derive.Row[derive.Object, VirtualNetworkFacts]
	for _, row := range derive.List(r, t.byReference, k) {
		if version := versionOf(f.Range.CIDR); row.Value.Subnets[version] == k.Name {
			networks = append(networks, row)
		}
	}
	if len(networks) == 0 {
		return derive.Object{}, false
	}
	return slices.MinFunc(networks, func(a, b derive.Row[derive.Object, VirtualNetworkFacts]) int {
		return cmp.Or(cmp.Compare(a.Value.Created, b.Value.Created), cmp.Compare(a.Value.UID, b.Value.UID))
	}).Key, true
}

// versionOf returns the index of a version of IP in VirtualNetworkFacts.Subnets.
func versionOf(p netip.Prefix) int {
	if p.Addr().Is6() {
		return 1
	}
	return 0
}

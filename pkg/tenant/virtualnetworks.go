package tenant

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// doorVirtual is the front door of VirtualNetworks with Subnets, which are networks of further interfaces of Pods. No
// Namespace is in such a network.
const doorVirtual = "vn"

// MaxNetworks is the largest number of VirtualNetworks of a Namespace that are used. It is bounded because a router may
// join all of them with each other.
const MaxNetworks = 20

// VirtualNetworkFacts is the part of a VirtualNetwork that networks depend on.
type VirtualNetworkFacts struct {
	UID     types.UID
	Created int64
	Labels  labels.Set
	// Subnets are the names of the network's Subnets for IPv4 and IPv6, in its own Namespace. If there is one, the
	// VirtualNetwork is a network of further interfaces.
	Subnets [2]string
	// Own is set if it may be the network of first interfaces (spec.podNetwork). Outside is set if Pods with such an
	// interface reach destinations outside (spec.fabricSNAT).
	Own, Outside bool
	// Problems are about its own fields.
	Problems []problem.Problem
}

// serves reports whether Pods may have further interfaces in the network.
func (f VirtualNetworkFacts) serves() bool { return f.Subnets != [2]string{} }

// VirtualNetworkFactsOf returns the facts about a VirtualNetwork.
func VirtualNetworkFactsOf(n *contrailv4.VirtualNetwork) VirtualNetworkFacts {
	f := VirtualNetworkFacts{UID: n.UID, Created: n.CreationTimestamp.Unix(), Labels: n.Labels}
	ps, object := problem.List{}, problem.About("VirtualNetwork", n.Namespace, n.Name)
	s := n.Spec
	own := n.Name == contrailv4.DefaultPodNetwork
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"v4SubnetReference", own && s.V4SubnetReference != nil}, {"v6SubnetReference", own && s.V6SubnetReference != nil},
		{"fabricForwarding", s.FabricForwarding}, {"isProviderNetwork", s.IsProviderNetwork},
		{"providerNetworkReference", s.ProviderNetworkReference != nil},
		{"routeTableReferences", len(s.RouteTableReferences) > 0}, {"routeTargetList", len(s.RouteTargetList) > 0},
		{"importRouteTargetList", len(s.ImportRouteTargetList) > 0},
		{"exportRouteTargetList", len(s.ExportRouteTargetList) > 0},
		{"virtualNetworkNetworkId", s.VirtualNetworkNetworkID != 0},
		{"virtualNetworkProperties", s.VirtualNetworkProperties != nil}, {"vlanID", s.VLANID != 0},
		{"fqName", len(s.FQName) > 0},
	} {
		if field.set {
			ps.Add(object, "spec."+field.name, reasonNotServed, notServed)
		}
	}
	switch {
	case s.FabricSNAT && own:
		ps.Add(object, "spec.fabricSNAT", reasonNotServed, "it has no effect: annotate the Namespace with "+
			AnnotationForwardingMode+"="+modeFabricSNAT)
	case s.FabricSNAT && !s.PodNetwork:
		ps.Add(object, "spec.fabricSNAT", reasonNotServed, "it has no effect: Pods reach destinations outside by their "+
			"first interface: remove it, or set spec.podNetwork")
	}
	if !own {
		f.Subnets = subnetsOf(n, object, &ps)
		f.Own = s.PodNetwork && f.serves()
		f.Outside = f.Own && s.FabricSNAT
	}
	f.Problems = ps
	return f
}

// subnetsOf returns the names of the Subnets of a VirtualNetwork. They are empty unless it is a network of further
// interfaces.
func subnetsOf(n *contrailv4.VirtualNetwork, object problem.Object, ps *problem.List) (out [2]string) {
	references := []struct {
		field string
		to    *contrailv4.ResourceReference
	}{{"spec.v4SubnetReference", n.Spec.V4SubnetReference}, {"spec.v6SubnetReference", n.Spec.V6SubnetReference}}
	for i, ref := range references {
		switch {
		case ref.to == nil:
		case ref.to.Kind != "" && ref.to.Kind != "Subnet":
			ps.Add(object, ref.field+".kind", reasonInvalid, problem.Quoted(ref.to.Kind)+" is no Subnet: write Subnet")
		case ref.to.Name == "":
			ps.Add(object, ref.field+".name", reasonInvalid, "it names no Subnet: write the name of one of this Namespace")
		case ref.to.Namespace != "" && ref.to.Namespace != n.Namespace:
			ps.Add(object, ref.field+".namespace", reasonNotServed, "Subnets of other Namespaces are not served: create the "+
				"Subnet in Namespace "+n.Namespace+", and a VirtualNetwork with it")
		default:
			out[i] = ref.to.Name
		}
	}
	switch {
	case out == [2]string{} && n.Spec.V4SubnetReference == nil && n.Spec.V6SubnetReference == nil:
		ps.Add(object, "spec.v4SubnetReference", reasonNoSubnet,
			"it has no Subnet, so no Pod is in it: create a Subnet, and "+
				"name it here or in v6SubnetReference")
	}
	return out
}

// MaxZone is the highest zone of connection tracking of a network with addresses that other networks have, too. Higher
// zones have other purposes (package datapath).
const MaxZone = 32000

// LeaseFacts is the content of a SubnetLease, by its name, which is the UID of the Subnet.
type LeaseFacts struct {
	Subnet, Network derive.Object
	Range           Range
	Ending          bool         // no further Pod gets an address
	Nodes           []NodeBlocks // in the order of their names
	// Zone is the zone of connection tracking of a separate network. 0 means that its addresses are unique in the cluster.
	Zone uint16
	// ResourceVersion is the version of the object.
	ResourceVersion string
}

// NodeBlocks are the parts of a Subnet that a Node has.
type NodeBlocks struct {
	Node, Claim string
	Blocks      []netip.Prefix
}

// LeaseFactsOf returns the facts about a SubnetLease. It returns no facts if the lease has invalid addresses.
func LeaseFactsOf(l *tombolov1alpha1.SubnetLease) LeaseFacts {
	cidr, err := netip.ParsePrefix(l.Spec.CIDR)
	gateway, err2 := netip.ParseAddr(l.Spec.Gateway)
	if err != nil || err2 != nil {
		return LeaseFacts{}
	}
	f := LeaseFacts{
		Subnet:  derive.Object{Namespace: l.Spec.Subnet.Namespace, Name: l.Spec.Subnet.Name},
		Network: derive.Object{Namespace: l.Spec.VirtualNetwork.Namespace, Name: l.Spec.VirtualNetwork.Name},
		Range:   Range{cidr, gateway}, Ending: l.Spec.Ending, ResourceVersion: l.ResourceVersion,
	}
	if l.Spec.Zone > 0 && l.Spec.Zone <= MaxZone {
		f.Zone = uint16(l.Spec.Zone)
	}
	for _, n := range l.Spec.Nodes {
		blocks := NodeBlocks{Node: n.Node, Claim: n.Claim}
		for _, text := range n.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && cidr.Overlaps(p) && p.Bits() >= cidr.Bits() {
				blocks.Blocks = append(blocks.Blocks, p)
			}
		}
		f.Nodes = append(f.Nodes, blocks)
	}
	return f
}

// VirtualNetwork is a network with addresses of Subnets, from its objects. If a separate network is deleted, it has
// only its Zone and Ranges, until its last lease ends.
type VirtualNetwork struct {
	Place Place
	// Subnets are the names of its Subnets for IPv4 and IPv6.
	Subnets [2]string
	// Leases are the ranges of the network's Subnets with the blocks that Nodes have of them, IPv4 first. Without a lease
	// the network has no addresses yet.
	Leases []LeaseFacts
	// Joined has the ranges of all joined VirtualNetworks, sorted. Far has only the ranges that are in other clusters.
	Joined, Far []netip.Prefix
	// Own is set if it may be the own network of Pods.
	Own bool
	// Zone is the zone of connection tracking of a separate network. Its addresses may also exist in networks of other
	// zones. So it is joined only with networks of its zone, and first interfaces in it have addresses of their Nodes. 0
	// means that its addresses are unique in the cluster.
	Zone uint16
	// Ranges are the ranges of all leases of a separate network. No other network of its zone has an address of them.
	Ranges []netip.Prefix
}

// virtualTables make the networks of VirtualNetworks.
type virtualTables struct {
	Objects
	oldest  *derive.Table[derive.Name, []derive.Object] // VirtualNetworks of a Namespace that count
	inSpace *derive.Index[derive.Name, derive.Object, VirtualNetworkFacts]
	leased  *derive.Index[derive.Object, derive.Object, LeaseFacts] // leases by VirtualNetwork; nil without leases
	// zones are the zones of the VirtualNetworks with leases: of leases with blocks if there are any, since Pods may have
	// their addresses. It is nil without leases.
	zones    *derive.Table[derive.Object, uint16]
	separate *derive.Index[derive.Name, derive.Object, uint16] // zones that are not 0, by Namespace
	// imported are imports by VirtualNetwork.
	imported *derive.Index[derive.Object, derive.Object, ClusterSetFacts]
}

// newVirtual adds the front door of VirtualNetworks.
func newVirtual(e *derive.Engine, o Objects) (*virtualTables, *derive.Table[Name, Network]) {
	t := &virtualTables{Objects: o}
	t.inSpace = derive.NewIndex(o.Networks, "namespace of Subnets",
		func(k derive.Object, f VirtualNetworkFacts) []derive.Name {
			if !f.serves() {
				return nil
			}
			return []derive.Name{derive.Name(k.Namespace)}
		})
	t.oldest = derive.NewTable(e, "oldest-virtual-networks",
		func(namespace derive.Name, r *derive.Reader) (out []derive.Object, _ []problem.Problem) {
			if o.inCopy(string(namespace), r) { // their Pods are in another cluster
				return nil, nil
			}
			rows := slices.Clone(derive.List(r, t.inSpace, namespace))
			slices.SortStableFunc(rows, func(a, b derive.Row[derive.Object, VirtualNetworkFacts]) int {
				return cmp.Or(cmp.Compare(a.Value.Created, b.Value.Created), cmp.Compare(a.Value.UID, b.Value.UID))
			})
			for _, row := range rows[:min(len(rows), MaxNetworks)] {
				out = append(out, row.Key)
			}
			slices.SortFunc(out, derive.Object.Compare)
			return out, nil
		}, derive.KeysOfIndex(t.inSpace))
	if o.Leases != nil {
		t.leased = derive.NewIndex(o.Leases, "virtual network",
			func(_ derive.Object, f LeaseFacts) []derive.Object { return []derive.Object{f.Network} })
		t.zones = derive.NewTable(e, "zones-of-networks",
			func(k derive.Object, r *derive.Reader) (zone uint16, _ []problem.Problem) {
				zone, _ = zoneOfLeases(derive.Values(derive.List(r, t.leased, k)))
				return zone, nil
			}, derive.KeysOfIndex(t.leased))
		t.separate = derive.NewIndex(t.zones, "separate network", func(k derive.Object, zone uint16) []derive.Name {
			if zone == 0 {
				return nil
			}
			return []derive.Name{derive.Name(k.Namespace)}
		})
	}
	t.imported = derive.NewIndex(o.Imports, "virtual network", func(_ derive.Object, f ClusterSetFacts) []derive.Object {
		if f.Namespace.Name == "" || f.VirtualNetwork.Name == "" {
			return nil
		}
		return []derive.Object{{Namespace: f.Namespace.Name, Name: f.VirtualNetwork.Name}}
	})
	byName := derive.NewIndex(t.oldest, "name", func(_ derive.Name, list []derive.Object) (out []Name) {
		for _, k := range list {
			out = append(out, VirtualName(k))
		}
		return out
	})
	return t, derive.NewTable(e, "virtual-networks-with-subnets",
		func(name Name, r *derive.Reader) (Network, []problem.Problem) {
			k := derive.Object{Namespace: name.Namespace, Name: name.Name}
			f, _ := derive.Get(r, o.Networks, k)
			out := Network{Object: problem.About("VirtualNetwork", name.Namespace, name.Name), UID: f.UID, Created: f.Created}
			if i, ok := t.importOf(k, f, r); ok {
				out.ID, out.Clusters, out.Joins = i.ID, i.Clusters, i.Joins
			}
			return out, nil
		}, derive.KeysOfIndex(byName))
}

// importOf returns the import of a VirtualNetwork, if the leader has given it a number. It is about this VirtualNetwork
// in this Namespace, and about no earlier ones of their names. If there are several, the first by name counts.
func (t *virtualTables) importOf(k derive.Object, f VirtualNetworkFacts, r *derive.Reader) (ClusterSetFacts, bool) {
	n, _ := derive.Get(r, t.Namespaces, derive.Object{Name: k.Namespace})
	for _, row := range derive.List(r, t.imported, k) {
		i := row.Value
		if i.Namespace.UID == n.UID && n.UID != "" && i.VirtualNetwork.UID == f.UID && f.UID != "" {
			return i, true
		}
	}
	return ClusterSetFacts{}, false
}

// VirtualName returns the name of the network of a VirtualNetwork with Subnets.
func VirtualName(k derive.Object) Name {
	return Name{Door: doorVirtual, Namespace: k.Namespace, Name: k.Name}
}

// counts reports whether a VirtualNetwork is among these of its Namespace that count.
func (t *virtualTables) counts(k derive.Object, r *derive.Reader) bool {
	oldest, _ := derive.Get(r, t.oldest, derive.Name(k.Namespace))
	_, ok := slices.BinarySearchFunc(oldest, k, derive.Object.Compare)
	return ok
}

// addNetworks adds the table of VirtualNetworks, which reads leases.
func (t *virtualTables) addNetworks(e *derive.Engine, tables *Tables) {
	if t.Leases == nil {
		return
	}
	tables.VirtualNetworks = derive.NewTable(e, "virtual-networks",
		func(k derive.Object, r *derive.Reader) (VirtualNetwork, []problem.Problem) {
			name := VirtualName(k)
			n, ok := derive.Get(r, tables.Networks, name)
			if !ok { // its Pods may still have addresses that other networks have, too
				zone, ranges := t.zoneAndRanges(k, r)
				return VirtualNetwork{Zone: zone, Ranges: ranges}, nil
			}
			f, _ := derive.Get(r, t.Networks, k)
			out := VirtualNetwork{Place: Place{Known: true, Network: name}, Subnets: f.Subnets, Leases: t.leasesOf(k, r)}
			out.Zone, out.Ranges = t.zoneAndRanges(k, r)
			out.Own = f.Own
			tables.join(&out.Place, n, r)
			out.Place.Outside = out.Own && f.Outside
			out.Joined, out.Far = tables.JoinedRanges(name, r)
			return out, nil
		}, derive.KeysOf(t.Networks), derive.KeysOfIndex(t.leased))
}

// zoneOfLeases returns the zone of a network with these leases. pods is set if one has blocks. While a network without
// Pods moves to another zone, its leases have two zones.
func zoneOfLeases(leases []LeaseFacts) (zone uint16, pods bool) {
	for _, l := range leases {
		switch here := len(l.Nodes) > 0; {
		case here && !pods:
			zone, pods = l.Zone, true
		case here == pods:
			zone = max(zone, l.Zone)
		}
	}
	return zone, pods
}

// zoneAndRanges returns the zone and the ranges of a separate network, and zero values for other networks.
func (t *virtualTables) zoneAndRanges(k derive.Object, r *derive.Reader) (zone uint16, ranges []netip.Prefix) {
	if zone = t.zoneOf(k, r); zone == 0 {
		return 0, nil
	}
	for _, l := range t.leasesOf(k, r) {
		ranges = append(ranges, l.Range.CIDR)
	}
	return zone, ranges
}

// zoneOf returns the zone of a separate network, and 0 for other networks.
func (t *virtualTables) zoneOf(k derive.Object, r *derive.Reader) uint16 {
	if t.zones == nil {
		return 0
	}
	zone, _ := derive.Get(r, t.zones, k)
	return zone
}

// zoneOf returns the zone of a separate network, and 0 for other networks.
func (t *Tables) zoneOf(name Name, r *derive.Reader) uint16 {
	if t.virtual == nil || name.Door != doorVirtual {
		return 0
	}
	return t.virtual.zoneOf(derive.Object{Namespace: name.Namespace, Name: name.Name}, r)
}

// JoinedRanges returns the ranges of VirtualNetworks that a network is joined with, sorted. far are these of other
// clusters alone.
func (t *Tables) JoinedRanges(name Name, r *derive.Reader) (joined, far []netip.Prefix) {
	n, ok := derive.Get(r, t.Networks, name)
	if !ok || t.virtual == nil {
		return nil, nil
	}
	for _, other := range t.joinedHere(name, n, r) {
		for _, l := range t.virtual.leasesOf(derive.Object{Namespace: other.Namespace, Name: other.Name}, r) {
			joined = append(joined, l.Range.CIDR)
		}
	}
	across, _ := derive.Get(r, t.across, name)
	for _, j := range across {
		far = append(far, j.Ranges...)
	}
	slices.SortFunc(far, netip.Prefix.Compare)
	far = slices.Compact(far)
	joined = append(joined, far...)
	slices.SortFunc(joined, netip.Prefix.Compare)
	return joined, far
}

// leasesOf returns the leases of a VirtualNetwork, IPv4 first. If there are several of one version, the first is the
// lease of the present Subnet. The others are of Subnets that were deleted: their blocks still have Pods.
func (t *virtualTables) leasesOf(k derive.Object, r *derive.Reader) (out []LeaseFacts) {
	if t.leased == nil {
		return nil
	}
	for _, row := range derive.List(r, t.leased, k) {
		out = append(out, row.Value)
	}
	slices.SortStableFunc(out, func(a, b LeaseFacts) int {
		return cmp.Compare(versionOf(a.Range.CIDR), versionOf(b.Range.CIDR))
	})
	return out
}

// problems returns the problems of a VirtualNetwork that has Subnets, or should have them. fails is set if no Pod gets
// an address.
func (t *virtualTables) problems(k derive.Object, r *derive.Reader, subnets *derive.Table[derive.Object, Subnet]) (
	ps problem.List, fails bool,
) {
	f, _ := derive.Get(r, t.Networks, k)
	object := problem.About("VirtualNetwork", k.Namespace, k.Name)
	ps = slices.Clone(f.Problems)
	if !f.serves() {
		return ps, true
	}
	if !t.counts(k, r) {
		ps.Add(object, "metadata.namespace", reasonTooManyNetworks,
			fmt.Sprintf("no Pod is in it: its Namespace has %d older "+
				"VirtualNetworks with Subnets, and more do not count: delete one of them", MaxNetworks))
		return ps, true
	}
	if subnets == nil {
		return ps, false
	}
	for i, field := range []string{"spec.v4SubnetReference", "spec.v6SubnetReference"} {
		if f.Subnets[i] == "" {
			continue
		}
		key := derive.Object{Namespace: k.Namespace, Name: f.Subnets[i]}
		facts, there := derive.Get(r, t.Subnets, key)
		s, _ := derive.Get(r, subnets, key)
		reason := ""
		switch {
		case !there:
			ps.Add(object, field, reasonSubnetNotFound,
				"Subnet "+key.String()+" is not there, so no Pod gets an address: create "+
					"it")
			fails = true
			continue
		case facts.Range.CIDR.IsValid() && versionOf(facts.Range.CIDR) != i:
			reason = "has addresses of the other version of IP: name a Subnet of this one in another VirtualNetwork"
		case !s.Served:
			reason = "gives no addresses: look at its observation"
		case s.Network != k:
			reason = "is the Subnet of VirtualNetwork " + s.Network.String() + ": create another Subnet, and a VirtualNetwork " +
				"with it"
		default:
			continue
		}
		ps.Add(object, field, reasonSubnetNotServed, "Subnet "+key.String()+" "+reason)
		fails = true
	}
	return ps, fails
}

// PodAddress is an address of a Pod in a VirtualNetwork.
type PodAddress struct {
	IP  netip.Addr
	Pod string // its name, in the Namespace of the VirtualNetwork
	UID types.UID
}

// NodeNetwork is a VirtualNetwork that Pods of a Node are in, or request.
type NodeNetwork struct {
	Claim     string
	Pods      int
	Requested []netip.Addr
	Addresses []PodAddress
}

// ReportFacts is the content of a NodeNetworkReport, by VirtualNetwork.
type ReportFacts map[derive.Object]NodeNetwork

// ReportFactsOf returns the facts about a NodeNetworkReport.
func ReportFactsOf(n *tombolov1alpha1.NodeNetworkReport) ReportFacts {
	out := ReportFacts{}
	for _, network := range n.Spec.Networks {
		f := NodeNetwork{Claim: network.Claim, Pods: int(network.Pods)}
		for _, text := range network.Requested {
			if ip, err := netip.ParseAddr(text); err == nil {
				f.Requested = append(f.Requested, ip)
			}
		}
		for _, a := range network.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				f.Addresses = append(f.Addresses, PodAddress{ip, a.Pod, a.UID})
			}
		}
		out[derive.Object{Namespace: network.Namespace, Name: network.Name}] = f
	}
	return out
}

// ClaimOn returns what a Node claims of a range.
func (n NodeNetwork) ClaimOn(node string, of Range) Claim {
	c := Claim{Node: node, Claim: n.Claim, Pods: n.Pods}
	for _, ip := range n.Requested {
		if of.CIDR.Contains(ip) {
			c.Requested = append(c.Requested, ip)
		}
	}
	for _, a := range n.Addresses {
		if of.CIDR.Contains(a.IP) {
			c.Held = append(c.Held, a.IP)
		}
	}
	return c
}

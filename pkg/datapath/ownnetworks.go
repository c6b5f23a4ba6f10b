package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// A Pod whose own network is a VirtualNetwork uses Services as an isolated Pod does. A connection to a Service of the
// default network leaves the Pod's network after the choice of an endpoint, and its server sees the Pod's own address.
// The differences are:
//
//   - The address is in no podCIDR. Between Nodes these packets have the MAC of the default network, and a source in a
//     block of the client's Node. The server's Node admits them for its Pods alone, as packets of their own source
//     (fromFirst), which the connection remembers. A Node of an earlier version drops the source.
//   - The server's Node has no route to the block. It routes replies of such connections there, and refusals of the
//     agent. The client's Node delivers replies to connections that the Pod has opened to Services.
//   - A Namespace with such Pods is not isolated, and its users may write endpoints. So a Service of such a Namespace
//     leads these Pods to Pods of their own network, and of joined ones (markInside). A tenant does not get out by it.
//   - An address of the network and of joined ones is never the address of a Service.

// ownTables are the tables about Pods whose own network is a VirtualNetwork; nil without Inputs.Networks.
type ownTables struct {
	tenants  *tenantTables
	entered  *derive.Table[derive.Object, tenant.ID] // networks of such Pods of this Node, also with its addresses
	confined *derive.Table[derive.Name, []string]    // one row: Namespaces of such networks
	taken    *derive.Table[derive.Name, []netip.Prefix]
	servers  *derive.Table[derive.Name, bool] // one row: a Pod of this Node is in the default network
}

// newOwnTables adds the tables that other features read.
func newOwnTables(e *derive.Engine, tenants *tenantTables) *ownTables {
	b := tenants.base
	if b.Networks == nil {
		return nil
	}
	t := &ownTables{tenants: tenants}
	firsts := derive.NewIndex(b.Pods, "own network", func(_ derive.Name, p Pod) []derive.Object {
		if own := p.own(); own != (derive.Object{}) {
			return []derive.Object{own}
		}
		return nil
	})
	t.entered = derive.NewTable(e, "entered-own-networks",
		func(k derive.Object, r *derive.Reader) (tenant.ID, []problem.Problem) {
			v, _ := derive.Get(r, b.Networks, k)
			return v.Place.ID, nil
		}, derive.KeysOfIndex(firsts))
	owned := derive.NewIndex(b.Networks, "own", func(_ derive.Object, v tenant.VirtualNetwork) []derive.Name {
		if !v.Own {
			return nil
		}
		return []derive.Name{Self}
	})
	t.confined = derive.NewTable(e, "confined-namespaces",
		func(_ derive.Name, r *derive.Reader) (out []string, _ []problem.Problem) {
			for _, row := range derive.All(r, t.entered) { // also while spec.podNetwork is not set any more
				out = append(out, row.Key.Namespace)
			}
			for _, row := range derive.List(r, owned, Self) {
				out = append(out, row.Key.Namespace)
			}
			slices.Sort(out)
			return slices.Compact(out), nil
		}, derive.KeysOf(b.Node)).EqualBy(slices.Equal[[]string])
	t.taken = derive.NewTable(e, "ranges-of-others",
		func(_ derive.Name, r *derive.Reader) ([]netip.Prefix, []problem.Problem) {
			if len(derive.List(r, owned, Self))+len(derive.All(r, t.entered)) == 0 {
				return nil, nil
			}
			return tenants.rangesOfOthers(r), nil
		}, derive.KeysOf(b.Node)).EqualBy(slices.Equal[[]netip.Prefix])
	inDefault := derive.NewIndex(b.Pods, "namespace of first interfaces", func(_ derive.Name, p Pod) []derive.Name {
		if p.inVirtual() || p.isInside() {
			return nil
		}
		return []derive.Name{derive.Name(p.Namespace)}
	})
	spaces := derive.NewTable(e, "namespaces-of-servers",
		func(namespace derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			place := tenants.placeOf(r, string(namespace))
			return !place.Isolated() && !place.Closed(), nil
		}, derive.KeysOfIndex(inDefault))
	t.servers = derive.NewTable(e, "may-have-servers",
		func(_ derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			return slices.ContainsFunc(derive.All(r, spaces),
				func(row derive.Row[derive.Name, bool]) bool { return row.Value }), nil
		}, derive.KeysOf(b.Node))
	return t
}

// rangesOfOthers returns ranges of Nodes, Services and other clusters, sorted. If one of them overlaps a Subnet, it was
// added after the Subnet.
func (t *tenantTables) rangesOfOthers(r *derive.Reader) []netip.Prefix {
	b := t.base
	n := b.self(r)
	out := slices.Concat(n.PodCIDRs, n.ServiceCIDRs)
	for _, row := range derive.All(r, b.RemoteNodes) {
		out = append(out, row.Value.PodCIDRs...)
	}
	out = append(out, t.otherClusters(r)...)
	for i, p := range out {
		out[i] = p.Masked()
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// isTaken reports whether an owner outside of the network has a part of a range.
func (t *ownTables) isTaken(r *derive.Reader, p netip.Prefix) bool {
	taken, _ := derive.Get(r, t.taken, Self)
	return slices.ContainsFunc(taken, p.Overlaps)
}

// services reports whether a Pod's own network is a VirtualNetwork, and whether the Pod has Services there. It has no
// Services while another owner has its address, or while its network is closed. In the first case, services returns the
// range of the other owner.
func (t *ownTables) services(r *derive.Reader, pod Pod, place tenant.Place) (has bool, taken netip.Prefix) {
	switch {
	case t == nil:
		return false, taken
	case pod.isInside():
		return !place.Closed(), taken
	case !pod.First:
		return false, taken
	}
	ranges, _ := derive.Get(r, t.taken, Self)
	taken, found := takenOf(ranges, pod.IPs)
	return !found && !place.Closed(), taken
}

// takenOf returns the first range that has one of a Pod's addresses.
func takenOf(ranges []netip.Prefix, ips []netip.Addr) (netip.Prefix, bool) {
	return firstOf(ranges, func(p netip.Prefix) bool { return slices.ContainsFunc(ips, p.Contains) })
}

// firstOf returns the first range with a property.
func firstOf(ranges []netip.Prefix, has func(netip.Prefix) bool) (netip.Prefix, bool) {
	at := slices.IndexFunc(ranges, has)
	if at < 0 {
		return netip.Prefix{}, false
	}
	return ranges[at], true
}

// TakenOf returns the range of another owner that has an address of a Pod whose own network is a VirtualNetwork. Such a
// Pod has no Services. Only Nodes with Pods in such networks have this information.
func (t *Tables) TakenOf(ips []netip.Addr) (netip.Prefix, bool) {
	own := t.tenants.own
	if own == nil {
		return netip.Prefix{}, false
	}
	ranges, _ := own.taken.Get(Self)
	return takenOf(ranges, ips)
}

// confines reports whether Pods whose own network is a VirtualNetwork reach, through Services of a Namespace, only
// endpoints in this network.
func (t *ownTables) confines(r *derive.Reader, key derive.Object) bool {
	if t == nil || key == tenant.APIServer {
		return false
	}
	confined, _ := derive.Get(r, t.confined, Self)
	_, found := slices.BinarySearch(confined, key.Namespace)
	return found
}

// entersOwn reports whether a Pod of this Node is in a network of its own.
func (t *ownTables) entersOwn(r *derive.Reader) bool {
	return t != nil && len(derive.All(r, t.entered)) > 0
}

// answers reports whether Pods of this Node may be servers for Pods of other Nodes whose own network is a
// VirtualNetwork.
func (t *ownTables) answers(r *derive.Reader, v tenant.VirtualNetwork) bool {
	if t == nil || !v.Own || v.Zone != 0 || v.Place.Closed() {
		return false
	}
	servers, _ := derive.Get(r, t.servers, Self)
	return servers
}

// base returns the flows of a Node with a Pod whose own network is a VirtualNetwork. Connections to Services of
// confined Namespaces stay in the Pod's network. Connections to other clusters are dropped, since these do not admit
// the Pod's address.
func (t *ownTables) base(r *derive.Reader, n Node) (flows []flow.Flow) {
	if !t.entersOwn(r) {
		return nil
	}
	for _, ip := range versions(n.Families) {
		flows = append(flows, flow.Flow{
			Table: Route, Priority: enters,
			Match:   flow.All(ip, isFirst.Is(1), isTenant.Is(1), flow.CTState("-rpl+trk"), markService.Is(1), markInside.Is(1)),
			Actions: flow.Do(flow.Goto(Tenant)),
		})
	}
	for _, cidr := range t.tenants.otherClusters(r) {
		flows = append(flows, flow.Flow{Table: Route, Priority: shares,
			Match: flow.All(isFirst.Is(1), isTenant.Is(0), flow.IPDst(cidr.Masked()))})
	}
	return flows
}

// onlyClients returns the flows of a Node with servers for packets from blocks of other Nodes. These packets do not
// reach the host. They must not continue a connection that another source has opened, such as a machine outside with a
// forged address, since no policy would judge them. Such a machine must not continue their connections either.
func onlyClients(n Node) (flows []flow.Flow) {
	for _, ip := range n.GatewayIPs {
		flows = append(flows, flow.Flow{Table: Route, Priority: differ, Match: flow.All(source.Is(fromFirst),
			flow.IPDst(host(ip)))})
	}
	for _, ip := range versions(n.Families) {
		for _, other := range []uint64{fromTunnel, fromGateway, fromPod, fromPeer} {
			flows = append(flows, flow.Flow{Table: ConntrackState, Priority: ruled,
				Match: flow.All(ip, source.Is(fromFirst), generated.Is(0), flow.CTState("-new+est+trk"), markSource.Is(other))})
		}
		flows = append(flows, flow.Flow{Table: ConntrackState, Priority: ruled,
			Match: flow.All(ip, source.Is(fromGateway), generated.Is(0), flow.CTState("-new+est-rpl+trk"),
				markSource.Is(fromFirst))})
	}
	return flows
}

// answersTo returns the flows between Pods of this Node, as servers, and a block of another Node. A server cannot open
// a connection to its client, so its first packet is dropped. Otherwise the host would send this packet out of the
// cluster. Connection tracking would also record the server as the client, so that packets of the real client would be
// dropped.
func (t *ownTables) answersTo(r *derive.Reader, l nodeLink, block netip.Prefix) (flows []flow.Flow) {
	if t.isTaken(r, block) {
		return nil
	}
	for _, cidr := range l.node.PodCIDRs {
		if cidr.Addr().Is4() != block.Addr().Is4() {
			continue
		}
		for _, from := range l.to.sources() {
			flows = append(flows, l.node.acceptTunnel(host(from), normal, fromFirst, flow.EthDst(InClusterMAC),
				flow.IPSrc(block), flow.IPDst(cidr.Masked()))...)
		}
	}
	return append(flows,
		l.node.throughTunnel(normal, InClusterMAC, l.to.Address, 0, source.Is(fromPod), flow.CTState("+rpl+trk"),
			markSource.Is(fromFirst), flow.IPDst(block)),
		flow.Flow{Table: Route, Priority: normal, Match: flow.All(source.Is(fromPod), flow.CTState("-rpl+trk"),
			flow.IPDst(block))},
		l.node.throughTunnel(normal, InClusterMAC, l.to.Address, 0, source.Is(fromFirst), generated.Is(1),
			flow.IPDst(block)))
}

package datapath

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// A VirtualNetwork may be joined with networks of other clusters. Its packets go the way of other networks of tenants
// between clusters (tenantclusters.go). The differences are:
//
//   - Addresses are of Subnets. Another cluster has ranges (tenant.RemoteRange), and this one has blocks of Nodes. So a
//     Gateway needs the blocks of all Nodes, also without a Pod in the network.
//   - A range, and a block on the way from another cluster, is matched together with a network. For packets of all
//     other networks the address belongs to another machine. Flows of this cluster's own addresses come before flows of
//     a range. A range has no flows while another owner has a part of it (ownerOf).
//   - A Gateway admits a source in a range with the number of the range's network alone. Such packets have the bit for
//     packets without Services.
//
// The Node of the receiver decides by the number, as for all packets of networks of tenants.

// farNetworks are the networks between this cluster and all others.
type farNetworks struct {
	from    []tenant.ID // that packets of other clusters may be in
	leaving []tenant.ID // of this cluster, whose packets go to other clusters
	virtual bool        // other clusters have VirtualNetworks among these
}

// addFar adds the table of networks between clusters.
func (t *tenantTables) addFar(e *derive.Engine) {
	t.far = derive.NewTable(e, "far-networks", func(_ derive.Name, r *derive.Reader) (f farNetworks, _ []problem.Problem) {
		for _, row := range derive.All(r, t.base.Remotes) {
			f.from, f.leaving = append(f.from, row.Value.From...), append(f.leaving, row.Value.To...)
			for _, v := range row.Value.Virtual {
				f.from, f.leaving, f.virtual = append(f.from, v.ID), append(f.leaving, v.To...), true
			}
		}
		slices.Sort(f.from)
		slices.Sort(f.leaving)
		f.from, f.leaving = slices.Compact(f.from), slices.Compact(f.leaving)
		return f, nil
	}, derive.KeysOf(t.base.Node)).EqualBy(func(a, b farNetworks) bool { return reflect.DeepEqual(a, b) })
	t.farTaken = derive.NewTable(e, "ranges-that-are-not-far",
		func(_ derive.Name, r *derive.Reader) (out []netip.Prefix, _ []problem.Problem) {
			if !t.farOf(r).virtual {
				return nil, nil
			}
			n := t.base.self(r)
			addresses := slices.Concat(n.Tunnels.Ends, n.GatewayIPs, n.NodePortAddresses, n.vips())
			for _, row := range derive.All(r, t.base.RemoteNodes) {
				addresses = append(append(addresses, row.Value.sources()...), row.Value.hosts()...)
			}
			for _, peer := range derive.All(r, t.base.Peering.Peers) {
				for _, w := range peer.Value.Gateways {
					addresses = append(addresses, w.Outside, w.End())
				}
			}
			out = t.rangesOfOthers(r)
			for _, ip := range addresses {
				if ip.IsValid() {
					out = append(out, host(ip))
				}
			}
			slices.SortFunc(out, netip.Prefix.Compare)
			return slices.Compact(out), nil
		}, derive.KeysOf(t.base.Node)).EqualBy(slices.Equal[[]netip.Prefix])
}

// ownerOf returns a range or an address of a Node, of Services or of another cluster that is part of a range of a
// VirtualNetwork of another cluster. Such a range has no flows.
func (t *tenantTables) ownerOf(r *derive.Reader, p netip.Prefix) (netip.Prefix, bool) {
	taken, _ := derive.Get(r, t.farTaken, Self)
	return firstOf(taken, p.Overlaps)
}

// IsFar reports whether packets go to a range of a VirtualNetwork of another cluster. Any goroutine may call it.
func (t *Tables) IsFar(p netip.Prefix) bool {
	if t.tenants.farTaken == nil {
		return false
	}
	taken, _ := t.tenants.farTaken.Get(Self)
	_, found := firstOf(taken, p.Overlaps)
	return !found
}

// Far is IsFar within an evaluation. The reader's row follows changes.
func (t *Tables) Far(r *derive.Reader, p netip.Prefix) bool {
	if t.tenants.farTaken == nil {
		return false
	}
	_, found := t.tenants.ownerOf(r, p)
	return !found
}

// farOf returns the networks between clusters; none without Inputs.Remotes.
func (t *tenantTables) farOf(r *derive.Reader) (f farNetworks) {
	if t.far != nil {
		f, _ = derive.Get(r, t.far, Self)
	}
	return f
}

// entering returns the networks in which packets of other clusters reach a VirtualNetwork. passes reports whether this
// Node is a Gateway of such packets, or of packets to other clusters.
func (t *tenantTables) entering(r *derive.Reader, v tenant.VirtualNetwork) (ids []tenant.ID, passes bool) {
	if v.Place.Closed() {
		return nil, false
	}
	f := t.farOf(r)
	for _, id := range append(slices.Clone(v.Place.Joined), v.Place.ID) {
		if _, found := slices.BinarySearch(f.from, id); found && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	_, leaves := slices.BinarySearch(f.leaving, v.Place.ID)
	at, _ := derive.Get(r, t.base.role, Self)
	return ids, at.isGateway() && (leaves || len(ids) > 0)
}

// fromFarInto returns the flows for packets of other clusters to a block of this Node. The packets skip the choice of
// an endpoint. Otherwise the author of a Service could redirect them with a Service that has the same external address.
func fromFarInto(ids []tenant.ID, block netip.Prefix) (flows []flow.Flow) {
	for _, id := range ids {
		match := flow.All(source.Is(fromPeer), inTenant.Is(network(id)), flow.IPDst(block))
		flows = append(flows,
			flow.Flow{Table: UnSNAT, Priority: high, Match: match, Actions: flow.Do(flow.Goto(Conntrack))},
			flow.Flow{Table: ConntrackState, Priority: closed, Match: match, Actions: flow.Do(flow.Goto(Egress))})
	}
	return flows
}

// fromFarTo returns the flows of a Gateway for packets of other clusters to a block of another Node.
func (l nodeLink) fromFarTo(ids []tenant.ID, block netip.Prefix) (flows []flow.Flow) {
	for _, id := range ids {
		of := inTenant.Is(network(id))
		flows = append(flows,
			flow.Flow{Table: UnSNAT, Priority: high, Match: flow.All(source.Is(fromPeer), of, flow.IPDst(block)),
				Actions: flow.Do(flow.Goto(Tenant))},
			l.toNetwork(of, block, nil, source.Is(fromPeer), flow.CTState("-trk")))
	}
	return flows
}

// farRange returns the flows between this cluster and a range of a VirtualNetwork of a peer.
func (t *tenantTables) farRange(r *derive.Reader, c crossCluster, peer peering.Peer, there tenant.RemoteRange,
	serves bool,
) []flow.Flow {
	cidr, mac := there.CIDR.Masked(), flow.EthDst(MACOf(there.ID))
	flows := c.fromPeer(peer, normal, cidr, mac)
	if serves {
		flows = append(flows, c.fromGateways(normal, cidr, mac)...)
	}
	for i := range flows {
		flows[i].Actions = append(flow.Do(flow.Load(inTenant, network(there.ID)), flow.Load(isVirtual, 1)),
			flows[i].Actions...)
	}
	var senders []tenant.ID // with Pods on this Node
	if serves && t.present != nil {
		present, _ := derive.Get(r, t.present, Self)
		senders = slices.DeleteFunc(slices.Clone(there.To),
			func(id tenant.ID) bool { return !slices.Contains(present, id) })
	}
	for _, id := range there.To {
		of := inTenant.Is(network(id))
		to := func(match ...flow.Cond) {
			flows = append(flows, numbered(c.ways.asItIs(low, TenantMAC, false, append(match, of, flow.IPDst(cidr))...)))
		}
		if slices.Contains(senders, id) {
			to(source.Is(fromPod))
			to(generated.Is(1))
			flows = append(flows, flow.Flow{Table: EgressPeer, Priority: inBlock, Match: flow.All(of, flow.IPDst(cidr)),
				Actions: flow.Do(flow.Goto(EgressAdmin))})
		}
		if c.at.direct(peer) {
			to(source.Is(fromTunnel), flow.CTState("-trk"))
			flows = append(flows, flow.Flow{Table: UnSNAT, Priority: same,
				Match:   flow.All(source.Is(fromTunnel), of, flow.IPDst(cidr)),
				Actions: flow.Do(flow.Goto(Tenant))})
		}
	}
	if serves { // the address names no Pod of this cluster, and no server of another one
		flows = append(flows, flow.Flow{Table: IngressPeer, Priority: inBlock,
			Match:   flow.All(inTenant.Is(network(there.ID)), flow.IPSrc(cidr)),
			Actions: flow.Do(flow.Goto(IngressAdmin))})
	}
	return append(flows, sendersAround(senders, cidr)...)
}

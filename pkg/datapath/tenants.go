package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Pods of an isolated Namespace are in a network of their own. Their packets carry its number in a register: from the
// Pod's port, or from the destination MAC between Nodes. Table Route hands all of them to table Tenant, which knows the
// Pods of that network, and of networks that it is joined with. So packets have no other next hop in the cluster.
//
// The Pod's own Node decides in both directions. A sender's Node sends to every range of Pods with the number of the
// sender's network, and the receiver's Node delivers only if its Pod is in that network. Nodes need not know where the
// Pods of a network are. A switch without the feature drops the MAC.
//
// A connection to a Service of the default network leaves the network: its packets have number 0 after table Service,
// and its server sees the client like any other. Replies to it are the only packets of the default network that reach
// the client, apart from packets of the client's own Node. The connection remembers whether its Service is in a network
// of tenants (markTenant), when the endpoint is chosen. Later changes of the Service do not change the mark.
//
// Addresses of isolated Namespaces are unique in the cluster, so these networks share one zone of connection tracking.

// TenantMAC is the destination MAC of packets in a network of tenants between Nodes. The number of the network is in
// its lower 25 bits.
var TenantMAC = ofp.MAC{0x02, 0x54, 0x4e, 0, 0, 0}

// tenantMACs is the mask of TenantMAC without the number.
var tenantMACs = ofp.MAC{0xff, 0xff, 0xfe, 0, 0, 0}

// MACOf returns TenantMAC with the number of a network.
func MACOf(id tenant.ID) ofp.MAC {
	mac := TenantMAC
	mac[2] |= byte(id >> 24)
	mac[3], mac[4], mac[5] = byte(id>>16), byte(id>>8), byte(id)
	return mac
}

// ServiceMark returns the connection mark for a Service. The mark records whether the Service is in a network of
// tenants. It also records whether clients whose own network is a VirtualNetwork reach only endpoints in that network.
func ServiceMark(inTenant, inside bool) uint32 {
	mark := uint32(1) << markService.First
	if inTenant {
		mark |= 1 << markTenant.First
	}
	if inside {
		mark |= 1 << markInside.First
	}
	return mark
}

// numberInMAC is the number of the network in TenantMAC.
var numberInMAC = flow.Bits{Field: ofp.EthDst, First: 0, Width: 25}

// tenantTables are the tables about networks of tenants. Without Inputs.Places all of them except base are nil.
type tenantTables struct {
	base   *base
	hosted *derive.Table[derive.Name, bool] // isolated Namespaces with Pods on this Node
	serves *derive.Table[derive.Name, bool] // one row, if there are any
	offers *derive.Table[derive.Name, bool] // isolated Namespaces with Services
	spans  *derive.Table[derive.Name, bool] // one row, if a network has Pods in other clusters; nil without Remotes
	always *derive.Table[derive.Name, flow.Entries]
	nodes  *derive.Table[derive.Name, flow.Entries]

	// These tables have one row, and are nil without Remotes. If other clusters have VirtualNetworks, farTaken has the
	// ranges of other owners.
	far      *derive.Table[derive.Name, farNetworks]
	farTaken *derive.Table[derive.Name, []netip.Prefix]

	// These are nil without Inputs.Networks.
	entered  *derive.Table[derive.Object, tenant.ID] // VirtualNetworks with Pods on this Node
	zones    *derive.Table[derive.Object, uint16]    // of separate networks among these
	present  *derive.Table[derive.Name, []tenant.ID] // one row: the networks with Pods on this Node, sorted
	networks *derive.Table[derive.Object, flow.Entries]
	own      *ownTables
}

// newTenantTables adds the tables that other features read.
func newTenantTables(e *derive.Engine, b *base) *tenantTables {
	t := &tenantTables{base: b}
	if b.Places == nil {
		return t
	}
	byNamespace := derive.NewIndex(b.Pods, "namespace",
		func(_ derive.Name, p Pod) []derive.Name { return []derive.Name{derive.Name(p.Namespace)} })
	t.hosted = derive.NewTable(e, "hosted-tenants",
		func(namespace derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			return t.placeOf(r, string(namespace)).Isolated(), nil
		}, derive.KeysOfIndex(byNamespace))
	t.addVirtual(e)
	t.serves = derive.NewTable(e, "serves-tenants",
		func(_ derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			return len(derive.All(r, t.hosted)) > 0 || t.entersVirtual(r), nil
		}, derive.KeysOf(b.Node))
	if b.Remotes != nil {
		t.spans = derive.NewTable(e, "spanning-tenants",
			func(_ derive.Name, r *derive.Reader) (bool, []problem.Problem) {
				return len(derive.All(r, b.Remotes)) > 0, nil
			}, derive.KeysOf(b.Node))
		t.addFar(e)
	}
	servicesOf := derive.NewIndex(b.Frontends, "namespace",
		func(k derive.Object, _ []service.Frontend) []derive.Name {
			return []derive.Name{derive.Name(k.Namespace)}
		})
	t.offers = derive.NewTable(e, "offering-tenants",
		func(namespace derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			return t.placeOf(r, string(namespace)).Isolated(), nil
		}, derive.KeysOfIndex(servicesOf))
	t.own = newOwnTables(e, t)
	return t
}

// addFlows adds the tables of flows.
func (t *tenantTables) addFlows(e *derive.Engine) {
	if t.base.Places == nil {
		return
	}
	t.always = derive.NewTable(e, "tenant-base", t.tenantBase, derive.KeysOf(t.base.Node))
	t.nodes = derive.NewTable(e, "tenant-nodes", t.tenantNode, derive.KeysOf(t.base.RemoteNodes))
	if t.base.Networks != nil {
		t.networks = derive.NewTable(e, "virtual-network-flows", t.virtualNetwork, derive.KeysOf(t.base.Networks))
	}
}

// owned lists the tables of flows.
func (t *tenantTables) owned() []owned {
	if t.base.Places == nil {
		return nil
	}
	out := []owned{
		entriesOf(t.always, func(derive.Name) flow.Owner { return flow.Owner{Kind: KindTenant, Name: "base"} }),
		entriesOf(t.nodes, func(n derive.Name) flow.Owner { return flow.Owner{Kind: KindTenant, Name: "node " + string(n)} }),
	}
	if t.networks != nil {
		out = append(out, entriesOf(t.networks, virtualOwner))
	}
	return out
}

// placeOf returns the network of a Namespace. If there is no Namespace, as for a container without a Pod, it is the
// default network.
func (t *tenantTables) placeOf(r *derive.Reader, namespace string) tenant.Place {
	if t.base.Places == nil || namespace == "" {
		return tenant.Place{Known: true}
	}
	place, _ := derive.Get(r, t.base.Places, derive.Object{Name: namespace})
	return place
}

// servesTenants reports whether this Node has a Pod in a network of tenants. Only then it has flows for such networks.
func (t *tenantTables) servesTenants(r *derive.Reader) bool {
	if t.base.Places == nil {
		return false
	}
	serves, _ := derive.Get(r, t.serves, Self)
	return serves
}

// serviceNetwork reports whether a Service is in a network of tenants. It also returns the network that connections
// from outside enter. They reach only Pods of this Node, so the network is 0 if the Node has no such Pods.
func (t *tenantTables) serviceNetwork(r *derive.Reader, key derive.Object) (bool, tenant.ID) {
	place := t.placeOf(r, key.Namespace)
	if !place.Isolated() || key == tenant.APIServer {
		return false, 0
	}
	if !t.servesTenants(r) {
		return true, 0
	}
	return true, place.ID
}

// tenantBase returns the flows that a Node with a Pod in any network of tenants needs, and the flows of all Services in
// such networks.
func (t *tenantTables) tenantBase(_ derive.Name, r *derive.Reader) (flow.Entries, []problem.Problem) {
	n := t.base.self(r)
	var flows []flow.Flow
	if len(derive.All(r, t.offers)) > 0 {
		flows = onlyInside(n)
	}
	flows = append(flows, t.fromOtherClusters(r, n)...)
	if !t.servesTenants(r) {
		return flow.Entries{Flows: flows}, nil
	}
	virtual := t.entersVirtual(r) || t.farOf(r).virtual
	flows = append(flows, tenantBase(n, virtual)...)
	if virtual {
		flows = append(flows, aroundServices())
	}
	if t.entersSeparate(r) {
		own := separateBase(n)
		if t.base.observes(r) {
			reportOpened(own)
		}
		flows = append(flows, own...)
	}
	for _, cidr := range t.otherClusters(r) { // they are not outside
		flows = append(flows, flow.Flow{Table: Tenant, Priority: closed, Match: flow.All(flow.IPDst(cidr.Masked()))})
	}
	return flow.Entries{Flows: append(flows, t.own.base(r, n)...)}, nil
}

// otherClusters returns the ranges of other clusters, sorted.
func (t *tenantTables) otherClusters(r *derive.Reader) (ranges []netip.Prefix) {
	part, _ := derive.Get(r, t.base.Peering.Part, Self)
	for _, c := range part.Closed {
		ranges = append(ranges, c.CIDRs...)
	}
	for _, peer := range derive.All(r, t.base.Peering.Peers) {
		ranges = append(ranges, peer.Value.CIDRs...)
	}
	return slices.Compact(slices.SortedFunc(slices.Values(ranges), netip.Prefix.Compare))
}

// tenantBase returns the flows of tenantTables.tenantBase, except flows for ranges of other clusters. With virtual,
// packets of a Pod without Services, or whose Services have ended, do not leave its VirtualNetwork.
func tenantBase(n Node, virtual bool) []flow.Flow {
	tenants := isTenant.Is(1)
	flows := []flow.Flow{
		{Table: Tenant},
		{Table: Route, Priority: apart, Match: flow.All(tenants), Actions: flow.Do(flow.Goto(Tenant))},
	}
	toHost := func(priority uint16, match ...flow.Cond) flow.Flow {
		return atTenant(n.toGateway(priority, 0, append(match, tenants)...))
	}
	for _, ip := range versions(n.Families) {
		toService := []flow.Cond{ip, tenants, flow.CTState("-rpl+trk"), markService.Is(1), markTenant.Is(0)}
		if virtual {
			toService = append(toService, isVirtual.Is(0))
		}
		flows = append(flows,
			flow.Flow{
				Table: Route, Priority: shares,
				Match:   flow.All(toService...),
				Actions: flow.Do(flow.Load(inTenant, 0), flow.Load(mayLeave, 0), flow.Resubmit(Route)),
			},
			// These are replies to the Pod's own Node, and to clients outside of the Pods' network, whose packets come through
			// the Node.
			toHost(origin, ip, flow.CTState("+rpl+trk"), markSource.Is(fromGateway)),
			toHost(last, ip, generated.Is(1)),
			toHost(last, ip, source.Is(fromPod), mayLeave.Is(1)),
		)
	}
	for _, f := range n.toUnowned() {
		f.Table = Tenant
		flows = append(flows, f)
	}
	for _, cidr := range n.ServiceCIDRs { // no Service has the address
		flows = append(flows, flow.Flow{Table: Tenant, Priority: closed, Match: flow.All(flow.IPDst(cidr.Masked()))})
	}
	for _, f := range arp(n) { // the addresses of the gateway port
		flows = append(flows, atTenant(f))
	}
	return flows
}

// onlyInside drops connections to a Service of tenants that come from the default network, from other clusters or from
// outside, since its endpoints may be on any Node. Endpoints in the network drop such connections themselves.
func onlyInside(n Node) (flows []flow.Flow) {
	drop := func(match ...flow.Cond) {
		flows = append(flows, flow.Flow{Table: Route, Priority: shares,
			Match: flow.All(append(match, isTenant.Is(0), flow.CTState("-rpl-inv+trk"), markTenant.Is(1))...)})
	}
	for _, ip := range versions(n.Families) {
		drop(ip, source.Is(fromPod))
		drop(ip, source.Is(fromPeer))
	}
	if n.Outside {
		for _, entries := range EntryRanges(n.Families) {
			drop(source.Is(fromGateway), flow.CTDst(entries))
		}
	}
	return flows
}

// enters moves connections from outside to a Service of tenants into the network of the Service. Connection tracking
// has the entry and the port for each packet of a connection, not only for the first one. These connections end when
// the Service is deleted.
func (s shared) enters(at address) (flows []flow.Flow) {
	if s.network == 0 || at.kind == service.ClusterIP {
		return nil
	}
	port := at.vip.Port()
	if at.isExternal() {
		port = uint16(at.entry)
	}
	for _, e := range Entries {
		if e.External != at.isExternal() || e.Addr.Is4() != at.vip.Addr().Is4() ||
			e.Own && at.clients == service.OtherClients || !e.Own && at.clients == service.OwnClients {
			continue
		}
		flows = append(flows, flow.Flow{
			Table: Route, Priority: enters,
			Match: flow.All(source.Is(fromGateway), isTenant.Is(0), markTenant.Is(1),
				flow.CTState("-rpl-inv+trk"), trackedTo(e.Addr),
				flow.Field(ofp.CTNwProto, []byte{protocolNumber(s.set.Protocol)}, nil),
				flow.Field(ofp.CTTpDst, binary.BigEndian.AppendUint16(nil, port), nil)),
			Actions: flow.Do(flow.Load(inTenant, network(s.network)), flow.Goto(Tenant)),
		})
	}
	return flows
}

// atTenant moves a flow to table Tenant. The flow's packets then continue after that table.
func atTenant(f flow.Flow) flow.Flow {
	f.Table, f.Actions = Tenant, slices.Clone(f.Actions)
	if end := len(f.Actions) - 1; end >= 0 {
		if to, ok := f.Actions[end].(ofp.GotoTable); ok {
			f.Actions[end] = flow.Resubmit(to.Table)
		}
	}
	return f
}

// intoTenant has flows that admit packets of another Node take the network from their MAC.
func intoTenant(flows []flow.Flow) []flow.Flow {
	for i := range flows {
		flows[i].Actions = append(flow.Do(flow.Move(numberInMAC, tenantID), flow.Load(isTenant, 1)), flows[i].Actions...)
	}
	return flows
}

// tenantNode returns the flows for packets of all networks of tenants to and from the Pods of another Node. They always
// go through the tunnel, since only there they have a number.
func (t *tenantTables) tenantNode(name derive.Name, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	n := t.base.self(r)
	serves, passes := t.servesTenants(r), t.passesTenants(r)
	if !serves && !passes || n.Tunnels.Port == 0 {
		return e, nil
	}
	remote, _ := derive.Get(r, t.base.RemoteNodes, name)
	for _, cidr := range t.base.rangesOf(r, remote) { // nodeFlows reports the others
		for _, from := range remote.sources() {
			e.Flows = append(e.Flows, intoTenant(n.acceptTunnel(host(from), normal, fromTunnel,
				flow.EthDstMasked(TenantMAC, tenantMACs), flow.IPSrc(cidr)))...)
		}
		l := nodeLink{n, remote}
		if serves {
			e.Flows = append(e.Flows, l.toTenants(cidr, flow.Do(flow.Move(senderKey, tunnelKey)), source.Is(fromPod)),
				l.toTenants(cidr, nil, generated.Is(1)))
		}
		if passes {
			e.Flows = append(e.Flows, fromPeerToTenants(cidr, Tenant),
				l.toTenants(cidr, nil, source.Is(fromPeer), flow.CTState("-trk")))
		}
	}
	return e, nil
}

// toTenants routes packets of all networks of tenants to Pods of another Node.
func (l nodeLink) toTenants(cidr netip.Prefix, more flow.Actions, match ...flow.Cond) flow.Flow {
	return l.toNetwork(isTenant.Is(1), cidr, more, match...)
}

// toNetwork does the same with packets of one network, or of all.
func (l nodeLink) toNetwork(of flow.Cond, cidr netip.Prefix, more flow.Actions, match ...flow.Cond) flow.Flow {
	f := l.node.throughTunnel(normal, TenantMAC, l.to.Address, 0, append(match, of, flow.IPDst(cidr))...)
	f.Actions = slices.Concat(more, f.Actions)
	return numbered(f)
}

// numbered moves a flow to table Tenant. Before its last action, the flow writes the number of the network into the
// destination MAC.
func numbered(f flow.Flow) flow.Flow {
	end := len(f.Actions) - 1
	f.Actions = slices.Concat(f.Actions[:end], flow.Do(flow.Move(tenantID, numberInMAC)), f.Actions[end:])
	return atTenant(f)
}

// network returns the register's value for a network.
func network(id tenant.ID) uint64 { return 1<<tenantID.Width | uint64(id) }

// tenantPod returns the flows of a Pod in a network of tenants. A closed Pod may send, but receives no packets.
func (p nodePod) tenantPod(place tenant.Place, identity podIdentity) (ServedPod, []problem.Problem) {
	enter := flow.Do(flow.Load(inTenant, network(place.ID)))
	place.Outside = place.Outside && (p.services || !p.pod.inVirtual())
	if place.Outside {
		enter = append(enter, flow.Load(mayLeave, 1))
	}
	switch {
	case p.services:
		enter = append(enter, flow.Load(isFirst, 1))
	case p.pod.inVirtual():
		enter = append(enter, intoVirtual(p.zone)...)
	}
	var from []tenant.ID // networks whose packets the Pod gets
	if !place.Closed() {
		from = append(slices.Clone(place.Joined), place.ID)
	}
	entering := func(f flow.Flow) flow.Flow {
		at := 0
		if _, ok := f.Actions[0].(ofp.Meter); ok { // a meter comes first
			at = 1
		}
		f.Actions = slices.Insert(slices.Clone(f.Actions), at, enter...)
		return f
	}
	flows := []flow.Flow{back(p.pod.Port)}
	for _, ip := range p.pod.IPs {
		flows = append(flows, entering(p.sends(ip, identity)),
			// The switch drops packets from the host with the Pod's address as their source: the host sends none in the Pod's
			// name. Otherwise the Pod's own packets could come back without a network.
			flow.Flow{Table: Classify, Priority: never, Match: flow.All(flow.InPort(p.node.GatewayPort), flow.IPSrc(host(ip)))})
		if ip.Is4() {
			f := entering(p.pod.asks(ip))
			f.Actions[len(f.Actions)-1] = flow.Goto(Tenant)
			flows = append(flows, f)
		}
		deliver := p.toPod(ip, identity.number)
		for _, id := range from {
			f := atTenant(deliver)
			f.Match = flow.All(inTenant.Is(network(id)), flow.IPDst(host(ip)))
			flows = append(flows, f)
			for _, f := range p.node.answer(ip, p.pod.MAC, asHost, inTenant.Is(network(id))) {
				flows = append(flows, atTenant(f))
			}
		}
		if p.pod.First {
			flows = append(flows, p.onlyItsHost(ip)...)
		}
		if len(from) == 0 || p.pod.inVirtual() && !p.pod.First {
			continue
		}
		flows = append(flows, p.node.answer(ip, p.pod.MAC, asHost, flow.InPort(p.node.GatewayPort))...)
		if !p.pod.First || p.services {
			itself := atTenant(p.toItself(ip))
			itself.Match = flow.All(isTenant.Is(1), flow.InPort(p.pod.Port), flow.CTState("-rpl+trk"), flow.IPDst(host(ip)))
			flows = append(flows, itself)
		}
		for _, match := range p.fromDefault(ip, place) {
			deliver.Match = flow.All(append(match, isTenant.Is(0), flow.IPDst(host(ip)))...)
			flows = append(flows, deliver)
		}
	}
	for _, f := range p.solicits() {
		if f.Table == ARP { // for its own address
			f = atTenant(f)
		} else {
			f = entering(f)
			end := len(f.Actions) - 1
			look := f.Actions[end].(ofp.CT)
			look.Table = Tenant
			f.Actions[end] = look
		}
		flows = append(flows, f)
	}
	if identity.egress {
		flows = append(flows, p.pod.mayReachItself()...)
	}
	var ps problem.List
	if p.pod.HostPorts {
		message := "its Namespace is isolated, and only processes of its Node reach it by a port of the Node: use a " +
			"Service of type NodePort with externalTrafficPolicy Local"
		if own := p.pod.own(); own != (derive.Object{}) {
			message = "it is in VirtualNetwork " + own.String() + ", and only processes of its Node reach it by a " +
				"port of the Node: remove hostPort, or run the Pod in another network"
		}
		ps.Add(problem.About("Pod", p.pod.Namespace, p.pod.Name), "spec.containers.ports.hostPort", reasonHostPortNotServed,
			message)
	}
	if p.taken.IsValid() {
		ps.Add(problem.About("Pod", p.pod.Namespace, p.pod.Name), "status.podIPs", reasonNoServices, "it reaches no "+
			"Services, nor cluster DNS: VirtualNetwork "+p.pod.Network.String()+" has an address that is in range "+
			p.taken.String()+" of this or another cluster: give that cluster another range, or create a Subnet and a "+
			"VirtualNetwork with another one, and the Pod again in it")
	}
	return ServedPod{Pod: p.pod, Served: true, Closed: place.Closed() || identity.number == unknownIdentity,
		Entries: flow.Entries{Flows: flows, Meters: p.meters()}}, ps
}

// fromDefault returns the packets of the default network that reach a Pod of a network of tenants: replies to its
// connections to Services, and outside if it may; the agent's refusals; and packets of its own Node, such as the
// kubelet's probes. A Pod whose own network is a VirtualNetwork gets no replies of connections that stay in its
// network. Without Services it gets only packets of its own Node.
func (p nodePod) fromDefault(ip netip.Addr, place tenant.Place) [][]flow.Cond {
	reply := flow.CTState("+rpl+trk")
	var out [][]flow.Cond
	switch {
	case !p.pod.First && !p.pod.isInside():
		out = [][]flow.Cond{{reply, markService.Is(1), markTenant.Is(0)}, {generated.Is(1)}}
	case p.services:
		out = [][]flow.Cond{{reply, markService.Is(1), markTenant.Is(0), markInside.Is(0)}, {generated.Is(1)}}
	}
	if place.Outside {
		out = append(out, []flow.Cond{reply, source.Is(fromGateway)})
	}
	for _, own := range p.node.GatewayIPs {
		if own.Is4() == ip.Is4() {
			out = append(out, []flow.Cond{flow.InPort(p.node.GatewayPort), flow.IPSrc(host(own)), forwarded.Is(0)})
		}
	}
	return out
}

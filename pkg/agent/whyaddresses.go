package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// whyAddresses finds the owners of addresses: Nodes, Pods, Services, other clusters.
type whyAddresses struct{ tables *tables }

// nodeOf returns the Node of a Pod, even of an unknown one, or of a host. For another machine it returns nothing.
func (a *whyAddresses) nodeOf(client whyEnd) string {
	switch n, _ := a.tables.node.Get(self); {
	case client.Cluster != "":
		return ""
	case client.Node != "":
		return client.Node
	case slices.Contains(n.GatewayIPs, client.ip), slices.Contains(n.NodePortAddresses, client.ip):
		return a.tables.nodeName
	}
	for _, row := range a.tables.nodes.All() {
		if slices.Contains(row.Value.Addresses, client.ip) || slices.Contains(a.gatewaysOf(row.Key.Name), client.ip) {
			return row.Key.Name
		}
	}
	return ""
}

// hostAt returns the Node whose host has an address outside of the Pods' network, or no name.
func (a *whyAddresses) hostAt(ip netip.Addr) string {
	if n, _ := a.tables.node.Get(self); slices.Contains(n.NodePortAddresses, ip) {
		return a.tables.nodeName
	}
	for _, row := range a.tables.nodes.All() {
		if slices.Contains(row.Value.Addresses, ip) {
			return row.Key.Name
		}
	}
	return ""
}

// fromOutside returns a Pod or the host of another Node as this Node sees it at one of its own addresses: as another
// machine. The Pod's host masquerades such a connection, and no tunnel is used.
func (a *whyAddresses) fromOutside(client whyEnd) (whyEnd, error) {
	ip := client.ip
	if isPod(client) && !a.tables.config.NoSNAT {
		node, _ := a.tables.nodes.Get(derive.Object{Name: client.Node})
		i := slices.IndexFunc(node.Internal, func(ip netip.Addr) bool { return ip.Is4() == client.ip.Is4() })
		if i < 0 {
			return whyEnd{}, fmt.Errorf("from: the Pod %s asks with an address of its Node %s, which has no InternalIP of that "+
				"version of IP: give the address instead of the Pod", client.ip, client.Node)
		}
		ip = node.Internal[i]
	}
	return whyEnd{WhyEnd: api.WhyEnd{Address: ip.String()}, ip: ip}, nil
}

// isPod reports whether a client is a Pod, known or not.
func isPod(client whyEnd) bool { return client.Node != "" && client.Kind != kindNode }

// frontendAt returns the Service that this Node serves at an address and port: a ClusterIP, an address for clients
// outside, or a node port at an address of this Node.
func (a *whyAddresses) frontendAt(protocol corev1.Protocol, at netip.AddrPort) (service.Frontend, bool) {
	if f, ok := a.tables.services.Find(protocol, at); ok {
		return f, true
	}
	n, _ := a.tables.node.Get(self)
	if !slices.Contains(n.NodePortAddresses, at.Addr()) {
		return service.Frontend{}, false
	}
	return a.nodePort(protocol, at)
}

// nodePort returns the Service that has a port as node port on all Nodes, of the address's version of IP.
func (a *whyAddresses) nodePort(protocol corev1.Protocol, at netip.AddrPort) (service.Frontend, bool) {
	any := netip.IPv4Unspecified()
	if !at.Addr().Is4() {
		any = netip.IPv6Unspecified()
	}
	f, ok := a.tables.services.Find(protocol, netip.AddrPortFrom(any, at.Port()))
	return f, ok && f.Kind == service.NodePort
}

// forClient returns the frontend at the same address for the client. There may be one for the Node's own clients, and
// one for others.
func (a *whyAddresses) forClient(f service.Frontend, own bool) service.Frontend {
	clients := service.OtherClients
	if own {
		clients = service.OwnClients
	}
	all, _ := a.tables.services.Frontends.Get(derive.Object{Namespace: f.Namespace, Name: f.Service})
	for _, g := range all {
		if g.Protocol == f.Protocol && g.VIP == f.VIP && g.Clients == clients {
			return g
		}
	}
	return f
}

// seenAs returns the source of a connection as the server sees it. If the client is outside and the endpoint is not on
// the Node that judges, the source is an address of that Node.
func (a *whyAddresses) seenAs(d whyDestination) netip.Addr {
	from := d.client
	// This Node has no facts about the path between two other Nodes. It assumes no tunnel if packets from here to both go
	// without one.
	direct := func(node string) bool {
		remote, _ := a.tables.remotes.Get(derive.Name(node))
		return node == a.tables.nodeName || remote.DirectTo(from.ip)
	}
	switch {
	case d.judge == "" || isPod(from) || d.end.Node == "" || d.end.Node == d.judge:
		return from.ip
	case direct(d.judge) && direct(d.end.Node), slices.Contains(a.gatewaysOf(d.judge), from.ip):
		return from.ip
	}
	if source := a.serviceSourceOf(d.judge, from.ip.Is4()); source.IsValid() {
		return source
	}
	return from.ip
}

// serviceSourceOf returns the service source of a Node, of IPv4 or IPv6.
func (a *whyAddresses) serviceSourceOf(node string, is4 bool) netip.Addr {
	switch n, _ := a.tables.node.Get(self); {
	case node == n.Name && is4:
		return n.ServiceSource
	case node == n.Name:
		return n.ServiceSource6
	}
	remote, _ := a.tables.remotes.Get(derive.Name(node))
	for _, cidr := range remote.PodCIDRs {
		if source, ok := policy.ServiceSource(cidr); ok && source.Is4() == is4 {
			return source
		}
	}
	return netip.Addr{}
}

func (a *whyAddresses) gatewayIP() netip.Addr {
	p, _ := a.tables.peers.peering.Get(self)
	return p.Part.End
}

// gatewaysOf are the addresses of a Node's gateway port.
func (a *whyAddresses) gatewaysOf(node string) []netip.Addr {
	if n, _ := a.tables.node.Get(self); n.Name == node {
		return n.GatewayIPs
	}
	n, _ := a.tables.remotes.Get(derive.Name(node))
	return n.GatewayIPs
}

// endIn returns the owner of an address in a network. The addresses of a separate network belong to Pods of its zone
// alone. For other networks, and the zero value, all addresses are looked up.
func (a *whyAddresses) endIn(network derive.Object, ip netip.Addr) whyEnd {
	if !a.isSeparate(network) {
		return a.endAt(ip)
	}
	if e, ok := a.furtherAt(network, ip); ok {
		return e
	}
	return whyEnd{WhyEnd: api.WhyEnd{Address: ip.String()}, ip: ip}
}

// isSeparate reports whether other networks may have the addresses of a network, too.
func (a *whyAddresses) isSeparate(network derive.Object) bool {
	return a.tables.objects.networks.separate.zoneOf(network) != 0
}

// endAt returns the owner of an address. Addresses of separate networks are not among them, since they may have several
// owners.
func (a *whyAddresses) endAt(ip netip.Addr) whyEnd {
	e := whyEnd{WhyEnd: api.WhyEnd{Address: ip.String()}, ip: ip}
	who, occupied := a.tables.policies.OccupantAt(ip)
	further, inBlock := a.furtherAt(derive.Object{}, ip)
	switch claims := a.tables.policies.Claims(ip); {
	case occupied && who.Known:
		f, _ := a.tables.policies.Pods.Get(who.Pod)
		e.Kind, e.Name, e.Node, e.pod, e.facts = "Pod", who.Pod.String(), f.Node, who.Pod, &f
		return e
	case occupied:
		e.Kind, e.Name, e.Node, e.foreign = "Pod", who.Pod.String(), a.tables.nodeName, true
		e.note = fmt.Sprintf("%s is of interface %s here, whose Pod %s the API server does not have on this Node with its "+
			"UID: "+
			"it was deleted by force, or is not scheduled yet", ip, who.Port, who.Pod)
		return e
	case inBlock && further.first && slices.Contains(claims, further.pod):
		return further
	case len(claims) > 0:
		e.note = fmt.Sprintf("the status of %v has %s, which the Pod's Node cannot have (podCIDRs): "+
			"for policies it is none of these Pods", claims, ip)
		return e
	case a.tables.policies.IsUnknownPod(ip):
		e.Node = a.tables.policies.NodeAt(ip)
		e.note = fmt.Sprintf("%s is that of an unknown Pod: it is in a podCIDR of Node %s, and no Pod with it is known. "+
			"Rules that deny Pods by their labels deny it, and no rule allows it by labels", ip, e.Node)
		return e
	}
	p, _ := a.tables.peers.peering.Get(self)
	for _, peer := range p.Peers {
		isGateway := slices.ContainsFunc(peer.Gateways, func(w peering.Way) bool { return w.End() == ip })
		if isGateway || slices.ContainsFunc(peer.CIDRs, func(r netip.Prefix) bool { return r.Contains(ip) }) {
			e.Cluster = peer.ClusterID
			return e
		}
	}
	for _, c := range p.Part.Closed {
		if slices.ContainsFunc(c.CIDRs, func(r netip.Prefix) bool { return r.Contains(ip) }) {
			e.note = fmt.Sprintf("packets to %s are dropped in table Route: it is of cluster %s, which is reached encrypted "+
				"or not at all, and there is no way to it: see `tombolo get status`", ip, c.ClusterID)
			return e
		}
	}
	if inBlock {
		return further
	}
	return e
}

// further returns the Pod and the block that have an address in the zone of a VirtualNetwork. The zero value of network
// stands for all networks that are not separate.
func (a *whyAddresses) further(network derive.Object, ip netip.Addr) (policy.Occupant, bool, policy.NodeBlock) {
	v := a.tables.policies.Virtual
	separate := a.tables.objects.networks.separate
	if zone := separate.zoneOf(network); zone != 0 {
		network = cmp.Or(separate.holder(zone, ip), network)
		who, occupied := v.PodIn(network, ip)
		return who, occupied, v.BlockIn(network, ip)
	}
	who, occupied := v.PodAt(ip)
	return who, occupied, v.BlockAt(ip)
}

// apart returns an error for ends in two zones. In the network of the first end, the address of the second end may
// belong to another Pod. So no packet can be to the second end.
func (a *whyAddresses) apart(from, to api.WhyEnd) error {
	zone := func(e api.WhyEnd) uint16 {
		namespace, name, _ := strings.Cut(e.Network, "/")
		return a.tables.objects.networks.separate.zoneOf(derive.Object{Namespace: namespace, Name: name})
	}
	if from.Network == "" || to.Network == "" || zone(from) == zone(to) {
		return nil
	}
	return fmt.Errorf("to: a packet to %s in VirtualNetwork %s does not go to %s in VirtualNetwork %s, whose range other "+
		"networks may have, too: `tombolo policy why` names the reason", to.Address, from.Network, to.Name, to.Network)
}

// furtherAt returns the further interface that has an address, which may be in a block without a known Pod. If the
// network is separate, only addresses of its zone are found. Otherwise these of networks that are not separate are.
func (a *whyAddresses) furtherAt(network derive.Object, ip netip.Addr) (e whyEnd, ok bool) {
	if a.tables.tenants == nil {
		return e, false
	}
	e = whyEnd{WhyEnd: api.WhyEnd{Kind: "Pod", Address: ip.String()}, ip: ip}
	who, occupied, block := a.further(network, ip)
	switch e.network = who.Network; {
	case occupied && who.Known:
		f, _ := a.tables.policies.Pods.Get(who.Pod)
		e.Name, e.Node, e.pod, e.facts = who.Pod.String(), f.Node, who.Pod, &f
		e.first = a.isFirst(e.network, ip, f)
	case occupied:
		e.Name, e.Node, e.foreign = who.Pod.String(), a.tables.nodeName, true
		e.note = fmt.Sprintf("%s is of interface %s here, whose Pod %s the API server does not have on this Node with its "+
			"UID: it was deleted by force, or is not scheduled yet", ip, who.Port, who.Pod)
	case block.Node != "":
		e.network, e.Kind, e.Node = block.Network, "", block.Node
		e.note = fmt.Sprintf("%s is that of an unknown Pod in VirtualNetwork %s: it is in a block of Node %s, and no Pod "+
			"with it is known. Rules that deny Pods by their labels deny it, and no rule allows it by labels", ip, block.Network,
			e.Node)
	default:
		return whyEnd{}, false
	}
	e.Network = e.network.String()
	return e, true
}

// isFirst reports whether an address in a VirtualNetwork belongs to a Pod's first interface. The Pod's status has the
// address of a first interface. On the Pod's own Node the interface itself has it. Separate networks have no first
// interfaces.
func (a *whyAddresses) isFirst(network derive.Object, ip netip.Addr, f policy.PodFacts) bool {
	if a.isSeparate(network) {
		return false
	}
	if f.Node != a.tables.nodeName {
		return slices.Contains(f.IPs, ip)
	}
	for _, row := range a.tables.pods.firsts.All() {
		if slices.Contains(row.Value.IPs, ip) {
			return true
		}
	}
	return false
}

// isGateway reports whether an address is of a Node's gateway port.
func (a *whyAddresses) isGateway(ip netip.Addr) bool {
	if slices.Contains(a.gatewaysOf(a.tables.nodeName), ip) {
		return true
	}
	return slices.ContainsFunc(a.tables.remotes.All(), func(row derive.Row[derive.Name, datapath.RemoteNode]) bool {
		return slices.Contains(row.Value.GatewayIPs, ip)
	})
}

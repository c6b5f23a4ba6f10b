package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// whyNetworks decides for the networks of tenants.
type whyNetworks struct {
	tables    *tables
	addresses *whyAddresses
}

// placeOf returns the network of a Namespace. A Namespace that is not known has no place.
func (a *whyNetworks) placeOf(namespace string) tenant.Place {
	place, _ := a.tables.tenants.Places.Get(derive.Object{Name: namespace})
	return place
}

// insideOf returns the VirtualNetwork that packets of a Pod's first interface are in, if the interface has addresses of
// the Node. It returns false for other Pods.
func (a *whyNetworks) insideOf(pod string) (network derive.Object, ok bool) {
	for _, row := range a.tables.pods.rows.All() {
		if p := row.Value; p.Inside != (derive.Object{}) && p.Namespace+"/"+p.Name == pod {
			return p.Inside, true
		}
	}
	for _, row := range a.tables.policies.Further.All() {
		if row.Key.Name == a.tables.nodeName {
			continue
		}
		for _, f := range row.Value {
			if f.Own && f.Pod.String() == pod {
				return f.Network, true
			}
		}
	}
	return network, false
}

// podPlace returns the network of a Pod's first interface that is not in a VirtualNetwork with an address of it. own is
// set if the packets are in the Pod's own VirtualNetwork.
func (a *whyNetworks) podPlace(pod string) (place tenant.Place, own bool) {
	if network, ok := a.insideOf(pod); ok {
		return a.placeIn(network), true
	}
	return a.placeOf(namespaceOf(pod)), false
}

// placeIn returns the network of a VirtualNetwork. One that is gone has no place.
func (a *whyNetworks) placeIn(network derive.Object) tenant.Place {
	v, ok := a.tables.tenants.VirtualNetworks.Get(network)
	if !ok || !v.Place.Known {
		return tenant.Place{Known: true, Network: tenant.VirtualName(network)}
	}
	return v.Place
}

// servicePlace returns the network of a Service, as connections to it see it.
func (a *whyNetworks) servicePlace(key derive.Object) tenant.Place {
	if key == tenant.APIServer {
		return tenant.Place{Known: true}
	}
	return a.placeOf(key.Namespace)
}

// confines reports whether a Service leads a Pod whose own network is a VirtualNetwork to Pods there alone. Nodes with
// such Pods decide it for all Namespaces of such networks. The Pod's own Namespace is one of them in any case.
func (a *whyNetworks) confines(key derive.Object, client string) bool {
	if key == tenant.APIServer {
		return false
	}
	return key.Namespace == client || slices.ContainsFunc(a.tables.tenants.VirtualNetworks.All(),
		func(row derive.Row[derive.Object, tenant.VirtualNetwork]) bool {
			return row.Key.Namespace == key.Namespace && row.Value.Own
		})
}

// networkEnd returns an end of a connection for the decision of the networks.
func (a *whyNetworks) networkEnd(e whyEnd) tenant.End {
	within := func(p netip.Prefix) bool { return p.Contains(e.ip) }
	ranges, _ := a.tables.ranges.rows.Get(self)
	p, _ := a.tables.peers.peering.Get(self)
	n, _ := a.tables.node.Get(self)
	reached := func(p peering.Peer) bool { return slices.ContainsFunc(p.CIDRs, within) }
	unreached := func(c peering.Closed) bool { return slices.ContainsFunc(c.CIDRs, within) }
	out := tenant.End{Name: e.Kind + " " + e.Name, Node: e.Node}
	switch {
	case e.network != derive.Object{}:
		if e.Kind == "" {
			out.Name = "the unknown Pod at " + e.ip.String()
		}
		out.Kind, out.Place, out.First = tenant.Pod, a.placeIn(e.network), e.first
		if e.first {
			out.Taken, _ = a.tables.flows.TakenOf([]netip.Addr{e.ip})
		}
	case e.Kind == "Pod":
		out.Kind = tenant.Pod
		out.Place, out.First = a.podPlace(e.Name)
	case slices.ContainsFunc(p.Peers, reached), slices.ContainsFunc(p.Part.Closed, unreached):
		out.Kind = tenant.Elsewhere
		// Networks of tenants reach only Pods, through peers that do not translate packets between Pods.
		if i := slices.IndexFunc(p.Peers, reached); i >= 0 && p.Peers[i].Active &&
			slices.ContainsFunc(p.Peers[i].Pods, within) {
			out.Cluster = p.Peers[i].ClusterID
		}
	case a.tables.policies.IsUnknownPod(e.ip), a.addresses.isGateway(e.ip), slices.ContainsFunc(ranges, within),
		n.Unroutable(e.ip):
		out.Kind, out.Node = tenant.Inside, a.tables.policies.NodeAt(e.ip)
	}
	return out
}

// clientEnd returns the client of a connection as the packets show it at the switch that decides.
func (a *whyNetworks) clientEnd(d whyDestination) tenant.End {
	out := a.networkEnd(d.client)
	switch {
	case out.Kind == tenant.Pod:
	case isPod(d.client): // not known
		out.Kind, out.Place = tenant.Pod, tenant.Place{Known: true}
	case slices.Contains(a.addresses.gatewaysOf(d.end.Node), d.client.ip):
		out.Kind = tenant.OwnHost
	case d.judge == "" && (d.client.Cluster != "" || out.Kind == tenant.Elsewhere):
		out.Kind = tenant.Elsewhere // a Gateway's address stands for Pods of its cluster
	default:
		out.Kind = tenant.Outside
	}
	return out
}

// joinedFar returns an end as one in another cluster, if its address is in a VirtualNetwork there that is joined with
// the network of the other end. For other networks the address belongs to another machine.
func (a *whyNetworks) joinedFar(e tenant.End, ip netip.Addr, other tenant.End) tenant.End {
	if e.Kind == tenant.Pod || other.Kind != tenant.Pod || other.Place.Closed() || !other.Place.Isolated() {
		return e
	}
	for _, row := range a.tables.tenants.Remotes.All() {
		for _, v := range row.Value.Virtual {
			if v.CIDR.Contains(ip) && slices.Contains(v.To, other.Place.ID) && a.tables.flows.IsFar(v.CIDR) {
				e.Kind, e.Cluster, e.Joined = tenant.Elsewhere, string(row.Key), true
				return e
			}
		}
	}
	return e
}

// networkOf returns the decision of the networks of tenants about a connection. If they do not decide about it, the
// result has no reason.
func (a *whyNetworks) networkOf(from whyEnd, q whyQuestion, d whyDestination) tenant.Decision {
	if a.tables.tenants == nil {
		return tenant.Decision{Allowed: true}
	}
	if d.outside { // first it leaves its network for an address of this Node
		if out := (tenant.Connection{Client: a.networkEnd(from)}).Decide(); !out.Allowed {
			return out
		}
	}
	c := tenant.Connection{Client: a.clientEnd(d), Server: a.networkEnd(d.end)}
	if d.judge == "" {
		c.Client, c.Server = a.joinedFar(c.Client, d.client.ip, c.Server), a.joinedFar(c.Server, d.end.ip, c.Client)
	}
	if q.to.service() != nil {
		place := a.servicePlace(*q.to.service())
		c.Service = &place
		c.Inside = c.Client.First && a.confines(*q.to.service(), namespaceOf(from.Name))
	}
	if c.Client.Kind != tenant.Pod {
		c.Entered = d.judge
	}
	return c.Decide()
}

// networkStage returns the stage of a decision of the networks.
func (a *whyNetworks) networkStage(d tenant.Decision) api.WhyStage {
	return api.WhyStage{Direction: api.DirectionNetwork, Node: d.Node, Here: d.Node == a.tables.nodeName,
		Allowed: d.Allowed, Reason: d.Reason}
}

// toTenants begins the destination MAC of packets in a network of tenants between Nodes, in the text of ofproto/trace.
// The last 25 bits of the MAC have the number of the network.
var toTenants = ",dl_dst=" + datapath.TenantMAC.String()[:len("02:54:4")]

// inNetwork returns the destination MAC and the headers of a connection's first packet in its network. mac is the
// destination MAC of the same packet in the default network.
func (a *whyPackets) inNetwork(from api.WhyEnd, c api.WhyConnection, mac string) (string, string, error) {
	var network, owner tenant.Place
	first, inside := false, false
	switch namespace, name, further := strings.Cut(from.Network, "/"); {
	case further:
		network = a.networks.placeIn(derive.Object{Namespace: namespace, Name: name})
		if first = a.isFirst(from); !first {
			c.Asked = "" // no Service answers
		}
	case from.Kind == "Pod":
		network, first = a.networks.podPlace(from.Name)
	}
	mark := ""
	if asked, err := netip.ParseAddrPort(c.Asked); err == nil {
		protocol := corev1.Protocol(c.Protocol)
		f, ok := a.addresses.frontendAt(protocol, asked)
		if ok {
			key := derive.Object{Namespace: f.Namespace, Name: f.Service}
			owner = a.networks.servicePlace(key)
			inside = first && !owner.Isolated() && a.networks.confines(key, namespaceOf(from.Name))
		}
		if network.Isolated() || owner.Isolated() {
			mark = fmt.Sprintf(",ct_mark=%#x", datapath.ServiceMark(owner.Isolated(), inside))
		}
		if owner.Isolated() && from.Kind != "Pod" && f.Kind != service.ClusterIP {
			entry, err := a.entryOf(from, protocol, asked) // connection tracking has it, as the host has translated it
			if err != nil {
				return "", "", err
			}
			c.Asked = entry.String()
		}
		if !owner.Isolated() && !inside {
			network = tenant.Place{}
		}
	}
	if network.Isolated() && from.Node != a.tables.nodeName {
		mac = datapath.MACOf(network.ID).String()
	}
	headers, err := headersOf(from, c)
	return mac, headers + mark, err
}

// isFirst reports whether a client is the first interface of a Pod in a VirtualNetwork.
func (a *whyPackets) isFirst(from api.WhyEnd) bool {
	ip, err := netip.ParseAddr(from.Address)
	if err != nil {
		return false
	}
	namespace, name, _ := strings.Cut(from.Network, "/")
	e, ok := a.addresses.furtherAt(derive.Object{Namespace: namespace, Name: name}, ip)
	return ok && e.first
}

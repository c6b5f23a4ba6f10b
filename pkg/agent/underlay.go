package agent

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Underlay is the Node's network to the other Nodes.
type Underlay struct {
	Read bool       // there is always a row once it was read
	Of   netip.Addr // the InternalIP of the interface; the zero address with a transportInterface
	// Uplink is the interface that the switch takes over (userspace datapath with a transportInterface). It is nil if the
	// kernel keeps the interface.
	Uplink *hostnet.Transport
	// MTU is the MTU of the interface that carries the tunnels. That is the transportInterface, else the interface with
	// the Node's InternalIP. It is 0 while it is unknown.
	MTU int
	// Link is the link through which the host itself reaches the other Nodes: the interface that carries the tunnels, or
	// the bridge that has taken it over.
	Link string
	// Addresses are the addresses of the transportInterface if the kernel keeps it.
	Addresses []netip.Prefix
	// Local are all addresses of the Node but link-local addresses of IPv6.
	Local []netip.Addr
	// NoIPv6 is set if the kernel has no IPv6, or if it is switched off.
	NoIPv6 bool
	// NodesOver6 is set if tunnels from other Nodes to this one are over IPv6. PeersOver6 is set if tunnels between
	// clusters are.
	NodesOver6, PeersOver6 bool
	// Networks are the networks that the interface is attached to.
	Networks []netip.Prefix
}

// useTransportAddresses makes the ways between clusters follow the Nodes' transport addresses. A Gateway object has the
// Gateway Node's InternalIP, and tunnels may not end there.
func (t *peerTables) useTransportAddresses(p *peering.Peering, r *derive.Reader, ps *problems) {
	for _, g := range p.Part.Gateways {
		n, known := derive.Get(r, t.nodes, derive.Object{Name: g.Name})
		end, ok, _ := n.tunnelEnd()
		internal, _ := n.internalIP()
		if p.Part.Role != peering.Gateway || g.Name != p.Part.Gateway.Name {
			to := g.InternalIP
			if known && ok && end != internal {
				to = end
			}
			if t.config.EncryptsNodes() || n.WireGuardKey != "" {
				to = peering.InsideOfNode(to) // no packet goes there in plain text, even if the address cannot be reached
			}
			if to != g.InternalIP {
				p.SetInternalIP(g.Name, to)
			}
			continue
		}
		if !known || !ok {
			continue
		}
		if local := t.this.transportAddress(r, new(problems)); local.IsValid() && g.GatewayIP == internal &&
			g.GatewayIP != local {
			ps.report(problem.Object{Kind: "Gateway", Name: g.Name}, "gatewayIP", reasonGatewayAddressNotServed,
				"the other clusters send tunnel packets to %s, and this Node's tunnels end at %s, the address of "+
					"transportInterface: run kubectl annotate --overwrite node %s multicluster.antrea.io/gateway-ip=%s",
				g.GatewayIP, local, g.Name, local)
		}
	}
}

// uplinkBridge is the name of the bridge that takes an interface over.
func uplinkBridge(iface string) string { return "br-" + iface }

// tunnels returns the far ends of the switch's tunnels, for the bridge that has taken over the uplink.
func (o *outputs) tunnels(r *derive.Reader) hostnet.Tunnels {
	out := hostnet.Tunnels{Link: uplinkBridge(o.from.config.TransportInterface)}
	if o.from.config.EncryptsNodes() {
		e, _ := derive.Get(r, o.from.inside.encrypted, self)
		for _, n := range e.of(betweenNodes).Peers {
			out.Peers = append(out.Peers, n.Endpoint.Addr())
		}
	} else {
		for _, n := range derive.All(r, o.from.remotes) {
			out.Peers = append(out.Peers, n.Value.Address)
		}
	}
	p, _ := derive.Get(r, o.from.peers.clusters.Part, self)
	for _, peer := range derive.All(r, o.from.peers.clusters.Peers) {
		for _, w := range p.Ways(peer.Value) {
			out.Peers = append(out.Peers, w.Outside)
		}
	}
	return out
}

// takeover names the bridge and the links that move the uplink onto a bridge of the userspace datapath.
type takeover struct {
	Bridge bridge.Bridge
	Links  []hostnet.Link
	Routes []hostnet.Route
}

// takeoverOf returns how the uplink is moved. The addresses move only once the OVSDB has a record of them. If an agent
// is killed between the two, its successor must find them.
func (o *outputs) takeoverOf(_ derive.Name, r *derive.Reader) (takeover, []problem.Problem) {
	_, u, ok := o.from.this.ready(r)
	if !ok || u.Uplink == nil {
		return takeover{}, nil
	}
	iface := o.from.config.TransportInterface
	name := uplinkBridge(iface)
	record, _ := derive.Get(r, o.from.this.record, self)
	recorded := map[string]string{}
	for key, text := range map[string]string{hostnet.UplinkAddressesKey: record.Addresses,
		hostnet.UplinkRoutesKey: record.Routes} {
		if text != "" {
			recorded[key] = text
		}
	}
	moved, err := hostnet.PlanUplink(name, recorded, *u.Uplink)
	if err != nil {
		var ps problems
		ps.report(o.from.this.object(), "transportInterface", reasonUplinkNotTakenOver,
			"%v: give interface %s an address, or name another in antrea-agent.conf", err, iface)
		return takeover{}, ps
	}
	out := takeover{Bridge: bridge.Bridge{
		Name:         name,
		DatapathType: "netdev",
		FailMode:     "standalone",
		HardwareAddr: moved.HardwareAddr,
		ExternalIDs:  moved.ExternalIDs,
		Ports: []bridge.Port{
			{Name: iface, ExternalIDs: map[string]string{externalIDType: typeUplink}},
			{Name: name, MTU: moved.MTU},
		},
	}}
	if record.Addresses != "" {
		out.Links, out.Routes = moved.Links, moved.Routes
	}
	return out, nil
}

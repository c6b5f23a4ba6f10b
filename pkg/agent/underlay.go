package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Underlay is what the Node says about its way to the other Nodes.
type Underlay struct {
	Read bool       // there is always a row once it was read
	Of   netip.Addr // the InternalIP whose interface it is; none with a transportInterface
	// Uplink is the interface that the switch takes over (userspace datapath with a
	// transportInterface); nil when the kernel keeps it.
	Uplink *hostnet.Transport
	// MTU of the interface that carries the tunnels: the transportInterface, else the one with
	// the Node's InternalIP; 0 when it is not known yet.
	MTU int
	// Addresses of the transportInterface where the kernel keeps it.
	Addresses []netip.Prefix
	// Local are all IPv4 addresses of the Node.
	Local []netip.Addr
	// Networks are the networks that the interface is attached to.
	Networks []netip.Prefix
}

// readUnderlay reads the interface that carries the Node's tunnels: the transportInterface, else the
// one with the Node's InternalIP, if that is known.
func (t *tables) readUnderlay() (Underlay, error) {
	name := t.config.TransportInterface
	u := Underlay{Read: true}
	if name == "" {
		node, known := t.nodes.Get(derive.Object{Name: t.nodeName})
		if !known {
			last, _ := t.last.Get(self)
			node = last.Node
		}
		ip, ok := node.internalIP()
		if !ok {
			return u, nil // the kubelet has not written it yet
		}
		found, err := hostnet.InterfaceWith(ip)
		if err != nil {
			return u, fmt.Errorf("find the interface of the Node's InternalIP %s: %w", ip, err)
		}
		name, u.Of = found, ip
	}
	var err error
	if u.Local, err = hostnet.Addresses(); err != nil {
		return u, err
	}
	link, err := hostnet.ReadTransport(name)
	if err != nil {
		return u, fmt.Errorf("read interface %s, which carries the tunnels: %w", name, err)
	}
	u.MTU, u.Networks = link.MTU, link.Addresses
	switch {
	case t.config.TransportInterface == "":
	case t.config.OVSDatapathType == "netdev":
		u.Uplink = &link
		// The addresses are with the bridge once it has taken the interface over.
		if b, err := hostnet.ReadTransport(uplinkBridge(name)); err == nil {
			u.Networks = slices.Concat(link.Addresses, b.Addresses)
		}
	default:
		u.Addresses = link.Addresses
	}
	return u, nil
}

// transportAddress returns where this Node's tunnels end on the kernel's datapath: the address of
// the transportInterface that the other Nodes send to. It is the zero address without a
// transportInterface, and while the Node does not announce an address of it: tunnels then end at
// any address of the Node.
func (t *tables) transportAddress(r *derive.Reader, ps *problems) netip.Addr {
	name := t.config.TransportInterface
	node, u, known := t.ready(r)
	if name == "" || t.config.OVSDatapathType != "system" || !known {
		return netip.Addr{}
	}
	end, ok, _ := node.tunnelEnd() // nodeOf reports a bad annotation
	var own []string
	for _, p := range u.Addresses {
		switch {
		case ok && p.Addr() == end:
			return end
		case service.Served(p.Addr()) && p.Addr().IsGlobalUnicast():
			own = append(own, p.Addr().String())
		}
	}
	if len(own) == 0 {
		ps.report(t.object(), "transportInterface", "NoTransportAddress",
			"interface %s has no IPv4 address that tunnels can end at, they use the Node's InternalIP: give it an address, or name another interface in antrea-agent.conf", name)
		return netip.Addr{}
	}
	ps.report(t.object(), "transportInterface", "TransportAddressNotAnnounced",
		"the other Nodes send tunnel packets to %s, which is not an address of interface %s: run kubectl annotate --overwrite node %s %s=%s, or remove transportInterface from antrea-agent.conf",
		end, name, t.nodeName, transportAddresses, own[0])
	return netip.Addr{}
}

// tunnelSources returns the addresses that this Node's tunnel packets come from: to other Nodes the
// one that they send to, and from the Gateway to other clusters the Gateway's. The receivers drop
// packets from others, and a host with several addresses may prefer another. An address that the
// host does not have cannot be set: it is the public one of a Gateway behind NAT, or a mistake.
func (t *tables) tunnelSources(gateway netip.Addr, r *derive.Reader, ps *problems) (nodes, peers netip.Addr) {
	node, u, known := t.ready(r)
	if !known || len(u.Local) == 0 {
		return nodes, peers // not read yet
	}
	end, ok, _ := node.tunnelEnd() // nodeOf reports a bad annotation
	switch {
	case !ok:
	case slices.Contains(u.Local, end):
		nodes = end
	case t.config.TransportInterface == "" || t.config.OVSDatapathType != "system": // else transportAddress reports it
		ps.report(t.object(), "metadata.annotations", "TunnelEndNotLocal",
			"the other Nodes send tunnel packets to %s and take them from there, but this Node has no such address, so its packets may be dropped: run kubectl annotate --overwrite node %s %s=ADDRESS with an address of the Node",
			end, t.nodeName, transportAddresses)
	}
	peers = nodes
	if slices.Contains(u.Local, gateway) {
		peers = gateway
	}
	return nodes, peers
}

// useTransportAddresses makes the ways between clusters follow the Nodes' transport addresses: a
// Gateway object has the Gateway Node's InternalIP, where no tunnel may end.
func (t *tables) useTransportAddresses(p *peering.Peering, r *derive.Reader, ps *problems) {
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
				to = peering.InsideOfNode(to) // nothing goes there in plain text, whether it can be reached or not
			}
			if to != g.InternalIP {
				p.SetInternalIP(g.Name, to)
			}
			continue
		}
		if !known || !ok {
			continue
		}
		if local := t.transportAddress(r, new(problems)); local.IsValid() && g.GatewayIP == internal && g.GatewayIP != local {
			ps.report(problem.Object{Kind: "Gateway", Name: g.Name}, "gatewayIP", "GatewayAddressNotServed",
				"the other clusters send tunnel packets to %s, and this Node's tunnels end at %s, the address of transportInterface: run kubectl annotate --overwrite node %s multicluster.antrea.io/gateway-ip=%s",
				g.GatewayIP, local, g.Name, local)
		}
	}
}

// uplinkBridge is the name of the bridge that takes an interface over.
func uplinkBridge(iface string) string { return "br-" + iface }

// tunnels says where the switch's tunnels end, by the bridge that has taken the uplink over.
func (t *tables) tunnels(r *derive.Reader) hostnet.Tunnels {
	out := hostnet.Tunnels{Link: uplinkBridge(t.config.TransportInterface)}
	if t.config.EncryptsNodes() {
		e, _ := derive.Get(r, t.encrypted, self)
		for _, n := range e.of(betweenNodes).Peers {
			out.Peers = append(out.Peers, n.Endpoint.Addr())
		}
	} else {
		for _, n := range derive.All(r, t.remotes) {
			out.Peers = append(out.Peers, n.Value.Address)
		}
	}
	p, _ := derive.Get(r, t.clusters.Part, self)
	for _, peer := range derive.All(r, t.clusters.Peers) {
		for _, w := range p.Ways(peer.Value) {
			out.Peers = append(out.Peers, w.Outside)
		}
	}
	return out
}

// takeover is what moves the uplink onto a bridge of the userspace datapath.
type takeover struct {
	Bridge bridge.Bridge
	Links  []hostnet.Link
	Routes []hostnet.Route
}

// takeoverOf says how the uplink is moved. The addresses move only when the OVSDB holds the record of
// them: an agent that is killed between the two must find them again.
func (t *tables) takeoverOf(_ derive.Name, r *derive.Reader) (takeover, []problem.Problem) {
	_, u, ok := t.ready(r)
	if !ok || u.Uplink == nil {
		return takeover{}, nil
	}
	iface := t.config.TransportInterface
	name := uplinkBridge(iface)
	record, _ := derive.Get(r, t.record, self)
	recorded := map[string]string{}
	for key, text := range map[string]string{hostnet.UplinkAddressesKey: record.Addresses, hostnet.UplinkRoutesKey: record.Routes} {
		if text != "" {
			recorded[key] = text
		}
	}
	moved, err := hostnet.PlanUplink(name, recorded, *u.Uplink)
	if err != nil {
		var ps problems
		ps.report(t.object(), "transportInterface", "UplinkNotTakenOver", "%v: give interface %s an address, or name another in antrea-agent.conf", err, iface)
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

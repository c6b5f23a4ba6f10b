package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// underlay reads the interface that carries the Node's tunnels into the view.
func (a *Agent) underlay(v *View) error {
	if name := a.config.TransportInterface; name != "" && a.config.OVSDatapathType == "netdev" {
		t, err := hostnet.ReadTransport(name)
		if err != nil {
			return fmt.Errorf("read transportInterface %s: %w", name, err)
		}
		v.Underlay = Underlay{Uplink: &t, MTU: t.MTU, Networks: t.Addresses}
		// The addresses are with the bridge once it has taken the interface over.
		if b, err := hostnet.ReadTransport(uplinkBridge(name)); err == nil {
			v.Underlay.Networks = slices.Concat(t.Addresses, b.Addresses)
		}
		return nil
	}
	if name := a.config.TransportInterface; name != "" {
		t, err := hostnet.ReadTransport(name)
		if err != nil {
			return fmt.Errorf("read transportInterface %s: %w", name, err)
		}
		v.Underlay = Underlay{MTU: t.MTU, Addresses: t.Addresses, Networks: t.Addresses}
		return nil
	}
	node := v.self()
	if node == nil {
		return nil
	}
	ip, ok := internalIP(node)
	if !ok {
		return nil // the kubelet has not written it yet
	}
	name, err := hostnet.InterfaceWith(ip)
	if err != nil {
		return fmt.Errorf("find the interface of the Node's InternalIP %s: %w", ip, err)
	}
	t, err := hostnet.ReadTransport(name)
	if err != nil {
		return fmt.Errorf("read the interface of the Node's InternalIP: %w", err)
	}
	v.Underlay = Underlay{MTU: t.MTU, Networks: t.Addresses}
	return nil
}

// transportAddress returns where this Node's tunnels end on the kernel's datapath: the address of
// the transportInterface that the other Nodes send to. It is the zero address without a
// transportInterface, and while the Node does not announce an address of it: tunnels then end at
// any address of the Node.
func (v View) transportAddress(report reporter) netip.Addr {
	name := v.Config.TransportInterface
	node := v.self()
	if name == "" || v.Config.OVSDatapathType != "system" || node == nil {
		return netip.Addr{}
	}
	end, ok, _ := tunnelEnd(node) // remoteNodes and self report a bad annotation
	var own []string
	for _, p := range v.Underlay.Addresses {
		switch {
		case ok && p.Addr() == end:
			return end
		case p.Addr().Is4() && p.Addr().IsGlobalUnicast():
			own = append(own, p.Addr().String())
		}
	}
	object := problem.Object{Kind: "Node", Name: v.NodeName}
	if len(own) == 0 {
		report(object, "transportInterface", "NoTransportAddress",
			"interface %s has no IPv4 address that tunnels can end at, they use the Node's InternalIP: give it an address, or name another interface in antrea-agent.conf", name)
		return netip.Addr{}
	}
	report(object, "transportInterface", "TransportAddressNotAnnounced",
		"the other Nodes send tunnel packets to %s, which is not an address of interface %s: run kubectl annotate --overwrite node %s %s=%s, or remove transportInterface from antrea-agent.conf",
		end, name, v.NodeName, transportAddresses, own[0])
	return netip.Addr{}
}

// useTransportAddresses makes the ways between clusters follow the Nodes' transport addresses: the
// Gateway object has the Gateway Node's InternalIP, where no tunnel may end.
func (v View) useTransportAddresses(p *peering.Peering, report reporter) {
	for _, n := range v.Nodes {
		end, ok, _ := tunnelEnd(n)
		if n.Name != p.Gateway || !ok {
			continue
		}
		internal, _ := internalIP(n)
		switch p.Role {
		case peering.Regular:
			if end == internal {
				return
			}
			p.InternalIP = end
			for i := range p.Peers {
				p.Peers[i].Via = end
			}
		case peering.Gateway:
			if local := v.transportAddress(func(problem.Object, string, string, string, ...any) {}); local.IsValid() && p.GatewayIP == internal && p.GatewayIP != local {
				report(problem.Object{Kind: "Gateway", Name: p.Gateway}, "gatewayIP", "GatewayAddressNotServed",
					"the other clusters send tunnel packets to %s, and this Node's tunnels end at %s, the address of transportInterface: run kubectl annotate --overwrite node %s multicluster.antrea.io/gateway-ip=%s",
					p.GatewayIP, local, p.Gateway, local)
			}
		}
		return
	}
}

// uplinkBridge is the name of the bridge that takes an interface over.
func uplinkBridge(iface string) string { return "br-" + iface }

// tunnels says where the switch's tunnels end, by the bridge that has taken the uplink over.
func tunnels(uplink string, state datapath.State) hostnet.Tunnels {
	t := hostnet.Tunnels{Link: uplinkBridge(uplink)}
	for _, n := range state.RemoteNodes {
		t.Peers = append(t.Peers, n.Address)
	}
	if state.Peering.Role == peering.Gateway {
		for _, p := range state.Peering.Peers {
			t.Peers = append(t.Peers, p.Via)
		}
	}
	return t
}

// takeOver adds to a plan what moves the uplink onto a bridge of the userspace datapath.
// The addresses move only when the OVSDB holds the record of them: an agent that is killed
// between the two must find them again.
func (d *Desired) takeOver(v View) error {
	iface := v.Config.TransportInterface
	name := uplinkBridge(iface)
	recorded := v.Switch.Bridges[name].ExternalIDs
	u, err := hostnet.PlanUplink(name, recorded, *v.Underlay.Uplink)
	if err != nil {
		return err
	}
	d.Bridges = append(d.Bridges, bridge.Bridge{
		Name:         name,
		DatapathType: "netdev",
		FailMode:     "standalone",
		HardwareAddr: u.HardwareAddr,
		ExternalIDs:  u.ExternalIDs,
		Ports: []bridge.Port{
			{Name: iface, ExternalIDs: map[string]string{externalIDType: typeUplink}},
			{Name: name, MTU: u.MTU},
		},
	})
	if recorded[hostnet.UplinkAddressesKey] != "" {
		d.Host.Links = append(d.Host.Links, u.Links...)
		d.Host.Routes = append(d.Host.Routes, u.Routes...)
	}
	return nil
}

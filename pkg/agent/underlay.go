package agent

import (
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// underlay reads the interface that carries the Node's tunnels into the view.
func (a *Agent) underlay(v *View) error {
	if name := a.config.TransportInterface; name != "" && a.config.OVSDatapathType == "netdev" {
		t, err := hostnet.ReadTransport(name)
		if err != nil {
			return fmt.Errorf("read transportInterface %s: %w", name, err)
		}
		v.Underlay = Underlay{Uplink: &t, MTU: t.MTU}
		return nil
	}
	name := a.config.TransportInterface
	if name == "" {
		node := v.self()
		if node == nil {
			return nil
		}
		ip, ok := internalIP(node)
		if !ok {
			return nil // the kubelet has not written it yet
		}
		var err error
		if name, err = hostnet.InterfaceWith(ip); err != nil {
			return fmt.Errorf("find the interface of the Node's InternalIP %s: %w", ip, err)
		}
	}
	t, err := hostnet.ReadTransport(name)
	if err != nil {
		return fmt.Errorf("read the interface of the Node's InternalIP: %w", err)
	}
	v.Underlay = Underlay{MTU: t.MTU}
	return nil
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

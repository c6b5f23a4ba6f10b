package agent

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// bridges says which bridges and ports the switch should have: the integration bridge with
// the gateway port, the tunnel port and a port for each attached Pod, and, where the
// userspace datapath has to take over the underlay's interface, a bridge for that.
func (v View) bridges(mtu int, transport netip.Addr) []bridge.Bridge {
	gateway := bridge.Port{
		Name:        v.Config.HostGateway,
		Type:        "internal",
		OFPort:      gatewayOFPort,
		MAC:         v.GatewayMAC,
		MTU:         mtu,
		ExternalIDs: map[string]string{externalIDType: typeGateway},
	}
	tunnel := bridge.Port{
		Name:        TunnelPortName,
		Type:        v.Config.TunnelType,
		OFPort:      tunnelOFPort,
		Options:     v.tunnelOptions(transport),
		ExternalIDs: map[string]string{externalIDType: typeTunnel},
	}
	integration := bridge.Bridge{
		Name:         v.Config.OVSBridge,
		DatapathType: v.Config.OVSDatapathType,
		FailMode:     "secure",
		Protocols:    []string{"OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"},
		ExternalIDs:  map[string]string{"roundNum": "1"},
		ZoneTimeouts: datapath.ZoneTimeouts(v.Config.OVSDatapathType),
		Ports:        []bridge.Port{gateway, tunnel},
	}
	for _, a := range v.Attachments {
		integration.Ports = append(integration.Ports, bridge.Port{Name: a.PortName, ExternalIDs: cni.ExternalIDs(a)})
	}
	return []bridge.Bridge{integration}
}

// tunnelOptions are those of the tunnel port; with a valid transport address tunnels end there
// and nowhere else.
func (v View) tunnelOptions(transport netip.Addr) map[string]string {
	options := map[string]string{"remote_ip": "flow", "key": "flow"}
	if transport.IsValid() {
		options["local_ip"] = transport.String()
	}
	if v.Config.TunnelPort > 0 {
		options["dst_port"] = itoa(v.Config.TunnelPort)
	}
	if v.Config.TunnelCsum {
		options["csum"] = "true"
	}
	return options
}

// host says what the Node's own network stack should have.
func (v View) host(ranges, serviceCIDRs []netip.Prefix, mtu int) hostnet.Desired {
	gw := v.Config.HostGateway
	link := hostnet.Link{Name: gw, MTU: mtu, Up: true}
	d := hostnet.Desired{
		Sysctls: map[string]string{
			"net/ipv4/ip_forward": "1",
			// A packet that comes in by the gateway port and leaves by it has to: the
			// switch is behind it.
			"net/ipv4/conf/" + gw + "/send_redirects": "0",
			"net/ipv4/conf/" + gw + "/arp_announce":   "1",
			"net/ipv4/conf/" + gw + "/rp_filter":      "2",
		},
	}
	var source netip.Addr
	for _, r := range ranges {
		ip := gatewayOf(r)
		if !source.IsValid() {
			source = ip
		}
		link.Addresses = append(link.Addresses, netip.PrefixFrom(ip, r.Bits()))
	}
	d.Links = append(d.Links, link)
	d.Neighbors = append(d.Neighbors, hostnet.Neighbor{Link: gw, Address: serviceVIP, MAC: virtualMAC})

	// The host reaches Services and remote Pods through the switch.
	via := append([]netip.Prefix{}, serviceCIDRs...)
	for _, n := range v.Nodes {
		if n.Name == v.NodeName {
			continue
		}
		if remote, err := podCIDRs(n); err == nil {
			via = append(via, remote...)
		}
	}
	if source.IsValid() {
		for _, dst := range via {
			d.Routes = append(d.Routes, hostnet.Route{Dst: dst, Gateway: serviceVIP, Link: gw, Source: source, OnLink: true})
		}
		// Replies to hairpin connections: the address is the switch's.
		d.Routes = append(d.Routes, hostnet.Route{Dst: netip.PrefixFrom(serviceVIP, 32), Link: gw, Source: source})
	}
	if !v.Config.NoSNAT {
		d.Masquerade = hostnet.Masquerade{
			Sources:    append([]netip.Prefix{netip.PrefixFrom(serviceVIP, 32)}, ranges...),
			ExceptLink: gw,
		}
	}
	return d
}

package agent

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// bridgesOf returns the desired bridges and ports of the switch: the integration bridge with the gateway port, the
// tunnel port and a port for each attached Pod. If the userspace datapath takes over the underlay's interface, there is
// one more bridge.
func (o *outputs) bridgesOf(_ derive.Name, r *derive.Reader) ([]bridge.Bridge, []problem.Problem) {
	_, u, ok := o.from.this.ready(r)
	if !ok {
		return nil, nil
	}
	var ps problems
	transport := o.from.this.transportAddress(r, &ps)
	s, _ := derive.Get(r, o.from.this.settings, self)
	gateway := bridge.Port{
		Name:        o.from.config.HostGateway,
		Type:        "internal",
		OFPort:      gatewayOFPort,
		MAC:         s.GatewayMAC,
		MTU:         podMTU(o.from.config, u),
		ExternalIDs: map[string]string{externalIDType: typeGateway},
	}
	tunnel := bridge.Port{
		Name:        TunnelPortName,
		Type:        tunnelType(o.from.config, o.tunnelsOver6(r, &ps)),
		OFPort:      tunnelOFPort,
		Options:     tunnelOptions(o.from.config, o.from.ways.onlyEnd(transport, r)),
		ExternalIDs: map[string]string{externalIDType: typeTunnel},
	}
	integration := bridge.Bridge{
		Name:         o.from.config.OVSBridge,
		DatapathType: o.from.config.OVSDatapathType,
		FailMode:     "secure",
		Protocols:    []string{"OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"},
		ExternalIDs:  map[string]string{"roundNum": "1"},
		ZoneTimeouts: datapath.ZoneTimeouts(o.from.config.OVSDatapathType),
		Ports:        []bridge.Port{gateway, tunnel},
	}
	integration.Ports = append(integration.Ports, o.from.ways.bfdPorts(transport, r)...)
	numbers := map[derive.Name]ofp.Port{}
	for _, n := range derive.All(r, o.from.pods.numbers) {
		numbers[n.Key] = n.Value
	}
	for _, a := range derive.All(r, o.from.pods.attachments) {
		integration.Ports = append(integration.Ports, bridge.Port{
			Name: a.Value.PortName, OFPort: uint32(numbers[a.Key]), ExternalIDs: cni.ExternalIDs(a.Value),
			OwnQueueing: a.Value.Bandwidth.ToPod != cni.Rate{},
		})
	}
	out := []bridge.Bridge{integration}
	if up, ok := derive.Get(r, o.uplink, self); ok {
		out = append(out, up.Bridge)
	}
	out = append(out, o.from.inside.bridges(r, u)...)
	return out, ps
}

// tunnelType returns Open vSwitch's type of a port for tunnels over IPv6 or IPv4. Only gre has a second type for IPv6,
// as in the kernel.
func tunnelType(c config.Config, over6 bool) string {
	if c.TunnelType == "gre" && c.OVSDatapathType == "system" && over6 {
		return "ip6gre"
	}
	return c.TunnelType
}

// tunnelsOver6 reports whether the tunnels of this Node are over IPv6. If tunnels to other clusters and tunnels to
// other Nodes are over different versions of IP, the latter decide. Then the kernel's gre does not carry the tunnels to
// other clusters.
func (o *outputs) tunnelsOver6(r *derive.Reader, ps *problems) bool {
	n, _ := derive.Get(r, o.from.node, self)
	p, _ := derive.Get(r, o.from.peers.clusters.Part, self)
	if len(n.Tunnels.Ends) == 0 {
		return false
	}
	over6 := over6(n)
	if p.Role == peering.Gateway && p.End.Is6() != over6 && tunnelType(o.from.config, true) == "ip6gre" {
		remedy := "set tunnelType in antrea-agent.conf to geneve or vxlan"
		if !o.from.config.EncryptsPeers() { // inside of encryption all ends are of IPv4
			remedy += ", or the annotation multicluster.antrea.io/gateway-ip to an address of the other version"
		}
		ps.report(o.from.this.object(), "metadata.annotations", reasonTunnelFamiliesDiffer,
			"packets do not pass to other clusters: tunnels end at %s there and at %s in this cluster, and gre on the kernel's "+
				"datapath has one version of IP: %s", p.End, n.Tunnels.Ends[0], remedy)
	}
	return over6
}

// over6 reports whether tunnels end at an address of IPv6 of a Node.
func over6(n datapath.Node) bool { return len(n.Tunnels.Ends) > 0 && n.Tunnels.Ends[0].Is6() }

// tunnelOptions returns the options of the tunnel port. With a valid transport address, tunnels end only there. Without
// one, flows choose the source address of packets.
func tunnelOptions(c config.Config, transport netip.Addr) map[string]string {
	options := map[string]string{"remote_ip": "flow", "local_ip": "flow", "key": "flow"}
	if transport.IsValid() {
		options["local_ip"] = transport.String()
	}
	if c.EncryptsPeers() || c.EncryptsNodes() {
		options["local_ip"] = "flow" // some end inside
	}
	if c.TunnelPort > 0 {
		options["dst_port"] = itoa(c.TunnelPort)
	}
	if c.TunnelCsum {
		options["csum"] = "true"
	}
	return options
}

// routeLocalnet is the sysctl that lets packets with an address in 127.0.0.0/8 pass a link.
func routeLocalnet(link string) string { return "net/ipv4/conf/" + link + "/route_localnet" }

// hostOf returns the desired state of the Node's own network stack.
func (o *outputs) hostOf(_ derive.Name, r *derive.Reader) (hostnet.Desired, []problem.Problem) {
	_, u, ok := o.from.this.ready(r)
	if !ok {
		return hostnet.Desired{}, nil
	}
	mtu := podMTU(o.from.config, u)
	node, _ := derive.Get(r, o.from.node, self)
	ranges := node.PodCIDRs
	serviceCIDRs, _ := derive.Get(r, o.from.ranges.rows, self)
	gw := o.from.config.HostGateway
	link := hostnet.Link{Name: gw, MTU: mtu, Up: true}
	d := hostnet.Desired{
		Sysctls: map[string]string{
			"net/ipv4/ip_forward": "1",
			// The switch is behind the gateway port. So packets may enter through the gateway port and leave through it again.
			"net/ipv4/conf/" + gw + "/send_redirects": "0",
			"net/ipv4/conf/" + gw + "/arp_announce":   "1",
			"net/ipv4/conf/" + gw + "/rp_filter":      "2",
			// Some features need "1", see below.
			routeLocalnet(gw): "0",
		},
	}
	var sources [2]netip.Addr // the first gateway address of each family
	for _, cidr := range ranges {
		ip := gatewayOf(cidr)
		if source := &sources[ip.BitLen()/128]; !source.IsValid() {
			*source = ip
		}
		link.Addresses = append(link.Addresses, netip.PrefixFrom(ip, cidr.Bits()))
	}
	o.from.external.host(&link, r) // without ranges the port keeps its previous addresses
	d.Links = append(d.Links, link)
	if node.Families.Has4() {
		d.Neighbors = append(d.Neighbors, hostnet.Neighbor{Link: gw, Address: serviceVIP, MAC: virtualMAC})
	}
	if node.Families.Has6() {
		o.hostOf6(&d, u, r)
	}

	// The host reaches Services through the switch. It also reaches the Pods of Nodes to which packets go through a tunnel
	// in this way.
	for _, source := range sources {
		if !source.IsValid() {
			continue
		}
		hop := nextHop(source)
		for _, dst := range serviceCIDRs {
			if is4(dst) == source.Is4() {
				d.Routes = append(d.Routes, hostnet.Route{Dst: dst, Gateway: hop, Link: gw, Source: source, OnLink: true})
			}
		}
		via, direct := o.routesToPods(r, u, source, hop)
		d.Routes = append(append(d.Routes, via...), direct...)
		if !source.Is4() {
			d.Behind = o.behindOf(ranges, serviceCIDRs, r)
		}
		// Packets that the host forwards to Pods enter the switch with another MAC than the host's own packets
		// (datapath.Node).
		for _, cidr := range ranges {
			if is4(cidr) == source.Is4() {
				d.Forwarded = append(d.Forwarded, hostnet.Route{Dst: cidr, Gateway: hop, Link: gw, OnLink: true})
			}
		}
		o.routesToFirsts(&d, r, source, hop)
		// Replies to hairpin connections: the address is the switch's.
		d.Routes = append(d.Routes, hostnet.Route{Dst: netip.PrefixFrom(hop, hop.BitLen()), Link: gw, Source: source})
	}
	d.Masquerade = o.masquerade(r, ranges)
	o.from.outside.host(&d, node)
	o.from.hostPorts.host(&d, u, r)
	o.from.inside.host(&d, r, u) // routes of the uplink are added later, so no packet uses them before
	if up, ok := derive.Get(r, o.uplink, self); ok {
		d.Links = append(d.Links, up.Links...)
		d.Routes = append(d.Routes, up.Routes...)
	}
	if u.Uplink != nil {
		d.Tunnels = append(d.Tunnels, o.tunnels(r))
	}
	return d, nil
}

// behindOf returns the IPv6 sources whose packets have to come from the switch. A machine on the Nodes' link could send
// packets with a Pod's address, and policies would take them for the Pod's. In mode encap all packets of Pods to Pods
// and Services stay within the switches. If a Pod's Node announces a network of IPv6, the Pod's packets may come from
// that network. To other destinations packets have their Node's address, unless noSNAT is set.
func (o *outputs) behindOf(own, serviceCIDRs []netip.Prefix, r *derive.Reader) hostnet.Behind {
	in := hostnet.Behind{Link: o.from.config.HostGateway}
	for _, p := range own {
		if !is4(p) {
			in.Sources = append(in.Sources, p.Masked())
		}
	}
	var behind, outside []netip.Prefix
	for _, n := range derive.All(r, o.from.nodes) {
		switch cidrs, _ := n.Value.podCIDRs(family.IPv6); {
		case n.Key.Name == o.from.nodeName:
		case n.Value.announces6():
			outside = append(outside, cidrs...)
		default:
			behind = append(behind, cidrs...)
		}
	}
	for _, p := range behind { // a Node may claim a range of another one
		if !slices.ContainsFunc(outside, p.Overlaps) {
			in.Sources = append(in.Sources, p)
		}
	}
	if o.from.config.NoSNAT {
		in.To = slices.Clone(in.Sources)
		for _, p := range serviceCIDRs {
			if !is4(p) {
				in.To = append(in.To, p)
			}
		}
	}
	return in
}

// hostOf6 adds the part of IPv6 that has no counterpart in IPv4. The switch's answer to a Neighbor Solicitation costs
// an upcall, so the host has permanent neighbours: its next hop, and the Pods of this Node. The gateway port ignores
// router advertisements.
func (o *outputs) hostOf6(d *hostnet.Desired, u Underlay, r *derive.Reader) {
	gw := o.from.config.HostGateway
	d.Sysctls["net/ipv6/conf/"+gw+"/disable_ipv6"] = "0" // new links may have it off
	d.Sysctls["net/ipv6/conf/"+gw+"/accept_ra"] = "0"
	d.Sysctls["net/ipv6/conf/all/forwarding"] = "1"
	if u.Uplink == nil { // else the bridge has the recorded routes
		d.RouterLink = u.Link
	}
	d.Neighbors = append(d.Neighbors, hostnet.Neighbor{Link: gw, Address: serviceVIP6, MAC: virtualMAC})
	for _, pod := range derive.All(r, o.from.pods.rows) {
		// The host reaches no further interface.
		first := pod.Value.Network == derive.Object{} || pod.Value.First
		for _, ip := range pod.Value.IPs {
			if first && !ip.Is4() {
				d.Neighbors = append(d.Neighbors, hostnet.Neighbor{Link: gw, Address: ip, MAC: pod.Value.MAC.String()})
			}
		}
	}
}

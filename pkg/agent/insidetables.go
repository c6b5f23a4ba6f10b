package agent

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// insideTables holds the tunnels inside WireGuard, and the state that the switch and the host need for them.
type insideTables struct {
	config   config.Config
	this     *ownNode
	keys     *nodeKeys
	settings *derive.Source[derive.Name, settings]
	clusters peering.Tables
	remotes  *derive.Table[derive.Name, datapath.RemoteNode]

	sessions  *derive.Source[derive.Name, sessions] // by the first link's name
	partners  *derive.Table[derive.Name, partners]
	encrypted *derive.Table[derive.Name, encrypted]
}

// add adds the tables to an engine.
func (t *insideTables) add(e *derive.Engine, one derive.Keys[derive.Name]) {
	t.sessions = derive.NewSource[derive.Name, sessions](e, "sessions")
	t.partners = derive.NewTable(e, "encryption-partners", t.partnersOf, one)
	t.encrypted = derive.NewTable(e, "encrypted", t.encryptedOf, one)
}

// partnersOf is the function of the table of partners.
func (t *insideTables) partnersOf(_ derive.Name, r *derive.Reader) (out partners, _ []problem.Problem) {
	out[betweenClusters.pair()], out[betweenNodes.pair()] = t.clusterPartners(r), t.nodePartners(r)
	return out, nil
}

// clusterPartners has the gateways of clusters to which this Node carries encrypted traffic.
func (t *insideTables) clusterPartners(r *derive.Reader) partnerGroup {
	p, _ := derive.Get(r, t.clusters.Part, self)
	if !t.config.EncryptsPeers() || p.Role != peering.Gateway {
		return partnerGroup{}
	}
	if p.Gateways[0].Name != p.Gateway.Name && !p.Gateway.InsideIP.IsValid() {
		return partnerGroup{}
	}
	out := partnerGroup{Base: p.End, Keepalive: keepOpen}
	for _, peer := range values(derive.All(r, t.clusters.Peers)) {
		for _, w := range p.Ways(peer) {
			out.Partners = append(out.Partners, partner{Name: peer.Name(w), Base: peer.Base, Way: w})
		}
	}
	return out
}

// nodePartners has the Nodes to which this Node sends encrypted traffic.
func (t *insideTables) nodePartners(r *derive.Reader) partnerGroup {
	node, _, known := t.this.ready(r)
	end, ok, _ := node.tunnelEnd()
	if !t.config.EncryptsNodes() || !known || !ok {
		return partnerGroup{}
	}
	out := partnerGroup{Base: peering.InsideOfNode(end)}
	for _, remote := range derive.All(r, t.remotes) {
		n, _ := derive.Get(r, t.this.nodes, derive.Object{Name: string(remote.Key)})
		key, err := publickey.Parse(n.WireGuardKey)
		to, ok, _ := n.tunnelEnd()
		if err != nil || !ok {
			continue // it has no row in remotes
		}
		w := peering.Way{Outside: to, Inside: remote.Value.Address, Key: key}
		t.keys.nextOf(string(remote.Key), n, r, &w, new(problems))
		out.Partners = append(out.Partners, partner{Name: "Node " + string(remote.Key), Way: w})
	}
	return out
}

// encryptedOf is the function of the table of encryption.
func (t *insideTables) encryptedOf(_ derive.Name, r *derive.Reader) (e encrypted, _ []problem.Problem) {
	p, _ := derive.Get(r, t.partners, self)
	var ports [links / 2]int
	ports[betweenClusters.pair()] = t.config.Multicluster.WireGuard.Port
	ports[betweenNodes.pair()] = t.config.WireGuard.Port
	for pair, ends := range p {
		first, second := ofPair(pair)
		s, _ := derive.Get(r, t.sessions, derive.Name(first.name))
		e[first.at], e[second.at] = ends.tunnels(ports[pair], s)
	}
	return e, nil
}

// bridges returns the bridges through which a userspace switch reaches the WireGuard devices. The bridge of a device
// that is no longer desired is removed too: if a device of the same name is made later, the switch reads it only
// through a new port.
func (t *insideTables) bridges(r *derive.Reader, u Underlay) []bridge.Bridge {
	e, _ := derive.Get(r, t.encrypted, self)
	s, _ := derive.Get(r, t.settings, self)
	var out []bridge.Bridge
	for _, l := range insideLinks {
		mac := s.LinkMACs[l.at]
		switch {
		case !userspace(t.config) || !s.Known:
			continue
		case !e.of(l).Base.IsValid():
			out = append(out, bridge.Bridge{Name: l.name, Absent: true})
			continue
		case mac == "":
			continue
		}
		out = append(out, bridge.Bridge{
			Name: l.name, DatapathType: "netdev", FailMode: "standalone", HardwareAddr: mac,
			Ports: []bridge.Port{
				{Name: l.tap, ExternalIDs: map[string]string{externalIDType: typeUplink}},
				{Name: l.name, MTU: l.insideMTU(u)},
			},
		})
	}
	return out
}

// host adds the links, routes and rules through which the host reaches the inside ends.
func (t *insideTables) host(d *hostnet.Desired, r *derive.Reader, u Underlay) {
	e, _ := derive.Get(r, t.encrypted, self)
	// While a WireGuard device is missing, its packets must not leave through another link. Wider routes lead to the
	// switch, which drops the packets. A userspace switch has its own copy of the routes. It reads them again when a link
	// comes or goes, the default route first. So the uplink drops the packets too.
	var inside []netip.Prefix
	drop := func(to netip.Prefix) {
		route := hostnet.Route{Dst: to, Link: t.config.HostGateway}
		if !slices.Contains(d.Routes, route) { // two ends may be neighbours
			d.Routes = append(d.Routes, route)
		}
	}
	hasKey := func(n derive.Row[derive.Object, nodeFacts]) bool { return n.Value.WireGuardKey != "" }
	nodes := t.config.EncryptsNodes() || slices.ContainsFunc(derive.All(r, t.this.nodes), hasKey)
	if nodes || t.config.EncryptsPeers() { // even if nothing is known of others
		inside = append(inside, peering.InsideRange)
		drop(peering.InsideRange)
	}
	p, _ := derive.Get(r, t.clusters.Part, self)
	for _, c := range p.Closed { // also former inside addresses, to which the switch still sends for a moment
		base := netip.PrefixFrom(c.Base, c.Base.BitLen())
		inside = append(inside, base)
		drop(netip.PrefixFrom(base.Addr(), base.Bits()-1).Masked())
	}
	for _, l := range insideLinks {
		tunnels := e.of(l)
		if !tunnels.Base.IsValid() {
			continue
		}
		link := hostnet.Link{Name: l.name, MTU: l.insideMTU(u), Up: true}
		for _, a := range tunnels.addresses() {
			link.Addresses = append(link.Addresses, netip.PrefixFrom(a, a.BitLen()))
		}
		hop := netip.Addr{}
		if userspace(t.config) {
			d.Links = append(d.Links, hostnet.Link{Name: l.tap, MTU: l.insideMTU(u), Up: true, NoAddresses: true})
			link.Addresses = append(link.Addresses, l.net)
			hop = l.hop
		} else {
			link.Guards = l.guards()
			// Packets come through one device while answers already go through the other.
			d.Sysctls["net/ipv4/conf/"+l.name+"/rp_filter"] = "2"
		}
		d.Links = append(d.Links, link)
		ends := hostnet.Tunnels{Link: l.name}
		for _, p := range tunnels.Peers {
			for _, to := range p.AllowedIPs {
				if slices.Contains(tunnels.Unused, to) {
					continue
				}
				route := hostnet.Route{Dst: to, Gateway: hop, Link: l.name, Source: tunnels.baseTo(to)}
				if hop.IsValid() {
					// The switch alone uses the route, and its flows set the source. Open vSwitch 3.5 and later ignores a route
					// whose source is in no subnet of the next hop.
					route.Source = netip.Addr{}
				}
				d.Routes = append(d.Routes, route)
				ends.Peers = append(ends.Peers, to.Addr())
			}
		}
		if userspace(t.config) {
			if l == secondBetweenClusters || l == secondBetweenNodes { // its next hop is in place before the first packet
				ends.Peers = append(ends.Peers, l.hop)
			}
			d.Tunnels = append(d.Tunnels, ends)
		}
	}
	if u.Uplink != nil && len(inside) > 0 {
		d.Egress = append(d.Egress, hostnet.Egress{Link: t.config.TransportInterface, Drop: inside})
	}
}

package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These are states of a way in BFD. "init" means that an end receives packets of the far end, and the far end does not
// receive its packets.
const (
	up       = "up"
	starting = "init"
	down     = "down"
)

// tunnels compares the settings of tunnels.
func tunnels(clusters []*Cluster, r *report) {
	type setting struct {
		name string
		of   func(n *api.Network) string
		only bool // between clusters it may differ
	}
	port := func(n *api.Network) string { return fmt.Sprint(n.Port) }
	settings := []setting{
		{"tunnelType", func(n *api.Network) string { return n.Tunnel }, false},
		{"tunnelPort", port, false},
		{"multicluster.trafficEncryptionMode", func(n *api.Network) string { return n.PeerEncryption }, false},
		{"the version of IP between clusters", func(n *api.Network) string { return family(n.PeersOver6) }, false},
		{"trafficEncapMode", func(n *api.Network) string { return n.Mode }, true},
		{"trafficEncryptionMode", func(n *api.Network) string { return n.Encryption }, true},
		{"the version of IP between Nodes", func(n *api.Network) string { return family(n.Over6) }, true},
	}
	for _, c := range clusters {
		r.cluster = c.Name
		for _, s := range settings {
			values := map[string][]string{}
			for _, a := range c.Agents {
				if a.Status != nil && a.Status.Network != nil {
					values[s.of(a.Status.Network)] = append(values[s.of(a.Status.Network)], a.Node)
				}
			}
			if len(values) > 1 {
				var list []string
				for _, v := range slices.Sorted(maps.Keys(values)) {
					list = append(list, v+" on "+problem.Few(values[v]))
				}
				r.fail(fault{detail: fmt.Sprintf("%s differs between Nodes: %s", s.name, strings.Join(list, "; ")),
					remedy: "restart the agents that have the old configuration: kubectl rollout restart daemonset/tombolo-agent " +
						"-n " + agentNamespace(c)})
			}
		}
	}
	r.cluster = ""
	for i, a := range clusters {
		for _, b := range clusters[i+1:] {
			x, y := a.network(), b.network()
			if x == nil || y == nil || a.set() == nil || b.set() == nil || len(a.Gateways) == 0 || len(b.Gateways) == 0 {
				continue
			}
			for _, s := range settings {
				if v, w := s.of(x), s.of(y); v != w && !s.only {
					r.fail(fault{detail: fmt.Sprintf("%s is %s in %s and %s in %s", s.name, v, a.Name, w, b.Name),
						remedy: "set the same in antrea-agent.conf of both, and restart the agents"})
				}
			}
		}
	}
}

func family(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}

// mtus compares the sizes of packets with the links on their way.
func mtus(clusters []*Cluster, r *report) {
	const remedy = "remove defaultMTU of antrea-agent.conf or lower it to %d, or raise the MTU of the link to %d; Pods " +
		"get " +
		"it when they are made again"
	type link struct {
		cluster *Cluster
		node    string
		api.Network
	}
	var gateways []link
	for _, c := range clusters {
		r.cluster = c.Name
		sizes := map[int][]string{}
		for _, a := range c.Agents {
			if a.Status == nil || a.Status.Network == nil || a.Status.Network.LinkMTU == 0 {
				continue
			}
			n := *a.Status.Network
			sizes[n.PodMTU] = append(sizes[n.PodMTU], a.Node)
			if least := n.PodMTU + n.TunnelOverhead; least > n.LinkMTU {
				r.fail(fault{object: "Node " + a.Node, detail: fmt.Sprintf("packets of Pods have up to %d bytes and %d in the "+
					"tunnel, and its link carries %d", n.PodMTU, least, n.LinkMTU),
					remedy: fmt.Sprintf(remedy, n.LinkMTU-n.TunnelOverhead, least)})
			}
			if slices.ContainsFunc(c.Gateways, func(g mcv1alpha1.Gateway) bool { return g.Name == a.Node }) {
				gateways = append(gateways, link{c, a.Node, n})
			}
		}
		if len(sizes) > 1 {
			var list []string
			for _, size := range slices.Sorted(maps.Keys(sizes)) {
				list = append(list, fmt.Sprintf("%d on %s", size, problem.Few(sizes[size])))
			}
			r.fail(fault{detail: "the MTU of Pods differs between Nodes: " + strings.Join(list, "; "),
				remedy: "give the links between Nodes one MTU, or set defaultMTU in antrea-agent.conf to the smallest"})
		}
	}
	r.cluster = ""
	reported := map[string]bool{}
	for _, from := range gateways {
		for _, to := range gateways {
			size := from.PodMTU + from.TunnelOverhead
			key := from.cluster.Name + ">" + to.cluster.Name
			if from.cluster == to.cluster || size <= to.LinkMTU || reported[key] {
				continue
			}
			reported[key] = true
			r.fail(fault{object: "Gateway " + to.node + " of " + to.cluster.Name, detail: fmt.Sprintf("packets of Pods of %s "+
				"have up to %d bytes in the tunnel, and its link carries %d", from.cluster.Name, size, to.LinkMTU),
				remedy: fmt.Sprintf(remedy, to.LinkMTU-from.TunnelOverhead, size) + "; of cluster " + from.cluster.Name})
		}
	}
}

// end is an end of a way.
type end struct {
	cluster *Cluster // nil if its facts are not there
	id      string   // of the cluster; empty within one
	node    string   // empty if it is not known
	address string
}

func (e end) String() string {
	switch {
	case e.cluster == nil:
		return fmt.Sprintf("%s (cluster %s)", e.address, e.id)
	case e.node == "":
		return fmt.Sprintf("%s of %s", e.address, e.cluster.Name)
	}
	return fmt.Sprintf("%s/%s", e.cluster.Name, e.node)
}

// watches reports whether the states of the agent's ways are current. The OVSDB keeps the last states of a switch that
// does not run.
func (a *Agent) watches() bool { return a.Status != nil && a.Status.OpenFlow.Connected }

// sight is a way as one of its ends sees it.
type sight struct {
	known         bool
	first, second api.Way // now, and seconds later
}

// state is the better of the two states: a way that comes up is not down.
func (s sight) state() string {
	if s.second.State == up || s.first.State == up {
		return up
	}
	return cmp.Or(s.second.State, s.first.State)
}

// path is a way with both ends.
type path struct {
	a, b     end
	from, to sight // as a sees it, and as b does
	between  bool  // clusters
	// behindNAT is set if packets of one end come from other addresses than its own. BFD cannot watch such a way.
	behindNAT bool
}

// expectsNAT reports whether the cluster accepts another cluster's tunnel packets from further addresses.
func (c *Cluster) expectsNAT(id string) bool {
	return c.set() != nil && c.set().Annotations[multicluster.AnnotationTunnelSources+id] != ""
}

// receives reports whether an end receives packets of the far end. It uses the end's own state, or else the far end's
// state.
func receives(own, far sight) (yes, known bool) {
	if own.known {
		switch own.state() {
		case up, starting:
			return true, true
		case down:
			return false, true
		}
	}
	if far.known {
		switch far.state() {
		case up:
			return true, true
		case starting: // it receives "down" from the far end, which does not receive its packets
			return false, true
		}
	}
	return false, false
}

// up reports whether no end sees the way down.
func (p path) up() bool {
	return (!p.from.known || p.from.state() == up) && (!p.to.known || p.to.state() == up)
}

// paths returns the ways that BFD watches, each once.
func paths(clusters []*Cluster) []path {
	var all []path
	seen := map[string]bool{}
	for _, c := range clusters {
		for i := range c.Agents {
			a := &c.Agents[i]
			for _, peer := range a.Peers {
				for _, w := range peer.Ways {
					if w.State == "" {
						continue
					}
					p, ok := pathOf(clusters, c, a, peer, w)
					if !ok {
						continue
					}
					x, y := p.a.String(), p.b.String()
					if key := min(x, y) + " " + max(x, y); !seen[key] {
						seen[key] = true
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

// pathOf finds the other end of a way.
func pathOf(clusters []*Cluster, c *Cluster, a *Agent, peer api.Peer, w api.Way) (path, bool) {
	p := path{a: end{cluster: c, node: a.Node}, from: sight{a.watches(), w, later(a, peer, w)}}
	if peer.Kind == "Node" {
		p.b = end{cluster: c, node: peer.Name, address: w.To}
		p.to = c.sees(peer.Name, func(q api.Peer) bool { return q.Kind == "Node" && q.Name == a.Node }, "")
		return p, true
	}
	if peer.Role != "gateway" {
		return p, false // to a Gateway of its own cluster: the ways to Nodes have it
	}
	p.between = true
	p.behindNAT = c.expectsNAT(peer.Name)
	for _, g := range c.Gateways {
		if g.Name == a.Node {
			p.a.address = g.GatewayIP
			if !carries(&g) {
				return p, false
			}
		}
	}
	if info := c.info(peer.Name); info != nil && slices.ContainsFunc(info.Spec.LeavingGateways,
		func(g mcv1alpha1.GatewayInfo) bool { return g.GatewayIP == w.To }) {
		return p, false
	}
	p.a.id = c.id()
	p.b = end{id: peer.Name, address: w.To}
	for _, other := range clusters {
		if other.id() != peer.Name || other == c {
			continue
		}
		p.b.cluster = other
		p.behindNAT = p.behindNAT || other.expectsNAT(c.id())
		for _, g := range other.Gateways {
			if g.GatewayIP == w.To {
				p.b.node = g.Name
				if !carries(&g) {
					return p, false
				}
			}
		}
		p.to = other.sees(p.b.node, func(q api.Peer) bool { return q.Kind == "Cluster" && q.Name == c.id() }, p.a.address)
	}
	return p, true
}

// sees returns the way of a Node to a peer: to an address, or the only one.
func (c *Cluster) sees(node string, is func(api.Peer) bool, to string) sight {
	a := c.agent(node)
	if a == nil {
		return sight{}
	}
	for _, peer := range a.Peers {
		if !is(peer) {
			continue
		}
		for _, w := range peer.Ways {
			if (to == "" || w.To == to) && w.State != "" {
				return sight{a.watches(), w, later(a, peer, w)}
			}
		}
	}
	return sight{}
}

// later returns the same way as the agent saw it seconds later.
func later(a *Agent, peer api.Peer, w api.Way) api.Way {
	for _, p := range a.Later {
		if p.Kind != peer.Kind || p.Name != peer.Name {
			continue
		}
		for _, x := range p.Ways {
			if x.To == w.To {
				return x
			}
		}
	}
	return api.Way{}
}

// describe returns the report of an end.
func describe(at, far end, s sight) string {
	if !s.known {
		return fmt.Sprintf("%s: its agent was not asked or does not answer", at)
	}
	w := s.second
	if w.State == "" {
		w = s.first
	}
	text := fmt.Sprintf("%s to %s: %s (%s), remote %s (%s), %d flaps", at, far, w.State, w.Diagnostic, w.RemoteState,
		w.RemoteDiagnostic, w.Flaps)
	if s.first.RxPackets+s.first.TxPackets == 0 { // the switch did not answer with its counters
		return text
	}
	text += fmt.Sprintf(", %d packets received, %d sent", w.RxPackets, w.TxPackets)
	if s.second.State != "" {
		text += fmt.Sprintf("; %d received and %d sent in %s", s.second.RxPackets-min(s.second.RxPackets, s.first.RxPackets),
			s.second.TxPackets-min(s.second.TxPackets, s.first.TxPackets), again)
	}
	return text
}

// carrier names the packets that carry a way.
func (p path) carrier() string {
	n := (*api.Network)(nil)
	for _, c := range []*Cluster{p.a.cluster, p.b.cluster} {
		if n == nil && c != nil {
			n = c.network()
		}
	}
	switch {
	case n == nil:
		return "tunnel packets"
	case p.between && n.PeerEncryption == "wireGuard":
		return "UDP 51821 and 51822 (WireGuard)"
	case !p.between && n.Encryption == "wireGuard":
		return "UDP 51820 and 51823 (WireGuard)"
	case n.Tunnel == "gre":
		return "IP protocol 47 (gre)"
	}
	return fmt.Sprintf("UDP %d (%s)", n.Port, n.Tunnel)
}

// cut returns the Gateways that are cut off, with their ways. Such a Gateway has several ways, and all of them are down
// in both directions, as far as is known. An end is the cause only if the other ends have ways that are up, or if its
// own agent does not answer.
func cut(all []path) map[string][]path {
	of := map[string][]path{}
	hasUp := map[string]bool{}
	for _, p := range all {
		if !p.between || p.behindNAT || !p.up() && p.isNew() != "" {
			continue
		}
		for _, e := range []end{p.a, p.b} {
			of[e.String()] = append(of[e.String()], p)
			hasUp[e.String()] = hasUp[e.String()] || p.up()
		}
	}
	out := map[string][]path{}
	for at, list := range of {
		if hasUp[at] || len(list) < 2 {
			continue
		}
		good := true
		for _, p := range list {
			ab, knownAB := receives(p.to, p.from)
			ba, knownBA := receives(p.from, p.to)
			far, own := p.b.String(), p.from
			if far == at {
				far, own = p.a.String(), p.to
			}
			if knownAB && ab || knownBA && ba || !hasUp[far] && len(of[far]) > 1 && own.known {
				good = false
			}
		}
		if good {
			out[at] = list
		}
	}
	return out
}

// cutGateways names Gateways all of whose ways are down.
func cutGateways(clusters []*Cluster, r *report) {
	off := cut(paths(clusters))
	for _, at := range slices.Sorted(maps.Keys(off)) {
		list := off[at]
		var evidence []string
		both := "in both directions"
		for _, p := range list {
			_, knownAB := receives(p.to, p.from)
			if _, knownBA := receives(p.from, p.to); !knownAB || !knownBA {
				both = "as far as it is known"
			}
			if p.b.String() == at {
				evidence = append(evidence, describe(p.a, p.b, p.from))
			} else {
				evidence = append(evidence, describe(p.b, p.a, p.to))
			}
		}
		r.fail(fault{object: "Gateway " + at, detail: fmt.Sprintf("it is cut off: all %d ways between it and other "+
			"clusters are down %s", len(list), both), evidence: some(evidence),
			remedy: "check that its Node and its Pod of tombolo-ovs run, and firewalls at its site (" + list[0].carrier() + ")"})
	}
}

// ways names each way that is down, and the direction in which packets are lost.
func ways(clusters []*Cluster, r *report) {
	all := paths(clusters)
	off := cut(all)
	good, oneSided, named := 0, 0, 0
	for _, p := range all {
		if p.up() && !p.from.known && !p.to.known {
			r.unknown(fmt.Sprintf("way %s to %s", p.a, p.b), "no end of it was asked, or the switches of its ends do not run")
			continue
		}
		if p.up() {
			good++
			if !p.to.known {
				oneSided++
			}
			continue
		}
		if why := p.isNew(); why != "" {
			r.unknown(fmt.Sprintf("way %s to %s", p.a, p.b), "it is %s, and BFD may just have begun: %s", p.from.state(), why)
			continue
		}
		if off[p.a.String()] != nil || off[p.b.String()] != nil {
			named++
			continue // the check before names the Gateway
		}
		if p.behindNAT {
			r.unknown(fmt.Sprintf("way %s to %s", p.a, p.b), "BFD cannot watch it, since packets come from other addresses "+
				"(annotation tunnel-sources): use `tombolo mc verify`")
			continue
		}
		judge(p, r)
	}
	switch {
	case len(all) == 0:
		r.skip("BFD watches no way")
	case named > 0 && good+named == len(all):
		r.skip("the check of cut Gateways names all ways that are down")
	case good == len(all) && oneSided > 0:
		r.pass("%d ways are up; of %d only one end was asked", good, oneSided)
	case good == len(all):
		r.pass("%d ways are up, as both ends see it", good)
	}
}

// judge names the direction in which a way loses packets.
func judge(p path, r *report) {
	bReceives, knownAB := receives(p.to, p.from)
	aReceives, knownBA := receives(p.from, p.to)
	a, b := p.a, p.b
	carrier := p.carrier()
	evidence := []string{describe(p.a, p.b, p.from), describe(p.b, p.a, p.to)}
	f := fault{object: fmt.Sprintf("way %s to %s", a, b), evidence: evidence}
	oneWay := func(from, to end) {
		f.object = fmt.Sprintf("way %s to %s", from, to)
		f.detail = fmt.Sprintf("%s receives packets of %s, but not the reverse: %s from %s to %s does not arrive, and the "+
			"other direction works", from, to, carrier, from, to)
		f.remedy = fmt.Sprintf("let %s pass from %s to %s: look at firewalls and NAT in this direction alone", carrier, from,
			to)
	}
	switch {
	case knownAB && knownBA && !bReceives && aReceives:
		oneWay(a, b)
	case knownAB && knownBA && bReceives && !aReceives:
		oneWay(b, a)
	case knownAB && knownBA && !bReceives && !aReceives:
		f.detail = fmt.Sprintf("neither end receives packets of the other: %s does not arrive in either direction", carrier)
		f.remedy = fmt.Sprintf("check that %s is the address of %s for the other side, and that firewalls pass %s both ways",
			cmp.Or(b.address, a.address), b, carrier)
	case knownBA && !aReceives:
		f.detail = fmt.Sprintf("%s receives no packets of %s: %s from there does not arrive; the other direction is unknown",
			a, b, carrier)
		f.remedy = "ask the other end too: add its context; then check firewalls for " + carrier
	case knownAB && !bReceives:
		f.detail = fmt.Sprintf("%s receives no packets of %s: %s from there does not arrive; the other direction is unknown",
			b, a, carrier)
		f.remedy = "ask the other end too: add its context; then check firewalls for " + carrier
	default:
		f.detail = "it is " + p.from.state() + ", and both ends receive packets: it comes up, or it flaps"
		f.remedy = "run the command again; many flaps mean that packets are lost now and then"
	}
	r.fail(f)
}

package agent

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Traffic modes. In mode encap all packets between the Pods of two Nodes go through a tunnel. In mode noEncap the hosts
// route them, and no packet of this cluster's own traffic goes through a tunnel. In mode hybrid the hosts route them
// between Nodes of one subnet. Traffic with other clusters goes through tunnels in each mode. Two Nodes may be direct
// in only one version of IP, since each version has its own address of the Node as the hosts' next hop.
//
// Both ends of a connection decide from the same facts, the Nodes' annotations, so they come to the same result.

// transportNetworks is the annotation of a Node with the addresses at which other Nodes reach it, and their prefix
// lengths. Its agent writes it in mode hybrid. In mode noEncap it writes only the IPv6 address. The hosts of other
// Nodes accept packets with a Pod's IPv6 address from the network only if the Pod's Node announces a network of IPv6.
// Commas separate the addresses.
const transportNetworks = "tombolo.io/transport-networks"

// networksOf reads the annotation transportNetworks. It leaves out texts that are not prefixes.
func networksOf(text string) []netip.Prefix {
	var out []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(one)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// networkAt returns the announced network of an address.
func (n nodeFacts) networkAt(ip netip.Addr) (netip.Prefix, bool) {
	i := slices.IndexFunc(n.Networks, func(p netip.Prefix) bool { return p.Addr() == ip })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return n.Networks[i], true
}

// direct reports whether the hosts route packets of a version of IP between the Pods of this Node and of another one.
func (t *tables) direct(name string, n nodeFacts, six bool, r *derive.Reader, ps *problems) bool {
	switch t.config.TrafficEncapMode {
	case config.NoEncap:
		_, ok := n.endOf(six)
		return ok
	case config.Hybrid:
		this, _, _ := t.this.ready(r)
		return sameSubnet(t.nodeName, this, name, n, six, ps)
	}
	return false
}

// sameSubnet reports whether two Nodes announce the same network of a version of IP. The order of the two Nodes does
// not matter. A Node that announces nothing has an older agent or another traffic mode, and the result is false.
func sameSubnet(name string, n nodeFacts, other string, o nodeFacts, six bool, ps *problems) bool {
	end, _ := n.endOf(six)
	far, _ := o.endOf(six)
	here, ok := n.networkAt(end)
	there, known := o.networkAt(far)
	if !ok || !known {
		return false
	}
	if here.Bits() != there.Bits() && here.Overlaps(there) {
		ps.report(problem.Object{Kind: "Node", Name: other}, "metadata.annotations["+transportNetworks+"]",
			reasonPrefixLengthsDiffer,
			"it has %s and this Node %s has %s: packets between their Pods go through a tunnel, since "+
				"the two differ about the subnet: give both addresses the same prefix length", there, name, here)
	}
	return here.Masked() == there.Masked()
}

// announces6 reports whether a Node announces a network of IPv6. Then packets of its Pods may come from the network.
func (n nodeFacts) announces6() bool {
	return slices.ContainsFunc(n.Networks, func(p netip.Prefix) bool { return !is4(p) })
}

// announcement is the value of the annotation transportNetworks that this Node should have.
type announcement struct {
	Known bool
	Text  string // "" for no annotation
}

// announcementOf returns the networks of the addresses at which other Nodes reach this one. There is no row until the
// Node's network has been read.
func (o *outputs) announcementOf(_ derive.Name, r *derive.Reader) (announcement, []problem.Problem) {
	now, ok := derive.Get(r, o.from.this.now, self)
	if !ok {
		return announcement{}, nil
	}
	mode := o.from.config.TrafficEncapMode
	if mode == config.Encap {
		return announcement{Known: true}, nil
	}
	tunnels, ok, _ := now.Node.tunnelEnd()
	if !ok {
		return announcement{}, nil
	}
	var ps problems
	var texts []string
	families := o.from.this.families(r)
	for _, six := range []bool{false, true} {
		end, ok := now.Node.endOf(six)
		// The hosts of IPv4 have no rule that needs an announcement.
		if !ok || end != tunnels && !families.Serve(end) || mode == config.NoEncap && (!six || !families.Has6()) {
			continue
		}
		i := slices.IndexFunc(now.Underlay.Networks, func(p netip.Prefix) bool { return p.Addr() == end })
		switch {
		case i >= 0:
			texts = append(texts, now.Underlay.Networks[i].String())
		case mode == config.NoEncap:
			texts = append(texts, netip.PrefixFrom(end, end.BitLen()).String())
		default:
			ps.report(o.from.this.object(), "status.addresses", reasonTransportNetworkUnknown,
				"packets of %s to all Nodes go through tunnels: the transport interface does not have the address %s, at which "+
					"the other Nodes reach this one: set transportInterface in antrea-agent.conf to the interface that has it",
				family.Of([]netip.Prefix{netip.PrefixFrom(end, 0)}), end)
		}
	}
	return announcement{Known: true, Text: strings.Join(texts, ",")}, ps
}

// routesToPods returns the host's routes to the Pods of other Nodes. They lead through the switch, or directly to a
// Node whose Pods the hosts route. A direct Node in another subnet has no route here, since the network between the
// Nodes routes its podCIDR. The source address of a route is of the route's family.
func (o *outputs) routesToPods(r *derive.Reader, u Underlay, source, hop netip.Addr) (via, direct []hostnet.Route) {
	routed := map[netip.Prefix]bool{}
	ofSource := func(p netip.Prefix) bool { return is4(p) == source.Is4() }
	for _, n := range derive.All(r, o.from.remotes) {
		if !n.Value.DirectTo(source) {
			continue
		}
		facts, _ := derive.Get(r, o.from.nodes, derive.Object{Name: n.Value.Name})
		next, _ := facts.endOf(source.Is6())
		neighbor := slices.ContainsFunc(u.Networks, func(p netip.Prefix) bool { return p.Contains(next) })
		for _, cidr := range o.from.flows.RangesOf(r, n.Value) {
			if !ofSource(cidr) {
				continue
			}
			if routed[cidr] = true; neighbor {
				direct = append(direct, hostnet.Route{Dst: cidr, Gateway: next, Link: u.Link, Source: source,
					Yields: o.from.config.TrafficEncapMode == config.NoEncap})
			}
		}
	}
	for _, n := range derive.All(r, o.from.nodes) {
		if n.Key.Name == o.from.nodeName {
			continue
		}
		ranges, err := n.Value.podCIDRs(o.from.this.families(r))
		if err != nil {
			continue
		}
		for _, cidr := range ranges {
			if !routed[cidr] && ofSource(cidr) {
				via = append(via, hostnet.Route{Dst: cidr, Gateway: hop, Link: o.from.config.HostGateway, Source: source,
					OnLink: true})
			}
		}
	}
	return via, direct
}

// masquerade returns the rules for packets that leave the Node. Packets of Pods get the Node's address, unless they go
// through the gateway port. The cluster's Pods are excepted in all traffic modes. When a Node changes to a mode in
// which hosts route packets between Pods, its flows and rules change at different moments. A packet of an open
// connection that got the Node's address in between would end the connection. With noSNAT the network outside routes
// the Pods' addresses. The network does not route the Service address, so it is always masqueraded.
func (o *outputs) masquerade(r *derive.Reader, ranges []netip.Prefix) hostnet.Masquerade {
	m := hostnet.Masquerade{ExceptLink: o.from.config.HostGateway}
	families := o.from.this.families(r)
	for _, ip := range []netip.Addr{serviceVIP, serviceVIP6} {
		if families.Serve(ip) {
			m.Always = append(m.Always, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	// Servers outside know no address of a VirtualNetwork, also without translation.
	for _, p := range o.from.pods.translatedFirsts(r) {
		if families.Serve(p.Addr()) {
			m.Always = append(m.Always, p)
		}
	}
	if o.from.config.NoSNAT {
		return m
	}
	m.Sources, m.Except = ranges, slices.Clone(ranges) // its own ranges stay while the API server lacks its object
	for _, n := range derive.All(r, o.from.nodes) {
		cidrs, _ := n.Value.podCIDRs(families)
		m.Except = append(m.Except, cidrs...)
	}
	slices.SortFunc(m.Except, netip.Prefix.Compare)
	m.Except = slices.Compact(m.Except)
	return m
}

// tooLarge reports a Pod whose MTU is larger than a new Pod's would be. A Pod keeps its MTU when the traffic mode or
// the transport interface's MTU changes. The table never has a row: only its problems are used.
func (t *tables) tooLarge(port derive.Name, r *derive.Reader) (bool, []problem.Problem) {
	a, _ := derive.Get(r, t.pods.attachments, port)
	at, _ := derive.Get(r, t.pods.ports, port)
	_, u, ok := t.this.ready(r)
	if mtu := podMTU(t.config, u); ok && mtu > 0 && at.MTU > mtu {
		var ps problems
		ps.report(problem.Object{Kind: "Pod", Namespace: a.PodNamespace, Name: a.PodName}, "", reasonMTUTooLarge,
			"its interface has MTU %d, and packets of at most %d bytes reach all Pods now: delete the Pod, so that it is made "+
				"again", at.MTU, mtu)
		return false, ps
	}
	return false, nil
}

// newNetworkPublisher returns the writer of this Node's annotation transportNetworks.
func (a *Agent) newNetworkPublisher() (*publisher[string], error) {
	api, err := newNodeClient(a.options.REST)
	if err != nil {
		return nil, err
	}
	return &publisher[string]{
		what: "the Node's transport network",
		want: func() (string, bool) {
			row, _ := a.tables.outputs.announcement.Get(self)
			return row.Text, row.Known
		},
		get: func() (problem.Object, string, bool) {
			n, ok := a.tables.nodes.Get(derive.Object{Name: a.options.NodeName})
			return a.tables.this.object(), n.NetworksText, ok
		},
		patch: patchNetworks(api), text: func(s string) []any { return []any{"networks", s} }, log: a.log,
		wake: make(chan struct{}, 1),
	}, nil
}

// patchNetworks writes the annotation transportNetworks, or removes it.
func patchNetworks(api rest.Interface) func(context.Context, problem.Object, string) error {
	return func(ctx context.Context, at problem.Object, want string) error {
		annotations := map[string]any{transportNetworks: nil}
		if want != "" {
			annotations[transportNetworks] = want
		}
		merge, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			return err
		}
		return api.Patch(types.MergePatchType).Resource("nodes").Name(at.Name).Body(merge).Do(ctx).Error()
	}
}

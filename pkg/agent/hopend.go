package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
)

// end returns where a packet leaves the switch, or where it ends.
func (a *hopAnswers) end(t appctl.Traced) api.HopEnd {
	n, _ := a.dump.tables.node.Get(self)
	port := ofp.Port(t.Output)
	if t.Back {
		in, _ := strconv.ParseUint(t.Fields["in_port"], 10, 32)
		port = ofp.Port(in)
		if a.wayPort(port) {
			port = n.Tunnels.Port
		}
	}
	kind, taken := datapath.TakenAs(t.Userdata)
	switch {
	case kind == datapath.ServiceReject, kind == datapath.PolicyReject:
		return a.lost(t, kind)
	case taken:
		return api.HopEnd{Verdict: api.HopDelivered, To: "the agent of Node " + n.Name,
			Message: fmt.Sprintf("the agent handles packets of kind %q", kind)}
	case port != 0 && port == n.Tunnels.Port: // also if the far end's MAC is not known yet
		return a.toTunnel(t)
	case port == 0, t.Dropped:
		return a.lost(t, datapath.Dropped)
	case port == n.GatewayPort:
		return a.toHost(t)
	}
	for _, row := range a.dump.tables.pods.rows.All() {
		if row.Value.Port == port {
			return api.HopEnd{Verdict: api.HopDelivered, To: "Pod " + row.Value.Namespace + "/" + row.Value.Name}
		}
	}
	return api.HopEnd{Verdict: api.HopLeft, Message: fmt.Sprintf("it leaves by port %d, which is no Pod's", port)}
}

// wayPort reports whether a port is the port of a way that BFD watches.
func (a *hopAnswers) wayPort(port ofp.Port) bool {
	watched, _ := a.dump.tables.ways.watched.Get(self)
	for _, end := range watched {
		if n, ok := a.dump.tables.ways.numbers.Get(end); ok && ofp.Port(n) == port {
			return true
		}
	}
	return false
}

// lost returns the end of the path of a packet that is dropped or refused, with the reason that its record would have.
func (a *hopAnswers) lost(t appctl.Traced, kind datapath.PacketKind) api.HopEnd {
	last := t.Last()
	r := seenReport{Report: datapath.Report{Kind: kind, Table: ofp.Table(last.Table), Cookie: last.Cookie,
		Priority: last.Priority, Headers: headersIn(t), Network: datapath.NetworkIn(t.Fields[datapath.NetworkRegister])}}
	asked, err := netip.ParseAddr(cmp.Or(t.Fields["ct_ipv6_dst"], t.Fields["ct_nw_dst"]))
	if err == nil && asked != r.Dst {
		asking, _ := strconv.ParseUint(t.Fields["ct_tp_dst"], 10, 16)
		r.Asked = netip.AddrPortFrom(asked, uint16(asking))
	}
	out := &record.Record{Verdict: record.Dropped, Reason: r.Reason()}
	if kind != datapath.Dropped {
		out.Verdict = record.Rejected
	}
	from, to := a.observer.endsOf(r)
	a.observer.explain(r, out, from, to)
	end := api.HopEnd{Verdict: out.Verdict, Reason: out.Reason, Message: out.Message, Policies: out.Policies}
	if out.Rule != nil {
		end.Rule = out.Rule.Policy + " " + out.Rule.Name
	}
	if len(t.Remarks) > 0 {
		end.Message = strings.TrimSpace(end.Message + " Open vSwitch: " + strings.Join(t.Remarks, "; "))
	}
	return end
}

// headersIn returns the headers of a packet at its end.
func headersIn(t appctl.Traced) datapath.Headers {
	h := datapath.Headers{Dst: destination(t)}
	h.Src, _ = netip.ParseAddr(cmp.Or(t.Fields["ipv6_src"], t.Fields["nw_src"]))
	for protocol, number := range protocolNumbers {
		if strings.TrimSuffix(t.Protocol, "6") == strings.ToLower(protocol) {
			h.Protocol = number
		}
	}
	switch t.Protocol {
	case "icmp":
		h.Protocol = 1
	case "icmp6":
		h.Protocol = protoICMPv6
	}
	src, _ := strconv.ParseUint(t.Fields["tp_src"], 10, 16)
	dst, _ := strconv.ParseUint(t.Fields["tp_dst"], 10, 16)
	h.SrcPort, h.DstPort = uint16(src), uint16(dst)
	return h
}

// toTunnel returns the end of a packet that goes to another Node, or to another cluster.
func (a *hopAnswers) toTunnel(t appctl.Traced) api.HopEnd {
	field := func(name string) netip.Addr {
		for _, prefix := range []string{"tun_", "tun_ipv6_"} {
			if ip, err := netip.ParseAddr(t.Fields[prefix+name]); err == nil && !ip.IsUnspecified() {
				return ip
			}
		}
		return netip.Addr{}
	}
	to, from := field("dst"), field("src")
	next := &api.HopNext{Packet: headersOnly(t), Key: t.Fields["tun_id"], OuterDst: to.String()}
	next.Node, next.Cluster, next.Gateway = a.farEnd(to)
	if p, _ := a.dump.tables.peers.peering.Get(self); next.Node == "" && !from.IsValid() {
		from = p.Part.End
	}
	if from.IsValid() {
		next.OuterSrc = from.String()
	}
	end := api.HopEnd{Verdict: api.HopForwarded}
	if len(t.Remarks) > 0 {
		end.Message = "Open vSwitch: " + strings.Join(t.Remarks, "; ")
	}
	if t.Unroutable {
		end.Verdict, end.Reason = api.HopDropped, record.NotSent
		end.Message = fmt.Sprintf("the Node has no route to the tunnel's end %s; %s", to, end.Message)
	}
	end.Next = next
	return end
}

// farEnd returns the owner of the far end of a tunnel: a Node of this cluster, or a Gateway of another cluster.
func (a *hopAnswers) farEnd(to netip.Addr) (node, cluster, gateway string) {
	if node = a.nodeAt(to); node != "" {
		return node, "", ""
	}
	p, _ := a.dump.tables.peers.peering.Get(self)
	for _, peer := range p.Peers {
		for _, w := range peer.Gateways {
			if w.End() == to {
				cluster, gateway = peer.ClusterID, w.Outside.String()
			}
		}
	}
	return "", cluster, gateway
}

// directNode returns the Node to which the host sends packets to an address without a tunnel, or no name.
func (a *hopAnswers) directNode(to netip.Addr) string {
	for _, row := range a.dump.tables.remotes.All() {
		r := row.Value
		if r.DirectTo(to) && slices.ContainsFunc(r.PodCIDRs, func(c netip.Prefix) bool { return c.Contains(to) }) {
			return r.Name
		}
	}
	return ""
}

// toHost returns the end of a path at which the host receives the packet. The host routes packets to Pods of some
// Nodes.
func (a *hopAnswers) toHost(t appctl.Traced) api.HopEnd {
	n, _ := a.dump.tables.node.Get(self)
	to := destination(t)
	contains := func(c netip.Prefix) bool { return c.Contains(to) }
	if !to.IsValid() || slices.Contains(n.GatewayIPs, to) || slices.Contains(n.NodePortAddresses, to) ||
		a.why.addresses.nodeOf(whyEnd{ip: to}) == n.Name {
		return api.HopEnd{Verdict: api.HopDelivered, To: "the host of Node " + n.Name}
	}
	if next := a.directNode(to); next != "" {
		return api.HopEnd{Verdict: api.HopForwarded, Next: &api.HopNext{Node: next, Packet: headersOnly(t)}}
	}
	if slices.ContainsFunc(n.ServiceCIDRs, contains) {
		return api.HopEnd{Verdict: api.HopLeft, Message: fmt.Sprintf("the host of Node %s gets it: %s is in the range of "+
			"Services, and the switch serves no Service with this address, protocol and port", n.Name, to)}
	}
	name := to.String()
	if node := a.why.addresses.hostAt(to); node != "" {
		name += " of Node " + node
	}
	return api.HopEnd{Verdict: api.HopLeft,
		Message: fmt.Sprintf("the host of Node %s sends it on to %s, by its routes", n.Name, name)}
}

// headersOnly returns the headers of a packet at the end of its path, without the fields that only this switch has.
func headersOnly(t appctl.Traced) string {
	words := []string{t.Protocol}
	if t.Protocol == "" { // of no protocol that has a word
		words = nil
	}
	fields := []string{"dl_src", "dl_dst", "nw_proto", "nw_src", "nw_dst", "ipv6_src", "ipv6_dst", "nw_ttl", "tp_src",
		"tp_dst"}
	prefix := ""
	if strings.HasPrefix(t.Protocol, "icmp") {
		fields = fields[:len(fields)-2]
		if prefix = "icmp"; t.Protocol == "icmp6" {
			prefix = "icmpv6"
		}
	}
	for _, f := range fields {
		if v := t.Fields[f]; v != "" {
			words = append(words, f+"="+v)
		}
	}
	for _, f := range []string{"type", "code"} {
		if v := t.Fields["icmp_"+f]; v != "" && prefix != "" {
			words = append(words, prefix+"_"+f+"="+v)
		}
	}
	return strings.Join(words, ",")
}

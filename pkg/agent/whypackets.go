package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// whyPackets makes the text of the packets of a connection.
type whyPackets struct {
	tables    *tables
	addresses *whyAddresses
	networks  *whyNetworks
}

// traceOf is a packet to be traced, and the stages that it proves.
type traceOf struct {
	flow   string
	stages []*api.WhyStage
	failed string
}

// tracesOf returns the packets that prove the decisions of this Node.
func (a *whyAnswers) tracesOf(w whyAnswer) []traceOf {
	var out []traceOf
	for i := range w.Connections {
		c, from := &w.Connections[i], w.clients[i]
		t := traceOf{}
		for j := range c.Stages {
			switch s := &c.Stages[j]; {
			case s.Here && s.Direction == serviceDirection:
				asking := traceOf{stages: []*api.WhyStage{s}}
				var err error
				if asking.flow, err = a.texts.askingPacket(from, *c); err != nil {
					asking.failed = err.Error()
				}
				out = append(out, asking)
			case s.Here:
				t.stages = append(t.stages, s)
			}
		}
		if len(t.stages) == 0 {
			continue
		}
		err := a.addresses.apart(from, c.To)
		if err == nil {
			t.flow, err = a.texts.packetOf(from, *c)
		}
		if err != nil {
			t.failed = err.Error()
		}
		out = append(out, t)
	}
	return out
}

// packetOf is the first packet of a connection as it comes into this Node's switch.
func (a *whyPackets) packetOf(from api.WhyEnd, c api.WhyConnection) (string, error) {
	n, ok := a.tables.node.Get(self)
	if !ok {
		return "", errors.New("this Node's network is not known yet")
	}
	source, mac := "", virtualMAC
	switch {
	case from.Node == a.tables.nodeName && from.Kind != kindNode:
		for _, row := range a.tables.pods.rows.All() {
			if row.Value.Namespace+"/"+row.Value.Name == from.Name && isFurther(row.Value.Network, from.Network) {
				source = fmt.Sprintf("in_port=%d,dl_src=%s", row.Value.Port, row.Value.MAC)
			}
		}
		if source == "" {
			return "", fmt.Errorf("there is no port of Pod %s in the switch yet", from.Name)
		}
	case from.Node != "" && from.Node != a.tables.nodeName:
		remote, ok := a.tables.remotes.Get(derive.Name(from.Node))
		if to, _ := netip.ParseAddr(c.To.Address); ok && remote.DirectTo(to) { // the host forwards it
			source = fmt.Sprintf("in_port=%d,dl_src=%s", n.GatewayPort, n.GatewayMAC)
			break
		}
		if !ok || len(n.Tunnels.Ends) == 0 {
			return "", fmt.Errorf("there is no tunnel from Node %s", from.Node)
		}
		source = fmt.Sprintf("in_port=%d,dl_src=%s,%s,tun_id=0", n.Tunnels.Port, n.GatewayMAC,
			tunnelHeaders(remote.Address, n.Tunnels.Ends[0]))
	case from.Cluster != "":
		p, _ := a.tables.peers.peering.Get(self)
		i := slices.IndexFunc(p.Peers, func(peer peering.Peer) bool { return peer.ClusterID == from.Cluster })
		if i < 0 || len(n.Tunnels.Ends) == 0 {
			return "", fmt.Errorf("there is no tunnel from cluster %s", from.Cluster)
		}
		near, far := n.Tunnels.Ends[0], p.Part.Gateway.InternalIP // from this cluster's Gateway
		if p.Part.Role == peering.Gateway {
			mac, far = datapath.CrossClusterMAC.String(), p.Peers[i].TunnelSources()[0].Addr()
			if p.Peers[i].Encrypted() || n.Tunnels.Encrypted { // not where the tunnels of Nodes end
				near = p.Part.End
			}
			if base := p.Peers[i].Base; base.IsValid() {
				near = base
			}
		}
		source = fmt.Sprintf("in_port=%d,dl_src=%s,%s,tun_id=%d", n.Tunnels.Port, n.GatewayMAC, tunnelHeaders(far, near),
			from.ClusterSet)
	default:
		source = fmt.Sprintf("in_port=%d,dl_src=%s", n.GatewayPort, n.GatewayMAC)
		for _, row := range a.tables.pods.rows.All() {
			if pod := row.Value; pod.Network != (derive.Object{}) && !pod.First {
				continue // the host does not reach it, and a further interface may have the address, too
			}
			if slices.ContainsFunc(row.Value.IPs, func(ip netip.Addr) bool { return ip.String() == c.To.Address }) {
				mac = row.Value.MAC.String() // the host has asked for it
			}
		}
	}
	if a.tables.tenants == nil {
		packet, err := headersOf(from, c)
		return fmt.Sprintf("%s,dl_dst=%s,%s", source, mac, packet), err
	}
	mac, packet, err := a.inNetwork(from, c, mac)
	return fmt.Sprintf("%s,dl_dst=%s,%s", source, mac, packet), err
}

// isFurther reports whether a port is in the VirtualNetwork that a text names. If the text is empty, it reports whether
// the port is a first interface without a VirtualNetwork.
func isFurther(network derive.Object, text string) bool {
	if network == (derive.Object{}) {
		return text == ""
	}
	return network.String() == text
}

// protocolNumbers are the numbers of the protocols that Services have.
var protocolNumbers = map[string]uint8{"TCP": 6, "UDP": 17, "SCTP": 132}

// tunnelHeaders returns the outer addresses of a tunnel's packet, in the text of ofproto/trace.
func tunnelHeaders(from, to netip.Addr) string {
	field := "tun"
	if from.Is6() {
		field = "tun_ipv6"
	}
	return fmt.Sprintf("%s_src=%s,%s_dst=%s", field, from, field, to)
}

// askingPacket is the first packet of a connection to an address of a Service, as it comes into this Node's switch.
// Packets of clients other than Pods come through the host, which has translated an external address or a node port.
func (a *whyPackets) askingPacket(from api.WhyEnd, c api.WhyConnection) (string, error) {
	asked, err := netip.ParseAddrPort(c.Asked)
	if err != nil {
		return "", err
	}
	c.Asked, c.To, c.Port = "", api.WhyEnd{Address: asked.Addr().String()}, asked.Port()
	protocol := corev1.Protocol(c.Protocol)
	f, ok := a.addresses.frontendAt(protocol, asked)
	if from.Kind == "Pod" || ok && f.Kind == service.ClusterIP { // the host translates no ClusterIP
		return a.packetOf(from, c)
	}
	entry, err := a.entryOf(from, protocol, asked)
	if err != nil {
		return "", err
	}
	c.To.Address, c.Port = entry.Addr().String(), entry.Port()
	key := derive.Object{Namespace: f.Namespace, Name: f.Service}
	if ok && a.tables.tenants != nil && a.networks.servicePlace(key).Isolated() {
		c.Asked = entry.String() // connection tracking has it
	}
	n, _ := a.tables.node.Get(self)
	packet, err := headersOf(from, c)
	return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,%s", n.GatewayPort, n.GatewayMAC, virtualMAC, packet), err
}

// entryOf returns the address and port to which the host translates an address of a Service for clients outside.
func (a *whyPackets) entryOf(from api.WhyEnd, protocol corev1.Protocol, asked netip.AddrPort) (netip.AddrPort, error) {
	client, err := netip.ParseAddr(from.Address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	own := a.addresses.nodeOf(whyEnd{WhyEnd: from, ip: client}) == a.tables.nodeName
	want, port := datapath.Entry{Own: own}, asked.Port()
	if f, ok := a.addresses.frontendAt(protocol, asked); ok && f.Kind != service.NodePort {
		number, ok := a.tables.flows.Services.Entries.Get(datapath.EntryID{Protocol: protocol, VIP: asked})
		if !ok {
			return netip.AddrPort{}, fmt.Errorf("the switch has no number of %s yet", asked)
		}
		want.External, port = true, uint16(number)
	}
	for _, e := range datapath.Entries {
		if e.External == want.External && e.Own == want.Own && e.Addr.Is4() == asked.Addr().Is4() {
			return netip.AddrPortFrom(e.Addr, port), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s is not served to clients outside", asked)
}

// headersOf returns the headers of a connection's first packet, in the text of ofproto/trace.
func headersOf(from api.WhyEnd, c api.WhyConnection) (string, error) {
	to, err := netip.ParseAddr(c.To.Address)
	if err != nil {
		return "", fmt.Errorf("the destination has no address: %w", err)
	}
	protocol := strings.ToLower(c.Protocol)
	name, address, icmp := protocol, "nw", "icmp"
	if !to.Is4() {
		name, address, icmp = protocol+"6", "ipv6", "icmpv6"
	}
	text := fmt.Sprintf("%s,%s_src=%s,%s_dst=%s,nw_ttl=64", name, address, from.Address, address, to)
	switch {
	case c.Protocol == string(protocolICMP):
		text += fmt.Sprintf(",%s_type=%d,%s_code=0", icmp, echoRequest(to), icmp)
	case c.Port != 0:
		text += fmt.Sprintf(",%s_src=49152,%s_dst=%d", protocol, protocol, c.Port)
	}
	// Connection tracking remembers the Service, and gives it to rules about Services.
	if asked, err := netip.ParseAddrPort(c.Asked); err == nil {
		text += fmt.Sprintf(",ct_state=trk|new,ct_%s_src=%s,ct_%s_dst=%s,ct_nw_proto=%d,ct_tp_src=49152,ct_tp_dst=%d",
			address, from.Address, address, asked.Addr(), protocolNumbers[c.Protocol], asked.Port())
	}
	return text, nil
}

// traceStages asks the switch, and compares.
func (a *whyAnswers) traceStages(ctx context.Context, t traceOf) {
	output, failed := "", t.failed
	if failed == "" {
		// A packet goes through connection tracking several times, and each time its connection is new.
		var options []string
		for range 4 {
			options = append(options, "--ct-next", "trk,new")
		}
		var err error
		if output, err = a.tracer.Trace(ctx, a.tables.config.OVSBridge, t.flow, options...); err != nil {
			failed = err.Error()
		}
	}
	var met []ofp.Table
	if failed == "" {
		traced, err := appctl.ParseTrace(output)
		if err != nil {
			failed = err.Error()
		}
		for _, s := range traced.Steps {
			met = append(met, ofp.Table(s.Table))
		}
	}
	last := datapath.Classify // in the order of packets; the tables after Output are parts of others
	for _, table := range met {
		if table <= datapath.Output {
			last = max(last, table)
		}
	}
	for _, s := range t.stages {
		s.Trace = &api.WhyTrace{Flow: t.flow, Error: failed}
		if failed != "" {
			continue
		}
		for _, table := range met {
			s.Trace.Tables = append(s.Trace.Tables, datapath.Program.Name(table))
		}
		first, after := datapath.Egress, datapath.Route
		switch s.Direction {
		case policy.Ingress.String():
			first, after = datapath.Ingress, datapath.Commit
		case serviceDirection:
			first, after = datapath.External, datapath.Service
		case api.DirectionNetwork:
			first, after = datapath.Route, datapath.Ingress
			if strings.Contains(t.flow, toTenants) { // a Node without isolated Pods lets none in
				first = datapath.Classify
			}
		}
		// A packet only goes to later tables. One that need not be judged skips these.
		s.Trace.Judged, s.Trace.Allowed = last >= first, last >= after
		s.Trace.Agrees = s.Trace.Judged && s.Trace.Allowed == s.Allowed
		if !s.Trace.Judged {
			s.Trace.Error = "the packet does not come to this decision: it ends before, in table " +
				s.Trace.Tables[len(s.Trace.Tables)-1]
		}
	}
}

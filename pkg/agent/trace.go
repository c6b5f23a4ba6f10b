package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// serveTrace traces a packet through the switch.
func (a *switchAnswers) serveTrace(r *http.Request) (any, error) {
	text := r.URL.Query().Get("flow")
	if text == "" {
		return nil, errors.New("the query has no flow: give one in ovs-ofctl's text, such as " +
			"in_port=3,tcp,nw_src=10.10.0.5,nw_dst=10.96.0.1,tp_dst=443")
	}
	return a.trace(r.Context(), text)
}

// trace traces a packet in ovs-ofctl's text.
func (a *switchAnswers) trace(ctx context.Context, text string) (api.Trace, error) {
	output, err := a.tracer.Trace(ctx, a.tables.config.OVSBridge, text)
	if err != nil {
		return api.Trace{}, fmt.Errorf("trace %q: %w%s", text, err, mixedVersions(err))
	}
	tables := map[string]string{}
	for _, t := range datapath.Program.Tables() {
		tables[itoa(int(t))] = datapath.Program.Name(t)
	}
	return api.Trace{Flow: text, Output: output, Tables: tables}, nil
}

// mixedVersions returns the remedy for a packet with fields of both versions of IP.
func mixedVersions(err error) string {
	for _, part := range []string{"prerequisites not met for setting ", "bad value for "} {
		_, field, ok := strings.Cut(err.Error(), part)
		for _, prefix := range []string{"nw_", "ipv6_", "icmp_", "icmpv6_"} {
			if ok && strings.HasPrefix(field, prefix) {
				return ": a packet has fields of one version of IP, such as tcp, nw_src and nw_dst of IPv4, or tcp6, ipv6_src " +
					"and ipv6_dst of IPv6"
			}
		}
	}
	return ""
}

// serveTraces traces the first packet of a connection between two ends, over each version of IP that both ends have.
func (a *answers) serveTraces(r *http.Request) (any, error) {
	var (
		packets []string
		out     api.TraceList
		err     error
	)
	if asking := ask(r.Context(), a.why.tables.engine, func() {
		packets, out.Networks, err = a.why.packets(r.URL.Query())
	}); asking != nil {
		return nil, asking
	}
	if err != nil {
		return nil, err
	}
	for _, text := range packets {
		t, err := a.dump.trace(r.Context(), text)
		if err != nil {
			return nil, err
		}
		out.Traces = append(out.Traces, t)
	}
	return out, nil
}

// outcome is the word for a decision.
var outcome = map[bool]string{true: "allowed", false: "denied"}

// packets returns the first packet of a connection over each version of IP, as it enters this Node's switch. It also
// returns the decisions of the tenant networks about the connection.
func (a *whyAnswers) packets(query url.Values) (out, networks []string, err error) {
	q, err := a.reader.question(query)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range q.families {
		client, ok := q.from.of(f)
		if !ok {
			continue
		}
		packet, ok, err := a.packetTo(q, f, client)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			continue
		}
		out = append(out, packet)
		all, _, err := a.destinations(q, f, client, &api.Why{})
		if err != nil {
			return nil, nil, err
		}
		for _, d := range all {
			if err := a.addresses.apart(client.WhyEnd, d.end.WhyEnd); err != nil {
				return nil, nil, err
			}
			if n := a.networks.networkOf(client, q, d); n.Reason != "" {
				networks = append(networks, fmt.Sprintf("to %s %s: %s", d.end.ip, outcome[n.Allowed], n.Reason))
			}
		}
	}
	if len(out) == 0 {
		return nil, nil, a.reader.nothingInCommon(q)
	}
	return out, networks, nil
}

// packetTo returns the first packet of a client over a version of IP. If the destination has no address of that
// version, ok is false.
func (a *whyAnswers) packetTo(q whyQuestion, f family.Families, client whyEnd) (packet string, ok bool, err error) {
	node := a.addresses.nodeOf(client)
	elsewhere := node != "" && node != a.tables.nodeName
	if q.to.service() == nil {
		to, ok := q.to.of(f)
		if !ok {
			return "", false, nil
		}
		if elsewhere && a.addresses.nodeOf(to) != a.tables.nodeName {
			return "", false, fmt.Errorf("from: %s is of Node %s, and %s is not of this Node: ask the agent of Node %s",
				client.ip, node, to.ip, node)
		}
		if err := a.withoutSwitch(client, to); err != nil {
			return "", false, err
		}
		port, err := portOf(q, to)
		if err != nil {
			return "", false, err
		}
		packet, err = a.texts.packetOf(client.WhyEnd,
			api.WhyConnection{To: to.WhyEnd, Protocol: string(q.protocol), Port: port})
		return hashed + packet, true, err
	}
	front, ok, err := a.reader.frontendOf(q, f)
	if err != nil || !ok {
		return "", false, err
	}
	asked := front.VIP
	if to, ok := q.to.of(f); ok && q.to[0].front != nil { // a node port has no address of its own
		asked = netip.AddrPortFrom(to.ip, front.VIP.Port())
	}
	switch {
	case elsewhere && front.Kind == service.NodePort:
		if client, err = a.addresses.fromOutside(client); err != nil {
			return "", false, err
		}
	case elsewhere:
		return "", false, fmt.Errorf("from: %s is of Node %s, which chooses the endpoint of Service %s: ask the agent of "+
			"Node %s, or give one of its Pods as destination", client.ip, node, q.to.service(), node)
	}
	packet, err = a.texts.askingPacket(client.WhyEnd, api.WhyConnection{Protocol: string(front.Protocol),
		Asked: asked.String()})
	return hashed + packet, true, err
}

// hashed begins the text of a packet for ofproto/trace, and gives the packet a hash. Where a switch chooses an
// endpoint, or a way to another cluster, it recirculates a packet to compute its hash. ofproto/trace ends there, unless
// the packet has a hash already.
const hashed = "dp_hash=1,"

// withoutSwitch returns an error if packets of a client reach a Node's host without passing the switch. These are
// packets of hosts, and of clients outside of the clusters.
func (a *whyAnswers) withoutSwitch(client, to whyEnd) error {
	node := a.addresses.hostAt(to.ip)
	if node == "" || isPod(client) || client.Cluster != "" {
		return nil
	}
	return fmt.Errorf("to: %s is the host of Node %s, and the switch serves no Service there with this port: packets of "+
		"%s come to the host without the switch; look for a program that listens there and for a firewall, or give a Pod "+
		"of the Service if kube-proxy serves the port", to.ip, node, client.ip)
}

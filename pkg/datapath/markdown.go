package datapath

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// purposes has a sentence about the purpose of each table.
var purposes = map[ofp.Table]string{
	Classify: "Where did the packet come from, and may it have this source? " +
		"A Pod may use its own MAC and addresses only, in IP and in ARP; the far end of a tunnel only those behind it.",
	ARP: "Answers requests, in IPv6 Neighbor Solicitations, for Pods of this Node, for the gateway port " +
		"and for the Service address; nothing is flooded.",
	UnSNAT: "Replies to connections whose source was translated here get their destination " +
		"back. On the Gateway what goes untranslated between Pods of two clusters is not looked up, and goes on to Route.",
	Conntrack: "Looks the connection up and repeats or undoes its destination translation.",
	ConntrackState: "Known connections go on to Route, invalid packets end, new " +
		"connections need a choice. On the userspace datapath every packet of SCTP that is no answer is treated as new.",
	Again: "A known connection whose rule is no more, or whose Pod has " +
		"other labels, is pending from now on: its packets are judged like the first of a new one. " +
		"The first 7 replies of TCP and SCTP still pass before the client's next packet was judged; all others wait for it.",
	Exports: "On the Gateway: another cluster may open connections to exported " +
		"Services and their endpoints, and to Pods where enablePodToPodConnectivity is on.",
	External: "Notes that a new connection comes from outside of the Pods' network: the host has translated it to an " +
		"address that stands for a port of the Node, or for an external address. Drops clients that " +
		"loadBalancerSourceRanges do not name.",
	Service: "Chooses an endpoint for a new connection to a Service and remembers " +
		"it with the connection. A Service without endpoints is answered by the agent.",
	Affinity: "With session affinity: the clients that are remembered, each " +
		"with the bucket of its endpoint. These flows are learned from packets, expire " +
		"when no new connection comes, and go with the endpoint; the agent leaves them alone.",
	Endpoint: "With session affinity: sends a new connection to the endpoint that Affinity " +
		"has found, and remembers the client. Without one the Service's group chooses, and the packet comes here again.",
	Egress: "A new connection of a Pod that policies are applied to for " +
		"egress is judged; everything else goes on to Route.",
	EgressPeer: "Finds the identity of the Pod that has the destination's address.",
	EgressAdmin: "The first rule of admin tiers that matches identities, ranges " +
		"and ports decides: on to Route, to EgressRule (Pass), dropped, or refused by the agent.",
	EgressRule: "Lets on to Route what a rule of NetworkPolicies allows, and " +
		"where these isolate the Pod nothing else.",
	EgressBaseline: "The first rule of baseline tiers that matches decides; what none matches goes on to Route.",
	Route:          "Chooses the next hop: a Pod, the host, another Node, another cluster.",
	Ingress: "A new connection to a Pod of this Node that policies are applied " +
		"to for ingress is judged; everything else, and the Node's own probes, go on to Commit. Answers of DNS to a Pod " +
		"under rules with names are left to the agent, which sends them to the Pod once the switch knows their addresses.",
	IngressPeer:     "Finds the identity of the Pod that has the source's address.",
	IngressAdmin:    "As EgressAdmin, on to Commit.",
	IngressRule:     "As EgressRule, on to Commit.",
	IngressBaseline: "As EgressBaseline, on to Commit.",
	Commit: "Remembers new connections that table Service has not remembered. Of the others it remembers that " +
		"policies have allowed them. A packet to the range of Services that no Service has translated makes no connection.",
	SNAT: "Translates the source of connections between clusters (on the Gateway) " +
		"and of connections that leave through the port they came from.",
	Output: "Sends the packet.",
	Tenant: "With feature gate TenantNetworks: chooses the next hop of a packet in a network of tenants, among the Pods " +
		"of that network and of networks that it is joined with. It answers ARP and Neighbor Solicitations of its Pods. " +
		"Table Route sends the packet here, unless it is of a connection to a Service of the default network.",
	Advertise: "With IPv6: makes the answer to a Neighbor Solicitation complete, which table ARP has begun, and sends " +
		"it back. No other message of Neighbor Discovery passes the switch.",
}

// Markdown is the text of docs/pipeline.md, made from the declarations of this package.
func Markdown() string {
	var b strings.Builder
	b.WriteString("<!-- Code generated from pkg/datapath. DO NOT EDIT. -->\n# The pipeline\n\n")
	b.WriteString("A packet meets the tables from top to bottom. What matches nothing " +
		"is dropped, or goes on to the\nnext table where that is said.\n\n")
	b.WriteString("| number | table | what it does | no match |\n|---|---|---|---|\n")
	for _, t := range Program.Tables() {
		miss := "dropped"
		if Program[t].Miss == flow.Next {
			miss = "goes on to " + Program.Name(t+1)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", t, Program.Name(t), purposes[t], miss)
	}
	b.WriteString("\n## What a packet and a connection carry\n\n| name | bits | meaning | values |\n|---|---|---|---|\n")
	for _, f := range bitFields {
		values := strings.Join(f.values, ", ")
		if values == "" && f.bits.Width == 1 {
			values = "1 yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.name, rangeText(f.bits), f.means, values)
	}
	b.WriteString("\n## Numbers\n\n| what | value |\n|---|---|\n")
	for _, row := range [][2]string{
		{"ct zone of every connection, with its destination translation", fmt.Sprint(mainZone)},
		{"ct zone of connections whose source is translated", fmt.Sprint(snatZone)},
		{"ct zone of SCTP on the userspace datapath, whose tracker knows no ports of it", "the server's port"},
		{"destination MAC of packets between Nodes of the cluster", InClusterMAC.String()},
		{"destination MAC of packets between clusters", CrossClusterMAC.String()},
		{"the same, to this cluster's Gateway, untranslated", TransitMAC.String()},
		{"destination MAC of packets between Nodes in a network of tenants, whose number follows", TenantMAC.String()},
		{"destination MAC of probes of ways between clusters", ProbeMAC.String()},
		{"destination MAC of their echoes", EchoMAC.String()},
		{"type of probes' frames", fmt.Sprintf("%#04x", probeType)},
		{"priorities",
			fmt.Sprintf("%d always dropped, %d special case, %d normal, %d fallback, %d everything else, 0 no match",
				never, high, normal, low, last)},
		{"owner kinds in cookies", fmt.Sprintf("%d Pod, %d Service, %d Policy, %d Multicluster, %d Node, %d Tenant",
			KindPod, KindService, KindPolicy, KindMulticluster, KindNode, KindTenant)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	b.WriteString("\n## What is admitted\n\n| a packet from | needs | and reaches |\n|---|---|---|\n")
	for _, row := range admitted {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.from, row.needs, row.reaches)
	}
	b.WriteString(admission)
	return b.String()
}

// admitted describes which packets table Classify lets in, and where they may go.
var admitted = []struct{ from, needs, reaches string }{
	{"a Pod", "its own MAC and one of its addresses, also inside ARP",
		"everything but the tunnel ports of Nodes and of other clusters' gateways"},
	{"the host", "nothing: it forwards for others", "Pods, Services, other clusters' Services"},
	{"another Node, by the tunnel",
		"outer source: an address of that Node; outer destination: this Node's; " +
			"inner source: that Node's podCIDRs, or its own addresses",
		"Pods, the host, and on the Gateway other clusters"},
	{"another cluster, on the Gateway",
		"outer source: a gateway address that the cluster has announced, or one that the ClusterSet's annotation adds; " +
			"destination MAC for packets between clusters; " +
			"inner source: its gateways' addresses and the ranges behind it",
		"exported Services and their endpoints; Pods with enablePodToPodConnectivity, but not hosts; " +
			"answers to connections that are known"},
	{"Pods of another cluster, to Pods of other Nodes, on the Gateway, with enablePodToPodConnectivity",
		"the same; inner source: the ranges of its Pods; " +
			"inner destination: podCIDRs of another Node, not its host's address",
		"these Nodes, untracked"},
	{"the far end of a way between clusters", "destination MAC and type of probes", "that far end alone, metered"},
	{"another cluster, on other Nodes", "outer source: this cluster's Gateway; inner source as above",
		"Pods: the Gateway has checked the rest"},
}

// admission completes what the table of admitted packets describes.
const admission = `
Packets in networks of tenants have the destination MAC 02:54:4e:00:00:00 with the network's number:

- From another Node or Gateway of the cluster: outer and inner source as above. They reach Pods of that network, and of
  networks that it is joined with, and through a Gateway such Pods of other clusters.
- From another cluster, on the Gateway: outer source as above; inner source: the ranges of its Pods; a number of a
  network that has Pods in that cluster, and is here too or joined with one here. They reach the same Pods here, and
  nothing else.

A Pod whose own network is a VirtualNetwork sends to servers of the default network with the MAC of packets between
Nodes. Its Node may send from its blocks of such networks to Pods of the default network, and to nothing else. Replies
go back, and nothing else.

Whatever its source, a packet with a VLAN tag is dropped, as are IPv6 packets on a Node without IPv6, packets to
0.0.0.0/8, 127.0.0.0/8 and 224.0.0.0/3, packets to ::/127, ::ffff:0:0/96, fe80::/10, ff00::/8 and fc01::/64, packets to
169.254.0.253 outside of a connection, packets to 169.254.0.248/29 that no Service has, and packets to another Node
whose TTL ends. The switch hides the ports of fragments; so new connections in fragments of UDP to the address of a
tunnel's end are dropped whatever their port (on the kernel's datapath connection tracking reassembles them first). An
ICMP error is taken when it is about a known connection and for the end that it is about, from any sender that may send
to that end at all, as from any router.

Outer addresses are as trustworthy as the network between the Nodes: only encryption keeps out a sender that can forge
them. Each kind of packet that goes to the agent passes a meter of ` + "`packetInRate`" + ` packets a second; what
exceeds it is dropped.
Packets for the log of policies, and answers of DNS before, pass the share of a Pod's label set.
`

// rangeText writes a range as ovs-ofctl does, without the class prefix.
func rangeText(r flow.Bits) string {
	switch {
	case r.First == 0 && r.Width == 32:
		return r.Field.String()
	case r.Width == 1:
		return fmt.Sprintf("%s[%d]", r.Field, r.First)
	}
	return fmt.Sprintf("%s[%d..%d]", r.Field, r.First, r.First+r.Width-1)
}

package node

import (
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

var policies = api.PolicyList{Policies: []api.Policy{
	{Kind: "AntreaClusterNetworkPolicy", Name: "default-deny", Tier: "baseline", TierPriority: new(int32(253)),
		Priority: new(1.), Pods: []string{"default/web-2"}, Rules: 1},
	{Kind: "AntreaClusterNetworkPolicy", Name: "isolate", Tier: "securityops", TierPriority: new(int32(100)),
		Priority: new(5.5), Pods: []string{"default/web-1"}, Rules: 1},
	{
		Kind: "NetworkPolicy", Namespace: "default", Name: "web", Pods: []string{"default/web-1", "default/web-2"}, Rules: 2,
		Counters: api.Counters{Packets: 12, Bytes: 648, Connections: 12},
		Problems: []api.Problem{{Object: "NetworkPolicy default/web", Field: "spec.ingress[0].from[1].ipBlock.cidr",
			Reason: "InvalidCIDR", Message: "10.0.0.0/33 is not a range of addresses"}},
	},
	{Kind: "AntreaNetworkPolicy", Namespace: "default", Name: "first", Tier: "emergency", TierPriority: new(int32(50)),
		Priority: new(9.), Pods: []string{}},
}}

var rulesOfAll = api.RuleList{
	Rules: []api.Rule{
		{
			Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "ingress", Action: "Allow",
			Pods: []string{"default/web-1", "default/web-2"}, Applied: []uint32{5},
			Peers:    []string{"Pods with app=client in Namespace default", "198.51.100.0/24"},
			Ports:    []string{"TCP/80", "TCP/8000-8080"},
			Counters: api.Counters{Packets: 12, Bytes: 648, Connections: 12},
		},
		{
			Kind: "AntreaClusterNetworkPolicy", Policy: "isolate", Direction: "egress", Index: 3, Name: "no-metadata",
			Action:  "Drop",
			Pods:    []string{"default/web-1", "default/web-2", "default/web-3", "default/web-4", "default/web-5"},
			Applied: []uint32{5}, Peers: []string{}, Ports: []string{},
		},
	},
	Denied: []api.Denied{{Direction: "ingress", Packets: 3, Bytes: 162}, {Direction: "egress"}},
}

var client = api.WhyEnd{Kind: "Pod", Name: "shop/web", Address: "10.10.1.2", Node: "node-1"}

// why is a connection by a Service of two endpoints, traced on the client's Node.
var why = api.Why{
	From: client, To: api.WhyEnd{Kind: "Service", Name: "shop/db", Address: "10.97.0.10"}, LeftOut: 3,
	Notes: []string{"a note"},
	Connections: []api.WhyConnection{
		{
			To: api.WhyEnd{Kind: "Pod", Name: "shop/db-0", Address: "10.10.2.9", Node: "node-2"}, Protocol: "TCP", Port: 5432,
			Stages: []api.WhyStage{
				{
					Direction: "egress", Node: "node-1", Here: true, Allowed: true, Reason: "no policy applies to the Pod for egress",
					Pod:      "shop/web",
					Identity: "ns:kubernetes.io/metadata.name=shop&pod:app=web", Number: 17,
					Peer: "ns:kubernetes.io/metadata.name=shop&pod:app=db",
					Trace: &api.WhyTrace{Flow: "in_port=3,tcp", Tables: []string{"Classify", "Egress", "Route", "Output"},
						Judged: true, Allowed: true, Agrees: true},
				},
				{
					Direction: "ingress", Node: "node-2",
					Reason: "NetworkPolicies isolate the Pod for ingress, and none of their rules allows it", Pod: "shop/db-0",
					Identity: "ns:kubernetes.io/metadata.name=shop&pod:app=db",
					Peer:     "ns:kubernetes.io/metadata.name=shop&pod:app=web", Policies: []string{"NetworkPolicy shop/db"},
				},
			},
		},
		{
			To: api.WhyEnd{Address: "10.96.0.20", Cluster: "west"}, Protocol: "TCP", Port: 5432, Allowed: true,
			Stages: []api.WhyStage{
				{Direction: "egress", Node: "node-1", Here: true, Allowed: true, Reason: "no policy applies to the Pod for egress",
					Pod: "shop/web", Trace: &api.WhyTrace{Error: "no switch"}},
				{Direction: "ingress", Allowed: true,
					Reason: "10.96.0.20 is of cluster west, whose own policies judge it: ask on the server's Node there, with " +
						"--from 192.168.78.101"},
			},
		},
	},
}

// bothVersions is a connection by a Service of two endpoints over IPv4 and IPv6, traced on the client's Node. The
// decisions about one of the endpoints are the same.
var bothVersions = func() api.Why {
	w := api.Why{From: client, To: api.WhyEnd{Kind: "Service", Name: "shop/db", Address: "10.97.0.10",
		Addresses: []string{"10.97.0.10", "fd97::10"}}}
	w.From.Addresses = []string{"10.10.1.2", "fd10::1:2"}
	for _, addresses := range [][]string{
		{"10.10.1.2", "10.10.2.9", "10.10.2.10"}, {"fd10::1:2", "fd10::2:9", "fd10::2:a"},
	} {
		for i, address := range addresses[1:] {
			c := api.WhyConnection{From: addresses[0], To: api.WhyEnd{Kind: "Pod", Name: fmt.Sprint("shop/db-", i),
				Address: address, Node: "node-2"}, Protocol: "TCP", Port: 5432, Allowed: true}
			c.Stages = []api.WhyStage{
				{Direction: "egress", Node: "node-1", Here: true, Allowed: true, Reason: "no policy applies to the Pod for egress",
					Pod: "shop/web", Trace: &api.WhyTrace{Flow: "in_port=3," + address, Tables: []string{"Classify", "Route"},
						Judged: true, Allowed: true, Agrees: true}},
				{Direction: "ingress", Node: "node-2", Allowed: true, Reason: "allowed", Pod: c.To.Name},
			}
			if address == "fd10::2:a" {
				c.Allowed, c.Stages[1].Allowed, c.Stages[1].Reason = false, false, "denied over IPv6"
			}
			w.Connections = append(w.Connections, c)
		}
	}
	return w
}()

// ofService is a connection to an external address of a Service, whose policies deny it.
var ofService = api.Why{
	From: api.WhyEnd{Address: "203.0.113.7"}, To: api.WhyEnd{Kind: "Service", Name: "shop/db", Address: "198.51.100.10"},
	Connections: []api.WhyConnection{{
		From: "203.0.113.7", To: api.WhyEnd{Kind: "Pod", Name: "shop/db-0", Address: "10.10.2.9", Node: "node-2"},
		Asked: "198.51.100.10:443", Protocol: "TCP", Port: 5432,
		Stages: []api.WhyStage{
			{Direction: "service", Node: "node-1", Here: true, Reason: "Drop of AntreaClusterNetworkPolicy edge ingress[1]",
				Service: "shop/db", Policies: []string{"AntreaClusterNetworkPolicy edge"},
				Trace: &api.WhyTrace{Flow: "in_port=2,tcp", Tables: []string{"Classify", "External"}, Judged: true, Agrees: true}},
			{Direction: "egress", Allowed: true, Reason: "203.0.113.7 is no Pod of this cluster: no policy judges for it"},
			{Direction: "ingress", Node: "node-2", Allowed: true, Reason: "no policy applies to the Pod for ingress",
				Pod: "shop/db-0"},
		},
	}},
}

// ofNetworks is a connection to a Pod in an isolated Namespace, whose network the client is not in.
var ofNetworks = api.Why{
	From: client, To: api.WhyEnd{Kind: "Pod", Name: "a/db", Address: "10.10.1.9", Node: "node-1"},
	Connections: []api.WhyConnection{{
		From: "10.10.1.2", To: api.WhyEnd{Kind: "Pod", Name: "a/db", Address: "10.10.1.9", Node: "node-1"},
		Protocol: "TCP", Port: 80,
		Stages: []api.WhyStage{
			{Direction: "egress", Node: "node-1", Here: true, Allowed: true, Pod: "shop/web",
				Reason: "no policy applies to the Pod for egress"},
			{Direction: "network", Node: "node-1", Here: true,
				Reason: "Pod a/db is in the isolated Namespace a: Pods of other Namespaces do not reach it (docs/tenants.md)",
				Trace:  &api.WhyTrace{Flow: "in_port=3,tcp", Tables: []string{"Classify", "Route"}, Judged: true, Agrees: true}},
			{Direction: "ingress", Node: "node-1", Here: true, Allowed: true, Pod: "a/db",
				Reason: "no policy applies to the Pod for ingress",
				Trace:  &api.WhyTrace{Error: "the packet does not come to this decision: it ends before, in table Route"}},
		},
	}},
}

// lies is an answer that the switch does not agree with.
var lies = api.Why{From: client, To: client,
	Connections: []api.WhyConnection{{To: client, Protocol: "UDP", Port: 53, Stages: []api.WhyStage{{
		Direction: "egress", Node: "node-1", Here: true, Reason: "because", Pod: "shop/web",
		Trace: &api.WhyTrace{Flow: "in_port=3,udp", Tables: []string{"Classify"}, Judged: true, Allowed: true},
	}}}}}

package main

import "github.com/tombolo-net/tombolo/pkg/observe/api"

var policies = api.PolicyList{Policies: []api.Policy{
	{Kind: "ClusterNetworkPolicy", Name: "isolate", Tier: "securityops", Priority: new(5.5), Pods: []string{"default/web-1"}, Rules: 1},
	{
		Kind: "NetworkPolicy", Namespace: "default", Name: "web", Pods: []string{"default/web-1", "default/web-2"}, Rules: 2,
		Counters: api.Counters{Packets: 12, Bytes: 648, Connections: 12},
		Problems: []api.Problem{{Object: "NetworkPolicy default/web", Field: "spec.ingress[0].from[1].ipBlock.cidr", Reason: "IPv6NotServed", Message: "fd00::/64 is of IPv6, which is not served yet"}},
	},
}}

var rulesOfAll = api.RuleList{
	Rules: []api.Rule{
		{
			Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "ingress", Action: "Allow",
			Pods: []string{"default/web-1", "default/web-2"}, Applied: []uint32{5}, Peers: []string{"Pods with app=client in Namespace default", "198.51.100.0/24"}, Ports: []string{"TCP/80", "TCP/8000-8080"},
			Counters: api.Counters{Packets: 12, Bytes: 648, Connections: 12},
		},
		{
			Kind: "ClusterNetworkPolicy", Policy: "isolate", Direction: "egress", Index: 3, Name: "no-metadata", Action: "Drop",
			Pods: []string{"default/web-1", "default/web-2", "default/web-3", "default/web-4", "default/web-5"}, Applied: []uint32{5}, Peers: []string{}, Ports: []string{},
			SharesFlowOf: "default/other egress[0]",
		},
	},
	Denied: []api.Denied{{Direction: "ingress", Packets: 3, Bytes: 162}, {Direction: "egress"}},
}

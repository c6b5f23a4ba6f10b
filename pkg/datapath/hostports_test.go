package datapath

import (
	"maps"
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// portlyCable is newCable with ports of node-1 that lead to its first Pod, or without any of them.
func portlyCable(t *testing.T, none bool) *cable {
	s := dualNode(1)
	s.Pods[0].HostPorts = !none
	return cableOf(t, map[string]State{"east1": s, "east2": dualNode(2), "west1": westNode(1), "west2": westNode(2)})
}

// TestHostPortConversations follows packets that the host has translated to a Pod, and the replies. The replies go
// to the host, which restores the address that the client asked.
func TestHostPortConversations(t *testing.T) {
	for _, test := range []struct {
		name, client, there, back string
		none                      bool
	}{
		{"another machine", "192.0.2.9", "east1 pod1: 192.0.2.9:40000 > 10.11.0.2:80",
			"east1 host: 10.11.0.2:80 > 192.0.2.9:40000", false},
		{"another Pod of the Node", "10.11.0.3", "east1 pod1: 10.11.0.3:40000 > 10.11.0.2:80",
			"east1 host: 10.11.0.2:80 > 10.11.0.3:40000", false},
		{"a Pod of another Node, not masqueraded", "10.11.1.2", "east1 pod1: 10.11.1.2:40000 > 10.11.0.2:80",
			"east1 host: 10.11.0.2:80 > 10.11.1.2:40000", false},
		{"the Pod itself", "10.11.0.2", "east1 pod1: 169.254.0.253:40000 > 10.11.0.2:80",
			"east1 host: 10.11.0.2:80 > 10.11.0.2:40000", false},
		{"a Pod of the Node, where no port leads to the Pod", "10.11.0.3", "east1 pod1: 10.11.0.3:40000 > 10.11.0.2:80",
			"east1 pod2: 10.11.0.2:80 > 10.11.0.3:40000", true},
	} {
		for version, as := range map[string]func(string) string{
			"": func(four string) string { return four }, " by IPv6": inSix,
		} {
			t.Run(test.name+version, func(t *testing.T) {
				c := portlyCable(t, test.none)
				request := c.request("east1 host", as("10.11.0.2:80"), oftest.TCP)
				request.IPSrc = addrOf(as(test.client))
				for i := range 3 {
					w := c.send("east1 host", request)
					if w.String() != as(test.there) {
						t.Fatalf("packet %d: %s, want %s", i, w, as(test.there))
					}
					if i == 0 {
						continue // a SYN sent again
					}
					if back := c.send("east1 pod1", w.packet.Reply()); back.String() != as(test.back) {
						t.Fatalf("reply %d: %s, want %s", i, back, as(test.back))
					}
				}
			})
		}
	}
}

// TestHostPortPolicy has rules judge the clients of a port that leads to a Pod, all of whose packets the host sends.
func TestHostPortPolicy(t *testing.T) {
	c := unknownSources()
	pod := c.Pods[0]
	pod.HostPorts = true
	c.pods.Set(derive.Name(pod.Interface), pod)
	c.judge(policy.Ingress,
		policy.RuleFacts{Action: policy.Drop, Peers: []policy.Selector{{Pods: "app=b"}}, AnyPort: true},
		policy.RuleFacts{Action: policy.Drop, Ranges: []policy.Range{{CIDR: rangeOf("192.0.2.0/28")}}, AnyPort: true})
	c.engine.Pass()
	sw, err := oftest.New(Program)
	if err == nil {
		err = sw.Replace(slices.Collect(maps.Values(c.held))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]string{
		"10.11.0.3": dropped, "10.11.1.2": allowed, "192.0.2.9": dropped, "192.0.2.99": allowed, "10.11.0.2": allowed,
	} {
		sw.Forget()
		p := oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, EthDst: InClusterMAC, IPSrc: addrOf(client),
			IPDst: c.Pods[0].IPs[0], Proto: oftest.TCP, SrcPort: 1024, DstPort: 80}
		if have := met(sw.Send(p)); have != want {
			t.Errorf("%s: %s, want %s", p, have, want)
		}
	}
}

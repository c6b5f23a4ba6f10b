package datapath

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
)

// insideNodes are separateNodes where a/blue and a/red are the own networks of Pods. pod8 is the first interface of a
// Pod in blue and pod9 of one in red, with addresses of the Node. pod3 and pod4 are their further interfaces.
func insideNodes() map[string]State {
	states := separateNodes()
	for node, s := range states {
		s.Networks = maps.Clone(s.Networks)
		for k, v := range s.Networks {
			v.Own = true
			s.Networks[k] = v
		}
		for i, name := range []string{"blue", "red"} {
			pod := s.Pods[0]
			pod.Namespace, pod.Name, pod.Interface = "a", s.Pods[2+i].Name, []string{"pod8", "pod9"}[i]
			pod.Port, pod.MAC[5], pod.IPs = ofp.Port(8+i), byte(0x80+i), nil
			pod.Inside = derive.Object{Namespace: "a", Name: name}
			for _, ip := range s.Pods[0].IPs {
				for range 6 + i {
					ip = ip.Next()
				}
				pod.IPs = append(pod.IPs, ip)
			}
			s.Pods = append(slices.Clone(s.Pods), pod)
		}
		states[node] = s
	}
	serviceOf(states, "default", "near", "10.97.0.50:80", "10.11.0.2:8080")
	serviceOf(states, "default", "far", "10.97.0.51:80", "10.11.1.2:8080")
	serviceOf(states, "default", "far6", "[fd97::51]:80", "[fd11:0:0:1::2]:8080")
	serviceOf(states, "default", "inside", "10.97.0.53:80", "10.11.1.9:8080")
	serviceOf(states, "a", "own", "10.97.0.60:80", "10.11.1.9:8080")
	serviceOf(states, "a", "blue", "10.97.0.61:80", "10.11.1.8:8080")
	serviceOf(states, "a", "itself", "10.97.0.62:80", "10.11.0.9:8080")
	serviceOf(states, "a", "default", "10.97.0.63:80", "10.11.1.2:8080")
	return states
}

// TestInside follows conversations of Pods whose own network is a separate one. Their addresses of the Node reach
// Services and Pods of this network. The host of their Node reaches them, and nothing else does.
func TestInside(t *testing.T) {
	for _, row := range []struct{ name, from, to, there, back string }{
		{"its network, on another Node", "east1 pod9", "10.11.1.9:80", "east1 east2 pod9: 10.11.0.9:40000 > 10.11.1.9:80",
			"east2 east1 pod9: 10.11.1.9:80 > 10.11.0.9:40000"},
		{"by IPv6", "east1 pod9", "[fd11:0:0:1::9]:80",
			"east1 east2 pod9: [fd11::9]:40000 > [fd11:0:0:1::9]:80",
			"east2 east1 pod9: [fd11:0:0:1::9]:80 > [fd11::9]:40000"},
		{"the API server", "east1 pod9", "10.97.0.1:443", "east1 host: 10.11.0.9:40000 > 172.30.1.10:6443",
			"east1 pod9: 10.97.0.1:443 > 10.11.0.9:40000"},
		{"a Service on its Node", "east1 pod9", "10.97.0.50:80", "east1 pod1: 10.11.0.9:40000 > 10.11.0.2:8080",
			"east1 pod9: 10.97.0.50:80 > 10.11.0.9:40000"},
		{"a Service on another Node", "east1 pod9", "10.97.0.51:80",
			"east1 east2 pod1: 10.11.0.9:40000 > 10.11.1.2:8080", "east2 east1 pod9: 10.97.0.51:80 > 10.11.0.9:40000"},
		{"a Service by IPv6", "east1 pod8", "[fd97::51]:80",
			"east1 east2 pod1: [fd11::8]:40000 > [fd11:0:0:1::2]:8080",
			"east2 east1 pod8: [fd97::51]:80 > [fd11::8]:40000"},
		{"a Service of its network", "east1 pod9", "10.97.0.60:80",
			"east1 east2 pod9: 10.11.0.9:40000 > 10.11.1.9:8080", "east2 east1 pod9: 10.97.0.60:80 > 10.11.0.9:40000"},
		{"itself", "east1 pod9", "10.97.0.62:80", "east1 pod9: 169.254.0.253:40000 > 10.11.0.9:8080",
			"east1 pod9: 10.97.0.62:80 > 10.11.0.9:40000"},
		{"the kubelet's probe", "east1 host", "10.11.0.9:80", "east1 pod9: 10.11.0.1:40000 > 10.11.0.9:80",
			"east1 host: 10.11.0.9:80 > 10.11.0.1:40000"},
		{"a Service of the other network", "east1 pod9", "10.97.0.61:80", "east1 east2 dropped in Tenant", ""},
		{"its Namespace's Service, in the default network", "east1 pod9", "10.97.0.63:80",
			"east1 east2 dropped in Tenant", ""},
		{"the other network", "east1 pod9", "10.11.1.8:80", "east1 east2 dropped in Tenant", ""},
		{"the other network on its Node", "east1 pod9", "10.11.0.8:80", "east1 dropped in Tenant", ""},
		{"the default network", "east1 pod9", "10.11.1.2:80", "east1 east2 dropped in Tenant", ""},
		{"outside", "east1 pod9", "192.0.2.1:80", "east1 dropped in Tenant", ""},
		{"another Node", "east1 pod9", "10.11.1.1:80", "east1 east2 dropped in Tenant", ""},
		{"from the default network", "east1 pod1", "10.11.1.9:80", "east1 east2 dropped in Route", ""},
		{"from the default network on its Node", "east1 pod1", "10.11.0.9:80", "east1 dropped in Route", ""},
		{"by a Service of the default network", "east1 pod1", "10.97.0.53:80", "east1 east2 dropped in Route", ""},
		{"from another Node", "east2 host", "10.11.0.9:80", "east2 east1 dropped in Route", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cableOf(t, insideNodes())
			p := c.request(row.from, row.to, oftest.TCP)
			if row.from == "east1 host" { // it has asked for the Pod's MAC
				p.EthDst = c.states["east1"].Pods[8].MAC
			}
			if row.back != "" {
				c.converse(row.from, row.there, row.back, p)
				return
			}
			if w := c.send(row.from, p); !strings.HasPrefix(w.String(), row.there) {
				t.Errorf("%s, want %s", w, row.there)
			}
		})
	}
}

// TestInsideClosed has the own network of Pods deleted: their addresses of the Node are in no network then.
func TestInsideClosed(t *testing.T) {
	states := insideNodes()
	for node, s := range states {
		s.Networks = maps.Clone(s.Networks)
		delete(s.Networks, derive.Object{Namespace: "a", Name: "red"})
		states[node] = s
	}
	c := cableOf(t, states)
	for _, to := range []string{"10.11.1.9:80", "10.97.0.51:80", "10.97.0.60:80", "10.11.1.2:80", "192.0.2.1:80"} {
		w := c.send("east1 pod9", c.request("east1 pod9", to, oftest.TCP))
		if at := w.places[len(w.places)-1]; strings.HasPrefix(at, "pod") || at == "host" {
			t.Errorf("%s: %s, want it dropped", to, w)
		}
	}
	c.converse("east1 pod8", "east1 east2 pod8: 10.11.0.8:40000 > 10.11.1.8:80",
		"east2 east1 pod8: 10.11.1.8:80 > 10.11.0.8:40000", c.request("east1 pod8", "10.11.1.8:80", oftest.TCP))
}

// TestInsideFromOutside publishes Services with such Pods as endpoints. Clients outside do not reach them.
func TestInsideFromOutside(t *testing.T) {
	for _, namespace := range []string{"a", "default"} {
		for _, entry := range []string{":30081", "192.0.2.40:30081"} {
			states := insideNodes()
			fromOutside(states, namespace, 30081, "10.11.0.9:8080")
			c := cableOf(t, states)
			p := c.request("east1 host", entryOfVersion(t, outsideTablesOf(states["east1"]), entry, false, false), oftest.TCP)
			p.IPSrc = addrOf("203.0.113.9")
			w := c.send("east1 host", p)
			if !strings.HasPrefix(w.places[len(w.places)-1], "dropped") {
				t.Errorf("by %s of a Service in Namespace %s: %s, want it dropped", entry, namespace, w)
			}
		}
	}
}

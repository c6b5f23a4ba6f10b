package agent

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
)

// hops asks for the path of a packet through this Node's switch. A query without packet has packet added.
func (a *asked) hops(t *testing.T, query, packet string) []api.Hop {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	if packet != "" {
		values.Set("packet", packet)
	}
	var list api.HopList
	if e := a.get(api.PathHop+"?"+values.Encode(), &list); e != "" || len(list.Hops) == 0 {
		t.Fatalf("%s: %s, %d hops", query, e, len(list.Hops))
	}
	return list.Hops
}

// TestHopOfTenants follows packets between Pods of an isolated Namespace on two Nodes. The packet for the other Node
// has the number of the network, so that Node delivers it.
func TestHopOfTenants(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) { c.FeatureGates["TenantNetworks"] = true })
	a.world.spaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid of default"}}
	a.isolate("a", "10.11.2.30", nil)
	a.isolate("b", "10.11.2.40", nil)
	a.settle()
	here := a.world.pods["a-here-a1b2c3"]
	for _, h := range a.hops(t, "from=a/a-here&to=a/a-far&port=80", "") {
		// A route of the machine may lead there, or not.
		if !strings.HasSuffix(hopText(h), "Node node-2 cluster  >192.168.78.102") {
			t.Fatalf("%s\n%s", hopText(h), h.Output)
		}
		// node-2 sends a packet with the same number back.
		packet := swapped.Replace(h.End.Next.Packet)
		from := "outerSrc=192.168.78.102&outerDst=192.168.78.101&fromNode=node-2"
		back := a.hops(t, from, packet)[0]
		if have := hopText(back); have != "delivered Pod a/a-here" {
			t.Errorf("%s: %s\n%s", packet, have, back.Output)
		}
		other := strings.NewReplacer(here.IPs[0].Addr().String(), a.world.pods["b-here-a1b2c3"].IPs[0].Addr().String(),
			here.IPs[1].Addr().String(), a.world.pods["b-here-a1b2c3"].IPs[1].Addr().String()).Replace(packet)
		lost := a.hops(t, from, other)[0]
		if have := hopText(lost); have != "dropped other-network in Tenant" {
			t.Errorf("%s: %s\n%s", other, have, lost.Output)
		}
	}
}

// swapped exchanges the addresses of a packet between two Nodes.
var swapped = strings.NewReplacer("nw_src=", "nw_dst=", "nw_dst=", "nw_src=", "ipv6_src=", "ipv6_dst=", "ipv6_dst=",
	"ipv6_src=")

// TestHopOfRecords follows packets that leave a copy for the log or for the record of drops. The copy is not the end of
// the packet.
func TestHopOfRecords(t *testing.T) {
	for _, drops := range []bool{false, true} {
		t.Run(map[bool]string{true: "drops are recorded", false: "no drops are recorded"}[drops], func(t *testing.T) {
			a := newAskedOf(t, family.Dual, func(c *config.Config) { c.Observe.Drops = drops })
			p := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logged"}}
			p.Spec.AppliedTo = []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"app": "db"}}}}
			p.Spec.Priority = 5
			for action, port := range map[crdv1beta1.Action]int32{"Drop": 81, "Reject": 82, "Allow": 83, "Pass": 80} {
				rule := crdv1beta1.Rule{Name: strings.ToLower(string(action)), Action: action, EnableLogging: true}
				rule.Ports = []crdv1beta1.Port{{Port: new(intstr.FromInt32(port))}}
				p.Spec.Ingress = append(p.Spec.Ingress, rule)
			}
			a.world.others = append(a.world.others, p)
			a.settle()
			for port, want := range map[string]string{
				"81": "dropped policy in IngressAdmin AntreaNetworkPolicy default/logged drop",
				"82": "rejected policy in IngressAdmin AntreaNetworkPolicy default/logged reject",
				"83": "delivered Pod default/db",
				"80": "dropped isolated in IngressRule NetworkPolicy default/db",
			} {
				for _, h := range a.hops(t, "from=default/web&to=default/db&port="+port, "") {
					if have := hopText(h); have != want {
						t.Errorf("have %q, want %q\n%s", have, want, h.Output)
					}
				}
			}
		})
	}
}

// TestHopOfServices follows packets to node ports and to ClusterIPs, as operators ask for them.
func TestHopOfServices(t *testing.T) {
	a := newAskedOf(t, family.Dual, func(c *config.Config) { c.AntreaProxy.ProxyAll = true })
	for name, ip := range map[string]string{ownName: "fd78::101", "node-2": "fd78::102"} {
		n := a.world.nodes[name].DeepCopy()
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		a.world.nodes[name] = n
	}
	delete(a.world.policies, "db") // it is about other clients
	local := corev1.ServiceInternalTrafficPolicyLocal
	offer := func(name string, number int32, change func(*corev1.ServiceSpec), endpoints ...string) {
		a.serve(name, endpoints...)
		s := a.world.services["default/"+name].DeepCopy()
		s.Spec.ClusterIP = fmt.Sprint("10.97.1.", number)
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, fmt.Sprint("fd97::1:", number)}
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30000+number
		change(&s.Spec)
		a.world.services["default/"+name] = s
	}
	as := func(*corev1.ServiceSpec) {}
	const far, far6 = "10.11.2.9", "fd11:0:0:2::9"
	offer("near", 1, as, a.db.IPs[0].Addr().String(), a.db.IPs[1].Addr().String())
	offer("far-away", 2, as, far, far6)
	offer("empty", 3, as)
	offer("local", 4, func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
		far, far6)
	offer("inside", 5, func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = &local }, far, far6)
	a.settle()
	const (
		atDB    = "delivered Pod default/db"
		empty   = "rejected no-endpoints in Service"
		noLocal = "dropped no-local-endpoints in Service"
		toFar   = "Node node-2 cluster  192.168.78.101>192.168.78.102" // a route of the machine may lead there, or not
	)
	for _, row := range []struct {
		name, query, want, message string
		hops                       int
	}{
		{"node port", "from=203.0.113.7&to=node/node-1&port=30001", atDB, "", 1},
		{"IPv6", "from=2001:db8:7::7&to=node/node-1&port=30001", atDB, "", 1},
		{"endpoint on another Node", "from=203.0.113.7&to=node/node-1&port=30002", toFar, "", 1},
		{"of a Pod", "from=default/db&to=node/node-1&port=30001", atDB, "", 2},
		{"of the host", "from=node/node-1&to=node/node-1&port=30002", toFar, "", 2},
		{"no endpoints", "from=203.0.113.7&to=node/node-1&port=30003", empty, "no ready endpoints", 1},
		{"no endpoints, IPv6", "from=2001:db8:7::7&to=node/node-1&port=30003", empty, "no ready endpoints", 1},
		{"no local ones", "from=203.0.113.7&to=node/node-1&port=30004", noLocal, "endpoints of this Node alone", 1},

		{"ClusterIP", "from=default/db&to=default/near", atDB, "", 2},
		{"without endpoints", "from=default/db&to=default/empty", empty, "no ready endpoints", 2},
		{"of the host", "from=node/node-1&to=default/empty", empty, "no ready endpoints", 2},
		{"without local endpoints", "from=default/db&to=default/inside", noLocal, "endpoints of this Node alone", 2},
		{"that no Service has", "from=default/db&to=10.97.0.99&port=80", "left", "10.97.0.99 is in the range of Services, " +
			"and the switch serves no Service with this address", 1},
		{"that no Service has, IPv6", "from=default/db&to=fd97::99&port=80", "left", "fd97::99 is in the range of",
			1},
		{"ping", "from=default/db&to=10.97.1.1&protocol=icmp", "left", "10.97.1.1 is in the range of Services", 1},

		{"another host", "from=default/db&to=node/node-2&port=22", "left", "of Node node-2, by its routes", 2},
		{"outside", "from=default/db&to=192.0.2.7&port=22", "left", "sends it on to 192.0.2.7, by its routes", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			list := a.hops(t, row.query, "")
			if len(list) != row.hops {
				t.Errorf("%d hops, want %d", len(list), row.hops)
			}
			for _, h := range list {
				if have := hopText(h); !strings.HasSuffix(have, row.want) || !strings.Contains(h.End.Message, row.message) {
					t.Errorf("have %q, %q, want %q, %q\n%s", have, h.End.Message, row.want, row.message, h.Output)
				}
			}
		})
	}
	const direct = "the switch serves no Service there with this port: packets of "
	for query, want := range map[string]string{
		"from=203.0.113.7&to=node/node-1&port=31999":           direct + "203.0.113.7 come to the host without the switch",
		"from=node/node-2&to=node/node-1&port=22":              direct,
		"from=node/node-1&to=node/node-2&port=22":              direct,
		"from=2001:db8:7::7&to=node/node-1&protocol=icmp":      direct,
		"from=default/db&to=node/node-2&port=30001":            "ask that Node's agent (--node node-2)",
		"from=default/db&to=default/near&protocol=icmp":        "Service default/near has no such port; it has 80/TCP",
		"from=2001:db8:7::7&to=10.97.1.1&port=80&protocol=tcp": "no version of IP is common to them",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if e := a.get(api.PathHop+"?"+values.Encode(), &api.HopList{}); !strings.Contains(e, want) {
			t.Errorf("%s: %q, want %q", query, e, want)
		}
	}
}

// TestHopKeepsKey follows a packet that a Node sends on to a Node. Its key stays.
func TestHopKeepsKey(t *testing.T) {
	a := newAsked(t)
	const packet = "tcp,dl_src=0a:00:00:00:00:09,dl_dst=aa:bb:cc:dd:ee:ff,nw_src=10.11.2.9,nw_dst=10.11.2.10," +
		"nw_ttl=64,tp_dst=80"
	for _, key := range []string{"0", "5"} {
		h := a.hops(t, "outerSrc=192.168.78.102&outerDst=192.168.78.101&fromNode=node-2&key="+key, packet)[0]
		if n := h.End.Next; n == nil || n.Key != key {
			t.Errorf("next %+v, want the key %s\n%s", n, key, h.Output)
		}
	}
}

// FuzzHopHeaders finds no answer of ofproto/trace whose headers the agent cannot write for the next Node.
func FuzzHopHeaders(f *testing.F) {
	files, err := filepath.Glob("../ovs/appctl/testdata/*.trace")
	if err != nil || len(files) == 0 {
		f.Fatalf("no answers of a switch: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		traced, err := appctl.ParseTrace(string(text))
		if err != nil {
			f.Fatal(err)
		}
		for word := range strings.SplitSeq(headersOnly(traced), ",") {
			if !packetWord.MatchString(word) {
				f.Errorf("%s: the next agent refuses %q", file, word)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		traced, err := appctl.ParseTrace(text)
		if err != nil {
			return
		}
		if text := headersOnly(traced); strings.HasPrefix(text, ",") {
			t.Errorf("headers %q", text)
		}
		if h := headersIn(traced); h.Dst != destination(traced) {
			t.Errorf("headers %+v", h)
		}
	})
}

package agent

import (
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
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

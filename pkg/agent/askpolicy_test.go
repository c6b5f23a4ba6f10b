package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// asked is a Node with two Pods, web and db, a Pod on another Node, and policies. db accepts TCP 5432 from web. web may
// connect only to db. Every client may reach web.
type asked struct {
	*walk
	web, db cni.Attachment
}

func newAsked(t *testing.T) *asked { return newAskedOf(t, family.IPv4) }

// newAskedOf returns the Node with versions of IP. With IPv6 db accepts TCP 5432 from 2001:db8:5::/64 too.
func newAskedOf(t *testing.T, serves family.Families, change ...func(*config.Config)) *asked {
	a := &asked{walk: newWalkOf(t, 1, serves, change...)}
	w := a.world
	a.web, a.db = a.add("web"), a.add("db")
	w.nodes["node-2"] = testNode("node-2", "192.168.78.102", "10.11.2.0/24")
	w.objects["default/far"] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "far", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-2"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: w.podIPs("10.11.2.9")},
	}
	app := func(name string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}}
	}
	port := []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(5432))}}
	db := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
	db.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"}
	db.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	db.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: append(app("web"), networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"}}),
			Ports: port}}
	if serves.Has6() {
		w.nodes["node-2"].Spec.PodCIDRs = append(w.nodes["node-2"].Spec.PodCIDRs, "fd11:0:0:2::/64")
		db.Spec.Ingress[0].From = append(db.Spec.Ingress[0].From,
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "2001:db8:5::/64"}})
	}
	web := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	web.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
	web.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	web.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: app("db")}}
	web.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	web2 := web.DeepCopy()
	web2.Name, web2.Spec.Egress = "web-again", nil
	web2.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	w.policies["db"], w.policies["web"], w.policies["web-again"] = db, web, web2
	a.settle()
	a.compare()
	return a
}

// add attaches a Pod whose label app is its name.
func (a *asked) add(name string) cni.Attachment { return a.addIn("default", name) }

// addIn attaches such a Pod of a Namespace.
func (a *asked) addIn(namespace, name string) cni.Attachment {
	a.t.Helper()
	p := a.world.newPod()
	delete(a.world.pods, p.PortName)
	p.PodNamespace, p.PodName, p.PortName = namespace, name, name+"-a1b2c3"
	a.world.pods[p.PortName] = p
	a.world.objects[namespace+"/"+name] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: ownName,
			Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "main", ContainerPort: 5432}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: a.world.podIPs(p.IPs[0].Addr().String())},
	}
	a.ovs.Device(p.PortName)
	ctx, cancel := context.WithTimeout(a.t.Context(), ovstest.Timeout())
	defer cancel()
	a.must(a.agent.cniNode().Attach(ctx, p))
	return p
}

// get reads a path of the debug API into v. It returns the error of the API's answer.
func (a *asked) get(path string, v any) string {
	a.t.Helper()
	answer := httptest.NewRecorder()
	debugAPI{a.agent}.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	var e api.Error
	if answer.Code != http.StatusOK {
		v = &e
	}
	if err := json.Unmarshal(answer.Body.Bytes(), v); err != nil {
		a.t.Fatalf("%s: %v: %s", path, err, answer.Body)
	}
	return e.Error
}

// send puts a SYN into the switch, as if a Pod of this Node had sent it.
func (a *asked) send(from cni.Attachment, to netip.Addr, port uint16) {
	a.t.Helper()
	frame := make([]byte, 14+20+20)
	mac, err := ofp.ParseMAC(from.MAC)
	a.must(err)
	router, err := ofp.ParseMAC(virtualMAC)
	a.must(err)
	copy(frame, router[:])
	copy(frame[6:], mac[:])
	binary.BigEndian.PutUint16(frame[12:], 0x0800)
	ip := frame[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], 40)
	src, dst := from.IPs[0].Addr().As4(), to.As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, 40000)
	binary.BigEndian.PutUint16(tcp[2:], port)
	tcp[12], tcp[13] = 5<<4, 2
	// Connection tracking treats a packet with a wrong checksum as invalid.
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:20]))
	binary.BigEndian.PutUint16(tcp[16:], checksum(slices.Concat(ip[12:20], []byte{0, 6, 0, 20}, tcp)))
	number := a.agent.switchPorts.State().Bridges[a.config.OVSBridge].Ports[from.PortName].OFPort
	a.must(a.other.Send(ofp.PacketOut{BufferID: ofp.NoBuffer, InPort: ofp.Port(number), Actions: flow.Do(flow.Resubmit(0)),
		Data: frame}))
}

// checksum returns the checksum of RFC 1071 for an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// TestPolicyCounters requests policies, rules and identities on a real switch, before and after allowed and denied
// connections.
func TestPolicyCounters(t *testing.T) {
	a := newAsked(t)
	var policies api.PolicyList
	a.get(api.PathPolicies, &policies)
	want := []api.Policy{
		{Kind: "NetworkPolicy", Namespace: "default", Name: "db", Pods: []string{"default/db"}, Rules: 1},
		{Kind: "NetworkPolicy", Namespace: "default", Name: "web", Pods: []string{"default/web"}, Rules: 2},
		{Kind: "NetworkPolicy", Namespace: "default", Name: "web-again", Pods: []string{"default/web"}, Rules: 1},
	}
	if diff := cmp.Diff(want, policies.Policies); diff != "" {
		t.Errorf("policies before any packet (-want +have):\n%s", diff)
	}

	db, web := a.db.IPs[0].Addr(), a.web.IPs[0].Addr()
	a.send(a.web, db, 5432) // by web's egress, then db's ingress
	a.send(a.web, db, 80)   // by web's egress, then denied
	a.send(a.db, web, 80)   // by web's ingress
	a.send(a.web, web.Next().Next(), 80)
	count := func(n uint64) api.Counters { return api.Counters{Packets: n, Bytes: 54 * n, Connections: n} }
	applied := func(list []uint32) []uint32 { // numbers come from names, and are for TestIdentities
		if len(list) != 1 || list[0] == 0 {
			t.Errorf("identities %v, want one", list)
		}
		return nil
	}
	rules := []api.Rule{
		{Kind: "NetworkPolicy", Namespace: "default", Policy: "db", Direction: "ingress", Action: "Allow",
			Pods: []string{"default/db"}, Peers: []string{"Pods with app=web in Namespace default", "198.51.100.0/24"},
			Ports: []string{"TCP/5432"}, Counters: count(1)},
		{Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "ingress", Action: "Allow",
			Pods: []string{"default/web"}, Peers: []string{}, Ports: []string{}, Counters: count(1)},
		{Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "egress", Action: "Allow",
			Pods: []string{"default/web"}, Peers: []string{"Pods with app=db in Namespace default"}, Ports: []string{},
			Counters: count(2)},
		{Kind: "NetworkPolicy", Namespace: "default", Policy: "web-again", Direction: "ingress", Action: "Allow",
			Pods: []string{"default/web"}, Peers: []string{}, Ports: []string{}},
	}
	denied := []api.Denied{{Direction: "ingress", Packets: 1, Bytes: 54}, {Direction: "egress", Packets: 1, Bytes: 54}}
	var have api.RuleList
	a.ovs.Eventually("the switch's counters", func() error {
		have = api.RuleList{}
		if e := a.get(api.PathRules, &have); e != "" {
			return fmt.Errorf("%s", e)
		}
		for i := range have.Rules {
			have.Rules[i].Applied = applied(have.Rules[i].Applied)
		}
		if diff := cmp.Diff(api.RuleList{Rules: rules, Denied: denied}, have); diff != "" {
			return fmt.Errorf("rules (-want +have):\n%s", diff)
		}
		return nil
	})
	policies = api.PolicyList{}
	a.get(api.PathPolicies, &policies)
	want[0].Counters, want[1].Counters = count(1), count(3)
	if diff := cmp.Diff(want, policies.Policies); diff != "" {
		t.Errorf("policies after the packets (-want +have):\n%s", diff)
	}

	have = api.RuleList{}
	a.get(api.PathRules+"?policy=default/db", &have)
	if len(have.Rules) != 1 || have.Rules[0].Policy != "db" || len(have.Denied) != 0 {
		t.Errorf("rules of default/db: %+v", have)
	}
	if e := a.get(api.PathRules+"?policy=none", &have); !strings.Contains(e,
		`no policy "none" applies to Pods of Node node-1`) {
		t.Errorf("rules of no policy: %q", e)
	}
}

// TestIdentities requests the labels of all identities and their Pods.
func TestIdentities(t *testing.T) {
	a := newAsked(t)
	var list api.IdentityList
	a.get(api.PathIdentities, &list)
	slices.SortFunc(list.Identities, func(x, y api.Identity) int { return strings.Compare(x.Labels, y.Labels) })
	for i := range list.Identities {
		if list.Identities[i].Number == 0 {
			t.Errorf("identity %s has no number", list.Identities[i].Labels)
		}
		list.Identities[i].Number = 0
	}
	want := []api.Identity{
		{Labels: "ns:kubernetes.io/metadata.name=default&pod:app=db", Here: 1, Addresses: 1},
		{Labels: "ns:kubernetes.io/metadata.name=default&pod:app=web", Here: 1, Elsewhere: 1, Addresses: 2},
	}
	if diff := cmp.Diff(want, list.Identities); diff != "" {
		t.Errorf("identities (-want +have):\n%s", diff)
	}
}

package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// world is the state that a walk changes: a cluster as its API server reports it, and the Pods of node-1, the Node of
// the walk. Objects are replaced and never changed, since the agent keeps them. Many objects are invalid, as users'
// objects may be. The agent has to leave out the invalid parts, and nothing else.
type world struct {
	version int
	serves  family.Families // with IPv6 each Node and Pod has an address of it too

	nodes    map[string]*corev1.Node
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	ranges   map[string]*networkingv1.ServiceCIDR
	gateways map[string]*mcv1alpha1.Gateway
	imports  map[string]*mcv1alpha1.ClusterInfoImport
	sets     map[string]*mcv1alpha2.ClusterSet
	exports  map[string]*mcsv1alpha1.ServiceExport
	objects  map[string]*corev1.Pod
	spaces   map[string]*corev1.Namespace
	policies map[string]*networkingv1.NetworkPolicy
	labels   map[string]*mcv1alpha1.LabelIdentity
	others   []client.Object           // of all kinds; a walk does not change them
	pods     map[string]cni.Attachment // by port name
	made     int                       // Pods so far

	encrypts bool                // traffic to other clusters
	up       map[netip.Addr]bool // the far ends of ways that answer
}

// Addresses of the walk's cluster. Pods of node-N are in 10.11.N.0/24, and in fd11:0:0:N::/64 if it has IPv6.
const (
	ownName     = "node-1"
	selfAddress = "192.168.78.101"
	selfGateway = "10.11.1.1"
)

func newWorld() *world { return newWorldOf(family.IPv4) }

func newWorldOf(serves family.Families) *world {
	w := &world{
		serves:   serves,
		nodes:    map[string]*corev1.Node{ownName: testNode(ownName, selfAddress, "10.11.1.0/24")},
		services: map[string]*corev1.Service{},
		slices:   map[string]*discoveryv1.EndpointSlice{},
		ranges: map[string]*networkingv1.ServiceCIDR{"kubernetes": {
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/16"}},
		}},
		gateways: map[string]*mcv1alpha1.Gateway{},
		imports:  map[string]*mcv1alpha1.ClusterInfoImport{},
		sets:     map[string]*mcv1alpha2.ClusterSet{},
		exports:  map[string]*mcsv1alpha1.ServiceExport{},
		objects:  map[string]*corev1.Pod{},
		spaces:   map[string]*corev1.Namespace{"default": {ObjectMeta: metav1.ObjectMeta{Name: "default"}}},
		policies: map[string]*networkingv1.NetworkPolicy{},
		labels:   map[string]*mcv1alpha1.LabelIdentity{},
		pods:     map[string]cni.Attachment{},
		up:       map[netip.Addr]bool{},
	}
	if serves.Has6() {
		w.nodes[ownName].Spec.PodCIDRs = append(w.nodes[ownName].Spec.PodCIDRs, sixth("10.11.1.0")+"/64")
		w.ranges["kubernetes"].Spec.CIDRs = append(w.ranges["kubernetes"].Spec.CIDRs, "fd97::/112")
	}
	return w
}

// sixth returns the IPv6 address that goes with 10.11.N.M: fd11:0:0:N::M.
func sixth(ip string) string {
	b := netip.MustParseAddr(ip).As4()
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x11, 7: b[2], 15: b[3]}).String()
}

// podIPs returns the addresses of a Pod's status, for its IPv4 address.
func (w *world) podIPs(ip string) []corev1.PodIP {
	out := []corev1.PodIP{{IP: ip}}
	if w.serves.Has6() {
		out = append(out, corev1.PodIP{IP: sixth(ip)})
	}
	return out
}

// view is the truth that the agent's flows have to come from.
func (w *world) view(c config.Config, gatewayMAC string) View {
	return View{
		Config: c, NodeName: ownName, settings: settings{GatewayMAC: gatewayMAC}, Others: w.others,
		Nodes: slices.Collect(maps.Values(w.nodes)), Services: slices.Collect(maps.Values(w.services)),
		EndpointSlices: slices.Collect(maps.Values(w.slices)), ServiceCIDRs: slices.Collect(maps.Values(w.ranges)),
		Gateways: slices.Collect(maps.Values(w.gateways)), ClusterInfoImports: slices.Collect(maps.Values(w.imports)),
		ClusterSets: slices.Collect(maps.Values(w.sets)), ServiceExports: slices.Collect(maps.Values(w.exports)),
		Pods: slices.Collect(maps.Values(w.podObjects())), Namespaces: slices.Collect(maps.Values(w.spaces)),
		NetworkPolicies: slices.Collect(maps.Values(w.policies)),
		LabelIdentities: slices.Collect(maps.Values(w.labels)), Attachments: slices.Collect(maps.Values(w.pods)),
	}
}

// fill writes the objects to an agent's tables, as its watches would. Then it writes the version to a source of the
// walk.
func (w *world) fill(t *tables, version *derive.Source[derive.Name, int]) {
	t.kinds.Fill(w.view(t.config, "").objects()...)
	version.Set(self, w.version)
	version.Loaded()
}

// change makes one random change that the API server would report, and returns its description.
func (w *world) change(r *rand.Rand) string {
	kinds := []func(*rand.Rand) string{
		w.changeNode, w.changeService, w.changeService, w.changeEndpoints, w.changeEndpoints, w.changeEndpoints,
		w.importService, w.changeGateway, w.changeImport, w.changeRanges, w.changeExport, w.changeSources, w.changePod,
		w.changePolicy,
		w.changeGateway, w.changeGateway, w.changeImport, w.changeImport, w.changeWay, w.changeWay, w.changeKeys,
	}
	text := kinds[r.IntN(len(kinds))](r)
	if w.version%4 == 0 {
		text += "; " + w.changeNumber(rand.New(rand.NewPCG(uint64(w.version), 0))) // separate random numbers
	}
	if w.version%7 == 0 {
		text += "; " + w.changeZone(rand.New(rand.NewPCG(uint64(w.version), 1)))
	}
	return text
}

// changeZone sets this Node's zone to another one, or removes it.
func (w *world) changeZone(r *rand.Rand) string {
	n := w.nodes[ownName]
	if n == nil {
		return "no zone"
	}
	n = n.DeepCopy()
	n.Labels = oneOf(r, nil, map[string]string{corev1.LabelTopologyZone: "a"},
		map[string]string{corev1.LabelTopologyZone: "b"})
	w.nodes[ownName] = n
	return fmt.Sprint("this Node has labels ", n.Labels)
}

// hint gives hints to the endpoints of most slices. Some hints are missing.
func (w *world) hint(slice *discoveryv1.EndpointSlice) (text string) {
	r := rand.New(rand.NewPCG(uint64(w.version), 2))
	if r.IntN(4) == 0 {
		return ""
	}
	nodes := r.IntN(3) == 0
	for i := range slice.Endpoints {
		h := &discoveryv1.EndpointHints{}
		if r.IntN(8) > 0 {
			h.ForZones = oneOf(r, []discoveryv1.ForZone{{Name: "a"}}, []discoveryv1.ForZone{{Name: "b"}},
				[]discoveryv1.ForZone{{Name: "a"}, {Name: "b"}})
		}
		if nodes {
			h.ForNodes = []discoveryv1.ForNode{{Name: oneOf(r, ownName, "node-2")}}
		}
		slice.Endpoints[i].Hints = h
		text += fmt.Sprint(" ", h.ForZones, h.ForNodes)
	}
	return " for" + text
}

// oneOf picks one of some values.
func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// anyOf picks a key of a map, "" of an empty one.
func anyOf[T any](r *rand.Rand, m map[string]T) string {
	if len(m) == 0 {
		return ""
	}
	return oneOf(r, slices.Sorted(maps.Keys(m))...)
}

// podObjects returns the Pods in the API server. The Pods of this Node come and go with their attachments.
func (w *world) podObjects() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for key, p := range w.objects {
		if p.Spec.NodeName != ownName ||
			slices.ContainsFunc(slices.Collect(maps.Values(w.pods)),
				func(a cni.Attachment) bool { return a.PodName == p.Name }) {
			out[key] = p
		}
	}
	return out
}

// changePod gives a Pod of this Node, or one elsewhere, labels.
func (w *world) changePod(r *rand.Rand) string {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Labels: map[string]string{"app": oneOf(r, "a", "b")}}}
	i := r.IntN(3)
	p.Name, p.Spec.NodeName, p.Status.Phase = fmt.Sprint("elsewhere-", i), "node-2", corev1.PodRunning
	p.Status.PodIPs = w.podIPs(fmt.Sprint("10.11.2.", 2+i))
	if a, ok := w.pods[anyOf(r, w.pods)]; ok && r.IntN(3) > 0 {
		p.Namespace, p.Name, p.Spec.NodeName, p.Status.PodIPs = a.PodNamespace, a.PodName, ownName, nil
		for _, ip := range a.IPs {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip.Addr().String()})
		}
	}
	key := p.Namespace + "/" + p.Name
	if w.objects[key] != nil && r.IntN(4) == 0 {
		delete(w.objects, key)
		return "no Pod " + key
	}
	w.objects[key] = p
	return "Pod " + key
}

// changeNumber gives the labels of Pods a number in the ClusterSet, or another number, or removes the number.
func (w *world) changeNumber(r *rand.Rand) string {
	app := oneOf(r, "a", "b", "far")
	if w.labels[app] != nil && r.IntN(3) == 0 {
		delete(w.labels, app)
		return "no LabelIdentity of app=" + app
	}
	w.labels[app] = labelIdentity("app="+app, uint32(1+r.IntN(5)))
	return fmt.Sprintf("LabelIdentity of app=%s is %d", app, w.labels[app].Spec.ID)
}

// labelIdentity returns the identity of Pods with labels in the default Namespace.
func labelIdentity(pod string, id uint32) *mcv1alpha1.LabelIdentity {
	l := &mcv1alpha1.LabelIdentity{
		Spec: mcv1alpha1.LabelIdentitySpec{Label: string(policy.IdentityOf("kubernetes.io/metadata.name=default", pod)),
			ID: id}}
	l.Name = multicluster.LabelHash(l.Spec.Label)
	return l
}

func (w *world) changePolicy(r *rand.Rand) string {
	name := fmt.Sprint("policy-", r.IntN(3))
	if w.policies[name] != nil && r.IntN(3) == 0 {
		delete(w.policies, name)
		return "no " + name
	}
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	n.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": oneOf(r, "a", "b")}}
	rule := networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": oneOf(r, "a", "b")}}}}}
	if r.IntN(2) == 0 {
		rule.From = append(rule.From,
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: oneOf(r, "10.11.2.0/24", "0.0.0.0/0")}})
	}
	if w.serves.Has6() && r.IntN(2) == 0 {
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: oneOf(r,
			"fd11:0:0:1::/64", "fd11:0:0:2::/64", "::/0")}})
	}
	n.Spec.Ingress, n.Spec.PolicyTypes = []networkingv1.NetworkPolicyIngressRule{rule},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if r.IntN(2) == 0 {
		n.Spec.PolicyTypes = append(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		n.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: rule.From}}
	}
	w.policies[name] = n
	return name
}

func (w *world) changeNode(r *rand.Rand) string {
	name := fmt.Sprint("node-", 2+r.IntN(6))
	if w.nodes[name] != nil && r.IntN(4) == 0 {
		delete(w.nodes, name)
		return name + " goes"
	}
	n := testNode(name, fmt.Sprint("192.168.78.", 110+r.IntN(10)), "10.11."+name[5:]+".0/24")
	if w.serves.Has6() {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, sixth("10.11."+name[5:]+".0")+"/64")
	}
	switch r.IntN(12) {
	case 0:
		n.Spec = corev1.NodeSpec{}
	case 1:
		n.Spec.PodCIDRs = []string{"10.11.300.0/24"}
	case 2:
		n.Status.Addresses = nil
	case 3:
		n.Status.Addresses[0].Address = "fd00::2"
	case 4:
		n.Spec.PodCIDRs = []string{"10.11.2.0/24"} // node-2's
	case 5:
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, "fd00:11::/64", "10.12."+name[5:]+".0/24")
	}
	w.nodes[name] = n
	return fmt.Sprintf("%s has %v behind %v", name, n.Spec.PodCIDRs, n.Status.Addresses)
}

// clusterIP is one of few, so that Services meet.
func clusterIP(r *rand.Rand) string { return fmt.Sprint("10.97.0.", 10+r.IntN(16)) }

func (w *world) changeService(r *rand.Rand) string {
	namespace, name := oneOf(r, "default", "shop"), fmt.Sprint("svc-", r.IntN(6))
	key := namespace + "/" + name
	if w.services[key] != nil && r.IntN(4) == 0 {
		delete(w.services, key)
		if r.IntN(2) == 0 { // its slices go later, or are left behind
			delete(w.slices, key+"-a")
		}
		return "Service " + key + " goes"
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.Type = oneOf(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	s.Spec.ClusterIP = clusterIP(r)
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	switch r.IntN(16) {
	case 0:
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	case 1:
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
	case 2:
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd00:97::10")
	case 3:
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00:97::11", []string{"fd00:97::11"}
	case 4:
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.97.0", []string{"10.97.0"}
	case 5:
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	case 6:
		s.Spec.PublishNotReadyAddresses = true
	case 9:
		s.Labels = map[string]string{service.LabelProxyName: "mesh"}
	case 7, 8:
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	for i := range 1 + r.IntN(3) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprint("p", i), Port: oneOf[int32](r, 53, 80, 443, 8080),
			Protocol: oneOf(r, "", corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP,
				corev1.ProtocolUDP, corev1.ProtocolSCTP),
		})
	}
	w.services[key] = s
	return fmt.Sprintf("Service %s %v is %s %v%s", key, s.Labels, s.Spec.Type, s.Spec.ClusterIPs, portTexts(s))
}

func portTexts(s *corev1.Service) string {
	text := ""
	for _, p := range s.Spec.Ports {
		text += fmt.Sprintf(" %s %d/%s", p.Name, p.Port, p.Protocol)
	}
	return text
}

// changeEndpoints writes one EndpointSlice of a Service. Each Service has at most two.
func (w *world) changeEndpoints(r *rand.Rand) string {
	key := anyOf(r, w.services)
	if key == "" {
		return w.changeService(r)
	}
	s := w.services[key]
	name := key + oneOf(r, "-a", "-a", "-b")
	if w.slices[name] != nil && r.IntN(6) == 0 {
		delete(w.slices, name)
		return "EndpointSlice " + name + " goes"
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name[len(s.Namespace)+1:],
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if r.IntN(20) == 0 {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range s.Spec.Ports {
		port := discoveryv1.EndpointPort{Name: &p.Name, Port: new(oneOf(r, 8080, 9090, p.Port))}
		if p.Protocol != "" {
			port.Protocol = &p.Protocol
		}
		if r.IntN(10) > 0 {
			slice.Ports = append(slice.Ports, port)
		}
	}
	text := ""
	for range r.IntN(5) {
		e := discoveryv1.Endpoint{Addresses: []string{w.endpointAddress(r)}}
		e.Conditions.Ready = oneOf(r, nil, new(true), new(true), new(false))
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			e.Conditions.Serving, e.Conditions.Terminating = oneOf(r, nil, new(true), new(false)), oneOf(r, nil, new(true))
		}
		e.NodeName = oneOf(r, nil, new(ownName), new("node-2"))
		slice.Endpoints = append(slice.Endpoints, e)
		text += " " + e.Addresses[0] + conditions(e)
	}
	text += w.hint(slice)
	w.slices[name] = slice
	return fmt.Sprintf("EndpointSlice %s has%s", name, text)
}

// endpointAddress returns an address where an endpoint may be. It is a Pod here, a missing Pod, a Pod of another Node,
// the host, a machine outside, or a Service of this cluster or of another one.
func (w *world) endpointAddress(r *rand.Rand) string {
	switch r.IntN(16) {
	case 0:
		return "10.11.1.200"
	case 1:
		return selfGateway
	case 2:
		return "172.30.1.10"
	case 3:
		return clusterIP(r)
	case 4:
		return oneOf(r, "10.96.0.20", "10.98.0.20", "10.98.200.20", "10.99.0.20")
	case 5:
		return oneOf(r, "nowhere", "127.0.0.1", "fd00::9")
	case 6, 7, 8:
		return fmt.Sprintf("10.11.%d.%d", 2+r.IntN(6), 2+r.IntN(4))
	}
	if port := anyOf(r, w.pods); port != "" {
		return w.pods[port].IPs[0].Addr().String()
	}
	return "10.11.1.2"
}

// conditions is an endpoint's state in a few letters, for the walk's account.
func conditions(e discoveryv1.Endpoint) string {
	text := ""
	for _, c := range []struct {
		letter string
		value  *bool
	}{{"r", e.Conditions.Ready}, {"s", e.Conditions.Serving}, {"t", e.Conditions.Terminating}} {
		if c.value != nil && *c.value {
			text += "+" + c.letter
		} else if c.value != nil {
			text += "-" + c.letter
		}
	}
	return text
}

// importService writes an imported Service, whose endpoints are Services. They are Services of peers, and the cluster's
// own Service, which has to be replaced by its endpoints.
func (w *world) importService(r *rand.Rand) string {
	name := fmt.Sprint("antrea-mc-svc-", r.IntN(3))
	key := "default/" + name
	if w.services[key] != nil && r.IntN(4) == 0 {
		delete(w.services, key)
		delete(w.slices, key+"-a")
		return "imported Service " + name + " goes"
	}
	port := int32(80)
	addresses := []string{}
	if own := anyOf(r, w.services); own != "" && r.IntN(4) > 0 && len(w.services[own].Spec.Ports) > 0 {
		port = w.services[own].Spec.Ports[0].Port
		addresses = append(addresses, w.services[own].Spec.ClusterIP)
	}
	for _, ip := range []string{"10.96.0.20", "10.98.0.20", "10.99.0.20"} {
		if r.IntN(2) == 0 {
			addresses = append(addresses, ip)
		}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIP = clusterIP(r)
	protocol := oneOf(r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	s.Spec.Ports = []corev1.ServicePort{{Port: port, Protocol: protocol}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-a",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: &port, Protocol: &protocol}},
	}
	for _, ip := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	w.services[key], w.slices[key+"-a"] = s, slice
	return fmt.Sprintf("imported Service %s is %s:%d/%s for %v", name, s.Spec.ClusterIP, port, protocol, addresses)
}

// changeGateway makes one of three Nodes a Gateway, moves it, or takes it away.
func (w *world) changeGateway(r *rand.Rand) string {
	name := oneOf(r, ownName, ownName, "node-2", "node-3")
	if w.gateways[name] != nil && r.IntN(3) == 0 {
		delete(w.gateways, name)
		return "Gateway " + name + " goes"
	}
	if r.IntN(16) == 0 {
		clear(w.gateways) // it moves
	}
	ip := "192.168.78.10" + name[5:]
	g := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, GatewayIP: ip,
		InternalIP: ip}
	g.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000+r.Int64N(3), 0))
	switch r.IntN(10) {
	case 0:
		g.GatewayIP = oneOf(r, "", "here", "fd00::1", "127.0.0.1")
	case 1:
		g.InternalIP = oneOf(r, "", "there", "fd00::1", "224.0.0.1")
	case 2, 3:
		g.GatewayIP = "172.30.1.2" + name[5:]
	}
	w.gateways[name] = g
	return fmt.Sprintf("Gateway %s is %q %q since %d%s%s", name, g.GatewayIP, g.InternalIP, g.CreationTimestamp.Unix(),
		w.phase(r, g), w.encryptGateway(r, g))
}

// changeImport changes an import of another cluster, to a valid or an invalid one.
func (w *world) changeImport(r *rand.Rand) string {
	id := oneOf(r, "east", "north", "west")
	name := id + oneOf(r, "-clusterinfo", "-clusterinfo", "-clusterinfo", "-again")
	if w.imports[name] != nil && r.IntN(4) == 0 {
		delete(w.imports, name)
		return "ClusterInfoImport " + name + " goes"
	}
	ci := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	ci.Spec.ClusterID = id
	ci.Spec.ServiceCIDR = oneOf(r, "10.96.0.0/16", "10.96.0.0/16", "10.98.0.0/16", "10.98.0.0/16", "10.98.128.0/17",
		"10.99.0.0/16", "10.99.0.9/16")
	if r.IntN(8) == 0 {
		ci.Spec.ServiceCIDR = oneOf(r, "10.97.16.0/20", "10.11.3.0/24", "0.0.0.0/0", "::ffff:10.1.0.0/112", "10.1.0.0", "")
	}
	if ci.Spec.ServiceCIDR == "10.96.0.0/16" { // questions are about IPv4, and all flows are compared
		ci.Spec.ServiceCIDRs = []string{"10.96.0.0/16", "fd00:96::/112"}
	}
	for range r.IntN(8) / 2 {
		ci.Spec.GatewayInfos = append(ci.Spec.GatewayInfos,
			mcv1alpha1.GatewayInfo{GatewayIP: fmt.Sprintf("192.168.%d.10%d", 77+2*r.IntN(2), 1+r.IntN(3))})
	}
	if r.IntN(8) == 0 {
		ci.Spec.GatewayInfos = append(ci.Spec.GatewayInfos,
			mcv1alpha1.GatewayInfo{GatewayIP: oneOf(r, "", "far", "::1", selfAddress, "172.30.1.21")})
	}
	for range r.IntN(3) {
		ci.Spec.PodCIDRs = append(ci.Spec.PodCIDRs, oneOf(r, "10.20.0.0/16", "10.21.0.0/16", "10.20.128.0/17", "10.11.0.0/16",
			"10.96.8.0/24", "x", "fd00:20::/48"))
	}
	if r.IntN(20) == 0 {
		ci.Spec.ClusterID = ""
	}
	if r.IntN(8) == 0 {
		ci.Annotations = map[string]string{multicluster.AnnotationWithdrawn: "2026-01-31T12:00:00Z"}
	}
	w.imports[name] = ci
	oneKey := r.IntN(4) == 0 // with keys: for all of the cluster
	if w.encrypts && r.IntN(8) > 0 || !w.encrypts && r.IntN(4) == 0 {
		giveKeys(r, ci, oneKey)
	}
	giveFeatures(r, ci, oneKey)
	return importText(ci)
}

// changeExport exports one of the Services, or a missing Service, or ends an export.
func (w *world) changeExport(r *rand.Rand) string {
	key := anyOf(r, w.services)
	if key == "" {
		key = "default/svc-0"
	}
	if w.exports[key] != nil {
		delete(w.exports, key)
		return "ServiceExport " + key + " goes"
	}
	namespace, name, _ := strings.Cut(key, "/")
	w.exports[key] = &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return "Service " + key + " is exported"
}

// changeSources sets where the tunnels of a peer come from, to valid or invalid values.
func (w *world) changeSources(r *rand.Rand) string {
	cs := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "set",
		Annotations: map[string]string{}}}
	key := multicluster.AnnotationTunnelSources + oneOf(r, "north", "west", "nobody")
	cs.Annotations[key] = oneOf(r, "203.0.113.7", "203.0.113.0/28, 198.51.100.9", "192.168.77.0/24", "x",
		"0.0.0.0/0,203.0.113.8", "")
	w.sets["set"] = cs
	return fmt.Sprintf("ClusterSet has %v", cs.Annotations)
}

// changeRanges adds a second Service range to the cluster, or takes it away.
func (w *world) changeRanges(r *rand.Rand) string {
	if w.ranges["more"] != nil {
		delete(w.ranges, "more")
		return "the second Service range goes"
	}
	w.ranges["more"] = &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{oneOf(r, "10.200.0.0/16", "10.98.0.0/20")}},
	}
	return fmt.Sprintf("a second Service range is %v", w.ranges["more"].Spec.CIDRs)
}

// newPod is a Pod as a CNI ADD would bring it, with the lowest address that is free.
func (w *world) newPod() cni.Attachment {
	w.made++
	taken := map[netip.Addr]bool{}
	for _, p := range w.pods {
		taken[p.IPs[0].Addr()] = true
	}
	ip := netip.MustParseAddr("10.11.1.2")
	for taken[ip] {
		ip = ip.Next()
	}
	p := cni.Attachment{
		ContainerID: fmt.Sprint("container-", w.made), IfName: "eth0", Netns: fmt.Sprint("/var/run/netns/cni-", w.made),
		PodNamespace: "default", PodName: fmt.Sprint("pod-", w.made), PortName: fmt.Sprint("pod-", w.made, "-a1b2c3"),
		MAC: fmt.Sprintf("0a:00:00:00:%02x:%02x", w.made>>8, w.made&0xff), IPs: []netip.Prefix{netip.PrefixFrom(ip, 24)},
	}
	if w.serves.Has6() {
		p.IPs = append(p.IPs, netip.PrefixFrom(netip.MustParseAddr(sixth(ip.String())), 64))
	}
	w.pods[p.PortName] = p
	return p
}

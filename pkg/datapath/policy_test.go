package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// policed is node-1 of the scenario with both versions of IP and other ranges of Pods, in a cluster whose Pods and
// policies change at random. The switch gets the changes as from flowsync.
type policed struct {
	*policytest.Walk
	*sources
	sw *oftest.Switch

	concerns map[Recheck]bool // by changes since the last look
	wantLook bool

	// parts are fragments that passed, partsEnded fragments that did not.
	parts, partsEnded int
}

// followConcerns collects the descriptions of changes that concern known connections.
func (p *policed) followConcerns() {
	p.concerns, p.wantLook = map[Recheck]bool{}, true
	p.tables.Policies.Known.WatchConcerns(func(c Concern) {
		for _, r := range c.Since {
			p.concerns[r.Recheck] = true
		}
		for _, r := range c.Until {
			delete(p.concerns, r.Recheck)
		}
		p.wantLook = p.wantLook || c.Look
	})
}

// Ranges of Pods, with addresses that the policies of policytest name, and other sources and destinations of packets.
var (
	ownRanges     = []netip.Prefix{rangeOf("10.10.0.0/29"), rangeOf("fd10::/125")}
	farRanges     = []netip.Prefix{rangeOf("10.10.0.8/29"), rangeOf("fd10::8/125")}
	ownGatewayIPs = []netip.Addr{addrOf("10.10.0.1"), addrOf("fd10::1")}
	farGatewayIPs = []netip.Addr{addrOf("10.10.0.9"), addrOf("fd10::9")}
	theWorld      = []netip.Addr{addrOf("198.51.100.7"), addrOf("198.51.100.8"), addrOf("203.0.113.1"),
		addrOf("2001:db8::7"), addrOf("2001:db8:1::1")}
)

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// number is the place of an address of a Pod in the ranges of all Pods, different for each. It is the number of the
// Pod's port, and the end of its MAC.
func number(a netip.Addr) byte {
	bytes := a.AsSlice()
	last := bytes[len(bytes)-1]
	if !a.Is4() {
		return last + 16
	}
	return last
}

func newPoliced(t *testing.T, seed uint64) *policed {
	t.Helper()
	state := dualNode(1)
	state.Pods, state.Frontends, state.Slices, state.Exported = nil, nil, nil, nil
	state.Node.PodCIDRs, state.Node.GatewayIPs = ownRanges, ownGatewayIPs
	state.RemoteNodes[0].PodCIDRs, state.RemoteNodes[0].GatewayIPs = farRanges, farGatewayIPs
	state.Node.Tunnels.Stretched = true
	p := &policed{sources: newSources(state)}
	local, remote := policytest.TwoRanges()
	local6, remote6 := policytest.TwoRanges6()
	local, remote = append(local, local6...), append(remote, remote6...)
	p.Walk = policytest.NewWalk(seed, map[string][]netip.Addr{"node-1": local, "node-2": remote}, policytest.Watch{
		Pod: func(namespace, name string, pod *corev1.Pod) {
			var f policy.PodFacts
			if pod != nil {
				f = policy.PodFactsOf(pod)
			}
			p.policy.Pods.Set(derive.Object{Namespace: namespace, Name: name}, f)
		},
		Namespace: func(name string, n *corev1.Namespace) {
			observe(p.policy.Namespaces, derive.Object{Name: name}, n, policy.NamespaceLabels)
		},
		Policy: func(namespace, name string, n *networkingv1.NetworkPolicy) {
			observe(p.policy.Policies[policy.NetworkPolicy], derive.Object{Namespace: namespace, Name: name}, n, policy.FactsOf)
		},
		Other: func(namespace, name string, o any) {
			observeOther(p.policy, derive.Object{Namespace: namespace, Name: name}, o)
		},
	})
	p.resolvers.Set(Self, append(slices.Clone(ownRanges), rangeOf("198.51.100.0/24"))) // and no other server
	p.Faithful = true
	var err error
	if p.sw, err = oftest.New(Program); err != nil {
		t.Fatal(err)
	}
	return p
}

func observe[T, F any](s *derive.Source[derive.Object, F], k derive.Object, o *T, facts func(*T) F) {
	if o == nil {
		s.Delete(k)
		return
	}
	s.Set(k, facts(o))
}

// observeOther is for kinds that are not NetworkPolicies of Kubernetes.
func observeOther(t *policy.Tables, k derive.Object, o any) {
	switch o := o.(type) {
	case *crdv1beta1.ClusterNetworkPolicy:
		observe(t.Policies[policy.AntreaClusterNetworkPolicy], k, o, policy.AntreaClusterFactsOf)
	case *crdv1beta1.NetworkPolicy:
		observe(t.Policies[policy.AntreaNetworkPolicy], k, o, policy.AntreaFactsOf)
	case *npv1alpha2.ClusterNetworkPolicy:
		observe(t.Policies[policy.ClusterNetworkPolicy], k, o, policy.ClusterFactsOf)
	case *crdv1beta1.Tier:
		observe(t.Tiers, k, o, policy.TierFactsOf)
	case *crdv1beta1.ClusterGroup:
		observe(t.ClusterGroups, k, o, policy.ClusterGroupFactsOf)
	case *crdv1beta1.Group:
		observe(t.Groups, k, o, policy.GroupFactsOf)
	case *corev1.Node:
		observe(t.Nodes, k, o, policy.NodeFactsOf)
	case *corev1.Service:
		observe(t.ServiceSelectors, k, o, policy.ServiceSelectorOf)
	case *mcv1alpha1.LabelIdentity:
		observe(t.LabelIdentities, k, o, policy.LabelIdentityOf)
	case *mcv1alpha1.PodAddressImport:
		observe(t.PodAddresses, k, o, policy.RemotePodsOf)
	}
}

// attach gives the Pods of this Node their ports, and changes the endpoint of a Service.
func (p *policed) attach(t *testing.T) {
	t.Helper()
	p.State.Pods = nil
	for _, pod := range p.Here("node-1") {
		s := Pod{Namespace: pod.Namespace, Name: pod.Name, Interface: pod.Namespace + "-" + pod.Name}
		for _, ip := range pod.Status.PodIPs {
			s.IPs = append(s.IPs, addrOf(ip.IP))
		}
		s.Port, s.MAC = ofp.Port(number(s.IPs[0])), ofp.MAC{0x0a, 0, 0, 0, 0, number(s.IPs[0])}
		p.State.Pods = append(p.State.Pods, s)
	}
	ends := slices.Concat(p.Addresses["node-1"], p.Addresses["node-2"], theWorld)
	end := netip.AddrPortFrom(policytest.Pick(p.Walk, ends...), policytest.Pick[uint16](p.Walk, 53, 80, 81))
	n := p.IntN(len(servicesOfPolicies))
	vip := fmt.Sprintf("10.97.0.%d:80", 10+n)
	if !end.Addr().Is4() {
		vip = fmt.Sprintf("[fd97::%d]:80", 10+n)
	}
	f := frontend(servicesOfPolicies[n].Name, policytest.Pick(p.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP), vip,
		end.String())
	f.Namespace = servicesOfPolicies[n].Namespace
	p.Frontends = slices.DeleteFunc(p.Frontends, func(g service.Frontend) bool {
		return g.VIP.Addr() == f.VIP.Addr() && (g.Protocol == f.Protocol || p.IntN(4) == 0)
	})
	p.Frontends = append(p.Frontends, f)
	p.fill()
	p.engine.Pass()
	var all []flow.Entries
	for _, e := range p.held {
		all = append(all, e)
	}
	if err := p.sw.Replace(all...); err != nil {
		t.Fatal(err)
	}
}

// servicesOfPolicies are the Services that rules name, and another.
var servicesOfPolicies = []derive.Object{
	{Namespace: "x", Name: "svc"}, {Namespace: "y", Name: "svc"}, {Namespace: "z", Name: "svc"},
	{Namespace: "x", Name: "antrea-mc-svc"}, {Namespace: "y", Name: "antrea-mc-svc"},
	{Namespace: "z", Name: "antrea-mc-svc"},
	{Namespace: "default", Name: "any"},
}

// has reports whether a Pod of this Node has an address.
func (p *policed) has(a netip.Addr) bool {
	return slices.ContainsFunc(p.State.Pods, func(pod Pod) bool { return slices.Contains(pod.IPs, a) })
}

// reachable is false for addresses of this Node that no port has. Packets to them end in table Route whatever the
// policies are.
func (p *policed) reachable(a netip.Addr) bool {
	return !within(ownRanges, a) || slices.Contains(ownGatewayIPs, a) || p.has(a)
}

// The fate of a connection, in the words of policytest.
const (
	allowed  = "Allow"
	dropped  = "Drop"
	rejected = "Reject"
)

// isForwarded reports whether the host forwards this connection: a translation has given it the host's address.
func isForwarded(c policytest.Connection) bool {
	return c.SourcePort%1000 == 500 && c.Protocol != policy.ProtocolICMP && c.Protocol != policy.ProtocolIGMP
}

// judge returns the verdict of the specifications. This Node sees a connection once, or twice if both of its Pods are
// here.
func (p *policed) judge(c policytest.Connection) string {
	from, to := p.At(c.From), p.At(c.To)
	if from == to && from != nil {
		return allowed
	}
	if p.has(c.From) {
		if verdict := p.Judge(from, true, c); verdict != allowed {
			return verdict
		}
	}
	if p.has(c.To) && (!slices.Contains(ownGatewayIPs, c.From) || isForwarded(c)) {
		return p.Judge(to, false, c)
	}
	return allowed
}

var numbersOf = map[corev1.Protocol]uint8{
	corev1.ProtocolTCP: oftest.TCP, corev1.ProtocolUDP: oftest.UDP, corev1.ProtocolSCTP: oftest.SCTP,
	policy.ProtocolICMP: oftest.ICMP, policy.ProtocolIGMP: protoIGMP,
}

// packetOf returns a connection's first packet. It is not ok without a way to the switch. source is the client's port.
func (p *policed) packetOf(c policytest.Connection, source uint16) (k oftest.Packet, ok bool) {
	k = oftest.Packet{EthSrc: gwMAC, EthDst: InClusterMAC, IPSrc: c.From, IPDst: c.To, Proto: numbersOf[c.Protocol],
		SrcPort: source, DstPort: c.Port}
	switch c.Protocol {
	case policy.ProtocolICMP:
		k.ICMP, k.DstPort = oftest.ICMPMessage{Type: uint8(c.Port >> 8), Code: uint8(c.Port)}, 0
		if !c.To.Is4() {
			k.Proto = oftest.ICMPv6
		}
	case policy.ProtocolIGMP:
		k.SrcPort, k.DstPort = 0, 0
	}
	switch {
	case within(farRanges, c.From), c.From == westGW: // which is behind the other Node
		k.InPort, k.TunSrc, k.TunDst, k.TunID = tunnelPort, eastTwo, eastOne, uint64(c.ClusterSet)
	case !within(ownRanges, c.From) || slices.Contains(ownGatewayIPs, c.From):
		k.InPort = gatewayPort
		if slices.Contains(ownGatewayIPs, c.From) && within(ownRanges, c.To) && !isForwarded(c) {
			k.EthDst = ofp.MAC{0x0a, 0, 0, 0, 0, number(c.To)} // the host has asked for it
		}
	default:
		for _, pod := range p.State.Pods {
			if slices.Contains(pod.IPs, c.From) {
				k.InPort, k.EthSrc, k.EthDst = pod.Port, pod.MAC, gwMAC
			}
		}
	}
	return k, k.InPort != 0
}

// connection is one that a Pod of this Node opens or takes.
func (p *policed) connection(source uint16) (c policytest.Connection, ok bool) {
	if len(p.State.Pods) == 0 {
		return c, false
	}
	ip := policytest.Pick(p.Walk, policytest.Pick(p.Walk, p.State.Pods...).IPs...)
	other := policytest.Pick(p.Walk, policytest.Like(ip, slices.Concat(theWorld, p.Addresses["node-1"],
		p.Addresses["node-2"], ownGatewayIPs, farGatewayIPs))...)
	c = policytest.Connection{From: ip, To: other,
		Protocol: policytest.Pick(p.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP),
		Port:     policytest.Pick[uint16](p.Walk, 53, 80, 81, 85), SourcePort: source}
	switch p.IntN(8) {
	case 0, 1, 2:
		c.From, c.To = c.To, c.From
	case 3:
		if ip.Is4() { // which clusters have between them
			c.From, c.To, c.ClusterSet = westGW, ip, p.clusterSet()
		}
	}
	return c, p.reachable(c.From) && p.reachable(c.To)
}

// clusterSet is the number of a client in another cluster.
func (p *policed) clusterSet() uint32 { return policytest.Pick[uint32](p.Walk, 0, 1, 2, 3, 4, 5) }

// question is a packet, and the verdict of the specification about its connection.
type question struct {
	packet     oftest.Packet
	connection policytest.Connection
	want       string
}

func (q question) String() string { return fmt.Sprintf("%s %+v: %s", q.packet, q.connection, q.want) }

// next returns a random question about a Pod of this Node that sends or receives; ok is false without such a Pod.
func (p *policed) next() (q question, ok bool) {
	// ranges of rules end at 1024, 2000 and 3000
	c, ok := p.connection(policytest.Pick[uint16](p.Walk, 1024, 1500, 2000, 2500, 4000))
	if !ok {
		return q, false
	}
	if c.ClusterSet != 0 && p.IntN(8) == 0 {
		c.ClusterSet = policy.UnknownClusterSet
	}
	switch p.IntN(10) {
	case 0, 1:
		c.Protocol = corev1.ProtocolSCTP
	case 2:
		echo := uint16(oftest.Echo.Type)
		if !c.From.Is4() {
			echo = uint16(oftest.EchoV6.Type)
		}
		c.Protocol, c.Port = policy.ProtocolICMP, policytest.Pick(p.Walk, echo<<8, echo<<8+1)
	case 3:
		if c.From.Is4() {
			c.Protocol, c.Port = policy.ProtocolIGMP, policytest.UnknownType
		}
	case 4, 5, 6:
		if f := p.frontend(c.From); f.Service != "" && p.has(c.From) {
			end := f.Endpoints[0].Addr
			c.To, c.Protocol, c.Port, c.Service = end.Addr(), f.Protocol, end.Port(),
				derive.Object{Namespace: f.Namespace, Name: f.Service}
			if q.packet, ok = p.packetOf(c, c.SourcePort); ok {
				q.packet.IPDst, q.packet.DstPort = f.VIP.Addr(), f.VIP.Port()
			}
		}
	}
	if c.Service.Name == "" {
		q.packet, ok = p.packetOf(c, c.SourcePort)
	}
	if c.Protocol == policy.ProtocolICMP || c.Protocol == policy.ProtocolIGMP {
		c.SourcePort = 0
	}
	q.connection, q.want = c, p.judge(c)
	return q, ok && p.reachable(c.To)
}

// frontend returns a Service with an address of the version of IP of a client, or the zero value.
func (p *policed) frontend(client netip.Addr) service.Frontend {
	list := slices.DeleteFunc(slices.Clone(p.Frontends), func(f service.Frontend) bool {
		return f.VIP.Addr().Is4() != client.Is4()
	})
	if len(list) == 0 {
		return service.Frontend{}
	}
	return policytest.Pick(p.Walk, list...)
}

// met returns the end of a packet.
func met(r oftest.Result) string {
	judging := func(table string) bool {
		return strings.HasPrefix(table, "Egress") || strings.HasPrefix(table, "Ingress")
	}
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case len(r.Outputs) == 1 && (!r.Controller || r.Userdata == string(DNSOther)):
		return allowed
	case len(r.Outputs) == 0 && r.Controller && r.Userdata == string(PolicyReject):
		return rejected
	case len(r.Outputs) == 0 && !r.Controller && judging(r.Dropped):
		return dropped
	}
	return r.String()
}

// namesServices reports whether a rule is about connections to Services. A trace does not show the Service of a
// connection whose endpoint was already chosen.
func (p *policed) namesServices() bool {
	return slices.ContainsFunc(p.policy.Rules.All(),
		func(r derive.Row[policy.RuleKey, policy.Rule]) bool { return len(r.Value.Services) > 0 })
}

// verdicts returns the verdict of the tables of policies about a connection, for messages.
func (p *policed) verdicts(c policytest.Connection) (text string) {
	for _, pod := range p.State.Pods {
		for d, ip := range [...]netip.Addr{policy.Ingress: c.To, policy.Egress: c.From} {
			if slices.Contains(pod.IPs, ip) {
				text += fmt.Sprintf("%s of %s/%s: %+v\n", policy.Direction(d), pod.Namespace, pod.Name,
					p.policy.Decide(derive.Object{Namespace: pod.Namespace, Name: pod.Name}, policy.Direction(d),
						policy.Connection(c)))
			}
		}
	}
	return text
}

// reply returns the server's answer, if it comes into this switch.
func (p *policed) reply(q question) (oftest.Packet, bool) {
	c := q.connection
	back := policytest.Connection{From: c.To, To: c.From, Protocol: c.Protocol, Port: q.packet.SrcPort}
	source := c.Port
	if c.Protocol == policy.ProtocolICMP {
		back.Port, source = c.Port&0xff, q.packet.SrcPort
		if !c.From.Is4() {
			back.Port |= uint16(oftest.EchoV6.Type+1) << 8
		}
	}
	k, ok := p.packetOf(back, source)
	return k, ok && c.Protocol != policy.ProtocolIGMP && p.At(c.From) != p.At(c.To)
}

// sendBack sends a server's answer. Answers of DNS to Pods under rules with names pass the agent.
func (p *policed) sendBack(k oftest.Packet) oftest.Result {
	r := p.sw.Send(k)
	if r.Controller && KindOf(ofp.PacketIn2{Userdata: []byte(r.Userdata)}) == DNSAnswer {
		to := slices.IndexFunc(p.State.Pods, func(pod Pod) bool { return slices.Contains(pod.IPs, k.IPDst) })
		return p.sw.PacketOut(k, Answer{}.Release(p.State.Node, p.State.Pods[to]).Actions)
	}
	return r
}

// ask puts a question to the switch in memory: with the first packet, another one, and the answer.
func (p *policed) ask(q question) error {
	p.sw.Forget()
	for _, which := range []string{"first", "second"} {
		r := p.sw.Send(q.packet)
		if have := met(r); have != q.want {
			return fmt.Errorf("%s packet, %s: %s by %v", which, q, have, r.Tables)
		}
	}
	if k, ok := p.reply(q); ok && q.want == allowed {
		r := p.sendBack(k)
		if met(r) != allowed {
			return fmt.Errorf("the answer %s to %s: %s by %v", k, q, met(r), r.Tables)
		}
		if r := p.sw.Send(q.packet); met(r) != allowed {
			return fmt.Errorf("once answered, %s: %s by %v", q, met(r), r.Tables)
		}
		for _, part := range []oftest.Fragment{oftest.First, oftest.Later} {
			fragment := q.packet
			fragment.Fragment = part
			if r := p.sw.Send(fragment); met(r) != allowed && q.connection.Protocol != corev1.ProtocolSCTP {
				return fmt.Errorf("fragments, once answered, %s: %s by %v", q, met(r), r.Tables)
			}
		}
	}
	return nil
}

// askInParts puts the same question with fragments of a datagram, in any order and number. Fragments pass only if the
// whole datagram would pass. If no rule has ports, all pass.
func (p *policed) askInParts(q question) error {
	p.sw.Forget()
	c, want := q.connection, q.want
	if c.Service.Name != "" { // which fragments of new connections are not translated for
		c.To, c.Port = q.packet.IPDst, q.packet.DstPort
		want = p.judge(c)
	}
	exact := !p.portsMatter(c) && c.Protocol != corev1.ProtocolSCTP
	for range 1 + p.IntN(4) {
		fragment := q.packet
		fragment.Fragment = policytest.Pick(p.Walk, oftest.First, oftest.Later)
		r := p.sw.Send(fragment)
		have := met(r)
		if have == allowed && want != allowed || exact && have != want && c.Service.Name == "" {
			return fmt.Errorf("fragment of %s: %s by %v, want %s", q, have, r.Tables, want)
		}
		if have == allowed {
			p.parts++
		} else {
			p.partsEnded++
		}
	}
	if r := p.sw.Send(q.packet); c.Service.Name == "" && met(r) != want {
		return fmt.Errorf("after fragments, %s: %s by %v", q, met(r), r.Tables)
	}
	return nil
}

// portsMatter reports whether a rule that judges a connection may match ports.
func (p *policed) portsMatter(c policytest.Connection) bool {
	for d, ip := range [...]netip.Addr{policy.Ingress: c.To, policy.Egress: c.From} {
		pod := p.At(ip)
		if pod == nil {
			continue
		}
		i, _ := p.policy.Identities.Get(derive.ObjectOf(pod))
		number, _ := p.policy.Numbers.Get(i)
		if slices.ContainsFunc(p.policy.Rules.All(), func(r derive.Row[policy.RuleKey, policy.Rule]) bool {
			return r.Key.Direction == policy.Direction(d) && !r.Value.AnyPort && slices.Contains(r.Value.Applied, number)
		}) {
			return true
		}
	}
	return false
}

// TestPolicies changes Pods, labels, Services and policies of all kinds at random, and asks for the end of packets. It
// compares each connection with the verdict of the specifications, in the switch in memory and, for some, in Open
// vSwitch. The flows equal the flows that a restarted agent makes from nothing. Some steps are such a restart.
//
// 100,000 questions with fragments: go test ./pkg/datapath -run TestPolicies -walk.parts 1 -walk.steps 8000 -timeout 1h
//
// A million questions: go test ./pkg/datapath -run TestPolicies -walk.seed 7 -walk.steps 75000 -timeout 1h
func TestPolicies(t *testing.T) {
	for i, datapath := range []string{"kernel", "userspace"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			p := newPoliced(t, *walkSeed+uint64(i)<<32)
			p.bounded()
			p.Limits = walkLimits
			p.Node.SCTPByPort = datapath == "userspace"
			o := newTracer(t)
			answers, traced := map[string]int{}, 0
			for step := range *walkSteps / 4 {
				what := ""
				if p.IntN(30) == 0 {
					p.restart(t)
					what = "a start, "
				}
				what += p.Step()
				p.attach(t)
				when := fmt.Sprintf("seed %d, step %d, %s", *walkSeed, step, what)
				trace := step%20 == 19
				if trace {
					o.replace(t, setOf(t, p.held))
				}
				for range 50 {
					q, ok := p.next()
					if !ok {
						continue
					}
					answers[q.want]++
					if !q.connection.From.Is4() {
						answers["IPv6 "+q.want]++
					}
					if p.UnknownPod(q.connection.From) || p.UnknownPod(q.connection.To) {
						answers["unknown Pod "+q.want]++
					}
					if err := p.ask(q); err != nil {
						t.Fatalf("%s: %v\n%s", when, err, p.verdicts(q.connection))
					}
					if p.IntN(*walkParts) == 0 {
						if err := p.askInParts(q); err != nil {
							t.Fatalf("%s: %v\n%s", when, err, p.verdicts(q.connection))
						}
					}
					if trace && (q.connection.Service.Name == "" || !p.namesServices()) {
						traced++
						if have, account := o.ask(t, q); have != q.want {
							t.Fatalf("%s: %s: the switch says %s\n%s", when, q, have, account)
						}
						q.packet.Fragment = policytest.Pick(p.Walk, oftest.First, oftest.Later)
						if have, account := o.ask(t, q); have == allowed && q.want != allowed && q.connection.Service.Name == "" {
							t.Fatalf("%s: fragment of %s: the switch says %s\n%s", when, q, have, account)
						}
					}
				}
				if step%10 == 0 {
					p.fromNothing(t, when)
				}
			}
			asked := answers[allowed] + answers[dropped] + answers[rejected]
			if answers["IPv6 "+allowed]+answers["IPv6 "+dropped]+answers["IPv6 "+rejected] < asked/10 ||
				datapath == "kernel" && (answers["IPv6 "+dropped] < asked/20 || answers["IPv6 "+rejected] == 0) {
				t.Errorf("%v: the walk is too tame with IPv6", answers)
			}
			if asked < *walkSteps*2 || answers[dropped] < asked/10 || answers[rejected] < asked/1000 ||
				answers[allowed] < asked/10 ||
				answers["unknown Pod "+dropped] < asked/1000 || answers["unknown Pod "+allowed] < asked/1000 || traced < asked/50 {
				t.Errorf("%v, %d traced: the walk is too tame", answers, traced)
			}
			if p.parts < asked / *walkParts / 20 || p.partsEnded < asked / *walkParts / 5 {
				t.Errorf("%d fragments passed, %d did not: the walk is too tame", p.parts, p.partsEnded)
			}
			t.Logf("%d questions, %v, %d of them traced; %d fragments passed, %d did not", asked, answers, traced, p.parts,
				p.partsEnded)
		})
	}
}

// fromNothing compares the policies' flows with the flows of new tables. Priorities depend on earlier states, so only
// their order counts. Numbers may differ if two objects want one; with so few objects they do not.
//
// On a Node with IPv4 alone, policies have the flows of a Node with both versions that do not match IPv6.
func (p *policed) fromNothing(t *testing.T, when string) {
	t.Helper()
	fresh := p.again()
	if diff := cmp.Diff(inOrder(fresh.held), inOrder(p.held)); diff != "" {
		t.Fatalf("%s: flows (-from nothing +incremental):\n%s", when, diff)
	}
	alone := *p
	state := *p.sources
	state.Node.Families = family.IPv4
	state.RemoteNodes = slices.Clone(state.RemoteNodes)
	state.RemoteNodes[0].PodCIDRs = farRanges[:1]
	alone.sources = &state
	want, have := map[flow.Owner]flow.Entries{}, map[flow.Owner]flow.Entries{}
	for o, e := range alone.again().held {
		if o.Kind == KindPolicy {
			have[o] = e
		}
	}
	for o, e := range fresh.held {
		e.Flows = slices.DeleteFunc(slices.Clone(e.Flows), isIPv6)
		if o.Kind == KindPolicy && len(e.Flows) > 0 {
			want[o] = e
		}
	}
	if diff := cmp.Diff(inOrder(want), inOrder(have)); diff != "" {
		t.Fatalf("%s: flows of IPv4 alone (-of both versions +alone):\n%s", when, diff)
	}
}

// isIPv6 reports whether a flow is for packets of IPv6 alone.
func isIPv6(f flow.Flow) bool {
	for c := range f.Match.OXM().All() {
		if c.Field == ofp.EthType {
			return c.Value.Lo == ipv6Type
		}
	}
	return false
}

// again makes the tables from nothing.
func (p *policed) again() *sources {
	fresh := newSources(p.State)
	if p.Limits != (policytest.Limits{}) {
		fresh.bounded()
	}
	fresh.policy.Pods.Replace(rowsOf(p.policy.Pods))
	fresh.policy.Namespaces.Replace(rowsOf(p.policy.Namespaces))
	for kind, s := range p.policy.Policies {
		fresh.policy.Policies[kind].Replace(rowsOf(s))
	}
	fresh.policy.Tiers.Replace(rowsOf(p.policy.Tiers))
	fresh.policy.Groups.Replace(rowsOf(p.policy.Groups))
	fresh.policy.ClusterGroups.Replace(rowsOf(p.policy.ClusterGroups))
	fresh.policy.Nodes.Replace(rowsOf(p.policy.Nodes))
	fresh.policy.ServiceSelectors.Replace(rowsOf(p.policy.ServiceSelectors))
	fresh.policy.LabelIdentities.Replace(rowsOf(p.policy.LabelIdentities))
	fresh.policy.PodAddresses.Replace(rowsOf(p.policy.PodAddresses))
	fresh.engine.Pass()
	return fresh
}

// restart makes the tables from nothing; the switch keeps its connections.
func (p *policed) restart(t *testing.T) {
	t.Helper()
	*p.sources = *p.again()
	p.attach(t)
}

// inOrder returns entries in words, with the place of a flow's priority in its table instead of the priority.
func inOrder(all map[flow.Owner]flow.Entries) map[string][]string {
	priorities := map[ofp.Table]map[uint16]uint16{}
	for _, e := range all {
		for _, f := range e.Flows {
			if priorities[f.Table] == nil {
				priorities[f.Table] = map[uint16]uint16{}
			}
			priorities[f.Table][f.Priority] = 0
		}
	}
	for _, places := range priorities {
		for i, priority := range slices.Sorted(maps.Keys(places)) {
			places[priority] = uint16(i)
		}
	}
	out := map[flow.Owner]flow.Entries{}
	for o, e := range all {
		e.Flows = slices.Clone(e.Flows)
		for i, f := range e.Flows {
			e.Flows[i].Priority = priorities[f.Table][f.Priority]
		}
		out[o] = e
	}
	return wordsOf(out)
}

func rowsOf[K derive.Key[K], V any](s *derive.Source[K, V]) map[K]V {
	out := map[K]V{}
	for _, row := range s.All() {
		out[row.Key] = row.Value
	}
	return out
}

// tracer is Open vSwitch with the ports of a policed Node.
type tracer struct{ *openVSwitch }

func newTracer(t *testing.T) tracer {
	o := startOVS(t, "")
	args := []string{"add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=dummy", "fail_mode=secure"}
	for _, port := range []ofp.Port{2, 3, 4, 5, 6, 18, 19, 20, 21, 22, gatewayPort} {
		name := fmt.Sprint("p", port)
		args = append(args, "--", "add-port", "br-int", name, "--", "set", "interface", name, "type=dummy",
			fmt.Sprint("ofport_request=", port))
	}
	o.vsctl(t, append(args, "--", "add-port", "br-int", "tun", "--", "set", "interface", "tun", "type=geneve",
		"options:remote_ip=flow", "options:key=flow", "ofport_request=32768")...)
	return tracer{o}
}

// replace gives it other flows.
func (o tracer) replace(t *testing.T, set *flow.Set) {
	t.Helper()
	o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", o.dir+"/br-int.mgmt")
	o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", o.dir+"/br-int.mgmt")
	o.program(t, "br-int", set)
}

// ask asks the switch for the end of a packet.
func (o tracer) ask(t *testing.T, q question) (answer, account string) {
	t.Helper()
	k := q.packet
	protocol := map[uint8]string{oftest.TCP: "tcp", oftest.UDP: "udp", oftest.SCTP: "sctp", oftest.ICMP: "icmp",
		oftest.ICMPv6: "icmp6", protoIGMP: "ip,nw_proto=2"}[k.Proto]
	version, addresses := protocol, "nw_src=%s,nw_dst=%s"
	if !k.IPDst.Is4() {
		version, addresses = strings.TrimSuffix(protocol, "6")+"6", "ipv6_src=%s,ipv6_dst=%s"
		if k.Fragment == oftest.Later { // as the switch reads one
			version = fmt.Sprint("ipv6,nw_proto=", extFragment)
		}
	}
	text := fmt.Sprintf("dp_hash=1,in_port=%d,%s,dl_src=%s,dl_dst=%s,"+addresses+",nw_ttl=64", k.InPort, version,
		k.EthSrc, k.EthDst, k.IPSrc, k.IPDst)
	if k.Fragment != oftest.Whole {
		text += map[oftest.Fragment]string{oftest.First: ",nw_frag=first", oftest.Later: ",nw_frag=later"}[k.Fragment]
		k.Proto = 0 // the switch reads no ports
	}
	switch k.Proto {
	case oftest.ICMP:
		text += fmt.Sprintf(",icmp_type=%d,icmp_code=%d", k.ICMP.Type, k.ICMP.Code)
	case oftest.ICMPv6:
		text += fmt.Sprintf(",icmpv6_type=%d,icmpv6_code=%d", k.ICMP.Type, k.ICMP.Code)
	case oftest.TCP, oftest.UDP, oftest.SCTP:
		text += fmt.Sprintf(",%s_src=%d,%s_dst=%d", protocol, k.SrcPort, protocol, k.DstPort)
	}
	if k.TunSrc.IsValid() {
		text += fmt.Sprintf(",tun_src=%s,tun_dst=%s,tun_id=%d", k.TunSrc, k.TunDst, k.TunID)
	}
	account, err := appctl.Client{RunDir: o.dir}.Trace(t.Context(), "br-int", text, "--ct-next", "trk,new", "--ct-next",
		"trk,new", "--ct-next", "trk,new")
	if err != nil {
		t.Fatal(err)
	}
	answer = walk{in: "it"}.outcome(t, account)
	switch {
	case strings.HasPrefix(answer, "to the agent from Egress"), strings.HasPrefix(answer, "to the agent from Ingress"):
		answer = rejected
	case strings.HasPrefix(answer, "to "), strings.HasPrefix(answer, "back "):
		answer = allowed
	case strings.HasPrefix(answer, "dropped in Egress"), strings.HasPrefix(answer, "dropped in Ingress"):
		answer = dropped
	}
	return answer, account
}

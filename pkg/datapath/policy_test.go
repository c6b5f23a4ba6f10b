package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// policed is node-1 of the scenario in a cluster whose Pods and policies change at random. The switch gets the
// changes, as flowsync would.
type policed struct {
	*policytest.Walk
	*sources
	sw *oftest.Switch
}

func newPoliced(t *testing.T, seed uint64) *policed {
	t.Helper()
	state := onNode(1)
	state.Pods, state.Frontends, state.Slices, state.Exported = nil, nil, nil, nil
	p := &policed{sources: newSources(state)}
	local, remote := []netip.Addr{}, []netip.Addr{}
	for i := range 5 {
		local = append(local, addrOf(fmt.Sprint("10.11.0.", 2+i)))
		remote = append(remote, addrOf(fmt.Sprint("10.11.1.", 2+i)))
	}
	p.Walk = policytest.NewWalk(seed, map[string][]netip.Addr{"node-1": local, "node-2": remote}, policytest.Watch{
		Pod: func(namespace, name string, pod *corev1.Pod) {
			var f policy.PodFacts
			if pod != nil {
				f = policy.PodFactsOf(pod)
			}
			p.policy.Pods.Set(derive.Object{Namespace: namespace, Name: name}, f)
		},
		Namespace: func(name string, n *corev1.Namespace) {
			if n == nil {
				p.policy.Namespaces.Delete(derive.Object{Name: name})
				return
			}
			p.policy.Namespaces.Set(derive.Object{Name: name}, policy.NamespaceLabels(n))
		},
		Policy: func(namespace, name string, n *networkingv1.NetworkPolicy) {
			if n == nil {
				p.policy.Policies[policy.NetworkPolicy].Delete(derive.Object{Namespace: namespace, Name: name})
				return
			}
			p.policy.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(n), policy.FactsOf(n))
		},
	})
	var err error
	if p.sw, err = oftest.New(Program); err != nil {
		t.Fatal(err)
	}
	return p
}

// attach gives the Pods of this Node their ports, and one Service an endpoint.
func (p *policed) attach(t *testing.T) {
	t.Helper()
	p.State.Pods, p.Frontends = nil, nil
	for _, pod := range p.Here("node-1") {
		s := Pod{Namespace: pod.Namespace, Name: pod.Name, Interface: pod.Namespace + "-" + pod.Name}
		for _, ip := range pod.Status.PodIPs {
			s.IPs = append(s.IPs, addrOf(ip.IP))
		}
		last := s.IPs[0].As4()[3]
		s.Port, s.MAC = ofp.Port(last), ofp.MAC{0x0a, 0, 0, 0, 0, last}
		p.State.Pods = append(p.State.Pods, s)
	}
	ends := slices.Concat(p.Addresses["node-1"], p.Addresses["node-2"])
	f := frontend("any", corev1.ProtocolTCP, "10.97.0.10:80", fmt.Sprint(policytest.Pick(p.Walk, ends...), ":", policytest.Pick(p.Walk, 53, 80, 81)))
	p.Frontends = []service.Frontend{f}
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

// question is a packet, and what the specification says of it.
type question struct {
	packet  oftest.Packet
	text    string
	allowed bool
}

// reachable is false for addresses of this Node that no port has: packets to them end in table Route whatever
// policies say.
func (p *policed) reachable(a netip.Addr) bool {
	return !rangeOf("10.11.0.0/24").Contains(a) || slices.ContainsFunc(p.State.Pods, func(pod Pod) bool { return slices.Contains(pod.IPs, a) })
}

var numbersOf = map[corev1.Protocol]uint8{corev1.ProtocolTCP: oftest.TCP, corev1.ProtocolUDP: oftest.UDP}

// next is a question about a Pod of this Node, which sends or receives; ok is false where there is none.
func (p *policed) next(source uint16) (q question, ok bool) {
	if len(p.State.Pods) == 0 {
		return q, false
	}
	own := policytest.Pick(p.Walk, p.State.Pods...)
	ip := policytest.Pick(p.Walk, own.IPs...)
	protocol := policytest.Pick(p.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP)
	c := policytest.Connection{From: ip, Protocol: protocol, Port: policytest.Pick[uint16](p.Walk, 53, 80, 81, 85)}
	pod := p.At(ip)
	q.packet = oftest.Packet{InPort: own.Port, EthSrc: own.MAC, EthDst: gwMAC, IPSrc: ip, Proto: numbersOf[protocol], SrcPort: source}
	receiver := func(to netip.Addr) bool { // and the Pod of this Node that it reaches allows it
		other := p.At(to)
		switch {
		case other == nil || other.Spec.NodeName != "node-1":
			return true
		case other == pod:
			return true
		}
		return p.Allows(other, false, c)
	}
	switch p.IntN(5) {
	case 0: // another Node's Pod to ours, known or not
		from := policytest.Pick(p.Walk, p.Addresses["node-2"]...)
		c.From, c.To = from, ip
		q.packet = oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: InClusterMAC, TunSrc: eastTwo, TunDst: eastOne, IPSrc: from, Proto: numbersOf[protocol], SrcPort: source}
		q.allowed = p.Allows(pod, false, c)
	case 1: // the world to ours, through the host
		from := addrOf(policytest.Pick(p.Walk, "198.51.100.7", "198.51.100.8", "203.0.113.1"))
		c.From, c.To = from, ip
		q.packet = oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, EthDst: own.MAC, IPSrc: from, Proto: numbersOf[protocol], SrcPort: source}
		q.allowed = p.Allows(pod, false, c)
	case 2: // the Node's own probe
		c.From, c.To = addrOf("10.11.0.1"), ip
		q.packet = oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, EthDst: own.MAC, IPSrc: c.From, Proto: numbersOf[protocol], SrcPort: source}
		q.allowed = true
	case 3: // through the Service
		end := p.Frontends[0].Endpoints[0].Addr
		c.To, c.Protocol, c.Port = end.Addr(), corev1.ProtocolTCP, end.Port()
		if !p.reachable(c.To) {
			return q, false
		}
		q.packet.Proto, q.packet.IPDst, q.packet.DstPort = oftest.TCP, addrOf("10.97.0.10"), 80
		q.allowed = p.At(c.To) == pod || p.Allows(pod, true, c) && receiver(c.To)
		q.text = fmt.Sprintf("%s > %s by the Service, seed %+v", c.From, end, c)
		return q, true
	default:
		to := slices.Concat(p.Addresses["node-1"], p.Addresses["node-2"], []netip.Addr{addrOf("198.51.100.7"), addrOf("198.51.100.8"), addrOf("203.0.113.1")})
		c.To = policytest.Pick(p.Walk, to...)
		if !p.reachable(c.To) {
			return q, false
		}
		q.allowed = p.At(c.To) == pod || p.Allows(pod, true, c) && receiver(c.To)
	}
	q.packet.IPDst, q.packet.DstPort = c.To, c.Port
	q.text = fmt.Sprintf("%s %+v", q.packet, c)
	return q, true
}

// TestPolicies changes Pods, labels and policies at random, and asks where packets go: what the specification
// allows arrives, also the second packet and the reply; what it denies ends in a table of rules, the second packet
// too. The flows equal those that are made from nothing.
func TestPolicies(t *testing.T) {
	p := newPoliced(t, *walkSeed)
	asked, denied, source := 0, 0, uint16(1024)
	for step := range *walkSteps / 2 {
		what := p.Step()
		p.attach(t)
		for range 20 {
			source++
			q, ok := p.next(source)
			if !ok {
				continue
			}
			if asked++; !q.allowed {
				denied++
			}
			for _, which := range []string{"first", "second"} {
				r := p.sw.Send(q.packet)
				if r.Err != nil {
					t.Fatalf("seed %d, step %d, %s: %s: %v", *walkSeed, step, what, q.text, r.Err)
				}
				arrived := len(r.Outputs) == 1
				if arrived != q.allowed || !arrived && r.Dropped != "EgressRule" && r.Dropped != "IngressRule" {
					t.Fatalf("seed %d, step %d, %s: %s packet, %s: allowed %v; it went %s by %v", *walkSeed, step, what, which, q.text, q.allowed, r, r.Tables)
				}
			}
		}
		if step%10 == 0 {
			p.fromNothing(t, fmt.Sprintf("seed %d, step %d, %s", *walkSeed, step, what))
		}
	}
	if asked < *walkSteps || denied < asked/10 || denied > asked*9/10 {
		t.Errorf("%d of %d connections were denied: the walk is too tame", denied, asked)
	}
	t.Logf("%d questions, %d denied", asked, denied)
}

// fromNothing compares the policies' flows with those of new tables. Numbers may differ where two want one; with
// so few they do not.
func (p *policed) fromNothing(t *testing.T, when string) {
	t.Helper()
	fresh := newSources(p.State)
	fresh.policy.Pods.Replace(rowsOf(p.policy.Pods))
	fresh.policy.Namespaces.Replace(rowsOf(p.policy.Namespaces))
	for kind, s := range p.policy.Policies {
		fresh.policy.Policies[kind].Replace(rowsOf(s))
	}
	fresh.engine.Pass()
	if diff := cmp.Diff(wordsOf(fresh.held), wordsOf(p.held)); diff != "" {
		t.Fatalf("%s: flows (-from nothing +incremental):\n%s", when, diff)
	}
}

func rowsOf[K derive.Key[K], V any](s *derive.Source[K, V]) map[K]V {
	out := map[K]V{}
	for _, row := range s.All() {
		out[row.Key] = row.Value
	}
	return out
}

// TestPoliciesTraced asks a real switch the same questions.
func TestPoliciesTraced(t *testing.T) {
	o := startOVS(t, "")
	args := []string{"add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=dummy", "fail_mode=secure"}
	for _, port := range []ofp.Port{2, 3, 4, 5, 6, gatewayPort} {
		name := fmt.Sprint("p", port)
		args = append(args, "--", "add-port", "br-int", name, "--", "set", "interface", name, "type=dummy", fmt.Sprint("ofport_request=", port))
	}
	o.vsctl(t, append(args, "--", "add-port", "br-int", "tun", "--", "set", "interface", "tun", "type=geneve", "options:remote_ip=flow", "options:key=flow", "ofport_request=32768")...)
	p := newPoliced(t, *walkSeed)
	asked, denied := 0, 0
	for range 20 {
		for range 30 {
			p.Step()
		}
		p.attach(t)
		o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-flows", o.dir+"/br-int.mgmt")
		o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "del-groups", o.dir+"/br-int.mgmt")
		o.program(t, "br-int", setOf(t, p.held))
		for i := range 30 {
			q, ok := p.next(uint16(2000 + i))
			if !ok {
				continue
			}
			k := q.packet
			proto := map[uint8]string{oftest.TCP: "tcp", oftest.UDP: "udp"}[k.Proto]
			text := fmt.Sprintf("dp_hash=1,in_port=%d,%s,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,%s_src=%d,%s_dst=%d", k.InPort, proto, k.EthSrc, k.EthDst, k.IPSrc, k.IPDst, proto, k.SrcPort, proto, k.DstPort)
			if k.TunSrc.IsValid() {
				text += fmt.Sprintf(",tun_src=%s,tun_dst=%s,tun_id=0", k.TunSrc, k.TunDst)
			}
			trace := o.appctl(t, "ofproto/trace", "br-int", text, "--ct-next", "trk,new", "--ct-next", "trk,new", "--ct-next", "trk,new")
			have := walk{in: "it"}.outcome(t, trace)
			if arrived := strings.HasPrefix(have, "to ") || strings.HasPrefix(have, "back "); arrived != q.allowed || !arrived && !strings.HasSuffix(have, "gressRule") {
				t.Errorf("%s: allowed %v, the switch says %s\n%s", q.text, q.allowed, have, trace)
			}
			if asked++; !q.allowed {
				denied++
			}
		}
	}
	if asked < 200 || denied < asked/10 {
		t.Errorf("%d of %d connections were denied: too tame", denied, asked)
	}
	t.Logf("%d questions, %d denied", asked, denied)
}

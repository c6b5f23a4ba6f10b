package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

// staged gives the walk policies of other stages.
func (p *policed) staged() {
	key := derive.Object{Name: fmt.Sprint("c", p.IntN(4))}
	source := p.policy.Policies[policy.AntreaClusterNetworkPolicy]
	if p.IntN(4) == 0 {
		source.Delete(key)
		return
	}
	f := policy.Facts{Stage: policytest.Pick(p.Walk, policy.Admin, policy.Baseline), TierPriority: uint8(1 + p.IntN(3)), Priority: policytest.Pick(p.Walk, 1, 2.5, 3)}
	for range 1 + p.IntN(2) {
		f.AppliedTo = append(f.AppliedTo, policytest.Pick(p.Walk, policy.Selector{Namespaces: ""}, policy.Selector{Namespace: "x"}, policy.Selector{Namespace: "y", Pods: "app=a"}, policy.Selector{Namespaces: "app", Pods: "tier"}))
	}
	rules := func() *policy.DirectionFacts {
		d := &policy.DirectionFacts{}
		for range p.IntN(4) {
			r := policy.RuleFacts{
				Action:  policytest.Pick(p.Walk, policy.Allow, policy.Drop, policy.Reject, policy.Pass),
				AnyPeer: p.IntN(3) == 0, AnyPort: p.IntN(2) == 0,
			}
			if f.Stage == policy.Baseline && r.Action == policy.Pass {
				r.Action = policy.Drop
			}
			if !r.AnyPeer {
				r.Peers = []policy.Selector{policytest.Pick(p.Walk, policy.Selector{Namespace: "x"}, policy.Selector{Namespaces: "tier"}, policy.Selector{Namespace: "z", Pods: "app"})}
				if p.IntN(3) == 0 {
					r.Blocks = []netip.Prefix{rangeOf(policytest.Pick(p.Walk, "198.51.100.0/24", "10.11.0.0/29", "0.0.0.0/0"))}
				}
			}
			if !r.AnyPort {
				r.Ports = []policy.PortRange{{Protocol: policytest.Pick(p.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP), From: 53, To: policytest.Pick[uint16](p.Walk, 53, 80, 84)}}
				r.ICMP = []policy.ICMP{{Type: policytest.Pick[int16](p.Walk, policy.Any, 8), Code: policy.Any}}
				r.IGMP = []policy.IGMP{{Type: policy.Any}}
			}
			d.Rules = append(d.Rules, r)
		}
		return d
	}
	f.Ingress, f.Egress = rules(), rules()
	source.Set(key, f)
}

// judgedBy is what the tables of policies say of a packet, from and to Pods of this Node.
func (p *policed) judgedBy(c policy.Connection) (allowed bool) {
	allowed = true
	for _, pod := range p.State.Pods {
		object := derive.Object{Namespace: pod.Namespace, Name: pod.Name}
		for _, ip := range pod.IPs {
			if ip == c.From && !contains(pod.IPs, c.To) {
				allowed = allowed && p.policy.Decide(object, policy.Egress, c).Allowed
			}
			if ip == c.To && !contains(pod.IPs, c.From) {
				allowed = allowed && p.policy.Decide(object, policy.Ingress, c).Allowed
			}
		}
	}
	return allowed
}

func contains(list []netip.Addr, a netip.Addr) bool {
	for _, b := range list {
		if a == b {
			return true
		}
	}
	return false
}

// packetOf is a connection's first packet, and ok where it has a way to the switch.
func (p *policed) packetOf(c policy.Connection, source uint16) (k oftest.Packet, ok bool) {
	k = oftest.Packet{EthSrc: gwMAC, EthDst: InClusterMAC, IPSrc: c.From, IPDst: c.To, Proto: numbersOf[c.Protocol], SrcPort: source, DstPort: c.Port}
	switch {
	case rangeOf("10.11.1.0/24").Contains(c.From):
		k.InPort, k.TunSrc, k.TunDst = tunnelPort, eastTwo, eastOne
	case !rangeOf("10.11.0.0/24").Contains(c.From):
		k.InPort = gatewayPort
	default:
		k.InPort = 0
		for _, pod := range p.State.Pods {
			if contains(pod.IPs, c.From) {
				k.InPort, k.EthSrc, k.EthDst = pod.Port, pod.MAC, gwMAC
			}
		}
	}
	return k, k.InPort != ofp.Port(0)
}

// connection is one that a Pod of this Node opens or takes.
func (p *policed) connection() (c policy.Connection, ok bool) {
	if len(p.State.Pods) == 0 {
		return c, false
	}
	ip := policytest.Pick(p.Walk, policytest.Pick(p.Walk, p.State.Pods...).IPs...)
	other := policytest.Pick(p.Walk, append(append([]netip.Addr{addrOf("198.51.100.7"), addrOf("203.0.113.1")}, p.Addresses["node-1"]...), p.Addresses["node-2"]...)...)
	c = policy.Connection{From: ip, To: other, Protocol: policytest.Pick(p.Walk, corev1.ProtocolTCP, corev1.ProtocolUDP), Port: policytest.Pick[uint16](p.Walk, 53, 80, 85)}
	if p.IntN(2) == 0 {
		c.From, c.To = c.To, c.From
	}
	return c, p.reachable(c.From) && p.reachable(c.To)
}

// TestStages holds the flows of policies of all stages against the tables' own verdict.
func TestStages(t *testing.T) {
	p := newPoliced(t, *walkSeed)
	asked, denied, source := 0, 0, uint16(1024)
	for step := range *walkSteps / 2 {
		what := p.Step()
		p.staged()
		p.attach(t)
		for range 10 {
			c, ok := p.connection()
			source++
			k, way := p.packetOf(c, source)
			if !ok || !way {
				continue
			}
			allowed := p.judgedBy(c)
			if asked++; !allowed {
				denied++
			}
			for _, which := range []string{"first", "second"} {
				r := p.sw.Send(k)
				if r.Err != nil {
					t.Fatalf("seed %d, step %d, %s: %s: %v", *walkSeed, step, what, k, r.Err)
				}
				if arrived := len(r.Outputs) == 1; arrived != allowed {
					t.Fatalf("seed %d, step %d, %s: %s packet, %s: allowed %v; it went %s by %v", *walkSeed, step, what, which, k, allowed, r, r.Tables)
				}
			}
		}
		if step%20 == 0 {
			text := ""
			for _, e := range p.held {
				for _, f := range e.Flows {
					text += f.String() + "\n"
				}
			}
			parse(t, text)
		}
	}
	if denied < asked/10 || denied > asked*9/10 {
		t.Errorf("%d of %d connections were denied: the walk is too tame", denied, asked)
	}
	t.Logf("%d questions, %d denied", asked, denied)
}

package datapath

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

// kept is an open connection, with the packets that its ends send.
type kept struct {
	policytest.Connection
	there, back oftest.Packet
}

// open opens a connection that policies allow; the server has answered.
func (p *policed) open(t *testing.T, c policytest.Connection, source uint16) (k kept, ok bool) {
	t.Helper()
	k.Connection = c
	if k.there, ok = p.packetOf(c, source); !ok {
		return k, false
	}
	first := p.sw.Send(k.there)
	if len(first.Outputs) != 1 {
		return k, false
	}
	back := policytest.Connection{From: c.To, To: c.From, Protocol: c.Protocol, Port: source}
	if k.back, ok = p.packetOf(back, c.Port); !ok {
		return k, false
	}
	if r := p.sendBack(k.back); len(r.Outputs) != 1 {
		t.Fatalf("the answer to %s goes %s", k.there, r)
	}
	return k, true
}

// look compares the switch's connections with policies, as the agent does.
func (p *policed) look(t *testing.T) []Recheck {
	t.Helper()
	list := p.tables.Policies.Known.Rechecks(p.sw.DumpConntrack())
	if p.concerns != nil && !p.wantLook { // changes that describe themselves
		list = slices.Collect(maps.Keys(p.concerns))
	} else if p.concerns != nil {
		clear(p.concerns)
		for _, c := range list {
			p.concerns[c] = true
		}
		p.wantLook = false
	}
	p.tables.Policies.Known.Recheck(list)
	p.attach(t)
	return list
}

func newRelabelled(t *testing.T, seed uint64) *policed {
	p := newPoliced(t, seed)
	watch := p.Watch.Pod
	p.Watch.Pod = func(namespace, name string, pod *corev1.Pod) {
		if pod != nil {
			pod.Spec.Containers[0].Ports = nil // a container keeps its ports
		}
		watch(namespace, name, pod)
	}
	return p
}

// TestChangeOfMind changes policies, Pods and labels at random under open connections. After each change exactly the
// allowed connections continue, in both directions. After they were judged again no recheck remains. Some steps are
// restarts of the agent: the flows and numbers are made from nothing.
//
// In one run, looks at the connections find the connections to judge again. In the other run, the changes name them.
func TestChangeOfMind(t *testing.T) {
	t.Run("looks", func(t *testing.T) { changeOfMind(t, false) })
	t.Run("concerns", func(t *testing.T) { changeOfMind(t, true) })
}

func changeOfMind(t *testing.T, concerns bool) {
	p := newRelabelled(t, *walkSeed)
	if concerns {
		p.followConcerns()
	}
	var open []kept
	source, rechecked, cut := uint16(1024), 0, 0
	for step := range *walkSteps / 8 {
		what := p.Step() + ", " + p.Step()
		p.attach(t)
		when := fmt.Sprintf("seed %d, step %d, %s", *walkSeed, step, what)
		if step%7 == 0 {
			p.restart(t)
			if concerns {
				p.followConcerns()
			}
		}
		list := p.look(t)
		rechecked += len(list)
		for range 4 {
			source++
			if c, ok := p.connection(source); ok && p.judge(c) == allowed {
				if k, ok := p.open(t, c, source); ok {
					open = append(open, k)
				}
			}
		}
		var still []kept
		for _, k := range open {
			relabelled := false
			if k.From == westGW && p.IntN(3) == 0 { // its next packet shows that
				if number := p.clusterSet(); number != noNumber {
					k.ClusterSet, relabelled = number, true
				}
			}
			there, way1 := p.packetOf(k.Connection, k.there.SrcPort)
			back, way2 := p.packetOf(policytest.Connection{From: k.To, To: k.From, Protocol: k.Protocol,
				Port: k.there.SrcPort}, k.Port)
			if !way1 || !way2 || !p.reachable(k.To) || !p.reachable(k.From) {
				continue // its Pod is gone
			}
			if p.At(k.From) == p.At(k.To) && p.At(k.To) != nil {
				continue // both ends are one Pod's by now
			}
			allowed := p.judge(k.Connection) == allowed
			if k.Protocol != corev1.ProtocolTCP && !relabelled {
				if r := p.sendBack(back); len(r.Outputs) > 0 && !allowed {
					t.Fatalf("%s: a datagram back of %s, which is forbidden now, goes %s by %v", when, there, r, r.Tables)
				}
			}
			if r := p.sw.Send(there); r.Err != nil || (len(r.Outputs) == 1) != allowed {
				t.Fatalf("%s: %s: allowed %v; it goes %s by %v\n%s", when, there, allowed, r, r.Tables, p.sw.DumpConntrack())
			}
			if r := p.sendBack(back); r.Err != nil || (len(r.Outputs) == 1) != allowed {
				t.Fatalf("%s: back of %s: allowed %v; it goes %s by %v", when, there, allowed, r, r.Tables)
			}
			if allowed && k.From == westGW {
				unnumbered := k.Connection
				unnumbered.ClusterSet = noNumber
				if there, ok := p.packetOf(unnumbered, k.there.SrcPort); ok {
					if r := p.sw.Send(there); r.Err != nil || len(r.Outputs) != 1 {
						t.Fatalf("%s: %s of a known connection, without a number: it goes %s by %v\n%s", when, there, r, r.Tables,
							p.sw.DumpConntrack())
					}
				}
				if r := p.sendBack(back); r.Err != nil || len(r.Outputs) != 1 {
					t.Fatalf("%s: back of %s, after a packet without a number: it goes %s by %v", when, there, r, r.Tables)
				}
			}
			if allowed {
				still = append(still, k)
			} else if cut++; p.IntN(2) == 0 {
				still = append(still, k) // it continues when it is allowed again
			}
		}
		open = still[max(0, len(still)-40):]
		dump := ""
		for line := range strings.Lines(p.sw.DumpConntrack()) {
			if slices.ContainsFunc(open,
				func(k kept) bool { return strings.Contains(line, fmt.Sprintf(",sport=%d,", k.there.SrcPort)) }) {
				dump += line
			}
		}
		if left := p.tables.Policies.Known.Rechecks(dump); len(left) > 0 {
			t.Fatalf("%s: all connections were judged again, and still %v\n%s", when, left, dump)
		}
	}
	if rechecked < *walkSteps/20 || cut < *walkSteps/60 {
		t.Errorf("%d rechecks, %d connections cut: the walk is too tame", rechecked, cut)
	}
	t.Logf("%d rechecks, %d times a connection was cut", rechecked, cut)
}

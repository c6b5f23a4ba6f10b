package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Connection is the first packet of a connection, after a Service's endpoint was chosen.
type Connection struct {
	From, To netip.Addr
	Protocol corev1.Protocol // another than TCP, UDP and SCTP has no ports
	Port     uint16          // the destination's
}

// Verdict is what the policies of a Pod say of a connection.
type Verdict struct {
	Allowed bool
	// Policies are those that isolate the Pod; without any, everything is allowed.
	Policies []derive.Object
	// Rule is the first that allows the connection, where one is asked for.
	Rule *RuleKey
}

// Decide says what the policies of a Pod of this Node say of a connection from it (Egress) or to it (Ingress). A
// connection from the Pod's own Node is always allowed in, for the kubelet's probes: that is for the caller to
// know. It may be called from any goroutine.
func (t *Tables) Decide(pod derive.Object, d Direction, c Connection) Verdict {
	identity, _ := t.here.Get(pod)
	applied, _ := t.Applied.Get(identity)
	v := Verdict{Policies: applied.in(d)}
	if len(v.Policies) == 0 {
		v.Allowed = true
		return v
	}
	number, _ := t.Numbers.Get(identity)
	peer := c.From
	if d == Egress {
		peer = c.To
	}
	other, _ := t.Addresses.Get(Addr{peer})
	for _, policy := range v.Policies {
		f, _ := t.active.Get(policy)
		for _, k := range ruleKeys(policy, f) {
			if rule, ok := t.Rules.Get(k); ok && k.Direction == d && rule.allows(number, other, peer, c) {
				v.Allowed, v.Rule = true, &k
				return v
			}
		}
	}
	return v
}

// allows says whether a rule allows a connection of the identity pod with the one of number other at address peer.
func (r Rule) allows(pod, other uint32, peer netip.Addr, c Connection) bool {
	contains := func(list []uint32, n uint32) bool {
		_, ok := slices.BinarySearch(list, n)
		return ok
	}
	switch {
	case !contains(r.Applied, pod):
		return false
	case !r.AnyPeer && !contains(r.Peers, other) && !slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(peer) }):
		return false
	}
	return r.AnyPort || slices.ContainsFunc(r.Ports, func(p PortRange) bool { return p.contains(c) }) ||
		slices.ContainsFunc(r.Targets, func(t Target) bool { return t.contains(c) && slices.Contains(t.IPs, c.To) })
}

func (p PortRange) contains(c Connection) bool {
	return p.Protocol == c.Protocol && p.From <= c.Port && c.Port <= p.To
}

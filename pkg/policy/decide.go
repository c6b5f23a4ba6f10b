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
	// Networks are the VirtualNetworks of the addresses: Ingress has the network of the destination, and Egress the
	// network of the source. The zero value is for addresses of first interfaces in the network of their Namespace, and
	// for addresses outside.
	Networks [2]derive.Object
	Protocol corev1.Protocol // another than TCP, UDP and SCTP has no ports
	Port     uint16          // the destination's; of ICMP 256 times the type, plus the code; of IGMP the type
	// SourcePort is the client's, 0 where it does not matter: no rule names it.
	SourcePort uint16
	// Service is what the connection was made to, if anything but its endpoint.
	Service derive.Object
	// Asked is the Service address to which the connection was made. For connections to other destinations it is not
	// valid.
	Asked netip.Addr
	// ClusterSet is the number in the tunnel's key, of a connection from another cluster.
	ClusterSet uint32
}

// peer is the address of the other end.
func (c Connection) peer(d Direction) netip.Addr {
	if d == Egress {
		return c.To
	}
	return c.From
}

// peerNetwork is the VirtualNetwork that the address of the other end is in.
func (c Connection) peerNetwork(d Direction) derive.Object { return c.Networks[1-d] }

// Protocols without ports of which rules may choose messages.
const (
	ProtocolICMP corev1.Protocol = "ICMP"
	ProtocolIGMP corev1.Protocol = "IGMP"
)

// Verdict is the decision of a Pod's policies about a connection.
type Verdict struct {
	Allowed bool
	// Stage is the stage that decided, or Stages if no stage did, which allows.
	Stage Stage
	// Action is what became of the connection: Allow, Drop or Reject.
	Action Action
	// Unknown is set if the connection comes from a Pod of another cluster without a number in the ClusterSet, and rules
	// about such Pods are applied. Then no rule decides.
	Unknown bool
	// Rule decided; nil if no rule did, or isolation by NetworkPolicies did.
	Rule *RuleKey
	// Steps are the asked stages, in order. The last of them decided.
	Steps []Step
}

// Step is the answer of one stage about a connection.
type Step struct {
	Stage    Stage
	Policies []Key    // that apply to the Pod
	Rule     *RuleKey // that matches first, if any does
	Action   Action   // of the Rule
}

// Decide returns the decision of a Pod's policies about a connection from the Pod (Egress) or to it (Ingress). The Pod
// is of this Node. A connection from the Pod's own Node is always allowed in, for the kubelet's probes; the caller
// checks that. Any goroutine may call it.
func (t *Tables) Decide(pod derive.Object, d Direction, c Connection) Verdict {
	identity, _ := t.ids.here.Get(pod)
	applied, _ := t.Applied.Get(identity)
	var v Verdict
	if d == Ingress && c.ClusterSet == UnknownClusterSet && t.rules.isStretched(identity, applied[d]) {
		v.Action, v.Unknown = Drop, true
		return v
	}
	for stage := range Stages {
		step := t.rules.step(identity, d, stage, applied[d][stage], c)
		v.Steps = append(v.Steps, step)
		switch {
		case step.Rule != nil && step.Action != Pass:
			v.Stage, v.Action, v.Rule = stage, step.Action, step.Rule
		case stage == NetworkPolicies && applied.Isolated(d):
			v.Stage, v.Action = stage, Drop
		default:
			continue
		}
		v.Allowed = v.Action == Allow
		return v
	}
	v.Allowed, v.Stage, v.Action = true, Stages, Allow
	return v
}

// isStretched reports whether ingress rules about Pods of other clusters are applied to an identity.
func (t *ruleTables) isStretched(i Identity, applied [Stages][]Key) bool {
	number, _ := t.all.Numbers.Get(i)
	return slices.ContainsFunc(slices.Concat(applied[:]...), func(policy Key) bool {
		keys, _ := t.instances.Get(policy)
		return slices.ContainsFunc(keys, func(k RuleKey) bool {
			rule, _ := t.all.Rules.Get(k)
			return k.Direction == Ingress && rule.Stretched && slices.Contains(rule.Applied, number)
		})
	})
}

// step finds the rule of a stage that matches first.
func (t *ruleTables) step(identity Identity, d Direction, stage Stage, policies []Key, c Connection) Step {
	s := Step{Stage: stage, Policies: policies}
	number, _ := t.all.Numbers.Get(identity)
	peer := c.peer(d)
	other := t.all.PeerAt(d, peer, c.peerNetwork(d))
	var rank Rank
	for _, policy := range policies {
		keys, _ := t.instances.Get(policy)
		for _, k := range keys {
			rule, ok := t.all.Rules.Get(k)
			if !ok || k.Direction != d || s.Rule != nil && rule.Compare(rank) >= 0 || !rule.matches(number, other, peer, c) {
				continue
			}
			s.Rule, s.Action, rank = &k, rule.Action, rule.Rank
		}
	}
	return s
}

// matches reports whether a rule matches a connection. pod is the identity that the rule is applied to. other is the
// number of the other end's identity, and peer its address.
func (r Rule) matches(pod, other uint32, peer netip.Addr, c Connection) bool {
	contains := func(list []uint32, n uint32) bool {
		_, ok := slices.BinarySearch(list, n)
		return ok
	}
	clusterSet := c.ClusterSet
	if other&Remote != 0 {
		clusterSet = other &^ Remote
	}
	switch {
	case !contains(r.Applied, pod):
		return false
	case !r.AnyPeer && !contains(r.Peers, other) && !contains(r.ClusterSet, clusterSet) &&
		!slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(peer) }) &&
		!slices.Contains(r.Services, c.Service) && (!c.Asked.IsValid() || !slices.Contains(r.Asked, c.Asked)):
		return false
	case r.AnyPort:
		return true
	case c.Protocol == ProtocolICMP:
		return slices.ContainsFunc(r.ICMP, func(i ICMP) bool {
			return (i.Type == Any || i.Type == int16(c.Port>>8)) && (i.Code == Any || i.Code == int16(c.Port&0xff))
		})
	case c.Protocol == ProtocolIGMP:
		return slices.ContainsFunc(r.IGMP, func(i IGMP) bool {
			return (i.Type == Any || i.Type == int16(c.Port)) && (!i.Group.IsValid() || i.Group == c.To)
		})
	}
	return other == UnknownPod && slices.Contains(r.UnknownPorts, c.Protocol) ||
		slices.ContainsFunc(r.Ports, func(p PortRange) bool { return p.contains(c) }) ||
		slices.ContainsFunc(r.Targets, func(t Target) bool {
			return t.contains(c) && slices.Contains(t.Ends, FurtherAddr{c.Networks[Ingress], c.To})
		})
}

func (p PortRange) contains(c Connection) bool {
	return p.Protocol == c.Protocol && p.From <= c.Port && c.Port <= p.To &&
		(p.SourceFrom == 0 || p.SourceFrom <= c.SourcePort && c.SourcePort <= p.SourceTo)
}

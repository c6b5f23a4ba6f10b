package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// serviceDirection is the direction of a stage that judges for a Service.
const serviceDirection = "service"

// serviceStage returns the decision of the policies that are applied to a Service, and of its loadBalancerSourceRanges.
func (a *whyAnswers) serviceStage(f service.Frontend, d whyDestination) api.WhyStage {
	key, client := derive.Object{Namespace: f.Namespace, Name: f.Service}, d.client
	s := api.WhyStage{Direction: serviceDirection, Service: key.String(), Node: d.judge,
		Here: d.judge == a.tables.nodeName, Allowed: true}
	seen := map[policy.Key]bool{}
	rules, _ := a.tables.policies.ServiceRules.Get(key)
	for _, rule := range rules {
		if !seen[rule.Key.Policy] {
			seen[rule.Key.Policy] = true
			s.Policies = append(s.Policies, rule.Key.Policy.String())
		}
	}
	rule, ok := a.tables.flows.Policies.OfServices.Judge(key, client.ip, f.Protocol, d.asked.Port())
	switch {
	case !ok && len(s.Policies) == 0:
		s.Reason = "no policy applies to the Service"
	case !ok:
		s.Reason = "no rule is about it"
	default:
		s.Rule, s.Allowed = rule.Key.String(), rule.Action == policy.Allow
		s.Reason = fmt.Sprintf("%s of %s", rule.Action, rule.Key)
		if rule.Beyond {
			s.Reason += ", which needs more flows than a Service has (problem TooLarge) and denies everything"
		}
	}
	// The Service's own address may use it if an address of this Node may.
	n, _ := a.tables.node.Get(self)
	if s.Allowed && f.Limited && !slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool {
		return p.Contains(client.ip) || client.ip == d.asked.Addr() && slices.ContainsFunc(n.NodePortAddresses, p.Contains)
	}) {
		s.Allowed, s.Reason = false, fmt.Sprintf("loadBalancerSourceRanges of the Service do not have %s", client.ip)
	}
	return s
}

// elsewhere has the tables of the Nodes of Pods made when they are needed.
func (a *whyAnswers) elsewhere(pods []derive.Object) func() *policy.Tables {
	var made *policy.Tables
	return func() *policy.Tables {
		if made == nil {
			all := slices.DeleteFunc(slices.Clone(pods), func(o derive.Object) bool { return o == derive.Object{} })
			made = a.tables.policies.Elsewhere(all...)
		}
		return made
	}
}

// stage returns the decision for the Pod own about its connection with other.
func (a *whyAnswers) stage(d policy.Direction, own, other whyEnd, c policy.Connection,
	elsewhere func() *policy.Tables) api.WhyStage {
	s := api.WhyStage{Direction: d.String(), Allowed: true}
	switch {
	case own.Cluster != "" && d == policy.Ingress:
		from := a.addresses.gatewayIP().String()
		if other.ClusterSet != 0 {
			from = "identity/" + numberText(other.ClusterSet)
		}
		s.Reason = fmt.Sprintf("%s is of cluster %s, whose own policies judge it: ask on the server's Node there, with "+
			"--from %s", own.ip, own.Cluster, from)
		return s
	case own.Cluster != "":
		s.Reason = fmt.Sprintf("%s is of cluster %s, whose own policies judge it: ask there", own.ip, own.Cluster)
		return s
	case own.foreign:
		s.Pod, s.Node, s.Here, s.Allowed = own.Name, own.Node, true, !a.tables.policies.MaySelect(nil, namespaceOf(own.Name))
		s.Reason = "nothing is known of its Pod: where policies could select a Pod of its Namespace nothing is allowed"
		return s
	case own.facts == nil && own.network != derive.Object{}:
		s.Reason = fmt.Sprintf("%s is in a block of Node %s, and no Pod with it is known: that Node judges for it", own.ip,
			own.Node)
		return s
	case own.facts == nil && a.tables.policies.IsUnknownPod(own.ip):
		s.Reason = fmt.Sprintf("%s is in a podCIDR of Node %s, and no Pod with it is known: that Node judges for it", own.ip,
			own.Node)
		return s
	case own.facts == nil:
		s.Reason = fmt.Sprintf("%s is no Pod of this cluster: no policy judges for it", own.ip)
		return s
	}
	s.Pod, s.Node, s.Here = own.Name, own.Node, own.Node == a.tables.nodeName
	tables := a.tables.policies
	if !s.Here {
		tables = elsewhere()
	}
	h := tables.Why(own.pod, d, c)
	if s.Identity, s.Peer = string(h.Identity), string(h.Peer); h.UnknownPeer {
		s.Peer = api.UnknownPod
	}
	if s.Here {
		s.Number = h.Number
	}
	for _, step := range h.Steps {
		for _, p := range step.Policies {
			s.Policies = append(s.Policies, p.String())
		}
	}
	switch {
	case h.Identity == "":
		s.Allowed = false
		s.Reason = "its labels, or those of its Namespace, are not known yet: where policies could select it nothing is " +
			"allowed"
	case own.ip == other.ip && own.network == other.network:
		s.Reason = "a Pod always reaches itself"
	case d == policy.Ingress && slices.Contains(a.addresses.gatewaysOf(own.Node), other.ip):
		s.Reason = "a Pod's own Node always reaches it, for the kubelet's probes"
	default:
		s.Allowed, s.Reason = h.Allowed, reason(d, h)
		if h.Rule != nil {
			s.Rule = h.Rule.String()
		}
	}
	return s
}

// namespaceOf is the Namespace of "namespace/name".
func namespaceOf(pod string) string {
	namespace, _, _ := strings.Cut(pod, "/")
	return namespace
}

// unknownNumber stands for clients in other clusters whose labels have no number yet.
const unknownNumber = "unknown"

func numberText(clusterSet uint32) string {
	if clusterSet == policy.UnknownClusterSet {
		return unknownNumber
	}
	return strconv.FormatUint(uint64(clusterSet), 10)
}

// reason returns the reason for a verdict in words.
func reason(d policy.Direction, h policy.Half) string {
	switch {
	case h.Unknown:
		return "the client's labels have no number in the ClusterSet yet, and a rule with scope ClusterSet applies to the " +
			"Pod: nothing of it is let in"
	case h.Rule != nil:
		peers, ports := "everybody", "every port"
		if h.Text.Peers != nil {
			peers = strings.Join(h.Text.Peers, " or ")
		}
		if h.Text.Ports != nil {
			ports = strings.Join(h.Text.Ports, ", ")
		}
		word := map[policy.Direction]string{policy.Ingress: "from", policy.Egress: "to"}[d]
		if h.UnknownPeer && h.Action != policy.Allow && h.Action != policy.Pass {
			peers += ", and unknown Pods"
		}
		return fmt.Sprintf("%s of %s: %s %s, %s", h.Action, h.Rule, word, peers, ports)
	case h.Stage == policy.NetworkPolicies:
		return "NetworkPolicies isolate the Pod for " + d.String() + ", and none of their rules allows it"
	}
	for _, step := range h.Steps {
		if len(step.Policies) > 0 {
			return "no rule is about it, and no NetworkPolicy isolates the Pod for " + d.String()
		}
	}
	return "no policy applies to the Pod for " + d.String()
}

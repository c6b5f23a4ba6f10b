// Package externalip gives Services of type LoadBalancer addresses of ExternalIPPools. It runs once in a cluster.
//
// A Service's status is the record of its address: a controller that starts finds every address there. The agents
// decide which Node holds an address (pkg/agent).
//
//	API server: services, externalippools, nodes, servicecidrs ─► assignment ─► steps ─► API server
package externalip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// ConditionAssigned is the condition of a Service that has, or asks for, an address of a pool. The controller owns the
// addresses in the status of a Service that has the condition.
const ConditionAssigned = "tombolo.io/ExternalIPAssigned"

// ConditionUsable is the condition of a pool. It is false if a part of the pool has a fault.
const ConditionUsable = "Usable"

// serviceFacts are the parts of a Service that an assignment depends on.
type serviceFacts struct {
	UID      types.UID
	Created  int64    // seconds since 1970
	Pool     string   // its annotation; "" if it asks for no address
	Shared   bool     // it may share the addresses that it asks for
	Asked    string   // spec.loadBalancerIP: an address, or one of each version of IP, with commas
	Have     string   // the addresses of its status, with commas
	Reported reported // its condition

	Versions [2]version // in the order of spec.ipFamilies
	Prefers  bool       // one of two versions is enough
}

// version is a version of IP, or 0 for no version.
type version int

const (
	ipv4 version = 4
	ipv6 version = 6
)

func (v version) String() string { return fmt.Sprintf("IPv%d", int(v)) }

func versionOf(ip netip.Addr) version {
	if ip.Is4() {
		return ipv4
	}
	return ipv6
}

// reported is a condition without its time. The zero value means no condition.
type reported struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	Generation      int64
}

func conditionIn(list []metav1.Condition, kind string) reported {
	c := meta.FindStatusCondition(list, kind)
	if c == nil {
		return reported{}
	}
	return reported{c.Status, c.Reason, c.Message, c.ObservedGeneration}
}

// serviceFactsOf parses a Service. If the Service neither requests an address nor has one of a pool, it has no row.
func serviceFactsOf(s *corev1.Service) serviceFacts {
	f := serviceFacts{Reported: conditionIn(s.Status.Conditions, ConditionAssigned)}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil {
		f.Pool = s.Annotations[crdv1beta1.AnnotationExternalIPPool]
	}
	if f.Pool == "" && f.Reported == (reported{}) {
		return serviceFacts{}
	}
	f.UID, f.Created = s.UID, s.CreationTimestamp.Unix()
	f.Shared = s.Annotations[crdv1beta1.AnnotationSharedIP] == "true"
	f.Asked = s.Spec.LoadBalancerIP
	var have []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		have = append(have, in.IP)
	}
	f.Have = strings.Join(have, ",")
	f.Versions[0] = ipv4
	for i, v := range s.Spec.IPFamilies[:min(len(s.Spec.IPFamilies), len(f.Versions))] {
		if f.Versions[i] = ipv4; v == corev1.IPv6Protocol {
			f.Versions[i] = ipv6
		}
	}
	f.Prefers = f.Versions[1] != 0 && s.Spec.IPFamilyPolicy != nil &&
		*s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	return f
}

// addresses are addresses by their place in serviceFacts.Versions.
type addresses [2]netip.Addr

// add adds an address to the field of its version of IP. ok is false if the field is set already, or the address is not
// valid.
func (a *addresses) add(f serviceFacts, ip netip.Addr) (ok bool) {
	i := slices.Index(f.Versions[:], versionOf(ip))
	if i < 0 || a[i].IsValid() {
		return false
	}
	a[i] = ip
	return true
}

// String is the addresses as in serviceFacts.Have.
func (a addresses) String() string {
	var out []string
	for _, ip := range a {
		if ip.IsValid() {
			out = append(out, ip.String())
		}
	}
	return strings.Join(out, ",")
}

// had returns the addresses of the Service's status.
func (f serviceFacts) had() (out addresses) {
	for text := range strings.SplitSeq(f.Have, ",") {
		if ip, err := netip.ParseAddr(text); err == nil {
			out.add(f, ip)
		}
	}
	return out
}

// asked returns the addresses that a Service requests, or the reason why no Service can have them.
func (f serviceFacts) asked() (out addresses, why string) {
	if f.Asked == "" {
		return out, ""
	}
	for text := range strings.SplitSeq(f.Asked, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return out, fmt.Sprintf("%q is not an IP address: correct it", text)
		}
		if ip = ip.Unmap(); !out.add(f, ip) {
			return out, fmt.Sprintf("%s is not the only address of %s, or spec.ipFamilies lacks %[2]s: choose one address for "+
				"each of the Service's ipFamilies", ip, versionOf(ip))
		}
	}
	return out, ""
}

// poolFacts are the parts of a pool that an assignment depends on.
type poolFacts struct {
	UID        types.UID
	Generation int64
	Ranges     []netipx.IPRange // that it may give, in order
	Selector   string           // of Nodes, in text form
	Problems   []problem.Problem
	Usage      crdv1beta1.IPPoolUsage
	Reported   reported
	Conditions []metav1.Condition
}

// poolFactsOf parses a pool. It leaves out ranges with a fault.
func poolFactsOf(p *crdv1beta1.ExternalIPPool) poolFacts {
	f := poolFacts{
		UID: p.UID, Generation: p.Generation, Usage: p.Status.Usage, Conditions: p.Status.Conditions,
		Reported: conditionIn(p.Status.Conditions, ConditionUsable),
	}
	report := func(field string, reason reasons.Reason, format string, args ...any) {
		f.Problems = append(f.Problems, problem.Problem{
			Object: problem.Object{Kind: "ExternalIPPool", Name: p.Name}, Field: field, Reason: reason,
			Message: fmt.Sprintf(format, args...),
		})
	}
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	if err != nil {
		report("spec.nodeSelector", reasonInvalidSelector, "%v, so no Node holds the addresses: correct it", err)
	} else {
		f.Selector = selector.String()
	}
	var gateway netip.Addr
	if info := p.Spec.SubnetInfo; info != nil {
		if gateway, err = netip.ParseAddr(info.Gateway); err != nil {
			report("spec.subnetInfo.gateway", reasonInvalidRange, "%q is not an IP address: correct it", info.Gateway)
		}
	}
	for i, r := range p.Spec.IPRanges {
		field := fmt.Sprintf("spec.ipRanges[%d]", i)
		one, why := rangeOf(r)
		switch {
		case why != "":
			report(field, reasonInvalidRange, "%s, so it is left out: correct it", why)
			continue
		case slices.ContainsFunc(f.Ranges, one.Overlaps):
			report(field, reasonInvalidRange, "%s overlaps an earlier range, so it is left out: remove what they share", one)
			continue
		}
		var b netipx.IPSetBuilder
		b.AddRange(one)
		if gateway.IsValid() {
			b.Remove(gateway)
		}
		if set, err := b.IPSet(); err == nil { // its only error is an invalid range
			f.Ranges = append(f.Ranges, set.Ranges()...)
		}
	}
	return f
}

// never are addresses that no Node can have for clients outside.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), family.SwitchRange6, netip.MustParsePrefix("::/127"),
	netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// rangeOf parses a range, or returns what is wrong with it.
func rangeOf(r crdv1beta1.IPRange) (out netipx.IPRange, why string) {
	if r.CIDR != "" {
		p, err := netip.ParsePrefix(r.CIDR)
		if err != nil {
			return out, fmt.Sprintf("%q is not a range of addresses such as 192.0.2.0/24: correct cidr", r.CIDR)
		}
		out = netipx.RangeOfPrefix(p.Masked())
		if p.Bits() < p.Addr().BitLen()-1 { // its first address is not a host's, and the last one of IPv4
			out = netipx.IPRangeFrom(out.From().Next(), out.To())
			if p.Addr().Is4() {
				out = netipx.IPRangeFrom(out.From(), out.To().Prev())
			}
		}
	} else {
		from, err1 := netip.ParseAddr(r.Start)
		to, err2 := netip.ParseAddr(r.End)
		if err1 != nil || err2 != nil {
			return out, fmt.Sprintf("%q to %q are not two IP addresses: correct start and end", r.Start, r.End)
		}
		if out = netipx.IPRangeFrom(from.Unmap(), to.Unmap()); !out.IsValid() {
			return out, fmt.Sprintf("%s to %s are of two families, or not in order: correct start and end", from, to)
		}
	}
	for _, p := range never {
		if out.Overlaps(netipx.RangeOfPrefix(p)) {
			return out, fmt.Sprintf("%s has addresses of %s, which no Node can have: choose others", out, p)
		}
	}
	return out, ""
}

// nodeFacts are the parts of a Node that an assignment depends on.
type nodeFacts struct {
	Labels   string         // in normal form
	Taken    []netip.Prefix // its addresses, and its podCIDRs
	Versions []version      // of its podCIDRs
}

func nodeFactsOf(n *corev1.Node) nodeFacts {
	f := nodeFacts{Labels: labels.Set(n.Labels).String()}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			f.Taken = append(f.Taken, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			f.Taken = append(f.Taken, p.Masked())
			f.Versions = append(f.Versions, versionOf(p.Addr()))
		}
	}
	return f
}

// takenByServices are the ranges of ClusterIPs.
func takenByServices(c *networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

package gateways

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Info has the ClusterInfo that this cluster exports.
type Info struct {
	base     *membership.Tables
	gateways *Tables
	reached  func(*derive.Reader) []string // returns the IDs of the clusters that this one reaches

	Exports *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]
	ByName  *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport]
}

// NewInfo adds the table of the ClusterInfo that this cluster exports.
func NewInfo(k *writes.Kinds, gateways *Tables, reached func(*derive.Reader) []string) *Info {
	t := &Info{base: gateways.base, gateways: gateways, reached: reached}
	t.Exports = derive.NewTable(k.Engine, "own-clusterinfo", t.ownInfoOf, derive.KeysOf(t.base.Environment))
	t.ByName = derive.NewIndex(t.Exports, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{derive.ObjectOf(re)}
	})
	return t
}

// ownInfoOf returns the ResourceExport with the facts by which other clusters reach this one. Without a Gateway it
// returns nil.
func (t *Info) ownInfoOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.ID == "" {
		return nil, nil
	}
	name := m.ID + multicluster.ClusterInfoSuffix
	ps := t.ownInfoVerdict(m, derive.Object{Namespace: m.Common, Name: name}, r)
	gateways, _ := derive.Get(r, t.gateways.Active, membership.Here)
	if len(gateways) == 0 || gateways[0].ServiceCIDR == "" {
		return nil, ps
	}
	ipv6 := t.gateways.CarriesIPv6(r)
	info := &mcv1alpha1.ClusterInfo{
		ClusterID:   m.ID,
		ServiceCIDR: gateways[0].ServiceCIDR,
		PodCIDRs:    podCIDRs(t.base.Config.PodCIDRs, ipv6),
		Features:    []string{mcv1alpha1.FeatureActiveGateways},
	}
	if own, _ := derive.Get(r, t.base.Own, membership.Here); len(own.Services) > 0 {
		ranges := own.Announced(ipv6)
		if len(ranges) == 0 {
			return nil, ps
		}
		info.ServiceCIDR = ranges[0].String()
		for _, p := range ranges {
			if len(ranges) > 1 {
				info.ServiceCIDRs = append(info.ServiceCIDRs, p.String())
			}
		}
	}
	if t.gateways.keepsClients(gateways, r) {
		info.Features = append(info.Features, mcv1alpha1.FeaturePreserveClientIP)
	}
	if t.allReport(gateways, r, func(a membership.AgentReport) bool { return a.SingleWays }) {
		info.Features = append(info.Features, mcv1alpha1.FeatureSingleWays)
	}
	if t.allReport(gateways, r, func(a membership.AgentReport) bool { return a.Echoes }) {
		info.Features = append(info.Features, mcv1alpha1.FeatureWayEcho)
	}
	tunnel, known := t.tunnelOf(gateways, r, (*problem.List)(&ps))
	if tunnel != "" {
		info.Features = append(info.Features, tunnel)
	}
	if known {
		t.tunnelMismatch(tunnel, r, (*problem.List)(&ps))
	}
	haves := make([]*mcv1alpha1.Gateway, len(gateways))
	inside := false // as for the agents (package peering): a Gateway in use has an inside address
	for i, g := range gateways {
		haves[i], _ = derive.Get(r, t.gateways.Gateways, derive.ObjectOf(g))
		inside = inside || phaseOf(g) == "" && hasInside(haves[i])
	}
	for i, g := range gateways {
		gatewayInfo := mcv1alpha1.GatewayInfo{GatewayIP: g.GatewayIP}
		// The agent on the Gateway's Node writes the key, and a moment later the address inside WireGuard. Both are announced
		// together. Otherwise other clusters would begin with another address, and connections through it would break. Agents
		// without inside addresses have no next port.
		key := haves[i] != nil && haves[i].WireGuard != nil && (inside || haves[i].WireGuard.NextPort == 0)
		if inside {
			if !hasInside(haves[i]) {
				continue // until its agent has announced its key
			}
			gatewayInfo.WireGuard = haves[i].WireGuard.DeepCopy()
		}
		if key && len(info.GatewayInfos)+len(info.LeavingGateways) == 0 {
			info.WireGuard = haves[i].WireGuard.DeepCopy() // for clusters that support one key, and use the first gateway
			info.WireGuard.InsideIP = ""
		}
		if phaseOf(g) == multicluster.PhaseLeft {
			info.LeavingGateways = append(info.LeavingGateways, gatewayInfo)
			continue
		}
		info.GatewayInfos = append(info.GatewayInfos, gatewayInfo)
	}
	var annotations map[string]string
	if text := requests.ReachedText(t.reached(r)); text != "" {
		annotations = map[string]string{multicluster.AnnotationReached: text}
	}
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   m.Common,
			Name:        name,
			Annotations: annotations,
			Labels: map[string]string{
				multicluster.LabelSourceKind:      multicluster.ClusterInfoKind,
				multicluster.LabelSourceClusterID: m.ID,
			},
			Finalizers: []string{multicluster.ResourceExportFinalizer},
		},
		Spec: mcv1alpha1.ResourceExportSpec{
			ClusterID: m.ID, Kind: multicluster.ClusterInfoKind, Namespace: t.base.Namespace, Name: m.ID, ClusterInfo: info,
		},
	}, ps
}

// podCIDRs returns the ranges of Pods to announce.
func podCIDRs(ranges []string, ipv6 bool) (out []string) {
	for _, text := range ranges {
		if p, err := netip.ParsePrefix(text); ipv6 || err != nil || p.Addr().Is4() {
			out = append(out, text)
		}
	}
	return out
}

// allReport reports whether the agents of all Gateways report an ability. A Gateway without a report does not count.
func (t *Info) allReport(gateways []*mcv1alpha1.Gateway, r *derive.Reader,
	able func(membership.AgentReport) bool) bool {
	some, all := false, true
	for _, g := range gateways {
		if report, ok := derive.Get(r, t.base.Reports, derive.Object{Name: g.Name}); ok {
			some, all = true, all && able(report)
		}
	}
	return some && all
}

// tunnelOf returns the feature that names the tunnel type of this cluster's first Gateway. Clusters that use one
// Gateway of several use the first. known is false until its agent has reported.
func (t *Info) tunnelOf(gateways []*mcv1alpha1.Gateway, r *derive.Reader,
	ps *problem.List) (feature string, known bool) {
	for i, g := range gateways {
		report, ok := derive.Get(r, t.base.Reports, derive.Object{Name: g.Name})
		switch {
		case i == 0:
			feature, known = report.Tunnel, ok
		case known && ok && report.Tunnel != feature:
			ps.Add(problem.About("Node", "", g.Name), "", reasonTunnelMismatch, fmt.Sprintf(
				"tunnels of this Gateway are %s, and tunnels of Gateway %s are %s: set tunnelType and "+
					"tunnelPort in antrea-agent.conf "+
					"to the same on all Nodes, and start the agents again",
				mcv1alpha1.TunnelName(report.Tunnel), gateways[0].Name, mcv1alpha1.TunnelName(feature)))
		}
	}
	return feature, known
}

// tunnelMismatch reports clusters with other tunnel types, by the same rule as agents (pkg/multicluster/peering).
func (t *Info) tunnelMismatch(own string, r *derive.Reader, ps *problem.List) {
	for _, ci := range derive.Values(derive.All(r, t.gateways.clusterInfoImports)) {
		theirs := mcv1alpha1.TunnelOf(ci.Spec.Features)
		if theirs != own && slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureActiveGateways) {
			ps.Add(problem.About("ClusterInfoImport", ci.Namespace, ci.Name), "spec.features", reasonTunnelMismatch, fmt.Sprintf(
				"packets do not pass between this cluster and %s: tunnels there are %s, here %s: set tunnelType and "+
					"tunnelPort in antrea-agent.conf to the same in both clusters",
				ci.Spec.ClusterID, mcv1alpha1.TunnelName(theirs), mcv1alpha1.TunnelName(own)))
		}
	}
}

// ownInfoVerdict reports the leader's verdict on this cluster's ClusterInfo.
func (t *Info) ownInfoVerdict(m membership.Membership, name derive.Object, r *derive.Reader) []problem.Problem {
	var ps problem.List
	re, ok := derive.Get(r, t.base.ResourceExports, name)
	if !ok || re.Spec.Kind != multicluster.ClusterInfoKind || !re.DeletionTimestamp.IsZero() {
		return nil
	}
	for _, c := range re.Status.Conditions {
		if membership.Refuses(c) {
			ps.Add(m.ClusterSet(), "", membership.ReasonOf(c), fmt.Sprintf(
				"the leader refuses ResourceExport %s/%s, by which other clusters reach this one: %s", re.Namespace,
				re.Name, c.Message))
		}
	}
	return ps
}

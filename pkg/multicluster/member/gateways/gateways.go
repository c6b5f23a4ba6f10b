// Package gateways decides which Nodes are this cluster's Gateways, the phase of each, and the ClusterInfo that this
// cluster exports.
package gateways

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Tables has this cluster's Gateways.
type Tables struct {
	base               *membership.Tables
	clusterInfoImports derive.Readable[derive.Object, *mcv1alpha1.ClusterInfoImport]

	Gateways   *derive.Source[derive.Object, *mcv1alpha1.Gateway]
	PhasesOver *derive.Source[derive.Object, string] // of Gateways, as phaseClock has them

	Status    *derive.Table[derive.Object, []mcv1alpha1.WayStatus]
	Announced *derive.Table[derive.Name, *mcv1alpha1.ClusterInfo] // of this cluster, as the leader hands it to others
	Active    *derive.Table[derive.Name, []*mcv1alpha1.Gateway]   // the oldest first
	byName    *derive.Index[derive.Object, derive.Name, []*mcv1alpha1.Gateway]
	ipv6      *derive.Table[derive.Name, bool]
}

// New adds the tables of Gateways.
func New(k *writes.Kinds, base *membership.Tables,
	clusterInfoImports derive.Readable[derive.Object, *mcv1alpha1.ClusterInfoImport]) *Tables {
	t := &Tables{base: base, clusterInfoImports: clusterInfoImports}
	t.Gateways = writes.NewSource(k, k.Cluster, "Gateway", "gateways", gatewayFacts, writes.Version,
		watch.In(base.Namespace))
	t.PhasesOver = derive.NewSource[derive.Object, string](k.Engine, "phases that are over")
	t.PhasesOver.Loaded()
	once := derive.KeysOf(base.Environment)
	t.Status = derive.NewTable(k.Engine, "gateway-status", t.waysOf, derive.KeysOf(t.Gateways))
	t.Announced = derive.NewTable(k.Engine, "announced", t.announcedOf, once)
	t.Active = derive.NewTable(k.Engine, "active-gateways", t.gatewaysOf, once)
	t.byName = derive.NewIndex(t.Active, "name", func(_ derive.Name, list []*mcv1alpha1.Gateway) []derive.Object {
		return derive.ObjectsOf(list)
	})
	t.ipv6 = derive.NewTable(k.Engine, "ipv6-between-clusters", t.ipv6Of, once)
	return t
}

func (t *Tables) Writes(k *writes.Kinds) *writes.Table {
	return k.Table("write-gateways", t.writeGateway, derive.KeysOf(t.Gateways), derive.KeysOfIndex(t.byName))
}

func gatewayFacts(o *mcv1alpha1.Gateway) *mcv1alpha1.Gateway {
	m := writes.MetaFacts(o, multicluster.AnnotationKeptPods, multicluster.AnnotationPhase,
		multicluster.AnnotationInsideIP)
	m.CreationTimestamp = o.CreationTimestamp
	return &mcv1alpha1.Gateway{ObjectMeta: m, GatewayIP: o.GatewayIP, InternalIP: o.InternalIP,
		ServiceCIDR: o.ServiceCIDR, WireGuard: o.WireGuard, Status: o.Status}
}

// gatewaysOf returns the Gateways: every Ready Node with the gateway annotation and usable addresses. The oldest comes
// first, so that a cluster that uses only one Gateway keeps using the same one. New ones follow, by name. The present
// Gateways have addresses of one version of IP. While no candidate with that version is Ready, they all stay, since a
// Node that the control plane does not reach may still forward packets.
func (t *Tables) gatewaysOf(_ derive.Name, r *derive.Reader) ([]*mcv1alpha1.Gateway, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if m.ID == "" {
		return nil, nil
	}
	env, _ := derive.Get(r, t.base.Environment, membership.Here)
	present := map[string]*mcv1alpha1.Gateway{} // by name
	for _, g := range derive.Values(derive.All(r, t.Gateways)) {
		if g.Namespace == t.base.Namespace {
			present[g.Name] = g
		}
	}
	nodes := derive.Values(derive.All(r, t.base.Nodes))
	var ps problem.List
	keeps := oldestUnchanged(t.candidates(nodes, new(problem.List), func(*corev1.Node) bool { return true }), present)
	candidates := sameVersion(t.candidates(nodes, &ps, membership.NodeReady), keeps, &ps)
	ready := len(candidates) > 0
	if !ready {
		stays := func(node *corev1.Node) bool { return !membership.NodeReady(node) && present[node.Name] != nil }
		candidates = sameVersion(t.candidates(nodes, &ps, stays), keeps, &ps)
		for _, g := range candidates {
			ps.Add(problem.About("Node", "", g.Name), "status.conditions", reasonGatewayNotReady,
				"the Node is not Ready and stays a Gateway, since no other Node with the annotation "+
					multicluster.AnnotationGateway+" and an address of its version of IP is Ready: annotate another Node to "+
					"have it take over")
		}
	}
	slices.SortStableFunc(candidates, func(a, b *mcv1alpha1.Gateway) int {
		return byAge(present[a.Name], present[b.Name])
	})
	candidates = distinct(candidates, &ps)
	if most := t.base.Config.ActiveGateways; most > 0 && most < len(candidates) {
		candidates = candidates[:most]
	}
	going := t.going(nodes, candidates, present)
	if len(candidates) == 0 {
		if !slices.ContainsFunc(nodes, wantsGateway) || len(going) == 0 {
			return nil, ps
		}
		for _, g := range going { // the Gateway that should take over cannot
			ps.Add(problem.About("Node", "", g.Name), "metadata.annotations["+multicluster.AnnotationGateway+"]",
				reasonGatewayNotReady,
				"the Node has no annotation any more and stays a Gateway, since no Node with the "+
					"annotation "+multicluster.AnnotationGateway+" is Ready and has a usable address: repair one of these "+
					"Nodes, or remove the annotation from all Nodes to have no Gateway")
		}
	}
	if env.ServiceCIDR == "" {
		ps.Add(m.ClusterSet(), "", reasonServiceCIDRUnknown,
			"this cluster's Service range could not be discovered; set serviceCIDR in the controller's "+
				"configuration: "+env.ServiceCIDRError)
	}
	candidates = t.phased(candidates, going, present, ready, r, &ps)
	kept, known := t.keptPods(m, candidates, r)
	for _, g := range candidates {
		if !known { // also for a Gateway that is added in between
			kept = keptBefore(g.Name, present)
		}
		if kept != "" {
			metav1.SetMetaDataAnnotation(&g.ObjectMeta, multicluster.AnnotationKeptPods, kept)
		}
		g.ServiceCIDR = env.ServiceCIDR
		have := present[g.Name]
		if have != nil && env.ServiceCIDR == "" {
			g.ServiceCIDR = have.ServiceCIDR
		}
		if have != nil && have.WireGuard != nil { // its agent announces this address, then the leader does
			if ip, err := claims.Address(g.GatewayIP); err == nil {
				metav1.SetMetaDataAnnotation(&g.ObjectMeta, multicluster.AnnotationInsideIP, claims.InsideOf(ip).String())
			}
		}
	}
	return candidates, ps
}

// keptBefore returns the ranges in the existing annotation of a Gateway. For a new Gateway, it returns the ranges in
// the annotations of the other Gateways.
func keptBefore(name string, present map[string]*mcv1alpha1.Gateway) (kept string) {
	if g := present[name]; g != nil {
		return g.Annotations[multicluster.AnnotationKeptPods]
	}
	for _, g := range present {
		if phaseOf(g) == "" {
			kept = max(kept, g.Annotations[multicluster.AnnotationKeptPods])
		}
	}
	return kept
}

// byAge compares Gateways by age. A Gateway that does not exist yet is nil. New Gateways, and Gateways that are being
// deleted, have no age and come last.
func byAge(a, b *mcv1alpha1.Gateway) int {
	there := func(g *mcv1alpha1.Gateway) bool { return g != nil && g.DeletionTimestamp.IsZero() }
	switch {
	case there(a) && there(b):
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	case there(a):
		return -1
	case there(b):
		return 1
	}
	return 0
}

// oldestUnchanged considers the existing Gateways whose address still has the same version of IP, and returns the
// candidate for the oldest one, or nil. The existing tunnels of other clusters have this version.
func oldestUnchanged(candidates []*mcv1alpha1.Gateway, present map[string]*mcv1alpha1.Gateway) (
	oldest *mcv1alpha1.Gateway) {
	for _, g := range candidates {
		have := present[g.Name]
		if have == nil || !have.DeletionTimestamp.IsZero() || have.GatewayIP == "" || version(have) != version(g) {
			continue
		}
		if oldest == nil || byAge(have, present[oldest.Name]) < 0 {
			oldest = g
		}
	}
	return oldest
}

// sameVersion leaves out Gateways whose address has another version of IP than the address of keeps, since agents use
// one version. If keeps is nil, the version is IPv4 if a candidate has an address of it.
func sameVersion(candidates []*mcv1alpha1.Gateway, keeps *mcv1alpha1.Gateway, ps *problem.List) (
	out []*mcv1alpha1.Gateway) {
	if keeps == nil && len(candidates) > 0 {
		keeps = slices.MinFunc(candidates, func(a, b *mcv1alpha1.Gateway) int { return version(a) - version(b) })
	}
	for _, g := range candidates {
		if version(g) == version(keeps) {
			out = append(out, g)
			continue
		}
		ps.Add(problem.About("Node", "", g.Name), "metadata.annotations["+multicluster.AnnotationGatewayIP+"]",
			reasonFamiliesDiffer, fmt.Sprintf("the Node is no Gateway: other clusters would reach it by %s, and they reach "+
				"Gateway %s by %s; set the annotation to an address of the same version of IP at both Nodes", g.GatewayIP,
				keeps.Name, keeps.GatewayIP))
	}
	return out
}

// distinct leaves out Gateways that have the address of another one, since other clusters cannot distinguish them. It
// also leaves out Gateways beyond the largest number that a cluster may have.
func distinct(candidates []*mcv1alpha1.Gateway, ps *problem.List) (out []*mcv1alpha1.Gateway) {
	for _, g := range candidates {
		i := slices.IndexFunc(out, func(o *mcv1alpha1.Gateway) bool { return o.GatewayIP == g.GatewayIP })
		switch about := problem.About("Node", "", g.Name); {
		case i >= 0:
			ps.Add(about, "metadata.annotations["+multicluster.AnnotationGatewayIP+"]", reasonGatewayIP, fmt.Sprintf(
				"the Node cannot be a Gateway: other clusters reach Gateway %s by %s already; give each Gateway an "+
					"address of its own", out[i].Name, g.GatewayIP))
		case len(out) == claims.MaxGateways:
			ps.Add(about, "metadata.annotations["+multicluster.AnnotationGateway+"]", reasonTooManyGateways, fmt.Sprintf(
				"the Node is no Gateway: there are %d already, and a cluster may have no more; remove the annotation "+
					"here or from another Node", claims.MaxGateways))
		default:
			out = append(out, g)
		}
	}
	return out
}

// version returns the version of IP in which other clusters reach a Gateway.
func version(g *mcv1alpha1.Gateway) int {
	if ip, err := netip.ParseAddr(g.GatewayIP); err == nil && ip.Is6() {
		return 6
	}
	return 4
}

// candidates returns a Gateway for each selected Node that can be one, in the order of their names.
func (t *Tables) candidates(nodes []*corev1.Node, ps *problem.List,
	selected func(*corev1.Node) bool) []*mcv1alpha1.Gateway {
	var out []*mcv1alpha1.Gateway
	for _, node := range nodes {
		if !wantsGateway(node) || !selected(node) {
			continue
		}
		if g := t.candidate(node, ps); g != nil {
			out = append(out, g)
		}
	}
	return out
}

// wantsGateway reports whether a Node is to be a Gateway, if it can.
func wantsGateway(node *corev1.Node) bool {
	_, ok := node.Annotations[multicluster.AnnotationGateway]
	return ok && node.DeletionTimestamp.IsZero()
}

// candidate is the Gateway a Node would be, or nil if it has no usable address for it.
func (t *Tables) candidate(node *corev1.Node, ps *problem.List) *mcv1alpha1.Gateway {
	name := problem.About("Node", "", node.Name)
	internal := nodeAddress(node, corev1.NodeInternalIP)
	if internal == "" {
		ps.Add(name, "status.addresses", reasonGatewayIP,
			"the Node cannot be a Gateway: it has no InternalIP that a tunnel can end at: give it one")
		return nil
	}
	gateway := internal
	if t.base.Config.GatewayIPPrecedence == config.PrecedencePublic ||
		t.base.Config.GatewayIPPrecedence == config.PrecedenceExternal {
		gateway = nodeAddress(node, corev1.NodeExternalIP)
	}
	if text, ok := node.Annotations[multicluster.AnnotationGatewayIP]; ok {
		ip, ok := tunnelEnd(text)
		if !ok {
			ps.Add(name, "metadata.annotations["+multicluster.AnnotationGatewayIP+"]", reasonGatewayIP, fmt.Sprintf(
				"the Node cannot be a Gateway: %q is not an address that other clusters can reach; correct or remove the "+
					"annotation", text))
			return nil
		}
		gateway = ip.String()
	}
	if gateway == "" {
		ps.Add(name, "status.addresses", reasonGatewayIP, fmt.Sprintf(
			"the Node cannot be a Gateway: gatewayIPPrecedence is %s but it has no ExternalIP that a tunnel can end at; set "+
				"the annotation %s to the address other clusters reach it by",
			t.base.Config.GatewayIPPrecedence, multicluster.AnnotationGatewayIP))
		return nil
	}
	return &mcv1alpha1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.base.Namespace, Name: node.Name},
		GatewayIP:  gateway,
		InternalIP: internal,
	}
}

// tunnelEnd reads an address that may be announced as the end of a tunnel. Agents of other clusters refuse addresses
// that no Node can have.
func tunnelEnd(text string) (netip.Addr, bool) {
	ip, err := claims.Address(text)
	return ip, err == nil && ip.IsGlobalUnicast()
}

// nodeAddress returns an address of a kind, or an empty text. It is the first one of IPv4, else the first one of IPv6,
// as agents choose the ends of tunnels between Nodes.
func nodeAddress(node *corev1.Node, kind corev1.NodeAddressType) string {
	var first6 string
	for _, a := range node.Status.Addresses {
		switch ip, ok := tunnelEnd(a.Address); {
		case a.Type != kind || !ok:
		case ip.Is4():
			return ip.String()
		case first6 == "":
			first6 = ip.String()
		}
	}
	return first6
}

// keepsClients reports whether packets between Pods of this cluster and of others may keep their addresses.
func (t *Tables) keepsClients(gateways []*mcv1alpha1.Gateway, r *derive.Reader) bool {
	return len(t.base.Config.PodCIDRs) > 0 &&
		t.lacks(gateways, r, func(report membership.AgentReport) bool { return report.KeepsClients }) == ""
}

// lacks returns the first Node whose agent does not report an ability, or "". The agents of all Gateways have to report
// the ability, and so do all other agents with a report. A Node without a report has no agent, or an agent that has not
// started yet.
func (t *Tables) lacks(gateways []*mcv1alpha1.Gateway, r *derive.Reader,
	ability func(membership.AgentReport) bool) (node string) {
	for _, g := range gateways {
		report, ok := derive.Get(r, t.base.Reports, derive.Object{Name: g.Name})
		if !ok && phaseOf(g) == multicluster.PhaseJoining {
			continue // no Node sends through it yet
		}
		if !ability(report) {
			return g.Name
		}
	}
	for _, row := range derive.All(r, t.base.Reports) {
		if !ability(row.Value) {
			return row.Key.Name
		}
	}
	return ""
}

// ipv6Of decides whether this cluster has IPv6 between clusters. Otherwise packets from Nodes whose agents have no
// routes to other clusters' ranges of IPv6 would leave them in plain text, or be dropped.
func (t *Tables) ipv6Of(_ derive.Name, r *derive.Reader) (bool, []problem.Problem) {
	gateways, _ := derive.Get(r, t.Active, membership.Here)
	node := t.lacks(gateways, r, func(report membership.AgentReport) bool { return report.CarriesIPv6 })
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	has := slices.ContainsFunc(slices.Concat(own.Services, exportcheck.Prefixes(t.base.Config.PodCIDRs)),
		func(p netip.Prefix) bool { return p.Addr().Is6() })
	if node == "" || m.ID == "" || !has {
		return node == "", nil
	}
	var ps problem.List
	ps.Add(problem.About("Node", "", node), "", reasonIPv6NotCarried,
		"this cluster announces, exports and imports no IPv6, since the agent of this Node does not report that it carries "+
			"IPv6 between clusters: upgrade the agent, give the Node a range of IPv6 in spec.podCIDRs, and see "+
			"`tombolo get status` there for why its Pods have no IPv6")
	return false, ps
}

// CarriesIPv6 reports whether this cluster has IPv6 between clusters.
func (t *Tables) CarriesIPv6(r *derive.Reader) bool {
	carries, _ := derive.Get(r, t.ipv6, membership.Here)
	return carries
}

// keptPods returns the ranges of this cluster's Pods that the leader passes on together with the feature, for the
// annotation of the Gateways. Before that, agents may not assume that other clusters have the ranges. The second result
// is false while the leader has not been read. Then the ranges stay as they are.
func (t *Tables) keptPods(m membership.Membership, gateways []*mcv1alpha1.Gateway,
	r *derive.Reader) (ranges string, known bool) {
	switch {
	case !t.keepsClients(gateways, r):
		return "", true
	case !m.Joined:
		return "", false
	}
	info, _ := derive.Get(r, t.Announced, membership.Here)
	if info == nil || !slices.Contains(info.Features, mcv1alpha1.FeaturePreserveClientIP) {
		return "", true
	}
	own := slices.DeleteFunc(slices.Clone(info.PodCIDRs),
		func(text string) bool { return !slices.Contains(t.base.Config.PodCIDRs, text) })
	return strings.Join(own, ","), true
}

// waysOf returns the ways of a Gateway from its agent's report. It omits ways to clusters without a ClusterInfoImport.
func (t *Tables) waysOf(k derive.Object, r *derive.Reader) ([]mcv1alpha1.WayStatus, []problem.Problem) {
	report, _ := derive.Get(r, t.base.Reports, derive.Object{Name: k.Name})
	if k.Namespace != t.base.Namespace || len(report.Ways) == 0 {
		return nil, nil
	}
	known := map[string]bool{}
	for _, ci := range derive.Values(derive.All(r, t.clusterInfoImports)) {
		known[ci.Spec.ClusterID] = true
	}
	node, _ := derive.Get(r, t.base.Nodes, derive.Object{Name: k.Name})
	var out []mcv1alpha1.WayStatus
	for key, state := range report.Ways {
		i := strings.LastIndexByte(key, '/')
		if i < 0 || !known[key[:i]] {
			continue
		}
		if _, err := netip.ParseAddr(key[i+1:]); err != nil {
			continue
		}
		w := mcv1alpha1.WayStatus{ClusterID: key[:i], To: key[i+1:], State: mcv1alpha1.WayDown}
		switch {
		case node == nil || !membership.NodeReady(node):
			w.State = mcv1alpha1.WayUnknown
		case state == "up":
			w.State = mcv1alpha1.WayUp
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b mcv1alpha1.WayStatus) int {
		return cmp.Or(strings.Compare(a.ClusterID, b.ClusterID), strings.Compare(a.To, b.To))
	})
	return out, nil
}

func (t *Tables) writeGateway(k derive.Object, r *derive.Reader) *writes.Write {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if !m.Leave && m.ID == "" {
		return nil
	}
	have, _ := derive.Get(r, t.Gateways, k)
	var want *mcv1alpha1.Gateway
	for _, row := range derive.List(r, t.byName, k) {
		want = writes.Named(row.Value, k)
	}
	w := writes.Diff[*mcv1alpha1.Gateway]{Kind: "Gateway", Merge: mergeGateway}.Between(have, want, t.base.About(m))
	if w != nil || have == nil || want == nil || !have.DeletionTimestamp.IsZero() {
		return w
	}
	ways, _ := derive.Get(r, t.Status, k)
	if slices.Equal(have.Status.Ways, ways) {
		return nil
	}
	merged := have.DeepCopy()
	merged.Status.Ways = ways
	return &writes.Write{Verb: writes.UpdateStatus, Kind: "Gateway", Have: have, Object: merged,
		About: problem.About("Gateway", k.Namespace, k.Name)}
}

func mergeGateway(into, want *mcv1alpha1.Gateway) {
	into.GatewayIP, into.InternalIP, into.ServiceCIDR = want.GatewayIP, want.InternalIP, want.ServiceCIDR
	writes.MergeAnnotation(into, want, multicluster.AnnotationKeptPods)
	writes.MergeAnnotation(into, want, multicluster.AnnotationPhase)
	writes.MergeAnnotation(into, want, multicluster.AnnotationInsideIP)
}

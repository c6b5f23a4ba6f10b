package member

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// gatewayTables are this cluster's Gateways.
type gatewayTables struct {
	base               *membershipTables
	clusterInfoImports derive.Readable[derive.Object, *mcv1alpha1.ClusterInfoImport]

	gateways   *derive.Source[derive.Object, *mcv1alpha1.Gateway]
	phasesOver *derive.Source[derive.Object, string] // of Gateways, as phaseClock has them

	status    *derive.Table[derive.Object, []mcv1alpha1.WayStatus]
	announced *derive.Table[derive.Name, *mcv1alpha1.ClusterInfo] // of this cluster, as the leader hands it to others
	active    *derive.Table[derive.Name, []*mcv1alpha1.Gateway]   // the oldest first
	byName    *derive.Index[derive.Object, derive.Name, []*mcv1alpha1.Gateway]
}

func newGatewayTables(k *kinds, base *membershipTables,
	clusterInfoImports derive.Readable[derive.Object, *mcv1alpha1.ClusterInfoImport]) *gatewayTables {
	t := &gatewayTables{base: base, clusterInfoImports: clusterInfoImports}
	t.gateways = writtenKind(k, k.cluster, "Gateway", "gateways", gatewayFacts, version, watch.In(base.namespace))
	t.phasesOver = derive.NewSource[derive.Object, string](k.Engine, "phases that are over")
	t.phasesOver.Loaded()
	once := derive.KeysOf(base.environment)
	t.status = derive.NewTable(k.Engine, "gateway-status", t.waysOf, derive.KeysOf(t.gateways))
	t.announced = derive.NewTable(k.Engine, "announced", t.announcedOf, once)
	t.active = derive.NewTable(k.Engine, "active-gateways", t.gatewaysOf, once)
	t.byName = derive.NewIndex(t.active, "name", func(_ derive.Name, list []*mcv1alpha1.Gateway) []derive.Object {
		return keysOf(list)
	})
	return t
}

func (t *gatewayTables) writes(k *kinds) *writeTable {
	return k.table("write-gateways", t.writeGateway, derive.KeysOf(t.gateways), derive.KeysOfIndex(t.byName))
}

// infoTables are the ClusterInfo that this cluster exports.
type infoTables struct {
	base     *membershipTables
	gateways *gatewayTables
	reached  func(*derive.Reader) []string // returns the IDs of the clusters that this one reaches

	exports *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]
	byName  *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport]
}

func newInfoTables(k *kinds, gateways *gatewayTables, reached func(*derive.Reader) []string) *infoTables {
	t := &infoTables{base: gateways.base, gateways: gateways, reached: reached}
	t.exports = derive.NewTable(k.Engine, "own-clusterinfo", t.ownInfoOf, derive.KeysOf(t.base.environment))
	t.byName = derive.NewIndex(t.exports, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{keyOf(re)}
	})
	return t
}

const (
	reasonGatewayIP          = "GatewayIPUnusable"
	reasonTooManyGateways    = "TooManyGateways"
	reasonGatewayNotReady    = "GatewayNodeNotReady"
	reasonGatewayWithoutKey  = "GatewayWithoutKey"
	reasonServiceCIDRUnknown = "ServiceCIDRUnknown"
	reasonTunnelMismatch     = "TunnelTypeMismatch"
)

// gatewaysOf are the Gateways: every Ready Node with the gateway annotation and usable addresses. The oldest comes first, so
// that a cluster that takes one gateway of several keeps it; those that are not there yet follow by name.
// While no candidate is Ready the present ones stay: that the control plane does not hear from
// a Node says nothing about its traffic, and without a Gateway there would be none.
func (t *gatewayTables) gatewaysOf(_ derive.Name, r *derive.Reader) ([]*mcv1alpha1.Gateway, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	if m.ID == "" {
		return nil, nil
	}
	env, _ := derive.Get(r, t.base.environment, here)
	present := map[string]*mcv1alpha1.Gateway{} // by name
	for _, g := range values(derive.All(r, t.gateways)) {
		if g.Namespace == t.base.namespace {
			present[g.Name] = g
		}
	}
	nodes := values(derive.All(r, t.base.nodes))
	var ps faults
	candidates := t.candidates(nodes, &ps, nodeReady)
	ready := len(candidates) > 0
	if !ready {
		candidates = t.candidates(nodes, &ps, func(node *corev1.Node) bool { return present[node.Name] != nil })
		for _, g := range candidates {
			ps.add(object("Node", "", g.Name), "status.conditions", reasonGatewayNotReady,
				"the Node is not Ready and stays a Gateway, since no other Node with the annotation "+multicluster.AnnotationGateway+" is Ready: annotate another Node to have it take over")
		}
	}
	slices.SortStableFunc(candidates, func(a, b *mcv1alpha1.Gateway) int { return byAge(present[a.Name], present[b.Name]) })
	candidates = distinct(candidates, &ps)
	if most := t.base.config.ActiveGateways; most > 0 && most < len(candidates) {
		candidates = candidates[:most]
	}
	going := t.going(nodes, candidates, present)
	if len(candidates) == 0 {
		if !slices.ContainsFunc(nodes, wantsGateway) || len(going) == 0 {
			return nil, ps
		}
		for _, g := range going { // what is to take over cannot
			ps.add(object("Node", "", g.Name), "metadata.annotations["+multicluster.AnnotationGateway+"]", reasonGatewayNotReady,
				"the Node has no annotation any more and stays a Gateway, since of the Nodes with the annotation "+multicluster.AnnotationGateway+" none is Ready and has a usable address: see to one of these, or remove the annotation from all Nodes to have no Gateway")
		}
	}
	if env.ServiceCIDR == "" {
		ps.add(m.set(), "", reasonServiceCIDRUnknown,
			"this cluster's Service range could not be discovered; set serviceCIDR in the controller's configuration: "+env.ServiceCIDRError)
	}
	candidates = t.phased(candidates, going, present, ready, r, &ps)
	kept, known := t.keptPods(m, candidates, r)
	for _, g := range candidates {
		if !known { // also for one that comes meanwhile
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
		if have != nil && have.WireGuard != nil { // its agent announces this address, and then other clusters are told of it
			if ip, err := claims.Address(g.GatewayIP); err == nil && peering.InsideOf(ip).IsValid() {
				metav1.SetMetaDataAnnotation(&g.ObjectMeta, multicluster.AnnotationInsideIP, peering.InsideOf(ip).String())
			}
		}
	}
	return candidates, ps
}

// keptBefore are the ranges that a Gateway has had, or that others have where there is none of the name.
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

// byAge compares Gateways that are there, or nil for those that are not: these, and those that are being deleted, have no age
// yet and come last.
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

// distinct leaves out Gateways with the address of another, which other clusters could not tell apart, and those beyond the most
// that a cluster may have.
func distinct(candidates []*mcv1alpha1.Gateway, ps *faults) (out []*mcv1alpha1.Gateway) {
	for _, g := range candidates {
		i := slices.IndexFunc(out, func(o *mcv1alpha1.Gateway) bool { return o.GatewayIP == g.GatewayIP })
		switch about := object("Node", "", g.Name); {
		case i >= 0:
			ps.add(about, "metadata.annotations["+multicluster.AnnotationGatewayIP+"]", reasonGatewayIP, fmt.Sprintf(
				"the Node cannot be a Gateway: other clusters reach Gateway %s by %s already; give each Gateway an address of its own", out[i].Name, g.GatewayIP))
		case len(out) == claims.MaxGateways:
			ps.add(about, "metadata.annotations["+multicluster.AnnotationGateway+"]", reasonTooManyGateways, fmt.Sprintf(
				"the Node is no Gateway: there are %d already, and a cluster may have no more; remove the annotation here or from another Node", claims.MaxGateways))
		default:
			out = append(out, g)
		}
	}
	return out
}

// candidates are the Gateways that the Nodes of a selection would be, in the order of their names.
func (t *gatewayTables) candidates(nodes []*corev1.Node, ps *faults,
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

// wantsGateway says whether a Node is to be a Gateway, if it can.
func wantsGateway(node *corev1.Node) bool {
	_, ok := node.Annotations[multicluster.AnnotationGateway]
	return ok && node.DeletionTimestamp.IsZero()
}

// candidate is the Gateway a Node would be, or nil if it has no usable address for it.
func (t *gatewayTables) candidate(node *corev1.Node, ps *faults) *mcv1alpha1.Gateway {
	name := object("Node", "", node.Name)
	internal := nodeAddress(node, corev1.NodeInternalIP)
	if internal == "" {
		ps.add(name, "status.addresses", reasonGatewayIP, "the Node cannot be a Gateway: it has no IPv4 InternalIP")
		return nil
	}
	gateway := internal
	if t.base.config.GatewayIPPrecedence == config.PrecedencePublic ||
		t.base.config.GatewayIPPrecedence == config.PrecedenceExternal {
		gateway = nodeAddress(node, corev1.NodeExternalIP)
	}
	if ip, ok := node.Annotations[multicluster.AnnotationGatewayIP]; ok {
		if !isTunnelEnd(ip) {
			ps.add(name, "metadata.annotations["+multicluster.AnnotationGatewayIP+"]", reasonGatewayIP, fmt.Sprintf(
				"the Node cannot be a Gateway: %q is not an IPv4 address that other clusters can reach; correct or remove the annotation", ip))
			return nil
		}
		gateway = ip
	}
	if gateway == "" {
		ps.add(name, "status.addresses", reasonGatewayIP, fmt.Sprintf(
			"the Node cannot be a Gateway: gatewayIPPrecedence is %s but it has no IPv4 ExternalIP; set the annotation %s to the address other clusters reach it by",
			t.base.config.GatewayIPPrecedence, multicluster.AnnotationGatewayIP))
		return nil
	}
	return &mcv1alpha1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.base.namespace, Name: node.Name},
		GatewayIP:  gateway,
		InternalIP: internal,
	}
}

// ownInfoOf is the ResourceExport by which other clusters reach this one. There
// is none without a Gateway.
func (t *infoTables) ownInfoOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	if m.ID == "" {
		return nil, nil
	}
	name := m.ID + multicluster.ClusterInfoSuffix
	ps := t.ownInfoVerdict(m, derive.Object{Namespace: m.Common, Name: name}, r)
	gateways, _ := derive.Get(r, t.gateways.active, here)
	if len(gateways) == 0 || gateways[0].ServiceCIDR == "" {
		return nil, ps
	}
	info := &mcv1alpha1.ClusterInfo{
		ClusterID:   m.ID,
		ServiceCIDR: gateways[0].ServiceCIDR,
		PodCIDRs:    t.base.config.PodCIDRs,
		Features:    []string{mcv1alpha1.FeatureActiveGateways},
	}
	if t.gateways.keepsClients(gateways, r) {
		info.Features = append(info.Features, mcv1alpha1.FeaturePreserveClientIP)
	}
	if t.singleWays(gateways, r) {
		info.Features = append(info.Features, mcv1alpha1.FeatureSingleWays)
	}
	tunnel, known := t.tunnelOf(gateways, r, (*faults)(&ps))
	if tunnel != "" {
		info.Features = append(info.Features, tunnel)
	}
	if known {
		t.tunnelMismatch(tunnel, r, (*faults)(&ps))
	}
	haves := make([]*mcv1alpha1.Gateway, len(gateways))
	inside := false // as the agents know it (package peering): there is one that is used and has an address inside
	for i, g := range gateways {
		haves[i], _ = derive.Get(r, t.gateways.gateways, keyOf(g))
		inside = inside || phaseOf(g) == "" && hasInside(haves[i])
	}
	for i, g := range gateways {
		gatewayInfo := mcv1alpha1.GatewayInfo{GatewayIP: g.GatewayIP}
		// The agent on the Gateway's Node writes it there. Other clusters hear of the key together with the address inside, which ours adds
		// a moment later: they would begin with another address, and connections that begin by it would break. Other agents have no next port.
		key := haves[i] != nil && haves[i].WireGuard != nil && (inside || haves[i].WireGuard.NextPort == 0)
		if inside {
			if !hasInside(haves[i]) {
				continue // until its agent has announced its key
			}
			gatewayInfo.WireGuard = haves[i].WireGuard.DeepCopy()
		}
		if key && len(info.GatewayInfos)+len(info.LeavingGateways) == 0 {
			info.WireGuard = haves[i].WireGuard.DeepCopy() // for clusters that know one key, and take the first gateway
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
			ClusterID: m.ID, Kind: multicluster.ClusterInfoKind, Namespace: t.base.namespace, Name: m.ID, ClusterInfo: info,
		},
	}, ps
}

// singleWays says whether the agents of all Gateways watch a single way, of those that have reported.
func (t *infoTables) singleWays(gateways []*mcv1alpha1.Gateway, r *derive.Reader) bool {
	some, all := false, true
	for _, g := range gateways {
		if report, ok := derive.Get(r, t.base.reports, derive.Object{Name: g.Name}); ok {
			some, all = true, all && report.SingleWays
		}
	}
	return some && all
}

// tunnelOf is the feature that says what tunnels this cluster's Gateways have: that of the first, which clusters take that know
// one. It is known once its agent has reported.
func (t *infoTables) tunnelOf(gateways []*mcv1alpha1.Gateway, r *derive.Reader,
	ps *faults) (feature string, known bool) {
	for i, g := range gateways {
		report, ok := derive.Get(r, t.base.reports, derive.Object{Name: g.Name})
		switch {
		case i == 0:
			feature, known = report.Tunnel, ok
		case known && ok && report.Tunnel != feature:
			ps.add(object("Node", "", g.Name), "", reasonTunnelMismatch, fmt.Sprintf(
				"tunnels of this Gateway are %s, those of Gateway %s %s: set tunnelType and tunnelPort in antrea-agent.conf to the same on all Nodes, and start the agents again",
				mcv1alpha1.TunnelName(report.Tunnel), gateways[0].Name, mcv1alpha1.TunnelName(feature)))
		}
	}
	return feature, known
}

// tunnelMismatch reports clusters whose tunnels are others, as their agents and this cluster's do (pkg/multicluster/peering).
func (t *infoTables) tunnelMismatch(own string, r *derive.Reader, ps *faults) {
	for _, ci := range values(derive.All(r, t.gateways.clusterInfoImports)) {
		theirs := mcv1alpha1.TunnelOf(ci.Spec.Features)
		if theirs != own && slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureActiveGateways) {
			ps.add(object("ClusterInfoImport", ci.Namespace, ci.Name), "spec.features", reasonTunnelMismatch, fmt.Sprintf(
				"packets do not pass between this cluster and %s: tunnels there are %s, here %s: set tunnelType and tunnelPort in antrea-agent.conf to the same in both clusters",
				ci.Spec.ClusterID, mcv1alpha1.TunnelName(theirs), mcv1alpha1.TunnelName(own)))
		}
	}
}

// keepsClients says whether packets between this cluster's Pods and others' may be untranslated: the agents of all Nodes can,
// those of the Gateways certainly. A Node without a report has no agent, or one that has not begun.
func (t *gatewayTables) keepsClients(gateways []*mcv1alpha1.Gateway, r *derive.Reader) bool {
	if len(t.base.config.PodCIDRs) == 0 {
		return false
	}
	for _, g := range gateways {
		report, ok := derive.Get(r, t.base.reports, derive.Object{Name: g.Name})
		if !ok && phaseOf(g) == multicluster.PhaseJoining {
			continue // nobody sends by it yet
		}
		if !report.KeepsClients {
			return false
		}
	}
	return !slices.ContainsFunc(values(derive.All(r, t.base.reports)),
		func(report agentReport) bool { return !report.KeepsClients })
}

// keptPods are the ranges of this cluster's Pods that the leader hands on together with the feature, as in the annotation of
// the Gateways: not before it does so may agents rely on it that other clusters know them. The second result is false
// while the leader has not been heard: then what was known goes on.
func (t *gatewayTables) keptPods(m membership, gateways []*mcv1alpha1.Gateway,
	r *derive.Reader) (ranges string, known bool) {
	switch {
	case !t.keepsClients(gateways, r):
		return "", true
	case !m.Joined:
		return "", false
	}
	info, _ := derive.Get(r, t.announced, here)
	if info == nil || !slices.Contains(info.Features, mcv1alpha1.FeaturePreserveClientIP) {
		return "", true
	}
	own := slices.DeleteFunc(slices.Clone(info.PodCIDRs),
		func(text string) bool { return !slices.Contains(t.base.config.PodCIDRs, text) })
	return strings.Join(own, ","), true
}

// isTunnelEnd says whether an address may be announced as a tunnel end. Their agents refuse
// those of which it is certain that nothing is there.
func isTunnelEnd(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4() && ip.IsGlobalUnicast()
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeAddress is the first IPv4 address of a kind; empty if there is none.
func nodeAddress(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == kind && isIPv4(a.Address) {
			return a.Address
		}
	}
	return ""
}

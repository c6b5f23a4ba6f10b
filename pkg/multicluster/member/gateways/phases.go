package gateways

import (
	"maps"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A new Gateway is used once other clusters accept its packets. A leaving one stays until no cluster sends through it
// any more. So no packet is lost when an administrator adds and removes Gateways (docs/design/0008-active-gateways.md).
// A Gateway whose Node fails is removed at once.

// phaseLasts has the longest duration of each phase of a Gateway. Phase leaving has to last until this cluster's agents
// have seen it. Phase left has to last until other clusters have seen it, through the leader.
var phaseLasts = map[string]time.Duration{
	multicluster.PhaseJoining: time.Minute,
	multicluster.PhaseLeaving: 5 * time.Second,
	multicluster.PhaseLeft:    15 * time.Second,
}

func phaseOf(g *mcv1alpha1.Gateway) string { return g.Annotations[multicluster.AnnotationPhase] }

// going returns existing Gateways that are no longer wanted, but can still carry traffic.
func (t *Tables) going(nodes []*corev1.Node, wanted []*mcv1alpha1.Gateway,
	present map[string]*mcv1alpha1.Gateway) []*mcv1alpha1.Gateway {
	var out []*mcv1alpha1.Gateway
	for _, node := range nodes {
		have := present[node.Name]
		switch {
		case have == nil || have.GatewayIP == "" || !have.DeletionTimestamp.IsZero():
		case have.WireGuard != nil && have.WireGuard.InsideIP == "": // encrypted traffic has one Gateway
		case !membership.NodeReady(node) || !node.DeletionTimestamp.IsZero():
		case slices.ContainsFunc(wanted, func(g *mcv1alpha1.Gateway) bool {
			return g.Name == have.Name || g.GatewayIP == have.GatewayIP || g.InternalIP == have.InternalIP
		}):
		default:
			out = append(out, &mcv1alpha1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Namespace: have.Namespace, Name: have.Name}, GatewayIP: have.GatewayIP,
				InternalIP: have.InternalIP,
			})
		}
	}
	return out
}

// phased returns all Gateways with their phases: first the desired ones in use, then the others. If no Node of a
// desired Gateway is Ready, the leaving ones stay.
func (t *Tables) phased(wanted, going []*mcv1alpha1.Gateway, present map[string]*mcv1alpha1.Gateway,
	ready bool, r *derive.Reader, ps *problem.List) []*mcv1alpha1.Gateway {
	over := func(g *mcv1alpha1.Gateway) bool {
		phase, ok := derive.Get(r, t.PhasesOver, derive.ObjectOf(g))
		return ok && phase == phaseOf(present[g.Name])
	}
	in := func(g *mcv1alpha1.Gateway, phase string) {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, multicluster.AnnotationPhase, phase)
	}
	own, _ := derive.Get(r, t.Announced, membership.Here)
	all := append(slices.Clone(wanted), going...)
	// If other Gateways encrypt, a Gateway carries nothing until its agent has announced a key. Agents leave it out.
	encrypts := slices.ContainsFunc(all, func(g *mcv1alpha1.Gateway) bool { return hasInside(present[g.Name]) })
	keyless := func(g *mcv1alpha1.Gateway) bool { return encrypts && !hasInside(present[g.Name]) }
	was := func(g *mcv1alpha1.Gateway) string {
		have := present[g.Name]
		if have == nil || have.GatewayIP != g.GatewayIP { // other clusters do not have the address yet
			return multicluster.PhaseLeft
		}
		return phaseOf(have)
	}
	alone := !slices.ContainsFunc(all, func(g *mcv1alpha1.Gateway) bool { return was(g) == "" && !keyless(g) })
	var used, others []*mcv1alpha1.Gateway
	for _, g := range wanted {
		switch phase := was(g); {
		case !keyless(g) && (alone || phase == "" || phase == multicluster.PhaseLeaving ||
			phase == multicluster.PhaseJoining && isAnnounced(own, g) && (over(g) || t.hasJoined(g, r))):
			used = append(used, g)
		default:
			in(g, multicluster.PhaseJoining)
			others = append(others, g)
			// the leader announces no Gateway without a key
			if phase, _ := derive.Get(r, t.PhasesOver, derive.ObjectOf(g)); keyless(g) && phase == unannounced {
				ps.Add(problem.About("Node", "", g.Name), "", reasonGatewayWithoutKey,
					"the Node is no Gateway yet: other Gateways encrypt, and its agent has announced no WireGuard key: "+
						"set multicluster.trafficEncryptionMode to wireGuard in antrea-agent.conf for it too, and see `tombolo "+
						"get status` there for what is wrong")
			}
		}
	}
	for _, g := range going {
		switch phase := phaseOf(present[g.Name]); {
		case len(used) == 0 || !ready: // until another is
			used = append(used, g)
			continue
		case phase == "", phase == multicluster.PhaseLeaving && !over(g):
			in(g, multicluster.PhaseLeaving)
		case phase == multicluster.PhaseLeft && over(g):
			continue
		default:
			in(g, multicluster.PhaseLeft)
		}
		others = append(others, g)
	}
	return append(used, others...)
}

// hasInside reports whether a Gateway's agent has announced a key and an inside address.
func hasInside(g *mcv1alpha1.Gateway) bool {
	return g != nil && g.WireGuard != nil && g.WireGuard.InsideIP != ""
}

// isAnnounced reports whether the leader announces a Gateway to other clusters. Until then no cluster accepts packets
// from it, however long that takes. Ways that its agent reports until then may be out of date.
func isAnnounced(own *mcv1alpha1.ClusterInfo, g *mcv1alpha1.Gateway) bool {
	return own != nil && slices.ContainsFunc(own.GatewayInfos,
		func(i mcv1alpha1.GatewayInfo) bool { return i.GatewayIP == g.GatewayIP })
}

// announcedOf returns this cluster's ClusterInfo as the leader passes it on to other clusters. If there is no such
// ClusterInfo yet, or the leader has not been read, it returns nil.
func (t *Tables) announcedOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ClusterInfo, []problem.Problem) {
	if m, _ := derive.Get(r, t.base.Membership, membership.Here); m.Joined {
		for _, ri := range derive.Values(derive.List(r, t.base.ImportsByKind, multicluster.ClusterInfoKind)) {
			if info := ri.Spec.ClusterInfo; info != nil && info.ClusterID == m.ID && ri.DeletionTimestamp.IsZero() {
				return info, nil
			}
		}
	}
	return nil, nil
}

// hasJoined reports whether each cluster that accepts packets from all Gateways has a way up to this one.
func (t *Tables) hasJoined(g *mcv1alpha1.Gateway, r *derive.Reader) bool {
	ways, _ := derive.Get(r, t.Status, derive.ObjectOf(g))
	for _, ci := range derive.Values(derive.All(r, t.clusterInfoImports)) {
		if slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureActiveGateways) &&
			!slices.ContainsFunc(ways, func(w mcv1alpha1.WayStatus) bool {
				return w.ClusterID == ci.Spec.ClusterID && w.State == mcv1alpha1.WayUp
			}) {
			return false
		}
	}
	return true
}

// Clock records for how long this process has seen Gateways in their phases.
type Clock map[derive.Object]phaseSince

type phaseSince struct {
	phase        string
	began, since time.Time // when it began, and since when its time counts
	runs         bool      // its time
}

// unannounced replaces the phase joining if a Gateway has been joining for the longest allowed time, but the leader has
// not announced it to other clusters.
const unannounced = "unannounced"

// Over returns the Gateways whose phase has ended, with that phase. The time of phase joining begins when the leader
// announces the Gateway to other clusters.
func (c Clock) Over(now time.Time, gateways []*mcv1alpha1.Gateway,
	own *mcv1alpha1.ClusterInfo) map[derive.Object]string {
	seen, over := Clock{}, map[derive.Object]string{}
	for _, g := range gateways {
		key, phase := derive.ObjectOf(g), phaseOf(g)
		if phase == "" {
			continue
		}
		at := phaseSince{phase, now, now, phase != multicluster.PhaseJoining || isAnnounced(own, g)}
		if was := c[key]; was.phase == phase {
			if at.began = was.began; was.runs {
				at.since = was.since
			}
		}
		seen[key] = at
		switch {
		case at.runs && now.Sub(at.since) >= phaseLasts[phase]:
			over[key] = phase
		case !at.runs && now.Sub(at.began) >= phaseLasts[phase]:
			over[key] = unannounced
		}
	}
	clear(c)
	maps.Copy(c, seen)
	return over
}

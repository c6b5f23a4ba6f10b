package member

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A Gateway that comes is used once other clusters take what it sends, and one that goes is there until nobody sends by it any more, so
// that nothing is lost when the administrator adds and removes Gateways (docs/design/0008-active-gateways.md). A Gateway whose Node
// fails goes at once.

// phaseLasts is how long a Gateway is in a phase at most. Leaving has to outlast the time in which this cluster's agents see it,
// left that in which other clusters do, through the leader.
var phaseLasts = map[string]time.Duration{
	multicluster.PhaseJoining: time.Minute,
	multicluster.PhaseLeaving: 5 * time.Second,
	multicluster.PhaseLeft:    15 * time.Second,
}

// phaseLook is how often Gateways are looked at for phases that are over.
const phaseLook = time.Second

func phaseOf(g *mcv1alpha1.Gateway) string { return g.Annotations[multicluster.AnnotationPhase] }

// going are the Gateways that are there, are not wanted any more and could carry on.
func (t *gatewayTables) going(nodes []*corev1.Node, wanted []*mcv1alpha1.Gateway,
	present map[string]*mcv1alpha1.Gateway) []*mcv1alpha1.Gateway {
	var out []*mcv1alpha1.Gateway
	for _, node := range nodes {
		have := present[node.Name]
		switch {
		case have == nil || have.GatewayIP == "" || !have.DeletionTimestamp.IsZero():
		case have.WireGuard != nil && have.WireGuard.InsideIP == "": // encrypted traffic has one Gateway
		case !nodeReady(node) || !node.DeletionTimestamp.IsZero():
		case slices.ContainsFunc(wanted, func(g *mcv1alpha1.Gateway) bool {
			return g.Name == have.Name || g.GatewayIP == have.GatewayIP || g.InternalIP == have.InternalIP
		}):
		default:
			out = append(out, &mcv1alpha1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Namespace: have.Namespace, Name: have.Name}, GatewayIP: have.GatewayIP, InternalIP: have.InternalIP,
			})
		}
	}
	return out
}

// phased are all Gateways with their phases: those that are wanted and used, then the others. Where no Node of those that are wanted is
// Ready, those that go stay.
func (t *gatewayTables) phased(wanted, going []*mcv1alpha1.Gateway, present map[string]*mcv1alpha1.Gateway,
	ready bool, r *derive.Reader, ps *faults) []*mcv1alpha1.Gateway {
	over := func(g *mcv1alpha1.Gateway) bool {
		phase, ok := derive.Get(r, t.phasesOver, keyOf(g))
		return ok && phase == phaseOf(present[g.Name])
	}
	in := func(g *mcv1alpha1.Gateway, phase string) {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, multicluster.AnnotationPhase, phase)
	}
	own, _ := derive.Get(r, t.announced, here)
	all := append(slices.Clone(wanted), going...)
	// Until its agent has announced a key, a Gateway can carry nothing beside others that encrypt; agents leave it out then.
	encrypts := slices.ContainsFunc(all, func(g *mcv1alpha1.Gateway) bool { return hasInside(present[g.Name]) })
	keyless := func(g *mcv1alpha1.Gateway) bool { return encrypts && !hasInside(present[g.Name]) }
	was := func(g *mcv1alpha1.Gateway) string {
		have := present[g.Name]
		if have == nil || have.GatewayIP != g.GatewayIP { // other clusters do not know the address
			return multicluster.PhaseLeft
		}
		return phaseOf(have)
	}
	alone := !slices.ContainsFunc(all, func(g *mcv1alpha1.Gateway) bool { return was(g) == "" && !keyless(g) })
	var used, others []*mcv1alpha1.Gateway
	for _, g := range wanted {
		switch phase := was(g); {
		case !keyless(g) && (alone || phase == "" || phase == multicluster.PhaseLeaving || phase == multicluster.PhaseJoining && tells(own, g) && (over(g) || t.hasJoined(g, r))):
			used = append(used, g)
		default:
			in(g, multicluster.PhaseJoining)
			others = append(others, g)
			if phase, _ := derive.Get(r, t.phasesOver, keyOf(g)); keyless(g) && phase == untold { // nobody is told of one without a key
				ps.add(object("Node", "", g.Name), "", reasonGatewayWithoutKey, "the Node is no Gateway yet: other Gateways encrypt, and its agent has announced no WireGuard key: "+
					"set multicluster.trafficEncryptionMode to wireGuard in antrea-agent.conf for it too, and see `tombolo get status` there for what is wrong")
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

// hasInside says whether a Gateway's agent has announced a key and where tunnels end inside WireGuard.
func hasInside(g *mcv1alpha1.Gateway) bool {
	return g != nil && g.WireGuard != nil && g.WireGuard.InsideIP != ""
}

// tells says whether the leader tells other clusters of a Gateway. Until then nothing takes what it sends, however long that lasts; and
// ways that its agent reports may be of before.
func tells(own *mcv1alpha1.ClusterInfo, g *mcv1alpha1.Gateway) bool {
	return own != nil && slices.ContainsFunc(own.GatewayInfos, func(i mcv1alpha1.GatewayInfo) bool { return i.GatewayIP == g.GatewayIP })
}

// announcedOf is what the leader tells other clusters of this one; nil while it has not, or has not been heard.
func (t *gatewayTables) announcedOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ClusterInfo, []problem.Problem) {
	if m, _ := derive.Get(r, t.base.membership, here); m.Joined {
		for _, ri := range values(derive.List(r, t.base.importsByKind, multicluster.ClusterInfoKind)) {
			if info := ri.Spec.ClusterInfo; info != nil && info.ClusterID == m.ID && ri.DeletionTimestamp.IsZero() {
				return info, nil
			}
		}
	}
	return nil, nil
}

// hasJoined says whether each cluster that takes what all Gateways send has a way to this one that is up.
func (t *gatewayTables) hasJoined(g *mcv1alpha1.Gateway, r *derive.Reader) bool {
	ways, _ := derive.Get(r, t.status, keyOf(g))
	for _, ci := range values(derive.All(r, t.clusterInfoImports)) {
		if slices.Contains(ci.Spec.Features, mcv1alpha1.FeatureActiveGateways) && !slices.ContainsFunc(ways, func(w mcv1alpha1.WayStatus) bool {
			return w.ClusterID == ci.Spec.ClusterID && w.State == mcv1alpha1.WayUp
		}) {
			return false
		}
	}
	return true
}

// phaseClock knows since when Gateways are in their phases, as this process has seen them.
type phaseClock map[derive.Object]phaseSince

type phaseSince struct {
	phase        string
	began, since time.Time // when it began, and since when its time counts
	runs         bool      // its time
}

// untold is in place of the phase of a Gateway that has been joining for its time without the leader telling others of it.
const untold = "untold"

// over are the Gateways whose phase has lasted as long as it may at a time, with that phase. Joining begins when the leader tells other
// clusters of the Gateway.
func (c phaseClock) over(now time.Time, gateways []*mcv1alpha1.Gateway, own *mcv1alpha1.ClusterInfo) map[derive.Object]string {
	seen, over := phaseClock{}, map[derive.Object]string{}
	for _, g := range gateways {
		key, phase := keyOf(g), phaseOf(g)
		if phase == "" {
			continue
		}
		at := phaseSince{phase, now, now, phase != multicluster.PhaseJoining || tells(own, g)}
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
			over[key] = untold
		}
	}
	clear(c)
	maps.Copy(c, seen)
	return over
}

// endPhases has phases and withdrawals end that have lasted as long as they may.
func (c *controller) endPhases(ctx context.Context) {
	clock, tick := phaseClock{}, time.NewTicker(phaseLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			own, _ := c.tables.gateways.announced.Get(here)
			c.tables.gateways.phasesOver.Replace(clock.over(now, values(c.tables.gateways.gateways.All()), own))
			c.tables.clusters.forgotten.Replace(forgottenAt(now, values(c.tables.clusters.clusterInfoImports.All())))
		}
	}
}

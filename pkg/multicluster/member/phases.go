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
func (t *tables) going(nodes []*corev1.Node, wanted []*mcv1alpha1.Gateway, present map[string]*mcv1alpha1.Gateway) []*mcv1alpha1.Gateway {
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

// phased are all Gateways with their phases: those that are wanted and used, then the others.
func (t *tables) phased(wanted, going []*mcv1alpha1.Gateway, present map[string]*mcv1alpha1.Gateway, r *derive.Reader) []*mcv1alpha1.Gateway {
	unused := func(g *mcv1alpha1.Gateway) bool { have := present[g.Name]; return have == nil || phaseOf(have) != "" }
	over := func(g *mcv1alpha1.Gateway) bool {
		phase, ok := derive.Get(r, t.phasesOver, keyOf(g))
		return ok && phase == phaseOf(present[g.Name])
	}
	in := func(g *mcv1alpha1.Gateway, phase string) {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, multicluster.AnnotationPhase, phase)
	}
	// Until its agent has announced a key, a Gateway can carry nothing beside others that encrypt.
	inside := func(g *mcv1alpha1.Gateway) bool { return g != nil && g.WireGuard != nil && g.WireGuard.InsideIP != "" }
	encrypts := slices.ContainsFunc(slices.Collect(maps.Values(present)), inside)
	keyless := func(g *mcv1alpha1.Gateway) bool { return encrypts && !inside(present[g.Name]) }
	alone := !slices.ContainsFunc(append(slices.Clone(wanted), going...), func(g *mcv1alpha1.Gateway) bool { return !unused(g) })
	var used, others []*mcv1alpha1.Gateway
	for _, g := range wanted {
		phase := multicluster.PhaseLeft
		if have := present[g.Name]; have != nil {
			phase = phaseOf(have)
		}
		switch {
		case alone, phase == "", phase == multicluster.PhaseLeaving, phase == multicluster.PhaseJoining && !keyless(g) && (over(g) || t.hasJoined(g, r)):
			used = append(used, g)
		default:
			in(g, multicluster.PhaseJoining)
			others = append(others, g)
		}
	}
	for _, g := range going {
		switch phase := phaseOf(present[g.Name]); {
		case len(used) == 0: // until another is
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

// hasJoined says whether each cluster that takes what all Gateways send has a way to this one that is up.
func (t *tables) hasJoined(g *mcv1alpha1.Gateway, r *derive.Reader) bool {
	ways, _ := derive.Get(r, t.gatewayStatus, keyOf(g))
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
	phase string
	since time.Time
}

// over are the Gateways whose phase has lasted as long as it may at a time, with that phase.
func (c phaseClock) over(now time.Time, gateways []*mcv1alpha1.Gateway) map[derive.Object]string {
	seen, over := phaseClock{}, map[derive.Object]string{}
	for _, g := range gateways {
		key, phase := keyOf(g), phaseOf(g)
		if phase == "" {
			continue
		}
		seen[key] = phaseSince{phase, now}
		if was := c[key]; was.phase == phase {
			seen[key] = was
		}
		if now.Sub(seen[key].since) >= phaseLasts[phase] {
			over[key] = phase
		}
	}
	clear(c)
	maps.Copy(c, seen)
	return over
}

// endPhases has phases end that have lasted as long as they may.
func (c *controller) endPhases(ctx context.Context) {
	clock, tick := phaseClock{}, time.NewTicker(phaseLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.tables.phasesOver.Replace(clock.over(now, values(c.tables.gateways.All())))
		}
	}
}

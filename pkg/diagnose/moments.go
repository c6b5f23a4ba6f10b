package diagnose

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// Some states are no faults for a short time after a start or a change. Checks report them as unknown, with their age,
// until the times below have passed.
const (
	// startTime is how long a Pod, an agent or a webhook may take to begin its work. It is also how long reports of a
	// change take to arrive.
	startTime = 30 * time.Second
	// joinTime is how long a new Node, a new member or a new Gateway may take until all others know it.
	joinTime = time.Minute
)

// age returns the text of how long ago a time was, by the API server's clock, and whether that is less than a limit. A
// time in the future counts too if it is less than the limit away, since clocks of Nodes may be ahead.
func (c *Cluster) age(at time.Time, limit time.Duration) (string, bool) {
	d := c.Now.Sub(at)
	return fmt.Sprintf("%s ago", max(0, d).Round(time.Second)), !at.IsZero() && d.Abs() < limit
}

// changed returns when an object was written last.
func changed(o metav1.ObjectMeta) time.Time {
	at := o.CreationTimestamp.Time
	for _, f := range o.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// starts returns that an agent has begun a moment ago, or nothing.
func (c *Cluster) starts(a *Agent) string {
	at := runsSince(a.Pod)
	if a.Status != nil && a.Status.Started.After(at) {
		at = a.Status.Started
		if a.Probes != nil && !a.Probes.At.IsZero() {
			at = at.Add(c.Ahead - a.Ahead) // the Node's clock differs
		}
	}
	if ago, recent := c.age(at, startTime); recent {
		return "its agent started " + ago
	}
	return ""
}

// runsSince returns when the agent's container began to run.
func runsSince(p *corev1.Pod) (at time.Time) {
	if p == nil {
		return at
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == "tombolo-agent" && s.State.Running != nil {
			at = s.State.Running.StartedAt.Time
		}
	}
	return at
}

// replaced returns a text if a Pod is new or is being replaced, and "" otherwise. A Pod whose containers fail is
// neither.
func replaced(c *Cluster, p *corev1.Pod) string {
	if p.DeletionTimestamp != nil { // the time at which it is killed
		if _, recent := c.age(p.DeletionTimestamp.Time, startTime); recent || c.Now.Before(p.DeletionTimestamp.Time) {
			return "it is being replaced"
		}
		return ""
	}
	ago, recent := c.age(p.CreationTimestamp.Time, joinTime)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return ""
		}
		if t := s.State.Terminated; s.RestartCount > 0 || t != nil && t.ExitCode != 0 {
			return ""
		}
	}
	if recent {
		return "it was made " + ago
	}
	return ""
}

// rises returns a text if a Deployment is new, or if its Pods have changed their state a moment ago, and "" otherwise.
func rises(c *Cluster, d *appsv1.Deployment) string {
	if ago, recent := c.age(d.CreationTimestamp.Time, joinTime); recent {
		return "it was made " + ago
	}
	for _, x := range d.Status.Conditions {
		if ago, recent := c.age(x.LastTransitionTime.Time, startTime); recent && x.Type == appsv1.DeploymentAvailable {
			return "its replicas changed their state " + ago
		}
	}
	return ""
}

// joins returns that a member has joined a moment ago, or nothing.
func (c *Cluster) joins() string {
	if s := c.set(); s != nil {
		if ago, recent := c.age(s.CreationTimestamp.Time, joinTime); recent {
			return c.Name + " joined " + ago
		}
	}
	return ""
}

// moves returns that a Gateway of a cluster was written a moment ago, or nothing.
func (c *Cluster) moves(of func(*mcv1alpha1.Gateway) bool) string {
	for i := range c.Gateways {
		g := &c.Gateways[i]
		if !of(g) {
			continue
		}
		if ago, recent := c.age(g.CreationTimestamp.Time, joinTime); recent {
			return fmt.Sprintf("Gateway %s of %s is new: it was made %s", g.Name, c.Name, ago)
		}
	}
	return ""
}

// news returns a text if a cluster has received a change of another cluster a moment ago, and "" otherwise.
func (c *Cluster) news(id string) string {
	info := c.info(id)
	if info == nil {
		return ""
	}
	if ago, recent := c.age(changed(info.ObjectMeta), startTime); recent {
		return fmt.Sprintf("%s received a change of cluster %s %s", c.Name, id, ago)
	}
	return ""
}

// becomesReady returns that a Node is new, or became Ready a moment ago, or nothing.
func becomesReady(c *Cluster, n *corev1.Node) string {
	if ago, recent := c.age(n.CreationTimestamp.Time, joinTime); recent {
		return "it joined " + ago
	}
	for _, x := range n.Status.Conditions {
		if ago, recent := c.age(x.LastTransitionTime.Time, joinTime); recent && x.Type == corev1.NodeReady &&
			x.Status == corev1.ConditionTrue {
			return "it became Ready " + ago
		}
	}
	return ""
}

// isNew returns the reason why a way may be down for a moment, or "": one of its ends is new, or has received the other
// end's address a moment ago.
func (p path) isNew() string {
	for _, side := range [][2]end{{p.a, p.b}, {p.b, p.a}} {
		e, far := side[0], side[1]
		if e.cluster == nil {
			continue
		}
		if n := e.cluster.node(e.node); n != nil {
			if why := becomesReady(e.cluster, n); why != "" {
				return fmt.Sprintf("Node %s: %s", e, why)
			}
		}
		if !p.between {
			continue
		}
		if why := e.cluster.joins(); why != "" {
			return why
		}
		if why := e.cluster.moves(func(g *mcv1alpha1.Gateway) bool { return g.Name == e.node }); why != "" {
			return why
		}
		if why := e.cluster.news(far.id); why != "" {
			return why
		}
	}
	return ""
}

// anyGateway is for moves.
func anyGateway(g *mcv1alpha1.Gateway) bool {
	return g.Annotations[multicluster.AnnotationPhase] != multicluster.PhaseLeft
}

// isYoung reports whether a Node is new.
func isYoung(c *Cluster, node string) bool {
	n := c.node(node)
	if n == nil {
		return false
	}
	_, recent := c.age(n.CreationTimestamp.Time, joinTime)
	return recent
}

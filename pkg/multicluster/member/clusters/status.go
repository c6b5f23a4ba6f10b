package clusters

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Reasons of the condition Reachable.
const (
	maxWaysInConditions = 10 // that are named in a message
)

// RemedyOfDown is the remedy for ways that are down.
const RemedyOfDown = "Check that these are addresses at which the other cluster's Gateways are reached, " +
	"that their Nodes run, and that firewalls let tunnels through both ways " +
	"(by default UDP port 6081 for geneve, 4789 for vxlan, 51821 and 51822 for WireGuard; GRE is IP protocol " +
	"47); `tombolo get peers` on the Gateways' Nodes shows each way"

// clusterSetOf returns the desired spec and status of the ClusterSet that this cluster is in.
func (t *Reach) clusterSetOf(k derive.Object, r *derive.Reader) (*mcv1alpha2.ClusterSet, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	set, ok := derive.Get(r, t.base.ClusterSets, k)
	if m.Set != k || m.ID == "" || !ok {
		return nil, nil
	}
	wanted := set.DeepCopy()
	wanted.Spec.ClusterID = m.ID
	c, _ := derive.Get(r, t.base.Connection, membership.Here)
	switch {
	case m.Fault != "":
		setStatus(wanted, membership.Connection{Tried: true, Error: m.Fault})
	case m.Area == nil: // unknown so far
	case c.Area == *m.Area:
		setStatus(wanted, c)
	default:
		setStatus(wanted, membership.Connection{})
	}
	setReachable(wanted, set.Status.ClusterStatuses, t.reached(r))
	return wanted, t.configured(m, r)
}

// configured reports settings of the configuration that cannot take effect.
func (t *Reach) configured(m membership.Membership, r *derive.Reader) []problem.Problem {
	var ps problem.List
	if why, ok := derive.Get(r, t.Refused, membership.Here); ok {
		ps.Add(m.ClusterSet(), "", reasonConfigInvalid,
			"the controller goes on with the configuration that it had: "+why+"; correct it in ConfigMap "+
				"antrea-mc-controller-config: it is taken over without a restart")
	}
	if t.base.Config.EndpointIPType == config.EndpointIPTypePodIP && len(t.base.Config.PodCIDRs) == 0 {
		ps.Add(m.ClusterSet(), "", reasonPodCIDRsMissing,
			"endpointIPType PodIP exports Pods' addresses, which other clusters cannot reach through gateways "+
				"without a Pod range: set podCIDRs in the controller's configuration, and "+
				"multicluster.enablePodToPodConnectivity in every cluster's antrea-agent.conf")
	}
	return ps
}

// reached are the conditions of other clusters to which ways are watched, by cluster ID.
func (t *Reach) reached(r *derive.Reader) map[string]condition {
	sights, _ := derive.Get(r, t.Sights, membership.Here)
	gone, _ := derive.Get(r, t.Gone, membership.Here)
	clusters := slices.Collect(maps.Keys(sights))
	for id := range gone {
		if _, seen := sights[id]; !seen {
			clusters = append(clusters, id)
		}
	}
	out := map[string]condition{}
	for _, cluster := range clusters {
		up, down, unknown := sights[cluster].Up, sights[cluster].Down, sights[cluster].Unknown
		c := condition{kind: string(mcv1alpha2.ClusterReachable),
			message: fmt.Sprintf("%d of %d ways are up", len(up), len(up)+len(down)+len(unknown))}
		switch {
		case gone[cluster]:
			c.status, c.reason = corev1.ConditionFalse, reasonGone.String()
			c.message += "; requests to Services go to other clusters that have them"
		case len(down)+len(unknown) == 0:
			c.status, c.reason = corev1.ConditionTrue, reasonAllWaysUp.String()
		case len(up) > 0:
			c.status, c.reason = corev1.ConditionTrue, reasonSomeWaysDown.String()
		case len(unknown) > 0:
			c.status, c.reason = corev1.ConditionUnknown, reasonWaysUnknown.String()
		default:
			c.status, c.reason = corev1.ConditionFalse, reasonAllWaysDown.String()
		}
		c.message += named("; down: ", down) + named("; unknown, since the Node is not Ready: ", unknown)
		if len(down) > 0 {
			c.message += ". " + RemedyOfDown
		}
		out[cluster] = c
	}
	return out
}

// named lists some ways after a text; nothing without any.
func named(text string, ways []string) string {
	if len(ways) == 0 {
		return ""
	}
	if more := len(ways) - maxWaysInConditions; more > 0 {
		return fmt.Sprintf("%s%s and %d more", text, strings.Join(ways[:maxWaysInConditions], ", "), more)
	}
	return text + strings.Join(ways, ", ")
}

// setStatus writes the result of the last announcement into the ClusterSet's status. Before the first announcement
// after a restart, an existing status stays as it is. Conditions that change have no time. They get it when they are
// written.
func setStatus(cs *mcv1alpha2.ClusterSet, a membership.Connection) {
	leaderID := ""
	if len(cs.Spec.Leaders) > 0 {
		leaderID = cs.Spec.Leaders[0].ClusterID
	}
	var old []mcv1alpha2.ClusterCondition
	for _, s := range cs.Status.ClusterStatuses {
		if s.ClusterID == leaderID {
			old = s.Conditions
		}
	}
	if !a.Tried && len(old) > 0 {
		return
	}
	ready := condition{kind: string(mcv1alpha2.ClusterReady), status: corev1.ConditionTrue}
	isLeader := condition{kind: string(mcv1alpha2.ClusterIsLeader), status: corev1.ConditionFalse}
	overall := condition{kind: string(mcv1alpha2.ClusterSetReady), status: corev1.ConditionTrue}
	cs.Status.TotalClusters, cs.Status.ReadyClusters = 1, 1
	if a.Found {
		isLeader.status, isLeader.message = corev1.ConditionTrue, "This leader cluster is the leader for local cluster"
	}
	switch {
	case !a.Tried:
		ready.status, ready.message = corev1.ConditionUnknown, "Leader cluster added"
	case a.Error != "":
		ready.status, ready.reason, ready.message = corev1.ConditionFalse, reasonDisconnected.String(), a.Error
	}
	switch {
	case ready.status != corev1.ConditionTrue:
		cs.Status.ReadyClusters = 0
		overall.status, overall.message = corev1.ConditionFalse, "Disconnected from leader"
	case !a.Found:
		overall.status, overall.message = corev1.ConditionUnknown, "Leader not yet connected"
	}
	conditions := setClusterCondition(setClusterCondition(old, ready), isLeader)
	cs.Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: leaderID, Conditions: conditions}}
	cs.Status.Conditions = setClusterSetCondition(cs.Status.Conditions, overall)
	cs.Status.ObservedGeneration = cs.Generation
}

// setReachable writes the conditions of other clusters after the leader's conditions. It removes clusters that no
// longer have a condition.
func setReachable(cs *mcv1alpha2.ClusterSet, before []mcv1alpha2.ClusterStatus, reached map[string]condition) {
	leaderID := ""
	if len(cs.Spec.Leaders) > 0 {
		leaderID = cs.Spec.Leaders[0].ClusterID
	}
	have := map[string][]mcv1alpha2.ClusterCondition{}
	for _, s := range before {
		have[s.ClusterID] = s.Conditions
	}
	var out []mcv1alpha2.ClusterStatus
	for _, s := range cs.Status.ClusterStatuses {
		if s.ClusterID == leaderID {
			s.Conditions = slices.Clone(s.Conditions)
			if c, ok := reached[leaderID]; ok {
				s.Conditions = setClusterCondition(s.Conditions, c)
			} else {
				s.Conditions = slices.DeleteFunc(s.Conditions,
					func(c mcv1alpha2.ClusterCondition) bool { return c.Type == mcv1alpha2.ClusterReachable })
			}
			out = append(out, s)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(reached)) {
		if id != leaderID {
			out = append(out, mcv1alpha2.ClusterStatus{ClusterID: id, Conditions: setClusterCondition(have[id], reached[id])})
		}
	}
	cs.Status.ClusterStatuses = out
}

// condition is a condition of a ClusterSet or of a cluster in it.
type condition struct {
	kind            string
	status          corev1.ConditionStatus
	reason, message string
}

// setClusterCondition returns the conditions with one replaced or added. If the status stays, the transition time
// stays. Otherwise StampClusterSet sets it.
func setClusterCondition(have []mcv1alpha2.ClusterCondition, c condition) []mcv1alpha2.ClusterCondition {
	conditions := slices.Clone(have)
	want := mcv1alpha2.ClusterCondition{
		Type: mcv1alpha2.ClusterConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message,
	}
	for i, old := range conditions {
		if old.Type == want.Type {
			if old.Status == want.Status {
				want.LastTransitionTime = old.LastTransitionTime
			}
			conditions[i] = want
			return conditions
		}
	}
	return append(conditions, want)
}

// setClusterSetCondition is setClusterCondition for the conditions of the set as a whole.
func setClusterSetCondition(have []mcv1alpha2.ClusterSetCondition, c condition) []mcv1alpha2.ClusterSetCondition {
	conditions := slices.Clone(have)
	want := mcv1alpha2.ClusterSetCondition{
		Type: mcv1alpha2.ClusterSetConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message,
	}
	for i, old := range conditions {
		if old.Type == want.Type {
			if old.Status == want.Status {
				want.LastTransitionTime = old.LastTransitionTime
			}
			conditions[i] = want
			return conditions
		}
	}
	return append(conditions, want)
}

// StampClusterSet gives conditions that are new their time.
func StampClusterSet(cs *mcv1alpha2.ClusterSet, now metav1.Time) {
	for i := range cs.Status.Conditions {
		if c := &cs.Status.Conditions[i]; c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
		}
	}
	for i := range cs.Status.ClusterStatuses {
		for j := range cs.Status.ClusterStatuses[i].Conditions {
			if c := &cs.Status.ClusterStatuses[i].Conditions[j]; c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = now
			}
		}
	}
}

// writeClusterSet writes the spec first; the status follows when the spec has been seen.
func (t *Reach) writeClusterSet(k derive.Object, r *derive.Reader) *writes.Write {
	want, _ := derive.Get(r, t.ClusterSet, k)
	have, ok := derive.Get(r, t.base.ClusterSets, k)
	w := &writes.Write{Kind: "ClusterSet", Have: have, Object: want,
		About: problem.About("ClusterSet", k.Namespace, k.Name)}
	switch {
	case !ok:
	case !equality.Semantic.DeepEqual(have.Spec, want.Spec):
		w.Verb = writes.Update
		return w
	case !equality.Semantic.DeepEqual(have.Status, want.Status):
		w.Verb = writes.UpdateStatus
		return w
	}
	return nil
}

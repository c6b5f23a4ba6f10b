package member

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/policies"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/events"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

// policyEvents offers Events in the leader's Namespace about policies that are not imported here. It offers one Event
// when a fault appears or changes.
func (c *controller) policyEvents(changes []derive.Change[derive.Object, *policies.Replica]) []retry.Offer {
	var out []retry.Offer
	m, _ := c.tables.base.Membership.Get(membership.Here)
	connection, _ := c.tables.base.Connection.Get(membership.Here)
	area := connection.Area
	for _, change := range changes {
		key := "Event of ResourceImport " + change.Key.String()
		switch was, is := change.Old, change.New; {
		case is == nil || is.Fault == "":
			out = append(out, retry.Offer{Key: key})
		case was == nil || was.Fault != is.Fault:
			event := policyEvent(is, time.Now()) // a further try creates the same Event
			out = append(out, retry.Offer{Key: key, Late: true, Writes: []retry.Write{{
				What:  "create an Event about ResourceImport " + change.Key.String(),
				Blame: problem.Problem{Object: m.ClusterSet(), Reason: retry.ReasonWriteFailed},
				Do: func(ctx context.Context) error {
					if leader := c.clientOf(area); leader != nil {
						return events.Create(ctx, leader, event)
					}
					return nil
				},
			}}})
		}
	}
	return out
}

// clientOf returns the client of the present connection to an area, or nil if this cluster is not in the area any more.
// An Event stays right when the connection is made again, for example with a new token.
func (c *controller) clientOf(area membership.Area) client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.area == nil || !sameMembership(c.area.area, area) {
		return nil
	}
	return c.area.client
}

// policyEvent returns the documented Event about a policy that is not imported.
func policyEvent(c *policies.Replica, now time.Time) *corev1.Event {
	message := events.Note(problem.Problem{Message: c.Fault})
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Import.Namespace,
			Name: fmt.Sprintf("%s.%x", c.Import.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{APIVersion: mcv1alpha1.GroupVersion.String(), Kind: "ResourceImport",
			Namespace: c.Import.Namespace, Name: c.Import.Name, UID: c.UID},
		Type: corev1.EventTypeWarning, Reason: policies.Reason(c).String(), Message: message, Action: "synced",
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
		ReportingController: "resourceimport-controller", ReportingInstance: multicluster.ControllerName,
	}
}

// wrotePolicy records the result of writing a policy. It returns after a pass has used the result. So the watch event
// of the same write causes no second write.
func (c *controller) wrotePolicy(ctx context.Context, w writes.Write, answer client.Object) {
	key := policies.Key(w.Kind, derive.ObjectOf(w.Object))
	switch {
	case !policies.IsKind(w.Kind):
		return
	case w.Verb == writes.Delete:
		c.tables.policies.WrittenPolicies.Delete(key)
		return
	case w.Verb == writes.Update && policies.SamePolicy(w.Have, w.Object): // the patch had no spec
		return
	}
	c.tables.policies.WrittenPolicies.Set(key, policies.Written{Spec: policies.SpecOf(w.Object), UID: answer.GetUID(),
		Generation: answer.GetGeneration()})
	c.tables.Do(ctx, func() { c.tables.Pass() })
}

// refused records the reason why a policy could not be written.
func (c *controller) refused(of retry.Offer, p *problem.Problem) {
	if kind, _, _ := strings.Cut(of.Key, " "); policies.IsKind(kind) {
		if p == nil {
			c.tables.policies.RefusedWrites.Delete(derive.Name(of.Key))
		} else {
			c.tables.policies.RefusedWrites.Set(derive.Name(of.Key), p.Message)
		}
	}
	signal(c.reporting)
}

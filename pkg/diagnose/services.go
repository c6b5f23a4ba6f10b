package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// settled is the time that controllers have for a new object.
const settled = 30 * time.Second

// fresh reports whether an object is so new that its status may be missing.
func (c *Cluster) fresh(made metav1.Time) bool {
	_, recent := c.age(made.Time, settled)
	return recent
}

// resourceExports names exports that the leader does not import, or imports in part.
func resourceExports(_ *Facts, c *Cluster, r *report) {
	areas := c.areas()
	if len(areas) == 0 {
		r.skip("it is no leader")
		return
	}
	for _, e := range c.ResourceExports {
		for _, x := range e.Status.Conditions {
			failed := x.Type == mcv1alpha1.ResourceExportFailure
			if !failed && (x.Type != mcv1alpha1.ResourceExportSucceeded || x.Reason != mcv1alpha1.ReasonEndpointsLeftOut) {
				continue
			}
			what := "it is not imported: "
			if !failed {
				what = "it is imported in part: "
			}
			r.fail(fault{object: fmt.Sprintf("ResourceExport %s/%s", e.Namespace, e.Name), detail: what + text(x.Reason,
				x.Message),
				remedy: fmt.Sprintf("correct %s %s in cluster %s", e.Spec.Kind, strings.Trim(e.Spec.Namespace+"/"+e.Spec.Name, "/"),
					e.Spec.ClusterID)})
		}
	}
}

// condition returns a condition by its type, or nil.
func condition(all []metav1.Condition, kind string) *metav1.Condition {
	i := slices.IndexFunc(all, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// serviceExports names exports that fail, wait or conflict.
func serviceExports(_ *Facts, c *Cluster, r *report) {
	for _, e := range c.ServiceExports {
		object := fmt.Sprintf("ServiceExport %s/%s", e.Namespace, e.Name)
		failed := func(what string, x *metav1.Condition) {
			r.fail(fault{object: object, detail: what + text(x.Reason, x.Message), remedy: "the message names what to change"})
		}
		valid := condition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
		ready := condition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		conflict := condition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		moved := func(x *metav1.Condition) bool { return x != nil && c.fresh(x.LastTransitionTime) }
		switch {
		case c.fresh(e.CreationTimestamp), moved(valid), moved(ready), moved(conflict): // the others follow it
		case valid == nil:
			r.fail(fault{object: object, detail: "no controller has looked at it",
				remedy: "join the cluster to a ClusterSet, and look at its " + memberController})
		case valid.Status != metav1.ConditionTrue:
			failed("it is not valid: ", valid)
		case ready != nil && ready.Status != metav1.ConditionTrue:
			failed("it is not exported: ", ready)
		case conflict != nil && conflict.Status == metav1.ConditionTrue:
			failed("it conflicts with another cluster's export: ", conflict)
		}
	}
}

// endpoints names exported Services without a ready endpoint in their cluster.
func endpoints(f *Facts, c *Cluster, r *report) {
	count, moved := map[string]int{}, map[string]bool{}
	for _, s := range c.EndpointSlices {
		if s.Labels[discoveryv1.LabelManagedBy] == multicluster.EndpointSliceManager {
			continue
		}
		if _, recent := c.age(changed(s.ObjectMeta), startTime); recent {
			moved[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]] = true
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				count[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]]++
			}
		}
	}
	for _, e := range c.ServiceExports {
		key := e.Namespace + "/" + e.Name
		valid := condition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
		if count[key] > 0 || valid == nil || valid.Status != metav1.ConditionTrue || c.fresh(e.CreationTimestamp) {
			continue
		}
		if moved[key] {
			r.unknown("Service "+key, "it has no ready endpoint, and its endpoints changed a moment ago")
			continue
		}
		var others []string
		for _, other := range f.Clusters {
			if other.Name != c.Name && slices.ContainsFunc(other.ServiceExports, func(x mcsv1beta1.ServiceExport) bool {
				return x.Namespace == e.Namespace && x.Name == e.Name
			}) {
				others = append(others, other.Name)
			}
		}
		effect := "no other of these clusters exports it"
		if len(others) > 0 {
			effect = "requests go to " + strings.Join(others, ", ")
		}
		r.fail(fault{object: "Service " + key, detail: "it is exported and has no ready endpoint in this cluster; " + effect,
			remedy: fmt.Sprintf("kubectl describe service -n %s %s: compare its selector with the labels of the Pods",
				e.Namespace,
				e.Name)})
	}
}

// serviceImports names imports that are not ready.
func serviceImports(_ *Facts, c *Cluster, r *report) {
	for _, i := range c.ServiceImports {
		x := condition(i.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if x != nil && x.Status == metav1.ConditionFalse && !c.fresh(i.CreationTimestamp) && !c.fresh(x.LastTransitionTime) {
			r.fail(fault{object: fmt.Sprintf("ServiceImport %s/%s", i.Namespace, i.Name),
				detail: "it is not ready: " + text(x.Reason, x.Message), remedy: "the message names what to change"})
		}
	}
}

// reasonNotStretched is the reason of the agents' problem about rules with scope ClusterSet.
const reasonNotStretched = "NotStretched"

// policy is a policy with a status.
type policy struct {
	object string
	meta   metav1.ObjectMeta
	status crdv1beta1.PolicyStatus
}

// policies returns the policies of the kinds of crd.antrea.io.
func (c *Cluster) policies() (all []policy) {
	for _, p := range c.ClusterPolicies {
		all = append(all, policy{"ClusterNetworkPolicy " + p.Name, p.ObjectMeta, p.Status})
	}
	for _, p := range c.Policies {
		all = append(all, policy{fmt.Sprintf("NetworkPolicy %s/%s of crd.antrea.io", p.Namespace, p.Name), p.ObjectMeta,
			p.Status})
	}
	return all
}

// policiesRealized names policies that are not in force.
func policiesRealized(_ *Facts, c *Cluster, r *report) {
	for _, p := range c.policies() {
		if _, recent := c.age(changed(p.meta), startTime); recent { // by a user, or by a controller after other changes
			continue
		}
		var why *metav1.Condition
		if x := condition(p.status.Conditions,
			crdv1beta1.ConditionRealizable); x != nil && x.Status == metav1.ConditionFalse {
			why = x
		} else if x := condition(p.status.Conditions, crdv1beta1.ConditionRealizationFailure); x != nil &&
			x.Status == metav1.ConditionTrue {
			why = x
		}
		switch {
		case why != nil && why.Reason == reasonNotStretched: // has a check of its own
		case why != nil:
			r.fail(fault{object: p.object, detail: "it is not in force as it is written: " + text(why.Reason, why.Message),
				remedy: "the message names the field or the Node"})
		case p.status.Phase == "" || p.status.ObservedGeneration != p.meta.Generation:
			r.fail(fault{object: p.object, detail: "no controller has looked at this version of it",
				remedy: "look at Deployment tombolo-policy-controller"})
		case p.status.Phase != crdv1beta1.PhaseRealized:
			r.fail(fault{object: p.object, detail: fmt.Sprintf("it is %s: in force on %d of %d Nodes", p.status.Phase,
				p.status.CurrentNodesRealized, p.status.DesiredNodesRealized),
				remedy: "see the checks of agents (TD010 to TD013): a Node has not reported it"})
		}
	}
	for _, p := range c.StandardPolicies {
		for _, x := range p.Status.Conditions {
			if x.Status == metav1.ConditionFalse && !c.fresh(p.CreationTimestamp) && !c.fresh(x.LastTransitionTime) {
				r.fail(fault{object: "ClusterNetworkPolicy " + p.Name + " of policy.networking.k8s.io",
					detail: "it is not in force as it is written: " + text(x.Reason, x.Message),
					remedy: "the message names the field or the Node"})
				break
			}
		}
	}
}

// stretched names policies with scope ClusterSet that mean one cluster alone.
func stretched(_ *Facts, c *Cluster, r *report) {
	seen := map[string]bool{}
	failed := func(object, message string) {
		if !seen[object] {
			r.fail(fault{object: object, detail: "its rules with scope ClusterSet mean this cluster alone: " + message,
				remedy: "set multicluster.enableStretchedNetworkPolicy: true in antrea-agent.conf, and " +
					"enableStretchedNetworkPolicy: true in the member's configuration"})
		}
		seen[object] = true
	}
	for _, p := range c.policies() {
		for _, x := range p.status.Conditions {
			if x.Reason == reasonNotStretched {
				failed(p.object, x.Message)
			}
		}
	}
	for _, a := range c.Agents {
		if a.Status == nil {
			continue
		}
		for _, p := range a.Status.Problems {
			if p.Reason == reasonNotStretched {
				failed(p.Object, p.Message)
			}
		}
	}
}

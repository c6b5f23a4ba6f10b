package policystatus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// declareKinds declares every kind of object that is watched.
func (t *tables) declareKinds() {
	type status = crdv1beta1.PolicyStatus
	conditions := func(list []metav1.Condition) status { return status{Conditions: list} }
	k, s := watch.NewKinds(t.engine), t.spans
	t.kinds = k
	watch.Into(k, s.Pods, policy.SpanFactsOf)
	watch.Into(k, s.Namespaces, policy.NamespaceLabels)
	watch.Into(k, s.ServiceSelectors, policy.ServiceSelectorOf)
	watch.Into(k, s.Tiers, policy.TierFactsOf, watch.Optional())

	kind := policy.AntreaClusterNetworkPolicy
	t.policies[kind] = withStatus(k, kind.String(), s.Policies[kind], policy.AntreaClusterFactsOf,
		func(o *crdv1beta1.ClusterNetworkPolicy) status { return o.Status })
	kind = policy.AntreaNetworkPolicy
	t.policies[kind] = withStatus(k, kind.String(), s.Policies[kind], policy.AntreaFactsOf,
		func(o *crdv1beta1.NetworkPolicy) status { return o.Status })
	kind = policy.ClusterNetworkPolicy
	t.policies[kind] = withStatus(k, kind.String(), s.Policies[kind], policy.ClusterFactsOf,
		func(o *npv1alpha2.ClusterNetworkPolicy) status { return conditions(o.Status.Conditions) })
	t.groups = withStatus(k, "group", s.Groups, policy.GroupFactsOf,
		func(o *crdv1beta1.Group) status { return conditions(o.Status.Conditions) })
	t.clusterGroups = withStatus(k, "clustergroup", s.ClusterGroups, policy.ClusterGroupFactsOf,
		func(o *crdv1beta1.ClusterGroup) status { return conditions(o.Status.Conditions) })
	t.reports = watch.NewSource(k, "nodepolicyreports", reportFactsOf, watch.Optional())
}

// withStatus declares a kind whose status the controller writes. The status is in a source of its own.
func withStatus[T client.Object, F any](k *watch.Kinds, name string, specs *derive.Source[derive.Object, F],
	facts func(T) F, status func(T) crdv1beta1.PolicyStatus) *derive.Source[derive.Object, object] {
	watch.Into(k, specs, facts, watch.Optional())
	return watch.NewSource(k, name+"-status", func(o T) object { return objectOf(o, status(o)) })
}

// reportFactsOf returns the part of a report that the tables read.
func reportFactsOf(r *tombolov1alpha1.NodePolicyReport) *tombolov1alpha1.NodePolicyReport {
	return &tombolov1alpha1.NodePolicyReport{Policies: r.Policies, Failures: r.Failures, Problems: r.Problems}
}

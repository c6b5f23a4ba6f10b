package imports

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
)

// States of an imported Service.
const (
	Imported = "imported"
	Pending  = "pending" // the Service has no address yet
	Failed   = "failed"
	Skipped  = "skipped" // its Namespace does not exist here
)

// States counts the Services that the leader has for this cluster, by state.
func (t *Tables) States(m membership.Membership) map[string]int {
	states, seen := map[string]int{Imported: 0, Pending: 0, Failed: 0, Skipped: 0},
		map[derive.Object]bool{}
	for _, row := range t.base.ResourceImports.Unordered() {
		ri := row.Value
		of := derive.Object{Namespace: ri.Spec.Namespace, Name: ri.Spec.Name}
		if ri.Spec.Kind == multicluster.ServiceImportKind && ri.DeletionTimestamp.IsZero() && m.IsFor(ri) && !seen[of] {
			seen[of] = true
			states[t.stateOf(of)]++
		}
	}
	return states
}

// stateOf returns the state of an imported Service. Its name is the name in the ClusterSet.
func (t *Tables) stateOf(of derive.Object) string {
	i, ok := t.Imports.Get(of)
	if !ok {
		if ns, there := t.base.Namespaces.Get(derive.Object{Name: of.Namespace}); !there || !ns.DeletionTimestamp.IsZero() {
			return Skipped
		}
		return Failed
	}
	if i.ServiceImport != nil {
		if apimeta.IsStatusConditionTrue(i.ServiceImport.Status.Conditions,
			string(mcsv1beta1.ServiceImportConditionReady)) {
			return Imported
		}
		return Failed
	}
	service, _ := t.services.Services.Get(derive.ObjectOf(i.Service))
	if si, _ := t.ServiceImports.Get(of); si != nil && !services.Imported(si) && !byAntrea(si, service) {
		return Failed // a user's ServiceImport has its name
	}
	return Pending
}

package leader

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// clusterInfos passes the clusters' network information on, the oldest export first, and returns
// what it passes on by cluster ID. An address range or a gateway address belongs to one cluster:
// to the one whose ResourceImport has it, or had it a short while ago, else to the one whose export
// is the oldest (package claims). An export that claims another's fails alone: what does not overlap is passed on.
func (p *planner) clusterInfos(exports []*mcv1alpha1.ResourceExport) map[string]*mcv1alpha1.ClusterInfo {
	current := map[string]*mcv1alpha1.ClusterInfo{}
	for _, ri := range p.ResourceImports {
		if ri.Spec.Kind == multicluster.ClusterInfoKind && ri.DeletionTimestamp == nil {
			current[ri.Name] = ri.Spec.ClusterInfo
		}
	}
	var candidates []claims.Candidate
	var of []*mcv1alpha1.ResourceExport
	from := map[string]bool{}
	for _, re := range exports {
		id, info := re.Spec.ClusterID, re.Spec.ClusterInfo
		switch {
		case info == nil:
			p.fail(re, "spec.clusterInfo is missing")
			continue
		case info.ClusterID != id:
			p.fail(re, "spec.clusterInfo.clusterID is %q: expected %q, as in spec.clusterID", info.ClusterID, id)
			continue
		case from[id]:
			p.fail(re, "another ResourceExport describes cluster %s already; delete one of them", id)
			continue
		}
		from[id] = true
		held := current[re.Name]
		if held != nil && held.ClusterID != id {
			held = nil
		}
		if held == nil {
			held = p.Imported[id]
		}
		candidates = append(candidates, claims.Candidate{ClusterID: id, Wanted: info, Held: held})
		of = append(of, re)
	}
	announced := len(candidates)
	for _, id := range slices.Sorted(maps.Keys(p.Imported)) {
		if !from[id] {
			candidates = append(candidates, claims.Candidate{ClusterID: id, Held: p.Imported[id]})
		}
	}
	imported := map[string]*mcv1alpha1.ClusterInfo{}
	for i, decision := range claims.Decide(candidates, p.pins())[:announced] {
		re := of[i]
		switch {
		case len(decision.Faults) > 0:
			p.fail(re, "%s", faultsText(decision.Faults))
		case len(re.Status.Conditions) > 0 || p.Refused[importName(re)] != "":
			p.succeed(re) // it failed before, or does now; otherwise such exports have no condition
		}
		if decision.Info == nil {
			continue
		}
		imported[re.Spec.ClusterID] = decision.Info
		p.want(re.Name, map[string]bool{re.Spec.ClusterID: true}, mcv1alpha1.ResourceImportSpec{
			Namespace: p.Namespace, Name: re.Name, Kind: multicluster.ClusterInfoKind,
			ClusterInfo: decision.Info.DeepCopy(),
		})
	}
	return imported
}

// pins are what the administrator has written into the ClusterSet's annotations.
func (p *planner) pins() claims.Pins {
	sets := inOrder(p.ClusterSets)
	if len(sets) == 0 {
		return nil
	}
	pins, faults := claims.ReadPins(sets[0].Annotations)
	for _, f := range faults {
		p.problem(problem.Object{Kind: "ClusterSet", Namespace: sets[0].Namespace, Name: sets[0].Name}, f.Field, "InvalidAnnotation", "%s", f.Message)
	}
	return pins
}

// faultsText names what is wrong with a ClusterInfo: the first few, since it becomes a condition.
func faultsText(faults []claims.Fault) string {
	const most = 5
	var texts []string
	for _, f := range faults[:min(len(faults), most)] {
		texts = append(texts, "spec.clusterInfo."+f.String())
	}
	if more := len(faults) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

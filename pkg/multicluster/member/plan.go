package member

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Desired is what should be there. A kind whose Keep flag is set is not touched at all in this
// round, because the View does not know enough to decide about it.
type Desired struct {
	// Area is the Common Area to be connected to. Nil leaves the connection as it is, since
	// what it takes is not known at the moment.
	Area *Area
	// Leave says that this cluster is in no ClusterSet: its announcement and its exports are
	// deleted in the area it was connected to.
	Leave bool

	// ClusterSet is the ClusterSet with the spec and status it should have; nil leaves it.
	ClusterSet *mcv1alpha2.ClusterSet
	// ServiceExports are those whose conditions are known, with these conditions.
	ServiceExports []*mcsv1alpha1.ServiceExport

	KeepImports        bool // of Services, Endpoints, ServiceImports and ClusterInfoImports
	Services           []*corev1.Service
	Endpoints          []*Endpoints
	ServiceImports     []*mcsv1alpha1.ServiceImport
	ClusterInfoImports []*mcv1alpha1.ClusterInfoImport

	KeepGateways bool
	Gateways     []*mcv1alpha1.Gateway

	// Announce is the announcement to send to the leader now; nil if none is due.
	Announce        *mcv1alpha1.MemberClusterAnnounce
	KeepExports     bool
	ResourceExports []*mcv1alpha1.ResourceExport

	// Again is when to plan again even if nothing changes; zero for never.
	Again time.Time
}

// Plan says what this cluster should have, in itself and in the leader, for a view. What it
// cannot do for one object becomes a Problem of that object and does not stop the others.
func Plan(v View) (Desired, []problem.Problem) {
	set, problems := chooseClusterSet(v)
	if set == nil {
		return Desired{Leave: true}, problems // nothing desired: leftovers go
	}
	p := planner{View: v, set: set, problems: problems}
	p.join()
	if p.id == "" {
		p.keepAll()
		return p.desired, p.problems
	}
	p.configured()
	p.gateways()
	p.imports()
	p.exports()
	p.clusterInfo()
	p.clusterInfoVerdict()
	return p.desired, p.problems
}

// planner carries a plan in the making.
type planner struct {
	View
	set      *mcv1alpha2.ClusterSet // the one this cluster is in
	id       string                 // this cluster's ID; empty if it has none
	joined   bool                   // the leader has accepted this cluster and all of its state has been read
	gateway  *mcv1alpha1.Gateway    // the desired one; nil if none
	desired  Desired
	problems []problem.Problem
}

func (p *planner) problem(object problem.Object, field, reason, message string) {
	p.problems = append(p.problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: message})
}

func (p *planner) keepAll() {
	p.desired.KeepImports, p.desired.KeepGateways, p.desired.KeepExports = true, true, true
}

// again asks for a new plan at a time, or earlier.
func (p *planner) again(at time.Time) {
	if p.desired.Again.IsZero() || at.Before(p.desired.Again) {
		p.desired.Again = at
	}
}

// chooseClusterSet returns the ClusterSet this cluster is in: the oldest, since a Namespace
// may have only one. It returns nil if there is none, or only ones being deleted.
func chooseClusterSet(v View) (*mcv1alpha2.ClusterSet, []problem.Problem) {
	var chosen *mcv1alpha2.ClusterSet
	for _, cs := range inOrder(v.ClusterSets) {
		if cs.DeletionTimestamp.IsZero() && (chosen == nil || cs.CreationTimestamp.Before(&chosen.CreationTimestamp)) {
			chosen = cs
		}
	}
	var problems []problem.Problem
	for _, cs := range inOrder(v.ClusterSets) {
		if cs != chosen && cs.DeletionTimestamp.IsZero() {
			problems = append(problems, problem.Problem{
				Object: object("ClusterSet", cs.Namespace, cs.Name), Reason: "MultipleClusterSets",
				Message: "ignored: Namespace " + cs.Namespace + " already has ClusterSet " + chosen.Name +
					" and a cluster can be in only one; delete one of the two",
			})
		}
	}
	return chosen, problems
}

// object names an object for Problems; ns is empty for cluster-scoped kinds.
func object(kind, ns, name string) problem.Object {
	return problem.Object{Kind: kind, Namespace: ns, Name: name}
}

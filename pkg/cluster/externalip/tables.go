package externalip

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// tables are the statuses that Services and pools should have.
type tables struct {
	engine *derive.Engine
	kinds  *watch.Kinds

	services     *derive.Source[derive.Object, serviceFacts]
	pools        *derive.Source[derive.Object, poolFacts]
	nodes        *derive.Source[derive.Object, nodeFacts]
	ranges       *derive.Source[derive.Object, []netip.Prefix]
	assignment   *derive.Table[derive.Name, assignment]
	serviceSteps *derive.Table[derive.Object, serviceStep]
	poolSteps    *derive.Table[derive.Object, poolStep]
}

const self derive.Name = "self"

func newTables() *tables {
	t := &tables{engine: derive.New()}
	k := watch.NewKinds(t.engine)
	t.kinds = k
	t.services = watch.NewSource(k, "services", serviceFactsOf)
	// A result without pools, such as one before the definition is installed, removes no Service's address.
	t.pools = watch.NewSource(k, "externalippools", poolFactsOf, watch.Optional())
	t.nodes = watch.NewSource(k, "nodes", nodeFactsOf)
	t.ranges = watch.NewSource(k, "servicecidrs", takenByServices, watch.Optional())
	one := derive.NewSource[derive.Name, bool](t.engine, "one")
	one.Set(self, true)
	one.Loaded()
	t.assignment = derive.NewTable(t.engine, "assignment", t.assign, derive.KeysOf(one))
	t.serviceSteps = derive.NewTable(t.engine, "service-steps", t.serviceStep, derive.KeysOf(t.services))
	t.poolSteps = derive.NewTable(t.engine, "pool-steps", t.poolStep, derive.KeysOf(t.pools))
	return t
}

func (t *tables) assign(_ derive.Name, r *derive.Reader) (assignment, []problem.Problem) {
	v := view{Services: derive.All(r, t.services), Pools: derive.All(r, t.pools), Nodes: derive.All(r, t.nodes)}
	for _, row := range derive.All(r, t.ranges) {
		v.Ranges = append(v.Ranges, row.Value...)
	}
	return assign(v), nil
}

// serviceStep is the desired status of a Service.
type serviceStep struct {
	Facts   serviceFacts
	Addrs   addresses
	Want    reported // the zero value removes the condition
	Due     bool     // it has another status
	Problem *problem.Problem
}

func (t *tables) serviceStep(key derive.Object, r *derive.Reader) (serviceStep, []problem.Problem) {
	f, _ := derive.Get(r, t.services, key)
	all, _ := derive.Get(r, t.assignment, self)
	a, ok := all.Services[key]
	if !ok {
		return serviceStep{}, nil
	}
	s := serviceStep{Facts: f, Addrs: a.Addrs, Problem: a.Problem}
	switch {
	case f.Pool == "":
	case a.Problem != nil:
		s.Want = reported{Status: metav1.ConditionFalse, Reason: a.Problem.Reason.String(),
			Message: a.Problem.Field + ": " + a.Problem.Message}
	default:
		s.Want = reported{Status: metav1.ConditionTrue, Reason: reasonAssigned.String(), Message: "from ExternalIPPool " +
			f.Pool}
	}
	have := f.Reported
	have.Generation = 0
	s.Due = have != s.Want || f.Have != s.Addrs.String()
	return s, nil
}

// poolStep is the desired status of a pool.
type poolStep struct {
	Facts    poolFacts
	Want     crdv1beta1.ExternalIPPoolStatus
	Due      bool
	Problems []problem.Problem
}

func (t *tables) poolStep(key derive.Object, r *derive.Reader) (poolStep, []problem.Problem) {
	f, _ := derive.Get(r, t.pools, key)
	all, _ := derive.Get(r, t.assignment, self)
	state, ok := all.Pools[key]
	if !ok {
		return poolStep{}, nil
	}
	s := poolStep{Facts: f, Problems: state.Problems}
	s.Want.Usage, s.Want.Conditions = state.Usage, slices.Clone(f.Conditions)
	c := metav1.Condition{
		Type: ConditionUsable, Status: metav1.ConditionTrue, Reason: reasonUnderstood.String(),
		Message:            "all of it is understood",
		ObservedGeneration: f.Generation,
	}
	if len(state.Problems) > 0 {
		first := state.Problems[0]
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, first.Reason.String(), first.Field+": "+first.Message
	}
	if old := meta.FindStatusCondition(s.Want.Conditions, ConditionUsable); old == nil {
		s.Want.Conditions = append(s.Want.Conditions, c)
	} else {
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
	}
	s.Due = s.Want.Usage != f.Usage || f.Reported != (reported{c.Status, c.Reason, c.Message, f.Generation})
	return s, nil
}

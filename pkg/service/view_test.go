package service

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// View is everything that the load balancing of a Node depends on.
type View struct {
	Services       []*corev1.Service
	Slices         []*discoveryv1.EndpointSlice
	NodeName, Zone string // of this Node
	SCTP, Outside  bool
	Families       family.Families
}

// Plan evaluates the tables from nothing for a view.
func Plan(v View) ([]Frontend, []problem.Problem) {
	e := derive.New()
	t := NewTables(e, v.NodeName, func(*derive.Reader) string { return v.Zone }, v.SCTP)
	t.Outside, t.Families = v.Outside, func(*derive.Reader) family.Families { return v.Families }
	for _, s := range v.Services {
		t.Services.Set(derive.ObjectOf(s), FactsOf(s))
	}
	for _, s := range v.Slices {
		t.Slices.Set(derive.ObjectOf(s), SliceFactsOf(s))
	}
	t.Services.Loaded()
	t.Slices.Loaded()
	e.Pass()
	return t.all(), e.Problems()
}

// all returns all frontends, ordered by namespace, Service, protocol and address.
func (t *Tables) all() []Frontend {
	var out []Frontend
	for _, row := range t.Frontends.All() {
		out = append(out, row.Value...)
	}
	return out
}

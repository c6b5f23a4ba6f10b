package agent

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// balance keeps the load balancing of this Node from one pass to the next, so that a pass costs
// what has changed. It is for one goroutine.
type balance struct {
	engine   *derive.Engine
	tables   *service.Tables
	services versions
	slices   versions
}

// versions are the objects that were put into a table, by key, with their resourceVersions.
type versions map[derive.Object]string

func newBalance(c config.Config, node string) *balance {
	e := derive.New()
	b := &balance{engine: e, tables: service.NewTables(e, node, knowsSCTP(c)), services: versions{}, slices: versions{}}
	b.tables.Services.Loaded() // a pass is made only when every source of the agent is loaded
	b.tables.Slices.Loaded()
	return b
}

// knowsSCTP says whether the datapath can translate SCTP: the userspace datapath's connection
// tracker has no SCTP helper (OVS 3.1 lib/conntrack.c), the kernel's has.
func knowsSCTP(c config.Config) bool { return c.OVSDatapathType == "system" }

// update takes the Services and EndpointSlices of a View and gives it their frontends.
func (b *balance) update(v *View) {
	refresh(b.services, b.tables.Services, v.Services, service.FactsOf)
	refresh(b.slices, b.tables.Slices, v.EndpointSlices, service.SliceFactsOf)
	b.engine.Pass()
	v.Balanced = &Balanced{Frontends: b.tables.All(), Problems: b.engine.Problems()}
}

// refresh brings a table to what a list says. An object whose resourceVersion is known is not
// even parsed.
func refresh[T client.Object, F any](known versions, table *derive.Source[derive.Object, F], list []T, facts func(T) F) {
	there := make(map[derive.Object]bool, len(list))
	for _, o := range list {
		key, version := service.KeyOf(o), o.GetResourceVersion()
		there[key] = true
		if had, ok := known[key]; ok && had == version && version != "" {
			continue
		}
		known[key] = version
		table.Set(key, facts(o))
	}
	for key := range known {
		if !there[key] {
			delete(known, key)
			table.Delete(key)
		}
	}
}

// Balanced is what was derived from a View's Services and EndpointSlices beforehand.
type Balanced struct {
	Frontends []service.Frontend
	Problems  []problem.Problem
}

// balanced returns the frontends of a View: those that it comes with, else made from nothing.
func (v View) balanced() ([]service.Frontend, []problem.Problem) {
	if v.Balanced != nil {
		return v.Balanced.Frontends, v.Balanced.Problems
	}
	return service.Plan(service.View{Services: v.Services, Slices: v.EndpointSlices, NodeName: v.NodeName, SCTP: knowsSCTP(v.Config)})
}

package service

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Health is the answer of this Node to a load balancer that asks about a Service with externalTrafficPolicy Local.
type Health struct {
	Port  uint16 // healthCheckNodePort
	Ready int    // ready endpoints on this Node, each address counted once
}

// healthTable adds the answers for Services that have a port for them.
func (t *Tables) healthTable(e *derive.Engine) {
	t.Health = derive.NewTable(e, "service-health", t.health, derive.KeysOfIndex(derive.NewIndex(t.Services, "health",
		func(key derive.Object, f Facts) []derive.Object {
			if !t.Outside || f.Outside.HealthPort == 0 || len(f.VIPs) == 0 {
				return nil
			}
			return []derive.Object{key}
		})))
}

func (t *Tables) health(key derive.Object, r *derive.Reader) (Health, []problem.Problem) {
	facts, _ := derive.Get(r, t.Services, key)
	ready := map[netip.Addr]bool{}
	for _, slice := range derive.List(r, t.ByService, key) {
		for _, e := range slice.Value.Endpoints {
			if e.Node == t.node && (e.Ready || facts.PublishNotReady) {
				ready[e.Addr] = true
			}
		}
	}
	return Health{facts.Outside.HealthPort, len(ready)}, nil
}

package config

import (
	"fmt"
	"maps"
	"slices"
)

// gate is one feature gate of the documented configuration.
type gate struct {
	on     bool // by default
	locked bool // may not be changed
	have   bool // this version does it
}

// gates lists every documented feature gate with its documented default.
var gates = map[string]gate{
	"AdminNetworkPolicy":            {},
	"AntreaIPAM":                    {},
	"AntreaNodeConfig":              {on: true},
	"AntreaPolicy":                  {on: true, have: true},
	"AntreaProxy":                   {on: true, locked: true, have: true},
	"BGPPolicy":                     {},
	"CleanupStaleUDPSvcConntrack":   {on: true, have: true},
	"ClusterNetworkPolicy":          {have: true},
	"Egress":                        {on: true},
	"EgressSeparateSubnet":          {on: true},
	"EgressTrafficShaping":          {},
	"EndpointSlice":                 {on: true, locked: true, have: true},
	"ExternalNode":                  {},
	"FlowExporter":                  {},
	"IPsecCertAuth":                 {},
	"L7NetworkPolicy":               {},
	"LoadBalancerModeDSR":           {},
	"Multicast":                     {on: true},
	"Multicluster":                  {have: true},
	"NFTablesHostNetworkMode":       {have: true},
	"NetworkPolicyStats":            {on: true},
	"NodeIPAM":                      {on: true},
	"NodeLatencyMonitor":            {},
	"NodeNetworkPolicy":             {},
	"NodePortLocal":                 {on: true},
	"PacketCapture":                 {},
	"PreferSameTrafficDistribution": {have: true},
	"SecondaryNetwork":              {},
	"ServiceExternalIP":             {on: true},
	"ServiceTrafficDistribution":    {on: true, locked: true, have: true},
	"SupportBundleCollection":       {},
	"TopologyAwareHints":            {on: true, locked: true, have: true},
	"Traceflow":                     {on: true},
	"TrafficControl":                {},
}

// Missing returns the feature gates that this version does not have, in order: those that are on by default in the
// documented configuration, or those that are off.
func Missing(on bool) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if g := gates[name]; !g.have && g.on == on {
			out = append(out, name)
		}
	}
	return out
}

// gate checks one line of featureGates.
func (d *decoder) gate(line int, name string, on bool) {
	g, ok := gates[name]
	key := "featureGates." + name
	switch {
	case !ok:
		// Another version may know it: a new gate must not stop the agents of a version that is rolled back to.
		d.warn(line, key, "unknown feature gate"+suggest(name, slices.Sorted(maps.Keys(gates)))+"; it has no effect: remove it or correct its name")
	case g.locked && on != g.on:
		d.fail(line, key, fmt.Sprintf("is always %t and cannot be changed; remove it", g.on))
	case on && !g.have:
		what := "this version does not have it; nothing is switched on"
		if name == "L7NetworkPolicy" || name == "NodeNetworkPolicy" || name == "AdminNetworkPolicy" {
			what = "what asks for it is NOT enforced by this version (docs/policy.md)"
		}
		d.warn(line, key, what)
	}
}

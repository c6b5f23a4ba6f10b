// Package gates lists the feature gates of the documented configuration, and which of them this version has.
package gates

import (
	"maps"
	"slices"
)

// Gate is one feature gate.
type Gate struct {
	On     bool // by default
	Locked bool // may not be changed
	Have   bool // this version does it
}

// all has every documented feature gate with its documented default.
var all = map[string]Gate{
	"AdminNetworkPolicy":            {},
	"AntreaIPAM":                    {},
	"AntreaNodeConfig":              {On: true},
	"AntreaPolicy":                  {On: true, Have: true},
	"AntreaProxy":                   {On: true, Locked: true, Have: true},
	"BGPPolicy":                     {},
	"CleanupStaleUDPSvcConntrack":   {On: true, Have: true},
	"ClusterNetworkPolicy":          {Have: true},
	"Egress":                        {On: true},
	"EgressSeparateSubnet":          {On: true},
	"EgressTrafficShaping":          {},
	"EndpointSlice":                 {On: true, Locked: true, Have: true},
	"ExternalNode":                  {},
	"FlowExporter":                  {Have: true},
	"IPsecCertAuth":                 {},
	"L7NetworkPolicy":               {},
	"LoadBalancerModeDSR":           {},
	"Multicast":                     {On: true},
	"Multicluster":                  {Have: true},
	"NFTablesHostNetworkMode":       {Have: true},
	"NetworkPolicyStats":            {On: true},
	"NodeIPAM":                      {On: true},
	"NodeLatencyMonitor":            {Have: true},
	"NodeNetworkPolicy":             {},
	"NodePortLocal":                 {On: true},
	"PacketCapture":                 {Have: true},
	"PreferSameTrafficDistribution": {Have: true},
	"SecondaryNetwork":              {},
	"ServiceExternalIP":             {On: true, Have: true},
	"ServiceTrafficDistribution":    {On: true, Locked: true, Have: true},
	"SupportBundleCollection":       {},
	"TenantNetworks":                {Have: true},
	"TopologyAwareHints":            {On: true, Locked: true, Have: true},
	"Traceflow":                     {On: true, Have: true},
	"TrafficControl":                {},
}

// Of returns the gate of a name; false for a name that is not documented.
func Of(name string) (Gate, bool) {
	g, ok := all[name]
	return g, ok
}

// Stage returns how far a feature is, by the documented default of its gate: GA, BETA or ALPHA.
func (g Gate) Stage() string {
	switch {
	case g.Locked:
		return "GA"
	case g.On:
		return "BETA"
	}
	return "ALPHA"
}

// Names returns the names of all gates, sorted.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Missing returns the feature gates that this version does not have and whose documented default is on, or is not. They
// are in order.
func Missing(on bool) (out []string) {
	for _, name := range Names() {
		if g := all[name]; !g.Have && g.On == on {
			out = append(out, name)
		}
	}
	return out
}

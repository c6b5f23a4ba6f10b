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
	About  string
}

// all has every documented feature gate with its documented default. About is the feature in the reference.
var all = map[string]Gate{
	"AdminNetworkPolicy":            {About: "the older kinds AdminNetworkPolicy and BaselineAdminNetworkPolicy"},
	"AntreaIPAM":                    {About: "addresses of Pods from pools"},
	"AntreaNodeConfig":              {On: true, About: "settings of single Nodes by the kind AntreaNodeConfig"},
	"AntreaPolicy":                  {On: true, Have: true, About: "the policies and groups of crd.antrea.io"},
	"AntreaProxy":                   {On: true, Locked: true, Have: true, About: "Services are served by the agent"},
	"BGPPolicy":                     {About: "routes are announced by BGP"},
	"CleanupStaleUDPSvcConntrack":   {On: true, Have: true, About: "UDP connections to removed endpoints of Services end"},
	"ClusterNetworkPolicy":          {Have: true, About: "the kind ClusterNetworkPolicy of policy.networking.k8s.io"},
	"Egress":                        {On: true, About: "source addresses for traffic that leaves the cluster"},
	"EgressSeparateSubnet":          {On: true, About: "subnets for addresses of Egress"},
	"EgressTrafficShaping":          {About: "limits of bandwidth for Egress"},
	"EndpointSlice":                 {On: true, Locked: true, Have: true, About: "endpoints come from EndpointSlices"},
	"ExternalNode":                  {About: "policies for machines outside of the cluster"},
	"FlowExporter":                  {Have: true, About: "flow records are sent by IPFIX, with flowExporter.enable"},
	"IPsecCertAuth":                 {About: "IPsec with certificates"},
	"L7NetworkPolicy":               {About: "rules about HTTP and TLS"},
	"LoadBalancerModeDSR":           {About: "answers of load balancers go to the client directly"},
	"Multicast":                     {On: true, About: "IGMP and packets to groups"},
	"Multicluster":                  {Have: true, About: "the part in a ClusterSet, with multicluster.enableGateway"},
	"NFTablesHostNetworkMode":       {Have: true, About: "the host's rules are made with nftables, which is always so"},
	"NetworkPolicyStats":            {On: true, About: "counters of policies as objects of stats.antrea.io"},
	"NodeIPAM":                      {On: true, About: "ranges of Nodes are assigned by Antrea's controller"},
	"NodeLatencyMonitor":            {Have: true, About: "Nodes probe each other, if there is a NodeLatencyMonitor"},
	"NodeNetworkPolicy":             {About: "policies for Nodes"},
	"NodePortLocal":                 {On: true, About: "ports of the Node for single Pods"},
	"PacketCapture":                 {Have: true, About: "the kind PacketCapture"},
	"PreferSameTrafficDistribution": {Have: true, About: "PreferSameNode of Services, which is always followed"},
	"SecondaryNetwork":              {About: "further interfaces of Pods"},
	"ServiceExternalIP":             {On: true, Have: true, About: "load balancers get addresses of ExternalIPPools"},
	"ServiceTrafficDistribution":    {On: true, Locked: true, Have: true, About: "trafficDistribution of Services"},
	"SupportBundleCollection":       {About: "the kind SupportBundleCollection"},
	"TenantNetworks":                {Have: true, About: "Namespaces with their own networks, isolated from others"},
	"TopologyAwareHints":            {On: true, Locked: true, Have: true, About: "hints of EndpointSlices about zones"},
	"Traceflow":                     {On: true, Have: true, About: "the kind Traceflow"},
	"TrafficControl":                {About: "packets are mirrored or redirected"},
}

// Of returns the gate of a name; false for a name that is not documented.
func Of(name string) (Gate, bool) {
	g, ok := all[name]
	return g, ok
}

// Stage returns the maturity of a feature, by the documented default of its gate: GA, BETA or ALPHA.
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

// Missing returns the feature gates of features that this version lacks, in order. on selects the gates by their
// documented default.
func Missing(on bool) (out []string) {
	for _, name := range Names() {
		if g := all[name]; !g.Have && g.On == on {
			out = append(out, name)
		}
	}
	return out
}

package api

import "time"

// Names of the relay's objects in a cluster.
const (
	RelayNamespace = "tombolo-observe" // its own, so that a right to forward ports reaches no other Pods
	RelayService   = "tombolo-observe" // also the name of its Deployment and of its component label
	RelayPort      = 8443              // of its Pods
	RelayPortName  = "https"
	// RelayCA is the ConfigMap with the CAs of the relay's certificate, under the key RelayCAKey.
	RelayCA    = "tombolo-observe-ca"
	RelayCAKey = "ca.crt"
	// RelaySecret has the certificate.
	RelaySecret = "tombolo-observe-tls"
	// RelayAudience is the audience of tokens for the relay.
	RelayAudience = "tombolo-observe"
	// RelayHost is the name in the relay's certificate.
	RelayHost = RelayService + "." + RelayNamespace + ".svc"
	// ObserverAccount is the ServiceAccount for people who may see everything.
	ObserverAccount = "tombolo-observer"
	// AccessGroup is the API group of the virtual resources that the relay asks the API server about: flows (list, in
	// a Namespace), nodes (list), nodes/proxy (get) and metrics (get). No objects of them exist.
	AccessGroup = "observe.tombolo.io"
)

// Paths of the relay. It has PathObserve too, for all Nodes of the cluster.
const (
	// PathNodes answers with NodeList. PathNodes + "/NAME" + a path of Reading returns the answer of a Node's agent.
	PathNodes = "/v1/nodes"
	// PathMetrics returns the relay's own metrics. Agents serve theirs at the same path. PathMetrics + "/nodes/NAME"
	// returns the metrics of a Node's agent.
	PathMetrics = "/metrics"
	// PathTargets answers with the targets of a Prometheus server, for http_sd_configs.
	PathTargets = "/sd"
	// AskParameter names a Node to ask, in a query of PathObserve. Without it all Nodes are asked.
	AskParameter = "ask"
)

// Reading are the paths that an agent serves through the relay. They are read with GET and change nothing, except that
// PathObserve with connections=true makes the switch report new connections.
var Reading = []string{
	PathObserve, PathFlows, PathGroups, PathPorts, PathPeers, PathStatus, PathTrace, PathTraces, PathExplain, PathPolicies,
	PathRules, PathIdentities, PathWhy, PathMeters, PathOVSDB, PathLinks, PathRoutes, PathNFTables, PathGoroutines,
	PathConnections, PathMetrics, PathAgentInfo, PathFeatureGates, PathLearnedNames, PathExternalIPs, PathLogLevel,
	PathProbes, PathHop,
}

// RelayNode is the state of a Node at one replica of the relay.
type RelayNode struct {
	Name      string    `json:"name"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"` // of the connection
}

// NodeList is the answer of PathNodes, by name.
type NodeList struct {
	Nodes []RelayNode `json:"nodes"`
}

// Access is a right that a user lacks.
type Access struct {
	Group     string `json:"group"`
	Resource  string `json:"resource"` // with the subresource, such as nodes/proxy
	Verb      string `json:"verb"`
	Namespace string `json:"namespace,omitempty"` // empty for the whole cluster
}

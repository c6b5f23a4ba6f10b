// Package ui serves the map of a ClusterSet on 127.0.0.1. Build merges the objects of several API servers into one
// Model. A Hub passes the changed sections of the Model on to pages, and a Server serves the page.
package ui

import "time"

// State is the state of a part of the map. The page shows it as a shape, a word and a colour.
type State string

// States, from the best to the worst. Unknown is never shown as good.
const (
	OK      State = "ok"
	Unknown State = "unknown"
	Warn    State = "warn"
	Bad     State = "bad"
)

// worse returns the worse of two states.
func worse(a, b State) State {
	rank := map[State]int{OK: 0, Unknown: 1, Warn: 2, Bad: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// Model is all that the page shows.
type Model struct {
	ClusterSets []string
	Clusters    []Cluster // by key
	Links       []Link    // by key
	Services    []Service // by Namespace and name
	Nodes       map[string][]Node
	Timeline    []Change // the newest first
	// AsOf is the time of the last answer of each cluster's API server. A cluster without a context has no entry.
	AsOf map[string]time.Time
	// waysOf returns the ways of a link if the Model only has their number. It is nil if the links have their ways.
	waysOf func(key string) []Way
}

// Cluster is one cluster of a ClusterSet.
type Cluster struct {
	Key        string `json:"key"`
	ID         string `json:"id"` // cluster ID, or the context of a cluster without one
	ClusterSet string `json:"clusterSet,omitempty"`
	// Context is the context of the kubeconfig. It is empty if the cluster is known from other clusters only.
	Context  string         `json:"context,omitempty"`
	State    State          `json:"state"`
	Word     string         `json:"word"`          // the state in a few words
	Why      string         `json:"why,omitempty"` // the reason in a sentence
	Version  string         `json:"version,omitempty"`
	Agents   []string       `json:"agents,omitempty"` // versions of the agents that answered
	Leader   bool           `json:"leader,omitempty"`
	Services []string       `json:"services,omitempty"` // ranges of ClusterIPs
	Pods     []string       `json:"pods,omitempty"`     // ranges of Pods
	Gateways []Gateway      `json:"gateways"`
	Seen     []Seen         `json:"seen,omitempty"`
	Policies map[string]int `json:"policies,omitempty"` // number of objects of each kind
	Nodes    NodeCount      `json:"nodes"`
	Exports  int            `json:"exports"`
	Imports  int            `json:"imports"`
	Problems []Problem      `json:"problems,omitempty"`
	LeftOut  int            `json:"leftOut,omitempty"` // problems beyond the first
	Commands []string       `json:"commands,omitempty"`
	Observe  string         `json:"observe,omitempty"` // the command that shows the records of its agents
	// Current is set if the states of the cluster are present ones, so that the timeline may compare them.
	Current bool `json:"-"`
}

// NodeCount counts the Nodes of a cluster.
type NodeCount struct {
	All      int `json:"all"`
	Ready    int `json:"ready"`
	Asked    int `json:"asked"`    // whose agents were asked
	Answered int `json:"answered"` // whose agents answered
}

// Gateway is a Node that carries traffic to other clusters.
type Gateway struct {
	Name     string   `json:"name,omitempty"` // empty if only its address is known
	Address  string   `json:"address"`
	Internal string   `json:"internal,omitempty"`
	Phase    string   `json:"phase,omitempty"` // joining, leaving or left
	State    State    `json:"state"`
	Word     string   `json:"word"`
	Commands []string `json:"commands,omitempty"`
}

// Seen is a condition of a cluster as another cluster, or the cluster itself, reports it.
type Seen struct {
	By        string    `json:"by"`   // cluster ID
	Kind      string    `json:"kind"` // ClusterSet or ClusterInfoImport
	Condition Condition `json:"condition"`
}

// Condition is a condition of an object.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Link is all ways between two clusters.
type Link struct {
	Key   string `json:"key"`
	A     string `json:"a"` // keys of the clusters
	B     string `json:"b"`
	State State  `json:"state"`
	Word  string `json:"word"`
	AB    Count  `json:"ab"`
	BA    Count  `json:"ba"`
	// Ways is empty in a Model of many ways. The page then asks for the ways of one link.
	Ways     []Way    `json:"ways,omitempty"`
	Commands []string `json:"commands,omitempty"`
}

// Count counts ways in one direction.
type Count struct {
	Up      int `json:"up"`
	Down    int `json:"down"`
	Unknown int `json:"unknown"`
}

func (c *Count) add(d Direction) {
	switch d.State {
	case OK, Warn:
		c.Up++
	case Bad:
		c.Down++
	default:
		c.Unknown++
	}
}

// Way is the pair of Gateways of two clusters, with a tunnel in each direction.
type Way struct {
	A  End       `json:"a"`
	B  End       `json:"b"`
	AB Direction `json:"ab"`
	BA Direction `json:"ba"`
}

// End is a Gateway at the end of a way.
type End struct {
	Name    string `json:"name,omitempty"`
	Address string `json:"address"`
}

// Direction is one direction of a way, as the Gateway at its start reports it.
type Direction struct {
	State State  `json:"state"`
	Word  string `json:"word"` // up, down or unknown
	Why   string `json:"why,omitempty"`
	// Quality has the results of the probes that the Gateway at the start sends. They pass both directions.
	Quality *Quality `json:"quality,omitempty"`
}

// Quality is what probes of a way have found out.
type Quality struct {
	P50Seconds float64 `json:"p50"`
	P99Seconds float64 `json:"p99"`
	Loss       float64 `json:"loss"` // of the newest probes, 0 to 1
	Samples    int     `json:"samples"`
	Size       int     `json:"size"` // the largest packet that passes; 0 if it is not known
	MTU        int     `json:"mtu"`  // of Pods
}

// Service is a Service that clusters export or import.
type Service struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	State     State        `json:"state"`
	Exports   []ServiceEnd `json:"exports"`
	Imports   []ServiceEnd `json:"imports"`
}

// ServiceEnd is the export or the import of a Service in one cluster.
type ServiceEnd struct {
	Cluster    string      `json:"cluster"` // key
	State      State       `json:"state"`
	Word       string      `json:"word"`
	Conditions []Condition `json:"conditions,omitempty"`
	From       []string    `json:"from,omitempty"` // cluster IDs that an import has endpoints of
	IPs        []string    `json:"ips,omitempty"`
	Ports      []string    `json:"ports,omitempty"`
	Commands   []string    `json:"commands,omitempty"`
}

// Node is a Node of a cluster.
type Node struct {
	Name      string    `json:"name"`
	State     State     `json:"state"`
	Word      string    `json:"word"`
	Ready     string    `json:"ready"` // status of the condition Ready
	Gateway   bool      `json:"gateway,omitempty"`
	Addresses []string  `json:"addresses,omitempty"`
	Kubelet   string    `json:"kubelet,omitempty"`
	Agent     string    `json:"agent,omitempty"` // the agent's version
	AsOf      time.Time `json:"asOf,omitzero"`   // when the agent answered last
	Problems  []Problem `json:"problems,omitempty"`
	Commands  []string  `json:"commands,omitempty"`
}

// Problem is a defect of one object.
type Problem struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Command string `json:"command,omitempty"`
}

// Change is something that changed while the page's server ran.
type Change struct {
	Time    time.Time `json:"time"`
	Cluster string    `json:"cluster,omitempty"` // key
	Object  string    `json:"object"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	State   State     `json:"state"` // after the change
}

// Package api is the agent's debug API: HTTP and JSON on a unix socket of the Node, read by the tombolo command. These
// types are all that the two have to agree about. Fields are added, never renamed or given another meaning.
package api

import (
	"time"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
)

// Socket is the name of the socket on which the agent serves the debug API.
const Socket = "debug.sock"

// DefaultSocket is its path unless the agent is started with another directory.
const DefaultSocket = wire.DefaultRunDir + "/" + Socket

// Paths of the API. All are read with GET; an answer other than 200 carries an Error.
const (
	// PathObserve answers with lines of JSON, each a record.Event. Query: follow=true goes on until the reader leaves;
	// last=N begins with the newest N records that the filter accepts; since=DURATION, or a time (RFC 3339), begins with
	// records from then on; connections=true also records connections while the reader follows. All other keys are words
	// of record.Parse.
	PathObserve = "/v1/observe"

	// PathFlows answers with FlowList. Query: table=NAME (as in the agent's program),
	// owner=KIND (as Flow.Owner's first word, such as "Pod"), pod=NAMESPACE/NAME, service=NAMESPACE/NAME,
	// policy=NAME or NAMESPACE/NAME with kind=KIND of the policy.
	PathFlows = "/v1/flows"
	// PathGroups answers with GroupList.
	PathGroups = "/v1/groups"
	// PathPorts answers with PortList.
	PathPorts = "/v1/ports"
	// PathPeers answers with PeerList.
	PathPeers = "/v1/peers"
	// PathStatus answers with Status.
	PathStatus = "/v1/status"
	// PathTrace answers with Trace. Query: flow=FLOW, in ovs-ofctl's text.
	PathTrace = "/v1/trace"
	// PathTraces answers with TraceList: the first packet of a connection, over each version of IP that is asked about and
	// both ends have. Query: from, to, port, protocol and family as of PathWhy.
	PathTraces = "/v1/traces"
	// PathExplain answers with Explanation. Query: key=KEY, the name of a row of a derived table: "default/web" for a
	// Service, or the name of a port or a Node, or a cluster's ID.
	PathExplain = "/v1/explain"
)

// Error is the body of every answer that is not 200.
type Error struct {
	Error string `json:"error"` // one sentence with the remedy
	// Need is the right that the user lacks, in an answer 403 of the relay.
	Need *Access `json:"need,omitempty"`
}

// Flow is one flow as the switch holds it.
type Flow struct {
	Table    string  `json:"table"`   // the table's name, or its number without a name
	TableID  uint8   `json:"tableID"` // its number in the switch
	Priority uint16  `json:"priority"`
	Match    string  `json:"match"`           // ovs-ofctl's text; empty matches everything
	Actions  string  `json:"actions"`         // ovs-ofctl's text, tables by name
	Text     string  `json:"text"`            // the whole flow on one line, tables by name
	Owner    string  `json:"owner,omitempty"` // "Kind" or "Kind name" of what wants it; empty: not one of ours
	Cookie   uint64  `json:"cookie"`
	Packets  uint64  `json:"packets"`
	Bytes    uint64  `json:"bytes"`
	Duration float64 `json:"duration"` // seconds since it was added
}

// FlowList is the answer of PathFlows, in the order packets meet the tables and by
// descending priority within one.
type FlowList struct {
	Flows []Flow `json:"flows"`
}

// Group is one OpenFlow group as the switch holds it.
type Group struct {
	ID      uint32   `json:"id"`
	Type    string   `json:"type"`             // all, select, indirect, fast_failover
	Method  string   `json:"method,omitempty"` // of selection: hash, dp_hash; empty is the switch's own
	Buckets []Bucket `json:"buckets"`
	Owner   string   `json:"owner,omitempty"`
	Text    string   `json:"text"` // ovs-ofctl's text
}

// Bucket is one choice of a Group.
type Bucket struct {
	ID      uint32 `json:"id"`
	Weight  uint16 `json:"weight,omitempty"`
	Actions string `json:"actions"`
}

// GroupList is the answer of PathGroups, by ascending ID.
type GroupList struct {
	Groups []Group `json:"groups"`
}

// Port is one port of the integration bridge.
type Port struct {
	Name string `json:"name"`
	// OpenFlow number; 0 while the switch has not given one, -1 when it failed
	OFPort      int64    `json:"ofport"`
	Type        string   `json:"type"`             // contract's antrea-type: container, gateway, tunnel, ...
	Pod         string   `json:"pod,omitempty"`    // "namespace/name"
	IPs         []string `json:"ips,omitempty"`    // without prefix length
	MAC         string   `json:"mac,omitempty"`    // of the Pod for container ports, else of the port
	IfName      string   `json:"ifName,omitempty"` // the interface's name inside the Pod
	ContainerID string   `json:"containerID,omitempty"`
	PodUID      string   `json:"podUID,omitempty"`
	UUID        string   `json:"uuid,omitempty"`  // of the port's row in the OVSDB
	Error       string   `json:"error,omitempty"` // why Open vSwitch cannot use it
}

// PortList is the answer of PathPorts, by OpenFlow number.
type PortList struct {
	Ports []Port `json:"ports"`
}

// Peer is a destination of tunnels from this Node: another Node of the cluster, or another cluster of the ClusterSet.
type Peer struct {
	Kind     string   `json:"kind"` // Node or Cluster
	Name     string   `json:"name"` // the Node's name or the cluster's ID
	CIDRs    []string `json:"cidrs"`
	Gateways []string `json:"gateways,omitempty"` // a remote cluster's gateway addresses
	Via      string   `json:"via"`                // tunnel destination from this Node, of several the oldest
	// Ways are the tunnel destinations to a cluster, the oldest first, or the way to a Node if BFD watches it.
	Ways []Way  `json:"ways,omitempty"`
	Role string `json:"role,omitempty"` // of this Node towards the cluster: Gateway or Regular
}

// Way is one of the ways to another cluster: a tunnel from this Node.
type Way struct {
	To    string `json:"to"`              // tunnel destination
	State string `json:"state,omitempty"` // by BFD: up, down or init; empty where there is no BFD
	// Forwarding is set if BFD lets packets pass.
	Forwarding bool `json:"forwarding,omitempty"`
	// Diagnostic is why the state changed last, in the words of RFC 5880.
	Diagnostic string `json:"diagnostic,omitempty"`
	// RemoteState and RemoteDiagnostic are the same values for the far end, from its last packet. If no packets come, they
	// are "down" and "No Diagnostic".
	RemoteState      string `json:"remoteState,omitempty"`
	RemoteDiagnostic string `json:"remoteDiagnostic,omitempty"`
	// Flaps counts changes between up and not up since the port was made.
	Flaps uint64 `json:"flaps,omitempty"`
	// RxPackets and TxPackets are the port's counters, packets of BFD included.
	RxPackets uint64 `json:"rxPackets,omitempty"`
	TxPackets uint64 `json:"txPackets,omitempty"`
}

// PeerList is the answer of PathPeers: Nodes first, then clusters, each by name.
type PeerList struct {
	Peers []Peer `json:"peers"`
}

// Status reports whether this Node's network works and, when not, why.
type Status struct {
	Node     string    `json:"node"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	Waiting  []string  `json:"waiting,omitempty"`  // what is missing before it is ready
	Datapath string    `json:"datapath,omitempty"` // system or netdev
	OVS      string    `json:"ovs,omitempty"`      // Open vSwitch's version
	Gateway  string    `json:"gateway,omitempty"`  // the Node that is this cluster's multi-cluster gateway
	Role     string    `json:"role,omitempty"`     // None, Regular or Gateway
	OpenFlow OpenFlow  `json:"openflow"`
	Problems []Problem `json:"problems"`
	LastPass *Pass     `json:"lastPass,omitempty"`
	Network  *Network  `json:"network,omitempty"`
	Upcalls  *Upcalls  `json:"upcalls,omitempty"`
}

// Upcalls count packets for which the datapath had no cached flow, since it was made.
type Upcalls struct {
	Missed uint64 `json:"missed"` // they were handed to ovs-vswitchd
	Lost   uint64 `json:"lost"`   // they were dropped, since its queues were full
}

// Network has the settings that must agree between the ends of tunnels, and the sizes of packets.
type Network struct {
	Mode           string `json:"mode"`                 // trafficEncapMode
	Tunnel         string `json:"tunnel"`               // geneve, vxlan or gre
	Port           int    `json:"port,omitempty"`       // UDP port of tunnels; 0 for gre
	Encryption     string `json:"encryption"`           // between Nodes: none or wireGuard
	PeerEncryption string `json:"peerEncryption"`       // between clusters
	Over6          bool   `json:"over6,omitempty"`      // tunnels to Nodes are over IPv6
	PeersOver6     bool   `json:"peersOver6,omitempty"` // tunnels between clusters are over IPv6
	LinkMTU        int    `json:"linkMTU,omitempty"`    // of the interface that carries the tunnels; 0 while unknown
	PodMTU         int    `json:"podMTU,omitempty"`     // of new Pods; 0 while unknown
	// TunnelOverhead is the most that tunnels and encryption add to a packet of a Pod.
	TunnelOverhead int `json:"tunnelOverhead,omitempty"`
}

// Pass is what the agent did when something had changed last.
type Pass struct {
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`
	Evaluated int       `json:"evaluated"` // rows of derived tables
	Changed   int       `json:"changed"`   // rows that it changed
	Passes    uint64    `json:"passes"`    // since the agent started
}

// Explanation is the answer of PathExplain: the rows with the key, table by table.
type Explanation struct {
	Key  string `json:"key"`
	Rows []Row  `json:"rows"`
}

// Row is a row of a table, with what it comes from and what comes from it: "table[key]".
type Row struct {
	Table    string   `json:"table"`
	Value    string   `json:"value"`
	From     []string `json:"from,omitempty"`
	To       []string `json:"to,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// OpenFlow is the state of the connection to the switch.
type OpenFlow struct {
	Connected    bool              `json:"connected"`
	Connections  uint64            `json:"connections"`  // made since the agent started
	MessagesSent map[string]uint64 `json:"messagesSent"` // by OpenFlow message type, such as FLOW_MOD
	FlowMods     uint64            `json:"flowMods"`     // adds, changes and removals sent since the agent started
	GroupMods    uint64            `json:"groupMods"`
	Bundles      uint64            `json:"bundles"`
	Mended       uint64            `json:"mended"` // foreign changes put right
	Flows        int               `json:"flows"`  // wanted now
	Groups       int               `json:"groups"`
	LastError    string            `json:"lastError,omitempty"`
	Refused      []string          `json:"refused,omitempty"` // flows the switch does not take, with its reason
}

// Problem is something wrong with one object that the agent goes on without.
type Problem struct {
	Object  string `json:"object"` // "Kind namespace/name"
	Field   string `json:"field,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Trace is the answer of PathTrace.
type Trace struct {
	Flow   string            `json:"flow"`   // what was asked
	Output string            `json:"output"` // ofproto/trace's own text
	Tables map[string]string `json:"tables"` // table number in decimal -> name, for readable output
}

// TraceList is the answer of PathTraces, IPv4 first.
type TraceList struct {
	Traces []Trace `json:"traces"`
	// Networks are the decisions of networks of tenants, as text: one for each endpoint of a Service.
	Networks []string `json:"networks,omitempty"`
}

package api

import "time"

// These are paths about the Node itself, and about parts of the switch that no command shows. Bundles contain their
// answers (pkg/gather).
const (
	// PathMeters answers with MeterList.
	PathMeters = "/v1/meters"
	// PathOVSDB answers with the bridges and ports of the OVSDB, as the agent reads them (bridge.State).
	PathOVSDB = "/v1/ovsdb"
	// PathLinks answers with LinkList.
	PathLinks = "/v1/links"
	// PathRoutes answers with RouteList.
	PathRoutes = "/v1/routes"
	// PathNFTables answers with Text: our tables of nftables, in the words of the program nft.
	PathNFTables = "/v1/nftables"
	// PathGoroutines answers with Text: the agent's goroutines.
	PathGoroutines = "/v1/goroutines"
	// PathConnections answers with ConnectionList. Query: entries=true also lists the connections. The userspace datapath
	// forwards nothing while it lists them, so it lists none if there are many.
	PathConnections = "/v1/connections"
	// PathAgentInfo answers with the AntreaAgentInfo as the agent would write it now (crd.antrea.io/v1beta1).
	PathAgentInfo = "/v1/agentinfo"
	// PathFeatureGates answers with GateList.
	PathFeatureGates = "/v1/featuregates"
	// PathLearnedNames answers with NameList.
	PathLearnedNames = "/v1/names"
	// PathExternalIPs answers with ExternalIPList.
	PathExternalIPs = "/v1/externalips"
	// PathLogLevel answers with LogLevel. PUT with level=N in the query changes it until the agent restarts.
	PathLogLevel = "/v1/loglevel"
	// PathCapture answers with the pcapng file of a PacketCapture of this Node. Query: name=NAME. The file has users'
	// data, so the path is not in Reading.
	PathCapture = "/v1/capture"
	// PathLiveCapture answers with a pcapng stream, until the reader leaves. Query: spec=SPEC, the spec of a PacketCapture
	// at a Pod of this Node, as JSON. Without captureConfig the number of packets has no limit. Like PathCapture it is not
	// in Reading.
	PathLiveCapture = "/v1/capture/live"
)

// Gate is one feature gate.
type Gate struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`     // this agent does it
	Stage  string `json:"stage"`  // ALPHA, BETA or GA, as documented
	Absent bool   `json:"absent"` // this version does not have it
}

// GateList is the answer of PathFeatureGates, by name.
type GateList struct {
	Gates []Gate `json:"gates"`
}

// LearnedName is an address that DNS has answered to a Pod under a rule with names.
type LearnedName struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Expires time.Time `json:"expires"`
}

// NameList is the answer of PathLearnedNames, by name and address.
type NameList struct {
	Names []LearnedName `json:"names"`
}

// ExternalIP is an address from an ExternalIPPool that a Service has.
type ExternalIP struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Pool      string `json:"pool"`
	Address   string `json:"address"`
	// Candidates are the Nodes that may hold the address, the preferred one first.
	Candidates []string `json:"candidates,omitempty"`
	// Holder is the Node that its Lease names; empty while there is no holder.
	Holder string `json:"holder,omitempty"`
}

// ExternalIPList is the answer of PathExternalIPs, by Service and address.
type ExternalIPList struct {
	ExternalIPs []ExternalIP `json:"externalIPs"`
}

// LogLevel is the answer of PathLogLevel: 0 logs changes, 1 and more also logs their reasons.
type LogLevel struct {
	Level int `json:"level"`
}

// Meter is one meter of the switch.
type Meter struct {
	ID    uint32 `json:"id"`
	Owner string `json:"owner,omitempty"`
	Text  string `json:"text"` // ovs-ofctl's text
}

// MeterList is the answer of PathMeters, by ascending ID.
type MeterList struct {
	Meters []Meter `json:"meters"`
}

// Link is one link of the Node's network namespace.
type Link struct {
	Index     int      `json:"index"`
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	MTU       int      `json:"mtu"`
	MAC       string   `json:"mac,omitempty"`
	State     string   `json:"state"`
	Flags     string   `json:"flags"`
	Master    int      `json:"master,omitempty"` // the index of the bridge or bond that it is part of
	Addresses []string `json:"addresses,omitempty"`
	RxPackets uint64   `json:"rxPackets"`
	TxPackets uint64   `json:"txPackets"`
	RxDropped uint64   `json:"rxDropped"`
	TxDropped uint64   `json:"txDropped"`
	RxErrors  uint64   `json:"rxErrors"`
	TxErrors  uint64   `json:"txErrors"`
}

// LinkList is the answer of PathLinks, by index.
type LinkList struct {
	Links []Link `json:"links"`
}

// RouteList is the answer of PathRoutes: the routes of all tables, and the rules that choose among them, in the form of
// ip(8).
type RouteList struct {
	Rules   []string `json:"rules"`
	Routes  []string `json:"routes"`
	LeftOut int      `json:"leftOut,omitempty"` // routes beyond the limit of an answer
}

// Text is an answer for people.
type Text struct {
	Text string `json:"text"`
}

// ConnectionList is the answer of PathConnections.
type ConnectionList struct {
	Tracked int      `json:"tracked"`
	Limit   int      `json:"limit"`
	Entries []string `json:"entries,omitempty"` // of the zone of Services, in ovs-appctl's words
	LeftOut int      `json:"leftOut,omitempty"` // entries beyond the limit of an answer
}

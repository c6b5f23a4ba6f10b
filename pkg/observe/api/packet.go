package api

import "time"

// Paths about a real packet that is followed. They are no paths of Reading, since they send packets and change flows.
// Agents serve them on their own socket. With the feature gate Traceflow they also serve them to the relay, which asks
// only for objects of the kind Traceflow.
//
// PathPacketWatch answers with lines of PacketEvent: Ready once the switch reports packets that are followed, then what
// it has seen of the one. It goes on until the reader leaves, for PacketWatchLimit at most. Query: nonce, 16 digits of
// hexadecimal; protocol, srcPort and family of the packet; deliver=true lets the Pod at its end get the packet;
// forget=false keeps the connection that the packet has made, which may be a Pod's own.
//
// PathPacketSend has the switch of the client's Node take the packet, and answers with PacketSent. Query: as of PathHop
// for a client's first packet, with nonce and srcPort,
// with ttl if it is not 64, and with tcpFlags if they are not 2 (SYN).
const (
	PathPacketWatch = "/v1/packet/watch"
	PathPacketSend  = "/v1/packet/send"
)

// Following are the paths that an agent serves to the relay in addition to Reading, for Traceflows.
var Following = []string{PathPacketWatch, PathPacketSend}

// Bounds of packets that are followed.
const (
	PacketWatchLimit = 60 * time.Second
	PacketWatchers   = 48 // of a Node: of Traceflows, 8 of each replica of the relay, and of users' commands
	// Source ports that are chosen for packets.
	PacketPortFirst = 32768
	PacketPortLast  = 60999
	PacketDSCP      = 59 // of the packets
)

// PacketEvent is a line of PathPacketWatch.
type PacketEvent struct {
	Ready *PacketReady `json:"ready,omitempty"`
	Seen  *PacketSeen  `json:"seen,omitempty"`
}

// PacketReady is the first line.
type PacketReady struct {
	Node string `json:"node"`
}

// Points of PacketSeen.
const (
	PacketIn       = "in"       // it came into the switch
	PacketOut      = "out"      // it left for another Node, or for the host
	PacketHeld     = "held"     // it would have left for a Pod, which does not get it
	PacketGiven    = "given"    // it left for a Pod
	PacketDropped  = "dropped"  // the switch has dropped it
	PacketRejected = "rejected" // and the agent has answered with a reset or an ICMP error
)

// PacketSeen is a packet at a point of a Node.
type PacketSeen struct {
	Node     string    `json:"node"`
	At       time.Time `json:"at"` // by the Node's clock
	Point    string    `json:"point"`
	Protocol string    `json:"protocol"`
	Src      string    `json:"src"` // address, with port if the protocol has ports
	Dst      string    `json:"dst"`
	// Port is the port of the switch: "Pod namespace/name", "host", "tunnel" or its number.
	Port     string `json:"port,omitempty"`
	OuterSrc string `json:"outerSrc,omitempty"` // of a tunnel
	OuterDst string `json:"outerDst,omitempty"`
	// NextNode or NextCluster is where it goes.
	NextNode    string `json:"nextNode,omitempty"`
	NextCluster string `json:"nextCluster,omitempty"`
	// Table, Reason, Message, Rule and Policies are set for a packet that was dropped or rejected, as in HopEnd.
	Table    string   `json:"table,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Rule     string   `json:"rule,omitempty"`
	Policies []string `json:"policies,omitempty"`
	// Egress and Ingress are set for a packet that leaves the Node. They are the rules that have allowed it: egress of the
	// client's Pod, and ingress of the server's Pod.
	Egress  string `json:"egress,omitempty"`
	Ingress string `json:"ingress,omitempty"`
}

// PacketSent is the answer of PathPacketSend.
type PacketSent struct {
	Node   string    `json:"node"`
	At     time.Time `json:"at"`
	Packet string    `json:"packet"` // in ovs-ofctl's text
}

package api

// PathHop answers with HopList: the path of a packet through this Node's switch, up to where it leaves the switch or
// ends. No packet is sent. Query for a client's first packet: from, to, port, protocol, family and cluster as of
// PathWhy. Query for a packet that another Node has sent here: the fields of HopNext, by their names in JSON; fromNode
// has the Node of this cluster that has sent it, fromCluster the ID of another cluster. endpoint=ADDRESS chooses the
// endpoint of a Service, if the choice is made here.
const PathHop = "/v1/hop"

// HopList is the answer of PathHop: a Hop for each version of IP that is asked about and both ends have.
type HopList struct {
	Hops []Hop `json:"hops"`
	// Networks are the decisions of networks of tenants, as in TraceList.
	Networks []string `json:"networks,omitempty"`
}

// Hop is the way of a packet through the switch of a Node.
type Hop struct {
	Node    string      `json:"node"`
	Packet  string      `json:"packet"` // as it comes into the switch, in ovs-ofctl's text
	Steps   []HopStep   `json:"steps"`
	Choices []HopChoice `json:"choices,omitempty"`
	End     HopEnd      `json:"end"`
	Output  string      `json:"output"` // ofproto/trace's own text
}

// HopStep is a flow that the packet meets.
type HopStep struct {
	Table    string `json:"table"`
	Priority uint16 `json:"priority"`
	Match    string `json:"match"`
	Owner    string `json:"owner,omitempty"` // as of Flow
	Rule     string `json:"rule,omitempty"`  // of a policy, if the flow is of one
}

// HopChoice is a choice of a group: of an endpoint, or of a way to another cluster.
type HopChoice struct {
	Group   uint32      `json:"group"`
	Owner   string      `json:"owner,omitempty"`
	Chosen  int         `json:"chosen"` // index in Buckets, -1 if no bucket is alive
	Buckets []HopBucket `json:"buckets"`
	LeftOut int         `json:"leftOut,omitempty"` // buckets beyond the limit of an answer
}

// HopBucket is a bucket of a group.
type HopBucket struct {
	Weight uint16 `json:"weight,omitempty"` // 0 if all have one weight
	To     string `json:"to,omitempty"`     // address of the endpoint, or the far end of a way
	Name   string `json:"name,omitempty"`   // of the Pod or the cluster there
}

// Verdicts of HopEnd.
const (
	HopDelivered = "delivered" // to a Pod, or to the host
	HopDropped   = "dropped"
	HopRejected  = "rejected" // the agent answers with a reset or an ICMP error
	HopForwarded = "forwarded"
	HopLeft      = "left" // the network of the Pods, through the host
)

// HopEnd is where the packet leaves the switch, or where it ends.
type HopEnd struct {
	Verdict string `json:"verdict"`
	Table   string `json:"table"` // the last one that it meets
	// To is the Pod, or the host, that gets the packet.
	To string `json:"to,omitempty"`
	// Reason is a word of record.Reasons, for the verdicts dropped and rejected. Message is the reason as a sentence.
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Rule     string   `json:"rule,omitempty"`
	Policies []string `json:"policies,omitempty"`
	// Next is set if the packet is for another Node, also if this Node has no route to it.
	Next *HopNext `json:"next,omitempty"`
}

// HopNext is the packet for the next Node.
type HopNext struct {
	// Node is a Node of this cluster. If it is empty, Cluster is the ID of another cluster, and Gateway the address by
	// which users know its Gateway.
	Node    string `json:"node,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Gateway string `json:"gateway,omitempty"`
	// Packet has the headers, in ovs-ofctl's text. OuterSrc and OuterDst are the addresses of the tunnel, and Key is its
	// key. Without OuterDst the host routes the packet. Without OuterSrc the host chooses the source.
	Packet   string `json:"packet"`
	OuterSrc string `json:"outerSrc,omitempty"`
	OuterDst string `json:"outerDst,omitempty"`
	Key      string `json:"key,omitempty"`
}

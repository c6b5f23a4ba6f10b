// Package record has the records of connections and of dropped packets, the filters that choose among them, and the
// history that keeps them. It is pure. Agents fill the history, and the agent's debug API and the command tombolo read
// it.
package record

import "time"

// Event is one line of the answer of api.PathObserve. Exactly one field is set.
type Event struct {
	Begin      *Begin   `json:"begin,omitempty"`
	Connection *Record  `json:"connection,omitempty"`
	Drop       *Record  `json:"drop,omitempty"`
	End        *Record  `json:"end,omitempty"` // a connection that has ended; it has a Life
	Missing    *Missing `json:"missing,omitempty"`
	Nodes      *Nodes   `json:"nodes,omitempty"`
}

// Record returns the record of the event, or nil.
func (e Event) Record() *Record {
	if e.Drop != nil {
		return e.Drop
	}
	if e.End != nil {
		return e.End
	}
	return e.Connection
}

// Begin is the first line of a Node's answer. The answer is complete from a time on.
type Begin struct {
	Node string    `json:"node"`
	From time.Time `json:"from"` // the time of the oldest record that the Node still has
	// Drops and Connections report whether the Node records these.
	Drops       bool `json:"drops"`
	Connections bool `json:"connections"`
}

// Missing counts records that a Node has lost: a meter of the switch has dropped the copy, a queue was full, or the
// reader was too slow.
type Missing struct {
	Node string    `json:"node"`
	Time time.Time `json:"time"`
	Lost uint64    `json:"lost"`
	Why  string    `json:"why"`
}

// Nodes is the number of Nodes that answer, in an answer of the relay. It is sent after the first lines of the Nodes'
// answers, and when it changes.
type Nodes struct {
	Answering int      `json:"answering"`
	All       int      `json:"all"`
	Absent    []string `json:"absent,omitempty"` // names, at most MaxAbsent of them
}

// MaxAbsent is how many absent Nodes are named.
const MaxAbsent = 100

// Verdicts of records.
const (
	Allowed  = "allowed"
	Dropped  = "dropped"
	Rejected = "rejected" // the agent has answered with a reset or an ICMP error
)

// Record is a connection, or packets that ended in the switch of a Node.
type Record struct {
	Time     time.Time `json:"time"` // of the first packet; of repeats, the last one
	Node     string    `json:"node"`
	Verdict  string    `json:"verdict"`
	Protocol string    `json:"protocol"` // TCP, UDP, SCTP, ICMP, ICMPv6, or a number
	From     End       `json:"from"`
	To       End       `json:"to"` // behind the Service, if an endpoint was chosen
	// Network is the VirtualNetwork of From, as namespace/name, if other networks may have the same addresses. To is in
	// it, too, or in ToNetwork, which is joined with it.
	Network   string `json:"network,omitempty"`
	ToNetwork string `json:"toNetwork,omitempty"`
	// Service is the Service to which the client connected, as namespace/name. Asked is its address and port.
	Service string `json:"service,omitempty"`
	Asked   string `json:"asked,omitempty"`
	// Reason is a word of Reasons. Message is the reason as a sentence, with the policies that isolate the Pod.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Table   string `json:"table,omitempty"` // of the switch, where the packet ended
	// Policies isolate the Pod, with the reason isolated.
	Policies []string `json:"policies,omitempty"`
	// Rule has dropped or rejected the packet.
	Rule *Rule `json:"rule,omitempty"`
	// Egress and Ingress are the rules that let a connection out of the client's Pod and into the server's. A Node has the
	// rules for its own Pods only.
	Egress  *Rule `json:"egress,omitempty"`
	Ingress *Rule `json:"ingress,omitempty"`
	// Way is the far end of the tunnel that the connection takes to or from another cluster.
	Way string `json:"way,omitempty"`
	// First is set by the Node that is responsible for the connection: the client's Node, or the Node where the connection
	// enters the cluster.
	First bool `json:"first,omitempty"`
	// Nodes are the further Nodes that have seen the connection, if the record was joined from several ones.
	Nodes []string `json:"nodes,omitempty"`
	// Count is the number of packets that the record represents: equal packets within a second share a record.
	Count uint64 `json:"count"`
	// Life is of a connection that has ended. Time is then when the datapath has forgotten it.
	Life *Life `json:"life,omitempty"`
}

// Life is about a connection that has ended.
type Life struct {
	Began   time.Time `json:"began,omitzero"`    // zero if it is not known
	Seconds float64   `json:"seconds,omitempty"` // from then until the datapath has forgotten it
	// Sent and Received are from the client's view. They are nil if the datapath has not counted.
	Sent     *Traffic `json:"sent,omitempty"`
	Received *Traffic `json:"received,omitempty"`
	// Late is set if the beginning of the connection was not recorded. Then the names are those at its end, and the rules
	// are missing.
	Late bool `json:"late,omitempty"`
}

// Traffic counts the packets of one direction.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// End is an end of a connection.
type End struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	IP        string `json:"ip"`
	Port      uint16 `json:"port,omitempty"`
	Node      string `json:"node,omitempty"`    // of a Pod, or a Node's own address
	Cluster   string `json:"cluster,omitempty"` // if it is another one
}

// Rule is a rule of a policy.
type Rule struct {
	Policy string `json:"policy"` // "NetworkPolicy shop/db"
	Name   string `json:"name"`   // "ingress[0]"
}

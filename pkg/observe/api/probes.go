package api

import (
	"math"
	"time"
)

// PathProbes answers with Probes.
const PathProbes = "/v1/probes"

// Probes is the answer of PathProbes: the results of the Node's probes.
type Probes struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	// Ways are the ways to other clusters whose far ends return probes. Only a Gateway has such ways.
	Ways []ProbedWay `json:"ways"`
	// Nodes are the other Nodes of the cluster, while a NodeLatencyMonitor asks for them.
	Nodes []ProbedNode `json:"nodes,omitempty"`
	// Foreign are echoes with a nonce that this agent has not sent. They change no result.
	Foreign uint64 `json:"foreign"`
}

// ProbedWay has the results of the probes of one way. A result is of both directions together.
type ProbedWay struct {
	Peer   string `json:"peer"`             // the cluster's ID
	To     string `json:"to"`               // the address of its gateway, as in Peer.Ways
	Paused bool   `json:"paused,omitempty"` // BFD reports the way down, and nothing is sent
	ProbeResult
	// Size is the largest size of a probe that passed, up to MTU. It is 0 while it is not known. MTU is the size of the
	// largest packet of a Pod.
	Size   int        `json:"size"`
	MTU    int        `json:"mtu"`
	SizeAt *time.Time `json:"sizeAt,omitempty"` // when Size was measured
}

// ProbedNode has the results of the probes of another Node, at one of the addresses of its gateway port.
type ProbedNode struct {
	Node string `json:"node"`
	To   string `json:"to"`
	ProbeResult
	LastSent     time.Time `json:"lastSent,omitzero"`     // when the newest probe was sent
	LastReceived time.Time `json:"lastReceived,omitzero"` // when the newest reply came
}

// These are limits up to which a way has no fault. A few lost probes are no sign of a fault. In 300 ms a packet goes to
// the other side of the earth and back.
const (
	lossLimit    = 0.01
	leastLosses  = 4
	secondsLimit = 0.3
)

// TooSmall reports whether Pods send larger packets than the way carries.
func (w ProbedWay) TooSmall() bool { return w.Size > 0 && w.Size < w.MTU }

// LostOf300 is how many of the newest 300 probes were lost.
func (r ProbeResult) LostOf300() int { return int(math.Round(r.Loss300 * float64(r.Samples))) }

// Loses reports whether more than 1 % of the newest 300 probes were lost, and at least one of the newest 60.
func (r ProbeResult) Loses() bool {
	return r.LostOf300() >= leastLosses && r.Loss300 > lossLimit && r.Loss60 > 0
}

// Slow reports whether half of the probes take too long.
func (r ProbeResult) Slow() bool { return r.P50Seconds > secondsLimit }

// ProbeResult are the results of the probes of one destination.
type ProbeResult struct {
	Sent uint64 `json:"sent"` // since the agent began; those on their way are not counted
	Lost uint64 `json:"lost"` // of these
	Late uint64 `json:"late"` // of the lost ones: came after a second or later
	Old  uint64 `json:"old"`  // answers to a probe that was answered, or is forgotten
	// Samples is the number of probes from which the following values are computed: at most the newest 300.
	Samples int `json:"samples"`
	// LostInRow is how many of the newest ones were lost in a row.
	LostInRow int     `json:"lostInRow,omitempty"`
	Loss60    float64 `json:"loss60"`  // the lost part of the newest 60, 0 to 1
	Loss300   float64 `json:"loss300"` // of the newest 300
	// Round-trip times, 0 without an answer.
	LastSeconds float64 `json:"lastSeconds"`
	P50Seconds  float64 `json:"p50Seconds"`
	P99Seconds  float64 `json:"p99Seconds"`
}

package ofp

// QueueAll is the wildcard of a queue's number in requests.
const QueueAll uint32 = 0xffffffff

// QueueStatsRequest asks for queues' counters. A zero Port is encoded as PortAny; set Queue to
// QueueAll for all queues.
type QueueStatsRequest struct {
	Port  Port
	Queue uint32
}

// QueueStats are one queue's counters. A counter of all ones is one that the switch does not
// have, a duration with all ones is not known.
type QueueStats struct {
	Port                        Port
	Queue                       uint32
	TxBytes, TxPackets, TxError uint64
	DurationSec, DurationNsec   uint32
	Properties                  []RawProperty
}

// QueueStatsReply is one part of the answer to QueueStatsRequest.
type QueueStatsReply struct {
	More   bool
	Queues []QueueStats
}

// QueueDescRequest asks how queues are configured (OFPMP_QUEUE_DESC, what QUEUE_GET_CONFIG was
// before OpenFlow 1.4). A zero Port is encoded as PortAny; set Queue to QueueAll for all.
type QueueDescRequest struct {
	Port  Port
	Queue uint32
}

// QueueRateUnknown is the MinRate or MaxRate of a queue that has none.
const QueueRateUnknown uint16 = 0xffff

// QueueDesc is how a queue is configured. Rates are in tenths of a percent of the port's
// speed; more than 1000 means that there is none (QueueRateUnknown: nothing was said).
type QueueDesc struct {
	Port             Port
	Queue            uint32
	MinRate, MaxRate uint16
	Properties       []RawProperty
}

// QueueDescReply is one part of the answer to QueueDescRequest.
type QueueDescReply struct {
	More   bool
	Queues []QueueDesc
}

package ofp

// QueueAll is the wildcard of a queue's number in requests.
const QueueAll uint32 = 0xffffffff

// QueueStatsRequest asks for queues' counters. A zero Port is encoded as PortAny; set Queue to
// QueueAll for all queues.
type QueueStatsRequest struct {
	Port  Port
	Queue uint32
}

// QueueStats are one queue's counters. A counter of all ones means that the switch lacks it. A duration of all ones
// means that it is unknown.
type QueueStats struct {
	Port                         Port
	Queue                        uint32
	TxBytes, TxPackets, TxErrors uint64
	DurationSec, DurationNsec    uint32
	Properties                   []RawProperty
}

// QueueStatsReply is one part of the answer to QueueStatsRequest.
type QueueStatsReply struct {
	More   bool
	Queues []QueueStats
}

// QueueDescRequest asks for the configuration of queues (OFPMP_QUEUE_DESC, QUEUE_GET_CONFIG before OpenFlow 1.4). A
// zero Port is encoded as PortAny; set Queue to QueueAll for all.
type QueueDescRequest struct {
	Port  Port
	Queue uint32
}

// QueueRateUnknown is the MinRate or MaxRate of a queue without that rate.
const QueueRateUnknown uint16 = 0xffff

// QueueDesc is the configuration of a queue. Rates are in tenths of a percent of the port's speed. A rate above 1000
// means no limit, and QueueRateUnknown means that the rate is not given.
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

// Type of the messages about queues.
func (QueueStatsRequest) Type() Type { return TypeMultipartRequest }
func (QueueStatsReply) Type() Type   { return TypeMultipartReply }
func (QueueDescRequest) Type() Type  { return TypeMultipartRequest }
func (QueueDescReply) Type() Type    { return TypeMultipartReply }

// MultipartType of the messages about queues.
func (QueueStatsRequest) MultipartType() MultipartType { return MultipartQueueStats }
func (QueueStatsReply) MultipartType() MultipartType   { return MultipartQueueStats }
func (QueueDescRequest) MultipartType() MultipartType  { return MultipartQueueDesc }
func (QueueDescReply) MultipartType() MultipartType    { return MultipartQueueDesc }

// HasMore of the messages about queues.
func (QueueStatsRequest) HasMore() bool { return false }
func (m QueueStatsReply) HasMore() bool { return m.More }
func (QueueDescRequest) HasMore() bool  { return false }
func (m QueueDescReply) HasMore() bool  { return m.More }

func (m QueueStatsRequest) appendTo(e *encoder) { e.multipart(m); e.u32s(anyPort(m.Port), m.Queue) }
func (m QueueDescRequest) appendTo(e *encoder)  { e.multipart(m); e.u32s(anyPort(m.Port), m.Queue) }

func (m QueueStatsReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, q := range m.Queues {
		start := len(e.b)
		e.zero(8)
		e.u32s(uint32(q.Port), q.Queue)
		e.u64s(q.TxBytes, q.TxPackets, q.TxErrors)
		e.u32s(q.DurationSec, q.DurationNsec)
		e.raw(q.Properties)
		e.len16(start, 0)
	}
}
func (d *decoder) queueStats() QueueStats {
	s := d.entry("queue stats", 48)
	s.skip(8)
	q := QueueStats{Port: Port(s.u32("port_no")), Queue: s.u32("queue_id")}
	s.u64s("counters", &q.TxBytes, &q.TxPackets, &q.TxErrors)
	q.DurationSec, q.DurationNsec = s.u32("duration_sec"), s.u32("duration_nsec")
	for s.left() > 0 {
		kind, p := s.prop("queue property")
		q.Properties = append(q.Properties, p.raw(kind))
	}
	return q
}

// Types of properties of queues (ofp_queue_desc_prop_type).
const (
	queueMinRate uint16 = 1
	queueMaxRate uint16 = 2
)

func (m QueueDescReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, q := range m.Queues {
		start := len(e.b)
		e.u32s(uint32(q.Port), q.Queue)
		e.zero(8)
		e.queueRate(queueMinRate, q.MinRate)
		e.queueRate(queueMaxRate, q.MaxRate)
		e.raw(q.Properties)
		e.len16(start, 8)
	}
}
func (e *encoder) queueRate(kind, rate uint16) {
	if rate == QueueRateUnknown {
		return
	}
	p := e.propStart(kind)
	e.u16s(rate, 0)
	e.propEnd(p)
}
func (d *decoder) queueDesc() QueueDesc {
	at := *d
	q := QueueDesc{Port: Port(d.u32("port_no")), Queue: d.u32("queue_id"), MinRate: QueueRateUnknown,
		MaxRate: QueueRateUnknown}
	n := int(d.u16("queue length"))
	if d.ok() && n < 16 {
		at.fail("queue length", "%d is less than 16", n)
	}
	s := d.sub("queue", n-10)
	s.skip(6)
	for s.left() > 0 {
		switch kind, p := s.prop("queue property"); kind {
		case queueMinRate:
			q.MinRate = p.u16("min_rate")
		case queueMaxRate:
			q.MaxRate = p.u16("max_rate")
		default:
			q.Properties = append(q.Properties, p.raw(kind))
		}
	}
	return q
}

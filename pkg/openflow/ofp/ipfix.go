package ofp

// IPFIXBridgeRequest asks for the counters of the bridge's IPFIX exporter (NXST_IPFIX_BRIDGE).
type IPFIXBridgeRequest struct{}

// IPFIXFlowRequest asks for the counters of the exporters of sample actions (NXST_IPFIX_FLOW).
type IPFIXFlowRequest struct{}

// IPFIXStats are the counters of one IPFIX exporter (nx_ipfix_stats_reply).
type IPFIXStats struct {
	Flows, CurrentFlows                  uint64
	Packets, IPv4Packets, IPv6Packets    uint64 // sampled
	ErrorPackets, IPv4Errors, IPv6Errors uint64
	TxPackets, TxErrors                  uint64
	CollectorSet                         uint32 // 0 for the bridge's
}

// IPFIXBridgeReply answers IPFIXBridgeRequest.
type IPFIXBridgeReply struct{ Stats IPFIXStats }

// IPFIXFlowReply is one part of the answer to IPFIXFlowRequest.
type IPFIXFlowReply struct {
	More      bool
	Exporters []IPFIXStats
}

// ExperimenterMultipart is an experimenter's multipart request or reply that is unknown to this package.
type ExperimenterMultipart struct {
	MsgType Type // TypeMultipartRequest or TypeMultipartReply
	More    bool
	Vendor  uint32
	Subtype uint32
	Data    []byte
}

// Type of experimenters' multipart messages.
func (IPFIXBridgeRequest) Type() Type      { return TypeMultipartRequest }
func (IPFIXBridgeReply) Type() Type        { return TypeMultipartReply }
func (IPFIXFlowRequest) Type() Type        { return TypeMultipartRequest }
func (IPFIXFlowReply) Type() Type          { return TypeMultipartReply }
func (m ExperimenterMultipart) Type() Type { return m.MsgType }

// MultipartType of experimenters' multipart messages.
func (IPFIXBridgeRequest) MultipartType() MultipartType    { return MultipartExperimenter }
func (IPFIXBridgeReply) MultipartType() MultipartType      { return MultipartExperimenter }
func (IPFIXFlowRequest) MultipartType() MultipartType      { return MultipartExperimenter }
func (IPFIXFlowReply) MultipartType() MultipartType        { return MultipartExperimenter }
func (ExperimenterMultipart) MultipartType() MultipartType { return MultipartExperimenter }

// HasMore of experimenters' multipart messages.
func (IPFIXBridgeRequest) HasMore() bool      { return false }
func (IPFIXBridgeReply) HasMore() bool        { return false }
func (IPFIXFlowRequest) HasMore() bool        { return false }
func (m IPFIXFlowReply) HasMore() bool        { return m.More }
func (m ExperimenterMultipart) HasMore() bool { return m.More }

func (m IPFIXBridgeRequest) appendTo(e *encoder) { e.multipart(m); e.vendor(nxstIPFIXBridge) }
func (m IPFIXFlowRequest) appendTo(e *encoder)   { e.multipart(m); e.vendor(nxstIPFIXFlow) }
func (m IPFIXBridgeReply) appendTo(e *encoder) {
	e.multipart(m)
	e.vendor(nxstIPFIXBridge)
	e.ipfix(m.Stats)
}
func (m IPFIXFlowReply) appendTo(e *encoder) {
	e.multipart(m)
	e.vendor(nxstIPFIXFlow)
	for _, s := range m.Exporters {
		e.ipfix(s)
	}
}
func (m ExperimenterMultipart) appendTo(e *encoder) {
	e.multipart(m)
	e.u32s(m.Vendor, m.Subtype)
	e.bytes(m.Data)
}

func (e *encoder) ipfix(s IPFIXStats) {
	e.u64s(s.Flows, s.CurrentFlows, s.Packets, s.IPv4Packets, s.IPv6Packets, s.ErrorPackets, s.IPv4Errors, s.IPv6Errors,
		s.TxPackets, s.TxErrors)
	e.u32s(s.CollectorSet, 0)
}
func (d *decoder) ipfix() IPFIXStats {
	var s IPFIXStats
	d.u64s("IPFIX counters", &s.Flows, &s.CurrentFlows, &s.Packets, &s.IPv4Packets, &s.IPv6Packets, &s.ErrorPackets,
		&s.IPv4Errors, &s.IPv6Errors, &s.TxPackets, &s.TxErrors)
	s.CollectorSet = d.u32("collector_set_id")
	d.skip(4)
	return s
}

// Subtypes of Nicira's multipart messages (ofp-msgs.h).
const (
	nxstIPFIXBridge uint32 = 3
	nxstIPFIXFlow   uint32 = 4
)

func (d *decoder) experimenterMultipart(typ Type, more bool) Message {
	vendor, sub := d.u32("experimenter"), d.u32("experimenter type")
	request := typ == TypeMultipartRequest
	switch {
	case vendor == nxVendor && sub == nxstIPFIXBridge && request:
		return IPFIXBridgeRequest{}
	case vendor == nxVendor && sub == nxstIPFIXBridge:
		return IPFIXBridgeReply{d.ipfix()}
	case vendor == nxVendor && sub == nxstIPFIXFlow && request:
		return IPFIXFlowRequest{}
	case vendor == nxVendor && sub == nxstIPFIXFlow:
		m := IPFIXFlowReply{More: more}
		for d.left() > 0 {
			m.Exporters = append(m.Exporters, d.ipfix())
		}
		return m
	}
	return ExperimenterMultipart{typ, more, vendor, sub, d.rest()}
}

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

// ExperimenterMultipart is an experimenter's multipart request or reply that the package does not know.
type ExperimenterMultipart struct {
	MsgType Type // TypeMultipartRequest or TypeMultipartReply
	More    bool
	Vendor  uint32
	Subtype uint32
	Data    []byte
}

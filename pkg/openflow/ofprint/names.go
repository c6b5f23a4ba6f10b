package ofprint

import (
	"encoding/binary"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

const (
	nxVendor  uint32 = 0x00002320
	onfVendor uint32 = 0x4f4e4600
)

// Names of messages in Open vSwitch, by their type in OpenFlow 1.5's header.
var typeNames = map[ofp.Type]string{
	ofp.TypeHello: "OFPT_HELLO", ofp.TypeError: "OFPT_ERROR",
	ofp.TypeEchoRequest: "OFPT_ECHO_REQUEST", ofp.TypeEchoReply: "OFPT_ECHO_REPLY",
	ofp.TypeFeaturesRequest: "OFPT_FEATURES_REQUEST", ofp.TypeFeaturesReply: "OFPT_FEATURES_REPLY",
	ofp.TypeGetConfigRequest: "OFPT_GET_CONFIG_REQUEST", ofp.TypeGetConfigReply: "OFPT_GET_CONFIG_REPLY",
	ofp.TypeSetConfig: "OFPT_SET_CONFIG", ofp.TypePacketIn: "OFPT_PACKET_IN",
	ofp.TypeFlowRemoved: "OFPT_FLOW_REMOVED", ofp.TypePortStatus: "OFPT_PORT_STATUS",
	ofp.TypePacketOut: "OFPT_PACKET_OUT", ofp.TypeFlowMod: "OFPT_FLOW_MOD",
	ofp.TypeGroupMod: "OFPT_GROUP_MOD", ofp.TypePortMod: "OFPT_PORT_MOD", ofp.TypeTableMod: "OFPT_TABLE_MOD",
	ofp.TypeBarrierRequest: "OFPT_BARRIER_REQUEST", ofp.TypeBarrierReply: "OFPT_BARRIER_REPLY",
	ofp.TypeRoleRequest: "OFPT_ROLE_REQUEST", ofp.TypeRoleReply: "OFPT_ROLE_REPLY",
	ofp.TypeGetAsyncRequest: "OFPT_GET_ASYNC_REQUEST", ofp.TypeGetAsyncReply: "OFPT_GET_ASYNC_REPLY",
	ofp.TypeSetAsync: "OFPT_SET_ASYNC", ofp.TypeMeterMod: "OFPT_METER_MOD",
	ofp.TypeRoleStatus: "OFPT_ROLE_STATUS", ofp.TypeTableStatus: "OFPT_TABLE_STATUS",
	ofp.TypeRequestForward: "OFPT_REQUESTFORWARD", ofp.TypeBundleControl: "OFPT_BUNDLE_CONTROL",
	ofp.TypeBundleAdd: "OFPT_BUNDLE_ADD_MESSAGE", ofp.TypeControllerStatus: "OFPT_CONTROLLER_STATUS",
}

// Names of multipart messages; " request" or " reply" follows.
var multipartNames = map[ofp.MultipartType]string{
	ofp.MultipartDesc: "DESC", ofp.MultipartFlowDesc: "FLOW", ofp.MultipartAggregate: "AGGREGATE",
	ofp.MultipartTable: "TABLE", ofp.MultipartPortStats: "PORT", ofp.MultipartQueueStats: "QUEUE",
	ofp.MultipartGroup: "GROUP", ofp.MultipartGroupDesc: "GROUP_DESC",
	ofp.MultipartGroupFeatures: "GROUP_FEATURES", ofp.MultipartMeter: "METER",
	ofp.MultipartMeterDesc: "METER_CONFIG", ofp.MultipartMeterFeatures: "METER_FEATURES",
	ofp.MultipartTableFeatures: "TABLE_FEATURES", ofp.MultipartPortDesc: "PORT_DESC",
	ofp.MultipartTableDesc: "TABLE_DESC", ofp.MultipartQueueDesc: "QUEUE_DESC",
	ofp.MultipartFlowMonitor: "FLOW_MONITOR", ofp.MultipartFlowStats: "FLOW_STATS",
	ofp.MultipartControllerStatus: "CONTROLLER_STATUS", ofp.MultipartBundleFeatures: "BUNDLE_FEATURES",
}

// Names of Nicira's messages that OpenFlow 1.5 can carry, by subtype (nicira-ext.h).
var niciraNames = map[uint32]string{
	10: "NXT_ROLE_REQUEST", 11: "NXT_ROLE_REPLY", 13: "NXT_FLOW_MOD", 14: "NXT_FLOW_REMOVED",
	15: "NXT_FLOW_MOD_TABLE_ID", 16: "NXT_SET_PACKET_IN_FORMAT", 17: "NXT_PACKET_IN", 18: "NXT_FLOW_AGE",
	19: "NXT_SET_ASYNC_CONFIG", 20: "NXT_SET_CONTROLLER_ID", 24: "NXT_TLV_TABLE_MOD",
	25: "NXT_TLV_TABLE_REQUEST", 26: "NXT_TLV_TABLE_REPLY", 28: "NXT_RESUME",
	29: "NXT_CT_FLUSH_ZONE", 30: "NXT_PACKET_IN2", 32: "NXT_CT_FLUSH",
}

// Names of Nicira's multipart messages.
var niciraMultipartNames = map[uint32]string{3: "IPFIX_BRIDGE", 4: "IPFIX_FLOW"}

// nameOf is a message's name.
func nameOf(m ofp.Message) string {
	// The name follows from the first bytes, and those are the same whatever is in the rest.
	var head [24]byte
	head[0], head[1] = ofp.Version, byte(m.Type())
	n := 8
	switch m := m.(type) {
	case ofp.IPFIXBridgeRequest, ofp.IPFIXBridgeReply:
		n = vendorMultipart(&head, nxVendor, 3)
	case ofp.IPFIXFlowRequest, ofp.IPFIXFlowReply:
		n = vendorMultipart(&head, nxVendor, 4)
	case ofp.ExperimenterMultipart:
		n = vendorMultipart(&head, m.Vendor, m.Subtype)
	case ofp.Multipart:
		binary.BigEndian.PutUint16(head[8:], uint16(m.MultipartType()))
		n = 16
	case ofp.Experimenter:
		binary.BigEndian.PutUint32(head[8:], m.Vendor)
		binary.BigEndian.PutUint32(head[12:], m.Subtype)
		n = 16
	default:
		if sub, ok := subtype(m); ok {
			binary.BigEndian.PutUint32(head[8:], nxVendor)
			binary.BigEndian.PutUint32(head[12:], sub)
			n = 16
		}
	}
	if name := nameOfBytes(head[:n]); name != "" {
		return name
	}
	if m, ok := m.(ofp.Multipart); ok {
		return fmt.Sprintf("OFPST_%d %s", m.MultipartType(), direction(m.Type()))
	}
	if m, ok := m.(ofp.Experimenter); ok {
		return fmt.Sprintf("OFPT_EXPERIMENTER vendor=0x%08x subtype=%d", m.Vendor, m.Subtype)
	}
	return fmt.Sprintf("OFPT_%d", m.Type())
}

// vendorMultipart writes the beginning of an experimenter's multipart message, after the header.
func vendorMultipart(head *[24]byte, vendor, sub uint32) int {
	binary.BigEndian.PutUint16(head[8:], uint16(ofp.MultipartExperimenter))
	binary.BigEndian.PutUint32(head[16:], vendor)
	binary.BigEndian.PutUint32(head[20:], sub)
	return len(head)
}

// subtype is the number of one of Nicira's messages.
func subtype(m ofp.Message) (uint32, bool) {
	switch m.(type) {
	case ofp.NXRoleRequest:
		return 10, true
	case ofp.NXRoleReply:
		return 11, true
	case ofp.NXFlowRemoved:
		return 14, true
	case ofp.NXFlowModTableID:
		return 15, true
	case ofp.SetPacketInFormat:
		return 16, true
	case ofp.NXPacketIn:
		return 17, true
	case ofp.NXFlowAge:
		return 18, true
	case ofp.NXSetAsync:
		return 19, true
	case ofp.SetControllerID:
		return 20, true
	case ofp.TLVTableMod:
		return 24, true
	case ofp.TLVTableRequest:
		return 25, true
	case ofp.TLVTableReply:
		return 26, true
	case ofp.Resume:
		return 28, true
	case ofp.CTFlushZone:
		return 29, true
	case ofp.PacketIn2:
		return 30, true
	case ofp.CTFlush:
		return 32, true
	}
	return 0, false
}

func direction(t ofp.Type) string {
	if t == ofp.TypeMultipartRequest {
		return "request"
	}
	return "reply"
}

// nameOfBytes returns the name of the message that begins with head. It is empty if the message has no name, or if head
// is too short.
func nameOfBytes(head []byte) string {
	if len(head) < 8 {
		return ""
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(head[at:]) }
	switch t := ofp.Type(head[1]); t {
	case ofp.TypeExperimenter:
		if len(head) < 16 || u32(8) != nxVendor {
			return ""
		}
		return niciraNames[u32(12)]
	case ofp.TypeMultipartRequest, ofp.TypeMultipartReply:
		if len(head) < 16 {
			return ""
		}
		kind := ofp.MultipartType(binary.BigEndian.Uint16(head[8:]))
		if kind == ofp.MultipartExperimenter {
			if len(head) < 24 || u32(16) != nxVendor || niciraMultipartNames[u32(20)] == "" {
				return ""
			}
			return "NXST_" + niciraMultipartNames[u32(20)] + " " + direction(t)
		}
		if multipartNames[kind] == "" {
			return ""
		}
		return "OFPST_" + multipartNames[kind] + " " + direction(t)
	default:
		return typeNames[t]
	}
}

package ofprint

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// body prints the part after the header. It returns false for an unknown message, whose bytes are then printed.
func (p *printer) body(m ofp.Message) bool {
	switch m := m.(type) {
	case ofp.FeaturesRequest, ofp.GetConfigRequest, ofp.BarrierRequest, ofp.BarrierReply,
		ofp.GetAsyncRequest, ofp.DescRequest, ofp.TableStatsRequest, ofp.GroupFeaturesRequest,
		ofp.MeterFeaturesRequest, ofp.TableDescRequest, ofp.ControllerStatusRequest,
		ofp.NXFlowAge, ofp.TLVTableRequest, ofp.IPFIXBridgeRequest, ofp.IPFIXFlowRequest:
	case ofp.Hello:
		p.hello(m)
	case ofp.Error:
		p.errorMessage(m)
	case ofp.EchoRequest:
		p.echo(m.Data)
	case ofp.EchoReply:
		p.echo(m.Data)
	case ofp.FeaturesReply:
		p.features(m)
	case ofp.GetConfigReply:
		p.config(m.Flags, m.MissSendLen)
	case ofp.SetConfig:
		p.config(m.Flags, m.MissSendLen)
	case ofp.RoleRequest:
		// A request that changes nothing has no generation.
		if m.Role == ofp.RoleNoChange {
			m.GenerationID = ofp.NoGeneration
		}
		p.role(m.Role, m.GenerationID)
	case ofp.RoleReply:
		p.role(m.Role, m.GenerationID)
	case ofp.NXRoleRequest:
		p.role(m.Role, ofp.NoGeneration)
	case ofp.NXRoleReply:
		p.role(m.Role, ofp.NoGeneration)
	case ofp.RoleStatus:
		p.roleStatus(m)
	case ofp.ControllerStatusMessage:
		p.controllerStatus(m.Status)
	case ofp.ControllerStatusReply:
		for _, s := range m.Controllers {
			p.controllerStatus(s)
		}
	case ofp.GetAsyncReply:
		p.async(m.Properties)
	case ofp.SetAsync:
		p.async(m.Properties)
	case ofp.NXSetAsync:
		var list []ofp.AsyncProperty
		for i, masks := range [][2]uint32{m.PacketIn, m.PortStatus, m.FlowRemoved} {
			list = append(list, ofp.AsyncProperty{Kind: uint16(2*i + 1), Mask: masks[0]},
				ofp.AsyncProperty{Kind: uint16(2 * i), Mask: masks[1]})
		}
		p.async(list)
	case ofp.NXFlowModTableID:
		if m.On {
			p.str(" enable")
		} else {
			p.str(" disable")
		}
	case ofp.BundleControl:
		p.bundleControl(m)
	case ofp.BundleAdd:
		p.bundleAdd(m)
	case ofp.BundleFeaturesRequest:
		p.bundleFeaturesRequest(m)
	case ofp.BundleFeaturesReply:
		p.bundleFeatures(m)
	case ofp.SetPacketInFormat:
		p.f(" format=%s", packetInFormat(m.Format))
	case ofp.SetControllerID:
		p.f(" id=%d", m.ID)

	case ofp.PacketIn:
		p.packetIn(m)
	case ofp.NXPacketIn:
		p.packetIn(m.PacketIn)
	case ofp.PacketIn2:
		p.packetIn2(m)
	case ofp.Resume:
		p.packetIn2(m.PacketIn2)
	case ofp.PacketOut:
		p.packetOut(m)

	case ofp.FlowMod:
		p.flowMod(m)
	case ofp.FlowRemoved:
		p.flowRemoved(m)
	case ofp.NXFlowRemoved:
		p.flowRemoved(ofp.FlowRemoved{
			Table: m.Table, Reason: m.Reason, Priority: m.Priority, IdleTimeout: m.IdleTimeout, Cookie: m.Cookie, Match: m.Match,
			Stats: ofp.Stats{DurationSec: m.DurationSec, DurationNsec: m.DurationNsec, Packets: m.Packets, Bytes: m.Bytes},
		})
	case ofp.FlowDescRequest:
		p.flowFilter(m.FlowFilter)
	case ofp.FlowStatsRequest:
		p.flowFilter(m.FlowFilter)
	case ofp.AggregateRequest:
		p.flowFilter(m.FlowFilter)
	case ofp.FlowDescReply:
		for _, d := range m.Flows {
			p.flowDesc(d)
		}
	case ofp.FlowStatsReply:
		for _, s := range m.Flows {
			p.flowStats(s)
		}
	case ofp.AggregateReply:
		p.f(" packet_count=%d byte_count=%d flow_count=%d", m.Packets, m.Bytes, m.Flows)
	case ofp.FlowMonitorRequest:
		p.flowMonitorRequest(m)
		for _, other := range m.Others {
			p.flowMonitorRequest(other)
		}
	case ofp.FlowMonitorReply:
		for _, u := range m.Updates {
			p.flowUpdate(u)
		}

	case ofp.GroupMod:
		p.groupMod(m)
	case ofp.GroupDescRequest:
		p.groupRequest(m.ID)
	case ofp.GroupStatsRequest:
		p.groupRequest(m.ID)
	case ofp.GroupDescReply:
		for _, g := range m.Groups {
			p.str("\n ")
			p.group(g, true)
		}
	case ofp.GroupStatsReply:
		for _, g := range m.Groups {
			p.groupStats(g)
		}
	case ofp.GroupFeaturesReply:
		p.groupFeatures(m)
	case ofp.MeterMod:
		p.meterMod(m)
	case ofp.MeterDescRequest:
		p.meterRequest(m.ID)
	case ofp.MeterDescReply:
		for _, d := range m.Meters {
			p.str("\n")
			p.meter(d)
		}

	case ofp.MeterStatsRequest:
		p.meterRequest(m.ID)
	case ofp.MeterStatsReply:
		for _, s := range m.Meters {
			p.meterStats(s)
		}
	case ofp.MeterFeaturesReply:
		p.meterFeatures(m)
	case ofp.RequestForward:
		p.requestForward(m)

	case ofp.PortMod:
		p.portMod(m)
	case ofp.PortStatsRequest:
		p.str(" port_no=" + p.names.Port(anyPort(m.Port)))
	case ofp.PortStatsReply:
		p.portsStats(m.Ports)
	case ofp.QueueStatsRequest:
		p.f(" port=%s queue=%s", p.names.Port(anyPort(m.Port)), queueText(m.Queue))
	case ofp.QueueStatsReply:
		p.queueStats(m.Queues)
	case ofp.QueueDescRequest:
		p.str(" port=" + p.names.Port(anyPort(m.Port)))
		if m.Queue != ofp.QueueAll {
			p.str(" queue=" + queueText(m.Queue))
		}
	case ofp.QueueDescReply:
		p.queueDescs(m.Queues)
	case ofp.PortStatus:
		p.portStatus(m)
	case ofp.PortDescRequest:
		p.str(" port=" + p.names.Port(anyPort(m.Port)))
	case ofp.PortDescReply:
		p.str("\n")
		p.ports(m.Ports)
	case ofp.TableStatsReply:
		p.tableStats(m.Tables)
	case ofp.TableMod:
		p.tableMod(m)
	case ofp.TableDescReply:
		for _, t := range m.Tables {
			p.tableDesc(t)
		}
	case ofp.TableStatus:
		p.tableStatus(m)
	case ofp.TableFeaturesRequest:
		p.tableFeatures(m.Tables)
	case ofp.TableFeaturesReply:
		p.tableFeatures(m.Tables)

	case ofp.TLVTableMod:
		p.tlvTableMod(m)
	case ofp.TLVTableReply:
		p.tlvTableReply(m)
	case ofp.CTFlushZone:
		p.f(" zone_id=%d", m.Zone)
	case ofp.CTFlush:
		p.ctFlush(m)
	case ofp.IPFIXBridgeReply:
		p.str("\n  bridge ipfix: ")
		p.ipfix(m.Stats, 16)
	case ofp.IPFIXFlowReply:
		p.f(" %d ids\n", len(m.Exporters))
		for _, s := range m.Exporters {
			p.f("  id %3d: ", s.CollectorSet)
			p.ipfix(s, 10)
		}
	case ofp.DescReply:
		p.desc(m)
	default:
		return p.unknown(m)
	}
	return true
}

// If Open vSwitch has no name for a message, unknown replaces the message's header by the error that Open vSwitch would
// answer.
func (p *printer) unknown(m ofp.Message) bool {
	name := ""
	switch m := m.(type) {
	case ofp.RawMessage:
		if typeNames[m.MsgType] == "" {
			name = "OFPBRC_BAD_TYPE"
		}
	case ofp.RawMultipart:
		if multipartNames[m.Kind] == "" {
			name = "OFPBRC_BAD_STAT"
		}
	case ofp.ExperimenterMultipart:
		switch {
		case m.Vendor != nxVendor && m.Vendor != onfVendor:
			name = "OFPBRC_BAD_VENDOR"
		case m.Vendor != nxVendor || niciraMultipartNames[m.Subtype] == "":
			name = "OFPBRC_BAD_SUBTYPE"
		}
	case ofp.Experimenter:
		switch {
		case m.Vendor != nxVendor && m.Vendor != onfVendor:
			name = "OFPBRC_BAD_VENDOR"
		case m.Vendor != nxVendor || niciraNames[m.Subtype] == "":
			name = "OFPBRC_BAD_SUBTYPE"
		}
	}
	if name != "" {
		p.b = p.b[:p.start]
		p.f("***decode error: %s***\n", name)
	}
	return false
}

package ofp

import "fmt"

// Join combines the parts of a multipart message into one reply or request. It appends the contents of lists in order,
// and sets More to false. Parts of different kinds, parts after the last one, and a missing last part are errors. Other
// messages, and multipart messages without a list, may have only one part.
func Join(parts []Message) (Message, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("join multipart: there are no parts")
	}
	for i, p := range parts {
		m, ok := p.(Multipart)
		if !ok && len(parts) > 1 {
			return nil, fmt.Errorf("join multipart: part %d of %d is %T, which has no parts", i+1, len(parts), p)
		}
		if last := i == len(parts)-1; ok && m.HasMore() == last {
			if last {
				return nil, fmt.Errorf("join multipart: part %d, the last, announces more parts", i+1)
			}
			return nil, fmt.Errorf("join multipart: part %d of %d is marked as the last", i+1, len(parts))
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	switch first := parts[0].(type) {
	case FlowDescReply:
		return join(parts, func(m *FlowDescReply) (*bool, *[]FlowDesc) { return &m.More, &m.Flows })
	case FlowStatsReply:
		return join(parts, func(m *FlowStatsReply) (*bool, *[]FlowStats) { return &m.More, &m.Flows })
	case TableStatsReply:
		return join(parts, func(m *TableStatsReply) (*bool, *[]TableStats) { return &m.More, &m.Tables })
	case PortDescReply:
		return join(parts, func(m *PortDescReply) (*bool, *[]PortDesc) { return &m.More, &m.Ports })
	case PortStatsReply:
		return join(parts, func(m *PortStatsReply) (*bool, *[]PortStats) { return &m.More, &m.Ports })
	case QueueStatsReply:
		return join(parts, func(m *QueueStatsReply) (*bool, *[]QueueStats) { return &m.More, &m.Queues })
	case QueueDescReply:
		return join(parts, func(m *QueueDescReply) (*bool, *[]QueueDesc) { return &m.More, &m.Queues })
	case GroupDescReply:
		return join(parts, func(m *GroupDescReply) (*bool, *[]GroupDesc) { return &m.More, &m.Groups })
	case GroupStatsReply:
		return join(parts, func(m *GroupStatsReply) (*bool, *[]GroupStats) { return &m.More, &m.Groups })
	case MeterDescReply:
		return join(parts, func(m *MeterDescReply) (*bool, *[]MeterDesc) { return &m.More, &m.Meters })
	case MeterStatsReply:
		return join(parts, func(m *MeterStatsReply) (*bool, *[]MeterStatistics) { return &m.More, &m.Meters })
	case TableDescReply:
		return join(parts, func(m *TableDescReply) (*bool, *[]TableDesc) { return &m.More, &m.Tables })
	case TableFeaturesReply:
		return join(parts, func(m *TableFeaturesReply) (*bool, *[]TableFeatures) { return &m.More, &m.Tables })
	case TableFeaturesRequest:
		return join(parts, func(m *TableFeaturesRequest) (*bool, *[]TableFeatures) { return &m.More, &m.Tables })
	case ControllerStatusReply:
		return join(parts, func(m *ControllerStatusReply) (*bool, *[]ControllerStatus) { return &m.More, &m.Controllers })
	case FlowMonitorReply:
		return join(parts, func(m *FlowMonitorReply) (*bool, *[]FlowUpdate) { return &m.More, &m.Updates })
	case IPFIXFlowReply:
		return join(parts, func(m *IPFIXFlowReply) (*bool, *[]IPFIXStats) { return &m.More, &m.Exporters })
	case ExperimenterMultipart:
		for _, p := range parts {
			if m, ok := p.(ExperimenterMultipart); ok &&
				(m.Vendor != first.Vendor || m.Subtype != first.Subtype || m.MsgType != first.MsgType) {
				return nil, fmt.Errorf("join multipart: experimenter %#x type %d does not go with %#x type %d", m.Vendor, m.Subtype,
					first.Vendor, first.Subtype)
			}
		}
		return join(parts, func(m *ExperimenterMultipart) (*bool, *[]byte) { return &m.More, &m.Data })
	case RawMultipart:
		for _, p := range parts {
			if m, ok := p.(RawMultipart); ok && (m.Kind != first.Kind || m.MsgType != first.MsgType) {
				return nil, fmt.Errorf("join multipart: %s does not go with %s", m.Kind, first.Kind)
			}
		}
		first.Flags &^= 1
		parts = append([]Message{first}, parts[1:]...)
		var more bool
		return join(parts, func(m *RawMultipart) (*bool, *[]byte) { return &more, &m.Data })
	}
	return nil, fmt.Errorf("join multipart: %T has no parts", parts[0])
}

// join appends the lists of all parts, which have the type of the first part. access returns pointers to a part's list
// and to its flag for further parts.
func join[M Message, T any](parts []Message, access func(*M) (more *bool, list *[]T)) (Message, error) {
	var all M
	var sum []T
	for i, p := range parts {
		m, ok := p.(M)
		if !ok {
			return nil, fmt.Errorf("join multipart: part %d is %T, the first is %T", i+1, p, parts[0])
		}
		_, list := access(&m)
		sum = append(sum, *list...)
		if i == 0 {
			all = m
		}
	}
	more, list := access(&all)
	*more, *list = false, sum
	return all, nil
}

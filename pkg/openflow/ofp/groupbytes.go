package ofp

import "encoding/binary"

// GroupDescBytes is a group in a GroupDescReply. Only the parts at fixed offsets are decoded. Its slices point into the
// message.
type GroupDescBytes struct {
	ID         uint32
	GroupType  GroupType
	Buckets    []byte
	Properties []byte // the selection and others
}

// EachGroupDesc calls a function with each group of a whole message that is a GroupDescReply, as EachFlowDesc does with
// flows.
func EachGroupDesc(message []byte, take func(GroupDescBytes) error) (err error) {
	d := decoder{what: "group_desc", buf: message, err: &err}
	if head := d.take("header", 16); err == nil &&
		(head[1] != byte(TypeMultipartReply) || MultipartType(binary.BigEndian.Uint16(head[8:])) != MultipartGroupDesc) {
		d.fail("header", "this is no reply with groups")
	}
	for d.left() > 0 {
		s := d.entry("group", 16)
		s.skip(2)
		g := GroupDescBytes{GroupType: GroupType(s.u8("group type"))}
		s.skip(1)
		g.ID = s.u32("group_id")
		n := int(s.u16("bucket_list_len"))
		s.skip(6)
		g.Buckets = s.take("buckets", n)
		g.Properties = s.take("properties", s.left())
		if err != nil {
			return err
		}
		if err := take(g); err != nil {
			return err
		}
	}
	return err
}

// AppendGroupMod appends a group-mod with its header to b. Its buckets and properties are given as bytes, and
// m.Buckets, m.Selection and m.Properties are ignored. It is for callers that keep groups as bytes.
func AppendGroupMod[T string | []byte](b []byte, xid uint32, m *GroupMod, buckets, properties T) []byte {
	command := BucketAll
	if m.Command == GroupInsertBucket || m.Command == GroupRemoveBucket {
		command = m.CommandBucket
	}
	b = append(b, Version, byte(TypeGroupMod))
	b = binary.BigEndian.AppendUint16(b, uint16(24+len(buckets)+len(properties)))
	b = binary.BigEndian.AppendUint32(b, xid)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Command))
	b = append(b, byte(m.GroupType), 0)
	b = binary.BigEndian.AppendUint32(b, m.ID)
	b = binary.BigEndian.AppendUint16(b, uint16(len(buckets)))
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint32(b, command)
	b = append(b, buckets...)
	return append(b, properties...)
}

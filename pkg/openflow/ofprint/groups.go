package ofprint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var groupTypes = []string{"all", "select", "indirect", "ff"}

func (p *printer) groupMod(m ofp.GroupMod) {
	p.str("\n ")
	bucketCommand := false
	switch m.Command {
	case ofp.GroupAdd:
		p.str("ADD")
	case ofp.GroupModify:
		p.str("MOD")
	case ofp.GroupAddOrModify:
		p.str("ADD_OR_MOD")
	case ofp.GroupDelete:
		p.str("DEL")
	case ofp.GroupInsertBucket:
		p.str("INSERT_BUCKET")
		bucketCommand = true
	case ofp.GroupRemoveBucket:
		p.str("REMOVE_BUCKET")
		bucketCommand = true
	default:
		p.f("cmd:%d", m.Command)
	}
	p.str(" ")
	if bucketCommand {
		p.bucketID("command_bucket_id:", m.CommandBucket)
	}
	p.group(ofp.GroupDesc{ID: m.ID, GroupType: m.GroupType, Selection: m.Selection, Buckets: m.Buckets}, !bucketCommand)
}

func (p *printer) bucketID(label string, id uint32) {
	p.str(label)
	switch id {
	case ofp.BucketFirst:
		p.str("first")
	case ofp.BucketLast:
		p.str("last")
	case ofp.BucketAll:
		p.str("all")
	default:
		p.num(uint64(id))
	}
	p.str(",")
}

// group prints a group in the form of ovs-ofctl's add-group. Messages about single buckets
// leave out the type.
func (p *printer) group(g ofp.GroupDesc, withType bool) {
	p.f("group_id=%d", g.ID)
	if withType {
		if int(g.GroupType) < len(groupTypes) {
			p.str(",type=" + groupTypes[g.GroupType])
		} else {
			p.str(",type=unknown")
		}
	}
	if s := g.Selection; s.Method != "" {
		p.str(",selection_method=" + s.Method)
		if s.Param != 0 {
			p.f(",selection_method_param=%d", s.Param)
		}
		p.hashFields(s)
	}
	p.str(",")
	for _, b := range g.Buckets {
		p.str("bucket=")
		p.bucketID("bucket_id:", b.ID)
		weight := uint16(0)
		if g.GroupType == ofp.GroupTypeSelect {
			weight = 1
		}
		if b.Weight != weight {
			p.f("weight:%d,", b.Weight)
		}
		if port := anyPort(b.WatchPort); port != ofp.PortAny {
			p.f("watch_port:%s,", p.names.Port(port))
		}
		if b.WatchGroup != 0 && b.WatchGroup != ofp.GroupAny {
			p.f("watch_group:%d,", b.WatchGroup)
		}
		p.str("actions=")
		p.actions(b.Actions)
		p.str(",")
	}
	p.chomp(',')
}

// hashFields prints the fields of a hash, in Open vSwitch's order. If a field has a mask that is not full, the mask is
// printed too.
func (p *printer) hashFields(s ofp.Selection) {
	list := s.Sorted()
	slices.SortStableFunc(list, func(a, b ofp.MatchField) int {
		i, _ := fieldPlace(ofp.FieldID{Field: a.Field})
		j, _ := fieldPlace(ofp.FieldID{Field: b.Field})
		return cmp.Compare(i, j)
	})
	var names []string
	for _, f := range list {
		name := f.Field.String()
		if place, ok := fieldPlace(ofp.FieldID{Field: f.Field}); ok {
			name = fieldOrder[place]
		}
		if n := f.Field.Len(); f.Mask != ofp.Ones(f.Field.Bits()) {
			// The mask is written as a value of the field, as an action has it.
			set := flow.Actions{ofp.SetField{Field: f.Field, Value: string(f.Mask.Append(nil, n))}}.String()
			value, _, _ := strings.Cut(strings.TrimPrefix(set, "set_field:"), "->")
			name += "=" + value
		}
		names = append(names, name)
	}
	switch len(names) {
	case 0:
	case 1:
		p.str(",fields=" + names[0])
	default:
		p.str(",fields(" + strings.Join(names, ",") + ")")
	}
}

// groupRequest prints the number in a request; 0 is sent as GroupAll.
func (p *printer) groupRequest(id uint32) {
	p.str(" group_id=")
	switch id {
	case 0, ofp.GroupAll:
		p.str("ALL")
	case ofp.GroupAny:
		p.str("ANY")
	default:
		p.num(uint64(id))
	}
}

func (p *printer) groupStats(g ofp.GroupStats) {
	p.f("\n group_id=%d,", g.ID)
	if g.DurationSec != ^uint32(0) {
		p.str("duration=")
		p.duration(g.DurationSec, g.DurationNsec)
		p.str(",")
	}
	p.f("ref_count=%d,packet_count=%d,byte_count=%d", g.RefCount, g.Packets, g.Bytes)
	for i, b := range g.Buckets {
		if b.Packets != ^uint64(0) {
			p.f(",bucket%d:packet_count=%d,byte_count=%d", i, b.Packets, b.Bytes)
		}
	}
}

// These are names of the actions that a group may have, by ofp_action_type, in the order in which Open vSwitch lists
// them.
var actionTypes = []struct {
	bit  int
	name string
}{
	{0, "output"}, {22, "group"}, {25, "set_field"}, {18, "strip_vlan"}, {17, "push_vlan"},
	{23, "mod_nw_ttl"}, {24, "dec_ttl"}, {15, "set_mpls_ttl"}, {16, "dec_mpls_ttl"},
	{19, "push_mpls"}, {20, "pop_mpls"}, {21, "set_queue"},
}

func (p *printer) groupFeatures(m ofp.GroupFeaturesReply) {
	p.f("\n Group table:\n    Types:  0x%x\n    Capabilities:  0x%x\n", m.Types, m.Capabilities)
	for i, name := range []string{"all", "select", "indirect", "fast failover"} {
		if m.Types&(1<<i) == 0 {
			continue
		}
		p.f("    %s group:\n       max_groups=", name)
		p.hexAlt(uint64(m.MaxGroups[i]))
		p.str("\n       actions: ")
		p.actionTypes(m.Actions[i])
		p.str("\n")
	}
}

func (p *printer) actionTypes(bits uint32) {
	before := len(p.b)
	for _, t := range actionTypes {
		if bits&(1<<t.bit) != 0 {
			p.str(t.name + " ")
		}
	}
	if len(p.b) == before {
		p.str("<none>")
	} else {
		p.chomp(' ')
	}
}

package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// DefaultPriority is a flow's priority in ovs-ofctl's text that names none.
const DefaultPriority = 0x8000

// Flow is one entry of a flow table.
type Flow struct {
	Table                    ofp.Table
	Priority                 uint16
	Match                    Match
	Actions                  Actions
	Cookie                   uint64
	IdleTimeout, HardTimeout uint16 // seconds, 0 for ever
	Flags                    uint16 // ofp.Flag...
	Importance               uint16
}

// Key is the switch's own identity of a flow: two flows with one key are one flow.
type Key struct {
	Table    ofp.Table
	Priority uint16
	Match    Match
}

// Key is the flow's identity.
func (f Flow) Key() Key { return Key{f.Table, f.Priority, f.Match} }

// Err is the first thing wrong with the flow, nil where nothing is.
func (f Flow) Err() error {
	var scratch [512]byte
	_, err := f.AppendInstructions(scratch[:0])
	return err
}

// AppendInstructions appends the flow's actions and instructions in the form of a message. It returns the first fault
// of the whole flow as its error.
func (f Flow) AppendInstructions(b []byte) ([]byte, error) {
	if err := f.Match.Err(); err != nil {
		return b, fmt.Errorf("flow %q: %w", f, err)
	}
	out, err := ofp.AppendActions(b, f.Actions)
	if err != nil {
		return b, fmt.Errorf("flow %q: actions: %w", f, err)
	}
	if err := ofp.CheckPrerequisites(f.Match.oxm, f.Actions); err != nil {
		return b, fmt.Errorf("flow %q: %w", f, err)
	}
	for _, a := range f.Actions {
		if g, ok := a.(ofp.GotoTable); ok && g.Table <= f.Table {
			return b, fmt.Errorf("flow %q: goto_table:%d is not after table %d", f, g.Table, f.Table)
		}
	}
	if f.Table == ofp.TableAll {
		return b, fmt.Errorf("flow %q: table 255 stands for all tables", f)
	}
	return out, nil
}

// Mod returns the message that applies a command to the flow. For FlowModifyStrict the cookie is written too, since OVS
// keeps the old one otherwise. FlowAdd replaces the flow and keeps no counters.
func (f Flow) Mod(c ofp.FlowCommand) ofp.FlowMod {
	m := ofp.FlowMod{
		Table: f.Table, Command: c, Priority: f.Priority, Match: f.Match.oxm,
		BufferID: ofp.NoBuffer, OutPort: ofp.PortAny, OutGroup: ofp.GroupAny,
	}
	if c == ofp.FlowDelete || c == ofp.FlowDeleteStrict {
		return m
	}
	m.Cookie, m.IdleTimeout, m.HardTimeout = f.Cookie, f.IdleTimeout, f.HardTimeout
	m.Flags, m.Importance, m.Actions = f.Flags, f.Importance, f.Actions
	return m
}

// FromStats is the flow that the switch reports of.
func FromStats(d ofp.FlowDesc) Flow {
	return Flow{
		Table: d.Table, Priority: d.Priority, Match: Match{oxm: d.Match}, Actions: d.Actions, Cookie: d.Cookie,
		IdleTimeout: d.IdleTimeout, HardTimeout: d.HardTimeout, Flags: d.Flags, Importance: d.Importance,
	}
}

// FromUpdate is the flow that a flow monitor reports; flags and importance are not in it.
func FromUpdate(u ofp.FlowUpdate) Flow {
	return Flow{
		Table: u.Table, Priority: u.Priority, Match: Match{oxm: u.Match}, Actions: u.Actions, Cookie: u.Cookie,
		IdleTimeout: u.IdleTimeout, HardTimeout: u.HardTimeout,
	}
}

// Equal reports whether two flows are the same in everything, actions by their meaning.
func (f Flow) Equal(g Flow) bool {
	return f.Key() == g.Key() && f.sameBody(g)
}

func (f Flow) sameBody(g Flow) bool {
	return f.Cookie == g.Cookie && f.IdleTimeout == g.IdleTimeout && f.HardTimeout == g.HardTimeout &&
		f.Flags&ofp.KeptFlags == g.Flags&ofp.KeptFlags && f.Importance == g.Importance && f.Actions.Equal(g.Actions)
}

// GroupType is how a group uses its buckets.
type GroupType uint8

// Kinds of groups.
const (
	AllBuckets   = GroupType(ofp.GroupTypeAll) // every bucket gets a copy
	Select       = GroupType(ofp.GroupTypeSelect)
	Indirect     = GroupType(ofp.GroupTypeIndirect)
	FastFailover = GroupType(ofp.GroupTypeFastFailover)
)

// Selection is the method with which a select group picks its bucket: Method "", "hash" (over Fields) or "dp_hash".
type Selection = ofp.Selection

// Bucket is one set of actions of a group. WatchPort and WatchGroup 0 mean none.
type Bucket struct {
	ID         uint32
	Weight     uint16
	WatchPort  ofp.Port
	WatchGroup uint32
	Actions    Actions
}

// Group is one entry of the group table.
type Group struct {
	ID        uint32
	Type      GroupType
	Selection Selection
	Buckets   []Bucket
}

// Mod is the message that does something with the group.
func (g Group) Mod(c ofp.GroupCommand) ofp.GroupMod {
	m := ofp.GroupMod{Command: c, GroupType: ofp.GroupType(g.Type), ID: g.ID, CommandBucket: ofp.BucketAll}
	if c == ofp.GroupDelete {
		return m
	}
	m.Selection = g.Selection
	m.Buckets = g.appendBuckets(make([]ofp.Bucket, 0, len(g.Buckets)))
	return m
}

func (g *Group) appendBuckets(list []ofp.Bucket) []ofp.Bucket {
	for i := range g.Buckets {
		b := &g.Buckets[i]
		list = append(list, ofp.Bucket{ID: b.ID, Weight: b.Weight, WatchPort: b.WatchPort, WatchGroup: b.WatchGroup,
			Actions: b.Actions})
	}
	return list
}

// FromGroupDesc is the group that the switch reports of.
func FromGroupDesc(d ofp.GroupDesc) Group {
	g := Group{ID: d.ID, Type: GroupType(d.GroupType), Selection: d.Selection}
	for _, b := range d.Buckets {
		g.Buckets = append(g.Buckets, Bucket{b.ID, b.Weight, b.WatchPort, b.WatchGroup, b.Actions})
	}
	return g
}

// Err is the first thing wrong with the group, nil where nothing is.
func (g Group) Err() error {
	_, err := g.AppendAdd(nil)
	return err
}

// AppendAdd appends the message that adds the group. Its error is the first fault of the group.
func (g *Group) AppendAdd(b []byte) ([]byte, error) {
	if g.ID > 0xffffff00 {
		return b, fmt.Errorf("group %d: numbers above 0xffffff00 are reserved", g.ID)
	}
	list := bucketLists.Get().(*[]ofp.Bucket)
	m := ofp.GroupMod{Command: ofp.GroupAdd, GroupType: ofp.GroupType(g.Type), ID: g.ID, Selection: g.Selection,
		Buckets: g.appendBuckets((*list)[:0])}
	out, err := ofp.AppendMessage(b, 0, m)
	clear(m.Buckets)
	*list = m.Buckets
	bucketLists.Put(list)
	if err != nil {
		return b, fmt.Errorf("group %d: %w", g.ID, err)
	}
	return out, nil
}

// bucketLists are reused lists of buckets for AppendAdd: they would be most of its garbage.
var bucketLists = sync.Pool{New: func() any { return new([]ofp.Bucket) }}

// Equal reports whether two groups are the same, actions by their meaning. The order of buckets matters only in
// fast-failover groups.
func (g Group) Equal(h Group) bool {
	if g.ID != h.ID || g.Type != h.Type || !g.Selection.Equal(h.Selection) || len(g.Buckets) != len(h.Buckets) {
		return false
	}
	have, want := g.ordered(), h.ordered()
	for i, b := range have {
		c := want[i]
		if b.ID != c.ID || b.Weight != c.Weight || b.watchPort() != c.watchPort() || b.watchGroup() != c.watchGroup() ||
			!b.Actions.Equal(c.Actions) {
			return false
		}
	}
	return true
}

// ordered are the buckets by their numbers, where their order has no meaning.
func (g Group) ordered() []Bucket {
	byID := func(a, b Bucket) int { return cmp.Compare(a.ID, b.ID) }
	if g.Type == FastFailover || slices.IsSortedFunc(g.Buckets, byID) {
		return g.Buckets
	}
	return slices.SortedStableFunc(slices.Values(g.Buckets), byID)
}

func (b Bucket) watchPort() ofp.Port {
	if b.WatchPort == 0 {
		return ofp.PortAny
	}
	return b.WatchPort
}
func (b Bucket) watchGroup() uint32 {
	if b.WatchGroup == 0 {
		return ofp.GroupAny
	}
	return b.WatchGroup
}

// Band is a meter's rate, in kilobits or packets a second, above which it acts.
type Band = ofp.MeterBand

// Meter is one entry of the meter table. Flags are ofp.MeterKbps and so on.
type Meter struct {
	ID    uint32
	Flags uint16
	Bands []Band
}

// Mod is the message that does something with the meter.
func (m Meter) Mod(c ofp.MeterCommand) ofp.MeterMod {
	if c == ofp.MeterDelete {
		return ofp.MeterMod{Command: c, ID: m.ID}
	}
	return ofp.MeterMod{Command: c, Flags: m.Flags, ID: m.ID, Bands: m.Bands}
}

// FromMeterDesc is the meter that the switch reports of.
func FromMeterDesc(d ofp.MeterDesc) Meter { return Meter{d.ID, d.Flags, d.Bands} }

// Err is the first thing wrong with the meter, nil where nothing is.
func (m Meter) Err() error {
	if m.ID == 0 {
		return fmt.Errorf("meter: it has no number")
	}
	if m.Flags&(ofp.MeterKbps|ofp.MeterPktps) == 0 {
		return fmt.Errorf("meter %d: its rates are neither in kbps nor in pktps", m.ID)
	}
	if len(m.Bands) == 0 {
		return fmt.Errorf("meter %d: it has no bands", m.ID)
	}
	for i, b := range m.Bands {
		burst := m.Flags&ofp.MeterBurst != 0
		switch {
		case b.Rate == 0:
			return fmt.Errorf("meter %d: band %d has no rate", m.ID, i+1)
		case burst != (b.Burst != 0):
			return fmt.Errorf("meter %d: band %d: burst_size and the flag burst belong together", m.ID, i+1)
		case (b.Kind == ofp.BandDSCPRemark) != (b.PrecLevel != 0):
			return fmt.Errorf("meter %d: band %d: dscp_remark has a prec_level, and no other band has", m.ID, i+1)
		}
	}
	if _, err := ofp.AppendMessage(nil, 0, m.Mod(ofp.MeterAdd)); err != nil {
		return fmt.Errorf("meter %d: %w", m.ID, err)
	}
	return nil
}

// Equal reports whether two meters are the same. Without ofp.MeterBurst the bands' bursts do not count, since a switch
// fills in any value.
func (m Meter) Equal(n Meter) bool {
	return m.ID == n.ID && m.Flags == n.Flags && slices.EqualFunc(m.Bands, n.Bands, func(a, b Band) bool {
		if m.Flags&ofp.MeterBurst == 0 {
			a.Burst, b.Burst = 0, 0
		}
		return a == b
	})
}

// Kind is what sort of owner wants an entry; it stands in the flows' cookies.
type Kind uint8

// Owner is what entries belong to: a kind and a name within it.
type Owner struct {
	Kind Kind
	Name string
}

// Compare orders owners by kind, then name. If several owners want one entry, the first owner in this order has it.
func (o Owner) Compare(p Owner) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Name, p.Name))
}

// String is kind/name.
func (o Owner) String() string { return fmt.Sprintf("%d/%s", o.Kind, o.Name) }

// Entries is everything that one owner wants in the switch.
type Entries struct {
	Flows  []Flow
	Groups []Group
	Meters []Meter
}

// Miss is what happens to a packet that meets no flow of a table.
type Miss uint8

// Actions of a table for packets that match no flow.
const (
	Drop Miss = iota
	Next      // continue in the table after it
)

// TableSpec describes one table.
type TableSpec struct {
	Name string
	Miss Miss
}

// Program is the tables of a pipeline.
type Program map[ofp.Table]TableSpec

// Name returns the table's name, or its number if it has no name.
func (p Program) Name(t ofp.Table) string {
	if s := p[t].Name; s != "" {
		return s
	}
	return fmt.Sprintf("table %d", t)
}

// Tables are the program's tables in the order a packet meets them.
func (p Program) Tables() []ofp.Table {
	list := make([]ofp.Table, 0, len(p))
	for t := range p {
		list = append(list, t)
	}
	slices.Sort(list)
	return list
}

// CompareKeys orders flows as ovs-ofctl --rsort would within a table: by table, by falling
// priority, by match.
func CompareKeys(a, b Key) int {
	switch {
	case a.Table != b.Table:
		return int(a.Table) - int(b.Table)
	case a.Priority != b.Priority:
		return int(b.Priority) - int(a.Priority)
	}
	return strings.Compare(string(a.Match.oxm), string(b.Match.oxm))
}

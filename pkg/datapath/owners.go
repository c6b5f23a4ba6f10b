package datapath

import (
	"iter"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

// owned is a table in which each row has the entries of one owner.
type owned interface {
	// len returns how many rows there are.
	len() int
	// each calls yield with each owner that has entries, until yield returns false. It returns true if it has called yield
	// for all.
	each(yield func(flow.Owner, flow.Entries) bool) bool
	// watch calls changed with the owners of rows that a pass changes.
	watch(changed func(flow.Owner, func() flow.Entries))
}

// ownedTable makes owners of keys, and entries of rows.
type ownedTable[K derive.Key[K], V any] struct {
	table   *derive.Table[K, V]
	owner   func(K) flow.Owner
	entries func(V) flow.Entries
}

func (t ownedTable[K, V]) len() int { return t.table.Len() }

func (t ownedTable[K, V]) each(yield func(flow.Owner, flow.Entries) bool) bool {
	for _, row := range t.table.All() {
		e := t.entries(row.Value)
		if len(e.Flows)+len(e.Groups)+len(e.Meters) > 0 && !yield(t.owner(row.Key), e) {
			return false
		}
	}
	return true
}

func (t ownedTable[K, V]) watch(changed func(flow.Owner, func() flow.Entries)) {
	t.table.Watch(func(list []derive.Change[K, V]) {
		for _, c := range list {
			row := c.New
			changed(t.owner(c.Key), func() flow.Entries { return t.entries(row) })
		}
	})
}

// entriesOf is a table whose rows are entries.
func entriesOf[K derive.Key[K]](t *derive.Table[K, flow.Entries], owner func(K) flow.Owner) owned {
	return ownedTable[K, flow.Entries]{t, owner, func(e flow.Entries) flow.Entries { return e }}
}

// owned lists the tables that make all flows and groups.
func (t *Tables) owned() []owned {
	list := []owned{
		entriesOf(t.nodes, func(n derive.Name) flow.Owner { return NodeOwner(string(n)) }),
		ownedTable[derive.Name, ServedPod]{
			t.ServedPods, func(n derive.Name) flow.Owner { return PodOwner(string(n)) },
			func(p ServedPod) flow.Entries { return p.Entries },
		},
	}
	list = append(append(append(list, t.Services.owned()...), t.clusters.owned()...), t.tenants.owned()...)
	if t.Policies != nil {
		list = append(append(list, t.Policies.ofRules()...), t.Policies.shared()...)
		list = append(list, entriesOf(t.Policies.OfServices.flows, servicePolicyOwner))
	}
	return list
}

// ofRules lists the tables whose owners are of certain rules.
func (p *Policies) ofRules() []owned {
	return []owned{entriesOf(p.clauses, clauseOwner), entriesOf(p.verdicts, ruleOwner)}
}

// shared lists the tables whose owners all rules share.
func (p *Policies) shared() []owned {
	return []owned{
		entriesOf(p.judged, judgedOwner),
		entriesOf(p.addresses, addressOwner),
		entriesOf(p.further, furtherOwner),
		entriesOf(p.unknown, rangeOwner),
		entriesOf(p.blocks, blockOwner),
		entriesOf(p.Known.flows, againOwner),
		ownedTable[subject, namedFor]{p.answers, answersOwner, func(f namedFor) flow.Entries { return f.Entries }},
		entriesOf(p.followed, remoteOwner),
		entriesOf(p.newcomers, newcomerOwner),
	}
}

// All returns all owners of flows or groups with their entries. Any goroutine may call it.
func (t *Tables) All() iter.Seq2[flow.Owner, flow.Entries] {
	return func(yield func(flow.Owner, flow.Entries) bool) {
		for _, table := range t.owned() {
			if !table.each(yield) {
				return
			}
		}
	}
}

// Len returns the number of owners. It does not compute their entries, since the flows of all Services together are
// large.
func (t *Tables) Len() (n int) {
	for _, table := range t.owned() {
		n += table.len()
	}
	return n
}

// Watch sets a function that the evaluating goroutine calls with each owner whose entries a pass has changed. The
// second argument is a function that returns the owner's entries, which are empty if the owner is gone. It is a
// function because the entries of all Services at once are large.
func (t *Tables) Watch(changed func(flow.Owner, func() flow.Entries)) {
	for _, table := range t.owned() {
		table.watch(changed)
	}
	// Flows that refuse connections to Services without endpoints depend on the rate, which is not in the rows of
	// Services.
	t.base.rate.Watch(func([]derive.Change[derive.Name, uint32]) {
		for _, row := range t.Services.flows.All() {
			changed(shardOwner(row.Key), func() flow.Entries { return t.Services.balance(row.Value) })
		}
	})
}

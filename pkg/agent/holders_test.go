package agent

import (
	"maps"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestHolders lets Nodes announce keys of other Nodes. The Node that was seen first with a key keeps it, also after a
// restart of the agent.
func TestHolders(t *testing.T) {
	node := func(days int, key, next, address string) nodeFacts {
		return nodeFacts{Created: time.Date(2026, 1, days, 0, 0, 0, 0, time.UTC), WireGuardKey: key, NextKey: next,
			Internal: []netip.Addr{netip.MustParseAddr(address)}}
	}
	type nodes = map[string]nodeFacts
	young, old := node(20, "K", "", "192.168.78.102"), node(1, "O", "", "192.168.78.103")
	with := func(n nodeFacts, key, next string) nodeFacts {
		n.WireGuardKey, n.NextKey = key, next
		return n
	}
	for _, row := range []struct {
		name  string
		steps []nodes
		key   string
		want  string
	}{
		{"seen together: the oldest", []nodes{{"young": young, "old": with(old, "K", "")}}, "K", "old"},
		{"an older Node copies a younger one's key",
			[]nodes{{"young": young, "old": old}, {"young": young, "old": with(old, "K", "")}}, "K", "young"},
		{"it copies the next key",
			[]nodes{{"young": with(young, "K", "N"), "old": old}, {"young": with(young, "K", "N"), "old": with(old, "N", "")},
				{"young": with(young, "N", ""), "old": with(old, "N", "")}}, "N", "young"},
		{"it announces the key as its next",
			[]nodes{{"young": young, "old": old}, {"young": young, "old": with(old, "O", "K")}}, "K", "young"},
		{"the first has another key now",
			[]nodes{{"young": young, "old": old}, {"young": with(young, "M", ""), "old": with(old, "K", "")}}, "K", "old"},
		{"the first is gone", []nodes{{"young": young}, {"old": with(old, "K", "")}}, "K", "old"},
		{"this Node", []nodes{{"young": young}, {"young": young, "node-1": with(old, "K", "")}}, "K", "node-1"},
	} {
		for _, restarts := range []bool{false, true} {
			name := row.name
			if restarts {
				name += ", with restarts"
			}
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), holdersFile)
				fail := func(err error) { t.Error(err) }
				start := func() *tables {
					saved, err := readHolders(path)
					if err != nil {
						t.Error(err)
					}
					tables := newTables(config.Default(), "node-1")
					tables.inside.keys.remember(saved, holdersWriter(path, maps.Clone(saved), fail))
					return tables
				}
				tables := start()
				for i, step := range row.steps {
					if restarts && i > 0 {
						tables = start()
					}
					rows := map[derive.Object]nodeFacts{}
					for name, n := range step {
						rows[derive.Object{Name: name}] = n
					}
					tables.nodes.Replace(rows)
					tables.kinds.Loaded()
					tables.loaded()
					for range 3 { // a record of one pass counts in the next one
						tables.engine.Pass()
					}
				}
				if have, _ := tables.inside.keys.holders.Get(keyID(row.key)); have != row.want {
					t.Errorf("key %s is that of %q, want %q", row.key, have, row.want)
				}
			})
		}
	}
}

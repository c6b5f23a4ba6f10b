package peering

import (
	"fmt"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// TestTables changes parts of a peering. Only the rows that read the changed part are evaluated again.
func TestTables(t *testing.T) {
	e := derive.New()
	whole := derive.NewSource[derive.Name, Peering](e, "peering")
	whole.Loaded()
	tables := NewTables(e, whole)
	evaluated := map[derive.Name]int{}
	read := func(key derive.Name, r *derive.Reader) (bool, []problem.Problem) {
		evaluated[key]++
		_, part := derive.Get(r, tables.Part, key)
		_, peer := derive.Get(r, tables.Peers, key)
		return part || peer, nil
	}
	derive.NewTable(e, "readers", read, derive.KeysOf(tables.Part), derive.KeysOf(tables.Peers))
	north, west, active := Peer{ClusterID: "north"}, Peer{ClusterID: "west"}, Peer{ClusterID: "west", Active: true}
	regular, gateway := Part{Role: Regular}, Part{Role: Gateway}
	for _, step := range []struct {
		name     string
		to       Peering
		rows     string // of peers
		evaluate string
	}{
		{"two peers", Peering{regular, []Peer{north, west}}, "[north  west ]", "map[north:1 self:1 west:1]"},
		{"one of them changes", Peering{regular, []Peer{north, active}}, "[north  west active]", "map[west:1]"},
		{"the Node's part changes", Peering{gateway, []Peer{north, active}}, "[north  west active]", "map[self:1]"},
		{"nothing changes", Peering{gateway, []Peer{north, active}}, "[north  west active]", "map[]"},
		{"one goes", Peering{gateway, []Peer{active}}, "[west active]", "map[]"},
		{"the last one changes", Peering{gateway, []Peer{west}}, "[west ]", "map[west:1]"},
		{"all goes", Peering{}, "[]", "map[]"},
	} {
		clear(evaluated)
		whole.Set("self", step.to)
		e.Pass()
		rows := []string{}
		for _, row := range tables.Peers.All() {
			rows = append(rows, row.Value.ClusterID, map[bool]string{true: "active"}[row.Value.Active])
		}
		if have := fmt.Sprint(rows); have != step.rows {
			t.Errorf("%s: peers %s, want %s", step.name, have, step.rows)
		}
		if part, _ := tables.Part.Get("self"); part.Role != step.to.Part.Role {
			t.Errorf("%s: the role is %s", step.name, part.Role)
		}
		if have := fmt.Sprint(evaluated); have != step.evaluate {
			t.Errorf("%s: evaluated %s, want %s", step.name, have, step.evaluate)
		}
	}
}

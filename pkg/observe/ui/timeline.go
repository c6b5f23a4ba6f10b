package ui

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// maxChanges bounds the timeline. Above maxWatchedWays ways it has changes of links only.
const (
	maxChanges     = 1000
	maxWatchedWays = 4000
)

// fact is a state whose changes the timeline shows.
type fact struct {
	cluster, object, value string
	state                  State
}

// timeline records what changed from Model to Model.
type timeline struct {
	facts   map[string]map[string]fact // by cluster and by key
	changes []Change                   // the newest first
}

// add compares a Model with the facts before, and puts the changes into the Model. The first facts of a cluster are no
// changes. While a cluster does not answer, its facts stay as they were.
func (t *timeline) add(now time.Time, m *Model) {
	if t.facts == nil {
		t.facts = map[string]map[string]fact{}
	}
	var changes []Change
	after := m.facts()
	for _, c := range m.Clusters {
		before := t.facts[c.Key]
		switch {
		case !c.Current && before == nil:
			continue
		case !c.Current:
			kept := maps.Clone(before)
			kept["cluster"] = after[c.Key]["cluster"]
			after[c.Key] = kept
		}
		t.facts[c.Key] = after[c.Key]
		if before != nil {
			changes = append(changes, compare(now, before, after[c.Key])...)
		}
	}
	t.changes = append(changes, t.changes...)
	t.changes = t.changes[:min(len(t.changes), maxChanges)]
	m.Timeline = slices.Clone(t.changes)
}

// compare returns the differences between the facts of one cluster.
func compare(now time.Time, before, after map[string]fact) (changes []Change) {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := before[key]
		is, has := after[key]
		switch {
		case had && !has:
			changes = append(changes, Change{now, was.cluster, was.object, was.value, "gone", Unknown})
		case !had:
			changes = append(changes, Change{now, is.cluster, is.object, "new", is.value, is.state})
		case was.value != is.value:
			changes = append(changes, Change{now, is.cluster, is.object, was.value, is.value, is.state})
		}
	}
	return changes
}

// facts returns the facts of a Model by cluster and by key.
func (m *Model) facts() map[string]map[string]fact {
	out := map[string]map[string]fact{}
	ids := map[string]string{}
	for _, c := range m.Clusters {
		ids[c.Key] = c.ID
		out[c.Key] = map[string]fact{"cluster": {c.Key, "Cluster " + c.ID, c.Word, c.State}}
	}
	put := func(cluster, object, value string, state State) {
		out[cluster][object] = fact{cluster, object, value, state}
	}
	for _, c := range m.Clusters {
		for _, g := range c.Gateways {
			put(c.Key, "Gateway "+cmp.Or(g.Name, g.Address), cmp.Or(g.Phase, "in use"), OK)
		}
	}
	total := 0
	for _, l := range m.Links {
		total += len(l.Ways)
	}
	for _, l := range m.Links {
		if total > maxWatchedWays || m.waysOf != nil {
			put(l.A, "Ways "+ids[l.A]+" – "+ids[l.B], l.Word, l.State)
			continue
		}
		for _, w := range l.Ways {
			a, b := ids[l.A]+"/"+cmp.Or(w.A.Name, w.A.Address), ids[l.B]+"/"+cmp.Or(w.B.Name, w.B.Address)
			put(l.A, "Way "+a+" → "+b, w.AB.Word, w.AB.State)
			put(l.B, "Way "+b+" → "+a, w.BA.Word, w.BA.State)
		}
	}
	for _, s := range m.Services {
		for _, e := range s.Exports {
			put(e.Cluster, "ServiceExport "+s.Namespace+"/"+s.Name, e.Word, e.State)
		}
		for _, e := range s.Imports {
			put(e.Cluster, "ServiceImport "+s.Namespace+"/"+s.Name, e.Word, e.State)
		}
	}
	for key, nodes := range m.Nodes {
		for _, n := range nodes {
			put(key, "Node "+n.Name, n.Word, n.State)
		}
	}
	return out
}

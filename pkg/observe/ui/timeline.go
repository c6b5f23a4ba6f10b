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
	other                  string // key of the cluster at the far end of ways
}

// known is a cluster of the last Model.
type known struct {
	id, context string
	facts       map[string]fact // by key
}

// timeline records what changed from Model to Model.
type timeline struct {
	clusters map[string]known // by key
	changes  []Change         // the newest first
}

// add compares a Model with the facts before, and puts the changes into the Model. The first facts about a cluster are
// no changes. Neither are the first facts from a new context about a cluster that was known through others. While a
// cluster does not answer, its facts stay as they were.
func (t *timeline) add(now time.Time, m *Model) {
	before := t.clusters
	t.clusters = make(map[string]known, len(m.Clusters))
	var changes []Change
	after := m.facts()
	fresh, contexts := map[string]bool{}, map[string]bool{}
	for _, c := range m.Clusters {
		was, had := before[c.Key]
		fresh[c.Key] = !had || was.context != c.Context
		contexts[c.Context] = true
	}
	for _, c := range m.Clusters {
		is := known{c.ID, c.Context, after[c.Key]}
		was := before[c.Key]
		switch {
		case fresh[c.Key] && !c.Current:
			continue
		case fresh[c.Key]:
			t.clusters[c.Key] = is
			continue
		case !c.Current:
			is.facts = maps.Clone(was.facts)
			is.facts["cluster"] = after[c.Key]["cluster"]
		}
		t.clusters[c.Key] = is
		changes = append(changes, compare(now, was.facts, is.facts, fresh)...)
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		was := before[key]
		// A cluster that a context shows under another key has joined or left a ClusterSet.
		if _, stays := after[key]; !stays && (was.context == "" || !contexts[was.context]) {
			changes = append(changes, Change{now, key, "Cluster " + was.id, was.facts["cluster"].value, "gone", Unknown})
		}
	}
	t.changes = append(changes, t.changes...)
	t.changes = t.changes[:min(len(t.changes), maxChanges)]
	m.Timeline = slices.Clone(t.changes)
}

// compare returns the differences between the facts of one cluster. It leaves out ways to a cluster in fresh, since
// their names have changed.
func compare(now time.Time, before, after map[string]fact, fresh map[string]bool) (changes []Change) {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := before[key]
		is, has := after[key]
		switch {
		case fresh[was.other] || fresh[is.other]:
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
		out[c.Key] = map[string]fact{"cluster": {c.Key, "Cluster " + c.ID, c.Word, c.State, ""}}
	}
	put := func(cluster, object, value string, state State) {
		out[cluster][object] = fact{cluster, object, value, state, ""}
	}
	way := func(from, to, object, value string, state State) {
		out[from][object] = fact{from, object, value, state, to}
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
			way(l.A, l.B, "Ways "+ids[l.A]+" – "+ids[l.B], l.Word, l.State)
			continue
		}
		for _, w := range l.Ways {
			a, b := ids[l.A]+"/"+cmp.Or(w.A.Name, w.A.Address), ids[l.B]+"/"+cmp.Or(w.B.Name, w.B.Address)
			way(l.A, l.B, "Way "+a+" → "+b, w.AB.Word, w.AB.State)
			way(l.B, l.A, "Way "+b+" → "+a, w.BA.Word, w.BA.State)
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

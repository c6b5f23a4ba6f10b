package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/desired"
)

// typesOf returns types of maps or sets for a version of IP.
func typesOf(types map[string]string, ip version) map[string]string {
	out := map[string]string{}
	for name, text := range types {
		out[name] = strings.ReplaceAll(text, versions[knftables.IPv4Family].addresses, ip.addresses)
	}
	return out
}

// translatedTable is a table with an element for each translation. Changes are written as differences.
type translatedTable struct {
	family   knftables.Family
	ip       version
	name     string
	maps     map[string]string          // types by name
	sets     map[string]string          // the same of sets with elements, which have addresses
	contents func(Desired) contents     // all but the maps
	local    func(Desired) []netip.Addr // the addresses of elements without an address
	// removed is called after the table has been removed, until it returns true. It is also called once if an earlier
	// agent may have removed the table.
	removed func(*translatedTable, *applier) (done bool)
	// end ends connections of the host, of a family of sockets, that match.
	end      func(family uint8, filter connectionFilter, match func(connection) bool) (ended int, err error)
	what     string // the translations, in words
	declared *translations
	changed  chan struct{} // another program has changed the table, but for its elements
	wanted   chan struct{} // it should be another one
	outcome  outcome       // of the last comparison, in rounds of translations; Manager.mu guards it
}

// tableOf is the families of the tables of a version of IP.
var tableOf = map[knftables.Family]knftables.Family{
	knftables.IPv4Family: knftables.InetFamily, knftables.IPv6Family: knftables.IPv6Family,
}

// bothVersions returns a table for each version of IP.
func bothVersions(make func(version) *translatedTable) []*translatedTable {
	return []*translatedTable{make(versions[knftables.IPv4Family]), make(versions[knftables.IPv6Family])}
}

// mostSearched is the largest number of elements of an owner for which a linear search is used. For so few elements it
// is faster than a map.
const mostSearched = 32

// declare declares the elements of an owner in the table of each version of IP.
func declare(tables []*translatedTable, owner string, elements func(yield func(element, netip.AddrPort) bool)) {
	var few [8]valued
	for _, t := range tables {
		now := few[:0]
		var at map[element]int // of many elements
		for e, to := range elements {
			if !t.ip.has(to.Addr()) {
				continue
			}
			one := valued{e, destinationOf(to)}
			i, known := at[e]
			if at == nil {
				i = slices.IndexFunc(now, func(v valued) bool { return v.element == e })
				known = i >= 0
			}
			if known {
				now[i] = one
				continue
			}
			if now = append(now, one); at != nil {
				at[e] = len(now) - 1
			} else if len(now) == mostSearched {
				at = map[element]int{}
				for i, v := range now {
					at[v.element] = i
				}
			}
		}
		t.declared.set(owner, now)
	}
}

// byAddress reports whether the elements of a map have an address.
func (t *translatedTable) byAddress(name string) bool {
	return strings.HasPrefix(t.maps[name], t.ip.addresses)
}

// translations has the declared translations of all owners. There may be ten thousand owners with four elements each,
// so owners and elements have no maps of their own.
type translations struct {
	mu     sync.Mutex
	owners map[string][]element
	values map[element]owned
	others map[element][]owned // for a moment an element may have several owners
	dirty  map[element]bool    // since take
	loaded bool
	round  uint64
	wake   chan struct{}
}

// owned is the value that an owner gives an element.
type owned struct {
	owner string
	to    destination
}

func newTranslations() *translations {
	return &translations{
		owners: map[string][]element{}, values: map[element]owned{}, others: map[element][]owned{},
		dirty: map[element]bool{}, wake: make(chan struct{}, 1),
	}
}

// set declares the elements of an owner, each once.
func (t *translations) set(owner string, now []valued) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.owners[owner]
	differs := func(v valued) bool { return !t.has(v.element, owned{owner, v.to}) }
	if len(before) == len(now) && !slices.ContainsFunc(now, differs) {
		return
	}
	for _, e := range before {
		t.dirty[e] = true
		t.drop(e, owner)
	}
	list := make([]element, 0, len(now))
	for _, v := range now {
		list = append(list, v.element)
		t.dirty[v.element] = true
		if _, taken := t.values[v.element]; taken {
			t.others[v.element] = append(t.others[v.element], owned{owner, v.to})
		} else {
			t.values[v.element] = owned{owner, v.to}
		}
	}
	if t.owners[owner] = list; len(now) == 0 {
		delete(t.owners, owner)
	}
	t.round++
	desired.Signal(t.wake)
}

func (t *translations) has(e element, o owned) bool {
	return t.values[e] == o || slices.Contains(t.others[e], o)
}

// drop removes the value that an owner gives an element.
func (t *translations) drop(e element, owner string) {
	others := t.others[e]
	switch {
	case t.values[e].owner != owner:
		others = slices.DeleteFunc(others, func(o owned) bool { return o.owner == owner })
	case len(others) > 0:
		t.values[e], others = others[0], others[1:]
	default:
		delete(t.values, e)
	}
	if t.others[e] = others; len(others) == 0 {
		delete(t.others, e)
	}
}

// setLoaded declares that every owner was declared once.
func (t *translations) setLoaded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		t.loaded = true
		t.round++
		desired.Signal(t.wake)
	}
}

// take returns the elements that have changed since the last call, with the value that each should have. If an element
// should not exist, its value is the zero value.
func (t *translations) take() (changed map[element]destination, round uint64, loaded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		return nil, t.round, false
	}
	changed = map[element]destination{}
	for e := range t.dirty {
		changed[e] = t.value(e)
	}
	t.dirty = map[element]bool{}
	return changed, t.round, true
}

// all returns all elements that should exist.
func (t *translations) all() map[element]destination {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[element]destination, len(t.values))
	for e := range t.values {
		out[e] = t.value(e)
	}
	return out
}

// value returns the value of the first owner.
func (t *translations) value(e element) destination {
	first := t.values[e]
	for _, o := range t.others[e] {
		if o.owner < first.owner {
			first = o
		}
	}
	return first.to
}

// allTranslated waits until the host has the declared translations of some tables, or has refused some.
func (m *Manager) allTranslated(ctx context.Context, tables []*translatedTable) error {
	var failed error
	for _, t := range tables {
		failed = errors.Join(failed, m.translated(ctx, t))
	}
	return failed
}

// translated is allTranslated for one table.
func (m *Manager) translated(ctx context.Context, t *translatedTable) error {
	t.declared.mu.Lock()
	round := t.declared.round
	t.declared.mu.Unlock()
	for {
		m.mu.Lock()
		done, progress, failed := t.outcome.done, m.progress, t.outcome.failed
		m.mu.Unlock()
		if done >= round {
			return asError(failed)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", t.what, context.Cause(ctx))
		case <-progress:
		}
	}
}

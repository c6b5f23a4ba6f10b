package hostnet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// elementsResync is how often the elements are compared although no event asks for it.
const elementsResync = 10 * time.Minute

// translator writes the table.
type translator struct {
	table   *translatedTable
	rules   *ruleset
	base    string // text of the contents that were written
	known   bool   // written is what the kernel has, as far as events report
	written map[element]destination
	// due are the UDP addresses and ports with connections whose translation may differ from the written one. They stay
	// until these connections have been checked.
	due map[datagrams]bool
	// cleared is set if nothing of the removed table is left, until the table is written again.
	cleared bool
}

// keepTranslated is Run for a table of translations.
func (m *Manager) keepTranslated(ctx context.Context, t *translatedTable) error {
	if err := m.enter(); err != nil {
		return err
	}
	a, s := &applier{log: m.log}, &translator{table: t, due: map[datagrams]bool{}}
	var again <-chan time.Time // after a failure
	resync, often := time.NewTicker(elementsResync), time.NewTicker(m.opts.Resync)
	defer resync.Stop()
	defer often.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.declared.wake:
		case <-t.wanted:
		case <-again:
		case <-resync.C:
			s.known = false
		case <-often.C:
			if !m.events.ended.Load() {
				continue
			}
			s.known = false
		case <-t.changed:
			s.known = false
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				return nil
			}
		}
		changed, round, loaded := t.declared.take()
		want, stack := m.want.Get() // what was set before these translations were declared
		if !loaded || stack == 0 {
			continue
		}
		a.begin(ctx, want)
		s.apply(a, changed, t.declared.all)
		s.endStale(a)
		again = nil
		if len(a.failed)+len(a.noted) > 0 {
			again = time.After(tableRetry)
		}
		m.compared(a, &t.outcome, round)
	}
}

// apply makes the table equal to the desired one. changed has the elements that differ from the previous desired state,
// and all returns all elements.
func (s *translator) apply(a *applier, changed map[element]destination, all func() map[element]destination) {
	object := problem.Object{Kind: "nftables table", Name: string(s.table.family) + " " + s.table.name}
	base := s.table.contents(a.want)
	if s.rules == nil {
		nft, err := knftables.New(s.table.family, s.table.name)
		if err != nil {
			if len(base.chains) > 0 {
				a.change(err, object, "", "ask for nftables; the nft program has to be installed")
			}
			return
		}
		s.rules = &ruleset{nft: nft}
	}
	if text := fmt.Sprint(base); text != s.base {
		s.known, s.base = false, text
	}
	if !s.known {
		s.rewrite(a, object, base, all())
		return
	}
	if len(base.chains) == 0 {
		return // what is declared is written with the table
	}
	tx := s.rules.nft.NewTransaction()
	n := s.difference(tx, changed)
	if n == 0 {
		return
	}
	if err := s.rules.nft.Run(a.ctx, tx); err != nil {
		s.known = false // and read, at the next attempt
		a.change(err, object, "", "change %d elements", n)
		return
	}
	a.change(nil, object, "", "change %d elements", n)
	s.wrote(changed)
}

// rewrite reads the table and makes it equal to the desired one. If it has other chains, rules or sets, the whole table
// is written again.
func (s *translator) rewrite(a *applier, object problem.Object, base contents, want map[element]destination) {
	a.reads++
	have, same, there, err := s.read(a.ctx, base)
	switch {
	case err != nil:
		a.change(err, object, "", "read it")
		return
	case len(base.chains) == 0:
		if there && !s.remove(a, object) {
			return
		}
		s.known = true
		s.has(nil)
		return
	}
	s.cleared = false
	tx := s.rules.nft.NewTransaction()
	changed := maps.Clone(want)
	if same {
		s.has(have)
		for e := range have {
			if _, ok := want[e]; !ok {
				changed[e] = destination{}
			}
		}
	} else {
		s.has(map[element]destination{})
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		tx.Add(&knftables.Table{Comment: knftables.PtrTo("made by tombolo-agent, which mends changes")})
		addSets(tx, base.sets)
		for _, name := range slices.Sorted(maps.Keys(s.table.maps)) {
			tx.Add(&knftables.Map{Name: name, Type: s.table.maps[name]})
		}
		for _, name := range slices.Sorted(maps.Keys(s.table.sets)) {
			tx.Add(&knftables.Set{Name: name, Type: s.table.sets[name]})
		}
		addChains(tx, base.chains)
	}
	n := s.difference(tx, changed)
	if same && n == 0 {
		s.known = true
		return
	}
	if err := s.rules.nft.Run(a.ctx, tx); err != nil {
		a.change(err, object, "", "write its chains and %d elements", n)
		return
	}
	s.known = true
	a.change(nil, object, "", "change %d elements", n)
	s.wrote(changed)
}

// remove removes the table. It notes the elements of a table that an earlier agent has written, since their connections
// are due.
func (s *translator) remove(a *applier, object problem.Object) (done bool) {
	if s.written == nil { // an earlier agent wrote it; an error does not matter, since the table goes
		have, _, _ := s.elements(a.ctx, slices.Sorted(maps.Keys(s.table.maps)))
		s.has(have)
	}
	tx := s.rules.nft.NewTransaction()
	tx.Add(&knftables.Table{}) // so that the removal cannot fail
	tx.Delete(&knftables.Table{})
	err := s.rules.nft.Run(a.ctx, tx)
	a.change(err, object, "", "remove it")
	s.cleared = false
	return err == nil
}

// difference adds what brings the elements to their values, and returns how many differ.
func (s *translator) difference(tx *knftables.Transaction, changed map[element]destination) (n int) {
	for e, to := range changed {
		have, there := s.written[e]
		if have == to && there == to.valid() {
			continue
		}
		n++
		if e.protocol == 0 {
			if in := (&knftables.Element{Set: e.name(), Key: e.key()}); to.valid() {
				tx.Add(in)
			} else {
				tx.Delete(in)
			}
			continue
		}
		if there {
			tx.Delete(&knftables.Element{Map: e.name(), Key: e.key()})
		}
		if to.valid() {
			tx.Add(&knftables.Element{
				Map: e.name(), Key: e.key(), Value: []string{to.address.ip().String(), strconv.Itoa(int(to.port))},
			})
		}
	}
	return n
}

// wrote notes a change that the kernel has taken over.
func (s *translator) wrote(changed map[element]destination) {
	for e, to := range changed {
		have, there := s.written[e]
		if have == to && there == to.valid() {
			continue
		}
		if s.note(e); to.valid() {
			s.written[e] = to
		} else {
			delete(s.written, e)
		}
	}
}

// has notes all that the kernel has; nil without a table.
func (s *translator) has(now map[element]destination) {
	for e, to := range now {
		if s.written[e] != to {
			s.note(e)
		}
	}
	for e := range s.written {
		if _, still := now[e]; !still {
			s.note(e)
		}
	}
	s.written = now
}

// note makes UDP connections due whose translation may have changed.
func (s *translator) note(e element) {
	if e.protocol == unix.IPPROTO_UDP {
		s.due[datagrams{e.address.ip(), e.port}] = true
	}
}

// read returns the elements of the table, and whether chains, rules and sets are as they should be. Otherwise the
// elements are not read.
func (s *translator) read(ctx context.Context, base contents) (have map[element]destination, same, there bool,
	err error) {
	chains, err := s.rules.list(ctx, "chains")
	if err != nil {
		return nil, false, false, err
	}
	sets, err := s.rules.list(ctx, "sets")
	if err != nil {
		return nil, false, false, err
	}
	named, err := s.rules.list(ctx, "maps")
	if err != nil {
		return nil, false, false, err
	}
	there = len(chains)+len(sets)+len(named) > 0
	dynamic := slices.Sorted(maps.Keys(s.table.sets))
	fixed := slices.DeleteFunc(slices.Clone(sets), func(name string) bool { return slices.Contains(dynamic, name) })
	if !there || !slices.Equal(named, slices.Sorted(maps.Keys(s.table.maps))) ||
		len(sets)-len(fixed) != len(dynamic) {
		return nil, false, there, nil
	}
	if same, err = s.rules.matches(ctx, chains, fixed, base); err != nil || !same {
		return nil, false, there, err
	}
	if have, same, err = s.elements(ctx, named); err != nil || !same {
		return nil, false, there, err
	}
	for _, name := range dynamic {
		list, err := s.rules.nft.ListElements(ctx, "set", name)
		if err != nil {
			return nil, false, there, err
		}
		for _, one := range list {
			ip, err := netip.ParseAddr(one.Key[0])
			if err != nil {
				return nil, false, there, nil
			}
			have[elementOf(name, ip, "", 0)] = destination{address: addressOf(ip)}
		}
	}
	return have, true, there, nil
}

// elements returns the elements of some maps of the table. If one is not ours, it returns false, and the whole table
// has to be written again.
func (s *translator) elements(ctx context.Context, named []string) (have map[element]destination, ours bool,
	err error) {
	have = map[element]destination{}
	for _, name := range named {
		list, err := s.rules.nft.ListElements(ctx, "map", name)
		if err != nil {
			return nil, false, err
		}
		for _, one := range list {
			e, to, ok := parseElement(name, s.table.byAddress(name), one)
			if !ok {
				return nil, false, nil
			}
			have[e] = to
		}
	}
	return have, true, nil
}

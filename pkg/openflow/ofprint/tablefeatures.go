package ofprint

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// fieldSet is fields by their place in fieldOrder.
type fieldSet map[int]bool

func (s fieldSet) equal(t fieldSet) bool { return maps.Equal(s, t) }

// entryFeatures is what the flows of a table can do, as bits and sets.
type entryFeatures struct {
	next         [255]bool
	instructions uint32
	write, apply actionFeatures
}

type actionFeatures struct {
	actions   uint32
	setFields fieldSet
}

func (a actionFeatures) equal(b actionFeatures) bool {
	return a.actions == b.actions && a.setFields.equal(b.setFields)
}
func (a actionFeatures) empty() bool { return a.actions == 0 && len(a.setFields) == 0 }
func (e entryFeatures) empty() bool {
	return e.next == [255]bool{} && e.instructions == 0 && e.write.empty() && e.apply.empty()
}

// features returns a table's features as they are printed. As in Open vSwitch (ofputil_decode_table_features), it fills
// in the features of the miss flow, and corrects contradictions.
type features struct {
	ofp.TableFeatures
	hit, miss             entryFeatures
	match, mask, wildcard fieldSet
}

func resolve(t ofp.TableFeatures) features {
	f := features{TableFeatures: t, hit: entry(t.Hit, nil), match: fieldSet{}, mask: fieldSet{}, wildcard: fieldSet{}}
	f.miss = entry(t.Miss, &t.Hit)
	for _, id := range t.Match {
		if i, ok := fieldPlace(id); ok {
			f.match[i] = true
			if id.Masked {
				f.mask[i], f.wildcard[i] = true, true
			}
		}
	}
	for _, id := range t.Wildcards {
		if i, ok := fieldPlace(id); ok && f.match[i] {
			f.wildcard[i] = true
		}
	}
	return f
}

// entry resolves the features of a table's flows. If a property is missing, it uses the property of otherwise.
func entry(e ofp.TableEntryFeatures, otherwise *ofp.TableEntryFeatures) entryFeatures {
	if otherwise != nil {
		if e.Instructions == nil {
			e.Instructions = otherwise.Instructions
		}
		if e.NextTables == nil {
			e.NextTables = otherwise.NextTables
		}
		e.Write = actionsOr(e.Write, otherwise.Write)
		e.Apply = actionsOr(e.Apply, otherwise.Apply)
	}
	var out entryFeatures
	for _, i := range e.Instructions {
		if i.Kind < uint16(len(instructionPlace)) {
			out.instructions |= instructionPlace[i.Kind]
		}
	}
	for _, t := range e.NextTables {
		if t != ofp.TableAll {
			out.next[t] = true
		}
	}
	out.write, out.apply = actionSet(e.Write), actionSet(e.Apply)
	return out
}

func actionsOr(a, otherwise ofp.TableActionFeatures) ofp.TableActionFeatures {
	if a.Actions == nil {
		a.Actions = otherwise.Actions
	}
	if a.SetField == nil {
		a.SetField = otherwise.SetField
	}
	return a
}

func actionSet(a ofp.TableActionFeatures) actionFeatures {
	out := actionFeatures{setFields: fieldSet{}}
	for _, x := range a.Actions {
		for _, known := range actionTypes {
			if int(x.Kind) == known.bit {
				out.actions |= 1 << x.Kind
			}
		}
	}
	for _, id := range a.SetField {
		if i, ok := fieldPlace(id); ok && !id.Masked {
			out.setFields[i] = true
		}
	}
	return out
}

// instructionPlace maps an instruction of OpenFlow 1.5 to its bit in Open vSwitch's order. instructionNames has the
// names in that order.
var (
	instructionPlace = []uint32{1: 1 << 5, 2: 1 << 4, 3: 1 << 3, 4: 1 << 1, 5: 1 << 2, 6: 1 << 0}
	instructionNames = []string{"meter", "apply_actions", "clear_actions", "write_actions", "write_metadata", "goto_table"}
)

// sameNext reports whether flows of two tables can go to the same tables. A table can only go to later ones. So it is
// no difference if the first table can also go to the second one.
func sameNext(a [255]bool, at ofp.Table, b [255]bool, bt ofp.Table) bool {
	switch {
	case bt == at+1 && bt < 255 && a[bt] && !b[bt]:
		a[bt] = false
		return a == b
	case at == bt+1:
		return sameNext(b, bt, a, at)
	}
	return a == b
}

func sameEntry(a entryFeatures, at ofp.Table, b entryFeatures, bt ofp.Table) bool {
	return sameNext(a.next, at, b.next, bt) && a.instructions == b.instructions && a.write.equal(b.write) &&
		a.apply.equal(b.apply)
}

// tableConfigs are the capabilities that are printed.
const tableConfigs = ofp.TableEviction | ofp.TableVacancyEvents

func (f *features) same(g *features) bool {
	return f.MetadataMatch == g.MetadataMatch && f.MetadataWrite == g.MetadataWrite &&
		f.Capabilities&tableConfigs == g.Capabilities&tableConfigs && f.MaxEntries == g.MaxEntries &&
		sameEntry(f.hit, f.Table, g.hit, g.Table) && sameEntry(f.miss, f.Table, g.miss, g.Table) && f.match.equal(g.match)
}

func (p *printer) tableFeatures(list []ofp.TableFeatures) {
	var alike ditto
	var was *features
	for _, t := range list {
		f := resolve(t)
		p.oneTable(&f, was, &alike)
		was = &f
	}
	alike.end(p)
}

var featureCommands = []string{"replace", "modify", "enable", "disable"}

func (p *printer) oneTable(f, was *features, alike *ditto) {
	if was == nil && f.Command != ofp.TableFeaturesReplace {
		p.str("\n  command: ")
		if int(f.Command) < len(featureCommands) {
			p.str(featureCommands[f.Command])
		} else {
			p.str("***bad command***")
		}
	}
	same := was != nil && f.same(was)
	if same && f.Name == "" {
		alike.add(f.Table)
		return
	}
	alike.end(p)
	p.f("\n  table %d", f.Table)
	if f.Name != "" {
		p.f(" (\"%s\")", f.Name)
	}
	p.str(":")
	if same {
		p.str(" ditto")
		return
	}
	p.str("\n")
	if f.MetadataMatch != 0 || f.MetadataWrite != 0 {
		p.f("    metadata: match=%s write=%s\n", hexText(f.MetadataMatch), hexText(f.MetadataWrite))
	}
	p.f("    eviction: %ssupported\n", not(f.Capabilities&ofp.TableEviction != 0))
	p.f("    vacancy events: %ssupported\n", not(f.Capabilities&ofp.TableVacancyEvents != 0))
	if f.MaxEntries != 0 {
		p.f("    max_entries=%d\n", f.MaxEntries)
	}
	p.tableEntries(f, was)
	if len(f.match) == 0 {
		return
	}
	if was != nil && f.match.equal(was.match) {
		p.str("    (same matching)\n")
		return
	}
	p.str("    matching:\n")
	p.matching(f, "arbitrary mask", func(i int) bool { return f.mask[i] && f.wildcard[i] })
	p.matching(f, "exact match or wildcard", func(i int) bool { return !f.mask[i] && f.wildcard[i] })
	p.matching(f, "must exact match", func(i int) bool { return !f.mask[i] && !f.wildcard[i] })
}

func not(yes bool) string {
	if yes {
		return ""
	}
	return "not "
}

// tableEntries prints the abilities of flows. The table miss has its own line if it differs.
func (p *printer) tableEntries(f, was *features) {
	var hit, miss *entryFeatures
	if was != nil {
		hit, miss = &was.hit, &was.miss
	}
	switch {
	case was != nil && sameEntry(f.hit, f.Table, *hit, was.Table) && sameEntry(f.miss, f.Table, *miss, was.Table):
		if !f.hit.empty() {
			p.str("    (same instructions)\n")
		}
	case !sameEntry(f.hit, f.Table, f.miss, f.Table):
		p.str("    instructions (other than table miss):\n")
		p.entry(f.hit, hit)
		p.str("    instructions (table miss):\n")
		p.entry(f.miss, miss)
	case !f.hit.empty():
		p.str("    instructions (table miss and others):\n")
		p.entry(f.hit, hit)
	}
}

func (p *printer) entry(e entryFeatures, was *entryFeatures) {
	if e.next != [255]bool{} {
		p.str("      next tables: ")
		for t := 0; t < len(e.next); t++ {
			if !e.next[t] {
				continue
			}
			first := t
			for t+1 < len(e.next) && e.next[t+1] {
				t++
			}
			if first == t {
				p.f("%d,", first)
			} else {
				p.f("%d-%d,", first, t)
			}
		}
		p.chomp(',')
		p.str("\n")
	}
	if e.instructions != 0 {
		if was != nil && e.instructions == was.instructions {
			p.str("      (same instructions)\n")
		} else {
			p.str("      instructions: ")
			p.bitNames(e.instructions, nameByBit(instructionNames), " ")
			p.str("\n")
		}
	}
	switch {
	case was != nil && e.write.equal(was.write) && e.apply.equal(was.apply) && len(e.write.setFields) > 0:
		p.str("      (same actions)\n")
	case !e.write.equal(e.apply):
		p.str("      Write-Actions features:\n")
		p.actionFeatures(e.write)
		p.str("      Apply-Actions features:\n")
		p.actionFeatures(e.apply)
	case !e.write.empty():
		p.str("      Write-Actions and Apply-Actions features:\n")
		p.actionFeatures(e.write)
	}
}

func (p *printer) actionFeatures(a actionFeatures) {
	if a.actions != 0 {
		p.str("        actions: ")
		p.actionTypes(a.actions)
		p.str("\n")
	}
	if len(a.setFields) > 0 {
		p.str("        supported on Set-Field:")
		p.fields(a.setFields)
		p.str("\n")
	}
}

func (p *printer) matching(f *features, title string, is func(int) bool) {
	set := fieldSet{}
	for i := range f.match {
		if is(i) {
			set[i] = true
		}
	}
	if len(set) > 0 {
		p.f("      %s:", title)
		p.fields(set)
		p.str("\n")
	}
}

func (p *printer) fields(set fieldSet) {
	var names []string
	for _, i := range slices.Sorted(maps.Keys(set)) {
		names = append(names, fieldOrder[i])
	}
	p.str(" ")
	p.abbreviated(names, 0)
}

// abbreviated prints names whose first skip bytes are equal. It shortens runs of numbers to reg0...reg15, and names
// with a common beginning to eth_{src,dst}.
func (p *printer) abbreviated(names []string, skip int) {
	for first := true; len(names) > 0; first = false {
		if !first {
			if skip > 0 {
				p.str(",")
			} else {
				p.str(" ")
			}
		}
		prefixRun, extra := prefixRun(names, skip)
		run := sequence(names)
		if run >= prefixRun {
			p.str(names[0][skip:])
			if run > 1 {
				p.str("..." + names[run-1][skip:])
			}
		} else {
			run = prefixRun
			p.str(names[0][skip:skip+extra] + "{")
			p.abbreviated(names[:run], skip+extra)
			p.str("}")
		}
		names = names[run:]
	}
}

// sequence counts the names at the beginning that differ by a number that increases by one. Only runs of three or more
// are shortened.
func sequence(names []string) int {
	n := 1
	for n < len(names) && follows(names[n-1], names[n]) {
		n++
	}
	if n == 2 {
		return 1
	}
	return n
}

func follows(a, b string) bool {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	x, err1 := strconv.ParseUint(a[i:], 10, 31)
	y, err2 := strconv.ParseUint(b[i:], 10, 31)
	return err1 == nil && err2 == nil && x+1 == y
}

// prefixRun counts the names at the beginning that have a common prefix up to an underscore, and returns its length.
func prefixRun(names []string, skip int) (run, length int) {
	if len(names) < 2 {
		return len(names), 0
	}
	length = commonPrefix(names[0][skip:], names[1][skip:])
	if length == 0 {
		return 1, 0
	}
	run = 2
	for run < len(names) {
		next := commonPrefix(names[0][skip:], names[run][skip:])
		if next == 0 {
			break
		}
		if next < length {
			length = next
		}
		run++
	}
	return run, length
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return strings.LastIndexByte(a[:n], '_') + 1
}

package ofprint

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ditto counts successive tables that equal the previous one. ovs-ofctl prints one line for all of them.
type ditto struct {
	first, last ofp.Table
	any         bool
}

func (d *ditto) add(t ofp.Table) {
	if !d.any {
		d.first, d.any = t, true
	}
	d.last = t
}

func (d *ditto) end(p *printer) {
	switch {
	case !d.any:
		return
	case d.first == d.last:
		p.f("\n  table %d: ditto\n", d.first)
	default:
		p.f("\n  tables %d...%d: ditto\n", d.first, d.last)
	}
	d.any = false
}

func (p *printer) tableStats(list []ofp.TableStats) {
	var same ditto
	for i, t := range list {
		if i > 0 {
			was := list[i-1]
			if t.Active == was.Active && t.Lookup == was.Lookup && t.Matched == was.Matched {
				same.add(t.Table)
				continue
			}
		}
		same.end(p)
		p.f("\n  table %d:\n    active=%d, lookup=%d, matched=%d\n", t.Table, t.Active, t.Lookup, t.Matched)
	}
	same.end(p)
}

var evictionNames = []string{"OTHER", "IMPORTANCE", "LIFETIME"}

func (p *printer) evictionFlags(flags *uint32) {
	if flags == nil || *flags == ^uint32(0) {
		p.str("(default)")
		return
	}
	p.bitNames(*flags, nameByBit(evictionNames), "|")
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func vacancy(v *ofp.Vacancy) ofp.Vacancy {
	if v == nil {
		return ofp.Vacancy{}
	}
	return *v
}

func (p *printer) tableMod(m ofp.TableMod) {
	if m.Table == ofp.TableAll {
		p.str(" table_id: ALL_TABLES")
	} else {
		p.f(" table_id=%d", m.Table)
	}
	p.f(", eviction=%s", onOff(m.Config&ofp.TableEviction != 0))
	if m.EvictionFlags != nil && *m.EvictionFlags != ^uint32(0) {
		p.str(", eviction_flags=") // Open vSwitch 3.1 takes them for something else
		p.evictionFlags(m.EvictionFlags)
	}
	events := m.Config&ofp.TableVacancyEvents != 0
	p.f(", vacancy=%s", onOff(events))
	if events {
		v := vacancy(m.Vacancy)
		p.f(" vacancy:%d,%d", v.Down, v.Up)
	}
}

func (p *printer) tableDesc(t ofp.TableDesc) {
	p.f("\n  table %d:\n   eviction=%s eviction_flags=", t.Table, onOff(t.Config&ofp.TableEviction != 0))
	p.evictionFlags(t.EvictionFlags)
	events := t.Config&ofp.TableVacancyEvents != 0
	p.f("\n   vacancy=%s", onOff(events))
	if events {
		v := vacancy(t.Vacancy)
		p.f(" vacancy_down=%d%% vacancy_up=%d%% vacancy=%d%%", v.Down, v.Up, v.Current)
	}
	p.str("\n")
}

func (p *printer) tableStatus(m ofp.TableStatus) {
	switch m.Reason {
	case ofp.TableVacancyDown:
		p.str(" reason=VACANCY_DOWN")
	case ofp.TableVacancyUp:
		p.str(" reason=VACANCY_UP")
	default:
		p.f(" reason=%d", m.Reason)
	}
	p.str("\ntable_desc:-")
	p.tableDesc(m.Table)
}

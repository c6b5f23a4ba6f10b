package ofprint

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ditto counts tables in a row that are as the one before them; ovs-ofctl prints one line for
// them all.
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

// Package reasons is the register of the reasons of Problems, conditions and Events. A feature declares its reasons in
// its file reasons.go. The programs and the reference (docs/reference/reasons.md) read the same rows. The package
// imports no other package of Tombolo.
package reasons

import (
	"cmp"
	"slices"
	"strings"
)

// Shown is where users see a reason, as bits.
type Shown uint8

// The places of reasons.
const (
	Problem   Shown = 1 << iota // `tombolo get status`, and the metric tombolo_agent_problems
	Condition                   // the status of the object
	Event                       // an Event on the object
)

// String returns the names of the places, separated by commas.
func (s Shown) String() string {
	var out []string
	for i, name := range []string{"Problem", "condition", "Event"} {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// Level is how severe a reason is.
type Level string

// The levels.
const (
	Info    Level = "info"    // nothing is wrong
	Warning Level = "warning" // the object works, but not as asked, not yet or not for long
	Error   Level = "error"   // the object or a part of it does not work
)

// Row describes a reason to users.
type Row struct {
	Name    string // CamelCase
	Objects string // the kinds of its objects
	Shown   Shown
	Level   Level
	Cause   string // what is wrong, and what follows from it
	Remedy  string // empty for level Info
}

// Reason is a row that New has made, and nil for no reason.
type Reason = *Row

var rows []*Row

// New declares a reason. Only variables of packages call it.
func New(r Row) Reason {
	rows = append(rows, &r)
	return &r
}

// String returns the name, which conditions and Events have. Nil has an empty one.
func (r *Row) String() string {
	if r == nil {
		return ""
	}
	return r.Name
}

// Rows returns the rows that the packages of this program declare, in order of their names and objects. Reasons of
// several features may share a name.
func Rows() []Row {
	var out []Row
	for _, r := range rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Objects, b.Objects))
	})
	return out
}

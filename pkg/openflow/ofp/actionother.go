package ofp

import "fmt"

// Conjunction makes the flow one clause of a conjunctive match (NXAST_CONJUNCTION). Clause
// counts from 1, as in text.
type Conjunction struct {
	ID      uint32
	Clause  uint8
	Clauses uint8
}

// Note does nothing; its bytes are kept with the flow, zero-padded to 6 + a multiple of 8.
type Note struct{ Data string }

// Meter passes the packet through a meter.
type Meter struct{ ID uint32 }

// FinTimeout lowers the flow's timeouts when a TCP connection ends (NXAST_FIN_TIMEOUT).
type FinTimeout struct{ Idle, Hard uint16 }

// Exit stops the pipeline (NXAST_EXIT).
type Exit struct{}

// Clone runs actions on a copy of the packet (NXAST_CLONE).
type Clone struct{ Actions []Action }

func (a Conjunction) check() error {
	if a.Clause < 1 || a.Clause > a.Clauses || a.Clauses < 2 || a.Clauses > 64 {
		return fmt.Errorf("conjunction: clause %d of %d: want 1 to the number of clauses, 2 to 64 clauses", a.Clause,
			a.Clauses)
	}
	return nil
}

func (a Conjunction) appendTo(e *encoder) {
	s := e.nicira(nxConjunction)
	e.u8(a.Clause - 1)
	e.u8(a.Clauses)
	e.u32(a.ID)
	e.actionEnd(s)
}

func (a Note) check() error {
	if len(a.Data) > 0xffe0 {
		return fmt.Errorf("note: %d bytes are more than an action can have", len(a.Data))
	}
	return nil
}

func (a Note) appendTo(e *encoder) {
	s := e.nicira(nxNote)
	e.str(a.Data)
	e.fill(s, 16)
	e.actionEnd(s)
}

func (a Meter) check() error {
	if a.ID == 0 || a.ID > 0xffff0000 {
		return fmt.Errorf("meter: %d is no meter's number: want 1 to 4294901760", a.ID)
	}
	return nil
}

func (a Meter) appendTo(e *encoder) {
	s := e.actionStart(actMeter)
	e.u32(a.ID)
	e.actionEnd(s)
}

func (FinTimeout) check() error { return nil }
func (a FinTimeout) appendTo(e *encoder) {
	s := e.nicira(nxFinTimeout)
	e.u16(a.Idle)
	e.u16(a.Hard)
	e.actionEnd(s)
}

func (Exit) check() error        { return nil }
func (Exit) appendTo(e *encoder) { e.actionEnd(e.nicira(nxExit)) }

func (a Clone) check() error { return noMeter("clone", a.Actions) }
func (a Clone) appendTo(e *encoder) {
	s := e.nicira(nxClone)
	e.zero(6)
	e.actions(a.Actions)
	e.actionEnd(s)
}

// noMeter refuses a meter within another action.
func noMeter(outer string, list []Action) error {
	for _, a := range list {
		if _, ok := a.(Meter); ok {
			return fmt.Errorf("%s: a meter cannot stand within it", outer)
		}
	}
	return nil
}

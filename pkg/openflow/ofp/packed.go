package ofp

// Packed is a whole list of a flow's actions and instructions as the bytes that AppendActions
// makes of it. It takes a fraction of the list's memory, and no work when it is sent. It stands
// alone in a list, and only in a flow's; DecodeActions is the way back.
type Packed string

// PackActions is the list in packed form; an empty list stays as it is. The error says what the
// switch would refuse.
func PackActions(list []Action) ([]Action, error) {
	var scratch [512]byte
	b, err := AppendActions(scratch[:0], list)
	if err != nil || len(b) == 0 {
		return list, err
	}
	return []Action{Packed(b)}, nil
}

func (a Packed) check() error        { return nil }
func (a Packed) appendTo(e *encoder) { e.str(string(a)) }

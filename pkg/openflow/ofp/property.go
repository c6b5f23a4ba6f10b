package ofp

// ExperimenterProperty is the type of properties whose meaning belongs to an experimenter; their
// Data begins with the experimenter's number and its own type, four bytes each.
const ExperimenterProperty uint16 = 0xffff

// RawProperty is a property of a message that is kept as it came: an experimenter's, or one
// that the package does not know. Data is what follows the type and the length, without the
// padding to a multiple of 8 bytes.
type RawProperty struct {
	Kind uint16
	Data []byte
}

// Experimenter splits an experimenter's property into its number, its type and the rest; ok is
// false for other properties.
func (p RawProperty) Experimenter() (vendor, subtype uint32, data []byte, ok bool) {
	if p.Kind < 0xfffe || len(p.Data) < 8 {
		return 0, 0, nil, false
	}
	return uint32(ToValue(p.Data[:4]).Lo), uint32(ToValue(p.Data[4:8]).Lo), p.Data[8:], true
}

// FieldID names a match field by the header of its OXM, as table features and port
// descriptions do. Where the package does not know the field, Field is 0 and Raw is the header.
type FieldID struct {
	Field  Field
	Masked bool
	Raw    string
}

// ActionID names an action or an instruction by its type, as table features do. For an
// experimenter's (Kind 0xffff) Data is what follows the header: the experimenter's number and
// what it makes of the rest.
type ActionID struct {
	Kind uint16
	Data string
}

package ofp

// Format is how a field's value is written in ovs-ofctl's text.
type Format = format

// Formats of values.
const (
	FormatDecimal    = formatDecimal
	FormatHex        = formatHex
	FormatMAC        = formatMAC
	FormatIPv4       = formatIPv4
	FormatIPv6       = formatIPv6
	FormatPort       = formatPort
	FormatCTState    = formatCTState
	FormatTCPFlags   = formatTCPFlags
	FormatTunFlags   = formatTunFlags
	FormatFrag       = formatFrag
	FormatPacketType = formatPacketType
)

// Format is how the field's value is written in text.
func (f Field) Format() Format {
	if f >= fieldCount {
		return formatHex
	}
	return fields[f].format
}

// Maskable says whether single bits of the field can be matched and written.
func (f Field) Maskable() bool { return f < fieldCount && fields[f].maskable }

// Fields are all fields, in the order of a Match.
func Fields() []Field {
	list := make([]Field, 0, fieldCount-1)
	for f := Field(1); f < fieldCount; f++ {
		list = append(list, f)
	}
	return list
}

// Complete is the match with what its fields need added, as MatchBuilder.Complete does.
func Complete(m Match) (Match, error) {
	var b MatchBuilder
	for f := range m.All() {
		if f.Field != 0 {
			b.Set(f.Field, f.Value, f.Mask)
		}
	}
	b.Complete()
	return b.Match()
}

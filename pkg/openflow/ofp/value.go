package ofp

import "encoding/binary"

// Value is a field's value or mask as a number of up to 128 bits.
type Value struct{ Hi, Lo uint64 }

// Or is the bits set in either.
func (v Value) Or(w Value) Value { return Value{v.Hi | w.Hi, v.Lo | w.Lo} }

// And is the bits set in both.
func (v Value) And(w Value) Value { return Value{v.Hi & w.Hi, v.Lo & w.Lo} }

// Not is the bits not set in v.
func (v Value) Not() Value { return Value{^v.Hi, ^v.Lo} }

// IsZero reports whether no bit is set.
func (v Value) IsZero() bool { return v.Hi|v.Lo == 0 }

// Shl shifts to the left, towards the most significant bit.
func (v Value) Shl(n int) Value {
	switch {
	case n <= 0:
		return v
	case n >= 128:
		return Value{}
	case n >= 64:
		return Value{Hi: v.Lo << (n - 64)}
	}
	return Value{v.Hi<<n | v.Lo>>(64-n), v.Lo << n}
}

// Shr shifts to the right.
func (v Value) Shr(n int) Value {
	switch {
	case n <= 0:
		return v
	case n >= 128:
		return Value{}
	case n >= 64:
		return Value{Lo: v.Hi >> (n - 64)}
	}
	return Value{v.Hi >> n, v.Lo>>n | v.Hi<<(64-n)}
}

// Ones is a Value with the n least significant bits set.
func Ones(n int) Value {
	if n <= 0 {
		return Value{}
	}
	return Value{^uint64(0), ^uint64(0)}.Shr(128 - n)
}

// Append appends v as n big-endian bytes, zeros in front where n is more than 16.
func (v Value) Append(b []byte, n int) []byte {
	var w [16]byte
	binary.BigEndian.PutUint64(w[:8], v.Hi)
	binary.BigEndian.PutUint64(w[8:], v.Lo)
	for ; n > 16; n-- {
		b = append(b, 0)
	}
	return append(b, w[16-n:]...)
}

// ToValue reads up to 16 big-endian bytes; of longer ones it is the last 16.
func ToValue[T string | []byte](b T) Value {
	var v Value
	for i := range len(b) {
		v = v.Shl(8)
		v.Lo |= uint64(b[i])
	}
	return v
}

package flowsync

import "encoding/binary"

// The buckets of a group differ only in a number and an address. In a packed form, a count replaces the bytes that
// equal the previous bucket's bytes at the same place. That takes a quarter of the memory. Equal messages have equal
// packed forms.
//
// The first groupBuckets bytes are not packed. After them come runs, each with one byte in front. A value up to
// mostBytes is the number of plain bytes that follow. A larger value is the number of repeated bytes, plus mostBytes.
// They repeat the bytes at a distance of the first bucket's length.
const (
	mostBytes  = 127
	mostRepeat = 255 - mostBytes
	leastRun   = 3 // shorter ones would take more than they save
)

// appendPacked appends the packed form of a message that adds a group.
func appendPacked(b, message []byte) []byte {
	head := min(groupBuckets, len(message))
	b = append(b, message[:head]...)
	rest := message[head:]
	distance := firstBucket(rest)
	for at := 0; at < len(rest); {
		if n := repeated(rest, at, distance); n >= leastRun {
			b = append(b, byte(mostBytes+n))
			at += n
			continue
		}
		begin := at
		for at < len(rest) && at-begin < mostBytes && repeated(rest, at, distance) < leastRun {
			at++
		}
		b = append(append(b, byte(at-begin)), rest[begin:at]...)
	}
	return b
}

// firstBucket returns the length of the first bucket; 0 without one.
func firstBucket(buckets []byte) int {
	if len(buckets) < 2 {
		return 0
	}
	return int(binary.BigEndian.Uint16(buckets))
}

// repeated returns how many bytes from a place on equal the bytes at a distance before them, at most mostRepeat.
func repeated(b []byte, at, distance int) (n int) {
	if distance == 0 || at < distance {
		return 0
	}
	for n < mostRepeat && at+n < len(b) && b[at+n] == b[at+n-distance] {
		n++
	}
	return n
}

// appendUnpacked appends the message of a packed form.
func appendUnpacked(b []byte, f form) []byte {
	head := min(groupBuckets, len(f))
	b = append(b, f[:head]...)
	begin := len(b)
	for f = f[head:]; f != ""; {
		n := int(f[0])
		if f = f[1:]; n <= mostBytes {
			n = min(n, len(f))
			b = append(b, f[:n]...)
			f = f[n:]
			continue
		}
		distance := firstBucket(b[begin:])
		for range n - mostBytes {
			b = append(b, b[len(b)-distance])
		}
	}
	return b
}

package derive

import "maps"

// A map in Go keeps its largest size, and iterating or emptying it takes as long as when it was full. A user who writes
// thousands of objects and removes them would leave memory and time behind, in all tables that depend on them. So maps
// that have become nearly empty are replaced.

// fewEntries is how many entries a map has room for without being looked at.
const fewEntries = 1024

// room is how many entries a map had, or was made for, since it was made.
type room int

// fit returns a map with the same content, without room for many times more entries. It is called after each pass, and
// costs nothing unless most entries have gone.
func fit[K comparable, V any](m map[K]V, most *room) map[K]V {
	*most = max(*most, room(len(m)))
	if *most <= fewEntries || len(m) > int(*most)/4 {
		return m
	}
	*most = room(len(m))
	out := make(map[K]V, len(m))
	maps.Copy(out, m)
	return out
}

// emptied returns an empty map. It is the same map, unless that has had many entries.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > fewEntries {
		return map[K]V{}
	}
	clear(m)
	return m
}

// roomFor returns a map with the same content and room for n more, where that is many.
func roomFor[K comparable, V any](m map[K]V, n int, most *room) map[K]V {
	if n < fewEntries || n < len(m) {
		return m // it grows by itself
	}
	*most = max(*most, room(len(m)+n))
	out := make(map[K]V, len(m)+n)
	maps.Copy(out, m)
	return out
}

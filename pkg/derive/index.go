package derive

// Index finds the rows of a table by something else than their key. A row may be found under
// any number of keys.
type Index[I Key[I], K Key[K], V any] struct {
	of    *rows[K, V]
	name  string
	under func(K, V) []I
	m     map[I]map[K]struct{}
	byKey map[I]*readers
	feeds []func(I)
}

// NewIndex adds an index to a table. under must depend on the row alone.
func NewIndex[I Key[I], K Key[K], V any](of Readable[K, V], name string, under func(K, V) []I) *Index[I, K, V] {
	x := &Index[I, K, V]{of: of.store(), name: name, under: under, m: map[I]map[K]struct{}{}, byKey: map[I]*readers{}}
	x.of.indexes = append(x.of.indexes, x.update)
	x.of.listed = append(x.of.listed, func(k K, v V) []Fact {
		var out []Fact
		for _, i := range x.under(k, v) {
			out = append(out, x.byKey[i].facts()...)
		}
		return out
	})
	return x
}

// update moves a changed row, and marks who has listed it where it was or is.
func (x *Index[I, K, V]) update(k K, old, now V) {
	var before, after []I
	if !absent(old) {
		before = x.under(k, old)
	}
	if !absent(now) {
		after = x.under(k, now)
	}
	had := map[I]bool{} // before this change, by the keys that it touches
	for _, list := range [2][]I{before, after} {
		for _, i := range list {
			had[i] = len(x.m[i]) > 0
		}
	}
	for _, i := range before {
		if _, there := x.m[i][k]; !there {
			continue // named twice
		}
		delete(x.m[i], k)
		x.byKey[i].mark()
	}
	for _, i := range after {
		if x.m[i] == nil {
			x.m[i] = map[K]struct{}{}
		}
		x.m[i][k] = struct{}{}
		x.byKey[i].mark()
	}
	for i, had := range had {
		has := len(x.m[i]) > 0
		if !has {
			delete(x.m, i)
		}
		if had != has {
			for _, feed := range x.feeds {
				feed(i)
			}
		}
	}
}

func (x *Index[I, K, V]) readersOf(i I) *readers {
	w := x.byKey[i]
	if w == nil {
		w = &readers{table: x.of.name, index: x.name, key: i, free: func() { delete(x.byKey, i) }}
		x.byKey[i] = w
	}
	return w
}

// KeysOfIndex gives a derived table the keys under which an index has rows.
func KeysOfIndex[I Key[I], K Key[K], V any](x *Index[I, K, V]) Keys[I] {
	return keysOfIndex[I, K, V]{x}
}

type keysOfIndex[I Key[I], K Key[K], V any] struct{ *Index[I, K, V] }

func (k keysOfIndex[I, K, V]) has(i I) bool { return len(k.m[i]) > 0 }

func (k keysOfIndex[I, K, V]) feed(f func(I)) { k.feeds = append(k.feeds, f) }

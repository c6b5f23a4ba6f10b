package derive

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Explanation lists, for people, the rows that a row was made from and the rows that were made from it.
type Explanation struct {
	Fact
	Value    string   // as fmt's %+v
	From     []Fact   // what its function has read, in that order
	To       []Fact   // the rows that have read it, by its key, an index or its whole table
	Problems []string // what its function has reported
}

// Fact names something that a function has read. With only Key it is that row, whether it exists or not. With Index it
// is all rows that the index has under Key. Without a Key it is all rows of Table.
type Fact struct{ Table, Index, Key string }

// String returns "table[key]", "table[index=key]" or "table[*]".
func (f Fact) String() string {
	switch {
	case f.Index != "":
		return f.Table + "[" + f.Index + "=" + f.Key + "]"
	case f.Key == "":
		return f.Table + "[*]"
	}
	return f.Table + "[" + f.Key + "]"
}

// Explain looks in all tables for the rows whose key has the text key, such as "default/web" for an object. Run has to
// run. Explain fails if ctx ends before the evaluating goroutine has time.
func (e *Engine) Explain(ctx context.Context, key string) ([]Explanation, error) {
	var out []Explanation
	called := e.Do(ctx, func() {
		for _, t := range e.tables {
			if x, ok := t.explain(key); ok {
				out = append(out, x)
			}
		}
	})
	if !called {
		return nil, fmt.Errorf("explain %s: the engine is busy: %w", key, ctx.Err())
	}
	return out, nil
}

// explain is the part of an Explanation that is the same for all kinds of tables.
func explain[K Key[K], V any](r *rows[K, V], key string) (Explanation, bool) {
	for k, v := range r.m {
		if fmt.Sprint(k) != key {
			continue
		}
		var listed []Fact
		for _, find := range r.listed {
			listed = append(listed, find(k, v)...)
		}
		return r.keyed.explain(key, k, fmt.Sprintf("%+v", v), listed), true
	}
	return Explanation{}, false
}

func (t *keyed[K]) explain(key string, k K, value string, to []Fact) Explanation {
	for _, w := range []*readers{t.asked.m[k], t.whole} {
		to = append(to, w.facts()...)
	}
	slices.SortFunc(to, func(a, b Fact) int { return strings.Compare(a.String(), b.String()) })
	return Explanation{Fact: Fact{Table: t.name, Key: key}, Value: value, To: slices.Compact(to)}
}

// explainCell adds what the function has read and reported. A key without a value is explained too.
func (t *derived[K]) explainCell(key string, x Explanation, found bool) (Explanation, bool) {
	for k, c := range t.cells {
		if fmt.Sprint(k) != key {
			continue
		}
		x.Fact = Fact{Table: t.name, Key: key}
		for _, w := range c.deps {
			x.From = append(x.From, w.fact())
		}
		for _, p := range c.problems {
			x.Problems = append(x.Problems, p.String())
		}
		return x, true
	}
	return x, found
}

func (w *readers) fact() Fact {
	var f Fact
	f.Table, f.Index = w.of.names()
	if w.key != nil {
		f.Key = fmt.Sprint(w.key)
	}
	return f
}

// facts returns the rows that have read w.
func (w *readers) facts() []Fact {
	var out []Fact
	for r := range w.all {
		table, key := r.identify()
		out = append(out, Fact{Table: table, Key: key})
	}
	return out
}

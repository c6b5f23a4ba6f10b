package watch

import (
	"fmt"
	"log/slog"
	"reflect"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Kinds collects the kinds of one API server whose objects fill the Sources of an engine, in the order of their
// declarations.
type Kinds struct {
	engine *derive.Engine
	list   []*Kind
}

// NewKinds returns an empty list of kinds.
func NewKinds(e *derive.Engine) *Kinds { return &Kinds{engine: e} }

// Kind is a kind of object that is watched.
type Kind struct {
	resource  resource
	off       bool
	optional  bool
	believed  bool
	ifAllowed bool
	namespace string
	name      string
	selector  labels.Selector
	writers   any // *writers[T]
	// store returns the store that takes the objects. loaded is called after each whole list.
	store func(log *slog.Logger, loaded func()) toolscache.ReflectorStore
	// within returns the same for writes within Engine.Together. It does not catch faults.
	within func() toolscache.ReflectorStore
	none   func() // makes the Sources empty, and Loaded
	loaded func() // makes them Loaded
}

// Resource returns the name of the kind in access rules.
func (k Kind) Resource() schema.GroupResource { return k.resource.GroupResource() }

// Option changes how a Kind is watched.
type Option func(*Kind)

// If leaves a kind out if the condition is false. Its Source is Loaded, and stays empty.
func If(condition bool) Option { return func(k *Kind) { k.off = k.off || !condition } }

// Optional is for kinds whose definition may not be installed.
func Optional() Option { return func(k *Kind) { k.optional = true } }

// Believed is for optional kinds whose absence removes nothing at the start. For such a kind one answer of a ready
// server suffices.
func Believed() Option { return func(k *Kind) { k.optional, k.believed = true, true } }

// IfAllowed is for optional kinds that the roles of earlier versions do not allow. If the first list is refused, the
// kind counts as absent until the role allows it. So a new program with an earlier role still does its other work.
func IfAllowed() Option { return func(k *Kind) { k.optional, k.ifAllowed = true, true } }

// In watches one Namespace only.
func In(namespace string) Option { return func(k *Kind) { k.namespace = namespace } }

// Named watches the one object of this name in each Namespace.
func Named(name string) Option { return func(k *Kind) { k.name = name } }

// Selecting watches the objects with these labels only.
func Selecting(s labels.Selector) Option { return func(k *Kind) { k.selector = s } }

// NewSource declares a Source of the facts of all objects of a kind, of type T. facts must be pure. It may keep the
// object, whose managed fields are removed. If it returns the zero value of F, the object has no row. If a kind is
// declared several times, the options of all declarations apply.
func NewSource[T client.Object, F any](k *Kinds, name string, facts func(T) F,
	options ...Option) *derive.Source[derive.Object, F] {
	source := derive.NewSource[derive.Object, F](k.engine, name)
	Into(k, source, facts, options...)
	return source
}

// Into declares the same for an existing Source. Its package needs no API server.
func Into[T client.Object, F any](k *Kinds, source *derive.Source[derive.Object, F], facts func(T) F,
	options ...Option) {
	kind, to := kindOf[T](k)
	for _, o := range options {
		o(kind)
	}
	if kind.off {
		source.Loaded()
		to.declareLoaded() // the Sources that were declared earlier
		return
	}
	to.loaded = append(to.loaded, source.Loaded)
	to.makers = append(to.makers, func() writer[T] { return &rows[T, F]{source: source, facts: facts} })
}

// kindOf returns the entry of a type of objects, and makes it at the first declaration.
func kindOf[T client.Object](k *Kinds) (*Kind, *writers[T]) {
	r := resourceOf[T]()
	for _, kind := range k.list {
		if kind.resource.object == r.object {
			return kind, kind.writers.(*writers[T])
		}
	}
	to := &writers[T]{engine: k.engine}
	kind := &Kind{resource: r, writers: to, loaded: to.declareLoaded}
	kind.store = func(log *slog.Logger, loaded func()) toolscache.ReflectorStore {
		return &store[T]{engine: to.engine, to: to.all(), log: log, loaded: func() {
			to.declareLoaded()
			loaded()
		}}
	}
	kind.within = func() toolscache.ReflectorStore { return &store[T]{to: to.all(), loaded: to.declareLoaded} }
	kind.none = func() { must(kind.store(nil, func() {}).Replace(nil, "")) }
	k.list = append(k.list, kind)
	return kind, to
}

// All returns the kinds that are to be watched, with further options.
func (k *Kinds) All(options ...Option) []Kind {
	var out []Kind
	for _, kind := range k.list {
		if kind.off {
			continue
		}
		with := *kind
		for _, o := range options {
			o(&with)
		}
		out = append(out, with)
	}
	return out
}

// Loaded declares all Sources Loaded. It is for callers that do not wait for the API server's first answer.
func (k *Kinds) Loaded() {
	for _, kind := range k.list {
		kind.loaded()
	}
}

// Fill writes objects into the Sources, as the lists of an API server would. Tests and measurements fill the same
// Sources with the same functions. One pass takes all objects. If no kind is declared for an object, Fill panics.
func (k *Kinds) Fill(objects ...client.Object) {
	lists := map[*Kind][]any{}
	for _, o := range objects {
		if kind := k.of(o); kind.selects(o) {
			lists[kind] = append(lists[kind], o)
		}
	}
	k.engine.Together(func() {
		for _, kind := range k.list {
			must(kind.within().Replace(lists[kind], ""))
		}
	})
}

// Set gives objects to the Sources, as events of watches would. One pass takes all of them.
func (k *Kinds) Set(objects ...client.Object) {
	k.engine.Together(func() {
		for _, o := range objects {
			if kind := k.of(o); kind.selects(o) {
				must(kind.within().Add(o))
			}
		}
	})
}

// Delete does the same for objects that were deleted.
func (k *Kinds) Delete(objects ...client.Object) {
	k.engine.Together(func() {
		for _, o := range objects {
			must(k.of(o).within().Delete(o))
		}
	})
}

// of returns the entry of an object's kind.
func (k *Kinds) of(o client.Object) *Kind {
	for _, kind := range k.list {
		if reflect.TypeOf(kind.resource.object) == reflect.TypeOf(o) {
			return kind
		}
	}
	panic(fmt.Sprintf("watch: no source is declared for %T", o))
}

// selects reports whether the watch of the kind shows an object.
func (k *Kind) selects(o client.Object) bool {
	in := (k.namespace == "" || k.namespace == o.GetNamespace()) && (k.name == "" || k.name == o.GetName())
	return !k.off && in && (k.selector == nil || k.selector.Matches(labels.Set(o.GetLabels())))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// writers are the Sources of one kind.
type writers[T client.Object] struct {
	engine *derive.Engine
	makers []func() writer[T]
	loaded []func()
}

func (w *writers[T]) all() []writer[T] {
	out := make([]writer[T], len(w.makers))
	for i, f := range w.makers {
		out[i] = f()
	}
	return out
}

func (w *writers[T]) declareLoaded() {
	for _, f := range w.loaded {
		f()
	}
}

// writer writes the facts of one kind's objects to one Source. Reading facts and writing them are two steps. If an
// object cannot be read for one Source, all Sources of the kind stay as they are.
type writer[T client.Object] interface {
	read(T)             // takes the facts of an object
	set(derive.Object)  // writes the facts that were read last
	begin(n int)        // begins a list of so many objects
	keep(derive.Object) // adds the facts that were read last to the list
	replace(stay []derive.Object)
	remove(derive.Object)
}

// rows are the writer of a Source of rows of type F.
type rows[T client.Object, F any] struct {
	source *derive.Source[derive.Object, F]
	facts  func(T) F
	last   F
	kept   map[derive.Object]F
}

func (r *rows[T, F]) read(o T)               { r.last = r.facts(o) }
func (r *rows[T, F]) set(key derive.Object)  { r.source.Set(key, r.take()) }
func (r *rows[T, F]) remove(k derive.Object) { r.source.Delete(k) }

func (r *rows[T, F]) begin(n int)            { r.kept = make(map[derive.Object]F, n) }
func (r *rows[T, F]) keep(key derive.Object) { r.kept[key] = r.take() }

func (r *rows[T, F]) replace(stay []derive.Object) {
	r.source.Replace(r.kept, stay...)
	r.kept = nil
}

// take returns the facts that were read last, and releases them.
func (r *rows[T, F]) take() (last F) {
	last, r.last = r.last, last
	return last
}

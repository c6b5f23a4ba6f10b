// Package writes compares the objects that the member's controller writes with the desired ones. A Diff of one kind
// returns the missing Write. Kinds declares the kinds of objects, and adds the tables of missing writes.
//
// An update is sent as a patch of the difference: a field that no feature sets keeps its value.
package writes

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Kinds are the kinds of objects that are watched. The features declare them.
type Kinds struct {
	*derive.Engine
	Cluster    *watch.Kinds // of this cluster
	Area       *watch.Kinds // of the Common Area
	OwnExports *watch.Kinds // this cluster's ResourceExports in the Common Area
	versions   map[string]*derive.Source[derive.Object, string]
}

// NewKinds returns an engine without tables, and empty lists of kinds.
func NewKinds() *Kinds {
	e := derive.New()
	return &Kinds{Engine: e, Cluster: watch.NewKinds(e), Area: watch.NewKinds(e), OwnExports: watch.NewKinds(e),
		versions: map[string]*derive.Source[derive.Object, string]{}}
}

// NewSource declares a kind in one of the lists. This controller also writes objects of the kind. So their versions are
// in a second source.
func NewSource[T client.Object, F any](k *Kinds, in *watch.Kinds, kind, name string, facts func(T) F,
	version func(T) string, options ...watch.Option) *derive.Source[derive.Object, F] {
	source := watch.NewSource(in, name, facts, options...)
	k.versions[kind] = watch.NewSource(in, "versions of "+kind, version)
	return source
}

// Table is a table of missing writes.
type Table = derive.Table[derive.Object, *Write]

// Table adds a table of missing writes. Each write has the version of the existing object, except the creation of an
// object.
func (k *Kinds) Table(name string, f func(derive.Object, *derive.Reader) *Write,
	keys ...derive.Keys[derive.Object]) *Table {
	return derive.NewTable(k.Engine, name, func(o derive.Object, r *derive.Reader) (*Write, []problem.Problem) {
		w := f(o, r)
		if w != nil && w.Verb != Create { // else a new version is no fact
			w.Version, _ = derive.Get(r, k.versions[w.Kind], o)
		}
		return w, nil
	}, keys...)
}

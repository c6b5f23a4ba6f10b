package member

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// kinds are the kinds of objects that are watched. The features declare them.
type kinds struct {
	*derive.Engine
	cluster    *watch.Kinds // of this cluster
	area       *watch.Kinds // of the Common Area
	ownExports *watch.Kinds // this cluster's ResourceExports in the Common Area
	versions   map[string]*derive.Source[derive.Object, string]
}

func newKinds() *kinds {
	e := derive.New()
	return &kinds{Engine: e, cluster: watch.NewKinds(e), area: watch.NewKinds(e), ownExports: watch.NewKinds(e),
		versions: map[string]*derive.Source[derive.Object, string]{}}
}

// writtenKind declares a kind in one of the lists, which this controller writes as well. Its objects have a second
// source, for their versions.
func writtenKind[T client.Object, F any](k *kinds, in *watch.Kinds, kind, name string, facts func(T) F,
	version func(T) string, options ...watch.Option) *derive.Source[derive.Object, F] {
	source := watch.NewSource(in, name, facts, options...)
	k.versions[kind] = watch.NewSource(in, "versions of "+kind, version)
	return source
}

// writeTable is a table of missing writes.
type writeTable = derive.Table[derive.Object, *Write]

// table adds a table of missing writes. It gives each write but the creation of an object the version of what is there.
func (k *kinds) table(name string, f func(derive.Object, *derive.Reader) *Write,
	keys ...derive.Keys[derive.Object]) *writeTable {
	return derive.NewTable(k.Engine, name, func(o derive.Object, r *derive.Reader) (*Write, []problem.Problem) {
		w := f(o, r)
		if w != nil && w.Verb != Create { // else a new version is no fact
			w.Version, _ = derive.Get(r, k.versions[w.Kind], o)
		}
		return w, nil
	}, keys...)
}

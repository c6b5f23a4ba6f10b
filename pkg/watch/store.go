package watch

import (
	"errors"
	"fmt"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// store takes a reflector's objects.
type store[T client.Object] struct {
	engine *derive.Engine // nil within Engine.Together
	to     []writer[T]
	loaded func()
	log    *slog.Logger // nil if a fault of the projection must not be caught
}

var errNotAnObject = errors.New("the API server sent something else than an object of the watched kind")

// read computes the facts of an object. If the projection panics, only that object is affected, and its rows stay as
// they are. A defect must not look like a deletion.
func (s *store[T]) read(o any) (key derive.Object, failed bool, err error) {
	object, ok := o.(T)
	if !ok {
		return key, false, fmt.Errorf("%w: %T", errNotAnObject, o)
	}
	key = derive.Object{Namespace: object.GetNamespace(), Name: object.GetName()}
	if s.log != nil {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("what is known of an object stays as it is: reading it failed; report this as a defect",
					"object", key, "kind", fmt.Sprintf("%T", o), "error", p)
				failed = true
			}
		}()
	}
	if len(object.GetManagedFields()) > 0 {
		object.SetManagedFields(nil)
	}
	for _, w := range s.to {
		w.read(object)
	}
	return key, false, nil
}

// write calls f for all Sources. One pass takes all writes of f.
func (s *store[T]) write(f func(writer[T])) {
	all := func() {
		for _, w := range s.to {
			f(w)
		}
	}
	if len(s.to) == 1 || s.engine == nil {
		all()
		return
	}
	s.engine.Together(all)
}

func (s *store[T]) Add(o any) error {
	key, failed, err := s.read(o)
	if err == nil && !failed {
		s.write(func(w writer[T]) { w.set(key) })
	}
	return err
}

func (s *store[T]) Update(o any) error { return s.Add(o) }

func (s *store[T]) Delete(o any) error {
	object, ok := o.(T)
	if !ok {
		return fmt.Errorf("%w: %T", errNotAnObject, o)
	}
	key := derive.Object{Namespace: object.GetNamespace(), Name: object.GetName()}
	s.write(func(w writer[T]) { w.remove(key) })
	return nil
}

func (s *store[T]) Replace(list []any, _ string) error {
	for _, w := range s.to {
		w.begin(len(list))
	}
	var stay []derive.Object
	for _, o := range list {
		key, failed, err := s.read(o)
		switch {
		case err != nil:
			return err
		case failed:
			stay = append(stay, key)
		default:
			for _, w := range s.to {
				w.keep(key)
			}
		}
	}
	s.write(func(w writer[T]) { w.replace(stay) })
	s.loaded()
	return nil
}

func (s *store[T]) Resync() error { return nil }

// Package keys lists the keys of the configuration files, as the fields of the programs' Go types declare them. The
// meaning of a key is the comment of its field.
package keys

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/build/comments"
	agent "github.com/tombolo-net/tombolo/pkg/agent/config"
	controller "github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// Key is one key of a configuration file.
type Key struct {
	Path    string // such as multicluster.bfd.interval; a list's elements have [] behind the list's path
	Type    string
	Values  string // the allowed values, in words; may be empty
	Default string // as YAML; empty without one
	Meaning string // may be empty: the field has no comment
	Alias   string // the path with an older name, if there is one
}

// Agent returns the keys of antrea-agent.conf. Root is the repository.
func Agent(root string) ([]Key, error) {
	l := lister{tag: agentTag, defaults: reflect.ValueOf(agent.Default())}
	return l.keys(root, "pkg/agent/config", reflect.TypeFor[agent.Config]())
}

// Controller returns the keys of the multi-cluster controller's configuration. Root is the repository.
func Controller(root string) ([]Key, error) {
	l := lister{tag: controllerTag, defaults: reflect.ValueOf(controller.Default())}
	return l.keys(root, "pkg/multicluster/config", reflect.TypeFor[controller.Config]())
}

// lister lists the keys of one file.
type lister struct {
	tag      func(reflect.StructField) Key // Path is the last part of the key
	defaults reflect.Value
	comments map[string]string
	list     []Key
}

func (l *lister) keys(root, dir string, t reflect.Type) (_ []Key, err error) {
	if l.comments, err = comments.Fields(filepath.Join(root, dir)); err != nil {
		return nil, fmt.Errorf("read the comments of %s: %w", dir, err)
	}
	l.fields("", t.Name(), t, l.defaults)
	return l.list, nil
}

// fields adds the keys of a struct. of is the name of its type. For a struct type without a name, it is the name of the
// outer type with the names of fields behind it.
func (l *lister) fields(path, of string, t reflect.Type, defaults reflect.Value) {
	for i := range t.NumField() {
		f := t.Field(i)
		k := l.tag(f)
		k.Path = join(path, k.Path)
		if k.Alias != "" {
			k.Alias = join(path, k.Alias)
		}
		value := reflect.Value{}
		if defaults.IsValid() {
			value = defaults.Field(i)
		}
		if below := f.Type; below.Kind() == reflect.Struct && !isDuration(below) {
			inner := below.Name()
			if inner == "" {
				inner = of + "." + f.Name
			}
			l.fields(k.Path, inner, below, value)
			continue
		}
		if k.Meaning == "" {
			k.Meaning = comments.About(l.comments[of+"."+f.Name], f.Name)
		}
		k.Type, k.Default = typeOf(f.Type), text(value)
		l.list = append(l.list, k)
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			l.fields(k.Path+"[]", f.Type.Elem().Name(), f.Type.Elem(), reflect.Value{})
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// agentTag reads the tags of a field of the agent's configuration.
func agentTag(f reflect.StructField) Key {
	k := Key{Path: f.Tag.Get("key"), Alias: f.Tag.Get("alias")}
	if why := f.Tag.Get("why"); why != "" {
		k.Meaning = "Without effect: " + why + "."
	}
	refused := f.Tag.Get("refused")
	switch {
	case f.Tag.Get("oneof") != "":
		var list []string
		for value := range strings.SplitSeq(f.Tag.Get("oneof"), ",") {
			if value != refused {
				list = append(list, "`"+value+"`")
			}
		}
		k.Values = strings.Join(list, ", ")
	case refused == "any":
		k.Values = "only empty"
	case refused == "true":
		k.Values = "only `false`"
	case refused == "false":
		k.Values = "only `true`"
	case f.Tag.Get("min") != "" && f.Tag.Get("max") != "":
		k.Values = f.Tag.Get("min") + " to " + f.Tag.Get("max")
	case f.Tag.Get("min") != "":
		k.Values = f.Tag.Get("min") + " or more"
	}
	if first, last, ok := strings.Cut(refused, "-"); ok {
		k.Values += ", but not " + first + " to " + last
	}
	return k
}

// controllerTag reads the tag of a field of the controller's configuration.
func controllerTag(f reflect.StructField) Key {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	k := Key{Path: name}
	var list []string
	for _, value := range controller.Allowed(name) {
		list = append(list, "`"+value+"`")
	}
	k.Values = strings.Join(list, ", ")
	return k
}

func isDuration(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[metav1.Duration]()
}

func typeOf(t reflect.Type) string {
	switch {
	case isDuration(t):
		return "time"
	case t.Kind() == reflect.Pointer:
		return typeOf(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of objects"
	case t.Kind() == reflect.Slice:
		return "list of " + typeOf(t.Elem())
	case t.Kind() == reflect.Map:
		return "map"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.Int:
		return "number"
	}
	return "text"
}

// text returns a default as YAML on one line. It returns "" for empty texts, lists and maps.
func text(v reflect.Value) string {
	if !v.IsValid() || v.IsZero() && v.Kind() != reflect.Bool && v.Kind() != reflect.Int {
		return ""
	}
	switch d := v.Interface().(type) {
	case time.Duration:
		return d.String()
	case metav1.Duration:
		return d.Duration.String()
	case []int:
		return strings.ReplaceAll(fmt.Sprint(d), " ", ", ")
	}
	return fmt.Sprint(v.Interface())
}

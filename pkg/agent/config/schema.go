package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schema returns the JSON schema of each top-level key of the file, as the fields of Config declare them.
func Schema() map[string]any { return properties(reflect.TypeFor[Config]()) }

func properties(t reflect.Type) map[string]any {
	all := map[string]any{}
	for f := range fields(t) {
		s := schema(f.Type, f.Tag)
		if why := f.Tag.Get("why"); why != "" {
			s["description"] = "without effect: " + why
		}
		all[f.Tag.Get("key")] = s
		if alias := f.Tag.Get("alias"); alias != "" {
			all[alias] = s
		}
	}
	return all
}

func schema(t reflect.Type, tag reflect.StructTag) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string"}
	case t.Kind() == reflect.Struct:
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties(t)}
	case t.Kind() == reflect.Map: // gates: an unknown gate must not stop the others
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "boolean"}}
	case t.Kind() == reflect.Slice:
		if tag.Get("refused") == "any" {
			return map[string]any{"type": "array", "maxItems": 0}
		}
		return map[string]any{"type": "array", "items": schema(t.Elem(), tag)}
	case t.Kind() == reflect.Bool:
		s := map[string]any{"type": "boolean"}
		if refused, err := strconv.ParseBool(tag.Get("refused")); err == nil {
			s["const"] = !refused
		}
		return s
	case t.Kind() == reflect.Int:
		s := map[string]any{"type": "integer"}
		for key, name := range map[string]string{"min": "minimum", "max": "maximum"} {
			if n, err := strconv.Atoi(tag.Get(key)); err == nil {
				s[name] = n
			}
		}
		if first, last, ok := strings.Cut(tag.Get("refused"), "-"); ok {
			low, err1 := strconv.Atoi(first)
			high, err2 := strconv.Atoi(last)
			if err1 == nil && err2 == nil {
				s["anyOf"] = []any{map[string]any{"maximum": low - 1}, map[string]any{"minimum": high + 1}}
			}
		}
		return s
	}
	s := map[string]any{"type": "string"}
	if allowed := tag.Get("oneof"); allowed != "" {
		// Matched without regard to case, as the file is.
		refused := strings.Split(tag.Get("refused"), ",")
		list := slices.DeleteFunc(strings.Split(allowed, ","), func(v string) bool { return slices.Contains(refused, v) })
		s["pattern"] = "^(?i:" + strings.Join(list, "|") + ")$"
	}
	switch tag.Get("refused") {
	case "any":
		s["maxLength"] = 0
	case "IPv6":
		s["pattern"] = "^[^:]*$"
	case "IPv4":
		s["pattern"] = "^([^.]*:.*)?$"
	}
	return s
}

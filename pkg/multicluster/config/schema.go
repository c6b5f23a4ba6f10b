package config

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// allowed are the values of keys that have few.
var allowed = map[string][]string{
	"gatewayIPPrecedence": {PrecedencePrivate, PrecedenceInternal, PrecedencePublic, PrecedenceExternal},
	"endpointIPType":      {EndpointIPTypeClusterIP, EndpointIPTypePodIP},
}

// Allowed returns the values that a key may have. It is empty for a key that has no list.
func Allowed(key string) []string { return allowed[key] }

// Schema returns the JSON schema of each top-level key of the file, as the fields of Config declare them.
func Schema() map[string]any { return properties(reflect.TypeFor[Config]()) }

func properties(t reflect.Type) map[string]any {
	all := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		s := schema(f.Type)
		if values := allowed[key]; values != nil {
			s = map[string]any{"enum": values}
		}
		all[key] = s
	}
	return all
}

func schema(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return map[string]any{"type": "string"}
	case t.Kind() == reflect.Pointer:
		return schema(t.Elem())
	case t.Kind() == reflect.Struct:
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties(t)}
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": schema(t.Elem())}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.Int:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{"type": "string"}
}

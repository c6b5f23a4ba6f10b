package main

import "testing"

func TestMatches(t *testing.T) {
	for _, row := range []struct {
		pattern, path string
		want          bool
	}{
		{"spec.ports[].name", "spec.ports[].name", true},
		{"spec.ports[].name", "spec.ports.name", false},
		{"spec.*[].name", "spec.egress[].name", true},
		{"spec.*[].name", "spec.subject.name", false},
		{"spec.*[].name", "spec.egress[].to[].name", false},
		{"*.range.end", "spec.egress[].protocols[].tcp.destinationPort.range.end", true},
		{"*.range.end", "spec.arrange.end", false},
		{"", "", true},
		{"", "spec", false},
	} {
		if have := matches(row.pattern, row.path); have != row.want {
			t.Errorf("matches(%q, %q) is %t", row.pattern, row.path, have)
		}
	}
}

// TestDescribe refuses a description without a field.
func TestDescribe(t *testing.T) {
	crd := map[string]any{"spec": map[string]any{
		"group": "multicluster.x-k8s.io", "names": map[string]any{"kind": "ServiceExport"},
		"versions": []any{map[string]any{"schema": map[string]any{"openAPIV3Schema": map[string]any{}}}},
	}}
	if err := describe(crd); err == nil {
		t.Error("the definition has no fields, and all descriptions match")
	}
}

package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEmbedded: the charts in the program are the charts of the folder.
func TestEmbedded(t *testing.T) {
	for _, name := range []string{Agent, Multicluster} {
		values := map[string]any{"images": map[string]any{"pullPolicy": "Never"}}
		wantedDefinitions, wanted, err := All(".", name, "kube-system", values)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"v0.1.0-dev", "v0.1.0-5-gabc1234-dirty"} {
			definitions, manifest, err := Embedded(version, name, "kube-system", values)
			if err != nil {
				t.Fatal(err)
			}
			if definitions != wantedDefinitions || manifest != wanted {
				t.Errorf("chart %s in a program %s is not the chart of the folder", name, version)
			}
		}
		_, released, err := Embedded("v1.2.3", name, "kube-system", values)
		if err != nil || !strings.Contains(released, ":v1.2.3\n") || strings.Contains(released, ":dev\n") {
			t.Errorf("chart %s of a release has not its images: %v", name, err)
		}
	}
}

// TestMerged: values count before others, and a change of the result leaves the arguments as they are.
func TestMerged(t *testing.T) {
	arguments := func() (values, others map[string]any) {
		return map[string]any{"images": map[string]any{"tag": "v1"}, "dropped": map[string]any{"x": nil},
				"list": []any{map[string]any{"key": "a"}}},
			map[string]any{"images": map[string]any{"tag": "v2", "registry": "r"}, "dropped": map[string]any{"y": true},
				"pods": map[string]any{"agent": map[string]any{"memory": "1Gi"}}}
	}
	values, others := arguments()
	merged := Merged(values, others)
	want := map[string]any{"images": map[string]any{"tag": "v1", "registry": "r"},
		"dropped": map[string]any{"x": nil, "y": true}, "list": []any{map[string]any{"key": "a"}},
		"pods": map[string]any{"agent": map[string]any{"memory": "1Gi"}}}
	if diff := cmp.Diff(want, merged); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	for _, key := range []string{"images", "dropped"} {
		merged[key].(map[string]any)["changed"] = true
	}
	merged["pods"].(map[string]any)["agent"].(map[string]any)["memory"] = "2Gi"
	merged["list"].([]any)[0].(map[string]any)["key"] = "b"
	wantValues, wantOthers := arguments()
	if diff := cmp.Diff(wantValues, values) + cmp.Diff(wantOthers, others); diff != "" {
		t.Errorf("the arguments have changed (-want +have):\n%s", diff)
	}
	if have := Merged(nil, nil); len(have) != 0 {
		t.Errorf("without arguments: %v", have)
	}
}

// TestOtherCNIs: the chart refuses the same plugins as programs do.
func TestOtherCNIs(t *testing.T) {
	text, err := embedded.ReadFile("tombolo/templates/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n{{- if lookup")
	var names []string
	for i, word := range strings.Split(first, `"`) {
		if i%2 == 1 {
			names = append(names, word)
		}
	}
	if !slices.Equal(names, OtherCNIs) {
		t.Errorf("the chart refuses %v, programs refuse %v", names, OtherCNIs)
	}
}

func BenchmarkEmbedded(b *testing.B) {
	for b.Loop() {
		values := map[string]any{"images": map[string]any{"pullPolicy": "Never"}}
		if _, _, err := Embedded("", Agent, "kube-system", values); err != nil {
			b.Fatal(err)
		}
	}
}

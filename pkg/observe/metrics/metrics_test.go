package metrics

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

func TestTables(t *testing.T) {
	e := derive.New()
	source := derive.NewSource[derive.Name, int](e, "numbers")
	derive.NewTable(e, "squares", func(k derive.Name, r *derive.Reader) (int, []problem.Problem) {
		v, _ := derive.Get(r, source, k)
		return v * v, nil
	}, derive.KeysOf(source))
	registry := prometheus.NewPedanticRegistry()
	writes := NewWrites()
	propagation := NewPropagation()
	propagation.Took(ExportToImport, time.Millisecond)
	defer Expose(registry, NewTables(e), writes, propagation)()
	Expose(registry, NewTables(e))() // a second one is left out, and so is its end
	writes.To("leader")(time.Millisecond, nil)
	writes.To("leader")(time.Millisecond, errors.New("refused"))
	source.Set("two", 2)
	source.Set("three", 3)
	source.Loaded()
	e.Pass()
	source.Set("two", 2) // no change
	e.Pass()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				have[name] = float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				have[name] = m.GetCounter().GetValue()
			default:
				have[name] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{
		"tombolo_derive_evaluated_total numbers": 0, "tombolo_derive_evaluated_total squares": 2,
		"tombolo_derive_changed_total numbers": 2, "tombolo_derive_changed_total squares": 2,
		"tombolo_derive_ignored_total numbers": 1, "tombolo_derive_ignored_total squares": 0,
		"tombolo_derive_rows numbers": 2, "tombolo_derive_rows squares": 2,
		"tombolo_write_seconds success leader": 1, "tombolo_write_seconds error leader": 1,
		"tombolo_propagation_seconds export_to_import": 1,
		"tombolo_derive_passes_total":                  2, "tombolo_derive_pass_seconds": 2,
	}
	if !maps.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

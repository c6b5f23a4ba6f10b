package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
)

// TestMetricsCanBeOff asks for the metrics with enablePrometheusMetrics as it is by default, and off.
func TestMetricsCanBeOff(t *testing.T) {
	for enabled, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		a := &Agent{config: config.Default(), options: Options{Gatherer: prometheus.NewRegistry()}}
		if !enabled {
			a.config.EnablePrometheusMetrics = false
		}
		answer := httptest.NewRecorder()
		a.debugHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if answer.Code != want {
			t.Errorf("enablePrometheusMetrics %t: answer %d, want %d", enabled, answer.Code, want)
		}
	}
}

package agent

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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

// TestFlowsOfNothing asks for tables and owners that there are not. The error names those that
// there are.
func TestFlowsOfNothing(t *testing.T) {
	for query, want := range map[string]string{
		"table=Clasify":           "the tables are Classify, ARP",
		"table=256":               "or a number to 255",
		"owner=Policy":            "the kinds are Multicluster, Node, Pod, Service",
		"table=arp&owner=pod":     "",
		"table=200&owner=Service": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		err = knownFilters(q.Get("table"), q.Get("owner"))
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

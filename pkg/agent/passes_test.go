package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// TestPassesAreSeen requests the last pass of an agent, the inputs of a row, and the agent's metrics.
func TestPassesAreSeen(t *testing.T) {
	registry := prometheus.NewRegistry()
	v := testView()
	a, err := newAgent(Options{
		Config: v.Config, NodeName: v.NodeName, REST: &rest.Config{Host: "https://192.0.2.1"}, Namespace: "kube-system",
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Registerer: registry, Gatherer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.tables.set(v)
	a.tables.engine.Pass()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.tables.engine.Run(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	ask := func(path string) string {
		answer := httptest.NewRecorder()
		debugAPI{a}.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer.Body.String()
	}
	for path, wants := range map[string][]string{
		api.PathStatus: {`"lastPass":{`, `"passes":`},
		"/metrics": {`tombolo_derive_evaluated_total{table="frontends"} 1`,
			`tombolo_derive_rows{table="nodes"} 2`, "tombolo_derive_pass_seconds_count "},
		api.PathExplain + "?key=default/web": {`"table":"service-flows"`,
			`"from":["shards[default/web]","groups[default/web/http/TCP]"]`},
		api.PathExplain + "?key=nobody": {`nothing is called \"nobody\"`},
	} {
		text := ask(path)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s:\n%s", path, want, text)
			}
		}
	}
}

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// TestConnectionsOff asks an agent for connections that it does not record. It refuses to follow them. Otherwise the
// answer has the drops, and a line that names the setting.
func TestConnectionsOff(t *testing.T) {
	o := &observer{history: record.NewHistory(1 << 20), tables: &tables{nodeName: "node-1"}}
	o.config.Connections = "off"
	o.history.Add(record.Event{Drop: &record.Record{Node: "node-1", Verdict: "dropped"}})
	for query, want := range map[string]struct {
		status int
		texts  []string
	}{
		"?connections=true&follow=true": {http.StatusBadRequest, []string{"observe.connections is off"}},
		"?connections=true":             {http.StatusOK, []string{`"drop"`, "observe.connections is off"}},
		"":                              {http.StatusOK, []string{`"drop"`}},
	} {
		w := httptest.NewRecorder()
		o.serve(w, httptest.NewRequest(http.MethodGet, api.PathObserve+query, nil))
		for _, text := range want.texts {
			if !strings.Contains(w.Body.String(), text) {
				t.Errorf("%q: %s, want %s", query, w.Body, text)
			}
		}
		if off := strings.Contains(w.Body.String(), "is off"); w.Code != want.status || off != (query != "") {
			t.Errorf("%q: %d %s, want %d", query, w.Code, w.Body, want.status)
		}
	}
}

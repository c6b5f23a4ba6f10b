package kubeclient

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TestWithWarnings has a server warn of two things, of both with each answer.
func TestWithWarnings(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "v1 Things are deprecated"`)
		w.Header().Add("Warning", `299 - "unknown field \"spec.x\""`)
		w.Header().Add("Warning", `199 - "something else"`)
	}))
	t.Cleanup(server.Close)
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	for range 2 {
		config := WithWarnings(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
			GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion()}}, log)
		c, err := rest.RESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := c.Get().AbsPath("/").Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		c.Client.CloseIdleConnections()
	}
	for _, warning := range []string{"v1 Things are deprecated", `unknown field`} {
		if n := strings.Count(text.String(), warning); n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", warning, n, text.String())
		}
	}
	if lines := strings.Count(text.String(), "\n"); lines != 2 {
		t.Errorf("%d lines are logged, want 2:\n%s", lines, text.String())
	}
}

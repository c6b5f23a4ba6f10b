package kubeclient

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"
)

// WithWarnings returns a configuration whose clients log what an API server warns of (a deprecated version,
// an unknown field): each text once in the life of the process, since a watch hears it again with each
// request.
func WithWarnings(config *rest.Config, log *slog.Logger) *rest.Config {
	config = rest.CopyConfig(config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, warnings{log}
	return config
}

// heard are the texts that were logged.
var heard sync.Map

type warnings struct{ log *slog.Logger }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	const warning = 299 // the others say nothing about the request, RFC 7234
	if code != warning || text == "" {
		return
	}
	if _, known := heard.LoadOrStore(text, true); !known {
		w.log.Warn("the API server warns", "warning", text)
	}
}

package kubeclient

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"
)

// WithWarnings returns a configuration whose clients log an API server's warnings (a deprecated version, an unknown
// field). Each text is logged once in the life of the process, since a watch receives it again with each request.
func WithWarnings(config *rest.Config, log *slog.Logger) *rest.Config {
	config = rest.CopyConfig(config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, warnings{log}
	return config
}

// logged has the texts that were logged.
var logged sync.Map

type warnings struct{ log *slog.Logger }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	const warning = 299 // other codes are not about the request, RFC 7234
	if code != warning || text == "" {
		return
	}
	if _, known := logged.LoadOrStore(text, true); !known {
		w.log.Warn("the API server warns", "warning", text)
	}
}

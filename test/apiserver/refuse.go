package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// RefuseEvents returns a configuration whose requests to create an Event fail twice before the API server gets them:
// first with 429 (Too Many Requests), then with 500 (Internal Server Error). The failures are counted for each path and
// content.
func RefuseEvents(config *rest.Config) *rest.Config {
	out := rest.CopyConfig(config)
	out.Wrap(func(to http.RoundTripper) http.RoundTripper {
		return &eventRefuser{to: to, tries: map[string]int{}}
	})
	return out
}

type eventRefuser struct {
	to    http.RoundTripper
	mu    sync.Mutex
	tries map[string]int // of each request
}

// RoundTrip sends a request, or answers for the API server.
func (r *eventRefuser) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method != http.MethodPost || !strings.HasSuffix(q.URL.Path, "/events") || q.Body == nil {
		return r.to.RoundTrip(q)
	}
	body, err := io.ReadAll(q.Body)
	q.Body.Close()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	key := q.URL.Path + string(body)
	r.tries[key]++
	try := r.tries[key]
	r.mu.Unlock()
	status, reason := http.StatusTooManyRequests, "TooManyRequests"
	switch {
	case try == 2:
		status, reason = http.StatusInternalServerError, "InternalError"
	case try > 2:
		q = q.Clone(q.Context())
		q.Body = io.NopCloser(bytes.NewReader(body))
		return r.to.RoundTrip(q)
	}
	return Refusal(q, status, reason, "refused by the test"), nil
}

// Refusal returns an answer of an API server that refuses a request.
func Refusal(q *http.Request, status int, reason, message string) *http.Response {
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`,
		reason, message, status)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Request: q,
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}
}

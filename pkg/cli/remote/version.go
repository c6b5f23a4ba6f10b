package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Version is the answer of an API server for its version.
type Version struct {
	Kubernetes string // such as v1.36.3
	// Now is the API server's time in its answer. Ahead is how far its clock is ahead of this machine's clock, with a
	// precision of a second. Without a Date header Ahead is 0.
	Now   time.Time
	Ahead time.Duration
}

// Version asks the API server for its version, and reads its clock.
func (c *Cluster) Version(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	web, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return Version{}, err
	}
	host, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return Version{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host.JoinPath("version").String(), nil)
	if err != nil {
		return Version{}, err
	}
	start := time.Now()
	answer, err := web.Do(request)
	if err != nil {
		return Version{}, err
	}
	defer answer.Body.Close()
	middle := start.Add(time.Since(start) / 2)
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return Version{}, err
	}
	if answer.StatusCode != http.StatusOK {
		return Version{}, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(body[:min(len(body), 300)])))
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return Version{}, fmt.Errorf("its answer for its version is not an API server's: %w", err)
	}
	out := Version{Kubernetes: version.GitVersion, Now: middle}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		out.Now = date.Add(time.Second / 2) // the header has whole seconds
		out.Ahead = out.Now.Sub(middle)
	}
	return out, nil
}

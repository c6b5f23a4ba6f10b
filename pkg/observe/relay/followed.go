package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

const (
	maxHop     = 16 << 20 // of an answer about the path of a packet
	maxRefusal = 1 << 10
	// connectWait is how long the relay waits for a Node that is not connected. A replica that has just started has no
	// connected Nodes.
	connectWait = 3 * time.Second
)

// Agents asks the Nodes that are connected, for Traceflows. Readers of the relay cannot use it, since its paths send
// packets.
func (r *Relay) Agents() follow.Agents { return followed{r.nodes} }

// followed implements follow.Agents.
type followed struct{ nodes *nodes }

// Nodes returns the names of the cluster's Nodes.
func (f followed) Nodes(context.Context) ([]string, error) {
	_, all, _ := f.nodes.now()
	return all, nil
}

// Ask returns the answer of a Node's agent.
func (f followed) Ask(ctx context.Context, node, path string, query url.Values) ([]byte, error) {
	body, err := f.get(ctx, node, path, query)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	answer, err := io.ReadAll(io.LimitReader(body, maxHop))
	if err != nil {
		return nil, unread(node, path, err)
	}
	return answer, nil
}

// Stream copies the answer of a Node's agent to w.
func (f followed) Stream(ctx context.Context, node, path string, query url.Values, w io.Writer) error {
	body, err := f.get(ctx, node, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return unread(node, path, err)
	}
	return nil
}

// get returns the body of an answer, or the agent's error.
func (f followed) get(ctx context.Context, node, path string, query url.Values) (io.ReadCloser, error) {
	c, err := f.connected(ctx, node)
	if err != nil {
		return nil, err
	}
	at := url.URL{Scheme: "https", Host: api.RelayHost, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := c.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if err != nil {
		return nil, unread(node, path, err)
	}
	var refused api.Error
	if json.Unmarshal(text, &refused) != nil || refused.Error == "" {
		refused.Error = strings.TrimSpace(string(text))
	}
	return nil, refusal{errors.New("Node " + node + ": " + refused.Error)}
}

// unread is the error of a Node's answer that ends early.
func unread(node, path string, err error) error {
	return fmt.Errorf("%s: read the answer for %s: %w", "Node "+node, path, err)
}

// refusal is the error of an agent. It wraps follow.ErrRefused.
type refusal struct{ error }

func (refusal) Unwrap() error { return follow.ErrRefused }

// connected returns the connection of a Node. If a Node of the cluster is not connected, it waits for it.
func (f followed) connected(ctx context.Context, name string) (*node, error) {
	late := time.NewTimer(connectWait)
	defer late.Stop()
	for {
		c, known, changed := f.nodes.find(name)
		if c != nil {
			return c, nil
		}
		_, err := f.nodes.of(name)
		if !known {
			return nil, err
		}
		select {
		case <-changed:
			continue
		case <-late.C:
		case <-ctx.Done():
		}
		if err != nil {
			return nil, unconnected{err}
		}
	}
}

// unconnected is the error of a Node that is not connected to this replica. It wraps follow.ErrNotConnected.
type unconnected struct{ error }

func (unconnected) Unwrap() error { return follow.ErrNotConnected }

package remote

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

// Followed returns clusters for package follow.
func Followed(all ...*Cluster) ([]follow.Cluster, error) {
	var out []follow.Cluster
	for _, c := range all {
		objects, err := client.New(c.Config, client.Options{Scheme: follow.Scheme()})
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		out = append(out, follow.Cluster{Name: c.Name, Objects: objects, Agents: &listed{Cluster: c}, Timeout: c.Timeout})
	}
	return out, nil
}

// listed asks the agents that were listed, so it does not look for the Pod of each again.
type listed struct {
	*Cluster

	mu     sync.Mutex
	agents map[string]Agent // by Node
}

// Nodes is for follow.Agents.
func (l *listed) Nodes(ctx context.Context) (names []string, err error) {
	agents, err := l.Agents(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agents = map[string]Agent{}
	for _, a := range agents {
		l.agents[a.Node] = a
		names = append(names, a.Node)
	}
	return names, nil
}

// Stream is for follow.Agents.
func (l *listed) Stream(ctx context.Context, node, path string, query url.Values, w io.Writer) error {
	l.mu.Lock()
	a, ok := l.agents[node]
	l.mu.Unlock()
	if !ok {
		return l.Cluster.Stream(ctx, node, path, query, w)
	}
	return a.Stream(ctx, path, query, w)
}

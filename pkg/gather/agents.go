package gather

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// question is one question to agents.
type question struct {
	path, file string
	query      url.Values
	text       bool // the answer is no JSON
	lines      bool // the answer is lines of JSON
}

// questions are the questions to each agent, with the names of the files for the answers.
var questions = []question{
	{path: api.PathStatus, file: "status.json"},
	{path: api.PathPorts, file: "ports.json"},
	{path: api.PathPeers, file: "peers.json"},
	{path: api.PathProbes, file: "probes.json"},
	{path: api.PathPolicies, file: "policies.json"},
	{path: api.PathRules, file: "rules.json"},
	{path: api.PathIdentities, file: "identities.json"},
	{path: api.PathFlows, file: "flows.json"},
	{path: api.PathGroups, file: "groups.json"},
	{path: api.PathMeters, file: "meters.json"},
	{path: api.PathOVSDB, file: "ovsdb.json"},
	{path: api.PathLinks, file: "links.json"},
	{path: api.PathRoutes, file: "routes.json"},
	{path: api.PathNFTables, file: "nftables.json"},
	{path: api.PathGoroutines, file: "goroutines.json"},
	{path: api.PathConnections, file: "connections.json"},
	{path: api.PathObserve, file: "observe.jsonl", query: url.Values{"last": {"1000"}}, lines: true},
	{path: PathMetrics, file: "metrics.txt", text: true},
}

// node adds the answers of an agent. Its logs and objects come from the API server, even if the agent does not answer.
// The requests are sent one after the other, since an agent also has traffic to serve.
func (c *cluster) node(ctx context.Context, a remote.Agent) {
	c.askAll(ctx, "nodes/"+a.Node, func(q question) error { return c.ask(ctx, a, q) })
}

// askAll sends all requests, and notes each one without an answer. It stops early if an agent hangs.
func (c *cluster) askAll(ctx context.Context, folder string, ask func(question) error) {
	late := 0
	for i, q := range questions {
		if q.path == api.PathConnections && c.Connections {
			q.query = url.Values{"entries": {"true"}}
		}
		err := ask(q)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			continue
		case i == 0: // the others would only wait as long
			c.fail(folder, err)
			return
		}
		c.fail(folder+"/"+q.file, err)
		if errors.Is(err, context.DeadlineExceeded) {
			late++
		}
		if late == mostLate {
			for _, q := range questions[i+1:] {
				c.fail(folder+"/"+q.file, fmt.Errorf("not asked: the agent gave no answer in time to %d other questions; "+
					"--timeout waits longer", late))
			}
			return
		}
	}
}

// ask adds one answer of an agent.
func (c *cluster) ask(ctx context.Context, a remote.Agent, q question) error {
	answer, err := a.Ask(ctx, q.path, q.query)
	if err != nil {
		return err
	}
	name := "nodes/" + a.Node + "/" + q.file
	switch {
	case q.text:
		c.put(name, answer)
	case q.lines:
		c.putLines(name, answer)
	default:
		c.putJSON(name, answer)
	}
	return nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// ErrConfigurationChanged is the error of Run if the configuration file has changed shortly after the start. The agent
// has to be started again with the new file.
var ErrConfigurationChanged = errors.New("the configuration file has changed since the agent read it")

const (
	configObject = "file antrea-agent.conf" // object of problems of the configuration
	configPoll   = 5 * time.Second
	// takeOverFor is how long after its start an agent restarts because of a changed file. A kubelet mounts the version of
	// the ConfigMap that it has read last. After an outage of the API server, it reads again at most a minute later
	// (client-go's reflector waits up to twice 30 s), and updates the file up to a minute and a half after that. An agent
	// that is restarted in that time still reads the old file.
	takeOverFor = 5 * time.Minute
)

// configFile compares the configuration file with the configuration that the agent has read from it.
type configFile struct {
	path    string // path    string // empty for no file
	have    config.Config
	restart string // the command that restarts the agents
	log     *slog.Logger

	mu      sync.Mutex
	problem *api.Problem
}

// run compares until ctx ends, or the agent is to be started again.
func (f *configFile) run(ctx context.Context) error {
	if f.path == "" {
		return nil
	}
	began, tick := time.Now(), time.NewTicker(configPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if f.compare() && now.Sub(began) < takeOverFor {
				return ErrConfigurationChanged
			}
		}
	}
}

// compare reports whether the file now has another valid configuration. Such a change is a problem, and so is a file
// with which an agent would not start.
func (f *configFile) compare() bool {
	now, _, err := config.Load(f.path)
	changed := err == nil && !reflect.DeepEqual(now, f.have)
	var p *api.Problem
	switch {
	case err != nil:
		p = &api.Problem{Reason: reasonConfigurationInvalid.String(),
			Message: fmt.Sprintf("the agent goes on with what it has read "+
				"before, and would not start again: %v", err)}
	case changed:
		p = &api.Problem{Reason: reasonConfigurationChanged.String(),
			Message: "the file has changed since the agent read it, and the " +
				"agent goes on with what it had: run " + f.restart}
	}
	if p != nil {
		p.Object = configObject
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p != nil && (f.problem == nil || *f.problem != *p) {
		f.log.Warn(p.Message, "file", f.path, "reason", p.Reason)
	}
	f.problem = p
	return changed
}

func (f *configFile) problems() []api.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == nil {
		return nil
	}
	return []api.Problem{*f.problem}
}
